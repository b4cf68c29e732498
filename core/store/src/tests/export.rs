//! A store that is exported and imported is the same; what is damaged is named and left out.

use super::settle;
use crate::testing::SimDisk;
use crate::{BLOCK, Damage, Disk, EXPORT_HEADER, Import, ImportError, Options, RECORD_HEADER, Store, export};
use bytes::Bytes;
use nacre_base::Name;
use nacre_machine::StoreView;
use nacre_proto::transaction::{Change, StoredId, Transaction};
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

fn import(stream: &[u8], disk: &SimDisk, store: &mut Store) -> Result<u64, ImportError> {
    let (header, mut rest) = stream.split_first_chunk::<EXPORT_HEADER>().ok_or(ImportError::NotAnExport)?;
    Import::check_header(header)?;
    let mut import = Import::default();
    while let Some((header, after)) = rest.split_first_chunk::<RECORD_HEADER>() {
        let len = import.record_len(header)? as usize;
        let Some(payload) = after.get(..len) else { break };
        store.submit(import.record(header, payload)?).unwrap();
        settle(store, disk);
        rest = &after[len..];
    }
    import.finish()
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
fn what_was_exported_is_imported_whole() {
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

#[test]
fn damaged_things_are_named_and_left_out() {
    let (disk, store) = filled();
    let mut block = vec![0; BLOCK];
    let at = (0..disk.len() / BLOCK as u64)
        .filter(|at| {
            disk.read_at(at * BLOCK as u64, &mut block).unwrap();
            block == [1; BLOCK]
        })
        .nth(5)
        .unwrap();
    disk.rot(at * BLOCK as u64 + 1);
    // Both share the block.
    let all = store.read_all(&disk, |_| {});
    let named: Vec<String> = all.errors.iter().map(|(id, _)| id.to_string()).collect();
    assert_eq!((all.lost, named), (2 * BLOCK as u64, vec!["meta clone".to_string(), "meta data".into()]));
    let (stream, damage) = exported(&store, &disk);
    assert_eq!(damage.len(), 2);
    let (other_disk, mut other) = fresh(2);
    assert_eq!(import(&stream, &other_disk, &mut other), Ok(4));
    assert_eq!(
        other.ids().map(|id| id.unwrap().to_string()).collect::<Vec<_>>(),
        ["meta empty", "meta omap"]
    );
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
    assert!(matches!(refused(&flipped(8)), ImportError::Version { found: 0 }));
    assert!(matches!(refused(&flipped(stream.len() / 2)), ImportError::Checksum { .. }));
    let twice = [&stream[..], &stream[EXPORT_HEADER..]].concat();
    assert!(matches!(refused(&twice), ImportError::Order { what: "something after the end", .. }));
}
