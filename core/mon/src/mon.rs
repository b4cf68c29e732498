//! The machine: events in, effects out, Raft in the middle.

use crate::draft::Draft;
use crate::image_tasks::ImageDesk;
use crate::osds::Reports;
use crate::sessions::{Session, Sessions};
use crate::state::{Batch, State};
use crate::stats::Stats;
use crate::{bootstrap, commands, options, persist};
use nacre_base::{Epoch, Now, OsdId, PgId, Rng, Time};
use nacre_machine::{Closed, ConnId, Effect, Event, Level, Machine, Peer, StoreView, Token};
use nacre_proto::maps::Uuid;
use nacre_proto::messages::{
    CommandReply, Config as ConfigMsg, DaemonMsg, Envelope, LogAck, LogEntry, Message, MgrClose,
    MgrCommandReply, MgrConfigure, MonCommandAck, MonGetVersionReply, MonMapMsg, PaxosVersion, Ping, PoolOp,
    QuorumMsg,
};
use nacre_proto::types::{AddrVec, EntityType};
use nacre_raft::{Outgoing, PeerMessage, Raft, Ready, StepError};
use nacre_wire::{DecodeError, from_slice, to_vec};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Raft's clock; a lone member needs it only to repeat a read that came too early.
const TICK: Duration = Duration::from_millis(100);
/// Everything that is a matter of seconds.
const HOUSEKEEPING: Duration = Duration::from_secs(1);
/// How often open accusations are looked at.
const JUDGE_EVERY: Duration = Duration::from_millis(50);
const REDIAL: Duration = Duration::from_millis(500);
/// Entries after which the log is compacted.
const CHECKPOINT_EVERY: u64 = 500;
/// Requests that may wait for their turn; OSDs and clients repeat what is dropped.
const QUEUE_MAX: usize = 10_000;
/// How long requests wait for a leader to be elected.
const LEADERLESS_MAX: Duration = Duration::from_secs(5);
/// Global ids that are handed to the driver at once.
const GLOBAL_IDS: u64 = 1000;

const TIMER_TICK: u64 = 1;
const TIMER_HOUSEKEEPING: u64 = 2;
const TIMER_REDIAL: u64 = 3;
const TIMER_JUDGE: u64 = 4;

/// What a monitor is told when it starts.
#[derive(Clone, Debug)]
pub struct MonConfig {
    /// One of `members`.
    pub name: String,
    /// All monitors of a new cluster, by rank, with exactly the addresses that they listen on.
    pub members: Vec<(String, AddrVec)>,
    /// Where this process listens in the manager's role.
    pub mgr_addrs: AddrVec,
    /// Of a new cluster; drawn if there is none.
    pub fsid: Option<Uuid>,
    /// From the configuration file, by Ceph's names.
    pub options: BTreeMap<String, String>,
    pub host: String,
    /// For everything that is drawn; a new one for each start.
    pub seed: u64,
}

pub struct Mon {
    pub(crate) config: MonConfig,
    rng: Rng,
    raft: Option<Raft>,
    /// None until the cluster's first batch is applied.
    pub(crate) state: Option<State>,
    pub(crate) sessions: Sessions,
    pub(crate) stats: Stats,
    pub(crate) reports: Reports,
    queue: VecDeque<Job>,
    in_flight: Option<InFlight>,
    batches: u64,
    next_token: Token,
    /// What to do once a transaction is durable: tell Raft its number, then send.
    stores: BTreeMap<Token, (Option<u64>, Vec<Outgoing>)>,
    /// The last applied entry.
    applied: u64,
    next_read: u64,
    /// Reads that wait for Raft to say how far to apply, and then for that.
    reads: BTreeMap<u64, (Option<u64>, Origin, Read)>,
    /// Record queries that wait for a newer map.
    early_queries: Vec<(Origin, Epoch, Vec<PgId>)>,
    /// The own sessions to the other monitors, by Raft id.
    peers: BTreeMap<u64, PeerLink>,
    next_dial: u64,
    /// Requests sent to the leader: who asked here.
    forwarded: BTreeMap<u64, (ConnId, u64)>,
    next_forward: u64,
    known_leader: Option<u64>,
    leader_changed: Time,
    /// Requests that came while there was no leader.
    held: VecDeque<(Origin, Peer, Message)>,
    pub(crate) leading: Option<Leading>,
    pub(crate) images: ImageDesk,
    /// Whether the once-a-second duties are due with the next draft.
    pub(crate) duties_due: bool,
    /// Whether what OSDs say of each other is to be looked at with the next draft.
    judging_due: bool,
    /// Whether the driver runs short of global ids.
    ids_wanted: bool,
    /// On the leader: the members (by Raft id) that do.
    ids_wanted_by: BTreeSet<u64>,
}

/// Since when this member leads.
pub(crate) struct Leading {
    pub since: Time,
    /// Whether the map says so.
    pub announced: bool,
}

struct PeerLink {
    conn: Option<ConnId>,
    open: bool,
}

/// Who wants an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Here {
        conn: ConnId,
        tid: u64,
    },
    /// Another monitor passed it on and will pass the answer back.
    There {
        mon: u64,
        key: u64,
    },
}

