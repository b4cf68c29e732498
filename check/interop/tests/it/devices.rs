//! Devices: measured, judged, made into OSDs.

use nacre_interop::{Cluster, nacre_binary, skip, succeed, text, wait_until};
use serde_json::Value;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

fn nacre(words: &[&str]) -> Command {
    let mut command = Command::new(nacre_binary());
    command.args(words);
    command
}

#[test]
fn an_osd_on_a_file_of_its_own_joins_and_shows_what_its_device_can_do() {
    let c = Cluster::up().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let dev = dir.path().join("disk");
    let dev_text = dev.to_str().unwrap();
    let format = |more: &[&str]| {
        let mut command = nacre(&["osd", "format", "--dev", dev_text]);
        command.arg("--data").arg(c.folder()).args(more);
        command
    };
    // Neither without a size nor over existing data, on the device or on the log device.
    assert!(!format(&[]).status().unwrap().success());
    std::fs::write(&dev, vec![1; 64 << 20]).unwrap();
    let refused = format(&[]).output().unwrap();
    assert!(text(&refused.stderr).contains("contains data"), "{}", text(&refused.stderr));
    let empty = dir.path().join("empty");
    std::fs::File::create(&empty).unwrap().set_len(1 << 30).unwrap();
    let refused = nacre(&["osd", "format", "--dev", empty.to_str().unwrap(), "--wal", dev_text])
        .arg("--data")
        .arg(c.folder())
        .output()
        .unwrap();
    assert!(text(&refused.stderr).contains("disk contains data"), "{}", text(&refused.stderr));
    assert_eq!(empty.metadata().unwrap().blocks(), 0, "it was not touched before that was known");
    std::fs::remove_file(&dev).unwrap();

    let said = succeed(&mut format(&["--size", "2G", "--preallocate"])).unwrap();
    let has_all_its_room = || dev.metadata().unwrap().blocks() * 512 >= 2 << 30;
    assert!(said.contains("Preallocating 2G") && has_all_its_room(), "{said}");
    assert!(said.contains("Verdict: ") && said.contains("osd.3 was created on"), "{said}");
    c.start("osd.3").unwrap();
    wait_until("osd.3 to be up", Duration::from_secs(30), || {
        Ok(c.json("ceph status")?["osdmap"]["num_up_osds"] == 4)
    })
    .unwrap();
    let metadata = c.json("ceph osd metadata 3").unwrap();
    let verdict = metadata["device_verdict"].as_str().unwrap();
    assert!(verdict.starts_with("fit for"), "{verdict}");
    assert!(metadata["device_sync_write_us"].as_str().unwrap().parse::<u64>().is_ok());
    assert_eq!(
        metadata["osd_store_path"].as_str().unwrap(),
        std::fs::canonicalize(&dev).unwrap().to_str().unwrap()
    );
    // It serves, and comes back after it was killed.
    c.run("ceph osd pool create p 8").unwrap();
    c.wait_clean().unwrap();
    c.run("rados -p p bench 1 write -b 4096 -t 8").unwrap();
    c.kill("osd.3").unwrap();
    c.start("osd.3").unwrap();
    c.wait_clean().unwrap();
    assert!(has_all_its_room());
    // Nobody measures or formats what a daemon runs on.
    let busy = nacre(&["device", "check", dev_text, "--short", "--force"]).output().unwrap();
    assert!(text(&busy.stderr).contains("in use"), "{}", text(&busy.stderr));
    assert!(!format(&["--force"]).status().unwrap().success());
    assert_eq!(c.json("ceph status").unwrap()["osdmap"]["num_osds"], 4);
}

#[test]
fn a_devices_check_is_printed_for_people_and_for_programs() {
    let dir = tempfile::tempdir().unwrap();
    let dev = dir.path().join("disk");
    std::fs::File::create(&dev).unwrap().set_len(128 << 20).unwrap();
    let words = ["device", "check", dev.to_str().unwrap(), "--short"];
    let report: Value =
        serde_json::from_str(&succeed(nacre(&words).args(["--format", "json"])).unwrap()).unwrap();
    for path in ["/measured/sync1/p99", "/measured/flush/p50", "/measured/read/mean", "/verdict/osd_iops_one"]
    {
        assert!(report.pointer(path).and_then(Value::as_u64).is_some(), "{path} in {report:#}");
    }
    assert!(!report["verdict"]["because"].as_array().unwrap().is_empty());
    // What was written for the measurement is gone: it is measured again, or used, without --force.
    let table = succeed(&mut nacre(&words)).unwrap();
    for part in ["durable 4 KiB write, 16 at a time", "  < ", "#", "Verdict: "] {
        assert!(table.contains(part), "no '{part}' in\n{table}");
    }
}

/// A block device that is a file, for as long as this lives.
struct Loop(String);

