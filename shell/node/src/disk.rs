//! A daemon's disk: a file or block device, one thread that commits batches, one that brings to its place
//! what is safe in the log, a few that read.

use crate::counters::CountedDisk;
use crate::parts::Parts;
use crate::requests::Requests;
use crate::ring::{Ring, with_ring};
use bytes::Bytes;
use nacre_base::Buffer;
use nacre_machine::{ReadError, Token};
use nacre_store::{
    Append, BLOCK, Batch, DeferredDone, DeferredWrites, Discard, Discarded, Disk, DiskError, Fetched,
    ReadPlan,
};
use rustix::fs::{Advice, FallocateFlags, OFlags, SeekFrom, fadvise, fallocate, seek};
use rustix::io::{Errno, ReadWriteFlags, preadv2, pwritev2};
use rustix::ioctl;
use std::cell::RefCell;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;

/// Reads that may be under way at once.
const READERS: usize = 8;

/// A sparse file gets its space in pieces of this many bytes, filled with zeros. Otherwise every small
/// write would make the file system allocate, and every flush commit its journal.
const PIECE: u64 = 1 << 20;
/// This many pieces in front of the log are filled by the thread that places blocks.
const AHEAD: usize = 16;
/// A write of this many bytes bears the cost of its own allocation: zeros around it would only be more
/// to write. A read of this many goes past the page cache.
const LARGE: usize = 128 << 10;
/// A process that is just ending has its store a moment longer than it says that it runs.
const ENDING: Duration = Duration::from_secs(2);
/// What is not aligned is copied in pieces of this many bytes on its way to the device.
const BOUNCE: usize = 1 << 20;

/// What pieces are filled with, from where a device can take it.
#[repr(align(4096))]
struct Zeros([u8; 64 << 10]);
static ZEROS: Zeros = Zeros([0; 64 << 10]);
/// This many of them are written at a time.
const ZERO_PARTS: usize = 16;

/// A store on a file or a block device.
///
/// Everything is written directly from memory to the device, and large reads come directly from it: in the
/// page cache their bytes would be copied once more and push out others. Small reads go through the page
/// cache, which the kernel keeps true to what was written directly.
#[derive(Clone, Debug)]
pub struct FileDisk {
    file: Arc<File>,
    /// The same file past the page cache; None where the file system has none.
    direct: Option<Arc<File>>,
    len: u64,
    space: Space,
    pieces: Arc<Pieces>,
    /// What the log is on, if not on this.
    log: Option<Arc<FileDisk>>,
}

/// How space for the bytes is allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Space {
    /// In a sparse file, in which free ranges become holes.
    Sparse,
    /// In a preallocated file.
    Preallocated,
    /// On a block device. It has no holes, also in discarded ranges.
    Device,
}

/// What is known of each `PIECE`.
#[derive(Debug)]
struct Pieces {
    states: Mutex<Vec<Piece>>,
    /// One was filled.
    filled: Condvar,
    /// Where the last durable write was: the log continues there.
    log: AtomicU64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece {
    /// Nothing was ever written there.
    Hole,
    /// Being filled: others wait.
    Filling,
    Filled,
}

impl FileDisk {
    /// Creates a sparse file of `len` bytes, which must not exist yet.
    pub fn create(path: &Path, len: u64) -> io::Result<FileDisk> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
        file.set_len(len)?;
        file.sync_all()?;
        FileDisk::new(file, open_direct(path)?, len)
    }

