//! Discarding free space (TRIM), in slices, in the background.
//!
//! A block is free when the transaction that freed it is durable and no read plan refers to it. Whole units
//! of free blocks are taken out of the free space, discarded, and returned: so nothing is written to them
//! meanwhile. The content of a discarded block is undefined.

use crate::BLOCK;
use crate::disk::Disk;
use crate::format::Geometry;
use crate::space::Extent;
use crate::store::Store;
use nacre_machine::StoreView;
use std::collections::BTreeSet;

/// Blocks that are given back together, aligned to as many: what a file system and a device like. A small
/// device has smaller ones.
const UNIT: u32 = 256;
const UNIT_SMALL: u32 = 16;
const SMALL: u32 = 1 << 16;
/// Blocks in a slice at most.
const SLICE: u32 = 128 * UNIT;
/// This many free blocks stay, for what is written meanwhile.
const KEPT: u64 = 192 * UNIT as u64;

#[derive(Debug, Default)]
pub(crate) struct Discards {
    /// Units in which something became free since they were given back.
    used: BTreeSet<u32>,
    /// They are out of the free space.
    pub under_way: Vec<Extent>,
}

impl Discards {
    pub fn under_way_blocks(&self) -> u64 {
        self.under_way.iter().map(|extent| u64::from(extent.len)).sum()
    }
}

/// Space that the device may forget. Plain data; one at a time, beside everything else.
#[derive(Debug)]
pub struct Discard {
    extents: Vec<Extent>,
}

/// What `Store::discarded` needs to know.
#[derive(Debug)]
pub struct Discarded {
    /// Bytes.
    pub given_back: u64,
    /// The device refused some of it, which does no harm.
    pub refused: bool,
}

impl Discard {
    pub fn run(self, disk: &(impl Disk + ?Sized)) -> Discarded {
        let mut done = Discarded { given_back: 0, refused: false };
        for extent in self.extents {
            let len = u64::from(extent.len) * BLOCK as u64;
            match disk.discard(u64::from(extent.start) * BLOCK as u64, len) {
                Ok(()) => done.given_back += len,
                Err(_) => done.refused = true,
            }
        }
        done
    }
}

fn unit_of(geometry: &Geometry) -> u32 {
    if geometry.data_blocks() < SMALL { UNIT_SMALL } else { UNIT }
}

impl Store {
    /// The only way for a block to become free.
    pub(crate) fn free_block(&mut self, block: u32) {
        self.space.release(block);
        self.discards.used.insert(block / unit_of(&self.geometry));
    }

    /// What may be given back to the device next; None while that is being done, or if there is nothing.
    pub fn take_discard(&mut self) -> Option<Discard> {
        if !self.discards.under_way.is_empty() {
            return None;
        }
        let unit = unit_of(&self.geometry);
        let kept = KEPT.min(u64::from(self.geometry.data_blocks()) / 4);
        let spare = (self.statfs().available / BLOCK as u64).saturating_sub(kept);
        let mut left = spare.min(SLICE.into()) as u32 / unit;
        let mut extents: Vec<Extent> = Vec::new();
        while left > 0
            && let Some(at) = self.discards.used.pop_first()
        {
            let extent = Extent { start: at * unit, len: unit };
            // It comes here again when the rest of it becomes free.
            if !self.geometry.holds_data(extent) || extent.blocks().any(|block| self.space.is_taken(block)) {
                continue;
            }
            extent.blocks().for_each(|block| self.space.take(block));
            match extents.last_mut() {
                Some(last) if last.start + last.len == extent.start => last.len += unit,
                _ => extents.push(extent),
            }
            left -= 1;
        }
        self.discards.under_way = extents.clone();
        (!extents.is_empty()).then_some(Discard { extents })
    }

    /// Takes note of space that was given back.
    pub fn discarded(&mut self, _: Discarded) {
        for extent in std::mem::take(&mut self.discards.under_way) {
            extent.blocks().for_each(|block| self.space.release(block));
        }
    }
}
