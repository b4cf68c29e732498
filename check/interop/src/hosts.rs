//! Hosts on one machine: network namespaces on a switch of their own, each with a folder and disk files.
//!
//! Needs root and `ip`. Nothing is left behind in the system's own namespace.

use crate::{nacre_binary, succeed, text};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs::{self, File};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

/// A switch with hosts on it. All of it ends when this is dropped.
pub struct HostNet {
    folder: tempfile::TempDir,
    switch: String,
    hosts: Vec<String>,
}

/// How hosts are numbered in the networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    V4,
    V6,
}

impl Family {
    pub fn network(self) -> &'static str {
        match self {
            Family::V4 => "10.9.0.0/24",
            Family::V6 => "fd09::/64",
        }
    }
    /// The address of a host, which count from 1.
    pub fn addr(self, host: usize) -> IpAddr {
        match self {
            Family::V4 => IpAddr::from([10, 9, 0, host as u8]),
            Family::V6 => IpAddr::from([0xfd09, 0, 0, 0, 0, 0, 0, host as u16]),
        }
    }
}

impl HostNet {
    /// Hosts with addresses of both families.
    pub fn new(hosts: usize) -> Result<HostNet> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let id = format!("nacre{}x{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = tempfile::Builder::new().prefix("nacre-hosts-").tempdir()?;
        let mut net = HostNet { folder, switch: format!("{id}s"), hosts: Vec::new() };
        ip(&["netns", "add", &net.switch])?;
        ip(&["-n", &net.switch, "link", "add", "br0", "type", "bridge"])?;
        ip(&["-n", &net.switch, "link", "set", "br0", "up"])?;
        for host in 1..=hosts {
            let name = format!("{id}h{host}");
            ip(&["netns", "add", &name])?;
            net.hosts.push(name.clone());
            ip(&["-n", &name, "link", "set", "lo", "up"])?;
            let port = format!("p{host}");
            ip(&[
                "-n",
                &net.switch,
                "link",
                "add",
                &port,
                "type",
                "veth",
                "peer",
                "name",
                "eth0",
                "netns",
                &name,
            ])?;
            ip(&["-n", &net.switch, "link", "set", &port, "master", "br0", "up"])?;
            for (family, prefix) in [(Family::V4, 24), (Family::V6, 64)] {
                let addr = format!("{}/{prefix}", family.addr(host));
                let mut add = vec!["-n", &name, "addr", "add", &addr, "dev", "eth0"];
                if family == Family::V6 {
                    add.push("nodad"); // else the address could not be used for a while
                }
                ip(&add)?;
            }
            ip(&["-n", &name, "link", "set", "eth0", "up"])?;
        }
        Ok(net)
    }

    /// The folder of a host.
    pub fn data(&self, host: usize) -> PathBuf {
        self.folder.path().join(format!("host{host}"))
    }
    /// A blank file that serves as a disk.
    pub fn disk(&self, name: &str) -> Result<PathBuf> {
        let path = self.folder.path().join(name);
        File::create(&path)?.set_len(4 << 30)?;
        Ok(path)
    }

    /// Of the host's own interface. That of the switch stays 1500.
    pub fn set_mtu(&self, host: usize, mtu: u32) -> Result<()> {
        ip(&["-n", &self.hosts[host - 1], "link", "set", "eth0", "mtu", &mtu.to_string()])
    }

