//! Formatting a device, and opening a store: superblock, checkpoint, replay of the log, proof of the counts.

use crate::BLOCK;
use crate::batch::REPEAT_MAX;
use crate::block_table::BlockInfo;
use crate::blocks::Blocks;
use crate::content::{Base, Content};
use crate::disk::{Disk, DiskError};
use crate::format::{Geometry, LOG_START, SUPERBLOCKS, Superblock, SuperblockError, VERSION, VERSION_OLD};
use crate::index::omap::is_reserved;
use crate::index::omap_leaves::Shares;
use crate::index::{Object, Op, Slot, Totals};
use crate::log::{LogReader, Next, Record};
use crate::log_device::{LogDevice, LogDeviceError};
use crate::lookup::Pager;
use crate::runs;
use crate::runs::directory::Owners;
use crate::runs::page::{self, Kind, Loaded};
use crate::salvaged;
use crate::small_list::BlockList;
use crate::space::{Extent, Space};
use crate::store::{Found, LogEnd, Store, Ticket};
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
    /// Tells this log's records from everything else that may be in a log, so a client that writes to the
    /// store must not guess it. The uuid, if all zeros.
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
    #[error("store has format version {found}, this program knows {VERSION_OLD} to {VERSION}")]
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
    /// A batch that was being written when the store died was dropped: it had not been reported as
    /// durable.
    pub torn_tail: bool,
    /// Records of the log that were damaged, and of which everything but contents of blocks is known.
    pub repaired: u64,
    /// Transactions that were acknowledged and that a damaged log has lost: the first and the last. The
    /// store is as it was before them, and its first checkpoint forgets them.
    pub lost: Option<(Ticket, Ticket)>,
    /// How often that happened since the store was made, this time included.
    pub losses: u64,
    /// Blocks whose content was in a damaged record, by position in the object they belong to.
    pub lost_blocks: Vec<(StoredId, u64)>,
    /// One of the two superblocks was bad, or a label of the log's device, and was renewed.
    pub superblock_damaged: bool,
    /// Blocks that were taken and that nothing had; they are free now. Only `Store::open_repaired` looks for
    /// them.
    pub freed: u64,
    pub objects: usize,
}

