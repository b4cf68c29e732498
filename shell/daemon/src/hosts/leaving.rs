//! `nacre leave` takes this host out of its cluster, `nacre uninstall` removes what it kept.

use crate::ask::{ask, command, tell};
use crate::device::{Target, say};
use crate::hosts::dir::{DeviceState, HostConfig, HostDir};
use crate::hosts::{DATA_DEFAULT, agent, systemd};
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use std::fs;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_secs(1);
/// How often progress is shown.
const SAY_EVERY: Duration = Duration::from_secs(10);

#[derive(clap::Args)]
pub struct Leave {
    /// Folder of the host
    #[arg(long, value_name = "DIR", default_value = DATA_DEFAULT)]
    data: PathBuf,
    /// Do not ask first
    #[arg(long)]
    yes: bool,
}

#[derive(clap::Args)]
pub struct Uninstall {
    /// Folder of the host
    #[arg(long, value_name = "DIR", default_value = DATA_DEFAULT)]
    data: PathBuf,
    /// Also delete what is on the host's devices
    #[arg(long)]
    wipe: bool,
    /// Also if the cluster still counts on this host
    #[arg(long)]
    force: bool,
    /// Do not ask first
    #[arg(long)]
    yes: bool,
}

/// Moves the data away, stops the daemons, and has the monitors forget the host. Each step may be repeated.
pub fn leave(options: &Leave) -> Result<()> {
    let (dir, config) = HostDir::open(&options.data)?;
    let _lock = dir.lock()?;
    confirm(
        options.yes,
        &format!("Data of {} moves to other hosts, and the host leaves the cluster", config.name),
    )?;
    let client = dir.agent_access(&config)?.connect();
    let step = |stage: &str| json!({ "prefix": "host leave", "hostname": config.name, "stage": stage, "format": "json" });
    let answer = ask(&client, &step("drain")).context("the monitors refused")?;
    let osds: Vec<u64> = answer["osds"].as_array().into_iter().flatten().filter_map(Value::as_u64).collect();
    let ids: Vec<String> = osds.iter().map(u64::to_string).collect();
    if !ids.is_empty() {
        say(format_args!("Waiting until osd {} are not needed ...", ids.join(" ")));
        let safe = json!({ "prefix": "osd safe-to-destroy", "ids": ids });
        let mut said = Instant::now();
        while let Err(e) = command(&client, &safe, PATIENCE) {
            if said.elapsed() > SAY_EVERY {
                said = Instant::now();
                say(format_args!("{e:#}"));
            }
            std::thread::sleep(POLL);
        }
    }
    // The agent's own session must not need the monitor of this host.
    agent::stop(&dir, &config)?;
    for id in osds {
        let deadline = Instant::now() + PATIENCE;
        while is_up(&ask(&client, &json!({ "prefix": "osd dump", "format": "json" }))?, id) {
            ensure!(Instant::now() < deadline, "osd.{id} does not stop");
            std::thread::sleep(POLL / 4);
        }
    }
    tell(&client, &step("finish")).context("the monitors refused")?;
    forget(&dir)?;
    say(format_args!(
        "{} has left the cluster. `nacre uninstall{} --wipe` deletes what it kept.",
        config.name,
        dir.option()
    ));
    Ok(())
}

fn is_up(map: &Value, id: u64) -> bool {
    let mut osds = map["osds"].as_array().into_iter().flatten();
    osds.any(|osd| osd["osd"] == json!(id) && osd["up"] == json!(1))
}

/// The daemons of a host that left are not started again.
fn forget(dir: &HostDir) -> Result<()> {
    for daemon in dir.daemons()? {
        let path = dir.stopped(&daemon);
        fs::write(&path, "").with_context(|| format!("cannot write {}", path.display()))?;
    }
    fs::write(left(dir), "").context("cannot note that the host left")
}

/// It exists once the monitors have forgotten the host.
fn left(dir: &HostDir) -> PathBuf {
    dir.root().join("left")
}

/// Stops the daemons and deletes the host's folder. The devices keep their data unless it is to be wiped.
pub fn uninstall(options: &Uninstall) -> Result<()> {
    let (dir, config) = HostDir::open(&options.data)?;
    let _lock = dir.lock()?;
    ensure!(
        left(&dir).exists() || options.force,
        "{} belongs to cluster {}: `nacre leave{}` moves its data away first. Use --force if that cluster, or its data \
         on this host, is not needed any more",
        config.name,
        config.fsid,
        dir.option()
    );
    let devices: Vec<String> = config.devices.iter().map(|osd| osd.path.display().to_string()).collect();
    let what = match options.wipe && !devices.is_empty() {
        true => format!("{} and all data on {} are deleted", dir.root().display(), devices.join(", ")),
        false => format!("{} is deleted", dir.root().display()),
    };
    confirm(options.yes, &what)?;
    agent::stop(&dir, &config)?;
    // What may fail comes first, while the command can be repeated.
    let gone = if options.wipe { wipe(&config, options.force)? } else { devices };
    if config.systemd {
        systemd::remove()?;
    }
    if dir.is_default() {
        remove_client_conf(&dir, &config)?;
    }
    fs::remove_dir_all(dir.root()).with_context(|| format!("cannot remove {}", dir.root().display()))?;
    let except = if gone.is_empty() { String::new() } else { format!(", except on {}", gone.join(", ")) };
    say(format_args!("Nothing of {} is left{except}.", config.name));
    Ok(())
}

