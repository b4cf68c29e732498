//! A batch of deferred writes, and a slice of a compaction: plain data that a disk thread carries out.

use crate::BLOCK;
use crate::batch::write_joined;
use crate::content::{Base, Content, PatchRange};
use crate::disk::{Disk, DiskError};
use crate::runs::compaction::{self, Compaction};
use crate::salvaged::{self, BlockState};
use bytes::Bytes;
use nacre_wire::crc32c;
use std::collections::BTreeMap;

/// Blocks that are safe in the log, to be written where they belong. Plain data; one at a time, beside
/// whatever batch is under way.
#[derive(Debug)]
pub struct DeferredWrites {
    pub(crate) blocks: Vec<DeferredWrite>,
    /// What some of them are patches of, known without looking at the device.
    pub(crate) bases: BTreeMap<u32, Vec<u8>>,
    /// A slice of making one sorted run of several.
    pub(crate) compaction: Option<Box<Compaction>>,
}

#[derive(Debug)]
pub(crate) struct DeferredWrite {
    pub block: u32,
    pub content: Content,
    pub is_read_here: bool,
}

/// What `Store::deferred_done` needs to know about blocks that are durable in their place.
#[derive(Debug)]
pub struct DeferredDone {
    /// Block and checksum.
    pub(crate) crcs: Vec<(u32, u32)>,
    /// What those hold that may be read soon.
    pub(crate) read_here: Vec<(u32, Bytes)>,
    /// Blocks that were changed in part although the rest of them was damaged. Reading them continues
    /// failing: what is damaged does not become valid because something beside it was written. But what was
    /// written is kept, and the error says what it is.
    pub damaged: u32,
    pub(crate) compaction: Option<Box<Compaction>>,
}

impl DeferredWrites {
    /// Bytes that this will write, roughly: what a simulated disk charges time for.
    pub fn cost(&self) -> usize {
        self.blocks.len() * BLOCK + self.compaction.as_ref().map_or(0, |_| compaction::SLICE)
    }

    /// Carries it out. After an error the store has to be opened anew.
    pub fn run(self, disk: &(impl Disk + ?Sized)) -> Result<DeferredDone, DiskError> {
        let crcs = Vec::with_capacity(self.blocks.len());
        let mut placed =
            DeferredDone { crcs, read_here: Vec::new(), damaged: 0, compaction: self.compaction };
        if let Some(compaction) = &mut placed.compaction {
            compaction.run(disk)?;
        }
        let mut whole: Vec<(u32, Bytes)> = Vec::with_capacity(self.blocks.len());
        for DeferredWrite { block, content, is_read_here } in self.blocks {
            let (bytes, crc) = match whole_of(disk, &self.bases, content) {
                Ok(bytes) => {
                    if is_read_here {
                        placed.read_here.push((block, bytes.clone()));
                    }
                    let crc = crc32c(u32::MAX, &bytes);
                    (bytes, crc)
                }
                Err(parts) => {
                    placed.damaged += 1;
                    let (bytes, crc) = salvaged::list(&parts);
                    (bytes.into(), crc)
                }
            };
            placed.crcs.push((block, crc));
            whole.push((block, bytes));
        }
        let mut writes: Vec<(u32, &[u8])> = whole.iter().map(|(block, bytes)| (*block, &bytes[..])).collect();
        write_joined(&mut writes, |writes| disk.write_many(writes))?;
        disk.flush()?;
        Ok(placed)
    }
}

/// What a block is to hold, or what is known of it if what it is a patch of is damaged.
fn whole_of(
    disk: &(impl Disk + ?Sized),
    bases: &BTreeMap<u32, Vec<u8>>,
    content: Content,
) -> Result<Bytes, Vec<PatchRange>> {
    let (base, ranges) = match content {
        Content::Whole(bytes) => return Ok(bytes),
        Content::Patch { base, ranges } => (base, ranges),
    };
    let bytes = match bases.get(&base.block) {
        Some(bytes) => Ok(bytes.clone()),
        None => read_base(disk, base),
    };
    match bytes {
        Ok(bytes) => Ok(patched(bytes, &ranges)),
        Err(parts) => {
            let parts = salvaged::joined(parts, &ranges);
            salvaged::whole(&parts).cloned().ok_or(parts)
        }
    }
}

fn patched(mut bytes: Vec<u8>, ranges: &[PatchRange]) -> Bytes {
    ranges.iter().for_each(|range| range.apply(&mut bytes));
    bytes.into()
}

/// What a block of the device holds, or what is known of it if it is damaged: what cannot be read is as good
/// as corrupt; a device that is gone fails the writes.
fn read_base(disk: &(impl Disk + ?Sized), base: Base) -> Result<Vec<u8>, Vec<PatchRange>> {
    let mut bytes = vec![0; BLOCK];
    match disk.read_at(u64::from(base.block) * BLOCK as u64, &mut bytes) {
        Ok(()) => match salvaged::look(&bytes, base.crc) {
            BlockState::Whole => Ok(bytes),
            BlockState::Salvaged(parts) => Err(parts),
        },
        Err(_) => Err(Vec::new()),
    }
}
