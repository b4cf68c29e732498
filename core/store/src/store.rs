//! The store as its daemon's thread sees it: transactions are submitted, batches are handed to the disk, and
//! completions come back.
//!
//! Read `Store::submit`, `take_batch`, `finished`. `deferred.rs` writes small data to its blocks later,
//! `open.rs` opens a store.

use crate::BLOCK;
use crate::batch::{Batch, Done, Record, blocks_in, record_blocks};
use crate::block_map::{BlockMap, BlockSet};
use crate::blocks::Blocks;
use crate::cache::Cache;
use crate::checkpoint::Checkpoint;
use crate::compaction::CompactionState;
use crate::content::{Base, Content, Over, PatchRange};
use crate::deferred::Deferred;
use crate::discard::Discards;
use crate::disk::{Disk, DiskError};
use crate::format::{Geometry, Superblock};
use crate::index::omap::{is_reserved, leaf_id};
use crate::index::omap_leaves::Shares;
use crate::index::{Index, MappedExtent, Moves, Op, Slot, Totals, join_mapped};
use crate::lookup::Pager;
use crate::runs::SortedRun;
use crate::small_list::{BlockList, SmallList};
use crate::space::{Extent, Space};
use bytes::{Bytes, BytesMut};
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_wire::Encode;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

/// The number of a transaction: they become durable in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Why a transaction was refused, whole: nothing of it was applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    #[error("no space: {needed} blocks needed, {available} available")]
    NoSpace { needed: u64, available: u64 },
    #[error("{id}: data up to {end}, limit {limit}")]
    TooBig { id: StoredId, end: u64, limit: u64 },
    #[error("{id}: such names are the store's own")]
    Reserved { id: StoredId },
}

/// The largest object, holes included.
pub(crate) const SIZE_MAX: u64 = (u32::MAX as u64) * BLOCK as u64;
/// A batch takes no more data than this, unless one transaction has more.
const BATCH_DATA_MAX: usize = 8 << 20;
/// A write of this many bytes goes to its place at once. A smaller one is in the log first: one flush,
/// shared with all that commits then.
const DIRECT_MIN: usize = 64 << 10;
/// What a checkpoint adds to a batch at most, so that commits behind it do not wait long.
pub(crate) const SLICE_MAX: u64 = 1 << 20;
/// This many times more when transactions wait for the checkpoint anyway.
pub(crate) const HURRY: u64 = 8;
/// A record says of at most this many blocks that they are in their place, so that it stays short.
const NOTES_MAX: usize = 256;

/// Room for a transaction of a small write, and how many such stay at hand.
const BODY_KEPT: usize = 1024;
const BODIES_KEPT: usize = 256;

/// Blocks that are copied to one piece of memory.
const COPIES: usize = 16;

/// A block's content that is not on the device.
#[derive(Debug)]
pub(crate) struct Pending {
    /// Of the transaction that made it.
    pub seq: u64,
    pub content: Content,
    /// It may be read soon after it is in its place.
    pub is_read_here: bool,
}

#[derive(Debug)]
pub(crate) struct Queued {
    pub seq: u64,
    body: Vec<u8>,
    /// What is written before the record: first block, and the bytes of one block or several.
    direct: Vec<(u32, Bytes)>,
    /// Blocks whose content is in the record.
    inline: BlockList,
    inline_len: usize,
}

impl Queued {
    /// What it takes in the log, alone.
    pub fn log_blocks(&self) -> u64 {
        record_blocks(self.body.len(), blocks_in(&self.direct), self.inline_len, 0)
    }
    fn bytes(&self) -> usize {
        self.body.len() + self.inline_len + blocks_in(&self.direct) * BLOCK
    }
}

#[derive(Debug)]
struct Outstanding {
    id: u64,
    /// The last transaction in it or before it.
    last_seq: u64,
    logged: bool,
    is_superblock: bool,
    ends_checkpoint: bool,
    commits_compaction: bool,
    /// Blocks that are in the log, or covered, and wait to be placed when this is finished.
    inline: Vec<(u64, u32)>,
    /// Its record, if it has one, holds transactions.
    is_news: bool,
    /// Blocks of which the record says that they are in their place.
    noted: Vec<u32>,
}

/// Blocks that nothing durable refers to, held back for plans made before they became so.
#[derive(Debug, Default)]
pub(crate) struct Generation {
    plans: Arc<()>,
    pub freed: Vec<u32>,
}

