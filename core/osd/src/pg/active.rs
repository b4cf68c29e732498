//! The primary while it serves: requests in order, writes to the whole acting set, leases.
//!
//! Requests on one object run in the order of their arrival (`Queue`), but one that waits for parts of
//! objects that are missing here lets others pass. A read waits for the writes before it to be committed;
//! writes follow each other without waiting. Answers to writes leave in
//! log order, those to reads only while every replica's lease holds: without it another primary
//! could have taken over and written already.

mod queues;
mod reads;
mod recount;
mod writes;

use self::queues::Queues;
use self::reads::WaitingReads;
use self::recount::Recount;
use super::admission::OpsWaitingForSpace;
use super::dups::dup_of;
use super::log::Log;
use super::missing::{Missing, part_of};
use super::recovery::{Recovery, StraySource};
use super::scrub::Scrub;
use super::snap_trim::SnapTrim;
use super::stale_view::StaleView;
use super::watches::NOBODY;
use super::{ClientOp, Ctx, Pg, PgEffect, Phase};
use crate::ops::{Copied, Done, Env, Fetched, Outcome, Snaps, execute};
use crate::snap_set::SnapContext;
use crate::throttle::data_of;
use crate::throttle::memory::Held;
use crate::throttle::write_credit::InFlightWrite;
use bytes::Bytes;
use nacre_base::errno::{EIO, ESHUTDOWN};
use nacre_base::{Epoch, IntervalSet, OsdId, SnapId, Time, Version};
use nacre_cls::Caller;
use nacre_machine::{Level, ReadError};
use nacre_proto::maps::{OsdMap, pool_flags};
use nacre_proto::messages::OsdOpReply;
use nacre_proto::messages::answer::Answer;
use nacre_proto::messages::part::Part;
use nacre_proto::messages::peer::{EntryKind, PgInfo, PgMsg, RepOp};
use nacre_proto::types::{CopySource, ObjectId, Op, ReqId, op_flags};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// What the primary knows of another member.
#[derive(Debug, Default)]
pub struct Member {
    pub missing: Missing,
    /// Until then it takes part in no later interval.
    pub lease_until: Time,
}

/// A write that is not durable everywhere yet.
struct InFlight {
    version: Version,
    object: ObjectId,
    /// For those to whom it must be sent again.
    rep_op: Arc<RepOp>,
    /// Members; a few.
    waiting_for: SmallVec<[OsdId; 4]>,
    _on_its_way: InFlightWrite,
    /// The object is not there any more for clients, or another one is by now.
    vanishes: bool,
    /// The request, and resends of it that came meanwhile.
    ops: SmallVec<[Box<ClientOp>; 1]>,
}

/// The requests on one object, in whichever snapshot.
#[derive(Default)]
struct Queue {
    waiting: VecDeque<Box<ClientOp>>,
    /// Reads that have begun and were not answered.
    reads: usize,
    /// A write is fetching data that it needs.
    fetching: bool,
    /// Writes in flight.
    writes: usize,
    /// Of those waiting, by their number, which wait for which parts of objects.
    lacking: BTreeMap<u64, BTreeMap<ObjectId, Part>>,
}

impl Queue {
    /// The first of those waiting that need not wait for any before it.
    fn next(&self) -> Option<usize> {
        let may_go = |at: &usize| {
            let op = &self.waiting[*at];
            let mut before = self.waiting.range(..*at);
            !self.lacking.contains_key(&op.seq) && before.all(|earlier| may_pass(op, earlier))
        };
        (0..self.waiting.len()).find(may_go)
    }
    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.reads == 0 && !self.fetching && self.writes == 0
    }
}

/// Whether a request may run before one that came earlier and waits for parts of objects. What one client asks
/// keeps its order, but for reads among each other. A copy waits for nobody.
fn may_pass(op: &ClientOp, earlier: &ClientOp) -> bool {
    op.for_copy || op.sender.0 != earlier.sender.0 || !op.is_write() && !earlier.is_write()
}

/// A request that was not carried out, and why.
type Unwritten = Box<(Option<Box<ClientOp>>, ReadError)>;

/// A request that waits for data.
struct Running {
    op: Box<ClientOp>,
    /// Of the object or which clone.
    asked: (SnapId, Vec<(u64, u64)>),
    copying: Option<CopySource>,
    fetched: Fetched,
    /// The memory for what is being fetched.
    held: Option<Held>,
}