/// Wipes the devices that hold OSDs of this host. A path may lead to another device by now, whose data stays.
/// Gives the devices that are gone.
fn wipe(config: &HostConfig, force: bool) -> Result<Vec<String>> {
    let mut gone = Vec::new();
    for osd in config.devices.iter().filter(|osd| osd.state != DeviceState::Accepted) {
        let path = osd.path.display();
        if !osd.path.exists() {
            ensure!(force, "{path} is gone: with --force, what is on it stays");
            gone.push(path.to_string());
            continue;
        }
        let target = Target::open_any(&osd.path, true)?;
        if osd.is_on(&target)? {
            if osd.wal.as_ref().is_some_and(|wal| !osd.has_log_file() && !wal.exists()) {
                let wal = osd.wal.as_ref().map(|wal| wal.display().to_string()).unwrap_or_default();
                ensure!(force, "{wal}, with the log of {path}, is gone: with --force, what is on it stays");
                gone.push(wal);
            } else {
                osd.wipe_log()?;
            }
            target.wipe(target.len).with_context(|| format!("cannot wipe {path}"))?;
        } else if target.content()?.is_some() {
            let name =
                osd.id.map_or("the OSD of this host".to_string(), |id| format!("osd.{id} of this host"));
            say(format_args!("{path} is left as it is: it does not hold {name}."));
        }
    }
    Ok(gone)
}

/// Where Ceph's clients look, if what is there is of this cluster.
fn remove_client_conf(dir: &HostDir, config: &HostConfig) -> Result<()> {
    let conf = dir.client_conf();
    let is_ours = fs::read_to_string(&conf).is_ok_and(|text| text.contains(&config.fsid.to_string()));
    for path in [conf, dir.client_keyring()] {
        if is_ours && path.exists() {
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    Ok(())
}

/// Asks whether to go on, unless that was said.
pub fn confirm(yes: bool, what: &str) -> Result<()> {
    if yes {
        return Ok(());
    }
    ensure!(io::stdin().is_terminal(), "{what}: confirm with --yes");
    eprint!("{what}. Go on? [y/N] ");
    io::stderr().flush()?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    if !matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes") {
        bail!("nothing was changed");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::dir::{PlannedOsd, Setup};
    use nacre_node::FileDisk;
    use nacre_store::{Options, Store};
    use uuid::Uuid;

    const OWN: Uuid = Uuid::from_u128(7);

    fn config(devices: &[(PathBuf, DeviceState)]) -> HostConfig {
        let addr = "10.0.0.1:3300".parse().unwrap();
        let mut config = HostConfig::new(Uuid::from_u128(1), "h1".to_string(), addr, Setup::Done);
        let planned = devices.iter().cloned().map(|(path, state)| PlannedOsd {
            uuid: OWN,
            state,
            ..PlannedOsd::new(path)
        });
        config.devices = planned.collect();
        config
    }

    #[test]
    fn device_that_is_gone_is_left_out_only_if_forced() {
        let gone = PathBuf::from("/nonexistent/disk");
        let config = config(&[(gone.clone(), DeviceState::Formatted)]);
        let refused = wipe(&config, false).unwrap_err().to_string();
        assert!(refused.contains("--force"), "{refused}");
        assert_eq!(wipe(&config, true).unwrap(), [gone.display().to_string()]);
    }

    #[test]
    fn only_own_stores_are_wiped() {
        let folder = tempfile::tempdir().unwrap();
        let store = |name: &str, uuid: Uuid| {
            let path = folder.path().join(name);
            let disk = FileDisk::create(&path, 1 << 30).unwrap();
            Store::format(&disk, Options { uuid: uuid.into_bytes(), ..Options::default() }).unwrap();
            path
        };
        let own = store("own", OWN);
        let other = store("other", Uuid::from_u128(8));
        let data = folder.path().join("data");
        fs::write(&data, vec![1; 1 << 20]).unwrap();
        let all = [
            (own.clone(), DeviceState::Formatted),
            (other.clone(), DeviceState::Formatted),
            (data.clone(), DeviceState::Formatting),
            (data.clone(), DeviceState::Accepted),
        ];
        // Also when it is repeated.
        for _ in 0..2 {
            wipe(&config(&all), false).unwrap();
            let content = |path: &PathBuf| Target::open_any(path, true).unwrap().content().unwrap();
            assert_eq!(
                [content(&own), content(&other), content(&data)],
                [None, Some("a Nacre store"), Some("data")]
            );
        }
    }
}
