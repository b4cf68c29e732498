//! The phases of all holders but the primary: replicas take its log and its writes, strays wait until they
//! are not needed any more, and are deleted then. All of them reply to queries about what they have.

use super::history::log::Log;
use super::inventory_scan::InventoryScan;
use super::record::Record;
use super::{Ctx, LEASE, Pg, PgEffect, Phase, WhenStored, pg_list, pg_list_key};
use crate::object_info::ObjectInfo;
use crate::ops::OBJECT_SIZE_MAX;
use crate::snap_index;
use nacre_base::{Name, OsdId, SnapId, SpgId, Time, Version};
use nacre_machine::Level;
use nacre_proto::maps::OsdMap;
use nacre_proto::messages::peer::{EntryKind, LogEntry, PgLog, PgMsg, RepOp};
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_proto::types::ObjectId;
use std::sync::Arc;
use std::time::Duration;

/// How often a stray announces itself to the primary.
const STRAY_NOTIFY: Duration = Duration::from_secs(2);
/// How often an unanswered question for names is asked again.
const FOLLOW_RETRY: Duration = Duration::from_secs(2);
/// Objects deleted at a time.
const DELETE_PART: usize = if cfg!(test) { 1 } else { 64 };

#[derive(Default)]
pub struct Stray {
    next_notify: Time,
    /// Our log is the authoritative one: the primary asked for that, to pull from us.
    has_authoritative_log: bool,
}

#[derive(Default)]
pub struct Replica {
    /// Our log is the authoritative one: writes and leases of this interval concern us.
    pub has_authoritative_log: bool,
    /// The inventory scan, if our log does not overlap with the authoritative one.
    pub scan: Option<Box<InventoryScan>>,
}

#[derive(Default)]
pub struct Deleting {}

impl Pg {
    // ---- queries that every holder answers ----

    pub fn answer_info(&mut self, ctx: &mut Ctx<'_>, to: OsdId) {
        let left = self.leases.end(&ctx.map).since(ctx.now.mono);
        // Rounded up: a lease must not seem shorter than it is.
        let lease_left_ms = left.as_millis() as u32 + u32::from(!left.is_zero());
        let is_lacking = self.shard().is_some() && !self.history.missing.is_empty();
        let answer = PgMsg::Info { info: Some(self.history.info), lease_left_ms, is_lacking };
        self.once_durable(ctx, WhenStored::Answer(to, Box::new(answer)));
    }

    pub fn answer_log(&mut self, ctx: &mut Ctx<'_>, to: OsdId) {
        let log = self.history.log_for(None);
        self.once_durable(ctx, WhenStored::Answer(to, Box::new(PgMsg::Log(log))));
    }

    /// Sends a page of the inventory: names and versions of what exists.
    pub fn answer_inventory(&mut self, ctx: &mut Ctx<'_>, to: OsdId, from: &ObjectId) {
        match self.history.inventory_page(ctx.store, from) {
            Ok((objects, next)) => {
                let answer = PgMsg::Inventory { from: from.clone(), objects, next };
                self.once_durable(ctx, WhenStored::Answer(to, Box::new(answer)));
            }
            Err(error) => ctx.log(Level::Error, format!("pg {}: {error}", self.id)),
        }
    }

    /// Sends a page of the changes after `since` that the log does not contain.
    pub fn answer_dirty(&mut self, ctx: &mut Ctx<'_>, to: OsdId, since: Version, from: Name) {
        if !self.history.is_dirty_map_in_view() {
            return; // the other side asks again
        }
        let reaches = self.history.dirty_map_reaches(since);
        let page =
            if reaches { self.history.dirty_page(ctx.store, since, &from) } else { Ok((Vec::new(), None)) };
        match page {
            Ok((objects, next)) => {
                let answer = PgMsg::Dirty { from, reaches, objects, next };
                self.once_durable(ctx, WhenStored::Answer(to, Box::new(answer)));
            }
            Err(error) => {
                ctx.log(Level::Error, format!("pg {}: {error}", self.id));
                let (objects, next) = (Vec::new(), None);
                ctx.out.push(PgEffect::answer(to, PgMsg::Dirty { from, reaches: false, objects, next }));
            }
        }
    }

    // ---- replica ----

    pub fn is_replica_with_log(&self) -> bool {
        matches!(&self.phase, Phase::Replica(replica) if replica.has_authoritative_log)
    }
    /// What is not called missing here is right.
    pub fn has_authoritative_log(&self) -> bool {
        self.is_replica_with_log()
            || matches!(&self.phase, Phase::Stray(stray) if stray.has_authoritative_log)
    }

    /// Grants the primary a lease.
    pub fn grant_lease(&mut self, now: Time, map: &OsdMap, from: OsdId) -> bool {
        let granted = self.interval.primary == Some(from) && self.is_replica_with_log();
        if granted {
            let holder = map.osd(from).map(|osd| (from, osd.info.up_from));
            self.leases.grant(now, holder, now + LEASE);
        }
        granted
    }
    pub fn on_adopt_log(&mut self, ctx: &mut Ctx<'_>, from: OsdId, log: PgLog) {
        if matches!(self.phase, Phase::Stray(_)) {
            self.adopt_as_stray(ctx, from, &log);
            return;
        }
        let Phase::Replica(replica) = &mut self.phase else { return };
        if self.interval.primary != Some(from) {
            return;
        }
        if replica.has_authoritative_log {
            // Asked again, as the answer was lost.
            self.once_durable(ctx, WhenStored::SendMissing);
            return;
        }
        if replica.scan.is_some() {
            return;
        }
        if self.holds_another_shard() {
            // The primary found that it is not needed, and sends its log again.
            self.delete_other_shard(ctx);
            return;
        }
        if Log::can_join(&self.history.info, &log) && log.after <= self.history.info.last_update {
            let update = self.history.adopt_log(ctx.store, &log, self.interval.start);
            self.apply(ctx, update);
            self.on_authoritative_log(ctx);
        } else {
            let scan = self.start_scan(ctx, from, log);
            if let Phase::Replica(replica) = &mut self.phase {
                replica.scan = Some(Box::new(scan));
            }
        }
    }

