//! What may happen at a node.

use crate::network::{NodeId, SessionId};
use nacre_machine::{Closed, ConnId, Event, TimerId, Token};
use nacre_proto::types::{EntityAddr, EntityType};
use nacre_store::ReadPlan;

/// Something due at a node.
pub enum What {
    Event(Event),
    Timer(TimerId),
    DiskDone,
    DeferredDone,
    ReadDone(Token, ReadPlan),
    /// A connection attempt arrives at the one who is dialled.
    Dialled {
        from: NodeId,
        life: u64,
        conn: ConnId,
        to: EntityAddr,
        kind: EntityType,
    },
    /// The next message that the side sent.
    Arrive(SessionId, usize),
    /// The side learns that the session is over.
    Closed(SessionId, usize, Closed),
}
