//! Two groups become one when a pool's `pg_num` shrinks: the *source* ceases to be, and the *target*
//! takes it in. No object moves, as the hashes of both make one range; only the records do.
//!
//! Before it, on the primary of both: when both are clean their writes wait, and when those under way
//! are everywhere the monitors hear of the two versions (`osd/merges.rs`). The map that unites the groups
//! names these versions.
//!
//! When that map comes, every OSD unites what it has, in one transaction. Who has both halves at just
//! these versions has all of the new group, whose log begins behind both: what is `missing` in either
//! half stays noted. Who has less has names and versions at best, and is to be compared with the
//! others before it counts (`info.incomplete`).

use super::dups::{DupLog, dup_of};
use super::log::Log;
use super::range::PgRange;
use super::record::RecordChanges;
use super::replica::Stray;
use super::scrub::walk_findings;
use super::{Ctx, Pg, PgEffect, Phase, pg_list, pg_list_key};
use nacre_base::{Epoch, SpgId, Version};
use nacre_machine::Level;
use nacre_proto::maps::{PoolMerge, is_merge_target};
use nacre_proto::messages::answer::{Answer, Answers};
use nacre_proto::messages::peer::PgInfo;
use nacre_proto::messages::scrub::{Finding, ScrubState};
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_proto::types::ReqId;

/// Answers taken over from each half, at most.
const ANSWERS_MAX: usize = 3000;

impl Pg {
    // ---- before, on the primary ----

    /// Whether writes may wait for the other half.
    pub fn may_hold_writes(&self) -> bool {
        self.is_clean() && matches!(&self.phase, Phase::Active(active) if active.is_all_committed())
    }
    pub fn holds_writes(&self) -> bool {
        matches!(&self.phase, Phase::Active(active) if active.holds_writes)
    }
    pub fn is_active(&self) -> bool {
        matches!(self.phase, Phase::Active(_))
    }
    /// Since when it serves, and its newest write, which every member has and after which none comes.
    pub fn ready_to_merge(&self) -> Option<(Epoch, Version)> {
        let Phase::Active(active) = &self.phase else { return None };
        (active.holds_writes && active.is_drained()).then_some((self.interval.start, self.info.last_update))
    }
    /// Writes wait, or go on.
    pub fn hold_writes(&mut self, ctx: &mut Ctx<'_>, hold: bool) {
        let Phase::Active(active) = &mut self.phase else { return };
        if std::mem::replace(&mut active.holds_writes, hold) && !hold {
            active.note_all_runnable();
            ctx.out.push(PgEffect::Loop);
        }
    }
    /// A map that does not name the group any more as one of two that become one.
    pub fn release_writes(&mut self, ctx: &mut Ctx<'_>) {
        let merging = ctx.map.pool(self.id.pool).and_then(|pool| pool.merging(self.id.pool));
        if self.holds_writes() && merging.is_none_or(|(source, target)| ![source, target].contains(&self.id))
        {
            self.hold_writes(ctx, false);
        }
    }

    // ---- the map that does it ----

