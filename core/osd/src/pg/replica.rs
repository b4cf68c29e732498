//! Everyone but the primary: replicas take its log and its writes, strays wait until they are not
//! needed any more. All of them answer questions about what they have.

use super::inventory_scan::InventoryScan;
use super::log::{Log, part_for};
use super::log_merge::LogMerger;
use super::record::{Record, RecordChanges};
use super::{Ctx, LEASE, Pg, PgEffect, Phase, WhenStored, pg_list, pg_list_key};
use crate::object_info::ObjectInfo;
use crate::ops::OBJECT_SIZE_MAX;
use crate::snap_index;
use nacre_base::{Epoch, OsdId, SnapId, SpgId, Time};
use nacre_machine::{Level, ReadError};
use nacre_proto::maps::OsdMap;
use nacre_proto::messages::peer::{EntryKind, LogEntry, PgInfo, PgLog, PgMsg, RepOp};
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_proto::types::ObjectId;
use std::sync::Arc;
use std::time::Duration;

/// How often a stray tells the primary that it is there.
const STRAY_NOTIFY: Duration = Duration::from_secs(2);
/// How often an unanswered question for names is asked again.
const FOLLOW_RETRY: Duration = Duration::from_secs(2);
/// Objects deleted at a time.
const DELETE_PART: usize = if cfg!(test) { 1 } else { 64 };

#[derive(Default)]
pub struct Stray {
    next_notify: Time,
    /// Our log is the group's: the primary asked for it, to pull from us.
    merged: bool,
}

#[derive(Default)]
pub struct Replica {
    /// Our log is the group's: writes and leases of this interval concern us.
    pub merged: bool,
    /// Learning what changed, as our log does not reach the group's.
    pub scan: Option<Box<InventoryScan>>,
}

#[derive(Default)]
pub struct Deleting {}

impl Pg {
    // ---- questions that everybody answers ----

    pub fn answer_info(&mut self, ctx: &mut Ctx<'_>, to: OsdId) {
        let left = self.lease_end(ctx.map.as_ref()).since(ctx.now.mono);
        // Rounded up: a lease must not seem shorter than it is.
        let lease_left_ms = left.as_millis() as u32 + u32::from(!left.is_zero());
        let answer = PgMsg::Info { info: Some(self.info), lease_left_ms };
        self.once_durable(ctx, WhenStored::Answer(to, Box::new(answer)));
    }

    pub fn answer_log(&mut self, ctx: &mut Ctx<'_>, to: OsdId) {
        let log = part_for(&self.info, &self.log, &self.dups, None);
        self.once_durable(ctx, WhenStored::Answer(to, Box::new(PgMsg::Log(log))));
    }

    /// The group's objects that are here, from one on.
    pub fn objects_from(
        &self,
        ctx: &Ctx<'_>,
        from: &ObjectId,
        limit: usize,
    ) -> Result<Vec<ObjectId>, ReadError> {
        self.range.objects_from(ctx.store, from, limit)
    }

    // ---- taking a log over: replicas from the primary, the primary from whom it chose ----

    /// Makes our log the same as `log`, which must overlap with it, and this interval the last one
    /// started here. One transaction, together with what is missing from then on.
    pub fn adopt_log(&mut self, ctx: &mut Ctx<'_>, log: &PgLog) {
        let merge = self.log.merge(&self.info, log);
        let mut changes = RecordChanges::new(self.id);
        merge.gone.iter().for_each(|entry| changes.no_entry(entry.version));
        merge.new.iter().for_each(|entry| changes.entry(entry));
        let mut merger = LogMerger::new(self.me, ctx.store, &mut self.missing);
        merger.undo(&merge.gone);
        merge.new.iter().for_each(|entry| merger.miss(entry));
        let (txn, noted) = (merger.txn, merger.noted);
        self.note_merged(noted, &mut changes);
        self.finish_adoption(ctx, log, txn, changes);
    }

