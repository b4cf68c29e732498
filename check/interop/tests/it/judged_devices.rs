//! Devices of a host as it finds them: raw ones, a mounted one, a partition for a log, and one that is pulled
//! and swapped. They are loop devices.

use nacre_interop::hosts::HostNet;
use nacre_interop::{skip, succeed, text, wait_until};
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

/// A loop device, until this is dropped.
struct Loop(PathBuf);

impl Loop {
    fn of(file: &Path) -> Option<Loop> {
        let device =
            succeed(Command::new("losetup").args(["--find", "--show", "--partscan"]).arg(file)).ok()?;
        Some(Loop(PathBuf::from(device.trim())))
    }
    /// A new one, of a blank file.
    fn new(folder: &Path, name: &str, len: u64) -> Option<Loop> {
        let file = folder.join(name);
        File::create(&file).unwrap().set_len(len).unwrap();
        Loop::of(&file)
    }
    fn name(&self) -> String {
        self.0.display().to_string()
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        if let Err(error) = succeed(Command::new("losetup").arg("--detach").arg(&self.0)) {
            eprintln!("{error:#}");
        }
    }
}

/// A file system that is mounted until this is dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn new(device: &Loop, on: PathBuf) -> Mounted {
        fs::create_dir(&on).unwrap();
        succeed(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&device.0)).unwrap();
        succeed(Command::new("mount").arg(&device.0).arg(&on)).unwrap();
        Mounted(on)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = succeed(Command::new("umount").arg(&self.0)) {
            eprintln!("{error:#}");
        }
    }
}

/// A partition that takes a whole device. None where the kernel shows none.
fn partition(device: &Loop) -> Option<PathBuf> {
    succeed(Command::new("sgdisk").args(["--new=1:0:0"]).arg(&device.0)).ok()?;
    let _ = succeed(Command::new("partx").arg("--update").arg(&device.0));
    let path = PathBuf::from(format!("{}p1", device.name()));
    let is_there = wait_until("the partition", Duration::from_secs(5), || Ok(path.exists()));
    is_there.ok().map(|()| path)
}

fn connect(net: &HostNet, device: &Loop, name: &str) -> PathBuf {
    let devices = net.data(1).join("devices");
    fs::create_dir_all(&devices).unwrap();
    let link = devices.join(name);
    symlink(&device.0, &link).unwrap();
    link
}

#[test]
fn devices_are_judged_before_they_are_used_and_found_again_after() {
    let folder = tempfile::tempdir().unwrap();
    let new = |name: &str, len: u64| Loop::new(folder.path(), name, len);
    let all = (new("one", 6 << 30), new("two", 6 << 30), new("used", 64 << 20), new("fast", 1 << 30));
    let (Some(one), Some(two), Some(used), Some(fast)) = all else {
        return skip("this machine has no loop devices");
    };
    let Some(log) = partition(&fast) else { return skip("this machine shows no partitions of loop devices") };
    let _mounted = Mounted::new(&used, folder.path().join("mnt"));
    let net = HostNet::new(1).unwrap();
    let init = |options: &[&str], devices: &[&Path]| {
        let mut init = net.nacre(1, "init --no-systemd --addr 10.9.0.1 --network 10.9.0.0/24");
        let devices: Vec<String> = devices.iter().map(|path| path.display().to_string()).collect();
        init.args(["--devices", &devices.join(",")]).args(options);
        init
    };
    let refused = init(&["--check-only"], &[&used.0, &one.0]).output().unwrap();
    let said = text(&refused.stdout) + &text(&refused.stderr);
    assert!(!refused.status.success() && said.contains("rejected: Has a FileSystem, locked"), "{said}");
    assert!(said.contains("it is mounted") && said.contains("nothing was changed"), "{said}");

    // The plan says what was measured, and the devices are blank after that.
    let logs = log.display().to_string();
    let split = ["--wal-devices", logs.as_str(), "--wal-size", "128M"];
    let shown = succeed(init(&["--check-only", "--format", "json"], &[&one.0]).args(split)).unwrap();
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let planned = &shown["plan"]["devices"][0];
    assert!(planned["class"].is_string(), "{shown}");
    assert!(planned["measured"].as_str().unwrap().contains("a durable write takes"), "{shown}");
    // A device that is not faster takes no log, and the class follows what was measured: from here on none
    // is.
    let shown = init(&["--check-only", "--no-device-check", "--format", "json"], &[&one.0]).output().unwrap();
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    let class = &shown["plan"]["devices"][0]["class"];
    let said = succeed(init(&["--yes", "--no-device-check"], &[&one.0]).args(split)).unwrap();
    assert!(said.contains(&format!("log: {logs}")), "{said}");
    let metadata = net.json(1, 1, "ceph osd metadata 0").unwrap();
    assert_eq!(
        (&metadata["osd_wal_path"], &metadata["bluestore_bdev_dev_node"]),
        (&logs.as_str().into(), &one.name().into())
    );
    let tree = net.json(1, 1, "ceph osd tree").unwrap().to_string();
    assert!(tree.contains(&format!("\"device_class\":{}", class)), "{tree}");

    // It is pulled, and another one gets its name: that stays as it is, and the OSD is found under the new
    // name.
    succeed(&mut net.nacre(1, "stop osd.0")).unwrap();
    let name = one.name();
    drop(one);
    // The kernel gives out the first free name.
    let first = new("other", 6 << 30).unwrap();
    let other = if first.name() == name { first } else { two };
    let swapped = Loop::of(&folder.path().join("one")).unwrap();
    connect(&net, &swapped, "swapped");
    let store = || Ok(fs::read_link(net.data(1).join("osd.0/store"))?.ends_with("swapped"));
    wait_until("the OSD to be found", MINUTE, store).unwrap();
    succeed(&mut net.nacre(1, "start osd.0")).unwrap();
    let up = |osds: u64| {
        let are_up = || Ok(net.json(1, 1, "ceph status")?["osdmap"]["num_up_osds"] == osds);
        wait_until("OSDs to be up", MINUTE, are_up).unwrap();
    };
    up(1);

    // The other one becomes an OSD when that is said, with its log as a file.
    let link = connect(&net, &other, "other");
    let host = net.json(1, 1, "ceph orch host ls --format json").unwrap()[0]["hostname"].clone();
    let host = host.as_str().unwrap();
    let listed = || Ok(succeed(&mut net.nacre(1, "device ls"))?.contains("/other"));
    wait_until("the device to be listed", MINUTE, listed).unwrap();
    let add = |options: &[&str]| {
        let mut add = net.nacre(1, &format!("host add-osd {host}"));
        add.arg(&link).arg("--wal-devices").arg(folder.path());
        add.args(["--wal-size", "128M", "--no-device-check"]).args(options);
        add
    };
    let refused = add(&[]).output().unwrap();
    assert!(!refused.status.success() && text(&refused.stdout).contains("available"), "{refused:?}");
    succeed(&mut add(&["--yes"])).unwrap();
    up(2);
    let files = || {
        let names = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().ends_with(".wal")).count()
    };
    assert_eq!(files(), 1);
    succeed(&mut net.nacre(1, "uninstall --wipe --force --yes")).unwrap();
    assert_eq!(files(), 0);
    let blank = |path: &Path| {
        let mut front = [1; 4096];
        std::os::unix::fs::FileExt::read_exact_at(&File::open(path).unwrap(), &mut front, 0).unwrap();
        front == [0; 4096]
    };
    assert!([&swapped.0, &other.0, &log].into_iter().all(|path| blank(path)));
}
