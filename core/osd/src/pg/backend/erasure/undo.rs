//! Undo: what a member of an erasure-coded placement group needs to take back a write that not all members
//! have. With such a write only on some shards, neither the old nor the new content may be readable; so each
//! member takes its own shard back to what it was.
//!
//! Before a write, in the same transaction, each object that it changes is copied to a name of its own: the
//! copy shares all blocks, so that no data is written. It goes when the write is known to be on all members.
//! What the member lacked of the object then is an attribute of the copy.

use crate::object_info::ObjectInfo;
use crate::pg::history::History;
use crate::pg::history::log_merge::LogMerger;
use crate::snap_index;
use nacre_base::{Name, ShardId, SnapId, Version};
use nacre_machine::StoreView;
use nacre_proto::messages::part::Stale;
use nacre_proto::messages::peer::{EntryKind, LogEntry};
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_proto::types::ObjectId;
use nacre_wire::{from_slice, to_vec};

/// Copies have the shard's number and this: they are in a range of their own.
pub const UNDO_SHARDS: i8 = 64;
/// The attribute with what was lacking.
const LACKING: &[u8] = b"lacking";
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

impl History {
    /// Copies what an entry is about to change: the beginning of its transaction.
    pub fn save_undo(&self, entry: &LogEntry, txn: &mut Transaction) {
        if !self.info.shard.is_some() {
            return;
        }
        let mut copies = Transaction::new();
        for object in replaced(entry) {
            let id = undo_id(self.info.shard, object, entry.version);
            copies.push(id.clone(), Change::CloneFrom(StoredId::Object(object.clone())));
            if let Some(stale) = self.missing.get(object) {
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
        if !shard.is_some() || to <= self.undo.dropped_to {
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
    /// first.
    pub fn restore(&mut self, shard: ShardId, gone: Vec<LogEntry>) -> Vec<LogEntry> {
        let mut left = Vec::new();
        for entry in gone.into_iter().rev() {
            let copies: Vec<(ObjectId, StoredId)> = replaced(&entry)
                .map(|object| (object.clone(), undo_id(shard, object, entry.version)))
                .collect();
            let is_here = |id: &StoredId| self.store().stat(id).is_ok_and(|stat| stat.is_some());
            if entry.kind == EntryKind::Note || !copies.iter().all(|(_, id)| is_here(id)) {
                left.push(entry);
                continue;
            }
            for (object, ..) in entry.touched().filter(|(.., prior)| *prior == Version::ZERO) {
                self.remove(object);
            }
            for (object, copy) in copies {
                self.restore_one(&object, copy);
            }
        }
        left.reverse();
        left
    }

    fn restore_one(&mut self, object: &ObjectId, copy: StoredId) {
        let attr = |name| self.store().attr(&copy, name).ok().flatten();
        let lacking = attr(LACKING).and_then(|stale| from_slice::<Stale>(&stale).ok());
        let info = attr(crate::object_info::ATTR).and_then(|info| from_slice::<ObjectInfo>(&info).ok());
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
