//! The state of a multipart upload: a RADOS object of its own in the index pool.
//!
//! ```text
//! xattr "state"   "open", or "closed" once a Complete or an Abort has begun: parts are refused from then on
//! omap  "h"       Upload: what the upload was begun with
//!       "p" NNNNN Part, by its number in decimal
//!       "o" TAG   Extent of a part that was replaced
//! ```
//!
//! The bucket's index has an entry for each open upload, whose removal commits a Complete or an Abort: only
//! one of them succeeds, once.

use crate::acl::Acl;
use crate::encryption::Encryption;
use crate::leaf::{compare_all, pairs};
use crate::lock::Lock;
use crate::record::{Checksum, Extent};
use crate::tag::Tag;
use bytes::Bytes;
use nacre_base::{Name, PoolId};
use nacre_client::{Compare, ObjectReply, ObjectRequest};
use nacre_wire::{DecodeError, from_slice, to_vec, versioned_fields};
use std::collections::BTreeMap;

const STATE: &str = "state";
const OPEN: &str = "open";
const CLOSED: &str = "closed";
/// How many pairs are read at once.
const PAGE: u64 = 1000;

/// What an upload was begun with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upload {
    pub key: String,
    pub owner: String,
    /// Milliseconds since 1970.
    pub initiated: u64,
    pub headers: BTreeMap<String, String>,
    pub tags: BTreeMap<String, String>,
    pub storage_class: String,
    /// The checksum algorithm that was asked for; empty for none.
    pub checksum: String,
    /// A checksum over the whole object, not over those of the parts.
    pub is_full_object: bool,
    /// The id of the bucket; empty in what an older gateway has begun.
    pub bucket: String,
    /// What keeps the object from being removed.
    pub lock: Lock,
    /// Of the object that it becomes.
    pub acl: Acl,
    /// How its parts are encrypted; none if they are not.
    pub encryption: Option<Encryption>,
}
versioned_fields!(
    Upload,
    "s3 upload",
    key,
    owner,
    initiated,
    headers,
    tags,
    storage_class,
    checksum,
    is_full_object; later bucket, lock, acl, encryption
);

/// A part that was uploaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub tag: Tag,
    pub size: u64,
    /// Milliseconds since 1970.
    pub mtime: u64,
    /// Without quotes.
    pub etag: String,
    pub checksum: Option<Checksum>,
}
versioned_fields!(Part, "s3 part", tag, size, mtime, etag, checksum);

/// An upload, as its object has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadState {
    pub is_open: bool,
    pub upload: Upload,
    pub parts: BTreeMap<u32, Part>,
    /// Parts that were replaced.
    pub replaced: Vec<Extent>,
}

fn object(pool: PoolId, id: Tag) -> ObjectRequest {
    ObjectRequest::new(pool, format!("upload.{id}"))
}
fn part_key(number: u32) -> Name {
    format!("p{number:05}").into()
}
/// One operation's output; empty if the reply is too short.
fn output(reply: &ObjectReply, at: usize) -> &[u8] {
    reply.ops.get(at).map(|op| &*op.data).unwrap_or_default()
}

impl Upload {
    /// Whether it makes this object of this bucket. Ids alone can be guessed.
    pub fn is_for(&self, bucket: &str, key: &str) -> bool {
        self.key == key && (self.bucket.is_empty() || self.bucket == bucket)
    }

    /// Begins it.
    pub fn create(&self, pool: PoolId, id: Tag) -> ObjectRequest {
        object(pool, id)
            .create(true)
            .set_xattr(STATE, OPEN)
            .omap_set([(Name::from("h"), Bytes::from(to_vec(self)))])
    }

    /// Removes its state.
    pub fn remove(pool: PoolId, id: Tag) -> ObjectRequest {
        object(pool, id).remove()
    }

    /// Refuses parts from now on.
    pub fn close(pool: PoolId, id: Tag) -> ObjectRequest {
        object(pool, id).assert_exists().set_xattr(STATE, CLOSED)
    }

    /// Takes parts again, after a Complete whose precondition did not hold.
    pub fn reopen(pool: PoolId, id: Tag) -> ObjectRequest {
        object(pool, id).assert_exists().set_xattr(STATE, OPEN)
    }

    /// Reads what it was begun with.
    pub fn read_header(pool: PoolId, id: Tag) -> ObjectRequest {
        object(pool, id).omap_get_keys([Name::from("h")].into())
    }

    /// The reply to `read_header`.
    pub fn of_reply(reply: &ObjectReply) -> Result<Option<Upload>, DecodeError> {
        let values: BTreeMap<Name, Bytes> = from_slice(output(reply, 0))?;
        values.get(&Name::from("h")).map(|value| from_slice(value)).transpose()
    }

