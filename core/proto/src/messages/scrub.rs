//! What members of a placement group tell each other to find out whether their copies are the same.
//! Ours alone: no Ceph client ever sees these.
//!
//! A question travels in the stream of the primary's writes and is answered from what the member has
//! when it comes to it, which is the group at exactly the version that the question names. So nothing
//! is locked, and no write waits.

use super::part::Stale;
use crate::types::ObjectId;
use bytes::Bytes;
use nacre_base::{Name, OsdId, SnapId, Utime, Version};
use nacre_wire::{Decode, DecodeError, Encode, Reader, versioned, versioned_fields};
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq)]
pub enum ScrubMsg {
    /// Primary to member: tell me that, as it is at that version.
    Query { id: u64, at: Version, query: ScrubQuery },
    Answer {
        id: u64,
        /// None: we were not at that version.
        answer: Option<ScrubAnswer>,
    },
    /// Primary to member: that of your copy is wrong. Note it as missing; the right one follows.
    Mend { object: ObjectId, stale: Stale },
    /// Primary to member: keep this, for when you are the primary.
    Note(ScrubNote),
}

#[derive(Clone, Debug, PartialEq)]
pub enum ScrubQuery {
    /// What is there from `from` up to but not including `to`, or the end of the group. `values`: with
    /// the values of attributes and not their checksums alone.
    Names { from: ObjectId, to: Option<ObjectId>, values: bool },
    /// `chain`: the checksum of everything before. `factors`: of a shard of an erasure-coded object also the
    /// checksums of its products with these, from zero.
    Data { object: ObjectId, offset: u64, len: u64, chain: u32, factors: Vec<u8> },
    /// The pairs from a key up to but not including another.
    Omap { object: ObjectId, from: Name, to: Option<Name>, chain: u32 },
}

#[derive(Clone, Debug, PartialEq)]
pub enum ScrubAnswer {
    /// `end`: the objects from here on did not fit.
    Names {
        entries: Vec<ScrubEntry>,
        end: Option<ObjectId>,
    },
    Sum(ScrubSum),
    /// `ScrubSum::Of`, and the checksums of the products that were asked for.
    Products {
        sum: u32,
        chain: u32,
        products: Vec<u32>,
    },
}

/// The metadata of one object.
#[derive(Clone, Debug, PartialEq)]
pub struct ScrubEntry {
    pub object: ObjectId,
    pub size: u64,
    pub version: Version,
    pub user_version: u64,
    pub mtime: Utime,
    /// Checksums, and values if they were asked for.
    pub attrs: BTreeMap<Name, (u32, Option<Bytes>)>,
    pub omap_header: u32,
    /// `scrub_error::shard` bits that one look at it shows.
    pub errors: u64,
}

impl ScrubEntry {
    /// With nothing in it yet.
    pub fn new(object: ObjectId) -> ScrubEntry {
        ScrubEntry {
            object,
            size: 0,
            version: Version::ZERO,
            user_version: 0,
            mtime: Utime::ZERO,
            attrs: BTreeMap::new(),
            omap_header: 0,
            errors: 0,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrubSum {
    /// There is no such object.
    Absent,
    /// It cannot be read.
    Unreadable,
    /// Of what was asked for, with zeros where nothing is; and `chain` continued over what is there.
    Of { sum: u32, chain: u32 },
}

/// When a group was last looked through, and what came of it. On disk, and in messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubState {
    pub last: Version,
    pub last_stamp: Utime,
    pub last_deep: Version,
    pub last_deep_stamp: Utime,
    /// When nothing was found.
    pub last_clean_stamp: Utime,
    /// Wrong copies that metadata shows, and those that only their content shows.
    pub shallow_errors: u64,
    pub deep_errors: u64,
    /// Of all objects, counted when they were last read.
    pub omap_keys: u64,
    pub omap_bytes: u64,
    /// Copies that were found wrong and made right again, ever.
    pub repaired: u64,
}

impl ScrubState {
    pub fn errors(&self) -> u64 {
        self.shallow_errors + self.deep_errors
    }
}

/// Copies of one object that are not the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BadObject {
    /// `scrub_error::object` bits.
    pub errors: u64,
    pub user_version: u64,
    pub shards: BTreeMap<OsdId, Shard>,
}

/// One copy, as it was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shard {
    /// `scrub_error::shard` bits.
    pub errors: u64,
    pub primary: bool,
    /// The copy that is right.
    pub selected: bool,
    pub size: u64,
    pub version: Version,
    pub user_version: u64,
    pub mtime: Utime,
    pub data_digest: Option<u32>,
    pub omap_digest: Option<u32>,
    pub attrs: BTreeMap<Name, Bytes>,
}