/// How what the sorted runs have is examined.
enum Reading {
    /// When it is needed, also later.
    Paged(Arc<dyn Disk + Send + Sync>),
    /// All of it at once, which proves it.
    Whole,
    /// The same, but counts that are wrong are made right.
    Mending,
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
            version: VERSION,
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
            runs: Vec::new(),
        };
        for copy in SUPERBLOCKS {
            disk.write_at(copy * BLOCK as u64, &superblock.encode())?;
            disk.flush()?;
        }
        Ok(())
    }

    /// Brings back everything that was acknowledged, and possibly more: what it gives is durable. All that is
    /// known of objects is in memory then, and was verified: for tools and tests.
    pub fn open(disk: &(impl Disk + ?Sized)) -> Result<(Store, Report), OpenError> {
        Store::open_with(disk, Reading::Whole)
    }
    /// The same, but where blocks are taken that nothing has, or objects were counted wrongly, that is
    /// repaired, and the next checkpoint keeps it: removing an object whose metadata is damaged cannot free
    /// its blocks.
    pub fn open_repaired(disk: &(impl Disk + ?Sized)) -> Result<(Store, Report), OpenError> {
        Store::open_with(disk, Reading::Mending)
    }
    /// The same, for a daemon: what is known of objects is read when it is needed, also later.
    pub fn open_paged(disk: Arc<dyn Disk + Send + Sync>) -> Result<(Store, Report), OpenError> {
        Store::open_with(&*disk, Reading::Paged(disk.clone()))
    }

    /// The uuid of the store on a disk. Reads its superblocks alone, and writes nothing.
    pub fn uuid_of(disk: &(impl Disk + ?Sized)) -> Result<[u8; 16], OpenError> {
        let (Superblock { geometry, .. }, _) = read_superblocks(disk)?;
        match (geometry.log_is_apart, disk.log()) {
            (true, None) => Err(OpenError::LogAbsent),
            _ => Ok(geometry.uuid),
        }
    }

    /// What the superblocks of a disk say, if they can be read.
    pub(crate) fn geometry_of(disk: &(impl Disk + ?Sized)) -> Option<Geometry> {
        read_superblocks(disk).ok().map(|(superblock, _)| superblock.geometry)
    }

    fn open_with(disk: &(impl Disk + ?Sized), reading: Reading) -> Result<(Store, Report), OpenError> {
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
        let mut recovery = Recovery::new(disk, &superblock, reading)?;
        let log = recovery.replay(disk, &superblock)?;
        if log.repaired > 0 {
            recovery.look_at_bases(disk, &geometry);
        }
        recovery.condemn_damaged(disk, &geometry);
        recovery.account()?;
        let lost_blocks = recovery.lost_blocks();
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

        let Recovery { mut store, inline, freed, .. } = recovery;
        let report = Report {
            checkpoint: Ticket(superblock.seq),
            last: Ticket(log.last_seq),
            torn_tail: log.torn,
            repaired: log.repaired,
            lost: log.lost.map(|(first, last)| (Ticket(first), Ticket(last))),
            losses: superblock.losses + u64::from(log.lost.is_some()),
            lost_blocks: lost_blocks.clone(),
            superblock_damaged,
            freed,
            objects: store.index.total.objects as usize,
        };
        store.goes_on(LogEnd {
            last_seq: log.last_seq,
            tail: log.tail,
            last_head: log.last_head,
            is_unconfirmed: log.is_unconfirmed,
            is_broken: log.lost.is_some(),
            lost_blocks,
            inline,
        });
        // Before much is logged that an older program does not understand.
        store.checkpoint_wanted |= superblock.version < VERSION;
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

struct Recovery {
    /// As far as the log was replayed. Which blocks are taken is as in the checkpoint until `account`.
    store: Store,
    /// What the log holds of blocks that it does not say to be in their place.
    inline: BTreeMap<u32, Content>,
    /// Blocks whose content the log has lost, unless they came to their place before.
    damaged: BTreeSet<u32>,
    freed: u64,
}

#[derive(Default)]
struct Replayed {
    last_seq: u64,
    tail: u64,
    torn: bool,
    repaired: u64,
    lost: Option<(u64, u64)>,
    last_head: Vec<u8>,
    is_unconfirmed: bool,
}

impl Recovery {
    /// What the checkpoint says.
    fn new(
        disk: &(impl Disk + ?Sized),
        superblock: &Superblock,
        reading: Reading,
    ) -> Result<Recovery, OpenError> {
        let geometry = superblock.geometry;
        let is_old = superblock.version == VERSION_OLD;
        let (mut runs, mut owners, mut totals) = (Vec::new(), Owners::default(), Totals::none());
        for named in superblock.runs.iter().filter(|_| !is_old) {
            let (run, newer) = runs::open(disk, &geometry, *named)?;
            owners = owners.overlaid(&newer);
            totals = run.totals.clone();
            runs.push(run);
        }
        let mut space = Space::all_free(geometry.data_start, geometry.blocks);
        let mut blocks = Blocks::default();
        for (extent, owners) in owners.blocks.iter().copied().filter(|(_, owners)| *owners > 0) {
            space.take_all(extent);
            blocks.allocated += u64::from(extent.len);
            if owners > 1 {
                blocks.shared.set(extent, Some(owners));
            }
        }
        let shared = owners.leaves.iter().copied().filter(|(_, owners)| *owners > 1);
        let shares = Shares::new(shared.collect());
        let (pager, is_whole, mends) = match reading {
            Reading::Paged(disk) => (Some(Pager::new(disk, superblock.geometry.hash_seed())), false, false),
            Reading::Whole => (None, true, false),
            Reading::Mending => (None, true, true),
        };
        let superblock = superblock.clone();
        let old = if is_old { superblock.runs.clone() } else { Vec::new() };
        let mut store =
            Store::new(Found { superblock, runs: Vec::new(), totals, shares, blocks, space, pager });
        store.runs =
            runs.into_iter().map(|run| Arc::new(run.with_serial(store.compaction.serial()))).collect();
        if is_old {
            store.adopt_old(disk, &old)?;
        }
        let mut freed = 0;
        if is_whole {
            let counted = store.bring_all(disk)?;
            if mends {
                freed = store.repaired_counts(counted.clone(), &owners.blocks);
            }
            store.prove_counts(counted)?;
        }
        if is_old || mends || store.index.total.pools.is_none() {
            store.count_pools();
        }
        Ok(Recovery { store, inline: BTreeMap::new(), damaged: BTreeSet::new(), freed })
    }

    /// Applies the log from the checkpoint on, as far as it is readable.
    fn replay(
        &mut self,
        disk: &(impl Disk + ?Sized),
        superblock: &Superblock,
    ) -> Result<Replayed, OpenError> {
        let log = LogReader::new(disk, superblock.geometry, superblock.log_pos);
        let mut end = Replayed { last_seq: superblock.seq, tail: superblock.log_pos, ..Replayed::default() };
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
                    return Ok(Replayed {
                        last_seq,
                        tail: pos,
                        repaired: end.repaired,
                        lost,
                        ..Replayed::default()
                    });
                }
            }
        }
    }

    fn replay_record(&mut self, record: &Record) -> Result<(), DecodeError> {
        let head = &record.head;
        let mut known: BTreeSet<u32> = head.placed().map(|(block, _)| block).collect();
        known.extend(record.contents.iter().map(|(block, _)| block));
        let mut r = Reader::new(head.transactions());
        for _ in 0..head.header.count {
            for _ in 0..u32::decode(&mut r)? {
                let id = StoredId::decode(&mut r)?;
                let op = Op::decode(&mut r)?;
                if is_reserved(&id) || op.source().is_some_and(is_reserved) {
                    return Err(DecodeError::BadValue { what: "id of the store's own", value: 0 });
                }
                self.apply(&id, op, &mut known)?;
            }
        }
        r.finish()?;
        for (block, crc) in head.placed() {
            self.set_crc(block, crc);
            self.inline.remove(&block);
            self.damaged.remove(&block);
        }
        for (block, content) in &record.contents {
            self.inline.remove(block);
            self.damaged.remove(block);
            let mut content = match content {
                Some(content) => content.clone(),
                None => {
                    self.damaged.insert(*block);
                    continue;
                }
            };
            if let Content::Patch { base, ranges } = &content {
                // It was in its place by then, even if this log does not say so.
                if self.damaged.remove(&base.block) {
                    self.set_crc(base.block, base.crc);
                } else if let Some(under) = self.inline.get(&base.block) {
                    content = ranges
                        .iter()
                        .fold(under.clone(), |c, range| c.patched(range.at.into(), &range.bytes, range.over));
                }
            }
            self.inline.insert(*block, content);
        }
        Ok(())
    }

    /// As `Store` did it, except that blocks without owners are freed at once.
    fn apply(&mut self, id: &StoredId, op: Op, known: &mut BTreeSet<u32>) -> Result<(), DecodeError> {
        let store = &mut self.store;
        store.bring(id);
        if let Some(source) = op.source() {
            store.bring(source);
        }
        if let Op::Place(extents) = &op {
            // Each has a checksum or its content in this record, once.
            for block in extents.iter().flat_map(|extent| extent.blocks.blocks()) {
                let is_free = match store.blocks.changed.get(block) {
                    Some(owners) => owners == 0,
                    None => {
                        store.geometry.holds_data(Extent { start: block, len: 1 })
                            && !store.space.is_taken(block)
                    }
                };
                if !known.remove(&block) || !is_free {
                    return Err(DecodeError::BadValue { what: "block placed", value: block.into() });
                }
                store.blocks.fresh(block);
            }
        }
        store.bring_leaves(id, &op, false);
        let mut ownerless = BlockList::new();
        store.apply(id, op, &mut ownerless);
        for block in ownerless {
            store.blocks.free(block);
            self.damaged.remove(&block);
        }
        Ok(())
    }
    /// Of a block that something in memory has; others have it with their owner.
    fn set_crc(&mut self, block: u32, crc: u32) {
        if let Some(info) = self.store.blocks.table.get_mut(block) {
            info.crc = crc;
        }
    }

    /// A damaged record may have said that a patch is in its place, after which what it was put over could
    /// be overwritten. What is there now would be patched instead.
    fn look_at_bases(&mut self, disk: &(impl Disk + ?Sized), geometry: &Geometry) {
        let mut bytes = vec![0; BLOCK];
        let is_gone = |(block, content): (&u32, &Content)| {
            let base =
                content.base().filter(|base| geometry.holds_data(Extent { start: base.block, len: 1 }))?;
            let read = disk.read_at(u64::from(base.block) * BLOCK as u64, &mut bytes);
            (read.is_err() || !salvaged::is_intact(&bytes, base.crc)).then_some(*block)
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
            if geometry.holds_data(Extent { start: *block, len: 1 }) {
                // What cannot be read is damaged whatever its checksum.
                let _ = disk.read_at(u64::from(*block) * BLOCK as u64, &mut bytes);
            }
            if let Some(info) = self.store.blocks.table.get_mut(*block) {
                info.crc = !crc32c(u32::MAX, &bytes);
            }
        }
    }
    /// Objects whose blocks the log has lost.
    fn lost_blocks(&self) -> Vec<(StoredId, u64)> {
        if self.damaged.is_empty() {
            return Vec::new();
        }
        // Their object changed since the checkpoint, so it is in memory.
        let of = |(id, slot): (&StoredId, &Slot)| -> Vec<(StoredId, u64)> {
            let Slot::Object(object) = slot else { return Vec::new() };
            let lost = object.blocks.iter().filter(|(_, block)| self.damaged.contains(block));
            lost.map(|(at, _)| (id.clone(), u64::from(at))).collect()
        };
        let mut lost: Vec<_> = self.store.index.slots().flat_map(of).collect();
        lost.sort_unstable();
        lost
    }

    /// Finds out which blocks are taken in the end.
    fn account(&mut self) -> Result<(), OpenError> {
        let store = &mut self.store;
        for (extent, owners) in store.blocks.changed.iter() {
            for block in extent.blocks() {
                match (store.space.is_taken(block), owners > 0) {
                    (true, false) => store.space.release(block),
                    (false, true) => store.space.take(block),
                    _ => {}
                }
            }
        }
        for (id, slot) in store.index.slots() {
            if let Slot::Object(object) = slot
                && !store.is_sound(object)
            {
                let block = object.blocks.blocks().next().unwrap_or(0);
                return Err(OpenError::Object { id: id.clone(), what: "data that cannot be its own", block });
            }
        }
        let runs = store.runs.iter().flat_map(|run| run.all_extents());
        for extent in runs.chain(store.old_chunks.iter().copied()).collect::<Vec<_>>() {
            for block in extent.blocks() {
                if store.space.is_taken(block) {
                    let generation = store.generation;
                    return Err(OpenError::Checkpoint { generation, what: "chunk over another", block });
                }
                store.space.take(block);
            }
            store.blocks.inner.set(extent, Some(1));
        }
        self.inline.retain(|block, _| store.blocks.table.contains(*block));
        for Base { block: base, crc } in self.inline.values().filter_map(Content::base) {
            let wrong = |what| OpenError::Base { what, block: base };
            if !store.geometry.holds_data(Extent { start: base, len: 1 }) {
                return Err(wrong("outside of the data area"));
            }
            // Something may own it, in memory or not.
            if store.space.is_taken(base) {
                continue;
            }
            store.space.take(base);
            store.blocks.fresh(base);
            store.blocks.table.get_mut(base).expect("it was just put there").crc = crc;
            store.dead.insert(base);
        }
        Ok(())
    }
}

