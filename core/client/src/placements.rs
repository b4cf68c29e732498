//! The primary of each placement group in use, and which of them one new map may have changed.
//!
//! CRUSH is the expensive part of finding a primary. Its result is cached per placement group and dropped
//! only when something that it depends on changed; a map that marks an OSD down costs no CRUSH at all.

use nacre_base::{OsdId, PgId, PoolId, ShardId};
use nacre_proto::maps::{Osd, OsdMap, map_flags, osd_state};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A primary, and the shard that it holds.
pub(crate) type Primary = (OsdId, ShardId);

#[derive(Debug, Default)]
pub(crate) struct Placements {
    pgs: BTreeMap<PgId, Placement>,
    /// How often CRUSH was run.
    pub(crate) crush_runs: u64,
}

#[derive(Debug)]
struct Placement {
    /// None: to be computed again.
    crush: Option<Vec<OsdId>>,
    primary: Option<Primary>,
    /// `primary` is by the newest map.
    current: bool,
}

/// What a new map changed for requests.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Affected {
    All,
    Some { pools: BTreeSet<PoolId>, pgs: Vec<PgId> },
}

impl Placements {
    /// By `map`, which is the one that the last `update` was about.
    pub(crate) fn primary(&mut self, map: &OsdMap, pg: PgId) -> Option<Primary> {
        let new = || Placement { crush: None, primary: None, current: false };
        let kept = self.pgs.entry(pg).or_insert_with(new);
        if kept.current {
            return kept.primary;
        }
        let pool = map.pool(pg.pool).filter(|pool| pg.seed < pool.pg_num);
        kept.primary = pool.and_then(|pool| {
            let crush = kept.crush.get_or_insert_with(|| {
                self.crush_runs += 1;
                map.crush_placement(pg)
            });
            let found = map.up_acting_from(pool, pg, crush.clone());
            Some((found.acting_primary?, found.primary_shard()))
        });
        kept.current = true;
        kept.primary
    }

    /// Forgets what `new` may have changed, and says which requests to look at. `in_use`: whether there
    /// are requests for a placement group; of others only the result of CRUSH is kept.
    pub(crate) fn update(&mut self, old: &OsdMap, new: &OsdMap, in_use: impl Fn(PgId) -> bool) -> Affected {
        let pools: BTreeSet<PoolId> = old.pools.keys().chain(new.pools.keys()).copied().collect();
        let is_same = |id: &PoolId| match (old.pools.get(id), new.pools.get(id)) {
            (Some(old), Some(new)) => Arc::ptr_eq(old, new),
            _ => false,
        };
        let pools: BTreeSet<PoolId> = pools.into_iter().filter(|id| !is_same(id)).collect();
        let changed = changed_osds(old, new);
        let crush = new.moves_all(old);
        let exceptions = !Arc::ptr_eq(&old.pg_temp, &new.pg_temp)
            || !Arc::ptr_eq(&old.primary_temp, &new.primary_temp)
            || !Arc::ptr_eq(&old.pg_upmap, &new.pg_upmap)
            || !Arc::ptr_eq(&old.pg_upmap_items, &new.pg_upmap_items);
        let excepted = |pg: &PgId| {
            old.pg_temp.get(pg) != new.pg_temp.get(pg)
                || old.primary_temp.get(pg) != new.primary_temp.get(pg)
                || old.pg_upmap.get(pg) != new.pg_upmap.get(pg)
                || old.pg_upmap_items.get(pg) != new.pg_upmap_items.get(pg)
        };
        // OSDs that only an exception names, and not CRUSH.
        let has_exception = |pg: &PgId| {
            new.pg_temp.contains_key(pg)
                || new.primary_temp.contains_key(pg)
                || new.pg_upmap.contains_key(pg)
                || new.pg_upmap_items.contains_key(pg)
        };
        let mut pgs = Vec::new();
        self.pgs.retain(|pg, _| new.pools.contains_key(&pg.pool));
        for (&pg, kept) in &mut self.pgs {
            let pool_moves = pools.contains(&pg.pool) && new.moves_pool(old, pg.pool);
            if crush || pool_moves {
                kept.crush = None;
            }
            let touched = |osds: &BTreeSet<OsdId>| match &kept.crush {
                Some(crush) => crush.iter().any(|osd| osds.contains(osd)) || has_exception(&pg),
                None => true,
            };
            let stale = kept.crush.is_none()
                || (!changed.is_empty() && touched(&changed))
                || (exceptions && excepted(&pg));
            if stale {
                kept.current = false;
                if in_use(pg) {
                    pgs.push(pg);
                }
            }
        }
        let flags = map_flags::PAUSERD | map_flags::PAUSEWR | map_flags::FULL;
        if old.flags & flags != new.flags & flags {
            return Affected::All;
        }
        Affected::Some { pools, pgs }
    }

    /// Nothing is known of how this map came to be.
    pub(crate) fn clear(&mut self) {
        self.pgs.clear();
    }
}

/// OSDs that two maps do not agree on: up or down, or with another primary affinity.
fn changed_osds(old: &OsdMap, new: &OsdMap) -> BTreeSet<OsdId> {
    let ids = || (0..new.osds.len()).map(|id| OsdId(id as i32));
    if old.primary_affinity != new.primary_affinity {
        return ids().collect();
    }
    let flipped = |(before, after): (&Arc<Osd>, &Arc<Osd>)| {
        !Arc::ptr_eq(before, after) && (before.state ^ after.state) & osd_state::UP != 0
    };
    let pairs = ids().zip(old.osds.iter().zip(&new.osds));
    pairs.filter(|(_, pair)| flipped(*pair)).map(|(id, _)| id).collect()
}
