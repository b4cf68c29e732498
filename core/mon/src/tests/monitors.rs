//! Several monitors, and how they come and go.

use super::*;
use nacre_base::errno;
use std::collections::BTreeSet;

/// Delivers messages between monitors until none is left, then advances the time.
pub(super) struct Group {
    pub mons: Vec<TestMon>,
    /// (dialling monitor, its connection) to (accepting monitor, its connection)
    links: BTreeMap<(usize, ConnId), (usize, ConnId)>,
    dead: BTreeSet<usize>,
    /// Bytes of the longest message of Raft's.
    longest: usize,
}

impl Group {
    pub fn of(count: usize) -> Group {
        let now = Now { mono: Time::from_nanos(1 << 40), wall: Utime { sec: 1_800_000_000, nsec: 0 } };
        let mons =
            (0..count).map(|n| TestMon::start_with(config(n, count, 40 + n as u64), Omaps::default(), now));
        Group { mons: mons.collect(), links: BTreeMap::new(), dead: BTreeSet::new(), longest: 0 }
    }
    fn round(&mut self) {
        for n in 0..self.mons.len() {
            for (conn, to) in std::mem::take(&mut self.mons[n].dialled) {
                let other = usize::from(to.sock.unwrap().port() - 3300);
                if other >= self.mons.len() || [n, other].iter().any(|n| self.dead.contains(n)) {
                    self.mons[n].event(Event::Closed { conn, why: Closed::Refused });
                    continue;
                }
                let num = |n: usize| self.mons[n].config.id as i64 - 1;
                let (own, its) = (num(n), num(other));
                let accepted = self.mons[other].open(EntityType::Mon, own, addr(3300 + n as u16, 0));
                self.links.insert((n, conn), (other, accepted));
                let peer = Peer {
                    kind: EntityType::Mon,
                    num: its,
                    addrs: AddrVec::one(to),
                    observed: to,
                    features: 1,
                    auth_name: None,
                    proved: None,
                };
                self.mons[n].event(Event::Opened { conn, peer });
            }
            for ((from, conn), (to, accepted)) in self.links.clone() {
                for (_, message) in self.mons[from].sent.remove(&conn).into_iter().flatten() {
                    if let Message::Quorum(QuorumMsg::Raft(bytes)) = &message {
                        self.longest = self.longest.max(bytes.len());
                    }
                    if !self.dead.contains(&from) && !self.dead.contains(&to) {
                        self.mons[to].event(Event::Message { conn: accepted, tid: 0, message });
                    }
                }
                for (_, message) in self.mons[to].sent.remove(&accepted).into_iter().flatten() {
                    if !self.dead.contains(&from) && !self.dead.contains(&to) {
                        self.mons[from].event(Event::Message { conn, tid: 0, message });
                    }
                }
            }
        }
    }
    pub fn pass(&mut self, millis: u64) {
        for _ in 0..millis / 50 {
            for n in self.alive() {
                self.mons[n].pass(Duration::from_millis(50));
            }
            (0..6).for_each(|_| self.round());
        }
    }
    pub fn is_alive(&self, n: usize) -> bool {
        !self.dead.contains(&n)
    }
    fn alive(&self) -> Vec<usize> {
        (0..self.mons.len()).filter(|n| !self.dead.contains(n)).collect()
    }
    pub fn leader(&self) -> usize {
        self.find_leader().expect("a leader")
    }
    pub fn find_leader(&self) -> Option<usize> {
        self.alive().into_iter().find(|&n| self.mons[n].mon.leading.is_some())
    }
    /// A killed one runs again.
    pub fn revive(&mut self, n: usize) {
        self.dead.remove(&n);
    }
    /// A killed one starts again with what it has stored.
    pub fn restart(&mut self, n: usize) {
        self.revive(n);
        let config = MonConfig { seed: self.mons[n].config.seed + 1, ..self.mons[n].config.clone() };
        let store = std::mem::take(&mut self.mons[n].store);
        let now = self.mons.iter().map(|t| t.now).max_by_key(|now| now.mono).expect("monitors");
        self.mons[n] = TestMon::start_with(config, store, now);
    }
    pub fn kill(&mut self, n: usize) {
        self.dead.insert(n);
        let broken: Vec<_> = self.links.keys().filter(|(from, _)| *from != n).copied().collect();
        for (from, conn) in broken {
            if self.links[&(from, conn)].0 == n {
                self.links.remove(&(from, conn));
                self.mons[from].event(Event::Closed { conn, why: Closed::Reset });
            }
        }
        self.links.retain(|(from, _), _| *from != n);
    }
}

