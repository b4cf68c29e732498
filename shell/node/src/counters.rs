//! What a node counts: sockets and messages, transactions, and what the disk did for them.

use crate::disk::FileDisk;
use nacre_perf::counters;
use nacre_store::{Append, Disk, DiskError};
use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant};

counters! {
    /// All of a daemon's sessions have one thread, so there is one worker.
    pub struct MessengerCounters, "AsyncMessenger::Worker-0" {
        /// Messages received
        msgr_recv_messages: Count,
        /// Messages queued for sending
        msgr_send_messages: Count,
        /// Bytes read from sockets
        msgr_recv_bytes: Bytes,
        /// Bytes written to sockets
        msgr_send_bytes: Bytes,
        /// Calls that read from a socket
        msgr_recv_calls: Count,
        /// Calls that wrote to a socket
        msgr_send_calls: Count,
        /// Sessions that were begun, dialled or accepted
        msgr_created_connections: Count,
        /// Sessions that are open
        msgr_active_connections: Gauge,
    }
}

counters! {
    /// A transaction waits for its batch, then a batch for the disk.
    pub struct StoreCounters, "store" {
        /// Transactions submitted
        txn: Count,
        /// Data that transactions asked to write, without attributes and omaps
        txn_bytes: Bytes,
        /// From a transaction's submission to its batch's beginning
        txn_queue_lat: Latency,
        /// From a transaction's submission to its being durable
        txn_lat: Latency,
        /// Batches committed
        batch: Count,
        /// From a batch's beginning to its being durable
        batch_lat: Latency,
        /// Small reads that were answered from the store's memory at once
        read_memory: Count,
        /// Small reads that were answered at once from the kernel's page cache, in part at least
        read_cached: Count,
        /// Other reads
        read: Count,
        /// From such a read's being planned to its result
        read_lat: Latency,
        /// Writes that the device was given
        disk_write: Count,
        /// Bytes of all writes: data, log and checkpoints
        disk_write_bytes: Bytes,
        /// How long a write took
        disk_write_lat: Latency,
        /// Writes that the device was given to finish before it answers
        disk_durable_write: Count,
        /// How long such a write took
        disk_durable_write_lat: Latency,
        /// Flushes that the device was asked for
        disk_flush: Count,
        /// How long a flush took
        disk_flush_lat: Latency,
        /// Space that the device was given back
        disk_discard_bytes: Bytes,
        /// Reads that the device was given
        disk_read: Count,
        /// Bytes of such reads
        disk_read_bytes: Bytes,
        /// How long a read took
        disk_read_lat: Latency,
    }
}

counters! {
    /// What a daemon's memory is used for, besides what is fixed or small. Looked at once a second.
    pub struct MemoryCounters, "memory" {
        /// What is known of the objects in the store: where their data is, attributes, omaps
        index: GaugeBytes,
        /// Data that was read or written and is kept for later reads
        cache: GaugeBytes,
        /// Data that is safe in the log and not in its place yet
        pending: GaugeBytes,
        /// Data of clients' requests that are being worked on
        received: GaugeBytes,
        /// What is to be sent and was not taken by its receiver yet
        unsent: GaugeBytes,
        /// Of the whole process: memory of large data that waits to be used again
        buffers: GaugeBytes,
    }
}

/// A disk whose calls are counted.
#[derive(Clone, Debug)]
pub(crate) struct CountedDisk {
    disk: FileDisk,
    counters: Arc<StoreCounters>,
    /// The log's. It counts together with this.
    log: Option<Arc<CountedDisk>>,
}

impl CountedDisk {
    pub(crate) fn new(disk: FileDisk, counters: Arc<StoreCounters>) -> CountedDisk {
        let log = disk.log_file().map(|log| Arc::new(CountedDisk::new(log.clone(), counters.clone())));
        CountedDisk { disk, counters, log }
    }
    /// See `FileDisk::read_cached`. The device has nothing to do with it.
    pub(crate) fn read_cached(&self, offset: u64, into: &mut [u8]) -> bool {
        self.disk.read_cached(offset, into)
    }
    pub(crate) fn fill_ahead(&self) {
        self.disk.fill_ahead();
    }
    fn count_read(&self, len: usize, read: impl FnOnce() -> Result<(), DiskError>) -> Result<(), DiskError> {
        let start = Instant::now();
        read()?;
        self.read(len, start.elapsed());
        Ok(())
    }
    /// See `FileDisk::for_append`; a write there is reported with `appended`.
    pub(crate) fn for_append(&self, append: &Append) -> Option<Arc<File>> {
        self.disk.for_append(append.offset(), append.bytes().len())
    }
    /// A durable write took so long.
    pub(crate) fn appended(&self, len: usize, took: Duration) {
        self.counters.disk_durable_write.inc();
        self.counters.disk_write_bytes.add(len as u64);
        self.counters.disk_durable_write_lat.add(took);
    }
    /// A read of the device that went past this took so long.
    pub(crate) fn read(&self, len: usize, took: Duration) {
        self.counters.disk_read.inc();
        self.counters.disk_read_bytes.add(len as u64);
        self.counters.disk_read_lat.add(took);
    }
    fn count_write(
        &self,
        len: usize,
        write: impl FnOnce() -> Result<(), DiskError>,
    ) -> Result<(), DiskError> {
        let start = Instant::now();
        write()?;
        self.written(len, start.elapsed());
        Ok(())
    }
    fn written(&self, len: usize, took: Duration) {
        self.counters.disk_write.inc();
        self.counters.disk_write_bytes.add(len as u64);
        self.counters.disk_write_lat.add(took);
    }
}

impl Disk for CountedDisk {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        self.count_read(into.len(), || self.disk.read_at(offset, into))
    }
    fn read_device_at(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        self.count_read(into.len(), || self.disk.read_device_at(offset, into))
    }
    /// Each counts with its share of the time.
    fn read_many(&self, reads: &mut [(u64, &mut [u8])]) -> Result<(), DiskError> {
        let start = Instant::now();
        self.disk.read_many(reads)?;
        let share = start.elapsed() / u32::try_from(reads.len().max(1)).unwrap_or(u32::MAX);
        reads.iter().for_each(|(_, into)| self.read(into.len(), share));
        Ok(())
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.count_write(bytes.len(), || self.disk.write_at(offset, bytes))
    }
    /// Each is counted as a write, and as one that took as long as its share of all.
    fn write_many(&self, writes: &[(u64, &[u8])]) -> Result<(), DiskError> {
        let start = Instant::now();
        self.disk.write_many(writes)?;
        let share = start.elapsed() / u32::try_from(writes.len().max(1)).unwrap_or(u32::MAX);
        writes.iter().for_each(|(_, bytes)| self.written(bytes.len(), share));
        Ok(())
    }
    fn write_durable(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        let start = Instant::now();
        self.disk.write_durable(offset, bytes)?;
        self.appended(bytes.len(), start.elapsed());
        Ok(())
    }
    fn flush(&self) -> Result<(), DiskError> {
        let start = Instant::now();
        self.disk.flush()?;
        self.counters.disk_flush.inc();
        self.counters.disk_flush_lat.add(start.elapsed());
        Ok(())
    }
    fn discard(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        self.disk.discard(offset, len)?;
        self.counters.disk_discard_bytes.add(len);
        Ok(())
    }
    fn len(&self) -> u64 {
        self.disk.len()
    }
    fn log(&self) -> Option<&dyn Disk> {
        self.log.as_deref().map(|log| log as &dyn Disk)
    }
}
