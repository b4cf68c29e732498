//! The primary while it serves: the parts that exist only then, and what each of them does at a tick or in a
//! turn.

use super::client_ops::ClientOps;
use super::history::History;
use super::history::missing::Missing;
use super::recount::Recount;
use super::recovery::{Recovery, StraySource};
use super::scrub::Scrub;
use super::snap_trim::SnapTrim;
use super::{Ctx, Pg, PgEffect, Phase};
use nacre_base::{OsdId, Time, Version};
use nacre_proto::messages::peer::PgInfo;
use nacre_proto::transaction::Transaction;
use std::collections::BTreeMap;

/// What the primary knows of another member.
#[derive(Debug, Default)]
pub struct Member {
    pub missing: Missing,
    /// Until then it takes part in no later interval.
    pub lease_until: Time,
}

pub struct Active {
    pub members: BTreeMap<OsdId, Member>,
    pub ops: ClientOps,
    pub recovery: Recovery,
    pub snap_trim: SnapTrim,
    pub scrub: Scrub,
    /// Counting objects again, after a split left estimates.
    pub recount: Option<Recount>,
}

impl Active {
    pub fn new(
        members: BTreeMap<OsdId, Member>,
        sources: BTreeMap<OsdId, StraySource>,
        history: &History,
    ) -> Active {
        Active {
            ops: ClientOps::new(history, &members),
            members,
            recovery: Recovery::new(sources),
            snap_trim: SnapTrim::default(),
            scrub: Scrub::default(),
            recount: None,
        }
    }

    /// The other holders, and their missing sets, as far as those tell of an object of that version.
    pub fn holders(&self, need: Version) -> impl Iterator<Item = (OsdId, &Missing)> {
        let members = self.members.iter().map(|(osd, member)| (*osd, &member.missing));
        members.chain(self.recovery.lacking_sources(need))
    }
    /// Whether a member lacks nothing.
    pub fn has_all(&self, osd: OsdId) -> bool {
        self.members.get(&osd).is_some_and(|member| member.missing.is_empty())
    }

    pub fn check(&self, history: &History) {
        assert!(!self.members.contains_key(&history.me));
        self.ops.check(&history.info);
        self.ops.check_waits(&history.missing);
        self.recovery.check(history.me);
        self.snap_trim.check();
    }
}

impl Pg {
    pub(super) fn active(&mut self) -> Option<&mut Active> {
        match &mut self.phase {
            Phase::Active(active) => Some(active),
            _ => None,
        }
    }

    /// The interval's first moment of service.
    pub fn start_serving(&mut self, ctx: &mut Ctx<'_>) {
        if let Some(active) = self.active() {
            active.ops.expect_reads(ctx.now.mono);
        }
        ctx.out.push(PgEffect::LeasesNow);
        self.waiting_for_active.end();
        for op in self.waiting_for_active.take() {
            self.on_active_op(ctx, op);
        }
        self.request_pg_temp(ctx);
        self.recover(ctx);
    }

    /// The other members, from when they have the authoritative log: they are asked for leases. None of them
    /// while no client reads.
    pub fn lease_grantors(&self, now: Time) -> Vec<OsdId> {
        match &self.phase {
            Phase::Active(active) if active.ops.needs_leases(now) => active.members.keys().copied().collect(),
            Phase::Peering(peering) => peering.lease_grantors(),
            _ => Vec::new(),
        }
    }

    /// Work that had to wait for a view that shows what changed.
    pub fn active_loop(&mut self, ctx: &mut Ctx<'_>) {
        let Some((ops, mut scope)) = self.ops_parts() else { return };
        ops.run_runnable(&mut scope, ctx);
        self.request_pg_temp(ctx);
        self.recover(ctx);
        self.trim(ctx);
        self.step_scrub(ctx);
    }

    pub fn active_tick(&mut self, ctx: &mut Ctx<'_>) {
        if let Some((ops, mut scope)) = self.ops_parts() {
            ops.tick(&mut scope, ctx);
        }
        self.request_pg_temp(ctx);
        self.ask_gathers_again(ctx, None);
        self.tell_committed(ctx);
        self.recovery_tick(ctx);
        self.recount_some(ctx);
        for removal in self.watches.tick(ctx) {
            self.on_active_op(ctx, Box::new(removal));
        }
        self.trim(ctx);
        self.scrub_tick(ctx);
    }

    /// Goes on counting objects, once everything is here to be counted.
    fn recount_some(&mut self, ctx: &mut Ctx<'_>) {
        let history = &mut self.history;
        // A write of this turn is in the counters and not in the view.
        if !history.info.estimated || !history.missing.is_empty() || !self.pending.unapplied.is_empty() {
            return;
        }
        let Phase::Active(active) = &mut self.phase else { return };
        let mut recount = active.recount.take().unwrap_or_else(|| Recount::new(&history.range));
        match recount.step(ctx.store, &history.range) {
            Err(_) => {} // from the start, some time later
            Ok(false) => active.recount = Some(recount),
            Ok(true) => {
                let Recount { objects, clones, bytes, .. } = recount;
                history.info = PgInfo { objects, clones, bytes, estimated: false, ..history.info };
                let mut txn = Transaction::new();
                history.record_info(&mut txn);
                self.store(ctx, txn);
                ctx.out.push(PgEffect::Report);
            }
        }
    }

    /// What the member may have missed is sent again; it knows what it has.
    pub fn active_opened(&mut self, ctx: &mut Ctx<'_>, osd: OsdId) {
        let Some(active) = self.active() else { return };
        if active.members.contains_key(&osd) {
            active.ops.resend(osd, ctx.out);
            self.history.undo.told_to = Version::ZERO;
        }
        self.ask_gathers_again(ctx, Some(osd));
        self.scrub_opened(ctx, osd);
        self.recovery_opened(ctx, osd);
        ctx.out.push(PgEffect::LeasesNow);
    }
}
