//! One OSD: its place in the cluster, who talks to it, and which placement group each message is
//! for. Read `Osd::handle`; the `on_*` follow.
//!
//! Life: `Start` loads what was stored and dials a monitor; maps come; `Boot` asks to be up; from
//! the map that says so on, groups serve. A map that says otherwise starts that over.

use crate::bench::Bench;
use crate::budget::Budget;
use crate::commands;
use crate::copier::{Asker, Copier, Finished};
use crate::counters::Counted;
use crate::heartbeat::{BEAT_EVERY, Heartbeats, Place};
use crate::maps::Maps;
use crate::ops::{FlaggedOp, WRITE_SIZE_MAX, check_request, hash_of};
use crate::options::Options;
use crate::peers::{Ended, PING_EVERY, Peers};
use crate::pg::{ClientOp, Interval, LEASE, Pg, PgEvent, groups};
use crate::requests::{History, Steps};
use crate::shard::{Scene, Shard, ShardEffect};
use crate::snap_set::SnapContext;
use nacre_base::errno::{EAGAIN, EDQUOT, EINVAL, EMSGSIZE, ENOENT, ENOSPC, ENXIO, ESHUTDOWN};
use nacre_base::{Epoch, Now, OsdId, PgId, Rng, SnapId, Time};
use nacre_machine::{Closed, ConnId, Effect, Event, Level, Machine, Peer, StoreView, Token};
use nacre_perf::Registry;
use nacre_proto::maps::{OsdMap, Pool, UpActing, is_split, map_flags, pool_flags};
use nacre_proto::messages::peer::{PeerMsg, PgMsg};
use nacre_proto::messages::{
    Command, Config, DaemonMsg, FailureEvidence, Message, MonGetVersion, MonSub, MonSubscribe, OsdBoot,
    OsdFailure, OsdMapMsg, OsdOp, OsdOpReply, OsdReport, OsdSpace, PgRecord,
};
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_proto::types::{AddrVec, EntityAddr, EntityName, EntityType, Network, Op, op_flags};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

mod liveness;
mod scrubs;
mod together;

use liveness::DiskWatch;
use together::{Joined, Outbox};

/// How the machine is told who it is.
#[derive(Clone, Debug)]
pub struct OsdConfig {
    pub id: OsdId,
    /// Of its store.
    pub uuid: [u8; 16],
    /// Where clients reach it. The nonce is another one in each life.
    pub public: AddrVec,
    /// Where other OSDs reach it: the same, or an address on a network of their own.
    pub cluster: AddrVec,
    pub mons: Vec<EntityAddr>,
    pub host: String,
    /// "ssd", "hdd" or "nvme".
    pub device_class: String,
    /// Besides what every OSD says of itself, for `ceph osd metadata`: the device, the verdict on it.
    pub metadata: BTreeMap<String, String>,
    /// Where it shows what it counts, beside others of the same daemon.
    pub perf: Registry,
    pub seed: u64,
}

const TICK: u64 = 0;
/// Groups that may go on with recovery after an event.
const RECOVERY_STARTS: usize = 2;
const BEAT: u64 = 1;
const SCRUB: u64 = 2;
const TICK_EVERY: Duration = Duration::from_millis(250);
/// How often a boot that no map answers is repeated.
const BOOT_RETRY: Duration = Duration::from_secs(1);
/// How long a monitor that does not answer is waited for before the next one is tried.
const MON_RETRY: Duration = Duration::from_millis(500);
/// How often a monitor is asked something, if only to hear that it is there.
const MON_PING_EVERY: Duration = Duration::from_secs(2);
/// After so long without a word from a monitor another one is tried.
const MON_SILENCE: Duration = Duration::from_secs(6);
/// Changes of groups are reported together.
const REPORT_AFTER_CHANGE: Duration = Duration::from_millis(500);
/// What clients did is reported while it is news.
const REPORT_AFTER_OPS: Duration = Duration::from_secs(1);
const REPORT_EVERY: Duration = Duration::from_secs(5);
/// How long a stopping OSD waits for the map that says so.
const GOODBYE: Duration = Duration::from_secs(3);
/// Of how many parts of the device one must stay free. Ceph has it as `osd_failsafe_full_ratio`.
const FAILSAFE_PARTS: u64 = 33;
/// The monitors hear at once when one of so many parts of the device was filled, or became free.
const SPACE_NEWS_PARTS: u64 = 200;
/// The session on which we ask ourselves.
const OURSELVES: ConnId = ConnId::Dialled(0);
/// Requests and messages that wait for a map.
const WAITING_MAX: usize = 10_000;
const SHARDS: u64 = 4;

enum MonState {
    /// Until then no monitor is tried.
    Away(Time),
    /// Since then.
    Dialling(ConnId, Time),
    /// Last heard of then.
    Open(ConnId, Time),
}

/// Someone who dialled us.
struct Session {
    peer: Peer,
    /// The newest map that the client is known to have.
    epoch: Epoch,
}

enum Life {
    Running,
    /// Goodbye was said; the map, or this time, ends it.
    Stopping(Time),
    Stopped,
}

pub struct Osd {
    pub(crate) config: OsdConfig,
    rng: Rng,
    started: Time,
    life: Life,
    pub(crate) maps: Maps,
    mon: MonState,
    next_mon: usize,
    last_mon_ping: Time,
    /// The monitor had a newer map the last time it was asked.
    was_behind: bool,
    /// The map says that this life of ours is up.
    serving: bool,
    next_boot: Time,
    sessions: BTreeMap<ConnId, Session>,
    /// The session by which each OSD asks us.
    askers: BTreeMap<OsdId, ConnId>,
    peers: Peers,
    beats: Heartbeats,
    last_beat: Time,
    disk: DiskWatch,
    /// How often this life was up and then not, with nobody stopping it.
    times_down: u32,
    /// While others are not heard, a return to the map waits until then.
    return_at: Time,
    said_why_waiting: bool,
    copier: Copier,
    pub(crate) budget: Budget,
    pub(crate) shards: Vec<Shard>,
    turn: u64,
    last_conn: u64,
    last_op: u64,
    last_token: u64,
    stores: BTreeSet<Token>,
    joined: Joined,
    outbox: Outbox,
    waiting_ops: VecDeque<(ConnId, u64, Box<OsdOp>)>,
    waiting_msgs: VecDeque<(OsdId, (PgId, Epoch, PgMsg))>,
    record_queries: BTreeSet<PgId>,
    activations: BTreeMap<PgId, PgRecord>,
    leases_now: bool,
    last_tick: Time,
    last_ping: Time,
    report_at: Time,
    /// How many requests were served at the last report, and when that was.
    reported: (u64, Time),
    /// What was free then.
    reported_available: u64,
    /// How many commits there were until then, and how many nanoseconds they took together.
    commits_reported: (u64, u64),
    pub(crate) ops_served: u64,
    pub(crate) options: Options,
    pub(crate) counted: Counted,
    pub(crate) history: History,
    pub(crate) bench: Option<Bench>,
    /// When the next step of comparing copies is to be made.
    scrub_wakes: Option<Time>,
    /// How many requests were served when it was last seen that there were some, and when.
    last_served: (u64, Time),
}