impl Running {
    fn new(op: Box<ClientOp>) -> Running {
        Running { op, asked: Default::default(), copying: None, fetched: Fetched::default(), held: None }
    }
}

pub struct Active {
    pub members: BTreeMap<OsdId, Member>,
    in_flight: VecDeque<InFlight>,
    queues: Queues,
    /// Objects whose queue may go on in the next turn.
    runnable: BTreeSet<ObjectId>,
    /// For each object that is missing in part, those whose requests wait for it beside its own.
    waiters: BTreeMap<ObjectId, BTreeSet<ObjectId>>,
    running: BTreeMap<u64, Running>,
    waiting_reads: WaitingReads,
    /// Reads that were carried out while a lease was missing, and the memory that they take.
    waiting_for_lease: Vec<(Box<ClientOp>, Box<OsdOpReply>, Held)>,
    pub waiting_for_space: OpsWaitingForSpace,
    /// What the newest writes before the interval changed, as far as somebody lacks it. They may
    /// not have been everywhere, so nothing of these objects is shown before they are.
    uncommitted: BTreeMap<ObjectId, Part>,
    pub recovery: Recovery,
    pub snap_trim: SnapTrim,
    pub scrub: Scrub,
    /// Counting objects again, after a split left estimates.
    recount: Option<Recount>,
    /// No write begins: the group is to become one with another, and this is its last version.
    pub holds_writes: bool,
}

impl Active {
    pub fn new(
        members: BTreeMap<OsdId, Member>,
        sources: BTreeMap<OsdId, StraySource>,
        info: &PgInfo,
        log: &Log,
        own: &Missing,
    ) -> Active {
        let mut uncommitted: BTreeMap<ObjectId, Part> = BTreeMap::new();
        for entry in log.after(info.committed_to).filter(|entry| entry.kind != EntryKind::Note) {
            uncommitted.entry(entry.object.clone()).or_default().meta = true;
            for run in &entry.acts {
                let object = run.object.as_ref().unwrap_or(&entry.object);
                uncommitted.entry(object.clone()).or_default().add(&part_of(&run.acts));
            }
        }
        uncommitted.retain(|object, part| is_uncommitted(object, part, own, &members));
        Active {
            members,
            in_flight: VecDeque::new(),
            queues: Queues::default(),
            runnable: BTreeSet::new(),
            waiters: BTreeMap::new(),
            running: BTreeMap::new(),
            waiting_reads: WaitingReads::default(),
            waiting_for_lease: Vec::new(),
            waiting_for_space: OpsWaitingForSpace::default(),
            uncommitted,
            recovery: Recovery::new(sources),
            snap_trim: SnapTrim::default(),
            scrub: Scrub::default(),
            recount: None,
            holds_writes: false,
        }
    }

    /// Who else holds the group, and what they lack of it, as far as they can tell of an object of that version.
    pub fn holders(&self, need: Version) -> impl Iterator<Item = (OsdId, &Missing)> {
        let members = self.members.iter().map(|(osd, member)| (*osd, &member.missing));
        members.chain(self.recovery.lacking_sources(need))
    }
    /// All requests that were not answered.
    pub fn into_ops(self) -> impl Iterator<Item = Box<ClientOp>> {
        let in_flight = self.in_flight.into_iter().flat_map(|write| write.ops);
        let mut waiting: Vec<_> = self.queues.into_queues().flat_map(|queue| queue.waiting).collect();
        waiting.sort_by_key(|op| op.seq);
        let running = self.running.into_values().map(|running| running.op);
        let waiting_for_lease = self.waiting_for_lease.into_iter().map(|(op, ..)| op);
        let waiting_for_space = self.waiting_for_space.into_ops();
        in_flight.chain(waiting).chain(running).chain(waiting_for_lease).chain(waiting_for_space)
    }
    pub fn ops(&self) -> impl Iterator<Item = (&ClientOp, &'static str)> {
        let in_flight =
            self.in_flight.iter().flat_map(|write| &write.ops).map(|op| (&**op, "waiting for sub ops"));
        let mut waiting: Vec<&ClientOp> =
            self.queues.iter().flat_map(|(_, queue)| &queue.waiting).map(|op| &**op).collect();
        waiting.sort_by_key(|op| op.seq);
        let waiting = waiting.into_iter().map(|op| (op, "waiting for object"));
        let running = self.running.values().map(|running| (&*running.op, "reading"));
        let waiting_for_lease = self.waiting_for_lease.iter().map(|(op, ..)| (&**op, "waiting for lease"));
        let waiting_for_space = self.waiting_for_space.ops().map(|op| (op, "waiting for space on all disks"));
        in_flight.chain(waiting).chain(running).chain(waiting_for_lease).chain(waiting_for_space)
    }

