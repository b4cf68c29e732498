//! Devices with corrupt data, with foreign data, or with data that resembles a store.

use super::settle;
use crate::format::{Geometry, RecordHeader, Superblock};
use crate::testing::SimDisk;
use crate::{BLOCK, Disk, FormatError, OpenError, Options, Store};
use bytes::Bytes;
use nacre_base::Rng;
use nacre_machine::ReadError;
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_wire::crc32c;

const BLOCK_LEN: u64 = BLOCK as u64;
const UUID: [u8; 16] = [9; 16];

fn fresh(seed: u64) -> (SimDisk, Store) {
    let disk = SimDisk::new(2 << 20, seed);
    Store::format(&disk, Options { uuid: UUID, log_len: Some(64 * BLOCK_LEN), ..Options::default() })
        .unwrap();
    let (store, _) = Store::open(&disk).unwrap();
    (disk, store)
}

fn write(store: &mut Store, disk: &SimDisk, id: &'static str, offset: u64, data: &[u8]) {
    let mut txn = Transaction::new();
    txn.push(StoredId::meta(id), Change::Write { offset, data: Bytes::copy_from_slice(data) });
    store.submit(txn).unwrap();
    settle(store, disk);
}

fn read_block(disk: &SimDisk, block: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK];
    disk.read_at(block * BLOCK_LEN, &mut bytes).unwrap();
    bytes
}

/// The block of the device that holds this block of data.
fn find(disk: &SimDisk, data: &[u8]) -> u64 {
    (0..disk.len() / BLOCK_LEN).find(|block| read_block(disk, *block) == data).expect("it is somewhere")
}

#[test]
fn corrupt_data_is_an_error_and_stays_one_when_a_part_is_overwritten() {
    let (disk, mut store) = fresh(1);
    let id = StoredId::meta("a");
    let data = [[1; BLOCK], [2; BLOCK], [3; BLOCK]].concat();
    write(&mut store, &disk, "a", 0, &data);
    store.request_checkpoint();
    settle(&mut store, &disk);
    let corrupt = find(&disk, &[2; BLOCK]);
    disk.corrupt(corrupt * BLOCK_LEN + 77);

    let read = |store: &Store, offset, len| store.plan_read(&id, &[(offset, len)]).unwrap().run(&disk);
    let is_refused = |store: &Store| {
        let error = read(store, 0, u64::MAX).unwrap_err();
        assert!(matches!(error, ReadError::Checksum { block: 1, .. }), "{error}");
        assert!(read(store, 5000, 1).is_err(), "a part of a block is verified whole");
        assert_eq!(read(store, 0, 4096).unwrap(), [&data[..BLOCK]]);
        assert_eq!(read(store, 8192, 9999).unwrap(), [&data[2 * BLOCK..]]);
    };
    is_refused(&store);
    let mut txn = Transaction::new();
    // Twice, so that the second one is a patch of the first.
    txn.push(id.clone(), Change::Write { offset: 5000, data: Bytes::from_static(b"new") });
    txn.push(id.clone(), Change::Write { offset: 5002, data: Bytes::from_static(b"er") });
    store.submit(txn).unwrap();
    settle(&mut store, &disk);
    is_refused(&store);
    let (mut store, _) = Store::open(&disk).unwrap();
    is_refused(&store);
    store.request_checkpoint();
    let placed = store.take_deferred().unwrap().run(&disk).unwrap();
    assert_eq!(placed.damaged, 1);
    store.deferred_done(placed);
    is_refused(&store);
    settle(&mut store, &disk);
    let (mut store, _) = Store::open(&disk).unwrap();
    is_refused(&store);
    write(&mut store, &disk, "a", 4096, &[4; BLOCK]);
    assert_eq!(read(&store, 4096, 4096).unwrap(), [vec![4; BLOCK]], "overwritten whole, it is good again");
}

