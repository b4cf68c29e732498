//! The load of one gateway process: our own client against a cluster that is up, from `CEPH_CONF`.

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use clap::{Args, ValueEnum};
use nacre_rados::{Config, Pool, RadosClient};
use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const POOL: &str = "bench-client";
const TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Args)]
pub struct Options {
    /// The entity that the client goes by.
    #[arg(long, default_value = "client.admin")]
    name: String,
    #[arg(long, value_enum, default_value_t = Kind::Write)]
    kind: Kind,
    /// Operations in flight; several are measured one after the other.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 32, 128])]
    depth: Vec<usize>,
    /// Bytes of an object.
    #[arg(long, default_value_t = 4096)]
    size: usize,
    /// Objects that are written and read.
    #[arg(long, default_value_t = 10_000)]
    objects: u64,
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Encrypts every connection (cephx only).
    #[arg(long)]
    secure: bool,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Kind {
    Write,
    Read,
    /// A stat: what an operation costs beside its data.
    Stat,
}

pub fn measure(options: &Options) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run(options))
}

async fn run(options: &Options) -> Result<()> {
    let conf = std::env::var("CEPH_CONF").context("CEPH_CONF names the cluster's ceph.conf")?;
    let mut config = Config::read(&conf, &options.name)?;
    config.secure |= options.secure;
    let client = RadosClient::connect(config).await?.with_timeout(TIMEOUT);
    let pool = client.create_pool(POOL, Some(32)).await?;
    if options.kind != Kind::Write {
        load(options, &pool, 64, Kind::Write, Until::Count(options.objects)).await?;
    }
    println!(
        "{:>6} {:>10} {:>9} {:>9} {:>9} {:>12}",
        "depth", "ops/s", "p50 ms", "p99 ms", "max ms", "CPU us/op"
    );
    for &depth in &options.depth {
        let until = Until::Time(Instant::now() + Duration::from_secs(options.seconds));
        let measured = load(options, &pool, depth, options.kind, until).await?;
        println!("{}", measured.line(depth));
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum Until {
    Time(Instant),
    Count(u64),
}

struct Measured {
    elapsed: Duration,
    cpu: Duration,
    /// In order.
    latencies: Vec<Duration>,
}

impl Measured {
    fn line(&self, depth: usize) -> String {
        let count = self.latencies.len();
        let at = |parts: f64| {
            let index = ((count as f64 * parts) as usize).min(count.saturating_sub(1));
            self.latencies.get(index).map_or(0.0, |latency| latency.as_secs_f64() * 1e3)
        };
        let rate = count as f64 / self.elapsed.as_secs_f64();
        let cpu = self.cpu.as_secs_f64() * 1e6 / count.max(1) as f64;
        format!("{depth:>6} {rate:>10.0} {:>9.2} {:>9.2} {:>9.2} {cpu:>12.1}", at(0.5), at(0.99), at(1.0))
    }
}

/// This many tasks, each with one operation at a time.
async fn load(options: &Options, pool: &Pool, depth: usize, kind: Kind, until: Until) -> Result<Measured> {
    let (next, data) = (Arc::new(AtomicU64::new(0)), Bytes::from(vec![b'x'; options.size]));
    let (begun, cpu) = (Instant::now(), cpu_time());
    let mut tasks = Vec::new();
    for _ in 0..depth {
        let (pool, next, data, objects) = (pool.clone(), next.clone(), data.clone(), options.objects);
        tasks.push(tokio::spawn(async move {
            let mut latencies = Vec::new();
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                let is_over = match until {
                    Until::Time(end) => Instant::now() >= end,
                    Until::Count(count) => n >= count,
                };
                if is_over {
                    return anyhow::Ok(latencies);
                }
                let name = format!("object-{}", n % objects);
                let begun = Instant::now();
                match kind {
                    Kind::Write => pool.write_full(name, data.clone()).await?,
                    Kind::Read => ensure!(pool.read(name, 0, data.len() as u64).await?.len() == data.len()),
                    Kind::Stat => drop(pool.stat(name).await?),
                }
                latencies.push(begun.elapsed());
            }
        }));
    }
    let mut latencies = Vec::new();
    for task in tasks {
        latencies.extend(task.await??);
    }
    let (elapsed, cpu) = (begun.elapsed(), cpu_time().saturating_sub(cpu));
    latencies.sort();
    Ok(Measured { elapsed, cpu, latencies })
}

/// Of all threads of this process.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}
