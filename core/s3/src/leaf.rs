//! A leaf of a bucket's index: one RADOS object, whose omap has the keys of a range.
//!
//! ```text
//! xattr "range"       LeafRange: which keys, and where others are
//! xattr "generation"  a number in decimal, which rises whenever the range changes; writes compare it
//! omap  "e" KEY       Entry of the object KEY
//!       "d" KEY       Head of it
//!       "m" KEY       History of it, if it has or had versions
//!       "v" KEY 0 AGE OldVersion of it; AGE is the inverted stamp, so that newer versions come first
//!       "w" KEY 0 AGE Head of that
//!       "t" NAME      the name ("e", "m", "u" or "v") was removed here; only while the leaf takes over keys
//!       "u" KEY 0 TAG Upload that is open
//!       "g" DUE TAG   Garbage, to be removed at the time DUE
//!       "n" DUE TAG N Notice of a change, until its topic has it; after DUE any gateway sends it
//!       "s" INSTANCE  Counters: what this incarnation of a gateway changed in this leaf
//!       "l"           the version of this layout
//! ```
//!
//! Keys are UTF-8, which has no byte 0xff: a prefix and 0xff sort behind all keys with that prefix.
//! The first leaf of a bucket has a fixed name. The root, an object of the bucket, has the other leaves by
//! their lowest key. It may lag behind: every leaf says in `right` where the keys behind it are.

use crate::record::Extent;
use crate::tag::Tag;
use bytes::Bytes;
use nacre_base::{Name, PoolId};
use nacre_client::{Compare, ObjectRequest};
use nacre_proto::types::Op;
use nacre_wire::{Decode, DecodeError, Encode, Reader, to_vec, versioned, versioned_fields};
use std::collections::BTreeMap;

pub(crate) const RANGE: &str = "range";
pub(crate) const GENERATION: &str = "generation";
/// What sorts behind every key that begins with what is before it.
pub(crate) const BEHIND: u8 = 0xff;

/// The name of a leaf's RADOS object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeafName(pub String);

impl LeafName {
    /// The leaf that a bucket begins with. It always has the lowest keys.
    pub fn first(bucket: &str) -> LeafName {
        LeafName(format!("{bucket}.leaf"))
    }
    /// A further leaf.
    pub fn new(bucket: &str, tag: Tag) -> LeafName {
        LeafName(format!("{bucket}.leaf.{tag}"))
    }
    /// The name of the object with the bucket's map of leaves.
    pub fn root(bucket: &str) -> String {
        format!("{bucket}.root")
    }
}
impl Encode for LeafName {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }
}
impl Decode for LeafName {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(LeafName(String::decode(r)?))
    }
}

/// Which keys a leaf has, and where others are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeafRange {
    /// The lowest key; empty for the first leaf.
    pub low: Bytes,
    /// The lowest key that is not in it any more; none for the last leaf.
    pub high: Option<Bytes>,
    pub generation: u64,
    /// The leaf that begins at `high`.
    pub right: Option<LeafName>,
    /// Keys that are not in this leaf may still be in that one.
    pub source: Option<LeafName>,
    /// The bucket is being deleted.
    pub is_sealed: bool,
}
versioned_fields!(LeafRange, "s3 leaf range", low, high, generation, right, source, is_sealed);

impl LeafRange {
    /// All keys.
    pub fn first() -> LeafRange {
        LeafRange {
            low: Bytes::new(),
            high: None,
            generation: 1,
            right: None,
            source: None,
            is_sealed: false,
        }
    }
    /// Whether the leaf has the key.
    pub fn contains(&self, key: &[u8]) -> bool {
        *key >= *self.low && self.high.as_ref().is_none_or(|high| *key < **high)
    }
    /// The same range, which is about to change.
    pub fn next_generation(&self) -> LeafRange {
        LeafRange { generation: self.generation.wrapping_add(1), ..self.clone() }
    }
    /// Writes it to its leaf.
    pub fn put(&self, leaf: ObjectRequest) -> ObjectRequest {
        leaf.set_xattr(RANGE, to_vec(self)).set_xattr(GENERATION, self.generation.to_string())
    }
    /// Writes it to its leaf, if the leaf still has this generation.
    pub fn replace(&self, generation: u64, leaf: ObjectRequest) -> ObjectRequest {
        self.put(leaf.compare_xattr(GENERATION, Compare::Equal, generation.to_string()))
    }
}

/// Data that no object has any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Garbage {
    /// Of an object that was replaced or deleted.
    Data(Vec<Extent>),
    /// The state of an upload that is complete or aborted, and the parts that the object does not have.
    Upload { id: Tag, kept: Vec<Tag> },
}
impl Encode for Garbage {
    fn encode(&self, out: &mut Vec<u8>) {
        versioned(out, 1, 1, |out| match self {
            Garbage::Data(extents) => {
                0_u8.encode(out);
                extents.encode(out);
            }
            Garbage::Upload { id, kept } => {
                1_u8.encode(out);
                id.encode(out);
                kept.encode(out);
            }
        });
    }
}
impl Decode for Garbage {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("s3 garbage", 1, |r, _| match u8::decode(r)? {
            0 => Ok(Garbage::Data(Vec::decode(r)?)),
            1 => Ok(Garbage::Upload { id: Tag::decode(r)?, kept: Vec::decode(r)? }),
            kind => Err(DecodeError::BadValue { what: "s3 garbage", value: kind.into() }),
        })
    }
}

