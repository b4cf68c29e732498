//! Measures Nacre beside a real Ceph: the same stock clients, the same disk, the same run.
//!
//! Absolute figures depend on the machine and on the day; the ratios are what to look at.

mod cluster;
mod counts;
mod failure;
mod nacre;
mod plot;
mod rbd;
mod reference;
mod report;
mod store;
mod trim;
mod workload;

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::path::PathBuf;

#[derive(Parser)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench")]
struct Cli {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// The same stock clients against Ceph from Debian's packages and against Nacre, alternately.
    VsCeph(Options),
    /// Something goes away while clients write, and comes back.
    Failure(failure::Options),
    /// fio on an image: Ceph and Nacre, alternately.
    Rbd(rbd::Options),
    /// A snapshot of many objects is removed while clients write.
    Trim(trim::Options),
    /// Messages, system calls, disk writes and flushes that an operation costs Nacre.
    Counts(counts::Options),
    /// The store alone, without network and OSD, beside the bare device.
    Store(store::Options),
}

#[derive(clap::Args)]
struct Options {
    /// How often each workload runs on each cluster; the table shows medians.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// How long one run of a workload takes, in seconds.
    #[arg(long, default_value_t = 10)]
    seconds: u32,
    /// Only workloads whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// Leave the reference out and measure Nacre alone.
    #[arg(long)]
    nacre_only: bool,
    /// Run the reference's OSDs with libtcmalloc preloaded, as upstream links it (package
    /// libgoogle-perftools4).
    #[arg(long)]
    tcmalloc: bool,
    /// Write the reference's block files full before it starts, so that its host file system has
    /// nothing to allocate under load.
    #[arg(long)]
    fill: bool,
    /// Where both clusters keep their data: a folder on the disk to measure.
    #[arg(long, default_value = "target/bench")]
    folder: PathBuf,
    /// The table as JSON lines as well.
    #[arg(long)]
    json: bool,
}

fn main() -> Result<()> {
    match Cli::parse().what {
        What::VsCeph(options) => compare(&options),
        What::Failure(options) => failure::measure(&options),
        What::Rbd(options) => rbd::measure(&options),
        What::Trim(options) => trim::measure(&options),
        What::Counts(options) => counts::count(&options),
        What::Store(options) => store::measure(&options),
    }
}

fn compare(options: &Options) -> Result<()> {
    std::fs::create_dir_all(&options.folder)?;
    let folder = options.folder.canonicalize()?;
    let workloads: Vec<_> = workload::all()
        .into_iter()
        .filter(|workload| options.only.as_ref().is_none_or(|only| workload.name.contains(only.as_str())))
        .collect();

    let mut clusters = Vec::new();
    if !options.nacre_only {
        clusters.push(reference::up(&folder.join("ceph"), options.tcmalloc, options.fill)?);
    }
    clusters.push(nacre::up(&folder.join("nacre"))?);

    let mut table = report::Table::new(clusters.iter().map(|cluster| cluster.name));
    let mut result = Ok(());
    for workload in &workloads {
        result = measure(workload, &clusters, options, &mut table);
        if result.is_err() {
            break;
        }
    }
    // Also after a failure: what was measured until then is true.
    print!("{}", if options.json { table.json() } else { table.text() });
    result
}

fn measure(
    workload: &workload::Workload,
    clusters: &[cluster::Cluster],
    options: &Options,
    table: &mut report::Table,
) -> Result<()> {
    for cluster in clusters {
        workload.prepare(cluster)?;
    }
    let mut runs = Vec::new();
    for round in 0..options.rounds {
        for cluster in clusters {
            eprintln!("{} on {}, round {}/{}", workload.name, cluster.name, round + 1, options.rounds);
            runs.push((cluster, workload.measure(cluster, options.seconds)?));
        }
    }
    // A workload is in the table with all its runs or not at all.
    runs.into_iter().for_each(|(cluster, measured)| table.add(workload, cluster, measured));
    clusters.iter().try_for_each(|cluster| workload.clean_up(cluster))
}
