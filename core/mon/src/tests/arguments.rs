//! What commands say of odd arguments: what Ceph 16.2.15 says of them.

use super::*;
use nacre_proto::messages::Command;

#[test]
fn settings_of_pools_take_what_they_take_in_ceph() {
    let (mut t, _) = TestMon::with_osds(3);
    t.create_pool("p", 8);
    for (code, var, val, said) in [
        (-22, "compression_mode", "bogus", "unrecognized compression mode 'bogus'"),
        (-22, "compression_algorithm", "bogus", "unrecognized compression_algorithm 'bogus'"),
        (-22, "compression_required_ratio", "8", "compression_required_ratio is out of range (0-1): '8'"),
        (-22, "csum_type", "bogus", "unrecognized csum_type 'bogus'"),
        (-22, "fingerprint_algorithm", "none", "unrecognized fingerprint_algorithm 'none'"),
        (-22, "recovery_priority", "50", "pool recovery_priority must be between -10 and 10"),
        (-22, "pg_autoscale_bias", "2000", "pg_autoscale_bias must be between 0 and 1000"),
        (-22, "pg_num_max", "4", "specified pg_num_max 4 < pg_num 8"),
        (-22, "pg_num_min", "16", "specified pg_num_min 16 > pg_num 8"),
        (-22, "pgp_num", "0", "specified pgp_num must > 0, but you set to 0"),
        (-22, "allow_ec_overwrites", "true", "ec overwrites can only be enabled for an erasure coded pool"),
        (-34, "pg_num", "-1", "'pg_num' must be greater than 0 and less than or equal to 65536"),
        (-13, "hit_set_period", "1", "pool 'p' is not a tier pool: variable not applicable"),
        (-13, "use_gmt_hitset", "1", "pool 'p' is not a tier pool: variable not applicable"),
        (0, "compression_mode", "force", "set pool 1 compression_mode to force"),
        (0, "compression_mode", "unset", "unset pool 1 compression_mode"),
        (0, "csum_type", "crc32c", "set pool 1 csum_type to crc32c"),
        (0, "target_size_bytes", "2Gi", "set pool 1 target_size_bytes to 2Gi"),
    ] {
        let command = json!({ "prefix": "osd pool set", "pool": "p", "var": var, "val": val });
        let (have, text, _) = t.command(command);
        assert_eq!((have, &*text), (code, said), "{var} {val}");
    }
    let all = t.json(json!({ "prefix": "osd pool ls", "detail": "detail" }));
    assert_eq!(all[0]["options"], json!({ "csum_type": 4, "target_size_bytes": 2_u64 << 30 }));
    let sum = t.run(json!({ "prefix": "osd pool get", "pool": "p", "var": "csum_type" }));
    assert_eq!(sum, "csum_type: crc32c\n");
    for (field, val, said) in [
        ("max_bytes", "10Mi", "set-quota max_bytes = 10485760 for pool p"),
        ("max_objects", "5K", "set-quota max_objects = 5000 for pool p"),
    ] {
        let quota = json!({ "prefix": "osd pool set-quota", "pool": "p", "field": field, "val": val });
        assert_eq!(t.run(quota), said);
    }
}

#[test]
fn new_pool_gets_the_default_crush_rule() {
    let (mut t, _) = TestMon::with_osds(3);
    let create = |more: Value| {
        let mut command = json!({ "prefix": "osd pool create", "pool": "p", "pg_num": 8 });
        command.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        command
    };
    for (code, said, more) in [
        (-22, "unknown pool type 'bogus'", json!({ "pool_type": "bogus" })),
        (
            -34,
            "'pgp_num' must be greater than 0 and lower or equal than 'pg_num', which in this case is 8",
            json!({ "pgp_num": 16 }),
        ),
        (
            -34,
            " pg_num 300 size 3 would mean 900 total pgs, which exceeds max 750 (mon_max_pg_per_osd 250 * num_in_osds 3)",
            json!({ "pg_num": 300 }),
        ),
        // `... replicated replicated_rule 0`: the number of objects lands in `rule`.
        (0, "pool 'p' created", json!({ "erasure_code_profile": "replicated_rule", "rule": "0" })),
    ] {
        let (have, text, _) = t.command(create(more));
        assert_eq!((have, &*text), (code, said));
    }
    t.run(json!({ "prefix": "config set", "who": "mon", "name": "mon_allow_pool_delete", "value": "true" }));
    let said = t.run(json!({
        "prefix": "osd pool rm", "pool": "p", "pool2": "p", "yes_i_really_really_mean_it_not_faking": true,
    }));
    assert_eq!(said, "pool 'p' removed");
}

