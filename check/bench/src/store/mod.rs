//! The store alone, on a file of the disk that is measured: what it makes of the device.

mod churn;
mod disks;
mod objects;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use disks::{Counted, Counts, Turning};
use nacre_base::{Name, PoolId, Rng};
use nacre_node::FileDisk;
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_proto::types::ObjectId;
use nacre_store::{DeferredDone, DeferredWrites, Disk, Options as StoreOptions, Store, SubmitError, WithLog};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};

#[derive(clap::Args)]
pub struct Options {
    /// Seconds per measurement.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Number of alternating measurements of store and device; the table shows medians.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// How many times its size is written to the nearly full store.
    #[arg(long, default_value_t = 3)]
    churns: u64,
    /// Measure only changes in a nearly full store.
    #[arg(long)]
    churn: bool,
    /// Measure only this number of small objects, on a sparse device of 3 TB.
    #[arg(long)]
    objects: Option<u64>,
    /// Folder on the disk to measure.
    #[arg(long, default_value = "target/bench")]
    folder: PathBuf,
}

const BLOCK: usize = 4096;
const FILE_LEN: u64 = 1 << 30;
/// What is overwritten: this many objects of 4 MiB.
const OBJECTS: u64 = 64;
const OBJECT_LEN: u64 = 4 << 20;
const DEPTHS: [usize; 2] = [1, 32];

pub fn measure(options: &Options) -> Result<()> {
    std::fs::create_dir_all(&options.folder)?;
    let folder = Folder(options.folder.canonicalize()?.join("store"));
    let _ = std::fs::remove_dir_all(&folder.0);
    std::fs::create_dir_all(&folder.0)?;
    let time = Duration::from_secs(options.seconds);
    if let Some(objects) = options.objects {
        return objects::measure(&folder, objects, time);
    }
    if !options.churn {
        beside_device(&folder.0, time, options.rounds)?;
        on_slow_disk(&folder.0, time)?;
    }
    churn::measure(&folder, options.churns, options.rounds)
}

/// Gone when this is.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

// ---- beside the device ----

fn beside_device(folder: &Path, time: Duration, rounds: usize) -> Result<()> {
    let path = folder.join("bare");
    let bare = FileDisk::create(&path, OBJECTS * OBJECT_LEN)?;
    (0..OBJECTS).try_for_each(|n| bare.write_at(n * OBJECT_LEN, &vec![1; OBJECT_LEN as usize]))?;
    bare.flush()?;
    let disk = FileDisk::create(&folder.join("store"), FILE_LEN)?;
    let mut store = fresh(&disk)?;
    let counts = Counts::default();
    let counted = Counted { disk: &disk, counts: &counts };
    fill(&mut store, &counted)?;

    println!("durable 4 KiB overwrites at random places, per second, medians of {rounds}:");
    println!(
        "{:<8}{:>12}{:>12}{:>8}{:>14}{:>14}{:>12}{:>12}",
        "depth", "device", "store", "ratio", "durable/op", "flushes/op", "bytes/byte", "p99 us"
    );
    for depth in DEPTHS {
        let (mut device, mut ours, mut p99) = (Vec::new(), Vec::new(), Vec::new());
        let (mut sums, mut ops) = ([0; 4], 0);
        for round in 0..rounds as u64 {
            device.push(match depth {
                1 => durable_writes(&bare, time, round)?,
                _ => fio(&path, depth, time)?,
            });
            counts.take();
            let done = overwrite(&mut store, &counted, OBJECTS, depth, Until::Over(time), round)?;
            ours.push(done.per_second());
            p99.push(done.p99_us());
            counts.take().iter().zip(&mut sums).for_each(|(count, sum)| *sum += count);
            ops += done.latencies.len() as u64;
        }
        let (device, ours) = (median(device), median(ours));
        let per_op = |sum: u64| sum as f64 / ops as f64;
        println!(
            "{depth:<8}{device:>12.0}{ours:>12.0}{:>8.2}{:>14.3}{:>14.4}{:>12.2}{:>12.0}",
            ours / device,
            per_op(sums[0]),
            per_op(sums[2]),
            per_op(sums[3]) / BLOCK as f64,
            median(p99)
        );
    }
    println!("(device: one O_DSYNC write at a time; at depth 32 what fio gets with as many under way)");
    Ok(())
}

/// One after the other, straight to the device.
fn durable_writes(disk: &impl Disk, time: Duration, seed: u64) -> Result<f64> {
    let mut rng = Rng::new(seed);
    let bytes = Aligned::new();
    let (began, mut count) = (Instant::now(), 0_u64);
    while began.elapsed() < time {
        disk.write_durable(rng.below(disk.len() / BLOCK as u64) * BLOCK as u64, bytes.block())?;
        count += 1;
    }
    Ok(count as f64 / began.elapsed().as_secs_f64())
}

/// A block that need not be copied on its way.
struct Aligned(Vec<u8>);

impl Aligned {
    fn new() -> Aligned {
        Aligned(vec![7; 2 * BLOCK])
    }
    fn block(&self) -> &[u8] {
        let start = self.0.as_ptr().align_offset(BLOCK);
        &self.0[start..start + BLOCK]
    }
}

fn fio(path: &Path, depth: usize, time: Duration) -> Result<f64> {
    let mut command = Command::new("fio");
    command.args([
        "--name=bare",
        "--rw=randwrite",
        "--bs=4k",
        "--direct=1",
        "--sync=dsync",
        "--ioengine=libaio",
    ]);
    command.args(["--output-format=json", "--time_based", &format!("--iodepth={depth}")]);
    command.arg(format!("--runtime={}", time.as_secs())).arg(format!("--filename={}", path.display()));
    let output = command.output().context("cannot run fio")?;
    ensure!(output.status.success(), "fio: {}", String::from_utf8_lossy(&output.stderr));
    let said: Value = serde_json::from_slice(&output.stdout)?;
    said["jobs"][0]["write"]["iops"].as_f64().context("fio does not say how many")
}