    /// Whether there are doubts about the object, and about clones of it.
    fn uncommitted_of(&self, head: &ObjectId) -> (bool, bool) {
        if self.uncommitted.is_empty() {
            return (false, false);
        }
        let first = ObjectId { snap: SnapId(0), ..head.clone() };
        let clones = self.uncommitted.range(first..head.clone()).next().is_some();
        (self.uncommitted.contains_key(head), clones)
    }
    /// Whether a member lacks nothing.
    pub fn has_all(&self, osd: OsdId) -> bool {
        self.members.get(&osd).is_some_and(|member| member.missing.is_empty())
    }
    pub fn is_all_committed(&self) -> bool {
        self.uncommitted.is_empty()
    }
    /// Every write is everywhere, and none is about to begin.
    pub fn is_drained(&self) -> bool {
        self.in_flight.is_empty() && !self.queues.iter().any(|(_, queue)| queue.fetching)
    }
    pub fn note_all_runnable(&mut self) {
        self.runnable.extend(self.queues.iter().map(|(object, _)| object.clone()));
    }
    pub fn uncommitted(&self) -> impl Iterator<Item = (&ObjectId, &Part)> {
        self.uncommitted.iter()
    }
    /// Forgets doubts about what is everywhere now.
    fn drop_committed(&mut self, own: &Missing) {
        self.uncommitted.retain(|object, part| is_uncommitted(object, part, own, &self.members));
    }
    pub fn lease_holds(&self, now: Time) -> bool {
        self.members.values().all(|member| now < member.lease_until)
    }
    fn queue(&mut self, object: &ObjectId) -> &mut Queue {
        // Mostly there is one request at a time.
        let new = || Queue { waiting: VecDeque::with_capacity(1), ..Queue::default() };
        self.queues.get_or_insert(object, new)
    }
    /// Whether a write of our own would come in the way of requests on the object.
    pub fn in_use(&self, object: &ObjectId) -> bool {
        self.queues
            .get(object)
            .is_some_and(|queue| queue.reads > 0 || queue.fetching || !queue.waiting.is_empty())
    }
    /// Whether something is read of the object, or for a write to it, at this moment.
    pub fn is_being_read(&self, object: &ObjectId) -> bool {
        self.queues.get(object).is_some_and(|queue| queue.reads > 0 || queue.fetching)
    }
    fn drop_idle(&mut self, object: &ObjectId) {
        self.queues.remove_if(object, Queue::is_idle);
    }
    /// Requests that were taken from its queue go on before all others.
    pub fn put_first(&mut self, object: &ObjectId, ops: VecDeque<Box<ClientOp>>) {
        let waiting = &mut self.queue(object).waiting;
        ops.into_iter().rev().for_each(|op| waiting.push_front(op));
    }
    /// The object's queue is looked at again in the next turn.
    pub fn note_runnable(&mut self, object: &ObjectId) {
        self.runnable.insert(object.to_head());
    }

    pub fn check(&self, info: &PgInfo) {
        let versions = self.in_flight.iter().map(|write| write.version);
        assert!(versions.clone().is_sorted(), "writes in flight are in log order");
        assert!(versions.clone().all(|v| info.committed_to < v && v <= info.last_update));
        assert!(self.in_flight.front().is_none_or(|write| !write.waiting_for.is_empty()));
        debug_assert_eq!(self.in_flight.len(), self.queues.iter().map(|(_, q)| q.writes).sum::<usize>());
    }

