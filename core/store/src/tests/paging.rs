//! Objects that are not in memory: found again, few bytes each, and an error where a page of them is damaged.

use super::export::import;
use super::settle;
use crate::format::{CHUNK_HEADER, ChunkHeader, RunRef, SUPERBLOCKS, Superblock, VERSION_OLD};
use crate::index::Slot;
use crate::space::Extent;
use crate::testing::SimDisk;
use crate::{BLOCK, Disk, Options, Store, export};
use bytes::Bytes;
use nacre_base::{Name, PoolId};
use nacre_machine::{ReadError, StoreView};
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_proto::types::ObjectId;
use nacre_wire::{Encode, to_vec};
use std::sync::Arc;

/// An empty store, opened as a daemon does, with little memory.
pub fn fresh() -> (Arc<SimDisk>, Store) {
    let disk = Arc::new(SimDisk::new(64 << 20, 1));
    Store::format(&*disk, Options { uuid: [7; 16], ..Options::default() }).unwrap();
    let (mut store, _) = Store::open_paged(disk.clone()).unwrap();
    store.limit_memory(1 << 20);
    (disk, store)
}
fn object(n: u32) -> StoredId {
    let name = Name::from(format!("object{n:06}"));
    ObjectId::head(PoolId(1), Name::default(), Name::default(), name).into()
}
fn submit(store: &mut Store, id: &StoredId, changes: impl IntoIterator<Item = Change>) {
    let mut txn = Transaction::new();
    changes.into_iter().for_each(|change| txn.push(id.clone(), change));
    store.submit(txn).unwrap();
}
fn attr(value: &[u8]) -> Change {
    Change::SetAttrs([(Name::from("_"), Bytes::copy_from_slice(value))].into())
}
fn checkpoint(store: &mut Store, disk: &SimDisk) {
    store.request_checkpoint();
    store.settle(disk).unwrap();
    let_go(store);
    settle(store, disk);
}
/// What may leave does so a little at a time, as it does where there is no memory left.
pub fn let_go(store: &mut Store) {
    let most = std::mem::take(&mut store.memory_limit);
    (0..100).for_each(|_| store.put_away());
    store.memory_limit = most;
}
fn listed(store: &Store) -> Vec<StoredId> {
    store.ids().map(Result::unwrap).collect()
}

#[test]
fn listing_is_ordered_during_a_checkpoint() {
    let (disk, mut store) = fresh();
    store.limit_memory(64 << 20);
    (0..2500).for_each(|n| submit(&mut store, &object(n), [attr(b"old")]));
    checkpoint(&mut store, &disk);
    // So many that they are more than one run in order.
    (2000..9000).for_each(|n| submit(&mut store, &object(n), [attr(b"new")]));
    store.settle(&*disk).unwrap();
    store.request_checkpoint();
    store.begin_checkpoint();
    assert!(store.checkpoint.is_some());
    (0..9000).step_by(3).for_each(|n| submit(&mut store, &object(n), [Change::Remove]));
    (9000..12_000).for_each(|n| submit(&mut store, &object(n), [attr(b"later")]));
    let mut there: Vec<_> = (0..12_000).filter(|n| *n >= 9000 || n % 3 != 0).map(object).collect();
    there.sort();
    assert_eq!(listed(&store), there, "while it is under way");
    store.settle(&*disk).unwrap();
    assert!(store.checkpoint.is_none());
    assert_eq!(listed(&store), there, "after it");
    assert_eq!(listed(&Store::open_paged(disk.clone()).unwrap().0), there, "opened again");
}

#[test]
fn objects_stay_in_memory_as_long_as_they_take_little_of_it() {
    let (disk, mut store) = fresh();
    store.limit_memory(64 << 20);
    for round in 0..40_u32 {
        for n in 0..300 {
            submit(&mut store, &object(n), [attr(&round.to_le_bytes())]);
            // With each batch some are examined.
            if n % 30 == 0 {
                store.settle(&*disk).unwrap();
            }
        }
        store.request_checkpoint();
        store.settle(&*disk).unwrap();
        assert_eq!(store.index.len(), 300);
        assert!(store.leaving.len() < 1000, "{}", store.leaving.len());
    }
    store.limit_memory(256 << 10);
    (0..100).for_each(|_| store.put_away());
    let left = store.index.len();
    assert!((1..300).contains(&left) && !store.is_crowded(), "{left}");
    assert_eq!(listed(&store).len(), 300);
}