#[derive(Debug)]
pub struct Store {
    pub(crate) geometry: Geometry,
    pub(crate) index: Index,
    pub(crate) blocks: Blocks,
    /// Blocks that are durably without owners: each is free once no hold is left.
    pub(crate) dead: BlockSet,
    pub(crate) space: Space,
    /// What is not in its place on the device yet.
    pub(crate) pending: BlockMap<Pending>,
    /// Room for the next contents of it.
    copies: BytesMut,
    pub(crate) deferred: Deferred,
    pub(crate) discards: Discards,
    /// Behind a cell since looking into it changes what stays there.
    pub(crate) cache: RefCell<Cache>,
    /// Bytes that index, cache and what is pending should take together.
    pub(crate) memory_limit: usize,
    pub(crate) queue: VecDeque<Queued>,
    queued_bytes: usize,
    /// Empty ones of transactions that are in a batch, for the next ones.
    bodies: Vec<Vec<u8>>,
    pub(crate) submitted: u64,
    /// On the device, though perhaps durable only with the checkpoint that is under way.
    pub(crate) written: u64,
    pub(crate) durable: u64,
    pub(crate) log_head: u64,
    pub(crate) log_tail: u64,
    /// The head of the last record of the log, for the next one to repeat. Empty if it is too long.
    last_head: Vec<u8>,
    /// The last record has transactions, and none behind it shows that it was whole once.
    pub(crate) is_unconfirmed: bool,
    confirm_wanted: bool,
    /// A batch was finished since `tidy`.
    is_untidy: bool,
    outstanding: Option<Outstanding>,
    next_batch: u64,
    pub(crate) generation: u64,
    pub(crate) losses: u64,
    pub(crate) lost_blocks: Vec<(StoredId, u64)>,
    pub(crate) checkpoint: Option<Checkpoint>,
    pub(crate) checkpoint_wanted: bool,
    /// The durable checkpoint, and the last transaction in it. The newest sorted run is the last one.
    pub(crate) runs: Vec<Arc<SortedRun>>,
    pub(crate) checkpointed: u64,
    /// Of an older format: free when the next checkpoint is durable.
    pub(crate) old_chunks: Vec<Extent>,
    pub(crate) compaction: CompactionState,
    /// Without one everything is in memory.
    pub(crate) pager: Option<Pager>,
    /// What is in the durable checkpoint has no higher mark than this.
    pub(crate) stored_mark: u64,
    /// What may be able to leave memory, if it has no higher mark than this.
    pub(crate) leaving: VecDeque<(Arc<StoredId>, u64)>,
    /// Blocks without owners, by the transaction that has to be durable before they can be reused.
    pub(crate) dying: VecDeque<(u64, BlockList)>,
    /// Oldest first; the last one is open for new plans.
    pub(crate) generations: VecDeque<Generation>,
}

/// What the checkpoint says, for `Store::new`.
pub(crate) struct Found {
    pub superblock: Superblock,
    pub runs: Vec<Arc<SortedRun>>,
    pub totals: Totals,
    pub shares: Shares,
    pub blocks: Blocks,
    /// As far as data are in it.
    pub space: Space,
    pub pager: Option<Pager>,
}

/// What the log says beyond that; see `Store::goes_on`.
#[derive(Debug, Default)]
pub(crate) struct LogEnd {
    pub last_seq: u64,
    pub tail: u64,
    pub last_head: Vec<u8>,
    pub is_unconfirmed: bool,
    /// The log holds what must not be read again: a checkpoint has to replace it before it continues.
    pub is_broken: bool,
    /// Blocks of objects whose content the log has lost.
    pub lost_blocks: Vec<(StoredId, u64)>,
    /// Contents that the log has and the device has not.
    pub inline: BTreeMap<u32, Content>,
}

/// A transaction while it is being planned.
#[derive(Default)]
struct Planning {
    /// One of the objects that it is about, or several.
    has_damaged: bool,
    is_read_here: bool,
    steps: u32,
    /// Where in the body the object stands that is being changed; nowhere yet if that is empty.
    id: Range<usize>,
    body: Vec<u8>,
    direct: Vec<(u32, Bytes)>,
    inline: BlockList,
    inline_len: usize,
    ownerless: BlockList,
}

