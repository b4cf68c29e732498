//! The entity that a client is, the cluster that it talks to, and how much it may have in flight.

use nacre_auth::{Secret, keyring};
use nacre_client::{MonHostError, parse_mon_host};
use nacre_options::{ConfFileError, Section, parse_conf_file};
use nacre_proto::types::{AuthName, EntityAddr};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Everything that a client needs to know.
#[derive(Clone, Debug)]
pub struct Config {
    pub mons: Vec<EntityAddr>,
    /// Such as `client.admin`.
    pub name: AuthName,
    /// None in a cluster without authentication.
    pub key: Option<Secret>,
    /// Encrypts every connection. Without, only sessions with monitors are encrypted.
    pub secure: bool,
    pub limits: Limits,
}

/// The most that is in flight; callers wait when there is more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub ops_in_flight: usize,
    /// Data of writes, and what reads ask for.
    pub bytes_in_flight: usize,
}

impl Default for Limits {
    /// As Ceph's `objecter_inflight_ops` and `objecter_inflight_op_bytes`.
    fn default() -> Limits {
        Limits { ops_in_flight: 1024, bytes_in_flight: 100 << 20 }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read {path}: {source}")]
    Read { path: PathBuf, source: io::Error },
    #[error("{path}: {source}")]
    Conf { path: PathBuf, source: ConfFileError },
    #[error("{name}: {why}")]
    Option { name: &'static str, why: String },
    #[error("the `key` in {0} is not a key in base64")]
    BadKey(PathBuf),
    #[error("\"{0}\" is not a name such as client.admin")]
    Name(String),
    #[error("{0} says no mon_host")]
    NoMonHost(PathBuf),
    #[error(transparent)]
    MonHost(#[from] MonHostError),
    #[error("{path}: {source}")]
    Keyring { path: PathBuf, source: keyring::KeyringError },
    #[error("{path} has no key of {name}")]
    NoKey { path: PathBuf, name: AuthName },
    #[error("no keyring of {0}: give one in ceph.conf, or `auth_client_required = none`")]
    NoKeyring(AuthName),
}

impl Config {
    pub fn new(mons: Vec<EntityAddr>, name: AuthName, key: Option<Secret>) -> Config {
        Config { mons, name, key, secure: false, limits: Limits::default() }
    }

    /// Reads a `ceph.conf` and the keyring that it names, or that lies where Ceph looks for one.
    pub fn read(path: impl AsRef<Path>, name: &str) -> Result<Config, ConfigError> {
        let path = path.as_ref();
        let name = AuthName::parse(name).ok_or_else(|| ConfigError::Name(name.to_owned()))?;
        let sections = parse_conf_file(&read(path)?)
            .map_err(|source| ConfigError::Conf { path: path.to_owned(), source })?;
        let conf = Conf { sections, name: &name };
        let mon_host = conf.get("mon_host").ok_or_else(|| ConfigError::NoMonHost(path.to_owned()))?;
        let mut config = Config::new(parse_mon_host(&mon_host)?, name.clone(), None);
        let uses_cephx = conf.get("auth_client_required").is_none_or(|methods| methods.contains("cephx"));
        if uses_cephx {
            config.key = Some(conf.key(path)?);
            let modes = conf.get("ms_client_mode").unwrap_or_default();
            config.secure = modes.trim() == "secure";
        }
        let limits = &mut config.limits;
        limits.ops_in_flight = conf.number("objecter_inflight_ops")?.unwrap_or(limits.ops_in_flight);
        limits.bytes_in_flight = conf.number("objecter_inflight_op_bytes")?.unwrap_or(limits.bytes_in_flight);
        Ok(config)
    }
}

fn read(path: &Path) -> Result<String, ConfigError> {
    fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })
}

/// A `ceph.conf` as one entity sees it.
struct Conf<'a> {
    sections: Vec<Section>,
    name: &'a AuthName,
}

