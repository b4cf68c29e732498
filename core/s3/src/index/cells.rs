//! What was read of the names of a key: in its leaf, and in the leaf that keys are taken over from.

use super::change::Edit;
use crate::leaf::{LeafName, LeafRange, cell_of, tombstone_key};
use bytes::Bytes;
use nacre_base::Name;
use std::collections::{BTreeMap, BTreeSet};

/// Names that must be read before a question can be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted(pub BTreeSet<Name>);

/// Values of names of one key.
///
/// A leaf that takes keys over has the values that count, or tombstones of them. What it has neither of is as
/// in its source, which does not change any more.
#[derive(Clone, Debug, Default)]
pub struct Cells {
    /// None: everything is assumed to be absent.
    asked: Option<BTreeSet<Name>>,
    here: BTreeMap<Name, Bytes>,
    source: Source,
}

/// What a leaf's source has.
#[derive(Clone, Debug, Default)]
pub struct Source {
    leaf: Option<LeafName>,
    asked: BTreeSet<Name>,
    values: BTreeMap<Name, Bytes>,
}

impl Source {
    /// Takes in what was read.
    pub fn add(&mut self, leaf: LeafName, asked: BTreeSet<Name>, values: &BTreeMap<Name, Bytes>) {
        if self.leaf.as_ref() != Some(&leaf) {
            *self = Source { leaf: Some(leaf), ..Source::default() };
        }
        self.values.extend(asked.iter().filter_map(|name| Some((name.clone(), values.get(name)?.clone()))));
        self.asked.extend(asked);
    }
}

/// What is read of a leaf for these names.
pub fn with_tombstones(names: &BTreeSet<Name>) -> impl Iterator<Item = Name> {
    names.iter().flat_map(|name| [name.clone(), tombstone_key(&cell_of(name))])
}

impl Cells {
    /// What was read of the leaf. What is known of the source counts only while that still is the source.
    pub fn read(
        asked: &BTreeSet<Name>,
        values: &BTreeMap<Name, Bytes>,
        range: &LeafRange,
        source: &Source,
    ) -> Cells {
        let here = with_tombstones(asked).filter_map(|name| Some((name.clone(), values.get(&name)?.clone())));
        let is_current = range.source.is_some() && source.leaf == range.source;
        let source = if is_current { source.clone() } else { Source::default() };
        Cells { asked: Some(asked.clone()), here: here.collect(), source }
    }

    /// Takes in what the source has.
    pub fn add_source(&mut self, source: &Source) {
        self.source = source.clone();
    }

    /// Whether the leaf itself has the cell of this name.
    pub fn is_here(&self, name: &Name) -> bool {
        self.here.contains_key(&cell_of(name))
    }

    fn is_decided(&self, name: &Name) -> bool {
        let cell = cell_of(name);
        self.here.contains_key(&cell) || self.here.contains_key(&tombstone_key(&cell))
    }

    /// Names that only the source can tell about, and that it was not asked for.
    pub fn for_source(&self, range: &LeafRange) -> BTreeSet<Name> {
        let asked = self.asked.iter().flatten().filter(|_| range.source.is_some());
        asked.filter(|name| !self.is_decided(name) && !self.source.asked.contains(*name)).cloned().collect()
    }

    /// Whether neither the leaf nor its source had one of the names, and nothing says that it was removed. It
    /// may have moved between the two reads.
    pub fn lacks_value(&self) -> bool {
        let mut asked = self.source.asked.iter();
        asked.any(|name| !self.is_decided(name) && !self.source.values.contains_key(name))
    }

    /// A value, or none if there is no such name. A head is where its entry is.
    pub fn value(&self, name: &Name) -> Result<Option<&Bytes>, Wanted> {
        match &self.asked {
            None => Ok(None),
            Some(asked) if !asked.contains(name) => {
                Err(Wanted(BTreeSet::from([cell_of(name), name.clone()])))
            }
            Some(_) if self.is_decided(name) => Ok(self.here.get(name)),
            Some(_) => Ok(self.source.values.get(name)),
        }
    }

    /// A change holds only if the cell is still the same.
    pub fn guard(&self, edit: &mut Edit, name: &Name, range: &LeafRange) {
        let mut same = |name: Name| {
            let value = self.here.get(&name).cloned().unwrap_or_default();
            edit.guards.insert(name, value);
        };
        same(name.clone());
        if range.source.is_some() {
            same(tombstone_key(name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leaf::{entry_key, head_key};

    /// A head that was left in the source does not belong to an entry that was written anew.
    #[test]
    fn head_is_where_its_entry_is() {
        let (entry, head) = (entry_key(b"k"), head_key(b"k"));
        let asked = BTreeSet::from([entry.clone(), head.clone()]);
        let old = LeafName("old".into());
        let range = LeafRange { source: Some(old.clone()), ..LeafRange::first() };
        let pair = |value: &'static str| [(entry.clone(), value.into()), (head.clone(), value.into())];
        let mut source = Source::default();
        source.add(old, asked.clone(), &BTreeMap::from(pair("old")));
        let value = |here: &BTreeMap<Name, Bytes>, range| {
            let cells = Cells::read(&asked, here, range, &source);
            cells.value(&head).unwrap().cloned()
        };
        assert_eq!(value(&BTreeMap::new(), &range), Some("old".into()));
        assert_eq!(value(&BTreeMap::from(pair("new")), &range), Some("new".into()));
        assert_eq!(value(&BTreeMap::from([(entry.clone(), "new".into())]), &range), None);
        assert_eq!(value(&BTreeMap::from([(tombstone_key(&entry), "t".into())]), &range), None);
        // Everything was taken over: what is left of the source does not count any more.
        assert_eq!(value(&BTreeMap::new(), &LeafRange::first()), None);
        let cells = Cells::read(&BTreeSet::new(), &BTreeMap::new(), &range, &source);
        assert_eq!(cells.value(&head), Err(Wanted(asked.clone())));
    }
}
