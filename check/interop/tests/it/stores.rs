//! The tools that look into a store without its daemon.

use nacre_interop::{Cluster, nacre_binary, succeed, text, wait_until};
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};

fn store(words: &[&str]) -> Command {
    let mut command = Command::new(nacre_binary());
    command.arg("store").args(words);
    command
}
fn run(words: &[&str]) -> Output {
    store(words).output().unwrap()
}
fn json(words: &[&str]) -> Value {
    serde_json::from_slice(&store(words).args(["--format", "json"]).output().unwrap().stdout).unwrap()
}
fn names(list: &str) -> Vec<String> {
    let line = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        format!("{} {} {} {}", line["id"], line["size"], line["data_bytes"], line["omap_keys"])
    };
    list.lines().map(line).collect()
}

#[test]
fn a_store_is_checked_listed_and_copied_without_its_daemon() {
    let c = Cluster::up().unwrap();
    c.run("ceph osd pool create p 8").unwrap();
    c.wait_clean().unwrap();
    c.run("rados -p p bench 1 write -b 65536 -t 4 --no-cleanup").unwrap();
    c.run("rados -p p put release /etc/os-release").unwrap();
    c.run("rados -p p setomapval release key value").unwrap();
    let folder = c.folder().join("osd.0");
    let dir = folder.to_str().unwrap();

    // Not while it runs.
    for words in [vec!["fsck", dir], vec!["stat", dir], vec!["ls", dir], vec!["export", dir, "/tmp/none"]] {
        let refused = run(&words);
        assert!(!refused.status.success());
        assert!(text(&refused.stderr).contains("in use"), "{words:?}: {}", text(&refused.stderr));
    }
    c.run("ceph osd set noout").unwrap();
    c.kill("osd.0").unwrap();

    let before = changed(&folder.join("store"));
    let found = json(&["fsck", dir, "--deep"]);
    assert_eq!((&found["sound"], &found["data"]["bytes_lost"]), (&true.into(), &0.into()), "{found:#}");
    assert!(found["data"]["bytes_read"].as_u64().unwrap() > 65536);
    assert!(succeed(&mut store(&["fsck", dir])).unwrap().ends_with("sound\n"));
    let stat = json(&["stat", dir]);
    assert!(stat["objects"].as_u64().unwrap() > 1 && stat["placement_groups"].as_u64().unwrap() >= 8);
    let pools = stat["pools"].as_array().unwrap();
    let sum = |what: &str| pools.iter().map(|pool| pool[what].as_u64().unwrap()).sum::<u64>();
    assert_eq!(
        (sum("stored_bytes"), sum("omap_bytes")),
        (stat["stored_bytes"].as_u64().unwrap(), 8 + 8),
        "{stat:#}"
    );
    let list = succeed(&mut store(&["ls", dir, "--format", "json"])).unwrap();
    assert_eq!(list.lines().count() as u64, stat["objects"].as_u64().unwrap());
    let release = list.lines().find(|line| line.contains("\"release\"")).unwrap();
    let release: Value = serde_json::from_str(release).unwrap();
    assert_eq!(release["size"].as_u64().unwrap(), fs::metadata("/etc/os-release").unwrap().len());
    assert_eq!(release["omap_keys"], 1);
    assert!(succeed(&mut store(&["ls", dir, "--all"])).unwrap().contains("meta "));
    assert_eq!(succeed(&mut store(&["ls", dir, "--pool", "99999", "--format", "json"])).unwrap(), "");

    // Into a new store: what is in it is the same, and a daemon continues with it.
    let dump = c.folder().join("dump");
    let dump = dump.to_str().unwrap();
    succeed(&mut store(&["export", dir, dump])).unwrap();
    assert_eq!(changed(&folder.join("store")), before, "looking changes nothing");
    assert!(!run(&["import", dir, dump]).status.success(), "it holds something");
    let other = c.folder().join("other");
    succeed(
        Command::new(nacre_binary())
            .args(["osd", "format", "--no-check", "--size", "4G", "--dev"])
            .arg(&other)
            .arg("--data")
            .arg(c.folder()),
    )
    .unwrap();
    succeed(&mut store(&["import", other.to_str().unwrap(), dump])).unwrap();
    let copied = succeed(&mut store(&["ls", other.to_str().unwrap(), "--all", "--format", "json"])).unwrap();
    let original = succeed(&mut store(&["ls", dir, "--all", "--format", "json"])).unwrap();
    assert_eq!(names(&copied), names(&original));
    assert_eq!(json(&["fsck", other.to_str().unwrap(), "--deep"])["sound"], true);
    fs::rename(&other, folder.join("store")).unwrap();
    c.start("osd.0").unwrap();
    c.wait_clean().unwrap();
    c.run("ceph osd unset noout").unwrap();
    c.run("rados -p p get release -").unwrap();
}

