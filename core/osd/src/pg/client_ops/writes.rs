//! Writes: appended to the log, sent to the whole acting set, and acknowledged when all of it has them.

use super::{ClientOps, InFlight, Scope, Unwritten, write_reply};
use crate::ops::{Done, Env, Fetched, ObjectChange};
use crate::pg::active::Member;
use crate::pg::backend::Shards;
use crate::pg::backend::erasure::encode::{Members, Needed, ShardWrites, encode, needed};
use crate::pg::backend::erasure::{Geometry, index};
use crate::pg::history::History;
use crate::pg::history::dups::dup_of;
use crate::pg::record::RecordChanges;
use crate::pg::recovery::push::{attrs_after, metas_after, set_meta};
use crate::pg::snap_trim::SnapTrim;
use crate::pg::unapplied::Unapplied;
use crate::pg::{ClientOp, Ctx, PgEffect, WhenStored};
use crate::throttle::write_credit::bytes_for;
use nacre_base::{IntervalSet, OsdId, Version};
use nacre_machine::ReadError;
use nacre_proto::messages::part::{Act, Acts, Part, acts_of};
use nacre_proto::messages::peer::{LogEntry, RepOp};
use nacre_proto::transaction::Transaction;
use nacre_proto::types::{ObjectId, cluster_format};
use nacre_wire::Encoded;
use smallvec::SmallVec;
use std::collections::BTreeSet;