impl Machine for Osd {
    fn handle(&mut self, now: Now, event: Event, store: &dyn StoreView, out: &mut Vec<Effect>) {
        self.turn += 1;
        match event {
            Event::Start => self.on_start(now, store, out),
            Event::Opened { conn, peer } => self.on_opened(now, store, conn, peer, out),
            Event::Closed { conn, why } => self.on_closed(now, store, conn, &why, out),
            Event::Message { conn, tid, message } => self.on_message(now, store, conn, tid, message, out),
            Event::Stored(token) => self.on_stored(now, store, token, out),
            Event::Datagram { network, from, bytes } => self.on_datagram(now, network, from, &bytes, out),
            Event::ReadDone { token, result } => {
                self.disk.read_done(token);
                let at = (token % (SHARDS + 1)) as usize;
                self.in_shard(now, store, at, out, |shard, scene| shard.on_read(scene, token, result));
            }
            Event::Timer(BEAT) => self.on_beat(now, out),
            Event::Timer(SCRUB) => self.go_on_with_scrubs(now, store, out),
            Event::Timer(_) => self.on_tick(now, store, out),
            Event::Loop(at) => {
                self.in_shard(now, store, at as usize, out, |shard, scene| shard.on_loop(scene))
            }
            Event::IdsLow => {}
            Event::Stop => self.on_stop(now, out),
        }
        for _ in 0..RECOVERY_STARTS {
            let Some(pg) = self.budget.next_waiting(now.mono) else { break };
            self.tell_pg(now, store, pg, PgEvent::Loop, out);
        }
        self.wake_for_scrubs(now, out);
        self.copy(now, store, out);
        self.flush(now, out);
        // What belongs to no group is a benchmark's, or maps.
        self.joined.join(|token| token % (SHARDS + 1) != SHARDS, out);
        self.disk.note(now.mono, out);
    }
}

impl Osd {
    pub fn new(config: OsdConfig) -> Osd {
        let counted = Counted::new(config.perf.clone());
        let shard = |n| Shard::new(config.id, SHARDS + 1, n, counted.clone());
        let shards = (0..SHARDS).map(shard).collect();
        Osd {
            rng: Rng::new(config.seed),
            config,
            started: Time::ZERO,
            life: Life::Running,
            maps: Maps::default(),
            mon: MonState::Away(Time::ZERO),
            next_mon: 0,
            last_mon_ping: Time::ZERO,
            was_behind: false,
            serving: false,
            next_boot: Time::ZERO,
            sessions: BTreeMap::new(),
            askers: BTreeMap::new(),
            peers: Peers::default(),
            beats: Heartbeats::default(),
            last_beat: Time::ZERO,
            disk: DiskWatch::default(),
            times_down: 0,
            return_at: Time::ZERO,
            said_why_waiting: false,
            copier: Copier::default(),
            budget: Budget::new(&Options::default()),
            shards,
            turn: 0,
            last_conn: 0,
            last_op: 0,
            last_token: 0,
            stores: BTreeSet::new(),
            joined: Joined::default(),
            outbox: Outbox::default(),
            waiting_ops: VecDeque::new(),
            waiting_msgs: VecDeque::new(),
            record_queries: BTreeSet::new(),
            activations: BTreeMap::new(),
            leases_now: false,
            last_tick: Time::ZERO,
            last_ping: Time::ZERO,
            report_at: Time::ZERO,
            reported: (0, Time::ZERO),
            reported_available: 0,
            commits_reported: (0, 0),
            ops_served: 0,
            options: Options::default(),
            counted,
            history: History::default(),
            bench: None,
            scrub_wakes: None,
            last_served: (0, Time::ZERO),
        }
    }

