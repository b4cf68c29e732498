//! One linear device, as much of it as the store needs.

/// Why a device did not do what it was asked. A daemon whose device fails a write must stop: what
/// is on the device is then unknown until it is opened again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{op} of {len} bytes at {offset}: {why}")]
pub struct DiskError {
    pub op: &'static str,
    pub offset: u64,
    pub len: u64,
    pub why: String,
}

/// Synchronous calls; the store makes them from `Batch::commit`, `ReadPlan::run`, `Store::format`
/// and `Store::open` only. All offsets and lengths are multiples of `BLOCK`; the store's large buffers
/// begin at such addresses, too.
pub trait Disk {
    /// Fills `into`. A sparse file's holes read as zeros.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError>;
    /// The same past every cache, to find out what the device itself holds.
    fn read_device_at(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        self.read_at(offset, into)
    }
    /// All of these like `read_at`, in any order, several at a time if the device can do that. After an error
    /// any of them may have been read.
    fn read_many(&self, reads: &mut [(u64, &mut [u8])]) -> Result<(), DiskError> {
        reads.iter_mut().try_for_each(|(offset, into)| self.read_at(*offset, into))
    }
    /// Durable only after the next `flush`; until then a crash may keep any part of it.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError>;
    /// All of these like `write_at`, in any order, several at a time if the device can do that. After an
    /// error any of them may have been written.
    fn write_many(&self, writes: &[(u64, &[u8])]) -> Result<(), DiskError> {
        writes.iter().try_for_each(|(offset, bytes)| self.write_at(*offset, bytes))
    }
    /// Writes so that these bytes, not all that was written before, survive a power cut when it returns.
    /// A device may do that faster than a write and a flush.
    fn write_durable(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.write_at(offset, bytes)?;
        self.flush()
    }
    /// When this returns, everything written before it survives a power cut.
    fn flush(&self) -> Result<(), DiskError>;
    /// The content is not needed any more: it may read as anything from now on. A device that has no use for
    /// that keeps it.
    fn discard(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        let _ = (offset, len);
        Ok(())
    }
    /// In bytes.
    fn len(&self) -> u64;
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The device that the log is on, if it is not this one. Each is flushed by itself.
    fn log(&self) -> Option<&dyn Disk> {
        None
    }
}

/// A device for everything but the log, and one for the log.
#[derive(Clone, Copy, Debug)]
pub struct WithLog<D, L>(pub D, pub L);

impl<D: Disk, L: Disk> Disk for WithLog<D, L> {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        self.0.read_at(offset, into)
    }
    fn read_device_at(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        self.0.read_device_at(offset, into)
    }
    fn read_many(&self, reads: &mut [(u64, &mut [u8])]) -> Result<(), DiskError> {
        self.0.read_many(reads)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.0.write_at(offset, bytes)
    }
    fn write_many(&self, writes: &[(u64, &[u8])]) -> Result<(), DiskError> {
        self.0.write_many(writes)
    }
    fn write_durable(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.0.write_durable(offset, bytes)
    }
    fn flush(&self) -> Result<(), DiskError> {
        self.0.flush()
    }
    fn discard(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        self.0.discard(offset, len)
    }
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn log(&self) -> Option<&dyn Disk> {
        Some(&self.1)
    }
}

impl<D: Disk + ?Sized> Disk for &D {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        (**self).read_at(offset, into)
    }
    fn read_device_at(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        (**self).read_device_at(offset, into)
    }
    fn read_many(&self, reads: &mut [(u64, &mut [u8])]) -> Result<(), DiskError> {
        (**self).read_many(reads)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        (**self).write_at(offset, bytes)
    }
    fn write_many(&self, writes: &[(u64, &[u8])]) -> Result<(), DiskError> {
        (**self).write_many(writes)
    }
    fn write_durable(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        (**self).write_durable(offset, bytes)
    }
    fn flush(&self) -> Result<(), DiskError> {
        (**self).flush()
    }
    fn discard(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        (**self).discard(offset, len)
    }
    fn len(&self) -> u64 {
        (**self).len()
    }
    fn log(&self) -> Option<&dyn Disk> {
        (**self).log()
    }
}
impl<D: Disk + ?Sized> Disk for std::sync::Arc<D> {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        (**self).read_at(offset, into)
    }
    fn read_device_at(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        (**self).read_device_at(offset, into)
    }
    fn read_many(&self, reads: &mut [(u64, &mut [u8])]) -> Result<(), DiskError> {
        (**self).read_many(reads)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        (**self).write_at(offset, bytes)
    }
    fn write_many(&self, writes: &[(u64, &[u8])]) -> Result<(), DiskError> {
        (**self).write_many(writes)
    }
    fn write_durable(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        (**self).write_durable(offset, bytes)
    }
    fn flush(&self) -> Result<(), DiskError> {
        (**self).flush()
    }
    fn discard(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        (**self).discard(offset, len)
    }
    fn len(&self) -> u64 {
        (**self).len()
    }
    fn log(&self) -> Option<&dyn Disk> {
        (**self).log()
    }
}
