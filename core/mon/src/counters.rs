//! Counters of a monitor: `ceph tell mon.X perf dump mon`.

use nacre_perf::counters;

counters! {
    /// Sessions and elections, under Ceph's names.
    pub struct MonCounters, "mon" {
        /// Open sessions
        num_sessions: Gauge,
        /// Sessions that were opened
        session_add: Count,
        /// Sessions that ended
        session_rm: Count,
        /// Elections that gave a leader
        num_elections: Count,
        /// Elections that this monitor won
        election_win: Count,
        /// Elections that another monitor won
        election_lose: Count,
    }
}
