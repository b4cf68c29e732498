//! A corrupt log: exactly the lost transactions are reported.

use super::model::{Model, Source};
use super::settle;
use crate::format::{Geometry, SUPERBLOCKS, Superblock};
use crate::testing::SimDisk;
use crate::{BLOCK, Disk, DiskError, OpenError, Options, Report, Store, Ticket};
use bytes::Bytes;
use nacre_base::Rng;
use nacre_machine::{Lost, ReadError, StoreView};
use nacre_proto::transaction::{Change, StoredId, Transaction};
use std::collections::BTreeSet;

const BLOCK_LEN: u64 = BLOCK as u64;

fn fresh(seed: u64) -> (SimDisk, Store) {
    let disk = SimDisk::new(2 << 20, seed);
    Store::format(&disk, Options { uuid: [9; 16], log_len: Some(64 * BLOCK_LEN), ..Options::default() })
        .unwrap();
    let (store, _) = Store::open(&disk).unwrap();
    (disk, store)
}

fn geometry(disk: &SimDisk) -> (Geometry, u64) {
    let mut block = vec![0; BLOCK];
    disk.read_at(SUPERBLOCKS[0] * BLOCK_LEN, &mut block).unwrap();
    let superblock = Superblock::decode(&block).unwrap();
    (superblock.geometry, superblock.log_pos)
}

/// Where the record at this position of the log is.
fn record(disk: &SimDisk, pos: u64) -> u64 {
    geometry(disk).0.log_offset(pos)
}

/// Each takes two blocks of log: the head of a record, 4096 bytes, and the head of the one before.
fn write_block(store: &mut Store, disk: &SimDisk, id: &'static str, byte: u8) -> Ticket {
    let mut txn = Transaction::new();
    txn.push(StoredId::meta(id), Change::Write { offset: 0, data: Bytes::from(vec![byte; BLOCK]) });
    txn.push(StoredId::meta(id), Change::SetAttrs([("version".into(), Bytes::from(vec![byte]))].into()));
    let ticket = store.submit(txn).unwrap();
    settle(store, disk);
    ticket
}

fn read(store: &Store, disk: &SimDisk, id: &'static str) -> Result<u8, ReadError> {
    let read = store.plan_read(&StoredId::meta(id), &[(0, 1)])?.run(disk)?;
    Ok(read[0][0])
}
fn version(store: &Store, id: &'static str) -> Option<u8> {
    store.attr(&StoredId::meta(id), b"version").unwrap().map(|value| value[0])
}
fn confirm(store: &mut Store, disk: &SimDisk) {
    store.confirm();
    settle(store, disk);
}
fn open(disk: &SimDisk) -> (Store, Report) {
    let (store, report) = Store::open(disk).unwrap();
    assert_eq!(store.check(), [""; 0]);
    (store, report)
}

#[test]
fn corrupt_log_content_is_an_error_for_its_block_only() {
    let (disk, mut store) = fresh(1);
    for (id, byte) in [("a", 1), ("b", 2), ("a", 3), ("c", 4)] {
        write_block(&mut store, &disk, id, byte);
    }
    disk.corrupt(record(&disk, 4) + 1000); // of the second one of "a"
    let (mut store, report) = open(&disk);
    assert_eq!((report.last, report.repaired, report.lost), (Ticket(4), 1, None));
    assert_eq!(report.lost_blocks, [(StoredId::meta("a"), 0)]);
    assert_eq!(store.lost(), Lost { times: 0, blocks: report.lost_blocks });
    assert!(matches!(read(&store, &disk, "a"), Err(ReadError::Checksum { block: 0, .. })));
    assert_eq!(version(&store, "a"), Some(3));
    assert_eq!((read(&store, &disk, "b"), read(&store, &disk, "c")), (Ok(2), Ok(4)));
    // It stays lost until it is written again.
    store.request_checkpoint();
    settle(&mut store, &disk);
    let (mut store, report) = open(&disk);
    assert_eq!((report.repaired, report.lost_blocks.len()), (0, 0));
    assert!(read(&store, &disk, "a").is_err());
    write_block(&mut store, &disk, "a", 5);
    assert_eq!(read(&open(&disk).0, &disk, "a"), Ok(5));
}

