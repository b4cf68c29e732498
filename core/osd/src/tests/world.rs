//! Several OSDs, a monitor that only does what OSDs need of it, and one client, in one thread with
//! a clock of its own. The whole-cluster simulator is `check/sim`; this one is small, knows what is
//! inside an OSD, and finds most mistakes within a second.

use super::memory;
use super::store::MemStore;
use crate::osd::{MEMORY, Osd, OsdConfig};
use crate::snap_set::SnapContext;
use bytes::Bytes;
use nacre_base::{Epoch, IntervalSet, Now, OsdId, PgId, PoolId, Rng, ShardId, SnapId, Time, Utime};
use nacre_crush::CrushMap;
use nacre_machine::{Closed, ConnId, Effect, Event, Level, Machine, Peer};
use nacre_proto::maps::{
    Incremental, Osd as OsdState, OsdMap, OsdXinfo, Pool, PoolMerge, is_merge_source, is_merge_target,
    is_split, osd_state, pool_flags, shard_members,
};
use nacre_proto::messages::{
    BackoffOp, Config, DaemonMsg, Envelope, ImageWork, Latencies, MergeReady, Message, MonGetVersionReply,
    OsdBackoff, OsdMapMsg, OsdOp, OsdOpItem, OsdOpReply, PeerMsg, PgRecord, PgReport, PgWish, SlowOps,
};
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_proto::types::{
    AddrVec, EntityAddr, EntityType, ObjectId, ObjectLocator, Op, ReqId, SpgId, cluster_format, object_hash,
    op_flags,
};
use nacre_wire::to_vec;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

pub const POOL: PoolId = PoolId(1);
pub const MON: usize = 100;
const CLIENT: usize = 101;

enum Happening {
    Event {
        node: usize,
        life: u32,
        event: Box<Event>,
    },
    /// Durable now.
    Synced {
        node: usize,
        life: u32,
        token: u64,
        txn: Transaction,
    },
    Timer {
        node: usize,
        life: u32,
        timer: u64,
        armed: u64,
    },
}

pub struct Node {
    pub osd: Option<Osd>,
    life: u32,
    addr: EntityAddr,
    pub view: MemStore,
    pub disk: MemStore,
    disk_busy: Time,
    accepted: u64,
    armed: BTreeMap<u64, u64>,
    pub stopped: bool,
}

/// What members of erasure-coded placement groups did.
#[derive(Debug, Default)]
pub struct Tally {
    /// Reads of the disk, by node.
    pub reads: BTreeMap<usize, usize>,
    /// Transactions with bytes of objects.
    pub stored_with_data: usize,
    /// Changes of parity by a difference.
    pub xors: usize,
    /// Copies of objects.
    pub copied_whole: usize,
    /// Copies of some blocks of them.
    pub copied_blocks: Vec<u32>,
    /// Nodes whose disk takes that much longer to read.
    pub slow_reads: BTreeMap<usize, Duration>,
}

pub struct World {
    /// The snapshot that the client reads, and the context under which it writes.
    pub at: Option<SnapId>,
    pub context: SnapContext,
    pub now: Time,
    pub rng: Rng,
    queue: BTreeMap<(Time, u64), Happening>,
    seq: u64,
    pub nodes: Vec<Node>,
    /// Both directions of each session: the receiver of what is sent into this end.
    links: BTreeMap<(usize, ConnId), (usize, ConnId)>,
    arrivals: BTreeMap<(usize, ConnId), Time>,
    pub cut: BTreeSet<(usize, usize)>,
    pub map: Arc<OsdMap>,
    incrementals: BTreeMap<Epoch, Bytes>,
    mon_conns: BTreeMap<ConnId, usize>,
    mon_accepted: u64,
    silent: BTreeMap<OsdId, BTreeSet<usize>>,
    pub records: BTreeMap<PgId, PgRecord>,
    pub reports: BTreeMap<PgId, PgReport>,
    /// The number of each OSD's last report.
    pub last_report: BTreeMap<OsdId, u64>,
    /// Snapshots for which OSDs say that clones were made.
    pub kept: IntervalSet,
    /// Requests that each OSD has had for too long.
    pub slow: BTreeMap<OsdId, SlowOps>,
    pub image_work: Vec<ImageWork>,
    /// Latencies that OSDs reported.
    pub latencies: Latencies,
    /// The cluster's format, which OSDs are told when they boot.
    pub format: Option<u32>,
    client_conns: BTreeMap<OsdId, (ConnId, bool)>,
    client_last: u64,
    pub client_id: i64,
    pub client_features: u64,
    /// What OSDs asked the client to keep, by session, PG and number; and how often they did.
    pub backoffs: BTreeMap<(ConnId, SpgId, u64), Range<ObjectId>>,
    pub blocks: usize,
    requests: BTreeMap<u64, Request>,
    pub replies: BTreeMap<u64, OsdOpReply>,
    last_tid: u64,
    pub trace: bool,
    /// How many messages about PGs each OSD sent to each other one.
    pub sent: BTreeMap<(usize, usize), usize>,
    pub tally: Tally,
    /// How many requests for leases OSDs sent.
    pub lease_requests: usize,
    /// How many transactions each OSD gave to its disk.
    pub stored: BTreeMap<usize, usize>,
    /// And which of them wrote data that clients read there.
    pub read_here: BTreeSet<usize>,
    /// How often OSDs allocated when messages came or something was stored.
    pub allocations: usize,
    /// OSDs may send warnings and errors to the cluster log.
    pub allow_errors: bool,
    /// How often they did.
    pub errors: usize,
    pub min_delay: Duration,
    pub max_delay: Duration,
    /// Additional latency of messages from and to the client.
    pub client_delay: Duration,
    /// Bytes of memory that each OSD started from now on has.
    pub memory: usize,
    /// What the monitor says when an OSD comes.
    pub config: BTreeMap<String, String>,
    /// This many messages between daemons from now, one is lost.
    pub lose: Option<usize>,
}

struct Request {
    op: OsdOp,
    sent_to: Option<(OsdId, ConnId)>,
    attempt: i32,
    pg_num: u32,
}

