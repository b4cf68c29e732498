//! When an OSD scrubs its PGs, and how fast: a few PGs at a time, the one that
//! waits for it longest first, in small steps with a pause after each while clients are there.

use nacre_base::{PgId, Time};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// While clients are there, a pause is this many times as long as the step before it took.
const PAUSE_PARTS: u32 = 9;
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// What is set for it; intervals in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubConfig {
    /// Placement groups at a time. Ceph: `osd_max_scrubs`.
    pub max: u32,
    /// So old the last look must be for another. Ceph: `osd_scrub_min_interval`.
    pub min_interval: u64,
    /// And at that age it happens whatever clients do. Ceph: `osd_scrub_max_interval`.
    pub max_interval: u64,
    /// So old, and the next look reads everything. Ceph: `osd_deep_scrub_interval`.
    pub deep_interval: u64,
    /// Hours of the day (UTC) from the one up to the other, all if they are the same.
    pub hours: (u64, u64),
    /// Objects examined in one step. Ceph: `osd_scrub_chunk_max`.
    pub chunk: u64,
    /// Wrong copies up to this many are made right unasked. Ceph: `osd_scrub_auto_repair` and
    /// `osd_scrub_auto_repair_num_errors`.
    pub auto_repair: Option<u64>,
    /// After each step at least. Ceph: `osd_scrub_sleep`.
    pub sleep: Duration,
}

impl ScrubConfig {
    /// Whether scheduled scrubs may begin in this hour of the day.
    pub fn may_begin(&self, hour: u64) -> bool {
        let (from, to) = self.hours;
        if from < to { (from..to).contains(&hour) } else { from == to || hour >= from || hour < to }
    }
}

/// A PG that is being scrubbed. The scrub ends when this is dropped.
#[derive(Debug)]
pub struct ScrubSlot(Arc<AtomicU32>);

impl Drop for ScrubSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

pub struct ScrubScheduler {
    pub rules: ScrubConfig,
    /// Clients asked for something within the last second.
    pub busy: bool,
    running: Arc<AtomicU32>,
    /// PGs that are due, and how urgent each is.
    proposed: RefCell<BTreeMap<PgId, u64>>,
    next_step: Cell<Time>,
    waiting: RefCell<BTreeSet<PgId>>,
}

impl ScrubScheduler {
    pub fn new(rules: ScrubConfig) -> ScrubScheduler {
        ScrubScheduler {
            rules,
            busy: false,
            running: Arc::default(),
            proposed: RefCell::default(),
            next_step: Cell::new(Time::ZERO),
            waiting: RefCell::default(),
        }
    }

    /// A PG would begin; only one of those that say so in the same tick will.
    pub fn propose(&self, pg: PgId, urgency: u64) {
        if self.running.load(Ordering::Relaxed) < self.rules.max {
            self.proposed.borrow_mut().insert(pg, urgency);
        }
    }
    /// The PG that may begin.
    pub fn choose(&self) -> Option<PgId> {
        let proposed = std::mem::take(&mut *self.proposed.borrow_mut());
        proposed.into_iter().max_by_key(|(_, urgency)| *urgency).map(|(pg, _)| pg)
    }
    pub fn begin(&self) -> Option<ScrubSlot> {
        if self.running.load(Ordering::Relaxed) >= self.rules.max {
            return None;
        }
        self.running.fetch_add(1, Ordering::Relaxed);
        Some(ScrubSlot(self.running.clone()))
    }

    /// How many PGs are being scrubbed.
    pub fn running(&self) -> u32 {
        self.running.load(Ordering::Relaxed)
    }

    /// A step took that long; the PG gets an event when the next step is due.
    pub fn pause(&self, pg: PgId, now: Time, took: Duration) {
        let pause = if self.busy { (took * PAUSE_PARTS).min(PAUSE_MAX) } else { Duration::ZERO };
        self.next_step.set(now + pause.max(self.rules.sleep));
        self.waiting.borrow_mut().insert(pg);
    }
    /// When `ready` should be asked.
    pub fn wakes_at(&self) -> Option<Time> {
        (!self.waiting.borrow().is_empty()).then(|| self.next_step.get())
    }
    /// The PGs whose pause is over.
    pub fn ready(&self, now: Time) -> BTreeSet<PgId> {
        if self.next_step.get() <= now {
            std::mem::take(&mut *self.waiting.borrow_mut())
        } else {
            BTreeSet::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use nacre_base::PoolId;

    fn pg(seed: u32) -> PgId {
        PgId { pool: PoolId(1), seed }
    }

    #[test]
    fn most_urgent_scrub_starts_within_the_limit() {
        let pace = ScrubScheduler::new(Options::default().scrub());
        pace.propose(pg(1), 5);
        pace.propose(pg(2), 7);
        assert_eq!((pace.choose(), pace.choose()), (Some(pg(2)), None));
        let slot = pace.begin();
        assert!(slot.is_some() && pace.begin().is_none());
        pace.propose(pg(1), 5);
        assert_eq!(pace.choose(), None);
        drop(slot);
        pace.propose(pg(1), 5);
        assert_eq!(pace.choose(), Some(pg(1)));
        assert!(pace.begin().is_some());
    }

    #[test]
    fn scrub_steps_leave_most_of_the_time_to_active_clients() {
        let mut pace = ScrubScheduler::new(Options::default().scrub());
        let at = |millis| Time::ZERO + Duration::from_millis(millis);
        pace.pause(pg(1), at(10), Duration::from_millis(10));
        assert_eq!((pace.wakes_at(), pace.ready(at(10))), (Some(at(10)), [pg(1)].into()));
        pace.busy = true;
        pace.pause(pg(1), at(10), Duration::from_millis(10));
        assert_eq!((pace.wakes_at(), pace.ready(at(99))), (Some(at(100)), [].into()));
        assert_eq!((pace.ready(at(100)), pace.wakes_at()), ([pg(1)].into(), None));
    }

    #[test]
    fn hours_of_the_day_may_go_over_midnight() {
        let rules = |hours| ScrubConfig { hours, ..Options::default().scrub() };
        let allowed = |hours| (0..24).filter(|hour| rules(hours).may_begin(*hour)).count();
        assert_eq!([(0, 0), (1, 5), (22, 4), (5, 5), (0, 24)].map(allowed), [24, 4, 6, 24, 24]);
    }
}
