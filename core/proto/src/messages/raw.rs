//! A message before anyone looked into it.

use bytes::Bytes;

/// One message as the messenger carries it: the parts of the header that mean something above a
/// connection, and the three segments that follow it. Ceph: `ceph_msg_header2` and its payload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawMessage {
    /// Ceph's message number. Ceph: `type`.
    pub kind: u16,
    /// The sender's version of the body.
    pub version: u16,
    /// The oldest version whose reader can make sense of the body.
    pub compat: u16,
    /// Pairs a reply with its request; the requester chooses it.
    pub tid: u64,
    /// Higher goes first where a peer has a choice.
    pub priority: u16,
    pub front: Bytes,
    pub middle: Bytes,
    /// Bulk: what is written or was read. A slice of the received frame, never copied.
    pub data: Bytes,
}
