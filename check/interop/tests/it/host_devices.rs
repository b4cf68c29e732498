//! Disks of hosts: listed, pulled, and moved to another host.

use nacre_interop::hosts::{Family, HostNet};
use nacre_interop::{kill_and_wait, succeed, wait_until};
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

/// A disk that is a file of six GiB.
fn disk(net: &HostNet, name: &str) -> PathBuf {
    let path = net.disk(name).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(6 << 30).unwrap();
    path
}

/// Connects a disk to a host.
fn plug(net: &HostNet, host: usize, disk: &Path) -> PathBuf {
    let devices = net.data(host).join("devices");
    fs::create_dir_all(&devices).unwrap();
    let link = devices.join(disk.file_name().unwrap());
    symlink(disk, &link).unwrap();
    link
}

fn up(net: &HostNet, osds: u64) {
    let are_up = || Ok(net.json(1, 1, "ceph status")?["osdmap"]["num_up_osds"] == osds);
    wait_until("OSDs to be up", MINUTE, are_up).unwrap();
}

/// The host of each device, with what it holds and whether it is available.
fn listed(net: &HostNet) -> Vec<(String, String, String, bool)> {
    let ls = succeed(&mut net.nacre(1, "device ls --format json")).unwrap();
    let ls: Value = serde_json::from_str(&ls).unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    ls.as_array()
        .unwrap()
        .iter()
        .map(|row| {
            let name = text(&row["path"]).rsplit('/').next().unwrap().to_string();
            (text(&row["host"]), name, text(&row["holds"]), row["available"] == true)
        })
        .collect()
}

#[test]
fn disk_that_moves_to_another_host_takes_its_osd_along() {
    let net = HostNet::new(2).unwrap();
    let addr = |host| Family::V4.addr(host);
    let [first, second, third, new] = ["one", "two", "three", "new"].map(|name| disk(&net, name));
    let own = [plug(&net, 1, &first), plug(&net, 1, &second)];
    net.init(1, addr(1), Family::V4.network(), &[&own[0], &own[1]]).unwrap();
    let token = net.token(1, "").unwrap();
    let other = plug(&net, 2, &third);
    succeed(net.join(2, &token, addr(2), &[&other]).args(["--name", "h2"])).unwrap();
    up(&net, 3);
    net.run(1, 1, "ceph osd pool create p 8").unwrap();
    net.run(1, 1, "ceph osd pool application enable p rados").unwrap();
    net.run(1, 1, "rados -p p put o /etc/hostname").unwrap();

    // A new disk is shown as one that may be used.
    plug(&net, 2, &new);
    let has = |name: &str, expected: (&str, bool)| {
        let rows = listed(&net);
        Ok(rows.iter().any(|row| row.1 == name && (row.2.as_str(), row.3) == expected))
    };
    wait_until("the new disk to be listed", MINUTE, || has("new", ("", true))).unwrap();
    assert!(has("one", ("osd.0", false)).unwrap(), "{:?}", listed(&net));
    // Ceph's own class for devices reads what the orchestrator says.
    let orch = net.run(1, 1, "ceph orch device ls --format json").unwrap();
    let script = "import json, sys; from ceph.deployment.inventory import Devices\n\
        for host in json.load(sys.stdin):\n  for d in Devices.from_json(host['devices']).devices:\n    \
        print(host['name'], d.path.split('/')[-1], d.available, d.ceph_device, d.human_readable_type)";
    let mut python = Command::new("/usr/bin/python3")
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    python.stdin.take().unwrap().write_all(orch.as_bytes()).unwrap();
    let read = python.wait_with_output().unwrap();
    let read = String::from_utf8(read.stdout).unwrap();
    assert!(read.lines().any(|line| line == "h2 new True False unknown"), "{read}");

    // A disk is pulled, and its OSD dies of that.
    fs::remove_file(&own[0]).unwrap();
    let (_, pid) = net.pids(1).unwrap().into_iter().find(|(name, _)| name == "osd.0").unwrap();
    kill_and_wait(pid).unwrap();
    let detail = || {
        let health = net.json(1, 1, "ceph health detail")?;
        let detail = health["checks"]["DEVICE_MISSING"]["detail"][0]["message"].clone();
        Ok(detail.as_str().unwrap_or_default().to_string())
    };
    let names_it = |text: String| text.contains("devices/one") && text.contains("which osd.0 is on");
    wait_until("the missing device to be named", MINUTE, || detail().map(names_it)).unwrap();

    // In the other host it is found by what is on it.
    plug(&net, 2, &first);
    up(&net, 3);
    let tree = net.json(1, 1, "ceph osd tree").unwrap();
    let of_h2 = tree["nodes"].as_array().unwrap().iter().find(|node| node["name"] == "h2").unwrap();
    assert!(of_h2["children"].as_array().unwrap().contains(&0.into()), "{tree}");
    assert_eq!(net.run(2, 1, "rados -p p get o -").unwrap(), fs::read_to_string("/etc/hostname").unwrap());
    wait_until("the warning to end", MINUTE, || Ok(detail()?.is_empty())).unwrap();

    // The kernel gives a disk another name: its OSD is found all the same.
    succeed(&mut net.nacre(1, "stop osd.1")).unwrap();
    fs::rename(&own[1], net.data(1).join("devices/renamed")).unwrap();
    wait_until("the renamed disk to be found", MINUTE, || has("renamed", ("osd.1", false))).unwrap();
    let store = || Ok(fs::read_link(net.data(1).join("osd.1/store"))?.ends_with("renamed"));
    wait_until("the OSD to follow", MINUTE, store).unwrap();
    succeed(&mut net.nacre(1, "start osd.1")).unwrap();
    up(&net, 3);
}

