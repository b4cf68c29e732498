//! Upgrades: the cluster's format, and restarting daemons with a newer version one step after the other.
//!
//! The format (`cluster_format`) says what daemons may send and store. Daemons that cannot use it are refused
//! (`admits`), and it is raised by `nacre upgrade finish` only. A rolling upgrade restarts monitors, then
//! OSDs by failure domain, then other daemons: the leader decides on a step (`periodic`), and the agents of
//! the hosts are told to restart its daemons when they report, as long as these may still stop. The next step
//! waits until placement groups are no worse than before. New health codes and higher latency halt the
//! upgrade.

use super::latency_window::LatencyWindow;
use crate::pending_txn::PendingTxn;
use crate::services::Context;
use crate::services::health::{Checks, warn};
use crate::services::hosts::{Host, ToldToStop};
use crate::services::pg::stats::{PgStats, all_pgs};
use crate::services::pg::stopping::ActingSets;
use crate::state::{Applying, Genesis, Rejected, Slice, State};
use nacre_base::{OsdId, Time, Utime};
use nacre_proto::maps::OsdMap;
use nacre_proto::messages::{DaemonMsg, Latencies, LogLevel, OsdBoot, OsdReport, pg_state};
use nacre_proto::types::{Formats, cluster_format};
use nacre_wire::versioned_fields;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// By this key daemons' metadata have the formats that they can use.
pub const FORMATS_KEY: &str = "nacre_formats";
/// And by this one Nacre's version.
pub const VERSION_KEY: &str = "nacre_version";
/// The fact of a host: the version of the program that is installed there.
pub const INSTALLED: &str = "installed";
/// Between the end of a step and the next one.
const SETTLE: Duration = Duration::from_secs(5);
/// How long a new health code or a higher latency may last.
const PATIENCE: Duration = Duration::from_secs(60);
/// For the daemons of a step to be back.
const STEP_TIMEOUT: Duration = Duration::from_secs(300);
/// Between two looks at whether a step is due.
const LOOK_EVERY: Duration = Duration::from_millis(900);
/// A leader has no reports of OSDs before.
const LEADS_MIN: Duration = Duration::from_secs(10);
/// How many times the latency may be what it was before the upgrade.
const LATENCY_FACTOR: u64 = 2;
/// Less than this more is no reason to halt, in microseconds: the few requests of an idle cluster vary so
/// much.
const LATENCY_SLACK: u64 = 5000;
/// Past upgrades that are kept.
const PAST_MAX: usize = 32;
/// How long a daemon that was refused is shown after it last tried.
const REFUSED_FOR: Duration = Duration::from_secs(60);

/// The format of the cluster, and its upgrades.
#[derive(Clone, Debug, PartialEq)]
pub struct Upgrades {
    /// Only grows.
    pub format: u32,
    /// None unless one is in progress.
    pub current: Option<Upgrade>,
    /// The last ones, from `cluster_format::LATENCIES` on.
    pub past: Vec<PastUpgrade>,
}

/// An upgrade in progress.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Upgrade {
    /// The version that daemons are to have.
    pub target: String,
    pub started: Utime,
    pub paused: bool,
    /// Why it goes no further.
    pub halted: Option<String>,
    /// Health codes that there were when it started or was resumed.
    pub codes: BTreeSet<String>,
    /// The latency of requests then, in microseconds; 0 if it is not known.
    pub latency_us: u64,
    /// Placement groups that did not serve, and that were not clean, before the last step.
    pub inactive_pgs: u64,
    pub unclean_pgs: u64,
    /// What is being restarted.
    pub step: Option<Step>,
    /// How many daemons were told to restart, in steps that are over.
    pub restarted: u32,
}

/// Daemons that are restarted together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    /// Such as `osd.3`.
    pub daemons: Vec<String>,
    pub began: Utime,
}

/// An upgrade that is over, or a format that was raised.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PastUpgrade {
    pub ended: Utime,
    /// The version that all daemons have since then; empty where the format was raised.
    pub version: String,
    /// The cluster's format since then.
    pub format: u32,
}

