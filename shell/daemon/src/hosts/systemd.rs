//! The agent as a unit of systemd, on systems that run it. The agent runs the daemons there as well.

use crate::hosts::dir::HostDir;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;
use std::process::Command;

pub const UNIT: &str = "nacre-host.service";
const UNITS: &str = "/etc/systemd/system";

/// Whether systemd runs this system. In most containers it does not.
pub fn is_running() -> bool {
    Path::new("/run/systemd/system").exists()
}

/// `KillMode=process`: daemons outlive an agent that ends by itself. One that is asked to stop stops them.
fn unit(program: &Path, dir: &HostDir) -> String {
    format!(
        "# Written by Nacre.\n\
         [Unit]\n\
         Description=Nacre host agent, which runs the daemons of this host\n\
         After=network-online.target local-fs.target time-sync.target\n\
         Wants=network-online.target\n\
         \n\
         [Service]\n\
         Type=exec\n\
         ExecStart={program} host-agent --data {data}\n\
         Restart=always\n\
         RestartSec=2\n\
         KillMode=process\n\
         TimeoutStopSec=120\n\
         LimitNOFILE=1048576\n\
         TasksMax=infinity\n\
         \n\
         [Install]\n\
         WantedBy=multi-user.target\n",
        program = program.display(),
        data = dir.root().display(),
    )
}

/// Writes the unit, and has systemd start it now and whenever the system starts.
pub fn start(dir: &HostDir) -> Result<()> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let path = Path::new(UNITS).join(UNIT);
    let text = unit(&program, dir);
    if fs::read_to_string(&path).ok().as_ref() != Some(&text) {
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        systemctl(&["daemon-reload"])?;
    }
    systemctl(&["enable", "--now", UNIT])
}

pub fn stop() -> Result<()> {
    systemctl(&["stop", UNIT])
}

/// Stops and deletes the unit, if it is there.
pub fn remove() -> Result<()> {
    remove_unit(&Path::new(UNITS).join(UNIT))
}

fn remove_unit(path: &Path) -> Result<()> {
    if !path.exists() {
        return Ok(());
    }
    systemctl(&["disable", "--now", UNIT])?;
    fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))?;
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
    fn unit_that_was_removed_already_is_no_error() {
        remove_unit(Path::new("/nonexistent/nacre-host.service")).unwrap();
    }

    #[test]
    fn unit_starts_the_agent_of_the_folder() {
        let dir = HostDir::at(Path::new("/var/lib/nacre")).unwrap();
        let unit = unit(Path::new("/usr/bin/nacre"), &dir);
        for line in [
            "ExecStart=/usr/bin/nacre host-agent --data /var/lib/nacre",
            "KillMode=process",
            "Restart=always",
        ] {
            assert!(unit.lines().any(|found| found == line), "{unit}");
        }
    }
}
