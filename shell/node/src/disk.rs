//! A daemon's disk: a file or block device, one thread that commits batches, a few that read.

use nacre_machine::{ReadError, Token};
use nacre_store::{BLOCK, Batch, Disk, DiskError, ReadPlan};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use tokio::sync::mpsc::UnboundedSender;

/// Reads that may be under way at once.
const READERS: usize = 2;

/// A store on a file or a block device, through the page cache.
#[derive(Clone, Debug)]
pub struct FileDisk {
    file: Arc<File>,
    len: u64,
}

impl FileDisk {
    /// Creates a sparse file of `len` bytes, which must not exist yet.
    pub fn create(path: &Path, len: u64) -> io::Result<FileDisk> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
        file.set_len(len)?;
        file.sync_all()?;
        Ok(FileDisk { file: Arc::new(file), len: len / BLOCK as u64 * BLOCK as u64 })
    }

    /// Opens what `create` made, for this process alone.
    pub fn open(path: &Path) -> io::Result<FileDisk> {
        let mut file = OpenOptions::new().read(true).write(true).open(path)?;
        file.try_lock().map_err(|e| io::Error::new(io::ErrorKind::ResourceBusy, e))?;
        // A block device says its size only this way.
        let len = io::Seek::seek(&mut file, io::SeekFrom::End(0))?;
        Ok(FileDisk { file: Arc::new(file), len: len / BLOCK as u64 * BLOCK as u64 })
    }
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
        self.file.write_all_at(bytes, offset).map_err(failed("write", offset, bytes.len()))
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
