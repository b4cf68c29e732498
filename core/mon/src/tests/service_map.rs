//! Services that register with the manager, such as `rbd-mirror`.

use super::*;

impl TestMon {
    /// A mirroring daemon introduces itself.
    fn mirror(&mut self, gid: i64, host: &str) -> ConnId {
        let conn = self.open(EntityType::Client, gid, addr(0, gid as u32));
        self.send(conn, introduction(gid, host));
        let got = self.received(conn);
        assert!(matches!(got[..], [Message::MgrConfigure(_)]), "{got:?}");
        conn
    }
    fn services(&mut self) -> Value {
        self.json(json!({ "prefix": "service dump" }))["services"].clone()
    }
}

fn introduction(gid: i64, host: &str) -> MgrOpen {
    let metadata = [("hostname", host), ("ceph_version", "ceph version 16"), ("id", "admin")];
    let metadata = metadata.map(|(key, value)| (key.to_string(), value.to_string())).into();
    MgrOpen {
        daemon_name: gid.to_string(),
        service_name: "rbd-mirror".to_string(),
        service: Some(MgrService { metadata, status: BTreeMap::new() }),
        config: Bytes::new(),
        config_defaults: Bytes::new(),
    }
}

fn report(gid: i64, status: Option<&str>) -> MgrReport {
    MgrReport {
        daemon_name: gid.to_string(),
        declared: Vec::new(),
        values: Bytes::new(),
        undeclared: Vec::new(),
        service_name: "rbd-mirror".to_string(),
        status: status.map(|text| [("json".to_string(), text.to_string())].into()),
        rest: Bytes::new(),
    }
}

#[test]
fn registered_services_are_shown_with_their_metadata() {
    let (mut t, _) = TestMon::with_osds(1);
    assert_eq!(t.services(), json!({}));
    let conn = t.mirror(4201, "one");
    t.mirror(4202, "two");
    t.send(conn, report(4201, Some("{}")));
    let services = t.services();
    let daemon = &services["rbd-mirror"]["daemons"]["4201"];
    assert_eq!(services["rbd-mirror"]["daemons"]["summary"], "");
    assert_eq!(
        (&daemon["gid"], &daemon["addr"], &daemon["metadata"]["hostname"]),
        (&json!(4201), &json!("127.0.0.1:0/4201"), &json!("one"))
    );
    let status = t.json(json!({ "prefix": "service status" }));
    assert_eq!(status["rbd-mirror"]["4201"]["status"], json!({ "json": "{}" }));
    let versions = t.json(json!({ "prefix": "versions" }));
    assert_eq!(versions["rbd-mirror"], json!({ "ceph version 16": 2 }));
    assert_eq!(versions["overall"]["ceph version 16"], 2);
    let status = t.run(json!({ "prefix": "status" }));
    let lines: Vec<&str> = status.lines().filter(|line| line.starts_with("    ")).collect();
    assert!(lines.contains(&"    rbd-mirror: 2 daemons active (2 hosts)"), "{status}");
    assert!(lines.iter().any(|line| line.starts_with("    osd:        1 osds: 1 up")), "{status}");
}

#[test]
fn service_ends_on_goodbye_or_timeout() {
    let mut t = TestMon::fresh();
    let (first, second) = (t.mirror(4201, "one"), t.mirror(4202, "one"));
    let close = MgrClose { daemon_name: "4201".to_string(), service_name: "rbd-mirror".to_string() };
    assert_eq!(t.ask(first, close.clone()), close.into());
    assert_eq!(t.services()["rbd-mirror"]["daemons"].as_object().unwrap().len(), 2);
    for _ in 0..20 {
        t.pass(Duration::from_secs(5));
        t.send(second, report(4202, None));
    }
    assert_ne!(t.services(), json!({}));
    t.pass(Duration::from_secs(62));
    assert_eq!(t.services(), json!({}));
    // It was merely stopped for a while: it has to begin anew.
    t.send(second, report(4202, None));
    assert_eq!(t.hung_up, [second]);
}

/// A daemon that lost its session is the same one afterwards, and changes nothing.
#[test]
fn a_service_that_comes_back_is_no_news() {
    let mut t = TestMon::fresh();
    t.mirror(4201, "one");
    let before = t.json(json!({ "prefix": "service dump" }));
    t.pass(Duration::from_secs(3));
    t.mirror(4201, "one");
    assert_eq!(t.json(json!({ "prefix": "service dump" })), before);
}

#[test]
fn service_metadata_is_limited_and_daemon_names_are_refused() {
    let (mut t, _) = TestMon::with_osds(1);
    let conn = t.mirror(4201, "one");
    t.send(conn, report(4201, Some("short")));
    t.send(conn, report(4201, Some(&"x".repeat(70_000))));
    let status = t.json(json!({ "prefix": "service status" }));
    assert_eq!(status["rbd-mirror"]["4201"]["status"], json!({ "json": "short" }));
    t.mirror(4202, &"x".repeat(70_000));
    let conn = t.open(EntityType::Client, 4203, addr(0, 4203));
    t.send(conn, MgrOpen { service_name: "osd".to_string(), ..introduction(4203, "one") });
    assert_eq!(t.services().as_object().unwrap().keys().collect::<Vec<_>>(), ["rbd-mirror"]);
    assert_eq!(t.services()["rbd-mirror"]["daemons"].as_object().unwrap().len(), 2, "one and the summary");
    assert!(t.json(json!({ "prefix": "versions" }))["osd"]["ceph version 16"].is_null());
}
