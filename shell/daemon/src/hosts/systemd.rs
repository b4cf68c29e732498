//! The agent and the daemons of this system's host as units of systemd, on systems that run it.
//!
//! The agent decides which daemons run, and starts and stops their units. systemd starts a daemon again that
//! ends by itself, also while there is no agent. A package brings the units along; without one they are
//! written by `start`.

use crate::files::remove_if_there;
use crate::hosts::dir::DATA_DEFAULT;
use crate::name::DaemonName;
use crate::processes::ALLOCATOR;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;
use std::process::Command;

const AGENT: &str = "nacre-host.service";
const TARGET: &str = "nacre.target";
/// Units that are written here.
const WRITTEN: &str = "/etc/systemd/system";
/// Units of packages.
pub const PACKAGED: &str = "/lib/systemd/system";
/// Its first line says which units `start` wrote.
const MARK: &str = "# Written by Nacre.\n";

/// Whether systemd runs this system. In most containers it does not.
pub fn is_running() -> bool {
    Path::new("/run/systemd/system").exists()
}

/// All units, with their file names.
pub fn units(program: &Path) -> [(&'static str, String); 4] {
    [
        (TARGET, target()),
        (AGENT, agent(program)),
        ("nacre-mon@.service", daemon(program, "monitor", "mon", "")),
        // The monitor of a host, which has the host's name, stops after the OSDs: they report to it.
        ("nacre-osd@.service", daemon(program, "OSD", "osd", " nacre-mon@%l.service nacre-mon@%H.service")),
    ]
}

fn target() -> String {
    "[Unit]\n\
     Description=Nacre: all daemons of this host\n\
     Documentation=man:nacre(1)\n\
     \n\
     [Install]\n\
     WantedBy=multi-user.target\n"
        .to_string()
}

/// `KillMode=process`: daemons outlive an agent that ends by itself, also those that it started without
/// systemd.
fn agent(program: &Path) -> String {
    format!(
        "[Unit]\n\
         Description=Nacre host agent, which starts and stops the daemons of this host\n\
         Documentation=man:nacre-host-agent(1)\n\
         After=network-online.target local-fs.target time-sync.target\n\
         Wants=network-online.target\n\
         PartOf={TARGET}\n\
         StartLimitIntervalSec=0\n\
         \n\
         [Service]\n\
         Type=notify\n\
         EnvironmentFile=-/etc/default/nacre\n\
         ExecStart={program} host-agent --data {DATA_DEFAULT}\n\
         Restart=always\n\
         RestartSec=2\n\
         KillMode=process\n\
         TimeoutStopSec=120\n\
         LimitNOFILE=1048576\n\
         TasksMax=infinity\n\
         \n\
         [Install]\n\
         WantedBy={TARGET}\n",
        program = program.display(),
    )
}

/// A daemon that waits for memory may take any time to start. One that stops waits no longer than 40 s for
/// its own end.
fn daemon(program: &Path, what: &str, kind: &str, after: &str) -> String {
    let (tunables, value) = ALLOCATOR;
    format!(
        "[Unit]\n\
         Description=Nacre {what} {kind}.%i\n\
         Documentation=man:nacre-{kind}(1)\n\
         After=network-online.target local-fs.target time-sync.target{after}\n\
         Wants=network-online.target\n\
         PartOf={TARGET}\n\
         StartLimitIntervalSec=0\n\
         \n\
         [Service]\n\
         Type=notify\n\
         Environment={tunables}={value}\n\
         EnvironmentFile=-/etc/default/nacre\n\
         ExecStart={program} {kind} --data {DATA_DEFAULT}/{kind}.%i\n\
         StandardOutput=append:{DATA_DEFAULT}/log/{kind}.%i.log\n\
         StandardError=append:{DATA_DEFAULT}/log/{kind}.%i.log\n\
         UMask=0077\n\
         Restart=always\n\
         RestartSec=1\n\
         # Up to a minute between attempts, from systemd 254 on.\n\
         RestartSteps=6\n\
         RestartMaxDelaySec=60\n\
         TimeoutStartSec=infinity\n\
         TimeoutStopSec=60\n\
         LimitNOFILE=1048576\n\
         TasksMax=infinity\n",
        program = program.display(),
    )
}

fn unit_of(daemon: &str) -> String {
    format!("nacre-{}.service", daemon.replacen('.', "@", 1))
}

/// Writes the units, unless a package brought them, and has systemd start the agent now and whenever the
/// system starts.
pub fn start() -> Result<()> {
    let program = crate::processes::program()?;
    if write_units(&program, Path::new(PACKAGED), Path::new(WRITTEN))? {
        systemctl(&["daemon-reload"])?;
    }
    systemctl(&["enable", TARGET, AGENT])?;
    systemctl(&["start", TARGET, AGENT])
}

/// True if anything changed. Units in `written` hide those in `packaged`, so they are removed where the
/// package's units start the same program. Files that we did not write are left alone.
fn write_units(program: &Path, packaged: &Path, written: &Path) -> Result<bool> {
    let mut changed = false;
    for (name, text) in units(program) {
        let path = written.join(name);
        let there = fs::read_to_string(&path).ok();
        let is_ours = there.as_ref().is_some_and(|there| there.starts_with(MARK));
        if fs::read_to_string(packaged.join(name)).is_ok_and(|packaged| packaged == text) {
            if is_ours {
                remove_if_there(&path)?;
                changed = true;
            }
        } else if there.is_none() || is_ours && there.is_some_and(|there| there != format!("{MARK}{text}")) {
            fs::write(&path, format!("{MARK}{text}"))
                .with_context(|| format!("cannot write {}", path.display()))?;
            changed = true;
        }
    }
    Ok(changed)
}

/// Starts a daemon, and does not wait until it is ready.
pub fn start_daemon(daemon: &DaemonName) -> Result<()> {
    systemctl(&["start", "--no-block", &unit_of(&daemon.to_string())])
}

/// Stops daemons, OSDs before monitors. Those that do not run as units are left alone.
pub fn stop_daemons<'a>(daemons: impl Iterator<Item = &'a str>) -> Result<()> {
    let (mons, osds): (Vec<String>, Vec<String>) =
        daemons.map(unit_of).partition(|unit| unit.starts_with("nacre-mon@"));
    for units in [osds, mons].iter().filter(|units| !units.is_empty()) {
        systemctl(&["stop"].into_iter().chain(units.iter().map(String::as_str)).collect::<Vec<_>>())?;
    }
    Ok(())
}

