//! Who is dead? Weighs what OSDs say of each other.
//!
//! An OSD that misses another says so twice a second until it hears it again. One witness may be the one
//! whose cable is loose, so it takes several, from different failure domains. Two that miss each other
//! prove a broken link and no more: the one with more broken links is believed less. Kept by the leader
//! alone; a new one hears it all again within a second, and reads in the `Memory` what was. Read `Failures::judge`.

use crate::health::{Check, Checks, Severity};
use crate::memory::{Memory, PastVerdict};
use crate::osd_sessions::OsdSessions;
use nacre_base::{Epoch, OsdId, Time};
use nacre_crush::CrushMap;
use nacre_proto::maps::OsdMap;
use nacre_proto::types::Network;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// What is not repeated for so long counts no more.
const LIFE: Duration = Duration::from_secs(2);
/// Witnesses speak at their own times, and those of the other side of a split network as well: who
/// speaks first is not more right.
const SETTLE: Duration = Duration::from_millis(150);
/// A link that is broken for so long stalls what goes over it, so one end must go.
const LINK_PATIENCE: Duration = Duration::from_secs(5);
/// Without witnesses in enough domains, enough of them anywhere will do after this time.
const DOMAIN_PATIENCE: Duration = Duration::from_millis(2500);
/// A witness that was wrong about an OSD before is believed only after so much silence.
const DOUBT: Duration = Duration::from_secs(3);
/// An OSD that asks to return so soon was not dead. One that comes later stood still, or heard nobody.
const PROTEST: Duration = Duration::from_secs(3);
/// An accusation that is open for so long is about the network, or else it would be settled.
const WORTH_A_WARNING: Duration = Duration::from_secs(4);
/// How long links and OSDs that came and went are remembered.
const MEMORY: Duration = Duration::from_secs(600);
/// So often within `MEMORY` makes it worth a warning.
const OFTEN: usize = 3;
/// Both ends tell of the same break.
const SAME_BREAK: Duration = Duration::from_secs(2);
/// The third return within `MEMORY` has to wait for so long, each further one for twice as long.
const RETURN_DELAY: Duration = Duration::from_secs(5);
const RETURN_DELAY_MAX: Duration = Duration::from_secs(60);

/// A process that ended ends its session with us in the same moment; we may hear of that a little later than
/// others hear that its port refuses them.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// Why an OSD is marked down.
#[derive(Debug, PartialEq, Eq)]
pub struct Verdict {
    pub target: OsdId,
    pub why: String,
    pub witnesses: Vec<OsdId>,
    pub evidence: Evidence,
    /// Where it was silent, if it was heard elsewhere.
    pub network: Option<Network>,
}

#[derive(Clone, Copy)]
struct Accusation {
    /// The network on which the accused is silent, if it is heard on the other one.
    network: Option<Network>,
    first: Time,
    last: Time,
    /// When the witness last heard the accused.
    heard: Time,
}

/// What a witness says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Evidence {
    Silent,
    Refused,
}

/// Of a life that began at that epoch somebody says that nobody listens where it should.
struct Refusal {
    witness: OsdId,
    life: Epoch,
    at: Time,
}

/// The last verdict on an OSD that has not returned.
struct Conviction {
    at: Time,
    witnesses: Vec<OsdId>,
    evidence: Evidence,
    network: Option<Network>,
}

#[derive(Default)]
pub struct Failures {
    /// By witness and accused.
    open: BTreeMap<(OsdId, OsdId), Accusation>,
    /// By accused: the first who was refused.
    refused: BTreeMap<OsdId, Refusal>,
    convicted: BTreeMap<OsdId, Conviction>,
    /// Witnesses that were wrong about an OSD, and when that was seen.
    wrong: BTreeMap<(OsdId, OsdId, Evidence), Time>,
    /// When a link worked again. The lower number first.
    mended: BTreeMap<(OsdId, OsdId), VecDeque<Time>>,
    /// When an OSD came back that had been taken for dead.
    returned: BTreeMap<OsdId, VecDeque<Time>>,
}

