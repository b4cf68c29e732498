//! Stores of the daemons that `nacre up` and `nacre mon format` add to a folder.

use crate::cluster::{Cluster, MON_SIZE, Monitor};
use crate::files::make_parent;
use crate::folder::Layout;
use crate::format::preallocate;
use crate::name::DaemonName;
use crate::size::Size;
use anyhow::{Context, Result, ensure};
use nacre_node::FileDisk;
use nacre_store::{Options, Store};
use std::fs;
use std::path::Path;
use uuid::Uuid;

/// Replaces monitors whose stores are gone, and says which. Such a monitor has forgotten its votes, so the
/// new store is that of a new monitor, which has to be added to the cluster.
pub fn renew_lost_monitors(layout: &Layout, cluster: &mut Cluster) -> Result<Vec<Monitor>> {
    let exists = |daemon: DaemonName| fs::symlink_metadata(layout.store(&daemon)).is_ok();
    let began = cluster.osds.iter().any(|osd| exists(DaemonName::Osd(osd.id)));
    let is_lost = |mon: &&Monitor| began && !exists(DaemonName::Mon(mon.name.clone()));
    let lost: Vec<String> = cluster.mons.iter().filter(is_lost).map(|mon| mon.name.clone()).collect();
    ensure!(
        lost.is_empty() || lost.len() < cluster.mons.len(),
        "no monitor of this cluster has its store any more, and without one the data cannot be located"
    );
    lost.iter().map(|name| cluster.add_mon(Some(name)).cloned()).collect()
}

/// Makes the stores that do not exist yet.
pub fn make(layout: &Layout, cluster: &Cluster) -> Result<()> {
    let mons = cluster.mons.iter().map(|mon| (DaemonName::Mon(mon.name.clone()), Uuid::new_v4(), MON_SIZE));
    let osds = cluster.osds.iter().map(|osd| (DaemonName::Osd(osd.id), osd.uuid, osd.size));
    for (daemon, uuid, size) in mons.chain(osds) {
        let path = layout.store(&daemon);
        // A link to a device that is absent is no reason to make another store.
        if fs::symlink_metadata(&path).is_err() {
            make_one(&path, uuid, size, cluster.is_preallocated(&daemon))?;
        }
    }
    Ok(())
}

/// Makes a store, in place of one that is there.
pub fn make_one(path: &Path, uuid: Uuid, size: Size, preallocated: bool) -> Result<()> {
    make_parent(path)?;
    // Under another name until it is complete, so that a crash leaves no incomplete store.
    let new = path.with_extension("new");
    let make = || -> Result<()> {
        if new.exists() {
            fs::remove_file(&new)?;
        }
        let mut disk = FileDisk::create(&new, size.0)?;
        if preallocated {
            preallocate(&mut disk, path)?;
        }
        Store::format(
            &disk,
            Options { uuid: uuid.into_bytes(), log_id: Uuid::new_v4().into_bytes(), ..Options::default() },
        )?;
        Ok(fs::rename(&new, path)?)
    };
    make()
        .inspect_err(|_| drop(fs::remove_file(&new)))
        .with_context(|| format!("cannot make {}", path.display()))
}
