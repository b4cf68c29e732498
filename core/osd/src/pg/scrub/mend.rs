//! Copies that are wrong become missing, and what is missing is recovered as ever: from those who have
//! it, with nobody waiting who does not need it.

use super::super::catch_up::CatchUp;
use super::super::record::RecordChanges;
use super::super::{Ctx, Pg, PgEffect, Phase};
use super::compare::Remedy;
use nacre_base::OsdId;
use nacre_proto::messages::part::{Part, Stale};
use nacre_proto::messages::peer::PgMsg;
use nacre_proto::messages::scrub::{BadObject, Finding, ScrubMsg};
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_proto::types::ObjectId;
use std::collections::BTreeSet;

impl Pg {
    pub(super) fn on_bad_object(
        &mut self,
        ctx: &mut Ctx<'_>,
        object: &ObjectId,
        bad: BadObject,
        remedy: Remedy,
    ) {
        let (shallow, deep) = (remedy.shallow, remedy.deep);
        let whose: Vec<String> = remedy.stale.keys().map(|osd| format!("osd.{osd}")).collect();
        let whose =
            if whose.is_empty() { "no copy is known to be correct".to_string() } else { whose.join(", ") };
        self.tell_cluster(ctx, format!("{} {object}: copies differ, wrong: {whose}", self.id));
        let auto = ctx.budget.scrub.rules.auto_repair.unwrap_or_default();
        let Some(running) = self.running() else { return };
        running.found += shallow + deep;
        running.state.shallow_errors += shallow;
        running.state.deep_errors += deep;
        let repair = running.wanted.repair && !remedy.hopeless;
        if !repair && running.wanted.deep && running.remedies.len() as u64 <= auto {
            running.remedies.push((object.clone(), remedy.clone()));
        }
        self.keep_finding(ctx, object, Finding::Object(bad));
        if repair {
            self.put_right(ctx, object, remedy);
        }
    }

    /// At the end, if wrong copies are put right unasked and are few. Whether there is something to
    /// wait for.
    pub(super) fn put_rest_right(&mut self, ctx: &mut Ctx<'_>) -> bool {
        let auto = ctx.budget.scrub.rules.auto_repair.unwrap_or_default();
        let Some(running) = self.running() else { return false };
        let mut remedies = std::mem::take(&mut running.remedies);
        remedies.retain(|(_, remedy)| !remedy.hopeless);
        if running.found > auto || remedies.is_empty() {
            return false;
        }
        for (object, remedy) in remedies {
            self.put_right(ctx, &object, remedy);
        }
        true
    }

    /// Every wrong copy of an object is given up, by all in the same moment of their history.
    fn put_right(&mut self, ctx: &mut Ctx<'_>, object: &ObjectId, remedy: Remedy) {
        let Remedy { stale, shallow, deep, .. } = remedy;
        for (osd, stale) in stale {
            if osd == self.me {
                self.give_up_copy(ctx, object, &stale);
                continue;
            }
            let Phase::Active(active) = &mut self.phase else { return };
            let Some(member) = active.members.get_mut(&osd) else { continue };
            member.missing.add(object, stale.need, &stale.part);
            member.missing.note_wrong(object);
            active.scrub.mending.insert((osd, object.clone()), stale.part.meta);
            let msg = ScrubMsg::Mend { object: object.clone(), stale };
            ctx.out.push(PgEffect::ask(osd, PgMsg::Scrub(Box::new(msg))));
        }
        self.drop_finding(ctx, object);
        if let Some(running) = self.running() {
            running.fixed += shallow + deep;
            running.state.repaired += shallow + deep;
            running.state.shallow_errors = running.state.shallow_errors.saturating_sub(shallow);
            running.state.deep_errors = running.state.deep_errors.saturating_sub(deep);
        }
        ctx.out.push(PgEffect::Loop);
    }

    /// What a member may not have heard of. It comes behind the writes that are sent again, so only
    /// what they left of it counts.
    pub(super) fn mend_again(&mut self, ctx: &mut Ctx<'_>, osd: OsdId) {
        let Phase::Active(active) = &mut self.phase else { return };
        let Some(member) = active.members.get_mut(&osd) else { return };
        let missing = &mut member.missing;
        active.scrub.mending.retain(|(_, object), _| missing.get(object).is_some());
        for ((_, object), whole) in active.scrub.mending.iter().filter(|((of, _), _)| *of == osd) {
            let need = missing.get(object).map(|stale| stale.need).unwrap_or_default();
            if *whole {
                // Those writes did not know that they change something that is wrong. Nor does what was read for it before
                // them.
                missing.add(object, need, &Part::everything());
                if active.recovery.void(object) {
                    ctx.out.push(PgEffect::Loop);
                }
            }
            if let Some(stale) = missing.get(object).cloned() {
                let msg = ScrubMsg::Mend { object: object.clone(), stale };
                ctx.out.push(PgEffect::ask(osd, PgMsg::Scrub(Box::new(msg))));
            }
        }
    }

    /// The primary found that our copy is wrong.
    pub(super) fn on_mend(&mut self, ctx: &mut Ctx<'_>, from: OsdId, object: ObjectId, stale: Stale) {
        if self.interval.primary != Some(from) || !self.is_merged_replica() || !self.range.contains(&object) {
            return;
        }
        self.give_up_copy(ctx, &object, &stale);
    }

    /// Notes that of an object as missing, and removes what must not stay where something comes anew.
    fn give_up_copy(&mut self, ctx: &mut Ctx<'_>, object: &ObjectId, stale: &Stale) {
        let id = StoredId::Object(object.clone());
        let stat = ctx.store.stat(&id).unwrap_or_default();
        let mut changes = RecordChanges::new(self.id);
        let mut catch_up = CatchUp::new(self.me, ctx.store, &mut self.missing);
        catch_up.give_up(object, stale);
        let (mut txn, noted) = (catch_up.txn, catch_up.noted);
        if let Some(stat) = stat.filter(|_| !stale.part.meta) {
            txn.append(blank(&id, &stale.part, stat.size));
        }
        let noted: BTreeSet<ObjectId> = noted.into_iter().chain([object.clone()]).collect();
        noted.iter().for_each(|object| changes.missing(object, self.missing.get(object)));
        changes.into_txn(&mut txn);
        self.changed.extend(noted);
        self.store(ctx, txn);
    }
}

/// Nothing may be put over bad blocks, or together with them.
fn blank(id: &StoredId, part: &Part, size: u64) -> Transaction {
    let mut txn = Transaction::new();
    for range in part.data.iter().filter(|range| range.start < size) {
        txn.push(
            id.clone(),
            Change::Zero { offset: range.start, len: range.end.min(blocks(size)) - range.start },
        );
    }
    if !txn.is_empty() {
        txn.push(id.clone(), Change::Truncate { size });
    }
    txn
}

/// The end of the last block.
fn blocks(size: u64) -> u64 {
    size.next_multiple_of(super::super::mend::BLOCK)
}
