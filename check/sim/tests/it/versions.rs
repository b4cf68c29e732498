//! Daemons of two versions in one cluster.

use nacre_proto::types::cluster_format;
use nacre_sim::{Cluster, NodeId, Script, Seed, Shape, run_script};
use serde_json::json;
use std::time::Duration;

const NEWEST: u64 = cluster_format::NEWEST as u64;

fn restart(c: &mut Cluster, node: NodeId) {
    assert!(c.versions.upgrade(node));
    c.stop(node);
    c.start(node);
    c.wait_clean().unwrap();
}

#[test]
fn cluster_serves_while_its_daemons_get_a_newer_version_and_its_format_is_raised_last() {
    let shape = Shape { mons: 3, osds: 3, per_host: 1, old_release: true, ..Shape::default() };
    let mut c = Cluster::with_shape(Seed(31), &shape, 1, false).up();
    let pool = c.pool("p", 4);
    assert_eq!(c.format(), NEWEST - 1);
    let nodes: Vec<NodeId> = c.mons.iter().chain(&c.osds).copied().collect();
    for (n, node) in nodes.into_iter().enumerate() {
        c.write(pool, &format!("o{n}"), &format!("value {n}"));
        restart(&mut c, node);
        assert_eq!(c.format(), NEWEST - 1, "nothing raises it by itself");
        for n in 0..=n {
            assert_eq!(c.read(pool, &format!("o{n}")), Some(format!("value {n}")));
        }
    }
    // The leader learns which formats the last monitor can use.
    c.run_for(Duration::from_secs(5));
    c.command(&json!({ "prefix": "upgrade finish" }));
    assert_eq!(c.format(), NEWEST);
    c.write(pool, "last", "x");
    assert_eq!(c.read(pool, "last").as_deref(), Some("x"));
    c.check_replicas(None).unwrap();
}

/// Faults hit daemons of both versions, and the format is raised under load.
#[test]
fn daemons_of_two_versions_survive_faults_and_the_format_is_raised_under_load() {
    let script = "seed 17\nmons 3\nosds 6\nper-host 2\nauth none\nold-release 1\n\
                  1 upgrade mon.0\n2 upgrade osd.0\n3 finish-upgrade\n4 power-off osd.0 osd.3\n5 resume osd.3\n\
                  6 upgrade osd.3\n7 resume osd.0\n8 upgrade mon.1\n9 kill mon.0\n10 upgrade mon.2\n\
                  11 resume mon.0\n13 upgrade osd.1\n14 upgrade osd.2\n15 kill osd.4\n16 upgrade osd.4\n\
                  17 resume osd.4\n18 upgrade osd.5\n22 finish-upgrade\n23 kill osd.1\n24 resume osd.1\n\
                  25 power-off mon.1\n26 resume mon.1\n28 end\n";
    let script: Script = script.parse().unwrap();
    assert_eq!(run_script(&script, false).failure, None);
}
