//! Why a connection ended.

use crate::tag::Tag;
use nacre_proto::types::{AddrVec, AuthName, EntityAddr, EntityType};
use nacre_wire::DecodeError;

/// Why a connection is over. The text is the whole log line; the peer's address is the logger's to add.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultReason {
    #[error("not a Ceph peer: it began with \"{start}\"")]
    NotCeph { start: String },
    #[error("the peer speaks messenger v1, here is only v2")]
    MessengerV1,
    #[error("the banner announces {len} bytes, {min} to {max} are sensible")]
    BannerLength { len: u16, min: u16, max: u16 },
    #[error("the peer knows messenger features {supported:#x} and requires {required:#x}, here is {ours:#x}")]
    BannerFeatures { supported: u64, required: u64, ours: u64 },
    #[error("a frame's preamble has crc {found:#010x}, it announces {expected:#010x}")]
    PreambleCrc { expected: u32, found: u32 },
    #[error("unknown frame tag {0}")]
    UnknownTag(u8),
    #[error("{tag} does not belong into the {phase} phase")]
    UnexpectedTag { tag: Tag, phase: &'static str },
    #[error("{tag} with {count} segments")]
    SegmentCount { tag: Tag, count: u8 },
    #[error("{tag} ends in an empty segment")]
    EmptySegment { tag: Tag },
    #[error("{tag} with flags {flags:#04x}, which were not negotiated")]
    FrameFlags { tag: Tag, flags: u8 },
    #[error("{tag}: segment {index} is {len} bytes, limit {limit}")]
    SegmentTooLong { tag: Tag, index: usize, len: u32, limit: u32 },
    #[error("{tag}: segment {index} has crc {found:#010x}, it announces {expected:#010x}")]
    SegmentCrc { tag: Tag, index: usize, expected: u32, found: u32 },
    #[error("the connection secret is {len} bytes, {needed} are needed")]
    ConnectionSecret { len: usize, needed: usize },
    #[error("the peer sent part of a frame before it was told how frames are protected")]
    Hasty,
    #[error("a frame's preamble does not authenticate")]
    PreambleSeal,
    #[error("{tag} does not authenticate")]
    SegmentSeal { tag: Tag },
    #[error("{tag} ends with status {status:#04x}, neither complete nor aborted")]
    LateStatus { tag: Tag, status: u8 },
    #[error("{tag}: {error}")]
    Malformed { tag: Tag, error: DecodeError },
    #[error("the peer is of kind {found}, {expected} was expected")]
    WrongKind { expected: EntityType, found: EntityType },
    #[error("the peer refused authentication method {method} (error {errno}), it allows {allowed:?}")]
    AuthRefused { method: u32, errno: i32, allowed: Vec<u32> },
    #[error("authentication needs no answer here, the peer asked for one")]
    AuthChallenge,
    #[error("still not authenticated after {0} attempts")]
    AuthAttempts(u32),
    #[error("the peer chose connection mode {0}, which was not offered")]
    ConnectionMode(u32),
    #[error("the peer's signature is wrong")]
    Signature,
    #[error("the peer failed to authenticate itself: {0}")]
    NotProved(String),
    #[error("the peer says it is of kind {kind}, with the key of {name}")]
    NotItsKey { kind: EntityType, name: AuthName },
    #[error("the peer says it is number {num}, with the key of {name}")]
    NotItsNumber { num: i64, name: AuthName },
    #[error("the peer wants {target}, here is {here}")]
    NotForUs { target: EntityAddr, here: AddrVec },
    #[error("dialled {target}, but there is {found}")]
    WrongPeer { target: EntityAddr, found: AddrVec },
    #[error("the peer gives no address of its own")]
    NoAddress,
    #[error("the peer lacks required features {0:#x}")]
    PeerLacksFeatures(u64),
    #[error("the peer requires features {0:#x} that are missing here")]
    WeLackFeatures(u64),
    #[error("message {found} arrived where {expected} was due")]
    Sequence { expected: u64, found: u64 },
    #[error("the handshake was not over in time, it stopped in the {phase} phase")]
    HandshakeTimeout { phase: &'static str },
    #[error("the peer closed the connection in the {phase} phase{inside}")]
    PeerClosed { phase: &'static str, inside: &'static str },
}