pub(crate) fn named(kind: u8, rest: &[u8]) -> Name {
    Name::from(&*[&[kind], rest].concat())
}
/// What a name in the omap has behind its kind.
pub(crate) fn key_of(name: &Name) -> &[u8] {
    name.as_bytes().get(1..).unwrap_or_default()
}
pub(crate) fn entry_key(key: &[u8]) -> Name {
    named(b'e', key)
}
pub(crate) fn head_key(key: &[u8]) -> Name {
    named(b'd', key)
}
/// Of the versions of a key.
pub(crate) fn history_key(key: &[u8]) -> Name {
    named(b'm', key)
}
/// What sorts versions of a key, newer ones first, behind the key and a zero.
pub(crate) fn age_of(stamp: u64) -> String {
    format!("{:016x}", !stamp)
}
pub(crate) fn old_key(key: &[u8], stamp: u64) -> Name {
    named(b'v', &[key, &[0], age_of(stamp).as_bytes()].concat())
}
pub(crate) fn old_head_key(key: &[u8], stamp: u64) -> Name {
    named(b'w', &[key, &[0], age_of(stamp).as_bytes()].concat())
}
/// The name that says whether there is a head of this name; other names say it themselves.
pub(crate) fn cell_of(name: &Name) -> Name {
    match name.as_bytes().first() {
        Some(b'd') => entry_key(key_of(name)),
        Some(b'w') => named(b'v', key_of(name)),
        _ => name.clone(),
    }
}
/// The name of the head that belongs to an entry.
pub(crate) fn head_of(name: &Name) -> Option<Name> {
    match name.as_bytes().first() {
        Some(b'e') => Some(head_key(key_of(name))),
        Some(b'v') => Some(named(b'w', key_of(name))),
        _ => None,
    }
}
/// Of an entry, a history, an upload or an old version.
pub(crate) fn tombstone_key(of: &Name) -> Name {
    named(b't', of.as_bytes())
}
pub(crate) fn upload_key(key: &[u8], id: Tag) -> Name {
    named(b'u', &[key, &[0], id.to_string().as_bytes()].concat())
}
/// Of the map of leaves.
pub(crate) fn map_key(low: &[u8]) -> Name {
    named(b'l', low)
}
pub(crate) fn garbage_key(due: u64, tag: Tag) -> Name {
    named(b'g', format!("{due:016x}{tag}").as_bytes())
}
/// Of a change, of which there may be several.
pub(crate) fn notice_key(due: u64, tag: Tag, at: usize) -> Name {
    named(b'n', format!("{due:016x}{tag}.{at}").as_bytes())
}
/// A name before those of all notices that are due at this time or later.
pub(crate) fn notices_from(due: u64) -> Name {
    named(b'n', format!("{due:016x}").as_bytes())
}
pub(crate) fn counters_key(instance: u64) -> Name {
    named(b's', format!("{instance:016x}").as_bytes())
}
/// When garbage may be removed, or a notice sent by other gateways, by its key.
pub(crate) fn due_of(key: &Name) -> Option<u64> {
    let text = std::str::from_utf8(key.as_bytes().get(1..17)?).ok()?;
    u64::from_str_radix(text, 16).ok()
}

/// Makes an empty leaf, or finds it.
pub(crate) fn create_leaf(pool: PoolId, name: &LeafName, range: &LeafRange) -> ObjectRequest {
    assert!(range.high.as_ref().is_none_or(|high| range.low < *high), "a leaf without keys: {range:?}");
    range
        .put(ObjectRequest::new(pool, name.0.as_str()).create(true))
        .omap_set([(Name::from("l"), Bytes::from_static(b"1"))])
}

/// Fails unless the omap has these values. An empty one stands for a name that must not be there.
pub(crate) fn compare_all(values: impl IntoIterator<Item = (Name, Bytes)>) -> Op {
    let equal = i32::from(Compare::Equal as u8);
    Op::OmapCmp(values.into_iter().map(|(name, value)| (name, (value, equal))).collect())
}

/// The output of `Op::OmapGetVals`: pairs, and whether there are more behind them.
pub fn pairs(output: &[u8]) -> Result<(BTreeMap<Name, Bytes>, bool), DecodeError> {
    let r = &mut Reader::new(output);
    Ok((BTreeMap::decode(r)?, bool::decode(r)?))
}

/// What makes the index of a new bucket: the requests can be carried out in any order, before its record.
pub fn create_bucket(pool: PoolId, bucket: &str) -> [ObjectRequest; 2] {
    let first = LeafName::first(bucket);
    let root = ObjectRequest::new(pool, LeafName::root(bucket))
        .create(true)
        .omap_set([(map_key(b""), Bytes::from(to_vec(&first)))]);
    [create_leaf(pool, &first, &LeafRange::first()), root]
}
