//! What is stored, without the data itself: objects, and the operations that change them.
//!
//! `Index::apply` is the only code that changes an object; it runs when a transaction is submitted
//! and again, on the same operations, when the log is replayed.

use crate::BLOCK;
use crate::attrs::Attrs;
use crate::extents::Extents;
use crate::space::Run;
use bytes::Bytes;
use nacre_base::Name;
use nacre_proto::transaction::StoredId;
use nacre_wire::{Decode, DecodeError, Encode, Reader, encode_list, to_vec};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Object {
    pub size: u64,
    /// What is missing reads as zeros; bytes of the last block past `size` are zeros too.
    pub blocks: Extents,
    pub attrs: Attrs,
    /// Few objects have one.
    omap: Option<Arc<Omap>>,
    /// Bytes of its id.
    id_len: u32,
    /// The interval between checkpoints in which it changed last; see `Changed`.
    mark: u64,
}

/// Shared by an object and its copies until one of them changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Omap {
    pub header: Bytes,
    pub pairs: BTreeMap<Name, Bytes>,
    /// What the pairs cost. Kept beside them so that accounting needs no walk.
    cost: u64,
}

static NO_OMAP: Omap = Omap { header: Bytes::new(), pairs: BTreeMap::new(), cost: 0 };

impl Omap {
    /// What it takes in a checkpoint.
    fn weight(&self) -> u64 {
        self.cost + self.header.len() as u64
    }
    fn set(&mut self, key: Name, value: Bytes) {
        self.cost += pair_cost(&key, &value);
        let key_len = key.len() as u64;
        if let Some(old) = self.pairs.insert(key, value) {
            self.cost -= key_len + old.len() as u64 + PAIR_COST;
        }
    }
    fn remove(&mut self, key: &Name) {
        if let Some(old) = self.pairs.remove(key) {
            self.cost -= pair_cost(key, &old);
        }
    }
}

/// What one object, or all of them, take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Weight {
    /// Bytes of data, holes not counted.
    pub stored: u64,
    /// Bytes of omap keys, values and headers.
    pub omap: u64,
    /// No less than what it takes in a checkpoint.
    pub encoded: u64,
    /// References to blocks.
    pub blocks: u64,
}

impl Weight {
    fn add(&mut self, other: Weight) {
        self.stored += other.stored;
        self.omap += other.omap;
        self.encoded += other.encoded;
        self.blocks += other.blocks;
    }
    fn sub(&mut self, other: Weight) {
        self.stored -= other.stored;
        self.omap -= other.omap;
        self.encoded -= other.encoded;
        self.blocks -= other.blocks;
    }
}

/// A block in a checkpoint or in a transaction costs at most this many bytes of log or checkpoint:
/// a run of its own and its checksum.
pub(crate) const BLOCK_COST: u64 = 20;
/// The fixed part of an object in a checkpoint, rounded up.
pub(crate) const OBJECT_COST: u64 = 64;
/// The two lengths of a key and a value.
pub(crate) const PAIR_COST: u64 = 8;

fn pair_cost(key: &Name, value: &Bytes) -> u64 {
    key.len() as u64 + value.len() as u64 + PAIR_COST
}

impl Object {
    pub fn new(id: &StoredId) -> Object {
        Object { id_len: to_vec(id).len() as u32, ..Object::default() }
    }
    pub fn weight(&self) -> Weight {
        let whole = self.blocks.len() as u64 * BLOCK as u64;
        let last = (self.size / BLOCK as u64) as u32;
        let past_end = match self.size % BLOCK as u64 {
            tail if tail != 0 && self.blocks.get(last).is_some() => BLOCK as u64 - tail,
            _ => 0,
        };
        Weight {
            stored: whole - past_end,
            omap: self.omap().weight(),
            encoded: OBJECT_COST
                + u64::from(self.id_len)
                + self.attrs.cost()
                + self.omap().weight()
                + self.blocks.len() as u64 * BLOCK_COST,
            blocks: self.blocks.len() as u64,
        }
    }
    fn set_attr(&mut self, name: Name, value: Bytes) {
        self.attrs.set(name.as_bytes(), &value);
    }
    pub fn omap(&self) -> &Omap {
        self.omap.as_deref().unwrap_or(&NO_OMAP)
    }
    fn omap_mut(&mut self) -> &mut Omap {
        Arc::make_mut(self.omap.get_or_insert_default())
    }

