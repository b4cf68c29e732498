//! An OSD that serves one pool alone and one with another OSD, and receives arbitrary messages from a client,
//! from that OSD and from its monitor.
//!
//! An input is a list of length-prefixed messages, each with its sender (a byte: 0 a client, 1 the other OSD
//! on a session that it dialled, 2 the other OSD on a session that we dialled, 3 the monitor).

use super::disk::{Image, settle};
use super::{message_input, read_message};
use crate::samples;
use bytes::Bytes;
use nacre_base::{Epoch, Now, OsdId, PgId, PoolId, SnapId, Time, Utime};
use nacre_crush::CrushMap;
use nacre_machine::{ConnId, Effect, Event, Machine, Peer};
use nacre_osd::{Osd, OsdConfig};
use nacre_proto::maps::{Incremental, Osd as OsdState, OsdMap, Pool, osd_state};
use nacre_proto::messages::{
    BackoffOp, Config, DaemonMsg, Envelope, Message, MonGetVersionReply, OsdBackoff, OsdMapMsg, OsdOp,
    RawMessage,
};
use nacre_proto::types::{
    AddrVec, EntityAddr, EntityType, ObjectId, ObjectLocator, Op, ReqId, SpgId, object_hash, op_flags,
};
use nacre_store::{Options, Store};
use nacre_wire::{Decode, Encode, Reader, to_vec};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

const CLIENT: ConnId = ConnId::Accepted(1);
const OTHER: ConnId = ConnId::Accepted(2);
const ALONE: PoolId = PoolId(1);
const SHARED: PoolId = PoolId(2);

fn addr(port: u16) -> EntityAddr {
    EntityAddr::msgr2(([127, 0, 0, 1], port).into(), 1)
}
fn addr_of(osd: usize) -> EntityAddr {
    addr(6801 + osd as u16)
}

fn map() -> OsdMap {
    let mut map = OsdMap::new([9; 16], Utime::ZERO, CrushMap::default());
    map.set_max_osd(2);
    for n in 0..2 {
        map.osd_mut(OsdId(n)).expect("there is room").state = osd_state::EXISTS;
        map.weights[n as usize] = OsdState::IN;
    }
    let mut inc = Incremental::after(&map, Utime::ZERO);
    for (n, osd) in [OsdId(0), OsdId(1)].into_iter().enumerate() {
        let addrs = AddrVec::one(addr_of(n));
        inc.new_up_client.insert(osd, addrs.clone());
        inc.new_up_cluster.insert(osd, addrs.clone());
        inc.new_hb_back_up.insert(osd, addrs.clone());
        inc.new_hb_front_up.insert(osd, addrs);
    }
    let pools = [(ALONE, vec![vec![0]]), (SHARED, vec![vec![0, 1], vec![1, 0]])];
    for (id, placed) in pools {
        let pool = Pool::replicated(placed[0].len() as u8, 1, placed.len() as u32, 0, Utime::ZERO);
        inc.new_pools.insert(id, Arc::new(pool));
        inc.new_pool_names.insert(id, format!("pool{}", id.0));
        for (seed, osds) in placed.into_iter().enumerate() {
            let pg = PgId { pool: id, seed: seed as u32 };
            inc.new_pg_upmap.insert(pg, osds.into_iter().map(OsdId).collect());
        }
    }
    inc.new_pool_max = Some(2);
    inc.seal(&map).expect("it fits")
}

struct Daemon {
    osd: Osd,
    disk: Image,
    store: Store,
    timers: BTreeMap<u64, Time>,
    mon: Option<ConnId>,
}

/// One OSD, or two that are connected.
struct Cluster {
    map: OsdMap,
    daemons: Vec<Daemon>,
    now: Now,
    events: VecDeque<(usize, Event)>,
    /// Both directions of each session between OSDs.
    links: BTreeMap<(usize, ConnId), (usize, ConnId)>,
    accepted: u64,
    /// The session that the first one dialled to the other.
    ours: Option<ConnId>,
    sent: Vec<Message>,
    /// The messages that the first OSD received from the other, as input.
    heard: Vec<Vec<u8>>,
}

