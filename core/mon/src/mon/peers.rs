//! The other monitors: links to them, and what they send.

use super::damage::check_entry;
use super::requests::Origin;
use super::{Mon, REDIAL, TIMER_REDIAL};
use crate::output::uuid;
use crate::services::monitors;
use crate::services::upgrade::refusal;
use crate::sessions::Session;
use crate::state::State;
use nacre_base::{Now, OsdId, Time};
use nacre_machine::{ConnId, Effect, Level, Peer};
use nacre_proto::maps::MonMap;
use nacre_proto::messages::{Envelope, QuorumMsg, quorum_features};
use nacre_proto::types::{EntityAddr, EntityType, Formats};
use nacre_raft::{PeerMessage, StepError};
use nacre_wire::{DecodeError, from_slice, to_vec};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// This many monitors of other clusters are logged.
const FOREIGN_MAX: usize = 64;

/// Links with monitors that are no members: no more are dialled.
const PEERS_MAX: usize = 64;

/// A member that answers nothing of the leader's for so long is not reachable. A retransmission may take
/// seconds.
const SILENT_MAX: Duration = Duration::from_secs(5);

/// Why a message of another monitor was dropped.
#[derive(Debug, thiserror::Error)]
pub(super) enum RaftMessageError {
    #[error(transparent)]
    Raft(#[from] StepError),
    #[error("its payload: {0}")]
    Payload(#[from] DecodeError),
    #[error("it belongs to another cluster")]
    OtherCluster,
}

struct Link {
    /// Where it is dialled.
    addr: EntityAddr,
    conn: Option<ConnId>,
    open: bool,
    /// What the monitor supports, as it said last.
    features: u64,
    /// When it last answered what this monitor sent as the leader, or said that it is there.
    answered: Time,
    /// It has not answered the leader for long.
    silent: bool,
}

/// The own sessions to the other monitors.
#[derive(Default)]
pub(super) struct Peers {
    /// By Raft id: members, and monitors that came by themselves.
    links: BTreeMap<u64, Link>,
    /// Monitors of other clusters, by address and whether we dialled: what was logged already.
    foreign: BTreeSet<(EntityAddr, bool)>,
    dialled: u64,
}

impl Peers {
    pub fn ids(&self) -> impl Iterator<Item = u64> {
        self.links.keys().copied()
    }
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }
    /// Those that are reachable.
    pub fn open(&self) -> impl Iterator<Item = u64> {
        self.links.iter().filter(|(_, link)| link.open && !link.silent).map(|(id, _)| *id)
    }
    /// Whether it is one of `open`.
    pub fn is_reachable(&self, id: u64) -> bool {
        self.links.get(&id).is_some_and(|link| link.open && !link.silent)
    }
    /// Whether there is a session to it.
    pub fn is_open(&self, id: u64) -> bool {
        self.links.get(&id).is_some_and(|link| link.open)
    }
    /// Those of them that support what `feature` stands for.
    pub fn open_with(&self, feature: u64) -> impl Iterator<Item = u64> {
        let links = self.links.iter().filter(move |(_, link)| link.open && link.features & feature != 0);
        links.map(|(id, _)| *id)
    }
    pub fn by_conn(&self, conn: ConnId) -> Option<u64> {
        self.links.iter().find(|(_, link)| link.conn == Some(conn)).map(|(id, _)| *id)
    }
    /// Sessions that are being opened.
    pub fn dialling(&self) -> impl Iterator<Item = ConnId> {
        self.links.values().filter_map(|link| link.conn.filter(|_| !link.open))
    }

    /// It is there, as its message shows.
    pub fn answered(&mut self, id: u64, now: Time) {
        if let Some(link) = self.links.get_mut(&id) {
            (link.answered, link.silent) = (now, false);
        }
    }
    /// Notes which of the reachable monitors last answered before that time, and gives those that did until
    /// now.
    fn note_silent(&mut self, before: Time, is_member: impl Fn(u64) -> bool) -> Vec<u64> {
        let silent = self
            .links
            .iter_mut()
            .filter(|(id, link)| link.open && !link.silent && link.answered < before && is_member(**id));
        silent
            .map(|(id, link)| {
                link.silent = true;
                *id
            })
            .collect()
    }
    /// Only the leader knows who answers.
    fn none_is_silent(&mut self) {
        self.links.values_mut().for_each(|link| link.silent = false);
    }

    /// Sends a message if there is a session.
    pub fn send(&self, id: u64, message: QuorumMsg, out: &mut Vec<Effect>) {
        let Some(Link { conn: Some(conn), open: true, .. }) = self.links.get(&id) else { return };
        out.push(Effect::Send { conn: *conn, tid: 0, message: message.into() });
    }

    /// A session ended: the id of the monitor, and whether it was reachable.
    pub fn closed(&mut self, conn: ConnId) -> Option<(u64, bool)> {
        let (id, link) = self.links.iter_mut().find(|(_, link)| link.conn == Some(conn))?;
        link.conn = None;
        Some((*id, std::mem::take(&mut link.open)))
    }

    /// Ends a session with what is no member of this cluster, and dials later if a member is expected there.
    pub fn disconnect(&mut self, conn: ConnId, out: &mut Vec<Effect>) {
        out.push(Effect::Hangup { conn });
        if self.closed(conn).is_some() {
            out.push(Effect::Arm { timer: TIMER_REDIAL, after: REDIAL });
        }
    }

    /// The monitor at the other end is of this cluster.
    fn established(&mut self, conn: ConnId) {
        if let Some(link) = self.links.values_mut().find(|link| link.conn == Some(conn)) {
            link.open = true;
        }
    }

    fn note_features(&mut self, id: u64, features: u64) {
        if let Some(link) = self.links.get_mut(&id) {
            link.features = features;
        }
    }

    /// Has links to these monitors and no others. Gives the sessions that end.
    fn update(&mut self, wanted: BTreeMap<u64, EntityAddr>, out: &mut Vec<Effect>) -> Vec<ConnId> {
        let gone = self.links.extract_if(.., |id, link| wanted.get(id) != Some(&link.addr));
        let ended: Vec<ConnId> = gone.filter_map(|(_, link)| link.conn).collect();
        out.extend(ended.iter().map(|conn| Effect::Hangup { conn: *conn }));
        for (id, addr) in wanted {
            self.links.entry(id).or_insert(Link {
                addr,
                conn: None,
                open: false,
                features: 0,
                answered: Time::ZERO,
                silent: false,
            });
        }
        for link in self.links.values_mut().filter(|link| link.conn.is_none()) {
            self.dialled += 1;
            let conn = ConnId::Dialled(self.dialled);
            link.conn = Some(conn);
            out.push(Effect::Dial { conn, to: link.addr, kind: EntityType::Mon });
        }
        ended
    }
}

impl Mon {
    /// Has sessions to all members, and to monitors that came by themselves: they may join, or have joined by
    /// entries that this monitor has yet to see.
    pub(super) fn update_peers(&mut self, out: &mut Vec<Effect>) {
        let mut wanted: BTreeMap<u64, EntityAddr> = match &self.state {
            Some(state) => {
                let addr = |name| state.monmap.map.mons.get(name)?.public_addrs.msgr2();
                state.monmap.members.iter().filter_map(|(id, name)| Some((*id, addr(name)?))).collect()
            }
            None => self.config.members.iter().filter_map(|m| Some((m.id, m.addrs.msgr2()?))).collect(),
        };
        for (_, session) in self.sessions.iter() {
            if let (Some(id), Some(addr)) = (session.monitor(), session.peer.addrs.msgr2())
                && wanted.len() < PEERS_MAX
                && !self.state.as_ref().is_some_and(|state| state.monmap.was_removed(id))
            {
                wanted.entry(id).or_insert(addr);
            }
        }
        wanted.remove(&self.id());
        for conn in self.peers.update(wanted, out) {
            self.sessions.remove(conn);
        }
    }

