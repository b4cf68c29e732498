//! One msgr2.1 connection as a machine without sockets: bytes in, messages and bytes out.
//!
//! Start at `Connection`. Below it: `frame` cuts the stream into checked frames, `seal` keeps them secret
//! in secure mode, `handshake` is what they say before the first message (`nacre-auth` authenticates),
//! `outbox` the bytes that wait to be written.
//! Spoken today: frames of revision 2.1 in crc and secure mode, with lossy sessions (a fault ends the
//! session, and the side that dialled starts a new one).

mod connection;
mod fault;
mod frame;
mod handshake;
mod outbox;
mod seal;
mod sums;
mod tag;
pub mod testing;

pub use connection::{Config, Connection, Event, Limits, PeerIdent};
pub use fault::FaultReason;
pub use outbox::Outbox;
pub use sums::Sums;
pub use tag::Tag;

/// Every feature that a Nautilus to Squid peer means by its mask; we encode as if all were agreed on.
pub const FEATURES_SUPPORTED: u64 = 0x3f01_cfbd_fffd_ffff;
/// What monitors and OSDs demand of a peer: CRUSH_TUNABLES 1, 2, 3 and 5, OSDHASHPSPOOL, CRUSH_V4, MSG_ADDR2.
pub const FEATURES_REQUIRED_BY_STORAGE: u64 = 0x0c01_0200_4204_0000;
/// What managers and metadata servers demand: MSG_ADDR2, without which there is no msgr2.
pub const FEATURES_REQUIRED_BY_SERVICES: u64 = 0x0800_0000_0000_0000;
/// What clients demand: MSG_ADDR2 and OSDREPLYMUX.
pub const FEATURES_REQUIRED_BY_CLIENTS: u64 = 0x0800_0000_0000_1000;
