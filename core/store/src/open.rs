//! Making a store on a blank device, and bringing one back: superblock, checkpoint, log, proof.

use crate::BLOCK;
use crate::aligned::Aligned;
use crate::batch::REPEAT_MAX;
use crate::checkpoint::{CHUNK_BLOCKS_MAX, OBJECT, REMOVED};
use crate::content::{Base, Content};
use crate::disk::{Disk, DiskError};
use crate::format::{
    ChunkHeader, Geometry, LOG_START, Layer, SUPERBLOCKS, Superblock, SuperblockError, VERSION,
};
use crate::index::{Index, Moves, Object, Op};
use crate::log::{LogReader, Next, Record};
use crate::log_device::{LogDevice, LogDeviceError};
use crate::space::{Run, Space};
use crate::store::{Found, Store, StoredLayer, Ticket};
use crate::table::{BlockInfo, Table};
use nacre_proto::transaction::StoredId;
use nacre_wire::{Decode, DecodeError, Reader, crc32c};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const LOG_LEN_MIN: u64 = 4 << 20;
pub(crate) const LOG_LEN_MAX: u64 = 1 << 30;
/// The smallest ring that makes sense, for tests.
pub(crate) const LOG_BLOCKS_MIN: u64 = 8;
const DATA_BLOCKS_MIN: u64 = 64;

/// How to format.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Tells this store's blocks from those of any earlier one on the same device: never use one
    /// twice.
    pub uuid: [u8; 16],
    /// Bytes for the log; by default 1/32 of the device, within 4 MiB to 1 GiB, or all of the log's own
    /// device, up to 1 GiB.
    pub log_len: Option<u64>,
    /// Tells this log's records from everything else that may be in a log, so whoever can write to the store
    /// must not guess it. The uuid, if all zeros.
    pub log_id: [u8; 16],
    /// Overwrite whatever is there.
    pub force: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    #[error("device has {len} bytes, a store needs {min}")]
    TooSmall { len: u64, min: u64 },
    #[error("device is not blank: its first 68 KiB hold something")]
    NotBlank,
    #[error("the log's device has {len} bytes, a log needs {min}")]
    LogTooSmall { len: u64, min: u64 },
    #[error("the log's device is not blank: its first 68 KiB hold something")]
    LogNotBlank,
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
    #[error("the store's log is on a device of its own, which was not given")]
    LogAbsent,
    #[error("the store's log is on the same device, but another one was given for it")]
    LogGiven,
    #[error("the device given for the log {0}")]
    LogDevice(LogDeviceError),
    #[error("checkpoint {generation}: {what} at block {block}")]
    Checkpoint { generation: u64, what: &'static str, block: u32 },
    #[error("checkpoint {generation}: {error}")]
    CheckpointContent { generation: u64, error: DecodeError },
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The last transaction in the checkpoint.
    pub checkpoint: Ticket,
    /// The last transaction of all.
    pub last: Ticket,
    /// A batch that was being written when the store died was thrown away: nobody had been told
    /// that it is durable.
    pub torn_tail: bool,
    /// Records of the log that were damaged, and of which everything but contents of blocks is known.
    pub repaired: u64,
    /// Transactions that were acknowledged and that a damaged log has lost: the first and the last. The
    /// store is as it was before them, and its first checkpoint forgets them.
    pub lost: Option<(Ticket, Ticket)>,
    /// How often that happened since the store was made, this time included.
    pub losses: u64,
    /// Blocks whose content was in a damaged record, by position in the thing they belong to.
    pub lost_blocks: Vec<(StoredId, u64)>,
    /// One of the two superblocks was bad, or a label of the log's device, and was renewed.
    pub superblock_damaged: bool,
    pub objects: usize,
}