#[test]
fn unchanged_records_are_found_outside_memory() {
    let (disk, mut store) = fresh();
    for n in 0..3000 {
        submit(&mut store, &object(n), [attr(&n.to_le_bytes()), Change::Truncate { size: n.into() }]);
    }
    checkpoint(&mut store, &disk);
    assert_eq!(store.index.len(), 0);
    submit(&mut store, &object(7), [Change::Remove]);
    submit(&mut store, &object(8), [attr(b"new")]);
    let mut expected: Vec<StoredId> = (0..3000).filter(|n| *n != 7).map(object).collect();
    expected.sort();
    for round in 0..3 {
        assert_eq!(listed(&store), expected);
        assert_eq!(store.stat(&object(7)), Ok(None));
        assert_eq!(store.attr(&object(8), b"_"), Ok(Some(Bytes::from_static(b"new"))));
        assert_eq!(store.attr(&object(9), b"_"), Ok(Some(Bytes::copy_from_slice(&9_u32.to_le_bytes()))));
        assert_eq!(store.stat(&object(2999)).unwrap().unwrap().size, 2999);
        assert_eq!(store.stat(&object(3000)), Ok(None));
        match round {
            0 => checkpoint(&mut store, &disk),
            _ => store = Store::open_paged(disk.clone()).unwrap().0,
        }
        assert_eq!(store.index.len(), 0);
    }
}

#[test]
fn looking_at_everything_takes_no_more_memory_than_it_may() {
    let (disk, mut store) = fresh();
    let value = [1; 2000];
    for n in 0..4000 {
        submit(&mut store, &object(n), [attr(&value)]);
        store.settle(&*disk).unwrap();
    }
    assert!(store.checkpoints_written() > 5, "what changed was let go of");
    for n in 0..4000 {
        assert!(store.attr(&object(n), b"_").unwrap().is_some_and(|found| found == value[..]));
        assert!(store.memory().index < 1 << 20, "{:?}", store.memory());
    }
}

/// They were kept as decoded objects once more, each with an id of its own, which was mostly not asked for.
#[test]
fn evicted_record_returns_to_memory_only_on_access() {
    let (disk, mut store) = fresh();
    for n in 0..1000 {
        submit(&mut store, &object(n), [attr(&n.to_le_bytes())]);
    }
    store.request_checkpoint();
    store.settle(&*disk).unwrap();
    let before = store.memory().index;
    let_go(&mut store);
    assert_eq!((store.index.len(), store.pager.as_ref().unwrap().bytes()), (0, 0));
    let freed = before - store.memory().index;
    assert!(freed > 1000 * 276, "{freed} of {before} bytes");
    assert_eq!(store.attr(&object(7), b"_"), Ok(Some(Bytes::copy_from_slice(&7_u32.to_le_bytes()))));
    assert!(store.pager.as_ref().unwrap().bytes() > 0);
}

#[test]
fn sorted_runs_of_similar_size_are_compacted_and_removed_objects_leave_nothing() {
    let (disk, mut store) = fresh();
    let mut most = 0;
    for round in 0..60 {
        for n in 0..200 {
            submit(&mut store, &object(round * 50 + n), [attr(&[round as u8; 100])]);
        }
        checkpoint(&mut store, &disk);
        most = most.max(store.sorted_runs());
    }
    assert!((3..16).contains(&most), "{most} sorted runs");
    for n in 0..4000 {
        submit(&mut store, &object(n), [Change::Remove]);
    }
    (0..8).for_each(|n| {
        submit(&mut store, &object(n), [Change::Touch]);
        checkpoint(&mut store, &disk);
    });
    assert_eq!(listed(&store).len(), 8);
    let (again, report) = Store::open_paged(disk).unwrap();
    assert_eq!((report.objects, again.statfs()), (8, store.statfs()));
}