    pub(crate) fn me(&self) -> OsdId {
        self.config.id
    }
    pub(crate) fn is_serving(&self) -> bool {
        self.serving
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

    // ---- groups ----

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
        let mut effects = Vec::new();
        let budget = &self.budget;
        let mut scene = Scene { now, turn: self.turn, store, map: &map, budget, out: &mut effects };
        if let Some(shard) = self.shards.get_mut(at) {
            run(shard, &mut scene);
        }
        for effect in effects {
            match effect {
                ShardEffect::Do(effect) => out.push(*effect),
                ShardEffect::Reply { conn, tid, reply, request } => {
                    // Not what we asked ourselves.
                    if self.sessions.contains_key(&conn) {
                        request.count(now.mono, &reply, &self.counted);
                        self.history.add(now.mono, *request, &self.options.keep());
                    }
                    out.push(Effect::Send { conn, tid, message: reply.into() });
                }
                ShardEffect::Ask(to, msg) => self.ask(now, to, msg, out),
                ShardEffect::Answer(to, msg) => self.answer(to, msg, out),
                ShardEffect::Copy(pg, read, source) => {
                    if let Some(interval) = self.pg(pg).map(|pg| pg.interval().start) {
                        self.copier.start(Asker { pg, interval, read }, source);
                    }
                }
                ShardEffect::QueryRecord(pg) => {
                    self.record_queries.insert(pg);
                }
                ShardEffect::Activate(pg, record) => {
                    self.activations.insert(pg, record);
                }
                ShardEffect::LeasesNow => self.leases_now = true,
                ShardEffect::ClusterLog(level, text) => {
                    self.to_mon(DaemonMsg::ClusterLog { level, stamp: now.wall, text }, out);
                }
                ShardEffect::Report => {
                    self.report_at = self.report_at.min(now.mono + REPORT_AFTER_CHANGE);
                }
            }
        }
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

    /// Asks another OSD over our session with it. Without one the question is lost, and asked again
    /// when there is.
    fn ask(&mut self, now: Now, to: OsdId, msg: PeerMsg, out: &mut Vec<Effect>) {
        match self.peers.open(to) {
            Some(conn) => self.outbox.push(conn, msg, out),
            None => self.dial(now, to, out),
        }
    }
    fn answer(&mut self, to: OsdId, msg: PeerMsg, out: &mut Vec<Effect>) {
        if let Some(&conn) = self.askers.get(&to) {
            self.outbox.push(conn, msg, out);
        }
    }
    fn next_conn(&mut self) -> ConnId {
        self.last_conn += 1;
        ConnId::Dialled(self.last_conn)
    }
    fn dial(&mut self, now: Now, osd: OsdId, out: &mut Vec<Effect>) {
        let Some(place) = self.map().and_then(|map| self.place_of(map, osd)) else { return };
        if osd != self.me() && self.peers.may_dial(osd, now.mono) {
            let conn = self.next_conn();
            let preferred = self.beats.network(osd, &place, now.mono);
            let network = self.peers.network_to_dial(osd, preferred);
            let (network, addr) = match place.on(network) {
                Some(addr) => (network, addr),
                None => (Network::Public, place.public),
            };
            self.peers.dialled(osd, conn, addr, network, now.mono);
            out.push(Effect::Dial { conn, to: addr, kind: EntityType::Osd });
        }
    }

    /// Where we reach `osd`, if it is up: on the cluster network if both of us have an address there.
    fn place_of(&self, map: &OsdMap, osd: OsdId) -> Option<Place> {
        let info = map.osd(osd).filter(|_| map.is_up(osd))?;
        let public = info.public_addrs.msgr2()?;
        let separate = info.cluster_addrs.msgr2().filter(|addr| addr.sock != public.sock);
        let ours = self.config.cluster.msgr2() != self.config.public.msgr2();
        Some(Place { public, cluster: separate.filter(|_| ours) })
    }

    // ---- start and stop ----

    fn on_start(&mut self, now: Now, store: &dyn StoreView, out: &mut Vec<Effect>) {
        self.started = now.mono;
        self.last_tick = now.mono;
        self.last_beat = now.mono;
        self.maps = Maps::load(store).unwrap_or_else(|e| panic!("osd.{} cannot start: {e}", self.me()));
        if let Some(map) = self.maps.current.clone() {
            self.load_groups(now, store, &map, out);
        }
        self.next_mon = self.rng.below(self.config.mons.len() as u64) as usize;
        self.dial_mon(now, out);
        out.push(Effect::Arm { timer: TICK, after: TICK_EVERY });
        out.push(Effect::Arm { timer: BEAT, after: BEAT_EVERY });
    }

    fn load_groups(&mut self, now: Now, store: &dyn StoreView, map: &Arc<OsdMap>, out: &mut Vec<Effect>) {
        let mut ids: Vec<PgId> = Vec::new();
        let fail = |e| panic!("the store cannot tell which groups it has: {e}");
        store
            .omap_walk(&groups(), b"", &mut |key, _| {
                ids.extend(key.to_text().parse::<PgId>());
                true
            })
            .unwrap_or_else(fail);
        for id in ids {
            let interval = Interval::new(map.epoch, false, map.pg_to_up_acting(id), map, id);
            let at = self.shard_of(id);
            if let Some(pg) = Pg::load(id, self.config.id, interval, now, store)
                .unwrap_or_else(|e| panic!("pg {id} cannot be loaded: {e}"))
            {
                self.shards[at].pgs.insert(id, pg);
            }
        }
        self.face_losses(store, out);
        self.split_groups(now, store, map, out);
        let here: Vec<PgId> = self.pgs().map(|pg| pg.id).collect();
        for id in here {
            // Finds out whether its pool is still there.
            self.tell_pg(now, store, id, PgEvent::Map { interval: None, serving: false }, out);
        }
    }

    /// The store may have lost what it had acknowledged. Before anything else the groups note it.
    fn face_losses(&mut self, store: &dyn StoreView, out: &mut Vec<Effect>) {
        let lost = store.lost();
        let mut txn = Transaction::new();
        let noted = store.omap_get(&losses(), b"times").unwrap_or_else(|e| panic!("osd.{}: {e}", self.me()));
        let times = nacre_wire::to_vec(&lost.times);
        if lost.times > 0 && noted.is_none_or(|noted| noted[..] != times) {
            let me = self.me();
            let text = format!(
                "osd.{me}: the store lost acknowledged writes: all groups are compared with other copies"
            );
            out.push(Effect::Log { level: Level::Error, text });
            self.shards.iter_mut().flat_map(|shard| shard.pgs.values_mut()).for_each(|pg| pg.doubt(&mut txn));
            txn.push(losses(), Change::OmapSet([("times".into(), times.into())].into()));
        }
        for (id, block) in &lost.blocks {
            let StoredId::Object(object) = id else { continue };
            let text = format!("osd.{}: {object}: block {block} was lost with the store's log", self.me());
            out.push(Effect::Log { level: Level::Error, text });
            let mut pgs = self.shards.iter_mut().flat_map(|shard| shard.pgs.values_mut());
            pgs.any(|pg| pg.note_lost(store, object, *block, &mut txn));
        }
        if !txn.is_empty() {
            self.store(txn, out);
        }
    }

    fn on_stop(&mut self, now: Now, out: &mut Vec<Effect>) {
        self.life = Life::Stopping(now.mono + GOODBYE);
        match (&self.mon, self.serving) {
            (MonState::Open(conn, _), true) => {
                let message = DaemonMsg::MarkMeDown { osd: self.me(), epoch: self.maps.epoch() }.into();
                out.push(Effect::Send { conn: *conn, tid: 0, message });
            }
            _ => self.life = Life::Stopping(now.mono),
        }
        self.stop_if_done(now, out);
    }
    /// The map says that we are down (or nobody says anything), and all is durable.
    fn stop_if_done(&mut self, now: Now, out: &mut Vec<Effect>) {
        let Life::Stopping(deadline) = self.life else { return };
        let quiet = self.stores.is_empty() && !self.shards.iter().any(Shard::is_storing);
        if (!self.serving && quiet) || now.mono >= deadline {
            self.life = Life::Stopped;
            out.push(Effect::Stopped);
        }
    }

    // ---- the monitor ----

    fn dial_mon(&mut self, now: Now, out: &mut Vec<Effect>) {
        let Some(&to) = self.config.mons.get(self.next_mon % self.config.mons.len().max(1)) else { return };
        self.next_mon += 1;
        let conn = self.next_conn();
        self.mon = MonState::Dialling(conn, now.mono);
        out.push(Effect::Dial { conn, to, kind: EntityType::Mon });
    }
    fn is_mon(&self, conn: ConnId) -> bool {
        matches!(self.mon, MonState::Dialling(mon, _) | MonState::Open(mon, _) if mon == conn)
    }
    fn to_mon(&self, message: impl Into<Message>, out: &mut Vec<Effect>) {
        if let MonState::Open(conn, _) = self.mon {
            out.push(Effect::Send { conn, tid: 0, message: message.into() });
        }
    }
    fn subscribe(&self, out: &mut Vec<Effect>) {
        let start = self.map().map_or(0, |map| u64::from(map.epoch.0) + 1);
        let what = BTreeMap::from([
            ("osdmap".to_string(), MonSub { start, flags: 0 }),
            ("config".to_string(), MonSub::default()),
        ]);
        self.to_mon(MonSubscribe { what, hostname: self.config.host.clone() }, out);
    }
    fn boot_if_needed(&mut self, now: Now, store: &dyn StoreView, out: &mut Vec<Effect>) {
        let running = matches!(self.life, Life::Running);
        if !running || self.serving || self.map().is_none() || now.mono < self.next_boot {
            return;
        }
        if !self.may_return(now, out) {
            return;
        }
        self.next_boot = now.mono + BOOT_RETRY;
        let boot = OsdBoot {
            osd: self.me(),
            uuid: self.config.uuid,
            public: self.config.public.clone(),
            cluster: self.config.cluster.clone(),
            newest_map: self.maps.epoch(),
            capacity: store.statfs().total,
            device_class: self.config.device_class.clone(),
            host: self.config.host.clone(),
            metadata: commands::metadata(&self.config),
        };
        self.to_mon(DaemonMsg::Boot(boot), out);
    }

    // ---- sessions ----

    fn on_opened(
        &mut self,
        now: Now,
        store: &dyn StoreView,
        conn: ConnId,
        peer: Peer,
        out: &mut Vec<Effect>,
    ) {
        if self.is_mon(conn) {
            self.mon = MonState::Open(conn, now.mono);
            self.next_boot = now.mono;
            self.subscribe(out);
            self.boot_if_needed(now, store, out);
            return;
        }
        if let Some(osd) = self.peers.by_conn(conn) {
            self.peers.opened(osd, now.mono);
            self.tell_all(now, store, out, || PgEvent::PeerOpened(osd));
            return;
        }
        if peer.kind == EntityType::Osd {
            self.askers.insert(OsdId(peer.num as i32), conn);
        }
        self.sessions.insert(conn, Session { peer, epoch: Epoch(0) });
    }

    fn on_closed(
        &mut self,
        now: Now,
        store: &dyn StoreView,
        conn: ConnId,
        why: &Closed,
        out: &mut Vec<Effect>,
    ) {
        if self.is_mon(conn) {
            self.mon = MonState::Away(now.mono + self.rng.duration(MON_RETRY / 2, MON_RETRY));
            return;
        }
        if let Some(osd) = self.peers.by_conn(conn) {
            self.copier.on_session_lost(osd);
            let life = self.peers.life(osd);
            let ended = match why {
                Closed::Refused => {
                    let place = self.map().and_then(|map| self.place_of(map, osd));
                    let two = place.is_some_and(|place| place.cluster.is_some());
                    self.peers.refused(osd, now.mono, two)
                }
                _ => {
                    self.peers.closed(osd, now.mono, false);
                    Ended::Unknown
                }
            };
            if let (Ended::Gone, Some(life)) = (ended, life) {
                self.report_failure(osd, life, FailureEvidence::Refused, out);
            } else if self.serving || ended == Ended::AskElsewhere {
                // If it is gone, nobody listens there any more: that is known in no time.
                self.dial(now, osd, out);
            }
            return;
        }
        if let Some(session) = self.sessions.remove(&conn) {
            let osd = OsdId(session.peer.num as i32);
            if session.peer.kind == EntityType::Osd && self.askers.get(&osd) == Some(&conn) {
                self.askers.remove(&osd);
                if self.serving && self.beats.life(osd).is_some() {
                    self.dial(now, osd, out);
                }
            }
            if session.peer.kind == EntityType::Client && *why == Closed::Reset {
                self.tell_all(now, store, out, || PgEvent::ClientHungUp(conn));
            }
        }
    }

    /// Tells the monitors about the life of an OSD whose addresses have this nonce.
    fn report_failure(&mut self, osd: OsdId, life: u32, evidence: FailureEvidence, out: &mut Vec<Effect>) {
        let Some(map) = self.map() else { return };
        let is_it = |addrs: &AddrVec| addrs.msgr2().is_some_and(|addr| addr.nonce == life);
        let target = map.osd(osd).filter(|target| map.is_up(osd) && is_it(&target.public_addrs));
        let Some(target) = target else { return };
        let failure = OsdFailure {
            target: osd,
            target_addrs: target.cluster_addrs.clone(),
            epoch: map.epoch,
            evidence,
        };
        if self.serving {
            self.to_mon(DaemonMsg::Failure(failure), out);
        }
    }

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
        if let MonState::Open(mon, heard) = &mut self.mon
            && *mon == conn
        {
            *heard = now.mono;
        }
        match message {
            // Maps come by themselves, unless what brings them got lost.
            Message::MonGetVersionReply(reply) if self.is_mon(conn) => {
                let behind = reply.version > u64::from(self.maps.epoch().0);
                if behind && std::mem::replace(&mut self.was_behind, behind) {
                    self.subscribe(out);
                }
                self.was_behind = behind;
            }
            Message::OsdMap(msg) if self.is_mon(conn) => {
                self.counted.osd.map_messages.inc();
                self.on_maps(now, store, &msg, out);
            }
            Message::Daemon(msg) if self.is_mon(conn) => self.on_daemon(now, store, msg, out),
            Message::Config(Config { values }) => self.options.take(values),
            Message::Peer(msg) => self.on_peer(now, store, conn, msg, out),
            Message::OsdOp(op) => self.on_op(now, store, conn, tid, op, out),
            Message::OsdOpReply(reply) if self.peers.by_conn(conn).is_some() => {
                self.on_copy_reply(now, store, tid, &reply, out);
            }
            Message::Command(command) => self.on_command(now, store, conn, tid, &command, out),
            // Clients with watches ping; others tell of things that are none of ours yet.
            _ => {}
        }
    }

