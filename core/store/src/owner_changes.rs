//! The reference counts of blocks that changed since the last checkpoint began.
//!
//! Nearly all counts are one (an allocated block) or zero (a freed one), and blocks that are allocated
//! together are neighbours: two bits for each block, in pages of 64.

use crate::space::Extent;
use std::collections::BTreeMap;

const PAGE: u32 = u64::BITS;

#[derive(Debug, Default)]
pub(crate) struct OwnerChanges {
    pages: BTreeMap<u32, Page>,
    /// More than one.
    more: BTreeMap<u32, u32>,
    /// No less than the extents of neighbours of which the same is said.
    extents: usize,
}

/// A bit for each block. Of those in `some`, the number is in `more`.
#[derive(Clone, Copy, Debug, Default)]
struct Page {
    none: u64,
    one: u64,
    some: u64,
}

impl Page {
    fn extents(self) -> usize {
        let starts = |bits: u64| (bits & !(bits << 1)).count_ones();
        (starts(self.none) + starts(self.one) + self.some.count_ones()) as usize
    }
    fn set(&mut self, mask: u64, owners: u32) {
        let put = |bits: &mut u64, is_it: bool| *bits = if is_it { *bits | mask } else { *bits & !mask };
        put(&mut self.none, owners == 0);
        put(&mut self.one, owners == 1);
        put(&mut self.some, owners > 1);
    }
}

/// The pages of an extent, with the bits of its blocks.
fn masks(extent: Extent) -> impl Iterator<Item = (u32, u64)> {
    let end = extent.start + extent.len;
    (extent.start / PAGE..end.div_ceil(PAGE)).map(move |page| {
        let from = extent.start.max(page * PAGE) - page * PAGE;
        let len = end.min(page * PAGE + PAGE) - page * PAGE - from;
        (page, u64::MAX.checked_shr(PAGE - len).map_or(0, |bits| bits << from))
    })
}

impl OwnerChanges {
    pub fn extents(&self) -> usize {
        self.extents
    }
    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.pages.len() * 40 + self.more.len() * 16
    }
    pub fn set(&mut self, extent: Extent, owners: u32) {
        let mut had_more = false;
        for (number, mask) in masks(extent) {
            let page = self.pages.entry(number).or_default();
            let before = *page;
            page.set(mask, owners);
            self.extents = self.extents + page.extents() - before.extents();
            had_more |= before.some & mask != 0;
        }
        if owners > 1 {
            self.more.extend(extent.blocks().map(|block| (block, owners)));
        } else if had_more {
            extent.blocks().for_each(|block| _ = self.more.remove(&block));
        }
    }
    pub fn get(&self, block: u32) -> Option<u32> {
        let page = self.pages.get(&(block / PAGE))?;
        self.said(page, block)
    }
    fn said(&self, page: &Page, block: u32) -> Option<u32> {
        let has = |bits: u64| bits >> (block % PAGE) & 1 != 0;
        match page {
            page if has(page.none) => Some(0),
            page if has(page.one) => Some(1),
            page if has(page.some) => Some(self.more[&block]),
            _ => None,
        }
    }
    /// Whether a block of the extent was given up by the last that had it.
    pub fn has_ownerless(&self, extent: Extent) -> bool {
        masks(extent).any(|(page, mask)| self.pages.get(&page).is_some_and(|page| page.none & mask != 0))
    }
    /// In order, neighbours of which the same is said as one.
    pub fn iter(&self) -> impl Iterator<Item = (Extent, u32)> {
        let blocks = self.pages.iter().flat_map(|(number, page)| {
            let first = number * PAGE;
            (first..=first + (PAGE - 1)).filter_map(|block| Some((block, self.said(page, block)?)))
        });
        let mut blocks = blocks.peekable();
        std::iter::from_fn(move || {
            let (start, owners) = blocks.next()?;
            let mut extent = Extent { start, len: 1 };
            while blocks.next_if(|next| *next == (extent.start + extent.len, owners)).is_some() {
                extent.len += 1;
            }
            Some((extent, owners))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_base::Rng;

    #[test]
    fn they_agree_with_a_map() {
        let (mut changes, mut map) = (OwnerChanges::default(), BTreeMap::new());
        let mut rng = Rng::new(1);
        for _ in 0..5000 {
            let extent = Extent { start: rng.below(400) as u32, len: 1 + rng.below(150) as u32 };
            let owners = rng.below(4) as u32;
            changes.set(extent, owners);
            map.extend(extent.blocks().map(|block| (block, owners)));
            let extents: Vec<_> = changes.iter().collect();
            let blocks = extents
                .iter()
                .flat_map(|(extent, owners)| extent.blocks().map(move |block| (block, *owners)));
            assert!(blocks.eq(map.iter().map(|(block, owners)| (*block, *owners))));
            let joined = |two: &[(Extent, u32)]| {
                two[0].0.start + two[0].0.len == two[1].0.start && two[0].1 == two[1].1
            };
            assert!(!extents.windows(2).any(joined) && changes.extents() >= extents.len());
            let probe = Extent { start: rng.below(600) as u32, len: 1 + rng.below(70) as u32 };
            assert_eq!(changes.get(probe.start), map.get(&probe.start).copied());
            assert_eq!(changes.has_ownerless(probe), probe.blocks().any(|block| map.get(&block) == Some(&0)));
        }
    }
}
