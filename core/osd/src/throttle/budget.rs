//! The classes of work that an OSD throttles, over all its placement groups, and the PG that continues next.

use super::Throttle;
use super::background::{Pace, Slots};
use super::memory::Memory;
use super::peering::PeeringMemory;
use super::replies::ReplyThrottle;
use super::write_credit::WriteCredits;
use crate::options::Options;
use crate::pg::log::LogLimits;
use crate::scrub_scheduler::ScrubScheduler;
use nacre_base::{PgId, Time};

pub struct Budget {
    // In the background: what clients leave.
    pub recovery: Throttle<Pace>,
    pub trim: Throttle<Pace>,
    /// PGs that are being remapped at a time. Each has a member more than it should, so that clients'
    /// writes to it cost more.
    pub moves: Throttle<Slots>,
    pub scrub: ScrubScheduler,
    // In the foreground.
    pub peering: Throttle<PeeringMemory>,
    pub credits: WriteCredits,
    pub replies: ReplyThrottle,
    /// Requests that wait for a PG which does not serve.
    pub waiting: Memory,
    /// Bytes that the logs of all PGs may take together. Beyond it each PG has its part.
    logs_max: usize,
    /// Of the log of one PG.
    log_limits: LogLimits,
}

/// Of an OSD's memory for its own records, the part for logs,
const LOGS_PART: usize = 2;
/// and that for what PGs hold while they peer.
const PEERING_PART: usize = 4;

impl Budget {
    /// `records`: bytes of memory for the OSD's own records; `answers`: for what clients read; `waiting`: for
    /// requests to PGs that do not serve.
    pub fn new(options: &Options, records: usize, answers: usize, waiting: usize) -> Budget {
        Budget {
            recovery: Throttle::new(Pace::new(options.recovery())),
            moves: Throttle::new(Slots::new(options.moves())),
            trim: Throttle::new(Pace::new(options.trimming())),
            logs_max: records / LOGS_PART,
            log_limits: options.logs(),
            scrub: ScrubScheduler::new(options.scrub()),
            credits: WriteCredits::default(),
            replies: ReplyThrottle::new(answers),
            peering: Throttle::new(PeeringMemory::new(records / PEERING_PART)),
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

    /// A PG whose peering, writes or reads may continue.
    pub fn next_foreground(&self, now: Time) -> Option<PgId> {
        let next = self.peering.next_waiting(now).or_else(|| self.credits.next_waiting());
        next.or_else(|| self.replies.next_waiting())
    }
    /// A PG that may start background work; recovery goes first.
    pub fn next_background(&self, now: Time) -> Option<PgId> {
        let next = self.recovery.next_waiting(now).or_else(|| self.trim.next_waiting(now));
        next.or_else(|| self.moves.next_waiting(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::throttle::WorkRequest;
    use nacre_base::PoolId;

    fn pg(seed: u32) -> PgId {
        PgId { pool: PoolId(1), seed }
    }

    #[test]
    fn pgs_that_an_operator_prioritizes_move_first() {
        let moves = Throttle::new(Slots::new(1));
        let take =
            |seed, forced| moves.request(Time::ZERO, pg(seed), WorkRequest { scarce: false, forced }, false);
        let slot = take(1, false);
        assert!(take(0, false).is_none());
        assert!(take(7, true).is_none());
        drop(slot);
        assert!(take(1, false).is_none());
        assert_eq!(moves.next_waiting(Time::ZERO), Some(pg(7)));
        assert!(take(7, true).is_some());
    }
}
