//! What an omap of a million keys costs when one of them is read, counted: pages that are read, and bytes of
//! memory.

use super::{ASKED, alone};
use bytes::Bytes;
use nacre_base::{Name, buffer};
use nacre_machine::StoreView;
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_store::testing::SimDisk;
use nacre_store::{Disk, DiskError, Options, Store};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const KEYS: u64 = 1_000_000;
const LIMIT: usize = 16 << 20;

/// Counts reads.
struct Reads {
    disk: SimDisk,
    count: AtomicUsize,
}

impl Disk for Reads {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.disk.read_at(offset, into)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.disk.write_at(offset, bytes)
    }
    fn flush(&self) -> Result<(), DiskError> {
        self.disk.flush()
    }
    fn len(&self) -> u64 {
        self.disk.len()
    }
}

fn id() -> StoredId {
    StoredId::meta("index")
}
fn key(n: u64) -> Name {
    Name::from(format!("key{n:08}"))
}
fn submit(store: &mut Store, change: Change) {
    let mut txn = Transaction::new();
    txn.push(id(), change);
    store.submit(txn).unwrap();
}
fn listed(store: &Store, from: u64, count: usize) -> Vec<Name> {
    let mut keys = Vec::new();
    store
        .omap_walk(&id(), key(from).as_bytes(), &mut |key, _| {
            keys.push(key.clone());
            keys.len() < count
        })
        .unwrap();
    keys
}

#[test]
fn one_key_of_a_million_costs_few_pages_and_little_memory() {
    let _alone = alone();
    let disk = Arc::new(Reads { disk: SimDisk::new(1 << 30, 1), count: AtomicUsize::new(0) });
    Store::format(&*disk, Options { uuid: [7; 16], ..Options::default() }).unwrap();
    let (mut store, _) = Store::open_paged(disk.clone()).unwrap();
    store.limit_memory(LIMIT);
    for first in (0..KEYS).step_by(1000) {
        let pairs: BTreeMap<Name, Bytes> =
            (first..first + 1000).map(|n| (key(n), Bytes::from_static(b"value"))).collect();
        submit(&mut store, Change::OmapSet(pairs));
        store.settle(&*disk).unwrap();
        assert!(store.memory().index < LIMIT, "{:?}", store.memory());
    }
    store.request_checkpoint();
    store.settle(&*disk).unwrap();
    drop(store);

    buffer::give_back();
    let (mut store, _) = Store::open_paged(disk.clone()).unwrap();
    store.limit_memory(LIMIT);
    let mut before = (0, 0);
    let mut cost = |what: &str| {
        let now = (disk.count.load(Ordering::Relaxed), ASKED.get());
        let cost = (now.0 - before.0, now.1 - before.1);
        println!("{what}: {} reads, {} bytes allocated", cost.0, cost.1);
        before = now;
        cost
    };
    cost("everything before");
    assert_eq!(store.omap_get(&id(), key(500_000).as_bytes()), Ok(Some(Bytes::from_static(b"value"))));
    let (reads, bytes) = cost("the first key");
    assert!(reads <= 6 && bytes < 2 << 20, "{reads} reads, {bytes} bytes for the first look");
    assert_eq!(listed(&store, 200_000, 100), (200_000..200_100).map(key).collect::<Vec<_>>());
    let (reads, bytes) = cost("a hundred others");
    assert!(reads <= 4 && bytes < 1 << 20, "{reads} reads, {bytes} bytes to list a hundred");
    submit(&mut store, Change::OmapSet([(key(700_000), Bytes::from_static(b"new"))].into()));
    let (reads, bytes) = cost("a key that is set");
    assert!(reads <= 4 && bytes < 2 << 20, "{reads} reads, {bytes} bytes to set one");
    let (begin, end) = (key(100_000), key(900_000));
    submit(&mut store, Change::OmapRemoveRange { begin, end });
    let (reads, bytes) = cost("a range of many that goes");
    assert!(reads <= 6 && bytes < 4 << 20, "{reads} reads, {bytes} bytes to remove a range");
    submit(&mut store, Change::OmapSetHeader(Bytes::from_static(b"header")));
    let mut txn = Transaction::new();
    txn.push(StoredId::meta("copy"), Change::CloneFrom(id()));
    store.submit(txn).unwrap();
    let (reads, bytes) = cost("a copy");
    assert!(reads <= 2 && bytes < 2 << 20, "{reads} reads, {bytes} bytes to copy it");
    store.settle(&*disk).unwrap();
    cost("a batch");
    let keys = listed(&store, 99_990, 20);
    assert_eq!(keys, (99_990..100_000).chain(900_000..900_010).map(key).collect::<Vec<_>>());
    let (reads, _) = cost("what is beside it");
    assert!(reads <= 4, "{reads} reads to list what is behind what went");
    assert!(store.memory().index < LIMIT, "{:?}", store.memory());
}
