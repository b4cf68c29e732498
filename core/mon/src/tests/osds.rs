//! Boot, failure, activation records.

use super::*;

fn failure(t: &TestMon, target: i32, evidence: FailureEvidence) -> DaemonMsg {
    let map = t.map();
    let target_addrs = map.osds[target as usize].public_addrs.clone();
    DaemonMsg::Failure(OsdFailure { target: OsdId(target), target_addrs, epoch: map.epoch, evidence })
}
const SILENT: FailureEvidence = FailureEvidence::Silent { millis: 1200 };

#[test]
fn an_osd_that_boots_is_up_in_and_placed_below_its_host() {
    let (mut t, conns) = TestMon::with_osds(3);
    let map = t.map();
    assert_eq!(map.up_osds().count(), 3);
    assert!((0..3).all(|osd| map.is_in(OsdId(osd)) && !map.osds[osd as usize].has(osd_state::NEW)));
    let tree = t.json(json!({ "prefix": "osd tree" }));
    let nodes = tree["nodes"].as_array().unwrap();
    assert_eq!(nodes[0]["name"], "default");
    assert_eq!(nodes[1]["name"], "vm");
    assert_eq!((&nodes[2]["name"], &nodes[2]["device_class"]), (&json!("osd.0"), &json!("ssd")));
    assert_eq!(map.crush.item_weight(0), Some(640));
    // And it got a reply.
    let maps = t.received(conns[2]);
    assert!(maps.iter().any(|m| matches!(m, Message::OsdMap(m) if m.newest == map.epoch)), "{maps:?}");
}

#[test]
fn an_osd_with_another_disk_is_refused() {
    let (mut t, _) = TestMon::with_osds(2);
    let conn = t.open(EntityType::Osd, 1, addr(7000, 5));
    let DaemonMsg::Boot(mut other) = boot(1, 7000, 5) else { unreachable!() };
    other.uuid = [99; 16];
    t.send(conn, DaemonMsg::Boot(other));
    assert!(t.hung_up.contains(&conn));
    assert_eq!(t.map().osds[1].public_addrs, addr(6901, 1));
}

#[test]
fn a_restarted_osd_is_seen_down_before_it_is_up_again() {
    let (mut t, _) = TestMon::with_osds(3);
    let before = t.map().epoch;
    t.boot(1, 6950, 2);
    let map = t.map();
    assert_eq!(map.epoch, Epoch(before.0 + 2));
    assert_eq!(
        (map.osds[1].info.down_at, map.osds[1].info.up_from),
        (Epoch(before.0 + 1), Epoch(before.0 + 2))
    );
    assert!(map.is_up(OsdId(1)) && map.osds[1].public_addrs == addr(6950, 2));
    // A repeated boot changes nothing.
    t.boot(1, 6950, 2);
    assert_eq!(t.map().epoch, map.epoch);
}

#[test]
fn one_refused_connection_marks_down_and_silence_needs_two_reporters() {
    let (mut t, conns) = TestMon::with_osds(4);
    let report = failure(&t, 3, FailureEvidence::Refused);
    t.send(conns[0], report);
    t.pass(Duration::from_millis(200));
    assert!(t.map().is_down(OsdId(3)));

    let report = failure(&t, 2, SILENT);
    t.send(conns[0], report.clone());
    t.send(conns[0], report.clone());
    assert!(t.map().is_up(OsdId(2)), "one reporter, twice");
    t.send(conns[1], report);
    // Others may have something to say as well, but not for long.
    assert!(t.map().is_up(OsdId(2)));
    t.pass(Duration::from_millis(200));
    assert!(t.map().is_down(OsdId(2)));
    // With two left, the other one is all there is to ask.
    let report = failure(&t, 1, SILENT);
    t.send(conns[0], report);
    t.pass(Duration::from_millis(200));
    assert!(t.map().is_down(OsdId(1)));
}

#[test]
fn refused_connection_and_ended_session_mark_osd_dead() {
    let (mut t, conns) = TestMon::with_osds(4);
    let life = |t: &TestMon, osd| t.map().osd(OsdId(osd)).unwrap().clone();
    // Others hear of it before we do: no map says that it is down and might be alive, for others would wait
    // until its leases end.
    let report = failure(&t, 3, FailureEvidence::Refused);
    t.send(conns[0], report);
    assert!(t.map().is_up(OsdId(3)));
    t.event(Event::Closed { conn: conns[3], why: Closed::Reset });
    assert!(t.map().is_down(OsdId(3)));
    assert_eq!(life(&t, 3).xinfo.dead_epoch, t.map().epoch);

    // The monitor sees the end of the session first.
    t.event(Event::Closed { conn: conns[2], why: Closed::Reset });
    assert!(t.map().is_up(OsdId(2)));
    let report = failure(&t, 2, FailureEvidence::Refused);
    t.send(conns[0], report);
    assert_eq!(life(&t, 2).xinfo.dead_epoch, t.map().epoch);

    // The session with the monitor stays: a firewall in between may have refused.
    let report = failure(&t, 1, FailureEvidence::Refused);
    t.send(conns[0], report);
    t.pass(Duration::from_millis(200));
    assert!(t.map().is_down(OsdId(1)));
    assert!(life(&t, 1).xinfo.dead_epoch < life(&t, 1).info.up_from);
}

