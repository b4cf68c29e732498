//! The index: metadata of the objects in memory, and the operations that change them.
//!
//! Objects that changed since the last checkpoint are here (the memtable of an LSM store), and objects in
//! use; the sorted runs of the checkpoint (`runs/`) have all others. An object is loaded before it is
//! changed, so that `Index::apply` is the only code that changes one. It runs when a transaction is
//! submitted, and again with the same operations when the log is replayed.

mod object;
pub(crate) mod omap;
pub(crate) mod omap_leaves;
mod op;
mod pools;
mod slot_table;
pub(crate) mod sorted_ids;

pub(crate) use object::{BLOCK_COST, MappedExtent, OWNERS_COST, Object, Weight, bare_cost, join_mapped};
pub(crate) use op::Op;
pub(crate) use pools::Pools;
#[cfg(test)]
pub(crate) use pools::pool_of;

use crate::small_list::BlockList;
use crate::space::Extent;
use nacre_proto::transaction::StoredId;
use omap::is_reserved;
use omap_leaves::Shares;
use slot_table::SlotTable;
use sorted_ids::SortedIds;
use std::sync::Arc;

/// References to blocks that an operation made and ended, once each.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    /// Nothing had them before.
    pub placed: BlockList,
    /// Another object has them as well.
    pub copied: Vec<Extent>,
    pub dropped: BlockList,
}

/// What is known of an object that is in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    Object(Arc<Object>),
    /// It exists, and what it was cannot be read: it stays so until it is removed or becomes a copy of
    /// another. All operations before that change nothing. With its mark.
    Damaged(u64),
    /// Removed. With its mark.
    Gone(u64),
}

impl Slot {
    /// The interval in which it changed last; see `Changed`.
    pub fn mark(&self) -> u64 {
        match self {
            Slot::Object(object) => object.mark,
            Slot::Damaged(mark) | Slot::Gone(mark) => *mark,
        }
    }
    pub fn exists(&self) -> bool {
        !matches!(self, Slot::Gone(_))
    }
    pub fn object(&self) -> Option<&Arc<Object>> {
        if let Slot::Object(object) = self { Some(object) } else { None }
    }
    /// Of its omap.
    pub fn pairs(&self) -> usize {
        self.object().map_or(0, |object| object.omap().pairs.len())
    }
}

#[derive(Debug)]
pub(crate) struct Index {
    slots: SlotTable,
    /// What all objects take, and how many they are, also those that are not in memory.
    pub total: Totals,
    /// What those in memory take, and how many pairs their omaps have.
    here: Weight,
    pairs: usize,
    changed: Changed,
    pub shares: Shares,
}

/// Of all objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Without leaves of omaps, which are objects only to the store.
    pub objects: u64,
    pub weight: Weight,
    /// The number of the leaf that was made last.
    pub leaves_made: u64,
    /// None before they were counted: no sorted run says it that version 8 wrote.
    pub pools: Option<Pools>,
}

impl Totals {
    /// Of a store that has nothing.
    pub fn none() -> Totals {
        Totals { pools: Some(Pools::default()), ..Totals::default() }
    }
    /// Pools that have nothing say nothing.
    pub fn are(&self, other: &Totals) -> bool {
        let pools = |totals: &Totals| totals.pools.iter().flat_map(Pools::list).collect::<Vec<_>>();
        let rest = |totals: &Totals| (totals.objects, totals.weight, totals.leaves_made);
        rest(self) == rest(other) && pools(self) == pools(other)
    }
    fn add(&mut self, id: &StoredId, object: &Object, weight: Weight) {
        self.weight.add(weight);
        if let Some(pools) = &mut self.pools {
            pools.add(id, object, weight);
        }
    }
    fn sub(&mut self, id: &StoredId, object: &Object, weight: Weight) {
        self.weight.sub_of_said(weight);
        if let Some(pools) = &mut self.pools {
            pools.sub(id, object, weight);
        }
    }
}

