//! What an operation costs in counts, which do not depend on the day: messages,
//! system calls, writes and flushes of the disk, switches between threads.

use crate::cluster::Cluster;
use crate::{nacre, workload};
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Options {
    /// Seconds per workload.
    #[arg(long, default_value_t = 5)]
    seconds: u32,
    /// Run only workloads whose name contains this text.
    #[arg(long)]
    only: Option<String>,
    /// Folder for the cluster's data.
    #[arg(long, default_value = "target/bench")]
    folder: PathBuf,
}

const NET: &str = "AsyncMessenger::Worker-0";

/// Head, set and counter; each is divided by the number of clients' operations, over all OSDs.
const COLUMNS: [(&str, &str, &str); 8] = [
    ("messages", NET, "msgr_recv_messages"),
    ("recv()", NET, "msgr_recv_calls"),
    ("send()", NET, "msgr_send_calls"),
    ("batches", "store", "batch"),
    ("writes", "store", "disk_write"),
    ("durable", "store", "disk_durable_write"),
    ("flushes", "store", "disk_flush"),
    ("disk reads", "store", "disk_read"),
];

/// Where the time of an operation goes, as means in microseconds.
const STAGES: [&str; 6] = ["queue", "read", "execute", "commit", "replicas", "reply"];

pub fn count(options: &Options) -> Result<()> {
    std::fs::create_dir_all(&options.folder)?;
    let cluster = nacre::up(&options.folder.canonicalize()?.join("nacre"), false)?;
    println!("for one operation of a client, over all OSDs:");
    print!("{:<32}", "");
    COLUMNS.iter().for_each(|(head, ..)| print!("{head:>11}"));
    println!("{:>11}{:>11}{:>11}", "switches", "bytes/byte", "CPU us");
    for workload in workload::all() {
        if options.only.as_ref().is_some_and(|only| !workload.name.contains(only.as_str())) {
            continue;
        }
        workload.prepare(&cluster)?;
        tell(&cluster, "perf reset all")?;
        let (switches, cpu) = (cluster.switches()?, cluster.cpu()?);
        workload.measure(&cluster, options.seconds)?;
        let (switches, cpu) = (cluster.switches()? - switches, cluster.cpu()? - cpu);
        let dumps = tell(&cluster, "perf dump")?;
        let sum = |set: &str, name: &str| -> f64 {
            dumps.iter().map(|dump| dump[set][name].as_f64().unwrap_or(0.0)).sum()
        };
        let ops = sum("osd", "op").max(1.0);
        print!("{:<32}", workload.name);
        COLUMNS.iter().for_each(|(_, set, name)| print!("{:>11.3}", sum(set, name) / ops));
        let amplification = match sum("store", "txn_bytes") {
            0.0 => "-".to_string(),
            asked => format!("{:.2}", sum("store", "disk_write_bytes") / asked),
        };
        let micros = cpu.as_secs_f64() * 1e6 / ops;
        println!("{:>11.3}{amplification:>11}{micros:>11.1}", switches as f64 / ops);
        let stage = |name: &str| {
            let mean =
                |part: &str| dumps.iter().filter_map(|d| d["osd-stages"][name][part].as_f64()).sum::<f64>();
            format!("{name} {:.0}", mean("sum") * 1e6 / mean("avgcount").max(1.0))
        };
        println!("    us by stage: {}", STAGES.map(stage).join(", "));
        workload.clean_up(&cluster)?;
    }
    Ok(())
}

/// Tells every OSD, and gives what they answer.
fn tell(cluster: &Cluster, words: &str) -> Result<Vec<Value>> {
    let one = |osd: usize| -> Result<Value> {
        let said = cluster.run(&format!("ceph tell osd.{osd} {words}"))?;
        serde_json::from_str(&said).with_context(|| format!("osd.{osd} said no JSON: {said}"))
    };
    (0..cluster.osds.len()).map(one).collect()
}
