//! What administrators have the agent of a host do (`ceph orch`).
//!
//! Orders have numbers. The highest that was carried out is in the host's folder, so that each is carried out
//! once, and the monitors are told it with the next report.

use crate::device::Target;
use crate::files::{remove_if_there, replace};
use crate::hosts::agent::devices::Devices;
use crate::hosts::agent::state;
use crate::hosts::devices::{AddOsd, add_osd};
use crate::hosts::dir::{HostConfig, HostDir};
use crate::name::DaemonName;
use crate::processes::{self, State};
use anyhow::{Context, Result, bail, ensure};
use nacre_node::BlockingClient;
use nacre_store::Held;
use serde::Deserialize;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// An order of the monitors, which is carried out once.
#[derive(Debug, Deserialize)]
pub struct Order {
    id: u64,
    action: String,
    target: String,
    /// What was on the device when the order was given.
    #[serde(default)]
    seen: Value,
}

/// An OSD that is being removed from the cluster.
#[derive(Debug, Deserialize)]
pub struct Removal {
    osd: u32,
    /// `stop` or `delete`.
    stage: String,
    zap: bool,
}

/// The number of the last order that was carried out.
pub fn done(dir: &HostDir) -> u64 {
    let text = fs::read_to_string(file(dir)).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

fn file(dir: &HostDir) -> PathBuf {
    dir.root().join("orders")
}

/// Carries out those that are new. One that fails is logged, and not tried again. While another command works
/// on the host, all of them wait: they come again with the next report.
pub fn carry_out(
    dir: &HostDir,
    config: &mut HostConfig,
    client: &BlockingClient,
    devices: &mut Devices,
    orders: &[Order],
) -> Result<()> {
    for order in orders {
        if order.id <= done(dir) {
            continue;
        }
        let Some(_lock) = dir.try_lock()? else { return Ok(()) };
        // That command may have changed it.
        *config = dir.load()?.context("the host's configuration is gone")?;
        // Before it is carried out: an agent that crashes because of it must not do so again.
        replace(&file(dir), format!("{}\n", order.id))?;
        let Order { action, target, .. } = order;
        match one(dir, config, client, devices, order) {
            Ok(()) => tracing::info!("{action} {target}: done, as the monitors want it"),
            Err(e) => tracing::error!("{action} {target}: {e:#}"),
        }
    }
    Ok(())
}

fn one(
    dir: &HostDir,
    config: &mut HostConfig,
    client: &BlockingClient,
    devices: &mut Devices,
    order: &Order,
) -> Result<()> {
    let path = Path::new(&order.target);
    let (action, with) = order.action.split_once(' ').unwrap_or((&order.action, ""));
    match action {
        "rescan" => devices.rescan(),
        "zap" => {
            let device = devices.unchanged(config, path, &order.seen)?;
            let target = Target::open_any(path, true)?;
            // No other process can open it for a store from here on.
            let label = match Held::on(&target) {
                Some(Held::Store { uuid, .. } | Held::Log { uuid, .. }) => Some(Uuid::from_bytes(uuid)),
                None => None,
            };
            let is_same = label == device.store.or(device.log_of) && target.len == device.size;
            ensure!(is_same, "{} changed at this moment", path.display());
            target.wipe(target.len).with_context(|| format!("cannot erase {}", path.display()))?;
            devices.rescan();
        }
        "add-osd" => {
            devices.unchanged(config, path, &order.seen)?;
            let with = match with {
                "" => AddOsd::default(),
                text => serde_json::from_str(text).context("the order's options are not understood")?,
            };
            let id = add_osd(dir, config, path, &with, client)?;
            tracing::info!("osd.{id} is on {}", path.display());
        }
        "start" | "stop" | "restart" => {
            let daemon: DaemonName = order.target.parse()?;
            ensure!(dir.daemons()?.contains(&daemon), "this host has no {daemon}");
            match action {
                "start" => remove_if_there(&dir.stopped(&daemon))?,
                // The order is done when the daemon is: until then the monitors count on its stop. The
                // supervisor stops one that is starting.
                "stop" => {
                    fs::write(dir.stopped(&daemon), "").context("cannot note that it is to stop")?;
                    if state(dir, &daemon)? != State::Starting {
                        stop(dir, &daemon)?;
                    }
                }
                _ => stop(dir, &daemon)?,
            }
        }
        other => bail!("`{other}` is not known to this version"),
    }
    Ok(())
}

/// One that is to run is started again.
fn stop(dir: &HostDir, daemon: &DaemonName) -> Result<()> {
    match state(dir, daemon)? {
        State::Runs(pid) | State::Waits(pid) => processes::stop(dir.layout(), &daemon.to_string(), pid),
        State::Starting => bail!("{daemon} is starting"),
        State::Gone => Ok(()),
    }
}

/// Takes OSDs that are removed a step further.
pub fn remove(
    dir: &HostDir,
    config: &mut HostConfig,
    devices: &mut Devices,
    removals: &[Removal],
) -> Result<()> {
    for Removal { osd, stage, zap } in removals {
        let daemon = DaemonName::Osd(*osd);
        if !dir.daemons()?.contains(&daemon) {
            continue;
        }
        // The supervisor stops it, also while it is about to be started again.
        let was_told = dir.stopped(&daemon).exists();
        if !was_told {
            fs::write(dir.stopped(&daemon), "").context("cannot note that it is to stop")?;
        }
        if !was_told || stage != "delete" || state(dir, &daemon)? != State::Gone {
            continue;
        }
        let _lock = dir.lock()?;
        for planned in config.devices.iter().filter(|planned| *zap && planned.id == Some(*osd)) {
            let erased = devices.erase(config, planned);
            erased.with_context(|| format!("{daemon} is kept, since its device cannot be erased"))?;
        }
        config.devices.retain(|planned| planned.id != Some(*osd));
        dir.save(config)?;
        dir.layout().remove(&daemon)?;
        devices.rescan();
        tracing::info!("{daemon} is removed from this host");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::dir::Setup;
    use serde_json::json;

    #[test]
    fn order_waits_while_another_command_works_on_the_host() {
        let folder = tempfile::tempdir().unwrap();
        let dir = HostDir::at(folder.path()).unwrap();
        dir.make().unwrap();
        let addr = "10.0.0.1:3300".parse().unwrap();
        let mut config = HostConfig::new(Uuid::from_u128(1), "h1".to_string(), addr, Setup::Done);
        dir.save(&config).unwrap();
        let osd = DaemonName::Osd(3);
        fs::create_dir(dir.layout().data_dir(&osd)).unwrap();
        fs::write(dir.layout().data_dir(&osd).join("daemon.json"), "{}").unwrap();
        let client = BlockingClient::connect(Vec::new(), None, 1, 1);
        let mut devices = Devices::new(dir.clone());
        let orders: Vec<Order> =
            serde_json::from_value(json!([{ "id": 1, "action": "stop", "target": "osd.3" }])).unwrap();
        let mut turn = || {
            carry_out(&dir, &mut config, &client, &mut devices, &orders).unwrap();
            (done(&dir), dir.stopped(&osd).exists())
        };
        let lock = dir.lock().unwrap();
        assert_eq!(turn(), (0, false));
        drop(lock);
        assert_eq!(turn(), (1, true));
        // Once.
        fs::remove_file(dir.stopped(&osd)).unwrap();
        assert_eq!(turn(), (1, false));
    }
}
