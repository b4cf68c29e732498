//! A monitor with a driver that stores at once, and clients that are only sessions.

use crate::{Member, Mon, MonAuth, MonConfig};
use bytes::Bytes;
use nacre_auth::{Entropy, Proved};
use nacre_base::{Epoch, IntervalSet, Name, Now, OsdId, PgId, PoolId, ShardId, Time, Utime};
use nacre_machine::{Closed, ConnId, Effect, Event, Machine, Peer, ReadError, Statfs, StoreStat, StoreView};
use nacre_proto::maps::{OsdMap, map_flags, osd_state, pool_flags};
use nacre_proto::messages::scrub::ScrubState;
use nacre_proto::messages::*;
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_proto::types::{AddrVec, AuthName, EntityAddr, EntityType, Formats, ObjectId};
use nacre_wire::{from_slice, to_vec};
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// What is stored, and how reading it fails.
#[derive(Clone, Default)]
struct Omaps(BTreeMap<StoredId, BTreeMap<Name, Bytes>>, Option<ReadError>);

impl Omaps {
    fn apply(&mut self, txn: Transaction) {
        for (id, change) in txn.changes {
            let omap = self.0.entry(id).or_default();
            match change {
                Change::OmapSet(pairs) => omap.extend(pairs),
                Change::OmapRemoveRange { begin, end } => omap.retain(|key, _| *key < begin || *key >= end),
                other => panic!("a monitor has no use for {other:?}"),
            }
        }
    }
}

impl StoreView for Omaps {
    fn stat(&self, _: &StoredId) -> Result<Option<StoreStat>, ReadError> {
        Ok(None)
    }
    fn attr(&self, _: &StoredId, _: &[u8]) -> Result<Option<Bytes>, ReadError> {
        Ok(None)
    }
    fn attrs(&self, _: &StoredId) -> Result<BTreeMap<Name, Bytes>, ReadError> {
        Ok(BTreeMap::new())
    }
    fn omap_header(&self, _: &StoredId) -> Result<Bytes, ReadError> {
        Ok(Bytes::new())
    }
    fn omap_get(&self, id: &StoredId, key: &[u8]) -> Result<Option<Bytes>, ReadError> {
        Ok(self.0.get(id).and_then(|omap| omap.get(key).cloned()))
    }
    fn omap_walk(
        &self,
        id: &StoredId,
        from: &[u8],
        each: &mut dyn FnMut(&Name, &Bytes) -> bool,
    ) -> Result<(), ReadError> {
        if let Some(error) = &self.1 {
            return Err(error.clone());
        }
        let pairs = self.0.get(id).into_iter().flatten().filter(|(key, _)| key.as_bytes() >= from);
        for (key, value) in pairs {
            if !each(key, value) {
                break;
            }
        }
        Ok(())
    }
    fn object_walk(
        &self,
        _: (ShardId, &ObjectId),
        _: &mut dyn FnMut(ShardId, &ObjectId) -> bool,
    ) -> Result<(), ReadError> {
        Ok(())
    }
    fn extents(&self, _: &StoredId, _: u64, _: u64) -> Result<Vec<(u64, u64)>, ReadError> {
        Ok(Vec::new())
    }
    fn statfs(&self) -> Statfs {
        Statfs::default()
    }
    fn pools(&self) -> Vec<(PoolId, PoolSpace)> {
        Vec::new()
    }
}

fn addr(port: u16, nonce: u32) -> AddrVec {
    AddrVec::one(EntityAddr::msgr2(([127, 0, 0, 1], port).into(), nonce))
}

fn config(rank: usize, mons: usize, seed: u64) -> MonConfig {
    let name = |n: usize| ["a", "b", "c", "d"][n].to_string();
    let options = [
        ("osd_crush_chooseleaf_type", "0"),
        ("mon_allow_pool_delete", "true"),
        ("osd_pool_default_size", "3"),
        ("osd_pool_default_min_size", "2"),
        ("osd_pool_default_pg_num", "8"),
    ];
    let member =
        |n: usize| Member { id: n as u64 + 1, name: name(n), addrs: addr(3300 + n as u16, 0), initial: true };
    MonConfig {
        id: rank as u64 + 1,
        name: name(rank),
        members: (0..mons).map(member).collect(),
        mgr_addrs: addr(6800 + rank as u16, 1),
        fsid: [9; 16],
        options: options.map(|(name, value)| (name.to_string(), value.to_string())).into(),
        host: "vm".to_string(),
        perf: Default::default(),
        release: Default::default(),
        metadata: BTreeMap::new(),
        seed,
        auth: MonAuth::none(Entropy::repeatable(seed)),
    }
}

