use super::*;
use raft::eraftpb::ConfState;
use std::collections::BTreeMap;

/// Some members in one thread, with a network that may lose and disks that may forget.
struct Group {
    members: BTreeMap<u64, Member>,
    /// (from, message)
    wire: Vec<(u64, Outgoing)>,
    rng: Rng,
    loss_per_mille: u64,
    /// Members that hear nothing and are not heard.
    cut_off: BTreeSet<u64>,
}

struct Member {
    raft: Raft,
    saved: Saved,
    /// The state machine: the entries one after the other.
    state: Vec<String>,
    applied: u64,
    reads: Vec<(ReadId, u64)>,
}

impl Member {
    fn start(id: u64, seed: u64, ids: &[u64], saved: Saved) -> Member {
        let raft = Raft::new(id, seed ^ id, ids, &saved).unwrap();
        let (mut state, mut applied) = (Vec::new(), 0);
        if let Some(checkpoint) = raft.checkpoint() {
            state = decode(&checkpoint.state);
            applied = checkpoint.index;
        }
        Member { raft, saved, state, applied, reads: Vec::new() }
    }
}

fn decode(state: &[u8]) -> Vec<String> {
    String::from_utf8(state.to_vec()).unwrap().split_terminator(',').map(String::from).collect()
}
fn encode(state: &[String]) -> Vec<u8> {
    state.iter().flat_map(|s| [s.as_bytes(), b","].concat()).collect()
}

impl Group {
    fn new(n: u64, seed: u64) -> Group {
        let ids: Vec<u64> = (1..=n).collect();
        let members = ids.iter().map(|&id| (id, Member::start(id, seed, &ids, Saved::default()))).collect();
        Group { members, wire: Vec::new(), rng: Rng::new(seed), loss_per_mille: 0, cut_off: BTreeSet::new() }
    }

    fn drain(&mut self) {
        for (&id, member) in &mut self.members {
            while let Some(ready) = member.raft.ready() {
                self.wire.extend(ready.now.into_iter().map(|out| (id, out)));
                if !ready.persist.is_empty() {
                    member.saved.apply(&ready.persist);
                    member.raft.stored(ready.number);
                }
                self.wire.extend(ready.after.into_iter().map(|out| (id, out)));
                if let Some(restored) = ready.restored {
                    (member.state, member.applied) = (decode(&restored.state), restored.index);
                }
                for entry in ready.committed {
                    assert!(entry.index > member.applied);
                    member.state.push(String::from_utf8(entry.data).unwrap());
                    member.applied = entry.index;
                }
                member.reads.extend(ready.reads);
            }
        }
    }

    fn round(&mut self) {
        self.members.values_mut().for_each(|m| m.raft.tick());
        self.drain();
        for (from, out) in std::mem::take(&mut self.wire) {
            let lost = self.rng.chance(self.loss_per_mille);
            if lost || self.cut_off.contains(&from) || self.cut_off.contains(&out.to) {
                if out.is_checkpoint() {
                    self.members.get_mut(&from).unwrap().raft.checkpoint_sent(out.to, false);
                }
                continue;
            }
            let checkpoint = out.is_checkpoint();
            self.members
                .get_mut(&out.to)
                .unwrap()
                .raft
                .step(PeerMessage::decode(&out.bytes).unwrap())
                .unwrap();
            if checkpoint {
                self.members.get_mut(&from).unwrap().raft.checkpoint_sent(out.to, true);
            }
        }
        self.drain();
    }

    fn rounds(&mut self, n: usize) {
        (0..n).for_each(|_| self.round());
    }

    fn leader(&mut self) -> &mut Member {
        for _ in 0..500 {
            let leading =
                |(id, m): (&u64, &Member)| (m.raft.is_leader() && !self.cut_off.contains(id)).then_some(*id);
            if let Some(id) = self.members.iter().find_map(leading) {
                return self.members.get_mut(&id).unwrap();
            }
            self.round();
        }
        panic!("no leader in 500 rounds");
    }

    fn propose(&mut self, text: &str) {
        self.leader().raft.propose(text.into()).unwrap();
    }

    fn restart(&mut self, id: u64) {
        let ids: Vec<u64> = self.members.keys().copied().collect();
        let saved = self.members[&id].saved.clone();
        self.members.insert(id, Member::start(id, 99, &ids, saved));
    }
}

#[test]
fn a_lone_member_leads_and_commits_at_once() {
    let mut g = Group::new(1, 1);
    g.propose("a");
    g.drain();
    assert_eq!(g.members[&1].state, ["a"]);
    g.restart(1);
    g.propose("b");
    g.drain();
    assert_eq!(g.members[&1].state, ["a", "b"]);
}

