//! Hosts of the cluster, and the tokens by which hosts join.
//!
//! A host registers with a token, once. From then on its agent reports to the monitors what runs there, and
//! is told what is to run there. Which hosts have a monitor is decided here (`place_monitors`): one at first,
//! three from the third host on, five from the fifth. Where copies of data go is in `placement`.

mod facts;
mod stops;

pub use facts::Facts;
pub use stops::ToldToStop;

use crate::pending_txn::PendingTxn;
use crate::services::Context;
use crate::services::health::{Checks, warn};
use crate::services::monmap::MonChange;
use crate::services::pg::stats::PgStats;
use crate::services::placement;
use crate::state::{Applying, Genesis, Rejected, Slice, State};
use nacre_base::{OsdId, Utime};
use nacre_crush::{CrushMap, Location};
use nacre_proto::maps::{OsdMap, Uuid, osd_state};
use nacre_proto::messages::LogLevel;
use nacre_proto::types::{AddrVec, AuthName, EntityAddr, EntityType};
use nacre_wire::{Decode, DecodeError, Encode, Reader, versioned, versioned_fields};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The role of hosts that may run monitors.
pub const ROLE_MON: &str = "mon";
/// The label of hosts that are drained: no monitor is placed there. Ceph has it for the same.
pub const NO_SCHEDULE: &str = "_no_schedule";
/// A host that was not heard of for so long counts as offline.
const OFFLINE_AFTER: Duration = Duration::from_secs(180);
/// So many monitors stay, also where the hosts need fewer.
const MONITORS_MIN: usize = 2;
/// What tells a device, and what is on it, from another one that has the same path later.
const DEVICE_IDENTITY: [&str; 7] =
    ["size", "model", "vendor", "serial", "store", "log_of", "rejected_reasons"];
/// An order that its host did not carry out in time is dropped.
const ORDER_LIFE: Duration = Duration::from_secs(600);
/// All roles that there are.
pub const ROLES: [&str; 3] = ["gateway", ROLE_MON, "osd"];

/// Hosts and tokens.
#[derive(Clone, Debug, Default)]
pub struct Hosts {
    /// By name.
    pub hosts: BTreeMap<String, Host>,
    /// By id.
    pub tokens: BTreeMap<String, Token>,
    /// The highest id that a monitor was given here. Ids are never used again.
    pub last_monitor: u64,
    /// Whether the default rule was changed to different hosts, or the administrator was told how to.
    pub domain_grown: bool,
    /// OSDs that are being removed, by id.
    pub removals: BTreeMap<i32, OsdRemoval>,
}

/// A machine that runs daemons.
#[derive(Clone, Debug, PartialEq)]
pub struct Host {
    /// Chosen by the host when it first asked: a second request of the same host is told from another host of
    /// the same name.
    pub uuid: Uuid,
    /// Where its monitor listens, if it has one. Its other daemons have the same IP address.
    pub addr: EntityAddr,
    /// Which boot of which kernel it was registered from. Several hosts of one machine have the same.
    pub machine: String,
    /// What it may run.
    pub roles: BTreeSet<String>,
    /// As `ceph orch host label add` gives them.
    pub labels: BTreeSet<String>,
    pub registered: Utime,
    /// The monitor that it has or is to have.
    pub monitor: Option<HostMonitor>,
    /// What its agent said last, by name.
    pub facts: Facts,
    /// When its agent was last heard of, to the minute.
    pub seen: Utime,
    /// Its daemons are to be stopped, and its OSDs stay in, until then.
    pub maintenance: Option<Utime>,
    /// What its agent is to do and has not done yet, in this order.
    pub orders: Vec<HostOrder>,
    /// The number of the last order that it was given.
    pub last_order: u64,
    /// OSDs that had the flag `noout` before the maintenance, and keep it.
    pub noout_before: BTreeSet<OsdId>,
}

/// What the agent of a host is to do, once.
#[derive(Clone, Debug, PartialEq)]
pub struct HostOrder {
    pub id: u64,
    /// `start`, `stop` or `restart` a daemon, `zap` a device, or `rescan` them.
    pub action: String,
    /// The daemon or the device.
    pub target: String,
    /// What was on the device when the order was given, as a JSON object of what identifies it. Empty for
    /// other orders.
    pub seen: String,
    pub given: Utime,
}

impl HostOrder {
    /// Whether it is too late to carry it out: a host that was away must not do what was meant for then. A
    /// daemon is started at any time.
    pub fn is_expired(&self, now: Utime) -> bool {
        self.action != "start" && self.given + ORDER_LIFE < now
    }
}

