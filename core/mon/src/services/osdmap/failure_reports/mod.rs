//! Failure reports: which OSDs are marked down because others receive nothing from them.
//!
//! An OSD that misses a peer reports it twice a second until it receives something from it again. A single
//! reporter may be the one with the loose cable, so several must report, from different failure domains. Two
//! OSDs that miss each other prove a broken link and no more: the one with more broken links is believed
//! less. Only the leader keeps reports. A new leader gets them all again within a second, and finds past ones
//! in the `LeaderHints`. Read `FailureReports::check_reports`.

use crate::services::health::{Check, Checks, Severity};
use crate::services::leader_hints::{LeaderHints, PastMarkDown};
use crate::services::osdmap::osd_sessions::OsdSessions;
use nacre_base::{Epoch, OsdId, Time};
use nacre_crush::CrushMap;
use nacre_proto::maps::OsdMap;
use nacre_proto::types::Network;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// A report that is not repeated for this long is dropped.
const REPORT_TTL: Duration = Duration::from_secs(2);
/// Reports of both sides of a split network arrive at their own times: the first ones are not more right.
const SETTLE_TIME: Duration = Duration::from_millis(150);
/// A link that is broken for this long stalls requests, so one end is marked down.
const LINK_PATIENCE: Duration = Duration::from_secs(5);
/// Without reporters in enough domains, enough of them anywhere will do after this time.
const DOMAIN_PATIENCE: Duration = Duration::from_millis(2500);
/// A reporter that was wrong about an OSD before counts only after so much silence.
const DISTRUSTED_SILENCE: Duration = Duration::from_secs(3);
/// An OSD that boots again so soon was wrongly marked down. One that returns later stood still, or was cut
/// off.
const FALSE_REPORT_WINDOW: Duration = Duration::from_secs(3);
/// A report that is open for this long is about the network, or else it would be settled.
const WORTH_A_WARNING: Duration = Duration::from_secs(4);
/// How long links and OSDs that came and went are kept.
const HISTORY: Duration = Duration::from_secs(600);
/// So often within `HISTORY` makes it worth a warning.
const OFTEN: usize = 3;
/// Both ends tell of the same break.
const SAME_BREAK: Duration = Duration::from_secs(2);
/// The third return within `HISTORY` has to wait for this long, each further one for twice as long.
const RETURN_DELAY: Duration = Duration::from_secs(5);
const RETURN_DELAY_MAX: Duration = Duration::from_secs(60);

/// When a process ends, its session with the monitor ends at the same time; the monitor may see that slightly
/// later than peers see that its port refuses connections.
const SESSION_GRACE: Duration = Duration::from_millis(100);

/// Why an OSD is marked down.
#[derive(Debug, PartialEq, Eq)]
pub struct MarkDown {
    pub target: OsdId,
    pub why: String,
    pub reporters: Vec<OsdId>,
    pub evidence: Evidence,
    /// The network on which it was silent, if it was not silent on the other one.
    pub network: Option<Network>,
}

#[derive(Clone, Copy)]
struct Report {
    /// The network on which the target is silent, if it is heard on the other one.
    network: Option<Network>,
    first: Time,
    last: Time,
    /// When the reporter last received something from the target.
    heard: Time,
}

/// What a reporter says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Evidence {
    Silent,
    Refused,
}

/// A reporter says that the address of the incarnation that booted in `up_from` refuses connections.
struct Refusal {
    reporter: OsdId,
    up_from: Epoch,
    at: Time,
}

/// The last decision on an OSD that has not returned.
struct MarkedDown {
    at: Time,
    reporters: Vec<OsdId>,
    evidence: Evidence,
    network: Option<Network>,
}