/// A store whose object "a" has three blocks, the second of which is damaged.
fn with_damage(seed: u64, breaks: bool) -> (SimDisk, Store) {
    let (disk, mut store) = fresh(seed);
    write(&mut store, &disk, "a", 0, &[[1; BLOCK], [2; BLOCK], [3; BLOCK]].concat());
    store.request_checkpoint();
    settle(&mut store, &disk);
    let damaged = find(&disk, &[2; BLOCK]) * BLOCK_LEN;
    if breaks {
        disk.break_sector(damaged + 77)
    } else {
        disk.corrupt(damaged + 77)
    }
    (disk, store)
}
/// What is known of the second block of "a", which is not whole.
fn known_of(store: &Store, disk: &SimDisk) -> Vec<(u64, Bytes)> {
    match store.plan_read(&StoredId::meta("a"), &[(0, u64::MAX)]).unwrap().run(disk) {
        Err(
            ReadError::Checksum { block: 1, salvaged, .. } | ReadError::Unreadable { block: 1, salvaged, .. },
        ) => salvaged.0,
        other => panic!("{other:?}"),
    }
}
/// Asks for something in each state in which what was written can be: in memory, in the log of a store that
/// was just opened, in its place, and in a checkpoint of such a store.
fn in_every_state(disk: &SimDisk, store: Store, check: &dyn Fn(&Store)) -> Store {
    check(&store);
    drop(store);
    let (mut store, _) = Store::open(disk).unwrap();
    check(&store);
    store.request_checkpoint();
    let placed = store.take_deferred().unwrap().run(disk).unwrap();
    store.deferred_done(placed);
    check(&store);
    settle(&mut store, disk);
    check(&store);
    drop(store);
    let (store, _) = Store::open(disk).unwrap();
    check(&store);
    store
}

#[test]
fn writes_to_a_corrupt_block_are_readable_afterwards() {
    for breaks in [false, true] {
        let (disk, mut store) = with_damage(1, breaks);
        assert_eq!(known_of(&store, &disk), []);
        write(&mut store, &disk, "a", 5000, b"new");
        write(&mut store, &disk, "a", 5002, b"er");
        let known = [(5000, Bytes::from_static(b"neer"))];
        let check = |store: &Store| assert_eq!(known_of(store, &disk), known);
        let mut store = in_every_state(&disk, store, &check);

        write(&mut store, &disk, "a", 8000, &[8; 1000]);
        write(&mut store, &disk, "a", 4999, b"k");
        let known = [(4999, Bytes::from_static(b"kneer")), (8000, Bytes::from(vec![8; 192]))];
        let check = |store: &Store| assert_eq!(known_of(store, &disk), known);
        let mut store = in_every_state(&disk, store, &check);

        // The rest is overwritten: then all is known.
        let mut txn = Transaction::new();
        for (from, to) in [(4096, 4999), (5004, 8000)] {
            txn.push(StoredId::meta("a"), Change::Zero { offset: from, len: to - from });
        }
        store.submit(txn).unwrap();
        settle(&mut store, &disk);
        let whole = [&[0; 903], &b"kneer"[..], &[0; 2996], &[8; 192]].concat();
        let check = |store: &Store| {
            let read = store.plan_read(&StoredId::meta("a"), &[(4096, BLOCK_LEN)]).unwrap().run(&disk);
            assert!(read.unwrap() == [&whole]);
        };
        in_every_state(&disk, store, &check);
    }
}

#[test]
fn bytes_xored_into_a_corrupt_block_stay_unknown_unless_they_were_written_there() {
    let (disk, mut store) = with_damage(1, false);
    let xor = |store: &mut Store, offset, data: &'static [u8]| {
        let mut txn = Transaction::new();
        txn.push(StoredId::meta("a"), Change::Xor { offset, data: Bytes::from_static(data) });
        store.submit(txn).unwrap();
        settle(store, &disk);
    };
    xor(&mut store, 4096, &[7; 4096]);
    write(&mut store, &disk, "a", 5000, &[1, 2, 3]);
    xor(&mut store, 4990, &[1; 12]);
    let known = [(5000, Bytes::from_static(&[0, 3, 3]))];
    let mut store = in_every_state(&disk, store, &|store| assert_eq!(known_of(store, &disk), known));
    xor(&mut store, 5001, &[3; 10]);
    let known = [(5000, Bytes::from_static(&[0, 0, 0]))];
    in_every_state(&disk, store, &|store| assert_eq!(known_of(store, &disk), known));
}