    /// As it stands in a checkpoint: every block with its checksum.
    pub fn encode(&self, id: &StoredId, crc_of: impl Fn(u32) -> u32, out: &mut Vec<u8>) {
        id.encode(out);
        self.size.encode(out);
        self.attrs.encode(out);
        self.omap().header.encode(out);
        self.omap().pairs.encode(out);
        encode_list(out, self.blocks.runs());
        self.blocks.blocks().for_each(|block| crc_of(block).encode(out));
    }
    /// The reverse; `crc` is told the checksum of each block.
    pub fn decode(
        r: &mut Reader<'_>,
        mut crc: impl FnMut(u32, u32),
    ) -> Result<(StoredId, Object), DecodeError> {
        let id = StoredId::decode(r)?;
        let mut object = Object::new(&id);
        object.size = Decode::decode(r)?;
        for (name, value) in BTreeMap::decode(r)? {
            object.set_attr(name, value);
        }
        let header = Bytes::decode(r)?;
        if !header.is_empty() {
            object.omap_mut().header = header;
        }
        for (key, value) in BTreeMap::decode(r)? {
            object.omap_mut().set(key, value);
        }
        let runs: Vec<Placement> = Decode::decode(r)?;
        // Each block has a checksum in the bytes that follow: a lying length ends here.
        let count: u64 = runs.iter().map(|run| u64::from(run.blocks.len)).sum();
        if count > r.remaining() as u64 / 4 {
            return Err(DecodeError::Short { needed: count.saturating_mul(4) as usize, left: r.remaining() });
        }
        object.blocks = runs.into_iter().collect();
        for block in object.blocks.blocks() {
            crc(block, Decode::decode(r)?);
        }
        Ok((id, object))
    }
}

/// Neighbouring blocks of the device that hold neighbouring blocks of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    /// In the object, in blocks.
    pub at: u32,
    pub blocks: Run,
}

impl Placement {
    pub fn pairs(self) -> impl Iterator<Item = (u32, u32)> {
        (0..self.blocks.len).map(move |i| (self.at + i, self.blocks.start + i))
    }
}

/// Joins neighbours.
pub(crate) fn placements(pairs: impl Iterator<Item = (u32, u32)>) -> Vec<Placement> {
    let mut runs: Vec<Placement> = Vec::new();
    for (at, block) in pairs {
        match runs.last_mut() {
            Some(run) if run.at + run.blocks.len == at && run.blocks.start + run.blocks.len == block => {
                run.blocks.len += 1;
            }
            _ => runs.push(Placement { at, blocks: Run { start: block, len: 1 } }),
        }
    }
    runs
}

impl Encode for Placement {
    fn encode(&self, out: &mut Vec<u8>) {
        self.at.encode(out);
        self.blocks.start.encode(out);
        self.blocks.len.encode(out);
    }
}
impl Decode for Placement {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let [at, start, len] = [u32::decode(r)?, u32::decode(r)?, u32::decode(r)?];
        let ends = (at.checked_add(len), start.checked_add(len));
        if len == 0 || ends.0.is_none() || ends.1.is_none() {
            return Err(DecodeError::BadValue { what: "run of blocks", value: len.into() });
        }
        Ok(Placement { at, blocks: Run { start, len } })
    }
}

/// One step of a transaction, as the log has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Touch,
    /// The object's data is in these blocks from now on; what they replace is given back.
    Place(Vec<Placement>),
    /// The object's blocks `from..to` become a hole.
    Punch {
        from: u32,
        to: u32,
    },
    Size(u64),
    Remove,
    SetAttrs(BTreeMap<Name, Bytes>),
    RemoveAttr(Name),
    OmapSet(BTreeMap<Name, Bytes>),
    OmapRemove(BTreeSet<Name>),
    OmapRemoveRange {
        begin: Name,
        end: Name,
    },
    OmapClear,
    OmapSetHeader(Bytes),
    CloneFrom(StoredId),
}