/// What changed since the last checkpoint was begun.
#[derive(Debug, Default)]
pub(crate) struct Changed {
    /// Also of what was removed.
    pub ids: SortedIds,
    /// No less than what these take in a checkpoint.
    pub encoded: u64,
    /// Objects with this mark are in `ids`. Those that came from a checkpoint have the mark 0, so it begins
    /// with 1.
    pub mark: u64,
}

/// Where an object is counted that changes.
struct Counts<'a> {
    id: &'a StoredId,
    mark: u64,
    total: &'a mut Totals,
    here: &'a mut Weight,
    pairs: &'a mut usize,
    encoded: &'a mut u64,
}

impl Counts<'_> {
    fn add(self, object: &mut Object) {
        // Now, as it may have become a copy of another.
        object.mark = self.mark;
        let weight = object.weight();
        self.total.add(self.id, object, weight);
        self.here.add(weight);
        *self.pairs += object.omap().pairs.len();
        *self.encoded += weight.encoded;
    }
}

fn counted(id: &StoredId) -> u64 {
    u64::from(!is_reserved(id))
}

impl Index {
    /// `seed`: of `Objects`.
    pub fn new(total: Totals, shares: Shares, seed: u64) -> Index {
        let changed = Changed { mark: 1, ..Changed::default() };
        Index { slots: SlotTable::new(seed), total, here: Weight::default(), pairs: 0, changed, shares }
    }
    /// What is in memory of an object.
    pub fn slot(&self, id: &StoredId) -> Option<&Slot> {
        self.slots.get(id)
    }
    /// An object that is in memory.
    pub fn get(&self, id: &StoredId) -> Option<&Arc<Object>> {
        self.slots.get(id)?.object()
    }
    pub fn changed(&self) -> &Changed {
        &self.changed
    }
    /// Begins the next interval.
    pub fn take_changed(&mut self) -> Changed {
        let next = Changed { mark: self.changed.mark + 1, ..Changed::default() };
        std::mem::replace(&mut self.changed, next)
    }
    /// Objects in memory, also those that are gone.
    pub fn len(&self) -> usize {
        self.slots.len()
    }
    /// What the objects in memory take.
    pub fn here(&self) -> Weight {
        self.here
    }
    pub fn pairs(&self) -> usize {
        self.pairs
    }
    /// All in memory, in an order that means nothing.
    pub fn slots(&self) -> impl Iterator<Item = (&StoredId, &Slot)> {
        self.slots.iter()
    }
    /// Puts an object of a checkpoint here. Gives its id as it is kept.
    pub fn bring(&mut self, id: &StoredId, slot: Slot) -> Arc<StoredId> {
        if let Slot::Object(object) = &slot {
            self.here.add(object.weight());
            self.pairs += object.omap().pairs.len();
        }
        let (kept, old) = self.slots.insert(id, slot);
        assert_eq!(old, None, "it was in memory already");
        kept
    }
    /// Takes out what the checkpoint has.
    pub fn put_away(&mut self, id: &StoredId) {
        if let Some(Slot::Object(object)) = self.slots.remove(id) {
            self.here.sub(object.weight());
            self.pairs -= object.omap().pairs.len();
        }
    }
    /// An object that no sorted run has, from before there were sorted runs.
    pub fn adopt(&mut self, id: StoredId, object: Object) {
        self.forget(&id);
        self.edit(&id, |new| *new = object);
    }
    /// The end of such an object.
    pub fn forget(&mut self, id: &StoredId) {
        self.remove(id, &mut Moves::default());
    }

    /// Blocks came to be, or ended, that an object has or had.
    pub fn count_blocks(&mut self, id: &StoredId, taken: usize, freed: usize) {
        if let Some(pools) = &mut self.total.pools {
            pools.count_blocks(id, taken, freed);
        }
    }

