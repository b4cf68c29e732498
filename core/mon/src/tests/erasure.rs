//! Erasure code profiles and their rules.

use super::*;
use std::sync::Arc;

fn set(t: &mut TestMon, name: &str, profile: &[&str], force: bool) -> (i32, String) {
    let command = json!({
        "prefix": "osd erasure-code-profile set", "name": name, "profile": profile, "force": force,
    });
    let (code, said, _) = t.command(command);
    (code, said)
}

fn get(t: &mut TestMon, name: &str) -> String {
    t.run(json!({ "prefix": "osd erasure-code-profile get", "name": name }))
}

#[test]
fn profile_is_completed_with_the_defaults_of_its_plugin() {
    let (mut t, _) = TestMon::with_osds(3);
    assert_eq!(set(&mut t, "a", &["k=4", "m=2", "crush-failure-domain=osd"], false), (0, String::new()));
    let completed = "crush-device-class=\ncrush-failure-domain=osd\ncrush-root=default\n\
                     jerasure-per-chunk-alignment=false\nk=4\nm=2\nplugin=jerasure\ntechnique=reed_sol_van\nw=8\n";
    assert_eq!(get(&mut t, "a"), completed);
    // Another plugin takes none of the default profile's settings.
    assert_eq!(set(&mut t, "b", &["plugin=isa"], false).0, 0);
    assert!(get(&mut t, "b").contains("k=7\nm=3\nplugin=isa\ntechnique=reed_sol_van\n"));
    // The same again is no change.
    assert_eq!(set(&mut t, "a", &["k=4", "m=2", "crush-failure-domain=osd"], false), (0, String::new()));
}

const TECHNIQUES: &str = "technique=nosuch is not a valid coding technique.  Choose one of the following: \
                          reed_sol_van, reed_sol_r6_op, cauchy_orig, cauchy_good, liberation, blaum_roth, \
                          liber8tion";

#[test]
fn wrong_profile_is_refused_with_the_text_of_its_plugin() {
    let (mut t, _) = TestMon::with_osds(3);
    for (profile, code, text) in [
        (&["k=1"][..], -22, "k=1 must be >= 2"),
        (
            &["plugin=lrc", "k=4", "m=2"],
            -4112,
            "All of k, m, l must be set or none of them in {k=4,l=-1,m=2,plugin=lrc}",
        ),
        (&["technique=nosuch"], -2, TECHNIQUES),
        (
            &["crush-failure-domain=nosuch"],
            -22,
            "erasure-code-profile {crush-failure-domain=nosuch,k=2,m=2,plugin=jerasure,\
             technique=reed_sol_van} contains an invalid failure-domain \"nosuch\"",
        ),
        (
            &["stripe_unit=100"],
            -22,
            "stripe_unit 100 does not match ec profile alignment. Would be padded to 128",
        ),
        (
            &["stripe_unit=8000"],
            -22,
            "stripe_unit should be a multiple of 4096 bytes for best performance.use --force to override this \
             check",
        ),
        (
            &["ruleset-root=x"],
            -22,
            "property 'ruleset-root' is no longer supported; try 'crush-root' instead",
        ),
    ] {
        assert_eq!(set(&mut t, "p", profile, false), (code, text.to_string()), "{profile:?}");
    }
    assert_eq!(set(&mut t, "p", &["plugin=shec"], false).0, -95);
    assert_eq!(set(&mut t, "p", &["stripe_unit=8000"], true).0, 0);
}

#[test]
fn profile_is_replaced_only_by_force_and_kept_while_used() {
    let (mut t, _) = TestMon::with_osds(3);
    assert_eq!(set(&mut t, "p", &["k=2", "m=1"], false).0, 0);
    let (code, said) = set(&mut t, "p", &["k=3", "m=1"], false);
    assert_eq!(code, -1);
    let shown = |k: u8| {
        format!(
            "{{crush-device-class=,crush-failure-domain=host,crush-root=default,\
             jerasure-per-chunk-alignment=false,k={k},m=1,plugin=jerasure,technique=reed_sol_van,w=8}}"
        )
    };
    assert_eq!(
        said,
        format!(
            "will not override erasure code profile p because the existing profile {} is different from the \
             proposed profile {}",
            shown(2),
            shown(3)
        )
    );
    assert_eq!(set(&mut t, "p", &["k=3", "m=1"], true).0, 0);
    assert!(get(&mut t, "p").contains("k=3\n"));
    let rm = json!({ "prefix": "osd erasure-code-profile rm", "name": "p" });
    assert_eq!(t.command(rm.clone()).0, 0);
    assert_eq!(t.command(rm).1, "erasure-code-profile p does not exist");
    // The default one comes back when it is needed.
    t.run(json!({ "prefix": "osd erasure-code-profile rm", "name": "default" }));
    assert!(!t.map().erasure_code_profiles.contains_key("default"));
    t.run(json!({ "prefix": "osd crush rule create-erasure", "name": "coded" }));
    assert!(get(&mut t, "default").contains("k=2\nm=2\nplugin=jerasure\n"));
    let (code, said, _) =
        t.command(json!({ "prefix": "osd crush rule create-erasure", "name": "r", "profile": "nosuch" }));
    assert!(
        code == -22 && said.ends_with("there is no 'plugin' entry in the erasure_code_profile {}"),
        "{said}"
    );
}

