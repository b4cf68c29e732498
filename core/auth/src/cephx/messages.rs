//! What client and server say to each other, as bytes.

use crate::{ASKS_MONITOR, Entropy, SHOWS_TICKET, Secret, Usage};
use nacre_base::Utime;
use nacre_proto::types::AuthName;
use nacre_wire::{Decode, DecodeError, Encode, Reader};
use std::time::Duration;

/// Ceph: `CEPHX_GET_AUTH_SESSION_KEY`.
const GET_SESSION: u16 = 0x0100;
/// Ceph: `CEPHX_GET_PRINCIPAL_SESSION_KEY`.
const GET_TICKETS: u16 = 0x0200;
/// Ceph: `CEPHX_GET_ROTATING_KEY`.
const GET_ROTATING: u16 = 0x0400;

/// A service that accepts tickets, as one bit. Ceph: `CEPH_ENTITY_TYPE_*`.
pub type Service = u32;
pub const SERVICE_MON: Service = 1;
pub const SERVICE_MDS: Service = 2;
pub const SERVICE_OSD: Service = 4;
pub const SERVICE_MGR: Service = 16;
/// The monitors where they give tickets for others. Ceph: `CEPH_ENTITY_TYPE_AUTH`.
pub const SERVICE_AUTH: Service = 32;
/// All that have rotating keys of their own.
pub const SERVICES: [Service; 5] = [SERVICE_MON, SERVICE_MDS, SERVICE_OSD, SERVICE_MGR, SERVICE_AUTH];

/// A ticket as its holder carries it: bytes, and which key of the service they were sealed with. Ceph:
/// `CephXTicketBlob`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ticket {
    pub secret_id: u64,
    pub sealed: Vec<u8>,
}

impl Encode for Ticket {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(1);
        self.secret_id.encode(out);
        self.sealed.encode(out);
    }
}
impl Decode for Ticket {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let _version = u8::decode(r)?;
        Ok(Ticket { secret_id: u64::decode(r)?, sealed: Vec::decode(r)? })
    }
}

/// What a ticket says to the service, once opened: ours alone, since no other entity has the keys. Ceph has
/// `CephXServiceTicketInfo` here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TicketContent {
    pub name: AuthName,
    pub global_id: u64,
    /// What its holder may do with the service.
    pub caps: String,
    /// Shared by the service and the ticket's holder.
    pub session_key: Secret,
    pub expires: Utime,
}

impl Encode for TicketContent {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(1);
        self.name.encode(out);
        self.global_id.encode(out);
        self.caps.encode(out);
        self.session_key.encode(out);
        self.expires.encode(out);
    }
}
impl Decode for TicketContent {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let version = u8::decode(r)?;
        if version != 1 {
            return Err(DecodeError::BadValue { what: "ticket version", value: version.into() });
        }
        Ok(TicketContent {
            name: AuthName::decode(r)?,
            global_id: u64::decode(r)?,
            caps: String::decode(r)?,
            session_key: Secret::decode(r)?,
            expires: Utime::decode(r)?,
        })
    }
}

/// The same for Ceph's own metadata servers. Ceph: `CephXServiceTicketInfo` with its `AuthTicket` v2.
pub(crate) struct CephTicketContent<'a> {
    pub content: &'a TicketContent,
    pub created: Utime,
}

impl Encode for CephTicketContent<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let TicketContent { name, global_id, caps, session_key, expires } = self.content;
        out.push(1);
        out.push(2);
        name.encode(out);
        global_id.encode(out);
        u64::MAX.encode(out); // an owner's number, of which there are none since long ago
        self.created.encode(out);
        expires.encode(out);
        out.push(1);
        false.encode(out); // whether everything is allowed whatever the text says
        match caps.is_empty() {
            true => 0_u32.encode(out),
            false => nacre_wire::to_vec(caps).encode(out),
        }
        0_u32.encode(out);
        session_key.encode(out);
    }
}

/// The keys of a service's tickets with the times at which they end, as Ceph's daemons ask for them. Ceph:
/// `RotatingSecrets`.
pub(crate) struct CephRotating<'a>(pub Vec<(u64, &'a Secret, Utime)>);

impl Encode for CephRotating<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(1);
        (self.0.len() as u32).encode(out);
        for (id, key, expires) in &self.0 {
            id.encode(out);
            out.push(1);
            key.encode(out);
            expires.encode(out);
        }
        self.0.iter().map(|(id, ..)| *id).max().unwrap_or(0).encode(out);
    }
}