impl Store {
    /// Makes an empty store of the whole device. If the disk has a device for the log, the log is there.
    pub fn format(disk: &(impl Disk + ?Sized), options: Options) -> Result<(), FormatError> {
        let blocks = (disk.len() / BLOCK as u64).min(u32::MAX.into());
        let min = LOG_START + LOG_BLOCKS_MIN + DATA_BLOCKS_MIN;
        if blocks < min {
            return Err(FormatError::TooSmall { len: disk.len(), min: min * BLOCK as u64 });
        }
        let log_id = if options.log_id == [0; 16] { options.uuid } else { options.log_id };
        let (data_start, log_blocks) = match disk.log() {
            Some(log) => {
                (LOG_START as u32, LogDevice { uuid: options.uuid, log_id }.ring(log, options.log_len)?)
            }
            None => {
                let log_len = options.log_len.unwrap_or((disk.len() / 32).clamp(LOG_LEN_MIN, LOG_LEN_MAX));
                let log_max = ((blocks - LOG_START - DATA_BLOCKS_MIN) / 2).max(LOG_BLOCKS_MIN);
                let log_blocks = log_len.div_ceil(BLOCK as u64).clamp(LOG_BLOCKS_MIN, log_max) as u32;
                (LOG_START as u32 + log_blocks, log_blocks)
            }
        };

        let mut front = vec![0; (SUPERBLOCKS[1] as usize + 1) * BLOCK];
        disk.read_at(0, &mut front)?;
        if !options.force && front.iter().any(|byte| *byte != 0) {
            return Err(FormatError::NotBlank);
        }
        // First nothing, then the new: dying in between never leaves one copy of each.
        front.fill(0);
        disk.write_at(0, &front)?;
        disk.flush()?;
        if let Some(log) = disk.log() {
            LogDevice { uuid: options.uuid, log_id }.format(log, log_blocks, options.force)?;
        }
        let superblock = Superblock {
            geometry: Geometry {
                uuid: options.uuid,
                blocks: blocks as u32,
                data_start,
                log_blocks,
                log_is_apart: disk.log().is_some(),
                log_id,
            },
            generation: 1,
            seq: 0,
            log_pos: 0,
            losses: 0,
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
        let label_damaged = match (disk.log(), geometry.log_is_apart) {
            (Some(log), true) => LogDevice::of(&geometry).check(log, &geometry)?,
            (None, false) => false,
            (Some(_), false) => return Err(OpenError::LogGiven),
            (None, true) => return Err(OpenError::LogAbsent),
        };
        let mut recovery = Recovery { index: Index::new(), ..Recovery::default() };
        let layers = recovery.read_checkpoint(disk, &superblock)?;
        let log = recovery.replay(disk, &superblock)?;
        if log.repaired > 0 {
            recovery.look_at_bases(disk, &geometry);
        }
        recovery.condemn_damaged(disk, &geometry);
        let (table, dead, space) = recovery.account(&superblock, &layers)?;
        let lost_blocks = recovery.lost_blocks();
        recovery.inline.retain(|block, _| table.get(*block).is_some_and(|info| info.owners > 0));
        // What was read may so far be only in the drive's cache, and others will now build on it.
        disk.flush()?;
        if let Some(log) = disk.log() {
            log.flush()?;
            if label_damaged {
                LogDevice::of(&geometry).write_labels(log, geometry.log_blocks)?;
            }
        }
        // Both copies must say the same before anything is overwritten that one of them needs: a
        // stale one would be what is left if the next checkpoint tore the other.
        for (copy, state) in SUPERBLOCKS.into_iter().zip([first, second]) {
            if state != CopyState::Newest {
                disk.write_at(copy * BLOCK as u64, &superblock.encode())?;
                disk.flush()?;
            }
        }
        let superblock_damaged = first == CopyState::Bad || second == CopyState::Bad || label_damaged;

        let report = Report {
            checkpoint: Ticket(superblock.seq),
            last: Ticket(log.last_seq),
            torn_tail: log.torn,
            repaired: log.repaired,
            lost: log.lost.map(|(first, last)| (Ticket(first), Ticket(last))),
            losses: superblock.losses + u64::from(log.lost.is_some()),
            lost_blocks: lost_blocks.clone(),
            superblock_damaged,
            objects: recovery.index.len(),
        };
        let store = Store::new(Found {
            superblock,
            layers,
            index: recovery.index,
            table,
            dead,
            space,
            last_seq: log.last_seq,
            log_tail: log.tail,
            last_head: log.last_head,
            is_unconfirmed: log.is_unconfirmed,
            log_is_broken: log.lost.is_some(),
            lost_blocks,
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
    /// Blocks whose content the log has lost, unless they came to their place before.
    damaged: BTreeSet<u32>,
}

#[derive(Default)]
struct LogEnd {
    last_seq: u64,
    tail: u64,
    torn: bool,
    repaired: u64,
    lost: Option<(u64, u64)>,
    last_head: Vec<u8>,
    is_unconfirmed: bool,
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

    /// Applies the log from the checkpoint on, as far as it can be told what it holds.
    fn replay(&mut self, disk: &(impl Disk + ?Sized), superblock: &Superblock) -> Result<LogEnd, OpenError> {
        let log = LogReader::new(disk, superblock.geometry, superblock.log_pos);
        let mut end = LogEnd { last_seq: superblock.seq, tail: superblock.log_pos, ..LogEnd::default() };
        loop {
            match log.next(end.tail, end.last_seq + 1)? {
                Next::Record(record) => {
                    let pos = record.head.header.pos;
                    self.replay_record(&record).map_err(|error| OpenError::LogContent { pos, error })?;
                    let is_damaged = record.contents.iter().any(|(_, content)| content.is_none());
                    end.repaired += u64::from(is_damaged || record.repaired);
                    end.last_seq += record.head.header.count;
                    end.tail = pos + record.head.blocks();
                    end.is_unconfirmed = record.head.header.count > 0;
                    end.last_head = record.head.into_bytes();
                }
                Next::Notes { end: pos } => {
                    end.repaired += 1;
                    end.tail = pos;
                    end.last_head.clear();
                }
                Next::End { torn } => {
                    end.torn = torn;
                    if end.last_head.len() > REPEAT_MAX {
                        end.last_head.clear();
                    }
                    return Ok(end);
                }
                Next::Gap { pos, last_seq } => {
                    let last_seq = last_seq.max(end.last_seq);
                    let lost = Some((end.last_seq + 1, last_seq));
                    return Ok(LogEnd {
                        last_seq,
                        tail: pos,
                        repaired: end.repaired,
                        lost,
                        ..LogEnd::default()
                    });
                }
            }
        }
    }

    fn replay_record(&mut self, record: &Record) -> Result<(), DecodeError> {
        let head = &record.head;
        let known = u64::from(head.header.placed) + record.contents.len() as u64;

        let mut r = Reader::new(head.transactions());
        let mut count = 0;
        for _ in 0..head.header.count {
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
        for (block, crc) in head.placed() {
            self.crcs.insert(block, crc);
            self.inline.remove(&block);
            self.damaged.remove(&block);
        }
        for (block, content) in &record.contents {
            self.crcs.remove(block);
            self.inline.remove(block);
            self.damaged.remove(block);
            let mut content = match content {
                Some(content) => content.clone(),
                None => {
                    self.damaged.insert(*block);
                    continue;
                }
            };
            if let Content::Patch { base, runs } = &content {
                // It was in its place by then, even if this log does not say so.
                if self.damaged.remove(&base.block) {
                    self.crcs.insert(base.block, base.crc);
                } else if let Some(under) = self.inline.get(&base.block) {
                    content = runs.iter().fold(under.clone(), |c, run| c.patched(run.at.into(), &run.bytes));
                }
            }
            self.inline.insert(*block, content);
        }
        Ok(())
    }

    /// A damaged record may have said that a patch is in its place, after which what it was put over could
    /// be overwritten. What is there now would be patched instead.
    fn look_at_bases(&mut self, disk: &(impl Disk + ?Sized), geometry: &Geometry) {
        let mut bytes = vec![0; BLOCK];
        let is_gone = |(block, content): (&u32, &Content)| {
            let base =
                content.base().filter(|base| geometry.holds_data(Run { start: base.block, len: 1 }))?;
            let read = disk.read_at(u64::from(base.block) * BLOCK as u64, &mut bytes);
            (read.is_err() || crc32c(u32::MAX, &bytes) != base.crc).then_some(*block)
        };
        let gone: Vec<u32> = self.inline.iter().filter_map(is_gone).collect();
        gone.iter().for_each(|block| drop(self.inline.remove(block)));
        self.damaged.extend(gone);
    }
    /// Gives what is lost a checksum that what is on the device does not have: it stays damaged until it is
    /// written again.
    fn condemn_damaged(&mut self, disk: &(impl Disk + ?Sized), geometry: &Geometry) {
        for block in &self.damaged {
            let mut bytes = vec![0; BLOCK];
            if geometry.holds_data(Run { start: *block, len: 1 }) {
                // What cannot be read is damaged whatever its checksum.
                let _ = disk.read_at(u64::from(*block) * BLOCK as u64, &mut bytes);
            }
            self.crcs.insert(*block, !crc32c(u32::MAX, &bytes));
        }
    }
    /// Whose blocks the log has lost.
    fn lost_blocks(&self) -> Vec<(StoredId, u64)> {
        if self.damaged.is_empty() {
            return Vec::new();
        }
        let of = |(id, object): (&StoredId, &Arc<Object>)| -> Vec<(StoredId, u64)> {
            let lost = object.blocks.iter().filter(|(_, block)| self.damaged.contains(block));
            lost.map(|(at, _)| (id.clone(), u64::from(at))).collect()
        };
        self.index.iter().flat_map(of).collect()
    }

    /// Finds out who owns which block.
    fn account(
        &self,
        superblock: &Superblock,
        layers: &[StoredLayer],
    ) -> Result<(Table, BTreeSet<u32>, Space), OpenError> {
        let geometry = superblock.geometry;
        let mut space = Space::new(geometry.blocks);
        (geometry.data_start..geometry.blocks).for_each(|block| space.release(block));
        for block in layers.iter().flat_map(|layer| &layer.chunks).flat_map(|run| run.blocks()) {
            if space.is_taken(block) {
                let generation = superblock.generation;
                return Err(OpenError::Checkpoint { generation, what: "chunk over another", block });
            }
            space.take(block);
        }
        let (mut table, mut dead) = (Table::default(), BTreeSet::new());
        for (id, object) in self.index.iter() {
            for (at, block) in object.blocks.iter() {
                let wrong = |what| OpenError::Object { id: id.clone(), what, block };
                if !geometry.holds_data(Run { start: block, len: 1 }) {
                    return Err(wrong("data outside of the data area"));
                }
                if u64::from(at) * BLOCK as u64 >= object.size {
                    return Err(wrong("data past its end"));
                }
                if let Some(info) = table.get_mut(block) {
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
                table.insert(block, BlockInfo { owners: 1, crc });
            }
        }
        let owned = self.inline.iter().filter(|(block, _)| table.contains(**block));
        let bases: Vec<Base> = owned.filter_map(|(_, content)| content.base()).collect();
        for Base { block: base, crc } in bases {
            let wrong = |what| OpenError::Base { what, block: base };
            if !geometry.holds_data(Run { start: base, len: 1 }) {
                return Err(wrong("outside of the data area"));
            }
            if table.contains(base) {
                continue;
            }
            if space.is_taken(base) {
                return Err(wrong("in a checkpoint's place"));
            }
            space.take(base);
            table.insert(base, BlockInfo { owners: 0, crc });
            dead.insert(base);
        }
        Ok((table, dead, space))
    }
}
