//! Remapping: how a placement group gets from the members that have it to those that CRUSH places it on.
//!
//! While the two differ, the monitors let the members serve that have everything (`pg_temp`; see
//! `core/mon/src/temp.rs`). Their primary brings the others in, a few placement groups at a time: first as
//! further members, the backfill targets, which take every write from then on and are filled by recovery, as
//! any member that lacks something is. Once CRUSH's members lack nothing the `pg_temp` entry goes, and they
//! serve alone; but where CRUSH finds fewer than there should be, others that have everything stay with them.
//! So clients talk to a primary that has everything all the time, and nothing is given up before it is
//! elsewhere.

use super::backend::erasure::moves;
use super::completeness::Completeness;
use super::history::log::Log;
use super::recovery::Recovery;
use super::{Ctx, Interval, Pg, PgEffect, Phase};
use crate::throttle::{WorkRequest, WorkSlot};
use nacre_base::{Epoch, OsdId, PgId, ShardId, Time};
use nacre_proto::maps::{OsdMap, map_flags, osd_state};
use nacre_proto::messages::PgRecord;
use nacre_proto::messages::peer::PgInfo;
use std::time::Duration;

/// How long the monitors have to reply before they are asked again.
const RETRY: Duration = Duration::from_secs(2);

/// Why further members are not brought in now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Other placement groups go first, or an operator wants nothing moved.
    Wait,
    TooFull,
}

#[derive(Default)]
pub struct Remap {
    /// A reservation: one of the placement groups that the OSD moves at a time.
    slot: Option<WorkSlot>,
    hold: Option<Hold>,
    /// The `pg_temp` members that were requested last.
    asked: Option<(Vec<OsdId>, Time)>,
    forced: Forced,
}

/// What an operator wants to go before other placement groups. Ceph: `pg force-recovery`, `pg
/// force-backfill`.
#[derive(Clone, Copy, Default)]
pub struct Forced {
    pub recovery: bool,
    pub backfill: bool,
}

impl Remap {
    /// Another interval began.
    pub fn restart(&mut self, is_primary: bool) {
        self.asked = None;
        self.hold = None;
        if !is_primary {
            self.slot = None;
        }
    }
    pub fn hold(&self) -> Option<Hold> {
        self.hold
    }
    pub fn forced(&self) -> Forced {
        self.forced
    }
    pub fn is_forced(&self) -> bool {
        self.forced.recovery || self.forced.backfill
    }
    pub fn force(&mut self, backfill: bool, on: bool) {
        match backfill {
            true => self.forced.backfill = on,
            false => self.forced.recovery = on,
        }
    }
    /// The placement group is clean, or another OSD is its primary.
    pub fn forget_forced(&mut self) {
        self.forced = Forced::default();
    }
    /// The child of a split.
    pub fn inherit_forced(&mut self, parent: &Remap) {
        self.forced = parent.forced;
    }

    /// Requests the members that the placement group should have next.
    pub fn update(
        &mut self,
        ctx: &mut Ctx<'_>,
        pg: PgId,
        view: Completeness<'_>,
        recovery: &Recovery,
        info: &PgInfo,
    ) {
        let interval = view.interval;
        self.hold = None;
        // Others may move while this one waits for space, and make it.
        let settled = interval.is_settled();
        if settled || !recovery.is_busy() && view.has_full_member(&ctx.map) {
            self.slot = None;
        }
        if settled {
            return;
        }
        let targets: Vec<OsdId> = interval.backfill_targets().collect();
        let up = &interval.up;
        let is_spare = |osd: OsdId| {
            let others = interval.acting.iter().filter(|other| other.is_some() && **other != osd);
            let mut same = others.filter(|other| interval.shard_of(**other) == interval.shard_of(osd));
            same.any(|other| view.is_complete(*other))
        };
        let acting = if interval.shards > 0 && targets.is_empty() {
            let mut acting = moves::destination(interval);
            if moves::is_misplaced(interval, &acting) {
                acting = moves::with_newcomers(interval, &is_spare);
            } else if !acting.iter().filter(|osd| osd.is_some()).all(|osd| view.is_complete(*osd)) {
                return;
            }
            acting
        } else if targets.is_empty() {
            if !up.iter().filter(|osd| osd.is_some()).all(|osd| view.is_complete(*osd)) {
                return;
            }
            let others = interval.acting.iter().copied().filter(|osd| osd.is_some() && !up.contains(osd));
            let mut acting: Vec<OsdId> = others.collect();
            // A member that lacks something stays only if no other can.
            acting.sort_by_key(|osd| !view.is_complete(*osd));
            acting.truncate(interval.size.saturating_sub(up.len()));
            if !acting.is_empty() {
                acting.splice(0..0, up.iter().copied());
            }
            acting
        } else {
            let stays = |osd: &OsdId| up.contains(osd) || view.is_complete(*osd) || *osd == view.me;
            let staying = interval.acting.iter().copied().filter(|osd| osd.is_some()).filter(stays);
            let acting = match interval.shards {
                0 => staying.chain(targets.iter().copied()).collect(),
                _ => moves::with_newcomers(interval, &is_spare),
            };
            // An OSD that was a member not long ago lacks only what was written since, and has space for all
            // else.
            let has_most = |osd: OsdId| {
                recovery.holders().any(|(holder, theirs)| holder == osd && Log::overlaps(theirs, info))
            };
            let too_full = targets.iter().any(|osd| is_too_full(&ctx.map, *osd) && !has_most(*osd));
            self.hold = if too_full { Some(Hold::TooFull) } else { self.why_wait(ctx, pg, view) };
            if self.hold.is_some() {
                return;
            }
            acting
        };
        if acting == interval.acting {
            return; // for now
        }
        self.ask(ctx, interval, acting);
    }

