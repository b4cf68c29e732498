//! Scrub repair: a wrong copy becomes missing, and what is missing is recovered as ever, from the members
//! that have it. Only requests that need the object wait for it.

use super::{Scope, Scrub, cluster_error};
use crate::pg::backend::scrub_verdict::RepairPlan;
use crate::pg::history::log_merge::LogMerger;
use crate::pg::history::record::RecordChanges;
use crate::pg::history::{History, Update};
use crate::pg::read_repair::BLOCK;
use crate::pg::{Ctx, PgEffect};
use nacre_base::OsdId;
use nacre_machine::StoreView;
use nacre_proto::messages::part::{Part, Stale};
use nacre_proto::messages::peer::PgMsg;
use nacre_proto::messages::scrub::{BadObject, Finding, ScrubMsg};
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_proto::types::ObjectId;
use std::collections::BTreeSet;

impl Scrub {
    pub(super) fn on_bad_object(
        &mut self,
        pg: &mut Scope<'_>,
        ctx: &mut Ctx<'_>,
        object: &ObjectId,
        bad: BadObject,
        plan: RepairPlan,
    ) {
        let (shallow, deep) = (plan.shallow, plan.deep);
        let whose: Vec<String> = plan.stale.keys().map(|osd| format!("osd.{osd}")).collect();
        let whose =
            if whose.is_empty() { "no copy is known to be correct".to_string() } else { whose.join(", ") };
        cluster_error(ctx, format!("{} {object}: copies differ, wrong: {whose}", pg.id()));
        let auto = ctx.budget.scrub.rules.auto_repair.unwrap_or_default();
        let Some(running) = self.running.as_deref_mut() else { return };
        running.found += shallow + deep;
        running.state.shallow_errors += shallow;
        running.state.deep_errors += deep;
        let repair = running.request.repair && !plan.unrepairable;
        if !repair && running.request.deep && running.plans.len() as u64 <= auto {
            running.plans.push((object.clone(), plan.clone()));
        }
        self.keep_finding(pg, ctx, object, Finding::Object(bad));
        if repair {
            self.repair_object(pg, ctx, object, plan);
        }
    }

    /// Ceph: `osd_scrub_auto_repair`. At the end of a scrub, repairs wrong copies without a request if they
    /// are few. Whether there is something to wait for.
    pub(super) fn auto_repair(&mut self, pg: &mut Scope<'_>, ctx: &mut Ctx<'_>) -> bool {
        let auto = ctx.budget.scrub.rules.auto_repair.unwrap_or_default();
        let Some(running) = self.running.as_deref_mut() else { return false };
        let mut plans = std::mem::take(&mut running.plans);
        plans.retain(|(_, plan)| !plan.unrepairable);
        if running.found > auto || plans.is_empty() {
            return false;
        }
        for (object, plan) in plans {
            self.repair_object(pg, ctx, &object, plan);
        }
        true
    }

    /// Every wrong copy of an object is discarded, at the same version on all members.
    fn repair_object(&mut self, pg: &mut Scope<'_>, ctx: &mut Ctx<'_>, object: &ObjectId, plan: RepairPlan) {
        let RepairPlan { stale, shallow, deep, .. } = plan;
        for (osd, stale) in stale {
            if osd == pg.me() {
                let update = pg.history.discard_copy(ctx.store, object, &stale);
                pg.apply(ctx, update);
                continue;
            }
            let Some(member) = pg.members.get_mut(&osd) else { continue };
            member.missing.add(object, stale.need, &stale.part);
            member.missing.note_wrong(object);
            self.repairing.insert((osd, object.clone()), stale.part.meta);
            let msg = ScrubMsg::Mend { object: object.clone(), stale };
            ctx.out.push(PgEffect::ask(osd, PgMsg::Scrub(Box::new(msg))));
        }
        self.drop_finding(pg, ctx, object);
        if let Some(running) = self.running.as_deref_mut() {
            running.fixed += shallow + deep;
            running.state.repaired += shallow + deep;
            running.state.shallow_errors = running.state.shallow_errors.saturating_sub(shallow);
            running.state.deep_errors = running.state.deep_errors.saturating_sub(deep);
        }
        ctx.out.push(PgEffect::Loop);
    }

    /// Repairs that a member may not have received. They come behind the writes that are sent again, so only
    /// what those left of them counts.
    pub(super) fn resend_repairs(&mut self, pg: &mut Scope<'_>, ctx: &mut Ctx<'_>, osd: OsdId) {
        let Some(member) = pg.members.get_mut(&osd) else { return };
        let missing = &mut member.missing;
        self.repairing.retain(|(_, object), _| missing.get(object).is_some());
        for ((_, object), whole) in self.repairing.iter().filter(|((of, _), _)| *of == osd) {
            let need = missing.get(object).map(|stale| stale.need).unwrap_or_default();
            if *whole {
                // Those writes did not know that they change a wrong copy. Nor does what was read for it
                // before them.
                missing.add(object, need, &Part::everything());
                if pg.recovery.cancel(object) {
                    ctx.out.push(PgEffect::Loop);
                }
            }
            if let Some(stale) = missing.get(object).cloned() {
                let msg = ScrubMsg::Mend { object: object.clone(), stale };
                ctx.out.push(PgEffect::ask(osd, PgMsg::Scrub(Box::new(msg))));
            }
        }
    }
}

impl History {
    /// Marks that of an object as missing, and removes what must not stay where new content comes.
    pub fn discard_copy(&mut self, store: &dyn StoreView, object: &ObjectId, stale: &Stale) -> Update {
        let id = StoredId::Object(object.clone());
        let stat = store.stat(&id).unwrap_or_default();
        let mut changes = RecordChanges::new(self.pg);
        let mut merger = LogMerger::new(self.me, store, &mut self.missing);
        merger.discard(object, stale);
        let (mut txn, noted) = (merger.txn, merger.noted);
        if let Some(stat) = stat.filter(|_| !stale.part.meta) {
            txn.append(blank(&id, &stale.part, stat.size));
        }
        let objects: BTreeSet<ObjectId> = noted.into_iter().chain([object.clone()]).collect();
        self.record_missing(&objects, &mut changes);
        changes.into_txn(&mut txn);
        Update { txn, objects }
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
    size.next_multiple_of(BLOCK)
}
