//! A cluster as a client sees it, acted out by the test: what the client sends is examined and
//! answered by hand.

use crate::{
    Client, ClientConfig, Completion, Failure, ObjectRequest, Output, Request, RequestId, Standalone,
    WatchEvent,
};
use bytes::Bytes;
use nacre_base::{Epoch, Now, OsdId, PgId, PoolId, Time, Utime};
use nacre_crush::{CrushMap, Location};
use nacre_machine::{Closed, ConnId, Effect, Event, Machine, NoStore, Peer, TimerId};
use nacre_proto::maps::{Incremental, MonMap, Osd, OsdMap, Pool, osd_state};
use nacre_proto::messages::*;
use nacre_proto::types::{AddrVec, EntityAddr, EntityType, op_flags::message as flag};
use nacre_wire::to_vec;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub const FSID: [u8; 16] = *b"the test cluster";
const TIMER: TimerId = 77;
pub const POOL: PoolId = PoolId(1);
pub const FEATURES: u64 = 0x3f01_cfbd_fffd_ffff;

pub struct World {
    pub machine: Standalone,
    pub now: Now,
    /// The cluster's newest.
    pub map: OsdMap,
    /// Sessions that were dialled and are not over.
    pub conns: BTreeMap<ConnId, EntityAddr>,
    pub sent: Vec<(ConnId, u64, Message)>,
    pub timers: BTreeMap<TimerId, Time>,
    pub completions: Vec<Completion>,
    pub events: Vec<WatchEvent>,
    pub stopped: bool,
}

pub fn mon_addr(rank: u16) -> EntityAddr {
    EntityAddr::msgr2(format!("127.0.0.1:{}", 3300 + rank).parse().unwrap(), 0)
}
pub fn osd_addr(osd: i32, nonce: u32) -> EntityAddr {
    EntityAddr::msgr2(format!("127.0.0.1:{}", 6800 + osd).parse().unwrap(), nonce)
}

/// Five OSDs, a pool "p" of three copies in eight placement groups.
pub fn cluster_map() -> OsdMap {
    let mut crush = CrushMap::fresh(0);
    let location = Location::from([("root".to_owned(), "default".to_owned())]);
    for osd in 0..5 {
        crush.insert_item(osd, 0x10000, &format!("osd.{osd}"), &location).unwrap();
    }
    let mut map = OsdMap::new(FSID, Utime::ZERO, crush);
    map.set_max_osd(5);
    for id in 0..5 {
        map.weights[id as usize] = Osd::IN;
        let osd = map.osd_mut(OsdId(id)).unwrap();
        osd.state = osd_state::EXISTS | osd_state::UP;
        osd.public_addrs = AddrVec::one(osd_addr(id, 1));
    }
    map.pools.insert(POOL, Arc::new(Pool::replicated(3, 2, 8, 0, Utime::ZERO)));
    map.pool_names.insert(POOL, "p".to_owned());
    map
}

impl World {
    /// Before anything happened.
    pub fn new(mons: u16) -> World {
        World {
            machine: Standalone::new(ClientConfig {
                mons: (0..mons).map(mon_addr).collect(),
                hostname: "host".to_owned(),
                timer: TIMER,
                seed: 7,
            }),
            now: Now::default(),
            map: cluster_map(),
            conns: BTreeMap::new(),
            sent: Vec::new(),
            timers: BTreeMap::new(),
            completions: Vec::new(),
            events: Vec::new(),
            stopped: false,
        }
    }
    /// Connected to a monitor, with the first map.
    pub fn up() -> World {
        let mut w = World::new(1);
        w.handle(Event::Start);
        w.greet();
        w.sent.clear();
        w
    }

    pub fn client(&self) -> &Client {
        self.machine.client()
    }

    // ---- driving ----

