//! The server's half: monitors know the entities' keys, other daemons the keys that tickets are sealed with.

use super::messages::{
    AuthorizeReply, CephRotating, SessionReply, asks_for_rotating, proof_of, rotating_reply, ticket_reply,
};
use super::{
    Authorize, Authorizer, Challenge, Introduction, Proof, SERVICE_AUTH, SERVICE_MDS, SERVICE_MON, SERVICES,
    Service, Ticket, TicketContent, TicketRequest,
};
use crate::keys::Holder;
use crate::method::{
    CONNECTION_MODE_CRC, CONNECTION_MODE_SECURE, CONNECTION_SECRET_LEN, GlobalIds, Grant, METHOD_CEPHX,
    Proved, SessionSecret, Verdict, Verifier,
};
use crate::{ASKS_MONITOR, Entropy, Keys, Secret, Usage, same_bytes};
use nacre_base::{Utime, errno};
use nacre_proto::types::{AuthName, EntityType};
use nacre_wire::{from_slice, to_vec};
use std::sync::{Arc, Mutex};

/// Where a daemon's machine puts the keys that it knows, for all of its connections.
#[derive(Clone, Debug, Default)]
pub struct KeyStore {
    keys: Arc<Mutex<Option<Arc<Keys>>>>,
}

impl KeyStore {
    pub fn put(&self, keys: Arc<Keys>) {
        *self.keys.lock().expect("no thread panics while holding it") = Some(keys);
    }
    pub fn get(&self) -> Option<Arc<Keys>> {
        self.keys.lock().expect("no thread panics while holding it").clone()
    }
}

pub struct CephxVerifier {
    /// As what we listen.
    service: Service,
    key_store: KeyStore,
    /// A monitor's own key, which all monitors have: they know each other by it, also when they know nothing
    /// else.
    own: Option<Secret>,
    global_ids: GlobalIds,
    clock: fn() -> Utime,
    entropy: Entropy,
    stage: Stage,
}

enum Stage {
    Fresh,
    /// A monitor asked for proof that this one has its key.
    Asked {
        who: Introduction,
        challenge: u64,
    },
    /// We asked for proof that it has the session key of its ticket.
    Shown {
        challenge: u64,
    },
}

impl CephxVerifier {
    pub fn new(
        service: Service,
        key_store: KeyStore,
        own: Option<Secret>,
        global_ids: GlobalIds,
        clock: fn() -> Utime,
        entropy: Entropy,
    ) -> CephxVerifier {
        CephxVerifier { service, key_store, own, global_ids, clock, entropy, stage: Stage::Fresh }
    }

    fn is_monitor(&self) -> bool {
        self.service == SERVICE_MON
    }

    fn connection_secret(&mut self, mode: u32) -> Vec<u8> {
        match mode {
            CONNECTION_MODE_SECURE => self.entropy.bytes::<CONNECTION_SECRET_LEN>().to_vec(),
            _ => Vec::new(),
        }
    }

    fn begin(&mut self, payload: &[u8]) -> Result<Verdict, i32> {
        if self.is_monitor() && payload.first() == Some(&ASKS_MONITOR) {
            let who = from_slice(payload).map_err(|_| errno::EINVAL)?;
            if self.key_store.get().is_none() {
                return Ok(Verdict::Later);
            }
            // Unknown names as well: they must not learn that they are unknown.
            let challenge = self.entropy.next_u64();
            self.stage = Stage::Asked { who, challenge };
            return Ok(Verdict::Challenge(to_vec(&Challenge(challenge))));
        }
        self.see_ticket(None, payload, CONNECTION_MODE_CRC)
    }

