//! Writes: into the log, to the whole acting set, and answered when all of it has them.

use super::{Active, InFlight, Unwritten, write_reply};
use crate::ops::{Done, Env, ObjectChange};
use crate::pg::dups::dup_of;
use crate::pg::push::{attrs_after, metas_after, set_meta};
use crate::pg::record::RecordChanges;
use crate::pg::{ClientOp, Ctx, Pg, PgEffect, Phase, WhenStored};
use crate::throttle::write_credit::bytes_for;
use nacre_base::{OsdId, SnapId, Version};
use nacre_proto::messages::part::{Act, Acts, Part, acts_of};
use nacre_proto::messages::peer::{LogEntry, PgMsg, RepOp};
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_proto::types::{EntityName, ObjectId, ReqId};
use nacre_wire::Encoded;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;

impl Pg {
    pub(super) fn write(&mut self, ctx: &mut Ctx<'_>, mut op: Box<ClientOp>, env: Env, done: Done) {
        op.steps.sent = Some(ctx.now.mono);
        if !done.change.others.is_empty() {
            self.note_new_snaps(&op.request.snaps);
        }
        let Done { result, outputs, user_version, change } = done;
        let entry = LogEntry {
            version: env.version,
            prior: change.prior,
            kind: change.kind,
            object: op.object.clone(),
            others: change.others.clone(),
            reqid: op.reqid,
            user_version,
            mtime: env.mtime,
            acts: acts_of(&change.txn, &op.object),
            result: if result > 0 && !env.return_vector { 0 } else { result },
            outputs: if env.return_vector || result < 0 { outputs } else { Vec::new() },
        };
        self.counts.work.writes += 1;
        self.counts.work.write_bytes += op.request.ops.iter().map(|item| item.data.len() as u64).sum::<u64>();
        if let Err(unwritten) = self.submit(ctx, entry, change, Some(op))
            && let (Some(op), error) = *unwritten
        {
            self.fail(ctx, op, &error);
        }
    }

    /// The version of what the group writes next.
    pub fn next_version(&self) -> Version {
        Version::new(self.interval.start, self.info.last_update.version + 1)
    }

    /// How the log notes a write of the primary's own, which no client asked for.
    pub fn own_entry(
        &self,
        ctx: &Ctx<'_>,
        version: Version,
        object: &ObjectId,
        user_version: u64,
        change: &ObjectChange,
    ) -> LogEntry {
        LogEntry {
            version,
            prior: change.prior,
            kind: change.kind,
            object: object.clone(),
            others: change.others.clone(),
            reqid: ReqId {
                client: EntityName::osd(self.me),
                tid: version.version,
                inc: self.interval.start.0 as i32,
            },
            user_version,
            mtime: ctx.now.wall,
            acts: acts_of(&change.txn, object),
            result: 0,
            outputs: Vec::new(),
        }
    }

    /// What no member has of the clones that a head becomes. Somebody who is away may have it, and would have it under the clone's
    /// name only.
    pub(super) fn lacked_by_all(&self, txn: &Transaction) -> BTreeMap<ObjectId, Part> {
        let Phase::Active(active) = &self.phase else { return BTreeMap::new() };
        if self.missing.is_empty() {
            return BTreeMap::new(); // as nearly always
        }
        let clones = txn.changes.iter().filter_map(|(_, change)| match change {
            Change::CloneFrom(StoredId::Object(clone)) if clone.snap != SnapId::HEAD => Some(clone),
            _ => None,
        });
        let lacked = |clone: &ObjectId| {
            let own = self.missing.part(clone);
            active.members.values().fold(own, |part, member| part.intersection(&member.missing.part(clone)))
        };
        clones.map(|clone| (clone.clone(), lacked(clone))).filter(|(_, part)| !part.is_empty()).collect()
    }

