//! Failure detection: heartbeats as datagrams, and how long a silence is too long.
//!
//! TCP retransmits with growing delays: at 20 % loss a session is silent for seconds while
//! its peer is well. A lost datagram is not retransmitted, and the next one is as good. Whatever
//! comes from an OSD, by datagram or by session, shows that it is alive.
//!
//! Each OSD has a few *witnesses*, which send it ten heartbeats a second (`witnessed`). All other OSDs that
//! share a PG with it are *probed*: an OSD that was silent for `PROBE_EVERY`, or did not reply to a message
//! for `BEAT_EVERY`, gets ten heartbeats a second until it replies. So the cost of an idle OSD does not grow
//! with its peers, and a peer whose reply is waited for is found dead as soon as by a witness.

use nacre_base::{OsdId, Time};
use nacre_crush::CrushMap;
use nacre_proto::maps::OsdMap;
use nacre_proto::messages::FailureEvidence;
use nacre_proto::types::{EntityAddr, Network};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Ceph has it as `osd_heartbeat_interval`, in whole seconds.
pub const BEAT_EVERY: Duration = Duration::from_millis(100);
/// Silence for this time is reported, unless such silences are usual. Ceph has it as
/// `osd_heartbeat_grace`.
const GRACE: Duration = Duration::from_millis(1200);
/// However usual: longer silence is reported.
const GRACE_MAX: Duration = Duration::from_secs(3);
/// A silence is unusual when it is this many times the longest recent one.
const UNUSUAL: u32 = 3;
/// In about this time a long silence is forgotten.
const FORGET: Duration = Duration::from_secs(30);
/// How often a report is repeated.
const REPORT_EVERY: Duration = Duration::from_millis(500);
/// How many OSDs each OSD is a witness of, and how many witnesses it has.
const WITNESSES: usize = 6;
/// An OSD that is not witnessed is probed after this time of silence.
const PROBE_EVERY: Duration = Duration::from_secs(2);

/// An OSD without a session for this long counts as unreachable, even if its heartbeats arrive: something
/// between us lets those pass and no TCP. At 20 % loss it takes some seconds to open one.
const NO_SESSION_MAX: Duration = Duration::from_secs(10);

/// A network on which something came so lately works.
const FRESH: Duration = Duration::from_millis(400);
/// Over the other network goes what belongs on the cluster network until that has worked for this long.
const CALM: Duration = Duration::from_secs(5);

/// Where an incarnation of another OSD is reached: on the cluster network as well if both of us are on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub public: EntityAddr,
    pub cluster: Option<EntityAddr>,
}

impl Place {
    pub fn on(&self, network: Network) -> Option<EntityAddr> {
        match network {
            Network::Public => Some(self.public),
            Network::Cluster => self.cluster,
        }
    }
    fn networks(&self) -> impl Iterator<Item = Network> + use<> {
        [Some(Network::Public), self.cluster.map(|_| Network::Cluster)].into_iter().flatten()
    }
}

/// What we know of another OSD's incarnation.
struct Watched {
    place: Place,
    /// This OSD is one of its witnesses.
    is_witnessed: bool,
    public: Link,
    /// Means nothing if the place is not on the cluster network.
    cluster: Link,
    /// Since when no session with it could be opened.
    no_session: Option<Time>,
    /// When, and what was said.
    reported: Option<(Time, Missing)>,
}

/// What was received from a peer on one network.
#[derive(Clone, Copy)]
struct Link {
    last_heard: Time,
    /// When something was sent that may be replied to. Of a witnessed peer, it is not needed: what comes from
    /// it is always due.
    waits_since: Option<Time>,
    /// The longest recent silence; its weight decays.
    usual: Duration,
    /// When it was last found to be silent for too long.
    broken: Option<Time>,
}

/// The networks on which nothing is received from an OSD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Missing {
    Everywhere,
    On(Network),
}

