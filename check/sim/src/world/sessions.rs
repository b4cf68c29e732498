//! Sessions: dialling, the handshake, what travels, the end.
//!
//! In most runs messages travel, and the handshake of two real messengers takes place in one step when a
//! connection attempt arrives. In the others (`World::frames`) each session has a messenger at each end, and
//! what travels is their byte streams, cut at arbitrary places.

use super::{DIAL_TIMEOUT, SWEEP, World};
use crate::identity::{self, Identity, Renewal};
use crate::memory;
use crate::network::{End, InFlight, NodeId, SessionId, Wire};
use crate::schedule::{Dial, Scheduled};
use bytes::Bytes;
use nacre_machine::{Closed, ConnId, Event, Peer};
use nacre_msgr::{Config, Connection, FaultReason, PeerIdent};
use nacre_proto::messages::{Envelope, Message, RawMessage};
use nacre_proto::types::{AddrVec, EntityAddr, EntityType, Network as Net};
use nacre_wire::crc32c;
use std::time::Duration;

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// When a handshake in one step is tried again that waits for keys or global ids.
const HANDSHAKE_RETRY: Duration = Duration::from_millis(20);
/// Fewer global ids are too few.
const IDS_LOW: u64 = 20;

/// The result of a handshake in one step.
enum Handshake {
    /// What the dialling and the accepting side learned of each other.
    Done(Box<[PeerIdent; 2]>),
    /// The accepting side has no keys or no global ids yet.
    Later,
    Failed(Closed),
}

impl World {
    // ---- opening ----

    pub(super) fn dial(&mut self, id: NodeId, conn: ConnId, to: EntityAddr, kind: EntityType) {
        let closed = |why| Scheduled::Event(Event::Closed { conn, why });
        let Some((target, on)) = self.listener(to.sock) else {
            return self.at(self.now, id, closed(Closed::Refused));
        };
        if self.network.is_rejected(id, target) {
            let when = self.now + self.network.latency();
            return self.at(when, id, closed(Closed::Refused));
        }
        if self.network.is_stuck(id, target, on) {
            return self.at(self.now + DIAL_TIMEOUT, id, closed(Closed::TimedOut));
        }
        let when = self.now + self.network.latency();
        let incarnation = self.node(id).incarnation;
        let dial = Dial { from: id, incarnation, conn, to, kind, since: self.now };
        self.at(when, target, Scheduled::Dialled(dial));
    }

    /// The dialling machine is told at `when` that its attempt failed.
    pub(super) fn refuse(&mut self, dial: &Dial, when: nacre_base::Time, why: Closed) {
        let closed = Scheduled::Event(Event::Closed { conn: dial.conn, why });
        self.at_incarnation(when, dial.from, dial.incarnation, closed);
    }

    pub(super) fn on_dialled(&mut self, id: NodeId, dial: Dial) {
        let back = self.now + self.network.latency();
        let node = self.node(id);
        if node.addr.nonce != dial.to.nonce || node.kind != dial.kind {
            let why = Closed::Fault(format!("{} is not {} any more", dial.to, node.name));
            return self.refuse(&dial, back, why);
        }
        let from = self.node(dial.from);
        if from.incarnation != dial.incarnation || !from.is_running() {
            return;
        }
        if self.node_mut(dial.from).abandoned.remove(&dial.conn) {
            return;
        }
        if self.frames {
            return self.accept(id, &dial);
        }
        match self.handshake(id, &dial) {
            Handshake::Done(idents) => self.open(id, &dial, &idents),
            Handshake::Later if self.now.since(dial.since) < HANDSHAKE_TIMEOUT => {
                self.at(self.now + HANDSHAKE_RETRY, id, Scheduled::Dialled(dial));
            }
            Handshake::Later => self.refuse(&dial, back, Closed::TimedOut),
            Handshake::Failed(why) => self.refuse(&dial, back, why),
        }
    }

    fn set_wall_clock(&self, id: NodeId) {
        identity::set_wall_clock(self.clock(id).wall);
    }

