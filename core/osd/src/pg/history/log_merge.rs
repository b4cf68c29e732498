//! The log merge: making what is here follow a log that became ours. What was done elsewhere becomes missing,
//! what was done only here (divergent entries) is undone, and objects that are gone are removed.
//!
//! Only names and ranges matter; nothing is copied. Removals, and clones of what is here, are carried out for
//! real: no content of one object is ever kept for another that took its name. An object that is here and
//! cannot be read is of no use: it is removed, and all of it is missing.

use super::missing::{Missing, part_of};
use super::record::RecordChanges;
use super::{History, Update};
use crate::object_info::ObjectInfo;
use crate::pg::mark_lost::revert_here;
use crate::snap_index;
use nacre_base::{Epoch, KeyRanges, OsdId, ShardId, SnapId, Version};
use nacre_machine::StoreView;
use nacre_proto::messages::part::{Act, Dirty, Origin, Part, Stale};
use nacre_proto::messages::peer::{EntryKind, LogEntry, PgInfo, PgLog};
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_proto::types::ObjectId;
use std::collections::{BTreeMap, BTreeSet};

pub struct LogMerger<'a> {
    me: OsdId,
    store: &'a dyn StoreView,
    missing: &'a mut Missing,
    pub txn: Transaction,
    /// Objects whose missing parts may have changed.
    pub noted: BTreeSet<ObjectId>,
    /// Whether objects are here once `txn` is done, where that differs from the store.
    here: BTreeMap<ObjectId, bool>,
    /// Objects that `txn` takes back to what they were: the store shows them as they are.
    restored: BTreeMap<ObjectId, ObjectInfo>,
    /// Entries after that version may have to be undone, in this shard.
    pub undo_after: Option<(ShardId, Version)>,
}

