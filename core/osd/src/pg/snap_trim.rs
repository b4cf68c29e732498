//! Snapshot trimming: the primary removes what was kept for snapshots that are removed, a few clones at a
//! time, each in a write of its own that all members make. The index of clones tells which.
//!
//! No progress is kept over a change of primary: the next one finds in its own index what is left. The OSD's
//! budget decides how many clones all its placement groups trim at a time, and with what pauses, from how
//! long clients wait. A slice follows when the last is durable.

use super::history::History;
use super::{Ctx, Pg, PgEffect, Phase};
use crate::ops::trim_clone;
use crate::snap_index;
use crate::throttle::{WorkRequest, WorkSlot};
use nacre_base::{IntervalSet, SnapId};
use nacre_machine::Level;
use nacre_proto::maps::{OsdMap, map_flags};
use nacre_proto::messages::peer::{EntryKind, LogEntry};
use nacre_proto::messages::pg_state;
use nacre_proto::transaction::Transaction;
use nacre_proto::types::ObjectId;

/// Clones in one slice at most.
const SLICE: usize = 4;
/// Clones examined for one slice: those whose objects are in use wait.
const LOOKED_AT_MAX: usize = 4 * SLICE;
/// Snapshots looked for in one turn; looking for one of which nothing is left costs a seek.
const SNAPS_MAX: usize = 64;

#[derive(Default)]
pub struct SnapTrim {
    /// Removed snapshots for which nothing is kept here any more.
    done: IntervalSet,
    /// Removed snapshots that are not among these yet.
    left: u64,
    /// No flag forbids it.
    allowed: bool,
    /// One for each write in flight.
    in_flight: Vec<WorkSlot>,
}

impl SnapTrim {
    /// `pg_state` bits of a placement group that is clean.
    fn state(&self) -> u64 {
        match (self.left, self.allowed) {
            (0, _) => 0,
            (_, true) => pg_state::SNAPTRIM,
            (_, false) => pg_state::SNAPTRIM_WAIT,
        }
    }
    fn not_done(&self, mut removed: IntervalSet) -> IntervalSet {
        removed.subtract(&self.done);
        removed
    }
    pub fn check(&self) {
        assert!(self.in_flight.len() <= SLICE);
    }
    /// Clones may have been made for these.
    pub fn note_new_snaps(&mut self, snaps: &IntervalSet) {
        self.done.subtract(snaps);
    }

    /// The next snapshot of which clones are left, and some of them. None while the last slice is not
    /// durable, and while `may_begin` is not so.
    fn next_slice(
        &mut self,
        ctx: &mut Ctx<'_>,
        history: &History,
        removed: &IntervalSet,
        may_begin: bool,
    ) -> Option<(SnapId, Vec<ObjectId>)> {
        self.done = self.done.intersection(removed);
        let queue = self.not_done(removed.clone());
        self.left = queue.size();
        self.allowed = !ctx.map.has(map_flags::NOSNAPTRIM);
        if queue.is_empty() || !self.allowed || !self.in_flight.is_empty() || !may_begin {
            return None;
        }
        let (pool, hashes) = (history.range.pool, history.range.hashes());
        for snap in queue.iter().flatten().map(SnapId).take(SNAPS_MAX) {
            match snap_index::first(ctx.store, pool, snap, hashes.clone(), LOOKED_AT_MAX) {
                Ok(clones) if clones.is_empty() => {
                    self.done.insert(snap.0..snap.0 + 1);
                    self.left -= 1;
                    ctx.out.push(PgEffect::Report);
                }
                Ok(clones) => return Some((snap, clones)),
                Err(error) => {
                    ctx.log(Level::Error, format!("pg {}: {error}", history.pg));
                    return None;
                }
            }
        }
        ctx.out.push(PgEffect::Loop); // there may be more
        None
    }

    /// A clone is gone on all members, durably.
    pub fn on_trimmed(&mut self, ctx: &mut Ctx<'_>) {
        self.in_flight.pop();
        if self.in_flight.is_empty() {
            ctx.out.push(PgEffect::Loop);
        }
    }
}

impl Pg {
    /// `pg_state` bits.
    pub fn trim_state(&self) -> u64 {
        match &self.phase {
            Phase::Active(active) if self.is_clean() => active.snap_trim.state(),
            _ => 0,
        }
    }
    /// What is trimmed, and how many snapshots are not.
    pub fn trimmed(&self) -> (IntervalSet, u64) {
        match &self.phase {
            Phase::Active(active) => (active.snap_trim.done.clone(), active.snap_trim.left),
            _ => Default::default(),
        }
    }

    /// Removed snapshots that may still have clones here; none if this is not the primary.
    pub fn to_trim(&self, map: &OsdMap) -> IntervalSet {
        let Phase::Active(active) = &self.phase else { return IntervalSet::new() };
        active.snap_trim.not_done(map.removed_snaps_queue.get(&self.id.pool).cloned().unwrap_or_default())
    }

    /// Snapshots for which clones were made since the last call.
    pub fn take_new_snaps(&mut self) -> IntervalSet {
        self.stats.take_new_snaps()
    }

    /// Trims a slice, if there is something to trim and the last slice is durable.
    pub fn trim(&mut self, ctx: &mut Ctx<'_>) {
        let removed = ctx.map.removed_snaps_queue.get(&self.id.pool).cloned().unwrap_or_default();
        // The index shows nothing that changed in this turn, nor what is missing here.
        let may_begin = self.pending.unapplied.is_empty() && self.is_clean();
        let Phase::Active(active) = &mut self.phase else { return };
        let may_begin = may_begin && !active.ops.holds_writes;
        let slice = active.snap_trim.next_slice(ctx, &self.history, &removed, may_begin);
        if let Some((snap, clones)) = slice {
            self.trim_slice(ctx, snap, &clones, &removed);
        }
    }

    fn trim_slice(&mut self, ctx: &mut Ctx<'_>, snap: SnapId, clones: &[ObjectId], removed: &IntervalSet) {
        let mut left = SLICE;
        for clone in clones {
            let Phase::Active(active) = &self.phase else { return };
            let head = clone.to_head();
            if left == 0 {
                return;
            }
            if self.pending.unapplied.contains(&head) || active.ops.in_use(&head) {
                continue;
            }
            let Some(slot) = ctx.budget.trim.request(ctx.now.mono, self.id, WorkRequest::default(), false)
            else {
                return;
            };
            left -= 1;
            let version = self.history.next_version(self.interval.start);
            match trim_clone(ctx.store, clone, removed, version) {
                Ok(Some(change)) => {
                    let entry = self.history.own_entry(ctx.now.wall, version, clone, 0, &change);
                    if let Err(error) = self.submit(ctx, entry, change) {
                        ctx.log(Level::Error, format!("pg {}: {clone}: {error}", self.id));
                        return;
                    }
                    if let Phase::Active(active) = &mut self.phase {
                        active.snap_trim.in_flight.push(slot);
                    }
                }
                Ok(None) => {
                    // It is not there, or not for this snapshot: only its key is left.
                    let mut txn = Transaction::new();
                    snap_index::remove(clone, &[snap], &mut txn);
                    self.pending.unapplied.insert(clone.clone());
                    self.store(ctx, txn);
                    ctx.out.push(PgEffect::Loop);
                }
                Err(error) => ctx.log(Level::Error, format!("pg {}: {clone}: {error}", self.id)),
            }
        }
    }
}

impl SnapTrim {
    /// How an entry that trims reads: it is about a clone.
    pub fn is_trim(entry: &LogEntry) -> bool {
        entry.kind != EntryKind::Note && entry.object.snap != SnapId::HEAD
    }
}
