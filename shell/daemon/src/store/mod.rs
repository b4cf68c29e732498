//! `nacre store`: offline tools for the store of a stopped daemon.
//!
//! Only `import`, `mark-complete` and `fsck --repair` change the device.

mod accept;
mod check;
mod list;
mod transfer;

use anyhow::{Context, Result};
use nacre_machine::ReadError;
use nacre_node::FileDisk;
use nacre_proto::transaction::StoredId;
use nacre_store::{BLOCK, Disk, DiskError, Report, Store};
use std::fs;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[derive(clap::Subcommand)]
pub enum Command {
    /// Verify the owners of all blocks and the metadata; with --deep, also read all data.
    ///
    /// Lists what is wrong and exits with 1.
    Fsck(check::Options),
    /// Show how the space of the device is used.
    Stat(list::StatOptions),
    /// List the objects in the store.
    Ls(list::Options),
    /// Write everything in the store to a file.
    Export(transfer::Export),
    /// Read an export into a store.
    Import(transfer::Import),
    /// Declare the local copy of a placement group complete.
    ///
    /// For a placement group that is down because this OSD, the last one that had all of it, cannot tell what
    /// it has: its record is damaged, or its store lost writes. Without PGID: lists these placement groups.
    MarkComplete(accept::Options),
}

pub fn run(command: Command) -> Result<()> {
    match command {
        Command::Fsck(options) => check::fsck(&options),
        Command::Stat(options) => list::stat(&options),
        Command::Ls(options) => list::list(&options),
        Command::Export(options) => transfer::export(&options),
        Command::Import(options) => transfer::import(&options),
        Command::MarkComplete(options) => accept::mark_complete(&options),
    }
}

/// For metadata that was read.
const MEMORY: usize = 128 << 20;

#[derive(clap::Args)]
struct Where {
    /// Folder of the daemon, such as nacre-data/osd.0, or its file or device
    dir: PathBuf,
    /// Separate device of the log, if DIR is not the daemon's folder
    #[arg(long, value_name = "PATH")]
    wal: Option<PathBuf>,
}

impl Where {
    fn path(&self) -> PathBuf {
        if self.dir.is_dir() { self.dir.join("store") } else { self.dir.clone() }
    }
    fn open_disk(&self) -> Result<FileDisk> {
        open_disk(&self.path(), self.wal.as_deref())
    }
    /// Opens the store as a daemon does: metadata is read on demand.
    fn open(&self) -> Result<(Store, Arc<Unchanged>, Report)> {
        let disk = Arc::new(Unchanged::new(self.open_disk()?));
        let (store, report) = open_paged(disk.clone()).with_context(|| self.unusable())?;
        Ok((store, disk, report))
    }
    fn unusable(&self) -> String {
        format!("cannot use {}", self.path().display())
    }
}

fn open_paged(disk: Arc<Unchanged>) -> Result<(Store, Report)> {
    let (mut store, report) = Store::open_paged(disk)?;
    store.limit_memory(MEMORY);
    Ok((store, report))
}

/// The store of a daemon that does not run, which stays as it is.
pub fn open_to_read(path: &Path) -> Result<Store> {
    let disk = Arc::new(Unchanged::new(open_disk(path, None)?));
    let (store, _) = open_paged(disk).with_context(|| format!("cannot use {}", path.display()))?;
    Ok(store)
}

/// A file or device for this process alone.
pub fn open_alone(path: &Path) -> Result<FileDisk> {
    FileDisk::open(path).map_err(|e| match e.kind() {
        io::ErrorKind::ResourceBusy => {
            anyhow::anyhow!(
                "{} is in use: a daemon runs on it (stop it with `nacre stop` or `nacre down`), or it is \
                 mounted",
                path.display()
            )
        }
        _ => anyhow::Error::new(e).context(format!("cannot open {}", path.display())),
    })
}

/// A store's file or device, with that of its log if it has one: `wal`, or what the link beside it says.
pub fn open_disk(path: &Path, wal: Option<&Path>) -> Result<FileDisk> {
    let disk = open_alone(path)?;
    let beside = wal_of(path);
    let wal = match wal {
        Some(wal) => Some(wal.to_path_buf()),
        // Also if it leads nowhere: then that is what is wrong.
        None => fs::symlink_metadata(&beside).is_ok().then(|| fs::read_link(&beside).unwrap_or(beside)),
    };
    Ok(match wal {
        Some(wal) => disk.with_log(open_alone(&wal).context("the device of the store's log")?),
        None => disk,
    })
}

/// The link to the device of a store's log.
pub fn wal_of(store: &Path) -> PathBuf {
    store.with_extension("wal")
}

/// A disk that stays as it is. Opening a store renews what is damaged of its superblocks, and does not
/// read that again.
struct Unchanged(FileDisk, Option<Box<Unchanged>>);

impl Unchanged {
    fn new(disk: FileDisk) -> Unchanged {
        let log = disk.log_file().cloned().map(|log| Box::new(Unchanged::new(log)));
        Unchanged(disk, log)
    }
}

impl Disk for Unchanged {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        self.0.read_at(offset, into)
    }
    fn write_at(&self, _: u64, _: &[u8]) -> Result<(), DiskError> {
        Ok(())
    }
    fn flush(&self) -> Result<(), DiskError> {
        Ok(())
    }
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn log(&self) -> Option<&dyn Disk> {
        self.1.as_deref().map(|log| log as &dyn Disk)
    }
}

/// Makes everything durable that was submitted.
pub fn settle(store: &mut Store, disk: &FileDisk, path: &Path) -> Result<()> {
    store.settle(disk).with_context(|| format!("cannot write {}", path.display())).map(drop)
}

/// What a store is whose import stopped half way.
pub const HALF_IMPORTED: &str = "an import into it was interrupted, so data is missing: run `nacre store import --force` again to the \
     end";

/// An error, behind the name of what it is about.
fn without_id(id: &StoredId, error: &ReadError) -> String {
    let text = error.to_string();
    text.strip_prefix(&format!("{id}: ")).unwrap_or(&text).to_string()
}

/// Progress of long work, on a terminal.
struct Progress {
    what: &'static str,
    total: u64,
    shown: Instant,
    shows: bool,
}

impl Progress {
    const EVERY: Duration = Duration::from_millis(200);

    /// `total` is in bytes; zero if it is not known.
    fn new(what: &'static str, total: u64) -> Progress {
        Progress { what, total, shown: Instant::now(), shows: io::stderr().is_terminal() }
    }
    fn at(&mut self, done: u64) {
        if !self.shows || self.shown.elapsed() < Progress::EVERY {
            return;
        }
        self.shown = Instant::now();
        match self.total {
            0 => eprint!("\r{}: {} MiB", self.what, done >> 20),
            total => eprint!("\r{}: {:3} % of {} MiB", self.what, done * 100 / total, total >> 20),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shows {
            eprint!("\r{:60}\r", "");
        }
    }
}

fn blocks(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK as u64)
}
