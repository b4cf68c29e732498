//! The configuration of one daemon: `daemon.json` in its data directory.
//!
//! A daemon starts from this file and its command line alone. The file says which cluster the daemon belongs
//! to, where the monitors are, where the daemon listens and where its key is. The addresses may be those of
//! any network, IPv4 or IPv6. Paths in the file are relative to the data directory.
//!
//! `nacre up` writes these files for a development cluster in one folder (`folder`), and starts each daemon
//! from its file.

use crate::Auth;
use crate::addresses::ListenAddr;
use crate::ask::Access;
use crate::files::{make_dir, replace};
use crate::host::hostname;
use crate::keyrings;
use crate::kinds::{Kind, MonSettings, OsdSettings};
use crate::name::DaemonName;
use crate::size::Memory;
use anyhow::{Context, Result, bail, ensure};
use nacre_auth::Secret;
use nacre_proto::types::{AuthName, EntityAddr};
use std::fs;
use std::net::SocketAddr;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;
use uuid::Uuid;

const FORMAT_VERSION: u32 = 1;

#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct DaemonConfig {
    version: u32,
    #[serde(flatten)]
    pub common: Common,
    #[serde(flatten)]
    pub kind: KindConfig,
}

/// What daemons of all kinds need.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Common {
    /// The data directory. Not in the file, which is in it.
    #[serde(skip)]
    pub data: PathBuf,
    pub fsid: Uuid,
    pub auth: Auth,
    /// The host's name in the cluster [default: the system's].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The monitors' addresses.
    pub mons: Vec<SocketAddr>,
    /// The daemon's own key.
    #[serde(default = "own_keyring")]
    pub keyring: PathBuf,
    /// The key of `client.admin`. A daemon that has it posts its crashes, introduces its key and reads its
    /// configuration before it starts. Monitors need it for image tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin_keyring: Option<PathBuf>,
    /// Pid files. Daemons of one host share this directory, so that each knows how much memory the others may
    /// take.
    #[serde(default = "shared_run_dir")]
    pub run_dir: PathBuf,
    /// Reports of crashes.
    #[serde(default = "shared_crash_dir")]
    pub crash_dir: PathBuf,
}

fn own_keyring() -> PathBuf {
    "keyring".into()
}
fn shared_run_dir() -> PathBuf {
    "../run".into()
}
fn shared_crash_dir() -> PathBuf {
    "../crash".into()
}

/// What daemons of one kind need. A new kind is a variant here and a file in `kinds`.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KindConfig {
    Mon(MonSettings),
    Osd(OsdSettings),
}

impl KindConfig {
    pub fn as_kind(&self) -> &dyn Kind {
        match self {
            KindConfig::Mon(settings) => settings,
            KindConfig::Osd(settings) => settings,
        }
    }
    pub fn as_kind_mut(&mut self) -> &mut dyn Kind {
        match self {
            KindConfig::Mon(settings) => settings,
            KindConfig::Osd(settings) => settings,
        }
    }
}

/// What a daemon's command line may say otherwise than its file.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    pub common: CommonArguments,
    #[command(flatten)]
    pub osd: OsdArguments,
}

#[derive(Clone, Debug, Default, clap::Args)]
pub struct CommonArguments {
    /// Addresses of the monitors, separated by commas [default: those in daemon.json]
    #[arg(long, value_name = "ADDR,...", value_delimiter = ',')]
    pub mon_host: Vec<SocketAddr>,
    /// File with the daemon's key [default: the one that daemon.json names]
    #[arg(long, value_name = "FILE")]
    pub keyring: Option<PathBuf>,
}

/// What only OSDs take.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct OsdArguments {
    /// Memory limit, at least 128M [default: osd_memory_target, that of `nacre up --memory`, or 512M]
    #[arg(long, value_name = "SIZE", value_parser = Memory::from_str)]
    pub memory: Option<Memory>,
    /// Address for clients, with or without a port [default: by public_network, or that in daemon.json]
    #[arg(long, value_name = "ADDR", value_parser = ListenAddr::from_str)]
    pub public_addr: Option<ListenAddr>,
    /// Address for other OSDs [default: by cluster_network, that in daemon.json, or the address for clients]
    #[arg(long, value_name = "ADDR", value_parser = ListenAddr::from_str)]
    pub cluster_addr: Option<ListenAddr>,
}