fn addr_of(node: usize, life: u32) -> EntityAddr {
    let sock = format!("127.0.0.1:{}", 6800 + node).parse().unwrap();
    EntityAddr::msgr2(sock, life)
}

impl World {
    /// `osds` of them, and a pool of `pg_num` PGs of `size` copies.
    pub fn new(seed: u64, osds: usize, size: u8, min_size: u8, pg_num: u32) -> World {
        let mut map = OsdMap::new([1; 16], Utime::ZERO, CrushMap::default());
        map.set_max_osd(osds as u32);
        for n in 0..osds {
            let osd = map.osd_mut(OsdId(n as i32)).unwrap();
            osd.state = osd_state::EXISTS;
            map.weights[n] = OsdState::IN;
        }
        let pool = Pool::replicated(size, min_size, pg_num, 0, Utime::ZERO);
        map.pools.insert(POOL, Arc::new(pool));
        map.pool_names.insert(POOL, "p".into());
        let mut world = World {
            at: None,
            context: SnapContext::default(),
            now: Time::from_nanos(1_000_000_000),
            rng: Rng::new(seed),
            queue: BTreeMap::new(),
            seq: 0,
            nodes: Vec::new(),
            links: BTreeMap::new(),
            arrivals: BTreeMap::new(),
            cut: BTreeSet::new(),
            map: Arc::new(map),
            incrementals: BTreeMap::new(),
            mon_conns: BTreeMap::new(),
            mon_accepted: 0,
            silent: BTreeMap::new(),
            records: BTreeMap::new(),
            reports: BTreeMap::new(),
            last_report: BTreeMap::new(),
            kept: IntervalSet::new(),
            slow: BTreeMap::new(),
            image_work: Vec::new(),
            latencies: Latencies::default(),
            format: None,
            client_conns: BTreeMap::new(),
            client_last: 0,
            client_id: 4100,
            client_features: u64::MAX,
            backoffs: BTreeMap::new(),
            blocks: 0,
            requests: BTreeMap::new(),
            replies: BTreeMap::new(),
            last_tid: 0,
            sent: BTreeMap::new(),
            tally: Tally::default(),
            stored: BTreeMap::new(),
            read_here: BTreeSet::new(),
            lease_requests: 0,
            allocations: 0,
            allow_errors: false,
            errors: 0,
            trace: std::env::var("TRACE").is_ok(),
            min_delay: Duration::from_micros(50),
            max_delay: Duration::from_millis(5),
            client_delay: Duration::ZERO,
            memory: MEMORY,
            config: BTreeMap::new(),
            lose: None,
        };
        for node in 0..osds {
            // Some have all in memory, in some worlds the first, in some the second.
            let store = MemStore { in_memory: (seed + node as u64).is_multiple_of(2), ..MemStore::default() };
            world.nodes.push(Node {
                osd: None,
                life: 0,
                addr: addr_of(node, 0),
                view: store.clone(),
                disk: store,
                disk_busy: Time::ZERO,
                accepted: 0,
                armed: BTreeMap::new(),
                stopped: false,
            });
        }
        world.place((0..pg_num).map(|seed| (seed, world.any_osds(seed, osds, size.into()))).collect());
        (0..osds).for_each(|node| world.start(node));
        world
    }

    /// The pool is erasure-coded from its first moment, with k data chunks and m of parity.
    pub fn make_erasure(&mut self, k: u8, m: u8) {
        self.format = Some(cluster_format::NEWEST);
        self.change(|map, inc| {
            let old = map.pool(POOL).unwrap();
            let settings = [("plugin", "isa".to_string()), ("k", k.to_string()), ("m", m.to_string())];
            let settings = settings.map(|(name, value)| (name.to_string(), value));
            inc.new_erasure_code_profiles.insert("code".into(), settings.into());
            let (size, min_size) = (k + m, k + u8::min(1, m - 1));
            let width = 4096 * u32::from(k);
            let mut pool = Pool::erasure(size, min_size, old.pg_num, 0, "code", width, Utime::ZERO);
            pool.flags |= pool_flags::EC_OVERWRITES;
            inc.new_pools.insert(POOL, Arc::new(pool));
        });
    }

    fn any_osds(&self, seed: u32, osds: usize, size: usize) -> Vec<OsdId> {
        (0..size).map(|n| OsdId(((seed as usize + n) % osds) as i32)).collect()
    }

    // ---- the monitor ----

