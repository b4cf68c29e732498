//! Changing omaps that have leaves. The leaves that an operation changes were loaded before
//! (`Index::touched`).

use super::omap::{FIRST_MAX, LEAF_AIM, LEAF_MAX, LEAF_MIN, Leaf, Leaves, leaf_id, whole_max};
use super::{Index, Moves, Op, Slot};
use bytes::Bytes;
use nacre_base::Name;
use nacre_proto::transaction::StoredId;
use std::collections::{BTreeMap, BTreeSet};

/// What the owners of a leaf take in a checkpoint.
pub(crate) const SHARE_COST: u64 = 12;

/// Which leaves objects share.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    /// How many objects have a leaf, where it is more than one.
    shared: BTreeMap<u64, u32>,
    /// How many have each leaf of which that changed since the last checkpoint was begun.
    changed: BTreeMap<u64, u32>,
}

impl Shares {
    pub fn new(shared: BTreeMap<u64, u32>) -> Shares {
        Shares { shared, changed: BTreeMap::new() }
    }
    /// Of a leaf that has an owner.
    pub fn owners(&self, number: u64) -> u32 {
        self.shared.get(&number).copied().unwrap_or(1)
    }
    pub fn shared(&self) -> &BTreeMap<u64, u32> {
        &self.shared
    }
    /// The content of a checkpoint that begins now.
    pub fn take_changed(&mut self) -> Vec<(u64, u32)> {
        std::mem::take(&mut self.changed).into_iter().collect()
    }
    pub fn changed(&self) -> usize {
        self.changed.len()
    }
    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        (self.shared.len() + self.changed.len()) * 24
    }
    fn set(&mut self, number: u64, owners: u32) {
        match owners {
            0 | 1 => drop(self.shared.remove(&number)),
            _ => drop(self.shared.insert(number, owners)),
        }
        self.changed.insert(number, owners);
    }
}

/// What an operation does to leaves.
#[derive(Debug, Default)]
pub(crate) struct Touched {
    /// They have to be in memory, and are not.
    pub absent: Vec<Leaf>,
    /// They may change, become others, or end. Only if that is asked for.
    pub all: Vec<u64>,
}

impl Index {
    fn leaves(&self, id: &StoredId) -> Option<&Leaves> {
        self.get(id).map(|object| &object.omap().leaves).filter(|leaves| !leaves.is_empty())
    }

    /// What `op` will do to leaves of this object's omap.
    pub fn touched(&self, id: &StoredId, op: &Op, wants_all: bool) -> Touched {
        let mut touched = Touched::default();
        // Most operations are none of these, and need no look-up.
        let may_touch = matches!(
            op,
            Op::OmapSet(_)
                | Op::OmapRemove(_)
                | Op::OmapRemoveRange { .. }
                | Op::OmapClear
                | Op::Remove
                | Op::CloneFrom(_)
                | Op::Lose
        );
        let Some(leaves) = (if may_touch { self.leaves(id) } else { None }) else { return touched };
        let list = leaves.list();
        // Keys are in order, so that those of one leaf follow each other.
        let mut last = None;
        let mut change = |key: &Name, touched: &mut Touched| {
            let at = leaves.at(key.as_bytes());
            if last.replace(at) == Some(at) {
                return;
            }
            if self.slot(&leaf_id(list[at].number)).is_none() {
                touched.absent.push(list[at].clone());
            }
            if wants_all {
                // What is left of it may be joined with a neighbour.
                let neighbours = at.saturating_sub(1)..(at + 2).min(list.len());
                touched.all.extend(list[neighbours].iter().map(|leaf| leaf.number));
            }
        };
        match op {
            Op::OmapSet(pairs) => pairs.keys().for_each(|key| change(key, &mut touched)),
            Op::OmapRemove(keys) => keys.iter().for_each(|key| change(key, &mut touched)),
            Op::OmapRemoveRange { begin, end } if begin < end => {
                change(begin, &mut touched);
                change(end, &mut touched);
                let between = leaves.at(begin.as_bytes())..=leaves.at(end.as_bytes());
                touched.all.extend(list[between].iter().filter(|_| wants_all).map(|leaf| leaf.number));
            }
            Op::OmapClear | Op::Remove | Op::CloneFrom(_) | Op::Lose => {
                touched.all.extend(list.iter().filter(|_| wants_all).map(|leaf| leaf.number));
            }
            _ => {}
        }
        touched
    }

    pub(super) fn omap_set(&mut self, id: &StoredId, pairs: BTreeMap<Name, Bytes>) {
        if self.leaves(id).is_none() {
            self.edit(id, |object| {
                pairs.into_iter().for_each(|(key, value)| object.omap_mut().set(key, value));
            });
            return self.split_into_leaves(id);
        }
        let mut leaves = self.take_leaves(id);
        // From behind, so that a leaf that becomes several moves none that comes next.
        let mut pairs = pairs.into_iter().rev().peekable();
        while let Some((last, _)) = pairs.peek() {
            let at = leaves.at(last.as_bytes());
            let first = leaves.list()[at].first.clone();
            self.edit_leaf(&mut leaves, at, |omap| {
                while let Some((key, value)) = pairs.next_if(|(key, _)| *key >= first) {
                    omap.set(key, value);
                }
            });
            // One that cannot be read has not taken them.
            while pairs.next_if(|(key, _)| *key >= first).is_some() {}
            self.split(&mut leaves, at);
        }
        self.put_leaves(id, leaves);
    }

