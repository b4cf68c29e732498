//! The other monitors: sessions to them, what is passed on to the leader, what waits until there is one.

use super::membership::PeerLink;
use super::requests::{Origin, is_answered};
use super::{Mon, QUEUE_MAX, REDIAL, TIMER_REDIAL};
use crate::output::uuid;
use crate::state::{Batch, State};
use nacre_base::{Now, OsdId};
use nacre_machine::{ConnId, Effect, Level, Peer};
use nacre_proto::maps::{MonMap, Uuid};
use nacre_proto::messages::{Envelope, Message, QuorumMsg};
use nacre_proto::types::EntityType;
use nacre_raft::{PeerMessage, Raft, StepError};
use nacre_wire::{DecodeError, from_slice, to_vec};
use std::collections::BTreeSet;
use std::time::Duration;

/// How long requests wait for a leader to be elected.
const LEADERLESS_MAX: Duration = Duration::from_secs(5);
/// Of so many monitors of other clusters the log says that they are.
const FOREIGN_MAX: usize = 64;

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

impl Mon {
    pub(super) fn send_quorum(&mut self, mon: u64, message: QuorumMsg, out: &mut Vec<Effect>) {
        let Some(PeerLink { conn: Some(conn), open: true, .. }) = self.peers.get(&mon) else { return };
        out.push(Effect::Send { conn: *conn, tid: 0, message: message.into() });
    }

    /// The leader, if it is another and there is a session to it.
    pub(super) fn leader_to_ask(&self) -> Option<u64> {
        let leader = self.known_leader.filter(|&id| id != self.id())?;
        self.peers.get(&leader).filter(|link| link.open).map(|_| leader)
    }

