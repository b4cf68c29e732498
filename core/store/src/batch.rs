//! What the disk thread does: everything queued, with one flush for the data and one for the log.

use crate::aligned::Aligned;
use crate::disk::{Disk, DiskError};
use crate::format::{Geometry, RECORD_HEADER, RecordHeader, SUPERBLOCKS, Superblock};
use crate::{BLOCK, space::Run};
use bytes::Bytes;
use nacre_wire::{Encode, crc32c};
use std::collections::BTreeMap;

/// Writes are joined up to this many bytes where blocks are neighbours.
const WRITE_MAX: usize = 1 << 20;

/// What a fresh block will hold.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// All of it: `BLOCK` bytes.
    Whole(Bytes),
    /// What block `base` of the device holds, with `bytes` over it from `at` on. The store's own
    /// thread does not read the device, so the disk thread merges.
    Patch { base: u32, at: u16, bytes: Bytes },
}

#[derive(Debug)]
pub(crate) struct FreshBlock {
    pub block: u32,
    pub content: Content,
    /// The checksum of a patch's base; None if the base is a fresh block of the same batch.
    pub base_crc: Option<u32>,
}

#[derive(Debug)]
pub(crate) struct Record {
    pub pos: u64,
    pub first_seq: u64,
    pub count: u64,
    pub body: Vec<u8>,
}

/// Work for the disk, in the order in which it must become durable. Plain data; one at a time.
#[derive(Debug)]
pub struct Batch {
    pub(crate) id: u64,
    pub(crate) geometry: Geometry,
    /// In the order in which they were submitted: a patch comes after its base.
    pub(crate) fresh: Vec<FreshBlock>,
    pub(crate) chunks: Vec<(Run, Vec<u8>)>,
    pub(crate) record: Option<Record>,
    /// Ends a checkpoint.
    pub(crate) superblock: Option<Superblock>,
}

/// What `Store::finished` needs to know about a batch that is durable.
#[derive(Debug)]
pub struct Done {
    pub(crate) id: u64,
    /// Block and checksum of the fresh blocks.
    pub(crate) crcs: Vec<(u32, u32)>,
    /// Blocks that were changed in part although the rest of them was damaged. Reading them goes on
    /// failing: what is damaged does not become valid because something beside it was written.
    pub damaged: u32,
}

impl Batch {
    /// Bytes that this will write, roughly: what a simulated disk charges time for.
    pub fn cost(&self) -> usize {
        let chunks: usize = self.chunks.iter().map(|(_, bytes)| bytes.len()).sum();
        self.fresh.len() * BLOCK + chunks + self.record.as_ref().map_or(0, |record| record.body.len() + BLOCK)
    }

    /// Carries it out. After an error nothing more may be committed: the store has to be opened anew.
    pub fn commit(self, disk: &(impl Disk + ?Sized)) -> Result<Done, DiskError> {
        let merged = merge(disk, self.fresh)?;
        let mut writes: Vec<(u32, &[u8])> = merged.blocks.iter().map(|(b, bytes)| (*b, &bytes[..])).collect();
        writes.extend(self.chunks.iter().map(|(run, bytes)| (run.start, &bytes[..])));
        write_joined(disk, &mut writes)?;
        if !writes.is_empty() {
            // The log must never name a block that a power cut could still take away.
            disk.flush()?;
        }
        if let Some(record) = self.record {
            append(disk, &self.geometry, record, &merged.crcs)?;
        }
        if let Some(superblock) = self.superblock {
            let bytes = superblock.encode();
            // One after the other: a torn first copy must leave the second one whole. Only after
            // both may the log before this checkpoint be overwritten.
            for copy in SUPERBLOCKS {
                disk.write_at(copy * BLOCK as u64, &bytes)?;
                disk.flush()?;
            }
        }
        Ok(Done { id: self.id, crcs: merged.crcs, damaged: merged.damaged })
    }
}

struct Merged {
    blocks: Vec<(u32, Bytes)>,
    crcs: Vec<(u32, u32)>,
    damaged: u32,
}