    pub fn change(&mut self, edit: impl FnOnce(&OsdMap, &mut Incremental)) {
        let mut inc = Incremental::after(&self.map, Utime::ZERO);
        edit(&self.map, &mut inc);
        let next = inc.seal(&self.map).unwrap();
        // As the monitors do it.
        for (pg, record) in self.records.iter().filter(|(pg, _)| next.pg_exists(**pg)) {
            if next.pool(pg.pool).is_some_and(Pool::is_erasure)
                && let placed = next.pg_to_up_acting(*pg)
                && let Some(acting) = shard_members(&next, *pg, &record.acting, &placed)
            {
                let acting = if acting == placed.up { Vec::new() } else { acting };
                if next.pg_temp.get(pg).map_or(&[][..], |known| known) != acting {
                    inc.new_pg_temp.insert(*pg, acting);
                }
            }
        }
        self.map = Arc::new(inc.seal(&self.map).unwrap());
        self.incrementals.insert(self.map.epoch, to_vec(&inc).into());
        if self.trace {
            let up: Vec<i32> = self.map.up_osds().map(|o| o.0).collect();
            eprintln!("{:?} map {} up {up:?}", self.now.nanos / 1_000_000, self.map.epoch);
        }
        let conns: Vec<ConnId> = self.mon_conns.keys().copied().collect();
        for conn in conns {
            self.send_maps(conn, self.map.epoch.prev());
        }
        self.retarget();
    }
    pub fn place(&mut self, placement: Vec<(u32, Vec<OsdId>)>) {
        self.change(|_, inc| {
            for (seed, osds) in placement {
                inc.new_pg_upmap.insert(PgId { pool: POOL, seed }, osds);
            }
        });
    }
    /// Grows the pool; children are placed like their parents.
    pub fn split(&mut self, pg_num: u32) {
        let before = self.map.pool(POOL).unwrap().pg_num;
        let records: Vec<_> = self.records.clone().into_iter().collect();
        for (pg, record) in records {
            for child in nacre_proto::maps::split_children(pg, before, pg_num) {
                self.records.insert(child, record.clone());
            }
        }
        self.change(|map, inc| {
            let mut pool = map.pool(POOL).unwrap().clone();
            (pool.pg_num, pool.pg_num_pending, pool.pgp_num) = (pg_num, pg_num, pg_num);
            inc.new_pools.insert(POOL, Arc::new(pool));
            for seed in before..pg_num {
                let parent = PgId { pool: POOL, seed: nacre_proto::maps::stable_mod(seed, before) };
                let osds = map.pg_upmap.get(&parent).cloned().unwrap_or_default();
                inc.new_pg_upmap.insert(PgId { pool: POOL, seed }, osds);
            }
        });
    }
    /// Announces that the last PG is to become part of another; both are placed alike from then on.
    /// Else calls that off.
    pub fn announce_merge(&mut self, wanted: bool) {
        self.change(|map, inc| {
            let mut pool = map.pool(POOL).unwrap().clone();
            pool.pg_num_pending = pool.pg_num - u32::from(wanted);
            if let Some((source, target)) = pool.merging(POOL) {
                let osds = map.pg_upmap.get(&target).cloned().unwrap_or_default();
                inc.new_pg_upmap.insert(source, osds);
            }
            inc.new_pools.insert(POOL, Arc::new(pool));
        });
    }
    /// As the monitors do, see there.
    fn merge(&mut self, ready: MergeReady) {
        let pool = self.map.pool(POOL).unwrap().clone();
        let Some((source, target)) = pool.merging(POOL) else { return };
        let (one, other) = (self.records[&source].clone(), self.records[&target].clone());
        let mut sets = [one.acting.clone(), other.acting.clone()];
        sets.iter_mut().for_each(|set| set.sort_unstable());
        let holds = source == ready.source
            && ready.epoch >= pool.last_change
            && (one.interval, other.interval) == (ready.source_interval, ready.target_interval)
            && sets[0] == sets[1];
        if !holds {
            return;
        }
        let epoch = self.map.epoch.next();
        let mut united = pool;
        united.merge(
            PoolMerge {
                source,
                ready_epoch: ready.epoch,
                last_epoch_started: one.interval,
                last_epoch_clean: one.interval,
                source_version: ready.source_version,
                target_version: ready.target_version,
            },
            epoch,
        );
        self.records.remove(&source);
        self.records.get_mut(&target).unwrap().interval = epoch;
        self.reports.remove(&source);
        self.change(|_, inc| {
            inc.new_pools.insert(POOL, Arc::new(united));
            inc.old_pg_upmap.insert(source);
        });
    }
    /// A second pool, of one PG.
    pub fn add_pool(&mut self, pool: PoolId, osds: Vec<OsdId>) {
        self.change(|_, inc| {
            let info = Pool::replicated(osds.len() as u8, 1, 1, 0, Utime::ZERO);
            inc.new_pools.insert(pool, Arc::new(info));
            inc.new_pool_names.insert(pool, format!("p{}", pool.0));
            inc.new_pg_upmap.insert(PgId { pool, seed: 0 }, osds);
            inc.new_pool_max = Some(pool.0 as i32);
        });
    }
    /// OSDs that did not get the incrementals get a full map.
    pub fn forget_maps(&mut self) {
        self.incrementals.clear();
    }
    pub fn client_addr(&self) -> EntityAddr {
        addr_of(CLIENT, 1)
    }
    pub fn mark_down(&mut self, osd: OsdId) {
        self.silent.remove(&osd);
        if self.map.is_up(osd) {
            self.change(|_, inc| inc.new_state.extend([(osd, osd_state::UP)]));
        }
    }
    fn send_maps(&mut self, conn: ConnId, have: Epoch) {
        let (fsid, newest) = (self.map.fsid, self.map.epoch);
        let (mut incrementals, mut full) = (BTreeMap::new(), BTreeMap::new());
        if have == Epoch(0) || have < newest && !self.incrementals.contains_key(&have.next()) {
            full.insert(newest, to_vec(&*self.map).into());
        } else {
            incrementals.extend(self.incrementals.range(have.next()..).map(|(e, b)| (*e, b.clone())));
        }
        let msg = OsdMapMsg {
            fsid,
            incrementals,
            full,
            oldest: Epoch(1),
            newest,
            gap_removed_snaps: BTreeMap::new(),
        };
        self.send(MON, conn, 0, msg.into());
    }

