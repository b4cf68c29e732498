//! One placement group as one OSD sees it: peering, ordering, replication, recovery.
//!
//! A `Pg` decides and never does: its shard passes events in the order they happened and carries
//! out effects in the order they were pushed. Read `PgEvent`, `PgEffect`, `Phase`, then
//! `Pg::handle`. What a phase does is in its own file: `peering` and `active` on the primary,
//! `replica` on the others (and whoever else holds the group).
//!
//! Invariants, asserted by `Pg::check` after every event:
//!   - the newest log entry is `info.last_update` or before it, the oldest after `info.log_tail`
//!   - on the primary every write in flight is in the log, in order, above what is committed
//!   - nothing is said that depends on the disk before the disk has it (`when_stored`)

mod active;
pub mod admission;
mod clone_overlap;
mod dirty_map;
mod dups;
mod inventory_scan;
mod leases;
mod listing;
pub(crate) mod log;
mod log_merge;
pub mod mark_complete;
pub mod mark_lost;
mod merge;
pub(crate) mod missing;
mod peering;
mod push;
mod query;
mod range;
mod read_repair;
pub mod record;
mod recovery;
mod remap;
mod replica;
pub mod scrub;
mod snap_trim;
mod stale_view;
mod status;
mod unapplied;
mod waiting_for_active;
mod watches;

use crate::op_tracker::{Access, Request, Steps};
use crate::ops::{Copied, FlaggedOp};
use crate::throttle::{Budget, WorkSlot};
use active::Active;
use dirty_map::UnappliedDirty;
use dups::DupLog;
use inventory_scan::Page;
use leases::GrantedLeases;
use log::Log;
use missing::Missing;
use nacre_base::{Epoch, IntervalSet, Now, OsdId, PgId, SnapId, SpgId, Time, Utime, Version};
use nacre_machine::{ConnId, Level, ReadError, StoreView};
use nacre_proto::maps::{OsdMap, UpActing, split_children};
use nacre_proto::messages::peer::{PgInfo, PgLog, PgMsg};
use nacre_proto::messages::scrub::ScrubState;
use nacre_proto::messages::{OsdOp, OsdOpReply, PgCounts, PgRecord, WatchNotify};
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_proto::types::{CopySource, EntityAddr, EntityName, ObjectId, Op, ReqId};
use peering::Peering;
use push::PushRead;
pub use range::PgRange;
use record::{Record, RecordChanges};
use remap::{Forced, Remap};
use replica::{Deleting, Replica, Stray};
pub use scrub::{ScrubPlan, ScrubRequest};
pub use scrub::{SumRead, load_state};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use unapplied::Unapplied;
use waiting_for_active::WaitingForActive;
use watches::Watches;

/// How long a replica's promise lasts, counted from when the primary asked for it.
pub const LEASE: Duration = Duration::from_millis(800);

/// A client's request, taken apart.
#[derive(Clone, Debug)]
pub struct ClientOp {
    /// Counts requests as they arrive.
    pub seq: u64,
    pub conn: ConnId,
    pub tid: u64,
    /// Who asks, and from where.
    pub sender: (EntityName, EntityAddr),
    pub reqid: ReqId,
    /// Its head, whichever snapshot is read.
    pub object: ObjectId,
    /// What is read; `HEAD` in writes.
    pub snap: SnapId,
    pub ops: Vec<FlaggedOp>,
    pub request: Arc<OsdOp>,
    pub steps: Steps,
    /// A read for a copy that another object waits for: it need not wait its turn, and must not,
    /// as two objects that are copied into each other would wait for ever.
    pub for_copy: bool,
}

impl ClientOp {
    /// Of which snapshots something must be here: the clones that have them.
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
    /// What people may want to know of it.
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

/// Who has the group, and since when. Everybody computes the same from the maps. Only `up` and
/// `up_primary` may change within one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interval {
    pub start: Epoch,
    pub up: Vec<OsdId>,
    pub up_primary: Option<OsdId>,
    pub acting: Vec<OsdId>,
    pub primary: Option<OsdId>,
    /// Of the pool: how many copies there should be, and must be for I/O.
    pub size: usize,
    pub min_size: usize,
    /// It may have begun as early as this, as maps before `start` were not seen. The primary's word for
    /// when it began is everybody's: see `Pg::agree`.
    pub earliest: Epoch,
}