    fn on_daemon(&mut self, now: Now, store: &dyn StoreView, msg: DaemonMsg, out: &mut Vec<Effect>) {
        match msg {
            DaemonMsg::Records { epoch, records } => {
                for (pg, record) in records {
                    self.tell_pg(now, store, pg, PgEvent::Record { epoch, record }, out);
                }
            }
            DaemonMsg::Activated { results, .. } => {
                for (pg, interval, accepted) in results {
                    self.tell_pg(now, store, pg, PgEvent::Activated { interval, accepted }, out);
                }
            }
            DaemonMsg::Scrub { pgs, deep, repair } => {
                self.on_scrub_wanted(now, store, pgs, (deep, repair), out);
            }
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
        if let Some((reply, marked)) = commands::mark_lost(self, command) {
            if let Some((pg, delete)) = marked {
                self.tell_pg(now, store, pg, PgEvent::MarkLost { delete }, out);
            }
            return out.push(Effect::Send { conn, tid, message: reply.into() });
        }
        let Some(reply) = commands::run(self, now, store, (conn, tid), command) else {
            return self.go_on_with_bench(out);
        };
        if command.cmd.iter().any(|cmd| cmd.contains("flush_pg_stats")) {
            self.report_at = now.mono;
            self.report_if_due(now, store, out);
        }
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
            out.push(Effect::Send { conn, tid, message: commands::reply(Ok(result)).into() });
        }
        self.go_on_with_bench(out);
    }

