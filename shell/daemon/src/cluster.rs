//! What a cluster's folder holds, and what of it is fixed when it is made.
//!
//! ```text
//! DIR/cluster.json    this cluster, as `Cluster`
//! DIR/ceph.conf       for Ceph's own clients
//! DIR/*keyring        see `keyrings`
//! DIR/NAME/store      what daemon NAME stores: a file, or a link to its device
//! DIR/NAME/device.json  what that device can do, if it was measured
//! DIR/run/NAME.pid    locked while NAME runs (or `nacre`, when all share one process)
//! DIR/log/NAME.log
//! DIR/crash/           see `crashes`
//! DIR/lock            locked while a command changes what the folder holds
//! ```

use crate::Auth;
use crate::size::Size;
use anyhow::{Context, Result, bail, ensure};
use nacre_proto::types::EntityAddr;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use uuid::Uuid;

pub const MONS_DEFAULT: u32 = 1;
pub const OSDS_DEFAULT: u32 = 3;
pub const PORT_BASE_DEFAULT: u16 = 20_300;
pub const OSD_SIZE_DEFAULT: Size = Size(10 << 30);
/// Sparse, and flat for ever: a monitor keeps its state and a short log.
pub const MON_SIZE: Size = Size(4 << 30);
/// Below, a store has no room for its own log.
const OSD_SIZE_MIN: Size = Size(1 << 30);
/// Monitors have two ports each below it, OSDs one each from there on.
const OSD_PORT_OFFSET: u16 = 20;
/// As `mon.a` to `mon.i`: more than anyone needs, and as many as have ports.
const MONS_MAX: u32 = 9;
const FORMAT_VERSION: u32 = 2;

/// `mon.a`, `osd.0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DaemonName {
    Mon(String),
    Osd(u32),
}

impl DaemonName {
    pub fn mon(id: &str) -> Result<DaemonName> {
        ensure!(
            !id.is_empty() && id.chars().all(|c| c.is_ascii_alphanumeric()),
            "`{id}` is not a monitor id"
        );
        Ok(DaemonName::Mon(id.to_string()))
    }
    pub fn osd(id: &str) -> Result<DaemonName> {
        Ok(DaemonName::Osd(id.parse().with_context(|| format!("`{id}` is not an OSD id"))?))
    }
}

impl fmt::Display for DaemonName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DaemonName::Mon(id) => write!(f, "mon.{id}"),
            DaemonName::Osd(id) => write!(f, "osd.{id}"),
        }
    }
}
impl FromStr for DaemonName {
    type Err = anyhow::Error;
    fn from_str(text: &str) -> Result<DaemonName> {
        match text.split_once('.') {
            Some(("mon", id)) => DaemonName::mon(id),
            Some(("osd", id)) => DaemonName::osd(id),
            _ => bail!("a daemon's name is like `mon.a` or `osd.0`"),
        }
    }
}

/// A cluster in a folder. What is here never changes, except that daemons come and go.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Cluster {
    version: u32,
    pub fsid: Uuid,
    pub auth: Auth,
    pub port_base: u16,
    #[serde(deserialize_with = "monitors")]
    pub mons: Vec<Monitor>,
    pub osds: Vec<OsdDisk>,
    /// Where OSDs talk among themselves, if not where clients are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_network: Option<LoopbackNetwork>,
    /// Bytes of memory for each OSD, if not what is usual.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Size>,
    /// The highest number that a monitor had.
    #[serde(default)]
    last_mon: u64,
}

#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Monitor {
    pub name: String,
    /// Its number among the monitors, which no other gets: a founder's rank and one.
    pub id: u64,
    /// Which of the pairs of ports for monitors it has.
    place: u16,
    /// It began with the cluster. Others join.
    pub founder: bool,
}

/// In version 1 there were only founders, of which the names stood here.
fn monitors<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Monitor>, D::Error> {
    #[derive(serde::Deserialize)]
    #[serde(untagged)]
    enum Entry {
        Name(String),
        Monitor(Monitor),
    }
    let entries = Vec::<Entry>::deserialize(from)?.into_iter().zip(0..);
    let monitor = |(entry, rank)| match entry {
        Entry::Name(name) => founder(name, rank),
        Entry::Monitor(monitor) => monitor,
    };
    Ok(entries.map(monitor).collect())
}

fn founder(name: String, rank: u16) -> Monitor {
    Monitor { name, id: u64::from(rank) + 1, place: rank, founder: true }
}

