//! What the clients do.

use crate::cluster::{Cluster, clients_cpu, run};
use crate::fio;
use crate::pools::{ImageWork, measure_image};
use crate::probe::Probed;
use anyhow::{Context, Result};
use std::path::Path;
use std::time::Duration;

pub struct Workload {
    pub name: &'static str,
    kind: Kind,
    /// Operations in flight.
    depth: u32,
    size: u32,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    RadosWrite,
    RadosRandomRead,
    RadosSequentialRead,
    PythonSync,
    PythonAsync,
    FioWrite,
    Image(ImageWork),
}

/// What a client says of its run.
struct Done {
    ops: f64,
    seconds: f64,
    /// In milliseconds, as is `p99`.
    latency: f64,
    p99: Option<f64>,
}

/// One run of one workload on one cluster.
pub struct Measured {
    pub ops_per_second: f64,
    /// Mean latency of an operation, in milliseconds.
    pub latency: f64,
    /// 99 of 100 took no longer, in milliseconds; None where the client does not say.
    pub p99: Option<f64>,
    /// What the OSDs' processors spent on 1000 operations, in seconds, all OSDs together.
    pub cpu_per_1000: f64,
    /// Processors that the client kept busy.
    pub client: f64,
    /// Mean resident memory of an OSD afterwards, in MiB; None of what is not one.
    pub resident: Option<f64>,
}

impl From<Probed> for Measured {
    fn from(Probed { ops_per_second, mean, p99, cpu_per_1000, client, .. }: Probed) -> Measured {
        Measured { ops_per_second, latency: mean, p99: Some(p99), cpu_per_1000, client, resident: None }
    }
}

pub fn all() -> Vec<Workload> {
    let w = |name, kind, depth, size| Workload { name, kind, depth, size };
    vec![
        w("write 4 KiB, 1 in flight", Kind::RadosWrite, 1, 4 << 10),
        w("write 4 KiB, 16 in flight", Kind::RadosWrite, 16, 4 << 10),
        w("write 4 KiB, 64 in flight", Kind::RadosWrite, 64, 4 << 10),
        w("fio, write 4 KiB, 16 in flight", Kind::FioWrite, 16, 4 << 10),
        w("random read 4 KiB, 1 in flight", Kind::RadosRandomRead, 1, 4 << 10),
        w("random read 4 KiB, 16 in flight", Kind::RadosRandomRead, 16, 4 << 10),
        w("write 4 MiB, 16 in flight", Kind::RadosWrite, 16, 4 << 20),
        w("read 4 MiB, 16 in flight", Kind::RadosSequentialRead, 16, 4 << 20),
        w("python put 1 KiB, synchronous", Kind::PythonSync, 1, 1 << 10),
        w("python put 1 KiB, asynchronous", Kind::PythonAsync, 64, 1 << 10),
    ]
}

/// For data.
pub const POOL: &str = "bench";
/// Seconds. A client of a cluster that is full would wait forever.
const CLIENT_MAX: u32 = 300;

impl Workload {
    /// Those of `pools`.
    pub fn of_pools() -> Vec<Workload> {
        let w = |name, kind, depth, size| Workload { name, kind, depth, size };
        vec![
            w("overwrite 4 KiB, 1 in flight", Kind::Image(ImageWork::Overwrite), 1, 4 << 10),
            w("overwrite 4 KiB, 16 in flight", Kind::Image(ImageWork::Overwrite), 16, 4 << 10),
            w("random read 4 KiB, 1 in flight", Kind::Image(ImageWork::Read), 1, 4 << 10),
            w("random read 4 KiB, 16 in flight", Kind::Image(ImageWork::Read), 16, 4 << 10),
            w("write 4 MiB, 16 in flight", Kind::RadosWrite, 16, 4 << 20),
            w("degraded read 4 KiB, 1 in flight", Kind::Image(ImageWork::DegradedRead), 1, 4 << 10),
        ]
    }

    /// What the disk bounds, and not the number of operations.
    pub fn is_stream(&self) -> bool {
        self.size >= 1 << 20
    }

    /// As many writes as this under way are what a probe can do as well.
    pub fn probed(&self) -> Option<usize> {
        (self.kind == Kind::RadosWrite && !self.is_stream()).then_some(self.depth as usize)
    }