    /// The messengers of a new connection: the dialling side's and the accepting side's.
    fn messengers(&mut self, id: NodeId, dial: &Dial) -> [Connection; 2] {
        let now = self.now;
        let from = self.node(dial.from);
        let mut config = Config::new(from.kind, from.num, AddrVec::one(from.addr));
        config.handshake_timeout = HANDSHAKE_TIMEOUT;
        config.sums = from.sums.clone();
        // Daemons go by their own number, and need no global id.
        let global_id = if from.kind == EntityType::Client { from.num.max(0) as u64 } else { 1 };
        let prover = from.identity.as_ref().expect("a running node has one").prover(global_id);
        let client = Connection::client(now, config, dial.to, dial.kind, prover);
        let source = from.source();
        let node = self.node_mut(id);
        let on = node.listens_on(dial.to.sock).unwrap_or(Net::Public);
        let mut config = Config::new(node.kind, node.num, AddrVec::one(node.addr_on(on)));
        config.handshake_timeout = HANDSHAKE_TIMEOUT;
        config.sums = node.sums.clone();
        let verifier = node.identity.as_mut().expect("a running node has one").verifier(dial.kind, &node.ids);
        [client, Connection::server(now, config, source, verifier)]
    }

    fn handshake(&mut self, id: NodeId, dial: &Dial) -> Handshake {
        let [mut client, mut server] = self.messengers(id, dial);
        let (mut at_client, mut at_server) = (Vec::new(), Vec::new());
        loop {
            self.set_wall_clock(id);
            for bytes in client.transmit().collect::<Vec<_>>() {
                if let Err(why) = server.receive(self.now, bytes, &mut at_server) {
                    self.trace.comment(self.now, &self.node(id).name, &format!("handshake: {why}"));
                    return Handshake::Failed(Closed::Reset);
                }
            }
            if server.is_undecided() {
                return Handshake::Later;
            }
            self.set_wall_clock(dial.from);
            let replies: Vec<Bytes> = server.transmit().collect();
            if replies.is_empty() {
                break;
            }
            for bytes in replies {
                if let Err(why) = client.receive(self.now, bytes, &mut at_client) {
                    return Handshake::Failed(closed_by(&why));
                }
            }
        }
        match (at_client.pop(), at_server.pop()) {
            (Some(nacre_msgr::Event::Ready(server)), Some(nacre_msgr::Event::Ready(client))) => {
                Handshake::Done(Box::new([server, client]))
            }
            other => panic!("a handshake that neither failed nor ended: {other:?}"),
        }
    }

    /// `idents`: what each side learned of the other.
    fn open(&mut self, id: NodeId, dial: &Dial, idents: &[PeerIdent; 2]) {
        self.learn_number(dial.from, id, &idents[0]);
        let session = self.add_session(id, dial, None);
        let accepted = self.network.sessions[&session].ends[1].conn;
        self.node_mut(id).events.push_back(Event::Opened { conn: accepted, peer: peer(&idents[1]) });
        let opened = Event::Opened { conn: dial.conn, peer: peer(&idents[0]) };
        // Before anything that the other side says.
        let when = self.network.arrival(session, 1, self.now);
        self.at_incarnation(when, dial.from, dial.incarnation, Scheduled::Event(opened));
    }

    fn add_session(&mut self, id: NodeId, dial: &Dial, wire: Option<Box<Wire>>) -> SessionId {
        let node = self.node_mut(id);
        node.accepted += 1;
        let on = node.listens_on(dial.to.sock).unwrap_or(Net::Public);
        let (incarnation, conn) = (node.incarnation, ConnId::Accepted(node.accepted));
        let accepted = End { node: id, incarnation, conn, open: true };
        let dialling = End { node: dial.from, incarnation: dial.incarnation, conn: dial.conn, open: true };
        self.network.open([dialling, accepted], on, wire)
    }

    /// A client takes the global id that a monitor gave it.
    fn learn_number(&mut self, client: NodeId, mon: NodeId, ident: &PeerIdent) {
        if self.node(mon).kind != EntityType::Mon {
            return;
        }
        let node = self.node_mut(client);
        // With cephx a monitor gives a daemon another id each time.
        let assigned = node.num < 0 || node.identity.as_ref().is_some_and(Identity::uses_cephx);
        if node.kind == EntityType::Client {
            node.num = ident.global_id as i64;
        }
        if assigned && self.node(mon).ids.left() < IDS_LOW {
            self.node_mut(mon).events.push_back(Event::IdsLow);
        }
    }