    /// A client shows a ticket; `challenged`: with the answer to this.
    fn see_ticket(&mut self, challenged: Option<u64>, payload: &[u8], mode: u32) -> Result<Verdict, i32> {
        let shown: Authorizer = from_slice(payload).map_err(|_| errno::EINVAL)?;
        if shown.service != self.service {
            return Err(errno::EACCES);
        }
        let content = match (self.is_monitor(), &self.own) {
            // Only monitors show tickets to monitors, which they sealed with their own key.
            (true, Some(own)) => {
                own.open(Usage::TicketContent, &shown.ticket.sealed).ok().filter(is_monitor_itself)
            }
            _ => match self.key_store.get() {
                Some(keys) => keys.open(self.service, &shown.ticket),
                None => return Ok(Verdict::Later),
            },
        };
        let content = content.filter(|content| content.global_id == shown.global_id).ok_or(errno::EACCES)?;
        let session_key = &content.session_key;
        let authorize: Authorize =
            session_key.open(Usage::Authorize, &shown.sealed).map_err(|_| errno::EACCES)?;
        let Some(challenge) = challenged else {
            let challenge = self.entropy.next_u64();
            self.stage = Stage::Shown { challenge };
            let challenge = Challenge(challenge);
            let sealed = session_key.seal(Usage::AuthorizeChallenge, &challenge, &mut self.entropy);
            return Ok(Verdict::Challenge(sealed));
        };
        if authorize.answer != Some(challenge.wrapping_add(1)) {
            return Err(errno::EACCES);
        }
        let connection = self.connection_secret(mode);
        let reply = AuthorizeReply {
            nonce_plus_one: authorize.nonce.wrapping_add(1),
            connection_secret: connection.clone(),
        };
        let TicketContent { name, global_id, caps, .. } = content;
        Ok(Verdict::Granted(Box::new(Grant {
            proved: Some(Proved { name: name.clone(), service: self.service, caps, global_id }),
            name,
            global_id,
            reply: to_vec(&session_key.seal(Usage::AuthorizeReply, &reply, &mut self.entropy)),
            session: Some(SessionSecret { key: session_key.key().to_vec(), connection }),
        })))
    }

    /// A monitor checks whether a client has its key.
    fn see_proof(
        &mut self,
        who: &Introduction,
        challenge: u64,
        payload: &[u8],
        mode: u32,
    ) -> Result<Verdict, i32> {
        let proof: Proof = from_slice(payload).map_err(|_| errno::EINVAL)?;
        let Some(keys) = self.key_store.get() else { return Ok(Verdict::Later) };
        let entity = keys.entities.get(&who.name);
        let own = self.own.clone().filter(|_| is_monitors_name(&who.name));
        let secret = own.or(entity.map(|entity| entity.key.clone())).ok_or(errno::EACCES)?;
        let expected = proof_of(&secret, challenge, proof.client_challenge);
        if !same_bytes(&expected.to_le_bytes(), &proof.key.to_le_bytes()) {
            return Err(errno::EACCES);
        }
        let global_id = match (who.global_id, &mut self.global_ids) {
            (0, GlobalIds::Assign(next)) => match next() {
                Some(id) => id,
                None => return Ok(Verdict::Later),
            },
            // A client that reclaims its id must prove that it had it: the id may hold locks.
            (old, _) => {
                let session = keys.open(SERVICE_AUTH, &proof.old_ticket);
                let is_its = session
                    .is_some_and(|old_session| old_session.global_id == old && old_session.name == who.name);
                if !is_its {
                    return Err(errno::EACCES);
                }
                old
            }
        };
        let now = (self.clock)();
        let name = &who.name;
        let holder = Holder { name, global_id, key_type: secret.kind() };
        let session = keys.give(now, SERVICE_AUTH, &holder, &mut self.entropy);
        let Some(session) = session else { return Ok(Verdict::Later) };
        let wanted = SERVICES.into_iter().filter(|service| *service != SERVICE_AUTH);
        let wanted = wanted.filter(|service| proof.services & service != 0);
        let others: Vec<_> =
            wanted.filter_map(|service| keys.give(now, service, &holder, &mut self.entropy)).collect();
        let connection = self.connection_secret(mode);
        let reply = SessionReply { session: &session, others: &others, connection_secret: &connection };
        let reply = reply.encode(&secret, &mut self.entropy);
        let caps = match is_monitors_name(name) {
            true => "allow *".to_string(),
            false => entity.and_then(|entity| entity.caps.get("mon")).cloned().unwrap_or_default(),
        };
        Ok(Verdict::Granted(Box::new(Grant {
            name: name.clone(),
            global_id,
            proved: Some(Proved { name: name.clone(), service: self.service, caps, global_id }),
            reply,
            session: Some(SessionSecret { key: session.session_key.key().to_vec(), connection }),
        })))
    }
}

