//! `nacre mon backup`, `restore` and `recover`: monitors of hosts, when most are lost for good. Where all
//! are,
//! `from_osds` recovers them from what `nacre mon collect` found on each host.

mod from_osds;

pub use from_osds::{CollectArgs, collect};

use super::{Folder, ask};
use crate::config::DaemonConfig;
use crate::device::say;
use crate::files::{replace, write_secret};
use crate::hosts::dir::{HostConfig, HostDir};
use crate::hosts::monitor::{monitor_id, new_monitor_with};
use crate::keyrings;
use crate::kinds::MonMember;
use crate::name::DaemonName;
use crate::processes::ensure_stopped;
use crate::store::{open_disk, settle};
use anyhow::{Context, Result, bail, ensure};
use nacre_auth::{Entity, keyring};
use nacre_mon::{Backup, Recovery};
use nacre_proto::transaction::Transaction;
use nacre_proto::types::{AddrVec, EntityAddr};
use nacre_store::Store;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use uuid::Uuid;

#[derive(clap::Args)]
pub struct BackupArgs {
    /// Is written, for its owner alone: it has all keys of the cluster
    file: PathBuf,
    #[command(flatten)]
    folder: Folder,
}

#[derive(clap::Args)]
pub struct RestoreArgs {
    /// From `nacre mon backup`
    file: PathBuf,
    #[command(flatten)]
    confirmed: Confirmed,
}

#[derive(clap::Args)]
pub struct Confirmed {
    #[command(flatten)]
    folder: Folder,
    /// Confirm that none of the other monitors will ever run again
    #[arg(long)]
    yes_i_really_mean_it: bool,
}

#[derive(clap::Args)]
pub struct RecoverArgs {
    /// From what OSDs have: what `nacre mon collect` wrote on each host. For when no monitor and no backup is
    /// left
    #[arg(long, value_name = "FILE", num_args = 1..)]
    from_osds: Vec<PathBuf>,
    #[command(flatten)]
    confirmed: Confirmed,
}

pub fn backup(options: &BackupArgs) -> Result<()> {
    let (dir, config) = HostDir::open(&options.folder.data)?;
    let answer = ask(&dir, &config, &json!({ "prefix": "mon backup" }))?;
    // What cannot be restored is no backup.
    let backup = Backup::from_bytes(&answer).context("the reply of the monitors")?;
    let recovery = Recovery::of_backup(&backup).context("the reply of the monitors")?;
    replace(&std::path::absolute(&options.file)?, &answer)?;
    let (osds, pools) = recovery.counts();
    say(format_args!(
        "{} has what the monitors agreed on at {}: {osds} OSDs, {pools} pools, and all keys. Keep it secret.",
        options.file.display(),
        backup.made
    ));
    Ok(())
}

/// The monitor of this host, if there is one.
fn own_monitor(dir: &HostDir) -> Result<Option<DaemonName>> {
    Ok(dir.daemons()?.into_iter().find(DaemonName::is_mon))
}

fn addrs(addr: SocketAddr) -> AddrVec {
    AddrVec::one(EntityAddr::msgr2(addr, 0))
}

/// Says what will be done. Fails unless that is confirmed.
fn confirm(recovery: &Recovery, name: &str, what_is_lost: &str, confirmed: bool) -> Result<()> {
    let (osds, pools) = recovery.counts();
    let others = recovery.monitors().into_iter().map(|(other, _)| other).filter(|other| other != name);
    let others: Vec<String> = others.map(|other| format!("mon.{other}")).collect();
    let plan = format!(
        "The cluster {} with {osds} OSDs and {pools} pools continues with mon.{name} alone, as it was at {}. \
         {what_is_lost} These monitors are removed, and must never run again: {}. Hosts that are there get new ones.",
        Uuid::from_bytes(recovery.fsid()),
        recovery.last_change(),
        if others.is_empty() { "none".to_string() } else { others.join(", ") },
    );
    ensure!(confirmed, "{plan} Nothing was changed. Confirm with --yes-i-really-mean-it");
    say(format_args!("{plan}"));
    Ok(())
}

/// Puts a state into the store of a monitor that does not run.
fn write_store(path: &Path, txn: Transaction) -> Result<()> {
    let disk = open_disk(path, None)?;
    let (mut store, _) = Store::open(&disk).with_context(|| format!("cannot use {}", path.display()))?;
    store.submit(txn).context("the store has no space for that")?;
    store.request_checkpoint();
    settle(&mut store, &disk, path)
}

/// From a monitor that is left, or from OSDs.
pub fn recover(options: &RecoverArgs) -> Result<()> {
    let RecoverArgs { from_osds, confirmed } = options;
    match from_osds.is_empty() {
        true => recover_from_own(confirmed),
        false => from_osds::recover(from_osds, confirmed),
    }
}