impl Store {
    /// As the checkpoint has it, for the log to be replayed over it.
    pub(crate) fn new(found: Found) -> Store {
        let superblock = found.superblock;
        Store {
            geometry: superblock.geometry,
            index: Index::new(found.totals, found.shares, superblock.geometry.hash_seed()),
            blocks: found.blocks,
            dead: BlockSet::default(),
            space: found.space,
            pending: BlockMap::default(),
            copies: BytesMut::new(),
            deferred: Deferred::default(),
            discards: Discards::default(),
            cache: RefCell::default(),
            memory_limit: 0,
            queue: VecDeque::new(),
            queued_bytes: 0,
            bodies: Vec::new(),
            submitted: superblock.seq,
            written: superblock.seq,
            durable: superblock.seq,
            log_head: superblock.log_pos,
            log_tail: superblock.log_pos,
            last_head: Vec::new(),
            is_unconfirmed: false,
            confirm_wanted: false,
            is_untidy: false,
            outstanding: None,
            next_batch: 1,
            generation: superblock.generation,
            losses: superblock.losses,
            lost_blocks: Vec::new(),
            checkpoint: None,
            checkpoint_wanted: false,
            runs: found.runs,
            checkpointed: superblock.seq,
            old_chunks: Vec::new(),
            compaction: CompactionState::default(),
            pager: found.pager,
            stored_mark: 0,
            leaving: VecDeque::new(),
            dying: VecDeque::new(),
            generations: VecDeque::from([Generation::default()]),
        }
    }

    /// What the log says was applied: here it continues.
    pub(crate) fn goes_on(&mut self, log: LogEnd) {
        self.submitted = log.last_seq;
        self.written = log.last_seq;
        self.durable = log.last_seq;
        self.log_tail = log.tail;
        self.last_head = log.last_head;
        self.is_unconfirmed = log.is_unconfirmed;
        self.lost_blocks = log.lost_blocks;
        for (block, content) in log.inline {
            self.add_pending(block, Pending { seq: log.last_seq, content, is_read_here: false });
            self.deferred.order.push_back((log.last_seq, block));
        }
        if log.is_broken {
            self.losses += 1;
            let mut checkpoint = self.new_checkpoint();
            checkpoint.log_pos = Some(self.log_tail);
            checkpoint.covers = true;
            self.checkpoint = Some(checkpoint);
        }
    }

    pub fn uuid(&self) -> [u8; 16] {
        self.geometry.uuid
    }
    /// Everything up to this transaction survives a crash.
    pub fn durable(&self) -> Ticket {
        Ticket(self.durable)
    }
    /// The transaction that was submitted last.
    pub fn submitted(&self) -> Ticket {
        Ticket(self.submitted)
    }
    /// Bytes that wait for a batch: the driver slows down when this grows.
    pub fn backlog(&self) -> usize {
        self.queued_bytes
    }
    /// Checkpoints that were ever completed on this device.
    pub fn checkpoints_written(&self) -> u64 {
        self.generation - 1
    }
    /// How many sorted runs the durable checkpoint has: everything, and then changes.
    pub fn sorted_runs(&self) -> usize {
        self.runs.len()
    }
    /// Makes the coming batches write a checkpoint, after which opening replays nothing.
    pub fn request_checkpoint(&mut self) {
        self.checkpoint_wanted = true;
    }

    /// Makes the next batch show that the last record of the log is whole, if nothing else does: later
    /// corruption of it is not taken for a write torn by a crash. For an idle daemon.
    pub fn confirm(&mut self) {
        self.confirm_wanted = self.is_unconfirmed;
    }

    /// Applies a transaction to what the view shows, and queues it for the disk. Refused ones leave
    /// no trace.
    pub fn submit(&mut self, txn: Transaction) -> Result<Ticket, SubmitError> {
        let (mut before, mut has_damaged) = (None, false);
        for (id, change) in &txn.changes {
            let from = change.source();
            if let Some(id) = std::iter::once(id).chain(from).find(|id| is_reserved(id)) {
                return Err(SubmitError::Reserved { id: id.clone() });
            }
            // Mostly one object changes in several ways.
            if before.replace(id) != Some(id) {
                has_damaged |= self.bring(id);
            }
            if let Some(from) = from {
                has_damaged |= self.bring(from);
            }
        }
        let needs = self.needs(&txn)?;
        self.reclaim();
        let reserve = self.reserve(needs.encoded) + if needs.grows { self.slack() } else { 0 };
        let available = u64::from(self.space.free()).saturating_sub(reserve);
        if (needs.blocks > 0 || needs.encoded > 0) && needs.blocks + reserve > u64::from(self.space.free()) {
            return Err(SubmitError::NoSpace { needed: needs.blocks, available });
        }

        let mut planning = Planning { has_damaged, is_read_here: txn.is_read_here, ..Planning::default() };
        planning.body = self.bodies.pop().unwrap_or_else(|| Vec::with_capacity(BODY_KEPT));
        planning.body.extend([0; 4]);
        let mut before: Option<StoredId> = None;
        let mut changes = txn.changes.into_iter().peekable();
        while let Some((id, change)) = changes.next() {
            if before.as_ref() != Some(&id) {
                planning.id = 0..0;
            }
            // What comes next makes it exist as well, mostly.
            let is_needless = |(next, change): &(StoredId, Change)| change.makes_exist() && *next == id;
            if change != Change::Touch || !changes.peek().is_some_and(is_needless) {
                self.plan(&mut planning, &id, change);
            }
            before = Some(id);
        }
        Ok(self.queue_planned(planning))
    }

