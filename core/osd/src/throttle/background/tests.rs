use super::*;
use crate::throttle::Throttle;
use nacre_base::{PgId, PoolId};
use std::collections::{BTreeMap, BTreeSet};

const LIMITS: PaceConfig =
    PaceConfig { max: 8, sleep: Duration::ZERO, priority: 3, rest_max: Duration::from_millis(128) };

fn pg(seed: u32) -> PgId {
    PgId { pool: PoolId(1), seed }
}
fn at(millis: u64) -> Time {
    Time::ZERO + Duration::from_millis(millis)
}
fn pace(config: PaceConfig) -> Throttle<Pace> {
    Throttle::new(Pace::new(config))
}
/// Takes all that it gets.
fn take_all(share: &Throttle<Pace>, now: Time) -> Vec<WorkSlot> {
    std::iter::from_fn(|| share.request(now, pg(0), WorkRequest::default(), false)).collect()
}
/// A hundred requests more, each of which waited this many microseconds.
fn serve(share: &mut Throttle<Pace>, served: &mut (u64, Duration), micros: u64) {
    served.0 += 100;
    served.1 += Duration::from_micros(100 * micros);
    let limits = share.limit().config;
    share.limit_mut().look(limits, served.0, served.1);
}

#[test]
fn recovery_beside_clients_starts_at_one_and_grows_while_latency_is_low() {
    let (mut share, mut served) = (pace(LIMITS), (0, Duration::ZERO));
    (0..5).for_each(|_| serve(&mut share, &mut served, 1000));
    let mut slots = take_all(&share, at(1000));
    assert_eq!(slots.len(), 1);
    slots.clear();
    assert_eq!(take_all(&share, at(1127)).len(), 0);
    slots = take_all(&share, at(1128));
    for _ in 0..40 {
        serve(&mut share, &mut served, 1050);
        slots.extend(take_all(&share, at(2000)));
    }
    assert_eq!(slots.len(), 8);
    // They wait: half goes at once, and half of it again.
    serve(&mut share, &mut served, 1500);
    assert_eq!((share.limit().window, share.limit().rest), (4, Duration::ZERO));
    (0..10).for_each(|_| serve(&mut share, &mut served, 1500));
    assert_eq!((share.limit().window, share.limit().rest), (1, Duration::from_millis(128)));
    // More than twice as long: it has the least at once.
    (0..9).for_each(|_| serve(&mut share, &mut served, 1000));
    assert!(share.limit().rest < Duration::from_millis(20));
    serve(&mut share, &mut served, 9000);
    assert_eq!((share.limit().window, share.limit().rest), (1, Duration::from_millis(128)));
}

#[test]
fn recovery_gets_all_slots_within_two_seconds_without_clients() {
    let (mut share, mut served) = (pace(LIMITS), (0, Duration::ZERO));
    assert_eq!(take_all(&share, at(0)).len(), 8);
    (0..5).for_each(|_| serve(&mut share, &mut served, 1000));
    let slots = take_all(&share, at(0));
    (0..8).for_each(|_| share.limit_mut().look(LIMITS, served.0, served.1));
    drop(slots);
    assert_eq!(take_all(&share, at(2000)).len(), 8);
}

#[test]
fn waiting_copy_gets_the_next_slot_and_the_last_copy_does_not_wait() {
    let (mut share, mut served) = (pace(LIMITS), (0, Duration::ZERO));
    serve(&mut share, &mut served, 1000);
    let slots = take_all(&share, at(0));
    assert!(share.request(at(0), pg(3), WorkRequest::default(), false).is_none());
    assert!(share.request(at(0), pg(4), WorkRequest { scarce: true, forced: false }, false).is_some());
    assert_eq!(share.next_waiting(at(200)), None);
    drop(slots);
    assert_eq!(share.next_waiting(at(100)), None);
    assert_eq!(share.next_waiting(at(200)), Some(pg(0)));
    assert_eq!(share.next_waiting(at(200)), Some(pg(3)));
}

#[test]
fn a_higher_priority_lets_clients_wait_longer() {
    let limits = PaceConfig { priority: 63, ..LIMITS };
    let (mut share, mut served) = (pace(limits), (0, Duration::ZERO));
    serve(&mut share, &mut served, 1000);
    let mut slots = take_all(&share, at(0));
    for round in 1..40 {
        serve(&mut share, &mut served, 2000);
        slots.extend(take_all(&share, at(round * 1000)));
    }
    assert_eq!(slots.len(), 8);
}

#[test]
fn latency_baseline_is_learned_during_recovery() {
    let (mut share, mut served) = (pace(LIMITS), (0, Duration::ZERO));
    let slots = take_all(&share, at(0));
    serve(&mut share, &mut served, 9000);
    assert_eq!((share.limit().window, share.limit().rest), (1, LIMITS.rest_max));
    (0..4).for_each(|_| serve(&mut share, &mut served, 1000));
    assert!(share.limit().usual.is_some_and(|usual| usual < 0.001_1));
    drop(slots);
}

#[test]
fn transfers_start_no_faster_than_the_sleep_between_them_allows() {
    let share = pace(PaceConfig { sleep: Duration::from_secs(1), ..LIMITS });
    assert!(share.request(at(1000), pg(0), WorkRequest { scarce: true, forced: false }, false).is_some());
    assert!(share.request(at(1000), pg(0), WorkRequest { scarce: true, forced: false }, false).is_none());
    assert!(share.request(at(2000), pg(0), WorkRequest::default(), false).is_some());
}

