//! Clients' requests on the primary while it serves: in order, writes to the whole acting set, reads under
//! leases.
//!
//! Requests on one object run in the order of their arrival (`Queue`), but a request that waits for missing
//! parts of objects lets others pass. A read waits for the writes before it to be committed; writes follow
//! each other without waiting. Replies to writes leave in log order, replies to reads only while every
//! replica's lease holds: without it another primary could have taken over and written already.
//!
//! `ClientOps` holds the requests. `on_op`, `pump` and `run` carry one out, on a `Scope` of the other parts;
//! `writes` appends it to the log and collects acknowledgements, `reads` fetches data, `admission` decides
//! whether there is space for a write.

pub mod admission;
mod queues;
mod reads;
mod stale_view;
pub mod waiting_for_active;
mod writes;

use self::admission::OpsWaitingForSpace;
use self::queues::Queues;
use self::reads::WaitingReads;
use self::stale_view::StaleView;
use super::active::{Active, Member};
use super::backend::erasure::view::WholeObjects;
use super::backend::{Backend, WritePlan};
use super::history::missing::{Missing, part_of};
use super::history::{History, Update};
use super::leases::Leases;
use super::pending::Pending;
use super::read_repair::Holders;
use super::recount::Recount;
use super::recovery::push::PushReads;
use super::recovery::{self, Recovery};
use super::remap::Remap;
use super::scrub::{Scrub, ScrubRecord};
use super::snap_trim::SnapTrim;
use super::stats::Stats;
use super::watches::NOBODY;
use super::watches::Watches;
use super::{ClientOp, Ctx, Interval, Pg, PgEffect, Phase};
use crate::ops::{Copied, Done, Env, Fetched, ObjectChange, Outcome, PoolRules, Snaps, execute};
use crate::snap_set::SnapContext;
use crate::throttle::data_of;
use crate::throttle::memory::Held;
use crate::throttle::write_credit::InFlightWrite;
use bytes::Bytes;
use nacre_base::errno::{EIO, ESHUTDOWN};
use nacre_base::{Epoch, IntervalSet, OsdId, ShardId, SnapId, Time, Version};
use nacre_cls::Caller;
use nacre_machine::{Level, ReadError, StoreView};
use nacre_proto::maps::{OsdMap, pool_flags};
use nacre_proto::messages::OsdOpReply;
use nacre_proto::messages::answer::Answer;
use nacre_proto::messages::part::Part;
use nacre_proto::messages::peer::{EntryKind, LogEntry, PgInfo};
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_proto::types::{CopySource, ObjectId, Op, op_flags};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// A write that is not durable everywhere yet.
struct InFlight {
    version: Version,
    object: ObjectId,
    /// The message for members that need it again.
    plan: WritePlan,
    /// The members that have not acknowledged it; a few.
    waiting_for: SmallVec<[OsdId; 4]>,
    _credit: InFlightWrite,
    /// Clients no longer see the object, or see one that was created since.
    vanishes: bool,
    /// The request, and resends of it that arrived meanwhile.
    ops: SmallVec<[Box<ClientOp>; 1]>,
}

/// The requests on one object and its snapshots.
#[derive(Default)]
struct Queue {
    waiting: VecDeque<Box<ClientOp>>,
    /// Reads that have begun and have no reply yet.
    reads: usize,
    /// A write is fetching data that it needs.
    fetching: bool,
    /// Writes in flight.
    writes: usize,
    /// The parts of objects that waiting requests need, by the requests' numbers.
    lacking: BTreeMap<u64, BTreeMap<ObjectId, Part>>,
}