#[derive(Default)]
pub struct FailureReports {
    /// By reporter and target.
    open: BTreeMap<(OsdId, OsdId), Report>,
    /// By target: the first report of a refused connection.
    refused: BTreeMap<OsdId, Refusal>,
    marked_down: BTreeMap<OsdId, MarkedDown>,
    /// Reporters that were wrong about an OSD, and when that was seen.
    wrong: BTreeMap<(OsdId, OsdId, Evidence), Time>,
    /// When a link worked again. The lower number first.
    restored_links: BTreeMap<(OsdId, OsdId), VecDeque<Time>>,
    /// When an OSD returned that had been wrongly marked down.
    returned: BTreeMap<OsdId, VecDeque<Time>>,
}

fn link(a: OsdId, b: OsdId) -> (OsdId, OsdId) {
    (a.min(b), a.max(b))
}

impl FailureReports {
    /// What a new leader should know of it.
    pub fn save(&self, now: Time, hints: &mut LeaderHints) {
        let ages = |times: &VecDeque<Time>| times.iter().map(|at| now.since(*at).as_secs() as u32).collect();
        hints.returned = self.returned.iter().map(|(osd, times)| (*osd, ages(times))).collect();
        hints.restored_links = self.restored_links.iter().map(|(link, times)| (*link, ages(times))).collect();
        let past = |past: &MarkedDown| PastMarkDown {
            age: now.since(past.at).as_secs() as u32,
            reporters: past.reporters.clone(),
            refused: past.evidence == Evidence::Refused,
            network: past.network,
        };
        hints.marked_down = self.marked_down.iter().map(|(osd, c)| (*osd, past(c))).collect();
    }
    pub fn restore(&mut self, now: Time, hints: &LeaderHints) {
        let ago = |age: u32| now - Duration::from_secs(age.into());
        let times = |ages: &Vec<u32>| ages.iter().map(|age| ago(*age)).collect();
        self.returned = hints.returned.iter().map(|(osd, ages)| (*osd, times(ages))).collect();
        self.restored_links = hints.restored_links.iter().map(|(link, ages)| (*link, times(ages))).collect();
        let marked_down = |past: &PastMarkDown| MarkedDown {
            at: ago(past.age),
            reporters: past.reporters.clone(),
            evidence: if past.refused { Evidence::Refused } else { Evidence::Silent },
            network: past.network,
        };
        self.marked_down = hints.marked_down.iter().map(|(osd, past)| (*osd, marked_down(past))).collect();
    }

    /// An OSD boots with a new incarnation: when the last one was marked down, if it was.
    pub fn take_marked_down(&mut self, osd: OsdId) -> Option<Time> {
        self.marked_down.remove(&osd).map(|past| past.at)
    }

    pub fn is_open(&self) -> bool {
        !self.open.is_empty() || !self.refused.is_empty()
    }

    /// `reporter` has received nothing from `target` for that long; on one network, or on both.
    pub fn report_silence(
        &mut self,
        now: Time,
        reporter: OsdId,
        target: OsdId,
        network: Option<Network>,
        silence: Duration,
    ) {
        let heard = now - silence;
        let fresh = Report { network, first: now, last: now, heard };
        let report = self.open.entry((reporter, target)).or_insert(fresh);
        if report.network != network {
            // What the cluster network alone did is no beginning of what is worse.
            let both_grave = ![report.network, network].contains(&Some(Network::Cluster));
            *report = Report { first: if both_grave { report.first } else { now }, ..fresh };
        }
        (report.last, report.heard) = (now, heard);
    }

    /// The reporter receives heartbeats of the target again.
    pub fn cancel(&mut self, now: Time, reporter: OsdId, target: OsdId) {
        if self.open.remove(&(reporter, target)).is_some() {
            let restored_links = self.restored_links.entry(link(reporter, target)).or_default();
            if restored_links.back().is_none_or(|last| now.since(*last) > SAME_BREAK) {
                restored_links.push_back(now);
            }
        }
    }

