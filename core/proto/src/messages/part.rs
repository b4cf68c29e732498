//! What of an object a write changes, what of it a member lacks, and what of it a message carries:
//! ranges of bytes and of omap keys, and the metadata as one.

use crate::transaction::{Change, StoredId, Transaction};
use crate::types::ObjectId;
use bytes::Bytes;
use nacre_base::{IntervalSet, KeyRanges, Name, OsdId, Version};
use nacre_wire::{Decode, DecodeError, Encode, Reader, versioned_fields};
use std::collections::BTreeMap;

/// Some of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Its attributes (and with them its version), its size, and the omap's header.
    pub meta: bool,
    pub data: IntervalSet,
    pub omap: KeyRanges,
}

impl Part {
    pub fn everything() -> Part {
        Part { meta: true, data: (0..u64::MAX).into(), omap: KeyRanges::all() }
    }
    pub fn meta() -> Part {
        Part { meta: true, ..Part::default() }
    }
    pub fn is_empty(&self) -> bool {
        !self.meta && self.data.is_empty() && self.omap.is_empty()
    }
    pub fn add(&mut self, other: &Part) {
        self.meta |= other.meta;
        self.data.add(&other.data);
        self.omap.add(&other.omap);
    }
    pub fn subtract(&mut self, other: &Part) {
        self.meta &= !other.meta;
        self.data.subtract(&other.data);
        self.omap.subtract(&other.omap);
    }
    pub fn without(mut self, other: &Part) -> Part {
        self.subtract(other);
        self
    }
    /// Whether they have anything in common: asked of each request that waits, whenever anything happens, so
    /// it copies nothing.
    pub fn overlaps(&self, with: &Part) -> bool {
        self.meta && with.meta
            || with.data.iter().any(|range| self.data.overlaps(range))
            || self.omap.overlaps(&with.omap)
    }
    pub fn intersection(&self, with: &Part) -> Part {
        Part {
            meta: self.meta && with.meta,
            data: self.data.intersection(&with.data),
            omap: self.omap.intersection(&with.omap),
        }
    }
}

/// What one member lacks of an object. All the rest is as it should be; bytes that never were
/// written count as zeros, whatever the size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stale {
    /// The newest version that the member missed.
    pub need: Version,
    /// Of a head whose metadata is lacking: the version that it was of. Zero if nothing of it is here, or it
    /// is not known.
    pub have: Version,
    pub part: Part,
    /// Some of what was there turned out to be wrong. Clones of the object may share that.
    pub was_wrong: bool,
}

impl Stale {
    pub fn everything(need: Version) -> Stale {
        Stale { need, part: Part::everything(), ..Stale::default() }
    }
}

/// What a stretch of a group's history did to one object, for those whose own history ends within
/// that stretch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dirty {
    /// The last entry that was about it.
    pub last: Version,
    /// It is not there any more.
    pub gone: bool,
    /// The last entry that made, removed or replaced it: what was there before has nothing to do
    /// with what is there now. Zero: none in this stretch.
    pub born: Version,
    /// What was changed since.
    pub part: Part,
    /// Of a clone that was made in this stretch: of what.
    pub origin: Option<Origin>,
}

/// The head that a clone was made of, for members that have it as it was earlier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// As `Dirty::born`, of the head at that time.
    pub born: Version,
    /// What had been changed of the head in this stretch until then.
    pub part: Part,
}

/// A change of a transaction without what it writes. That an object's metadata changes goes without
/// saying.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Bytes are written, or become zeros.
    Data {
        offset: u64,
        len: u64,
    },
    Truncate {
        size: u64,
    },
    Remove,
    /// Keys are set or removed.
    Keys(Vec<Name>),
    KeyRange {
        begin: Name,
        end: Name,
    },
    OmapClear,
    CloneFrom(ObjectId),
    /// No OSD has that part any more, and an operator went back to what that OSD has there, which is older.
    Revert {
        part: Part,
        to: OsdId,
    },
}

/// What a write does to one object, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acts {
    /// None: the object that the log entry names.
    pub object: Option<ObjectId>,
    pub acts: Vec<Act>,
}

