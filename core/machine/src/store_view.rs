//! How a machine examines what its store holds, between effects.

use bytes::Bytes;
use nacre_base::{Name, PoolId, ShardId};
use nacre_proto::messages::PoolSpace;
use nacre_proto::transaction::StoredId;
use nacre_proto::types::ObjectId;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

/// Why stored bytes could not be given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    #[error("no {0}")]
    NotFound(StoredId),
    #[error("{id}: checksum of block {block} is {found:08x}, not {expected:08x}{salvaged}")]
    Checksum { id: StoredId, block: u64, expected: u32, found: u32, salvaged: SalvagedExtents },
    #[error("{id}: block {block} cannot be read: {why}{salvaged}")]
    Unreadable { id: StoredId, block: u64, why: String, salvaged: SalvagedExtents },
    #[error("device: {0}")]
    Device(String),
}

/// What is known of a block that cannot be given whole, since it was written after the rest was damaged, or
/// without looking at it: bytes, each with where they begin in the object's data. In order, not touching.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SalvagedExtents(pub Vec<(u64, Bytes)>);

impl SalvagedExtents {
    pub fn ranges(&self) -> impl Iterator<Item = Range<u64>> {
        self.0.iter().map(|(offset, bytes)| *offset..offset + bytes.len() as u64)
    }
}

/// As the end of a sentence about the rest.
impl fmt::Display for SalvagedExtents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ranges().map(|range| range.end - range.start).sum::<u64>() {
            0 => Ok(()),
            bytes => write!(f, "; {bytes} bytes of it are salvaged"),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStat {
    /// Bytes of data, holes included.
    pub size: u64,
}

/// Space on the device, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statfs {
    pub total: u64,
    pub available: u64,
    /// What objects' data takes.
    pub allocated: u64,
    /// What clients wrote, holes not counted.
    pub stored: u64,
    pub omap: u64,
    /// The store's own: log, checkpoints, index.
    pub internal: u64,
}

/// What was durable and is lost, as the store found out when it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// How often, since the store was made, transactions were lost that had been acknowledged: from some
    /// point on all of them. What is shown is the state before that point, which others may take for newer
    /// than it is.
    pub times: u64,
    /// Blocks of objects whose bytes are gone, each with its position in the object: reading them fails. All
    /// else about these objects is right.
    pub blocks: Vec<(StoredId, u64)>,
}

/// In a store whose daemon gave it up: no daemon uses it any more.
pub fn given_up() -> StoredId {
    StoredId::meta("given up")
}

/// What is stored as it was before the effects of this turn, read at once: metadata, and such data as is in
/// memory. Other data goes through `Effect::Read`.
pub trait StoreView {
    /// None if it does not exist.
    fn stat(&self, id: &StoredId) -> Result<Option<StoreStat>, ReadError>;
    fn attr(&self, id: &StoredId, name: &[u8]) -> Result<Option<Bytes>, ReadError>;
    fn attrs(&self, id: &StoredId) -> Result<BTreeMap<Name, Bytes>, ReadError>;
    fn omap_header(&self, id: &StoredId) -> Result<Bytes, ReadError>;
    fn omap_get(&self, id: &StoredId, key: &[u8]) -> Result<Option<Bytes>, ReadError>;
    /// Walks the omap in key order from the first key `>= from` until `each` says false.
    fn omap_walk(
        &self,
        id: &StoredId,
        from: &[u8],
        each: &mut dyn FnMut(&Name, &Bytes) -> bool,
    ) -> Result<(), ReadError>;
    /// Walks the objects, and shards of objects, in the order of `StoredId` from the first `>= from` until
    /// `each` says false.
    fn object_walk(
        &self,
        from: (ShardId, &ObjectId),
        each: &mut dyn FnMut(ShardId, &ObjectId) -> bool,
    ) -> Result<(), ReadError>;
    /// The parts of `offset..offset + len` that hold data, as (offset, length); the rest are holes.
    fn extents(&self, id: &StoredId, offset: u64, len: u64) -> Result<Vec<(u64, u64)>, ReadError>;
    /// What a few (offset, length) extents hold, each up to where the data ends; None if that is much, takes
    /// the device, or goes wrong, which `Effect::Read` then says.
    fn read_now(&self, _id: &StoredId, _extents: &[(u64, u64)]) -> Option<Vec<Bytes>> {
        None
    }
    fn statfs(&self) -> Statfs;
    /// What the objects of each pool take, of pools that have any.
    fn pools(&self) -> Vec<(PoolId, PoolSpace)>;
    fn lost(&self) -> Lost {
        Lost::default()
    }
    /// A part of the index is corrupt: which records exist is unknown until the store is recreated.
    fn has_corrupt_metadata(&self) -> bool {
        false
    }
}

/// The view of a machine that stores nothing, such as a client.
pub struct NoStore;

impl StoreView for NoStore {
    fn stat(&self, _: &StoredId) -> Result<Option<StoreStat>, ReadError> {
        Ok(None)
    }
    fn attr(&self, _: &StoredId, _: &[u8]) -> Result<Option<Bytes>, ReadError> {
        Ok(None)
    }
    fn attrs(&self, _: &StoredId) -> Result<BTreeMap<Name, Bytes>, ReadError> {
        Ok(BTreeMap::new())
    }
    fn omap_header(&self, _: &StoredId) -> Result<Bytes, ReadError> {
        Ok(Bytes::new())
    }
    fn omap_get(&self, _: &StoredId, _: &[u8]) -> Result<Option<Bytes>, ReadError> {
        Ok(None)
    }
    fn omap_walk(
        &self,
        _: &StoredId,
        _: &[u8],
        _: &mut dyn FnMut(&Name, &Bytes) -> bool,
    ) -> Result<(), ReadError> {
        Ok(())
    }
    fn object_walk(
        &self,
        _: (ShardId, &ObjectId),
        _: &mut dyn FnMut(ShardId, &ObjectId) -> bool,
    ) -> Result<(), ReadError> {
        Ok(())
    }
    fn extents(&self, _: &StoredId, _: u64, _: u64) -> Result<Vec<(u64, u64)>, ReadError> {
        Ok(Vec::new())
    }
    fn statfs(&self) -> Statfs {
        Statfs::default()
    }
    fn pools(&self) -> Vec<(PoolId, PoolSpace)> {
        Vec::new()
    }
}