    /// For what belongs to no group.
    fn store(&mut self, txn: Transaction, out: &mut Vec<Effect>) -> Token {
        self.last_token += 1;
        let token = self.last_token * (SHARDS + 1) + SHARDS;
        self.stores.insert(token);
        out.push(Effect::Store { token, txn });
        token
    }

    // ---- maps ----

    fn on_maps(&mut self, now: Now, store: &dyn StoreView, msg: &OsdMapMsg, out: &mut Vec<Effect>) {
        let mut txn = Transaction::new();
        let before = self.maps.current.clone();
        let taken = match self.maps.take(msg, &mut txn) {
            Ok(taken) => taken,
            Err(error) => {
                out.push(Effect::Log { level: Level::Error, text: format!("a map of the monitor: {error}") });
                self.subscribe(out);
                return;
            }
        };
        if !txn.is_empty() {
            self.store(txn, out);
        }
        let newest = self.maps.current.clone();
        let mut old = before;
        let any = !taken.is_empty();
        for (map, follows) in taken {
            self.maps.current = Some(map.clone());
            self.on_map(now, store, old.as_deref(), &map, follows, out);
            old = Some(map);
        }
        self.maps.current = newest;
        if any {
            self.forget_copies();
            self.after_maps(now, store, out);
        }
        self.boot_if_needed(now, store, out);
    }

    /// One epoch. `follows`: nothing between it and the one before was skipped.
    fn on_map(
        &mut self,
        now: Now,
        store: &dyn StoreView,
        old: Option<&OsdMap>,
        map: &Arc<OsdMap>,
        follows: bool,
        out: &mut Vec<Effect>,
    ) {
        self.copier.on_map(map, follows);
        let was_serving = self.serving;
        let us = map.osd(self.me());
        self.serving = map.is_up(self.me()) && us.is_some_and(|osd| osd.public_addrs == self.config.public);
        if was_serving != self.serving {
            let text = format!("osd.{} is {} in map {}", self.me(), up_or_down(self.serving), map.epoch);
            out.push(Effect::Log { level: Level::Info, text });
            self.report_at = now.mono;
            self.note_fall(now, was_serving);
        }
        self.split_groups(now, store, map, out);
        let serving = self.serving;
        let mut placed: BTreeMap<PgId, UpActing> = BTreeMap::new();
        for (&pool, info) in &map.pools {
            for seed in 0..info.pg_num {
                let pg = PgId { pool, seed };
                let here = map.pg_to_up_acting(pg);
                let member = here.up.contains(&self.me()) || here.acting.contains(&self.me());
                if self.pg(pg).is_some() || (member && serving) {
                    placed.insert(pg, here);
                }
            }
        }
        let gone: Vec<PgId> = self.pgs().map(|pg| pg.id).filter(|pg| !placed.contains_key(pg)).collect();
        placed.extend(gone.into_iter().map(|pg| (pg, UpActing::default())));
        for (id, placement) in placed {
            let next = Interval::new(map.epoch, follows, placement, map, id);
            match self.pg(id).map(Pg::interval) {
                None => {
                    let pg_num = map.pool(id.pool).map_or(0, |pool| pool.pg_num);
                    let at = self.shard_of(id);
                    let interval = next.clone();
                    self.in_shard(now, store, at, out, |s, scene| s.create(scene, id, interval, pg_num));
                    self.tell_pg(now, store, id, PgEvent::Map { interval: Some(next), serving }, out);
                }
                Some(current) => {
                    let interval = if is_new(old, map, current, &next, id) {
                        Some(next)
                    } else if was_serving != serving {
                        // Our own part in it begins or ends; the interval itself does not.
                        Some(Interval { start: current.start, exact: current.exact, ..next })
                    } else {
                        None
                    };
                    self.tell_pg(now, store, id, PgEvent::Map { interval, serving }, out);
                }
            }
        }
    }

    /// Groups whose pool has more groups than when they were last looked at.
    fn split_groups(&mut self, now: Now, store: &dyn StoreView, map: &Arc<OsdMap>, out: &mut Vec<Effect>) {
        let growing: Vec<(PgId, u32)> = self
            .pgs()
            .filter_map(|pg| Some((pg.id, map.pool(pg.id.pool)?.pg_num)).filter(|(_, n)| *n > pg.pg_num()))
            .collect();
        for (id, pg_num) in growing {
            let mut children = Vec::new();
            let at = self.shard_of(id);
            self.in_shard(now, store, at, out, |shard, scene| children = shard.split(scene, id, pg_num));
            for child in children {
                let at = self.shard_of(child.id);
                self.in_shard(now, store, at, out, |shard, scene| shard.adopt(scene, child));
            }
        }
    }

    /// What waited for a map may go on, and others may need it.
    fn after_maps(&mut self, now: Now, store: &dyn StoreView, out: &mut Vec<Effect>) {
        let Some(map) = self.maps.current.clone() else { return };
        let place = |osd| self.place_of(&map, osd);
        let places: BTreeMap<OsdId, Place> =
            self.peers.osds().filter_map(|osd| Some((osd, place(osd)?))).collect();
        for conn in self.peers.outdated(|osd, network| places.get(&osd)?.on(network)) {
            out.push(Effect::Hangup { conn });
        }
        self.choose_watched(now, &map);
        for (from, msg) in std::mem::take(&mut self.waiting_msgs) {
            self.on_peer_msg(now, store, from, msg, out);
        }
        for (conn, tid, op) in std::mem::take(&mut self.waiting_ops) {
            self.on_op(now, store, conn, tid, op, out);
        }
        // A client that waits for an answer from an OSD that is gone learns of it here first.
        let clients: Vec<ConnId> = self
            .sessions
            .iter()
            .filter(|(_, s)| s.peer.kind == EntityType::Client && s.epoch > Epoch(0) && s.epoch < map.epoch)
            .map(|(conn, _)| *conn)
            .collect();
        clients.into_iter().for_each(|conn| self.share_map(conn, None, out));
        self.stop_if_done(now, out);
    }

