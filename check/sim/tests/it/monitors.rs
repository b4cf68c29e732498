//! Monitors that join and leave.

use nacre_sim::{Cluster, Seed};
use serde_json::{Value, json};
use std::time::Duration;

/// One more monitor joins, and `old` leaves for good.
fn replace(c: &mut Cluster, old: &str) {
    let add = c.add_mon();
    c.command(&add);
    c.wait_monitors().unwrap();
    c.command(&json!({ "prefix": "mon rm", "name": old }));
    c.run_for(Duration::from_secs(2));
    c.wait_monitors().unwrap();
}

/// Found by the simulator: the OSD knew no other monitor, and the removed ones told it nothing.
#[test]
fn an_osd_that_was_paused_while_all_monitors_were_replaced_finds_the_new_ones() {
    let mut c = super::three_osds(31);
    let pool = c.pool("p", 4);
    let paused = c.osds[2];
    c.world.pause(paused);
    replace(&mut c, "a");
    replace(&mut c, "b");
    c.write(pool, "x", "while it was paused");
    c.world.resume(paused);
    c.wait_clean().unwrap();
    c.check_replicas(None).unwrap();
}

/// Found by seed 0x1f, as soon as daemons had to authenticate: a monitor that was removed and restarted had
/// no global ids, so it admitted no OSD that knew no other monitor.
#[test]
fn restarted_removed_monitor_sends_the_new_monitor_map() {
    let mut c = super::three_osds(34);
    let pool = c.pool("p", 4);
    let paused = c.osds[2];
    c.world.pause(paused);
    replace(&mut c, "a");
    let removed = c.mons[0];
    c.world.kill(removed, false);
    c.start(removed);
    c.write(pool, "x", "while it was paused");
    c.world.resume(paused);
    c.wait_clean().unwrap();
    c.check_replicas(None).unwrap();
}

#[test]
fn a_monitor_that_was_paused_while_it_was_removed_serves_no_requests_afterwards() {
    let mut c = Cluster::new(Seed(32), 3, 3, 1, false).up();
    let removed = c.mons[1];
    c.world.pause(removed);
    c.command(&json!({ "prefix": "mon rm", "name": "b" }));
    c.wait_monitors().unwrap();
    let term = |c: &Cluster| c.mons.iter().filter_map(|id| c.term(*id)).max();
    let before = term(&c);
    c.world.resume(removed);
    c.run_for(Duration::from_secs(30));
    assert_eq!(term(&c), before, "it asked for an election");
    c.command(&json!({ "prefix": "osd set", "key": "noout" }));
    c.wait_monitors().unwrap();
}

/// Two are expected, and the one with the higher rank joins first.
#[test]
fn monitors_join_in_any_order() {
    let mut c = super::three_osds(33);
    let first = c.add_mon();
    c.world.kill(c.mons[1], false);
    let second = c.add_mon();
    c.command(&second);
    c.wait_monitors().unwrap();
    c.start(c.mons[1]);
    c.command(&first);
    c.wait_monitors().unwrap();
    assert_eq!(c.mons.len(), 3);
}

/// Found by pulling a host's cable: its monitor was in the quorum for two minutes, until its sessions ended.
#[test]
fn monitor_that_does_not_answer_is_named_until_it_does() {
    let mut c = Cluster::new(Seed(35), 3, 3, 1, false).up();
    let ask = |c: &mut Cluster, prefix: &str| {
        let text = c.command(&json!({ "prefix": prefix, "format": "json", "detail": "detail" }));
        serde_json::from_str::<Value>(&text).expect("it was asked for JSON")
    };
    let leader = ask(&mut c, "quorum_status")["quorum_leader_name"].clone();
    let hung = if leader == "c" { 1 } else { 2 };
    c.world.pause(c.mons[hung]);
    c.run_for(Duration::from_secs(8));
    let health = ask(&mut c, "health");
    let named = health["checks"]["MON_DOWN"]["detail"][0]["message"].to_string();
    assert!(named.contains(["mon.a", "mon.b", "mon.c"][hung]), "{health}");
    c.world.resume(c.mons[hung]);
    c.wait_monitors().unwrap();
    // One that is heard, and hears nothing.
    let leader = ["a", "b", "c"].iter().position(|name| leader == *name).expect("one of the three");
    c.world.partition_one_way(c.mons[leader], c.mons[hung]);
    c.run_for(Duration::from_secs(8));
    let health = ask(&mut c, "health");
    assert!(health["checks"]["MON_DOWN"].is_object(), "{health}");
    c.world.heal_all();
    c.wait_monitors().unwrap();
}