impl Link {
    fn new(now: Time) -> Link {
        Link { last_heard: now, waits_since: None, usual: Duration::ZERO, broken: None }
    }
    /// For how long something has been due from the peer.
    fn silence(&self, now: Time, is_witnessed: bool) -> Duration {
        let since = if is_witnessed { Some(self.last_heard) } else { self.waits_since };
        since.map_or(Duration::ZERO, |since| now.since(since))
    }
    fn grace(&self) -> Duration {
        (self.usual * UNUSUAL).clamp(GRACE, GRACE_MAX)
    }
    fn is_silent(&self, now: Time, is_witnessed: bool) -> bool {
        self.silence(now, is_witnessed) > self.grace()
    }
    fn heard(&mut self, now: Time, is_witnessed: bool) {
        let left = 1.0 - now.since(self.last_heard).as_secs_f64() / FORGET.as_secs_f64();
        let silence = self.silence(now, is_witnessed);
        self.usual = self.usual.mul_f64(left.max(0.0)).max(silence).min(GRACE_MAX);
        self.last_heard = now;
        self.waits_since = None;
    }
    fn sent(&mut self, now: Time) {
        self.waits_since.get_or_insert(now);
    }
}

impl Watched {
    fn is_due(&self, now: Time) -> bool {
        let is_due = |link: &Link| {
            let waits = link.waits_since.is_some_and(|since| now.since(since) >= BEAT_EVERY);
            waits || now.since(link.last_heard) >= PROBE_EVERY
        };
        self.is_witnessed || is_due(&self.public) || (self.place.cluster.is_some() && is_due(&self.cluster))
    }
    fn link(&mut self, network: Network) -> &mut Link {
        match network {
            Network::Public => &mut self.public,
            Network::Cluster => &mut self.cluster,
        }
    }
    fn is_out_of_reach(&self, now: Time) -> bool {
        self.no_session.is_some_and(|since| now.since(since) > NO_SESSION_MAX)
    }
    fn missing(&self, now: Time) -> Option<Missing> {
        if self.is_out_of_reach(now) {
            return Some(Missing::Everywhere);
        }
        let public = self.public.is_silent(now, self.is_witnessed);
        if self.place.cluster.is_none() {
            return public.then_some(Missing::Everywhere);
        }
        // An OSD that dies becomes silent on both networks, on one of them slightly earlier.
        let fresh = |link: &Link| now.since(link.last_heard) <= FRESH;
        match (public, self.cluster.is_silent(now, self.is_witnessed)) {
            (true, true) => Some(Missing::Everywhere),
            (true, false) => fresh(&self.cluster).then_some(Missing::On(Network::Public)),
            (false, true) => fresh(&self.public).then_some(Missing::On(Network::Cluster)),
            (false, false) => None,
        }
    }
    /// For how long nothing was received on the networks where the OSD is missing.
    fn silence(&self, now: Time, missing: Missing) -> Duration {
        let of = |link: &Link| link.silence(now, self.is_witnessed);
        match missing {
            Missing::Everywhere if self.is_out_of_reach(now) => {
                self.no_session.map_or(Duration::ZERO, |at| now.since(at))
            }
            Missing::On(Network::Public) => of(&self.public),
            Missing::On(Network::Cluster) => of(&self.cluster),
            Missing::Everywhere if self.place.cluster.is_none() => of(&self.public),
            Missing::Everywhere => of(&self.public).min(of(&self.cluster)),
        }
    }
}

#[derive(Default)]
pub struct Heartbeats {
    watched: BTreeMap<OsdId, Watched>,
}

