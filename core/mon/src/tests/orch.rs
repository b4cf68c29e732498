//! What the orchestrator's commands have hosts do.

use super::hosts::{boot_on, hosts_in_racks, report};
use super::*;
use nacre_proto::types::AuthName;

fn orders(t: &mut TestMon, host: &str, done: u64) -> Value {
    let proved = Proved {
        name: AuthName::parse(&format!("client.host.{host}")).unwrap(),
        service: 1,
        caps: String::new(),
        global_id: 4200,
    };
    let conn = t.open_as(EntityType::Client, 4200, addr(0, 78), Some(proved));
    let words = json!({ "prefix": "host report", "name": host, "done": done });
    let message = MonCommand {
        version: PaxosVersion(0),
        fsid: [9; 16],
        cmd: vec![words.to_string()],
        input: Bytes::new(),
    };
    match t.ask(conn, message) {
        Message::MonCommandAck(ack) => serde_json::from_slice(&ack.output).unwrap(),
        other => panic!("{other:?}"),
    }
}

fn has(t: &mut TestMon, host: &str, daemons: &[&str], devices: Value) {
    let daemons: Vec<Value> =
        daemons.iter().map(|name| json!({ "name": name, "state": "running" })).collect();
    let facts = json!({ "daemons": json!(daemons).to_string(), "devices": devices.to_string() });
    assert_eq!(report(t, host, facts.to_string().leak(), "").0, 0);
}

#[test]
fn order_waits_for_the_agent_and_is_given_until_it_is_done() {
    let mut t = TestMon::fresh();
    hosts_in_racks(&mut t, &["", ""]);
    has(&mut t, "h0", &["osd.0", "mon.h0"], json!([]));
    let restart = json!({ "prefix": "orch daemon", "action": "restart", "name": "osd.0" });
    assert_eq!(t.run(restart.clone()), "Scheduled to restart osd.0 on host 'h0'\n");
    // The command came twice.
    t.run(restart);
    t.run(json!({ "prefix": "orch host rescan", "hostname": "h0" }));
    t = t.restart();
    let expected = json!([
        { "id": 1, "action": "restart", "target": "osd.0" }, { "id": 2, "action": "rescan", "target": "" },
    ]);
    assert_eq!(orders(&mut t, "h0", 0)["orders"], expected);
    assert_eq!(orders(&mut t, "h1", 0)["orders"], json!([]));
    assert_eq!(orders(&mut t, "h0", 1)["orders"].as_array().unwrap().len(), 1);
    assert_eq!(orders(&mut t, "h0", 2)["orders"], json!([]));
    t.run(json!({ "prefix": "orch daemon redeploy", "name": "osd.0" }));
    assert_eq!(orders(&mut t, "h0", 2)["orders"][0]["id"], 3, "numbers are not used again");
    for (command, code, text) in [
        (json!({ "prefix": "orch daemon", "action": "stop", "name": "osd.7" }), -2, "no host has osd.7"),
        (json!({ "prefix": "orch daemon", "action": "stop", "name": "osd" }), -22, "not a valid daemon name"),
        (json!({ "prefix": "orch", "action": "restart", "service_name": "osd" }), -95, "one after the other"),
        (json!({ "prefix": "orch daemon rm", "names": ["osd.0"] }), -95, "ceph orch osd rm"),
        (json!({ "prefix": "orch host set-addr", "hostname": "h0", "addr": "10.0.0.9" }), -95, "nacre leave"),
        (json!({ "prefix": "orch host rescan", "hostname": "h9" }), -2, "no host h9"),
    ] {
        let (have, said, _) = t.command(command.clone());
        assert!(have == code && said.contains(text), "{command}: {have} {said}");
    }
}

