//! Sets of names kept as disjoint ranges: single keys, stretches, or all from some key on.

use crate::Name;
use std::collections::BTreeMap;

/// A set of names as half-open ranges, disjoint and never empty. A range without an end holds all
/// names from its start on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyRanges {
    /// start -> end
    ranges: BTreeMap<Name, Option<Name>>,
}

/// The first name after `key`.
pub fn key_after(key: &Name) -> Name {
    Name::new([key.as_bytes(), &[0]].concat())
}

/// Whether something that ends there goes beyond `key`.
fn is_after(end: &Option<Name>, key: &Name) -> bool {
    end.as_ref().is_none_or(|end| end > key)
}
fn sooner(a: &Option<Name>, b: &Option<Name>) -> Option<Name> {
    [a, b].into_iter().flatten().min().cloned()
}
fn later(a: Option<Name>, b: Option<Name>) -> Option<Name> {
    a.zip(b).map(|(a, b)| a.max(b))
}

impl KeyRanges {
    pub fn all() -> KeyRanges {
        KeyRanges { ranges: [(Name::default(), None)].into() }
    }
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
    pub fn len(&self) -> usize {
        self.ranges.len()
    }
    pub fn iter(&self) -> impl Iterator<Item = (&Name, Option<&Name>)> {
        self.ranges.iter().map(|(start, end)| (start, end.as_ref()))
    }
    pub fn contains(&self, key: &Name) -> bool {
        self.ranges.range::<Name, _>(..=key).next_back().is_some_and(|(_, end)| is_after(end, key))
    }
    pub fn insert_key(&mut self, key: &Name) {
        self.insert(key.clone(), Some(key_after(key)));
    }
    /// Whether it was there.
    pub fn remove_key(&mut self, key: &Name) -> bool {
        self.remove(key, Some(&key_after(key)))
    }
    pub fn insert(&mut self, mut start: Name, mut end: Option<Name>) {
        if !is_after(&end, &start) {
            return;
        }
        // Swallow every range that overlaps or touches the new one.
        loop {
            let last = match &end {
                Some(end) => self.ranges.range::<Name, _>(..=end).next_back(),
                None => self.ranges.last_key_value(),
            };
            let Some((s, e)) = last else { break };
            if e.as_ref().is_some_and(|e| *e < start) {
                break;
            }
            let s = s.clone();
            let e = self.ranges.remove(&s).expect("just found");
            start = start.min(s);
            end = later(end, e);
        }
        self.ranges.insert(start, end);
    }
    /// Whether any of it was there.
    pub fn remove(&mut self, start: &Name, end: Option<&Name>) -> bool {
        let mut had_some = false;
        if end.is_some_and(|end| end <= start) {
            return had_some;
        }
        loop {
            let last = match end {
                Some(end) => self.ranges.range::<Name, _>(..end).next_back(),
                None => self.ranges.last_key_value(),
            };
            let Some((s, e)) = last else { break };
            if !is_after(e, start) {
                break;
            }
            let s = s.clone();
            let e = self.ranges.remove(&s).expect("just found");
            had_some = true;
            if let Some(end) = end.filter(|end| is_after(&e, end)) {
                self.ranges.insert(end.clone(), e);
            }
            if s < *start {
                self.ranges.insert(s, Some(start.clone()));
                break;
            }
        }
        had_some
    }
    /// One range from the first name to the last if there are more than `max`.
    pub fn coarsen(&mut self, max: usize) {
        if self.ranges.len() <= max {
            return;
        }
        if let Some((start, _)) = self.ranges.first_key_value()
            && let Some((_, end)) = self.ranges.last_key_value()
        {
            self.insert(start.clone(), end.clone());
        }
    }
    pub fn add(&mut self, other: &KeyRanges) {
        if self.is_empty() {
            return self.clone_from(other);
        }
        other.iter().for_each(|(start, end)| self.insert(start.clone(), end.cloned()));
    }
    pub fn subtract(&mut self, other: &KeyRanges) {
        if self.len() >= other.len() {
            return other.iter().for_each(|(start, end)| _ = self.remove(start, end));
        }
        // Few are here: most of the others are elsewhere.
        let shared = self.intersection(other);
        shared.iter().for_each(|(start, end)| _ = self.remove(start, end));
    }
    pub fn intersection(&self, with: &KeyRanges) -> KeyRanges {
        let (few, many) = self.by_number(with);
        let shared = few.ranges.iter().flat_map(|(start, end)| many.within(start, end));
        KeyRanges { ranges: shared.collect() }
    }
    /// Whether they have any name in common.
    pub fn overlaps(&self, with: &KeyRanges) -> bool {
        let (few, many) = self.by_number(with);
        few.ranges.iter().any(|(start, end)| many.within(start, end).next().is_some())
    }
    fn by_number<'a>(&'a self, with: &'a KeyRanges) -> (&'a KeyRanges, &'a KeyRanges) {
        if self.len() <= with.len() { (self, with) } else { (with, self) }
    }
    /// What is here of the names from `start` to `end`.
    fn within<'a>(
        &'a self,
        start: &'a Name,
        end: &'a Option<Name>,
    ) -> impl Iterator<Item = (Name, Option<Name>)> + 'a {
        let before = self.ranges.range::<Name, _>(..start).next_back().filter(|(_, e)| is_after(e, start));
        let rest = self.ranges.range::<Name, _>(start..).take_while(|(s, _)| is_after(end, s));
        before.into_iter().chain(rest).map(|(s, e)| (s.max(start).clone(), sooner(e, end)))
    }
}