impl Encode for Op {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Op::Touch => out.push(0),
            Op::Place(runs) => {
                out.push(1);
                runs.encode(out);
            }
            Op::Punch { from, to } => {
                out.push(2);
                (*from, *to).encode(out);
            }
            Op::Size(size) => {
                out.push(3);
                size.encode(out);
            }
            Op::Remove => out.push(4),
            Op::SetAttrs(attrs) => {
                out.push(5);
                attrs.encode(out);
            }
            Op::RemoveAttr(name) => {
                out.push(6);
                name.encode(out);
            }
            Op::OmapSet(pairs) => {
                out.push(7);
                pairs.encode(out);
            }
            Op::OmapRemove(keys) => {
                out.push(8);
                keys.encode(out);
            }
            Op::OmapRemoveRange { begin, end } => {
                out.push(9);
                begin.encode(out);
                end.encode(out);
            }
            Op::OmapClear => out.push(10),
            Op::OmapSetHeader(header) => {
                out.push(11);
                header.encode(out);
            }
            Op::CloneFrom(from) => {
                out.push(12);
                from.encode(out);
            }
        }
    }
}
impl Decode for Op {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match u8::decode(r)? {
            0 => Op::Touch,
            1 => Op::Place(Decode::decode(r)?),
            2 => Op::Punch { from: Decode::decode(r)?, to: Decode::decode(r)? },
            3 => Op::Size(Decode::decode(r)?),
            4 => Op::Remove,
            5 => Op::SetAttrs(Decode::decode(r)?),
            6 => Op::RemoveAttr(Decode::decode(r)?),
            7 => Op::OmapSet(Decode::decode(r)?),
            8 => Op::OmapRemove(Decode::decode(r)?),
            9 => Op::OmapRemoveRange { begin: Decode::decode(r)?, end: Decode::decode(r)? },
            10 => Op::OmapClear,
            11 => Op::OmapSetHeader(Decode::decode(r)?),
            12 => Op::CloneFrom(Decode::decode(r)?),
            value => return Err(DecodeError::BadValue { what: "log operation", value: value.into() }),
        })
    }
}

/// References to blocks that an operation made and ended, once each.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    pub gained: Vec<u32>,
    pub dropped: Vec<u32>,
}

#[derive(Debug, Default)]
pub(crate) struct Index {
    objects: BTreeMap<StoredId, Arc<Object>>,
    total: Weight,
    changed: Changed,
}

/// What changed since the last checkpoint was begun.
#[derive(Debug, Default)]
pub(crate) struct Changed {
    /// Also of what was removed.
    pub ids: BTreeSet<StoredId>,
    /// No less than what these take in a checkpoint.
    pub encoded: u64,
    /// Objects with this mark are in `ids`. Those of a checkpoint have the mark 0, and others the last
    /// one, so it begins with 1.
    mark: u64,
}

/// What a removed object takes in a checkpoint.
fn removed_cost(id: &StoredId) -> u64 {
    OBJECT_COST + to_vec(id).len() as u64
}

impl Index {
    pub fn get(&self, id: &StoredId) -> Option<&Arc<Object>> {
        self.objects.get(id)
    }
    pub fn new() -> Index {
        Index { changed: Changed { mark: 1, ..Changed::default() }, ..Index::default() }
    }
    pub fn changed(&self) -> &Changed {
        &self.changed
    }
    /// Begins the next interval.
    pub fn take_changed(&mut self) -> Changed {
        let next = Changed { mark: self.changed.mark + 1, ..Changed::default() };
        std::mem::replace(&mut self.changed, next)
    }
    pub fn total(&self) -> Weight {
        self.total
    }
    pub fn len(&self) -> usize {
        self.objects.len()
    }
    pub fn iter(&self) -> impl Iterator<Item = (&StoredId, &Arc<Object>)> {
        self.objects.iter()
    }
    pub fn range(
        &self,
        range: impl std::ops::RangeBounds<StoredId>,
    ) -> impl Iterator<Item = (&StoredId, &Arc<Object>)> {
        self.objects.range(range)
    }
    /// Puts an object of a checkpoint back.
    pub fn restore(&mut self, id: StoredId, object: Object) {
        self.total.add(object.weight());
        if let Some(old) = self.objects.insert(id, Arc::new(object)) {
            self.total.sub(old.weight());
        }
    }

