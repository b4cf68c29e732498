//! Raft: what it wants stored, sent and applied, and whether this member leads.

use super::Mon;
use super::damage::{Damage, decode_checkpoint, decode_entry};
use crate::persist;
use nacre_base::{Now, Time};
use nacre_machine::{Effect, Token};
use nacre_proto::messages::QuorumMsg;
use nacre_raft::{Committed, Outgoing, Raft, Ready};
use nacre_wire::to_vec;
use std::collections::{BTreeMap, BTreeSet};

/// Entries after which the log is compacted.
const CHECKPOINT_EVERY: u64 = 500;
/// Bytes of them after which it is, too.
const CHECKPOINT_BYTES: usize = 16 << 20;

/// Raft, and what it waits for.
#[derive(Default)]
pub(super) struct Consensus {
    /// None before the start.
    raft: Option<Raft>,
    /// The last applied entry.
    pub applied: u64,
    next_token: Token,
    /// What to do once a transaction is durable: tell Raft its number, then send.
    stores: BTreeMap<Token, (Option<u64>, Vec<Outgoing>)>,
    /// The leader at the last look, and since when.
    pub leader: Option<u64>,
    pub leader_changed: Time,
}

/// What only the leader has.
pub(crate) struct Leading {
    pub since: Time,
    /// Whether the manager map names this process.
    pub announced: bool,
    /// The members, by Raft id, whose drivers run short of global ids.
    pub global_ids_wanted_by: BTreeSet<u64>,
}

impl Consensus {
    pub fn start(&mut self, raft: Raft) {
        self.raft = Some(raft);
    }
    /// Events arrive only after the start.
    pub fn raft(&mut self) -> &mut Raft {
        self.raft.as_mut().expect("started")
    }
    /// Each election begins another one.
    pub fn term(&self) -> u64 {
        self.raft.as_ref().map_or(0, Raft::term)
    }
    pub fn current_leader(&self) -> Option<u64> {
        self.raft.as_ref().and_then(Raft::leader)
    }
    pub fn is_leader(&self) -> bool {
        self.raft.as_ref().is_some_and(Raft::is_leader)
    }
    /// Whether this member leads and has applied everything from before.
    pub fn leads_with_committed_term(&self) -> bool {
        self.raft.as_ref().is_some_and(Raft::leads_with_committed_term)
    }
    /// The members that vote. The same as the state's members, except where one was made to decide alone
    /// (`persist::alone`).
    pub fn voters(&self) -> Vec<u64> {
        self.raft.as_ref().map_or(Vec::new(), Raft::members)
    }

    pub fn store(
        &mut self,
        persist: &nacre_raft::Persist,
        number: Option<u64>,
        after: Vec<Outgoing>,
        out: &mut Vec<Effect>,
    ) {
        self.next_token += 1;
        self.stores.insert(self.next_token, (number, after));
        out.push(Effect::Store { token: self.next_token, txn: persist::transaction(persist) });
    }

    /// A transaction is durable, and all before it. Gives their numbers and what may be sent now.
    fn stored(&mut self, token: Token) -> impl Iterator<Item = (Option<u64>, Vec<Outgoing>)> + use<> {
        let later = self.stores.split_off(&(token + 1));
        std::mem::replace(&mut self.stores, later).into_values()
    }
}

impl Mon {
    /// Goes on until there is nothing to do but wait.
    pub(super) fn drive(&mut self, now: Now, out: &mut Vec<Effect>) -> Result<(), Damage> {
        loop {
            while let Some(ready) = self.consensus.raft().ready() {
                self.carry_out(ready, out)?;
            }
            // A removed monitor may be Raft's leader still. It must not lead again.
            if self.retired.is_some() {
                return Ok(());
            }
            self.note_leadership(now, out);
            self.answer_reads(out);
            if !self.propose(now, out) {
                return Ok(());
            }
        }
    }