/// Stops the agent and all daemons, also those that are about to be started again. Patterns, so that units
/// that are gone already are no error.
pub fn stop() -> Result<()> {
    ["nacre-host*", "nacre-osd@*", "nacre-mon@*", "nacre*.target"]
        .iter()
        .try_for_each(|units| systemctl(&["stop", units]))
}

/// Has systemd start nothing any more, and deletes the units that we wrote. May be repeated.
pub fn remove() -> Result<()> {
    stop()?;
    remove_units(Path::new(PACKAGED), Path::new(WRITTEN))
}

fn remove_units(packaged: &Path, written: &Path) -> Result<()> {
    if ![packaged, written].iter().any(|units| units.join(AGENT).exists()) {
        return Ok(());
    }
    systemctl(&["disable", TARGET, AGENT])?;
    for (name, _) in units(Path::new("nacre")) {
        let path = written.join(name);
        if fs::read_to_string(&path).is_ok_and(|text| text.starts_with(MARK)) {
            remove_if_there(&path)?;
        }
    }
    systemctl(&["daemon-reload"])
}

fn systemctl(words: &[&str]) -> Result<()> {
    let output = Command::new("systemctl").args(words).output().context("cannot run systemctl")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "systemctl {}: {}", words.join(" "), said.trim());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_that_were_removed_already_are_no_error() {
        let gone = Path::new("/nonexistent");
        remove_units(gone, gone).unwrap();
    }

    #[test]
    fn units_start_the_agent_and_the_daemons() {
        let units = units(Path::new("/usr/bin/nacre"));
        for (name, lines) in [
            (AGENT, ["ExecStart=/usr/bin/nacre host-agent --data /var/lib/nacre", "KillMode=process"]),
            (
                "nacre-osd@.service",
                ["ExecStart=/usr/bin/nacre osd --data /var/lib/nacre/osd.%i", "Type=notify"],
            ),
            (
                "nacre-mon@.service",
                ["ExecStart=/usr/bin/nacre mon --data /var/lib/nacre/mon.%i", "Restart=always"],
            ),
        ] {
            let (_, text) = units.iter().find(|(found, _)| *found == name).unwrap();
            assert!(lines.iter().all(|line| text.lines().any(|found| found == *line)), "{text}");
        }
        assert_eq!(unit_of("mon.a.example"), "nacre-mon@a.example.service");
    }

    #[test]
    fn units_are_written_where_no_package_brought_them() {
        let (packaged, written) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let count = || fs::read_dir(written.path()).unwrap().count();
        let write = |program: &str| write_units(Path::new(program), packaged.path(), written.path()).unwrap();
        assert!(write("/opt/nacre") && !write("/opt/nacre"));
        assert_eq!(count(), 4);
        // A file of the administrator.
        fs::write(written.path().join(AGENT), "[Unit]\n").unwrap();
        assert!(write("/usr/bin/nacre"));
        assert_eq!(fs::read_to_string(written.path().join(AGENT)).unwrap(), "[Unit]\n");
        for (name, text) in units(Path::new("/usr/bin/nacre")) {
            fs::write(packaged.path().join(name), text).unwrap();
        }
        assert!(write("/usr/bin/nacre") && !write("/usr/bin/nacre"));
        assert_eq!(count(), 1);
    }
}