impl Queue {
    /// The first waiting request that need not wait for an earlier one.
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

/// Whether a request may run before one that came earlier and waits for parts of objects. What one client
/// asks keeps its order, but for reads among each other. A read for a copy waits for no other request.
fn may_pass(op: &ClientOp, earlier: &ClientOp) -> bool {
    op.for_copy || op.sender.0 != earlier.sender.0 || !op.is_write() && !earlier.is_write()
}

/// A request that was not carried out, and why.
type Unwritten = Box<(Option<Box<ClientOp>>, ReadError)>;

/// A request that waits for data.
struct Running {
    op: Box<ClientOp>,
    /// The object or the clone that is read.
    asked: (SnapId, Vec<(u64, u64)>),
    copying: Option<CopySource>,
    fetched: Fetched,
    /// Bytes of all that it fetches.
    needed: u64,
    /// The memory for them.
    held: Option<Held>,
}

impl Running {
    fn new(op: Box<ClientOp>) -> Running {
        Running {
            op,
            asked: Default::default(),
            copying: None,
            fetched: Fetched::default(),
            needed: 0,
            held: None,
        }
    }
}

/// How long after a read the next one is expected. Later ones request a lease first, which takes a round trip
/// to each member. A placement group without reads thus costs no messages.
const READS_EXPECTED: Duration = Duration::from_secs(5);

pub struct ClientOps {
    in_flight: VecDeque<InFlight>,
    queues: Queues,
    /// Objects whose queue may continue in the next turn.
    runnable: BTreeSet<ObjectId>,
    /// For each object that is missing in part, the objects whose requests wait for it beside its own.
    waiters: BTreeMap<ObjectId, BTreeSet<ObjectId>>,
    running: BTreeMap<u64, Running>,
    waiting_reads: WaitingReads,
    /// Reads that were carried out while a lease was missing, and the memory that they take.
    waiting_for_lease: Vec<(Box<ClientOp>, Box<OsdOpReply>, Held)>,
    /// Leases are renewed until then.
    reads_expected_until: Time,
    waiting_for_space: OpsWaitingForSpace,
    /// What the newest writes before the interval changed, as far as a member lacks it. They may not have
    /// been everywhere, so nothing of these objects is shown before they are.
    uncommitted: BTreeMap<ObjectId, Part>,
    /// No write begins: the placement group is to merge with another, and this is its last version.
    pub holds_writes: bool,
}

impl ClientOps {
    pub fn new(history: &History, members: &BTreeMap<OsdId, Member>) -> ClientOps {
        let mut uncommitted: BTreeMap<ObjectId, Part> = BTreeMap::new();
        let newest = history.log.after(history.info.committed_to);
        for entry in newest.filter(|entry| entry.kind != EntryKind::Note) {
            uncommitted.entry(entry.object.clone()).or_default().meta = true;
            for run in &entry.acts {
                let object = run.object.as_ref().unwrap_or(&entry.object);
                uncommitted.entry(object.clone()).or_default().add(&part_of(&run.acts));
            }
        }
        uncommitted.retain(|object, part| is_uncommitted(object, part, &history.missing, members));
        ClientOps {
            in_flight: VecDeque::new(),
            queues: Queues::default(),
            runnable: BTreeSet::new(),
            waiters: BTreeMap::new(),
            running: BTreeMap::new(),
            waiting_reads: WaitingReads::default(),
            waiting_for_lease: Vec::new(),
            reads_expected_until: Time::ZERO,
            waiting_for_space: OpsWaitingForSpace::default(),
            uncommitted,
            holds_writes: false,
        }
    }

    /// All requests without a reply.
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

    /// Whether some of the object may be uncommitted, and some of its clones.
    fn uncommitted_of(&self, head: &ObjectId) -> (bool, bool) {
        if self.uncommitted.is_empty() {
            return (false, false);
        }
        let first = ObjectId { snap: SnapId(0), ..head.clone() };
        let clones = self.uncommitted.range(first..head.clone()).next().is_some();
        (self.uncommitted.contains_key(head), clones)
    }
    pub fn is_all_committed(&self) -> bool {
        self.uncommitted.is_empty()
    }
    /// Whether every write is durable on all members, and none is about to begin.
    pub fn is_drained(&self) -> bool {
        self.in_flight.is_empty() && !self.queues.iter().any(|(_, queue)| queue.fetching)
    }
    /// Whether writes are held, and every write is durable on all members.
    pub fn is_ready_to_merge(&self) -> bool {
        self.holds_writes && self.is_drained()
    }
    pub fn note_all_runnable(&mut self) {
        self.runnable.extend(self.queues.iter().map(|(object, _)| object.clone()));
    }
    pub fn uncommitted(&self) -> impl Iterator<Item = (&ObjectId, &Part)> {
        self.uncommitted.iter()
    }
    /// Drops writes that are durable on all members.
    fn drop_committed(&mut self, own: &Missing, members: &BTreeMap<OsdId, Member>) {
        self.uncommitted.retain(|object, part| is_uncommitted(object, part, own, members));
    }