fn link(a: OsdId, b: OsdId) -> (OsdId, OsdId) {
    (a.min(b), a.max(b))
}

impl Failures {
    /// What a new leader should know of it.
    pub fn remember(&self, now: Time, memory: &mut Memory) {
        let ages = |times: &VecDeque<Time>| times.iter().map(|at| now.since(*at).as_secs() as u32).collect();
        memory.returned = self.returned.iter().map(|(osd, times)| (*osd, ages(times))).collect();
        memory.mended = self.mended.iter().map(|(link, times)| (*link, ages(times))).collect();
        let past = |conviction: &Conviction| PastVerdict {
            age: now.since(conviction.at).as_secs() as u32,
            witnesses: conviction.witnesses.clone(),
            refused: conviction.evidence == Evidence::Refused,
            network: conviction.network,
        };
        memory.convicted = self.convicted.iter().map(|(osd, c)| (*osd, past(c))).collect();
    }
    pub fn recall(&mut self, now: Time, memory: &Memory) {
        let ago = |age: u32| now - Duration::from_secs(age.into());
        let times = |ages: &Vec<u32>| ages.iter().map(|age| ago(*age)).collect();
        self.returned = memory.returned.iter().map(|(osd, ages)| (*osd, times(ages))).collect();
        self.mended = memory.mended.iter().map(|(link, ages)| (*link, times(ages))).collect();
        let conviction = |past: &PastVerdict| Conviction {
            at: ago(past.age),
            witnesses: past.witnesses.clone(),
            evidence: if past.refused { Evidence::Refused } else { Evidence::Silent },
            network: past.network,
        };
        self.convicted = memory.convicted.iter().map(|(osd, past)| (*osd, conviction(past))).collect();
    }

    /// A life that others missed is over: another one began. Gives when it was missed.
    pub fn bury(&mut self, osd: OsdId) -> Option<Time> {
        self.convicted.remove(&osd).map(|conviction| conviction.at)
    }

    pub fn is_open(&self) -> bool {
        !self.open.is_empty() || !self.refused.is_empty()
    }

    /// `witness` has heard nothing of `target` for that long; on one network, or at all.
    pub fn accuse(
        &mut self,
        now: Time,
        witness: OsdId,
        target: OsdId,
        network: Option<Network>,
        silence: Duration,
    ) {
        let heard = now - silence;
        let fresh = Accusation { network, first: now, last: now, heard };
        let accusation = self.open.entry((witness, target)).or_insert(fresh);
        if accusation.network != network {
            // What the cluster network alone did is no beginning of what is worse.
            let both_grave = ![accusation.network, network].contains(&Some(Network::Cluster));
            *accusation = Accusation { first: if both_grave { accusation.first } else { now }, ..fresh };
        }
        (accusation.last, accusation.heard) = (now, heard);
    }

    /// It hears it again.
    pub fn withdraw(&mut self, now: Time, witness: OsdId, target: OsdId) {
        if self.open.remove(&(witness, target)).is_some() {
            let mended = self.mended.entry(link(witness, target)).or_default();
            if mended.back().is_none_or(|last| now.since(*last) > SAME_BREAK) {
                mended.push_back(now);
            }
        }
    }

    /// `target`, which is up in this map, refused a connection of `witness`. That is proof, unless this witness was wrong
    /// about this OSD before: then its heartbeats tell.
    pub fn refuse(&mut self, now: Time, witness: OsdId, target: OsdId, map: &OsdMap) {
        if self.may_trust(witness, target) {
            let life = map.osd(target).map_or(Epoch(0), |osd| osd.info.up_from);
            self.refused.entry(target).or_insert(Refusal { witness, life, at: now });
        }
    }

    fn may_trust(&self, witness: OsdId, target: OsdId) -> bool {
        !self.wrong.contains_key(&(witness, target, Evidence::Refused))
    }