impl ClientOps {
    pub(super) fn write(
        &mut self,
        pg: &mut Scope<'_>,
        ctx: &mut Ctx<'_>,
        mut op: Box<ClientOp>,
        env: Env,
        done: Done,
        fetched: &Fetched,
    ) {
        op.steps.sent = Some(ctx.now.mono);
        if !done.change.others.is_empty() {
            let snaps: IntervalSet = op.request.snaps.iter().map(|snap| snap.0..snap.0 + 1).collect();
            pg.snap_trim.note_new_snaps(&snaps);
            pg.stats.note_new_snaps(&snaps);
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
        pg.stats.note_write(op.request.ops.iter().map(|item| item.data.len() as u64).sum());
        if let Err(unwritten) = self.submit(pg, ctx, entry, change, (Some(op), fetched))
            && let (Some(op), error) = *unwritten
        {
            self.fail(pg, ctx, op, &error);
        }
    }

    /// Appends a write to the log, and has all members carry it out.
    /// Gives the request back if that cannot be.
    pub fn submit(
        &mut self,
        pg: &mut Scope<'_>,
        ctx: &mut Ctx<'_>,
        mut entry: LogEntry,
        mut change: ObjectChange,
        (op, fetched): (Option<Box<ClientOp>>, &Fetched),
    ) -> Result<(), Unwritten> {
        let (version, head) = (entry.version, entry.object.to_head());
        let mut shards = None;
        match pg.encode(ctx, &change, fetched) {
            Err(error) => return Err(Box::new((op, error))),
            Ok(None) => {}
            Ok(Some(encoded)) => {
                entry.acts = acts_of(&encoded.columns, &entry.object);
                change.txn = encoded.columns;
                shards = Some(encoded.shards);
            }
        }
        let lacking = |object: &ObjectId| pg.members.values().any(|m| m.missing.lacks_meta(object));
        let members_lack_some = pg.members.values().any(|member| !member.missing.is_empty());
        let metas = match members_lack_some.then(|| metas_after(ctx.store, &change.txn, &lacking)) {
            None => Vec::new(), // as nearly always
            Some(Ok(metas)) => metas,
            Some(Err(error)) => return Err(Box::new((op, error))),
        };
        for Acts { object, acts } in &entry.acts {
            let target = object.as_ref().unwrap_or(&entry.object);
            if acts.iter().any(|act| matches!(act, Act::CloneFrom(_))) && pg.recovery.cancel(target) {
                ctx.out.push(PgEffect::Loop);
            }
        }
        for (osd, member) in &mut *pg.members {
            member.missing.written(&entry, *osd);
            for (object, meta) in &metas {
                member.missing.got(object, &Part::meta(), Some(meta.size));
            }
        }
        pg.scrub.note_write(&entry);
        let previous = pg.history.info.last_update;
        pg.history.info.last_update = entry.version;
        pg.history.info.last_user_version = pg.history.info.last_user_version.max(entry.user_version);
        pg.history.info.objects = pg.history.info.objects.saturating_add_signed(change.objects);
        pg.history.info.clones = pg.history.info.clones.saturating_add_signed(change.clones);
        pg.history.info.bytes = pg.history.info.bytes.saturating_add_signed(change.bytes);
        let entry = Encoded::new(entry);
        pg.history.log.append_encoded(&entry, entry.bytes());
        let trim_to = pg
            .history
            .log
            .trim_point(ctx.budget.log_limits(), pg.history.dups.memory(), pg.interval.has_absent_members())
            .map_or(pg.history.info.log_tail, |v| v.min(pg.history.info.committed_to));
        let write = RepOp {
            entry,
            previous,
            committed_to: pg.history.info.committed_to,
            trim_to: trim_to.max(pg.history.info.log_tail),
            objects: pg.history.info.objects,
            clones: pg.history.info.clones,
            bytes: pg.history.info.bytes,
            txn: if shards.is_some() { Transaction::new() } else { change.txn },
            metas,
        };
        let bytes = |txns: &Vec<Transaction>| txns.iter().map(bytes_for).max().unwrap_or_default();
        let bytes = shards.as_ref().map_or_else(|| bytes_for(&write.txn), bytes);
        let plan = pg.backend.plan_write(write, shards.map(|shards| (shards, pg.held_shards())));
        let me = pg.history.me;
        let credit = ctx.budget.credits.send(bytes);
        if let Some(recount) = pg.recount {
            recount.note_write(&head, change.objects, change.clones, change.bytes);
        }
        for &osd in pg.members.keys() {
            ctx.out.push(PgEffect::ask(osd, plan.message(osd)));
        }
        self.queue(&head).writes += 1;
        let waiting_for = pg.members.keys().copied().chain([me]).collect();
        self.in_flight.push_back(InFlight {
            version,
            object: head,
            plan: plan.clone(),
            waiting_for,
            _credit: credit,
            vanishes: change.vanishes,
            ops: op.into_iter().collect(),
        });
        let mut txn = plan.own_txn();
        let fold = pg.interval.has_absent_members();
        let noted = pg.history.prepare_write(ctx, plan.write(), &mut txn, (&pg.pending.unapplied, fold));
        noted.iter().for_each(|object| self.on_overwritten(pg, ctx, object));
        pg.pending.note_written(plan.write(), noted);
        pg.store(ctx, txn);
        let is_durable = pg.pending.defer(WhenStored::Write(version));
        assert!(!is_durable, "it was issued just now");
        Ok(())
    }

    /// A member has all writes up to `version`. Writes that all members have are acknowledged, in log order.
    pub(super) fn stored_by(&mut self, pg: &mut Scope<'_>, ctx: &mut Ctx<'_>, osd: OsdId, version: Version) {
        let (epoch, me) = (ctx.map.epoch, pg.history.me);
        for write in self.in_flight.iter_mut().take_while(|write| write.version <= version) {
            write.waiting_for.retain(|waiting| *waiting != osd);
            for op in &mut write.ops {
                let step = if osd == me { &mut op.steps.stored } else { &mut op.steps.replicated };
                *step = Some(ctx.now.mono);
            }
        }
        let is_done = |write: &InFlight| write.waiting_for.is_empty();
        let count = self.in_flight.iter().take_while(|write| is_done(write)).count();
        let done: SmallVec<[InFlight; 1]> = self.in_flight.drain(..count).collect();
        for write in &done {
            self.queue(&write.object).writes -= 1;
            let answer = dup_of(&write.plan.write().entry);
            ctx.out.extend(write.ops.iter().map(|op| write_reply(op, &answer, epoch)));
        }
        let user_version = pg.history.info.last_user_version;
        for write in done.iter().filter(|write| write.plan.write().entry.result >= 0) {
            if let (true, Some(op)) = (write.vanishes, write.ops.first()) {
                pg.watches.after_delete(ctx, &op.object, user_version);
            }
            write.ops.iter().for_each(|op| pg.watches.after_write(ctx, op, user_version));
        }
        for _ in done.iter().filter(|write| SnapTrim::is_trim(&write.plan.write().entry)) {
            pg.snap_trim.on_trimmed(ctx);
        }
        if self.is_ready_to_merge() {
            ctx.out.push(PgEffect::Report);
        }
        if let Some(last) = done.last() {
            self.note_committed(pg, last.version);
            let mut objects: SmallVec<[&ObjectId; 4]> = done.iter().map(|write| &write.object).collect();
            objects.sort_unstable();
            objects.dedup();
            objects.into_iter().for_each(|object| self.pump(pg, ctx, object));
        }
    }

    /// All entries up to here are committed, unless one from before the interval is not yet.
    pub(super) fn note_committed(&mut self, pg: &mut Scope<'_>, version: Version) {
        self.drop_committed(&pg.history.missing, pg.members);
        if self.uncommitted.is_empty() {
            pg.history.info.committed_to = version;
        }
    }
}

impl Scope<'_> {
    fn held_shards(&self) -> Shards {
        let others = self.members.keys().map(|osd| (*osd, self.interval.shard_of(*osd))).collect();
        Shards { own: self.history.info.shard, others }
    }
    /// What each shard does in a write; None in a replicated pool.
    fn encode(
        &self,
        ctx: &Ctx<'_>,
        change: &ObjectChange,
        fetched: &Fetched,
    ) -> Result<Option<ShardWrites>, ReadError> {
        let Some(geometry) = self.backend.geometry() else { return Ok(None) };
        self.with_members(ctx, geometry, |members| encode(geometry, ctx.store, &change.txn, fetched, members))
            .map(Some)
    }
    /// Which old bytes a write needs that were not fetched.
    pub(super) fn needed_to_encode(
        &self,
        ctx: &Ctx<'_>,
        change: &ObjectChange,
        fetched: &Fetched,
    ) -> Result<Option<Needed>, ReadError> {
        let Some(geometry) = self.backend.geometry() else { return Ok(None) };
        self.with_members(ctx, geometry, |members| needed(geometry, ctx.store, &change.txn, fetched, members))
    }
    fn with_members<T>(&self, ctx: &Ctx<'_>, geometry: &Geometry, run: impl FnOnce(&Members<'_>) -> T) -> T {
        let holds = |osd: &OsdId, shard: usize| index(self.interval.shard_of(*osd)) == Some(shard);
        let lacks = |shard: usize, object: &ObjectId, columns: &IntervalSet| {
            let part = Part { data: columns.clone(), ..Part::default() };
            let of_member =
                |(osd, member): (&OsdId, &Member)| holds(osd, shard) && member.missing.lacks(object, &part);
            holds(&self.history.me, shard) && self.history.missing.lacks(object, &part)
                || self.members.iter().any(of_member)
        };
        let read_cost = |shard: usize| match () {
            () if holds(&self.history.me, shard) => 0,
            () if self.members.keys().any(|osd| holds(osd, shard)) => 1,
            () => geometry.k(),
        };
        let take_deltas = ctx.format >= cluster_format::PARITY_DELTAS;
        run(&Members { lacks: &lacks, read_cost: &read_cost, take_deltas })
    }
}

