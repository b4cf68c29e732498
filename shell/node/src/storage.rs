//! A machine's store with its disk: what is submitted, read and brought to its place, and what the machine
//! sees of it.

use crate::clock;
use crate::counters::StoreCounters;
use crate::disk::{self, DiskThreads};
use crate::pace::Pace;
use crate::requests::{Asked, Finished, Requests};
use bytes::Bytes;
use nacre_base::{Name, PoolId, ShardId, Time};
use nacre_machine::{Lost, ReadError, Statfs, StoreStat, StoreView, Token};
use nacre_proto::messages::PoolSpace;
use nacre_proto::transaction::{StoredId, Transaction};
use nacre_proto::types::ObjectId;
use nacre_store::{Done, ReadPlan, Store, SubmitError, Ticket};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// A longer record is summed and written by another thread, while this one continues.
const APPEND_MAX: usize = 64 << 10;

pub(crate) struct Storage {
    pub(crate) store: Store,
    pub(crate) threads: DiskThreads,
    pub(crate) counters: Arc<StoreCounters>,
    /// Transactions that the store does not have yet, oldest first.
    held: Vec<(Token, Transaction)>,
    /// Those that it has and that are not durable, oldest first.
    waiting: VecDeque<Waiting>,
    /// What is small and the threads need not do; None if they do all.
    pub(crate) requests: Option<Requests>,
    /// Reads under way, and when each was planned.
    pub(crate) reading: BTreeMap<Token, Time>,
    /// When the batch that is with the disk was begun.
    pub(crate) began: Time,
    pub(crate) pace: Pace,
    /// A batch is with the disk; what comes meanwhile goes into the next one.
    pub(crate) committing: bool,
    /// Something is being brought to its place.
    pub(crate) placing: bool,
    /// No batch was begun since the last look.
    pub(crate) idle: bool,
}

struct Waiting {
    ticket: Ticket,
    token: Token,
    submitted: Time,
}

impl Storage {
    pub(crate) fn new(
        store: Store,
        threads: DiskThreads,
        requests: Option<Requests>,
        counters: Arc<StoreCounters>,
    ) -> Storage {
        Storage {
            store,
            threads,
            requests,
            counters,
            held: Vec::new(),
            waiting: VecDeque::new(),
            reading: BTreeMap::new(),
            began: Time::ZERO,
            pace: Pace::default(),
            committing: false,
            placing: false,
            idle: false,
        }
    }

    /// Takes a transaction for the store, which gets it with the next `submit`: what the machine says beside
    /// it is sent first, so that other daemons work on it at the same time.
    pub(crate) fn hold(&mut self, token: Token, txn: Transaction) {
        self.held.push((token, txn));
    }

    /// Submits held transactions to the store. To be called before any read of the store.
    pub(crate) fn submit(&mut self) -> Result<(), Box<SubmitError>> {
        for (token, txn) in self.held.drain(..) {
            // A machine examines the space that is left before it accepts what needs more.
            self.counters.txn.inc();
            self.counters.txn_bytes.add(txn.data_len() as u64);
            let ticket = self.store.submit(txn)?;
            self.waiting.push_back(Waiting { ticket, token, submitted: clock::mono() });
        }
        Ok(())
    }

    /// All that was to be stored is durable.
    pub(crate) fn is_quiet(&self) -> bool {
        self.held.is_empty() && self.waiting.is_empty()
    }
    /// The machine no longer gets events for durable transactions.
    pub(crate) fn give_up(&mut self) {
        self.held.clear();
        self.waiting.clear();
    }

    /// Takes note of a batch that is durable. Gives the last of what was waited for, if there is any.
    pub(crate) fn committed(&mut self, done: Done) -> Option<Token> {
        self.committing = false;
        let (durable, now) = (self.store.finished(done), clock::mono());
        self.counters.batch.inc();
        let took = now.since(self.began);
        self.counters.batch_lat.add(took);
        self.pace.committed(took);
        let mut last = None;
        while let Some(waited) = self.waiting.pop_front_if(|w| w.ticket <= durable) {
            // Submitted while the batch before was with the disk, mostly.
            self.counters.txn_queue_lat.add(self.began.since(waited.submitted));
            self.counters.txn_lat.add(now.since(waited.submitted));
            last = Some(waited.token);
        }
        last
    }

    /// Reads a little if all of it is in memory, the store's or the system's.
    pub(crate) fn read_at_once(&self, plan: &ReadPlan) -> Option<Vec<Bytes>> {
        let (read, fetched) = self.threads.read_cached(plan)?;
        let how = match plan.needs_device() {
            true => &self.counters.read_cached,
            false => &self.counters.read_memory,
        };
        how.inc();
        self.store.keep(fetched);
        Some(read)
    }