/// An OSD that is being removed.
#[derive(Clone, Debug, PartialEq)]
pub struct OsdRemoval {
    pub host: String,
    /// Its number is kept for another disk.
    pub replace: bool,
    /// Also if data is lost.
    pub force: bool,
    /// Its device is erased.
    pub zap: bool,
    pub started: Utime,
    /// The reweight that it had.
    pub weight: u32,
    /// It is out of the maps, and its host still has it.
    pub removed: bool,
}

/// A monitor of a host.
#[derive(Clone, Debug, PartialEq)]
pub struct HostMonitor {
    /// Its id in Raft.
    pub id: u64,
    /// `a` of `mon.a`.
    pub name: String,
}

/// A token, without its key: that is the key of its entity.
#[derive(Clone, Debug, PartialEq)]
pub struct Token {
    pub made: Utime,
    pub expires: Option<Utime>,
    /// How many hosts it lets in altogether.
    pub uses: u32,
    /// What these hosts may run.
    pub roles: BTreeSet<String>,
    /// The hosts that it let in, by their uuid.
    pub used_by: BTreeSet<Uuid>,
}

versioned_fields!(
    Host,
    "host",
    uuid,
    addr,
    machine,
    roles,
    labels,
    registered,
    monitor,
    facts,
    seen; later maintenance, orders, last_order, noout_before
);
versioned_fields!(HostMonitor, "monitor of a host", id, name);
versioned_fields!(Token, "token", made, expires, uses, roles, used_by);
versioned_fields!(HostOrder, "order to a host", id, action, target; later seen, given);
versioned_fields!(OsdRemoval, "removal of an OSD", host, replace, force, zap, started, weight, removed);
versioned_fields!(Hosts, "hosts", hosts, tokens, last_monitor, domain_grown; later removals);

/// A change of hosts or tokens.
#[derive(Clone, Debug, PartialEq)]
pub enum HostChange {
    /// None removes.
    Host(String, Option<Box<Host>>),
    /// None removes.
    Token(String, Option<Token>),
    /// This id is given to a monitor.
    MonitorId(u64),
    DomainGrown,
    /// None ends it.
    Removal(i32, Option<OsdRemoval>),
}

impl Slice for Hosts {
    type Delta = Vec<HostChange>;

    fn begin(_: &Genesis) -> Result<Hosts, Rejected> {
        Ok(Hosts::default())
    }
    fn apply(&mut self, delta: &Self::Delta, _: &Applying) {
        for change in delta {
            match change.clone() {
                HostChange::Host(name, Some(host)) => drop(self.hosts.insert(name, *host)),
                HostChange::Host(name, None) => drop(self.hosts.remove(&name)),
                HostChange::Token(id, Some(token)) => drop(self.tokens.insert(id, token)),
                HostChange::Token(id, None) => drop(self.tokens.remove(&id)),
                HostChange::MonitorId(id) => self.last_monitor = self.last_monitor.max(id),
                HostChange::DomainGrown => self.domain_grown = true,
                HostChange::Removal(osd, Some(removal)) => drop(self.removals.insert(osd, removal)),
                HostChange::Removal(osd, None) => drop(self.removals.remove(&osd)),
            }
        }
    }
    fn delta_bytes(delta: &Self::Delta) -> usize {
        delta
            .iter()
            .map(|change| match change {
                HostChange::Host(name, Some(host)) => name.len() + host.bytes(),
                _ => 0,
            })
            .sum()
    }
    fn client_bytes(&self) -> usize {
        self.hosts.iter().map(|(name, host)| name.len() + host.bytes()).sum()
    }
}

impl Host {
    /// The devices of the host, as its agent said last: JSON objects.
    pub fn devices(&self) -> &[Value] {
        self.facts.devices()
    }

    /// Has its agent do something, once. `device` is what it is to be done to, as the agent reported it.
    pub fn push_order(&mut self, now: Utime, action: &str, target: &str, device: Option<&Value>) {
        self.last_order += 1;
        let identity = |device: &Value| {
            let known = DEVICE_IDENTITY.iter().map(|key| ((*key).to_string(), device[*key].clone()));
            Value::Object(known.collect()).to_string()
        };
        self.orders.push(HostOrder {
            id: self.last_order,
            action: action.to_string(),
            target: target.to_string(),
            seen: device.map(identity).unwrap_or_default(),
            given: now,
        });
    }