impl Interval {
    /// The one that is as the map says, and began with it or, if maps were not seen, after `earliest`.
    pub fn new(earliest: Epoch, placed: UpActing, map: &OsdMap, pg: PgId) -> Interval {
        let UpActing { up, up_primary, acting, acting_primary, .. } = placed;
        let (size, min_size) = map.pool(pg.pool).map_or((0, 0), |pool| (pool.size, pool.min_size));
        Interval {
            start: map.epoch,
            up,
            up_primary,
            acting,
            primary: acting_primary,
            size: size.into(),
            min_size: min_size.into(),
            earliest,
        }
    }
    /// Whether nobody is to come or go: those whom CRUSH wants serve and, where it finds too few, others with them.
    pub fn is_settled(&self) -> bool {
        let short = self.up.len() < self.size && self.acting.len() <= self.size;
        self.acting == self.up || (short && self.acting.starts_with(&self.up))
    }
    fn is_member(&self, osd: OsdId) -> bool {
        self.acting.contains(&osd)
    }
}

#[derive(Debug)]
pub enum PgEvent {
    /// A newer map; a new interval if there is one. Until the map says that this life of the OSD is
    /// up, it serves nobody.
    Map {
        interval: Option<Interval>,
        serving: bool,
    },
    /// Whom CRUSH wants as of the newest map; the interval is the same.
    Up {
        up: Vec<OsdId>,
        up_primary: Option<OsdId>,
    },
    /// Boxed, as events are passed on from hand to hand; so is what members say.
    Op(Box<ClientOp>),
    Peer {
        from: OsdId,
        interval: Epoch,
        msg: Box<PgMsg>,
    },
    /// Messages to it may have been lost; from now on they arrive.
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
    /// What the monitors, at that epoch, know of the group's past.
    Record {
        epoch: Epoch,
        record: Option<PgRecord>,
    },
    /// Whether the monitors committed that the interval that began at the epoch has started.
    Activated {
        interval: Epoch,
        accepted: bool,
    },
    /// A replica's promise lasts until then.
    Lease {
        from: OsdId,
        interval: Epoch,
        until: Time,
    },
    /// An operator declares lost what nobody has.
    MarkLost {
        delete: bool,
    },
    /// Somebody wants the copies compared.
    ScrubRequest(ScrubRequest),
    /// It is this group's turn for it.
    Scrub,
    /// An operator wants what it lacks, or its moving, to go before other groups', or no longer.
    Force {
        backfill: bool,
        on: bool,
    },
    /// Writes wait, as the group is to become one with another; or they go on.
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
    /// The transactions of a group are numbered from one.
    Store(Transaction),
    Read {
        read: u64,
        object: Box<ObjectId>,
        extents: Vec<(u64, u64)>,
        /// From the device itself, past every cache.
        device: bool,
    },
    /// Another object, of whatever group.
    Copy {
        read: u64,
        source: Box<CopySource>,
    },
    QueryRecord,
    Activate(PgRecord),
    /// The monitors should let these serve the group that was activated so.
    RequestPgTemp(PgRecord, Vec<OsdId>),
    /// Do not wait for the next round to ask for leases.
    LeasesNow,
    /// The monitors should hear of the group soon.
    Report,
    Loop,
    /// The group is no more here.
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
    pub budget: &'a Budget,
    pub out: &'a mut Vec<PgEffect>,
}

impl Ctx<'_> {
    fn log(&mut self, level: Level, text: String) {
        self.out.push(PgEffect::Log(level, text));
    }
}

enum Phase {
    /// Not a member of the acting set; answers questions until it is told to go.
    Stray(Stray),
    Replica(Replica),
    /// The primary, finding out what the group's content is.
    Peering(Box<Peering>),
    /// The primary, serving.
    Active(Box<Active>),
    Deleting(Deleting),
}

/// What to do once the disk has something.
enum WhenStored {
    /// The primary's own part of a write.
    Write(Version),
    /// The primary's own log is the group's.
    OwnMerge,
    Answer(OsdId, Box<PgMsg>),
    /// The replica's log is the group's.
    Merged,
    /// What was pulled: until then it takes memory, and the next one waits.
    Pulled(WorkSlot),
}

