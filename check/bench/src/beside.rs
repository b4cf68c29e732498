//! What measurements beside a real Ceph have in common: their options, and both clusters.

use crate::cluster::Cluster;
use crate::{nacre, reference};
use anyhow::Result;
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Beside {
    /// How often each workload runs on each cluster; the table shows medians.
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// How long one run of a workload takes, in seconds.
    #[arg(long, default_value_t = 10)]
    pub seconds: u32,
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
    /// Write the files of both clusters' OSDs full before they start, so that the host's file system has
    /// nothing to allocate under load.
    #[arg(long)]
    fill: bool,
    /// Where both clusters keep their data: a folder on the disk to measure.
    #[arg(long, default_value = "target/bench")]
    pub folder: PathBuf,
}

impl Beside {
    pub fn wants(&self, workload: &str) -> bool {
        self.only.as_ref().is_none_or(|only| workload.contains(only.as_str()))
    }

    /// Started and healthy: the reference, unless it is left out, then Nacre.
    pub fn clusters(&self) -> Result<Vec<Cluster>> {
        std::fs::create_dir_all(&self.folder)?;
        let folder = self.folder.canonicalize()?;
        let mut clusters = Vec::new();
        if !self.nacre_only {
            clusters.push(reference::up(&folder.join("ceph"), self.tcmalloc, self.fill)?);
        }
        clusters.push(nacre::up(&folder.join("nacre"), self.fill)?);
        Ok(clusters)
    }
}