#[test]
fn nothing_commits_before_it_is_durable() {
    let mut raft = Raft::new(1, 1, &[1], &Saved::default()).unwrap();
    let mut open = Vec::new();
    raft.propose(b"a".to_vec()).unwrap();
    while let Some(ready) = raft.ready() {
        assert_eq!(ready.committed, []);
        open.push(ready.number);
    }
    raft.stored(*open.last().unwrap());
    let ready = raft.ready().unwrap();
    assert_eq!(ready.committed.iter().map(|c| &c.data[..]).collect::<Vec<_>>(), [b"a"]);
}

#[test]
fn three_members_agree_though_messages_are_lost_and_members_restart() {
    for seed in 0..20 {
        let mut g = Group::new(3, seed);
        g.loss_per_mille = 200;
        for n in 0..60 {
            g.propose(&format!("{n}"));
            g.rounds(2);
            if n % 13 == 5 {
                let id = 1 + g.rng.below(3);
                g.restart(id);
            }
            if n % 17 == 3 {
                let applied = g.leader().applied;
                let state = encode(&g.leader().state);
                if applied > 0 {
                    let leader = g.leader();
                    let persist = leader.raft.compact(applied, state);
                    leader.saved.apply(&persist);
                }
            }
        }
        g.loss_per_mille = 0;
        g.rounds(60);
        g.propose("end");
        g.rounds(10);
        let states: Vec<_> = g.members.values().map(|m| &m.state).collect();
        assert!(states[0].len() > 30 && states[0].last().unwrap() == "end", "seed {seed}: {states:?}");
        assert!(states.iter().all(|s| *s == states[0]), "seed {seed}: {states:?}");
    }
}

#[test]
fn a_member_that_was_away_for_long_gets_the_checkpoint() {
    let mut g = Group::new(3, 5);
    g.propose("first");
    g.rounds(3);
    let leader = *g.members.iter().find(|(_, m)| m.raft.is_leader()).unwrap().0;
    let away = leader % 3 + 1;
    g.cut_off.insert(away);
    for n in 0..400 {
        g.propose(&format!("{n}"));
        g.round();
    }
    let m = g.leader();
    let persist = m.raft.compact(m.applied, encode(&m.state));
    m.saved.apply(&persist);
    assert!(m.saved.entries.len() < 200, "{} entries are kept", m.saved.entries.len());
    g.cut_off.clear();
    g.rounds(60);
    let whole = g.leader().state.clone();
    assert_eq!(whole.len(), 401);
    assert_eq!(g.members[&away].state, whole);
}

/// Found by fuzzing: it looked for entries between its own last one and the checkpoint, and died.
#[test]
fn a_member_that_has_a_checkpoint_and_nothing_after_it_can_lead() {
    let mut g = Group::new(3, 5);
    g.propose("first");
    g.rounds(3);
    let leader = *g.members.iter().find(|(_, m)| m.raft.is_leader()).unwrap().0;
    let (away, other) = (leader % 3 + 1, (leader + 1) % 3 + 1);
    g.cut_off.insert(away);
    for n in 0..200 {
        g.propose(&format!("{n}"));
        g.round();
    }
    let m = g.members.get_mut(&leader).unwrap();
    let persist = m.raft.compact(m.applied, encode(&m.state));
    m.saved.apply(&persist);
    g.cut_off = [other].into();
    g.rounds(20);
    g.cut_off = [leader, other].into();
    g.rounds(30); // it wants to, alone in vain
    assert_eq!(g.members[&away].state.len(), 201);
    g.cut_off = [leader].into();
    g.leader();
    g.rounds(5);
    g.propose("after");
    g.rounds(5);
    assert_eq!(g.members[&away].state.len(), 202);
}

#[test]
fn a_leader_cut_off_from_the_majority_steps_down_and_its_entry_is_lost() {
    let mut g = Group::new(3, 8);
    g.propose("kept");
    g.rounds(5);
    let old = *g.members.iter().find(|(_, m)| m.raft.is_leader()).unwrap().0;
    g.cut_off.insert(old);
    g.members.get_mut(&old).unwrap().raft.propose(b"lost".to_vec()).unwrap();
    g.rounds(60);
    assert!(!g.members[&old].raft.is_leader());
    g.propose("new");
    g.rounds(3);
    g.cut_off.clear();
    g.rounds(40);
    assert!(g.members.values().all(|m| m.state == ["kept", "new"]));
}

