//! What a group's primary tells others about it.

use super::active::Member;
use super::remap::{Forced, Hold};
use super::{Ctx, Interval, Pg, PgEffect, Phase};
use nacre_base::{Now, OsdId, Time, Utime};
use nacre_proto::maps::OsdMap;
use nacre_proto::messages::peer::PgInfo;
use nacre_proto::messages::scrub::ScrubState;
use nacre_proto::messages::{PgCounts, PgReport, pg_state};
use serde_json::Value;
use std::time::Duration;

impl Pg {
    /// Every member has everything, and there are as many members as there should be.
    pub fn is_clean(&self) -> bool {
        let Phase::Active(active) = &self.phase else { return false };
        self.missing.is_empty()
            && active.members.values().all(|member| member.missing.is_empty())
            && self.interval.acting.len() >= self.interval.size
            && self.interval.is_settled()
    }

    pub fn objects(&self) -> u64 {
        self.info.objects
    }
    pub fn counts(&self) -> PgCounts {
        self.counts
    }

    /// Copies that are missing, and those that are only not where they should be.
    fn degraded_and_misplaced(&self) -> (u64, u64) {
        let Interval { up, acting, size, .. } = &self.interval;
        if self.whole_members() >= acting.len().max(*size) && acting == up {
            return (0, 0);
        }
        let members = match &self.phase {
            Phase::Active(active) => Some(active.members.values().map(|member| member.missing.len() as u64)),
            _ => None,
        };
        let missing = members.into_iter().flatten().chain([self.missing.len() as u64]);
        let all: u64 = missing.clone().sum();
        // Members beyond those that there should be, who lack most, are on top of a whole set.
        let beyond: u64 = match missing.clone().count().saturating_sub(*size) {
            0 => 0,
            beyond => {
                let mut missing: Vec<u64> = missing.collect();
                missing.sort_unstable();
                missing.iter().rev().take(beyond).sum()
            }
        };
        let absent = self.info.objects * size.saturating_sub(acting.len()) as u64;
        let backfill_targets = self.info.objects * self.backfill_targets().count() as u64;
        (all - beyond + absent, beyond + backfill_targets.saturating_sub(absent))
    }

    /// `pg_state` bits, of a group that is clean or not; zero when this OSD is not the primary.
    pub fn state(&self, map: &OsdMap, clean: bool) -> u64 {
        let mut state = 0;
        match &self.phase {
            Phase::Peering(peering) if peering.is_down() => state |= pg_state::DOWN | pg_state::PEERING,
            Phase::Peering(peering) if peering.is_too_few() => state |= pg_state::PEERED,
            Phase::Peering(peering) if peering.is_activating() => state |= pg_state::ACTIVATING,
            Phase::Peering(_) => state |= pg_state::PEERING,
            Phase::Active(active) => {
                state |= pg_state::ACTIVE;
                // Looked at after every event, and clean nearly always.
                let (degraded, misplaced) = if clean { (0, 0) } else { self.degraded_and_misplaced() };
                if degraded > 0 {
                    state |= pg_state::DEGRADED;
                }
                let lacks = |member: &Member| !member.missing.is_empty();
                let missing = !clean && (!self.missing.is_empty() || active.members.values().any(lacks));
                let waits = !active.recovery.is_busy();
                if missing {
                    let unfound = waits && active.recovery.unfound_len() > 0;
                    state |= match (misplaced > 0 || self.is_filling(), waits) {
                        (true, _) if unfound => pg_state::BACKFILL_UNFOUND,
                        (true, true) => pg_state::BACKFILL_WAIT,
                        (true, false) => pg_state::BACKFILLING,
                        (false, _) if unfound => pg_state::RECOVERY_UNFOUND,
                        (false, true) => pg_state::RECOVERY_WAIT,
                        (false, false) => pg_state::RECOVERING,
                    };
                }
                if self.remap.hold == Some(Hold::TooFull) || self.waits_for_space(map) {
                    state |= pg_state::BACKFILL_TOOFULL;
                    state &= !pg_state::BACKFILL_WAIT;
                } else if self.remap.hold.is_some() && !missing {
                    state |= pg_state::BACKFILL_WAIT;
                }
                if clean {
                    state |= pg_state::CLEAN | self.trim_state();
                }
                if self.forced.recovery {
                    state |= pg_state::FORCED_RECOVERY;
                }
                if self.forced.backfill {
                    state |= pg_state::FORCED_BACKFILL;
                }
                state |= active.scrub.state();
                if active.holds_writes {
                    state |= pg_state::PREMERGE;
                }
            }
            _ => return 0,
        }
        if self.interval.acting.len() < self.interval.size {
            state |= pg_state::UNDERSIZED;
            if self.info.objects > 0 || !matches!(self.phase, Phase::Active(_)) {
                state |= pg_state::DEGRADED;
            }
        }
        if self.interval.acting != self.interval.up {
            state |= pg_state::REMAPPED;
        }
        if self.scrub_state.errors() > 0 {
            state |= pg_state::INCONSISTENT;
        }
        state
    }