    /// What its agent decides of.
    pub fn bytes(&self) -> usize {
        let facts = self.facts.iter().map(|(name, fact)| name.len() + fact.len()).sum::<usize>();
        self.machine.len() + facts
    }
}

/// The entity of a host's agent.
pub fn agent(host: &str) -> AuthName {
    AuthName::new(EntityType::Client, format!("host.{host}"))
}

/// The entity of a token.
pub fn entity_of_token(id: &str) -> AuthName {
    AuthName::new(EntityType::Client, format!("join.{id}"))
}

/// The id of a token, if that is one's entity.
pub fn token_of(name: &AuthName) -> Option<&str> {
    if name.kind != EntityType::Client as u32 {
        return None;
    }
    name.id.strip_prefix("join.")
}

impl Hosts {
    /// Whether a host was told to run this monitor.
    pub fn expects(&self, member: u64, name: &str, addrs: &AddrVec) -> bool {
        self.hosts.values().any(|host| {
            host.monitor.as_ref().is_some_and(|mon| mon.id == member && mon.name == name)
                && addrs.msgr2() == Some(host.addr)
        })
    }
}

/// What is due: monitors for hosts that need one, and the failure domain.
pub fn periodic(cx: &Context<'_>, stats: &PgStats, pending: &mut PendingTxn) {
    if !pending.batch.hosts.is_empty() {
        return;
    }
    let now = cx.now.wall;
    let is_over = |host: &&Host| host.maintenance.is_some_and(|until| until <= now);
    if let Some((name, host)) = cx.state.hosts.hosts.iter().find(|(_, host)| is_over(host)) {
        end_maintenance(pending, name, host);
        return cx.log(pending, LogLevel::Info, format!("the maintenance of host {name} is over"));
    }
    if !forget_removed_monitors(cx, pending) && !remove_surplus_monitor(cx, pending) {
        place_monitors(cx, pending);
    }
    placement::periodic(cx, stats, pending);
}

/// How many monitors a cluster with so many hosts has: an odd number, of which a majority survives the loss
/// of one host, then of two.
fn monitors_for(hosts: usize) -> usize {
    match hosts {
        0..3 => 1,
        3..5 => 3,
        _ => 5,
    }
}

/// The next id for a monitor.
pub fn next_monitor(state: &State) -> u64 {
    let membership = &state.monmap;
    let used = membership.members.keys().chain(&membership.removed).copied();
    used.fold(state.hosts.last_monitor, u64::max) + 1
}

/// Monitors of hosts that were removed by hand, or with all others when a cluster was recovered. True if
/// there was one: it is replaced with a later batch.
fn forget_removed_monitors(cx: &Context<'_>, pending: &mut PendingTxn) -> bool {
    let hosts = &cx.state.hosts.hosts;
    let is_removed =
        |host: &&Host| host.monitor.as_ref().is_some_and(|monitor| cx.state.monmap.was_removed(monitor.id));
    let without = |(name, host): (&String, &Host)| {
        HostChange::Host(name.clone(), Some(Box::new(Host { monitor: None, ..host.clone() })))
    };
    pending.batch.hosts.extend(hosts.iter().filter(|(_, host)| is_removed(host)).map(without));
    !pending.batch.hosts.is_empty()
}

/// One of more monitors than the hosts need, as after a host left: an even number survives no more failures
/// than one less. That of a drained host first. Two stay: the second one has a copy of the cluster's state,
/// which `nacre mon recover` starts from when the first one's disk is lost. True if something was decided.
fn remove_surplus_monitor(cx: &Context<'_>, pending: &mut PendingTxn) -> bool {
    let state = cx.state;
    let hosts = &state.hosts.hosts;
    let is_used = |host: &Host| !host.labels.contains(NO_SCHEDULE);
    // A drained host has a monitor until another one replaced it, or it leaves.
    let wanted = monitors_for(hosts.values().filter(|host| host.roles.contains(ROLE_MON)).count());
    let have: Vec<(&String, &Host)> = hosts.iter().filter(|(_, host)| host.monitor.is_some()).collect();
    let used = have.iter().filter(|(_, host)| is_used(host)).count();
    let members = state.monmap.members.len();
    // All others are there, so that a majority is left whatever happens to one of them.
    let is_settled = members == have.len() && cx.quorum.len() == members && pending.batch.monmap.is_none();
    if hosts.is_empty() || have.len() <= wanted.max(MONITORS_MIN) || used < wanted || !is_settled {
        return false;
    }
    let is_leader = |host: &Host| host.monitor.as_ref().is_some_and(|monitor| monitor.id == cx.config.id);
    let last = have.into_iter().min_by_key(|(_, host)| (is_used(host), is_leader(host)));
    let Some((name, host)) = last else { return false };
    let Some(monitor) = &host.monitor else { return false };
    if is_leader(host) {
        pending.hand_over = state.monmap.members.keys().copied().find(|id| *id != cx.config.id);
        return true;
    }
    let member = Some(monitor.id);
    cx.log(pending, LogLevel::Info, format!("mon.{} is removed: {wanted} monitors suffice", monitor.name));
    pending.batch.monmap = Some(MonChange::Remove { name: monitor.name.clone(), member });
    let without = Host { monitor: None, ..host.clone() };
    pending.batch.hosts.push(HostChange::Host(name.clone(), Some(Box::new(without))));
    true
}

