//! Removed snapshots: forgotten when trimmed everywhere, removed again when clones of them came up.

use super::stats::PgStats;
use crate::commands::snaps;
use crate::pending_txn::PendingTxn;
use crate::services::Context;
use nacre_base::IntervalSet;

impl PgStats {
    pub fn periodic(&mut self, cx: &Context<'_>, pending: &mut PendingTxn) {
        self.purge_snaps(pending);
        self.remove_snaps_again(cx, pending);
    }

    /// Forgets removed snapshots that every PG of their pool has trimmed.
    fn purge_snaps(&self, pending: &mut PendingTxn) {
        let map = pending.map().clone();
        for id in map.removed_snaps_queue.keys() {
            let purged = self.purged(&map, *id);
            if !purged.is_empty() {
                pending.edit(|inc| {
                    let all = inc.new_purged_snaps.entry(*id).or_default();
                    purged.iter().for_each(|range| all.insert(range));
                });
            }
        }
    }

    /// Removes snapshots again for which a client that did not know that they are gone had clones made.
    fn remove_snaps_again(&mut self, cx: &Context<'_>, pending: &mut PendingTxn) {
        for (id, kept) in self.take_kept() {
            let gone = cx
                .state
                .osdmap
                .purged_snaps
                .get(&id)
                .map_or_else(IntervalSet::new, |all| all.intersection(&kept));
            if pending.map().pool(id).is_some() && !gone.is_empty() {
                snaps::remove(pending, id, &gone);
            }
        }
    }
}
