//! Sets of numbers kept as disjoint ranges. Ceph: `interval_set`.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of `u64` as half-open ranges: disjoint, never touching, never empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntervalSet {
    /// start -> end
    ranges: BTreeMap<u64, u64>,
}

impl IntervalSet {
    pub fn new() -> IntervalSet {
        IntervalSet::default()
    }
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.ranges.iter().map(|(&start, &end)| start..end)
    }
    pub fn num_ranges(&self) -> usize {
        self.ranges.len()
    }
    /// How many numbers are in the set.
    pub fn size(&self) -> u64 {
        self.iter().map(|r| r.end - r.start).sum()
    }
    pub fn contains(&self, n: u64) -> bool {
        self.ranges.range(..=n).next_back().is_some_and(|(_, &end)| n < end)
    }
    pub fn overlaps(&self, range: Range<u64>) -> bool {
        !range.is_empty()
            && self.ranges.range(..range.end).next_back().is_some_and(|(_, &end)| end > range.start)
    }
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        // Swallow every range that overlaps or touches the new one.
        while let Some((&s, &e)) = self.ranges.range(..=end).next_back() {
            if e < start {
                break;
            }
            self.ranges.remove(&s);
            start = start.min(s);
            end = end.max(e);
        }
        self.ranges.insert(start, end);
    }
    /// Whether any of it was there.
    pub fn remove(&mut self, range: Range<u64>) -> bool {
        let mut had_some = false;
        if range.is_empty() {
            return had_some;
        }
        while let Some((&s, &e)) = self.ranges.range(..range.end).next_back() {
            if e <= range.start {
                break;
            }
            self.ranges.remove(&s);
            had_some = true;
            if e > range.end {
                self.ranges.insert(range.end, e);
            }
            if s < range.start {
                self.ranges.insert(s, range.start);
                break;
            }
        }
        had_some
    }
    pub fn add(&mut self, other: &IntervalSet) {
        other.iter().for_each(|range| self.insert(range));
    }
    pub fn subtract(&mut self, other: &IntervalSet) {
        other.iter().for_each(|range| _ = self.remove(range));
    }
    /// Closes the smallest gaps until there are at most `max` ranges.
    pub fn coarsen(&mut self, max: usize) {
        let Some(surplus) = self.ranges.len().checked_sub(max.max(1)).filter(|n| *n > 0) else { return };
        let gaps = self.iter().zip(self.iter().skip(1)).map(|(one, next)| one.end..next.start);
        let len = |gap: &Range<u64>| gap.end - gap.start;
        // As it is mostly, where ranges come one by one.
        if surplus == 1 {
            let smallest = gaps.min_by_key(len).expect("there are two ranges at least");
            return self.insert(smallest);
        }
        let mut gaps: Vec<Range<u64>> = gaps.collect();
        gaps.sort_by_key(len);
        gaps.into_iter().take(surplus).for_each(|gap| self.insert(gap));
    }
    pub fn intersection(&self, with: &IntervalSet) -> IntervalSet {
        let mut both = IntervalSet::new();
        for r in self.iter() {
            let from = with.ranges.range(..=r.start).next_back().map_or(r.start, |(&s, _)| s);
            for (&s, &e) in with.ranges.range(from..r.end) {
                both.insert(s.max(r.start)..e.min(r.end));
            }
        }
        both
    }
}

impl From<Range<u64>> for IntervalSet {
    fn from(range: Range<u64>) -> IntervalSet {
        [range].into_iter().collect()
    }
}
impl FromIterator<Range<u64>> for IntervalSet {
    fn from_iter<I: IntoIterator<Item = Range<u64>>>(ranges: I) -> IntervalSet {
        let ranges: Vec<Range<u64>> = ranges.into_iter().collect();
        // As a set gives them: then nothing has to be looked for.
        let is_set = ranges.iter().all(|range| !range.is_empty())
            && ranges.windows(2).all(|two| two[0].end < two[1].start);
        if is_set {
            return IntervalSet {
                ranges: ranges.into_iter().map(|range| (range.start, range.end)).collect(),
            };
        }
        let mut set = IntervalSet::new();
        ranges.into_iter().for_each(|range| set.insert(range));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_ranges_are_joined_where_little_lies_between() {
        let mut set: IntervalSet = [0..10, 12..20, 100..110, 111..120, 500..501].into_iter().collect();
        set.coarsen(5);
        assert_eq!(set.num_ranges(), 5);
        set.coarsen(4);
        assert_eq!(set.iter().collect::<Vec<_>>(), [0..10, 12..20, 100..120, 500..501]);
        set.coarsen(3);
        assert_eq!(set.iter().collect::<Vec<_>>(), [0..20, 100..120, 500..501]);
        set.coarsen(0);
        assert_eq!(set, IntervalSet::from(0..501));
    }

    #[test]
    fn agrees_with_a_plain_set_under_random_edits() {
        let mut rng = crate::Rng::new(7);
        for _ in 0..300 {
            let (mut set, mut other) = (IntervalSet::new(), IntervalSet::new());
            let (mut plain, mut plain_other) = ([false; 64], [false; 64]);
            for _ in 0..30 {
                let a = rng.below(64);
                let r = a..a + rng.below(64 - a + 1);
                match rng.below(3) {
                    0 => (set.insert(r.clone()), plain[r.start as usize..r.end as usize].fill(true)),
                    1 => {
                        let cleared = &mut plain[r.start as usize..r.end as usize];
                        assert_eq!(set.remove(r.clone()), cleared.contains(&true));
                        ((), cleared.fill(false))
                    }
                    _ => (other.insert(r.clone()), plain_other[r.start as usize..r.end as usize].fill(true)),
                };
                for n in 0..64 {
                    assert_eq!(set.contains(n), plain[n as usize]);
                }
                assert_eq!(set.size(), plain.iter().filter(|x| **x).count() as u64);
                assert_eq!(set.overlaps(r.clone()), r.into_iter().any(|n| plain[n as usize]));
                let both = set.intersection(&other);
                assert!((0..64).all(|n| both.contains(n) == (plain[n as usize] && plain_other[n as usize])));
                let (mut sum, mut rest) = (set.clone(), set.clone());
                sum.add(&other);
                rest.subtract(&other);
                assert!((0..64).all(|n| sum.contains(n) == (plain[n as usize] || plain_other[n as usize])));
                assert!((0..64).all(|n| rest.contains(n) == (plain[n as usize] && !plain_other[n as usize])));
                let ranges: Vec<_> = set.iter().collect();
                assert!(ranges.windows(2).all(|w| w[0].end < w[1].start), "ranges touch: {ranges:?}");
            }
        }
    }
}
