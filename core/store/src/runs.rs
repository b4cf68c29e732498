//! A number for each of some blocks, kept by runs of neighbours that have the same.

use crate::space::Run;
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunMap {
    /// First block -> the block behind the last one, and the number of each.
    runs: BTreeMap<u32, (u32, u32)>,
}

impl RunMap {
    /// Runs.
    pub fn len(&self) -> usize {
        self.runs.len()
    }
    pub fn get(&self, block: u32) -> Option<u32> {
        let (_, (end, value)) = self.runs.range(..=block).next_back()?;
        (block < *end).then_some(*value)
    }
    /// In order.
    pub fn iter(&self) -> impl Iterator<Item = (Run, u32)> {
        self.runs.iter().map(|(start, (end, value))| (Run { start: *start, len: end - start }, *value))
    }
    /// All of `run` in parts, each with what it has.
    pub fn parts(&self, run: Run) -> Vec<(Run, Option<u32>)> {
        let (mut at, to) = (run.start, run.start + run.len);
        let mut parts = Vec::new();
        let first = self.runs.range(..=at).next_back().map_or(at, |(start, _)| *start);
        for (start, (end, value)) in self.runs.range(first..to) {
            let (from, until) = ((*start).max(at), (*end).min(to));
            if from >= until {
                continue;
            }
            if at < from {
                parts.push((Run { start: at, len: from - at }, None));
            }
            parts.push((Run { start: from, len: until - from }, Some(*value)));
            at = until;
        }
        if at < to {
            parts.push((Run { start: at, len: to - at }, None));
        }
        parts
    }
    /// Gives each block of `run` this number, or takes it away.
    pub fn set(&mut self, run: Run, value: Option<u32>) {
        let (mut from, mut to) = (run.start, run.start + run.len);
        // What reaches in from the left, then what begins inside.
        if let Some((&start, &(end, old))) = self.runs.range(..from).next_back()
            && end >= from
        {
            if Some(old) == value {
                (from, to) = (start, to.max(end));
            } else if end > from {
                self.runs.insert(start, (from, old));
                if end > to {
                    self.runs.insert(to, (end, old));
                }
            }
        }
        while let Some((&start, &(end, old))) = self.runs.range(from..=to).next() {
            if start == to && Some(old) != value {
                break;
            }
            self.runs.remove(&start);
            if Some(old) == value {
                to = to.max(end);
            } else if end > to {
                self.runs.insert(to, (end, old));
                break;
            }
        }
        if let Some(value) = value {
            self.runs.insert(from, (to, value));
        }
    }
}

/// Joins neighbours, in the order in which they come.
pub(crate) fn joined(blocks: &[u32]) -> impl Iterator<Item = Run> + '_ {
    blocks.chunk_by(|a, b| a + 1 == *b).map(|run| Run { start: run[0], len: run.len() as u32 })
}

/// What is in `newer` over what is in `older`, both in order.
pub(crate) fn overlaid(older: &[(Run, u32)], newer: &[(Run, u32)]) -> Vec<(Run, u32)> {
    let mut out: Vec<(Run, u32)> = Vec::with_capacity(older.len() + newer.len());
    let end = |run: Run| run.start + run.len;
    let (mut old, mut new, mut at) = (older.iter().peekable(), newer.iter().peekable(), 0);
    loop {
        while old.next_if(|(run, _)| end(*run) <= at).is_some() {}
        while new.next_if(|(run, _)| end(*run) <= at).is_some() {}
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
            _ => out.push((Run { start: at, len: until - at }, value)),
        }
        at = until;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_base::Rng;

    fn plain(runs: impl Iterator<Item = (Run, u32)>) -> BTreeMap<u32, u32> {
        runs.flat_map(|(run, value)| run.blocks().map(move |block| (block, value))).collect()
    }

    #[test]
    fn they_agree_with_a_plain_map_and_neighbours_are_one() {
        let (mut runs, mut map) = (RunMap::default(), BTreeMap::new());
        let mut rng = Rng::new(1);
        for _ in 0..20_000 {
            let run = Run { start: rng.below(50) as u32, len: 1 + rng.below(9) as u32 };
            let value = Some(rng.below(3) as u32).filter(|value| *value > 0);
            runs.set(run, value);
            for block in run.blocks() {
                match value {
                    Some(value) => drop(map.insert(block, value)),
                    None => drop(map.remove(&block)),
                }
            }
            assert_eq!(plain(runs.iter()), map);
            let all: Vec<_> = runs.iter().collect();
            assert!(
                all.windows(2)
                    .all(|two| two[0].0.start + two[0].0.len < two[1].0.start || two[0].1 != two[1].1)
            );
            let parts = runs.parts(run);
            let blocks: Vec<u32> = parts.iter().flat_map(|(run, _)| run.blocks()).collect();
            assert!(blocks.into_iter().eq(run.blocks()));
            assert!(parts.iter().all(|(part, value)| part.blocks().all(|block| runs.get(block) == *value)));
        }
    }

    #[test]
    fn what_is_newer_covers_what_is_older() {
        let mut rng = Rng::new(2);
        for _ in 0..3000 {
            let mut some = || {
                let mut runs = RunMap::default();
                for _ in 0..rng.below(8) {
                    let run = Run { start: rng.below(60) as u32, len: 1 + rng.below(20) as u32 };
                    runs.set(run, Some(rng.below(3) as u32));
                }
                runs
            };
            let (older, newer) = (some(), some());
            let list = |runs: &RunMap| runs.iter().collect::<Vec<_>>();
            let mut both = plain(older.iter());
            both.extend(plain(newer.iter()));
            assert_eq!(plain(overlaid(&list(&older), &list(&newer)).into_iter()), both);
        }
    }
}
