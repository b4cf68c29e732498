//! One session with some monitor: finding one that answers, subscriptions, requests, keepalive.
//!
//! Monitors are dialled one at a time, since the first that answers gives a client its global id and a
//! second one would give it another. Requests without an answer are sent again in the next session, and
//! subscriptions are made again from where they stopped. Read `Phase`, then the `on_*`.

use nacre_base::{Epoch, Rng, Time};
use nacre_machine::{Closed, ConnId, Context, Level};
use nacre_proto::maps::{MonMap, Uuid};
use nacre_proto::messages::{Message, MonGetMap, MonGetVersion, MonMapMsg, MonSub, MonSubscribe};
use nacre_proto::types::{EntityAddr, EntityType};
use nacre_wire::from_slice;
use std::collections::BTreeMap;
use std::time::Duration;

/// The handle of the session's own question for the newest epoch; requests have tids above it.
const PROBE: u64 = 0;

/// How patient a session is.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// From dialling to the session.
    pub greeting: Duration,
    /// How often the monitor is asked for the newest OSD map's epoch.
    pub probe: Duration,
    /// After so long without a message from it the monitor is left.
    pub silence: Duration,
    /// Maps come by themselves, and one may be on its way: they are asked for when this many answers in a
    /// row were about a newer one.
    pub behind_max: u32,
    /// After all monitors were tried in vain, doubling.
    pub rest_min: Duration,
    pub rest_max: Duration,
}

impl Pace {
    pub const CLIENT: Pace = Pace {
        greeting: Duration::from_secs(3),
        probe: Duration::from_secs(5),
        silence: Duration::from_secs(10),
        behind_max: 1,
        rest_min: Duration::from_millis(100),
        rest_max: Duration::from_secs(5),
    };
    pub const DAEMON: Pace = Pace {
        greeting: Duration::from_secs(6),
        probe: Duration::from_secs(2),
        silence: Duration::from_secs(6),
        behind_max: 2,
        rest_min: Duration::from_millis(500),
        rest_max: Duration::from_millis(500),
    };
}

/// What a session is told when it is made.
#[derive(Clone, Debug)]
pub struct MonClientConfig {
    /// Where monitors were told to be, at least one; more are learnt from the first that answers.
    pub mons: Vec<EntityAddr>,
    pub hostname: String,
    pub pace: Pace,
    /// A session is ready once the monitor map tells which cluster it is, rather than at once.
    pub awaits_mon_map: bool,
}

#[derive(Debug)]
enum Phase {
    /// Not started, or stopped.
    Idle,
    /// All were tried; the next round starts then.
    Resting(Time),
    /// Until the connection is open, or the monitor map is here; given up then.
    Greeting {
        conn: ConnId,
        deadline: Time,
    },
    Ready {
        conn: ConnId,
        heard: Time,
        probe_at: Time,
    },
}

/// The session with a monitor, and what is asked through it.
#[derive(Debug)]
pub struct MonClient {
    phase: Phase,
    pace: Pace,
    awaits_mon_map: bool,
    hostname: String,
    /// In the order in which they are tried.
    addrs: Vec<EntityAddr>,
    /// The next one to try.
    next: usize,
    /// The one that was dialled last.
    dialled: EntityAddr,
    /// Failures since a monitor answered.
    failures: u32,
    /// Answers in a row that were about a newer OSD map than ours.
    behind: u32,
    rng: Rng,
    mon_map: Option<MonMap>,
    /// By the name of the map: the first epoch that is wanted.
    subscriptions: BTreeMap<String, MonSub>,
    /// By tid; kept until they are answered.
    requests: BTreeMap<u64, Box<dyn MakeMessage>>,
}

/// A request, built for each session anew: it names the cluster, which is known only then.
pub trait MakeMessage: std::fmt::Debug + Send {
    fn make(&self, tid: u64, fsid: Uuid) -> Message;
}

/// What a message from the monitor means for the owner of the session.
#[derive(Debug, PartialEq)]
pub enum FromMon {
    Nothing,
    /// The options that the monitors set for this entity.
    Config(BTreeMap<String, String>),
    /// A message that is not about the session itself.
    Pass(Message),
    /// The answer to a request.
    Answer {
        tid: u64,
        message: Message,
    },
}