impl Cluster {
    fn new(osds: usize) -> Cluster {
        let now = Now { mono: Time::from_nanos(1 << 40), wall: Utime { sec: 1_800_000_000, nsec: 0 } };
        let daemons = (0..osds)
            .map(|n| {
                let disk = Image::blank(4 << 20);
                Store::format(&disk, Options { uuid: [7; 16], log_len: Some(1 << 20), ..Options::default() })
                    .expect("the device is large enough");
                let (store, _) = Store::open(&disk).expect("it was just formatted");
                let osd = Osd::new(OsdConfig {
                    key: None,
                    id: OsdId(n as i32),
                    uuid: [n as u8 + 1; 16],
                    public: AddrVec::one(addr_of(n)),
                    cluster: AddrVec::one(addr_of(n)),
                    mons: vec![addr(3300)],
                    host: "node".into(),
                    device_class: "ssd".into(),
                    memory: nacre_osd::MEMORY,
                    release: Default::default(),
                    metadata: BTreeMap::new(),
                    perf: Default::default(),
                    seed: 1,
                });
                Daemon { osd, disk, store, timers: BTreeMap::new(), mon: None }
            })
            .collect();
        let mut cluster = Cluster {
            map: map(),
            daemons,
            now,
            events: (0..osds).map(|n| (n, Event::Start)).collect(),
            links: BTreeMap::new(),
            accepted: 10,
            ours: None,
            sent: Vec::new(),
            heard: Vec::new(),
        };
        (0..osds).for_each(|at| cluster.open(at, CLIENT, EntityType::Client, 4100, addr(0)));
        if osds == 1 {
            cluster.open(0, OTHER, EntityType::Osd, 1, addr_of(1));
        }
        cluster.pass(Duration::from_secs(1));
        cluster
    }

    fn open(&mut self, at: usize, conn: ConnId, kind: EntityType, num: i64, addr: EntityAddr) {
        let peer = Peer {
            kind,
            num,
            addrs: AddrVec::one(addr),
            observed: addr,
            features: u64::MAX,
            auth_name: None,
            proved: None,
        };
        self.events.push_back((at, Event::Opened { conn, peer }));
    }
    fn message(&mut self, at: usize, conn: ConnId, message: Message) {
        self.events.push_back((at, Event::Message { conn, tid: 1, message }));
    }

    fn work(&mut self) {
        while let Some((at, event)) = self.events.pop_front() {
            let daemon = &mut self.daemons[at];
            let mut out = Vec::new();
            daemon.osd.handle(self.now, event, &daemon.store, &mut out);
            for effect in out {
                self.carry_out(at, effect);
            }
        }
    }

    fn carry_out(&mut self, at: usize, effect: Effect) {
        let daemon = &mut self.daemons[at];
        match effect {
            Effect::Dial { conn, kind: EntityType::Mon, .. } => {
                daemon.mon = Some(conn);
                self.open(at, conn, EntityType::Mon, 0, addr(3300));
            }
            Effect::Dial { conn, to, .. } => {
                let other = 1 - at;
                if to != addr_of(other) {
                    return; // An address from a mutated map.
                }
                if at == 0 {
                    self.ours = Some(conn);
                }
                if other < self.daemons.len() {
                    self.accepted += 1;
                    let there = ConnId::Accepted(self.accepted);
                    self.links.insert((at, conn), (other, there));
                    self.links.insert((other, there), (at, conn));
                    self.open(other, there, EntityType::Osd, at as i64, addr_of(at));
                }
                self.open(at, conn, EntityType::Osd, other as i64, to);
            }
            Effect::Send { conn, message, .. } => {
                if daemon.mon == Some(conn) {
                    self.ask_monitor(at, conn, &message);
                } else if let Some(&(other, there)) = self.links.get(&(at, conn)) {
                    if other == 0 {
                        let from = if Some(there) == self.ours { 2 } else { 1 };
                        let raw = Envelope::new(message.clone()).to_raw();
                        self.heard.push(input(&[(from, raw)]));
                    }
                    self.message(other, there, message.clone());
                }
                self.sent.push(message);
            }
            Effect::Store { token, txn } => {
                // Transactions from another OSD are not checked again: the store rejects what it cannot hold.
                if daemon.store.submit(txn).is_err() {
                    return;
                }
                settle(&mut daemon.store, &daemon.disk);
                self.events.push_back((at, Event::Stored(token)));
            }
            Effect::Read { token, id, extents, .. } => {
                let result = match daemon.store.plan_read(&id, &extents) {
                    Ok(plan) => plan.run(&daemon.disk),
                    Err(why) => Err(why),
                };
                self.events.push_back((at, Event::ReadDone { token, result }));
            }
            Effect::Arm { timer, after } => drop(daemon.timers.insert(timer, self.now.mono + after)),
            Effect::Disarm { timer } => drop(daemon.timers.remove(&timer)),
            Effect::Loop(n) => self.events.push_front((at, Event::Loop(n))),
            _ => {}
        }
    }