/// Hosts that are to run a monitor are told so when their agents report. Racks without a monitor come first.
fn place_monitors(cx: &Context<'_>, pending: &mut PendingTxn) {
    let state = cx.state;
    let hosts = &state.hosts.hosts;
    let is_used = |host: &Host| !host.labels.contains(NO_SCHEDULE);
    let eligible = || hosts.iter().filter(|(_, host)| host.roles.contains(ROLE_MON) && is_used(host));
    // A drained host's monitor is replaced before the host is removed.
    let have = hosts.values().filter(|host| host.monitor.is_some() && is_used(host)).count();
    let wanted = monitors_for(eligible().count());
    // Nothing is decided for clusters that are not made of hosts.
    if hosts.is_empty() || have >= wanted {
        return;
    }
    let crush = &pending.map().crush;
    let rack = |name: &str| rack_of(crush, name);
    let mut taken: BTreeMap<Option<String>, usize> = BTreeMap::new();
    for (name, _) in hosts.iter().filter(|(_, host)| host.monitor.is_some()) {
        *taken.entry(rack(name)).or_default() += 1;
    }
    let mut free: Vec<(&String, &Host)> = eligible().filter(|(_, host)| host.monitor.is_none()).collect();
    let mut changes = Vec::new();
    for id in (next_monitor(state)..).take(wanted - have) {
        let fewest = |(name, _): &(&String, &Host)| taken.get(&rack(name)).copied().unwrap_or(0);
        let Some(at) = (0..free.len()).min_by_key(|at| (fewest(&free[*at]), *at)) else { break };
        let (name, host) = free.remove(at);
        *taken.entry(rack(name)).or_default() += 1;
        let monitor = Some(HostMonitor { id, name: monitor_name(state, name, id) });
        changes.push(HostChange::MonitorId(id));
        changes.push(HostChange::Host(name.clone(), Some(Box::new(Host { monitor, ..host.clone() }))));
    }
    // An even number would not survive more failures, so all or none.
    if have + changes.len() / 2 == wanted {
        pending.batch.hosts = changes;
    }
}

/// A monitor has its host's name, unless another monitor has it.
fn monitor_name(state: &State, host: &str, id: u64) -> String {
    match state.monmap.map.mons.contains_key(host) {
        true => format!("{host}-{id}"),
        false => host.to_string(),
    }
}

/// The rack that a host is in.
fn rack_of(crush: &CrushMap, host: &str) -> Option<String> {
    let item = crush.item_by_name(host)?;
    crush.location(item).into_iter().find(|(kind, _)| kind == "rack").map(|(_, rack)| rack)
}

/// Adds the checks `DEVICE_MISSING`, that disks of OSDs that are down are not on their hosts, and
/// `DEVICE_DUPLICATE`, that several devices of a host have the same label.
pub fn health(cx: &Context<'_>, map: &OsdMap, checks: &mut Checks) {
    let (mut lines, mut copies) = (Vec::new(), Vec::new());
    for (name, host) in cx.state.hosts.hosts.iter().filter(|(_, host)| !is_offline(cx.now.wall, host)) {
        let devices = host.devices();
        for device in devices.iter().filter(|device| device["duplicate"] == true) {
            let path = device["path"].as_str().unwrap_or_default();
            copies.push(format!("{path} of host {name} has the label of another device of that host"));
        }
        for device in devices.iter().filter(|device| device["missing"] == true) {
            let osd = device["osd"].as_i64().and_then(|id| i32::try_from(id).ok()).map(OsdId);
            let Some(osd) = osd.filter(|osd| map.is_down(*osd)) else { continue };
            let text = |key: &str| device[key].as_str().unwrap_or_default();
            let said = cx.state.osdmap.metadata.get(&osd);
            // `name=MODEL_SERIAL`, as the OSD said when it started.
            let id = said.and_then(|said| said.get("device_ids")).and_then(|id| id.split_once('='));
            let id = id.map_or(String::new(), |(_, id)| format!(" ({id})"));
            lines.push(format!("host {name} has no {}{id} any more, which osd.{osd} is on", text("path")));
        }
    }
    if !lines.is_empty() {
        let n = lines.len();
        let summary = format!("{n} device{} of OSDs missing", if n == 1 { "" } else { "s" });
        warn(checks, "DEVICE_MISSING", n, summary, lines);
    }
    if !copies.is_empty() {
        let n = copies.len();
        let summary = format!("{n} devices are copies of each other, and no OSD is moved to them");
        warn(checks, "DEVICE_DUPLICATE", n, summary, copies);
    }
}

