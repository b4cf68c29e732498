//! Copies that are wrong become missing, and what is missing is recovered as ever: from those who have
//! it, with nobody waiting who does not need it.

use super::super::log_merge::LogMerger;
use super::super::record::RecordChanges;
use super::super::{Ctx, Pg, PgEffect, Phase};
use super::compare::RepairPlan;
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
        plan: RepairPlan,
    ) {
        let (shallow, deep) = (plan.shallow, plan.deep);
        let whose: Vec<String> = plan.stale.keys().map(|osd| format!("osd.{osd}")).collect();
        let whose =
            if whose.is_empty() { "no copy is known to be correct".to_string() } else { whose.join(", ") };
        self.cluster_error(ctx, format!("{} {object}: copies differ, wrong: {whose}", self.id));
        let auto = ctx.budget.scrub.rules.auto_repair.unwrap_or_default();
        let Some(running) = self.running() else { return };
        running.found += shallow + deep;
        running.state.shallow_errors += shallow;
        running.state.deep_errors += deep;
        let repair = running.wanted.repair && !plan.unrepairable;
        if !repair && running.wanted.deep && running.plans.len() as u64 <= auto {
            running.plans.push((object.clone(), plan.clone()));
        }
        self.keep_finding(ctx, object, Finding::Object(bad));
        if repair {
            self.repair_object(ctx, object, plan);
        }
    }

    /// At the end, if wrong copies are put right unasked and are few. Whether there is something to
    /// wait for.
    pub(super) fn auto_repair(&mut self, ctx: &mut Ctx<'_>) -> bool {
        let auto = ctx.budget.scrub.rules.auto_repair.unwrap_or_default();
        let Some(running) = self.running() else { return false };
        let mut plans = std::mem::take(&mut running.plans);
        plans.retain(|(_, plan)| !plan.unrepairable);
        if running.found > auto || plans.is_empty() {
            return false;
        }
        for (object, plan) in plans {
            self.repair_object(ctx, &object, plan);
        }
        true
    }

    /// Every wrong copy of an object is given up, by all in the same moment of their history.
    fn repair_object(&mut self, ctx: &mut Ctx<'_>, object: &ObjectId, plan: RepairPlan) {
        let RepairPlan { stale, shallow, deep, .. } = plan;
        for (osd, stale) in stale {
            if osd == self.me {
                self.discard_copy(ctx, object, &stale);
                continue;
            }
            let Phase::Active(active) = &mut self.phase else { return };
            let Some(member) = active.members.get_mut(&osd) else { continue };
            member.missing.add(object, stale.need, &stale.part);
            member.missing.note_wrong(object);
            active.scrub.repairing.insert((osd, object.clone()), stale.part.meta);
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
    pub(super) fn resend_repairs(&mut self, ctx: &mut Ctx<'_>, osd: OsdId) {
        let Phase::Active(active) = &mut self.phase else { return };
        let Some(member) = active.members.get_mut(&osd) else { return };
        let missing = &mut member.missing;
        active.scrub.repairing.retain(|(_, object), _| missing.get(object).is_some());
        for ((_, object), whole) in active.scrub.repairing.iter().filter(|((of, _), _)| *of == osd) {
            let need = missing.get(object).map(|stale| stale.need).unwrap_or_default();
            if *whole {
                // Those writes did not know that they change something that is wrong. Nor does what was read for it before
                // them.
                missing.add(object, need, &Part::everything());
                if active.recovery.cancel(object) {
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
    pub(super) fn on_repair(&mut self, ctx: &mut Ctx<'_>, from: OsdId, object: ObjectId, stale: Stale) {
        if self.interval.primary != Some(from) || !self.is_merged_replica() || !self.range.contains(&object) {
            return;
        }
        self.discard_copy(ctx, &object, &stale);
    }

    /// Notes that of an object as missing, and removes what must not stay where something comes anew.
    fn discard_copy(&mut self, ctx: &mut Ctx<'_>, object: &ObjectId, stale: &Stale) {
        let id = StoredId::Object(object.clone());
        let stat = ctx.store.stat(&id).unwrap_or_default();
        let mut changes = RecordChanges::new(self.id);
        let mut merger = LogMerger::new(self.me, ctx.store, &mut self.missing);
        merger.give_up(object, stale);
        let (mut txn, noted) = (merger.txn, merger.noted);
        if let Some(stat) = stat.filter(|_| !stale.part.meta) {
            txn.append(blank(&id, &stale.part, stat.size));
        }
        let noted: BTreeSet<ObjectId> = noted.into_iter().chain([object.clone()]).collect();
        noted.iter().for_each(|object| changes.missing(object, self.missing.get(object)));
        changes.into_txn(&mut txn);
        self.unapplied.extend(noted);
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
    size.next_multiple_of(super::super::read_repair::BLOCK)
}
