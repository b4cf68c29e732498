//! What was acknowledged is there after the process was killed, again and again.

use crate::toys::PATIENCE;
use bytes::Bytes;
use nacre_base::{Name, Now, PoolId, Rng};
use nacre_machine::{Effect, Event, Machine, StoreView};
use nacre_node::{Ended, FileDisk, Limits, Running, Spec};
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_proto::types::{AddrVec, AuthName, EntityType, ObjectId};
use nacre_store::{Options, Store};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

const STORE: &str = "NACRE_TEST_KILL_STORE";
const SLOTS: u64 = 50;
const IN_FLIGHT: u64 = 8;
const ROUNDS: usize = 8;

fn slot(n: u64) -> StoredId {
    StoredId::Meta(Name::from(format!("slot{}", n % SLOTS)))
}

/// Different in length and content for each `n`.
fn content(n: u64) -> Vec<u8> {
    (0..n * 777 % 30_000).map(|at| (n + at) as u8).collect()
}

fn write(n: u64) -> Transaction {
    let mut txn = Transaction::new();
    let data = Bytes::from(content(n));
    txn.push(slot(n), Change::Truncate { size: data.len() as u64 });
    txn.push(slot(n), Change::Write { offset: 0, data });
    let number = Bytes::copy_from_slice(&n.to_le_bytes());
    txn.push(slot(n), Change::SetAttrs(BTreeMap::from([(Name::from("n"), number)])));
    txn
}

fn written(store: &Store, n: u64) -> u64 {
    let number = store.attr(&slot(n), b"n").unwrap();
    number.map_or(0, |bytes| u64::from_le_bytes(bytes[..].try_into().unwrap()))
}

/// Writes one number after another, and prints those that are durable.
struct Writer {
    written: u64,
    durable: u64,
}

impl Machine for Writer {
    fn handle(&mut self, _: Now, event: Event, _: &dyn StoreView, out: &mut Vec<Effect>) {
        let wanted = match event {
            Event::Start => IN_FLIGHT,
            Event::Stored(n) => {
                println!("durable {n}");
                std::io::stdout().flush().unwrap();
                // With all before it.
                n - std::mem::replace(&mut self.durable, n)
            }
            _ => 0,
        };
        for _ in 0..wanted {
            self.written += 1;
            out.push(Effect::Store { token: self.written, txn: write(self.written) });
        }
    }
}

fn open(path: &Path) -> (Store, FileDisk) {
    let disk = FileDisk::open(path).unwrap();
    let (store, _) = Store::open(&disk).unwrap();
    (store, disk)
}

/// An empty store of this many bytes.
fn format(path: &Path, size: u64) {
    let disk = FileDisk::create(path, size).unwrap();
    Store::format(&disk, Options { uuid: [1; 16], ..Options::default() }).unwrap();
}

/// A daemon with a store and without a network.
fn spec(name: &str, store: (Store, FileDisk)) -> Spec {
    Spec {
        name: name.to_string(),
        kind: EntityType::Osd,
        num: 0,
        auth_name: AuthName::new(EntityType::Osd, "0"),
        key: None,
        addrs: AddrVec::default(),
        listeners: Vec::new(),
        datagrams: Vec::new(),
        store: Some(store),
        perf: Default::default(),
        limits: Limits::default(),
    }
}

fn last(store: &Store) -> u64 {
    (0..SLOTS).map(|n| written(store, n)).max().unwrap()
}

/// The child of the test below; does nothing on its own.
#[test]
#[ignore = "runs until it is killed: the process that the next test kills"]
fn writer() {
    let Some(path) = std::env::var_os(STORE) else { return };
    let (store, disk) = open(Path::new(&path));
    let first = last(&store);
    Running::start(spec("writer", (store, disk)), move || Writer { written: first, durable: first })
        .join()
        .unwrap();
}

#[test]
fn what_was_acknowledged_survives_being_killed_at_any_moment() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    format(&path, 64 << 20);
    let mut rng = Rng::new(std::process::id().into());
    for round in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["kill::writer", "--exact", "--ignored", "--nocapture"])
            .env(STORE, &path)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let reader = std::thread::spawn(move || {
            let numbers = lines.map_while(Result::ok);
            numbers.filter_map(|line| line.strip_prefix("durable ")?.parse::<u64>().ok()).last()
        });
        let mut stderr = child.stderr.take().unwrap();
        let complaints = std::thread::spawn(move || {
            let mut said = Vec::new();
            stderr.read_to_end(&mut said).unwrap();
            String::from_utf8_lossy(&said).into_owned()
        });
        std::thread::sleep(rng.duration(Duration::from_millis(150), Duration::from_millis(500)));
        child.kill().unwrap();
        child.wait().unwrap();
        let acknowledged = reader.join().unwrap().unwrap_or(0);
        // One that ended by itself was not killed at any moment.
        let complaints = complaints.join().unwrap();
        assert!(!complaints.contains("panicked at"), "round {round}: {complaints}");

        let (store, disk) = open(&path);
        assert_eq!(store.check(), [""; 0]);
        let last = last(&store);
        assert!(last >= acknowledged, "round {round}: {acknowledged} was durable, {last} is the last there");
        for n in last.saturating_sub(SLOTS - 1).max(1)..=last {
            assert_eq!(written(&store, n), n, "round {round}");
            let data = store.plan_read(&slot(n), &[(0, 1 << 20)]).unwrap().run(&disk).unwrap();
            assert_eq!(data[0], content(n), "round {round}: slot of {n}");
        }
    }
    assert!(last(&open(&path).0) > 0, "nothing was ever written");
}

/// Writes more than fits, one transaction after the other, without regard to the free space.
struct Careless {
    written: u64,
    durable: Sender<u64>,
}

impl Machine for Careless {
    fn handle(&mut self, _: Now, event: Event, _: &dyn StoreView, out: &mut Vec<Effect>) {
        if let Event::Stored(n) = event {
            self.durable.send(n).unwrap();
        }
        self.written += 1;
        let mut txn = Transaction::new();
        txn.push(object(self.written), Change::Write { offset: 0, data: vec![7; 1 << 20].into() });
        out.push(Effect::Store { token: self.written, txn });
    }
}

fn object(n: u64) -> ObjectId {
    ObjectId::head(PoolId(1), Name::default(), Name::default(), Name::from(format!("object{n}")))
}

#[test]
fn full_store_stops_its_daemon_without_losing_acknowledged_writes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    format(&path, 32 << 20);
    let (durable, acknowledged) = channel();
    let spec = spec("careless", open(&path));
    // It was not stopped; its thread comes to its end, and this process continues.
    let ended = Running::start(spec, move || Careless { written: 0, durable }).join();
    assert!(matches!(&ended, Err(Ended::Failed(why)) if why.starts_with("the store refused")), "{ended:?}");
    let acknowledged: Vec<u64> = acknowledged.into_iter().collect();
    assert!(acknowledged.len() > 10, "{} fit", acknowledged.len());
    // Its disk's threads let go of the file a little later.
    let until = Instant::now() + PATIENCE;
    while FileDisk::open(&path).is_err() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    let (store, _) = open(&path);
    assert_eq!(store.check(), [""; 0]);
    for n in acknowledged {
        assert_eq!(store.stat(&object(n).into()).unwrap().map(|stat| stat.size), Some(1 << 20));
    }
    // What is full takes removals.
    let mut store = store;
    let mut txn = Transaction::new();
    txn.push(object(1), Change::Remove);
    store.submit(txn).unwrap();
}
