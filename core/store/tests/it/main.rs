//! What an object takes in memory, counted in bytes: these figures do not depend on the machine or the day.

#![allow(unsafe_code)] // an allocator is unsafe by its signature

mod allocations;
mod omaps;

use bytes::Bytes;
use nacre_base::{Name, PoolId, Rng, buffer};
use nacre_machine::StoreView;
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_proto::types::ObjectId;
use nacre_store::testing::SimDisk;
use nacre_store::{Options, Store};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Counts what the calling thread has allocated and not freed, how often it has allocated, and how much.
struct Counting;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static CALLS: Cell<usize> = const { Cell::new(0) };
    static ASKED: Cell<usize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    // What a thread that is ending frees is not counted any more.
    let _ = LIVE.try_with(|live| live.set(live.get() + bytes));
    if bytes > 0 {
        let _ = CALLS.try_with(|calls| calls.set(calls.get() + 1));
        let _ = ASKED.try_with(|asked| asked.set(asked.get() + bytes as usize));
    }
}

// SAFETY: all work is the system allocator's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn object(n: u64) -> StoredId {
    let name = Name::from(format!("benchmark_data_host_12345_object{n}"));
    StoredId::Object(ObjectId::head(PoolId(1), Name::default(), Name::default(), name))
}

/// As an OSD writes them: data, and what it notes about the object and its snapshots.
fn write(n: u64, offset: u64, len: usize) -> Transaction {
    let mut txn = Transaction::new();
    txn.push(object(n), Change::Write { offset, data: Bytes::from(vec![n as u8 | 1; len]) });
    let attrs = [("_", 250), ("snapset", 31)].map(|(k, len)| (Name::from(k), Bytes::from(vec![2; len])));
    txn.push(object(n), Change::SetAttrs(attrs.into()));
    txn
}

/// One test at a time: buffers that wait to be used again belong to all threads. None does at the beginning.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let guard = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    buffer::give_back();
    guard
}

/// Bytes of memory for each of `objects`, after the store was opened with them.
fn bytes_each(objects: u64, txns: impl Iterator<Item = Transaction>) -> isize {
    let _alone = alone();
    let disk = SimDisk::new(1 << 30, 1);
    Store::format(&disk, Options { uuid: [7; 16], ..Options::default() }).unwrap();
    let (mut store, _) = Store::open(&disk).unwrap();
    for (n, txn) in txns.enumerate() {
        store.submit(txn).unwrap();
        if n % 64 == 0 {
            store.settle(&disk).unwrap();
        }
    }
    store.request_checkpoint();
    store.settle(&disk).unwrap();
    drop(store);
    buffer::give_back();
    let before = LIVE.get();
    let (store, _) = Store::open(&disk).unwrap();
    buffer::give_back();
    let used = LIVE.get() - before;
    let said = store.memory().index as isize;
    let (used, said) = (used / objects as isize, said / objects as isize);
    println!("{objects} objects: {used} bytes each, {said} estimated");
    // An allocator adds to what it is asked for, so the estimate is higher.
    assert!(said >= used * 9 / 10 && said <= used * 3 / 2, "{said} bytes estimated, {used} used");
    used
}

/// Those that are not in use are in the checkpoint, and only a little of each page of it is in memory.
#[test]
fn an_object_that_is_not_used_takes_a_few_bytes() {
    let _alone = alone();
    let objects = 20_000;
    let disk = std::sync::Arc::new(SimDisk::new(1 << 30, 1));
    Store::format(&*disk, Options { uuid: [7; 16], ..Options::default() }).unwrap();
    let (mut store, _) = Store::open_paged(disk.clone()).unwrap();
    store.limit_memory(4 << 20);
    for n in 0..objects {
        store.submit(write(n, 0, 4096)).unwrap();
        if n % 64 == 0 {
            store.settle(&*disk).unwrap();
        }
    }
    store.request_checkpoint();
    store.settle(&*disk).unwrap();
    let runs = store.sorted_runs();
    drop(store);
    buffer::give_back();
    let before = LIVE.get();
    let (store, _) = Store::open_paged(disk).unwrap();
    buffer::give_back();
    // One bit of each block of the device is another matter.
    let used = (LIVE.get() - before - (1 << 30) / 4096 / 8) as f64 / objects as f64;
    println!("{objects} objects in {runs} sorted runs: {used:.1} bytes each");
    assert!(store.stat(&object(5)).unwrap().is_some());
    assert!(used < 12.0, "{used:.1} bytes for an object that is not used");
}

#[test]
fn a_small_object_takes_a_few_hundred_bytes_besides_its_attributes() {
    let of_4_kib = bytes_each(8000, (0..8000).map(|n| write(n, 0, 4096)));
    let of_64_kib = bytes_each(1000, (0..1000).map(|n| write(n, 0, 64 << 10)));
    assert!(of_4_kib < 720, "{of_4_kib} bytes for an object of 4 KiB");
    assert!(of_64_kib < 950, "{of_64_kib} bytes for an object of 64 KiB");
}

#[test]
fn four_mib_objects_need_few_index_bytes_per_block() {
    let whole = || (0..20).map(|n| write(n, 0, 4 << 20));
    let fresh = bytes_each(20, whole());
    let mut rng = Rng::new(1);
    let parts = (0..6000).map(|_| write(rng.below(20), rng.below(1024) * 4096, 4096));
    let scattered = bytes_each(20, whole().chain(parts));
    assert!(fresh < 12_000, "{fresh} bytes for 1024 blocks");
    assert!(scattered < 24_000, "{scattered} bytes for 1024 blocks, overwritten at random");
}