    pub fn handle(&mut self, event: Event) {
        let mut out = Vec::new();
        self.machine.handle(self.now, event, &NoStore, &mut out);
        self.carry_out(out);
    }
    pub fn submit(&mut self, request: impl Into<Request>) -> RequestId {
        let mut out = Vec::new();
        let id = self.machine.submit(self.now, request.into(), &mut out);
        self.carry_out(out);
        id
    }
    fn carry_out(&mut self, out: Vec<Effect>) {
        for effect in out {
            match effect {
                Effect::Dial { conn, to, .. } => assert!(self.conns.insert(conn, to).is_none()),
                Effect::Hangup { conn } => assert!(self.conns.remove(&conn).is_some()),
                Effect::Send { conn, tid, message } => self.sent.push((conn, tid, message)),
                Effect::Arm { timer, after } => drop(self.timers.insert(timer, self.now.mono + after)),
                Effect::Disarm { timer } => drop(self.timers.remove(&timer)),
                Effect::Stopped => self.stopped = true,
                Effect::Log { .. } => {}
                other => panic!("a client has no use for {other:?}"),
            }
        }
        self.completions.extend(self.machine.take_completions());
        self.events.extend(self.machine.take_watch_events());
    }
    /// Lets time pass, and timers fire.
    pub fn wait(&mut self, time: Duration) {
        let end = self.now.mono + time;
        while let Some((&timer, &at)) = self.timers.iter().min_by_key(|(id, at)| (**at, **id))
            && at <= end
        {
            self.now.mono = at.max(self.now.mono);
            self.timers.remove(&timer);
            self.handle(Event::Timer(timer));
        }
        self.now.mono = end;
    }

    // ---- sessions ----

    /// The session with the daemon at `addr`.
    pub fn conn(&self, addr: EntityAddr) -> ConnId {
        self.find_conn(addr).unwrap_or_else(|| panic!("no session with {addr}: {:?}", self.conns))
    }
    pub fn find_conn(&self, addr: EntityAddr) -> Option<ConnId> {
        self.conns.iter().find(|(_, to)| **to == addr).map(|(&conn, _)| conn)
    }
    pub fn mon(&self) -> ConnId {
        let mut mons = self.conns.iter().filter(|(_, to)| to.sock.unwrap().port() < 4000);
        *mons.next().expect("a monitor is dialled").0
    }
    pub fn open(&mut self, conn: ConnId) {
        let observed = self.conns[&conn];
        let kind = if observed.sock.unwrap().port() < 4000 { EntityType::Mon } else { EntityType::Osd };
        let addrs = AddrVec::one(observed);
        let peer = Peer { kind, num: 0, addrs, observed, features: FEATURES, auth_name: None, proved: None };
        self.handle(Event::Opened { conn, peer });
    }
    pub fn open_osd(&mut self, osd: OsdId) -> ConnId {
        let addr = self.map.addrs(osd).unwrap().msgr2().unwrap();
        let conn = self.conn(addr);
        self.open(conn);
        conn
    }
    pub fn close(&mut self, conn: ConnId, why: Closed) {
        assert!(self.conns.remove(&conn).is_some());
        self.handle(Event::Closed { conn, why });
    }
    pub fn hear(&mut self, conn: ConnId, tid: u64, message: impl Into<Message>) {
        self.handle(Event::Message { conn, tid, message: message.into() });
    }

    // ---- the monitor's side ----

    pub fn mon_map_message() -> MonMapMsg {
        let mons = (0..2).map(|rank| (format!("m{rank}"), AddrVec::one(mon_addr(rank))));
        MonMapMsg { map: to_vec(&MonMap::new(FSID, Utime::ZERO, mons)).into() }
    }
    /// The dialled monitor answers.
    pub fn greet(&mut self) -> ConnId {
        let conn = self.mon();
        self.open(conn);
        self.hear(conn, 0, World::mon_map_message());
        let whole = self.whole_map();
        self.hear(conn, 0, whole);
        conn
    }
    pub fn whole_map(&self) -> OsdMapMsg {
        let (epoch, bytes) = (self.map.epoch, Bytes::from(to_vec(&self.map)));
        OsdMapMsg { full: BTreeMap::from([(epoch, bytes)]), ..self.maps([]) }
    }
    pub fn maps(&self, incrementals: impl IntoIterator<Item = Incremental>) -> OsdMapMsg {
        let incrementals = incrementals.into_iter().map(|inc| (inc.epoch, to_vec(&inc).into()));
        OsdMapMsg {
            fsid: FSID,
            incrementals: incrementals.collect(),
            full: BTreeMap::new(),
            oldest: Epoch(1),
            newest: self.map.epoch,
            gap_removed_snaps: BTreeMap::new(),
        }
    }
    /// The map changes, and the client is not told yet.
    pub fn step<R>(&mut self, change: impl FnOnce(&mut Incremental) -> R) -> Incremental {
        let mut inc = Incremental::after(&self.map, Utime::ZERO);
        change(&mut inc);
        self.map = inc.seal(&self.map).unwrap();
        inc
    }
    /// The map changes, and the monitor tells.
    pub fn change<R>(&mut self, change: impl FnOnce(&mut Incremental) -> R) {
        let inc = self.step(change);
        let (mon, maps) = (self.mon(), self.maps([inc]));
        self.hear(mon, 0, maps);
    }
    /// The requests for the newest epoch that wait for an answer.
    pub fn version_asked(&mut self) -> Vec<u64> {
        let mon = self.mon();
        let asked = self.take_sent(|conn, message| {
            conn == mon && matches!(message, Message::MonGetVersion(get) if get.what == "osdmap")
        });
        let handle = |message| match message {
            Message::MonGetVersion(get) => get.handle,
            _ => unreachable!("filtered"),
        };
        asked.into_iter().map(|(_, message)| handle(message)).collect()
    }
    pub fn tell_version(&mut self, handle: u64) {
        let (mon, version) = (self.mon(), self.map.epoch.0.into());
        self.hear(mon, 0, MonGetVersionReply { handle, version, oldest: 1 });
    }
    /// What the client wants of OSD maps: the epoch to start from, of each subscription sent.
    pub fn maps_wanted(&mut self) -> Vec<u64> {
        let subscriptions = self.take_sent(|_, message| matches!(message, Message::MonSubscribe(_)));
        let start = |message: &Message| match message {
            Message::MonSubscribe(subscribe) => subscribe.what.get("osdmap").map(|sub| sub.start),
            _ => None,
        };
        subscriptions.iter().filter_map(|(_, message)| start(message)).collect()
    }

