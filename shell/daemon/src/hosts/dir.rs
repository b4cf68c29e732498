//! What a host keeps, all in one folder.
//!
//! ```text
//! DIR/host.json                     the host, as `HostConfig`
//! DIR/host.keyring                  the key of its agent
//! DIR/NAME/...                      data directories of its daemons, each with a daemon.json
//! DIR/NAME/stopped                  the daemon was stopped by hand, and stays stopped
//! DIR/maintenance                   all daemons are stopped, since the host is in maintenance
//! DIR/left                          the host has left its cluster
//! DIR/mon.keyring                   the key that all monitors share, on hosts with a monitor
//! DIR/bootstrap.keyring             Ceph's bootstrap keys, on the first host
//! DIR/ceph.conf                     for Ceph's own clients
//! DIR/ceph.client.admin.keyring     on hosts with a monitor
//! DIR/run, DIR/log, DIR/crash, DIR/lock   as in a development cluster (`folder`)
//! ```

use crate::Auth;
use crate::ask::Access;
use crate::config::{Common, DaemonConfig};
use crate::device::Report;
use crate::files::replace;
use crate::folder::Layout;
use crate::hosts::judge::Class;
use crate::keyrings;
use crate::name::DaemonName;
use crate::processes::{LockFile, lock_folder};
use crate::size::Size;
use anyhow::{Context, Result, bail, ensure};
use nacre_proto::types::{AuthName, EntityAddr, EntityType};
use serde::{Deserialize, Serialize};
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// Where a host keeps everything unless told otherwise.
pub const DATA_DEFAULT: &str = "/var/lib/nacre";
/// Where Ceph's clients look.
const SYSTEM_CONF: &str = "/etc/ceph";
const FORMAT_VERSION: u32 = 1;

/// A host, as `host.json` has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostConfig {
    version: u32,
    pub fsid: Uuid,
    pub name: String,
    /// Chosen before the host first asks to be admitted: the monitors know it again by this.
    pub uuid: Uuid,
    /// Where its monitor listens, if it has one. Its other daemons have the same IP address.
    pub addr: SocketAddr,
    /// Where its OSDs talk with other OSDs, if not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_addr: Option<IpAddr>,
    /// The networks of the cluster.
    pub networks: Networks,
    /// All monitors.
    pub mons: Vec<SocketAddr>,
    /// Its place, such as `rack=r1`.
    #[serde(default)]
    pub location: Vec<String>,
    /// Bytes of memory of each OSD, if not the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Size>,
    /// The devices that were accepted.
    pub devices: Vec<PlannedOsd>,
    /// Where the logs of these OSDs were to go, as the setup command was told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wal_devices: Vec<PathBuf>,
    /// Systemd runs the agent.
    #[serde(default)]
    pub systemd: bool,
    /// The cluster began with this host.
    #[serde(default)]
    pub founder: bool,
    /// How far its setup is.
    pub setup: Setup,
}

/// Networks by CIDR; more than one are separated by commas.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Networks {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
}

/// How far the setup of a host is. It goes on from there when the same command runs again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Setup {
    /// By `nacre init`.
    Founding,
    /// By `nacre join`; the monitors may not know the host yet.
    Joining,
    /// The monitors know the host.
    Registered,
    Done,
}

/// A device that is to be an OSD, or is one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedOsd {
    pub path: PathBuf,
    /// The device of its log, if that is another. A file named `nacre-UUID.wal` is made with the OSD.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wal: Option<PathBuf>,
    /// Bytes of that log, of a device that may be larger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wal_len: Option<Size>,
    /// Its device class, if it was judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<Class>,
    /// What was measured, until that is in the OSD's data directory.
    #[serde(default, skip_serializing_if = "Measurements::is_empty")]
    pub measured: Measurements,
    /// Of the OSD.
    pub uuid: Uuid,
    /// Its number, once the monitors gave it one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u32>,
    /// Its key, from before the monitors were told it until it is in the OSD's data directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    pub state: DeviceState,
}

/// The measurements of an OSD's devices.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measurements {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<Report>,
    /// Of the device of its log, if that is another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wal: Option<Report>,
}

impl Measurements {
    fn is_empty(&self) -> bool {
        self.device.is_none() && self.wal.is_none()
    }
}

