//! A snapshot of many objects is removed while clients write: what do they notice?

use crate::cluster::run;
use crate::{nacre, reference};
use anyhow::Result;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub struct Options {
    /// Folder for the clusters' data, on the disk to measure.
    #[arg(long, default_value = "target/bench")]
    folder: PathBuf,
    /// Clusters to measure: ceph, nacre.
    #[arg(long, value_delimiter = ',', default_value = "ceph,nacre")]
    clusters: Vec<String>,
    /// Objects in the snapshot, 4 KiB each.
    #[arg(long, default_value_t = 100_000)]
    objects: u32,
    /// Client writes per second.
    #[arg(long, default_value_t = 200)]
    rate: u32,
}

const POOL: &str = "trim";

pub fn measure(options: &Options) -> Result<()> {
    std::fs::create_dir_all(&options.folder)?;
    let folder = options.folder.canonicalize()?;
    for name in &options.clusters {
        let cluster = match name.as_str() {
            "ceph" => reference::up(&folder.join("ceph"), false, false)?,
            "nacre" => nacre::up(&folder.join("nacre"), false)?,
            other => anyhow::bail!("no cluster is called '{other}'"),
        };
        cluster.run(&format!("ceph osd pool create {POOL} 32 32"))?;
        cluster.wait_healthy()?;
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/trim.py");
        let mut command = cluster.client("/usr/bin/python3");
        command.arg(script).args(["--pool", POOL, "--objects", &options.objects.to_string()]);
        println!("{name} {}", run(command.args(["--rate", &options.rate.to_string()]))?.trim());
    }
    Ok(())
}
