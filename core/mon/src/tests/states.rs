//! What is said of clusters that are not as they should be.

use super::*;

/// A pool of one placement group on three OSDs, and its primary.
struct OneGroup {
    t: TestMon,
    conns: Vec<ConnId>,
    pg: PgId,
    primary: OsdId,
}

impl OneGroup {
    fn new() -> OneGroup {
        let (mut t, conns) = TestMon::with_osds(3);
        let pool = t.create_pool("p", 1);
        t.run(json!({ "prefix": "osd pool application enable", "pool": "p", "app": "rados" }));
        t.activate(&conns, pool);
        let map = t.map();
        let pg = map.pgs(pool).next().unwrap();
        let primary = map.pg_to_up_acting(pg).acting_primary.unwrap();
        OneGroup { t, conns, pg, primary }
    }
    fn report(&mut self, edit: impl FnOnce(&mut PgReport)) {
        let map = self.t.map();
        let mut group = pg_report(&map, self.pg);
        edit(&mut group);
        let report =
            OsdReport { osd: Some(self.primary), epoch: map.epoch, pgs: vec![group], ..OsdReport::default() };
        self.t.send(self.conns[self.primary.index()], DaemonMsg::Report(report));
    }
    fn checks(&mut self) -> Value {
        self.t.json(json!({ "prefix": "health", "detail": "detail" }))["checks"].clone()
    }
    fn row(&mut self) -> Value {
        self.t.json(json!({ "prefix": "pg ls" }))["pg_stats"][0].clone()
    }
}

#[test]
fn slow_requests_warning_names_the_daemons() {
    let (mut t, conns) = TestMon::with_osds(3);
    let report = |t: &mut TestMon, osd: usize, count: u32, oldest_secs: u32| {
        let slow = SlowOps { count, oldest_secs };
        let report = OsdReport { osd: Some(OsdId(osd as i32)), slow, ..OsdReport::default() };
        t.send(conns[osd], DaemonMsg::Report(report));
        t.json(json!({ "prefix": "health", "detail": "detail" }))["checks"]["SLOW_OPS"].clone()
    };
    let warning = report(&mut t, 1, 2, 35);
    let said = |warning: &Value| warning["summary"]["message"].as_str().unwrap().to_string();
    assert_eq!(said(&warning), "2 slow ops, oldest one blocked for 35 sec, osd.1 has slow ops.");
    assert_eq!((&warning["severity"], &warning["summary"]["count"]), (&json!("HEALTH_WARN"), &json!(2)));
    let warning = report(&mut t, 2, 1, 40);
    assert_eq!(
        said(&warning),
        "3 slow ops, oldest one blocked for 40 sec, daemons [osd.1,osd.2] have slow ops."
    );
    let line = &warning["detail"][1]["message"];
    assert_eq!(line, "osd.2 has 1 slow ops, oldest one blocked for 40 sec");
    t.run(json!({ "prefix": "osd down", "ids": ["1"] }));
    assert!(said(&report(&mut t, 2, 1, 45)).ends_with("osd.2 has slow ops."), "who is down has none");
    assert!(report(&mut t, 2, 0, 0).is_null());
}

#[test]
fn pg_stat_shows_recovery_as_status_does() {
    let mut g = OneGroup::new();
    let recovered =
        |n: u64| Work { recovered_objects: n, recovered_bytes: n << 20, writes: n, ..Work::default() };
    for n in 0..20 {
        g.report(|group| {
            group.state = pg_state::ACTIVE | pg_state::DEGRADED | pg_state::RECOVERING;
            group.counts = PgCounts { degraded: 1, misplaced: 2, work: recovered(100 * n), ..group.counts };
        });
        g.t.pass(Duration::from_secs(1));
    }
    let stat = g.t.json(json!({ "prefix": "pg stat" }))["pg_summary"].clone();
    let status = g.t.json(json!({ "prefix": "status" }))["pgmap"].clone();
    for key in [
        "degraded_objects",
        "degraded_total",
        "degraded_ratio",
        "misplaced_objects",
        "misplaced_ratio",
        "recovering_objects_per_sec",
        "recovering_bytes_per_sec",
        "recovering_keys_per_sec",
        "num_objects_recovered",
        "num_keys_recovered",
    ] {
        assert!(stat[key].is_number() && stat[key] == status[key], "{key}: {stat} {status}");
    }
    assert_eq!((&status["read_op_per_sec"], &status["read_bytes_sec"]), (&json!(0), &Value::Null));
    assert!(stat["io_sec"].as_u64().unwrap() > 0, "{stat}");
    let text = g.t.run(json!({ "prefix": "pg stat" }));
    assert!(
        text.contains("2/6 objects misplaced (33.333%)") && text.contains("objects/s recovering"),
        "{text}"
    );
    let text = g.t.run(json!({ "prefix": "osd pool stats" }));
    assert!(text.contains("  2/6 objects misplaced (33.333%)\n  recovery io "), "{text}");
    let text = g.t.run(json!({ "prefix": "osd status" }));
    let head = "ID  HOST  USED  AVAIL  WR OPS  WR DATA  RD OPS  RD DATA  STATE";
    assert_eq!(text.lines().next().unwrap().trim_end(), head);
    assert!(text.contains(" 100  "), "what the primary wrote in a second: {text}");
}

