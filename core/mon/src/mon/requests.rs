//! Requests of clients and daemons. Any monitor answers what needs no leader. The leader answers the rest,
//! once there is one.

use super::Mon;
use super::proposals::{Job, Request};
use super::reads::Read;
use crate::commands;
use crate::pending_txn::PendingTxn;
use crate::services::Services;
use crate::sessions::caps::Admission;
use bytes::Bytes;
use nacre_base::{Now, errno};
use nacre_command::{Outcome, refuse};
use nacre_machine::{ConnId, Effect, Level, Peer};
use nacre_proto::messages::{
    CommandReply, Config as ConfigMsg, DaemonMsg, Envelope, Message, MgrCommandReply, MgrConfigure,
    MonCommandAck, MonMapMsg, PaxosVersion, Ping, QuorumMsg,
};
use nacre_proto::types::EntityType;
use nacre_wire::to_vec;

/// Where an answer goes.
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

/// Bytes of a command: what it changes must fit into a message between monitors, as it must itself when it is
/// passed on.
const COMMAND_MAX: usize = 16 << 20;

impl Mon {
    pub(super) fn on_message(
        &mut self,
        now: Now,
        conn: ConnId,
        tid: u64,
        message: Message,
        out: &mut Vec<Effect>,
    ) {
        if let Message::Quorum(message) = message {
            return self.on_quorum(now, conn, message, out);
        }
        let Some(session) = self.sessions.get_mut(conn) else { return };
        if !session.admit() {
            let text =
                format!("{} {} sends faster than it is answered; disconnected", conn, session.peer.kind);
            out.push(Effect::Log { level: Level::Warn, text });
            out.push(Effect::Hangup { conn });
            self.sessions.remove(conn);
            return;
        }
        let from = session.peer.clone();
        let origin = Origin::Here { conn, tid };
        let session = self.sessions.get(conn).expect("just seen");
        match session.caps.admission(from.kind, &message, self.state.as_ref()) {
            Admission::Open => {}
            Admission::Ignored => return,
            Admission::Refused(reply) => return self.answer(origin, *reply, out),
        }
        if command_in(&message).is_some_and(|(cmd, input, _)| weight(cmd, input) > COMMAND_MAX)
            && let Some(command) = CommandRequest::of(&message)
        {
            let text = format!("a command of {} bytes, limit {COMMAND_MAX}", command.weight());
            return self.answer(origin, command.reply(Err(refuse(errno::E2BIG, text))), out);
        }
        match message {
            Message::Auth(auth) => {
                let message = self.services.auth.renew(now, session, &auth, &mut self.entropy).into();
                out.push(Effect::Send { conn, tid, message });
            }
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
            Message::MgrOpen(open) => {
                self.services.service_map.open(now, &from, open);
                let message = MgrConfigure { stats_period_secs: 5, stats_threshold: 5 }.into();
                out.push(Effect::Send { conn, tid, message });
            }
            Message::MgrClose(close) => {
                self.services.service_map.close(now, &close);
                out.push(Effect::Send { conn, tid, message: close.into() });
            }
            Message::MgrReport(report) => {
                if from.kind == EntityType::Mds {
                    self.services.mds_load.report(now.mono, &report);
                }
                if !self.services.service_map.report(now, report) {
                    self.sessions.remove(conn);
                    out.push(Effect::Hangup { conn });
                }
            }
            // What is asked of this very daemon.
            Message::Command(m) if !commands::is_for_cluster(&m.cmd) => {
                let reply = self.run_tell(now, &from, &m.cmd).into();
                self.answer(origin, reply, out);
            }
            // What needs the leader.
            message if self.is_ready_leader() => self.serve(now, origin, from, message, out),
            message => self.forward(conn, tid, from, message, out),
        }
    }

    pub(super) fn is_ready_leader(&self) -> bool {
        self.leading.is_some() && self.state.is_some()
    }