/// Whether the agent of the host was not heard of for a while.
pub fn is_offline(now: Utime, host: &Host) -> bool {
    host.seen + OFFLINE_AFTER < now
}

/// The OSDs below a host in the CRUSH map.
pub fn osds_of(map: &OsdMap, host: &str) -> Vec<OsdId> {
    let Some(item) = map.crush.item_by_name(host) else { return Vec::new() };
    let mut osds: Vec<OsdId> =
        map.crush.devices_below(item).map(OsdId).filter(|osd| map.exists(*osd)).collect();
    osds.sort_unstable();
    osds
}

/// The daemons of the host run again, and OSDs that stay down are marked out, unless an administrator had
/// decided otherwise before.
pub fn end_maintenance(pending: &mut PendingTxn, name: &str, host: &Host) {
    let ended = Host { maintenance: None, noout_before: BTreeSet::new(), ..host.clone() };
    pending.batch.hosts.push(HostChange::Host(name.to_string(), Some(Box::new(ended))));
    let own =
        osds_of(&pending.map().clone(), name).into_iter().filter(|osd| !host.noout_before.contains(osd));
    for osd in own {
        if pending.map().osds[osd.index()].state & osd_state::NOOUT != 0 {
            pending.flip(osd, osd_state::NOOUT);
        }
    }
}

/// `crush` with the host at `location`, below `default` unless it says otherwise. None if it is there
/// already.
pub fn place_host(crush: &CrushMap, host: &str, location: &Location) -> Result<Option<CrushMap>, String> {
    let mut place = location.clone();
    place.remove("host");
    if !place.contains_key("root") {
        place.insert("root".to_string(), "default".to_string());
    }
    let item = crush.item_by_name(host);
    if let Some(item) = item {
        let kind = crush.bucket(item).map(|bucket| i32::from(bucket.kind));
        if kind.is_none() || kind != crush.type_by_name("host") {
            return Err(format!("the CRUSH map has something else called {host}"));
        }
        let here: Location = crush.location(item).into_iter().collect();
        if location.is_empty() || place.iter().all(|(kind, name)| here.get(kind) == Some(name)) {
            return Ok(None);
        }
    }
    let mut map = crush.clone();
    if item.is_none() {
        map.add_bucket(host, "host").map_err(|e| e.to_string())?;
    }
    map.move_item(host, &place).map_err(|e| e.to_string())?;
    Ok(Some(map))
}

impl Encode for HostChange {
    fn encode(&self, out: &mut Vec<u8>) {
        versioned(out, 1, 1, |out| match self {
            HostChange::Host(name, host) => {
                out.push(0);
                name.encode(out);
                host.as_deref().encode(out);
            }
            HostChange::Token(id, token) => {
                out.push(1);
                id.encode(out);
                token.encode(out);
            }
            HostChange::MonitorId(id) => {
                out.push(2);
                id.encode(out);
            }
            HostChange::DomainGrown => out.push(3),
            HostChange::Removal(osd, removal) => {
                out.push(4);
                osd.encode(out);
                removal.encode(out);
            }
        });
    }
}
impl Decode for HostChange {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("change of hosts", 1, |r, _| {
            Ok(match u8::decode(r)? {
                0 => HostChange::Host(Decode::decode(r)?, Option::<Host>::decode(r)?.map(Box::new)),
                1 => HostChange::Token(Decode::decode(r)?, Decode::decode(r)?),
                2 => HostChange::MonitorId(Decode::decode(r)?),
                3 => HostChange::DomainGrown,
                4 => HostChange::Removal(Decode::decode(r)?, Decode::decode(r)?),
                value => return Err(DecodeError::BadValue { what: "change of hosts", value: value.into() }),
            })
        })
    }
}