#[test]
fn refused_connection_does_not_count_against_the_next_incarnation() {
    let (mut t, conns) = TestMon::with_osds(3);
    let report = failure(&t, 2, FailureEvidence::Refused);
    t.send(conns[0], report);
    t.boot(2, 6952, 2);
    t.event(Event::Closed { conn: conns[2], why: Closed::Reset });
    t.pass(Duration::from_secs(1));
    assert!(t.map().is_up(OsdId(2)));
}

#[test]
fn cancelled_or_outdated_reports_and_reports_under_nodown_do_not_count() {
    let (mut t, conns) = TestMon::with_osds(4);
    let report = failure(&t, 3, SILENT);
    t.send(conns[0], report.clone());
    let back = failure(&t, 3, FailureEvidence::Recovered);
    t.send(conns[0], back);
    t.send(conns[1], report.clone());
    t.pass(Duration::from_millis(500));
    assert!(t.map().is_up(OsdId(3)));
    // What was said a while ago and not repeated is not what is so now.
    t.pass(Duration::from_secs(6));
    t.send(conns[2], report.clone());
    t.pass(Duration::from_millis(500));
    assert!(t.map().is_up(OsdId(3)));

    let old_life = failure(&t, 3, FailureEvidence::Refused);
    t.boot(3, 6950, 2);
    t.send(conns[0], old_life);
    assert!(t.map().is_up(OsdId(3)));

    t.run(json!({ "prefix": "osd set", "key": "nodown" }));
    let now = failure(&t, 3, FailureEvidence::Refused);
    t.send(conns[0], now);
    t.pass(Duration::from_millis(200));
    assert!(t.map().is_up(OsdId(3)));
}

#[test]
fn an_osd_that_says_goodbye_is_down_at_once() {
    let (mut t, conns) = TestMon::with_osds(2);
    let epoch = t.map().epoch;
    t.send(conns[1], DaemonMsg::MarkMeDown { osd: OsdId(1), epoch, is_over: true });
    assert!(t.map().is_down(OsdId(1)));
    // No OSD waits until its leases end.
    assert_eq!(t.map().osd(OsdId(1)).unwrap().xinfo.dead_epoch, t.map().epoch);
    // It cannot speak for another.
    t.send(conns[1], DaemonMsg::MarkMeDown { osd: OsdId(0), epoch, is_over: false });
    assert!(t.map().is_up(OsdId(0)));
}

#[test]
fn an_osd_without_a_session_is_down_after_fifteen_seconds_and_out_after_the_interval() {
    let (mut t, conns) = TestMon::with_osds(3);
    t.run(
        json!({ "prefix": "config set", "who": "mon", "name": "mon_osd_down_out_interval", "value": "30" }),
    );
    t.event(Event::Closed { conn: conns[2], why: Closed::Reset });
    t.pass(Duration::from_secs(14));
    assert!(t.map().is_up(OsdId(2)));
    t.pass(Duration::from_secs(3));
    assert!(t.map().is_down(OsdId(2)) && t.map().is_in(OsdId(2)));
    t.pass(Duration::from_secs(32));
    assert!(t.map().is_out(OsdId(2)) && t.map().osds[2].has(osd_state::AUTOOUT));
    // The others have sessions and may be silent.
    assert_eq!(t.map().up_osds().count(), 2);
    // What the cluster put out it takes in again.
    t.boot(2, 6950, 2);
    assert!(t.map().is_in(OsdId(2)) && t.map().is_up(OsdId(2)));
}

#[test]
fn pool_creation_completes_when_every_pg_was_active() {
    let (mut t, conns) = TestMon::with_osds(3);
    let pool = t.create_pool("p", 4);
    assert!(t.map().pools[&pool].has(pool_flags::CREATING));
    let pg = PgId { pool, seed: 0 };
    let query = DaemonMsg::RecordQuery { epoch: Epoch(1), pgs: vec![pg] };
    let answer = t.ask(conns[0], query.clone());
    assert!(
        matches!(&answer, Message::Daemon(DaemonMsg::Records { records, .. }) if *records == [(pg, None)])
    );
    t.activate(&conns, pool);
    assert!(!t.map().pools[&pool].has(pool_flags::CREATING));
    let answer = t.ask(conns[0], query);
    assert!(matches!(&answer, Message::Daemon(DaemonMsg::Records { records, .. }) if records[0].1.is_some()));
}