    fn mon_event(&mut self, event: Event) {
        match event {
            Event::Opened { conn, peer } => {
                self.mon_conns.insert(conn, peer.num as usize);
                let values = self.config.clone();
                self.send(MON, conn, 0, Config { values }.into());
            }
            Event::Closed { conn, .. } => drop(self.mon_conns.remove(&conn)),
            Event::Message { conn, message, .. } => match message {
                Message::MonSubscribe(sub) => {
                    let start = sub.what["osdmap"].start as u32;
                    self.send_maps(conn, Epoch(start.saturating_sub(1)));
                }
                Message::MonGetVersion(ask) => {
                    let version = self.map.epoch.0.into();
                    let reply = MonGetVersionReply { handle: ask.handle, version, oldest: 1 };
                    self.send(MON, conn, 0, reply.into());
                }
                Message::Daemon(msg) => self.mon_daemon(conn, msg),
                _ => {}
            },
            _ => {}
        }
    }
    fn mon_daemon(&mut self, conn: ConnId, msg: DaemonMsg) {
        let Some(&node) = self.mon_conns.get(&conn) else { return };
        match msg {
            DaemonMsg::Boot(boot) => {
                let known = self.map.osd(boot.osd).cloned().unwrap_or_default();
                if boot.public != AddrVec::one(self.nodes[node].addr) {
                    return;
                }
                if known.has(osd_state::UP) {
                    if known.public_addrs != boot.public {
                        self.mark_down(boot.osd);
                    }
                    return;
                }
                self.change(|_, inc| {
                    inc.new_up_client.insert(boot.osd, boot.public.clone());
                    inc.new_up_cluster.insert(boot.osd, boot.cluster.clone());
                    inc.new_hb_back_up.insert(boot.osd, boot.cluster.clone());
                    inc.new_hb_front_up.insert(boot.osd, boot.public);
                });
                if let Some(format) = self.format {
                    self.send(MON, conn, 0, DaemonMsg::Format { format }.into());
                }
            }
            DaemonMsg::MarkMeDown { osd, is_over, .. } => {
                self.mark_down(osd);
                if is_over {
                    self.change(|map, inc| {
                        let xinfo = map.osd(osd).map(|osd| osd.xinfo).unwrap_or_default();
                        inc.new_xinfo.insert(osd, OsdXinfo { dead_epoch: inc.epoch, ..xinfo });
                    });
                }
            }
            DaemonMsg::Failure(failure) => {
                let same =
                    self.map.osd(failure.target).is_some_and(|o| o.cluster_addrs == failure.target_addrs);
                if !same || !self.map.is_up(OsdId(node as i32)) {
                    return;
                }
                match failure.evidence {
                    nacre_proto::messages::FailureEvidence::Refused => self.mark_down(failure.target),
                    nacre_proto::messages::FailureEvidence::Recovered => {
                        self.silent.entry(failure.target).or_default().remove(&node);
                    }
                    nacre_proto::messages::FailureEvidence::SilentOn { .. } => {}
                    nacre_proto::messages::FailureEvidence::Silent { .. } => {
                        let reporters = self.silent.entry(failure.target).or_default();
                        reporters.insert(node);
                        let others = self.map.up_osds().filter(|o| *o != failure.target).count();
                        if reporters.len() >= others.min(2) {
                            self.mark_down(failure.target);
                        }
                    }
                }
            }
            DaemonMsg::RecordQuery { epoch, pgs } => {
                assert!(epoch <= self.map.epoch);
                let records = pgs.into_iter().map(|pg| (pg, self.records.get(&pg).cloned())).collect();
                let answer = DaemonMsg::Records { epoch: self.map.epoch, records };
                self.send(MON, conn, 0, answer.into());
            }
            DaemonMsg::Activate { records, .. } => {
                let mut results = Vec::new();
                for (pg, record) in records {
                    let placed = self.map.pg_to_up_acting(pg);
                    let known = self.records.get(&pg);
                    let lives = placed
                        .acting
                        .iter()
                        .filter(|osd| osd.is_some())
                        .all(|o| self.map.osds[o.index()].info.up_from <= record.interval);
                    let last = &self.map.pool(pg.pool).unwrap().last_merge;
                    let merged = last.ready_epoch > Epoch(0);
                    let newer = |k: &PgRecord| {
                        record.interval > k.interval
                            || record == *k
                            || merged && record.interval == k.interval
                    };
                    let ok = known.is_none_or(newer)
                        && self.map.pg_exists(pg)
                        && lives
                        && placed.acting == record.acting;
                    if ok {
                        self.records.insert(pg, record.clone());
                    }
                    results.push((pg, record.interval, ok));
                }
                let answer = DaemonMsg::Activated { epoch: self.map.epoch, results };
                self.send(MON, conn, 0, answer.into());
            }
            DaemonMsg::Rearrange(wishes) => {
                for PgWish { pg, record, mut acting } in wishes {
                    if self.records.get(&pg) == Some(&record) {
                        let placed = self.map.pg_to_up_acting(pg);
                        if placed.has_shards && placed.up == acting {
                            acting.clear();
                        }
                        self.change(|_, inc| drop(inc.new_pg_temp.insert(pg, acting)));
                    }
                }
            }
            DaemonMsg::MergeReady(ready) => self.merge(ready),
            DaemonMsg::Images(work) => self.image_work.extend(work),
            DaemonMsg::Latencies(latencies) => self.latencies.merge(&latencies),
            DaemonMsg::Report(report) => {
                let osd = report.osd.expect("it says who it is");
                self.last_report.insert(osd, report.seq);
                self.slow.insert(osd, report.slow);
                report.kept.values().for_each(|snaps| self.kept.add(snaps));
                let exists = |pg: &PgId| self.map.pg_exists(*pg);
                for pg in report.pgs.into_iter().filter(|report| exists(&report.pg)) {
                    let newer = self.reports.get(&pg.pg).is_none_or(|old| old.interval <= pg.interval);
                    if newer {
                        self.reports.insert(pg.pg, pg);
                    }
                }
            }
            _ => {}
        }
    }

    /// Tells every OSD something, as its monitor.
    pub fn tell_osds(&mut self, message: impl Fn() -> Message) {
        let conns: Vec<ConnId> = self.mon_conns.keys().copied().collect();
        conns.into_iter().for_each(|conn| self.send(MON, conn, 0, message()));
    }
    /// Changes what a disk holds behind its OSD's back.
    pub fn corrupt(&mut self, node: usize, damage: impl Fn(&mut MemStore)) {
        damage(&mut self.nodes[node].view);
        damage(&mut self.nodes[node].disk);
    }

    // ---- processes ----

