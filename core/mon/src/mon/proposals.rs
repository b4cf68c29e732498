//! What changes the state: requests and periodic tasks become a pending transaction, the transaction a batch,
//! and a committed batch is applied.

use super::requests::{CommandRequest, Origin};
use super::{Mon, QUEUE_MAX, QUEUED_MAX, TIMER_FAILURES};
use crate::pending_txn::PendingTxn;
use crate::services::monmap::MonChange;
use crate::services::osdmap::pg_temp::prime_pg_temp;
use crate::services::{audit, mgr, monmap};
use crate::state::Batch;
use crate::{bootstrap, commands};
use nacre_base::{Epoch, Now, OsdId};
use nacre_machine::{Effect, Level, Peer};
use nacre_proto::messages::{
    DaemonMsg, LogAck, LogEntry, LogLevel, MdsBeacon, MdsLoadTargets, Message, PaxosVersion, PoolOp,
    QuorumMsg, RemoveSnaps,
};
use nacre_proto::types::{AddrVec, AuthName, EntityType};
use nacre_wire::to_vec;
use std::collections::VecDeque;
use std::time::Duration;

/// How often open failure reports are examined.
const FAILURES_EVERY: Duration = Duration::from_millis(50);
/// Global ids that are handed to the driver at once.
const GLOBAL_IDS: u64 = 1000;

/// Texts and values in one entry of the log, and of those of one request that are more; other requests wait
/// for the next entry.
const BATCH_MAX: usize = 1 << 20;
/// The most of a line of the cluster's log that is kept, in bytes.
const LINE_MAX: usize = 4 << 10;

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
    /// A metadata server says what it does.
    Beacon(Box<MdsBeacon>),
    LoadTargets(MdsLoadTargets),
    RemoveSnaps(RemoveSnaps),
    Log(Vec<LogEntry>),
    /// A monitor that runs and is no member.
    Join {
        member: u64,
        name: String,
        addrs: AddrVec,
    },
}

impl Job {
    /// What a client can make large of it, in bytes.
    pub fn weight(&self) -> usize {
        match &self.request {
            Request::Command(command) => command.weight(),
            Request::Log(entries) => entries.iter().map(|entry| entry.text.len()).sum(),
            Request::Beacon(beacon) => beacon.metadata.len() + beacon.health.len(),
            _ => 0,
        }
    }
}

#[derive(Default)]
pub(super) struct InFlight {
    pub number: u64,
    pub replies: Vec<(Origin, Message)>,
    /// To try again if another leader's entry comes in between.
    pub jobs: Vec<Job>,
    /// The members that get `GLOBAL_IDS` each.
    pub ids_for: Vec<u64>,
}

/// What changes the state: the requests that wait, and the batch that is being committed.
pub(super) struct Proposals {
    queue: VecDeque<Job>,
    /// Bytes of the requests in `queue`.
    queued: usize,
    in_flight: Option<InFlight>,
    /// Batches so far.
    submitted: u64,
    /// Whether the next transaction begins with the periodic tasks.
    pub periodic_due: bool,
    /// Whether the next transaction examines failure reports.
    pub failures_due: bool,
}

impl Default for Proposals {
    fn default() -> Proposals {
        let (queue, in_flight) = (VecDeque::new(), None);
        Proposals { queue, queued: 0, in_flight, submitted: 0, periodic_due: true, failures_due: false }
    }
}

impl Proposals {
    /// Gives the job back if the queue is full.
    pub fn enqueue(&mut self, job: Job) -> Option<Job> {
        if self.queue.len() >= QUEUE_MAX || self.queued >= QUEUED_MAX {
            return Some(job);
        }
        self.queued += job.weight();
        self.queue.push_back(job);
        None
    }
    /// The jobs of a batch that met another state than it was made for: they are first again.
    fn requeue(&mut self, jobs: Vec<Job>) {
        self.queued += jobs.iter().map(Job::weight).sum::<usize>();
        jobs.into_iter().rev().for_each(|job| self.queue.push_front(job));
    }
    fn take_queue(&mut self) -> VecDeque<Job> {
        self.queued = 0;
        std::mem::take(&mut self.queue)
    }
    /// Another member leads.
    pub fn clear(&mut self) {
        self.in_flight = None;
        self.take_queue();
    }
    /// Whether the weight of the queue is that of its jobs.
    pub fn is_consistent(&self) -> bool {
        self.queued == self.queue.iter().map(Job::weight).sum::<usize>()
    }
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.in_flight.is_none()
    }
}