#[test]
fn misplaced_objects_warn_only_if_enabled() {
    let mut g = OneGroup::new();
    g.report(|group| group.counts.misplaced = 2);
    assert!(g.checks()["OBJECT_MISPLACED"].is_null());
    g.t.run(
        json!({ "prefix": "config set", "who": "mon", "name": "mon_warn_on_misplaced", "value": "true" }),
    );
    assert_eq!(g.checks()["OBJECT_MISPLACED"]["summary"]["message"], "2/6 objects misplaced (33.333%)");
}

#[test]
fn unfound_objects_are_an_error_that_names_the_pg() {
    let mut g = OneGroup::new();
    g.report(|group| {
        group.state = pg_state::ACTIVE | pg_state::DEGRADED | pg_state::RECOVERY_UNFOUND;
        group.counts.unfound = 1;
    });
    let (pg, checks) = (g.pg, g.checks());
    assert_eq!(checks["PG_DAMAGED"]["summary"]["message"], "Possible data damage: 1 pg recovery_unfound");
    assert_eq!(checks["PG_DAMAGED"]["severity"], "HEALTH_ERR");
    assert_eq!(
        checks["OBJECT_UNFOUND"]["detail"][0]["message"],
        format!("pg {pg} has 1 unfound objects").as_str()
    );
    let listed = g.t.json(json!({ "prefix": "pg ls", "states": ["recovery_unfound"] }));
    assert_eq!(listed["pg_stats"][0]["state"], "active+recovery_unfound+degraded");
    // Groups of ours are never in these, but scripts ask.
    let none = g.t.json(json!({ "prefix": "pg ls", "states": ["recovery_toofull", "snaptrim_error"] }));
    assert_eq!(none["pg_stats"], json!([]));
    assert_eq!(g.t.run(json!({ "prefix": "pg ls", "states": ["recovery_toofull"] })), "");
    let (code, said, _) = g.t.command(json!({ "prefix": "pg ls", "states": ["nosuch"] }));
    assert!(code == -22 && said.contains("available choices: stale+creating+active"), "{said}");
}

#[test]
fn last_clean_epoch_is_known_to_a_new_primary() {
    let mut g = OneGroup::new();
    g.report(|_| {});
    let before = g.row();
    g.t.pass(Duration::from_secs(30));
    g.report(|group| {
        group.state = pg_state::PEERED | pg_state::UNDERSIZED | pg_state::DEGRADED;
        (group.last_active, group.last_clean) = (Utime::ZERO, Utime::ZERO);
    });
    let row = g.row();
    for key in ["last_active", "last_clean", "last_undegraded", "last_fullsized"] {
        assert_eq!(row[key], before["last_fresh"], "{key}");
    }
    assert_eq!(row["last_peered"], row["last_fresh"]);
    let stuck = |g: &mut OneGroup, kind: &str| {
        let found = g.t.json(json!({ "prefix": "pg dump_stuck", "stuckops": [kind] }));
        found["stuck_pg_stats"].as_array().unwrap().len()
    };
    assert_eq!((stuck(&mut g, "inactive"), stuck(&mut g, "undersized")), (0, 0), "30 of 60 seconds");
    g.t.pass(Duration::from_secs(31));
    assert_eq!((stuck(&mut g, "inactive"), stuck(&mut g, "undersized")), (1, 1));
}

