//! The directory of a sorted run, read whole when the store is opened: where its pages are and their first
//! ids, the Bloom filter, and the reference counts that changed.

use super::bloom::BloomFilter;
use crate::index::{Pools, Totals, Weight};
use crate::range_map::overlaid;
use crate::space::Extent;
use nacre_proto::transaction::StoredId;
use nacre_wire::{Decode, DecodeError, Encode, Reader};
use std::collections::BTreeMap;

/// No block has more: each of its owners takes some bytes of the device.
const OWNERS_MAX: u32 = 1 << 30;

/// Where each page is in the sorted run, its checksum, and the first object in it. In few pieces of memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fences {
    /// Behind the last block of each page, counted in the sorted run.
    ends: Vec<u32>,
    crcs: Vec<u32>,
    /// All ids, and where each ends.
    ids: Vec<u8>,
    id_ends: Vec<u32>,
}

impl Fences {
    pub fn len(&self) -> usize {
        self.ends.len()
    }
    pub fn push(&mut self, first: &[u8], blocks: u32, crc: u32) {
        self.ends.push(self.ends.last().copied().unwrap_or(0) + blocks);
        self.crcs.push(crc);
        self.ids.extend_from_slice(first);
        self.id_ends.push(self.ids.len() as u32);
    }
    /// Of the whole sorted run.
    pub fn blocks(&self) -> u32 {
        self.ends.last().copied().unwrap_or(0)
    }
    /// The page's blocks, counted in the sorted run, and the checksum of all their bytes.
    pub fn page(&self, page: usize) -> (Extent, u32) {
        let start = if page == 0 { 0 } else { self.ends[page - 1] };
        (Extent { start, len: self.ends[page] - start }, self.crcs[page])
    }
    pub fn set_crc(&mut self, page: usize, crc: u32) {
        self.crcs[page] = crc;
    }
    fn id_bytes(&self, page: usize) -> &[u8] {
        let start = if page == 0 { 0 } else { self.id_ends[page - 1] };
        &self.ids[start as usize..self.id_ends[page] as usize]
    }
    fn first(&self, page: usize) -> StoredId {
        StoredId::decode(&mut Reader::new(self.id_bytes(page))).expect("it was decoded before")
    }
    /// The page that has this object, if one has; also the first one that may have something behind it.
    pub fn find(&self, id: &StoredId) -> usize {
        let (mut from, mut to) = (0, self.len());
        while from < to {
            let middle = from.midpoint(to);
            if self.first(middle) <= *id { from = middle + 1 } else { to = middle }
        }
        from.saturating_sub(1)
    }
    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.ends.capacity() * 12 + self.ids.capacity()
    }
    fn shrink(&mut self) {
        self.ends.shrink_to_fit();
        self.crcs.shrink_to_fit();
        self.ids.shrink_to_fit();
        self.id_ends.shrink_to_fit();
    }
}

impl Encode for Fences {
    fn encode(&self, out: &mut Vec<u8>) {
        (self.len() as u32).encode(out);
        for page in 0..self.len() {
            let (extent, crc) = self.page(page);
            (extent.len, crc).encode(out);
            out.extend_from_slice(self.id_bytes(page));
        }
    }
}
impl Decode for Fences {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut fences = Fences::default();
        let mut last: Option<StoredId> = None;
        for _ in 0..r.count(9)? {
            let (blocks, crc) = (u32::decode(r)?, u32::decode(r)?);
            let bytes = r.rest();
            let id = StoredId::decode(r)?;
            let is_wrong = blocks == 0 || fences.blocks().checked_add(blocks).is_none();
            if is_wrong || last.is_some_and(|last| last >= id) {
                return Err(DecodeError::BadValue { what: "page of a sorted run", value: blocks.into() });
            }
            fences.push(&bytes[..bytes.len() - r.remaining()], blocks, crc);
            last = Some(id);
        }
        fences.shrink();
        Ok(fences)
    }
}

/// As it stands in the chunks at the end of a sorted run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Directory {
    /// What all objects were together when the sorted run was begun, also those that are not in it.
    pub totals: Totals,
    /// Entries in the sorted run.
    pub entries: u64,
    /// Where its pages are, one after another.
    pub extents: Vec<Extent>,
    pub fences: Fences,
    pub filter: BloomFilter,
    pub owners: Owners,
}

/// How many objects have what, of that of which it changed since the sorted run before. In order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owners {
    pub blocks: Vec<(Extent, u32)>,
    /// Parts of omaps; of those that were never shared nothing is said.
    pub leaves: Vec<(u64, u32)>,
}

impl Owners {
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.leaves.is_empty()
    }
    /// What `newer` says over what this says.
    pub fn overlaid(&self, newer: &Owners) -> Owners {
        let leaves: BTreeMap<u64, u32> = self.leaves.iter().chain(&newer.leaves).copied().collect();
        Owners { blocks: overlaid(&self.blocks, &newer.blocks), leaves: leaves.into_iter().collect() }
    }
    /// Nothing is below: what has no owner, and parts that have one, need not be noted.
    pub fn shrink(&mut self) {
        self.blocks.retain(|(_, owners)| *owners > 0);
        self.leaves.retain(|(_, owners)| *owners > 1);
    }
}