    pub fn start(&mut self, node: usize) {
        let n = &mut self.nodes[node];
        n.life += 1;
        n.addr = addr_of(node, n.life);
        n.view = n.disk.clone();
        n.armed.clear();
        n.stopped = false;
        let config = OsdConfig {
            key: None,
            id: OsdId(node as i32),
            uuid: [node as u8 + 1; 16],
            public: AddrVec::one(n.addr),
            cluster: AddrVec::one(n.addr),
            mons: vec![addr_of(MON, 1)],
            host: "h".into(),
            device_class: "ssd".into(),
            memory: self.memory,
            release: Default::default(),
            metadata: BTreeMap::new(),
            perf: Default::default(),
            seed: self.rng.next_u64(),
        };
        n.osd = Some(Osd::new(config));
        let life = n.life;
        self.at(self.now, Happening::Event { node, life, event: Box::new(Event::Start) });
    }
    /// Power loss: data that was not durable is gone.
    pub fn kill(&mut self, node: usize) {
        self.nodes[node].osd = None;
        self.nodes[node].life += 1;
        self.drop_links(|a, b| a == node || b == node);
    }
    /// No transaction of it becomes durable before then.
    pub fn slow_disk(&mut self, node: usize, time: Duration) {
        self.nodes[node].disk_busy = self.now + time;
    }
    pub fn is_running(&self, node: usize) -> bool {
        self.nodes[node].osd.is_some()
    }
    pub fn stop(&mut self, node: usize) {
        self.push_event(node, Duration::ZERO, Event::Stop);
    }
    /// All sessions between two end; what was in flight is lost.
    pub fn reset_between(&mut self, one: usize, other: usize) {
        self.drop_links(|a, b| (a, b) == (one, other) || (b, a) == (one, other));
    }
    fn drop_links(&mut self, which: impl Fn(usize, usize) -> bool) {
        let over: Vec<_> = self
            .links
            .iter()
            .filter(|((a, _), (b, _))| which(*a, *b))
            .map(|(from, to)| (*from, *to))
            .collect();
        for (from, to) in over {
            self.links.remove(&from);
            let conn = to.1;
            self.push_event(to.0, Duration::from_millis(1), Event::Closed { conn, why: Closed::Reset });
        }
        // What was sent and has not arrived.
        let alive: BTreeSet<(usize, ConnId)> = self.links.values().copied().collect();
        self.queue.retain(|_, what| match what {
            Happening::Event { node, event, .. } => match &**event {
                Event::Message { conn, .. } | Event::Opened { conn, .. } => alive.contains(&(*node, *conn)),
                _ => true,
            },
            _ => true,
        });
    }

    // ---- the machinery ----

    fn at(&mut self, when: Time, what: Happening) {
        self.seq += 1;
        self.queue.insert((when, self.seq), what);
    }
    fn life(&self, node: usize) -> u32 {
        self.nodes.get(node).map_or(1, |n| n.life)
    }
    fn push_event(&mut self, node: usize, after: Duration, event: Event) {
        let life = self.life(node);
        self.at(self.now + after, Happening::Event { node, life, event: Box::new(event) });
    }
    fn delay(&mut self) -> Duration {
        let (low, high) = (self.min_delay, self.max_delay);
        self.rng.duration(low, high)
    }
    fn send(&mut self, node: usize, conn: ConnId, tid: u64, message: Message) {
        let Some(&(to, there)) = self.links.get(&(node, conn)) else { return };
        if self.cut.contains(&(node, to)) || self.cut.contains(&(to, node)) {
            return; // as good as delayed forever; the session is reset when the cut ends
        }
        if let Some(left) = self.lose.as_mut().filter(|_| node != CLIENT && to != CLIENT) {
            if *left == 0 {
                self.lose = None;
                return;
            }
            *left -= 1;
        }
        // Through the wire form and back, as everything that travels.
        let raw = Envelope { tid, body: message }.to_raw();
        let message = Envelope::from_raw(raw).unwrap().body;
        let more = if node == CLIENT || to == CLIENT { self.client_delay } else { Duration::ZERO };
        let when = (self.now + self.delay() + more)
            .max(self.arrivals.get(&(to, there)).copied().unwrap_or_default());
        self.arrivals.insert((to, there), when);
        if self.trace && node < MON && to < MON && !matches!(message, Message::Peer(_)) {
            eprintln!("{} {node} -> {to} {message:?}", self.now.nanos / 1_000_000);
        }
        if let Message::Peer(PeerMsg::Pg { .. } | PeerMsg::Pgs(_)) = &message {
            *self.sent.entry((node, to)).or_default() += 1;
        }
        self.lease_requests += usize::from(matches!(message, Message::Peer(PeerMsg::LeaseRequest { .. })));
        let life = self.life(to);
        let event = Event::Message { conn: there, tid, message };
        self.at(when, Happening::Event { node: to, life, event: Box::new(event) });
    }
    fn dial(&mut self, node: usize, conn: ConnId, to: EntityAddr) {
        let target = usize::from(to.sock.unwrap().port()) - 6800;
        let cut = self.cut.contains(&(node, target)) || self.cut.contains(&(target, node));
        let there = self.nodes.get(target).is_none_or(|n| n.osd.is_some() && n.addr == to);
        if cut || !there {
            let why = if cut { Closed::TimedOut } else { Closed::Refused };
            let after = if cut { Duration::from_secs(1) } else { Duration::from_millis(1) };
            self.push_event(node, after, Event::Closed { conn, why });
            return;
        }
        let number = match target {
            MON => &mut self.mon_accepted,
            _ => &mut self.nodes[target].accepted,
        };
        *number += 1;
        let other = ConnId::Accepted(*number);
        self.links.insert((node, conn), (target, other));
        self.links.insert((target, other), (node, conn));
        let of_client = self.client_features;
        let peer = |n: usize, num: i64, addr: EntityAddr| Peer {
            kind: match n {
                MON => EntityType::Mon,
                CLIENT => EntityType::Client,
                _ => EntityType::Osd,
            },
            num,
            addrs: AddrVec::one(addr),
            observed: addr,
            features: if n == CLIENT { of_client } else { u64::MAX },
            auth_name: None,
            proved: None,
        };
        let us = if node == CLIENT { self.client_id } else { node as i64 };
        let our_addr = self.nodes.get(node).map_or(addr_of(node, 1), |n| n.addr);
        let opened = Event::Opened { conn: other, peer: peer(node, us, our_addr) };
        self.push_event(target, Duration::from_micros(100), opened);
        let opened = Event::Opened { conn, peer: peer(target, target as i64, to) };
        self.push_event(node, Duration::from_micros(200), opened);
        let soon = self.now + Duration::from_micros(300);
        self.arrivals.insert((target, other), soon);
        self.arrivals.insert((node, conn), soon);
    }

