//! What is wrong with OSDs.

use super::OsdMonitor;
use crate::commands::flags_text;
use crate::crush_edit;
use crate::services::Context;
use crate::services::health::{Check, Checks, Severity, warn};
use crate::services::pg::stats::{OsdStat, PgStats};
use nacre_base::OsdId;
use nacre_proto::maps::{FullRatios, OsdMap, osd_state};
use std::collections::{BTreeMap, BTreeSet};

/// Daemons named in one summary.
const NAMES_MAX: usize = 10;

impl OsdMonitor {
    pub fn health(&self, cx: &Context<'_>, pgs: &PgStats, map: &OsdMap, checks: &mut Checks) {
        osds(map, checks);
        self.failures.checks(cx.now.mono, map, checks);
        self.crash_loops.checks(cx.now.mono, map, checks);
        slow_ops(pgs, map, checks);
        space(cx, pgs, map, checks);
    }
}

fn osds(map: &OsdMap, checks: &mut Checks) {
    let down: Vec<OsdId> = map
        .osd_ids()
        .filter(|&osd| map.is_down(osd) && map.is_in(osd) && !map.osds[osd.index()].has(osd_state::NEW))
        .collect();
    let place = |osd: OsdId| crush_edit::location_text(&map.crush, osd.0);
    if !down.is_empty() {
        let detail = down.iter().map(|&osd| format!("osd.{osd} ({}) is down", place(osd))).collect();
        warn(checks, "OSD_DOWN", down.len(), format!("{} osds down", down.len()), detail);
    }
    let down_set: BTreeSet<OsdId> = down.into_iter().collect();
    for (code, kind, kind_name) in
        [("OSD_HOST_DOWN", 1, "host"), ("OSD_RACK_DOWN", 3, "rack"), ("OSD_ROOT_DOWN", 11, "root")]
    {
        let mut lines = Vec::new();
        let mut osds = 0;
        for bucket in map.crush.buckets.iter().flatten().filter(|b| i32::from(b.kind) == kind) {
            let below = crush_edit::osds_below(&map.crush, bucket.id);
            let name = map.crush.names.get(&bucket.id).cloned().unwrap_or_default();
            let counted: Vec<OsdId> =
                below.into_iter().filter(|&osd| map.exists(osd) && map.is_in(osd)).collect();
            // Shadow trees hold the same OSDs once more.
            if !name.contains('~') && !counted.is_empty() && counted.iter().all(|osd| down_set.contains(osd))
            {
                osds += counted.len();
                let place = match crush_edit::location_text(&map.crush, bucket.id) {
                    root if root.is_empty() => root,
                    place => format!(" ({place})"),
                };
                lines.push(format!("{kind_name} {name}{place} ({} osds) is down", counted.len()));
            }
        }
        if !lines.is_empty() {
            let n = lines.len();
            let plural = if n == 1 { "" } else { "s" };
            warn(checks, code, n, format!("{n} {kind_name}{plural} ({osds} osds) down"), lines);
        }
    }
    let flags = flags_text(map.flags);
    if !flags.is_empty() {
        warn(checks, "OSDMAP_FLAGS", 1, format!("{flags} flag(s) set"), Vec::new());
    }
    let names = |bits: u32| {
        let mut names: Vec<_> = osd_state::names(bits).collect();
        names.sort_unstable();
        names.join(",")
    };
    let bits = osd_state::NOUP | osd_state::NODOWN | osd_state::NOIN | osd_state::NOOUT;
    let own = map.osd_ids().map(|osd| (format!("osd.{osd}"), map.osds[osd.index()].state & bits));
    let name = |names: &BTreeMap<i32, String>, id: &i32| names.get(id).cloned().unwrap_or_default();
    let nodes = map.crush_node_flags.iter();
    let nodes = nodes.map(|(id, bits)| {
        let kind = map.crush.bucket(*id).map_or(0, |bucket| i32::from(bucket.kind));
        (format!("{} {}", name(&map.crush.types, &kind), name(&map.crush.names, id)), *bits)
    });
    let classes = map.device_class_flags.iter();
    let classes =
        classes.map(|(id, bits)| (format!("device class '{}'", name(&map.crush.class_names, id)), *bits));
    let flagged: Vec<String> = own
        .chain(nodes)
        .chain(classes)
        .filter(|(_, bits)| *bits != 0)
        .map(|(who, bits)| format!("{who} has flags {}", names(bits)))
        .collect();
    if !flagged.is_empty() {
        let summary = format!(
            "{} OSDs or CRUSH {{nodes, device-classes}} have {{NOUP,NODOWN,NOIN,NOOUT}} flags set",
            flagged.len()
        );
        warn(checks, "OSD_FLAGS", flagged.len(), summary, flagged);
    }
}

