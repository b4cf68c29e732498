//! One session with some monitor: finding one that answers, subscriptions, requests.
//!
//! Monitors are dialled one at a time, since the first that answers gives the client its number and
//! a second one would give it another. Whatever was asked and not answered is asked again in the
//! next session. Read `Phase`, then the `on_*`.

use crate::wire_out::Out;
use nacre_base::{Epoch, Rng};
use nacre_machine::{Closed, ConnId, Level, TimerId};
use nacre_proto::maps::{MonMap, Uuid};
use nacre_proto::messages::{Message, MonGetMap, MonGetVersion, MonMapMsg, MonSub, MonSubscribe};
use nacre_proto::types::{EntityAddr, EntityType};
use nacre_wire::from_slice;
use std::collections::BTreeMap;
use std::time::Duration;

/// The session's only timer; what it means depends on the phase.
pub(crate) const TIMER: TimerId = 1;

/// From dialling to the first map.
const GREETING_TIMEOUT: Duration = Duration::from_secs(3);
/// How often a monitor is asked whether it is there, and its maps are compared with ours. It has as
/// long to answer.
const PROBE_INTERVAL: Duration = Duration::from_secs(5);
/// After all monitors were tried in vain, doubling.
const REST_MIN: Duration = Duration::from_millis(50);
const REST_MAX: Duration = Duration::from_secs(5);

#[derive(Debug)]
enum Phase {
    /// Not started, or stopped.
    Idle,
    /// All were tried; the timer starts the next round.
    Resting,
    /// Until the monitor map arrives. The timer ends it.
    Greeting { conn: ConnId },
    /// The timer probes.
    Ready { conn: ConnId, probe: Option<u64> },
}

#[derive(Debug)]
pub(crate) struct MonSession {
    phase: Phase,
    /// In the order in which they are tried.
    addrs: Vec<EntityAddr>,
    /// The next one to try.
    next: usize,
    /// The one that was dialled last.
    dialled: EntityAddr,
    /// Failures since a monitor answered.
    failures: u32,
    rng: Rng,
    mon_map: Option<MonMap>,
    /// The map that the objecter has.
    have: Epoch,
    config: BTreeMap<String, String>,
    /// By tid; kept until they are answered.
    requests: BTreeMap<u64, MonRequest>,
}

/// A request, built for each session anew: it names the cluster, which is known only then.
type MonRequest = Box<dyn MakeMessage>;

pub(crate) trait MakeMessage: std::fmt::Debug + Send {
    fn make(&self, tid: u64, fsid: Uuid) -> Message;
}

/// What a message from the monitor means for the rest of the client.
#[derive(Debug, PartialEq)]
pub(crate) enum FromMon {
    Nothing,
    /// A message that is not about the session itself.
    Pass(Message),
    /// The answer to a request.
    Answer {
        tid: u64,
        message: Message,
    },
}

impl MonSession {
    pub(crate) fn new(mut addrs: Vec<EntityAddr>, mut rng: Rng) -> MonSession {
        assert!(!addrs.is_empty(), "a client is told of at least one monitor");
        shuffle(&mut addrs, &mut rng);
        MonSession {
            phase: Phase::Idle,
            addrs,
            next: 0,
            dialled: EntityAddr::default(),
            failures: 0,
            rng,
            mon_map: None,
            have: Epoch(0),
            config: BTreeMap::new(),
            requests: BTreeMap::new(),
        }
    }

    pub(crate) fn start(&mut self, out: &mut Out<'_>) {
        self.dial_next(out);
    }

    pub(crate) fn stop(&mut self, out: &mut Out<'_>) {
        if let Phase::Greeting { conn } | Phase::Ready { conn, .. } = self.phase {
            out.hang_up(conn);
        }
        out.disarm(TIMER);
        self.phase = Phase::Idle;
    }

    pub(crate) fn mon_map(&self) -> Option<&MonMap> {
        self.mon_map.as_ref()
    }
    /// The options that the monitors set for this client.
    pub(crate) fn config(&self) -> &BTreeMap<String, String> {
        &self.config
    }
    pub(crate) fn fsid(&self) -> Uuid {
        self.mon_map.as_ref().map_or([0; 16], |map| map.fsid)
    }

    pub(crate) fn owns(&self, conn: ConnId) -> bool {
        matches!(self.phase, Phase::Greeting { conn: c } | Phase::Ready { conn: c, .. } if c == conn)
    }

    /// Asks, now or when there is a monitor to ask, until there is an answer or `forget`.
    pub(crate) fn request(&mut self, tid: u64, request: impl MakeMessage + 'static, out: &mut Out<'_>) {
        if let Phase::Ready { conn, .. } = self.phase {
            out.send(conn, tid, request.make(tid, self.fsid()));
        }
        self.requests.insert(tid, Box::new(request));
    }

    pub(crate) fn forget(&mut self, tid: u64) {
        self.requests.remove(&tid);
    }

    /// The objecter has a map of this epoch from here on.
    pub(crate) fn have_map(&mut self, epoch: Epoch) {
        self.have = epoch;
    }

    /// Asks for maps again: from the next one on, or the newest whole.
    pub(crate) fn ask_for_maps(&mut self, whole: bool, out: &mut Out<'_>) {
        if let Phase::Ready { conn, .. } | Phase::Greeting { conn } = self.phase {
            let start = if whole { 0 } else { self.next_epoch() };
            let what = BTreeMap::from([("osdmap".to_owned(), MonSub { start, flags: 0 })]);
            out.send(conn, 0, MonSubscribe { what, hostname: String::new() });
        }
    }

    fn next_epoch(&self) -> u64 {
        match self.have {
            Epoch(0) => 0,
            have => u64::from(have.0) + 1,
        }
    }

    // ---- finding a monitor ----