#[test]
fn three_monitors_agree_and_a_follower_passes_requests_on() {
    let mut group = Group::of(3);
    group.pass(10_000);
    let leader = group.leader();
    let follower = (leader + 1) % 3;
    let conn = group.mons[follower].client();
    let cmd = vec![json!({ "prefix": "osd set", "key": "noout" }).to_string()];
    let message = MonCommand { version: PaxosVersion(0), fsid: [0; 16], cmd, input: Bytes::new() };
    group.mons[follower].send(conn, message);
    group.mons[follower].send(conn, MonGetVersion { handle: 1, what: "osdmap".into() });
    group.pass(1000);
    let got = group.mons[follower].received(conn);
    assert!(got.iter().any(|m| matches!(m, Message::MonCommandAck(ack) if ack.retval == 0)), "{got:?}");
    assert!(got.iter().any(|m| matches!(m, Message::MonGetVersionReply(r) if r.version >= 1)), "{got:?}");
    let maps: Vec<OsdMap> = group.mons.iter().map(TestMon::map).collect();
    assert_eq!(maps[0].epoch, Epoch(2));
    assert!(maps.iter().all(|map| *map == maps[0]));
    assert_eq!(group.mons[leader].mon.quorum(), [0, 1, 2]);
}

/// The leader replies in the session that it dials. A request that is forwarded while that is down has its
/// reply lost, so its client is hung up on when the session is back (the simulator's seed 0x1b6).
#[test]
fn request_forwarded_without_a_session_of_the_leader_is_asked_again() {
    let mut group = Group::of(3);
    group.pass(10_000);
    let leader = group.leader();
    let follower = (leader + 1) % 3;
    let (conn, accepted) = *group
        .links
        .iter()
        .find_map(|((from, conn), (to, accepted))| {
            (*from == leader && *to == follower).then_some((*conn, *accepted))
        })
        .as_ref()
        .expect("the leader dialled");
    group.links.remove(&(leader, conn));
    group.mons[leader].event(Event::Closed { conn, why: Closed::Reset });
    group.mons[follower].event(Event::Closed { conn: accepted, why: Closed::Reset });
    let client = group.mons[follower].client();
    let cmd = vec![json!({ "prefix": "osd set", "key": "noout" }).to_string()];
    let message = MonCommand { version: PaxosVersion(0), fsid: [0; 16], cmd, input: Bytes::new() };
    group.mons[follower].send(client, message);
    group.pass(200);
    assert_eq!(group.mons[leader].map().epoch, Epoch(2), "it was carried out");
    assert!(group.mons[follower].received(client).is_empty());
    group.pass(2000);
    assert!(group.mons[follower].hung_up.contains(&client));
}

#[test]
fn two_monitors_go_on_without_the_third() {
    let mut group = Group::of(3);
    group.pass(10_000);
    let old = group.leader();
    group.kill(old);
    group.pass(10_000);
    let new = group.leader();
    assert_ne!(new, old);
    group.mons[new].run_later(json!({ "prefix": "osd set", "key": "noout" }));
    group.pass(1000);
    let alive = (0..3).filter(|n| *n != old);
    assert!(alive.map(|n| group.mons[n].map().epoch).all(|epoch| epoch == Epoch(2)));
}

impl TestMon {
    pub(super) fn run_later(&mut self, command: Value) {
        let conn = self.client();
        let cmd = vec![command.to_string()];
        self.send(conn, MonCommand { version: PaxosVersion(0), fsid: [0; 16], cmd, input: Bytes::new() });
    }
}