/// The slices of one whose log is short are shorter than a page. One that was full before any page was waited
/// forever.
#[test]
fn a_checkpoint_ends_although_the_log_is_as_short_as_a_few_pages() {
    let disk = Arc::new(SimDisk::new(64 << 20, 1));
    let options = Options { uuid: [7; 16], log_len: Some(256 << 10), ..Options::default() };
    Store::format(&*disk, options).unwrap();
    let (mut store, _) = Store::open_paged(disk.clone()).unwrap();
    let mut txn = Transaction::new();
    (0..300).for_each(|n| txn.push(object(n), attr(b"short")));
    store.submit(txn).unwrap();
    store.settle(&*disk).unwrap();
    assert_eq!(store.checkpoints_written(), 0);
    store.request_checkpoint();
    store.settle(&*disk).unwrap();
    assert_eq!(store.checkpoints_written(), 1);
}

/// Damages the page that has this object.
fn corrupt_page(store: &Store, disk: &SimDisk, id: &StoredId) {
    corrupt_page_of(&store.runs[0], disk, id);
}
fn corrupt_page_of(run: &crate::runs::SortedRun, disk: &SimDisk, id: &StoredId) {
    let (page, _) = run.fences.page(run.fences.find(id));
    let mut at = page.start;
    let extent = run.extents.iter().find(|extent| {
        let is_here = at < extent.len;
        at -= if is_here { 0 } else { extent.len };
        is_here
    });
    disk.corrupt(u64::from(extent.unwrap().start + at) * BLOCK as u64 + 50);
}

#[test]
fn corrupt_page_fails_its_objects_until_rewritten() {
    let (disk, mut store) = fresh();
    for n in 0..1000 {
        submit(
            &mut store,
            &object(n),
            [attr(&[1; 100]), Change::Write { offset: 0, data: vec![2; 50].into() }],
        );
    }
    checkpoint(&mut store, &disk);
    let mut ids: Vec<StoredId> = (0..1000).map(object).collect();
    ids.sort();
    let (bad, other) = (ids[500].clone(), ids[0].clone());
    corrupt_page(&store, &disk, &bad);
    let (mut store, report) = Store::open_paged(disk.clone()).unwrap();
    store.limit_memory(1 << 20);
    assert_eq!(report.objects, 1000);
    let is_bad = |store: &Store, id: &StoredId| matches!(store.stat(id), Err(ReadError::Unreadable { .. }));
    assert!(is_bad(&store, &bad) && !is_bad(&store, &other));
    assert!(store.plan_read(&bad, &[(0, 9)]).is_err());
    assert!(store.ids().any(|id| id.is_err()));
    // Changing it makes nothing of it readable, also not later; a copy of it is as bad.
    let (data, copy) = (Bytes::from_static(b"new"), StoredId::meta("copy"));
    submit(&mut store, &bad, [Change::Write { offset: 0, data }, Change::Truncate { size: 1 }]);
    submit(&mut store, &copy, [Change::CloneFrom(bad.clone())]);
    for _ in 0..2 {
        assert!(is_bad(&store, &bad) && is_bad(&store, &copy));
        store.request_checkpoint();
        store.settle(&*disk).unwrap();
        (store, _) = Store::open_paged(disk.clone()).unwrap();
    }
    // Removed and written again, or a copy of something else, it is good.
    submit(&mut store, &bad, [Change::Remove, attr(b"good")]);
    submit(&mut store, &copy, [Change::CloneFrom(other.clone())]);
    let next = ids[501].clone();
    submit(&mut store, &next, [Change::CloneFrom(other.clone())]);
    for n in 0..20 {
        submit(&mut store, &StoredId::Meta(format!("{n}").into()), [attr(b"more")]);
        store.request_checkpoint();
        store.settle(&*disk).unwrap();
    }
    let (store, _) = Store::open_paged(disk).unwrap();
    assert_eq!(store.attr(&bad, b"_"), Ok(Some(Bytes::from_static(b"good"))));
    assert_eq!(store.attrs(&copy), store.attrs(&other));
    assert_eq!(store.attrs(&next), store.attrs(&other));
    assert!(store.sorted_runs() < 20, "{} sorted runs", store.sorted_runs());
}