#[test]
fn corruption_in_salvaged_extents_is_a_read_error() {
    let (disk, mut store) = with_damage(1, false);
    write(&mut store, &disk, "a", 5000, b"new");
    store.request_checkpoint();
    settle(&mut store, &disk);
    let is_list = |block: &u64| read_block(&disk, *block).starts_with(b"KnPt");
    let list = (0..disk.len() / BLOCK_LEN).find(is_list).expect("it is somewhere") * BLOCK_LEN;
    for at in [0, 4, 6, 9, 4000] {
        disk.corrupt(list + at);
        assert_eq!(known_of(&store, &disk), [], "at {at}");
        disk.corrupt(list + at);
    }
    assert_eq!(known_of(&store, &disk), [(5000, Bytes::from_static(b"new"))]);
    // What is written to it then is known all the same.
    disk.corrupt(list + 9);
    write(&mut store, &disk, "a", 6000, b"newer");
    let check = |store: &Store| assert_eq!(known_of(store, &disk), [(6000, Bytes::from_static(b"newer"))]);
    in_every_state(&disk, store, &check);
}

#[test]
fn unreadable_sector_fails_its_block_until_rewritten() {
    let (disk, mut store) = fresh(8);
    let id = StoredId::meta("a");
    let data: Vec<u8> = (0..40 * BLOCK).map(|i| (i / BLOCK) as u8 + 1).collect();
    write(&mut store, &disk, "a", 0, &data);
    let bad = find(&disk, &[14; BLOCK]) * BLOCK_LEN;
    disk.break_sector(bad + 600);
    let read = |offset, len| store.plan_read(&id, &[(offset, len)]).unwrap().run(&disk);
    for (offset, len) in [(0, u64::MAX), (13 * BLOCK_LEN + 1, 1), (11 * BLOCK_LEN, 3 * BLOCK_LEN)] {
        let error = read(offset, len).unwrap_err();
        assert!(matches!(error, ReadError::Unreadable { block: 13, .. }), "{error}");
    }
    assert_eq!(read(0, 13 * BLOCK_LEN).unwrap(), [&data[..13 * BLOCK]]);
    assert_eq!(read(14 * BLOCK_LEN, u64::MAX).unwrap(), [&data[14 * BLOCK..]]);
    disk.write_at(bad, &[14; BLOCK]).unwrap();
    assert_eq!(read(0, u64::MAX).unwrap(), [&data[..]]);
}

#[test]
fn unreadable_sector_fails_only_its_block_of_a_scattered_read() {
    let (disk, mut store) = fresh(8);
    let ids = ["a", "b"].map(StoredId::meta);
    for at in (0..40).rev() {
        for (id, byte) in ["a", "b"].into_iter().zip([1, 101]) {
            write(&mut store, &disk, id, at * BLOCK_LEN, &[byte + at as u8; BLOCK]);
        }
    }
    store.request_checkpoint();
    settle(&mut store, &disk);
    let data: Vec<u8> = (0..40 * BLOCK).map(|i| (i / BLOCK) as u8 + 1).collect();
    disk.break_sector(find(&disk, &[14; BLOCK]) * BLOCK_LEN + 600);
    disk.corrupt(find(&disk, &[20; BLOCK]) * BLOCK_LEN + 600);
    let read = |offset, len| store.plan_read(&ids[0], &[(offset, len)]).unwrap().run(&disk);
    let error = read(0, u64::MAX).unwrap_err();
    assert!(matches!(error, ReadError::Unreadable { block: 13, .. }), "{error}");
    let error = read(14 * BLOCK_LEN, u64::MAX).unwrap_err();
    assert!(matches!(error, ReadError::Checksum { block: 19, .. }), "{error}");
    assert_eq!(read(0, 13 * BLOCK_LEN).unwrap(), [&data[..13 * BLOCK]]);
    assert_eq!(read(14 * BLOCK_LEN, 5 * BLOCK_LEN).unwrap(), [&data[14 * BLOCK..19 * BLOCK]]);
    assert_eq!(read(20 * BLOCK_LEN, u64::MAX).unwrap(), [&data[20 * BLOCK..]]);
}