impl Mon {
    pub(super) fn apply(&mut self, batch: Batch, out: &mut Vec<Effect>) {
        let mine = self.proposals.in_flight.as_ref().is_some_and(|f| batch.origin == (self.id(), f.number));
        let before = self.state.as_ref().map(|state| state.osdmap.map.clone());
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
        if before.as_ref().is_none_or(|map| map.epoch != state.osdmap.map.epoch) {
            self.services.pgs.prune(&state.osdmap.map);
            self.proposals.periodic_due = true;
        }
        self.proposals.periodic_due |= !batch.pgs.is_empty() || batch.fsmap.map.is_some();
        match &batch.monmap {
            Some(MonChange::Remove { member, .. }) if *member == Some(self.id()) => {
                let map = to_vec(&state.monmap.map).into();
                return self.leave(map, out);
            }
            Some(_) => self.update_peers(out),
            None => {}
        }
        for line in &batch.log {
            let level = match line.level >= LogLevel::Info && line.channel == "cluster" {
                true => Level::Info,
                false => Level::Debug,
            };
            out.push(Effect::Log { level, text: format!("{} log: {}", line.channel, line.text) });
        }
        self.publish(before.map_or(Epoch(0), |map| map.epoch), out);
        let Some(in_flight) = self.proposals.in_flight.take_if(|_| mine) else { return };
        let Some(state) = self.state.as_ref().filter(|_| applied.is_ok()) else {
            return self.proposals.requeue(in_flight.jobs);
        };
        let end = state.auth.next_global_id;
        let mut start = end - GLOBAL_IDS * in_flight.ids_for.len() as u64;
        for member in in_flight.ids_for {
            let ids = start..start + GLOBAL_IDS;
            start = ids.end;
            if member == self.id() {
                out.push(Effect::GrantIds(ids));
            } else {
                self.peers.send(member, QuorumMsg::Ids { start: ids.start, end: ids.end }, out);
            }
        }
        for (origin, reply) in in_flight.replies {
            let reply = self.stamp_reply(reply);
            self.answer(origin, reply, out);
        }
    }

    /// Puts into a reply what is only known after the commit.
    pub(super) fn stamp_reply(&self, mut reply: Message) -> Message {
        let epoch = self.state.as_ref().expect("committed").osdmap.map.epoch;
        match &mut reply {
            Message::PoolOpReply(reply) => {
                reply.epoch = epoch;
                reply.version = PaxosVersion(epoch.0.into());
            }
            Message::MdsBeacon(beacon) => {
                let fsmap = &self.state.as_ref().expect("committed").fsmap;
                beacon.version = PaxosVersion(fsmap.map.epoch.0.into());
            }
            Message::MonCommandAck(ack) => ack.version = PaxosVersion(epoch.0.into()),
            Message::Daemon(DaemonMsg::Activated { epoch: at, .. }) => *at = epoch,
            _ => {}
        }
        reply
    }