#[test]
fn pg_dump_prints_its_tables_side_by_side() {
    let mut g = OneGroup::new();
    g.report(|_| {});
    let some = g.t.json(json!({ "prefix": "pg dump", "dumpcontents": ["pgs", "osds"] }));
    assert!(
        some["pg_stats"].is_array() && some["osd_stats"].is_array() && some["pg_map"].is_null(),
        "{some}"
    );
    let all = g.t.json(json!({ "prefix": "pg dump", "dumpcontents": ["all", "osds"] }));
    assert!(all["pg_map"]["pg_stats"].is_array() && all["osd_stats"].is_null(), "{all}");
}

#[test]
fn too_many_or_too_few_pgs_are_a_warning() {
    let mut g = OneGroup::new();
    g.report(|_| {});
    let set = |g: &mut OneGroup, name: &str, value: &str| {
        g.t.run(json!({ "prefix": "config set", "who": "mon", "name": name, "value": value }));
    };
    assert_eq!(g.checks(), json!({}));
    set(&mut g, "mon_pg_warn_min_per_osd", "30");
    assert_eq!(g.checks()["TOO_FEW_PGS"]["summary"]["message"], "too few PGs per OSD (1 < min 30)");
    let pool = g.t.create_pool("many", 8);
    g.t.run(json!({ "prefix": "osd pool set", "pool": "many", "var": "pgp_num", "val": "4" }));
    let conns = g.conns.clone();
    g.t.report(&conns, pool);
    set(&mut g, "mon_max_pg_per_osd", "5");
    let checks = g.checks();
    assert_eq!(checks["TOO_MANY_PGS"]["summary"]["message"], "too many PGs per OSD (9 > max 5)");
    assert_eq!(checks["SMALLER_PGP_NUM"]["summary"]["message"], "1 pools have pg_num > pgp_num");
    assert_eq!(checks["SMALLER_PGP_NUM"]["detail"][0]["message"], "pool 'many' pg_num 8 > pgp_num 4");
}

#[test]
fn one_pool_with_many_times_the_objects_of_others_is_a_warning() {
    let mut g = OneGroup::new();
    let many = g.t.create_pool("empty", 32);
    let conns = g.conns.clone();
    g.t.report(&conns, many);
    g.report(|group| group.counts.objects = 20_000);
    let warning = &g.checks()["MANY_OBJECTS_PER_PG"];
    assert_eq!(warning["summary"]["message"], "1 pools have many more objects per pg than average");
    let line = warning["detail"][0]["message"].as_str().unwrap();
    assert!(line.starts_with("pool p objects per pg (20000) is more than 32."), "{line}");
}

#[test]
fn mutes_are_listed_with_their_time() {
    let mut t = TestMon::with_osds(3).0;
    let mute = |ttl: &str, sticky: bool| json!({ "prefix": "health mute", "code": "OSD_DOWN", "ttl": ttl, "sticky": sticky });
    let (code, said, _) = t.command(mute("10x", false));
    assert_eq!((code, &*said), (-22, "invalid duration: 10x"), "before it is looked up");
    assert_eq!(t.command(mute("1h", false)).0, -2);
    t.run(mute("1h", true));
    let text = t.run(json!({ "prefix": "health" }));
    assert!(text.ends_with(" (muted: OSD_DOWN(60m))\n"), "{text}");
    let text = t.run(json!({ "prefix": "status" }));
    assert!(text.contains("            (muted: OSD_DOWN(60m))\n"), "{text}");
    t.run(json!({ "prefix": "osd down", "ids": ["0"] }));
    let text = t.run(json!({ "prefix": "health", "detail": "detail" }));
    assert!(text.contains("\n(MUTED ttl 60m, STICKY) [WRN] OSD_DOWN: 1 osds down\n"), "{text}");
    t.run(mute("5s", false));
    t.pass(Duration::from_secs(10));
    let log = t.run(json!({ "prefix": "log last", "num": 10 }));
    assert!(log.contains("[INF] Health alert mute OSD_DOWN cleared (passed TTL "), "{log}");
}

#[test]
fn pools_with_noscrub_are_reported_without_warning() {
    let mut g = OneGroup::new();
    g.report(|_| {});
    g.t.run(json!({ "prefix": "osd pool set", "pool": "p", "var": "noscrub", "val": "1" }));
    let text = g.t.run(json!({ "prefix": "health", "detail": "detail" }));
    let summary = "Some pool(s) have the noscrub flag(s) set";
    let expected =
        format!("HEALTH_OK {summary}\n[OK] POOL_SCRUB_FLAGS: {summary}\n    Pool p has noscrub flag\n");
    assert_eq!(text, expected);
}

