//! `pg_temp`: which OSDs serve a placement group while its data moves.
//!
//! The OSDs that CRUSH chooses may have nothing of it yet. So the change of the map that moves it also makes
//! the OSDs that served it last, by its activation record, serve on. Their primary then asks for more
//! members, which are backfilled while they take part, and in the end for the entry to go
//! (`core/osd/src/pg/remap.rs`). Ceph has the first as `mon_osd_prime_pg_temp`, the second as `MOSDPGTemp`.

use crate::mon::Done;
use crate::pending_txn::PendingTxn;
use crate::services::Context;
use nacre_base::{OsdId, PgId};
use nacre_proto::maps::{OsdMap, UpActing, ancestor, shard_members};
use nacre_proto::messages::{PgRecord, PgWish};
use std::collections::{BTreeMap, BTreeSet};

/// The most members that a primary may ask for: in an erasure-coded pool two for each shard.
const MEMBERS_MAX: usize = 16;

/// Primaries ask for other members.
pub fn request_pg_temp(cx: &Context<'_>, from: OsdId, wishes: &[PgWish], pending: &mut PendingTxn) -> Done {
    let map = pending.map().clone();
    let mut changes = Changes::new();
    for PgWish { pg, record, acting } in wishes {
        let placed = map.pg_to_up_acting(*pg);
        let some = members(acting);
        let distinct: BTreeSet<_> = some.iter().collect();
        let shards = map.pool(pg.pool).filter(|pool| pool.is_erasure()).map_or(0, |pool| pool.size.into());
        // Before it is activated, members with other shards than those of their places get places of these.
        let moves_only = shards > 0 && some.iter().all(|osd| placed.acting.contains(osd));
        let speaks = placed.acting_primary == Some(from)
            && last_record(cx, pending, *pg) == Some(record.clone())
            && (moves_only || members(&placed.acting) == members(&record.acting));
        let max = if shards > 0 { 2 * shards } else { MEMBERS_MAX };
        let sound = distinct.len() == some.len()
            && acting.len() <= max
            && (shards > 0 || some.len() == acting.len())
            && (shards == 0 || some.is_empty() || acting.len() >= shards)
            && some.iter().all(|osd| map.exists(*osd));
        if speaks && sound {
            set(&map, *pg, &placed, acting.clone(), &mut changes);
        }
    }
    apply(changes, pending);
    Done::Silent
}

/// The last word before a change is committed.
pub fn prime_pg_temp(cx: &Context<'_>, pending: &mut PendingTxn) {
    if !pending.may_move_pgs() {
        return;
    }
    let map = pending.map().clone();
    let gone = map.pg_temp.keys().chain(map.primary_temp.keys()).filter(|pg| !map.pg_exists(**pg));
    let mut changes: Changes = gone.map(|pg| (*pg, Vec::new())).collect();
    let all: Vec<PgId> = map.pools.keys().flat_map(|&pool| map.pgs(pool)).collect();
    for pg in all {
        let Some(pool) = map.pool(pg.pool) else { continue };
        let Some(record) = last_record(cx, pending, pg) else { continue };
        if map.primary_temp.contains_key(&pg) {
            continue; // an operator's, or about to go
        }
        if pool.is_erasure() {
            let placed = map.pg_to_up_acting(pg);
            let Some(acting) = shard_members(&map, pg, &record.acting, &placed) else { continue };
            set(&map, pg, &placed, acting, &mut changes);
            continue;
        }
        let size = usize::from(pool.size);
        let entry = map.pg_temp.get(&pg);
        let alive = |osds: &[OsdId]| -> Vec<OsdId> {
            osds.iter().copied().filter(|osd| osd.is_some() && map.is_up(*osd)).collect()
        };
        if entry.is_some_and(|entry| entry.len() >= size && alive(entry).len() == entry.len()) {
            continue; // the primary continues from there
        }
        let placed = map.pg_to_up_acting(pg);
        let survivors = alive(&record.acting);
        let newcomers = placed.up.iter().filter(|osd| osd.is_some() && !survivors.contains(osd));
        let newcomers: Vec<OsdId> = newcomers.copied().collect();
        let leads = placed.up_primary.is_some_and(|osd| survivors.contains(&osd));
        let enough = survivors.len() >= size;
        // Where CRUSH finds too few OSDs, those that have everything serve on.
        let found = placed.up.iter().filter(|osd| osd.is_some()).count();
        let short = found < size && survivors.iter().any(|osd| !placed.up.contains(osd));
        let needed = entry.is_some() || !leads || short || (enough && !newcomers.is_empty());
        let mut acting = survivors;
        if acting.is_empty() || !needed {
            acting.clear();
        } else if !enough {
            acting.extend(newcomers);
        }
        set(&map, pg, &placed, acting, &mut changes);
    }
    apply(changes, pending);
}

/// The last activation record, with those of the pending transaction. A new PG has its parent's.
fn last_record(cx: &Context<'_>, pending: &PendingTxn, pg: PgId) -> Option<PgRecord> {
    let state = cx.state;
    let known = |pg| {
        let proposed = pending.batch.pgs.iter().rev().find(|(have, _)| *have == pg);
        proposed.map(|(_, record)| record).or_else(|| state.pgs.records.get(&pg))
    };
    let groups = pending.committed_map().pool(pg.pool)?.pg_num;
    known(pg).or_else(|| known(ancestor(pg, groups))).cloned()
}

fn members(osds: &[OsdId]) -> Vec<OsdId> {
    osds.iter().copied().filter(|osd| osd.is_some()).collect()
}

/// The acting set of each PG; empty for the one that CRUSH chooses.
type Changes = BTreeMap<PgId, Vec<OsdId>>;

fn set(map: &OsdMap, pg: PgId, placed: &UpActing, mut acting: Vec<OsdId>, changes: &mut Changes) {
    let first = acting.iter().copied().find(|osd| osd.is_some());
    if acting == placed.up && placed.up_primary == first {
        acting.clear();
    }
    let known = map.pg_temp.get(&pg).map_or(&[][..], |known| known);
    if known != acting || (acting.is_empty() && map.primary_temp.contains_key(&pg)) {
        changes.insert(pg, acting);
    }
}

fn apply(changes: Changes, pending: &mut PendingTxn) {
    if changes.is_empty() {
        return;
    }
    let map = pending.map().clone();
    pending.edit(|inc| {
        for (pg, acting) in changes {
            if acting.is_empty() && map.primary_temp.contains_key(&pg) {
                inc.new_primary_temp.insert(pg, OsdId(-1));
            }
            inc.new_pg_temp.insert(pg, acting);
        }
    });
}