    /// Some of an object came to be where it was missing: requests that wait for it may continue in the next
    /// turn.
    pub fn note_recovered(
        &mut self,
        ctx: &mut Ctx<'_>,
        object: &ObjectId,
        own: &Missing,
        members: &BTreeMap<OsdId, Member>,
    ) {
        if self.uncommitted.contains_key(object) {
            self.drop_committed(own, members);
        }
        self.note_runnable(object);
        self.runnable.extend(self.waiters.remove(object).unwrap_or_default());
        ctx.out.push(PgEffect::Loop);
    }
    /// Takes the objects whose queue is run again now.
    pub fn take_runnable(&mut self) -> BTreeSet<ObjectId> {
        let objects = std::mem::take(&mut self.runnable);
        for object in &objects {
            if let Some(queue) = self.queues.get_mut(object) {
                queue.lacking.clear();
            }
        }
        objects
    }
    /// Sends again the writes that a member may have missed.
    pub fn resend(&self, osd: OsdId, out: &mut Vec<PgEffect>) {
        let writes = self.in_flight.iter().filter(|write| write.waiting_for.contains(&osd));
        out.extend(writes.map(|write| PgEffect::ask(osd, write.plan.message(osd))));
    }
    /// Whether requests wait for parts of the object.
    fn is_waited_for(&self, object: &ObjectId) -> bool {
        let queue = self.queues.get(&object.to_head());
        queue.is_some_and(|queue| !queue.lacking.is_empty()) || self.waiters.contains_key(object)
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
    /// Whether the object is being read, or data for a write to it.
    pub fn is_being_read(&self, object: &ObjectId) -> bool {
        self.queues.get(object).is_some_and(|queue| queue.reads > 0 || queue.fetching)
    }
    fn drop_idle(&mut self, object: &ObjectId) {
        self.queues.remove_if(object, Queue::is_idle);
    }
    /// Requests that were taken from its queue continue before all others.
    pub fn put_first(&mut self, object: &ObjectId, ops: VecDeque<Box<ClientOp>>) {
        let waiting = &mut self.queue(object).waiting;
        ops.into_iter().rev().for_each(|op| waiting.push_front(op));
    }
    /// Schedules the object's queue for the next turn.
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

    /// No request waits for bytes that it does not touch: one that waits for parts of objects touches some
    /// that are missing still, and one behind it that could run but for that must not pass it.
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

/// The steps of a request.
impl ClientOps {
    pub fn on_op(&mut self, pg: &mut Scope<'_>, ctx: &mut Ctx<'_>, op: Box<ClientOp>) {
        if !pg.history.range.contains(&op.object) && !is_about_pg(&op) {
            // The client's map has another `pg_num`; it sends again once it has ours.
            return;
        }
        if is_about_pg(&op) {
            let findings = op.ops.iter().any(|op| matches!(op.op, Op::ScrubLs(_)));
            let (result, outputs) = match findings {
                true => pg.scrub_record.list(ctx, pg.interval.start, &op),
                false => pg.history.list(ctx, &op),
            };
            let reply = self.read_reply(pg, ctx, &op, Done::answer(result, outputs));
            self.finish_read(pg, ctx, op, reply);
            return;
        }
        let has_queue = self.queues.get(&op.object).is_some();
        let is_sure = self.uncommitted_of(&op.object) == (false, false);
        let is_shown = !pg.pending.unapplied.contains(&op.object)
            && (pg.pending.unapplied.is_empty() || !op.is_about_clones());
        if !has_queue && !op.is_write() && is_sure && is_shown && !pg.history.missing.lacks_meta(&op.object) {
            // As most reads: no request is before it, and what it needs is here.
            return self.run(pg, ctx, Running::new(op));
        }
        let object = op.object.clone();
        let queue = self.queue(&object);
        if op.for_copy {
            queue.waiting.push_front(op);
        } else {
            queue.waiting.push_back(op);
        }
        self.pump(pg, ctx, &object);
    }

    /// Runs the requests of an object's queue that can run.
    pub fn pump(&mut self, pg: &mut Scope<'_>, ctx: &mut Ctx<'_>, object: &ObjectId) {
        loop {
            let lacks_meta = pg.history.missing.lacks_meta(object);
            let (stale_view, some_stale) =
                (pg.pending.unapplied.contains(object), !pg.pending.unapplied.is_empty());
            let held = self.holds_writes;
            let (own_uncommitted, of_clones) = self.uncommitted_of(object);
            let Some(queue) = self.queues.get_mut(object) else { return };
            let Some(at) = queue.next() else { break };
            let op = &queue.waiting[at];
            let is_write = op.is_write();
            let about_clones = op.is_about_clones();
            if own_uncommitted || of_clones && about_clones || lacks_meta {
                if lacks_meta {
                    pg.recovery.prioritize(object, &Part::meta());
                }
                pg.recover(ctx, self);
                return;
            }
            let blocked = if is_write { queue.reads > 0 } else { queue.writes > 0 };
            if is_write && held || (queue.fetching && !op.for_copy) || blocked {
                return;
            }
            // The clone that is read may have come in this turn.
            if stale_view || some_stale && about_clones {
                self.runnable.insert(object.clone());
                ctx.out.push(PgEffect::Loop);
                return;
            }
            let op = queue.waiting.remove(at).expect("it is one of them");
            if self.waiting_for_space.is_before(&op) {
                self.waiting_for_space.push(op);
                continue;
            }
            if op.is_write()
                && let Some(answer) = pg.history.find_dup(&op.reqid)
            {
                self.run_again(pg, ctx, op, &answer);
                continue;
            }
            self.run(pg, ctx, Running::new(op));
        }
        self.drop_idle(object);
    }

    fn run(&mut self, pg: &mut Scope<'_>, ctx: &mut Ctx<'_>, mut running: Running) {
        running.op.steps.start(ctx.now.mono);
        if is_blocklisted(&running.op, &ctx.map) {
            let reply = OsdOpReply::to(&running.op.request, -ESHUTDOWN, ctx.map.epoch);
            ctx.out.push(reply_to(&running.op, Box::new(reply)));
            return;
        }
        if let Some(done) = pg.watches.answer(&running.op) {
            let reply = self.read_reply(pg, ctx, &running.op, done);
            let op = running.op.clone();
            self.finish_read(pg, ctx, running.op, reply);
            pg.watches.after_read(ctx, &op, 0, pg.history.info.last_user_version);
            return;
        }
        let op = &running.op;
        let nothing = IntervalSet::new();
        let map = ctx.map.clone();
        let removed = map.removed_snaps_queue.get(&pg.history.pg.pool).unwrap_or(&nothing);
        let context = snap_context(op, &map, removed);
        let ordered = op.request.has_flag(op_flags::message::ORDERSNAP);
        let snaps = Snaps { at: op.snap, context: &context, ordered, removed };
        let env = Env {
            version: pg.history.next_version(pg.interval.start),
            user_version: pg.history.info.last_user_version + 1,
            mtime: op.request.mtime,
            return_vector: op.request.has_flag(op_flags::message::RETURNVEC),
            caller: Caller { name: op.sender.0, addr: op.sender.1, now: ctx.now.wall },
            notify_id: u64::from(ctx.map.epoch.0) << 32 | (op.seq & 0xffff_ffff),
            rules: map.pool(pg.history.pg.pool).map(PoolRules::of).unwrap_or_default(),
        };
        let reads_now = pg.pending.view_is_current() && ctx.budget.replies.is_open();
        let whole = WholeObjects(ctx.store);
        let store: &dyn StoreView = if pg.backend.is_erasure() { &whole } else { ctx.store };
        let view = StaleView::new(store, &pg.history.missing, reads_now, pg.backend.is_erasure());
        let mut outcome = execute(&view, &op.object, &op.ops, &env, &snaps, &running.fetched);
        if let Ok(Outcome::Need(object, extents)) = &outcome {
            view.need_data(&object.clone().into(), extents);
        }
        let mut lacking = view.into_examined();
        if lacking.is_empty()
            && let Ok(Outcome::Done(done)) = &outcome
        {
            lacking = pg.lacked_by_all(&done.change.txn);
        }
        if !lacking.is_empty() {
            self.wait_for_parts(pg, ctx, running.op, &lacking);
            return;
        }
        if let Ok(Outcome::Done(done)) = &outcome {
            match pg.needed_to_encode(ctx, &done.change, &running.fetched) {
                Ok(None) => {}
                Ok(Some((object, extents))) => outcome = Ok(Outcome::Need(object, extents)),
                Err(error) => outcome = Err(error),
            }
        }
        let is_unreadable = match &outcome {
            Ok(Outcome::Done(done)) => done.result == -EIO,
            outcome => outcome.is_err(),
        };
        // Then this OSD is about to leave (`leave_if_corrupt`), and the client asks the next primary.
        if is_unreadable && ctx.store.has_corrupt_metadata() && pg.can_do_without_us() {
            return;
        }
        match outcome {
            Ok(Outcome::Need(object, extents)) => {
                let read = pg.pending.next_read();
                self.wait_for_data(read, Running { asked: (object.snap, extents), ..running });
                self.begin_read(pg, ctx, read, object);
            }
            Ok(Outcome::NeedCopy(source)) => {
                let read = pg.pending.next_read();
                ctx.out.push(PgEffect::Copy { read, source: Box::new(source.clone()) });
                self.wait_for_data(read, Running { copying: Some(source), ..running });
            }
            Ok(Outcome::Done(done)) if op.is_write() => {
                if let Some(op) = self.admit_write(pg, ctx, running.op, &done.change) {
                    self.write(pg, ctx, op, env, done, &running.fetched);
                }
            }
            Ok(Outcome::Done(done)) => {
                let carried_out = done.result >= 0;
                let about_watches = (carried_out && op.is_about_watches()).then(|| op.clone());
                let reply = self.read_reply(pg, ctx, op, done);
                self.finish_read(pg, ctx, running.op, reply);
                if let Some(op) = about_watches {
                    pg.watches.after_read(ctx, &op, env.notify_id, pg.history.info.last_user_version);
                }
            }
            Err(error) => self.fail(pg, ctx, running.op, &error),
        }
    }

    /// Some of what the request needs is missing here: it runs again, before all others, when
    /// that has come. Until then it holds up those alone that must not pass it.
    fn wait_for_parts(
        &mut self,
        pg: &mut Scope<'_>,
        ctx: &mut Ctx<'_>,
        op: Box<ClientOp>,
        lacking: &BTreeMap<ObjectId, Part>,
    ) {
        for (object, part) in lacking {
            pg.recovery.prioritize(object, part);
            if *object != op.object {
                self.waiters.entry(object.clone()).or_default().insert(op.object.clone());
            }
        }
        let queue = self.queue(&op.object);
        queue.lacking.insert(op.seq, lacking.clone());
        queue.waiting.push_front(op);
        pg.recover(ctx, self);
    }

    /// A request that was carried out before gets the reply that it got, or will get, then.
    fn run_again(&mut self, pg: &mut Scope<'_>, ctx: &mut Ctx<'_>, op: Box<ClientOp>, answer: &Answer) {
        let epoch = ctx.map.epoch;
        match self.in_flight.iter_mut().find(|write| write.version == answer.version) {
            Some(write) => write.ops.push(op),
            None => {
                ctx.out.push(write_reply(&op, answer, epoch));
                if answer.result >= 0 {
                    pg.watches.after_write(ctx, &op, pg.history.info.last_user_version);
                }
            }
        }
    }

    fn wait_for_data(&mut self, read: u64, running: Running) {
        let queue = self.queue(&running.op.object);
        if running.op.is_write() {
            queue.fetching = true;
        } else {
            queue.reads += 1;
        }
        self.running.insert(read, running);
    }
    /// The request that waited for it may continue.
    fn take_running(&mut self, read: u64) -> Option<Running> {
        let running = self.running.remove(&read)?;
        let queue = self.queue(&running.op.object);
        if !running.op.is_write() {
            queue.reads -= 1;
            return Some(running);
        }
        queue.fetching = false;
        if queue.reads > 0 {
            // A read for `copy-from` is in progress. The object must not change until it ends.
            queue.waiting.push_front(running.op);
            return None;
        }
        Some(running)
    }

    pub fn on_copied(
        &mut self,
        pg: &mut Scope<'_>,
        ctx: &mut Ctx<'_>,
        read: u64,
        result: Result<Copied, i32>,
    ) {
        let Some(mut running) = self.take_running(read) else { return };
        let object = running.op.object.clone();
        if let Some(source) = running.copying.take() {
            running.fetched.copies.push((source, result));
        }
        self.run(pg, ctx, running);
        self.pump(pg, ctx, &object);
    }

    pub fn on_read(
        &mut self,
        pg: &mut Scope<'_>,
        ctx: &mut Ctx<'_>,
        read: u64,
        result: Result<Vec<Bytes>, ReadError>,
    ) {
        let Some(mut running) = self.take_running(read) else { return };
        let object = running.op.object.clone();
        match result {
            Ok(parts) => {
                let (snap, asked) = std::mem::take(&mut running.asked);
                let extents = asked.into_iter().zip(parts).map(|((off, len), bytes)| (snap, off, len, bytes));
                running.fetched.extents.extend(extents);
                running.op.steps.fetched = Some(ctx.now.mono);
                self.run(pg, ctx, running);
            }
            // An operator declared it lost while it was gathered.
            Err(ReadError::NotFound(_)) if pg.backend.is_erasure() => {
                self.put_first(&object, [running.op].into());
                self.note_runnable(&object);
                ctx.out.push(PgEffect::Loop);
                return;
            }
            Err(error) if pg.repair_read(ctx, &error) => {
                // It runs again, and waits for what it touches of what is missing now.
                self.put_first(&object, [running.op].into());
                self.note_runnable(&object);
                ctx.out.push(PgEffect::Loop);
                return;
            }
            Err(error) => self.fail(pg, ctx, running.op, &error),
        }
        self.pump(pg, ctx, &object);
    }

    /// The store cannot read data that it should hold.
    fn fail(&mut self, pg: &Scope<'_>, ctx: &mut Ctx<'_>, op: Box<ClientOp>, error: &ReadError) {
        ctx.log(Level::Error, format!("pg {}: {}: {error}", pg.history.pg, op.object));
        let reply = OsdOpReply::to(&op.request, -EIO, ctx.map.epoch);
        ctx.out.push(reply_to(&op, Box::new(reply)));
    }

    // ---- reads ----

    fn read_reply(
        &mut self,
        pg: &mut Scope<'_>,
        ctx: &Ctx<'_>,
        op: &ClientOp,
        done: Done,
    ) -> Box<OsdOpReply> {
        let mut reply = OsdOpReply::to(&op.request, done.result, ctx.map.epoch);
        if done.result >= 0 {
            reply.flags |= op_flags::message::ACK | op_flags::message::ONDISK;
        }
        let version =
            if done.user_version == 0 { pg.history.info.last_user_version } else { done.user_version };
        reply.bad_replay_version = Version::new(Epoch(0), version);
        reply.user_version = version;
        let bytes: usize = done.outputs.iter().map(|(_, out)| out.len()).sum();
        for (result, (rval, data)) in reply.ops.iter_mut().zip(done.outputs) {
            result.rval = rval;
            result.data = data;
        }
        pg.stats.note_read(bytes as u64);
        Box::new(reply)
    }

    fn finish_read(
        &mut self,
        pg: &mut Scope<'_>,
        ctx: &mut Ctx<'_>,
        op: Box<ClientOp>,
        mut reply: Box<OsdOpReply>,
    ) {
        self.expect_reads(ctx.now.mono);
        let given_up = pg.leases.is_given_up();
        if !given_up && pg.lease_holds(ctx.now.mono) {
            ctx.budget.replies.send(ctx.now.mono, op.conn, &mut reply.ops);
            ctx.out.push(reply_to(&op, reply));
            return;
        }
        // It holds back the writes behind it: their replies must not overtake this one.
        self.queue(&op.object).reads += 1;
        // The first one asks for leases: those that follow would ask the same again.
        if self.waiting_for_lease.is_empty() {
            ctx.out.push(PgEffect::LeasesNow);
        }
        let held = ctx.budget.replies.hold(data_of(&reply.ops));
        self.waiting_for_lease.push((op, reply, held));
    }

    /// Reads may come from now on, so leases are renewed for a while: a read then need not wait for one.
    pub fn expect_reads(&mut self, now: Time) {
        self.reads_expected_until = now + READS_EXPECTED;
    }
    /// Whether leases are to be renewed.
    pub fn needs_leases(&self, now: Time) -> bool {
        now < self.reads_expected_until || !self.waiting_for_lease.is_empty()
    }

    /// All leases hold again.
    pub fn on_leases(&mut self, pg: &mut Scope<'_>, ctx: &mut Ctx<'_>) {
        let mut objects = BTreeSet::new();
        for (op, mut reply, held) in std::mem::take(&mut self.waiting_for_lease) {
            drop(held);
            ctx.budget.replies.send(ctx.now.mono, op.conn, &mut reply.ops);
            ctx.out.push(reply_to(&op, reply));
            self.queue(&op.object).reads -= 1;
            objects.insert(op.object);
        }
        objects.iter().for_each(|object| self.pump(pg, ctx, object));
    }

    /// Work that had to wait for a view that shows what changed.
    pub fn run_runnable(&mut self, pg: &mut Scope<'_>, ctx: &mut Ctx<'_>) {
        let objects = self.take_runnable();
        objects.iter().for_each(|object| self.pump(pg, ctx, object));
        self.readmit_writes(pg, ctx);
        self.retry_reads(pg, ctx);
    }
    pub fn tick(&mut self, pg: &mut Scope<'_>, ctx: &mut Ctx<'_>) {
        self.readmit_writes(pg, ctx);
        self.retry_client_reads(pg, ctx);
    }

    /// A write replaced missing ranges of an object.
    fn on_overwritten(&mut self, pg: &Scope<'_>, ctx: &mut Ctx<'_>, object: &ObjectId) {
        if self.is_waited_for(object) {
            self.note_recovered(ctx, object, &pg.history.missing, pg.members);
        }
    }
}

/// The parts of the placement group that clients' requests work on.
pub struct Scope<'a> {
    backend: &'a Backend,
    interval: &'a Interval,
    history: &'a mut History,
    pending: &'a mut Pending,
    push_reads: &'a mut PushReads,
    stats: &'a mut Stats,
    remap: &'a mut Remap,
    leases: &'a Leases,
    watches: &'a mut Watches,
    scrub_record: &'a ScrubRecord,
    members: &'a mut BTreeMap<OsdId, Member>,
    recovery: &'a mut Recovery,
    scrub: &'a mut Scrub,
    snap_trim: &'a mut SnapTrim,
    recount: &'a mut Option<Recount>,
}

impl Scope<'_> {
    fn recover(&mut self, ctx: &mut Ctx<'_>, ops: &mut ClientOps) {
        let mut scope = recovery::Scope {
            backend: self.backend,
            interval: self.interval,
            history: self.history,
            pending: self.pending,
            push_reads: self.push_reads,
            stats: self.stats,
            remap: self.remap,
            members: self.members,
            ops,
        };
        self.recovery.recover(&mut scope, ctx);
    }
    fn lease_holds(&self, now: Time) -> bool {
        self.members.values().all(|member| now < member.lease_until)
    }
    /// The primary reads what it stores.
    fn store(&mut self, ctx: &mut Ctx<'_>, mut txn: Transaction) {
        txn.is_read_here = true;
        self.pending.issue(txn, ctx.out);
    }
    /// See `History::repair_read`.
    fn repair_read(&mut self, ctx: &mut Ctx<'_>, error: &ReadError) -> bool {
        let Scope { backend, interval, members, recovery, .. } = self;
        let holders = Holders { backend, interval, members, recovery };
        let update = self.history.repair_read(ctx, &self.pending.unapplied, holders, error);
        let Some(Update { txn, objects }) = update else { return false };
        self.pending.unapplied.extend(objects);
        self.store(ctx, txn);
        true
    }
    /// Whether the other members can serve when this OSD leaves.
    fn can_do_without_us(&self) -> bool {
        let complete = self.members.values().filter(|member| member.missing.is_empty()).count();
        complete >= self.interval.min_size.max(1)
    }

