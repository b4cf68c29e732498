//! A store that an older version wrote is opened, upgraded by its next checkpoint, and used with what is new,
//! wherever the power is cut meanwhile.

use super::model::Model;
use super::settle;
use crate::format::{SUPERBLOCKS, Superblock, VERSION};
use crate::testing::SimDisk;
use crate::{BLOCK, Disk, Store};
use bytes::Bytes;
use nacre_base::{Name, PgId, PoolId, ShardId, SpgId};
use nacre_machine::StoreView;
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_proto::types::ObjectId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Before ids could have a shard.
const VERSION_9: &[u8] = include_bytes!("../../testdata/version-9.img");
const DEVICE_LEN: u64 = 1 << 20;

fn object(pool: i64, name: &str) -> ObjectId {
    ObjectId::head(PoolId(pool), Name::default(), Name::default(), name.into())
}
fn pairs(numbers: std::ops::Range<u32>) -> BTreeMap<Name, Bytes> {
    numbers.map(|n| (Name::from(format!("key{n:03}")), Bytes::from(vec![n as u8; 30]))).collect()
}
fn write(offset: u64, byte: u8, len: usize) -> Change {
    Change::Write { offset, data: Bytes::from(vec![byte; len]) }
}

/// What the recorded store holds: three imports by a program of version 9, so three sorted runs, and the last
/// transaction is only in the log.
fn recorded() -> Model {
    let of = |pool, name| StoredId::Object(object(pool, name));
    let attrs = || Change::SetAttrs(BTreeMap::from([(Name::from("_"), Bytes::from_static(b"info"))]));
    let mut txn = Transaction::new();
    for (id, change) in [
        (StoredId::meta("super"), write(0, 1, 50)),
        (StoredId::Pg(SpgId::replicated(PgId { pool: PoolId(1), seed: 2 })), Change::OmapSet(pairs(0..9))),
        (of(1, "a"), write(0, 4, 6000)),
        (of(1, "a"), attrs()),
        (of(1, "a"), Change::OmapSet(pairs(20..25))),
        (of(1, "b"), write(7000, 3, 100)),
        (of(1, "b"), attrs()),
        (of(1, "c"), Change::OmapSet(pairs(0..200))),
        (of(1, "d"), write(100, 5, 200)),
        (of(2, "a"), write(4000, 6, 200)),
    ] {
        txn.push(id, change);
    }
    let mut model = Model::default();
    model.apply(&txn);
    model
}

/// The image has the blocks that are not all zeros: number, bytes without the zeros at the end, these bytes.
fn disk_of(mut image: &[u8]) -> SimDisk {
    let disk = SimDisk::new(DEVICE_LEN, 1);
    let u32_of = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
    while let Some((head, rest)) = image.split_at_checked(8) {
        let (number, len) = (u32_of(&head[..4]), u32_of(&head[4..]) as usize);
        let mut block = rest[..len].to_vec();
        block.resize(BLOCK, 0);
        disk.write_at(u64::from(number) * BLOCK as u64, &block).unwrap();
        image = &rest[len..];
    }
    disk.flush().unwrap();
    disk
}
fn submit(store: &mut Store, model: &mut Model, changes: Vec<(StoredId, Change)>) {
    let mut txn = Transaction::new();
    changes.into_iter().for_each(|(id, change)| txn.push(id, change));
    model.apply(&txn);
    store.submit(txn).unwrap();
}
fn version_of(disk: &SimDisk) -> u32 {
    let mut block = vec![0; BLOCK];
    disk.read_at(SUPERBLOCKS[0] * BLOCK as u64, &mut block).unwrap();
    Superblock::decode(&block).unwrap().version
}

/// A shard of an object, and the record of an instance: what version 9 did not have.
fn sharded() -> Vec<(StoredId, Change)> {
    let shard = |shard, name| StoredId::object(ShardId(shard), object(2, name));
    let spg = SpgId { pg: PgId { pool: PoolId(2), seed: 0 }, shard: ShardId(3) };
    vec![
        (StoredId::Pg(spg), Change::OmapSet(pairs(0..3))),
        (shard(0, "a"), write(0, 7, 5000)),
        (shard(3, "a"), write(0, 8, 5000)),
        (shard(3, "b"), Change::CloneFrom(shard(3, "a"))),
    ]
}

/// Opens it, uses it, crashes at the call `calls`, and opens it again. Whether it came to the end.
fn upgrade(image: &[u8], old: u32, calls: u64) -> bool {
    let disk = Arc::new(disk_of(image));
    assert_eq!(version_of(&disk), old);
    let mut model = recorded();
    let before = model.clone();
    disk.lose_power_after(calls);
    let mut is_done = false;
    let mut submitted = false;
    if let Ok((mut store, _)) = Store::open_paged(disk.clone()) {
        before.assert_shown_by(&store, &disk, "as it was");
        submit(&mut store, &mut model, sharded());
        submitted = true;
        is_done = store.settle(&*disk).is_ok();
        if is_done {
            // Without being asked for.
            assert_eq!(version_of(&disk), VERSION);
            assert_eq!(store.check(), [""; 0]);
        }
    }
    disk.crash();
    let (mut store, report) = Store::open_paged(disk.clone()).unwrap();
    let has_new = submitted && store.stat(&sharded()[0].0).unwrap().is_some();
    assert!(has_new || !is_done, "what was acknowledged is there after {calls} calls");
    let now = if has_new { &model } else { &before };
    let what = format!("after {calls} calls, {report:?}");
    assert_eq!(now.assert_shown_but_for_errors(&store, &disk, &what), [].into());
    settle(&mut store, &disk);
    assert_eq!(version_of(&disk), VERSION);
    assert_eq!(now.assert_shown_but_for_errors(&store, &disk, &what), [].into());
    is_done
}

#[test]
fn a_store_of_version_9_is_upgraded_whenever_the_power_is_cut() {
    let last = (0..).find(|calls| upgrade(VERSION_9, 9, *calls)).unwrap();
    assert!(last > 10, "only {last} calls in the whole upgrade");
}

#[test]
fn a_shard_is_walked_as_one_range() {
    let disk = disk_of(VERSION_9);
    let (mut store, _) = Store::open(&disk).unwrap();
    submit(&mut store, &mut Model::default(), sharded());
    let mut walked = Vec::new();
    let from = ObjectId { pool: PoolId(2), ..ObjectId::min() };
    let each = &mut |shard: ShardId, object: &ObjectId| {
        let is_of_shard = (shard, object.pool) == (ShardId(3), PoolId(2));
        walked.extend(is_of_shard.then(|| object.name.clone()));
        is_of_shard
    };
    store.object_walk((ShardId(3), &from), each).unwrap();
    walked.sort();
    assert_eq!(walked, [Name::from("a"), Name::from("b")]);
}
