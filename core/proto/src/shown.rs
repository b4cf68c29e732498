//! How Ceph's tools are shown a placement group: by monitors in listings, and by its primary when it is
//! asked.

use crate::messages::{PgCounts, PgReport, pg_state};
use crate::types::ObjectStatSum;
use nacre_base::{IntervalSet, OsdId, Utime};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// One group with what listings say of it.
pub struct PgShown {
    pub report: PgReport,
    pub lasts: Lasts,
    pub state: u64,
    /// Of the report.
    pub stamp: Utime,
    pub seq: u64,
    pub epoch: u32,
}

/// When a group was last seen as it should be. Its primaries come and go, and each new one knows little of
/// it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lasts {
    pub active: Utime,
    pub peered: Utime,
    pub clean: Utime,
    pub undegraded: Utime,
    pub full_sized: Utime,
}

impl Lasts {
    /// After one more report.
    pub fn seen(self, wall: Utime, report: &PgReport) -> Lasts {
        use pg_state as s;
        let (state, clean) = (report.state, report.last_clean);
        let last = |is_so: bool, known: Utime, said: Utime| if is_so { wall } else { known.max(said) };
        Lasts {
            active: last(state & s::ACTIVE != 0, self.active, report.last_active),
            peered: last(state & (s::ACTIVE | s::PEERED) != 0, self.peered, report.last_active),
            clean: last(state & s::CLEAN != 0, self.clean, clean),
            undegraded: last(state & s::DEGRADED == 0, self.undegraded, clean),
            full_sized: last(state & s::UNDERSIZED == 0, self.full_sized, clean),
        }
    }
}

impl PgShown {
    /// Ceph: `pg_stat_t`.
    pub fn to_json(&self) -> Value {
        let r = &self.report;
        let fresh = stamp(self.stamp);
        let active = stamp(self.lasts.active);
        json!({
            "pgid": r.pg.to_string(),
            "version": r.last_update.to_string(),
            "reported_seq": self.seq,
            "reported_epoch": self.epoch,
            "state": pg_state::name(self.state),
            "last_fresh": fresh,
            "last_change": stamp(r.last_change),
            "last_active": active,
            "last_peered": stamp(self.lasts.peered),
            "last_clean": stamp(self.lasts.clean),
            "last_became_active": active,
            "last_became_peered": active,
            "last_unstale": fresh,
            "last_undegraded": stamp(self.lasts.undegraded),
            "last_fullsized": stamp(self.lasts.full_sized),
            "mapping_epoch": r.interval.0,
            "log_start": r.log_tail.to_string(),
            "ondisk_log_start": r.log_tail.to_string(),
            "created": 0,
            "last_epoch_clean": r.interval.0,
            "parent": "0.0",
            "parent_split_bits": 0,
            "last_scrub": r.scrub.last.to_string(),
            "last_scrub_stamp": stamp(r.scrub.last_stamp),
            "last_deep_scrub": r.scrub.last_deep.to_string(),
            "last_deep_scrub_stamp": stamp(r.scrub.last_deep_stamp),
            "last_clean_scrub_stamp": stamp(r.scrub.last_clean_stamp),
            "log_size": r.log_entries,
            "ondisk_log_size": r.log_entries,
            "stats_invalid": false,
            "dirty_stats_invalid": false,
            "omap_stats_invalid": false,
            "hitset_stats_invalid": false,
            "hitset_bytes_stats_invalid": false,
            "pin_stats_invalid": false,
            "manifest_stats_invalid": false,
            "snaptrimq_len": r.to_trim,
            "stat_sum": r.counts.stat_sum().to_json(),
            "up": ids(&r.up),
            "acting": ids(&r.acting),
            "avail_no_missing": [],
            "object_location_counts": [],
            "blocked_by": r.waited_for().iter().map(|osd| osd.0).collect::<Vec<_>>(),
            "up_primary": r.up_primary.0,
            "acting_primary": r.acting_primary.0,
            "purged_snaps": spans(&r.trimmed),
        })
    }
}

impl PgReport {
    /// The OSDs that the primary names when it says what it waits for.
    pub fn waited_for(&self) -> BTreeSet<OsdId> {
        let words = self.waiting_for.split(|c: char| !c.is_ascii_alphanumeric() && c != '.');
        let ids = words.filter_map(|word| word.strip_prefix("osd.")?.trim_end_matches('.').parse().ok());
        ids.map(OsdId).collect()
    }
}

