//! What was acknowledged is there, whatever was killed.

use nacre_interop::{Cluster, succeed, wait_until};
use std::process::Command;
use std::time::Duration;

#[test]
fn a_large_file_survives_sigkill_of_everything() {
    let c = Cluster::up().unwrap();
    c.run("ceph osd pool create files 16").unwrap();
    let file = c.folder().join("real");
    // Real bytes: what Debian's packages installed here, 100 MB of it.
    let tar = format!("tar cf - -C /usr/lib . 2>/dev/null | head -c 100000000 > {}", file.display());
    succeed(Command::new("sh").args(["-c", &tar])).unwrap();
    let file = file.to_str().unwrap();
    c.run(&format!("rados -p files put real {file}")).unwrap();

    let daemons = c.daemons().unwrap();
    assert_eq!(daemons, ["mon.a", "osd.0", "osd.1", "osd.2"]);
    daemons.iter().for_each(|daemon| c.kill(daemon).unwrap());
    daemons.iter().for_each(|daemon| c.start(daemon).unwrap());
    c.wait_clean().unwrap();

    c.run(&format!("rados -p files get real {file}.back")).unwrap();
    succeed(Command::new("cmp").args([file, &format!("{file}.back")])).unwrap();
}

#[test]
fn acknowledged_writes_survive_kills_under_load() {
    let c = Cluster::up().unwrap();
    c.run("ceph osd pool create load 16").unwrap();
    let load = c.start_load("load").unwrap();

    for daemon in ["osd.0", "osd.2", "mon.a", "osd.1"] {
        std::thread::sleep(Duration::from_millis(700));
        c.kill(daemon).unwrap();
        std::thread::sleep(Duration::from_millis(1500));
        c.start(daemon).unwrap();
        // Before the next one goes: otherwise min_size rightly blocks the load.
        c.wait_clean().unwrap();
    }
    let all = c.daemons().unwrap();
    all.iter().for_each(|daemon| c.kill(daemon).unwrap());
    all.iter().rev().for_each(|daemon| c.start(daemon).unwrap());
    c.wait_clean().unwrap();

    load.finish().unwrap();
}

#[test]
fn one_process_stops_cleanly_and_finds_its_data_again() {
    let c = Cluster::up_with(&[]).unwrap();
    assert_eq!(c.daemons().unwrap(), ["nacre"]);
    c.run("ceph osd pool create p 8").unwrap();
    let file = c.folder().join("in");
    std::fs::write(&file, "kept\n").unwrap();
    c.run(&format!("rados -p p put kept {}", file.display())).unwrap();
    let fsid = c.run("ceph fsid").unwrap();
    succeed(&mut c.nacre("down")).unwrap();
    assert!(c.daemons().unwrap().is_empty());

    succeed(c.nacre("up").arg("--detach")).unwrap();
    assert_eq!(c.run("ceph fsid").unwrap(), fsid);
    assert_eq!(c.run("rados -p p get kept -").unwrap(), "kept\n");
}

/// What `nacre up` stores to prove that the cluster serves had no room, and it stopped everything again.
#[test]
fn a_cluster_that_is_full_comes_up_and_things_can_be_removed() {
    let c = Cluster::up().unwrap();
    c.run("ceph osd pool create p 8").unwrap();
    let file = c.folder().join("something");
    std::fs::write(&file, "something\n").unwrap();
    c.run(&format!("rados -p p put something {}", file.display())).unwrap();
    // Images in a pool without a trash.
    c.run("rbd pool init p").unwrap();
    c.run("ceph osd pool create q 8").unwrap();
    c.run("rbd pool init q").unwrap();
    for image in ["p/plain", "p/cloned", "q/purged"] {
        c.run(&format!("rbd create {image} --size 16M")).unwrap();
        c.run(&format!("rbd bench --io-type write --io-size 64K --io-total 1M {image}")).unwrap();
    }
    c.run("rbd trash mv q/purged").unwrap();
    c.run("rbd snap create p/cloned@s").unwrap();
    c.run("rbd clone --rbd-default-clone-format 2 p/cloned@s p/child").unwrap();
    for (ratio, at) in [("nearfull", "0.001"), ("backfillfull", "0.002"), ("full", "0.003")] {
        c.run(&format!("ceph osd set-{ratio}-ratio {at}")).unwrap();
    }
    let full = || Ok(c.run("ceph health")?.contains("3 full osd(s)"));
    wait_until("all are full", Duration::from_secs(30), full).unwrap();
    succeed(&mut c.nacre("down")).unwrap();
    let said = succeed(c.nacre("up").args(["--processes", "--detach"])).unwrap();
    assert!(said.contains("A disk is full"), "{said}");
    c.run("rados -p p rm something --force-full").unwrap();
    c.run("rbd rm p/plain").unwrap();
    c.run("rbd rm p/child").unwrap();
    c.run("rbd snap rm p/cloned@s").unwrap();
    c.run("rbd rm p/cloned").unwrap();
    c.run("rbd trash purge q").unwrap();
    for pool in ["p", "q"] {
        let left =
            c.run(&format!("rbd ls {pool}")).unwrap() + &c.run(&format!("rbd trash ls {pool}")).unwrap();
        assert_eq!(left, "");
        assert!(!c.run(&format!("rados -p {pool} ls")).unwrap().contains("rbd_data"));
    }
    c.run("ceph osd pool rm p p --yes-i-really-really-mean-it").unwrap();
}
