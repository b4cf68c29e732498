//! What the leader shows to Prometheus, under the names and labels of the module `prometheus` of Ceph 16.2,
//! so that Ceph's alerts and boards work.
//!
//! A pure function of what the leader knows. `cluster` has health, monitors and managers, `osds` the OSDs
//! with their counters, `pools` the pools with their placement groups. Metrics of images come from beside the
//! monitor, as their names are in the pools.

mod cluster;
mod osds;
mod pools;

use crate::mon::Mon;
use nacre_base::Now;
use nacre_perf::{Exposition, MetricKind, Reading};
use nacre_proto::types::AddrVec;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// How a monitor answers a program that collects metrics.
#[derive(Debug)]
pub enum MetricsPage {
    /// This monitor leads.
    Active(Box<Exposition>),
    /// Another monitor leads.
    Standby {
        /// The URL of the leader, if one is known.
        active: Option<String>,
        /// How this monitor answers.
        behaviour: Standby,
    },
}

/// What a monitor that does not lead does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standby {
    /// It answers with a page without metrics. Then all monitors may be collected from: one of them has
    /// metrics.
    Empty,
    /// It sends the program to the leader.
    Redirect,
    /// It answers with this status.
    Error(u16),
}

/// Where a monitor answers programs that collect metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricsAddrs {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// As other hosts reach it.
    pub public: SocketAddr,
}

/// What the manager map calls the service.
const SERVICE: &str = "prometheus";

impl Mon {
    /// Where this monitor serves metrics; none if that is switched off.
    pub fn metrics_addrs(&self) -> Option<MetricsAddrs> {
        let member = self.config.members.iter().find(|member| member.id == self.config.id)?;
        let own = member.addrs.msgr2()?.sock?.ip();
        let port = self.option("mgr/prometheus/server_port").as_u64();
        let port = u16::try_from(port).ok().filter(|port| *port > 0)?;
        let configured = self.option("mgr/prometheus/server_addr").to_string();
        let listen = configured.trim().parse::<IpAddr>().unwrap_or(own);
        let public = if listen.is_unspecified() { own } else { listen };
        Some(MetricsAddrs { listen: SocketAddr::new(listen, port), public: SocketAddr::new(public, port) })
    }

    /// What this monitor offers as the manager, by name, with URLs.
    pub(crate) fn manager_services(&self) -> BTreeMap<String, String> {
        let url = |addrs: MetricsAddrs| (SERVICE.to_string(), format!("http://{}/", addrs.public));
        self.metrics_addrs().map(url).into_iter().collect()
    }

    /// What this monitor answers now.
    pub fn metrics(&self, now: Now) -> MetricsPage {
        match self.metrics_standby() {
            None => MetricsPage::Active(Box::new(self.all_metrics(now))),
            Some((active, behaviour)) => MetricsPage::Standby { active, behaviour },
        }
    }

    /// The URL of the leader, if one is known, and how this monitor answers. None if it leads itself.
    pub fn metrics_standby(&self) -> Option<(Option<String>, Standby)> {
        if self.leading.is_some() && self.state.is_some() {
            return None;
        }
        let behaviour = match &*self.option("mgr/prometheus/standby_behaviour").to_string() {
            "redirect" => Standby::Redirect,
            "error" => {
                Standby::Error(self.option("mgr/prometheus/standby_error_status_code").as_u64() as u16)
            }
            _ => Standby::Empty,
        };
        let services = self.state.as_ref().map(|state| &state.mgrmap.map.services);
        let active = services.and_then(|services| services.get(SERVICE)).cloned();
        // A leader that is not ready yet is not another one.
        let is_own = active == self.manager_services().remove(SERVICE);
        Some((active.filter(|_| !is_own), behaviour))
    }

    fn all_metrics(&self, now: Now) -> Exposition {
        let mut page = Page::default();
        let cx = self.context(now);
        cluster::health(self, &cx, &mut page);
        cluster::space(self, &cx, &mut page);
        cluster::monitors(&cx, &mut page);
        cluster::services(self, &mut page);
        osds::flags(&cx, &mut page);
        osds::all(self, &cx, &mut page);
        pools::all(self, &cx, &mut page);
        self.own_counters(&mut page);
        page.0
    }

    fn own_counters(&self, page: &mut Page) {
        let daemon = format!("mon.{}", self.config.name);
        for (set, name, reading) in self.config.perf.readings() {
            page.counter(set, name, &reading, &daemon);
        }
    }

    /// The pools whose images have metrics: `pool[/namespace]`, separated by commas or blanks; `*` is all.
    pub fn rbd_stats_pools(&self) -> Vec<String> {
        let option = self.option("mgr/prometheus/rbd_stats_pools").to_string();
        let separates = |c: char| c == ',' || c.is_whitespace();
        option.split(separates).filter(|spec| !spec.is_empty()).map(String::from).collect()
    }
}

/// A page that is being written. Names are without `ceph_`.
#[derive(Default)]
struct Page(Exposition);

impl Page {
    fn add(&mut self, name: &str, kind: MetricKind, help: &str, labels: &[(&str, &str)], value: f64) {
        self.0.add(&format!("ceph_{name}"), kind, help, labels, value);
    }
    fn gauge(&mut self, name: &str, help: &str, labels: &[(&str, &str)], value: f64) {
        self.add(name, MetricKind::Gauge, help, labels, value);
    }
    fn untyped(&mut self, name: &str, help: &str, labels: &[(&str, &str)], value: f64) {
        self.add(name, MetricKind::Untyped, help, labels, value);
    }

    /// A daemon's counter. A mean is shown as its sum, in seconds, and its count.
    fn counter(&mut self, set: &str, name: &str, value: &Reading, daemon: &str) {
        let name = metric_name(&format!("{set}_{name}"));
        let labels = [("ceph_daemon", daemon)];
        match *value {
            Reading::Counter(n) => self.add(&name, MetricKind::Counter, "", &labels, n as f64),
            Reading::Gauge(n) => self.gauge(&name, "", &labels, n as f64),
            Reading::Mean { count, nanos } => {
                self.add(&format!("{name}_sum"), MetricKind::Counter, "", &labels, nanos as f64 / 1e9);
                self.add(&format!("{name}_count"), MetricKind::Counter, "", &labels, count as f64);
            }
        }
    }
}

/// Without characters that no metric's name has. What OSDs send may have any.
fn metric_name(name: &str) -> String {
    let name = name.replace("::", "_");
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

fn number(is_so: bool) -> f64 {
    if is_so { 1.0 } else { 0.0 }
}

/// An address without its port, as Ceph labels it.
fn host_of(addrs: &AddrVec) -> String {
    match addrs.msgr2().and_then(|addr| addr.sock) {
        Some(SocketAddr::V4(sock)) => sock.ip().to_string(),
        Some(SocketAddr::V6(sock)) => format!("[{}]", sock.ip()),
        None => String::new(),
    }
}
