//! A log on a device of its own: its labels, and moving the log from one device to another.

use crate::BLOCK;
use crate::disk::{Disk, DiskError};
use crate::format::{Geometry, LOG_START, Label, SUPERBLOCKS, Superblock};
use crate::open::{FormatError, LOG_BLOCKS_MIN, LOG_LEN_MAX, OpenError};
use crate::store::Store;

/// Why a device is not the one that has the store's log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogDeviceError {
    #[error("is blank, or holds no log of a store")]
    NoLog,
    #[error("has the log of another store")]
    OfAnotherStore,
    #[error("has a log that the store had before")]
    OfAnotherTime,
    #[error("has {len} bytes, the log was made for {expected}")]
    Shrunk { len: u64, expected: u64 },
}

/// Why a log could not be moved. It is where it was, unless it is a `Disk` that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MoveError {
    #[error(transparent)]
    Format(#[from] FormatError),
    #[error("there is no room for a log beside the data: the store was formatted with its log elsewhere")]
    NoRoom,
    #[error("the log is there already")]
    Same,
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// Whose log a device has, or is to have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogDevice {
    pub uuid: [u8; 16],
    pub log_id: [u8; 16],
}

impl LogDevice {
    pub fn of(geometry: &Geometry) -> LogDevice {
        LogDevice { uuid: geometry.uuid, log_id: geometry.log_id }
    }
    /// How many blocks of log fit there, `wanted` bytes at most.
    pub fn ring(self, log: &dyn Disk, wanted: Option<u64>) -> Result<u32, FormatError> {
        let (first, block_len) = (LOG_START, BLOCK as u64);
        let fit = (log.len() / block_len).saturating_sub(first);
        let wanted =
            wanted.unwrap_or(LOG_LEN_MAX.min(fit * block_len)).div_ceil(block_len).max(LOG_BLOCKS_MIN);
        if wanted > fit {
            return Err(FormatError::LogTooSmall { len: log.len(), min: (first + wanted) * block_len });
        }
        Ok(u32::try_from(wanted).unwrap_or(u32::MAX))
    }
    pub fn format(self, log: &dyn Disk, log_blocks: u32, force: bool) -> Result<(), FormatError> {
        let mut front = vec![0; (SUPERBLOCKS[1] as usize + 1) * BLOCK];
        log.read_at(0, &mut front)?;
        if !force && front.iter().any(|byte| *byte != 0) {
            return Err(FormatError::LogNotBlank);
        }
        front.fill(0);
        log.write_at(0, &front)?;
        log.flush()?;
        Ok(self.write_labels(log, log_blocks)?)
    }
    /// One after the other, so that one is whole.
    pub fn write_labels(self, log: &dyn Disk, log_blocks: u32) -> Result<(), DiskError> {
        let label = Label { uuid: self.uuid, log_id: self.log_id, log_blocks }.encode();
        for copy in SUPERBLOCKS {
            log.write_at(copy * BLOCK as u64, &label)?;
            log.flush()?;
        }
        Ok(())
    }
    /// Whether the device is the one. True if one of its labels is damaged.
    pub fn check(self, log: &dyn Disk, geometry: &Geometry) -> Result<bool, OpenError> {
        let labels = labels(log);
        let refuse = |why| Err(OpenError::LogDevice(why));
        let expected = (LOG_START + u64::from(geometry.log_blocks)) * BLOCK as u64;
        match labels.first() {
            None => refuse(LogDeviceError::NoLog),
            Some(label) if label.uuid != self.uuid => refuse(LogDeviceError::OfAnotherStore),
            Some(label) if label.log_id != self.log_id => refuse(LogDeviceError::OfAnotherTime),
            Some(_) if log.len() < expected => refuse(LogDeviceError::Shrunk { len: log.len(), expected }),
            Some(_) => Ok(labels.len() < 2),
        }
    }
}

/// What a device holds of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// Everything, or everything but the log, which `log` then names.
    Store { uuid: [u8; 16], log: Option<[u8; 16]> },
    /// The log of a store.
    Log { uuid: [u8; 16], log: [u8; 16] },
}

impl Held {
    /// Reads superblocks and labels alone, and writes nothing. None if there is nothing of a store, or
    /// nothing that this version can read.
    pub fn on(disk: &(impl Disk + ?Sized)) -> Option<Held> {
        if let Some(Geometry { uuid, log_id, log_is_apart, .. }) = Store::geometry_of(disk) {
            return Some(Held::Store { uuid, log: log_is_apart.then_some(log_id) });
        }
        let label = labels(disk).into_iter().next()?;
        Some(Held::Log { uuid: label.uuid, log: label.log_id })
    }
}

/// Those that can be read.
fn labels(log: &(impl Disk + ?Sized)) -> Vec<Label> {
    let read = |copy: &u64| {
        let mut block = vec![0; BLOCK];
        let fits = log.len() >= (copy + 1) * BLOCK as u64;
        let is_read = fits && log.read_at(copy * BLOCK as u64, &mut block).is_ok();
        is_read.then(|| Label::decode(&block)).flatten()
    };
    SUPERBLOCKS.iter().filter_map(read).collect()
}

/// Where a log moves to.
#[derive(Clone, Copy)]
pub struct MoveTo<'a> {
    /// None: back to the device that has the data.
    pub device: Option<&'a dyn Disk>,
    /// Bytes; by default all that there is, up to 1 GiB.
    pub log_len: Option<u64>,
    /// Another one than the log has now. See `Options::log_id`.
    pub log_id: [u8; 16],
    /// Overwrite whatever the device holds.
    pub force: bool,
}

impl Store {
    /// Moves the log of a store that is not in use. Up to its last step the log is where it was, and whole.
    pub fn move_log(mut self, disk: &(impl Disk + ?Sized), to: MoveTo<'_>) -> Result<(), MoveError> {
        let old = self.geometry;
        if to.device.is_none() && !old.log_is_apart {
            return Err(MoveError::Same);
        }
        let device = LogDevice { uuid: old.uuid, log_id: to.log_id };
        let log_blocks = match to.device {
            Some(log) => device.ring(log, to.log_len)?,
            None => old.data_start - LOG_START as u32,
        };
        if u64::from(log_blocks) < LOG_BLOCKS_MIN {
            return Err(MoveError::NoRoom);
        }
        // Everything is in the checkpoint then, and the log is empty.
        let mut superblock = self.checkpoint_all(disk)?;
        if let Some(log) = to.device {
            device.format(log, log_blocks, to.force)?;
        }
        let geometry = Geometry { log_blocks, log_is_apart: to.device.is_some(), log_id: to.log_id, ..old };
        superblock = Superblock { geometry, generation: superblock.generation + 1, ..superblock };
        for copy in SUPERBLOCKS {
            disk.write_at(copy * BLOCK as u64, &superblock.encode())?;
            disk.flush()?;
        }
        // The old one is not needed any more, and must not be taken for a log again.
        if let Some(log) = disk.log() {
            log.write_at(0, &vec![0; (SUPERBLOCKS[1] as usize + 1) * BLOCK])?;
            log.flush()?;
        }
        Ok(())
    }
}