impl PgCounts {
    pub fn stat_sum(&self) -> ObjectStatSum {
        ObjectStatSum {
            num_bytes: self.bytes as i64,
            num_objects: self.objects as i64,
            num_object_clones: self.clones as i64,
            num_object_copies: self.copies as i64,
            num_objects_missing_on_primary: self.missing_on_primary as i64,
            num_objects_degraded: self.degraded as i64,
            num_objects_misplaced: self.misplaced as i64,
            num_objects_unfound: self.unfound as i64,
            num_rd: self.work.reads as i64,
            num_rd_kb: (self.work.read_bytes >> 10) as i64,
            num_wr: self.work.writes as i64,
            num_wr_kb: (self.work.write_bytes >> 10) as i64,
            num_objects_recovered: self.work.recovered_objects as i64,
            num_bytes_recovered: self.work.recovered_bytes as i64,
            num_omap_bytes: self.omap_bytes as i64,
            num_omap_keys: self.omap_keys as i64,
            num_scrub_errors: (self.shallow_errors + self.deep_errors) as i64,
            num_shallow_scrub_errors: self.shallow_errors as i64,
            num_deep_scrub_errors: self.deep_errors as i64,
            num_objects_repaired: self.repaired as i64,
            ..ObjectStatSum::default()
        }
    }
}

impl ObjectStatSum {
    pub fn to_json(self) -> Value {
        let s = self;
        json!({
            "num_bytes": s.num_bytes,
            "num_objects": s.num_objects,
            "num_object_clones": s.num_object_clones,
            "num_object_copies": s.num_object_copies,
            "num_objects_missing_on_primary": s.num_objects_missing_on_primary,
            "num_objects_missing": s.num_objects_missing,
            "num_objects_degraded": s.num_objects_degraded,
            "num_objects_misplaced": s.num_objects_misplaced,
            "num_objects_unfound": s.num_objects_unfound,
            "num_objects_dirty": s.num_objects_dirty,
            "num_whiteouts": s.num_whiteouts,
            "num_read": s.num_rd,
            "num_read_kb": s.num_rd_kb,
            "num_write": s.num_wr,
            "num_write_kb": s.num_wr_kb,
            "num_scrub_errors": s.num_scrub_errors,
            "num_shallow_scrub_errors": s.num_shallow_scrub_errors,
            "num_deep_scrub_errors": s.num_deep_scrub_errors,
            "num_objects_recovered": s.num_objects_recovered,
            "num_bytes_recovered": s.num_bytes_recovered,
            "num_keys_recovered": s.num_keys_recovered,
            "num_objects_omap": s.num_objects_omap,
            "num_objects_hit_set_archive": 0,
            "num_bytes_hit_set_archive": 0,
            "num_flush": 0,
            "num_flush_kb": 0,
            "num_evict": 0,
            "num_evict_kb": 0,
            "num_promote": 0,
            "num_flush_mode_high": 0,
            "num_flush_mode_low": 0,
            "num_evict_mode_some": 0,
            "num_evict_mode_full": 0,
            "num_objects_pinned": 0,
            "num_legacy_snapsets": 0,
            "num_large_omap_objects": s.num_large_omap_objects,
            "num_objects_manifest": 0,
            "num_omap_bytes": s.num_omap_bytes,
            "num_omap_keys": s.num_omap_keys,
            "num_objects_repaired": s.num_objects_repaired,
        })
    }
}

/// "0.000000" for never.
pub fn stamp(at: Utime) -> String {
    if at == Utime::ZERO { "0.000000".to_string() } else { at.to_string() }
}

/// As numbers.
pub fn ids(osds: &[OsdId]) -> Vec<i32> {
    osds.iter().map(|osd| osd.0).collect()
}

/// Snapshots, in hexadecimal.
pub fn spans(set: &IntervalSet) -> Vec<Value> {
    set.iter()
        .map(|s| json!({ "start": format!("{:x}", s.start), "length": format!("{:x}", s.end - s.start) }))
        .collect()
}

/// The same, as Ceph prints it in a line: "[1~2,5~1]".
pub fn span_text(set: &IntervalSet) -> String {
    let spans: Vec<String> = set.iter().map(|s| format!("{:x}~{:x}", s.start, s.end - s.start)).collect();
    format!("[{}]", spans.join(","))
}