    /// Brings a client's map up to ours; `has` is what it said it has.
    fn share_map(&mut self, conn: ConnId, has: Option<Epoch>, out: &mut Vec<Effect>) {
        let Some(session) = self.sessions.get_mut(&conn) else { return };
        session.epoch = session.epoch.max(has.unwrap_or_default());
        for message in self.maps.since(session.epoch) {
            out.push(Effect::Send { conn, tid: 0, message: message.into() });
        }
        session.epoch = session.epoch.max(self.maps.epoch());
    }

    // ---- other OSDs ----

    fn on_peer(
        &mut self,
        now: Now,
        store: &dyn StoreView,
        conn: ConnId,
        msg: PeerMsg,
        out: &mut Vec<Effect>,
    ) {
        let asker = self.sessions.get(&conn).filter(|s| s.peer.kind == EntityType::Osd);
        let asker = asker.map(|session| OsdId(session.peer.num as i32));
        let dialled = self.peers.by_conn(conn);
        if let Some(osd) = dialled {
            self.peers.heard_on(osd, now.mono);
        }
        let Some(from) = asker.or(dialled) else { return };
        match msg {
            // The session's end finds out whether it works; a hung disk's OSD is no peer.
            PeerMsg::Ping { .. } if self.disk.is_hung() => {}
            PeerMsg::Ping { stamp } => {
                out.push(Effect::Send { conn, tid: 0, message: PeerMsg::Pong { stamp }.into() });
            }
            PeerMsg::Pong { .. } => {
                if let Some(network) = self.peers.network(from) {
                    self.heard(now, from, network, out);
                }
            }
            PeerMsg::LeaseRequest { sent, pgs } => {
                let mut granted = Vec::new();
                let map = self.maps.current.clone();
                for (pg, interval) in pgs {
                    let at = self.shard_of(pg);
                    if let Some(map) = &map
                        && let Some(group) = self.shards[at].pgs.get_mut(&pg)
                        && group.interval().start == interval
                        && group.grant_lease(now.mono, map, from)
                    {
                        granted.push((pg, interval));
                    }
                }
                let grant = PeerMsg::LeaseGrant { sent, pgs: granted };
                out.push(Effect::Send { conn, tid: 0, message: grant.into() });
            }
            PeerMsg::LeaseGrant { sent, pgs } => {
                let until = Time::from_nanos(sent) + LEASE;
                for (pg, interval) in pgs {
                    self.tell_pg(now, store, pg, PgEvent::Lease { from, interval, until }, out);
                }
            }
            PeerMsg::Pg { pg, interval, msg } => {
                self.on_peer_msg(now, store, from, (pg, interval, *msg), out);
            }
            PeerMsg::Pgs(msgs) => {
                msgs.into_iter().for_each(|msg| self.on_peer_msg(now, store, from, msg, out));
            }
        }
    }

    fn on_peer_msg(
        &mut self,
        now: Now,
        store: &dyn StoreView,
        from: OsdId,
        (pg, interval, msg): (PgId, Epoch, PgMsg),
        out: &mut Vec<Effect>,
    ) {
        if interval > self.maps.epoch() {
            // Its sender knows a newer map. What finds no room here is asked again.
            if self.waiting_msgs.len() < WAITING_MAX {
                self.waiting_msgs.push_back((from, (pg, interval, msg)));
            }
            return;
        }
        if self.pg(pg).is_some() {
            self.tell_pg(now, store, pg, PgEvent::Peer { from, interval, msg }, out);
        } else if msg == PgMsg::InfoQuery {
            // Nothing here; but who knows what we granted in our last life.
            let lease_ends = self.started + LEASE;
            let left = if lease_ends > now.mono { lease_ends.since(now.mono) } else { Duration::ZERO };
            let info = PgMsg::Info { info: None, lease_left_ms: left.as_millis() as u32 + 1 };
            self.answer(from, PeerMsg::Pg { pg, interval, msg: Box::new(info) }, out);
        }
    }

    // ---- copies ----

    /// Asks for what groups of ours want to copy. What we ask ourselves happens here and now.
    fn copy(&mut self, now: Now, store: &dyn StoreView, out: &mut Vec<Effect>) {
        loop {
            let mut idle = true;
            for id in self.copier.due(now.mono) {
                idle &= !self.fetch_part(now, store, id, out);
            }
            let ours = |effect: &Effect| matches!(effect, Effect::Send { conn, .. } if *conn == OURSELVES);
            let Some(at) = out.iter().position(ours) else {
                if idle {
                    return;
                }
                continue;
            };
            match out.remove(at) {
                Effect::Send { tid, message: Message::OsdOp(op), .. } => {
                    self.on_op(now, store, OURSELVES, tid, op, out);
                }
                Effect::Send { tid, message: Message::OsdOpReply(reply), .. } => {
                    self.on_copy_reply(now, store, tid, &reply, out);
                }
                _ => {} // a map, which we have
            }
        }
    }

    /// Whether it could be asked for, or is known not to be there.
    fn fetch_part(&mut self, now: Now, store: &dyn StoreView, id: u64, out: &mut Vec<Effect>) -> bool {
        let Some(map) = self.maps.current.clone() else { return false };
        let target = match self.copier.target(id, &map) {
            Ok(Some(target)) => target,
            Ok(None) => return false,
            Err(()) => {
                let ended = self.copier.end(id, -ENOENT);
                self.copy_ended(now, store, ended, out);
                return true;
            }
        };
        let me = self.me();
        let conn = if target.osd == me { Some(OURSELVES) } else { self.peers.open(target.osd) };
        let Some(conn) = conn else {
            self.dial(now, target.osd, out);
            return false;
        };
        let Some((tid, op)) = self.copier.next_part(id, target, now.mono, me, &map) else { return false };
        out.push(Effect::Send { conn, tid, message: Box::new(op).into() });
        true
    }

