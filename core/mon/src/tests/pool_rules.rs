//! What of a pool its CRUSH rule and its flags fix.

use super::*;

#[test]
fn size_and_rule_of_a_pool_must_fit() {
    let (mut t, _) = TestMon::with_osds(3);
    t.run(json!({ "prefix": "osd crush rule create-replicated", "name": "small", "root": "default", "type": "osd" }));
    let mut crush = t.map().crush.as_ref().clone();
    let id = crush.rule_by_name("small").unwrap();
    let small = crush.rules[id as usize].as_mut().unwrap();
    (small.min_size, small.max_size) = (2, 3);
    let set_map = |t: &mut TestMon, crush: &nacre_crush::CrushMap| {
        let bytes = nacre_wire::to_vec(crush);
        let (code, said, _) = t.command_with(json!({ "prefix": "osd setcrushmap" }), bytes.into());
        (code, said)
    };
    assert_eq!(set_map(&mut t, &crush).0, 0);
    t.create_pool("p", 8);
    let set = |t: &mut TestMon, var: &str, val: &str| {
        let command = json!({ "prefix": "osd pool set", "pool": "p", "var": var, "val": val });
        let (code, said, _) = t.command(command);
        (code, said)
    };
    let bigger = (-22, "pool size is bigger than the crush rule max size".to_string());
    assert_eq!(set(&mut t, "size", "4").0, 0);
    assert_eq!(set(&mut t, "crush_rule", "small"), bigger);
    assert_eq!(set(&mut t, "size", "3").0, 0);
    assert_eq!(set(&mut t, "crush_rule", "small").0, 0);
    assert_eq!(set(&mut t, "size", "4"), bigger);
    let create =
        |size: u64| json!({ "prefix": "osd pool create", "pool": "q", "rule": "small", "size": size });
    assert_eq!(t.command(create(4)).0, -22);
    assert_eq!(t.command(create(2)).0, 0);
    crush.rules[id as usize].as_mut().unwrap().max_size = 2;
    let (code, said) = set_map(&mut t, &crush);
    assert_eq!(code, -22);
    assert_eq!(said, format!("pool 1 size 3 does not fall within rule {id} min_size 2 and max_size 2"));
    assert_eq!(set(&mut t, "nosizechange", "1").0, 0);
    for var in ["size", "min_size"] {
        let (code, said) = set(&mut t, var, "2");
        assert!(
            code == -1 && said.ends_with("you must unset nosizechange flag for the pool first"),
            "{said}"
        );
    }
}

#[test]
fn pool_can_be_made_to_fail_and_says_so_only_then() {
    let (mut t, _) = TestMon::with_osds(3);
    let id = t.create_pool("p", 8);
    let set = |val: &str| json!({ "prefix": "osd pool set", "pool": "p", "var": "eio", "val": val });
    let get = |var: &str| json!({ "prefix": "osd pool get", "pool": "p", "var": var });
    assert!(!t.run(get("all")).contains("eio"), "as Pacific");
    assert_eq!(t.run(get("eio")), "eio: false\n");
    t.run(set("true"));
    assert!(t.map().pools[&id].has(pool_flags::EIO) && t.run(get("all")).contains("eio: true\n"));
    t.run(set("0"));
    assert!(!t.map().pools[&id].has(pool_flags::EIO));
}

#[test]
fn commands_for_newer_clients_say_why_they_are_refused() {
    let (mut t, _) = TestMon::with_osds(3);
    t.create_pool("p", 8);
    for command in [
        json!({ "prefix": "osd pg-upmap-primary", "pgid": "1.0", "id": 1 }),
        json!({ "prefix": "osd rm-pg-upmap-primary", "pgid": "1.0" }),
        json!({ "prefix": "balancer mode", "mode": "upmap-read" }),
        json!({ "prefix": "osd pool set", "pool": "p", "var": "read_ratio", "val": "50" }),
        json!({ "prefix": "mon set_location", "name": "a", "args": ["datacenter=x"] }),
    ] {
        let (code, said, _) = t.command(command.clone());
        assert!(code == -95 && said.starts_with("not in Nacre: "), "{command}: {code} {said}");
    }
    let (code, said, _) =
        t.command(json!({ "prefix": "osd set-require-min-compat-client", "version": "reef" }));
    assert!(code == -1 && said.starts_with("not in Nacre: cannot require reef, "), "{said}");
}

#[test]
fn existing_pool_is_not_created_with_another_type() {
    let (mut t, _) = TestMon::with_osds(3);
    t.create_pool("p", 8);
    let create = |kind: &str| json!({ "prefix": "osd pool create", "pool": "p", "pool_type": kind });
    assert_eq!(t.run(create("replicated")), "pool 'p' already exists");
    let (code, said, _) = t.command(create("erasure"));
    assert_eq!((code, &*said), (-22, "pool 'p' cannot change to type erasure"));
}