impl Heartbeats {
    /// From now on exactly these incarnations are watched. This OSD is a witness of those in `witnessed`.
    pub fn watch(
        &mut self,
        osds: impl Iterator<Item = (OsdId, Place)>,
        witnessed: &BTreeSet<OsdId>,
        now: Time,
    ) {
        let mut old = std::mem::take(&mut self.watched);
        self.watched = osds
            .map(|(osd, place)| {
                let is_witnessed = witnessed.contains(&osd);
                let mut watched = match old.remove(&osd).filter(|old| old.place == place) {
                    Some(old) => old,
                    None => Watched {
                        place,
                        is_witnessed,
                        public: Link::new(now),
                        cluster: Link::new(now),
                        no_session: None,
                        reported: None,
                    },
                };
                if is_witnessed && !watched.is_witnessed {
                    // Nothing was due from it until now.
                    watched.public.last_heard = now;
                    watched.cluster.last_heard = now;
                }
                watched.is_witnessed = is_witnessed;
                (osd, watched)
            })
            .collect();
    }
    /// Which of its incarnations is watched.
    pub fn life(&self, osd: OsdId) -> Option<u32> {
        self.watched.get(&osd).map(|watched| watched.place.public.nonce)
    }
    pub fn watched(&self) -> impl Iterator<Item = OsdId> + '_ {
        self.watched.keys().copied()
    }
    /// Where heartbeats go now: to all that are witnessed, and to the others that are to be probed.
    pub fn take_due(&mut self, now: Time) -> Vec<(OsdId, Network, EntityAddr)> {
        let mut targets = Vec::new();
        for (&osd, watched) in self.watched.iter_mut().filter(|(_, watched)| watched.is_due(now)) {
            for network in watched.place.networks() {
                watched.link(network).sent(now);
                targets.extend(watched.place.on(network).map(|addr| (osd, network, addr)));
            }
        }
        targets
    }
    /// A reply came over a session. An OSD whose disk hangs may send some, so that alone does not show that
    /// it is well; it need not be probed yet.
    pub fn note_reply(&mut self, osd: OsdId, network: Network) {
        if let Some(watched) = self.watched.get_mut(&osd) {
            watched.link(network).waits_since = None;
        }
    }
    /// Whether no heartbeat came that is due. Where datagrams do not pass, pings show that the OSD is well.
    pub fn is_late(&self, osd: OsdId, now: Time) -> bool {
        let is_late = |watched: &Watched| {
            let late = |link: &Link| link.silence(now, watched.is_witnessed) > 2 * BEAT_EVERY;
            late(&watched.public) || (watched.place.cluster.is_some() && late(&watched.cluster))
        };
        self.watched.get(&osd).is_some_and(is_late)
    }
    /// A message went to the OSD. Most are replied to; it is probed if this one is not.
    pub fn note_request(&mut self, osd: OsdId, network: Network, now: Time) {
        if let Some(watched) = self.watched.get_mut(&osd) {
            watched.link(network).sent(now);
        }
    }

    /// `without_since`: since when there is no session with that incarnation of an OSD although one is
    /// wanted.
    pub fn note_sessions(&mut self, without_since: impl Fn(OsdId, u32) -> Option<Time>) {
        for (osd, watched) in &mut self.watched {
            watched.no_session = without_since(*osd, watched.place.public.nonce);
        }
    }

    /// The OSD is alive. A failure that was reported is to be withdrawn.
    pub fn heard(&mut self, osd: OsdId, network: Network, now: Time) -> Option<FailureEvidence> {
        let watched = self.watched.get_mut(&osd)?;
        watched.place.on(network)?;
        let is_witnessed = watched.is_witnessed;
        watched.link(network).heard(now, is_witnessed);
        if watched.missing(now).is_some() {
            return None; // on the other network, or without a session, which is said with the next heartbeat
        }
        watched.reported.take().map(|_| FailureEvidence::Recovered)
    }
    /// OSDs that were silent for too long, to be reported (again).
    pub fn silent(&mut self, now: Time) -> Vec<(OsdId, FailureEvidence)> {
        let mut found = Vec::new();
        for (&osd, watched) in &mut self.watched {
            let missing = watched.missing(now);
            for network in [Network::Public, Network::Cluster] {
                let is_silent = missing == Some(Missing::Everywhere) || missing == Some(Missing::On(network));
                if is_silent && !watched.is_out_of_reach(now) {
                    watched.link(network).broken = Some(now);
                }
            }
            let Some(missing) = missing else { continue };
            let said = watched.reported.filter(|(_, said)| *said == missing);
            if said.is_none_or(|(at, _)| now.since(at) >= REPORT_EVERY) {
                watched.reported = Some((now, missing));
                let millis = watched.silence(now, missing).as_millis() as u32;
                let evidence = match missing {
                    Missing::Everywhere => FailureEvidence::Silent { millis },
                    Missing::On(network) => FailureEvidence::SilentOn { network, millis },
                };
                found.push((osd, evidence));
            }
        }
        found
    }
    /// On which network we talk to it: what lies between two OSDs belongs on the cluster network, but
    /// comes about on the public one as well.
    pub fn network(&self, osd: OsdId, place: &Place, now: Time) -> Network {
        if place.cluster.is_none() {
            return Network::Public;
        }
        let Some(watched) = self.watched.get(&osd) else { return Network::Cluster };
        let broken = watched.cluster.broken.is_some_and(|at| now.since(at) < CALM);
        match broken && !watched.public.is_silent(now, watched.is_witnessed) {
            true => Network::Public,
            false => Network::Cluster,
        }
    }
    /// OSDs that clients or this OSD cannot reach, reported or not. The cluster network alone does not count.
    pub fn missed(&self, now: Time) -> Vec<OsdId> {
        let missed = |watched: &Watched| {
            watched.public.is_silent(now, watched.is_witnessed) || watched.is_out_of_reach(now)
        };
        self.watched.iter().filter(|(_, watched)| missed(watched)).map(|(osd, _)| *osd).collect()
    }
    /// This OSD did not run for a while: silence in that time proves nothing about peers.
    pub fn forgive(&mut self, now: Time, late: Duration) {
        for watched in self.watched.values_mut() {
            for link in [&mut watched.public, &mut watched.cluster] {
                link.last_heard = (link.last_heard + late).min(now);
                link.waits_since = link.waits_since.map(|since| (since + late).min(now));
            }
        }
    }
}