#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct OsdDisk {
    pub id: u32,
    pub uuid: Uuid,
    /// Bytes of its file.
    pub size: Size,
    /// The file has all its room, and keeps it. Otherwise it is sparse.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub preallocated: bool,
}

/// A part of 127.0.0.0/8 such as `127.2.0.0/24`. Each OSD has an address of its own in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct LoopbackNetwork {
    first: Ipv4Addr,
    prefix: u32,
}

impl LoopbackNetwork {
    /// The first address is the network's, and the last one everybody's.
    pub fn addr(self, id: u32) -> Option<Ipv4Addr> {
        let hosts = (1_u32 << (32 - self.prefix)).saturating_sub(2);
        (id < hosts).then(|| Ipv4Addr::from(self.first.to_bits() + 1 + id))
    }
}
impl FromStr for LoopbackNetwork {
    type Err = anyhow::Error;
    fn from_str(text: &str) -> Result<LoopbackNetwork> {
        let bad = || format!("`{text}` is not a network like 127.2.0.0/24");
        let (first, prefix) = text.split_once('/').with_context(bad)?;
        let (first, prefix): (Ipv4Addr, u32) =
            (first.parse().with_context(bad)?, prefix.parse().with_context(bad)?);
        ensure!((8..=30).contains(&prefix), bad());
        ensure!(
            first.is_loopback(),
            "{text} is not a loopback network, and this cluster listens on loopback only"
        );
        ensure!(first.to_bits() & (u32::MAX >> prefix) == 0, bad());
        Ok(LoopbackNetwork { first, prefix })
    }
}
impl TryFrom<String> for LoopbackNetwork {
    type Error = anyhow::Error;
    fn try_from(text: String) -> Result<LoopbackNetwork> {
        text.parse()
    }
}
impl From<LoopbackNetwork> for String {
    fn from(network: LoopbackNetwork) -> String {
        network.to_string()
    }
}
impl fmt::Display for LoopbackNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.prefix)
    }
}

/// What `nacre up` was asked for; None where nothing was said.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    pub osds: Option<u32>,
    pub mons: Option<u32>,
    pub auth: Option<Auth>,
    pub port_base: Option<u16>,
    pub osd_size: Option<Size>,
    /// Of new OSDs.
    pub preallocate: bool,
    pub cluster_network: Option<LoopbackNetwork>,
    pub memory: Option<Size>,
}

impl Cluster {
    pub fn new(wishes: &Wishes) -> Result<Cluster> {
        let mons = wishes.mons.unwrap_or(MONS_DEFAULT);
        ensure!(mons > 0, "a cluster needs a monitor");
        ensure!(mons <= MONS_MAX, "{mons} monitors are too many, the maximum is {MONS_MAX}");
        let mut cluster = Cluster {
            version: FORMAT_VERSION,
            fsid: Uuid::new_v4(),
            auth: wishes.auth.unwrap_or(Auth::Cephx),
            port_base: wishes.port_base.unwrap_or(PORT_BASE_DEFAULT),
            mons: ('a'..).map(String::from).zip(0..mons as u16).map(|(n, rank)| founder(n, rank)).collect(),
            osds: Vec::new(),
            cluster_network: wishes.cluster_network,
            memory: wishes.memory,
            last_mon: mons.into(),
        };
        cluster.add_osds(wishes.osds.unwrap_or(OSDS_DEFAULT), wishes.osd_size, wishes.preallocate)?;
        Ok(cluster)
    }

    /// Grants what can be changed later, and refuses what cannot.
    pub fn adjust(&mut self, wishes: &Wishes) -> Result<()> {
        if let Some(mons) = wishes.mons {
            let have = self.mons.len();
            ensure!(
                mons as usize >= have,
                "this cluster has {have} monitors: remove one with `ceph mon rm` and `nacre mon forget`"
            );
            for _ in have..mons as usize {
                self.add_mon(None)?;
            }
        }
        if let Some(auth) = wishes.auth {
            ensure!(auth == self.auth, "this cluster was created with --auth {}", self.auth.name());
        }
        if let Some(base) = wishes.port_base {
            let have = self.port_base;
            ensure!(
                base == have,
                "this cluster was created with --port-base {have}, and its clients use these ports"
            );
        }
        // Not that of OSDs: whoever dials them reads their addresses in the map.
        if wishes.cluster_network.is_some() {
            self.cluster_network = wishes.cluster_network;
        }
        self.memory = wishes.memory.or(self.memory);
        let have = self.osds.len() as u32;
        match wishes.osds {
            Some(osds) if osds > have => {
                self.add_osds(osds - have, wishes.osd_size, wishes.preallocate)?;
            }
            Some(osds) if osds < have => {
                bail!("this cluster has {have} OSDs with data: it cannot start with {osds}")
            }
            _ => {
                if let Some(size) = wishes.osd_size
                    && let Some(other) = self.osds.iter().find(|osd| osd.size != size)
                {
                    bail!(
                        "osd.{} has {}: the size of an existing OSD cannot be changed (new OSDs may differ)",
                        other.id,
                        other.size
                    );
                }
                if wishes.preallocate
                    && let Some(other) = self.osds.iter().find(|osd| !osd.preallocated)
                {
                    bail!(
                        "osd.{} was created without --preallocate: the option is for new OSDs only",
                        other.id
                    );
                }
            }
        }
        Ok(())
    }

