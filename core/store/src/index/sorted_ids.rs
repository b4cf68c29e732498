//! The ids of changed objects, in order.
//!
//! In one large tree each insertion of a random id misses the CPU cache at nearly every level. Here ids go
//! into a set that is small enough for the cache. A full set becomes an immutable sorted run of ids, and a
//! walk merges the runs.

use nacre_base::ShardId;
use nacre_proto::transaction::StoredId;
use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BTreeSet, BinaryHeap, btree_set};
use std::ops::Bound;
use std::slice;
use std::sync::Arc;

/// Ids of a run: more is more than a cache holds beside all else, fewer are more runs to walk.
const RUN: usize = 2048;

/// Each once.
#[derive(Debug, Default)]
pub(crate) struct SortedIds {
    newest: BTreeSet<InOrder>,
    runs: Vec<Box<[InOrder]>>,
}

impl SortedIds {
    pub fn len(&self) -> usize {
        self.newest.len() + self.runs.len() * RUN
    }
    /// One that is not there yet.
    pub fn insert(&mut self, id: Arc<StoredId>) {
        let is_new = self.newest.insert(InOrder::new(id));
        debug_assert!(is_new, "it is noted once");
        if self.newest.len() == RUN {
            self.runs.push(std::mem::take(&mut self.newest).into_iter().collect());
        }
    }
    /// In no order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<StoredId>> {
        self.runs.iter().flatten().chain(&self.newest).map(|one| &one.id)
    }
    /// In no order.
    pub fn into_iter(self) -> impl Iterator<Item = Arc<StoredId>> {
        self.runs.into_iter().flatten().chain(self.newest).map(|one| one.id)
    }
    pub fn from(&self, from: Bound<&StoredId>) -> SortedIdsFrom<'_> {
        SortedIdsFrom::new([self], from)
    }
}

/// Those of some sets behind one of them, each once.
pub(crate) struct SortedIdsFrom<'a>(BinaryHeap<Reverse<Run<'a>>>);

/// What is left of one. It is as great as its first id.
struct Run<'a> {
    first: &'a InOrder,
    rest: Rest<'a>,
}

enum Rest<'a> {
    Old(slice::Iter<'a, InOrder>),
    Newest(btree_set::Range<'a, InOrder>),
}

impl<'a> SortedIdsFrom<'a> {
    pub fn new(sets: impl IntoIterator<Item = &'a SortedIds>, from: Bound<&StoredId>) -> SortedIdsFrom<'a> {
        let from = from.map(|id| InOrder::new(Arc::new(id.clone())));
        let is_before = |one: &InOrder| match &from {
            Bound::Included(first) => one < first,
            Bound::Excluded(last) => one <= last,
            Bound::Unbounded => false,
        };
        let of = |ids: &'a SortedIds| {
            let old = ids.runs.iter().map(|run| Rest::Old(run[run.partition_point(is_before)..].iter()));
            let newest = ids.newest.range::<InOrder, _>((from.as_ref(), Bound::Unbounded));
            old.chain([Rest::Newest(newest)]).filter_map(Run::new).map(Reverse).collect::<Vec<_>>()
        };
        SortedIdsFrom(sets.into_iter().flat_map(of).collect())
    }
    /// The least of all, which is not the least any more.
    fn step(&mut self) -> Option<&'a Arc<StoredId>> {
        let mut least = self.0.peek_mut()?;
        let first = least.0.first;
        match least.0.rest.next() {
            Some(next) => least.0.first = next,
            None => drop(PeekMut::pop(least)),
        }
        Some(&first.id)
    }
}

impl<'a> Iterator for SortedIdsFrom<'a> {
    type Item = &'a Arc<StoredId>;
    fn next(&mut self) -> Option<Self::Item> {
        let id = self.step()?;
        while self.0.peek().is_some_and(|again| again.0.first.id == *id) {
            self.step();
        }
        Some(id)
    }
}

impl<'a> Run<'a> {
    fn new(mut rest: Rest<'a>) -> Option<Run<'a>> {
        let first = rest.next()?;
        Some(Run { first, rest })
    }
}
impl Ord for Run<'_> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.first.cmp(other.first)
    }
}
impl PartialOrd for Run<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for Run<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Run<'_> {}

impl<'a> Iterator for Rest<'a> {
    type Item = &'a InOrder;
    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Rest::Old(run) => run.next(),
            Rest::Newest(set) => set.next(),
        }
    }
}

