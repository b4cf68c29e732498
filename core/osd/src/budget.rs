//! Throttles for background work over all placement groups of an OSD: clients go first. One throttle for
//! each kind of work.

use crate::memory_budget::Memory;
use crate::options::Options;
use crate::peering_throttle::PeeringThrottle;
use crate::pg::log::LogLimits;
use crate::reply_throttle::ReplyThrottle;
use crate::scrub_scheduler::ScrubScheduler;
use crate::write_credit::WriteCredits;
use nacre_base::{PgId, Time};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use work_throttle::{WaitingPgs, WorkThrottle};

pub mod work_throttle;

pub use work_throttle::{WorkRequest, WorkSlot};

/// What an OSD does in the background, one measure for each kind.
pub struct Budget {
    pub recovery: WorkThrottle,
    pub moves: Moves,
    pub trim: WorkThrottle,
    /// Bytes that the logs of all PGs may take together. Beyond it each PG has its part.
    logs_max: usize,
    /// Of the log of one PG.
    log_limits: LogLimits,
    /// Not counted with the transfers: it has a measure of its own.
    pub scrub: ScrubScheduler,
    /// Not in the background: what clients' writes find on the disks that they go to.
    pub credits: WriteCredits,
    /// Nor this: what is read for clients.
    pub replies: ReplyThrottle,
    /// Nor this: which PGs peer at the same time.
    pub peering: PeeringThrottle,
    /// What requests take that wait for a PG which does not serve.
    pub waiting: Memory,
}

/// Of an OSD's memory for its own records, the part for logs,
const LOGS_PART: usize = 2;
/// and that for what PGs hold while they peer.
const PEERING_PART: usize = 4;

impl Budget {
    /// `records`: bytes of memory for the OSD's own records; `answers`: for what clients read; `waiting`: for requests to
    /// PGs that do not serve.
    pub fn new(options: &Options, records: usize, answers: usize, waiting: usize) -> Budget {
        Budget {
            recovery: WorkThrottle::new(options.recovery()),
            moves: Moves::new(options.moves()),
            trim: WorkThrottle::new(options.trimming()),
            logs_max: records / LOGS_PART,
            log_limits: options.logs(),
            scrub: ScrubScheduler::new(options.scrub()),
            credits: WriteCredits::default(),
            replies: ReplyThrottle::new(answers),
            peering: PeeringThrottle::new(records / PEERING_PART),
            waiting: Memory::new(waiting as u64),
        }
    }

    pub fn log_limits(&self) -> &LogLimits {
        &self.log_limits
    }
    /// A few times a second: how many PGs there are, and what their logs take together. As long
    /// as that is little, busy PGs use what idle ones leave.
    pub fn look_at_logs(&mut self, options: &Options, groups: usize, memory: usize) {
        let memory = if memory > self.logs_max { self.logs_max / groups.max(1) } else { usize::MAX };
        self.log_limits = LogLimits { memory, ..options.logs() };
    }

    /// A PG that waits for either kind, if something may start now; recovery goes first.
    pub fn next_waiting(&self, now: Time) -> Option<PgId> {
        self.recovery
            .next_waiting(now)
            .or_else(|| self.trim.next_waiting(now))
            .or_else(|| self.moves.next_waiting())
    }
}

/// Placement groups that are being moved at a time. Each has a member more than it should, so that clients'
/// writes to it cost more.
pub struct Moves {
    max: u32,
    under_way: Arc<AtomicU32>,
    waiting: WaitingPgs,
}

impl Moves {
    fn new(max: u32) -> Moves {
        Moves { max, under_way: Arc::default(), waiting: WaitingPgs::default() }
    }
    pub fn set_max(&mut self, max: u32) {
        self.max = max;
    }
    /// A PG that gets no slot is woken when one is free.
    pub fn take(&self, pg: PgId, forced: bool) -> Option<WorkSlot> {
        let is_full = self.under_way.load(Ordering::Relaxed) >= self.max;
        if is_full || !forced && self.waiting.has_forced() {
            self.waiting.join(pg, forced);
            return None;
        }
        Some(WorkSlot::new(&self.under_way))
    }
    fn next_waiting(&self) -> Option<PgId> {
        if !self.waiting.is_empty() && self.under_way.load(Ordering::Relaxed) < self.max {
            return self.waiting.pop();
        }
        None
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
    fn groups_that_an_operator_wants_first_move_first() {
        let moves = Moves::new(1);
        let slot = moves.take(pg(1), false);
        assert!(moves.take(pg(0), false).is_none());
        assert!(moves.take(pg(7), true).is_none());
        drop(slot);
        assert!(moves.take(pg(1), false).is_none());
        assert_eq!(moves.next_waiting(), Some(pg(7)));
        assert!(moves.take(pg(7), true).is_some());
    }
}