versioned_fields!(Upgrades, "upgrades", format, current, past);
versioned_fields!(
    Upgrade,
    "upgrade",
    target,
    started,
    paused,
    halted,
    codes,
    latency_us,
    inactive_pgs,
    unclean_pgs,
    step,
    restarted
);
versioned_fields!(Step, "step of an upgrade", daemons, began);
versioned_fields!(PastUpgrade, "past upgrade", ended, version, format);

/// Those of monitors that do not know of formats.
impl Default for Upgrades {
    fn default() -> Upgrades {
        Upgrades { format: cluster_format::FIRST, current: None, past: Vec::new() }
    }
}

impl Slice for Upgrades {
    /// What they are from then on.
    type Delta = Option<Upgrades>;

    fn begin(genesis: &Genesis) -> Result<Upgrades, Rejected> {
        Ok(Upgrades { format: genesis.format.max(cluster_format::FIRST), ..Upgrades::default() })
    }
    fn apply(&mut self, delta: &Self::Delta, _: &Applying) {
        if let Some(new) = delta {
            *self = new.clone();
        }
    }
}

impl Upgrades {
    /// Notes an upgrade that is over, where all monitors know of such records.
    pub fn note_past(&mut self, past: PastUpgrade) {
        if self.format >= cluster_format::LATENCIES {
            self.past.push(past);
            let excess = self.past.len().saturating_sub(PAST_MAX);
            self.past.drain(..excess);
        }
    }
}

impl Context<'_> {
    /// Whether this monitor leads for so long that OSDs have reported to it.
    pub fn leads_long_enough(&self) -> bool {
        self.leads_since.is_some_and(|since| self.now.mono.since(since) >= LEADS_MIN)
    }
}

impl Upgrade {
    /// Its daemons are restarted no more.
    pub fn give_up_step(&mut self) {
        let step = self.step.take().unwrap_or_default();
        self.restarted += step.daemons.len() as u32;
    }
}

/// A daemon as the monitors know it.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// Such as `osd.3`.
    pub name: String,
    /// Empty if it never said.
    pub version: String,
    pub formats: Formats,
    pub is_up: bool,
    /// The host whose agent runs it.
    pub host: Option<String>,
}

/// A daemon in an agent's report.
#[derive(Clone, Debug, Deserialize)]
pub struct Reported {
    pub name: String,
    pub state: String,
    /// It runs another program than the one that is installed.
    #[serde(default)]
    pub outdated: bool,
    /// Bytes of memory that it has, roughly; 0 if it does not run, or its agent does not say.
    #[serde(default)]
    pub memory: u64,
}

/// The daemons of a host, as its agent said last.
pub fn reported(host: &Host) -> Vec<Reported> {
    let text = host.facts.get("daemons").map(String::as_str).unwrap_or_default();
    serde_json::from_str(text).unwrap_or_default()
}

/// Monitors and OSDs of the cluster.
pub fn known(state: &State, quorum: &[u64]) -> Vec<Known> {
    let mut host_of: BTreeMap<String, &String> = BTreeMap::new();
    for (host, info) in &state.hosts.hosts {
        host_of.extend(reported(info).into_iter().map(|daemon| (daemon.name, host)));
    }
    let make = |name: String, metadata: Option<&BTreeMap<String, String>>, is_up| {
        let said = |key: &str| metadata.and_then(|metadata| metadata.get(key)).cloned().unwrap_or_default();
        let formats = Formats::parse(&said(FORMATS_KEY)).unwrap_or_default();
        let host = host_of.get(&name).map(|host| (*host).clone());
        Known { version: said(VERSION_KEY), formats, is_up, host, name }
    };
    let mons = state.monmap.members.iter().map(|(id, name)| {
        let is_up = state.monmap.rank_of(*id).is_some_and(|rank| quorum.contains(&rank));
        make(format!("mon.{name}"), state.mon_metadata.of.get(id), is_up)
    });
    let map = &state.osdmap.map;
    let osds =
        map.osd_ids().map(|osd| make(format!("osd.{osd}"), state.osdmap.metadata.get(&osd), map.is_up(osd)));
    mons.chain(osds).collect()
}

