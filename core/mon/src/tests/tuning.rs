//! Weights, configuration files, and the checks before daemons are stopped (`ok-to-stop`).

use super::*;

fn fill(t: &mut TestMon, conns: &[ConnId], available: &[u64]) {
    for (osd, (&conn, &available)) in conns.iter().zip(available).enumerate() {
        let space = OsdSpace { total: 100 << 30, available: available << 30, ..OsdSpace::default() };
        let osd = Some(OsdId(osd as i32));
        let report = OsdReport { osd, epoch: t.map().epoch, space, ..OsdReport::default() };
        t.send(conns[0], DaemonMsg::Report(report.clone()));
        t.send(conn, DaemonMsg::Report(report));
    }
}

#[test]
fn the_fullest_osds_lose_weight_in_small_steps() {
    let (mut t, conns) = TestMon::with_osds(3);
    t.create_pool("p", 8);
    fill(&mut t, &conns, &[60, 60, 20]); // 40, 40 and 80 of 100 are used
    let said = t.run(json!({ "prefix": "osd test-reweight-by-utilization" }));
    assert!(said.contains("osd.2 weight 1.0000 -> 0.9500\n") && said.contains("oload 120\n"), "{said}");
    assert_eq!(t.map().weight(OsdId(2)), 0x10000);
    t.run(json!({ "prefix": "osd reweight-by-utilization", "oload": 110, "max_change": 0.2 }));
    assert_eq!(t.map().weight(OsdId(2)), (0.8 * 65536.0) as u32 + 1);
    // An OSD that was reweighted down and is below the average now gets weight back.
    fill(&mut t, &conns, &[50, 50, 60]);
    let plan = t.json(json!({ "prefix": "osd test-reweight-by-utilization" }));
    assert_eq!(plan["reweights"][0]["osd"], 2);
    let plan = t.json(json!({ "prefix": "osd test-reweight-by-utilization", "no_increasing": true }));
    assert_eq!(plan["reweights"], json!([]));
    let (code, said, _) = t.command(json!({ "prefix": "osd reweight-by-utilization", "oload": 90 }));
    assert_eq!(code, -22, "{said}");
    fill(&mut t, &conns, &[100, 100, 100]);
    assert_eq!(t.command(json!({ "prefix": "osd reweight-by-utilization" })).0, -33);
}

#[test]
fn a_configuration_file_is_taken_over_but_for_what_leads_to_the_monitors() {
    let (mut t, _) = TestMon::with_osds(1);
    let file = "[global]\n# where\nmon host = 1.2.3.4\n osd pool default size = 2 ; copies\n\
                [osd.0]\nosd-max-backfills = 3\nno_such_thing = 1\n";
    let command = json!({ "prefix": "config assimilate-conf" });
    let (code, said, out) = t.command_with(command.clone(), Bytes::from(file));
    assert_eq!(
        (code, &*out),
        (0, "\n[global]\n\tmon_host = 1.2.3.4\n\n[osd.0]\n\tno_such_thing = 1\n"),
        "{said}"
    );
    let get = |t: &mut TestMon, who: &str, key: &str| {
        t.run(json!({ "prefix": "config get", "who": who, "key": key })).trim().to_string()
    };
    assert_eq!(get(&mut t, "mon", "osd_pool_default_size"), "2");
    assert_eq!(get(&mut t, "osd.0", "osd_max_backfills"), "3");
    let (code, said, _) = t.command_with(command, Bytes::from("[global]\nnonsense"));
    assert_eq!((code, &*said), (-22, "line 2: a '=' is missing"));

    let minimal = t.run(json!({ "prefix": "config generate-minimal-conf" }));
    assert!(minimal.contains("\nmon_host = [v2:127.0.0.1:3300/0]\n"), "{minimal}");
    let all = t.run(json!({ "prefix": "config show-with-defaults", "who": "osd.0" }));
    assert!(all.contains("mon_osd_down_out_interval") && all.contains("osd_max_backfills"), "{all}");
}

