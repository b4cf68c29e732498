//! Random transactions, with the power cut at any write.

use super::model::{HeldRead, Model, Source};
use crate::testing::SimDisk;
use crate::{OpenError, Options, Report, Store, SubmitError, Ticket};
use bytes::Bytes;
use nacre_base::{Name, PgId, PoolId, Rng, SpgId};
use nacre_machine::StoreView;
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_proto::types::ObjectId;
use std::sync::Arc;

/// Crashes in the normal test run; NACRE_STORE_CRASHES sets another number.
fn crashes_wanted() -> u64 {
    std::env::var("NACRE_STORE_CRASHES").map_or(2500, |n| n.parse().expect("a number"))
}

/// One store, its device, and what it should hold after each transaction.
struct Run {
    seed: u64,
    disk: Arc<SimDisk>,
    /// Whether objects leave memory.
    paged: bool,
    store: Store,
    source: Source,
    /// The state after each transaction from `first` on.
    history: Vec<Model>,
    first: u64,
    acked: Ticket,
    reads: Vec<HeldRead>,
    refused: u64,
    crashes: u64,
    /// Lives that began on a checkpoint of several sorted runs.
    compacted: u64,
    /// Bytes that were discarded on the device.
    given_back: u64,
}

/// With everything in memory, or nothing that is not needed.
fn open(disk: &Arc<SimDisk>, paged: bool) -> Result<(Store, Report), OpenError> {
    if paged { Store::open_paged(disk.clone()) } else { Store::open(&**disk) }
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut rng = Rng::new(seed);
        // Small, so that the log turns, checkpoints come often, and space runs out.
        let blocks = 32 + 16 + rng.between(64, 300);
        let mut disk = SimDisk::new(blocks * 4096, rng.next_u64());
        let log_len = 4096 * rng.between(12, 40);
        if rng.chance(300) {
            disk = disk.with_log(32 * 4096 + log_len, rng.next_u64());
        }
        let uuid = [rng.next_u64() as u8; 16];
        Store::format(&disk, Options { uuid, log_len: Some(log_len), ..Options::default() }).unwrap();
        let (disk, paged) = (Arc::new(disk), rng.chance(700));
        let store = open(&disk, paged).unwrap().0;
        let size_max = rng.between(3000, 30_000);
        let source = Source { rng, size_max };
        let history = vec![Model::default()];
        let (first, acked) = (0, Ticket(0));
        Run {
            seed,
            disk,
            paged,
            store,
            source,
            history,
            first,
            acked,
            reads: vec![],
            refused: 0,
            crashes: 0,
            compacted: 0,
            given_back: 0,
        }
    }
    fn model(&self) -> &Model {
        self.history.last().expect("never empty")
    }
    fn what(&self) -> String {
        format!("seed={:#x} seq={} crashes={}", self.seed, self.store.submitted().0, self.crashes)
    }

    fn submit(&mut self) {
        let model = self.history.last().expect("never empty");
        let txn = self.source.transaction(model);
        match self.store.submit(txn.clone()) {
            Ok(ticket) => self.applied(ticket, &txn),
            Err(SubmitError::NoSpace { .. }) => {
                self.refused += 1;
                self.remove_one();
            }
            Err(error) => panic!("{error}, {}", self.what()),
        }
    }
    /// However full it is.
    fn remove_one(&mut self) {
        let Some(id) = self.source.rng.pick(&self.model().ids()).cloned() else {
            return;
        };
        let mut txn = Transaction::new();
        txn.push(id, Change::Remove);
        let ticket = self.store.submit(txn.clone()).unwrap_or_else(|e| panic!("{e}, {}", self.what()));
        self.applied(ticket, &txn);
    }
    fn applied(&mut self, ticket: Ticket, txn: &Transaction) {
        let mut model = self.model().clone();
        model.apply(txn);
        self.history.push(model);
        assert_eq!(ticket.0, self.first + self.history.len() as u64 - 1, "{}", self.what());
    }

    /// States that can no longer be what a crash leaves.
    fn forget_history(&mut self) {
        self.history.drain(..(self.acked.0 - self.first) as usize);
        self.first = self.acked.0;
    }

    /// Goes on until the power is gone.
    fn until_power_is_lost(&mut self) {
        // Short lives mostly, and now and then one that sees several checkpoints.
        let longest = if self.source.rng.chance(100) { 300 } else { 40 };
        let calls = self.source.rng.below(longest);
        self.disk.lose_power_after(calls);
        let mut placing = None;
        loop {
            let burst = if self.source.rng.chance(120) { 60 } else { 4 };
            for _ in 0..self.source.rng.below(burst) {
                self.submit();
            }
            if self.source.rng.chance(20) {
                self.store.request_checkpoint();
            }
            placing = placing.or_else(|| self.store.take_deferred());
            let mut discard = if self.source.rng.chance(300) { self.store.take_discard() } else { None };
            let batch = self.store.take_batch();
            // While the disk is busy, more transactions arrive.
            for _ in 0..self.source.rng.below(3) {
                self.submit();
            }
            placing = placing.or_else(|| self.store.take_deferred());
            for _ in 0..self.source.rng.below(3) {
                self.submit();
            }
            // A batch and a placing run beside each other: either may be first, or be seen first.
            if (batch.is_none() || self.source.rng.chance(300))
                && let Some(placing) = placing.take()
            {
                let Ok(placed) = placing.run(&*self.disk) else { return };
                assert_eq!(placed.damaged, 0);
                self.store.deferred_done(placed);
            }
            if let Some(discard) = discard.take() {
                let done = discard.run(&*self.disk);
                self.given_back += done.given_back;
                self.store.discarded(done);
            }
            let Some(batch) = batch else { continue };
            let model = self.history.last().expect("never empty");
            if self.disk.is_powered() {
                self.reads.extend(self.source.held_read(&self.store, model));
            }
            if self.source.rng.chance(30) && self.disk.is_powered() {
                let wrong = self.store.check();
                assert_eq!(wrong, [""; 0], "{}", self.what());
            }
            let Ok(done) = batch.commit(&*self.disk) else {
                return;
            };
            if self.disk.is_powered() {
                if self.source.rng.chance(50) {
                    self.model().assert_shown_by(&self.store, &self.disk, &self.what());
                }
                let keep = self.source.rng.below(6) as usize;
                while self.reads.len() > keep {
                    let at = self.source.rng.below(self.reads.len() as u64) as usize;
                    let fetched = self.reads.swap_remove(at).run(&self.disk);
                    self.store.keep(fetched);
                }
            }
            self.acked = self.store.finished(done);
        }
    }
    fn come_back(&mut self) {
        self.reads.clear();
        self.disk.crash();
        self.crashes += 1;
        let what = self.what();
        let (mut store, report) =
            open(&self.disk, self.paged).unwrap_or_else(|error| panic!("{error}, {what}"));
        // Caches of a few blocks, and now and then one for everything.
        store.limit_memory([0, 100 << 10, 400 << 10, 16 << 20][self.source.rng.below(4) as usize]);
        let submitted = self.store.submitted();
        assert!(self.acked <= report.last, "{:?} was acknowledged, {report:?}, {what}", self.acked);
        assert!(report.last <= submitted, "{submitted:?} was the last, {report:?}, {what}");
        assert_eq!(store.check(), [""; 0], "{what}");
        let survived = self.history[(report.last.0 - self.first) as usize].clone();
        survived.assert_shown_by(&store, &self.disk, &what);
        self.compacted += u64::from(store.sorted_runs() > 1);
        self.store = store;
        self.history = vec![survived];
        self.first = report.last.0;
        self.acked = report.last;
    }
}