/// What the leader knows beside the agreed state.
#[derive(Default)]
pub struct UpgradeMonitor {
    window: LatencyWindow,
    /// Since when nothing is being restarted, as far as this leader knows.
    calm_since: Option<Time>,
    /// Since when there are new health codes or a higher latency.
    bad_since: Option<Time>,
    /// Of the map that was looked at last in an upgrade.
    acting: ActingSets,
    /// When it was last looked whether a step is due.
    looked: Option<Time>,
    /// Daemons that cannot use the cluster's format, with what is wrong.
    refused: BTreeMap<String, (Time, String)>,
    /// What the upgrade waits for; empty if for nothing, and on followers.
    pub waits_for: String,
}

impl UpgradeMonitor {
    /// Notes a daemon that was refused. True if that is news.
    pub fn refuse(&mut self, now: Time, name: &str, text: &str) -> bool {
        let before = self.refused.insert(name.to_string(), (now, text.to_string()));
        before.is_none_or(|(_, before)| before != text)
    }

    /// An OSD boots. False if it cannot use the cluster's format.
    pub fn admits(&mut self, cx: &Context<'_>, boot: &OsdBoot, pending: &mut PendingTxn) -> bool {
        let format = cx.state.upgrades.format;
        let formats = boot.formats.unwrap_or_default();
        let name = format!("osd.{}", boot.osd);
        if formats.contains(format) {
            self.refused.remove(&name);
            return true;
        }
        if boot.formats.is_some() {
            pending.osd_messages.push((boot.osd, DaemonMsg::Format { format }));
        }
        let text = refusal(&name, formats, format);
        if self.refuse(cx.now.mono, &name, &text) {
            cx.log(pending, LogLevel::Warn, text);
        }
        false
    }

    /// An OSD that missed a change of the format is told.
    pub fn on_report(&mut self, now: Time, report: &OsdReport, format: u32) -> Option<DaemonMsg> {
        if let Some(osd) = report.osd {
            self.window.counters(now, osd, &report.counters);
        }
        (report.format != 0 && report.format < format).then_some(DaemonMsg::Format { format })
    }
    /// An OSD reports latencies.
    pub fn on_latencies(&mut self, now: Time, latencies: &Latencies) {
        self.window.latencies(now, latencies);
    }
    /// This monitor leads no more.
    pub fn step_down(&mut self) {
        self.window = LatencyWindow::default();
        (self.calm_since, self.bad_since, self.looked) = (None, None, None);
        self.acting = ActingSets::default();
        self.waits_for.clear();
    }

    /// Daemons that were refused or cannot use the format, and an upgrade that halted.
    pub fn health(&self, cx: &Context<'_>, checks: &mut Checks) {
        let now = cx.now.mono;
        let recent = self.refused.values().filter(|(at, _)| now.since(*at) < REFUSED_FOR);
        let mut detail: Vec<String> = recent.map(|(_, text)| text.clone()).collect();
        detail.extend(unable_osds(cx.state));
        if !detail.is_empty() {
            let summary = format!("{} daemons cannot use the cluster's format", detail.len());
            warn(checks, "INCOMPATIBLE_DAEMON", detail.len(), summary, detail);
        }
        let upgrades = &cx.state.upgrades;
        if let Some(Upgrade { target, halted: Some(why), .. }) = &upgrades.current {
            let summary = format!("the upgrade to {target} halted");
            let detail = vec![format!("{why}; `nacre upgrade resume` goes on")];
            warn(checks, "UPGRADE_HALTED", 1, summary, detail);
        }
    }

