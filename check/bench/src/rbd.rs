//! An image as a virtual machine uses it: fio's rbd engine on Ceph and on Nacre, alternately, and in
//! between the probe, which shows what the disk allows.
//!
//! librbd's cache is off, the image is written full before, and each job runs alone. What is to be
//! reached is said of each figure at the end.

use crate::beside::Beside;
use crate::cluster::{Cluster, run};
use crate::fio;
use crate::probe::{PROBE, Probe, Probed};
use crate::report::median;
use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::BTreeMap;

#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    beside: Beside,
    /// Size of the image, in MiB.
    #[arg(long, default_value_t = 2048)]
    size: u64,
}

struct Job {
    name: &'static str,
    /// What fio is told.
    how: &'static str,
    is_write: bool,
    /// Nacre's operations per second are to be this many times Ceph's at least.
    times: f64,
    /// What varies in a commit is compared with what varies in the probe's.
    probed: bool,
}

const JOBS: [Job; 6] = [
    Job {
        name: "write 4 KiB, 1 deep",
        how: "--rw=randwrite --bs=4k --iodepth=1",
        is_write: true,
        times: 4.0,
        probed: true,
    },
    Job {
        name: "write 4 KiB, 16 deep",
        how: "--rw=randwrite --bs=4k --iodepth=16",
        is_write: true,
        times: 5.0,
        probed: false,
    },
    Job {
        name: "read 4 KiB, 1 deep",
        how: "--rw=randread --bs=4k --iodepth=1",
        is_write: false,
        times: 1.6,
        probed: false,
    },
    Job {
        name: "read 4 KiB, 16 deep",
        how: "--rw=randread --bs=4k --iodepth=16",
        is_write: false,
        times: 2.0,
        probed: false,
    },
    Job {
        name: "write 16 KiB, 1 deep",
        how: "--rw=randwrite --bs=16k --iodepth=1",
        is_write: true,
        times: 4.0,
        probed: false,
    },
    // As a database commits.
    Job {
        name: "write 16 KiB + fsync",
        how: "--rw=randwrite --bs=16k --iodepth=1 --fsync=1",
        is_write: true,
        times: 4.0,
        probed: false,
    },
];

/// Of Ceph's, for Nacre's p99 and p99.9 of writes.
const TAIL_MAX: f64 = 0.25;
/// Of the probe's, for p99 divided by p50.
const JITTER_MAX: f64 = 1.5;
/// For librbd's calls around snapshots and clones.
const CALL_MS_MAX: f64 = 50.0;

const POOL: &str = "rbd-bench";

/// One run of one job.
#[derive(Clone, Copy)]
pub struct Measured {
    pub ops_per_second: f64,
    /// Of an operation, in milliseconds.
    pub p50: f64,
    pub p99: f64,
    pub p999: f64,
    /// What the OSDs' processors spent on 1000 operations, in seconds, all OSDs together.
    pub cpu_per_1000: f64,
}

