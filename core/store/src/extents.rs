//! Where an object's data is: runs of neighbouring blocks, in order, as few as there can be.

use crate::few::{Few, FewBlocks};
use crate::index::Placement;
use crate::space::Run;

/// Position in the object, in blocks -> block of the device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extents {
    runs: Few<Placement>,
    len: u32,
}

impl Placement {
    fn end(&self) -> u32 {
        self.at + self.blocks.len
    }
    fn block(&self, at: u32) -> u32 {
        self.blocks.start + (at - self.at)
    }
    /// Whether `other` follows, in the object and on the device.
    fn meets(&self, other: &Placement) -> bool {
        self.end() == other.at && self.blocks.start + self.blocks.len == other.blocks.start
    }
    /// The part from `at` on.
    fn from(&self, at: u32) -> Placement {
        Placement { at, blocks: Run { start: self.block(at), len: self.end() - at } }
    }
    /// The part up to `at`.
    fn up_to(&self, at: u32) -> Placement {
        Placement { at: self.at, blocks: Run { start: self.blocks.start, len: at - self.at } }
    }
}

impl Extents {
    /// Blocks.
    pub fn len(&self) -> usize {
        self.len as usize
    }
    pub fn get(&self, at: u32) -> Option<u32> {
        let run = self.runs.get(self.first_ending_behind(at))?;
        (run.at <= at).then(|| run.block(at))
    }
    pub fn runs(&self) -> &[Placement] {
        &self.runs
    }
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.runs.iter().flat_map(|run| run.pairs())
    }
    pub fn blocks(&self) -> impl Iterator<Item = u32> + '_ {
        self.runs.iter().flat_map(|run| run.blocks.blocks())
    }
    /// The parts of runs that are in `from..to`.
    pub fn range(&self, from: u32, to: u32) -> impl Iterator<Item = Placement> + '_ {
        let runs = self.runs[self.first_ending_behind(from)..].iter();
        let runs = runs.take_while(move |run| from < to && run.at < to);
        runs.map(move |run| {
            let run = if run.at < from { run.from(from) } else { *run };
            if run.end() > to { run.up_to(to) } else { run }
        })
    }

    /// Makes a hole of `from..to`; gives the blocks that were there.
    pub fn remove(&mut self, from: u32, to: u32) -> FewBlocks {
        let removed: FewBlocks = self.range(from, to).flat_map(|run| run.blocks.blocks()).collect();
        if removed.is_empty() {
            return removed;
        }
        let first = self.first_ending_behind(from);
        let end = first + self.runs[first..].iter().take_while(|run| run.at < to).count();
        let before = Some(self.runs[first]).filter(|run| run.at < from).map(|run| run.up_to(from));
        let behind = Some(self.runs[end - 1]).filter(|run| run.end() > to).map(|run| run.from(to));
        self.make_room(first, end, 2);
        self.runs.drain(first..end);
        self.runs.insert_many(first, before.into_iter().chain(behind));
        self.len -= removed.len() as u32;
        removed
    }

    /// Puts a run over whatever is there; gives the blocks that were.
    pub fn insert(&mut self, run: Placement) -> FewBlocks {
        let mut at = self.first_ending_behind(run.at);
        let same = self.runs.get_mut(at).filter(|old| old.at == run.at && old.blocks.len == run.blocks.len);
        let removed = if let Some(old) = same {
            // Thousands of runs may follow, in an object that is written over block by block.
            std::mem::replace(&mut old.blocks, run.blocks).blocks().collect()
        } else {
            let removed = self.remove(run.at, run.end());
            self.len += run.blocks.len;
            at = self.first_ending_behind(run.at);
            if at > 0 && self.runs[at - 1].meets(&run) {
                at -= 1;
                self.runs[at].blocks.len += run.blocks.len;
            } else {
                self.make_room(at, at, 1);
                self.runs.insert(at, run);
            }
            removed
        };
        self.join(at);
        if at > 0 {
            self.join(at - 1);
        }
        removed
    }

    /// Makes one run of this and the next, if it can be.
    fn join(&mut self, at: usize) {
        if let Some(next) = self.runs.get(at + 1).copied()
            && self.runs[at].meets(&next)
        {
            self.runs[at].blocks.len += next.blocks.len;
            self.runs.remove(at + 1);
        }
    }

    /// The first run that ends behind `at`.
    fn first_ending_behind(&self, at: u32) -> usize {
        self.runs.partition_point(|run| run.end() <= at)
    }
    /// Before `more` runs replace some. Most objects have one or two: those get no spare room.
    fn make_room(&mut self, first: usize, end: usize, more: usize) {
        let needed = (self.runs.len() + more).saturating_sub(end - first);
        if needed > self.runs.capacity() && needed <= 8 {
            self.runs.reserve_exact(needed - self.runs.len());
        }
    }
}

impl FromIterator<Placement> for Extents {
    fn from_iter<I: IntoIterator<Item = Placement>>(runs: I) -> Extents {
        let mut extents = Extents::default();
        runs.into_iter().for_each(|run| drop(extents.insert(run)));
        extents
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_base::Rng;
    use std::collections::BTreeMap;

    #[test]
    fn they_agree_with_a_map_of_blocks_and_neighbours_are_one() {
        let (mut extents, mut map) = (Extents::default(), BTreeMap::new());
        let mut rng = Rng::new(1);
        for _ in 0..20_000 {
            let (at, len) = (rng.below(40) as u32, 1 + rng.below(6) as u32);
            let mut old = Vec::new();
            let given = if rng.chance(700) {
                // Few blocks, so that runs often meet.
                let run = Placement { at, blocks: Run { start: 100 + at + 10 * rng.below(2) as u32, len } };
                old.extend(run.pairs().filter_map(|(at, block)| map.insert(at, block)));
                extents.insert(run)
            } else {
                old.extend((at..at + len).filter_map(|at| map.remove(&at)));
                extents.remove(at, at + len)
            };
            assert_eq!(given[..], old);
            assert!(extents.iter().eq(map.iter().map(|(at, block)| (*at, *block))));
            assert_eq!(extents.len(), map.len());
            assert_eq!(extents.get(at), map.get(&at).copied());
            assert!(extents.runs.windows(2).all(|two| !two[0].meets(&two[1])));
            let part: Vec<_> = extents.range(at, at + len).flat_map(Placement::pairs).collect();
            assert!(part.into_iter().eq(map.range(at..at + len).map(|(at, block)| (*at, *block))));
        }
    }
}