/// Whether a daemon asks for its service's keys.
pub(crate) fn asks_for_rotating(payload: &[u8]) -> bool {
    payload == GET_ROTATING.to_le_bytes()
}

/// The answer: keys that only the owner of `secret` can read.
pub(crate) fn rotating_reply(keys: &CephRotating<'_>, secret: &Secret, entropy: &mut Entropy) -> Vec<u8> {
    let mut out = nacre_wire::to_vec(&(GET_ROTATING, 0_i32));
    secret.seal(Usage::RotatingSecrets, keys, entropy).encode(&mut out);
    out
}

/// The payload of AUTH_REQUEST to a monitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Introduction {
    pub name: AuthName,
    /// What a monitor gave this client earlier; 0 if none did.
    pub global_id: u64,
}

impl Encode for Introduction {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(ASKS_MONITOR);
        self.name.encode(out);
        self.global_id.encode(out);
    }
}
impl Decode for Introduction {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mode = u8::decode(r)?;
        if mode != ASKS_MONITOR {
            return Err(DecodeError::BadValue { what: "authentication mode", value: mode.into() });
        }
        Ok(Introduction { name: AuthName::decode(r)?, global_id: u64::decode(r)? })
    }
}

/// A monitor's challenge. Ceph: `CephXServerChallenge`; sealed with a session key, `CephXAuthorizeChallenge`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Challenge(pub u64);

impl Encode for Challenge {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(1);
        self.0.encode(out);
    }
}
impl Decode for Challenge {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let _version = u8::decode(r)?;
        Ok(Challenge(u64::decode(r)?))
    }
}

/// The answer to it. Ceph: `CephXAuthenticate` v3 behind its `CephXRequestHeader`; earlier ones lack the last
/// field, or the last two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    pub client_challenge: u64,
    /// `proof_of` both challenges with the client's key.
    pub key: u64,
    /// Of an earlier session, which continues if this is good.
    pub old_ticket: Ticket,
    /// The services for which it wants tickets, too.
    pub services: Service,
}

impl Encode for Proof {
    fn encode(&self, out: &mut Vec<u8>) {
        GET_SESSION.encode(out);
        out.push(3);
        self.client_challenge.encode(out);
        self.key.encode(out);
        self.old_ticket.encode(out);
        self.services.encode(out);
    }
}
impl Decode for Proof {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        expect_request(r, GET_SESSION)?;
        let version = u8::decode(r)?;
        Ok(Proof {
            client_challenge: u64::decode(r)?,
            key: u64::decode(r)?,
            old_ticket: if version >= 2 { Ticket::decode(r)? } else { Ticket::default() },
            services: if version >= 3 { Service::decode(r)? } else { 0 },
        })
    }
}

fn expect_request(r: &mut Reader<'_>, expected: u16) -> Result<(), DecodeError> {
    let kind = u16::decode(r)?;
    if kind != expected {
        return Err(DecodeError::BadValue { what: "cephx request", value: kind.into() });
    }
    Ok(())
}

/// Proof of having the key: both challenges' fingerprint, folded into eight bytes.
pub(crate) fn proof_of(secret: &Secret, server_challenge: u64, client_challenge: u64) -> u64 {
    let fingerprint = secret.fingerprint(&(server_challenge, client_challenge));
    // Clients leave out what does not fill a word.
    let words =
        fingerprint.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
    words.fold(0, |folded, word| folded ^ word)
}

/// A ticket on its way to its holder. Ceph: an entry of `build_service_ticket_reply`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    pub service: Service,
    pub session_key: Secret,
    /// For how long it is good.
    pub validity: Duration,
    pub ticket: Ticket,
}

/// What is sealed of it for its holder. Ceph: `CephXServiceTicket`.
struct GivenSealed {
    session_key: Secret,
    validity: Duration,
}

impl Encode for GivenSealed {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(1);
        self.session_key.encode(out);
        (self.validity.as_secs() as u32).encode(out);
        self.validity.subsec_nanos().encode(out);
    }
}
impl Decode for GivenSealed {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let _version = u8::decode(r)?;
        let session_key = Secret::decode(r)?;
        let (secs, nanos) = (u32::decode(r)?, u32::decode(r)?);
        Ok(GivenSealed { session_key, validity: Duration::new(secs.into(), nanos) })
    }
}