    /// An empty pool, or one with objects to read.
    pub fn prepare(&self, cluster: &Cluster) -> Result<()> {
        cluster.run("ceph config set mon mon_allow_pool_delete true")?;
        cluster.run(&format!("ceph osd pool create {POOL} 32"))?;
        cluster.wait_healthy()?;
        if matches!(self.kind, Kind::RadosRandomRead | Kind::RadosSequentialRead) {
            let seconds = if self.size > 1 << 20 { 10 } else { 5 };
            self.rados_bench(cluster, &format!("{seconds} write -b {} -t 64 --no-cleanup", self.size))?;
        }
        Ok(())
    }

    pub fn clean_up(&self, cluster: &Cluster) -> Result<()> {
        cluster.run(&format!("ceph osd pool rm {POOL} {POOL} --yes-i-really-really-mean-it"))?;
        Ok(())
    }

    pub fn measure(&self, cluster: &Cluster, seconds: u32) -> Result<Measured> {
        let (depth, size) = (self.depth, self.size);
        if let Kind::Image(work) = self.kind {
            return measure_image(cluster, work, (depth, size), seconds);
        }
        let (before, client) = (cluster.cpu()?, clients_cpu()?);
        let done = match self.kind {
            Kind::RadosWrite => {
                self.rados_bench(cluster, &format!("{seconds} write -b {size} -t {depth} --no-cleanup"))?
            }
            Kind::RadosRandomRead => self.rados_bench(cluster, &format!("{seconds} rand -t {depth}"))?,
            Kind::RadosSequentialRead => self.rados_bench(cluster, &format!("{seconds} seq -t {depth}"))?,
            Kind::PythonSync | Kind::PythonAsync => self.python(cluster, seconds)?,
            Kind::FioWrite => self.fio(cluster, seconds)?,
            Kind::Image(_) => unreachable!("measured above"),
        };
        let (cpu, client): (Duration, Duration) = (cluster.cpu()? - before, clients_cpu()? - client);
        let measured = Measured {
            ops_per_second: done.ops / done.seconds,
            latency: done.latency,
            p99: done.p99,
            cpu_per_1000: cpu.as_secs_f64() / done.ops * 1000.0,
            client: client.as_secs_f64() / done.seconds,
            resident: Some(cluster.resident()?),
        };
        if self.is_stream() && self.kind == Kind::RadosWrite {
            // Else a fast disk is full after a few rounds, and the clients wait.
            cluster.run(&format!("rados -p {POOL} cleanup --prefix benchmark_data"))?;
        }
        Ok(measured)
    }

    fn rados_bench(&self, cluster: &Cluster, arguments: &str) -> Result<Done> {
        let said = cluster.run(&format!("timeout {CLIENT_MAX} rados -p {POOL} bench {arguments}"))?;
        let number = |label: &str| -> Result<f64> {
            let line = said.lines().find(|line| line.starts_with(label));
            let line = line.with_context(|| format!("no '{label}' in what rados bench said:\n{said}"))?;
            Ok(line.rsplit([' ', '\t', ':']).next().unwrap_or_default().parse()?)
        };
        let ops = number("Total writes made").or_else(|_| number("Total reads made"))?;
        let latency = number("Average Latency(s)")? * 1000.0;
        Ok(Done { ops, seconds: number("Total time run")?, latency, p99: None })
    }

    fn python(&self, cluster: &Cluster, seconds: u32) -> Result<Done> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/puts.py");
        let how = if self.kind == Kind::PythonSync { "sync" } else { "async" };
        let mut command = cluster.client("/usr/bin/python3");
        command.arg(script).args([POOL, how, &seconds.to_string(), &self.size.to_string()]);
        let said = run(command.arg(self.depth.to_string()))?;
        let numbers: Vec<f64> = said.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        let [ops, seconds, latency] = numbers[..] else { anyhow::bail!("puts.py said {said}") };
        Ok(Done { ops, seconds, latency, p99: None })
    }

    /// Overwrites of one object of 4 MiB for each that is in flight.
    fn fio(&self, cluster: &Cluster, seconds: u32) -> Result<Done> {
        let mut command = fio::command(cluster, "rados", POOL, &cluster.conf)?;
        command.args(["--rw=randwrite", "--time_based", "--randrepeat=0", "--filesize=4M"]);
        command.args([
            // It does not look where clients look otherwise.
            format!("--conf={}", cluster.conf.display()),
            format!("--bs={}", self.size),
            format!("--iodepth={}", self.depth),
            format!("--nrfiles={}", self.depth),
            format!("--size={}M", 4 * self.depth),
            format!("--runtime={seconds}"),
        ]);
        let said = fio::run(&mut command, true)?;
        Ok(Done { ops: said.ops, seconds: said.seconds, latency: said.mean, p99: Some(said.p99) })
    }
}
