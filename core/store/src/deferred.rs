//! Deferred writes: small writes go to their blocks after they were acknowledged, in slices, in the
//! background.
//!
//! A small write gets newly allocated blocks at once; its content is in memory and in the log. Many of these
//! blocks are written together, since the allocator returns neighbours. The next log record lists the blocks
//! that were placed, so that replay does not write them again.
//!
//! The base of a patch must not change before the patched block is written and the log says so: replay would
//! patch something else. So the base is held until then, even when it has no owner any more.

use crate::block_map::BlockMap;
use crate::deferred_writes::{DeferredDone, DeferredWrite, DeferredWrites};
use crate::disk::{Disk, DiskError};
use crate::store::{Store, Ticket};
use std::collections::{BTreeMap, VecDeque};

/// Placing begins when this many blocks wait; half of them stay, since they may be overwritten soon.
const WAITING_MAX: u64 = 2048;
/// Blocks that are placed at a time: few, so that a commit beside them does not wait long.
const SLICE: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Deferred {
    /// Blocks that the log holds, each with the transaction that made it, in that order. Some are gone.
    pub order: VecDeque<(u64, u32)>,
    under_way: Option<UnderWay>,
    /// Placed blocks that the log does not list yet.
    pub notes: BTreeMap<u32, Note>,
    /// How many patches are put over a block, and whether it is being written right now.
    pub holds: BlockMap<u32>,
    /// The base blocks of patches in the log, by the patched block.
    pub base_of: BlockMap<u32>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Note {
    pub crc: u32,
    /// The number of the transaction that wrote the block.
    seq: u64,
}

#[derive(Debug)]
struct UnderWay {
    oldest: u64,
    blocks: Vec<u32>,
}

impl Deferred {
    /// The oldest transaction with blocks that are not placed.
    pub fn oldest(&self) -> Option<u64> {
        let under_way = self.under_way.as_ref().map(|placing| placing.oldest);
        under_way.or_else(|| self.order.front().map(|(seq, _)| *seq))
    }
}

impl Store {
    /// What should be brought to its place next, besides whatever batch is under way; None while that
    /// is being done, or if it can wait.
    pub fn take_deferred(&mut self) -> Option<DeferredWrites> {
        if self.deferred.under_way.is_some() || self.compaction.is_under_way() {
            return None;
        }
        // It may wait for what is to be placed.
        self.begin_checkpoint();
        let limit = self.waiting_max();
        let is_due = self.deferred.order.len() > limit;
        let checkpoint = self.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.seq);
        let mut under_way = UnderWay { oldest: 0, blocks: Vec::new() };
        let (mut blocks, mut bases) = (Vec::new(), BTreeMap::new());
        while let Some(&(seq, block)) = self.deferred.order.front() {
            let is_wanted = seq <= checkpoint || (is_due && self.deferred.order.len() > limit / 2);
            if !is_wanted || blocks.len() == SLICE {
                break;
            }
            self.deferred.order.pop_front();
            let pending = self.pending.get(&block).filter(|pending| pending.seq == seq);
            let Some(pending) = pending.filter(|_| !self.dead.contains(&block)) else {
                continue; // overwritten meanwhile
            };
            if let Some(base) = pending.content.base()
                && let Some(bytes) = self.cache.get_mut().get(base.block)
            {
                bases.insert(base.block, bytes.to_vec());
            }
            let (content, is_read_here) = (pending.content.clone(), pending.is_read_here);
            blocks.push(DeferredWrite { block, content, is_read_here });
            if under_way.blocks.is_empty() {
                under_way.oldest = seq;
            }
            under_way.blocks.push(block);
            self.hold(block);
        }
        if !blocks.is_empty() {
            self.deferred.under_way = Some(under_way);
        }
        // After that: what is only now brought to its place has no checksum that could be compacted.
        let compaction = self.take_compaction();
        (!blocks.is_empty() || compaction.is_some()).then_some(DeferredWrites { blocks, bases, compaction })
    }

    /// Notes that blocks are placed.
    pub fn deferred_done(&mut self, placed: DeferredDone) {
        let under_way = self.deferred.under_way.take().map_or_else(Vec::new, |under_way| under_way.blocks);
        assert!(placed.crcs.iter().map(|(block, _)| block).eq(&under_way), "others were placed");
        if let Some(compaction) = placed.compaction {
            self.compaction_advanced(compaction);
        }
        for (block, bytes) in placed.read_here.iter().filter(|(block, _)| !self.dead.contains(block)) {
            self.cache.get_mut().insert_written(*block, bytes);
        }
        for (block, crc) in placed.crcs {
            let pending = self.pending.remove(&block).expect("a block that is being placed is pending");
            self.blocks.table.get_mut(block).expect("it is held").crc = crc;
            self.deferred.notes.insert(block, Note { crc, seq: pending.seq });
            self.unhold(block);
        }
        self.reclaim();
    }

    /// Runs all pending work on this thread, which makes everything durable. For tools and tests.
    pub fn settle(&mut self, disk: &(impl Disk + ?Sized)) -> Result<Ticket, DiskError> {
        loop {
            // The placing may be what the batch waits for.
            let placing = self.take_deferred();
            let batch = self.take_batch();
            if placing.is_none() && batch.is_none() {
                return Ok(self.durable());
            }
            if let Some(placing) = placing {
                self.deferred_done(placing.run(disk)?);
            }
            if let Some(batch) = batch {
                self.finished(batch.commit(disk)?);
            }
        }
    }

    /// A checkpoint is durable: all blocks that it contains are placed.
    pub(crate) fn forget_notes_up_to(&mut self, seq: u64) {
        let known = self.deferred.notes.iter().filter(|(_, note)| note.seq <= seq);
        for block in known.map(|(block, _)| *block).collect::<Vec<_>>() {
            self.deferred.notes.remove(&block);
            self.release_base_of(block);
        }
    }

    /// So much waits to be placed that nothing new is logged until some of it is done.
    pub(crate) fn is_far_behind(&self) -> bool {
        self.deferred.under_way.is_some() && self.deferred.order.len() > 4 * self.waiting_max()
    }

    /// Also in proportion to the log, and to the blocks that would be held.
    fn waiting_max(&self) -> usize {
        let geometry = &self.geometry;
        let most = u64::from(geometry.log_blocks / 8).min(u64::from(geometry.data_blocks() / 64));
        most.min(WAITING_MAX) as usize
    }

    pub(crate) fn release_base_of(&mut self, block: u32) {
        if let Some(base) = self.deferred.base_of.remove(&block) {
            self.unhold(base);
        }
    }

    /// Proves the holds; gives what is wrong, one line each.
    pub(crate) fn check_deferred(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut holds: BlockMap<u32> = BlockMap::default();
        let under_way = self.deferred.under_way.iter().flat_map(|placing| &placing.blocks);
        for block in self.deferred.base_of.values().chain(under_way) {
            *holds.entry(*block).or_default() += 1;
        }
        if holds != self.deferred.holds {
            wrong.push(format!("held are {holds:?}, not {:?}", self.deferred.holds));
        }
        let free = holds.keys().filter(|block| !self.space.is_taken(**block));
        wrong.extend(free.map(|block| format!("block {block} is held and free")));
        for (block, pending) in &self.pending {
            let base = pending.content.base().map(|base| base.block);
            if base != self.deferred.base_of.get(block).copied() {
                wrong.push(format!("block {block} holds another block than it is a patch of"));
            }
            if base.is_some_and(|base| self.pending.contains_key(&base)) {
                wrong.push(format!("block {block} is a patch of what is not on the device"));
            }
        }
        wrong
    }
}
