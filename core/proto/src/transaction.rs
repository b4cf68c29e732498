//! What a store does, atomically. The primary ships it to the replicas inside the replication
//! message, so it belongs to the vocabulary and not to the store.

use crate::types::ObjectId;
use bytes::Bytes;
use nacre_base::{Name, ShardId, SpgId};
use nacre_wire::{Decode, DecodeError, Encode, Reader, versioned};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Range;

/// What a store keeps data, attributes and an omap under.
///
/// Objects of all placement groups live in one order (see `ObjectId`), in which a placement group is a range:
/// there are no collections to create, and a split moves nothing. Behind the pool comes the shard, so that an
/// instance of an erasure-coded placement group is a range as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoredId {
    /// Something of the daemon's own: its superblock, its maps, a monitor's log.
    Meta(Name),
    /// The record of an instance of a placement group: its info, log and missing set, as omap keys.
    Pg(SpgId),
    /// A whole object.
    Object(ObjectId),
    /// One shard of an object of an erasure-coded pool. Never `ShardId::NONE`: see `StoredId::object`.
    Shard(ShardId, ObjectId),
}

impl StoredId {
    pub fn meta(name: &'static str) -> StoredId {
        StoredId::Meta(Name::new(name.as_bytes()))
    }
    /// What an instance of a placement group holds of an object.
    pub fn object(shard: ShardId, object: ObjectId) -> StoredId {
        if shard.is_some() { StoredId::Shard(shard, object) } else { StoredId::Object(object) }
    }
    /// The object, and which shard of it this is.
    pub fn as_object(&self) -> Option<(ShardId, &ObjectId)> {
        match self {
            StoredId::Object(object) => Some((ShardId::NONE, object)),
            StoredId::Shard(shard, object) => Some((*shard, object)),
            StoredId::Meta(_) | StoredId::Pg(_) => None,
        }
    }
    /// How many bytes `encode` takes.
    pub fn encoded_len(&self) -> usize {
        let body = match self {
            StoredId::Meta(name) => 4 + name.len(),
            // The shard, if there is one; version, pool, seed, what was the preferred OSD.
            StoredId::Pg(spg) => usize::from(spg.shard.is_some()) + 1 + 8 + 4 + 4,
            StoredId::Object(object) => object.encoded_len(),
            StoredId::Shard(_, object) => 1 + object.encoded_len(),
        };
        1 + body
    }
}

/// First what is the daemon's own, then records of placement groups, then objects.
impl Ord for StoredId {
    fn cmp(&self, other: &StoredId) -> Ordering {
        let rank = |id: &StoredId| match id {
            StoredId::Meta(_) => 0,
            StoredId::Pg(_) => 1,
            StoredId::Object(_) | StoredId::Shard(..) => 2,
        };
        match (self, other) {
            // As nearly always.
            (StoredId::Object(one), StoredId::Object(other)) => one.cmp(other),
            (StoredId::Meta(one), StoredId::Meta(other)) => one.cmp(other),
            (StoredId::Pg(one), StoredId::Pg(other)) => one.cmp(other),
            _ => match (self.as_object(), other.as_object()) {
                (Some((shard, one)), Some((other_shard, other))) => {
                    one.cmp_with_shard(shard, other, other_shard)
                }
                _ => rank(self).cmp(&rank(other)),
            },
        }
    }
}
impl PartialOrd for StoredId {
    fn partial_cmp(&self, other: &StoredId) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The kind is not hashed: few ids are not objects.
impl Hash for StoredId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            StoredId::Meta(name) => state.write(name.as_bytes()),
            StoredId::Pg(pg) => pg.hash(state),
            StoredId::Object(object) => object.hash(state),
            StoredId::Shard(shard, object) => {
                state.write_i8(shard.0);
                object.hash(state);
            }
        }
    }
}

impl From<ObjectId> for StoredId {
    fn from(object: ObjectId) -> StoredId {
        StoredId::Object(object)
    }
}

impl fmt::Display for StoredId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoredId::Meta(name) => write!(f, "meta {name}"),
            StoredId::Pg(pg) => write!(f, "pg {pg}"),
            StoredId::Object(object) => object.fmt(f),
            // As Ceph prints a `ghobject_t`, roughly.
            StoredId::Shard(shard, object) => write!(f, "{}#{object}", shard.0),
        }
    }
}