    fn give(&mut self, node: usize, event: Event) {
        match node {
            MON => return self.mon_event(event),
            CLIENT => return self.client_event(event),
            _ => {}
        }
        let mut loops = std::collections::VecDeque::from([event]);
        while let Some(event) = loops.pop_front() {
            let now =
                Now { mono: self.now, wall: Utime { sec: (self.now.nanos / 1_000_000_000) as u32, nsec: 0 } };
            let mut out = Vec::new();
            let n = &mut self.nodes[node];
            let Some(osd) = &mut n.osd else { return };
            let is_work = matches!(event, Event::Message { .. } | Event::Stored(_));
            let before = memory::allocations();
            osd.handle(now, event, &n.view, &mut out);
            self.allocations += if is_work { memory::allocations() - before } else { 0 };
            for effect in out {
                self.carry_out(node, effect, &mut loops);
            }
        }
    }

    fn carry_out(&mut self, node: usize, effect: Effect, loops: &mut std::collections::VecDeque<Event>) {
        let life = self.nodes[node].life;
        match effect {
            Effect::Dial { conn, to, .. } => self.dial(node, conn, to),
            Effect::Send { conn, tid, message } => self.send(node, conn, tid, message),
            Effect::Hangup { conn } => {
                if let Some(to) = self.links.remove(&(node, conn)) {
                    self.links.remove(&to);
                    let closed = Event::Closed { conn: to.1, why: Closed::Reset };
                    self.push_event(to.0, Duration::from_millis(1), closed);
                }
            }
            Effect::Datagram { network, to, bytes } => {
                let target = usize::from(to.port()) - 6800;
                let cut = self.cut.contains(&(node, target)) || self.cut.contains(&(target, node));
                if !cut && self.nodes[target].osd.is_some() {
                    let from = self.nodes[node].addr.sock.unwrap();
                    let delay = self.delay();
                    self.push_event(target, delay, Event::Datagram { network, from, bytes });
                }
            }
            Effect::Store { token, txn } => {
                *self.stored.entry(node).or_default() += 1;
                if txn.is_read_here && txn.data_len() > 0 {
                    self.read_here.insert(node);
                }
                let is_xor = |(_, change): &&(StoredId, Change)| matches!(change, Change::Xor { .. });
                self.tally.stored_with_data += usize::from(txn.data_len() > 0);
                self.tally.xors += txn.changes.iter().filter(is_xor).count();
                for (_, change) in &txn.changes {
                    match change {
                        Change::CloneFrom(_) => self.tally.copied_whole += 1,
                        Change::CloneBlocks { blocks, .. } => {
                            self.tally.copied_blocks.push(blocks.end - blocks.start);
                        }
                        _ => {}
                    }
                }
                self.nodes[node].view.apply(&txn);
                let busy = self.nodes[node].disk_busy.max(self.now);
                let when = busy + self.rng.duration(Duration::from_micros(50), Duration::from_millis(2));
                self.nodes[node].disk_busy = when;
                self.at(when, Happening::Synced { node, life, token, txn });
            }
            Effect::Read { token, id, extents, .. } => {
                *self.tally.reads.entry(node).or_default() += 1;
                let result = self.nodes[node].view.read(&id, &extents);
                let after = self.rng.duration(Duration::from_micros(50), Duration::from_millis(1));
                let after = after + self.tally.slow_reads.get(&node).copied().unwrap_or_default();
                self.push_event(node, after, Event::ReadDone { token, result });
            }
            Effect::Arm { timer, after } => {
                self.seq += 1;
                let armed = self.seq;
                self.nodes[node].armed.insert(timer, armed);
                self.at(self.now + after, Happening::Timer { node, life, timer, armed });
            }
            Effect::Disarm { timer } => drop(self.nodes[node].armed.remove(&timer)),
            Effect::Loop(n) => loops.push_back(Event::Loop(n)),
            Effect::Log { level, text } => {
                if self.trace {
                    eprintln!("{} osd.{node} {level:?}: {text}", self.now.nanos / 1_000_000);
                }
                assert!(level != Level::Error || self.allow_errors, "osd.{node}: {text}");
                self.errors += usize::from(level == Level::Error);
            }
            Effect::Stopped => {
                self.kill(node);
                self.nodes[node].stopped = true;
            }
            Effect::Fail { reason } => panic!("osd.{node}: {reason}"),
            Effect::GrantIds(_) | Effect::Keys(_) => {}
        }
    }

