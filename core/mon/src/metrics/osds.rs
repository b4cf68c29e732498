//! OSDs: their state, where they are, what they store on, and their counters.

use super::{Mon, Page, host_of, number};
use crate::crush_edit::class_of;
use crate::services::Context;
use crate::services::pg::stats::OsdStat;
use nacre_base::OsdId;
use nacre_perf::Reading;
use nacre_proto::maps::{Osd, OsdMap, map_flags};
use std::collections::BTreeMap;

const FLAGS: [&str; 9] =
    ["noup", "nodown", "noout", "noin", "nobackfill", "norebalance", "norecover", "noscrub", "nodeep-scrub"];

pub(super) fn flags(cx: &Context<'_>, page: &mut Page) {
    let set: Vec<&str> = map_flags::names(cx.state.osdmap.map.flags).collect();
    for name in FLAGS {
        let metric = format!("osd_flag_{}", name.replace('-', "_"));
        let is_set = set.contains(&name);
        page.untyped(&metric, &format!("OSD Flag {name}"), &[], number(is_set));
    }
}

pub(super) fn all(mon: &Mon, cx: &Context<'_>, page: &mut Page) {
    let map = &cx.state.osdmap.map;
    // By device and host.
    let mut disks: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for osd in map.osd_ids() {
        let Some(info) = map.osd(osd) else { continue };
        let daemon = format!("osd.{osd}");
        state(map, osd, &daemon, page);
        let Some(metadata) = cx.state.osdmap.metadata.get(&osd) else { continue };
        identity(map, osd, info, metadata, &daemon, page);
        if let Some(disk) = occupation(metadata, &daemon, page) {
            disks.entry(disk).or_default().push(daemon);
        }
    }
    for ((device, host), daemons) in disks {
        let help = "Associate Ceph daemon with disk used for displaying to humans, not for joining tables (vector matching)";
        let labels = [("ceph_daemon", &*daemons.join(", ")), ("device", &device), ("instance", &host)];
        page.untyped("disk_occupation_human", help, &labels, 1.0);
    }
    for (osd, stat) in mon.services.pgs.osds.iter().filter(|(osd, _)| map.is_up(**osd)) {
        let daemon = format!("osd.{osd}");
        let labels = [("ceph_daemon", &*daemon)];
        let millis = f64::from(stat.report.commit_latency_us) / 1000.0;
        for name in ["apply_latency_ms", "commit_latency_ms"] {
            page.gauge(&format!("osd_{name}"), &format!("OSD stat {name}"), &labels, millis);
        }
        let labels = [("type", "SLOW_OPS"), ("ceph_daemon", &*daemon)];
        let slow = f64::from(stat.report.slow.count);
        page.gauge("daemon_health_metrics", "Health metrics for Ceph daemons", &labels, slow);
        for counter in &stat.report.counters {
            page.counter(&counter.set, &counter.name, &counter.value, &daemon);
        }
        if stat.report.counters.is_empty() {
            space(stat, page, &daemon);
        }
    }
}

/// An OSD of an older version sends no counters, but says what it stores.
fn space(stat: &OsdStat, page: &mut Page, daemon: &str) {
    let space = &stat.report.space;
    for (name, value) in [
        ("stat_bytes", space.total),
        ("stat_bytes_used", space.total.saturating_sub(space.available)),
        ("stat_bytes_avail", space.available),
    ] {
        page.counter("osd", name, &Reading::Gauge(value), daemon);
    }
}

fn state(map: &OsdMap, osd: OsdId, daemon: &str, page: &mut Page) {
    let weight = f64::from(map.weight(osd)) / f64::from(Osd::IN);
    let rows = [("weight", weight), ("up", number(map.is_up(osd))), ("in", number(map.is_in(osd)))];
    for (name, value) in rows {
        page.untyped(
            &format!("osd_{name}"),
            &format!("OSD status {name}"),
            &[("ceph_daemon", daemon)],
            value,
        );
    }
}

fn identity(
    map: &OsdMap,
    osd: OsdId,
    info: &Osd,
    metadata: &BTreeMap<String, String>,
    daemon: &str,
    page: &mut Page,
) {
    let get = |key: &str| metadata.get(key).map_or("", String::as_str);
    let labels = [
        ("back_iface", get("back_iface")),
        ("ceph_daemon", daemon),
        ("cluster_addr", &host_of(&info.cluster_addrs)),
        ("device_class", &class_of(&map.crush, osd.0).unwrap_or_default()),
        ("front_iface", get("front_iface")),
        ("hostname", get("hostname")),
        ("objectstore", get("osd_objectstore")),
        ("public_addr", &host_of(&info.public_addrs)),
        ("ceph_version", get("ceph_version")),
    ];
    page.untyped("osd_metadata", "OSD Metadata", &labels, 1.0);
}

/// The OSD's device and host, if the OSD knows its device.
fn occupation(
    metadata: &BTreeMap<String, String>,
    daemon: &str,
    page: &mut Page,
) -> Option<(String, String)> {
    let get = |key: &str| metadata.get(key).map_or("", String::as_str);
    let (devices, host) = (metadata.get("devices")?, metadata.get("hostname")?);
    let device = format!("/dev/{devices}");
    let ids = metadata.get("device_ids").map_or("N/A", String::as_str);
    let labels = [
        ("ceph_daemon", daemon),
        ("device", &*device),
        ("db_device", ""),
        ("wal_device", get("osd_wal_path")),
        ("instance", host),
        ("devices", devices),
        ("device_ids", ids),
    ];
    page.untyped("disk_occupation", "Associate Ceph daemon with disk used", &labels, 1.0);
    Some((device, host.clone()))
}
