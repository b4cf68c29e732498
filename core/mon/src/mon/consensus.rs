//! Raft's wishes carried out: what to store, to send and to apply, and who leads.

use super::Mon;
use crate::persist;
use crate::services::balancer::Balancer;
use crate::services::pg::stats::Stats;
use crate::state::Batch;
use nacre_base::{Now, Time};
use nacre_machine::{Effect, Token};
use nacre_proto::messages::QuorumMsg;
use nacre_raft::{Outgoing, Raft, Ready};
use nacre_wire::{from_slice, to_vec};

/// Entries after which the log is compacted.
const CHECKPOINT_EVERY: u64 = 500;
/// Bytes of them after which it is, too.
const CHECKPOINT_BYTES: usize = 16 << 20;

/// Since when this member leads.
pub(crate) struct Leading {
    pub since: Time,
    /// Whether the map says so.
    pub announced: bool,
}

impl Mon {
    /// Goes on until there is nothing to do but wait.
    pub(super) fn drive(&mut self, now: Now, out: &mut Vec<Effect>) {
        while self.retired.is_none() {
            while let Some(ready) = self.raft.as_mut().and_then(Raft::ready) {
                self.carry_out(ready, out);
            }
            self.note_leadership(now, out);
            self.answer_reads(out);
            if !self.propose(now, out) {
                return;
            }
        }
    }

    pub(super) fn carry_out(&mut self, ready: Ready, out: &mut Vec<Effect>) {
        self.send_raft(ready.now, out);
        if ready.persist.is_empty() {
            self.send_raft(ready.after, out);
        } else {
            self.store(&ready.persist, Some(ready.number), ready.after, out);
        }
        if let Some(restored) = ready.restored {
            let before = self.state.as_ref().map(|state| state.osdmap.map.epoch);
            self.restore(restored.index, &restored.state);
            self.update_peers(out);
            self.publish(before.unwrap_or_default(), out);
        }
        let mut group_changed = false;
        for entry in ready.committed {
            group_changed |= entry.change.is_some();
            let batch: Batch = from_slice(&entry.data).expect("every member encodes batches alike");
            self.applied = entry.index;
            self.apply(batch, out);
        }
        for (read, index) in ready.reads {
            if let Some((at, ..)) = self.reads.get_mut(&read) {
                *at = Some(index);
            }
        }
        let raft = self.raft.as_mut().expect("started");
        let due = group_changed || raft.log_len() >= CHECKPOINT_EVERY || raft.log_bytes() >= CHECKPOINT_BYTES;
        if let Some(state) = self.state.as_ref().filter(|_| due && self.applied > 0) {
            let state = to_vec(state);
            let persist = raft.compact(self.applied, state);
            self.store(&persist, None, Vec::new(), out);
        }
    }

    pub(super) fn store(
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

    pub(super) fn on_stored(&mut self, token: Token, out: &mut Vec<Effect>) {
        // All before it are durable too.
        let later = self.stores.split_off(&(token + 1));
        for (_, (number, after)) in std::mem::replace(&mut self.stores, later) {
            if let Some(number) = number {
                self.raft.as_mut().expect("started").stored(number);
            }
            self.send_raft(after, out);
        }
    }

    pub(super) fn send_raft(&mut self, messages: Vec<Outgoing>, out: &mut Vec<Effect>) {
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

    pub(super) fn note_leadership(&mut self, now: Now, out: &mut Vec<Effect>) {
        let leader = self.raft.as_ref().and_then(Raft::leader);
        if leader != self.known_leader {
            self.known_leader = leader;
            self.leader_changed = now.mono;
            self.make_clients_resend(out);
            self.request_global_ids(out);
        }
        let leads = self.raft.as_ref().is_some_and(Raft::leads_in_earnest);
        match (leads, &self.leading) {
            (true, None) => {
                self.leading = Some(Leading { since: now.mono, announced: false });
                self.restore_hints(now);
                self.periodic_due = true;
            }
            (false, Some(_)) => {
                self.leading = None;
                // The new leader answers; who waited here asks again after the hangup.
                self.in_flight = None;
                self.queue.clear();
                self.queued = 0;
                self.stats = Stats::default();
                self.balancer = Balancer::default();
                self.ids_wanted_by.clear();
                for conn in self.sessions.clients() {
                    self.sessions.remove(conn);
                    out.push(Effect::Hangup { conn });
                }
            }
            _ => {}
        }
        self.release_waiting(now, out);
    }

    /// Followers ask, again and again, until there are some.
    pub(super) fn request_global_ids(&mut self, out: &mut Vec<Effect>) {
        if let (true, Some(leader)) = (self.global_ids_wanted, self.known_leader) {
            self.send_quorum(leader, QuorumMsg::IdsWanted, out);
        }
    }
}
