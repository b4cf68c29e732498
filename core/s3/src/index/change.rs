//! What a write does to its key, decided on the key's present state.

use super::{Answer, Refusal, object_of};
use crate::condition::{Condition, Unmet};
use crate::leaf::{Garbage, LeafRange, entry_key, garbage_key, head_key, tombstone_key, upload_key};
use crate::record::{Body, Counters, Extent, Object};
use crate::tag::Tag;
use bytes::Bytes;
use nacre_base::Name;
use nacre_wire::to_vec;
use std::collections::{BTreeMap, BTreeSet};

/// A write of one key.
///
/// `due` is the time from which the data of a replaced or deleted object may be removed: milliseconds since
/// 1970, by the clock of the gateway that writes.
#[derive(Clone, Debug)]
pub enum Change {
    /// Makes or replaces an object. With `upload`, that upload must be open, and this completes it.
    Put { key: Bytes, object: Box<Object>, condition: Condition, due: u64, upload: Option<Tag> },
    /// Deletes an object, if there is one. `tag` names this write.
    Delete { key: Bytes, condition: Condition, due: u64, tag: Tag },
    /// Adds an open upload to the list. `record` is its encoded `Upload`.
    AddUpload { key: Bytes, id: Tag, record: Bytes },
    /// Ends an open upload. Its parts become garbage at once.
    AbortUpload { key: Bytes, id: Tag },
}

/// What is known of one omap key, which may not have been taken over yet from the leaf's source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    here: Option<Bytes>,
    tombstone: Option<Bytes>,
    in_source: Option<Bytes>,
}

impl Cell {
    fn read(values: &BTreeMap<Name, Bytes>, name: &Name) -> Cell {
        let tombstone = values.get(&tombstone_key(name)).cloned();
        Cell { here: values.get(name).cloned(), tombstone, in_source: None }
    }
    fn value(&self) -> Option<&Bytes> {
        let in_source = self.in_source.as_ref().filter(|_| self.tombstone.is_none());
        self.here.as_ref().or(in_source)
    }
    fn needs_source(&self) -> bool {
        self.here.is_none() && self.tombstone.is_none()
    }
    fn lacks_value(&self) -> bool {
        self.needs_source() && self.in_source.is_none()
    }
    /// The change holds only if the value is still the same.
    fn guard(&self, edit: &mut Edit, name: &Name, range: &LeafRange) {
        edit.guards.insert(name.clone(), self.here.clone().unwrap_or_default());
        if range.source.is_some() {
            edit.guards.insert(tombstone_key(name), self.tombstone.clone().unwrap_or_default());
        }
    }
}

/// Removes a key, so that it is not taken over any more either.
fn remove(edit: &mut Edit, name: Name, range: &LeafRange, tag: Tag) {
    if range.source.is_some() {
        edit.set.insert(tombstone_key(&name), tag.to_string().into());
    }
    edit.remove.insert(name);
}

/// What is known of a key of the bucket in its leaf.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyState {
    entry: Cell,
    upload: Cell,
    head: Option<Bytes>,
    head_in_source: Option<Bytes>,
}

impl KeyState {
    /// Takes in what the leaf's source has.
    pub fn add_source(&mut self, change: &Change, values: &BTreeMap<Name, Bytes>) {
        let key = change.key();
        self.entry.in_source = values.get(&entry_key(key)).cloned();
        self.head_in_source = values.get(&head_key(key)).cloned();
        self.upload.in_source = change.upload().and_then(|id| values.get(&upload_key(key, id)).cloned());
    }

    fn current(&self) -> Result<Option<Object>, Refusal> {
        let Some(entry) = self.entry.value() else { return Ok(None) };
        let head = if self.entry.here.is_some() { &self.head } else { &self.head_in_source };
        object_of(entry, head.as_ref()).map(Some)
    }
}

/// The part of a compound operation that carries out one change.
#[derive(Debug, Default)]
pub struct Edit {
    /// Values that the change was decided on; empty for keys that must not exist.
    pub guards: BTreeMap<Name, Bytes>,
    pub set: BTreeMap<Name, Bytes>,
    pub remove: BTreeSet<Name>,
    pub counters: Counters,
}

/// What comes of a change.
#[derive(Debug)]
pub enum Decision {
    Write(Edit, Answer),
    Done(Result<Answer, Refusal>),
}

impl Change {
    /// The key that it changes.
    pub(super) fn key(&self) -> &Bytes {
        match self {
            Change::Put { key, .. }
            | Change::Delete { key, .. }
            | Change::AddUpload { key, .. }
            | Change::AbortUpload { key, .. } => key,
        }
    }

