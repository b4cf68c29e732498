//! Undo: what a member of an erasure-coded placement group needs to take back a write that not all members
//! have. With such a write only on some shards, neither the old nor the new content may be readable; so each
//! member takes its own shard back to what it was.
//!
//! Before a write, in the same transaction, each object that it changes is copied to a name of its own: the
//! copy shares blocks, so that no data is written. It goes when the write is known to be on all members. A
//! small write of a large object copies only the blocks and attributes that it changes: `partial_copy` says
//! when. What the member lacked of the object then is an attribute of the copy.

use crate::object_info::ObjectInfo;
use crate::pg::Ctx;
use crate::pg::history::History;
use crate::pg::history::log_merge::LogMerger;
use crate::pg::read_repair::BLOCK;
use crate::pg::unapplied::Unapplied;
use crate::snap_index;
use bytes::Bytes;
use nacre_base::{Name, ShardId, SnapId, Version};
use nacre_machine::StoreView;
use nacre_proto::messages::part::Stale;
use nacre_proto::messages::peer::{EntryKind, LogEntry};
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_proto::types::{ObjectId, cluster_format};
use nacre_wire::{from_slice, to_vec};
use std::collections::{BTreeMap, BTreeSet};

/// Copies have the shard's number and this: they are in a range of their own.
pub const UNDO_SHARDS: i8 = 64;
/// The attribute with what was lacking.
const LACKING: &[u8] = b"lacking";
/// The attribute of a copy that has only what the write changes: `Rest`.
const REST: &[u8] = b"rest";
/// Entries before the last committed one of which copies may be left after a crash.
const LEFT_MAX: usize = 1000;

/// How far copies were dropped.
#[derive(Clone, Copy, Debug, Default)]
pub struct UndoState {
    dropped_to: Version,
    /// Of entries up to here it is not known whether there are copies: the daemon was started anew.
    loaded_to: Version,
    /// What the primary told the other members in this interval: some may have been started anew.
    pub told_to: Version,
}

impl UndoState {
    /// Of a log that was loaded.
    pub fn loaded(loaded_to: Version) -> UndoState {
        UndoState { loaded_to, ..UndoState::default() }
    }
    /// There are no copies from before entries up to this one.
    pub fn is_dropped(&self, to: Version) -> bool {
        to <= self.dropped_to
    }
}

/// The name of the copy of an object from before an entry.
pub fn undo_id(shard: ShardId, object: &ObjectId, version: Version) -> StoredId {
    let mut key = object.key.as_bytes().to_vec();
    key.push(0);
    key.extend(version.version.to_be_bytes());
    key.extend(version.epoch.0.to_be_bytes());
    StoredId::object(ShardId(UNDO_SHARDS + shard.0), ObjectId { key: Name::new(key), ..object.clone() })
}

/// What an entry changed that had been there before.
fn replaced(entry: &LogEntry) -> impl Iterator<Item = &ObjectId> {
    let is_note = entry.kind == EntryKind::Note;
    let touched = entry.touched().filter(move |(.., prior)| !is_note && *prior != Version::ZERO);
    touched.map(|(object, ..)| object)
}

/// What a partial copy does not show: the size of the object, which of its blocks the copy has (those from
/// the first to before the second number, holes as well), and which of the changed attributes it did not
/// have.
type Rest = ((u64, Vec<(u32, u32)>), Vec<Name>);

/// A copy that can be read.
enum Saved {
    Whole { info: Option<ObjectInfo>, lacking: Option<Stale> },
    Part(PartialCopy),
}

struct PartialCopy {
    rest: Rest,
    attrs: BTreeMap<Name, Bytes>,
    info: ObjectInfo,
}

