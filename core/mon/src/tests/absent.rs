//! Commands about what is not there say so, and those about a part show only that.

use super::TestMon;
use serde_json::{Value, json};

#[test]
fn absent_data_is_distinguished_from_other_data() {
    let (mut t, _) = TestMon::with_osds(3);
    for (errno, command) in [
        (-2, json!({ "prefix": "mon dump", "epoch": 99 })),
        (-2, json!({ "prefix": "mgr metadata", "who": "nobody" })),
        (-2, json!({ "prefix": "config show", "who": "osd.77" })),
        (-22, json!({ "prefix": "osd tree", "states": ["up", "down"] })),
        (-22, json!({ "prefix": "osd tree", "states": ["in", "up", "out"] })),
        (-22, json!({ "prefix": "osd df", "filter_by": "class", "filter": "nvme" })),
        (-22, json!({ "prefix": "osd df", "filter_by": "name", "filter": "nothing" })),
        (-22, json!({ "prefix": "osd df", "filter_by": "weight", "filter": "1" })),
        (-22, json!({ "prefix": "osd df", "filter_by": "class" })),
    ] {
        assert_eq!(t.command(command.clone()).0, errno, "{command}");
    }
    let all = t.json(json!({ "prefix": "mgr metadata" }));
    let one = t.json(json!({ "prefix": "mgr metadata", "who": all[0]["name"] }));
    assert_eq!(all, json!([one]));
}

#[test]
fn space_is_shown_of_a_class_a_bucket_or_a_pool() {
    let (mut t, conns) = TestMon::with_osds(3);
    let pool = t.create_pool("slow", 8);
    t.activate(&conns, pool);
    t.report(&conns, pool);
    for command in [
        json!({ "prefix": "osd crush rm-device-class", "ids": ["1"] }),
        json!({ "prefix": "osd crush set-device-class", "class": "hdd", "ids": ["1"] }),
        json!({ "prefix": "osd crush rule create-replicated", "name": "hdds", "root": "default", "type": "osd", "class": "hdd" }),
        json!({ "prefix": "osd pool set", "pool": "slow", "var": "crush_rule", "val": "hdds" }),
    ] {
        t.run(command);
    }
    let whole = t.json(json!({ "prefix": "osd df" }));
    let ids = |df: &Value| -> Vec<i64> {
        df["nodes"].as_array().unwrap().iter().map(|node| node["id"].as_i64().unwrap()).collect()
    };
    for (by, name, expected) in [
        ("class", "hdd", vec![1]),
        ("class", "ssd", vec![0, 2]),
        ("name", "osd.2", vec![2]),
        ("name", "default", vec![0, 1, 2]),
        ("name", "slow", vec![1]),
    ] {
        let ask = |method: &str| json!({ "prefix": "osd df", "output_method": method, "filter_by": by, "filter": name });
        let part = t.json(ask("plain"));
        assert_eq!(ids(&part), expected, "{by} {name}");
        let kb = |df: &Value| df["summary"]["total_kb"].as_u64().unwrap();
        assert_eq!(kb(&part) * 3, kb(&whole) * expected.len() as u64, "{by} {name}");
        let tree = t.json(ask("tree"));
        let (buckets, mut osds): (Vec<i64>, Vec<i64>) = ids(&tree).into_iter().partition(|id| *id < 0);
        osds.sort();
        assert_eq!((buckets.len(), osds), (2, expected), "{by} {name}: the root and the host");
        assert_eq!(tree["nodes"][0]["kb"], part["summary"]["total_kb"], "{by} {name}");
    }
}
