//! Where OSDs are in the CRUSH map when they start again.

use super::placement::{in_two_racks, move_to};
use super::*;

fn parent(t: &TestMon, osd: i32) -> String {
    t.map().crush.location(osd)[0].1.clone()
}

#[test]
fn osd_restart_keeps_crush_location() {
    let mut t = in_two_racks();
    // Beside racks: another host's bucket, which this OSD does not run on.
    t.run(json!({ "prefix": "osd crush add-bucket", "name": "other", "type": "host" }));
    move_to(&mut t, "other", "root=default");
    move_to(&mut t, "osd.3", "host=other");
    let before = t.map().crush.clone();
    for osd in 0..4 {
        t.run(json!({ "prefix": "osd down", "ids": [osd.to_string()] }));
        t.boot(osd, 6950 + osd as u16, 2);
    }
    assert_eq!(t.map().crush, before);
    assert_eq!([0, 1, 2, 3].map(|osd| parent(&t, osd)), ["left", "left", "right", "other"]);
}

fn boot_on(t: &mut TestMon, osd: i32, nonce: u32, host: &str) {
    let conn = t.open(EntityType::Osd, osd.into(), addr(6950 + osd as u16, nonce));
    let DaemonMsg::Boot(boot) = boot(osd, 6950 + osd as u16, nonce) else { unreachable!() };
    t.send(conn, DaemonMsg::Boot(OsdBoot { host: host.to_string(), ..boot }));
}

#[test]
fn disk_that_moves_to_another_host_takes_its_osd_along() {
    let (mut t, _) = TestMon::with_osds(2);
    move_to(&mut t, "osd.1", "rack=r");
    for osd in 0..2 {
        t.run(json!({ "prefix": "osd down", "ids": [osd.to_string()] }));
        boot_on(&mut t, osd, 2, "vm2");
    }
    assert_eq!([0, 1].map(|osd| parent(&t, osd)), ["vm2", "r"]);
}

#[test]
fn options_of_a_single_osd_say_where_it_starts() {
    let (mut t, _) = TestMon::with_osds(1);
    let set = |t: &mut TestMon, who: &str, name: &str, value: &str| {
        t.run(json!({ "prefix": "config set", "who": who, "name": name, "value": value }));
    };
    set(&mut t, "osd.1", "crush_location", "root=default rack=r host=h");
    set(&mut t, "osd", "osd_crush_initial_weight", "0");
    set(&mut t, "osd.2", "osd_crush_update_on_start", "false");
    for osd in 1..3 {
        t.boot(osd, 6950 + osd as u16, 1);
    }
    let place: Vec<String> = t.map().crush.location(1).into_iter().map(|(_, name)| name).collect();
    assert_eq!(place, ["h", "r", "default"]);
    assert_eq!(t.map().crush.item_weight(1), Some(0));
    assert_eq!(t.map().crush.location(2), []);
}

/// The error was dropped, and the OSD was nowhere.
#[test]
fn location_of_an_unknown_kind_is_said_in_the_log() {
    let (mut t, _) = TestMon::with_osds(1);
    let set =
        json!({ "prefix": "config set", "who": "osd.1", "name": "crush_location", "value": "cupboard=c" });
    t.run(set);
    t.boot(1, 6951, 1);
    assert_eq!(t.map().crush.location(1), []);
    let lines = t.run(json!({ "prefix": "log last" }));
    assert!(lines.contains("osd.1 is not placed at cupboard=c: "), "{lines}");
}