    fn carry_out(&mut self, ready: Ready, out: &mut Vec<Effect>) -> Result<(), Damage> {
        // All of it is decoded before anything is sent, stored or applied.
        let restored = match ready.restored {
            Some(restored) => Some((restored.index, decode_checkpoint(restored.index, &restored.state)?)),
            None => None,
        };
        let group_changed = ready.committed.iter().any(|entry| entry.change.is_some());
        let decode = |entry: &Committed| Ok((entry.index, decode_entry(entry.index, &entry.data)?));
        let committed: Vec<_> = ready.committed.iter().map(decode).collect::<Result<_, Damage>>()?;
        self.send_raft(ready.now, out);
        if ready.persist.is_empty() {
            self.send_raft(ready.after, out);
        } else {
            self.consensus.store(&ready.persist, Some(ready.number), ready.after, out);
        }
        if let Some((index, state)) = restored {
            let before = self.state.as_ref().map(|state| state.osdmap.map.epoch);
            self.restore(index, state);
            self.update_peers(out);
            self.publish(before.unwrap_or_default(), out);
        }
        for (index, batch) in committed {
            self.consensus.applied = index;
            self.apply(batch, out);
        }
        for (read, index) in ready.reads {
            self.reads.confirmed(read, index);
        }
        let raft = self.consensus.raft();
        let due = group_changed || raft.log_len() >= CHECKPOINT_EVERY || raft.log_bytes() >= CHECKPOINT_BYTES;
        let applied = self.consensus.applied;
        if let Some(state) = self.state.as_ref().filter(|_| due && applied > 0) {
            let state = to_vec(state);
            let persist = self.consensus.raft().compact(applied, state);
            self.consensus.store(&persist, None, Vec::new(), out);
        }
        Ok(())
    }

    pub(super) fn on_stored(&mut self, token: Token, out: &mut Vec<Effect>) {
        for (number, messages) in self.consensus.stored(token) {
            if let Some(number) = number {
                self.consensus.raft().stored(number);
            }
            self.send_raft(messages, out);
        }
    }

    pub(super) fn send_raft(&mut self, messages: Vec<Outgoing>, out: &mut Vec<Effect>) {
        for message in messages {
            let checkpoint = message.is_checkpoint();
            let sent = self.peers.is_open(message.to);
            self.peers.send(message.to, QuorumMsg::Raft(message.bytes.into()), out);
            let raft = self.consensus.raft();
            if checkpoint {
                // A connection that breaks underway is reported by `unreachable`.
                raft.checkpoint_sent(message.to, sent);
            } else if !sent {
                raft.unreachable(message.to);
            }
        }
    }

    pub(super) fn note_leadership(&mut self, now: Now, out: &mut Vec<Effect>) {
        let leader = self.consensus.current_leader();
        if leader != self.consensus.leader {
            self.consensus.leader = leader;
            self.consensus.leader_changed = now.mono;
            self.count_election(leader);
            self.make_clients_resend(out);
            self.request_global_ids(out);
        }
        match (self.consensus.leads_with_committed_term(), &self.leading) {
            (true, None) => {
                let global_ids_wanted_by = BTreeSet::new();
                self.leading = Some(Leading { since: now.mono, announced: false, global_ids_wanted_by });
                self.services.restore(now.mono, self.state.as_ref());
                self.proposals.periodic_due = true;
            }
            (false, Some(_)) => {
                self.leading = None;
                // The new leader answers; clients that waited here ask again after the hangup.
                self.proposals.clear();
                self.services.step_down();
                for conn in self.sessions.clients() {
                    self.sessions.remove(conn);
                    out.push(Effect::Hangup { conn });
                }
            }
            _ => {}
        }
        self.release_waiting(now, out);
    }

    fn count_election(&self, leader: Option<u64>) {
        if let Some(leader) = leader {
            self.counted.num_elections.inc();
            match leader == self.id() {
                true => self.counted.election_win.inc(),
                false => self.counted.election_lose.inc(),
            }
        }
    }

    /// Followers ask, again and again, until there are some.
    pub(super) fn request_global_ids(&mut self, out: &mut Vec<Effect>) {
        if let (true, Some(leader)) = (self.global_ids_wanted, self.consensus.leader) {
            self.peers.send(leader, QuorumMsg::IdsWanted, out);
        }
    }
}