    /// No request waits for bytes that it does not touch: one that waits for parts of objects touches some that
    /// are missing still, and one behind it that could run but for that must not pass it.
    pub fn check_waits(&self, missing: &Missing) {
        let lacking = self.queues.iter().filter(|(_, queue)| !queue.lacking.is_empty());
        for (object, queue) in lacking.filter(|(object, _)| !self.runnable.contains(*object)) {
            let touches = |parts: &BTreeMap<ObjectId, Part>| {
                parts.iter().any(|(object, part)| missing.lacks(object, part))
            };
            assert!(queue.lacking.values().all(touches), "{object}: a request waits for what is here");
            let (uncommitted, of_clones) = self.uncommitted_of(object);
            let busy = queue.reads > 0 || queue.fetching || queue.writes > 0 || self.holds_writes;
            let held_up = busy || uncommitted || of_clones || missing.lacks_meta(object);
            assert!(held_up || queue.next().is_none(), "{object}: a request waits for what others touch");
        }
    }
}

impl Pg {
    fn active(&mut self) -> Option<&mut Active> {
        match &mut self.phase {
            Phase::Active(active) => Some(active),
            _ => None,
        }
    }

    /// The interval's first moment of service.
    pub fn start_serving(&mut self, ctx: &mut Ctx<'_>) {
        ctx.out.push(PgEffect::LeasesNow);
        self.waits_since = None;
        for op in self.waiting_for_active.take() {
            self.on_active_op(ctx, op);
        }
        self.request_pg_temp(ctx);
        self.recover(ctx);
    }

    pub fn on_active_op(&mut self, ctx: &mut Ctx<'_>, op: Box<ClientOp>) {
        if !self.range.contains(&op.object) && !is_about_pg(&op) {
            // The client's map has another number of groups; it sends again once it has ours.
            return;
        }
        let Some(active) = self.active() else { return };
        if is_about_pg(&op) {
            let findings = op.ops.iter().any(|op| matches!(op.op, Op::ScrubLs(_)));
            let (result, outputs) = if findings { self.list_findings(ctx, &op) } else { self.list(ctx, &op) };
            let reply = self.read_reply(ctx, &op, Done::answer(result, outputs));
            self.finish_read(ctx, op, reply);
            return;
        }
        let has_queue = active.queues.get(&op.object).is_some();
        let is_sure = active.uncommitted_of(&op.object) == (false, false);
        let is_shown =
            !self.unapplied.contains(&op.object) && (self.unapplied.is_empty() || !op.is_about_clones());
        if !has_queue && !op.is_write() && is_sure && is_shown && !self.missing.lacks_meta(&op.object) {
            // As most reads: nobody is there to line up behind, and what it looks at is here.
            return self.run(ctx, Running::new(op));
        }
        let Some(active) = self.active() else { return };
        let object = op.object.clone();
        let queue = active.queue(&object);
        if op.for_copy {
            queue.waiting.push_front(op);
        } else {
            queue.waiting.push_back(op);
        }
        self.pump(ctx, &object);
    }

    /// Runs what can run of an object's queue.
    pub fn pump(&mut self, ctx: &mut Ctx<'_>, object: &ObjectId) {
        loop {
            let lacks_meta = self.missing.lacks_meta(object);
            let (stale_view, some_stale) = (self.unapplied.contains(object), !self.unapplied.is_empty());
            let Some(active) = self.active() else { return };
            let held = active.holds_writes;
            let (own_uncommitted, of_clones) = active.uncommitted_of(object);
            let Some(queue) = active.queues.get_mut(object) else { return };
            let Some(at) = queue.next() else { break };
            let op = &queue.waiting[at];
            let is_write = op.is_write();
            let about_clones = op.is_about_clones();
            if own_uncommitted || of_clones && about_clones || lacks_meta {
                if lacks_meta {
                    active.recovery.prioritize(object, &Part::meta());
                }
                self.recover(ctx);
                return;
            }
            let blocked = if is_write { queue.reads > 0 } else { queue.writes > 0 };
            if is_write && held || (queue.fetching && !op.for_copy) || blocked {
                return;
            }
            // Some clone that came in this turn may be what is asked for.
            if stale_view || some_stale && about_clones {
                active.runnable.insert(object.clone());
                ctx.out.push(PgEffect::Loop);
                return;
            }
            let op = queue.waiting.remove(at).expect("it is one of them");
            if active.waiting_for_space.is_before(&op) {
                active.waiting_for_space.push(op);
                continue;
            }
            if op.is_write()
                && let Some(answer) = self.find_dup(&op.reqid)
            {
                self.run_again(ctx, op, &answer);
                continue;
            }
            self.run(ctx, Running::new(op));
        }
        if let Some(active) = self.active() {
            active.drop_idle(object);
        }
    }