#[test]
fn a_record_of_an_older_interval_or_of_other_members_is_refused() {
    let (mut t, conns) = TestMon::with_osds(3);
    let pool = t.create_pool("p", 1);
    t.activate(&conns, pool);
    let pg = PgId { pool, seed: 0 };
    let map = t.map();
    let acting = map.pg_to_up_acting(pg).acting;
    let mut activate = |interval: u32, acting: &[OsdId]| {
        let record = PgRecord { interval: Epoch(interval), acting: acting.to_vec() };
        let message = DaemonMsg::Activate { epoch: map.epoch, records: vec![(pg, record)] };
        match t.ask(conns[0], message) {
            Message::Daemon(DaemonMsg::Activated { results, .. }) => results[0].2,
            other => panic!("{other:?}"),
        }
    };
    assert!(!activate(map.epoch.0 - 2, &acting), "older");
    assert!(!activate(map.epoch.0 + 1, &acting[..2]), "others");
    assert!(activate(map.epoch.0 + 1, &acting));
    assert!(activate(map.epoch.0 + 1, &acting), "repeated");
}

#[test]
fn a_query_about_a_later_map_waits_for_it() {
    let (mut t, conns) = TestMon::with_osds(3);
    let epoch = t.map().epoch.next();
    t.received(conns[0]);
    t.send(conns[0], DaemonMsg::RecordQuery { epoch, pgs: Vec::new() });
    let early = t.received(conns[0]);
    assert!(!early.iter().any(|m| matches!(m, Message::Daemon(_))), "{early:?}");
    t.run(json!({ "prefix": "osd set", "key": "noout" }));
    let late = t.received(conns[0]);
    assert!(
        late.iter().any(|m| matches!(m, Message::Daemon(DaemonMsg::Records { epoch: e, .. }) if *e == epoch))
    );
}

#[test]
fn children_of_a_split_start_where_their_parent_stands() {
    let (mut t, conns) = TestMon::with_osds(3);
    let pool = t.create_pool("p", 2);
    t.activate(&conns, pool);
    t.run(json!({ "prefix": "osd pool set", "pool": "p", "var": "pg_num", "val": "4" }));
    let records = &t.mon.state.as_ref().unwrap().pgs.records;
    let of = |seed| records[&PgId { pool, seed }].clone();
    assert_eq!((of(2), of(3)), (of(0), of(1)));
    let map = t.map();
    assert_eq!(map.pools[&pool].last_force_op_resend, map.pools[&pool].last_change);
    // And all go when the pool goes.
    let sure =
        json!({ "prefix": "osd pool rm", "pool": "p", "pool2": "p", "yes_i_really_really_mean_it": true });
    t.run(sure);
    assert!(t.mon.state.as_ref().unwrap().pgs.records.is_empty());
}

#[test]
fn only_osds_may_speak_as_osds() {
    let (mut t, _) = TestMon::with_osds(2);
    let conn = t.client();
    t.send(conn, boot(7, 7000, 1));
    assert!(t.hung_up.contains(&conn));
    assert!(!t.map().exists(OsdId(7)));
}

#[test]
fn a_pool_over_its_quota_or_on_a_full_osd_is_full() {
    let (mut t, conns) = TestMon::with_osds(3);
    let pool = t.create_pool("p", 4);
    t.activate(&conns, pool);
    t.report(&conns, pool);
    t.run(json!({ "prefix": "osd pool set-quota", "pool": "p", "field": "max_objects", "val": "8" }));
    t.pass(Duration::from_secs(2));
    let flags = |t: &TestMon| t.map().pools[&pool].flags & (pool_flags::FULL | pool_flags::FULL_QUOTA);
    assert_eq!(flags(&t), pool_flags::FULL | pool_flags::FULL_QUOTA);
    t.run(json!({ "prefix": "osd pool set-quota", "pool": "p", "field": "max_objects", "val": "0" }));
    t.pass(Duration::from_secs(2));
    assert_eq!(flags(&t), 0);

    let mut fill = |available: u64| {
        let space = OsdSpace { total: 100 << 30, available, ..OsdSpace::default() };
        let report = OsdReport { osd: Some(OsdId(1)), epoch: t.map().epoch, space, ..OsdReport::default() };
        t.send(conns[1], DaemonMsg::Report(report));
        t.pass(Duration::from_secs(2));
        let health = t.json(json!({ "prefix": "health" }));
        (
            t.map().osds[1].state & osd_state::FULL != 0,
            flags(&t),
            health["status"].as_str().unwrap().to_string(),
        )
    };
    assert_eq!(fill(1 << 30), (true, pool_flags::FULL, "HEALTH_ERR".to_string()));
    assert!(!fill(50 << 30).0);
}

