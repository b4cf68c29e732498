//! What a write allocates in the store, from `submit` to `finished`.

use super::{ASKED, CALLS, alone, write};
use nacre_proto::transaction::{Change, Transaction};
use nacre_store::testing::{SimDisk, Sink};
use nacre_store::{Options, Store};

fn fresh() -> Store {
    let disk = SimDisk::new(1 << 30, 1);
    Store::format(&disk, Options { uuid: [7; 16], log_len: Some(256 << 20), ..Options::default() }).unwrap();
    Store::open(&disk).unwrap().0
}

/// Calls and bytes of each of `txns`, on average.
fn allocated(store: &mut Store, txns: Vec<Transaction>) -> (usize, usize) {
    let count = txns.len();
    let before = (CALLS.get(), ASKED.get());
    for txn in txns {
        store.submit(txn).unwrap();
        let batch = store.take_batch().unwrap();
        store.finished(batch.commit(&Sink(1 << 30)).unwrap());
        if let Some(placing) = store.take_deferred() {
            store.deferred_done(placing.run(&Sink(1 << 30)).unwrap());
        }
    }
    ((CALLS.get() - before.0) / count, (ASKED.get() - before.1) / count)
}

#[test]
fn a_small_write_allocates_so_often_and_no_more() {
    let _alone = alone();
    let mut store = fresh();
    allocated(&mut store, (0..500).map(|n| write(n, 0, 4096)).collect());
    let (fresh, _) = allocated(&mut store, (500..4000).map(|n| write(n, 0, 4096)).collect());
    let (again, bytes) = allocated(&mut store, (0..4000).map(|n| write(n, 0, 4096)).collect());
    assert!(fresh <= 13 && again <= 13, "{fresh} and {again} allocations");
    assert!(bytes < 8_000, "{bytes} bytes");
}

#[test]
fn a_large_write_is_not_copied() {
    let _alone = alone();
    let mut store = fresh();
    let large = |n| write(n, 0, 4 << 20);
    allocated(&mut store, vec![large(0)]);
    let (_, bytes) = allocated(&mut store, (0..20).map(large).collect());
    assert!(bytes < 512 << 10, "{bytes} bytes were allocated for 4 MiB");
    // What is not whole blocks is copied, at both ends, and nothing else.
    let mut odd = large(30);
    odd.changes[0].1 = Change::Write { offset: 1000, data: vec![7; 4 << 20].into() };
    let (_, bytes) = allocated(&mut store, vec![odd]);
    assert!(bytes < 512 << 10, "{bytes} bytes were allocated for 4 MiB at an odd place");
}