#[test]
fn rule_has_the_steps_of_its_profile() {
    let (mut t, _) = TestMon::with_osds(3);
    assert_eq!(set(&mut t, "p", &["k=4", "m=2", "crush-failure-domain=osd"], false).0, 0);
    let local = ["plugin=lrc", "k=4", "m=2", "l=3", "crush-locality=rack"];
    assert_eq!(set(&mut t, "local", &local, false).0, 0);
    let create = |name: &str, profile: &str| {
        let prefix = "osd crush rule create-erasure";
        json!({ "prefix": prefix, "name": name, "profile": profile })
    };
    assert_eq!(t.command(create("coded", "p")).1, "created rule coded at 1");
    assert_eq!(t.command(create("coded", "p")).1, "rule coded already exists");
    assert_eq!(t.command(create("racks", "local")).0, 0);
    assert_eq!(t.command(create("none", "unknown")).0, -22);
    let rule = |t: &mut TestMon, name: &str| -> Value {
        let dump = t.run(json!({ "prefix": "osd crush rule dump", "name": name, "format": "json" }));
        serde_json::from_str(&dump).unwrap()
    };
    let coded = rule(&mut t, "coded");
    assert_eq!((&coded["type"], &coded["min_size"], &coded["max_size"]), (&json!(3), &json!(3), &json!(6)));
    assert_eq!(coded["steps"][3], json!({ "op": "choose_indep", "num": 0, "type": "osd" }));
    let racks = rule(&mut t, "racks");
    assert_eq!(racks["max_size"], 8);
    assert_eq!(racks["steps"][3], json!({ "op": "choose_indep", "num": 2, "type": "rack" }));
    assert_eq!(racks["steps"][4], json!({ "op": "chooseleaf_indep", "num": 4, "type": "host" }));
}

/// It was accepted by a version with fewer checks, and could not be replaced any more.
#[test]
fn wrong_profile_of_an_older_version_is_replaced_by_force() {
    let (mut t, _) = TestMon::with_osds(3);
    assert_eq!(set(&mut t, "p", &["k=2", "m=1"], false).0, 0);
    let map = &mut t.mon.state.as_mut().unwrap().osdmap.map;
    let profile = Arc::make_mut(map).erasure_code_profiles.get_mut("p").unwrap();
    profile.insert("k".into(), "1".into());
    assert_eq!(set(&mut t, "p", &["k=3", "m=1"], false).0, -1);
    assert_eq!(set(&mut t, "p", &["k=3", "m=1"], true), (0, String::new()));
    assert!(get(&mut t, "p").contains("k=3\n"));
}

fn create(t: &mut TestMon, name: &str, profile: &str) -> (i32, String) {
    let command = json!({
        "prefix": "osd pool create", "pool": name, "pg_num": 8, "pool_type": "erasure",
        "erasure_code_profile": profile,
    });
    let (code, said, _) = t.command(command);
    (code, said)
}
fn set_pool(t: &mut TestMon, var: &str, val: &str) -> (i32, String) {
    let (code, said, _) = t.command(json!({ "prefix": "osd pool set", "pool": "p", "var": var, "val": val }));
    (code, said)
}

#[test]
fn pool_has_the_chunks_of_its_profile_and_a_rule_of_its_own() {
    let (mut t, _) = TestMon::with_osds(3);
    assert_eq!(set(&mut t, "code", &["k=2", "m=1", "crush-failure-domain=osd"], false).0, 0);
    assert_eq!(create(&mut t, "p", "code"), (0, "pool 'p' created".into()));
    let map = t.map();
    let pool = map.pool(map.pool_by_name("p").unwrap()).unwrap();
    assert!(pool.is_erasure());
    assert_eq!((pool.size, pool.min_size, pool.stripe_width), (3, 2, 8192));
    assert_eq!(map.crush.rule_by_name("p"), Some(pool.crush_rule.into()));
    let placed = map.pg_to_up_acting(map.pgs(map.pool_by_name("p").unwrap()).next().unwrap());
    assert!(placed.has_shards && placed.up.iter().all(|osd| osd.is_some()));
    // With more parity, one chunk more than the data is needed for service.
    assert_eq!(create(&mut t, "q", "").0, 0);
    let map = t.map();
    let pool = map.pool(map.pool_by_name("q").unwrap()).unwrap();
    assert_eq!((pool.size, pool.min_size, &*pool.erasure_code_profile), (4, 3, "default"));
    assert!(map.crush.rule_by_name("erasure-code").is_some());
    assert_eq!(create(&mut t, "r", "unknown").0, -22);
    assert_eq!(create(&mut t, "p", "code"), (0, "pool 'p' already exists".into()));
    // A rule that is named must be there.
    let with_rule = |rule: &str| {
        json!({
            "prefix": "osd pool create", "pool": "s", "pg_num": 8, "pool_type": "erasure",
            "erasure_code_profile": "code", "rule": rule,
        })
    };
    let (code, said, _) = t.command(with_rule("unknown"));
    assert_eq!((code, &*said), (-2, "specified rule unknown doesn't exist"));
    assert_eq!(t.command(with_rule("p")).0, 0);
}

