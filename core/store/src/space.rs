//! The allocator: a bitmap of the blocks with a summary, searched best-fit from a moving cursor.

/// Blocks that are looked for one after the other while more than a `PLENTY`th of all are free.
const SMALL_MAX: u32 = 16;
const PLENTY: u32 = 8;
/// Holes that a search examines, and words of the bitmap that it reads, at most.
const LOOKS: usize = 256;
const WORDS: u32 = 1024;

/// `len` blocks from `start` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub start: u32,
    pub len: u32,
}

impl Extent {
    pub fn blocks(self) -> std::ops::Range<u32> {
        self.start..self.start + self.len
    }
    /// Whether they have a block in common.
    pub fn overlaps(self, other: Extent) -> bool {
        self.start < other.start + other.len && other.start < self.start + self.len
    }
}

/// A search reads at most one summary bit per 64 blocks, so its cost has a small bound.
#[derive(Debug)]
pub(crate) struct Space {
    /// One bit per block, set if taken; bits past the end are set.
    taken: Vec<u64>,
    /// One bit per word of `taken`, set if that word is full.
    full: Vec<u64>,
    blocks: u32,
    free: u32,
    cursor: u32,
}

impl Space {
    /// All from `start` on free.
    pub fn all_free(start: u32, blocks: u32) -> Space {
        let mut space = Space::new(blocks);
        let (first, end) = (start.div_ceil(64).min(blocks / 64), blocks / 64);
        space.taken[first as usize..end as usize].fill(0);
        (first..end).for_each(|word| space.full[word as usize / 64] &= !(1 << (word % 64)));
        space.free = (end - first) * 64;
        (start..(first * 64).max(start))
            .chain((end * 64).max(start)..blocks)
            .for_each(|block| space.release(block));
        space
    }
    /// All of `0..blocks` taken.
    pub fn new(blocks: u32) -> Space {
        let words = blocks.div_ceil(64) as usize;
        Space {
            taken: vec![u64::MAX; words],
            full: vec![u64::MAX; words.div_ceil(64)],
            blocks,
            free: 0,
            cursor: 0,
        }
    }
    pub fn free(&self) -> u32 {
        self.free
    }
    pub fn is_taken(&self, block: u32) -> bool {
        self.taken[block as usize / 64] & (1 << (block % 64)) != 0
    }
    pub fn release(&mut self, block: u32) {
        assert!(block < self.blocks && self.is_taken(block), "block {block} was free already");
        let word = block as usize / 64;
        self.taken[word] &= !(1 << (block % 64));
        self.full[word / 64] &= !(1 << (word % 64));
        self.free += 1;
    }
    pub fn take(&mut self, block: u32) {
        assert!(!self.is_taken(block), "block {block} was taken already");
        let word = block as usize / 64;
        self.taken[word] |= 1 << (block % 64);
        if self.taken[word] == u64::MAX {
            self.full[word / 64] |= 1 << (word % 64);
        }
        self.free -= 1;
    }
    pub fn take_all(&mut self, extent: Extent) {
        extent.blocks().for_each(|block| self.take(block));
    }
    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.taken.len() * 8 + self.full.len() * 8
    }
    /// Takes up to `max` neighbouring blocks; None if none is free.
    ///
    /// A small piece goes where the last one went, which keeps small writes together, while there is plenty
    /// of space. Else several holes are examined: the smallest that is long enough is taken, or the longest
    /// of them. Otherwise a store that is nearly full would soon be one of holes of single blocks.
    pub fn take_extent(&mut self, max: u32) -> Option<Extent> {
        let is_easy = max <= SMALL_MAX && self.free > self.blocks / PLENTY;
        let extent = self.best_hole(max, if is_easy { 1 } else { LOOKS })?;
        extent.blocks().for_each(|block| self.take(block));
        let end = extent.start + extent.len;
        self.cursor = if end < self.blocks { end } else { 0 };
        Some(extent)
    }

    /// The one that fits best of the next `looks` holes behind the cursor.
    fn best_hole(&self, max: u32, looks: usize) -> Option<Extent> {
        let mut best: Option<Extent> = None;
        let mut from = self.cursor;
        let mut words_left = WORDS;
        let mut is_over_end = false;
        for look in 1..=looks {
            let Some(start) = self.next_free(from) else {
                if is_over_end {
                    break;
                }
                (is_over_end, from) = (true, 0);
                continue;
            };
            // What is full was passed over in the summary, 64 words at a time.
            words_left = words_left.saturating_sub(start.saturating_sub(from) / (64 * 64)).max(1);
            // Twice what is wanted is as good as endless.
            let end = self.hole_end(start, max.saturating_mul(2), &mut words_left);
            let len = end - start;
            let is_better =
                best.is_none_or(
                    |best| {
                        if best.len >= max { len >= max && len < best.len } else { len > best.len }
                    },
                );
            if is_better {
                best = Some(Extent { start, len });
            }
            if len == max || words_left <= 1 || look == looks {
                break;
            }
            from = self.hole_end(end, u32::MAX, &mut words_left);
        }
        // The last look may have gone into turning back.
        let best = best.or_else(|| {
            let start = self.next_free(0)?;
            Some(Extent { start, len: self.hole_end(start, max, &mut WORDS.clone()) - start })
        })?;
        Some(Extent { len: best.len.min(max), ..best })
    }

    /// Where the hole that `start` is in ends, `max` blocks on at most, or where there is no word left to be
    /// read.
    fn hole_end(&self, start: u32, max: u32, words_left: &mut u32) -> u32 {
        let limit = start.saturating_add(max).min(self.blocks);
        let mut at = start;
        while at < limit {
            let taken = self.taken[at as usize / 64] >> (at % 64);
            if taken != 0 {
                return (at + taken.trailing_zeros()).min(limit);
            }
            at = (at / 64 + 1) * 64;
            *words_left = words_left.saturating_sub(1);
            if *words_left == 0 {
                break;
            }
        }
        at.min(limit)
    }

    fn next_free(&self, from: u32) -> Option<u32> {
        let word = from as usize / 64;
        let here = !self.taken.get(word)? & (u64::MAX << (from % 64));
        if here != 0 {
            return Some(word as u32 * 64 + here.trailing_zeros());
        }
        let next = word + 1;
        let mut mask = u64::MAX << (next % 64);
        for (at, full) in self.full.iter().enumerate().skip(next / 64) {
            let open = !full & mask;
            mask = u64::MAX;
            if open != 0 {
                let word = at * 64 + open.trailing_zeros() as usize;
                return Some(word as u32 * 64 + (!self.taken[word]).trailing_zeros());
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_base::Rng;

    #[test]
    fn agrees_with_a_plain_list_of_flags() {
        let mut rng = Rng::new(1);
        for blocks in [1_u32, 63, 64, 65, 4096, 9000] {
            let mut space = Space::new(blocks);
            let mut taken = vec![true; blocks as usize];
            for _ in 0..2000 {
                if rng.chance(500) {
                    let block = rng.below(blocks.into()) as u32;
                    if std::mem::replace(&mut taken[block as usize], false) {
                        space.release(block);
                    }
                } else {
                    match space.take_extent(1 + rng.below(5) as u32) {
                        Some(extent) => extent
                            .blocks()
                            .for_each(|b| assert!(!std::mem::replace(&mut taken[b as usize], true))),
                        None => assert!(taken.iter().all(|t| *t)),
                    }
                }
                assert_eq!(space.free() as usize, taken.iter().filter(|t| !**t).count());
            }
        }
    }
}