/// One monitor. What it sends collects by connection.
struct TestMon {
    mon: Mon,
    config: MonConfig,
    store: Omaps,
    now: Now,
    sent: BTreeMap<ConnId, VecDeque<(u64, Message)>>,
    hung_up: Vec<ConnId>,
    logged: Vec<String>,
    dialled: Vec<(ConnId, EntityAddr)>,
    granted: Vec<std::ops::Range<u64>>,
    timers: BTreeMap<u64, Time>,
    /// Why it ended.
    failure: Option<String>,
    /// What was stored and the monitor does not hear of, while the disk is slow.
    unheard: Option<Vec<Event>>,
    next_conn: u64,
    next_tid: u64,
}

impl TestMon {
    fn start_with(config: MonConfig, store: Omaps, now: Now) -> TestMon {
        let mut t = TestMon {
            mon: Mon::new(config.clone()),
            config,
            store,
            now,
            sent: BTreeMap::new(),
            hung_up: Vec::new(),
            logged: Vec::new(),
            dialled: Vec::new(),
            granted: Vec::new(),
            timers: BTreeMap::new(),
            failure: None,
            unheard: None,
            next_conn: 1,
            next_tid: 1,
        };
        t.event(Event::Start);
        t
    }
    fn fresh() -> TestMon {
        let now = Now { mono: Time::from_nanos(1 << 40), wall: Utime { sec: 1_800_000_000, nsec: 0 } };
        let mut t = TestMon::start_with(config(0, 1, 7), Omaps::default(), now);
        t.pass(Duration::from_secs(2));
        t
    }
    fn with_osds(n: i32) -> (TestMon, Vec<ConnId>) {
        let mut t = TestMon::fresh();
        let conns = (0..n).map(|osd| t.boot(osd, 6900 + osd as u16, 1)).collect();
        (t, conns)
    }
    /// The same monitor after its process was killed.
    fn restart(self) -> TestMon {
        let config = MonConfig { seed: self.config.seed + 1, ..self.config };
        let mut t = TestMon::start_with(config, self.store, self.now);
        t.pass(Duration::from_secs(2));
        t
    }

    fn event(&mut self, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front().filter(|_| self.failure.is_none()) {
            let mut out = Vec::new();
            self.mon.handle(self.now, event, &self.store, &mut out);
            for effect in out {
                match effect {
                    Effect::Send { conn, tid, message } => {
                        self.sent.entry(conn).or_default().push_back((tid, message));
                    }
                    Effect::Store { token, txn } => {
                        self.store.apply(txn);
                        match &mut self.unheard {
                            Some(unheard) => unheard.push(Event::Stored(token)),
                            None => events.push_back(Event::Stored(token)),
                        }
                    }
                    Effect::Arm { timer, after } => drop(self.timers.insert(timer, self.now.mono + after)),
                    Effect::Disarm { timer } => drop(self.timers.remove(&timer)),
                    Effect::Hangup { conn } => self.hung_up.push(conn),
                    Effect::Dial { conn, to, .. } => self.dialled.push((conn, to)),
                    Effect::GrantIds(ids) => self.granted.push(ids),
                    Effect::Keys(_) => {}
                    Effect::Log { text, .. } => self.logged.push(text),
                    Effect::Stopped => {}
                    Effect::Fail { reason } => {
                        self.failure = Some(reason);
                        break;
                    }
                    other => panic!("unexpected {other:?}"),
                }
            }
        }
    }
    fn pass(&mut self, time: Duration) {
        let end = self.now.mono + time;
        loop {
            let next = self.timers.iter().min_by_key(|(_, at)| **at).map(|(timer, at)| (*timer, *at));
            let Some((timer, at)) = next.filter(|(_, at)| *at <= end) else { break };
            self.set_time(at);
            self.timers.remove(&timer);
            self.event(Event::Timer(timer));
        }
        self.set_time(end);
    }
    fn set_time(&mut self, at: Time) {
        let passed = at.since(self.now.mono);
        let nanos = u64::from(self.now.wall.nsec) + passed.as_nanos() as u64;
        self.now.wall.sec += (nanos / 1_000_000_000) as u32;
        self.now.wall.nsec = (nanos % 1_000_000_000) as u32;
        self.now.mono = at;
    }

