//! What reaches the device, counted: these figures do not depend on the machine or the day.

use crate::testing::SimDisk;
use crate::{Disk, DiskError, Options, Store};
use bytes::Bytes;
use nacre_base::{Name, PoolId};
use nacre_machine::StoreView;
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_proto::types::ObjectId;
use std::cell::Cell;

/// Counts calls, and bytes written.
struct Counting {
    disk: SimDisk,
    reads: Cell<u64>,
    durable: Cell<u64>,
    writes: Cell<u64>,
    flushes: Cell<u64>,
    bytes: Cell<u64>,
}

fn add(to: &Cell<u64>, n: u64) {
    to.set(to.get() + n);
}

impl Disk for Counting {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        add(&self.reads, 1);
        self.disk.read_at(offset, into)
    }
    fn read_many(&self, reads: &mut [(u64, &mut [u8])]) -> Result<(), DiskError> {
        add(&self.reads, 1);
        self.disk.read_many(reads)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        add(&self.writes, 1);
        add(&self.bytes, bytes.len() as u64);
        self.disk.write_at(offset, bytes)
    }
    fn write_durable(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        add(&self.durable, 1);
        add(&self.bytes, bytes.len() as u64);
        self.disk.write_durable(offset, bytes)
    }
    fn flush(&self) -> Result<(), DiskError> {
        add(&self.flushes, 1);
        self.disk.flush()
    }
    fn len(&self) -> u64 {
        self.disk.len()
    }
}

impl Counting {
    fn new(len: u64, log_len: u64) -> (Counting, Store) {
        let zero = Cell::default;
        let disk = SimDisk::new(len, 1);
        let disk =
            Counting { disk, reads: zero(), durable: zero(), writes: zero(), flushes: zero(), bytes: zero() };
        Store::format(&disk, Options { uuid: [7; 16], log_len: Some(log_len), ..Options::default() })
            .unwrap();
        let (store, _) = Store::open(&disk).unwrap();
        disk.take();
        (disk, store)
    }
    /// Durable writes, other writes, flushes and bytes since the last time.
    fn take(&self) -> [u64; 4] {
        [&self.durable, &self.writes, &self.flushes, &self.bytes].map(|count| count.take())
    }
}

/// As an OSD writes them: the data, an attribute, and an entry in its group's log.
fn write(n: u64, offset: u64, len: usize) -> Transaction {
    let name = Name::from(format!("object{n}"));
    let id = StoredId::from(ObjectId::head(PoolId(1), Name::default(), Name::default(), name));
    let mut txn = Transaction::new();
    txn.push(id.clone(), Change::Write { offset, data: Bytes::from(vec![n as u8 | 1; len]) });
    txn.push(id, Change::SetAttrs([(Name::from("_"), Bytes::from(vec![2; 200]))].into()));
    let entry = [(Name::from(format!("{n:010}")), Bytes::from(vec![3; 150]))].into();
    txn.push(StoredId::meta("log"), Change::OmapSet(entry));
    txn
}

#[test]
fn a_small_write_costs_one_durable_write_of_the_log_and_reads_nothing() {
    let (disk, mut store) = Counting::new(64 << 20, 16 << 20);
    // New objects, and then parts of blocks that are on the device.
    for (offset, len) in [(0, 4096), (1000, 100), (3000, 2000)] {
        for n in 0..20 {
            store.submit(write(n, offset, len)).unwrap();
            let batch = store.take_batch().unwrap();
            store.finished(batch.commit(&disk).unwrap());
            let [durable, writes, flushes, bytes] = disk.take();
            assert_eq!([durable, writes, flushes], [1, 0, 0]);
            assert!(bytes <= 8192 && store.durable() == store.submitted());
        }
        store.request_checkpoint();
        store.settle(&disk).unwrap();
        disk.take();
    }
}

#[test]
fn small_writes_that_wait_together_share_one_durable_write() {
    let (disk, mut store) = Counting::new(64 << 20, 16 << 20);
    for n in 0..16 {
        store.submit(write(n, 0, 4096)).unwrap();
    }
    let batch = store.take_batch().unwrap();
    store.finished(batch.commit(&disk).unwrap());
    let [durable, writes, flushes, bytes] = disk.take();
    assert_eq!([durable, writes, flushes], [1, 0, 0]);
    assert!(bytes < 16 * 5120, "{bytes} bytes for 16 writes");
}

