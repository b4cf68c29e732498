//! Which clones there are for a snapshot, so that removing one examines those objects only.
//!
//! One omap for each pool, with a key for each snapshot of each clone here:
//!
//!   snapshot:u64 hash:u32 object id
//!
//! Numbers are big-endian and the hash has its bits reversed: the clones of a placement group for
//! a snapshot are one range of keys whatever the number of PGs, and a split moves nothing.
//!
//! A key may stay when its clone is gone, and is removed when it is found. A clone is never without.

use bytes::Bytes;
use nacre_base::{Name, PoolId, SnapId};
use nacre_machine::{ReadError, StoreView};
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_proto::types::ObjectId;
use nacre_wire::{from_slice, to_vec};
use std::ops::RangeInclusive;

const ID_AT: usize = 12;

pub fn id(pool: PoolId) -> StoredId {
    StoredId::Meta(Name::new(format!("snapshots/{pool}").into_bytes()))
}

fn key_start(snap: SnapId, reversed_hash: u32) -> Vec<u8> {
    let mut key = snap.0.to_be_bytes().to_vec();
    key.extend(reversed_hash.to_be_bytes());
    key
}

fn key(snap: SnapId, clone: &ObjectId) -> Name {
    let mut key = key_start(snap, clone.hash.reverse_bits());
    key.extend(to_vec(clone));
    Name::new(key)
}

/// Notes for which snapshots a clone is.
pub fn add(clone: &ObjectId, snaps: &[SnapId], txn: &mut Transaction) {
    let pairs = snaps.iter().map(|snap| (key(*snap, clone), Bytes::new())).collect();
    txn.push(id(clone.pool), Change::OmapSet(pairs));
}

pub fn remove(clone: &ObjectId, snaps: &[SnapId], txn: &mut Transaction) {
    if !snaps.is_empty() {
        let keys = snaps.iter().map(|snap| key(*snap, clone)).collect();
        txn.push(id(clone.pool), Change::OmapRemove(keys));
    }
}

/// The first clones for a snapshot whose reversed hashes are in a range.
pub fn first(
    store: &dyn StoreView,
    pool: PoolId,
    snap: SnapId,
    hashes: RangeInclusive<u32>,
    limit: usize,
) -> Result<Vec<ObjectId>, ReadError> {
    let (start, end) = (key_start(snap, *hashes.start()), key_start(snap, *hashes.end()));
    let mut clones = Vec::new();
    let mut bad = None;
    store.omap_walk(&id(pool), &start, &mut |key, _| {
        let key = key.as_bytes();
        if key.len() < ID_AT || key[..ID_AT] > end[..] || clones.len() >= limit {
            return false;
        }
        match from_slice::<ObjectId>(&key[ID_AT..]) {
            Ok(clone) => clones.push(clone),
            Err(error) => bad = Some(error),
        }
        bad.is_none()
    })?;
    match bad {
        Some(error) => Err(ReadError::Device(format!("{}: a key does not decode: {error}", id(pool)))),
        None => Ok(clones),
    }
}