impl Conf<'_> {
    /// The section of the entity wins over that of its kind, and that over `[global]`.
    fn get(&self, option: &str) -> Option<String> {
        let name = self.name.to_string();
        let kind = name.split('.').next().unwrap_or_default();
        [name.as_str(), kind, "global", ""].into_iter().find_map(|section| self.in_section(section, option))
    }

    fn in_section(&self, wanted: &str, option: &str) -> Option<String> {
        let sections = self.sections.iter().filter(|section| section.name == wanted);
        let mut values = sections.flat_map(|section| &section.values);
        values.rfind(|(name, _)| name == option).map(|(_, value)| value.clone())
    }

    /// A count or a size, which may have a unit.
    fn number(&self, name: &'static str) -> Result<Option<usize>, ConfigError> {
        let Some(text) = self.get(name) else { return Ok(None) };
        let option = nacre_options::find(name).ok_or(ConfigError::Option { name, why: "unknown".into() })?;
        let value = option.parse(&text).map_err(|e| ConfigError::Option { name, why: e.to_string() })?;
        Ok(Some(usize::try_from(value.as_u64()).unwrap_or(usize::MAX)))
    }

    fn key(&self, conf: &Path) -> Result<Secret, ConfigError> {
        if let Some(key) = self.get("key") {
            return Secret::from_base64(&key).map_err(|_| ConfigError::BadKey(conf.to_owned()));
        }
        let name = self.name.to_string();
        let beside = conf.parent().unwrap_or(Path::new("/etc/ceph"));
        let usual = [format!("ceph.{name}.keyring"), "ceph.keyring".to_owned(), "keyring".to_owned()];
        let paths: Vec<PathBuf> = match self.get("keyring") {
            Some(paths) => {
                let named = |path: &str| path.trim().replace("$cluster", "ceph").replace("$name", &name);
                paths.split(',').map(|path| named(path).into()).collect()
            }
            None => [beside, Path::new("/etc/ceph")]
                .into_iter()
                .flat_map(|folder| usual.iter().map(|file| folder.join(file)))
                .collect(),
        };
        let path = paths.into_iter().find(|path| path.exists());
        let path = path.ok_or_else(|| ConfigError::NoKeyring(self.name.clone()))?;
        let entities = keyring::parse(&read(&path)?)
            .map_err(|source| ConfigError::Keyring { path: path.clone(), source })?;
        let entity = entities.get(self.name);
        entity.map(|entity| entity.key.clone()).ok_or(ConfigError::NoKey { path, name: self.name.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_narrowest_section_wins() {
        let text = "mon host = 10.0.0.1 # first\n[global]\nkeyring = /g\n[client]\nkeyring = /c\nkey-x = \"1\"\n\
                    [client.gw]\nkeyring=/gw\n[osd]\nkeyring = /o\n";
        let get = |entity: &str, option: &str| {
            let name = AuthName::parse(entity).unwrap();
            Conf { sections: parse_conf_file(text).unwrap(), name: &name }.get(option)
        };
        assert_eq!(get("client.gw", "keyring").as_deref(), Some("/gw"));
        assert_eq!(get("client.admin", "keyring").as_deref(), Some("/c"));
        assert_eq!(get("mds.a", "keyring").as_deref(), Some("/g"));
        assert_eq!(get("client.admin", "mon_host").as_deref(), Some("10.0.0.1"));
        assert_eq!(get("client.admin", "key_x").as_deref(), Some("1"));
    }

    #[test]
    fn bad_values_are_errors() {
        let name = AuthName::parse("client.admin").unwrap();
        let conf = |text: &str| Conf { sections: parse_conf_file(text).unwrap(), name: &name };
        let number = |text: &str| conf(text).number("objecter_inflight_op_bytes");
        assert_eq!(number("[global]\nobjecter_inflight_op_bytes = 64M\n").unwrap(), Some(64 << 20));
        assert_eq!(number("[global]\n").unwrap(), None);
        assert!(number("[client]\nobjecter_inflight_op_bytes = much\n").is_err());
        let key = conf("[client]\nkey = no key\n").key(Path::new("ceph.conf"));
        assert!(matches!(key, Err(ConfigError::BadKey(_))));
    }
}
