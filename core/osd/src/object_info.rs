//! What an object knows about itself, beside its data: kept in the attribute `_`.

use crate::snap_set::SnapSet;
use bytes::Bytes;
use nacre_base::{Name, SnapId, Utime, Version};
use nacre_machine::{ReadError, StoreView};
use nacre_proto::transaction::StoredId;
use nacre_proto::types::{EntityAddr, ObjectId};
use nacre_wire::{Decode, DecodeError, Encode, Reader, from_slice, to_vec, versioned};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The attribute's name. A client's attribute `x` is stored as `_x`, so this is none of theirs.
pub const ATTR: &[u8] = b"_";

/// Written by every change of the object, in the change's own transaction: whatever happened, the
/// content on a disk is that of the version which its info names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectInfo {
    pub version: Version,
    /// As clients see it.
    pub user_version: u64,
    pub mtime: Utime,
    /// CephFS orders truncations among writes by these.
    pub truncate_seq: u32,
    pub truncate_size: u64,
    /// Hints about how the object will be used.
    pub expected_object_size: u64,
    pub expected_write_size: u64,
    pub alloc_hint_flags: u32,
    /// By client and cookie. There may be thousands, and a request that does not change them does not copy
    /// them.
    pub watchers: Arc<BTreeMap<(u64, u64), Watcher>>,
    /// The head was deleted, and is kept for its clones' sake only. Only listings show it.
    pub whiteout: bool,
    /// Of a head.
    pub snap_set: SnapSet,
    /// Of a clone: which snapshots it is for, newest first.
    pub snaps: Vec<SnapId>,
    /// The operation `Undirty` marked it clean, and it did not change since.
    pub clean: bool,
    /// How it is divided among shards, in an erasure-coded pool.
    pub erasure: Option<Sharded>,
}

/// How an object of an erasure-coded pool is stored: what is stored under its name is one shard of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharded {
    /// Bytes of the whole object, as clients see it.
    pub size: u64,
    /// Bytes that are together on one shard, see `nacre_erasure::layout`.
    pub unit: u64,
}

/// A client that watches the object for notifies, see `pg::watches`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watcher {
    pub addr: EntityAddr,
    pub timeout_secs: u32,
}

impl Encode for Watcher {
    fn encode(&self, out: &mut Vec<u8>) {
        self.addr.encode(out);
        self.timeout_secs.encode(out);
    }
}
impl Decode for Watcher {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Watcher { addr: Decode::decode(r)?, timeout_secs: Decode::decode(r)? })
    }
}

impl ObjectInfo {
    pub fn to_attr(&self) -> (Name, Bytes) {
        (Name::new(ATTR), to_vec(self).into())
    }

    /// None if nothing is stored under that name.
    pub fn load(store: &dyn StoreView, object: &ObjectId) -> Result<Option<ObjectInfo>, ReadError> {
        let id = StoredId::Object(object.clone());
        let Some(bytes) = store.attr(&id, ATTR)? else { return Ok(None) };
        let info = from_slice(&bytes)
            .map_err(|e| ReadError::Device(format!("{object}: its info does not decode: {e}")))?;
        Ok(Some(info))
    }
}

impl Encode for ObjectInfo {
    fn encode(&self, out: &mut Vec<u8>) {
        versioned(out, if self.erasure.is_some() { 5 } else { 4 }, 1, |out| {
            self.version.encode(out);
            self.user_version.encode(out);
            self.mtime.encode(out);
            self.truncate_seq.encode(out);
            self.truncate_size.encode(out);
            self.expected_object_size.encode(out);
            self.expected_write_size.encode(out);
            self.alloc_hint_flags.encode(out);
            self.watchers.encode(out);
            self.whiteout.encode(out);
            self.snap_set.encode(out);
            self.snaps.encode(out);
            self.clean.encode(out);
            if let Some(Sharded { size, unit }) = self.erasure {
                (size, unit).encode(out);
            }
        });
    }
}
impl Decode for ObjectInfo {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("object info", 5, |r, v| {
            Ok(ObjectInfo {
                version: Decode::decode(r)?,
                user_version: Decode::decode(r)?,
                mtime: Decode::decode(r)?,
                truncate_seq: Decode::decode(r)?,
                truncate_size: Decode::decode(r)?,
                expected_object_size: Decode::decode(r)?,
                expected_write_size: Decode::decode(r)?,
                alloc_hint_flags: Decode::decode(r)?,
                watchers: if v >= 2 { Arc::new(Decode::decode(r)?) } else { Arc::default() },
                whiteout: if v >= 3 { Decode::decode(r)? } else { false },
                snap_set: if v >= 3 { Decode::decode(r)? } else { SnapSet::default() },
                snaps: if v >= 3 { Decode::decode(r)? } else { Vec::new() },
                clean: if v >= 4 { Decode::decode(r)? } else { false },
                erasure: match v >= 5 {
                    true => Decode::decode(r).map(|(size, unit)| Some(Sharded { size, unit }))?,
                    false => None,
                },
            })
        })
    }
}