impl History {
    /// Makes `txn`, a member's part of a write, its transaction with the record. Gives the objects whose
    /// missing parts changed.
    pub fn prepare_write(
        &mut self,
        ctx: &mut Ctx<'_>,
        op: &RepOp,
        txn: &mut Transaction,
        (unapplied, fold): (&Unapplied, bool),
    ) -> BTreeSet<ObjectId> {
        let RepOp { entry, metas, .. } = op;
        let mut changes = RecordChanges::new(self.pg);
        self.save_undo(ctx, unapplied, entry, txn);
        self.drop_undo(ctx.store, self.info.committed_to, txn);
        // What it overwrites was missing no longer than until now, and no metadata that comes along.
        let mut noted = match entry.reverted() {
            Some((part, to)) if to == self.me => self.take_reverted(ctx.store, entry, part, txn),
            _ => self.missing.written(entry, self.me),
        };
        for (object, meta) in metas {
            if self.missing.lacks_meta(object) {
                // Of what cannot be read there are none that could be in the way.
                let have = attrs_after(ctx.store, object, txn).unwrap_or_default();
                set_meta(txn, &object.clone().into(), meta, have);
                self.missing.got(object, &Part::meta(), Some(meta.size));
                noted.insert(object.clone());
            }
        }
        self.record_missing(&noted, &mut changes);
        if op.trim_to > self.info.log_tail {
            self.trim_log(ctx, op.trim_to, fold, &mut changes);
        }
        changes.encoded_entry(entry.version, entry.bytes().clone());
        changes.info(&self.info);
        changes.into_txn(txn);
        noted
    }
}
