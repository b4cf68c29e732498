//! What is looked at before a host is set up: one table, with a cure for each fault. Nothing is changed.

use crate::Format;
use crate::addresses::{IpNetwork, is_own_address, own_addresses};
use crate::device::Fit;
use crate::hosts::candidates::Candidate;
use crate::hosts::echo::{self, Answered};
use crate::hosts::judge::{Assigned, LogPlace, Proposal};
use crate::kinds::PORTS;
use crate::size::Size;
use anyhow::Result;
use nacre_node::{Listener, MEMORY_DEFAULT};
use nacre_proto::types::EntityType;
use serde::Serialize;
use std::fs;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;
use uuid::Uuid;

/// Memory of a monitor, and of what else runs on a host.
const MEMORY_OF_REST: u64 = 512 << 20;
/// For a connection to a monitor.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Clocks that differ by more make timestamps misleading, ...
const CLOCK_WARN: f64 = 0.05;
/// ... and by more make tickets expire at the wrong time.
const CLOCK_MAX: f64 = 60.0;

/// The table.
#[derive(Default, Serialize)]
pub struct Preflight {
    checks: Vec<Check>,
}

/// One line of it.
#[derive(Serialize)]
struct Check {
    check: String,
    result: Verdict,
    detail: String,
    /// What to do about it. Empty where nothing is wrong.
    #[serde(skip_serializing_if = "String::is_empty")]
    cure: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    /// It works, worse than it could.
    Warn,
    /// It would not work.
    Fail,
}

impl Preflight {
    fn add(&mut self, check: &str, result: Verdict, detail: impl Into<String>, cure: impl Into<String>) {
        let (check, detail, cure) = (check.to_string(), detail.into(), cure.into());
        self.checks.push(Check { check, result, detail, cure });
    }
    pub fn ok(&mut self, check: &str, detail: impl Into<String>) {
        self.add(check, Verdict::Ok, detail, "");
    }
    pub fn warn(&mut self, check: &str, detail: impl Into<String>, cure: impl Into<String>) {
        self.add(check, Verdict::Warn, detail, cure);
    }
    pub fn fail(&mut self, check: &str, detail: impl Into<String>, cure: impl Into<String>) {
        self.add(check, Verdict::Fail, detail, cure);
    }

    /// How many faults there are that forbid to go on.
    pub fn faults(&self) -> usize {
        self.checks.iter().filter(|check| check.result == Verdict::Fail).count()
    }

    /// The host has the address, and it is in the network.
    pub fn address(&mut self, addr: SocketAddr, network: Option<&str>) {
        let ip = addr.ip();
        if !is_own_address(ip) {
            let own: Vec<String> = own_addresses().iter().map(IpAddr::to_string).collect();
            let cure = format!("name one of this host's with --addr: {}", own.join(", "));
            return self.fail("address", format!("{ip} is not an address of this host"), cure);
        }
        let Some(text) = network else { return self.ok("address", ip.to_string()) };
        match networks(text) {
            Err(e) => {
                self.fail("address", e.to_string(), "give a network such as 10.0.0.0/24 with --network")
            }
            Ok(all) if all.iter().any(|network| network.contains(ip)) => {
                self.ok("address", format!("{ip}, in {text}"));
            }
            Ok(_) => self.fail(
                "address",
                format!("{ip} is not in the public network {text}"),
                "name an address in that network with --addr, or another network with --network",
            ),
        }
    }

    pub fn cluster_address(&mut self, ip: Option<IpAddr>, network: &str) {
        match ip {
            Some(ip) => self.ok("cluster address", format!("{ip}, in {network}")),
            None => self.fail(
                "cluster address",
                format!("this host has no address in the cluster network {network}"),
                "give one of its interfaces an address there, or name another network with --cluster-network",
            ),
        }
    }

    /// The port of a monitor and enough others are free.
    pub fn ports(&mut self, addr: SocketAddr, has_monitor: bool, others: usize) {
        if !is_own_address(addr.ip()) {
            return;
        }
        if has_monitor {
            match Listener::bind(addr, 0, EntityType::Mon, 0) {
                Ok(_) => self.ok("monitor's port", format!("{}/tcp is free", addr.port())),
                Err(e) => self.fail(
                    "monitor's port",
                    e.to_string(),
                    "stop what has the port, or give another with --addr ADDR:PORT",
                ),
            }
        }
        let is_free = |port: &u16| {
            let addr = SocketAddr::new(addr.ip(), *port);
            TcpListener::bind(addr).is_ok() && UdpSocket::bind(addr).is_ok()
        };
        let free = PORTS.filter(is_free).take(others).count();
        let range = format!("{} to {}, tcp and udp", PORTS.start(), PORTS.end());
        match free >= others {
            true => self.ok("ports", format!("{others} of {range} are free")),
            false => self.fail(
                "ports",
                format!("only {free} of {range} are free, and {others} are needed"),
                "stop what listens there (`ss -tulnp` shows it)",
            ),
        }
    }

