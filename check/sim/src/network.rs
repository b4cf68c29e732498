//! Sessions between nodes with the guarantees of TCP: in order, but delayed, stalled and reset.

use bytes::Bytes;
use nacre_base::{Rng, Time};
use nacre_machine::ConnId;
use nacre_msgr::Connection;
use nacre_proto::messages::RawMessage;
use nacre_proto::types::Network as Net;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// A node, as an index into `World::nodes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeId(pub usize);

/// Unique within a run.
pub type SessionId = u64;

/// One side of a session.
#[derive(Clone, Copy, Debug)]
pub struct End {
    pub node: NodeId,
    /// The incarnation of the node that the session belongs to.
    pub incarnation: u64,
    pub conn: ConnId,
    /// False once this side's machine was told that the session is over, or hung up.
    pub open: bool,
}

pub struct Session {
    /// The dialling side first.
    pub ends: [End; 2],
    pub on: Net,
    /// When the last message of each direction (from end 0, from end 1) arrives.
    last_arrival: [Time; 2],
    /// In flight, in order.
    pub flying: [VecDeque<InFlight>; 2],
    /// How many of them a partition delays.
    pub held: [u32; 2],
    /// None if messages travel instead of bytes.
    pub wire: Option<Box<Wire>>,
}

pub enum InFlight {
    Message(RawMessage),
    /// A piece of the byte stream.
    Bytes(Bytes),
}

/// The messengers at both ends of a session.
pub struct Wire {
    pub ends: [Connection; 2],
    /// Whether the machine at that end was told that the session is open.
    pub ready: [bool; 2],
}

impl Session {
    /// The index of the side that has this connection.
    pub fn side(&self, node: NodeId, conn: ConnId) -> Option<usize> {
        self.ends.iter().position(|end| end.node == node && end.conn == conn)
    }

    /// Whether the machine on that side knows of the session, and must be told when it is over. The side that
    /// dialled always does.
    pub fn is_known(&self, side: usize) -> bool {
        side == 0 || self.is_ready(side)
    }
    pub fn is_ready(&self, side: usize) -> bool {
        self.wire.as_ref().is_none_or(|wire| wire.ready[side])
    }
}

pub struct Network {
    rng: Rng,
    pub sessions: BTreeMap<SessionId, Session>,
    by_conn: BTreeMap<(NodeId, u64, ConnId), SessionId>,
    last_session: SessionId,
    /// (from, to, network) where everything is lost.
    partitioned: BTreeSet<(NodeId, NodeId, Net)>,
    /// Pairs whose sessions a firewall resets and refuses; datagrams pass.
    rejected: BTreeSet<(NodeId, NodeId)>,
    /// Of a thousand messages, how many take the time of a retransmission.
    pub loss: u64,
    /// Of ten thousand pieces of byte streams, how many are the last of their session: it is reset then.
    pub resets: u64,
    /// Such resets between monitors, which may cost elections.
    pub resets_of_mons: u64,
}

/// Bytes of one read of a socket, as in `shell/node`.
const READ_MAX: usize = 64 << 10;
/// How byte streams are cut: mostly not at all, sometimes into a few pieces, rarely into many small ones.
const PIECES_FEW: u64 = 4;
const PIECES_MANY: u64 = 40;

const LATENCY: (Duration, Duration) = (Duration::from_micros(50), Duration::from_micros(400));
const RETRANSMISSION: (Duration, Duration) = (Duration::from_millis(200), Duration::from_millis(900));

fn pair(a: NodeId, b: NodeId) -> (NodeId, NodeId) {
    (a.min(b), a.max(b))
}

impl Network {
    pub fn new(rng: Rng) -> Network {
        Network {
            rng,
            sessions: BTreeMap::new(),
            by_conn: BTreeMap::new(),
            last_session: 0,
            partitioned: BTreeSet::new(),
            rejected: BTreeSet::new(),
            loss: 0,
            resets: 0,
            resets_of_mons: 0,
        }
    }

    /// Whether the next datagram is lost: datagrams are not retransmitted.
    pub fn is_lost(&mut self) -> bool {
        self.rng.chance(self.loss)
    }
    pub fn latency(&mut self) -> Duration {
        let retransmitted = self.rng.chance(self.loss);
        let (low, high) = if retransmitted { RETRANSMISSION } else { LATENCY };
        self.rng.duration(low, high)
    }

    /// When a message sent now in that direction arrives: after all before it.
    pub fn arrival(&mut self, session: SessionId, from_side: usize, now: Time) -> Time {
        let arrival = now + self.latency();
        let Some(session) = self.sessions.get_mut(&session) else { return arrival };
        let last = &mut session.last_arrival[from_side];
        *last = arrival.max(*last + Duration::from_nanos(1));
        *last
    }