    /// A monitor that does what OSDs need to become active.
    fn ask_monitor(&mut self, at: usize, conn: ConnId, message: &Message) {
        let epoch = self.map.epoch;
        let answer = match message {
            Message::MonSubscribe(_) => Message::from(OsdMapMsg {
                fsid: self.map.fsid,
                incrementals: BTreeMap::new(),
                full: BTreeMap::from([(epoch, to_vec(&self.map).into())]),
                oldest: Epoch(1),
                newest: epoch,
                gap_removed_snaps: BTreeMap::new(),
            }),
            Message::MonGetVersion(ask) => {
                MonGetVersionReply { handle: ask.handle, version: epoch.0.into(), oldest: 1 }.into()
            }
            Message::Daemon(DaemonMsg::RecordQuery { pgs, .. }) => {
                let records = pgs.iter().map(|pg| (*pg, None)).collect();
                DaemonMsg::Records { epoch, records }.into()
            }
            Message::Daemon(DaemonMsg::Activate { records, .. }) => {
                let results = records.iter().map(|(pg, record)| (*pg, record.interval, true)).collect();
                DaemonMsg::Activated { epoch, results }.into()
            }
            _ => return,
        };
        self.message(at, conn, answer);
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now.mono + time;
        self.work();
        loop {
            let all = self.daemons.iter().enumerate();
            let all =
                all.flat_map(|(at, daemon)| daemon.timers.iter().map(move |(timer, due)| (*due, at, *timer)));
            let Some((due, at, timer)) = all.min().filter(|(due, ..)| *due <= end) else { break };
            self.now.mono = self.now.mono.max(due);
            self.daemons[at].timers.remove(&timer);
            self.events.push_back((at, Event::Timer(timer)));
            self.work();
        }
        self.now.mono = end;
    }
}

