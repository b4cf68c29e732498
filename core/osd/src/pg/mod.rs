//! One placement group as one OSD sees it: peering, ordering, replication, recovery, scrub.
//!
//! A `Pg` decides and never acts: its shard passes events in the order they happened, and carries out effects
//! in the order they were pushed. Read `PgEvent`, `PgEffect`, `Phase`, then `Pg::handle`.
//!
//! It is made of machines. Each has a state and methods of its own, and a `check` of its invariants that runs
//! after every event:
//!
//!   `history`      the summary, the log, the duplicate-op log, the missing set, and their record on disk
//!   `pending`      transactions and reads that the store has not finished, and what waits for them
//!   `backend`      the redundancy backend: what depends on how a pool stores its data
//!   `leases`       leases that were granted to primaries
//!   `watches`      watchers and notifies
//!   `remap`        which members the placement group requests (`pg_temp`)
//!   `stats`        what is counted for reports
//!   `scrub`        the record of scrubs, and the primary's scrub
//!   `recovery`     making every member whole; its `push` module sends and takes parts of objects on any
//!   holder
//!   `client_ops`   clients' requests on the primary
//!   `snap_trim`, `recount`   the primary's other work
//!
//! `interval` says which OSDs are members. `inventory_scan` and `completeness` serve `peering` and
//! `recovery`. `merge`, `listing`, `mark_lost`, `mark_complete` and `read_repair` hold one operation each,
//! and `unapplied` what is not in the view yet.
//!
//! `Phase` owns what exists only then: `peering` and `active` on the primary, `replica` on all other holders.
//! What a phase holds is dropped as a whole when an interval ends.
//!
//! No machine knows `Pg`. A method takes the parts that it needs as arguments, or as the `Scope` of its
//! module, and pushes effects; a change of the history is returned as an `Update`, which the caller stores.
//! `impl Pg` passes events to machines and does what concerns several of them: the beginning of an interval,
//! split and merge, and the path of a request. `status` and `query` only read.

mod active;
mod backend;
mod client_ops;
mod completeness;
pub(crate) mod history;
mod interval;
mod inventory_scan;
mod leases;
mod listing;
pub mod mark_complete;
pub mod mark_lost;
mod merge;
mod peering;
mod pending;
mod query;
mod read_repair;
mod recount;
mod recovery;
mod remap;
mod replica;
pub mod scrub;
mod snap_trim;
mod stats;
mod status;
mod unapplied;
mod watches;

use crate::op_tracker::{Access, Request, Steps};
use crate::ops::{Copied, FlaggedOp};
use crate::throttle::Budget;
use active::Active;
use backend::Backend;
use backend::erasure::gather::{Gathers, Served};
pub use client_ops::admission;
use client_ops::waiting_for_active::WaitingForActive;
use completeness::Completeness;
pub(crate) use history::log;
pub use history::range::PgRange;
pub use history::record;
use history::{History, Update};
pub use interval::Interval;
use inventory_scan::Page;
pub use leases::LEASE;
use leases::Leases;
use nacre_base::{Epoch, IntervalSet, Now, OsdId, PgId, SnapId, SpgId, Time};
use nacre_machine::{ConnId, Level, ReadError, StoreView};
use nacre_proto::maps::{OsdMap, split_children};
use nacre_proto::messages::peer::{PgInfo, PgLog, PgMsg};
use nacre_proto::messages::{OsdOp, OsdOpReply, PgRecord, WatchNotify};
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_proto::types::{CopySource, EntityAddr, EntityName, ObjectId, Op, ReqId};
use peering::Peering;
use pending::{Pending, WhenStored};
use record::{Record, RecordChanges};
use recovery::push::PushReads;
use remap::Remap;
use replica::{Deleting, Replica, Stray};
use scrub::ScrubRecord;
pub use scrub::{ScrubPlan, ScrubRequest};
use stats::Stats;
use std::collections::BTreeSet;
use std::sync::Arc;
use watches::{Watcher, Watches};