    // ---- the OSDs' side ----

    pub fn take_sent(&mut self, which: impl Fn(ConnId, &Message) -> bool) -> Vec<(u64, Message)> {
        let (taken, left): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.sent).into_iter().partition(|(conn, _, message)| which(*conn, message));
        self.sent = left;
        taken.into_iter().map(|(_, tid, message)| (tid, message)).collect()
    }
    pub fn ops(&mut self, conn: ConnId) -> Vec<(u64, OsdOp)> {
        let ops = self.take_sent(|c, message| c == conn && matches!(message, Message::OsdOp(_)));
        let op = |message| match message {
            Message::OsdOp(op) => *op,
            _ => unreachable!("filtered"),
        };
        ops.into_iter().map(|(tid, message)| (tid, op(message))).collect()
    }
    /// The names of the objects that requests were sent about.
    pub fn names(&mut self, conn: ConnId) -> Vec<String> {
        self.ops(conn).iter().map(|(_, op)| op.name.to_string()).collect()
    }
    pub fn answer(&mut self, conn: ConnId, tid: u64, op: &OsdOp) {
        let reply = OsdOpReply {
            flags: op.flags | flag::ACK,
            user_version: 5,
            ..OsdOpReply::to(op, 0, self.map.epoch)
        };
        self.hear(conn, tid, Box::new(reply));
    }

    pub fn pg_of(&self, name: &str) -> PgId {
        let locator = nacre_proto::types::ObjectLocator::new(POOL);
        self.map.object_to_pg(&locator, &name.into()).unwrap()
    }
    pub fn primary_of(&self, name: &str) -> OsdId {
        self.map.pg_to_up_acting(self.pg_of(name)).acting_primary.unwrap()
    }
    pub fn replica_of(&self, name: &str) -> OsdId {
        self.map.pg_to_up_acting(self.pg_of(name)).acting[1]
    }
    /// Submits a write and opens the session with its primary. Gives both and what was sent.
    pub fn write_sent(&mut self, name: &str) -> (RequestId, ConnId, u64, OsdOp) {
        let id = self.submit(write(name));
        let conn = self.open_osd(self.primary_of(name));
        let mut ops = self.ops(conn);
        assert_eq!(ops.len(), 1);
        let (tid, op) = ops.remove(0);
        (id, conn, tid, op)
    }

    // ---- what came of it ----

    pub fn result(&mut self) -> (RequestId, Result<Output, Failure>) {
        assert_eq!(self.completions.len(), 1, "{:?}", self.completions);
        let Completion { id, result } = self.completions.remove(0);
        (id, result)
    }
    pub fn errno(&mut self) -> i32 {
        self.result().1.unwrap_err().errno
    }
}

pub fn write(name: &str) -> ObjectRequest {
    ObjectRequest::new(POOL, name).write_full("content")
}
pub fn read(name: &str) -> ObjectRequest {
    ObjectRequest::new(POOL, name).read(0, 0)
}