/// One change to one stored object. All but `Remove` create what does not exist yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Touch,
    /// Writes at `offset`; a gap before it reads as zeros.
    Write {
        offset: u64,
        data: Bytes,
    },
    /// Changes each byte to its XOR with that of `data`; what does not exist yet is zeros. For parity of
    /// erasure-coded pools, whose old bytes need not be read before this is durable.
    Xor {
        offset: u64,
        data: Bytes,
    },
    /// Makes the range read as zeros and gives its space back; grows the size if it ends beyond.
    Zero {
        offset: u64,
        len: u64,
    },
    Truncate {
        size: u64,
    },
    /// Data, attributes and omap go. No error if there is nothing.
    Remove,
    SetAttrs(BTreeMap<Name, Bytes>),
    RemoveAttr(Name),
    /// Values stay in memory as they are, so they must not be parts of something larger. What was decoded is
    /// none.
    OmapSet(BTreeMap<Name, Bytes>),
    OmapRemove(BTreeSet<Name>),
    /// Removes the keys in `begin..end`.
    OmapRemoveRange {
        begin: Name,
        end: Name,
    },
    /// Keys and header go.
    OmapClear,
    OmapSetHeader(Bytes),
    /// Replaces the content of this with a copy of `from`: data, attributes and omap.
    CloneFrom(StoredId),
    /// Replaces these blocks of 4 KiB of this with those of `from`, and their space is shared. Grows the size
    /// if they end beyond.
    CloneBlocks {
        from: StoredId,
        blocks: Range<u32>,
    },
}

impl Change {
    /// Whether the object that it changes exists afterwards, whatever was before.
    pub fn makes_exist(&self) -> bool {
        !matches!(self, Change::Remove)
    }
    /// The object that it copies from, if it copies.
    pub fn source(&self) -> Option<&StoredId> {
        match self {
            Change::CloneFrom(from) | Change::CloneBlocks { from, .. } => Some(from),
            _ => None,
        }
    }
}

/// Capacity is reserved for at most this many of the announced changes: they may be far bigger in memory than
/// encoded.
const CHANGES_FIRST: usize = 1024;
/// Spare capacity: the receiver mostly adds one change of its own.
const CHANGES_MORE: usize = 1;

/// Changes that become durable together or not at all, applied in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    pub changes: Vec<(StoredId, Change)>,
    /// What this writes will be read from this daemon and not from another, so it is worth caching. Each
    /// daemon decides this for itself: it is not sent.
    pub is_read_here: bool,
}

impl Transaction {
    pub fn new() -> Transaction {
        Transaction::default()
    }
    pub fn push(&mut self, id: impl Into<StoredId>, change: Change) {
        self.changes.push((id.into(), change));
    }
    /// The same, with capacity for this many more changes.
    pub fn clone_with_capacity(&self, more: usize) -> Transaction {
        let mut changes = Vec::with_capacity(self.changes.len() + more);
        changes.extend_from_slice(&self.changes);
        Transaction { changes, is_read_here: self.is_read_here }
    }
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
    pub fn append(&mut self, mut other: Transaction) {
        self.changes.append(&mut other.changes);
    }
    /// Bytes of payload: what it costs to hold or to send, roughly.
    pub fn payload_len(&self) -> usize {
        let pairs = |map: &BTreeMap<Name, Bytes>| map.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>();
        let of = |change: &Change| match change {
            Change::Write { data, .. } | Change::Xor { data, .. } => data.len(),
            Change::SetAttrs(map) | Change::OmapSet(map) => pairs(map),
            Change::OmapRemove(keys) => keys.iter().map(Name::len).sum(),
            Change::OmapSetHeader(data) => data.len(),
            _ => 0,
        };
        self.changes.iter().map(|(_, change)| of(change) + 64).sum()
    }