    pub fn memory(&mut self, osds: usize, each: Option<Size>) {
        let each = each.map_or(MEMORY_DEFAULT as u64, |size| size.0);
        let needed = osds as u64 * each + MEMORY_OF_REST;
        let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
        let total = total.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
        let Some(total) = total.map(|kib| kib << 10) else { return };
        let detail = format!("{} MiB, {} MiB for {osds} OSDs and the rest", total >> 20, needed >> 20);
        match needed <= total {
            true => self.ok("memory", detail),
            false => self.fail("memory", detail, "give each OSD less with --memory, or use fewer devices"),
        }
    }

    /// Devices that a person named must all be usable; others are left out.
    pub fn devices(&mut self, candidates: &[Candidate], named: bool) {
        for Candidate { path, size, rejected, holds, report, class, .. } in candidates {
            let path = path.display().to_string();
            let class = class.map_or(String::new(), |class| format!(", {class}"));
            let measured = report.as_ref().map_or(String::new(), |report| format!(": {}", report.summary()));
            match rejected {
                None if holds.is_some() => self.ok(&path, "holds an OSD of this cluster, which goes on here"),
                None => {
                    let detail = format!("blank, {}{class}{measured}", Size(*size));
                    match report.as_ref().is_some_and(|report| report.fit() == Fit::Neither) {
                        true => self.warn(&path, detail, "use another device"),
                        false => self.ok(&path, detail),
                    }
                }
                Some(reason) if named => self.fail(&path, reason.what.clone(), reason.cure.clone()),
                Some(reason) => self.warn(&path, format!("left out: {}", reason.what), reason.cure.clone()),
            }
        }
        if candidates.iter().all(|candidate| candidate.rejected.is_some()) {
            self.warn(
                "devices",
                "none: this host stores no data",
                "name blank devices or files with --devices",
            );
        }
    }

    /// The places of logs must all be usable, and have room for all that are to go there.
    pub fn log_places(&mut self, places: &[LogPlace], assigned: &Assigned) {
        for LogPlace { path, is_folder, room, report, rejected } in places {
            let path = format!("{} (logs)", path.display());
            let kind = if *is_folder { "folder" } else { "blank" };
            let measured = report.as_ref().map_or(String::new(), |report| format!(": {}", report.summary()));
            let is_slow =
                report.as_ref().is_some_and(|report| matches!(report.fit(), Fit::Data | Fit::Neither));
            let detail = format!("{kind}, room for {room} logs{measured}");
            match rejected {
                Some(reason) => self.fail(&path, reason.what.clone(), reason.cure.clone()),
                None if is_slow => self.warn(&path, detail, "name a faster device"),
                None => self.ok(&path, detail),
            }
        }
        if assigned.left_over > 0 {
            let what = format!("{} logs have no room on --wal-devices", assigned.left_over);
            self.fail("logs", what, "name more devices or a folder with --wal-devices, or fewer --devices");
        }
        for text in &assigned.stay {
            self.warn("logs", format!("left with the data of {text}"), "");
        }
    }

    /// Another use of the devices would be faster.
    pub fn propose(&mut self, proposal: &Proposal) {
        let list = |paths: &[PathBuf]| {
            paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(",")
        };
        let cure = format!(
            "make partitions on {logs}, one for each log, or a file system, and give them with --wal-devices: `--devices \
             {data} --wal-devices PARTITION,...`",
            logs = list(&proposal.logs),
            data = list(&proposal.data)
        );
        self.warn("logs", proposal.why.clone(), cure);
    }

    /// Monitors can be reached. One is enough to go on.
    pub fn monitors(&mut self, from: SocketAddr, mons: &[SocketAddr]) {
        let reached: Vec<(SocketAddr, std::io::Result<TcpStream>)> =
            mons.iter().map(|addr| (*addr, TcpStream::connect_timeout(addr, CONNECT_TIMEOUT))).collect();
        let any = reached.iter().any(|(_, result)| result.is_ok());
        for (addr, result) in &reached {
            let name = format!("monitor {addr}");
            let cure = format!(
                "check that it runs, and that no firewall between {} and it drops {}/tcp",
                from.ip(),
                addr.port()
            );
            match result {
                Ok(_) => self.ok(&name, "answers"),
                Err(e) if any => self.warn(&name, e.to_string(), cure),
                Err(e) => self.fail(&name, e.to_string(), cure),
            }
        }
    }