    /// Marks that object's content as unknown: the source of the change could not be read.
    pub(crate) fn lose(&mut self, id: &StoredId) -> Ticket {
        self.bring(id);
        let mut planning = Planning { body: vec![0; 4], ..Planning::default() };
        self.step(&mut planning, id, Op::Lose);
        self.queue_planned(planning)
    }

    fn queue_planned(&mut self, mut planning: Planning) -> Ticket {
        planning.body[..4].copy_from_slice(&planning.steps.to_le_bytes());
        self.submitted += 1;
        let seq = self.submitted;
        let Planning { body, direct, inline, inline_len, ownerless, .. } = planning;
        let queued = Queued { seq, body, direct, inline, inline_len };
        self.queued_bytes += queued.bytes();
        self.queue.push_back(queued);
        if !ownerless.is_empty() {
            self.dying.push_back((seq, ownerless));
        }
        Ticket(seq)
    }

    /// What the disk should do next; None while a batch is under way, or if there is nothing to do.
    pub fn take_batch(&mut self) -> Option<Batch> {
        if self.outstanding.is_some() {
            return None;
        }
        if std::mem::take(&mut self.is_untidy) {
            self.tidy();
        }
        self.begin_checkpoint();
        let (mut taken, logged) = self.take_queued();
        let last_seq = taken.last().map_or(self.written, |queued| queued.seq);
        let fresh: Vec<(u32, Bytes)> =
            taken.iter_mut().flat_map(|queued| std::mem::take(&mut queued.direct)).collect();
        let fresh_blocks = blocks_in(&fresh);
        let inline = taken.iter().flat_map(|queued| queued.inline.iter().map(|block| (queued.seq, *block)));
        let inline: Vec<(u64, u32)> = inline.collect();
        let mut noted = Vec::new();
        let confirms = std::mem::take(&mut self.confirm_wanted) && self.is_unconfirmed;
        let is_news = logged && !taken.is_empty();
        let record =
            (is_news || (logged && confirms && self.queue.is_empty() && self.log_space() > 0)).then(|| {
                let list = |(_, block): &(u64, u32)| (*block, self.pending[block].content.clone());
                let listed = inline.iter().map(list).collect();
                let listed_len = taken.iter().map(|queued| queued.inline_len).sum();
                let mut body = Vec::with_capacity(taken.iter().map(|queued| queued.body.len()).sum());
                taken.iter().for_each(|queued| body.extend_from_slice(&queued.body));
                let mut record = Record {
                    pos: self.log_tail,
                    first_seq: self.written + 1,
                    count: taken.len() as u64,
                    body,
                    placed: Vec::new(),
                    listed,
                    listed_len,
                    repeat: std::mem::take(&mut self.last_head),
                };
                // Both fill the last block, and may add data where there is space.
                let room = self.log_space();
                if record.blocks(fresh_blocks) > room {
                    record.repeat.clear();
                }
                let most = self.deferred.notes.len().min(NOTES_MAX);
                let most = if record.blocks(fresh_blocks + most) <= room { most } else { 0 };
                let notes = std::iter::from_fn(|| self.deferred.notes.pop_first()).take(most);
                record.placed = notes.map(|(block, note)| (block, note.crc)).collect();
                noted.extend(record.placed.iter().map(|(block, _)| *block));
                self.log_tail += record.blocks(fresh_blocks);
                record
            });
        let (chunks, superblock) = self.advance_checkpoint(last_seq);
        let ends_checkpoint = superblock.is_some();
        let superblock = superblock.or_else(|| self.superblock_of_compaction());
        if taken.is_empty() && record.is_none() && chunks.is_empty() && superblock.is_none() {
            return None;
        }

        taken.into_iter().for_each(|queued| self.keep_body(queued.body));
        let id = self.next_batch;
        self.next_batch += 1;
        let commits_compaction = superblock.is_some() && self.compaction.is_written();
        let is_superblock = superblock.is_some();
        self.outstanding = Some(Outstanding {
            id,
            last_seq,
            logged,
            is_superblock,
            ends_checkpoint,
            commits_compaction,
            inline,
            is_news,
            noted,
        });
        Some(Batch { id, geometry: self.geometry, fresh, chunks, record, superblock })
    }