    /// Cuts what one write sends at arbitrary places, and into what one read takes at most.
    pub fn cut(&mut self, mut bytes: Bytes) -> Vec<Bytes> {
        let mut reads = Vec::new();
        while bytes.len() > READ_MAX {
            reads.push(bytes.split_to(READ_MAX));
        }
        reads.push(bytes);
        reads.into_iter().flat_map(|bytes| self.cut_read(bytes)).collect()
    }
    fn cut_read(&mut self, mut bytes: Bytes) -> Vec<Bytes> {
        let count = match self.rng.below(20) {
            0..=12 => 1,
            13..=18 => 1 + self.rng.below(PIECES_FEW),
            _ => 1 + self.rng.below(PIECES_MANY),
        };
        let mut pieces = Vec::new();
        for _ in 1..count {
            // Short pieces end inside preambles and tags.
            let most = if self.rng.chance(500) { bytes.len() } else { bytes.len().min(64) };
            pieces.push(bytes.split_to(self.rng.below(most as u64 + 1) as usize));
        }
        pieces.push(bytes);
        pieces.retain(|piece| !piece.is_empty());
        pieces
    }
    pub fn is_reset(&mut self) -> bool {
        self.resets > 0 && self.rng.below(10_000) < self.resets
    }

    pub fn open(&mut self, ends: [End; 2], on: Net, wire: Option<Box<Wire>>) -> SessionId {
        self.last_session += 1;
        for end in &ends {
            self.by_conn.insert((end.node, end.incarnation, end.conn), self.last_session);
        }
        let session = Session {
            ends,
            on,
            last_arrival: [Time::ZERO; 2],
            flying: Default::default(),
            held: [0; 2],
            wire,
        };
        self.sessions.insert(self.last_session, session);
        self.last_session
    }
    pub fn find(&self, node: NodeId, incarnation: u64, conn: ConnId) -> Option<SessionId> {
        self.by_conn.get(&(node, incarnation, conn)).copied()
    }
    /// Drops a session once both of its sides know that it is over.
    pub fn forget_closed(&mut self, id: SessionId) {
        if self.sessions.get(&id).is_some_and(|session| session.ends.iter().all(|end| !end.open)) {
            let session = self.sessions.remove(&id).expect("it was just there");
            for end in session.ends {
                self.by_conn.remove(&(end.node, end.incarnation, end.conn));
            }
        }
    }
    pub fn of_node(&self, node: NodeId) -> Vec<SessionId> {
        let touches = |session: &Session| session.ends.iter().any(|end| end.node == node);
        self.sessions.iter().filter(|(_, session)| touches(session)).map(|(id, _)| *id).collect()
    }

    pub fn is_partitioned(&self, from: NodeId, to: NodeId, on: Net) -> bool {
        self.partitioned.contains(&(from, to, on))
    }
    /// Whether a session between the two makes no progress: TCP needs both directions.
    pub fn is_stuck(&self, a: NodeId, b: NodeId, on: Net) -> bool {
        self.is_partitioned(a, b, on) || self.is_partitioned(b, a, on)
    }
    /// Returns the sessions that stall from now on.
    pub fn partition(&mut self, from: NodeId, to: NodeId, on: Net) -> Vec<SessionId> {
        self.partitioned.insert((from, to, on));
        self.between(from, to, on)
    }
    /// Returns the sessions that continue.
    pub fn heal(&mut self, from: NodeId, to: NodeId, on: Net) -> Vec<SessionId> {
        self.partitioned.remove(&(from, to, on));
        self.between(from, to, on)
    }
    pub fn is_rejected(&self, a: NodeId, b: NodeId) -> bool {
        self.rejected.contains(&pair(a, b))
    }
    /// Returns the sessions that end.
    pub fn reject(&mut self, a: NodeId, b: NodeId) -> Vec<SessionId> {
        self.rejected.insert(pair(a, b));
        [Net::Public, Net::Cluster].into_iter().flat_map(|on| self.between(a, b, on)).collect()
    }
    pub fn reject_nothing(&mut self) {
        self.rejected.clear();
    }
    pub fn partitions(&self) -> Vec<(NodeId, NodeId, Net)> {
        self.partitioned.iter().copied().collect()
    }
    fn between(&self, a: NodeId, b: NodeId, on: Net) -> Vec<SessionId> {
        let joins = |session: &Session| {
            session.on == on && pair(session.ends[0].node, session.ends[1].node) == pair(a, b)
        };
        self.sessions.iter().filter(|(_, session)| joins(session)).map(|(id, _)| *id).collect()
    }
}
