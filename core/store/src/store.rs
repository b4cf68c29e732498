//! The store as its daemon's thread sees it: submit, hand over to the disk, hear what is durable.
//!
//! Read `Store::submit`, `take_batch`, `finished`; `deferred.rs` is how small writes get to their place,
//! `open.rs` how the store comes back to life.

use crate::BLOCK;
use crate::batch::{Batch, Done, Record, blocks_in, record_blocks};
use crate::cache::Cache;
use crate::checkpoint::{Checkpoint, blocks_for};
use crate::content::{Base, Content, PatchRun};
use crate::deferred::Deferred;
use crate::discard::Discards;
use crate::disk::{Disk, DiskError};
use crate::format::{Geometry, LAYERS_MAX, Layer, Superblock};
use crate::index::{BLOCK_COST, Index, Moves, OBJECT_COST, Op, PAIR_COST, Placement, placements};
use crate::space::{Run, Space};
use crate::table::{BlockInfo, Table};
use bytes::Bytes;
use nacre_base::Name;
use nacre_machine::{Lost, ReadError, Statfs, StoreStat, StoreView};
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_proto::types::ObjectId;
use nacre_wire::{Encode, to_vec};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
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
}

/// The largest object, holes included.
const SIZE_MAX: u64 = (u32::MAX as u64) * BLOCK as u64;
/// A batch takes no more data than this, unless one transaction has more.
const BATCH_DATA_MAX: usize = 8 << 20;
/// A write of this many bytes goes to its place at once. A smaller one is in the log first: one flush,
/// shared with all that commits then.
const DIRECT_MIN: usize = 64 << 10;
/// What a checkpoint adds to a batch at most, so that commits behind it do not wait long.
const SLICE_MAX: u64 = 1 << 20;
/// So many times more when transactions wait for the checkpoint anyway.
const HURRY: u64 = 8;
/// A record says of at most so many blocks that they are in their place, so that it stays short.
const NOTES_MAX: usize = 256;

/// A block's content that is not on the device.
#[derive(Debug)]
pub(crate) struct Pending {
    /// Of the transaction that made it.
    pub seq: u64,
    pub content: Content,
}

#[derive(Debug)]
struct Queued {
    seq: u64,
    body: Vec<u8>,
    /// What is written before the record: first block, and the bytes of one block or several.
    direct: Vec<(u32, Bytes)>,
    /// Blocks whose content is in the record.
    inline: Vec<u32>,
    inline_len: usize,
}

