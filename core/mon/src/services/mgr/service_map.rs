//! The service map: daemons beside the cluster's own that register with the manager, such as rbd-mirror and
//! radosgw.
//!
//! Nothing of it is stored. A registered daemon has a session with this process and reports every few
//! seconds. When another monitor leads, the daemon registers there.

use crate::output;
use nacre_base::{Now, Utime};
use nacre_machine::Peer;
use nacre_proto::messages::{MgrClose, MgrOpen, MgrReport};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Of all services.
const DAEMONS_MAX: usize = 1000;
/// Bytes of one daemon's metadata and status; a daemon that sends more is not listed.
const SAID_MAX: usize = 64 << 10;

/// What is known of these comes from elsewhere.
const OWN: [&str; 4] = ["mon", "mgr", "osd", "mds"];

fn said_bytes(said: &BTreeMap<String, String>) -> usize {
    said.iter().map(|(key, value)| key.len() + value.len() + 64).sum()
}

struct Daemon {
    peer: Peer,
    start_epoch: u64,
    start_stamp: Utime,
    metadata: BTreeMap<String, String>,
    status: BTreeMap<String, String>,
    status_stamp: Utime,
    heard: Now,
}

#[derive(Default)]
pub struct ServiceMap {
    /// How often daemons came or went, and when last.
    changes: u64,
    modified: Option<Utime>,
    /// By service, then by their own names.
    all: BTreeMap<String, BTreeMap<String, Daemon>>,
}

impl ServiceMap {
    pub fn open(&mut self, now: Now, peer: &Peer, open: MgrOpen) {
        let Some(service) = open.service.filter(|_| !OWN.contains(&&*open.service_name)) else { return };
        let known = self.all.get(&open.service_name).and_then(|daemons| daemons.get(&open.daemon_name));
        let names = open.service_name.len() + open.daemon_name.len();
        // The same one in another session is no news.
        let (start_epoch, start_stamp) = match known {
            _ if names + said_bytes(&service.metadata) + said_bytes(&service.status) > SAID_MAX => return,
            Some(known) if known.peer.num == peer.num => (known.start_epoch, known.start_stamp),
            None if self.len() >= DAEMONS_MAX => return,
            _ => {
                self.changed(now);
                (self.epoch(), now.wall)
            }
        };
        let daemon = Daemon {
            peer: peer.clone(),
            start_epoch,
            start_stamp,
            metadata: service.metadata,
            status: service.status,
            status_stamp: now.wall,
            heard: now,
        };
        self.all.entry(open.service_name).or_default().insert(open.daemon_name, daemon);
    }

    /// False if the daemon is not known, and has to introduce itself.
    pub fn report(&mut self, now: Now, report: MgrReport) -> bool {
        let daemons = self.all.get_mut(&report.service_name);
        let Some(daemon) = daemons.and_then(|daemons| daemons.get_mut(&report.daemon_name)) else {
            return report.service_name.is_empty();
        };
        daemon.heard = now;
        if let Some(status) = report.status.filter(|status| said_bytes(status) <= SAID_MAX) {
            (daemon.status, daemon.status_stamp) = (status, now.wall);
        }
        true
    }

    pub fn close(&mut self, now: Now, close: &MgrClose) {
        self.retain(now, |service, name, _| (service, name) != (&*close.service_name, &*close.daemon_name));
    }

    /// Drops daemons that were silent for longer than `grace`.
    pub fn prune(&mut self, now: Now, grace: Duration) {
        self.retain(now, |_, _, daemon| now.mono.since(daemon.heard.mono) <= grace);
    }

    fn retain(&mut self, now: Now, keep: impl Fn(&str, &str, &Daemon) -> bool) {
        let before = self.len();
        for (service, daemons) in &mut self.all {
            daemons.retain(|name, daemon| keep(service, name, daemon));
        }
        if self.len() < before {
            self.all.retain(|_, daemons| !daemons.is_empty());
            self.changed(now);
        }
    }