    fn run(&mut self, ctx: &mut Ctx<'_>, mut running: Running) {
        running.op.steps.start(ctx.now.mono);
        if is_blocklisted(&running.op, &ctx.map) {
            let reply = OsdOpReply::to(&running.op.request, -ESHUTDOWN, ctx.map.epoch);
            ctx.out.push(reply_to(&running.op, Box::new(reply)));
            return;
        }
        if let Some(done) = self.answer_to_watcher(&running.op) {
            let reply = self.read_reply(ctx, &running.op, done);
            let op = running.op.clone();
            self.finish_read(ctx, running.op, reply);
            self.after_read(ctx, &op, 0);
            return;
        }
        let op = &running.op;
        let nothing = IntervalSet::new();
        let map = ctx.map.clone();
        let removed = map.removed_snaps_queue.get(&self.id.pool).unwrap_or(&nothing);
        let context = snap_context(op, &map, removed);
        let ordered = op.request.has_flag(op_flags::message::ORDERSNAP);
        let snaps = Snaps { at: op.snap, context: &context, ordered, removed };
        let env = Env {
            version: self.next_version(),
            user_version: self.info.last_user_version + 1,
            mtime: op.request.mtime,
            return_vector: op.request.has_flag(op_flags::message::RETURNVEC),
            caller: Caller { name: op.sender.0, addr: op.sender.1, now: ctx.now.wall },
            notify_id: u64::from(ctx.map.epoch.0) << 32 | (op.seq & 0xffff_ffff),
        };
        let reads_now = self.viewed == self.issued && ctx.budget.replies.is_open();
        let view = StaleView::new(ctx.store, &self.missing, reads_now);
        let outcome = execute(&view, &op.object, &op.ops, &env, &snaps, &running.fetched);
        if let Ok(Outcome::Need(object, extents)) = &outcome {
            view.need_data(&object.clone().into(), extents);
        }
        let mut lacking = view.into_looked_at();
        if lacking.is_empty()
            && let Ok(Outcome::Done(done)) = &outcome
        {
            lacking = self.lacked_by_all(&done.change.txn);
        }
        if !lacking.is_empty() {
            self.wait_for_parts(ctx, running.op, &lacking);
            return;
        }
        let is_unreadable = match &outcome {
            Ok(Outcome::Done(done)) => done.result == -EIO,
            outcome => outcome.is_err(),
        };
        // Then we are about to leave (`leave_if_rotten`), and whoever leads after us is asked again.
        if is_unreadable && ctx.store.has_corrupt_metadata() && self.can_do_without_us() {
            return;
        }
        match outcome {
            Ok(Outcome::Need(object, extents)) => {
                let read = self.next_read();
                self.wait_for_data(read, Running { asked: (object.snap, extents), ..running });
                self.begin_read(ctx, read, object);
            }
            Ok(Outcome::NeedCopy(source)) => {
                let read = self.next_read();
                ctx.out.push(PgEffect::Copy { read, source: Box::new(source.clone()) });
                self.wait_for_data(read, Running { copying: Some(source), ..running });
            }
            Ok(Outcome::Done(done)) if op.is_write() => {
                if let Some(op) = self.place(ctx, running.op, &done.change) {
                    self.write(ctx, op, env, done);
                }
            }
            Ok(Outcome::Done(done)) => {
                let carried_out = done.result >= 0;
                let about_watches = (carried_out && op.is_about_watches()).then(|| op.clone());
                let reply = self.read_reply(ctx, op, done);
                self.finish_read(ctx, running.op, reply);
                if let Some(op) = about_watches {
                    self.after_read(ctx, &op, env.notify_id);
                }
            }
            Err(error) => self.fail(ctx, running.op, &error),
        }
    }