impl DaemonConfig {
    pub fn new(common: Common, kind: KindConfig) -> DaemonConfig {
        DaemonConfig { version: FORMAT_VERSION, common, kind }
    }

    /// The configuration in a data directory.
    pub fn load(data: &Path) -> Result<DaemonConfig> {
        let data = std::path::absolute(data).with_context(|| format!("bad path {}", data.display()))?;
        let path = data.join("daemon.json");
        let text = match fs::read_to_string(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => bail!(
                "{} is not the data directory of a daemon: there is no daemon.json in it. In the folder of a whole cluster, \
                 --id says which daemon",
                data.display()
            ),
            text => text.with_context(|| format!("cannot read {}", path.display()))?,
        };
        let mut config: DaemonConfig =
            serde_json::from_str(&text).with_context(|| format!("cannot parse {}", path.display()))?;
        let (found, path) = (config.version, path.display());
        ensure!(
            found <= FORMAT_VERSION,
            "{path} has format version {found}, and this program supports {FORMAT_VERSION}"
        );
        config.version = FORMAT_VERSION;
        config.common.data = data;
        Ok(config)
    }

    pub fn save(&self) -> Result<()> {
        make_dir(&self.common.data)?;
        let json = serde_json::to_string_pretty(self).context("cannot write a configuration as JSON")?;
        replace(&self.common.data.join("daemon.json"), &(json + "\n"))
    }

    pub fn name(&self) -> DaemonName {
        self.kind.as_kind().name()
    }

    /// The configuration as the command line changes it, and as the monitors say where neither is set.
    pub fn settle(&mut self, arguments: &Arguments) -> Result<()> {
        let said = &arguments.common;
        if !said.mon_host.is_empty() {
            self.common.mons.clone_from(&said.mon_host);
        }
        if let Some(keyring) = &said.keyring {
            self.common.keyring = std::path::absolute(keyring)?;
        }
        self.kind.as_kind_mut().settle(&self.common, arguments)
    }
}

impl Common {
    /// A path of the configuration.
    pub fn path(&self, path: &Path) -> PathBuf {
        let mut all = self.data.clone();
        for part in path.components() {
            match part {
                // By name: a data directory that is a link elsewhere still belongs to the folder where it was
                // found.
                Component::ParentDir => drop(all.pop()),
                part => all.push(part),
            }
        }
        all
    }
    pub fn run_dir(&self) -> PathBuf {
        self.path(&self.run_dir)
    }
    pub fn crash_dir(&self) -> PathBuf {
        self.path(&self.crash_dir)
    }
    pub fn store(&self) -> PathBuf {
        self.data.join("store")
    }
    /// The name of the host that the daemon runs on.
    pub fn host(&self) -> String {
        self.host.clone().unwrap_or_else(hostname)
    }

    /// As clients dial them. A monitor's address has no nonce: it is the same in every incarnation.
    pub fn mon_addrs(&self) -> Vec<EntityAddr> {
        self.mons.iter().map(|addr| EntityAddr::msgr2(*addr, 0)).collect()
    }

    /// A key for this cluster, if it uses keys.
    pub fn key(&self, path: &Path, name: &AuthName) -> Result<Option<Secret>> {
        keyrings::key(self.auth, path, name)
    }

    /// How to reach the cluster as `client.admin`; None without its key.
    pub fn admin_access(&self) -> Result<Option<Access>> {
        let key = match (self.auth, &self.admin_keyring) {
            (Auth::None, _) => None,
            (Auth::Cephx, None) => return Ok(None),
            (Auth::Cephx, Some(path)) => self.key(&self.path(path), &keyrings::admin())?,
        };
        Ok(Some(Access { name: keyrings::admin(), mons: self.mon_addrs(), key }))
    }