    /// Reads one part.
    pub fn read_part(pool: PoolId, id: Tag, number: u32) -> ObjectRequest {
        object(pool, id).get_xattr(STATE).omap_get_keys([part_key(number)].into())
    }
}

impl Part {
    /// Adds a part in the place of what `replaced` has, while the upload is open.
    pub fn add(&self, pool: PoolId, id: Tag, number: u32, replaced: Option<&Part>) -> ObjectRequest {
        let guard = replaced.map(|part| Bytes::from(to_vec(part))).unwrap_or_default();
        let part = (part_key(number), Bytes::from(to_vec(self)));
        let replaced = replaced
            .filter(|part| part.size > 0)
            .map(|part| (Name::from(format!("o{}", part.tag)), Bytes::from(to_vec(&part.extent()))));
        object(pool, id)
            .compare_xattr(STATE, Compare::Equal, OPEN)
            .op(compare_all([(part_key(number), guard)]))
            .omap_set([part].into_iter().chain(replaced))
    }

    /// The reply to `Upload::read_part`: whether the upload is open, and the part.
    pub fn of_reply(reply: &ObjectReply, number: u32) -> Result<(bool, Option<Part>), DecodeError> {
        let values: BTreeMap<Name, Bytes> = from_slice(output(reply, 1))?;
        let part = values.get(&part_key(number)).map(|value| from_slice(value)).transpose()?;
        Ok((output(reply, 0) == OPEN.as_bytes(), part))
    }

    /// Where its bytes are.
    pub fn extent(&self) -> Extent {
        Extent { tag: self.tag, len: self.size }
    }
}

/// An upload that is read page by page.
#[derive(Debug, Default)]
pub struct UploadReader {
    is_open: bool,
    upload: Option<Upload>,
    parts: BTreeMap<u32, Part>,
    replaced: Vec<Extent>,
    after: Name,
}

impl UploadReader {
    /// Reads what comes next.
    pub fn request(&self, pool: PoolId, id: Tag) -> ObjectRequest {
        object(pool, id).get_xattr(STATE).omap_get(self.after.clone(), PAGE)
    }

    /// Takes a reply; whether there is more.
    pub fn take(&mut self, reply: &ObjectReply) -> Result<bool, DecodeError> {
        self.is_open = output(reply, 0) == OPEN.as_bytes();
        let (pairs, more) = pairs(output(reply, 1))?;
        for (name, value) in &pairs {
            match name.as_bytes() {
                b"h" => self.upload = Some(from_slice(value)?),
                [b'p', number @ ..] => {
                    if let Some(number) = std::str::from_utf8(number).ok().and_then(|text| text.parse().ok())
                    {
                        self.parts.insert(number, from_slice(value)?);
                    }
                }
                [b'o', ..] => self.replaced.push(from_slice(value)?),
                _ => {}
            }
        }
        self.after = pairs.into_keys().next_back().unwrap_or_default();
        Ok(more)
    }

    /// The upload; none if the object has none.
    pub fn finish(self) -> Option<UploadState> {
        let UploadReader { is_open, upload, parts, replaced, .. } = self;
        Some(UploadState { is_open, upload: upload?, parts, replaced })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_wire::{Encode, versioned};

    fn upload() -> Upload {
        Upload {
            key: "k".into(),
            owner: "u".into(),
            initiated: 1,
            headers: BTreeMap::new(),
            tags: BTreeMap::new(),
            storage_class: String::new(),
            checksum: "CRC32".into(),
            is_full_object: true,
            bucket: "b".into(),
            lock: Lock::default(),
            acl: Acl::default(),
            encryption: None,
        }
    }

    #[test]
    fn upload_is_for_one_key_of_one_bucket() {
        assert!(upload().is_for("b", "k"));
        assert!(!upload().is_for("mine", "k") && !upload().is_for("b", "other"));
    }

    #[test]
    fn upload_of_an_older_gateway_can_be_read() {
        let new = upload();
        let mut old = Vec::new();
        versioned(&mut old, 1, 1, |out| {
            new.key.encode(out);
            new.owner.encode(out);
            new.initiated.encode(out);
            new.headers.encode(out);
            new.tags.encode(out);
            new.storage_class.encode(out);
            new.checksum.encode(out);
            new.is_full_object.encode(out);
        });
        assert_eq!(from_slice::<Upload>(&old), Ok(Upload { bucket: String::new(), ..new.clone() }));
        assert_eq!(from_slice::<Upload>(&to_vec(&new)), Ok(new));
    }
}