#[test]
fn acknowledged_data_survives_power_loss_at_any_write() {
    let (mut crashes, mut refused, mut checkpoints, mut compacted, mut given_back) = (0, 0, 0, 0, 0);
    let mut seed = 0x57_0e_00;
    while crashes < crashes_wanted() {
        let mut run = Run::new(seed);
        for _ in 0..25 {
            run.until_power_is_lost();
            run.come_back();
        }
        crashes += run.crashes;
        refused += run.refused;
        compacted += run.compacted;
        given_back += run.given_back;
        checkpoints += run.store.checkpoints_written();
        seed += 1;
    }
    assert!(refused > crashes_wanted() / 100, "only {refused} times was there no space");
    assert!(checkpoints > crashes_wanted() / 10, "only {checkpoints} checkpoints");
    assert!(given_back >> 16 > crashes_wanted() / 100, "only {given_back} bytes were given back");
    assert!(compacted > crashes_wanted() / 50, "only {compacted} times had a checkpoint several sorted runs");
}

/// The same few transactions, with the power cut at each call in turn.
#[test]
fn every_single_write_of_a_run_can_be_the_last() {
    for calls in 0.. {
        let mut run = Run::new(0xe0e);
        run.disk.lose_power_after(calls);
        let mut dead = false;
        for _ in 0..12 {
            for _ in 0..5 {
                run.submit();
            }
            match run.store.settle(&*run.disk) {
                Ok(durable) => run.acked = durable,
                Err(_) => {
                    dead = true;
                    break;
                }
            }
        }
        run.come_back();
        if !dead {
            assert!(calls > 30, "only {calls} calls in the whole run");
            break;
        }
    }
}