#[test]
fn a_destroyed_number_goes_to_the_next_disk() {
    let (mut t, _) = TestMon::with_osds(2);
    t.run(json!({ "prefix": "osd down", "ids": ["1"] }));
    t.run(json!({ "prefix": "osd destroy", "id": 1, "yes_i_really_mean_it": true }));
    assert!(t.map().osds[1].has(osd_state::DESTROYED));
    let conn = t.open(EntityType::Osd, 1, addr(7000, 5));
    let DaemonMsg::Boot(mut other) = boot(1, 7000, 5) else { unreachable!() };
    other.uuid = [99; 16];
    t.send(conn, DaemonMsg::Boot(other));
    let osd = t.map().osds[1].clone();
    assert!(osd.has(osd_state::UP) && !osd.has(osd_state::DESTROYED) && osd.uuid == [99; 16]);
}

#[test]
fn the_next_disk_of_an_osd_that_was_out_holds_data_whether_or_not_it_is_announced() {
    for announced in [false, true] {
        let (mut t, _) = TestMon::with_osds(2);
        t.run(json!({ "prefix": "osd out", "ids": ["1"] }));
        t.run(json!({ "prefix": "osd down", "ids": ["1"] }));
        t.run(json!({ "prefix": "osd destroy", "id": 1 }));
        if announced {
            let uuid = "63636363-6363-6363-6363-636363636363";
            t.run(json!({ "prefix": "osd new", "uuid": uuid, "id": 1 }));
            assert!(t.map().osds[1].has(osd_state::NEW) && !t.map().osds[1].has(osd_state::DESTROYED));
        }
        let conn = t.open(EntityType::Osd, 1, addr(7000, 5));
        let DaemonMsg::Boot(mut other) = boot(1, 7000, 5) else { unreachable!() };
        other.uuid = [99; 16];
        t.send(conn, DaemonMsg::Boot(other));
        assert!(t.map().is_up(OsdId(1)) && t.map().is_in(OsdId(1)), "announced: {announced}");
        assert!(!t.map().osds[1].has(osd_state::NEW));
    }
}

/// Six OSDs on three hosts in two racks: 0..4 in one, 4 and 5 in the other.
fn racks() -> (TestMon, Vec<ConnId>) {
    let (mut t, conns) = TestMon::with_osds(6);
    for rack in ["r0", "r1"] {
        t.run(json!({ "prefix": "osd crush add-bucket", "name": rack, "type": "rack" }));
        t.run(json!({ "prefix": "osd crush move", "name": rack, "args": ["root=default"] }));
    }
    for osd in 0..6 {
        let args = [format!("rack=r{}", osd / 4), format!("host=h{}", osd / 2)];
        t.run(json!({ "prefix": "osd crush create-or-move", "id": osd, "weight": 1.0, "args": args }));
    }
    (t, conns)
}

fn out(t: &TestMon) -> Vec<i32> {
    t.map().osd_ids().filter(|&osd| t.map().is_out(osd)).map(|osd| osd.0).collect()
}

#[test]
fn neither_a_whole_rack_nor_too_many_osds_are_marked_out() {
    let (mut t, _) = racks();
    t.run(json!({ "prefix": "osd down", "ids": ["4", "5"] }));
    t.pass(Duration::from_secs(700));
    assert_eq!(out(&t), [0; 0], "all of rack r1");
    t.run(json!({ "prefix": "osd down", "ids": ["0"] }));
    t.run(json!({ "prefix": "osd set", "key": "noout" }));
    t.pass(Duration::from_secs(700));
    assert_eq!(out(&t), [0; 0]);
    t.run(json!({ "prefix": "osd unset", "key": "noout" }));
    t.pass(Duration::from_secs(2));
    assert_eq!(out(&t), [0]);
    t.run(json!({ "prefix": "osd down", "ids": ["1", "2"] }));
    t.pass(Duration::from_secs(700));
    assert_eq!(out(&t), [0, 1], "with four of six in, less than three quarters are left");
}

