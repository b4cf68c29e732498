//! What may be due at a node.

use crate::network::{NodeId, SessionId};
use nacre_base::Time;
use nacre_machine::{Closed, ConnId, Event, TimerId, Token};
use nacre_proto::types::{EntityAddr, EntityType};
use nacre_store::ReadPlan;

/// Something due at a node at some virtual time.
pub enum Scheduled {
    Event(Event),
    Timer(TimerId),
    /// A batch of the write-ahead log is written.
    DiskDone,
    /// Blocks are written from the log to their place.
    DeferredDone,
    ReadDone(Token, ReadPlan),
    /// A connection attempt arrives.
    Dialled(Dial),
    /// The attempt was accepted: the dialling side may send.
    Connected(SessionId),
    /// The next message, or piece of the byte stream, that this side sent arrives at the other side.
    Arrive(SessionId, usize),
    /// The side learns that the session is over.
    Closed(SessionId, usize, Closed),
    /// The side gives up a handshake that is not over.
    HandshakeDeadline(SessionId, usize),
    /// Time to look after tickets; about once a second, as in `shell/node`.
    Sweep,
}

/// A connection attempt.
#[derive(Clone, Copy, Debug)]
pub struct Dial {
    pub from: NodeId,
    /// Of the dialling node.
    pub incarnation: u64,
    pub conn: ConnId,
    pub to: EntityAddr,
    /// The kind of daemon that is expected there.
    pub kind: EntityType,
    /// When it began.
    pub since: Time,
}
