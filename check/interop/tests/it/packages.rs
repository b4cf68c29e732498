//! The Debian package under systemd, and the image for containers.

use nacre_interop::hosts::HostNet;
use nacre_interop::system::System;
use nacre_interop::{kill_and_wait, nacre_binary, succeed, wait_until};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

/// Packages the binary under test.
fn package(out: &Path, options: &str) -> PathBuf {
    let mut xtask = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    xtask.args(["xtask", "package", "--uncompressed", "--out"]).arg(out).arg("--binary").arg(nacre_binary());
    xtask.args(options.split_whitespace()).current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    PathBuf::from(succeed(&mut xtask).unwrap().lines().last().unwrap())
}

#[test]
fn package_is_installed_upgraded_and_removed_and_systemd_runs_the_daemons() {
    let net = HostNet::new(1).unwrap();
    let Some(mut system) = System::boot(&net, 1).unwrap() else { return };
    let out = tempfile::tempdir().unwrap();
    for version in ["1.0", "1.1"] {
        let deb = package(out.path(), &format!("--version {version}"));
        system.copy(&deb, &format!("/root/nacre-{version}.deb")).unwrap();
    }
    ["a", "b"].iter().for_each(|disk| system.disk(disk).unwrap());
    let run = |system: &System, script: &str| system.run(script).unwrap();
    // Triggers of other packages take long.
    let dpkg = |words: &str| format!("dpkg --no-triggers {words}");

    // Installed: nothing runs, and all that a package brings is there.
    run(&system, &dpkg("--install /root/nacre-1.0.deb"));
    run(&system, "systemd-analyze verify --man=no /lib/systemd/system/nacre*");
    assert_eq!(run(&system, "systemctl is-enabled nacre-host || true").trim(), "disabled");
    let page = run(&system, "zcat /usr/share/man/man1/nacre-init.1.gz");
    assert!(page.contains("\\-\\-network"), "{page}");
    run(&system, "source /usr/share/bash-completion/completions/nacre && complete -p nacre");
    run(&system, "zcat /usr/share/doc/nacre/third-party-licences.gz | grep 'Permission is hereby granted'");
    run(&system, "dpkg --verify nacre");

    // A host: the package's units run its daemons.
    run(
        &system,
        "nacre init --name h-1 --addr 10.9.0.1 --network 10.9.0.0/24 --devices /disks/a,/disks/b --no-device-check --yes",
    );
    let units = "nacre.target nacre-host nacre-mon@h-1 nacre-osd@0 nacre-osd@1";
    run(&system, &format!("systemctl is-active {units}"));
    run(&system, "! ls /etc/systemd/system/nacre*.service");
    run(&system, "ceph osd pool create p 8 && rados -p p put o /etc/hostname");
    let pid = |system: &System, unit: &str| run(system, &format!("systemctl show --property MainPID {unit}"));
    let is_up = "ceph osd stat | grep '2 up'";
    // systemd starts a daemon again that is killed, also without the agent.
    let before = pid(&system, "nacre-osd@0");
    run(&system, "systemctl kill --signal KILL nacre-host nacre-osd@0");
    let again = format!("test \"$(systemctl show --property MainPID nacre-osd@0)\" != {before} && {is_up}");
    system.wait("the OSD to be started again", &again.replace('\n', "")).unwrap();
    // What is stopped stays so: by `nacre stop` also when the agent starts anew.
    run(&system, "nacre stop osd.0 && systemctl restart nacre-host");
    thread::sleep(Duration::from_secs(3));
    run(&system, "! systemctl is-active nacre-osd@0 && nacre start osd.0");
    run(&system, "systemctl stop nacre-osd@0");
    thread::sleep(Duration::from_secs(3));
    run(&system, "! systemctl is-active nacre-osd@0 && systemctl start nacre-osd@0");

    // Upgraded: the agent is the new one, the daemons were not touched.
    let pids = ["nacre-mon@h-1", "nacre-osd@0", "nacre-host"].map(|unit| pid(&system, unit));
    // Units of a program that was installed by hand before hide the package's no longer.
    let unit = "/etc/systemd/system/nacre-host.service";
    run(&system, &format!("printf '# Written by Nacre.\\n[Service]\\nExecStart=/opt/nacre\\n' > {unit}"));
    run(&system, &dpkg("--install /root/nacre-1.1.deb"));
    run(&system, &format!("! test -e {unit}"));
    let now = ["nacre-mon@h-1", "nacre-osd@0", "nacre-host"].map(|unit| pid(&system, unit));
    assert!(pids[..2] == now[..2] && pids[2] != now[2], "{pids:?} {now:?}");

    // Booted: all is back without a hand.
    system.reboot().unwrap();
    system.wait("the OSD to be up", is_up).unwrap();
    assert_eq!(run(&system, "rados -p p get o -"), run(&system, "cat /etc/hostname"));

    // Removed and purged: nothing runs, and the data stays.
    run(&system, &dpkg("--remove nacre"));
    run(&system, "! pgrep -x nacre && test -e /etc/default/nacre && ! test -e /usr/bin/nacre");
    run(&system, &dpkg("--purge nacre"));
    run(&system, "! find /etc/systemd /lib/systemd /etc/default /etc/logrotate.d -name 'nacre*' | grep .");
    run(&system, "test -e /var/lib/nacre/host.json && test -e /disks/a");
    run(&system, &dpkg("--install /root/nacre-1.1.deb"));
    run(&system, "nacre host start");
    system.wait("the OSD to be up", is_up).unwrap();
    assert_eq!(run(&system, "rados -p p get o -"), run(&system, "cat /etc/hostname"));
}

