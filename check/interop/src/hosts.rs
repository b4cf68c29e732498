//! Hosts on one machine: network namespaces on a switch of their own (`nacre-switch`), each with a folder and
//! disk files.
//!
//! Needs root and `ip`. When a `HostNet` is dropped, its processes, namespaces and files are gone, and so are
//! `/var/lib/nacre` and `/etc/ceph` if it made them to mount hosts' folders there.

use crate::{
    Load, json_line, nacre_binary, run_line, send_signal, show_logs, succeed, try_line, wait_gone, wait_until,
};
use anyhow::{Context, Result, ensure};
use nacre_switch::{Link, Port, Switch};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A switch with hosts on it. All of it ends when this is dropped.
pub struct HostNet {
    folder: tempfile::TempDir,
    switch: Switch,
    hosts: Vec<String>,
    /// Folders of the machine that were missing.
    mount_points: Mutex<Vec<PathBuf>>,
    /// What hosts run.
    program: PathBuf,
    /// In the environment of what hosts run.
    env: Option<(&'static str, &'static str)>,
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
        HostNet::with_seed(hosts, 1)
    }

    /// The same, with a seed for what the switch does to frames.
    pub fn with_seed(hosts: usize, seed: u64) -> Result<HostNet> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let id = format!("n{}x{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = tempfile::Builder::new().prefix("nacre-hosts-").tempdir()?;
        let ports: Vec<String> = (1..=hosts).map(|host| format!("{id}p{host}")).collect();
        let switch = Switch::start(&ports, seed)?;
        let mut net = HostNet {
            folder,
            switch,
            hosts: Vec::new(),
            mount_points: Mutex::default(),
            program: nacre_binary(),
            env: None,
        };
        for (port, host) in ports.iter().zip(1..) {
            let name = format!("{id}h{host}");
            ip(&["netns", "add", &name])?;
            net.hosts.push(name.clone());
            ip(&["-n", &name, "link", "set", "lo", "up"])?;
            ip(&["link", "set", port, "netns", &name, "name", "eth0"])?;
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

    /// Gives the hosts a program of their own, in place of the last one. `env` is set in the environment of
    /// what is run on hosts from now on.
    pub fn install(&mut self, env: Option<(&'static str, &'static str)>) -> Result<()> {
        let bin = self.folder.path().join("bin");
        fs::create_dir_all(&bin)?;
        let (program, new) = (bin.join("nacre"), bin.join("new"));
        fs::copy(nacre_binary(), &new)?;
        fs::rename(&new, &program)?;
        (self.program, self.env) = (program, env);
        Ok(())
    }

    /// The network namespace of a host.
    pub fn namespace(&self, host: usize) -> PathBuf {
        Path::new("/run/netns").join(&self.hosts[host - 1])
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

    /// What the network does from now on to all that one host sends to another.
    pub fn set_link(&self, from: usize, to: usize, link: Link) {
        self.switch.set(Port(from - 1), Port(to - 1), link);
    }
    /// The same for all hosts.
    pub fn set_links(&self, link: Link) {
        self.switch.set_all(link);
    }
    /// Pulls the cable of a host, or puts it back.
    pub fn set_cable(&self, host: usize, is_in: bool) -> Result<()> {
        let carrier = if is_in { "on" } else { "off" };
        ip(&["-n", &self.hosts[host - 1], "link", "set", "eth0", "carrier", carrier])
    }

    /// Of the host's own interface. That of the switch stays 1500.
    pub fn set_mtu(&self, host: usize, mtu: u32) -> Result<()> {
        ip(&["-n", &self.hosts[host - 1], "link", "set", "eth0", "mtu", &mtu.to_string()])
    }

    /// A program on a host.
    pub fn on(&self, host: usize, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.hosts[host - 1]])
            .arg(program)
            .env_remove("CEPH_ARGS")
            .envs(self.env);
        command
    }

    /// `nacre` on a host, with its folder.
    pub fn nacre(&self, host: usize, words: &str) -> Command {
        let mut command = self.on(host, &self.program);
        command.args(words.split_whitespace()).arg("--data").arg(self.data(host));
        command
    }

    /// `nacre init` with the options that tests need.
    pub fn init(&self, host: usize, addr: impl ToString, network: &str, devices: &[&Path]) -> Result<String> {
        succeed(&mut self.init_command(host, addr, network, devices))
    }
    /// The same, to be run.
    pub fn init_command(
        &self,
        host: usize,
        addr: impl ToString,
        network: &str,
        devices: &[&Path],
    ) -> Command {
        let mut command = self.nacre(host, "init");
        set_up(&mut command, addr, devices).args(["--network", network]);
        command
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

    /// `timeout` on a host, for stock clients with the configuration of another.
    fn timeout(&self, host: usize, conf_of: usize) -> Command {
        let mut command = self.on(host, "timeout");
        command.env("CEPH_CONF", self.data(conf_of).join("ceph.conf"));
        command
    }
    /// A stock command line on a host, with the configuration of another.
    pub fn try_run(&self, host: usize, conf_of: usize, line: &str) -> Result<Output> {
        try_line(self.timeout(host, conf_of), line)
    }
    pub fn run(&self, host: usize, conf_of: usize, line: &str) -> Result<String> {
        run_line(self.timeout(host, conf_of), line)
    }
    pub fn json(&self, host: usize, conf_of: usize, line: &str) -> Result<Value> {
        json_line(self.timeout(host, conf_of), line)
    }

    /// A process on a host writes objects into a pool as fast as it is answered. Returns when it has begun.
    pub fn start_load(&self, host: usize, conf_of: usize, pool: &str) -> Result<Load> {
        let mut python = self.on(host, "/usr/bin/python3");
        python.env("CEPH_CONF", self.data(conf_of).join("ceph.conf"));
        Load::start(python, pool)
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
        for mount_point in ["/var/lib/nacre", "/etc/ceph"] {
            match fs::create_dir(mount_point) {
                Ok(()) => self.mount_points.lock().expect("no holder panics").push(mount_point.into()),
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e).with_context(|| format!("cannot make {mount_point}")),
            }
        }
        let disk = root.join(format!("disk{host}"));
        if !disk.exists() {
            File::create(&disk)?.set_len(4 << 30)?;
        }
        let bin = self.program.parent().context("the binary is in a folder")?;
        let command = command.replace("/dev/vdb", &disk.display().to_string());
        // The mounts are seen by this command and what it starts.
        let script = format!(
            "set -e; mount --bind {data} /var/lib/nacre; mount --bind {etc} /etc/ceph; cd {shared}; \
             export PATH={bin}:$PATH; unset CEPH_CONF CEPH_ARGS; {command}",
            data = data.display(),
            etc = etc.display(),
            shared = shared.display(),
            bin = bin.display(),
        );
        succeed(self.on(host, "timeout").args(["120", "unshare", "--mount", "bash", "-c", &script]))
    }

    /// SIGKILL to all processes on a host.
    pub fn kill_all(&self, host: usize) -> Result<()> {
        kill_all_in(&self.hosts[host - 1])
    }
}