    /// Opens what `create` made, for this process alone.
    pub fn open(path: &Path) -> io::Result<FileDisk> {
        let patience = Instant::now() + ENDING;
        let mut file = patiently(patience, || open_exclusively(path))?;
        let direct = open_direct(path)?;
        // Of the two the one that is written to: what a process that was killed had under way holds on to it.
        let locked = direct.as_deref().unwrap_or(&file);
        patiently(patience, || match locked.try_lock() {
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::ResourceBusy.into()),
            Err(TryLockError::Error(error)) => Err(error),
            Ok(()) => Ok(()),
        })?;
        // A block device says its size only this way.
        let len = io::Seek::seek(&mut file, io::SeekFrom::End(0))?;
        FileDisk::new(file, direct, len)
    }

    fn new(file: File, direct: Option<Arc<File>>, len: u64) -> io::Result<FileDisk> {
        let len = len / BLOCK as u64 * BLOCK as u64;
        let is_device = file.metadata()?.file_type().is_block_device();
        let space = if is_device { Space::Device } else { Space::Sparse };
        let states = Mutex::new(pieces_with_data(&file, len)?);
        let pieces = Arc::new(Pieces { states, filled: Condvar::new(), log: AtomicU64::new(0) });
        // Reading ahead of small reads all over the device only costs.
        fadvise(&file, 0, None, Advice::Random)?;
        Ok(FileDisk { file: Arc::new(file), direct, len, space, pieces, log: None })
    }

    /// Preallocates all of a file's space.
    pub fn preallocate(&mut self) -> io::Result<()> {
        self.set_preallocated();
        for piece in 0..self.len.div_ceil(PIECE) {
            self.fill_piece(piece, piece * PIECE, 0)?;
        }
        self.file.sync_all()
    }

    /// Marks the file as preallocated: discarded ranges stay allocated.
    pub fn set_preallocated(&mut self) {
        if self.space == Space::Sparse {
            self.space = Space::Preallocated;
        }
    }

    /// With another one for the store's log.
    pub fn with_log(self, log: FileDisk) -> FileDisk {
        FileDisk { log: Some(Arc::new(log)), ..self }
    }

    /// What the log is on, if not on this.
    pub fn log_file(&self) -> Option<&FileDisk> {
        self.log.as_deref()
    }

    /// For a thread that does not wait for the disk: reads go through the page cache. None where that does
    /// not go.
    pub(crate) fn requests(&self) -> Option<Requests> {
        let why =
            |e: io::Error| tracing::info!("io_uring is not available, threads do the disk I/O instead: {e}");
        Requests::new(self.file.clone()).map_err(why).ok()
    }

    /// What to write an aligned piece of the log to; None if that takes more than the write.
    pub(crate) fn for_append(&self, offset: u64, len: usize) -> Option<Arc<File>> {
        if let Some(log) = &self.log {
            return log.for_append(offset, len);
        }
        let pieces = (offset / PIECE) as usize..(offset + len as u64).div_ceil(PIECE) as usize;
        let states = self.pieces.states.lock().expect("no thread panics with it");
        let is_filled = states[pieces].iter().all(|piece| *piece == Piece::Filled);
        self.pieces.log.store(offset, Ordering::Relaxed);
        self.direct.clone().filter(|_| is_filled)
    }

    /// Like `read_at`, but only what is in memory already: false if that is not all. (Then the kernel begins
    /// to bring it there.)
    pub(crate) fn read_cached(&self, offset: u64, into: &mut [u8]) -> bool {
        let len = into.len();
        preadv2(&self.file, &mut [IoSliceMut::new(into)], offset, ReadWriteFlags::NOWAIT) == Ok(len)
    }

    /// Writes zeros around a small write into pieces that hold nothing yet.
    fn fill(&self, offset: u64, len: u64) -> io::Result<()> {
        for piece in offset / PIECE..(offset + len).div_ceil(PIECE) {
            self.fill_piece(piece, offset, len)?;
        }
        Ok(())
    }

    fn fill_piece(&self, piece: u64, offset: u64, len: u64) -> io::Result<()> {
        let mut states = self.pieces.states.lock().expect("no thread panics with it");
        while states[piece as usize] == Piece::Filling {
            states = self.pieces.filled.wait(states).expect("no thread panics with it");
        }
        let is_hole = states[piece as usize] == Piece::Hole;
        if !is_hole || len >= LARGE as u64 {
            states[piece as usize] = Piece::Filled;
            return Ok(());
        }
        states[piece as usize] = Piece::Filling;
        drop(states);
        let (from, to) = (piece * PIECE, (piece * PIECE + PIECE).min(self.len));
        let around = [(from, offset.clamp(from, to)), ((offset + len).clamp(from, to), to)];
        let written = around.into_iter().try_for_each(|(from, to)| self.write_zeros(from, to));
        self.pieces.states.lock().expect("no thread panics with it")[piece as usize] = Piece::Filled;
        self.pieces.filled.notify_all();
        written
    }

    fn write_zeros(&self, mut from: u64, to: u64) -> io::Result<()> {
        let file = self.direct.as_ref().unwrap_or(&self.file);
        while from < to {
            let part = &ZEROS.0[..ZEROS.0.len().min((to - from) as usize)];
            let count = ((to - from) as usize / part.len()).min(ZERO_PARTS);
            match pwritev2(file, &[IoSlice::new(part); ZERO_PARTS][..count], from, ReadWriteFlags::empty()) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => from += written as u64,
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    /// Fills the next pieces that the log will come to, so that no small write has to. A failure is met
    /// again by the next write there.
    pub(crate) fn fill_ahead(&self) {
        if let Some(log) = &self.log {
            return log.fill_ahead();
        }
        let first = self.pieces.log.load(Ordering::Relaxed) / PIECE;
        for piece in (first..self.len.div_ceil(PIECE)).take(AHEAD) {
            let _ = self.fill_piece(piece, piece * PIECE, 0);
        }
    }

    /// Several at a time with a ring, one after the other without.
    fn write_by(&self, ring: Option<&mut Ring>, writes: &[(u64, &[u8])]) -> Result<(), DiskError> {
        let one_by_one = |writes: &[(u64, &[u8])]| {
            writes.iter().try_for_each(|(offset, bytes)| self.write_at(*offset, bytes))
        };
        let (Some(ring), Some(direct)) = (ring, &self.direct) else { return one_by_one(writes) };
        let (aligned, others): (Vec<_>, Vec<_>) = writes.iter().partition(|(_, bytes)| is_aligned(bytes));
        for (offset, bytes) in &aligned {
            self.fill(*offset, bytes.len() as u64).map_err(failed("write", *offset, bytes.len()))?;
        }
        for (at, written, error) in ring.write(direct, &aligned) {
            let (offset, bytes) = aligned[at];
            let rest = match error {
                Some(error) => Err(error),
                None => {
                    write_all(direct, offset + written as u64, &bytes[written..], ReadWriteFlags::empty())
                }
            };
            rest.map_err(failed("write", offset, bytes.len()))?;
        }
        one_by_one(&others)
    }

    /// Several at a time with a ring, one after the other without.
    fn read_by(&self, ring: Option<&mut Ring>, reads: &mut [(u64, &mut [u8])]) -> Result<(), DiskError> {
        let one_by_one = |reads: &mut [(u64, &mut [u8])]| {
            reads.iter_mut().try_for_each(|(offset, into)| self.read_at(*offset, into))
        };
        let Some(ring) = ring else { return one_by_one(reads) };
        let is_cached = |offset: u64, into: &mut [u8]| into.len() < LARGE && self.read_cached(offset, into);
        let missing = reads
            .iter_mut()
            .filter_map(|(offset, into)| (!is_cached(*offset, into)).then_some((*offset, &mut **into)));
        let mut missing: Vec<(u64, &mut [u8])> = missing.collect();
        let len: usize = missing.iter().map(|(_, into)| into.len()).sum();
        let is_direct = len >= LARGE && missing.iter().all(|(_, into)| is_aligned(into));
        let file = self.direct.as_ref().filter(|_| is_direct).unwrap_or(&self.file);
        if missing.len() == 1 {
            return one_by_one(&mut missing);
        }
        for (at, read, error) in ring.read(file, &mut missing) {
            let (offset, into) = &mut missing[at];
            let rest = match error {
                Some(error) => Err(error),
                None => self.file.read_exact_at(&mut into[read..], *offset + read as u64),
            };
            rest.map_err(failed("read", *offset, into.len()))?;
        }
        Ok(())
    }

    fn write(&self, mut offset: u64, bytes: &[u8], how: ReadWriteFlags) -> io::Result<()> {
        let Some(direct) = &self.direct else {
            return write_all(&self.file, offset, bytes, how);
        };
        if is_aligned(bytes) {
            return write_all(direct, offset, bytes, how);
        }
        BOUNCE_BUFFER.with_borrow_mut(|buffer| {
            if buffer.is_empty() {
                *buffer = vec![0; BOUNCE + BLOCK];
            }
            let start = buffer.as_ptr().align_offset(BLOCK);
            for part in bytes.chunks(BOUNCE) {
                let copy = &mut buffer[start..start + part.len()];
                copy.copy_from_slice(part);
                write_all(direct, offset, copy, how)?;
                offset += part.len() as u64;
            }
            Ok(())
        })
    }
}

/// Tells a block device that this is free; what it reads as afterwards is undefined. Not
/// `fallocate`, with which a disk that can only forget by writing zeros would do that.
pub fn forget(device: &File, offset: u64, len: u64) -> Result<(), Errno> {
    #[allow(unsafe_code)] // the argument is what that call takes, and is only read
    unsafe {
        ioctl::ioctl(device, ioctl::Setter::<BLKDISCARD, [u64; 2]>::new([offset, len]))
    }
}
const BLKDISCARD: ioctl::Opcode = ioctl::opcode::none(0x12, 119);

/// A block device is refused while a file system, another volume or another daemon is on it.
fn open_exclusively(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    if fs::metadata(path)?.file_type().is_block_device() {
        options.custom_flags(OFlags::EXCL.bits() as i32);
    }
    options.open(path)
}

/// Retries until then what fails because another process has it.
fn patiently<T>(until: Instant, mut what: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match what() {
            Err(e) if e.kind() == io::ErrorKind::ResourceBusy && Instant::now() < until => {
                thread::sleep(ENDING / 100);
            }
            done => return done,
        }
    }
}