/// A client's request, taken apart.
#[derive(Clone, Debug)]
pub struct ClientOp {
    /// Counts requests as they arrive.
    pub seq: u64,
    pub conn: ConnId,
    pub tid: u64,
    /// Name and address of the client.
    pub sender: (EntityName, EntityAddr),
    pub reqid: ReqId,
    /// The head of the object, also if a snapshot is read.
    pub object: ObjectId,
    /// The snapshot to read; `HEAD` in writes.
    pub snap: SnapId,
    pub ops: Vec<FlaggedOp>,
    pub request: Arc<OsdOp>,
    pub steps: Steps,
    /// A read for a copy that another object waits for: it need not wait its turn, and must not,
    /// as two objects that are copied into each other would wait forever.
    pub for_copy: bool,
}

impl ClientOp {
    /// Snapshots whose clones must be here.
    fn snaps(&self) -> impl Iterator<Item = SnapId> {
        let rolled_back = self.ops.iter().filter_map(|op| match op.op {
            Op::Rollback { snap } => Some(snap),
            _ => None,
        });
        rolled_back.chain([self.snap]).filter(|snap| *snap < SnapId::HEAD)
    }
    fn is_about_clones(&self) -> bool {
        self.snaps().next().is_some()
    }
    pub fn is_about_watches(&self) -> bool {
        let watch = |op: &Op| {
            matches!(op, Op::Watch { .. } | Op::ListWatchers | Op::Notify { .. } | Op::NotifyAck { .. })
        };
        self.ops.iter().any(|op| watch(&op.op))
    }
    pub fn is_write(&self) -> bool {
        self.ops.iter().any(|op| op.is_write)
    }
    /// The op's entry in `dump_ops_in_flight`.
    pub fn request(&self) -> Request {
        let access = match (self.is_write(), self.ops.iter().all(|op| op.is_write)) {
            (false, _) => Access::Read,
            (true, true) => Access::Write,
            (true, false) => Access::Both,
        };
        let (client, addr) = self.sender;
        Request { op: self.request.clone(), client, addr, tid: self.tid, access, steps: self.steps }
    }
}

#[derive(Debug)]
pub enum PgEvent {
    /// A newer map; a new interval if there is one. Until the map says that this incarnation of the OSD is
    /// up, it serves no client.
    Map {
        interval: Option<Interval>,
        serving: bool,
    },
    /// The up set of the newest map; the interval is the same.
    Up {
        up: Vec<OsdId>,
        up_primary: Option<OsdId>,
    },
    /// Boxed, as events are moved several times; so are members' messages.
    Op(Box<ClientOp>),
    Peer {
        from: OsdId,
        interval: Epoch,
        msg: Box<PgMsg>,
    },
    /// A session with that OSD opened: earlier messages to it may have been lost.
    PeerOpened(OsdId),
    /// A client, or the network, ended its session.
    ClientHungUp(ConnId),
    /// The transaction with this number, and all before it, are durable.
    Stored(u64),
    Read {
        read: u64,
        result: Result<Vec<bytes::Bytes>, ReadError>,
    },
    Copied {
        read: u64,
        result: Result<Copied, i32>,
    },
    /// The activation record that the monitors have at that epoch.
    Record {
        epoch: Epoch,
        record: Option<PgRecord>,
    },
    /// Members may reply late to reads of their shards.
    LookAtGathers,
    /// Whether the monitors committed that the interval that began at the epoch has started.
    Activated {
        interval: Epoch,
        accepted: bool,
    },
    /// A replica granted a lease until then.
    Lease {
        from: OsdId,
        interval: Epoch,
        until: Time,
    },
    /// An operator declares unfound objects lost. Ceph: `mark_unfound_lost`.
    MarkLost {
        delete: bool,
    },
    /// A scrub was requested.
    ScrubRequest(ScrubRequest),
    /// The scrub scheduler started a scrub of this placement group.
    Scrub,
    /// An operator wants its recovery, or its backfill, to go before that of other placement groups, or no
    /// longer.
    Force {
        backfill: bool,
        on: bool,
    },
    /// Writes wait, as the placement group is to merge with another; or they continue.
    HoldWrites(bool),
    /// A few times a second.
    Tick,
    /// `PgEffect::Loop` came back: earlier changes show in the view.
    Loop,
}

