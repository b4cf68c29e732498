//! The agent of a host: keeps its daemons running, reports to the monitors and does what they say.
//!
//! `Supervisor` starts each daemon that has a configuration in the host's folder, and starts it again when it
//! ends. Where systemd runs, it starts and stops the daemon's unit, and systemd starts a daemon again. A
//! daemon outlives the agent: the next one finds it by its pid file. `session` talks to the monitors on a
//! thread of its own, so that a monitor that does not answer delays nothing here.

mod devices;
mod orders;
mod session;

use crate::device::say;
use crate::files::remove_if_there;
use crate::fleet;
use crate::hosts::dir::{HostConfig, HostDir};
use crate::hosts::echo::Echo;
use crate::hosts::program::Successor;
use crate::hosts::systemd;
use crate::log;
use crate::name::DaemonName;
use crate::processes::{self, State};
use crate::stop_signals::StopSignals;
use crate::up::stop_in_order;
use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, WaitOptions, waitpid};
use session::Session;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// The name of its pid file and its log.
pub const AGENT: &str = "host";
/// How often daemons are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Before a daemon is started again, doubling.
const DELAY_MIN: Duration = Duration::from_secs(1);
const DELAY_MAX: Duration = Duration::from_secs(60);
/// A daemon that ran for so long is started again at once when it ends.
const HEALTHY_AFTER: Duration = Duration::from_secs(60);
/// For all daemons of a host to listen.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// For the agent to stop its daemons: OSDs, then monitors, then those that were starting.
const AGENT_STOP_TIMEOUT: Duration = Duration::from_secs(3 * processes::STOP_TIMEOUT.as_secs());
const POLL: Duration = Duration::from_millis(100);

/// Runs the agent in the foreground.
pub fn run(data: &Path) -> Result<()> {
    log::to_stderr();
    let dir = HostDir::at(data)?;
    dir.make()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut stop = StopSignals::new()?;
        let mut lock = fleet::lock(&dir.layout().run(), AGENT)?;
        lock.clear()?;
        lock.write_pid()?;
        fleet::ready();
        let Some(config) = wait_for_setup(&dir, &mut stop).await? else {
            lock.remove();
            return Ok(());
        };
        let session = Session::start(dir.clone())?;
        let echo = Echo::start(config.addr, config.fsid);
        if let Err(e) = &echo {
            tracing::warn!("hosts that join cannot check the network to this one: {e:#}");
        }
        let mut supervisor = Supervisor::new(dir, config.systemd && systemd::is_running());
        let mut successor = Successor::default();
        loop {
            if let Err(e) = supervisor.look() {
                tracing::error!("cannot supervise the daemons: {e:#}");
            }
            if let Some(version) = successor.look(Instant::now()) {
                tracing::info!("{version} is installed now: the agent continues with it");
                lock.remove();
                return become_successor();
            }
            tokio::select! {
                () = stop.wait() => break,
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
        tracing::info!("stopping");
        session.stop();
        echo.iter().for_each(Echo::stop);
        let stopped = supervisor.stop();
        lock.remove();
        stopped
    })
}

/// This process runs the program that is installed now. Daemons are not touched: it finds them by their pid
/// files.
fn become_successor() -> Result<()> {
    let program = processes::program()?;
    let error = Command::new(&program).args(std::env::args_os().skip(1)).exec();
    Err(error).with_context(|| format!("cannot run {}", program.display()))
}