/// The files of an image, from its archive, whose digests are checked.
fn unpack(archive: &Path, folder: &Path) -> Value {
    let layout = folder.join("layout");
    let root = folder.join("root");
    [&layout, &root].iter().for_each(|folder| fs::create_dir(folder).unwrap());
    succeed(Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(&layout)).unwrap();
    let blob = |descriptor: &Value| {
        let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
        let path = layout.join("blobs/sha256").join(digest);
        let sum = succeed(Command::new("sha256sum").arg(&path)).unwrap();
        assert!(sum.starts_with(digest), "{sum}");
        assert_eq!(fs::metadata(&path).unwrap().len(), descriptor["size"].as_u64().unwrap());
        path
    };
    let json = |path: PathBuf| serde_json::from_slice::<Value>(&fs::read(path).unwrap()).unwrap();
    let index = json(layout.join("index.json"));
    let manifest = json(blob(&index["manifests"][0]));
    let layer = blob(&manifest["layers"][0]);
    let config = json(blob(&manifest["config"]));
    assert_eq!(config["rootfs"]["diff_ids"][0], manifest["layers"][0]["digest"]);
    succeed(Command::new("tar").arg("-xf").arg(layer).arg("-C").arg(&root)).unwrap();
    config["config"].clone()
}

/// A container of the image, which ends with this.
struct Container(Child);

impl Container {
    fn start(net: &HostNet, root: &Path, data: &Path, words: &[String]) -> Container {
        let script = format!(
            "set -e; cd {root}; mount -t proc proc proc; mount --rbind /dev dev; mount --rbind /sys sys; \
             mount --bind {data} var/lib/nacre; exec chroot . {words}",
            root = root.display(),
            data = data.display(),
            words = words.join(" "),
        );
        let mut unshare = net.on(1, "unshare");
        unshare.args(["--mount", "--pid", "--fork", "--kill-child", "bash", "-c", &script]);
        Container(unshare.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// The first process in it.
    fn init(&self) -> String {
        let pid = self.0.id();
        let children = || fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        wait_until("the container to start", Duration::from_secs(10), || Ok(!children()?.is_empty()))
            .unwrap();
        children().unwrap().trim().to_string()
    }

    fn run(&self, words: &str) -> String {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.init(), "--mount", "--net", "--pid", "--root", "--wd"]);
        succeed(command.args(words.split_whitespace())).unwrap()
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn image_for_containers_runs_a_host() {
    let net = HostNet::new(1).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let archive = package(folder.path(), "--container");
    let unpacked = tempfile::tempdir().unwrap();
    let config = unpack(&archive, unpacked.path());
    let words = ["Entrypoint", "Cmd"].map(|key| config[key].as_array().unwrap().clone());
    let words: Vec<String> = words.concat().iter().map(|word| word.as_str().unwrap().to_string()).collect();
    let (root, data) = (unpacked.path().join("root"), unpacked.path().join("data"));
    fs::create_dir(&data).unwrap();
    for disk in ["a", "b"] {
        fs::File::create(root.join(disk)).unwrap().set_len(4 << 30).unwrap();
    }

    // The agent waits, and runs the host from when it is one.
    let container = Container::start(&net, &root, &data, &words);
    wait_until("the agent to run", Duration::from_secs(10), || Ok(data.join("run/host.pid").exists()))
        .unwrap();
    container.run(
        "/usr/bin/nacre init --addr 10.9.0.1 --network 10.9.0.0/24 --devices /a,/b --no-device-check --yes",
    );
    let conf = root.join("etc/ceph/ceph.conf");
    let client = |line: &str| {
        let mut command = net.on(1, "timeout");
        command.args(["30"]).args(line.split_whitespace()).env("CEPH_CONF", &conf);
        command.args(["--keyring".as_ref(), root.join("etc/ceph/ceph.client.admin.keyring").as_os_str()]);
        succeed(&mut command)
    };
    client("ceph osd pool create p 8").unwrap();
    client("rados -p p put o /etc/hostname").unwrap();
    // Another container of the image goes on with the host.
    kill_and_wait(container.init()).unwrap();
    drop(container);
    let _container = Container::start(&net, &root, &data, &words);
    assert_eq!(client("rados -p p get o -").unwrap(), fs::read_to_string("/etc/hostname").unwrap());
}
