//! Daemons that start from their own configuration, and a cluster that starts although it serves in part
//! only.

use nacre_interop::{Cluster, nacre_binary, succeed, text, wait_until};
use serde_json::Value;
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

/// A daemon in the foreground, ended when dropped.
struct Foreground(Child);

impl Foreground {
    fn start(arguments: &[&str]) -> Foreground {
        let mut command = Command::new(nacre_binary());
        Foreground(command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Foreground {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn public_addr(c: &Cluster, osd: usize) -> Option<String> {
    let map = c.json("ceph osd dump").ok()?;
    let osd = &map["osds"][osd];
    (osd["up"] == 1)
        .then(|| osd["public_addrs"]["addrvec"][0]["addr"].as_str().unwrap_or_default().to_string())
}

#[test]
fn daemon_starts_from_its_data_directory_with_other_addresses() {
    let c = Cluster::up().unwrap();
    succeed(c.nacre("stop").arg("osd.1")).unwrap();
    let data = c.folder().join("osd.1");
    let config: Value = serde_json::from_slice(&fs::read(data.join("daemon.json")).unwrap()).unwrap();
    let mons = config["mons"][0].as_str().unwrap().to_string();
    let port = config["osd"]["public_addr"].as_str().unwrap().rsplit(':').next().unwrap().to_string();
    // Its key and the monitors are named again, to override what the file says.
    let keyring = data.join("keyring");
    let arguments =
        ["osd", "--data", data.to_str().unwrap(), "--public-addr", "127.0.0.7", "--mon-host", &mons];
    let osd = Foreground::start(&[&arguments[..], &["--keyring", keyring.to_str().unwrap()]].concat());
    let expected = format!("127.0.0.7:{port}");
    wait_until("osd.1 at its other address", MINUTE, || Ok(public_addr(&c, 1) == Some(expected.clone())))
        .unwrap();
    c.wait_clean().unwrap();
    drop(osd);

    let refused = Command::new(nacre_binary()).args(["mon", "--data"]).arg(&data).output().unwrap();
    assert!(
        text(&refused.stderr).contains("this is the data directory of osd.1"),
        "{}",
        text(&refused.stderr)
    );
    let refused = Command::new(nacre_binary()).args(["osd", "--data"]).arg(c.folder()).output().unwrap();
    assert!(text(&refused.stderr).contains("there is no daemon.json"), "{}", text(&refused.stderr));
}

/// Folders that an earlier version made have no configurations of single daemons.
#[test]
fn folder_of_an_earlier_version_starts() {
    let c = Cluster::up().unwrap();
    c.run("ceph osd pool create p 8").unwrap();
    c.run("rados -p p put o /etc/hostname").unwrap();
    let forget_configurations = || {
        for daemon in ["mon.a", "osd.0", "osd.1", "osd.2"] {
            fs::remove_file(c.folder().join(daemon).join("daemon.json")).unwrap();
        }
    };
    // A program that is newer than the one that runs the cluster starts a daemon.
    succeed(c.nacre("stop").arg("osd.0")).unwrap();
    forget_configurations();
    c.start("osd.0").unwrap();
    c.wait_clean().unwrap();
    assert!(c.folder().join("osd.0/daemon.json").exists());
    succeed(c.nacre("stop").arg("osd.1")).unwrap();
    let osd = Foreground::start(&["osd", "--data", c.folder().to_str().unwrap(), "--id", "1"]);
    wait_until("osd.1 is up", MINUTE, || Ok(public_addr(&c, 1).is_some())).unwrap();
    drop(osd);

    succeed(&mut c.nacre("down")).unwrap();
    fs::remove_file(c.folder().join("osd.0/daemon.json")).unwrap();
    succeed(c.nacre("up").args(["--processes", "--detach"])).unwrap();
    assert_eq!(c.run("rados -p p get o -").unwrap(), fs::read_to_string("/etc/hostname").unwrap());
    succeed(&mut c.nacre("down")).unwrap();
    fs::remove_file(c.folder().join("mon.a/daemon.json")).unwrap();
    succeed(c.nacre("up").arg("--detach")).unwrap();
    assert_eq!(c.run("rados -p p get o -").unwrap(), fs::read_to_string("/etc/hostname").unwrap());
}

#[test]
fn port_in_use_is_named_with_its_holder() {
    let c = Cluster::up().unwrap();
    succeed(c.nacre("stop").arg("osd.2")).unwrap();
    let path = c.folder().join("osd.2/daemon.json");
    let config: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let addr = config["osd"]["public_addr"].as_str().unwrap();
    let held = TcpListener::bind(addr).unwrap();
    let refused = c.nacre("start").arg("osd.2").output().unwrap();
    let expected = format!("cannot listen on {addr}: ");
    let (said, pid) = (text(&refused.stderr), format!("(pid {}) listens there", std::process::id()));
    assert!(!refused.status.success() && said.contains(&expected) && said.contains(&pid), "{said}");
    drop(held);
    c.start("osd.2").unwrap();
}

/// The check of `nacre up` ended all daemons when one pool could not be placed.
#[test]
fn cluster_with_a_pool_that_cannot_be_placed_stays_up() {
    let c = Cluster::up().unwrap();
    c.run("ceph osd pool create p 8").unwrap();
    c.run("rados -p p put o /etc/hostname").unwrap();
    c.run("ceph osd crush rule create-replicated far default datacenter").unwrap();
    c.run("ceph osd pool create nowhere 8 8 replicated far").unwrap();
    succeed(&mut c.nacre("down")).unwrap();
    let said = succeed(c.nacre("up").args(["--processes", "--detach"])).unwrap();
    let pool = c.json("ceph osd pool stats nowhere").unwrap()[0]["pool_id"].as_u64().unwrap();
    assert!(said.contains(&format!("Placement groups that do not serve: {pool}.")), "{said}");
    assert!(said.contains("does not serve all of its data"), "{said}");
    assert_eq!(c.run("rados -p p get o -").unwrap(), fs::read_to_string("/etc/hostname").unwrap());
    assert!(Path::new(&c.folder().join("run/osd.0.pid")).exists());
}
