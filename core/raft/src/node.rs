//! One member.

use crate::change::Change;
use crate::log::{Log, bytes_of};
use crate::peer::{MEMBERS_MAX, PeerMessage, members, proposal};
use crate::{Persist, Saved};
use nacre_base::Rng;
use protobuf::Message as _;
use raft::eraftpb::{Entry, HardState, Message, MessageType};
use raft::{Config, RawNode, StateRole};
use std::collections::BTreeSet;

/// Ticks of silence after which a member wants to lead, at least and (not reached) at most.
const ELECTION_TICKS: (usize, usize) = (10, 20);
const HEARTBEAT_TICKS: usize = 2;
/// Entries that stay in the log after a checkpoint, and bytes of them.
const TAIL: (u64, usize) = (128, 4 << 20);
/// Bytes of entries in one message.
const MESSAGE_SIZE_MAX: u64 = 1 << 20;

/// The caller's name for a read that must see everything committed before it was asked.
pub type ReadId = u64;

/// One member of the group that keeps the log.
pub struct Raft {
    node: RawNode<Log>,
    seed: u64,
    /// How often this member wanted to lead; with the term it makes up the election timeout.
    campaigns: u64,
    role: StateRole,
    /// The hard state as of the last `Persist` that had one.
    stored_hard_state: HardState,
    /// Reads without an answer; the leader may have been unable to give one.
    reads: BTreeSet<ReadId>,
    /// Another member's checkpoint that is not durable yet: the number of its `Ready`, and its index.
    installing: Option<(u64, u64)>,
}

/// What there is to do. See the crate's documentation for the order.
#[derive(Debug, Default)]
pub struct Ready {
    /// To pass to `stored`.
    pub number: u64,
    pub persist: Persist,
    /// Messages that promise nothing that is not durable.
    pub now: Vec<Outgoing>,
    /// Messages that wait for `persist`.
    pub after: Vec<Outgoing>,
    /// Another member's checkpoint: the state is this now. Comes before `committed`.
    pub restored: Option<Restored>,
    pub committed: Vec<Committed>,
    /// These reads may be answered once the entry with this index is applied.
    pub reads: Vec<(ReadId, u64)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    pub to: u64,
    pub bytes: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    pub index: u64,
    pub state: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    pub index: u64,
    pub term: u64,
    /// As proposed.
    pub data: Vec<u8>,
    /// It changed the membership: `compact` at once, so that a new member gets a checkpoint with it.
    pub change: Option<Change>,
}

/// Only the leader takes proposals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the leader")]
pub struct NotLeader;

/// Why a peer's message was dropped.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    #[error("not a Raft message")]
    Undecodable,
    #[error("no member of the group sends this")]
    Impossible,
    #[error("member {from} is not in the group")]
    Stranger { from: u64 },
    #[error("it is about entries that this member never had")]
    Unknown,
    #[error("{0}")]
    Refused(raft::Error),
}

impl Raft {
    /// A member with number `id` (not zero) that had stored `saved`; of `members`, unless `saved` knows
    /// better. Without any it waits for a checkpoint of the members that add it. None if `saved` is damaged.
    pub fn new(id: u64, seed: u64, members: &[u64], saved: &Saved) -> Option<Raft> {
        let log = Log::load(saved, members)?;
        let config = Config {
            id,
            election_tick: ELECTION_TICKS.0,
            heartbeat_tick: HEARTBEAT_TICKS,
            min_election_tick: ELECTION_TICKS.0,
            max_election_tick: ELECTION_TICKS.1,
            applied: log.checkpoint.get_metadata().index,
            max_size_per_msg: MESSAGE_SIZE_MAX,
            max_inflight_msgs: 64,
            pre_vote: true,
            check_quorum: true,
            ..Config::default()
        };
        let stored_hard_state = log.hard_state.clone();
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let node = RawNode::new(&config, log, &logger).expect("the configuration is valid");
        let reads = BTreeSet::new();
        let role = StateRole::Follower;
        let mut raft = Raft { node, seed, campaigns: 0, role, stored_hard_state, reads, installing: None };
        let alone = raft.members() == [id];
        if alone {
            // No other member could lead, so there is nothing to wait for.
            raft.node.campaign().expect("a lone member may always lead");
        }
        raft.note_role();
        Some(raft)
    }

