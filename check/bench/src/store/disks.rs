//! Disks around a disk: one that counts, one that turns.

use nacre_store::{Disk, DiskError};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What reached a disk.
#[derive(Default)]
pub struct Counts {
    pub writes: AtomicU64,
    pub durable: AtomicU64,
    pub flushes: AtomicU64,
    pub bytes: AtomicU64,
}

impl Counts {
    /// Since the last time: durable writes, other writes, flushes, bytes.
    pub fn take(&self) -> [u64; 4] {
        [&self.durable, &self.writes, &self.flushes, &self.bytes]
            .map(|count| count.swap(0, Ordering::Relaxed))
    }
    fn add(&self, to: &AtomicU64, len: usize) {
        to.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(len as u64, Ordering::Relaxed);
    }
}

/// Counts what goes to its disk.
pub struct Counted<'a> {
    pub disk: &'a (dyn Disk + Sync),
    pub counts: &'a Counts,
}

impl Disk for Counted<'_> {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        self.disk.read_at(offset, into)
    }
    fn read_many(&self, reads: &mut [(u64, &mut [u8])]) -> Result<(), DiskError> {
        self.disk.read_many(reads)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.counts.add(&self.counts.writes, bytes.len());
        self.disk.write_at(offset, bytes)
    }
    fn write_many(&self, writes: &[(u64, &[u8])]) -> Result<(), DiskError> {
        writes.iter().for_each(|(_, bytes)| self.counts.add(&self.counts.writes, bytes.len()));
        self.disk.write_many(writes)
    }
    fn write_durable(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.counts.add(&self.counts.durable, bytes.len());
        self.disk.write_durable(offset, bytes)
    }
    fn flush(&self) -> Result<(), DiskError> {
        self.counts.add(&self.counts.flushes, 0);
        self.disk.flush()
    }
    fn len(&self) -> u64 {
        self.disk.len()
    }
}

/// One turn of 7200 in a minute.
const TURN: Duration = Duration::from_micros(8333);
/// From one track to the next, and over the whole disk.
const SEEK_MIN: Duration = Duration::from_micros(800);
const SEEK_MAX: Duration = Duration::from_micros(16_000);
/// Of one track; so the disk moves 180 MB/s at most.
const TRACK: u64 = 3 << 19;

/// Takes as long as a disk that turns, with one arm, and with its cache off for durable writes. What is
/// written without that waits for the next flush, which brings it to the platter in the order of places.
pub struct Turning<D> {
    disk: D,
    began: Instant,
    arm: Mutex<Arm>,
}

#[derive(Default)]
struct Arm {
    at: u64,
    /// Where something waits to be written, and how much.
    cached: BTreeMap<u64, u64>,
}

impl<D: Disk> Turning<D> {
    pub fn new(disk: D) -> Turning<D> {
        Turning { disk, began: Instant::now(), arm: Mutex::default() }
    }

    /// Waits as long as it takes the arm to get there, the place to come by, and the bytes to pass.
    fn visit(&self, arm: &mut Arm, offset: u64, len: u64) {
        let far = arm.at.abs_diff(offset);
        let mut wait = Duration::ZERO;
        if far / TRACK > 0 {
            let part = far as f64 / self.disk.len() as f64;
            wait += SEEK_MIN + (SEEK_MAX - SEEK_MIN).mul_f64(part.sqrt());
        }
        let angle = |offset: u64| TURN.mul_f64((offset % TRACK) as f64 / TRACK as f64);
        let there = self.began.elapsed() + wait;
        let phase = Duration::from_nanos((there.as_nanos() % TURN.as_nanos()) as u64);
        wait += match angle(offset) {
            angle if angle >= phase => angle - phase,
            angle => TURN - (phase - angle),
        };
        wait += TURN.mul_f64(len as f64 / TRACK as f64);
        arm.at = offset + len;
        // The arm is ours until then: other threads that want it wait as well.
        std::thread::sleep(wait);
    }
}

impl<D: Disk> Disk for Turning<D> {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        self.visit(&mut self.arm.lock().expect("no thread panics with it"), offset, into.len() as u64);
        self.disk.read_at(offset, into)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        let mut arm = self.arm.lock().expect("no thread panics with it");
        arm.cached.insert(offset, bytes.len() as u64);
        self.disk.write_at(offset, bytes)
    }
    fn write_durable(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.visit(&mut self.arm.lock().expect("no thread panics with it"), offset, bytes.len() as u64);
        self.disk.write_at(offset, bytes)
    }
    fn flush(&self) -> Result<(), DiskError> {
        let mut arm = self.arm.lock().expect("no thread panics with it");
        for (offset, len) in std::mem::take(&mut arm.cached) {
            self.visit(&mut arm, offset, len);
        }
        Ok(())
    }
    fn len(&self) -> u64 {
        self.disk.len()
    }
}
