//! `nacre mon collect`, and `nacre mon recover --from-osds`: monitors from what OSDs and hosts have.

use super::{Confirmed, confirm, make_lone, own_monitor};
use crate::config::{DaemonConfig, KindConfig};
use crate::device::say;
use crate::files::{replace, write_secret};
use crate::hosts::dir::{HostConfig, HostDir};
use crate::hosts::monitor::monitor_id;
use crate::hosts::setup::machine;
use crate::hosts::{Folder, agent};
use crate::keyrings;
use crate::name::DaemonName;
use crate::release::release;
use crate::store::open_to_read;
use anyhow::{Context, Result, bail, ensure};
use nacre_auth::{Entity, keyring};
use nacre_mon::{CollectedHost, CollectedOsd, CollectedPg, Collection, Gaps, Recovery};
use nacre_osd::stored::{Holding, Maps, holdings};
use nacre_proto::types::{AuthName, EntityAddr};
use nacre_wire::to_vec;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// Placement groups that are named.
const NAMED_MAX: usize = 10;

#[derive(clap::Args)]
pub struct CollectArgs {
    /// Is written, for its owner alone: it has keys of the cluster
    file: PathBuf,
    #[command(flatten)]
    folder: Folder,
}

/// Writes what this host has of its cluster. Its daemons must not run.
pub fn collect(options: &CollectArgs) -> Result<()> {
    let (dir, config) = HostDir::open(&options.folder.data)?;
    let _lock = dir.lock()?;
    let running: Vec<String> = agent::running(&dir)?.into_iter().map(|(name, _)| name).collect();
    ensure!(
        running.is_empty(),
        "{} run: stop this host with `nacre host stop{}`",
        running.join(", "),
        dir.option()
    );
    let mut found = empty(&config);
    let mut entities = BTreeMap::new();
    let add = |path: &Path, found: &mut BTreeMap<AuthName, Entity>| -> Result<()> {
        if path.exists() {
            found.extend(keyrings::read_all(path)?);
        }
        Ok(())
    };
    for path in [dir.host_keyring(), dir.layout().admin_keyring(), dir.bootstrap_keyring()] {
        add(&path, &mut entities)?;
    }
    let mut of_monitors = BTreeMap::new();
    add(&dir.layout().mon_keyring(), &mut of_monitors)?;
    found.monitors_key = of_monitors.remove(&keyrings::monitors()).map(|entity| entity.key);
    for daemon in dir.daemons()? {
        let of_daemon = DaemonConfig::load(&dir.layout().data_dir(&daemon))?;
        found.host.monitors.extend(monitor_id(&of_daemon));
        if let (DaemonName::Osd(id), KindConfig::Osd(settings)) = (&daemon, &of_daemon.kind) {
            add(&dir.layout().keyring(*id), &mut entities)?;
            let osd = collect_osd(*id, settings.uuid, &dir.layout().store(&daemon));
            found.osds.push(osd.with_context(|| format!("cannot read {daemon}"))?);
        }
    }
    found.entities = entities;
    replace(&std::path::absolute(&options.file)?, found.to_bytes())?;
    say(format_args!(
        "{} has what {} knows of cluster {}: {} OSDs and their keys. Keep it secret.",
        options.file.display(),
        config.name,
        config.fsid,
        found.osds.len()
    ));
    Ok(())
}

/// A host without daemons.
fn empty(config: &HostConfig) -> Collection {
    let networks =
        [("public_network", &config.networks.public), ("cluster_network", &config.networks.cluster)];
    let known = networks.into_iter().filter_map(|(name, text)| Some((name.to_string(), text.clone()?)));
    let release = release();
    Collection {
        made: nacre_node::now().wall,
        version: crate::release::version().to_string(),
        fsid: *config.fsid.as_bytes(),
        format: release.formats.max,
        host: CollectedHost {
            name: config.name.clone(),
            uuid: *config.uuid.as_bytes(),
            addr: EntityAddr::msgr2(config.addr, 0),
            machine: machine(),
            mons: config.mon_addrs(),
            monitors: BTreeSet::new(),
            networks: known.collect(),
        },
        osds: Vec::new(),
        entities: BTreeMap::new(),
        monitors_key: None,
    }
}