pub struct Pg {
    pub id: PgId,
    me: OsdId,
    range: PgRange,
    info: PgInfo,
    log: Log,
    /// Requests whose entries the log has no more.
    dups: DupLog,
    missing: Missing,
    /// See `record`.
    is_untrusted: bool,
    interval: Interval,
    /// Operations that clients sent by older maps are sent again by them.
    last_primary_change: Epoch,
    phase: Phase,
    /// They run once the group is active.
    waiting_for_active: WaitingForActive,
    /// Since when clients wait for us to serve it.
    waits_since: Option<Time>,
    issued: u64,
    durable: u64,
    when_stored: VecDeque<(u64, WhenStored)>,
    /// What older primaries may rely on.
    leases: GrantedLeases,
    /// We answer nothing more that needs a lease.
    leases_given_up: bool,
    /// Snapshots for which clones were made and the monitors were not told.
    new_snaps: IntervalSet,
    /// How it becomes CRUSH's members that have the group.
    remap: Remap,
    forced: Forced,
    /// Parts of objects that are being read for someone.
    push_reads: BTreeMap<u64, PushRead>,
    /// Objects of which some could not be read for others, as the log says.
    reported_unreadable: BTreeSet<ObjectId>,
    last_read: u64,
    /// Objects changed in this turn: the view shows them as they were before it.
    unapplied: Unapplied,
    /// How many transactions of this group the view shows.
    viewed: u64,
    /// What this turn made of the map of what changed before the log.
    unapplied_dirty: UnappliedDirty,
    counts: PgCounts,
    last_change: Utime,
    last_active: Utime,
    last_clean: Utime,
    reported_state: u64,
    watches: Watches,
    /// Pieces of objects that are being read to be compared.
    scrub_reads: BTreeMap<u64, SumRead>,
    scrub_state: ScrubState,
    scrub_unsaved: bool,
    scrub_wanted: Option<ScrubRequest>,
}

/// The list of groups on this OSD is the keys of an omap.
pub fn pg_list() -> StoredId {
    StoredId::meta("groups")
}
pub fn pg_list_key(pg: PgId) -> nacre_base::Name {
    pg.to_string().into()
}

impl Pg {
    /// A group that is new here; writes its empty record.
    pub fn create(id: PgId, me: OsdId, interval: Interval, pg_num: u32, ctx: &mut Ctx<'_>) -> Pg {
        let info = PgInfo { pg_num, ..PgInfo::default() };
        let record = Record::new(info);
        let mut txn = Transaction::new();
        record.store(id, &mut txn);
        txn.push(pg_list(), Change::OmapSet([(pg_list_key(id), bytes::Bytes::new())].into()));
        let mut pg = Pg::new(id, me, record, interval);
        pg.begin_scrub_state(ctx.now.wall);
        pg.store(ctx, txn);
        pg
    }