    /// What latency the OSDs report now, in microseconds: p99, or the mean in the first format.
    pub fn latency(&self, format: u32, since: Option<Time>) -> Option<u64> {
        self.window.figure(format >= cluster_format::LATENCIES, since.unwrap_or(Time::ZERO))
    }

    /// On the leader: the next step of an upgrade, if it is due.
    pub fn periodic(&mut self, cx: &Context<'_>, stats: &PgStats, checks: &Checks, pending: &mut PendingTxn) {
        self.refused.retain(|_, (at, _)| cx.now.mono.since(*at) < REFUSED_FOR);
        let Some(current) = &cx.state.upgrades.current else {
            self.acting = ActingSets::default();
            return;
        };
        if current.paused || current.halted.is_some() || pending.batch.upgrades.is_some() {
            return;
        }
        if !cx.leads_long_enough() {
            self.waits_for = "the new leader collects reports".to_string();
            return;
        }
        // Changes of the map come more often, and each look costs time.
        if self.looked.is_some_and(|at| cx.now.mono.since(at) < LOOK_EVERY) {
            return;
        }
        self.looked = Some(cx.now.mono);
        let mut new = current.clone();
        let next = self.next(cx, stats, checks, &mut new);
        self.waits_for.clear();
        match next {
            Next::Wait(why) => self.waits_for = why,
            Next::HandOver(to) => {
                self.waits_for = "another monitor to lead".to_string();
                pending.hand_over = Some(to);
            }
            Next::Halt(why) => {
                cx.log(pending, LogLevel::Warn, format!("the upgrade to {} halted: {why}", new.target));
                new.halted = Some(why);
                self.commit(cx, Some(new), pending);
            }
            Next::Begin(daemons) => {
                cx.log(pending, LogLevel::Info, format!("upgrade: restarts {}", daemons.join(", ")));
                (new.inactive_pgs, new.unclean_pgs) = bad_pgs(stats, cx.state);
                new.step = Some(Step { daemons, began: cx.now.wall });
                self.commit(cx, Some(new), pending);
            }
            Next::StepDone => {
                self.calm_since = Some(cx.now.mono);
                new.give_up_step();
                self.commit(cx, Some(new), pending);
            }
            Next::GiveUpStep(why) => {
                let names = new.step.as_ref().map(|step| step.daemons.join(", ")).unwrap_or_default();
                cx.log(pending, LogLevel::Warn, format!("upgrade: no longer restarts {names}: {why}"));
                new.give_up_step();
                self.commit(cx, Some(new), pending);
            }
            Next::Complete(left) => {
                let left = match left.is_empty() {
                    true => String::new(),
                    false => format!(", except {}, which are down", left.join(", ")),
                };
                let text = format!(
                    "all daemons run {}{left}; `nacre upgrade finish` enables what is new in it",
                    new.target
                );
                cx.log(pending, LogLevel::Info, text);
                self.commit(cx, None, pending);
                let past =
                    PastUpgrade { ended: cx.now.wall, version: new.target, format: cx.state.upgrades.format };
                if let Some(upgrades) = &mut pending.batch.upgrades {
                    upgrades.note_past(past);
                }
            }
        }
    }

    fn commit(&self, cx: &Context<'_>, current: Option<Upgrade>, pending: &mut PendingTxn) {
        pending.batch.upgrades = Some(Upgrades { current, ..cx.state.upgrades.clone() });
    }

