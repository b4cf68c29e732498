//! The clients in Linux's kernel (`rbd map`, `mount -t ceph`), in a guest under qemu, as test machines lack
//! their modules.

use crate::files::{Mds, wait_active};
use nacre_interop::{Cluster, scripts, succeed, text};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Longer than a daemon's connection may be silent before it is asked for a sign of life.
const IDLE_SECONDS: u32 = 40;
/// What the kernel says of a connection that it lost or gave up.
const LOST: [&str; 5] = ["bad tag", "socket closed", "socket error", "session lost", "protocol error"];

/// The ports of all daemons, whose clients may need to reach them.
fn ports(c: &Cluster) -> Vec<String> {
    let port = |addr: &Value| addr["addr"].as_str().unwrap().rsplit(':').next().unwrap().to_string();
    let of =
        |daemon: &Value| daemon["public_addrs"]["addrvec"].as_array().unwrap().iter().map(port).collect();
    let all = |dump: &Value, key: &str| -> Vec<Vec<String>> {
        dump[key].as_array().unwrap().iter().map(of).collect()
    };
    let mons = all(&c.json("ceph mon dump").unwrap(), "mons");
    let osds = all(&c.json("ceph osd dump").unwrap(), "osds");
    let fs = c.json("ceph fs get home").unwrap();
    let servers = fs["mdsmap"]["info"].as_object().unwrap().values();
    let servers = servers.flat_map(|info| info["addrs"]["addrvec"].as_array().unwrap().iter().map(port));
    [mons, osds, vec![servers.collect()]].concat().concat()
}

/// One file, through python3-cephfs.
fn file(c: &Cluster, work: &str, arguments: &[&str]) -> String {
    let script = format!(
        "import cephfs, os, sys\n\
         fs = cephfs.LibCephFS(conffile=os.environ['CEPH_CONF'], auth_id='admin')\n\
         fs.mount(filesystem_name=b'home')\n\
         {work}\n\
         fs.unmount()\n"
    );
    let mut python = c.client("timeout");
    succeed(python.args(["60", "/usr/bin/python3", "-c", &script]).args(arguments)).unwrap()
}

fn put(c: &Cluster, path: &str, content: &str) {
    let work = "fs.write(fs.open(sys.argv[1], os.O_CREAT | os.O_WRONLY, 0o644), sys.argv[2].encode(), 0)";
    file(c, work, &[path, content]);
}

fn get(c: &Cluster, path: &str) -> String {
    let work = "print(end=fs.read(fs.open(sys.argv[1], os.O_RDONLY, 0), 0, 1 << 20).decode())";
    file(c, work, &[path])
}

#[test]
fn kernel_clients_use_an_image_and_files_and_keep_idle_connections() {
    let made = Path::new(env!("CARGO_TARGET_TMPDIR")).join("krbd");
    succeed(Command::new(scripts().join("guest/kernel.sh")).arg(&made)).unwrap();
    succeed(Command::new(scripts().join("krbd/build.sh")).arg(&made)).unwrap();

    let c = Cluster::up().unwrap();
    c.run("ceph osd pool create images 8").unwrap();
    c.run("rbd pool init images").unwrap();
    c.run("rbd create images/guest --size 64M").unwrap();
    c.run("ceph fs volume create home").unwrap();
    let _mds = Mds::start(&c, "a").unwrap();
    wait_active(&c, "home").unwrap();
    put(&c, "/host", "from the host");
    let ports = ports(&c);
    let secret = c.run("ceph auth print-key client.admin").unwrap();
    let append = format!(
        "console=ttyS0 quiet panic=-1 mitigations=off MON=127.0.0.1:{} PORTS={} SECRET={} POOL=images \
         IMAGE=guest FS=home OPTIONS=ms_mode=prefer-crc IDLE={IDLE_SECONDS}",
        ports[0],
        ports.join(","),
        secret.trim(),
    );
    let mut qemu = Command::new("timeout");
    qemu.args(["--kill-after=5", "240", "qemu-system-x86_64", "-accel", "tcg", "-cpu", "max", "-m", "256"]);
    qemu.args(["-nodefaults", "-nographic", "-serial", "stdio", "-no-reboot"]);
    qemu.args(["-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net"]);
    qemu.arg("-kernel").arg(made.join("vmlinuz")).arg("-initrd").arg(made.join("initramfs.gz"));
    let output = qemu.args(["-append", &append]).output().unwrap();
    let console = text(&output.stdout);
    assert!(
        output.status.success() && console.contains("krbd: done") && !console.contains("krbd: failed"),
        "{}\n{console}\n{}",
        output.status,
        text(&output.stderr),
    );
    let lost: Vec<&str> =
        console.lines().filter(|line| LOST.iter().any(|sign| line.contains(sign))).collect();
    assert!(lost.is_empty(), "{lost:#?}\nin\n{console}");

    // What the guest wrote and discarded, as other clients see it.
    let init = std::fs::read_to_string(scripts().join("krbd/init")).unwrap();
    assert_eq!(get(&c, "/tree/hard"), init);
    let exported = c.folder().join("exported");
    c.run(&format!("rbd export images/guest {} --no-progress", exported.display())).unwrap();
    let exported = std::fs::read(exported).unwrap();
    let (pattern, rest) = exported.split_at(8 << 20);
    let (discarded, random) = rest.split_at(4 << 20);
    assert!(pattern.iter().all(|byte| *byte == 0xab));
    assert!(discarded.iter().all(|byte| *byte == 0));
    assert!(random[..4 << 20].iter().any(|byte| *byte != 0));
    assert!(random[4 << 20..].iter().all(|byte| *byte == 0));
}