fn input(messages: &[(u8, RawMessage)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (from, raw) in messages {
        from.encode(&mut out);
        message_input(raw)[..].encode(&mut out);
    }
    out
}

/// Writes to both pools, and the recorded requests of clients.
fn requests() -> Vec<RawMessage> {
    let map = map();
    let recorded = samples::messages().into_iter().filter_map(|(_, raw)| Envelope::from_raw(raw).ok());
    let requests = recorded.filter_map(|envelope| match envelope.body {
        Message::OsdOp(request) => Some(request),
        _ => None,
    });
    let writes = (0..40).map(|n| {
        let data = Bytes::from(vec![n; 300]);
        let op = match n % 4 {
            0 => Op::WriteFull { data },
            1 => Op::Append { data },
            2 => Op::SetXattr { name: "x".into(), value: data },
            _ => Op::Delete,
        };
        Box::new(OsdOp {
            spg: SpgId::replicated(PgId { pool: SHARED, seed: 0 }),
            hash: 0,
            epoch: map.epoch,
            flags: op_flags::message::WRITE | op_flags::message::ONDISK,
            reqid: ReqId::default(),
            client_inc: 0,
            mtime: Utime::ZERO,
            locator: ObjectLocator::new(SHARED),
            name: format!("o{}", n / 8).into(),
            ops: vec![op.into()],
            snap: SnapId::HEAD,
            snap_seq: SnapId(0),
            snaps: Vec::new(),
            retry_attempt: 0,
            features: 0,
        })
    });
    let ours = writes.chain(requests).enumerate().map(|(n, mut request)| {
        let pool = [ALONE, SHARED][n / 4 % 2];
        request.locator.pool = pool;
        request.hash = object_hash(&request.locator.namespace, &request.name);
        let pg = map.hash_to_pg(pool, request.hash).expect("the pool exists");
        (request.spg, request.epoch, request.client_inc) = (SpgId::replicated(pg), map.epoch, 0);
        Envelope { tid: n as u64 + 1, body: request.into() }.to_raw()
    });
    ours.collect()
}

/// The other OSD does not answer, so the client gets backoffs for both pools.
fn backed_off() -> Vec<(u8, RawMessage)> {
    let spg = SpgId::replicated(PgId { pool: SHARED, seed: 0 });
    let is_for_both = |raw: &RawMessage| matches!(Envelope::from_raw(raw.clone()).map(|envelope| envelope.body), Ok(Message::OsdOp(op)) if op.spg == spg);
    let asked = requests().into_iter().filter(is_for_both).take(4).map(|raw| (0, raw));
    let (begin, end) = (ObjectId::min(), ObjectId::max());
    let heard = OsdBackoff { spg, epoch: map().epoch, op: BackoffOp::AckBlock, id: 1, begin, end };
    let at_once = Config { values: [("osd_backoff_on_peering".to_string(), "true".to_string())].into() };
    let first = (3, Envelope::new(at_once).to_raw());
    [first].into_iter().chain(asked).chain([(0, Envelope::new(heard).to_raw())]).collect()
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<_> = requests().into_iter().map(|raw| input(&[(0, raw)])).collect();
    let mut pair = Cluster::new(2);
    for raw in requests().into_iter().take(80) {
        let body = Envelope::from_raw(raw).expect("we made it").body;
        let at_other = matches!(&body, Message::OsdOp(op) if op.spg.pg == PgId { pool: SHARED, seed: 1 });
        pair.message(usize::from(at_other), CLIENT, body);
        pair.pass(Duration::from_millis(20));
    }
    // Each input starts from a new OSD: placement groups must become active.
    seeds.extend((10..=pair.heard.len().min(300)).step_by(15).map(|len| pair.heard[..len].concat()));
    let map = &pair.map;
    let mut inc = Incremental::after(map, Utime::ZERO);
    inc.new_state.insert(OsdId(1), osd_state::UP);
    inc.seal(map).expect("it fits");
    let down = OsdMapMsg {
        fsid: map.fsid,
        incrementals: BTreeMap::from([(inc.epoch, to_vec(&inc).into())]),
        full: BTreeMap::new(),
        oldest: Epoch(1),
        newest: inc.epoch,
        gap_removed_snaps: BTreeMap::new(),
    };
    seeds.push(input(&[(3, Envelope::new(down).to_raw())]));
    seeds.push(input(&backed_off()));
    seeds
}

pub fn run(bytes: &[u8]) {
    let cluster = feed(bytes);
    for message in cluster.sent {
        let name = message.name();
        let raw = Envelope { tid: 1, body: message }.to_raw();
        assert!(Envelope::from_raw(raw).is_ok(), "a receiver refuses this {name}");
    }
}

fn feed(bytes: &[u8]) -> Cluster {
    let mut cluster = Cluster::new(1);
    let r = &mut Reader::new(bytes);
    while let (Ok(from), Ok(bytes)) = (u8::decode(r), r.bytes()) {
        let raw = read_message(&mut Reader::new(bytes));
        let Some(envelope) = raw.ok().and_then(|raw| Envelope::from_raw(raw).ok()) else { continue };
        let conn = match from & 3 {
            0 => Some(CLIENT),
            1 => Some(OTHER),
            2 => cluster.ours,
            _ => cluster.daemons[0].mon,
        };
        if let Some(conn) = conn {
            cluster.message(0, conn, envelope.body);
        }
        cluster.pass(Duration::from_millis(50));
    }
    cluster.pass(Duration::from_secs(2));
    cluster
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise mutations of them would have no effect.
    #[test]
    fn the_samples_reach_active_pgs() {
        let count = |cluster: &Cluster, name: &str| cluster.sent.iter().filter(|m| m.name() == name).count();
        let (mut answers, mut replicated, mut backoffs) = (0, 0, 0);
        for seed in seeds() {
            let cluster = feed(&seed);
            answers += count(&cluster, "osd_op_reply");
            backoffs += count(&cluster, "osd_backoff");
            replicated += cluster.sent.iter().filter(|m| format!("{m:?}").contains("RepAck")).count();
        }
        assert!(answers > 20, "{answers} requests are answered");
        assert!(replicated > 0, "{replicated} writes of the other OSD are acknowledged");
        assert!(backoffs > 0, "{backoffs} times a client was asked to keep its requests");
    }
}