    /// Lets the monitors know when something changed.
    pub fn note_state(&mut self, ctx: &mut Ctx<'_>) {
        let clean = self.is_clean();
        if clean {
            self.forced = Forced::default();
        }
        let state = self.state(&ctx.map, clean);
        if state & pg_state::CLEAN != 0 {
            self.last_clean = ctx.now.wall;
        }
        if state != self.reported_state {
            self.reported_state = state;
            self.last_change = ctx.now.wall;
            ctx.out.push(PgEffect::Report);
        }
    }

    pub fn waits_for(&self) -> String {
        match &self.phase {
            Phase::Peering(peering) => peering.waits_for(),
            Phase::Active(active) if active.recovery.unfound_len() > 0 => {
                let example = active.recovery.unfound().next().map_or(String::new(), ToString::to_string);
                let count = active.recovery.unfound_len();
                format!("an OSD that has {count} unfound objects, such as {example}")
            }
            _ => String::new(),
        }
    }

    /// None if another OSD is the primary.
    pub fn report(&self, wall: Utime) -> Option<PgReport> {
        (self.reported_state != 0).then(|| self.described(wall))
    }

    /// As far as this OSD knows, which is not much if another one is the primary.
    pub fn described(&self, wall: Utime) -> PgReport {
        let state = self.reported_state;
        let interval = &self.interval;
        let (trimmed, to_trim) = self.trimmed();
        let PgInfo { objects, clones, bytes, .. } = self.info;
        let ScrubState { omap_keys, omap_bytes, shallow_errors, deep_errors, repaired, .. } =
            self.scrub_state;
        let looked_at =
            PgCounts { omap_keys, omap_bytes, shallow_errors, deep_errors, repaired, ..self.counts };
        let mut counts = PgCounts { objects, clones, bytes, ..looked_at };
        counts.copies = counts.objects * interval.size as u64;
        counts.missing_on_primary = self.missing.len() as u64;
        (counts.degraded, counts.misplaced) = self.degraded_and_misplaced();
        if let Phase::Active(active) = &self.phase {
            counts.unfound = active.recovery.unfound_len() as u64;
        }
        let active = state & pg_state::ACTIVE != 0;
        PgReport {
            pg: self.id,
            state,
            waiting_for: self.waits_for(),
            interval: interval.start,
            last_update: self.info.last_update,
            last_complete: self.info.committed_to,
            log_tail: self.info.log_tail,
            log_entries: self.log.len() as u64,
            up: interval.up.clone(),
            up_primary: interval.up_primary.unwrap_or(OsdId(-1)),
            acting: interval.acting.clone(),
            acting_primary: interval.primary.unwrap_or(OsdId(-1)),
            last_change: self.last_change,
            last_active: if active { wall } else { self.last_active },
            last_clean: self.last_clean,
            counts,
            trimmed,
            to_trim,
            scrub: self.scrub_state,
        }
    }

    /// One line for a failing test.
    #[cfg(test)]
    pub fn summary(&self) -> String {
        let phase = match &self.phase {
            Phase::Stray(_) => "stray".to_string(),
            Phase::Replica(_) => format!("replica, merged {}", self.is_merged_replica()),
            Phase::Deleting(_) => "deleting".to_string(),
            _ => pg_state::name(self.reported_state),
        };
        let missing = self.missing.len();
        let waits = self.waits_for();
        format!(
            "{phase} since {}, misses {missing}, waits for '{waits}', {:?}",
            self.interval.start, self.info
        )
    }

    /// Requests that were not answered, with what they wait for.
    pub fn ops_in_flight(&self, now: Now) -> Vec<Value> {
        let held = self.waiting_for_active.iter().map(|op| (op, "waiting for active"));
        let active: Vec<_> = match &self.phase {
            Phase::Active(active) => active.ops().collect(),
            _ => Vec::new(),
        };
        held.chain(active).map(|(op, waits)| op.request().in_flight(now, waits)).collect()
    }

    /// For how long each of those that `ops_in_flight` has is here.
    pub fn ages(&self, now: Time) -> impl Iterator<Item = Duration> {
        let active = match &self.phase {
            Phase::Active(active) => Some(active.ops().map(|(op, _)| op)),
            _ => None,
        };
        let ops = self.waiting_for_active.iter().chain(active.into_iter().flatten());
        ops.map(move |op| now.since(op.steps.arrived))
    }

    /// How many `ops_in_flight` has.
    pub fn ops_in_flight_len(&self) -> usize {
        let active = match &self.phase {
            Phase::Active(active) => active.ops().count(),
            _ => 0,
        };
        self.waiting_for_active.len() + active
    }

    pub fn is_primary(&self) -> bool {
        matches!(self.phase, Phase::Active(_) | Phase::Peering(_))
    }
    pub fn is_replica(&self) -> bool {
        matches!(self.phase, Phase::Replica(_))
    }
}