    fn open(&mut self, kind: EntityType, num: i64, addrs: AddrVec) -> ConnId {
        self.open_as(kind, num, addrs, None)
    }
    fn open_as(&mut self, kind: EntityType, num: i64, addrs: AddrVec, proved: Option<Proved>) -> ConnId {
        let conn = ConnId::Accepted(self.next_conn);
        self.next_conn += 1;
        let observed = addrs.msgr2().unwrap_or_default();
        let auth_name = proved.as_ref().map(|proved| proved.name.clone());
        let admin = || AuthName::new(EntityType::Client, "admin");
        let auth_name = auth_name.or_else(|| (kind == EntityType::Client).then(admin));
        self.event(Event::Opened {
            conn,
            peer: Peer { kind, num, addrs, observed, features: 0x3f01, auth_name, proved },
        });
        conn
    }
    fn client(&mut self) -> ConnId {
        self.open(EntityType::Client, 4100, addr(0, 77))
    }
    fn send(&mut self, conn: ConnId, message: impl Into<Message>) -> u64 {
        let tid = self.next_tid;
        self.next_tid += 1;
        self.event(Event::Message { conn, tid, message: message.into() });
        tid
    }
    fn received(&mut self, conn: ConnId) -> Vec<Message> {
        self.sent.remove(&conn).into_iter().flatten().map(|(_, message)| message).collect()
    }
    /// The one answer to a request.
    fn ask(&mut self, conn: ConnId, message: impl Into<Message>) -> Message {
        self.received(conn);
        let tid = self.send(conn, message);
        let answers: Vec<(u64, Message)> = self.sent.remove(&conn).into_iter().flatten().collect();
        let mut answers = answers.into_iter().filter(|(t, _)| *t == tid);
        let (_, answer) = answers.next().expect("an answer");
        assert!(answers.next().is_none(), "one answer");
        answer
    }

    fn boot(&mut self, osd: i32, port: u16, nonce: u32) -> ConnId {
        let conn = self.open(EntityType::Osd, osd.into(), addr(port, nonce));
        let sub =
            MonSubscribe { what: [("osdmap".to_string(), MonSub::default())].into(), hostname: "vm".into() };
        self.send(conn, sub);
        self.send(conn, boot(osd, port, nonce));
        conn
    }
    fn map(&self) -> OsdMap {
        self.mon.state.as_ref().unwrap().osdmap.map.as_ref().clone()
    }
    fn command(&mut self, command: Value) -> (i32, String, String) {
        self.command_with(command, Bytes::new())
    }
    fn command_with(&mut self, command: Value, input: Bytes) -> (i32, String, String) {
        let conn = self.client();
        let cmd = vec![command.to_string()];
        let message = MonCommand { version: PaxosVersion(0), fsid: [0; 16], cmd, input };
        match self.ask(conn, message) {
            Message::MonCommandAck(ack) => {
                (ack.retval, ack.status, String::from_utf8_lossy(&ack.output).into_owned())
            }
            other => panic!("{other:?}"),
        }
    }
    /// These come while the disk is slow: all but the first go into one batch. What each was told.
    fn told_at_once(&mut self, commands: &[Value]) -> Vec<MonCommandAck> {
        self.unheard = Some(Vec::new());
        let asked: Vec<ConnId> = commands.iter().map(|_| self.client()).collect();
        for (conn, command) in asked.iter().zip(commands) {
            let cmd = vec![command.to_string()];
            self.send(
                *conn,
                MonCommand { version: PaxosVersion(0), fsid: [0; 16], cmd, input: Bytes::new() },
            );
        }
        let unheard = self.unheard.take().unwrap_or_default();
        unheard.into_iter().for_each(|event| self.event(event));
        let told = |message: Message| match message {
            Message::MonCommandAck(ack) => Some(ack),
            _ => None,
        };
        asked.into_iter().flat_map(|conn| self.received(conn).into_iter().find_map(told)).collect()
    }
    fn at_once(&mut self, commands: &[Value]) -> Vec<i32> {
        self.told_at_once(commands).into_iter().map(|ack| ack.retval).collect()
    }
    fn run(&mut self, command: Value) -> String {
        let (code, said, out) = self.command(command.clone());
        assert_eq!(code, 0, "{command}: {said}");
        said + &out
    }
    fn json(&mut self, mut command: Value) -> Value {
        command["format"] = json!("json");
        let (code, said, out) = self.command(command.clone());
        assert_eq!(code, 0, "{command}: {said}");
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{command}: {error}: {out}"))
    }
    fn create_pool(&mut self, name: &str, pg_num: u32) -> PoolId {
        self.run(json!({ "prefix": "osd pool create", "pool": name, "pg_num": pg_num }));
        self.map().pool_by_name(name).unwrap()
    }
    /// Lets the primaries of a pool say that they serve.
    fn activate(&mut self, osds: &[ConnId], pool: PoolId) {
        let map = self.map();
        for pg in map.pgs(pool).collect::<Vec<_>>() {
            let placed = map.pg_to_up_acting(pg);
            let conn = osds[placed.acting_primary.unwrap().index()];
            let record = PgRecord { interval: map.epoch, acting: placed.acting };
            let message = DaemonMsg::Activate { epoch: map.epoch, records: vec![(pg, record)] };
            let Message::Daemon(DaemonMsg::Activated { results, .. }) = self.ask(conn, message) else {
                panic!("no answer")
            };
            assert_eq!(results, [(pg, map.epoch, true)]);
        }
    }
    fn report(&mut self, osds: &[ConnId], pool: PoolId) {
        self.report_trimmed(osds, pool, |_| IntervalSet::new());
    }
    /// The same, with the removed snapshots that each placement group has trimmed.
    fn report_trimmed(&mut self, osds: &[ConnId], pool: PoolId, trimmed: impl Fn(PgId) -> IntervalSet) {
        let map = self.map();
        for (osd, &conn) in osds.iter().enumerate() {
            let osd = OsdId(osd as i32);
            let mine = map.pgs(pool).filter(|pg| map.pg_to_up_acting(*pg).acting_primary == Some(osd));
            let pgs = mine.map(|pg| PgReport { trimmed: trimmed(pg), ..pg_report(&map, pg) }).collect();
            let space = OsdSpace { total: 10 << 30, available: 9 << 30, ..OsdSpace::default() };
            let report = OsdReport { osd: Some(osd), epoch: map.epoch, space, pgs, ..OsdReport::default() };
            self.send(conn, DaemonMsg::Report(report));
        }
    }
}

