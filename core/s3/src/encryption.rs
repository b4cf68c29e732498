//! Encryption of bodies at rest: what the record of an object has about it, and where the encrypted bytes
//! are.
//!
//! A body is encrypted in chunks of 64 KiB, each with a code that authenticates it, so that a range is read
//! without the rest. A stripe has as many bytes of the body as without encryption, and behind each chunk its
//! code: sizes in records are those of the plain body. `docs/decisions/0067-encryption-of-bodies.md`.

use bytes::Bytes;
use nacre_wire::{Decode, DecodeError, Encode, Reader, from_slice, versioned_fields};
use std::collections::BTreeMap;
use std::ops::Range;

/// How much of a body is encrypted at once.
pub const CHUNK: u64 = 64 << 10;
/// The bytes that authenticate a chunk, behind it.
pub const CODE: u64 = 16;

/// Where the key comes from that an object's own key is encrypted with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// The gateways' own key. S3: SSE-S3.
    Gateways,
    /// Each request brings it; it is kept nowhere. S3: SSE-C.
    Client,
    /// A named key of the cluster's key ring. S3: SSE-KMS.
    Named,
    /// A named key that Vault keeps. S3: SSE-KMS.
    Vault,
}

impl KeySource {
    const ALL: [KeySource; 4] = [KeySource::Gateways, KeySource::Client, KeySource::Named, KeySource::Vault];
}
impl Encode for KeySource {
    fn encode(&self, out: &mut Vec<u8>) {
        (*self as u8).encode(out);
    }
}
impl Decode for KeySource {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let value = u8::decode(r)?;
        let bad = DecodeError::BadValue { what: "s3 key source", value: value.into() };
        KeySource::ALL.get(usize::from(value)).copied().ok_or(bad)
    }
}

/// How a body is encrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encryption {
    pub source: KeySource,
    /// Of a named key its name, of a client's key its MD5 in base64.
    pub name: String,
    /// The client's text that belongs to a named key, in base64.
    pub context: String,
    /// The object's own key, encrypted.
    pub wrapped: Bytes,
    /// The key that encrypts it, as Vault has encrypted that; empty of other sources.
    pub data_key: String,
}
versioned_fields!(Encryption, "s3 encryption", source, name, context, wrapped; later data_key);

impl Encryption {
    /// Whether a body that is encrypted like this needs no other encryption when it is copied. A client's key
    /// is never kept.
    pub fn is_like(&self, source: KeySource, name: &str, context: &str) -> bool {
        source != KeySource::Client && (self.source, &*self.name, &*self.context) == (source, name, context)
    }
}

/// How the objects of a bucket are encrypted whose writers ask for nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketEncryption {
    /// Not `Client`.
    pub source: KeySource,
    /// Of a named key.
    pub name: String,
}
versioned_fields!(BucketEncryption, "s3 bucket encryption", source, name);

impl BucketEncryption {
    /// The name of the setting.
    pub const SETTING: &str = "encryption";

    /// From the settings of a bucket; none if it is not set.
    pub fn decode(settings: &BTreeMap<String, Bytes>) -> Result<Option<BucketEncryption>, DecodeError> {
        settings.get(BucketEncryption::SETTING).map(|value| from_slice(value)).transpose()
    }
}

/// The chunks of a stripe that have a range of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunks {
    /// The number of the first.
    pub first: u64,
    /// Where they are in the RADOS object, as if the last were whole.
    pub stored: Range<u64>,
    /// How many bytes of the first are before the range.
    pub skip: u64,
}

/// Where a part of a stripe is, by its place in the plain stripe. It is not empty.
pub fn chunks(offset: u64, len: u64) -> Chunks {
    let (first, end) = (offset / CHUNK, (offset + len).div_ceil(CHUNK));
    Chunks { first, stored: first * (CHUNK + CODE)..end * (CHUNK + CODE), skip: offset - first * CHUNK }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::STRIPE;

    #[test]
    fn ranges_are_found_in_whole_chunks() {
        const STORED: u64 = CHUNK + CODE;
        for (offset, len, first, stored, skip) in [
            (0, 1, 0, 0..STORED, 0),
            (0, CHUNK, 0, 0..STORED, 0),
            (CHUNK - 1, 2, 0, 0..2 * STORED, CHUNK - 1),
            (CHUNK, CHUNK, 1, STORED..2 * STORED, 0),
            (CHUNK + 5, CHUNK, 1, STORED..3 * STORED, 5),
            (STRIPE - 1, 1, 63, 63 * STORED..64 * STORED, CHUNK - 1),
        ] {
            assert_eq!(chunks(offset, len), Chunks { first, stored, skip }, "{offset}+{len}");
        }
        assert!(STRIPE.is_multiple_of(CHUNK));
    }

    #[test]
    fn what_encrypts_a_body_survives_its_encoding() {
        let encryption = Encryption {
            source: KeySource::Named,
            name: "k".into(),
            context: "e30=".into(),
            wrapped: Bytes::from_static(b"w"),
            data_key: String::new(),
        };
        let bytes = nacre_wire::to_vec(&encryption);
        assert_eq!(from_slice(&bytes), Ok(encryption.clone()));
        assert!(encryption.is_like(KeySource::Named, "k", "e30="));
        assert!(
            !encryption.is_like(KeySource::Named, "k", "")
                && !encryption.is_like(KeySource::Gateways, "k", "")
        );
        let of_client = Encryption { source: KeySource::Client, ..encryption };
        assert!(!of_client.is_like(KeySource::Client, "k", "e30="));
        assert!(from_slice::<KeySource>(&[4]).is_err());
        let set = BucketEncryption { source: KeySource::Gateways, name: String::new() };
        let settings =
            BTreeMap::from([(BucketEncryption::SETTING.to_owned(), nacre_wire::to_vec(&set).into())]);
        assert_eq!(BucketEncryption::decode(&settings), Ok(Some(set)));
        assert_eq!(BucketEncryption::decode(&BTreeMap::new()), Ok(None));
    }
}
