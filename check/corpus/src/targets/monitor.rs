//! The leader of a small cluster's monitors, which receives arbitrary messages from a client or an OSD.
//!
//! An input is the sender (a byte: 0 a client, 1 an OSD) and a list of length-prefixed messages.

use super::disk::{Image, settle};
use super::{message_input, read_message};
use crate::samples;
use bytes::Bytes;
use nacre_auth::Entropy;
use nacre_base::{Epoch, Now, OsdId, Time, Utime};
use nacre_machine::{ConnId, Effect, Event, Machine, Peer};
use nacre_mon::{Member, Mon, MonAuth, MonConfig};
use nacre_proto::messages::{DaemonMsg, Envelope, Message, MonCommand, OsdBoot, PaxosVersion};
use nacre_proto::types::{AddrVec, EntityAddr, EntityType};
use nacre_store::{Options, Store};
use nacre_wire::{Encode, Reader};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

const CLIENT: ConnId = ConnId::Accepted(1);
const OSD: ConnId = ConnId::Accepted(2);
const FSID: [u8; 16] = [9; 16];

struct Cluster {
    mon: Mon,
    disk: Image,
    store: Store,
    now: Now,
    timers: BTreeMap<u64, Time>,
    sent: Vec<(ConnId, Message)>,
}

fn addrs(port: u16) -> AddrVec {
    AddrVec::one(EntityAddr::msgr2(([127, 0, 0, 1], port).into(), 1))
}

fn opened(conn: ConnId, kind: EntityType, num: i64, addrs: AddrVec) -> Event {
    let observed = addrs.msgr2().unwrap_or_default();
    Event::Opened {
        conn,
        peer: Peer { kind, num, addrs, observed, features: u64::MAX, auth_name: None, proved: None },
    }
}

fn the_client() -> Event {
    opened(CLIENT, EntityType::Client, 4100, addrs(0))
}

impl Cluster {
    /// A cluster with one OSD and one pool, "p".
    fn new() -> Cluster {
        let disk = Image::blank(4 << 20);
        Store::format(&disk, Options { uuid: [7; 16], log_len: Some(1 << 20), ..Options::default() })
            .expect("the device is large enough");
        let (store, _) = Store::open(&disk).expect("it was just formatted");
        let options = [("osd_crush_chooseleaf_type", "0"), ("mon_allow_pool_delete", "true")];
        let config = MonConfig {
            id: 1,
            name: "a".into(),
            members: vec![Member { id: 1, name: "a".into(), addrs: addrs(3300), initial: true }],
            mgr_addrs: addrs(6800),
            fsid: FSID,
            options: options.map(|(name, value)| (name.into(), value.into())).into(),
            host: "node".into(),
            perf: Default::default(),
            release: Default::default(),
            metadata: BTreeMap::new(),
            seed: 1,
            auth: MonAuth::none(Entropy::repeatable(1)),
        };
        let now = Now { mono: Time::from_nanos(1 << 40), wall: Utime { sec: 1_800_000_000, nsec: 0 } };
        let mon = Mon::new(config);
        let mut cluster = Cluster { mon, disk, store, now, timers: BTreeMap::new(), sent: Vec::new() };
        cluster.event(Event::Start);
        cluster.pass(Duration::from_secs(2));
        cluster.event(the_client());
        cluster.open(OSD, EntityType::Osd, 0, addrs(6801));
        cluster.message(OSD, boot().into());
        cluster.message(CLIENT, command(json!({"prefix": "osd pool create", "pool": "p", "pg_num": 8})));
        cluster
    }
    fn open(&mut self, conn: ConnId, kind: EntityType, num: i64, addrs: AddrVec) {
        self.event(opened(conn, kind, num, addrs));
    }
    fn message(&mut self, conn: ConnId, message: Message) {
        self.event(Event::Message { conn, tid: 1, message });
    }
    fn event(&mut self, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let mut out = Vec::new();
            self.mon.handle(self.now, event, &self.store, &mut out);
            for effect in out {
                match effect {
                    Effect::Send { conn, message, .. } => self.sent.push((conn, message)),
                    Effect::Store { token, txn } => {
                        self.store.submit(txn).expect("a monitor's changes fit its store");
                        settle(&mut self.store, &self.disk);
                        events.push_back(Event::Stored(token));
                    }
                    Effect::Arm { timer, after } => drop(self.timers.insert(timer, self.now.mono + after)),
                    Effect::Disarm { timer } => drop(self.timers.remove(&timer)),
                    Effect::Loop(n) => events.push_front(Event::Loop(n)),
                    // The peer reconnects.
                    Effect::Hangup { conn: CLIENT } => events.push_back(the_client()),
                    Effect::Fail { reason } => panic!("{reason}"),
                    _ => {}
                }
            }
        }
    }
    fn pass(&mut self, time: Duration) {
        let end = self.now.mono + time;
        loop {
            let next = self.timers.iter().min_by_key(|(_, at)| **at).map(|(timer, at)| (*timer, *at));
            let Some((timer, at)) = next.filter(|(_, at)| *at <= end) else { break };
            self.now.mono = at;
            self.timers.remove(&timer);
            self.event(Event::Timer(timer));
        }
        self.now.mono = end;
        self.now.wall.sec += time.as_secs() as u32;
    }
    /// The monitor's reply to a command.
    fn answer(&mut self, command: Message) -> Option<Bytes> {
        self.sent.clear();
        self.message(CLIENT, command);
        self.sent.iter().find_map(|(_, message)| match message {
            Message::MonCommandAck(ack) => Some(ack.output.clone()),
            _ => None,
        })
    }
}