/// Requests that OSDs have had for too long.
fn slow_ops(pgs: &PgStats, map: &OsdMap, checks: &mut Checks) {
    let osds = pgs.osds.iter().map(|(osd, stat)| (*osd, stat.report.slow));
    let slow: Vec<_> = osds.filter(|(osd, slow)| slow.count > 0 && map.is_up(*osd)).collect();
    let count = slow.iter().fold(0_u32, |sum, (_, slow)| sum.saturating_add(slow.count));
    let Some(oldest) = slow.iter().map(|(_, slow)| slow.oldest_secs).max() else { return };
    let names: Vec<String> = slow.iter().take(NAMES_MAX).map(|(osd, _)| format!("osd.{osd}")).collect();
    let who = match slow.len() {
        1 => format!("{} has", names[0]),
        n => format!("daemons [{}{}] have", names.join(","), if n > NAMES_MAX { "..." } else { "" }),
    };
    let detail = slow.iter().map(|(osd, slow)| {
        format!("osd.{osd} has {} slow ops, oldest one blocked for {} sec", slow.count, slow.oldest_secs)
    });
    let summary = format!("{count} slow ops, oldest one blocked for {oldest} sec, {who} slow ops.");
    warn(checks, "SLOW_OPS", count as usize, summary, detail.collect());
}

fn space(cx: &Context<'_>, pgs: &PgStats, map: &OsdMap, checks: &mut Checks) {
    let ratios = map.ratios;
    for (code, severity, bit, what, words) in [
        ("OSD_FULL", Severity::Error, osd_state::FULL, "full", "full"),
        ("OSD_BACKFILLFULL", Severity::Warn, osd_state::BACKFILLFULL, "backfillfull", "backfill full"),
        ("OSD_NEARFULL", Severity::Warn, osd_state::NEARFULL, "nearfull", "near full"),
    ] {
        let told = pgs.osds.iter().filter(|(osd, _)| map.is_up(**osd) && map.is_in(**osd));
        let filled = told.filter(|(osd, _)| map.osds[osd.index()].has(bit));
        let line = |(osd, stat): (&OsdId, &OsdStat)| {
            format!("osd.{osd} is {words} ({:.1}% used)", stat.report.space.used_ratio() * 100.0)
        };
        let lines: Vec<String> = filled.map(line).collect();
        if !lines.is_empty() {
            let summary = format!("{} {what} osd(s)", lines.len());
            checks.insert(code, Check { severity, summary, count: lines.len() as i64, detail: lines });
        }
    }
    let order = [
        ("nearfull_ratio", ratios.nearfull, "backfillfull_ratio", ratios.backfillfull, "increased"),
        ("backfillfull_ratio", ratios.backfillfull, "full_ratio", ratios.full, "increased"),
        // Ceph ignores the failsafe ratio here; in Nacre the store would be full.
        ("full_ratio", ratios.full, "osd_failsafe_full_ratio", FullRatios::FAILSAFE, "which counts"),
    ];
    let disorder: Vec<String> = order
        .iter()
        .filter(|(_, low, _, high, _)| low > high)
        .map(|(a, low, b, high, so)| format!("{b} ({high}) < {a} ({low}), {so}"))
        .collect();
    if !disorder.is_empty() {
        let (severity, count) = (Severity::Error, disorder.len() as i64);
        let summary = "full ratio(s) out of order".to_string();
        checks.insert("OSD_OUT_OF_ORDER_FULL", Check { severity, summary, count, detail: disorder });
    }
    let enough = cx.option("osd_pool_default_size").as_u64() as usize;
    let have = map.osd_ids().count();
    if have < enough && cx.option("mon_warn_on_too_few_osds").as_bool() {
        let summary = format!("OSD count {have} < osd_pool_default_size {enough}");
        warn(checks, "TOO_FEW_OSDS", 1, summary, Vec::new());
    }
}
