//! The omap of an object: a small one is stored whole, a large one as a list of leaves, as in a B+ tree of
//! two levels.
//!
//! A *leaf* has the pairs of a range of keys. It is an object of its own that has nothing but pairs, under
//! an id that only the store uses. So a leaf is loaded, changed, evicted and written like any other object,
//! and access to one key of a million loads one leaf. Objects and their clones share leaves until one of
//! them changes (`omap_leaves.rs`).

use super::object::{Object, Weight, id_cost};
use super::omap_leaves::SHARE_COST;
use bytes::Bytes;
use nacre_base::Name;
use nacre_proto::transaction::StoredId;
use nacre_wire::{Decode, DecodeError, Encode, Reader};
use std::collections::BTreeMap;
use std::ops::Bound;

/// A longer omap has leaves. Tests have short ones, so that all of this happens in them.
const WHOLE_MAX: u64 = if cfg!(test) { 4 << 10 } else { 64 << 10 };
/// The same of a placement group's record, which each write changes in several places: all of it is in memory
/// anyway.
const RECORD_MAX: u64 = 4 * WHOLE_MAX;
/// A longer leaf becomes several.
pub(crate) const LEAF_MAX: u64 = if cfg!(test) { 2 << 10 } else { 32 << 10 };
/// What they are to have then.
pub(crate) const LEAF_AIM: u64 = LEAF_MAX * 3 / 4;
/// A shorter one is joined with its neighbour, if that is in memory.
pub(crate) const LEAF_MIN: u64 = LEAF_MAX / 8;
/// No leaf begins with a longer key.
pub(crate) const FIRST_MAX: usize = if cfg!(test) { 64 } else { 1024 };

/// Names that begin like this, or with less, are the store's own.
const NAME: &[u8] = b"\0part";
const NAME_LEN: usize = NAME.len() + 8;

/// A longer omap of this object has leaves.
pub(crate) fn whole_max(id: &StoredId) -> u64 {
    if let StoredId::Pg(_) = id { RECORD_MAX } else { WHOLE_MAX }
}

/// Of the object that a leaf is.
pub(crate) fn leaf_id(number: u64) -> StoredId {
    let mut name = [0; NAME_LEN];
    name[..NAME.len()].copy_from_slice(NAME);
    name[NAME.len()..].copy_from_slice(&number.to_be_bytes());
    StoredId::Meta(Name::copy_from(&name))
}
/// The reverse.
pub(crate) fn leaf_number(id: &StoredId) -> Option<u64> {
    let StoredId::Meta(name) = id else { return None };
    let number = name.as_bytes().strip_prefix(NAME)?;
    Some(u64::from_be_bytes(number.try_into().ok()?))
}
/// Whether an id is the store's own: daemons may not use it. In the order of ids all others come later.
pub(crate) fn is_reserved(id: &StoredId) -> bool {
    matches!(id, StoredId::Meta(name) if name.as_bytes().first().is_none_or(|first| *first == 0))
}
/// Behind all ids that are the store's own.
pub(crate) fn behind_reserved() -> Bound<StoredId> {
    Bound::Included(StoredId::meta("\x01"))
}

/// Shared by an object and its copies until one of them changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Omap {
    pub header: Bytes,
    /// None if it has leaves.
    pub pairs: BTreeMap<Name, Bytes>,
    pub leaves: Leaves,
    /// What the pairs cost. Kept beside them so that accounting needs no walk.
    cost: u64,
}

pub(super) static NO_OMAP: Omap = Omap {
    header: Bytes::new(),
    pairs: BTreeMap::new(),
    leaves: Leaves { list: Vec::new(), names: 0 },
    cost: 0,
};

/// The two lengths of a key and a value.
pub(crate) const PAIR_COST: u64 = 8;

pub(super) fn pair_cost(key: &Name, value: &Bytes) -> u64 {
    key.len() as u64 + value.len() as u64 + PAIR_COST
}

impl Omap {
    pub fn of(pairs: BTreeMap<Name, Bytes>) -> Omap {
        let cost = pairs.iter().map(|(key, value)| pair_cost(key, value)).sum();
        Omap { pairs, cost, ..Omap::default() }
    }
    /// What its pairs cost.
    pub fn cost(&self) -> u64 {
        self.cost
    }
    /// Bytes of what is in it, without its leaves.
    pub(super) fn weight(&self) -> u64 {
        self.cost + self.header.len() as u64
    }
    pub(super) fn set(&mut self, key: Name, value: Bytes) {
        self.cost += pair_cost(&key, &value);
        let key_len = key.len() as u64;
        if let Some(old) = self.pairs.insert(key, value) {
            self.cost -= key_len + old.len() as u64 + PAIR_COST;
        }
    }
    pub(super) fn remove(&mut self, key: &Name) {
        if let Some(old) = self.pairs.remove(key) {
            self.cost -= pair_cost(key, &old);
        }
    }
    pub(super) fn remove_range(&mut self, begin: &Name, end: &Name) {
        if begin < end {
            let keys: Vec<Name> =
                self.pairs.range::<Name, _>(begin..end).map(|(key, _)| key.clone()).collect();
            keys.iter().for_each(|key| self.remove(key));
        }
    }
    /// All pairs, which it has no longer.
    pub(super) fn take_pairs(&mut self) -> BTreeMap<Name, Bytes> {
        self.cost = 0;
        std::mem::take(&mut self.pairs)
    }
    pub(super) fn replace_pairs(&mut self, pairs: BTreeMap<Name, Bytes>) {
        let Omap { pairs, cost, .. } = Omap::of(pairs);
        (self.pairs, self.cost) = (pairs, cost);
    }
}

