//! A store that is exported and imported is the same, and what is damaged is as damaged.

use super::settle;
use crate::format::COUNTER_MAX;
use crate::testing::SimDisk;
use crate::{BLOCK, Damage, Disk, EXPORT_HEADER, Import, ImportError, Options, RECORD_HEADER, Store, export};
use bytes::Bytes;
use nacre_base::{Name, PgId, PoolId, ShardId, SpgId};
use nacre_machine::{ReadError, SalvagedExtents, StoreView};
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_proto::types::ObjectId;
use std::collections::BTreeMap;

fn fresh(seed: u64) -> (SimDisk, Store) {
    let disk = SimDisk::new(16 << 20, seed);
    Store::format(&disk, Options { uuid: [seed as u8; 16], ..Options::default() }).unwrap();
    let (store, _) = Store::open(&disk).unwrap();
    (disk, store)
}

fn filled() -> (SimDisk, Store) {
    let (disk, mut store) = fresh(1);
    let mut txn = Transaction::new();
    let id = StoredId::meta;
    let pair = |key: String, len: usize| (Name::from(key.as_str()), Bytes::from(vec![7; len]));
    txn.push(id("empty"), Change::Touch);
    txn.push(id("data"), Change::Write { offset: 9000, data: Bytes::from(vec![1; 3 << 20]) });
    txn.push(id("data"), Change::Zero { offset: 1 << 20, len: 1 << 20 });
    txn.push(id("data"), Change::Truncate { size: 5 << 20 });
    txn.push(id("data"), Change::SetAttrs([pair("attr".into(), 60)].into()));
    txn.push(id("clone"), Change::CloneFrom(id("data")));
    let pairs: BTreeMap<_, _> = (0..300).map(|n| pair(format!("key{n}"), 10_000)).collect();
    txn.push(id("omap"), Change::OmapSet(pairs));
    txn.push(id("omap"), Change::OmapSetHeader(Bytes::from_static(b"header")));
    store.submit(txn).unwrap();
    settle(&mut store, &disk);
    (disk, store)
}

fn exported(store: &Store, disk: &SimDisk) -> (Vec<u8>, Damage) {
    let mut stream = Vec::new();
    let sink = |bytes: &[u8]| {
        stream.extend_from_slice(bytes);
        Ok::<_, std::convert::Infallible>(())
    };
    let (_, damage) = export(store, disk, |_| true, sink).unwrap();
    (stream, damage)
}

pub fn import(stream: &[u8], disk: &SimDisk, store: &mut Store) -> Result<u64, ImportError> {
    let (header, mut rest) = stream.split_first_chunk::<EXPORT_HEADER>().ok_or(ImportError::NotAnExport)?;
    let mut import = Import::begin(header)?;
    while let Some((header, after)) = rest.split_first_chunk::<RECORD_HEADER>() {
        let len = import.record_len(header)? as usize;
        let Some(payload) = after.get(..len) else { break };
        import.record(header, payload, store, disk)?;
        store.settle(disk).unwrap();
        rest = &after[len..];
    }
    import.finish(store, disk)
}

/// Size, extents, bytes of attributes and omap; content.
type Shown = (u64, Vec<(u64, u64)>, usize, Vec<u8>);

/// All that a store shows of itself.
fn shown(store: &Store, disk: &SimDisk) -> BTreeMap<String, Shown> {
    let show = |id: &StoredId| {
        let size = store.stat(id).unwrap().unwrap().size;
        let data = store.plan_read(id, &[(0, size)]).unwrap().run(disk).unwrap().concat();
        let mut meta = format!("{:?}{:?}", store.attrs(id), store.omap_header(id)).into_bytes();
        store
            .omap_walk(id, b"", &mut |key, value| {
                meta.extend_from_slice(key.as_bytes());
                meta.extend_from_slice(value);
                true
            })
            .unwrap();
        (id.to_string(), (size, store.extents(id, 0, u64::MAX).unwrap(), meta.len(), [data, meta].concat()))
    };
    store.ids().map(|id| show(&id.unwrap())).collect()
}

#[test]
fn exported_store_is_imported_completely() {
    let (disk, store) = filled();
    let (stream, damage) = exported(&store, &disk);
    assert!(damage.is_empty());
    let (other_disk, mut other) = fresh(2);
    assert_eq!(import(&stream, &other_disk, &mut other), Ok(4));
    assert_eq!(shown(&other, &other_disk), shown(&store, &disk));
    assert_eq!(other.check(), [""; 0]);
    let all = store.read_all(&disk, |_| {});
    let extents = shown(&store, &disk).into_values().flat_map(|(_, extents, ..)| extents);
    assert_eq!((all.lost, all.errors.len(), all.bytes), (0, 0, extents.map(|(_, len)| len).sum()));
}