/// Tickets, of which only the holder of `key` learns the session keys.
pub(crate) fn put_tickets(given: &[Given], key: &Secret, entropy: &mut Entropy, out: &mut Vec<u8>) {
    out.push(1);
    (given.len() as u32).encode(out);
    for given in given {
        given.service.encode(out);
        out.push(1);
        let sealed = GivenSealed { session_key: given.session_key.clone(), validity: given.validity };
        key.seal(Usage::SessionKey, &sealed, entropy).encode(out);
        // The ticket itself is sealed already, with the service's key.
        false.encode(out);
        nacre_wire::to_vec(&given.ticket).encode(out);
    }
}

/// The most that a monitor may give at once: there is one for each kind of service.
const TICKETS_MAX: u32 = 16;

/// `old_session` opens those that are sealed once more, for a client that had a session before.
pub(crate) fn take_tickets(
    r: &mut Reader<'_>,
    key: &Secret,
    old_session: Option<&Secret>,
) -> Result<Vec<Given>, DecodeError> {
    let bad = |what| DecodeError::BadValue { what, value: 0 };
    let _version = u8::decode(r)?;
    let count = u32::decode(r)?;
    if count > TICKETS_MAX {
        return Err(DecodeError::BadValue { what: "number of tickets", value: count.into() });
    }
    let mut all = Vec::new();
    for _ in 0..count {
        let service = Service::decode(r)?;
        let _version = u8::decode(r)?;
        let sealed = Vec::<u8>::decode(r)?;
        let opened = key.open(Usage::SessionKey, &sealed);
        let GivenSealed { session_key, validity } = opened.map_err(|_| bad("session key"))?;
        let is_sealed = bool::decode(r)?;
        let mut ticket = Vec::<u8>::decode(r)?;
        if is_sealed {
            let old = old_session.ok_or(bad("ticket, sealed for a session that was not"))?;
            let sealed: Vec<u8> = nacre_wire::from_slice(&ticket)?;
            ticket = old.open(Usage::Ticket, &sealed).map_err(|_| bad("sealed ticket"))?;
        }
        let ticket = Ticket::decode(&mut Reader::new(&ticket))?;
        all.push(Given { service, session_key, validity, ticket });
    }
    Ok(all)
}

/// The payload of AUTH_DONE from a monitor.
pub(crate) struct SessionReply<'a> {
    /// That for the monitors themselves, for which the client's own key counts.
    pub session: &'a Given,
    pub others: &'a [Given],
    pub connection_secret: &'a [u8],
}

impl SessionReply<'_> {
    pub(crate) fn encode(&self, client: &Secret, entropy: &mut Entropy) -> Vec<u8> {
        let mut out = Vec::new();
        GET_SESSION.encode(&mut out);
        0_i32.encode(&mut out); // status
        put_tickets(std::slice::from_ref(self.session), client, entropy, &mut out);
        let session_key = &self.session.session_key;
        let sealed = session_key.seal(Usage::ConnectionSecret, self.connection_secret, entropy);
        nacre_wire::to_vec(&sealed).encode(&mut out);
        let mut others = Vec::new();
        if !self.others.is_empty() {
            put_tickets(self.others, session_key, entropy, &mut others);
        }
        others.encode(&mut out);
        out
    }
}

/// The same, as its receiver understands it.
#[derive(Debug)]
pub(crate) struct SessionGiven {
    pub session: Given,
    pub others: Vec<Given>,
    pub connection_secret: Vec<u8>,
}

impl SessionGiven {
    pub(crate) fn decode(
        payload: &[u8],
        client: &Secret,
        old: Option<&Secret>,
    ) -> Result<SessionGiven, DecodeError> {
        let r = &mut Reader::new(payload);
        expect_request(r, GET_SESSION)?;
        let status = i32::decode(r)?;
        if status != 0 {
            let value = status.unsigned_abs().into();
            return Err(DecodeError::BadValue { what: "status of a granted session", value });
        }
        let tickets = take_tickets(r, client, old)?;
        let session = tickets.into_iter().find(|given| given.service == SERVICE_AUTH);
        let session = session.ok_or(DecodeError::BadValue { what: "session without ticket", value: 0 })?;
        let sealed = Vec::<u8>::decode(r)?;
        let connection_secret = match sealed.is_empty() {
            true => Vec::new(),
            false => {
                let sealed: Vec<u8> = nacre_wire::from_slice(&sealed)?;
                let opened = session.session_key.open(Usage::ConnectionSecret, &sealed);
                opened.map_err(|_| DecodeError::BadValue { what: "connection secret", value: 0 })?
            }
        };
        let others = Vec::<u8>::decode(r)?;
        let others = match others.is_empty() {
            true => Vec::new(),
            false => take_tickets(&mut Reader::new(&others), &session.session_key, None)?,
        };
        Ok(SessionGiven { session, others, connection_secret })
    }
}

