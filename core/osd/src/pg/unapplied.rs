//! The objects that the current turn changed: the store's view does not show that yet.

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use nacre_proto::types::ObjectId;
use std::hash::BuildHasher;

/// Memory for this many is kept for the next turn.
const KEPT: usize = 64;

/// Looked up by hash, and never walked through.
#[derive(Default)]
pub struct Unapplied {
    turn: u64,
    objects: HashTable<ObjectId>,
}

/// Of the name as well: clients choose names, and can choose many that Ceph's hash does not tell apart.
pub fn hash(object: &ObjectId) -> u64 {
    FixedState::default().hash_one(object)
}

impl Unapplied {
    /// Forgets what earlier turns changed. True if this one has just begun.
    pub fn begin(&mut self, turn: u64) -> bool {
        let begins = std::mem::replace(&mut self.turn, turn) != turn;
        if begins && self.objects.capacity() > 2 * KEPT {
            self.objects = HashTable::new();
        } else if begins && !self.objects.is_empty() {
            self.objects.clear();
        }
        begins
    }
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }
    pub fn contains(&self, object: &ObjectId) -> bool {
        !self.is_empty() && self.objects.find(hash(object), |changed| changed == object).is_some()
    }
    pub fn insert(&mut self, object: ObjectId) {
        if !self.contains(&object) {
            self.objects.insert_unique(hash(&object), object, hash);
        }
    }
}

impl Extend<ObjectId> for Unapplied {
    fn extend<I: IntoIterator<Item = ObjectId>>(&mut self, objects: I) {
        objects.into_iter().for_each(|object| self.insert(object));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_base::{Name, PoolId, SnapId};

    #[test]
    fn a_turn_forgets_what_the_one_before_changed() {
        let object = |n: usize| {
            let head = ObjectId::head(PoolId(1), Name::default(), Name::default(), n.to_string().into());
            ObjectId { snap: SnapId(n as u64 % 7), ..head }
        };
        let mut changed = Unapplied::default();
        assert!(changed.begin(1) && !changed.begin(1));
        changed.extend((0..1000).map(object));
        changed.insert(object(7));
        assert!((0..1000).all(|n| changed.contains(&object(n))) && !changed.contains(&object(1000)));
        assert!(!changed.contains(&object(1).to_head()));
        assert!(changed.begin(2) && changed.is_empty() && !changed.contains(&object(1)));
    }
}
