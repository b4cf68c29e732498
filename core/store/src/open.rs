//! Making a store on a blank device, and bringing one back: superblock, checkpoint, log, proof.

use crate::BLOCK;
use crate::aligned::Aligned;
use crate::checkpoint::{CHUNK_BLOCKS_MAX, OBJECT, REMOVED};
use crate::content::{Base, Content};
use crate::disk::{Disk, DiskError};
use crate::format::{
    ChunkHeader, Geometry, LOG_START, Layer, RECORD_HEADER, RecordHeader, SUPERBLOCKS, Superblock,
    SuperblockError, VERSION,
};
use crate::index::{Index, Moves, Object, Op};
use crate::space::{Run, Space};
use crate::store::{BlockInfo, Found, Store, StoredLayer, Ticket};
use nacre_proto::transaction::StoredId;
use nacre_wire::{Decode, DecodeError, Reader};
use std::collections::BTreeMap;

const LOG_LEN_MIN: u64 = 4 << 20;
const LOG_LEN_MAX: u64 = 1 << 30;
/// The smallest ring that makes sense, for tests.
const LOG_BLOCKS_MIN: u64 = 8;
const DATA_BLOCKS_MIN: u64 = 64;
/// The log is searched this many bytes at a time.
const SCAN: usize = 1 << 20;

