//! What the log's thread does: everything queued, with one durable write of the log, and before it one
//! flush if there is data too large for the log.

use crate::BLOCK;
use crate::aligned::Aligned;
use crate::disk::{Disk, DiskError};
use crate::format::{Geometry, RECORD_HEADER, RecordHeader, SUPERBLOCKS, Superblock};
use crate::space::Run;
use bytes::Bytes;
use nacre_wire::{Encode, crc32c};

/// Writes are joined up to this many bytes where blocks are neighbours.
const WRITE_MAX: usize = 1 << 20;

#[derive(Debug)]
pub(crate) struct Record {
    pub pos: u64,
    pub first_seq: u64,
    pub count: u64,
    pub body: Vec<u8>,
    /// Block and checksum of what was in the log and is in its place now.
    pub placed: Vec<(u32, u32)>,
    /// Contents of blocks that will be placed later.
    pub inline: Vec<u8>,
}

/// Work for the disk, in the order in which it must become durable. Plain data; one at a time.
#[derive(Debug)]
pub struct Batch {
    pub(crate) id: u64,
    pub(crate) geometry: Geometry,
    /// Blocks too many for the log, whole.
    pub(crate) fresh: Vec<(u32, Bytes)>,
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
}

impl Batch {
    /// Bytes that this will write, roughly: what a simulated disk charges time for.
    pub fn cost(&self) -> usize {
        let chunks: usize = self.chunks.iter().map(|(_, bytes)| bytes.len()).sum();
        let record = self.record.as_ref().map_or(0, |r| r.body.len() + r.inline.len() + BLOCK);
        self.fresh.len() * BLOCK + chunks + record
    }

    /// Carries it out. After an error nothing more may be committed: the store has to be opened anew.
    pub fn commit(self, disk: &(impl Disk + ?Sized)) -> Result<Done, DiskError> {
        let crcs: Vec<_> =
            self.fresh.iter().map(|(block, bytes)| (*block, crc32c(u32::MAX, bytes))).collect();
        let mut writes: Vec<(u32, &[u8])> = self.fresh.iter().map(|(b, bytes)| (*b, &bytes[..])).collect();
        writes.extend(self.chunks.iter().map(|(run, bytes)| (run.start, &bytes[..])));
        write_joined(disk, &mut writes)?;
        if !writes.is_empty() {
            // The log must never name a block that a power cut could still take away.
            disk.flush()?;
        }
        if let Some(record) = self.record {
            append(disk, &self.geometry, record, &crcs)?;
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
        Ok(Done { id: self.id, crcs })
    }
}

/// Not durable when it returns.
pub(crate) fn write_joined(
    disk: &(impl Disk + ?Sized),
    writes: &mut [(u32, &[u8])],
) -> Result<(), DiskError> {
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
pub(crate) fn record_blocks(body_len: usize, placed: usize, inline_len: usize) -> u64 {
    (RECORD_HEADER + body_len + placed * 8 + inline_len).div_ceil(BLOCK) as u64
}

/// Durable when it returns.
fn append(
    disk: &(impl Disk + ?Sized),
    geometry: &Geometry,
    record: Record,
    crcs: &[(u32, u32)],
) -> Result<(), DiskError> {
    let placed = record.placed.len() + crcs.len();
    let len = |len: usize| u32::try_from(len).expect("a record is smaller than the log");
    let header = RecordHeader {
        uuid: geometry.uuid,
        pos: record.pos,
        first_seq: record.first_seq,
        count: record.count,
        body_len: len(record.body.len()),
        placed: len(placed),
        inline_len: len(record.inline.len()),
    };
    let blocks = record_blocks(record.body.len(), placed, record.inline.len());
    let mut pairs = Vec::with_capacity(placed * 8);
    record.placed.iter().chain(crcs).for_each(|pair| pair.encode(&mut pairs));
    let mut bytes = Aligned::with_capacity(blocks as usize * BLOCK);
    bytes.pad_to(RECORD_HEADER);
    bytes.extend_from_slice(&record.body);
    bytes.extend_from_slice(&pairs);
    bytes.extend_from_slice(&record.inline);
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