impl<'a> LogMerger<'a> {
    pub fn new(me: OsdId, store: &'a dyn StoreView, missing: &'a mut Missing) -> LogMerger<'a> {
        let (txn, noted, here) = (Transaction::new(), BTreeSet::new(), BTreeMap::new());
        let (restored, undo_after) = (BTreeMap::new(), None);
        LogMerger { me, store, missing, txn, noted, here, restored, undo_after }
    }

    /// As it was before `txn`.
    pub fn store(&self) -> &dyn StoreView {
        self.store
    }
    /// What is lacking of an object by now.
    pub fn lacking(&self, object: &ObjectId) -> Option<&Stale> {
        self.missing.get(object)
    }
    /// All of the object is here, and none of it is known to be unreadable.
    pub fn is_intact(&self, object: &ObjectId) -> bool {
        self.lacking(object).is_none() && self.is_readable(object) && self.is_here(object)
    }
    /// The object is here again as it was earlier, and lacks what it lacked then.
    pub fn note_restored(&mut self, object: &ObjectId, info: Option<ObjectInfo>, lacking: Option<Stale>) {
        self.restored.extend(info.map(|info| (object.clone(), info)));
        self.here.insert(object.clone(), true);
        match lacking {
            Some(stale) => self.missing.set(object.clone(), stale),
            None => drop(self.missing.forget(object)),
        }
        self.noted.insert(object.clone());
    }

    /// An object that cannot be read is not here.
    fn is_here(&self, object: &ObjectId) -> bool {
        let stored = || self.store.stat(&StoredId::Object(object.clone())).is_ok_and(|stat| stat.is_some());
        self.here.get(object).copied().unwrap_or_else(stored)
    }
    /// Which version of it what is here belongs to, apart from what is missing.
    fn version(&self, object: &ObjectId) -> Option<Version> {
        match self.missing.get(object) {
            Some(stale) if stale.part.meta => Some(stale.need),
            _ if !self.is_here(object) => None,
            _ => self.info(object).map(|info| info.version),
        }
    }
    fn info(&self, object: &ObjectId) -> Option<ObjectInfo> {
        if let Some(info) = self.restored.get(object) {
            return Some(info.clone());
        }
        ObjectInfo::load(self.store, object).ok().flatten()
    }
    fn is_readable(&self, object: &ObjectId) -> bool {
        let is_stored = || self.store.stat(&StoredId::Object(object.clone())).is_ok();
        self.here.contains_key(object) || (is_stored() && ObjectInfo::load(self.store, object).is_ok())
    }
    /// The caller notes afterwards what is missing of the object.
    fn drop_unreadable(&mut self, object: &ObjectId) {
        if self.is_readable(object) {
            return;
        }
        self.txn.push(object.clone(), Change::Remove);
        self.here.insert(object.clone(), false);
        self.noted.insert(object.clone());
        if let Some(need) = self.missing.get(object).map(|stale| stale.need) {
            self.set_whole_missing(object, need);
        }
    }
    /// Checks the objects that lack only a part, and not the many that lack everything.
    pub fn drop_unreadable_parts(&mut self) {
        let everything = Part::everything();
        let lacking = self.missing.iter().filter(|(_, stale)| stale.part != everything);
        let lacking: Vec<ObjectId> = lacking.map(|(object, _)| object.clone()).collect();
        lacking.iter().for_each(|object| self.drop_unreadable(object));
    }

    pub fn remove(&mut self, object: &ObjectId) {
        self.drop_unreadable(object);
        if self.is_here(object) {
            if object.snap != SnapId::HEAD
                && let Some(info) = self.info(object)
            {
                snap_index::remove(object, &info.snaps, &mut self.txn);
            }
            self.txn.push(object.clone(), Change::Remove);
            self.here.insert(object.clone(), false);
        }
        self.restored.remove(object);
        self.missing.forget(object);
        self.noted.insert(object.clone());
    }
    fn add_missing(&mut self, object: &ObjectId, need: Version, part: &Part) {
        if part.omap.iter().any(|(_, end)| end.is_none()) && self.is_here(object) {
            // No keys of ours stay in a range without an end.
            self.txn.push(object.clone(), Change::OmapClear);
            self.missing.add(object, need, &Part { omap: KeyRanges::all(), ..Part::meta() });
        }
        self.missing.add(object, need, part);
        self.noted.insert(object.clone());
    }
    /// The same of an object that is here in version `have`, which an operator may want back.
    fn add_missing_of(&mut self, object: &ObjectId, need: Version, part: &Part, have: Version) {
        let had_meta = !self.missing.lacks_meta(object);
        self.add_missing(object, need, part);
        if had_meta && part.meta && object.snap == SnapId::HEAD {
            self.missing.note_have(object, have);
        }
    }
    /// The object in that version, however it came about.
    fn miss_whole(&mut self, object: &ObjectId, need: Version) {
        self.add_missing(object, need, &Part::everything());
        self.set_whole_missing(object, need);
    }
    fn set_whole_missing(&mut self, object: &ObjectId, need: Version) {
        let was_wrong = self.missing.was_wrong(object);
        self.missing.set(object.clone(), Stale { was_wrong, ..Stale::everything(need) });
    }

    /// The object becomes what is here of another one, and lacks what that lacks.
    fn copy(&mut self, object: &ObjectId, from: &ObjectId, need: Version) {
        self.txn.push(object.clone(), Change::CloneFrom(from.clone().into()));
        self.restored.remove(object);
        self.here.insert(object.clone(), true);
        self.lack_as(object, from, need);
    }
    /// Of the first, in that version, what is lacking of the second now.
    fn lack_as(&mut self, object: &ObjectId, from: &ObjectId, need: Version) {
        let (part, was_wrong) = (self.missing.part(from), self.missing.was_wrong(from));
        self.missing.set(object.clone(), Stale { need, have: Version::ZERO, part, was_wrong });
    }

    /// That part of what is here turned out to be wrong.
    pub fn discard(&mut self, object: &ObjectId, stale: &Stale) {
        self.drop_unreadable(object);
        if stale.part.meta || !self.is_here(object) {
            self.remove(object);
            self.miss_whole(object, stale.need);
        } else {
            self.add_missing(object, stale.need, &stale.part);
        }
        self.missing.note_wrong(object);
    }

    /// The object exists in that version: then what is here of it is right, or else nothing of it.
    pub fn expect_version(&mut self, object: &ObjectId, version: Version) {
        self.drop_unreadable(object);
        if self.version(object) != Some(version) {
            self.miss_whole(object, version);
        }
    }

    /// The object exists in that version, and nothing of what is here of it is known to be right.
    pub fn distrust(&mut self, object: &ObjectId, version: Version) {
        self.drop_unreadable(object);
        self.miss_whole(object, version);
    }

    /// What happened to the object after `base`, which is the end of our history.
    pub fn apply_dirty(&mut self, object: &ObjectId, dirty: &Dirty, base: Version) {
        if dirty.last <= base {
            return;
        }
        self.drop_unreadable(object);
        // An OSD that was interrupted at this by a crash has made it anew already.
        let have = self.version(object);
        let anew = have.is_none_or(|version| version < dirty.born);
        if dirty.gone || anew {
            // Nothing of what we have under that name is of use.
            self.remove(object);
        }
        match &dirty.origin {
            _ if dirty.gone => {}
            Some(origin) if anew && self.has_origin(object, origin) => {
                self.copy(object, &object.to_head(), dirty.last);
                self.add_missing(object, dirty.last, &origin.part);
                self.add_missing(object, dirty.last, &dirty.part);
            }
            _ if anew => self.miss_whole(object, dirty.last),
            _ => self.add_missing_of(object, dirty.last, &dirty.part, have.unwrap_or_default()),
        }
    }

    /// Whether what is here of the clone's head, apart from what is missing, is what the clone was made of. A
    /// head that was made anew afterwards is not here until it is copied, which is when nothing is left to
    /// follow.
    fn has_origin(&self, clone: &ObjectId, origin: &Origin) -> bool {
        let head = clone.to_head();
        self.is_here(&head) && self.version(&head).is_some_and(|version| origin.born <= version)
    }

    /// Undoes divergent entries, which are in our log alone, oldest first.
    pub fn undo_divergent(&mut self, gone: &[LogEntry]) {
        let mut objects: BTreeMap<ObjectId, (Version, Option<Version>, Part)> = BTreeMap::new();
        for entry in gone {
            for (object, kind, prior, acts) in changes_of(entry) {
                let undone = objects.entry(object.clone()).or_insert((prior, None, Part::default()));
                undone.1 = (kind == EntryKind::Modify).then_some(entry.version);
                undone.2.add(&if kind == EntryKind::Delete { Part::everything() } else { part_of(&acts) });
            }
        }
        for (object, (before, newest, part)) in objects {
            self.drop_unreadable(&object);
            if before == Version::ZERO {
                self.remove(&object);
            } else if self.version(&object) == newest {
                self.add_missing(&object, before, &part);
                // Back to an older version than the record may have named.
                self.lack_as(&object, &object, before);
            } else {
                self.miss_whole(&object, before);
            }
        }
    }

    /// An entry of the authoritative log that we had no part in; they come in order.
    pub fn add_entry(&mut self, entry: &LogEntry) {
        let version = entry.version;
        let objects = changes_of(entry);
        for (object, _, prior, _) in &objects {
            self.drop_unreadable(object);
            if *prior == Version::ZERO {
                if self.is_here(object) || self.missing.get(object).is_some() {
                    self.remove(object);
                }
            } else if self.version(object) != Some(*prior) {
                self.miss_whole(object, *prior);
            }
        }
        self.save_undo(entry);
        // Clones are of what there was before the entry, wherever they stand in it.
        for (object, _, _, acts) in &objects {
            if let Some(Act::CloneFrom(from)) = acts.first() {
                if !self.is_readable(from) {
                    self.remove(object);
                    self.miss_whole(object, version);
                } else if self.is_here(from) {
                    self.copy(object, from, version);
                } else {
                    self.remove(object);
                    self.lack_as(object, from, version);
                }
            }
        }
        for (object, kind, prior, acts) in objects {
            if kind == EntryKind::Delete {
                self.remove(&object);
                continue;
            }
            if let Some((part, to)) = entry.reverted()
                && to == self.me
                && self.revert(&object, entry, part)
            {
                continue;
            }
            // What was there before the last removal does not matter.
            let reset = acts.iter().rposition(|act| *act == Act::Remove);
            if reset.is_some() {
                self.remove(&object);
            }
            let rest = reset.map_or(&acts[..], |at| &acts[at + 1..]);
            let (rest, have) = match rest {
                rest if reset.is_some() => (rest, Version::ZERO),
                [Act::CloneFrom(_), rest @ ..] => (rest, Version::ZERO),
                rest => (rest, prior),
            };
            self.add_missing_of(&object, version, &part_of(rest), have);
        }
    }

    /// What is here of that part counts. Not if nothing is.
    fn revert(&mut self, object: &ObjectId, entry: &LogEntry, part: &Part) -> bool {
        let Some(size) = revert_here(self.store, object, entry, part, &mut self.txn) else { return false };
        self.missing.got(object, part, Some(size));
        if !part.meta {
            self.add_missing(object, entry.version, &Part::meta());
        }
        self.noted.insert(object.clone());
        true
    }
}