    fn next(&mut self, cx: &Context<'_>, stats: &PgStats, checks: &Checks, upgrade: &mut Upgrade) -> Next {
        let state = cx.state;
        let known = known(state, &cx.quorum);
        self.acting.update(&state.osdmap.map);
        if let Some(step) = &upgrade.step {
            (self.calm_since, self.bad_since) = (None, None);
            let waiting = step.daemons.iter().filter(|name| !is_done(state, &known, name, &upgrade.target));
            let waiting: Vec<&str> = waiting.map(String::as_str).collect();
            if waiting.is_empty() {
                return Next::StepDone;
            }
            if let Some(why) = must_run(cx, (stats, &self.acting), &known, &waiting, &upgrade.target) {
                return Next::GiveUpStep(why);
            }
            let text = format!("{} to run {}", waiting.join(", "), upgrade.target);
            return match step.began + STEP_TIMEOUT < cx.now.wall {
                true => Next::Halt(format!("it waited {} s for {text}", STEP_TIMEOUT.as_secs())),
                false => Next::Wait(text),
            };
        }
        let calm_since = *self.calm_since.get_or_insert(cx.now.mono);
        let calm = cx.now.mono.since(calm_since);
        if calm < SETTLE {
            return Next::Wait("the daemons that were restarted to settle".to_string());
        }
        let worse = match upgrade.restarted {
            0 => None,
            _ => self.is_worse(cx, stats, checks, upgrade),
        };
        match worse {
            Some(Worse::Bad(text)) => {
                let since = *self.bad_since.get_or_insert(cx.now.mono);
                return match cx.now.mono.since(since) < PATIENCE {
                    true => Next::Wait(text),
                    false => Next::Halt(text),
                };
            }
            Some(Worse::Passing(text)) => {
                self.bad_since = None;
                return Next::Wait(text);
            }
            None => self.bad_since = None,
        }
        next_step(cx, (stats, &self.acting), &known, &upgrade.target)
    }

    /// What is worse than before.
    fn is_worse(
        &self,
        cx: &Context<'_>,
        stats: &PgStats,
        checks: &Checks,
        upgrade: &Upgrade,
    ) -> Option<Worse> {
        let (inactive, unclean) = bad_pgs(stats, cx.state);
        if inactive > upgrade.inactive_pgs {
            let text = format!(
                "{inactive} placement groups to serve: before the last step it was {}",
                upgrade.inactive_pgs
            );
            return Some(Worse::Passing(text));
        }
        if unclean > upgrade.unclean_pgs {
            let text = format!(
                "{unclean} placement groups to be clean: before the last step it was {}",
                upgrade.unclean_pgs
            );
            return Some(Worse::Passing(text));
        }
        let new: Vec<&str> = checks.keys().filter(|code| !upgrade.codes.contains(**code)).copied().collect();
        if !new.is_empty() {
            return Some(Worse::Bad(format!("new health codes: {}", new.join(", "))));
        }
        let now = self.latency(cx.state.upgrades.format, self.calm_since)?;
        let before = upgrade.latency_us;
        let is_higher = before > 0 && now > before * LATENCY_FACTOR && now > before + LATENCY_SLACK;
        is_higher.then(|| Worse::Bad(format!("the latency of requests is {now} us, and was {before} us")))
    }
}

enum Worse {
    /// It ends by itself, as recovery does.
    Passing(String),
    Bad(String),
}

enum Next {
    /// For this.
    Wait(String),
    /// Another monitor is to lead.
    HandOver(u64),
    Halt(String),
    Begin(Vec<String>),
    StepDone,
    /// The daemons of the step may not stop any more, for this reason.
    GiveUpStep(String),
    /// Daemons that are down were left as they are.
    Complete(Vec<String>),
}

/// How a daemon that cannot use the cluster's format is told so.
pub fn refusal(name: &str, formats: Formats, format: u32) -> String {
    let Formats { min, max } = formats;
    let cure = match format > max {
        true => "install a newer version of Nacre there".to_string(),
        false => format!(
            "its version is too new for this cluster: install the version before it, and run `nacre upgrade finish` \
             until the format is {min}"
        ),
    };
    format!("{name} can use the formats {min} to {max}, and the cluster has format {format}: {cure}")
}

/// What is wrong with OSDs that are up and cannot use the cluster's format.
fn unable_osds(state: &State) -> impl Iterator<Item = String> + '_ {
    let format = state.upgrades.format;
    state.osdmap.map.up_osds().filter_map(move |osd| {
        let said = state.osdmap.metadata.get(&osd)?.get(FORMATS_KEY);
        let formats = said.and_then(|text| Formats::parse(text)).unwrap_or_default();
        (!formats.contains(format)).then(|| refusal(&format!("osd.{osd}"), formats, format))
    })
}

