//! `ceph pg ID query` and `list_unfound`: all that one OSD knows of a placement group, in Ceph's shape.
//!
//! What Ceph has no field for is beside it: what the placement group waits for, in words, and requests under
//! way.

use super::mark_lost::is_declared_lost;
use super::{Ctx, Interval, Pg, Phase};
use nacre_base::{OsdId, PgId, ShardId, SnapId, SpgId, Utime, Version};
use nacre_proto::maps::OsdMap;
use nacre_proto::messages::peer::PgInfo;
use nacre_proto::messages::{PgCounts, PgReport, pg_state};
use nacre_proto::shown::{Lasts, PgShown, ids, span_text, spans, stamp};
use nacre_proto::types::ObjectId;
use serde_json::{Value, json};

/// OSDs as Ceph names holders: those of an erasure-coded placement group with their shards.
fn shards(interval: &Interval, osds: impl IntoIterator<Item = OsdId>) -> Vec<String> {
    let name = |osd: OsdId| named(osd, interval.shard_of(osd));
    osds.into_iter().filter(|osd| osd.is_some()).map(name).collect()
}
fn named(osd: OsdId, shard: ShardId) -> String {
    if shard.is_some() { format!("{osd}({})", shard.0) } else { osd.to_string() }
}

/// Ceph: `pg_info_t`. Up to which version a member that misses something is complete is not known.
fn info_json(pg: PgId, info: &PgInfo, missing: usize, rest: Value) -> Value {
    let complete = if missing == 0 { info.last_update } else { Version::ZERO };
    let mut shown = json!({
        "pgid": SpgId { pg, shard: info.shard }.to_string(),
        "last_update": info.last_update.to_string(),
        "last_complete": complete.to_string(),
        "log_tail": info.log_tail.to_string(),
        "last_user_version": info.last_user_version,
        "last_backfill": if info.incomplete { "MIN" } else { "MAX" },
    });
    merge(&mut shown, rest);
    merge(
        &mut shown,
        json!({
            "empty": i32::from(info.last_update == Version::ZERO),
            "dne": 0,
            "incomplete": i32::from(info.incomplete),
            "last_epoch_started": info.interval_started.0,
            "hit_set_history": {"current_last_update": "0'0", "history": []},
            "missing": missing,
        }),
    );
    shown
}

/// Adds the second object's fields to the first one's.
fn merge(shown: &mut Value, more: Value) {
    if let (Value::Object(shown), Value::Object(more)) = (shown, more) {
        shown.extend(more);
    }
}

/// Another holder, of which the primary knows what it has.
fn peer_json(pg: PgId, osd: OsdId, info: &PgInfo, missing: usize) -> Value {
    let PgInfo { objects, clones, bytes, .. } = *info;
    let counts = PgCounts { objects, clones, bytes, ..PgCounts::default() };
    let mut shown = json!({"peer": named(osd, info.shard)});
    merge(
        &mut shown,
        info_json(pg, info, missing, json!({"stats": {"stat_sum": counts.stat_sum().to_json()}})),
    );
    shown
}

impl Pg {
    /// `ceph tell PG query`.
    pub fn query(&self, ctx: &Ctx<'_>) -> Value {
        let (map, wall) = (&ctx.map, ctx.now.wall);
        let state = self.state(map, self.is_clean());
        let name = match &self.phase {
            Phase::Stray(_) => "stray".to_string(),
            Phase::Replica(_) => "replica".to_string(),
            Phase::Deleting(_) => "deleting".to_string(),
            _ => pg_state::name(state),
        };
        let to_trim = self.to_trim(map);
        let interval = &self.interval;
        let mut shown = json!({
            "snap_trimq": span_text(&to_trim),
            "snap_trimq_len": to_trim.size(),
            "state": name,
            "epoch": map.epoch.0,
            "up": ids(&interval.up),
            "acting": ids(&interval.acting),
        });
        if self.is_primary() {
            let backfill_targets: Vec<OsdId> = self.backfill_targets().collect();
            if !backfill_targets.is_empty() {
                merge(&mut shown, json!({"backfill_targets": shards(interval, backfill_targets.clone())}));
            }
            let all = interval.acting.iter().copied().chain(backfill_targets);
            merge(&mut shown, json!({"acting_recovery_backfill": shards(interval, all)}));
        }
        merge(
            &mut shown,
            json!({
                "info": self.own_info(map, state, wall),
                "peer_info": self.peer_infos(),
                "recovery_state": self.recovery_state(map),
                "scrubber": {"active": state & pg_state::SCRUBBING != 0},
                "agent_state": {},
                "interval": interval.start.0,
                "waiting_for": self.waits_for(),
                "recovery": self.recovery_words(map),
                "ops_in_flight": self.ops_in_flight(ctx.now),
            }),
        );
        shown
    }