    /// Datagrams pass in both directions, also large ones, and a host of the cluster reaches this one. One
    /// host that answers is enough, since the agents of others may not run.
    pub fn network(&mut self, from: IpAddr, hosts: &[SocketAddr], fsid: Uuid) {
        let asked: Vec<(SocketAddr, Result<Answered>)> =
            hosts.iter().map(|host| (*host, echo::ask(from, *host, fsid))).collect();
        let Some((host, answered)) =
            asked.iter().find_map(|(host, result)| Some((*host, result.as_ref().ok()?)))
        else {
            let names: Vec<String> = hosts.iter().map(SocketAddr::to_string).collect();
            let what = format!("no datagram comes back from {}", names.join(", "));
            let (first, last) = (PORTS.start(), PORTS.end());
            let cure =
                format!("let 3300/udp and {first} to {last}/udp pass between all hosts, in both directions");
            return self.fail("udp", what, cure);
        };
        self.ok("udp", format!("{} answers", host.ip()));
        let mtu = answered.mtu;
        match answered.at_full_size {
            true => self.ok("packet size", format!("{mtu} bytes pass in both directions")),
            false => self.fail(
                "packet size",
                format!(
                    "packets of {mtu} bytes, this interface's MTU, get lost on the way to {} or back",
                    host.ip()
                ),
                "set the same MTU on all hosts and switches",
            ),
        }
        match echo::be_dialled(from, host, fsid) {
            Ok(()) => self.ok("tcp back", format!("{} reaches this host", host.ip())),
            Err(e) => self.fail(
                "tcp back",
                format!("{}: {e:#}", host.ip()),
                format!("let {} to {}/tcp pass from all hosts to this one", PORTS.start(), PORTS.end()),
            ),
        }
    }

    /// `offset` in seconds: how much this clock is ahead of the monitor's.
    pub fn clock(&mut self, offset: f64) {
        let cure = "synchronise the clocks of all hosts, for instance with chrony";
        let detail = format!("{offset:+.3} s from the monitor's");
        match offset.abs() {
            0.0..CLOCK_WARN => self.ok("clock", detail),
            CLOCK_WARN..CLOCK_MAX => self.warn("clock", detail, cure),
            _ => self.fail("clock", detail, cure),
        }
    }

    pub fn show(&self, format: Format) -> Result<String> {
        if format == Format::Json {
            return Ok(serde_json::to_string_pretty(self)?);
        }
        let width = self.checks.iter().map(|check| check.check.chars().count()).max().unwrap_or(0);
        let mut out = String::new();
        for Check { check, result, detail, cure } in &self.checks {
            let mark = match result {
                Verdict::Ok => "ok",
                Verdict::Warn => "warn",
                Verdict::Fail => "FAIL",
            };
            out += &format!("{mark:<5} {check:<width$}  {detail}\n");
            if !cure.is_empty() {
                out += &format!("{:<5} {:<width$}  -> {cure}\n", "", "");
            }
        }
        Ok(out)
    }
}

/// Networks, which commas separate.
pub fn networks(text: &str) -> Result<Vec<IpNetwork>> {
    text.split(',').map(str::parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::candidates::Rejected;

    #[test]
    fn fault_is_shown_with_its_cure() {
        let mut table = Preflight::default();
        table.address("127.0.0.9:3300".parse().unwrap(), Some("127.0.0.0/8"));
        table.clock(-0.001);
        assert_eq!(table.faults(), 0);
        table.address("203.0.113.7:3300".parse().unwrap(), None);
        table.address("127.0.0.1:3300".parse().unwrap(), Some("10.0.0.0/24"));
        table.clock(90.0);
        assert_eq!(table.faults(), 3);
        let text = table.show(Format::Table).unwrap();
        for part in [
            "ok    address  127.0.0.9, in 127.0.0.0/8",
            "FAIL  address  203.0.113.7 is not an address",
            "-> name one of",
        ] {
            assert!(text.contains(part), "{text}");
        }
        let json: serde_json::Value = serde_json::from_str(&table.show(Format::Json).unwrap()).unwrap();
        assert_eq!(
            (&json["checks"][0]["result"], &json["checks"][4]["result"]),
            (&"ok".into(), &"fail".into())
        );
        assert!(json["checks"][0].get("cure").is_none());
    }

    #[test]
    fn named_device_must_be_usable_and_others_are_left_out() {
        let rejected = Rejected { what: "contains data".into(), cure: "wipe it".into() };
        let bad = Candidate { rejected: Some(rejected), ..Candidate::blank("/dev/a".into(), 1 << 40) };
        let good = Candidate::blank("/dev/b".into(), 1 << 40);
        for (named, faults) in [(true, 1), (false, 0)] {
            let mut table = Preflight::default();
            table.devices(&[bad.clone(), good.clone()], named);
            assert_eq!((table.faults(), table.checks.len()), (faults, 2));
        }
    }

    #[test]
    fn port_in_use_is_a_fault_that_names_its_holder() {
        let held = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut table = Preflight::default();
        table.ports(held.local_addr().unwrap(), true, 1);
        let text = table.show(Format::Table).unwrap();
        assert!(
            table.faults() == 1 && text.contains(&format!("(pid {}) listens there", std::process::id())),
            "{text}"
        );
    }
}
