//! One OSD goes away while clients write, and comes back: what do clients notice, and how much is
//! copied? The same script on Ceph, on Ceph with its monitors' timer tuned, and on Nacre, one after
//! the other.

use crate::cluster::{Cluster, run};
use crate::{nacre, reference};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub struct Options {
    /// Where the clusters keep their data: a folder on the disk to measure.
    #[arg(long, default_value = "target/bench")]
    folder: PathBuf,
    /// Where the per-second tables and summaries go.
    #[arg(long, default_value = "target/bench-failure")]
    results: PathBuf,
    /// Which clusters, of: ceph, ceph-tuned, nacre.
    #[arg(long, value_delimiter = ',', default_value = "ceph,ceph-tuned,nacre")]
    clusters: Vec<String>,
    /// How the OSD goes, of: kill, stop (it hangs, and wakes up again).
    #[arg(long, value_delimiter = ',', default_value = "kill")]
    how: Vec<String>,
    /// Seconds for which it is away.
    #[arg(long, default_value_t = 30)]
    away: u32,
    /// Writes per second; 0: as many as go.
    #[arg(long, default_value_t = 200)]
    rate: u32,
    /// Objects of 4 MiB each.
    #[arg(long, default_value_t = 512)]
    objects: u32,
}

const POOL: &str = "failure";
/// Which OSD goes.
const VICTIM: u32 = 1;

pub fn measure(options: &Options) -> Result<()> {
    std::fs::create_dir_all(&options.folder)?;
    std::fs::create_dir_all(&options.results)?;
    let folder = options.folder.canonicalize()?;
    for how in &options.how {
        for name in &options.clusters {
            let cluster = match name.as_str() {
                "ceph" => reference::up(&folder.join("ceph"), false, false)?,
                "ceph-tuned" => {
                    let cluster = reference::up(&folder.join("ceph"), false, false)?;
                    cluster.run("ceph config set mon paxos_propose_interval 0.02")?;
                    cluster
                }
                "nacre" => nacre::up(&folder.join("nacre"))?,
                other => anyhow::bail!("no cluster is called '{other}'"),
            };
            eprintln!("{name}, {how}");
            let summary = one(options, &cluster, name, how)?;
            println!("{name} {how} {summary}");
        }
    }
    Ok(())
}

fn one(options: &Options, cluster: &Cluster, name: &str, how: &str) -> Result<String> {
    cluster.run(&format!("ceph osd pool create {POOL} 32 32"))?;
    cluster.wait_healthy()?;
    let pid = cluster.osds.get(VICTIM as usize).context("fewer OSDs than that")?;
    let (fail, back) = match how {
        "kill" => (format!("kill -9 {pid}"), cluster.start_osd(VICTIM)),
        "stop" => (format!("kill -STOP {pid}"), format!("kill -CONT {pid}")),
        other => anyhow::bail!("an OSD cannot go by '{other}'"),
    };
    let file = |ending: &str| options.results.join(format!("{name}-{how}-{}.{ending}", options.rate));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/failure.py");
    let mut command = cluster.client("/usr/bin/python3");
    command
        .arg(script)
        .args(["--pool", POOL, "--fail", &fail, "--back", &back])
        .arg("--csv")
        .arg(file("csv"));
    command.args(["--away", &options.away.to_string(), "--rate", &options.rate.to_string()]);
    let summary = run(command.args(["--objects", &options.objects.to_string()]))?;
    std::fs::write(file("json"), &summary)?;
    Ok(summary)
}