/// An id, and its place in the order, which nearly always decides and is at hand: the id is somewhere else in
/// memory.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct InOrder {
    place: u64,
    id: Arc<StoredId>,
}

impl InOrder {
    fn new(id: Arc<StoredId>) -> InOrder {
        InOrder { place: place(&id), id }
    }
}

/// In the order of ids, as far as it tells them apart: by pool, shard and hash.
fn place(id: &StoredId) -> u64 {
    let (shard, object) = match id {
        StoredId::Meta(_) => return 0,
        StoredId::Pg(_) => return 1,
        StoredId::Object(object) => (ShardId::NONE, object),
        StoredId::Shard(shard, object) => (*shard, object),
    };
    let hash = object.hash.reverse_bits();
    // Whole objects come first: half of the places of a pool are theirs, the others are shared by its shards.
    let in_pool = match u32::try_from(shard.0) {
        Ok(shard) => 1 << 31 | shard << 24 | hash >> 8,
        Err(_) => hash >> 1,
    };
    match u32::try_from(object.pool.0) {
        _ if object.max => u64::MAX,
        Ok(pool @ 0..POOLS) => (u64::from(pool) + 1) << 32 | u64::from(in_pool),
        _ if object.pool.0 < 0 => 2,
        _ => u64::from(POOLS + 1) << 32,
    }
}

/// Objects of pools from this one on are distinguished by their ids alone.
const POOLS: u32 = u32::MAX - 1;

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_base::{Name, PgId, PoolId, Rng, SpgId};
    use nacre_proto::types::ObjectId;

    /// Of all kinds, and with pools and hashes at which places begin and end.
    fn any_id(rng: &mut Rng) -> StoredId {
        let n = rng.below(1000);
        let name = Name::from(format!("{}", rng.below(20)));
        let pools = [i64::MIN, -2, -1, 0, 1, i64::from(POOLS) - 1, POOLS.into(), i64::from(u32::MAX) + 5];
        let hashes = [0, 1, 2, 0x8000_0000, u32::MAX];
        let pool = PoolId(pools[rng.below(pools.len() as u64) as usize]);
        match rng.below(10) {
            0 => StoredId::Meta(name),
            1 => {
                let shard = ShardId(rng.below(3) as i8 - 1);
                StoredId::Pg(SpgId { pg: PgId { pool, seed: n as u32 }, shard })
            }
            2 => StoredId::Object(ObjectId::max()),
            _ => {
                let hash = if n < 500 { hashes[n as usize % hashes.len()] } else { n as u32 };
                let shard = ShardId([-1, -1, 0, 1, i8::MAX][rng.below(5) as usize]);
                StoredId::object(shard, ObjectId { pool, hash, name, ..ObjectId::min() })
            }
        }
    }

    #[test]
    fn they_agree_with_an_ordered_set() {
        let mut rng = Rng::new(1);
        for count in [0, 10, 20_000] {
            let mut sets = [SortedIds::default(), SortedIds::default()];
            let mut models = [BTreeSet::new(), BTreeSet::new()];
            for _ in 0..count {
                let (id, which) = (any_id(&mut rng), rng.below(2) as usize);
                if models[which].insert(id.clone()) {
                    sets[which].insert(Arc::new(id));
                }
            }
            assert!(count < 20_000 || sets.iter().all(|ids| !ids.runs.is_empty()), "some have runs");
            for (ids, model) in sets.iter().zip(&models) {
                assert_eq!((ids.len(), ids.iter().count()), (model.len(), model.len()));
                assert!(ids.from(Bound::Unbounded).map(|id| &**id).eq(model));
            }
            let all: BTreeSet<&StoredId> = models.iter().flatten().collect();
            for _ in 0..20 {
                let from = any_id(&mut rng);
                for bound in [Bound::Included(&from), Bound::Excluded(&from)] {
                    let merged = SortedIdsFrom::new(&sets, bound).map(|id| &**id);
                    assert!(merged.eq(all.range::<StoredId, _>((bound, Bound::Unbounded)).copied()));
                }
            }
            for (ids, model) in sets.into_iter().zip(models) {
                assert_eq!(ids.into_iter().map(|id| StoredId::clone(&id)).collect::<BTreeSet<_>>(), model);
            }
        }
    }
}