type Column = (&'static str, fn(&Measured) -> f64);

const COLUMNS: [Column; 6] = [
    ("ops/s", |m| m.ops_per_second),
    ("p50 ms", |m| m.p50),
    ("p99 ms", |m| m.p99),
    ("p99.9 ms", |m| m.p999),
    ("p99/p50", |m| m.p99 / m.p50),
    ("CPU s/1000", |m| m.cpu_per_1000),
];

/// The runs of one job on all that it ran on.
struct Runs(BTreeMap<&'static str, Vec<Measured>>);

impl Runs {
    fn median(&self, on: &str, of: fn(&Measured) -> f64) -> Option<f64> {
        Some(median(self.0.get(on)?.iter().map(of)))
    }
    /// Nacre's divided by another's.
    fn ratio(&self, to: &str, of: fn(&Measured) -> f64) -> Option<f64> {
        Some(self.median("nacre", of)? / self.median(to, of)?)
    }
}

/// What was to be reached, and what was.
struct Verdict {
    what: String,
    value: f64,
    target: f64,
    at_least: bool,
}

impl Verdict {
    fn text(&self) -> String {
        let Verdict { what, value, target, at_least } = self;
        let met = if *at_least { value >= target } else { value <= target };
        let (word, bound) = (if met { "met" } else { "MISSED" }, if *at_least { "least" } else { "most" });
        format!("{word:<8}{what}: {value:.2}, {target} at {bound}")
    }
}

pub fn measure(options: &Options) -> Result<()> {
    let Options { beside, size } = options;
    let clusters = beside.clusters()?;
    let mut probe = Probe::start(&beside.folder.canonicalize()?.join(PROBE))?;
    for cluster in &clusters {
        eprintln!("an image of {size} MiB on {}", cluster.name);
        prepare(cluster, *size)?;
    }
    let mut verdicts = Vec::new();
    println!("{:<24}{:<7}{}", "job (medians)", "", COLUMNS.map(|(head, _)| format!("{head:>12}")).concat());
    for job in JOBS.iter().filter(|job| beside.wants(job.name)) {
        let mut runs = Runs(BTreeMap::new());
        for round in 0..beside.rounds {
            for cluster in &clusters {
                eprintln!("{} on {}, round {}/{}", job.name, cluster.name, round + 1, beside.rounds);
                runs.0.entry(cluster.name).or_default().push(measure_job(cluster, job, beside.seconds)?);
            }
            if job.probed {
                runs.0.entry(PROBE).or_default().push(probe.measure(beside.seconds, 1)?.into());
            }
        }
        show(job, &runs);
        verdicts.extend(judge(job, &runs));
    }
    for cluster in &clusters {
        verdicts.extend(calls(cluster)?);
    }
    println!("targets:");
    verdicts.iter().for_each(|verdict| println!("{}", verdict.text()));
    Ok(())
}

impl From<Probed> for Measured {
    fn from(Probed { ops_per_second, p50, p99, p999, cpu_per_1000, .. }: Probed) -> Measured {
        Measured { ops_per_second, p50, p99, p999, cpu_per_1000 }
    }
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
    let mut command = fio::command(cluster, "rbd", POOL, &conf)?;
    command.arg("--rbdname=image").args(how.split(' '));
    Ok(command)
}

fn measure_job(cluster: &Cluster, job: &Job, seconds: u32) -> Result<Measured> {
    let before = cluster.cpu()?;
    let mut command = fio_command(cluster, job.how)?;
    command.args(["--time_based", "--ramp_time=1", "--randrepeat=0", &format!("--runtime={seconds}")]);
    let said = fio::run(&mut command, job.is_write)?;
    let cpu = cluster.cpu()? - before;
    // The processors worked during the ramp, too.
    let share = f64::from(seconds) / f64::from(seconds + 1);
    Ok(Measured {
        ops_per_second: said.ops_per_second,
        p50: said.p50,
        p99: said.p99,
        p999: said.p999,
        cpu_per_1000: cpu.as_secs_f64() * share / said.ops * 1000.0,
    })
}

fn show(job: &Job, runs: &Runs) {
    let row = |first: &str, name: &str, value: &dyn Fn(fn(&Measured) -> f64) -> Option<String>| {
        let values = COLUMNS.map(|(_, of)| value(of).map(|text| format!("{text:>12}")));
        // All or none: either it ran or it did not.
        if let Some(values) = values.into_iter().collect::<Option<String>>() {
            println!("{first:<24}{name:<7}{values}");
        }
    };
    for (n, name) in runs.0.keys().enumerate() {
        row(if n == 0 { job.name } else { "" }, name, &|of| {
            let value = runs.median(name, of)?;
            let digits = if value < 10.0 { 3 } else { 0 };
            Some(format!("{value:.digits$}"))
        });
    }
    row("", "ratio", &|of| Some(format!("{:.2}x", runs.ratio("ceph", of)?)));
}

fn judge(job: &Job, runs: &Runs) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    let mut add = |what: &str, value: Option<f64>, target: f64, at_least: bool| {
        let what = format!("{}, {what}", job.name);
        verdicts.extend(value.map(|value| Verdict { what, value, target, at_least }));
    };
    add("operations beside Ceph's", runs.ratio("ceph", |m| m.ops_per_second), job.times, true);
    if job.is_write {
        add("p99 beside Ceph's", runs.ratio("ceph", |m| m.p99), TAIL_MAX, false);
        add("p99.9 beside Ceph's", runs.ratio("ceph", |m| m.p999), TAIL_MAX, false);
    }
    add("p99/p50 beside the probe's", runs.ratio(PROBE, |m| m.p99 / m.p50), JITTER_MAX, false);
    verdicts
}

/// librbd's own calls on the image, which is full: they must not depend on its size.
fn calls(cluster: &Cluster) -> Result<Vec<Verdict>> {
    let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/rbd_calls.py");
    let said = run(cluster.client("/usr/bin/python3").arg(script).args([POOL, "image"]))?;
    println!("{} calls on the full image, medians in ms: {}", cluster.name, said.trim());
    if cluster.name != "nacre" {
        return Ok(Vec::new());
    }
    let all: BTreeMap<String, f64> = serde_json::from_str::<Value>(&said)?
        .as_object()
        .context("no JSON object")?
        .iter()
        .filter_map(|(call, ms)| Some((call.clone(), ms.as_f64()?)))
        .collect();
    let verdict =
        |(call, value)| Verdict { what: format!("{call}, ms"), value, target: CALL_MS_MAX, at_least: false };
    Ok(all.into_iter().map(verdict).collect())
}
