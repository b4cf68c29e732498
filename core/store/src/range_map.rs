//! A map from blocks to numbers, stored as extents of neighbours with the same number.

use crate::space::Extent;
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RangeMap {
    /// First block -> the block behind the last one, and the number of each.
    extents: BTreeMap<u32, (u32, u32)>,
}

impl RangeMap {
    /// Runs.
    pub fn len(&self) -> usize {
        self.extents.len()
    }
    pub fn get(&self, block: u32) -> Option<u32> {
        let (_, (end, value)) = self.extents.range(..=block).next_back()?;
        (block < *end).then_some(*value)
    }
    /// In order.
    pub fn iter(&self) -> impl Iterator<Item = (Extent, u32)> {
        self.extents.iter().map(|(start, (end, value))| (Extent { start: *start, len: end - start }, *value))
    }
    /// All of `extent` in parts, each with what it has.
    pub fn parts(&self, extent: Extent) -> Vec<(Extent, Option<u32>)> {
        let (mut at, to) = (extent.start, extent.start + extent.len);
        let mut parts = Vec::new();
        let first = self.extents.range(..=at).next_back().map_or(at, |(start, _)| *start);
        for (start, (end, value)) in self.extents.range(first..to) {
            let (from, until) = ((*start).max(at), (*end).min(to));
            if from >= until {
                continue;
            }
            if at < from {
                parts.push((Extent { start: at, len: from - at }, None));
            }
            parts.push((Extent { start: from, len: until - from }, Some(*value)));
            at = until;
        }
        if at < to {
            parts.push((Extent { start: at, len: to - at }, None));
        }
        parts
    }
    /// Gives each block of `extent` this number, or takes it away.
    pub fn set(&mut self, extent: Extent, value: Option<u32>) {
        let (mut from, mut to) = (extent.start, extent.start + extent.len);
        // What reaches in from the left, then what begins inside.
        if let Some((&start, &(end, old))) = self.extents.range(..from).next_back()
            && end >= from
        {
            if Some(old) == value {
                (from, to) = (start, to.max(end));
            } else if end > from {
                self.extents.insert(start, (from, old));
                if end > to {
                    self.extents.insert(to, (end, old));
                }
            }
        }
        while let Some((&start, &(end, old))) = self.extents.range(from..=to).next() {
            if start == to && Some(old) != value {
                break;
            }
            self.extents.remove(&start);
            if Some(old) == value {
                to = to.max(end);
            } else if end > to {
                self.extents.insert(to, (end, old));
                break;
            }
        }
        if let Some(value) = value {
            self.extents.insert(from, (to, value));
        }
    }
}

/// Joins neighbours, in the order in which they come.
pub(crate) fn joined(blocks: &[u32]) -> impl Iterator<Item = Extent> + '_ {
    blocks.chunk_by(|a, b| a + 1 == *b).map(|extent| Extent { start: extent[0], len: extent.len() as u32 })
}

/// What is in `newer` over what is in `older`, both in order.
pub(crate) fn overlaid(older: &[(Extent, u32)], newer: &[(Extent, u32)]) -> Vec<(Extent, u32)> {
    let mut out: Vec<(Extent, u32)> = Vec::with_capacity(older.len() + newer.len());
    let end = |extent: Extent| extent.start + extent.len;
    let (mut old, mut new, mut at) = (older.iter().peekable(), newer.iter().peekable(), 0);
    loop {
        while old.next_if(|(extent, _)| end(*extent) <= at).is_some() {}
        while new.next_if(|(extent, _)| end(*extent) <= at).is_some() {}
        let (until, value) = match (old.peek(), new.peek()) {
            (None, None) => return out,
            (Some((old, _)), Some((new, value))) if new.start <= old.start.max(at) => {
                at = at.max(new.start);
                (end(*new), *value)
            }
            (None, Some((new, value))) => {
                at = at.max(new.start);
                (end(*new), *value)
            }
            (Some((old, value)), new) => {
                at = at.max(old.start);
                (new.map_or(end(*old), |(new, _)| new.start.min(end(*old))), *value)
            }
        };
        match out.last_mut() {
            Some((last, same)) if end(*last) == at && *same == value => last.len += until - at,
            _ => out.push((Extent { start: at, len: until - at }, value)),
        }
        at = until;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_base::Rng;

    fn plain(extents: impl Iterator<Item = (Extent, u32)>) -> BTreeMap<u32, u32> {
        extents.flat_map(|(extent, value)| extent.blocks().map(move |block| (block, value))).collect()
    }

    #[test]
    fn they_agree_with_a_plain_map_and_neighbours_are_one() {
        let (mut extents, mut map) = (RangeMap::default(), BTreeMap::new());
        let mut rng = Rng::new(1);
        for _ in 0..20_000 {
            let extent = Extent { start: rng.below(50) as u32, len: 1 + rng.below(9) as u32 };
            let value = Some(rng.below(3) as u32).filter(|value| *value > 0);
            extents.set(extent, value);
            for block in extent.blocks() {
                match value {
                    Some(value) => drop(map.insert(block, value)),
                    None => drop(map.remove(&block)),
                }
            }
            assert_eq!(plain(extents.iter()), map);
            let all: Vec<_> = extents.iter().collect();
            assert!(
                all.windows(2)
                    .all(|two| two[0].0.start + two[0].0.len < two[1].0.start || two[0].1 != two[1].1)
            );
            let parts = extents.parts(extent);
            let blocks: Vec<u32> = parts.iter().flat_map(|(extent, _)| extent.blocks()).collect();
            assert!(blocks.into_iter().eq(extent.blocks()));
            assert!(
                parts.iter().all(|(part, value)| part.blocks().all(|block| extents.get(block) == *value))
            );
        }
    }

    #[test]
    fn what_is_newer_covers_what_is_older() {
        let mut rng = Rng::new(2);
        for _ in 0..3000 {
            let mut some = || {
                let mut extents = RangeMap::default();
                for _ in 0..rng.below(8) {
                    let extent = Extent { start: rng.below(60) as u32, len: 1 + rng.below(20) as u32 };
                    extents.set(extent, Some(rng.below(3) as u32));
                }
                extents
            };
            let (older, newer) = (some(), some());
            let list = |extents: &RangeMap| extents.iter().collect::<Vec<_>>();
            let mut both = plain(older.iter());
            both.extend(plain(newer.iter()));
            assert_eq!(plain(overlaid(&list(&older), &list(&newer)).into_iter()), both);
        }
    }
}