#[derive(Debug)]
pub enum PgEffect {
    /// Over our own session with that OSD.
    Ask(OsdId, Box<PgMsg>),
    /// Over its session with us.
    Answer(OsdId, Box<PgMsg>),
    Reply {
        conn: ConnId,
        tid: u64,
        reply: Box<OsdOpReply>,
        /// What was asked.
        request: Box<Request>,
    },
    /// To a watcher or a notifier.
    Notify {
        conn: ConnId,
        message: Box<WatchNotify>,
    },
    /// The transactions of a placement group are numbered from one.
    Store(Transaction),
    Read {
        read: u64,
        object: Box<ObjectId>,
        extents: Vec<(u64, u64)>,
        /// Read from the device, bypassing all caches.
        device: bool,
    },
    /// Another object, of whichever placement group.
    Copy {
        read: u64,
        source: Box<CopySource>,
    },
    QueryRecord,
    Activate(PgRecord),
    /// The monitors should let these OSDs (`pg_temp`) serve the placement group that was activated so.
    RequestPgTemp(PgRecord, Vec<OsdId>),
    /// Requests leases now, before the next round.
    LeasesNow,
    /// Report to the monitors soon.
    Report,
    Loop,
    /// Soon it is to be seen whether members reply late (`PgEvent::LookAtGathers`).
    LookAtGathers,
    /// The placement group is deleted here.
    Gone,
    Log(Level, String),
    /// For the cluster's log: how bad (debug 0, info 1, warning 3, error 4), and what.
    ClusterLog(u8, String),
}

impl PgEffect {
    fn ask(to: OsdId, msg: PgMsg) -> PgEffect {
        PgEffect::Ask(to, Box::new(msg))
    }
    fn answer(to: OsdId, msg: PgMsg) -> PgEffect {
        PgEffect::Answer(to, Box::new(msg))
    }
}

/// What an event is handled with.
pub struct Ctx<'a> {
    pub now: Now,
    /// Counts events of the whole daemon: the view does not change within one.
    pub turn: u64,
    pub store: &'a dyn StoreView,
    pub map: Arc<OsdMap>,
    /// The cluster's, see `cluster_format`.
    pub format: u32,
    pub budget: &'a Budget,
    pub out: &'a mut Vec<PgEffect>,
}

impl Ctx<'_> {
    fn log(&mut self, level: Level, text: String) {
        self.out.push(PgEffect::Log(level, text));
    }
}

enum Phase {
    /// Not a member of the acting set; replies to queries until the primary has it removed.
    Stray(Stray),
    Replica(Replica),
    /// The primary, finding the authoritative history.
    Peering(Box<Peering>),
    /// The primary, serving.
    Active(Box<Active>),
    Deleting(Deleting),
}

pub struct Pg {
    pub id: PgId,
    me: OsdId,
    interval: Interval,
    backend: Backend,
    /// Clients send again the operations that they sent by older maps.
    last_primary_change: Epoch,
    history: History,
    pending: Pending,
    phase: Phase,
    waiting_for_active: WaitingForActive,
    leases: Leases,
    remap: Remap,
    push_reads: PushReads,
    gathers: Gathers,
    served: Served,
    scrub: ScrubRecord,
    watches: Watches,
    stats: Stats,
}

/// The list of placement groups on this OSD is the keys of an omap.
pub fn pg_list() -> StoredId {
    StoredId::meta("groups")
}
pub fn pg_list_key(pg: PgId) -> nacre_base::Name {
    pg.to_string().into()
}

