//! A development cluster in one folder, as `nacre up` makes it: which daemons it has, with which ports and
//! sizes.
//!
//! All of its daemons run on this host, on loopback. `folder` lays it out on the disk and derives the
//! configuration of each daemon, which knows nothing of this.

use crate::Auth;
use crate::config::{Common, DaemonConfig, KindConfig};
use crate::folder::Layout;
use crate::kinds::{MonMember, MonSettings, OsdSettings};
use crate::loopback::LoopbackNetwork;
use crate::name::DaemonName;
use crate::s3::PORT_DEFAULT;
use crate::size::Size;
use anyhow::{Context, Result, bail, ensure};
use nacre_proto::types::EntityAddr;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use uuid::Uuid;

pub const MONS_DEFAULT: u32 = 1;
pub const OSDS_DEFAULT: u32 = 3;
/// Below the ports that the kernel gives to outgoing connections, 32768 to 60999.
pub const PORT_BASE_DEFAULT: u16 = 20_300;
pub const OSD_SIZE_DEFAULT: Size = Size(10 << 30);
/// Sparse. A monitor stores its state and a short log, which do not grow with the cluster's age.
pub const MON_SIZE: Size = Size(4 << 30);
/// A smaller store has no space for its own log.
const OSD_SIZE_MIN: Size = Size(1 << 30);
/// Ports of OSDs begin this far above the base, one each. Monitors have two each below.
const OSD_PORT_OFFSET: u16 = 20;
/// The S3 gateway's port, where the base is not the default.
const S3_PORT_OFFSET: u16 = 80;
/// Above it are the ports at which monitors serve metrics, one each.
const METRICS_PORT_OFFSET: u16 = 83;
/// The first OSD whose port is beyond those.
const OSD_BEYOND_METRICS: u32 = (S3_PORT_OFFSET - OSD_PORT_OFFSET) as u32;
/// Ports that OSDs leave out.
const OTHER_PORTS: u16 = METRICS_PORT_OFFSET - S3_PORT_OFFSET + MONS_MAX as u16;
/// As many as have ports.
const MONS_MAX: u32 = 9;
pub const FORMAT_VERSION: u32 = 2;
/// In the cluster's folder, as daemons see it from their data directories.
const ADMIN_KEYRING: &str = "../ceph.client.admin.keyring";

/// A cluster in a folder, as `cluster.json` keeps it. Only the set of daemons and their memory change later.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Cluster {
    pub version: u32,
    pub fsid: Uuid,
    pub auth: Auth,
    pub port_base: u16,
    #[serde(deserialize_with = "monitors")]
    pub mons: Vec<Monitor>,
    pub osds: Vec<OsdDisk>,
    /// Where OSDs talk among themselves, if not where clients reach them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_network: Option<LoopbackNetwork>,
    /// Bytes of memory for each OSD, if not the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Size>,
    /// The port of its S3 gateway, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s3_port: Option<u16>,
    /// With what the S3 gateway encrypts connections, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s3_tls: Option<S3Tls>,
    /// The highest number that any monitor had.
    #[serde(default)]
    last_mon: u64,
}

/// Files of the S3 gateway, with absolute paths.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct S3Tls {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Monitor {
    pub name: String,
    /// Its number among the monitors, which is never used again. A founder's is its rank and one.
    pub id: u64,
    /// Which pair of the monitors' ports it has.
    place: u16,
    /// The cluster began with it. Others join.
    pub founder: bool,
}

/// In version 1 there were only founders, and the list had their names.
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
    /// The file has all its space, and keeps it. Otherwise it is sparse.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub preallocated: bool,
}

/// What the command line of `nacre up` asks for; None where it says nothing.
#[derive(Clone, Debug, Default)]
pub struct Requested {
    pub osds: Option<u32>,
    pub mons: Option<u32>,
    pub auth: Option<Auth>,
    pub port_base: Option<u16>,
    pub osd_size: Option<Size>,
    /// For new OSDs.
    pub preallocate: bool,
    pub cluster_network: Option<LoopbackNetwork>,
    pub memory: Option<Size>,
    /// Whether it has an S3 gateway. A new cluster does by default.
    pub s3: Option<bool>,
    /// With what it encrypts connections. Some none: it does not any more.
    pub s3_tls: Option<Option<S3Tls>>,
}