    /// `target`, which is up in this map, refused a connection of `reporter`. That is proof, unless this
    /// reporter was wrong about this OSD before: then its heartbeats tell.
    pub fn report_refused(&mut self, now: Time, reporter: OsdId, target: OsdId, map: &OsdMap) {
        if self.may_trust(reporter, target) {
            let up_from = map.osd(target).map_or(Epoch(0), |osd| osd.info.up_from);
            self.refused.entry(target).or_insert(Refusal { reporter, up_from, at: now });
        }
    }

    fn may_trust(&self, reporter: OsdId, target: OsdId) -> bool {
        !self.wrong.contains_key(&(reporter, target, Evidence::Refused))
    }

    /// OSDs that refuse connections, and whether their processes have ended for certain: no firewall refused
    /// for them, since the monitors' sessions with them ended, too.
    pub fn refused(&mut self, now: Time, map: &OsdMap, sessions: &OsdSessions) -> Vec<(MarkDown, bool)> {
        let of_this_incarnation = |target: OsdId, refusal: &Refusal| {
            map.is_up(target) && map.osd(target).is_some_and(|osd| osd.info.up_from == refusal.up_from)
        };
        self.refused.retain(|target, refusal| of_this_incarnation(*target, refusal));
        let is_settled = |target: &OsdId, refusal: &mut Refusal| {
            sessions.is_over(*target) || now.since(refusal.at) >= SESSION_GRACE
        };
        let settled: Vec<(OsdId, Refusal)> = self.refused.extract_if(.., is_settled).collect();
        let decision = |(target, refusal): (OsdId, Refusal)| {
            let (why, reporters) = ("connection refused".to_string(), vec![refusal.reporter]);
            let decision = MarkDown { target, why, reporters, evidence: Evidence::Refused, network: None };
            (decision, sessions.is_over(target))
        };
        settled.into_iter().map(decision).collect()
    }

    /// The OSD is down now because of these. What was said about it is settled, and what it said
    /// counts no more.
    pub fn note_marked_down(&mut self, now: Time, decision: MarkDown) {
        let MarkDown { target, reporters, evidence, network, .. } = decision;
        self.open.retain(|(reporter, other), _| *reporter != target && *other != target);
        self.marked_down.insert(target, MarkedDown { at: now, reporters, evidence, network });
    }

    /// An OSD boots. One that was wrongly marked down again and again has to wait.
    pub fn may_return(&mut self, now: Time, osd: OsdId, same_incarnation: bool) -> bool {
        self.open.retain(|(reporter, target), _| *reporter != osd && *target != osd);
        if !same_incarnation {
            self.marked_down.remove(&osd);
            self.wrong.retain(|(_, target, _), _| *target != osd);
            return true;
        }
        let Some(past) = self.marked_down.get(&osd) else { return true };
        let before = self.returned.get(&osd).map_or(0, VecDeque::len);
        if let Some(more) = before.checked_sub(OFTEN - 1) {
            let delay = (RETURN_DELAY * 2_u32.pow(more.min(8) as u32)).min(RETURN_DELAY_MAX);
            if now.since(past.at) < delay {
                return false;
            }
        }
        let past = self.marked_down.remove(&osd).expect("just seen");
        if now.since(past.at) <= FALSE_REPORT_WINDOW {
            let reporters = past.reporters.into_iter();
            self.wrong.extend(reporters.map(|reporter| ((reporter, osd, past.evidence), now)));
        }
        self.returned.entry(osd).or_default().push_back(now);
        true
    }