    /// The state of the checkpoint that this member starts from, and the index that it includes.
    pub fn checkpoint(&self) -> Option<Restored> {
        let snapshot = &self.node.store().checkpoint;
        let index = snapshot.get_metadata().index;
        (index > 0).then(|| Restored { index, state: snapshot.get_data().to_vec() })
    }
    /// The proposals in the log of this member, committed or not, each with its index.
    pub fn proposals(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let entries = self.node.store().entries.iter().map(|entry| (entry.index, proposal(entry)));
        entries.filter(|(_, data)| !data.is_empty())
    }
    /// What must be durable before this member sends anything: the initial members, which then override
    /// the arguments of later starts.
    pub fn beginning(&self) -> Option<Persist> {
        let checkpoint = &self.node.store().checkpoint;
        let metadata = checkpoint.get_metadata();
        let begins = metadata.index == 0 && !metadata.get_conf_state().get_voters().is_empty();
        begins.then(|| Persist { checkpoint: Some(bytes_of(checkpoint)), ..Persist::default() })
    }
    /// The numbers of all members, in order.
    pub fn members(&self) -> Vec<u64> {
        let mut ids: Vec<u64> = self.node.raft.prs().conf().voters().ids().iter().collect();
        ids.sort_unstable();
        ids
    }
    pub fn is_leader(&self) -> bool {
        self.node.raft.state == StateRole::Leader
    }
    /// Whether this member leads and has everything that earlier leaders committed: from here on it
    /// may judge what to propose.
    pub fn leads_with_committed_term(&self) -> bool {
        self.is_leader() && self.node.raft.commit_to_current_term()
    }
    /// The leader, as far as this member knows.
    pub fn leader(&self) -> Option<u64> {
        Some(self.node.raft.leader_id).filter(|&id| id != 0)
    }
    pub fn term(&self) -> u64 {
        self.node.raft.term
    }
    /// Entries in memory and on disk, for the decision when to `compact`.
    pub fn log_len(&self) -> u64 {
        let log = self.node.store();
        log.last_index() - log.checkpoint.get_metadata().index
    }

    /// Bytes of those entries.
    pub fn log_bytes(&self) -> usize {
        let log = self.node.store();
        let index = log.checkpoint.get_metadata().index;
        log.entries.iter().rev().take_while(|entry| entry.index > index).map(|entry| entry.data.len()).sum()
    }

    /// Time passes; call it at a steady pace, some ten times a second.
    pub fn tick(&mut self) {
        // A candidate would look meanwhile for entries between its own last one and the checkpoint.
        if self.installing.is_none() {
            self.node.tick();
        }
        for &read in &self.reads {
            self.node.read_index(read.to_le_bytes().to_vec());
        }
        self.note_role();
    }
    /// A message of another member arrived.
    pub fn step(&mut self, message: PeerMessage) -> Result<(), StepError> {
        let PeerMessage(message) = message;
        let raft = &self.node.raft;
        let is_member = raft.prs().conf().voters().contains(message.from);
        let last = raft.raft_log.last_index();
        match message.get_msg_type() {
            _ if message.from == raft.id || message.to != raft.id => {
                return Err(StepError::Stranger { from: message.from });
            }
            // The candidate or leader may have been added by entries that this member has yet to see.
            MessageType::MsgAppend
            | MessageType::MsgHeartbeat
            | MessageType::MsgSnapshot
            | MessageType::MsgRequestVote
            | MessageType::MsgRequestPreVote => {}
            _ if !is_member => return Err(StepError::Stranger { from: message.from }),
            _ => {}
        }
        match message.get_msg_type() {
            // It would know no other members, and take itself for the only one.
            MessageType::MsgAppend if message.index == 0 && self.members().is_empty() => {
                return Err(StepError::Unknown);
            }
            MessageType::MsgTimeoutNow if message.from != raft.leader_id || self.installing.is_some() => {
                return Err(StepError::Impossible);
            }
            // As from a leader that knows us from before our disk lost something.
            MessageType::MsgHeartbeat if message.commit > last => return Err(StepError::Unknown),
            // As from a follower that had another leader's entries when it was asked.
            MessageType::MsgAppendResponse if !message.reject && message.index > last => {
                return Err(StepError::Unknown);
            }
            MessageType::MsgSnapshot => {
                let group = members(message.get_snapshot().get_metadata().get_conf_state());
                if group.is_none_or(|group| !group.contains(&raft.id)) {
                    return Err(StepError::Impossible);
                }
            }
            _ => {}
        }
        let stepped = self.node.step(message);
        self.note_role();
        stepped.map_err(StepError::Refused)
    }
    /// The connection to this member is gone: until it answers, one message at a time is enough.
    pub fn unreachable(&mut self, id: u64) {
        self.node.report_unreachable(id);
    }
    /// A checkpoint that was sent to this member arrived, or did not.
    pub fn checkpoint_sent(&mut self, id: u64, arrived: bool) {
        let status = if arrived { raft::SnapshotStatus::Finish } else { raft::SnapshotStatus::Failure };
        self.node.report_snapshot(id, status);
    }
    /// Adds an entry to the log; it comes out of `Ready::committed` everywhere, or is lost with this
    /// leadership.
    pub fn propose(&mut self, data: Vec<u8>) -> Result<(), NotLeader> {
        if !self.is_leader() {
            return Err(NotLeader);
        }
        self.node.propose(Vec::new(), data).map_err(|_| NotLeader)
    }
    /// The same for an entry that changes the membership.
    pub fn propose_change(&mut self, change: Change, data: Vec<u8>) -> Result<(), NotLeader> {
        // The library would make nothing of the entry.
        if !self.is_leader() || self.node.raft.has_pending_conf() {
            return Err(NotLeader);
        }
        self.node.propose_conf_change(data, change.to_library()).map_err(|_| NotLeader)
    }
    /// Asks another member to lead. Nothing can be proposed until it does, or has been silent for as long as
    /// an election takes.
    pub fn hand_over(&mut self, to: u64) {
        self.node.transfer_leader(to);
    }
    pub fn is_handing_over(&self) -> bool {
        self.node.raft.lead_transferee.is_some()
    }
    /// Asks how far the log must be applied before `read` may be answered; any member may ask.
    pub fn read(&mut self, read: ReadId) {
        self.reads.insert(read);
        self.node.read_index(read.to_le_bytes().to_vec());
    }