    /// A group whose record cannot be read: what is here are objects. Writes another one.
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
        pg.begin_scrub_state(now.wall);
        pg
    }

    /// What it granted in the daemon's last life is not known, so it is taken to be the most that it can be.
    fn loaded(id: PgId, me: OsdId, record: Record, interval: Interval, now: Now) -> Pg {
        let known = interval.start;
        let mut pg = Pg::new(id, me, record, interval);
        pg.last_primary_change = known;
        pg.leases.grant(now.mono, None, now.mono + LEASE);
        pg
    }

    /// A group from before the daemon's start.
    pub fn load(
        id: PgId,
        me: OsdId,
        interval: Interval,
        now: Now,
        store: &dyn StoreView,
    ) -> Result<Option<Pg>, ReadError> {
        let Some(record) = Record::load(store, id)? else { return Ok(None) };
        let mut pg = Pg::loaded(id, me, record, interval, now);
        match load_state(store, id)? {
            Some(state) => pg.scrub_state = state,
            None => pg.begin_scrub_state(now.wall),
        }
        Ok(Some(pg))
    }

    fn new(id: PgId, me: OsdId, record: Record, interval: Interval) -> Pg {
        let Record { info, log, dups, missing, is_untrusted } = record;
        Pg {
            id,
            me,
            range: PgRange::new(id, info.pg_num),
            info,
            log,
            dups,
            missing,
            is_untrusted,
            last_primary_change: interval.earliest,
            interval,
            phase: Phase::Stray(Stray::default()),
            waiting_for_active: WaitingForActive::default(),
            waits_since: None,
            issued: 0,
            durable: 0,
            when_stored: VecDeque::new(),
            leases: GrantedLeases::default(),
            leases_given_up: false,
            new_snaps: IntervalSet::new(),
            remap: Remap::default(),
            forced: Forced::default(),
            push_reads: BTreeMap::new(),
            reported_unreadable: BTreeSet::new(),
            last_read: 0,
            unapplied: Unapplied::default(),
            viewed: 0,
            unapplied_dirty: UnappliedDirty::default(),
            counts: PgCounts::default(),
            last_change: Utime::ZERO,
            last_active: Utime::ZERO,
            last_clean: Utime::ZERO,
            reported_state: 0,
            watches: Watches::default(),
            scrub_reads: BTreeMap::new(),
            scrub_state: ScrubState::default(),
            scrub_unsaved: false,
            scrub_wanted: None,
        }
    }

    /// Whether others can serve when this OSD leaves: as far as is known here, which is all on the primary.
    pub fn can_do_without_us(&self) -> bool {
        let members = || self.interval.acting.iter().filter(|osd| osd.is_some() && **osd != self.me);
        let others = match &self.phase {
            Phase::Active(active) => members().filter(|osd| active.has_all(**osd)).count(),
            // Or it has nothing that counts.
            Phase::Peering(peering) if !self.info.incomplete => {
                members().filter(|osd| peering.has_all(**osd)).count()
            }
            _ => members().count(),
        };
        !self.interval.is_member(self.me) || others >= self.interval.min_size.max(1)
    }

    pub fn interval(&self) -> &Interval {
        &self.interval
    }
    /// Bytes of memory that its log takes with all answers, roughly.
    pub fn log_memory(&self) -> usize {
        self.log.memory() + self.dups.memory()
    }
    pub fn pg_num(&self) -> u32 {
        self.info.pg_num
    }
    /// Requests sent by older maps than this are not ours to answer.
    pub fn last_primary_change(&self) -> Epoch {
        self.last_primary_change
    }

    /// Since when we do not serve it, if we lead it.
    pub fn waits_since(&self) -> Option<Time> {
        self.waits_since.filter(|_| matches!(self.phase, Phase::Peering(_)))
    }
    pub fn range(&self) -> &PgRange {
        &self.range
    }
    /// Over which requests came that wait until the group serves.
    pub fn sessions_waiting(&self) -> BTreeSet<ConnId> {
        self.waiting_for_active.sessions()
    }
    pub fn drop_waiting(&mut self, conn: ConnId) {
        self.waiting_for_active.drop_session(conn);
    }

    pub fn handle(&mut self, ctx: &mut Ctx<'_>, event: PgEvent) {
        if self.unapplied.begin(ctx.turn) {
            self.viewed = self.issued;
            if !self.unapplied_dirty.is_empty() {
                self.unapplied_dirty = UnappliedDirty::default();
            }
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
                // One of us did not see all maps: the stray learns from our answer what we call the interval.
                let mistaken =
                    matches!(*msg, PgMsg::StrayNotify { .. }) && interval >= self.interval.earliest;
                if interval == self.interval.start || mistaken {
                    self.on_peer(ctx, from, *msg);
                }
            }
            PgEvent::PeerOpened(osd) => self.on_peer_opened(ctx, osd),
            PgEvent::ClientHungUp(conn) => self.client_hung_up(ctx, conn),
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
            PgEvent::ScrubRequest(wanted) => self.on_scrub_request(wanted),
            PgEvent::Scrub => self.start_scrub(ctx),
            PgEvent::Force { backfill, on } => self.force(ctx, backfill, on),
            PgEvent::HoldWrites(hold) => self.hold_writes(ctx, hold),
            PgEvent::Tick => self.on_tick(ctx),
            PgEvent::Loop => self.on_loop(ctx),
        }
        self.note_state(ctx);
        self.check();
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

    /// The primary says when the interval began. Who missed maps cannot know it, be it one of us or the
    /// primary, who then calls the first map that it saw the begin, and peers by that: as no other primary
    /// can have been there since, an interval may begin there as well.
    fn align_interval_start(&mut self, ctx: &mut Ctx<'_>, began: Epoch) {
        let Interval { start, earliest, .. } = self.interval;
        if began > start {
            // Not in the future: such messages wait for their map.
            let serving = !matches!(self.phase, Phase::Stray(_));
            let interval = Interval { start: began, earliest: began, ..self.interval.clone() };
            self.start_interval(ctx, interval, serving);
        } else if began >= earliest {
            // What is older than what we agreed upon comes from before.
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
            return; // goes on, whoever has the group now
        }
        let phase = std::mem::replace(&mut self.phase, Phase::Stray(Stray::default()));
        let mut ops: Vec<Box<ClientOp>> = self.waiting_for_active.take().collect();
        if let Phase::Active(active) = phase {
            ops.extend(active.into_ops());
        }
        if was_primary && is_primary && self.last_primary_change < self.interval.start {
            // The clients see the same primary and do not send again.
            ops.sort_by_key(|op| op.seq);
            self.waiting_for_active = WaitingForActive::new(ops, &ctx.budget.waiting);
        }
        if !is_primary || old.primary != self.interval.primary {
            self.forget_watches(); // clients come back to the new primary by themselves
        }
        self.look_for_watches_again();
        self.when_stored.clear();
        self.push_reads.clear();
        self.reported_unreadable.clear();
        self.scrub_reads.clear();
        self.phase = if is_primary {
            Phase::Peering(Box::new(Peering::new()))
        } else if serving && self.interval.is_member(self.me) {
            Phase::Replica(Replica::default())
        } else {
            Phase::Stray(Stray::default())
        };
        self.remap.restart(is_primary);
        if !is_primary {
            self.forced = Forced::default();
            self.waits_since = None;
        }
        if is_primary {
            self.start_peering(ctx);
        }
    }

    /// Gives the children that a larger `pg_num` makes their parts, in one transaction.
    pub fn split(&mut self, ctx: &mut Ctx<'_>, pg_num: u32) -> Vec<Pg> {
        let children: Vec<PgId> = split_children(self.id, self.info.pg_num, pg_num).collect();
        let parts = 1 + children.len() as u64;
        self.info.pg_num = pg_num;
        self.range = PgRange::new(self.id, pg_num);
        if !children.is_empty() {
            // An even share until somebody counts.
            self.info.objects /= parts;
            self.info.clones /= parts;
            self.info.bytes /= parts;
            self.info.estimated = true;
            self.last_primary_change = ctx.map.epoch;
            // Clients send everything again after a split, and the new interval follows at once.
            self.waiting_for_active.clear();
            self.forget_watches();
            self.phase = Phase::Stray(Stray::default());
        }
        let mut txn = Transaction::new();
        let mut changes = RecordChanges::new(self.id);
        self.forget_dirty(&mut changes);
        changes.info(&self.info);
        let mut pgs = Vec::new();
        for id in children {
            let range = PgRange::new(id, pg_num);
            let moves = |object: &ObjectId| range.contains(object);
            let record = Record {
                info: self.info,
                log: self.log.split_off(moves),
                // Whose objects they were about is not known, so all children have them.
                dups: self.dups.clone(),
                missing: self.missing.split_off(moves),
                is_untrusted: self.is_untrusted,
            };
            record.log.versions().for_each(|version| changes.no_entry(version));
            record.missing.iter().for_each(|(object, _)| changes.missing(object, None));
            record.store(id, &mut txn);
            txn.push(pg_list(), Change::OmapSet([(pg_list_key(id), bytes::Bytes::new())].into()));
            let mut pg = Pg::new(id, self.me, record, self.interval.clone());
            pg.leases = self.leases.clone();
            pg.forced = self.forced;
            pg.inherit_scrub_state(&self.scrub_state, &mut txn);
            pgs.push(pg);
        }
        changes.into_txn(&mut txn);
        self.store(ctx, txn);
        pgs
    }

    /// A transaction of a child's own, so that it hears when what its parent stored is durable.
    pub fn after_split(&mut self, ctx: &mut Ctx<'_>) {
        let mut txn = Transaction::new();
        self.record_info(&mut txn);
        self.store(ctx, txn);
    }

    // ---- the disk ----

    fn store(&mut self, ctx: &mut Ctx<'_>, mut txn: Transaction) {
        txn.is_read_here = self.interval.primary == Some(self.me);
        self.issued += 1;
        ctx.out.push(PgEffect::Store(txn));
    }
    /// Does something once all that was stored so far is durable.
    fn once_durable(&mut self, ctx: &mut Ctx<'_>, what: WhenStored) {
        self.when_stored.push_back((self.issued, what));
        if self.issued == self.durable {
            self.run_stored(ctx);
        }
    }
    fn on_stored(&mut self, ctx: &mut Ctx<'_>, number: u64) {
        self.durable = number;
        self.run_stored(ctx);
    }
    fn run_stored(&mut self, ctx: &mut Ctx<'_>) {
        while self.when_stored.front().is_some_and(|(number, _)| *number <= self.durable) {
            let (_, what) = self.when_stored.pop_front().expect("there is a front");
            match what {
                WhenStored::Write(version) => self.on_own_write(ctx, version),
                WhenStored::OwnMerge => self.on_merged(ctx, self.me, self.info.last_update, Vec::new()),
                WhenStored::Answer(to, msg) => ctx.out.push(PgEffect::Answer(to, msg)),
                WhenStored::Merged => self.on_own_merge(ctx),
                WhenStored::Pulled(slot) => drop(slot),
            }
        }
    }
    fn record_info(&self, txn: &mut Transaction) {
        let mut changes = RecordChanges::new(self.id);
        changes.info(&self.info);
        changes.into_txn(txn);
    }
    fn next_read(&mut self) -> u64 {
        self.last_read += 1;
        self.last_read
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
        if let PgMsg::Log(log) | PgMsg::Merge(log) = &msg
            && !is_sound(log, &self.range)
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
            PgMsg::Info { info, lease_left_ms } => self.on_info(ctx, from, info, lease_left_ms),
            PgMsg::Log(log) => self.on_log(ctx, from, log),
            PgMsg::Inventory { from: start, objects, next } => {
                self.on_page(ctx, from, Page::Names { from: start, objects, next });
            }
            PgMsg::Dirty { from: start, reaches, objects, next } => {
                self.on_page(ctx, from, Page::Dirty { from: start, reaches, objects, next });
            }
            PgMsg::Merge(log) => self.on_merge(ctx, from, log),
            PgMsg::Merged { at, missing } => self.on_merged(ctx, from, at, missing),
            PgMsg::RepOp(op) => self.on_rep_op(ctx, from, op),
            PgMsg::RepAck { version } => self.on_rep_ack(ctx, from, version),
            PgMsg::PullRefused { id, .. } => self.on_pull_refused(ctx, from, id),
            PgMsg::Push(push) => self.on_push(ctx, from, *push),
            PgMsg::Pushed { id, object } => self.on_pushed(ctx, from, &object, id, &IntervalSet::new()),
            PgMsg::PushedWithout { id, object, data } => self.on_pushed(ctx, from, &object, id, &data),
            PgMsg::StrayNotify { info } => self.on_stray_notify(ctx, from, info),
            PgMsg::StrayRemove => self.on_stray_remove(ctx, from),
            PgMsg::Scrub(msg) => self.on_scrub(ctx, from, *msg),
        }
    }

    fn check(&self) {
        assert!(self.log.newest().is_none_or(|newest| newest <= self.info.last_update));
        assert!(self.info.log_tail <= self.info.last_update);
        assert!(self.info.dirty_from <= self.info.log_tail);
        assert!(self.durable <= self.issued);
        if let Phase::Active(active) = &self.phase {
            active.check(&self.info);
            active.check_waits(&self.missing);
        }
        assert!(self.log.oldest().is_none_or(|oldest| oldest > self.info.log_tail));
        assert!(self.dups.newest().is_none_or(|newest| newest <= self.info.log_tail));
        debug_assert!(self.missing.iter().all(|(object, _)| self.range.contains(object)));
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