impl History {
    /// Makes our log the same as `log`, which must overlap with it, and the interval that began at this epoch
    /// the last one that started here. Stored in one transaction with what is missing from then on.
    pub fn adopt_log(&mut self, store: &dyn StoreView, log: &PgLog, interval: Epoch) -> Update {
        let merge = self.log.merge(&self.info, log);
        let mut changes = RecordChanges::new(self.pg);
        merge.divergent.iter().for_each(|entry| changes.no_entry(entry.version));
        merge.new.iter().for_each(|entry| changes.entry(entry));
        let shard = self.info.shard;
        let mut merger = LogMerger::new(self.me, store, &mut self.missing);
        let divergent =
            if shard.is_some() { merger.restore(shard, merge.divergent) } else { merge.divergent };
        merger.undo_divergent(&divergent);
        merger.undo_after = shard.is_some().then_some((shard, log.info.committed_to));
        merge.new.iter().for_each(|entry| merger.add_entry(entry));
        let (txn, objects) = (merger.txn, merger.noted);
        self.record_missing(&objects, &mut changes);
        self.finish_adoption(log, interval, Update { txn, objects }, changes)
    }

    pub fn finish_adoption(
        &mut self,
        log: &PgLog,
        interval: Epoch,
        mut update: Update,
        mut changes: RecordChanges,
    ) -> Update {
        self.info = PgInfo {
            log_tail: self.info.log_tail.min(log.info.last_update),
            interval_started: interval,
            incomplete: false,
            pg_num: self.info.pg_num,
            shard: self.info.shard,
            dirty_from: self.info.dirty_from.min(log.info.last_update),
            dirty_objects: self.info.dirty_objects,
            ..log.info
        };
        changes.info(&self.info);
        changes.into_txn(&mut update.txn);
        update
    }