    fn on_copy_reply(
        &mut self,
        now: Now,
        store: &dyn StoreView,
        tid: u64,
        reply: &OsdOpReply,
        out: &mut Vec<Effect>,
    ) {
        let ended = self.copier.on_reply(now.mono, tid, reply);
        self.copy_ended(now, store, ended, out);
    }
    fn copy_ended(
        &mut self,
        now: Now,
        store: &dyn StoreView,
        ended: Option<Finished>,
        out: &mut Vec<Effect>,
    ) {
        if let Some((Asker { pg, read, .. }, result)) = ended {
            let event = PgEvent::Copied { read, result };
            self.tell_pg(now, store, pg, event, out);
        }
    }
    fn forget_copies(&mut self) {
        let mut copier = std::mem::take(&mut self.copier);
        copier.retain(|asker| self.pg(asker.pg).is_some_and(|pg| pg.interval().start == asker.interval));
        self.copier = copier;
    }

    // ---- clients ----

    fn on_op(
        &mut self,
        now: Now,
        store: &dyn StoreView,
        conn: ConnId,
        tid: u64,
        op: Box<OsdOp>,
        out: &mut Vec<Effect>,
    ) {
        // Copies are read for OSDs, of which one may be ourselves.
        let (client, sender_addr, blocked_addrs, for_copy) = match self.sessions.get(&conn) {
            Some(session) => {
                let peer = &session.peer;
                let addr = peer.addrs.0.first().copied().unwrap_or(peer.observed);
                (peer.num, addr, peer.addrs.clone(), peer.kind == EntityType::Osd)
            }
            None if conn == OURSELVES => {
                (self.me().0.into(), EntityAddr::default(), AddrVec::default(), true)
            }
            None => return,
        };
        let epoch = self.maps.epoch();
        if op.epoch > epoch || self.map().is_none() {
            self.counted.osd.messages_delayed_for_map.inc();
            if self.waiting_ops.len() < WAITING_MAX {
                self.waiting_ops.push_back((conn, tid, op));
            }
            return;
        }
        let Some(map) = self.maps.current.clone() else { return };
        if !for_copy {
            self.share_map(conn, Some(op.epoch), out);
        }
        let refuse = |errno: i32, out: &mut Vec<Effect>| {
            let reply = Box::new(OsdOpReply::to(&op, -errno, epoch));
            out.push(Effect::Send { conn, tid, message: reply.into() });
        };
        if map.is_blocklisted(&blocked_addrs) {
            return refuse(ESHUTDOWN, out);
        }
        let Some(pool) = map.pool(op.spg.pg.pool) else {
            return refuse(ENOENT, out);
        };
        let id = op.spg.pg;
        let primary = self.serving && self.pg(id).is_some_and(|pg| pg.interval().primary == Some(self.me()));
        if !primary {
            // Whoever may read from replicas is sent to the primary: nobody else has a lease.
            let anywhere = op_flags::message::BALANCE_READS | op_flags::message::LOCALIZE_READS;
            if op.has_flag(anywhere) && op.epoch >= epoch {
                return refuse(EAGAIN, out);
            }
            // A client with our map should have known better; one with an older map learns.
            if op.epoch >= epoch && map.pg_exists(id) && self.serving {
                refuse(ENXIO, out);
            }
            return;
        }
        let since = self.pg(id).map_or(Epoch(0), Pg::last_primary_change);
        if op.epoch < since || op.epoch < pool.last_force_op_resend {
            return; // the client sends it again when it has that map
        }
        let ops: Result<Vec<FlaggedOp>, _> = op
            .ops
            .iter()
            .map(|item| {
                let parsed = item.parse()?;
                Ok::<_, nacre_wire::DecodeError>(FlaggedOp::new(
                    parsed,
                    item.op.flags,
                    item.op.code.is_write(),
                ))
            })
            .collect();
        let Ok(ops) = ops else { return refuse(EINVAL, out) };
        let object = op.object();
        let writes = ops.iter().any(|op| op.is_write);
        let lists = ops.iter().any(|op| op.op.is_about_group());
        if let Err(error) = check_request(&object, &ops) {
            return refuse(-error, out);
        }
        if !lists && op.hash != hash_of(&op.locator, &op.name) {
            return refuse(EINVAL, out);
        }
        if writes {
            // Snapshots do not change, and a write knows which there are.
            let context = SnapContext { seq: op.snap_seq, snaps: op.snaps.clone() };
            if object.snap != SnapId::HEAD || !context.is_valid() {
                return refuse(EINVAL, out);
            }
            if op.ops.iter().map(|item| item.data.len()).sum::<usize>() > WRITE_SIZE_MAX {
                return refuse(EMSGSIZE, out);
            }
            let deletes = ops.iter().filter(|op| op.is_write).all(|op| op.op == Op::Delete);
            // What the map says of the cluster comes late; our own disk is full now.
            if !deletes && !has_room(store) {
                return refuse(ENOSPC, out);
            }
            if let Some(errno) = full(&map, pool)
                && !op.has_flag(op_flags::message::FULL_FORCE)
                && !(deletes && op.has_flag(op_flags::message::FULL_TRY))
            {
                if op.has_flag(op_flags::message::FULL_TRY) {
                    refuse(errno, out);
                }
                return; // the client waits until there is room, and sends it then
            }
        }
        self.last_op += 1;
        self.ops_served += 1;
        let reqid = op.request_id(EntityName::client(client as u64), tid);
        let (object, snap) = (object.to_head(), object.snap);
        let seq = self.last_op;
        let request: Arc<OsdOp> = Arc::from(op);
        let sender = (EntityName::client(client as u64), sender_addr);
        let steps = Steps::new(now.mono);
        let op = ClientOp { seq, conn, tid, sender, reqid, object, snap, ops, request, steps, for_copy };
        self.tell_pg(now, store, id, PgEvent::Op(op), out);
    }

    // ---- the disk and the clock ----

