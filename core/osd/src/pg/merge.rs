//! Merging two placement groups, when a pool's `pg_num` decreases: the *source* ceases to exist, and the
//! *target* takes it in. No object moves, as the hashes of both make one range; only the records do.
//!
//! Before the merge, on the primary of both: when both are clean their writes wait, and when those in flight
//! are committed, the primary reports the two versions to the monitors (`osd/merges.rs`). The map that merges
//! the two names these versions.
//!
//! When that map comes, every OSD merges what it has, in one transaction. An OSD that has both halves at just
//! these versions has all of the new placement group, whose log begins behind both: the missing sets of both
//! halves remain. An OSD that has less has names and versions at best, and its objects are compared with
//! other copies before they count (`info.incomplete`).

use super::PgRange;
use super::history::dups::{DupLog, dup_of};
use super::history::log::Log;
use super::record::RecordChanges;
use super::replica::Stray;
use super::{Ctx, Pg, PgEffect, Phase, pg_list, pg_list_key};
use nacre_base::{Epoch, SpgId, Version};
use nacre_machine::Level;
use nacre_proto::maps::{PoolMerge, is_merge_target};
use nacre_proto::messages::answer::{Answer, Answers};
use nacre_proto::messages::peer::PgInfo;
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_proto::types::ReqId;

/// Dup entries taken over from each half, at most.
const DUPS_MAX: usize = 3000;

impl Pg {
    // ---- before, on the primary ----

    /// Whether writes may wait for the other half.
    pub fn may_hold_writes(&self) -> bool {
        self.is_clean() && matches!(&self.phase, Phase::Active(active) if active.ops.is_all_committed())
    }
    pub fn holds_writes(&self) -> bool {
        matches!(&self.phase, Phase::Active(active) if active.ops.holds_writes)
    }
    pub fn is_active(&self) -> bool {
        matches!(self.phase, Phase::Active(_))
    }
    /// The interval's start, and the newest write: all members have it, and no later one exists.
    pub fn ready_to_merge(&self) -> Option<(Epoch, Version)> {
        let Phase::Active(active) = &self.phase else { return None };
        active.ops.is_ready_to_merge().then_some((self.interval.start, self.history.info.last_update))
    }
    /// Writes wait, or continue.
    pub fn hold_writes(&mut self, ctx: &mut Ctx<'_>, hold: bool) {
        let Phase::Active(active) = &mut self.phase else { return };
        if std::mem::replace(&mut active.ops.holds_writes, hold) && !hold {
            active.ops.note_all_runnable();
            ctx.out.push(PgEffect::Loop);
        }
    }
    /// A map that does not name the placement group as one of two that merge any more.
    pub fn release_writes(&mut self, ctx: &mut Ctx<'_>) {
        let merging = ctx.map.pool(self.id.pool).and_then(|pool| pool.merging(self.id.pool));
        if self.holds_writes() && merging.is_none_or(|(source, target)| ![source, target].contains(&self.id))
        {
            self.hold_writes(ctx, false);
        }
    }

    // ---- the map that does it ----

    /// The pool has `pg_num` placement groups now, fewer than before. `sources` are those that merge into
    /// this one and are here.
    pub fn merge(&mut self, ctx: &mut Ctx<'_>, sources: Vec<Pg>, pg_num: u32) {
        if sources.is_empty() && !is_merge_target(self.id, self.history.info.pg_num, pg_num) {
            self.history.info.pg_num = pg_num;
            let mut txn = Transaction::new();
            self.history.record_info(&mut txn);
            self.store(ctx, txn);
            return;
        }
        let how = ctx.map.pool(self.id.pool).map(|pool| pool.last_merge.clone());
        let how = how.filter(|how| self.is_whole_with(&sources, how));
        let mut changes = RecordChanges::new(self.id);
        let mut txn = Transaction::new();
        let mut dups = vec![self.newest_dups()];
        self.history.log.versions().for_each(|version| changes.no_entry(version));
        self.history.log = Log::default();
        let mut info = PgInfo { pg_num, ..self.history.info };
        for source in sources {
            txn.push(StoredId::Pg(SpgId::replicated(source.id)), Change::Remove);
            txn.push(pg_list(), Change::OmapRemove([pg_list_key(source.id)].into()));
            info.objects += source.history.info.objects;
            info.clones += source.history.info.clones;
            info.bytes += source.history.info.bytes;
            info.estimated |= source.history.info.estimated;
            if source.history.is_untrusted {
                self.history.is_untrusted = true;
                changes.untrusted();
            }
            info.last_user_version = info.last_user_version.max(source.history.info.last_user_version);
            for (object, stale) in source.history.missing.iter() {
                changes.missing(object, Some(stale));
                self.history.missing.set(object.clone(), stale.clone());
            }
            dups.push(source.newest_dups());
            self.leases.join(&source.leases);
            self.scrub.join(ctx, &source.scrub, &mut changes);
            self.stats.join(&source.stats);
        }
        // Versions of the halves cannot be compared: the log starts anew, behind both.
        let start = how.as_ref().map_or(Version::ZERO, PoolMerge::version);
        self.history.info = PgInfo {
            last_update: start,
            log_tail: start,
            committed_to: start,
            interval_started: if how.is_some() { ctx.map.epoch } else { Epoch(0) },
            incomplete: how.is_none(),
            ..info
        };
        self.history.dups.pages().for_each(|page| changes.no_dup_page(page.number));
        self.history.dups = DupLog::after(&self.history.dups, &interleave(dups, start));
        self.history.dups.pages().for_each(|page| changes.dup_page(page));
        self.history.forget_dirty(&mut changes);
        self.history.range = PgRange::new(self.id, pg_num);
        changes.info(&self.history.info);
        changes.scrub_state(&self.scrub.state);
        changes.into_txn(&mut txn);
        // Clients send everything again after a merge, and the new interval follows at once.
        self.last_primary_change = ctx.map.epoch;
        self.waiting_for_active.clear();
        self.watches.clear();
        self.pending.forget_deferred();
        self.push_reads.forget_reads();
        self.scrub.forget_reads();
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
            && !(self.history.info.incomplete || source.history.info.incomplete)
            && (source.history.info.last_update, self.history.info.last_update)
                == (how.source_version, how.target_version)
    }

    /// The replies that clients got, the newest first.
    fn newest_dups(&self) -> Vec<Answer> {
        let by_log = self
            .history
            .log
            .iter()
            .rev()
            .filter(|entry| entry.reqid != ReqId::default())
            .map(|entry| dup_of(&entry));
        by_log.chain(self.history.dups.all().0.into_iter().rev()).take(DUPS_MAX).collect()
    }
}

/// The dup entries of the halves, each the newest first, in turns. Versions of the halves cannot be compared:
/// all count as of the beginning of the new log.
fn interleave(halves: Vec<Vec<Answer>>, start: Version) -> Answers {
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