#[test]
fn a_corrupt_head_is_read_from_the_record_behind_it() {
    let (disk, mut store) = fresh(2);
    for (id, byte) in [("a", 1), ("b", 2), ("c", 3)] {
        write_block(&mut store, &disk, id, byte);
    }
    for pos in [0, 2] {
        for at in [0, 20, 30, 65, 80] {
            disk.corrupt(record(&disk, pos) + at);
            let (store, report) = open(&disk);
            assert_eq!((report.last, report.repaired, report.lost), (Ticket(3), 1, None), "{at}");
            let found = ["a", "b", "c"].map(|id| read(&store, &disk, id).unwrap());
            assert_eq!((found, report.lost_blocks), ([1, 2, 3], vec![]));
            disk.corrupt(record(&disk, pos) + at);
        }
    }
    // The whole block that the head is in: a piece of the content goes with it.
    (0..BLOCK_LEN).step_by(512).for_each(|at| disk.corrupt(record(&disk, 2) + at));
    let (store, report) = open(&disk);
    assert_eq!(report.lost_blocks, [(StoredId::meta("b"), 0)]);
    assert_eq!((version(&store, "b"), read(&store, &disk, "c")), (Some(2), Ok(3)));
}

#[test]
fn torn_last_record_is_dropped_and_corrupt_confirmed_one_is_reported() {
    let (disk, mut store) = fresh(3);
    write_block(&mut store, &disk, "a", 1);
    write_block(&mut store, &disk, "a", 2);
    for at in [0, 2000] {
        disk.corrupt(record(&disk, 2) + at);
        let (again, report) = open(&disk);
        assert_eq!((report.torn_tail, report.last, report.repaired), (at == 2000, Ticket(1), 0));
        assert_eq!(read(&again, &disk, "a"), Ok(1));
        disk.corrupt(record(&disk, 2) + at);
    }
    confirm(&mut store, &disk);
    disk.corrupt(record(&disk, 2));
    let (again, report) = open(&disk);
    assert_eq!((report.torn_tail, report.last, report.repaired), (false, Ticket(2), 1));
    assert_eq!(read(&again, &disk, "a"), Ok(2));
    disk.corrupt(record(&disk, 2) + 2000);
    let (again, report) = open(&disk);
    assert_eq!(report.lost_blocks, [(StoredId::meta("a"), 0)]);
    assert!(read(&again, &disk, "a").is_err());
    // It confirms once, and again only what is new.
    let calls = disk.calls();
    confirm(&mut store, &disk);
    assert_eq!(disk.calls(), calls);
}

#[test]
fn two_adjacent_corrupt_record_headers_lose_the_rest_and_are_reported() {
    let (disk, mut store) = fresh(4);
    for byte in 1..=5 {
        write_block(&mut store, &disk, "a", byte);
        write_block(&mut store, &disk, "b", byte);
    }
    disk.corrupt(record(&disk, 4));
    disk.corrupt(record(&disk, 6));
    let lost = Some((Ticket(3), Ticket(10)));
    let (_, report) = open(&disk);
    assert_eq!((report.lost, report.losses, report.last), (lost, 1, Ticket(10)));
    // The same again, as long as nothing was written.
    let (mut store, report) = open(&disk);
    assert_eq!((report.lost, store.lost().times), (lost, 1));
    assert_eq!((read(&store, &disk, "a"), read(&store, &disk, "b")), (Ok(1), Ok(1)));
    assert_eq!(write_block(&mut store, &disk, "b", 7), Ticket(11));
    disk.crash();
    let (mut store, report) = open(&disk);
    assert_eq!((report.lost, report.losses, report.last), (None, 1, Ticket(11)));
    assert_eq!((read(&store, &disk, "a"), read(&store, &disk, "b")), (Ok(1), Ok(7)));
    // The count of losses is reported as long as the store exists.
    store.request_checkpoint();
    settle(&mut store, &disk);
    assert_eq!(open(&disk).0.lost().times, 1);
}

/// A device on which some blocks cannot be read at all.
struct Unreadable<'a>(&'a SimDisk, BTreeSet<u64>);

impl Disk for Unreadable<'_> {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        let mut blocks = offset / BLOCK_LEN..(offset + into.len() as u64) / BLOCK_LEN;
        if blocks.any(|block| self.1.contains(&block)) {
            let why = "medium error".to_string();
            return Err(DiskError { op: "read", offset, len: into.len() as u64, why });
        }
        self.0.read_at(offset, into)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.0.write_at(offset, bytes)
    }
    fn flush(&self) -> Result<(), DiskError> {
        self.0.flush()
    }
    fn len(&self) -> u64 {
        self.0.len()
    }
}

#[test]
fn unreadable_log_block_is_corrupt_in_the_middle_and_an_error_at_the_end() {
    let (disk, mut store) = fresh(5);
    for (id, byte) in [("a", 1), ("b", 2), ("c", 3)] {
        write_block(&mut store, &disk, id, byte);
    }
    let bad = |pos| Unreadable(&disk, [record(&disk, pos) / BLOCK_LEN].into());
    let (store, report) = Store::open(&bad(2)).unwrap();
    assert_eq!(report.lost_blocks, [(StoredId::meta("b"), 0)]);
    assert_eq!((version(&store, "b"), read(&store, &disk, "c")), (Some(2), Ok(3)));
    for pos in [4, 9] {
        assert!(matches!(Store::open(&bad(pos)), Err(OpenError::Disk(_))));
    }
}