/// The `nth` block of the device that holds nothing but this byte.
fn block_of(disk: &SimDisk, byte: u8, nth: usize) -> u64 {
    let mut block = vec![0; BLOCK];
    let is_it = |at: &u64| {
        disk.read_at(at * BLOCK as u64, &mut block).unwrap();
        block == [byte; BLOCK]
    };
    (0..disk.len() / BLOCK as u64).filter(is_it).nth(nth).unwrap()
}

/// Each block of all objects: its bytes, or what is known of it.
fn blocks(store: &Store, disk: &SimDisk) -> BTreeMap<(String, u64), Result<Vec<u8>, SalvagedExtents>> {
    let all = store.ids().flat_map(|id| {
        let id = id.unwrap();
        let size = store.stat(&id).unwrap().unwrap().size;
        let read = |at: u64| match store.plan_read(&id, &[(at, BLOCK as u64)]).unwrap().run(disk) {
            Ok(data) => Ok(data.concat()),
            Err(ReadError::Checksum { salvaged, .. } | ReadError::Unreadable { salvaged, .. }) => {
                Err(salvaged)
            }
            Err(e) => panic!("{e}"),
        };
        let found: Vec<_> = (0..size).step_by(BLOCK).map(|at| ((id.to_string(), at), read(at))).collect();
        found
    });
    all.collect()
}

/// Once an import left them out: a primary that had been rescued so said of them that they do not exist.
#[test]
fn damaged_blocks_are_named_and_as_damaged_after_an_import() {
    let (disk, mut store) = filled();
    disk.corrupt(block_of(&disk, 1, 5) * BLOCK as u64 + 1);
    // Both share the block.
    let all = store.read_all(&disk, |_| {});
    let named: Vec<String> = all.errors.iter().map(|(id, _)| id.to_string()).collect();
    assert_eq!((all.lost, named), (2 * BLOCK as u64, vec!["meta clone".to_string(), "meta data".into()]));
    // One of them got new bytes over a part of it; another block, at the end, is bad as well.
    let before = blocks(&store, &disk);
    let bad = before.iter().find_map(|(at, held)| held.is_err().then_some(at.1)).unwrap();
    let mut txn = Transaction::new();
    let data = Bytes::from_static(b"known");
    txn.push(StoredId::meta("data"), Change::Write { offset: bad + 7, data: data.clone() });
    txn.push(
        StoredId::meta("short"),
        Change::Write { offset: 0, data: Bytes::from(vec![9; 2 * BLOCK - 100]) },
    );
    store.submit(txn).unwrap();
    store.request_checkpoint();
    settle(&mut store, &disk);
    let last = store.plan_read(&StoredId::meta("short"), &[(BLOCK as u64, 8)]).unwrap().spans();
    disk.corrupt(last[0].0 + 50);

    let before = blocks(&store, &disk);
    let known = |held: &Result<_, SalvagedExtents>| held.as_ref().err().map(|known| known.0.clone());
    let found: Vec<_> = before.values().filter_map(known).collect();
    assert_eq!(found, [vec![], vec![(bad + 7, data)], vec![]]);
    let (stream, damage) = exported(&store, &disk);
    assert_eq!(damage.len(), 3);
    let (other_disk, mut other) = fresh(2);
    assert_eq!(import(&stream, &other_disk, &mut other), Ok(5));
    assert!(blocks(&other, &other_disk) == before);
    // Also when it is opened next, and exported once more.
    drop(other);
    let (other, _) = Store::open(&other_disk).unwrap();
    assert!(blocks(&other, &other_disk) == before);
    let (again, damage) = exported(&other, &other_disk);
    assert_eq!((damage.len(), again[EXPORT_HEADER..] == stream[EXPORT_HEADER..]), (3, true));
}

#[test]
fn unreadable_data_stays_unreadable_after_an_import() {
    let (disk, mut store) = filled();
    store.lose(&StoredId::meta("omap"));
    store.losses = 3;
    store.settle(&disk).unwrap();
    let (stream, damage) = exported(&store, &disk);
    assert_eq!(damage.len(), 1);
    let (other_disk, mut other) = fresh(2);
    assert_eq!(import(&stream, &other_disk, &mut other), Ok(4));
    drop(other);
    let (other, report) = Store::open(&other_disk).unwrap();
    assert!(matches!(other.stat(&StoredId::meta("omap")), Err(ReadError::Unreadable { .. })));
    assert!(matches!(other.stat(&StoredId::meta("data")), Ok(Some(_))));
    // An OSD is to notice what it had not when it was exported.
    assert_eq!((report.losses, other.lost().times), (3, 3));
    assert_eq!(other.ids().count(), 4);
}

