//! The missing set of a member: which bytes, omap keys and metadata it lacks of which objects.
//!
//! The invariant, for a member that has the authoritative log: what of an object is not in the missing set is
//! as the log's newest entry leaves it. Bytes count as zeros where nothing was ever written, so that
//! an object's size is no more than a piece of its metadata. Ranges without an end hold no omap keys
//! of the member's own: they were cleared when the range was noted.

use nacre_base::{OsdId, Version, key_after};
use nacre_proto::messages::part::{Act, Acts, Part, Stale};
use nacre_proto::messages::peer::LogEntry;
use nacre_proto::types::ObjectId;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    stale: BTreeMap<ObjectId, Stale>,
}

impl Missing {
    pub fn len(&self) -> usize {
        self.stale.len()
    }
    pub fn is_empty(&self) -> bool {
        self.stale.is_empty()
    }
    pub fn get(&self, object: &ObjectId) -> Option<&Stale> {
        self.stale.get(object)
    }
    /// What of the object is lacking; nothing, mostly.
    pub fn part(&self, object: &ObjectId) -> Part {
        self.stale.get(object).map(|stale| stale.part.clone()).unwrap_or_default()
    }
    pub fn lacks_meta(&self, object: &ObjectId) -> bool {
        self.stale.get(object).is_some_and(|stale| stale.part.meta)
    }
    /// Whether some of that part is lacking.
    pub fn lacks(&self, object: &ObjectId, part: &Part) -> bool {
        self.stale.get(object).is_some_and(|stale| stale.part.overlaps(part))
    }
    pub fn set(&mut self, object: ObjectId, stale: Stale) {
        self.stale.insert(object, stale);
    }
    pub fn forget(&mut self, object: &ObjectId) -> bool {
        self.stale.remove(object).is_some()
    }
    /// Adds to what is lacking.
    pub fn add(&mut self, object: &ObjectId, need: Version, part: &Part) {
        let stale = self.stale.entry(object.clone()).or_default();
        stale.need = stale.need.max(need);
        stale.part.add(part);
    }
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&ObjectId, &Stale)> {
        self.stale.iter()
    }
    /// What is here of a head is of that version, but for what is lacking.
    pub fn note_have(&mut self, object: &ObjectId, have: Version) {
        if let Some(stale) = self.stale.get_mut(object) {
            stale.have = have;
        }
    }
    /// What is here of the object was wrong, before it was noted as lacking.
    pub fn note_wrong(&mut self, object: &ObjectId) {
        if let Some(stale) = self.stale.get_mut(object) {
            stale.was_wrong = true;
        }
    }
    pub fn was_wrong(&self, object: &ObjectId) -> bool {
        self.stale.get(object).is_some_and(|stale| stale.was_wrong)
    }
    /// From the first `>= from` on.
    pub fn from(&self, from: &ObjectId) -> impl Iterator<Item = (&ObjectId, &Stale)> {
        self.stale.range(from..)
    }

    /// That part of the object came from another holder, and with the metadata its size.
    pub fn got(&mut self, object: &ObjectId, part: &Part, size: Option<u64>) {
        let Some(stale) = self.stale.get_mut(object) else { return };
        stale.part.subtract(part);
        if part.meta {
            stale.have = Version::ZERO;
        }
        if let Some(size) = size {
            // What lay beyond is cut off.
            stale.part.data.remove(size..u64::MAX);
        }
        if stale.part.is_empty() {
            self.stale.remove(object);
        }
    }

    /// `member` takes part in a write: what it overwrites is lacking no more. Says of which
    /// objects something changed here.
    pub fn written(&mut self, entry: &LogEntry, member: OsdId) -> BTreeSet<ObjectId> {
        let mut changed = BTreeSet::new();
        for Acts { object, acts } in &entry.acts {
            let object = object.as_ref().unwrap_or(&entry.object);
            for act in acts {
                let is_changed = match act {
                    Act::Data { offset, len } => {
                        self.overwritten(object, |part| part.data.remove(*offset..offset + len))
                    }
                    Act::Truncate { size } => {
                        self.overwritten(object, |part| part.data.remove(*size..u64::MAX))
                    }
                    Act::Keys(keys) => self.overwritten(object, |part| {
                        keys.iter().filter(|key| part.omap.remove_key(key)).count() > 0
                    }),
                    Act::KeyRange { begin, end } => {
                        self.overwritten(object, |part| part.omap.remove(begin, Some(end)))
                    }
                    Act::OmapClear => {
                        self.overwritten(object, |part| !std::mem::take(&mut part.omap).is_empty())
                    }
                    Act::Remove => self.forget(object),
                    Act::CloneFrom(from) => self.copied(object, from),
                    Act::Revert { part, to } => {
                        match *to == member {
                            true => self.got(object, part, None),
                            false => self.add(object, entry.version, part),
                        }
                        true
                    }
                };
                if is_changed {
                    changed.insert(object.clone());
                }
            }
        }
        changed
    }
    /// Mostly a write and what is lacking are at different places of an object, and what changed here has to
    /// be written down, all of it.
    fn overwritten(&mut self, object: &ObjectId, take: impl FnOnce(&mut Part) -> bool) -> bool {
        let Some(stale) = self.stale.get_mut(object) else { return false };
        let had_some = take(&mut stale.part);
        if had_some && stale.part.is_empty() {
            self.stale.remove(object);
        }
        had_some
    }
    fn copied(&mut self, object: &ObjectId, from: &ObjectId) -> bool {
        match self.stale.get(from).cloned() {
            Some(stale) => {
                self.stale.insert(object.clone(), Stale { have: Version::ZERO, ..stale });
                true
            }
            None => self.forget(object),
        }
    }

    /// What goes to the child of a split.
    pub fn split_off(&mut self, moves: impl Fn(&ObjectId) -> bool) -> Missing {
        let (child, rest) = std::mem::take(&mut self.stale).into_iter().partition(|(o, _)| moves(o));
        self.stale = rest;
        Missing { stale: child }
    }
}