    pub(super) fn omap_remove(&mut self, id: &StoredId, mut keys: BTreeSet<Name>) {
        if self.leaves(id).is_none() {
            return self.edit(id, |object| {
                if object.omap.is_some() {
                    keys.iter().for_each(|key| object.omap_mut().remove(key));
                }
            });
        }
        let mut leaves = self.take_leaves(id);
        while let Some(last) = keys.last()
            && !leaves.is_empty()
        {
            let at = leaves.at(last.as_bytes());
            let these = keys.split_off(&leaves.list()[at].first);
            self.edit_leaf(&mut leaves, at, |omap| these.iter().for_each(|key| omap.remove(key)));
            self.tidy(&mut leaves, at);
        }
        self.put_leaves(id, leaves);
    }

    /// Parts that are in the range as a whole end without being examined.
    pub(super) fn omap_remove_range(&mut self, id: &StoredId, begin: &Name, end: &Name) {
        if begin >= end || self.leaves(id).is_none() {
            return self.edit(id, |object| {
                if object.omap.is_some() {
                    object.omap_mut().remove_range(begin, end);
                }
            });
        }
        let mut leaves = self.take_leaves(id);
        let (first, last) = (leaves.at(begin.as_bytes()), leaves.at(end.as_bytes()));
        for at in [last, first].into_iter().take(if first == last { 1 } else { 2 }) {
            if *begin <= leaves.list()[at].first && at < last {
                continue;
            }
            self.edit_leaf(&mut leaves, at, |omap| omap.remove_range(begin, end));
        }
        let from = if *begin <= leaves.list()[first].first { first } else { first + 1 };
        if from < last {
            for leaf in leaves.remove(from..last) {
                self.release(&leaf);
            }
        }
        // The rests of the two leaves are neighbours now. Others are not merged: their neighbours may be in a
        // checkpoint that never learned of the change.
        let is_left = first < last && first < from;
        for at in [first + 1, first].into_iter().skip(usize::from(!is_left)) {
            self.tidy(&mut leaves, at);
        }
        self.put_leaves(id, leaves);
    }

    pub(super) fn omap_clear(&mut self, id: &StoredId) {
        let mut leaves = Leaves::default();
        self.edit(id, |object| {
            if let Some(omap) = object.omap.take() {
                leaves = omap.leaves.clone();
            }
        });
        leaves.list().iter().for_each(|leaf| self.release(leaf));
    }

    /// Another object has these leaves, too.
    pub(super) fn share(&mut self, leaves: &Leaves) {
        for leaf in leaves.list() {
            let owners = self.shares.owners(leaf.number).saturating_add(1);
            self.shares.set(leaf.number, owners);
        }
    }
    /// An object has it no longer.
    pub(super) fn release(&mut self, leaf: &Leaf) {
        match self.shares.owners(leaf.number) {
            0 | 1 => self.end_leaf(leaf),
            owners => self.shares.set(leaf.number, owners - 1),
        }
    }
    fn end_leaf(&mut self, leaf: &Leaf) {
        let id = leaf_id(leaf.number);
        if self.slot(&id).is_some() {
            return self.remove(&id, &mut Moves::default());
        }
        // All that has to be known of it is that it is gone.
        self.total.weight.sub_of_said(leaf.weight());
        let (kept, _) = self.slots.insert(&id, Slot::Gone(self.changed.mark));
        self.changed.encoded += super::bare_cost(&id);
        self.changed.ids.insert(kept);
    }

    /// Begins to edit an object, until `put_parts`. While they are out of it, `edit` may change its leaves.
    fn take_leaves(&mut self, id: &StoredId) -> Leaves {
        let (object, _) = self.begin_edit(id).expect("what has leaves can be read");
        std::mem::take(&mut object.omap_mut().leaves)
    }
    fn put_leaves(&mut self, id: &StoredId, mut leaves: Leaves) {
        let mut pairs = BTreeMap::new();
        if let [leaf] = leaves.list()
            && leaf.cost <= LEAF_MAX / 2
            && self.is_alone(leaf)
        {
            let leaf = leaf_id(leaf.number);
            self.edit(&leaf, |object| pairs = object.omap_mut().take_pairs());
            self.remove(&leaf, &mut Moves::default());
            leaves = Leaves::default();
        }
        self.end_edit(id, |object| {
            let omap = object.omap_mut();
            omap.leaves = leaves;
            if !pairs.is_empty() {
                omap.replace_pairs(pairs);
            }
        });
    }
    /// Of an omap that became long.
    fn split_into_leaves(&mut self, id: &StoredId) {
        if self.get(id).is_none_or(|object| object.omap().cost() <= whole_max(id)) {
            return;
        }
        let (object, _) = self.begin_edit(id).expect("it was looked at");
        let pairs = object.omap_mut().take_pairs();
        let mut leaves = Leaves::default();
        let leaf = self.new_leaf(Name::default(), pairs);
        leaves.insert(0, leaf);
        self.split(&mut leaves, 0);
        self.put_leaves(id, leaves);
    }