/// `mon.`, under which all monitors go.
pub(super) fn is_monitors_name(name: &AuthName) -> bool {
    *name == AuthName::new(EntityType::Mon, "")
}
fn is_monitor_itself(content: &TicketContent) -> bool {
    is_monitors_name(&content.name)
}

impl Verifier for CephxVerifier {
    fn methods(&self) -> Vec<u32> {
        vec![METHOD_CEPHX]
    }
    fn modes(&self) -> Vec<u32> {
        vec![CONNECTION_MODE_SECURE, CONNECTION_MODE_CRC]
    }
    fn judge(&mut self, _method: u32, mode: u32, payload: &[u8]) -> Verdict {
        let judged = match std::mem::replace(&mut self.stage, Stage::Fresh) {
            Stage::Fresh => self.begin(payload),
            Stage::Shown { challenge } => self.see_ticket(Some(challenge), payload, mode),
            Stage::Asked { who, challenge } => {
                let judged = self.see_proof(&who, challenge, payload, mode);
                if judged == Ok(Verdict::Later) {
                    self.stage = Stage::Asked { who, challenge };
                }
                judged
            }
        };
        judged.unwrap_or_else(|errno| Verdict::Refused { errno })
    }
}

/// A monitor's answer to a request for tickets within a session of `name`, or for the keys of the service
/// that `name` is a daemon of; or a Linux error number.
pub fn renew(
    keys: &Keys,
    name: &AuthName,
    now: Utime,
    entropy: &mut Entropy,
    payload: &[u8],
) -> Result<Vec<u8>, i32> {
    if asks_for_rotating(payload) {
        // Nacre's own daemons are sent theirs.
        let entity = keys.entities.get(name).filter(|_| name.kind == SERVICE_MDS).ok_or(errno::EACCES)?;
        let rotating = CephRotating(keys.expiring(SERVICE_MDS));
        return Ok(rotating_reply(&rotating, &entity.key, entropy));
    }
    let request: TicketRequest = from_slice(payload).map_err(|_| errno::EINVAL)?;
    let Authorizer { service, ticket, sealed, global_id } = &request.authorizer;
    let session = keys
        .open(SERVICE_AUTH, ticket)
        .filter(|session| (*service, session.global_id, &session.name) == (SERVICE_AUTH, *global_id, name));
    let session = session.ok_or(errno::EACCES)?;
    session.session_key.open::<Authorize>(Usage::Authorize, sealed).map_err(|_| errno::EACCES)?;
    let holder = Holder { name, global_id: session.global_id, key_type: session.session_key.kind() };
    let wanted = SERVICES.into_iter().filter(|service| request.services & service != 0);
    let given: Vec<_> = wanted.filter_map(|service| keys.give(now, service, &holder, entropy)).collect();
    Ok(ticket_reply(&given, &session.session_key, entropy))
}

/// The ticket that daemons of one kind show each other, as all of them know the key. None: there is none yet.
pub(super) fn own_ticket(
    key: (u64, &Secret),
    name: &AuthName,
    global_id: u64,
    now: Utime,
    entropy: &mut Entropy,
) -> (Ticket, Secret) {
    let (secret_id, key) = key;
    let session_key = Secret::generate(key.kind(), now, entropy);
    let content = TicketContent {
        name: name.clone(),
        global_id,
        caps: "allow *".to_string(),
        session_key: session_key.clone(),
        expires: Utime { sec: u32::MAX, nsec: 0 },
    };
    (Ticket { secret_id, sealed: key.seal(Usage::TicketContent, &content, entropy) }, session_key)
}
