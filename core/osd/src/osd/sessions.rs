//! Sessions with other OSDs: those that we dial and ask over, and those over which others ask us.

use super::batching::PgMessage;
use super::{Life, Osd, Session, WAITING_MAX};
use crate::client_caps::Access;
use crate::heartbeat::Place;
use crate::peers::Ended;
use crate::pg::{LEASE, PgEvent};
use nacre_base::{Epoch, Now, OsdId, Time};
use nacre_machine::{Closed, ConnId, Effect, Peer, StoreView};
use nacre_proto::maps::OsdMap;
use nacre_proto::messages::peer::{PeerMsg, PgMsg};
use nacre_proto::messages::{DaemonMsg, FailureEvidence, OsdFailure};
use nacre_proto::types::{AddrVec, EntityType, Network};
use std::collections::BTreeSet;
use std::time::Duration;

impl Osd {
    /// Asks another OSD over our session with it. Without one the question is lost, and asked again
    /// when there is.
    pub(super) fn ask(&mut self, now: Now, to: OsdId, msg: PeerMsg, out: &mut Vec<Effect>) {
        match self.links.peers.open(to) {
            Some((conn, network)) => {
                self.links.heartbeats.note_request(to, network, now.mono);
                self.links.outbox.push(conn, msg, out);
            }
            None => self.dial(now, to, out),
        }
    }

    pub(super) fn answer(&mut self, to: OsdId, msg: PeerMsg, out: &mut Vec<Effect>) {
        if let Some(&conn) = self.links.inbound.get(&to) {
            self.links.outbox.push(conn, msg, out);
        }
    }

    pub(super) fn dial(&mut self, now: Now, osd: OsdId, out: &mut Vec<Effect>) {
        let Some(place) = self.map().and_then(|map| self.place_of(map, osd)) else { return };
        if osd != self.me() && self.links.peers.may_dial(osd, now.mono) {
            let conn = self.links.conns.next_id();
            let preferred = self.links.heartbeats.network(osd, &place, now.mono);
            let network = self.links.peers.network_to_dial(osd, preferred);
            let (network, addr) = match place.on(network) {
                Some(addr) => (network, addr),
                None => (Network::Public, place.public),
            };
            self.links.peers.dialled(osd, conn, addr, network, now.mono);
            out.push(Effect::Dial { conn, to: addr, kind: EntityType::Osd });
        }
    }

    /// Where we reach `osd`, if it is up: on the cluster network if both of us have an address there.
    pub(super) fn place_of(&self, map: &OsdMap, osd: OsdId) -> Option<Place> {
        let info = map.osd(osd).filter(|_| map.is_up(osd))?;
        let public = info.public_addrs.msgr2()?;
        let separate = info.cluster_addrs.msgr2().filter(|addr| addr.sock != public.sock);
        let ours = self.config.cluster.msgr2() != self.config.public.msgr2();
        Some(Place { public, cluster: separate.filter(|_| ours) })
    }

    pub(super) fn on_opened(
        &mut self,
        now: Now,
        store: &dyn StoreView,
        conn: ConnId,
        peer: Peer,
        out: &mut Vec<Effect>,
    ) {
        if self.mon.owns(conn) {
            self.with_mon(now, out, |mon, cx| mon.on_opened(conn, cx));
            self.presence.next_boot = now.mono;
            self.boot_if_needed(now, store, out);
            return;
        }
        if let Some(osd) = self.links.peers.by_conn(conn) {
            self.links.peers.opened(osd, now.mono);
            self.tell_all(now, store, out, || PgEvent::PeerOpened(osd));
            return;
        }
        if peer.kind == EntityType::Osd {
            self.links.inbound.insert(OsdId(peer.num as i32), conn);
            // Before any answer that makes it send us writes.
            self.look_at_room(store, out);
            self.links.outbox.push(conn, PeerMsg::Room(self.own_credit.said()), out);
        }
        let access = Access::of(&peer);
        self.links.sessions.insert(conn, Session { peer, access, epoch: Epoch(0) });
    }

