//! How much an OSD does in the background at a time, over all its placement groups: what clients
//! leave. One budget for recovery, one for trimming.
//!
//! A closed loop. While clients wait no longer than they do without recovery, it may have more
//! transfers on their way; when they do, half as many. Nobody there: as many as there may be. One
//! always goes on, so that recovery ends; trimming, which nobody waits for, then rests between one
//! and the next, longer and longer.

use crate::options::Options;
use crate::scrub_pace::ScrubPace;
use nacre_base::{PgId, Time};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// By what part of what they wait without recovery clients may wait longer, for each point of
/// priority, and how long on top: below that lies the noise of any machine.
const PATIENCE: f64 = 1.0 / 12.0;
const PATIENCE_AT_LEAST: f64 = 0.000_5;
/// The first rest; each further one is twice as long.
const REST: Duration = Duration::from_millis(1);
/// Fewer requests than this between two looks say nothing.
const REQUESTS_MIN: u64 = 3;

/// One transfer on its way. It ends when this is dropped, however that comes about.
#[derive(Debug)]
pub struct Slot(Arc<AtomicU32>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What is set for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Transfers at a time at most. Ceph: `osd_recovery_max_active`.
    pub max: u32,
    /// From the start of one transfer to that of the next at least. Ceph: `osd_recovery_sleep`.
    pub sleep: Duration,
    /// How much clients bear for its sake. Ceph: `osd_recovery_op_priority`.
    pub priority: u32,
    /// How long it may rest between one and the next when clients wait even for one at a time.
    pub rest_max: Duration,
}

/// What an OSD does in the background, one measure for each kind.
pub struct Budget {
    pub recovery: Share,
    pub trim: Share,
    /// Of memory for the log of one group, in bytes.
    log_memory: usize,
    /// Not counted with the transfers: it has a measure of its own.
    pub scrub: ScrubPace,
}

/// What the logs of all groups may take together, in bytes. Beyond it each group has its part.
const LOGS_MAX: usize = 48 << 20;

impl Budget {
    pub fn new(options: &Options) -> Budget {
        Budget {
            recovery: Share::new(options.recovery()),
            trim: Share::new(options.trimming()),
            log_memory: usize::MAX,
            scrub: ScrubPace::new(options.scrub()),
        }
    }

    /// What the log of a group may take.
    pub fn log_memory(&self) -> usize {
        self.log_memory
    }
    /// A few times a second: how many groups there are, and what their logs take together. As long
    /// as that is little, busy groups use what idle ones leave.
    pub fn look_at_logs(&mut self, groups: usize, memory: usize) {
        self.log_memory = if memory > LOGS_MAX { LOGS_MAX / groups.max(1) } else { usize::MAX };
    }

    /// A group that waits for either kind, if something may start now; recovery goes first.
    pub fn next_waiting(&self, now: Time) -> Option<PgId> {
        self.recovery.next_waiting(now).or_else(|| self.trim.next_waiting(now))
    }
}

/// How much of one kind of work goes on at a time. A removed clone is a transfer, too.
pub struct Share {
    limits: Limits,
    /// How many transfers may be on their way.
    window: u32,
    /// How long there is none after each.
    rest: Duration,
    /// Whether one was started since the last look.
    started: Cell<bool>,
    under_way: Arc<AtomicU32>,
    next_start: Cell<Time>,
    /// Groups that got no slot.
    waiting: RefCell<BTreeSet<PgId>>,
    /// What clients wait when nothing is recovered, in seconds, smoothed; none before that was seen.
    usual: Option<f64>,
    /// Requests answered, and what they waited, when this was last looked at.
    seen: (u64, Duration),
}

impl Share {
    pub fn new(limits: Limits) -> Share {
        Share {
            limits,
            window: limits.max,
            rest: Duration::ZERO,
            started: Cell::new(false),
            under_way: Arc::default(),
            next_start: Cell::new(Time::ZERO),
            waiting: RefCell::default(),
            usual: None,
            seen: (0, Duration::ZERO),
        }
    }

    /// A group wants to start a transfer; without a slot it hears when there may be one. `scarce`:
    /// there is no second copy of what it is about, so it may have all that there is.
    pub fn take(&self, now: Time, pg: PgId, scarce: bool) -> Option<Slot> {
        let window = if scarce { self.limits.max } else { self.window };
        if self.under_way.load(Ordering::Relaxed) >= window || now < self.next_start.get() {
            self.waiting.borrow_mut().insert(pg);
            return None;
        }
        self.next_start.set(now + self.limits.sleep.max(self.rest));
        self.started.set(true);
        self.under_way.fetch_add(1, Ordering::Relaxed);
        Some(Slot(self.under_way.clone()))
    }

    /// One that waits, if something may start now.
    pub fn next_waiting(&self, now: Time) -> Option<PgId> {
        let free = self.under_way.load(Ordering::Relaxed) < self.window && self.next_start.get() <= now;
        if free { self.waiting.borrow_mut().pop_first() } else { None }
    }