/// The host, once it is one: in a container the agent may run before `nacre init` or `nacre join` does. None
/// if the agent is to stop.
async fn wait_for_setup(dir: &HostDir, stop: &mut StopSignals) -> Result<Option<HostConfig>> {
    let mut said = false;
    loop {
        if let Some(config) = dir.load()? {
            return Ok(Some(config));
        }
        if !std::mem::replace(&mut said, true) {
            tracing::info!(
                "waits until `nacre init` or `nacre join` makes a host of {}",
                dir.root().display()
            );
        }
        tokio::select! {
            () = stop.wait() => return Ok(None),
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
}

/// Starts the agent, if it does not run: with systemd, or in the background.
pub fn start(dir: &HostDir, config: &HostConfig) -> Result<()> {
    if config.systemd {
        systemd::start()?;
    } else if processes::settled(&dir.layout().pid(AGENT))? == State::Gone {
        processes::spawn(dir.layout(), AGENT, &["host-agent"], dir.root())?;
    }
    Ok(())
}

/// Waits until all daemons listen, or wait for memory.
pub fn wait_running(dir: &HostDir) -> Result<()> {
    let deadline = Instant::now() + START_TIMEOUT;
    loop {
        let mut waiting = Vec::new();
        for daemon in dir.daemons()? {
            let is_running = matches!(state(dir, &daemon)?, State::Runs(_) | State::Waits(_));
            if !is_running && is_wanted(dir, &daemon) {
                waiting.push(daemon.to_string());
            }
        }
        if waiting.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!(
                "after {} s these do not run: {} (logs: {})",
                START_TIMEOUT.as_secs(),
                waiting.join(", "),
                dir.root().join("log").display()
            );
        }
        std::thread::sleep(POLL);
    }
}

/// Stops the agent and all daemons. False if none ran.
pub fn stop(dir: &HostDir, config: &HostConfig) -> Result<bool> {
    let layout = dir.layout();
    let agent = processes::settled(&layout.pid(AGENT))?;
    let mut any = agent != State::Gone;
    if config.systemd {
        any |= !running(dir)?.is_empty();
        systemd::stop()?;
    } else if let State::Runs(pid) = agent {
        processes::stop_within(layout, AGENT, pid, AGENT_STOP_TIMEOUT)?;
    }
    // Those of an agent that was killed.
    Ok(stop_daemons(dir)? || any)
}

/// Stops all daemons, also those that are starting, as soon as they have published their pids. False if none
/// ran.
fn stop_daemons(dir: &HostDir) -> Result<bool> {
    let deadline = Instant::now() + START_TIMEOUT;
    let mut any = false;
    loop {
        let left = running(dir)?;
        any |= !left.is_empty();
        stop_in_order(dir.layout(), left)?;
        let daemons = dir.daemons()?;
        let states: Vec<State> = daemons.iter().map(|daemon| state(dir, daemon)).collect::<Result<_>>()?;
        if states.iter().all(|state| *state == State::Gone) {
            return Ok(any);
        }
        let starting = daemons.iter().zip(&states).filter(|(_, state)| **state == State::Starting);
        let starting: Vec<String> = starting.map(|(daemon, _)| daemon.to_string()).collect();
        ensure!(
            Instant::now() < deadline,
            "after {} s these are still starting: {}. Try again",
            START_TIMEOUT.as_secs(),
            starting.join(", ")
        );
        std::thread::sleep(POLL);
    }
}

/// `nacre start` and `nacre stop` of a daemon, if the folder is a host's. None if it is not.
pub fn set_stopped(data: &Path, daemon: &DaemonName, stop: bool) -> Result<Option<()>> {
    let dir = HostDir::at(data)?;
    let Some(config) = dir.load()? else { return Ok(None) };
    ensure!(dir.daemons()?.contains(daemon), "this host has no {daemon}");
    let _lock = dir.lock()?;
    let marker = dir.stopped(daemon);
    if stop {
        fs::write(&marker, "").with_context(|| format!("cannot write {}", marker.display()))?;
        if config.systemd {
            systemd::stop_daemons([daemon.to_string().as_str()].into_iter())?;
        }
        stop_daemon(&dir, daemon)?;
        say(format_args!("{daemon} stopped, until `nacre start {daemon}{}`", dir.option()));
    } else {
        remove_if_there(&marker)?;
        wait_running(&dir)?;
        say(format_args!("{daemon} runs"));
    }
    Ok(Some(()))
}

/// Stops one daemon. The caller has noted that it is to stay stopped, so the agent stops it if it is started
/// at this moment.
fn stop_daemon(dir: &HostDir, daemon: &DaemonName) -> Result<()> {
    match state(dir, daemon)? {
        State::Runs(pid) | State::Waits(pid) => processes::stop(dir.layout(), &daemon.to_string(), pid),
        State::Starting => bail!("{daemon} is starting, and is stopped as soon as it runs"),
        State::Gone => Ok(()),
    }
}

/// Whether a daemon is to run.
fn is_wanted(dir: &HostDir, daemon: &DaemonName) -> bool {
    !dir.stopped(daemon).exists() && !dir.in_maintenance().exists()
}

/// What a daemon's pid file says.
pub fn state(dir: &HostDir, daemon: &DaemonName) -> Result<State> {
    processes::state(&dir.layout().pid(&daemon.to_string()))
}

/// Names and pids of the daemons that run.
pub fn running(dir: &HostDir) -> Result<Vec<(String, i32)>> {
    running_of(dir, &dir.daemons()?)
}

fn running_of<'a>(
    dir: &HostDir,
    daemons: impl IntoIterator<Item = &'a DaemonName>,
) -> Result<Vec<(String, i32)>> {
    let mut found = Vec::new();
    for daemon in daemons {
        if let State::Runs(pid) | State::Waits(pid) = state(dir, daemon)? {
            found.push((daemon.to_string(), pid));
        }
    }
    Ok(found)
}

