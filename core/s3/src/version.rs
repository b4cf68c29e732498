//! Versions of objects: their names, and what the index notes about a key that has or had several.
//!
//! The versions of a key are in a list, from the newest to the oldest. The newest is the current one. It is
//! where objects without versions are, or in the key's `History` if it is a delete marker. The others are
//! entries of their own, and each names its neighbours, so that a change reads only what it changes.

use crate::record::Entry;
use crate::tag::Tag;
use nacre_wire::{Decode, DecodeError, Encode, Reader, versioned_fields};
use std::fmt;
use std::str::FromStr;

/// Whether a bucket keeps the versions of its objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Versioning {
    /// Never did.
    #[default]
    Off,
    Enabled,
    /// Did once. What is written now is the `null` version, of which a key has at most one.
    Suspended,
}
impl Encode for Versioning {
    fn encode(&self, out: &mut Vec<u8>) {
        (*self as u8).encode(out);
    }
}
impl Decode for Versioning {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match u8::decode(r)? {
            0 => Ok(Versioning::Off),
            1 => Ok(Versioning::Enabled),
            2 => Ok(Versioning::Suspended),
            value => Err(DecodeError::BadValue { what: "s3 versioning", value: value.into() }),
        }
    }
}

/// Names a version of an object, for clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum VersionId {
    /// What was written while the bucket kept no versions.
    Null,
    /// `stamp` is higher for later versions of a key; `tag` names the write.
    Of { stamp: u64, tag: Tag },
}

impl fmt::Display for VersionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VersionId::Null => f.write_str("null"),
            VersionId::Of { stamp, tag } => write!(f, "{stamp:016x}{tag}"),
        }
    }
}

impl FromStr for VersionId {
    type Err = ();
    fn from_str(text: &str) -> Result<VersionId, ()> {
        if text == "null" {
            return Ok(VersionId::Null);
        }
        let (stamp, tag) = text.split_at_checked(16).ok_or(())?;
        let stamp = u64::from_str_radix(stamp, 16).map_err(drop)?;
        let id = VersionId::Of { stamp, tag: tag.parse()? };
        // One text for each version.
        if id.to_string() == text { Ok(id) } else { Err(()) }
    }
}

/// What the index notes about a key beside its current object. A key has it from the first version with a
/// stamp until its last version is gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The write that changed the key last. Every change of a key with a history changes this, so that a
    /// comparison of the history finds them all.
    pub last: Tag,
    /// The highest stamp that a version of the key has or had.
    pub newest: u64,
    /// The stamp of the `null` version.
    pub null: Option<u64>,
    /// The stamp of the newest version that is not current.
    pub older: Option<u64>,
    /// The current version, if that is a delete marker. There is no object then.
    pub marker: Option<Entry>,
}
versioned_fields!(History, "s3 history", last, newest, null, older, marker);

/// A version that is not current: an object, or a delete marker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OldVersion {
    pub entry: Entry,
    /// The stamp of the next newer version, which may be the current one.
    pub newer: u64,
    /// The stamp of the next older version.
    pub older: Option<u64>,
}
versioned_fields!(OldVersion, "s3 old version", entry, newer, older);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_has_one_text() {
        let tag = Tag { instance: 0xabc, sequence: 0x12 };
        for id in [VersionId::Null, VersionId::Of { stamp: 3, tag }] {
            assert_eq!(id.to_string().parse(), Ok(id));
        }
        let text = VersionId::Of { stamp: 0xa, tag }.to_string();
        for other in ["", "Null", &text.to_uppercase(), &text[1..], &format!("{text}0"), "ä23456789012345 "]
        {
            assert!(other.parse::<VersionId>().ok().is_none_or(|id| id.to_string() == other), "{other}");
        }
        assert_eq!(text.to_uppercase().parse::<VersionId>(), Err(()));
    }
}
