//! `pg_num` shrinks by one placement group at a time, towards `pg_num_target`.
//!
//!   pgp_num    is lowered first, a few PGs at a time while all are clean, so that both halves of each
//!              pair come to lie on the same OSDs
//!   pending    `pg_num_pending` announces the next pair, when both are clean and placed alike, and
//!              what came out of the last merge has served
//!   ready      the primary of both holds their writes and says how far they came
//!   merge      the map has one PG less, and says which versions became one
//!
//! What an OSD says is taken as long as it must still be true: writes continue only in a map in which the
//! pair is not announced any more, or in an interval whose activation record is another one.

use crate::pending_txn::PendingTxn;
use crate::services::Context;
use crate::services::pg::stats::PgStats;
use nacre_base::{Epoch, OsdId, PgId, PoolId};
use nacre_proto::maps::{OsdMap, Pool, PoolMerge, ancestor, pool_flags};
use nacre_proto::messages::{LogLevel, MergeReady, PgRecord, pg_state};

/// The next step for each pool that shrinks.
pub fn shrink_pools(cx: &Context<'_>, pgs: &PgStats, pending: &mut PendingTxn) {
    let map = pending.map().clone();
    for (&id, pool) in &map.pools {
        if pool.pg_num_target >= pool.pg_num {
            if pool.pg_num_pending != pool.pg_num {
                pending.edit_pool(id, |pool| pool.pg_num_pending = pool.pg_num);
            }
        } else if !pool.has(pool_flags::CREATING) && !pool.has(pool_flags::NOPGCHANGE) {
            shrink_pool(cx, pgs, id, pool, &map, pending);
        }
    }
}

fn shrink_pool(
    cx: &Context<'_>,
    pgs: &PgStats,
    id: PoolId,
    pool: &Pool,
    map: &OsdMap,
    pending: &mut PendingTxn,
) {
    let source = PgId { pool: id, seed: pool.pg_num - 1 };
    let target = ancestor(source, pool.pg_num - 1);
    let alike = map.pg_to_up_acting(source) == map.pg_to_up_acting(target);
    if pool.pg_num_pending < pool.pg_num {
        // Its primary tells when it is ready. Two that part again are no pair, and wait for nothing.
        if !alike {
            pending.edit_pool(id, |pool| pool.pg_num_pending = pool.pg_num);
        }
        return;
    }
    let together = pool.pgp_num_target.min(pool.pg_num_target).max(1);
    if pool.pgp_num > together {
        if map.pgs(id).all(|pg| pgs.is_clean(cx.state, map, pg)) {
            let share: f64 = cx.option("target_max_misplaced_ratio").as_f64();
            let step = ((f64::from(pool.pg_num) * share) as u32).max(1);
            let next = pool.pgp_num.saturating_sub(step).max(together);
            pending.edit_pool(id, |pool| pool.pgp_num = next);
        }
        return;
    }
    // The map tells only of the last merge, so that one must be over for every OSD before the next.
    let last = &pool.last_merge;
    let served = |pg: PgId| {
        let report = pgs.pgs.get(&pg).map(|stat| &stat.report);
        report.is_some_and(|r| r.state & pg_state::ACTIVE != 0 && r.interval > last.ready_epoch)
    };
    let over = last.ready_epoch == Epoch(0) || served(ancestor(last.source, pool.pg_num));
    if !over || !pgs.is_clean(cx.state, map, source) || !pgs.is_clean(cx.state, map, target) {
        return;
    }
    if !alike {
        place_by_rule(&[source, target], map, pending);
        return;
    }
    pending.edit_pool(id, |pool| pool.pg_num_pending = source.seed);
}

/// Whether a pool has more placement groups than it should.
pub fn is_shrinking(map: &OsdMap) -> bool {
    map.pools.values().any(|pool| pool.pg_num_target < pool.pg_num)
}

/// Its primary says that a pair takes no writes any more.
pub fn merge(cx: &Context<'_>, ready: &MergeReady, pending: &mut PendingTxn) {
    let state = cx.state;
    let id = ready.source.pool;
    let map = pending.map().clone();
    let Some(pool) = map.pool(id) else { return };
    let Some((source, target)) = pool.merging(id) else { return };
    let proposed = |pg| pending.batch.pgs.iter().rev().find(|(have, _)| *have == pg).map(|(_, r)| r);
    let record = |pg| proposed(pg).or_else(|| state.pgs.records.get(&pg));
    let (Some(one), Some(other)) = (record(source), record(target)) else { return };
    let holds = source == ready.source
        && ready.epoch >= pool.last_change
        && (one.interval, other.interval) == (ready.source_interval, ready.target_interval)
        && is_same_set(one, other);
    if !holds {
        return;
    }
    let epoch = pending.committed_map().epoch.next();
    let how = PoolMerge {
        source,
        ready_epoch: ready.epoch,
        last_epoch_started: one.interval.max(other.interval),
        last_epoch_clean: one.interval.max(other.interval),
        source_version: ready.source_version,
        target_version: ready.target_version,
    };
    place_by_rule(&[source], &map, pending);
    pending.edit_pool(id, |pool| pool.merge(how, epoch));
    cx.log(pending, LogLevel::Debug, format!("pg {source} is part of {target} now"));
}

/// Whether the pending transaction makes the placement group, or its other half, another one than the
/// committed map has: then no interval of before may begin to serve.
pub(crate) fn is_merging(pending: &PendingTxn, pg: PgId) -> bool {
    let groups = |map: &OsdMap| map.pool(pg.pool).map_or(0, |pool| pool.pg_num);
    let (before, after) = (groups(pending.committed_map()), groups(pending.map()));
    after < before
        && (after..before).any(|seed| seed == pg.seed || ancestor(PgId { seed, ..pg }, after) == pg)
}

/// Whether the PG came out of the pool's last merge.
pub(crate) fn is_merged(map: &OsdMap, pg: PgId) -> bool {
    let pool = map.pool(pg.pool).filter(|pool| pool.last_merge.ready_epoch > Epoch(0));
    pool.is_some_and(|pool| ancestor(pool.last_merge.source, pool.pg_num) == pg)
}

fn is_same_set(one: &PgRecord, other: &PgRecord) -> bool {
    let sorted = |record: &PgRecord| {
        let mut acting = record.acting.clone();
        acting.sort_unstable();
        acting
    };
    sorted(one) == sorted(other)
}

/// Removes the entries that place PGs elsewhere than their rule does.
fn place_by_rule(pgs: &[PgId], map: &OsdMap, pending: &mut PendingTxn) {
    let placed = |pg: &PgId| {
        map.pg_upmap.contains_key(pg)
            || map.pg_upmap_items.contains_key(pg)
            || map.pg_temp.contains_key(pg)
            || map.primary_temp.contains_key(pg)
    };
    for &pg in pgs.iter().filter(|pg| placed(pg)) {
        pending.edit(|inc| {
            inc.new_pg_upmap.remove(&pg);
            inc.new_pg_upmap_items.remove(&pg);
            inc.new_pg_temp.remove(&pg);
            inc.new_primary_temp.remove(&pg);
            if map.pg_upmap.contains_key(&pg) {
                inc.old_pg_upmap.insert(pg);
            }
            if map.pg_upmap_items.contains_key(&pg) {
                inc.old_pg_upmap_items.insert(pg);
            }
            if map.pg_temp.contains_key(&pg) {
                inc.new_pg_temp.insert(pg, Vec::new());
            }
            if map.primary_temp.contains_key(&pg) {
                inc.new_primary_temp.insert(pg, OsdId(-1));
            }
        });
    }
}
