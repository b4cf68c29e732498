//! The inventory scan: how a holder whose log does not reach the authoritative one makes what is here follow
//! that history all the same, page by page, before it takes the log.
//!
//! If what is here is the history up to some version, and the source has a dirty map that reaches back to it,
//! the scan takes that: ranges. Otherwise it takes all names with their versions, and an object of another
//! version is missing whole. Nothing is copied here; what was missing in part before stays so, and what
//! arrived in the meantime is kept, however often the scan begins anew.

use super::history::dups::DupLog;
use super::history::log::Log;
use super::history::log_merge::LogMerger;
use super::history::record::RecordChanges;
use super::history::{History, Update};
use super::{Ctx, PgEffect};
use crate::object_info::ObjectInfo;
use nacre_base::{Epoch, Name, OsdId, Time, Version};
use nacre_machine::{Level, ReadError, StoreView};
use nacre_proto::messages::part::Dirty;
use nacre_proto::messages::peer::{PgLog, PgMsg};
use nacre_proto::types::ObjectId;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Names in one message.
const NAMES_PART: usize = if cfg!(test) { 2 } else { 2000 };

/// Names with their versions, and where the next page starts.
pub type NamesPage = (Vec<(ObjectId, Version)>, Option<ObjectId>);

/// A reply of the source.
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

/// What is still to be asked, and the log to take when nothing is.
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
    pub fn ask(&mut self, ctx: &mut Ctx<'_>) {
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

    /// Begins to follow the history of `source`, whose log this is. What is here proves nothing until it is
    /// done. The caller stores the update and then sends the first query (`ask`).
    pub fn start(history: &mut History, ctx: &Ctx<'_>, source: OsdId, log: PgLog) -> (InventoryScan, Update) {
        // What was committed is in every history. What came after it here may not be.
        let base = history.info.committed_to;
        let known = log.info.dirty_from <= base && base <= log.info.last_update;
        let ours = Version::ZERO < base && history.info.log_tail <= base && base <= history.info.last_update;
        let mut update = Update::default();
        let mut changes = RecordChanges::new(history.pg);
        history.info.incomplete = true;
        // Where history was given up with an OSD, what was committed may be so no more.
        let sure = ctx.map.osds.iter().all(|osd| osd.info.lost_at == Epoch(0));
        let next = if known && ours && sure {
            let gone = history.log.rewind(base);
            gone.iter().for_each(|entry| changes.no_entry(entry.version));
            history.info.last_update = base;
            let shard = history.info.shard;
            let mut merger = LogMerger::new(history.me, ctx.store, &mut history.missing);
            let gone = if shard.is_some() { merger.restore(shard, gone) } else { gone };
            merger.undo_divergent(&gone);
            update = Update { txn: merger.txn, objects: merger.noted };
            history.record_missing(&update.objects, &mut changes);
            Next::Dirty { since: base, from: Name::default() }
        } else {
            Next::Names(history.range.start())
        };
        changes.info(&history.info);
        changes.into_txn(&mut update.txn);
        (InventoryScan { log, source, next, asked: ctx.now.mono }, update)
    }

    /// Takes one reply. The caller stores the update, and asks for the next page or has adopted the log.
    pub fn take_page(
        &mut self,
        history: &mut History,
        ctx: &mut Ctx<'_>,
        interval: Epoch,
        page: Page,
    ) -> Progress {
        let (update, next) = match (page, &self.next) {
            (Page::Names { from, objects, next }, Next::Names(asked)) => {
                let sound =
                    objects.iter().all(|(object, _)| history.range.contains(object) && from <= *object);
                if from != *asked || !sound || next.as_ref().is_some_and(|next| *next <= from) {
                    return Progress::Ignored;
                }
                // If these cannot be read, the page is asked for again.
                let Some(gone) = history.objects_beside(ctx, &from, &objects, next.as_ref()) else {
                    return Progress::Ignored;
                };
                let log = next.is_none().then(|| std::mem::take(&mut self.log));
                let update = history.follow_names(ctx, interval, &gone, &objects, log);
                (update, next.map(Next::Names))
            }
            (Page::Dirty { from, reaches, objects, next }, Next::Dirty { since, from: asked }) => {
                let sound = objects.iter().all(|(object, _)| history.range.contains(object));
                if from != *asked || !sound || next.as_ref().is_some_and(|next| *next <= from) {
                    return Progress::Ignored;
                }
                let since = *since;
                if reaches {
                    let log = next.is_none().then(|| std::mem::take(&mut self.log));
                    let update = history.follow_dirty(ctx, interval, since, &objects, log);
                    (update, next.map(|from| Next::Dirty { since, from }))
                } else {
                    (Update::default(), Some(Next::Names(history.range.start())))
                }
            }
            _ => return Progress::Ignored,
        };
        let Some(next) = next else { return Progress::Done(update) };
        self.next = next;
        Progress::More(update)
    }
}

/// What came of a page.
pub enum Progress {
    /// It is not the reply to the last query, or the objects that are here cannot be read.
    Ignored,
    More(Update),
    /// The log of the source is adopted.
    Done(Update),
}