impl Cluster {
    pub fn new(requested: &Requested) -> Result<Cluster> {
        let mons = requested.mons.unwrap_or(MONS_DEFAULT);
        ensure!(mons > 0, "a cluster needs a monitor");
        ensure!(mons <= MONS_MAX, "{mons} monitors are too many, the maximum is {MONS_MAX}");
        let mut cluster = Cluster {
            version: FORMAT_VERSION,
            fsid: Uuid::new_v4(),
            auth: requested.auth.unwrap_or(Auth::Cephx),
            port_base: requested.port_base.unwrap_or(PORT_BASE_DEFAULT),
            mons: ('a'..).map(String::from).zip(0..mons as u16).map(|(n, rank)| founder(n, rank)).collect(),
            osds: Vec::new(),
            cluster_network: requested.cluster_network,
            memory: requested.memory,
            s3_port: None,
            s3_tls: requested.s3_tls.clone().flatten(),
            last_mon: mons.into(),
        };
        cluster.add_osds(
            requested.osds.unwrap_or(OSDS_DEFAULT),
            requested.osd_size,
            requested.preallocate,
        )?;
        cluster.set_s3(requested.s3.unwrap_or(true));
        Ok(cluster)
    }

    fn set_s3(&mut self, wanted: bool) {
        let port = match self.port_base {
            PORT_BASE_DEFAULT => PORT_DEFAULT,
            base => base.saturating_add(S3_PORT_OFFSET),
        };
        self.s3_port = wanted.then_some(port);
    }
    /// Where the S3 gateway listens, if there is one.
    pub fn s3_addr(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.s3_port.unwrap_or(PORT_DEFAULT)))
    }

    /// The URL of the S3 gateway.
    pub fn s3_url(&self) -> String {
        let scheme = if self.s3_tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.s3_addr())
    }

    /// Changes what can be changed later, and refuses what cannot.
    pub fn adjust(&mut self, requested: &Requested) -> Result<()> {
        if let Some(mons) = requested.mons {
            let have = self.mons.len();
            ensure!(
                mons as usize >= have,
                "this cluster has {have} monitors: remove one with `ceph mon rm` and `nacre mon forget`"
            );
            for _ in have..mons as usize {
                self.add_mon(None)?;
            }
        }
        if let Some(auth) = requested.auth {
            ensure!(auth == self.auth, "this cluster was created with --auth {}", self.auth.name());
        }
        if let Some(base) = requested.port_base {
            let have = self.port_base;
            ensure!(
                base == have,
                "this cluster was created with --port-base {have}, and its clients use these ports"
            );
        }
        // OSDs may move to other addresses: peers and clients find them in the OSD map.
        if requested.cluster_network.is_some() {
            self.cluster_network = requested.cluster_network;
        }
        self.memory = requested.memory.or(self.memory);
        if let Some(wanted) = requested.s3 {
            self.set_s3(wanted);
        }
        if let Some(tls) = &requested.s3_tls {
            self.s3_tls.clone_from(tls);
        }
        let have = self.osds.len() as u32;
        match requested.osds {
            Some(osds) if osds > have => {
                self.add_osds(osds - have, requested.osd_size, requested.preallocate)?;
            }
            Some(osds) if osds < have => {
                bail!("this cluster has {have} OSDs with data: it cannot start with {osds}")
            }
            _ => {
                if let Some(size) = requested.osd_size
                    && let Some(other) = self.osds.iter().find(|osd| osd.size != size)
                {
                    bail!(
                        "osd.{} has {}: the size of an existing OSD cannot be changed (new OSDs may differ)",
                        other.id,
                        other.size
                    );
                }
                if requested.preallocate
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

    /// Adds a monitor that is to join, with a new number. It replaces one of the same name, and takes its
    /// ports.
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
        let added = self.mons.len();
        self.mons.push(Monitor { name, id: self.last_mon, place, founder: false });
        Ok(&self.mons[added])
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
    /// Adds an OSD with this number, in place of one that has it.
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
        let ports =
            u32::from(u16::MAX - OSD_PORT_OFFSET).saturating_sub(u32::from(self.port_base) + MONS_MAX);
        ensure!(id < ports, "there are not enough ports above {}", self.port_base);
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
    /// The first and the last port that its daemons use.
    pub fn ports(&self) -> (u16, u16) {
        let osds = self.osds.iter().map(|osd| self.osd_addr(osd.id).port());
        let metrics = self.mons.iter().map(|mon| self.metrics_port(mon));
        (self.port_base, osds.chain(metrics).fold(self.port_base + OSD_PORT_OFFSET - 1, u16::max))
    }
    pub fn mon_addr(&self, mon: &Monitor) -> SocketAddr {
        self.addr(2 * mon.place)
    }
    /// Where the same process answers as the manager.
    pub fn mgr_addr(&self, mon: &Monitor) -> SocketAddr {
        self.addr(2 * mon.place + 1)
    }
    /// Where it serves metrics; 0, and nowhere, if there is no such port.
    fn metrics_port(&self, mon: &Monitor) -> u16 {
        self.port_base.checked_add(METRICS_PORT_OFFSET + mon.place).unwrap_or(0)
    }
    pub fn osd_addr(&self, id: u32) -> SocketAddr {
        let skipped = if id >= OSD_BEYOND_METRICS { OTHER_PORTS } else { 0 };
        self.addr(OSD_PORT_OFFSET + id as u16 + skipped)
    }
    /// Where it talks with other OSDs, if that is another address.
    pub fn osd_cluster_addr(&self, id: u32) -> Option<SocketAddr> {
        let ip = self.cluster_network?.addr(id)?;
        Some(SocketAddr::from((ip, self.osd_addr(id).port())))
    }
    pub fn mon_socket_addrs(&self) -> Vec<SocketAddr> {
        self.mons.iter().map(|mon| self.mon_addr(mon)).collect()
    }
    /// As clients dial them. A monitor's address has no nonce: it is the same in every incarnation.
    pub fn mon_addrs(&self) -> Vec<EntityAddr> {
        self.mon_socket_addrs().into_iter().map(|addr| EntityAddr::msgr2(addr, 0)).collect()
    }

    /// What the configuration of one of its daemons says of its kind.
    pub fn settings(&self, daemon: &DaemonName) -> Result<KindConfig> {
        match daemon {
            DaemonName::Mon(name) => {
                let mon = self.mon(name).with_context(|| format!("this cluster has no {daemon}"))?;
                let member = |mon: &Monitor| MonMember {
                    name: mon.name.clone(),
                    id: mon.id,
                    addr: self.mon_addr(mon),
                    founder: mon.founder,
                };
                let metrics_port =
                    ("mgr/prometheus/server_port".to_string(), self.metrics_port(mon).to_string());
                let osd_keyrings = self.osds.iter().map(|osd| format!("../osd.{}/keyring", osd.id).into());
                Ok(KindConfig::Mon(MonSettings {
                    name: name.clone(),
                    mgr_addr: self.mgr_addr(mon),
                    members: self.mons.iter().map(member).collect(),
                    initial_keyrings: [ADMIN_KEYRING.into()].into_iter().chain(osd_keyrings).collect(),
                    options: self.options().into_iter().chain([metrics_port]).collect(),
                    ceph_conf: "../ceph.conf".into(),
                }))
            }
            DaemonName::Osd(id) => {
                let osd = self.osds.iter().find(|osd| osd.id == *id);
                let osd = osd.with_context(|| format!("this cluster has no {daemon}"))?;
                Ok(KindConfig::Osd(OsdSettings {
                    id: *id,
                    uuid: osd.uuid,
                    public_addr: self.osd_addr(*id),
                    cluster_addr: self.osd_cluster_addr(*id),
                    memory: self.memory,
                    device_class: None,
                    preallocated: osd.preallocated,
                }))
            }
        }
    }

    /// The same, with what daemons of all kinds need; `data` is the daemon's data directory, in the cluster's
    /// folder.
    pub fn config(&self, data: PathBuf, daemon: &DaemonName) -> Result<DaemonConfig> {
        let kind = self.settings(daemon)?;
        let keyring = if daemon.is_mon() { "../mon.keyring" } else { "keyring" };
        let common = Common {
            data,
            fsid: self.fsid,
            auth: self.auth,
            host: None,
            mons: self.mon_socket_addrs(),
            keyring: keyring.into(),
            admin_keyring: (self.auth == Auth::Cephx).then(|| ADMIN_KEYRING.into()),
            run_dir: "../run".into(),
            crash_dir: "../crash".into(),
        };
        Ok(DaemonConfig::new(common, kind))
    }

    /// Options whose defaults differ in a cluster on one host, by Ceph's names.
    pub fn options(&self) -> BTreeMap<String, String> {
        let size = self.osds.len().min(3);
        let min_size = size - size / 2;
        [
            // Copies go to different OSDs, since there is only one host.
            ("osd_crush_chooseleaf_type", "0".to_string()),
            ("osd_pool_default_size", size.to_string()),
            ("osd_pool_default_min_size", min_size.to_string()),
            // A test cluster is cleaned up often.
            ("mon_allow_pool_delete", "true".to_string()),
        ]
        .map(|(name, value)| (name.to_string(), value))
        .into()
    }

    /// The configuration for Ceph's own clients.
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
             rbd default map options = ms_mode=prefer-crc\n\
             \n\
             # For `ceph daemon`. Clients have no admin sockets unless they are given some.\n\
             [mon]\n\
             admin socket = {run}/$cluster-$name.asok\n\
             [osd]\n\
             admin socket = {run}/$cluster-$name.asok\n",
            run = layout.run().display(),
            networks = self.cluster_network.map(|n| format!("cluster network = {n}\n")).unwrap_or_default(),
            fsid = self.fsid,
            hosts = hosts.join(","),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    fn conf_of(cluster: &Cluster) -> String {
        cluster.ceph_conf(&Layout::at(Path::new("/data")).unwrap())
    }

    #[test]
    fn client_configuration_of_a_cephx_cluster_names_keyrings() {
        let conf = conf_of(&Cluster::new(&Requested::default()).unwrap());
        for line in ["auth client required = cephx", "keyring = /data/ceph.$name.keyring"] {
            assert!(conf.lines().any(|found| found == line), "{conf}");
        }
        let requested = Requested { auth: Some(Auth::None), ..Requested::default() };
        assert!(!conf_of(&Cluster::new(&requested).unwrap()).contains("keyring"));
    }

    #[test]
    fn cluster_is_read_back_from_its_folder() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::at(&dir.path().join("data")).unwrap();
        assert_eq!(layout.load().unwrap(), None);
        layout.make().unwrap();
        let cluster = Cluster::new(&Requested { port_base: Some(7000), ..Requested::default() }).unwrap();
        layout.save(&cluster).unwrap();
        assert_eq!(layout.load().unwrap(), Some(cluster.clone()));
        let conf = fs::read_to_string(layout.ceph_conf()).unwrap();
        assert!(conf.contains("mon host = [v2:127.0.0.1:7000/0]\n"), "{conf}");
        let names: Vec<String> = cluster.daemons().iter().map(DaemonName::to_string).collect();
        assert_eq!(names, ["mon.a", "osd.0", "osd.1", "osd.2"]);
    }

    #[test]
    fn monitors_serve_metrics_at_ports_that_no_osd_has() {
        let requested =
            Requested { mons: Some(3), osds: Some(80), port_base: Some(7000), ..Requested::default() };
        let cluster = Cluster::new(&requested).unwrap();
        let metrics = cluster.mons.iter().map(|mon| cluster.metrics_port(mon));
        let metrics: Vec<u16> = metrics.collect();
        assert_eq!(metrics, [7083, 7084, 7085]);
        let osds: Vec<u16> = cluster.osds.iter().map(|osd| cluster.osd_addr(osd.id).port()).collect();
        assert_eq!((osds[0], osds[59], osds[60], osds[79]), (7020, 7079, 7092, 7111));
        assert_eq!(cluster.ports(), (7000, 7111));
        assert_eq!(cluster.s3_port, Some(7080));
        let KindConfig::Mon(settings) = cluster.settings(&DaemonName::Mon("b".into())).unwrap() else {
            panic!()
        };
        assert_eq!(settings.options["mgr/prometheus/server_port"], "7084");
        let high = Requested { port_base: Some(65_480), ..Requested::default() };
        let high = Cluster::new(&high).unwrap();
        assert_eq!(high.metrics_port(&high.mons[0]), 0);
    }

    #[test]
    fn only_osds_can_be_added_later() {
        let mut cluster = Cluster::new(&Requested::default()).unwrap();
        let size = Some(Size(2 << 30));
        let more = Requested { osds: Some(5), osd_size: size, preallocate: true, ..Requested::default() };
        cluster.adjust(&more).unwrap();
        assert!(cluster.osds.iter().map(|osd| osd.preallocated).eq([false, false, false, true, true]));
        let sizes: Vec<String> = cluster.osds.iter().map(|osd| osd.size.to_string()).collect();
        assert_eq!(sizes, ["10G", "10G", "10G", "2G", "2G"]);
        for refused in [
            Requested { osds: Some(2), ..Requested::default() },
            Requested { mons: Some(0), ..Requested::default() },
            Requested { port_base: Some(1), ..Requested::default() },
            Requested { auth: Some(Auth::None), ..Requested::default() },
            Requested { osd_size: Some(Size(4 << 30)), ..Requested::default() },
            Requested { preallocate: true, ..Requested::default() },
        ] {
            let before = cluster.clone();
            assert!(cluster.adjust(&refused).is_err(), "{refused:?}");
            assert_eq!(cluster, before);
        }
        cluster.adjust(&Requested { osds: Some(5), mons: Some(1), ..Requested::default() }).unwrap();
    }

    #[test]
    fn osd_numbers_are_not_used_again() {
        let mut cluster = Cluster::new(&Requested::default()).unwrap();
        let before = cluster.osds.clone();
        let size = Size(2 << 30);
        cluster.add_osd(1, size, true).unwrap();
        assert_eq!((&cluster.osds[0], &cluster.osds[2]), (&before[0], &before[2]));
        assert!(cluster.osds[1].uuid != before[1].uuid && cluster.osds[1].size == size);
        cluster.remove_osd(1);
        cluster.adjust(&Requested { osds: Some(3), ..Requested::default() }).unwrap();
        let ids = |cluster: &Cluster| cluster.osds.iter().map(|osd| osd.id).collect::<Vec<_>>();
        assert_eq!((ids(&cluster), cluster.next_osd()), (vec![0, 2, 3], 4));
        assert!(cluster.add_osd(60_000, size, false).is_err());
    }

    #[test]
    fn client_configuration_names_every_monitor() {
        let cluster = Cluster::new(&Requested { mons: Some(3), ..Requested::default() }).unwrap();
        let hosts = "mon host = [v2:127.0.0.1:20300/0],[v2:127.0.0.1:20302/0],[v2:127.0.0.1:20304/0]\n";
        assert!(conf_of(&cluster).contains(hosts));
        assert!(Cluster::new(&Requested { mons: Some(10), ..Requested::default() }).is_err());
    }

    #[test]
    fn monitor_numbers_are_not_used_again() {
        let mut cluster = Cluster::new(&Requested { mons: Some(2), ..Requested::default() }).unwrap();
        let place = |cluster: &Cluster, name: &str| {
            let mon = cluster.mon(name).unwrap();
            (mon.id, cluster.mon_addr(mon).port(), mon.founder)
        };
        cluster.adjust(&Requested { mons: Some(3), ..Requested::default() }).unwrap();
        assert_eq!((place(&cluster, "b"), place(&cluster, "c")), ((2, 20302, true), (3, 20304, false)));
        // In place of the lost one.
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
    fn monitors_of_a_folder_of_version_1_are_founders() {
        let cluster = Cluster::new(&Requested { mons: Some(2), ..Requested::default() }).unwrap();
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
    fn osds_have_a_cluster_network_on_loopback() {
        let network = |text: &str| text.parse::<LoopbackNetwork>();
        for bad in ["127.2.0.0", "10.0.0.0/24", "127.2.0.1/24", "127.2.0.0/31", "127.2.0.0/x", "/24"] {
            assert!(network(bad).is_err(), "{bad}");
        }
        let requested =
            Requested { cluster_network: Some(network("127.2.0.0/29").unwrap()), ..Requested::default() };
        let mut cluster = Cluster::new(&requested).unwrap();
        assert_eq!(cluster.osd_addr(2).to_string(), "127.0.0.1:20322");
        assert_eq!(cluster.osd_cluster_addr(2).unwrap().to_string(), "127.2.0.3:20322");
        assert!(conf_of(&cluster).contains("\ncluster network = 127.2.0.0/29\n"));
        let json = serde_json::to_string(&cluster).unwrap();
        assert_eq!(serde_json::from_str::<Cluster>(&json).unwrap(), cluster);
        assert!(cluster.adjust(&Requested { osds: Some(7), ..Requested::default() }).is_err());
        cluster.adjust(&Requested { osds: Some(6), ..Requested::default() }).unwrap();
    }

    /// A folder of an earlier version has no daemon.json: the configurations come from cluster.json.
    #[test]
    fn daemons_of_an_older_folder_get_their_configuration() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::at(dir.path()).unwrap();
        let network = Some("127.2.0.0/24".parse().unwrap());
        let cluster =
            Cluster::new(&Requested { mons: Some(3), cluster_network: network, ..Requested::default() })
                .unwrap();
        fs::write(dir.path().join("cluster.json"), serde_json::to_string(&cluster).unwrap()).unwrap();
        let (osd, mon) = (DaemonName::Osd(2), DaemonName::Mon("b".to_string()));
        let derived = |name: &DaemonName| layout.config(&layout.load().unwrap().unwrap(), name).unwrap();
        let KindConfig::Osd(settings) = derived(&osd).kind else { panic!("an OSD's settings") };
        assert_eq!(settings.uuid, cluster.osds[2].uuid);
        assert_eq!(settings.public_addr.to_string(), "127.0.0.1:20322");
        assert_eq!(settings.cluster_addr.unwrap().to_string(), "127.2.0.3:20322");
        let KindConfig::Mon(settings) = derived(&mon).kind else { panic!("a monitor's settings") };
        assert_eq!((settings.members.len(), settings.mgr_addr.port()), (3, 20303));
        assert!(layout.config(&cluster, &DaemonName::Osd(3)).is_err());

        layout.save(&cluster).unwrap();
        for name in [osd, mon] {
            let saved = DaemonConfig::load(&layout.data_dir(&name)).unwrap();
            assert_eq!(saved, derived(&name));
            assert_eq!(saved.common.run_dir(), layout.run());
            assert_eq!(saved.common.crash_dir(), dir.path().join("crash"));
        }
        let common = derived(&DaemonName::Mon("a".to_string())).common;
        assert_eq!(common.path(&common.keyring), layout.mon_keyring());
        assert_eq!(common.path(common.admin_keyring.as_ref().unwrap()), layout.admin_keyring());
    }
}