    /// Who refuses connections, and whether its process has ended for certain: nobody in between refused in its name, it
    /// is gone for us as well.
    pub fn gone(&mut self, now: Time, map: &OsdMap, sessions: &OsdSessions) -> Vec<(Verdict, bool)> {
        let of_this_life = |target: OsdId, refusal: &Refusal| {
            map.is_up(target) && map.osd(target).is_some_and(|osd| osd.info.up_from == refusal.life)
        };
        self.refused.retain(|target, refusal| of_this_life(*target, refusal));
        let is_settled = |target: &OsdId, refusal: &mut Refusal| {
            sessions.is_over(*target) || now.since(refusal.at) >= LAST_WORDS
        };
        let settled: Vec<(OsdId, Refusal)> = self.refused.extract_if(.., is_settled).collect();
        let verdict = |(target, refusal): (OsdId, Refusal)| {
            let (why, witnesses) = ("connection refused".to_string(), vec![refusal.witness]);
            let verdict = Verdict { target, why, witnesses, evidence: Evidence::Refused, network: None };
            (verdict, sessions.is_over(target))
        };
        settled.into_iter().map(verdict).collect()
    }

    /// The OSD is down now because of these. What was said about it is settled, and what it said
    /// counts no more.
    pub fn convict(&mut self, now: Time, verdict: Verdict) {
        let Verdict { target, witnesses, evidence, network, .. } = verdict;
        self.open.retain(|(witness, accused), _| *witness != target && *accused != target);
        self.convicted.insert(target, Conviction { at: now, witnesses, evidence, network });
    }

    /// An OSD wants to be up. One that had been taken for dead and was not, again and again, waits.
    pub fn may_return(&mut self, now: Time, osd: OsdId, same_life: bool) -> bool {
        self.open.retain(|(witness, accused), _| *witness != osd && *accused != osd);
        if !same_life {
            self.convicted.remove(&osd);
            self.wrong.retain(|(_, target, _), _| *target != osd);
            return true;
        }
        let Some(conviction) = self.convicted.get(&osd) else { return true };
        let before = self.returned.get(&osd).map_or(0, VecDeque::len);
        if let Some(more) = before.checked_sub(OFTEN - 1) {
            let delay = (RETURN_DELAY * 2_u32.pow(more.min(8) as u32)).min(RETURN_DELAY_MAX);
            if now.since(conviction.at) < delay {
                return false;
            }
        }
        let conviction = self.convicted.remove(&osd).expect("just seen");
        if now.since(conviction.at) <= PROTEST {
            let witnesses = conviction.witnesses.into_iter();
            self.wrong.extend(witnesses.map(|witness| ((witness, osd, conviction.evidence), now)));
        }
        self.returned.entry(osd).or_default().push_back(now);
        true
    }

