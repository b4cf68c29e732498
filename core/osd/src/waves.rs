//! Which groups may make their members agree at the same time: as many as there is memory for what they
//! hold meanwhile, which is logs on their way and lists of what is missing.
//!
//! Only primaries take room. What they ask of others is answered at once, out of what those others have for
//! themselves, so that no group waits for another's room to get its own. A single one always fits.

use nacre_base::PgId;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

pub struct Waves {
    /// Bytes.
    max: usize,
    held: Arc<AtomicUsize>,
    /// Those who found no room, with what they need.
    waiting: RefCell<BTreeMap<PgId, usize>>,
}

/// What one group holds; nothing any more when this is dropped, however that comes about.
#[derive(Debug)]
pub struct Room {
    held: Arc<AtomicUsize>,
    bytes: usize,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Waves {
    pub fn new(max: usize) -> Waves {
        Waves { max, held: Arc::default(), waiting: RefCell::default() }
    }

    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }
    fn fits(&self, bytes: usize) -> bool {
        let held = self.held();
        held == 0 || held + bytes <= self.max
    }

    #[cfg(test)]
    pub fn queued(&self) -> usize {
        self.waiting.borrow().len()
    }

    /// Who finds none hears when there is some.
    pub fn take(&self, pg: PgId, bytes: usize) -> Option<Room> {
        if !self.fits(bytes) {
            self.waiting.borrow_mut().insert(pg, bytes);
            return None;
        }
        self.waiting.borrow_mut().remove(&pg);
        self.held.fetch_add(bytes, Ordering::Relaxed);
        Some(Room { held: self.held.clone(), bytes })
    }

    /// One that waits and fits now. Nobody goes before the first, or a large one might wait for ever.
    pub fn next_waiting(&self) -> Option<PgId> {
        let mut waiting = self.waiting.borrow_mut();
        let first = waiting.first_entry().filter(|first| self.fits(*first.get()))?;
        Some(first.remove_entry().0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_base::PoolId;

    fn pg(seed: u32) -> PgId {
        PgId { pool: PoolId(1), seed }
    }

    #[test]
    fn as_many_go_at_a_time_as_there_is_memory_for_and_one_always() {
        let waves = Waves::new(100);
        let large = waves.take(pg(0), 1000).expect("alone");
        assert!(waves.take(pg(2), 60).is_none() && waves.take(pg(1), 60).is_none());
        assert_eq!(waves.next_waiting(), None);
        drop(large);
        assert_eq!(waves.next_waiting(), Some(pg(1)));
        let first = waves.take(pg(1), 60).expect("there is room");
        assert_eq!((waves.next_waiting(), waves.held()), (None, 60));
        drop(first);
        assert_eq!(waves.next_waiting(), Some(pg(2)));
        assert_eq!(waves.next_waiting(), None, "each is told once");
    }
}
