use super::*;
use raft::eraftpb::{ConfState, Snapshot};
use std::collections::BTreeMap;

/// Some members in one thread, with a network that may lose and disks that may forget.
struct Group {
    members: BTreeMap<u64, Member>,
    /// (from, message)
    wire: Vec<(u64, Outgoing)>,
    rng: Rng,
    loss_per_mille: u64,
    /// Members that neither receive nor send.
    cut_off: BTreeSet<u64>,
    /// Those of the beginning.
    first: Vec<u64>,
    /// The leader of each term.
    led: BTreeMap<u64, u64>,
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
        let mut saved = saved;
        if let Some(persist) = raft.beginning() {
            saved.apply(&persist);
        }
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
        let (rng, cut_off, led) = (Rng::new(seed), BTreeSet::new(), BTreeMap::new());
        Group { members, wire: Vec::new(), rng, loss_per_mille: 0, cut_off, first: ids, led }
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
                let mut changed = false;
                for entry in ready.committed {
                    assert!(entry.index > member.applied);
                    member.state.push(String::from_utf8(entry.data).unwrap());
                    member.applied = entry.index;
                    changed |= entry.change.is_some();
                }
                if changed {
                    let persist = member.raft.compact(member.applied, encode(&member.state));
                    member.saved.apply(&persist);
                }
                member.reads.extend(ready.reads);
            }
            if member.raft.is_leader() {
                let leader = *self.led.entry(member.raft.term()).or_insert(id);
                assert_eq!(leader, id, "two led in term {}", member.raft.term());
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
            let stepped =
                self.members.get_mut(&out.to).unwrap().raft.step(PeerMessage::decode(&out.bytes).unwrap());
            // A member that was removed, or is not known here yet.
            assert!(matches!(stepped, Ok(()) | Err(StepError::Stranger { .. })), "{stepped:?}");
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
        let saved = self.members[&id].saved.clone();
        let ids = if self.first.contains(&id) { &self.first[..] } else { &[] };
        self.members.insert(id, Member::start(id, 99, ids, saved));
    }

    /// One more, which waits until it is added.
    fn newcomer(&mut self) -> u64 {
        let id = self.members.keys().max().unwrap() + 1;
        self.members.insert(id, Member::start(id, 7, &[], Saved::default()));
        id
    }

    fn change(&mut self, change: Change) {
        for _ in 0..500 {
            if self.leader().raft.propose_change(change, format!("{change:?}").into()).is_ok() {
                return;
            }
            self.round();
        }
        panic!("no leader takes {change:?}");
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
    // Groups in groups, of an unknown field.
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
    others.mut_metadata().set_conf_state(ConfState::from((vec![leader, 7], vec![])));
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

#[test]
fn a_lone_member_becomes_three_and_one_again() {
    let mut g = Group::new(1, 4);
    g.propose("a");
    g.drain();
    for _ in 0..2 {
        let id = g.newcomer();
        g.rounds(30);
        assert!(!g.members[&id].raft.is_leader(), "it leads itself");
        g.change(Change::Add(id));
        g.rounds(30);
    }
    assert_eq!(g.leader().raft.members(), [1, 2, 3]);
    g.propose("b");
    g.rounds(5);
    let state = ["a", "Add(2)", "Add(3)", "b"];
    assert!(g.members.values().all(|m| m.state == state && m.raft.members() == [1, 2, 3]));
    // Two of three are a majority, also after a restart of all members.
    g.cut_off = [1].into();
    (1..=3).for_each(|id| g.restart(id));
    g.rounds(60);
    g.propose("c");
    g.rounds(5);
    assert!(!g.members[&1].raft.is_leader() && !g.members[&1].state.contains(&"c".to_string()));
    g.cut_off.clear();
    g.rounds(30);
    for id in [1, 2] {
        if g.leader().raft.node.raft.id == id {
            g.leader().raft.hand_over(3);
            assert!(g.leader().raft.is_handing_over());
            g.rounds(5);
        }
        g.change(Change::Remove(id));
        g.rounds(5);
        g.cut_off.insert(id);
    }
    assert_eq!(g.leader().raft.members(), [3]);
    g.propose("d");
    g.drain();
    assert_eq!(g.members[&3].state.last().unwrap(), "d");
    // The last one stays.
    g.change(Change::Remove(3));
    g.drain();
    assert_eq!(g.leader().raft.members(), [3]);
}

#[test]
fn leader_transfers_leadership_at_once() {
    let mut g = Group::new(3, 6);
    g.propose("a");
    g.rounds(5);
    let old = g.leader().raft.node.raft.id;
    let next = old % 3 + 1;
    g.leader().raft.hand_over(next);
    g.rounds(4);
    assert_eq!(g.leader().raft.node.raft.id, next);
    // To a member that does not answer: the leader stays.
    g.cut_off.insert(old);
    g.leader().raft.hand_over(old);
    assert!(g.leader().raft.propose(b"lost".to_vec()).is_err());
    g.rounds(30);
    assert!(!g.leader().raft.is_handing_over());
    g.propose("b");
    g.rounds(5);
    assert_eq!(g.leader().state, ["a", "b"]);
}

#[test]
fn members_come_and_go_while_messages_are_lost_and_members_restart() {
    for seed in 0..60 {
        let mut g = Group::new(1 + seed % 3, seed);
        g.loss_per_mille = 100;
        for n in 0..40 {
            g.propose(&format!("{n}"));
            g.rounds(3);
            match g.rng.below(6) {
                0 | 1 => {
                    let ids: Vec<u64> = g.members.keys().copied().collect();
                    let id = *g.rng.pick(&ids).unwrap();
                    g.restart(id);
                }
                2 if g.leader().raft.members().len() < 5 => {
                    let id = g.newcomer();
                    g.change(Change::Add(id));
                }
                3 => {
                    let leader = g.leader();
                    let (own, members) = (leader.raft.node.raft.id, leader.raft.members());
                    let others: Vec<u64> = members.into_iter().filter(|id| *id != own).collect();
                    if let Some(&id) = g.rng.pick(&others) {
                        g.change(Change::Remove(id));
                    }
                }
                4 => {
                    let members = g.leader().raft.members();
                    let id = *g.rng.pick(&members).unwrap();
                    g.leader().raft.hand_over(id);
                }
                _ => {}
            }
            g.rounds(10);
        }
        g.loss_per_mille = 0;
        g.rounds(100);
        g.propose("end");
        g.rounds(20);
        let members = g.leader().raft.members();
        let states: Vec<_> = members.iter().map(|id| &g.members[id].state).collect();
        assert!(states[0].last().unwrap() == "end", "seed {seed}: {:?}", states[0]);
        assert!(states.iter().all(|s| *s == states[0]), "seed {seed}: {states:?}");
        for (id, m) in g.members.iter().filter(|(id, _)| !members.contains(id)) {
            assert!(states[0].starts_with(&m.state), "seed {seed}: member {id} has seen something else");
        }
    }
}

/// Its checkpoint could not be read again.
#[test]
fn a_group_has_no_more_members_than_a_checkpoint_may_name() {
    let ids: Vec<u64> = (1..=64).collect();
    let mut raft = Raft::new(1, 1, &ids, &Saved::default()).unwrap();
    for (index, change) in [(1, Change::Add(65)), (2, Change::Remove(64)), (3, Change::Add(66))] {
        let data = bytes_of(&change.to_library()).into();
        let entry_type = raft::eraftpb::EntryType::EntryConfChange;
        let context = b"change".to_vec().into();
        let entry = Entry { index, term: 1, entry_type, data, context, ..Entry::default() };
        let append = Message {
            msg_type: MessageType::MsgAppend,
            entries: vec![entry].into(),
            from: 2,
            to: 1,
            term: 1,
            index: index - 1,
            log_term: u64::from(index > 1),
            commit: index,
            ..Message::default()
        };
        raft.step(PeerMessage::decode(&bytes_of(&append)).unwrap()).unwrap();
        while let Some(ready) = raft.ready() {
            raft.stored(ready.number);
        }
    }
    assert_eq!((raft.members().len(), raft.members().last()), (64, Some(&66)));
}

/// It would have no members but itself.
#[test]
fn new_member_starts_from_a_checkpoint() {
    let mut raft = Raft::new(4, 1, &[], &Saved::default()).unwrap();
    let change = Change::Add(4).to_library();
    let data = bytes_of(&change).into();
    let entry_type = raft::eraftpb::EntryType::EntryConfChange;
    let context = b"change".to_vec().into();
    let entry = Entry { index: 1, term: 1, entry_type, data, context, ..Entry::default() };
    let append = Message {
        msg_type: MessageType::MsgAppend,
        entries: vec![entry.clone()].into(),
        from: 1,
        to: 4,
        term: 1,
        commit: 1,
        ..Message::default()
    };
    let stepped = PeerMessage::decode(&bytes_of(&append)).and_then(|message| raft.step(message));
    assert!(matches!(stepped, Err(StepError::Unknown)), "{stepped:?}");
    // Nor does a member take a change that no member proposes.
    for data in [vec![0xff], bytes_of(&Change::Add(0).to_library()), Vec::new()] {
        let entry = Entry { data: data.into(), ..entry.clone() };
        let append = Message { entries: vec![entry].into(), ..append.clone() };
        assert!(matches!(PeerMessage::decode(&bytes_of(&append)), Err(StepError::Impossible)));
    }
    // Nor one that means nothing to the state: there would be nothing to apply.
    let bare = Entry { context: Vec::new().into(), ..entry };
    let append = Message { entries: vec![bare].into(), ..append };
    assert!(matches!(PeerMessage::decode(&bytes_of(&append)), Err(StepError::Impossible)));
}