impl Encode for Directory {
    fn encode(&self, out: &mut Vec<u8>) {
        let Totals { objects, weight, leaves_made, pools } = &self.totals;
        [*objects, weight.stored, weight.omap, weight.encoded, weight.blocks, self.entries]
            .iter()
            .for_each(|number| number.encode(out));
        (self.extents.len() as u32).encode(out);
        self.extents.iter().for_each(|extent| (extent.start, extent.len).encode(out));
        self.fences.encode(out);
        (self.filter.0.len() as u32).encode(out);
        out.extend_from_slice(&self.filter.0);
        (self.owners.blocks.len() as u32).encode(out);
        let mut at = 0;
        for (extent, owners) in &self.owners.blocks {
            [extent.start - at, extent.len, *owners].iter().for_each(|number| short(*number, out));
            at = extent.start + extent.len;
        }
        leaves_made.encode(out);
        self.owners.leaves.encode(out);
        if let Some(pools) = pools {
            pools.encode(out);
        }
    }
}
impl Decode for Directory {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut number = || u64::decode(r);
        let objects = number()?;
        let (stored, omap, encoded) = (number()?, number()?, number()?);
        let (blocks, entries) = (number()?, number()?);
        // No device holds as much; sums of such numbers must not overflow.
        if let Some(&value) = [objects, stored, omap, encoded, blocks].iter().find(|n| **n > 1 << 56) {
            return Err(DecodeError::BadValue { what: "totals of a sorted run", value });
        }
        let weight = Weight { stored, omap, encoded, blocks };
        let extents = r.list(|r| Ok(Extent { start: Decode::decode(r)?, len: Decode::decode(r)? }))?;
        let fences = Fences::decode(r)?;
        let filter = BloomFilter(r.bytes()?.to_vec());
        if filter.0.is_empty() {
            return Err(DecodeError::BadValue { what: "bytes of a filter", value: 0 });
        }
        let (mut owners, mut at) = (Owners::default(), 0_u32);
        for _ in 0..r.count(3)? {
            let (gap, len, count) = (long(r)?, long(r)?, long(r)?);
            let start = at.checked_add(gap);
            let end = start.and_then(|start| start.checked_add(len)).filter(|_| len > 0);
            // Clones add to the count.
            let (Some(start), Some(end), 0..=OWNERS_MAX) = (start, end, count) else {
                return Err(DecodeError::BadValue { what: "extent of owners", value: len.into() });
            };
            owners.blocks.push((Extent { start, len }, count));
            at = end;
        }
        // In version 6 this was the end.
        let mut leaves_made = 0;
        if !r.is_empty() {
            leaves_made = u64::decode(r)?;
            owners.leaves = Decode::decode(r)?;
        }
        let in_order = owners.leaves.windows(2).all(|two| two[0].0 < two[1].0);
        if let Some((value, _)) = owners.leaves.iter().find(|(_, owners)| *owners > OWNERS_MAX || !in_order) {
            return Err(DecodeError::BadValue { what: "owners of an omap leaf", value: *value });
        }
        if leaves_made > u64::MAX / 2 {
            return Err(DecodeError::BadValue { what: "number of an omap leaf", value: leaves_made });
        }
        // In version 8 this was the end.
        let pools = if r.is_empty() { None } else { Some(Pools::decode(r)?) };
        let totals = Totals { objects, weight, leaves_made, pools };
        Ok(Directory { totals, entries, extents, fences, filter, owners })
    }
}

/// A number in as few groups of seven bits as it has, the lowest first; all but the last have the highest
/// bit.
fn short(mut number: u32, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}
fn long(r: &mut Reader<'_>) -> Result<u32, DecodeError> {
    let mut number = 0_u64;
    for group in 0..5 {
        let byte = u8::decode(r)?;
        number |= u64::from(byte & 0x7f) << (7 * group);
        if byte < 0x80 {
            break;
        }
    }
    u32::try_from(number).map_err(|_| DecodeError::BadValue { what: "number of blocks", value: number })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_wire::{from_slice, to_vec};

    #[test]
    fn it_reads_back_and_finds_pages() {
        let id = |n: u32| StoredId::Meta(format!("{n:05}").into());
        let mut fences = Fences::default();
        (0..50).for_each(|n| fences.push(&to_vec(&id(n * 10 + 5)), 4 + n % 2, n));
        let weight = Weight { stored: 5, omap: 6, encoded: 7, blocks: 8 };
        let directory = Directory {
            totals: Totals { objects: 9, weight, leaves_made: 10, pools: Some(Pools::default()) },
            entries: 4,
            extents: vec![Extent { start: 7, len: 225 }],
            fences,
            filter: BloomFilter(vec![1, 2, 3]),
            owners: Owners {
                blocks: vec![
                    (Extent { start: 3, len: 1 }, 0),
                    (Extent { start: 200_000, len: 5 << 20 }, 300),
                ],
                leaves: vec![(4, 2), (9, 1)],
            },
        };
        let mut again: Directory = from_slice(&to_vec(&directory)).unwrap();
        again.fences.shrink();
        assert_eq!(again, directory);
        let impossible = Totals { weight: Weight { encoded: u64::MAX, ..weight }, ..again.totals.clone() };
        assert!(from_slice::<Directory>(&to_vec(&Directory { totals: impossible, ..directory })).is_err());
        assert_eq!(
            [0, 5, 6, 14, 15, 16, 494, 495, 999].map(|n| again.fences.find(&id(n))),
            [0, 0, 0, 0, 1, 1, 48, 49, 49]
        );
        assert_eq!(again.fences.page(1), (Extent { start: 4, len: 5 }, 1));
    }
}