/// The OSDs of which `me` is a witness: the next ones in an order of all OSDs in which neighbours are as far
/// from each other as they can be. So each OSD has its witnesses in several failure domains, whatever the
/// pools are like.
pub fn witnessed(map: &OsdMap, me: OsdId) -> BTreeSet<OsdId> {
    let mut ring: Vec<OsdId> =
        merge(map.crush.roots(false).into_iter().map(|root| spread(&map.crush, root)).collect());
    ring.extend(map.osd_ids());
    let mut seen = BTreeSet::new();
    ring.retain(|&osd| (map.is_up(osd) || osd == me) && seen.insert(osd));
    let at = ring.iter().position(|&osd| osd == me).unwrap_or(0);
    let others = ring.len().saturating_sub(1);
    (1..=WITNESSES.min(others)).map(|n| ring[(at + n) % ring.len()]).collect()
}

/// The devices below an item, neighbours in different buckets where there are several.
fn spread(crush: &CrushMap, item: i32) -> Vec<OsdId> {
    match crush.bucket(item) {
        Some(bucket) => merge(bucket.items.iter().map(|&item| spread(crush, item)).collect()),
        None => vec![OsdId(item)],
    }
}
/// One of each list in turn.
fn merge(lists: Vec<Vec<OsdId>>) -> Vec<OsdId> {
    let longest = lists.iter().map(Vec::len).max().unwrap_or(0);
    (0..longest).flat_map(|n| lists.iter().filter_map(move |list| list.get(n).copied())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHER: OsdId = OsdId(1);

    fn at(millis: u64) -> Time {
        Time::from_nanos(1_000_000 * (10_000 + millis))
    }
    fn watching(life: u32) -> Heartbeats {
        let mut beats = Heartbeats::default();
        beats.watch([(OTHER, place(life))].into_iter(), &[OTHER].into(), at(0));
        beats
    }
    fn addr(life: u32) -> EntityAddr {
        EntityAddr::msgr2(([127, 0, 0, 1], 6800).into(), life)
    }
    fn place(life: u32) -> Place {
        Place { public: addr(life), cluster: None }
    }

    /// What is reported when these networks are silent from 1 s on, for 3 s.
    fn reported(silent: &[Network]) -> (Heartbeats, Vec<FailureEvidence>) {
        let mut beats = Heartbeats::default();
        let cluster = EntityAddr::msgr2(([127, 0, 1, 1], 6800).into(), 1);
        let place = Place { public: addr(1), cluster: Some(cluster) };
        beats.watch([(OTHER, place)].into_iter(), &[OTHER].into(), at(0));
        let mut said = Vec::new();
        for now in (0..=4_000).step_by(100) {
            for network in [Network::Public, Network::Cluster] {
                if now <= 1_000 || !silent.contains(&network) {
                    assert_eq!(beats.heard(OTHER, network, at(now)), None);
                }
            }
            said.extend(beats.silent(at(now)).into_iter().map(|(_, evidence)| evidence));
        }
        (beats, said)
    }

    #[test]
    fn one_silent_network_is_named_and_two_are_an_osd_that_is_gone() {
        use Network::{Cluster, Public};
        let place = Place { public: addr(1), cluster: Some(addr(1)) };
        let (beats, said) = reported(&[]);
        assert_eq!((said.len(), beats.network(OTHER, &place, at(4_000))), (0, Cluster));

        let (mut beats, said) = reported(&[Cluster]);
        assert_eq!(said[0], FailureEvidence::SilentOn { network: Cluster, millis: 1300 });
        assert_eq!((said.len(), beats.missed(at(4_000))), (4, vec![]));
        assert_eq!(beats.network(OTHER, &place, at(4_000)), Public, "it goes the other way");
        assert_eq!(beats.heard(OTHER, Cluster, at(4_100)), Some(FailureEvidence::Recovered));
        beats.heard(OTHER, Public, at(8_900));
        assert_eq!(beats.network(OTHER, &place, at(8_900)), Public, "and not back at once");
        assert_eq!(beats.network(OTHER, &place, at(9_100)), Cluster);

        let (beats, said) = reported(&[Public]);
        assert_eq!(said[0], FailureEvidence::SilentOn { network: Public, millis: 1300 });
        assert_eq!(beats.missed(at(4_000)), [OTHER]);
        assert_eq!(beats.network(OTHER, &place, at(4_000)), Cluster);

        let (mut beats, said) = reported(&[Public, Cluster]);
        assert_eq!(said[0], FailureEvidence::Silent { millis: 1300 });
        // Half of it is said at once, and only the whole is taken back.
        assert_eq!(beats.heard(OTHER, Public, at(4_050)), None);
        let half = FailureEvidence::SilentOn { network: Cluster, millis: 3100 };
        assert_eq!(beats.silent(at(4_100)), [(OTHER, half)]);
        assert_eq!(beats.heard(OTHER, Cluster, at(4_150)), Some(FailureEvidence::Recovered));
    }

    #[test]
    fn unusual_silence_is_reported_repeatedly_and_cancelled_once() {
        let mut beats = watching(1);
        (0..10).for_each(|n| assert_eq!(beats.heard(OTHER, Network::Public, at(100 * n)), None));
        assert_eq!(beats.silent(at(2_000)), []);
        assert_eq!(beats.silent(at(2_200)), [(OTHER, FailureEvidence::Silent { millis: 1300 })]);
        assert_eq!(beats.silent(at(2_300)), []);
        assert_eq!(beats.silent(at(2_700)).len(), 1);
        assert_eq!(beats.missed(at(2_700)), [OTHER]);
        assert_eq!(beats.heard(OTHER, Network::Public, at(2_800)), Some(FailureEvidence::Recovered));
        assert_eq!(beats.heard(OTHER, Network::Public, at(2_900)), None);
    }

    #[test]
    fn a_peer_that_is_often_silent_gets_more_time_but_not_any_time() {
        let mut beats = watching(1);
        for n in 0..10 {
            beats.heard(OTHER, Network::Public, at(700 * n));
        }
        assert_eq!(beats.silent(at(6_300 + 1_900)), [], "three times 0.7 s");
        assert_eq!(beats.silent(at(6_300 + 2_200)).len(), 1);
        // Once it behaves again, that is forgotten.
        for n in 0..2_000 {
            beats.heard(OTHER, Network::Public, at(10_000 + 100 * n));
        }
        assert_eq!(beats.silent(at(209_900 + 1_300)).len(), 1);
        beats.heard(OTHER, Network::Public, at(300_000));
        assert_eq!(beats.silent(at(302_900)), []);
        assert_eq!(beats.silent(at(303_100)).len(), 1);
    }

    #[test]
    fn twenty_percent_loss_reports_no_peer() {
        let mut rng = nacre_base::Rng::new(7);
        let mut beats = watching(1);
        let lost = |rng: &mut nacre_base::Rng| rng.chance(200);
        for n in 0..100_000 {
            // Its own heartbeat, and its answer to ours.
            if !lost(&mut rng) || !(lost(&mut rng) || lost(&mut rng)) {
                beats.heard(OTHER, Network::Public, at(100 * n));
            }
            assert_eq!(beats.silent(at(100 * n)), []);
        }
    }

    #[test]
    fn probed_peer_gets_few_heartbeats_until_it_does_not_reply() {
        let mut beats = Heartbeats::default();
        beats.watch([(OTHER, place(1))].into_iter(), &BTreeSet::new(), at(0));
        let mut sent = 0;
        for now in (0..60_000).step_by(100) {
            let targets = beats.take_due(at(now)).len();
            sent += targets;
            assert_eq!(beats.silent(at(now)), []);
            if targets > 0 {
                beats.heard(OTHER, Network::Public, at(now + 1));
            }
        }
        assert_eq!(sent, 28, "one in 2 to 2.1 s, and not 600");
        // It dies. Nothing is waited for: it is probed in time.
        let first = (60_000..).step_by(100).find(|now| !beats.take_due(at(*now)).is_empty()).unwrap();
        assert!((60_000..62_000).contains(&first), "{first}");
        for now in (first + 100..=first + 1_200).step_by(100) {
            assert_eq!((beats.silent(at(now)), beats.take_due(at(now)).len()), (vec![], 1));
        }
        assert_eq!(beats.silent(at(first + 1_300)), [(OTHER, FailureEvidence::Silent { millis: 1300 })]);
    }

    #[test]
    fn peer_that_does_not_reply_to_a_message_is_found_as_fast_as_by_a_witness() {
        let mut beats = Heartbeats::default();
        beats.watch([(OTHER, place(1))].into_iter(), &BTreeSet::new(), at(0));
        // It replies to each message, and needs no probe.
        for now in (0..10_000).step_by(100) {
            beats.note_request(OTHER, Network::Public, at(now));
            beats.heard(OTHER, Network::Public, at(now + 5));
            assert_eq!(beats.take_due(at(now + 10)), []);
        }
        beats.note_request(OTHER, Network::Public, at(10_000));
        let mut probes = 0;
        for now in (10_010..11_210).step_by(100) {
            probes += beats.take_due(at(now)).len();
            assert_eq!(beats.silent(at(now)), []);
        }
        assert_eq!(probes, 11);
        assert_eq!(beats.silent(at(11_210)), [(OTHER, FailureEvidence::Silent { millis: 1210 })]);
        assert_eq!(beats.heard(OTHER, Network::Public, at(11_300)), Some(FailureEvidence::Recovered));
    }

    /// With 198 peers, as in a cluster of 450 OSDs with 100 PGs on each; six of them are witnessed.
    #[test]
    fn heartbeats_of_an_idle_osd_do_not_grow_with_its_peers() {
        let mut beats = Heartbeats::default();
        let peers = (1..=198).map(|n| (OsdId(n), place(1)));
        let mut sent = 0;
        beats.watch(peers, &(1..=6).map(OsdId).collect(), at(0));
        for now in (0..10_000).step_by(100) {
            for (osd, network, _) in beats.take_due(at(now)) {
                sent += 1;
                beats.heard(osd, network, at(now + 1));
            }
        }
        assert_eq!(sent, 6 * 100 + 192 * 4, "and not 198 * 100");
    }

    #[test]
    fn time_without_checks_does_not_count_and_a_new_incarnation_starts_anew() {
        let mut beats = watching(1);
        beats.forgive(at(5_000), Duration::from_millis(4_500));
        assert_eq!(beats.silent(at(5_000)), []);
        assert_eq!(beats.silent(at(5_800)).len(), 1);
        beats.watch([(OTHER, place(2))].into_iter(), &[OTHER].into(), at(6_000));
        assert_eq!(beats.silent(at(7_000)), []);
    }

    #[test]
    fn peer_that_sends_but_does_not_answer_is_missed() {
        let mut beats = watching(7);
        let mut said = Vec::new();
        for now in (0..20_000).step_by(100) {
            beats.note_sessions(|_, life| (life == 7 && (1_000..15_000).contains(&now)).then_some(at(1_000)));
            said.extend(beats.heard(OTHER, Network::Public, at(now)).map(|evidence| (now, evidence)));
            said.extend(beats.silent(at(now)).into_iter().map(|(_, evidence)| (now, evidence)));
        }
        assert_eq!(said[0], (11_100, FailureEvidence::Silent { millis: 10_100 }));
        assert_eq!(said.last(), Some(&(15_000, FailureEvidence::Recovered)));
        assert_eq!(said.len(), 9, "twice a second: {said:?}");
    }

    /// OSDs that are up, so many on each host, and so many hosts in each rack.
    fn cluster(osds: i32, per_host: i32, per_rack: i32) -> OsdMap {
        let mut crush = CrushMap::fresh(0);
        for osd in 0..osds {
            let place = [
                ("root", "default".to_string()),
                ("rack", format!("r{}", osd / per_host / per_rack)),
                ("host", format!("h{}", osd / per_host)),
            ];
            let place = place.map(|(kind, name)| (kind.to_string(), name)).into();
            crush.create_or_move_item(osd, 1 << 16, &format!("osd.{osd}"), &place).unwrap();
        }
        let mut map = OsdMap::new([1; 16], nacre_base::Utime::ZERO, crush);
        map.set_max_osd(osds as u32);
        for osd in 0..osds {
            map.osd_mut(OsdId(osd)).unwrap().state =
                nacre_proto::maps::osd_state::EXISTS | nacre_proto::maps::osd_state::UP;
        }
        map
    }

    #[test]
    fn neighbours_in_the_ring_are_in_different_hosts_and_racks() {
        // r0: h0 (0, 1, 2), h1 (3, 4, 5); r1: h2 (6, 7, 8), h3 (9, 10, 11)
        let map = cluster(12, 3, 2);
        for osd in 0..12 {
            let watched = witnessed(&map, OsdId(osd));
            assert_eq!(watched.len(), 6);
            let racks: BTreeSet<i32> = watched.iter().map(|o| o.0 / 6).collect();
            let hosts: BTreeSet<i32> = watched.iter().map(|o| o.0 / 3).collect();
            assert_eq!((racks.len(), hosts.len()), (2, 4), "osd.{osd} watches {watched:?}");
            assert!(!watched.contains(&OsdId(osd)));
            let witnesses = (0..12).filter(|other| witnessed(&map, OsdId(*other)).contains(&OsdId(osd)));
            assert_eq!(witnesses.count(), 6);
        }
    }

    /// On 30 hosts in 10 racks. Each pair of OSDs would be 2,020,500 heartbeats a second.
    #[test]
    fn idle_cluster_of_450_osds_sends_heartbeats_between_few_of_them() {
        let map = cluster(450, 15, 3);
        let mut witnesses = vec![0; 450];
        for osd in 0..450 {
            let watched = witnessed(&map, OsdId(osd));
            assert!(watched.iter().all(|other| other.0 / 15 != osd / 15), "on other hosts than osd.{osd}");
            watched.into_iter().for_each(|other| witnesses[other.index()] += 1);
        }
        assert_eq!(witnesses, vec![WITNESSES; 450], "27,000 heartbeats a second in all");
    }
}
