//! The versions of a key, as a change finds them and leaves them.
//!
//! Every change compares the entry and the history, and every change of a key with a history changes the
//! history. So what was read of other versions is still the same when the change is carried out.

use super::cells::{Cells, Wanted};
use super::change::Edit;
use super::{Refusal, object_of};
use crate::leaf::{
    Garbage, LeafRange, entry_key, garbage_key, head_key, history_key, old_head_key, old_key, tombstone_key,
};
use crate::lock::LockView;
use crate::record::{Counters, Entry, Extent, Head, Object};
use crate::tag::Tag;
use crate::version::{History, OldVersion, VersionId};
use bytes::Bytes;
use nacre_base::Name;
use nacre_wire::{DecodeError, from_slice, to_vec};
use std::collections::{BTreeMap, BTreeSet};

/// Why something cannot be said of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// More must be read.
    Read(BTreeSet<Name>),
    Refuse(Refusal),
}
impl From<Wanted> for Stop {
    fn from(Wanted(names): Wanted) -> Stop {
        Stop::Read(names)
    }
}
impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Stop {
        Stop::Refuse(refusal)
    }
}
impl From<DecodeError> for Stop {
    fn from(error: DecodeError) -> Stop {
        Stop::Refuse(error.into())
    }
}

/// Where a version is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Current,
    /// By its stamp.
    Old(u64),
}

/// The versions of a key.
#[derive(Debug)]
pub struct Versions<'a> {
    key: &'a Bytes,
    cells: &'a Cells,
    history: Option<History>,
    current: Option<Object>,
    /// The current object is not what it was.
    is_changed: bool,
    /// Versions that are not current and that were changed; none if they are gone.
    old: BTreeMap<u64, Option<OldVersion>>,
    /// Heads to be written with them.
    heads: BTreeMap<u64, Head>,
    /// Objects that are gone.
    removed: Vec<Object>,
    /// What was there at first, for the counters.
    counters: Counters,
}

fn corrupt(why: &str) -> Stop {
    Stop::Refuse(Refusal::Corrupt(why.into()))
}

