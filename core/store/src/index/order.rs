//! A set of ids, in their order.
//!
//! Nearly always an id's place decides, which is at hand: the id is somewhere else in memory, and to find the place of a
//! new one takes more than ten comparisons.

use nacre_proto::transaction::StoredId;
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeSet, btree_set};
use std::ops::Bound;
use std::sync::Arc;

#[derive(Debug, Default)]
pub(crate) struct Ids(BTreeSet<InOrder>);

impl Ids {
    pub fn len(&self) -> usize {
        self.0.len()
    }
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// False if it was there.
    pub fn insert(&mut self, id: Arc<StoredId>) -> bool {
        self.0.insert(InOrder { place: place(&id), id })
    }
    pub fn remove(&mut self, id: &StoredId) -> bool {
        self.0.remove(&Sought::new(id) as &dyn Placed)
    }
    pub fn contains(&self, id: &StoredId) -> bool {
        self.0.contains(&Sought::new(id) as &dyn Placed)
    }
    pub fn pop_first(&mut self) -> Option<Arc<StoredId>> {
        self.0.pop_first().map(|first| first.id)
    }
    pub fn from(&self, from: Bound<&StoredId>) -> IdsFrom<'_> {
        let from = from.map(Sought::new);
        let from = from.as_ref().map(|sought| sought as &dyn Placed);
        IdsFrom(self.0.range::<dyn Placed, _>((from, Bound::Unbounded)))
    }
}

/// Those behind one of them.
pub(crate) struct IdsFrom<'a>(btree_set::Range<'a, InOrder>);

impl<'a> Iterator for IdsFrom<'a> {
    type Item = &'a Arc<StoredId>;
    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|one| &one.id)
    }
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct InOrder {
    place: u64,
    id: Arc<StoredId>,
}

/// One that is looked for.
struct Sought<'a> {
    place: u64,
    id: &'a StoredId,
}

impl Sought<'_> {
    fn new(id: &StoredId) -> Sought<'_> {
        Sought { place: place(id), id }
    }
}

/// What both are, so that nothing has to be made to look for something.
trait Placed {
    fn placed(&self) -> (u64, &StoredId);
}
impl Placed for InOrder {
    fn placed(&self) -> (u64, &StoredId) {
        (self.place, &self.id)
    }
}
impl Placed for Sought<'_> {
    fn placed(&self) -> (u64, &StoredId) {
        (self.place, self.id)
    }
}
impl<'a> Borrow<dyn Placed + 'a> for InOrder {
    fn borrow(&self) -> &(dyn Placed + 'a) {
        self
    }
}
impl Ord for dyn Placed + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        self.placed().cmp(&other.placed())
    }
}
impl PartialOrd for dyn Placed + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for dyn Placed + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for dyn Placed + '_ {}

/// In the order of ids, as far as it tells them apart: by pool and hash.
fn place(id: &StoredId) -> u64 {
    let object = match id {
        StoredId::Meta(_) => return 0,
        StoredId::Pg(_) => return 1,
        StoredId::Object(object) => object,
    };
    match u32::try_from(object.pool.0) {
        _ if object.max => u64::MAX,
        Ok(pool @ 0..POOLS) => (u64::from(pool) + 1) << 32 | u64::from(object.hash.reverse_bits()),
        _ if object.pool.0 < 0 => 2,
        _ => u64::from(POOLS + 1) << 32,
    }
}

/// Objects of pools from this one on are told apart by their ids alone.
pub(super) const POOLS: u32 = u32::MAX - 1;