    /// Which OSDs to mark down now. `enough`: how many reporters it takes, if there are that many.
    pub fn check_reports(&mut self, now: Time, map: &OsdMap, enough: usize) -> Vec<MarkDown> {
        self.forget(now, map);
        let open = self.counted(map);
        if open.is_empty() {
            return Vec::new();
        }
        let links = Links::new(map, open.keys().copied());
        let domains = Domains::new(&map.crush);
        let targets: BTreeSet<OsdId> = open.keys().map(|(_, target)| *target).collect();
        let mut decisions = Vec::new();
        for &target in &targets {
            let reporters: Vec<(OsdId, &Report)> = open
                .iter()
                .filter(|((reporter, about), report)| {
                    let mutual = open.contains_key(&(target, *reporter));
                    let doubtful = self.wrong.contains_key(&(*reporter, target, Evidence::Silent))
                        && now.since(report.heard) < DISTRUSTED_SILENCE;
                    *about == target && !doubtful && !(mutual && links.is_worse(*reporter, target))
                })
                .map(|((reporter, _), report)| (*reporter, report))
                .collect();
            let Some(first) = reporters.iter().map(|(_, report)| report.first).min() else {
                continue;
            };
            let lasts = now.since(first);
            let names: BTreeSet<OsdId> = reporters.iter().map(|(reporter, _)| *reporter).collect();
            let possible: BTreeSet<OsdId> = map
                .up_osds()
                .filter(|osd| *osd != target && (names.contains(osd) || !targets.contains(osd)))
                .collect();
            let by_domain = domains.are_enough(&names, &possible, enough);
            let by_number = lasts >= DOMAIN_PATIENCE && names.len() >= enough.min(possible.len());
            if lasts >= SETTLE_TIME && (by_domain || by_number) {
                let heard = reporters.iter().map(|(_, report)| report.heard).max().unwrap_or(now);
                let silence = now.since(heard).as_secs_f64();
                // Silence on all networks weighs more than silence on one.
                let networks: BTreeSet<Option<Network>> = reporters.iter().map(|(_, a)| a.network).collect();
                let network = networks.first().copied().flatten();
                let place = network.map(|network| format!(" on the {network}")).unwrap_or_default();
                let why = format!("{} reporters, silent{place} for {silence:.1} s", names.len());
                let reporters = names.into_iter().collect();
                decisions.push(MarkDown { target, why, reporters, evidence: Evidence::Silent, network });
            }
        }
        if decisions.is_empty() {
            decisions.extend(broken_link(now, &open, &links));
        }
        decisions
    }

    /// The reports that may mark an OSD down. OSDs reach each other without the cluster network, but clients
    /// need the public one. If most OSDs have lost a network, the network is at fault, and marking OSDs down
    /// would not bring it back.
    fn counted(&self, map: &OsdMap) -> BTreeMap<(OsdId, OsdId), Report> {
        let mut open = self.open.clone();
        open.retain(|_, report| report.network != Some(Network::Cluster));
        if self.is_lost_by_most(Network::Public, map) {
            open.retain(|_, report| report.network.is_none());
        }
        open
    }

    /// The OSDs that are silent on that network, with the reports that are not the reporter's own fault.
    fn missed_on(&self, network: Network, map: &OsdMap) -> BTreeMap<OsdId, Vec<(OsdId, &Report)>> {
        let open: BTreeMap<(OsdId, OsdId), &Report> = self
            .open
            .iter()
            .filter(|(_, report)| report.network == Some(network))
            .map(|(link, report)| (*link, report))
            .collect();
        let links = Links::new(map, open.keys().copied());
        let mut missed: BTreeMap<OsdId, Vec<(OsdId, &Report)>> = BTreeMap::new();
        for (&(reporter, target), report) in &open {
            if !(open.contains_key(&(target, reporter)) && links.is_worse(reporter, target)) {
                missed.entry(target).or_default().push((reporter, report));
            }
        }
        missed
    }
    fn is_lost_by_most(&self, network: Network, map: &OsdMap) -> bool {
        2 * self.missed_on(network, map).len() > map.up_osds().count()
    }
    /// Drops what is long ago.
    pub fn forget(&mut self, now: Time, map: &OsdMap) {
        self.open.retain(|(reporter, target), report| {
            map.is_up(*reporter) && map.is_up(*target) && now.since(report.last) <= REPORT_TTL
        });
        self.wrong.retain(|_, at| now.since(*at) <= HISTORY);
        self.marked_down.retain(|osd, _| map.exists(*osd));
        for times in self.restored_links.values_mut().chain(self.returned.values_mut()) {
            times.retain(|at| now.since(*at) <= HISTORY);
        }
        self.restored_links.retain(|_, times| !times.is_empty());
        self.returned.retain(|_, times| !times.is_empty());
    }

