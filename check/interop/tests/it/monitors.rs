//! Monitors come and go while clients work.

use nacre_interop::{Cluster, skip, succeed, wait_until};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

fn wait_quorum(c: &Cluster, names: &[&str]) {
    wait_until("monitors to be there", PATIENCE, || {
        let status = c.json("ceph quorum_status")?;
        let quorum = status["quorum_names"].as_array().cloned().unwrap_or_default();
        let known = status["monmap"]["mons"].as_array().map_or(0, Vec::len);
        Ok(known == names.len() && quorum.iter().filter_map(|name| name.as_str()).eq(names.iter().copied()))
    })
    .unwrap();
}

/// The command line that `nacre mon format` says to use.
fn format(c: &Cluster, id: &str) -> String {
    let said = succeed(c.nacre("mon format").args(["--id", id])).unwrap();
    let command = said.split('`').nth(1).unwrap_or_else(|| panic!("{said}"));
    assert!(command.starts_with(&format!("ceph mon add {id} 127.0.0.1:")), "{said}");
    command.to_string()
}

#[test]
fn monitors_are_added_and_lost_and_replaced_under_load() {
    let c = Cluster::up().unwrap();
    c.run("ceph osd pool create load 16").unwrap();
    let load = c.start_load("load").unwrap();
    for id in ["b", "c"] {
        let add = format(&c, id);
        c.run(&add).unwrap();
        c.start(&format!("mon.{id}")).unwrap();
    }
    wait_quorum(&c, &["a", "b", "c"]);

    // The first one is lost with all that it stored.
    c.kill("mon.a").unwrap();
    wait_quorum_without(&c, "a");
    let refused = c.nacre("mon format").args(["--id", "a"]).output().unwrap();
    assert!(!refused.status.success(), "a monitor that is still one of them was made anew");
    c.run("ceph mon rm a").unwrap();
    let add = format(&c, "a");
    c.run(&add).unwrap();
    c.start("mon.a").unwrap();
    wait_quorum(&c, &["b", "c", "a"]);

    // Who leads is removed, and OSDs that started with one monitor know the others.
    let leader = c.json("ceph quorum_status").unwrap()["quorum_leader_name"].as_str().unwrap().to_string();
    c.run(&format!("ceph mon rm {leader}")).unwrap();
    let left: Vec<&str> = ["b", "c", "a"].into_iter().filter(|name| *name != leader).collect();
    wait_quorum(&c, &left);
    succeed(c.nacre("stop").arg(format!("mon.{leader}"))).unwrap();
    succeed(c.nacre("mon forget").args(["--id", &leader])).unwrap();
    c.run("ceph osd set noout").unwrap();
    c.run("ceph osd unset noout").unwrap();
    c.kill("osd.1").unwrap();
    c.start("osd.1").unwrap();
    c.wait_clean().unwrap();
    load.finish().unwrap();

    // Also from the beginning: everything is killed and started.
    let daemons = c.daemons().unwrap();
    assert_eq!(daemons.iter().filter(|name| name.starts_with("mon.")).count(), 2);
    daemons.iter().for_each(|daemon| c.kill(daemon).unwrap());
    daemons.iter().for_each(|daemon| c.start(daemon).unwrap());
    c.wait_clean().unwrap();
    wait_quorum(&c, &left);
}

/// Like a suspended machine: no monitor has the changes any more that it missed, and it finds other processes
/// where it had sessions. It jumps to the oldest map that it is told of, and takes nothing of another epoch.
#[test]
fn client_paused_beyond_the_kept_maps_continues() {
    let c = Cluster::up().unwrap();
    c.run("ceph osd pool create load 8").unwrap();
    c.run("ceph config set mon mon_min_osdmap_epochs 20").unwrap();
    let load = c.start_load("load").unwrap();
    load.signal("STOP").unwrap();
    c.python("epochs.py", &["60"]).unwrap();
    let all = c.daemons().unwrap();
    all.iter().for_each(|daemon| c.kill(daemon).unwrap());
    all.iter().for_each(|daemon| c.start(daemon).unwrap());
    c.wait_clean().unwrap();
    load.signal("CONT").unwrap();
    // Long enough to be busy again, or to wait forever.
    std::thread::sleep(Duration::from_secs(2));
    load.finish().unwrap();
}

/// Another cluster's folder, with the same names and addresses.
#[test]
fn a_monitor_of_another_cluster_that_has_an_address_of_ours_is_refused_and_named() {
    // Where it has another key, it does not come so far.
    let options = ["--processes", "--mons", "3", "--auth", "none"];
    let c = Cluster::up_with(&options).unwrap();
    succeed(&mut c.nacre("down")).unwrap();
    let other = c.another_at_its_addresses(&options).unwrap();
    succeed(&mut other.nacre("down")).unwrap();
    ["mon.a", "mon.b", "osd.0", "osd.1", "osd.2"].iter().for_each(|daemon| c.start(daemon).unwrap());
    wait_quorum_without(&c, "c");
    other.start("mon.c").unwrap();
    let ours = c.run("ceph fsid").unwrap();
    let said = |of: &Cluster, daemon: &str| {
        let log = std::fs::read_to_string(of.folder().join(format!("log/{daemon}.log"))).unwrap();
        log.lines().filter(|line| line.contains("belongs to another cluster")).count()
    };
    wait_until("both sides to say so", PATIENCE, || Ok(said(&other, "mon.c") == 4 && said(&c, "mon.a") == 2))
        .unwrap();
    c.wait_clean().unwrap();
    c.run("ceph osd set noout").unwrap();
    assert_eq!(c.run("ceph fsid").unwrap(), ours);
    assert_eq!(said(&c, "mon.b"), 2, "once for each direction");
    // Its own place is as it was.
    succeed(other.nacre("stop").arg("mon.c")).unwrap();
    c.start("mon.c").unwrap();
    wait_quorum(&c, &["a", "b", "c"]);
}