#[test]
fn followers_get_ids_of_their_own_and_answer_for_themselves() {
    let mut group = Group::of(3);
    group.pass(10_000);
    let mut granted: Vec<_> = group.mons.iter().flat_map(|t| t.granted.clone()).collect();
    granted.sort_by_key(|ids| ids.start);
    assert_eq!(granted.len(), 3);
    assert!(granted.windows(2).all(|w| w[0].end <= w[1].start), "{granted:?}");
    let follower = (group.leader() + 1) % 3;
    let conn = group.mons[follower].client();
    let ask = Command { fsid: [0; 16], cmd: vec![r#"{"prefix":"mon_status"}"#.into()], input: Bytes::new() };
    let Message::CommandReply(reply) = group.mons[follower].ask(conn, ask) else { panic!("no answer") };
    let status: Value = serde_json::from_slice(&reply.output).unwrap();
    assert_eq!(status["state"], "peon");
}

#[test]
fn sessions_with_requests_for_a_dead_leader_are_closed() {
    let mut group = Group::of(3);
    group.pass(10_000);
    let old = group.leader();
    let follower = (old + 1) % 3;
    let conn = group.mons[follower].client();
    let idle = group.mons[follower].client();
    let cmd = vec![json!({ "prefix": "osd set", "key": "noout" }).to_string()];
    group.dead.insert(old);
    let message = MonCommand { version: PaxosVersion(0), fsid: [0; 16], cmd, input: Bytes::new() };
    group.mons[follower].send(conn, message);
    group.kill(old);
    group.pass(10_000);
    assert!(group.mons[follower].hung_up.contains(&conn));
    assert!(!group.mons[follower].hung_up.contains(&idle) || group.leader() == follower);
}

#[test]
fn sessions_are_closed_when_the_link_to_the_leader_breaks_in_either_direction() {
    for is_dialled in [true, false] {
        let mut group = Group::of(3);
        group.pass(10_000);
        let leader = group.leader();
        let follower = (leader + 1) % 3;
        let (waits, idle) = (group.mons[follower].client(), group.mons[follower].client());
        let cmd = vec![json!({ "prefix": "osd set", "key": "noout" }).to_string()];
        let message = MonCommand { version: PaxosVersion(0), fsid: [0; 16], cmd, input: Bytes::new() };
        group.mons[follower].send(waits, message);
        let (dials, other) = if is_dialled { (follower, leader) } else { (leader, follower) };
        let link = group.links.iter().find(|((from, _), (to, _))| (*from, *to) == (dials, other)).unwrap();
        let conn = if is_dialled { link.0.1 } else { link.1.1 };
        group.mons[follower].event(Event::Closed { conn, why: Closed::Reset });
        assert!(group.mons[follower].hung_up.contains(&waits));
        assert!(!group.mons[follower].hung_up.contains(&idle));
    }
}

#[test]
fn peons_report_ended_osd_sessions_to_the_leader() {
    for with_its_monitor in [false, true] {
        let mut group = Group::of(3);
        group.pass(10_000);
        let leader = group.leader();
        let follower = (leader + 1) % 3;
        let conns: Vec<ConnId> = (0..4)
            .map(|osd| {
                let at = if osd < 2 { leader } else { follower };
                group.mons[at].boot(osd, 6900 + osd as u16, 1)
            })
            .collect();
        group.pass(1_000);
        assert_eq!(group.mons[leader].map().up_osds().count(), 4);
        let refused = |group: &mut Group, target: i32| {
            let map = group.mons[leader].map();
            let target_addrs = map.osds[target as usize].public_addrs.clone();
            let evidence = FailureEvidence::Refused;
            let failure = OsdFailure { target: OsdId(target), target_addrs, epoch: map.epoch, evidence };
            group.mons[leader].send(conns[0], DaemonMsg::Failure(failure));
            group.pass(300);
            let map = group.mons[leader].map();
            assert!(map.is_down(OsdId(target)));
            map.osd(OsdId(target)).unwrap().xinfo.dead_epoch == map.epoch
        };
        // It still has a session with its monitor: a firewall in between may have refused.
        assert!(!refused(&mut group, 2));
        match with_its_monitor {
            true => group.kill(follower),
            false => {
                group.mons[follower].event(Event::Closed { conn: conns[3], why: Closed::Reset });
                group.round();
            }
        }
        assert!(refused(&mut group, 3));
    }
}

/// The removal found nothing to remove, and was answered as done before the monitor was added.
#[test]
fn monitor_added_and_removed_in_one_batch_is_removed_later() {
    let mut m = TestMon::with_osds(3).0;
    let add = json!({ "prefix": "mon add", "name": "b", "addr": "127.0.0.1:3301" });
    let remove = json!({ "prefix": "mon rm", "name": "b" });
    let first = json!({ "prefix": "config set", "who": "osd", "name": "osd_max_backfills", "value": "2" });
    assert_eq!(m.at_once(&[first, add, remove.clone()]), [0, 0, -errno::EAGAIN]);
    assert_eq!(m.command(remove).0, 0);
    assert_eq!(m.mon.state.as_ref().unwrap().monmap.map.mons.len(), 1);
}

impl Group {
    /// What `ceph` gets from the leader.
    pub fn run(&mut self, command: Value) -> (i32, String) {
        let leader = self.leader();
        let conn = self.mons[leader].client();
        let cmd = vec![command.to_string()];
        let message = MonCommand { version: PaxosVersion(0), fsid: [0; 16], cmd, input: Bytes::new() };
        self.mons[leader].send(conn, message);
        self.pass(1000);
        let answer = self.mons[leader].received(conn).into_iter().find_map(|message| match message {
            Message::MonCommandAck(ack) => Some((ack.retval, ack.status)),
            _ => None,
        });
        // As `ceph` does when it is hung up on.
        answer.unwrap_or_else(|| self.run(command))
    }

    /// A monitor with a new store, in a new place unless a dead one left its own.
    fn start_new(&mut self, name: &str, id: u64, place: usize) {
        let mut config = config(0, 1, 90 + id);
        let member = Member { id, name: name.into(), addrs: addr(3300 + place as u16, 0), initial: false };
        let own = |n: usize| &self.mons[n].config;
        let others = self.alive().into_iter().filter(|n| *n != place);
        let others = others.flat_map(|n| own(n).members.iter().find(|other| other.id == own(n).id).cloned());
        config.members = others.chain([member]).collect();
        (config.id, config.name) = (id, name.to_string());
        let mon = TestMon::start_with(config, Omaps::default(), self.mons[0].now);
        match place < self.mons.len() {
            true => self.mons[place] = mon,
            false => self.mons.push(mon),
        }
        self.links.retain(|(from, _), (to, _)| *from != place && *to != place);
        self.dead.remove(&place);
    }

    pub fn members(&self, n: usize) -> Vec<u64> {
        self.mons[n].mon.state.as_ref().unwrap().monmap.members.keys().copied().collect()
    }
}

#[test]
fn single_monitor_gets_two_peers_and_does_not_wait_for_absent_ones() {
    let mut group = Group::of(1);
    group.pass(3000);
    assert_eq!(group.run(json!({ "prefix": "mon add", "name": "b", "addr": "127.0.0.1:3301" })).0, 0);
    // Expected, but it decides alone as before.
    assert_eq!(group.run(json!({ "prefix": "osd set", "key": "noout" })).0, 0);
    assert_eq!((group.mons[0].mon.quorum(), group.members(0)), (vec![0], vec![1]));
    assert!(group.mons[0].run(json!({ "prefix": "health" })).contains("1/2 mons down, quorum a"));
    // That another one with a higher number comes first does not matter.
    group.start_new("b", 3, 1);
    group.pass(5000);
    assert_eq!((group.members(0), group.members(1)), (vec![1, 3], vec![1, 3]));
    assert_eq!(group.mons[1].mon.quorum(), [0, 1]);
    // Monitor c was not added.
    group.start_new("c", 2, 2);
    group.pass(5000);
    assert_eq!(group.members(0), [1, 3]);
    let (code, said) = group.run(json!({ "prefix": "mon add", "name": "c", "addr": "127.0.0.1:3302" }));
    assert_eq!((code, &*said), (0, "adding mon.c at [v2:127.0.0.1:3302/0]: it joins when it runs"));
    group.pass(5000);
    assert_eq!(group.members(2), [1, 2, 3]);
    assert_eq!(group.mons[2].map(), group.mons[0].map());
    // Any two of them continue.
    group.kill(0);
    group.pass(5000);
    assert_eq!(group.run(json!({ "prefix": "osd unset", "key": "noout" })).0, 0);
}

#[test]
fn a_dead_monitor_is_replaced_at_its_address() {
    let mut group = Group::of(3);
    group.pass(10_000);
    let dead = (group.leader() + 1) % 3;
    group.kill(dead);
    let name = ["a", "b", "c"][dead];
    assert_eq!(group.run(json!({ "prefix": "mon rm", "name": name })).0, 0);
    let leader = group.leader();
    assert_eq!(group.mons[leader].mon.state.as_ref().unwrap().monmap.map.ranks.len(), 2);
    let at = format!("127.0.0.1:{}", 3300 + dead);
    assert_eq!(group.run(json!({ "prefix": "mon add", "name": name, "addr": at })).0, 0);
    group.start_new(name, 4, dead);
    group.pass(5000);
    let members = group.members(group.leader());
    assert!(members.len() == 3 && members.contains(&4), "{members:?}");
    assert_eq!(group.mons[dead].mon.quorum(), [0, 1, 2]);
    // The new one has the last rank.
    assert_eq!(group.mons[dead].mon.rank(), Some(2));
}

#[test]
fn removed_monitor_serves_no_client_also_after_absence() {
    let mut group = Group::of(3);
    group.pass(10_000);
    let leader = group.leader();
    let name = |n: usize| ["a", "b", "c"][n];
    let (away, other) = ((leader + 1) % 3, (leader + 2) % 3);
    group.kill(away);
    // The rest would have no majority.
    let (code, said) = group.run(json!({ "prefix": "mon rm", "name": name(other) }));
    assert_eq!(code, -errno::EBUSY, "{said}");
    assert_eq!(group.run(json!({ "prefix": "mon rm", "name": name(away) })).0, 0);
    let old = std::mem::take(&mut group.mons[away].store);
    let config = group.mons[away].config.clone();
    group.mons[away] = TestMon::start_with(config, old, group.mons[leader].now);
    group.dead.remove(&away);
    group.pass(5000);
    assert!(group.mons[away].mon.retired.is_some() && group.mons[leader].mon.retired.is_none());
    // Callers that know no other monitor must get in to be told.
    assert!(group.mons[away].granted.iter().any(|ids| ids.start >= 1 << 62 && !ids.is_empty()));
    // The leader lets the other one lead, which removes it.
    assert_eq!(group.run(json!({ "prefix": "mon rm", "name": name(leader) })).0, 0);
    group.pass(2000);
    let said = format!("mon.{} hands over the leadership to mon.{}", name(leader), name(other));
    assert!(group.mons[leader].logged.contains(&said), "{:?}", group.mons[leader].logged);
    // The removed monitor only sends the monitor map.
    let conn = group.mons[leader].client();
    group.mons[leader].send(conn, MonGetVersion { handle: 1, what: "osdmap".into() });
    group.mons[leader].send(conn, MonGetMap);
    let got = group.mons[leader].received(conn);
    let [Message::MonMap(MonMapMsg { map })] = &got[..] else { panic!("{got:?}") };
    assert_eq!(from_slice::<nacre_proto::maps::MonMap>(map).unwrap().ranks, [name(other)]);
    group.kill(leader);
    assert_eq!((group.leader(), group.members(other).len()), (other, 1));
    let (code, said) = group.run(json!({ "prefix": "mon rm", "name": name(other) }));
    assert_eq!(code, -errno::EINVAL, "{said}");
    assert_eq!(group.run(json!({ "prefix": "osd set", "key": "noout" })).0, 0);
    let again = group.run(json!({ "prefix": "mon rm", "name": name(leader) }));
    assert_eq!(again.0, 0, "{}", again.1);
}

#[test]
fn addresses_of_monitors_are_of_msgr_v2() {
    let mut group = Group::of(1);
    group.pass(3000);
    let mut add = |name: &str, addr: &str| {
        let (code, said) = group.run(json!({ "prefix": "mon add", "name": name, "addr": addr }));
        assert_eq!(code != 0, said.contains("already exists") || code == -errno::EINVAL, "{said}");
        code
    };
    assert_eq!(add("b", "10.0.0.2"), 0);
    assert_eq!(add("c", "v2:10.0.0.3:3310/0"), 0);
    assert_eq!(add("d", "[v2:10.0.0.4:3300/0]"), 0);
    assert_eq!(add("e6", "[::1]:3311"), 0);
    assert_eq!(add("f6", "[v2:[::1]:3312/0]"), 0);
    assert_eq!(add("b", "10.0.0.9"), -errno::EEXIST);
    assert_eq!(add("e", "10.0.0.3:3310"), -errno::EEXIST);
    for bad in ["10.0.0.2:6789", "v1:10.0.0.2:3300", "nonsense", ""] {
        assert_eq!(add("e", bad), -errno::EINVAL, "{bad}");
    }
    assert_eq!(add("a/b", "10.0.0.5"), -errno::EINVAL);
}

#[test]
fn foreign_monitor_cannot_remove_members() {
    let mut group = Group::of(3);
    group.pass(10_000);
    let (from, to) = (group.leader(), (group.leader() + 1) % 3);
    let link = *group.links.iter().find(|((n, _), (other, _))| (*n, *other) == (from, to)).unwrap().0;
    let mut map = group.mons[from].mon.state.as_ref().unwrap().monmap.map.clone();
    map.fsid = [1; 16];
    let mut said = |map: &[u8]| {
        let message = QuorumMsg::Removed { map: map.to_vec().into() }.into();
        group.mons[from].event(Event::Message { conn: link.1, tid: 0, message });
        group.mons[from].mon.retired.is_some()
    };
    assert!(!said(&to_vec(&map)));
    assert!(!said(b"no map"));
    map.fsid = [9; 16];
    assert!(said(&to_vec(&map)));
}

fn keep(key: String, len: usize) -> MonCommand {
    let cmd = vec![json!({ "prefix": "config-key set", "key": key }).to_string()];
    MonCommand { version: PaxosVersion(0), fsid: [0; 16], cmd, input: vec![7; len].into() }
}

#[test]
fn many_long_requests_at_once_go_into_several_entries() {
    let mut group = Group::of(3);
    group.pass(10_000);
    let leader = group.leader();
    let conn = group.mons[leader].client();
    let send = |group: &mut Group, n: usize| {
        (0..n).map(|n| group.mons[leader].send(conn, keep(format!("k{n}"), 64 << 10))).count()
    };
    send(&mut group, 100);
    group.pass(2000);
    let got = group.mons[leader].received(conn);
    let done = got.iter().filter(|m| matches!(m, Message::MonCommandAck(ack) if ack.retval == 0));
    assert_eq!(done.count(), 100);
    assert!(group.longest < 4 << 20, "{}", group.longest);
    // Nor are many of them kept for a member that is slightly behind.
    send(&mut group, 300);
    group.pass(5000);
    for t in &group.mons {
        let raft = &t.store.0[&StoredId::meta("raft")];
        let entries = raft.iter().filter(|(key, _)| key.as_bytes().starts_with(b"entry/"));
        let bytes: usize = entries.map(|(_, entry)| entry.len()).sum();
        assert!(bytes < 24 << 20, "{bytes}");
    }
}

/// Such requests once waited forever.
#[test]
fn session_with_too_many_queued_requests_is_closed() {
    let mut group = Group::of(3);
    group.pass(10_000);
    let leader = group.leader();
    group.dead.extend((0..3).filter(|n| *n != leader));
    let (long, short) = (group.mons[leader].client(), group.mons[leader].client());
    for n in 0..1200 {
        group.mons[leader].send(long, keep(format!("k{n}"), 64 << 10));
    }
    assert!(group.mons[leader].hung_up.contains(&long) && !group.mons[leader].hung_up.contains(&short));
    group.mons[leader].send(short, keep("k".into(), 1));
    assert!(group.mons[leader].hung_up.contains(&short));
}

/// Passed on to the leader, it would have been more than that takes in one message, again and again.
#[test]
fn a_command_that_is_too_long_is_refused_where_it_arrives() {
    let mut group = Group::of(3);
    group.pass(10_000);
    let follower = (group.leader() + 1) % 3;
    let conn = group.mons[follower].client();
    group.mons[follower].send(conn, keep("k".into(), (16 << 20) + 1));
    let got = group.mons[follower].received(conn);
    assert!(matches!(&got[..], [Message::MonCommandAck(ack)] if ack.retval == -errno::E2BIG), "{got:?}");
}

/// It has the number, the name and the address of one of ours, and its cluster's other monitors had the
/// addresses of our others.
#[test]
fn a_monitor_of_another_cluster_is_refused_by_both_sides_and_named_once() {
    let mut group = Group::of(3);
    group.pass(10_000);
    let place = (group.leader() + 1) % 3;
    group.kill(place);
    group.pass(3000);
    let theirs = MonConfig { fsid: [8; 16], ..config(place, 3, 90) };
    group.mons[place] = TestMon::start_with(theirs, Omaps::default(), group.mons[place].now);
    group.dead.remove(&place);
    group.pass(10_000);
    assert!(group.mons[place].mon.state.is_none() && group.mons[place].mon.leading.is_none());
    let leader = group.leader();
    assert_eq!(group.mons[leader].mon.quorum().len(), 2);
    assert_eq!(group.run(json!({ "prefix": "osd set", "key": "noout" })).0, 0);
    for (n, others) in [(leader, 1), (place, 2)] {
        let is_named = |text: &&String| text.contains("belongs to another cluster");
        let named: Vec<_> = group.mons[n].logged.iter().filter(is_named).collect();
        // Where it dials, and where it is dialled from.
        assert_eq!(named.len(), 2 * others, "{named:?}");
        assert!(named[0].contains("08080808-0808-0808-0808-080808080808"), "{named:?}");
    }
}

#[test]
fn messages_of_a_monitor_without_cluster_id_are_ignored() {
    let mut group = Group::of(1);
    group.pass(3000);
    assert_eq!(group.run(json!({ "prefix": "mon add", "name": "b", "addr": "127.0.0.1:3301" })).0, 0);
    let at = addr(3301, 0);
    let conn = group.mons[0].open(EntityType::Mon, 1, at.clone());
    let join = QuorumMsg::Join { member: 2, name: "b".into(), addrs: at };
    group.mons[0].event(Event::Message { conn, tid: 0, message: join.into() });
    assert!(group.mons[0].hung_up.contains(&conn) && group.mons[0].dialled.is_empty());
    let said = "the monitor at v2:127.0.0.1:3301/0 does not say which cluster it belongs to";
    assert!(group.mons[0].logged.iter().any(|text| text.starts_with(said)), "{:?}", group.mons[0].logged);
}

/// Raft has no such member: the entry that adds it would be refused by all others.
#[test]
fn a_monitor_without_a_number_does_not_join() {
    let mut group = Group::of(1);
    group.pass(3000);
    assert_eq!(group.run(json!({ "prefix": "mon add", "name": "b", "addr": "127.0.0.1:3301" })).0, 0);
    let at = addr(3301, 0);
    let conn = group.mons[0].open(EntityType::Mon, -1, at.clone());
    group.mons[0].event(Event::Message {
        conn,
        tid: 0,
        message: QuorumMsg::Hello { fsid: [9; 16], features: 0, formats: Formats::ALL, format: 0 }.into(),
    });
    assert!(group.mons[0].dialled.is_empty());
    let join = QuorumMsg::Join { member: 0, name: "b".into(), addrs: at };
    group.mons[0].event(Event::Message { conn, tid: 0, message: join.into() });
    group.pass(1000);
    assert_eq!(group.members(0), [1]);
}

/// Two of three are lost for good.
#[test]
fn the_only_one_that_is_left_can_be_made_to_decide_alone() {
    let mut group = Group::of(3);
    group.pass(10_000);
    assert_eq!(group.run(json!({ "prefix": "osd set", "key": "noout" })).0, 0);
    let last = (group.leader() + 1) % 3;
    let lost: Vec<usize> = (0..3).filter(|n| *n != last).collect();
    lost.iter().for_each(|n| group.kill(*n));
    group.pass(5000);
    assert!(group.mons[last].mon.leading.is_none());
    let mut store = std::mem::take(&mut group.mons[last].store);
    let config = group.mons[last].config.clone();
    store.apply(crate::alone(config.id, &store).unwrap().unwrap());
    group.mons[last] = TestMon::start_with(config, store, group.mons[last].now);
    group.pass(3000);
    let flags = |group: &Group| group.mons[last].map().flags;
    assert!(flags(&group) & map_flags::NOOUT != 0);
    for n in lost {
        let name = ["a", "b", "c"][n];
        assert_eq!(group.run(json!({ "prefix": "mon rm", "name": name })).0, 0);
    }
    assert_eq!(group.members(last), [last as u64 + 1]);
    assert!(!group.mons[last].run(json!({ "prefix": "health" })).contains("mons down"));
    // And others join.
    assert_eq!(group.run(json!({ "prefix": "mon add", "name": "d", "addr": "127.0.0.1:3303" })).0, 0);
    group.start_new("d", 4, 3);
    group.pass(5000);
    assert_eq!(group.members(3), [last as u64 + 1, 4]);
    // A store that never belonged to a monitor cannot become a single-member cluster.
    assert!(crate::alone(7, &Omaps::default()).unwrap().is_none());
}

#[test]
fn clock_of_another_monitor_that_is_wrong_is_warned_of_until_it_is_right() {
    let mut group = Group::of(3);
    group.pass(10_000);
    let leader = group.leader();
    let status = |group: &mut Group| group.mons[leader].json(json!({ "prefix": "time-sync-status" }));
    let health =
        |group: &mut Group| group.mons[leader].json(json!({ "prefix": "health", "detail": "detail" }));
    let shown = status(&mut group);
    assert_eq!(shown["timechecks"]["round_status"], "finished");
    assert!(shown["timechecks"]["round"].as_u64() > Some(0), "{shown}");
    let clocks = shown["time_skew_status"].as_object().unwrap();
    assert_eq!(clocks.keys().collect::<Vec<_>>(), ["a", "b", "c"]);
    assert!(clocks.values().all(|clock| clock["health"] == "HEALTH_OK"), "{shown}");
    assert!(health(&mut group)["checks"].get("MON_CLOCK_SKEW").is_none());

    let wrong = (leader + 1) % 3;
    let name = group.mons[wrong].config.name.clone();
    group.mons[wrong].now.wall.sec += 5;
    group.pass(61_000);
    let shown = health(&mut group);
    let check = &shown["checks"]["MON_CLOCK_SKEW"];
    assert_eq!(check["severity"], "HEALTH_WARN");
    assert_eq!(check["summary"]["message"], format!("clock skew detected on mon.{name}"));
    let detail = check["detail"][0]["message"].as_str().unwrap();
    assert!(detail.starts_with(&format!("mon.{name} clock skew 5.0")), "{detail}");
    assert!(detail.contains("s > max 0.05s (latency "), "{detail}");
    let shown = status(&mut group);
    let clock = &shown["time_skew_status"][&name];
    assert!(clock["skew"].as_f64() > Some(4.9) && clock["health"] == "HEALTH_WARN", "{shown}");

    group.mons[wrong].now.wall.sec -= 5;
    group.pass(11_000);
    assert!(health(&mut group)["checks"].get("MON_CLOCK_SKEW").is_none());

    // A monitor that is behind, and then gone.
    group.mons[wrong].now.wall.sec -= 7;
    group.pass(61_000);
    assert!(health(&mut group)["checks"].get("MON_CLOCK_SKEW").is_some());
    group.kill(wrong);
    group.pass(5_000);
    assert!(health(&mut group)["checks"].get("MON_CLOCK_SKEW").is_none());
    assert!(
        group.mons[leader].json(json!({ "prefix": "time-sync-status" }))["time_skew_status"]
            .get(&name)
            .is_none()
    );
}

#[test]
fn monitor_without_a_state_answers_about_itself() {
    let now = Now { mono: Time::from_nanos(1 << 40), wall: Utime { sec: 1_800_000_000, nsec: 0 } };
    let mut t = TestMon::start_with(config(0, 3, 40), Omaps::default(), now);
    t.pass(Duration::from_secs(3));
    assert!(t.mon.state.is_none());
    let conn = t.client();
    let mut tell = |command: Value| {
        let cmd = vec![command.to_string()];
        match t.ask(conn, Command { fsid: [0; 16], cmd, input: Bytes::new() }) {
            Message::CommandReply(reply) => {
                (reply.retval, serde_json::from_slice::<Value>(&reply.output).unwrap_or_default())
            }
            other => panic!("{other:?}"),
        }
    };
    let (code, status) = tell(json!({ "prefix": "mon_status" }));
    assert_eq!((code, &status["name"], &status["state"]), (0, &json!("a"), &json!("electing")));
    assert_eq!(tell(json!({ "prefix": "health" })).0, -errno::EAGAIN);
    let (_, dump) = tell(json!({ "prefix": "perf dump", "logger": "mon" }));
    assert_eq!((&dump["mon"]["num_sessions"], &dump["mon"]["num_elections"]), (&json!(1), &json!(0)));
    assert_eq!(tell(json!({ "prefix": "perf reset", "var": "all" })).0, 0);
    assert_eq!(tell(json!({ "prefix": "perf dump" })).1["mon"]["session_add"], 0);
    assert_eq!(tell(json!({ "prefix": "config set", "var": "mon_max_pg_per_osd", "val": ["7"] })).0, 0);
    let (_, diff) = tell(json!({ "prefix": "config diff get", "var": "mon_max_pg_per_osd" }));
    let expected = json!({ "default": "250", "override": "7", "final": "7" });
    assert_eq!(diff["diff"]["mon_max_pg_per_osd"], expected);
    assert_eq!(tell(json!({ "prefix": "config help", "var": "mon_max_pg_per_osd" })).1["type"], "uint");
    assert_eq!(tell(json!({ "prefix": "config help", "var": "nonsense" })).0, -errno::ENOENT);
    assert_eq!(tell(json!({ "prefix": "ops" })).0, -errno::EOPNOTSUPP);
    assert_eq!(tell(json!({ "prefix": "nonsense" })).0, -errno::EINVAL);
}

#[test]
fn a_single_address_is_shown_without_brackets() {
    let mut t = TestMon::fresh();
    let dump = t.run(json!({ "prefix": "mon dump" }));
    assert!(dump.contains("\n0: v2:127.0.0.1:3300/0 mon.a\n"), "{dump}");
    let stat = t.run(json!({ "prefix": "mon stat" }));
    assert!(stat.contains("1 mons at {a=v2:127.0.0.1:3300/0} "), "{stat}");
}