/// Placement groups that do not serve, and those that are not clean.
pub fn bad_pgs(stats: &PgStats, state: &State) -> (u64, u64) {
    let map = &state.osdmap.map;
    all_pgs(map).fold((0, 0), |(inactive, unclean), pg| {
        let is_inactive = stats.pg_state(map, pg) & pg_state::ACTIVE == 0;
        (inactive + u64::from(is_inactive), unclean + u64::from(!stats.is_clean(state, map, pg)))
    })
}

/// Whether a daemon runs the version, and is up.
fn is_done(state: &State, known: &[Known], name: &str, target: &str) -> bool {
    match known.iter().find(|daemon| daemon.name == name) {
        Some(daemon) => daemon.is_up && daemon.version == target,
        None => {
            let mut all = state.hosts.hosts.values().flat_map(reported);
            all.all(|daemon| daemon.name != name || (daemon.state == "running" && !daemon.outdated))
        }
    }
}

/// Why the daemons of a step that have not stopped yet may not stop any more: others failed since it began.
fn must_run(
    cx: &Context<'_>,
    (stats, acting): (&PgStats, &ActingSets),
    known: &[Known],
    waiting: &[&str],
    target: &str,
) -> Option<String> {
    let is_left = |daemon: &&Known| waiting.contains(&daemon.name.as_str()) && daemon.version != target;
    let left: Vec<&Known> = known.iter().filter(is_left).filter(|daemon| daemon.is_up).collect();
    let names = left.iter().map(|daemon| daemon.name.as_str());
    let told = ToldToStop::on_hosts(cx.state, cx.now.wall);
    if let Some(name) = names.clone().find(|name| name.starts_with("mon."))
        && !may_restart(cx, &told, name)
    {
        return Some(format!("without {name} the other monitors have no majority"));
    }
    let osds = names.clone().filter_map(|name| name.strip_prefix("osd.")?.parse().ok()).map(OsdId);
    let stopped = acting.stopping(cx.state, stats, &osds.collect(), &told.osds).stopped;
    let names: Vec<&str> = names.collect();
    let text = || format!("placement groups would not serve without {}", names.join(", "));
    (!stopped.is_empty()).then(text)
}

/// Whether this monitor may be restarted, where others were told to stop already.
fn may_restart(cx: &Context<'_>, told: &ToldToStop, name: &str) -> bool {
    let members = &cx.state.monmap.members;
    let stays = |(id, member): &(&u64, &String)| format!("mon.{member}") == name || !told.mons.contains(id);
    let is_there = |id: &u64| cx.state.monmap.rank_of(*id).is_some_and(|rank| cx.quorum.contains(&rank));
    let there = members.iter().filter(stays).filter(|(id, _)| is_there(id)).count();
    may_restart_one(members.len(), there)
}

/// Whether one monitor may be restarted: the others decide without it. One or two monitors never do, and no
/// command is answered meanwhile.
fn may_restart_one(members: usize, there: usize) -> bool {
    match members {
        0..3 => there == members,
        _ => there.saturating_sub(1) > members / 2,
    }
}