impl FromIterator<(ObjectId, Stale)> for Missing {
    fn from_iter<I: IntoIterator<Item = (ObjectId, Stale)>>(items: I) -> Missing {
        Missing { stale: items.into_iter().collect() }
    }
}

/// What an entry changes of one object, as far as a member that lacks it lacks it.
pub fn part_of(acts: &[Act]) -> Part {
    let mut part = Part::meta();
    for act in acts {
        match act {
            Act::Data { offset, len } => part.data.insert(*offset..offset + len),
            Act::Truncate { size } => part.data.insert(*size..u64::MAX),
            Act::Keys(keys) => {
                part.omap.add(&keys.iter().map(|key| (key.clone(), Some(key_after(key)))).collect())
            }
            Act::KeyRange { begin, end } => part.omap.insert(begin.clone(), Some(end.clone())),
            Act::OmapClear => part.omap = nacre_base::KeyRanges::all(),
            Act::Remove | Act::CloneFrom(_) => part = Part::everything(),
            Act::Revert { part: reverted, .. } => part.add(reverted),
        }
    }
    part
}

#[cfg(test)]
mod tests {
    use super::super::log::tests::entry;
    use super::*;
    use nacre_base::{Name, PoolId};
    use nacre_proto::messages::peer::EntryKind;

    #[test]
    fn a_write_elsewhere_changes_nothing_of_what_is_lacking() {
        let object = ObjectId::head(PoolId(1), Name::default(), Name::default(), "a".into());
        let mut part = Part::default();
        part.data.insert(4096..8192);
        part.data.insert(65536..u64::MAX);
        let mut missing = Missing::default();
        missing.set(object.clone(), Stale { part, ..Stale::default() });
        let write = |missing: &mut Missing, act| {
            let acts = vec![Acts { object: None, acts: vec![act] }];
            let entry = entry(Version::ZERO, EntryKind::Modify, "a", Version::ZERO);
            !missing.written(&LogEntry { acts, ..entry }, OsdId(1)).is_empty()
        };
        assert!(!write(&mut missing, Act::Data { offset: 8192, len: 4096 }));
        assert!(!write(&mut missing, Act::Data { offset: 0, len: 4096 }));
        assert!(!write(&mut missing, Act::Keys([Name::from("k")].into_iter().collect())));
        assert!(!write(&mut missing, Act::OmapClear));
        assert!(write(&mut missing, Act::Truncate { size: 16384 }));
        assert!(!write(&mut missing, Act::Truncate { size: 16384 }), "nothing is left there");
        assert!(write(&mut missing, Act::Data { offset: 0, len: 5000 }));
        assert_eq!(missing.part(&object).data.iter().collect::<Vec<_>>(), vec![5000..8192]);
        assert!(write(&mut missing, Act::Data { offset: 0, len: 8192 }));
        assert!(missing.is_empty());
    }
}