    /// Bytes of data that are written, attributes and omaps not counted.
    pub fn data_len(&self) -> usize {
        let of = |change: &Change| match change {
            Change::Write { data, .. } | Change::Xor { data, .. } => data.len(),
            _ => 0,
        };
        self.changes.iter().map(|(_, change)| of(change)).sum()
    }

    /// Encodes with the written data beside, not inside, so that a frame can carry it uncopied:
    /// `data` gets the payloads of all `Write`s and `Xor`s, back to back.
    pub fn encode_split(&self, out: &mut Vec<u8>, data: &mut Vec<Bytes>) {
        versioned(out, 1, 1, |out| {
            (self.changes.len() as u32).encode(out);
            // What is changed is mostly what was changed just before.
            let mut last: Option<(&StoredId, Range<usize>)> = None;
            for (id, change) in &self.changes {
                match &last {
                    Some((same, encoded)) if *same == id => out.extend_from_within(encoded.clone()),
                    _ => {
                        let start = out.len();
                        id.encode(out);
                        last = Some((id, start..out.len()));
                    }
                }
                encode_change(change, out, data);
            }
        });
    }

    /// The reverse of `encode_split`. `data` must hold exactly the written bytes.
    pub fn decode_split(r: &mut Reader<'_>, data: &Bytes) -> Result<Transaction, DecodeError> {
        let mut at = 0;
        let txn = r.versioned("transaction", 1, |r, _| {
            let count = r.count(1)?;
            let mut changes: Vec<(StoredId, Change)> =
                Vec::with_capacity(count.min(CHANGES_FIRST) + CHANGES_MORE);
            // Of the last one.
            let mut encoded: &[u8] = &[];
            for _ in 0..count {
                let ahead = r.rest();
                let id = match changes.last() {
                    Some((last, _)) if ahead.starts_with(encoded) => {
                        r.take(encoded.len())?;
                        last.clone()
                    }
                    _ => {
                        let id = StoredId::decode(r)?;
                        encoded = &ahead[..ahead.len() - r.remaining()];
                        id
                    }
                };
                changes.push((id, decode_change(r, data, &mut at)?));
            }
            Ok(Transaction { changes, is_read_here: false })
        })?;
        match data.len() - at {
            0 => Ok(txn),
            left => Err(DecodeError::Leftover { left }),
        }
    }
}

impl Encode for StoredId {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            StoredId::Meta(name) => {
                out.push(0);
                name.encode(out);
            }
            StoredId::Pg(SpgId { pg, shard: ShardId::NONE }) => {
                out.push(1);
                pg.encode(out);
            }
            StoredId::Object(object) => {
                out.push(2);
                object.encode(out);
            }
            StoredId::Pg(SpgId { pg, shard }) => {
                out.push(3);
                shard.encode(out);
                pg.encode(out);
            }
            StoredId::Shard(shard, object) => {
                out.push(4);
                shard.encode(out);
                object.encode(out);
            }
        }
    }
}
impl Decode for StoredId {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match u8::decode(r)? {
            0 => StoredId::Meta(Decode::decode(r)?),
            1 => StoredId::Pg(SpgId::replicated(Decode::decode(r)?)),
            2 => StoredId::Object(Decode::decode(r)?),
            3 => {
                let shard = decode_shard(r)?;
                StoredId::Pg(SpgId { pg: Decode::decode(r)?, shard })
            }
            4 => {
                let shard = decode_shard(r)?;
                StoredId::Shard(shard, Decode::decode(r)?)
            }
            value => return Err(DecodeError::BadValue { what: "stored id kind", value: value.into() }),
        })
    }
}

/// Without a shard an id has another kind: so each has one encoding.
fn decode_shard(r: &mut Reader<'_>) -> Result<ShardId, DecodeError> {
    let shard = ShardId::decode(r)?;
    if shard.is_some() {
        Ok(shard)
    } else {
        Err(DecodeError::BadValue { what: "shard of a stored id", value: u64::from(shard.0 as u8) })
    }
}