#[test]
fn a_store_that_is_full_takes_removals_and_then_writes_again() {
    let mut run = Run::new(5);
    run.source.size_max = 200_000; // eight such objects are more than the device holds
    for round in 0..5 {
        let mut full = false;
        for _ in 0..400 {
            let before = run.refused;
            run.submit();
            full |= run.refused > before;
            run.acked = run.store.settle(&*run.disk).unwrap();
            run.forget_history();
        }
        assert!(full, "round {round} did not fill the store");
        let mut txn = Transaction::new();
        run.model().ids().into_iter().for_each(|id| txn.push(id, Change::Remove));
        let ticket = run.store.submit(txn.clone()).unwrap();
        run.applied(ticket, &txn);
        run.store.request_checkpoint();
        run.acked = run.store.settle(&*run.disk).unwrap();
        assert_eq!(run.acked, ticket);
        assert_eq!(run.store.check(), [""; 0]);
        let statfs = run.store.statfs();
        assert_eq!((statfs.allocated, statfs.stored, statfs.omap), (0, 0, 0));
    }
    run.come_back();
}

/// Fills it with a pool's worth of small objects, whose metadata weigh as much as their data.
#[test]
fn a_store_full_of_metadata_still_checkpoints_and_removes_with_a_log_entry() {
    for (seed, omap_len, data_len) in [(1, 6000, 10), (2, 0, 5000), (3, 50, 1), (4, 20_000, 0)] {
        let disk = SimDisk::new(3 << 20, seed);
        let log_len = Some(256 << 10);
        Store::format(&disk, Options { uuid: [3; 16], log_len, ..Options::default() }).unwrap();
        let (mut store, _) = Store::open(&disk).unwrap();
        let object = |i: u32| {
            let name = Name::from(format!("object{i}"));
            StoredId::from(ObjectId::head(PoolId(1), Name::default(), Name::default(), name))
        };
        let log_entry = |i: u32| {
            let pairs = [(Name::from(format!("{i:08}")), Bytes::from(vec![1; 200]))];
            (
                StoredId::Pg(SpgId::replicated(PgId { pool: PoolId(1), seed: 0 })),
                Change::OmapSet(pairs.into()),
            )
        };
        let settle = |store: &mut Store| assert_eq!(store.settle(&disk), Ok(store.submitted()));
        let mut count = 0;
        loop {
            let mut txn = Transaction::new();
            txn.push(object(count), Change::Write { offset: 0, data: Bytes::from(vec![7; data_len]) });
            let pairs = [(Name::from("key"), Bytes::from(vec![1; omap_len]))];
            txn.push(object(count), Change::OmapSet(pairs.into()));
            match store.submit(txn) {
                Ok(_) => count += 1,
                Err(SubmitError::NoSpace { .. }) => break,
                Err(error) => panic!("{error}"),
            }
            if count % 16 == 0 {
                settle(&mut store);
            }
        }
        assert!(count > 30, "only {count} objects fit");
        // What the next one would take, twice: once in the next checkpoint and once in the one after it.
        assert!(store.statfs().available < 60_000, "{:?}", store.statfs());
        for i in 0..count {
            let mut txn = Transaction::new();
            txn.push(object(i), Change::Remove);
            txn.changes.push(log_entry(i));
            store.submit(txn).unwrap_or_else(|error| panic!("{error}, removal {i} of {count}"));
            if i < 5 {
                store.request_checkpoint();
                settle(&mut store);
                assert_eq!(store.check(), [""; 0]);
            }
        }
        settle(&mut store);
        assert_eq!(store.check(), [""; 0]);
        assert_eq!(store.statfs().stored, 0);
        let (store, _) = Store::open(&disk).unwrap();
        assert_eq!(store.check(), [""; 0]);
    }
}
