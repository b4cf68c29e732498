//! Snapshots of an object: what is read at one, and what a write must keep for one.

use super::draft::Draft;
use super::{Env, ObjectChange, OpResult, fail, ok, output};
use crate::object_info::ObjectInfo;
use crate::snap_set::{Found, SnapContext, SnapSet};
use nacre_base::errno::{EBUSY, EINVAL};
use nacre_base::{IntervalSet, SnapId, Version};
use nacre_machine::{ReadError, StoreView};
use nacre_proto::messages::peer::{EntryKind, OtherChange};
use nacre_proto::transaction::{Change, Transaction};
use nacre_proto::types::ObjectId;
use nacre_wire::{Encode, versioned};

/// What a request says and a map knows about snapshots.
#[derive(Clone, Copy, Debug)]
pub struct Snaps<'a> {
    /// What is read; `HEAD` in writes.
    pub at: SnapId,
    /// Without snapshots that are removed.
    pub context: &'a SnapContext,
    /// A write under an older context than the object has seen fails.
    pub ordered: bool,
    /// Snapshots that are being removed and are not visible any more.
    pub removed: &'a IntervalSet,
}

impl Snaps<'_> {
    pub fn find(&self, set: &SnapSet, snap: SnapId) -> Found {
        if self.removed.contains(snap.0) { Found::Nowhere } else { set.find(snap) }
    }
}

pub fn clone_of(head: &ObjectId, id: SnapId) -> ObjectId {
    ObjectId { snap: id, ..head.clone() }
}

/// Ceph: `obj_list_snap_response_t`.
pub fn list(draft: &Draft<'_>) -> OpResult {
    let set = &draft.snap_set;
    let clones = set.clones.len() as u32 + u32::from(draft.exists);
    let mut out = Vec::new();
    versioned(&mut out, 2, 1, |out| {
        clones.encode(out);
        for (id, clone) in &set.clones {
            let mut snaps = clone.snaps.clone();
            snaps.reverse();
            let overlap: Vec<(u64, u64)> = clone.overlap.iter().map(|r| (r.start, r.end - r.start)).collect();
            versioned(out, 1, 1, |out| {
                id.encode(out);
                snaps.encode(out);
                overlap.encode(out);
                clone.size.encode(out);
            });
        }
        if draft.exists {
            versioned(out, 1, 1, |out| {
                SnapId::HEAD.encode(out);
                (0_u32, 0_u32).encode(out);
                draft.size.encode(out);
            });
        }
        set.seq.encode(out);
    });
    output(out)
}

/// Makes the object what it was in a snapshot.
pub fn rollback(draft: &mut Draft<'_>, snaps: &Snaps<'_>, snap: SnapId) -> OpResult {
    match snaps.find(&draft.snap_set, snap) {
        _ if snap == SnapId::DIR => fail(EINVAL),
        Found::Head if draft.exists => {
            draft.touch();
            ok()
        }
        Found::Clone(id) => {
            let clone = clone_of(&draft.head, id);
            draft.become_clone(&clone)?;
            ok()
        }
        Found::Head | Found::Nowhere if !draft.exists => ok(),
        Found::Head | Found::Nowhere if !draft.info.watchers.is_empty() => fail(EBUSY),
        Found::Head | Found::Nowhere => {
            draft.remove();
            ok()
        }
    }
}

/// What keeping the object as it was before a write takes.
pub struct Kept {
    pub txn: Transaction,
    pub others: Vec<OtherChange>,
}

/// Makes a clone of the stored head, of `before` bytes, if the write under way is the first since
/// a snapshot, and brings the set of clones up to date.
pub fn keep(
    draft: &mut Draft<'_>,
    env: &Env,
    context: &SnapContext,
    stored: Option<&ObjectInfo>,
    before: u64,
) -> Kept {
    let mut kept = Kept { txn: Transaction::new(), others: Vec::new() };
    let snaps = draft.snap_set.unseen(context);
    if let Some(info) = stored.filter(|info| !info.whiteout && !snaps.is_empty()) {
        let clone = clone_of(&draft.head, context.seq);
        let info = ObjectInfo {
            version: env.version,
            watchers: Default::default(),
            snap_set: SnapSet::default(),
            snaps: snaps.to_vec(),
            ..info.clone()
        };
        kept.txn.push(clone.clone(), Change::CloneFrom(draft.head.clone().into()));
        kept.txn.push(clone.clone(), Change::SetAttrs([info.to_attr()].into()));
        crate::snap_index::add(&clone, snaps, &mut kept.txn);
        draft.snap_set.add_clone(context, before);
        kept.others.push(OtherChange { object: clone, kind: EntryKind::Modify, prior: Version::ZERO });
    }
    draft.snap_set.head_changed(&draft.changed_data);
    draft.snap_set.seq = draft.snap_set.seq.max(context.seq);
    kept
}

/// What takes removed snapshots from a clone: the clone goes with its last one, and a head that
/// was kept for its clones with the last of those. None if the clone is for none of them.
pub fn trim_clone(
    store: &dyn StoreView,
    clone: &ObjectId,
    removed: &IntervalSet,
    version: Version,
) -> Result<Option<ObjectChange>, ReadError> {
    let head = clone.to_head();
    let Some(info) = ObjectInfo::load(store, clone)? else { return Ok(None) };
    let Some(head_info) = ObjectInfo::load(store, &head)? else { return Ok(None) };
    let (gone, left): (Vec<SnapId>, Vec<SnapId>) =
        info.snaps.iter().copied().partition(|snap| removed.contains(snap.0));
    if gone.is_empty() {
        return Ok(None);
    }
    let (head_prior, prior) = (head_info.version, info.version);
    let mut set = head_info.snap_set.clone();
    let mut txn = Transaction::new();
    crate::snap_index::remove(clone, &gone, &mut txn);
    let kind = if left.is_empty() { EntryKind::Delete } else { EntryKind::Modify };
    if left.is_empty() {
        set.remove_clone(clone.snap);
        txn.push(clone.clone(), Change::Remove);
    } else {
        if let Some(clone) = set.clones.get_mut(&clone.snap) {
            clone.snaps.clone_from(&left);
        }
        let info = ObjectInfo { version, snaps: left, ..info };
        txn.push(clone.clone(), Change::SetAttrs([info.to_attr()].into()));
    }
    let bytes = set.bytes() as i64 - head_info.snap_set.bytes() as i64;
    let head_goes = head_info.whiteout && set.clones.is_empty();
    let head_kind = if head_goes { EntryKind::Delete } else { EntryKind::Modify };
    if head_goes {
        txn.push(head.clone(), Change::Remove);
    } else {
        let info = ObjectInfo { version, snap_set: set, ..head_info };
        txn.push(head.clone(), Change::SetAttrs([info.to_attr()].into()));
    }
    let clones = -i64::from(kind == EntryKind::Delete);
    let change = ObjectChange {
        kind,
        prior,
        others: vec![OtherChange { object: head, kind: head_kind, prior: head_prior }],
        txn,
        vanishes: false,
        objects: clones - i64::from(head_goes),
        clones,
        bytes,
    };
    Ok(Some(change))
}
