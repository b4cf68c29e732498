//! Monitors join and leave.

use super::Mon;
use super::peers::Peers;
use super::proposals::{Done, Job, Request};
use super::requests::Origin;
use crate::pending_txn::PendingTxn;
use crate::services::monmap::MonChange;
use crate::sessions::Sessions;
use bytes::Bytes;
use nacre_base::Now;
use nacre_machine::{ConnId, Effect, Event, Level, Peer};
use nacre_proto::messages::{LogLevel, Message, MonMapMsg, QuorumMsg};
use nacre_proto::types::AddrVec;
use std::collections::BTreeSet;

/// Global ids that a removed monitor assigns: from here on, at a random place, far above those that the
/// quorum assigns one after the other.
const RETIRED_IDS: u64 = 1 << 62;
const RETIRED_IDS_LEN: u64 = 1 << 16;

/// Whether `alive` of `total` monitors decide.
pub(crate) fn is_majority(alive: usize, total: usize) -> bool {
    alive > total / 2
}

impl Mon {
    /// The ids of the members that vote.
    pub(crate) fn voters(&self) -> Vec<u64> {
        self.consensus.voters()
    }
    /// Those of them that are there, this one included.
    fn alive(&self) -> Vec<u64> {
        let is_there = |id: &u64| *id == self.id() || self.peers.is_reachable(*id);
        self.voters().into_iter().filter(is_there).collect()
    }

    /// A monitor that is no member asks all monitors to join, again and again.
    pub(super) fn request_join(&mut self, out: &mut Vec<Effect>) {
        let id = self.id();
        let is_member = match &self.state {
            Some(state) => state.monmap.members.contains_key(&id),
            None => self.initial_members().any(|initial| initial == id),
        };
        let own = self.config.members.iter().find(|member| member.id == id);
        if let (false, Some(own)) = (is_member, own) {
            let ask = QuorumMsg::Join { member: id, name: own.name.clone(), addrs: own.addrs.clone() };
            self.peers.ids().for_each(|peer| self.peers.send(peer, ask.clone(), out));
        }
    }

    /// `mon` passes on a request to join: its own, or that of another monitor.
    pub(super) fn on_join(
        &mut self,
        mon: u64,
        conn: ConnId,
        peer: Peer,
        ask: QuorumMsg,
        out: &mut Vec<Effect>,
    ) {
        let QuorumMsg::Join { member, name, addrs } = ask else { return };
        if self.is_ready_leader() {
            let (origin, request) = (Origin::Here { conn, tid: 0 }, Request::Join { member, name, addrs });
            self.enqueue(Job { origin, from: peer, request }, out);
        } else if let Some(leader) = self.leader_to_ask().filter(|_| mon == member) {
            self.peers.send(leader, QuorumMsg::Join { member, name, addrs }, out);
        }
    }

    /// On the leader: an expected monitor joins once there is a session to it, and if the majority that it
    /// becomes a part of is reachable.
    pub(super) fn run_join(
        &self,
        now: Now,
        (member, name, addrs): (u64, &str, &AddrVec),
        pending: &mut PendingTxn,
    ) -> Done {
        let state = self.state.as_ref().expect("it has committed an entry of its term");
        let expected = state.monmap.map.mons.get(name).map(|info| info.public_addrs.msgr2());
        let is_there = self.peers.is_open(member);
        let enough = is_majority(self.alive().len() + 1, self.voters().len() + 1);
        if state.monmap.was_removed(member) || state.monmap.members.contains_key(&member) {
            return Done::Silent;
        }
        match (expected, state.monmap.member(name)) {
            // A host was told to run it. It is expected from now on, and joins when it asks again.
            (None, None) if pending.batch.monmap.is_none() && state.hosts.expects(member, name, addrs) => {
                let change = MonChange::Expect { name: name.to_string(), addrs: addrs.clone() };
                pending.batch.monmap = Some(change);
                Done::Silent
            }
            (None, _) => Done::Silent,
            (Some(_), Some(_)) => {
                let text = format!(
                    "a second mon.{name} wants to join: remove the first one with `ceph mon rm {name}`"
                );
                Done::Note(text)
            }
            (Some(expected), None) if expected != addrs.msgr2() => Done::Note(format!(
                "mon.{name} wants to join from another address than the one given to `ceph mon add`: remove \
                 it and add it with its own address"
            )),
            (Some(_), None) if is_there && enough && pending.batch.monmap.is_none() => {
                self.context(now).log(pending, LogLevel::Info, format!("mon.{name} joined"));
                pending.batch.monmap = Some(MonChange::Join { member, name: name.to_string() });
                Done::Silent
            }
            (Some(_), None) => Done::Silent,
        }
    }