impl MonClient {
    pub fn new(config: MonClientConfig, mut rng: Rng) -> MonClient {
        let MonClientConfig { mons: mut addrs, hostname, pace, awaits_mon_map } = config;
        shuffle(&mut addrs, &mut rng);
        MonClient {
            phase: Phase::Idle,
            pace,
            awaits_mon_map,
            hostname,
            dialled: addrs.first().copied().unwrap_or_default(),
            addrs,
            next: 0,
            failures: 0,
            behind: 0,
            rng,
            mon_map: None,
            subscriptions: ["config", "monmap", "osdmap"]
                .map(|name| (name.to_owned(), MonSub::default()))
                .into(),
            requests: BTreeMap::new(),
        }
    }

    pub fn start(&mut self, cx: &mut Context<'_>) {
        self.dial_next(cx);
    }

    pub fn stop(&mut self, cx: &mut Context<'_>) {
        self.conn().into_iter().for_each(|conn| cx.hang_up(conn));
        self.phase = Phase::Idle;
    }

    pub fn mon_map(&self) -> Option<&MonMap> {
        self.mon_map.as_ref()
    }
    pub fn fsid(&self) -> Uuid {
        self.mon_map.as_ref().map_or([0; 16], |map| map.fsid)
    }

    fn conn(&self) -> Option<ConnId> {
        match self.phase {
            Phase::Greeting { conn, .. } | Phase::Ready { conn, .. } => Some(conn),
            Phase::Idle | Phase::Resting(_) => None,
        }
    }
    /// Whether the session's connection is `conn`.
    pub fn owns(&self, conn: ConnId) -> bool {
        self.conn() == Some(conn)
    }

    /// The connection of a session that is ready.
    pub fn ready(&self) -> Option<ConnId> {
        match self.phase {
            Phase::Ready { conn, .. } => Some(conn),
            _ => None,
        }
    }

    /// Asks, now or when there is a monitor to ask, until there is an answer or `forget`. `tid` is above
    /// zero.
    pub fn request(&mut self, tid: u64, request: impl MakeMessage + 'static, cx: &mut Context<'_>) {
        if let Phase::Ready { conn, .. } = self.phase {
            cx.send(conn, tid, request.make(tid, self.fsid()));
        }
        self.requests.insert(tid, Box::new(request));
    }

    pub fn forget(&mut self, tid: u64) {
        self.requests.remove(&tid);
    }

    /// Subscribes to a kind of map, in this session and those that follow.
    pub fn subscribe(&mut self, name: &str, start: u64, cx: &mut Context<'_>) {
        let sub = MonSub { start, flags: 0 };
        self.subscriptions.insert(name.to_owned(), sub);
        if let Some(conn) = self.conn() {
            let what = BTreeMap::from([(name.to_owned(), sub)]);
            cx.send(conn, 0, MonSubscribe { what, hostname: self.hostname.clone() });
        }
    }

    /// The owner has this epoch of a map: subscriptions continue behind it.
    pub fn have(&mut self, name: &str, epoch: Epoch) {
        if let Some(sub) = self.subscriptions.get_mut(name) {
            sub.start = u64::from(epoch.0) + 1;
        }
    }

    /// The first epoch of a map that the owner does not have.
    fn wanted(&self, name: &str) -> u64 {
        self.subscriptions.get(name).map_or(0, |sub| sub.start)
    }

    /// Asks for OSD maps again: from the next one on, or the newest whole.
    pub fn ask_for_maps(&mut self, whole: bool, cx: &mut Context<'_>) {
        let start = if whole { 0 } else { self.wanted("osdmap") };
        self.subscribe("osdmap", start, cx);
    }

    // ---- finding a monitor ----

    fn dial_next(&mut self, cx: &mut Context<'_>) {
        let Some(&addr) = self.addrs.get(self.next % self.addrs.len().max(1)) else { return };
        self.next = (self.next + 1) % self.addrs.len();
        self.dialled = addr;
        let conn = cx.dial(addr, EntityType::Mon);
        self.phase = Phase::Greeting { conn, deadline: cx.now.mono + self.pace.greeting };
    }

    /// The next one at once, but a rest when all have failed.
    fn try_another(&mut self, cx: &mut Context<'_>) {
        self.failures = self.failures.saturating_add(1);
        let all = self.addrs.len() as u32;
        if !self.failures.is_multiple_of(all) {
            return self.dial_next(cx);
        }
        let rounds = (self.failures / all - 1).min(10);
        let rest = (self.pace.rest_min * 2_u32.pow(rounds)).min(self.pace.rest_max);
        let rest = self.rng.duration(rest / 2, rest);
        cx.log(Level::Debug, format!("no monitor answers, next try in {} ms", rest.as_millis()));
        self.phase = Phase::Resting(cx.now.mono + rest);
    }