/// An object whose clones are not those that its head knows of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BadSnaps {
    /// `scrub_error::snaps` bits.
    pub errors: u64,
    pub extra: Vec<SnapId>,
    pub missing: Vec<SnapId>,
}

/// What was found about one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    Object(BadObject),
    Snaps(BadSnaps),
}

/// What members keep for the primary.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScrubNote {
    pub state: ScrubState,
    /// Forget the findings there are first: those that metadata shows, and the others too.
    pub forget: bool,
    pub forget_deep: bool,
    /// With whether it is about clones. None: that one is settled.
    pub findings: Vec<(ObjectId, bool, Option<Finding>)>,
}

/// Ceph's numbers for what can be wrong. `librados::obj_err_t`, `err_t`, `inconsistent_snapset_t`.
pub mod scrub_error {
    /// Of an object, between its copies.
    pub mod object {
        pub const INFO: u64 = 1 << 1;
        pub const DATA_DIGEST: u64 = 1 << 4;
        pub const OMAP_DIGEST: u64 = 1 << 5;
        pub const SIZE: u64 = 1 << 6;
        pub const ATTR_VALUE: u64 = 1 << 7;
        pub const ATTR_NAME: u64 = 1 << 8;
    }
    /// Of one copy.
    pub mod shard {
        pub const MISSING: u64 = 1 << 1;
        pub const STAT: u64 = 1 << 2;
        pub const READ: u64 = 1 << 3;
        pub const INFO_MISSING: u64 = 1 << 14;
        pub const INFO_CORRUPTED: u64 = 1 << 15;
    }
    /// Of an object's clones.
    pub mod snaps {
        pub const CLONE_MISSING: u64 = 1 << 2;
        pub const HEADLESS_CLONE: u64 = 1 << 5;
        pub const SIZE: u64 = 1 << 6;
        pub const EXTRA_CLONES: u64 = 1 << 9;
    }
}

versioned_fields!(
    ScrubEntry,
    "scrub entry",
    object,
    size,
    version,
    user_version,
    mtime,
    attrs,
    omap_header,
    errors
);
versioned_fields!(
    ScrubState,
    "scrub state",
    last,
    last_stamp,
    last_deep,
    last_deep_stamp,
    last_clean_stamp,
    shallow_errors,
    deep_errors,
    omap_keys,
    omap_bytes,
    repaired
);
versioned_fields!(BadObject, "inconsistent object", errors, user_version, shards);
versioned_fields!(
    Shard,
    "inconsistent copy",
    errors,
    primary,
    selected,
    size,
    version,
    user_version,
    mtime,
    data_digest,
    omap_digest,
    attrs
);
versioned_fields!(BadSnaps, "inconsistent clones", errors, extra, missing);

impl Encode for Finding {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Finding::Object(bad) => {
                out.push(0);
                bad.encode(out);
            }
            Finding::Snaps(bad) => {
                out.push(1);
                bad.encode(out);
            }
        }
    }
}
impl Decode for Finding {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match u8::decode(r)? {
            0 => Ok(Finding::Object(Decode::decode(r)?)),
            1 => Ok(Finding::Snaps(Decode::decode(r)?)),
            value => Err(DecodeError::BadValue { what: "scrub finding", value: value.into() }),
        }
    }
}

