//! The state that the primary reports of its placement group.

use super::active::Member;
use super::remap::Hold;
use super::{Ctx, Pg, Phase};
use nacre_base::{Now, OsdId, Time, Utime};
use nacre_proto::maps::OsdMap;
use nacre_proto::messages::peer::PgInfo;
use nacre_proto::messages::scrub::ScrubState;
use nacre_proto::messages::{PgCounts, PgReport, pg_state};
use serde_json::Value;
use std::time::Duration;

impl Pg {
    pub fn objects(&self) -> u64 {
        self.history.info.objects
    }
    pub fn counts(&self) -> PgCounts {
        self.stats.counts
    }

    /// `pg_state` bits of a placement group that is clean or not; zero when this OSD is not the primary.
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
                let (degraded, misplaced) = if clean {
                    (0, 0)
                } else {
                    self.completeness().degraded_and_misplaced(self.history.info.objects)
                };
                if degraded > 0 {
                    state |= pg_state::DEGRADED;
                }
                let lacks = |member: &Member| !member.missing.is_empty();
                let missing =
                    !clean && (!self.history.missing.is_empty() || active.members.values().any(lacks));
                let waits = !active.recovery.is_busy();
                if missing {
                    let unfound = waits && active.recovery.unfound_len() > 0;
                    state |= match (misplaced > 0 || self.completeness().is_backfilling(), waits) {
                        (true, _) if unfound => pg_state::BACKFILL_UNFOUND,
                        (true, true) => pg_state::BACKFILL_WAIT,
                        (true, false) => pg_state::BACKFILLING,
                        (false, _) if unfound => pg_state::RECOVERY_UNFOUND,
                        (false, true) => pg_state::RECOVERY_WAIT,
                        (false, false) => pg_state::RECOVERING,
                    };
                }
                if self.remap.hold() == Some(Hold::TooFull)
                    || waits && self.completeness().has_full_member(map)
                {
                    state |= pg_state::BACKFILL_TOOFULL;
                    state &= !pg_state::BACKFILL_WAIT;
                } else if self.remap.hold().is_some() && !missing {
                    state |= pg_state::BACKFILL_WAIT;
                }
                if clean {
                    state |= pg_state::CLEAN | self.trim_state();
                }
                if self.remap.forced().recovery {
                    state |= pg_state::FORCED_RECOVERY;
                }
                if self.remap.forced().backfill {
                    state |= pg_state::FORCED_BACKFILL;
                }
                state |= active.scrub.state();
                if active.ops.holds_writes {
                    state |= pg_state::PREMERGE;
                }
            }
            _ => return 0,
        }
        if self.interval.members_len() < self.interval.size {
            state |= pg_state::UNDERSIZED;
            if self.history.info.objects > 0 || !matches!(self.phase, Phase::Active(_)) {
                state |= pg_state::DEGRADED;
            }
        }
        if !self.interval.serves_as_placed() {
            state |= pg_state::REMAPPED;
        }
        if self.scrub.state.errors() > 0 {
            state |= pg_state::INCONSISTENT;
        }
        state
    }

    /// Reports a change of state to the monitors.
    pub fn note_state(&mut self, ctx: &mut Ctx<'_>) {
        let clean = self.is_clean();
        if clean {
            self.remap.forget_forced();
        }
        let state = self.state(&ctx.map, clean);
        self.stats.note_state(state, ctx.now.wall, ctx.out);
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
        (self.stats.reported_state() != 0).then(|| self.described(wall))
    }

    /// As far as this OSD knows, which is not much if another one is the primary.
    pub fn described(&self, wall: Utime) -> PgReport {
        let state = self.stats.reported_state();
        let interval = &self.interval;
        let (trimmed, to_trim) = self.trimmed();
        let PgInfo { objects, clones, bytes, .. } = self.history.info;
        let ScrubState { omap_keys, omap_bytes, shallow_errors, deep_errors, repaired, .. } =
            self.scrub.state;
        let looked_at =
            PgCounts { omap_keys, omap_bytes, shallow_errors, deep_errors, repaired, ..self.stats.counts };
        let mut counts = PgCounts { objects, clones, bytes, ..looked_at };
        counts.copies = counts.objects * interval.size as u64;
        counts.missing_on_primary = self.history.missing.len() as u64;
        (counts.degraded, counts.misplaced) =
            self.completeness().degraded_and_misplaced(self.history.info.objects);
        if let Phase::Active(active) = &self.phase {
            counts.unfound = active.recovery.unfound_len() as u64;
        }
        let active = state & pg_state::ACTIVE != 0;
        PgReport {
            pg: self.id,
            state,
            waiting_for: self.waits_for(),
            interval: interval.start,
            last_update: self.history.info.last_update,
            last_complete: self.history.info.committed_to,
            log_tail: self.history.info.log_tail,
            log_entries: self.history.log.len() as u64,
            up: interval.up.clone(),
            up_primary: interval.up_primary.unwrap_or(OsdId(-1)),
            acting: interval.acting.clone(),
            acting_primary: interval.primary.unwrap_or(OsdId(-1)),
            last_change: self.stats.last_change(),
            last_active: if active { wall } else { self.stats.last_active() },
            last_clean: self.stats.last_clean(),
            counts,
            trimmed,
            to_trim,
            scrub: self.scrub.state,
        }
    }

    /// One line for a failing test.
    #[cfg(test)]
    pub fn summary(&self) -> String {
        let phase = match &self.phase {
            Phase::Stray(_) => "stray".to_string(),
            Phase::Replica(_) => {
                format!("replica, has the authoritative log: {}", self.is_replica_with_log())
            }
            Phase::Deleting(_) => "deleting".to_string(),
            _ => pg_state::name(self.stats.reported_state()),
        };
        let missing = self.history.missing.len();
        let waits = self.waits_for();
        let ops: Vec<&str> = match &self.phase {
            Phase::Active(active) => active.ops.ops().map(|(_, waits)| waits).collect(),
            _ => Vec::new(),
        };
        format!(
            "{phase} since {}, misses {missing}, waits for '{waits}', {ops:?}, {:?}",
            self.interval.start, self.history.info
        )
    }

    /// Requests without a reply, with what they wait for.
    pub fn ops_in_flight(&self, now: Now) -> Vec<Value> {
        let held = self.waiting_for_active.iter().map(|op| (op, "waiting for active"));
        let active: Vec<_> = match &self.phase {
            Phase::Active(active) => active.ops.ops().collect(),
            _ => Vec::new(),
        };
        held.chain(active).map(|(op, waits)| op.request().in_flight(now, waits)).collect()
    }

    /// For how long each of those that `ops_in_flight` has is here.
    pub fn ages(&self, now: Time) -> impl Iterator<Item = Duration> {
        let active = match &self.phase {
            Phase::Active(active) => Some(active.ops.ops().map(|(op, _)| op)),
            _ => None,
        };
        let ops = self.waiting_for_active.iter().chain(active.into_iter().flatten());
        ops.map(move |op| now.since(op.steps.arrived))
    }

    /// How many `ops_in_flight` has.
    pub fn ops_in_flight_len(&self) -> usize {
        let active = match &self.phase {
            Phase::Active(active) => active.ops.ops().count(),
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
