//! A log on a device of its own.

use super::settle;
use crate::testing::SimDisk;
use crate::{
    BLOCK, Disk, FormatError, Held, LogDeviceError, MoveError, MoveTo, OpenError, Options, Store, WithLog,
};
use bytes::Bytes;
use nacre_proto::transaction::{Change, StoredId, Transaction};

const LOG_LEN: u64 = 1 << 20;

fn options(uuid: u8) -> Options {
    Options { uuid: [uuid; 16], log_id: [uuid + 1; 16], ..Options::default() }
}
fn write(store: &mut Store, disk: &impl Disk, byte: u8) {
    let mut txn = Transaction::new();
    txn.push(StoredId::meta("a"), Change::Write { offset: 0, data: Bytes::from(vec![byte; 5000]) });
    store.submit(txn).unwrap();
    let batch = store.take_batch().unwrap();
    store.finished(batch.commit(disk).unwrap());
}
fn read(store: &Store, disk: &impl Disk) -> u8 {
    store.plan_read(&StoredId::meta("a"), &[(4999, 1)]).unwrap().run(disk).unwrap()[0][0]
}

#[test]
fn small_writes_touch_only_the_logs_device_until_they_are_placed() {
    let (data, log) = (SimDisk::new(8 << 20, 1), SimDisk::new(LOG_LEN, 2));
    let disk = WithLog(&data, &log);
    Store::format(&disk, options(1)).unwrap();
    let (mut store, _) = Store::open(&disk).unwrap();
    let calls = (data.calls(), log.calls());
    for byte in 1..=20 {
        write(&mut store, &disk, byte);
    }
    // A durable write is a write and a flush here.
    assert_eq!((data.calls(), log.calls()), (calls.0, calls.1 + 40));
    data.crash();
    log.crash();
    let (mut store, report) = Store::open(&disk).unwrap();
    assert_eq!((report.last.0, read(&store, &disk)), (20, 20));
    let calls = log.calls();
    store.request_checkpoint();
    store.settle(&disk).unwrap();
    assert_eq!(log.calls(), calls);
    assert_eq!(store.check(), [""; 0]);
}

#[test]
fn only_the_stores_own_log_will_do() {
    let sim = |seed| SimDisk::new(8 << 20, seed);
    let (data, log, other_data, other_log) = (sim(1), sim(2), sim(3), sim(4));
    Store::format(&WithLog(&data, &log), options(1)).unwrap();
    Store::format(&WithLog(&other_data, &other_log), options(7)).unwrap();
    let refused = |disk: &dyn Disk| Store::open(disk).unwrap_err();
    let device = |why| OpenError::LogDevice(why);
    assert_eq!(refused(&data), OpenError::LogAbsent);
    assert_eq!(refused(&WithLog(&data, &other_log)), device(LogDeviceError::OfAnotherStore));
    assert_eq!(refused(&WithLog(&data, &sim(5))), device(LogDeviceError::NoLog));
    assert_eq!(refused(&log), OpenError::NotAStore);
    let plain = sim(6);
    Store::format(&plain, options(9)).unwrap();
    assert_eq!(refused(&WithLog(&plain, &log)), OpenError::LogGiven);
    let smaller = SimDisk::new(4 << 20, 1);
    let mut front = vec![0; 32 * BLOCK];
    log.read_at(0, &mut front).unwrap();
    smaller.write_at(0, &front).unwrap();
    let why = LogDeviceError::Shrunk { len: 4 << 20, expected: 8 << 20 };
    assert_eq!(refused(&WithLog(&data, &smaller)), device(why));

    let formatted = Store::format(&WithLog(&sim(7), &log), options(3));
    assert_eq!(formatted, Err(FormatError::LogNotBlank));
    let tiny = SimDisk::new(32 * 4096, 1);
    let formatted = Store::format(&WithLog(&sim(7), &tiny), options(3));
    assert!(matches!(formatted, Err(FormatError::LogTooSmall { .. })));

    // One of two labels may be corrupt.
    log.corrupt(30);
    let (_, report) = Store::open(&WithLog(&data, &log)).unwrap();
    assert!(report.superblock_damaged);
    log.corrupt(16 * 4096 + 30);
    let (_, report) = Store::open(&WithLog(&data, &log)).unwrap();
    assert!(report.superblock_damaged);
    assert!(!Store::open(&WithLog(&data, &log)).unwrap().1.superblock_damaged);
}