/// Copies those blocks and attributes of an object that a transaction changes. None if all of it is to be
/// copied: much of it changes, or the object does not only get other bytes and attributes.
fn partial_copy(store: &dyn StoreView, object: &ObjectId, txn: &Transaction) -> Option<Vec<Change>> {
    if object.snap != SnapId::HEAD {
        return None;
    }
    let from = StoredId::Object(object.clone());
    let size = store.stat(&from).ok()??.size;
    let (mut blocks, mut names) = (Vec::new(), BTreeSet::new());
    let mut add = |from: u64, to: u64| {
        let (from, to) = (from / BLOCK, to.div_ceil(BLOCK));
        blocks.push((u32::try_from(from).ok()?, u32::try_from(to).ok()?));
        Some(())
    };
    for (_, change) in txn.changes.iter().filter(|(id, _)| *id == from) {
        match change {
            Change::Touch => {}
            Change::Write { offset, data } | Change::Xor { offset, data } => {
                add(*offset, offset + data.len() as u64)?;
            }
            Change::Zero { offset, len } => add(*offset, offset + len)?,
            Change::Truncate { size: to } => add((*to).min(size), size)?,
            Change::SetAttrs(attrs) => names.extend(attrs.keys().cloned()),
            Change::RemoveAttr(name) => _ = names.insert(name.clone()),
            _ => return None,
        }
    }
    let changed: u64 = blocks.iter().map(|(from, to)| u64::from(to - from)).sum();
    if size.div_ceil(BLOCK) <= 2 * changed {
        return None;
    }
    let (mut attrs, mut absent) = (BTreeMap::new(), Vec::new());
    for name in names {
        match store.attr(&from, name.as_bytes()).ok()? {
            Some(value) => _ = attrs.insert(name, value),
            None => absent.push(name),
        }
    }
    // Each write changes it.
    attrs.get(crate::object_info::ATTR)?;
    let rest: Rest = ((size, blocks.clone()), absent);
    attrs.insert(Name::new(REST), to_vec(&rest).into());
    let blocks = blocks.into_iter().map(|(start, end)| start..end);
    let mut copy: Vec<Change> =
        blocks.map(|blocks| Change::CloneBlocks { from: from.clone(), blocks }).collect();
    copy.push(Change::SetAttrs(attrs));
    Some(copy)
}

impl History {
    /// Copies what an entry is about to change: the beginning of its transaction. What is `unapplied` the
    /// store does not show yet.
    pub fn save_undo(&self, ctx: &Ctx<'_>, unapplied: &Unapplied, entry: &LogEntry, txn: &mut Transaction) {
        if !self.info.shard.is_some() {
            return;
        }
        let may_be_partial = ctx.format >= cluster_format::PARTIAL_UNDO;
        let mut copies = Transaction::new();
        for object in replaced(entry) {
            let id = undo_id(self.info.shard, object, entry.version);
            let stale = self.missing.get(object);
            // What is missing comes later: of an object that lacks something, nothing stays as it is.
            if may_be_partial
                && stale.is_none()
                && !unapplied.contains(object)
                && let Some(copy) = partial_copy(ctx.store, object, txn)
            {
                copy.into_iter().for_each(|change| copies.push(id.clone(), change));
                continue;
            }
            copies.push(id.clone(), Change::CloneFrom(StoredId::Object(object.clone())));
            if let Some(stale) = stale {
                copies.push(id, Change::SetAttrs([(Name::new(LACKING), to_vec(stale).into())].into()));
            }
        }
        if !copies.is_empty() {
            txn.changes.splice(0..0, copies.changes);
        }
    }

    /// Drops all copies: another log takes the place of this one.
    pub fn forget_undo(&mut self, store: &dyn StoreView, txn: &mut Transaction) {
        self.drop_undo(store, self.info.last_update.max(self.log.newest().unwrap_or_default()), txn);
        self.undo = UndoState::default();
    }

    /// Drops copies from before entries up to this one, which all members have.
    pub fn drop_undo(&mut self, store: &dyn StoreView, to: Version, txn: &mut Transaction) {
        let shard = self.info.shard;
        if !shard.is_some() || self.undo.is_dropped(to) {
            return;
        }
        let first = match self.undo.dropped_to {
            Version::ZERO => {
                let before = self.log.versions().rev().skip_while(|version| *version > to);
                before.take(LEFT_MAX).last().map_or(Version::ZERO, |version| {
                    Version::new(version.epoch, version.version.saturating_sub(1))
                })
            }
            dropped_to => dropped_to,
        };
        for entry in self.log.after(first).take_while(|entry| entry.version <= to) {
            for object in replaced(&entry) {
                let id = undo_id(shard, object, entry.version);
                let is_left = || store.stat(&id).map_or(true, |stat| stat.is_some());
                if entry.version > self.undo.loaded_to || is_left() {
                    txn.push(id, Change::Remove);
                }
            }
        }
        self.undo.dropped_to = to;
    }
}

