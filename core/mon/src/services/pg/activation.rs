//! Placement groups become active: primaries have their activation records committed.

use crate::pending_txn::PendingTxn;
use crate::services::Context;
use crate::services::osdmap::pg_merge::{is_merged, is_merging};
use nacre_base::{OsdId, PgId};
use nacre_proto::messages::{DaemonMsg, PgRecord};

/// Commits what primaries say they reached, where it is newer than what is known.
pub fn activate(cx: &Context<'_>, records: &[(PgId, PgRecord)], pending: &mut PendingTxn) -> DaemonMsg {
    let state = cx.state;
    let mut results = Vec::with_capacity(records.len());
    for (pg, record) in records {
        let proposed = pending.batch.pgs.iter().rev().find(|(have, _)| have == pg).map(|(_, record)| record);
        let known = proposed.or_else(|| state.pgs.records.get(pg));
        // The map that is committed, not the pending one: a change in this very batch starts a new
        // interval, in which this one's primary will ask again.
        let placed = state.osdmap.map.pg_to_up_acting(*pg);
        // Where the place is the shard, a hole is as good as a name.
        let is_same = !placed.has_shards || placed.acting == record.acting;
        let acting: Vec<OsdId> = placed.acting.into_iter().filter(|osd| osd.is_some()).collect();
        let claimed: Vec<OsdId> = record.acting.iter().copied().filter(|osd| osd.is_some()).collect();
        // What a merge left is of its own epoch, in which the PG is still to serve, with any members.
        let merged = is_merged(&state.osdmap.map, *pg);
        let newer = known.is_none_or(|known| {
            record.interval > known.interval || record == known || merged && record.interval == known.interval
        });
        // A member that came up since then began a new interval with the same members.
        let current =
            acting.iter().all(|osd| state.osdmap.map.osds[osd.index()].info.up_from <= record.interval);
        let exists = state.osdmap.map.pg_exists(*pg) && !is_merging(pending, *pg);
        let accepted = newer && current && acting == claimed && is_same && exists;
        if accepted && known != Some(record) {
            pending.batch.pgs.push((*pg, record.clone()));
        }
        results.push((*pg, record.interval, accepted));
    }
    DaemonMsg::Activated { epoch: state.osdmap.map.epoch, results }
}
