//! The store against a plain model, with crashes at every write.

mod crashes;
mod damage;
mod model;

use crate::testing::SimDisk;
use crate::{Options, Store};
use bytes::Bytes;
use nacre_machine::StoreView;
use nacre_proto::transaction::{Change, StoredId, Transaction};

fn settle(store: &mut Store, disk: &SimDisk) {
    while let Some(batch) = store.take_batch() {
        let done = batch.commit(disk).unwrap();
        store.finished(done);
        assert_eq!(store.check(), [""; 0]);
    }
}

#[test]
fn what_was_written_is_there_after_reopening() {
    let disk = SimDisk::new(4 << 20, 1);
    Store::format(&disk, Options { uuid: [7; 16], ..Options::default() }).unwrap();
    let (mut store, _) = Store::open(&disk).unwrap();
    let id = StoredId::meta("a");
    let mut txn = Transaction::new();
    txn.push(id.clone(), Change::Write { offset: 5000, data: Bytes::from(vec![7; 9000]) });
    let first = store.submit(txn).unwrap();
    let mut txn = Transaction::new();
    txn.push(id.clone(), Change::Write { offset: 6000, data: Bytes::from_static(b"hello") });
    txn.push(id.clone(), Change::Truncate { size: 10_000 });
    let second = store.submit(txn).unwrap();
    let mut expected = vec![0; 5000];
    expected.resize(10_000, 7);
    expected[6000..6005].copy_from_slice(b"hello");

    let read = |store: &Store| store.plan_read(&id, &[(0, 20_000)]).unwrap().run(&disk).unwrap();
    assert_eq!(read(&store), [&expected[..]], "from memory");
    assert!(store.durable() < first);
    settle(&mut store, &disk);
    assert_eq!(store.durable(), second);
    assert_eq!(read(&store), [&expected[..]], "from the device");

    disk.crash();
    let (mut store, report) = Store::open(&disk).unwrap();
    assert_eq!(report.last, second);
    assert_eq!(read(&store), [&expected[..]], "from the log");
    store.request_checkpoint();
    settle(&mut store, &disk);
    let (store, report) = Store::open(&disk).unwrap();
    assert_eq!((report.checkpoint, report.last), (second, second));
    assert_eq!(read(&store), [&expected[..]], "from the checkpoint");
    assert_eq!(store.stat(&id).unwrap().unwrap().size, 10_000);
}