#[test]
fn no_corrupt_byte_makes_a_read_return_wrong_data() {
    let (disk, mut store) = fresh(2);
    let mut rng = Rng::new(3);
    let data: Vec<u8> = (0..100_000).map(|_| rng.next_u64() as u8).collect();
    write(&mut store, &disk, "a", 0, &data);
    let mut refused = 0;
    for _ in 0..300 {
        let at = rng.below(disk.len());
        disk.corrupt(at);
        match store.plan_read(&StoredId::meta("a"), &[(0, u64::MAX)]).unwrap().run(&disk) {
            Ok(read) => assert!(read == [&data[..]], "rot at {at} went unnoticed"),
            Err(ReadError::Checksum { .. }) => refused += 1,
            Err(error) => panic!("{error}"),
        }
        disk.corrupt(at);
    }
    assert!(refused > 3);
}

#[test]
fn one_bad_superblock_is_survived_and_then_renewed() {
    for copy in [0, 16] {
        let (disk, mut store) = fresh(5);
        write(&mut store, &disk, "a", 0, b"x");
        disk.corrupt(copy * BLOCK_LEN + 30);
        let (mut store, report) = Store::open(&disk).unwrap();
        assert!(report.superblock_damaged && report.last.0 == 1);
        settle(&mut store, &disk);
        assert!(!Store::open(&disk).unwrap().1.superblock_damaged);
    }
    let (disk, _) = fresh(6);
    disk.corrupt(30);
    disk.corrupt(16 * BLOCK_LEN + 30);
    assert_eq!(Store::open(&disk).unwrap_err(), OpenError::Superblock);
}

#[test]
fn a_corrupt_checkpoint_is_an_error() {
    let (disk, mut store) = fresh(7);
    write(&mut store, &disk, "a", 0, &[1; 9000]);
    store.request_checkpoint();
    settle(&mut store, &disk);
    let mut superblock = [0; BLOCK];
    disk.read_at(0, &mut superblock).unwrap();
    let chunk = Superblock::decode(&superblock).unwrap().runs[0].last_chunk;
    disk.corrupt(u64::from(chunk.start) * BLOCK_LEN + 100);
    let error = Store::open(&disk).unwrap_err();
    assert_eq!(error, OpenError::Checkpoint { generation: 2, what: "damaged chunk", block: chunk.start });
}

#[test]
fn device_without_a_store_is_detected_and_left_alone() {
    let disk = SimDisk::new(1 << 20, 1);
    assert_eq!(Store::open(&disk).unwrap_err(), OpenError::Blank);
    disk.write_at(BLOCK_LEN, &[7; BLOCK]).unwrap();
    assert_eq!(Store::open(&disk).unwrap_err(), OpenError::Blank);
    assert_eq!(Store::format(&disk, Options::default()), Err(FormatError::NotBlank));
    disk.write_at(0, &[7; BLOCK]).unwrap();
    assert_eq!(Store::open(&disk).unwrap_err(), OpenError::NotAStore);
    Store::format(&disk, Options { force: true, ..Options::default() }).unwrap();
    Store::open(&disk).unwrap();
    assert_eq!(Store::format(&disk, Options::default()), Err(FormatError::NotBlank));

    let mut superblock = read_block(&disk, 0);
    superblock[8] = 2;
    seal(&mut superblock);
    disk.write_at(0, &superblock).unwrap();
    assert_eq!(Store::open(&disk).unwrap_err(), OpenError::Version { found: 2 });

    let tiny = SimDisk::new(1 << 16, 1);
    assert!(matches!(Store::format(&tiny, Options::default()), Err(FormatError::TooSmall { .. })));
    assert_eq!(Store::open(&tiny).unwrap_err(), OpenError::NotAStore);
}

#[test]
fn a_device_that_shrank_is_refused() {
    let (disk, _) = fresh(8);
    let smaller = SimDisk::new(1 << 20, 1);
    for block in 0..32 {
        smaller.write_at(block * BLOCK_LEN, &read_block(&disk, block)).unwrap();
    }
    assert_eq!(Store::open(&smaller).unwrap_err(), OpenError::Shrunk { len: 1 << 20, expected: 2 << 20 });
}