    fn on_stored(&mut self, now: Now, store: &dyn StoreView, token: Token, out: &mut Vec<Effect>) {
        self.disk.stored(token);
        for token in self.joined.stored(token) {
            self.stores.remove(&token);
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
        if now.mono.since(self.last_tick) > 4 * TICK_EVERY {
            self.peers.forgive(now.mono);
        }
        self.last_tick = now.mono;
        self.look_at_disk(now, out);
        let latency = &self.counted.osd.op_latency;
        let waited = Duration::from_nanos(latency.sum());
        let (groups, logs) = self.pgs().fold((0, 0), |(n, sum), pg| (n + 1, sum + pg.log_memory()));
        self.budget.look_at_logs(groups, logs);
        self.budget.recovery.look(self.options.recovery(), latency.count(), waited);
        self.budget.trim.look(self.options.trimming(), latency.count(), waited);
        match self.mon {
            MonState::Away(until) if until <= now.mono => self.dial_mon(now, out),
            MonState::Dialling(conn, since) | MonState::Open(conn, since)
                if now.mono.since(since) > MON_SILENCE =>
            {
                out.push(Effect::Hangup { conn });
                self.dial_mon(now, out);
            }
            _ => {}
        }
        if now.mono.since(self.last_mon_ping) >= MON_PING_EVERY {
            self.last_mon_ping = now.mono;
            self.to_mon(MonGetVersion { handle: 0, what: "osdmap".to_string() }, out);
        }
        self.boot_if_needed(now, store, out);
        if self.serving {
            self.look_at_scrubs(now);
            self.tell_all(now, store, out, || PgEvent::Tick);
            self.start_scrub(now, store, out);
            self.leases_now = true;
            if now.mono.since(self.last_ping) >= PING_EVERY {
                self.last_ping = now.mono;
                self.ping(now, out);
            }
            // Clients are held back before a disk is full only if the monitors know in time.
            let space = store.statfs();
            if space.available.abs_diff(self.reported_available) > space.total / SPACE_NEWS_PARTS {
                self.report_at = now.mono;
            }
            self.report_if_due(now, store, out);
        }
        self.stop_if_done(now, out);
    }

    fn ping(&mut self, now: Now, out: &mut Vec<Effect>) {
        for conn in self.peers.dead_sessions(now.mono) {
            out.push(Effect::Hangup { conn });
        }
        let all: BTreeSet<OsdId> = self.beats.watched().chain(self.peers.osds()).collect();
        for osd in all {
            self.ask(now, osd, PeerMsg::Ping { stamp: now.mono.nanos }, out);
        }
    }

    fn report_if_due(&mut self, now: Now, store: &dyn StoreView, out: &mut Vec<Effect>) {
        let (served, at) = self.reported;
        let news = served != self.ops_served && now.mono.since(at) >= REPORT_AFTER_OPS;
        if (now.mono < self.report_at && !news) || !matches!(self.mon, MonState::Open(..)) {
            return;
        }
        self.report_at = now.mono + REPORT_EVERY;
        self.reported = (self.ops_served, now.mono);
        let statfs = store.statfs();
        self.reported_available = statfs.available;
        let commit_latency_us = self.commit_latency_us();
        let report = OsdReport {
            osd: Some(self.me()),
            epoch: self.maps.epoch(),
            space: OsdSpace {
                total: statfs.total,
                available: statfs.available,
                allocated: statfs.allocated,
                stored: statfs.stored,
                omap: statfs.omap,
                internal: statfs.internal,
            },
            commit_latency_us,
            pgs: self.pgs().filter_map(|pg| pg.report(now.wall)).collect(),
            num_objects: self.pgs().map(Pg::objects).sum(),
        };
        self.to_mon(DaemonMsg::Report(report), out);
    }

    /// The mean since the last report, in microseconds; zero if nothing was stored.
    fn commit_latency_us(&mut self) -> u32 {
        let commit = &self.counted.stages.commit;
        let (count, nanos) = (commit.count(), commit.sum());
        let (last_count, last_nanos) = std::mem::replace(&mut self.commits_reported, (count, nanos));
        // A reset in between makes both smaller.
        let mean = nanos.saturating_sub(last_nanos).checked_div(count.saturating_sub(last_count));
        (mean.unwrap_or(0) / 1000).min(u32::MAX.into()) as u32
    }

    /// What groups wanted in this turn, put together.
    fn flush(&mut self, now: Now, out: &mut Vec<Effect>) {
        if std::mem::take(&mut self.leases_now) && self.serving {
            let mut of = BTreeMap::new();
            self.shards.iter().for_each(|shard| shard.leases(&mut of));
            for (osd, pgs) in of {
                self.ask(now, osd, PeerMsg::LeaseRequest { sent: now.mono.nanos, pgs }, out);
            }
        }
        self.outbox.flush(out);
        if !matches!(self.mon, MonState::Open(..)) {
            return;
        }
        let epoch = self.maps.epoch();
        let pgs: Vec<PgId> = std::mem::take(&mut self.record_queries).into_iter().collect();
        if !pgs.is_empty() {
            self.to_mon(DaemonMsg::RecordQuery { epoch, pgs }, out);
        }
        let records: Vec<(PgId, PgRecord)> = std::mem::take(&mut self.activations).into_iter().collect();
        if !records.is_empty() {
            self.to_mon(DaemonMsg::Activate { epoch, records }, out);
        }
    }
}

/// How many losses of the store the groups know of: `times` in its omap.
fn losses() -> StoredId {
    StoredId::meta("losses")
}

fn up_or_down(up: bool) -> &'static str {
    if up { "up" } else { "down" }
}

/// Whether the device takes more than what must stay free.
pub(crate) fn has_room(store: &dyn StoreView) -> bool {
    let space = store.statfs();
    space.available >= space.total / FAILSAFE_PARTS
}

/// Why there is no room for writes to the pool.
fn full(map: &OsdMap, pool: &Pool) -> Option<i32> {
    if pool.flags & pool_flags::FULL_QUOTA != 0 {
        Some(EDQUOT)
    } else if map.has(map_flags::FULL) || pool.flags & pool_flags::FULL != 0 {
        Some(ENOSPC)
    } else {
        None
    }
}

/// Whether the group must peer anew. Every OSD gets the same answer from the same maps.
fn is_new(old: Option<&OsdMap>, map: &OsdMap, now: &Interval, next: &Interval, pg: PgId) -> bool {
    let Some(old) = old else { return true };
    let same_place = now.up == next.up
        && now.up_primary == next.up_primary
        && now.acting == next.acting
        && now.primary == next.primary
        && (now.size, now.min_size) == (next.size, next.min_size);
    let groups = |map: &OsdMap| map.pool(pg.pool).map_or(0, |pool| pool.pg_num);
    let was_born = |osd: &&OsdId| osd.is_some();
    // A member that was down in between, or has a new life, starts with nothing in its memory.
    let up_from = |map: &OsdMap, osd: OsdId| map.osd(osd).map(|o| o.info.up_from);
    let same_lives =
        next.up.iter().chain(&next.acting).filter(was_born).all(|o| up_from(old, *o) == up_from(map, *o));
    !same_place
        || !same_lives
        || is_split(pg, groups(old), groups(map))
        || pg.seed >= groups(old) && pg.seed < groups(map)
}