fn wait_quorum_without(c: &Cluster, name: &str) {
    wait_until("the others to notice", PATIENCE, || {
        let status = c.json("ceph quorum_status")?;
        let quorum = status["quorum_names"].as_array().cloned().unwrap_or_default();
        Ok(quorum.len() == 2 && quorum.iter().all(|other| other != name))
    })
    .unwrap();
}

#[test]
fn up_makes_three_monitors_of_one_and_a_new_one_of_one_whose_store_is_gone() {
    let c = Cluster::up_with(&[]).unwrap();
    succeed(&mut c.nacre("down")).unwrap();
    succeed(c.nacre("up").args(["--mons", "3", "--processes", "--detach"])).unwrap();
    wait_quorum(&c, &["a", "b", "c"]);
    succeed(&mut c.nacre("down")).unwrap();
    std::fs::remove_dir_all(c.folder().join("mon.b")).unwrap();
    let said = succeed(c.nacre("up").args(["--processes", "--detach"])).unwrap();
    assert!(said.contains("mon.b has lost its store and gets a new one"), "{said}");
    let health = c.run("ceph health detail").unwrap();
    assert!(health.contains("mon.b is out of quorum"), "{health}");
    let add = said.split('`').find(|words| words.starts_with("ceph mon add")).unwrap().to_string();
    c.run("ceph mon rm b").unwrap();
    c.run(&add).unwrap();
    wait_quorum(&c, &["a", "c", "b"]);
    assert_eq!(c.run("ceph health").unwrap(), "HEALTH_OK\n");
}

#[test]
fn the_last_monitor_of_three_decides_alone_when_it_is_told_to() {
    let c = Cluster::up_with(&["--processes", "--mons", "3"]).unwrap();
    c.run("ceph osd pool create p 8").unwrap();
    let load = c.start_load("p").unwrap();
    for name in ["mon.a", "mon.c"] {
        c.kill(name).unwrap();
        std::fs::remove_dir_all(c.folder().join(name)).unwrap();
    }
    succeed(c.nacre("stop").arg("mon.b")).unwrap();
    let mut alone = c.nacre("mon alone");
    alone.args(["--id", "b"]);
    assert!(!alone.status().unwrap().success(), "that is said with a second word");
    succeed(alone.arg("--yes-i-really-mean-it")).unwrap();
    c.start("mon.b").unwrap();
    c.run("ceph mon rm a").unwrap();
    c.run("ceph mon rm c").unwrap();
    for id in ["a", "c"] {
        let add = format(&c, id);
        c.run(&add).unwrap();
        c.start(&format!("mon.{id}")).unwrap();
    }
    wait_quorum(&c, &["b", "a", "c"]);
    c.wait_clean().unwrap();
    load.finish().unwrap();
}

/// A file system in memory, until it is dropped.
struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0).status();
    }
}

/// It said that it stops, and kept its process, its ports and its folder forever.
#[test]
fn monitor_with_a_full_disk_stops_and_restarts_with_space() {
    let c = Cluster::up_with(&["--processes", "--mons", "3", "--osds", "1"]).unwrap();
    succeed(c.nacre("stop").arg("mon.c")).unwrap();
    let (folder, before) = (c.folder().join("mon.c"), c.folder().join("before"));
    std::fs::rename(&folder, &before).unwrap();
    std::fs::create_dir(&folder).unwrap();
    let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=64m", "tmpfs"]).arg(&folder).status();
    if !mount.is_ok_and(|status| status.success()) {
        return skip("nothing can be mounted here");
    }
    let mounted = Mounted(&folder);
    let copy =
        Command::new("cp").args(["-a", "--sparse=always"]).arg(before.join("store")).arg(&folder).status();
    assert!(copy.unwrap().success());
    c.start("mon.c").unwrap();
    wait_quorum(&c, &["a", "b", "c"]);
    let ballast = folder.join("ballast");
    assert!(std::fs::write(&ballast, vec![1; 64 << 20]).is_err());
    let fill = "import json, rados\n\
                c = rados.Rados(conffile='')\n\
                c.connect()\n\
                for n in range(200):\n \
                    ask = {'prefix': 'config-key set', 'key': 'k%d' % n}\n \
                    assert c.mon_command(json.dumps(ask), b'v' * 65536)[0] == 0\n";
    succeed(c.client("/usr/bin/python3").args(["-c", fill])).unwrap();
    wait_until("mon.c to end", PATIENCE, || Ok(!c.daemons()?.contains(&"mon.c".to_string()))).unwrap();
    let log = std::fs::read_to_string(c.folder().join("log/mon.c.log")).unwrap();
    assert!(log.contains("stopping: the disk failed"));
    wait_quorum_without(&c, "c");

    std::fs::remove_file(&ballast).unwrap();
    c.start("mon.c").unwrap();
    wait_quorum(&c, &["a", "b", "c"]);
    succeed(c.nacre("stop").arg("mon.c")).unwrap();
    drop(mounted);
}
