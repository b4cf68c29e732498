//! The balancer spreads placement groups evenly.
//!
//! CRUSH places each PG pseudo-randomly, so an OSD has a fifth more or less than its share, and the fullest
//! OSD limits what the cluster can hold. Exceptions from the rule (`pg_upmap_items`) even that out, as every
//! client since Luminous understands them. They are made a few at a time, while all PGs are clean and nothing
//! has changed for a while, and each keeps to the failure domains of its pool's rule.

mod domains;
mod plan;

use crate::pending_txn::PendingTxn;
use crate::services::pg::stats::PgStats;
use crate::services::{Context, Options};
use nacre_base::{Epoch, OsdId, PgId, PoolId, Time, Utime};
use nacre_proto::maps::{OsdMap, map_flags};
use nacre_proto::messages::LogLevel;
pub(crate) use plan::score;
use std::collections::BTreeSet;
use std::time::Duration;

/// PGs that a plan moves at most: the monitor does nothing else meanwhile.
const PLAN_MAX: usize = 64;

/// What the leader remembers of balancing.
#[derive(Debug, Default)]
pub struct Balancer {
    /// The map that was examined last, and since when it is that.
    seen: Option<(Epoch, Time)>,
    /// With this map and these settings there was nothing to do.
    settled: Option<(Epoch, Settings)>,
    /// When there was something to do last, and what came of it.
    pub last: Option<(Utime, String)>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub active: bool,
    pub mode: String,
    deviation: f64,
    misplaced: f64,
    /// How long the map has been the same before PGs are moved.
    quiet: Duration,
    /// Empty: all.
    pub pools: BTreeSet<PoolId>,
}

impl Balancer {
    /// Takes back exceptions that are none any more, and makes new ones.
    pub fn periodic(&mut self, cx: &Context<'_>, pgs: &PgStats, pending: &mut PendingTxn) {
        let map = pending.map().clone();
        if self.seen.is_none_or(|(epoch, _)| epoch != map.epoch) {
            self.seen = Some((map.epoch, cx.now.mono));
            put(plan::void(&map), &map, pending);
        }
        let settings = settings(cx.options);
        let quiet = self.seen.is_some_and(|(_, since)| cx.now.mono.since(since) >= settings.quiet);
        let settled = self.settled.as_ref().is_some_and(|at| *at == (map.epoch, settings.clone()));
        let works = settings.active && settings.mode == "upmap";
        if !works || !quiet || settled || pending.map().epoch != map.epoch || !may_move(cx, pgs, &map) {
            return;
        }
        let groups: u32 = map.pools.values().map(|pool| pool.pg_num).sum();
        let most = (f64::from(groups) * settings.misplaced) as usize;
        let exceptions = plan::plan(&map, &settings.pools, settings.deviation, most.clamp(1, PLAN_MAX));
        if exceptions.is_empty() {
            self.settled = Some((map.epoch, settings));
            return;
        }
        let text = format!("placement groups moved by the balancer: {}", exceptions.len());
        self.last = Some((cx.now.wall, text.clone()));
        put(exceptions, &map, pending);
        cx.log(pending, LogLevel::Info, format!("balancer: {text}"));
    }
}

pub fn settings(options: Options<'_>) -> Settings {
    let pools = options.get("mgr/balancer/pool_ids").to_string();
    Settings {
        active: options.get("mgr/balancer/active").as_bool(),
        mode: options.get("mgr/balancer/mode").to_string(),
        deviation: options.get("mgr/balancer/upmap_max_deviation").as_f64(),
        misplaced: options.get("target_max_misplaced_ratio").as_f64(),
        quiet: Duration::from_secs(options.get("mgr/balancer/sleep_interval").as_u64()),
        pools: pools.split([',', ' ']).filter_map(|id| id.parse().ok().map(PoolId)).collect(),
    }
}

/// All PGs are clean, all OSDs are up, and no flag forbids it.
fn may_move(cx: &Context<'_>, pgs: &PgStats, map: &OsdMap) -> bool {
    let forbidden = [map_flags::NOREBALANCE, map_flags::NOBACKFILL, map_flags::NORECOVER];
    !forbidden.into_iter().any(|flag| map.has(flag))
        && map.osd_ids().filter(|&osd| map.is_in(osd)).all(|osd| map.is_up(osd))
        && pgs.all_clean(cx.state, map)
}

/// Which OSDs take the place of which, by PG; none for CRUSH's own choice.
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