impl Loop {
    /// None where the machine has no such devices, or only an administrator may make them.
    fn new(file: &Path) -> Option<Loop> {
        let made = Command::new("losetup").args(["--find", "--show"]).arg(file).output().ok()?;
        made.status.success().then(|| Loop(text(&made.stdout).trim().to_string()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

#[test]
fn block_devices_are_measured_made_into_an_osd_and_kept_from_all_others() {
    let c = Cluster::up().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let device = |name: &str, len: u64| {
        let path = dir.path().join(name);
        std::fs::File::create(&path).unwrap().set_len(len).unwrap();
        Loop::new(&path)
    };
    let (Some(dev), Some(wal), Some(other)) =
        (device("dev", 2 << 30), device("wal", 256 << 20), device("other", 256 << 20))
    else {
        return skip("there are no loop devices here");
    };
    let data = c.folder().to_str().unwrap().to_string();
    // Measured, it is as blank as it was.
    let measured = succeed(&mut nacre(&["device", "check", &dev.0, "--short"])).unwrap();
    let said =
        succeed(&mut nacre(&["osd", "format", "--data", &data, "--dev", &dev.0, "--wal", &wal.0])).unwrap();
    assert!(measured.contains("Verdict: ") && said.matches("Verdict: ").count() == 2, "{measured}{said}");
    c.start("osd.3").unwrap();
    wait_until("osd.3 to be up", Duration::from_secs(30), || {
        Ok(c.json("ceph status")?["osdmap"]["num_up_osds"] == 4)
    })
    .unwrap();
    let metadata = c.json("ceph osd metadata 3").unwrap();
    for key in ["device_verdict", "wal_device_verdict"] {
        assert!(metadata[key].as_str().unwrap().starts_with("fit for"), "{metadata:#}");
    }
    c.run("ceph osd pool create p 8").unwrap();
    c.wait_clean().unwrap();
    c.run("rados -p p bench 1 write -b 4096 -t 8").unwrap();
    // While it runs no other process can open its devices.
    for device in [&dev, &wal] {
        assert!(!Command::new("mkfs.ext4").args(["-q", "-F", &device.0]).status().unwrap().success());
        let refused = nacre(&["device", "check", &device.0, "--short", "--force"]).output().unwrap();
        assert!(text(&refused.stderr).contains("in use"), "{}", text(&refused.stderr));
    }
    succeed(c.nacre("stop").arg("osd.3")).unwrap();
    // What is mounted is not written over, whatever is said.
    succeed(Command::new("mkfs.ext4").args(["-q", &other.0])).unwrap();
    let mounted = dir.path().join("mounted");
    std::fs::create_dir(&mounted).unwrap();
    succeed(Command::new("mount").args([&other.0, mounted.to_str().unwrap()])).unwrap();
    let moved = nacre(&["osd", "move-wal", "osd.3", "--data", &data, "--wal", &other.0, "--force"]).output();
    succeed(Command::new("umount").arg(&mounted)).unwrap();
    let moved = moved.unwrap();
    assert!(text(&moved.stderr).contains("mounted"), "{}", text(&moved.stderr));
    succeed(Command::new("fsck.ext4").args(["-f", "-n", &other.0])).unwrap();
    let force = ["osd", "move-wal", "osd.3", "--data", &data, "--wal", &other.0, "--force"];
    succeed(&mut nacre(&force)).unwrap();
    c.start("osd.3").unwrap();
    c.wait_clean().unwrap();
    assert_eq!(c.json("ceph osd metadata 3").unwrap().get("wal_device_verdict"), None, "that was another's");
}

#[test]
fn a_log_on_a_device_of_its_own_moves_and_its_loss_is_said() {
    let c = Cluster::up().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let (dev, wal, other) = (path("disk"), path("wal"), path("other"));
    let data = c.folder().to_str().unwrap().to_string();
    let format = ["osd", "format", "--no-check", "--data", &data, "--dev", &dev, "--size", "2G"];
    assert!(!nacre(&format).args(["--wal", &wal]).status().unwrap().success());
    assert!(!std::fs::exists(&dev).unwrap(), "what was made for it is gone");
    succeed(nacre(&format).args(["--wal", &wal, "--wal-size", "64M"])).unwrap();
    c.start("osd.3").unwrap();
    let is_up = |up: u64| c.json("ceph status").map(|status| status["osdmap"]["num_up_osds"] == up);
    wait_until("osd.3 to be up", Duration::from_secs(30), || is_up(4)).unwrap();
    assert_eq!(c.json("ceph osd metadata 3").unwrap()["osd_wal_path"], *wal);
    c.run("ceph osd pool create p 8").unwrap();
    c.wait_clean().unwrap();
    c.run("rados -p p bench 1 write -b 4096 -t 8 --no-cleanup").unwrap();

    let folder = c.folder().join("osd.3").to_str().unwrap().to_string();
    let fsck = |more: &[&str]| nacre(&["store", "fsck", &folder, "--deep"]).args(more).output().unwrap();
    let move_wal = |more: &[&str]| {
        let mut command = nacre(&["osd", "move-wal", "osd.3", "--data", &data]);
        command.args(more).output().unwrap()
    };
    let busy = move_wal(&["--wal", &other, "--wal-size", "32M"]);
    assert!(!busy.status.success() && text(&busy.stderr).contains("in use"), "{}", text(&busy.stderr));
    succeed(c.nacre("stop").arg("osd.3")).unwrap();
    assert!(text(&fsck(&[]).stdout).ends_with("sound\n"));
    let back = move_wal(&["--back"]);
    assert!(text(&back.stderr).contains("no room"), "{}", text(&back.stderr));
    for _ in 0..2 {
        let moved = move_wal(&["--wal", &other, "--wal-size", "32M"]);
        assert!(moved.status.success(), "{}", text(&moved.stderr));
    }
    assert!(text(&fsck(&[]).stdout).ends_with("sound\n"));
    assert!(text(&fsck(&["--wal", &wal]).stderr).contains("no log of a store"));
    c.start("osd.3").unwrap();
    wait_until("osd.3 to be back", Duration::from_secs(30), || is_up(4)).unwrap();
    c.run("rados -p p bench 1 write -b 4096 -t 8").unwrap();
    c.wait_clean().unwrap();
    succeed(c.nacre("stop").arg("osd.3")).unwrap();
    std::fs::rename(&other, &wal).unwrap();
    let lost = fsck(&[]);
    assert!(text(&lost.stderr).contains("the device of the store's log"), "{}", text(&lost.stderr));
}

#[test]
fn osd_disk_is_replaced_and_another_osd_removed_under_load() {
    let c = Cluster::up_with(&["--processes", "--osds", "5"]).unwrap();
    c.run("ceph osd pool create load 16").unwrap();
    let load = c.start_load("load").unwrap();
    let give_up = |osd: &str| {
        c.run(&format!("ceph osd out {osd}")).unwrap();
        let safe = || Ok(c.try_run(&format!("ceph osd safe-to-destroy {osd}"))?.status.success());
        wait_until("nobody to need it", Duration::from_secs(120), safe).unwrap();
        succeed(c.nacre("stop").arg(format!("osd.{osd}"))).unwrap();
    };
    let dev = c.folder().join("disk");
    let format = |id: &str| {
        let mut format = c.nacre("osd format");
        format.arg("--dev").arg(&dev).args(["--size", "4G", "--no-check", "--id", id]);
        format
    };
    let uuid = |c: &Cluster| {
        let osds = c.json("ceph osd dump").unwrap()["osds"].as_array().unwrap().clone();
        osds.iter().find(|osd| osd["osd"] == 2).unwrap()["uuid"].as_str().unwrap().to_string()
    };
    let old = uuid(&c);
    give_up("2");
    let refused = format("2").output().unwrap();
    assert!(text(&refused.stderr).contains("osd.2 is part of the cluster"), "{}", text(&refused.stderr));
    assert!(!dev.exists());
    c.run("ceph osd destroy 2 --yes-i-really-mean-it").unwrap();
    let said = succeed(&mut format("2")).unwrap();
    assert!(said.contains("in place of the destroyed OSD"), "{said}");
    c.start("osd.2").unwrap();
    c.run("ceph osd in 2").unwrap();
    wait_until("osd.2 to be up again", Duration::from_secs(60), || {
        let status = c.json("ceph status")?;
        Ok(status["osdmap"]["num_up_osds"] == 5 && status["osdmap"]["num_in_osds"] == 5)
    })
    .unwrap();
    c.wait_clean().unwrap();
    assert_ne!(uuid(&c), old);
    let path = c.json("ceph osd metadata 2").unwrap()["osd_store_path"].as_str().unwrap().to_string();
    assert_eq!(std::fs::canonicalize(&dev).unwrap(), std::path::Path::new(&path));

    give_up("3");
    assert!(!c.nacre("osd forget").args(["--id", "3"]).status().unwrap().success());
    c.run("ceph osd purge 3 --yes-i-really-mean-it").unwrap();
    succeed(c.nacre("osd forget").args(["--id", "3"])).unwrap();
    load.finish().unwrap();
    succeed(&mut c.nacre("down")).unwrap();
    succeed(c.nacre("up").args(["--processes", "--detach"])).unwrap();
    let ids: Vec<i64> =
        c.json("ceph osd ls").unwrap().as_array().unwrap().iter().flat_map(|id| id.as_i64()).collect();
    assert_eq!(ids, [0, 1, 2, 4]);
    c.wait_clean().unwrap();
}
