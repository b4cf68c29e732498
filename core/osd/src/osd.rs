//! One OSD: its place in the cluster, its sessions, and the placement group each message is
//! for. Read `Osd::handle`; the `on_*` follow.
//!
//! Life cycle: `Start` loads what was stored and dials a monitor; maps come; `Boot` asks to be up; from
//! the map that says so on, PGs serve. A map that says otherwise starts that over.

use crate::backoffs::Backoffs;
use crate::bench::Bench;
use crate::client_caps::Access;
use crate::commands;
use crate::copier::{Asker, Copier};
use crate::counters::Counted;
use crate::heartbeat::Heartbeats;
use crate::image_stats::ImageStats;
use crate::maps::Maps;
use crate::op_tracker::History;
use crate::options::Options;
use crate::peers::{PING_EVERY, Peers};
use crate::pg::{Pg, PgEvent};
use crate::shard::{EFFECTS_KEPT, Scene, Shard, ShardEffect};
use crate::throttle::Budget;
use crate::throttle::write_credit::OwnCredit;
use nacre_auth::Secret;
use nacre_base::{Epoch, Now, OsdId, PgId, Rng, Time, errno};
use nacre_command::{Answer, Args, Format, Layout, refuse, reply};
use nacre_machine::{ConnId, ConnIds, Effect, Event, Machine, Peer, StoreView, Token};
use nacre_monc::{MonClient, MonClientConfig, Pace};
use nacre_perf::Registry;
use nacre_proto::maps::OsdMap;
use nacre_proto::messages::peer::PeerMsg;
use nacre_proto::messages::{Command, DaemonMsg, Message};
use nacre_proto::transaction::Transaction;
use nacre_proto::types::{AddrVec, EntityAddr, Release};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

mod backoffs;
mod batching;
mod check;
mod clients;
mod copies;
mod daemon_commands;
mod epochs;
mod liveness;
mod merges;
mod monitor;
mod scrubs;
mod sessions;
mod start_stop;

use batching::{Outbox, TxnBatcher};
use epochs::WaitingForMap;
use liveness::{DiskWatch, Presence};
use monitor::{PgRequests, Reporting};

/// The identity and configuration of an OSD.
#[derive(Clone, Debug)]
pub struct OsdConfig {
    pub id: OsdId,
    /// Of its store.
    pub uuid: [u8; 16],
    /// Where clients reach it. The nonce is another one in each incarnation.
    pub public: AddrVec,
    /// Where other OSDs reach it: the same, or an address on a network of their own.
    pub cluster: AddrVec,
    pub mons: Vec<EntityAddr>,
    pub host: String,
    /// "ssd", "hdd" or "nvme".
    pub device_class: String,
    /// Bytes of memory for all that it is and has, of which its store takes a half. `MEMORY` unless said.
    pub memory: usize,
    /// Besides what every OSD says of itself, for `ceph osd metadata`: the device, the verdict on it.
    pub metadata: BTreeMap<String, String>,
    /// What it says of its program.
    pub release: Release,
    /// Where it shows what it counts, beside others of the same daemon.
    pub perf: Registry,
    pub seed: u64,
    /// Its own key, in a cluster with cephx.
    pub key: Option<Secret>,
}

/// An OSD's default memory limit.
pub const MEMORY: usize = 512 << 20;
/// Of sixteen parts of an OSD's memory those for its own records: logs, what is missing, PGs that peer. Eight
/// are its store's, four for requests: those of clients until they are answered.
const RECORDS_PARTS: usize = 3;
/// Half of them for those that wait for a PG which does not serve, before their clients are asked to keep
/// them.
const WAITING_PARTS: usize = 2;
/// Of the memory for its own records, the part for knowing which clients were asked to.
const BACKOFFS_PART: usize = 32;
/// One for the data of answers.
const ANSWERS_PARTS: usize = 1;
/// And, within the store's half, those for large writes that are in flight to the disk.
const WRITES_PARTS: usize = 2;

