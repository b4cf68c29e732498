//! Which objects a member of a placement group lacks, and in which version each is needed.

use nacre_base::Version;
use nacre_proto::types::ObjectId;
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    need: BTreeMap<ObjectId, Version>,
}

impl Missing {
    pub fn len(&self) -> usize {
        self.need.len()
    }
    pub fn is_empty(&self) -> bool {
        self.need.is_empty()
    }
    pub fn need(&self, object: &ObjectId) -> Option<Version> {
        self.need.get(object).copied()
    }
    pub fn contains(&self, object: &ObjectId) -> bool {
        self.need.contains_key(object)
    }
    pub fn add(&mut self, object: ObjectId, need: Version) {
        self.need.insert(object, need);
    }
    /// The object is here in that version. Says whether that ended its being missing.
    pub fn got(&mut self, object: &ObjectId, version: Version) -> bool {
        let enough = self.need(object).is_some_and(|need| need <= version);
        if enough {
            self.need.remove(object);
        }
        enough
    }
    pub fn forget(&mut self, object: &ObjectId) -> bool {
        self.need.remove(object).is_some()
    }
    pub fn iter(&self) -> impl Iterator<Item = (&ObjectId, Version)> {
        self.need.iter().map(|(object, &need)| (object, need))
    }
    /// From the first `>= from` on.
    pub fn from(&self, from: &ObjectId) -> impl Iterator<Item = (&ObjectId, Version)> {
        self.need.range(from..).map(|(object, &need)| (object, need))
    }
    /// What goes to the child of a split.
    pub fn split_off(&mut self, moves: impl Fn(&ObjectId) -> bool) -> Missing {
        let (child, rest) = std::mem::take(&mut self.need).into_iter().partition(|(o, _)| moves(o));
        self.need = rest;
        Missing { need: child }
    }
}

impl FromIterator<(ObjectId, Version)> for Missing {
    fn from_iter<I: IntoIterator<Item = (ObjectId, Version)>>(items: I) -> Missing {
        Missing { need: items.into_iter().collect() }
    }
}