    fn dial_next(&mut self, out: &mut Out<'_>) {
        let addr = self.addrs[self.next % self.addrs.len()];
        self.next = (self.next + 1) % self.addrs.len();
        self.dialled = addr;
        let conn = out.dial(addr, EntityType::Mon);
        out.arm(TIMER, GREETING_TIMEOUT);
        self.phase = Phase::Greeting { conn };
    }

    /// The next one at once, but a rest when all have failed.
    fn try_another(&mut self, out: &mut Out<'_>) {
        self.failures += 1;
        let all = self.addrs.len() as u32;
        if !self.failures.is_multiple_of(all) {
            return self.dial_next(out);
        }
        let rounds = (self.failures / all).min(10);
        let rest = (REST_MIN * 2_u32.pow(rounds)).min(REST_MAX);
        let rest = self.rng.duration(rest / 2, rest);
        out.log(Level::Debug, format!("no monitor answers, next try in {} ms", rest.as_millis()));
        out.arm(TIMER, rest);
        self.phase = Phase::Resting;
    }

    fn leave(&mut self, why: &str, out: &mut Out<'_>) {
        let (Phase::Greeting { conn } | Phase::Ready { conn, .. }) = self.phase else { return };
        out.log(Level::Warn, format!("leaves a monitor: {why}"));
        out.hang_up(conn);
        self.try_another(out);
    }

    // ---- events ----

    pub(crate) fn on_opened(&mut self, conn: ConnId, out: &mut Out<'_>) {
        let sub = |start| MonSub { start, flags: 0 };
        let next_mon_map = self.mon_map.as_ref().map_or(0, |map| u64::from(map.epoch.0) + 1);
        let what = BTreeMap::from([
            ("config".to_owned(), sub(0)),
            ("monmap".to_owned(), sub(next_mon_map)),
            ("osdmap".to_owned(), sub(self.next_epoch())),
        ]);
        out.send(conn, 0, MonGetMap);
        out.send(conn, 0, MonSubscribe { what, hostname: String::new() });
    }

    pub(crate) fn on_closed(&mut self, why: &Closed, out: &mut Out<'_>) {
        match self.phase {
            Phase::Ready { .. } => out.log(Level::Info, format!("lost the monitor: {why}")),
            _ => out.log(Level::Debug, format!("cannot reach a monitor: {why}")),
        }
        self.try_another(out);
    }

    pub(crate) fn on_timer(&mut self, out: &mut Out<'_>) {
        match &mut self.phase {
            Phase::Idle => {}
            Phase::Resting => self.dial_next(out),
            Phase::Greeting { .. } => self.leave("no greeting in time", out),
            Phase::Ready { probe: Some(_), .. } => self.leave("no reply in time", out),
            Phase::Ready { conn, probe } => {
                let handle = out.numbers.next_tid();
                *probe = Some(handle);
                out.send(*conn, 0, MonGetVersion { handle, what: "osdmap".to_owned() });
                out.arm(TIMER, PROBE_INTERVAL);
            }
        }
    }

    pub(crate) fn on_message(&mut self, tid: u64, message: Message, out: &mut Out<'_>) -> FromMon {
        let tid = match message {
            Message::MonMap(MonMapMsg { map }) => {
                match from_slice::<MonMap>(&map) {
                    Ok(map) => self.on_mon_map(map, out),
                    Err(e) => self.leave(&format!("its monitor map: {e}"), out),
                }
                return FromMon::Nothing;
            }
            Message::Config(config) => {
                self.config = config.values;
                return FromMon::Nothing;
            }
            Message::MonGetVersionReply(ref reply) => {
                if let Phase::Ready { probe, .. } = &mut self.phase
                    && *probe == Some(reply.handle)
                {
                    *probe = None;
                    // Maps come by themselves; if one did not, the monitor forgot us.
                    if reply.version > u64::from(self.have.0) {
                        self.ask_for_maps(false, out);
                    }
                    return FromMon::Nothing;
                }
                reply.handle
            }
            Message::MonCommandAck(_)
            | Message::StatfsReply(_)
            | Message::GetPoolStatsReply(_)
            | Message::PoolOpReply(_) => tid,
            other => return FromMon::Pass(other),
        };
        match self.requests.remove(&tid) {
            Some(_) => FromMon::Answer { tid, message },
            None => FromMon::Nothing,
        }
    }

    fn on_mon_map(&mut self, map: MonMap, out: &mut Out<'_>) {
        if self.mon_map.as_ref().is_some_and(|had| had.fsid != map.fsid) {
            return self.leave("it belongs to another cluster", out);
        }
        let known: Vec<EntityAddr> = map.by_rank().filter_map(|mon| mon.public_addrs.msgr2()).collect();
        let newer = self.mon_map.as_ref().is_none_or(|had| had.epoch < map.epoch);
        let was_removed = newer && !known.is_empty() && !known.contains(&self.dialled);
        if newer && !known.is_empty() {
            self.addrs = known;
            shuffle(&mut self.addrs, &mut self.rng);
            self.next = 0;
        }
        if newer {
            self.mon_map = Some(map);
        }
        if was_removed {
            return self.leave("it is no monitor any more", out);
        }
        let Phase::Greeting { conn } = self.phase else { return };
        self.phase = Phase::Ready { conn, probe: None };
        self.failures = 0;
        out.arm(TIMER, PROBE_INTERVAL);
        let fsid = self.fsid();
        for (&tid, request) in &self.requests {
            out.send(conn, tid, request.make(tid, fsid));
        }
    }
}

fn shuffle(addrs: &mut [EntityAddr], rng: &mut Rng) {
    for last in (1..addrs.len()).rev() {
        addrs.swap(last, rng.below(last as u64 + 1) as usize);
    }
}
