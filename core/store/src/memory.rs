//! The store's memory, and its division between the index and the data cache.

use crate::BLOCK;
use crate::index::BLOCK_COST;
use crate::lookup::Pager;
use crate::store::Store;

/// Bytes in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUsage {
    /// Metadata of all objects, estimated from their number and size.
    pub index: usize,
    /// The data cache.
    pub cache: usize,
    /// Deferred writes that are not placed yet.
    pub pending: usize,
}

/// An object's part of the index besides its name, attributes and omap: nodes, spare capacity, allocator
/// overhead. Measured by `tests/it`; see `docs/decisions/0014-store-memory-and-block-cache.md`.
const OBJECT: usize = 244;
/// Memory of an omap pair besides its bytes: two allocations, and its entry in the map.
pub(crate) const PAIR: usize = 150;
/// Memory of an object's reference to a block, if every second block has its own extent.
const BLOCK_OF_OBJECT: usize = 5;
/// Memory of a deferred block, with its overhead.
const PENDING: usize = BLOCK + 200;
/// The least part of the memory for the data cache.
const CACHE_PART_MIN: usize = 8;

/// The parts of the memory for pages of sorted runs, and for all objects.
const PAGES_PART: usize = 16;
const OBJECTS_PART: usize = 2;
/// Objects in the index come first. Objects that were only read may take the rest, and no less than this
/// part.
const READ_PART: usize = 8;
/// The part for changed records; above it, a checkpoint starts so that they can be evicted.
const CHANGED_PART: usize = 3;
/// A checkpoint starts only after this many blocks of log, and this part of the checkpoint's size, were
/// written.
const LOGGED_MIN: u64 = 256;
const LOGGED_PART: u64 = 4;
/// Unchanged objects stay in the index up to this part: a client that wrote to an object usually writes to it
/// again, and loading it takes time by the number of its blocks. Beyond this part the oldest are evicted. A
/// second cache for them would cost more than reading again the few that are accessed.
const STAYING_PART: usize = 4;

impl Store {
    /// Sets the limit of index, cache and deferred writes together: the cache takes what the others leave,
    /// and no less than an eighth. Nothing is cached until this was called.
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
            pager.limit_objects(left.max(self.memory_limit / READ_PART));
        }
        let is_too_much = objects > self.memory_limit / CHANGED_PART;
        if self.pager.is_some() && is_too_much && self.is_worth_a_checkpoint() {
            self.checkpoint_wanted |= self.checkpoint.is_none();
        }
        let MemoryUsage { index, pending, .. } = self.memory();
        let least = self.memory_limit / CACHE_PART_MIN;
        let left = self.memory_limit.saturating_sub(index + pending).max(least);
        // Small changes are ignored: a freed segment would have to be filled again.
        let now = self.cache.get_mut().limit_bytes();
        if left < now || left > now + now / 8 + (1 << 20) || now == 0 {
            self.cache.get_mut().limit(left);
        }
    }

    /// Memory of the objects in the index.
    fn objects_bytes(&self) -> usize {
        self.index.here().encoded as usize + self.index.len() * OBJECT + self.index.pairs() * PAIR
    }
    /// Whether unchanged objects should be evicted.
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
