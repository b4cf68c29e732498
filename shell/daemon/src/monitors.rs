//! Monitors that join and leave: `nacre mon format`, `nacre mon forget`, what `nacre up --mons` adds, and
//! `nacre mon alone` after most are lost.
//!
//! A monitor's store holds its votes, so a new store is that of a new monitor: it gets a number of its own
//! (`Cluster::add_mon`) and joins, even if it takes the name and ports of a lost one. The cluster itself
//! knows its monitors; the folder only says how to run them.

use crate::ask::{ask, connect, tell};
use crate::cluster::{Cluster, MON_SIZE, Monitor};
use crate::device::say;
use crate::folder::Layout;
use crate::name::DaemonName;
use crate::new_stores;
use crate::processes::{ensure_stopped, open_to_change};
use crate::store::{open_disk, settle};
use anyhow::{Context, Result, bail, ensure};
use nacre_store::Store;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;
use uuid::Uuid;

/// New monitors have one minute altogether to join.
const JOIN_POLLS: u32 = 240;
const JOIN_POLL: Duration = Duration::from_millis(250);

#[derive(clap::Args)]
pub struct Format {
    /// Folder of the cluster.
    #[arg(long, value_name = "DIR", default_value = crate::DATA_DEFAULT)]
    data: PathBuf,
    /// Name of the monitor, such as `d` for `mon.d` [default: the next letter]
    #[arg(long)]
    id: Option<String>,
}

#[derive(clap::Args)]
pub struct Forget {
    /// Folder of the cluster.
    #[arg(long, value_name = "DIR", default_value = crate::DATA_DEFAULT)]
    data: PathBuf,
    /// Name of the monitor: `c` for `mon.c`
    #[arg(long)]
    id: String,
}

#[derive(clap::Args)]
pub struct Alone {
    /// Folder of the cluster.
    #[arg(long, value_name = "DIR", default_value = crate::DATA_DEFAULT)]
    data: PathBuf,
    /// Name of the remaining monitor: `b` for `mon.b`. It must be stopped
    #[arg(long)]
    id: String,
    /// Confirm that none of the other monitors will ever run again
    #[arg(long)]
    yes_i_really_mean_it: bool,
}

pub fn alone(options: &Alone) -> Result<()> {
    let (layout, cluster) = Layout::open(&options.data)?;
    let name = &options.id;
    let daemon = DaemonName::mon(name)?;
    let id = cluster.mon(name).with_context(|| format!("this cluster has no {daemon}"))?.id;
    ensure!(
        options.yes_i_really_mean_it,
        "decisions of the other monitors that {daemon} never received will be lost, and if one of them ever \
         runs again, there will be two clusters with the same name. Use this only if most monitors are lost \
         for good, and confirm with --yes-i-really-mean-it"
    );
    let path = layout.store(&daemon);
    let disk = open_disk(&path, None)?;
    let (mut store, _) = Store::open(&disk).with_context(|| format!("cannot use {}", path.display()))?;
    let txn = nacre_mon::alone(id, &store).with_context(|| format!("cannot read {}", path.display()))?;
    let txn =
        txn.with_context(|| format!("{daemon} has not joined the cluster yet and has no data of it"))?;
    store.submit(txn).context("the store has no space for that")?;
    store.request_checkpoint();
    settle(&mut store, &disk, &path)?;
    say(format_args!(
        "{daemon} now decides alone. Start it, remove the others with `ceph mon rm`, and add new ones with \
         `nacre mon format`."
    ));
    Ok(())
}

pub fn format(options: &Format) -> Result<()> {
    let (layout, mut cluster, _lock) = open_to_change(&options.data)?;
    if let Some(name) = &options.id {
        DaemonName::mon(name)?;
        if cluster.mon(name).is_some() {
            ensure_removed(&layout, &cluster, name)?;
        }
    }
    let mon = cluster.add_mon(options.id.as_deref())?.clone();
    // In place of an old one.
    new_stores::make_one(&layout.store(&DaemonName::mon(&mon.name)?), Uuid::new_v4(), MON_SIZE, false)?;
    layout.save(&cluster)?;
    let (name, addr) = (&mon.name, cluster.mon_addr(&mon));
    say(format_args!(
        "mon.{name} was created. To let it join, run `ceph mon add {name} {addr}` and `nacre start \
         mon.{name}`."
    ));
    Ok(())
}

pub fn forget(options: &Forget) -> Result<()> {
    let (layout, mut cluster, _lock) = open_to_change(&options.data)?;
    let name = &options.id;
    cluster.ensure_has(&DaemonName::mon(name)?)?;
    ensure_removed(&layout, &cluster, name)?;
    cluster.remove_mon(name);
    layout.save(&cluster)?;
    layout.remove(&DaemonName::mon(name)?)?;
    say(format_args!("mon.{name} was removed from the folder."));
    Ok(())
}

/// Fails if the cluster still has this monitor, or if it runs.
fn ensure_removed(layout: &Layout, cluster: &Cluster, name: &str) -> Result<()> {
    let daemon = DaemonName::mon(name)?;
    ensure_stopped(layout, &daemon)?;
    let map = ask(&connect(layout, cluster)?, &json!({ "prefix": "mon dump", "format": "json" }))
        .context("no monitor replied whether this monitor is still a member")?;
    let names = map["mons"].as_array().into_iter().flatten();
    let is_there = names.into_iter().any(|mon| mon["name"] == json!(name));
    ensure!(!is_there, "{daemon} is a member of the cluster: remove it with `ceph mon rm {name}`");
    Ok(())
}

/// Adds monitors to a running cluster, and waits until they have joined.
pub fn admit(layout: &Layout, cluster: &Cluster, new: &[Monitor]) -> Result<()> {
    if new.is_empty() {
        return Ok(());
    }
    let client = connect(layout, cluster)?;
    for mon in new {
        let add = json!({ "prefix": "mon add", "name": mon.name, "addr": cluster.mon_addr(mon).to_string() });
        tell(&client, &add).with_context(|| format!("mon.{} cannot be added", mon.name))?;
    }
    let status = json!({ "prefix": "quorum_status", "format": "json" });
    let is_in = |status: &Value, mon: &Monitor| {
        status["quorum_names"].as_array().is_some_and(|names| names.contains(&json!(mon.name)))
    };
    for _ in 0..JOIN_POLLS {
        let status = ask(&client, &status)?;
        if new.iter().all(|mon| is_in(&status, mon)) {
            return Ok(());
        }
        std::thread::sleep(JOIN_POLL);
    }
    bail!("the new monitors do not join: see their logs")
}