    /// Appends a write to the log, and has all members carry it out.
    /// Gives the request back if that cannot be.
    pub fn submit(
        &mut self,
        ctx: &mut Ctx<'_>,
        entry: LogEntry,
        change: ObjectChange,
        op: Option<Box<ClientOp>>,
    ) -> Result<(), Unwritten> {
        let (version, head) = (entry.version, entry.object.to_head());
        let Some(active) = self.active() else { return Ok(()) };
        let lacking = |object: &ObjectId| active.members.values().any(|m| m.missing.lacks_meta(object));
        let members_lack_some = active.members.values().any(|member| !member.missing.is_empty());
        let metas = match members_lack_some.then(|| metas_after(ctx.store, &change.txn, &lacking)) {
            None => Vec::new(), // as nearly always
            Some(Ok(metas)) => metas,
            Some(Err(error)) => return Err(Box::new((op, error))),
        };
        for Acts { object, acts } in &entry.acts {
            let target = object.as_ref().unwrap_or(&entry.object);
            if acts.iter().any(|act| matches!(act, Act::CloneFrom(_))) && active.recovery.cancel(target) {
                ctx.out.push(PgEffect::Loop);
            }
        }
        for (osd, member) in &mut active.members {
            member.missing.written(&entry, *osd);
            for (object, meta) in &metas {
                member.missing.got(object, &Part::meta(), Some(meta.size));
            }
        }
        active.scrub.note_write(&entry);
        let previous = self.info.last_update;
        self.info.last_update = entry.version;
        self.info.last_user_version = self.info.last_user_version.max(entry.user_version);
        self.info.objects = self.info.objects.saturating_add_signed(change.objects);
        self.info.clones = self.info.clones.saturating_add_signed(change.clones);
        self.info.bytes = self.info.bytes.saturating_add_signed(change.bytes);
        let entry = Encoded::new(entry);
        self.log.append_encoded(&entry, entry.bytes());
        let trim_to = self
            .log
            .trim_point(ctx.budget.log_limits(), self.dups.memory(), self.has_absent_members())
            .map_or(self.info.log_tail, |v| v.min(self.info.committed_to));
        let rep_op = Arc::new(RepOp {
            entry,
            previous,
            committed_to: self.info.committed_to,
            trim_to: trim_to.max(self.info.log_tail),
            objects: self.info.objects,
            clones: self.info.clones,
            bytes: self.info.bytes,
            txn: change.txn,
            metas,
        });
        let me = self.me;
        let on_its_way = ctx.budget.credits.send(bytes_for(&rep_op.txn));
        let Some(active) = self.active() else { return Ok(()) };
        if let Some(recount) = active.recount.as_mut().filter(|recount| head < recount.next) {
            recount.objects = recount.objects.saturating_add_signed(change.objects);
            recount.clones = recount.clones.saturating_add_signed(change.clones);
            recount.bytes = recount.bytes.saturating_add_signed(change.bytes);
        }
        for &osd in active.members.keys() {
            ctx.out.push(PgEffect::ask(osd, PgMsg::RepOp(rep_op.clone())));
        }
        active.queue(&head).writes += 1;
        let waiting_for = active.members.keys().copied().chain([me]).collect();
        active.in_flight.push_back(InFlight {
            version,
            object: head,
            rep_op: rep_op.clone(),
            waiting_for,
            _on_its_way: on_its_way,
            vanishes: change.vanishes,
            ops: op.into_iter().collect(),
        });
        // Room for what the record adds, mostly.
        let txn = rep_op.txn.clone_with_room(1);
        self.store_write(ctx, &rep_op, txn);
        self.once_durable(ctx, WhenStored::Write(version));
        Ok(())
    }