impl<'a> Versions<'a> {
    /// As they were read.
    pub fn load(key: &'a Bytes, cells: &'a Cells) -> Result<Versions<'a>, Stop> {
        let history: Option<History> = match cells.value(&history_key(key))? {
            Some(value) => Some(from_slice(value)?),
            None => None,
        };
        let current = match cells.value(&entry_key(key))? {
            Some(entry) => Some(object_of(entry, cells.value(&head_key(key))?)?),
            None => None,
        };
        if history.as_ref().is_some_and(|history| history.marker.is_some() == current.is_some()) {
            return Err(corrupt("a key with versions has no current one, or two"));
        }
        Ok(Versions {
            key,
            cells,
            history,
            current,
            is_changed: false,
            old: BTreeMap::new(),
            heads: BTreeMap::new(),
            removed: Vec::new(),
            counters: Counters::default(),
        })
    }

    /// The current object; none if there is none, or a delete marker.
    pub fn current(&self) -> Option<&Object> {
        self.current.as_ref()
    }
    /// The current version, also if it is a delete marker.
    pub fn current_entry(&self) -> Option<&Entry> {
        let marker = || self.history.as_ref().and_then(|history| history.marker.as_ref());
        self.current.as_ref().map(|object| &object.entry).or_else(marker)
    }
    /// Whether there is or was a version with a stamp.
    pub fn has_history(&self) -> bool {
        self.history.is_some()
    }
    /// Whether the current version is the only one.
    pub fn is_alone(&self) -> bool {
        self.history.as_ref().is_none_or(|history| history.older.is_none())
    }

    /// Where a version is, and its entry.
    pub fn find(&self, id: VersionId) -> Result<Option<(Place, Entry)>, Stop> {
        let is_it = |entry: &Entry| entry.version() == id;
        if let Some(entry) = self.current_entry().filter(|entry| is_it(entry)) {
            return Ok(Some((Place::Current, entry.clone())));
        }
        let Some(history) = &self.history else { return Ok(None) };
        let stamp = match id {
            VersionId::Null => match history.null {
                Some(stamp) => stamp,
                None => return Ok(None),
            },
            VersionId::Of { stamp, .. } => stamp,
        };
        let Some(old) = self.find_old(stamp)? else { return Ok(None) };
        Ok(Some((Place::Old(stamp), old.entry)).filter(|(_, entry)| is_it(entry)))
    }

    fn find_old(&self, stamp: u64) -> Result<Option<OldVersion>, Stop> {
        if let Some(changed) = self.old.get(&stamp) {
            return Ok(changed.clone());
        }
        let Some(value) = self.cells.value(&old_key(self.key, stamp))? else { return Ok(None) };
        Ok(Some(from_slice(value)?))
    }

    fn old(&self, stamp: u64) -> Result<OldVersion, Stop> {
        self.find_old(stamp)?.ok_or_else(|| corrupt("a version is missing that others name"))
    }

    fn old_head(&self, stamp: u64) -> Result<Head, Stop> {
        if let Some(head) = self.heads.get(&stamp) {
            return Ok(head.clone());
        }
        let value = self.cells.value(&old_head_key(self.key, stamp))?;
        Ok(from_slice(value.ok_or_else(|| corrupt("a version without a head"))?)?)
    }

    /// The object that a version is; none for a delete marker.
    pub fn object_at(&self, place: Place, entry: &Entry) -> Result<Option<Object>, Stop> {
        match place {
            _ if entry.is_marker => Ok(None),
            Place::Current => Ok(self.current.clone()),
            Place::Old(stamp) => {
                let object = Object { entry: entry.clone(), head: self.old_head(stamp)? };
                if object.is_whole() {
                    return Ok(Some(object));
                }
                Err(corrupt("a body of another size than its entry says"))
            }
        }
    }

    /// Makes an object or a delete marker the current version, and gives it its stamp. With `keeps` the
    /// version before stays, and otherwise it takes the place of the `null` version. Returns the stamped
    /// entry.
    pub fn put(&mut self, new: New, keeps: bool, view: LockView) -> Result<Entry, Stop> {
        let (entry, head) = match new {
            New::Object(object) => {
                let Object { entry, head } = *object;
                (entry, Some(head))
            }
            New::Marker(entry) => (entry, None),
        };
        let needs_history = keeps || head.is_none() || self.history.is_some();
        let is_null = needs_history && !keeps;
        let mut entry = Entry { stamp: 0, is_null, is_marker: head.is_none(), ..entry };
        if needs_history {
            self.begin_history();
        }
        let replaces = match self.current_entry() {
            Some(current) if !keeps && current.version() == VersionId::Null => Some(current.stamp),
            _ => None,
        };
        if let Some(stamp) = replaces {
            // It has the same place in the list, so that its neighbours need not change.
            self.discard_current(view)?;
            entry.stamp = stamp;
        } else {
            if !keeps && let Some(stamp) = self.history.as_ref().and_then(|history| history.null) {
                self.remove_old(stamp, view)?;
            }
            if let Some(history) = &mut self.history {
                history.newest =
                    history.newest.checked_add(1).ok_or_else(|| corrupt("a stamp is too high"))?;
                entry.stamp = history.newest;
            }
            self.retire_current(entry.stamp)?;
        }
        if let Some(history) = &mut self.history {
            if entry.is_null {
                history.null = Some(entry.stamp);
            }
            history.marker = head.is_none().then(|| entry.clone());
        }
        self.is_changed = true;
        self.current = head.map(|head| Object { entry: entry.clone(), head });
        if let Some(object) = &self.current {
            self.counters.add(Counters::of_change(None, Some(&object.entry)));
        }
        Ok(entry)
    }

    /// Notes that the key has versions from now on.
    fn begin_history(&mut self) {
        if self.history.is_none() {
            let null = self.current.as_ref().map(|object| object.entry.stamp);
            self.history = Some(History { null, ..History::default() });
        }
    }

    /// Puts the current version behind a new one.
    fn retire_current(&mut self, newer: u64) -> Result<(), Stop> {
        let Some(entry) = self.current_entry().cloned() else { return Ok(()) };
        let Some(history) = &mut self.history else { return Err(corrupt("a version without a history")) };
        let older = history.older.replace(entry.stamp);
        history.marker = None;
        let stamp = entry.stamp;
        if let Some(Object { head, .. }) = self.current.take() {
            self.heads.insert(stamp, head);
        }
        self.old.insert(stamp, Some(OldVersion { entry, newer, older }));
        Ok(())
    }

    /// The current version is gone, and nothing has taken its place yet.
    fn discard_current(&mut self, view: LockView) -> Result<(), Stop> {
        self.is_changed = true;
        if let Some(history) = &mut self.history {
            history.marker = None;
        }
        match self.current.take() {
            Some(object) => self.discard(object, view),
            None => Ok(()),
        }
    }

    fn discard(&mut self, object: Object, view: LockView) -> Result<(), Stop> {
        if object.head.lock.forbids_removal(view) {
            return Err(Stop::Refuse(Refusal::Locked));
        }
        self.counters.add(Counters::of_change(Some(&object.entry), None));
        self.removed.push(object);
        Ok(())
    }

    /// Removes a version.
    pub fn remove(&mut self, place: Place, view: LockView) -> Result<(), Stop> {
        match place {
            Place::Old(stamp) => self.remove_old(stamp, view),
            Place::Current => self.remove_current(view),
        }
    }

    fn remove_current(&mut self, view: LockView) -> Result<(), Stop> {
        let Some(entry) = self.current_entry().cloned() else { return Ok(()) };
        self.discard_current(view)?;
        let Some(history) = &mut self.history else { return Ok(()) };
        if history.null == Some(entry.stamp) {
            history.null = None;
        }
        let Some(stamp) = history.older else {
            // Nothing is left of the key.
            self.history = None;
            return Ok(());
        };
        // The one before is current again.
        let old = self.old(stamp)?;
        let object = self.object_at(Place::Old(stamp), &old.entry)?;
        self.old.insert(stamp, None);
        self.heads.remove(&stamp);
        if let Some(history) = &mut self.history {
            history.older = old.older;
            history.marker = object.is_none().then(|| old.entry.clone());
        }
        self.current = object;
        Ok(())
    }

    fn remove_old(&mut self, stamp: u64, view: LockView) -> Result<(), Stop> {
        let old = self.old(stamp)?;
        if let Some(object) = self.object_at(Place::Old(stamp), &old.entry)? {
            self.discard(object, view)?;
        }
        let is_of_current = self.current_entry().is_some_and(|entry| entry.stamp == old.newer);
        if !is_of_current {
            let newer = self.old(old.newer)?;
            self.change_old(old.newer, OldVersion { older: old.older, ..newer })?;
        }
        if let Some(at) = old.older {
            let older = self.old(at)?;
            self.change_old(at, OldVersion { newer: old.newer, ..older })?;
        }
        let Some(history) = &mut self.history else { return Err(corrupt("a version without a history")) };
        if is_of_current {
            history.older = old.older;
        }
        if history.null == Some(stamp) {
            history.null = None;
        }
        self.old.insert(stamp, None);
        self.heads.remove(&stamp);
        Ok(())
    }

    /// Changes a version that stays where it is. If the leaf itself does not have it yet, it gets all of it.
    fn change_old(&mut self, stamp: u64, new: OldVersion) -> Result<(), Stop> {
        let is_here = self.cells.is_here(&old_key(self.key, stamp));
        if !is_here && !new.entry.is_marker && !self.heads.contains_key(&stamp) {
            let head = self.old_head(stamp)?;
            self.heads.insert(stamp, head);
        }
        self.old.insert(stamp, Some(new));
        Ok(())
    }

    /// Replaces the head of a version.
    pub fn revise(&mut self, place: Place, revised: Object) -> Result<(), Stop> {
        let Object { mut entry, head } = revised;
        entry.edits = entry.edits.wrapping_add(1);
        match place {
            Place::Current => {
                self.is_changed = true;
                self.current = Some(Object { entry, head });
            }
            Place::Old(stamp) => {
                let old = self.old(stamp)?;
                self.heads.insert(stamp, head);
                self.old.insert(stamp, Some(OldVersion { entry, ..old }));
            }
        }
        Ok(())
    }

    /// Whether data that this object refers to belongs to a version that stays.
    pub fn shares_data(&self, object: &Object) -> bool {
        let tags: BTreeSet<Tag> = object.head.body.extents().iter().map(|extent| extent.tag).collect();
        let mut kept = self.heads.values().flat_map(|head| head.body.extents());
        kept.any(|extent| tags.contains(&extent.tag))
    }

    /// What the changes are to the leaf. `tag` names the write; the data of what is gone may be removed at
    /// `due`.
    pub fn finish(self, range: &LeafRange, tag: Tag, due: u64) -> Edit {
        let mut edit = Edit { counters: self.counters, ..Edit::default() };
        let (entry, head, noted) = (entry_key(self.key), head_key(self.key), history_key(self.key));
        self.cells.guard(&mut edit, &entry, range);
        self.cells.guard(&mut edit, &noted, range);
        let kept = self.current.iter().flat_map(|object| object.head.body.extents());
        let kept: BTreeSet<Tag> = kept.map(|extent| extent.tag).collect();
        let had = |name: &Name| matches!(self.cells.value(name), Ok(Some(_)));
        match &self.current {
            Some(object) if self.is_changed => {
                edit.grows |= !had(&entry);
                edit.set.insert(entry, to_vec(&object.entry).into());
                edit.set.insert(head, to_vec(&object.head).into());
            }
            None if had(&entry) => {
                remove(&mut edit, entry, range, tag);
                edit.remove.insert(head);
            }
            _ => {}
        }
        match self.history {
            Some(history) => {
                edit.grows |= !had(&noted);
                let history = History { last: tag, ..history };
                edit.set.insert(noted, to_vec(&history).into());
            }
            None if had(&noted) => remove(&mut edit, noted, range, tag),
            None => {}
        }
        for (stamp, old) in self.old {
            let name = old_key(self.key, stamp);
            match old {
                Some(old) => {
                    edit.grows |= !had(&name);
                    edit.set.insert(name, to_vec(&old).into());
                }
                None => {
                    remove(&mut edit, name, range, tag);
                    edit.remove.insert(old_head_key(self.key, stamp));
                }
            }
        }
        for (stamp, head) in self.heads {
            edit.set.insert(old_head_key(self.key, stamp), to_vec(&head).into());
        }
        for Object { entry, head } in self.removed {
            let extents = head.body.extents().iter().copied();
            let unused: Vec<Extent> = extents.filter(|extent| !kept.contains(&extent.tag)).collect();
            if !unused.is_empty() {
                edit.set.insert(garbage_key(due, entry.tag), to_vec(&Garbage::Data(unused)).into());
            }
        }
        edit
    }
}

/// What becomes the current version.
pub enum New {
    Object(Box<Object>),
    Marker(Entry),
}

/// Removes a name, so that it is not taken over any more either.
pub fn remove(edit: &mut Edit, name: Name, range: &LeafRange, tag: Tag) {
    if range.source.is_some() {
        edit.set.insert(tombstone_key(&name), tag.to_string().into());
    }
    edit.remove.insert(name);
}