fn boot() -> DaemonMsg {
    DaemonMsg::Boot(OsdBoot {
        osd: OsdId(0),
        uuid: [3; 16],
        public: addrs(6801),
        cluster: addrs(6801),
        newest_map: Epoch(0),
        capacity: 1 << 30,
        device_class: "ssd".into(),
        host: "node".into(),
        metadata: BTreeMap::new(),
        formats: Some(nacre_proto::types::Formats::ALL),
    })
}

fn command(args: Value) -> Message {
    let cmd = vec![args.to_string()];
    MonCommand { version: PaxosVersion(0), fsid: FSID, cmd, input: Bytes::new() }.into()
}

/// A command with all arguments of its signature.
fn example(sig: &Value) -> Value {
    let mut args = Map::new();
    let mut prefix = Vec::new();
    for part in sig.as_array().into_iter().flatten() {
        let Some(name) = part.get("name").and_then(Value::as_str) else {
            prefix.extend(part.as_str());
            continue;
        };
        let one = match part["type"].as_str().unwrap_or_default() {
            "CephInt" => json!(1),
            "CephFloat" => json!(0.5),
            "CephBool" => json!(true),
            "CephOsdName" => json!("osd.0"),
            "CephPgid" => json!("1.0"),
            "CephPoolname" => json!("p"),
            "CephChoices" => json!(part["strings"].as_str().and_then(|all| all.split('|').next())),
            _ => json!("p"),
        };
        args.insert(name.into(), if part.get("n").is_some() { json!([one]) } else { one });
    }
    args.insert("prefix".into(), json!(prefix.join(" ")));
    args.insert("format".into(), json!("json"));
    Value::Object(args)
}

fn input(from: u8, messages: &[Vec<u8>]) -> Vec<u8> {
    let mut out = vec![from];
    messages.iter().for_each(|message| message[..].encode(&mut out));
    out
}

pub fn seeds() -> Vec<Vec<u8>> {
    let sent_to_monitors = [5, 13, 15, 19, 49, 50, 52, 58, 63, 0x700, 0x702, 0x708, 0x709];
    let recorded = samples::messages().into_iter().filter(|(_, raw)| sent_to_monitors.contains(&raw.kind));
    let mut seeds: Vec<_> = recorded.map(|(_, raw)| input(0, &[message_input(&raw)])).collect();
    seeds.extend(
        super::codecs::daemon_messages()
            .into_iter()
            .map(|message| input(1, &[message_input(&Envelope::new(message).to_raw())])),
    );
    let described = Cluster::new().answer(command(json!({"prefix": "get_command_descriptions"})));
    let described: Value = serde_json::from_slice(&described.expect("an answer")).expect("it is JSON");
    let rows = described.as_object().into_iter().flat_map(Map::values);
    seeds.extend(
        rows.map(|row| input(0, &[message_input(&Envelope::new(command(example(&row["sig"]))).to_raw())])),
    );
    seeds
}

pub fn run(input: &[u8]) {
    let Some((from, rest)) = input.split_first() else { return };
    let conn = if from & 1 == 0 { CLIENT } else { OSD };
    let mut cluster = Cluster::new();
    let r = &mut Reader::new(rest);
    while let Ok(bytes) = r.bytes() {
        let raw = read_message(&mut Reader::new(bytes));
        if let Some(envelope) = raw.ok().and_then(|raw| Envelope::from_raw(raw).ok()) {
            cluster.event(Event::Message { conn, tid: envelope.tid, message: envelope.body });
        }
        cluster.pass(Duration::from_secs(2));
    }
    for (_, message) in &cluster.sent {
        let raw = Envelope { tid: 1, body: message.clone() }.to_raw();
        assert!(Envelope::from_raw(raw).is_ok(), "a receiver refuses this {}", message.name());
    }
    // After any input, the next command must be served.
    let status = cluster.answer(command(json!({"prefix": "status", "format": "json"})));
    let status: Value = serde_json::from_slice(&status.expect("an answer")).expect("it is JSON");
    assert!(status.get("health").is_some());
}