/// What is restarted next: monitors, the leader last; OSDs by failure domain, those
/// first that may stop; other daemons.
fn next_step(
    cx: &Context<'_>,
    (stats, acting): (&PgStats, &ActingSets),
    known: &[Known],
    target: &str,
) -> Next {
    let state = cx.state;
    let is_old = |daemon: &&Known| daemon.version != target;
    let is_mon = |daemon: &&Known| daemon.name.starts_with("mon.");
    if let Some(daemon) = known.iter().filter(is_old).find(|daemon| daemon.is_up && daemon.host.is_none()) {
        return Next::Halt(format!("{} runs on no host that has an agent: restart it by hand", daemon.name));
    }
    let told = ToldToStop::on_hosts(state, cx.now.wall);
    let own = format!("mon.{}", cx.config.name);
    let mut mons: Vec<&Known> = known.iter().filter(is_mon).filter(is_old).filter(|mon| mon.is_up).collect();
    mons.sort_by_key(|mon| mon.name == own);
    if let Some(mon) = mons.first() {
        if !may_restart(cx, &told, &mon.name) {
            let text = format!("another monitor: without {} the others have no majority", mon.name);
            return Next::Wait(text);
        }
        let successor = state.monmap.members.iter().find(|(id, _)| {
            **id != cx.config.id && state.monmap.rank_of(**id).is_some_and(|rank| cx.quorum.contains(&rank))
        });
        return match successor {
            Some((id, _)) if mon.name == own => Next::HandOver(*id),
            _ => Next::Begin(vec![mon.name.clone()]),
        };
    }
    let map = &state.osdmap.map;
    let mut domains: BTreeMap<String, Vec<OsdId>> = BTreeMap::new();
    for osd in map.up_osds().filter(|osd| {
        let name = format!("osd.{osd}");
        known.iter().any(|daemon| daemon.name == name && is_old(&daemon))
    }) {
        domains.entry(domain_of(map, osd)).or_default().push(osd);
    }
    let names = |osds: &[OsdId]| osds.iter().map(|osd| format!("osd.{osd}")).collect::<Vec<_>>();
    let stops = |osds: &[OsdId]| {
        let osds: BTreeSet<OsdId> = osds.iter().copied().collect();
        !acting.stopping(state, stats, &osds, &told.osds).stopped.is_empty()
    };
    if let Some(osds) = domains.values().find(|osds| !stops(osds)) {
        return Next::Begin(names(osds));
    }
    if let Some(osd) = domains.values().flatten().find(|osd| !stops(&[**osd])) {
        return Next::Begin(names(&[*osd]));
    }
    if let Some(osds) = domains.values().next() {
        let names = names(osds).join(" or ");
        return Next::Wait(format!("other copies: placement groups would not serve without {names}"));
    }
    let others = state.hosts.hosts.values().flat_map(reported);
    let mut others = others.filter(|daemon| {
        !daemon.name.starts_with("mon.") && !daemon.name.starts_with("osd.") && daemon.state == "running"
    });
    if let Some(other) = others.find(|daemon| daemon.outdated) {
        return Next::Begin(vec![other.name]);
    }
    Next::Complete(known.iter().filter(is_old).map(|daemon| daemon.name.clone()).collect())
}

/// The bucket of the OSD that the default rule puts different copies into.
fn domain_of(map: &OsdMap, osd: OsdId) -> String {
    let crush = &map.crush;
    let alone = format!("osd.{osd}");
    let steps = crush.rule(0).map(|rule| rule.steps.clone()).unwrap_or_default();
    // The type that copies are spread over: the argument of the step that chooses.
    let kinds = steps.iter().filter(|step| is_choice(step.op)).map(|step| step.arg2);
    let Some(kind) = kinds.max().filter(|kind| *kind > 0) else { return alone };
    let location = crush.location(osd.0);
    let found = location.into_iter().find(|(name, _)| crush.type_by_name(name) == Some(kind));
    found.map_or(alone, |(_, bucket)| bucket)
}

fn is_choice(op: u32) -> bool {
    use nacre_crush::Op;
    matches!(
        Op::from_code(op),
        Some(Op::ChooseFirstN | Op::ChooseLeafFirstN | Op::ChooseIndep | Op::ChooseLeafIndep)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_two_monitors_may_be_restarted_and_one_of_three_if_all_are_there() {
        let allowed = [(1, 1), (2, 2), (3, 3), (4, 4), (5, 4)];
        let refused = [(3, 2), (4, 3), (5, 3)];
        assert!(allowed.into_iter().all(|(members, there)| may_restart_one(members, there)));
        assert!(!refused.into_iter().any(|(members, there)| may_restart_one(members, there)));
    }
}