/// Something that changes the state, waiting for its turn.
pub(crate) struct Job {
    pub origin: Origin,
    pub from: Peer,
    pub request: Request,
}

pub(crate) enum Request {
    Daemon(DaemonMsg),
    Command(CommandRequest),
    PoolOp(PoolOp),
    Log(Vec<LogEntry>),
}

/// A command line, from whichever message it came in.
#[derive(Clone, Debug)]
pub(crate) struct CommandRequest {
    pub cmd: Vec<String>,
    pub input: bytes::Bytes,
    pub via: Via,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Via {
    Mon,
    Mgr,
    Tell,
}

/// What must see everything committed before it was asked.
enum Read {
    Version { handle: u64, what: String },
    Records { epoch: Epoch, pgs: Vec<PgId> },
}

#[derive(Default)]
struct InFlight {
    number: u64,
    replies: Vec<(Origin, Message)>,
    /// To try again if another leader's entry comes in between.
    jobs: Vec<Job>,
    /// Who gets `GLOBAL_IDS` each.
    ids_for: Vec<u64>,
}

/// Why a message of another monitor was dropped.
#[derive(Debug, thiserror::Error)]
enum RaftMessageError {
    #[error(transparent)]
    Raft(#[from] StepError),
    #[error("its payload: {0}")]
    Payload(#[from] DecodeError),
}

impl Mon {
    pub fn new(config: MonConfig) -> Mon {
        let rng = Rng::new(config.seed);
        Mon {
            config,
            rng,
            raft: None,
            state: None,
            sessions: Sessions::default(),
            stats: Stats::default(),
            reports: Reports::default(),
            queue: VecDeque::new(),
            in_flight: None,
            batches: 0,
            next_token: 1,
            stores: BTreeMap::new(),
            applied: 0,
            next_read: 1,
            reads: BTreeMap::new(),
            early_queries: Vec::new(),
            peers: BTreeMap::new(),
            next_dial: 1,
            forwarded: BTreeMap::new(),
            next_forward: 1,
            known_leader: None,
            leader_changed: Time::ZERO,
            held: VecDeque::new(),
            leading: None,
            images: ImageDesk::default(),
            duties_due: true,
            judging_due: false,
            ids_wanted: true,
            ids_wanted_by: BTreeSet::new(),
        }
    }

    /// The cluster's id, once there is a cluster.
    pub fn fsid(&self) -> Option<Uuid> {
        self.state.as_ref().map(|state| state.fsid)
    }

    /// This member's number in Raft: its rank and one.
    fn id(&self) -> u64 {
        self.config
            .members
            .iter()
            .position(|(name, _)| *name == self.config.name)
            .map_or(1, |at| at as u64 + 1)
    }
    pub(crate) fn rank(&self) -> u64 {
        self.id() - 1
    }
    pub(crate) fn term(&self) -> u64 {
        self.raft.as_ref().map_or(0, Raft::term)
    }
    pub(crate) fn leader_rank(&self) -> Option<u64> {
        self.raft.as_ref()?.leader().map(|id| id - 1)
    }
    /// The ranks that are known to be there.
    pub(crate) fn quorum(&self) -> Vec<u64> {
        let others = self.peers.iter().filter(|(_, link)| link.open).map(|(id, _)| id - 1);
        let mut ranks: Vec<u64> = others.chain([self.rank()]).collect();
        ranks.sort_unstable();
        ranks
    }
    /// An option's value: from the cluster's configuration, else from the file, else the default.
    pub(crate) fn option(&self, name: &str) -> String {
        options::value(self.state.as_ref(), &self.config.options, name)
    }

    fn on_start(&mut self, now: Now, store: &dyn StoreView, out: &mut Vec<Effect>) {
        let ids: Vec<u64> = (1..=self.config.members.len() as u64).collect();
        let saved = persist::load(store).expect("a monitor cannot run without its store");
        let raft = Raft::new(self.id(), self.rng.next_u64(), &ids, &saved)
            .expect("the monitor's log is damaged: restore it from another monitor");
        if let Some(checkpoint) = raft.checkpoint() {
            self.restore(checkpoint.index, &checkpoint.state);
        }
        self.raft = Some(raft);
        out.push(Effect::Arm { timer: TIMER_TICK, after: TICK });
        out.push(Effect::Arm { timer: TIMER_HOUSEKEEPING, after: HOUSEKEEPING });
        let own = self.id();
        let others = ids.into_iter().filter(|&id| id != own);
        self.peers = others.map(|id| (id, PeerLink { conn: None, open: false })).collect();
        self.redial(out);
        self.reports.restart(now.mono);
    }

    fn restore(&mut self, index: u64, bytes: &[u8]) {
        let state = from_slice(bytes).expect("a checkpoint of ours is whole: it was read with its checksum");
        self.state = Some(state);
        self.applied = index;
    }

    fn redial(&mut self, out: &mut Vec<Effect>) {
        for (id, link) in self.peers.iter_mut().filter(|(_, link)| link.conn.is_none()) {
            let addrs = &self.config.members[*id as usize - 1].1;
            let Some(to) = addrs.msgr2() else { continue };
            let conn = ConnId::Dialled(self.next_dial);
            self.next_dial += 1;
            link.conn = Some(conn);
            out.push(Effect::Dial { conn, to, kind: EntityType::Mon });
        }
    }

    fn on_timer(&mut self, now: Now, timer: u64, out: &mut Vec<Effect>) {
        match timer {
            TIMER_TICK => {
                out.push(Effect::Arm { timer: TIMER_TICK, after: TICK });
                self.raft.as_mut().expect("started").tick();
                self.sessions.refill(now.mono);
            }
            TIMER_HOUSEKEEPING => {
                out.push(Effect::Arm { timer: TIMER_HOUSEKEEPING, after: HOUSEKEEPING });
                if let Some(state) = self.state.as_ref().filter(|_| self.leading.is_some()) {
                    self.stats.sample(now, &state.osdmap);
                }
                self.duties_due = true;
                self.ask_for_ids(out);
                self.give_up_held(now, out);
            }
            TIMER_REDIAL => self.redial(out),
            TIMER_JUDGE => self.judging_due = true,
            _ => {}
        }
    }

    fn on_closed(&mut self, conn: ConnId, why: &Closed, out: &mut Vec<Effect>) {
        self.sessions.remove(conn);
        if let Some((id, link)) = self.peers.iter_mut().find(|(_, link)| link.conn == Some(conn)) {
            if link.open {
                out.push(Effect::Log { level: Level::Warn, text: format!("lost monitor {id}: {why}") });
            }
            *link = PeerLink { conn: None, open: false };
            self.raft.as_mut().expect("started").unreachable(*id);
            out.push(Effect::Arm { timer: TIMER_REDIAL, after: REDIAL });
        }
    }

    // ---- messages ----

    fn on_message(&mut self, now: Now, conn: ConnId, tid: u64, message: Message, out: &mut Vec<Effect>) {
        if let Message::Quorum(message) = message {
            return self.on_quorum(now, conn, message, out);
        }
        let Some(session) = self.sessions.get_mut(conn) else { return };
        if !session.admit() {
            let text = format!("{} {} sends faster than it is answered; hung up", conn, session.peer.kind);
            out.push(Effect::Log { level: Level::Warn, text });
            out.push(Effect::Hangup { conn });
            self.sessions.remove(conn);
            return;
        }
        let from = session.peer.clone();
        let origin = Origin::Here { conn, tid };
        match message {
            Message::MonGetMap(_) => self.send_monmap(conn, tid, out),
            Message::MonSubscribe(subscribe) => self.on_subscribe(conn, subscribe, out),
            Message::GetConfig(ask) => {
                let values = self.effective_config_of(&ask);
                out.push(Effect::Send { conn, tid, message: ConfigMsg { values }.into() });
            }
            Message::Ping(_) if from.kind == EntityType::Client => {
                let text = Some(commands::ping_text(self, now));
                out.push(Effect::Send { conn, tid, message: Ping { text }.into() });
            }
            Message::MgrOpen(_) => {
                let message = MgrConfigure { stats_period_secs: 5, stats_threshold: 5 }.into();
                out.push(Effect::Send { conn, tid, message });
            }
            Message::MgrClose(close) => {
                let MgrClose { daemon_name, service_name } = close;
                out.push(Effect::Send { conn, tid, message: MgrClose { daemon_name, service_name }.into() });
            }
            Message::MgrReport(_) => {}
            // What is asked of this very daemon.
            Message::Command(m) if self.state.is_some() && !commands::is_for_cluster(&m.cmd) => {
                let command = CommandRequest { cmd: m.cmd, input: m.input, via: Via::Tell };
                let reply = self.run_read_only(now, origin, from, command);
                self.answer(origin, reply, out);
            }
            // What needs the leader.
            message if self.is_ready_leader() => self.serve(now, origin, from, message, out),
            message => self.forward(conn, tid, from, message, out),
        }
    }

    fn is_ready_leader(&self) -> bool {
        self.raft.as_ref().is_some_and(Raft::leads_in_earnest) && self.state.is_some()
    }

    /// On the leader: a request, wherever it arrived.
    fn serve(&mut self, now: Now, origin: Origin, from: Peer, message: Message, out: &mut Vec<Effect>) {
        let request = match message {
            Message::Daemon(DaemonMsg::Report(report)) => return self.on_report(now, &from, report),
            Message::Daemon(DaemonMsg::RecordQuery { epoch, pgs }) => {
                return self.linearize(origin, Read::Records { epoch, pgs });
            }
            Message::Daemon(message) => Request::Daemon(message),
            Message::MonGetVersion(ask) => {
                return self.linearize(origin, Read::Version { handle: ask.handle, what: ask.what });
            }
            Message::Statfs(ask) => {
                let reply = commands::statfs(self, &ask);
                return self.answer(origin, reply, out);
            }
            Message::GetPoolStats(ask) => {
                let reply = commands::pool_stats(self, &ask);
                return self.answer(origin, reply, out);
            }
            Message::MonCommand(m) => {
                Request::Command(CommandRequest { cmd: m.cmd, input: m.input, via: Via::Mon })
            }
            Message::MgrCommand(m) => {
                Request::Command(CommandRequest { cmd: m.cmd, input: m.input, via: Via::Mgr })
            }
            Message::Command(m) => {
                Request::Command(CommandRequest { cmd: m.cmd, input: m.input, via: Via::Tell })
            }
            Message::PoolOp(op) => Request::PoolOp(op),
            Message::Log(log) => Request::Log(log.entries),
            message => {
                let text =
                    format!("{} has no use for a {} from {}", self.config.name, message.name(), from.kind);
                return out.push(Effect::Log { level: Level::Debug, text });
            }
        };
        let job = Job { origin, from, request };
        let job = match job {
            Job { origin, from, request: Request::Command(command) } => {
                let Some(command) = self.images.take_in(origin, command) else { return };
                Job { origin, from, request: Request::Command(command) }
            }
            job => job,
        };
        let job = match job {
            // What changes nothing need not wait for its turn.
            Job { origin, from, request: Request::Command(command) } if commands::is_read_only(&command) => {
                let reply = self.run_read_only(now, origin, from, command);
                return self.answer(origin, reply, out);
            }
            job => job,
        };
        if self.queue.len() < QUEUE_MAX {
            self.queue.push_back(job);
        }
    }

    fn run_read_only(&self, now: Now, origin: Origin, from: Peer, command: CommandRequest) -> Message {
        let mut draft = Draft::new(self.state.as_ref().expect("the caller checked"), now.wall);
        let job = Job { origin, from, request: Request::Command(command) };
        let Request::Command(command) = &job.request else { unreachable!("just made") };
        let reply = commands::run(self, now, &job, command, &mut draft);
        assert!(draft.is_empty(), "{:?} is marked as read-only and is not", command.cmd);
        reply
    }

    pub(crate) fn answer(&mut self, origin: Origin, message: Message, out: &mut Vec<Effect>) {
        match origin {
            Origin::Here { conn, tid } => out.push(Effect::Send { conn, tid, message }),
            Origin::There { mon, key } => {
                let raw = Envelope { tid: 0, body: message }.to_raw();
                self.send_quorum(mon, QuorumMsg::Answer { key, message: raw }, out);
            }
        }
    }

    // ---- other monitors ----

    fn send_quorum(&mut self, mon: u64, message: QuorumMsg, out: &mut Vec<Effect>) {
        let Some(PeerLink { conn: Some(conn), open: true }) = self.peers.get(&mon) else { return };
        out.push(Effect::Send { conn: *conn, tid: 0, message: message.into() });
    }

    /// The leader, if it is another and there is a session to it.
    fn leader_to_ask(&self) -> Option<u64> {
        let leader = self.known_leader.filter(|&id| id != self.id())?;
        self.peers.get(&leader).filter(|link| link.open).map(|_| leader)
    }

    fn forward(&mut self, conn: ConnId, tid: u64, from: Peer, message: Message, out: &mut Vec<Effect>) {
        let Some(leader) = self.leader_to_ask() else {
            return self.hold(Origin::Here { conn, tid }, from, message);
        };
        let key = self.next_forward;
        self.next_forward += 1;
        if is_answered(&message) {
            self.forwarded.insert(key, (conn, tid));
        }
        let message = QuorumMsg::Forward {
            key,
            kind: from.kind as u8,
            num: from.num,
            addrs: from.addrs.clone(),
            message: Envelope { tid: 0, body: message }.to_raw(),
        };
        self.send_quorum(leader, message, out);
    }

    /// Nobody leads yet: the request waits.
    fn hold(&mut self, origin: Origin, from: Peer, message: Message) {
        if self.held.len() < QUEUE_MAX {
            self.held.push_back((origin, from, message));
        }
    }

    /// What waited for a leader goes where it belongs once there is one.
    fn release_held(&mut self, now: Now, out: &mut Vec<Effect>) {
        if self.held.is_empty() {
            return;
        }
        if self.is_ready_leader() {
            for (origin, from, message) in std::mem::take(&mut self.held) {
                self.serve(now, origin, from, message, out);
            }
        } else if self.leader_to_ask().is_some() {
            for (origin, from, message) in std::mem::take(&mut self.held) {
                match origin {
                    Origin::Here { conn, tid } if self.sessions.get(conn).is_some() => {
                        self.forward(conn, tid, from, message, out);
                    }
                    Origin::Here { .. } => {}
                    Origin::There { mon, key } => self.send_quorum(mon, QuorumMsg::NotLeader { key }, out),
                }
            }
        }
    }

    /// Without a leader for long, somebody else may have one: clients go and look.
    fn give_up_held(&mut self, now: Now, out: &mut Vec<Effect>) {
        let patient = now.mono.since(self.leader_changed) < LEADERLESS_MAX;
        if patient || self.peers.is_empty() {
            return;
        }
        for (origin, ..) in std::mem::take(&mut self.held) {
            if let Origin::Here { conn, .. } = origin
                && self.sessions.get(conn).is_some()
            {
                self.sessions.remove(conn);
                out.push(Effect::Hangup { conn });
            }
        }
    }

    fn on_quorum(&mut self, now: Now, conn: ConnId, message: QuorumMsg, out: &mut Vec<Effect>) {
        let Some(session) = self.sessions.get(conn).filter(|s| s.peer.kind == EntityType::Mon) else {
            return;
        };
        let mon = (session.peer.num as u64).wrapping_add(1);
        match message {
            QuorumMsg::Raft(bytes) => {
                if let Err(error) = self.on_raft(&bytes) {
                    let text = format!("a message of monitor {mon} was dropped: {error}");
                    out.push(Effect::Log { level: Level::Warn, text });
                }
            }
            QuorumMsg::Forward { key, kind, num, addrs, message } => {
                let kind = EntityType::from_byte(kind).unwrap_or(EntityType::Client);
                let observed = addrs.msgr2().unwrap_or_default();
                let peer = Peer { kind, num, addrs, observed, features: session.peer.features };
                let Ok(envelope) = Envelope::from_raw(message) else { return };
                let origin = Origin::There { mon, key };
                if self.is_ready_leader() {
                    self.serve(now, origin, peer, envelope.body, out);
                } else if self.raft.as_ref().is_some_and(Raft::is_leader) {
                    self.hold(origin, peer, envelope.body);
                } else {
                    self.send_quorum(mon, QuorumMsg::NotLeader { key }, out);
                }
            }
            QuorumMsg::NotLeader { key } => {
                if let Some((conn, _)) = self.forwarded.remove(&key) {
                    self.sessions.remove(conn);
                    out.push(Effect::Hangup { conn });
                }
            }
            QuorumMsg::Order { osd, message } => self.tell_osd(osd, &message, out),
            QuorumMsg::IdsWanted => {
                if self.leading.is_some() {
                    self.ids_wanted_by.insert(mon);
                }
            }
            QuorumMsg::Ids { start, end } => {
                self.ids_wanted = false;
                out.push(Effect::GrantIds(start..end));
            }
            QuorumMsg::Answer { key, message } => {
                if let (Some((conn, tid)), Ok(envelope)) =
                    (self.forwarded.remove(&key), Envelope::from_raw(message))
                {
                    out.push(Effect::Send { conn, tid, message: envelope.body });
                }
            }
        }
    }

    /// What gets into the log must be of use to every member, also after a restart.
    fn on_raft(&mut self, bytes: &[u8]) -> Result<(), RaftMessageError> {
        let message = PeerMessage::decode(bytes)?;
        message.proposals().try_for_each(|entry| from_slice::<Batch>(entry).map(drop))?;
        message.checkpoint().map(from_slice::<State>).transpose()?;
        Ok(self.raft.as_mut().expect("started").step(message)?)
    }

    // ---- reads that must not be stale ----

    fn linearize(&mut self, origin: Origin, read: Read) {
        let id = self.next_read;
        self.next_read += 1;
        self.reads.insert(id, (None, origin, read));
        self.raft.as_mut().expect("started").read(id);
    }

    fn answer_reads(&mut self, out: &mut Vec<Effect>) {
        let applied = self.applied;
        let ready: Vec<u64> = self
            .reads
            .iter()
            .filter(|(_, (at, ..))| at.is_some_and(|at| at <= applied))
            .map(|(id, _)| *id)
            .collect();
        for id in ready {
            let (_, origin, read) = self.reads.remove(&id).expect("just seen");
            match read {
                Read::Version { handle, what } => {
                    let (version, oldest) = self.version_of(&what);
                    self.answer(origin, MonGetVersionReply { handle, version, oldest }.into(), out);
                }
                Read::Records { epoch, pgs } => self.early_queries.push((origin, epoch, pgs)),
            }
        }
        let Some(state) = &self.state else { return };
        let now_epoch = state.osdmap.epoch;
        let (due, early) = std::mem::take(&mut self.early_queries)
            .into_iter()
            .partition(|(_, epoch, _)| *epoch <= now_epoch);
        self.early_queries = early;
        let due: Vec<(Origin, Epoch, Vec<PgId>)> = due;
        for (origin, _, pgs) in due {
            let state = self.state.as_ref().expect("seen above");
            let records = pgs.into_iter().map(|pg| (pg, state.records.get(&pg).cloned())).collect();
            self.answer(origin, DaemonMsg::Records { epoch: now_epoch, records }.into(), out);
        }
    }

    fn version_of(&self, what: &str) -> (u64, u64) {
        let Some(state) = &self.state else { return (0, 0) };
        match what {
            "osdmap" => (state.osdmap.epoch.0.into(), state.oldest_osdmap().0.into()),
            "monmap" => (state.monmap.epoch.0.into(), 1),
            "mgrmap" => (state.mgrmap.epoch.0.into(), 1),
            "mdsmap" | "fsmap" => (1, 1),
            _ => (0, 0),
        }
    }

    // ---- Raft ----

    /// Goes on until there is nothing to do but wait.
    fn drive(&mut self, now: Now, out: &mut Vec<Effect>) {
        loop {
            while let Some(ready) = self.raft.as_mut().and_then(Raft::ready) {
                self.carry_out(now, ready, out);
            }
            self.note_leadership(now, out);
            self.answer_reads(out);
            if !self.propose(now, out) {
                return;
            }
        }
    }

    fn carry_out(&mut self, now: Now, ready: Ready, out: &mut Vec<Effect>) {
        self.send_raft(ready.now, out);
        if ready.persist.is_empty() {
            self.send_raft(ready.after, out);
        } else {
            self.store(&ready.persist, Some(ready.number), ready.after, out);
        }
        if let Some(restored) = ready.restored {
            let before = self.state.as_ref().map(|state| state.osdmap.epoch);
            self.restore(restored.index, &restored.state);
            self.publish(before.unwrap_or_default(), out);
        }
        for entry in ready.committed {
            let batch: Batch = from_slice(&entry.data).expect("every member encodes batches alike");
            self.applied = entry.index;
            self.apply(now, batch, out);
        }
        for (read, index) in ready.reads {
            if let Some((at, ..)) = self.reads.get_mut(&read) {
                *at = Some(index);
            }
        }
        let raft = self.raft.as_mut().expect("started");
        if raft.log_len() >= CHECKPOINT_EVERY && self.applied > 0 && self.state.is_some() {
            let state = to_vec(self.state.as_ref().expect("just seen"));
            let persist = raft.compact(self.applied, state);
            self.store(&persist, None, Vec::new(), out);
        }
    }

    fn store(
        &mut self,
        persist: &nacre_raft::Persist,
        number: Option<u64>,
        after: Vec<Outgoing>,
        out: &mut Vec<Effect>,
    ) {
        let token = self.next_token;
        self.next_token += 1;
        self.stores.insert(token, (number, after));
        out.push(Effect::Store { token, txn: persist::transaction(persist) });
    }

    fn on_stored(&mut self, token: Token, out: &mut Vec<Effect>) {
        // All before it are durable too.
        let later = self.stores.split_off(&(token + 1));
        for (_, (number, after)) in std::mem::replace(&mut self.stores, later) {
            if let Some(number) = number {
                self.raft.as_mut().expect("started").stored(number);
            }
            self.send_raft(after, out);
        }
    }

    fn send_raft(&mut self, messages: Vec<Outgoing>, out: &mut Vec<Effect>) {
        for message in messages {
            let checkpoint = message.is_checkpoint();
            let sent = self.peers.get(&message.to).is_some_and(|link| link.open);
            self.send_quorum(message.to, QuorumMsg::Raft(message.bytes.into()), out);
            let raft = self.raft.as_mut().expect("started");
            if checkpoint {
                // A connection that breaks underway is reported by `unreachable`.
                raft.checkpoint_sent(message.to, sent);
            } else if !sent {
                raft.unreachable(message.to);
            }
        }
    }

    fn note_leadership(&mut self, now: Now, out: &mut Vec<Effect>) {
        let leader = self.raft.as_ref().and_then(Raft::leader);
        if leader != self.known_leader {
            self.known_leader = leader;
            self.leader_changed = now.mono;
            // What the old one was asked is lost with it: whoever waits asks again after a hangup, and
            // OSDs say again what they said without waiting.
            let waiting: BTreeSet<ConnId> =
                std::mem::take(&mut self.forwarded).into_values().map(|(conn, _)| conn).collect();
            for conn in self.sessions.clients() {
                let kind = self.sessions.get(conn).map(|session| session.peer.kind);
                if waiting.contains(&conn) || (kind == Some(EntityType::Osd) && !self.peers.is_empty()) {
                    self.sessions.remove(conn);
                    out.push(Effect::Hangup { conn });
                }
            }
            self.ask_for_ids(out);
        }
        let leads = self.raft.as_ref().is_some_and(Raft::leads_in_earnest);
        match (leads, &self.leading) {
            (true, None) => {
                self.leading = Some(Leading { since: now.mono, announced: false });
                self.recall(now);
                self.duties_due = true;
            }
            (false, Some(_)) => {
                self.leading = None;
                // The new leader answers; who waited here asks again after the hangup.
                self.in_flight = None;
                self.queue.clear();
                self.stats = Stats::default();
                self.ids_wanted_by.clear();
                for conn in self.sessions.clients() {
                    self.sessions.remove(conn);
                    out.push(Effect::Hangup { conn });
                }
            }
            _ => {}
        }
        self.release_held(now, out);
    }

    /// Followers ask, again and again, until there are some.
    fn ask_for_ids(&mut self, out: &mut Vec<Effect>) {
        if let (true, Some(leader)) = (self.ids_wanted, self.known_leader) {
            self.send_quorum(leader, QuorumMsg::IdsWanted, out);
        }
    }

    fn apply(&mut self, now: Now, batch: Batch, out: &mut Vec<Effect>) {
        let mine = self.in_flight.as_ref().is_some_and(|f| batch.origin == (self.id(), f.number));
        let before = self.state.as_ref().map(|state| state.osdmap.clone());
        let applied = match (&mut self.state, &batch.genesis) {
            (Some(state), _) => state.apply(&batch),
            (None, Some(genesis)) => {
                crate::state::State::begin(genesis).map(|state| self.state = Some(state))
            }
            (None, None) => Err(crate::state::Rejected::NoCluster),
        };
        if let Err(error) = &applied {
            let text = format!("batch {:?} was made for another state: {error}", batch.origin);
            out.push(Effect::Log { level: Level::Warn, text });
        }
        let Some(state) = &self.state else { return };
        if before.as_ref().is_none_or(|map| map.epoch != state.osdmap.epoch) {
            self.stats.prune(&state.osdmap);
            self.duties_due = true;
        }
        self.duties_due |= !batch.records.is_empty();
        for line in &batch.log {
            let text = format!("cluster log: {}", line.text);
            out.push(Effect::Log { level: Level::Info, text });
        }
        self.publish(before.map_or(Epoch(0), |map| map.epoch), out);
        if !mine {
            return;
        }
        let in_flight = self.in_flight.take().expect("just seen");
        if applied.is_err() {
            in_flight.jobs.into_iter().rev().for_each(|job| self.queue.push_front(job));
            return;
        }
        let end = self.state.as_ref().expect("applied").next_global_id;
        let mut start = end - GLOBAL_IDS * in_flight.ids_for.len() as u64;
        for member in in_flight.ids_for {
            let ids = start..start + GLOBAL_IDS;
            start = ids.end;
            if member == self.id() {
                out.push(Effect::GrantIds(ids));
            } else {
                self.send_quorum(member, QuorumMsg::Ids { start: ids.start, end: ids.end }, out);
            }
        }
        for (origin, reply) in in_flight.replies {
            let reply = self.stamp_reply(now, reply);
            self.answer(origin, reply, out);
        }
    }

    /// Puts into a reply what is only known after the commit.
    fn stamp_reply(&self, _now: Now, mut reply: Message) -> Message {
        let epoch = self.state.as_ref().expect("committed").osdmap.epoch;
        match &mut reply {
            Message::PoolOpReply(reply) => {
                reply.epoch = epoch;
                reply.version = PaxosVersion(epoch.0.into());
            }
            Message::MonCommandAck(ack) => ack.version = PaxosVersion(epoch.0.into()),
            Message::Daemon(DaemonMsg::Activated { epoch: at, .. }) => *at = epoch,
            _ => {}
        }
        reply
    }

    /// Makes a batch of what waits and proposes it, if the last one is done. False if there is
    /// nothing more to do now.
    fn propose(&mut self, now: Now, out: &mut Vec<Effect>) -> bool {
        if self.in_flight.is_some() || self.leading.is_none() {
            return false;
        }
        if self.state.is_none() {
            let genesis = bootstrap::genesis(&self.config, &mut self.rng, now.wall);
            let batch = Batch { stamp: now.wall, genesis: Some(genesis), ..Batch::default() };
            self.submit(batch, InFlight::default());
            return true;
        }
        if std::mem::take(&mut self.ids_wanted) {
            let own = self.id();
            self.ids_wanted_by.insert(own);
        }
        let state = self.state.as_ref().expect("just seen");
        if self.queue.is_empty() && !self.duties_due && !self.judging_due && self.ids_wanted_by.is_empty() {
            return false;
        }
        let mut draft = Draft::new(state, now.wall);
        let mut in_flight = InFlight::default();
        if std::mem::take(&mut self.duties_due) {
            self.duties(now, &mut draft);
        }
        in_flight.ids_for = std::mem::take(&mut self.ids_wanted_by).into_iter().collect();
        draft.batch.global_ids = GLOBAL_IDS * in_flight.ids_for.len() as u64;
        let mut later = VecDeque::new();
        for job in std::mem::take(&mut self.queue) {
            match self.run(now, &job, &mut draft) {
                Done::Reply(reply) => in_flight.replies.push((job.origin, *reply)),
                Done::Silent => {}
                Done::Refuse(why) => {
                    out.push(Effect::Log { level: Level::Warn, text: why });
                    if let Origin::Here { conn, .. } = job.origin {
                        self.sessions.remove(conn);
                        out.push(Effect::Hangup { conn });
                    }
                }
                Done::NextTime => {
                    later.push_back(job);
                    continue;
                }
            }
            in_flight.jobs.push(job);
        }
        self.queue = later;
        self.judging_due = false;
        for (osd, message) in std::mem::take(&mut draft.orders) {
            self.order(osd, &message, out);
        }
        self.judge(now, &mut draft);
        if self.reports.failures.is_open() {
            out.push(Effect::Arm { timer: TIMER_JUDGE, after: JUDGE_EVERY });
        }
        self.keep_serving(&mut draft);
        if draft.is_empty() {
            for (origin, reply) in in_flight.replies {
                let reply = self.stamp_reply(now, reply);
                self.answer(origin, reply, out);
            }
            return false;
        }
        self.submit(draft.finish(), in_flight);
        true
    }

    /// Tells an OSD something, through whichever monitor it talks to.
    fn order(&mut self, osd: OsdId, message: &DaemonMsg, out: &mut Vec<Effect>) {
        self.tell_osd(osd, message, out);
        let others: Vec<u64> = self.peers.keys().copied().collect();
        for mon in others {
            self.send_quorum(mon, QuorumMsg::Order { osd, message: Box::new(message.clone()) }, out);
        }
    }
    /// If it talks to us.
    fn tell_osd(&self, osd: OsdId, message: &DaemonMsg, out: &mut Vec<Effect>) {
        let is_it = |peer: &Peer| peer.kind == EntityType::Osd && peer.num == i64::from(osd.0);
        for (conn, _) in self.sessions.iter().filter(|(_, session)| is_it(&session.peer)) {
            out.push(Effect::Send { conn, tid: 0, message: message.clone().into() });
        }
    }

    fn submit(&mut self, mut batch: Batch, mut in_flight: InFlight) {
        self.batches += 1;
        // The term makes the numbers of one life of this process differ from those of the last.
        in_flight.number = (self.term() << 32) | self.batches;
        batch.origin = (self.id(), in_flight.number);
        let proposed = self.raft.as_mut().expect("started").propose(to_vec(&batch));
        if proposed.is_ok() {
            self.in_flight = Some(in_flight);
        }
    }

    fn run(&mut self, now: Now, job: &Job, draft: &mut Draft) -> Done {
        match &job.request {
            Request::Daemon(message) => self.run_daemon(now, job, message, draft),
            Request::Command(command) => Done::Reply(commands::run(self, now, job, command, draft).into()),
            Request::PoolOp(op) => Done::Reply(commands::pool_op(self, now, op, draft).into()),
            Request::Log(entries) => {
                let fsid = self.state.as_ref().expect("ready").fsid;
                let ack =
                    entries.last().map(|last| LogAck { fsid, last: last.seq, channel: last.channel.clone() });
                draft.batch.log.extend(entries.iter().take(100).cloned());
                ack.map_or(Done::Silent, |ack| Done::Reply(Box::new(ack.into())))
            }
        }
    }

    /// Every second, and when something changed that they look at.
    fn duties(&mut self, now: Now, draft: &mut Draft) {
        if self.leading.as_ref().is_some_and(|leading| !leading.announced) {
            self.announce_manager(now, draft);
        }
        self.watch_osds(now, draft);
        self.finish_creating(draft);
        self.watch_space(draft);
        self.expire(now, draft);
        self.purge_snaps(draft);
        self.shrink_pools(draft);
        self.remember(now, draft);
        self.watch_health(now, draft);
    }

    fn announce_manager(&mut self, now: Now, draft: &mut Draft) {
        let state = self.state.as_ref().expect("leading in earnest");
        let old = &state.mgrmap;
        let gid = 0x7000_0000 + self.id();
        let map = bootstrap::manager_map(&self.config, old.epoch.next(), gid, now.wall);
        if (&old.active_addrs, &old.active_name, old.available) != (&map.active_addrs, &map.active_name, true)
        {
            draft.batch.mgrmap = Some(map);
        }
        self.leading.as_mut().expect("caller checked").announced = true;
    }

    fn send_monmap(&self, conn: ConnId, tid: u64, out: &mut Vec<Effect>) {
        let map = match &self.state {
            Some(state) => to_vec(&state.monmap).into(),
            None => return,
        };
        out.push(Effect::Send { conn, tid, message: MonMapMsg { map }.into() });
    }
}

/// Whether somebody waits for an answer to this.
fn is_answered(message: &Message) -> bool {
    match message {
        Message::Daemon(message) => {
            matches!(message, DaemonMsg::RecordQuery { .. } | DaemonMsg::Activate { .. })
        }
        message => matches!(
            message,
            Message::MonCommand(_)
                | Message::MgrCommand(_)
                | Message::Command(_)
                | Message::PoolOp(_)
                | Message::MonGetVersion(_)
                | Message::Statfs(_)
                | Message::GetPoolStats(_)
                | Message::Log(_)
        ),
    }
}

/// What became of a job in a draft.
pub(crate) enum Done {
    /// Send this once the draft is committed.
    Reply(Box<Message>),
    Silent,
    /// Log this and hang up.
    Refuse(String),
    /// It does not fit into this draft.
    NextTime,
}

impl CommandRequest {
    pub(crate) fn reply(&self, code: i32, status: String, output: bytes::Bytes) -> Message {
        match self.via {
            Via::Mon => MonCommandAck {
                version: PaxosVersion(0),
                retval: code,
                status,
                cmd: self.cmd.clone(),
                output,
            }
            .into(),
            Via::Mgr => MgrCommandReply { retval: code, status, output }.into(),
            Via::Tell => CommandReply { retval: code, status, output }.into(),
        }
    }
}

impl Machine for Mon {
    fn handle(&mut self, now: Now, event: Event, store: &dyn StoreView, out: &mut Vec<Effect>) {
        match event {
            Event::Start => self.on_start(now, store, out),
            Event::Opened { conn, peer } => {
                if let Some(link) = self.peers.values_mut().find(|link| link.conn == Some(conn)) {
                    link.open = true;
                }
                self.sessions.insert(conn, Session::new(peer, now.mono));
            }
            Event::Closed { conn, why } => self.on_closed(conn, &why, out),
            Event::Message { conn, tid, message } => self.on_message(now, conn, tid, message, out),
            Event::Stored(token) => self.on_stored(token, out),
            Event::Timer(timer) => self.on_timer(now, timer, out),
            Event::IdsLow => {
                self.ids_wanted = true;
                self.ask_for_ids(out);
            }
            // Everything that was said is durable already.
            Event::Stop => return out.push(Effect::Stopped),
            Event::ReadDone { .. } | Event::Loop(_) | Event::Datagram { .. } => return,
        }
        self.drive(now, out);
    }
}