/// SIGKILL to all processes in a namespace, until there are none. The agent might start a killed daemon
/// again.
fn kill_all_in(namespace: &str) -> Result<()> {
    let mut killed = BTreeSet::new();
    wait_until("all processes of the host to be killed", Duration::from_secs(10), || {
        let pids = succeed(Command::new("ip").args(["netns", "pids", namespace]))?;
        for pid in pids.split_whitespace() {
            // It may have ended in the meantime.
            let _ = send_signal(pid, "KILL");
            killed.insert(pid.to_string());
        }
        Ok(pids.is_empty())
    })?;
    killed.iter().try_for_each(wait_gone)
}

fn set_up<'a>(command: &'a mut Command, addr: impl ToString, devices: &[&Path]) -> &'a mut Command {
    let devices: Vec<String> = devices.iter().map(|path| path.display().to_string()).collect();
    let devices = if devices.is_empty() { "none".to_string() } else { devices.join(",") };
    command.args([
        "--addr",
        &addr.to_string(),
        "--devices",
        &devices,
        "--no-systemd",
        "--yes",
        "--no-device-check",
    ])
}

fn ip(words: &[&str]) -> Result<()> {
    succeed(Command::new("ip").args(words)).map(drop)
}

impl Drop for HostNet {
    fn drop(&mut self) {
        for host in 1..=self.hosts.len() {
            let data = self.data(host);
            show_logs(&data.join("log"));
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
        for name in &self.hosts {
            if let Err(error) = kill_all_in(name).and_then(|()| ip(&["netns", "del", name])) {
                eprintln!("{error:#}");
            }
        }
        for folder in std::mem::take(&mut *self.mount_points.lock().expect("no holder panics")) {
            if let Err(error) = fs::remove_dir(&folder) {
                eprintln!("cannot remove {}: {error}", folder.display());
            }
        }
    }
}
