//! Requests that need the leader: forwarded to it, or waiting until there is one.

use super::requests::{Origin, is_answered};
use super::{Mon, QUEUE_MAX};
use nacre_base::Now;
use nacre_machine::{ConnId, Effect, Peer};
use nacre_proto::messages::{Envelope, Message, QuorumMsg};
use nacre_proto::types::EntityType;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// How long requests wait for a leader to be elected.
const LEADERLESS_MAX: Duration = Duration::from_secs(5);

/// Requests that are another monitor's to answer.
#[derive(Default)]
pub(super) struct Forwarding {
    last_key: u64,
    /// Sent to the leader: where the answer goes.
    pub sent: BTreeMap<u64, (ConnId, u64)>,
    /// Requests that came while there was no leader.
    waiting: VecDeque<(Origin, Peer, Message)>,
}

impl Forwarding {
    /// Whether requests wait for the leader's reply.
    pub fn is_waiting(&self) -> bool {
        !self.sent.is_empty()
    }
    fn next_key(&mut self) -> u64 {
        self.last_key += 1;
        self.last_key
    }
}

impl Mon {
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
        let key = self.forwarding.next_key();
        if is_answered(&message) {
            self.forwarding.sent.insert(key, (conn, tid));
        }
        let message = QuorumMsg::Forward {
            key,
            kind: from.kind as u8,
            num: from.num,
            addrs: from.addrs.clone(),
            message: Envelope { tid: 0, body: message }.to_raw(),
            auth_name: from.auth_name.clone(),
        };
        self.peers.send(leader, message, out);
    }

    /// What was forwarded is lost, with the leader or with a session to it. Clients that wait ask again after
    /// a hangup, and OSDs repeat what they sent without waiting.
    pub(super) fn make_clients_resend(&mut self, out: &mut Vec<Effect>) {
        let waiting: BTreeSet<ConnId> =
            std::mem::take(&mut self.forwarding.sent).into_values().map(|(conn, _)| conn).collect();
        for conn in self.sessions.clients() {
            let kind = self.sessions.get(conn).map(|session| session.peer.kind);
            if waiting.contains(&conn) || (kind == Some(EntityType::Osd) && !self.peers.is_empty()) {
                self.sessions.remove(conn);
                out.push(Effect::Hangup { conn });
            }
        }
    }

    /// There is no leader yet: the request waits.
    pub(super) fn wait_for_leader(
        &mut self,
        origin: Origin,
        from: Peer,
        message: Message,
        out: &mut Vec<Effect>,
    ) {
        match self.forwarding.waiting.len() < QUEUE_MAX {
            true => self.forwarding.waiting.push_back((origin, from, message)),
            false => self.reject(origin, out),
        }
    }

    /// What waited for a leader goes where it belongs once there is one.
    pub(super) fn release_waiting(&mut self, now: Now, out: &mut Vec<Effect>) {
        if self.forwarding.waiting.is_empty() {
            return;
        }
        if self.is_ready_leader() {
            for (origin, from, message) in std::mem::take(&mut self.forwarding.waiting) {
                self.serve(now, origin, from, message, out);
            }
        } else if self.leader_to_ask().is_some() {
            for (origin, from, message) in std::mem::take(&mut self.forwarding.waiting) {
                match origin {
                    Origin::Here { conn, tid } if self.sessions.get(conn).is_some() => {
                        self.forward(conn, tid, from, message, out);
                    }
                    Origin::Here { .. } => {}
                    Origin::There { mon, key } => self.peers.send(mon, QuorumMsg::NotLeader { key }, out),
                }
            }
        }
    }

    /// Without a leader for long: clients are hung up on, and try other monitors.
    pub(super) fn expire_waiting(&mut self, now: Now, out: &mut Vec<Effect>) {
        let patient = now.mono.since(self.consensus.leader_changed) < LEADERLESS_MAX;
        if patient || self.peers.is_empty() {
            return;
        }
        for (origin, ..) in std::mem::take(&mut self.forwarding.waiting) {
            if let Origin::Here { conn, .. } = origin
                && self.sessions.get(conn).is_some()
            {
                self.sessions.remove(conn);
                out.push(Effect::Hangup { conn });
            }
        }
    }

    /// The leader, if it is another and there is a session to it.
    pub(super) fn leader_to_ask(&self) -> Option<u64> {
        let leader = self.consensus.leader.filter(|&id| id != self.id())?;
        Some(leader).filter(|leader| self.peers.is_open(*leader))
    }
}
