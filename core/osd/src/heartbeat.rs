//! Who is alive: heartbeats as datagrams, ten a second, and how long a silence is too long.
//!
//! TCP sends again what is lost, later and later: at 20 % loss a session is silent for seconds while
//! its peer is well. A datagram that is lost is just lost, and the next one tells as much. Whatever
//! comes from an OSD, by datagram or by session, is a sign of its life.

use nacre_base::{OsdId, Time};
use nacre_crush::CrushMap;
use nacre_proto::maps::OsdMap;
use nacre_proto::messages::FailureEvidence;
use nacre_proto::types::EntityAddr;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Ceph has it as `osd_heartbeat_interval`, in whole seconds.
pub const BEAT_EVERY: Duration = Duration::from_millis(100);
/// Silence for so long is reported, unless shorter silences are usual. Ceph has it as
/// `osd_heartbeat_grace`.
const GRACE: Duration = Duration::from_millis(1200);
/// However usual: longer silence is reported.
const GRACE_MAX: Duration = Duration::from_secs(3);
/// A silence is unusual when it is so many times the longest of late.
const UNUSUAL: u32 = 3;
/// In about this time a long silence is forgotten.
const FORGET: Duration = Duration::from_secs(30);
/// How often a report is repeated.
const REPORT_EVERY: Duration = Duration::from_millis(500);
/// How many OSDs are watched that share no group with us, so that each one has enough who watch it.
const STRANGERS: usize = 3;

/// What we know of another OSD's life.
struct Watched {
    /// Of the life that is watched.
    addr: EntityAddr,
    last_heard: Time,
    /// The longest silence of late; older ones count less and less.
    usual: Duration,
    reported: Option<Time>,
}

impl Watched {
    fn grace(&self) -> Duration {
        (self.usual * UNUSUAL).clamp(GRACE, GRACE_MAX)
    }
}

#[derive(Default)]
pub struct Heartbeats {
    watched: BTreeMap<OsdId, Watched>,
}

impl Heartbeats {
    /// From now on these lives are watched, and nobody else.
    pub fn watch(&mut self, osds: impl Iterator<Item = (OsdId, EntityAddr)>, now: Time) {
        let mut old = std::mem::take(&mut self.watched);
        self.watched = osds
            .map(|(osd, addr)| {
                let fresh = Watched { addr, last_heard: now, usual: Duration::ZERO, reported: None };
                (osd, old.remove(&osd).filter(|old| old.addr == addr).unwrap_or(fresh))
            })
            .collect();
    }
    /// Which of its lives is watched.
    pub fn life(&self, osd: OsdId) -> Option<u32> {
        self.watched.get(&osd).map(|watched| watched.addr.nonce)
    }
    pub fn watched(&self) -> impl Iterator<Item = (OsdId, EntityAddr)> + '_ {
        self.watched.iter().map(|(osd, watched)| (*osd, watched.addr))
    }

    /// A sign of life. What was reported is to be taken back.
    pub fn heard(&mut self, osd: OsdId, now: Time) -> Option<FailureEvidence> {
        let watched = self.watched.get_mut(&osd)?;
        let silence = now.since(watched.last_heard);
        let left = 1.0 - silence.as_secs_f64() / FORGET.as_secs_f64();
        watched.usual = watched.usual.mul_f64(left.max(0.0)).max(silence).min(GRACE_MAX);
        watched.last_heard = now;
        watched.reported.take().map(|_| FailureEvidence::Recovered)
    }
    /// Those who were silent for too long, to be reported (again).
    pub fn silent(&mut self, now: Time) -> Vec<(OsdId, FailureEvidence)> {
        let mut found = Vec::new();
        for (&osd, watched) in &mut self.watched {
            let silence = now.since(watched.last_heard);
            let due = watched.reported.is_none_or(|at| now.since(at) >= REPORT_EVERY);
            if silence > watched.grace() && due {
                watched.reported = Some(now);
                found.push((osd, FailureEvidence::Silent { millis: silence.as_millis() as u32 }));
            }
        }
        found
    }
    /// Who is silent for too long, reported or not.
    pub fn missed(&self, now: Time) -> Vec<OsdId> {
        let missed = |watched: &Watched| now.since(watched.last_heard) > watched.grace();
        self.watched.iter().filter(|(_, watched)| missed(watched)).map(|(osd, _)| *osd).collect()
    }
    /// We did not look for a while: what was not heard in it proves nothing about others.
    pub fn forgive(&mut self, now: Time, late: Duration) {
        for watched in self.watched.values_mut() {
            watched.last_heard = (watched.last_heard + late).min(now);
        }
    }
}