    /// On the leader: a request, wherever it arrived.
    pub(super) fn serve(
        &mut self,
        now: Now,
        origin: Origin,
        from: Peer,
        message: Message,
        out: &mut Vec<Effect>,
    ) {
        let request = match message {
            Message::Daemon(DaemonMsg::Report(report)) => {
                let Some(state) = &self.state else { return };
                let Services { osd, pgs, upgrade, .. } = &mut self.services;
                let order = upgrade.on_report(now.mono, &report, state.upgrades.format).zip(report.osd);
                self.proposals.periodic_due |= osd.on_report(now, &from, report, &state.osdmap.map, pgs);
                if let Some((order, osd)) = order {
                    self.send_to_osd(osd, &order, out);
                }
                return;
            }
            Message::Daemon(DaemonMsg::Images(work)) if from.kind == EntityType::Osd => {
                return self.services.image_load.add(work);
            }
            Message::Daemon(DaemonMsg::Latencies(latencies)) if from.kind == EntityType::Osd => {
                return self.services.upgrade.on_latencies(now.mono, &latencies);
            }
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
            message if let Some(command) = CommandRequest::of(&message) => Request::Command(command),
            Message::PoolOp(op) => Request::PoolOp(op),
            Message::MdsBeacon(beacon) => Request::Beacon(Box::new(beacon)),
            Message::MdsLoadTargets(message) => Request::LoadTargets(message),
            Message::RemoveSnaps(message) => Request::RemoveSnaps(message),
            Message::Log(log) => Request::Log(log.entries),
            message => {
                let text =
                    format!("{} does not handle a {} from {}", self.config.name, message.name(), from.kind);
                return out.push(Effect::Log { level: Level::Debug, text });
            }
        };
        let job = Job { origin, from, request };
        if let (Request::Command(command), Some((cx, services, _))) = (&job.request, self.services(now)) {
            services.audit.dispatch(&cx, &job.from, command);
        }
        let job = match job {
            Job { origin, from, request: Request::Command(command) } => {
                let Some(command) = self.services.images.take_in(origin, command) else { return };
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
        self.enqueue(job, out);
    }

    /// A client whose request finds the queue full is hung up on. It asks again, and would else wait for
    /// ever.
    pub(super) fn enqueue(&mut self, job: Job, out: &mut Vec<Effect>) {
        if let Some(job) = self.proposals.enqueue(job)
            && job.from.kind == EntityType::Client
        {
            self.reject(job.origin, out);
        }
    }
    pub(super) fn reject(&mut self, origin: Origin, out: &mut Vec<Effect>) {
        match origin {
            Origin::Here { conn, .. } => {
                if self.sessions.remove(conn).is_some() {
                    out.push(Effect::Hangup { conn });
                }
            }
            Origin::There { mon, key } => self.peers.send(mon, QuorumMsg::NotLeader { key }, out),
        }
    }

    pub(super) fn run_read_only(
        &self,
        now: Now,
        origin: Origin,
        from: Peer,
        command: CommandRequest,
    ) -> Message {
        let mut pending = PendingTxn::new(self.state.as_ref().expect("the caller checked"), now.wall);
        let job = Job { origin, from, request: Request::Command(command) };
        let Request::Command(command) = &job.request else { unreachable!("just made") };
        let reply = commands::run(self, now, &job, command, &mut pending);
        assert!(pending.is_empty(), "{:?} is marked as read-only and is not", command.cmd);
        reply
    }

    pub(crate) fn answer(&mut self, origin: Origin, message: Message, out: &mut Vec<Effect>) {
        match origin {
            Origin::Here { conn, tid } => out.push(Effect::Send { conn, tid, message }),
            Origin::There { mon, key } => {
                let raw = Envelope { tid: 0, body: message }.to_raw();
                self.peers.send(mon, QuorumMsg::Answer { key, message: raw }, out);
            }
        }
    }

    pub(super) fn send_monmap(&self, conn: ConnId, tid: u64, out: &mut Vec<Effect>) {
        let map = match &self.state {
            Some(state) => to_vec(&state.monmap.map).into(),
            None => return,
        };
        out.push(Effect::Send { conn, tid, message: MonMapMsg { map }.into() });
    }

    pub(super) fn version_of(&self, what: &str) -> (u64, u64) {
        self.state.as_ref().and_then(|state| state.version(what)).unwrap_or((0, 0))
    }
}

/// Whether the sender of this waits for an answer.
pub(super) fn is_answered(message: &Message) -> bool {
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
                | Message::MdsBeacon(_)
                | Message::RemoveSnaps(_)
        ),
    }
}

fn command_in(message: &Message) -> Option<(&[String], &Bytes, Via)> {
    match message {
        Message::MonCommand(m) => Some((&m.cmd, &m.input, Via::Mon)),
        Message::MgrCommand(m) => Some((&m.cmd, &m.input, Via::Mgr)),
        Message::Command(m) => Some((&m.cmd, &m.input, Via::Tell)),
        _ => None,
    }
}
/// Bytes of a command with its input.
fn weight(cmd: &[String], input: &Bytes) -> usize {
    cmd.iter().map(String::len).sum::<usize>() + input.len()
}

impl CommandRequest {
    pub(crate) fn of(message: &Message) -> Option<CommandRequest> {
        let (cmd, input, via) = command_in(message)?;
        Some(CommandRequest { cmd: cmd.to_vec(), input: input.clone(), via })
    }
    pub fn weight(&self) -> usize {
        weight(&self.cmd, &self.input)
    }
    pub(crate) fn reply(&self, outcome: Outcome) -> Message {
        let CommandReply { retval, status, output } = nacre_command::reply(outcome);
        match self.via {
            Via::Mon => {
                let (version, cmd) = (PaxosVersion(0), self.cmd.clone());
                MonCommandAck { version, retval, status, cmd, output }.into()
            }
            Via::Mgr => MgrCommandReply { retval, status, output }.into(),
            Via::Tell => CommandReply { retval, status, output }.into(),
        }
    }
}