#[test]
fn a_uuid_stands_for_one_osd() {
    let (mut t, _) = TestMon::with_osds(1);
    let uuid = |n: u8| format!("{n:02x}111111-1111-1111-1111-111111111111");
    let new = |n: u8, id: i32| json!({ "prefix": "osd new", "uuid": uuid(n), "id": id.to_string() });
    assert_eq!(t.json(json!({ "prefix": "osd new", "uuid": uuid(1) })), json!({ "osdid": 1 }));
    assert_eq!(t.run(new(1, 1)), "1\n");
    let (code, said, _) = t.command(new(1, 5));
    assert_eq!((code, said), (-17, format!("uuid {} already in use for different id 1", uuid(1))));
    let (code, said, _) = t.command(new(2, 1));
    assert_eq!((code, said), (-22, format!("id 1 already in use and does not match uuid {}", uuid(2))));
    assert_eq!(t.map().osd_ids().count(), 2);
}

#[test]
fn all_osds_may_be_meant_at_once() {
    let (mut t, conns) = TestMon::with_osds(3);
    let pool = t.create_pool("p", 8);
    t.activate(&conns, pool);
    t.report(&conns, pool);
    for word in ["all", "any", "*"] {
        for (code, prefix) in [(-16, "osd ok-to-stop"), (-16, "osd safe-to-destroy"), (-16, "osd rm")] {
            let (have, said, _) = t.command(json!({ "prefix": prefix, "ids": [word] }));
            assert_eq!(have, code, "{prefix} {word}: {said}");
        }
    }
    // Those that are up do not keep others from being removed.
    t.run(json!({ "prefix": "osd new" }));
    let said = t.run(json!({ "prefix": "osd rm", "ids": ["0", "3", "9"] }));
    assert_eq!(said, "osd.0 is still up; must be down before removal. osd.9 does not exist. removed osd.3");
    let line = t.run(json!({ "prefix": "osd info", "id": "1" }));
    assert!(line.starts_with("osd.1 up   in  weight 1 "), "{line}");
    assert_eq!(t.command(json!({ "prefix": "osd info", "id": "9" })).0, -22);
}

#[test]
fn pg_dump_can_show_single_sections() {
    let (mut t, conns) = TestMon::with_osds(3);
    let pool = t.create_pool("p", 1);
    t.activate(&conns, pool);
    t.report(&conns, pool);
    let mut headings = |what: &[&str]| -> Vec<String> {
        let (code, _, out) = t.command(json!({ "prefix": "pg dump", "dumpcontents": what }));
        assert_eq!(code, 0);
        let first = |line: &str| line.split_whitespace().next().unwrap_or_default().to_string();
        let known = ["version", "PG_STAT", "OSD_STAT", "POOLID", "*"];
        out.lines().map(first).filter(|word| known.contains(&&**word)).collect()
    };
    assert_eq!(headings(&["pgs"]), ["PG_STAT", "*"]);
    assert_eq!(headings(&["pools"]), ["POOLID", "*"]);
    assert_eq!(headings(&["osds"]), ["OSD_STAT"]);
    assert_eq!(headings(&["sum", "osds"]), ["version", "PG_STAT", "OSD_STAT", "*"]);
    assert_eq!(headings(&["delta"]), [""; 0]);
    // Scripts take the columns from the line that begins with this.
    assert_eq!(headings(&[]), ["version", "PG_STAT", "OSD_STAT", "*"]);
    assert_eq!(t.command(json!({ "prefix": "pg ls-by-osd", "osd": "9" })).0, -11);
}

