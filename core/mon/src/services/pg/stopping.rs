//! What placement groups do without OSDs that are to stop.

use super::stats::{PgStats, all_pgs};
use crate::services::hosts::ToldToStop;
use crate::state::State;
use nacre_base::{Epoch, OsdId, PgId, Utime};
use nacre_proto::maps::OsdMap;
use nacre_proto::messages::pg_state;
use std::collections::{BTreeMap, BTreeSet};

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

/// The acting sets of all placement groups. Each takes a CRUSH computation, so they are computed once.
#[derive(Default)]
pub struct ActingSets {
    /// The map that they are of.
    epoch: Epoch,
    sets: BTreeMap<PgId, Vec<OsdId>>,
    /// The placement groups of each OSD.
    of_osd: BTreeMap<OsdId, Vec<PgId>>,
}

impl ActingSets {
    /// Those of this map.
    pub fn of(map: &OsdMap) -> ActingSets {
        let mut new = ActingSets { epoch: map.epoch, ..ActingSets::default() };
        for pg in all_pgs(map) {
            let acting = map.pg_to_up_acting(pg).acting;
            for osd in acting.iter().filter(|osd| osd.is_some()) {
                new.of_osd.entry(*osd).or_default().push(pg);
            }
            new.sets.insert(pg, acting);
        }
        new
    }

    /// The map may be another one by now.
    pub fn update(&mut self, map: &OsdMap) {
        if self.epoch != map.epoch {
            *self = ActingSets::of(map);
        }
    }

    /// Sorts the placement groups that are on these OSDs. Others were `told` to stop before, and may run
    /// still.
    pub fn stopping(
        &self,
        state: &State,
        stats: &PgStats,
        osds: &BTreeSet<OsdId>,
        told: &BTreeSet<OsdId>,
    ) -> Stopping {
        let map = &state.osdmap.map;
        let mut found = Stopping::default();
        let pgs: BTreeSet<PgId> =
            osds.iter().filter_map(|osd| self.of_osd.get(osd)).flatten().copied().collect();
        for pg in pgs {
            let acting = &self.sets[&pg];
            let Some(pool) = map.pool(pg.pool) else { continue };
            let state = stats.pg_state(map, pg);
            let here = acting.iter().filter(|osd| osd.is_some());
            // A degraded placement group with all its members has one that lacks something. No copy may rely
            // on that one alone.
            let lacking = here.clone().count() >= pool.size.into() && state & pg_state::DEGRADED != 0;
            let left = here.clone().filter(|osd| !osds.contains(osd) && !told.contains(osd)).count();
            let left = left.saturating_sub(lacking.into());
            let serves =
                here.count() >= pool.min_size.into() && (state == 0 || state & pg_state::ACTIVE != 0);
            let of = match left >= pool.min_size.into() {
                _ if !serves => &mut found.inactive,
                true => &mut found.degraded,
                false => &mut found.stopped,
            };
            of.push(pg);
        }
        found
    }
}

/// Sorts the placement groups that are on these OSDs, where others were told to stop already.
pub fn stopping(state: &State, stats: &PgStats, osds: &BTreeSet<OsdId>, now: Utime) -> Stopping {
    let told = ToldToStop::anywhere(state, now).osds;
    ActingSets::of(&state.osdmap.map).stopping(state, stats, osds, &told)
}