/// Shows a ticket to the service that it is for. Ceph: `CephXAuthorizer`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authorizer {
    pub global_id: u64,
    pub service: Service,
    pub ticket: Ticket,
    /// An `Authorize`, with the session key.
    pub sealed: Vec<u8>,
}

impl Encode for Authorizer {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(SHOWS_TICKET);
        self.global_id.encode(out);
        self.service.encode(out);
        self.ticket.encode(out);
        self.sealed.encode(out);
    }
}
impl Decode for Authorizer {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let version = u8::decode(r)?;
        if version != SHOWS_TICKET {
            return Err(DecodeError::BadValue { what: "authorizer version", value: version.into() });
        }
        Ok(Authorizer {
            global_id: u64::decode(r)?,
            service: Service::decode(r)?,
            ticket: Ticket::decode(r)?,
            sealed: Vec::decode(r)?,
        })
    }
}

/// Proves that the holder of a ticket has its session key. Ceph: `CephXAuthorize` v2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Authorize {
    pub nonce: u64,
    /// One more than the service's challenge, once it gave one.
    pub answer: Option<u64>,
}

impl Encode for Authorize {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(2);
        self.nonce.encode(out);
        self.answer.is_some().encode(out);
        self.answer.unwrap_or(0).encode(out);
    }
}
impl Decode for Authorize {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let version = u8::decode(r)?;
        let nonce = u64::decode(r)?;
        // The first form knew no challenges.
        let answer = match version >= 2 && bool::decode(r)? {
            true => Some(u64::decode(r)?),
            false => None,
        };
        Ok(Authorize { nonce, answer })
    }
}

/// Proves that the service could open the ticket. Ceph: `CephXAuthorizeReply` v2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AuthorizeReply {
    pub nonce_plus_one: u64,
    pub connection_secret: Vec<u8>,
}

impl Encode for AuthorizeReply {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(2);
        self.nonce_plus_one.encode(out);
        self.connection_secret.encode(out);
    }
}
impl Decode for AuthorizeReply {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let version = u8::decode(r)?;
        let nonce_plus_one = u64::decode(r)?;
        let connection_secret = if version >= 2 { Vec::decode(r)? } else { Vec::new() };
        Ok(AuthorizeReply { nonce_plus_one, connection_secret })
    }
}

/// Asks a monitor for tickets within a session. Ceph: `CephXServiceTicketRequest` behind header and
/// authorizer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TicketRequest {
    pub authorizer: Authorizer,
    pub services: Service,
}

impl Encode for TicketRequest {
    fn encode(&self, out: &mut Vec<u8>) {
        GET_TICKETS.encode(out);
        self.authorizer.encode(out);
        out.push(1);
        self.services.encode(out);
    }
}
impl Decode for TicketRequest {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        expect_request(r, GET_TICKETS)?;
        let authorizer = Authorizer::decode(r)?;
        let _version = u8::decode(r)?;
        Ok(TicketRequest { authorizer, services: Service::decode(r)? })
    }
}

/// The answer to it.
pub(crate) fn ticket_reply(given: &[Given], session_key: &Secret, entropy: &mut Entropy) -> Vec<u8> {
    let mut out = Vec::new();
    GET_TICKETS.encode(&mut out);
    0_i32.encode(&mut out); // status
    put_tickets(given, session_key, entropy, &mut out);
    out
}

pub(crate) fn take_ticket_reply(payload: &[u8], session_key: &Secret) -> Result<Vec<Given>, DecodeError> {
    let r = &mut Reader::new(payload);
    expect_request(r, GET_TICKETS)?;
    let _status = i32::decode(r)?;
    take_tickets(r, session_key, None)
}