    /// Who is dead, by what is known now. `enough`: how many must say so if there are that many.
    pub fn judge(&mut self, now: Time, map: &OsdMap, enough: usize) -> Vec<Verdict> {
        self.forget(now, map);
        let open = self.grave(map);
        if open.is_empty() {
            return Vec::new();
        }
        let links = Links::new(map, open.keys().copied());
        let domains = Domains::new(&map.crush);
        let accused: BTreeSet<OsdId> = open.keys().map(|(_, target)| *target).collect();
        let mut verdicts = Vec::new();
        for &target in &accused {
            let witnesses: Vec<(OsdId, &Accusation)> = open
                .iter()
                .filter(|((witness, accused), accusation)| {
                    let mutual = open.contains_key(&(*accused, *witness));
                    let doubtful = self.wrong.contains_key(&(*witness, *accused, Evidence::Silent))
                        && now.since(accusation.heard) < DOUBT;
                    *accused == target && !doubtful && !(mutual && links.is_worse(*witness, target))
                })
                .map(|((witness, _), accusation)| (*witness, accusation))
                .collect();
            let Some(first) = witnesses.iter().map(|(_, accusation)| accusation.first).min() else {
                continue;
            };
            let lasts = now.since(first);
            let who: BTreeSet<OsdId> = witnesses.iter().map(|(witness, _)| *witness).collect();
            let possible: BTreeSet<OsdId> = map
                .up_osds()
                .filter(|osd| *osd != target && (who.contains(osd) || !accused.contains(osd)))
                .collect();
            let by_domain = domains.are_enough(&who, &possible, enough);
            let by_number = lasts >= DOMAIN_PATIENCE && who.len() >= enough.min(possible.len());
            if lasts >= SETTLE && (by_domain || by_number) {
                let heard = witnesses.iter().map(|(_, accusation)| accusation.heard).max().unwrap_or(now);
                let silence = now.since(heard).as_secs_f64();
                // Whoever hears it nowhere says more than who misses it on one network.
                let networks: BTreeSet<Option<Network>> = witnesses.iter().map(|(_, a)| a.network).collect();
                let network = networks.first().copied().flatten();
                let place = network.map(|network| format!(" on the {network}")).unwrap_or_default();
                let why = format!("{} reporters, silent{place} for {silence:.1} s", who.len());
                let witnesses = who.into_iter().collect();
                verdicts.push(Verdict { target, why, witnesses, evidence: Evidence::Silent, network });
            }
        }
        if verdicts.is_empty() {
            verdicts.extend(broken_link(now, &open, &links));
        }
        verdicts
    }

    /// The accusations that can cost an OSD its place. What is between OSDs comes about without the cluster
    /// network; but who is not on the public one is lost for clients. A network that most have lost is
    /// nobody's fault, and would not come back with their leaving.
    fn grave(&self, map: &OsdMap) -> BTreeMap<(OsdId, OsdId), Accusation> {
        let mut open = self.open.clone();
        open.retain(|_, accusation| accusation.network != Some(Network::Cluster));
        if self.is_lost_by_most(Network::Public, map) {
            open.retain(|_, accusation| accusation.network.is_none());
        }
        open
    }

    /// Who is not heard on that network, by whom, where that is not the witness's own fault.
    fn missed_on(&self, network: Network, map: &OsdMap) -> BTreeMap<OsdId, Vec<(OsdId, &Accusation)>> {
        let open: BTreeMap<(OsdId, OsdId), &Accusation> = self
            .open
            .iter()
            .filter(|(_, accusation)| accusation.network == Some(network))
            .map(|(link, accusation)| (*link, accusation))
            .collect();
        let links = Links::new(map, open.keys().copied());
        let mut missed: BTreeMap<OsdId, Vec<(OsdId, &Accusation)>> = BTreeMap::new();
        for (&(witness, target), accusation) in &open {
            if !(open.contains_key(&(target, witness)) && links.is_worse(witness, target)) {
                missed.entry(target).or_default().push((witness, accusation));
            }
        }
        missed
    }
    fn is_lost_by_most(&self, network: Network, map: &OsdMap) -> bool {
        2 * self.missed_on(network, map).len() > map.up_osds().count()
    }
    /// Drops what is long ago.
    pub fn forget(&mut self, now: Time, map: &OsdMap) {
        self.open.retain(|(witness, target), accusation| {
            map.is_up(*witness) && map.is_up(*target) && now.since(accusation.last) <= LIFE
        });
        self.wrong.retain(|_, at| now.since(*at) <= MEMORY);
        self.convicted.retain(|osd, _| map.exists(*osd));
        for times in self.mended.values_mut().chain(self.returned.values_mut()) {
            times.retain(|at| now.since(*at) <= MEMORY);
        }
        self.mended.retain(|_, times| !times.is_empty());
        self.returned.retain(|_, times| !times.is_empty());
    }

