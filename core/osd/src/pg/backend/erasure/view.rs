//! The store as clients' operations see it on the primary of an erasure-coded pool: objects have the sizes
//! that clients gave them, and their bytes are nowhere at hand.

use crate::object_info::ObjectInfo;
use bytes::Bytes;
use nacre_base::{Name, PoolId, ShardId};
use nacre_machine::{ReadError, Statfs, StoreStat, StoreView};
use nacre_proto::messages::PoolSpace;
use nacre_proto::transaction::StoredId;
use nacre_proto::types::ObjectId;
use std::collections::BTreeMap;

/// A view of the own shards, as one of whole objects.
pub struct WholeObjects<'a>(pub &'a dyn StoreView);

impl StoreView for WholeObjects<'_> {
    fn stat(&self, id: &StoredId) -> Result<Option<StoreStat>, ReadError> {
        let stat = self.0.stat(id)?;
        let (Some(_), StoredId::Object(object)) = (stat, id) else { return Ok(stat) };
        let sharded = ObjectInfo::load(self.0, object)?.and_then(|info| info.erasure);
        Ok(Some(StoreStat { size: sharded.map_or(0, |sharded| sharded.size) }))
    }
    fn attr(&self, id: &StoredId, name: &[u8]) -> Result<Option<Bytes>, ReadError> {
        self.0.attr(id, name)
    }
    fn attrs(&self, id: &StoredId) -> Result<BTreeMap<Name, Bytes>, ReadError> {
        self.0.attrs(id)
    }
    fn omap_header(&self, id: &StoredId) -> Result<Bytes, ReadError> {
        self.0.omap_header(id)
    }
    fn omap_get(&self, id: &StoredId, key: &[u8]) -> Result<Option<Bytes>, ReadError> {
        self.0.omap_get(id, key)
    }
    fn omap_walk(
        &self,
        id: &StoredId,
        from: &[u8],
        each: &mut dyn FnMut(&Name, &Bytes) -> bool,
    ) -> Result<(), ReadError> {
        self.0.omap_walk(id, from, each)
    }
    fn object_walk(
        &self,
        from: (ShardId, &ObjectId),
        each: &mut dyn FnMut(ShardId, &ObjectId) -> bool,
    ) -> Result<(), ReadError> {
        self.0.object_walk(from, each)
    }
    /// Which bytes were never written cannot be told from one shard: all of them count as data, as in Ceph.
    fn extents(&self, id: &StoredId, offset: u64, len: u64) -> Result<Vec<(u64, u64)>, ReadError> {
        let size = self.stat(id)?.unwrap_or_default().size;
        let len = len.min(size.saturating_sub(offset));
        Ok(if len > 0 { vec![(offset, len)] } else { Vec::new() })
    }
    fn statfs(&self) -> Statfs {
        self.0.statfs()
    }
    fn pools(&self) -> Vec<(PoolId, PoolSpace)> {
        self.0.pools()
    }
    fn has_corrupt_metadata(&self) -> bool {
        self.0.has_corrupt_metadata()
    }
}