    /// Some of what the request looks at is missing here: it runs again, before all others, when
    /// that has come. Until then it holds up those alone that must not pass it.
    fn wait_for_parts(&mut self, ctx: &mut Ctx<'_>, op: Box<ClientOp>, lacking: &BTreeMap<ObjectId, Part>) {
        let Some(active) = self.active() else { return };
        for (object, part) in lacking {
            active.recovery.prioritize(object, part);
            if *object != op.object {
                active.waiters.entry(object.clone()).or_default().insert(op.object.clone());
            }
        }
        let queue = active.queue(&op.object);
        queue.lacking.insert(op.seq, lacking.clone());
        queue.waiting.push_front(op);
        self.recover(ctx);
    }

    /// What was, or will be, said to a request that was carried out before.
    fn find_dup(&self, reqid: &ReqId) -> Option<Answer> {
        self.log.find(reqid).map(|entry| dup_of(&entry)).or_else(|| self.dups.find(reqid))
    }

    /// A request that was carried out before gets the answer that it got, or will get, then.
    fn run_again(&mut self, ctx: &mut Ctx<'_>, op: Box<ClientOp>, answer: &Answer) {
        let epoch = ctx.map.epoch;
        let Some(active) = self.active() else { return };
        match active.in_flight.iter_mut().find(|write| write.version == answer.version) {
            Some(write) => write.ops.push(op),
            None => {
                ctx.out.push(write_reply(&op, answer, epoch));
                if answer.result >= 0 {
                    self.after_write(ctx, &op);
                }
            }
        }
    }

    fn wait_for_data(&mut self, read: u64, running: Running) {
        let Some(active) = self.active() else { return };
        let queue = active.queue(&running.op.object);
        if running.op.is_write() {
            queue.fetching = true;
        } else {
            queue.reads += 1;
        }
        active.running.insert(read, running);
    }
    /// The request that waited for it may go on.
    fn take_running(&mut self, read: u64) -> Option<Running> {
        let active = self.active()?;
        let running = active.running.remove(&read)?;
        let queue = active.queue(&running.op.object);
        if !running.op.is_write() {
            queue.reads -= 1;
            return Some(running);
        }
        queue.fetching = false;
        if queue.reads > 0 {
            // A read for a copy slipped in. The object must stay as it is until that is over.
            queue.waiting.push_front(running.op);
            return None;
        }
        Some(running)
    }

    pub fn on_copied(&mut self, ctx: &mut Ctx<'_>, read: u64, result: Result<Copied, i32>) {
        let Some(mut running) = self.take_running(read) else { return };
        let object = running.op.object.clone();
        if let Some(source) = running.copying.take() {
            running.fetched.copies.push((source, result));
        }
        self.run(ctx, running);
        self.pump(ctx, &object);
    }

    pub fn on_read(&mut self, ctx: &mut Ctx<'_>, read: u64, result: Result<Vec<Bytes>, ReadError>) {
        if self.push_reads.contains_key(&read) {
            self.on_push_read(ctx, read, result);
            return;
        }
        if self.scrub_reads.contains_key(&read) {
            self.on_sum_read(ctx, read, result);
            return;
        }
        let Some(mut running) = self.take_running(read) else { return };
        let object = running.op.object.clone();
        match result {
            Ok(parts) => {
                let (snap, asked) = std::mem::take(&mut running.asked);
                let extents = asked.into_iter().zip(parts).map(|((off, len), bytes)| (snap, off, len, bytes));
                running.fetched.extents.extend(extents);
                running.op.steps.fetched = Some(ctx.now.mono);
                self.run(ctx, running);
            }
            Err(error) if self.give_up(ctx, &error) => {
                // It runs again, and waits for what it touches of what is missing now.
                let Some(active) = self.active() else { return };
                active.put_first(&object, [running.op].into());
                active.note_runnable(&object);
                ctx.out.push(PgEffect::Loop);
                return;
            }
            Err(error) => self.fail(ctx, running.op, &error),
        }
        self.pump(ctx, &object);
    }

    /// The store cannot give what it should hold.
    fn fail(&mut self, ctx: &mut Ctx<'_>, op: Box<ClientOp>, error: &ReadError) {
        ctx.log(Level::Error, format!("pg {}: {}: {error}", self.id, op.object));
        let reply = OsdOpReply::to(&op.request, -EIO, ctx.map.epoch);
        ctx.out.push(reply_to(&op, Box::new(reply)));
    }

    // ---- reads ----