    /// A few times a second: how many requests of clients were answered so far, and how long all of
    /// them together waited.
    pub fn look(&mut self, limits: Limits, answered: u64, waited: Duration) {
        self.limits = limits;
        let requests = answered.saturating_sub(self.seen.0);
        let time = waited.saturating_sub(self.seen.1);
        self.seen = (answered, waited);
        let busy = self.started.replace(false) || self.under_way.load(Ordering::Relaxed) > 0;
        if requests < REQUESTS_MIN {
            self.window = self.window.saturating_mul(2);
            self.rest = Duration::ZERO;
        } else {
            let mean = time.as_secs_f64() / requests as f64;
            let usual = *self.usual.get_or_insert(mean);
            let patience = 1.0 + PATIENCE * f64::from(limits.priority);
            if mean > usual * patience + PATIENCE_AT_LEAST && busy {
                if self.window == 1 {
                    self.rest = (self.rest * 2).max(REST).min(limits.rest_max);
                }
                self.window /= 2;
            } else if self.rest >= REST {
                self.rest /= 2;
            } else {
                self.rest = Duration::ZERO;
                self.window += 1;
            }
            // Without recovery what they wait is usual by definition; during it, only less is.
            let usual = if !busy { usual + (mean - usual) / 8.0 } else { usual.min(mean) };
            self.usual = Some(usual);
        }
        self.window = self.window.clamp(1, limits.max.max(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_base::PoolId;

    const LIMITS: Limits = Limits { max: 8, sleep: Duration::ZERO, priority: 3, rest_max: Duration::ZERO };

    fn pg(seed: u32) -> PgId {
        PgId { pool: PoolId(1), seed }
    }
    /// Takes all that it gets.
    fn take_all(budget: &Share) -> Vec<Slot> {
        std::iter::from_fn(|| budget.take(Time::ZERO, pg(0), false)).collect()
    }
    /// A hundred requests more, each of which waited so many microseconds.
    fn serve(budget: &mut Share, served: &mut (u64, Duration), micros: u64) {
        served.0 += 100;
        served.1 += Duration::from_micros(100 * micros);
        budget.look(LIMITS, served.0, served.1);
    }

    #[test]
    fn recovery_shrinks_to_one_transfer_while_clients_wait_for_it_and_grows_when_they_do_not() {
        let (mut budget, mut served) = (Share::new(LIMITS), (0, Duration::ZERO));
        (0..5).for_each(|_| serve(&mut budget, &mut served, 1000));
        let slots = take_all(&budget);
        assert_eq!(slots.len(), 8);
        (0..5).for_each(|_| serve(&mut budget, &mut served, 5000));
        drop(slots);
        let one = take_all(&budget);
        assert_eq!(one.len(), 1);
        (0..3).for_each(|_| serve(&mut budget, &mut served, 1100));
        drop(one);
        assert_eq!(take_all(&budget).len(), 4);
        // Nobody there.
        (0..2).for_each(|_| budget.look(LIMITS, served.0, served.1));
        assert_eq!(take_all(&budget).len(), 8);
    }

    #[test]
    fn who_got_no_slot_hears_of_the_next_and_the_last_copy_does_not_wait() {
        let (mut budget, mut served) = (Share::new(LIMITS), (0, Duration::ZERO));
        serve(&mut budget, &mut served, 1000);
        let slots = take_all(&budget);
        (0..9).for_each(|_| serve(&mut budget, &mut served, 9000));
        drop(slots);
        let slots = take_all(&budget);
        assert!(budget.take(Time::ZERO, pg(3), false).is_none());
        assert!(budget.take(Time::ZERO, pg(4), true).is_some());
        assert_eq!(budget.next_waiting(Time::ZERO), None);
        drop(slots);
        assert_eq!(budget.next_waiting(Time::ZERO), Some(pg(0)));
        assert_eq!(budget.next_waiting(Time::ZERO), Some(pg(3)));
    }

    #[test]
    fn a_higher_priority_lets_clients_wait_longer() {
        let limits = Limits { priority: 63, ..LIMITS };
        let (mut budget, mut answered, mut waited) = (Share::new(limits), 0, Duration::ZERO);
        let mut serve = |budget: &mut Share, micros: u64| {
            answered += 100;
            waited += Duration::from_micros(100 * micros);
            budget.look(limits, answered, waited);
        };
        (0..5).for_each(|_| serve(&mut budget, 1000));
        let slots = take_all(&budget);
        (0..5).for_each(|_| serve(&mut budget, 5000));
        drop(slots);
        assert_eq!(take_all(&budget).len(), 8);
    }

    #[test]
    fn what_may_rest_does_so_longer_and_longer_while_clients_wait_for_one_at_a_time() {
        let limits = Limits { rest_max: Duration::from_millis(50), ..LIMITS };
        let (mut budget, mut answered, mut waited) = (Share::new(limits), 0, Duration::ZERO);
        let mut serve = |budget: &mut Share, micros: u64| {
            answered += 100;
            waited += Duration::from_micros(100 * micros);
            budget.look(limits, answered, waited);
        };
        (0..5).for_each(|_| serve(&mut budget, 1000));
        let at = |millis| Time::ZERO + Duration::from_millis(millis);
        for round in 0..12 {
            drop(budget.take(at(round * 100), pg(0), false).unwrap()); // short ones, never seen at a look
            serve(&mut budget, 5000);
        }
        drop(budget.take(at(2000), pg(0), false).unwrap());
        assert!(budget.take(at(2049), pg(0), false).is_none());
        assert!(budget.take(at(2050), pg(0), false).is_some());
        (0..20).for_each(|_| serve(&mut budget, 1000));
        let all: Vec<Slot> = std::iter::from_fn(|| budget.take(at(3000), pg(0), false)).collect();
        assert_eq!(all.len(), 8);
    }

    #[test]
    fn transfers_start_no_faster_than_the_sleep_between_them_allows() {
        let budget = Share::new(Limits { sleep: Duration::from_secs(1), ..LIMITS });
        let at = |secs| Time::ZERO + Duration::from_secs(secs);
        assert!(budget.take(at(1), pg(0), true).is_some());
        assert!(budget.take(at(1), pg(0), true).is_none());
        assert!(budget.take(at(2), pg(0), false).is_some());
    }
}