#[test]
fn order_for_a_host_that_was_away_expires_unless_it_starts_a_daemon() {
    let mut t = TestMon::fresh();
    hosts_in_racks(&mut t, &[""]);
    has(&mut t, "h0", &["osd.0"], json!([]));
    for action in ["stop", "start"] {
        t.run(json!({ "prefix": "orch daemon", "action": action, "name": "osd.0" }));
    }
    assert_eq!(orders(&mut t, "h0", 0)["orders"].as_array().unwrap().len(), 2);
    t.pass(Duration::from_secs(601));
    let left = orders(&mut t, "h0", 0)["orders"].clone();
    assert_eq!((left[0]["id"].clone(), left.as_array().unwrap().len()), (json!(2), 1));
    // What expired does not count as the same.
    t.run(json!({ "prefix": "orch daemon", "action": "stop", "name": "osd.0" }));
    assert_eq!(orders(&mut t, "h0", 0)["orders"][1]["id"], 3);
}

#[test]
fn host_of_an_osd_is_where_it_runs_whatever_agents_say() {
    let mut t = TestMon::fresh();
    hosts_in_racks(&mut t, &["", ""]);
    // Its disk was moved; or the host lies.
    has(&mut t, "h0", &["osd.0", "osd.1"], json!([]));
    has(&mut t, "h1", &["osd.1"], json!([]));
    let restart = json!({ "prefix": "orch daemon", "action": "restart", "name": "osd.1" });
    assert_eq!(t.run(restart), "Scheduled to restart osd.1 on host 'h1'\n");
    t.run(json!({ "prefix": "orch osd rm", "osd_id": ["1"] }));
    assert_eq!(t.json(json!({ "prefix": "orch osd rm status" }))[0]["hostname"], "h1");
}

#[test]
fn daemon_that_data_needs_is_not_stopped() {
    let mut t = TestMon::fresh();
    let osds = hosts_in_racks(&mut t, &["", "", ""]);
    t.run(json!({ "prefix": "osd pool create", "pool": "p", "pg_num": 8, "size": 2, "min_size": 2 }));
    t.run(json!({ "prefix": "osd pool set", "pool": "p", "var": "min_size", "val": "2" }));
    let pool = t.map().pool_by_name("p").unwrap();
    t.activate(&osds, pool);
    t.report(&osds, pool);
    has(&mut t, "h0", &["osd.0"], json!([]));
    let (code, said, _) = t.command(json!({ "prefix": "orch daemon", "action": "stop", "name": "osd.0" }));
    assert!(code == -16 && said.contains("unsafe to stop") && said.contains("`nacre stop osd.0`"), "{said}");
}

#[test]
fn only_devices_without_an_osd_are_erased_or_become_one() {
    let mut t = TestMon::fresh();
    hosts_in_racks(&mut t, &[""]);
    let device = |path: &str, more: Value| {
        let mut device = json!({ "path": path, "available": false, "rejected_reasons": ["Has data"] });
        more.as_object().unwrap().iter().for_each(|(key, value)| device[key] = value.clone());
        device
    };
    let devices = json!([
        device("/dev/a", json!({ "store": "01010101-0101-0101-0101-010101010101" })),
        device("/dev/b", json!({ "rejected_reasons": ["locked"] })),
        device("/dev/c", json!({ "serial": "S3" })),
        device("/dev/d", json!({ "available": true, "rejected_reasons": [] })),
        device("/dev/e", json!({ "available": true, "rejected_reasons": [] })),
    ]);
    has(&mut t, "h0", &["osd.0"], devices);
    let zap = |path: &str, force: bool| json!({ "prefix": "orch device zap", "hostname": "h0", "path": path, "force": force });
    for (command, code, text) in [
        (zap("/dev/c", false), -22, "--force"),
        (zap("/dev/a", true), -16, "in use by osd.0"),
        (zap("/dev/b", true), -16, "is locked"),
        (zap("/dev/x", true), -2, "has no /dev/x"),
        (json!({ "prefix": "orch daemon add osd", "svc_arg": "h0:/dev/c" }), -16, "not available: Has data"),
        (json!({ "prefix": "orch daemon add osd", "svc_arg": "h0" }), -22, "Usage"),
        (
            json!({ "prefix": "orch daemon add osd", "svc_arg": "h0:wal_devices=/dev/e" }),
            -22,
            "no data_devices",
        ),
        (
            json!({ "prefix": "orch daemon add osd", "svc_arg": "h0:/dev/d,osds_per_device=2" }),
            -22,
            "not known",
        ),
        (json!({ "prefix": "orch daemon add osd", "svc_arg": "h0:/dev/d," }), -22, "empty path"),
    ] {
        let (have, said, _) = t.command(command.clone());
        assert!(have == code && said.contains(text), "{command}: {have} {said}");
    }
    t.run(zap("/dev/c", true));
    t.run(json!({ "prefix": "orch daemon add osd", "svc_arg": "h0:/dev/d" }));
    let given = orders(&mut t, "h0", 0)["orders"].clone();
    let known = |at: usize| (given[at]["action"].clone(), given[at]["target"].clone());
    assert_eq!(known(0), (json!("zap"), json!("/dev/c")));
    assert_eq!(known(1), (json!("add-osd"), json!("/dev/d")));
    // Options are a part of the order, which is given once.
    let with = "h0:data_devices=/dev/d,/dev/e,wal_devices=/dev/f,/dev/g,no_device_check=true";
    t.run(json!({ "prefix": "orch daemon add osd", "svc_arg": with }));
    let all = orders(&mut t, "h0", 0)["orders"].clone();
    assert_eq!((all.as_array().unwrap().len(), &all[2]["target"]), (3, &json!("/dev/e")));
    let action = r#"add-osd {"wal":["/dev/f","/dev/g"],"wal_size":null,"no_check":true}"#;
    assert_eq!(all[2]["action"], json!(action));
    // The agent compares it with what is there by then.
    assert_eq!(given[0]["seen"]["rejected_reasons"], json!(["Has data"]));
    assert_eq!((&given[0]["seen"]["store"], &given[0]["seen"]["serial"]), (&Value::Null, &json!("S3")));
}