    /// A program on a host.
    pub fn on(&self, host: usize, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.hosts[host - 1]]).arg(program).env_remove("CEPH_ARGS");
        command
    }

    /// `nacre` on a host, with its folder.
    pub fn nacre(&self, host: usize, words: &str) -> Command {
        let mut command = self.on(host, nacre_binary());
        command.args(words.split_whitespace()).arg("--data").arg(self.data(host));
        command
    }

    /// `nacre init` with the options that tests need.
    pub fn init(&self, host: usize, addr: impl ToString, network: &str, devices: &[&Path]) -> Result<String> {
        succeed(set_up(&mut self.nacre(host, "init"), addr, devices).args(["--network", network]))
    }
    pub fn token(&self, host: usize, options: &str) -> Result<String> {
        let printed = succeed(&mut self.nacre(host, &format!("token new {options}")))?;
        let token = printed.trim_end().to_string();
        ensure!(token.lines().count() == 1 && token.starts_with("nacre1."), "more than a token: {printed}");
        Ok(token)
    }
    /// `nacre join` with the options that tests need.
    pub fn join(&self, host: usize, token: &str, addr: impl ToString, devices: &[&Path]) -> Command {
        let mut command = self.nacre(host, "join");
        set_up(command.arg(token), addr, devices);
        command
    }

    /// A stock command line on a host, with the configuration of another.
    pub fn try_run(&self, host: usize, conf_of: usize, line: &str) -> Result<Output> {
        let mut command = self.on(host, "timeout");
        command.env("CEPH_CONF", self.data(conf_of).join("ceph.conf")).args(["--kill-after=5", "60"]);
        command.args(line.split_whitespace()).output().with_context(|| format!("cannot run {line}"))
    }
    pub fn run(&self, host: usize, conf_of: usize, line: &str) -> Result<String> {
        let output = self.try_run(host, conf_of, line)?;
        let (said, errors) = (text(&output.stdout), text(&output.stderr));
        ensure!(output.status.success(), "{line}: {}\n{said}{errors}", output.status);
        Ok(said)
    }
    pub fn json(&self, host: usize, conf_of: usize, line: &str) -> Result<Value> {
        let output = self.run(host, conf_of, &format!("{line} --format json"))?;
        serde_json::from_str(&output).with_context(|| format!("{line} gave no JSON: {output}"))
    }

    /// Pids of what runs on a host, by name: `host` is the agent.
    pub fn pids(&self, host: usize) -> Result<Vec<(String, u32)>> {
        let mut pids = Vec::new();
        for entry in fs::read_dir(self.data(host).join("run"))? {
            let entry = entry?;
            let file = entry.file_name().to_string_lossy().into_owned();
            let Some(name) = file.strip_suffix(".pid") else { continue };
            if let Ok(pid) = fs::read_to_string(entry.path())?.trim().parse() {
                pids.push((name.to_string(), pid));
            }
        }
        Ok(pids)
    }

    /// Runs a shell command on a host as on a machine of its own: `/var/lib/nacre` and `/etc/ceph` are the
    /// host's, and so is its disk `/dev/vdb`, a file. Hosts share the working directory and, with clients,
    /// the content of `/etc/ceph`, which an administrator would copy.
    pub fn in_system(&self, host: usize, command: &str) -> Result<String> {
        let root = self.folder.path();
        let (data, etc, shared) = (self.data(host), root.join("etc"), root.join("shared"));
        for folder in [&data, &etc, &shared] {
            fs::create_dir_all(folder)?;
        }
        fs::create_dir_all("/var/lib/nacre")?;
        fs::create_dir_all("/etc/ceph")?;
        let disk = root.join(format!("disk{host}"));
        if !disk.exists() {
            File::create(&disk)?.set_len(4 << 30)?;
        }
        let binary = nacre_binary();
        let bin = binary.parent().context("the binary is in a folder")?;
        let command = command.replace("/dev/vdb", &disk.display().to_string());
        // The mounts are seen by this command and what it starts.
        let script = format!(
            "set -e; mount --bind {data} /var/lib/nacre; mount --bind {etc} /etc/ceph; cd {shared};              export PATH={bin}:$PATH; unset CEPH_CONF CEPH_ARGS; {command}",
            data = data.display(),
            etc = etc.display(),
            shared = shared.display(),
            bin = bin.display(),
        );
        succeed(self.on(host, "timeout").args(["120", "unshare", "--mount", "bash", "-c", &script]))
    }

    /// SIGKILL to all that runs on a host.
    pub fn kill_all(&self, host: usize) -> Result<()> {
        for (_, pid) in self.pids(host)? {
            succeed(Command::new("kill").args(["-KILL", &pid.to_string()]))?;
        }
        Ok(())
    }
}

fn set_up<'a>(command: &'a mut Command, addr: impl ToString, devices: &[&Path]) -> &'a mut Command {
    let devices: Vec<String> = devices.iter().map(|path| path.display().to_string()).collect();
    let devices = if devices.is_empty() { "none".to_string() } else { devices.join(",") };
    command.args(["--addr", &addr.to_string(), "--devices", &devices, "--no-systemd", "--yes"])
}

fn ip(words: &[&str]) -> Result<()> {
    succeed(Command::new("ip").args(words)).map(drop)
}

impl Drop for HostNet {
    fn drop(&mut self) {
        for host in 1..=self.hosts.len() {
            let data = self.data(host);
            // A failing test shows why in the daemons' own words.
            if std::thread::panicking() {
                for entry in fs::read_dir(data.join("log")).into_iter().flatten().flatten() {
                    let lines = fs::read_to_string(entry.path()).unwrap_or_default();
                    let tail: Vec<&str> = lines.lines().rev().take(25).collect();
                    eprintln!("--- {}", entry.path().display());
                    tail.iter().rev().for_each(|line| eprintln!("{line}"));
                }
            }
            let stop = || match self.folder.path().join("etc").exists() {
                true => self.in_system(host, "nacre host stop"),
                false => succeed(&mut self.nacre(host, "host stop")),
            };
            if data.join("host.json").exists()
                && let Err(error) = stop()
            {
                eprintln!("nacre host stop: {error:#}");
            }
        }
        for name in self.hosts.iter().chain([&self.switch]) {
            if let Err(error) = ip(&["netns", "del", name]) {
                eprintln!("{error:#}");
            }
        }
    }
}
