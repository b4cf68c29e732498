//! A hash table of the objects in memory.
//!
//! A request looks its objects up many times. An ordered map would compare ids all over memory each time;
//! here it is one hash. A walk in order gets its ids from `SortedIds` or from a sorted run.

use super::Slot;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use hashbrown::hash_map::EntryRef;
use nacre_proto::transaction::StoredId;
use std::sync::Arc;

/// A map with capacity for more than this shrinks when it is nearly empty.
const ROOM_MIN: usize = 4096;

#[derive(Debug)]
pub(super) struct SlotTable {
    slots: HashMap<Arc<StoredId>, Slot, FixedState>,
}

impl SlotTable {
    /// `seed`: of the hash, so that clients cannot choose ids that collide.
    pub fn new(seed: u64) -> SlotTable {
        SlotTable { slots: HashMap::with_hasher(FixedState::with_seed(seed)) }
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
            EntryRef::Vacant(entry) => entry.insert_entry_with_key(Arc::new(id.clone()), make()),
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
        if self.slots.capacity() > ROOM_MIN.max(self.slots.len() * 16) {
            self.slots.shrink_to(self.slots.len() * 2);
        }
        Some(slot)
    }
    /// In an order that means nothing, though it is the same in each run.
    pub fn iter(&self) -> impl Iterator<Item = (&StoredId, &Slot)> {
        self.slots.iter().map(|(id, slot)| (&**id, slot))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_base::{Name, Rng};
    use std::collections::BTreeMap;

    #[test]
    fn they_agree_with_an_ordered_map() {
        let (mut table, mut map) = (SlotTable::new(7), BTreeMap::new());
        let mut rng = Rng::new(1);
        // It grows, and shrinks again.
        for phase in [900, 200, 900, 0] {
            for _ in 0..20_000 {
                let id = StoredId::Meta(Name::from(format!("{}", rng.below(5000))));
                if rng.chance(phase) {
                    let mark = rng.below(100);
                    let (kept, old) = table.insert(&id, Slot::Gone(mark));
                    assert_eq!((&*kept, old), (&id, map.insert(id.clone(), Slot::Gone(mark))));
                } else {
                    assert_eq!(table.remove(&id), map.remove(&id));
                }
                assert_eq!((table.len(), table.get(&id)), (map.len(), map.get(&id)));
            }
            assert!(table.iter().collect::<BTreeMap<_, _>>().into_iter().eq(&map));
        }
        let room = table.slots.capacity();
        assert!(room <= ROOM_MIN.max(32 * table.len()), "room for {room}, and {} are here", table.len());
    }
}
