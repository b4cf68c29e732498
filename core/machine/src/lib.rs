//! The boundary that every daemon speaks: events in, effects out.
//!
//! A `Machine` decides and never does. Its driver (the shell in production, the simulator in
//! tests) passes events in the order they happened and carries out the effects in the order they
//! were pushed. Read `Event`, `Effect`, then `Machine` and `StoreView`.

mod context;
mod store_view;

pub use context::{ConnIds, Context};
pub use store_view::{Lost, NoStore, ReadError, SalvagedExtents, Statfs, StoreStat, StoreView, given_up};

use bytes::Bytes;
use nacre_auth::{Keys, Proved};
use nacre_base::Now;
use nacre_proto::messages::Message;
use nacre_proto::transaction::{StoredId, Transaction};
use nacre_proto::types::{AddrVec, AuthName, EntityAddr, EntityType, Network};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// A session with a peer. The machine numbers those it dials, the driver those it accepts; a
/// number is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConnId {
    Dialled(u64),
    Accepted(u64),
}

/// The peer of a session, once the handshake is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    pub kind: EntityType,
    /// A client's global id, an OSD's number, a monitor's rank.
    pub num: i64,
    /// The addresses that the peer says it has; a client's tell it from its other lives.
    pub addrs: AddrVec,
    /// Where its bytes come from.
    pub observed: EntityAddr,
    pub features: u64,
    /// The entity that it said it is; proved by `proved` alone. None: this daemon dialled.
    pub auth_name: Option<AuthName>,
    /// The authenticated caller and its capabilities. None: the cluster authenticates no callers, and all may
    /// do everything; or this daemon dialled.
    pub proved: Option<Proved>,
}

impl Peer {
    /// From where it calls, as capabilities may name it.
    pub fn ip(&self) -> IpAddr {
        self.observed.sock.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |sock| sock.ip())
    }
}

/// Why a session is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Closed {
    /// Nothing listens there: for a daemon, hard evidence that this life of it has ended.
    Refused,
    /// The peer or the network ended it.
    Reset,
    /// No answer in time while dialling.
    TimedOut,
    /// The peer broke the protocol, or is not the one that was dialled; the text has been logged.
    Fault(String),
}

/// Pairs a request to the store with its completion.
pub type Token = u64;
/// A machine's own name for one of its timers.
pub type TimerId = u64;

#[derive(Debug)]
pub enum Event {
    /// First of all; what was stored before is in the view.
    Start,
    Opened {
        conn: ConnId,
        peer: Peer,
    },
    Closed {
        conn: ConnId,
        why: Closed,
    },
    Message {
        conn: ConnId,
        tid: u64,
        message: Message,
    },
    /// Came to the daemon's datagram socket on that network; the sender is not authenticated.
    Datagram {
        network: Network,
        from: SocketAddr,
        bytes: Bytes,
    },
    /// The transaction with this token, and all before it, are durable.
    Stored(Token),
    ReadDone {
        token: Token,
        result: Result<Vec<Bytes>, ReadError>,
    },
    Timer(TimerId),
    /// `Effect::Loop` came back.
    Loop(u64),
    /// Fewer than half of the last `Effect::GrantIds` are left.
    IdsLow,
    /// Finish cleanly: say goodbye, then push `Effect::Stopped`.
    Stop,
}

#[derive(Debug)]
pub enum Effect {
    /// Opens a session; `Opened` or `Closed` follows.
    Dial {
        conn: ConnId,
        to: EntityAddr,
        kind: EntityType,
    },
    /// Dropped silently when the session is over: `Closed` tells.
    Send {
        conn: ConnId,
        tid: u64,
        message: Message,
    },
    /// Ends a session, or the attempt to open one; no `Closed` follows, and no `Opened`.
    Hangup {
        conn: ConnId,
    },
    /// May get lost without notice. Leaves from the daemon's address on that network.
    Datagram {
        network: Network,
        to: SocketAddr,
        bytes: Bytes,
    },
    /// Applies at once to the view that the next event gets; `Stored(token)` follows when it is
    /// durable, in order.
    Store {
        token: Token,
        txn: Transaction,
    },
    /// Reads (offset, length) extents of one object's data as it is now, with every transaction
    /// pushed before; `ReadDone` follows, a short result where the data ends.
    Read {
        token: Token,
        id: StoredId,
        extents: Vec<(u64, u64)>,
        /// What the device itself holds is wanted, not what a cache has of it.
        device: bool,
    },
    /// Fires once after this long; arming again replaces.
    Arm {
        timer: TimerId,
        after: Duration,
    },
    Disarm {
        timer: TimerId,
    },
    /// Comes back as `Event::Loop` before anything else, once the effects before it are done: how a
    /// machine continues with the next piece of work on a view that shows the last one.
    Loop(u64),
    /// Monitors: global ids for clients that connect to this monitor from here on.
    GrantIds(Range<u64>),
    /// By which callers are known from here on, in a cluster where they are asked for proof.
    Keys(Arc<Keys>),
    Log {
        level: Level,
        text: String,
    },
    /// The answer to `Event::Stop`: all is said and durable.
    Stopped,
    /// The machine cannot continue. The driver ends the daemon with an error, carries out no later effect and
    /// passes no further event.
    Fail {
        /// For the administrator, with what to do about it.
        reason: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Error,
    Warn,
    Info,
    Debug,
}

/// Handles one event at a time. Same seed and same events give the same effects.
pub trait Machine {
    /// `store` shows every transaction that this machine pushed in earlier events, durable or not.
    fn handle(&mut self, now: Now, event: Event, store: &dyn StoreView, out: &mut Vec<Effect>);
}

impl fmt::Display for ConnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnId::Dialled(n) => write!(f, "out{n}"),
            ConnId::Accepted(n) => write!(f, "in{n}"),
        }
    }
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Closed::Refused => f.write_str("connection refused"),
            Closed::Reset => f.write_str("connection reset"),
            Closed::TimedOut => f.write_str("no reply in time"),
            Closed::Fault(why) => f.write_str(why),
        }
    }
}
