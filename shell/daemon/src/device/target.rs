//! What may be measured, or formatted: never what holds data, unless its owner said so.

use super::probe::LEN_MIN;
use anyhow::{Context, Result, bail, ensure};
use nacre_node::forget;
use nacre_store::{Disk, DiskError, Held};
use rustix::fs::{FallocateFlags, OFlags, SeekFrom, fallocate, fcntl_getfl, fcntl_setfl, seek, statvfs};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom as StdSeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use uuid::Uuid;

/// Of a file that is made for the measurement alone.
const FILE_LEN: u64 = 2 << 30;
/// It takes no more than such a part of the free space.
const FREE_PART: u64 = 4;
/// Looked at when it is to be told whether a device is blank: its two ends, and places in between.
const ENDS: u64 = 4 << 20;
const PLACES: u64 = 256;
const BLOCK: usize = 4096;

/// Open for reading and writing, exclusively.
#[derive(Debug)]
pub struct Target {
    pub file: File,
    pub len: u64,
    /// A file whose bytes are all allocated.
    is_allocated: bool,
}

impl Target {
    pub fn open(path: &Path, force: bool) -> Result<Target> {
        let kind = fs::metadata(path).with_context(|| format!("cannot look at {}", path.display()))?;
        if kind.is_dir() {
            return Target::in_folder(path);
        }
        let target = Target::open_any(path, force)?;
        ensure!(
            target.can_be_measured(),
            "{} has {} bytes, which is too small to measure",
            path.display(),
            target.len
        );
        Ok(target)
    }

    /// Whatever its size.
    pub fn open_any(path: &Path, force: bool) -> Result<Target> {
        let target = Target::exclusive(path)?;
        if !force {
            ensure_blank(&target.file, path)?;
        }
        Ok(target)
    }

    pub fn can_be_measured(&self) -> bool {
        self.len >= LEN_MIN
    }

    fn in_folder(path: &Path) -> Result<Target> {
        Target::scratch(path, FILE_LEN)
    }

    /// A file without a name: it is gone when the process is, however that ends.
    pub fn scratch(folder: &Path, len_max: u64) -> Result<Target> {
        let space = statvfs(folder).with_context(|| format!("cannot look at {}", folder.display()))?;
        let len = (space.f_bavail * space.f_frsize / FREE_PART).min(len_max);
        ensure!(len >= LEN_MIN, "there is not enough free space in {}", folder.display());
        let cannot = || format!("cannot make a file in {}", folder.display());
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o600);
        let unnamed = options.clone().custom_flags(OFlags::TMPFILE.bits() as i32).open(folder);
        let file = match unnamed {
            Ok(file) => file,
            // The file system has no files without names.
            Err(_) => {
                let name = folder.join(format!(".nacre-device-check-{}", std::process::id()));
                let file = options.create_new(true).open(&name).with_context(cannot)?;
                fs::remove_file(&name).with_context(|| format!("cannot remove {}", name.display()))?;
                file
            }
        };
        // Where the file system cannot, the first writes allocate.
        let _ = fallocate(&file, FallocateFlags::empty(), 0, len);
        file.set_len(len)?;
        Ok(Target { file, len, is_allocated: true })
    }

    fn exclusive(path: &Path) -> Result<Target> {
        let kind =
            fs::metadata(path).with_context(|| format!("cannot look at {}", path.display()))?.file_type();
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        if kind.is_block_device() {
            // The kernel refuses this while a file system or another volume is on it.
            options.custom_flags(OFlags::EXCL.bits() as i32);
        } else if !kind.is_file() {
            bail!("{} is neither a block device, nor a file, nor a folder", path.display());
        }
        let mut file = match options.open(path) {
            Err(e) if e.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => {
                bail!("{} is in use: it is mounted, or a volume is built on it", path.display())
            }
            file => file.with_context(|| format!("cannot open {}", path.display()))?,
        };
        if file.try_lock().is_err() {
            bail!("{} is in use: a daemon runs on it", path.display());
        }
        let len = file.seek(StdSeekFrom::End(0))?;
        let is_allocated = kind.is_file() && file.metadata()?.blocks() * 512 >= len;
        Ok(Target { file, len, is_allocated })
    }

    /// Makes the first `len` bytes blank. An allocated file stays allocated; a device is told to discard
    /// them, and is blank where it is examined.
    pub fn wipe(&self, len: u64) -> Result<()> {
        let len = len.min(self.len);
        if self.is_device()? {
            // One that cannot forget is written over.
            let _ = forget(&self.file, 0, len);
            return self.zero_what_is_looked_at(len);
        }
        let all = |how| fallocate(&self.file, how | FallocateFlags::KEEP_SIZE, 0, len);
        if self.is_allocated && all(FallocateFlags::ZERO_RANGE).is_ok() {
            return Ok(());
        }
        if all(FallocateFlags::PUNCH_HOLE).is_err() {
            self.file.set_len(0)?;
            self.file.set_len(self.len)?;
        }
        Ok(())
    }

    fn zero_what_is_looked_at(&self, len: u64) -> Result<()> {
        // Zeros need not lie where a device could take them from.
        let flags = fcntl_getfl(&self.file)?;
        fcntl_setfl(&self.file, flags - OFlags::DIRECT)?;
        for block in looked_at(self.len).filter(|block| block * (BLOCK as u64) < len) {
            self.file.write_all_at(&[0; BLOCK], block * BLOCK as u64)?;
        }
        Ok(self.file.sync_data()?)
    }

    /// What is on it. None if it is blank.
    pub fn content(&self) -> Result<Option<&'static str>> {
        content(&self.file)
    }

    /// The uuid of the store on it, whose log may be on another device. None if there is none that this
    /// program can use.
    pub fn store_uuid(&self) -> Option<Uuid> {
        match Held::on(self) {
            Some(Held::Store { uuid, .. }) => Some(Uuid::from_bytes(uuid)),
            _ => None,
        }
    }

    /// Whether all places that are examined hold zeros, written or not.
    pub fn has_only_zeros(&self) -> Result<bool> {
        has_only_zeros(&self.file, self.len)
    }

    pub fn is_device(&self) -> Result<bool> {
        Ok(self.file.metadata()?.file_type().is_block_device())
    }
}

