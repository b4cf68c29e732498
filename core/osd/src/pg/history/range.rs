//! Which objects belong to a placement group: one contiguous range of their order.

use nacre_base::{Name, PgId, PoolId, ShardId, SnapId};
use nacre_machine::{ReadError, StoreView};
use nacre_proto::types::ObjectId;
use std::ops::RangeInclusive;

/// The hashes of a placement group, as bounds (both inclusive) on the hash with its bits reversed, by which
/// objects are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PgRange {
    pub pool: PoolId,
    first: u32,
    last: u32,
}

impl PgRange {
    /// Of `pg` while its pool has `pg_num` placement groups.
    pub fn new(pg: PgId, pg_num: u32) -> PgRange {
        // A placement group owns all hashes that end in its seed's low bits: in as many bits as tell the
        // seed from its neighbours, which is one less where the sibling does not exist yet.
        let full = 32 - pg_num.saturating_sub(1).leading_zeros();
        let top = full.checked_sub(1).map_or(0, |bit| 1_u32 << bit);
        let sibling_exists = pg.seed & top != 0 || u64::from(pg.seed) + u64::from(top) < u64::from(pg_num);
        let bits = if full > 0 && !sibling_exists { full - 1 } else { full };
        let first = pg.seed.reverse_bits();
        let span = if bits == 0 { u32::MAX } else { u32::MAX >> bits };
        PgRange { pool: pg.pool, first, last: first | span }
    }

    pub fn contains(&self, object: &ObjectId) -> bool {
        !object.max && object.pool == self.pool && self.contains_hash(object.hash)
    }
    pub fn contains_hash(&self, hash: u32) -> bool {
        (self.first..=self.last).contains(&hash.reverse_bits())
    }

    /// The reversed hashes of its objects.
    pub fn hashes(&self) -> RangeInclusive<u32> {
        self.first..=self.last
    }

    /// Where a walk over its objects starts.
    pub fn start(&self) -> ObjectId {
        at_hash(self.pool, self.first, SnapId(0))
    }

    /// Those of its objects that are in the store, from one on.
    pub fn objects_from(
        &self,
        store: &dyn StoreView,
        from: &ObjectId,
        limit: usize,
    ) -> Result<Vec<ObjectId>, ReadError> {
        let start = self.start();
        let from = if *from < start { &start } else { from };
        let mut objects = Vec::new();
        store.object_walk((ShardId::NONE, from), &mut |shard, object| {
            let ours = shard == ShardId::NONE && self.contains(object);
            if ours {
                objects.push(object.clone());
            }
            ours && objects.len() < limit
        })?;
        Ok(objects)
    }

    /// Where the listing of the next placement group starts; `max` behind the last.
    pub fn next(&self) -> ObjectId {
        match self.last.checked_add(1) {
            Some(next) => at_hash(self.pool, next, SnapId::HEAD),
            None => ObjectId::max(),
        }
    }
}

fn at_hash(pool: PoolId, reversed: u32, snap: SnapId) -> ObjectId {
    ObjectId {
        pool,
        hash: reversed.reverse_bits(),
        namespace: Name::default(),
        key: Name::default(),
        name: Name::default(),
        snap,
        max: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_proto::maps::stable_mod;

    #[test]
    fn every_object_is_in_the_range_of_its_pg_only() {
        for pg_num in [1, 2, 3, 5, 8, 12, 13, 100] {
            for n in 0..3000_u32 {
                let mut object = ObjectId::head(PoolId(1), "".into(), "".into(), "x".into());
                object.hash = n.wrapping_mul(0x9e37_79b9);
                let of = stable_mod(object.hash, pg_num);
                for seed in 0..pg_num {
                    let range = PgRange::new(PgId { pool: PoolId(1), seed }, pg_num);
                    assert_eq!(range.contains(&object), seed == of, "{n} in {seed} of {pg_num}");
                    assert!(!range.contains(&object) || (range.start() <= object && object < range.next()));
                }
            }
        }
    }

    #[test]
    fn eight_pgs_are_listed_in_bit_reversed_order() {
        let mut order = vec![0];
        loop {
            let pg = PgId { pool: PoolId(1), seed: *order.last().unwrap() };
            let next = PgRange::new(pg, 8).next();
            if next.max {
                break;
            }
            order.push(stable_mod(next.hash, 8));
        }
        assert_eq!(order, [0, 4, 2, 6, 1, 5, 3, 7]);
    }
}
