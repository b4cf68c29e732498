//! The data cache: blocks that were read in small pieces, and some of those that were written in small
//! pieces.
//!
//! The policy is S3-FIFO. A block enters a short queue and leaves it soon, unless it is read meanwhile. If
//! it is read, or comes back soon after it left, it enters the long queue, and stays there as long as it is
//! read now and then. So a client that reads everything once passes through the short queue and evicts
//! nothing else.
//!
//! Cached blocks are verified. A block of the device does not change while it has owners or readers, so
//! `Cache::forget` is only needed where a block becomes free.

use crate::BLOCK;
use crate::block_map::BlockMap;
use std::collections::VecDeque;

/// Memory is allocated and freed in segments of this many blocks.
const SEGMENT: usize = 256;
/// One in this many blocks is in the short queue.
const SHORT: usize = 10;
/// Of all blocks, the part that may be ones that were not read since they came, if more are written.
const WRITTEN_PART: usize = 4;
/// Reads of a block that count.
const USES_MAX: u8 = 3;
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Free,
    Short,
    Long,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    block: u32,
    /// Neighbours in its queue: towards those that came later, and towards those that came earlier.
    newer: u32,
    older: u32,
    uses: u8,
    which: Which,
}

/// Slots from the newest to the oldest.
#[derive(Clone, Copy, Debug)]
struct Queue {
    newest: u32,
    oldest: u32,
    len: usize,
}

const EMPTY: Queue = Queue { newest: NONE, oldest: NONE, len: 0 };

#[derive(Debug)]
pub(crate) struct Cache {
    capacity: usize,
    segments: Vec<Box<[u8]>>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    place: BlockMap<u32>,
    short: Queue,
    long: Queue,
    /// Blocks that left the short queue unread, each with a number of its own.
    ghosts: BlockMap<u64>,
    ghost_order: VecDeque<(u32, u64)>,
    ghost_number: u64,
}

impl Default for Cache {
    /// A cache of size zero.
    fn default() -> Cache {
        Cache {
            capacity: 0,
            segments: Vec::new(),
            slots: Vec::new(),
            free: Vec::new(),
            place: BlockMap::default(),
            short: EMPTY,
            long: EMPTY,
            ghosts: BlockMap::default(),
            ghost_order: VecDeque::new(),
            ghost_number: 0,
        }
    }
}

impl Cache {
    /// Sets the maximum size in bytes.
    pub fn limit(&mut self, bytes: usize) {
        self.capacity = bytes / BLOCK;
        while self.place.len() > self.capacity {
            self.evict();
        }
        // Blocks in the last segments move to the front, so that whole segments can be freed.
        while self.segments.len() > self.capacity.div_ceil(SEGMENT) {
            let first = (self.segments.len() - 1) * SEGMENT;
            self.free.retain(|slot| (*slot as usize) < first);
            for slot in first..self.slots.len() {
                if self.slots[slot].which != Which::Free {
                    self.move_slot(slot as u32);
                }
            }
            self.slots.truncate(first);
            self.segments.pop();
        }
        self.trim_ghosts();
    }
    /// Bytes of memory in use, without small constant parts.
    pub fn bytes(&self) -> usize {
        self.segments.len() * SEGMENT * BLOCK
    }
    pub fn limit_bytes(&self) -> usize {
        self.capacity * BLOCK
    }

    /// The block's bytes, if cached.
    pub fn get(&mut self, block: u32) -> Option<&[u8]> {
        let slot = *self.place.get(&block)?;
        let uses = &mut self.slots[slot as usize].uses;
        *uses = (*uses + 1).min(USES_MAX);
        Some(self.bytes_of(slot))
    }

    /// Inserts a block that was read.
    pub fn insert(&mut self, block: u32, bytes: &[u8]) {
        if self.capacity == 0 || self.place.contains_key(&block) {
            return;
        }
        while self.place.len() >= self.capacity {
            self.evict();
        }
        let which = if self.ghosts.remove(&block).is_some() { Which::Long } else { Which::Short };
        let slot = self.free.pop().unwrap_or_else(|| self.grow());
        self.slots[slot as usize].block = block;
        self.slots[slot as usize].uses = 0;
        let at = slot as usize % SEGMENT * BLOCK;
        self.segments[slot as usize / SEGMENT][at..at + BLOCK].copy_from_slice(bytes);
        self.place.insert(block, slot);
        self.push(slot, which);
    }