    /// Whether a majority of all would be there while that member is stopped, and those that were `told` to.
    pub(crate) fn may_stop(&self, member: u64, told: &BTreeSet<u64>) -> bool {
        let left = self.alive().into_iter().filter(|id| *id != member && !told.contains(id)).count();
        is_majority(left, self.voters().len())
    }

    /// Whether a majority would be there without that member.
    pub(crate) fn may_remove(&self, member: u64) -> bool {
        let without = |ids: Vec<u64>| ids.iter().filter(|id| **id != member).count();
        is_majority(without(self.alive()), without(self.voters()))
    }

    /// The member that is to lead before that one is removed, if that is this one.
    pub(crate) fn successor(&self, member: u64) -> Option<u64> {
        self.alive().into_iter().find(|id| *id != member).filter(|_| member == self.id())
    }

    pub(super) fn hand_over(&mut self, to: u64, out: &mut Vec<Effect>) {
        let members = self.state.as_ref().map(|state| &state.monmap.members);
        let name = members.and_then(|members| members.get(&to)).map_or("", String::as_str);
        let text = format!("mon.{} hands over the leadership to mon.{name}", self.config.name);
        out.push(Effect::Log { level: Level::Info, text });
        self.consensus.raft().hand_over(to);
    }

    /// This monitor was removed: the others decide without it, and all that it still answers is which they
    /// are, for clients that know no other monitor. It runs on, since other daemons may share its process.
    pub(super) fn leave(&mut self, map: Bytes, out: &mut Vec<Effect>) {
        let text = format!(
            "mon.{name} was removed from the cluster and no longer serves clients: `nacre mon forget --id \
             {name}` deletes its files, `nacre mon format --id {name}` creates a new one",
            name = self.config.name
        );
        out.push(Effect::Log { level: Level::Error, text });
        let sessions = self.sessions.iter().map(|(conn, _)| conn);
        let dialled = self.peers.dialling();
        out.extend(sessions.chain(dialled).map(|conn| Effect::Hangup { conn }));
        (self.sessions, self.peers) = (Sessions::new(self.counted.clone()), Peers::default());
        self.leading = None;
        self.proposals.clear();
        self.retired = Some(map);
        // With cephx no caller gets in without an id, and the quorum gives this monitor none any more.
        let first = RETIRED_IDS | (self.rng.next_u64() % (RETIRED_IDS / RETIRED_IDS_LEN) * RETIRED_IDS_LEN);
        out.push(Effect::GrantIds(first..first + RETIRED_IDS_LEN));
    }

    /// What a monitor that was removed does.
    pub(super) fn redirect_to_others(&self, map: Bytes, event: &Event, out: &mut Vec<Effect>) {
        let Event::Message { conn, tid, message } = event else { return };
        let asks = match message {
            Message::MonGetMap(_) => true,
            Message::MonSubscribe(subscribe) => subscribe.what.contains_key("monmap"),
            _ => false,
        };
        if asks {
            out.push(Effect::Send { conn: *conn, tid: *tid, message: MonMapMsg { map }.into() });
        }
    }
}
