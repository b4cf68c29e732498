//! Health, space, monitors, managers and registered services.

use super::{Mon, Page, host_of, number};
use crate::services::Context;
use crate::services::health::{Severity, overall};
use crate::services::mgr::modules::ALWAYS_ON;

/// Warnings that Ceph's alerts ask for, or subtract from others, are shown as zero while they are not
/// raised. So a rule that is not broken has data.
const EXPECTED: [(&str, &str); 24] = [
    ("MON_CLOCK_SKEW", WARN),
    ("MON_DOWN", WARN),
    ("OBJECT_UNFOUND", WARN),
    ("OSD_BACKFILLFULL", WARN),
    ("OSD_DOWN", WARN),
    ("OSD_FULL", ERR),
    ("OSD_HOST_DOWN", WARN),
    ("OSD_NEARFULL", WARN),
    ("OSD_SCRUB_ERRORS", ERR),
    ("PG_AVAILABILITY", WARN),
    ("PG_BACKFILL_FULL", WARN),
    ("PG_DAMAGED", ERR),
    ("PG_DEGRADED", WARN),
    ("PG_NOT_DEEP_SCRUBBED", WARN),
    ("PG_NOT_SCRUBBED", WARN),
    ("POOL_BACKFILLFULL", WARN),
    ("POOL_FULL", WARN),
    ("POOL_NEARFULL", WARN),
    ("RECENT_CRASH", WARN),
    ("SLOW_OPS", WARN),
    ("TOO_FEW_OSDS", WARN),
    ("TOO_FEW_PGS", WARN),
    ("TOO_MANY_PGS", WARN),
    ("OSD_FLAPPING", WARN),
];
const WARN: &str = "HEALTH_WARN";
const ERR: &str = "HEALTH_ERR";

pub(super) fn health(mon: &Mon, cx: &Context<'_>, page: &mut Page) {
    let map = &cx.state.osdmap.map;
    let checks = mon.health(cx.now, map);
    let status = match overall(&checks, &cx.state.health.mutes) {
        Severity::Ok => 0.0,
        Severity::Warn => 1.0,
        Severity::Error => 2.0,
    };
    page.untyped("health_status", "Cluster health status", &[], status);
    let slow: u64 = mon.services.pgs.osds.values().map(|stat| u64::from(stat.report.slow.count)).sum();
    let help = "OSD or Monitor requests taking a long time to process";
    page.gauge("healthcheck_slow_ops", help, &[], slow as f64);
    let help = "healthcheck status by type (0=inactive, 1=active)";
    let mut detail = |name: &str, severity: &str, is_active| {
        page.gauge("health_detail", help, &[("name", name), ("severity", severity)], number(is_active));
    };
    for (name, check) in &checks {
        detail(name, check.severity.name(), true);
    }
    for (name, severity) in EXPECTED.iter().filter(|(name, _)| !checks.contains_key(name)) {
        detail(name, severity, false);
    }
}

pub(super) fn space(mon: &Mon, cx: &Context<'_>, page: &mut Page) {
    let map = &cx.state.osdmap.map;
    let space = mon.services.pgs.space(|osd| map.is_in(osd));
    for (name, value) in [
        ("total_bytes", space.total),
        ("total_used_bytes", space.used()),
        ("total_used_raw_bytes", space.used()),
    ] {
        page.gauge(&format!("cluster_{name}"), &format!("DF {name}"), &[], value as f64);
    }
    let sum = mon.services.pgs.sum();
    for (name, objects) in
        [("degraded", sum.degraded), ("misplaced", sum.misplaced), ("unfound", sum.unfound)]
    {
        let help = format!("Number of {name} objects");
        page.gauge(&format!("num_objects_{name}"), &help, &[], objects as f64);
    }
}

/// Monitors, each of which is a manager too.
pub(super) fn monitors(cx: &Context<'_>, page: &mut Page) {
    let active = &cx.state.mgrmap.map.active_name;
    for (rank, info) in cx.state.monmap.map.by_rank().enumerate() {
        let in_quorum = cx.quorum.contains(&(rank as u64));
        let metadata = cx.state.monmap.member(&info.name).and_then(|id| cx.state.mon_metadata.of.get(&id));
        let get = |key: &str| metadata.and_then(|metadata| metadata.get(key)).map_or("", String::as_str);
        let (host, version) = (get("hostname"), get("ceph_version"));
        let (daemon, rank) = (format!("mon.{}", info.name), rank.to_string());
        let labels = [
            ("ceph_daemon", &*daemon),
            ("hostname", host),
            ("public_addr", &host_of(&info.public_addrs)),
            ("rank", &rank),
            ("ceph_version", version),
        ];
        page.untyped("mon_metadata", "MON Metadata", &labels, 1.0);
        let labels = [("ceph_daemon", &*daemon)];
        page.gauge("mon_quorum_status", "Monitors in quorum", &labels, number(in_quorum));
        if !in_quorum {
            continue;
        }
        let daemon = format!("mgr.{}", info.name);
        let labels = [("ceph_daemon", &*daemon), ("hostname", host), ("ceph_version", version)];
        page.gauge("mgr_metadata", "MGR metadata", &labels, 1.0);
        let help = "MGR status (0=standby, 1=active)";
        page.gauge("mgr_status", help, &[("ceph_daemon", &daemon)], number(info.name == *active));
    }
    for name in ALWAYS_ON {
        let help = "MGR module status (0=disabled, 1=enabled, 2=auto-enabled)";
        page.gauge("mgr_module_status", help, &[("name", name)], 2.0);
        let help = "MGR module runnable state i.e. can it run (0=no, 1=yes)";
        page.gauge("mgr_module_can_run", help, &[("name", name)], 1.0);
    }
}

/// Daemons that registered with the manager.
pub(super) fn services(mon: &Mon, page: &mut Page) {
    for (id, metadata) in mon.services.service_map.daemons("rbd-mirror") {
        let get = |key: &str| metadata.get(key).map_or("", String::as_str);
        let daemon = format!("rbd-mirror.{id}");
        let labels = [
            ("ceph_daemon", &*daemon),
            ("id", get("id")),
            ("instance_id", get("instance_id")),
            ("hostname", get("hostname")),
            ("ceph_version", get("ceph_version")),
        ];
        page.untyped("rbd_mirror_metadata", "RBD Mirror Metadata", &labels, 1.0);
    }
    for (id, metadata) in mon.services.service_map.daemons("rgw") {
        let get = |key: &str| metadata.get(key).map_or("", String::as_str);
        let daemon = format!("rgw.{}", get("id"));
        let labels = [
            ("ceph_daemon", &*daemon),
            ("hostname", get("hostname")),
            ("ceph_version", get("ceph_version")),
            ("instance_id", id),
        ];
        page.untyped("rgw_metadata", "RGW Metadata", &labels, 1.0);
    }
}
