//! What must hold after each event.

use super::Mon;
use nacre_base::Epoch;

impl Mon {
    /// Stops a monitor that is wrong: one that is stopped is recoverable.
    pub(super) fn check(&self) {
        assert_eq!(
            self.leading.is_some(),
            self.retired.is_none() && self.consensus.leads_in_earnest(),
            "the leader's state is there as long as this member leads"
        );
        assert!(self.leading.is_some() || self.proposals.is_idle(), "only a leader has proposals");
        debug_assert!(self.proposals.is_consistent(), "the weight of the queue is that of its requests");
        assert!(self.state.is_none() || self.consensus.applied > 0, "a state is what was applied");
        let newest = self.state.as_ref().map_or(Epoch(0), |state| state.osdmap.map.epoch);
        for (conn, session) in self.sessions.iter() {
            assert!(session.sent_osdmap <= newest, "{conn} was sent a map that is not committed");
        }
    }
}