    pub fn finish_adoption(
        &mut self,
        ctx: &mut Ctx<'_>,
        log: &PgLog,
        mut txn: Transaction,
        mut changes: RecordChanges,
    ) {
        self.info = PgInfo {
            log_tail: self.info.log_tail.min(log.info.last_update),
            interval_started: self.interval.start,
            incomplete: false,
            pg_num: self.info.pg_num,
            dirty_from: self.info.dirty_from.min(log.info.last_update),
            dirty_objects: self.info.dirty_objects,
            ..log.info
        };
        changes.info(&self.info);
        changes.into_txn(&mut txn);
        self.store(ctx, txn);
    }

    // ---- replica ----

    pub fn is_merged_replica(&self) -> bool {
        matches!(&self.phase, Phase::Replica(replica) if replica.merged)
    }
    /// What is not called missing here is right.
    pub fn is_merged(&self) -> bool {
        self.is_merged_replica() || matches!(&self.phase, Phase::Stray(stray) if stray.merged)
    }

    /// Promises the primary to take no part in a later interval for a while.
    pub fn grant_lease(&mut self, now: Time, map: &OsdMap, from: OsdId) -> bool {
        let granted = self.interval.primary == Some(from) && self.is_merged_replica();
        if granted {
            let holder = map.osd(from).map(|osd| (from, osd.info.up_from));
            self.leases.grant(now, holder, now + LEASE);
        }
        granted
    }
    /// Until when our promises bind.
    pub fn lease_end(&self, map: &OsdMap) -> Time {
        let ended = |(osd, life): (OsdId, Epoch)| map.osd(osd).is_some_and(|osd| osd.xinfo.dead_epoch > life);
        self.leases.end(ended)
    }

    pub fn on_merge(&mut self, ctx: &mut Ctx<'_>, from: OsdId, log: PgLog) {
        if matches!(self.phase, Phase::Stray(_)) {
            self.merge_as_source(ctx, from, &log);
            return;
        }
        let Phase::Replica(replica) = &mut self.phase else { return };
        if self.interval.primary != Some(from) {
            return;
        }
        if replica.merged {
            // Asked again, as the answer was lost.
            self.once_durable(ctx, WhenStored::Merged);
            return;
        }
        if replica.scan.is_some() {
            return;
        }
        if Log::can_join(&self.info, &log) && log.after <= self.info.last_update {
            self.adopt_log(ctx, &log);
            self.replica_merged(ctx);
        } else {
            let scan = self.start_scan(ctx, from, log);
            if let Phase::Replica(replica) = &mut self.phase {
                replica.scan = Some(Box::new(scan));
            }
        }
    }

    /// The primary lacks something that we may have. With its log we can tell. We get no writes: it asks again when we are to
    /// know of those that came since.
    fn merge_as_source(&mut self, ctx: &mut Ctx<'_>, from: OsdId, log: &PgLog) {
        if self.interval.primary != Some(from) {
            return;
        }
        if !self.is_merged() || self.info.last_update < log.info.last_update {
            if !Log::can_join(&self.info, log) || log.after > self.info.last_update {
                return; // nobody can tell what ours is worth
            }
            self.adopt_log(ctx, log);
            if let Phase::Stray(stray) = &mut self.phase {
                stray.merged = true;
            }
        }
        self.once_durable(ctx, WhenStored::Merged);
    }

    pub fn replica_merged(&mut self, ctx: &mut Ctx<'_>) {
        if let Phase::Replica(replica) = &mut self.phase {
            replica.merged = true;
            replica.scan = None;
        }
        self.once_durable(ctx, WhenStored::Merged);
    }

    /// Our log is the group's, durably: the primary learns what we miss.
    pub fn on_own_merge(&mut self, ctx: &mut Ctx<'_>) {
        let Some(primary) = self.interval.primary else { return };
        let missing = self.missing.iter().map(|(object, stale)| (object.clone(), stale.clone())).collect();
        let at = self.info.last_update;
        ctx.out.push(PgEffect::answer(primary, PgMsg::Merged { at, missing }));
    }

    pub fn replica_tick(&mut self, ctx: &mut Ctx<'_>) {
        let Phase::Replica(replica) = &mut self.phase else { return };
        if let Some(scan) = &mut replica.scan {
            scan.ask_again(ctx, FOLLOW_RETRY);
        }
    }