#[test]
fn osd_is_emptied_stopped_removed_and_deleted_on_its_host() {
    let mut t = TestMon::fresh();
    let osds = hosts_in_racks(&mut t, &["", "", "", ""]);
    let pool = t.create_pool("p", 8);
    t.activate(&osds, pool);
    t.report(&osds, pool);
    has(&mut t, "h1", &["osd.1"], json!([]));
    let status = |t: &mut TestMon| t.json(json!({ "prefix": "orch osd rm status" }));
    assert_eq!(status(&mut t), json!([]));
    t.run(json!({ "prefix": "orch osd rm", "osd_id": ["1"], "zap": true }));
    assert!(t.map().is_out(OsdId(1)));
    let row = status(&mut t)[0].clone();
    assert_eq!(
        (&row["osd_id"], &row["hostname"], &row["zap"], &row["draining"]),
        (&json!(1), &json!("h1"), &json!(true), &json!(true))
    );
    // The administrator changes his mind, and again.
    t.run(json!({ "prefix": "orch osd rm stop", "osd_id": ["1"] }));
    assert!(t.map().is_in(OsdId(1)) && status(&mut t) == json!([]));
    t.run(json!({ "prefix": "orch osd rm", "osd_id": ["1"], "zap": true }));
    t = t.restart();
    assert_eq!(orders(&mut t, "h1", 9)["remove"], json!([]), "it may hold what no other has");
    let osds: Vec<ConnId> = (0..4).map(|osd| boot_on(&mut t, osd, &format!("h{osd}"))).collect();
    t.run(json!({ "prefix": "osd pool rm", "pool": "p", "pool2": "p", "yes_i_really_really_mean_it": true }));
    assert_eq!(orders(&mut t, "h1", 9)["remove"], json!([{ "osd": 1, "stage": "stop", "zap": true }]));
    t.event(Event::Closed { conn: osds[1], why: Closed::Reset });
    t.run(json!({ "prefix": "osd down", "ids": ["1"] }));
    orders(&mut t, "h1", 9);
    assert!(!t.map().exists(OsdId(1)));
    assert_eq!(orders(&mut t, "h1", 9)["remove"], json!([{ "osd": 1, "stage": "delete", "zap": true }]));
    assert_eq!(status(&mut t)[0]["draining"], false);
    has(&mut t, "h1", &[], json!([]));
    orders(&mut t, "h1", 9);
    assert_eq!(status(&mut t), json!([]));
    let (code, said, _) = t.command(json!({ "prefix": "orch osd rm", "osd_id": ["1"] }));
    assert!(code == -2 && said.contains("Unable to find OSD: 1"), "{said}");
}
