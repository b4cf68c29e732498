//! What is read from memory, and that it is never something else than what is stored.

use super::settle;
use crate::testing::{SimDisk, data_blocks};
use crate::{BLOCK, Disk, Options, Store};
use bytes::Bytes;
use nacre_base::PoolId;
use nacre_machine::ReadError;
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_proto::types::ObjectId;

fn fresh(memory: usize) -> (SimDisk, Store) {
    let disk = SimDisk::new(64 << 20, 1);
    Store::format(&disk, Options { uuid: [7; 16], ..Options::default() }).unwrap();
    let (mut store, _) = Store::open(&disk).unwrap();
    store.limit_memory(memory);
    (disk, store)
}

fn write(store: &mut Store, offset: u64, data: &[u8]) {
    write_for(store, offset, data, false);
}
fn write_for(store: &mut Store, offset: u64, data: &[u8], is_read_here: bool) {
    let mut txn = Transaction { is_read_here, ..Transaction::new() };
    txn.push(StoredId::meta("a"), Change::Write { offset, data: Bytes::copy_from_slice(data) });
    store.submit(txn).unwrap();
}

/// Whether it came from memory, and the bytes.
fn read(store: &mut Store, disk: &SimDisk, offset: u64, len: u64) -> Result<(bool, Bytes), ReadError> {
    let plan = store.plan_read(&StoredId::meta("a"), &[(offset, len)]).unwrap();
    let (mut read, fetched) = plan.run_fetching(|reads| disk.read_many(reads))?;
    let is_from_memory = !plan.needs_device();
    drop(plan);
    store.keep(fetched);
    Ok((is_from_memory, read.remove(0)))
}

/// Brings everything to its place.
fn place(store: &mut Store, disk: &SimDisk) {
    store.request_checkpoint();
    settle(store, disk);
}

#[test]
fn deferred_write_is_read_from_memory_until_placed_and_after_its_first_read() {
    let (disk, mut store) = fresh(4 << 20);
    write(&mut store, 0, &[1; 8000]);
    let old = |from_memory| Ok((from_memory, Bytes::from_static(&[1; 5000])));
    assert_eq!(read(&mut store, &disk, 100, 5000), old(true));
    place(&mut store, &disk);
    // It was not announced as read soon.
    assert_eq!(store.memory().cache, 0);
    assert_eq!(read(&mut store, &disk, 100, 5000), old(false));
    assert_eq!(read(&mut store, &disk, 100, 5000), old(true));
    // A part of a block, whose rest is in memory as well.
    write(&mut store, 10, b"new");
    let expected = |from: usize| {
        let mut bytes = vec![1; 4096];
        bytes[10..13].copy_from_slice(b"new");
        Bytes::from(bytes).slice(from..)
    };
    assert_eq!(read(&mut store, &disk, 0, 4096), Ok((true, expected(0))));
    place(&mut store, &disk);
    assert_eq!(read(&mut store, &disk, 9, 4087), Ok((false, expected(9))));
}

#[test]
fn data_with_read_hint_stays_cached_when_placed() {
    let (disk, mut store) = fresh(4 << 20);
    write_for(&mut store, 0, &[1; 8000], true);
    place(&mut store, &disk);
    assert_eq!(read(&mut store, &disk, 100, 5000), Ok((true, Bytes::from_static(&[1; 5000]))));
    // Large data passes by, whichever client asks for it.
    write_for(&mut store, 0, &[2; 1 << 20], true);
    place(&mut store, &disk);
    assert!(!read(&mut store, &disk, 0, 4096).unwrap().0);
    // What was overwritten in part meanwhile, and what was damaged and is known in part only.
    write_for(&mut store, 4096, &[3; 10], true);
    place(&mut store, &disk);
    let (from_memory, bytes) = read(&mut store, &disk, 4096, 20).unwrap();
    assert!(from_memory && bytes[..] == [[3; 10], [2; 10]].concat());
    let first = u64::from(store.geometry.data_start);
    (first..first + 300).for_each(|block| disk.corrupt(block * BLOCK as u64 + 9));
    write_for(&mut store, 5 * 4096, &[4; 2], true);
    place(&mut store, &disk);
    assert!(read(&mut store, &disk, 5 * 4096, 20).is_err());
}

/// A scrub must not read the block's old content from the cache.
#[test]
fn a_read_of_the_device_itself_sees_what_memory_hides() {
    let (disk, mut store) = fresh(4 << 20);
    let object = ObjectId::head(PoolId(1), "".into(), "".into(), "a".into());
    let id = StoredId::from(object);
    let mut txn = Transaction::new();
    txn.push(id.clone(), Change::Write { offset: 0, data: Bytes::from_static(&[1; 8192]) });
    store.submit(txn).unwrap();
    place(&mut store, &disk);
    let plan = store.plan_read(&id, &[(0, 8192)]).unwrap();
    let (_, fetched) = plan.run_fetching(|reads| disk.read_many(reads)).unwrap();
    store.keep(fetched);
    let blocks = data_blocks(&store);
    assert_eq!(blocks.len(), 2);
    blocks.iter().for_each(|at| disk.corrupt(at.offset));
    assert!(!store.plan_read(&id, &[(0, 8192)]).unwrap().needs_device());
    let plan = store.plan_device_read(&id, &[(0, 8192)]).unwrap();
    assert!(matches!(plan.run(&disk), Err(ReadError::Checksum { .. })));
}

#[test]
fn a_small_read_is_kept_and_a_large_one_passes_by() {
    let (disk, mut store) = fresh(4 << 20);
    write(&mut store, 0, &[1; 1 << 20]);
    place(&mut store, &disk);
    let mut is_kept = |len| {
        let before = read(&mut store, &disk, 0, len).unwrap().0;
        (before, read(&mut store, &disk, 0, len).unwrap().0)
    };
    assert_eq!(is_kept(1 << 20), (false, false));
    assert_eq!(is_kept(4096), (false, true));
    assert_eq!(is_kept(1 << 20), (false, false));
}

#[test]
fn cached_data_survives_corruption_and_repairs_a_partly_overwritten_block() {
    for memory in [0, 4 << 20] {
        let (disk, mut store) = fresh(memory);
        write(&mut store, 0, &[1; BLOCK]);
        place(&mut store, &disk);
        assert!(read(&mut store, &disk, 0, 4096).is_ok());
        for block in store.geometry.data_start..store.geometry.data_start + 4 {
            disk.corrupt(u64::from(block) * BLOCK as u64 + 5);
        }
        assert_eq!(read(&mut store, &disk, 0, 4096).is_ok(), memory > 0);
        write(&mut store, 0, &[2]);
        place(&mut store, &disk);
        assert_eq!(read(&mut store, &disk, 1, 1).is_ok(), memory > 0);
    }
}

#[test]
fn a_block_that_is_used_again_is_not_taken_for_what_it_was() {
    let (disk, mut store) = fresh(4 << 20);
    for turn in 1..200_u8 {
        // Fills the device over and over, so that every block is used again.
        write(&mut store, 0, &vec![turn; 2 << 20]);
        for at in 0..5 {
            write_for(&mut store, at * 10_000, &[!turn; 5000], turn % 2 == 0);
        }
        if turn % 3 == 0 {
            place(&mut store, &disk);
        }
        settle(&mut store, &disk);
        for at in 0..5 {
            let (_, bytes) = read(&mut store, &disk, at * 10_000, 10_000).unwrap();
            assert!(bytes[..5000] == [!turn; 5000] && bytes[5000..] == [turn; 5000]);
        }
    }
}
