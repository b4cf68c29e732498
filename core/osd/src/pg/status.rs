//! What a group's primary tells others about it.

use super::active::Member;
use super::lost::is_declared_lost;
use super::moving::{Forced, Hold, is_too_full};
use super::{Ctx, Interval, Pg, PgEffect, Phase};
use nacre_base::{Now, OsdId, SnapId, Time, Utime};
use nacre_proto::maps::OsdMap;
use nacre_proto::messages::peer::PgInfo;
use nacre_proto::messages::scrub::ScrubState;
use nacre_proto::messages::{PgCounts, PgReport, pg_state};
use nacre_proto::types::ObjectId;
use serde_json::{Value, json};
use std::time::Duration;

impl Pg {
    /// Every member has everything, and there are as many members as there should be.
    pub fn is_clean(&self) -> bool {
        let Phase::Active(active) = &self.phase else { return false };
        self.missing.is_empty()
            && active.members.values().all(|member| member.missing.is_empty())
            && self.interval.acting.len() >= self.interval.size
            && self.interval.acting == self.interval.up
    }

    pub fn objects(&self) -> u64 {
        self.info.objects
    }
    pub fn counts(&self) -> PgCounts {
        self.counts
    }

    /// Copies that are missing, and those that are only not where they should be.
    fn away(&self) -> (u64, u64) {
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
        let newcomers = self.info.objects * self.newcomers().count() as u64;
        (all - beyond + absent, beyond + newcomers.saturating_sub(absent))
    }