    /// The pool has `pg_num` groups now, fewer than when this one was last looked at. `sources` are those
    /// of its other parts that are here.
    pub fn merge(&mut self, ctx: &mut Ctx<'_>, sources: Vec<Pg>, pg_num: u32) {
        if sources.is_empty() && !is_merge_target(self.id, self.info.pg_num, pg_num) {
            self.info.pg_num = pg_num;
            let mut txn = Transaction::new();
            self.record_info(&mut txn);
            self.store(ctx, txn);
            return;
        }
        let how = ctx.map.pool(self.id.pool).map(|pool| pool.last_merge.clone());
        let how = how.filter(|how| self.is_whole_with(&sources, how));
        let mut changes = RecordChanges::new(self.id);
        let mut txn = Transaction::new();
        let mut told = vec![self.told()];
        self.log.versions().for_each(|version| changes.no_entry(version));
        self.log = Log::default();
        let mut info = PgInfo { pg_num, ..self.info };
        for source in sources {
            txn.push(StoredId::Pg(SpgId::replicated(source.id)), Change::Remove);
            txn.push(pg_list(), Change::OmapRemove([pg_list_key(source.id)].into()));
            info.objects += source.info.objects;
            info.clones += source.info.clones;
            info.bytes += source.info.bytes;
            info.estimated |= source.info.estimated;
            if source.is_untrusted {
                self.is_untrusted = true;
                changes.untrusted();
            }
            info.last_user_version = info.last_user_version.max(source.info.last_user_version);
            for (object, stale) in source.missing.iter() {
                changes.missing(object, Some(stale));
                self.missing.set(object.clone(), stale.clone());
            }
            told.push(source.told());
            self.leases.join(&source.leases);
            self.take_findings(ctx, &source, &mut changes);
            self.take_counts(&source);
        }
        // Versions of the halves mean nothing to each other: the log starts anew, behind both.
        let start = how.as_ref().map_or(Version::ZERO, PoolMerge::version);
        self.info = PgInfo {
            last_update: start,
            log_tail: start,
            committed_to: start,
            interval_started: if how.is_some() { ctx.map.epoch } else { Epoch(0) },
            incomplete: how.is_none(),
            ..info
        };
        self.dups.pages().for_each(|page| changes.no_dup_page(page.number));
        self.dups = DupLog::after(&self.dups, &together(told, start));
        self.dups.pages().for_each(|page| changes.answers(page));
        self.forget_dirty(&mut changes);
        self.range = PgRange::new(self.id, pg_num);
        changes.info(&self.info);
        changes.scrub_state(&self.scrub_state);
        changes.into_txn(&mut txn);
        // Clients send everything again after a merge, and the new interval follows at once.
        self.last_primary_change = ctx.map.epoch;
        self.waiting_for_active.clear();
        self.forget_watches();
        self.when_stored.clear();
        self.push_reads.clear();
        self.scrub_reads.clear();
        self.phase = Phase::Stray(Stray::default());
        if how.is_none() {
            let text = format!("pg {}: the copies merged here were not complete", self.id);
            ctx.log(Level::Info, text);
        }
        self.store(ctx, txn);
    }

    /// Whether both halves are here, just as they were when they became one.
    fn is_whole_with(&self, sources: &[Pg], how: &PoolMerge) -> bool {
        let [source] = sources else { return false };
        source.id == how.source
            && !(self.info.incomplete || source.info.incomplete)
            && (source.info.last_update, self.info.last_update) == (how.source_version, how.target_version)
    }

    /// What clients were told, the newest first.
    fn told(&self) -> Vec<Answer> {
        let by_log =
            self.log.iter().rev().filter(|entry| entry.reqid != ReqId::default()).map(|entry| dup_of(&entry));
        by_log.chain(self.dups.all().0.into_iter().rev()).take(ANSWERS_MAX).collect()
    }

    fn take_findings(&mut self, ctx: &mut Ctx<'_>, source: &Pg, changes: &mut RecordChanges) {
        let walked = walk_findings(ctx.store, source.id, &mut |object, finding| {
            changes.finding(&object, matches!(finding, Finding::Snaps(_)), Some(&finding));
            true
        });
        if let Err(error) = walked {
            ctx.log(Level::Error, format!("pg {}: {error}", self.id));
        }
        let (ours, theirs) = (self.scrub_state, source.scrub_state);
        // What holds for both.
        self.scrub_state = ScrubState {
            last: ours.last.min(theirs.last),
            last_stamp: ours.last_stamp.min(theirs.last_stamp),
            last_deep: ours.last_deep.min(theirs.last_deep),
            last_deep_stamp: ours.last_deep_stamp.min(theirs.last_deep_stamp),
            last_clean_stamp: ours.last_clean_stamp.min(theirs.last_clean_stamp),
            shallow_errors: ours.shallow_errors + theirs.shallow_errors,
            deep_errors: ours.deep_errors + theirs.deep_errors,
            omap_keys: ours.omap_keys + theirs.omap_keys,
            omap_bytes: ours.omap_bytes + theirs.omap_bytes,
            repaired: ours.repaired + theirs.repaired,
        };
        self.scrub_unsaved = false;
    }

    fn take_counts(&mut self, source: &Pg) {
        self.counts.work = self.counts.work.plus(source.counts.work);
    }
}

/// What the halves told, each the newest first, as if it had been told in turns. Their versions mean nothing
/// to each other: all of it counts as of the beginning of the new log.
fn together(halves: Vec<Vec<Answer>>, start: Version) -> Answers {
    let mut halves: Vec<_> = halves.into_iter().map(Vec::into_iter).collect();
    let mut all = Vec::new();
    loop {
        let before = all.len();
        all.extend(halves.iter_mut().filter_map(Iterator::next));
        if all.len() == before {
            break;
        }
    }
    all.reverse();
    all.iter_mut().for_each(|answer| answer.version = start);
    Answers(all)
}