impl FromIterator<(Name, Option<Name>)> for KeyRanges {
    fn from_iter<I: IntoIterator<Item = (Name, Option<Name>)>>(ranges: I) -> KeyRanges {
        let ranges: Vec<_> = ranges.into_iter().collect();
        // As they are mostly, and a member may lack a hundred thousand keys: no search for their places is
        // needed.
        let is_apart = |pair: &[(Name, Option<Name>)]| pair[0].1.as_ref().is_some_and(|end| *end < pair[1].0);
        if ranges.iter().all(|(start, end)| is_after(end, start)) && ranges.windows(2).all(is_apart) {
            return KeyRanges { ranges: ranges.into_iter().collect() };
        }
        let mut set = KeyRanges::default();
        ranges.into_iter().for_each(|(start, end)| set.insert(start, end));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All names of up to two letters of three, and what follows them.
    fn names() -> Vec<Name> {
        let letters = [&b"a"[..], b"b", b"c"];
        let mut names = vec![Name::default()];
        for one in letters {
            names.push(Name::copy_from(one));
            names.extend(letters.iter().map(|two| Name::new([one, two].concat())));
        }
        let after: Vec<Name> = names.iter().map(key_after).collect();
        names.extend(after);
        names.sort();
        names
    }

    #[test]
    fn agrees_with_a_plain_set_under_random_edits() {
        let names = names();
        let mut rng = crate::Rng::new(9);
        for _ in 0..300 {
            let (mut set, mut other) = (KeyRanges::default(), KeyRanges::default());
            let (mut plain, mut plain_other) = (vec![false; names.len()], vec![false; names.len()]);
            for _ in 0..30 {
                let a = rng.below(names.len() as u64) as usize;
                let b = a + rng.below((names.len() - a + 1) as u64) as usize;
                let (start, end) = (names[a].clone(), names.get(b).cloned());
                match rng.below(5) {
                    0 => (set.insert(start, end), plain[a..b].fill(true)),
                    1 => {
                        let before = set.clone();
                        assert_eq!(set.remove(&start, end.as_ref()), set != before);
                        ((), plain[a..b].fill(false))
                    }
                    2 => {
                        let one = names.iter().position(|name| *name == key_after(&start));
                        let to = one.unwrap_or(a + 1);
                        if rng.chance(500) {
                            (set.insert_key(&start), plain[a..to].fill(true))
                        } else {
                            let before = set.clone();
                            assert_eq!(set.remove_key(&start), set != before);
                            ((), plain[a..to].fill(false))
                        }
                    }
                    _ => (other.insert(start, end), plain_other[a..b].fill(true)),
                };
                let both = set.intersection(&other);
                let mut sum = set.clone();
                sum.add(&other);
                assert_eq!(set.overlaps(&other), !both.is_empty());
                let mut rest = set.clone();
                rest.subtract(&other);
                for (n, name) in names.iter().enumerate() {
                    assert_eq!(set.contains(name), plain[n], "{name:?} in {set:?}");
                    assert_eq!(both.contains(name), plain[n] && plain_other[n]);
                    assert_eq!(rest.contains(name), plain[n] && !plain_other[n]);
                    assert_eq!(sum.contains(name), plain[n] || plain_other[n]);
                }
                let again: KeyRanges = set.iter().map(|(s, e)| (s.clone(), e.cloned())).collect();
                assert_eq!(again, set);
                let pieces = set.iter().chain(other.iter()).map(|(s, e)| (s.clone(), e.cloned()));
                assert_eq!(pieces.collect::<KeyRanges>(), sum);
            }
        }
    }
}