/// Makes whole blocks of patches, and all the checksums.
fn merge(disk: &(impl Disk + ?Sized), fresh: Vec<FreshBlock>) -> Result<Merged, DiskError> {
    let mut merged = Merged { blocks: Vec::new(), crcs: Vec::new(), damaged: 0 };
    // Where in `merged` each block is, for patches on patches.
    let mut place_of = BTreeMap::new();
    for block in fresh {
        let mut damaged = false;
        let bytes = match block.content {
            Content::Whole(bytes) => bytes,
            Content::Patch { base, at, bytes } => {
                let mut whole = vec![0; BLOCK];
                match block.base_crc {
                    Some(crc) => {
                        disk.read_at(u64::from(base) * BLOCK as u64, &mut whole)?;
                        damaged = crc32c(u32::MAX, &whole) != crc;
                    }
                    None => {
                        let place: usize = place_of[&base];
                        whole.copy_from_slice(&merged.blocks[place].1);
                        damaged = crc32c(u32::MAX, &whole) != merged.crcs[place].1;
                    }
                }
                whole[usize::from(at)..][..bytes.len()].copy_from_slice(&bytes);
                Bytes::from(whole)
            }
        };
        assert_eq!(bytes.len(), BLOCK);
        let crc = crc32c(u32::MAX, &bytes);
        place_of.insert(block.block, merged.blocks.len());
        // A checksum that cannot match keeps a damaged block damaged.
        merged.crcs.push((block.block, if damaged { !crc } else { crc }));
        merged.blocks.push((block.block, bytes));
        merged.damaged += u32::from(damaged);
    }
    Ok(merged)
}

fn write_joined(disk: &(impl Disk + ?Sized), writes: &mut [(u32, &[u8])]) -> Result<(), DiskError> {
    writes.sort_by_key(|(block, _)| *block);
    let all = writes.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
    let longest = writes.iter().map(|(_, bytes)| bytes.len()).max().unwrap_or(0);
    let mut joined = Aligned::with_capacity(all.min(WRITE_MAX + longest));
    let mut from = 0;
    for (block, bytes) in writes {
        let offset = u64::from(*block) * BLOCK as u64;
        if !joined.is_empty() && (from + joined.len() as u64 != offset || joined.len() >= WRITE_MAX) {
            disk.write_at(from, joined.as_ref())?;
            joined.clear();
        }
        if joined.is_empty() {
            from = offset;
        }
        joined.extend_from_slice(bytes);
    }
    if !joined.is_empty() {
        disk.write_at(from, joined.as_ref())?;
    }
    Ok(())
}

/// Blocks of log that a record takes.
pub(crate) fn record_blocks(body_len: usize, fresh: usize) -> u64 {
    (RECORD_HEADER + body_len + fresh * 8).div_ceil(BLOCK) as u64
}

/// Durable when it returns.
fn append(
    disk: &(impl Disk + ?Sized),
    geometry: &Geometry,
    record: Record,
    crcs: &[(u32, u32)],
) -> Result<(), DiskError> {
    let header = RecordHeader {
        uuid: geometry.uuid,
        pos: record.pos,
        first_seq: record.first_seq,
        count: record.count,
        body_len: record.body.len() as u64,
        fresh: crcs.len() as u32,
    };
    let blocks = record_blocks(record.body.len(), crcs.len());
    let mut pairs = Vec::with_capacity(crcs.len() * 8);
    crcs.iter().for_each(|pair| pair.encode(&mut pairs));
    let mut bytes = Aligned::with_capacity(blocks as usize * BLOCK);
    bytes.pad_to(RECORD_HEADER);
    bytes.extend_from_slice(&record.body);
    bytes.extend_from_slice(&pairs);
    header.seal(bytes.as_mut());
    bytes.pad_to(blocks as usize * BLOCK);

    let before_end = u64::from(geometry.log_blocks) - record.pos % u64::from(geometry.log_blocks);
    let (first, second) = bytes.as_ref().split_at((before_end.min(blocks) as usize) * BLOCK);
    disk.write_durable(geometry.log_offset(record.pos), first)?;
    if !second.is_empty() {
        disk.write_durable(geometry.log_offset(record.pos + before_end), second)?;
    }
    Ok(())
}
