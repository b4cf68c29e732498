//! What a write does to its key, decided on the key's present state.

use super::cells::Cells;
use super::versions::{New, Place, Stop, Versions, remove};
use super::{Answer, Refusal};
use crate::acl::Acl;
use crate::condition::{Condition, Unmet};
use crate::leaf::{
    Garbage, LeafRange, entry_key, garbage_key, head_key, history_key, old_head_key, old_key, upload_key,
};
use crate::lock::{LockView, Retention};
use crate::record::{Body, Counters, Entry, Extent, Object};
use crate::tag::Tag;
use crate::version::{VersionId, Versioning};
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
    /// Makes an object. With `keeps` the version before stays; otherwise this is the `null` version and
    /// replaces the one that there is. With `upload`, that upload must be open, and this completes it.
    Put { key: Bytes, object: Box<Object>, condition: Condition, due: u64, upload: Option<Tag>, keeps: bool },
    /// Deletes an object or a version, if there is one.
    Delete(Box<Deletion>),
    /// Changes what can be changed of a version without making another one. Refused if another write than
    /// `made_by` has made the version. `tag` names this write.
    Revise { key: Bytes, version: Option<VersionId>, made_by: Option<Tag>, revision: Revision, tag: Tag },
    /// Adds an open upload to the list. `record` is its encoded `Upload`.
    AddUpload { key: Bytes, id: Tag, record: Bytes },
    /// Ends an open upload. Its parts become garbage at once.
    AbortUpload { key: Bytes, id: Tag },
}

/// A DELETE.
#[derive(Clone, Debug, Default)]
pub struct Deletion {
    pub key: Bytes,
    /// The version that is to be removed; none: the object is to be gone, as the bucket's versioning has it.
    pub version: Option<VersionId>,
    pub versioning: Versioning,
    pub condition: Condition,
    /// Refused if there are other versions.
    pub only_if_alone: bool,
    /// The user that deletes, for a delete marker.
    pub owner: String,
    pub view: LockView,
    pub due: u64,
    /// Names this write.
    pub tag: Tag,
}

/// A change of a version that stays the same version.
#[derive(Clone, Debug)]
pub enum Revision {
    Tags(BTreeMap<String, String>),
    Retention {
        new: Option<Retention>,
        view: LockView,
    },
    LegalHold(bool),
    Acl(Acl),
    /// The same bytes at another place, in another storage class. `from` is the body that was copied: another
    /// one is not replaced. The data of that one may be removed at `due`.
    Move {
        from: Body,
        to: Body,
        storage_class: String,
        due: u64,
    },
}

impl Revision {
    fn apply(&self, Object { entry, head }: &mut Object) -> Result<(), Refusal> {
        match self {
            Revision::Tags(tags) => head.tags = tags.clone(),
            Revision::Retention { new, view } => {
                if !head.lock.allows_retention(new.as_ref(), *view) {
                    return Err(Refusal::Locked);
                }
                head.lock.retention = new.clone();
            }
            Revision::LegalHold(held) => head.lock.legal_hold = Some(*held),
            Revision::Acl(acl) => head.acl = acl.clone(),
            Revision::Move { from, to, storage_class, .. } => {
                if head.body != *from {
                    return Err(Refusal::PreconditionFailed);
                }
                head.body = to.clone();
                entry.storage_class.clone_from(storage_class);
            }
        }
        Ok(())
    }

    /// Data that is not needed any more, and when it may be removed.
    fn unused(&self) -> (&[Extent], u64) {
        match self {
            Revision::Move { from, due, .. } => (from.extents(), *due),
            _ => (&[], 0),
        }
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
    /// The leaf has more names afterwards.
    pub grows: bool,
}

/// What comes of a change.
#[derive(Debug)]
pub enum Decision {
    Write(Edit, Answer),
    /// These names must be read as well.
    Read(BTreeSet<Name>),
    Done(Result<Answer, Refusal>),
}

impl Change {
    /// The key that it changes.
    pub(super) fn key(&self) -> &Bytes {
        match self {
            Change::Put { key, .. }
            | Change::Revise { key, .. }
            | Change::AddUpload { key, .. }
            | Change::AbortUpload { key, .. } => key,
            Change::Delete(deletion) => &deletion.key,
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
            Change::Delete(_) | Change::Revise { .. } | Change::AbortUpload { .. } => false,
        }
    }

