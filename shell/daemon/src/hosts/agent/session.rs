//! What the agent and the monitors tell each other.
//!
//! The agent reports facts and the state of its daemons. The answer names the monitors of the cluster, which
//! every daemon and client of this host is to know, and the monitor that this host is to run.

use crate::admission::resident;
use crate::ask::command_with;
use crate::config::DaemonConfig;
use crate::files::write_secret;
use crate::host;
use crate::hosts::agent::devices::Devices;
use crate::hosts::agent::orders::{self, Order, Removal};
use crate::hosts::agent::state;
use crate::hosts::dir::{HostConfig, HostDir, Setup};
use crate::hosts::monitor::{monitor_id, new_monitor};
use crate::hosts::program::{Installed, is_outdated};
use crate::kinds::MonMember;
use crate::name::DaemonName;
use crate::processes::{self, State};
use crate::release;
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use nacre_node::BlockingClient;
use serde::Deserialize;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const REPORT_EVERY: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs until it is stopped.
pub struct Session {
    stop: Arc<AtomicBool>,
}

impl Session {
    pub fn start(dir: HostDir) -> Result<Session> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let run = move || {
            let mut reporter = Reporter {
                devices: Devices::new(dir.clone()),
                dir,
                client: None,
                reported: BTreeMap::new(),
                last_error: String::new(),
                installed: Installed::default(),
                memory: BTreeMap::new(),
            };
            while !stopped.load(Ordering::Relaxed) {
                reporter.turn();
                let polls = REPORT_EVERY.as_millis() / POLL.as_millis();
                for _ in 0..polls {
                    if stopped.load(Ordering::Relaxed) {
                        return;
                    }
                    std::thread::sleep(POLL);
                }
            }
        };
        std::thread::Builder::new().name("agent".into()).spawn(run).context("cannot start a thread")?;
        Ok(Session { stop })
    }

    /// The thread ends by itself; a monitor that does not answer would keep us waiting.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

struct Reporter {
    dir: HostDir,
    devices: Devices,
    client: Option<BlockingClient>,
    /// The facts that the monitors know.
    reported: BTreeMap<String, String>,
    /// The last error, which is logged once.
    last_error: String,
    installed: Installed,
    /// Bytes of memory of each daemon, as the monitors were told.
    memory: BTreeMap<String, u64>,
}

/// What the monitors answer to a report.
#[derive(Debug, Deserialize)]
struct Orders {
    mons: Vec<SocketAddr>,
    monitor: Option<MonitorOrder>,
    /// False while the host is in maintenance.
    run: bool,
    /// OSDs whose disks are on other hosts by now, where they run.
    #[serde(default)]
    moved: Vec<u32>,
    /// Daemons that are to run the program that is installed now.
    #[serde(default)]
    restart: Vec<String>,
    #[serde(default)]
    orders: Vec<Order>,
    #[serde(default)]
    remove: Vec<Removal>,
    /// The numbers of monitors that were removed.
    #[serde(default)]
    removed_monitors: BTreeSet<u64>,
}

/// The monitor that this host is to run.
#[derive(Debug, Deserialize)]
struct MonitorOrder {
    id: u64,
    name: String,
    /// The monitors that there are, with what they know each other by. Only if asked for.
    #[serde(default)]
    members: Vec<KnownMonitor>,
    keyring: Option<String>,
    admin_keyring: Option<String>,
}

#[derive(Debug, Deserialize)]
struct KnownMonitor {
    id: u64,
    name: String,
    addr: SocketAddr,
}

impl Reporter {
    fn turn(&mut self) {
        let error = match self.report() {
            Ok(()) => String::new(),
            Err(e) => format!("{e:#}"),
        };
        if !error.is_empty() && error != self.last_error {
            tracing::warn!("the report of this host did not reach the monitors: {error}");
        }
        self.last_error = error;
    }