#[test]
fn rot_is_found_named_and_not_taken_for_data() {
    let c = Cluster::up().unwrap();
    c.run("ceph osd pool create p 8").unwrap();
    let marked = c.folder().join("marked");
    fs::write(&marked, vec![0xd5; 64 << 10]).unwrap();
    c.run(&format!("rados -p p put marked {}", marked.display())).unwrap();
    succeed(&mut c.nacre("down")).unwrap();
    let folder = c.folder().join("osd.1");
    let dir = folder.to_str().unwrap();
    let repaired = succeed(&mut store(&["fsck", dir, "--repair", "--deep"])).unwrap();
    assert!(repaired.ends_with("sound\n"), "{repaired}");
    rot(&folder.join("store"), 0xd5);
    let found = run(&["fsck", dir, "--deep"]);
    let said = text(&found.stdout);
    assert!(
        !found.status.success() && said.contains(":marked:head") && said.ends_with("not sound\n"),
        "{said}"
    );
    assert!(run(&["fsck", dir]).status.success(), "without --deep no data is read");
    let dump = c.folder().join("dump");
    let exported = run(&["export", dir, dump.to_str().unwrap()]);
    assert!(!exported.status.success() && text(&exported.stderr).contains("marked as such"));
    assert!(dump.exists(), "the rest is there");
    succeed(c.nacre("up").args(["--processes", "--detach"])).unwrap();
}

/// Once what was damaged was left out, and a primary said of it that it does not exist.
#[test]
fn export_of_a_corrupt_disk_loses_nothing_that_others_have() {
    let c = Cluster::up_with(&["--processes"]).unwrap();
    c.run("ceph osd pool create p 8").unwrap();
    c.wait_clean().unwrap();
    let marked = c.folder().join("marked");
    fs::write(&marked, vec![0xd5; 64 << 10]).unwrap();
    for n in 0..12 {
        c.run(&format!("rados -p p put object{n} {}", marked.display())).unwrap();
    }
    let leads = |n: u32| c.json(&format!("ceph osd map p object{n}")).unwrap()["acting_primary"] == 1;
    assert!((0..12).any(leads));
    succeed(c.nacre("stop").arg("osd.1")).unwrap();
    let folder = c.folder().join("osd.1");
    let dir = folder.to_str().unwrap();
    succeed(&mut store(&["fsck", dir, "--repair"])).unwrap(); // all is in its place
    (0..12).for_each(|_| rot(&folder.join("store"), 0xd5));
    let dump = c.folder().join("dump").to_str().unwrap().to_string();
    assert!(text(&run(&["export", dir, &dump]).stderr).contains("marked as such"));
    c.run("ceph osd destroy 1 --force --yes-i-really-mean-it").unwrap();
    let disk = c.folder().join("disk").to_str().unwrap().to_string();
    let folder_of_all = c.folder().to_str().unwrap().to_string();
    let mut format = Command::new(nacre_binary());
    format.args(["osd", "format", "--no-check", "--id", "1", "--size", "4G", "--dev", &disk]);
    succeed(format.args(["--data", &folder_of_all])).unwrap();

    // An import that stops half way is nothing that a daemon starts with.
    let cut = c.folder().join("cut");
    let whole = fs::read(&dump).unwrap();
    fs::write(&cut, &whole[..whole.len() / 2]).unwrap();
    assert!(!run(&["import", dir, cut.to_str().unwrap()]).status.success());
    let refused = c.nacre("start").arg("osd.1").output().unwrap();
    assert!(text(&refused.stderr).contains("was interrupted"), "{}", text(&refused.stderr));
    assert!(text(&run(&["fsck", dir]).stdout).ends_with("not sound\n"));
    succeed(&mut store(&["import", dir, &dump, "--force"])).unwrap();
    c.start("osd.1").unwrap();
    c.wait_clean().unwrap();
    let back = c.folder().join("back");
    for n in 0..12 {
        c.run(&format!("rados -p p get object{n} {}", back.display())).unwrap();
        assert!(fs::read(&back).unwrap() == fs::read(&marked).unwrap(), "object{n}");
    }
}