    /// Others must be able to dial the address. Without keys, any client that reaches it may do everything.
    pub fn ensure_may_listen(&self, addr: SocketAddr) -> Result<()> {
        ensure!(
            !addr.ip().is_unspecified(),
            "{addr} is not an address that others can dial: name one of this host"
        );
        ensure!(
            self.auth == Auth::Cephx || addr.ip().is_loopback(),
            "{addr} is not on loopback, and this cluster has no authentication: any client that reached it could change all \
             data. Make the cluster with `--auth cephx`"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::judge::Class;
    use crate::size::Size;

    fn osd(data: &Path, auth: Auth) -> DaemonConfig {
        let common = Common {
            data: data.to_path_buf(),
            fsid: Uuid::from_u128(7),
            auth,
            host: None,
            mons: vec!["[fd00::1]:3300".parse().unwrap(), "10.0.0.2:3300".parse().unwrap()],
            keyring: own_keyring(),
            admin_keyring: None,
            run_dir: shared_run_dir(),
            crash_dir: "/var/crash".into(),
        };
        let settings = OsdSettings {
            id: 12,
            uuid: Uuid::from_u128(8),
            public_addr: "[fd00::3]:6800".parse().unwrap(),
            cluster_addr: Some("10.1.0.3:6800".parse().unwrap()),
            memory: Some(Size(1 << 30)),
            device_class: Some(Class::Hdd),
            preallocated: false,
        };
        DaemonConfig::new(common, KindConfig::Osd(settings))
    }

    #[test]
    fn configuration_is_read_back_from_the_data_directory() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("osd.12");
        let config = osd(&data, Auth::Cephx);
        config.save().unwrap();
        let loaded = DaemonConfig::load(&data).unwrap();
        assert_eq!(loaded, config);
        assert_eq!(loaded.name(), DaemonName::Osd(12));
        assert_eq!(loaded.common.run_dir(), dir.path().join("run"));
        assert_eq!(loaded.common.crash_dir(), Path::new("/var/crash"));
        assert!(DaemonConfig::load(dir.path()).is_err());
    }

    #[test]
    fn configuration_of_a_newer_program_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        osd(dir.path(), Auth::Cephx).save().unwrap();
        let path = dir.path().join("daemon.json");
        let newer = fs::read_to_string(&path).unwrap().replace("\"version\": 1", "\"version\": 2");
        fs::write(&path, newer).unwrap();
        assert!(DaemonConfig::load(dir.path()).unwrap_err().to_string().contains("format version 2"));
    }

    #[test]
    fn paths_with_defaults_may_be_left_out_of_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let text = r#"{ "version": 1, "fsid": "00000000-0000-0000-0000-000000000007", "auth": "cephx",
            "mons": ["10.0.0.2:3300"],
            "osd": { "id": 1, "uuid": "00000000-0000-0000-0000-000000000008", "public_addr": "10.0.0.3:6800" } }"#;
        fs::write(dir.path().join("daemon.json"), text).unwrap();
        let config = DaemonConfig::load(dir.path()).unwrap();
        assert_eq!(config.common.path(&config.common.keyring), dir.path().join("keyring"));
        assert!(config.common.admin_access().unwrap().is_none());
    }

    #[test]
    fn other_hosts_reach_a_daemon_only_where_keys_are_used() {
        let addr = |text: &str| text.parse::<SocketAddr>().unwrap();
        let (cephx, none) =
            (osd(Path::new("/d"), Auth::Cephx).common, osd(Path::new("/d"), Auth::None).common);
        for (text, with_cephx, with_none) in [
            ("10.0.0.1:6800", true, false),
            ("[fd00::1]:6800", true, false),
            ("127.0.0.2:6800", true, true),
            ("[::1]:6800", true, true),
            ("0.0.0.0:6800", false, false),
            ("[::]:6800", false, false),
        ] {
            assert_eq!(cephx.ensure_may_listen(addr(text)).is_ok(), with_cephx, "{text}");
            assert_eq!(none.ensure_may_listen(addr(text)).is_ok(), with_none, "{text}");
        }
    }
}