    /// Begins a read that takes the device.
    pub(crate) fn begin_read(&mut self, token: Token, plan: ReadPlan) {
        self.reading.insert(token, clock::mono());
        let left = match &mut self.requests {
            Some(requests) if plan.is_small() && !plan.is_of_device() => requests.read(token, plan),
            _ => Some(plan),
        };
        if let Some(plan) = left {
            self.threads.read(token, plan);
        }
    }

    /// What became of the requests that are complete. What failed goes to a thread, which finds out why and
    /// where.
    pub(crate) fn finished_requests(&mut self) -> Vec<disk::Done> {
        let Storage { requests: Some(requests), threads, reading, began, .. } = self else {
            return Vec::new();
        };
        let now = clock::mono();
        let done = |Finished { asked, is_whole }: Finished| match asked {
            Asked::Read { token, plan, .. } if !is_whole => {
                threads.read(token, plan);
                None
            }
            Asked::Read { token, plan, parts } => {
                let took = reading.get(&token).map_or(Duration::ZERO, |since| now.since(*since));
                parts.lens().for_each(|len| threads.disk.read(len, took));
                Some(disk::Done::Read { token, result: plan.run_fetching(|wanted| parts.read(wanted)) })
            }
            Asked::Append(append) if !is_whole => {
                threads.append(append);
                None
            }
            Asked::Append(append) => {
                threads.disk.appended(append.bytes().len(), now.since(*began));
                Some(disk::Done::Committed(Ok(append.done())))
            }
        };
        requests.finished().into_iter().filter_map(done).collect()
    }

    /// Begins to bring to its place what is only in the log, unless that is under way.
    pub(crate) fn place(&mut self) {
        if !self.placing
            && let Some(placing) = self.store.take_deferred()
        {
            self.placing = true;
            self.threads.place(placing);
        }
    }

    /// Begins a batch, unless one is with the disk: then the next one is larger. What it gives is done
    /// already.
    pub(crate) fn commit(&mut self) -> Option<disk::Done> {
        if self.committing {
            return None;
        }
        let batch = self.store.take_batch()?;
        self.idle = false;
        self.began = clock::mono();
        match &mut self.requests {
            Some(requests) if batch.cost() <= APPEND_MAX && batch.is_append() => {
                let append = batch.into_append();
                match self.threads.disk.for_append(&append) {
                    Some(file) => requests.append(append, &file),
                    None => self.threads.append(append),
                }
            }
            _ if self.reading.is_empty() && self.pace.may_block(batch.cost()) => {
                return Some(self.threads.commit_here(batch));
            }
            _ => self.threads.commit(batch),
        }
        self.committing = true;
        None
    }
}

impl StoreView for Storage {
    /// Also reads from the system's page cache: that costs less than to queue the request and to resume
    /// it.
    fn read_now(&self, id: &StoredId, extents: &[(u64, u64)]) -> Option<Vec<Bytes>> {
        if !nacre_store::is_small(extents) {
            return None;
        }
        self.read_at_once(&self.store.plan_read(id, extents).ok()?)
    }

    fn stat(&self, id: &StoredId) -> Result<Option<StoreStat>, ReadError> {
        self.store.stat(id)
    }
    fn attr(&self, id: &StoredId, name: &[u8]) -> Result<Option<Bytes>, ReadError> {
        self.store.attr(id, name)
    }
    fn attrs(&self, id: &StoredId) -> Result<BTreeMap<Name, Bytes>, ReadError> {
        self.store.attrs(id)
    }
    fn omap_header(&self, id: &StoredId) -> Result<Bytes, ReadError> {
        self.store.omap_header(id)
    }
    fn omap_get(&self, id: &StoredId, key: &[u8]) -> Result<Option<Bytes>, ReadError> {
        self.store.omap_get(id, key)
    }
    fn omap_walk(
        &self,
        id: &StoredId,
        from: &[u8],
        each: &mut dyn FnMut(&Name, &Bytes) -> bool,
    ) -> Result<(), ReadError> {
        self.store.omap_walk(id, from, each)
    }
    fn object_walk(
        &self,
        from: (ShardId, &ObjectId),
        each: &mut dyn FnMut(ShardId, &ObjectId) -> bool,
    ) -> Result<(), ReadError> {
        self.store.object_walk(from, each)
    }
    fn extents(&self, id: &StoredId, offset: u64, len: u64) -> Result<Vec<(u64, u64)>, ReadError> {
        self.store.extents(id, offset, len)
    }
    fn statfs(&self) -> Statfs {
        self.store.statfs()
    }
    fn pools(&self) -> Vec<(PoolId, PoolSpace)> {
        self.store.pools()
    }
    fn lost(&self) -> Lost {
        self.store.lost()
    }
    fn has_corrupt_metadata(&self) -> bool {
        self.store.has_corrupt_metadata()
    }
}