fn encode_change(change: &Change, out: &mut Vec<u8>, written: &mut Vec<Bytes>) {
    match change {
        Change::Touch => out.push(0),
        Change::Write { offset, data } => {
            out.push(1);
            offset.encode(out);
            (data.len() as u64).encode(out);
            written.push(data.clone());
        }
        Change::Zero { offset, len } => {
            out.push(2);
            (*offset, *len).encode(out);
        }
        Change::Truncate { size } => {
            out.push(3);
            size.encode(out);
        }
        Change::Remove => out.push(4),
        Change::SetAttrs(attrs) => {
            out.push(5);
            attrs.encode(out);
        }
        Change::RemoveAttr(name) => {
            out.push(6);
            name.encode(out);
        }
        Change::OmapSet(pairs) => {
            out.push(7);
            pairs.encode(out);
        }
        Change::OmapRemove(keys) => {
            out.push(8);
            keys.encode(out);
        }
        Change::OmapRemoveRange { begin, end } => {
            out.push(9);
            begin.encode(out);
            end.encode(out);
        }
        Change::OmapClear => out.push(10),
        Change::OmapSetHeader(header) => {
            out.push(11);
            header.encode(out);
        }
        Change::CloneFrom(from) => {
            out.push(12);
            from.encode(out);
        }
        Change::CloneBlocks { from, blocks } => {
            out.push(13);
            from.encode(out);
            (blocks.start, blocks.end).encode(out);
        }
        Change::Xor { offset, data } => {
            out.push(14);
            offset.encode(out);
            (data.len() as u64).encode(out);
            written.push(data.clone());
        }
    }
}

/// Where a change of bytes begins, and the bytes, which are beside.
fn decode_data(r: &mut Reader<'_>, written: &Bytes, at: &mut usize) -> Result<(u64, Bytes), DecodeError> {
    let (offset, len) = <(u64, u64)>::decode(r)?;
    let left = written.len() - *at;
    if len > left as u64 {
        return Err(DecodeError::Short { needed: len as usize, left });
    }
    let data = written.slice(*at..*at + len as usize);
    *at += len as usize;
    ends(offset, len)?;
    Ok((offset, data))
}

/// The store adds the two, so the sum must not overflow.
fn ends(offset: u64, len: u64) -> Result<(), DecodeError> {
    match offset.checked_add(len) {
        Some(_) => Ok(()),
        None => Err(DecodeError::BadValue { what: "end of a change", value: offset }),
    }
}