    /// A monitor that is to join, with a number that none had. One that has this name leaves its place to it.
    pub fn add_mon(&mut self, name: Option<&str>) -> Result<&Monitor> {
        let free = || ('a'..='z').map(String::from).find(|name| self.mon(name).is_none());
        let name = name
            .map(String::from)
            .or_else(free)
            .context("all letters are in use as monitor names: give a name with --id")?;
        let free = (0..MONS_MAX as u16).find(|place| self.mons.iter().all(|mon| mon.place != *place));
        let place = self.mon(&name).map(|mon| mon.place).or(free);
        let place = place.with_context(|| format!("the maximum is {MONS_MAX} monitors"))?;
        self.last_mon = self.mons.iter().map(|mon| mon.id).fold(self.last_mon, u64::max) + 1;
        self.remove_mon(&name);
        self.mons.push(Monitor { name, id: self.last_mon, place, founder: false });
        Ok(self.mons.last().expect("it was added just now"))
    }
    pub fn remove_mon(&mut self, name: &str) {
        self.last_mon = self.mons.iter().map(|mon| mon.id).fold(self.last_mon, u64::max);
        self.mons.retain(|mon| mon.name != name);
    }
    pub fn mon(&self, name: &str) -> Option<&Monitor> {
        self.mons.iter().find(|mon| mon.name == name)
    }

    /// The number that the next OSD gets.
    pub fn next_osd(&self) -> u32 {
        self.osds.iter().map(|osd| osd.id + 1).max().unwrap_or(0)
    }
    /// An OSD with that number. One that has it leaves it.
    pub fn add_osd(&mut self, id: u32, size: Size, preallocated: bool) -> Result<&OsdDisk> {
        self.ensure_fits(id, size)?;
        self.remove_osd(id);
        let at = self.osds.partition_point(|osd| osd.id < id);
        self.osds.insert(at, OsdDisk { id, uuid: Uuid::new_v4(), size, preallocated });
        Ok(&self.osds[at])
    }
    pub fn remove_osd(&mut self, id: u32) {
        self.osds.retain(|osd| osd.id != id);
    }

    fn add_osds(&mut self, count: u32, size: Option<Size>, preallocated: bool) -> Result<()> {
        let first = self.next_osd();
        let size = size.unwrap_or(OSD_SIZE_DEFAULT);
        let last = (first + count).checked_sub(1).context("a cluster needs at least one OSD")?;
        self.ensure_fits(last, size)?;
        for id in first..=last {
            self.add_osd(id, size, preallocated)?;
        }
        Ok(())
    }

    fn ensure_fits(&self, id: u32, size: Size) -> Result<()> {
        ensure!(size.0 >= OSD_SIZE_MIN.0, "an OSD of {size} is too small, the minimum is {OSD_SIZE_MIN}");
        let room = u32::from(u16::MAX - OSD_PORT_OFFSET).saturating_sub(self.port_base.into());
        ensure!(id < room, "there are not enough ports above {}", self.port_base);
        if let Some(network) = self.cluster_network {
            ensure!(network.addr(id).is_some(), "{network} has too few addresses for the OSDs");
        }
        Ok(())
    }

    pub fn daemons(&self) -> Vec<DaemonName> {
        let mons = self.mons.iter().map(|mon| DaemonName::Mon(mon.name.clone()));
        mons.chain(self.osds.iter().map(|osd| DaemonName::Osd(osd.id))).collect()
    }

    pub fn is_preallocated(&self, daemon: &DaemonName) -> bool {
        let DaemonName::Osd(id) = daemon else { return false };
        self.osds.iter().any(|osd| osd.id == *id && osd.preallocated)
    }