    /// What an operator should know about the network between OSDs.
    pub fn checks(&self, now: Time, map: &OsdMap, checks: &mut Checks) {
        let place =
            |osd: OsdId| format!("osd.{osd} ({})", crate::crush_edit::location_text(&map.crush, osd.0));
        let minutes = HISTORY.as_secs() / 60;
        let mut lines: BTreeMap<(OsdId, OsdId), String> = BTreeMap::new();
        for (&(a, b), times) in self.restored_links.iter().filter(|(_, times)| times.len() >= OFTEN) {
            let text = format!(
                "{} and {} lost each other {} times in {minutes} minutes",
                place(a),
                place(b),
                times.len()
            );
            lines.insert((a, b), text);
        }
        for (&(a, b), report) in &self.open {
            if report.network.is_none() && now.since(report.first) >= WORTH_A_WARNING {
                let secs = now.since(report.heard).as_secs();
                let text = format!("{} has received no heartbeat from {} for {secs} s", place(a), place(b));
                lines.insert(link(a, b), text);
            }
        }
        let mut warn = |code, summary: String, detail: Vec<String>| {
            let count = detail.len() as i64;
            checks.insert(code, Check { severity: Severity::Warn, summary, count, detail });
        };
        let lost = self.lost_networks(now, map);
        if !lost.is_empty() {
            warn("OSD_NETWORK_LOST", format!("{} OSD(s) lost one of their networks", lost.len()), lost);
        }
        if !lines.is_empty() {
            let summary = format!("{} link(s) between OSDs are unreliable", lines.len());
            warn("OSD_UNRELIABLE_LINK", summary, lines.into_values().collect());
        }
        let flapping: Vec<String> = self
            .returned
            .iter()
            .filter(|(_, times)| times.len() >= OFTEN)
            .map(|(osd, times)| {
                let times = times.len();
                format!("{} was marked down and came back {times} times in {minutes} minutes", place(*osd))
            })
            .collect();
        if !flapping.is_empty() {
            warn("OSD_FLAPPING", format!("{} OSD(s) flapping", flapping.len()), flapping);
        }
    }
}

impl FailureReports {
    /// Describes the OSDs that are silent on one network only.
    fn lost_networks(&self, now: Time, map: &OsdMap) -> Vec<String> {
        let place = |osd: OsdId, network: Network| {
            let location = crate::crush_edit::location_text(&map.crush, osd.0);
            let addrs = map.osd(osd).map(|info| match network {
                Network::Public => &info.public_addrs,
                Network::Cluster => &info.cluster_addrs,
            });
            let sock = addrs.and_then(|addrs| addrs.msgr2()?.sock);
            let sock = sock.map_or("nowhere".to_string(), |sock| sock.to_string());
            format!("osd.{osd} ({location}) at {sock}")
        };
        let names = |osds: &mut dyn Iterator<Item = OsdId>| {
            osds.map(|osd| format!("osd.{osd}")).collect::<Vec<_>>().join(", ")
        };
        let mut lines = Vec::new();
        for network in [Network::Public, Network::Cluster] {
            let all = self.is_lost_by_most(network, map);
            let meanwhile = match network {
                Network::Cluster => "; they use the public network meanwhile",
                Network::Public if all => {
                    "; so many that the network is at fault, and no OSD is marked down for it"
                }
                Network::Public => "",
            };
            for (target, reporters) in self.missed_on(network, map) {
                let first = reporters.iter().map(|(_, a)| a.first).min().unwrap_or(now);
                if now.since(first) < WORTH_A_WARNING {
                    continue;
                }
                let heard = reporters.iter().map(|(_, a)| a.heard).max().unwrap_or(now);
                let secs = now.since(heard).as_secs();
                let who = names(&mut reporters.iter().map(|(reporter, _)| *reporter));
                let whom = place(target, network);
                lines.push(format!(
                    "{whom} has not been reachable on the {network} for {secs} s from {who}{meanwhile}"
                ));
            }
        }
        for (&osd, past) in self.marked_down.iter().filter(|(osd, _)| map.is_down(**osd)) {
            if let Some(network) = past.network {
                let who = names(&mut past.reporters.iter().copied());
                let whom = place(osd, network);
                lines
                    .push(format!("{whom} is down because it was not reachable on the {network} from {who}"));
            }
        }
        lines
    }
}