/// Keeps the daemons of a host running.
struct Supervisor {
    dir: HostDir,
    /// systemd runs the daemons.
    systemd: bool,
    daemons: BTreeMap<String, Supervised>,
    /// Those of which systemd was told that they are not to run.
    stopped_units: BTreeSet<String>,
}

/// A daemon that is supervised.
#[derive(Default)]
struct Supervised {
    /// None for one that an earlier agent started.
    child: Option<Child>,
    started: Option<Instant>,
    /// How often in a row it ended soon.
    failures: u32,
    not_before: Option<Instant>,
    /// The process, if an earlier agent started it. It may be a child of this process all the same.
    adopted: Option<i32>,
}

impl Supervisor {
    fn new(dir: HostDir, systemd: bool) -> Supervisor {
        Supervisor { dir, systemd, daemons: BTreeMap::new(), stopped_units: BTreeSet::new() }
    }

    /// Stops what runs and is not to, and starts what does not run and is due.
    fn look(&mut self) -> Result<()> {
        let daemons = self.dir.daemons()?;
        if let Err(e) = self.stop_unwanted(&daemons) {
            tracing::error!("{e:#}");
        }
        for daemon in &daemons {
            if let Err(e) = self.supervise(daemon) {
                tracing::error!("{daemon}: {e:#}");
            }
        }
        Ok(())
    }

    /// Also what was started while it was being stopped by hand, and what a maintenance began without.
    fn stop_unwanted(&mut self, daemons: &[DaemonName]) -> Result<()> {
        if self.systemd {
            let units = self.units_to_stop(daemons);
            systemd::stop_daemons(units.iter().map(String::as_str))?;
            self.stopped_units.extend(units);
        }
        let unwanted: Vec<&DaemonName> =
            daemons.iter().filter(|daemon| !is_wanted(&self.dir, daemon)).collect();
        let running = running_of(&self.dir, unwanted)?;
        if !running.is_empty() {
            let names: Vec<&str> = running.iter().map(|(name, _)| name.as_str()).collect();
            tracing::info!("stops {}", names.join(", "));
            if self.systemd {
                systemd::stop_daemons(names.into_iter())?;
            }
            // Also those that have no unit.
            stop_in_order(self.dir.layout(), running)?;
        }
        Ok(())
    }