    pub fn replica_opened(&mut self, ctx: &mut Ctx<'_>, osd: OsdId) {
        let Phase::Replica(replica) = &mut self.phase else { return };
        if let Some(scan) = replica.scan.as_mut().filter(|scan| scan.source == osd) {
            scan.ask_again(ctx, Duration::ZERO);
        }
    }

    pub fn on_rep_op(&mut self, ctx: &mut Ctx<'_>, from: OsdId, mut op: Arc<RepOp>) {
        if self.interval.primary != Some(from) || !self.is_merged_replica() {
            return;
        }
        let version = op.entry.version;
        if version <= self.info.last_update {
            // Sent again, as the answer was lost.
            self.once_durable(ctx, WhenStored::Answer(from, Box::new(PgMsg::RepAck { version })));
            return;
        }
        if op.previous != self.info.last_update {
            // A gap: what was lost comes again when the session does, and this with it.
            return;
        }
        let brings = |object| op.metas.iter().any(|(of, _)| of == object);
        let sound = op.txn.changes.iter().all(|(id, change)| may_change(&op.entry, id, change))
            && op.metas.iter().all(|(of, _)| op.entry.touched().any(|(object, ..)| object == of))
            && version.epoch == self.interval.start
            && op.committed_to <= op.previous
            && op.trim_to <= op.previous
            && sizes_are_possible(&op)
            && op.entry.touched().all(|(object, kind, _)| {
                self.range.contains(object)
                    && (kind != EntryKind::Modify
                        || !self.missing.lacks_meta(object)
                        || brings(object)
                        || op.entry.reverted().is_some())
            });
        if !sound {
            let text = format!("pg {}: osd.{from} sent write {version}, which is invalid", self.id);
            ctx.log(Level::Error, text);
            return;
        }
        self.info.last_update = version;
        self.info.last_user_version = self.info.last_user_version.max(op.entry.user_version);
        self.info.committed_to = self.info.committed_to.max(op.committed_to);
        self.info.objects = op.objects;
        self.info.clones = op.clones;
        self.info.bytes = op.bytes;
        self.log.append_encoded(&op.entry, op.entry.bytes());
        // Nobody else has it, unless both ends are in one process.
        let txn = match Arc::get_mut(&mut op) {
            Some(op) => std::mem::take(&mut op.txn),
            None => op.txn.clone(),
        };
        self.store_write(ctx, &op, txn);
        self.once_durable(ctx, WhenStored::Answer(from, Box::new(PgMsg::RepAck { version })));
    }

    // ---- strays ----

    pub fn stray_tick(&mut self, ctx: &mut Ctx<'_>) {
        let Phase::Stray(stray) = &mut self.phase else { return };
        if ctx.now.mono < stray.next_notify {
            return;
        }
        stray.next_notify = ctx.now.mono + STRAY_NOTIFY;
        if let Some(primary) = self.interval.primary {
            ctx.out.push(PgEffect::ask(primary, PgMsg::StrayNotify { info: self.info }));
        }
    }

    pub fn on_stray_remove(&mut self, ctx: &mut Ctx<'_>, from: OsdId) {
        let needed = self.interval.up.contains(&self.me) || self.interval.is_member(self.me);
        if matches!(self.phase, Phase::Stray(_)) && !needed && self.interval.primary == Some(from) {
            self.start_deleting(ctx);
        }
    }

    // ---- deletion ----

    /// The record goes first: from then on nobody takes what is left for a copy.
    pub fn start_deleting(&mut self, ctx: &mut Ctx<'_>) {
        self.phase = Phase::Deleting(Deleting::default());
        self.waiting_for_active.clear();
        self.when_stored.clear();
        let record = Record::of_remains(self.info.pg_num);
        let mut txn = Transaction::new();
        txn.push(StoredId::Pg(SpgId::replicated(self.id)), Change::Remove);
        record.store(self.id, &mut txn);
        self.info = record.info;
        self.log = record.log;
        self.dups = record.dups;
        self.missing = record.missing;
        self.is_untrusted = record.is_untrusted;
        self.store(ctx, txn);
        ctx.out.push(PgEffect::Loop);
    }