    /// Where a store cannot read objects, nothing may be known of those that lack only a part: from now on
    /// all of them is missing. Other unreadable objects are found when they are compared with other copies.
    pub fn drop_unreadable(&mut self, store: &dyn StoreView, txn: &mut Transaction) {
        let mut changes = RecordChanges::new(self.pg);
        let mut merger = LogMerger::new(self.me, store, &mut self.missing);
        merger.drop_unreadable_parts();
        let (removed, noted) = (merger.txn, merger.noted);
        self.record_missing(&noted, &mut changes);
        txn.append(removed);
        changes.into_txn(txn);
    }
}

/// What an entry does to each object.
pub fn changes_of(entry: &LogEntry) -> Vec<(ObjectId, EntryKind, Version, Vec<Act>)> {
    if entry.kind == EntryKind::Note {
        return Vec::new();
    }
    let acts = |object: &ObjectId| -> Vec<Act> {
        let runs = entry.acts.iter().filter(|run| run.object.as_ref().unwrap_or(&entry.object) == object);
        runs.flat_map(|run| run.acts.iter().cloned()).collect()
    };
    // A clone is made of the object as it was before: it comes first.
    let mut all: Vec<_> =
        entry.touched().map(|(object, kind, prior)| (object.clone(), kind, prior, acts(object))).collect();
    all.reverse();
    all
}
