//! What measurements beside a real Ceph have in common: their options, and both clusters.

use crate::cluster::{Cluster, Shape};
use crate::{nacre, reference};
use anyhow::Result;
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Beside {
    /// Runs of each workload on each cluster; the table shows medians.
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// Seconds per run of a workload.
    #[arg(long, default_value_t = 10)]
    pub seconds: u32,
    /// Run only workloads whose name contains this text.
    #[arg(long)]
    only: Option<String>,
    /// Measure Nacre alone, without the reference.
    #[arg(long)]
    nacre_only: bool,
    /// Run the reference's OSDs with libtcmalloc preloaded, which upstream links (package
    /// libgoogle-perftools4).
    #[arg(long)]
    tcmalloc: bool,
    /// Allocate the files of both clusters' OSDs completely before they start, so that the file system does
    /// not allocate under load.
    #[arg(long)]
    fill: bool,
    /// Folder for the data of both clusters, on the disk to measure.
    #[arg(long, default_value = "target/bench")]
    pub folder: PathBuf,
}

impl Beside {
    pub fn wants(&self, workload: &str) -> bool {
        self.only.as_ref().is_none_or(|only| workload.contains(only.as_str()))
    }

    /// Started and healthy: the reference, unless it is left out, then Nacre.
    pub fn clusters(&self) -> Result<Vec<Cluster>> {
        self.clusters_of(Shape::default())
    }
    /// The same, of that size.
    pub fn clusters_of(&self, shape: Shape) -> Result<Vec<Cluster>> {
        std::fs::create_dir_all(&self.folder)?;
        let folder = self.folder.canonicalize()?;
        let mut clusters = Vec::new();
        if !self.nacre_only {
            clusters.push(reference::up_with(&folder.join("ceph"), shape, self.tcmalloc, self.fill)?);
        }
        clusters.push(nacre::up_with(&folder.join("nacre"), shape, self.fill)?);
        Ok(clusters)
    }
}