const TICK: u64 = 0;
/// Placement groups that may go on with recovery after an event.
const RECOVERY_STARTS: usize = 2;
const BEAT: u64 = 1;
const SCRUB: u64 = 2;
const ANSWERS: u64 = 3;
const GATHERS: u64 = 4;
/// How often it is looked whether shards are read late.
const GATHERS_EVERY: Duration = Duration::from_millis(10);
/// The core is not told when a socket has taken a reply. PGs that wait for its memory look this often.
const ANSWERS_EVERY: Duration = Duration::from_millis(2);
const TICK_EVERY: Duration = Duration::from_millis(250);
/// How often a boot that no map answers is repeated.
const BOOT_RETRY: Duration = Duration::from_secs(1);
/// Changes of PGs are reported together.
const REPORT_AFTER_CHANGE: Duration = Duration::from_millis(500);
/// What clients did is reported while it is news.
const REPORT_AFTER_OPS: Duration = Duration::from_secs(1);
const REPORT_EVERY: Duration = Duration::from_secs(5);
/// How long a stopping OSD waits for the map that says so.
const GOODBYE: Duration = Duration::from_secs(3);
/// The monitors hear at once when one of so many parts of the device was filled, or became free.
const SPACE_NEWS_PARTS: u64 = 200;
/// The session on which we ask ourselves.
const OURSELVES: ConnId = ConnId::Dialled(0);
/// Requests that wait for a map, and messages.
const WAITING_OPS_MAX: usize = if cfg!(test) { 20 } else { 10_000 };
const WAITING_MAX: usize = 10_000;
const SHARDS: u64 = 4;

/// A session that a peer dialled.
struct Session {
    peer: Peer,
    access: Access,
    /// The newest map that the client is known to have.
    epoch: Epoch,
}

enum Life {
    Running,
    /// MarkMeDown was sent; the map, or this time, ends the process.
    Stopping(Time),
    Stopped,
}

/// Sessions and datagrams.
#[derive(Default)]
struct Links {
    /// The source of the ids of those that the OSD dials.
    conns: ConnIds,
    sessions: BTreeMap<ConnId, Session>,
    /// The session that each OSD dialled.
    inbound: BTreeMap<OsdId, ConnId>,
    peers: Peers,
    heartbeats: Heartbeats,
    outbox: Outbox,
}

/// What the store was told and has not done.
#[derive(Default)]
struct Io {
    disk: DiskWatch,
    /// Transactions that belong to no PG.
    stores: BTreeSet<Token>,
    batcher: TxnBatcher,
}

/// The last number of each kind.
#[derive(Default)]
struct Numbers {
    turn: u64,
    op: u64,
    token: u64,
}

/// When periodic work was done last.
#[derive(Default)]
struct Last {
    tick: Time,
    ping: Time,
    beat: Time,
    /// How many requests were served when it was last seen that there were some, and when.
    served: (u64, Time),
    /// When the next scrub step is due.
    scrub_wakes: Option<Time>,
}

/// What is to be looked at at the end of an event.
#[derive(Default)]
struct Due {
    leases: bool,
    /// Whether there is memory for what clients read.
    replies: bool,
    /// Something changed that PGs to be merged may have waited for.
    merges: bool,
    /// A PG may serve that clients keep requests for.
    backoffs: bool,
    /// PGs that read shards of other members.
    gathers: BTreeSet<PgId>,
}

pub struct Osd {
    pub(crate) config: OsdConfig,
    started: Time,
    life: Life,
    /// The cluster was told that metadata is corrupt.
    reported_corruption: bool,
    pub(crate) maps: Maps,
    mon: MonClient,
    presence: Presence,
    links: Links,
    io: Io,
    copier: Copier,
    pub(crate) budget: Budget,
    own_credit: OwnCredit,
    pub(crate) backoffs: Backoffs,
    pub(crate) shards: Vec<Shard>,
    /// What a shard wants: empty between events, and there for its memory.
    effects: Vec<ShardEffect>,
    numbers: Numbers,
    waiting_for_map: WaitingForMap,
    pg_requests: PgRequests,
    due: Due,
    last: Last,
    reporting: Reporting,
    pub(crate) ops_served: u64,
    pub(crate) options: Options,
    pub(crate) counted: Counted,
    images: ImageStats,
    pub(crate) history: History,
    pub(crate) bench: Option<Bench>,
}