/// Past the page cache; None where the file system has none.
fn open_direct(path: &Path) -> io::Result<Option<Arc<File>>> {
    let flags = OFlags::DIRECT.bits() as i32;
    match OpenOptions::new().read(true).write(true).custom_flags(flags).open(path) {
        Ok(direct) => Ok(Some(Arc::new(direct))),
        Err(e) if e.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => Ok(None),
        Err(e) => Err(e),
    }
}

thread_local! {
    static BOUNCE_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Whether a device can take it from where it is.
fn is_aligned(bytes: &[u8]) -> bool {
    bytes.as_ptr().align_offset(BLOCK) == 0
}

fn write_all(file: &File, mut offset: u64, mut bytes: &[u8], how: ReadWriteFlags) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = match pwritev2(file, &[IoSlice::new(bytes)], offset, how) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => written,
            Err(Errno::INTR) => 0,
            Err(e) => return Err(e.into()),
        };
        bytes = &bytes[written..];
        offset += written as u64;
    }
    Ok(())
}

fn pieces_with_data(file: &File, len: u64) -> io::Result<Vec<Piece>> {
    let mut states = vec![Piece::Hole; len.div_ceil(PIECE) as usize];
    let mut at = 0;
    while at < len {
        let data = match seek(file, SeekFrom::Data(at)) {
            Ok(data) => data.min(len),
            Err(Errno::NXIO) => break, // no data behind `at`
            // This kind of file does not support SEEK_DATA: it has no holes.
            Err(Errno::INVAL) => 0,
            Err(e) => return Err(e.into()),
        };
        let hole = seek(file, SeekFrom::Hole(data)).unwrap_or(len).min(len);
        states[(data / PIECE) as usize..hole.div_ceil(PIECE) as usize].fill(Piece::Filled);
        at = hole.max(at + 1);
    }
    Ok(states)
}