    fn own_info(&self, map: &OsdMap, state: u64, wall: Utime) -> Value {
        let report = self.described(wall);
        let scrub = report.scrub;
        let purged = spans(&report.trimmed);
        let lasts = Lasts::default().seen(wall, &report);
        let PgReport { interval, log_entries, .. } = report;
        let stats = PgShown { report, lasts, state, stamp: wall, seq: 0, epoch: map.epoch.0 };
        let history = json!({
            "last_epoch_started": self.history.info.interval_started.0,
            "last_interval_started": self.history.info.interval_started.0,
            "last_epoch_clean": if self.is_clean() { interval.0 } else { 0 },
            "last_interval_clean": if self.is_clean() { interval.0 } else { 0 },
            "same_up_since": interval.0,
            "same_interval_since": interval.0,
            "same_primary_since": self.last_primary_change.0,
            "last_scrub": scrub.last.to_string(),
            "last_scrub_stamp": stamp(scrub.last_stamp),
            "last_deep_scrub": scrub.last_deep.to_string(),
            "last_deep_scrub_stamp": stamp(scrub.last_deep_stamp),
            "last_clean_scrub_stamp": stamp(scrub.last_clean_stamp),
        });
        let rest = json!({
            "purged_snaps": purged,
            "history": history,
            "stats": stats.to_json(),
            "log_entries": log_entries,
        });
        info_json(self.id, &self.history.info, self.history.missing.len(), rest)
    }

    /// Members have the primary's log from when it serves; what others have, they said.
    fn peer_infos(&self) -> Vec<Value> {
        let shown = |osd: OsdId, info: &PgInfo, missing: usize| peer_json(self.id, osd, info, missing);
        match &self.phase {
            Phase::Active(active) => {
                let members = active.members.iter().map(|(osd, member)| {
                    let objects = self.history.info.objects.saturating_sub(member.missing.len() as u64);
                    let shard = self.interval.shard_of(*osd);
                    shown(*osd, &PgInfo { objects, shard, ..self.history.info }, member.missing.len())
                });
                let others = active.recovery.holders().map(|(osd, info)| shown(osd, info, 0));
                members.chain(others).collect()
            }
            Phase::Peering(peering) => {
                let others = peering.infos().filter(|(osd, _)| *osd != self.me);
                others.map(|(osd, info)| shown(osd, info, 0)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Ceph's states one within the other, the innermost first; each with why it lasts.
    fn recovery_state(&self, map: &OsdMap) -> Vec<Value> {
        let since = stamp(self.stats.last_change());
        let state = |name: &str, rest: Value| {
            let mut shown = json!({"name": name, "enter_time": since});
            merge(&mut shown, rest);
            shown
        };
        let mut states = match &self.phase {
            Phase::Active(active) => {
                let progress = json!({
                    "backfill_targets": shards(&self.interval, self.backfill_targets()),
                    "recovering": active.recovery.under_way().iter().map(ToString::to_string).collect::<Vec<_>>(),
                    "pg_backend": active.recovery.transfers_json(),
                });
                let might_have = self.might_have_unfound(map);
                let words = json!({
                    "might_have_unfound": might_have,
                    "recovery_progress": progress,
                    "comment": self.recovery_words(map),
                });
                vec![state("Started/Primary/Active", words)]
            }
            Phase::Peering(peering) => {
                let (name, rest) = peering.ceph_state();
                let mut inner = json!({"comment": peering.waits_for()});
                merge(&mut inner, rest);
                vec![
                    state(&format!("Started/Primary/Peering{name}"), inner),
                    state("Started/Primary/Peering", peering.blocked_json(map)),
                ]
            }
            Phase::Replica(_) => vec![state("Started/ReplicaActive", json!({}))],
            Phase::Stray(_) => vec![state("Started/Stray", json!({}))],
            Phase::Deleting(_) => vec![state("Started/ToDelete/Deleting", json!({}))],
        };
        states.push(state("Started", json!({})));
        states
    }

    /// OSDs that are down and may have what is unfound.
    fn might_have_unfound(&self, map: &OsdMap) -> Vec<Value> {
        let Phase::Active(active) = &self.phase else { return Vec::new() };
        if active.recovery.unfound_len() == 0 {
            return Vec::new();
        }
        let away = map.osd_ids().filter(|osd| map.is_down(*osd));
        let status = |osd| if is_declared_lost(map, osd) { "osd is lost" } else { "osd is down" };
        away.map(|osd| json!({ "osd": osd.to_string(), "status": status(osd) })).collect()
    }

    /// `ceph tell PG list_unfound`.
    pub fn list_unfound(&self, map: &OsdMap) -> Value {
        let unfound: Vec<&ObjectId> = match &self.phase {
            Phase::Active(active) => active.recovery.unfound().collect(),
            _ => Vec::new(),
        };
        let stale = |object: &ObjectId| self.history.missing.get(object).cloned().unwrap_or_default();
        let row = |object: &&ObjectId| {
            let snap = if object.snap == SnapId::HEAD { -2 } else { object.snap.0 as i64 };
            let stale = stale(object);
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
                "need": stale.need.to_string(),
                "have": stale.have.to_string(),
                "flags": "none",
                "locations": [],
            })
        };
        json!({
            "num_missing": self.history.missing.len(),
            "num_unfound": unfound.len(),
            "objects": unfound.iter().map(row).collect::<Vec<_>>(),
            "state": "Active",
            "available_might_have_unfound": true,
            "might_have_unfound": self.might_have_unfound(map),
            "more": false,
        })
    }
}