#[test]
fn a_log_moves_to_another_device_and_back() {
    let (data, first, second) =
        (SimDisk::new(8 << 20, 1), SimDisk::new(LOG_LEN, 2), SimDisk::new(LOG_LEN, 3));
    Store::format(&data, options(1)).unwrap();
    let (mut store, _) = Store::open(&data).unwrap();
    write(&mut store, &data, 5);
    let to = |device, id| MoveTo { device, log_len: None, log_id: [id; 16], force: false };
    let moved = store.move_log(&data, to(None, 1));
    assert_eq!(moved, Err(MoveError::Same));
    Store::open(&data).unwrap().0.move_log(&data, to(Some(&first), 10)).unwrap();
    assert_eq!(Store::open(&data).unwrap_err(), OpenError::LogAbsent);

    let disk = WithLog(&data, &first);
    let (mut store, _) = Store::open(&disk).unwrap();
    assert_eq!(read(&store, &disk), 5);
    write(&mut store, &disk, 6);
    store.move_log(&disk, to(Some(&second), 11)).unwrap();
    let left = Store::open(&disk).unwrap_err();
    assert_eq!(left, OpenError::LogDevice(LogDeviceError::NoLog));

    let disk = WithLog(&data, &second);
    let (mut store, report) = Store::open(&disk).unwrap();
    assert_eq!((report.last.0, read(&store, &disk)), (2, 6));
    write(&mut store, &disk, 7);
    store.move_log(&disk, to(None, 12)).unwrap();
    let (mut store, report) = Store::open(&data).unwrap();
    assert_eq!((report.last.0, read(&store, &data)), (3, 7));
    write(&mut store, &data, 8);
    settle(&mut store, &data);
    let (store, _) = Store::open(&data).unwrap();
    assert_eq!(read(&store, &data), 8);

    let (apart, log) = (SimDisk::new(8 << 20, 4), SimDisk::new(LOG_LEN, 5));
    let disk = WithLog(&apart, &log);
    Store::format(&disk, options(2)).unwrap();
    let moved = Store::open(&disk).unwrap().0.move_log(&disk, to(None, 3));
    assert_eq!(moved, Err(MoveError::NoRoom));
}

/// The power goes at each call in turn: the log is on one device or on the other, and what was written is
/// there.
#[test]
fn a_move_that_is_cut_short_has_happened_or_not() {
    for calls in 0.. {
        let (data, log) = (SimDisk::new(1 << 20, calls), SimDisk::new(LOG_LEN, calls + 1));
        Store::format(&data, Options { log_len: Some(64 << 10), ..options(1) }).unwrap();
        let (mut store, _) = Store::open(&data).unwrap();
        write(&mut store, &data, 5);
        // Both have the same power.
        let on_log = calls % 2 == 1;
        if on_log {
            log.lose_power_after(calls / 2)
        } else {
            data.lose_power_after(calls / 2)
        }
        let to = MoveTo { device: Some(&log), log_len: None, log_id: [9; 16], force: false };
        let moved = store.move_log(&data, to);
        data.crash();
        log.crash();
        let (store, disk): (Store, &dyn Disk) = match Store::open(&data) {
            Ok((store, _)) => (store, &data),
            Err(OpenError::LogAbsent) => (Store::open(&WithLog(&data, &log)).unwrap().0, &data),
            Err(error) => panic!("{error} after {calls} calls"),
        };
        let read = store.plan_read(&StoredId::meta("a"), &[(4999, 1)]).unwrap().run(disk).unwrap();
        assert_eq!(read[0][0], 5);
        if moved.is_ok() && calls > 40 {
            break;
        }
    }
}

#[test]
fn uuid_is_read_from_the_superblocks_alone() {
    let (data, log) = (SimDisk::new(8 << 20, 1), SimDisk::new(LOG_LEN, 2));
    assert_eq!(Store::uuid_of(&data), Err(OpenError::Blank));
    Store::format(&data, options(1)).unwrap();
    data.write_at(0, &[9; BLOCK]).unwrap();
    let calls = data.calls();
    assert_eq!(Store::uuid_of(&data), Ok([1; 16]));
    assert_eq!(data.calls(), calls, "it was written to");
    Store::format(&WithLog(&data, &log), Options { force: true, ..options(2) }).unwrap();
    assert_eq!(Store::uuid_of(&WithLog(&data, &log)), Ok([2; 16]));
    assert_eq!(Store::uuid_of(&data), Err(OpenError::LogAbsent));
}

#[test]
fn what_a_device_holds_is_told_without_its_log() {
    let (data, log, alone) = (SimDisk::new(8 << 20, 1), SimDisk::new(LOG_LEN, 2), SimDisk::new(8 << 20, 3));
    assert_eq!(Held::on(&data), None);
    Store::format(&WithLog(&data, &log), options(3)).unwrap();
    Store::format(&alone, options(4)).unwrap();
    let of = |id| options(id);
    let apart = Held::Store { uuid: of(3).uuid, log: Some(of(3).log_id) };
    assert_eq!(Held::on(&data), Some(apart));
    assert_eq!(Held::on(&log), Some(Held::Log { uuid: of(3).uuid, log: of(3).log_id }));
    assert_eq!(Held::on(&alone), Some(Held::Store { uuid: of(4).uuid, log: None }));
}