/// Whether a device may be formatted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceState {
    /// It was accepted, and must be blank.
    Accepted,
    /// It was blank, and is being formatted: what is on it now is from that.
    Formatting,
    /// It holds an OSD, and is never formatted again.
    Formatted,
}

impl HostConfig {
    pub fn new(fsid: Uuid, name: String, addr: SocketAddr, setup: Setup) -> HostConfig {
        HostConfig {
            version: FORMAT_VERSION,
            fsid,
            name,
            uuid: Uuid::new_v4(),
            addr,
            cluster_addr: None,
            networks: Networks::default(),
            mons: Vec::new(),
            location: Vec::new(),
            memory: None,
            devices: Vec::new(),
            wal_devices: Vec::new(),
            systemd: false,
            founder: setup == Setup::Founding,
            setup,
        }
    }

    /// What the configuration of a daemon of this host has in common with others.
    pub fn common(&self, data: PathBuf, daemon: &DaemonName) -> Common {
        let keyring = if daemon.is_mon() { "../mon.keyring" } else { "keyring" };
        Common {
            data,
            fsid: self.fsid,
            auth: Auth::Cephx,
            host: Some(self.name.clone()),
            mons: self.mons.clone(),
            keyring: keyring.into(),
            admin_keyring: daemon.is_mon().then(|| "../ceph.client.admin.keyring".into()),
            run_dir: "../run".into(),
            crash_dir: "../crash".into(),
        }
    }

    pub fn mon_addrs(&self) -> Vec<EntityAddr> {
        self.mons.iter().map(|addr| EntityAddr::msgr2(*addr, 0)).collect()
    }

    /// The entity of the host's agent.
    pub fn agent(&self) -> AuthName {
        AuthName::new(EntityType::Client, format!("host.{}", self.name))
    }

    /// The configuration for Ceph's own clients; `keyrings` is where keyrings are, if clients do not look
    /// there by themselves, `run` where daemons have their admin sockets.
    fn ceph_conf(&self, run: &Path, keyrings: Option<&Path>) -> String {
        let hosts: Vec<String> = self.mon_addrs().iter().map(|addr| format!("[{addr}]")).collect();
        let line = |name: &str, value: Option<String>| value.map(|value| format!("{name} = {value}\n"));
        let optional = [
            line("public network", self.networks.public.clone()),
            line("cluster network", self.networks.cluster.clone()),
            line("keyring", keyrings.map(|folder| format!("{}/ceph.$name.keyring", folder.display()))),
        ];
        format!(
            "# Written by Nacre, for Ceph's own clients. It follows changes of the monitors.\n\
             [global]\n\
             fsid = {fsid}\n\
             mon host = {hosts}\n\
             auth cluster required = cephx\n\
             auth service required = cephx\n\
             auth client required = cephx\n\
             {optional}\
             # The kernel's client speaks msgr2 only if it is told to.\n\
             rbd default map options = ms_mode=prefer-crc\n\
             \n\
             # For `ceph daemon`. Clients have no admin sockets unless they are given some.\n\
             [mon]\n\
             admin socket = {run}/$cluster-$name.asok\n\
             [osd]\n\
             admin socket = {run}/$cluster-$name.asok\n",
            run = run.display(),
            fsid = self.fsid,
            hosts = hosts.join(","),
            optional = optional.into_iter().flatten().collect::<String>(),
        )
    }
}

/// A host's folder.
#[derive(Clone, Debug)]
pub struct HostDir {
    layout: Layout,
}

impl HostDir {
    /// A folder that may not exist yet.
    pub fn at(data: &Path) -> Result<HostDir> {
        Ok(HostDir { layout: Layout::at(data)? })
    }

    /// The folder of a host.
    pub fn open(data: &Path) -> Result<(HostDir, HostConfig)> {
        let dir = HostDir::at(data)?;
        match dir.load()? {
            Some(config) => Ok((dir, config)),
            None => bail!(
                "there is no host in {}: `nacre init` begins a cluster, `nacre join` adds this host to one, and --data \
                 names another folder",
                data.display()
            ),
        }
    }

    /// Creates the directories that are missing.
    pub fn make(&self) -> Result<()> {
        self.layout.make()
    }