    fn new_leaf(&mut self, first: Name, pairs: BTreeMap<Name, Bytes>) -> Leaf {
        let number = self.next_leaf();
        let mut cost = 0;
        self.edit(&leaf_id(number), |object| {
            object.omap_mut().replace_pairs(pairs);
            cost = object.omap().cost();
        });
        Leaf { first, number, cost }
    }
    fn next_leaf(&mut self) -> u64 {
        self.total.leaves_made += 1;
        self.total.leaves_made
    }

    /// One that cannot be read stays so.
    fn edit_leaf(&mut self, leaves: &mut Leaves, at: usize, change: impl FnOnce(&mut super::omap::Omap)) {
        let leaf = leaves.leaf_mut(at);
        let owners = self.shares.owners(leaf.number);
        if owners > 1 {
            let number = self.next_leaf();
            self.copy(&leaf_id(leaf.number), &leaf_id(number), &mut Moves::default());
            self.shares.set(leaf.number, owners - 1);
            leaf.number = number;
        }
        let id = leaf_id(leaf.number);
        let (_, slot) = self.slots.get_or_make(&id, || Slot::Damaged(0));
        if !slot.exists() {
            // It was another's as well, which no store says of a leaf that is not shared.
            *slot = Slot::Damaged(0);
        }
        self.edit(&id, |object| {
            change(object.omap_mut());
            leaf.cost = object.omap().cost();
        });
    }
    /// Whether it is in memory, and has one owner.
    fn is_alone(&self, leaf: &Leaf) -> bool {
        self.shares.owners(leaf.number) == 1 && self.get(&leaf_id(leaf.number)).is_some()
    }

    /// Makes several leaves of one that became long.
    fn split(&mut self, leaves: &mut Leaves, at: usize) {
        let &Leaf { number, cost, .. } = &leaves.list()[at];
        if cost <= LEAF_MAX {
            return; // as nearly always
        }
        let id = leaf_id(number);
        if self.get(&id).is_none() {
            return;
        }
        let aim = cost.div_ceil(cost.div_ceil(LEAF_AIM));
        let mut rest = BTreeMap::new();
        self.edit(&id, |object| rest = object.omap_mut().take_pairs());
        let mut firsts = Vec::new();
        let (mut len, mut before): (u64, Option<&Name>) = (0, None);
        for (key, value) in &rest {
            if len >= aim
                && let Some(before) = before
                && let Some(first) = between(before, key)
            {
                firsts.push(first);
                len = 0;
            }
            len += super::omap::pair_cost(key, value);
            before = Some(key);
        }
        let mut pieces = Vec::with_capacity(firsts.len());
        for first in firsts.into_iter().rev() {
            let pairs = rest.split_off(&first);
            pieces.push((first, pairs));
        }
        self.edit(&id, |object| object.omap_mut().replace_pairs(rest));
        leaves.leaf_mut(at).cost = self.get(&id).map_or(0, |object| object.omap().cost());
        for (at, (first, pairs)) in (at + 1..).zip(pieces.into_iter().rev()) {
            let leaf = self.new_leaf(first, pairs);
            leaves.insert(at, leaf);
        }
    }

    /// Ends a leaf that has nothing any more, and joins what became short with what is beside it.
    fn tidy(&mut self, leaves: &mut Leaves, at: usize) {
        let Some(leaf) = leaves.list().get(at) else { return };
        if leaf.cost == 0 {
            for leaf in leaves.remove(at..at + 1) {
                self.release(&leaf);
            }
            return;
        }
        if leaf.cost >= LEAF_MIN {
            return;
        }
        for left in [Some(at), at.checked_sub(1)].into_iter().flatten() {
            if let Some([one, two]) = leaves.list().get(left..left + 2)
                && one.cost + two.cost <= LEAF_AIM
                && self.is_alone(one)
                && self.is_alone(two)
            {
                let (one, two) = (leaf_id(one.number), leaf_id(two.number));
                let mut pairs = BTreeMap::new();
                self.edit(&two, |object| pairs = object.omap_mut().take_pairs());
                self.remove(&two, &mut Moves::default());
                self.edit(&one, |object| {
                    pairs.into_iter().for_each(|(key, value)| object.omap_mut().set(key, value));
                });
                leaves.remove(left + 1..left + 2);
                leaves.leaf_mut(left).cost = self.get(&one).map_or(0, |object| object.omap().cost());
                return;
            }
        }
    }
}

/// The shortest key that is behind `before` and not behind `key`, if it is short enough for a leaf to begin
/// with.
fn between(before: &Name, key: &Name) -> Option<Name> {
    let (before, key) = (before.as_bytes(), key.as_bytes());
    let same = before.iter().zip(key).take_while(|(a, b)| a == b).count();
    (same < FIRST_MAX).then(|| Name::copy_from(&key[..(same + 1).min(key.len())]))
}
