//! An image as a virtual machine uses it: fio's rbd engine on Ceph and on Nacre, alternately.
//!
//! librbd's cache is off, the image is written full before, and each job runs alone.

use crate::cluster::{Cluster, run};
use crate::{nacre, reference};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

#[derive(clap::Args)]
pub struct Options {
    /// How often each job runs on each cluster; the table shows medians.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// How long one run of a job takes, in seconds.
    #[arg(long, default_value_t = 20)]
    seconds: u32,
    /// Size of the image, in MiB.
    #[arg(long, default_value_t = 2048)]
    size: u64,
    /// Only jobs whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// Leave the reference out and measure Nacre alone.
    #[arg(long)]
    nacre_only: bool,
    /// Run the reference's OSDs with libtcmalloc preloaded, as upstream links it (package
    /// libgoogle-perftools4).
    #[arg(long)]
    tcmalloc: bool,
    /// Write the reference's block files full before it starts.
    #[arg(long)]
    fill: bool,
    /// Where both clusters keep their data: a folder on the disk to measure.
    #[arg(long, default_value = "target/bench")]
    folder: PathBuf,
}

struct Job {
    name: &'static str,
    /// What fio is told.
    how: &'static str,
    is_write: bool,
    /// Nacre's operations per second are to be so many times Ceph's at least.
    times: Option<f64>,
}

const JOBS: [Job; 6] = [
    Job {
        name: "write 4 KiB, 1 deep",
        how: "--rw=randwrite --bs=4k --iodepth=1",
        is_write: true,
        times: Some(4.0),
    },
    Job {
        name: "write 4 KiB, 16 deep",
        how: "--rw=randwrite --bs=4k --iodepth=16",
        is_write: true,
        times: Some(5.0),
    },
    Job {
        name: "read 4 KiB, 1 deep",
        how: "--rw=randread --bs=4k --iodepth=1",
        is_write: false,
        times: Some(1.6),
    },
    Job {
        name: "read 4 KiB, 16 deep",
        how: "--rw=randread --bs=4k --iodepth=16",
        is_write: false,
        times: Some(2.0),
    },
    Job {
        name: "write 16 KiB, 1 deep",
        how: "--rw=randwrite --bs=16k --iodepth=1",
        is_write: true,
        times: None,
    },
    // As a database commits.
    Job {
        name: "write 16 KiB + fsync",
        how: "--rw=randwrite --bs=16k --iodepth=1 --fsync=1",
        is_write: true,
        times: None,
    },
];

const POOL: &str = "rbd-bench";

/// One run of one job.
#[derive(Clone, Copy)]
struct Measured {
    ops_per_second: f64,
    /// Of an operation, in milliseconds.
    p50: f64,
    p99: f64,
    p999: f64,
    /// What the OSDs' processors spent on 1000 operations, in seconds, all OSDs together.
    cpu_per_1000: f64,
}

