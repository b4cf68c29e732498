//! The primary removes what was kept for snapshots that are removed: a few clones at a time, each
//! in a write of its own that all members make, found by the index of clones.
//!
//! Nothing of it is remembered over a change of primary: the next one finds in its own index what
//! is left. How many clones all groups of an OSD trim at a time, and with what pauses, is its budget's
//! to say, which looks at how long clients wait. A slice follows when the last is durable.

use super::active::Active;
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
/// Clones looked at for one slice: those whose objects are in use wait.
const LOOKED_AT_MAX: usize = 4 * SLICE;
/// Snapshots looked for in one turn; looking for one of which nothing is left costs a seek.
const SNAPS_MAX: usize = 64;

#[derive(Default)]
pub struct SnapTrim {
    /// Removed snapshots for which nothing is kept here any more.
    done: IntervalSet,
    /// Removed snapshots that are not among these yet.
    left: u64,
    /// Nobody asked for it to stop.
    allowed: bool,
    /// One for each write in flight.
    in_flight: Vec<WorkSlot>,
}

impl SnapTrim {
    fn not_done(&self, mut removed: IntervalSet) -> IntervalSet {
        removed.subtract(&self.done);
        removed
    }
}

impl Pg {
    /// `pg_state` bits.
    pub fn trim_state(&self) -> u64 {
        match &self.phase {
            Phase::Active(active) if active.snap_trim.left == 0 || !self.is_clean() => 0,
            Phase::Active(active) if active.snap_trim.allowed => pg_state::SNAPTRIM,
            Phase::Active(_) => pg_state::SNAPTRIM_WAIT,
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

    /// Removed snapshots for which something may be kept here; none if this is not the primary.
    pub fn to_trim(&self, map: &OsdMap) -> IntervalSet {
        let Phase::Active(active) = &self.phase else { return IntervalSet::new() };
        active.snap_trim.not_done(map.removed_snaps_queue.get(&self.id.pool).cloned().unwrap_or_default())
    }

    /// Clones may have been made for these.
    pub fn note_new_snaps(&mut self, snaps: &[SnapId]) {
        let snaps: IntervalSet = snaps.iter().map(|snap| snap.0..snap.0 + 1).collect();
        if let Phase::Active(active) = &mut self.phase {
            active.snap_trim.done.subtract(&snaps);
        }
        self.new_snaps.add(&snaps);
    }
    /// For which snapshots clones were made since this was asked last.
    pub fn take_new_snaps(&mut self) -> IntervalSet {
        std::mem::take(&mut self.new_snaps)
    }

    /// A slice, if there is something to trim and the last slice is durable.
    pub fn trim(&mut self, ctx: &mut Ctx<'_>) {
        let removed = ctx.map.removed_snaps_queue.get(&self.id.pool).cloned().unwrap_or_default();
        let Phase::Active(active) = &mut self.phase else { return };
        let snap_trim = &mut active.snap_trim;
        snap_trim.done = snap_trim.done.intersection(&removed);
        let queue = snap_trim.not_done(removed.clone());
        snap_trim.left = queue.size();
        snap_trim.allowed = !ctx.map.has(map_flags::NOSNAPTRIM);
        // The index shows nothing that changed in this turn.
        if queue.is_empty()
            || !snap_trim.allowed
            || active.holds_writes
            || !snap_trim.in_flight.is_empty()
            || !self.unapplied.is_empty()
        {
            return;
        }
        if !self.is_clean() {
            return; // what is missing here is not in the index
        }
        let hashes = self.range.hashes();
        for snap in queue.iter().flatten().map(SnapId).take(SNAPS_MAX) {
            match snap_index::first(ctx.store, self.id.pool, snap, hashes.clone(), LOOKED_AT_MAX) {
                Ok(clones) if clones.is_empty() => self.note_trimmed(ctx, snap),
                Ok(clones) => {
                    self.trim_slice(ctx, snap, &clones, &removed);
                    return;
                }
                Err(error) => {
                    ctx.log(Level::Error, format!("pg {}: {error}", self.id));
                    return;
                }
            }
        }
        ctx.out.push(PgEffect::Loop); // there may be more
    }

    fn note_trimmed(&mut self, ctx: &mut Ctx<'_>, snap: SnapId) {
        let Phase::Active(active) = &mut self.phase else { return };
        active.snap_trim.done.insert(snap.0..snap.0 + 1);
        active.snap_trim.left -= 1;
        ctx.out.push(PgEffect::Report);
    }

    fn trim_slice(&mut self, ctx: &mut Ctx<'_>, snap: SnapId, clones: &[ObjectId], removed: &IntervalSet) {
        let mut left = SLICE;
        for clone in clones {
            let Phase::Active(active) = &self.phase else { return };
            let head = clone.to_head();
            if left == 0 {
                return;
            }
            if self.unapplied.contains(&head) || active.in_use(&head) {
                continue;
            }
            let Some(slot) = ctx.budget.trim.request(ctx.now.mono, self.id, WorkRequest::default(), false)
            else {
                return;
            };
            left -= 1;
            let version = self.next_version();
            match trim_clone(ctx.store, clone, removed, version) {
                Ok(Some(change)) => {
                    let entry = self.own_entry(ctx, version, clone, 0, &change);
                    if let Err(unwritten) = self.submit(ctx, entry, change, None) {
                        ctx.log(Level::Error, format!("pg {}: {clone}: {}", self.id, unwritten.1));
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
                    self.unapplied.insert(clone.clone());
                    self.store(ctx, txn);
                    ctx.out.push(PgEffect::Loop);
                }
                Err(error) => ctx.log(Level::Error, format!("pg {}: {clone}: {error}", self.id)),
            }
        }
    }

    /// A clone is gone everywhere, durably.
    pub fn on_trimmed(&mut self, ctx: &mut Ctx<'_>) {
        let Phase::Active(active) = &mut self.phase else { return };
        active.snap_trim.in_flight.pop();
        if active.snap_trim.in_flight.is_empty() {
            ctx.out.push(PgEffect::Loop);
        }
    }
}

impl Active {
    /// How an entry that trims reads: it is about a clone.
    pub fn is_trim(entry: &LogEntry) -> bool {
        entry.kind != EntryKind::Note && entry.object.snap != SnapId::HEAD
    }
}