#[test]
fn deferred_writes_are_placed_in_batches_with_one_flush() {
    let (disk, mut store) = Counting::new(1 << 30, 128 << 20);
    let mut placed = [0; 4];
    let mut slices = 0;
    for n in 0..8000 {
        store.submit(write(n, 0, 4096)).unwrap();
        let batch = store.take_batch().unwrap();
        store.finished(batch.commit(&disk).unwrap());
        assert_eq!(disk.take()[..3], [1, 0, 0], "write {n}");
        if let Some(placing) = store.take_deferred() {
            store.deferred_done(placing.run(&disk).unwrap());
            slices += 1;
            disk.take().iter().zip(&mut placed).for_each(|(count, sum)| *sum += count);
        }
    }
    assert_eq!(store.checkpoints_written(), 0, "the log is too short for this test");
    assert!((80..=125).contains(&slices), "{slices} slices");
    let [durable, writes, flushes, bytes] = placed;
    // Their blocks are neighbours, so they are joined.
    assert!(durable == 0 && flushes == slices && writes <= 3 * slices, "{placed:?} in {slices} slices");
    assert!(bytes > 5000 * 4096 && bytes <= 8000 * 4096);
}

#[test]
fn a_large_write_is_written_once() {
    let (disk, mut store) = Counting::new(64 << 20, 16 << 20);
    store.submit(write(1, 0, 4 << 20)).unwrap();
    let batch = store.take_batch().unwrap();
    store.finished(batch.commit(&disk).unwrap());
    let [durable, writes, flushes, bytes] = disk.take();
    assert_eq!([durable, flushes], [1, 1]);
    assert!(writes <= 4 && bytes <= (4 << 20) + 4 * 4096, "{writes} writes, {bytes} bytes");
    assert!(store.take_deferred().is_none() && store.take_batch().is_none());
}

#[test]
fn checkpoint_writes_changes_until_they_outgrow_a_full_run() {
    let (disk, mut store) = Counting::new(64 << 20, 4 << 20);
    let checkpoint = |store: &mut Store| {
        store.request_checkpoint();
        store.settle(&disk).unwrap();
        assert_eq!(store.check(), [""; 0]);
        let [_, _, _, bytes] = disk.take();
        (store.sorted_runs(), bytes)
    };
    for n in 0..2000 {
        store.submit(write(n, 0, 1)).unwrap();
    }
    let (runs, all) = checkpoint(&mut store);
    assert!(runs == 1 && all > 2000 * 300);
    let mut most = 0;
    for round in 0..100_u64 {
        for n in 0..50 {
            store.submit(write(round * 10 + n, 5, 1)).unwrap();
        }
        let mut txn = Transaction::new();
        txn.push(write(1900 - round, 0, 1).changes.remove(0).0, Change::Remove);
        store.submit(txn).unwrap();
        let (runs, bytes) = checkpoint(&mut store);
        assert!(runs == 1 || bytes < all, "{bytes} bytes for 51 changes");
        most = most.max(runs);
        if round % 10 == 0 {
            let (again, _) = Store::open(&disk.disk).unwrap();
            assert_eq!(again.check(), [""; 0]);
            assert_eq!((again.statfs(), again.sorted_runs()), (store.statfs(), store.sorted_runs()));
            let gone = write(1900 - round, 0, 1).changes.remove(0).0;
            assert!(again.stat(&gone).unwrap().is_none() && store.stat(&gone).unwrap().is_none());
        }
    }
    assert!((3..64).contains(&most), "{most} sorted runs");
}

#[test]
fn a_log_of_many_records_is_read_in_large_pieces() {
    let (disk, mut store) = Counting::new(64 << 20, 16 << 20);
    for n in 0..1000 {
        store.submit(write(n, 0, 4096)).unwrap();
        let done = store.take_batch().unwrap().commit(&disk).unwrap();
        store.finished(done);
    }
    disk.reads.set(0);
    let (again, _) = Store::open(&disk).unwrap();
    assert_eq!(again.check(), [""; 0]);
    let reads = disk.reads.get();
    assert!(reads <= 2 * 16 + 8, "{reads} reads for a log of 16 MiB");
}

#[test]
fn an_object_in_many_pieces_is_read_with_one_call() {
    let (disk, mut store) = Counting::new(64 << 20, 16 << 20);
    // Two objects by turns, so that neither has neighbours.
    let mut txn = Transaction::new();
    for at in (0..100).rev() {
        for n in 0..2 {
            txn.changes.extend(write(n, at * 4096, 4096).changes);
        }
    }
    store.submit(txn).unwrap();
    store.request_checkpoint();
    store.settle(&disk).unwrap();
    disk.reads.set(0);
    let id = write(0, 0, 1).changes[0].0.clone();
    let read = store.plan_read(&id, &[(0, u64::MAX)]).unwrap().run(&disk).unwrap();
    assert_eq!(read, [vec![1; 100 * 4096]]);
    assert_eq!(disk.reads.get(), 1);
}