fn decode_change(r: &mut Reader<'_>, written: &Bytes, at: &mut usize) -> Result<Change, DecodeError> {
    Ok(match u8::decode(r)? {
        0 => Change::Touch,
        1 => {
            let (offset, data) = decode_data(r, written, at)?;
            Change::Write { offset, data }
        }
        2 => {
            let (offset, len) = <(u64, u64)>::decode(r)?;
            ends(offset, len)?;
            Change::Zero { offset, len }
        }
        3 => Change::Truncate { size: u64::decode(r)? },
        4 => Change::Remove,
        5 => Change::SetAttrs(Decode::decode(r)?),
        6 => Change::RemoveAttr(Decode::decode(r)?),
        7 => Change::OmapSet(Decode::decode(r)?),
        8 => Change::OmapRemove(Decode::decode(r)?),
        9 => Change::OmapRemoveRange { begin: Decode::decode(r)?, end: Decode::decode(r)? },
        10 => Change::OmapClear,
        11 => Change::OmapSetHeader(Decode::decode(r)?),
        12 => Change::CloneFrom(Decode::decode(r)?),
        13 => {
            let (from, (start, end)) = <(StoredId, (u32, u32))>::decode(r)?;
            if end < start {
                return Err(DecodeError::BadValue { what: "end of a change", value: end.into() });
            }
            Change::CloneBlocks { from, blocks: start..end }
        }
        14 => {
            let (offset, data) = decode_data(r, written, at)?;
            Change::Xor { offset, data }
        }
        value => return Err(DecodeError::BadValue { what: "change kind", value: value.into() }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_base::{PgId, PoolId};

    #[test]
    fn every_change_reads_back_and_written_bytes_are_not_copied() {
        let id = || StoredId::from(ObjectId::head(PoolId(1), Name::default(), Name::default(), "a".into()));
        let pairs = || BTreeMap::from([(Name::from("k"), Bytes::from_static(b"v"))]);
        let mut txn = Transaction::new();
        for change in [
            Change::Touch,
            Change::Write { offset: 5, data: Bytes::from_static(b"hello") },
            Change::Zero { offset: 1, len: 2 },
            Change::Truncate { size: 9 },
            Change::SetAttrs(pairs()),
            Change::RemoveAttr("x".into()),
            Change::OmapSet(pairs()),
            Change::OmapRemove(BTreeSet::from([Name::from("k")])),
            Change::OmapRemoveRange { begin: "a".into(), end: "b".into() },
            Change::OmapClear,
            Change::OmapSetHeader(Bytes::from_static(b"h")),
            Change::CloneFrom(StoredId::meta("super")),
            Change::CloneBlocks { from: StoredId::meta("super"), blocks: 3..7 },
            Change::Write { offset: 0, data: Bytes::from_static(b"world") },
            Change::Xor { offset: 7, data: Bytes::from_static(b"delta") },
            Change::Remove,
        ] {
            txn.push(id(), change);
        }
        let pg = PgId { pool: PoolId(1), seed: 3 };
        txn.push(StoredId::Pg(SpgId::replicated(pg)), Change::Touch);
        txn.push(StoredId::Pg(SpgId { pg, shard: ShardId(2) }), Change::Touch);
        let StoredId::Object(object) = id() else { panic!("not an object") };
        txn.push(StoredId::object(ShardId(0), object), Change::Touch);

        for (id, _) in txn.changes.iter().chain(&[(StoredId::meta("super"), Change::Touch)]) {
            assert_eq!(nacre_wire::to_vec(id).len(), id.encoded_len());
        }
        let (mut out, mut data) = (Vec::new(), Vec::new());
        txn.encode_split(&mut out, &mut data);
        assert_eq!(data, ["hello", "world", "delta"]);
        let data = Bytes::from(data.concat());
        let back = Transaction::decode_split(&mut Reader::new(&out), &data).unwrap();
        assert_eq!(back, txn);
        let Change::Write { data: read, .. } = &back.changes[1].1 else { panic!("not a write") };
        assert_eq!(read.as_ptr(), data.as_ptr());
        assert!(Transaction::decode_split(&mut Reader::new(&out), &data.slice(..9)).is_err());
    }

    #[test]
    fn a_shard_of_a_placement_group_is_one_range_and_whole_objects_keep_their_order() {
        let object = |pool, hash| ObjectId { pool: PoolId(pool), hash, ..ObjectId::min() };
        let pg =
            |seed, shard| StoredId::Pg(SpgId { pg: PgId { pool: PoolId(1), seed }, shard: ShardId(shard) });
        let ordered = [
            StoredId::meta("a"),
            pg(1, -1),
            pg(1, 0),
            pg(1, 3),
            pg(2, -1),
            object(1, 2).into(),
            object(1, 1).into(), // reversed, 2 is less than 1
            StoredId::object(ShardId(0), object(1, 2)),
            StoredId::object(ShardId(0), object(1, 1)),
            StoredId::object(ShardId(3), object(1, 2)),
            StoredId::object(ShardId(3), object(1, 1)),
            object(2, 2).into(),
            StoredId::object(ShardId(1), object(2, 2)),
            ObjectId::max().into(),
        ];
        for (at, one) in ordered.iter().enumerate() {
            for (other_at, other) in ordered.iter().enumerate() {
                assert_eq!(one.cmp(other), at.cmp(&other_at), "{one} and {other}");
            }
            assert_eq!(nacre_wire::from_slice::<StoredId>(&nacre_wire::to_vec(one)).as_ref(), Ok(one));
        }
    }

    #[test]
    fn ids_without_a_shard_are_encoded_as_before_there_were_shards() {
        let pg = PgId { pool: PoolId(1), seed: 3 };
        let plain = [&[1][..], &nacre_wire::to_vec(&pg)].concat();
        assert_eq!(nacre_wire::to_vec(&StoredId::Pg(SpgId::replicated(pg))), plain);
        let without = [&[3, 0xff][..], &nacre_wire::to_vec(&pg)].concat();
        assert!(nacre_wire::from_slice::<StoredId>(&without).is_err());
    }
}