/// One device or processor that three OSDs share; it serves one request at a time.
struct Machine {
    shares: Vec<Throttle<Pace>>,
    /// Requests answered by each, and what they waited.
    served: Vec<(u64, Duration)>,
    now: Time,
    /// When it has done all that it was given.
    free: Time,
    events: BTreeSet<(Time, u64)>,
    doing: BTreeMap<u64, Doing>,
    last: u64,
    /// Whether there is something to recover.
    recovering: bool,
    transfers: u64,
}
enum Doing {
    Request(usize, Time),
    Transfer(WorkSlot),
    Look,
}
const REQUEST: Duration = Duration::from_micros(500);
const TRANSFER: Duration = Duration::from_millis(2);

impl Machine {
    /// This many clients, each of which asks again as soon as it has its answer.
    fn new(clients: usize) -> Machine {
        let mut machine = Machine {
            shares: (0..3).map(|_| pace(LIMITS)).collect(),
            served: vec![(0, Duration::ZERO); 3],
            now: Time::ZERO,
            free: Time::ZERO,
            events: BTreeSet::new(),
            doing: BTreeMap::new(),
            last: 0,
            recovering: false,
            transfers: 0,
        };
        (0..clients).for_each(|client| machine.ask(client % 3));
        machine.at(Time::ZERO, Doing::Look);
        machine
    }
    fn at(&mut self, when: Time, doing: Doing) {
        self.last += 1;
        self.doing.insert(self.last, doing);
        self.events.insert((when, self.last));
    }
    fn work(&mut self, cost: Duration, doing: Doing) {
        self.free = self.free.max(self.now) + cost;
        self.at(self.free, doing);
    }
    fn ask(&mut self, osd: usize) {
        self.work(REQUEST, Doing::Request(osd, self.now));
    }
    /// Requests answered and transfers done in so much time.
    fn run(&mut self, millis: u64) -> (u64, u64) {
        let end = self.now + Duration::from_millis(millis);
        let before = (self.served.iter().map(|(n, _)| n).sum::<u64>(), self.transfers);
        while let Some(&(when, id)) = self.events.first().filter(|next| next.0 <= end) {
            self.events.pop_first();
            self.now = when;
            match self.doing.remove(&id).unwrap() {
                Doing::Request(osd, since) => {
                    self.served[osd].0 += 1;
                    self.served[osd].1 += when.since(since);
                    self.ask((osd + 1) % 3);
                }
                Doing::Transfer(slot) => {
                    drop(slot);
                    self.transfers += 1;
                }
                Doing::Look => {
                    for (share, (answered, waited)) in self.shares.iter_mut().zip(&self.served) {
                        share.limit_mut().look(LIMITS, *answered, *waited);
                    }
                    self.at(when + Duration::from_millis(250), Doing::Look);
                }
            }
            while self.recovering
                && let Some(slot) = self
                    .shares
                    .iter()
                    .find_map(|share| share.request(when, pg(0), WorkRequest::default(), false))
            {
                self.work(TRANSFER, Doing::Transfer(slot));
            }
        }
        self.now = end;
        (self.served.iter().map(|(n, _)| n).sum::<u64>() - before.0, self.transfers - before.1)
    }
}

#[test]
fn clients_at_full_speed_lose_a_tenth_at_most_from_the_first_second_on() {
    for clients in [16, 64] {
        let mut machine = Machine::new(clients);
        let (healthy, _) = machine.run(10_000);
        machine.recovering = true;
        let (first, _) = machine.run(1000);
        assert!(first * 10 >= healthy / 10 * 8, "{clients} clients: {first} of {}", healthy / 10);
        let (during, transfers) = machine.run(20_000);
        assert!(during * 10 >= healthy * 2 * 9, "{clients} clients: {during} of {}", healthy * 2);
        assert!(
            transfers >= 20 * 3 * 7,
            "{clients} clients: {transfers}, less than there may be at the least"
        );
    }
}

#[test]
fn without_clients_it_takes_the_whole_device_and_gives_it_back_when_they_come() {
    let mut machine = Machine::new(0);
    machine.recovering = true;
    let (_, transfers) = machine.run(10_000);
    assert!(transfers >= 5000 * 8 / 10, "{transfers}");
    (0..16).for_each(|client| machine.ask(client % 3));
    machine.run(2000);
    let (served, _) = machine.run(10_000);
    assert!(served >= 20_000 * 17 / 20, "{served}");
}

#[test]
fn forced_work_goes_first_and_delays_no_last_copy() {
    let share = pace(PaceConfig { max: 1, ..LIMITS });
    let forced = WorkRequest { scarce: false, forced: true };
    let slot = share.request(at(0), pg(1), WorkRequest::default(), false);
    assert!(share.request(at(0), pg(0), WorkRequest::default(), false).is_none());
    assert!(share.request(at(0), pg(7), forced, false).is_none());
    drop(slot);
    // The PG that had the slot does not get it again at once, although it asks first.
    assert!(share.request(at(1), pg(1), WorkRequest::default(), false).is_none());
    assert!(share.request(at(1), pg(2), WorkRequest { scarce: true, forced: false }, false).is_some());
    assert_eq!(share.next_waiting(at(1)), Some(pg(7)));
    let slot = share.request(at(1), pg(7), forced, false);
    assert!(slot.is_some());
    drop(slot);
    assert_eq!(share.next_waiting(at(2)), Some(pg(0)));
    assert!(share.request(at(2), pg(0), WorkRequest::default(), false).is_some());
    // An urgent PG that wants nothing any more does not hold up the others.
    let slot = share.request(at(3), pg(1), WorkRequest::default(), false);
    assert!(share.request(at(3), pg(7), forced, false).is_none());
    drop(slot);
    assert_eq!(share.next_waiting(at(4)), Some(pg(7)));
    assert!(share.request(at(4), pg(1), WorkRequest::default(), false).is_some());
}