    /// The handshake begins, as bytes.
    fn accept(&mut self, id: NodeId, dial: &Dial) {
        let ends = self.messengers(id, dial);
        let wire = Wire { ends, ready: [false; 2] };
        let session = self.add_session(id, dial, Some(Box::new(wire)));
        let when = self.network.arrival(session, 1, self.now);
        self.at_incarnation(when, dial.from, dial.incarnation, Scheduled::Connected(session));
        for (side, end) in self.network.sessions[&session].ends.into_iter().enumerate() {
            let deadline = Scheduled::HandshakeDeadline(session, side);
            self.at_incarnation(self.now + HANDSHAKE_TIMEOUT, end.node, end.incarnation, deadline);
        }
        self.flush(session, 1);
    }

    pub(super) fn on_deadline(&mut self, session: SessionId, side: usize) {
        let now = self.now;
        let Some(messenger) = self.messenger(session, side) else { return };
        if let Err(why) = messenger.check_deadline(now) {
            self.fault(session, side, &why);
        }
    }

    /// Callers that waited for keys or global ids are examined again.
    pub(super) fn decide(&mut self, id: NodeId) {
        self.set_wall_clock(id);
        for session in self.network.of_node(id) {
            if self.network.sessions[&session].ends[1].node != id {
                continue;
            }
            let Some(messenger) = self.messenger(session, 1) else { continue };
            match messenger.decide() {
                Ok(()) => drop(self.unsent.insert((session, 1))),
                Err(why) => self.fault(session, 1, &why),
            }
        }
    }

    fn messenger(&mut self, session: SessionId, side: usize) -> Option<&mut Connection> {
        let found = self.network.sessions.get_mut(&session)?;
        let wire = found.wire.as_mut().filter(|_| found.ends[side].open)?;
        Some(&mut wire.ends[side])
    }

    /// Whether a session that is about to open was hung up by the node that dialled it.
    pub(super) fn is_hung_up(&self, id: NodeId, conn: ConnId) -> bool {
        let session = self.network.find(id, self.node(id).incarnation, conn);
        let Some(session) = session.and_then(|session| self.network.sessions.get(&session)) else {
            return true;
        };
        session.side(id, conn).is_none_or(|side| !session.ends[side].open)
    }

    // ---- messages ----

    pub(super) fn send(&mut self, id: NodeId, conn: ConnId, tid: u64, message: Message) {
        let Some(session) = self.network.find(id, self.node(id).incarnation, conn) else { return };
        let found = &self.network.sessions[&session];
        let side = found.side(id, conn).expect("the session was found by it");
        if !found.ends[side].open {
            return;
        }
        if self.trace.print {
            let mut line = format!("  to {conn} {} {tid} {message:?}", message.name());
            line.truncate(line.floor_char_boundary(400));
            self.trace.comment(self.now, &self.nodes[id.0].name, &line);
        }
        self.send_raw(session, side, Envelope { tid, body: message }.to_raw());
    }

    fn send_raw(&mut self, session: SessionId, side: usize, raw: RawMessage) {
        let [from, to] = {
            let ends = &self.network.sessions[&session].ends;
            [ends[side], ends[1 - side]]
        };
        self.note_sent(from.node, &raw);
        if let Some(messenger) = self.messenger(session, side) {
            messenger.send(raw);
            self.unsent.insert((session, side));
            return;
        }
        let when = self.network.arrival(session, side, self.now);
        let found = self.network.sessions.get_mut(&session).expect("it was found");
        found.flying[side].push_back(InFlight::Message(raw));
        self.at_incarnation(when, to.node, to.incarnation, Scheduled::Arrive(session, side));
    }

    /// The bytes are part of the run: runs that differ in them differ.
    fn note_sent(&mut self, id: NodeId, raw: &RawMessage) {
        let crc = crc32c(crc32c(u32::MAX, &raw.front), &raw.data);
        let print = std::mem::replace(&mut self.trace.print, false);
        self.note(id, "sends", u64::from(crc) << 16 | u64::from(raw.kind));
        self.trace.print = print;
    }

    /// Sends what a messenger has to send, in pieces.
    pub(super) fn flush(&mut self, session: SessionId, side: usize) {
        let Some(messenger) = self.messenger(session, side) else { return };
        let bytes: Vec<Bytes> = messenger.transmit().collect();
        if bytes.is_empty() {
            return;
        }
        for piece in self.network.cut(bytes.concat().into()) {
            let when = self.network.arrival(session, side, self.now);
            let found = self.network.sessions.get_mut(&session).expect("its messenger was found");
            found.flying[side].push_back(InFlight::Bytes(piece));
            let to = found.ends[1 - side];
            self.at_incarnation(when, to.node, to.incarnation, Scheduled::Arrive(session, side));
            if self.network.is_reset() {
                return self.reset(session);
            }
        }
    }

