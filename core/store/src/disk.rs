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
/// and `Store::open` only. All offsets and lengths are multiples of `BLOCK`.
pub trait Disk {
    /// Fills `into`. A sparse file's holes read as zeros.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError>;
    /// Durable only after the next `flush`; until then a crash may keep any part of it.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError>;
    /// When this returns, everything written before it survives a power cut.
    fn flush(&self) -> Result<(), DiskError>;
    /// In bytes.
    fn len(&self) -> u64;
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<D: Disk + ?Sized> Disk for &D {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        (**self).read_at(offset, into)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        (**self).write_at(offset, bytes)
    }
    fn flush(&self) -> Result<(), DiskError> {
        (**self).flush()
    }
    fn len(&self) -> u64 {
        (**self).len()
    }
}
impl<D: Disk + ?Sized> Disk for std::sync::Arc<D> {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        (**self).read_at(offset, into)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        (**self).write_at(offset, bytes)
    }
    fn flush(&self) -> Result<(), DiskError> {
        (**self).flush()
    }
    fn len(&self) -> u64 {
        (**self).len()
    }
}
