//! What two ends tell each other before the first message: the banner and the payloads of the
//! handshake's frames.

use bytes::Bytes;
use nacre_proto::types::{AddrVec, EntityAddr, EntityType};
use nacre_wire::{Decode, DecodeError, Encode, Reader};

/// Opens every connection, in both directions.
pub(crate) const BANNER_PREFIX: &[u8] = b"ceph v2\n";
pub(crate) const BANNER_PREFIX_V1: &[u8] = b"ceph v0";
/// Two feature masks; later releases may append.
pub(crate) const BANNER_PAYLOAD_MIN: u16 = 16;
pub(crate) const BANNER_PAYLOAD_MAX: u16 = 256;
/// Frames of revision 2.1, which every peer must support. Compression (bit 1) is not offered.
pub(crate) const MESSENGER_FEATURES: u64 = 1;

pub(crate) fn banner() -> Bytes {
    let mut out = BANNER_PREFIX.to_vec();
    BANNER_PAYLOAD_MIN.encode(&mut out);
    MESSENGER_FEATURES.encode(&mut out); // supported
    MESSENGER_FEATURES.encode(&mut out); // required
    out.into()
}

/// Tells the peer what we are and which address we see it at. Ceph: `HelloFrame`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) kind: EntityType,
    pub(crate) peer_addr: EntityAddr,
}

impl Encode for Hello {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.kind as u8);
        self.peer_addr.encode(out);
    }
}
impl Decode for Hello {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Hello { kind: EntityType::from_byte(u8::decode(r)?)?, peer_addr: EntityAddr::decode(r)? })
    }
}

/// Ceph: `AuthBadMethodFrame`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AuthBadMethod {
    pub(crate) method: u32,
    /// Linux's error number, positive here and negative on the wire.
    pub(crate) errno: i32,
    pub(crate) methods: Vec<u32>,
    pub(crate) modes: Vec<u32>,
}

impl Encode for AuthBadMethod {
    fn encode(&self, out: &mut Vec<u8>) {
        self.method.encode(out);
        (-self.errno).encode(out);
        self.methods.encode(out);
        self.modes.encode(out);
    }
}
impl Decode for AuthBadMethod {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let method = u32::decode(r)?;
        let errno = i32::decode(r)?.saturating_neg();
        Ok(AuthBadMethod { method, errno, methods: Vec::decode(r)?, modes: Vec::decode(r)? })
    }
}

/// Ceph: `AuthDoneFrame`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AuthDone {
    pub(crate) global_id: u64,
    pub(crate) mode: u32,
    pub(crate) payload: Vec<u8>,
}

impl Encode for AuthDone {
    fn encode(&self, out: &mut Vec<u8>) {
        self.global_id.encode(out);
        self.mode.encode(out);
        self.payload.encode(out);
    }
}
impl Decode for AuthDone {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(AuthDone { global_id: u64::decode(r)?, mode: u32::decode(r)?, payload: Vec::decode(r)? })
    }
}

/// The session ends with its connection. Ceph: `CEPH_MSG_CONNECT_LOSSY`.
pub(crate) const FLAG_LOSSY: u64 = 1;

/// Ceph: `ServerIdentFrame`, and `ClientIdentFrame` but for its target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ident {
    pub(crate) addrs: AddrVec,
    /// Only what a client sends has one: the address that it dialled.
    pub(crate) target: Option<EntityAddr>,
    /// The number in the sender's entity name; -1 for a client that has none yet.
    pub(crate) num: i64,
    pub(crate) global_seq: u64,
    pub(crate) supported: u64,
    pub(crate) required: u64,
    pub(crate) flags: u64,
    pub(crate) cookie: u64,
}

impl Encode for Ident {
    fn encode(&self, out: &mut Vec<u8>) {
        self.addrs.encode(out);
        if let Some(target) = &self.target {
            target.encode(out);
        }
        self.num.encode(out);
        for value in [self.global_seq, self.supported, self.required, self.flags, self.cookie] {
            value.encode(out);
        }
    }
}

impl Ident {
    fn decode(r: &mut Reader<'_>, from_client: bool) -> Result<Ident, DecodeError> {
        let addrs = AddrVec::decode(r)?;
        let target = if from_client { Some(EntityAddr::decode(r)?) } else { None };
        Ok(Ident {
            addrs,
            target,
            num: i64::decode(r)?,
            global_seq: u64::decode(r)?,
            supported: u64::decode(r)?,
            required: u64::decode(r)?,
            flags: u64::decode(r)?,
            cookie: u64::decode(r)?,
        })
    }
}

/// An `Ident` as a client sends it.
pub(crate) struct ClientIdent(pub(crate) Ident);
/// An `Ident` as a server sends it.
pub(crate) struct ServerIdent(pub(crate) Ident);

impl Decode for ClientIdent {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ident::decode(r, true).map(ClientIdent)
    }
}
impl Decode for ServerIdent {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ident::decode(r, false).map(ServerIdent)
    }
}