#[test]
fn settings_of_an_erasure_coded_pool_stay_within_what_it_can() {
    let (mut t, osds) = TestMon::with_osds(3);
    assert_eq!(set(&mut t, "code", &["k=2", "m=1", "crush-failure-domain=osd"], false).0, 0);
    assert_eq!(create(&mut t, "p", "code").0, 0);
    let pool = t.map().pool_by_name("p").unwrap();
    t.activate(&osds, pool);
    t.report(&osds, pool);
    assert_eq!(set_pool(&mut t, "size", "4").0, -95);
    assert_eq!(set_pool(&mut t, "min_size", "1").0, -22);
    assert_eq!(set_pool(&mut t, "min_size", "3").0, 0);
    assert_eq!(set_pool(&mut t, "fast_read", "true").0, 0);
    assert!(t.map().pool(pool).unwrap().fast_read);
    assert_eq!(set_pool(&mut t, "pg_num", "4").0, -95);
    assert_eq!(set_pool(&mut t, "allow_ec_overwrites", "true").0, 0);
    let refused = (-22, "ec overwrites cannot be disabled once enabled".to_string());
    assert_eq!(set_pool(&mut t, "allow_ec_overwrites", "false"), refused);
    let get =
        |t: &mut TestMon, var: &str| t.run(json!({ "prefix": "osd pool get", "pool": "p", "var": var }));
    assert_eq!(get(&mut t, "allow_ec_overwrites"), "allow_ec_overwrites: true\n");
    assert_eq!(get(&mut t, "erasure_code_profile"), "erasure_code_profile: code\n");
    // What is stored is encoded by the profile.
    let (code, said) = set(&mut t, "code", &["k=3", "m=1", "crush-failure-domain=osd"], true);
    assert!(code == -16 && said.starts_with("p pool(s) are using the erasure code profile 'code'"), "{said}");
    assert_eq!(set(&mut t, "code", &["k=2", "m=1", "crush-failure-domain=host"], true).0, 0);
}

#[test]
fn a_member_with_another_shard_than_its_place_is_moved_before_activation() {
    let (mut t, conns) = TestMon::with_osds(4);
    assert_eq!(set(&mut t, "code", &["k=2", "m=1", "crush-failure-domain=osd"], false).0, 0);
    assert_eq!(create(&mut t, "p", "code").0, 0);
    let pool = t.map().pool_by_name("p").unwrap();
    t.activate(&conns, pool);
    t.run(json!({ "prefix": "osd out", "ids": ["3"] }));
    t.activate(&conns, pool);
    // osd.3 comes to the place of the one that goes. It holds another shard, or so its primary says.
    let map = t.map();
    let is_led_by_two = |pg: &PgId| map.pg_to_up_acting(*pg).acting_primary != Some(OsdId(2));
    let pg = map.pgs(pool).find(is_led_by_two).unwrap();
    let record = t.mon.state.as_ref().unwrap().pgs.records[&pg].clone();
    t.run(json!({ "prefix": "osd down", "ids": ["2"] }));
    t.run(json!({ "prefix": "osd in", "ids": ["3"] }));
    t.run(json!({ "prefix": "osd out", "ids": ["2"] }));
    let placed = t.map().pg_to_up_acting(pg);
    let place = placed.acting.iter().position(|osd| *osd == OsdId(3)).unwrap();
    assert!(place < 3 && !placed.acting.contains(&OsdId(2)), "{placed:?}");
    let mut moved = placed.acting.clone();
    moved[place] = OsdId::NONE;
    moved.resize(6, OsdId::NONE);
    moved[3 + (place + 1) % 3] = OsdId(3);
    while moved.last() == Some(&OsdId::NONE) {
        moved.pop();
    }
    let primary = conns[placed.acting_primary.unwrap().index()];
    let wish = |acting: &[OsdId]| {
        DaemonMsg::Rearrange(vec![PgWish { pg, record: record.clone(), acting: acting.to_vec() }])
    };
    // Others than the members may not come in this way.
    let mut others = moved.clone();
    others[place] = OsdId(2);
    t.send(primary, wish(&others));
    assert_eq!(t.map().pg_to_up_acting(pg).acting, placed.acting);
    t.send(primary, wish(&moved));
    assert_eq!(t.map().pg_to_up_acting(pg).acting, moved);
    // It stays there when the map changes.
    t.run(json!({ "prefix": "osd reweight", "id": 1, "weight": 0.9 }));
    assert_eq!(t.map().pg_to_up_acting(pg).acting, moved);
}