impl Store {
    /// Brings all that the sorted runs have into memory. Gives what there is.
    fn bring_all(&mut self, disk: &(impl Disk + ?Sized)) -> Result<Totals, OpenError> {
        let mut objects: BTreeMap<StoredId, Option<Loaded>> = BTreeMap::new();
        let mut gone = BTreeSet::new();
        for run in self.runs.iter().rev() {
            let generation = run.named.generation;
            let what = "damaged page";
            let wrong = |_| OpenError::Checkpoint { generation, what, block: run.named.last_chunk.start };
            for page in 0..run.fences.len() {
                let bytes = run.read_page(page, disk).map_err(wrong)?;
                for entry in page::entries(&bytes) {
                    let content = |error| OpenError::CheckpointContent { generation, error };
                    let entry = entry.map_err(content)?;
                    if gone.contains(&entry.id) || objects.contains_key(&entry.id) {
                        continue;
                    }
                    match entry.kind {
                        Kind::Removed => drop(gone.insert(entry.id)),
                        Kind::Damaged => drop(objects.insert(entry.id, None)),
                        Kind::Object | Kind::WithLeaves => {
                            let loaded = entry.load().map_err(content)?;
                            objects.insert(entry.id, Some(loaded));
                        }
                    }
                }
            }
        }
        let Totals { leaves_made, pools, .. } = self.index.total.clone();
        let mut totals = Totals { leaves_made, pools, ..Totals::default() };
        for (id, loaded) in objects {
            totals.objects += u64::from(!is_reserved(&id));
            let Some(loaded) = loaded else {
                self.index.bring(&id, Slot::Damaged(0));
                continue;
            };
            let block = loaded.object.blocks.blocks().next().unwrap_or(0);
            if !self.is_sound(&loaded.object) || !self.bring_blocks(&loaded) {
                return Err(OpenError::Object { id, what: "data that cannot be its own", block });
            }
            totals.weight.add(loaded.object.weight());
            self.index.bring(&id, Slot::Object(Arc::new(loaded.object)));
        }
        Ok(totals)
    }

