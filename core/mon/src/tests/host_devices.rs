//! Devices of hosts: as agents report them, and what is said when they are gone.

use super::hosts::{boot_on, hosts_in_racks, report};
use super::*;

fn health(t: &mut TestMon) -> Value {
    t.json(json!({ "prefix": "health", "detail": "detail" }))["checks"].clone()
}

fn uuid(n: u8) -> String {
    let two = format!("{n:02x}").repeat(2);
    format!("{two}{two}-{two}-{two}-{two}-{two}{two}{two}")
}

fn devices(osd: i32, more: Value) -> String {
    let mut own = json!({
        "path": "/dev/vdb", "type": "disk", "size": 6_u64 << 30, "rotational": true, "model": "Big One",
        "serial": "S1", "osd": osd, "store": uuid(osd as u8 + 1), "available": false,
        "rejected_reasons": ["Has Nacre device label"],
    });
    more.as_object().unwrap().iter().for_each(|(key, value)| own[key] = value.clone());
    let blank = json!({
        "path": "/dev/vdc", "type": "disk", "size": 8_u64 << 30, "rotational": false, "available": true,
        "rejected_reasons": [],
    });
    json!({ "devices": json!([own, blank]).to_string() }).to_string()
}

#[test]
fn devices_of_hosts_are_listed_as_the_orchestrator_lists_them() {
    let mut t = TestMon::fresh();
    hosts_in_racks(&mut t, &["", ""]);
    for (name, osd) in [("h0", 0), ("h1", 1)] {
        assert_eq!(report(&mut t, name, devices(osd, json!({})).leak(), "").0, 0);
    }
    let ls = t.json(json!({ "prefix": "host device ls", "hostname": ["h1"] }));
    let rows: Vec<(&Value, &Value, &Value)> =
        ls.as_array().unwrap().iter().map(|row| (&row["host"], &row["path"], &row["holds"])).collect();
    assert_eq!(
        rows,
        [(&json!("h1"), &json!("/dev/vdb"), &json!("osd.1")), (&json!("h1"), &json!("/dev/vdc"), &json!(""))]
    );
    let orch = t.json(json!({ "prefix": "orch device ls" }));
    let device = &orch[0]["devices"][0];
    assert_eq!((&orch[0]["name"], &orch[0]["addr"]), (&json!("h0"), &json!("10.0.0.1")));
    for (key, expected) in [
        ("path", json!("/dev/vdb")),
        ("available", json!(false)),
        ("rejected_reasons", json!(["Has Nacre device label"])),
        ("ceph_device", json!(true)),
        ("human_readable_type", json!("hdd")),
        ("device_id", json!("Big_One_S1")),
        ("lvs", json!([])),
    ] {
        assert_eq!(device[key], expected, "{key}");
    }
    assert_eq!(orch[1]["devices"][1]["available"], true);
    let table = t.run(json!({ "prefix": "orch device ls", "hostname": ["h0"] }));
    assert!(table.lines().count() == 3 && table.contains("/dev/vdc") && !table.contains("h1"), "{table}");
    let show = t.json(json!({ "prefix": "host show", "name": "h0" }));
    assert_eq!((&show["devices"][1]["path"], &show["facts"]), (&json!("/dev/vdc"), &json!({})));
}

#[test]
fn disk_that_was_pulled_is_named_with_its_host_until_the_osd_is_up_again() {
    let mut t = TestMon::fresh();
    let osds = hosts_in_racks(&mut t, &["", ""]);
    let missing = devices(1, json!({ "missing": true })).leak();
    assert_eq!(report(&mut t, "h1", missing, "").0, 0);
    assert_eq!(health(&mut t)["DEVICE_MISSING"], Value::Null, "the OSD still runs");
    t.event(Event::Closed { conn: osds[1], why: Closed::Reset });
    t.run(json!({ "prefix": "osd down", "ids": ["1"] }));
    let check = health(&mut t)["DEVICE_MISSING"].clone();
    assert_eq!(check["summary"]["message"], "1 device of OSDs missing");
    assert_eq!(check["detail"][0]["message"], "host h1 has no /dev/vdb any more, which osd.1 is on");
    assert_eq!(report(&mut t, "h1", "", "").2["moved"], json!([]));
    boot_on(&mut t, 1, "h0");
    assert_eq!(health(&mut t)["DEVICE_MISSING"], Value::Null);
    // The host where it was forgets it.
    assert_eq!(report(&mut t, "h1", "", "").2["moved"], json!([1]));
}

#[test]
fn copies_of_a_disk_are_a_warning() {
    let mut t = TestMon::fresh();
    hosts_in_racks(&mut t, &["", ""]);
    assert_eq!(report(&mut t, "h1", devices(1, json!({ "duplicate": true })).leak(), "").0, 0);
    let check = health(&mut t)["DEVICE_DUPLICATE"].clone();
    let text = "/dev/vdb of host h1 has the label of another device of that host";
    assert_eq!(check["detail"][0]["message"], text);
}

#[test]
fn disk_is_not_given_to_a_second_host_while_the_first_one_reports_it() {
    let mut t = TestMon::fresh();
    let osds = hosts_in_racks(&mut t, &["", ""]);
    t.run(json!({ "prefix": "auth get-or-create", "entity": "osd.1", "caps": ["osd", "allow *"] }));
    assert_eq!(report(&mut t, "h1", devices(1, json!({})).leak(), "").0, 0);
    t.event(Event::Closed { conn: osds[1], why: Closed::Reset });
    t.run(json!({ "prefix": "osd down", "ids": ["1"] }));
    let ask = json!({ "prefix": "host osd", "name": "h0", "uuid": uuid(2) });
    let (code, said, _) = t.command(ask.clone());
    assert!(code == -16 && said.contains("host h1 has the disk of osd.1, too"), "{said}");
    assert_eq!(report(&mut t, "h1", devices(1, json!({ "missing": true })).leak(), "").0, 0);
    // Whatever knows the uuid can ask for the key.
    let (code, said, _) = t.command(ask.clone());
    assert!(code == -11 && said.contains("h0 did not report the disk of osd.1"), "{said}");
    assert_eq!(report(&mut t, "h0", devices(1, json!({})).leak(), "").0, 0);
    assert_eq!(t.json(ask.clone())["osdid"], 1);
    // A host that is off has no disk that others see.
    assert_eq!(report(&mut t, "h1", devices(1, json!({})).leak(), "").0, 0);
    assert_eq!(t.command(ask.clone()).0, -16);
    t.pass(Duration::from_secs(300));
    assert_eq!(t.json(ask.clone())["osdid"], 1);
    // Unless it is off on purpose, and comes back.
    t.run(json!({ "prefix": "host maintenance enter", "hostname": "h1" }));
    t.pass(Duration::from_secs(300));
    assert_eq!(t.command(ask).0, -16);
}
