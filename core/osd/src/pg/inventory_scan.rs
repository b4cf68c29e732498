//! How somebody whose log does not reach the group's makes what is here follow it all the same:
//! page by page, before the log is taken.
//!
//! If what it has is the group's up to some version since which the source kept what changed (see
//! `dirty`), it takes that: ranges. Else it takes all names with their versions: what has another
//! version is missing whole. Nothing is copied here; what was missing in part before stays so, and
//! what arrived in the meantime is not given up, however often this begins anew.

use super::dups::DupLog;
use super::log::Log;
use super::log_merge::LogMerger;
use super::record::RecordChanges;
use super::{Ctx, Pg, PgEffect, WhenStored};
use crate::object_info::ObjectInfo;
use nacre_base::{Epoch, Name, OsdId, Time, Version};
use nacre_machine::{Level, ReadError};
use nacre_proto::messages::part::Dirty;
use nacre_proto::messages::peer::{PgLog, PgMsg};
use nacre_proto::transaction::Transaction;
use nacre_proto::types::ObjectId;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Names in one message.
const NAMES_PART: usize = if cfg!(test) { 2 } else { 2000 };

/// Names with their versions, and where the next part starts.
type NamesPart = (Vec<(ObjectId, Version)>, Option<ObjectId>);

/// What comes in answer.
pub enum Page {
    Names { from: ObjectId, objects: Vec<(ObjectId, Version)>, next: Option<ObjectId> },
    Dirty { from: Name, reaches: bool, objects: Vec<(ObjectId, Dirty)>, next: Option<Name> },
}

/// What is asked for next.
enum Next {
    Names(ObjectId),
    /// What changed after `since`, the end of our history.
    Dirty {
        since: Version,
        from: Name,
    },
}

/// What is still to be asked, and the log to take when there is nothing more.
pub struct InventoryScan {
    log: PgLog,
    pub source: OsdId,
    next: Next,
    asked: Time,
}

impl InventoryScan {
    fn query(&self) -> PgMsg {
        match &self.next {
            Next::Names(from) => PgMsg::InventoryQuery { from: from.clone() },
            Next::Dirty { since, from } => PgMsg::DirtyQuery { since: *since, from: from.clone() },
        }
    }
    fn ask(&mut self, ctx: &mut Ctx<'_>) {
        self.asked = ctx.now.mono;
        ctx.out.push(PgEffect::ask(self.source, self.query()));
    }
    pub fn ask_again(&mut self, ctx: &mut Ctx<'_>, after: Duration) {
        if ctx.now.mono.since(self.asked) >= after {
            self.ask(ctx);
        }
    }
    /// In words.
    pub fn waits_for(&self) -> String {
        match self.next {
            Next::Names(_) => format!("the object names of osd.{}", self.source),
            Next::Dirty { since, .. } => format!("the changes since {since} from osd.{}", self.source),
        }
    }
}

impl Pg {
    /// Begins to follow `source`, whose log this is. What is here proves nothing until it is done.
    pub fn start_scan(&mut self, ctx: &mut Ctx<'_>, source: OsdId, log: PgLog) -> InventoryScan {
        // What was committed is in everybody's history. What came after it here may not be.
        let base = self.info.committed_to;
        let known = log.info.dirty_from <= base && base <= log.info.last_update;
        let ours = Version::ZERO < base && self.info.log_tail <= base && base <= self.info.last_update;
        let mut txn = Transaction::new();
        let mut changes = RecordChanges::new(self.id);
        self.info.incomplete = true;
        // Where history was given up with an OSD, what was committed may be so no more.
        let sure = ctx.map.osds.iter().all(|osd| osd.info.lost_at == Epoch(0));
        let next = if known && ours && sure {
            let gone = self.log.rewind(base);
            gone.iter().for_each(|entry| changes.no_entry(entry.version));
            self.info.last_update = base;
            let mut merger = LogMerger::new(self.me, ctx.store, &mut self.missing);
            merger.undo(&gone);
            let noted = merger.noted;
            txn = merger.txn;
            self.note_merged(noted, &mut changes);
            Next::Dirty { since: base, from: Name::default() }
        } else {
            Next::Names(self.range.start())
        };
        changes.info(&self.info);
        changes.into_txn(&mut txn);
        self.store(ctx, txn);
        let mut scan = InventoryScan { log, source, next, asked: ctx.now.mono };
        scan.ask(ctx);
        scan
    }

    pub fn note_merged(&mut self, noted: BTreeSet<ObjectId>, changes: &mut RecordChanges) {
        for object in noted {
            changes.missing(&object, self.missing.get(&object));
            self.unapplied.insert(object);
        }
    }

    /// Takes one answer. Says whether it was the last: then our log is the source's.
    pub fn take_page(&mut self, ctx: &mut Ctx<'_>, scan: &mut InventoryScan, page: Page) -> bool {
        let done = match (page, &scan.next) {
            (Page::Names { from, objects, next }, Next::Names(asked)) => {
                let sound = objects.iter().all(|(object, _)| self.range.contains(object) && from <= *object);
                if from != *asked || !sound || next.as_ref().is_some_and(|next| *next <= from) {
                    return false;
                }
                let log = next.is_none().then(|| std::mem::take(&mut scan.log));
                self.follow_names(ctx, &from, &objects, next.as_ref(), log);
                next.map(Next::Names)
            }
            (Page::Dirty { from, reaches, objects, next }, Next::Dirty { since, from: asked }) => {
                let sound = objects.iter().all(|(object, _)| self.range.contains(object));
                if from != *asked || !sound || next.as_ref().is_some_and(|next| *next <= from) {
                    return false;
                }
                let since = *since;
                if reaches {
                    let log = next.is_none().then(|| std::mem::take(&mut scan.log));
                    self.follow_dirty(ctx, since, &objects, log);
                    next.map(|from| Next::Dirty { since, from })
                } else {
                    Some(Next::Names(self.range.start()))
                }
            }
            _ => return false,
        };
        let Some(next) = done else { return true };
        scan.next = next;
        scan.ask(ctx);
        false
    }

