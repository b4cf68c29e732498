//! One stored object: its metadata, and the extent map of its data.

use super::omap::{NO_OMAP, Omap};
use crate::BLOCK;
use crate::attrs::Attrs;
use crate::extent_map::ExtentMap;
use crate::small_list::SmallList;
use crate::space::Extent;
use crate::store::SIZE_MAX;
use bytes::Bytes;
use nacre_base::Name;
use nacre_proto::transaction::StoredId;
use nacre_wire::{Decode, DecodeError, Encode, Reader, encode_list, from_slice, to_vec};
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Object {
    pub size: u64,
    /// What is missing reads as zeros; bytes of the last block past `size` are zeros too.
    pub blocks: ExtentMap,
    pub attrs: Attrs,
    /// Few objects have one.
    pub(super) omap: Option<Arc<Omap>>,
    /// Bytes of its id.
    pub(super) id_len: u32,
    /// The interval between checkpoints in which it changed last; see `Changed`.
    pub(super) mark: u64,
}

/// What one object, or all of them, take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Weight {
    /// Bytes of data, holes not counted.
    pub stored: u64,
    /// Bytes of omap keys, values and headers.
    pub omap: u64,
    /// No less than what it takes in a checkpoint.
    pub encoded: u64,
    /// References to blocks.
    pub blocks: u64,
}

impl Weight {
    pub fn add(&mut self, other: Weight) {
        self.stored += other.stored;
        self.omap += other.omap;
        self.encoded += other.encoded;
        self.blocks += other.blocks;
    }
    pub(super) fn sub(&mut self, other: Weight) {
        self.stored -= other.stored;
        self.omap -= other.omap;
        self.encoded -= other.encoded;
        self.blocks -= other.blocks;
    }
    /// The same of what a sorted run said all objects are, which is proved only when all of them are in
    /// memory.
    pub(super) fn sub_of_said(&mut self, other: Weight) {
        self.stored = self.stored.saturating_sub(other.stored);
        self.omap = self.omap.saturating_sub(other.omap);
        self.encoded = self.encoded.saturating_sub(other.encoded);
        self.blocks = self.blocks.saturating_sub(other.blocks);
    }
}

/// A block in a checkpoint or in a transaction costs at most this many bytes of log or checkpoint:
/// an extent of its own, its checksum, and an extent of owners.
pub(crate) const BLOCK_COST: u64 = 16 + OWNERS_COST;
/// What an extent of blocks takes that have as many owners, at most.
pub(crate) const OWNERS_COST: u64 = 12;
/// The fixed leaf of an object in a checkpoint, rounded up; with its leaf of the fences and of the filter.
const OBJECT_COST: u64 = 64;
/// What an object takes besides what it holds. Its name may be in a fence as well.
pub(super) const fn id_cost(id_len: usize) -> u64 {
    OBJECT_COST + 2 * id_len as u64
}
/// The same, of one that does not exist yet, or was removed.
pub(crate) fn bare_cost(id: &StoredId) -> u64 {
    id_cost(id.encoded_len())
}

impl Object {
    pub fn new(id: &StoredId) -> Object {
        Object { id_len: id.encoded_len() as u32, ..Object::default() }
    }
    pub fn weight(&self) -> Weight {
        let whole = self.blocks.len() as u64 * BLOCK as u64;
        let last = (self.size / BLOCK as u64) as u32;
        let past_end = match self.size % BLOCK as u64 {
            tail if tail != 0 && self.blocks.get(last).is_some() => BLOCK as u64 - tail,
            _ => 0,
        };
        Weight {
            stored: whole - past_end,
            omap: self.omap().weight(),
            encoded: id_cost(self.id_len as usize)
                + self.attrs.cost()
                + self.omap().weight()
                + self.omap().leaves.cost()
                + self.blocks.len() as u64 * BLOCK_COST,
            blocks: self.blocks.len() as u64,
        }
    }
    /// Its weight without what is kept beside the leaves, for `Store::check`.
    pub fn weighed_anew(&self, id: &StoredId) -> Weight {
        let mut plain = Object::new(id);
        self.attrs.to_map().into_iter().for_each(|(k, v)| plain.set_attr(k, v));
        let pairs = self.omap().pairs.iter();
        pairs.for_each(|(k, v)| plain.omap_mut().set(k.clone(), v.clone()));
        plain.size = self.size;
        if !self.omap().header.is_empty() {
            plain.omap_mut().header = self.omap().header.clone();
        }
        if !self.omap().leaves.is_empty() {
            plain.omap_mut().leaves = from_slice(&to_vec(&self.omap().leaves)).expect("it was just encoded");
        }
        plain.blocks = self.blocks.clone();
        plain.weight()
    }
    pub(super) fn set_attr(&mut self, name: Name, value: Bytes) {
        self.attrs.set(name.as_bytes(), &value);
    }
    pub fn omap(&self) -> &Omap {
        self.omap.as_deref().unwrap_or(&NO_OMAP)
    }
    pub(super) fn omap_mut(&mut self) -> &mut Omap {
        Arc::make_mut(self.omap.get_or_insert_default())
    }