    /// Takes out what a checkpoint says was removed.
    pub fn forget(&mut self, id: &StoredId) {
        if let Some(old) = self.objects.remove(id) {
            self.total.sub(old.weight());
        }
    }

    pub fn apply(&mut self, id: &StoredId, op: Op, moves: &mut Moves) {
        match op {
            Op::Remove => {
                if let Some(object) = self.objects.remove(id) {
                    self.total.sub(object.weight());
                    if object.mark == self.changed.mark {
                        self.changed.encoded -= object.weight().encoded;
                    } else {
                        self.changed.ids.insert(id.clone());
                    }
                    self.changed.encoded += removed_cost(id);
                    moves.dropped.extend(object.blocks.blocks());
                }
            }
            Op::CloneFrom(from) if from == *id => self.edit(id, |_| ()),
            Op::CloneFrom(from) => {
                let id_len = to_vec(id).len() as u32;
                let mut copy = self.objects.get(&from).map_or_else(|| Object::new(id), |o| Object::clone(o));
                copy.id_len = id_len;
                moves.gained.extend(copy.blocks.blocks());
                self.edit(id, |object| {
                    moves.dropped.extend(object.blocks.blocks());
                    *object = copy;
                });
            }
            Op::Touch => self.edit(id, |_| ()),
            Op::Place(runs) => self.edit(id, |object| {
                for run in runs {
                    moves.gained.extend(run.blocks.blocks());
                    moves.dropped.extend(object.blocks.insert(run));
                }
            }),
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
            Op::OmapSet(pairs) => self.edit(id, |object| {
                pairs.into_iter().for_each(|(key, value)| object.omap_mut().set(key, value));
            }),
            Op::OmapRemove(keys) => self.edit(id, |object| {
                if object.omap.is_some() {
                    keys.iter().for_each(|key| object.omap_mut().remove(key));
                }
            }),
            Op::OmapRemoveRange { begin, end } => self.edit(id, |object| {
                if begin < end {
                    let pairs = object.omap().pairs.range(begin..end);
                    let keys: Vec<Name> = pairs.map(|(key, _)| key.clone()).collect();
                    keys.iter().for_each(|key| object.omap_mut().remove(key));
                }
            }),
            Op::OmapClear => self.edit(id, |object| object.omap = None),
            Op::OmapSetHeader(header) => self.edit(id, |object| object.omap_mut().header = header),
        }
    }

    /// Changes an object, which is created if need be. A checkpoint that still has to write the old
    /// one keeps it: then this is a copy.
    fn edit(&mut self, id: &StoredId, change: impl FnOnce(&mut Object)) {
        if !self.objects.contains_key(id) {
            let object = Object::new(id);
            self.total.add(object.weight());
            self.objects.insert(id.clone(), Arc::new(object));
        }
        let object = Arc::make_mut(self.objects.get_mut(id).expect("it was just made"));
        let before = object.weight();
        if object.mark == self.changed.mark {
            self.changed.encoded -= before.encoded;
        } else if !self.changed.ids.insert(id.clone()) {
            self.changed.encoded -= removed_cost(id); // it comes back in the same interval
        }
        self.total.sub(before);
        change(object);
        object.mark = self.changed.mark;
        let after = object.weight();
        self.total.add(after);
        self.changed.encoded += after.encoded;
    }

    /// What `Changed::encoded` should be, for `Store::check`.
    pub fn recount_changed(&self) -> u64 {
        let cost = |id| self.objects.get(id).map_or_else(|| removed_cost(id), |o| o.weight().encoded);
        self.changed.ids.iter().map(cost).sum()
    }
    /// The totals and weights counted anew, for `Store::check`.
    pub fn recount(&self) -> Weight {
        let mut total = Weight::default();
        for (id, object) in &self.objects {
            let mut plain = Object::new(id);
            object.attrs.to_map().into_iter().for_each(|(k, v)| plain.set_attr(k, v));
            let pairs = object.omap().pairs.iter();
            pairs.for_each(|(k, v)| plain.omap_mut().set(k.clone(), v.clone()));
            plain.size = object.size;
            if !object.omap().header.is_empty() {
                plain.omap_mut().header = object.omap().header.clone();
            }
            plain.blocks = object.blocks.clone();
            total.add(plain.weight());
        }
        total
    }
}