    /// A session of that OSD with `mon` ended, which is this monitor or one that tells us. The leader should
    /// know.
    pub(super) fn on_osd_ended(&mut self, osd: OsdId, mon: u64, out: &mut Vec<Effect>) {
        if self.sessions.has_osd(osd) {
            return;
        }
        if self.leading.is_some() {
            self.services.osd.sessions.ended(osd, mon);
            self.proposals.failures_due = true;
        } else if let Some(leader) = self.leader_to_ask() {
            self.peers.send(leader, QuorumMsg::Ended { osd }, out);
        }
    }

    /// The first message of a monitor. Addresses are used again: another cluster's monitor may have one of
    /// ours, or have had it before.
    fn on_hello(&mut self, now: Now, conn: ConnId, hello: QuorumMsg, out: &mut Vec<Effect>) {
        let QuorumMsg::Hello { fsid: theirs, features, formats, format } = hello else { return };
        let ours = self.fsid();
        if theirs != ours {
            let why = format!("belongs to another cluster, {}, and not to {}", uuid(&theirs), uuid(&ours));
            return self.refuse_monitor(conn, &why, out);
        }
        if let Err(why) = self.check_formats(now, conn, formats, format) {
            return self.refuse_monitor(conn, &why, out);
        }
        if let Some(session) = self.sessions.get_mut(conn) {
            session.is_same_cluster = true;
            // The leader answers in the session that it dials: replies from while there was none are lost.
            let monitor = session.monitor();
            let is_dialled = matches!(conn, ConnId::Dialled(_));
            if !is_dialled && monitor == self.consensus.leader && self.forwarding.is_waiting() {
                self.make_clients_resend(out);
            }
        }
        self.peers.established(conn);
        self.update_peers(out);
        if let Some(monitor) = self.sessions.get(conn).and_then(|session| session.monitor()) {
            self.peers.note_features(monitor, features);
        }
    }