#[test]
fn classes_are_shown_by_osd_and_trees_by_name() {
    let (mut t, _) = TestMon::with_osds(2);
    let class = |ids: &[&str]| json!({ "prefix": "osd crush get-device-class", "ids": ids });
    assert_eq!(t.run(class(&["0"])), "ssd\n");
    assert_eq!(t.run(class(&["0", "osd.1"])), "osd.0 ssd\nosd.1 ssd\n");
    assert_eq!(t.command(class(&["any"])).0, -22);
    assert_eq!(t.json(json!({ "prefix": "osd crush class ls-osd", "class": "nope" })), json!([]));
    let set = json!({ "prefix": "osd crush set-device-class", "class": "ssd", "ids": ["0", "7"] });
    let said = t.run(set);
    assert_eq!(said, "osd.7 does not exist. osd.0 already set to class ssd. set osd(s)  to class 'ssd'");

    for name in ["zebra", "ant"] {
        t.run(json!({ "prefix": "osd crush add-bucket", "name": name, "type": "rack", "args": ["root=default"] }));
    }
    let tree = t.json(json!({ "prefix": "osd crush tree" }));
    let names = |tree: &Value| -> Vec<String> {
        tree["nodes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|node| node["name"].as_str().unwrap().to_string())
            .collect()
    };
    let racks: Vec<String> =
        names(&tree).into_iter().filter(|name| ["zebra", "ant"].contains(&&**name)).collect();
    assert_eq!(racks, ["ant", "zebra"]);
    // An item is removed from the place that is named, and kept in others.
    t.run(json!({ "prefix": "osd crush add-bucket", "name": "bee", "type": "host", "args": ["rack=ant"] }));
    t.run(json!({ "prefix": "osd crush link", "name": "bee", "args": ["rack=zebra"] }));
    let rm = |ancestor: &str| json!({ "prefix": "osd crush rm", "name": "bee", "ancestor": ancestor });
    assert!(t.run(rm("zebra")).starts_with("removed item id "));
    assert!(t.map().crush.item_by_name("bee").is_some());
    assert!(t.run(rm("zebra")).ends_with(" does not appear in that position"));
    assert_eq!(t.command(rm("nope")).0, -2);
    let full = json!({ "prefix": "osd crush rm", "name": "default", "ancestor": "ant" });
    assert!(t.run(full).ends_with(" does not appear in that position"), "it is not looked at there");
    let heavy = json!({ "prefix": "osd crush reweight", "name": "osd.0", "weight": 1e6 });
    assert_eq!(t.command(heavy).0, -75);
    t.run(rm("default"));
    assert!(t.map().crush.item_by_name("bee").is_none());
    let shadows = t.json(json!({ "prefix": "osd crush tree", "shadow": "--show-shadow" }));
    assert!(names(&shadows).contains(&"default~ssd".to_string()), "{shadows}");
    for (code, said, from, to) in [
        (-20, "srcname = 'osd.0' is not a bucket because its id = 0 is >= 0", "osd.0", "foo"),
        (0, "srcname = 'nope' does not exist and dstname = 'ant' already exists", "nope", "ant"),
    ] {
        let rename = json!({ "prefix": "osd crush rename-bucket", "srcname": from, "dstname": to });
        let (have, text, _) = t.command(rename);
        assert_eq!((have, &*text), (code, said));
    }
}

/// They take part in decisions of OSDs, which are told by the monitors.
#[test]
fn osd_options_have_default_and_range() {
    let (mut t, _) = TestMon::with_osds(1);
    for (name, default, wrong) in [
        ("osd_max_backfills", "1", "abc"),
        ("osd_op_history_size", "20", "-1"),
        ("osd_op_history_duration", "600", "long"),
        ("osd_backoff_on_peering", "false", "maybe"),
    ] {
        let get = json!({ "prefix": "config get", "who": "osd.0", "key": name });
        assert_eq!(t.run(get).trim(), default, "{name}");
        let set = json!({ "prefix": "config set", "who": "osd", "name": name, "value": wrong });
        assert_eq!(t.command(set).0, -22, "{name}");
    }
}

#[test]
fn option_set_by_tell_lasts_until_restart() {
    let (mut t, _) = TestMon::with_osds(1);
    let tell = |t: &mut TestMon, command: Value| {
        let conn = t.client();
        let cmd = vec![command.to_string()];
        match t.ask(conn, Command { fsid: [0; 16], cmd, input: Bytes::new() }) {
            Message::CommandReply(reply) => (reply.retval, reply.status),
            other => panic!("{other:?}"),
        }
    };
    // A pool of 8 groups fits if each OSD may hold 8 of its 24 copies.
    let fits = |t: &mut TestMon| {
        let name = format!("p{}", t.map().pool_max);
        let (code, said, _) = t.command(json!({ "prefix": "osd pool create", "pool": name, "pg_num": 8 }));
        assert!(code == 0 || code == -34, "{said}");
        code == 0
    };
    let inject = |words: &[&str]| json!({ "prefix": "injectargs", "injected_args": words });
    let (code, said) = tell(&mut t, inject(&["--nope=1"]));
    assert_eq!((code, &*said), (-22, " failed to parse arguments: --nope=1\n"));
    assert_eq!(tell(&mut t, inject(&["--mon_max_pg_per_osd=1", "--nope"])).0, -22);
    assert!(fits(&mut t), "all or nothing");
    let (code, said) = tell(&mut t, inject(&["--mon-max-pg-per-osd", "1"]));
    assert_eq!((code, &*said), (0, "mon_max_pg_per_osd = '1' "));
    assert!(!fits(&mut t));
    assert_eq!(tell(&mut t, json!({ "prefix": "config unset", "var": "mon_max_pg_per_osd" })).0, 0);
    assert!(fits(&mut t));
    let set = |value: &str| json!({ "prefix": "config set", "var": "mon_max_pg_per_osd", "val": [value] });
    assert_eq!(tell(&mut t, set("1")).0, 0);
    assert_eq!(tell(&mut t, set("many")).0, -22);
    assert!(!fits(&mut t));
    let mut t = t.restart();
    assert!(fits(&mut t));
}

#[test]
fn unsupported_commands_are_distinguished_from_planned_ones() {
    let (mut t, _) = TestMon::with_osds(1);
    for (prefix, said) in [
        ("compact", "not in Nacre: the store compacts itself, and compaction cannot be triggered"),
        ("mgr fail", "not in Nacre: the leading monitor is the manager; when it stops, another one leads"),
        ("fs perf stats", "not built yet in Nacre: No handler found for 'fs perf stats'"),
    ] {
        let (code, text, _) = t.command(json!({ "prefix": prefix }));
        assert_eq!((code, &*text), (-95, said));
    }
    assert_eq!(t.run(json!({ "prefix": "mon enable-msgr2" })), "");
}

#[test]
fn modules_that_are_there_are_always_on() {
    let (mut t, _) = TestMon::with_osds(1);
    let listed = t.json(json!({ "prefix": "mgr module ls" }));
    assert!(listed["always_on_modules"].as_array().unwrap().contains(&json!("balancer")), "{listed}");
    for (code, what, module) in [
        (0, "enable", "balancer"),
        (0, "enable", "prometheus"),
        (-22, "disable", "prometheus"),
        (-2, "enable", "dashboard"),
        (0, "disable", "dashboard"),
        (-22, "disable", "balancer"),
    ] {
        let command = json!({ "prefix": format!("mgr module {what}"), "module": module });
        assert_eq!(t.command(command).0, code, "{what} {module}");
    }
    let counted = t.json(json!({ "prefix": "mgr count-metadata", "property": "ceph_release" }));
    assert_eq!(counted, json!({ "pacific": 1 }));
    let features = t.run(json!({ "prefix": "mon feature ls", "with_value": "--with-value" }));
    assert!(
        features.contains("supported: [kraken(1),luminous(2),mimic(4),osdmap-prune(8),nautilus(16)"),
        "{features}"
    );
    assert_eq!(t.command(json!({ "prefix": "mon getmap", "epoch": 99 })).0, -2);
}

#[test]
fn flags_of_crush_nodes_have_commands_of_their_own() {
    let (mut t, _) = TestMon::with_osds(2);
    let node = t.map().crush.item_by_name("vm").unwrap();
    let flag = |prefix: &str, ids: &[&str]| json!({ "prefix": prefix, "ids": ids });
    for (word, bit) in [
        ("noup", osd_state::NOUP),
        ("nodown", osd_state::NODOWN),
        ("noin", osd_state::NOIN),
        ("noout", osd_state::NOOUT),
    ] {
        t.run(flag(&format!("osd add-{word}"), &["vm", "osd.1", "ssd"]));
        assert_eq!(t.map().crush_node_flags.get(&node), Some(&bit));
        assert!(t.map().osds[1].has(bit) && !t.map().osds[0].has(bit));
        assert_eq!(t.map().device_class_flags.values().copied().collect::<Vec<_>>(), [bit]);
        t.run(flag(&format!("osd rm-{word}"), &["vm", "1", "ssd"]));
        assert!(t.map().crush_node_flags.is_empty() && !t.map().osds[1].has(bit));
    }
    let (code, said, _) = t.command(flag("osd add-noup", &["foo"]));
    let unknown = "unable to parse osd id or crush node or device class: \"foo\". ";
    assert_eq!((code, &*said), (-22, unknown));
    let said = t.run(flag("osd add-noup", &["osd.0", "osd.77", "foo"]));
    assert_eq!(said, format!("{unknown}osd.77 does not exist. "));
}
