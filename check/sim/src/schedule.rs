//! What may be due at a node.

use crate::network::{NodeId, SessionId};
use nacre_machine::{Closed, ConnId, Event, TimerId, Token};
use nacre_proto::types::{EntityAddr, EntityType};
use nacre_store::ReadPlan;

/// Something due at a node at some virtual time.
pub enum Scheduled {
    Event(Event),
    Timer(TimerId),
    DiskDone,
    DeferredDone,
    ReadDone(Token, ReadPlan),
    /// A connection attempt arrives.
    Dialled {
        from: NodeId,
        incarnation: u64,
        conn: ConnId,
        to: EntityAddr,
        kind: EntityType,
    },
    /// The next message that this side sent arrives at the other side.
    Arrive(SessionId, usize),
    /// The side learns that the session is over.
    Closed(SessionId, usize, Closed),
}