/// What a transaction does to objects; `own` is the one that its log entry names.
pub fn acts_of(txn: &Transaction, own: &ObjectId) -> Vec<Acts> {
    // Mostly one object's.
    let mut all: Vec<Acts> = Vec::with_capacity(1);
    for (id, change) in &txn.changes {
        let StoredId::Object(object) = id else { continue };
        let object = (object != own).then(|| object.clone());
        if all.last().is_none_or(|last| last.object != object) {
            all.push(Acts { object, acts: Vec::with_capacity(1) });
        }
        let acts = &mut all.last_mut().expect("just pushed").acts;
        match change {
            Change::Write { offset, data } | Change::Xor { offset, data } => {
                acts.push(Act::Data { offset: *offset, len: data.len() as u64 })
            }
            Change::Zero { offset, len } => acts.push(Act::Data { offset: *offset, len: *len }),
            Change::Truncate { size } => acts.push(Act::Truncate { size: *size }),
            Change::Remove => acts.push(Act::Remove),
            Change::OmapSet(pairs) => acts.push(Act::Keys(pairs.keys().cloned().collect())),
            Change::OmapRemove(keys) => acts.push(Act::Keys(keys.iter().cloned().collect())),
            Change::OmapRemoveRange { begin, end } => {
                acts.push(Act::KeyRange { begin: begin.clone(), end: end.clone() });
            }
            Change::OmapClear => acts.push(Act::OmapClear),
            Change::CloneFrom(StoredId::Object(from)) => acts.push(Act::CloneFrom(from.clone())),
            Change::Touch | Change::SetAttrs(_) | Change::RemoveAttr(_) | Change::OmapSetHeader(_) => {}
            Change::CloneFrom(_) => unreachable!("objects are copies of objects"),
            Change::CloneBlocks { .. } => unreachable!("recovery alone shares blocks"),
        }
    }
    all
}

/// An object's metadata, whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    pub size: u64,
    pub attrs: BTreeMap<Name, Bytes>,
    pub omap_header: Bytes,
}

versioned_fields!(Part, "part of an object", meta, data, omap);
versioned_fields!(Origin, "origin of a clone", born, part);
versioned_fields!(Meta, "object metadata", size, attrs, omap_header);
versioned_fields!(Acts, "acts", object, acts);

/// Version 1 did not have what was wrong, and version 2 not what is had.
impl Encode for Stale {
    fn encode(&self, out: &mut Vec<u8>) {
        nacre_wire::versioned(out, 3, 1, |out| {
            (self.need, &self.part).encode(out);
            self.was_wrong.encode(out);
            self.have.encode(out);
        });
    }
}
impl Decode for Stale {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("stale part", 3, |r, version| {
            let (need, part) = Decode::decode(r)?;
            let was_wrong = version >= 2 && bool::decode(r)?;
            let have = if version >= 3 { Decode::decode(r)? } else { Version::ZERO };
            Ok(Stale { need, have, part, was_wrong })
        })
    }
}

/// Version 1 did not have the origin.
impl Encode for Dirty {
    fn encode(&self, out: &mut Vec<u8>) {
        nacre_wire::versioned(out, 2, 1, |out| {
            (self.last, self.gone).encode(out);
            (self.born, &self.part).encode(out);
            self.origin.encode(out);
        });
    }
}
impl Decode for Dirty {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("dirty object", 2, |r, version| {
            let ((last, gone), (born, part)) = Decode::decode(r)?;
            let origin = if version < 2 { None } else { Decode::decode(r)? };
            Ok(Dirty { last, gone, born, part, origin })
        })
    }
}

impl Encode for Act {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Act::Data { offset, len } => {
                out.push(0);
                (*offset, *len).encode(out);
            }
            Act::Truncate { size } => {
                out.push(1);
                size.encode(out);
            }
            Act::Remove => out.push(2),
            Act::Keys(keys) => {
                out.push(3);
                keys.encode(out);
            }
            Act::KeyRange { begin, end } => {
                out.push(4);
                begin.encode(out);
                end.encode(out);
            }
            Act::OmapClear => out.push(5),
            Act::CloneFrom(from) => {
                out.push(6);
                from.encode(out);
            }
            Act::Revert { part, to } => {
                out.push(7);
                part.encode(out);
                to.encode(out);
            }
        }
    }
}
impl Decode for Act {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match u8::decode(r)? {
            0 => {
                let (offset, len) = <(u64, u64)>::decode(r)?;
                match offset.checked_add(len) {
                    Some(_) => Act::Data { offset, len },
                    None => return Err(DecodeError::BadValue { what: "length of an act", value: len }),
                }
            }
            1 => Act::Truncate { size: Decode::decode(r)? },
            2 => Act::Remove,
            3 => Act::Keys(Decode::decode(r)?),
            4 => Act::KeyRange { begin: Decode::decode(r)?, end: Decode::decode(r)? },
            5 => Act::OmapClear,
            6 => Act::CloneFrom(Decode::decode(r)?),
            7 => Act::Revert { part: Decode::decode(r)?, to: Decode::decode(r)? },
            value => return Err(DecodeError::BadValue { what: "act", value: value.into() }),
        })
    }
}