    /// Inserts a block that was just written. Most written blocks are not read soon: once many of them are
    /// unread, a new one replaces the oldest of these.
    pub fn insert_written(&mut self, block: u32, bytes: &[u8]) {
        // Two for one, so that it becomes less.
        for _ in 0..2 {
            if self.short.len > self.capacity / WRITTEN_PART {
                self.evict_short();
            }
        }
        self.insert(block, bytes);
    }

    /// Removes a block whose content may change.
    pub fn forget(&mut self, block: u32) {
        self.ghosts.remove(&block);
        if let Some(slot) = self.place.get(&block) {
            self.drop_slot(*slot);
        }
    }

    fn bytes_of(&self, slot: u32) -> &[u8] {
        let at = slot as usize % SEGMENT * BLOCK;
        &self.segments[slot as usize / SEGMENT][at..at + BLOCK]
    }

    /// Adds a segment; returns its first slot.
    fn grow(&mut self) -> u32 {
        let first = self.slots.len() as u32;
        self.segments.push(vec![0; SEGMENT * BLOCK].into_boxed_slice());
        let slot = Slot { block: 0, newer: NONE, older: NONE, uses: 0, which: Which::Free };
        self.slots.resize(self.slots.len() + SEGMENT, slot);
        self.free.extend((first + 1..first + SEGMENT as u32).rev());
        first
    }

    fn evict(&mut self) {
        loop {
            let is_full = self.short.len > self.capacity / SHORT || self.long.len == 0;
            let is_done = if self.short.len > 0 && is_full { self.evict_short() } else { self.evict_long() };
            if is_done {
                return;
            }
        }
    }

    /// Evicts the oldest of the short queue, or moves it to the long queue if it was read.
    fn evict_short(&mut self) -> bool {
        let slot = self.short.oldest;
        let Slot { block, uses, .. } = self.slots[slot as usize];
        if uses == 0 {
            self.drop_slot(slot);
            self.ghost_number += 1;
            self.ghosts.insert(block, self.ghost_number);
            self.ghost_order.push_back((block, self.ghost_number));
            self.trim_ghosts();
            return true;
        }
        self.requeue(slot, 0);
        false
    }
    /// Evicts the oldest of the long queue, or reinserts it if it was read.
    fn evict_long(&mut self) -> bool {
        let slot = self.long.oldest;
        let uses = self.slots[slot as usize].uses;
        if uses == 0 {
            self.drop_slot(slot);
            return true;
        }
        self.requeue(slot, uses - 1);
        false
    }
    /// As the newest of the long queue.
    fn requeue(&mut self, slot: u32, uses: u8) {
        self.unlink(slot);
        self.slots[slot as usize].uses = uses;
        self.push(slot, Which::Long);
    }

    /// As many as blocks that it may keep.
    fn trim_ghosts(&mut self) {
        while self.ghost_order.len() > self.capacity {
            let (block, number) = self.ghost_order.pop_front().expect("it is longer than that");
            if self.ghosts.get(&block) == Some(&number) {
                self.ghosts.remove(&block);
            }
        }
    }

    fn drop_slot(&mut self, slot: u32) {
        self.unlink(slot);
        self.slots[slot as usize].which = Which::Free;
        self.place.remove(&self.slots[slot as usize].block);
        self.free.push(slot);
    }

    /// Moves a block to a free slot, at the same place in its queue.
    fn move_slot(&mut self, from: u32) {
        let to = self.free.pop().expect("what is left fits into the segments that are left");
        let slot = self.slots[from as usize];
        let bytes = self.bytes_of(from).to_vec();
        let at = to as usize % SEGMENT * BLOCK;
        self.segments[to as usize / SEGMENT][at..at + BLOCK].copy_from_slice(&bytes);
        self.slots[to as usize] = slot;
        self.slots[from as usize].which = Which::Free;
        self.place.insert(slot.block, to);
        match slot.newer {
            NONE => self.queue(slot.which).newest = to,
            newer => self.slots[newer as usize].older = to,
        }
        match slot.older {
            NONE => self.queue(slot.which).oldest = to,
            older => self.slots[older as usize].newer = to,
        }
    }