    /// Whether the folder, which is not a host's yet, has anything else than what the first step of a setup
    /// makes.
    pub fn has_other_content(&self) -> bool {
        let is_other =
            |name: String| !["run", "log", "lock", "devices", "host.json.tmp"].contains(&name.as_str());
        let mut entries = fs::read_dir(self.root()).into_iter().flatten().flatten();
        entries.any(|entry| is_other(entry.file_name().to_string_lossy().into_owned()))
    }

    /// Locks the folder against other commands that change the host.
    pub fn lock(&self) -> Result<LockFile> {
        lock_folder(&self.layout)
    }

    /// The same. None while another command works on the host.
    pub fn try_lock(&self) -> Result<Option<LockFile>> {
        LockFile::take(self.layout.lock())
    }

    pub fn load(&self) -> Result<Option<HostConfig>> {
        let path = self.root().join("host.json");
        let text = match fs::read_to_string(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            text => text.with_context(|| format!("cannot read {}", path.display()))?,
        };
        let config: HostConfig =
            serde_json::from_str(&text).with_context(|| format!("cannot parse {}", path.display()))?;
        let (found, path) = (config.version, path.display());
        ensure!(
            found <= FORMAT_VERSION,
            "{path} has format version {found}, and this program supports {FORMAT_VERSION}"
        );
        Ok(Some(HostConfig { version: FORMAT_VERSION, ..config }))
    }

    pub fn save(&self, config: &HostConfig) -> Result<()> {
        let json = serde_json::to_string_pretty(config).context("cannot write a host as JSON")?;
        replace(&self.root().join("host.json"), &(json + "\n"))
    }

    /// Writes the configuration for Ceph's clients, here and, for the host of this system, where they look.
    pub fn save_client_conf(&self, config: &HostConfig) -> Result<()> {
        replace(&self.layout.ceph_conf(), config.ceph_conf(&self.layout.run(), Some(self.root())))?;
        if !self.is_default() {
            return Ok(());
        }
        let system = Path::new(SYSTEM_CONF);
        fs::create_dir_all(system).with_context(|| format!("cannot create {SYSTEM_CONF}"))?;
        let conf = system.join("ceph.conf");
        replace(&conf, config.ceph_conf(&self.layout.run(), None))?;
        // It has no secrets, and users other than root read it.
        let readable = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        fs::set_permissions(&conf, readable).with_context(|| format!("cannot change {}", conf.display()))?;
        if let Ok(text) = fs::read_to_string(self.layout.admin_keyring()) {
            replace(&system.join("ceph.client.admin.keyring"), &text)?;
        }
        Ok(())
    }

    /// The `ceph.conf` that people are told to use.
    pub fn client_conf(&self) -> PathBuf {
        if self.is_default() { Path::new(SYSTEM_CONF).join("ceph.conf") } else { self.layout.ceph_conf() }
    }
    pub fn client_keyring(&self) -> PathBuf {
        match self.is_default() {
            true => Path::new(SYSTEM_CONF).join("ceph.client.admin.keyring"),
            false => self.layout.admin_keyring(),
        }
    }

    /// Whether it is the host that this system is, rather than one of several on it.
    pub fn is_default(&self) -> bool {
        self.root() == Path::new(DATA_DEFAULT)
    }
    /// What a command line says to mean this folder.
    pub fn option(&self) -> String {
        if self.is_default() { String::new() } else { format!(" --data {}", self.root().display()) }
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }
    pub fn root(&self) -> &Path {
        self.layout.root()
    }
    pub fn host_keyring(&self) -> PathBuf {
        self.root().join("host.keyring")
    }
    pub fn bootstrap_keyring(&self) -> PathBuf {
        self.root().join("bootstrap.keyring")
    }
    /// What is in it counts as a device of this host: files, and links to devices.
    pub fn devices(&self) -> PathBuf {
        self.root().join("devices")
    }
    /// It exists while the daemon is to stay stopped.
    pub fn stopped(&self, daemon: &DaemonName) -> PathBuf {
        self.layout.data_dir(daemon).join("stopped")
    }

    /// It exists while all daemons are to be stopped, since the monitors said so.
    pub fn in_maintenance(&self) -> PathBuf {
        self.root().join("maintenance")
    }

