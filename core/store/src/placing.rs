//! Bringing what the log holds to its place on the device, in the background.

use crate::BLOCK;
use crate::batch::write_joined;
use crate::content::{Base, Content, PatchRun};
use crate::disk::{Disk, DiskError};
use crate::known::{self, Held};
use crate::layers::merge::{self, Merge};
use bytes::Bytes;
use nacre_wire::crc32c;
use std::collections::BTreeMap;

/// Blocks that are safe in the log, to be written where they belong. Plain data; one at a time, beside
/// whatever batch is under way.
#[derive(Debug)]
pub struct Placing {
    pub(crate) blocks: Vec<ToPlace>,
    /// What some of them are patches of, known without looking at the device.
    pub(crate) bases: BTreeMap<u32, Vec<u8>>,
    /// A slice of making one layer of several.
    pub(crate) merge: Option<Box<Merge>>,
}

#[derive(Debug)]
pub(crate) struct ToPlace {
    pub block: u32,
    pub content: Content,
    pub is_read_here: bool,
}

/// What `Store::placed` needs to know about blocks that are durable in their place.
#[derive(Debug)]
pub struct Placed {
    /// Block and checksum.
    pub(crate) crcs: Vec<(u32, u32)>,
    /// What those hold that may be read soon.
    pub(crate) read_here: Vec<(u32, Bytes)>,
    /// Blocks that were changed in part although the rest of them was damaged. Reading them goes on
    /// failing: what is damaged does not become valid because something beside it was written. But what was
    /// written is kept, and the error says what it is.
    pub damaged: u32,
    pub(crate) merge: Option<Box<Merge>>,
}

impl Placing {
    /// Bytes that this will write, roughly: what a simulated disk charges time for.
    pub fn cost(&self) -> usize {
        self.blocks.len() * BLOCK + self.merge.as_ref().map_or(0, |_| merge::SLICE)
    }

    /// Carries it out. After an error the store has to be opened anew.
    pub fn run(self, disk: &(impl Disk + ?Sized)) -> Result<Placed, DiskError> {
        let crcs = Vec::with_capacity(self.blocks.len());
        let mut placed = Placed { crcs, read_here: Vec::new(), damaged: 0, merge: self.merge };
        if let Some(merge) = &mut placed.merge {
            merge.run(disk)?;
        }
        let mut whole: Vec<(u32, Bytes)> = Vec::with_capacity(self.blocks.len());
        for ToPlace { block, content, is_read_here } in self.blocks {
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
                    let (bytes, crc) = known::list(&parts);
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
) -> Result<Bytes, Vec<PatchRun>> {
    let (base, runs) = match content {
        Content::Whole(bytes) => return Ok(bytes),
        Content::Patch { base, runs } => (base, runs),
    };
    let bytes = match bases.get(&base.block) {
        Some(bytes) => Ok(bytes.clone()),
        None => read_base(disk, base),
    };
    match bytes {
        Ok(bytes) => Ok(patched(bytes, &runs)),
        Err(parts) => {
            let parts = known::joined(parts, &runs);
            known::whole(&parts).cloned().ok_or(parts)
        }
    }
}

fn patched(mut bytes: Vec<u8>, runs: &[PatchRun]) -> Bytes {
    runs.iter().for_each(|run| run.apply(&mut bytes));
    bytes.into()
}

/// What a block of the device holds, or what is known of it if it is damaged: what cannot be read is as good as
/// rotten; a device that is gone fails the writes.
fn read_base(disk: &(impl Disk + ?Sized), base: Base) -> Result<Vec<u8>, Vec<PatchRun>> {
    let mut bytes = vec![0; BLOCK];
    match disk.read_at(u64::from(base.block) * BLOCK as u64, &mut bytes) {
        Ok(()) => match known::look(&bytes, base.crc) {
            Held::Whole => Ok(bytes),
            Held::Parts(parts) => Err(parts),
        },
        Err(_) => Err(Vec::new()),
    }
}