    pub fn apply(&mut self, id: &StoredId, op: Op, moves: &mut Moves) {
        match op {
            Op::Remove => self.remove(id, moves),
            Op::CloneFrom(from) if from == *id => self.edit(id, |_| ()),
            Op::CloneFrom(from) => self.copy(&from, id, moves),
            Op::CloneBlocks { of, .. } if of == *id => self.edit(id, |_| ()),
            Op::CloneBlocks { of, from, to } => self.copy_blocks(&of, id, from, to, moves),
            Op::Touch => self.edit(id, |_| ()),
            Op::Lose => {
                self.edit(id, |_| ());
                self.damage(id, moves);
            }
            Op::Place(extents) => {
                moves.placed.extend(extents.iter().flat_map(|extent| extent.blocks.blocks()));
                if let Some(Slot::Damaged(_)) = self.slots.get(id) {
                    moves.dropped.extend(extents.iter().flat_map(|extent| extent.blocks.blocks()));
                }
                self.edit(id, |object| {
                    extents.into_iter().for_each(|extent| moves.dropped.extend(object.blocks.insert(extent)));
                });
            }
            Op::Punch { from, to } => self.edit(id, |object| {
                moves.dropped.extend(object.blocks.remove(from, to));
            }),
            Op::Size(size) => self.edit(id, |object| object.size = size),
            Op::SetAttrs(attrs) => self.edit(id, |object| {
                attrs.into_iter().for_each(|(name, value)| object.set_attr(name, value));
            }),
            Op::RemoveAttr(name) => self.edit(id, |object| {
                object.attrs.remove(name.as_bytes());
            }),
            Op::OmapSet(pairs) => self.omap_set(id, pairs),
            Op::OmapRemove(keys) => self.omap_remove(id, keys),
            Op::OmapRemoveRange { begin, end } => self.omap_remove_range(id, &begin, &end),
            Op::OmapClear => self.omap_clear(id),
            Op::OmapSetHeader(header) => self.edit(id, |object| object.omap_mut().header = header),
        }
    }

    fn remove(&mut self, id: &StoredId, moves: &mut Moves) {
        let mark = self.changed.mark;
        let Some((kept, slot)) = self.slots.get_mut(id).filter(|(_, slot)| slot.exists()) else { return };
        let old = std::mem::replace(slot, Slot::Gone(mark));
        let is_changed = old.mark() == mark;
        if !is_changed {
            self.changed.ids.insert(kept.clone());
        }
        if let Slot::Object(object) = &old {
            let weight = object.weight();
            self.here.sub(weight);
            self.pairs -= object.omap().pairs.len();
            self.total.sub(id, object, weight);
            self.changed.encoded -= if is_changed { weight.encoded } else { 0 };
            moves.dropped.extend(object.blocks.blocks());
        } else if is_changed {
            self.changed.encoded -= bare_cost(id);
        }
        // Whether what cannot be read exists at all is not known.
        self.total.objects = self.total.objects.saturating_sub(counted(id));
        self.changed.encoded += bare_cost(id);
        if let Slot::Object(object) = &old {
            object.omap().leaves.list().iter().for_each(|leaf| self.release(leaf));
        }
    }

    fn copy(&mut self, from: &StoredId, id: &StoredId, moves: &mut Moves) {
        let copy = match self.slots.get(from) {
            // As `Op::Lose` does it, which stands in the log instead.
            Some(Slot::Damaged(_)) => return self.apply(id, Op::Lose, moves),
            Some(Slot::Object(from)) => Object { id_len: id.encoded_len() as u32, ..Object::clone(from) },
            Some(Slot::Gone(_)) | None => Object::new(id),
        };
        moves.copied.extend(copy.blocks.extents().iter().map(|extent| extent.blocks));
        if let Some(Slot::Damaged(_)) = self.slots.get(id) {
            self.remove(id, moves);
        }
        self.share(&copy.omap().leaves);
        let mut old = None;
        self.edit(id, |object| {
            moves.dropped.extend(object.blocks.blocks());
            old = std::mem::replace(object, copy).omap;
        });
        old.iter().flat_map(|omap| omap.leaves.list()).for_each(|leaf| self.release(leaf));
    }