impl Encode for ScrubNote {
    fn encode(&self, out: &mut Vec<u8>) {
        self.state.encode(out);
        self.forget.encode(out);
        self.forget_deep.encode(out);
        (self.findings.len() as u32).encode(out);
        for (object, about_snaps, finding) in &self.findings {
            object.encode(out);
            about_snaps.encode(out);
            finding.encode(out);
        }
    }
}
impl Decode for ScrubNote {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(ScrubNote {
            state: Decode::decode(r)?,
            forget: Decode::decode(r)?,
            forget_deep: Decode::decode(r)?,
            findings: r.list(|r| Ok((Decode::decode(r)?, Decode::decode(r)?, Decode::decode(r)?)))?,
        })
    }
}

/// In one question.
const FACTORS_MAX: usize = 1024;

impl Encode for ScrubQuery {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            ScrubQuery::Names { from, to, values } => {
                out.push(0);
                from.encode(out);
                to.encode(out);
                values.encode(out);
            }
            ScrubQuery::Data { object, offset, len, chain, factors } => {
                out.push(if factors.is_empty() { 1 } else { 3 });
                object.encode(out);
                (*offset, *len).encode(out);
                chain.encode(out);
                if !factors.is_empty() {
                    factors.encode(out);
                }
            }
            ScrubQuery::Omap { object, from, to, chain } => {
                out.push(2);
                object.encode(out);
                from.encode(out);
                to.encode(out);
                chain.encode(out);
            }
        }
    }
}
impl Decode for ScrubQuery {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match u8::decode(r)? {
            0 => ScrubQuery::Names {
                from: Decode::decode(r)?,
                to: Decode::decode(r)?,
                values: Decode::decode(r)?,
            },
            kind @ (1 | 3) => {
                let object = Decode::decode(r)?;
                let (offset, len) = <(u64, u64)>::decode(r)?;
                if offset.checked_add(len).is_none() {
                    return Err(DecodeError::BadValue { what: "length to look through", value: len });
                }
                let chain = Decode::decode(r)?;
                let factors: Vec<u8> = if kind == 3 { Decode::decode(r)? } else { Vec::new() };
                if factors.len() > FACTORS_MAX || (kind == 3 && factors.is_empty()) {
                    let value = factors.len() as u64;
                    return Err(DecodeError::BadValue { what: "number of factors", value });
                }
                ScrubQuery::Data { object, offset, len, chain, factors }
            }
            2 => ScrubQuery::Omap {
                object: Decode::decode(r)?,
                from: Decode::decode(r)?,
                to: Decode::decode(r)?,
                chain: Decode::decode(r)?,
            },
            value => return Err(DecodeError::BadValue { what: "scrub query", value: value.into() }),
        })
    }
}

impl Encode for ScrubAnswer {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            ScrubAnswer::Names { entries, end } => {
                out.push(0);
                entries.encode(out);
                end.encode(out);
            }
            ScrubAnswer::Sum(ScrubSum::Absent) => out.push(1),
            ScrubAnswer::Sum(ScrubSum::Unreadable) => out.push(2),
            ScrubAnswer::Sum(ScrubSum::Of { sum, chain }) => {
                out.push(3);
                sum.encode(out);
                chain.encode(out);
            }
            ScrubAnswer::Products { sum, chain, products } => {
                out.push(4);
                sum.encode(out);
                chain.encode(out);
                products.encode(out);
            }
        }
    }
}
impl Decode for ScrubAnswer {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match u8::decode(r)? {
            0 => ScrubAnswer::Names { entries: Decode::decode(r)?, end: Decode::decode(r)? },
            1 => ScrubAnswer::Sum(ScrubSum::Absent),
            2 => ScrubAnswer::Sum(ScrubSum::Unreadable),
            3 => ScrubAnswer::Sum(ScrubSum::Of { sum: Decode::decode(r)?, chain: Decode::decode(r)? }),
            4 => ScrubAnswer::Products {
                sum: Decode::decode(r)?,
                chain: Decode::decode(r)?,
                products: Decode::decode(r)?,
            },
            value => return Err(DecodeError::BadValue { what: "scrub answer", value: value.into() }),
        })
    }
}

