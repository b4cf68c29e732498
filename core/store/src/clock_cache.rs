//! A cache limited by bytes, with the CLOCK policy: an entry that was used since it was last considered for
//! eviction gets a second chance.

use foldhash::fast::FixedState;
use hashbrown::{HashMap, hash_map::Entry};
use std::collections::VecDeque;
use std::hash::Hash;

#[derive(Debug)]
pub(crate) struct ClockCache<K, V> {
    /// Nothing walks through it: its order means nothing.
    entries: HashMap<K, Kept<V>, FixedState>,
    /// The next to go is in front. Some are gone, some are here twice.
    queue: VecDeque<K>,
    bytes: usize,
    limit: usize,
}

#[derive(Debug)]
struct Kept<V> {
    value: V,
    bytes: usize,
    is_used: bool,
}

impl<K: Hash + Ord + Clone, V: Clone> ClockCache<K, V> {
    /// `seed`: of the hash, so that clients cannot choose keys that collide.
    pub fn new(seed: u64) -> ClockCache<K, V> {
        ClockCache {
            entries: HashMap::with_hasher(FixedState::with_seed(seed)),
            queue: VecDeque::new(),
            bytes: 0,
            limit: 0,
        }
    }
    pub fn bytes(&self) -> usize {
        self.bytes
    }
    pub fn limit(&mut self, bytes: usize) {
        self.limit = bytes;
        self.shrink();
    }
    pub fn get(&mut self, key: &K) -> Option<V> {
        let kept = self.entries.get_mut(key)?;
        kept.is_used = true;
        Some(kept.value.clone())
    }
    pub fn insert(&mut self, key: K, value: V, bytes: usize) {
        if bytes > self.limit / 2 {
            return;
        }
        let kept = Kept { value, bytes, is_used: false };
        match self.entries.entry(key) {
            Entry::Vacant(entry) => {
                self.queue.push_back(entry.key().clone());
                entry.insert(kept);
            }
            // It keeps its turn.
            Entry::Occupied(mut entry) => self.bytes -= entry.insert(kept).bytes,
        }
        self.bytes += bytes;
        self.shrink();
    }
    pub fn remove(&mut self, key: &K) {
        if let Some(kept) = self.entries.remove(key) {
            self.bytes -= kept.bytes;
        }
        // Mostly of what was removed.
        if self.queue.len() > 2 * self.entries.len() + 64 {
            let (entries, mut seen) = (&self.entries, std::collections::BTreeSet::new());
            self.queue.retain(|key| entries.contains_key(key) && seen.insert(key.clone()));
        }
    }
    fn shrink(&mut self) {
        while self.bytes > self.limit
            && let Some(key) = self.queue.pop_front()
        {
            match self.entries.get_mut(&key) {
                Some(kept) if kept.is_used => {
                    kept.is_used = false;
                    self.queue.push_back(key);
                }
                Some(_) => self.remove(&key),
                None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_stays_and_the_rest_goes_in_order() {
        let mut cache = ClockCache::new(7);
        cache.limit(100);
        (0..10).for_each(|n| cache.insert(n, n, 10));
        assert_eq!(cache.get(&0), Some(0));
        (10..15).for_each(|n| cache.insert(n, n, 10));
        let here: Vec<i32> = (0..15).filter(|n| cache.get(n).is_some()).collect();
        assert_eq!((here, cache.bytes()), (vec![0, 6, 7, 8, 9, 10, 11, 12, 13, 14], 100));
        cache.insert(20, 20, 60); // more than half
        assert_eq!(cache.get(&20), None);
        cache.limit(0);
        assert_eq!((cache.bytes(), cache.get(&0)), (0, None));
        (0..1000).for_each(|_| cache.remove(&0));
    }
}