fn failed(op: &'static str, offset: u64, len: usize) -> impl FnOnce(io::Error) -> DiskError {
    move |e| DiskError { op, offset, len: len as u64, why: e.to_string() }
}

impl Disk for FileDisk {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        let len = into.len();
        let file = match &self.direct {
            Some(direct) if len >= LARGE && is_aligned(into) => direct,
            _ => &self.file,
        };
        file.read_exact_at(into, offset).map_err(failed("read", offset, len))
    }
    fn read_device_at(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        let len = into.len();
        // What the page cache has not written yet, the kernel writes before it reads.
        let file = self.direct.as_ref().filter(|_| is_aligned(into)).unwrap_or(&self.file);
        file.read_exact_at(into, offset).map_err(failed("read", offset, len))
    }
    /// What is in the page cache comes from there; the rest past it, if it is much.
    fn read_many(&self, reads: &mut [(u64, &mut [u8])]) -> Result<(), DiskError> {
        match reads {
            [(offset, into)] => self.read_at(*offset, into),
            reads => with_ring(|ring| self.read_by(ring, reads)),
        }
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        let written = self.fill(offset, bytes.len() as u64);
        let written = written.and_then(|()| self.write(offset, bytes, ReadWriteFlags::empty()));
        written.map_err(failed("write", offset, bytes.len()))
    }
    fn write_many(&self, writes: &[(u64, &[u8])]) -> Result<(), DiskError> {
        with_ring(|ring| self.write_by(ring, writes))
    }
    fn write_durable(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.pieces.log.store(offset, Ordering::Relaxed);
        let written = self.fill(offset, bytes.len() as u64);
        let written = written.and_then(|()| self.write(offset, bytes, ReadWriteFlags::DSYNC));
        written.map_err(failed("durable write", offset, bytes.len()))
    }
    fn flush(&self) -> Result<(), DiskError> {
        self.file.sync_data().map_err(failed("flush", 0, 0))
    }
    /// Punches holes into a file, unless it is preallocated. Discards the range on a block device that can.
    fn discard(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let done = match self.space {
            Space::Preallocated => return Ok(()),
            Space::Device => forget(&self.file, offset, len),
            Space::Sparse => fallocate(&self.file, how, offset, len),
        };
        match done {
            Ok(()) => {}
            // What cannot forget keeps it.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY) => return Ok(()),
            Err(e) => return Err(failed("discard", offset, len as usize)(e.into())),
        }
        if self.space == Space::Device {
            return Ok(());
        }
        let mut states = self.pieces.states.lock().expect("no thread panics with it");
        // Less than a piece, or parts of two, leaves none that is all hole.
        let whole = offset.div_ceil(PIECE)..(offset + len) / PIECE;
        whole.for_each(|piece| states[piece as usize] = Piece::Hole);
        Ok(())
    }
    fn len(&self) -> u64 {
        self.len
    }
    fn log(&self) -> Option<&dyn Disk> {
        self.log.as_deref().map(|log| log as &dyn Disk)
    }
}

