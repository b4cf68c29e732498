//! The queues of objects' requests.

use super::Queue;
use crate::pg::unapplied::hash;
use hashbrown::HashTable;
use nacre_proto::types::ObjectId;

/// A table of fewer places is not made smaller.
const SMALL: usize = 64;

/// Found by hash; nothing that walks through them depends on the order.
#[derive(Default)]
pub struct Queues {
    table: HashTable<(ObjectId, Box<Queue>)>,
}

impl Queues {
    pub fn get(&self, object: &ObjectId) -> Option<&Queue> {
        let found = self.table.find(hash(object), |(of, _)| of == object);
        found.map(|(_, queue)| &**queue)
    }
    pub fn get_mut(&mut self, object: &ObjectId) -> Option<&mut Queue> {
        let found = self.table.find_mut(hash(object), |(of, _)| of == object);
        found.map(|(_, queue)| &mut **queue)
    }
    pub fn get_or_insert(&mut self, object: &ObjectId, new: impl FnOnce() -> Queue) -> &mut Queue {
        let entry = self.table.entry(hash(object), |(of, _)| of == object, |(of, _)| hash(of));
        let (_, queue) = entry.or_insert_with(|| (object.clone(), Box::new(new()))).into_mut();
        queue
    }
    pub fn remove_if(&mut self, object: &ObjectId, goes: impl FnOnce(&Queue) -> bool) {
        let Ok(entry) = self.table.find_entry(hash(object), |(of, _)| of == object) else { return };
        if !goes(&entry.get().1) {
            return;
        }
        entry.remove();
        // All are walked through after every event, and empty places with them.
        if self.table.capacity() > SMALL && self.table.len() < self.table.capacity() / 8 {
            self.table.shrink_to(2 * self.table.len(), |(of, _)| hash(of));
        }
    }
    pub fn iter(&self) -> impl Iterator<Item = (&ObjectId, &Queue)> {
        self.table.iter().map(|(object, queue)| (object, &**queue))
    }
    pub fn into_queues(self) -> impl Iterator<Item = Box<Queue>> {
        self.table.into_iter().map(|(_, queue)| queue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_base::{Name, PoolId};

    #[test]
    fn a_table_that_was_large_becomes_small_again() {
        let object =
            |n: usize| ObjectId::head(PoolId(1), Name::default(), Name::default(), n.to_string().into());
        let mut queues = Queues::default();
        for n in 0..1000 {
            queues.get_or_insert(&object(n), Queue::default).reads = n;
        }
        assert!((0..1000).all(|n| queues.get(&object(n)).is_some_and(|queue| queue.reads == n)));
        for n in 0..1000 {
            queues.remove_if(&object(n), |queue| queue.reads != 7);
        }
        let left: Vec<_> = queues.iter().map(|(object, queue)| (object.clone(), queue.reads)).collect();
        assert_eq!(left, [(object(7), 7)]);
        assert!(queues.table.capacity() <= SMALL);
    }
}