#[test]
fn the_configuration_goes_back_to_how_it_was() {
    let (mut t, _) = TestMon::with_osds(1);
    let set = |t: &mut TestMon, value: &str| {
        t.run(json!({ "prefix": "config set", "who": "osd", "name": "osd_max_backfills", "value": value }));
    };
    set(&mut t, "1");
    set(&mut t, "2");
    t.run(json!({ "prefix": "config set", "who": "osd/class:ssd", "name": "debug_osd", "value": "5" }));
    set(&mut t, "3");
    t.run(json!({ "prefix": "config reset", "num": 2 }));
    let dump = t.json(json!({ "prefix": "config dump" }));
    assert_eq!(dump.as_array().unwrap().len(), 1, "{dump}");
    assert_eq!(dump[0]["value"], "1");
    assert_eq!(t.command(json!({ "prefix": "config reset", "num": 99 })).0, -22);
}

#[test]
fn an_option_that_nacre_replaced_says_by_what() {
    let (mut t, _) = TestMon::with_osds(1);
    let said = t.run(json!({ "prefix": "config help", "key": "osd_heartbeat_grace" }));
    assert!(said.contains("superseded") && said.contains("1.2 s"), "{said}");
    let said = t.run(json!({ "prefix": "config help", "key": "osd_recovery_max_single_start" }));
    assert!(said.contains("superseded") && said.contains("osd_recovery_max_active"), "{said}");
    let said = t.run(json!({ "prefix": "config help", "key": "osd_recovery_max_active" }));
    assert!(said.contains("Services: [osd]"), "{said}");
    let set = |name: &str| json!({ "prefix": "config set", "who": "osd", "name": name, "value": "4" });
    let (code, said, _) = t.command(set("osd_memory_target_autotune"));
    assert!(
        code == 0 && said.contains("does nothing in Nacre") && said.contains("osd_memory_target"),
        "{said}"
    );
    assert_eq!(t.command(set("osd_max_backfills")).1, "");
}

#[test]
fn sizes_are_set_with_units_and_kept_in_bytes() {
    let (mut t, _) = TestMon::with_osds(1);
    let mut set = |value: &str| {
        let set =
            json!({ "prefix": "config set", "who": "osd.0", "name": "osd_memory_target", "value": value });
        t.command(set).0
    };
    for bad in ["2X", "", "-1", "1.5G", "100M", "99999999999999999T", "1GiB"] {
        assert_eq!(set(bad), -22, "{bad}");
    }
    for good in ["1073741824", "1Gi", "1024M"] {
        assert_eq!(set(good), 0, "{good}");
    }
    let get = json!({ "prefix": "config get", "who": "osd.0", "key": "osd_memory_target" });
    assert_eq!(t.run(get), "1073741824\n");
}

#[test]
fn a_lone_monitor_may_not_stop() {
    let (mut t, _) = TestMon::with_osds(2);
    let (code, said, _) = t.command(json!({ "prefix": "mon ok-to-stop", "ids": ["a"] }));
    assert_eq!((code, said.contains("after stopping mons [a]")), (-16, true), "{said}");
    assert_eq!(t.command(json!({ "prefix": "mon ok-to-add-offline" })).0, -16);
    let counts = t.json(json!({ "prefix": "osd count-metadata", "property": "hostname" }));
    assert_eq!(counts, json!({ "vm": 2 }));
}

