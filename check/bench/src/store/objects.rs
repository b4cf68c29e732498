//! Very many small objects: what each takes in memory, how long opening takes, and what a write costs among
//! them.

use super::{BLOCK, Folder, Until, data, object, overwrite};
use anyhow::{Context, Result};
use bytes::Bytes;
use nacre_base::Name;
use nacre_node::FileDisk;
use nacre_proto::transaction::{Change, Transaction};
use nacre_store::{Disk, Options as StoreOptions, Store};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Sparse: what an OSD of today may have.
const DEVICE_LEN: u64 = 3 << 40;
/// What a store has by default.
const MEMORY: usize = 256 << 20;
/// Objects in a transaction of the filling, and transactions in a batch.
const TOGETHER: u64 = 16;
const QUEUED_MAX: usize = 4 << 20;

pub(super) fn measure(folder: &Folder, objects: u64, time: Duration) -> Result<()> {
    let disk = Arc::new(FileDisk::create(&folder.0.join("many"), DEVICE_LEN)?);
    Store::format(&*disk, StoreOptions { uuid: [7; 16], ..StoreOptions::default() })?;
    let mut store = opened(&disk)?.0;
    let began = Instant::now();
    for first in (0..objects).step_by(TOGETHER as usize) {
        let mut txn = Transaction::new();
        (first..objects.min(first + TOGETHER)).for_each(|n| create(n, &mut txn));
        store.submit(txn)?;
        if store.backlog() > QUEUED_MAX {
            store.settle(&*disk)?;
        }
    }
    store.request_checkpoint();
    store.settle(&*disk)?;
    println!("{objects} objects without data, made in {:.1} s", began.elapsed().as_secs_f64());
    let (memory, runs) = (store.memory(), store.sorted_runs());
    println!("then: {} MiB of index in memory, {runs} runs", memory.index >> 20);
    drop(store);
    nacre_base::buffer::give_back();

    let before = resident()?;
    let (mut store, took) = opened(&disk)?;
    let memory = store.memory();
    println!(
        "opened in {:.2} s: {} MiB more resident; {:.1} bytes of index for each object, without {} MiB of free blocks' bits",
        took.as_secs_f64(),
        (resident()?.saturating_sub(before)) >> 20,
        (memory.index as f64 - (DEVICE_LEN / BLOCK as u64 / 8) as f64) / objects as f64,
        (DEVICE_LEN / BLOCK as u64 / 8) >> 20,
    );
    super::fill(&mut store, &*disk)?;
    let done = overwrite(&mut store, &*disk, super::OBJECTS, 1, Until::Over(time), 1)?;
    let mut latencies = done.latencies.clone();
    latencies.sort();
    let mean = latencies.iter().sum::<Duration>().as_secs_f64() / latencies.len().max(1) as f64;
    let p95 = latencies.get(latencies.len() * 95 / 100).context("nothing was written")?.as_secs_f64();
    println!(
        "4 KiB overwrites at depth 1: mean {:.0} us, p95 {:.0} us, ratio {:.2}; {} MiB resident",
        mean * 1e6,
        p95 * 1e6,
        p95 / mean,
        resident()? >> 20
    );
    disk.flush()?;
    Ok(())
}

fn opened(disk: &Arc<FileDisk>) -> Result<(Store, Duration)> {
    let began = Instant::now();
    let (mut store, _) = Store::open_paged(disk.clone())?;
    let took = began.elapsed();
    store.limit_memory(MEMORY);
    Ok((store, took))
}

/// As an OSD notes them, in an order that has nothing to do with the one in which they lie.
fn create(n: u64, txn: &mut Transaction) {
    let id = object(1_000_000 + n);
    let attrs = [("_", 250), ("snapset", 31)].map(|(name, len)| (Name::from(name), data(len)));
    txn.push(id, Change::SetAttrs(attrs.into_iter().collect::<std::collections::BTreeMap<Name, Bytes>>()));
}

/// Bytes of memory of this process.
fn resident() -> Result<usize> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages: usize = statm.split(' ').nth(1).context("statm has no second number")?.parse()?;
    Ok(pages * 4096)
}