#[test]
fn flags_of_a_bucket_and_of_a_class_hold_for_their_osds() {
    let (mut t, conns) = racks();
    t.run(json!({ "prefix": "osd set-group", "flags": "noout,noup", "who": ["r1"] }));
    t.run(json!({ "prefix": "config set", "who": "mon", "name": "mon_osd_down_out_subtree_limit", "value": "" }));
    t.run(json!({ "prefix": "osd down", "ids": ["0", "4"] }));
    t.pass(Duration::from_secs(700));
    assert_eq!(out(&t), [0]);
    t.boot(4, 6904, 2);
    assert!(t.map().is_down(OsdId(4)));
    let health = t.json(json!({ "prefix": "health", "detail": "detail" }));
    let text = &health["checks"]["OSD_FLAGS"]["detail"][0]["message"];
    assert_eq!(text, "rack r1 has flags noout,noup");
    assert_eq!(
        t.json(json!({ "prefix": "osd dump" }))["crush_node_flags"],
        json!({ "r1": ["noup", "noout"] })
    );
    t.run(json!({ "prefix": "osd unset-group", "flags": "noup,noout", "who": ["r1"] }));
    t.boot(4, 6904, 2);
    assert!(t.map().is_up(OsdId(4)));

    t.run(json!({ "prefix": "osd set-group", "flags": "nodown", "who": ["ssd"] }));
    let report = failure(&t, 3, FailureEvidence::Refused);
    t.send(conns[1], report);
    t.pass(Duration::from_millis(200));
    assert!(t.map().is_up(OsdId(3)));
    t.run(json!({ "prefix": "osd unset-group", "flags": "nodown", "who": ["ssd"] }));
    t.run(json!({ "prefix": "osd add-nodown", "ids": ["3"] }));
    let report = failure(&t, 3, FailureEvidence::Refused);
    t.send(conns[1], report.clone());
    t.pass(Duration::from_millis(200));
    assert!(t.map().is_up(OsdId(3)));
    t.run(json!({ "prefix": "osd rm-nodown", "ids": ["all"] }));
    t.send(conns[1], report);
    t.pass(Duration::from_millis(200));
    assert!(t.map().is_down(OsdId(3)));
}

#[test]
fn under_noin_a_new_osd_stays_out_until_marked_in() {
    let (mut t, _) = TestMon::with_osds(2);
    t.run(json!({ "prefix": "osd set", "key": "noin" }));
    t.boot(2, 6902, 1);
    assert!(t.map().is_up(OsdId(2)) && t.map().is_out(OsdId(2)));
    t.run(json!({ "prefix": "osd unset", "key": "noin" }));
    t.run(json!({ "prefix": "osd in", "ids": ["2"] }));
    assert!(t.map().is_in(OsdId(2)) && !t.map().osds[2].has(osd_state::NEW));
}

#[test]
fn health_reports_misordered_ratios_and_nearly_full_pools() {
    let (mut t, conns) = TestMon::with_osds(3);
    let pool = t.create_pool("p", 4);
    t.activate(&conns, pool);
    let mut fill = |available: u64| {
        let space = OsdSpace { total: 100 << 30, available, ..OsdSpace::default() };
        let report = OsdReport { osd: Some(OsdId(1)), epoch: t.map().epoch, space, ..OsdReport::default() };
        t.send(conns[1], DaemonMsg::Report(report));
        t.pass(Duration::from_secs(2));
        let health = t.json(json!({ "prefix": "health" }));
        let codes = health["checks"].as_object().unwrap().keys().filter(|code| code.contains("FULL"));
        codes.cloned().collect::<Vec<_>>()
    };
    assert_eq!(fill(14 << 30), ["OSD_NEARFULL", "POOL_NEARFULL"]);
    assert_eq!(fill(9 << 30), ["OSD_BACKFILLFULL", "POOL_BACKFILLFULL"]);
    assert_eq!(fill(1 << 30), ["OSD_FULL", "POOL_FULL"]);
    assert_eq!(fill(50 << 30), [""; 0]);
    t.run(json!({ "prefix": "osd set-nearfull-ratio", "ratio": 0.99 }));
    let health = t.json(json!({ "prefix": "health" }));
    assert!(health["checks"].get("OSD_OUT_OF_ORDER_FULL").is_some(), "{health}");
}

