//! Objects over HTTP: radosgw on Ceph and Nacre's gateway on Nacre, alternately, with one load program.
//!
//! `gateways` starts what is measured, `client` is one connection with signed requests, `load` keeps many of
//! them busy.

mod client;
mod gateways;
mod load;

use crate::cluster::Cluster;
use crate::report::median;
use crate::{nacre, reference};
use anyhow::Result;
use gateways::Gateway;
use load::{Kind, Load, Measured};
use std::collections::BTreeMap;
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Options {
    /// Runs of each workload on each gateway; the table shows medians.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds per run of a workload.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Connections, each with one request at a time; several are measured one after the other.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 32, 128])]
    widths: Vec<usize>,
    /// Small objects in the bucket that is listed and read.
    #[arg(long, default_value_t = 10_000)]
    objects: u64,
    /// Run only workloads whose name contains this text.
    #[arg(long)]
    only: Option<String>,
    /// Measure Nacre alone, without the reference.
    #[arg(long)]
    nacre_only: bool,
    /// Run the reference with libtcmalloc preloaded, which upstream links (package libgoogle-perftools4).
    #[arg(long)]
    tcmalloc: bool,
    /// Write the OSDs' files full before.
    #[arg(long)]
    fill: bool,
    /// Folder for the data of both clusters, on the disk to measure.
    #[arg(long, default_value = "target/bench")]
    folder: PathBuf,
}

/// A cluster with its gateway. Fields end in this order.
struct Served {
    gateway: Gateway,
    cluster: Cluster,
}

pub fn measure(options: &Options) -> Result<()> {
    std::fs::create_dir_all(&options.folder)?;
    let folder = options.folder.canonicalize()?;
    let mut all = Vec::new();
    if !options.nacre_only {
        let cluster = reference::up(&folder.join("ceph"), options.tcmalloc, options.fill)?;
        let gateway = gateways::radosgw(&cluster, options.tcmalloc)?;
        all.push(Served { gateway, cluster });
    }
    let cluster = nacre::up(&folder.join("nacre"), options.fill)?;
    all.push(Served { gateway: gateways::nacre(&cluster)?, cluster });

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    for Served { gateway, cluster } in &all {
        eprintln!("{} objects of 1 KiB for {}", options.objects, cluster.name);
        runtime.block_on(load::prepare(&gateway.endpoint, options.objects))?;
    }
    println!("{}", head());
    for kind in Kind::ALL.into_iter().filter(|kind| wants(options, *kind)) {
        for &width in &options.widths {
            let mut runs: BTreeMap<&str, Vec<Measured>> = BTreeMap::new();
            for round in 0..options.rounds {
                for served in &all {
                    let load =
                        Load { kind, width, seconds: options.seconds, objects: options.objects, round };
                    let measured = runtime.block_on(load.run(&served.gateway, &served.cluster))?;
                    runs.entry(served.cluster.name).or_default().push(measured);
                }
            }
            print!("{}", lines(kind, width, &all, &runs));
        }
    }
    for Served { gateway, cluster } in &all {
        println!("{}: {:.0} MiB resident in the gateway at the end", cluster.name, gateway.resident()?);
    }
    Ok(())
}

fn wants(options: &Options, kind: Kind) -> bool {
    options.only.as_ref().is_none_or(|only| kind.name().contains(only.as_str()))
}

type Column = (&'static str, fn(&Measured) -> f64);

const COLUMNS: [Column; 6] = [
    ("ops/s", |m| m.rate),
    ("p50 ms", |m| m.p50),
    ("p99 ms", |m| m.p99),
    ("gateway us", |m| m.gateway_cpu),
    ("OSDs us", |m| m.osds_cpu),
    ("client us", |m| m.client_cpu),
];

fn head() -> String {
    let columns: String = COLUMNS.iter().map(|(head, _)| format!("{head:>12}")).collect();
    format!("{:<22}{:>6} {:<7}{columns}   (CPU per operation)", "operation (medians)", "width", "")
}

/// A line for each cluster, and the ratios of the last to the first.
fn lines(kind: Kind, width: usize, all: &[Served], runs: &BTreeMap<&str, Vec<Measured>>) -> String {
    let of = |name: &str| COLUMNS.map(|(_, of)| median(runs[name].iter().map(of)));
    let mut out = String::new();
    let mut line = |name: &str, cells: Vec<String>| {
        let cells: String = cells.iter().map(|cell| format!("{cell:>12}")).collect();
        out += &format!("{:<22}{width:>6} {name:<7}{cells}\n", kind.name());
    };
    for served in all {
        let digits = |value: &f64| if *value < 10.0 { 2 } else { 0 };
        let name = served.cluster.name;
        line(name, of(name).iter().map(|value| format!("{value:.*}", digits(value))).collect());
    }
    if let [first, .., last] = all {
        let pairs = of(last.cluster.name).into_iter().zip(of(first.cluster.name));
        let ratios = pairs.map(|(ours, theirs)| format!("{:.2}x", ours / theirs)).collect();
        line(&format!("/{}", first.cluster.name), ratios);
    }
    out
}
