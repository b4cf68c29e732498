//! A host as a whole system: systemd boots in a container that has the files of this machine, overlaid.
//!
//! Needs root, `systemd-nspawn` and overlay mounts.

use crate::hosts::HostNet;
use crate::{skip, succeed, wait_until};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const BOOT_TIMEOUT: Duration = Duration::from_secs(60);
const STOP_TIMEOUT: Duration = Duration::from_secs(120);

/// A running system. Its changes are kept in memory until this is dropped, except for `/var/lib/nacre` and
/// `/disks`, which are folders of the test.
pub struct System {
    folder: tempfile::TempDir,
    network: PathBuf,
    nspawn: Child,
}

impl System {
    /// Boots a system that is a host of the network. None, after saying so, where that is not possible.
    pub fn boot(net: &HostNet, host: usize) -> Result<Option<System>> {
        if !Path::new("/usr/bin/systemd-nspawn").exists() {
            skip("there is no systemd-nspawn");
            return Ok(None);
        }
        let folder = tempfile::Builder::new().prefix("nacre-system-").tempdir()?;
        for name in ["memory", "data", "disks"] {
            fs::create_dir(folder.path().join(name))?;
        }
        let memory = folder.path().join("memory");
        succeed(Command::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(&memory))?;
        // From here on, dropping the system unmounts.
        let network = net.namespace(host);
        let mut system = System { folder, network, nspawn: Command::new("true").spawn()? };
        ["upper", "work", "root"].iter().try_for_each(|name| fs::create_dir(memory.join(name)))?;
        let layers = format!("lowerdir=/,upperdir={0}/upper,workdir={0}/work", memory.display());
        let mount = Command::new("mount")
            .args(["-t", "overlay", "overlay", "-o", &layers])
            .arg(system.root())
            .output()?;
        if !mount.status.success() {
            skip("the machine's files cannot be overlaid");
            return Ok(None);
        }
        system.strip()?;
        system.start()?;
        Ok(Some(system))
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("memory/root")
    }

    /// The machine's own services do not start.
    fn strip(&self) -> Result<()> {
        let units = self.root().join("etc/systemd/system");
        for entry in fs::read_dir(&units)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "wants") {
                fs::remove_dir_all(path)?;
            }
        }
        Ok(())
    }

    fn start(&mut self) -> Result<()> {
        let bind = |name: &str, at: &str| format!("--bind={}:{at}", self.folder.path().join(name).display());
        let mut nspawn = Command::new("systemd-nspawn");
        nspawn.args(["--quiet", "--register=no", "--keep-unit", "--console=pipe", "--machine=nacre-test"]);
        nspawn.arg(format!("--directory={}", self.root().display()));
        nspawn.arg(format!("--network-namespace-path={}", self.network.display()));
        nspawn.args([bind("data", "/var/lib/nacre"), bind("disks", "/disks"), "--boot".to_string()]);
        let log = fs::File::create(self.folder.path().join("boot.log"))?;
        nspawn.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.nspawn = nspawn.spawn().context("cannot run systemd-nspawn")?;
        wait_until("the system to boot", BOOT_TIMEOUT, || {
            let state = self.command("systemctl is-system-running");
            Ok(state.is_ok_and(|mut state| {
                let state = state.output().map(|output| output.stdout).unwrap_or_default();
                [b"running".as_slice(), b"degraded"].iter().any(|good| state.starts_with(good))
            }))
        })
        .with_context(|| fs::read_to_string(self.folder.path().join("boot.log")).unwrap_or_default())
    }

    /// A shell command in the system.
    fn command(&self, script: &str) -> Result<Command> {
        let pid = self.nspawn.id();
        let init = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
        let init = init.split_whitespace().next().context("the system does not run")?;
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", "120", "nsenter", "--target", init]);
        command.args(["--mount", "--uts", "--ipc", "--net", "--pid", "--root"]);
        command.args(["bash", "-c", &format!("cd /; set -eo pipefail; {script}")]);
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("LC_ALL", "C.UTF-8");
        Ok(command)
    }

    /// Runs a shell command in the system, and gives what it prints.
    pub fn run(&self, script: &str) -> Result<String> {
        succeed(&mut self.command(script)?)
    }

    /// Waits until a shell command in the system succeeds.
    pub fn wait(&self, what: &str, script: &str) -> Result<()> {
        wait_until(what, STOP_TIMEOUT, || Ok(self.run(script).is_ok()))
    }

    /// Puts a file into the system.
    pub fn copy(&self, from: &Path, to: &str) -> Result<()> {
        fs::copy(from, self.root().join(to.trim_start_matches('/')))?;
        Ok(())
    }

    /// A blank file that serves as a disk, `/disks/NAME` in the system.
    pub fn disk(&self, name: &str) -> Result<()> {
        Ok(fs::File::create(self.folder.path().join("disks").join(name))?.set_len(4 << 30)?)
    }

    /// Shuts the system down, and boots it again.
    pub fn reboot(&mut self) -> Result<()> {
        self.shut_down()?;
        self.start()
    }

    fn shut_down(&mut self) -> Result<()> {
        // The connection to systemd ends with it.
        let _ = self.run("systemctl poweroff");
        let nspawn = &mut self.nspawn;
        wait_until("the system to shut down", STOP_TIMEOUT, || Ok(nspawn.try_wait()?.is_some()))
    }
}

impl Drop for System {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for script in ["systemctl --no-pager status 'nacre*'", "tail -n 20 /var/lib/nacre/log/*.log"] {
                match self.command(script).and_then(|mut command| Ok(command.output()?)) {
                    Ok(output) => eprintln!("--- {script}\n{}", crate::text(&output.stdout)),
                    Err(error) => eprintln!("--- {script}: {error:#}"),
                }
            }
        }
        let is_running = self.nspawn.try_wait().is_ok_and(|status| status.is_none());
        if is_running && let Err(error) = self.shut_down() {
            eprintln!("{error:#}");
            // Its processes end with it: they have a pid namespace of their own.
            let _ = self.nspawn.kill();
            let _ = self.nspawn.wait();
        }
        for mount in [self.root(), self.folder.path().join("memory")] {
            let unmounted = Command::new("umount").args(["--lazy"]).arg(&mount).output();
            let unmounted = unmounted.map_err(anyhow::Error::from).and_then(|output| {
                let said = crate::text(&output.stderr);
                ensure!(output.status.success() || said.contains("not mounted"), "{said}");
                Ok(())
            });
            if let Err(error) = unmounted {
                eprintln!("cannot unmount {}: {error:#}", mount.display());
            }
        }
    }
}