    /// Daemons of all services.
    fn len(&self) -> usize {
        self.all.values().map(BTreeMap::len).sum()
    }
    fn changed(&mut self, now: Now) {
        self.changes += 1;
        self.modified = Some(now.wall);
    }
    fn epoch(&self) -> u64 {
        1 + self.changes
    }

    /// Ceph: `ServiceMap`. It was last changed at `created` if no daemon ever registered.
    pub fn dump(&self, created: Utime) -> Value {
        let services = self.all.iter().map(|(service, daemons)| {
            let rows = daemons.iter().map(|(name, daemon)| (name.clone(), daemon.dump()));
            let rows = [("summary".to_string(), json!(""))].into_iter().chain(rows);
            (service.clone(), json!({ "daemons": Value::Object(rows.collect()) }))
        });
        json!({
            "epoch": self.epoch(),
            "modified": self.modified.unwrap_or(created).to_string(),
            "services": Value::Object(services.collect()),
        })
    }

    /// What they say of themselves.
    pub fn status(&self) -> Value {
        let services = self.all.iter().map(|(service, daemons)| {
            let rows = daemons.iter().map(|(name, daemon)| {
                let row = json!({
                    "status_stamp": daemon.status_stamp.to_string(),
                    "last_beacon": daemon.heard.wall.to_string(),
                    "status": daemon.status,
                });
                (name.clone(), row)
            });
            (service.clone(), Value::Object(rows.collect()))
        });
        Value::Object(services.collect())
    }

    /// A name and a few words for each service.
    pub fn summaries(&self) -> impl Iterator<Item = (&str, String)> {
        self.all.iter().map(|(service, daemons)| (&**service, summary(daemons)))
    }

    /// The daemons of a service, with what they say of themselves.
    pub fn daemons(&self, service: &str) -> impl Iterator<Item = (&str, &BTreeMap<String, String>)> {
        let daemons = self.all.get(service).into_iter().flatten();
        daemons.map(|(name, daemon)| (&**name, &daemon.metadata))
    }

    /// How many daemons of each service run which version.
    pub fn versions(&self) -> impl Iterator<Item = (&str, BTreeMap<String, usize>)> {
        self.all.iter().map(|(service, daemons)| {
            let mut versions = BTreeMap::new();
            for daemon in daemons.values() {
                let said = daemon.metadata.get("ceph_version").map_or("unknown", |version| version);
                *versions.entry(said.to_string()).or_default() += 1;
            }
            (&**service, versions)
        })
    }
}

impl Daemon {
    fn dump(&self) -> Value {
        let mut row = Map::new();
        row.insert("start_epoch".to_string(), json!(self.start_epoch));
        row.insert("start_stamp".to_string(), json!(self.start_stamp.to_string()));
        row.insert("gid".to_string(), json!(self.peer.num));
        row.insert("addr".to_string(), json!(output::legacy_addr(&self.peer.addrs)));
        row.insert("metadata".to_string(), json!(self.metadata));
        row.insert("task_status".to_string(), json!({}));
        Value::Object(row)
    }
}

/// As Ceph has it: `2 daemons active (1 hosts)`. A service may have another word for its daemons.
fn summary(daemons: &BTreeMap<String, Daemon>) -> String {
    let said = |key: &str| -> BTreeSet<&String> {
        daemons.values().filter_map(|daemon| daemon.metadata.get(key)).collect()
    };
    let word = said("daemon_type").first().map_or("daemon", |word| word);
    let plural = if daemons.len() > 1 { "s" } else { "" };
    let groups: Vec<String> = [("host", said("hostname")), ("zone", said("zone_id"))]
        .into_iter()
        .filter(|(_, of)| !of.is_empty())
        .map(|(what, of)| format!("{} {what}s", of.len()))
        .collect();
    let groups = if groups.is_empty() { String::new() } else { format!(" ({})", groups.join(", ")) };
    format!("{} {word}{plural} active{groups}", daemons.len())
}