impl Disk for Target {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        let len = into.len() as u64;
        let read = self.file.read_exact_at(into, offset);
        read.map_err(|e| DiskError { op: "read", offset, len, why: e.to_string() })
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        let len = bytes.len() as u64;
        let written = self.file.write_all_at(bytes, offset);
        written.map_err(|e| DiskError { op: "write", offset, len, why: e.to_string() })
    }
    fn flush(&self) -> Result<(), DiskError> {
        let flushed = self.file.sync_data();
        flushed.map_err(|e| DiskError { op: "flush", offset: 0, len: self.len, why: e.to_string() })
    }
    fn len(&self) -> u64 {
        self.len
    }
}

/// Refuses what holds anything.
fn ensure_blank(file: &File, path: &Path) -> Result<()> {
    let Some(what) = content(file)? else { return Ok(()) };
    bail!("{} contains {what}, which would be lost: use --force to overwrite it", path.display());
}

/// What a file or device holds. None if it is blank.
pub fn content(file: &File) -> Result<Option<&'static str>> {
    if !file.metadata()?.file_type().is_block_device() {
        // A file that was written anywhere holds something, though it were zeros.
        return Ok(match seek(file, SeekFrom::Data(0)) {
            Err(Errno::NXIO) => None,
            _ => Some(known(file)?),
        });
    }
    let len = { file }.seek(StdSeekFrom::End(0))?;
    Ok(if has_only_zeros(file, len)? { None } else { Some(known(file)?) })
}

fn has_only_zeros(file: &File, len: u64) -> Result<bool> {
    let mut block = vec![0; BLOCK];
    for at in looked_at(len) {
        file.read_exact_at(&mut block, at * BLOCK as u64).context("cannot read")?;
        if block.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The blocks by which it is told whether a device of that many bytes is blank.
fn looked_at(len: u64) -> impl Iterator<Item = u64> {
    let blocks = len / BLOCK as u64;
    let ends = ENDS / BLOCK as u64;
    let places = (0..PLACES).map(move |n| blocks / PLACES * n);
    (0..ends.min(blocks)).chain(places).chain(blocks.saturating_sub(ends)..blocks)
}

/// What the first bytes identify it as.
fn known(file: &File) -> Result<&'static str> {
    let mut start = [0; 8];
    let whole = file.read_exact_at(&mut start, 0).is_ok();
    Ok(if whole && start == *b"NacreSto" { "a Nacre store" } else { "data" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_with_data_is_refused_unless_forced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, vec![1; LEN_MIN as usize]).unwrap();
        let refused = Target::open(&path, false).unwrap_err().to_string();
        assert!(refused.contains("contains data") && refused.contains("--force"), "{refused}");
        assert_eq!(Target::open(&path, true).unwrap().len, LEN_MIN);

        let sparse = File::create(&path).unwrap();
        sparse.set_len(LEN_MIN).unwrap();
        let target = Target::open(&path, false).unwrap();
        let in_use = Target::open(&path, true).unwrap_err().to_string();
        assert!(in_use.contains("in use"), "{in_use}");
        drop(target);
        sparse.write_all_at(b"NacreSto", 0).unwrap();
        let refused = Target::open(&path, false).unwrap_err().to_string();
        assert!(refused.contains("a Nacre store"), "{refused}");

        assert!(Target::open(&dir.path().join("none"), true).is_err());
        assert!(Target::open(Path::new("/dev/null"), true).unwrap_err().to_string().contains("neither"));
        // What is wiped is blank again, and a file that was allocated still is.
        for is_allocated in [false, true] {
            let path = dir.path().join(if is_allocated { "allocated" } else { "sparse" });
            let file = File::create(&path).unwrap();
            file.set_len(2 * LEN_MIN).unwrap();
            if is_allocated {
                fallocate(&file, FallocateFlags::empty(), 0, 2 * LEN_MIN).unwrap();
            }
            let target = Target::open(&path, false).unwrap();
            target.file.write_all_at(&[1; 3 * BLOCK], LEN_MIN - BLOCK as u64).unwrap();
            target.wipe(LEN_MIN).unwrap();
            assert_eq!(content(&target.file).unwrap(), Some("data"), "what it wrote behind that");
            target.wipe(u64::MAX).unwrap();
            assert_eq!(content(&target.file).unwrap(), None);
            let all = file.metadata().unwrap().blocks() * 512 >= 2 * LEN_MIN;
            assert!(all == is_allocated && file.metadata().unwrap().len() == 2 * LEN_MIN);
        }
        let before = fs::read_dir(dir.path()).unwrap().count();
        drop(Target::open(dir.path(), false).unwrap());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), before);
    }
}