    /// Processes one event. False if there is none.
    pub fn step(&mut self) -> bool {
        let Some(((when, _), what)) = self.queue.pop_first() else { return false };
        self.now = self.now.max(when);
        match what {
            Happening::Event { node, life, event } if self.life(node) == life => self.give(node, *event),
            Happening::Synced { node, life, token, txn } if self.life(node) == life => {
                self.nodes[node].disk.apply(&txn);
                self.give(node, Event::Stored(token));
            }
            Happening::Timer { node, life, timer, armed }
                if self.life(node) == life && self.nodes[node].armed.get(&timer) == Some(&armed) =>
            {
                self.nodes[node].armed.remove(&timer);
                self.give(node, Event::Timer(timer));
            }
            _ => {}
        }
        true
    }
    pub fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        while self.queue.first_key_value().is_some_and(|((when, _), _)| *when <= end) {
            self.step();
        }
        self.now = end;
    }
    /// Runs until it holds; panics after a minute of the world's time.
    pub fn run_until(&mut self, what: &str, mut holds: impl FnMut(&World) -> bool) {
        let end = self.now + Duration::from_secs(60);
        while !holds(self) {
            assert!(self.now < end, "not within a minute: {what}; {}", self.describe());
            self.step();
        }
    }
    pub fn describe(&self) -> String {
        let mut text = format!("map {}, without reply {:?}", self.map.epoch, self.requests.keys());
        for pg in self.map.pgs(POOL) {
            text += &format!("\n{pg} acting {:?}", self.map.pg_to_up_acting(pg).acting);
            for (node, n) in self.nodes.iter().enumerate() {
                let Some(osd) = &n.osd else { continue };
                let what = osd.pg(pg).map_or("nothing".to_string(), |pg| pg.summary());
                text += &format!("\n  osd.{node} e{}: {what}", osd.maps.epoch());
            }
        }
        text
    }
    /// Every PG is clean in its current interval.
    pub fn all_clean(&self) -> bool {
        self.map.pgs(POOL).all(|pg| {
            let placed = self.map.pg_to_up_acting(pg);
            let Some(primary) = placed.acting_primary else { return false };
            let Some(osd) = &self.nodes[primary.index()].osd else { return false };
            osd.maps.epoch() == self.map.epoch && osd.pg(pg).is_some_and(crate::pg::Pg::is_clean)
        })
    }

    // ---- snapshots ----

    /// Writes know of these from now on; newest first.
    pub fn write_under(&mut self, seq: u64, snaps: &[u64]) {
        self.context = SnapContext { seq: SnapId(seq), snaps: snaps.iter().copied().map(SnapId).collect() };
    }
    /// Reads a snapshot.
    pub fn run_at(&mut self, snap: SnapId, name: &str, ops: Vec<Op>) -> OsdOpReply {
        self.at = Some(snap);
        let tid = self.submit(name, ops);
        self.at = None;
        self.reply(tid)
    }
    pub fn remove_snap(&mut self, snap: u64) {
        self.change(|_, inc| inc.new_removed_snaps.entry(POOL).or_default().insert(snap..snap + 1));
    }
    /// What every PG reported as trimmed.
    pub fn is_trimmed(&self, snap: u64) -> bool {
        self.map.pgs(POOL).all(|pg| self.reports.get(&pg).is_some_and(|report| report.trimmed.contains(snap)))
    }
    /// Clones on all disks.
    pub fn clones(&self) -> usize {
        let of = |node: &Node| node.view.objects().filter(|(object, _)| object.snap != SnapId::HEAD).count();
        self.nodes.iter().map(of).sum()
    }
    /// Keys in the indexes of clones on all disks.
    pub fn indexed(&self) -> usize {
        let index = crate::snap_index::id(POOL);
        self.nodes
            .iter()
            .filter_map(|node| node.view.records.get(&index))
            .map(|record| record.omap.len())
            .sum()
    }

    // ---- the client ----

    fn client_event(&mut self, event: Event) {
        match event {
            Event::Opened { conn, .. } => {
                for state in self.client_conns.values_mut() {
                    if state.0 == conn {
                        state.1 = true;
                    }
                }
                self.retarget();
            }
            Event::Closed { conn, .. } => {
                if self.trace {
                    eprintln!(
                        "{} client: {conn} is over {:?}",
                        self.now.nanos / 1_000_000,
                        self.client_conns
                    );
                }
                self.client_conns.retain(|_, (have, _)| *have != conn);
                self.backoffs.retain(|(have, ..), _| *have != conn);
                for request in self.requests.values_mut() {
                    if request.sent_to.is_some_and(|(_, sent)| sent == conn) {
                        request.sent_to = None;
                    }
                }
                self.push_event(CLIENT, Duration::from_millis(20), Event::Timer(0));
            }
            Event::Timer(_) => self.retarget(),
            Event::Message { tid, message: Message::OsdOpReply(reply), .. } => {
                if self.trace {
                    let at = self.now.nanos / 1_000_000;
                    eprintln!("{at} client hears {tid}: {} attempt {}", reply.result, reply.retry_attempt);
                }
                if let Some(request) = self.requests.get(&tid)
                    && request.attempt == reply.retry_attempt
                {
                    self.requests.remove(&tid);
                    self.replies.insert(tid, *reply);
                }
            }
            Event::Message { conn, message: Message::OsdBackoff(message), .. } => {
                self.client_backoff(conn, message);
            }
            _ => {}
        }
    }

    fn client_backoff(&mut self, conn: ConnId, message: OsdBackoff) {
        let OsdBackoff { spg, id, ref begin, ref end, .. } = message;
        let (key, range) = ((conn, spg, id), begin.clone()..end.clone());
        if self.trace {
            eprintln!("{} client hears {:?} {id} of {}", self.now.nanos / 1_000_000, message.op, spg.pg);
        }
        match message.op {
            BackoffOp::Block => {
                let alike =
                    self.backoffs.iter().any(|((c, of, _), r)| (*c, *of, &r.start) == (conn, spg, begin));
                assert!(!alike, "Ceph's client takes two with the same begin for one");
                self.backoffs.insert(key, range);
                self.blocks += 1;
                self.send(CLIENT, conn, 0, OsdBackoff { op: BackoffOp::AckBlock, ..message }.into());
            }
            BackoffOp::Unblock => {
                self.backoffs.remove(&key).expect("what ends has begun");
                for request in self.requests.values_mut() {
                    let sent = request.sent_to.is_some_and(|(_, sent)| sent == conn);
                    if sent && request.op.spg == spg && range.contains(&request.op.object()) {
                        request.sent_to = None;
                    }
                }
                self.retarget();
            }
            BackoffOp::AckBlock => panic!("that is the client's to say"),
        }
    }

    /// Sends what was not sent to where it belongs now, in order.
    fn retarget(&mut self) {
        let map = self.map.clone();
        let tids: Vec<u64> = self.requests.keys().copied().collect();
        for tid in tids {
            let request = self.requests.get_mut(&tid).unwrap();
            let pool = request.op.locator.pool;
            let pg = map.hash_to_pg(pool, request.op.hash).unwrap();
            let placed = map.pg_to_up_acting(pg);
            let Some(primary) = placed.acting_primary else {
                request.sent_to = None;
                continue;
            };
            let pg_num = map.pool(pool).unwrap().pg_num;
            let (was, old) = (request.op.spg.pg, request.pg_num);
            let split = is_split(was, old, pg_num)
                || is_merge_source(was, old, pg_num)
                || is_merge_target(was, old, pg_num);
            let lives = map.osd(primary).unwrap().info.up_from;
            let moved = request.sent_to.is_none_or(|(osd, _)| osd != primary) || lives > request.op.epoch;
            let forced = request.op.epoch < map.pool(pool).unwrap().last_force_op_resend;
            if !split && !moved && !forced {
                continue;
            }
            // Should the old primary come back, it does not remember.
            request.sent_to = None;
            let addr = map.addrs(primary).unwrap().msgr2().unwrap();
            match self.client_conns.get(&primary) {
                Some((conn, true)) => {
                    let conn = *conn;
                    let request = self.requests.get_mut(&tid).unwrap();
                    let place = placed.acting.iter().position(|osd| *osd == primary);
                    let place = place.filter(|_| map.pool(pool).is_some_and(Pool::is_erasure));
                    let spg = SpgId { pg, shard: place.map_or(ShardId::NONE, |place| ShardId(place as i8)) };
                    request.op.spg = spg;
                    let object = request.op.object();
                    let mut of_group = self.backoffs.range((conn, spg, 0)..=(conn, spg, u64::MAX));
                    if of_group.any(|(_, range)| range.contains(&object)) {
                        continue;
                    }
                    request.sent_to = Some((primary, conn));
                    request.attempt += 1;
                    request.pg_num = pg_num;
                    request.op.retry_attempt = request.attempt;
                    request.op.epoch = map.epoch;
                    let message = Box::new(request.op.clone()).into();
                    if self.trace {
                        let at = self.now.nanos / 1_000_000;
                        eprintln!("{at} client sends {tid} for {pg} to osd.{primary} e{}", map.epoch);
                    }
                    self.send(CLIENT, conn, tid, message);
                }
                Some(_) => {}
                None => {
                    self.client_last += 1;
                    let conn = ConnId::Dialled(self.client_last);
                    self.client_conns.insert(primary, (conn, false));
                    self.dial(CLIENT, conn, addr);
                }
            }
        }
    }

    /// Sends requests again that were answered already.
    pub fn send_again(&mut self, tid: u64, name: &str, ops: Vec<Op>) -> OsdOpReply {
        let last = std::mem::replace(&mut self.last_tid, tid - 1);
        self.submit(name, ops);
        self.last_tid = last;
        self.reply(tid)
    }
    pub fn submit(&mut self, name: &str, ops: Vec<Op>) -> u64 {
        let name = nacre_base::Name::from(name);
        let hash = object_hash(&nacre_base::Name::default(), &name);
        self.submit_with(ObjectLocator::new(POOL), name, hash, 0, ops)
    }
    pub fn submit_with(
        &mut self,
        locator: ObjectLocator,
        name: nacre_base::Name,
        hash: u32,
        flags: u32,
        ops: Vec<Op>,
    ) -> u64 {
        self.last_tid += 1;
        let writes = ops.iter().any(|op| op.to_raw().0.code.is_write());
        let kind = if writes { op_flags::message::WRITE } else { op_flags::message::READ };
        let op = OsdOp {
            spg: SpgId::replicated(PgId { pool: locator.pool, seed: u32::MAX }),
            hash,
            epoch: Epoch(0),
            flags: kind | flags | op_flags::message::ONDISK,
            reqid: ReqId::default(),
            client_inc: 0,
            mtime: Utime { sec: 5, nsec: 0 },
            locator,
            name,
            ops: ops.into_iter().map(OsdOpItem::from).collect(),
            snap: self.at.unwrap_or(SnapId::HEAD),
            snap_seq: self.context.seq,
            snaps: self.context.snaps.clone(),
            retry_attempt: 0,
            features: 0,
        };
        self.requests.insert(self.last_tid, Request { op, sent_to: None, attempt: -1, pg_num: 0 });
        self.retarget();
        self.last_tid
    }
    /// Sends a request again whose reply the client got or did not get.
    pub fn run_again(&mut self, tid: u64, name: &str, ops: Vec<Op>) -> OsdOpReply {
        let last = std::mem::replace(&mut self.last_tid, tid - 1);
        let again = self.submit(name, ops);
        self.last_tid = last;
        self.reply(again)
    }
    pub fn last_tid(&self) -> u64 {
        self.last_tid
    }
    /// The client drops a request, as a client that dies does.
    pub fn forget(&mut self, tid: u64) {
        self.requests.remove(&tid);
    }
    pub fn reply(&mut self, tid: u64) -> OsdOpReply {
        self.run_until("a reply", |w| w.replies.contains_key(&tid));
        self.replies.remove(&tid).unwrap()
    }
    pub fn run_ops(&mut self, name: &str, ops: Vec<Op>) -> OsdOpReply {
        let tid = self.submit(name, ops);
        self.reply(tid)
    }
    /// Of the first PG, over all OSDs that run.
    pub fn recovered_bytes(&self) -> u64 {
        let pg = self.map.pgs(POOL).next().unwrap();
        let groups = self.nodes.iter().filter_map(|node| node.osd.as_ref()?.pg(pg));
        groups.map(|pg| pg.counts().work.recovered_bytes).sum()
    }
    /// Every member of every PG has the same objects, byte for byte.
    pub fn assert_replicas_equal(&self) {
        let pool = self.map.pool(POOL).unwrap();
        for pg in self.map.pgs(POOL) {
            let content = |osd: &OsdId| -> BTreeMap<_, _> {
                let objects = self.nodes[osd.index()].view.objects();
                let ours = objects.filter(|(o, _)| pool.raw_pg_to_pg(o.hash) == pg.seed && o.pool == POOL);
                ours.map(|(o, record)| (o.clone(), record.clone())).collect()
            };
            let acting = self.map.pg_to_up_acting(pg).acting;
            let first = content(&acting[0]);
            for osd in &acting[1..] {
                let other = content(osd);
                for (object, record) in &first {
                    assert_eq!(
                        other.get(object),
                        Some(record),
                        "pg {pg} {object}: osd.{osd} and osd.{}",
                        acting[0]
                    );
                }
                assert_eq!(first.len(), other.len(), "pg {pg}: osd.{osd} has more");
            }
        }
    }
}
