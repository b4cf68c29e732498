//! How a group gets from those who have it to those whom CRUSH wants.
//!
//! While the two differ the monitors let those serve who have everything (`pg_temp`; see
//! `core/mon/src/temp.rs`). Their primary brings the others in, a few groups at a time: first as
//! further members, who take every write from then on and are filled by recovery, as any member is that
//! lacks something. Once CRUSH's members lack nothing the entry goes, and they serve alone; but where
//! CRUSH finds fewer than there should be, others who have everything stay with them. So clients
//! talk to a primary that has everything all the time, and nothing is given up before it is elsewhere.

use super::active::Member;
use super::log::Log;
use super::recovery::is_whole;
use super::{Ctx, Pg, PgEffect, Phase};
use crate::throttle::{WorkRequest, WorkSlot};
use nacre_base::{OsdId, Time};
use nacre_proto::maps::{OsdMap, map_flags, osd_state};
use nacre_proto::messages::PgRecord;
use std::time::Duration;

/// How long the monitors have to answer, before they are asked again.
const RETRY: Duration = Duration::from_secs(2);

/// Why further members are not brought in now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Other groups go first, or an operator wants nothing moved.
    Wait,
    TooFull,
}

#[derive(Default)]
pub struct Remap {
    /// One of the OSD's groups that are being moved at a time.
    slot: Option<WorkSlot>,
    pub hold: Option<Hold>,
    asked: Option<(Vec<OsdId>, Time)>,
}

/// What an operator wants to go before what other groups want: making good what is missing, and moving.
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
}

/// Whether nothing should go there that does not have to.
pub fn is_too_full(map: &OsdMap, osd: OsdId) -> bool {
    map.osd(osd).is_some_and(|osd| osd.has(osd_state::BACKFILLFULL) || osd.has(osd_state::FULL))
}

impl Pg {
    /// Holds until the group is clean, or somebody else leads it.
    pub fn force(&mut self, ctx: &mut Ctx<'_>, backfill: bool, on: bool) {
        if self.interval.primary != Some(self.me) {
            return;
        }
        match backfill {
            true => self.forced.backfill = on,
            false => self.forced.recovery = on,
        }
        self.request_pg_temp(ctx);
        self.recover(ctx);
    }

    /// Those whom CRUSH wants and who have no part in it yet.
    pub fn backfill_targets(&self) -> impl Iterator<Item = OsdId> {
        let acting = &self.interval.acting;
        self.interval.up.iter().copied().filter(|osd| osd.is_some() && !acting.contains(osd))
    }
    fn is_complete(&self, osd: OsdId) -> bool {
        let Phase::Active(active) = &self.phase else { return false };
        match osd == self.me {
            true => self.missing.is_empty(),
            false => active.members.get(&osd).is_some_and(|member| member.missing.is_empty()),
        }
    }
    /// Whether an OSD that is no member was one not long ago: it lacks no more than what was written since, and has
    /// the room for all else.
    fn has_most(&self, osd: OsdId) -> bool {
        let Phase::Active(active) = &self.phase else { return false };
        active.recovery.holders().any(|(holder, info)| holder == osd && Log::overlaps(info, &self.info))
    }
    /// Members that lack nothing.
    pub fn whole_members(&self) -> usize {
        self.interval.acting.iter().filter(|osd| self.is_complete(**osd)).count()
    }
    /// There are as many whole copies as there should be, and they are not where CRUSH wants them.
    pub fn is_only_misplaced(&self) -> bool {
        !self.interval.is_settled() && self.whole_members() >= self.interval.size
    }
    /// Some member has yet to get objects that it has nothing of.
    pub fn is_filling(&self) -> bool {
        let Phase::Active(active) = &self.phase else { return false };
        let members = active.members.values().map(|member| &member.missing);
        let mut last = members.chain([&self.missing]).filter_map(|missing| missing.iter().next_back());
        last.any(|(_, stale)| is_whole(&stale.part))
    }

    /// Nothing goes on, as somebody who lacks something is too full for it.
    pub fn waits_for_space(&self, map: &OsdMap) -> bool {
        let Phase::Active(active) = &self.phase else { return false };
        let full = |(osd, member): (&OsdId, &Member)| !member.missing.is_empty() && is_too_full(map, *osd);
        !active.recovery.is_busy() && active.members.iter().any(full)
    }

    /// Asks for the members that the group should have next.
    pub fn request_pg_temp(&mut self, ctx: &mut Ctx<'_>) {
        if !matches!(self.phase, Phase::Active(_)) {
            return;
        }
        self.remap.hold = None;
        // Others may move while this one waits for room, and make it.
        let settled = self.interval.is_settled();
        if settled || self.waits_for_space(&ctx.map) {
            self.remap.slot = None;
        }
        if settled {
            return;
        }
        let backfill_targets: Vec<OsdId> = self.backfill_targets().collect();
        let up = &self.interval.up;
        let acting = if backfill_targets.is_empty() {
            if !up.iter().filter(|osd| osd.is_some()).all(|osd| self.is_complete(*osd)) {
                return;
            }
            let others =
                self.interval.acting.iter().copied().filter(|osd| osd.is_some() && !up.contains(osd));
            let mut acting: Vec<OsdId> = others.collect();
            // Who lacks something stays only if nobody else can.
            acting.sort_by_key(|osd| !self.is_complete(*osd));
            acting.truncate(self.interval.size.saturating_sub(up.len()));
            if !acting.is_empty() {
                acting.splice(0..0, up.iter().copied());
            }
            acting
        } else {
            let stays = |osd: &OsdId| up.contains(osd) || self.is_complete(*osd) || *osd == self.me;
            let staying = self.interval.acting.iter().copied().filter(|osd| osd.is_some()).filter(stays);
            let acting = staying.chain(backfill_targets.iter().copied()).collect();
            self.remap.hold = self.why_hold(ctx, &backfill_targets);
            if self.remap.hold.is_some() {
                return;
            }
            acting
        };
        let now = ctx.now.mono;
        if self.remap.asked.as_ref().is_some_and(|(asked, at)| *asked == acting && now.since(*at) < RETRY) {
            return;
        }
        self.remap.asked = Some((acting.clone(), now));
        let record = PgRecord { interval: self.interval.start, acting: self.interval.acting.clone() };
        ctx.out.push(PgEffect::RequestPgTemp(record, acting));
    }

    fn why_hold(&mut self, ctx: &Ctx<'_>, backfill_targets: &[OsdId]) -> Option<Hold> {
        if backfill_targets.iter().any(|osd| is_too_full(&ctx.map, *osd) && !self.has_most(*osd)) {
            return Some(Hold::TooFull);
        }
        let misplaced = self.is_only_misplaced();
        if ctx.map.has(map_flags::NOBACKFILL) || misplaced && ctx.map.has(map_flags::NOREBALANCE) {
            return Some(Hold::Wait);
        }
        if misplaced && self.remap.slot.is_none() {
            let need = WorkRequest { scarce: false, forced: self.forced.backfill };
            self.remap.slot = ctx.budget.moves.request(ctx.now.mono, self.id, need, false);
            return self.remap.slot.is_none().then_some(Hold::Wait);
        }
        None
    }
}