// ---- a log on a fast device ----

fn on_slow_disk(folder: &Path, time: Duration) -> Result<()> {
    let file = |name: &str, len| FileDisk::create(&folder.join(name), len);
    println!(
        "\ndurable 4 KiB overwrites, depth 1, on a disk that turns 7200 times a minute (simulated in time):"
    );
    let slow = Turning::new(file("slow", FILE_LEN)?);
    let mut store = fresh(&slow)?;
    fill(&mut store, &slow)?;
    let both = overwrite(&mut store, &slow, OBJECTS, 1, Until::Over(time), 1)?;
    let apart = WithLog(Turning::new(file("data", FILE_LEN)?), file("log", 256 << 20)?);
    let mut store = fresh(&apart)?;
    fill(&mut store, &apart)?;
    let fast = overwrite(&mut store, &apart, OBJECTS, 1, Until::Over(time), 1)?;
    for (what, done) in [("log and data on it", &both), ("log on the device measured above", &fast)] {
        println!("{what:<40}{:>10.0} per second, p99 {:.0} us", done.per_second(), done.p99_us());
    }
    println!("{:<40}{:>10.1}", "ratio", fast.per_second() / both.per_second());
    Ok(())
}

// ---- what all of them do ----

fn submit(store: &mut Store, disk: &impl Disk, n: u64, change: Change) -> Result<()> {
    let mut txn = Transaction::new();
    txn.push(object(n), change);
    store.submit(txn).map_err(|e| match e {
        SubmitError::NoSpace { .. } => anyhow::anyhow!("refused without need: {e}"),
        e => e.into(),
    })?;
    if store.backlog() > 16 << 20 {
        store.settle(disk)?;
    }
    Ok(())
}

fn object(n: u64) -> StoredId {
    ObjectId::head(PoolId(1), Name::default(), Name::default(), format!("object{n}").into()).into()
}
fn data(len: usize) -> Bytes {
    vec![0x5a; len].into()
}

fn fresh(disk: &impl Disk) -> Result<Store> {
    Store::format(disk, StoreOptions { uuid: [7; 16], ..StoreOptions::default() })?;
    Ok(Store::open(disk)?.0)
}

fn fill(store: &mut Store, disk: &impl Disk) -> Result<()> {
    for n in 0..OBJECTS {
        submit(store, disk, n, Change::Write { offset: 0, data: data(OBJECT_LEN as usize) })?;
    }
    store.request_checkpoint();
    store.settle(disk)?;
    Ok(())
}

struct Overwritten {
    took: Duration,
    latencies: Vec<Duration>,
}

impl Overwritten {
    fn per_second(&self) -> f64 {
        self.latencies.len() as f64 / self.took.as_secs_f64()
    }
    fn p99_us(&self) -> f64 {
        let mut all = self.latencies.clone();
        all.sort();
        all.get(all.len() * 99 / 100).map_or(0.0, |latency| latency.as_secs_f64() * 1e6)
    }
}

#[derive(Clone, Copy)]
enum Until {
    Over(Duration),
    Writes(u64),
}

/// 4 KiB somewhere in the first `objects`, as a daemon does it: one thread commits, another one places.
fn overwrite<D: Disk + Sync>(
    store: &mut Store,
    disk: &D,
    objects: u64,
    depth: usize,
    until: Until,
    seed: u64,
) -> Result<Overwritten> {
    let mut rng = Rng::new(seed);
    let mut latencies = Vec::new();
    let mut submitted = std::collections::VecDeque::new();
    let (to_placer, placings) = mpsc::channel::<DeferredWrites>();
    let (to_us, placed) = mpsc::channel::<Result<DeferredDone, nacre_store::DiskError>>();
    let began = Instant::now();
    std::thread::scope(|scope| -> Result<()> {
        scope.spawn(move || {
            for placing in placings {
                if to_us.send(placing.run(disk)).is_err() {
                    return;
                }
            }
        });
        let mut placing = false;
        loop {
            if let Ok(done) = placed.try_recv() {
                store.deferred_done(done?);
                placing = false;
            }
            let is_over = |written: usize| match until {
                Until::Over(time) => began.elapsed() >= time,
                Until::Writes(writes) => written as u64 >= writes,
            };
            while submitted.len() < depth && !is_over(latencies.len() + submitted.len()) {
                let offset = rng.below(OBJECT_LEN / BLOCK as u64) * BLOCK as u64;
                let mut txn = Transaction::new();
                txn.push(object(rng.below(objects)), Change::Write { offset, data: data(BLOCK) });
                submitted.push_back((store.submit(txn)?, Instant::now()));
            }
            if submitted.is_empty() && !placing && is_over(latencies.len()) {
                break;
            }
            if !placing && let Some(next) = store.take_deferred() {
                placing = to_placer.send(next).is_ok();
            }
            let Some(batch) = store.take_batch() else {
                // It waits for what is being placed.
                if placing {
                    store.deferred_done(placed.recv()??);
                    placing = false;
                }
                continue;
            };
            let durable = store.finished(batch.commit(disk)?);
            while let Some((_, since)) = submitted.pop_front_if(|(ticket, _)| *ticket <= durable) {
                latencies.push(since.elapsed());
            }
        }
        drop(to_placer);
        Ok(())
    })?;
    Ok(Overwritten { took: began.elapsed(), latencies })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