    /// The daemons of this host: those with a configuration, monitors first.
    pub fn daemons(&self) -> Result<Vec<DaemonName>> {
        let mut found = Vec::new();
        for entry in
            fs::read_dir(self.root()).with_context(|| format!("cannot list {}", self.root().display()))?
        {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().parse::<DaemonName>();
            found.extend(name.ok().filter(|_| entry.path().join("daemon.json").exists()));
        }
        found.sort_by_key(|name| (!name.is_mon(), name.to_string()));
        Ok(found)
    }

    /// How to reach the cluster as `client.admin`.
    pub fn admin_access(&self, config: &HostConfig) -> Result<Access> {
        let path = self.layout.admin_keyring();
        let key = keyrings::key(Auth::Cephx, &path, &keyrings::admin()).context(
            "this host has no key of client.admin: run the command on a host with a monitor, or copy the keyring from \
             there",
        )?;
        Ok(Access { name: keyrings::admin(), mons: config.mon_addrs(), key })
    }

    /// How to reach the cluster as the agent of this host.
    pub fn agent_access(&self, config: &HostConfig) -> Result<Access> {
        let name = config.agent();
        let key = keyrings::key(Auth::Cephx, &self.host_keyring(), &name)?;
        Ok(Access { name, mons: config.mon_addrs(), key })
    }

    /// The monitors have changed: everything that names them says so.
    pub fn follow_monitors(&self, config: &mut HostConfig, mons: Vec<SocketAddr>) -> Result<()> {
        config.mons = mons;
        for daemon in self.daemons()? {
            let mut of_daemon = DaemonConfig::load(&self.layout.data_dir(&daemon))?;
            of_daemon.common.mons.clone_from(&config.mons);
            of_daemon.save()?;
        }
        self.save_client_conf(config)?;
        self.save(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> HostConfig {
        let addr = "10.0.0.1:3300".parse().unwrap();
        let mut config = HostConfig::new(Uuid::from_u128(7), "h1".to_string(), addr, Setup::Founding);
        config.mons = vec![addr, "[fd00::2]:3300".parse().unwrap()];
        config.networks.public = Some("10.0.0.0/24".to_string());
        config.devices = vec![PlannedOsd {
            uuid: Uuid::from_u128(8),
            key: Some("secret".to_string()),
            ..PlannedOsd::new("/dev/vdb".into())
        }];
        config
    }

    #[test]
    fn host_is_read_back_and_only_its_owner_reads_it() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let dir = HostDir::at(&folder.path().join("host")).unwrap();
        assert!(HostDir::open(folder.path()).unwrap_err().to_string().contains("nacre init"));
        dir.make().unwrap();
        let config = config();
        dir.save(&config).unwrap();
        assert_eq!(dir.load().unwrap(), Some(config));
        let mode = fs::metadata(dir.root().join("host.json")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn daemons_are_those_with_a_configuration() {
        let folder = tempfile::tempdir().unwrap();
        let dir = HostDir::at(folder.path()).unwrap();
        for name in ["osd.1", "mon.h1", "osd.0", "log"] {
            fs::create_dir(folder.path().join(name)).unwrap();
            fs::write(folder.path().join(name).join("daemon.json"), "{}").unwrap();
        }
        fs::create_dir(folder.path().join("osd.2")).unwrap(); // not formatted yet
        let names: Vec<String> = dir.daemons().unwrap().iter().map(DaemonName::to_string).collect();
        assert_eq!(names, ["mon.h1", "osd.0", "osd.1"]);
    }

    #[test]
    fn clients_are_told_all_monitors() {
        let conf = config().ceph_conf(Path::new("/data/run"), Some(Path::new("/data")));
        for line in [
            "mon host = [v2:10.0.0.1:3300/0],[v2:[fd00::2]:3300/0]",
            "keyring = /data/ceph.$name.keyring",
            "public network = 10.0.0.0/24",
            "admin socket = /data/run/$cluster-$name.asok",
        ] {
            assert!(conf.lines().any(|found| found == line), "{conf}");
        }
        assert!(!config().ceph_conf(Path::new("/data/run"), None).contains("keyring"));
    }
}