    /// Keeps the buffer for the next transaction.
    fn keep_body(&mut self, mut body: Vec<u8>) {
        if self.bodies.len() < BODIES_KEPT && body.capacity() <= BODY_KEPT {
            body.clear();
            self.bodies.push(body);
        }
    }

    /// Takes note of a batch that was committed; gives the last transaction that is durable now.
    pub fn finished(&mut self, done: Done) -> Ticket {
        let outstanding = self.outstanding.take().expect("one batch is under way");
        assert_eq!(outstanding.id, done.id, "a batch finished that is not under way");
        for (block, crc) in done.crcs {
            self.pending.remove(&block).expect("a fresh block is pending");
            self.blocks.table.get_mut(block).expect("a fresh block is in the table").crc = crc;
        }
        if let Some(head) = done.head {
            self.last_head = head;
            self.is_unconfirmed = outstanding.is_news;
        }
        self.deferred.order.extend(outstanding.inline);
        outstanding.noted.into_iter().for_each(|block| self.release_base_of(block));
        self.written = outstanding.last_seq;
        if outstanding.logged {
            self.durable = outstanding.last_seq;
        }
        self.generation += u64::from(outstanding.is_superblock);
        if outstanding.commits_compaction {
            self.compaction_committed();
        }
        if outstanding.ends_checkpoint {
            self.checkpoint_ended();
        }
        self.is_untidy = true;
        self.durable()
    }

    /// Work after a durable batch for which no client waits: the daemon learns of the batch first.
    fn tidy(&mut self) {
        self.reclaim();
        self.put_away();
        self.share_memory();
    }

    pub(crate) fn pin(&self) -> Arc<()> {
        self.generations.back().expect("one is open").plans.clone()
    }

    pub(crate) fn hold(&mut self, block: u32) {
        *self.deferred.holds.entry(block).or_default() += 1;
    }
    /// The end of one hold.
    pub(crate) fn unhold(&mut self, block: u32) {
        let holds = self.deferred.holds.get_mut(&block).expect("the block is held");
        *holds -= 1;
        if *holds > 0 {
            return;
        }
        self.deferred.holds.remove(&block);
        if self.dead.contains(&block) {
            self.generations.back_mut().expect("one is open").freed.push(block);
        }
    }

    /// Frees the blocks that durably have no owners, and to which no plan can refer any more.
    pub(crate) fn reclaim(&mut self) {
        while self.dying.front().is_some_and(|(seq, _)| *seq <= self.durable) {
            let (_, blocks) = self.dying.pop_front().expect("it has a front");
            for block in blocks {
                self.dead.insert(block);
                if !self.deferred.holds.contains_key(&block) {
                    self.generations.back_mut().expect("one is open").freed.push(block);
                }
            }
        }
        loop {
            if self.generations.back().is_some_and(|open| !open.freed.is_empty()) {
                self.generations.push_back(Generation::default());
            }
            if self.generations.len() == 1 || Arc::strong_count(&self.generations[0].plans) > 1 {
                return;
            }
            for block in self.generations.pop_front().expect("there are two").freed {
                self.blocks.free(block);
                self.dead.remove(&block);
                self.pending.remove(&block);
                self.deferred.notes.remove(&block);
                // What this was a patch of may be free now as well: hence the loop.
                self.release_base_of(block);
                self.cache.get_mut().forget(block);
                self.free_block(block);
            }
        }
    }

    // ---- space ----

    pub(crate) fn log_blocks(&self) -> u64 {
        self.geometry.log_blocks.into()
    }
    pub(crate) fn log_space(&self) -> u64 {
        self.log_blocks() - (self.log_tail - self.log_head)
    }
    // ---- planning ----

