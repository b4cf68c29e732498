//! What must hold after each event.

use super::Mon;
use crate::state::State;
use nacre_base::Epoch;

/// Maps that have epochs, by Ceph's names.
const MAPS: [&str; 3] = ["monmap", "mgrmap", "osdmap"];

/// The newest epoch of each of `MAPS` that this monitor knows to be committed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Committed([u64; MAPS.len()]);

impl Committed {
    fn of(state: &State) -> Committed {
        Committed(MAPS.map(|what| state.version(what).map_or(0, |(newest, _)| newest)))
    }
}

impl Mon {
    /// Stops a monitor that is wrong: one that is stopped is recoverable.
    pub(super) fn check(&mut self) {
        assert_eq!(
            self.leading.is_some(),
            self.retired.is_none() && self.consensus.leads_with_committed_term(),
            "the leader's state is there as long as this member leads"
        );
        assert!(self.leading.is_some() || self.proposals.is_idle(), "only a leader has proposals");
        debug_assert!(self.proposals.is_consistent(), "the weight of the queue is that of its requests");
        assert!(self.state.is_none() || self.consensus.applied > 0, "a state is what was applied");
        let committed = self.state.as_ref().map_or(Committed::default(), Committed::of);
        for (at, what) in MAPS.iter().enumerate() {
            let (before, now) = (self.committed.0[at], committed.0[at]);
            assert!(before <= now, "the {what} went back from epoch {before} to {now}");
        }
        self.committed = committed;
        // There may be thousands of sessions. `serve_subscriptions` asserts the same of each map that it
        // sends.
        if cfg!(debug_assertions) {
            self.check_sessions();
        }
    }

    fn check_sessions(&self) {
        for (at, what) in MAPS.iter().enumerate() {
            let now = self.committed.0[at];
            for (conn, session) in self.sessions.iter() {
                let sent = session.sent_maps.get(*what).copied().unwrap_or(0);
                assert!(sent <= now, "{conn} was sent {what} {sent}, and {now} is committed");
            }
        }
        let newest = self.state.as_ref().map_or(Epoch(0), |state| state.osdmap.map.epoch);
        for (conn, session) in self.sessions.iter() {
            assert!(session.sent_osdmap <= newest, "{conn} was sent a map that is not committed");
        }
    }
}