    /// Both sides must be able to use the format that the cluster has.
    fn check_formats(
        &mut self,
        now: Now,
        conn: ConnId,
        theirs: Formats,
        their_format: u32,
    ) -> Result<(), String> {
        let ours = self.config.release.formats;
        let format = self.format();
        if format > 0 && !theirs.contains(format) {
            let member = self.sessions.get(conn).map(|session| session.peer.num.wrapping_add(1) as u64);
            let members = self.state.as_ref().map(|state| &state.monmap.members);
            let name = member.and_then(|id| members?.get(&id).cloned());
            let name = name.map_or_else(|| "a monitor".to_string(), |name| format!("mon.{name}"));
            let why = refusal(&name, theirs, format);
            self.services.upgrade.refuse(now.mono, &name, &why);
            return Err(format!("is refused: {why}"));
        }
        if their_format > 0 && !ours.contains(their_format) {
            let own = format!("mon.{}", self.config.name);
            return Err(format!(
                "is of a cluster that this one cannot be in: {}",
                refusal(&own, ours, their_format)
            ));
        }
        Ok(())
    }

    /// Disconnects a monitor that is not of this cluster. That is logged once, since it dials again and
    /// again.
    fn refuse_monitor(&mut self, conn: ConnId, why: &str, out: &mut Vec<Effect>) {
        let Some(session) = self.sessions.remove(conn) else { return };
        let addr = session.peer.addrs.msgr2().unwrap_or(session.peer.observed);
        let is_dialled = matches!(conn, ConnId::Dialled(_));
        if self.peers.foreign.len() < FOREIGN_MAX && self.peers.foreign.insert((addr, is_dialled)) {
            let text = format!("the monitor at {addr} {why}; disconnected");
            out.push(Effect::Log { level: Level::Error, text });
        }
        self.peers.disconnect(conn, out);
    }