impl Pg {
    /// A placement group that is new here; writes its empty record.
    pub fn create(id: PgId, me: OsdId, interval: Interval, pg_num: u32, ctx: &mut Ctx<'_>) -> Pg {
        let info = PgInfo { pg_num, ..PgInfo::default() };
        let record = Record::new(info);
        let mut txn = Transaction::new();
        record.store(id, &mut txn);
        txn.push(pg_list(), Change::OmapSet([(pg_list_key(id), bytes::Bytes::new())].into()));
        let mut pg = Pg::new(id, me, record, interval);
        pg.scrub.begin(ctx.now.wall);
        pg.store(ctx, txn);
        pg
    }

    /// A placement group whose record cannot be read: only its objects are here. Writes another record.
    pub fn load_remains(
        id: PgId,
        me: OsdId,
        interval: Interval,
        pg_num: u32,
        now: Now,
        txn: &mut Transaction,
    ) -> Pg {
        let record = Record::of_remains(pg_num);
        txn.push(StoredId::Pg(SpgId::replicated(id)), Change::Remove);
        record.store(id, txn);
        let mut pg = Pg::loaded(id, me, record, interval, now);
        pg.scrub.begin(now.wall);
        pg
    }

    /// The leases that the daemon's last incarnation granted are not known, so the longest possible one
    /// counts.
    fn loaded(id: PgId, me: OsdId, record: Record, interval: Interval, now: Now) -> Pg {
        let known = interval.start;
        let mut pg = Pg::new(id, me, record, interval);
        pg.last_primary_change = known;
        pg.leases.assume_granted(now.mono);
        pg
    }

    /// A placement group from before the daemon's start.
    pub fn load(
        id: PgId,
        me: OsdId,
        interval: Interval,
        now: Now,
        store: &dyn StoreView,
    ) -> Result<Option<Pg>, ReadError> {
        let Some(record) = Record::load(store, id)? else { return Ok(None) };
        let mut pg = Pg::loaded(id, me, record, interval, now);
        pg.scrub.load(store, now.wall)?;
        Ok(Some(pg))
    }

    fn new(id: PgId, me: OsdId, record: Record, interval: Interval) -> Pg {
        Pg {
            id,
            me,
            last_primary_change: interval.earliest,
            interval,
            backend: Backend::Replicated,
            history: History::new(id, me, record),
            pending: Pending::default(),
            phase: Phase::Stray(Stray::default()),
            waiting_for_active: WaitingForActive::default(),
            leases: Leases::default(),
            remap: Remap::default(),
            push_reads: PushReads::default(),
            gathers: Gathers::default(),
            served: Served::default(),
            scrub: ScrubRecord::new(id),
            watches: Watches::new(id, me),
            stats: Stats::default(),
        }
    }