/// A range of an omap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Leaf {
    /// No key in it is before this, and none that belongs to the next leaf. That of the first leaf is empty.
    pub first: Name,
    /// No other leaf of this store has it, and none will.
    pub number: u64,
    /// What its pairs cost.
    pub cost: u64,
}

/// What a leaf takes in its object, besides its first key.
const LEAF_LEN: usize = 4 + 8 + 8;
/// The same, with what is said of its owners.
pub(crate) const LEAF_COST: u64 = LEAF_LEN as u64 + SHARE_COST;

impl Leaf {
    /// What it takes as an object, without its pairs: an id has a kind, and its name a length.
    const OBJECT_COST: u64 = id_cost(1 + 4 + NAME_LEN);
    /// What a leaf takes at most, without its pairs.
    pub const COST_MAX: u64 = Leaf::OBJECT_COST + LEAF_COST + FIRST_MAX as u64;

    /// What it weighs as an object.
    pub fn weight(&self) -> Weight {
        Weight { omap: self.cost, encoded: Leaf::OBJECT_COST + self.cost, ..Weight::default() }
    }
}

impl Leaf {
    /// Whether an object is what this says of it.
    pub fn is_in(&self, object: &Object) -> bool {
        let omap = object.omap();
        let has_others = object.size > 0 || object.blocks.len() > 0 || object.attrs.cost() > 0;
        !has_others
            && omap.header.is_empty()
            && omap.leaves.is_empty()
            && omap.cost == self.cost
            && omap.pairs.first_key_value().is_none_or(|(key, _)| *key >= self.first)
    }
}

/// In order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Leaves {
    list: Vec<Leaf>,
    /// Bytes of their first keys.
    names: u64,
}

impl Leaves {
    pub fn list(&self) -> &[Leaf] {
        &self.list
    }
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
    /// What they cost in their object.
    pub(super) fn cost(&self) -> u64 {
        // Also the length of the list.
        if self.list.is_empty() { 0 } else { 4 + self.names + self.list.len() as u64 * LEAF_COST }
    }
    /// Which one has a key, or would have it; there is one at least.
    pub fn at(&self, key: &[u8]) -> usize {
        self.list.partition_point(|leaf| leaf.first.as_bytes() <= key).saturating_sub(1)
    }
    pub(super) fn leaf_mut(&mut self, at: usize) -> &mut Leaf {
        &mut self.list[at]
    }
    pub(super) fn insert(&mut self, at: usize, leaf: Leaf) {
        self.names += leaf.first.len() as u64;
        self.list.insert(at, leaf);
    }
    pub(super) fn remove(&mut self, range: std::ops::Range<usize>) -> Vec<Leaf> {
        let removed: Vec<Leaf> = self.list.drain(range).collect();
        self.names -= removed.iter().map(|leaf| leaf.first.len() as u64).sum::<u64>();
        if let Some(first) = self.list.first_mut() {
            self.names -= first.first.len() as u64;
            first.first = Name::default();
        }
        removed
    }
}

impl Encode for Leaves {
    fn encode(&self, out: &mut Vec<u8>) {
        (self.list.len() as u32).encode(out);
        for leaf in &self.list {
            leaf.first.encode(out);
            (leaf.number, leaf.cost).encode(out);
        }
    }
}
impl Decode for Leaves {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut leaves = Leaves::default();
        for at in 0..r.count(LEAF_LEN)? {
            let leaf =
                Leaf { first: Decode::decode(r)?, number: Decode::decode(r)?, cost: Decode::decode(r)? };
            let in_order = match leaves.list.last() {
                Some(last) => last.first < leaf.first,
                None => leaf.first.is_empty(),
            };
            // No device holds as much; sums of such numbers must not overflow.
            if !in_order || leaf.cost > 1 << 40 || leaf.number > u64::MAX / 2 {
                return Err(DecodeError::BadValue { what: "leaf of an omap", value: at as u64 });
            }
            leaves.insert(at, leaf);
        }
        Ok(leaves)
    }
}