    fn ask(&mut self, ctx: &mut Ctx<'_>, interval: &Interval, acting: Vec<OsdId>) {
        let now = ctx.now.mono;
        if self.asked.as_ref().is_some_and(|(asked, at)| *asked == acting && now.since(*at) < RETRY) {
            return;
        }
        self.asked = Some((acting.clone(), now));
        let record = PgRecord { interval: interval.start, acting: interval.acting.clone() };
        ctx.out.push(PgEffect::RequestPgTemp(record, acting));
    }

    /// A stray holds a shard of which no member has everything: it becomes a member, if there is a place.
    pub fn recruit(&mut self, ctx: &mut Ctx<'_>, view: Completeness<'_>, stray: (OsdId, ShardId)) {
        let interval = view.interval;
        let mut same = interval.acting.iter().filter(|osd| interval.shard_of(**osd) == stray.1);
        if interval.is_member(stray.0) || same.any(|osd| view.is_complete(*osd)) {
            return;
        }
        let acting = moves::at_their_shards(interval, &[stray]);
        if acting.contains(&stray.0) {
            self.ask(ctx, interval, acting);
        }
    }

    fn why_wait(&mut self, ctx: &Ctx<'_>, pg: PgId, view: Completeness<'_>) -> Option<Hold> {
        let misplaced = view.is_only_misplaced();
        if ctx.map.has(map_flags::NOBACKFILL) || misplaced && ctx.map.has(map_flags::NOREBALANCE) {
            return Some(Hold::Wait);
        }
        if misplaced && self.slot.is_none() {
            let need = WorkRequest { scarce: false, forced: self.forced.backfill };
            self.slot = ctx.budget.moves.request(ctx.now.mono, pg, need, false);
            return self.slot.is_none().then_some(Hold::Wait);
        }
        None
    }
}

/// Whether that OSD should get only what it has to.
pub fn is_too_full(map: &OsdMap, osd: OsdId) -> bool {
    map.osd(osd).is_some_and(|osd| osd.has(osd_state::BACKFILLFULL) || osd.has(osd_state::FULL))
}

impl Pg {
    /// Holds until the placement group is clean, or another OSD is its primary.
    pub fn force(&mut self, ctx: &mut Ctx<'_>, backfill: bool, on: bool) {
        if self.interval.primary != Some(self.me) {
            return;
        }
        self.remap.force(backfill, on);
        self.request_pg_temp(ctx);
        self.recover(ctx);
    }

    pub fn request_pg_temp(&mut self, ctx: &mut Ctx<'_>) {
        let Phase::Active(active) = &self.phase else { return };
        let (interval, own) = (&self.interval, &self.history.missing);
        let view = Completeness { me: self.me, interval, own, members: Some(&active.members) };
        self.remap.update(ctx, self.id, view, &active.recovery, &self.history.info);
    }

    /// A stray holds a shard of an erasure-coded placement group.
    pub fn recruit(&mut self, ctx: &mut Ctx<'_>, stray: OsdId, info: &PgInfo) {
        let Phase::Active(active) = &self.phase else { return };
        if !info.shard.is_some() || info.interval_started == Epoch(0) {
            return;
        }
        let (interval, own) = (&self.interval, &self.history.missing);
        let view = Completeness { me: self.me, interval, own, members: Some(&active.members) };
        self.remap.recruit(ctx, view, (stray, info.shard));
    }
}
