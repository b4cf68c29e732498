//! Space accounting by pool.

use super::{Object, Weight};
use crate::BLOCK;
use nacre_base::PoolId;
use nacre_proto::messages::PoolSpace;
use nacre_proto::transaction::StoredId;
use nacre_wire::{Decode, DecodeError, Encode, Reader, encode_list};

/// Of all objects, also those that are not in memory. A store has few pools: a list, in their order. Objects
/// share blocks with others of their pool only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pools(Vec<(PoolId, PoolSpace)>);

/// A larger figure is wrong: no device holds as much, and sums must not overflow.
const BYTES_MAX: u64 = 1 << 56;
/// Bytes of one in a directory.
const ENCODED_LEN: usize = 4 * 8;

pub(crate) fn pool_of(id: &StoredId) -> Option<PoolId> {
    id.as_object().map(|(_, object)| object.pool)
}

/// Bytes of its omap, in leaves or whole.
fn omap_of(object: &Object, weight: Weight) -> u64 {
    weight.omap + object.omap().leaves.list().iter().map(|leaf| leaf.cost).sum::<u64>()
}

impl Pools {
    fn pool(&mut self, id: &StoredId) -> Option<&mut PoolSpace> {
        let pool = pool_of(id)?;
        let at = match self.0.binary_search_by_key(&pool, |(id, _)| *id) {
            Ok(at) => at,
            Err(at) => {
                self.0.insert(at, (pool, PoolSpace::default()));
                at
            }
        };
        Some(&mut self.0[at].1)
    }
    pub fn add(&mut self, id: &StoredId, object: &Object, weight: Weight) {
        if let Some(pool) = self.pool(id) {
            pool.stored += weight.stored;
            pool.omap += omap_of(object, weight);
        }
    }
    pub fn sub(&mut self, id: &StoredId, object: &Object, weight: Weight) {
        if let Some(pool) = self.pool(id) {
            // What a sorted run said is proved only when all is in memory.
            pool.stored = pool.stored.saturating_sub(weight.stored);
            pool.omap = pool.omap.saturating_sub(omap_of(object, weight));
        }
    }
    /// Blocks came to be, or ended, that an object of this pool has or had.
    pub fn count_blocks(&mut self, id: &StoredId, taken: usize, freed: usize) {
        if taken != freed
            && let Some(pool) = self.pool(id)
        {
            let bytes = pool.allocated + (taken * BLOCK) as u64;
            pool.allocated = bytes.saturating_sub((freed * BLOCK) as u64);
        }
    }
    /// Those that have something.
    pub fn list(&self) -> impl Iterator<Item = (PoolId, PoolSpace)> {
        self.0.iter().copied().filter(|(_, space)| *space != PoolSpace::default())
    }
}

impl Encode for Pools {
    fn encode(&self, out: &mut Vec<u8>) {
        let list: Vec<_> =
            self.list().map(|(id, space)| (id, (space.allocated, (space.stored, space.omap)))).collect();
        encode_list(out, &list);
    }
}
impl Decode for Pools {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut pools = Pools::default();
        for _ in 0..r.count(ENCODED_LEN)? {
            let (id, (allocated, (stored, omap))) = Decode::decode(r)?;
            let space = PoolSpace { allocated, stored, omap };
            let in_order = pools.0.last().is_none_or(|(last, _)| *last < id);
            if !in_order || allocated.max(stored).max(omap) > BYTES_MAX {
                return Err(DecodeError::BadValue { what: "space of a pool", value: allocated });
            }
            pools.0.push((id, space));
        }
        Ok(pools)
    }
}
