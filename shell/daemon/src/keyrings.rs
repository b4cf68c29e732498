//! The keys in a cluster's folder, in a cluster where everybody proves who they are (`--auth cephx`).
//!
//! ```text
//! DIR/ceph.client.admin.keyring   for Ceph's own clients, and for ours
//! DIR/mon.keyring                 all monitors have the same
//! DIR/NAME/keyring                an OSD's
//! DIR/NAME/keyring.new            the same, until the monitors know it
//! ```
//!
//! The first monitors know everybody who is there when they begin. An OSD that is made later says so when it starts, as
//! `client.admin`, again and again until somebody listens.

use crate::Auth;
use crate::ask::Access;
use crate::cluster::{Cluster, DaemonName, Layout, make_dir, replace};
use anyhow::{Context, Result, anyhow};
use bytes::Bytes;
use nacre_auth::{Entity, Secret, keyring};
use nacre_client::Request;
use nacre_proto::types::{AuthName, EntityType};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const RETRY: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(10);

fn admin() -> AuthName {
    AuthName::new(EntityType::Client, "admin")
}
fn monitors() -> AuthName {
    AuthName::new(EntityType::Mon, "")
}
fn osd(id: u32) -> AuthName {
    AuthName::new(EntityType::Osd, id.to_string())
}

fn entity(caps: &[(&str, &str)]) -> Entity {
    let key = Secret::generate(nacre_node::now().wall, &mut nacre_node::entropy());
    Entity { key, caps: caps.iter().map(|(service, caps)| (service.to_string(), caps.to_string())).collect() }
}

fn write(path: &Path, name: &AuthName, entity: &Entity) -> Result<()> {
    replace(path, &keyring::print([(name, entity)]))
}

fn read(path: &Path, name: &AuthName) -> Result<Entity> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut all = keyring::parse(&text).map_err(|e| anyhow!("{}: {e}", path.display()))?;
    all.remove(name).with_context(|| format!("{} contains no key for {name}", path.display()))
}

/// Makes what is missing, of a cluster that wants keys.
pub fn make(layout: &Layout, cluster: &Cluster, is_new: bool) -> Result<()> {
    if cluster.auth == Auth::None {
        return Ok(());
    }
    if is_new {
        let all = [("mds", "allow *"), ("mgr", "allow *"), ("mon", "allow *"), ("osd", "allow *")];
        write(&layout.admin_keyring(), &admin(), &entity(&all))?;
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

/// Another key for an OSD that is made anew.
pub fn make_osd(layout: &Layout, id: u32, is_known: bool) -> Result<()> {
    let known = layout.keyring(id);
    make_dir(known.parent().expect("it is in the OSD's folder"))?;
    let entity = entity(&[("mgr", "allow profile osd"), ("mon", "allow profile osd"), ("osd", "allow *")]);
    if is_known {
        return write(&known, &osd(id), &entity);
    }
    write(&unknown(&known), &osd(id), &entity)?;
    match fs::remove_file(&known) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e).context("cannot remove the old key"),
        _ => Ok(()),
    }
}

fn unknown(known: &Path) -> PathBuf {
    known.with_extension("new")
}

/// The key of `client.admin`, if the cluster wants one.
pub fn of_admin(layout: &Layout, cluster: &Cluster) -> Result<Option<Secret>> {
    of(cluster, &layout.admin_keyring(), &admin())
}

fn of(cluster: &Cluster, path: &Path, name: &AuthName) -> Result<Option<Secret>> {
    match cluster.auth {
        Auth::None => Ok(None),
        Auth::Cephx => Ok(Some(read(path, name)?.key)),
    }
}

pub fn of_daemon(layout: &Layout, cluster: &Cluster, daemon: &DaemonName) -> Result<Option<Secret>> {
    match daemon {
        DaemonName::Mon(_) => of(cluster, &layout.mon_keyring(), &monitors()),
        DaemonName::Osd(id) => {
            let known = layout.keyring(*id);
            let path = if known.exists() { known } else { unknown(&known) };
            of(cluster, &path, &osd(*id))
        }
    }
}

/// Whom a cluster knows from its first moment.
pub fn founders(layout: &Layout, cluster: &Cluster) -> Result<BTreeMap<AuthName, Entity>> {
    if cluster.auth == Auth::None {
        return Ok(BTreeMap::new());
    }
    let mut all = BTreeMap::from([(admin(), read(&layout.admin_keyring(), &admin())?)]);
    for disk in &cluster.osds {
        let path = layout.keyring(disk.id);
        if path.exists() {
            all.insert(osd(disk.id), read(&path, &osd(disk.id))?);
        }
    }
    Ok(all)
}

/// Has the monitors know those of these OSDs that are new, in the background: they may come up only later.
pub fn introduce(layout: &Layout, cluster: &Cluster, daemons: &[DaemonName]) -> Result<()> {
    let ids = daemons.iter().filter_map(|daemon| match daemon {
        DaemonName::Osd(id) => Some(*id),
        DaemonName::Mon(_) => None,
    });
    let mut waiting: Vec<PathBuf> =
        ids.map(|id| layout.keyring(id)).filter(|known| unknown(known).exists()).collect();
    if cluster.auth == Auth::None || waiting.is_empty() {
        return Ok(());
    }
    let access = Access::of(layout, cluster)?;
    let introduce = move || {
        let client = access.connect();
        while let Some(known) = waiting.pop() {
            let Ok(text) = fs::read(unknown(&known)) else { continue };
            let command = json!({ "prefix": "auth import" }).to_string();
            let request = Request::mon_command(command, Bytes::from(text)).timeout(TIMEOUT);
            let told = client.request(request).map_err(|e| e.to_string());
            let noted = told.and_then(|_| fs::rename(unknown(&known), &known).map_err(|e| e.to_string()));
            if let Err(error) = noted {
                tracing::warn!(
                    "the monitors have not accepted the key in {} yet: {error}",
                    unknown(&known).display()
                );
                waiting.insert(0, known);
                std::thread::sleep(RETRY);
            }
        }
    };
    std::thread::Builder::new().name("keyrings".into()).spawn(introduce).context("cannot start a thread")?;
    Ok(())
}