    /// The network resets a session: both sides are told behind what is in flight, and nothing more arrives.
    fn reset(&mut self, session: SessionId) {
        let ends = self.network.sessions[&session].ends;
        if ends.iter().all(|end| self.node(end.node).kind == EntityType::Mon) {
            self.network.resets_of_mons += 1;
        }
        for (side, end) in ends.into_iter().enumerate() {
            self.note(end.node, "session reset", session);
            let when = self.network.arrival(session, 1 - side, self.now);
            let closed = Scheduled::Closed(session, side, Closed::Reset);
            self.at_incarnation(when, end.node, end.incarnation, closed);
        }
    }

    pub(super) fn on_arrival(&mut self, id: NodeId, session: SessionId, side: usize) {
        let Some(found) = self.network.sessions.get(&session) else { return };
        let (from, to) = (found.ends[side], found.ends[1 - side]);
        let partitioned = self.network.is_partitioned(from.node, to.node, found.on);
        let found = self.network.sessions.get_mut(&session).expect("it was just there");
        if partitioned {
            found.held[side] += 1;
            return;
        }
        let Some(in_flight) = found.flying[side].pop_front() else { return };
        if !to.open {
            return;
        }
        match in_flight {
            InFlight::Message(raw) => self.received(session, 1 - side, raw),
            InFlight::Bytes(bytes) => self.receive(id, session, 1 - side, bytes),
        }
    }

    fn receive(&mut self, id: NodeId, session: SessionId, side: usize, bytes: Bytes) {
        self.set_wall_clock(id);
        let now = self.now;
        let mut events = Vec::new();
        let messenger = self.messenger(session, side).expect("bytes arrive where there is one");
        let result = messenger.receive(now, bytes, &mut events);
        for event in events {
            match event {
                nacre_msgr::Event::Ready(ident) => self.ready(session, side, &ident),
                nacre_msgr::Event::Message(raw) => self.received(session, side, raw),
                nacre_msgr::Event::KeepaliveAck { .. } => {}
            }
        }
        match result {
            Ok(()) => drop(self.unsent.insert((session, side))),
            Err(why) => self.fault(session, side, &why),
        }
    }

    fn ready(&mut self, session: SessionId, side: usize, ident: &PeerIdent) {
        let found = self.network.sessions.get_mut(&session).expect("its messenger was found");
        found.wire.as_mut().expect("its messenger was found").ready[side] = true;
        let (end, other) = (found.ends[side], found.ends[1 - side]);
        if side == 0 {
            self.learn_number(end.node, other.node, ident);
        }
        let event = Event::Opened { conn: end.conn, peer: peer(ident) };
        self.node_mut(end.node).events.push_back(event);
    }

    /// Received data has memory of its own, as from a socket: the sender's copy is the sender's.
    fn received(&mut self, session: SessionId, side: usize, raw: RawMessage) {
        let end = self.network.sessions.get(&session).map(|found| found.ends[side]);
        let Some(End { node, conn, .. }) = end.filter(|end| end.open) else { return };
        let charge = memory::charge_to(node.0);
        let (front, data) = (Bytes::copy_from_slice(&raw.front), Bytes::copy_from_slice(&raw.data));
        let Envelope { tid, body } =
            Envelope::from_raw(RawMessage { front, data, ..raw }).expect("what was encoded decodes");
        drop(charge);
        if let Message::AuthReply(reply) = &body {
            self.set_wall_clock(node);
            let renewed = self.node(node).identity.as_ref().expect("a running node has one").renewed(reply);
            if let Err(why) = renewed {
                self.end(session, side, Closed::Fault(why));
            }
            return;
        }
        self.node_mut(node).events.push_back(Event::Message { conn, tid, message: body });
    }

    // ---- tickets ----

    /// A client's tickets are renewed before they expire; so is a daemon's session with the monitors.
    pub(super) fn sweep(&mut self, id: NodeId) {
        self.at(self.now + SWEEP, id, Scheduled::Sweep);
        self.set_wall_clock(id);
        let Some(renewal) = self.node(id).identity.as_ref().and_then(Identity::renewal) else {
            return;
        };
        let of_mon = self.network.of_node(id).into_iter().find(|session| {
            let found = &self.network.sessions[session];
            let [ours, theirs] = &found.ends;
            let is_ours = ours.node == id && ours.open && found.is_ready(0);
            is_ours && self.node(theirs.node).kind == EntityType::Mon
        });
        match (of_mon, renewal) {
            (None, _) => {}
            (Some(session), Renewal::Ask(auth)) => {
                self.send_raw(session, 0, Envelope { tid: 0, body: (*auth).into() }.to_raw());
            }
            (Some(session), Renewal::NewSession) => self.end(session, 0, Closed::Reset),
        }
    }

