//! What each pool takes.

use super::settle;
use crate::testing::SimDisk;
use crate::{Options, Store};
use bytes::Bytes;
use nacre_base::{Name, PoolId};
use nacre_machine::StoreView;
use nacre_proto::messages::PoolSpace;
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_proto::types::ObjectId;
use std::collections::BTreeMap;
use std::sync::Arc;

fn object(pool: i64, name: &'static str) -> StoredId {
    ObjectId::head(PoolId(pool), Name::default(), Name::default(), name.into()).into()
}

fn write(offset: u64, len: usize) -> Change {
    Change::Write { offset, data: Bytes::from(vec![7; len]) }
}

fn pairs(count: u64) -> Change {
    let pair = |n: u64| (Name::from(format!("{n:04}")), Bytes::from(vec![1; 88]));
    Change::OmapSet((0..count).map(pair).collect::<BTreeMap<_, _>>())
}

fn submit(store: &mut Store, disk: &SimDisk, changes: impl IntoIterator<Item = (StoredId, Change)>) {
    let mut txn = Transaction::new();
    changes.into_iter().for_each(|(id, change)| txn.push(id, change));
    store.submit(txn).unwrap();
    settle(store, disk);
}

fn space(allocated: u64, stored: u64, omap: u64) -> PoolSpace {
    PoolSpace { allocated, stored, omap }
}

#[test]
fn pool_usage_excludes_holes_and_counts_shared_blocks_once() {
    let disk = Arc::new(SimDisk::new(16 << 20, 1));
    Store::format(&*disk, Options { uuid: [7; 16], ..Options::default() }).unwrap();
    let (mut store, _) = Store::open(&*disk).unwrap();
    assert_eq!(store.pools(), []);
    // The end of an image's object, and nothing before it.
    submit(&mut store, &disk, [(object(3, "thin"), write((4 << 20) - 4096, 4096))]);
    submit(&mut store, &disk, [(object(5, "short"), write(0, 10)), (StoredId::meta("own"), write(0, 100))]);
    assert_eq!(store.pools(), [(PoolId(3), space(4096, 4096, 0)), (PoolId(5), space(4096, 10, 0))]);
    // A clone counts as stored, and takes what is its own.
    let clone = (object(3, "clone"), Change::CloneFrom(object(3, "thin")));
    submit(&mut store, &disk, [clone, (object(3, "thin"), write(0, 4096))]);
    assert_eq!(store.pools()[0].1, space(8192, 3 * 4096, 0));
    // Long omaps count with all of their parts.
    submit(&mut store, &disk, [(object(5, "omap"), pairs(200))]);
    assert_eq!(store.pools()[1].1, space(4096, 10, 200 * 100));

    for written in [false, true] {
        if written {
            store.request_checkpoint();
            settle(&mut store, &disk);
        }
        let expected = store.pools();
        let (paged, _) = Store::open_paged(disk.clone()).unwrap();
        assert_eq!(paged.pools(), expected);
        store = Store::open(&*disk).unwrap().0;
        assert_eq!(store.pools(), expected);
    }
    let gone = ["thin", "clone"].map(|name| (object(3, name), Change::Remove));
    submit(&mut store, &disk, gone);
    submit(&mut store, &disk, [(object(5, "omap"), Change::OmapClear)]);
    assert_eq!(store.pools(), [(PoolId(5), space(4096, 10, 0))]);
}

#[test]
fn pool_usage_is_recounted_on_open_without_a_checkpoint() {
    let disk = Arc::new(SimDisk::new(16 << 20, 1));
    Store::format(&*disk, Options { uuid: [7; 16], ..Options::default() }).unwrap();
    let (mut store, _) = Store::open(&*disk).unwrap();
    submit(&mut store, &disk, [(object(1, "a"), write(0, 9000)), (object(1, "a"), pairs(200))]);
    submit(&mut store, &disk, [(object(1, "b"), Change::CloneFrom(object(1, "a")))]);
    let mut expected = store.pools();
    store.index.total.pools = None; // as version 8 wrote it
    store.request_checkpoint();
    store.settle(&*disk).unwrap();
    for _ in 0..2 {
        let (mut store, _) = Store::open_paged(disk.clone()).unwrap();
        assert_eq!(store.pools(), expected);
        submit(&mut store, &disk, [(object(1, "a"), write(1, 1))]);
        expected = store.pools();
    }
}
