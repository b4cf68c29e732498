//! The page for programs that collect metrics.

use super::*;
use crate::{MetricsPage, Standby};
use nacre_perf::Reading;

fn page(t: &TestMon) -> String {
    match t.mon.metrics(t.now) {
        MetricsPage::Active(page) => page.to_text(),
        other => panic!("{other:?}"),
    }
}

fn has(page: &str, line: &str) {
    assert!(page.lines().any(|found| found == line), "no {line} in\n{page}");
}

#[test]
fn metrics_have_cephs_names_and_labels() {
    let (mut t, osds) = TestMon::with_osds(3);
    let pool = t.create_pool("p", 8);
    t.activate(&osds, pool);
    t.report(&osds, pool);
    let counters = [
        ("osd", "op_w", Reading::Counter(7)),
        ("osd", "op_w_latency", Reading::Mean { count: 4, nanos: 2_000_000_000 }),
        ("AsyncMessenger::Worker-0", "msgr_active_connections", Reading::Gauge(5)),
        ("o{s}\n", "d\"", Reading::Gauge(1)),
    ];
    let counters =
        counters.map(|(set, name, value)| CounterReport { set: set.into(), name: name.into(), value });
    let slow = SlowOps { count: 2, oldest_secs: 40 };
    let space = OsdSpace { total: 10 << 30, available: 9 << 30, ..OsdSpace::default() };
    let report = OsdReport { osd: Some(OsdId(1)), epoch: t.map().epoch, space, slow, ..OsdReport::default() };
    t.send(osds[1], DaemonMsg::Report(OsdReport { counters: counters.into(), ..report.clone() }));
    // Reports between have none.
    t.send(osds[1], DaemonMsg::Report(report));
    let page = page(&t);
    for line in [
        "# TYPE ceph_health_status untyped",
        "ceph_health_detail{name=\"OSD_DOWN\",severity=\"HEALTH_WARN\"} 0.0",
        "ceph_healthcheck_slow_ops 2.0",
        "ceph_daemon_health_metrics{type=\"SLOW_OPS\",ceph_daemon=\"osd.1\"} 2.0",
        "ceph_mon_quorum_status{ceph_daemon=\"mon.a\"} 1.0",
        "ceph_mgr_status{ceph_daemon=\"mgr.a\"} 1.0",
        "ceph_osd_up{ceph_daemon=\"osd.0\"} 1.0",
        "ceph_osd_weight{ceph_daemon=\"osd.2\"} 1.0",
        "ceph_osd_flag_nodeep_scrub 0.0",
        "# TYPE ceph_osd_op_w counter",
        "ceph_osd_op_w{ceph_daemon=\"osd.1\"} 7.0",
        "ceph_osd_op_w_latency_sum{ceph_daemon=\"osd.1\"} 2.0",
        "ceph_osd_op_w_latency_count{ceph_daemon=\"osd.1\"} 4.0",
        "ceph_AsyncMessenger_Worker_0_msgr_active_connections{ceph_daemon=\"osd.1\"} 5.0",
        "ceph_o_s___d_{ceph_daemon=\"osd.1\"} 1.0",
        "ceph_osd_stat_bytes{ceph_daemon=\"osd.0\"} 10737418240.0",
        "ceph_cluster_total_bytes 32212254720.0",
        "ceph_pg_total{pool_id=\"1\"} 8.0",
        "ceph_pg_active{pool_id=\"1\"} 8.0",
        "ceph_pg_unknown{pool_id=\"1\"} 0.0",
        "ceph_pool_quota_bytes{pool_id=\"1\"} 0.0",
        "ceph_num_objects_degraded 0.0",
    ] {
        has(&page, line);
    }
    let pool = "ceph_pool_metadata{pool_id=\"1\",name=\"p\",type=\"replicated\",description=\"replica:3\",compression_mode=\"none\"} 1.0";
    has(&page, pool);
    let osd = page.lines().find(|line| line.starts_with("ceph_osd_metadata{")).unwrap();
    for label in ["ceph_daemon=\"osd.0\"", "public_addr=\"127.0.0.1\"", "device_class=\"ssd\""] {
        assert!(osd.contains(label), "{osd}");
    }

    // A warning is there while its cause is.
    t.event(Event::Closed { conn: osds[2], why: Closed::Reset });
    t.run(json!({ "prefix": "osd down", "ids": ["2"] }));
    t.run(json!({ "prefix": "osd set", "key": "noout" }));
    let page = self::page(&t);
    for line in [
        "ceph_health_status 1.0",
        "ceph_health_detail{name=\"OSD_DOWN\",severity=\"HEALTH_WARN\"} 1.0",
        "ceph_osd_up{ceph_daemon=\"osd.2\"} 0.0",
        "ceph_osd_flag_noout 1.0",
    ] {
        has(&page, line);
    }
    assert!(!page.contains("name=\"OSD_DOWN\",severity=\"HEALTH_WARN\"} 0.0"));
}

#[test]
fn address_of_metrics_is_configured_and_announced() {
    let mut t = TestMon::fresh();
    let services = |t: &mut TestMon| t.json(json!({ "prefix": "mgr services" }));
    assert_eq!(services(&mut t), json!({ "prometheus": "http://127.0.0.1:9283/" }));
    let set = |name: &str, value: &str| json!({ "prefix": "config set", "who": "mgr", "name": format!("mgr/prometheus/{name}"), "value": value });
    t.run(set("server_port", "9999"));
    t.run(set("server_addr", "0.0.0.0"));
    t.pass(Duration::from_secs(2));
    assert_eq!(services(&mut t), json!({ "prometheus": "http://127.0.0.1:9999/" }));
    assert_eq!(t.mon.metrics_addrs().unwrap().listen, "0.0.0.0:9999".parse().unwrap());
    let targets = t.run(json!({ "prefix": "prometheus file_sd_config" }));
    assert_eq!(targets, r#"[{"targets":["127.0.0.1:9999"],"labels":{}}]"#);
    t.run(set("server_port", "0"));
    t.pass(Duration::from_secs(2));
    assert_eq!(services(&mut t), json!({}));
    assert_eq!(t.mon.metrics_addrs(), None);
    t.run(set("rbd_stats_pools", "a, b/n"));
    assert_eq!(t.mon.rbd_stats_pools(), ["a", "b/n"]);
    assert_eq!(t.command(set("server_port", "70000")).0, -22);
}

#[test]
fn monitor_that_does_not_lead_has_no_metrics() {
    let now = Now { mono: Time::from_nanos(1 << 40), wall: Utime { sec: 1_800_000_000, nsec: 0 } };
    let mut t = TestMon::start_with(config(0, 3, 40), Omaps::default(), now);
    t.pass(Duration::from_secs(2));
    match t.mon.metrics(t.now) {
        MetricsPage::Standby { active: None, behaviour: Standby::Empty } => {}
        other => panic!("{other:?}"),
    }
}
