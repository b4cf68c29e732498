//! The things in memory: found by a hash of their ids, and walked in the order of these.
//!
//! A request looks its things up many times, while few come or go. In an ordered map each look-up compares ids that
//! lie all over memory; here it is one hash. Nothing ever walks through the hash map, whose order means nothing.

use super::Slot;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use nacre_proto::transaction::StoredId;
use std::collections::{BTreeSet, btree_set};
use std::ops::Bound;
use std::sync::Arc;

/// A map with room for more than this gives it back when it is nearly empty.
const ROOM_MIN: usize = 4096;

#[derive(Debug)]
pub(super) struct Things {
    slots: HashMap<Arc<StoredId>, Slot, FixedState>,
    /// The same ids.
    order: BTreeSet<Arc<StoredId>>,
}

impl Things {
    /// `seed`: of the hash, so that nobody outside knows which ids meet in one place.
    pub fn new(seed: u64) -> Things {
        Things { slots: HashMap::with_hasher(FixedState::with_seed(seed)), order: BTreeSet::new() }
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
    /// Gives the id as it is kept, and what was there.
    pub fn insert(&mut self, id: &StoredId, slot: Slot) -> (Arc<StoredId>, Option<Slot>) {
        if let Some((id, old)) = self.slots.get_key_value_mut(id) {
            return (id.clone(), Some(std::mem::replace(old, slot)));
        }
        let id = Arc::new(id.clone());
        self.order.insert(id.clone());
        self.slots.insert(id.clone(), slot);
        (id, None)
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
        ThingsFrom { order: self.order.range::<StoredId, _>((from, Bound::Unbounded)), slots: &self.slots }
    }
}

/// Things in order.
pub(crate) struct ThingsFrom<'a> {
    order: btree_set::Range<'a, Arc<StoredId>>,
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
    use super::*;
    use nacre_base::{Name, Rng};
    use std::collections::BTreeMap;

    #[test]
    fn they_agree_with_an_ordered_map() {
        let (mut things, mut map) = (Things::new(7), BTreeMap::new());
        let mut rng = Rng::new(1);
        // It grows, and shrinks again.
        for phase in [900, 200, 900, 0] {
            for _ in 0..20_000 {
                let id = StoredId::Meta(Name::from(format!("{}", rng.below(9000))));
                if rng.chance(phase) {
                    let mark = rng.below(100);
                    let (kept, old) = things.insert(&id, Slot::Gone(mark));
                    assert_eq!((&*kept, old), (&id, map.insert(id.clone(), Slot::Gone(mark))));
                } else {
                    assert_eq!(things.remove(&id), map.remove(&id));
                }
                assert_eq!((things.len(), things.get(&id)), (map.len(), map.get(&id)));
            }
            let from = StoredId::Meta(Name::from(format!("{}", rng.below(9000))));
            assert!(
                things.from(Bound::Excluded(&from)).eq(map.range((Bound::Excluded(&from), Bound::Unbounded)))
            );
            assert!(things.from(Bound::Unbounded).eq(&map));
        }
        let room = things.slots.capacity();
        assert!(room <= ROOM_MIN.max(32 * things.len()), "room for {room}, and {} are here", things.len());
    }
}
