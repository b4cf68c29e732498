//! The limit of peering: how many PGs peer at the same time. As many as there is memory for what they hold
//! meanwhile, which is logs in flight and lists of what is missing; and of those in which a member lacks
//! much, only a few. Such a member takes milliseconds for each of its PGs: one after the other, the first
//! serve again long before the last ones would all together.
//!
//! Only primaries reserve memory. Queries to members are answered at once, out of what those members have for
//! that, so no PG waits for another PG's reservation. A single one always fits.

use super::Limit;
use super::memory::{Held, Memory, fits};
use nacre_base::Time;

/// Log entries that members lack, of all PGs that go at a time.
const ENTRIES_MAX: u64 = 1000;

/// What a PG takes until its members agree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeeringNeed {
    pub bytes: u64,
    /// Log entries that its members lack, together.
    pub entries: u64,
}

/// The same, as long as this is kept.
#[derive(Debug)]
pub struct PeeringGrant {
    _memory: Held,
    entries: Option<Held>,
}

impl PeeringGrant {
    /// Its members agree. What is left to wait for is the monitors, and that holds up no other PG.
    pub fn agreed(&mut self) {
        self.entries = None;
    }
}

pub struct PeeringMemory {
    memory: Memory,
    entries: Memory,
}

impl PeeringMemory {
    /// `most`: bytes.
    pub fn new(most: usize) -> PeeringMemory {
        PeeringMemory { memory: Memory::new(most as u64), entries: Memory::new(ENTRIES_MAX) }
    }
    #[cfg(test)]
    pub fn held(&self) -> usize {
        self.memory.held() as usize
    }
}

impl Limit for PeeringMemory {
    type Need = PeeringNeed;
    type Grant = PeeringGrant;

    fn fits(&self, _: Time, need: &PeeringNeed) -> bool {
        let in_turn = need.entries == 0 || fits(need.entries, self.entries.held(), self.entries.most());
        in_turn && fits(need.bytes, self.memory.held(), self.memory.most())
    }
    fn grant(&self, _: Time, need: PeeringNeed) -> PeeringGrant {
        PeeringGrant { _memory: self.memory.hold(need.bytes), entries: Some(self.entries.hold(need.entries)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::throttle::Throttle;
    use nacre_base::{PgId, PoolId};

    fn throttle(most: usize) -> Throttle<PeeringMemory> {
        Throttle::new(PeeringMemory::new(most))
    }
    fn take(throttle: &Throttle<PeeringMemory>, pg: PgId, need: PeeringNeed) -> Option<PeeringGrant> {
        throttle.request(Time::ZERO, pg, need, false)
    }
    fn next(throttle: &Throttle<PeeringMemory>) -> Option<PgId> {
        throttle.next_waiting(Time::ZERO)
    }

    fn pg(seed: u32) -> PgId {
        PgId { pool: PoolId(1), seed }
    }

    fn bytes(bytes: u64) -> PeeringNeed {
        PeeringNeed { bytes, entries: 0 }
    }

    #[test]
    fn as_many_go_at_a_time_as_there_is_memory_for_and_one_always() {
        let throttle = throttle(100);
        let large = take(&throttle, pg(0), bytes(1000)).expect("alone");
        assert!(take(&throttle, pg(2), bytes(60)).is_none() && take(&throttle, pg(1), bytes(60)).is_none());
        assert_eq!(next(&throttle), None);
        drop(large);
        assert_eq!(next(&throttle), Some(pg(1)));
        let first = take(&throttle, pg(1), bytes(60)).expect("there is room");
        assert_eq!((next(&throttle), throttle.limit().held()), (None, 60));
        drop(first);
        assert_eq!(next(&throttle), Some(pg(2)));
        assert_eq!(next(&throttle), None, "each is told once");
    }

    #[test]
    fn pgs_that_miss_much_are_throttled_and_complete_pgs_are_not() {
        let throttle = throttle(1 << 20);
        let lacks = |entries| PeeringNeed { bytes: 100, entries };
        let first = take(&throttle, pg(0), lacks(5 * ENTRIES_MAX)).expect("alone");
        assert!(take(&throttle, pg(1), lacks(ENTRIES_MAX / 2)).is_none());
        assert!(take(&throttle, pg(2), lacks(1)).is_none());
        let agrees = take(&throttle, pg(3), lacks(0)).expect("it costs nobody anything");
        assert_eq!(next(&throttle), None);
        drop((first, agrees));
        assert_eq!(next(&throttle), Some(pg(1)));
        let mut second = take(&throttle, pg(1), lacks(ENTRIES_MAX)).expect("there is room");
        assert_eq!(next(&throttle), None);
        second.agreed();
        assert_eq!(next(&throttle), Some(pg(2)));
    }
}
