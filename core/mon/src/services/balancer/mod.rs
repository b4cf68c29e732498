//! Groups spread evenly: the balancer.
//!
//! CRUSH places each group by lot, so an OSD has a fifth more or less than its share, and the fullest one
//! decides how much the cluster can hold. Exceptions from the rule (`pg_upmap_items`) even that out, as
//! every client since Luminous understands them. They are made a few at a time, while all groups are clean
//! and nothing has changed for a while, and each keeps to the failure domains of its pool's rule.

mod domains;
mod plan;

use crate::mon::Mon;
use crate::pending_txn::PendingTxn;
use nacre_base::{Epoch, Now, OsdId, PgId, PoolId, Time, Utime};
use nacre_proto::maps::{OsdMap, map_flags};
use nacre_proto::messages::LogLevel;
pub(crate) use plan::score;
use std::collections::BTreeSet;
use std::time::Duration;

/// Groups that a plan moves at most: the monitor does nothing else meanwhile.
const PLAN_MAX: usize = 64;

/// What the leader remembers of balancing.
#[derive(Debug, Default)]
pub(crate) struct Balancer {
    /// The map that was looked at last, and since when it is that.
    seen: Option<(Epoch, Time)>,
    /// With this map and these settings there was nothing to do.
    settled: Option<(Epoch, Settings)>,
    /// When there was something to do last, and what came of it.
    pub last: Option<(Utime, String)>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settings {
    pub active: bool,
    pub mode: String,
    deviation: f64,
    misplaced: f64,
    /// How long the map has been the same before groups are moved.
    quiet: Duration,
    /// Empty: all.
    pub pools: BTreeSet<PoolId>,
}

impl Mon {
    pub(crate) fn balancer_settings(&self) -> Settings {
        let pools = self.option("mgr/balancer/pool_ids");
        Settings {
            active: self.option("mgr/balancer/active") == "true",
            mode: self.option("mgr/balancer/mode"),
            deviation: self.option("mgr/balancer/upmap_max_deviation").parse().unwrap_or(1.0),
            misplaced: self.option("target_max_misplaced_ratio").parse().unwrap_or(0.05),
            quiet: Duration::from_secs(self.option("mgr/balancer/sleep_interval").parse().unwrap_or(10)),
            pools: pools.split([',', ' ']).filter_map(|id| id.parse().ok().map(PoolId)).collect(),
        }
    }

    /// Takes back exceptions that are none any more, and makes new ones.
    pub(crate) fn balance(&mut self, now: Now, pending: &mut PendingTxn) {
        let map = pending.map().clone();
        if self.balancer.seen.is_none_or(|(epoch, _)| epoch != map.epoch) {
            self.balancer.seen = Some((map.epoch, now.mono));
            put(plan::void(&map), &map, pending);
        }
        let settings = self.balancer_settings();
        let quiet = self.balancer.seen.is_some_and(|(_, since)| now.mono.since(since) >= settings.quiet);
        let settled = self.balancer.settled.as_ref().is_some_and(|at| *at == (map.epoch, settings.clone()));
        let works = settings.active && settings.mode == "upmap";
        if !works || !quiet || settled || pending.map().epoch != map.epoch || !self.may_move(&map) {
            return;
        }
        let groups: u32 = map.pools.values().map(|pool| pool.pg_num).sum();
        let most = (f64::from(groups) * settings.misplaced) as usize;
        let exceptions = plan::plan(&map, &settings.pools, settings.deviation, most.clamp(1, PLAN_MAX));
        if exceptions.is_empty() {
            self.balancer.settled = Some((map.epoch, settings));
            return;
        }
        let text = format!("placement groups moved by the balancer: {}", exceptions.len());
        self.balancer.last = Some((now.wall, text.clone()));
        put(exceptions, &map, pending);
        self.log(now, pending, LogLevel::Info, format!("balancer: {text}"));
    }

    /// All is well, and nobody asked for quiet.
    fn may_move(&self, map: &OsdMap) -> bool {
        let forbidden = [map_flags::NOREBALANCE, map_flags::NOBACKFILL, map_flags::NORECOVER];
        !forbidden.into_iter().any(|flag| map.has(flag))
            && map.osd_ids().filter(|&osd| map.is_in(osd)).all(|osd| map.is_up(osd))
            && self.all_clean(map)
    }
}

/// Which OSDs take the place of which, by group; none if CRUSH's word holds.
type Exceptions = Vec<(PgId, Vec<(OsdId, OsdId)>)>;

fn put(exceptions: Exceptions, map: &OsdMap, pending: &mut PendingTxn) {
    if exceptions.is_empty() {
        return;
    }
    pending.edit(|inc| {
        for (pg, items) in exceptions {
            inc.new_pg_upmap_items.remove(&pg);
            inc.old_pg_upmap_items.remove(&pg);
            if !items.is_empty() {
                inc.new_pg_upmap_items.insert(pg, items);
            } else if map.pg_upmap_items.contains_key(&pg) {
                inc.old_pg_upmap_items.insert(pg);
            }
        }
    });
}
