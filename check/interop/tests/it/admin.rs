//! The stock `ceph` command administers the cluster.

use nacre_interop::{Cluster, text, wait_until};
use std::time::Duration;

#[test]
fn status_commands_tell_the_truth() {
    let c = Cluster::up().unwrap();
    c.run("ceph osd pool create p 8").unwrap();
    c.run("ceph osd pool application enable p test").unwrap();
    c.wait_clean().unwrap();
    let plain = c.run("ceph -s").unwrap();
    for words in ["HEALTH_OK", "3 osds: 3 up", "active+clean"] {
        assert!(plain.contains(words), "no '{words}' in:\n{plain}");
    }
    let status = c.json("ceph status").unwrap();
    assert_eq!(status["osdmap"]["num_up_osds"], 3);
    assert_eq!(status["fsid"].as_str().unwrap(), c.run("ceph fsid").unwrap().trim());
    assert_eq!(c.json("ceph health").unwrap()["status"], "HEALTH_OK");
    assert!(c.run("ceph ping mon.a").unwrap().contains("health"));

    c.run("rados -p p bench 1 write -b 65536 --no-cleanup").unwrap();
    // At the end of an object of which nothing else is written.
    c.run("ceph osd pool create thin 1").unwrap();
    c.run("ceph osd pool application enable thin test").unwrap();
    c.run("rados -p thin put thin /etc/os-release --offset 4096000").unwrap();
    let written = std::fs::metadata("/etc/os-release").unwrap().len();
    wait_until("ceph df to show what was written", Duration::from_secs(20), || {
        let df = c.json("ceph df")?;
        let of = |name: &str, what: &str| {
            let pool = df["pools"].as_array()?.iter().find(|pool| pool["name"] == name)?;
            pool["stats"][what].as_u64()
        };
        let thin = ["stored", "bytes_used"].map(|what| of("thin", what));
        Ok(of("p", "stored") > Some(60_000) && thin == [Some(written), Some(3 * 4096)])
    })
    .unwrap();

    for command in [
        "versions",
        "osd tree",
        "osd stat",
        "osd dump",
        "osd df",
        "osd ls",
        "osd pool ls",
        "osd pool ls detail",
        "pg stat",
        "pg dump",
        "mon dump",
        "mon stat",
        "config dump",
        "quorum_status",
        "osd crush rule ls",
        "osd crush rule dump",
        "osd pool get p size",
        "features",
        "mgr dump",
    ] {
        c.json(&format!("ceph {command}")).unwrap_or_else(|e| panic!("{command}: {e:#}"));
        c.run(&format!("ceph {command}")).unwrap_or_else(|e| panic!("{command}: {e:#}"));
    }
}

#[test]
fn clients_of_a_fenced_network_write_nothing_until_it_is_let_in_again() {
    let c = Cluster::up().unwrap();
    c.run("ceph osd pool create p 8").unwrap();
    c.run("rados -p p put before /etc/hostname").unwrap();
    c.run("ceph osd blocklist range add 127.0.0.0/16").unwrap();
    let put = c.try_run("rados -p p put during /etc/hostname").unwrap();
    let said = text(&put.stderr);
    assert!(!put.status.success() && said.contains("(108)"), "{said}");
    c.run("ceph osd blocklist range rm 127.0.0.0/16").unwrap();
    c.run("rados -p p put after /etc/hostname").unwrap();
    let mut names: Vec<String> = c.run("rados -p p ls").unwrap().lines().map(String::from).collect();
    names.sort();
    assert_eq!(names, ["after", "before"]);
}