/// Puts the right checksum on a superblock.
fn seal(superblock: &mut [u8]) {
    let crc = crc32c(u32::MAX, &superblock[..BLOCK - 4]);
    superblock[BLOCK - 4..].copy_from_slice(&crc.to_le_bytes());
}

/// Puts the right checksum on a record or on a chunk, if these bytes begin one.
fn seal_record(bytes: &mut [u8]) {
    let Some((header, _)) = RecordHeader::decode(bytes) else { return };
    // Contents keep the checksums that they had in the list.
    if let Some(head) = bytes.get_mut(..header.head_len() as usize) {
        header.seal(head);
    }
}
fn seal_chunk(bytes: &mut [u8]) {
    let len = u32::from_le_bytes(bytes[44..48].try_into().unwrap()) as usize;
    if let Some(payload) = bytes[64..].get(..len) {
        let crc = crc32c(crc32c(u32::MAX, &bytes[..60]), payload);
        bytes[60..64].copy_from_slice(&crc.to_le_bytes());
    }
}

#[test]
fn opening_survives_any_bytes_even_with_right_checksums() {
    let rounds = std::env::var("NACRE_STORE_FUZZ").map_or(6000, |n| n.parse().expect("a number"));
    let (disk, mut store) = fresh(10);
    for i in 0..6 {
        let mut txn = Transaction::new();
        let id = StoredId::meta(["a", "b", "c"][i % 3]);
        let data = Bytes::from(vec![i as u8 + 1; 9000]);
        txn.push(id.clone(), Change::Write { offset: i as u64 * 3000, data });
        let pairs = || [("k".into(), Bytes::from(vec![5; 300]))].into();
        txn.push(id.clone(), Change::OmapSet(pairs()));
        txn.push(id.clone(), Change::SetAttrs(pairs()));
        txn.push(StoredId::meta("d"), Change::CloneFrom(id));
        store.submit(txn).unwrap();
        if i == 2 {
            store.request_checkpoint();
        }
        settle(&mut store, &disk);
    }
    let blocks = disk.len() / BLOCK_LEN;
    let image: Vec<Vec<u8>> = (0..blocks).map(|block| read_block(&disk, block)).collect();
    let superblock = Superblock::decode(&image[0]).unwrap();
    let geometry: Geometry = superblock.geometry;
    let record = geometry.log_offset(superblock.log_pos) / BLOCK_LEN;
    let chunk = superblock.runs[0].last_chunk;
    assert_eq!(chunk.len, 1);

    let mut rng = Rng::new(11);
    let mut opened = 0;
    for round in 0..rounds {
        let target = [0, record, record + 1, u64::from(chunk.start)][rng.below(4) as usize];
        let mut bytes = image[target as usize].clone();
        let used = if target == 0 { 128 } else { 1000 };
        for _ in 0..1 + rng.below(3) {
            let at = rng.below(used) as usize;
            let value = match rng.below(4) {
                0 => [0; 8],
                1 => [0xff; 8],
                2 => rng.below(300).to_le_bytes(),
                _ => rng.next_u64().to_le_bytes(),
            };
            let len = [1, 4, 8][rng.below(3) as usize];
            bytes[at..at + len].copy_from_slice(&value[..len]);
        }
        match target {
            0 => seal(&mut bytes),
            t if t == u64::from(chunk.start) => seal_chunk(&mut bytes),
            _ => seal_record(&mut bytes),
        }
        disk.write_at(target * BLOCK_LEN, &bytes).unwrap();
        if target == 0 {
            disk.write_at(16 * BLOCK_LEN, &bytes).unwrap();
        }
        if let Ok((store, _)) = Store::open(&disk) {
            opened += 1;
            assert_eq!(store.check(), [""; 0], "round {round}");
        }
        disk.write_at(target * BLOCK_LEN, &image[target as usize]).unwrap();
        disk.write_at(16 * BLOCK_LEN, &image[16]).unwrap();
        disk.flush().unwrap();
    }
    assert!(opened > rounds / 20, "only {opened} opened: the changes are too coarse");
    Store::open(&disk).unwrap();
}