    pub(super) fn on_closed(
        &mut self,
        now: Now,
        store: &dyn StoreView,
        conn: ConnId,
        why: &Closed,
        out: &mut Vec<Effect>,
    ) {
        if self.mon.owns(conn) {
            return self.with_mon(now, out, |mon, cx| mon.on_closed(why, cx));
        }
        if let Some(osd) = self.links.peers.by_conn(conn) {
            self.copier.on_session_lost(osd);
            let life = self.links.peers.life(osd);
            let ended = match why {
                Closed::Refused => {
                    let place = self.map().and_then(|map| self.place_of(map, osd));
                    let two = place.is_some_and(|place| place.cluster.is_some());
                    self.links.peers.refused(osd, now.mono, two)
                }
                _ => {
                    self.links.peers.closed(osd, now.mono, false);
                    Ended::Unknown
                }
            };
            if let (Ended::Gone, Some(life)) = (ended, life) {
                self.report_failure(osd, life, FailureEvidence::Refused, out);
            } else if self.presence.serving || ended == Ended::AskElsewhere {
                // If the process is gone, the connection is refused at once.
                self.dial(now, osd, out);
            }
            return;
        }
        if let Some(session) = self.links.sessions.remove(&conn) {
            self.backoffs.forget(conn);
            self.waiting_for_map.ops.retain(|(of, ..)| *of != conn);
            // What it sent and still wants comes again over the next one.
            self.shards
                .iter_mut()
                .flat_map(|shard| shard.pgs.values_mut())
                .for_each(|pg| pg.drop_waiting(conn, None));
            let osd = OsdId(session.peer.num as i32);
            if session.peer.kind == EntityType::Osd && self.links.inbound.get(&osd) == Some(&conn) {
                self.links.inbound.remove(&osd);
                if self.presence.serving && self.links.heartbeats.life(osd).is_some() {
                    self.dial(now, osd, out);
                }
            }
            if session.peer.kind == EntityType::Client && *why == Closed::Reset {
                self.tell_all(now, store, out, || PgEvent::ClientHungUp(conn));
            }
        }
    }

    /// Tells the monitors about the incarnation of an OSD whose addresses have this nonce.
    pub(super) fn report_failure(
        &mut self,
        osd: OsdId,
        life: u32,
        evidence: FailureEvidence,
        out: &mut Vec<Effect>,
    ) {
        let Some(map) = self.map() else { return };
        let is_it = |addrs: &AddrVec| addrs.msgr2().is_some_and(|addr| addr.nonce == life);
        let target = map.osd(osd).filter(|target| map.is_up(osd) && is_it(&target.public_addrs));
        let Some(target) = target else { return };
        let failure = OsdFailure {
            target: osd,
            target_addrs: target.cluster_addrs.clone(),
            epoch: map.epoch,
            evidence,
        };
        if self.presence.serving {
            self.to_mon(DaemonMsg::Failure(failure), out);
        }
    }