    /// The primary lacks something that may be here. With its log we can tell. A stray gets no writes: the
    /// primary sends its log again when newer ones matter.
    fn adopt_as_stray(&mut self, ctx: &mut Ctx<'_>, from: OsdId, log: &PgLog) {
        if self.interval.primary != Some(from) {
            return;
        }
        if !self.has_authoritative_log() || self.history.info.last_update < log.info.last_update {
            if !Log::can_join(&self.history.info, log) || log.after > self.history.info.last_update {
                return; // what is here cannot be compared
            }
            let update = self.history.adopt_log(ctx.store, log, self.interval.start);
            self.apply(ctx, update);
            if let Phase::Stray(stray) = &mut self.phase {
                stray.has_authoritative_log = true;
            }
        }
        self.once_durable(ctx, WhenStored::SendMissing);
    }

    pub fn on_authoritative_log(&mut self, ctx: &mut Ctx<'_>) {
        if let Phase::Replica(replica) = &mut self.phase {
            replica.has_authoritative_log = true;
            replica.scan = None;
        }
        self.once_durable(ctx, WhenStored::SendMissing);
    }

    /// Our log is the authoritative one, durably: the primary gets our missing set.
    pub fn send_missing(&mut self, ctx: &mut Ctx<'_>) {
        let Some(primary) = self.interval.primary else { return };
        let missing =
            self.history.missing.iter().map(|(object, stale)| (object.clone(), stale.clone())).collect();
        let at = self.history.info.last_update;
        ctx.out.push(PgEffect::answer(primary, PgMsg::LogAdopted { at, missing }));
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
        if self.interval.primary != Some(from) || !self.is_replica_with_log() {
            return;
        }
        let version = op.entry.version;
        if version <= self.history.info.last_update {
            // Sent again, as the answer was lost.
            self.once_durable(ctx, WhenStored::Answer(from, Box::new(PgMsg::RepAck { version })));
            return;
        }
        if op.previous != self.history.info.last_update {
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
                self.history.range.contains(object)
                    && (kind != EntryKind::Modify
                        || !self.history.missing.lacks_meta(object)
                        || brings(object)
                        || op.entry.reverted().is_some())
            });
        if !sound {
            let text = format!("pg {}: osd.{from} sent write {version}, which is invalid", self.id);
            ctx.log(Level::Error, text);
            return;
        }
        self.history.info.last_update = version;
        self.history.info.last_user_version = self.history.info.last_user_version.max(op.entry.user_version);
        self.history.info.committed_to = self.history.info.committed_to.max(op.committed_to);
        self.history.info.objects = op.objects;
        self.history.info.clones = op.clones;
        self.history.info.bytes = op.bytes;
        self.history.log.append_encoded(&op.entry, op.entry.bytes());
        // No other reference is left, unless both ends are in one process.
        let mut txn = match Arc::get_mut(&mut op) {
            Some(op) => std::mem::take(&mut op.txn),
            None => op.txn.clone(),
        };
        let fold = self.interval.has_absent_members();
        let noted = self.history.prepare_write(ctx, &op, &mut txn, (&self.pending.unapplied, fold));
        self.pending.note_written(&op, noted);
        self.store(ctx, txn);
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
            ctx.out.push(PgEffect::ask(primary, PgMsg::StrayNotify { info: self.history.info }));
        }
    }

    pub fn on_stray_remove(&mut self, ctx: &mut Ctx<'_>, from: OsdId) {
        let needed = self.interval.up.contains(&self.me) || self.interval.is_member(self.me);
        if matches!(self.phase, Phase::Stray(_)) && !needed && self.interval.primary == Some(from) {
            self.start_deleting(ctx);
        }
    }

    // ---- deletion ----

    /// The record goes first: from then on what is left does not count as a copy.
    pub fn start_deleting(&mut self, ctx: &mut Ctx<'_>) {
        self.phase = Phase::Deleting(Deleting::default());
        self.waiting_for_active.clear();
        self.pending.forget_deferred();
        let mut record = Record::of_remains(self.history.info.pg_num);
        record.info.shard = self.shard();
        let mut txn = Transaction::new();
        self.history.forget_undo(ctx.store, &mut txn);
        txn.push(StoredId::Pg(SpgId::replicated(self.id)), Change::Remove);
        record.store(self.id, &mut txn);
        self.history.replace(record);
        self.store(ctx, txn);
        ctx.out.push(PgEffect::Loop);
    }

    pub fn delete_some(&mut self, ctx: &mut Ctx<'_>) {
        let objects =
            match self.history.range.objects_from(ctx.store, &self.history.range.start(), DELETE_PART) {
                Ok(objects) => objects,
                Err(error) => {
                    ctx.log(Level::Error, format!("pg {}: {error}", self.id));
                    return;
                }
            };
        let mut txn = Transaction::new();
        let done = objects.is_empty();
        if done && self.holds_another_shard() && ctx.map.pool(self.id.pool).is_some() {
            self.begin_with_own_shard(ctx);
            return;
        }
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
        Change::Write { offset, data } | Change::Xor { offset, data } => {
            offset.saturating_add(data.len() as u64)
        }
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
    use nacre_base::{Epoch, PoolId, Utime};
    use nacre_proto::messages::part::Meta;
    use nacre_proto::types::ReqId;
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