    pub fn ensure_has(&self, daemon: &DaemonName) -> Result<()> {
        ensure!(self.daemons().contains(daemon), "this cluster has no {daemon}");
        Ok(())
    }

    fn addr(&self, offset: u16) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port_base + offset))
    }
    pub fn mon_addr(&self, mon: &Monitor) -> SocketAddr {
        self.addr(2 * mon.place)
    }
    /// Where the same process answers as the manager.
    pub fn mgr_addr(&self, mon: &Monitor) -> SocketAddr {
        self.addr(2 * mon.place + 1)
    }
    pub fn osd_addr(&self, id: u32) -> SocketAddr {
        self.addr(OSD_PORT_OFFSET + id as u16)
    }
    /// Where it talks with other OSDs, if that is elsewhere.
    pub fn osd_cluster_addr(&self, id: u32) -> Option<SocketAddr> {
        let ip = self.cluster_network?.addr(id)?;
        Some(SocketAddr::from((ip, self.osd_addr(id).port())))
    }
    /// As clients dial them. A monitor's address has no nonce: it is the same in every life.
    pub fn mon_addrs(&self) -> Vec<EntityAddr> {
        self.mons.iter().map(|mon| EntityAddr::msgr2(self.mon_addr(mon), 0)).collect()
    }

    /// What the monitors of a one-host cluster see otherwise than by default, by Ceph's names.
    pub fn options(&self) -> BTreeMap<String, String> {
        let size = self.osds.len().min(3);
        let min_size = size - size / 2;
        [
            // Copies on different OSDs, since there is only one host.
            ("osd_crush_chooseleaf_type", "0".to_string()),
            ("mon_osd_reporter_subtree_level", "osd".to_string()),
            ("osd_pool_default_size", size.to_string()),
            ("osd_pool_default_min_size", min_size.to_string()),
            // Who tries things out wants to clean up.
            ("mon_allow_pool_delete", "true".to_string()),
        ]
        .map(|(name, value)| (name.to_string(), value))
        .into()
    }

    /// For Ceph's own clients.
    pub fn ceph_conf(&self, layout: &Layout) -> String {
        let auth = self.auth.name();
        // `$name` is the client's own, as `client.admin`.
        let keyring = match self.auth {
            Auth::None => String::new(),
            Auth::Cephx => format!("keyring = {}/ceph.$name.keyring\n", layout.root().display()),
        };
        let hosts: Vec<String> = self.mon_addrs().iter().map(|addr| format!("[{addr}]")).collect();
        format!(
            "# Written by `nacre up`, for Ceph's own clients: export CEPH_CONF=(this file).\n\
             [global]\n\
             fsid = {fsid}\n\
             mon host = {hosts}\n\
             auth cluster required = {auth}\n\
             auth service required = {auth}\n\
             auth client required = {auth}\n\
             {keyring}\
             {networks}\
             # The kernel's client speaks msgr2 only if it is told to.\n\
             rbd default map options = ms_mode=prefer-crc\n",
            networks = self.cluster_network.map(|n| format!("cluster network = {n}\n")).unwrap_or_default(),
            fsid = self.fsid,
            hosts = hosts.join(","),
        )
    }
}

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

    /// Creates what is missing of the folder itself.
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
            serde_json::from_str(&text).with_context(|| format!("cannot understand {}", path.display()))?;
        let (found, path) = (cluster.version, path.display());
        ensure!(
            found <= FORMAT_VERSION,
            "{path} has format version {found}, this program supports up to {FORMAT_VERSION}"
        );
        cluster.version = FORMAT_VERSION;
        Ok(Some(cluster))
    }

    pub fn save(&self, cluster: &Cluster) -> Result<()> {
        let json = serde_json::to_string_pretty(cluster).expect("a cluster has a JSON form");
        replace(&self.root.join("cluster.json"), &(json + "\n"))?;
        replace(&self.ceph_conf(), &cluster.ceph_conf(self))
    }

    pub fn root(&self) -> &Path {
        &self.root
    }
    pub fn ceph_conf(&self) -> PathBuf {
        self.root.join("ceph.conf")
    }
    /// What daemons left behind that ended in a panic.
    pub fn crashes(&self) -> PathBuf {
        self.root.join("crash")
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
        self.root.join(DaemonName::Osd(osd).to_string()).join("keyring")
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
    pub fn store(&self, daemon: &DaemonName) -> PathBuf {
        self.root.join(daemon.to_string()).join("store")
    }
    /// Leads to the device that the store's log is on, if that is another.
    pub fn wal(&self, daemon: &DaemonName) -> PathBuf {
        wal_of(&self.store(daemon))
    }
    pub fn device_report(&self, daemon: &DaemonName) -> PathBuf {
        self.root.join(daemon.to_string()).join("device.json")
    }
    pub fn wal_report(&self, daemon: &DaemonName) -> PathBuf {
        self.root.join(daemon.to_string()).join("wal.json")
    }
    /// What is here of a daemon goes; a device or file elsewhere stays as it is.
    pub fn remove(&self, daemon: &DaemonName) -> Result<()> {
        let folder = self.root.join(daemon.to_string());
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))
    }
}