#[test]
fn pool_that_reaches_a_threshold_of_its_quota_is_named_until_it_does_not() {
    let (mut t, conns) = TestMon::with_osds(3);
    let pool = t.create_pool("p", 4);
    t.activate(&conns, pool);
    // Two objects and 8 KiB in each of four placement groups.
    t.report(&conns, pool);
    let quota = |t: &mut TestMon, field: &str, val: &str| {
        t.run(json!({ "prefix": "osd pool set-quota", "pool": "p", "field": field, "val": val }));
        t.pass(Duration::from_secs(2));
    };
    let shown = |t: &mut TestMon| {
        let checks = t.json(json!({ "prefix": "health", "detail": "detail" }))["checks"].clone();
        ["POOL_NEAR_FULL", "POOL_FULL"].map(|code| {
            let check = &checks[code];
            let text = |value: &Value| value["message"].as_str().unwrap_or_default().to_string();
            let detail = check["detail"].as_array().into_iter().flatten().map(text).collect::<Vec<_>>();
            [check["severity"].as_str().unwrap_or_default(), &text(&check["summary"]), &detail.join("; ")]
                .join(" ")
        })
    };
    let set = |t: &mut TestMon, name: &str, value: &str| {
        t.run(json!({ "prefix": "config set", "who": "mon", "name": name, "value": value }));
    };
    quota(&mut t, "max_objects", "10");
    assert_eq!(shown(&mut t), ["  ", "  "], "there are no thresholds unless they are set");
    set(&mut t, "mon_pool_quota_warn_threshold", "80");
    let near = "HEALTH_WARN 1 pools nearfull pool 'p' has 8 objects (max 10)";
    assert_eq!(shown(&mut t), [near, "  "]);
    set(&mut t, "mon_pool_quota_crit_threshold", "90");
    quota(&mut t, "max_bytes", "35000");
    let full = "HEALTH_ERR 1 pools full pool 'p' has 32 KiB (max 34 KiB)";
    assert_eq!(shown(&mut t), [near, full]);
    // The quota itself is reached.
    quota(&mut t, "max_objects", "8");
    let both = "HEALTH_WARN 1 pool(s) full pool 'p' is full (running out of quota); pool 'p' has 32 KiB (max 34 KiB)";
    assert_eq!(shown(&mut t), ["  ", both]);
    quota(&mut t, "max_objects", "11");
    quota(&mut t, "max_bytes", "0");
    assert_eq!(shown(&mut t), ["  ", "  "]);
}

#[test]
fn a_full_osd_that_is_down_or_out_fills_no_pool() {
    let (mut t, conns) = TestMon::with_osds(4);
    let pool = t.create_pool("p", 4);
    t.activate(&conns, pool);
    let space = OsdSpace { total: 100 << 30, available: 1 << 30, ..OsdSpace::default() };
    let report = OsdReport { osd: Some(OsdId(1)), epoch: t.map().epoch, space, ..OsdReport::default() };
    t.send(conns[1], DaemonMsg::Report(report));
    let full = |t: &mut TestMon| {
        t.pass(Duration::from_secs(2));
        let health = t.json(json!({ "prefix": "health" }));
        let told = ["OSD_FULL", "POOL_FULL"].map(|code| health["checks"].get(code).is_some());
        (t.map().pools[&pool].has(pool_flags::FULL), told)
    };
    assert_eq!(full(&mut t), (true, [true, true]));
    t.run(json!({ "prefix": "osd out", "ids": ["1"] }));
    assert_eq!(full(&mut t), (false, [false, false]));
    t.run(json!({ "prefix": "osd in", "ids": ["1"] }));
    assert_eq!(full(&mut t), (true, [true, true]));
    t.run(json!({ "prefix": "osd down", "ids": ["1"] }));
    assert_eq!(full(&mut t), (false, [false, false]));
    assert!(t.map().osds[1].has(osd_state::FULL), "it is, when it comes back");
}

#[test]
fn osd_that_refuses_writes_is_full_at_any_ratio() {
    let (mut t, conns) = TestMon::with_osds(3);
    t.run(json!({ "prefix": "osd set-full-ratio", "ratio": 1.0 }));
    let codes = |t: &mut TestMon, thousandth: u64| {
        let space = OsdSpace { total: 1000 << 20, available: thousandth << 20, ..OsdSpace::default() };
        let report = OsdReport { osd: Some(OsdId(1)), epoch: t.map().epoch, space, ..OsdReport::default() };
        t.send(conns[1], DaemonMsg::Report(report));
        t.pass(Duration::from_secs(2));
        health_codes(t).into_iter().filter(|code| code.contains("FULL")).collect::<Vec<_>>()
    };
    let order = "OSD_OUT_OF_ORDER_FULL";
    assert_eq!(codes(&mut t, 31), ["OSD_BACKFILLFULL", order]);
    assert_eq!(codes(&mut t, 30), ["OSD_FULL", order]);
    assert_eq!(codes(&mut t, 35), ["OSD_FULL", order], "it waits until it has more");
    assert_eq!(codes(&mut t, 36), ["OSD_BACKFILLFULL", order]);
    t.run(json!({ "prefix": "osd set-full-ratio", "ratio": 0.97 }));
    assert_eq!(codes(&mut t, 31), ["OSD_BACKFILLFULL"]);
    // One that is below the one before it counts as that.
    t.run(json!({ "prefix": "osd set-full-ratio", "ratio": 0.1 }));
    assert_eq!(codes(&mut t, 800), [order]);
    assert_eq!(codes(&mut t, 99), ["OSD_FULL", order]);
}