/// What a store and its model came to, and the log's records so far.
struct Run {
    disk: SimDisk,
    source: Source,
    history: Vec<Model>,
    store: Store,
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut rng = Rng::new(seed);
        let disk = SimDisk::new((32 + 64 + rng.between(100, 300)) * BLOCK_LEN, rng.next_u64());
        let log_len = BLOCK_LEN * rng.between(20, 64);
        Store::format(&disk, Options { uuid: [5; 16], log_len: Some(log_len), ..Options::default() })
            .unwrap();
        let (store, _) = Store::open(&disk).unwrap();
        let size_max = rng.between(3000, 20_000);
        Run { disk, source: Source { rng, size_max }, history: vec![Model::default()], store }
    }
    fn live(&mut self) {
        for _ in 0..self.source.rng.between(2, 40) {
            for _ in 0..self.source.rng.below(3) {
                let txn = self.source.transaction(self.history.last().unwrap());
                if self.store.submit(txn.clone()).is_ok() {
                    let mut model = self.history.last().unwrap().clone();
                    model.apply(&txn);
                    self.history.push(model);
                }
            }
            if self.source.rng.chance(30) {
                self.store.request_checkpoint();
            }
            // Sometimes one of both is behind.
            if self.source.rng.chance(400)
                && let Some(placing) = self.store.take_deferred()
            {
                self.store.deferred_done(placing.run(&self.disk).unwrap());
            }
            if let Some(batch) = self.store.take_batch() {
                self.store.finished(batch.commit(&self.disk).unwrap());
            }
        }
        self.store.settle(&self.disk).unwrap();
        self.store.confirm();
        self.store.settle(&self.disk).unwrap();
    }
}

/// The log is durable to its last byte and confirmed. Then some of it becomes corrupt: whatever is not named
/// as lost is there, in its last version, and what is named gives errors and no old bytes.
#[test]
fn any_log_corruption_loses_only_reported_transactions() {
    let rounds = std::env::var("NACRE_STORE_ROT").map_or(1500, |n| n.parse().expect("a number"));
    let (mut repaired, mut named, mut gaps, mut undetected) = (0, 0, 0, 0);
    for seed in 0..rounds {
        let mut run = Run::new(seed);
        run.live();
        let (geometry, start) = geometry(&run.disk);
        let rng = &mut run.source.rng;
        for _ in 0..1 + rng.below(3) {
            let at = geometry.log_offset(start + rng.below(geometry.log_blocks.into()));
            match rng.chance(500) {
                true => run.disk.corrupt(at + rng.below(BLOCK_LEN)),
                false => (0..BLOCK_LEN).step_by(512).for_each(|sector| run.disk.corrupt(at + sector)),
            }
        }
        let (store, report) = Store::open(&run.disk).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert_eq!(store.check(), [""; 0], "seed {seed}");
        // If the last record is corrupt together with the one that confirms it, the loss is undetectable; the
        // same if its header is gone.
        if report.last != run.store.submitted() {
            assert!(report.lost.is_none(), "seed {seed}: {report:?}");
            undetected += 1;
        }
        let last_known = report.lost.map_or(report.last.0, |(first, _)| first.0 - 1);
        let model = &run.history[last_known as usize];
        let damaged = model.assert_shown_but_for_errors(&store, &run.disk, &format!("seed {seed}"));
        if report.lost.is_none() && report.last == run.store.submitted() {
            // What was not placed yet is named at once.
            let named: BTreeSet<_> = report.lost_blocks.iter().cloned().collect();
            assert_eq!(damaged, named, "seed {seed}: {report:?}");
        }
        repaired += report.repaired;
        named += damaged.len();
        gaps += u64::from(report.lost.is_some());
        // And it continues from there.
        let mut store = store;
        let mut txn = Transaction::new();
        txn.push(StoredId::meta("after"), Change::Touch);
        if store.submit(txn).is_ok() {
            let what = format!("seed {seed}");
            let before: Vec<_> = store.ids().map(Result::unwrap).collect();
            store.settle(&run.disk).unwrap();
            assert_eq!(store.check(), [""; 0], "{what}");
            run.disk.crash();
            let (again, report_again) = Store::open(&run.disk).unwrap();
            assert!(again.ids().map(Result::unwrap).eq(before), "{what}");
            assert_eq!((report_again.losses, report_again.lost), (report.losses, None), "{what}");
        }
    }
    assert!(repaired > rounds / 10 && named as u64 > rounds / 50, "{repaired} repaired, {named} named");
    assert!(gaps > 0 && gaps < rounds / 10, "{gaps} gaps in {rounds} rounds");
    assert!(
        undetected <= rounds / 500,
        "{undetected} of {rounds} times the end of the log was not told from a torn one"
    );
}