    /// Makes a batch of what waits and proposes it, if the last one is done. False if there is
    /// nothing more to do now.
    pub(super) fn propose(&mut self, now: Now, out: &mut Vec<Effect>) -> bool {
        let Some(leading) = &mut self.leading else { return false };
        if self.proposals.in_flight.is_some() || self.consensus.raft().is_handing_over() {
            return false;
        }
        if self.state.is_none() {
            let genesis = bootstrap::genesis(&self.config, now.wall);
            let batch = Batch { stamp: now.wall, genesis: Some(genesis), ..Batch::default() };
            self.submit(batch, InFlight::default());
            return true;
        }
        if std::mem::take(&mut self.global_ids_wanted) {
            leading.global_ids_wanted_by.insert(self.config.id);
        }
        let Proposals { queue, periodic_due, failures_due, .. } = &self.proposals;
        let is_due = *periodic_due || *failures_due || !leading.global_ids_wanted_by.is_empty();
        let Some(state) = self.state.as_ref().filter(|_| is_due || !queue.is_empty()) else { return false };
        let ids_for: Vec<u64> = std::mem::take(&mut leading.global_ids_wanted_by).into_iter().collect();
        let mut pending = PendingTxn::new(state, now.wall);
        pending.entropy = Some(self.entropy.fork());
        let is_periodic = std::mem::take(&mut self.proposals.periodic_due);
        if is_periodic {
            self.periodic(now, &mut pending);
        }
        pending.batch.auth.global_ids = GLOBAL_IDS * ids_for.len() as u64;
        let mut in_flight = InFlight { ids_for, ..InFlight::default() };
        let (mut later, mut finished) = (VecDeque::new(), Vec::new());
        for job in self.proposals.take_queue() {
            if pending.batch.client_bytes() >= BATCH_MAX {
                later.push_back(job);
                continue;
            }
            let done = self.run(now, &job, &mut pending);
            match if std::mem::take(&mut pending.defer) { Done::Defer } else { done } {
                Done::Reply(reply) => {
                    if let Request::Command(command) = &job.request {
                        finished.extend(audit::finished(&self.context(now), &job.from, command, &reply));
                    }
                    in_flight.replies.push((job.origin, *reply));
                }
                Done::Silent => {}
                Done::Refuse(why) => {
                    out.push(Effect::Log { level: Level::Warn, text: why });
                    if let Origin::Here { conn, .. } = job.origin {
                        self.sessions.remove(conn);
                        out.push(Effect::Hangup { conn });
                    }
                }
                Done::Note(text) => out.push(Effect::Log { level: Level::Warn, text }),
                Done::Defer => {
                    later.push_back(job);
                    continue;
                }
            }
            in_flight.jobs.push(job);
        }
        self.proposals.requeue(later.into());
        self.proposals.failures_due = false;
        for (osd, message) in std::mem::take(&mut pending.osd_messages) {
            self.send_to_osd(osd, &message, out);
        }
        if pending.clear_progress {
            self.services.pgs.progress.clear();
        }
        if let Some((cx, services, _)) = self.services(now) {
            services.osd.check_failures(&cx, &mut pending);
            if pending.batch.fsmap.map.is_some() {
                services.mds.assign(&cx, &mut pending);
            }
            prime_pg_temp(&cx, &mut pending);
        }
        if self.services.osd.failures.is_open() {
            out.push(Effect::Arm { timer: TIMER_FAILURES, after: FAILURES_EVERY });
        }
        self.complete_log(now, is_periodic, finished, &mut pending);
        let successor = pending.hand_over;
        let changes = !pending.is_empty();
        if !changes {
            for (origin, reply) in in_flight.replies {
                let reply = self.stamp_reply(reply);
                self.answer(origin, reply, out);
            }
        } else {
            self.submit(pending.finish(), in_flight);
        }
        if let Some(successor) = successor {
            self.hand_over(successor, out);
        }
        changes
    }

    /// Adds lines about the batch itself to its log, and those that waited for a batch.
    fn complete_log(
        &mut self,
        now: Now,
        is_periodic: bool,
        finished: Vec<LogEntry>,
        pending: &mut PendingTxn,
    ) {
        if !pending.is_empty() {
            let cx = self.context(now);
            if pending.map().epoch != pending.committed_map().epoch {
                let map = pending.map().clone();
                let (all, up) = (map.osd_ids().count(), map.up_osds().count());
                let in_ = map.osd_ids().filter(|&osd| map.is_in(osd)).count();
                let text = format!("osdmap e{}: {all} total, {up} up, {in_} in", map.epoch);
                cx.log(pending, LogLevel::Debug, text);
            }
            if let Some(text) = pending.batch.mgrmap.as_ref().map(mgr::map_text) {
                cx.log(pending, LogLevel::Debug, text);
            }
            pending.batch.log.extend(finished);
        }
        if is_periodic || !pending.is_empty() {
            pending.batch.log.splice(0..0, self.services.audit.take());
        }
        let own = [
            AuthName::new(EntityType::Mon, self.config.name.clone()),
            AuthName::new(EntityType::Mgr, self.config.name.clone()),
        ];
        let last = self.state.as_ref().expect("ready").log.seq;
        for (number, line) in (last + 1..).zip(&mut pending.batch.log) {
            line.text.truncate(line.text.floor_char_boundary(LINE_MAX));
            if own.contains(&line.name) {
                line.seq = number;
            }
        }
    }

    /// Sends an OSD a message, through the monitor that it has a session with.
    pub(crate) fn send_to_osd(&mut self, osd: OsdId, message: &DaemonMsg, out: &mut Vec<Effect>) {
        self.send_to_local_osd(osd, message, out);
        let others: Vec<u64> = self.peers.ids().collect();
        for mon in others {
            self.peers.send(mon, QuorumMsg::Order { osd, message: Box::new(message.clone()) }, out);
        }
    }
    /// If it talks to us.
    pub(super) fn send_to_local_osd(&self, osd: OsdId, message: &DaemonMsg, out: &mut Vec<Effect>) {
        for (conn, _) in self.sessions.iter().filter(|(_, session)| session.osd() == Some(osd)) {
            out.push(Effect::Send { conn, tid: 0, message: message.clone().into() });
        }
    }

