//! What this OSD knows of the placement group's content: the summary (`PgInfo`), the log of its newest
//! writes, the duplicate-op log, and what of it is missing here. All of it is kept on disk (`record`).
//!
//! `History` changes nothing on disk by itself: a method that changes it says in an `Update`, or in
//! `RecordChanges` that the caller puts into its transaction, what must be stored together with that.
//!
//! Invariants, asserted by `History::check` after every event:
//!   - the newest log entry is `info.last_update` or before it, the oldest after `info.log_tail`
//!   - the dirty map begins at the log's tail or before it
//!   - dup entries are no newer than the log's tail
//!   - only objects of the placement group are missing

pub mod clone_overlap;
pub mod dirty_map;
pub mod dups;
pub mod log;
pub mod log_merge;
pub mod missing;
pub mod range;
pub mod record;

use crate::ops::ObjectChange;
use crate::pg::backend::erasure::undo::UndoState;
use dirty_map::UnappliedDirty;
use dups::{DupLog, dup_of};
use log::{Log, part_for};
use missing::Missing;
use nacre_base::{Epoch, OsdId, PgId, Utime, Version};
use nacre_proto::messages::answer::Answer;
use nacre_proto::messages::part::acts_of;
use nacre_proto::messages::peer::{LogEntry, PgInfo, PgLog};
use nacre_proto::transaction::Transaction;
use nacre_proto::types::{EntityName, ObjectId, ReqId};
use range::PgRange;
use record::{Record, RecordChanges};
use std::collections::BTreeSet;

pub struct History {
    pub pg: PgId,
    pub me: OsdId,
    pub range: PgRange,
    pub info: PgInfo,
    pub log: Log,
    /// Requests whose entries the log has no more.
    pub dups: DupLog,
    pub missing: Missing,
    /// See `record`.
    pub is_untrusted: bool,
    /// What this turn changed in the dirty map.
    dirty: UnappliedDirty,
    pub undo: UndoState,
}

/// What must be stored with a change of the history, and the objects that it changes.
#[derive(Default)]
pub struct Update {
    pub txn: Transaction,
    pub objects: BTreeSet<ObjectId>,
}

impl History {
    pub fn new(pg: PgId, me: OsdId, record: Record) -> History {
        let Record { info, log, dups, missing, is_untrusted } = record;
        let range = PgRange::new(pg, info.pg_num);
        let (dirty, undo) = (UnappliedDirty::default(), UndoState::loaded(info.last_update));
        History { pg, me, range, info, log, dups, missing, is_untrusted, dirty, undo }
    }
    /// Another record takes the place of this one.
    pub fn replace(&mut self, record: Record) {
        let Record { info, log, dups, missing, is_untrusted } = record;
        (self.info, self.log, self.dups) = (info, log, dups);
        (self.missing, self.is_untrusted) = (missing, is_untrusted);
    }
    /// Bytes of memory that the logs take, roughly.
    pub fn memory(&self) -> usize {
        self.log.memory() + self.dups.memory()
    }

    // ---- writes ----

    /// The version of the next write in the interval that began at this epoch.
    pub fn next_version(&self, interval: Epoch) -> Version {
        Version::new(interval, self.info.last_update.version + 1)
    }

    /// The log entry of a write that no client requested.
    pub fn own_entry(
        &self,
        wall: Utime,
        version: Version,
        object: &ObjectId,
        user_version: u64,
        change: &ObjectChange,
    ) -> LogEntry {
        LogEntry {
            version,
            prior: change.prior,
            kind: change.kind,
            object: object.clone(),
            others: change.others.clone(),
            reqid: ReqId {
                client: EntityName::osd(self.me),
                tid: version.version,
                inc: version.epoch.0 as i32,
            },
            user_version,
            mtime: wall,
            acts: acts_of(&change.txn, object),
            result: 0,
            outputs: Vec::new(),
        }
    }

    /// The reply to a request that was carried out before.
    pub fn find_dup(&self, reqid: &ReqId) -> Option<Answer> {
        self.log.find(reqid).map(|entry| dup_of(&entry)).or_else(|| self.dups.find(reqid))
    }

    // ---- for other holders ----

    /// The part of the log that a holder with this summary needs in order to have the same.
    pub fn log_for(&self, theirs: Option<&PgInfo>) -> PgLog {
        part_for(&self.info, &self.log, &self.dups, theirs)
    }

    // ---- the record ----

    pub fn record_info(&self, txn: &mut Transaction) {
        let mut changes = RecordChanges::new(self.pg);
        changes.info(&self.info);
        changes.into_txn(txn);
    }
    /// What is missing of these objects now.
    pub fn record_missing<'a>(
        &self,
        objects: impl IntoIterator<Item = &'a ObjectId>,
        changes: &mut RecordChanges,
    ) {
        objects.into_iter().for_each(|object| changes.missing(object, self.missing.get(object)));
    }

    /// The view shows now what earlier turns stored.
    pub fn begin_turn(&mut self) {
        if !self.dirty.is_empty() {
            self.dirty = UnappliedDirty::default();
        }
    }

    /// What goes to the child of a split.
    pub fn split_off(&mut self, child: PgId) -> Record {
        let range = PgRange::new(child, self.info.pg_num);
        let moves = |object: &ObjectId| range.contains(object);
        Record {
            info: self.info,
            log: self.log.split_off(moves),
            // The objects of dup entries are not known, so all children get all of them.
            dups: self.dups.clone(),
            missing: self.missing.split_off(moves),
            is_untrusted: self.is_untrusted,
        }
    }

    /// The store lost transactions, and not which is known: what is here proves nothing until it was compared
    /// with another holder's.
    pub fn mark_incomplete(&mut self, txn: &mut Transaction) {
        self.info.incomplete = true;
        // Nor is there a version up to which all is here: inventories are to be compared.
        self.info.committed_to = Version::ZERO;
        self.record_info(txn);
    }

    pub fn check(&self) {
        assert!(self.log.newest().is_none_or(|newest| newest <= self.info.last_update));
        assert!(self.log.oldest().is_none_or(|oldest| oldest > self.info.log_tail));
        assert!(self.info.log_tail <= self.info.last_update);
        assert!(self.info.dirty_from <= self.info.log_tail);
        assert!(self.dups.newest().is_none_or(|newest| newest <= self.info.log_tail));
        debug_assert!(self.missing.iter().all(|(object, _)| self.range.contains(object)));
    }
}