    /// Makes the counts what all objects in memory say. Gives how many blocks are free now.
    fn repaired_counts(&mut self, counted: Totals, taken: &[(Extent, u32)]) -> u64 {
        let mut freed = 0;
        for block in taken.iter().filter(|(_, owners)| *owners > 0).flat_map(|(extent, _)| extent.blocks()) {
            let owners = self.blocks.table.get(block).map_or(0, |info| info.refs);
            if owners != self.blocks.owners(block) || owners == 0 {
                self.blocks.set_owners(Extent { start: block, len: 1 }, owners);
            }
            if owners == 0 {
                self.space.release(block);
                self.blocks.allocated -= 1;
                freed += 1;
            }
        }
        self.index.total = counted;
        freed
    }

    /// Proves that what is in memory is what was counted.
    fn prove_counts(&self, totals: Totals) -> Result<(), OpenError> {
        let is_right = |(block, info): (u32, &BlockInfo)| info.refs == self.blocks.owners(block);
        let all_owned = self.blocks.table.len() as u64 == self.blocks.allocated;
        let has_damaged = totals.objects > 0 && totals != self.index.total;
        // Walking makes copies of all ids, which stay somewhat larger after that.
        let has_leaves = |(id, slot): (&StoredId, &Slot)| {
            let of_object = |object: &Object| !object.omap().leaves.is_empty();
            is_reserved(id) || matches!(slot, Slot::Object(object) if of_object(object))
        };
        let has_leaves = !self.index.shares.shared().is_empty() || self.index.slots().any(has_leaves);
        let leaves_fit = !has_leaves || self.check_leaves().is_empty();
        if !self.blocks.table.iter().all(is_right) || !all_owned || has_damaged || !leaves_fit {
            let generation = self.generation;
            return Err(OpenError::Checkpoint {
                generation,
                what: "a wrong count of what there is",
                block: 0,
            });
        }
        Ok(())
    }
}