    pub(super) fn submit(&mut self, mut batch: Batch, mut in_flight: InFlight) {
        self.proposals.submitted += 1;
        // The term makes the numbers differ from those of this process before a restart.
        in_flight.number = (self.term() << 32) | self.proposals.submitted;
        batch.origin = (self.id(), in_flight.number);
        let raft = self.consensus.raft();
        let proposed = match batch.monmap.as_ref().and_then(MonChange::of_group) {
            Some(change) => raft.propose_change(change, to_vec(&batch)),
            None => raft.propose(to_vec(&batch)),
        };
        if proposed.is_ok() {
            self.proposals.in_flight = Some(in_flight);
        }
    }

    pub(super) fn run(&mut self, now: Now, job: &Job, pending: &mut PendingTxn) -> Done {
        match &job.request {
            Request::Daemon(message) => match self.services(now) {
                Some((cx, services, _)) => services.run_daemon(&cx, job, message, pending),
                None => Done::Silent,
            },
            Request::Command(command) => {
                let successor = pending.hand_over;
                let reply = commands::run(self, now, job, command, pending);
                pending.defer_if(pending.hand_over != successor);
                Done::Reply(reply.into())
            }
            Request::Join { member, name, addrs } => self.run_join(now, (*member, name, addrs), pending),
            Request::Beacon(_) | Request::LoadTargets(_) | Request::RemoveSnaps(_) => {
                let Some((cx, services, _)) = self.services(now) else { return Done::Silent };
                let mds = &mut services.mds;
                match &job.request {
                    Request::Beacon(beacon) => mds.beacon(&cx, job, beacon, pending),
                    Request::LoadTargets(message) => mds.load_targets(&cx, message, pending),
                    Request::RemoveSnaps(message) => mds.remove_snaps(&cx, message, pending),
                    _ => unreachable!("these three"),
                }
            }
            Request::PoolOp(op) => Done::Reply(commands::pool_op(self, now, op, pending).into()),
            Request::Log(entries) => {
                let fsid = self.state.as_ref().expect("ready").fsid();
                let ack =
                    entries.last().map(|last| LogAck { fsid, last: last.seq, channel: last.channel.clone() });
                pending.batch.log.extend(entries.iter().take(100).cloned());
                ack.map_or(Done::Silent, |ack| Done::Reply(Box::new(ack.into())))
            }
        }
    }

    /// Every second, and when something changed that a service examines.
    fn periodic(&mut self, now: Now, pending: &mut PendingTxn) {
        self.update_manager(now, pending);
        if self.leading.as_mut().is_some_and(|leading| !std::mem::replace(&mut leading.announced, true)) {
            self.announce_leader(now, pending);
        }
        if let Some((cx, services, entropy)) = self.services(now) {
            services.periodic(&cx, entropy, pending);
        }
    }

    fn announce_leader(&self, now: Now, pending: &mut PendingTxn) {
        let cx = self.context(now);
        let map = &cx.state.monmap.map;
        let names: Vec<&str> =
            cx.quorum.iter().filter_map(|rank| map.ranks.get(*rank as usize).map(String::as_str)).collect();
        let ranks: Vec<String> = cx.quorum.iter().map(u64::to_string).collect();
        let text = format!(
            "mon.{} is new leader, mons {} in quorum (ranks {})",
            self.config.name,
            names.join(","),
            ranks.join(",")
        );
        cx.log(pending, LogLevel::Info, text);
        cx.log(pending, LogLevel::Debug, monmap::map_text(map));
    }

    /// The manager map names this process, and the other monitors of the quorum, which take over from it.
    fn update_manager(&self, now: Now, pending: &mut PendingTxn) {
        let state = self.state.as_ref().expect("the leader has committed an entry of its term");
        let known = &state.mgrmap.map;
        let standbys = self.peers.open().filter_map(|id| {
            let name = state.monmap.members.get(&id)?.clone();
            Some((manager_gid(id), bootstrap::standby(manager_gid(id), name)))
        });
        let gid = manager_gid(self.id());
        let mut map = bootstrap::manager_map(&self.config, known.epoch, gid, now.wall);
        map.standbys = standbys.collect();
        map.modules = known.modules.clone();
        map.services = self.manager_services();
        if (&map.active_addrs, &map.active_name) == (&known.active_addrs, &known.active_name) {
            map.active_change = known.active_change;
        }
        if map != *known {
            map.epoch = known.epoch.next();
            pending.batch.mgrmap = Some(map);
        }
    }
}

/// What a monitor's process is called as a manager: its id, beyond those of clients.
fn manager_gid(id: u64) -> u64 {
    0x7000_0000 + id
}

/// What became of a job in a transaction.
pub(crate) enum Done {
    /// Send this once the transaction is committed.
    Reply(Box<Message>),
    Silent,
    /// Log this and hang up.
    Refuse(String),
    /// Log this.
    Note(String),
    /// It does not fit into this transaction.
    Defer,
}