fn boot(osd: i32, port: u16, nonce: u32) -> DaemonMsg {
    DaemonMsg::Boot(OsdBoot {
        osd: OsdId(osd),
        uuid: [osd as u8 + 1; 16],
        public: addr(port, nonce),
        cluster: addr(port + 100, nonce),
        newest_map: Epoch(1),
        capacity: 10 << 30,
        device_class: "ssd".into(),
        host: "vm".into(),
        metadata: BTreeMap::new(),
        formats: Some(Formats::ALL),
    })
}

fn pg_report(map: &OsdMap, pg: PgId) -> PgReport {
    let placed = map.pg_to_up_acting(pg);
    let wall = Utime { sec: 1_800_000_000, nsec: 0 };
    PgReport {
        pg,
        state: pg_state::ACTIVE | pg_state::CLEAN,
        waiting_for: String::new(),
        interval: map.epoch,
        last_update: nacre_base::Version::new(map.epoch, 3),
        last_complete: nacre_base::Version::new(map.epoch, 3),
        log_tail: nacre_base::Version::ZERO,
        log_entries: 3,
        up_primary: placed.up_primary.unwrap(),
        acting_primary: placed.acting_primary.unwrap(),
        up: placed.up,
        acting: placed.acting,
        last_change: Utime { sec: 1_800_000_000, nsec: 0 },
        last_active: Utime { sec: 1_800_000_000, nsec: 0 },
        last_clean: Utime { sec: 1_800_000_000, nsec: 0 },
        counts: PgCounts { objects: 2, bytes: 8192, copies: 6, ..PgCounts::default() },
        trimmed: IntervalSet::new(),
        to_trim: 0,
        scrub: ScrubState { last_stamp: wall, last_deep_stamp: wall, ..ScrubState::default() },
    }
}

fn subscribe(what: &str, start: u64, flags: u8) -> MonSubscribe {
    MonSubscribe { what: [(what.to_string(), MonSub { start, flags })].into(), hostname: String::new() }
}

mod absent;
mod arguments;
mod audit;
mod auth;
mod balancer;
mod check;
mod commands;
mod crashes;
mod crush_location;
mod damage;
mod encodings;
mod erasure;
mod forced;
mod formats;
mod fsmap;
mod fsmap_random;
mod host_devices;
mod hosts;
mod image_load;
mod manager;
mod metrics;
mod monitors;
mod orch;
mod osds;
mod pg_merge;
mod pg_temp;
mod placement;
mod pool_rules;
mod recovery;
mod recreate;
mod scrub;
mod service_map;
mod sessions;
mod states;
mod tuning;
mod upgrade;