    /// The part of a write that is the same on every member; `txn` is the write's.
    pub fn store_write(&mut self, ctx: &mut Ctx<'_>, op: &RepOp, mut txn: Transaction) {
        let RepOp { entry, metas, .. } = op;
        let mut changes = RecordChanges::new(self.id);
        // What it overwrites was missing no longer than until now, and no metadata that comes along.
        let mut noted = match entry.reverted() {
            Some((part, to)) if to == self.me => self.take_reverted(ctx, entry, part, &mut txn),
            _ => self.missing.written(entry, self.me),
        };
        for (object, meta) in metas {
            if self.missing.lacks_meta(object) {
                // Of what cannot be read there are none that could be in the way.
                let have = attrs_after(ctx.store, object, &txn).unwrap_or_default();
                set_meta(&mut txn, &object.clone().into(), meta, have);
                self.missing.got(object, &Part::meta(), Some(meta.size));
                noted.insert(object.clone());
            }
        }
        noted.iter().for_each(|object| changes.missing(object, self.missing.get(object)));
        if op.trim_to > self.info.log_tail {
            self.trim_log(ctx, op.trim_to, &mut changes);
        }
        noted.iter().for_each(|object| self.on_overwritten(ctx, object));
        changes.encoded_entry(entry.version, entry.bytes().clone());
        changes.info(&self.info);
        changes.into_txn(&mut txn);
        self.unapplied.extend(entry.touched().map(|(object, ..)| object.clone()));
        self.unapplied.extend(noted);
        self.store(ctx, txn);
    }

    pub fn on_own_write(&mut self, ctx: &mut Ctx<'_>, version: Version) {
        let me = self.me;
        self.stored_by(ctx, me, version);
    }

    pub fn on_rep_ack(&mut self, ctx: &mut Ctx<'_>, from: OsdId, version: Version) {
        self.stored_by(ctx, from, version);
    }

    /// A member has all writes up to `version`. What is now everywhere is answered, in log order.
    pub(super) fn stored_by(&mut self, ctx: &mut Ctx<'_>, osd: OsdId, version: Version) {
        let (epoch, me) = (ctx.map.epoch, self.me);
        let Some(active) = self.active() else { return };
        for write in active.in_flight.iter_mut().take_while(|write| write.version <= version) {
            write.waiting_for.retain(|waiting| *waiting != osd);
            for op in &mut write.ops {
                let step = if osd == me { &mut op.steps.stored } else { &mut op.steps.replicated };
                *step = Some(ctx.now.mono);
            }
        }
        let is_done = |write: &InFlight| write.waiting_for.is_empty();
        let count = active.in_flight.iter().take_while(|write| is_done(write)).count();
        let done: SmallVec<[InFlight; 1]> = active.in_flight.drain(..count).collect();
        for write in &done {
            active.queue(&write.object).writes -= 1;
            let answer = dup_of(&write.rep_op.entry);
            ctx.out.extend(write.ops.iter().map(|op| write_reply(op, &answer, epoch)));
        }
        for write in done.iter().filter(|write| write.rep_op.entry.result >= 0) {
            if let (true, Some(op)) = (write.vanishes, write.ops.first()) {
                self.after_delete(ctx, &op.object);
            }
            write.ops.iter().for_each(|op| self.after_write(ctx, op));
        }
        for _ in done.iter().filter(|write| Active::is_trim(&write.rep_op.entry)) {
            self.on_trimmed(ctx);
        }
        if self.ready_to_merge().is_some() {
            ctx.out.push(PgEffect::Report);
        }
        if let Some(last) = done.last() {
            self.note_committed(last.version);
            let mut objects: SmallVec<[&ObjectId; 4]> = done.iter().map(|write| &write.object).collect();
            objects.sort_unstable();
            objects.dedup();
            objects.into_iter().for_each(|object| self.pump(ctx, object));
        }
    }

    /// All up to here is everywhere, unless there were doubts when the interval began that remain.
    pub(super) fn note_committed(&mut self, version: Version) {
        let Phase::Active(active) = &mut self.phase else { return };
        active.drop_committed(&self.missing);
        if active.uncommitted.is_empty() {
            self.info.committed_to = version;
        }
    }
}
