//! A message of another member, judged before the library sees it.
//!
//! The library trusts its peers: it panics at messages that no correct member sends. Ours may be
//! a stranger that claims to be a monitor, or a member whose disk lost something, so `decode` refuses
//! what is impossible in itself, and `Raft::step` what is impossible here.

use crate::StepError;
use crate::change::Change;
use raft::eraftpb::{ConfState, Entry, EntryType, Message, MessageType, Snapshot};

/// No log gets there, and below it sums do not overflow.
pub(crate) const NUMBER_MAX: u64 = 1 << 60;

/// No cluster has that many monitors.
pub(crate) const MEMBERS_MAX: usize = 64;

/// What a member said to another.
#[derive(Debug)]
pub struct PeerMessage(pub(crate) Message);

impl PeerMessage {
    pub fn decode(bytes: &[u8]) -> Result<PeerMessage, StepError> {
        let message: Message = parse(bytes, &MESSAGE).ok_or(StepError::Undecodable)?;
        if is_possible(&message) { Ok(PeerMessage(message)) } else { Err(StepError::Impossible) }
    }
    /// The claimed sender.
    pub fn from(&self) -> u64 {
        self.0.from
    }
    /// Whether it answers a message that only a leader sends.
    pub fn is_answer(&self) -> bool {
        let kind = self.0.get_msg_type();
        matches!(kind, MessageType::MsgAppendResponse | MessageType::MsgHeartbeatResponse)
    }
    /// What was proposed and comes with this message.
    pub fn proposals(&self) -> impl Iterator<Item = &[u8]> {
        self.0.entries.iter().map(proposal).filter(|data| !data.is_empty())
    }
    /// The state in the checkpoint that this message carries.
    pub fn checkpoint(&self) -> Option<&[u8]> {
        (self.0.get_msg_type() == MessageType::MsgSnapshot).then(|| self.0.get_snapshot().get_data())
    }
}

/// What was given to `Raft::propose` or `Raft::propose_change`; empty for entries of the library's own.
pub(crate) fn proposal(entry: &Entry) -> &[u8] {
    match entry.get_entry_type() {
        EntryType::EntryNormal => entry.get_data(),
        EntryType::EntryConfChange | EntryType::EntryConfChangeV2 => entry.get_context(),
    }
}

fn is_possible(message: &Message) -> bool {
    let numbers = [
        message.term,
        message.log_term,
        message.index,
        message.commit,
        message.commit_term,
        message.reject_hint,
        message.request_snapshot,
    ];
    let entries = message.get_entries();
    let kind = message.get_msg_type();
    numbers.iter().all(|&number| number < NUMBER_MAX)
        && (message.term > 0 || kind == MessageType::MsgReadIndex)
        && match kind {
            MessageType::MsgAppend => {
                // Term zero is the library's word for "no such entry".
                (message.log_term > 0) == (message.index > 0)
                    && message.log_term <= message.term
                    && follow(entries, message.index, message.log_term, message.term)
            }
            MessageType::MsgSnapshot => is_whole(message.get_snapshot(), message.term),
            // The number of the read, as `Raft::read` writes it.
            MessageType::MsgReadIndex | MessageType::MsgReadIndexResp => {
                matches!(entries, [entry] if entry.data.len() == 8)
            }
            MessageType::MsgHeartbeat
            | MessageType::MsgAppendResponse
            | MessageType::MsgHeartbeatResponse
            | MessageType::MsgRequestVote
            | MessageType::MsgRequestVoteResponse
            | MessageType::MsgRequestPreVote
            | MessageType::MsgRequestPreVoteResponse
            | MessageType::MsgTimeoutNow => entries.is_empty(),
            // What members tell themselves, proposals (only a leader's own) and wishes to lead.
            _ => false,
        }
}

/// Whether these entries can come after the one with `index` and `term`; none is newer than `newest`.
pub(crate) fn follow<'a>(
    entries: impl IntoIterator<Item = &'a Entry>,
    index: u64,
    term: u64,
    newest: u64,
) -> bool {
    let mut last = (index, term);
    entries.into_iter().all(|entry| {
        let next = entry.index == last.0 + 1 && (last.1.max(1)..=newest).contains(&entry.term);
        last = (entry.index, entry.term);
        next && (entry.get_entry_type() == EntryType::EntryNormal || Change::of(entry).is_some())
    })
}

fn is_whole(checkpoint: &Snapshot, term: u64) -> bool {
    let metadata = checkpoint.get_metadata();
    (1..NUMBER_MAX).contains(&metadata.index)
        && (1..=term).contains(&metadata.term)
        && members(metadata.get_conf_state()).is_some()
}

/// The members, if they are a plain group.
pub(crate) fn members(state: &ConfState) -> Option<Vec<u64>> {
    let mut voters = state.get_voters().to_vec();
    voters.sort_unstable();
    let distinct = voters.windows(2).all(|pair| pair[0] != pair[1]);
    let some = (1..=MEMBERS_MAX).contains(&voters.len()) && voters[0] > 0;
    let plain = state.get_learners().is_empty()
        && state.get_voters_outgoing().is_empty()
        && state.get_learners_next().is_empty()
        && !state.get_auto_leave();
    (distinct && some && plain).then_some(voters)
}

/// The fields of a message that are messages themselves.
pub(crate) struct Shape(&'static [(u64, &'static Shape)]);

pub(crate) const PLAIN: Shape = Shape(&[]);
pub(crate) const SNAPSHOT: Shape = Shape(&[(2, &Shape(&[(1, &PLAIN)]))]);
const MESSAGE: Shape = Shape(&[(7, &PLAIN), (9, &SNAPSHOT)]);

/// As the library does it, but not with lengths beyond the end, for which it allocates memory first, nor
/// with groups: an ancient way to nest, which is not used here, and which the library skips by
/// recursion, until the stack is full.
pub(crate) fn parse<M: protobuf::Message>(bytes: &[u8], shape: &Shape) -> Option<M> {
    well_formed(bytes, shape)?;
    M::parse_from_bytes(bytes).ok()
}

fn well_formed(mut bytes: &[u8], shape: &Shape) -> Option<()> {
    while !bytes.is_empty() {
        let tag = varint(&mut bytes)?;
        let len = match tag & 7 {
            0 => varint(&mut bytes).map(|_| 0)?,
            1 => 8,
            2 => varint(&mut bytes)?,
            5 => 4,
            _ => return None,
        };
        let (field, rest) = bytes.split_at_checked(usize::try_from(len).ok()?)?;
        if let Some((_, inner)) = shape.0.iter().find(|(number, _)| tag == number << 3 | 2) {
            well_formed(field, inner)?;
        }
        bytes = rest;
    }
    Some(())
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let last = bytes.iter().take(10).position(|byte| byte & 0x80 == 0)?;
    let (number, rest) = bytes.split_at(last + 1);
    *bytes = rest;
    Some(number.iter().rev().fold(0, |sum, byte| sum << 7 | u64::from(byte & 0x7f)))
}