    pub(super) fn on_quorum(&mut self, now: Now, conn: ConnId, message: QuorumMsg, out: &mut Vec<Effect>) {
        let Some(session) = self.sessions.get(conn) else { return };
        if session.peer.kind != EntityType::Mon {
            return;
        }
        if let QuorumMsg::Hello { .. } = message {
            self.on_hello(now, conn, message, out);
            let monitor = self.sessions.get(conn).and_then(Session::monitor);
            return monitor.into_iter().for_each(|id| self.peers.answered(id, now.mono));
        }
        if !session.is_same_cluster {
            return self.refuse_monitor(
                conn,
                "does not say which cluster it belongs to: its version is older",
                out,
            );
        }
        let Some(mon) = session.monitor() else { return };
        if let Some(state) = self.state.as_ref().filter(|state| state.monmap.was_removed(mon)) {
            let message = QuorumMsg::Removed { map: to_vec(&state.monmap.map).into() };
            return out.push(Effect::Send { conn, tid: 0, message: message.into() });
        }
        match message {
            QuorumMsg::Hello { .. } => unreachable!("it was answered above"),
            QuorumMsg::Raft(bytes) => {
                if let Err(error) = self.on_raft(now.mono, mon, &bytes) {
                    let text = format!("a message of monitor {mon} was dropped: {error}");
                    out.push(Effect::Log { level: Level::Warn, text });
                }
            }
            QuorumMsg::Forward { key, kind, num, addrs, message, auth_name } => {
                let kind = EntityType::from_byte(kind).unwrap_or(EntityType::Client);
                let observed = addrs.msgr2().unwrap_or_default();
                let features = session.peer.features;
                let peer = Peer { kind, num, addrs, observed, features, auth_name, proved: None };
                let Ok(envelope) = Envelope::from_raw(message) else { return };
                if kind == EntityType::Osd {
                    self.services.osd.sessions.heard(OsdId(num as i32), mon);
                }
                let origin = Origin::There { mon, key };
                if self.is_ready_leader() {
                    self.serve(now, origin, peer, envelope.body, out);
                } else if self.consensus.is_leader() {
                    self.wait_for_leader(origin, peer, envelope.body, out);
                } else {
                    self.peers.send(mon, QuorumMsg::NotLeader { key }, out);
                }
            }
            QuorumMsg::Join { .. } => {
                let peer = session.peer.clone();
                self.on_join(mon, conn, peer, message, out);
            }
            QuorumMsg::Removed { map } => {
                // In a session that was opened to a monitor that is known.
                let is_known = self.peers.by_conn(conn) == Some(mon);
                let theirs = from_slice::<MonMap>(&map).map(|map| map.fsid);
                if is_known && theirs.is_ok_and(|theirs| theirs == self.fsid()) {
                    self.leave(map, out);
                }
            }
            QuorumMsg::NotLeader { key } => {
                if let Some((conn, _)) = self.forwarding.sent.remove(&key) {
                    self.sessions.remove(conn);
                    out.push(Effect::Hangup { conn });
                }
            }
            QuorumMsg::TimeCheck { round } => {
                self.peers.send(mon, QuorumMsg::TimeCheckReply { round, stamp: now.wall }, out);
            }
            QuorumMsg::TimeCheckReply { round, stamp } => {
                self.services.time_checks.answered(now.mono, mon, round, stamp);
            }
            QuorumMsg::Order { osd, message } => self.send_to_local_osd(osd, &message, out),
            // A monitor that does not lead any more is not sent this, and does not forward it.
            QuorumMsg::Ended { osd } if self.leading.is_some() => self.on_osd_ended(osd, mon, out),
            QuorumMsg::Ended { .. } => {}
            QuorumMsg::Report(report) => {
                if self.leading.is_some() {
                    self.services.monitors.heard(mon, *report);
                }
            }
            QuorumMsg::IdsWanted => {
                if let Some(leading) = &mut self.leading {
                    leading.global_ids_wanted_by.insert(mon);
                }
            }
            QuorumMsg::Ids { start, end } => {
                self.global_ids_wanted = false;
                out.push(Effect::GrantIds(start..end));
            }
            QuorumMsg::Answer { key, message } => {
                if let (Some((conn, tid)), Ok(envelope)) =
                    (self.forwarding.sent.remove(&key), Envelope::from_raw(message))
                {
                    out.push(Effect::Send { conn, tid, message: envelope.body });
                }
            }
        }
    }

    /// A host that lost its power or its network ends no session. Members answer the leader's heartbeats
    /// several times a second: one that does not is not in the quorum, though there is a session.
    pub(super) fn note_silent_members(&mut self, now: Now, out: &mut Vec<Effect>) {
        let Some(leading) = &self.leading else { return self.peers.none_is_silent() };
        let before = leading.since.max(now.mono - SILENT_MAX);
        if now.mono.since(leading.since) < SILENT_MAX {
            return;
        }
        let Some(map) = self.state.as_ref().map(|state| &state.monmap) else { return };
        for id in self.peers.note_silent(before, |id| map.rank_of(id).is_some()) {
            self.log_lost(id, "it does not answer", out);
            self.on_unreachable(id);
        }
    }

    /// Tells the leader what this monitor runs on, and which clients and daemons have sessions with it.
    pub(super) fn report_to_leader(&mut self, now: Now, out: &mut Vec<Effect>) {
        let understands = |id: &u64| self.peers.open_with(quorum_features::REPORTS).any(|peer| peer == *id);
        let Some(leader) = self.leader_to_ask().filter(understands) else { return };
        let report = monitors::report(&self.config, &self.sessions);
        if let Some(report) = self.services.monitors.due(now.mono, leader, report) {
            self.peers.send(leader, QuorumMsg::Report(Box::new(report)), out);
        }
    }

    /// What gets into the log must be of use to every member, also after a restart.
    pub(super) fn on_raft(&mut self, now: Time, mon: u64, bytes: &[u8]) -> Result<(), RaftMessageError> {
        let message = PeerMessage::decode(bytes)?;
        if message.from() != mon {
            return Err(StepError::Stranger { from: message.from() }.into());
        }
        message.proposals().try_for_each(check_entry)?;
        if message.is_answer() {
            self.peers.answered(mon, now);
        }
        if let Some(theirs) = message.checkpoint().map(from_slice::<State>).transpose()?
            && theirs.fsid() != self.fsid()
        {
            return Err(RaftMessageError::OtherCluster);
        }
        Ok(self.consensus.raft().step(message)?)
    }
}
