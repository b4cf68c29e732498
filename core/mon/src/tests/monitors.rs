//! Three monitors.

use super::*;

/// Delivers what monitors send each other until nobody has anything to say, then lets time pass.
struct Three {
    mons: Vec<TestMon>,
    /// (dialling monitor, its connection) to (accepting monitor, its connection)
    links: BTreeMap<(usize, ConnId), (usize, ConnId)>,
    dead: Option<usize>,
}

impl Three {
    fn new() -> Three {
        let now = Now { mono: Time::from_nanos(1 << 40), wall: Utime { sec: 1_800_000_000, nsec: 0 } };
        let mons =
            (0..3).map(|n| TestMon::start_with(config(n, 3, 40 + n as u64), Omaps::default(), now)).collect();
        Three { mons, links: BTreeMap::new(), dead: None }
    }
    fn round(&mut self) {
        for n in 0..3 {
            for (conn, to) in std::mem::take(&mut self.mons[n].dialled) {
                let other = usize::from(to.sock.unwrap().port() - 3300);
                if [Some(n), Some(other)].contains(&self.dead) {
                    self.mons[n].event(Event::Closed { conn, why: Closed::Refused });
                    continue;
                }
                let accepted = self.mons[other].open(EntityType::Mon, n as i64, addr(3300 + n as u16, 0));
                self.links.insert((n, conn), (other, accepted));
                let peer = Peer {
                    kind: EntityType::Mon,
                    num: other as i64,
                    addrs: AddrVec::one(to),
                    observed: to,
                    features: 1,
                };
                self.mons[n].event(Event::Opened { conn, peer });
            }
            for ((from, conn), (to, accepted)) in self.links.clone() {
                for (_, message) in self.mons[from].sent.remove(&conn).into_iter().flatten() {
                    if self.dead != Some(from) && self.dead != Some(to) {
                        self.mons[to].event(Event::Message { conn: accepted, tid: 0, message });
                    }
                }
            }
        }
    }
    fn pass(&mut self, millis: u64) {
        for _ in 0..millis / 50 {
            for n in (0..3).filter(|n| Some(*n) != self.dead) {
                self.mons[n].pass(Duration::from_millis(50));
            }
            (0..6).for_each(|_| self.round());
        }
    }
    fn leader(&self) -> usize {
        (0..3).find(|&n| Some(n) != self.dead && self.mons[n].mon.leading.is_some()).expect("a leader")
    }
    fn kill(&mut self, n: usize) {
        self.dead = Some(n);
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
    let mut three = Three::new();
    three.pass(10_000);
    let leader = three.leader();
    let follower = (leader + 1) % 3;
    let conn = three.mons[follower].client();
    let cmd = vec![json!({ "prefix": "osd set", "key": "noout" }).to_string()];
    let message = MonCommand { version: PaxosVersion(0), fsid: [0; 16], cmd, input: Bytes::new() };
    three.mons[follower].send(conn, message);
    three.mons[follower].send(conn, MonGetVersion { handle: 1, what: "osdmap".into() });
    three.pass(1000);
    let got = three.mons[follower].received(conn);
    assert!(got.iter().any(|m| matches!(m, Message::MonCommandAck(ack) if ack.retval == 0)), "{got:?}");
    assert!(got.iter().any(|m| matches!(m, Message::MonGetVersionReply(r) if r.version >= 1)), "{got:?}");
    let maps: Vec<OsdMap> = three.mons.iter().map(TestMon::map).collect();
    assert_eq!(maps[0].epoch, Epoch(2));
    assert!(maps.iter().all(|map| *map == maps[0]));
    assert_eq!(three.mons[leader].mon.quorum(), [0, 1, 2]);
}

#[test]
fn two_monitors_go_on_without_the_third() {
    let mut three = Three::new();
    three.pass(10_000);
    let old = three.leader();
    three.kill(old);
    three.pass(10_000);
    let new = three.leader();
    assert_ne!(new, old);
    three.mons[new].run_later(json!({ "prefix": "osd set", "key": "noout" }));
    three.pass(1000);
    let alive = (0..3).filter(|n| *n != old);
    assert!(alive.map(|n| three.mons[n].map().epoch).all(|epoch| epoch == Epoch(2)));
}

impl TestMon {
    fn run_later(&mut self, command: Value) {
        let conn = self.client();
        let cmd = vec![command.to_string()];
        self.send(conn, MonCommand { version: PaxosVersion(0), fsid: [0; 16], cmd, input: Bytes::new() });
    }
}

#[test]
fn followers_get_ids_of_their_own_and_answer_for_themselves() {
    let mut three = Three::new();
    three.pass(10_000);
    let mut granted: Vec<_> = three.mons.iter().flat_map(|t| t.granted.clone()).collect();
    granted.sort_by_key(|ids| ids.start);
    assert_eq!(granted.len(), 3);
    assert!(granted.windows(2).all(|w| w[0].end <= w[1].start), "{granted:?}");
    let follower = (three.leader() + 1) % 3;
    let conn = three.mons[follower].client();
    let ask = Command { fsid: [0; 16], cmd: vec![r#"{"prefix":"mon_status"}"#.into()], input: Bytes::new() };
    let Message::CommandReply(reply) = three.mons[follower].ask(conn, ask) else { panic!("no answer") };
    let status: Value = serde_json::from_slice(&reply.output).unwrap();
    assert_eq!(status["state"], "peon");
}

#[test]
fn who_waits_for_a_leader_that_died_is_hung_up_on_to_ask_again() {
    let mut three = Three::new();
    three.pass(10_000);
    let old = three.leader();
    let follower = (old + 1) % 3;
    let conn = three.mons[follower].client();
    let idle = three.mons[follower].client();
    let cmd = vec![json!({ "prefix": "osd set", "key": "noout" }).to_string()];
    three.dead = Some(old);
    let message = MonCommand { version: PaxosVersion(0), fsid: [0; 16], cmd, input: Bytes::new() };
    three.mons[follower].send(conn, message);
    three.kill(old);
    three.pass(10_000);
    assert!(three.mons[follower].hung_up.contains(&conn));
    assert!(!three.mons[follower].hung_up.contains(&idle) || three.leader() == follower);
}

#[test]
fn who_waits_for_a_leader_is_hung_up_on_when_a_session_with_it_breaks_either_way() {
    for is_dialled in [true, false] {
        let mut three = Three::new();
        three.pass(10_000);
        let leader = three.leader();
        let follower = (leader + 1) % 3;
        let (waits, idle) = (three.mons[follower].client(), three.mons[follower].client());
        let cmd = vec![json!({ "prefix": "osd set", "key": "noout" }).to_string()];
        let message = MonCommand { version: PaxosVersion(0), fsid: [0; 16], cmd, input: Bytes::new() };
        three.mons[follower].send(waits, message);
        let (dials, other) = if is_dialled { (follower, leader) } else { (leader, follower) };
        let link = three.links.iter().find(|((from, _), (to, _))| (*from, *to) == (dials, other)).unwrap();
        let conn = if is_dialled { link.0.1 } else { link.1.1 };
        three.mons[follower].event(Event::Closed { conn, why: Closed::Reset });
        assert!(three.mons[follower].hung_up.contains(&waits));
        assert!(!three.mons[follower].hung_up.contains(&idle));
    }
}

#[test]
fn the_leader_hears_from_the_others_whose_session_ended() {
    for with_its_monitor in [false, true] {
        let mut three = Three::new();
        three.pass(10_000);
        let leader = three.leader();
        let follower = (leader + 1) % 3;
        let conns: Vec<ConnId> = (0..4)
            .map(|osd| {
                let at = if osd < 2 { leader } else { follower };
                three.mons[at].boot(osd, 6900 + osd as u16, 1)
            })
            .collect();
        three.pass(1_000);
        assert_eq!(three.mons[leader].map().up_osds().count(), 4);
        let refused = |three: &mut Three, target: i32| {
            let map = three.mons[leader].map();
            let target_addrs = map.osds[target as usize].public_addrs.clone();
            let evidence = FailureEvidence::Refused;
            let failure = OsdFailure { target: OsdId(target), target_addrs, epoch: map.epoch, evidence };
            three.mons[leader].send(conns[0], DaemonMsg::Failure(failure));
            three.pass(300);
            let map = three.mons[leader].map();
            assert!(map.is_down(OsdId(target)));
            map.osd(OsdId(target)).unwrap().xinfo.dead_epoch == map.epoch
        };
        // It still talks to its monitor: somebody in between may have refused.
        assert!(!refused(&mut three, 2));
        match with_its_monitor {
            true => three.kill(follower),
            false => {
                three.mons[follower].event(Event::Closed { conn: conns[3], why: Closed::Reset });
                three.round();
            }
        }
        assert!(refused(&mut three, 3));
    }
}