    /// `pg_state` bits, of a group that is clean or not; zero when this OSD is not the primary.
    fn state(&self, map: &OsdMap, clean: bool) -> u64 {
        let mut state = 0;
        match &self.phase {
            Phase::Peering(peering) if peering.is_down() => state |= pg_state::DOWN | pg_state::PEERING,
            Phase::Peering(peering) if peering.is_too_few() => state |= pg_state::PEERED,
            Phase::Peering(peering) if peering.is_activating() => state |= pg_state::ACTIVATING,
            Phase::Peering(_) => state |= pg_state::PEERING,
            Phase::Active(active) => {
                state |= pg_state::ACTIVE;
                // Looked at after every event, and clean nearly always.
                let (degraded, misplaced) = if clean { (0, 0) } else { self.away() };
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
                let full = |osd: OsdId| is_too_full(map, osd);
                if self.moving.hold == Some(Hold::TooFull)
                    || missing && waits && active.members.keys().any(|osd| full(*osd))
                {
                    state |= pg_state::BACKFILL_TOOFULL;
                    state &= !pg_state::BACKFILL_WAIT;
                } else if self.moving.hold.is_some() && !missing {
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

    fn waits_for(&self) -> String {
        match &self.phase {
            Phase::Peering(peering) => peering.waits_for(),
            Phase::Active(active) if active.recovery.unfound_len() > 0 => {
                let example = active.recovery.unfound().next().map_or(String::new(), ToString::to_string);
                let count = active.recovery.unfound_len();
                format!("somebody who has {count} objects that are unfound, such as {example}")
            }
            _ => String::new(),
        }
    }

    /// None if another OSD is the primary.
    pub fn report(&self, wall: Utime) -> Option<PgReport> {
        let state = self.reported_state;
        if state == 0 {
            return None;
        }
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
        (counts.degraded, counts.misplaced) = self.away();
        if let Phase::Active(active) = &self.phase {
            counts.unfound = active.recovery.unfound_len() as u64;
        }
        let active = state & pg_state::ACTIVE != 0;
        Some(PgReport {
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
        })
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

    /// `ceph tell PG query`.
    pub fn query(&self, ctx: &Ctx<'_>) -> Value {
        let ids = |osds: &[OsdId]| osds.iter().map(|osd| osd.0).collect::<Vec<_>>();
        let state = self.state(&ctx.map, self.is_clean());
        let name = match &self.phase {
            Phase::Stray(_) => "stray".to_string(),
            Phase::Replica(_) => "replica".to_string(),
            Phase::Deleting(_) => "deleting".to_string(),
            _ => pg_state::name(state),
        };
        let missing: Vec<Value> = match &self.phase {
            Phase::Active(active) => active
                .members
                .iter()
                .map(|(osd, member)| json!({"osd": osd.0, "missing": member.missing.len()}))
                .collect(),
            _ => Vec::new(),
        };
        json!({
            "snap_trimq": "[]",
            "state": name,
            "waiting_for": self.waits_for(),
            "recovery": self.recovery_words(&ctx.map),
            "epoch": ctx.map.epoch.0,
            "interval": self.interval.start.0,
            "up": ids(&self.interval.up),
            "acting": ids(&self.interval.acting),
            "info": {
                "pgid": self.id.to_string(),
                "last_update": self.info.last_update.to_string(),
                "last_complete": self.info.committed_to.to_string(),
                "log_tail": self.info.log_tail.to_string(),
                "last_user_version": self.info.last_user_version,
                "last_interval_started": self.info.interval_started.0,
                "history": {
                    "last_scrub": self.scrub_state.last.to_string(),
                    "last_scrub_stamp": self.scrub_state.last_stamp.to_string(),
                    "last_deep_scrub": self.scrub_state.last_deep.to_string(),
                    "last_deep_scrub_stamp": self.scrub_state.last_deep_stamp.to_string(),
                    "last_clean_scrub_stamp": self.scrub_state.last_clean_stamp.to_string(),
                },
                "log_entries": self.log.len(),
                "missing": self.missing.len(),
                "stats": {"stat_sum": {"num_objects": self.info.objects, "num_bytes": self.info.bytes}},
            },
            "peer_info": missing,
            "ops_in_flight": self.ops_in_flight(ctx.now),
        })
    }

    /// `ceph tell PG list_unfound`.
    pub fn list_unfound(&self, map: &OsdMap) -> Value {
        let unfound: Vec<&ObjectId> = match &self.phase {
            Phase::Active(active) => active.recovery.unfound().collect(),
            _ => Vec::new(),
        };
        let need = |object: &ObjectId| {
            self.missing.get(object).map(|stale| stale.need).unwrap_or_default().to_string()
        };
        let row = |object: &&ObjectId| {
            let snap = if object.snap == SnapId::HEAD { -2 } else { object.snap.0 as i64 };
            json!({
                "oid": {
                    "oid": object.name.to_text(),
                    "key": object.key.to_text(),
                    "snapid": snap,
                    "hash": object.hash,
                    "max": 0,
                    "pool": object.pool.0,
                    "namespace": object.namespace.to_text(),
                },
                "need": need(object),
                "have": "0'0",
                "flags": "none",
                "locations": [],
            })
        };
        let away = map.osd_ids().filter(|osd| map.is_down(*osd));
        let status = |osd| if is_declared_lost(map, osd) { "osd is lost" } else { "osd is down" };
        let away: Vec<Value> =
            away.map(|osd| json!({ "osd": osd.to_string(), "status": status(osd) })).collect();
        json!({
            "num_missing": self.missing.len(),
            "num_unfound": unfound.len(),
            "objects": unfound.iter().map(row).collect::<Vec<_>>(),
            "state": "Active",
            "available_might_have_unfound": true,
            "might_have_unfound": if unfound.is_empty() { Vec::new() } else { away },
            "more": false,
        })
    }

    /// Requests that were not answered, with what they wait for.
    pub fn ops_in_flight(&self, now: Now) -> Vec<Value> {
        let held = self.held.iter().map(|op| (op, "waiting for active"));
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
        let ops = self.held.iter().chain(active.into_iter().flatten());
        ops.map(move |op| now.since(op.steps.arrived))
    }

    /// How many `ops_in_flight` has.
    pub fn ops_in_flight_len(&self) -> usize {
        let active = match &self.phase {
            Phase::Active(active) => active.ops().count(),
            _ => 0,
        };
        self.held.len() + active
    }

    pub fn is_primary(&self) -> bool {
        matches!(self.phase, Phase::Active(_) | Phase::Peering(_))
    }
    pub fn is_replica(&self) -> bool {
        matches!(self.phase, Phase::Replica(_))
    }
}
