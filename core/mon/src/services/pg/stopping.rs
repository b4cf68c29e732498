//! What placement groups do without OSDs that are to stop.

use super::stats::{PgStats, all_pgs};
use crate::state::State;
use nacre_base::{OsdId, PgId};
use nacre_proto::messages::pg_state;
use std::collections::BTreeSet;

/// Placement groups of OSDs that are to stop.
#[derive(Default)]
pub struct Stopping {
    /// They serve without these OSDs.
    pub degraded: Vec<PgId>,
    /// They would not.
    pub stopped: Vec<PgId>,
    /// They do not even now.
    pub inactive: Vec<PgId>,
}

/// Sorts the placement groups that are on these OSDs.
pub fn stopping(state: &State, stats: &PgStats, osds: &BTreeSet<OsdId>) -> Stopping {
    let map = &state.osdmap.map;
    let mut found = Stopping::default();
    for pg in all_pgs(map) {
        let acting = map.pg_to_up_acting(pg).acting;
        if !acting.iter().any(|osd| osds.contains(osd)) {
            continue;
        }
        let pool = &map.pools[&pg.pool];
        let state = stats.pg_state(map, pg);
        let here = acting.iter().filter(|osd| osd.is_some());
        // A degraded placement group with all its members has one that lacks something. No copy may rely on
        // that one alone.
        let lacking = here.clone().count() >= pool.size.into() && state & pg_state::DEGRADED != 0;
        let left = here.clone().filter(|osd| !osds.contains(osd)).count();
        let left = left.saturating_sub(lacking.into());
        let serves = here.count() >= pool.min_size.into() && (state == 0 || state & pg_state::ACTIVE != 0);
        let of = match left >= pool.min_size.into() {
            _ if !serves => &mut found.inactive,
            true => &mut found.degraded,
            false => &mut found.stopped,
        };
        of.push(pg);
    }
    found
}