#[test]
fn flags_are_reported_by_kind_with_the_count_of_osds() {
    let mut t = TestMon::with_osds(3).0;
    assert!(!t.run(json!({ "prefix": "osd stat" })).contains("flags"));
    t.run(json!({ "prefix": "osd set", "key": "noout" }));
    let text = t.run(json!({ "prefix": "osd stat" }));
    assert!(text.ends_with("\nflags noout\n"), "{text}");
    let group = |who: &str| json!({ "prefix": "osd set-group", "flags": "noin", "who": [who] });
    t.run(group("default"));
    let health = t.run(json!({ "prefix": "health", "detail": "detail" }));
    assert!(health.contains("\n    root default has flags noin"), "{health}");
    assert_eq!(t.run(group("osd.77")), "osd.77 does not exist. ");
    assert_eq!(t.command(group("nosuch")).0, -22);
}

#[test]
fn health_shows_location_of_down_bucket_and_cause_of_full_pool() {
    let (mut t, conns) = TestMon::with_osds(1);
    t.create_pool("p", 1);
    let space = OsdSpace { total: 100 << 30, available: 1 << 30, ..OsdSpace::default() };
    t.send(conns[0], DaemonMsg::Report(OsdReport { osd: Some(OsdId(0)), space, ..OsdReport::default() }));
    t.pass(Duration::from_secs(2));
    let health = t.run(json!({ "prefix": "health", "detail": "detail" }));
    assert!(health.contains("\n    pool 'p' is full (no space)"), "{health}");
    assert!(t.run(json!({ "prefix": "osd info", "id": "0" })).contains(" exists,full,up "), "in order");
    t.run(json!({ "prefix": "osd down", "ids": ["0"] }));
    let health = t.run(json!({ "prefix": "health", "detail": "detail" }));
    assert!(
        health.contains(" (root=default) (1 osds) is down") && health.contains("root default (1 osds)"),
        "{health}"
    );
}

#[test]
fn the_space_of_an_osd_that_is_out_is_not_the_clusters() {
    let (mut t, conns) = TestMon::with_osds(3);
    for (osd, &conn) in conns.iter().enumerate() {
        let space = OsdSpace { total: 10 << 30, available: 4 << 30, ..OsdSpace::default() };
        let report = OsdReport { osd: Some(OsdId(osd as i32)), space, ..OsdReport::default() };
        t.send(conn, DaemonMsg::Report(report));
    }
    let total = |t: &mut TestMon| {
        let df = t.json(json!({ "prefix": "df" }));
        let status = t.json(json!({ "prefix": "status" }));
        assert_eq!(df["stats"]["total_bytes"], status["pgmap"]["bytes_total"]);
        df["stats"]["total_bytes"].as_u64().unwrap() >> 30
    };
    assert_eq!(total(&mut t), 30);
    t.run(json!({ "prefix": "osd out", "ids": ["2"] }));
    assert_eq!(total(&mut t), 20);
    let df = t.json(json!({ "prefix": "osd df" }));
    assert_eq!((&df["nodes"][2]["kb"], &df["summary"]["total_kb"]), (&json!(10 << 20), &json!(20 << 20)));
}

#[test]
fn an_osd_is_not_ok_to_stop_while_another_member_lacks_something_or_nothing_serves_anyway() {
    let mut g = OneGroup::new();
    let ask = |g: &mut OneGroup| {
        let (code, _, out) = g.t.command(json!({ "prefix": "osd ok-to-stop", "ids": ["0"] }));
        (code, serde_json::from_str::<Value>(&out).unwrap())
    };
    g.report(|_| {});
    assert_eq!(ask(&mut g).0, 0);
    g.report(|group| group.state = pg_state::ACTIVE | pg_state::DEGRADED | pg_state::RECOVERING);
    let (code, found) = ask(&mut g);
    assert_eq!((code, &found["bad_become_inactive"]), (-16, &json!([g.pg.to_string()])));
    g.report(|group| group.state = pg_state::PEERING);
    let (code, found) = ask(&mut g);
    assert_eq!((code, &found["bad_already_inactive"]), (-16, &json!([g.pg.to_string()])));
    assert_eq!((&found["num_ok_pgs"], &found["num_not_ok_pgs"]), (&json!(0), &json!(1)));
}