    pub(super) fn on_peer(
        &mut self,
        now: Now,
        store: &dyn StoreView,
        conn: ConnId,
        msg: PeerMsg,
        out: &mut Vec<Effect>,
    ) {
        let asker = self.links.sessions.get(&conn).filter(|s| s.peer.kind == EntityType::Osd);
        let asker = asker.map(|session| OsdId(session.peer.num as i32));
        let dialled = self.links.peers.by_conn(conn);
        if let Some(osd) = dialled
            && let Some(network) = self.links.peers.heard_on(osd, now.mono)
        {
            self.links.heartbeats.note_reply(osd, network);
        }
        let Some(from) = asker.or(dialled) else { return };
        match msg {
            // The session's end finds out whether it works; a hung disk's OSD is no peer.
            PeerMsg::Ping { .. } if self.io.disk.is_hung() => {}
            PeerMsg::Ping { stamp } => {
                out.push(Effect::Send { conn, tid: 0, message: PeerMsg::Pong { stamp }.into() });
            }
            PeerMsg::Pong { .. } => {
                if let Some(network) = self.links.peers.network(from) {
                    self.heard(now, from, network, out);
                }
            }
            PeerMsg::LeaseRequest { sent, pgs } => {
                let mut granted = Vec::new();
                let map = self.maps.current.clone();
                for (spg, interval) in pgs {
                    let Some(pg) = spg.without_shard() else { continue };
                    let at = self.shard_of(pg);
                    if let Some(map) = &map
                        && let Some(group) = self.shards[at].pgs.get_mut(&pg)
                        && group.interval().start == interval
                        && group.grant_lease(now.mono, map, from)
                    {
                        granted.push((spg, interval));
                    }
                }
                let grant = PeerMsg::LeaseGrant { sent, pgs: granted };
                out.push(Effect::Send { conn, tid: 0, message: grant.into() });
            }
            // Given up.
            PeerMsg::LeaseGrant { .. } if matches!(self.life, Life::Stopping(_)) => {}
            PeerMsg::LeaseGrant { sent, pgs } => {
                let until = Time::from_nanos(sent) + LEASE;
                for (spg, interval) in pgs {
                    let Some(pg) = spg.without_shard() else { continue };
                    self.tell_pg(now, store, pg, PgEvent::Lease { from, interval, until }, out);
                }
            }
            PeerMsg::Room(room) => self.budget.credits.told(from, room),
            PeerMsg::Pg { route, interval, msg } => {
                self.on_peer_msg(now, store, from, (route, interval, msg), out);
            }
            PeerMsg::Pgs(msgs) => {
                msgs.into_iter().for_each(|msg| self.on_peer_msg(now, store, from, msg, out));
            }
        }
    }

    pub(super) fn on_peer_msg(
        &mut self,
        now: Now,
        store: &dyn StoreView,
        from: OsdId,
        (route, interval, msg): PgMessage,
        out: &mut Vec<Effect>,
    ) {
        if interval > self.maps.epoch() {
            // Its sender knows a newer map. What finds no room here is asked again.
            if self.waiting_for_map.messages.len() < WAITING_MAX {
                self.waiting_for_map.messages.push_back((from, (route, interval, msg)));
            }
            return;
        }
        let here = route.receiver().without_shard().filter(|pg| self.pg(*pg).is_some());
        if let Some(pg) = here {
            self.tell_pg(now, store, pg, PgEvent::Peer { from, interval, msg }, out);
        } else if *msg == PgMsg::InfoQuery {
            // The PG is not here, but this OSD's previous incarnation may have granted a lease.
            let lease_ends = self.started + LEASE;
            let left = if lease_ends > now.mono { lease_ends.since(now.mono) } else { Duration::ZERO };
            let lease_left_ms = left.as_millis() as u32 + 1;
            let info = PgMsg::Info { info: None, lease_left_ms, is_lacking: false };
            self.answer(from, PeerMsg::Pg { route: route.back(), interval, msg: Box::new(info) }, out);
        }
    }

    pub(super) fn ping(&mut self, now: Now, out: &mut Vec<Effect>) {
        for conn in self.links.peers.dead_sessions(now.mono) {
            out.push(Effect::Hangup { conn });
        }
        // An OSD that is marked down asks whether those that it could not reach can be reached again: then it
        // may return.
        let watched = self.links.heartbeats.watched().filter(|_| self.presence.serving);
        let all: BTreeSet<OsdId> =
            watched.chain(self.links.peers.osds()).chain(self.links.peers.wanted()).collect();
        let quiet = |osd: &OsdId| {
            self.links.peers.is_quiet(*osd, now.mono) || self.links.heartbeats.is_late(*osd, now.mono)
        };
        let pinged: Vec<OsdId> = all.into_iter().filter(quiet).collect();
        for osd in pinged {
            self.ask(now, osd, PeerMsg::Ping { stamp: now.mono.nanos }, out);
        }
    }
}
