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
    pub(crate) blocks: Vec<(u32, Content)>,
    /// What some of them are patches of, known without looking at the device.
    pub(crate) bases: BTreeMap<u32, Vec<u8>>,
    /// A slice of making one layer of several.
    pub(crate) merge: Option<Box<Merge>>,
}

/// What `Store::placed` needs to know about blocks that are durable in their place.
#[derive(Debug)]
pub struct Placed {
    /// Block and checksum.
    pub(crate) crcs: Vec<(u32, u32)>,
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
        let mut placed =
            Placed { crcs: Vec::with_capacity(self.blocks.len()), damaged: 0, merge: self.merge };
        if let Some(merge) = &mut placed.merge {
            merge.run(disk)?;
        }
        let mut whole: Vec<(u32, Bytes)> = Vec::with_capacity(self.blocks.len());
        for (block, content) in self.blocks {
            let (bytes, crc) = match content {
                Content::Whole(bytes) => with_sum(bytes),
                Content::Patch { base, runs } => match self.bases.get(&base.block) {
                    Some(bytes) => with_sum(patched(bytes.clone(), &runs)),
                    None => match read_base(disk, base) {
                        Ok(bytes) => with_sum(patched(bytes, &runs)),
                        Err(parts) => {
                            let parts = known::joined(parts, &runs);
                            match known::whole(&parts) {
                                Some(all) => with_sum(all.clone()),
                                None => {
                                    placed.damaged += 1;
                                    let (bytes, crc) = known::list(&parts);
                                    (bytes.into(), crc)
                                }
                            }
                        }
                    },
                },
            };
            placed.crcs.push((block, crc));
            whole.push((block, bytes));
        }
        let mut writes: Vec<(u32, &[u8])> = whole.iter().map(|(block, bytes)| (*block, &bytes[..])).collect();
        write_joined(&mut writes, |writes| {
            writes.iter().try_for_each(|(offset, bytes)| disk.write_kept(*offset, bytes))
        })?;
        disk.flush()?;
        Ok(placed)
    }
}

fn with_sum(bytes: Bytes) -> (Bytes, u32) {
    let crc = crc32c(u32::MAX, &bytes);
    (bytes, crc)
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