/// From the monitor of this host.
fn recover_from_own(options: &Confirmed) -> Result<()> {
    let (dir, mut config) = HostDir::open(&options.folder.data)?;
    let _lock = dir.lock()?;
    let daemon = own_monitor(&dir)?;
    let daemon =
        daemon.context("this host has no monitor: run this on one that has, or see `nacre mon restore`")?;
    ensure_stopped(dir.layout(), &daemon)?;
    ensure!(
        dir.stopped(&daemon).exists(),
        "{daemon} would be started again by the agent: stop it with `nacre stop {daemon}{}`",
        dir.option()
    );
    let of_daemon = DaemonConfig::load(&dir.layout().data_dir(&daemon))?;
    let id = monitor_id(&of_daemon).with_context(|| format!("{daemon} is not in its configuration"))?;
    let path = dir.layout().store(&daemon);
    let recovery = {
        let disk = open_disk(&path, None)?;
        let (store, _) = Store::open(&disk).with_context(|| format!("cannot use {}", path.display()))?;
        Recovery::of_store(id, &store).with_context(|| format!("cannot recover from {}", path.display()))?
    };
    let name = daemon.to_string();
    let name = name.strip_prefix("mon.").unwrap_or_default();
    let lost = "Decisions of the others that it never received are lost.";
    confirm(&recovery, name, lost, options.yes_i_really_mean_it)?;
    write_store(&path, recovery.lone(id, name, addrs(config.addr), &config.name, nacre_node::now().wall))?;
    let own = vec![config.addr];
    dir.follow_monitors(&mut config, own)?;
    say(format_args!("{daemon} decides alone now. Start it with `nacre start {daemon}{}`.", dir.option()));
    Ok(())
}

/// From a backup.
pub fn restore(options: &RestoreArgs) -> Result<()> {
    let (dir, mut config) = HostDir::open(&options.confirmed.folder.data)?;
    let _lock = dir.lock()?;
    let bytes = fs::read(&options.file).with_context(|| format!("cannot read {}", options.file.display()))?;
    let backup =
        Backup::from_bytes(&bytes).with_context(|| format!("cannot use {}", options.file.display()))?;
    let recovery = Recovery::of_backup(&backup)?;
    let fsid = Uuid::from_bytes(recovery.fsid());
    ensure!(fsid == config.fsid, "the backup is of cluster {fsid}, and this host of {}", config.fsid);
    if let Some(daemon) = own_monitor(&dir)? {
        bail!(
            "this host has {daemon}, whose store may be newer than the backup: recover from it with `nacre mon recover`. \
             If it is lost, stop it and move {} away",
            dir.layout().data_dir(&daemon).display()
        );
    }
    // The other hosts look for monitors where there were some.
    let known = recovery.monitors();
    if !known.iter().any(|(_, at)| at.msgr2().and_then(|addr| addr.sock) == Some(config.addr)) {
        let at: Vec<String> = known.iter().map(|(name, at)| format!("mon.{name} at {at}")).collect();
        bail!("there was no monitor at {}: run this where one was ({})", config.addr, at.join(", "));
    }
    let lost = format!("What was decided since the backup of {} is lost.", backup.made);
    confirm(&recovery, &config.name, &lost, options.confirmed.yes_i_really_mean_it)?;
    if let Some(key) = backup.monitors_key.clone() {
        let caps = [("mon".to_string(), "allow *".to_string())].into();
        let text = keyring::print([(&keyrings::monitors(), &Entity { key, caps })]);
        write_secret(&dir.layout().mon_keyring(), &text)?;
    }
    if let Some((name, entity)) = recovery.admin() {
        write_secret(&dir.layout().admin_keyring(), keyring::print([(&name, entity)]))?;
    }
    make_lone(&dir, &mut config, recovery)
}

/// Makes a monitor of this host that decides alone.
fn make_lone(dir: &HostDir, config: &mut HostConfig, recovery: Recovery) -> Result<()> {
    let (id, name) = (recovery.next_id(), config.name.clone());
    let txn = recovery.lone(id, &name, addrs(config.addr), &name, nacre_node::now().wall);
    let own = MonMember { name: name.clone(), id, addr: config.addr, founder: false };
    new_monitor_with(dir, config, vec![own], &name, BTreeMap::new(), |path| write_store(path, txn))?;
    let own = vec![config.addr];
    dir.follow_monitors(config, own)?;
    say(format_args!(
        "mon.{name} was restored, and is started by the agent (`nacre host start{}`).",
        dir.option()
    ));
    Ok(())
}