    pub fn delete_some(&mut self, ctx: &mut Ctx<'_>) {
        let objects = match self.objects_from(ctx, &self.range.start(), DELETE_PART) {
            Ok(objects) => objects,
            Err(error) => {
                ctx.log(Level::Error, format!("pg {}: {error}", self.id));
                return;
            }
        };
        let mut txn = Transaction::new();
        let done = objects.is_empty();
        for object in objects {
            if object.snap != SnapId::HEAD
                && let Ok(Some(info)) = ObjectInfo::load(ctx.store, &object)
            {
                snap_index::remove(&object, &info.snaps, &mut txn);
            }
            txn.push(object, Change::Remove);
        }
        if done {
            txn.push(StoredId::Pg(SpgId::replicated(self.id)), Change::Remove);
            txn.push(pg_list(), Change::OmapRemove([pg_list_key(self.id)].into()));
        }
        self.store(ctx, txn);
        ctx.out.push(if done { PgEffect::Gone } else { PgEffect::Loop });
    }
}

/// Whether objects are no larger afterwards than any primary lets them be.
fn sizes_are_possible(op: &RepOp) -> bool {
    let end = |change: &Change| match change {
        Change::Write { offset, data } => offset.saturating_add(data.len() as u64),
        Change::Zero { offset, len } => offset.saturating_add(*len),
        Change::Truncate { size } => *size,
        _ => 0,
    };
    op.txn.changes.iter().all(|(_, change)| end(change) <= OBJECT_SIZE_MAX)
        && op.metas.iter().all(|(_, meta)| meta.size <= OBJECT_SIZE_MAX)
}

/// Whether a write may do that: to what it is about, and to the index of clones.
fn may_change(entry: &LogEntry, id: &StoredId, change: &Change) -> bool {
    match id {
        StoredId::Object(object) => entry.touched().any(|(touched, ..)| touched == object),
        id => {
            *id == snap_index::id(entry.object.pool)
                && matches!(change, Change::OmapSet(_) | Change::OmapRemove(_))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use nacre_base::{PoolId, Utime, Version};
    use nacre_proto::messages::part::Meta;
    use nacre_proto::types::{ObjectId, ReqId};
    use nacre_wire::Encoded;

    /// Found by fuzzing: such an offset went as far as the store, which refused it.
    #[test]
    fn a_write_beyond_what_an_object_can_hold_cannot_be() {
        let object = ObjectId::head(PoolId(1), "".into(), "".into(), "o".into());
        let entry = LogEntry {
            version: Version::new(Epoch(1), 1),
            prior: Version::ZERO,
            kind: EntryKind::Modify,
            object: object.clone(),
            others: Vec::new(),
            reqid: ReqId::default(),
            user_version: 1,
            mtime: Utime::ZERO,
            acts: Vec::new(),
            result: 0,
            outputs: Vec::new(),
        };
        let possible = |change: Change, size: u64| {
            let mut txn = Transaction::new();
            txn.push(object.clone(), change);
            let metas = vec![(object.clone(), Meta { size, ..Meta::default() })];
            sizes_are_possible(&RepOp {
                entry: Encoded::new(entry.clone()),
                previous: Version::ZERO,
                committed_to: Version::ZERO,
                trim_to: Version::ZERO,
                objects: 1,
                clones: 0,
                bytes: 1,
                txn,
                metas,
            })
        };
        let write = |offset| Change::Write { offset, data: Bytes::from_static(b"x") };
        assert!(possible(write(OBJECT_SIZE_MAX - 1), OBJECT_SIZE_MAX));
        assert!(!possible(write(OBJECT_SIZE_MAX), 0));
        assert!(!possible(write(u64::MAX), 0));
        assert!(!possible(Change::Zero { offset: 1, len: u64::MAX }, 0));
        assert!(!possible(Change::Truncate { size: u64::MAX }, 0));
        assert!(!possible(Change::Touch, u64::MAX));
    }
}