fn collect_osd(id: u32, uuid: Uuid, path: &Path) -> Result<CollectedOsd> {
    let store = open_to_read(path)?;
    let map = Maps::load(&store)?.current;
    let pgs = holdings(&store)?.into_iter().map(|held| {
        let Holding { pg, interval, counts, pg_num } = held;
        CollectedPg { pg, interval, counts, pg_num }
    });
    Ok(CollectedOsd {
        id: i32::try_from(id).context("the number of the OSD is too large")?,
        uuid: *uuid.as_bytes(),
        map: map.map(|map| to_vec(&*map)).unwrap_or_default().into(),
        pgs: pgs.collect(),
    })
}

fn read(path: &PathBuf) -> Result<Collection> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Collection::from_bytes(&bytes).with_context(|| format!("cannot use {}", path.display()))
}

/// Makes a monitor of this host from what hosts have.
pub fn recover(files: &[PathBuf], options: &Confirmed) -> Result<()> {
    let (dir, mut config) = HostDir::open(&options.folder.data)?;
    let _lock = dir.lock()?;
    let all: Vec<Collection> = files.iter().map(read).collect::<Result<_>>()?;
    if let Some(daemon) = own_monitor(&dir)? {
        bail!(
            "this host has {daemon}: if its store can be used, recover from it with `nacre mon recover`. If it is lost, \
             stop the host and move {} away",
            dir.layout().data_dir(&daemon).display()
        );
    }
    let (mut recovery, gaps) = Recovery::of_osds(&all, nacre_node::now().wall)?;
    let fsid = Uuid::from_bytes(recovery.fsid());
    ensure!(fsid == config.fsid, "the files are of cluster {fsid}, and this host of {}", config.fsid);
    let own = EntityAddr::msgr2(config.addr, 0);
    ensure!(
        all.iter().any(|collection| collection.host.name == config.name),
        "this host, {}, is not among those that were collected",
        config.name
    );
    if let Some(other) = all.iter().find(|collection| !collection.host.mons.contains(&own)) {
        let at: Vec<String> = other.host.mons.iter().map(ToString::to_string).collect();
        bail!(
            "{} looks for monitors at {} alone: run this on a host that has one of these addresses",
            other.host.name,
            at.join(", ")
        );
    }
    confirm(&recovery, &config.name, &lost(&gaps), options.yes_i_really_mean_it)?;
    let monitors_key = all.iter().find_map(|collection| collection.monitors_key.clone());
    let key = monitors_key.unwrap_or_else(keyrings::new_key);
    let caps = [("mon".to_string(), "allow *".to_string())].into();
    write_secret(
        &dir.layout().mon_keyring(),
        keyring::print([(&keyrings::monitors(), &Entity { key, caps })]),
    )?;
    if recovery.admin().is_none() {
        recovery.set_admin(keyrings::new_admin());
    }
    if let Some((name, entity)) = recovery.admin() {
        write_secret(&dir.layout().admin_keyring(), keyring::print([(&name, entity)]))?;
    }
    make_lone(&dir, &mut config, recovery)
}

/// What is lost, and what else is to be known before that is confirmed.
fn lost(gaps: &Gaps) -> String {
    let mut text = "Lost are all users and keys except those of daemons and client.admin, options, config keys, \
                    labels of hosts, tokens, and file systems (`ceph fs new NAME META DATA --force --recover`)."
        .to_string();
    if !gaps.missing.is_empty() {
        let names: Vec<String> = gaps.missing.iter().map(|osd| format!("osd.{osd}")).collect();
        text += &format!(" These OSDs were not collected: {}.", names.join(", "));
    }
    if !gaps.waiting.is_empty() {
        let named: Vec<String> = gaps.waiting.iter().take(NAMED_MAX).map(ToString::to_string).collect();
        let more = match gaps.waiting.len().saturating_sub(NAMED_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        text += &format!(
            " OSDs that are missing, or cannot tell what they have, may have later writes of pg {}{more}: these wait for \
             them. Collect those OSDs, too, if they can be read.",
            named.join(", ")
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_base::{OsdId, PgId, PoolId};

    #[test]
    fn plan_names_what_is_missing() {
        assert!(!lost(&Gaps::default()).contains("not collected"));
        let waiting = (0..12).map(|seed| PgId { pool: PoolId(1), seed }).collect();
        let text = lost(&Gaps { missing: [OsdId(3)].into(), waiting });
        for part in ["not collected: osd.3.", "pg 1.0, 1.1,", "1.9 and 2 more: these wait"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