/// One end of a link that stays broken while all else works.
fn broken_link(now: Time, open: &BTreeMap<(OsdId, OsdId), Report>, links: &Links) -> Option<MarkDown> {
    // One that is broken on one network only stalls nothing.
    let lasting = |report: &Report| report.network.is_none() && now.since(report.first) >= LINK_PATIENCE;
    let (&(a, b), _) = open.iter().find(|(_, report)| lasting(report))?;
    let (target, reporter) = if links.is_worse(a, b) { (a, b) } else { (b, a) };
    let secs = LINK_PATIENCE.as_secs();
    let why = format!("its link to osd.{reporter} has been broken for {secs} s");
    Some(MarkDown { target, why, reporters: vec![reporter], evidence: Evidence::Silent, network: None })
}

/// The pairs of OSDs with a broken link.
struct Links {
    /// By OSD: how many of its links are broken, and the lowest number among those that it hears. In a
    /// network that is split in two equal halves, the latter tells the halves apart.
    of: BTreeMap<OsdId, (usize, OsdId)>,
}

impl Links {
    fn new(map: &OsdMap, reports: impl Iterator<Item = (OsdId, OsdId)>) -> Links {
        let mut broken: BTreeMap<OsdId, BTreeSet<OsdId>> = BTreeMap::new();
        for (a, b) in reports {
            broken.entry(a).or_default().insert(b);
            broken.entry(b).or_default().insert(a);
        }
        let of = broken
            .into_iter()
            .map(|(osd, lost)| {
                let lowest = map.up_osds().find(|other| !lost.contains(other)).unwrap_or(osd);
                (osd, (lost.len(), lowest))
            })
            .collect();
        Links { of }
    }
    /// Whether it is `a` rather than `b` that should go.
    fn is_worse(&self, a: OsdId, b: OsdId) -> bool {
        let rank = |osd| (self.of.get(&osd).copied().unwrap_or((0, osd)), osd);
        rank(a) > rank(b)
    }
}

/// Where OSDs are: by kind of bucket, highest first, which bucket each one is in.
struct Domains {
    levels: BTreeMap<std::cmp::Reverse<u16>, BTreeMap<OsdId, i32>>,
}

impl Domains {
    fn new(crush: &CrushMap) -> Domains {
        let mut levels: BTreeMap<_, BTreeMap<OsdId, i32>> = BTreeMap::new();
        for bucket in crush.buckets.iter().flatten().filter(|bucket| !crush.is_shadow(bucket.id)) {
            let level = levels.entry(std::cmp::Reverse(bucket.kind)).or_default();
            level.extend(crush.devices_below(bucket.id).map(|osd| (OsdId(osd), bucket.id)));
        }
        Domains { levels }
    }

    /// Whether the reporters are in enough domains of the highest level at which the possible reporters
    /// are in that many. If there are not even that many OSDs, all must.
    fn are_enough(&self, reporters: &BTreeSet<OsdId>, possible: &BTreeSet<OsdId>, enough: usize) -> bool {
        for level in self.levels.values() {
            let count = |osds: &BTreeSet<OsdId>| {
                osds.iter().filter_map(|osd| level.get(osd)).collect::<BTreeSet<_>>().len()
            };
            if count(possible) >= enough {
                return count(reporters) >= enough;
            }
        }
        reporters.len() >= enough.min(possible.len())
    }
}

#[cfg(test)]
mod tests;