#[test]
fn pools_flags_and_osds_are_managed() {
    let c = Cluster::up().unwrap();
    c.run("ceph osd pool create p 8").unwrap();
    c.run("ceph osd pool create p 8").unwrap(); // again is fine
    c.run("ceph osd pool rename p q").unwrap();
    c.run("ceph osd pool set q size 2").unwrap();
    c.run("ceph osd pool set q min_size 1").unwrap();
    assert_eq!(c.json("ceph osd pool get q size").unwrap()["size"], 2);
    c.run("rados -p q put a /etc/hostname").unwrap();
    c.run("ceph osd pool set q pg_num 16").unwrap();
    c.wait_clean().unwrap();
    assert_eq!(c.json("ceph osd pool get q pg_num").unwrap()["pg_num"], 16);
    assert_eq!(c.run("rados -p q ls").unwrap(), "a\n");

    c.run("ceph osd set noout").unwrap();
    assert!(c.run("ceph osd dump").unwrap().contains("noout"));
    assert!(c.run("ceph health").unwrap().contains("noout"));
    c.run("ceph osd unset noout").unwrap();

    c.run("ceph osd out 1").unwrap();
    c.wait_clean().unwrap();
    assert_eq!(c.json("ceph osd stat").unwrap()["num_in_osds"], 2);
    c.run("ceph osd in 1").unwrap();
    c.run("ceph osd reweight 1 0.8").unwrap();
    c.wait_clean().unwrap();
    c.run("ceph osd down 2").unwrap();
    // It runs, so it comes back by itself.
    wait_until("osd.2 to be up again", Duration::from_secs(20), || {
        Ok(c.json("ceph osd stat")?["num_up_osds"] == 3)
    })
    .unwrap();

    c.run("ceph config set osd osd_max_backfills 3").unwrap();
    assert_eq!(c.run("ceph config get osd osd_max_backfills").unwrap().trim(), "3");

    c.run("ceph config set mon mon_allow_pool_delete false").unwrap();
    let refused = c.try_run("ceph osd pool rm q q --yes-i-really-really-mean-it").unwrap();
    assert!(text(&refused.stderr).contains("EPERM"), "{}", text(&refused.stderr));
    c.run("ceph config set mon mon_allow_pool_delete true").unwrap();
    c.run("ceph osd pool rm q q --yes-i-really-really-mean-it").unwrap();
    assert!(!c.run("ceph osd pool ls").unwrap().contains('q'));
}

#[test]
fn the_stock_tools_read_our_maps() {
    let c = Cluster::up().unwrap();
    c.run("ceph osd pool create p 8").unwrap();
    let map = c.folder().join("map");
    let map = map.to_str().unwrap();
    c.run(&format!("ceph osd getmap -o {map}")).unwrap();
    let pools = c.json("ceph osd pool ls detail").unwrap();
    let pool =
        pools.as_array().unwrap().iter().find(|pool| pool["pool_name"] == "p").unwrap()["pool_id"].clone();
    let printed = c.run(&format!("osdmaptool {map} --print")).unwrap();
    assert!(printed.contains(&format!("pool {pool} 'p'")), "{printed}");
    let theirs = c.run(&format!("osdmaptool {map} --test-map-pgs-dump --pool {pool}")).unwrap();
    let lines: Vec<&str> = theirs.lines().filter(|line| line.starts_with(&format!("{pool}."))).collect();
    assert_eq!(lines.len(), 8, "{theirs}");
    for line in lines {
        let pg = line.split_whitespace().next().unwrap();
        let osds = line.split(['[', ']']).nth(1).unwrap();
        let ours = c.run(&format!("ceph pg map {pg}")).unwrap();
        assert!(ours.contains(&format!("up [{osds}]")), "{pg}: {line} against {ours}");
    }
    c.run(&format!("ceph osd getcrushmap -o {map}.crush")).unwrap();
    c.run(&format!("crushtool -d {map}.crush -o {map}.txt")).unwrap();
    c.run(&format!("crushtool -c {map}.txt -o {map}.again")).unwrap();
    c.run(&format!("ceph osd setcrushmap -i {map}.again")).unwrap();
}

#[test]
fn what_is_not_built_says_so() {
    let c = Cluster::up().unwrap();
    let refused = c.try_run("ceph osd tier add a b").unwrap();
    assert!(!refused.status.success());
    let said = text(&refused.stderr);
    assert!(said.contains("ENOTSUP"), "{said}");
}