impl LogMerger<'_> {
    /// The same as `History::save_undo`, for an entry of a log that is being adopted: another log may be
    /// adopted before this one is activated, and what is here must not be forgotten for it.
    pub fn save_undo(&mut self, entry: &LogEntry) {
        let Some((shard, after)) = self.undo_after else { return };
        if entry.version <= after {
            return;
        }
        for object in replaced(entry) {
            let id = undo_id(shard, object, entry.version);
            self.txn.push(id.clone(), Change::CloneFrom(StoredId::Object(object.clone())));
            if let Some(stale) = self.lacking(object) {
                let lacking = to_vec(stale).into();
                self.txn.push(id, Change::SetAttrs([(Name::new(LACKING), lacking)].into()));
            }
        }
    }

    /// Takes back entries of which there are copies from before, newest first. Gives the others, oldest
    /// first, and with them what came before on the same objects: those are not as the copies expect.
    pub fn restore(&mut self, shard: ShardId, gone: Vec<LogEntry>) -> Vec<LogEntry> {
        let (mut left, mut objects_left) = (Vec::new(), BTreeSet::new());
        for entry in gone.into_iter().rev() {
            let is_note = entry.kind == EntryKind::Note;
            let copies: Vec<(ObjectId, StoredId)> = replaced(&entry)
                .map(|object| (object.clone(), undo_id(shard, object, entry.version)))
                .collect();
            let saved = copies.iter().map(|(object, id)| self.saved(object, id)).collect::<Option<Vec<_>>>();
            let is_left = is_note || entry.touched().any(|(object, ..)| objects_left.contains(object));
            let Some(saved) = saved.filter(|_| !is_left) else {
                let is_here = |id: &StoredId| self.store().stat(id).map_or(true, |stat| stat.is_some());
                let unused: Vec<_> = copies.into_iter().map(|(_, id)| id).filter(is_here).collect();
                unused.into_iter().for_each(|id| self.txn.push(id, Change::Remove));
                let touched = entry.touched().filter(|_| !is_note);
                objects_left.extend(touched.map(|(object, ..)| object.clone()));
                left.push(entry);
                continue;
            };
            for (object, ..) in entry.touched().filter(|(.., prior)| *prior == Version::ZERO) {
                self.remove(object);
            }
            for ((object, copy), saved) in copies.into_iter().zip(saved) {
                match saved {
                    Saved::Part(part) => self.restore_part(&object, copy, part),
                    Saved::Whole { info, lacking } => self.restore_whole(&object, copy, info, lacking),
                }
            }
        }
        left.reverse();
        left
    }

    /// What a copy has. None if it is not here, or does not suffice to restore the object.
    fn saved(&self, object: &ObjectId, copy: &StoredId) -> Option<Saved> {
        self.store().stat(copy).ok()??;
        let mut attrs = self.store().attrs(copy).ok()?;
        let info = attrs.get(crate::object_info::ATTR).map(|info| from_slice::<ObjectInfo>(info));
        let info = info.transpose().ok()?;
        match attrs.remove(REST) {
            Some(rest) if self.is_intact(object) => {
                Some(Saved::Part(PartialCopy { rest: from_slice(&rest).ok()?, attrs, info: info? }))
            }
            Some(_) => None,
            None => {
                let lacking = attrs.get(LACKING).map(|stale| from_slice::<Stale>(stale));
                Some(Saved::Whole { info, lacking: lacking.transpose().ok()? })
            }
        }
    }

    /// Puts the blocks and attributes of a partial copy back.
    fn restore_part(&mut self, object: &ObjectId, copy: StoredId, part: PartialCopy) {
        let PartialCopy { rest: ((size, blocks), absent), attrs, info } = part;
        for (start, end) in blocks {
            self.txn.push(object.clone(), Change::CloneBlocks { from: copy.clone(), blocks: start..end });
        }
        self.txn.push(object.clone(), Change::Truncate { size });
        self.txn.push(object.clone(), Change::SetAttrs(attrs));
        absent.into_iter().for_each(|name| self.txn.push(object.clone(), Change::RemoveAttr(name)));
        self.txn.push(copy, Change::Remove);
        self.note_restored(object, Some(info), None);
    }

    fn restore_whole(
        &mut self,
        object: &ObjectId,
        copy: StoredId,
        info: Option<ObjectInfo>,
        lacking: Option<Stale>,
    ) {
        self.remove(object);
        if lacking.is_some() {
            self.txn.push(copy.clone(), Change::RemoveAttr(Name::new(LACKING)));
        }
        self.txn.push(object.clone(), Change::CloneFrom(copy.clone()));
        self.txn.push(copy, Change::Remove);
        if object.snap != SnapId::HEAD
            && let Some(info) = &info
        {
            snap_index::add(object, &info.snaps, &mut self.txn);
        }
        self.note_restored(object, info, lacking);
    }
}