    /// About how much the change adds to an operation.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Change::Put { key, object, .. } => {
                let inline = match &object.head.body {
                    Body::Inline(bytes) => bytes.len(),
                    Body::Data(extents) => 24 * extents.len(),
                };
                2 * key.len() + inline + 512
            }
            Change::AddUpload { key, record, .. } => key.len() + record.len(),
            _ => 2 * self.key().len() + 64,
        }
    }

    /// Whether it can be tried on the assumption that the key does not exist.
    pub(super) fn is_blind(&self) -> bool {
        match self {
            Change::Put { condition, upload, .. } => {
                upload.is_none() && (condition.is_none() || condition.wants_absence())
            }
            Change::AddUpload { .. } => true,
            Change::Delete { .. } | Change::AbortUpload { .. } => false,
        }
    }

    /// The upload that must be open.
    fn upload(&self) -> Option<Tag> {
        match self {
            Change::Put { upload, .. } => *upload,
            Change::AbortUpload { id, .. } => Some(*id),
            Change::Delete { .. } | Change::AddUpload { .. } => None,
        }
    }
    fn is_of_object(&self) -> bool {
        matches!(self, Change::Put { .. } | Change::Delete { .. })
    }

    /// The omap keys that it is decided on.
    pub(super) fn reads(&self) -> Vec<Name> {
        let key = self.key();
        let entry = self.is_of_object().then(|| entry_key(key));
        let upload = self.upload().map(|id| upload_key(key, id));
        let cells: Vec<Name> = entry.into_iter().chain(upload).collect();
        let tombstones = cells.iter().map(tombstone_key).collect::<Vec<_>>();
        let head = self.is_of_object().then(|| head_key(key));
        cells.into_iter().chain(tombstones).chain(head).collect()
    }

    /// Picks what it needs from the values that were read.
    pub(super) fn state(&self, values: &BTreeMap<Name, Bytes>) -> KeyState {
        let key = self.key();
        KeyState {
            entry: Cell::read(values, &entry_key(key)),
            upload: self.upload().map(|id| Cell::read(values, &upload_key(key, id))).unwrap_or_default(),
            head: values.get(&head_key(key)).cloned(),
            head_in_source: None,
        }
    }

    /// Whether the leaf that keys are taken over from must be read as well.
    pub(super) fn needs_source(&self, state: &KeyState) -> bool {
        self.is_of_object() && state.entry.needs_source()
            || self.upload().is_some() && state.upload.needs_source()
    }

    /// Whether neither the leaf nor its source had what the change is about, and nothing says that it was
    /// removed.
    pub(super) fn lacks_value(&self, state: &KeyState) -> bool {
        self.is_of_object() && state.entry.lacks_value()
            || self.upload().is_some() && state.upload.lacks_value()
    }

    /// What the change does, if the key is in this state.
    pub(super) fn decide(&self, state: &KeyState, range: &LeafRange) -> Decision {
        self.try_decide(state, range).unwrap_or_else(|refusal| Decision::Done(Err(refusal)))
    }

    fn try_decide(&self, state: &KeyState, range: &LeafRange) -> Result<Decision, Refusal> {
        let mut edit = Edit::default();
        let key = self.key();
        if let Some(id) = self.upload() {
            let name = upload_key(key, id);
            state.upload.value().ok_or(Refusal::NoSuchUpload)?;
            state.upload.guard(&mut edit, &name, range);
            remove(&mut edit, name, range, id);
            let kept = match self {
                Change::Put { object, .. } => object.head.body.extents().iter().map(|it| it.tag).collect(),
                _ => Vec::new(),
            };
            edit.set.insert(garbage_key(0, id), to_vec(&Garbage::Upload { id, kept }).into());
        }
        match self {
            Change::Put { object, condition, due, .. } => {
                let current = state.current()?;
                check(condition, current.as_ref())?;
                state.entry.guard(&mut edit, &entry_key(key), range);
                discard(&mut edit, current.as_ref(), object.head.body.extents(), *due);
                edit.set.insert(entry_key(key), to_vec(&object.entry).into());
                edit.set.insert(head_key(key), to_vec(&object.head).into());
                let before = current.as_ref().map(|object| &object.entry);
                edit.counters = Counters::of_change(before, Some(&object.entry));
                Ok(Decision::Write(edit, Answer::Put { replaced: current.is_some() }))
            }
            Change::Delete { condition, due, tag, .. } => {
                let current = state.current()?;
                check(condition, current.as_ref())?;
                let Some(Object { entry, .. }) = &current else {
                    return Ok(Decision::Done(Ok(Answer::Deleted { existed: false })));
                };
                state.entry.guard(&mut edit, &entry_key(key), range);
                discard(&mut edit, current.as_ref(), &[], *due);
                remove(&mut edit, entry_key(key), range, *tag);
                edit.remove.insert(head_key(key));
                edit.counters = Counters::of_change(Some(entry), None);
                Ok(Decision::Write(edit, Answer::Deleted { existed: true }))
            }
            Change::AddUpload { id, record, .. } => {
                edit.set.insert(upload_key(key, *id), record.clone());
                Ok(Decision::Write(edit, Answer::Done))
            }
            Change::AbortUpload { .. } => Ok(Decision::Write(edit, Answer::Done)),
        }
    }
}

fn check(condition: &Condition, current: Option<&Object>) -> Result<(), Refusal> {
    condition.check(current.map(|object| &object.entry)).map_err(|unmet| match unmet {
        Unmet::Missing => Refusal::NoSuchKey,
        Unmet::Failed => Refusal::PreconditionFailed,
    })
}

/// Notes that the data of a replaced object may be removed at `due`, but for what its successor has as well.
fn discard(edit: &mut Edit, replaced: Option<&Object>, kept: &[Extent], due: u64) {
    let Some(Object { entry, head }) = replaced else { return };
    let kept: BTreeSet<Tag> = kept.iter().map(|extent| extent.tag).collect();
    let extents = head.body.extents().iter().copied();
    let unused: Vec<Extent> = extents.filter(|extent| !kept.contains(&extent.tag)).collect();
    if !unused.is_empty() {
        edit.set.insert(garbage_key(due, entry.tag), to_vec(&Garbage::Data(unused)).into());
    }
}
