//! Which groups may make their members agree at the same time: as many as there is memory for what they
//! hold meanwhile, which is logs on their way and lists of what is missing.
//!
//! Only primaries take room. What they ask of others is answered at once, out of what those others have for
//! themselves, so that no group waits for another's room to get its own. A single one always fits.

use crate::memory::{Held, Memory, fits};
use nacre_base::PgId;
use std::cell::RefCell;
use std::collections::BTreeMap;

pub struct Waves {
    memory: Memory,
    /// Those who found no room, with what they need.
    waiting: RefCell<BTreeMap<PgId, u64>>,
}

impl Waves {
    /// `most`: bytes.
    pub fn new(most: usize) -> Waves {
        Waves { memory: Memory::new(most as u64), waiting: RefCell::default() }
    }

    #[cfg(test)]
    pub fn held(&self) -> usize {
        self.memory.held() as usize
    }
    fn fits(&self, bytes: u64) -> bool {
        fits(bytes, self.memory.held(), self.memory.most())
    }

    #[cfg(test)]
    pub fn queued(&self) -> usize {
        self.waiting.borrow().len()
    }

    /// Who finds none hears when there is some.
    pub fn take(&self, pg: PgId, bytes: usize) -> Option<Held> {
        let bytes = bytes as u64;
        if !self.fits(bytes) {
            self.waiting.borrow_mut().insert(pg, bytes);
            return None;
        }
        self.waiting.borrow_mut().remove(&pg);
        Some(self.memory.hold(bytes))
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
