//! A daemon's disk: a file or block device, one thread that commits batches, a few that read.

use nacre_machine::{ReadError, Token};
use nacre_store::{BLOCK, Batch, Disk, DiskError, ReadPlan};
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use tokio::sync::mpsc::UnboundedSender;

/// Reads that may be under way at once.
const READERS: usize = 2;

/// A sparse file gets its space in pieces of this many bytes, filled with zeros. Otherwise every small
/// write would make the file system allocate, and every flush commit its journal.
const PIECE: u64 = 1 << 20;
/// A write of this many bytes bears the cost of its own allocation: zeros around it would only be more
/// to copy.
const LARGE: u64 = 128 << 10;

/// A store on a file or a block device, through the page cache.
#[derive(Clone, Debug)]
pub struct FileDisk {
    file: Arc<File>,
    len: u64,
    /// For each `PIECE`, whether anything was ever written there. Only the writer changes it.
    filled: Arc<Mutex<Vec<bool>>>,
}

impl FileDisk {
    /// Creates a sparse file of `len` bytes, which must not exist yet.
    pub fn create(path: &Path, len: u64) -> io::Result<FileDisk> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
        file.set_len(len)?;
        file.sync_all()?;
        FileDisk::new(file, len)
    }

    /// Opens what `create` made, for this process alone.
    pub fn open(path: &Path) -> io::Result<FileDisk> {
        let mut file = OpenOptions::new().read(true).write(true).open(path)?;
        file.try_lock().map_err(|e| io::Error::new(io::ErrorKind::ResourceBusy, e))?;
        // A block device says its size only this way.
        let len = io::Seek::seek(&mut file, io::SeekFrom::End(0))?;
        FileDisk::new(file, len)
    }

    fn new(file: File, len: u64) -> io::Result<FileDisk> {
        let len = len / BLOCK as u64 * BLOCK as u64;
        let filled = pieces_with_data(&file, len)?;
        Ok(FileDisk { file: Arc::new(file), len, filled: Arc::new(Mutex::new(filled)) })
    }

    /// Writes zeros around a small write into pieces that hold nothing yet.
    fn fill(&self, offset: u64, len: u64) -> io::Result<()> {
        let mut filled = self.filled.lock().expect("the writer does not panic");
        let end = offset + len;
        for piece in offset / PIECE..end.div_ceil(PIECE) {
            if std::mem::replace(&mut filled[piece as usize], true) || len >= LARGE {
                continue;
            }
            let (from, to) = (piece * PIECE, (piece * PIECE + PIECE).min(self.len));
            let zeros = vec![0; PIECE as usize];
            for (from, to) in [(from, offset.max(from)), (end.min(to), to)] {
                self.file.write_all_at(&zeros[..to.saturating_sub(from) as usize], from)?;
            }
        }
        Ok(())
    }
}

fn pieces_with_data(file: &File, len: u64) -> io::Result<Vec<bool>> {
    let mut filled = vec![false; len.div_ceil(PIECE) as usize];
    let mut at = 0;
    while at < len {
        let data = match seek(file, SeekFrom::Data(at)) {
            Ok(data) => data.min(len),
            Err(Errno::NXIO) => break, // none behind here
            // No such question to this kind of file: then it has no holes.
            Err(Errno::INVAL) => 0,
            Err(e) => return Err(e.into()),
        };
        let hole = seek(file, SeekFrom::Hole(data)).unwrap_or(len).min(len);
        filled[(data / PIECE) as usize..hole.div_ceil(PIECE) as usize].fill(true);
        at = hole.max(at + 1);
    }
    Ok(filled)
}

fn failed(op: &'static str, offset: u64, len: usize) -> impl FnOnce(io::Error) -> DiskError {
    move |e| DiskError { op, offset, len: len as u64, why: e.to_string() }
}

impl Disk for FileDisk {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        let len = into.len();
        self.file.read_exact_at(into, offset).map_err(failed("read", offset, len))
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        let write = || {
            self.fill(offset, bytes.len() as u64)?;
            self.file.write_all_at(bytes, offset)
        };
        write().map_err(failed("write", offset, bytes.len()))
    }
    fn flush(&self) -> Result<(), DiskError> {
        self.file.sync_data().map_err(failed("flush", 0, 0))
    }
    fn len(&self) -> u64 {
        self.len
    }
}

/// What the threads report to the daemon's thread.
pub(crate) enum Done {
    Committed(Result<nacre_store::Done, DiskError>),
    Read { token: Token, result: Result<Vec<bytes::Bytes>, ReadError> },
}

pub(crate) type Sender = UnboundedSender<Done>;

/// They end when this is dropped and what they were given is done.
pub(crate) struct DiskThreads {
    batches: mpsc::Sender<Batch>,
    reads: mpsc::Sender<(Token, ReadPlan)>,
}

impl DiskThreads {
    pub(crate) fn start(name: &str, disk: FileDisk, done: Sender) -> DiskThreads {
        let (batches, work) = mpsc::channel::<Batch>();
        let (to, writer) = (done.clone(), disk.clone());
        spawn(format!("{name} write"), move || {
            for batch in work {
                // Nobody listens any more: the daemon is gone, and so is the need.
                if to.send(Done::Committed(batch.commit(&writer))).is_err() {
                    return;
                }
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
                    if to.send(Done::Read { token, result: plan.run(&disk) }).is_err() {
                        return;
                    }
                }
            });
        }
        DiskThreads { batches, reads }
    }

    pub(crate) fn commit(&self, batch: Batch) {
        self.batches.send(batch).expect("the writer lives as long as this");
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
    fn space_comes_in_pieces_and_what_was_written_stays() {
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
}
