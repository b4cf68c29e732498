//! The things in memory: found by a hash of their ids, and walked in the order of these.
//!
//! A request looks its things up many times, while few come or go. In an ordered map each look-up compares ids that
//! lie all over memory; here it is one hash. Nothing ever walks through the hash map, whose order means nothing.

use super::Slot;
use super::order::{Ids, IdsFrom};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use hashbrown::hash_map::EntryRef;
use nacre_proto::transaction::StoredId;
use std::ops::Bound;
use std::sync::Arc;

/// A map with room for more than this gives it back when it is nearly empty.
const ROOM_MIN: usize = 4096;

#[derive(Debug)]
pub(super) struct Things {
    slots: HashMap<Arc<StoredId>, Slot, FixedState>,
    /// The same ids.
    order: Ids,
}

impl Things {
    /// `seed`: of the hash, so that nobody outside knows which ids meet in one place.
    pub fn new(seed: u64) -> Things {
        Things { slots: HashMap::with_hasher(FixedState::with_seed(seed)), order: Ids::default() }
    }
    pub fn len(&self) -> usize {
        self.slots.len()
    }
    pub fn get(&self, id: &StoredId) -> Option<&Slot> {
        self.slots.get(id)
    }
    /// With the id as it is kept, which others may share.
    pub fn get_mut(&mut self, id: &StoredId) -> Option<(&Arc<StoredId>, &mut Slot)> {
        self.slots.get_key_value_mut(id)
    }
    /// The same, after `make` where there is none.
    pub fn get_or_make(&mut self, id: &StoredId, make: impl FnOnce() -> Slot) -> (&Arc<StoredId>, &mut Slot) {
        let entry = match self.slots.entry_ref(id) {
            EntryRef::Occupied(entry) => entry,
            EntryRef::Vacant(entry) => {
                let id = Arc::new(id.clone());
                self.order.insert(id.clone());
                entry.insert_entry_with_key(id, make())
            }
        };
        entry.into_entry()
    }
    /// Gives the id as it is kept, and what was there.
    pub fn insert(&mut self, id: &StoredId, slot: Slot) -> (Arc<StoredId>, Option<Slot>) {
        let mut new = Some(slot);
        let (kept, here) = self.get_or_make(id, || new.take().expect("it is made once"));
        let old = new.map(|new| std::mem::replace(here, new));
        (kept.clone(), old)
    }
    pub fn remove(&mut self, id: &StoredId) -> Option<Slot> {
        let slot = self.slots.remove(id)?;
        self.order.remove(id);
        if self.slots.capacity() > ROOM_MIN.max(self.slots.len() * 16) {
            self.slots.shrink_to(self.slots.len() * 2);
        }
        Some(slot)
    }
    /// In order.
    pub fn from(&self, from: Bound<&StoredId>) -> ThingsFrom<'_> {
        ThingsFrom { order: self.order.from(from), slots: &self.slots }
    }
}

/// Things in order.
pub(crate) struct ThingsFrom<'a> {
    order: IdsFrom<'a>,
    slots: &'a HashMap<Arc<StoredId>, Slot, FixedState>,
}

impl<'a> Iterator for ThingsFrom<'a> {
    type Item = (&'a StoredId, &'a Slot);
    fn next(&mut self) -> Option<Self::Item> {
        self.order.next().map(|id| (&**id, &self.slots[id]))
    }
}

#[cfg(test)]
mod tests {
    use super::super::order::POOLS;
    use super::*;
    use nacre_base::{Name, PgId, PoolId, Rng};
    use nacre_proto::types::ObjectId;
    use std::collections::BTreeMap;

    /// Of all kinds, and with pools and hashes at which places begin and end.
    fn any_id(rng: &mut Rng) -> StoredId {
        let n = rng.below(1000);
        let name = Name::from(format!("{}", rng.below(20)));
        let pools = [i64::MIN, -2, -1, 0, 1, i64::from(POOLS) - 1, POOLS.into(), i64::from(u32::MAX) + 5];
        let hashes = [0, 1, 2, 0x8000_0000, u32::MAX];
        let pool = PoolId(pools[rng.below(pools.len() as u64) as usize]);
        match rng.below(10) {
            0 => StoredId::Meta(name),
            1 => StoredId::Pg(PgId { pool, seed: n as u32 }),
            2 => StoredId::Object(ObjectId::max()),
            _ => {
                let hash = if n < 500 { hashes[n as usize % hashes.len()] } else { n as u32 };
                StoredId::Object(ObjectId { pool, hash, name, ..ObjectId::min() })
            }
        }
    }

    #[test]
    fn they_agree_with_an_ordered_map() {
        let (mut things, mut map) = (Things::new(7), BTreeMap::new());
        let mut rng = Rng::new(1);
        // It grows, and shrinks again.
        for phase in [900, 200, 900, 0] {
            for _ in 0..20_000 {
                let id = any_id(&mut rng);
                if rng.chance(phase) {
                    let mark = rng.below(100);
                    let (kept, old) = things.insert(&id, Slot::Gone(mark));
                    assert_eq!((&*kept, old), (&id, map.insert(id.clone(), Slot::Gone(mark))));
                } else {
                    assert_eq!(things.remove(&id), map.remove(&id));
                }
                assert_eq!((things.len(), things.get(&id)), (map.len(), map.get(&id)));
            }
            let from = any_id(&mut rng);
            assert!(
                things.from(Bound::Excluded(&from)).eq(map.range((Bound::Excluded(&from), Bound::Unbounded)))
            );
            assert!(things.from(Bound::Unbounded).eq(&map));
        }
        let room = things.slots.capacity();
        assert!(room <= ROOM_MIN.max(32 * things.len()), "room for {room}, and {} are here", things.len());
    }
}