type Column = (&'static str, fn(&Measured) -> f64);

const COLUMNS: [Column; 5] = [
    ("ops/s", |m| m.ops_per_second),
    ("p50 ms", |m| m.p50),
    ("p99 ms", |m| m.p99),
    ("p99.9 ms", |m| m.p999),
    ("CPU s/1000", |m| m.cpu_per_1000),
];

pub fn measure(options: &Options) -> Result<()> {
    std::fs::create_dir_all(&options.folder)?;
    let folder = options.folder.canonicalize()?;
    let mut clusters = Vec::new();
    if !options.nacre_only {
        clusters.push(reference::up(&folder.join("ceph"), options.tcmalloc, options.fill)?);
    }
    clusters.push(nacre::up(&folder.join("nacre"))?);
    for cluster in &clusters {
        eprintln!("an image of {} MiB on {}", options.size, cluster.name);
        prepare(cluster, options.size)?;
    }
    println!("{:<24}{:<7}{}", "job (medians)", "", COLUMNS.map(|(head, _)| format!("{head:>12}")).concat());
    for job in
        JOBS.iter().filter(|job| options.only.as_ref().is_none_or(|only| job.name.contains(only.as_str())))
    {
        let mut runs: BTreeMap<&str, Vec<Measured>> = BTreeMap::new();
        for round in 0..options.rounds {
            for cluster in &clusters {
                eprintln!("{} on {}, round {}/{}", job.name, cluster.name, round + 1, options.rounds);
                runs.entry(cluster.name).or_default().push(fio(cluster, job, options.seconds)?);
            }
        }
        show(job, &clusters, &runs);
    }
    for cluster in &clusters {
        show_calls(cluster)?;
    }
    Ok(())
}

fn prepare(cluster: &Cluster, mib: u64) -> Result<()> {
    cluster.run(&format!("ceph osd pool create {POOL} 32 32"))?;
    cluster.run(&format!("rbd pool init {POOL}"))?;
    cluster.wait_healthy()?;
    cluster.run(&format!("rbd create --size {mib}M {POOL}/image"))?;
    let fill = "--rw=write --bs=4M --iodepth=8 --refill_buffers";
    run(fio_command(cluster, fill)?.arg(format!("--size={mib}M"))).map(drop)
}

/// fio on the image; its own configuration turns the cache off.
fn fio_command(cluster: &Cluster, how: &str) -> Result<std::process::Command> {
    let conf = cluster.conf.with_file_name("uncached.conf");
    let whole = std::fs::read_to_string(&cluster.conf)?;
    std::fs::write(&conf, whole + "\n[client]\nrbd cache = false\n")?;
    let mut fio = cluster.client("fio");
    // fio leaves files of its own where it runs.
    fio.env("CEPH_CONF", &conf).current_dir(cluster.conf.parent().context("no folder")?);
    fio.args([
        "--name=bench",
        "--ioengine=rbd",
        "--clientname=admin",
        "--rbdname=image",
        "--output-format=json",
    ]);
    fio.arg(format!("--pool={POOL}")).args(how.split(' '));
    Ok(fio)
}

fn fio(cluster: &Cluster, job: &Job, seconds: u32) -> Result<Measured> {
    let before = cluster.cpu()?;
    let mut command = fio_command(cluster, job.how)?;
    let said = run(command.args([
        "--time_based",
        "--ramp_time=1",
        "--randrepeat=0",
        &format!("--runtime={seconds}"),
    ]))?;
    let cpu = cluster.cpu()? - before;
    // What librbd has to say comes before.
    let json = said.find('{').map_or("", |at| &said[at..]);
    let all: Value = serde_json::from_str(json).with_context(|| format!("fio gave no JSON: {said}"))?;
    let done = &all["jobs"][0][if job.is_write { "write" } else { "read" }];
    let number = |value: &Value| value.as_f64().with_context(|| format!("fio left out a number: {done}"));
    let percentile = |at: &str| number(&done["clat_ns"]["percentile"][at]).map(|ns| ns / 1e6);
    let ops = number(&done["total_ios"])?;
    ensure!(ops > 0.0, "fio did nothing: {said}");
    // The processors worked during the ramp, too.
    let share = f64::from(seconds) / f64::from(seconds + 1);
    Ok(Measured {
        ops_per_second: number(&done["iops"])?,
        p50: percentile("50.000000")?,
        p99: percentile("99.000000")?,
        p999: percentile("99.900000")?,
        cpu_per_1000: cpu.as_secs_f64() * share / ops * 1000.0,
    })
}

fn show(job: &Job, clusters: &[Cluster], runs: &BTreeMap<&str, Vec<Measured>>) {
    let median = |cluster: &Cluster, of: fn(&Measured) -> f64| {
        let mut values: Vec<f64> = runs[cluster.name].iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    for (row, cluster) in clusters.iter().enumerate() {
        let name = if row == 0 { job.name } else { "" };
        let values = COLUMNS.map(|(_, of)| {
            let value = median(cluster, of);
            let digits = if value < 10.0 { 3 } else { 0 };
            format!("{value:>12.digits$}")
        });
        println!("{name:<24}{:<7}{}", cluster.name, values.concat());
    }
    if let [ceph, ours] = clusters {
        let ratios =
            COLUMNS.map(|(_, of)| format!("{:>12}", format!("{:.2}x", median(ours, of) / median(ceph, of))));
        let target = job.times.map(|times| format!("   target {times}x")).unwrap_or_default();
        println!("{:<24}{:<7}{}{target}", "", "ratio", ratios.concat());
    }
}

/// librbd's own calls on the image, which is full: they must not depend on its size.
fn show_calls(cluster: &Cluster) -> Result<()> {
    let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/rbd_calls.py");
    let begun = Instant::now();
    let said = run(cluster.client("/usr/bin/python3").arg(script).args([POOL, "image"]))?;
    println!(
        "{} calls on the full image, medians in ms: {} ({} s)",
        cluster.name,
        said.trim(),
        begun.elapsed().as_secs()
    );
    Ok(())
}