#[test]
fn interrupted_import_is_reported_until_an_import_completes() {
    let (disk, store) = filled();
    let (stream, _) = exported(&store, &disk);
    let (other_disk, mut other) = fresh(2);
    assert!(!other.is_half_imported().unwrap());
    let cut = import(&stream[..stream.len() - 20], &other_disk, &mut other);
    assert!(matches!(cut, Err(ImportError::NoEnd { .. })));
    drop(other);
    let (mut other, _) = Store::open(&other_disk).unwrap();
    assert!(other.is_half_imported().unwrap());
    // What is in both is replaced, and not only written over.
    let mut txn = Transaction::new();
    let one = || [(Name::from("more"), Bytes::from_static(b"x"))].into();
    txn.push(StoredId::meta("empty"), Change::SetAttrs(one()));
    txn.push(StoredId::meta("omap"), Change::OmapSet(one()));
    txn.push(StoredId::meta("data"), Change::Write { offset: 100, data: Bytes::from_static(b"in a hole") });
    other.submit(txn).unwrap();
    assert_eq!(import(&stream, &other_disk, &mut other), Ok(4));
    drop(other);
    let (other, _) = Store::open(&other_disk).unwrap();
    assert!(!other.is_half_imported().unwrap());
    assert_eq!(shown(&other, &other_disk), shown(&store, &disk));
}

/// Before version 3 ids had no shards; all else is the same.
#[test]
fn shards_are_exported_and_a_stream_of_version_2_is_imported() {
    let (disk, mut store) = filled();
    let (mut stream, _) = exported(&store, &disk);
    stream[8..12].copy_from_slice(&2_u32.to_le_bytes());
    let (other_disk, mut other) = fresh(2);
    import(&stream, &other_disk, &mut other).unwrap();
    assert_eq!(shown(&other, &other_disk), shown(&store, &disk));

    let object = ObjectId::head(PoolId(1), Name::default(), Name::default(), "a".into());
    let spg = SpgId { pg: PgId { pool: PoolId(1), seed: 0 }, shard: ShardId(0) };
    let mut txn = Transaction::new();
    for (id, byte) in
        [(StoredId::object(ShardId(0), object.clone()), 1), (StoredId::object(ShardId(3), object), 2)]
    {
        txn.push(id, Change::Write { offset: 0, data: Bytes::from(vec![byte; 5000]) });
    }
    txn.push(StoredId::Pg(spg), Change::OmapSetHeader(Bytes::from_static(b"instance")));
    store.submit(txn).unwrap();
    settle(&mut store, &disk);
    let (stream, _) = exported(&store, &disk);
    let (other_disk, mut other) = fresh(3);
    assert_eq!(import(&stream, &other_disk, &mut other), Ok(7));
    assert_eq!(shown(&other, &other_disk), shown(&store, &disk));
}

/// Found by the fuzz target `store-export`: a superblock with such a counter would not open.
#[test]
fn import_refuses_more_losses_than_a_store_counts() {
    let (disk, mut store) = filled();
    store.losses = COUNTER_MAX;
    let (stream, _) = exported(&store, &disk);
    let (other_disk, mut other) = fresh(2);
    import(&stream, &other_disk, &mut other).unwrap();
    store.losses = COUNTER_MAX + 1;
    let (stream, _) = exported(&store, &disk);
    let (other_disk, mut other) = fresh(3);
    assert!(matches!(import(&stream, &other_disk, &mut other), Err(ImportError::Order { .. })));
}

#[test]
fn a_stream_that_was_cut_or_changed_is_refused() {
    let (disk, store) = filled();
    let (stream, _) = exported(&store, &disk);
    let refused = |stream: &[u8]| {
        let (disk, mut store) = fresh(2);
        import(stream, &disk, &mut store).unwrap_err()
    };
    assert_eq!(refused(&stream[..10]), ImportError::NotAnExport);
    assert!(matches!(refused(&stream[..stream.len() - 1]), ImportError::NoEnd { .. }));
    let flipped = |at: usize| {
        let mut stream = stream.clone();
        stream[at] ^= 1;
        stream
    };
    assert_eq!(refused(&flipped(0)), ImportError::NotAnExport);
    let newer = [&stream[..8], &4_u32.to_le_bytes(), &stream[12..]].concat();
    assert!(matches!(refused(&newer), ImportError::Version { found: 4 }));
    assert!(matches!(refused(&flipped(stream.len() / 2)), ImportError::Checksum { .. }));
    let twice = [&stream[..], &stream[EXPORT_HEADER..]].concat();
    assert!(matches!(refused(&twice), ImportError::Order { what: "something after the end", .. }));
}