/// One bad page hid all objects behind it, also from an export.
#[test]
fn export_skips_corrupt_pages_and_does_not_call_them_deleted() {
    let (disk, mut store) = fresh();
    let mut ids: Vec<StoredId> = (0..1000).map(object).collect();
    ids.sort();
    ids.iter().for_each(|id| submit(&mut store, id, [attr(&[1; 100])]));
    checkpoint(&mut store, &disk);
    // Of the older page the second half was changed; so was the newer page, and objects of it are gone.
    ids[500..700].iter().for_each(|id| submit(&mut store, id, [attr(&[2; 100])]));
    ids[700..720].iter().for_each(|id| submit(&mut store, id, [Change::Remove]));
    checkpoint(&mut store, &disk);
    assert_eq!(store.sorted_runs(), 2);
    corrupt_page_of(&store.runs[0], &disk, &ids[499]);
    corrupt_page_of(&store.runs[1], &disk, &ids[710]);

    let (store, _) = Store::open_paged(disk.clone()).unwrap();
    assert_eq!(store.ids().filter(Result::is_err).count(), 2);
    let mut stream = Vec::new();
    let sink = |bytes: &[u8]| {
        stream.extend_from_slice(bytes);
        Ok::<_, std::convert::Infallible>(())
    };
    let Ok((_, damage)) = export(&store, &*disk, |_| true, sink);
    let (other_disk, mut other) = fresh();
    import(&stream, &other_disk, &mut other).unwrap();
    assert_eq!(other.lost().times, 1, "its daemon compares what it has with others");
    let (mut right, mut absent, mut unknown) = (0, Vec::new(), Vec::new());
    for (n, id) in ids.iter().enumerate() {
        let expected = if (500..700).contains(&n) { [2; 100] } else { [1; 100] };
        match other.attr(id, b"_") {
            Ok(Some(value)) => {
                assert!(value[..] == expected && !(700..720).contains(&n), "{n}");
                right += 1;
            }
            Ok(None) => absent.push(n),
            Err(_) => unknown.push(n),
        }
    }
    // What only the corrupt page of the older sorted run knew is absent, of the newer one unknown, removed or
    // not.
    assert!(right > 850 && absent.contains(&499) && !absent.contains(&500), "{right} {absent:?}");
    assert!(absent.iter().all(|n| *n < 500 || (700..720).contains(n)), "{absent:?}");
    assert!(unknown.contains(&710) && unknown.iter().all(|n| *n >= 500), "{unknown:?}");
    assert_eq!(damage.len(), 2 + unknown.len());
}

/// What was planned while a page could not be read was done to what the page has, when the log was replayed
/// and it could be read again: an object got shorter than its data, and the store did not open any more.
#[test]
fn record_unreadable_during_a_change_stays_lost() {
    let (disk, mut store) = fresh();
    for n in 0..1000 {
        let data = vec![2; 3 * BLOCK].into();
        submit(&mut store, &object(n), [attr(&[1; 100]), Change::Write { offset: 0, data }]);
    }
    checkpoint(&mut store, &disk);
    let mut ids: Vec<StoredId> = (0..1000).map(object).collect();
    ids.sort();
    let bad = [&ids[500], &ids[501]];
    corrupt_page(&store, &disk, bad[0]);
    let (mut store, _) = Store::open_paged(disk.clone()).unwrap();
    let (data, copy) = (Bytes::from_static(b"new"), StoredId::meta("copy"));
    submit(&mut store, bad[0], [Change::Write { offset: 9, data }, attr(b"new")]);
    submit(&mut store, &copy, [Change::CloneFrom(bad[1].clone()), Change::Truncate { size: 1 }]);
    let done = store.take_batch().unwrap().commit(&*disk).unwrap();
    store.finished(done);
    // It is as it was.
    corrupt_page(&store, &disk, bad[0]);
    for store in [Store::open(&*disk).unwrap().0, Store::open_paged(disk.clone()).unwrap().0] {
        for lost in [bad[0], &copy] {
            assert!(matches!(store.stat(lost), Err(ReadError::Unreadable { .. })));
        }
        assert!(store.stat(bad[1]).unwrap().is_some());
    }
}