#[test]
fn whole_subtrees_and_old_profiles_of_the_crush_map() {
    let (mut t, _) = TestMon::with_osds(3);
    t.run(json!({ "prefix": "osd crush reweight-subtree", "name": "vm", "weight": 2.0 }));
    assert_eq!((0..3).map(|osd| t.map().crush.item_weight(osd)).collect::<Vec<_>>(), [Some(2 << 16); 3]);
    let epoch = t.map().epoch;
    assert_eq!(t.run(json!({ "prefix": "osd crush reweight-all" })), "reweighted crush hierarchy");
    assert_eq!(t.map().epoch, epoch);
    let show = |t: &mut TestMon| t.json(json!({ "prefix": "osd crush show-tunables" }));
    t.run(json!({ "prefix": "osd crush tunables", "profile": "legacy" }));
    assert_eq!(show(&mut t)["legacy_tunables"], 1);
    // Old maps have buckets of an older kind.
    t.run(json!({ "prefix": "osd crush add-bucket", "name": "old", "type": "rack" }));
    let kinds = |t: &mut TestMon| -> Vec<Value> {
        let dump = t.json(json!({ "prefix": "osd crush dump" }));
        dump["buckets"].as_array().unwrap().iter().map(|bucket| bucket["alg"].clone()).collect()
    };
    assert!(kinds(&mut t).contains(&json!("straw")));
    assert_eq!(t.run(json!({ "prefix": "osd crush set-all-straw-buckets-to-straw2" })), "");
    assert!(kinds(&mut t).iter().all(|kind| kind == "straw2"));
    let epoch = t.map().epoch;
    t.run(json!({ "prefix": "osd crush set-all-straw-buckets-to-straw2" }));
    assert_eq!(t.map().epoch, epoch);
    t.run(json!({ "prefix": "osd crush tunables", "profile": "hammer" }));
    assert_eq!(
        (&show(&mut t)["chooseleaf_stable"], &show(&mut t)["chooseleaf_vary_r"]),
        (&json!(0), &json!(1))
    );
    t.run(json!({ "prefix": "osd crush tunables", "profile": "optimal" }));
    assert_eq!(show(&mut t)["profile"], "jewel");
    let rule =
        json!({ "prefix": "osd crush rule create-simple", "name": "r", "root": "default", "type": "host" });
    t.run(rule);
    let by_class = json!({
        "prefix": "osd crush rule create-replicated", "name": "fast", "root": "default", "type": "osd", "class": "ssd",
    });
    t.run(by_class);
    let of_class = t.json(json!({ "prefix": "osd crush rule ls-by-class", "class": "ssd" }));
    assert_eq!(of_class, json!(["fast"]));
}

#[test]
fn osds_that_block_pgs_are_counted() {
    let (mut t, conns) = TestMon::with_osds(3);
    let pool = t.create_pool("p", 2);
    t.activate(&conns, pool);
    let map = t.map();
    for pg in map.pgs(pool) {
        let primary = map.pg_to_up_acting(pg).acting_primary.unwrap();
        let waiting_for = "answers of osd.1, osd.2".to_string();
        let pgs = vec![PgReport { waiting_for, state: pg_state::PEERING, ..pg_report(&map, pg) }];
        let report = OsdReport { osd: Some(primary), epoch: map.epoch, pgs, ..OsdReport::default() };
        t.send(conns[primary.index()], DaemonMsg::Report(report));
    }
    let blocked = t.json(json!({ "prefix": "osd blocked-by" }));
    let expected = json!([{ "id": 1, "num_blocked": 2 }, { "id": 2, "num_blocked": 2 }]);
    assert_eq!(blocked["osd_blocked_by"]["osd_blocked_by_infos"], expected);
}