    /// Those that are not to run any more, or are not of this host any more. It does not matter whether they
    /// run: systemd would go on to start one that fails.
    fn units_to_stop(&mut self, daemons: &[DaemonName]) -> Vec<String> {
        let wanted: BTreeSet<String> =
            daemons.iter().filter(|daemon| is_wanted(&self.dir, daemon)).map(DaemonName::to_string).collect();
        self.stopped_units.retain(|name| !wanted.contains(name));
        let known = self.daemons.keys().cloned().chain(daemons.iter().map(DaemonName::to_string));
        let unwanted = known.filter(|name| !wanted.contains(name) && !self.stopped_units.contains(name));
        unwanted.collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn supervise(&mut self, daemon: &DaemonName) -> Result<()> {
        let name = daemon.to_string();
        let known = self.daemons.entry(name.clone()).or_default();
        let is_wanted = is_wanted(&self.dir, daemon);
        if let Some(child) = &mut known.child {
            let Some(status) = child.try_wait()? else { return Ok(()) };
            known.child = None;
            if is_wanted {
                let delay = known.ended(Instant::now());
                tracing::warn!("{daemon} ended ({status}): starts again in {} s", delay.as_secs());
            }
        }
        if !is_wanted {
            // It was stopped on purpose: it starts at once when it is wanted again.
            *known = Supervised::default();
            return Ok(());
        }
        let state = processes::settled(&self.dir.layout().pid(&name))?;
        let is_gone = state == State::Gone;
        if let State::Runs(pid) | State::Waits(pid) = state {
            known.adopted = Some(pid);
        } else if let Some(pid) = known.adopted.take().filter(|_| is_gone).and_then(Pid::from_raw) {
            // Fails if it is no child.
            let _ = waitpid(Some(pid), WaitOptions::NOHANG);
        }
        let is_due = known.not_before.is_none_or(|at| at <= Instant::now());
        if !is_gone || !is_due {
            return Ok(());
        }
        if self.systemd {
            return known.start_unit(daemon);
        }
        let command = if daemon.is_mon() { "mon" } else { "osd" };
        let data = self.dir.layout().data_dir(daemon);
        let launched = processes::launch(self.dir.layout(), &name, &[command], &data);
        known.started = Some(Instant::now());
        if launched.is_err() {
            known.ended(Instant::now());
        }
        known.child = Some(launched?);
        tracing::info!("{daemon} starts");
        Ok(())
    }

    /// Daemons that systemd runs go on.
    fn stop(mut self) -> Result<()> {
        if self.systemd {
            return Ok(());
        }
        stop_in_order(self.dir.layout(), running(&self.dir)?)?;
        for (name, known) in &mut self.daemons {
            if let Some(child) = &mut known.child {
                processes::stop_child(name, child)?;
            }
        }
        Ok(())
    }
}

impl Supervised {
    /// Once: systemd starts the daemon again when it ends. One that was stopped with `systemctl` stays so.
    fn start_unit(&mut self, daemon: &DaemonName) -> Result<()> {
        if self.started.is_some() {
            return Ok(());
        }
        if let Err(e) = systemd::start_daemon(daemon) {
            self.ended(Instant::now());
            return Err(e);
        }
        self.started = Some(Instant::now());
        tracing::info!("{daemon} starts");
        Ok(())
    }

