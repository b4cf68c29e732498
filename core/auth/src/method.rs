//! Where an authentication method plugs into the handshake of a connection.

use crate::cephx::Service;
use nacre_proto::types::{AuthName, EntityType};
use nacre_wire::{Decode, DecodeError, Encode, Reader};
use std::fmt;

/// Believes what a client says of itself. Ceph: `CEPH_AUTH_NONE`.
pub const METHOD_NONE: u32 = 1;
/// Shared keys and tickets. Ceph: `CEPH_AUTH_CEPHX`.
pub const METHOD_CEPHX: u32 = 2;

/// Frames are protected by checksums only. Ceph: `CEPH_CON_MODE_CRC`.
pub const CONNECTION_MODE_CRC: u32 = 1;
/// Frames are encrypted. Ceph: `CEPH_CON_MODE_SECURE`.
pub const CONNECTION_MODE_SECURE: u32 = 2;
/// Bytes of a connection's secret in secure mode.
pub const CONNECTION_SECRET_LEN: usize = 64;

/// How a client opens its authentication. Ceph: `AuthRequestFrame`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    pub method: u32,
    /// Connection modes, best first.
    pub modes: Vec<u32>,
    pub payload: Vec<u8>,
}

impl Encode for Offer {
    fn encode(&self, out: &mut Vec<u8>) {
        self.method.encode(out);
        self.modes.encode(out);
        self.payload.encode(out);
    }
}
impl Decode for Offer {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Offer { method: u32::decode(r)?, modes: Vec::decode(r)?, payload: Vec::decode(r)? })
    }
}

/// What both ends of a connection know once they know each other.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionSecret {
    /// Signs what was said until then: the session key's bytes.
    pub key: Vec<u8>,
    /// Encrypts what comes then, in secure mode; else empty.
    pub connection: Vec<u8>,
}

impl fmt::Debug for SessionSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionSecret")
    }
}

/// The proved identity of the client at the other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proved {
    pub name: AuthName,
    /// The service that it asked for.
    pub service: Service,
    /// What it may do here, as text.
    pub caps: String,
    /// Its id, which the monitors gave it.
    pub global_id: u64,
}

/// A server's yes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The client's name; with a method that proves nothing, the name that it claims.
    pub name: AuthName,
    pub global_id: u64,
    /// None: the method asks for no proof, and every client may do everything.
    pub proved: Option<Proved>,
    /// Goes to it with AUTH_DONE.
    pub reply: Vec<u8>,
    pub session: Option<SessionSecret>,
}

/// What a server thinks of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Granted(Box<Grant>),
    /// It must answer this first.
    Challenge(Vec<u8>),
    /// It may try another method. A Linux error number, positive.
    Refused {
        errno: i32,
    },
    /// What that takes is not here yet: ask again.
    Later,
}

/// A client's half of an authentication method; one for each connection.
pub trait Prover: Send {
    fn open(&mut self, to: EntityType) -> Offer;
    /// The answer to a server that wants to know more; None if this method has none.
    fn answer(&mut self, challenge: &[u8]) -> Option<Vec<u8>>;
    /// The server said yes, and this: what both know now, or why the server failed to prove its identity.
    fn granted(&mut self, global_id: u64, payload: &[u8]) -> Result<Option<SessionSecret>, String>;
    /// The server said no.
    fn refused(&mut self) {}
}

/// A server's half of the authentication methods that it allows; one for each connection.
pub trait Verifier: Send {
    /// Methods that a client may use, ...
    fn methods(&self) -> Vec<u32>;
    /// ... and the modes that a connection may be in then.
    fn modes(&self) -> Vec<u32>;
    /// Called with the payload of AUTH_REQUEST, and again with each answer to a challenge. `method` and
    /// `mode` are of those that are allowed.
    fn judge(&mut self, method: u32, mode: u32, payload: &[u8]) -> Verdict;
}

/// Where a client's global id comes from.
pub enum GlobalIds {
    /// We are a monitor and assign one to a client that has none; each call gives an id never given before,
    /// or none if there is none to give yet.
    Assign(Box<dyn FnMut() -> Option<u64> + Send>),
    /// We are anything else: the client brings the one that a monitor assigned.
    Brought,
}
