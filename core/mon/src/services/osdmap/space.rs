//! Full OSDs and pools.

use crate::pending_txn::PendingTxn;
use crate::services::pg::stats::{PgStats, rule_weights};
use nacre_base::OsdId;
use nacre_proto::maps::{osd_state, pool_flags};
use std::collections::BTreeMap;

/// Notes which OSDs and pools are full, so that clients hold back what would fail.
pub fn update_full_flags(pgs: &PgStats, pending: &mut PendingTxn) {
    let map = pending.map().clone();
    // Those that clients may have to do with.
    let mut filled: BTreeMap<OsdId, u32> = BTreeMap::new();
    let mut flips = Vec::new();
    for (osd, stat) in pgs.osds.iter().filter(|(osd, _)| map.exists(**osd)) {
        let used = stat.report.space.used_ratio();
        let before = map.osds[osd.index()].state;
        let state = map.ratios.state(used, before & osd_state::FULL != 0);
        if state != 0 && map.is_up(*osd) && map.is_in(*osd) {
            filled.insert(*osd, state);
        }
        let all = osd_state::FULL | osd_state::BACKFILLFULL | osd_state::NEARFULL;
        let flip = (before & all) ^ state;
        if flip != 0 {
            flips.push((*osd, flip));
        }
    }
    flips.into_iter().for_each(|(osd, bits)| pending.flip(osd, bits));
    for (id, pool) in &map.pools {
        let by_quota = pool.quota_max_bytes > 0 || pool.quota_max_objects > 0;
        let space =
            pool_flags::FULL | pool_flags::FULL_QUOTA | pool_flags::BACKFILLFULL | pool_flags::NEARFULL;
        if !by_quota && filled.is_empty() && pool.flags & space == 0 {
            continue;
        }
        let counts = pgs.pool(&map, *id).counts;
        let over = |limit: u64, have: u64| limit > 0 && have >= limit;
        let quota = over(pool.quota_max_bytes, counts.bytes) || over(pool.quota_max_objects, counts.objects);
        let on = rule_weights(&map, pool);
        let any = |state: u32| filled.iter().any(|(osd, have)| *have == state && on.contains_key(osd));
        let mut flags = pool.flags & !space;
        if quota {
            flags |= pool_flags::FULL | pool_flags::FULL_QUOTA;
        }
        if any(osd_state::FULL) {
            flags |= pool_flags::FULL;
        } else if any(osd_state::BACKFILLFULL) {
            flags |= pool_flags::BACKFILLFULL;
        } else if any(osd_state::NEARFULL) {
            flags |= pool_flags::NEARFULL;
        }
        if flags != pool.flags {
            pending.edit_pool(*id, |pool| pool.flags = flags);
        }
    }
}
