//! Counting a group's objects anew where nobody knows how many there are: after a split, or a merge.

use crate::object_info::ObjectInfo;
use crate::pg::{Ctx, Pg, PgEffect};
use nacre_base::SnapId;
use nacre_proto::transaction::Transaction;
use nacre_proto::types::ObjectId;

/// Objects counted at a time.
const RECOUNT_PART: usize = if cfg!(test) { 2 } else { 2000 };

/// What was counted of the group's objects, up to `next`.
pub(super) struct Recount {
    pub(super) next: ObjectId,
    pub(super) objects: u64,
    pub(super) clones: u64,
    pub(super) bytes: u64,
}

impl Pg {
    /// Goes on counting, once everything is here to be counted.
    pub(super) fn recount_some(&mut self, ctx: &mut Ctx<'_>) {
        // A write of this turn is in the counters and not in the view.
        if !self.info.estimated || !self.missing.is_empty() || !self.unapplied.is_empty() {
            return;
        }
        let start = self.range.start();
        let Some(active) = self.active() else { return };
        let mut recount =
            active.recount.take().unwrap_or(Recount { next: start, objects: 0, clones: 0, bytes: 0 });
        let Ok(here) = self.objects_from(ctx, &recount.next, RECOUNT_PART + 1) else { return };
        for object in here.iter().take(RECOUNT_PART) {
            let Ok(stat) = ctx.store.stat(&object.clone().into()) else { return };
            recount.objects += 1;
            if object.snap != SnapId::HEAD {
                recount.clones += 1;
                continue;
            }
            // The head knows what its clones have for themselves.
            let Ok(info) = ObjectInfo::load(ctx.store, object) else { return };
            let of_clones = info.map_or(0, |info| info.snap_set.bytes());
            recount.bytes += stat.unwrap_or_default().size + of_clones;
        }
        match here.get(RECOUNT_PART) {
            Some(next) => {
                recount.next = next.clone();
                if let Some(active) = self.active() {
                    active.recount = Some(recount);
                }
            }
            None => {
                self.info.objects = recount.objects;
                self.info.clones = recount.clones;
                self.info.bytes = recount.bytes;
                self.info.estimated = false;
                let mut txn = Transaction::new();
                self.record_info(&mut txn);
                self.store(ctx, txn);
                ctx.out.push(PgEffect::Report);
            }
        }
    }
}