#[test]
fn orchestrator_restarts_adds_and_removes_osds_and_erases_their_disks() {
    let net = HostNet::new(1).unwrap();
    let own = ["one", "two", "three"].map(|name| plug(&net, 1, &disk(&net, name)));
    net.init(1, Family::V4.addr(1), Family::V4.network(), &[&own[0], &own[1], &own[2]]).unwrap();
    up(&net, 3);
    let host = net.json(1, 1, "ceph orch host ls --format json").unwrap()[0]["hostname"].clone();
    let host = host.as_str().unwrap();
    let pid =
        || net.pids(1).map(|pids| pids.into_iter().find(|(name, _)| name == "osd.1").map(|(_, pid)| pid));
    let before = pid().unwrap();
    let listed_osd = || Ok(net.json(1, 1, "ceph orch ps --format json")?.to_string().contains("osd.1"));
    wait_until("the agent to report", MINUTE, listed_osd).unwrap();
    net.run(1, 1, "ceph orch daemon restart osd.1").unwrap();
    wait_until("another process", MINUTE, || Ok(pid()?.is_some_and(|pid| Some(pid) != before))).unwrap();
    up(&net, 3);

    let new = plug(&net, 1, &disk(&net, "new"));
    net.run(1, 1, &format!("ceph orch host rescan {host}")).unwrap();
    let has = |name: &str, expected: (&str, bool)| {
        Ok(listed(&net).iter().any(|row| row.1 == name && (row.2.as_str(), row.3) == expected))
    };
    wait_until("the new disk to be listed", MINUTE, || has("new", ("", true))).unwrap();
    succeed(net.nacre(1, &format!("host add-osd {host} --no-device-check --yes")).arg(&new)).unwrap();
    up(&net, 4);
    net.run(1, 1, "ceph osd pool create p 8").unwrap();
    net.run(1, 1, "ceph osd pool application enable p rados").unwrap();
    net.run(1, 1, "rados -p p put o /etc/hostname").unwrap();
    let ports = net.json(1, 1, "ceph orch ps --daemon_type osd --format json").unwrap();
    assert!(ports[0]["ports"][0].as_u64().unwrap() >= 6800, "{ports}");

    net.run(1, 1, "ceph orch osd rm 0 --zap").unwrap();
    let left = || Ok(net.json(1, 1, "ceph osd ls")? == serde_json::json!([1, 2, 3]));
    wait_until("osd.0 to be removed", 2 * MINUTE, left).unwrap();
    wait_until("its disk to be blank", MINUTE, || has("one", ("", true))).unwrap();
    assert_eq!(net.run(1, 1, "rados -p p get o -").unwrap(), fs::read_to_string("/etc/hostname").unwrap());
    let idle = || Ok(net.json(1, 1, "ceph orch osd rm status --format json")? == serde_json::json!([]));
    wait_until("the removal to be over", MINUTE, idle).unwrap();
    assert!(!net.data(1).join("osd.0").exists());
    let exported = net.run(1, 1, "ceph orch ls --export").unwrap();
    assert!(exported.contains("service_type: osd\n"), "{exported}");
}