#[test]
fn recovery_shows_how_far_it_is_and_how_long_it_will_take() {
    let (mut t, conns) = TestMon::with_osds(3);
    let pool = t.create_pool("p", 1);
    t.activate(&conns, pool);
    let map = t.map();
    let pg = map.pgs(pool).next().unwrap();
    let primary = map.pg_to_up_acting(pg).acting_primary.unwrap();
    let report = |t: &mut TestMon, state: u64, degraded: u64| {
        let waiting_for = if degraded > 50 { "osd.2".to_string() } else { String::new() };
        let counts = PgCounts { objects: 40, copies: 120, degraded, ..PgCounts::default() };
        let pgs = vec![PgReport { state, counts, waiting_for, ..pg_report(&map, pg) }];
        let report = OsdReport { osd: Some(primary), epoch: map.epoch, pgs, ..OsdReport::default() };
        t.send(conns[primary.index()], DaemonMsg::Report(report));
        t.pass(Duration::from_secs(10));
    };
    let recovering = pg_state::ACTIVE | pg_state::RECOVERING | pg_state::DEGRADED;
    report(&mut t, recovering, 100);
    let stuck = t.run(json!({ "prefix": "pg dump_stuck", "stuckops": ["degraded"], "threshold": 0 }));
    assert!(stuck.starts_with(&format!("pg {pg} waits for osd.2\nok")), "{stuck}");
    assert_eq!(t.json(json!({ "prefix": "pg ls" }))["pg_stats"][0]["blocked_by"], json!([2]));
    report(&mut t, recovering, 25);
    let said = t.run(json!({ "prefix": "progress" }));
    // Three quarters took 19 seconds.
    assert_eq!(said, "Global Recovery Event (19s)\n    [======================........] (remaining: 6s)\n");
    let status = t.run(json!({ "prefix": "status" }));
    assert!(status.contains("\n  progress:\n    Global Recovery Event (19s)\n      [==="), "{status}");
    let status = t.json(json!({ "prefix": "status" }));
    let events = status["progress_events"].as_object().unwrap();
    assert_eq!(events.values().next().unwrap()["progress"], 0.75);
    report(&mut t, pg_state::ACTIVE | pg_state::CLEAN, 0);
    assert_eq!(t.run(json!({ "prefix": "progress" })), "Nothing in progress");
    let known = |t: &mut TestMon| {
        let all = t.json(json!({ "prefix": "progress json" }));
        (all["events"].as_array().unwrap().len(), all["completed"].as_array().unwrap().len())
    };
    assert_eq!(known(&mut t), (0, 1));
    t.run(json!({ "prefix": "progress clear" }));
    assert_eq!(known(&mut t), (0, 0));
    report(&mut t, recovering, 30);
    assert_eq!(known(&mut t), (1, 0));
    assert_eq!(t.run(json!({ "prefix": "progress off" })), "progress disabled");
    assert_eq!(t.run(json!({ "prefix": "progress off" })), "progress already disabled!");
    report(&mut t, recovering, 20);
    assert_eq!(known(&mut t), (0, 0));
    assert_eq!(t.run(json!({ "prefix": "progress on" })), "progress enabled");
    report(&mut t, recovering, 10);
    assert_eq!(known(&mut t), (1, 0));
}

#[test]
fn recovery_progress_survives_a_change_of_primary() {
    let (mut t, conns) = TestMon::with_osds(3);
    let pool = t.create_pool("p", 1);
    t.activate(&conns, pool);
    let recovered = |t: &mut TestMon, bytes: u64| {
        let map = t.map();
        let pg = map.pgs(pool).next().unwrap();
        let primary = map.pg_to_up_acting(pg).acting_primary.unwrap();
        let counts = PgCounts {
            work: Work { recovered_bytes: bytes, reads: 1, ..Work::default() },
            ..PgCounts::default()
        };
        let pgs = vec![PgReport { counts, ..pg_report(&map, pg) }];
        let report = OsdReport { osd: Some(primary), epoch: map.epoch, pgs, ..OsdReport::default() };
        t.send(conns[primary.index()], DaemonMsg::Report(report));
        let sum = t.json(json!({ "prefix": "pg dump", "dumpcontents": ["sum"] }));
        let sum = &sum["pg_map"]["pg_stats_sum"]["stat_sum"];
        (primary, sum["num_bytes_recovered"].as_u64().unwrap(), sum["num_read"].as_u64().unwrap())
    };
    assert_eq!(recovered(&mut t, 10).1, 10);
    let (first, ..) = recovered(&mut t, 12);
    t.run(json!({ "prefix": "osd down", "ids": [first.to_string()] }));
    let (second, all, reads) = recovered(&mut t, 5);
    assert_eq!((second == first, all, reads), (false, 17, 2));
    assert_eq!(recovered(&mut t, 8).1, 20);
    assert_eq!(recovered(&mut t, 2).1, 22, "it was started again");
}