/// Beside the store.
pub fn wal_of(store: &Path) -> PathBuf {
    store.with_extension("wal")
}

pub fn make_dir(path: &Path) -> Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.with_context(|| format!("cannot create {}", path.display()))
}

/// The file has the old content or the new, whatever happens meanwhile, and only its owner reads it.
pub fn replace(path: &Path, text: &str) -> Result<()> {
    let new = path.with_extension("new");
    let write = || {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        File::open(path.parent().expect("a file is in a folder"))?.sync_all()
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conf_of(cluster: &Cluster) -> String {
        cluster.ceph_conf(&Layout::at(Path::new("/data")).unwrap())
    }

    #[test]
    fn clients_of_a_cluster_that_wants_proof_are_told_where_their_keys_are() {
        let conf = conf_of(&Cluster::new(&Wishes::default()).unwrap());
        for line in ["auth client required = cephx", "keyring = /data/ceph.$name.keyring"] {
            assert!(conf.lines().any(|found| found == line), "{conf}");
        }
        let wishes = Wishes { auth: Some(Auth::None), ..Wishes::default() };
        assert!(!conf_of(&Cluster::new(&wishes).unwrap()).contains("keyring"));
    }

    #[test]
    fn a_folder_keeps_its_cluster_and_clients_get_their_configuration() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::at(&dir.path().join("data")).unwrap();
        assert_eq!(layout.load().unwrap(), None);
        layout.make().unwrap();
        let cluster = Cluster::new(&Wishes { port_base: Some(7000), ..Wishes::default() }).unwrap();
        layout.save(&cluster).unwrap();
        assert_eq!(layout.load().unwrap(), Some(cluster.clone()));
        let conf = fs::read_to_string(layout.ceph_conf()).unwrap();
        assert!(conf.contains("mon host = [v2:127.0.0.1:7000/0]\n"), "{conf}");
        let names: Vec<String> = cluster.daemons().iter().map(DaemonName::to_string).collect();
        assert_eq!(names, ["mon.a", "osd.0", "osd.1", "osd.2"]);
    }

    #[test]
    fn osds_are_added_and_everything_else_stays() {
        let mut cluster = Cluster::new(&Wishes::default()).unwrap();
        let size = Some(Size(2 << 30));
        let more = Wishes { osds: Some(5), osd_size: size, preallocate: true, ..Wishes::default() };
        cluster.adjust(&more).unwrap();
        assert!(cluster.osds.iter().map(|osd| osd.preallocated).eq([false, false, false, true, true]));
        let sizes: Vec<String> = cluster.osds.iter().map(|osd| osd.size.to_string()).collect();
        assert_eq!(sizes, ["10G", "10G", "10G", "2G", "2G"]);
        for refused in [
            Wishes { osds: Some(2), ..Wishes::default() },
            Wishes { mons: Some(0), ..Wishes::default() },
            Wishes { port_base: Some(1), ..Wishes::default() },
            Wishes { auth: Some(Auth::None), ..Wishes::default() },
            Wishes { osd_size: Some(Size(4 << 30)), ..Wishes::default() },
            Wishes { preallocate: true, ..Wishes::default() },
        ] {
            let before = cluster.clone();
            assert!(cluster.adjust(&refused).is_err(), "{refused:?}");
            assert_eq!(cluster, before);
        }
        cluster.adjust(&Wishes { osds: Some(5), mons: Some(1), ..Wishes::default() }).unwrap();
    }

    #[test]
    fn an_osd_is_replaced_or_goes_and_the_next_one_gets_a_new_number() {
        let mut cluster = Cluster::new(&Wishes::default()).unwrap();
        let before = cluster.osds.clone();
        let size = Size(2 << 30);
        cluster.add_osd(1, size, true).unwrap();
        assert_eq!((&cluster.osds[0], &cluster.osds[2]), (&before[0], &before[2]));
        assert!(cluster.osds[1].uuid != before[1].uuid && cluster.osds[1].size == size);
        cluster.remove_osd(1);
        cluster.adjust(&Wishes { osds: Some(3), ..Wishes::default() }).unwrap();
        let ids = |cluster: &Cluster| cluster.osds.iter().map(|osd| osd.id).collect::<Vec<_>>();
        assert_eq!((ids(&cluster), cluster.next_osd()), (vec![0, 2, 3], 4));
        assert!(cluster.add_osd(60_000, size, false).is_err());
    }

    #[test]
    fn clients_are_told_of_every_monitor() {
        let cluster = Cluster::new(&Wishes { mons: Some(3), ..Wishes::default() }).unwrap();
        let hosts = "mon host = [v2:127.0.0.1:20300/0],[v2:127.0.0.1:20302/0],[v2:127.0.0.1:20304/0]\n";
        assert!(conf_of(&cluster).contains(hosts));
        assert!(Cluster::new(&Wishes { mons: Some(10), ..Wishes::default() }).is_err());
    }

    #[test]
    fn monitors_come_and_go_and_no_number_comes_back() {
        let mut cluster = Cluster::new(&Wishes { mons: Some(2), ..Wishes::default() }).unwrap();
        let place = |cluster: &Cluster, name: &str| {
            let mon = cluster.mon(name).unwrap();
            (mon.id, cluster.mon_addr(mon).port(), mon.founder)
        };
        cluster.adjust(&Wishes { mons: Some(3), ..Wishes::default() }).unwrap();
        assert_eq!((place(&cluster, "b"), place(&cluster, "c")), ((2, 20302, true), (3, 20304, false)));
        // In the place of the one that was lost.
        cluster.add_mon(Some("b")).unwrap();
        assert_eq!(place(&cluster, "b"), (4, 20302, false));
        cluster.remove_mon("b");
        let json = serde_json::to_string(&cluster).unwrap();
        let mut cluster: Cluster = serde_json::from_str(&json).unwrap();
        cluster.add_mon(None).unwrap();
        assert_eq!(place(&cluster, "b"), (5, 20302, false));
        (0..6).for_each(|_| assert!(cluster.add_mon(None).is_ok()));
        assert!(cluster.add_mon(None).is_err());
    }

    #[test]
    fn a_folder_of_the_first_version_has_only_founders() {
        let cluster = Cluster::new(&Wishes { mons: Some(2), ..Wishes::default() }).unwrap();
        let mut old = serde_json::to_value(&cluster).unwrap();
        old["version"] = 1.into();
        old["mons"] = serde_json::json!(["a", "b"]);
        old.as_object_mut().unwrap().remove("last_mon");
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::at(dir.path()).unwrap();
        fs::write(dir.path().join("cluster.json"), old.to_string()).unwrap();
        let mut loaded = layout.load().unwrap().unwrap();
        assert_eq!(loaded.mons, cluster.mons);
        assert_eq!(loaded.add_mon(None).unwrap().id, 3);
    }

    #[test]
    fn osds_may_have_a_network_of_their_own_on_loopback() {
        let network = |text: &str| text.parse::<LoopbackNetwork>();
        for bad in ["127.2.0.0", "10.0.0.0/24", "127.2.0.1/24", "127.2.0.0/31", "127.2.0.0/x", "/24"] {
            assert!(network(bad).is_err(), "{bad}");
        }
        let wishes = Wishes { cluster_network: Some(network("127.2.0.0/29").unwrap()), ..Wishes::default() };
        let mut cluster = Cluster::new(&wishes).unwrap();
        assert_eq!(cluster.osd_addr(2).to_string(), "127.0.0.1:20322");
        assert_eq!(cluster.osd_cluster_addr(2).unwrap().to_string(), "127.2.0.3:20322");
        assert!(conf_of(&cluster).contains("\ncluster network = 127.2.0.0/29\n"));
        let json = serde_json::to_string(&cluster).unwrap();
        assert_eq!(serde_json::from_str::<Cluster>(&json).unwrap(), cluster);
        assert!(cluster.adjust(&Wishes { osds: Some(7), ..Wishes::default() }).is_err());
        cluster.adjust(&Wishes { osds: Some(6), ..Wishes::default() }).unwrap();
    }
}