    /// What there is to do now; none when there is nothing.
    pub fn ready(&mut self) -> Option<Ready> {
        if !self.node.has_ready() {
            return None;
        }
        let mut rd = self.node.ready();
        let mut ready = Ready { number: rd.number(), ..Ready::default() };
        ready.now = rd.take_messages().into_iter().map(outgoing).collect();
        ready.after = rd.take_persisted_messages().into_iter().map(outgoing).collect();
        for state in rd.take_read_states() {
            let read = state.request_ctx.try_into().map(u64::from_le_bytes);
            if let Some(read) = read.ok().filter(|read| self.reads.remove(read)) {
                ready.reads.push((read, state.index));
            }
        }
        let log = self.node.mut_store();
        if !rd.snapshot().is_empty() {
            let snapshot = rd.snapshot().clone();
            let state = snapshot.get_data().to_vec();
            ready.restored = Some(Restored { index: snapshot.get_metadata().index, state });
            log.install(snapshot, &mut ready.persist);
        }
        log.append(rd.entries(), &mut ready.persist);
        if let Some(hard_state) = rd.hs() {
            log.hard_state = hard_state.clone();
        }
        // How far the log is committed alone is not worth a write: it comes out again of itself.
        if rd.must_sync() && log.hard_state != self.stored_hard_state {
            self.stored_hard_state = log.hard_state.clone();
            ready.persist.hard_state = Some(bytes_of(&log.hard_state));
        }
        for entry in rd.take_committed_entries() {
            ready.committed.push(self.commit(&entry));
        }
        self.node.advance_append_async(rd);
        if let Some(last) = ready.committed.last() {
            self.node.advance_apply_to(last.index);
        }
        if let Some(restored) = &ready.restored {
            self.installing = Some((ready.number, restored.index));
        }
        ready.committed.retain(|entry| !entry.data.is_empty() || entry.change.is_some());
        if ready.persist.is_empty() {
            self.stored(ready.number);
        }
        Some(ready)
    }
    fn commit(&mut self, entry: &Entry) -> Committed {
        let is_full = self.members().len() >= MEMBERS_MAX;
        let change = Change::of(entry).filter(|change| !(is_full && matches!(change, Change::Add(_))));
        // An error says that the last member would go: for all of them alike, nothing changes.
        if let Some(members) =
            change.and_then(|change| self.node.apply_conf_change(&change.to_library()).ok())
        {
            let log = self.node.mut_store();
            (log.members, log.changed_at) = (members, entry.index);
        }
        Committed { index: entry.index, term: entry.term, data: proposal(entry).to_vec(), change }
    }
    /// The `persist` of this `Ready`, and of all before it, is durable.
    pub fn stored(&mut self, number: u64) {
        self.node.on_persist_ready(number);
        if let Some((_, index)) = self.installing.take_if(|(at, _)| *at <= number) {
            self.node.advance_apply_to(index);
        }
    }
    /// Makes `state`, which includes every entry up to `index`, the new start of the log.
    pub fn compact(&mut self, index: u64, state: Vec<u8>) -> Persist {
        let log = self.node.mut_store();
        let mut persist = log.compact(index, state, TAIL);
        // A stored log must not be committed less far than its checkpoint.
        self.stored_hard_state = log.hard_state.clone();
        persist.hard_state = Some(bytes_of(&self.stored_hard_state));
        persist
    }

    /// The library draws election timeouts from the thread's randomness; ours follow from the seed,
    /// the term and the number of attempts, so that a run replays.
    fn note_role(&mut self) {
        let role = self.node.raft.state;
        if role != self.role && matches!(role, StateRole::PreCandidate | StateRole::Candidate) {
            self.campaigns += 1;
        }
        self.role = role;
        let mut rng = Rng::new(self.seed ^ (self.node.raft.term << 20) ^ self.campaigns);
        rng.next_u64();
        let ticks = rng.between(ELECTION_TICKS.0 as u64, ELECTION_TICKS.1 as u64);
        self.node.raft.set_randomized_election_timeout(ticks as usize);
    }
}

fn outgoing(message: Message) -> Outgoing {
    Outgoing { to: message.to, bytes: bytes_of(&message) }
}

impl Outgoing {
    /// Whether this carries a checkpoint: the caller must report its outcome with `Raft::checkpoint_sent`.
    pub fn is_checkpoint(&self) -> bool {
        Message::parse_from_bytes(&self.bytes).is_ok_and(|m| m.get_msg_type() == MessageType::MsgSnapshot)
    }
}

#[cfg(test)]
mod tests;