impl Machine for Osd {
    fn handle(&mut self, now: Now, event: Event, store: &dyn StoreView, out: &mut Vec<Effect>) {
        self.numbers.turn += 1;
        match event {
            Event::Start => self.on_start(now, store, out),
            Event::Opened { conn, peer } => self.on_opened(now, store, conn, peer, out),
            Event::Closed { conn, why } => self.on_closed(now, store, conn, &why, out),
            Event::Message { conn, tid, message } => self.on_message(now, store, conn, tid, message, out),
            Event::Stored(token) => self.on_stored(now, store, token, out),
            Event::Datagram { network, from, bytes } => self.on_datagram(now, network, from, &bytes, out),
            Event::ReadDone { token, result } => {
                self.io.disk.read_done(token);
                let at = (token % (SHARDS + 1)) as usize;
                self.in_shard(now, store, at, out, |shard, scene| shard.on_read(scene, token, result));
            }
            Event::Timer(BEAT) => self.on_beat(now, out),
            Event::Timer(SCRUB) => self.go_on_with_scrubs(now, store, out),
            Event::Timer(ANSWERS) => {
                self.due.replies = false;
                self.budget.replies.look(now.mono);
            }
            Event::Timer(GATHERS) => {
                for pg in std::mem::take(&mut self.due.gathers) {
                    self.tell_pg(now, store, pg, PgEvent::LookAtGathers, out);
                }
            }
            Event::Timer(_) => self.on_tick(now, store, out),
            Event::Loop(at) => {
                self.in_shard(now, store, at as usize, out, |shard, scene| shard.on_loop(scene))
            }
            Event::IdsLow => {}
            Event::Stop => self.on_stop(now, out),
        }
        while let Some(pg) = self.budget.next_foreground(now.mono) {
            self.tell_pg(now, store, pg, PgEvent::Loop, out);
        }
        if self.budget.replies.has_waiting() && !std::mem::replace(&mut self.due.replies, true) {
            out.push(Effect::Arm { timer: ANSWERS, after: ANSWERS_EVERY });
        }
        for _ in 0..RECOVERY_STARTS {
            let Some(pg) = self.budget.next_background(now.mono) else { break };
            self.tell_pg(now, store, pg, PgEvent::Loop, out);
        }
        while std::mem::take(&mut self.due.merges) {
            self.prepare_merges(now, store, out);
        }
        if std::mem::take(&mut self.due.backoffs) {
            self.end_backoffs(out);
        }
        self.wake_for_scrubs(now, out);
        self.copy(now, store, out);
        self.flush(now, out);
        // What belongs to no PG is a benchmark's, or maps.
        self.io.batcher.join(|token| token % (SHARDS + 1) != SHARDS, out);
        self.io.disk.note(now.mono, out);
        self.check();
    }
}

impl Osd {
    pub fn new(config: OsdConfig) -> Osd {
        let counted = Counted::new(config.perf.clone());
        let shard = |n| Shard::new(config.id, SHARDS + 1, n, counted.clone());
        let shards = (0..SHARDS).map(shard).collect();
        let own_credit = OwnCredit::new(config.memory / 16 * WRITES_PARTS);
        let session = MonClientConfig {
            mons: config.mons.clone(),
            hostname: config.host.clone(),
            pace: Pace::DAEMON,
            awaits_mon_map: false,
        };
        let mon = MonClient::new(session, Rng::new(config.seed));
        Osd {
            budget: Budget::new(
                &Options::default(),
                config.memory / 16 * RECORDS_PARTS,
                config.memory / 16 * ANSWERS_PARTS,
                config.memory / 16 * WAITING_PARTS,
            ),
            backoffs: Backoffs::new(config.memory / 16 * RECORDS_PARTS / BACKOFFS_PART),
            config,
            started: Time::ZERO,
            life: Life::Running,
            reported_corruption: false,
            maps: Maps::default(),
            mon,
            copier: Copier::default(),
            own_credit,
            shards,
            effects: Vec::new(),
            presence: Presence::default(),
            links: Links::default(),
            io: Io::default(),
            numbers: Numbers::default(),
            waiting_for_map: WaitingForMap::default(),
            pg_requests: PgRequests::default(),
            due: Due::default(),
            last: Last::default(),
            reporting: Reporting::default(),
            ops_served: 0,
            options: Options::default(),
            counted,
            images: ImageStats::default(),
            history: History::default(),
            bench: None,
        }
    }