    fn plan(&mut self, planning: &mut Planning, id: &StoredId, change: Change) {
        let is_lost = |id: &StoredId| matches!(self.index.slot(id), Some(Slot::Damaged(_)));
        let may_lose = || match &change {
            Change::Remove => false,
            Change::CloneFrom(from) => is_lost(from),
            Change::CloneBlocks { from, .. } => is_lost(from) || is_lost(id),
            _ => is_lost(id),
        };
        if planning.has_damaged && may_lose() {
            // Perhaps it can be read again when the log is replayed. What was planned without having seen it
            // must not be done to it then.
            return self.step(planning, id, Op::Lose);
        }
        match change {
            Change::Touch => self.step(planning, id, Op::Touch),
            Change::Write { offset, data } => self.plan_write(planning, id, offset, &data, Over::Replace),
            Change::Xor { offset, data } => self.plan_write(planning, id, offset, &data, Over::Xor),
            Change::Zero { offset, len } => {
                self.plan_zero(planning, id, offset, offset + len);
                if len > 0 && offset + len > self.size_of(id) {
                    self.step(planning, id, Op::Size(offset + len));
                }
            }
            Change::Truncate { size } => {
                if size < self.size_of(id) {
                    // Also the tail of the last block: it must read as zeros if the object grows.
                    self.plan_zero(planning, id, size, self.size_of(id).next_multiple_of(BLOCK as u64));
                }
                self.step(planning, id, Op::Size(size));
            }
            Change::Remove => self.step(planning, id, Op::Remove),
            // They are copied to where the others are.
            Change::SetAttrs(attrs) => self.step(planning, id, Op::SetAttrs(attrs)),
            Change::RemoveAttr(name) => self.step(planning, id, Op::RemoveAttr(name)),
            Change::OmapSet(pairs) => self.step(planning, id, Op::OmapSet(pairs)),
            Change::OmapRemove(keys) => self.step(planning, id, Op::OmapRemove(keys)),
            Change::OmapRemoveRange { begin, end } => {
                self.step(planning, id, Op::OmapRemoveRange { begin, end });
            }
            Change::OmapClear => self.step(planning, id, Op::OmapClear),
            Change::OmapSetHeader(header) => {
                // What stays in memory must not hold on to the frame that it came in.
                self.step(planning, id, Op::OmapSetHeader(Bytes::copy_from_slice(&header)));
            }
            Change::CloneFrom(from) => self.step(planning, id, Op::CloneFrom(from)),
            Change::CloneBlocks { from: of, blocks: Range { start: from, end: to } } => {
                self.step(planning, id, Op::CloneBlocks { of, from, to });
                let end = u64::from(to) * BLOCK as u64;
                if from < to && end > self.size_of(id) {
                    self.step(planning, id, Op::Size(end));
                }
            }
        }
    }

    fn size_of(&self, id: &StoredId) -> u64 {
        self.index.get(id).map_or(0, |object| object.size)
    }

    fn step(&mut self, planning: &mut Planning, id: &StoredId, op: Op) {
        planning.steps += 1;
        let at = planning.body.len();
        if planning.id.is_empty() {
            id.encode(&mut planning.body);
            planning.id = at..planning.body.len();
        } else {
            planning.body.extend_from_within(planning.id.clone());
        }
        op.encode(&mut planning.body);
        let parts = self.bring_leaves(id, &op, self.checkpoint.is_some());
        if let Some(checkpoint) = &mut self.checkpoint {
            checkpoint.preserve(id, &self.index, &self.blocks);
            for part in parts {
                checkpoint.preserve(&leaf_id(part), &self.index, &self.blocks);
            }
        }
        self.apply(id, op, &mut planning.ownerless);
    }

    /// Changes what is known of objects in memory. Adds the blocks that nothing owns any more.
    pub(crate) fn apply(&mut self, id: &StoredId, op: Op, ownerless: &mut BlockList) {
        let mut moves = Moves::default();
        self.index.apply(id, op, &mut moves);
        let (placed, before) = (moves.placed.len(), ownerless.len());
        self.blocks.apply(moves, ownerless);
        self.index.count_blocks(id, placed, ownerless.len() - before);
    }

