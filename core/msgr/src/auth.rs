//! Who may speak: the seam where an authentication method plugs into the handshake, and the method
//! "none", which believes everyone.

use nacre_base::errno;
use nacre_proto::types::EntityType;
use nacre_wire::{Decode, DecodeError, Encode, Reader, from_slice};

/// Ceph: `CEPH_AUTH_NONE`.
pub const METHOD_NONE: u32 = 1;
/// Frames are protected by checksums only. Ceph: `CEPH_CON_MODE_CRC`.
pub const CONNECTION_MODE_CRC: u32 = 1;

/// Who asks: a monitor expects to be asked for a session and a global id, ...
const ASKS_MONITOR: u8 = 10;
/// ... and everyone else to be shown what a monitor granted. Ceph: `AUTH_MODE_AUTHORIZER`.
const SHOWS_AUTHORITY: u8 = 1;

/// A name that keys and capabilities belong to, as in `client.admin`. Ceph: `EntityName`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AuthName {
    pub kind: EntityType,
    pub id: String,
}

impl AuthName {
    pub fn new(kind: EntityType, id: impl Into<String>) -> AuthName {
        AuthName { kind, id: id.into() }
    }
}

impl std::fmt::Display for AuthName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.kind, self.id)
    }
}
impl Encode for AuthName {
    fn encode(&self, out: &mut Vec<u8>) {
        u32::from(self.kind as u8).encode(out);
        self.id.encode(out);
    }
}
impl Decode for AuthName {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let kind = u32::decode(r)?;
        let byte = u8::try_from(kind)
            .map_err(|_| DecodeError::BadValue { what: "entity type", value: kind.into() })?;
        Ok(AuthName { kind: EntityType::from_byte(byte)?, id: String::decode(r)? })
    }
}

/// How a client opens its authentication. Ceph: the fields of AUTH_REQUEST.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    pub method: u32,
    /// Connection modes, best first.
    pub modes: Vec<u32>,
    pub payload: Vec<u8>,
}

/// A client's half of an authentication method; one for each connection.
pub trait Prover: Send {
    fn open(&mut self, to: EntityType) -> Offer;
    /// The answer to a server that wants to know more; None if this method has none.
    fn answer(&mut self, challenge: &[u8]) -> Option<Vec<u8>>;
}

/// What a server thinks of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The client is who it says. `reply` goes to it with AUTH_DONE.
    Granted { name: AuthName, global_id: u64, reply: Vec<u8> },
    /// It must answer this first.
    Challenge(Vec<u8>),
    /// It may try another method. A Linux error number, positive.
    Refused { errno: i32 },
    /// What that takes is not here yet: see `Connection::decide`.
    Later,
}

/// A server's half of the authentication methods that it allows; one for each connection.
pub trait Verifier: Send {
    /// Methods that a client may use.
    fn methods(&self) -> Vec<u32>;
    /// Called with the payload of AUTH_REQUEST, and again with each answer to a challenge. `method` is
    /// one of `methods`.
    fn judge(&mut self, method: u32, payload: &[u8]) -> Verdict;
}

/// The payload of AUTH_REQUEST for method "none".
struct NonePayload {
    mode: u8,
    name: AuthName,
    /// 0: the client has none yet.
    global_id: u64,
}

impl Encode for NonePayload {
    fn encode(&self, out: &mut Vec<u8>) {
        self.mode.encode(out);
        self.name.encode(out);
        self.global_id.encode(out);
    }
}
impl Decode for NonePayload {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(NonePayload { mode: u8::decode(r)?, name: AuthName::decode(r)?, global_id: u64::decode(r)? })
    }
}

/// Says who we are, and proves nothing.
pub struct NoneProver {
    pub name: AuthName,
    /// What a monitor assigned earlier; 0 if none did.
    pub global_id: u64,
}

impl Prover for NoneProver {
    fn open(&mut self, to: EntityType) -> Offer {
        let mode = if to == EntityType::Mon { ASKS_MONITOR } else { SHOWS_AUTHORITY };
        let payload = NonePayload { mode, name: self.name.clone(), global_id: self.global_id };
        Offer { method: METHOD_NONE, modes: vec![CONNECTION_MODE_CRC], payload: nacre_wire::to_vec(&payload) }
    }
    fn answer(&mut self, _challenge: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

/// Where a client's global id comes from.
pub enum GlobalIds {
    /// We are a monitor and assign one to a client that has none; each call gives an id never given before,
    /// or none if there is none to give yet.
    Assign(Box<dyn FnMut() -> Option<u64> + Send>),
    /// We are anything else: the client brings the one that a monitor assigned.
    Brought,
}

/// Believes what the client says of itself.
pub struct NoneVerifier {
    pub global_ids: GlobalIds,
}

impl Verifier for NoneVerifier {
    fn methods(&self) -> Vec<u32> {
        vec![METHOD_NONE]
    }
    fn judge(&mut self, _method: u32, payload: &[u8]) -> Verdict {
        let Ok(NonePayload { mode, name, global_id }) = from_slice(payload) else {
            return Verdict::Refused { errno: errno::EINVAL };
        };
        let global_id = match (&mut self.global_ids, mode) {
            (GlobalIds::Assign(next), ASKS_MONITOR) if global_id == 0 => match next() {
                Some(id) => id,
                None => return Verdict::Later,
            },
            (GlobalIds::Assign(_), ASKS_MONITOR) | (_, SHOWS_AUTHORITY) => global_id,
            _ => return Verdict::Refused { errno: errno::EOPNOTSUPP },
        };
        Verdict::Granted { name, global_id, reply: Vec::new() }
    }
}
