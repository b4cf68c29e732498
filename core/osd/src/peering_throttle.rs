//! Peering throttle: how many PGs peer at the same time. As many as there is memory for what they
//! hold meanwhile, which is logs in flight and lists of what is missing; and of those in which a member lacks much,
//! only a few. Such a member takes milliseconds for each of its PGs: one after the other, the first serve again long before
//! the last ones would all together.
//!
//! Only primaries reserve memory. Queries to members are answered at once, out of what those members have for
//! that, so no PG waits for another PG's reservation. A single one always fits.

use crate::memory_budget::{Held, Memory, fits};
use nacre_base::PgId;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Log entries that members lack, of all PGs that go at a time.
const ENTRIES_MAX: u64 = 1000;

/// What a PG takes until its members agree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Need {
    pub bytes: u64,
    /// Log entries that its members lack, together.
    pub entries: u64,
}

/// The same, as long as this is kept.
#[derive(Debug)]
pub struct Room {
    _memory: Held,
    entries: Option<Held>,
}

impl Room {
    /// Its members agree. What is left to wait for is the monitors, and that holds up no other PG.
    pub fn agreed(&mut self) {
        self.entries = None;
    }
}

pub struct PeeringThrottle {
    memory: Memory,
    entries: Memory,
    /// PGs that did not fit, with what they need.
    waiting: RefCell<BTreeMap<PgId, Need>>,
}

impl PeeringThrottle {
    /// `most`: bytes.
    pub fn new(most: usize) -> PeeringThrottle {
        let (memory, entries) = (Memory::new(most as u64), Memory::new(ENTRIES_MAX));
        PeeringThrottle { memory, entries, waiting: RefCell::default() }
    }

    #[cfg(test)]
    pub fn held(&self) -> usize {
        self.memory.held() as usize
    }
    fn fits(&self, need: Need) -> bool {
        let in_turn = need.entries == 0 || fits(need.entries, self.entries.held(), self.entries.most());
        in_turn && fits(need.bytes, self.memory.held(), self.memory.most())
    }

    #[cfg(test)]
    pub fn queued(&self) -> usize {
        self.waiting.borrow().len()
    }

    /// A PG that does not fit is woken when it does.
    pub fn take(&self, pg: PgId, need: Need) -> Option<Room> {
        if !self.fits(need) {
            self.waiting.borrow_mut().insert(pg, need);
            return None;
        }
        self.waiting.borrow_mut().remove(&pg);
        Some(Room { _memory: self.memory.hold(need.bytes), entries: Some(self.entries.hold(need.entries)) })
    }

    /// A waiting PG that fits now. None overtakes the first, or a large one might wait for ever.
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

    fn bytes(bytes: u64) -> Need {
        Need { bytes, entries: 0 }
    }

    #[test]
    fn as_many_go_at_a_time_as_there_is_memory_for_and_one_always() {
        let waves = PeeringThrottle::new(100);
        let large = waves.take(pg(0), bytes(1000)).expect("alone");
        assert!(waves.take(pg(2), bytes(60)).is_none() && waves.take(pg(1), bytes(60)).is_none());
        assert_eq!(waves.next_waiting(), None);
        drop(large);
        assert_eq!(waves.next_waiting(), Some(pg(1)));
        let first = waves.take(pg(1), bytes(60)).expect("there is room");
        assert_eq!((waves.next_waiting(), waves.held()), (None, 60));
        drop(first);
        assert_eq!(waves.next_waiting(), Some(pg(2)));
        assert_eq!(waves.next_waiting(), None, "each is told once");
    }

    #[test]
    fn those_that_lack_much_go_a_few_at_a_time_and_those_that_lack_nothing_pass() {
        let waves = PeeringThrottle::new(1 << 20);
        let lacks = |entries| Need { bytes: 100, entries };
        let first = waves.take(pg(0), lacks(5 * ENTRIES_MAX)).expect("alone");
        assert!(waves.take(pg(1), lacks(ENTRIES_MAX / 2)).is_none());
        assert!(waves.take(pg(2), lacks(1)).is_none());
        let agrees = waves.take(pg(3), lacks(0)).expect("it costs nobody anything");
        assert_eq!(waves.next_waiting(), None);
        drop((first, agrees));
        assert_eq!(waves.next_waiting(), Some(pg(1)));
        let mut second = waves.take(pg(1), lacks(ENTRIES_MAX)).expect("there is room");
        assert_eq!(waves.next_waiting(), None);
        second.agreed();
        assert_eq!(waves.next_waiting(), Some(pg(2)));
    }
}