/// Whom `me` watches besides those with whom it shares groups: the next ones in an order of all OSDs in
/// which neighbours are as far from each other as they can be. So each OSD has its watchers in several
/// failure domains, whatever the pools are like.
pub fn strangers(map: &OsdMap, me: OsdId) -> Vec<OsdId> {
    let mut ring: Vec<OsdId> =
        merge(map.crush.roots(false).into_iter().map(|root| spread(&map.crush, root)).collect());
    ring.extend(map.osd_ids());
    let mut seen = BTreeSet::new();
    ring.retain(|&osd| (map.is_up(osd) || osd == me) && seen.insert(osd));
    let at = ring.iter().position(|&osd| osd == me).unwrap_or(0);
    let others = ring.len().saturating_sub(1);
    (1..=STRANGERS.min(others)).map(|n| ring[(at + n) % ring.len()]).collect()
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
        beats.watch([(OTHER, addr(life))].into_iter(), at(0));
        beats
    }
    fn addr(life: u32) -> EntityAddr {
        EntityAddr::msgr2(([127, 0, 0, 1], 6800).into(), life)
    }

    #[test]
    fn an_unusual_silence_is_reported_again_and_again_and_taken_back_once() {
        let mut beats = watching(1);
        (0..10).for_each(|n| assert_eq!(beats.heard(OTHER, at(100 * n)), None));
        assert_eq!(beats.silent(at(2_000)), []);
        assert_eq!(beats.silent(at(2_200)), [(OTHER, FailureEvidence::Silent { millis: 1300 })]);
        assert_eq!(beats.silent(at(2_300)), []);
        assert_eq!(beats.silent(at(2_700)).len(), 1);
        assert_eq!(beats.missed(at(2_700)), [OTHER]);
        assert_eq!(beats.heard(OTHER, at(2_800)), Some(FailureEvidence::Recovered));
        assert_eq!(beats.heard(OTHER, at(2_900)), None);
    }

    #[test]
    fn a_peer_that_is_often_silent_gets_more_time_but_not_any_time() {
        let mut beats = watching(1);
        for n in 0..10 {
            beats.heard(OTHER, at(700 * n));
        }
        assert_eq!(beats.silent(at(6_300 + 1_900)), [], "three times 0.7 s");
        assert_eq!(beats.silent(at(6_300 + 2_200)).len(), 1);
        // Once it behaves again, that is forgotten.
        for n in 0..2_000 {
            beats.heard(OTHER, at(10_000 + 100 * n));
        }
        assert_eq!(beats.silent(at(209_900 + 1_300)).len(), 1);
        beats.heard(OTHER, at(300_000));
        assert_eq!(beats.silent(at(302_900)), []);
        assert_eq!(beats.silent(at(303_100)).len(), 1);
    }

    #[test]
    fn at_twenty_percent_loss_nobody_is_missed() {
        let mut rng = nacre_base::Rng::new(7);
        let mut beats = watching(1);
        let lost = |rng: &mut nacre_base::Rng| rng.chance(200);
        for n in 0..100_000 {
            // Its own heartbeat, and its answer to ours.
            if !lost(&mut rng) || !(lost(&mut rng) || lost(&mut rng)) {
                beats.heard(OTHER, at(100 * n));
            }
            assert_eq!(beats.silent(at(100 * n)), []);
        }
    }

    #[test]
    fn time_in_which_we_did_not_look_does_not_count_and_a_new_life_starts_anew() {
        let mut beats = watching(1);
        beats.forgive(at(5_000), Duration::from_millis(4_500));
        assert_eq!(beats.silent(at(5_000)), []);
        assert_eq!(beats.silent(at(5_800)).len(), 1);
        beats.watch([(OTHER, addr(2))].into_iter(), at(6_000));
        assert_eq!(beats.silent(at(7_000)), []);
    }

    #[test]
    fn neighbours_in_the_ring_are_in_different_hosts_and_racks() {
        let mut crush = CrushMap::fresh(0);
        // r0: h0 (0, 1, 2), h1 (3, 4, 5); r1: h2 (6, 7, 8), h3 (9, 10, 11)
        for osd in 0..12 {
            let place = [
                ("root", "default".to_string()),
                ("rack", format!("r{}", osd / 6)),
                ("host", format!("h{}", osd / 3)),
            ];
            let place = place.map(|(kind, name)| (kind.to_string(), name)).into();
            crush.create_or_move_item(osd, 1 << 16, &format!("osd.{osd}"), &place).unwrap();
        }
        let mut map = OsdMap::new([1; 16], nacre_base::Utime::ZERO, crush);
        map.set_max_osd(12);
        for osd in 0..12 {
            map.osd_mut(OsdId(osd)).unwrap().state =
                nacre_proto::maps::osd_state::EXISTS | nacre_proto::maps::osd_state::UP;
        }
        for osd in 0..12 {
            let watched = strangers(&map, OsdId(osd));
            assert_eq!(watched.len(), 3);
            let racks: BTreeSet<i32> = watched.iter().map(|o| o.0 / 6).collect();
            let hosts: BTreeSet<i32> = watched.iter().map(|o| o.0 / 3).collect();
            assert_eq!((racks.len(), hosts.len()), (2, 3), "osd.{osd} watches {watched:?}");
            assert!(!watched.contains(&OsdId(osd)));
        }
    }
}
