//! The manager that the leader is, those that take over, and their modules.

use super::monitors::Group;
use super::*;

#[test]
fn other_monitors_of_the_quorum_are_standby_managers() {
    let mut group = Group::of(3);
    group.pass(5000);
    let leader = group.leader();
    let t = &mut group.mons[leader];
    let name = |n: usize| ["a", "b", "c"][n];
    let others: Vec<&str> = (0..3).filter(|n| *n != leader).map(name).collect();
    let dump = t.json(json!({ "prefix": "mgr dump" }));
    let standbys = dump["standbys"].as_array().unwrap();
    assert_eq!(standbys.iter().map(|row| row["name"].as_str().unwrap()).collect::<Vec<_>>(), others);
    assert!(dump["always_on_modules"]["pacific"].as_array().unwrap().contains(&json!("balancer")), "{dump}");
    assert_eq!(t.json(json!({ "prefix": "mgr stat" }))["num_standby"], 2);
    assert_eq!(t.json(json!({ "prefix": "status" }))["mgrmap"]["num_standbys"], 2);
    let status = t.run(json!({ "prefix": "status" }));
    assert!(status.contains(&format!("), standbys: {}\n", others.join(", "))), "{status}");
}

/// In the words of Ceph 16.2.15.
#[test]
fn modules_are_enabled_and_disabled_as_in_ceph() {
    let mut t = TestMon::fresh();
    let mut say = |prefix: &str, module: &str, force: bool| {
        let mut command = json!({ "prefix": prefix, "module": module });
        if force {
            command["force"] = json!("--force");
        }
        let (code, said, _) = t.command(command);
        (code, said)
    };
    let (enable, disable) = ("mgr module enable", "mgr module disable");
    let told = |text: &str| (0, text.to_string());
    assert_eq!(say(enable, "balancer", false), told("module 'balancer' is already enabled (always-on)"));
    assert_eq!(
        say(disable, "balancer", false),
        (-22, "module 'balancer' cannot be disabled (always-on)".to_string())
    );
    let unknown = "all mgr daemons do not support module 'nosuch', pass --force to force enablement";
    assert_eq!(say(enable, "nosuch", false), (-2, unknown.to_string()));
    assert_eq!(say(disable, "nosuch", false), told("module 'nosuch' is already disabled"));
    assert_eq!(say(enable, "nosuch", true), told(""));
    assert_eq!(say(enable, "nosuch", false), told("module 'nosuch' is already enabled"));
    assert_eq!(say(enable, &"long".repeat(100), true).0, -22);
    t.pass(Duration::from_secs(2));
    let mut t = t.restart();
    let modules = t.json(json!({ "prefix": "mgr module ls" }));
    assert_eq!(modules["enabled_modules"], json!(["nosuch"]));
    assert!(modules["always_on_modules"].as_array().unwrap().contains(&json!("balancer")));
    t.run(json!({ "prefix": disable, "module": "nosuch" }));
    assert_eq!(t.json(json!({ "prefix": "mgr module ls" }))["enabled_modules"], json!([]));
}

#[test]
fn cache_tiers_are_refused_with_what_to_do_instead() {
    let (mut t, conns) = TestMon::with_osds(3);
    let pool = t.create_pool("p", 8);
    t.activate(&conns, pool);
    for command in [
        json!({ "prefix": "osd tier add", "pool": "p", "tierpool": "p" }),
        json!({ "prefix": "osd tier cache-mode", "pool": "p", "mode": "writeback" }),
        json!({ "prefix": "osd tier set-overlay", "pool": "p", "overlaypool": "p" }),
        json!({ "prefix": "osd tier add-cache", "pool": "p", "tierpool": "p", "size": 10 }),
    ] {
        let (code, said, _) = t.command(command);
        assert!(
            code == -95 && said.starts_with("not in Nacre: cache tiering; ") && said.contains("crush_rule"),
            "{said}"
        );
    }
}

/// Only the monitor that answered was described once.
#[test]
fn monitors_are_described_by_all_of_the_quorum() {
    let now = Now { mono: Time::from_nanos(1 << 40), wall: Utime { sec: 1_800_000_000, nsec: 0 } };
    let mut group = Group::of(3);
    for (n, t) in group.mons.iter_mut().enumerate() {
        let metadata = [("kernel_version".to_string(), format!("6.{n}"))].into();
        let config = MonConfig { host: format!("host{n}"), metadata, ..t.config.clone() };
        *t = TestMon::start_with(config, Omaps::default(), now);
    }
    group.pass(3000);
    let follower = (group.leader() + 1) % 3;
    group.mons[follower].client();
    group.pass(8000);
    let leader = group.leader();
    let t = &mut group.mons[leader];
    let rows = t.json(json!({ "prefix": "mon metadata" }));
    let field = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_string();
    let said = |key: &str| rows.as_array().unwrap().iter().map(|row| field(row, key)).collect::<Vec<_>>();
    assert_eq!(said("hostname"), ["host0", "host1", "host2"]);
    assert_eq!(said("kernel_version"), ["6.0", "6.1", "6.2"]);
    let one = t.json(json!({ "prefix": "mon metadata", "id": "b" }));
    assert_eq!((&one["name"], field(&one, "kernel_version")), (&Value::Null, "6.1".to_string()));
    let version = nacre_command::ceph_version(nacre_command::NACRE_VERSION);
    let versions = t.json(json!({ "prefix": "versions" }));
    assert_eq!((&versions["mon"], &versions["mgr"]), (&json!({ &version: 3 }), &json!({ &version: 3 })));
    let hosts = t.json(json!({ "prefix": "node ls", "type": "mon" }));
    assert_eq!(hosts, json!({ "host0": ["a"], "host1": ["b"], "host2": ["c"] }));
    let features = t.json(json!({ "prefix": "features" }));
    assert_eq!(
        features["mon"],
        json!([{ "features": "0x3f01cfbdfffdffff", "release": "luminous", "num": 3 }])
    );
    assert!(features["client"][0]["num"].as_u64() >= Some(2), "the follower's client is missing: {features}");
    let managers = t.json(json!({ "prefix": "mgr metadata" }));
    let mut hosts: Vec<String> =
        managers.as_array().unwrap().iter().map(|row| field(row, "hostname")).collect();
    hosts.sort();
    assert_eq!(hosts, ["host0", "host1", "host2"]);
    group.kill(if leader == 0 { 1 } else { 0 });
    group.pass(5000);
    let leader = group.leader();
    assert_eq!(group.mons[leader].json(json!({ "prefix": "mon metadata" })).as_array().unwrap().len(), 3);
    assert_eq!(group.mons[leader].json(json!({ "prefix": "mgr stat" }))["num_standby"], 1);
}