impl Encode for ScrubMsg {
    fn encode(&self, out: &mut Vec<u8>) {
        versioned(out, 1, 1, |out| match self {
            ScrubMsg::Query { id, at, query } => {
                out.push(0);
                id.encode(out);
                at.encode(out);
                query.encode(out);
            }
            ScrubMsg::Answer { id, answer } => {
                out.push(1);
                id.encode(out);
                answer.encode(out);
            }
            ScrubMsg::Mend { object, stale } => {
                out.push(2);
                object.encode(out);
                stale.encode(out);
            }
            ScrubMsg::Note(note) => {
                out.push(3);
                note.encode(out);
            }
        });
    }
}
impl Decode for ScrubMsg {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("scrub message", 1, |r, _| {
            Ok(match u8::decode(r)? {
                0 => ScrubMsg::Query {
                    id: Decode::decode(r)?,
                    at: Decode::decode(r)?,
                    query: Decode::decode(r)?,
                },
                1 => ScrubMsg::Answer { id: Decode::decode(r)?, answer: Decode::decode(r)? },
                2 => ScrubMsg::Mend { object: Decode::decode(r)?, stale: Decode::decode(r)? },
                3 => ScrubMsg::Note(Decode::decode(r)?),
                value => return Err(DecodeError::BadValue { what: "scrub message", value: value.into() }),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_base::{Epoch, PoolId};
    use nacre_wire::{from_slice, to_vec};

    #[test]
    fn every_message_reads_back() {
        let object = ObjectId::head(PoolId(1), "ns".into(), Name::default(), "o".into());
        let version = Version::new(Epoch(3), 7);
        let entry = ScrubEntry {
            object: object.clone(),
            size: 5,
            version,
            attrs: [("_".into(), (7, Some(Bytes::from_static(b"v"))))].into(),
            ..ScrubEntry::new(object.clone())
        };
        let shard = Shard { errors: 8, data_digest: Some(9), ..Shard::default() };
        let bad = BadObject { errors: 16, user_version: 3, shards: [(OsdId(1), shard)].into() };
        let snaps = BadSnaps { errors: 4, extra: Vec::new(), missing: vec![SnapId(3)] };
        let findings = vec![
            (object.clone(), false, Some(Finding::Object(bad))),
            (object.clone(), true, Some(Finding::Snaps(snaps))),
            (object.clone(), false, None),
        ];
        let queries = [
            ScrubQuery::Names { from: object.clone(), to: None, values: true },
            ScrubQuery::Data { object: object.clone(), offset: 1, len: 2, chain: 3, factors: Vec::new() },
            ScrubQuery::Data { object: object.clone(), offset: 1, len: 2, chain: 3, factors: vec![1, 7] },
            ScrubQuery::Omap { object: object.clone(), from: "k".into(), to: Some("l".into()), chain: 3 },
        ];
        let answers = [
            None,
            Some(ScrubAnswer::Names { entries: vec![entry], end: Some(object.clone()) }),
            Some(ScrubAnswer::Sum(ScrubSum::Absent)),
            Some(ScrubAnswer::Sum(ScrubSum::Unreadable)),
            Some(ScrubAnswer::Sum(ScrubSum::Of { sum: 1, chain: 2 })),
            Some(ScrubAnswer::Products { sum: 1, chain: 2, products: vec![3, 4] }),
        ];
        let state = ScrubState { last: version, shallow_errors: 2, ..ScrubState::default() };
        let messages = queries
            .map(|query| ScrubMsg::Query { id: 1, at: version, query })
            .into_iter()
            .chain(answers.map(|answer| ScrubMsg::Answer { id: 1, answer }))
            .chain([
                ScrubMsg::Mend { object, stale: Stale::everything(version) },
                ScrubMsg::Note(ScrubNote { state, forget: true, forget_deep: false, findings }),
            ]);
        for message in messages {
            let bytes = to_vec(&message);
            assert_eq!(from_slice::<ScrubMsg>(&bytes), Ok(message));
            for cut in 0..bytes.len() {
                assert!(from_slice::<ScrubMsg>(&bytes[..cut]).is_err());
            }
        }
    }
}
