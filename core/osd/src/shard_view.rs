//! A placement group of an erasure-coded pool holds one shard of each object. The placement group itself
//! names objects; in the store, what it holds of one is named by its shard. Here names become those, on the
//! way in and out: no code beyond this file takes one shard for another, or for a whole object.

use bytes::Bytes;
use nacre_base::{Name, PoolId, ShardId};
use nacre_machine::{Lost, ReadError, Statfs, StoreStat, StoreView};
use nacre_proto::messages::PoolSpace;
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_proto::types::ObjectId;
use std::collections::BTreeMap;

/// The store as an instance of a placement group sees it: under an object's name, its own shard.
pub struct ShardView<'a> {
    store: &'a dyn StoreView,
    shard: ShardId,
}

impl<'a> ShardView<'a> {
    /// Of an instance that holds this shard.
    pub fn new(store: &'a dyn StoreView, shard: ShardId) -> ShardView<'a> {
        ShardView { store, shard }
    }
    /// How something is named in the store.
    fn id(&self, id: &StoredId) -> StoredId {
        match id {
            StoredId::Object(object) => StoredId::object(self.shard, object.clone()),
            id => id.clone(),
        }
    }
    fn with<T>(
        &self,
        id: &StoredId,
        ask: impl FnOnce(&StoredId) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        ask(&self.id(id)).map_err(named)
    }
}

/// Names the shards that a transaction changes.
pub fn of_shard(shard: ShardId, mut txn: Transaction) -> Transaction {
    if !shard.is_some() {
        return txn;
    }
    for (id, change) in &mut txn.changes {
        if let StoredId::Object(object) = id {
            *id = StoredId::object(shard, object.clone());
        }
        if let Change::CloneFrom(from) | Change::CloneBlocks { from, .. } = change
            && let StoredId::Object(object) = from
        {
            *from = StoredId::object(shard, object.clone());
        }
    }
    txn
}

/// An error as the placement group knows the object.
pub fn named(error: ReadError) -> ReadError {
    let whole = |id: StoredId| match id {
        StoredId::Shard(_, object) => StoredId::Object(object),
        id => id,
    };
    match error {
        ReadError::NotFound(id) => ReadError::NotFound(whole(id)),
        ReadError::Checksum { id, block, expected, found, salvaged } => {
            ReadError::Checksum { id: whole(id), block, expected, found, salvaged }
        }
        ReadError::Unreadable { id, block, why, salvaged } => {
            ReadError::Unreadable { id: whole(id), block, why, salvaged }
        }
        error @ ReadError::Device(_) => error,
    }
}

impl StoreView for ShardView<'_> {
    fn stat(&self, id: &StoredId) -> Result<Option<StoreStat>, ReadError> {
        self.with(id, |id| self.store.stat(id))
    }
    fn attr(&self, id: &StoredId, name: &[u8]) -> Result<Option<Bytes>, ReadError> {
        self.with(id, |id| self.store.attr(id, name))
    }
    fn attrs(&self, id: &StoredId) -> Result<BTreeMap<Name, Bytes>, ReadError> {
        self.with(id, |id| self.store.attrs(id))
    }
    fn omap_header(&self, id: &StoredId) -> Result<Bytes, ReadError> {
        self.with(id, |id| self.store.omap_header(id))
    }
    fn omap_get(&self, id: &StoredId, key: &[u8]) -> Result<Option<Bytes>, ReadError> {
        self.with(id, |id| self.store.omap_get(id, key))
    }
    fn omap_walk(
        &self,
        id: &StoredId,
        from: &[u8],
        each: &mut dyn FnMut(&Name, &Bytes) -> bool,
    ) -> Result<(), ReadError> {
        self.with(id, |id| self.store.omap_walk(id, from, each))
    }
    /// Its own shard's objects only, as if they were whole.
    fn object_walk(
        &self,
        (_, from): (ShardId, &ObjectId),
        each: &mut dyn FnMut(ShardId, &ObjectId) -> bool,
    ) -> Result<(), ReadError> {
        let ours = &mut |shard, object: &ObjectId| shard == self.shard && each(ShardId::NONE, object);
        self.store.object_walk((self.shard, from), ours)
    }
    fn extents(&self, id: &StoredId, offset: u64, len: u64) -> Result<Vec<(u64, u64)>, ReadError> {
        self.with(id, |id| self.store.extents(id, offset, len))
    }
    fn read_now(&self, id: &StoredId, extents: &[(u64, u64)]) -> Option<Vec<Bytes>> {
        self.store.read_now(&self.id(id), extents)
    }
    fn statfs(&self) -> Statfs {
        self.store.statfs()
    }
    fn pools(&self) -> Vec<(PoolId, PoolSpace)> {
        self.store.pools()
    }
    fn lost(&self) -> Lost {
        self.store.lost()
    }
    fn has_corrupt_metadata(&self) -> bool {
        self.store.has_corrupt_metadata()
    }
}