impl History {
    /// One part of what changed; with the log it is the last.
    fn follow_dirty(
        &mut self,
        ctx: &Ctx<'_>,
        interval: Epoch,
        since: Version,
        objects: &[(ObjectId, Dirty)],
        log: Option<PgLog>,
    ) -> Update {
        let mut merger = LogMerger::new(self.me, ctx.store, &mut self.missing);
        objects.iter().for_each(|(object, dirty)| merger.apply_dirty(object, dirty, since));
        let newer = log.iter().flat_map(|log| &log.entries).filter(|entry| entry.version > since);
        newer.for_each(|entry| merger.add_entry(entry));
        let update = Update { txn: merger.txn, objects: merger.noted };
        self.finish_page(ctx.store, interval, update, log)
    }

    /// The objects between `from` and `next` that are here or missing, and not among `objects`; none if they
    /// cannot be read.
    pub fn objects_beside(
        &self,
        ctx: &mut Ctx<'_>,
        from: &ObjectId,
        objects: &[(ObjectId, Version)],
        next: Option<&ObjectId>,
    ) -> Option<Vec<ObjectId>> {
        let names: BTreeSet<&ObjectId> = objects.iter().map(|(object, _)| object).collect();
        let inside = |object: &ObjectId| next.is_none_or(|next| object < next);
        let missing = self.missing.from(from).map(|(object, _)| object).take_while(|object| inside(object));
        let mut beside: Vec<ObjectId> = missing.filter(|object| !names.contains(object)).cloned().collect();
        let mut start = from.clone();
        loop {
            let here = match self.range.objects_from(ctx.store, &start, NAMES_PART) {
                Ok(here) => here,
                // The OSD leaves where others are enough (`leave_if_corrupt`).
                Err(error) => {
                    ctx.log(
                        Level::Error,
                        format!("pg {}: its objects cannot be compared with other copies: {error}", self.pg),
                    );
                    return None;
                }
            };
            beside.extend(here.iter().filter(|o| inside(o) && !names.contains(o)).cloned());
            match here.last() {
                Some(last) if here.len() == NAMES_PART && inside(last) => start = last.following(),
                _ => return Some(beside),
            }
        }
    }

    /// One part of the names: notes which `objects` are missing, removes those that the source does not have.
    /// With the log it is the last.
    pub fn follow_names(
        &mut self,
        ctx: &Ctx<'_>,
        interval: Epoch,
        gone: &[ObjectId],
        objects: &[(ObjectId, Version)],
        log: Option<PgLog>,
    ) -> Update {
        let mut merger = LogMerger::new(self.me, ctx.store, &mut self.missing);
        gone.iter().for_each(|object| merger.remove(object));
        for (object, version) in objects {
            match self.is_untrusted {
                true => merger.distrust(object, *version),
                false => merger.expect_version(object, *version),
            }
        }
        let update = Update { txn: merger.txn, objects: merger.noted };
        self.finish_page(ctx.store, interval, update, log)
    }

    /// The log, if it comes along, replaces ours, however they relate.
    fn finish_page(
        &mut self,
        store: &dyn StoreView,
        interval: Epoch,
        mut update: Update,
        log: Option<PgLog>,
    ) -> Update {
        let mut changes = RecordChanges::new(self.pg);
        self.record_missing(&update.objects, &mut changes);
        let Some(log) = log else {
            changes.into_txn(&mut update.txn);
            return update;
        };
        self.forget_undo(store, &mut update.txn);
        self.log.versions().for_each(|version| changes.no_entry(version));
        log.entries.iter().for_each(|entry| changes.entry(entry));
        self.log = Log::from_entries(&log.entries);
        self.dups.pages().for_each(|page| changes.no_dup_page(page.number));
        self.dups = DupLog::from_answers(&log.answers);
        self.dups.pages().for_each(|page| changes.dup_page(page));
        self.info.log_tail = log.after;
        self.forget_dirty(&mut changes);
        if std::mem::take(&mut self.is_untrusted) {
            changes.trusted();
        }
        self.finish_adoption(&log, interval, update, changes)
    }

    // ---- the source ----

    /// Names and versions of what exists, as far as the log and the missing set tell, which is
    /// more than what is here.
    pub fn inventory_page(&self, store: &dyn StoreView, from: &ObjectId) -> Result<NamesPage, ReadError> {
        let here = self.range.objects_from(store, from, NAMES_PART + 1)?;
        // With more to come, only what lies before the next part's start belongs to this one.
        let next = here.get(NAMES_PART).cloned();
        let before_next = |object: &&ObjectId| next.as_ref().is_none_or(|next| *object < next);
        let mut objects = BTreeMap::new();
        for object in here.iter().filter(before_next) {
            if let Some(info) = ObjectInfo::load(store, object)? {
                objects.insert(object.clone(), info.version);
            }
        }
        let missing = self.missing.from(from).take_while(|(object, _)| before_next(object));
        let missing = missing.filter(|(_, stale)| stale.part.meta);
        objects.extend(missing.map(|(object, stale)| (object.clone(), stale.need)));
        Ok((objects.into_iter().collect(), next))
    }
}