    fn read_reply(&mut self, ctx: &Ctx<'_>, op: &ClientOp, done: Done) -> Box<OsdOpReply> {
        let mut reply = OsdOpReply::to(&op.request, done.result, ctx.map.epoch);
        if done.result >= 0 {
            reply.flags |= op_flags::message::ACK | op_flags::message::ONDISK;
        }
        let version = if done.user_version == 0 { self.info.last_user_version } else { done.user_version };
        reply.bad_replay_version = Version::new(Epoch(0), version);
        reply.user_version = version;
        let bytes: usize = done.outputs.iter().map(|(_, out)| out.len()).sum();
        for (result, (rval, data)) in reply.ops.iter_mut().zip(done.outputs) {
            result.rval = rval;
            result.data = data;
        }
        self.counts.work.reads += 1;
        self.counts.work.read_bytes += bytes as u64;
        Box::new(reply)
    }

    fn finish_read(&mut self, ctx: &mut Ctx<'_>, op: Box<ClientOp>, mut reply: Box<OsdOpReply>) {
        let given_up = self.leases_given_up;
        let Some(active) = self.active() else { return };
        if !given_up && active.lease_holds(ctx.now.mono) {
            ctx.budget.replies.send(ctx.now.mono, op.conn, &mut reply.ops);
            ctx.out.push(reply_to(&op, reply));
            return;
        }
        // It holds back the writes behind it: their answers must not overtake this one.
        active.queue(&op.object).reads += 1;
        // The first one asks for leases: those that follow would ask the same again.
        if active.waiting_for_lease.is_empty() {
            ctx.out.push(PgEffect::LeasesNow);
        }
        let held = ctx.budget.replies.hold(data_of(&reply.ops));
        active.waiting_for_lease.push((op, reply, held));
    }

    /// From now on; the OSD is about to stop.
    pub fn give_up_leases(&mut self) {
        self.leases_given_up = true;
    }

    pub fn on_lease(&mut self, ctx: &mut Ctx<'_>, from: OsdId, until: Time) {
        if let Phase::Peering(peering) = &mut self.phase {
            peering.on_lease(from, until);
            return;
        }
        let Some(active) = self.active() else { return };
        let Some(member) = active.members.get_mut(&from) else { return };
        member.lease_until = member.lease_until.max(until);
        if active.waiting_for_lease.is_empty() || !active.lease_holds(ctx.now.mono) {
            return;
        }
        let mut objects = BTreeSet::new();
        for (op, mut reply, held) in std::mem::take(&mut active.waiting_for_lease) {
            drop(held);
            ctx.budget.replies.send(ctx.now.mono, op.conn, &mut reply.ops);
            ctx.out.push(reply_to(&op, reply));
            active.queue(&op.object).reads -= 1;
            objects.insert(op.object);
        }
        objects.iter().for_each(|object| self.pump(ctx, object));
    }

    /// Whom to ask for a lease: the other members, from when they have the group's log.
    pub fn lease_grantors(&self) -> Vec<OsdId> {
        match &self.phase {
            Phase::Active(active) => active.members.keys().copied().collect(),
            Phase::Peering(peering) => peering.lease_grantors(),
            _ => Vec::new(),
        }
    }

    // ---- the rest ----

    /// Work that had to wait for a view that shows what changed.
    pub fn active_loop(&mut self, ctx: &mut Ctx<'_>) {
        let Some(active) = self.active() else { return };
        let objects = std::mem::take(&mut active.runnable);
        for object in &objects {
            if let Some(queue) = active.queues.get_mut(object) {
                queue.lacking.clear();
            }
        }
        objects.iter().for_each(|object| self.pump(ctx, object));
        self.readmit_writes(ctx);
        self.retry_reads(ctx);
        self.request_pg_temp(ctx);
        self.recover(ctx);
        self.trim(ctx);
        self.scrub_on(ctx);
    }

    /// Some of an object came to be where it was missing: requests that wait for it may go on in the
    /// next turn.
    pub fn on_recovered(&mut self, ctx: &mut Ctx<'_>, object: &ObjectId) {
        let Phase::Active(active) = &mut self.phase else { return };
        if active.uncommitted.contains_key(object) {
            active.drop_committed(&self.missing);
        }
        active.note_runnable(object);
        active.runnable.extend(active.waiters.remove(object).unwrap_or_default());
        ctx.out.push(PgEffect::Loop);
    }