    fn queue(&mut self, which: Which) -> &mut Queue {
        match which {
            Which::Short => &mut self.short,
            Which::Long => &mut self.long,
            Which::Free => unreachable!("a free slot is in no queue"),
        }
    }
    fn push(&mut self, slot: u32, which: Which) {
        let queue = self.queue(which);
        let older = std::mem::replace(&mut queue.newest, slot);
        queue.len += 1;
        if older == NONE {
            queue.oldest = slot;
        } else {
            self.slots[older as usize].newer = slot;
        }
        let this = &mut self.slots[slot as usize];
        (this.newer, this.older, this.which) = (NONE, older, which);
    }
    fn unlink(&mut self, slot: u32) {
        let Slot { newer, older, which, .. } = self.slots[slot as usize];
        let queue = self.queue(which);
        queue.len -= 1;
        if newer == NONE {
            queue.newest = older;
        }
        if older == NONE {
            queue.oldest = newer;
        }
        if newer != NONE {
            self.slots[newer as usize].older = older;
        }
        if older != NONE {
            self.slots[older as usize].newer = newer;
        }
    }

    /// Gives what is wrong, one line each; `is_free` says of a block that it may hold anything.
    pub fn check(&self, is_free: impl Fn(u32) -> bool) -> Vec<String> {
        let mut wrong = Vec::new();
        if self.place.len() > self.capacity || self.short.len + self.long.len != self.place.len() {
            let (short, long) = (self.short.len, self.long.len);
            wrong.push(format!("the cache has {short} and {long} blocks, {} known", self.place.len()));
        }
        let freed = self.place.keys().chain(self.ghosts.keys()).filter(|block| is_free(**block));
        wrong.extend(freed.map(|block| format!("block {block} is in the cache and free")));
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_base::Rng;
    use std::collections::BTreeMap;

    fn content(block: u32, version: u32) -> Vec<u8> {
        [block.to_le_bytes(), version.to_le_bytes()].concat().repeat(BLOCK / 8)
    }

    #[test]
    fn it_gives_what_was_put_in_last_and_stays_within_its_limit() {
        let mut rng = Rng::new(1);
        let mut cache = Cache::default();
        let mut versions = BTreeMap::new();
        let mut found = 0;
        for turn in 0..40_000 {
            let block = rng.below(900) as u32;
            match rng.below(10) {
                0..=4 => match cache.get(block) {
                    Some(bytes) => {
                        found += 1;
                        assert!(bytes == content(block, versions[&block]));
                    }
                    None => {
                        let version = *versions.entry(block).or_insert(turn);
                        cache.insert(block, &content(block, version));
                    }
                },
                5 => {
                    cache.forget(block);
                    versions.remove(&block);
                    assert!(cache.get(block).is_none());
                }
                6 if rng.chance(20) => {
                    let blocks = rng.below(800) as usize;
                    cache.limit(blocks * BLOCK);
                    assert!(cache.bytes() <= blocks.div_ceil(SEGMENT) * SEGMENT * BLOCK);
                }
                _ => {}
            }
            if turn % 100 == 0 {
                assert_eq!(cache.check(|block| !versions.contains_key(&block)), [""; 0]);
            }
        }
        assert!(found > 3000, "only {found} were there");
    }

    #[test]
    fn what_is_written_and_not_read_takes_a_part_only() {
        let mut cache = Cache::default();
        cache.limit(1000 * BLOCK);
        (0..500).for_each(|block| cache.insert(block, &content(block, 0)));
        (0..500).for_each(|block| assert!(cache.get(block).is_some()));
        (1000..9000).for_each(|block| cache.insert_written(block, &content(block, 0)));
        let read = (0..500).filter(|block| cache.get(*block).is_some()).count();
        assert!(read > 480, "{read} of those that were read are left");
        let written = (1000..9000).filter(|block| cache.get(*block).is_some()).count();
        assert!((200..300).contains(&written), "{written} of those that were written are here");
        assert_eq!(cache.check(|_| false), [""; 0]);
    }

    #[test]
    fn reading_everything_once_leaves_what_is_read_often() {
        let mut cache = Cache::default();
        cache.limit(1000 * BLOCK);
        let mut read = |block: u32| {
            let is_here = cache.get(block).is_some();
            if !is_here {
                cache.insert(block, &content(block, 0));
            }
            is_here
        };
        for _ in 0..3 {
            (0..800).for_each(|block| _ = read(block));
        }
        (10_000..40_000).for_each(|block| _ = read(block));
        let kept = (0..800).filter(|block| read(*block)).count();
        assert!(kept > 780, "{kept} of 800 are left");
    }
}