    fn plan_write(&mut self, planning: &mut Planning, id: &StoredId, offset: u64, data: &Bytes, over: Over) {
        if data.is_empty() {
            return self.step(planning, id, Op::Touch);
        }
        let block_len = BLOCK as u64;
        let end = offset + data.len() as u64;
        let part = |from: u64, to: u64| data.slice((from - offset) as usize..(to - offset) as usize);
        let is_large = data.len() >= DIRECT_MIN
            || planning.inline_len + data.len() > self.geometry.log_blocks as usize * BLOCK / 8;
        // What is large and fills its blocks goes to the device as it is.
        let (whole, end_whole) = (offset.div_ceil(block_len), end / block_len);
        let replaces = over == Over::Replace;
        let whole = if is_large && replaces && whole < end_whole { whole..end_whole } else { 0..0 };
        let object = self.index.get(id).cloned();
        let size = object.as_ref().map_or(0, |object| object.size);
        let mut contents = SmallList::new();
        let others = |at: &u64| !whole.contains(at);
        for at in (offset / block_len..end.div_ceil(block_len)).filter(others) {
            let start = at * block_len;
            let (from, to) = (offset.max(start), end.min(start + block_len));
            let old = object.as_ref().and_then(|object| object.blocks.get(at as u32));
            contents.push((at as u32, self.content(old, (from - start) as usize, part(from, to), over)));
        }
        drop(object); // or the index would have to copy it
        if !contents.is_empty() {
            self.place(planning, id, contents, is_large);
        }
        if !whole.is_empty() {
            let bytes = part(whole.start * block_len, whole.end * block_len);
            self.place_whole(planning, id, whole.start as u32, bytes);
        }
        if end > size {
            self.step(planning, id, Op::Size(end));
        }
    }

    /// Zeros in `from..to`: whole blocks become holes, others are written.
    fn plan_zero(&mut self, planning: &mut Planning, id: &StoredId, from: u64, to: u64) {
        let block_len = BLOCK as u64;
        let (first_whole, end_whole) = (from.div_ceil(block_len), to / block_len);
        // Creates the object if need be.
        self.step(planning, id, Op::Punch { from: first_whole as u32, to: end_whole as u32 });
        let mut edges = Vec::new();
        if from / block_len != first_whole {
            edges.push((from, to.min(first_whole * block_len)));
        }
        if to / block_len != to.div_ceil(block_len) && end_whole >= first_whole {
            edges.push((from.max(end_whole * block_len), to));
        }
        let contents = edges.into_iter().filter(|(from, to)| from < to).filter_map(|(from, to)| {
            let at = (from / block_len) as u32;
            let old = self.index.get(id)?.blocks.get(at)?;
            let zeros = Bytes::from(vec![0; (to - from) as usize]);
            Some((at, self.content(Some(old), (from % block_len) as usize, zeros, Over::Replace)))
        });
        let contents: SmallList<_> = contents.collect();
        if !contents.is_empty() {
            self.place(planning, id, contents, false);
        }
    }

    /// What a block holds after `bytes` were written or XORed into it from `from` on.
    fn content(&self, old: Option<u32>, from: usize, bytes: Bytes, over: Over) -> Content {
        if bytes.len() == BLOCK && over == Over::Replace {
            return Content::Whole(bytes);
        }
        match old {
            None => {
                let mut whole = vec![0; BLOCK];
                whole[from..from + bytes.len()].copy_from_slice(&bytes);
                Content::Whole(whole.into())
            }
            Some(base) => match self.pending.get(&base) {
                Some(pending) => pending.content.patched(from, &bytes, over),
                // What stays in memory must not hold on to the frame that it came in.
                None => {
                    let range = PatchRange { at: from as u16, bytes: Bytes::copy_from_slice(&bytes), over };
                    let base = Base { block: base, crc: self.blocks.table[base].crc };
                    Content::Patch { base, ranges: vec![range] }
                }
            },
        }
    }

    /// Gives each content a fresh block. What `is_large` is written there before it is acknowledged.
    fn place(
        &mut self,
        planning: &mut Planning,
        id: &StoredId,
        contents: SmallList<(u32, Content)>,
        is_large: bool,
    ) {
        let seq = self.submitted + 1;
        let mut placements = SmallList::new();
        let mut left = contents.len() as u32;
        let mut contents = contents.into_iter();
        while left > 0 {
            let extent = self.space.take_extent(left).expect("there was enough space");
            left -= extent.len;
            for block in extent.blocks() {
                let (at, content) = contents.next().expect("as many contents as blocks");
                join_mapped(&mut placements, at, block);
                self.blocks.fresh(block);
                let content = match content {
                    Content::Whole(bytes) if is_large => {
                        planning.direct.push((block, bytes.clone()));
                        Content::Whole(bytes)
                    }
                    content => {
                        planning.inline.push(block);
                        planning.inline_len += content.logged_len();
                        match content {
                            // It outlives the frame that it came in.
                            Content::Whole(bytes) => Content::Whole(self.copy(&bytes)),
                            patch => patch,
                        }
                    }
                };
                self.add_pending(block, Pending { seq, content, is_read_here: planning.is_read_here });
            }
        }
        self.step(planning, id, Op::Place(placements));
    }

