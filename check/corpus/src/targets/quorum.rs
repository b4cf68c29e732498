//! Raft among monitors: what a member reads from its disk, and what other members send it.

use nacre_raft::{Outgoing, PeerMessage, Raft, Saved};
use nacre_wire::{Decode, DecodeError, Encode, Reader};
use std::collections::VecDeque;

const MEMBERS: [u64; 3] = [1, 2, 3];

struct Member {
    raft: Raft,
    saved: Saved,
    applied: u64,
    sent: VecDeque<Outgoing>,
}

impl Member {
    fn start(id: u64, saved: Saved) -> Option<Member> {
        let raft = Raft::new(id, id, &MEMBERS, &saved)?;
        let applied = raft.checkpoint().map_or(0, |checkpoint| checkpoint.index);
        Some(Member { raft, saved, applied, sent: VecDeque::new() })
    }
    fn carry_out(&mut self) {
        while let Some(ready) = self.raft.ready() {
            self.sent.extend(ready.now);
            if !ready.persist.is_empty() {
                self.saved.apply(&ready.persist);
                self.raft.stored(ready.number);
            }
            self.sent.extend(ready.after);
            let restored = ready.restored.map(|restored| restored.index);
            for index in restored.into_iter().chain(ready.committed.iter().map(|entry| entry.index)) {
                assert!(index > self.applied, "entries come out once and in order");
                self.applied = index;
            }
        }
    }
    fn tick(&mut self, times: usize) {
        for _ in 0..times {
            self.raft.tick();
            self.carry_out();
        }
    }
    fn compact(&mut self) {
        let persist = self.raft.compact(self.applied, b"state".to_vec());
        self.saved.apply(&persist);
    }
}

/// Connected members, and the messages that each received.
struct Group {
    members: Vec<Member>,
    heard: Vec<Vec<Vec<u8>>>,
}

impl Group {
    fn new() -> Group {
        let members = MEMBERS.map(|id| Member::start(id, Saved::default()).expect("nothing is damaged"));
        Group { members: members.into(), heard: vec![Vec::new(); MEMBERS.len()] }
    }
    /// One round of ticks and deliveries, without messages to `lost`.
    fn round(&mut self, lost: Option<u64>) {
        self.members.iter_mut().for_each(|member| member.tick(1));
        while let Some(message) = self.members.iter_mut().find_map(|member| member.sent.pop_front()) {
            if Some(message.to) == lost {
                continue;
            }
            let to = message.to as usize - 1;
            let read = PeerMessage::decode(&message.bytes).expect("a member's message");
            let _ = self.members[to].raft.step(read);
            self.heard[to].push(message.bytes);
            self.members[to].carry_out();
        }
    }
    fn leader(&self) -> Option<usize> {
        self.members.iter().position(|member| member.raft.is_leader())
    }
    fn propose(&mut self, times: usize, lost: Option<u64>) {
        for n in 0..times {
            if let Some(leader) = self.leader() {
                self.members[leader].raft.propose(format!("entry {n}").into_bytes()).expect("it leads");
                self.members[leader].raft.read(n as u64);
            }
            self.round(lost);
        }
    }
}

/// Members that elect a leader, write, make a checkpoint, bring a member up to date by it, and continue under
/// another leader. The last member is the one that is fuzzed.
fn grown() -> Group {
    let mut group = Group::new();
    (0..40).for_each(|_| group.round(None));
    group.propose(3, None);
    let behind = (group.leader().expect("there was time") as u64 + 1) % 3 + 1;
    group.propose(140, Some(behind));
    group.members.iter_mut().filter(|member| member.applied > 100).for_each(Member::compact);
    group.propose(5, None);
    let leader = group.leader().expect("nobody stopped it") as u64 + 1;
    (0..60).for_each(|_| group.round(Some(leader)));
    group.propose(3, None);
    group
}

fn joined<'a>(parts: impl IntoIterator<Item = &'a Vec<u8>>) -> Vec<u8> {
    let mut out = Vec::new();
    parts.into_iter().for_each(|part| part[..].encode(&mut out));
    out
}

/// Hard state, checkpoint and entries, each length-prefixed, entries with their index.
pub fn log_seeds() -> Vec<Vec<u8>> {
    grown()
        .members
        .into_iter()
        .map(|member| {
            let Saved { hard_state, checkpoint, entries } = member.saved;
            let mut out = joined(&[hard_state.unwrap_or_default(), checkpoint.unwrap_or_default()]);
            entries.into_iter().rev().take(8).rev().for_each(|entry| entry.encode(&mut out));
            out
        })
        .collect()
}

pub fn log(input: &[u8]) {
    let read = |r: &mut Reader<'_>| -> Result<Saved, DecodeError> {
        let part = |bytes: &[u8]| (!bytes.is_empty()).then(|| bytes.to_vec());
        let (hard_state, checkpoint) = (part(r.bytes()?), part(r.bytes()?));
        let mut saved = Saved { hard_state, checkpoint, ..Saved::default() };
        while let Ok((index, bytes)) = <(u64, Vec<u8>)>::decode(r) {
            saved.entries.insert(index, bytes);
        }
        Ok(saved)
    };
    let Ok(saved) = read(&mut Reader::new(input)) else { return };
    if let Some(mut member) = Member::start(1, saved) {
        member.carry_out();
        member.tick(40);
        let again = Member::start(1, member.saved.clone());
        assert!(again.is_some(), "what a member wrote it can read");
    }
}

/// Length-prefixed messages to a member.
pub fn seeds() -> Vec<Vec<u8>> {
    let group = grown();
    let mut seeds = Vec::new();
    for heard in &group.heard {
        // The whole history is long; its start and its end have messages of all types.
        seeds.push(joined(heard.iter().take(40)));
        seeds.extend(heard.chunks(8).rev().take(12).map(joined));
    }
    seeds
}

pub fn run(input: &[u8]) {
    for id in MEMBERS {
        let mut member = Member::start(id, Saved::default()).expect("nothing is damaged");
        let r = &mut Reader::new(input);
        while let Ok(bytes) = r.bytes() {
            if let Ok(message) = PeerMessage::decode(bytes) {
                let _ = member.raft.step(message);
            }
            member.carry_out();
            if member.raft.is_leader() {
                member.raft.propose(b"entry".to_vec()).expect("it leads");
            }
            member.tick(3);
        }
        member.tick(40);
    }
}