fn health_codes(t: &mut TestMon) -> Vec<String> {
    let health = t.json(json!({ "prefix": "health" }));
    health["checks"].as_object().unwrap().keys().cloned().collect()
}

#[test]
fn osd_down_times_and_restart_counts_survive_the_leader() {
    let (mut t, conns) = TestMon::with_osds(4);
    t.run(
        json!({ "prefix": "config set", "who": "mon", "name": "mon_osd_down_out_interval", "value": "100" }),
    );
    // osd.2 is slandered three times.
    for _ in 0..3 {
        let report = failure(&t, 2, FailureEvidence::Refused);
        t.send(conns[0], report.clone());
        t.pass(Duration::from_millis(200));
        if t.map().is_up(OsdId(2)) {
            // Not believed a second time so easily: it takes another witness.
            t.send(conns[1], report.clone());
            t.pass(Duration::from_millis(200));
            if t.map().is_up(OsdId(2)) {
                t.send(conns[3], report);
                t.pass(Duration::from_millis(200));
            }
        }
        assert!(t.map().is_down(OsdId(2)));
        t.pass(Duration::from_secs(6));
        t.boot(2, 6902, 1);
        assert!(t.map().is_up(OsdId(2)));
    }
    let epoch = t.map().epoch;
    t.send(conns[3], DaemonMsg::MarkMeDown { osd: OsdId(3), epoch, is_over: false });
    t.pass(Duration::from_secs(70));
    let report = failure(&t, 2, FailureEvidence::Refused);
    t.send(conns[0], report);
    t.pass(Duration::from_secs(2));
    assert!(t.map().is_down(OsdId(2)));

    let mut t = t.restart();
    assert!(health_codes(&mut t).contains(&"OSD_FLAPPING".to_string()));
    for osd in 0..2 {
        t.boot(osd, 6900 + osd as u16, 1);
    }
    t.boot(2, 6902, 1);
    assert!(t.map().is_down(OsdId(2)), "its fourth return has to wait");
    t.pass(Duration::from_secs(10));
    t.boot(2, 6902, 1);
    assert!(t.map().is_up(OsdId(2)));
    assert!(t.map().is_in(OsdId(3)));
    // It was down for 70 s before the leader was another one.
    t.pass(Duration::from_secs(50));
    assert!(t.map().is_out(OsdId(3)));
}

#[test]
fn crash_looping_osd_is_delayed_and_reported() {
    let (mut t, conns) = TestMon::with_osds(4);
    for life in 2..=4 {
        let report = failure(&t, 3, FailureEvidence::Refused);
        t.send(conns[0], report);
        t.pass(Duration::from_millis(200));
        assert!(t.map().is_down(OsdId(3)));
        t.boot(3, 6903, life);
        assert!(t.map().is_up(OsdId(3)), "life {life}");
        t.pass(Duration::from_secs(3));
    }
    assert!(!health_codes(&mut t).contains(&"OSD_CRASH_LOOP".to_string()));
    // A process that restarts before any OSD missed it counts in the same way.
    t.boot(3, 6903, 5);
    assert!(t.map().is_down(OsdId(3)));
    let health = t.json(json!({ "prefix": "health", "detail": "detail" }));
    let line = health["checks"]["OSD_CRASH_LOOP"]["detail"][0]["message"].as_str().unwrap();
    assert!(line.starts_with("osd.3 (") && line.contains("held down for 10 s"), "{line}");
    t.pass(Duration::from_secs(11));
    t.boot(3, 6903, 6);
    assert!(t.map().is_up(OsdId(3)));
    // An OSD that runs for a while before it dies is not in a crash loop, and old crashes are forgotten.
    t.pass(Duration::from_secs(70));
    t.boot(3, 6903, 7);
    assert!(t.map().is_up(OsdId(3)));
    t.pass(Duration::from_secs(700));
    assert!(!health_codes(&mut t).contains(&"OSD_CRASH_LOOP".to_string()));
}

#[test]
fn no_boot_delay_while_most_osds_are_down() {
    let (mut t, _) = TestMon::with_osds(2);
    for life in 2..=8 {
        t.boot(0, 6900, life);
        t.boot(1, 6901, life);
        assert_eq!(t.map().up_osds().count(), 2, "life {life}");
    }
}

#[test]
fn under_noup_no_osd_is_marked_up() {
    let (mut t, _) = TestMon::with_osds(3);
    t.run(json!({ "prefix": "osd set", "key": "noup" }));
    t.boot(1, 6950, 2);
    assert!(t.map().is_up(OsdId(1)) && t.map().osds[1].public_addrs == addr(6901, 1));
    let epoch = t.map().epoch;
    let conn = t.open(EntityType::Osd, 1, addr(6901, 1));
    t.send(conn, DaemonMsg::MarkMeDown { osd: OsdId(1), epoch, is_over: false });
    t.boot(1, 6950, 2);
    assert!(t.map().is_down(OsdId(1)));
    t.run(json!({ "prefix": "osd unset", "key": "noup" }));
    t.boot(1, 6950, 2);
    assert!(t.map().is_up(OsdId(1)));
}