#[test]
fn an_osd_whose_metadata_rots_leaves_and_is_made_anew() {
    let c = Cluster::up_with(&["--processes"]).unwrap();
    c.run("ceph osd pool create p 8").unwrap();
    c.wait_clean().unwrap();
    c.run("rados -p p bench 1 write -b 4096 -t 8 --no-cleanup").unwrap();
    c.run("rados -p p put release /etc/os-release").unwrap();
    succeed(c.nacre("stop").arg("osd.1")).unwrap();
    let folder = c.folder().join("osd.1");
    let dir = folder.to_str().unwrap();
    succeed(&mut store(&["fsck", dir, "--repair"])).unwrap(); // all is in the checkpoint
    rot_metadata(dir, &folder.join("store"));
    let listed = run(&["ls", dir, "--all", "--format", "json"]);
    assert!(text(&listed.stderr).contains("cannot be listed"), "{}", text(&listed.stderr));
    assert!(text(&listed.stdout).contains("\"release\""), "what is behind it is listed");

    c.start("osd.1").unwrap();
    c.run("ceph osd deep-scrub all").unwrap(); // lists everything
    wait_until("osd.1 to leave", Duration::from_secs(30), || {
        let runs = c.daemons()?.contains(&"osd.1".to_string());
        Ok(!runs && c.json("ceph status")?["osdmap"]["num_up_osds"] == 2)
    })
    .unwrap();
    assert!(c.run("ceph log last 50 warn").unwrap().contains("osd.1: metadata of its store is corrupt"));
    let refused = c.nacre("start").arg("osd.1").output().unwrap();
    assert!(text(&refused.stderr).contains("was given up"), "{}", text(&refused.stderr));
    c.run("rados -p p get release -").unwrap();

    c.run("ceph osd destroy 1 --force --yes-i-really-mean-it").unwrap();
    let disk = c.folder().join("disk");
    let mut format = Command::new(nacre_binary());
    format.args(["osd", "format", "--no-check", "--id", "1", "--size", "4G", "--dev"]).arg(&disk);
    succeed(format.arg("--data").arg(c.folder())).unwrap();
    c.start("osd.1").unwrap();
    c.wait_clean().unwrap();
}

