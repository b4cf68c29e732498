//! The values in the index: what listings show of an object, and the rest.

use crate::acl::Acl;
use crate::encryption::{CODE, Encryption};
use crate::lock::Lock;
use crate::tag::Tag;
use crate::version::VersionId;
use bytes::Bytes;
use nacre_wire::{Decode, DecodeError, Encode, Reader, versioned, versioned_fields};
use std::collections::BTreeMap;

/// What listings show of an object, and what tells one write of it from the next. Small, since a page of a
/// listing reads a thousand of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The write that made it.
    pub tag: Tag,
    pub size: u64,
    /// Milliseconds since 1970.
    pub mtime: u64,
    /// Without quotes.
    pub etag: String,
    /// The user that wrote it.
    pub owner: String,
    /// Empty for STANDARD.
    pub storage_class: String,
    /// The checksum algorithm, if the object has a checksum.
    pub checksum: String,
    /// Its place among the versions of its key: higher is newer. Zero in a bucket without versions.
    pub stamp: u64,
    /// It is the `null` version, although it has a stamp.
    pub is_null: bool,
    /// A delete marker: there is no object.
    pub is_marker: bool,
    /// Counts changes of the head, so that a comparison of entries finds them.
    pub edits: u32,
    /// When the object ends, in milliseconds since 1970; zero for never.
    pub expires: u64,
}
versioned_fields!(
    Entry,
    "s3 entry",
    tag,
    size,
    mtime,
    etag,
    owner,
    storage_class,
    checksum; later stamp, is_null, is_marker, edits, expires
);

impl Entry {
    /// Whether the object has ended, and only waits for its deletion.
    pub fn is_expired(&self, now: u64) -> bool {
        self.expires != 0 && self.expires <= now
    }

    /// The version that it is.
    pub fn version(&self) -> VersionId {
        match self.stamp {
            0 => VersionId::Null,
            _ if self.is_null => VersionId::Null,
            stamp => VersionId::Of { stamp, tag: self.tag },
        }
    }
}

/// Everything else about an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Headers that come back with the object, by their lower-case names, also `x-amz-meta-...`.
    pub headers: BTreeMap<String, String>,
    pub checksum: Option<Checksum>,
    pub body: Body,
    /// The sizes of the parts of a multipart upload, in order; empty for an object that was put at once.
    pub parts: Vec<u64>,
    /// The upload that it was made by, so that a repeated Complete finds its result.
    pub upload: Option<Tag>,
    pub tags: BTreeMap<String, String>,
    /// What keeps it from being removed.
    pub lock: Lock,
    /// What others than the owner may do with it.
    pub acl: Acl,
    /// How the body is encrypted; none if it is not.
    pub encryption: Option<Encryption>,
}
versioned_fields!(Head, "s3 head", headers, checksum, body, parts, upload, tags; later lock, acl, encryption);

/// A checksum of an object or a part, as clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checksum {
    /// Such as `CRC64NVME`.
    pub algorithm: String,
    /// In base64; of a composite one with `-` and the number of parts.
    pub value: String,
    /// A checksum over the checksums of the parts. Otherwise it is over the whole object.
    pub is_composite: bool,
}
versioned_fields!(Checksum, "s3 checksum", algorithm, value, is_composite);

/// Where the bytes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    Inline(Bytes),
    /// In the data pool, one extent behind the other.
    Data(Vec<Extent>),
}

impl Default for Body {
    fn default() -> Body {
        Body::Inline(Bytes::new())
    }
}

impl Body {
    /// What is to be deleted when the object is gone.
    pub fn extents(&self) -> &[Extent] {
        match self {
            Body::Inline(_) => &[],
            Body::Data(extents) => extents,
        }
    }
}

impl Encode for Body {
    fn encode(&self, out: &mut Vec<u8>) {
        versioned(out, 1, 1, |out| match self {
            Body::Inline(bytes) => {
                0_u8.encode(out);
                bytes.encode(out);
            }
            Body::Data(extents) => {
                1_u8.encode(out);
                extents.encode(out);
            }
        });
    }
}
impl Decode for Body {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("s3 body", 1, |r, _| match u8::decode(r)? {
            0 => Ok(Body::Inline(Bytes::decode(r)?)),
            1 => Ok(Body::Data(Vec::decode(r)?)),
            kind => Err(DecodeError::BadValue { what: "s3 body", value: kind.into() }),
        })
    }
}

/// Bytes in the data pool that one write brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub tag: Tag,
    pub len: u64,
}
impl Encode for Extent {
    fn encode(&self, out: &mut Vec<u8>) {
        self.tag.encode(out);
        self.len.encode(out);
    }
}
impl Decode for Extent {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Extent { tag: Tag::decode(r)?, len: u64::decode(r)? })
    }
}

/// An object as the index has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    pub entry: Entry,
    pub head: Head,
}

impl Object {
    /// Whether its body and its parts have as many bytes as the entry says.
    pub(crate) fn is_whole(&self) -> bool {
        let body = match &self.head.body {
            // An encrypted body is one chunk with its code, and an empty one is not encrypted.
            Body::Inline(bytes) if self.head.encryption.is_some() && !bytes.is_empty() => {
                (bytes.len() as u64).checked_sub(CODE)
            }
            Body::Inline(bytes) => Some(bytes.len() as u64),
            Body::Data(extents) => sum(extents.iter().map(|extent| extent.len)),
        };
        let parts = &self.head.parts;
        let size = Some(self.entry.size);
        body == size && (parts.is_empty() || sum(parts.iter().copied()) == size)
    }
}

fn sum(mut sizes: impl Iterator<Item = u64>) -> Option<u64> {
    sizes.try_fold(0, u64::checked_add)
}

/// How many objects and bytes there are. Each gateway counts its own changes, so a count may be negative; the
/// sum over all gateways and leaves is exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub objects: i64,
    pub bytes: i64,
}
versioned_fields!(Counters, "s3 counters", objects, bytes);

impl Counters {
    /// Adds what another counter counts.
    pub fn add(&mut self, other: Counters) {
        self.objects = self.objects.wrapping_add(other.objects);
        self.bytes = self.bytes.wrapping_add(other.bytes);
    }
    /// What changes when one entry takes the place of another.
    pub fn of_change(before: Option<&Entry>, after: Option<&Entry>) -> Counters {
        let count = |entry: Option<&Entry>| {
            entry.map_or((0, 0), |entry| (1, i64::try_from(entry.size).unwrap_or(i64::MAX)))
        };
        let ((objects_before, bytes_before), (objects, bytes)) = (count(before), count(after));
        Counters { objects: objects - objects_before, bytes: bytes - bytes_before }
    }
}
