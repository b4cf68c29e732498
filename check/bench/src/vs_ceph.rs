//! Objects through the stock `rados` and python3-rados: Ceph and Nacre, alternately. With small writes the
//! probe as well, which shows what the machine allows.

use crate::beside::Beside;
use crate::probe::{PROBE, Probe};
use crate::{cluster, device, pools, report, workload};
use anyhow::Result;

#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    beside: Beside,
    /// Also print the table as JSON lines.
    #[arg(long)]
    json: bool,
    /// `erasure`: an image on three copies, on 2+1 and on 4+2, of six OSDs on each side.
    #[arg(long, value_enum, default_value_t = Pool::Replicated)]
    pool: Pool,
}

#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
enum Pool {
    Replicated,
    Erasure,
}

pub fn measure(options: &Options) -> Result<()> {
    if options.pool == Pool::Erasure {
        anyhow::ensure!(!options.json, "--json is for replicated pools only");
        let Beside { rounds, seconds, .. } = options.beside;
        let shape = cluster::Shape { osds: pools::OSDS, ..Default::default() };
        let clusters = options.beside.clusters_of(shape)?;
        return pools::measure(&clusters, rounds, seconds, &|name| options.beside.wants(name));
    }
    let workloads: Vec<_> =
        workload::all().into_iter().filter(|workload| options.beside.wants(workload.name)).collect();

    let clusters = options.beside.clusters()?;
    let mut probe = Probe::start(&options.beside.folder.canonicalize()?.join(PROBE))?;

    let mut table = report::Table::new(clusters.iter().map(|cluster| cluster.name));
    let mut streams = Vec::new();
    if !options.json {
        println!("{}", report::Table::head());
    }
    for workload in &workloads {
        measure_one(workload, &clusters, &mut probe, &options.beside, &mut table, &mut streams)?;
        // At once: what was measured is true, whatever becomes of the next.
        print!("{}", if options.json { table.json(workload.name) } else { table.text(workload.name) });
    }
    if !streams.is_empty() {
        let write = report::median(streams.iter().map(|s: &device::Streams| s.write));
        let read = report::median(streams.iter().map(|s| s.read));
        match options.json {
            true => {
                println!("{}", serde_json::json!({ "device": { "write MiB/s": write, "read MiB/s": read } }))
            }
            false => {
                println!("the disk itself, 4 MiB, 16 under way: {write:.0} MiB/s written, {read:.0} read")
            }
        }
    }
    Ok(())
}

fn measure_one(
    workload: &workload::Workload,
    clusters: &[cluster::Cluster],
    probe: &mut Probe,
    options: &Beside,
    table: &mut report::Table,
    streams: &mut Vec<device::Streams>,
) -> Result<()> {
    for cluster in clusters {
        workload.prepare(cluster)?;
    }
    let mut runs = Vec::new();
    for round in 0..options.rounds {
        if workload.is_stream() {
            streams.push(device::streams(&options.folder)?);
        }
        for cluster in clusters {
            eprintln!("{} on {}, round {}/{}", workload.name, cluster.name, round + 1, options.rounds);
            runs.push((cluster.name, workload.measure(cluster, options.seconds)?));
        }
        if let Some(depth) = workload.probed() {
            runs.push((PROBE, probe.measure(options.seconds, depth)?.into()));
        }
    }
    // A workload is in the table with all its runs or not at all.
    runs.into_iter().for_each(|(name, measured)| table.add(workload, name, measured));
    clusters.iter().try_for_each(|cluster| workload.clean_up(cluster))
}