    fn report(&mut self) -> Result<()> {
        let config = self.dir.load()?.context("the host's configuration is gone")?;
        // Not known to the monitors yet.
        if matches!(config.setup, Setup::Founding | Setup::Joining) || !self.dir.host_keyring().exists() {
            return Ok(());
        }
        let mut facts = self.facts()?;
        if let Some(devices) = self.devices.fact(&config)? {
            facts.insert("devices".to_string(), devices);
        }
        let changed: BTreeMap<&String, &String> =
            facts.iter().filter(|(name, fact)| self.reported.get(*name) != Some(fact)).collect();
        let input = if changed.is_empty() { Bytes::new() } else { serde_json::to_vec(&changed)?.into() };
        let orders = self.ask(&config, "", input)?;
        self.reported.extend(facts);
        // The setup command writes the configuration until it is done.
        if config.setup != Setup::Done {
            return Ok(());
        }
        self.follow_maintenance(orders.run)?;
        self.restart(&orders.restart)?;
        self.retire_monitors(&orders)?;
        let mut config = config;
        if !orders.mons.is_empty() && orders.mons != config.mons {
            self.dir.follow_monitors(&mut config, orders.mons)?;
            tracing::info!("the monitors are at {}", addresses(&config.mons));
        }
        if let Some(monitor) = orders.monitor {
            self.make_monitor(&config, &monitor)?;
        }
        if let Some(client) = self.client.as_ref().filter(|_| orders.run) {
            self.devices.follow(&mut config, client);
            self.devices.forget(&mut config, &orders.moved)?;
            orders::carry_out(&self.dir, &mut config, client, &mut self.devices, &orders.orders)?;
        }
        orders::remove(&self.dir, &mut config, &mut self.devices, &orders.remove)
    }

    fn ask(&mut self, config: &HostConfig, want: &str, input: Bytes) -> Result<Orders> {
        let client = match &self.client {
            Some(client) => client,
            None => self.client.insert(self.dir.agent_access(config)?.connect()),
        };
        let words = json!({
            "prefix": "host report", "name": config.name, "want": want, "done": orders::done(&self.dir),
            "format": "json",
        });
        let answer = command_with(client, &words, input, PATIENCE);
        if answer.is_err() {
            // Another session, to the monitors as the configuration has them by then; and all facts again.
            self.client = None;
            self.reported.clear();
        }
        serde_json::from_slice(&answer?).context("the reply to a report is not understood")
    }

    fn facts(&mut self) -> Result<BTreeMap<String, String>> {
        let mut facts = host::facts();
        facts.insert("hostname".to_string(), host::hostname());
        facts.insert("version".to_string(), release::version().to_string());
        // None while it is being replaced.
        if let Ok(installed) = self.installed.version() {
            facts.insert("installed".to_string(), installed);
        }
        let mut daemons = Vec::new();
        for daemon in self.dir.daemons()? {
            let state = state(&self.dir, &daemon)?;
            let outdated = matches!(state, State::Runs(pid) if is_outdated(pid));
            let is = match state {
                State::Runs(_) => "running",
                State::Waits(_) => "waiting",
                State::Starting => "starting",
                State::Gone if self.dir.stopped(&daemon).exists() => "stopped",
                State::Gone => "error",
            };
            let mut fact = json!({ "name": daemon.to_string(), "state": is, "outdated": outdated });
            if let State::Runs(pid) = state
                && let Some(bytes) = resident(pid)
            {
                let told = self.memory.entry(daemon.to_string()).or_default();
                *told = if is_near(*told, bytes) { *told } else { bytes };
                fact["memory"] = json!(told);
            }
            daemons.push(fact);
        }
        facts.insert("daemons".to_string(), json!(daemons).to_string());
        Ok(facts)
    }

    /// Stops daemons that run another program than the one that is installed. The supervisor starts them
    /// again.
    fn restart(&self, wanted: &[String]) -> Result<()> {
        for daemon in self.dir.daemons()? {
            let name = daemon.to_string();
            if let State::Runs(pid) = state(&self.dir, &daemon)?
                && wanted.contains(&name)
                && is_outdated(pid)
            {
                tracing::info!("{name} is restarted, with the program that is installed now");
                processes::stop(self.dir.layout(), &name, pid)?;
            }
        }
        Ok(())
    }