/// It may have got objects after its last report, and died with them.
#[test]
fn osd_counts_as_empty_if_reported_after_its_last_pg_left() {
    let (mut t, conns) = TestMon::with_osds(4);
    let pool = t.create_pool("p", 8);
    super::pg_merge::serve(&mut t, &conns, pool);
    let report = OsdReport { osd: Some(OsdId(3)), epoch: t.map().epoch, ..OsdReport::default() };
    t.send(conns[3], DaemonMsg::Report(report));
    let safe = |t: &mut TestMon| t.command(json!({ "prefix": "osd safe-to-destroy", "ids": ["3"] })).0;
    t.run(json!({ "prefix": "osd down", "ids": ["3"] }));
    t.run(json!({ "prefix": "osd out", "ids": ["3"] }));
    assert_eq!(safe(&mut t), -11);
    super::pg_merge::serve(&mut t, &conns, pool);
    assert_eq!(safe(&mut t), 0);
}

#[test]
fn osd_with_the_only_copies_is_not_removed_without_force() {
    let (mut t, conns) = TestMon::with_osds(4);
    let pool = t.create_pool("p", 8);
    super::pg_merge::serve(&mut t, &conns, pool);
    let report =
        OsdReport { osd: Some(OsdId(3)), epoch: t.map().epoch, num_objects: 5, ..OsdReport::default() };
    t.send(conns[3], DaemonMsg::Report(report));
    let gone = |prefix: &str, force: bool| json!({ "prefix": prefix, "id": 3, "yes_i_really_mean_it": true, "force": force });
    let safe = |t: &mut TestMon| t.command(json!({ "prefix": "osd safe-to-destroy", "ids": ["3"] })).0;
    // Groups are on it.
    assert_eq!((safe(&mut t), t.command(gone("osd destroy", false)).0), (-16, -16));
    t.run(json!({ "prefix": "osd down", "ids": ["3"] }));
    t.run(json!({ "prefix": "osd out", "ids": ["3"] }));
    // The others are not whole yet.
    let (code, said, _) = t.command(gone("osd purge", false));
    assert_eq!((safe(&mut t), code), (-11, -11), "{said}");
    assert!(said.contains("not all PGs are active+clean") && said.contains("--force"), "{said}");
    super::pg_merge::serve(&mut t, &conns, pool);
    assert_eq!(safe(&mut t), 0);
    t.run(gone("osd destroy", false));
    t.run(json!({ "prefix": "osd in", "ids": ["3"] }));
    t.run(gone("osd purge", true));
    assert!(!t.map().exists(OsdId(3)));
}

#[test]
fn reweight_survives_out_and_in() {
    let (mut t, _) = TestMon::with_osds(3);
    let weight = |t: &TestMon| t.map().weight(OsdId(0));
    let run = |t: &mut TestMon, prefix: &str| t.run(json!({ "prefix": prefix, "ids": ["0"] }));
    t.run(json!({ "prefix": "osd reweight", "id": 0, "weight": 0.5 }));
    for _ in 0..2 {
        run(&mut t, "osd out");
        assert_eq!((weight(&t), t.map().osds[0].xinfo.old_weight), (0, 0x8000));
        assert_eq!(run(&mut t, "osd out"), "osd.0 is already out. ");
        run(&mut t, "osd in");
        assert_eq!((weight(&t), t.map().osds[0].xinfo.old_weight), (0x8000, 0));
    }
    // An operator's zero is not remembered.
    t.run(json!({ "prefix": "osd reweight", "id": 0, "weight": 0.0 }));
    run(&mut t, "osd in");
    assert_eq!(weight(&t), 0x10000);
}

#[test]
fn osd_that_goes_out_by_itself_returns_with_its_reweight_once() {
    let (mut t, _) = TestMon::with_osds(4);
    t.run(json!({ "prefix": "osd reweight", "id": 3, "weight": 0.25 }));
    t.run(json!({ "prefix": "osd down", "ids": ["3"] }));
    t.run(json!({ "prefix": "osd set", "key": "noup" }));
    t.pass(Duration::from_secs(620));
    assert!(t.map().is_out(OsdId(3)));
    t.run(json!({ "prefix": "osd unset", "key": "noup" }));
    t.boot(3, 6903, 1);
    assert_eq!((t.map().weight(OsdId(3)), t.map().osds[3].xinfo.old_weight), (0x4000, 0));
}
