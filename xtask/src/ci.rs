//! What must pass before a change lands.

use crate::background::Background;
use crate::run::{cargo, step};
use crate::test_run::TestRun;
use crate::timings::Timings;
use crate::{fuzz, sim, tidy};
use anyhow::{Result, bail};
use std::process::{Command, Stdio};
use std::time::Instant;

#[derive(clap::Args)]
pub struct Options {
    /// Number of simulated clusters.
    #[arg(long, default_value_t = 120)]
    seeds: u64,
    /// Fail if Debian packages are missing, instead of installing them.
    #[arg(long)]
    no_install: bool,
}

/// The stock clients that the tests run, what a guest with the kernel's client is made of, and tools for
/// devices, hosts and processes, by a file that shows that the package is there. Tools of packages that no
/// Debian system lacks, such as util-linux, are not listed.
pub const PACKAGES: [(&str, &str); 33] = [
    ("ceph-common", "/usr/bin/rados"),
    ("ceph-base", "/usr/bin/osdmaptool"),
    ("python3-rados", "/usr/share/doc/python3-rados"),
    ("python3-rbd", "/usr/share/doc/python3-rbd"),
    ("python3-cephfs", "/usr/share/doc/python3-cephfs"),
    ("ceph-mds", "/usr/bin/ceph-mds"),
    ("ceph-fuse", "/usr/bin/ceph-fuse"),
    ("fio", "/usr/bin/fio"),
    ("qemu-utils", "/usr/bin/qemu-img"),
    ("qemu-block-extra", "/usr/share/doc/qemu-block-extra"),
    ("rbd-mirror", "/usr/bin/rbd-mirror"),
    ("rbd-nbd", "/usr/bin/rbd-nbd"),
    ("qemu-system-x86", "/usr/bin/qemu-system-x86_64"),
    ("busybox-static", "/usr/share/doc/busybox-static"),
    ("cpio", "/usr/bin/cpio"),
    ("e2fsprogs", "/usr/sbin/mkfs.ext4"),
    ("iproute2", "/usr/bin/ip"),
    ("gdisk", "/usr/sbin/sgdisk"),
    ("systemd-container", "/usr/bin/systemd-nspawn"),
    ("procps", "/usr/bin/kill"),
    ("prometheus", "/usr/bin/promtool"),
    ("ceph-prometheus-alerts", "/etc/prometheus/ceph/ceph_default_alerts.yml"),
    ("awscli", "/usr/bin/aws"),
    ("python3-boto3", "/usr/share/doc/python3-boto3"),
    ("radosgw", "/usr/bin/radosgw"),
    ("openssl", "/usr/bin/openssl"),
    ("s3cmd", "/usr/bin/s3cmd"),
    ("rclone", "/usr/bin/rclone"),
    ("python3-swiftclient", "/usr/bin/swift"),
    ("chromium", "/usr/bin/chromium"),
    ("chromium-driver", "/usr/bin/chromedriver"),
    ("python3-selenium", "/usr/share/doc/python3-selenium"),
    ("ceph-grafana-dashboards", "/etc/grafana/dashboards/ceph-dashboard"),
];

pub fn run(options: &Options) -> Result<()> {
    let mut timings = Timings::default();
    timings.part("packages", || install_packages(&PACKAGES, options.no_install))?;
    timings.part("tidy", || tidy::run(&tidy::Options { fix: false, quick: false }))?;
    // The tests of real clients start the binary of the daemons. All is built at once, because cargo builds
    // libraries again for another selection of packages.
    timings.part("build", || step("build", cargo().args(["build", "--workspace", "--all-targets"])))?;
    // Tests of real processes wait most of their time. So they run beside each other, and the simulator and
    // the fuzzers use what they leave.
    let background = Background::start(vec![
        ("simulator", sim::command(&sim::Options::seeds(options.seeds))),
        ("kept scripts", sim::kept_scripts()),
        ("fuzz", fuzz::command(&fuzz::Options::brief())),
    ]);
    let mut tests = cargo();
    tests.args(["test", "--workspace", "--no-fail-fast"]);
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    tests.env("RUST_TEST_THREADS", (2 * processors).to_string());
    let mut again = cargo();
    again.args(["test", "--workspace", "--test", "interop"]);
    let tests = TestRun::start(tests, &mut timings)?;
    let waiting = Instant::now();
    let background = background.finish(&mut timings);
    timings.add("waiting for the simulator and the fuzzers", waiting.elapsed());
    let tests = tests.retry("interop", again, &mut timings)?;
    println!("\n{timings}");
    // Last, so that the runner's own closing lines end the output.
    tests.finish().and(background)
}

/// Installs the packages whose file is missing, or fails if installing is refused.
pub fn install_packages(packages: &[(&str, &str)], refuse: bool) -> Result<()> {
    let missing: Vec<&str> = packages
        .iter()
        .filter(|(_, file)| !std::path::Path::new(file).exists())
        .map(|(package, _)| *package)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    if refuse {
        bail!("packages missing: {}; install them with apt-get", missing.join(" "));
    }
    // A fresh machine has no package lists.
    step("package lists", Command::new("apt-get").args(["-q", "update"]).stdout(Stdio::null()))?;
    let mut install = Command::new("apt-get");
    install.args(["-q", "install", "--yes", "--no-install-recommends"]).args(&missing);
    install.env("DEBIAN_FRONTEND", "noninteractive").stdout(Stdio::null());
    step("packages", &mut install)
}