    /// Watches that are alive, as far as this primary knows.
    pub fn watchers(&self) -> impl Iterator<Item = Watcher<'_>> {
        self.watches.live()
    }

    /// How complete the copies are, as far as this OSD knows.
    fn completeness(&self) -> Completeness<'_> {
        let members = match &self.phase {
            Phase::Active(active) => Some(&active.members),
            _ => None,
        };
        Completeness { me: self.me, interval: &self.interval, own: &self.history.missing, members }
    }
    /// Whether every member is complete, and the number of members is the pool's `size`.
    pub fn is_clean(&self) -> bool {
        self.completeness().is_clean()
    }
    pub fn backfill_targets(&self) -> impl Iterator<Item = OsdId> {
        self.interval.backfill_targets()
    }

    /// Whether others can serve when this OSD leaves: as far as is known here, which is all on the primary.
    pub fn can_do_without_us(&self) -> bool {
        let members = || self.interval.acting.iter().filter(|osd| osd.is_some() && **osd != self.me);
        let others = match &self.phase {
            Phase::Active(active) => members().filter(|osd| active.has_all(**osd)).count(),
            // Or its copy does not count.
            Phase::Peering(peering) if !self.history.info.incomplete => {
                members().filter(|osd| peering.has_all(**osd)).count()
            }
            _ => members().count(),
        };
        !self.interval.is_member(self.me) || others >= self.interval.min_size.max(1)
    }

    pub fn interval(&self) -> &Interval {
        &self.interval
    }
    /// Bytes of memory that its logs take, roughly.
    pub fn log_memory(&self) -> usize {
        self.history.memory()
    }
    pub fn pg_num(&self) -> u32 {
        self.history.info.pg_num
    }
    /// Requests sent by older maps than this are not ours to answer.
    pub fn last_primary_change(&self) -> Epoch {
        self.last_primary_change
    }

    /// Since when this OSD is its primary without serving.
    pub fn waits_since(&self) -> Option<Time> {
        self.waiting_for_active.since().filter(|_| matches!(self.phase, Phase::Peering(_)))
    }
    pub fn range(&self) -> &PgRange {
        &self.history.range
    }
    /// The sessions of the requests that wait until the placement group is active, and to which shard those
    /// were sent.
    pub fn sessions_waiting(&self) -> BTreeSet<(ConnId, SpgId)> {
        self.waiting_for_active.iter().map(|op| (op.conn, op.request.spg)).collect()
    }
    pub fn drop_waiting(&mut self, conn: ConnId, spg: Option<SpgId>) {
        self.waiting_for_active.drop_session(conn, spg);
    }

    pub fn handle(&mut self, ctx: &mut Ctx<'_>, event: PgEvent) {
        if self.pending.begin_turn(ctx.turn) {
            self.history.begin_turn();
        }
        match event {
            PgEvent::Map { interval, serving } => self.on_map(ctx, interval, serving),
            PgEvent::Up { up, up_primary } => {
                (self.interval.up, self.interval.up_primary) = (up, up_primary);
            }
            PgEvent::Op(op) => self.on_op(ctx, op),
            PgEvent::Peer { from, interval, msg } => {
                if self.interval.primary == Some(from) {
                    self.align_interval_start(ctx, interval);
                }
                // One of the two did not see all maps: the stray learns from our reply what the interval is
                // called here.
                let mistaken =
                    matches!(*msg, PgMsg::StrayNotify { .. }) && interval >= self.interval.earliest;
                if interval == self.interval.start || mistaken {
                    self.on_peer(ctx, from, *msg);
                }
            }
            PgEvent::PeerOpened(osd) => self.on_peer_opened(ctx, osd),
            PgEvent::ClientHungUp(conn) => self.watches.client_hung_up(ctx.now.mono, conn),
            PgEvent::Stored(number) => self.on_stored(ctx, number),
            PgEvent::Read { read, result } => self.on_read(ctx, read, result),
            PgEvent::Copied { read, result } => self.on_copied(ctx, read, result),
            PgEvent::Record { epoch, record } => self.on_record(ctx, epoch, record),
            PgEvent::Activated { interval, accepted } => {
                if interval == self.interval.start {
                    self.on_activated(ctx, accepted);
                }
            }
            PgEvent::Lease { from, interval, until } => {
                if interval == self.interval.start {
                    self.on_lease(ctx, from, until);
                }
            }
            PgEvent::MarkLost { delete } => self.mark_lost(ctx, delete),
            PgEvent::ScrubRequest(request) => {
                if self.interval.primary == Some(self.me) {
                    self.scrub.request(request);
                }
            }
            PgEvent::Scrub => self.start_scrub(ctx),
            PgEvent::Force { backfill, on } => self.force(ctx, backfill, on),
            PgEvent::HoldWrites(hold) => self.hold_writes(ctx, hold),
            PgEvent::Tick => self.on_tick(ctx),
            PgEvent::Loop => self.on_loop(ctx),
            PgEvent::LookAtGathers => self.hedge(ctx),
        }
        self.start_gathers(ctx);
        self.note_state(ctx);
        self.check(ctx.now.mono);
    }

    // ---- maps ----

    fn on_map(&mut self, ctx: &mut Ctx<'_>, interval: Option<Interval>, serving: bool) {
        if let Some(interval) = interval {
            self.start_interval(ctx, interval, serving);
        }
        self.release_writes(ctx);
        if ctx.map.pool(self.id.pool).is_none() && !matches!(self.phase, Phase::Deleting(_)) {
            self.start_deleting(ctx);
        }
        if matches!(self.phase, Phase::Peering(_)) {
            self.ask_around(ctx);
            self.advance_peering(ctx);
        }
        self.request_pg_temp(ctx);
    }

    /// Messages of the primary say when the interval began. A daemon that missed maps cannot know it. A
    /// primary that did takes the first map that it saw for the beginning, and peers by that: as no other
    /// primary can have been there since, an interval may begin there as well.
    fn align_interval_start(&mut self, ctx: &mut Ctx<'_>, began: Epoch) {
        let Interval { start, earliest, .. } = self.interval;
        if began > start {
            // Not in the future: such messages wait for their map.
            let serving = !matches!(self.phase, Phase::Stray(_));
            let interval = Interval { start: began, earliest: began, ..self.interval.clone() };
            self.start_interval(ctx, interval, serving);
        } else if began >= earliest {
            // An older message comes from before this interval.
            (self.interval.start, self.interval.earliest) = (began, began);
        }
    }

    /// Whatever was going on in the last interval is over.
    fn start_interval(&mut self, ctx: &mut Ctx<'_>, interval: Interval, serving: bool) {
        let was_primary = self.interval.primary == Some(self.me);
        let is_primary = serving && interval.primary == Some(self.me);
        let old = std::mem::replace(&mut self.interval, interval);
        if old.primary != self.interval.primary {
            self.last_primary_change = self.interval.earliest;
        }
        if matches!(self.phase, Phase::Deleting(_)) && !(serving && self.interval.is_member(self.me)) {
            return; // continues, whichever OSDs have the placement group now
        }
        let phase = std::mem::replace(&mut self.phase, Phase::Stray(Stray::default()));
        let mut ops: Vec<Box<ClientOp>> = self.waiting_for_active.take().collect();
        if let Phase::Active(active) = phase {
            ops.extend(active.ops.into_ops());
        }
        if was_primary && is_primary && self.last_primary_change < self.interval.start {
            // The clients see the same primary and do not send again.
            ops.sort_by_key(|op| op.seq);
            self.waiting_for_active.refill(ops, &ctx.budget.waiting);
        }
        if !is_primary || old.primary != self.interval.primary {
            self.watches.clear(); // clients come back to the new primary by themselves
        }
        self.watches.begin_interval();
        self.pending.forget_deferred();
        self.push_reads.clear();
        self.gathers.clear();
        self.served.clear();
        self.scrub.forget_reads();
        self.take_backend(ctx);
        self.phase = if is_primary {
            Phase::Peering(Box::new(Peering::new()))
        } else if serving && self.interval.is_member(self.me) {
            Phase::Replica(Replica::default())
        } else {
            Phase::Stray(Stray::default())
        };
        self.remap.restart(is_primary);
        if !is_primary {
            self.remap.forget_forced();
            self.waiting_for_active.end();
        }
        if is_primary {
            self.start_peering(ctx);
        }
    }

    /// Gives the children that a larger `pg_num` makes their parts, in one transaction.
    pub fn split(&mut self, ctx: &mut Ctx<'_>, pg_num: u32) -> Vec<Pg> {
        let children: Vec<PgId> = split_children(self.id, self.history.info.pg_num, pg_num).collect();
        let parts = 1 + children.len() as u64;
        self.history.info.pg_num = pg_num;
        self.history.range = PgRange::new(self.id, pg_num);
        if !children.is_empty() {
            // An even share until the objects are counted.
            self.history.info.objects /= parts;
            self.history.info.clones /= parts;
            self.history.info.bytes /= parts;
            self.history.info.estimated = true;
            self.last_primary_change = ctx.map.epoch;
            // Clients send everything again after a split, and the new interval follows at once.
            self.waiting_for_active.clear();
            self.watches.clear();
            self.phase = Phase::Stray(Stray::default());
        }
        let mut txn = Transaction::new();
        let mut changes = RecordChanges::new(self.id);
        self.history.forget_dirty(&mut changes);
        changes.info(&self.history.info);
        let mut pgs = Vec::new();
        for id in children {
            let record = self.history.split_off(id);
            record.log.versions().for_each(|version| changes.no_entry(version));
            record.missing.iter().for_each(|(object, _)| changes.missing(object, None));
            record.store(id, &mut txn);
            txn.push(pg_list(), Change::OmapSet([(pg_list_key(id), bytes::Bytes::new())].into()));
            let mut pg = Pg::new(id, self.me, record, self.interval.clone());
            pg.leases = self.leases.for_child();
            pg.remap.inherit_forced(&self.remap);
            pg.scrub.inherit(&self.scrub, &mut txn);
            pgs.push(pg);
        }
        changes.into_txn(&mut txn);
        self.store(ctx, txn);
        pgs
    }

    /// A transaction of a child's own, so that the child learns when its parent's transaction is durable.
    pub fn after_split(&mut self, ctx: &mut Ctx<'_>) {
        let mut txn = Transaction::new();
        self.history.record_info(&mut txn);
        self.store(ctx, txn);
    }

    // ---- the disk ----

    fn store(&mut self, ctx: &mut Ctx<'_>, mut txn: Transaction) {
        txn.is_read_here = self.interval.primary == Some(self.me);
        self.pending.issue(txn, ctx.out);
    }
    /// Stores a change of the history.
    fn apply(&mut self, ctx: &mut Ctx<'_>, update: Update) {
        self.pending.unapplied.extend(update.objects);
        if !update.txn.is_empty() {
            self.store(ctx, update.txn);
        }
    }
    /// Does something once all that was stored so far is durable.
    fn once_durable(&mut self, ctx: &mut Ctx<'_>, what: WhenStored) {
        if self.pending.defer(what) {
            self.run_stored(ctx);
        }
    }
    fn on_stored(&mut self, ctx: &mut Ctx<'_>, number: u64) {
        self.pending.on_stored(number);
        self.run_stored(ctx);
    }
    fn run_stored(&mut self, ctx: &mut Ctx<'_>) {
        while let Some(what) = self.pending.pop_stored() {
            match what {
                WhenStored::Write(version) => self.on_write_stored(ctx, self.me, version),
                WhenStored::OwnLogDurable => {
                    self.on_log_adopted(ctx, self.me, self.history.info.last_update, Vec::new());
                }
                WhenStored::Answer(to, msg) => ctx.out.push(PgEffect::Answer(to, msg)),
                WhenStored::SendMissing => self.send_missing(ctx),
                WhenStored::Pulled(slot) => drop(slot),
            }
        }
    }

    // ---- what every phase does ----

    fn on_op(&mut self, ctx: &mut Ctx<'_>, op: Box<ClientOp>) {
        match self.phase {
            Phase::Active(_) => self.on_active_op(ctx, op),
            _ => self.waiting_for_active.push(op, &ctx.budget.waiting),
        }
    }

    fn on_tick(&mut self, ctx: &mut Ctx<'_>) {
        match self.phase {
            Phase::Stray(_) => self.stray_tick(ctx),
            Phase::Peering(_) => self.peering_tick(ctx),
            Phase::Active(_) => self.active_tick(ctx),
            Phase::Replica(_) => self.replica_tick(ctx),
            Phase::Deleting(_) => {}
        }
    }

    fn on_loop(&mut self, ctx: &mut Ctx<'_>) {
        match self.phase {
            Phase::Active(_) => self.active_loop(ctx),
            Phase::Peering(_) => self.peering_loop(ctx),
            Phase::Deleting(_) => self.delete_some(ctx),
            _ => {}
        }
    }

    fn on_peer_opened(&mut self, ctx: &mut Ctx<'_>, osd: OsdId) {
        match self.phase {
            Phase::Peering(_) => self.peering_opened(ctx, osd),
            Phase::Active(_) => self.active_opened(ctx, osd),
            Phase::Replica(_) => self.replica_opened(ctx, osd),
            _ => {}
        }
    }

    fn on_peer(&mut self, ctx: &mut Ctx<'_>, from: OsdId, msg: PgMsg) {
        if let PgMsg::Log(log) | PgMsg::AdoptLog(log) = &msg
            && !is_sound(log, &self.history.range)
        {
            ctx.log(Level::Error, format!("pg {}: osd.{from} sent an invalid log", self.id));
            return;
        }
        match msg {
            PgMsg::InfoQuery => self.answer_info(ctx, from),
            PgMsg::LogQuery => self.answer_log(ctx, from),
            PgMsg::InventoryQuery { from: start } => self.answer_inventory(ctx, from, &start),
            PgMsg::DirtyQuery { since, from: start } => self.answer_dirty(ctx, from, since, start),
            PgMsg::Pull { id, object, part } => self.on_pull(ctx, from, id, object, part),
            PgMsg::Info { info, lease_left_ms, is_lacking } => {
                self.on_info(ctx, from, (info, is_lacking), lease_left_ms);
            }
            PgMsg::Log(log) => self.on_log(ctx, from, log),
            PgMsg::Inventory { from: start, objects, next } => {
                self.on_page(ctx, from, Page::Names { from: start, objects, next });
            }
            PgMsg::Dirty { from: start, reaches, objects, next } => {
                self.on_page(ctx, from, Page::Dirty { from: start, reaches, objects, next });
            }
            PgMsg::AdoptLog(log) => self.on_adopt_log(ctx, from, log),
            PgMsg::LogAdopted { at, missing } => self.on_log_adopted(ctx, from, at, missing),
            PgMsg::RepOp(op) => self.on_rep_op(ctx, from, op),
            PgMsg::RepAck { version } => self.on_write_stored(ctx, from, version),
            PgMsg::PullRefused { id, .. } => self.on_pull_refused(ctx, from, id),
            PgMsg::Push(push) => self.on_push(ctx, from, *push),
            PgMsg::Pushed { id, object } => self.on_pushed(ctx, from, &object, id, &IntervalSet::new()),
            PgMsg::PushedWithout { id, object, data } => self.on_pushed(ctx, from, &object, id, &data),
            PgMsg::StrayNotify { info } => self.on_stray_notify(ctx, from, info),
            PgMsg::StrayRemove => self.on_stray_remove(ctx, from),
            PgMsg::Scrub(msg) => self.on_scrub(ctx, from, *msg),
            PgMsg::SubRead { id, object, at, extents } => {
                self.on_sub_read(ctx, from, id, object, at, extents);
            }
            PgMsg::SubReadDone { id, data } => self.on_sub_read_done(ctx, from, id, data),
            PgMsg::Committed { to } => self.on_committed(ctx, from, to),
        }
    }

    /// The invariants of every part.
    fn check(&self, now: Time) {
        self.history.check();
        self.pending.check();
        self.leases.check(now);
        self.watches.check();
        self.scrub.check();
        self.gathers.check();
        match &self.phase {
            Phase::Peering(peering) => peering.check(self.me),
            Phase::Active(active) => {
                active.check(&self.history);
            }
            _ => {}
        }
    }
}

/// Whether a log from outside keeps the rules that logs keep.
fn is_sound(log: &PgLog, range: &PgRange) -> bool {
    let mut last = log.after;
    let ordered = log.entries.iter().all(|entry| {
        let ok = last < entry.version && entry.touched().all(|(object, ..)| range.contains(object));
        last = entry.version;
        ok
    });
    let answers_fit = log.answers.0.last().is_none_or(|newest| newest.version <= log.info.log_tail);
    ordered && answers_fit && last <= log.info.last_update && log.info.log_tail <= log.after
}
