//! The store against a plain model, with crashes at every write.

mod caching;
mod corruption;
mod counts;
mod crashes;
mod damage;
mod export;
mod forged;
mod log_device;
mod model;
mod omaps;
mod paging;
mod pools;
mod upgrade;

use crate::testing::SimDisk;
use crate::{Options, Store};
use bytes::Bytes;
use nacre_base::Name;
use nacre_machine::StoreView;
use nacre_proto::transaction::{Change, StoredId, Transaction};
use std::collections::BTreeMap;

fn settle(store: &mut Store, disk: &SimDisk) {
    store.settle(disk).unwrap();
    assert_eq!(store.check(), [""; 0]);
}

#[test]
fn written_data_survives_reopening() {
    let disk = SimDisk::new(4 << 20, 1);
    Store::format(&disk, Options { uuid: [7; 16], ..Options::default() }).unwrap();
    let (mut store, _) = Store::open(&disk).unwrap();
    let id = StoredId::meta("a");
    let mut txn = Transaction::new();
    txn.push(id.clone(), Change::Write { offset: 5000, data: Bytes::from(vec![7; 9000]) });
    let first = store.submit(txn).unwrap();
    let mut txn = Transaction::new();
    txn.push(id.clone(), Change::Write { offset: 6000, data: Bytes::from_static(b"hello") });
    txn.push(id.clone(), Change::Truncate { size: 10_000 });
    let second = store.submit(txn).unwrap();
    let mut expected = vec![0; 5000];
    expected.resize(10_000, 7);
    expected[6000..6005].copy_from_slice(b"hello");

    let read = |store: &Store| store.plan_read(&id, &[(0, 20_000)]).unwrap().run(&disk).unwrap();
    assert_eq!(read(&store), [&expected[..]], "from memory");
    assert!(store.durable() < first);
    settle(&mut store, &disk);
    assert_eq!(store.durable(), second);
    assert_eq!(read(&store), [&expected[..]], "from the device");

    disk.crash();
    let (mut store, report) = Store::open(&disk).unwrap();
    assert_eq!(report.last, second);
    assert_eq!(read(&store), [&expected[..]], "from the log");
    store.request_checkpoint();
    settle(&mut store, &disk);
    let (store, report) = Store::open(&disk).unwrap();
    assert_eq!((report.checkpoint, report.last), (second, second));
    assert_eq!(read(&store), [&expected[..]], "from the checkpoint");
    assert_eq!(store.stat(&id).unwrap().unwrap().size, 10_000);
}

#[test]
fn many_clones_in_one_transaction_need_no_more_than_they_get() {
    let disk = SimDisk::new(64 << 20, 1);
    Store::format(&disk, Options { uuid: [7; 16], ..Options::default() }).unwrap();
    let (mut store, _) = Store::open(&disk).unwrap();
    let head = StoredId::meta("head");
    let mut txn = Transaction::new();
    for turn in 0..200 {
        txn.push(head.clone(), Change::Write { offset: 0, data: Bytes::from(vec![turn; 100]) });
        txn.push(StoredId::meta("clone"), Change::CloneFrom(head.clone()));
    }
    store.submit(txn).unwrap();
    settle(&mut store, &disk);
    let read = store.plan_read(&StoredId::meta("clone"), &[(0, 100)]).unwrap().run(&disk).unwrap();
    assert_eq!(read, [&[199; 100][..]]);
}

#[test]
fn a_transaction_larger_than_the_log_is_durable_with_a_checkpoint() {
    let disk = SimDisk::new(8 << 20, 1);
    let options = Options { uuid: [7; 16], log_len: Some(64 << 10), ..Options::default() };
    Store::format(&disk, options).unwrap();
    let (mut store, _) = Store::open(&disk).unwrap();
    let write = |key: &'static str, len: usize| {
        let mut txn = Transaction::new();
        let pairs = BTreeMap::from([(Name::from(key), Bytes::from(vec![7; len]))]);
        txn.push(StoredId::meta("a"), Change::OmapSet(pairs));
        txn.push(StoredId::meta(key), Change::Write { offset: 1, data: Bytes::from_static(b"data") });
        txn
    };
    for (key, len) in [("a", 100), ("b", 500_000), ("c", 100), ("d", 300_000), ("e", 60_000), ("f", 100)] {
        store.submit(write(key, len)).unwrap();
    }
    settle(&mut store, &disk);
    assert_eq!(store.durable(), store.submitted());
    assert!(store.checkpoints_written() > 0);
    store.submit(write("g", 700)).unwrap();
    settle(&mut store, &disk);
    disk.crash();
    let (store, report) = Store::open(&disk).unwrap();
    assert_eq!(report.last.0, 7);
    for (key, len) in [("a", 100), ("b", 500_000), ("d", 300_000), ("e", 60_000), ("g", 700)] {
        let value = store.omap_get(&StoredId::meta("a"), key.as_bytes()).unwrap();
        assert_eq!(value.map(|value| value.len()), Some(len), "{key}");
        let read = store.plan_read(&StoredId::meta(key), &[(0, 9)]).unwrap().run(&disk).unwrap();
        assert_eq!(read, ["\0data"]);
    }
}

/// What members sent to one that had been away, in small pieces, went into one batch of a hundred megabytes,
/// which takes as much memory again.
#[test]
fn small_writes_that_queue_up_are_committed_in_several_batches() {
    let disk = SimDisk::new(512 << 20, 1);
    let options = Options { uuid: [7; 16], log_len: Some(256 << 20), ..Options::default() };
    Store::format(&disk, options).unwrap();
    let (mut store, _) = Store::open(&disk).unwrap();
    for n in 0..3000 {
        let mut txn = Transaction::new();
        txn.push(StoredId::meta("a"), Change::Write { offset: n << 13, data: Bytes::from(vec![7; 4096]) });
        store.submit(txn).unwrap();
    }
    let done = store.take_batch().unwrap().commit(&disk).unwrap();
    let durable = store.finished(done);
    assert!(durable.0 > 1000 && durable < store.submitted(), "{durable:?}");
}

#[test]
fn a_large_object_and_a_hole_as_large() {
    let disk = SimDisk::new(80 << 20, 1);
    Store::format(&disk, Options { uuid: [7; 16], ..Options::default() }).unwrap();
    let (mut store, _) = Store::open(&disk).unwrap();
    let id = StoredId::meta("big");
    let len = 32 << 20;
    let mut txn = Transaction::new();
    txn.push(id.clone(), Change::Write { offset: 0, data: Bytes::from(vec![0x5a; len]) });
    txn.push(id.clone(), Change::Truncate { size: 2 * len as u64 });
    store.submit(txn).unwrap();
    let done = store.take_batch().unwrap().commit(&disk).unwrap();
    store.finished(done);
    let (store, _) = Store::open(&disk).unwrap();
    assert_eq!(store.extents(&id, 0, u64::MAX).unwrap(), [(0, len as u64)]);
    let around_the_end = store.plan_read(&id, &[(len as u64 - 3, 6), (2 * len as u64 - 1, 9)]).unwrap();
    assert_eq!(around_the_end.run(&disk).unwrap(), [&[0x5a, 0x5a, 0x5a, 0, 0, 0][..], &[0]]);
}