    pub(crate) fn me(&self) -> OsdId {
        self.config.id
    }
    pub(crate) fn is_serving(&self) -> bool {
        self.presence.serving
    }
    pub(crate) fn map(&self) -> Option<&Arc<OsdMap>> {
        self.maps.current.as_ref()
    }
    fn shard_of(&self, pg: PgId) -> usize {
        (u64::from(pg.seed).wrapping_add(pg.pool.0 as u64) % SHARDS) as usize
    }
    pub(crate) fn pg(&self, pg: PgId) -> Option<&Pg> {
        self.shards[self.shard_of(pg)].pgs.get(&pg)
    }
    pub(crate) fn pgs(&self) -> impl Iterator<Item = &Pg> {
        self.shards.iter().flat_map(|shard| shard.pgs.values())
    }

    // ---- PGs ----

    /// Runs something in one shard, and does what it wants.
    fn in_shard(
        &mut self,
        now: Now,
        store: &dyn StoreView,
        at: usize,
        out: &mut Vec<Effect>,
        run: impl FnOnce(&mut Shard, &mut Scene<'_>),
    ) {
        let Some(map) = self.maps.current.clone() else { return };
        let mut effects = std::mem::take(&mut self.effects);
        let budget = &self.budget;
        let (turn, format) = (self.numbers.turn, self.format());
        let mut scene = Scene { now, turn, store, map: &map, format, budget, out: &mut effects };
        if let Some(shard) = self.shards.get_mut(at) {
            run(shard, &mut scene);
        }
        for effect in effects.drain(..) {
            match effect {
                ShardEffect::Do(effect) => out.push(*effect),
                ShardEffect::Store(token, txn) => out.push(Effect::Store { token, txn }),
                ShardEffect::Reply { conn, tid, reply, request } => {
                    // Not what we asked ourselves.
                    if self.links.sessions.contains_key(&conn) {
                        request.count(now.mono, &reply, &self.counted);
                        self.images.add(now.mono, &request, &reply);
                        self.history.add(now.mono, *request, &self.options.keep());
                    }
                    out.push(Effect::Send { conn, tid, message: reply.into() });
                }
                ShardEffect::Ask(to, msg) => self.ask(now, to, msg, out),
                ShardEffect::Answer(to, msg) => self.answer(to, msg, out),
                ShardEffect::Copy(pg, read, source) => {
                    if let Some(interval) = self.pg(pg).map(|pg| pg.interval().start) {
                        self.copier.start(Asker { pg, interval, read }, *source);
                    }
                }
                ShardEffect::QueryRecord(pg) => {
                    self.pg_requests.records.insert(pg);
                }
                ShardEffect::Activate(pg, record) => {
                    self.pg_requests.activations.insert(pg, record);
                }
                ShardEffect::RequestPgTemp(wish) => drop(self.pg_requests.pg_temp.insert(wish.pg, wish)),
                ShardEffect::LeasesNow => self.due.leases = true,
                ShardEffect::LookAtGathers(pg) => {
                    if self.due.gathers.is_empty() {
                        out.push(Effect::Arm { timer: GATHERS, after: GATHERS_EVERY });
                    }
                    self.due.gathers.insert(pg);
                }
                ShardEffect::ClusterLog(level, text) => {
                    self.to_mon(DaemonMsg::ClusterLog { level, stamp: now.wall, text }, out);
                }
                ShardEffect::Report => {
                    (self.due.merges, self.due.backoffs) = (true, true);
                    self.reporting.next = self.reporting.next.min(now.mono + REPORT_AFTER_CHANGE);
                }
            }
        }
        effects.shrink_to(EFFECTS_KEPT);
        self.effects = effects;
    }
    fn tell_pg(&mut self, now: Now, store: &dyn StoreView, pg: PgId, event: PgEvent, out: &mut Vec<Effect>) {
        let at = self.shard_of(pg);
        self.in_shard(now, store, at, out, |shard, scene| shard.handle(scene, pg, event));
    }
    fn tell_all(
        &mut self,
        now: Now,
        store: &dyn StoreView,
        out: &mut Vec<Effect>,
        event: impl Fn() -> PgEvent + Copy,
    ) {
        for at in 0..self.shards.len() {
            self.in_shard(now, store, at, out, |shard, scene| shard.handle_all(scene, event));
        }
    }

    // ---- messages, and the disk ----

    fn on_message(
        &mut self,
        now: Now,
        store: &dyn StoreView,
        conn: ConnId,
        tid: u64,
        message: Message,
        out: &mut Vec<Effect>,
    ) {
        if matches!(self.life, Life::Stopped) {
            return;
        }
        let message = match self.mon.owns(conn) {
            true => self.on_mon_message(now, store, tid, message, out),
            false => Some(message),
        };
        let Some(message) = message else { return };
        match message {
            Message::Peer(msg) => self.on_peer(now, store, conn, msg, out),
            Message::OsdOp(op) => self.on_op(now, store, conn, tid, op, out),
            Message::OsdBackoff(message) => self.on_backoff(conn, &message),
            Message::OsdOpReply(reply) if self.links.peers.by_conn(conn).is_some() => {
                self.on_copy_reply(now, store, tid, &reply, out);
            }
            Message::Command(command) => self.on_command(now, store, conn, tid, &command, out),
            // Clients with watches ping; other messages are not handled by an OSD.
            _ => {}
        }
    }

    fn on_command(
        &mut self,
        now: Now,
        store: &dyn StoreView,
        conn: ConnId,
        tid: u64,
        command: &Command,
        out: &mut Vec<Effect>,
    ) {
        let session = self.links.sessions.get(&conn);
        let parsed = match session.is_some_and(|session| !session.access.is_everything()) {
            true => Err(refuse(errno::EACCES, "access denied")),
            false => nacre_command::parse(&command.cmd),
        };
        let words = match parsed {
            Ok(words) => words,
            Err(refusal) => {
                return out.push(Effect::Send { conn, tid, message: reply(Err(refusal)).into() });
            }
        };
        let args = Args::new(&words);
        if commands::is_mark_lost(args) {
            let marked = commands::mark_lost(self, args);
            if let Ok((_, Some((pg, delete)))) = marked {
                self.tell_pg(now, store, pg, PgEvent::MarkLost { delete }, out);
            }
            let outcome = marked.and_then(|(status, _)| Answer::said(status));
            return out.push(Effect::Send { conn, tid, message: reply(outcome).into() });
        }
        let reply = match self.order(now, store, (conn, tid), args, out) {
            Some(answer) => Some(commands::found(answer, args)),
            None if args.prefix() == Some("get_latest_osdmap") => None,
            None => commands::run(self, now, store, (conn, tid), args),
        };
        let Some(reply) = reply else {
            return self.go_on_with_bench(out);
        };
        // A command may have asked for it.
        self.report_if_due(now, store, out);
        out.push(Effect::Send { conn, tid, message: reply.into() });
    }

    fn go_on_with_bench(&mut self, out: &mut Vec<Effect>) {
        while let Some(txn) = self.bench.as_ref().and_then(|bench| bench.next()) {
            let token = self.store(txn, out);
            self.bench.as_mut().expect("it was there just now").began(token);
        }
    }
    fn on_bench_stored(&mut self, now: Now, token: Token, out: &mut Vec<Effect>) {
        let Some(bench) = &mut self.bench else { return };
        let (conn, tid) = (bench.conn, bench.tid);
        if let Some(result) = bench.stored(now.mono, token) {
            self.bench = None;
            self.store(Bench::removal(), out);
            let outcome = Answer::text(Format::Plain.render(&result, &Layout::of_daemon("bench")));
            out.push(Effect::Send { conn, tid, message: reply(outcome).into() });
        }
        self.go_on_with_bench(out);
    }

    /// For what belongs to no PG.
    fn store(&mut self, txn: Transaction, out: &mut Vec<Effect>) -> Token {
        self.numbers.token += 1;
        let token = self.numbers.token * (SHARDS + 1) + SHARDS;
        self.io.stores.insert(token);
        out.push(Effect::Store { token, txn });
        token
    }

    /// Tells the OSDs that send writes how much credit there is, before the replies that let them send more.
    fn look_at_room(&mut self, store: &dyn StoreView, out: &mut Vec<Effect>) {
        let writers = self.links.inbound.len() as u64 + 1;
        let Some(room) = self.own_credit.look(&store.statfs(), writers) else { return };
        self.budget.credits.told(self.me(), room);
        for &conn in self.links.inbound.values() {
            self.links.outbox.push(conn, PeerMsg::Room(room), out);
        }
    }

    fn on_stored(&mut self, now: Now, store: &dyn StoreView, token: Token, out: &mut Vec<Effect>) {
        self.look_at_room(store, out);
        let mut durable = Vec::new();
        self.io.disk.stored(token).into_iter().for_each(|token| self.io.batcher.stored(token, &mut durable));
        for token in durable {
            self.io.stores.remove(&token);
            self.on_bench_stored(now, token, out);
            let at = (token % (SHARDS + 1)) as usize;
            self.in_shard(now, store, at, out, |shard, scene| shard.on_stored(scene, token));
        }
        self.stop_if_done(now, out);
    }

    fn on_tick(&mut self, now: Now, store: &dyn StoreView, out: &mut Vec<Effect>) {
        if matches!(self.life, Life::Stopped) {
            return;
        }
        out.push(Effect::Arm { timer: TICK, after: TICK_EVERY });
        if now.mono.since(self.last.tick) > 4 * TICK_EVERY {
            self.links.peers.forgive(now.mono);
        }
        self.last.tick = now.mono;
        self.budget.replies.look(now.mono);
        self.look_at_disk(now, out);
        self.leave_if_corrupt(now, store, out);
        self.look_at_room(store, out);
        let latency = &self.counted.osd.op_latency;
        let waited = Duration::from_nanos(latency.sum());
        let (groups, logs) = self.pgs().fold((0, 0), |(n, sum), pg| (n + 1, sum + pg.log_memory()));
        self.budget.look_at_logs(&self.options, groups, logs);
        self.budget.recovery.limit_mut().look(self.options.recovery(), latency.count(), waited);
        self.budget.moves.limit_mut().set_max(self.options.moves());
        self.budget.trim.limit_mut().look(self.options.trimming(), latency.count(), waited);
        self.with_mon(now, out, |mon, cx| mon.on_time(cx));
        self.boot_if_needed(now, store, out);
        if now.mono.since(self.last.ping) >= PING_EVERY {
            self.last.ping = now.mono;
            self.ping(now, out);
        }
        if self.presence.serving {
            self.look_at_scrubs(now);
            self.tell_all(now, store, out, || PgEvent::Tick);
            self.look_at_held(now, out);
            self.start_scrub(now, store, out);
            self.due.leases = true;
            (self.due.merges, self.due.backoffs) = (true, true);
            // Clients are held back before a disk is full only if the monitors know in time.
            let space = store.statfs();
            if space.available.abs_diff(self.reporting.available) > space.total / SPACE_NEWS_PARTS {
                self.reporting.next = now.mono;
            }
            self.report_if_due(now, store, out);
        }
        self.stop_if_done(now, out);
    }

    /// What PGs wanted in this turn, batched.
    fn flush(&mut self, now: Now, out: &mut Vec<Effect>) {
        if std::mem::take(&mut self.due.leases) && self.presence.serving {
            let mut of = BTreeMap::new();
            self.shards.iter().for_each(|shard| shard.leases(now.mono, &mut of));
            for (osd, pgs) in of {
                self.ask(now, osd, PeerMsg::LeaseRequest { sent: now.mono.nanos, pgs }, out);
            }
        }
        self.links.outbox.flush(out);
        if !self.waiting_for_map.commands.is_empty() {
            self.answer_map_askers(now, out);
        }
        if self.mon.ready().is_none() {
            return;
        }
        let epoch = self.maps.epoch();
        if !self.pg_requests.records.is_empty() {
            let pgs = std::mem::take(&mut self.pg_requests.records).into_iter().collect();
            self.to_mon(DaemonMsg::RecordQuery { epoch, pgs }, out);
        }
        if !self.pg_requests.activations.is_empty() {
            let records = std::mem::take(&mut self.pg_requests.activations).into_iter().collect();
            self.to_mon(DaemonMsg::Activate { epoch, records }, out);
        }
        if !self.pg_requests.pg_temp.is_empty() {
            let wishes = std::mem::take(&mut self.pg_requests.pg_temp).into_values().collect();
            self.to_mon(DaemonMsg::Rearrange(wishes), out);
        }
    }
}
