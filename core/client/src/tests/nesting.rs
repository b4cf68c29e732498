//! Clients inside another machine.

use super::world::{World, cluster_map, mon_addr, osd_addr, write};
use crate::{Client, ClientConfig, Output, RequestId};
use nacre_base::{Epoch, Now, OsdId};
use nacre_machine::{ConnId, ConnIds, Context, Effect, Event, Peer, TimerId};
use nacre_proto::messages::{Message, OsdMapMsg, OsdOpReply};
use nacre_proto::types::{AddrVec, EntityAddr, EntityType};
use nacre_wire::to_vec;
use std::collections::BTreeMap;

/// Two clients in one machine, whose own sessions are dialled from the same ids.
struct Parent {
    conns: ConnIds,
    clients: [Client; 2],
    /// What was dialled and where, of all.
    dialled: BTreeMap<ConnId, EntityAddr>,
    sent: Vec<(ConnId, u64, Message)>,
    timers: Vec<TimerId>,
}

impl Parent {
    fn new() -> Parent {
        let client = |timer| {
            let (mons, hostname) = (vec![mon_addr(0)], "host".to_owned());
            Client::new(ClientConfig { mons, hostname, timer, seed: timer })
        };
        let (dialled, sent, timers) = Default::default();
        Parent { conns: ConnIds::default(), clients: [client(70), client(71)], dialled, sent, timers }
    }
    fn with<R>(&mut self, n: usize, run: impl FnOnce(&mut Client, &mut Context<'_>) -> R) -> R {
        let mut out = Vec::new();
        let cx = &mut Context { now: Now::default(), conns: &mut self.conns, out: &mut out };
        let result = run(&mut self.clients[n], cx);
        for effect in out {
            match effect {
                Effect::Dial { conn, to, .. } => assert!(self.dialled.insert(conn, to).is_none()),
                Effect::Send { conn, tid, message } => self.sent.push((conn, tid, message)),
                Effect::Arm { timer, .. } => self.timers.push(timer),
                _ => {}
            }
        }
        result
    }
    /// As a machine with several parts does it: the session tells which part an event is for.
    fn handle(&mut self, conn: ConnId, event: Event) {
        let owners: Vec<usize> = (0..2).filter(|&n| self.clients[n].owns(conn)).collect();
        assert_eq!(owners.len(), 1);
        self.with(owners[0], |client, cx| client.handle(event, cx));
    }
    fn open(&mut self, conn: ConnId) {
        let addr = self.dialled[&conn];
        let kind = if addr == mon_addr(0) { EntityType::Mon } else { EntityType::Osd };
        let addrs = AddrVec::one(addr);
        let peer =
            Peer { kind, num: 0, addrs, observed: addr, features: u64::MAX, auth_name: None, proved: None };
        self.handle(conn, Event::Opened { conn, peer });
    }
    fn hear(&mut self, conn: ConnId, tid: u64, message: impl Into<Message>) {
        self.handle(conn, Event::Message { conn, tid, message: message.into() });
    }
}

#[test]
fn two_clients_in_one_machine_share_ids_and_nothing_else() {
    let mut p = Parent::new();
    for n in 0..2 {
        p.with(n, |client, cx| client.start(cx));
    }
    let mons: Vec<ConnId> = p.dialled.keys().copied().collect();
    assert_eq!(mons.len(), 2);
    let map = cluster_map();
    let whole = OsdMapMsg {
        fsid: map.fsid,
        incrementals: BTreeMap::new(),
        full: BTreeMap::from([(map.epoch, to_vec(&map).into())]),
        oldest: Epoch(1),
        newest: map.epoch,
        gap_removed_snaps: BTreeMap::new(),
    };
    for &mon in &mons {
        p.open(mon);
        p.hear(mon, 0, World::mon_map_message());
        p.hear(mon, 0, whole.clone());
    }
    // Both have a session with the same OSD, and each gets its own reply.
    let ids: Vec<RequestId> = (0..2).map(|n| p.with(n, |c, cx| c.submit(write("a").into(), cx))).collect();
    let osds: Vec<ConnId> = p.dialled.keys().copied().filter(|conn| !mons.contains(conn)).collect();
    assert_eq!(osds.len(), 2);
    assert_eq!(p.dialled[&osds[0]], p.dialled[&osds[1]]);
    assert!((0..5).any(|osd| osd_addr(OsdId(osd).0, 1) == p.dialled[&osds[0]]));
    for &osd in &osds {
        p.open(osd);
    }
    for (conn, tid, message) in std::mem::take(&mut p.sent) {
        if let Message::OsdOp(op) = message {
            p.hear(conn, tid, Box::new(OsdOpReply::to(&op, 0, Epoch(1))));
        }
    }
    for (n, id) in ids.iter().enumerate() {
        let done = p.clients[n].take_completions();
        assert_eq!(done.len(), 1);
        assert!(done[0].id == *id && matches!(done[0].result, Ok(Output::Object(_))));
    }
    p.timers.dedup();
    assert!(p.timers.contains(&70) && p.timers.contains(&71));
    assert!(p.timers.iter().all(|timer| [70, 71].contains(timer)));
}