    pub(super) fn forward(
        &mut self,
        conn: ConnId,
        tid: u64,
        from: Peer,
        message: Message,
        out: &mut Vec<Effect>,
    ) {
        let Some(leader) = self.leader_to_ask() else {
            return self.wait_for_leader(Origin::Here { conn, tid }, from, message, out);
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

    /// What the leader was asked is lost, with it or with a session to it or from it: whoever waits asks again after a hangup,
    /// and OSDs say again what they said without waiting.
    pub(super) fn make_clients_resend(&mut self, out: &mut Vec<Effect>) {
        let waiting: BTreeSet<ConnId> =
            std::mem::take(&mut self.forwarded).into_values().map(|(conn, _)| conn).collect();
        for conn in self.sessions.clients() {
            let kind = self.sessions.get(conn).map(|session| session.peer.kind);
            if waiting.contains(&conn) || (kind == Some(EntityType::Osd) && !self.peers.is_empty()) {
                self.sessions.remove(conn);
                out.push(Effect::Hangup { conn });
            }
        }
    }

    /// Nobody leads yet: the request waits.
    pub(super) fn wait_for_leader(
        &mut self,
        origin: Origin,
        from: Peer,
        message: Message,
        out: &mut Vec<Effect>,
    ) {
        match self.waiting_for_leader.len() < QUEUE_MAX {
            true => self.waiting_for_leader.push_back((origin, from, message)),
            false => self.reject(origin, out),
        }
    }

    /// What waited for a leader goes where it belongs once there is one.
    pub(super) fn release_waiting(&mut self, now: Now, out: &mut Vec<Effect>) {
        if self.waiting_for_leader.is_empty() {
            return;
        }
        if self.is_ready_leader() {
            for (origin, from, message) in std::mem::take(&mut self.waiting_for_leader) {
                self.serve(now, origin, from, message, out);
            }
        } else if self.leader_to_ask().is_some() {
            for (origin, from, message) in std::mem::take(&mut self.waiting_for_leader) {
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
    pub(super) fn expire_waiting(&mut self, now: Now, out: &mut Vec<Effect>) {
        let patient = now.mono.since(self.leader_changed) < LEADERLESS_MAX;
        if patient || self.peers.is_empty() {
            return;
        }
        for (origin, ..) in std::mem::take(&mut self.waiting_for_leader) {
            if let Origin::Here { conn, .. } = origin
                && self.sessions.get(conn).is_some()
            {
                self.sessions.remove(conn);
                out.push(Effect::Hangup { conn });
            }
        }
    }

    /// A session of that OSD with `mon` ended, which is this monitor or one that tells us. The leader should know.
    pub(super) fn on_osd_ended(&mut self, osd: OsdId, mon: u64, out: &mut Vec<Effect>) {
        if self.has_session(osd) {
            return;
        }
        if self.leading.is_some() {
            self.reports.sessions.ended(osd, mon);
            self.failures_due = true;
        } else if let Some(leader) = self.leader_to_ask() {
            self.send_quorum(leader, QuorumMsg::Ended { osd }, out);
        }
    }

    /// What a monitor says first. Addresses outlive those who had them: another cluster's monitor may have one of ours, or have
    /// had it before.
    fn on_hello(&mut self, conn: ConnId, theirs: Uuid, out: &mut Vec<Effect>) {
        let ours = self.fsid();
        if theirs != ours {
            let why = format!("belongs to another cluster, {}, and not to {}", uuid(&theirs), uuid(&ours));
            return self.refuse_monitor(conn, &why, out);
        }
        self.sessions.get_mut(conn).expect("the caller saw it").is_same_cluster = true;
        if let Some(link) = self.peers.values_mut().find(|link| link.conn == Some(conn)) {
            link.open = true;
        }
        self.update_peers(out);
    }

    /// Hangs up on who is no monitor of ours, and says so once: it dials again and again.
    fn refuse_monitor(&mut self, conn: ConnId, why: &str, out: &mut Vec<Effect>) {
        let Some(session) = self.sessions.remove(conn) else { return };
        let addr = session.peer.addrs.msgr2().unwrap_or(session.peer.observed);
        let is_dialled = matches!(conn, ConnId::Dialled(_));
        if self.foreign.len() < FOREIGN_MAX && self.foreign.insert((addr, is_dialled)) {
            let text = format!("the monitor at {addr} {why}; disconnected");
            out.push(Effect::Log { level: Level::Error, text });
        }
        self.disconnect_monitor(conn, out);
    }

    /// Ends a session with who is no member, and tries again later if it was to be one.
    pub(super) fn disconnect_monitor(&mut self, conn: ConnId, out: &mut Vec<Effect>) {
        out.push(Effect::Hangup { conn });
        if let Some(link) = self.peers.values_mut().find(|link| link.conn == Some(conn)) {
            (link.conn, link.open) = (None, false);
            out.push(Effect::Arm { timer: TIMER_REDIAL, after: REDIAL });
        }
    }

    pub(super) fn on_quorum(&mut self, now: Now, conn: ConnId, message: QuorumMsg, out: &mut Vec<Effect>) {
        let Some(session) = self.sessions.get(conn) else { return };
        if session.peer.kind != EntityType::Mon {
            return;
        }
        if let QuorumMsg::Hello { fsid } = message {
            return self.on_hello(conn, fsid, out);
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
                if let Err(error) = self.on_raft(mon, &bytes) {
                    let text = format!("a message of monitor {mon} was dropped: {error}");
                    out.push(Effect::Log { level: Level::Warn, text });
                }
            }
            QuorumMsg::Forward { key, kind, num, addrs, message } => {
                let kind = EntityType::from_byte(kind).unwrap_or(EntityType::Client);
                let observed = addrs.msgr2().unwrap_or_default();
                let peer = Peer { kind, num, addrs, observed, features: session.peer.features, proved: None };
                let Ok(envelope) = Envelope::from_raw(message) else { return };
                if kind == EntityType::Osd {
                    self.reports.sessions.heard(OsdId(num as i32), mon);
                }
                let origin = Origin::There { mon, key };
                if self.is_ready_leader() {
                    self.serve(now, origin, peer, envelope.body, out);
                } else if self.raft.as_ref().is_some_and(Raft::is_leader) {
                    self.wait_for_leader(origin, peer, envelope.body, out);
                } else {
                    self.send_quorum(mon, QuorumMsg::NotLeader { key }, out);
                }
            }
            QuorumMsg::Join { .. } => {
                let peer = session.peer.clone();
                self.on_join(mon, conn, peer, message, out);
            }
            QuorumMsg::Removed { map } => {
                // In a session that was opened to a monitor that is known.
                let is_known = self.peers.get(&mon).is_some_and(|link| link.conn == Some(conn));
                let theirs = from_slice::<MonMap>(&map).map(|map| map.fsid);
                if is_known && theirs.is_ok_and(|theirs| theirs == self.fsid()) {
                    self.leave(map, out);
                }
            }
            QuorumMsg::NotLeader { key } => {
                if let Some((conn, _)) = self.forwarded.remove(&key) {
                    self.sessions.remove(conn);
                    out.push(Effect::Hangup { conn });
                }
            }
            QuorumMsg::Order { osd, message } => self.send_to_local_osd(osd, &message, out),
            // Nobody passes it on: who does not lead any more is not asked.
            QuorumMsg::Ended { osd } if self.leading.is_some() => self.on_osd_ended(osd, mon, out),
            QuorumMsg::Ended { .. } => {}
            QuorumMsg::IdsWanted => {
                if self.leading.is_some() {
                    self.ids_wanted_by.insert(mon);
                }
            }
            QuorumMsg::Ids { start, end } => {
                self.global_ids_wanted = false;
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
    pub(super) fn on_raft(&mut self, mon: u64, bytes: &[u8]) -> Result<(), RaftMessageError> {
        let message = PeerMessage::decode(bytes)?;
        if message.from() != mon {
            return Err(StepError::Stranger { from: message.from() }.into());
        }
        message.proposals().try_for_each(|entry| from_slice::<Batch>(entry).map(drop))?;
        if let Some(theirs) = message.checkpoint().map(from_slice::<State>).transpose()?
            && theirs.fsid() != self.fsid()
        {
            return Err(RaftMessageError::OtherCluster);
        }
        Ok(self.raft.as_mut().expect("started").step(message)?)
    }
}