    /// A write put an end to some of what was missing of an object.
    fn on_overwritten(&mut self, ctx: &mut Ctx<'_>, object: &ObjectId) {
        let Phase::Active(active) = &self.phase else { return };
        let queue = active.queues.get(&object.to_head());
        if queue.is_some_and(|queue| !queue.lacking.is_empty()) || active.waiters.contains_key(object) {
            self.on_recovered(ctx, object);
        }
    }

    pub fn active_tick(&mut self, ctx: &mut Ctx<'_>) {
        self.readmit_writes(ctx);
        self.retry_client_reads(ctx);
        self.request_pg_temp(ctx);
        self.recovery_tick(ctx);
        self.recount_some(ctx);
        self.watch_tick(ctx);
        self.trim(ctx);
        self.scrub_tick(ctx);
    }

    /// What the member may have missed is sent again; it knows what it has.
    pub fn active_opened(&mut self, ctx: &mut Ctx<'_>, osd: OsdId) {
        let Some(active) = self.active() else { return };
        for write in active.in_flight.iter().filter(|write| write.waiting_for.contains(&osd)) {
            if active.members.contains_key(&osd) {
                ctx.out.push(PgEffect::ask(osd, PgMsg::RepOp(write.rep_op.clone())));
            }
        }
        self.scrub_opened(ctx, osd);
        self.recovery_opened(ctx, osd);
        ctx.out.push(PgEffect::LeasesNow);
    }
}

/// Whether some of that part of an object has to come to us, or to a member. Not to one that lacks other parts of the
/// object as well: those have what clients were told long ago, and there too it is only as safe as on the others. Its
/// disk may be full.
fn is_uncommitted(object: &ObjectId, part: &Part, own: &Missing, members: &BTreeMap<OsdId, Member>) -> bool {
    let needs = |member: &Member| {
        let lacking = member.missing.get(object).map(|stale| &stale.part);
        lacking.is_some_and(|lacking| lacking.overlaps(part) && lacking.clone().without(part).is_empty())
    };
    own.lacks(object, part) || members.values().any(needs)
}

/// What a write is done under: the pool's snapshots where it has some, else what the client says.
fn snap_context(op: &ClientOp, map: &OsdMap, removed: &IntervalSet) -> SnapContext {
    let pool = map.pool(op.object.pool).filter(|pool| pool.has(pool_flags::POOL_SNAPS));
    let enforced = op.request.has_flag(op_flags::message::ENFORCE_SNAPC);
    let (seq, mut snaps) = match pool.filter(|_| !enforced) {
        Some(pool) => pool.snap_context(),
        None => (op.request.snap_seq, op.request.snaps.clone()),
    };
    // The client may not know yet that one is gone, and nobody would remove what is kept for it.
    snaps.retain(|snap| !removed.contains(snap.0));
    SnapContext { seq, snaps }
}

/// Whether the client was cut off while its request waited: whoever had it cut off relies on what came since.
/// That it watches no longer is our own request.
fn is_blocklisted(op: &ClientOp, map: &OsdMap) -> bool {
    op.conn != NOBODY && map.blocklisted_until(&op.sender.1).is_some()
}

/// Whether the request is about the group and not about an object.
fn is_about_pg(op: &ClientOp) -> bool {
    op.ops.iter().any(|op| op.op.is_about_group())
}

/// The answer to a write, made from what is remembered of it alone, so that a resend gets the same.
fn write_reply(op: &ClientOp, answer: &Answer, epoch: Epoch) -> PgEffect {
    let mut reply = OsdOpReply::to(&op.request, answer.result, epoch);
    reply.flags |= op_flags::message::ACK | op_flags::message::ONDISK;
    reply.replay_version = answer.version;
    reply.bad_replay_version = answer.version;
    reply.user_version = answer.user_version;
    for (result, (rval, data)) in reply.ops.iter_mut().zip(&answer.outputs) {
        result.rval = *rval;
        result.data = data.clone();
    }
    reply_to(op, Box::new(reply))
}

pub fn reply_to(op: &ClientOp, reply: Box<OsdOpReply>) -> PgEffect {
    PgEffect::Reply { conn: op.conn, tid: op.tid, reply, request: Box::new(op.request()) }
}
