//! What commands say of odd arguments: what Ceph 16.2.15 says of them.

use super::*;

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
fn a_new_pool_has_the_rule_that_the_tool_puts_where_profiles_are() {
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