    /// One part of what changed; with the log it is the last.
    fn follow_dirty(
        &mut self,
        ctx: &mut Ctx<'_>,
        since: Version,
        objects: &[(ObjectId, Dirty)],
        log: Option<PgLog>,
    ) {
        let id = self.id;
        let mut merger = LogMerger::new(self.me, ctx.store, &mut self.missing);
        objects.iter().for_each(|(object, dirty)| merger.follow(object, dirty, since));
        let newer = log.iter().flat_map(|log| &log.entries).filter(|entry| entry.version > since);
        newer.for_each(|entry| merger.miss(entry));
        let mut changes = RecordChanges::new(id);
        let (txn, noted) = (merger.txn, merger.noted);
        self.note_merged(noted, &mut changes);
        self.store_page(ctx, txn, changes, log);
    }

    /// One part of the names: notes what is missing, removes what should not be here. With the log
    /// it is the last.
    pub fn follow_names(
        &mut self,
        ctx: &mut Ctx<'_>,
        from: &ObjectId,
        objects: &[(ObjectId, Version)],
        next: Option<&ObjectId>,
        log: Option<PgLog>,
    ) {
        let id = self.id;
        let names: BTreeSet<&ObjectId> = objects.iter().map(|(object, _)| object).collect();
        let inside = |object: &ObjectId| next.is_none_or(|next| object < next);
        // Ours in the same stretch: none of them may stay that the source does not have.
        let missing = self.missing.from(from).map(|(object, _)| object).take_while(|object| inside(object));
        let mut gone: Vec<ObjectId> = missing.filter(|object| !names.contains(object)).cloned().collect();
        let mut start = from.clone();
        loop {
            let here = match self.objects_from(ctx, &start, NAMES_PART) {
                Ok(here) => here,
                // The OSD leaves where others are enough (`leave_if_rotten`).
                Err(error) => {
                    ctx.log(
                        Level::Error,
                        format!("pg {id}: its objects cannot be compared with other copies: {error}"),
                    );
                    return;
                }
            };
            gone.extend(here.iter().filter(|o| inside(o) && !names.contains(o)).cloned());
            match here.last() {
                Some(last) if here.len() == NAMES_PART && inside(last) => {
                    start = last.following();
                }
                _ => break,
            }
        }
        let mut merger = LogMerger::new(self.me, ctx.store, &mut self.missing);
        gone.iter().for_each(|object| merger.remove(object));
        for (object, version) in objects {
            match self.is_untrusted {
                true => merger.distrust(object, *version),
                false => merger.expect_version(object, *version),
            }
        }
        let mut changes = RecordChanges::new(id);
        let (txn, noted) = (merger.txn, merger.noted);
        self.note_merged(noted, &mut changes);
        self.store_page(ctx, txn, changes, log);
    }

    /// The log, if it comes along, replaces ours, however they relate.
    fn store_page(
        &mut self,
        ctx: &mut Ctx<'_>,
        mut txn: Transaction,
        mut changes: RecordChanges,
        log: Option<PgLog>,
    ) {
        let Some(log) = log else {
            changes.into_txn(&mut txn);
            if !txn.is_empty() {
                self.store(ctx, txn);
            }
            return;
        };
        self.log.versions().for_each(|version| changes.no_entry(version));
        log.entries.iter().for_each(|entry| changes.entry(entry));
        self.log = Log::from_entries(&log.entries);
        self.dups.pages().for_each(|page| changes.no_dup_page(page.number));
        self.dups = DupLog::from_answers(&log.answers);
        self.dups.pages().for_each(|page| changes.answers(page));
        self.info.log_tail = log.after;
        self.forget_dirty(&mut changes);
        if std::mem::take(&mut self.is_untrusted) {
            changes.trusted();
        }
        self.finish_adoption(ctx, &log, txn, changes);
    }

    // ---- the source ----

    pub fn answer_inventory(&mut self, ctx: &mut Ctx<'_>, to: OsdId, from: &ObjectId) {
        match self.inventory_part(ctx, from) {
            Ok((objects, next)) => {
                let answer = PgMsg::Inventory { from: from.clone(), objects, next };
                self.once_durable(ctx, WhenStored::Answer(to, Box::new(answer)));
            }
            Err(error) => ctx.log(Level::Error, format!("pg {}: {error}", self.id)),
        }
    }

    /// Names and versions of what exists, as far as the log and the missing set tell, which is
    /// more than what is here.
    fn inventory_part(&self, ctx: &Ctx<'_>, from: &ObjectId) -> Result<NamesPart, ReadError> {
        let here = self.objects_from(ctx, from, NAMES_PART + 1)?;
        // With more to come, only what lies before the next part's start belongs to this one.
        let next = here.get(NAMES_PART).cloned();
        let before_next = |object: &&ObjectId| next.as_ref().is_none_or(|next| *object < next);
        let mut objects = BTreeMap::new();
        for object in here.iter().filter(before_next) {
            if let Some(info) = ObjectInfo::load(ctx.store, object)? {
                objects.insert(object.clone(), info.version);
            }
        }
        let missing = self.missing.from(from).take_while(|(object, _)| before_next(object));
        let missing = missing.filter(|(_, stale)| stale.part.meta);
        objects.extend(missing.map(|(object, stale)| (object.clone(), stale.need)));
        Ok((objects.into_iter().collect(), next))
    }
}
