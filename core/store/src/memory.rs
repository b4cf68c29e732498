//! What the store keeps in memory, and how much of that is data.

use crate::BLOCK;
use crate::index::BLOCK_COST;
use crate::store::Store;

/// Bytes in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// What is known of all objects, estimated from their number and size.
    pub index: usize,
    /// Data that was written or read, kept for whoever reads it next.
    pub cache: usize,
    /// Data that is in the log and not in its place yet.
    pub pending: usize,
}

/// An object's part of the index besides its name, attributes and omap: nodes, spare room, what an allocator
/// adds. Measured by `tests/it`; see `docs/decisions/0014-memory.md`.
const OBJECT: usize = 260;
/// What an object notes of a block, if every second one has a place of its own.
const BLOCK_OF_OBJECT: usize = 6;
/// What is pending costs more than its bytes.
const PENDING: usize = BLOCK + 200;
/// However large everything else is, this part of the whole is for data.
const CACHE_PART_MIN: usize = 8;

impl Store {
    /// Index, cache and what is pending should not take more than so many bytes together: the cache takes
    /// what the others leave, and no less than an eighth. Nothing is cached until this was called.
    pub fn limit_memory(&mut self, bytes: usize) {
        self.memory_limit = bytes;
        self.share_memory();
    }

    pub fn memory(&self) -> Memory {
        let total = self.index.total();
        let texts = (total.encoded - total.blocks * BLOCK_COST) as usize;
        let blocks = total.blocks as usize * BLOCK_OF_OBJECT + self.table.bytes();
        let index = self.index.len() * OBJECT + texts + blocks;
        Memory { index, cache: self.cache.borrow().bytes(), pending: self.pending.len() * PENDING }
    }

    /// Gives the cache what is left.
    pub(crate) fn share_memory(&mut self) {
        let Memory { index, pending, .. } = self.memory();
        let least = self.memory_limit / CACHE_PART_MIN;
        let left = self.memory_limit.saturating_sub(index + pending).max(least);
        // Not for every little change: a segment that is given back will have to be filled again.
        let now = self.cache.get_mut().limit_bytes();
        if left < now || left > now + now / 8 + (1 << 20) || now == 0 {
            self.cache.get_mut().limit(left);
        }
    }
}
