//! The identity of a request, and the placement group that it is for.

use super::EntityName;
use nacre_wire::{Decode, DecodeError, Encode, Reader, versioned};
use std::fmt;

/// One request of one client, the same in every attempt to send it. Ceph: `osd_reqid_t` v2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReqId {
    pub client: EntityName,
    pub tid: u64,
    /// The client's incarnation: some clients count their tids anew after a restart.
    pub inc: i32,
}

/// Ceph prints `client.4123.0:17`.
impl fmt::Display for ReqId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}:{}", self.client, self.inc, self.tid)
    }
}

impl Encode for ReqId {
    fn encode(&self, out: &mut Vec<u8>) {
        versioned(out, 2, 2, |out| {
            self.client.encode(out);
            self.tid.encode(out);
            self.inc.encode(out);
        });
    }
}
impl Decode for ReqId {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("osd_reqid_t", 2, |r, _| {
            Ok(ReqId { client: Decode::decode(r)?, tid: Decode::decode(r)?, inc: Decode::decode(r)? })
        })
    }
}