    /// What no member has of the clones that a head becomes. An OSD that is away may have it, and would have
    /// it under the clone's name only.
    fn lacked_by_all(&self, txn: &Transaction) -> BTreeMap<ObjectId, Part> {
        if self.history.missing.is_empty() {
            return BTreeMap::new(); // as nearly always
        }
        let clones = txn.changes.iter().filter_map(|(_, change)| match change {
            Change::CloneFrom(StoredId::Object(clone)) if clone.snap != SnapId::HEAD => Some(clone),
            _ => None,
        });
        let lacked = |clone: &ObjectId| {
            let own = self.history.missing.part(clone);
            if self.backend.is_erasure() {
                return own;
            }
            let members = self.members.values().map(|member| (ShardId::NONE, &member.missing));
            self.backend.unavailable(own, clone, members, ShardId::NONE)
        };
        clones.map(|clone| (clone.clone(), lacked(clone))).filter(|(_, part)| !part.is_empty()).collect()
    }
}

/// Events for the machine, on the primary.
impl Pg {
    pub(super) fn ops_parts(&mut self) -> Option<(&mut ClientOps, Scope<'_>)> {
        let Phase::Active(active) = &mut self.phase else { return None };
        let Active { members, ops, recovery, snap_trim, scrub, recount } = &mut **active;
        let scope = Scope {
            backend: &self.backend,
            interval: &self.interval,
            history: &mut self.history,
            pending: &mut self.pending,
            push_reads: &mut self.push_reads,
            stats: &mut self.stats,
            remap: &mut self.remap,
            leases: &self.leases,
            watches: &mut self.watches,
            scrub_record: &self.scrub,
            members,
            recovery,
            scrub,
            snap_trim,
            recount,
        };
        Some((ops, scope))
    }

