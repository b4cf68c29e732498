//! Pools of several kinds, each with an image and large objects: `vs-ceph --pool erasure`.

use crate::cluster::{Cluster, clients_cpu};
use crate::workload::{Measured, POOL, Workload};
use crate::{fio, report};
use anyhow::{Result, bail};
use std::time::{Duration, Instant};

/// How a pool keeps its objects.
#[derive(Clone, Copy)]
pub enum Redundancy {
    Copies,
    /// Parts of data and of parity.
    Erasure {
        k: u8,
        m: u8,
    },
}

/// Nacre's copies show what its erasure codes cost.
pub const ALL: [Redundancy; 3] =
    [Redundancy::Copies, Redundancy::Erasure { k: 2, m: 1 }, Redundancy::Erasure { k: 4, m: 2 }];
/// OSDs that these pools need.
pub const OSDS: u32 = 6;

const META: &str = "bench-meta";
const IMAGE: &str = "image";
/// Of the image.
const MIB: u32 = 256;

/// What is done to an image.
#[derive(Clone, Copy, PartialEq)]
pub enum ImageWork {
    Overwrite,
    Read,
    /// One OSD is down.
    DegradedRead,
}

impl Redundancy {
    /// In the head of its table.
    pub fn name(self) -> String {
        match self {
            Redundancy::Copies => "three copies".to_string(),
            Redundancy::Erasure { k, m } => format!("{k}+{m}"),
        }
    }
    /// A pool of this kind for data, with an image whose data is there and written.
    fn make(self, cluster: &Cluster) -> Result<()> {
        cluster.run("ceph config set mon mon_allow_pool_delete true")?;
        match self {
            Redundancy::Copies => drop(cluster.run(&format!("ceph osd pool create {POOL} 32"))?),
            Redundancy::Erasure { k, m } => {
                let profile = format!("bench-{k}-{m}");
                cluster.run(&format!(
                    "ceph osd erasure-code-profile set {profile} k={k} m={m} crush-failure-domain=osd"
                ))?;
                cluster.run(&format!("ceph osd pool create {POOL} 32 32 erasure {profile}"))?;
                cluster.run(&format!("ceph osd pool set {POOL} allow_ec_overwrites true"))?;
            }
        }
        cluster.run(&format!("ceph osd pool create {META} 8"))?;
        cluster.wait_healthy()?;
        let image = format!("--size {MIB}M --image-feature layering --data-pool {POOL} {META}/{IMAGE}");
        cluster.run(&format!("rbd create {image}"))?;
        let mut fill = image_command(cluster)?;
        fill.args(["--rw=write", "--bs=4M", "--iodepth=4", &format!("--size={MIB}M")]);
        fio::run(&mut fill, true).map(drop)
    }
    fn remove(self, cluster: &Cluster) -> Result<()> {
        for pool in [POOL, META] {
            cluster.run(&format!("ceph osd pool rm {pool} {pool} --yes-i-really-really-mean-it"))?;
        }
        if let Redundancy::Erasure { .. } = self {
            // It has the pool's name, and a size that does not suit the next pool.
            cluster.run(&format!("ceph osd crush rule rm {POOL}"))?;
        }
        Ok(())
    }
}

fn image_command(cluster: &Cluster) -> Result<std::process::Command> {
    let mut command = fio::command(cluster, "rbd", META, &cluster.conf)?;
    command.arg(format!("--rbdname={IMAGE}"));
    Ok(command)
}

/// One run on the image of a cluster.
pub fn measure_image(
    cluster: &Cluster,
    work: ImageWork,
    (depth, size): (u32, u32),
    seconds: u32,
) -> Result<Measured> {
    let is_write = work == ImageWork::Overwrite;
    if work == ImageWork::DegradedRead {
        cluster.run("ceph osd set noup")?;
        cluster.run("ceph osd down 0")?;
        wait_until_down(cluster)?;
    }
    let (before, client) = (cluster.cpu()?, clients_cpu()?);
    let mut command = image_command(cluster)?;
    command.args([
        format!("--rw={}", if is_write { "randwrite" } else { "randread" }),
        "--time_based".to_string(),
        "--randrepeat=0".to_string(),
        format!("--bs={size}"),
        format!("--iodepth={depth}"),
        format!("--size={MIB}M"),
        format!("--runtime={seconds}"),
    ]);
    let said = fio::run(&mut command, is_write)?;
    let (cpu, client): (Duration, Duration) = (cluster.cpu()? - before, clients_cpu()? - client);
    if work == ImageWork::DegradedRead {
        cluster.run("ceph osd unset noup")?;
        cluster.wait_healthy()?;
    }
    Ok(Measured {
        ops_per_second: said.ops_per_second,
        latency: said.mean,
        p99: Some(said.p99),
        cpu_per_1000: cpu.as_secs_f64() / said.ops * 1000.0,
        client: client.as_secs_f64() / said.seconds,
        resident: Some(cluster.resident()?),
    })
}

fn wait_until_down(cluster: &Cluster) -> Result<()> {
    let start = Instant::now();
    loop {
        let stat: serde_json::Value = serde_json::from_str(&cluster.run("ceph osd stat --format json")?)?;
        if stat["num_up_osds"].as_u64() == Some(u64::from(OSDS) - 1) {
            // Its placement groups serve without it by then.
            std::thread::sleep(Duration::from_secs(5));
            return Ok(());
        }
        if start.elapsed() > Duration::from_secs(60) {
            bail!("osd.0 of {} is not down after a minute: {stat}", cluster.name);
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// All kinds of pools, each with a table of its own.
pub fn measure(
    clusters: &[Cluster],
    rounds: usize,
    seconds: u32,
    wants: &dyn Fn(&str) -> bool,
) -> Result<()> {
    for redundancy in ALL {
        println!("pool: {}", redundancy.name());
        println!("{}", report::Table::head());
        clusters.iter().try_for_each(|cluster| redundancy.make(cluster))?;
        let mut table = report::Table::new(clusters.iter().map(|cluster| cluster.name));
        for workload in Workload::of_pools().iter().filter(|workload| wants(workload.name)) {
            for round in 0..rounds {
                for cluster in clusters {
                    eprintln!("{} on {}, round {}/{rounds}", workload.name, cluster.name, round + 1);
                    table.add(workload, cluster.name, workload.measure(cluster, seconds)?);
                }
            }
            print!("{}", table.text(workload.name));
        }
        clusters.iter().try_for_each(|cluster| redundancy.remove(cluster))?;
    }
    Ok(())
}
