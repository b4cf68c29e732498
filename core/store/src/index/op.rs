//! The operations of a transaction, as the log has them.

use super::object::MappedExtent;
use crate::small_list::SmallList;
use crate::store::SIZE_MAX;
use bytes::Bytes;
use nacre_base::Name;
use nacre_proto::transaction::StoredId;
use nacre_wire::{Decode, DecodeError, Encode, Reader, encode_list};
use std::collections::{BTreeMap, BTreeSet};

/// One step of a transaction, as the log has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Touch,
    /// The object's data is in these blocks from now on; what they replace is given back.
    Place(SmallList<MappedExtent>),
    /// The object's blocks `from..to` become a hole.
    Punch {
        from: u32,
        to: u32,
    },
    Size(u64),
    Remove,
    SetAttrs(BTreeMap<Name, Bytes>),
    RemoveAttr(Name),
    OmapSet(BTreeMap<Name, Bytes>),
    OmapRemove(BTreeSet<Name>),
    OmapRemoveRange {
        begin: Name,
        end: Name,
    },
    OmapClear,
    OmapSetHeader(Bytes),
    CloneFrom(StoredId),
    /// The object's blocks `from..to` become those of that object, holes too.
    CloneBlocks {
        of: StoredId,
        from: u32,
        to: u32,
    },
    /// The object, or the source of a copy to it, could not be read when it was to be changed: its content
    /// is unknown from now on.
    Lose,
}

impl Op {
    /// The object that it reads from, besides the one that it changes.
    pub fn source(&self) -> Option<&StoredId> {
        match self {
            Op::CloneFrom(of) | Op::CloneBlocks { of, .. } => Some(of),
            _ => None,
        }
    }
}

impl Encode for Op {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Op::Touch => out.push(0),
            Op::Place(extents) => {
                out.push(1);
                encode_list(out, extents);
            }
            Op::Punch { from, to } => {
                out.push(2);
                (*from, *to).encode(out);
            }
            Op::Size(size) => {
                out.push(3);
                size.encode(out);
            }
            Op::Remove => out.push(4),
            Op::SetAttrs(attrs) => {
                out.push(5);
                attrs.encode(out);
            }
            Op::RemoveAttr(name) => {
                out.push(6);
                name.encode(out);
            }
            Op::OmapSet(pairs) => {
                out.push(7);
                pairs.encode(out);
            }
            Op::OmapRemove(keys) => {
                out.push(8);
                keys.encode(out);
            }
            Op::OmapRemoveRange { begin, end } => {
                out.push(9);
                begin.encode(out);
                end.encode(out);
            }
            Op::OmapClear => out.push(10),
            Op::OmapSetHeader(header) => {
                out.push(11);
                header.encode(out);
            }
            Op::CloneFrom(from) => {
                out.push(12);
                from.encode(out);
            }
            Op::Lose => out.push(13),
            Op::CloneBlocks { of, from, to } => {
                out.push(14);
                of.encode(out);
                (*from, *to).encode(out);
            }
        }
    }
}
impl Decode for Op {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match u8::decode(r)? {
            0 => Op::Touch,
            1 => Op::Place(Vec::decode(r)?.into()),
            2 => Op::Punch { from: Decode::decode(r)?, to: Decode::decode(r)? },
            3 => Op::Size(u64::decode(r).and_then(|value| match value {
                0..=SIZE_MAX => Ok(value),
                _ => Err(DecodeError::BadValue { what: "size of an object", value }),
            })?),
            4 => Op::Remove,
            5 => Op::SetAttrs(Decode::decode(r)?),
            6 => Op::RemoveAttr(Decode::decode(r)?),
            7 => Op::OmapSet(Decode::decode(r)?),
            8 => Op::OmapRemove(Decode::decode(r)?),
            9 => Op::OmapRemoveRange { begin: Decode::decode(r)?, end: Decode::decode(r)? },
            10 => Op::OmapClear,
            11 => Op::OmapSetHeader(Decode::decode(r)?),
            12 => Op::CloneFrom(Decode::decode(r)?),
            13 => Op::Lose,
            14 => {
                let (of, (from, to)) = Decode::decode(r)?;
                Op::CloneBlocks { of, from, to }
            }
            value => return Err(DecodeError::BadValue { what: "log operation", value: value.into() }),
        })
    }
}