    pub fn on_active_op(&mut self, ctx: &mut Ctx<'_>, op: Box<ClientOp>) {
        if let Some((ops, mut scope)) = self.ops_parts() {
            ops.on_op(&mut scope, ctx, op);
        }
    }
    pub fn on_copied(&mut self, ctx: &mut Ctx<'_>, read: u64, result: Result<Copied, i32>) {
        if let Some((ops, mut scope)) = self.ops_parts() {
            ops.on_copied(&mut scope, ctx, read, result);
        }
    }
    /// A read of the store is done: for a push, for a scrub, or for a request.
    pub fn on_read(&mut self, ctx: &mut Ctx<'_>, read: u64, result: Result<Vec<Bytes>, ReadError>) {
        if self.gathers.is_local(read) {
            self.on_local_gathered(ctx, read, result);
        } else if self.on_served_read(ctx, read, &result) {
            // The primary has it.
        } else if self.push_reads.has(read) {
            self.on_push_read(ctx, read, result);
        } else if self.scrub.is_reading(read) {
            self.on_sum_read(ctx, read, result);
        } else if let Some((ops, mut scope)) = self.ops_parts() {
            ops.on_read(&mut scope, ctx, read, result);
        }
    }
    /// A member, or this OSD, has all writes up to that version durably.
    pub fn on_write_stored(&mut self, ctx: &mut Ctx<'_>, osd: OsdId, version: Version) {
        if let Some((ops, mut scope)) = self.ops_parts() {
            ops.stored_by(&mut scope, ctx, osd, version);
        }
    }
    /// Makes a write of the primary's own.
    pub fn submit(
        &mut self,
        ctx: &mut Ctx<'_>,
        entry: LogEntry,
        change: ObjectChange,
    ) -> Result<(), ReadError> {
        let Some((ops, mut scope)) = self.ops_parts() else { return Ok(()) };
        ops.submit(&mut scope, ctx, entry, change, (None, &Fetched::default()))
            .map_err(|unwritten| unwritten.1)
    }
    pub fn on_lease(&mut self, ctx: &mut Ctx<'_>, from: OsdId, until: Time) {
        if let Phase::Peering(peering) = &mut self.phase {
            peering.on_lease(from, until);
            return;
        }
        let Some((ops, mut scope)) = self.ops_parts() else { return };
        let Some(member) = scope.members.get_mut(&from) else { return };
        member.lease_until = member.lease_until.max(until);
        if !ops.waiting_for_lease.is_empty() && scope.lease_holds(ctx.now.mono) {
            ops.on_leases(&mut scope, ctx);
        }
    }
    /// See `ClientOps::note_recovered`.
    pub fn on_recovered(&mut self, ctx: &mut Ctx<'_>, object: &ObjectId) {
        if let Phase::Active(active) = &mut self.phase {
            active.ops.note_recovered(ctx, object, &self.history.missing, &active.members);
        }
    }
    /// The OSD is about to stop: it sends no reply any more that needs a lease.
    pub fn give_up_leases(&mut self) {
        self.leases.give_up();
    }
}

/// Whether this OSD or a member still lacks some of that part of an object. A member that lacks other parts
/// of the object as well does not count: those were acknowledged long ago and are no safer there than on the
/// others, and its disk may be full.
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
    // The client may not know yet that one is gone, and no trim would remove what is kept for it.
    snaps.retain(|snap| !removed.contains(snap.0));
    SnapContext { seq, snaps }
}

/// Whether the client was blocklisted while its request waited: the daemon that had it blocklisted relies on
/// what came since. The removal of its watches is our own request.
fn is_blocklisted(op: &ClientOp, map: &OsdMap) -> bool {
    op.conn != NOBODY && map.blocklisted_until(&op.sender.1).is_some()
}

/// Whether the request is about the placement group and not about an object.
fn is_about_pg(op: &ClientOp) -> bool {
    op.ops.iter().any(|op| op.op.is_about_group())
}

/// The reply to a write, made from its dup entry alone, so that a resend gets the same.
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