    // ---- the end ----

    pub(super) fn hang_up(&mut self, id: NodeId, conn: ConnId) {
        let Some(session) = self.network.find(id, self.node(id).incarnation, conn) else {
            self.node_mut(id).abandoned.insert(conn);
            return;
        };
        let side = self.network.sessions[&session].side(id, conn).expect("the session was found by it");
        // The last messages still leave.
        self.flush(session, side);
        let found = self.network.sessions.get_mut(&session).expect("it was found");
        if std::mem::replace(&mut found.ends[side].open, false) {
            self.hung_up(session, side);
        }
        self.network.forget_closed(session);
    }

    /// A messenger refuses to continue; its peer still gets the reason, if it has one.
    fn fault(&mut self, session: SessionId, side: usize, why: &FaultReason) {
        let Some(node) = self.network.sessions.get(&session).map(|found| found.ends[side].node) else {
            return;
        };
        self.trace.comment(self.now, &self.node(node).name, &format!("session over: {why}"));
        self.flush(session, side);
        self.end(session, side, closed_by(why));
    }

    /// One side ends a session; its machine is told.
    fn end(&mut self, session: SessionId, side: usize, why: Closed) {
        let found = self.network.sessions.get_mut(&session).expect("it was found");
        let known = found.is_known(side);
        let end = &mut found.ends[side];
        if !std::mem::replace(&mut end.open, false) {
            return;
        }
        let (node, conn) = (end.node, end.conn);
        if known {
            self.node_mut(node).events.push_back(Event::Closed { conn, why });
        }
        self.hung_up(session, side);
        self.network.forget_closed(session);
    }

    /// This side is closed; the other side is told as soon as the network lets it.
    fn hung_up(&mut self, session: SessionId, side: usize) {
        let other = self.network.sessions[&session].ends[1 - side];
        if other.open {
            let when = self.network.arrival(session, side, self.now);
            let closed = Scheduled::Closed(session, 1 - side, Closed::Reset);
            self.at_incarnation(when, other.node, other.incarnation, closed);
        }
    }

    pub(super) fn on_closed(&mut self, id: NodeId, session: SessionId, side: usize, why: Closed) {
        let Some(found) = self.network.sessions.get(&session) else { return };
        let [a, b] = found.ends;
        let stuck = self.network.is_stuck(a.node, b.node, found.on);
        let on = found.on;
        let other = found.ends[1 - side].node;
        if why == Closed::TimedOut && !stuck {
            return; // the partition was over in time
        }
        if why == Closed::Reset && self.network.is_partitioned(other, id, on) {
            // The reset does not arrive yet.
            let when = self.now + Duration::from_millis(500);
            return self.at(when, id, Scheduled::Closed(session, side, why));
        }
        let found = self.network.sessions.get_mut(&session).expect("it was just there");
        let known = found.is_known(side);
        let end = &mut found.ends[side];
        if !end.open {
            return;
        }
        end.open = false;
        let conn = end.conn;
        if known {
            self.node_mut(id).events.push_back(Event::Closed { conn, why: Closed::Reset });
        }
        if !stuck {
            self.hung_up(session, side);
        }
        self.network.forget_closed(session);
    }
}

/// What a machine is told when its messenger ends a session for this reason.
fn closed_by(why: &FaultReason) -> Closed {
    match why {
        FaultReason::HandshakeTimeout { .. } => Closed::TimedOut,
        FaultReason::PeerClosed { .. } => Closed::Reset,
        why => Closed::Fault(why.to_string()),
    }
}

fn peer(ident: &PeerIdent) -> Peer {
    Peer {
        kind: EntityType::from_byte(ident.name.kind).expect("nodes are of known kinds"),
        num: ident.name.num,
        addrs: ident.addrs.clone(),
        observed: EntityAddr::msgr2(ident.sock, 0),
        features: ident.features,
        auth_name: ident.auth_name.clone(),
        proved: ident.proved.clone(),
    }
}