    fn leave(&mut self, why: &str, cx: &mut Context<'_>) {
        let Some(conn) = self.conn() else { return };
        cx.log(Level::Warn, format!("leaves the monitor at {}: {why}", self.dialled));
        cx.hang_up(conn);
        self.try_another(cx);
    }

    // ---- events ----

    /// When `on_time` is to be called.
    pub fn due(&self) -> Option<Time> {
        match self.phase {
            Phase::Idle => None,
            Phase::Resting(until) => Some(until),
            Phase::Greeting { deadline, .. } => Some(deadline),
            Phase::Ready { heard, probe_at, .. } => Some(probe_at.min(heard + self.pace.silence)),
        }
    }

    /// Does what is due. May be called at any time.
    pub fn on_time(&mut self, cx: &mut Context<'_>) {
        let now = cx.now.mono;
        if self.due().is_none_or(|due| now < due) {
            return;
        }
        match &mut self.phase {
            Phase::Idle => {}
            Phase::Resting(_) => self.dial_next(cx),
            Phase::Greeting { .. } => self.leave("no greeting in time", cx),
            Phase::Ready { heard, .. } if now.since(*heard) >= self.pace.silence => {
                self.leave("no answer in time", cx);
            }
            Phase::Ready { conn, probe_at, .. } => {
                *probe_at = now + self.pace.probe;
                cx.send(*conn, 0, MonGetVersion { handle: PROBE, what: "osdmap".to_owned() });
            }
        }
    }

    pub fn on_opened(&mut self, conn: ConnId, cx: &mut Context<'_>) {
        if self.awaits_mon_map {
            cx.send(conn, 0, MonGetMap);
        }
        let what = self.subscriptions.clone();
        cx.send(conn, 0, MonSubscribe { what, hostname: self.hostname.clone() });
        if !self.awaits_mon_map {
            self.become_ready(conn, cx);
        }
    }

    fn become_ready(&mut self, conn: ConnId, cx: &mut Context<'_>) {
        let now = cx.now.mono;
        self.phase = Phase::Ready { conn, heard: now, probe_at: now + self.pace.probe };
        (self.failures, self.behind) = (0, 0);
        let fsid = self.fsid();
        for (&tid, request) in &self.requests {
            cx.send(conn, tid, request.make(tid, fsid));
        }
    }

    pub fn on_closed(&mut self, why: &Closed, cx: &mut Context<'_>) {
        match self.phase {
            Phase::Ready { .. } => {
                cx.log(Level::Info, format!("lost the monitor at {}: {why}", self.dialled))
            }
            _ => cx.log(Level::Debug, format!("cannot reach the monitor at {}: {why}", self.dialled)),
        }
        self.try_another(cx);
    }

    pub fn on_message(&mut self, tid: u64, message: Message, cx: &mut Context<'_>) -> FromMon {
        if let Phase::Ready { heard, .. } = &mut self.phase {
            *heard = cx.now.mono;
        }
        let tid = match message {
            Message::MonMap(MonMapMsg { map }) => {
                match from_slice::<MonMap>(&map) {
                    Ok(map) => self.on_mon_map(map, cx),
                    Err(e) => self.leave(&format!("its monitor map: {e}"), cx),
                }
                return FromMon::Nothing;
            }
            Message::Config(config) => return FromMon::Config(config.values),
            Message::MonGetVersionReply(ref reply) if reply.handle == PROBE => {
                let is_behind = reply.version >= self.wanted("osdmap").max(1);
                self.behind = if is_behind { self.behind + 1 } else { 0 };
                if self.behind >= self.pace.behind_max {
                    self.ask_for_maps(false, cx);
                }
                return FromMon::Nothing;
            }
            Message::MonGetVersionReply(ref reply) => reply.handle,
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

    fn on_mon_map(&mut self, map: MonMap, cx: &mut Context<'_>) {
        if self.mon_map.as_ref().is_some_and(|had| had.fsid != map.fsid) {
            return self.leave("it is of another cluster", cx);
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
            self.have("monmap", map.epoch);
            self.mon_map = Some(map);
        }
        if was_removed {
            return self.leave("it is no monitor any more", cx);
        }
        if let Phase::Greeting { conn, .. } = self.phase {
            self.become_ready(conn, cx);
        }
    }
}

fn shuffle(addrs: &mut [EntityAddr], rng: &mut Rng) {
    for last in (1..addrs.len()).rev() {
        addrs.swap(last, rng.below(last as u64 + 1) as usize);
    }
}
