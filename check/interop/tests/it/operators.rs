//! What operators set with the stock `ceph` stays, and what cannot work is reported.

use nacre_interop::{Cluster, wait_until};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(30);

/// Where each OSD is, by `ceph osd tree`.
fn places(c: &Cluster) -> Vec<String> {
    let found =
        (0..3).map(|osd| c.json(&format!("ceph osd find {osd}")).unwrap()["crush_location"].to_string());
    found.collect()
}

#[test]
fn osd_restart_changes_neither_its_place_nor_its_reweight() {
    let c = Cluster::up_with(&["--processes"]).unwrap();
    c.run("ceph osd pool create p 8").unwrap();
    c.wait_clean().unwrap();
    for line in [
        "ceph osd crush add-bucket left rack",
        "ceph osd crush move left root=default",
        "ceph osd crush move osd.0 rack=left",
        "ceph osd crush add-bucket elsewhere host",
        "ceph osd crush move elsewhere rack=left",
        "ceph osd crush move osd.1 host=elsewhere",
        "ceph osd reweight 2 0.5",
        "ceph osd out 2",
        "ceph osd in 2",
    ] {
        c.run(line).unwrap();
    }
    let before = places(&c);
    assert!(before[0].contains("left") && before[1].contains("elsewhere"), "{before:?}");
    c.wait_clean().unwrap();
    let crush = c.json("ceph osd crush dump").unwrap();
    for osd in ["osd.0", "osd.1", "osd.2"] {
        c.run(&format!("ceph osd stop {osd}")).unwrap();
        let is_gone = || Ok(!c.daemons()?.contains(&osd.to_string()));
        wait_until("the OSD to stop", SOON, is_gone).unwrap();
        c.start(osd).unwrap();
        let is_up = || Ok(c.json("ceph status")?["osdmap"]["num_up_osds"] == 3);
        wait_until("the OSD to be up", SOON, is_up).unwrap();
    }
    assert_eq!(places(&c), before);
    assert_eq!(c.json("ceph osd crush dump").unwrap(), crush, "nothing moves");
    let tree = c.json("ceph osd tree").unwrap();
    let two = tree["nodes"].as_array().unwrap().iter().find(|node| node["id"] == 2).unwrap();
    assert_eq!(two["reweight"], 0.5);
}

#[test]
fn pool_that_cannot_be_placed_is_a_health_warning_with_its_cure() {
    let c = Cluster::up().unwrap();
    c.run("ceph config set mon mon_pg_stuck_threshold 5").unwrap();
    c.run("ceph osd crush rule create-replicated dc default datacenter").unwrap();
    c.run("ceph osd pool create lost 8 8 replicated dc").unwrap();
    let detail = c.run("ceph health detail").unwrap();
    let why = "pool 'lost' has size 3, and its CRUSH rule 'dc' can choose no OSD: below 'default' no datacenter has \
               OSDs that are in";
    assert!(detail.contains("POOL_NOT_PLACEABLE") && detail.contains(why), "{detail}");
    let unavailable = "Reduced data availability: 8 pgs inactive";
    wait_until("a warning", SOON, || Ok(c.run("ceph health")?.contains(unavailable))).unwrap();
    let detail = c.run("ceph health detail").unwrap();
    assert!(detail.contains(", current state unknown, last acting []"), "{detail}");

    c.run("ceph osd crush rule create-replicated osds default osd").unwrap();
    c.run("ceph osd pool set lost crush_rule osds").unwrap();
    c.wait_clean().unwrap();
    c.run("rados -p lost put a /etc/os-release").unwrap();
    wait_until("no warning", SOON, || Ok(!c.run("ceph health")?.contains("availability"))).unwrap();

    // Data is served where it is.
    c.run("ceph osd pool set lost crush_rule dc").unwrap();
    c.run("rados -p lost put a /etc/os-release").unwrap();
    assert!(c.run("ceph health detail").unwrap().contains(why));
}

#[test]
fn pool_with_the_flag_eio_fails_requests_of_stock_clients() {
    let c = Cluster::up().unwrap();
    c.run("ceph osd pool create p 8").unwrap();
    c.run("rados -p p put a /etc/os-release").unwrap();
    c.run("ceph osd pool set p eio true").unwrap();
    let said = c.try_run("rados -p p get a -").unwrap();
    assert!(String::from_utf8_lossy(&said.stderr).contains("(5) Input/output error"), "{said:?}");
    c.run("ceph osd pool set p eio false").unwrap();
    c.run("rados -p p get a -").unwrap();
    let said = c.try_run("ceph tell osd.0 bench 12288001 4096").unwrap();
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains("Error EINVAL: 'count' values greater than 12288000"), "{said}");
    let done = c.json("ceph tell osd.0 bench 33554432 8388608").unwrap();
    assert_eq!(done["bytes_written"], 33_554_432);
}