/// What the threads report to the daemon's thread.
pub(crate) enum Done {
    Committed(Result<nacre_store::Done, DiskError>),
    Deferred(Result<DeferredDone, DiskError>),
    Discarded(Discarded),
    Read { token: Token, result: Result<(Vec<Bytes>, Fetched), ReadError> },
}

pub(crate) type Sender = UnboundedSender<Done>;

enum Commit {
    Batch(Box<Batch>),
    Append(Append),
}

/// What one thread does, one after the other.
enum Background {
    Place(DeferredWrites),
    Discard(Discard),
}

/// They end when this is dropped and what they were given is done.
pub(crate) struct DiskThreads {
    pub(crate) disk: CountedDisk,
    batches: mpsc::Sender<Commit>,
    background: mpsc::Sender<Background>,
    reads: mpsc::Sender<(Token, ReadPlan)>,
}

impl DiskThreads {
    pub(crate) fn start(name: &str, disk: CountedDisk, done: Sender) -> DiskThreads {
        let (to, writer) = (done.clone(), disk.clone());
        let (batches, work) = mpsc::channel::<Commit>();
        spawn(format!("{name} write"), move || {
            for commit in work {
                let done = match commit {
                    Commit::Batch(batch) => batch.commit(&writer),
                    Commit::Append(append) => append.commit(&writer),
                };
                // The daemon is gone, and does not need the answer.
                if to.send(Done::Committed(done)).is_err() {
                    return;
                }
            }
        });
        let (to, writer) = (done.clone(), disk.clone());
        let (background, work) = mpsc::channel::<Background>();
        spawn(format!("{name} place"), move || {
            // As often as the log moves on: what is placed was in it.
            writer.fill_ahead();
            for next in work {
                let done = match next {
                    Background::Place(placing) => Done::Deferred(placing.run(&writer)),
                    Background::Discard(discard) => Done::Discarded(discard.run(&writer)),
                };
                if to.send(done).is_err() {
                    return;
                }
                writer.fill_ahead();
            }
        });
        let (reads, work) = mpsc::channel::<(Token, ReadPlan)>();
        let work = Arc::new(Mutex::new(work));
        for n in 0..READERS {
            let (to, disk, work) = (done.clone(), disk.clone(), work.clone());
            spawn(format!("{name} read{n}"), move || {
                loop {
                    let next = work.lock().expect("readers do not panic").recv();
                    let Ok((token, plan)) = next else { return };
                    if to
                        .send(Done::Read {
                            token,
                            result: plan.run_fetching(|reads| plan.read_from(&disk, reads)),
                        })
                        .is_err()
                    {
                        return;
                    }
                }
            });
        }
        DiskThreads { disk, batches, background, reads }
    }

    /// Reads a little at once if all of it is in memory: cheaper than waking another thread.
    pub(crate) fn read_cached(&self, plan: &ReadPlan) -> Option<(Vec<Bytes>, Fetched)> {
        if !plan.is_small() {
            return None;
        }
        let mut parts = Parts::new(plan.spans());
        let is_here = |(offset, bytes): &mut (u64, Buffer)| self.disk.read_cached(*offset, bytes.as_mut());
        parts.0.iter_mut().all(is_here).then(|| plan.run_fetching(|wanted| parts.read(wanted)).ok())?
    }
    /// On the calling thread, which waits for the device.
    pub(crate) fn commit_here(&self, batch: Batch) -> Done {
        Done::Committed(batch.commit(&self.disk))
    }
    pub(crate) fn commit(&self, batch: Batch) {
        self.batches.send(Commit::Batch(Box::new(batch))).expect("the writer lives as long as this");
    }
    pub(crate) fn append(&self, append: Append) {
        self.batches.send(Commit::Append(append)).expect("the writer lives as long as this");
    }
    pub(crate) fn place(&self, placing: DeferredWrites) {
        self.background.send(Background::Place(placing)).expect("the placing thread lives as long as this");
    }
    pub(crate) fn discard(&self, discard: Discard) {
        self.background.send(Background::Discard(discard)).expect("the placing thread lives as long as this");
    }
    pub(crate) fn read(&self, token: Token, plan: ReadPlan) {
        self.reads.send((token, plan)).expect("the readers live as long as this");
    }
}