    /// As it stands in a checkpoint behind its id, with the checksum of each of its blocks. Whether its omap
    /// has leaves stands elsewhere.
    pub fn encode(&self, crcs: impl Iterator<Item = u32>, out: &mut Vec<u8>) {
        self.size.encode(out);
        self.attrs.encode(out);
        self.omap().header.encode(out);
        match self.omap().leaves.is_empty() {
            true => self.omap().pairs.encode(out),
            false => self.omap().leaves.encode(out),
        }
        encode_list(out, self.blocks.extents());
        crcs.for_each(|crc| crc.encode(out));
    }
    /// The reverse.
    pub fn decode(
        id: &StoredId,
        has_leaves: bool,
        r: &mut Reader<'_>,
    ) -> Result<(Object, Vec<u32>), DecodeError> {
        let mut object = Object::new(id);
        object.size = Decode::decode(r)?;
        if object.size > SIZE_MAX {
            return Err(DecodeError::BadValue { what: "size of an object", value: object.size });
        }
        object.attrs = Attrs::of(&BTreeMap::decode(r)?);
        let header = Bytes::decode(r)?;
        if !header.is_empty() {
            object.omap_mut().header = header;
        }
        if has_leaves {
            object.omap_mut().leaves = Decode::decode(r)?;
        } else {
            let pairs: BTreeMap<Name, Bytes> = Decode::decode(r)?;
            if !pairs.is_empty() {
                object.omap_mut().replace_pairs(pairs);
            }
        }
        let extents: Vec<MappedExtent> = Decode::decode(r)?;
        // Each block has a checksum in the bytes that follow: a lying length ends here.
        let count: u64 = extents.iter().map(|extent| u64::from(extent.blocks.len)).sum();
        if count > r.remaining() as u64 / 4 {
            return Err(DecodeError::Short { needed: count.saturating_mul(4) as usize, left: r.remaining() });
        }
        // So they were written; in any other order putting them together would take the square of their
        // number.
        if let Some(two) = extents.windows(2).find(|two| two[1].at < two[0].at + two[0].blocks.len) {
            return Err(DecodeError::BadValue { what: "order of extents", value: two[1].at.into() });
        }
        object.blocks = extents.into_iter().collect();
        let crcs = (0..object.blocks.len()).map(|_| u32::decode(r)).collect::<Result<_, _>>()?;
        Ok((object, crcs))
    }
}

/// Neighbouring blocks of the device that hold neighbouring blocks of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MappedExtent {
    /// In the object, in blocks.
    pub at: u32,
    pub blocks: Extent,
}

impl MappedExtent {
    pub fn pairs(self) -> impl Iterator<Item = (u32, u32)> {
        (0..self.blocks.len).map(move |i| (self.at + i, self.blocks.start + i))
    }
}

/// Adds one block behind these: to the last extent, if they are neighbours.
pub(crate) fn join_mapped(extents: &mut SmallList<MappedExtent>, at: u32, block: u32) {
    match extents.last_mut() {
        Some(extent)
            if extent.at + extent.blocks.len == at && extent.blocks.start + extent.blocks.len == block =>
        {
            extent.blocks.len += 1;
        }
        _ => extents.push(MappedExtent { at, blocks: Extent { start: block, len: 1 } }),
    }
}

impl Encode for MappedExtent {
    fn encode(&self, out: &mut Vec<u8>) {
        self.at.encode(out);
        self.blocks.start.encode(out);
        self.blocks.len.encode(out);
    }
}
impl Decode for MappedExtent {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let [at, start, len] = [u32::decode(r)?, u32::decode(r)?, u32::decode(r)?];
        let ends = (at.checked_add(len), start.checked_add(len));
        if len == 0 || ends.0.is_none() || ends.1.is_none() {
            return Err(DecodeError::BadValue { what: "extent of blocks", value: len.into() });
        }
        Ok(MappedExtent { at, blocks: Extent { start, len } })
    }
}
