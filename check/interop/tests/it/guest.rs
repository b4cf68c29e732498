//! A guest under qemu that boots from an image and writes, through the death of everything.
//! `cargo xtask soak guest` runs it; it needs packages that no other test needs.

use nacre_interop::{Cluster, scripts, send_signal, succeed};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The machine, and what it says on its console.
struct Guest {
    qemu: Child,
    console: BufReader<std::process::ChildStdout>,
    seen: Vec<String>,
}

impl Guest {
    fn boot(c: &Cluster, made: &Path) -> Guest {
        let drive =
            format!("file=rbd:images/guest:conf={},format=raw,if=virtio,cache=none", c.conf().display());
        let mut qemu = c.client("timeout");
        qemu.args(["--kill-after=5", "600", "qemu-system-x86_64", "-accel", "tcg", "-m", "256"]);
        qemu.args(["-nographic", "-monitor", "none", "-no-reboot", "-nic", "none", "-drive", &drive]);
        qemu.arg("-kernel").arg(made.join("vmlinuz")).arg("-initrd").arg(made.join("initramfs.gz"));
        qemu.args(["-append", "console=ttyS0 quiet panic=-1"]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut qemu = qemu.spawn().unwrap();
        let console = BufReader::new(qemu.stdout.take().unwrap());
        Guest { qemu, console, seen: Vec::new() }
    }

    /// Until the guest says a line that holds.
    fn wait_for(&mut self, what: &str, holds: impl Fn(&str) -> bool) {
        loop {
            let mut line = String::new();
            let got = self.console.read_line(&mut line).unwrap();
            let line = line.trim_end().to_owned();
            let bad = got == 0 || ["error", "I/O", "EXT4-fs warning"].iter().any(|sign| line.contains(sign));
            let found = holds(&line);
            self.seen.push(line);
            assert!(!bad, "waiting for {what}:\n{}", self.seen.join("\n"));
            if found {
                return;
            }
        }
    }

    fn wait_for_file(&mut self, least: u32) {
        self.wait_for("more files", |line| written(line).is_some_and(|n| n >= least));
    }

    /// The host dies. Gives the last file that the guest knew to be safe.
    fn kill(mut self) -> u32 {
        // `timeout` is the leader of a group of its own and takes qemu along.
        send_signal(format_args!("-{}", self.qemu.id()), "KILL").unwrap();
        self.qemu.wait().unwrap();
        self.seen.extend(self.console.lines().map_while(Result::ok));
        self.seen.iter().filter_map(|line| written(line)).max().unwrap()
    }
}

fn written(line: &str) -> Option<u32> {
    line.trim().strip_prefix("guest: wrote ")?.parse().ok()
}

#[test]
#[ignore = "needs qemu and a guest's packages: cargo xtask soak guest"]
fn guest_keeps_synced_data_after_cluster_and_host_crash() {
    let c = Cluster::up().unwrap();
    let made = c.folder().join("guest");
    succeed(Command::new(scripts().join("guest/build.sh")).arg(&made)).unwrap();
    c.run("ceph osd pool create images 16").unwrap();
    c.run("rbd pool init images").unwrap();
    if std::env::var("NACRE_GUEST_POOL").is_ok_and(|kind| kind == "erasure") {
        c.run("ceph osd erasure-code-profile set code k=2 m=1 crush-failure-domain=osd").unwrap();
        c.run("ceph osd pool create image-data 16 16 erasure code").unwrap();
        c.run("ceph osd pool set image-data allow_ec_overwrites true").unwrap();
        c.run("ceph config set client rbd_default_data_pool image-data").unwrap();
    }
    let image = format!("rbd:images/guest:conf={}", c.conf().display());
    let disk = made.join("disk.img");
    c.run(&format!("qemu-img convert -f raw -O raw {} {image}", disk.display())).unwrap();

    let mut guest = Guest::boot(&c, &made);
    guest.wait_for("the guest's start", |line| line.contains("guest: booted"));
    guest.wait_for_file(20);
    let daemons = c.daemons().unwrap();
    daemons.iter().for_each(|daemon| c.kill(daemon).unwrap());
    daemons.iter().for_each(|daemon| c.start(daemon).unwrap());
    guest.wait_for_file(60);
    let last = guest.kill();

    let back = made.join("back.img");
    let back = back.to_str().unwrap();
    c.run(&format!("qemu-img convert -f raw -O raw {image} {back}")).unwrap();
    // Replays the journal, and would say so if there were more to repair.
    succeed(Command::new("e2fsck").args(["-p", back])).unwrap();
    succeed(Command::new("e2fsck").args(["-fn", back])).unwrap();
    let files = made.join("files");
    std::fs::create_dir(&files).unwrap();
    let dump = format!("rdump /data {}", files.display());
    succeed(Command::new("debugfs").args(["-R", &dump, back])).unwrap();
    for n in 1..=last {
        let content = std::fs::read_to_string(files.join("data").join(n.to_string())).unwrap();
        let expected = format!("{n}\n").repeat(20_000).split_at(20_000).0.to_owned();
        assert!(content == expected, "file {n} of {last}: {} bytes", content.len());
    }
    println!("{last} files survived");
}
