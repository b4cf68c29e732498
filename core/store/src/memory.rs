//! The memory that the store takes, and how it is divided between the index and the data cache.

use crate::BLOCK;
use crate::index::BLOCK_COST;
use crate::lookup::Pager;
use crate::store::Store;

/// Bytes in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUsage {
    /// What is known of all objects, estimated from their number and size.
    pub index: usize,
    /// Data that was written or read, kept for the next read.
    pub cache: usize,
    /// Data that is in the log and not in its place yet.
    pub pending: usize,
}

/// An object's part of the index besides its name, attributes and omap: nodes, spare room, what an allocator
/// adds. Measured by `tests/it`; see `docs/decisions/0014-store-memory-and-block-cache.md`.
const OBJECT: usize = 244;
/// What a pair of an omap takes besides its bytes: two pieces of memory, and its place in the map.
pub(crate) const PAIR: usize = 150;
/// What an object notes of a block, if every second one has a place of its own.
const BLOCK_OF_OBJECT: usize = 5;
/// What is pending costs more than its bytes.
const PENDING: usize = BLOCK + 200;
/// However large everything else is, this part of the whole is for data.
const CACHE_PART_MIN: usize = 8;

/// Parts of the whole that pages of sorted runs may take, and all objects.
const PAGES_PART: usize = 16;
const OBJECTS_PART: usize = 2;
/// Those in the index come first. What was only examined may take what they leave, and no less than this
/// part.
const LOOKED_AT_PART: usize = 8;
/// What changed may take such a part; then a checkpoint lets it go.
const CHANGED_PART: usize = 3;
/// Before that, this many blocks of log have to be written, and such a part of what the checkpoint will
/// write.
const LOGGED_MIN: u64 = 256;
const LOGGED_PART: u64 = 4;
/// Up to such a part objects stay in the index although they did not change: a client that writes to one
/// mostly does so again, and to bring it back takes as long as it has blocks. Then they leave memory, the
/// oldest first: to keep them elsewhere would be more work than to read again the few that are asked for.
const STAYING_PART: usize = 4;

impl Store {
    /// Index, cache and what is pending should not take more than this many bytes together: the cache takes
    /// what the others leave, and no less than an eighth. Nothing is cached until this was called.
    pub fn limit_memory(&mut self, bytes: usize) {
        self.memory_limit = bytes;
        if let Some(pager) = &self.pager {
            pager.limit_pages(bytes / PAGES_PART);
        }
        self.share_memory();
    }

    pub fn memory(&self) -> MemoryUsage {
        let here = self.index.here();
        let texts = here.encoded.saturating_sub(here.blocks * BLOCK_COST) as usize;
        let blocks = here.blocks as usize * BLOCK_OF_OBJECT + self.blocks.bytes() + self.index.shares.bytes();
        let runs: usize = self.runs.iter().map(|run| run.bytes()).sum();
        let paged = self.pager.as_ref().map_or(0, Pager::bytes);
        let objects = self.index.len() * OBJECT + self.index.pairs() * PAIR;
        let index = objects + texts + blocks + runs + paged + self.space.bytes();
        MemoryUsage { index, cache: self.cache.borrow().bytes(), pending: self.pending.len() * PENDING }
    }

    /// Gives the cache what is left.
    pub(crate) fn share_memory(&mut self) {
        let objects = self.objects_bytes();
        if let Some(pager) = &self.pager {
            let left = (self.memory_limit / OBJECTS_PART).saturating_sub(objects);
            pager.limit_objects(left.max(self.memory_limit / LOOKED_AT_PART));
        }
        let is_too_much = objects > self.memory_limit / CHANGED_PART;
        if self.pager.is_some() && is_too_much && self.is_worth_a_checkpoint() {
            self.checkpoint_wanted |= self.checkpoint.is_none();
        }
        let MemoryUsage { index, pending, .. } = self.memory();
        let least = self.memory_limit / CACHE_PART_MIN;
        let left = self.memory_limit.saturating_sub(index + pending).max(least);
        // Not for every little change: a segment that is given back will have to be filled again.
        let now = self.cache.get_mut().limit_bytes();
        if left < now || left > now + now / 8 + (1 << 20) || now == 0 {
            self.cache.get_mut().limit(left);
        }
    }

    /// What objects in memory take.
    fn objects_bytes(&self) -> usize {
        self.index.here().encoded as usize + self.index.len() * OBJECT + self.index.pairs() * PAIR
    }
    /// Whether some of them should leave that did not change.
    pub(crate) fn is_crowded(&self) -> bool {
        self.objects_bytes() > self.memory_limit / STAYING_PART
    }

    /// Whether enough was logged since the last one: what changes all the time cannot leave memory, and would
    /// be written again and again.
    fn is_worth_a_checkpoint(&self) -> bool {
        let logged = self.log_tail - self.log_head;
        logged >= LOGGED_MIN.min(self.log_blocks() / 8)
            && logged * BLOCK as u64 * LOGGED_PART >= self.index.changed().encoded
    }
}
