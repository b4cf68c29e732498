//! Keys of a cluster with authentication (`--auth cephx`).
//!
//! ```text
//! DIR/ceph.client.admin.keyring   for Ceph's own clients, and for ours
//! DIR/mon.keyring                 the key that all monitors share
//! DIR/NAME/keyring                an OSD's
//! DIR/NAME/keyring.new            the same, until the monitors know it
//! ```
//!
//! A new cluster knows the keys of all its first daemons. An OSD that is added later introduces its key when
//! it starts, as `client.admin`, and repeats that until a monitor answers.

use crate::Auth;
use crate::ask::Access;
use crate::cluster::Cluster;
use crate::config::Common;
use crate::files::{make_parent, remove_if_there, replace, write_secret};
use crate::folder::Layout;
use anyhow::{Context, Result, anyhow};
use bytes::Bytes;
use nacre_auth::{Entity, KeyType, Secret, keyring};
use nacre_client::Request;
use nacre_proto::types::{AuthName, EntityType};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const RETRY: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(10);

pub fn admin() -> AuthName {
    AuthName::new(EntityType::Client, "admin")
}
/// The name under which monitors know each other.
pub fn monitors() -> AuthName {
    AuthName::new(EntityType::Mon, "")
}
fn osd(id: u32) -> AuthName {
    AuthName::new(EntityType::Osd, id.to_string())
}

fn entity(caps: &[(&str, &str)]) -> Entity {
    Entity {
        key: new_key(),
        caps: caps.iter().map(|(service, caps)| (service.to_string(), caps.to_string())).collect(),
    }
}

/// Writes entities with new keys, unless the file exists.
pub fn make_once(path: &Path, entities: &[(AuthName, &[(&str, &str)])]) -> Result<()> {
    if path.exists() {
        return Ok(());
    }
    let made: Vec<(&AuthName, Entity)> = entities.iter().map(|(name, caps)| (name, entity(caps))).collect();
    write_secret(path, keyring::print(made.iter().map(|(name, entity)| (*name, entity))))
}

/// The capabilities of an administrator.
pub const ALL_CAPS: [(&str, &str); 4] =
    [("mds", "allow *"), ("mgr", "allow *"), ("mon", "allow *"), ("osd", "allow *")];

/// An administrator with a new key.
pub fn new_admin() -> Entity {
    entity(&ALL_CAPS)
}

/// The text of a keyring with the key of an OSD alone: what the monitors know of it counts.
pub fn text_of_osd(id: u32, key: &Secret) -> String {
    keyring::print([(&osd(id), &Entity { key: key.clone(), caps: BTreeMap::new() })])
}

pub fn new_key() -> Secret {
    // All clients know this kind.
    Secret::generate(KeyType::Aes, nacre_node::now().wall, &mut nacre_node::entropy())
}

fn write(path: &Path, name: &AuthName, entity: &Entity) -> Result<()> {
    replace(path, keyring::print([(name, entity)]))
}

/// All users and daemons of a keyring.
pub fn read_all(path: &Path) -> Result<BTreeMap<AuthName, Entity>> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    keyring::parse(&text).map_err(|e| anyhow!("{}: {e}", path.display()))
}

fn read(path: &Path, name: &AuthName) -> Result<Entity> {
    read_all(path)?.remove(name).with_context(|| format!("{} has no key for {name}", path.display()))
}

/// Makes the keys that are missing, if the cluster uses keys.
pub fn make(layout: &Layout, cluster: &Cluster, is_new: bool) -> Result<()> {
    if cluster.auth == Auth::None {
        return Ok(());
    }
    if is_new {
        write(&layout.admin_keyring(), &admin(), &entity(&ALL_CAPS))?;
        write(&layout.mon_keyring(), &monitors(), &entity(&[("mon", "allow *")]))?;
    }
    for disk in &cluster.osds {
        let known = layout.keyring(disk.id);
        if !known.exists() && !unknown(&known).exists() {
            make_osd(layout, disk.id, is_new)?;
        }
    }
    Ok(())
}

/// Makes a new key for an OSD.
pub fn make_osd(layout: &Layout, id: u32, is_known: bool) -> Result<()> {
    let known = layout.keyring(id);
    make_parent(&known)?;
    let entity = entity(&[("mgr", "allow profile osd"), ("mon", "allow profile osd"), ("osd", "allow *")]);
    if is_known {
        return write(&known, &osd(id), &entity);
    }
    write(&unknown(&known), &osd(id), &entity)?;
    remove_if_there(&known)
}

/// Where a key is that the monitors do not know yet.
fn unknown(known: &Path) -> PathBuf {
    known.with_extension("new")
}

/// The file that has an OSD's key now.
pub fn in_use(known: &Path) -> PathBuf {
    if known.exists() { known.to_path_buf() } else { unknown(known) }
}

/// The key of `client.admin`, if the cluster uses keys.
pub fn of_admin(layout: &Layout, cluster: &Cluster) -> Result<Option<Secret>> {
    key(cluster.auth, &layout.admin_keyring(), &admin())
}

/// A key from a file, if the cluster uses keys.
pub fn key(auth: Auth, path: &Path, name: &AuthName) -> Result<Option<Secret>> {
    match auth {
        Auth::None => Ok(None),
        Auth::Cephx => Ok(Some(read(path, name)?.key)),
    }
}

/// The entities that a cluster knows from the beginning. Files that are missing are skipped.
pub fn initial(auth: Auth, paths: impl Iterator<Item = PathBuf>) -> Result<BTreeMap<AuthName, Entity>> {
    let mut all = BTreeMap::new();
    for path in paths.filter(|path| auth == Auth::Cephx && path.exists()) {
        all.extend(read_all(&path)?);
    }
    Ok(all)
}

/// An OSD's key that the monitors do not know yet.
pub struct Introduction {
    known: PathBuf,
    access: Access,
}

/// What is to be done for an OSD whose key is new.
pub fn introduction(common: &Common) -> Result<Option<Introduction>> {
    let known = common.path(&common.keyring);
    if common.auth == Auth::None || !unknown(&known).exists() {
        return Ok(None);
    }
    match common.admin_access()? {
        Some(access) => Ok(Some(Introduction { known, access })),
        None => {
            tracing::warn!("`ceph auth import -i {}` makes this OSD's key known", unknown(&known).display());
            Ok(None)
        }
    }
}

impl Introduction {
    /// Tells the monitors in the background, until they answer: they may start later.
    pub fn start(self) {
        let started = std::thread::Builder::new().name("keyrings".into()).spawn(move || self.run());
        if let Err(error) = started {
            tracing::error!("cannot start a thread that introduces this OSD's key: {error}");
        }
    }

    fn run(self) {
        let Introduction { known, access } = self;
        let unknown = unknown(&known);
        let client = access.connect();
        while let Ok(text) = fs::read(&unknown) {
            let command = json!({ "prefix": "auth import" }).to_string();
            let request = Request::mon_command(command, Bytes::from(text)).timeout(TIMEOUT);
            let told = client.request(request).map_err(|e| e.to_string());
            match told.and_then(|_| fs::rename(&unknown, &known).map_err(|e| e.to_string())) {
                Ok(()) => return,
                Err(error) => {
                    tracing::warn!("the monitors do not know the key in {} yet: {error}", unknown.display());
                    std::thread::sleep(RETRY);
                }
            }
        }
    }
}