    /// Stops monitors of this host that were removed from the cluster, or that another one replaces. Their
    /// stores are kept under other names: no daemon uses them again.
    fn retire_monitors(&self, orders: &Orders) -> Result<()> {
        for daemon in self.dir.daemons()?.into_iter().filter(DaemonName::is_mon) {
            let data = self.dir.layout().data_dir(&daemon);
            let is_other = |id: u64| orders.monitor.as_ref().is_some_and(|order| order.id != id);
            let is_retired = |id: &u64| orders.removed_monitors.contains(id) || is_other(*id);
            let Some(id) = monitor_id(&DaemonConfig::load(&data)?).filter(is_retired) else { continue };
            let marker = self.dir.stopped(&daemon);
            std::fs::write(&marker, "").with_context(|| format!("cannot write {}", marker.display()))?;
            // The supervisor stops it, and this is done with a later report.
            if state(&self.dir, &daemon)? == State::Gone {
                let kept = self.dir.root().join(format!("removed-{daemon}-{id}"));
                std::fs::rename(&data, &kept).with_context(|| format!("cannot rename {}", data.display()))?;
                tracing::info!("{daemon} was removed from the cluster: its store is {}", kept.display());
            }
        }
        Ok(())
    }

    /// A file says whether the daemons are to run, so that they stay as they are where no monitor answers.
    fn follow_maintenance(&self, run: bool) -> Result<()> {
        let path = self.dir.in_maintenance();
        if run == path.exists() {
            let done = if run { std::fs::remove_file(&path) } else { std::fs::write(&path, "") };
            done.with_context(|| format!("cannot change {}", path.display()))?;
        }
        Ok(())
    }

    /// Makes the monitor that this host is to run, if it is not there. Its configuration is written last, and
    /// the supervisor starts it then.
    fn make_monitor(&mut self, config: &HostConfig, order: &MonitorOrder) -> Result<()> {
        let daemon = DaemonName::mon(&order.name)?;
        let data = self.dir.layout().data_dir(&daemon);
        if data.join("daemon.json").exists() {
            return Ok(());
        }
        let order = self
            .ask(config, "monitor", Bytes::new())?
            .monitor
            .context("the monitor is not wanted any more")?;
        ensure!(DaemonName::mon(&order.name)? == daemon, "another monitor is wanted by now");
        let keys = order.keyring.zip(order.admin_keyring);
        let (keyring, admin) = keys.context("the monitors do not say their key")?;
        write_secret(&self.dir.layout().mon_keyring(), &keyring)?;
        write_secret(&self.dir.layout().admin_keyring(), &admin)?;
        self.dir.save_client_conf(config)?;
        let known = order.members.into_iter().filter(|known| known.id != order.id);
        let members =
            known.map(|known| MonMember { name: known.name, id: known.id, addr: known.addr, founder: false });
        let own = MonMember { name: order.name.clone(), id: order.id, addr: config.addr, founder: false };
        new_monitor(&self.dir, config, members.chain([own]).collect(), &order.name, BTreeMap::new())?;
        tracing::info!("{daemon} was made, as the monitors want it");
        Ok(())
    }
}

/// Whether so little changed that it is no news: the monitors store every fact that changes.
fn is_near(told: u64, now: u64) -> bool {
    told.abs_diff(now) <= told / 8
}

fn addresses(addrs: &[SocketAddr]) -> String {
    addrs.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_news_when_it_changed_by_more_than_an_eighth() {
        for (told, now, is_news) in
            [(0, 1, true), (800, 899, false), (800, 901, true), (800, 699, true), (800, 700, false)]
        {
            assert_eq!(!is_near(told, now), is_news, "{told} {now}");
        }
    }
}