impl Queued {
    /// What it takes in the log, alone.
    fn log_blocks(&self) -> u64 {
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
    ends_checkpoint: bool,
    /// Blocks that are in the log, or covered, and wait to be placed when this is finished.
    inline: Vec<(u64, u32)>,
    /// Its record, if it has one, holds transactions.
    is_news: bool,
    /// Blocks of which the record says that they are in their place.
    noted: Vec<u32>,
}

/// Blocks that nothing durable refers to, held back for plans made before they became so.
#[derive(Debug, Default)]
struct Generation {
    plans: Arc<()>,
    freed: Vec<u32>,
}

#[derive(Debug)]
pub struct Store {
    pub(crate) geometry: Geometry,
    pub(crate) index: Index,
    /// Every block of data that is not free for reuse.
    pub(crate) table: Table,
    /// Blocks that are durably without owners: each is free once nobody holds it.
    pub(crate) dead: BTreeSet<u32>,
    pub(crate) space: Space,
    /// What is not in its place on the device yet.
    pub(crate) pending: BTreeMap<u32, Pending>,
    pub(crate) deferred: Deferred,
    pub(crate) discards: Discards,
    /// Behind a cell since looking into it changes what stays there.
    pub(crate) cache: RefCell<Cache>,
    /// Bytes that index, cache and what is pending should take together.
    pub(crate) memory_limit: usize,
    queue: VecDeque<Queued>,
    queued_bytes: usize,
    submitted: u64,
    /// On the device, though perhaps durable only with the checkpoint that is under way.
    written: u64,
    durable: u64,
    log_head: u64,
    log_tail: u64,
    /// The head of the last record of the log, for the next one to repeat. Empty if it is too long.
    last_head: Vec<u8>,
    /// The last record has transactions, and none behind it shows that it was whole once.
    is_unconfirmed: bool,
    confirm_wanted: bool,
    outstanding: Option<Outstanding>,
    next_batch: u64,
    generation: u64,
    losses: u64,
    lost_blocks: Vec<(StoredId, u64)>,
    pub(crate) checkpoint: Option<Checkpoint>,
    checkpoint_wanted: bool,
    /// The durable checkpoint.
    layers: Vec<StoredLayer>,
    /// Blocks without owners, by the transaction that has to be durable before they can be reused.
    dying: VecDeque<(u64, Vec<u32>)>,
    /// Oldest first; the last one is open for new plans.
    generations: VecDeque<Generation>,
}

/// A layer of the durable checkpoint, and all of its blocks.
#[derive(Debug)]
pub(crate) struct StoredLayer {
    pub layer: Layer,
    pub chunks: Vec<Run>,
}

impl StoredLayer {
    fn blocks(&self) -> u64 {
        self.chunks.iter().map(|run| u64::from(run.len)).sum()
    }
}

/// What was found on the device, for `Store::new`.
pub(crate) struct Found {
    pub superblock: Superblock,
    pub layers: Vec<StoredLayer>,
    pub index: Index,
    pub table: Table,
    pub dead: BTreeSet<u32>,
    pub space: Space,
    pub last_seq: u64,
    pub log_tail: u64,
    pub last_head: Vec<u8>,
    pub is_unconfirmed: bool,
    /// The log holds what must not be read again: a checkpoint has to replace it before it goes on.
    pub log_is_broken: bool,
    /// Blocks of things whose content the log has lost.
    pub lost_blocks: Vec<(StoredId, u64)>,
    /// Contents that the log has and the device has not.
    pub inline: BTreeMap<u32, Content>,
}

/// A transaction while it is being planned.
#[derive(Default)]
struct Planning {
    steps: u32,
    body: Vec<u8>,
    direct: Vec<(u32, Bytes)>,
    inline: Vec<u32>,
    inline_len: usize,
    ownerless: Vec<u32>,
}

/// No less than what a transaction will need.
#[derive(Default)]
struct Needs {
    blocks: u64,
    /// Of growth of the index.
    encoded: u64,
    /// Makes objects bigger, so it has to leave room for removals.
    grows: bool,
}

impl Store {
    pub(crate) fn new(found: Found) -> Store {
        let mut store = Store {
            geometry: found.superblock.geometry,
            index: found.index,
            table: found.table,
            dead: found.dead,
            space: found.space,
            pending: BTreeMap::new(),
            deferred: Deferred::default(),
            discards: Discards::default(),
            cache: RefCell::default(),
            memory_limit: 0,
            queue: VecDeque::new(),
            queued_bytes: 0,
            submitted: found.last_seq,
            written: found.last_seq,
            durable: found.last_seq,
            log_head: found.superblock.log_pos,
            log_tail: found.log_tail,
            last_head: found.last_head,
            is_unconfirmed: found.is_unconfirmed,
            confirm_wanted: false,
            outstanding: None,
            next_batch: 1,
            generation: found.superblock.generation,
            losses: found.superblock.losses + u64::from(found.log_is_broken),
            lost_blocks: found.lost_blocks,
            checkpoint: None,
            checkpoint_wanted: false,
            layers: found.layers,
            dying: VecDeque::new(),
            generations: VecDeque::from([Generation::default()]),
        };
        for (block, content) in found.inline {
            store.add_pending(block, Pending { seq: found.last_seq, content });
            store.deferred.order.push_back((found.last_seq, block));
        }
        if found.log_is_broken {
            let (generation, seq) = (store.generation + 1, store.submitted);
            let mut checkpoint = Checkpoint::new(generation, seq, &mut store.index, false);
            checkpoint.log_pos = Some(store.log_tail);
            checkpoint.covers = true;
            store.checkpoint = Some(checkpoint);
        }
        store
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
    /// Bytes that wait for a batch: whoever feeds the store slows down when this grows.
    pub fn backlog(&self) -> usize {
        self.queued_bytes
    }
    /// Checkpoints that were ever completed on this device.
    pub fn checkpoints_written(&self) -> u64 {
        self.generation - 1
    }
    /// How many layers the durable checkpoint has: everything, and then changes.
    pub fn layers(&self) -> usize {
        self.layers.len()
    }
    /// Makes the coming batches write a checkpoint, after which opening replays nothing.
    pub fn request_checkpoint(&mut self) {
        self.checkpoint_wanted = true;
    }

    /// Makes the next batch show that the last record of the log is whole, if nothing else does: what rots
    /// of it from then on is not taken for a write that a crash tore. For whoever has nothing else to do.
    pub fn confirm(&mut self) {
        self.confirm_wanted = self.is_unconfirmed;
    }

    /// Applies a transaction to what the view shows, and queues it for the disk. Refused ones leave
    /// no trace.
    pub fn submit(&mut self, txn: Transaction) -> Result<Ticket, SubmitError> {
        let needs = self.needs(&txn)?;
        self.reclaim();
        let reserve = self.reserve(needs.encoded) + if needs.grows { self.slack() } else { 0 };
        let available = u64::from(self.space.free()).saturating_sub(reserve);
        if (needs.blocks > 0 || needs.encoded > 0) && needs.blocks + reserve > u64::from(self.space.free()) {
            return Err(SubmitError::NoSpace { needed: needs.blocks, available });
        }

        let seq = self.submitted + 1;
        let mut planning = Planning::default();
        planning.body.reserve(1024);
        planning.body.extend([0; 4]);
        for (id, change) in txn.changes {
            self.plan(&mut planning, &id, change);
        }
        planning.body[..4].copy_from_slice(&planning.steps.to_le_bytes());
        self.submitted = seq;
        let Planning { body, direct, inline, inline_len, ownerless, .. } = planning;
        let queued = Queued { seq, body, direct, inline, inline_len };
        self.queued_bytes += queued.bytes();
        self.queue.push_back(queued);
        if !ownerless.is_empty() {
            self.dying.push_back((seq, ownerless));
        }
        Ok(Ticket(seq))
    }

    /// What the disk should do next; None while a batch is under way, or if there is nothing to do.
    pub fn take_batch(&mut self) -> Option<Batch> {
        if self.outstanding.is_some() {
            return None;
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
            (is_news || (logged && confirms && self.queue.is_empty() && self.log_room() > 0)).then(|| {
                let mut contents = Vec::with_capacity(taken.iter().map(|queued| queued.inline_len).sum());
                let list = |(_, block): &(u64, u32)| {
                    let from = contents.len();
                    self.pending[block].content.log(&mut contents);
                    (*block, contents.len() - from)
                };
                let listed = inline.iter().map(list).collect();
                let mut body = Vec::with_capacity(taken.iter().map(|queued| queued.body.len()).sum());
                taken.iter().for_each(|queued| body.extend_from_slice(&queued.body));
                let mut record = Record {
                    pos: self.log_tail,
                    first_seq: self.written + 1,
                    count: taken.len() as u64,
                    body,
                    placed: Vec::new(),
                    listed,
                    contents,
                    repeat: std::mem::take(&mut self.last_head),
                };
                // Both fill the last block, and may take more where there is room.
                let room = self.log_room();
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
        if taken.is_empty() && record.is_none() && chunks.is_empty() && superblock.is_none() {
            return None;
        }

        let id = self.next_batch;
        self.next_batch += 1;
        let ends_checkpoint = superblock.is_some();
        self.outstanding =
            Some(Outstanding { id, last_seq, logged, ends_checkpoint, inline, is_news, noted });
        Some(Batch { id, geometry: self.geometry, fresh, chunks, record, superblock })
    }

    /// Takes note of a batch that was committed; gives the last transaction that is durable now.
    pub fn finished(&mut self, done: Done) -> Ticket {
        let outstanding = self.outstanding.take().expect("one batch is under way");
        assert_eq!(outstanding.id, done.id, "a batch finished that is not under way");
        for (block, crc) in done.crcs {
            self.pending.remove(&block).expect("a fresh block is pending");
            self.table.get_mut(block).expect("a fresh block is in the table").crc = crc;
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
        if outstanding.ends_checkpoint {
            let checkpoint = self.checkpoint.take().expect("the batch ended a checkpoint");
            self.durable = self.durable.max(checkpoint.seq);
            self.log_head = checkpoint.log_pos.expect("a finished checkpoint knows its place");
            self.generation = checkpoint.generation;
            self.is_unconfirmed &= self.log_head < self.log_tail;
            self.forget_notes_up_to(checkpoint.seq);
            let layer = checkpoint.layer();
            if !checkpoint.is_layer {
                for run in std::mem::take(&mut self.layers).into_iter().flat_map(|layer| layer.chunks) {
                    run.blocks().for_each(|block| self.free_block(block));
                }
            }
            self.layers.extend(layer.map(|layer| StoredLayer { layer, chunks: checkpoint.chunks }));
        }
        while self.dying.front().is_some_and(|(seq, _)| *seq <= self.durable) {
            let (_, blocks) = self.dying.pop_front().expect("it has a front");
            for block in blocks {
                self.dead.insert(block);
                if !self.deferred.holds.contains_key(&block) {
                    self.generations.back_mut().expect("one is open").freed.push(block);
                }
            }
        }
        self.reclaim();
        self.share_memory();
        self.durable()
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

    /// Frees the blocks that no plan can refer to any more.
    pub(crate) fn reclaim(&mut self) {
        loop {
            if self.generations.back().is_some_and(|open| !open.freed.is_empty()) {
                self.generations.push_back(Generation::default());
            }
            if self.generations.len() == 1 || Arc::strong_count(&self.generations[0].plans) > 1 {
                return;
            }
            for block in self.generations.pop_front().expect("there are two").freed {
                self.table.remove(block).expect("a freed block is in the table");
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

    fn log_blocks(&self) -> u64 {
        self.geometry.log_blocks.into()
    }
    fn log_room(&self) -> u64 {
        self.log_blocks() - (self.log_tail - self.log_head)
    }
    /// Blocks that only removals and the daemon's own records may take.
    fn slack(&self) -> u64 {
        (u64::from(self.geometry.data_blocks()) / 64).max(8)
    }
    /// Blocks that checkpoints will need if the index grows by `growth` bytes: there must be room
    /// for the next one beside the one that is durable.
    fn reserve(&self, growth: u64) -> u64 {
        let next = blocks_for(self.index.total().encoded + growth);
        let current: u64 = self.layers.iter().map(StoredLayer::blocks).sum();
        match &self.checkpoint {
            None => next + next.saturating_sub(current),
            Some(checkpoint) if checkpoint.is_layer => {
                let rest = checkpoint.estimate.saturating_sub(checkpoint.blocks());
                rest + next + next.saturating_sub(current + checkpoint.estimate)
            }
            Some(checkpoint) => {
                let rest = checkpoint.estimate.saturating_sub(checkpoint.blocks());
                rest + (next + next.saturating_sub(checkpoint.estimate)).saturating_sub(current)
            }
        }
    }

    fn needs(&self, txn: &Transaction) -> Result<Needs, SubmitError> {
        let block_len = BLOCK as u64;
        let too_big = |id: &StoredId, end: u64| {
            if end > SIZE_MAX {
                return Err(SubmitError::TooBig { id: id.clone(), end, limit: SIZE_MAX });
            }
            Ok(())
        };
        let pairs = |map: &BTreeMap<Name, Bytes>| {
            map.iter().map(|(k, v)| k.len() as u64 + v.len() as u64 + PAIR_COST).sum::<u64>()
        };
        let mut needs = Needs::default();
        // What each object gets in this transaction; of interest only where some of it is cloned.
        let clones = txn.changes.iter().any(|(_, change)| matches!(change, Change::CloneFrom(_)));
        let mut gained: BTreeMap<&StoredId, u64> = BTreeMap::new();
        for (id, change) in &txn.changes {
            let (mut blocks, mut encoded) = (0, 0);
            match change {
                Change::Write { offset, data } => {
                    let end = offset.saturating_add(data.len() as u64);
                    too_big(id, end)?;
                    blocks = end.div_ceil(block_len) - offset / block_len;
                }
                Change::Zero { offset, len } => {
                    too_big(id, offset.saturating_add(*len))?;
                    blocks = 2;
                }
                Change::Truncate { size } => {
                    too_big(id, *size)?;
                    blocks = u64::from(size % block_len != 0);
                }
                Change::SetAttrs(map) | Change::OmapSet(map) => encoded = pairs(map),
                Change::OmapSetHeader(header) => encoded = header.len() as u64,
                Change::CloneFrom(from) => {
                    // What it has now, and what it got before in this transaction.
                    encoded = self.index.get(from).map_or(0, |o| o.weight().encoded)
                        + gained.get(from).copied().unwrap_or(0);
                }
                _ => {}
            }
            let shrinks = matches!(change, Change::Zero { .. } | Change::Truncate { .. });
            if !shrinks {
                encoded += blocks * BLOCK_COST;
            }
            needs.grows |= !shrinks && (blocks > 0 || encoded > 0) && matches!(id, StoredId::Object(_));
            if !matches!(change, Change::Remove) && self.index.get(id).is_none() {
                encoded += OBJECT_COST + to_vec(id).len() as u64;
            }
            if clones {
                *gained.entry(id).or_default() += encoded;
            }
            needs.blocks += blocks;
            needs.encoded += encoded;
        }
        Ok(needs)
    }

    // ---- planning ----

    fn plan(&mut self, planning: &mut Planning, id: &StoredId, change: Change) {
        // What stays in memory must not hold on to the frame that it came in.
        let own = |bytes: &Bytes| Bytes::copy_from_slice(bytes);
        let own_name = |name: &Name| Name::copy_from(name.as_bytes());
        let own_pairs =
            |map: &BTreeMap<Name, Bytes>| map.iter().map(|(k, v)| (own_name(k), own(v))).collect();
        match change {
            Change::Touch => self.step(planning, id, Op::Touch),
            Change::Write { offset, data } => self.plan_write(planning, id, offset, &data),
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
            Change::SetAttrs(attrs) => self.step(planning, id, Op::SetAttrs(own_pairs(&attrs))),
            Change::RemoveAttr(name) => self.step(planning, id, Op::RemoveAttr(name)),
            Change::OmapSet(pairs) => self.step(planning, id, Op::OmapSet(own_pairs(&pairs))),
            Change::OmapRemove(keys) => self.step(planning, id, Op::OmapRemove(keys)),
            Change::OmapRemoveRange { begin, end } => {
                self.step(planning, id, Op::OmapRemoveRange { begin, end });
            }
            Change::OmapClear => self.step(planning, id, Op::OmapClear),
            Change::OmapSetHeader(header) => self.step(planning, id, Op::OmapSetHeader(own(&header))),
            Change::CloneFrom(from) => self.step(planning, id, Op::CloneFrom(from)),
        }
    }

    fn size_of(&self, id: &StoredId) -> u64 {
        self.index.get(id).map_or(0, |object| object.size)
    }

    fn step(&mut self, planning: &mut Planning, id: &StoredId, op: Op) {
        planning.steps += 1;
        id.encode(&mut planning.body);
        op.encode(&mut planning.body);
        if let Some(checkpoint) = &mut self.checkpoint {
            checkpoint.preserve(id, self.index.get(id));
        }
        let mut moves = Moves::default();
        self.index.apply(id, op, &mut moves);
        for block in moves.gained {
            self.table.get_mut(block).expect("an owned block is in the table").owners += 1;
        }
        for block in moves.dropped {
            let info = self.table.get_mut(block).expect("an owned block is in the table");
            info.owners -= 1;
            if info.owners == 0 {
                planning.ownerless.push(block);
            }
        }
    }

    fn plan_write(&mut self, planning: &mut Planning, id: &StoredId, offset: u64, data: &Bytes) {
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
        let whole = if is_large && whole < end_whole { whole..end_whole } else { 0..0 };
        let object = self.index.get(id).cloned();
        let mut contents = Vec::new();
        let others = |at: &u64| !whole.contains(at);
        for at in (offset / block_len..end.div_ceil(block_len)).filter(others) {
            let start = at * block_len;
            let (from, to) = (offset.max(start), end.min(start + block_len));
            let old = object.as_ref().and_then(|object| object.blocks.get(at as u32));
            contents.push((at as u32, self.content(old, (from - start) as usize, part(from, to))));
        }
        drop(object); // or the index would have to copy it
        if !contents.is_empty() {
            self.place(planning, id, contents, is_large);
        }
        if !whole.is_empty() {
            let bytes = part(whole.start * block_len, whole.end * block_len);
            self.place_whole(planning, id, whole.start as u32, bytes);
        }
        if end > self.size_of(id) {
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
            Some((at, self.content(Some(old), (from % block_len) as usize, zeros)))
        });
        let contents: Vec<_> = contents.collect();
        if !contents.is_empty() {
            self.place(planning, id, contents, false);
        }
    }

    /// What a block holds after `bytes` were written into it from `from` on.
    fn content(&self, old: Option<u32>, from: usize, bytes: Bytes) -> Content {
        if bytes.len() == BLOCK {
            return Content::Whole(bytes);
        }
        match old {
            None => {
                let mut whole = vec![0; BLOCK];
                whole[from..from + bytes.len()].copy_from_slice(&bytes);
                Content::Whole(whole.into())
            }
            Some(base) => match self.pending.get(&base) {
                Some(pending) => pending.content.patched(from, &bytes),
                // What stays in memory must not hold on to the frame that it came in.
                None => {
                    let run = PatchRun { at: from as u16, bytes: Bytes::copy_from_slice(&bytes) };
                    let base = Base { block: base, crc: self.table[base].crc };
                    Content::Patch { base, runs: vec![run] }
                }
            },
        }
    }

    /// Gives each content a fresh block. What `is_large` is written there before it is acknowledged.
    fn place(
        &mut self,
        planning: &mut Planning,
        id: &StoredId,
        contents: Vec<(u32, Content)>,
        is_large: bool,
    ) {
        let seq = self.submitted + 1;
        let mut pairs = Vec::with_capacity(contents.len());
        let mut left = contents.len() as u32;
        let mut contents = contents.into_iter();
        while left > 0 {
            let run = self.space.take_run(left).expect("there was enough space");
            left -= run.len;
            for block in run.blocks() {
                let (at, content) = contents.next().expect("as many contents as blocks");
                pairs.push((at, block));
                self.table.insert(block, BlockInfo::default());
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
                            Content::Whole(bytes) => Content::Whole(Bytes::copy_from_slice(&bytes)),
                            patch => patch,
                        }
                    }
                };
                self.add_pending(block, Pending { seq, content });
            }
        }
        self.step(planning, id, Op::Place(placements(pairs.into_iter())));
    }

    /// Gives fresh blocks to all of `bytes`, which are whole blocks from the object's block `at` on.
    fn place_whole(&mut self, planning: &mut Planning, id: &StoredId, mut at: u32, mut bytes: Bytes) {
        let seq = self.submitted + 1;
        let mut placements = Vec::new();
        while !bytes.is_empty() {
            let left = (bytes.len() / BLOCK) as u32;
            let blocks = self.space.take_run(left).expect("there was enough space");
            let these = bytes.split_to(blocks.len as usize * BLOCK);
            for (block, from) in blocks.blocks().zip((0..).step_by(BLOCK)) {
                self.table.insert(block, BlockInfo::default());
                let content = Content::Whole(these.slice(from..from + BLOCK));
                self.add_pending(block, Pending { seq, content });
            }
            planning.direct.push((blocks.start, these));
            placements.push(Placement { at, blocks });
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

    /// If one was asked for, or the log needs it.
    pub(crate) fn begin_checkpoint(&mut self) {
        let room = self.log_room();
        // The next one may be larger than the whole log: then only a checkpoint can hold it.
        let is_short =
            room < self.log_blocks() / 3 || self.queue.front().is_some_and(|next| next.log_blocks() > room);
        if self.checkpoint.is_none() && (self.checkpoint_wanted || is_short) {
            self.checkpoint_wanted = false;
            let is_layer = self.fits_a_layer();
            let mut checkpoint =
                Checkpoint::new(self.generation + 1, self.submitted, &mut self.index, is_layer);
            // Otherwise it is known when the last of them is handed over.
            checkpoint.log_pos = self.queue.is_empty().then_some(self.log_tail);
            self.checkpoint = Some(checkpoint);
        }
    }

    /// Whether the next checkpoint should be a layer over the last one: if that is shorter, if the layers
    /// together stay no longer than everything is, and if there is space for both that and everything.
    fn fits_a_layer(&self) -> bool {
        let all = blocks_for(self.index.total().encoded);
        let changed = blocks_for(self.index.changed().encoded);
        let layers: u64 = self.layers.iter().skip(1).map(StoredLayer::blocks).sum();
        !self.layers.is_empty()
            && self.layers.len() < LAYERS_MAX
            && layers + changed <= all
            && changed + 2 * all + self.slack() <= self.space.free().into()
    }

    /// The transactions of the next batch, and whether they go to the log.
    fn take_queued(&mut self) -> (Vec<Queued>, bool) {
        let room = self.log_room();
        let mut limit = u64::MAX;
        let mut logged = true;
        if let Some(checkpoint) = &mut self.checkpoint {
            let front = self.queue.front();
            let up_to_it = front.filter(|front| front.seq <= checkpoint.seq);
            // No batch reaches past the checkpoint's transaction: the log must go on right there.
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

    /// The next chunks of the checkpoint, and the superblock if they are the last.
    fn advance_checkpoint(&mut self, last_seq: u64) -> (Vec<(Run, Vec<u8>)>, Option<Superblock>) {
        let Some(checkpoint) = &mut self.checkpoint else {
            return (Vec::new(), None);
        };
        if checkpoint.log_pos.is_none() && last_seq == checkpoint.seq {
            checkpoint.log_pos = Some(self.log_tail);
        }
        // Before that, the checksums of blocks under way are not known; and what a checkpoint holds is
        // in its place, for the log before it is given up.
        if self.written < checkpoint.seq || self.deferred.oldest().is_some_and(|seq| seq <= checkpoint.seq) {
            return (Vec::new(), None);
        }
        // In proportion to the log, which has to last until the checkpoint ends.
        let slice = (u64::from(self.geometry.log_blocks) * BLOCK as u64 / 16).min(SLICE_MAX);
        let budget = if self.queue.is_empty() { slice } else { slice * HURRY } as usize;
        let table = &self.table;
        // A block that was freed meanwhile is not in the table; the log, which is replayed over the
        // checkpoint, frees it as well.
        let crc_of = |block: u32| table.get(block).map_or(0, |info| info.crc);
        let chunks = checkpoint.slice(&self.geometry, &self.index, crc_of, &mut self.space, budget);
        let kept = if checkpoint.is_layer { &self.layers[..] } else { &[] };
        let superblock = checkpoint.is_written().then(|| Superblock {
            geometry: self.geometry,
            generation: checkpoint.generation,
            seq: checkpoint.seq,
            log_pos: checkpoint.log_pos.expect("all up to it is written"),
            losses: self.losses,
            layers: kept.iter().map(|stored| stored.layer).chain(checkpoint.layer()).collect(),
        });
        (chunks, superblock)
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
            layers: self.layers.iter().map(|stored| stored.layer).collect(),
        })
    }

    // ---- proof ----

    /// Proves the invariants; gives what is wrong, one line each. Walks everything.
    pub fn check(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut owners: BTreeMap<u32, u32> = BTreeMap::new();
        for (id, object) in self.index.iter() {
            for (at, block) in object.blocks.iter() {
                *owners.entry(block).or_default() += 1;
                if u64::from(at) * BLOCK as u64 >= object.size {
                    wrong.push(format!("{id}: block {at} is past its size {}", object.size));
                }
                if !self.geometry.holds_data(Run { start: block, len: 1 }) {
                    wrong.push(format!("{id}: block {at} is at {block}, outside of the data area"));
                }
            }
        }
        if self.index.recount() != self.index.total() {
            let (counted, kept) = (self.index.recount(), self.index.total());
            wrong.push(format!("the index weighs {counted:?}, not {kept:?}"));
        }
        if self.index.recount_changed() != self.index.changed().encoded {
            let (counted, kept) = (self.index.recount_changed(), self.index.changed().encoded);
            wrong.push(format!("what changed weighs {counted}, not {kept}"));
        }
        let released = self.generations.iter().flat_map(|generation| &generation.freed);
        let mut ownerless: BTreeSet<u32> = BTreeSet::new();
        for &block in self.dying.iter().flat_map(|(_, blocks)| blocks).chain(released) {
            if !ownerless.insert(block) {
                wrong.push(format!("block {block} was given back twice"));
            }
        }
        for (block, info) in self.table.iter() {
            let counted = owners.remove(&block).unwrap_or(0);
            if counted != info.owners {
                wrong.push(format!("block {block} has {counted} owners, not {}", info.owners));
            }
            let is_held = self.dead.contains(&block) && self.deferred.holds.contains_key(&block);
            if (counted == 0) != (ownerless.remove(&block) || is_held) {
                wrong.push(format!("block {block} has {counted} owners, and its end is not known"));
            }
        }
        wrong.extend(owners.keys().map(|block| format!("block {block} has owners but is not in the table")));
        wrong.extend(ownerless.iter().map(|block| format!("block {block} is to be freed but is free")));
        wrong.extend(self.check_deferred());
        wrong.extend(self.cache.borrow().check(|block| !self.table.contains(block)));
        let unknown = self.pending.keys().filter(|block| !self.table.contains(**block));
        wrong.extend(unknown.map(|block| format!("block {block} is pending but not in the table")));

        let checkpoint = self.checkpoint.iter().flat_map(|checkpoint| &checkpoint.chunks);
        let mut taken: BTreeSet<u32> = self.table.iter().map(|(block, _)| block).collect();
        let layers = self.layers.iter().flat_map(|layer| &layer.chunks);
        for block in layers.chain(checkpoint).chain(&self.discards.under_way).flat_map(|run| run.blocks()) {
            if !taken.insert(block) {
                wrong.push(format!("block {block} is in a checkpoint, or given back, and elsewhere"));
            }
        }
        for block in self.geometry.data_start..self.geometry.blocks {
            if self.space.is_taken(block) != taken.contains(&block) {
                wrong.push(format!("block {block}: the bitmap and its owners disagree"));
            }
        }
        if self.log_tail - self.log_head > self.log_blocks() {
            wrong.push(format!("the log goes from {} to {}", self.log_head, self.log_tail));
        }
        wrong
    }
}

impl StoreView for Store {
    fn stat(&self, id: &StoredId) -> Result<Option<StoreStat>, ReadError> {
        Ok(self.index.get(id).map(|object| StoreStat { size: object.size }))
    }
    fn attr(&self, id: &StoredId, name: &[u8]) -> Result<Option<Bytes>, ReadError> {
        Ok(self.index.get(id).and_then(|object| object.attrs.get(name)))
    }
    fn attrs(&self, id: &StoredId) -> Result<BTreeMap<Name, Bytes>, ReadError> {
        Ok(self.index.get(id).map(|object| object.attrs.to_map()).unwrap_or_default())
    }
    fn omap_header(&self, id: &StoredId) -> Result<Bytes, ReadError> {
        Ok(self.index.get(id).map(|object| object.omap().header.clone()).unwrap_or_default())
    }
    fn omap_get(&self, id: &StoredId, key: &[u8]) -> Result<Option<Bytes>, ReadError> {
        Ok(self.index.get(id).and_then(|object| object.omap().pairs.get(key).cloned()))
    }
    fn omap_walk(
        &self,
        id: &StoredId,
        from: &[u8],
        each: &mut dyn FnMut(&Name, &Bytes) -> bool,
    ) -> Result<(), ReadError> {
        if let Some(object) = self.index.get(id) {
            let mut pairs = object.omap().pairs.range::<[u8], _>((Bound::Included(from), Bound::Unbounded));
            while pairs.next().is_some_and(|(key, value)| each(key, value)) {}
        }
        Ok(())
    }
    fn object_walk(&self, from: &ObjectId, each: &mut dyn FnMut(&ObjectId) -> bool) -> Result<(), ReadError> {
        for (id, _) in self.index.range(StoredId::Object(from.clone())..) {
            match id {
                StoredId::Object(object) if each(object) => {}
                _ => break,
            }
        }
        Ok(())
    }
    fn extents(&self, id: &StoredId, offset: u64, len: u64) -> Result<Vec<(u64, u64)>, ReadError> {
        let Some(object) = self.index.get(id) else {
            return Ok(Vec::new());
        };
        let block_len = BLOCK as u64;
        let end = offset.saturating_add(len).min(object.size);
        if offset >= end {
            return Ok(Vec::new());
        }
        let mut extents: Vec<(u64, u64)> = Vec::new();
        for run in object.blocks.range((offset / block_len) as u32, end.div_ceil(block_len) as u32) {
            let start = u64::from(run.at) * block_len;
            let run_end = start + u64::from(run.blocks.len) * block_len;
            let (from, to) = (start.max(offset), run_end.min(end));
            match extents.last_mut() {
                Some((last, len)) if *last + *len == from => *len += to - from,
                _ => extents.push((from, to - from)),
            }
        }
        Ok(extents)
    }
    fn lost(&self) -> Lost {
        Lost { times: self.losses, blocks: self.lost_blocks.clone() }
    }
    fn statfs(&self) -> Statfs {
        let block_len = BLOCK as u64;
        let checkpoint = self.checkpoint.as_ref().map_or(0, Checkpoint::blocks);
        let chunks = self.layers.iter().map(StoredLayer::blocks).sum::<u64>() + checkpoint;
        let total = self.index.total();
        let unusable = self.reserve(0) + self.slack();
        Statfs {
            total: u64::from(self.geometry.blocks) * block_len,
            available: (u64::from(self.space.free()) + self.discards.under_way_blocks())
                .saturating_sub(unusable)
                * block_len,
            allocated: self.table.len() as u64 * block_len,
            stored: total.stored,
            omap: total.omap,
            internal: (u64::from(self.geometry.data_start) + chunks) * block_len,
        }
    }
}