/// In a pool with one copy no other OSD knows what was stored.
#[test]
fn salvaged_only_copy_serves_when_an_operator_accepts_it() {
    let c = Cluster::up_with(&["--processes"]).unwrap();
    c.run("ceph osd pool create p 8").unwrap();
    c.run("ceph config set global mon_allow_pool_size_one true").unwrap();
    c.run("ceph osd pool set p size 1 --yes-i-really-mean-it").unwrap();
    c.wait_clean().unwrap();
    c.run("rados -p p bench 1 write -b 4096 -t 8 --no-cleanup").unwrap();
    let on_it =
        |n: &u32| c.json(&format!("ceph osd map p release{n}")).unwrap()["acting"] == serde_json::json!([1]);
    let object = format!("release{}", (0..100).find(on_it).unwrap());
    c.run(&format!("rados -p p put {object} /etc/os-release")).unwrap();
    succeed(c.nacre("stop").arg("osd.1")).unwrap();
    let folder = c.folder().join("osd.1");
    let dir = folder.to_str().unwrap();
    succeed(&mut store(&["fsck", dir, "--repair"])).unwrap(); // all is in the checkpoint
    rot_metadata(dir, &folder.join("store"));
    let dump = c.folder().join("dump").to_str().unwrap().to_string();
    assert!(!run(&["export", dir, &dump]).status.success());
    c.run("ceph osd destroy 1 --force --yes-i-really-mean-it").unwrap();
    let disk = c.folder().join("disk");
    let mut format = Command::new(nacre_binary());
    format.args(["osd", "format", "--no-check", "--id", "1", "--size", "4G", "--dev"]).arg(&disk);
    succeed(format.arg("--data").arg(c.folder())).unwrap();
    succeed(&mut store(&["import", dir, &dump])).unwrap();

    let pg = c.json(&format!("ceph osd map p {object}")).unwrap()["pgid"].as_str().unwrap().to_string();
    let refused = run(&["mark-complete", dir, &pg, "--yes-i-really-mean-it"]);
    assert!(text(&refused.stderr).contains("has not detected the loss yet"), "{}", text(&refused.stderr));
    c.start("osd.1").unwrap();
    wait_until("the group to say what it waits for", Duration::from_secs(30), || {
        Ok(c.run(&format!("ceph pg {pg} query"))?.contains("mark-complete"))
    })
    .unwrap();
    succeed(c.nacre("stop").arg("osd.1")).unwrap();
    let doubted = succeed(&mut store(&["mark-complete", dir])).unwrap();
    let doubted: Vec<&str> = doubted.lines().collect();
    assert!(doubted.contains(&&*pg), "{doubted:?}");
    let words = [&["mark-complete", dir][..], &doubted].concat();
    let refused = run(&words);
    assert!(text(&refused.stderr).contains("--yes-i-really-mean-it"), "{}", text(&refused.stderr));
    let accepted = succeed(&mut store(&[&words[..], &["--yes-i-really-mean-it"]].concat())).unwrap();
    assert!(accepted.contains(&format!("pg {pg}: ")), "{accepted}");
    assert_eq!(succeed(&mut store(&["mark-complete", dir])).unwrap(), "");
    c.start("osd.1").unwrap();
    c.wait_clean().unwrap();
    let back = c.folder().join("back");
    c.run(&format!("rados -p p get {object} {}", back.display())).unwrap();
    assert_eq!(fs::read(&back).unwrap(), fs::read("/etc/os-release").unwrap());
    c.run(&format!("rados -p p put {object} /etc/passwd")).unwrap();
}

/// Changes a byte in pages of the checkpoint, from the last one on, until things cannot be listed for it. The
/// log, which is in front of them, has the same names, and no page that goes is to be the one with "release".
fn rot_metadata(dir: &str, path: &Path) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let has = |bytes: &[u8], name: &[u8]| bytes.windows(name.len()).any(|part| part == name);
    let mut around = vec![0; 9 * 4096];
    for n in (4..file.metadata().unwrap().len() / 4096 - 5).rev() {
        file.read_exact_at(&mut around[..4096], n * 4096).unwrap();
        if around[..4096] == [0; 4096] || !has(&around[..4096], b"benchmark_data") {
            continue;
        }
        file.read_exact_at(&mut around, (n - 4) * 4096).unwrap();
        if has(&around, b"release") || has(&around, b"NacreCkp") {
            continue;
        }
        let at = around[4 * 4096..].windows(14).position(|part| part == b"benchmark_data").unwrap();
        file.write_all_at(b"B", n * 4096 + at as u64).unwrap();
        if text(&run(&["ls", dir]).stderr).contains("cannot be listed") {
            return;
        }
    }
    panic!("no page was found");
}

fn changed(path: &Path) -> SystemTime {
    fs::metadata(path).unwrap().modified().unwrap()
}

/// Changes one byte in the first block that is still all `byte`.
fn rot(path: &Path, byte: u8) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut block = vec![0; 4096];
    let len = file.metadata().unwrap().len();
    let at = (0..len / 4096).map(|n| n * 4096).find(|at| {
        file.read_exact_at(&mut block, *at).unwrap();
        block.iter().all(|b| *b == byte)
    });
    file.write_all_at(&[!byte], at.unwrap() + 100).unwrap();
}
