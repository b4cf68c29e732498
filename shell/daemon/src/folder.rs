//! The folder of a development cluster, which `nacre up` makes.
//!
//! ```text
//! DIR/cluster.json      the cluster, as `Cluster`
//! DIR/ceph.conf         for Ceph's own clients
//! DIR/*keyring          see `keyrings`
//! DIR/s3.env            the keys of the S3 gateway's first user
//! DIR/NAME/daemon.json  the configuration of daemon NAME, derived from cluster.json whenever that is written
//! DIR/NAME/store        its store: a file, or a link to its device
//! DIR/NAME/device.json  the measurement of that device, if it was measured
//! DIR/run/NAME.pid      locked while NAME runs (or `nacre`, when all share one process)
//! DIR/run/ceph-NAME.asok  its admin socket while it runs
//! DIR/log/NAME.log
//! DIR/crash/            see `crashes`
//! DIR/lock              locked while a command changes the folder
//! ```

use crate::cluster::{Cluster, FORMAT_VERSION};
use crate::config::DaemonConfig;
use crate::files::{make_dir, replace};
use crate::name::DaemonName;
use crate::store::wal_of;
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};

/// A cluster's folder.
#[derive(Clone, Debug)]
pub struct Layout {
    root: PathBuf,
}

impl Layout {
    /// A folder that may not exist yet.
    pub fn at(data: &Path) -> Result<Layout> {
        let root = std::path::absolute(data).with_context(|| format!("bad path {}", data.display()))?;
        Ok(Layout { root })
    }

    /// The folder of an existing cluster.
    pub fn open(data: &Path) -> Result<(Layout, Cluster)> {
        let layout = Layout::at(data)?;
        match layout.load()? {
            Some(cluster) => Ok((layout, cluster)),
            None => bail!("there is no cluster in {}: create one with `nacre up`", data.display()),
        }
    }

    /// Creates the directories that are missing.
    pub fn make(&self) -> Result<()> {
        for dir in [self.root.clone(), self.root.join("run"), self.root.join("log")] {
            make_dir(&dir)?;
        }
        Ok(())
    }

    pub fn load(&self) -> Result<Option<Cluster>> {
        let path = self.root.join("cluster.json");
        let text = match fs::read_to_string(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            text => text.with_context(|| format!("cannot read {}", path.display()))?,
        };
        let mut cluster: Cluster =
            serde_json::from_str(&text).with_context(|| format!("cannot parse {}", path.display()))?;
        let (found, path) = (cluster.version, path.display());
        ensure!(
            found <= FORMAT_VERSION,
            "{path} has format version {found}, and this program supports {FORMAT_VERSION}"
        );
        cluster.version = FORMAT_VERSION;
        Ok(Some(cluster))
    }

    /// Also writes the configurations of its daemons and of clients.
    pub fn save(&self, cluster: &Cluster) -> Result<()> {
        let json = serde_json::to_string_pretty(cluster).context("cannot write a cluster as JSON")?;
        replace(&self.root.join("cluster.json"), &(json + "\n"))?;
        replace(&self.ceph_conf(), cluster.ceph_conf(self))?;
        self.configs(cluster)?.iter().try_for_each(DaemonConfig::save)
    }

    /// The configuration of one daemon, as its cluster has it.
    pub fn config(&self, cluster: &Cluster, daemon: &DaemonName) -> Result<DaemonConfig> {
        cluster.config(self.data_dir(daemon), daemon)
    }
    /// The same for all daemons.
    pub fn configs(&self, cluster: &Cluster) -> Result<Vec<DaemonConfig>> {
        cluster.daemons().iter().map(|daemon| self.config(cluster, daemon)).collect()
    }

    pub fn root(&self) -> &Path {
        &self.root
    }
    pub fn ceph_conf(&self) -> PathBuf {
        self.root.join("ceph.conf")
    }
    /// The keys of the S3 gateway's first user.
    pub fn s3_env(&self) -> PathBuf {
        self.root.join("s3.env")
    }
    pub fn lock(&self) -> PathBuf {
        self.root.join("lock")
    }
    pub fn admin_keyring(&self) -> PathBuf {
        self.root.join("ceph.client.admin.keyring")
    }
    pub fn mon_keyring(&self) -> PathBuf {
        self.root.join("mon.keyring")
    }
    /// An OSD's.
    pub fn keyring(&self, osd: u32) -> PathBuf {
        self.data_dir(&DaemonName::Osd(osd)).join("keyring")
    }
    pub fn run(&self) -> PathBuf {
        self.root.join("run")
    }
    pub fn pid(&self, name: &str) -> PathBuf {
        self.run().join(format!("{name}.pid"))
    }
    pub fn log(&self, name: &str) -> PathBuf {
        self.root.join("log").join(format!("{name}.log"))
    }
    pub fn data_dir(&self, daemon: &DaemonName) -> PathBuf {
        self.root.join(daemon.to_string())
    }
    pub fn store(&self, daemon: &DaemonName) -> PathBuf {
        self.data_dir(daemon).join("store")
    }
    /// A link to the device of the store's log, if that is another.
    pub fn wal(&self, daemon: &DaemonName) -> PathBuf {
        wal_of(&self.store(daemon))
    }
    pub fn device_report(&self, daemon: &DaemonName) -> PathBuf {
        self.data_dir(daemon).join("device.json")
    }
    pub fn wal_report(&self, daemon: &DaemonName) -> PathBuf {
        self.data_dir(daemon).join("wal.json")
    }
    /// Removes a daemon's data directory. A device or file elsewhere stays as it is.
    pub fn remove(&self, daemon: &DaemonName) -> Result<()> {
        let folder = self.data_dir(daemon);
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))
    }
}