    /// What an operator should know about the network between OSDs.
    pub fn checks(&self, now: Time, map: &OsdMap, checks: &mut Checks) {
        let place =
            |osd: OsdId| format!("osd.{osd} ({})", crate::crush_edit::location_text(&map.crush, osd.0));
        let minutes = MEMORY.as_secs() / 60;
        let mut lines: BTreeMap<(OsdId, OsdId), String> = BTreeMap::new();
        for (&(a, b), times) in self.mended.iter().filter(|(_, times)| times.len() >= OFTEN) {
            let text = format!(
                "{} and {} lost each other {} times in {minutes} minutes",
                place(a),
                place(b),
                times.len()
            );
            lines.insert((a, b), text);
        }
        for (&(a, b), accusation) in &self.open {
            if accusation.network.is_none() && now.since(accusation.first) >= WORTH_A_WARNING {
                let secs = now.since(accusation.heard).as_secs();
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

impl Failures {
    /// Who is heard on one network and not on the other, in words.
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
            for (target, witnesses) in self.missed_on(network, map) {
                let first = witnesses.iter().map(|(_, a)| a.first).min().unwrap_or(now);
                if now.since(first) < WORTH_A_WARNING {
                    continue;
                }
                let heard = witnesses.iter().map(|(_, a)| a.heard).max().unwrap_or(now);
                let secs = now.since(heard).as_secs();
                let who = names(&mut witnesses.iter().map(|(witness, _)| *witness));
                let whom = place(target, network);
                lines.push(format!(
                    "{whom} has not been reachable on the {network} for {secs} s from {who}{meanwhile}"
                ));
            }
        }
        for (&osd, conviction) in self.convicted.iter().filter(|(osd, _)| map.is_down(**osd)) {
            if let Some(network) = conviction.network {
                let who = names(&mut conviction.witnesses.iter().copied());
                let whom = place(osd, network);
                lines
                    .push(format!("{whom} is down because it was not reachable on the {network} from {who}"));
            }
        }
        lines
    }
}

/// One end of a link that stays broken while all else works.
fn broken_link(now: Time, open: &BTreeMap<(OsdId, OsdId), Accusation>, links: &Links) -> Option<Verdict> {
    // One that is broken on one network only stalls nothing.
    let lasting = |accusation: &Accusation| {
        accusation.network.is_none() && now.since(accusation.first) >= LINK_PATIENCE
    };
    let (&(a, b), _) = open.iter().find(|(_, accusation)| lasting(accusation))?;
    let (target, witness) = if links.is_worse(a, b) { (a, b) } else { (b, a) };
    let secs = LINK_PATIENCE.as_secs();
    let why = format!("its link to osd.{witness} has been broken for {secs} s");
    Some(Verdict { target, why, witnesses: vec![witness], evidence: Evidence::Silent, network: None })
}

/// Which OSDs do not hear each other.
struct Links {
    /// By OSD: how many of its links are broken, and the lowest number among those that it hears. In a
    /// network that is split in two equal halves, the latter tells the halves apart.
    of: BTreeMap<OsdId, (usize, OsdId)>,
}

impl Links {
    fn new(map: &OsdMap, accusations: impl Iterator<Item = (OsdId, OsdId)>) -> Links {
        let mut broken: BTreeMap<OsdId, BTreeSet<OsdId>> = BTreeMap::new();
        for (a, b) in accusations {
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

    /// Whether the witnesses are in enough domains of the highest level at which those who could speak
    /// are in that many. If there are not even that many OSDs, all must.
    fn are_enough(&self, who: &BTreeSet<OsdId>, possible: &BTreeSet<OsdId>, enough: usize) -> bool {
        for level in self.levels.values() {
            let count = |osds: &BTreeSet<OsdId>| {
                osds.iter().filter_map(|osd| level.get(osd)).collect::<BTreeSet<_>>().len()
            };
            if count(possible) >= enough {
                return count(who) >= enough;
            }
        }
        who.len() >= enough.min(possible.len())
    }
}

#[cfg(test)]
mod tests;