fn spawn(name: String, work: impl FnOnce() + Send + 'static) {
    thread::Builder::new().name(name).spawn(work).expect("the system gives a daemon its threads");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parallel_writes_equal_sequential_ones() {
        let dir = tempfile::tempdir().unwrap();
        let mut images = Vec::new();
        for name in ["ring", "plain"] {
            let disk = FileDisk::create(&dir.path().join(name), 8 * PIECE).unwrap();
            let mut buffer = nacre_base::Buffer::new(3 * PIECE as usize);
            buffer.as_mut().iter_mut().enumerate().for_each(|(at, byte)| *byte = (at / 512) as u8);
            let bytes = buffer.as_ref();
            // More than are under way at a time, long and short ones, and one from where a device cannot take
            // it.
            let mut writes: Vec<(u64, &[u8])> = (0..100)
                .map(|n| (PIECE + n * 12288, &bytes[n as usize * 4096..][..4096 * (1 + n as usize % 3)]))
                .collect();
            writes.push((4 * PIECE, bytes));
            let odd: Vec<u8> = vec![7; 4096 + 64];
            let shift = (0..64).find(|shift| !is_aligned(&odd[*shift..])).unwrap();
            writes.push((0, &odd[shift..shift + 4096]));
            match name {
                "ring" => disk.write_many(&writes).unwrap(),
                _ => disk.write_by(None, &writes).unwrap(),
            }
            let mut image = vec![0; 8 * PIECE as usize];
            disk.read_at(0, &mut image).unwrap();
            images.push(image);
        }
        assert!(images[0] == images[1]);
    }

    #[test]
    fn several_reads_at_a_time_read_what_one_after_the_other_would() {
        let dir = tempfile::tempdir().unwrap();
        let disk = FileDisk::create(&dir.path().join("disk"), 8 * PIECE).unwrap();
        let image: Vec<u8> = (0..8 * PIECE).map(|at| (at / 512 % 251) as u8).collect();
        disk.write_at(0, &image).unwrap();
        // Scattered blocks, some of them in the page cache: few, and more than are under way at a time; with
        // long ones, from memory that a device can write to, and not.
        for (count, long, shift) in [(2, 0, 0), (5, 0, 0), (100, 0, 0), (100, 3, 0), (60, 0, 64)] {
            let places = |n: u64| PIECE + n * 12288;
            (0..count).step_by(3).for_each(|n| disk.read_at(places(n), &mut [0; 4096]).unwrap());
            let lens = (0..count).map(|n| if n < long { LARGE + 4096 } else { 4096 * (1 + n as usize % 2) });
            let lens: Vec<usize> = lens.collect();
            for has_ring in [true, false] {
                let mut buffer = nacre_base::Buffer::new(lens.iter().sum::<usize>() + shift);
                let mut rest = &mut buffer.as_mut()[shift..];
                let mut reads: Vec<(u64, &mut [u8])> = Vec::new();
                for (n, len) in (0..).zip(&lens) {
                    reads.push((places(n), rest.split_off_mut(..*len).unwrap()));
                }
                match has_ring {
                    true => disk.read_many(&mut reads).unwrap(),
                    false => disk.read_by(None, &mut reads).unwrap(),
                }
                assert!(reads.iter().all(|(at, read)| **read == image[*at as usize..][..read.len()]));
            }
        }
    }

    #[test]
    fn one_failed_read_among_several_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        let disk = FileDisk::create(&path, 8 * PIECE).unwrap();
        // It became shorter behind our back.
        File::options().write(true).open(&path).unwrap().set_len(4 * PIECE).unwrap();
        let mut buffer = nacre_base::Buffer::new(60 * 4096);
        let blocks = buffer.as_mut().chunks_exact_mut(4096);
        let mut reads: Vec<(u64, &mut [u8])> = (0..).step_by(PIECE as usize / 8).zip(blocks).collect();
        let said = disk.read_many(&mut reads).unwrap_err();
        assert_eq!((said.op, said.len), ("read", 4096));
        assert!(said.offset >= 4 * PIECE);
    }

    #[test]
    fn one_failed_write_among_several_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        drop(FileDisk::create(&path, 8 * PIECE).unwrap());
        let mut disk = FileDisk::open(&path).unwrap();
        // Opened for reading only, so that writing fails.
        disk.direct = Some(Arc::new(File::open(&path).unwrap()));
        disk.pieces.states.lock().unwrap().fill(Piece::Filled);
        let buffer = nacre_base::Buffer::new(64 << 10);
        let writes: Vec<(u64, &[u8])> = (0..60).map(|n| (n * 65536, buffer.as_ref())).collect();
        let said = disk.write_many(&writes).unwrap_err();
        assert_eq!((said.op, said.len), ("write", 65536));
    }

    #[test]
    fn a_store_that_is_being_left_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        drop(FileDisk::create(&path, PIECE).unwrap());
        let held = FileDisk::open(&path).unwrap();
        let leaving = thread::spawn(move || {
            thread::sleep(ENDING / 20);
            drop(held);
        });
        let _next = FileDisk::open(&path).unwrap();
        leaving.join().unwrap();
        assert_eq!(FileDisk::open(&path).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
    }

    #[test]
    fn file_is_allocated_in_pieces_and_keeps_data() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        let allocated = || std::os::unix::fs::MetadataExt::blocks(&path.metadata().unwrap()) * 512;
        let disk = FileDisk::create(&path, 8 * PIECE + 4096).unwrap();
        disk.write_at(PIECE - 4096, &[7; 8192]).unwrap(); // over the edge of two pieces
        disk.write_at(0, &[8; 4096]).unwrap();
        disk.write_at(8 * PIECE, &[9; 4096]).unwrap(); // the last piece is shorter
        disk.flush().unwrap();
        assert!(allocated() >= 2 * PIECE && allocated() < 4 * PIECE, "{} bytes", allocated());
        drop(disk);
        let disk = FileDisk::open(&path).unwrap();
        disk.write_at(4096, &[6; 4096]).unwrap();
        let mut whole = vec![1; disk.len() as usize];
        disk.read_at(0, &mut whole).unwrap();
        let mut expected = vec![0; disk.len() as usize];
        for (at, byte) in [(0, 8), (1, 6), (255, 7), (256, 7), (2048, 9)] {
            expected[at * 4096..][..4096].fill(byte);
        }
        assert!(whole == expected);
    }

    /// Free space does not begin where pieces do: giving back parts of two ended the thread that did it.
    #[test]
    fn parts_of_pieces_are_given_back_and_their_neighbours_stay() {
        let dir = tempfile::tempdir().unwrap();
        let disk = FileDisk::create(&dir.path().join("disk"), 4 * PIECE).unwrap();
        disk.write_at(0, &vec![7; 4 * PIECE as usize]).unwrap();
        disk.discard(PIECE - 8192, 16384).unwrap(); // of two
        disk.discard(PIECE + 16384, 4096).unwrap(); // of one
        disk.discard(2 * PIECE - 4096, PIECE + 8192).unwrap(); // one whole, and parts of both beside it
        let is_hole = |piece: usize| disk.pieces.states.lock().unwrap()[piece] == Piece::Hole;
        assert!((0..4).map(is_hole).eq([false, false, true, false]));
        disk.write_at(2 * PIECE, &[8; 4096]).unwrap();
        let mut whole = vec![1; disk.len() as usize];
        disk.read_at(0, &mut whole).unwrap();
        let mut expected = vec![7; disk.len() as usize];
        let holes = [(PIECE - 8192, 16384), (PIECE + 16384, 4096), (2 * PIECE - 4096, PIECE + 8192)];
        for (offset, len) in holes {
            expected[offset as usize..(offset + len) as usize].fill(0);
        }
        expected[2 * PIECE as usize..][..4096].fill(8);
        assert!(whole == expected);
    }

    /// Else a MiB of zeros would be written beside each small write to what was forgotten.
    #[test]
    fn what_a_block_device_forgot_is_no_hole() {
        let dir = tempfile::tempdir().unwrap();
        let file = FileDisk::create(&dir.path().join("disk"), 4 * PIECE).unwrap();
        file.write_at(0, &vec![7; 4 * PIECE as usize]).unwrap();
        let is_hole = |piece: usize| file.pieces.states.lock().unwrap()[piece] == Piece::Hole;
        FileDisk { space: Space::Device, ..file.clone() }.discard(0, PIECE).unwrap();
        assert!(!is_hole(0));
        file.discard(0, PIECE).unwrap();
        assert!(is_hole(0));
    }

    #[test]
    fn preallocated_file_keeps_all_its_space() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        let allocated = || std::os::unix::fs::MetadataExt::blocks(&path.metadata().unwrap()) * 512;
        let mut disk = FileDisk::create(&path, 4 * PIECE + 4096).unwrap();
        disk.write_at(PIECE + 4096, &[7; 4096]).unwrap();
        disk.preallocate().unwrap();
        assert!(allocated() >= 4 * PIECE + 4096, "{}", allocated());
        let mut block = [0; 4096];
        disk.read_at(PIECE + 4096, &mut block).unwrap();
        assert_eq!(block, [7; 4096]);
        disk.discard(0, 4 * PIECE).unwrap();
        drop(disk);
        let mut disk = FileDisk::open(&path).unwrap();
        disk.set_preallocated();
        disk.discard(0, 4 * PIECE).unwrap();
        assert!(allocated() >= 4 * PIECE + 4096, "{}", allocated());
        drop(disk);
        FileDisk::open(&path).unwrap().discard(0, 4 * PIECE).unwrap();
        assert!(allocated() < PIECE, "{}", allocated());
    }

    #[test]
    fn what_is_filled_ahead_of_the_log_keeps_what_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        let disk = FileDisk::create(&path, 4 * PIECE + 4096).unwrap();
        disk.write_durable(PIECE + 8192, &[7; 4096]).unwrap();
        disk.write_at(3 * PIECE, &[8; 4096]).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| disk.fill_ahead());
            scope.spawn(|| disk.write_at(2 * PIECE + 4096, &[9; 4096]).unwrap());
            scope.spawn(|| disk.fill_ahead());
        });
        let is_filled = |piece: usize| disk.pieces.states.lock().unwrap()[piece] == Piece::Filled;
        assert!(!is_filled(0) && (1..5).all(is_filled));
        let mut block = [0; 4096];
        for (at, byte) in [(PIECE, 0), (PIECE + 8192, 7), (3 * PIECE, 8), (2 * PIECE + 4096, 9)] {
            disk.read_at(at, &mut block).unwrap();
            assert_eq!(block, [byte; 4096], "at {at}");
        }
    }

    #[test]
    fn freed_blocks_are_punched_out_of_the_file() {
        use nacre_proto::transaction::{Change, StoredId, Transaction};
        use nacre_store::{Options, Store};
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        let allocated = || std::os::unix::fs::MetadataExt::blocks(&path.metadata().unwrap()) * 512;
        let disk = FileDisk::create(&path, 1 << 30).unwrap();
        Store::format(&disk, Options { uuid: [7; 16], ..Options::default() }).unwrap();
        let (mut store, _) = Store::open(&disk).unwrap();
        let mut change = |change: fn() -> Change| {
            for name in ["a", "b", "c", "d"] {
                let mut txn = Transaction::new();
                txn.push(StoredId::meta(name), change());
                store.submit(txn).unwrap();
            }
            // Nothing is given back before it is durable that it is free.
            assert!(store.take_discard().is_none());
            store.settle(&disk).unwrap();
            let mut given_back = 0;
            while let Some(discard) = store.take_discard() {
                assert_eq!(store.check(), [""; 0]);
                let done = discard.run(&disk);
                assert!(!done.refused);
                given_back += done.given_back;
                store.discarded(done);
            }
            assert_eq!(store.check(), [""; 0]);
            (given_back, allocated())
        };
        let write = || Change::Write { offset: 0, data: vec![7; 8 << 20].into() };
        let (given_back, full) = change(write);
        assert!(given_back == 0 && full >= 32 << 20);
        let (given_back, empty) = change(|| Change::Remove);
        assert!(given_back >= 30 << 20 && empty <= full - (30 << 20), "{given_back} {full} {empty}");
        let (_, again) = change(write);
        assert!(again >= 32 << 20);
    }

    #[test]
    fn small_reads_through_the_cache_see_what_was_written_past_it() {
        let dir = tempfile::tempdir().unwrap();
        let disk = FileDisk::create(&dir.path().join("disk"), 4 * PIECE).unwrap();
        let mut small = [0; 4096];
        let mut large = vec![0; 2 * PIECE as usize + 4096];
        let from = large.as_ptr().align_offset(BLOCK);
        for round in 1..4 {
            let bytes = vec![round; 2 * PIECE as usize]; // aligned nowhere, most likely
            disk.write_at(PIECE, &bytes).unwrap();
            disk.write_durable(PIECE + 8192, &[round + 100; 4096]).unwrap();
            for (at, byte) in [(4096, round), (8192, round + 100)] {
                disk.read_at(PIECE + at, &mut small).unwrap();
                assert_eq!(small, [byte; 4096]);
            }
            let large = &mut large[from..from + 2 * PIECE as usize];
            disk.read_at(PIECE, large).unwrap();
            assert!(
                large[..8192] == bytes[..8192]
                    && large[8192] == round + 100
                    && large[12288..] == bytes[12288..]
            );
        }
        // What was read just now is in memory, or the kernel says that it is not.
        disk.read_at(PIECE, &mut small).unwrap();
        if disk.read_cached(PIECE, &mut small) {
            assert_eq!(small, [3; 4096]);
        }
    }
}