#[test]
fn a_read_on_any_member_sees_what_was_committed_before_it() {
    let mut g = Group::new(3, 3);
    g.propose("a");
    g.rounds(3);
    let index = g.leader().applied;
    for id in 1..=3 {
        g.members.get_mut(&id).unwrap().raft.read(70 + id);
    }
    g.rounds(5);
    for (id, member) in &g.members {
        let [(read, at)] = member.reads[..] else { panic!("{:?}", member.reads) };
        assert_eq!(read, 70 + id);
        assert!(at >= index);
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed| {
        let mut g = Group::new(3, seed);
        g.loss_per_mille = 300;
        let mut trace = Vec::new();
        for n in 0..300 {
            g.round();
            trace.push(
                g.members.values().map(|m| (m.raft.term(), m.raft.leader(), m.applied)).collect::<Vec<_>>(),
            );
            if let Some(m) = g.members.values_mut().find(|m| m.raft.is_leader()) {
                m.raft.propose(format!("{n}").into_bytes()).unwrap();
            }
        }
        trace
    };
    assert_eq!(run(4), run(4));
    assert_ne!(run(4), run(6));
}

#[test]
fn damaged_bytes_are_refused() {
    let saved = Saved { hard_state: Some(vec![0xff; 3]), ..Saved::default() };
    assert!(Raft::new(1, 1, &[1], &saved).is_none());
    let entry = Entry { index: 7, ..Entry::default() };
    let hole = Saved { entries: BTreeMap::from([(7, bytes_of(&entry))]), ..Saved::default() };
    assert!(Raft::new(1, 1, &[1], &hole).is_none());
    assert!(matches!(PeerMessage::decode(&[0xff; 9]), Err(StepError::Undecodable)));
    // Groups in groups, of a field that nobody knows.
    assert!(matches!(PeerMessage::decode(&vec![0xa3; 1 << 20]), Err(StepError::Undecodable)));
}

/// What the library would panic at.
#[test]
fn what_no_correct_member_sends_is_refused() {
    let mut g = Group::new(3, 1);
    g.propose("a");
    g.rounds(5);
    let leader = *g.members.iter().find(|(_, m)| m.raft.is_leader()).unwrap().0;
    let (to, term) = (leader % 3 + 1, g.members[&leader].raft.term());
    let heard = |g: &mut Group, message: Message| {
        let message = Message { from: leader, to, term, ..message };
        PeerMessage::decode(&bytes_of(&message)).and_then(|m| g.members.get_mut(&to).unwrap().raft.step(m))
    };
    let of_type = |msg_type| Message { msg_type, ..Message::default() };
    let ahead = Message { commit: 1000, ..of_type(MessageType::MsgHeartbeat) };
    assert!(matches!(heard(&mut g, ahead), Err(StepError::Unknown)));
    for kind in [MessageType::MsgPropose, MessageType::MsgReadIndex, MessageType::MsgHup] {
        assert!(matches!(heard(&mut g, of_type(kind)), Err(StepError::Impossible)), "{kind:?}");
    }
    let hole = Entry { index: 9, term, ..Entry::default() };
    let append = Message { index: 1, entries: vec![hole].into(), ..of_type(MessageType::MsgAppend) };
    assert!(matches!(heard(&mut g, append), Err(StepError::Impossible)));
    let mut others = Snapshot::default();
    others.mut_metadata().set_conf_state(ConfState::from((vec![to, 7], vec![])));
    (others.mut_metadata().index, others.mut_metadata().term) = (50, 1);
    let install = Message { snapshot: Some(others).into(), ..of_type(MessageType::MsgSnapshot) };
    assert!(matches!(heard(&mut g, install), Err(StepError::Impossible)));
    g.propose("b");
    g.rounds(5);
    assert!(g.members.values().all(|m| m.state == ["a", "b"]));
}

#[test]
fn one_entry_is_one_write() {
    let mut g = Group::new(1, 1);
    g.propose("a");
    g.drain();
    let raft = &mut g.members.get_mut(&1).unwrap().raft;
    raft.propose(b"b".to_vec()).unwrap();
    let mut writes = 0;
    while let Some(ready) = raft.ready() {
        if !ready.persist.is_empty() {
            writes += 1;
            assert_eq!(ready.persist.entries.len(), 1);
            raft.stored(ready.number);
        }
    }
    assert_eq!(writes, 1);
}

#[test]
fn a_member_that_dies_right_after_a_checkpoint_starts_from_it() {
    let mut g = Group::new(1, 1);
    for n in 0..300 {
        g.propose(&format!("{n}"));
        g.drain();
    }
    let m = g.members.get_mut(&1).unwrap();
    let persist = m.raft.compact(m.applied, encode(&m.state));
    m.saved.apply(&persist);
    let state = m.state.clone();
    g.restart(1);
    assert_eq!(g.members[&1].state, state);
    g.propose("after");
    g.drain();
    assert_eq!(g.members[&1].state.len(), 301);
}