    /// The upload that must be open.
    fn upload(&self) -> Option<Tag> {
        match self {
            Change::Put { upload, .. } => *upload,
            Change::AbortUpload { id, .. } => Some(*id),
            Change::Delete(_) | Change::Revise { .. } | Change::AddUpload { .. } => None,
        }
    }
    fn version(&self) -> Option<VersionId> {
        match self {
            Change::Delete(deletion) => deletion.version,
            Change::Revise { version, .. } => *version,
            _ => None,
        }
    }
    fn is_of_object(&self) -> bool {
        matches!(self, Change::Put { .. } | Change::Delete(_) | Change::Revise { .. })
    }

    /// The names that it is decided on, as far as they are known from the beginning.
    pub(super) fn reads(&self) -> BTreeSet<Name> {
        let key = self.key();
        let mut names = BTreeSet::new();
        if self.is_of_object() {
            names.extend([entry_key(key), head_key(key), history_key(key)]);
        }
        if let Some(VersionId::Of { stamp, .. }) = self.version() {
            names.extend([old_key(key, stamp), old_head_key(key, stamp)]);
        }
        names.extend(self.upload().map(|id| upload_key(key, id)));
        names
    }

    /// What the change does, if the key is in this state.
    pub(super) fn decide(&self, cells: &Cells, range: &LeafRange) -> Decision {
        match self.try_decide(cells, range) {
            Ok(decision) => decision,
            Err(Stop::Read(names)) => Decision::Read(names),
            Err(Stop::Refuse(refusal)) => Decision::Done(Err(refusal)),
        }
    }