/// How to format.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Tells this store's blocks from those of any earlier one on the same device: never use one
    /// twice.
    pub uuid: [u8; 16],
    /// Bytes for the log; by default 1/32 of the device, within 4 MiB to 1 GiB.
    pub log_len: Option<u64>,
    /// Overwrite whatever is there.
    pub force: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    #[error("device has {len} bytes, a store needs {min}")]
    TooSmall { len: u64, min: u64 },
    #[error("device is not blank: its first 68 KiB hold something")]
    NotBlank,
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// Why what is on the device cannot be used. Nothing was changed there, unless it is the `Disk` that
/// failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    #[error("device is blank: it was never formatted as a store")]
    Blank,
    #[error("device holds something, but no store")]
    NotAStore,
    #[error("store has format version {found}, this program knows {VERSION}")]
    Version { found: u32 },
    #[error("device has {len} bytes, its store was made for {expected}")]
    Shrunk { len: u64, expected: u64 },
    #[error("both copies of the superblock are damaged")]
    Superblock,
    #[error("checkpoint {generation}: {what} at block {block}")]
    Checkpoint { generation: u64, what: &'static str, block: u32 },
    #[error("checkpoint {generation}: {error}")]
    CheckpointContent { generation: u64, error: DecodeError },
    #[error("log is damaged at position {pos}: transaction {seq} is missing but later ones are there")]
    LogGap { pos: u64, seq: u64 },
    #[error("log at position {pos}: {error}")]
    LogContent { pos: u64, error: DecodeError },
    #[error("{id}: {what} at block {block}")]
    Object { id: StoredId, what: &'static str, block: u32 },
    /// What a block in the log is a patch of.
    #[error("a patched block is {what}: {block}")]
    Base { what: &'static str, block: u32 },
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// What opening found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The last transaction in the checkpoint.
    pub checkpoint: Ticket,
    /// The last transaction of all.
    pub last: Ticket,
    /// A batch that was being written when the store died was thrown away: nobody had been told
    /// that it is durable.
    pub torn_tail: bool,
    /// One of the two superblocks was bad, and was renewed.
    pub superblock_damaged: bool,
    pub objects: usize,
}

impl Store {
    /// Makes an empty store of the whole device.
    pub fn format(disk: &(impl Disk + ?Sized), options: Options) -> Result<(), FormatError> {
        let blocks = (disk.len() / BLOCK as u64).min(u32::MAX.into());
        let min = LOG_START + LOG_BLOCKS_MIN + DATA_BLOCKS_MIN;
        if blocks < min {
            return Err(FormatError::TooSmall { len: disk.len(), min: min * BLOCK as u64 });
        }
        let log_len = options.log_len.unwrap_or((disk.len() / 32).clamp(LOG_LEN_MIN, LOG_LEN_MAX));
        let log_max = ((blocks - LOG_START - DATA_BLOCKS_MIN) / 2).max(LOG_BLOCKS_MIN);
        let log_blocks = log_len.div_ceil(BLOCK as u64).clamp(LOG_BLOCKS_MIN, log_max);

        let mut front = vec![0; (SUPERBLOCKS[1] as usize + 1) * BLOCK];
        disk.read_at(0, &mut front)?;
        if !options.force && front.iter().any(|byte| *byte != 0) {
            return Err(FormatError::NotBlank);
        }
        // First nothing, then the new: dying in between never leaves one copy of each.
        front.fill(0);
        disk.write_at(0, &front)?;
        disk.flush()?;
        let superblock = Superblock {
            geometry: Geometry { uuid: options.uuid, blocks: blocks as u32, log_blocks: log_blocks as u32 },
            generation: 1,
            seq: 0,
            log_pos: 0,
            layers: Vec::new(),
        };
        for copy in SUPERBLOCKS {
            disk.write_at(copy * BLOCK as u64, &superblock.encode())?;
            disk.flush()?;
        }
        Ok(())
    }

    /// Brings back everything that was acknowledged, and possibly more: what it gives is durable.
    pub fn open(disk: &(impl Disk + ?Sized)) -> Result<(Store, Report), OpenError> {
        let (superblock, [first, second]) = read_superblocks(disk)?;
        let geometry = superblock.geometry;
        let expected = u64::from(geometry.blocks) * BLOCK as u64;
        if disk.len() < expected {
            return Err(OpenError::Shrunk { len: disk.len(), expected });
        }
        let mut recovery = Recovery { index: Index::new(), ..Recovery::default() };
        let layers = recovery.read_checkpoint(disk, &superblock)?;
        let log = recovery.replay(disk, &superblock)?;
        let (table, space) = recovery.account(&superblock, &layers)?;
        recovery.inline.retain(|block, _| table.get(block).is_some_and(|info| info.owners > 0));
        // What was read may so far be only in the drive's cache, and others will now build on it.
        disk.flush()?;
        // Both copies must say the same before anything is overwritten that one of them needs: a
        // stale one would be what is left if the next checkpoint tore the other.
        for (copy, state) in SUPERBLOCKS.into_iter().zip([first, second]) {
            if state != CopyState::Newest {
                disk.write_at(copy * BLOCK as u64, &superblock.encode())?;
                disk.flush()?;
            }
        }
        let superblock_damaged = first == CopyState::Bad || second == CopyState::Bad;

        let report = Report {
            checkpoint: Ticket(superblock.seq),
            last: Ticket(log.last_seq),
            torn_tail: log.torn,
            superblock_damaged,
            objects: recovery.index.len(),
        };
        let store = Store::new(Found {
            superblock,
            layers,
            index: recovery.index,
            table,
            space,
            last_seq: log.last_seq,
            log_tail: log.tail,
            inline: recovery.inline,
        });
        Ok((store, report))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CopyState {
    Newest,
    /// A crash came between the two.
    Stale,
    Bad,
}

/// The newest superblock, and how its copies are.
fn read_superblocks(disk: &(impl Disk + ?Sized)) -> Result<(Superblock, [CopyState; 2]), OpenError> {
    let read = |copy: u64| {
        if disk.len() < (copy + 1) * BLOCK as u64 {
            return Err(OpenError::NotAStore);
        }
        let mut block = vec![0; BLOCK];
        disk.read_at(copy * BLOCK as u64, &mut block)?;
        Ok(Superblock::decode(&block))
    };
    let copies = [read(SUPERBLOCKS[0])?, read(SUPERBLOCKS[1])?];
    for copy in &copies {
        if let Err(SuperblockError::Version(found)) = *copy {
            return Err(OpenError::Version { found });
        }
    }
    let newest = match &copies {
        [Ok(first), Ok(second)] if first.geometry != second.geometry => return Err(OpenError::Superblock),
        [Ok(first), Ok(second)] if second.generation > first.generation => second,
        [Ok(good), _] | [_, Ok(good)] => good,
        [Err(SuperblockError::Blank), Err(SuperblockError::Blank)] => return Err(OpenError::Blank),
        [
            Err(SuperblockError::Blank | SuperblockError::Foreign),
            Err(SuperblockError::Blank | SuperblockError::Foreign),
        ] => return Err(OpenError::NotAStore),
        _ => return Err(OpenError::Superblock),
    };
    let states = copies.each_ref().map(|copy| match copy {
        Ok(this) if this == newest => CopyState::Newest,
        Ok(_) => CopyState::Stale,
        Err(_) => CopyState::Bad,
    });
    Ok((newest.clone(), states))
}

#[derive(Default)]
struct Recovery {
    index: Index,
    /// Block -> checksum, of every block that was ever named; the latest wins.
    crcs: BTreeMap<u32, u32>,
    /// What the log holds of blocks that it does not say to be in their place.
    inline: BTreeMap<u32, Content>,
}

struct LogEnd {
    last_seq: u64,
    tail: u64,
    torn: bool,
}

impl Recovery {
    /// One layer over the other, from the first on.
    fn read_checkpoint(
        &mut self,
        disk: &(impl Disk + ?Sized),
        superblock: &Superblock,
    ) -> Result<Vec<StoredLayer>, OpenError> {
        let read = |layer: &Layer| {
            let chunks = self.read_layer(disk, &superblock.geometry, *layer)?;
            Ok(StoredLayer { layer: *layer, chunks })
        };
        superblock.layers.iter().map(read).collect()
    }

    /// Follows the chain from the last chunk to the first; gives their places, first to last.
    fn read_layer(
        &mut self,
        disk: &(impl Disk + ?Sized),
        geometry: &Geometry,
        layer: Layer,
    ) -> Result<Vec<Run>, OpenError> {
        let generation = layer.generation;
        let (mut runs, mut payloads) = (Vec::new(), Vec::new());
        let mut run = layer.last_chunk;
        let mut len = 0;
        for number in (0..layer.chunks).rev() {
            let wrong = |what| OpenError::Checkpoint { generation, what, block: run.start };
            if run.len == 0 || run.len > CHUNK_BLOCKS_MAX || !geometry.holds_data(run) {
                return Err(wrong("impossible chunk"));
            }
            let mut chunk = Aligned::zeroed(run.len as usize * BLOCK);
            disk.read_at(u64::from(run.start) * BLOCK as u64, chunk.as_mut())?;
            let Some((header, payload)) = ChunkHeader::decode(chunk.as_ref()) else {
                return Err(wrong("damaged chunk"));
            };
            if (header.uuid, header.generation, header.number) != (geometry.uuid, generation, number) {
                return Err(wrong("another checkpoint's chunk"));
            }
            len += payload.len() as u64;
            if len > layer.payload_len {
                return Err(wrong("too long a chunk"));
            }
            payloads.push(payload.to_vec());
            runs.push(run);
            run = header.prev;
        }
        payloads.reverse();
        runs.reverse();
        let bytes = payloads.concat();
        drop(payloads);
        let mut r = Reader::new(&bytes);
        while !r.is_empty() {
            self.read_entry(&mut r).map_err(|error| OpenError::CheckpointContent { generation, error })?;
        }
        Ok(runs)
    }

    fn read_entry(&mut self, r: &mut Reader<'_>) -> Result<(), DecodeError> {
        match u8::decode(r)? {
            OBJECT => {
                let (id, object) = Object::decode(r, |block, crc| {
                    self.crcs.insert(block, crc);
                })?;
                self.index.restore(id, object);
            }
            REMOVED => self.index.forget(&StoredId::decode(r)?),
            value => return Err(DecodeError::BadValue { what: "checkpoint entry", value: value.into() }),
        }
        Ok(())
    }

    /// Applies the log from the checkpoint on, up to the first record that is not whole.
    fn replay(&mut self, disk: &(impl Disk + ?Sized), superblock: &Superblock) -> Result<LogEnd, OpenError> {
        let geometry = &superblock.geometry;
        let ring = u64::from(geometry.log_blocks);
        let mut end = LogEnd { last_seq: superblock.seq, tail: superblock.log_pos, torn: false };
        loop {
            let pos = end.tail;
            let left = ring - (pos - superblock.log_pos);
            let mut first = vec![0; BLOCK];
            if left > 0 {
                disk.read_at(geometry.log_offset(pos), &mut first)?;
            }
            let Some(record) = read_record(disk, geometry, pos, left, &first)? else {
                end.torn = is_header_at(&first, geometry, pos);
                break;
            };
            if record.header.first_seq != end.last_seq + 1 {
                return Err(OpenError::LogGap { pos, seq: end.last_seq + 1 });
            }
            self.replay_record(&record).map_err(|error| OpenError::LogContent { pos, error })?;
            end.last_seq += record.header.count;
            end.tail += record.blocks;
        }
        if let Some(pos) = find_later_record(disk, geometry, end.tail, superblock.log_pos + ring)? {
            // One batch is under way at a time, so a record that a crash tore is the last one. This
            // one was durable and acknowledged, and is damaged.
            return Err(OpenError::LogGap { pos, seq: end.last_seq + 1 });
        }
        Ok(end)
    }

    fn replay_record(&mut self, record: &WholeRecord) -> Result<(), DecodeError> {
        let (body, rest) = record.bytes[RECORD_HEADER..].split_at(record.header.body_len as usize);
        let (placed, inline) = rest.split_at(record.header.placed as usize * 8);
        let mut contents = BTreeMap::new();
        let mut r = Reader::new(inline);
        while !r.is_empty() {
            let (block, content) = Content::from_log(&mut r)?;
            contents.insert(block, content);
        }
        let known = u64::from(record.header.placed) + contents.len() as u64;

        let mut r = Reader::new(body);
        let mut count = 0;
        for _ in 0..record.header.count {
            for _ in 0..u32::decode(&mut r)? {
                let id = StoredId::decode(&mut r)?;
                let op = Op::decode(&mut r)?;
                if let Op::Place(runs) = &op {
                    count += runs.iter().map(|run| u64::from(run.blocks.len)).sum::<u64>();
                }
                // Each has a checksum or its content in this record: a lying length ends here.
                if count > known {
                    return Err(DecodeError::BadValue { what: "blocks placed", value: count });
                }
                // Owners are counted once, at the end.
                self.index.apply(&id, op, &mut Moves::default());
            }
        }
        r.finish()?;
        let mut r = Reader::new(placed);
        while !r.is_empty() {
            let (block, crc) = Decode::decode(&mut r)?;
            self.crcs.insert(block, crc);
            self.inline.remove(&block);
        }
        for (block, mut content) in contents {
            if let Content::Patch { base, runs } = &content
                && let Some(under) = self.inline.get(&base.block)
            {
                // It was in its place by then, but this log does not say so.
                content = runs.iter().fold(under.clone(), |c, run| c.patched(run.at.into(), &run.bytes));
            }
            self.crcs.remove(&block);
            self.inline.insert(block, content);
        }
        Ok(())
    }

    /// Finds out who owns which block.
    fn account(
        &self,
        superblock: &Superblock,
        layers: &[StoredLayer],
    ) -> Result<(BTreeMap<u32, BlockInfo>, Space), OpenError> {
        let geometry = superblock.geometry;
        let mut space = Space::new(geometry.blocks);
        (geometry.data_start()..geometry.blocks).for_each(|block| space.release(block));
        for block in layers.iter().flat_map(|layer| &layer.chunks).flat_map(|run| run.blocks()) {
            if space.is_taken(block) {
                let generation = superblock.generation;
                return Err(OpenError::Checkpoint { generation, what: "chunk over another", block });
            }
            space.take(block);
        }
        let mut table: BTreeMap<u32, BlockInfo> = BTreeMap::new();
        for (id, object) in self.index.iter() {
            for (&at, &block) in &object.blocks {
                let wrong = |what| OpenError::Object { id: id.clone(), what, block };
                if !geometry.holds_data(Run { start: block, len: 1 }) {
                    return Err(wrong("data outside of the data area"));
                }
                if u64::from(at) * BLOCK as u64 >= object.size {
                    return Err(wrong("data past its end"));
                }
                if let Some(info) = table.get_mut(&block) {
                    info.owners += 1;
                    continue;
                }
                if space.is_taken(block) {
                    return Err(wrong("data in a checkpoint's place"));
                }
                let known = self.crcs.get(&block).copied();
                let known = known.or_else(|| self.inline.contains_key(&block).then_some(0));
                let crc = known.ok_or_else(|| wrong("data without a checksum"))?;
                space.take(block);
                table.insert(block, BlockInfo { owners: 1, crc, ..BlockInfo::default() });
            }
        }
        let owned = self.inline.iter().filter(|(block, _)| table.contains_key(block));
        let bases: Vec<Base> = owned.filter_map(|(_, content)| content.base()).collect();
        for Base { block: base, crc } in bases {
            let wrong = |what| OpenError::Base { what, block: base };
            if !geometry.holds_data(Run { start: base, len: 1 }) {
                return Err(wrong("outside of the data area"));
            }
            if table.contains_key(&base) {
                continue;
            }
            if space.is_taken(base) {
                return Err(wrong("in a checkpoint's place"));
            }
            space.take(base);
            table.insert(base, BlockInfo { crc, dead: true, ..BlockInfo::default() });
        }
        Ok((table, space))
    }
}

struct WholeRecord {
    header: RecordHeader,
    /// Exactly the record, without the padding.
    bytes: Vec<u8>,
    blocks: u64,
}

fn is_header_at(block: &[u8], geometry: &Geometry, pos: u64) -> bool {
    RecordHeader::decode(block).is_some_and(|(header, _)| header.uuid == geometry.uuid && header.pos == pos)
}

/// The record at `pos`, whose first block is `first`, if it is whole and at most `left` blocks.
fn read_record(
    disk: &(impl Disk + ?Sized),
    geometry: &Geometry,
    pos: u64,
    left: u64,
    first: &[u8],
) -> Result<Option<WholeRecord>, OpenError> {
    let Some((header, crc)) = RecordHeader::decode(first) else {
        return Ok(None);
    };
    let len = header.record_len();
    let blocks = len.div_ceil(BLOCK as u64);
    if blocks > left || !is_header_at(first, geometry, pos) {
        return Ok(None);
    }
    let mut bytes = vec![0; blocks as usize * BLOCK];
    let ring = u64::from(geometry.log_blocks);
    let before_end = (ring - pos % ring).min(blocks);
    let (front, back) = bytes.split_at_mut(before_end as usize * BLOCK);
    disk.read_at(geometry.log_offset(pos), front)?;
    if !back.is_empty() {
        disk.read_at(geometry.log_offset(pos + before_end), back)?;
    }
    bytes.truncate(len as usize);
    Ok((RecordHeader::crc_of(&bytes) == crc).then_some(WholeRecord { header, bytes, blocks }))
}

/// Looks for a whole record after `tail`, where the log of a healthy store has none.
fn find_later_record(
    disk: &(impl Disk + ?Sized),
    geometry: &Geometry,
    tail: u64,
    end: u64,
) -> Result<Option<u64>, OpenError> {
    let ring = u64::from(geometry.log_blocks);
    let mut buffer = Aligned::zeroed(SCAN.min(ring as usize * BLOCK));
    let mut pos = tail;
    while pos < end {
        let blocks = (end - pos).min(ring - pos % ring).min((SCAN / BLOCK) as u64);
        let bytes = &mut buffer.as_mut()[..blocks as usize * BLOCK];
        disk.read_at(geometry.log_offset(pos), bytes)?;
        for block in bytes.chunks_exact(BLOCK) {
            if pos != tail && read_record(disk, geometry, pos, end - pos, block)?.is_some() {
                return Ok(Some(pos));
            }
            pos += 1;
        }
    }
    Ok(None)
}