#[test]
fn previous_format_is_opened_and_upgraded_by_a_checkpoint() {
    let (disk, mut store) = fresh();
    for n in 0..300 {
        submit(
            &mut store,
            &object(n),
            [attr(&[1; 300]), Change::Write { offset: 5, data: vec![2; 5000].into() }],
        );
        if n % 3 == 0 {
            submit(&mut store, &object(1000 + n), [Change::CloneFrom(object(n))]);
        }
    }
    checkpoint(&mut store, &disk);
    let (mut store, _) = Store::open(&*disk).unwrap();
    let pools = store.pools();
    let superblock = write_as_before(&mut store, &disk);
    let expected = listed(&store);
    for paged in [false, true] {
        for copy in SUPERBLOCKS {
            disk.write_at(copy * BLOCK as u64, &superblock.encode()).unwrap();
        }
        let open = || if paged { Store::open_paged(disk.clone()) } else { Store::open(&*disk) };
        let (mut store, _) = open().unwrap();
        assert_eq!(store.check(), [""; 0]);
        assert_eq!((listed(&store), store.pools()), (expected.clone(), pools.clone()));
        settle(&mut store, &disk);
        let (store, _) = open().unwrap();
        assert_eq!(store.check(), [""; 0]);
        assert_eq!(listed(&store), expected);
        let mut block = vec![0; BLOCK];
        disk.read_at(0, &mut block).unwrap();
        assert_ne!(Superblock::decode(&block).unwrap().version, VERSION_OLD);
        let read = store.plan_read(&object(3), &[(0, 9)]).unwrap().run(&*disk).unwrap();
        assert_eq!(read, [&[0, 0, 0, 0, 0, 2, 2, 2, 2][..]]);
    }
}

/// A checkpoint as version 5 had it: entries one after another, cut into chunks. Twice as many blocks apart
/// as the store uses.
fn write_as_before(store: &mut Store, disk: &SimDisk) -> Superblock {
    let mut payload = Vec::new();
    for (id, slot) in store.index.slots() {
        let Slot::Object(object) = slot else { continue };
        payload.push(1);
        id.encode(&mut payload);
        object.encode(object.blocks.blocks().map(|block| store.blocks.table[block].crc), &mut payload);
    }
    payload.push(0);
    payload.extend(to_vec(&StoredId::meta("removed")));
    let geometry = store.geometry;
    let (mut prev, mut chunks) = (Extent { start: 0, len: 0 }, 0);
    for part in payload.chunks(10 * BLOCK - CHUNK_HEADER) {
        let extent = Extent { start: geometry.blocks / 2 + 20 * chunks, len: 10 };
        let header = ChunkHeader {
            uuid: geometry.uuid,
            generation: 9,
            number: chunks,
            prev,
            payload_len: part.len() as u32,
        };
        disk.write_at(u64::from(extent.start) * BLOCK as u64, &header.encode(part, extent)).unwrap();
        (prev, chunks) = (extent, chunks + 1);
    }
    let run = RunRef { generation: 9, last_chunk: prev, chunks, payload_len: payload.len() as u64 };
    let mut block = vec![0; BLOCK];
    disk.read_at(0, &mut block).unwrap();
    let now = Superblock::decode(&block).unwrap();
    Superblock { version: VERSION_OLD, runs: vec![run], ..now }
}

/// Where space is short a checkpoint is one merge of everything. It had begun while blocks were on their way
/// to their place, and said of them that their checksum was zero.
#[test]
fn a_checkpoint_of_everything_waits_for_what_is_on_its_way() {
    let disk = Arc::new(SimDisk::new(2 << 20, 1));
    Store::format(&*disk, Options { uuid: [7; 16], log_len: Some(256 << 10), ..Options::default() }).unwrap();
    let (mut store, _) = Store::open_paged(disk.clone()).unwrap();
    let fill = |store: &mut Store, n: u32| {
        let mut txn = Transaction::new();
        txn.push(object(n), Change::Write { offset: 0, data: vec![1; 20_000].into() });
        txn.push(object(n), attr(&[3; 2000]));
        store.submit(txn)
    };
    let mut count = 0;
    while fill(&mut store, count).is_ok() {
        count += 1;
        checkpoint(&mut store, &disk);
    }
    submit(&mut store, &object(0), [Change::Remove]);
    checkpoint(&mut store, &disk);
    submit(&mut store, &object(2), [Change::Write { offset: 0, data: vec![2; 4096].into() }]);
    let done = store.take_batch().unwrap().commit(&*disk).unwrap();
    store.finished(done);
    checkpoint(&mut store, &disk);
    assert_eq!(store.sorted_runs(), 1, "there was space enough");
    let read = store.plan_read(&object(2), &[(0, 4097)]).unwrap().run(&*disk).unwrap();
    assert!(read[0][..4096] == [2; 4096] && read[0][4096] == 1);
}