#[test]
fn removable_osd_is_purged_and_absent_one_is_no_error() {
    let mut t = TestMon::with_osds(3).0;
    let new = |id: i32| json!({ "prefix": "osd new", "uuid": format!("00000000-0000-0000-0000-00000000000{id}"), "id": id });
    let go = |t: &mut TestMon, prefix: &str, id: i32| {
        let (code, said, _) = t.command(json!({ "prefix": prefix, "id": id }));
        (code, said)
    };
    for id in 3..6 {
        t.run(new(id));
    }
    assert_eq!(go(&mut t, "osd purge", 3), (0, "purged osd.3".to_string()));
    for prefix in ["osd purge", "osd destroy"] {
        assert_eq!(go(&mut t, prefix, 3), (0, "osd.3 does not exist".to_string()));
    }
    assert_eq!(go(&mut t, "osd destroy", 4), (0, "destroyed osd.4".to_string()));
    assert_eq!(t.json(json!({ "prefix": "osd df" }))["stray"][0]["status"], "destroyed");
    assert_eq!(go(&mut t, "osd purge", 0), (-16, "osd.0 is not `down`.".to_string()));
    // `ceph-volume` takes back what it began.
    let sure = |id: i32| json!({ "prefix": "osd purge-new", "id": id, "yes_i_really_mean_it": true });
    assert_eq!(go(&mut t, "osd purge-new", 5).0, -1);
    assert_eq!(t.command(sure(0)).0, -1, "it ran");
    assert_eq!(t.run(sure(5)), "purged osd.5");
    assert_eq!(t.run(sure(5)), "osd.5 does not exist");
}

#[test]
fn stopped_osd_is_flagged_until_it_boots() {
    let mut t = TestMon::with_osds(2).0;
    let stop = json!({ "prefix": "osd stop", "ids": ["1"] });
    assert_eq!(t.run(stop.clone()), "stop osd.1. ");
    assert!(t.map().is_down(OsdId(1)) && t.map().osds[1].has(osd_state::STOP));
    assert_eq!(t.run(stop), "osd.1 is already stopped. ");
    t.boot(1, 6950, 2);
    assert!(t.map().is_up(OsdId(1)) && !t.map().osds[1].has(osd_state::STOP));
}

#[test]
fn declared_loss_of_an_osd_stays_in_the_map() {
    let mut t = TestMon::with_osds(2).0;
    t.run(json!({ "prefix": "osd down", "ids": ["1"] }));
    t.run(json!({ "prefix": "osd lost", "id": 1, "yes_i_really_mean_it": true }));
    let at = t.map().osds[1].info.lost_at;
    let text = t.run(json!({ "prefix": "osd info", "id": "1" }));
    assert!(text.contains(&format!(") lost_at {at} [v2:")), "{text}");
}

#[test]
fn a_filter_or_a_part_of_the_tree_that_is_none_is_refused() {
    let mut t = TestMon::with_osds(1).0;
    let df = json!({ "prefix": "osd df", "output_method": "plain", "filter_by": "name", "filter": "nosuch" });
    let (code, said, _) = t.command(df);
    assert_eq!((code, &*said), (-22, "'nosuch' not a pool, crush node or device class name"));
    for (bucket, code) in [("osd.0", -22), ("nosuch", -2)] {
        assert_eq!(t.command(json!({ "prefix": "osd tree-from", "bucket": bucket })).0, code);
    }
}

#[test]
fn osd_that_never_was_in_can_be_purged_while_pools_are_degraded() {
    let (mut t, conns) = TestMon::with_osds(3);
    let pool = t.create_pool("p", 1);
    t.activate(&conns, pool);
    t.run(json!({ "prefix": "osd new", "uuid": "00000000-0000-0000-0000-000000000007", "id": 3 }));
    t.run(json!({ "prefix": "osd down", "ids": ["2"] }));
    let purge = |id: i32| json!({ "prefix": "osd purge", "id": id, "yes_i_really_mean_it": true });
    assert_eq!(t.run(purge(3)), "purged osd.3");
    assert_ne!(t.command(purge(2)).0, 0, "it may be needed");
}