    /// It ended. Gives how long it is not started again.
    fn ended(&mut self, now: Instant) -> Duration {
        let was_healthy = self.started.is_some_and(|started| now - started >= HEALTHY_AFTER);
        self.failures = if was_healthy { 0 } else { self.failures + 1 };
        let delay = match self.failures {
            0 => Duration::ZERO,
            failures => (DELAY_MIN * 2_u32.pow((failures - 1).min(10))).min(DELAY_MAX),
        };
        self.not_before = Some(now + delay);
        delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::LockFile;
    use std::sync::mpsc;
    use std::thread::{self, JoinHandle};

    #[test]
    fn daemon_that_ends_soon_is_started_again_later_each_time() {
        let mut known = Supervised::default();
        let now = Instant::now();
        known.started = Some(now);
        let delays: Vec<u64> = (0..8).map(|_| known.ended(now).as_secs()).collect();
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(known.ended(now + HEALTHY_AFTER), Duration::ZERO);
        known.started = Some(now + HEALTHY_AFTER);
        assert_eq!(known.ended(now + HEALTHY_AFTER), DELAY_MIN);
    }

    const OSD: DaemonName = DaemonName::Osd(0);

    /// The folder of a host that has one daemon.
    fn host() -> (tempfile::TempDir, HostDir) {
        let folder = tempfile::tempdir().unwrap();
        let dir = HostDir::at(folder.path()).unwrap();
        dir.make().unwrap();
        fs::create_dir(dir.layout().data_dir(&OSD)).unwrap();
        fs::write(dir.layout().data_dir(&OSD).join("daemon.json"), "{}").unwrap();
        (folder, dir)
    }

    /// A process that ends when it is asked to.
    fn process() -> Child {
        Command::new("sleep").arg("600").spawn().unwrap()
    }

    /// Holds the daemon's pid file for a process until that ends. Its pid is in the file after `delay`.
    fn publish(dir: &HostDir, mut process: Child, delay: Duration) -> JoinHandle<()> {
        let path = dir.layout().pid("osd.0");
        let lock = LockFile::take(path.clone()).unwrap().unwrap();
        lock.clear().unwrap();
        thread::spawn(move || {
            thread::sleep(delay);
            fs::write(&path, format!("{}\n", process.id())).unwrap();
            process.wait().unwrap();
            lock.remove();
        })
    }

    #[test]
    fn unit_of_a_daemon_that_is_not_wanted_or_gone_is_stopped_once_whether_it_runs_or_not() {
        let (_folder, dir) = host();
        let mut supervisor = Supervisor::new(dir.clone(), true);
        let mut to_stop = |daemons: &[DaemonName]| {
            let units = supervisor.units_to_stop(daemons);
            supervisor.stopped_units.extend(units.clone());
            supervisor.daemons.entry("osd.0".to_string()).or_default();
            units
        };
        assert!(to_stop(&[OSD]).is_empty());
        // It fails again and again, so it is never seen to run.
        fs::write(dir.stopped(&OSD), "").unwrap();
        assert_eq!(to_stop(&[OSD]), ["osd.0"]);
        assert!(to_stop(&[OSD]).is_empty());
        fs::remove_file(dir.stopped(&OSD)).unwrap();
        assert!(to_stop(&[OSD]).is_empty());
        // Its disk was moved to another host.
        assert_eq!(to_stop(&[]), ["osd.0"]);
        assert!(to_stop(&[]).is_empty());
    }

    #[test]
    fn agent_that_stops_stops_a_daemon_that_is_starting() {
        let (_folder, dir) = host();
        let mut supervisor = Supervisor::new(dir, false);
        let known = Supervised { child: Some(process()), ..Supervised::default() };
        supervisor.daemons.insert("osd.0".to_string(), known);
        let (done, stopped) = mpsc::channel();
        thread::spawn(move || done.send(supervisor.stop()));
        stopped.recv_timeout(Duration::from_secs(20)).unwrap().unwrap();
    }

    #[test]
    fn daemons_of_a_killed_agent_are_stopped_also_if_they_are_starting() {
        let (_folder, dir) = host();
        let osd = publish(&dir, process(), Duration::from_millis(500));
        assert_eq!(state(&dir, &OSD).unwrap(), State::Starting);
        assert!(stop_daemons(&dir).unwrap());
        assert_eq!(state(&dir, &OSD).unwrap(), State::Gone);
        osd.join().unwrap();
        assert!(!stop_daemons(&dir).unwrap());
    }

    #[test]
    fn daemon_that_is_not_wanted_is_stopped_and_starts_at_once_afterwards() {
        let markers: [fn(&HostDir) -> std::path::PathBuf; 2] =
            [|dir| dir.stopped(&OSD), HostDir::in_maintenance];
        for marker in markers {
            let (_folder, dir) = host();
            let osd = publish(&dir, process(), Duration::ZERO);
            while !matches!(state(&dir, &OSD).unwrap(), State::Runs(_)) {
                thread::sleep(Duration::from_millis(10));
            }
            fs::write(marker(&dir), "").unwrap();
            let mut supervisor = Supervisor::new(dir.clone(), false);
            supervisor.look().unwrap();
            assert_eq!(state(&dir, &OSD).unwrap(), State::Gone);
            osd.join().unwrap();

            // Its own child, which ended soon after it was started.
            let mut child = process();
            child.kill().unwrap();
            child.wait().unwrap();
            let known =
                Supervised { child: Some(child), started: Some(Instant::now()), ..Supervised::default() };
            supervisor.daemons.insert("osd.0".to_string(), known);
            supervisor.look().unwrap();
            let known = &supervisor.daemons["osd.0"];
            assert!(known.child.is_none() && known.failures == 0 && known.not_before.is_none());
        }
    }
}
