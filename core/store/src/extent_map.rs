//! The extent map of an object: which blocks of the device hold its data, as few extents as possible, in
//! order.

use crate::index::MappedExtent;
use crate::small_list::{BlockList, SmallList};
use crate::space::Extent;

/// Position in the object, in blocks -> block of the device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExtentMap {
    extents: SmallList<MappedExtent>,
    len: u32,
}

impl MappedExtent {
    fn end(&self) -> u32 {
        self.at + self.blocks.len
    }
    fn block(&self, at: u32) -> u32 {
        self.blocks.start + (at - self.at)
    }
    /// Whether `other` follows, in the object and on the device.
    fn meets(&self, other: &MappedExtent) -> bool {
        self.end() == other.at && self.blocks.start + self.blocks.len == other.blocks.start
    }
    /// The part from `at` on.
    fn from(&self, at: u32) -> MappedExtent {
        MappedExtent { at, blocks: Extent { start: self.block(at), len: self.end() - at } }
    }
    /// The part up to `at`.
    fn up_to(&self, at: u32) -> MappedExtent {
        MappedExtent { at: self.at, blocks: Extent { start: self.blocks.start, len: at - self.at } }
    }
}

impl ExtentMap {
    /// Blocks.
    pub fn len(&self) -> usize {
        self.len as usize
    }
    pub fn get(&self, at: u32) -> Option<u32> {
        let extent = self.extents.get(self.first_ending_behind(at))?;
        (extent.at <= at).then(|| extent.block(at))
    }
    pub fn extents(&self) -> &[MappedExtent] {
        &self.extents
    }
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.extents.iter().flat_map(|extent| extent.pairs())
    }
    pub fn blocks(&self) -> impl Iterator<Item = u32> + '_ {
        self.extents.iter().flat_map(|extent| extent.blocks.blocks())
    }
    /// The parts of extents that are in `from..to`.
    pub fn range(&self, from: u32, to: u32) -> impl Iterator<Item = MappedExtent> + '_ {
        let extents = self.extents[self.first_ending_behind(from)..].iter();
        let extents = extents.take_while(move |extent| from < to && extent.at < to);
        extents.map(move |extent| {
            let extent = if extent.at < from { extent.from(from) } else { *extent };
            if extent.end() > to { extent.up_to(to) } else { extent }
        })
    }

    /// Makes a hole of `from..to`; gives the blocks that were there.
    pub fn remove(&mut self, from: u32, to: u32) -> BlockList {
        let removed: BlockList = self.range(from, to).flat_map(|extent| extent.blocks.blocks()).collect();
        if removed.is_empty() {
            return removed;
        }
        let first = self.first_ending_behind(from);
        let end = first + self.extents[first..].iter().take_while(|extent| extent.at < to).count();
        let before =
            Some(self.extents[first]).filter(|extent| extent.at < from).map(|extent| extent.up_to(from));
        let behind =
            Some(self.extents[end - 1]).filter(|extent| extent.end() > to).map(|extent| extent.from(to));
        self.make_room(first, end, 2);
        self.extents.drain(first..end);
        self.extents.insert_many(first, before.into_iter().chain(behind));
        self.len -= removed.len() as u32;
        removed
    }

    /// Puts an extent over whatever is there; gives the blocks that were.
    pub fn insert(&mut self, extent: MappedExtent) -> BlockList {
        let mut at = self.first_ending_behind(extent.at);
        let same =
            self.extents.get_mut(at).filter(|old| old.at == extent.at && old.blocks.len == extent.blocks.len);
        let removed = if let Some(old) = same {
            // Thousands of extents may follow, in an object that is written over block by block.
            std::mem::replace(&mut old.blocks, extent.blocks).blocks().collect()
        } else {
            let removed = self.remove(extent.at, extent.end());
            self.len += extent.blocks.len;
            at = self.first_ending_behind(extent.at);
            if at > 0 && self.extents[at - 1].meets(&extent) {
                at -= 1;
                self.extents[at].blocks.len += extent.blocks.len;
            } else {
                self.make_room(at, at, 1);
                self.extents.insert(at, extent);
            }
            removed
        };
        self.join(at);
        if at > 0 {
            self.join(at - 1);
        }
        removed
    }

    /// Makes one extent of this and the next, if it can be.
    fn join(&mut self, at: usize) {
        if let Some(next) = self.extents.get(at + 1).copied()
            && self.extents[at].meets(&next)
        {
            self.extents[at].blocks.len += next.blocks.len;
            self.extents.remove(at + 1);
        }
    }

    /// The first extent that ends behind `at`.
    fn first_ending_behind(&self, at: u32) -> usize {
        self.extents.partition_point(|extent| extent.end() <= at)
    }
    /// Before `more` extents replace some. Most objects have one or two: those get no spare capacity.
    fn make_room(&mut self, first: usize, end: usize, more: usize) {
        let needed = (self.extents.len() + more).saturating_sub(end - first);
        if needed > self.extents.capacity() && needed <= 8 {
            self.extents.reserve_exact(needed - self.extents.len());
        }
    }
}

impl FromIterator<MappedExtent> for ExtentMap {
    fn from_iter<I: IntoIterator<Item = MappedExtent>>(extents: I) -> ExtentMap {
        let mut map = ExtentMap::default();
        extents.into_iter().for_each(|extent| drop(map.insert(extent)));
        map
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_base::Rng;
    use std::collections::BTreeMap;

    #[test]
    fn they_agree_with_a_map_of_blocks_and_neighbours_are_one() {
        let (mut extents, mut map) = (ExtentMap::default(), BTreeMap::new());
        let mut rng = Rng::new(1);
        for _ in 0..20_000 {
            let (at, len) = (rng.below(40) as u32, 1 + rng.below(6) as u32);
            let mut old = Vec::new();
            let given = if rng.chance(700) {
                // Few blocks, so that extents often meet.
                let extent =
                    MappedExtent { at, blocks: Extent { start: 100 + at + 10 * rng.below(2) as u32, len } };
                old.extend(extent.pairs().filter_map(|(at, block)| map.insert(at, block)));
                extents.insert(extent)
            } else {
                old.extend((at..at + len).filter_map(|at| map.remove(&at)));
                extents.remove(at, at + len)
            };
            assert_eq!(given[..], old);
            assert!(extents.iter().eq(map.iter().map(|(at, block)| (*at, *block))));
            assert_eq!(extents.len(), map.len());
            assert_eq!(extents.get(at), map.get(&at).copied());
            assert!(extents.extents.windows(2).all(|two| !two[0].meets(&two[1])));
            let part: Vec<_> = extents.range(at, at + len).flat_map(MappedExtent::pairs).collect();
            assert!(part.into_iter().eq(map.range(at..at + len).map(|(at, block)| (*at, *block))));
        }
    }
}