    fn copy_blocks(&mut self, of: &StoredId, id: &StoredId, from: u32, to: u32, moves: &mut Moves) {
        let extents: Vec<MappedExtent> = match (self.slots.get(of), self.slots.get(id)) {
            (Some(Slot::Damaged(_)), _) => return self.apply(id, Op::Lose, moves),
            // It gets nothing anyway.
            (_, Some(Slot::Damaged(_))) => Vec::new(),
            (Some(Slot::Object(of)), _) => of.blocks.range(from, to).collect(),
            (Some(Slot::Gone(_)) | None, _) => Vec::new(),
        };
        moves.copied.extend(extents.iter().map(|extent| extent.blocks));
        self.edit(id, |object| {
            moves.dropped.extend(object.blocks.remove(from, to));
            extents.into_iter().for_each(|extent| drop(object.blocks.insert(extent)));
        });
    }

    /// It becomes a copy of what cannot be read.
    fn damage(&mut self, id: &StoredId, moves: &mut Moves) {
        self.remove(id, moves);
        self.slots.insert(id, Slot::Damaged(self.changed.mark));
        self.total.objects += counted(id);
    }

    /// Changes an object, which is created if need be. A checkpoint that still has to write the old
    /// one keeps it: then this is a copy.
    fn edit(&mut self, id: &StoredId, change: impl FnOnce(&mut Object)) {
        if let Some((object, counts)) = self.begin_edit(id) {
            change(object);
            counts.add(object);
        }
    }

    /// The beginning of that: an object that is not counted any more. None if it cannot be read: it stays so.
    fn begin_edit<'a>(&'a mut self, id: &'a StoredId) -> Option<(&'a mut Object, Counts<'a>)> {
        let Index { slots, total, here, pairs, changed, .. } = self;
        let mark = changed.mark;
        let (kept, slot) = slots.get_or_make(id, || Slot::Gone(0));
        let was_noted = slot.mark() == mark;
        if let Slot::Gone(_) = slot {
            // If it went in this interval, it comes back now.
            changed.encoded -= if was_noted { bare_cost(id) } else { 0 };
            total.objects += counted(id);
            *slot = Slot::Object(Arc::new(Object::new(id)));
        } else if let Slot::Object(object) = slot {
            let weight = object.weight();
            changed.encoded -= if was_noted { weight.encoded } else { 0 };
            total.sub(id, object, weight);
            here.sub(weight);
            *pairs -= object.omap().pairs.len();
        }
        if !was_noted {
            changed.ids.insert(kept.clone());
        }
        match slot {
            Slot::Object(object) => {
                let counts = Counts { id, mark, total, here, pairs, encoded: &mut changed.encoded };
                Some((Arc::make_mut(object), counts))
            }
            Slot::Damaged(damaged) => {
                changed.encoded += if was_noted { 0 } else { bare_cost(id) };
                *damaged = mark;
                None
            }
            Slot::Gone(_) => unreachable!("it was just made"),
        }
    }
    /// The end of a change that `begin_edit` began, with a last word.
    fn end_edit(&mut self, id: &StoredId, change: impl FnOnce(&mut Object)) {
        let Index { slots, total, here, pairs, changed, .. } = self;
        let Some((_, Slot::Object(object))) = slots.get_mut(id) else { return };
        let object = Arc::make_mut(object);
        change(object);
        Counts { id, mark: changed.mark, total, here, pairs, encoded: &mut changed.encoded }.add(object);
    }

    /// What `Changed::encoded` should be, for `Store::check`.
    pub fn recount_changed(&self) -> u64 {
        let cost = |id: &Arc<StoredId>| self.get(id).map_or_else(|| bare_cost(id), |o| o.weight().encoded);
        self.changed.ids.iter().map(cost).sum()
    }
    /// What `here` should be, for `Store::check`.
    pub fn recount(&self) -> Weight {
        let mut here = Weight::default();
        for (id, slot) in self.slots.iter() {
            if let Slot::Object(object) = slot {
                here.add(object.weighed_anew(id));
            }
        }
        here
    }
}