    fn try_decide(&self, cells: &Cells, range: &LeafRange) -> Result<Decision, Stop> {
        let key = self.key();
        let (mut edit, answer) = match self {
            Change::Put { object, condition, due, keeps, .. } => {
                let mut versions = Versions::load(key, cells)?;
                if let Some(id) = self.upload() {
                    cells.value(&upload_key(key, id))?.ok_or(Refusal::NoSuchUpload)?;
                }
                check(condition, versions.current().map(|object| &object.entry))?;
                let replaced = versions.current().is_some();
                let view = LockView { now: object.entry.mtime, bypass: false };
                let entry = versions.put(New::Object(object.clone()), *keeps, view)?;
                if versions.shares_data(object) {
                    // The version before was to be replaced and stays: it was decided for another state.
                    return Err(Stop::Refuse(Refusal::PreconditionFailed));
                }
                let answer = Answer::Put { replaced, version: entry.version() };
                (versions.finish(range, object.entry.tag, *due), answer)
            }
            Change::Delete(deletion) => match deletion.decide(cells, range)? {
                Ok(written) => written,
                Err(nothing) => return Ok(Decision::Done(Ok(nothing))),
            },
            Change::Revise { version, made_by, revision, tag, .. } => {
                let mut versions = Versions::load(key, cells)?;
                let (place, mut object) = find_object(&versions, *version)?;
                if made_by.is_some_and(|made_by| made_by != object.entry.tag) {
                    return Err(Stop::Refuse(Refusal::PreconditionFailed));
                }
                revision.apply(&mut object)?;
                if !object.is_whole() {
                    return Err(Stop::Refuse(Refusal::Corrupt("a body of another size".into())));
                }
                let answer = Answer::Revised { version: object.entry.version() };
                versions.revise(place, object)?;
                let (unused, due) = revision.unused();
                let mut edit = versions.finish(range, *tag, due);
                if !unused.is_empty() {
                    let garbage = Garbage::Data(unused.to_vec());
                    edit.set.insert(garbage_key(due, *tag), to_vec(&garbage).into());
                }
                (edit, answer)
            }
            Change::AddUpload { id, record, .. } => {
                let mut edit = Edit::default();
                edit.set.insert(upload_key(key, *id), record.clone());
                (edit, Answer::Done)
            }
            Change::AbortUpload { .. } => (Edit::default(), Answer::Done),
        };
        if let Some(id) = self.upload() {
            let name = upload_key(key, id);
            cells.value(&name)?.ok_or(Refusal::NoSuchUpload)?;
            cells.guard(&mut edit, &name, range);
            remove(&mut edit, name, range, id);
            let kept = match self {
                Change::Put { object, .. } => object.head.body.extents().iter().map(|it| it.tag).collect(),
                _ => Vec::new(),
            };
            edit.set.insert(garbage_key(0, id), to_vec(&Garbage::Upload { id, kept }).into());
        }
        Ok(Decision::Write(edit, answer))
    }
}

impl Deletion {
    /// What is written and answered, or the answer if there is nothing to write.
    fn decide(&self, cells: &Cells, range: &LeafRange) -> Result<Result<(Edit, Answer), Answer>, Stop> {
        let mut versions = Versions::load(&self.key, cells)?;
        let answer = |existed, version, is_marker| Answer::Deleted { existed, version, is_marker };
        if let Some(id) = self.version {
            let found = versions.find(id)?;
            check(&self.condition, found.as_ref().map(|(_, entry)| entry))?;
            let Some((place, entry)) = found else { return Ok(Err(answer(false, Some(id), false))) };
            if self.only_if_alone && !versions.is_alone() {
                return Err(Stop::Refuse(Refusal::PreconditionFailed));
            }
            versions.remove(place, self.view)?;
            let edit = versions.finish(range, self.tag, self.due);
            return Ok(Ok((edit, answer(true, Some(id), entry.is_marker))));
        }
        check(&self.condition, versions.current().map(|object| &object.entry))?;
        let existed = versions.current().is_some();
        if self.versioning == Versioning::Off && !versions.has_history() {
            if !existed {
                return Ok(Err(answer(false, None, false)));
            }
            versions.remove(Place::Current, self.view)?;
            return Ok(Ok((versions.finish(range, self.tag, self.due), answer(true, None, false))));
        }
        let marker =
            Entry { tag: self.tag, mtime: self.view.now, owner: self.owner.clone(), ..Entry::default() };
        let keeps = self.versioning == Versioning::Enabled;
        let entry = versions.put(New::Marker(marker), keeps, self.view)?;
        let edit = versions.finish(range, self.tag, self.due);
        Ok(Ok((edit, answer(existed, Some(entry.version()), true))))
    }
}

/// The version of this name, or the current one, if it is an object.
pub fn find_object(versions: &Versions<'_>, id: Option<VersionId>) -> Result<(Place, Object), Stop> {
    let found = match id {
        Some(id) => versions.find(id)?.ok_or(Refusal::NoSuchVersion)?,
        None => {
            let entry = versions.current_entry().ok_or(Refusal::NoSuchKey)?;
            (Place::Current, entry.clone())
        }
    };
    let (place, entry) = found;
    let marker = Refusal::DeleteMarker { version: entry.version(), mtime: entry.mtime };
    let object = versions.object_at(place, &entry)?.ok_or(marker)?;
    Ok((place, object))
}

fn check(condition: &Condition, current: Option<&Entry>) -> Result<(), Refusal> {
    condition.check(current).map_err(|unmet| match unmet {
        Unmet::Missing => Refusal::NoSuchKey,
        Unmet::Failed => Refusal::PreconditionFailed,
    })
}