    /// The bytes of a block, as a part of memory that neighbours in the log share: they are written and let
    /// go of in that order.
    fn copy(&mut self, block: &[u8]) -> Bytes {
        if self.copies.capacity() < BLOCK {
            self.copies = BytesMut::with_capacity(COPIES * BLOCK);
        }
        self.copies.extend_from_slice(block);
        self.copies.split().freeze()
    }

    /// Gives fresh blocks to all of `bytes`, which are whole blocks from the object's block `at` on.
    fn place_whole(&mut self, planning: &mut Planning, id: &StoredId, mut at: u32, mut bytes: Bytes) {
        let seq = self.submitted + 1;
        let mut placements = SmallList::new();
        while !bytes.is_empty() {
            let left = (bytes.len() / BLOCK) as u32;
            let blocks = self.space.take_extent(left).expect("there was enough space");
            let these = bytes.split_to(blocks.len as usize * BLOCK);
            for (block, from) in blocks.blocks().zip((0..).step_by(BLOCK)) {
                self.blocks.fresh(block);
                let content = Content::Whole(these.slice(from..from + BLOCK));
                self.add_pending(block, Pending { seq, content, is_read_here: planning.is_read_here });
            }
            planning.direct.push((blocks.start, these));
            placements.push(MappedExtent { at, blocks });
            at += blocks.len;
        }
        self.step(planning, id, Op::Place(placements));
    }

    fn add_pending(&mut self, block: u32, pending: Pending) {
        if let Some(base) = pending.content.base() {
            self.hold(base.block);
            self.deferred.base_of.insert(block, base.block);
        }
        self.pending.insert(block, pending);
    }

    // ---- batches ----

    /// The transactions of the next batch, and whether they go to the log.
    fn take_queued(&mut self) -> (Vec<Queued>, bool) {
        let room = self.log_space();
        let mut limit = u64::MAX;
        let mut logged = true;
        if let Some(checkpoint) = &mut self.checkpoint {
            let front = self.queue.front();
            let up_to_it = front.filter(|front| front.seq <= checkpoint.seq);
            // No batch reaches past the checkpoint's transaction: the log must continue right there.
            if let Some(front) = up_to_it {
                limit = checkpoint.seq;
                checkpoint.covers |= front.log_blocks() > room;
            } else if checkpoint.covers {
                return (Vec::new(), false);
            }
            logged = !checkpoint.covers;
        }
        let mut taken: Vec<Queued> = Vec::new();
        if self.is_far_behind() {
            return (taken, logged);
        }
        let (mut body, mut direct, mut inline) = (0, 0, 0);
        while let Some(next) = self.queue.front().filter(|next| next.seq <= limit) {
            body += next.body.len();
            direct += blocks_in(&next.direct);
            inline += next.inline_len;
            let blocks = record_blocks(body, direct, inline, 0);
            let full = blocks > self.log_blocks() / 4 || direct * BLOCK + inline > BATCH_DATA_MAX;
            if (logged && blocks > room) || (full && !taken.is_empty()) {
                break;
            }
            self.queued_bytes -= next.bytes();
            taken.extend(self.queue.pop_front());
        }
        (taken, logged)
    }

    /// Brings everything into one checkpoint, after which the log is empty. Gives the superblock that is
    /// on the device then.
    pub(crate) fn checkpoint_all(&mut self, disk: &(impl Disk + ?Sized)) -> Result<Superblock, DiskError> {
        loop {
            self.request_checkpoint();
            self.settle(disk)?;
            // One that was under way already does not hold what came after its beginning.
            if self.log_head == self.log_tail {
                break;
            }
        }
        Ok(Superblock {
            geometry: self.geometry,
            generation: self.generation,
            seq: self.durable,
            log_pos: self.log_tail,
            losses: self.losses,
            version: crate::format::VERSION,
            runs: self.runs.iter().map(|run| run.named).collect(),
        })
    }
}
