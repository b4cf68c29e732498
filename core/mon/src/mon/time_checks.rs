//! The leader asks the other monitors for the time (`services/time_checks.rs`).

use super::Mon;
use crate::services::time_checks::{TimeCheckConfig, allowed};
use nacre_base::Now;
use nacre_machine::Effect;
use nacre_proto::messages::{QuorumMsg, quorum_features};
use std::time::Duration;

impl Mon {
    /// Asks for the time if that is due. Called once a second.
    pub(super) fn check_times(&mut self, now: Now, out: &mut Vec<Effect>) {
        if !self.is_ready_leader() {
            return;
        }
        let seconds =
            |name: &str| Duration::try_from_secs_f64(self.option(name).as_f64()).unwrap_or_default();
        let config = TimeCheckConfig {
            interval: seconds("mon_timecheck_interval"),
            skew_interval: seconds("mon_timecheck_skew_interval"),
        };
        let is_member = |id: &u64| self.rank_of(*id).is_some();
        let others = self.peers.open_with(quorum_features::TIME_CHECKS).filter(is_member).collect::<Vec<_>>();
        let allowed = allowed(&self.context(now));
        let Some(round) = self.services.time_checks.begin(now, config, allowed, others.clone()) else {
            return;
        };
        for other in others {
            self.peers.send(other, QuorumMsg::TimeCheck { round }, out);
        }
    }
}
