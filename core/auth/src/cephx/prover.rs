//! The client's half, which daemons are to others as well.

use super::messages::{AuthorizeReply, SessionGiven, proof_of, take_ticket_reply};
use super::verifier::{is_monitors_name, own_ticket};
use super::{
    Authorize, Authorizer, Challenge, Given, Introduction, KeyStore, Proof, SERVICE_AUTH, SERVICE_MGR,
    SERVICE_MON, SERVICE_OSD, Service, TicketRequest,
};
use crate::method::{
    CONNECTION_MODE_CRC, CONNECTION_MODE_SECURE, METHOD_CEPHX, Offer, Prover, SessionSecret,
};
use crate::{Entropy, Secret, Usage};
use nacre_base::Utime;
use nacre_proto::types::{AuthName, EntityType};
use nacre_wire::{DecodeError, from_slice, to_vec};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// What a client talks to.
const WANTED_BY_CLIENTS: Service = SERVICE_MON | SERVICE_OSD | SERVICE_MGR | SERVICE_AUTH;

/// An entity's key and its tickets, shared by all its connections. Ceph: `CephXTicketManager`.
#[derive(Clone)]
pub struct TicketManager(Arc<Mutex<State>>);

struct State {
    name: AuthName,
    key: Secret,
    /// With the keys that a daemon has, it needs no tickets for its like.
    key_store: KeyStore,
    clock: fn() -> Utime,
    entropy: Entropy,
    /// No connection without encryption.
    encrypted: bool,
    /// 0: no monitor gave one yet.
    global_id: u64,
    /// That for `SERVICE_AUTH` is the session with the monitors.
    tickets: BTreeMap<Service, KeptTicket>,
}

struct KeptTicket {
    given: Given,
    since: Utime,
}

impl KeptTicket {
    /// Another one is fetched when three quarters of its time are over.
    fn is_old(&self, now: Utime) -> bool {
        self.since + self.given.validity / 4 * 3 <= now
    }
}

/// What a client has to do about its tickets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Ask for new ones, within its session.
    Tickets,
    /// Begin another session.
    Session,
}

impl TicketManager {
    pub fn new(
        name: AuthName,
        key: Secret,
        key_store: KeyStore,
        clock: fn() -> Utime,
        entropy: Entropy,
    ) -> TicketManager {
        let tickets = BTreeMap::new();
        TicketManager(Arc::new(Mutex::new(State {
            name,
            key,
            key_store,
            clock,
            entropy,
            encrypted: false,
            global_id: 0,
            tickets,
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no thread panics while holding it")
    }

    /// From here on connections are encrypted, or not made.
    pub fn require_encryption(&self) {
        self.state().encrypted = true;
    }

    pub fn prover(&self) -> CephxProver {
        CephxProver { tickets: self.clone(), stage: Stage::Fresh }
    }

    /// What is to be done so that the next connection finds a ticket that is good. Nothing before there is a
    /// session.
    pub fn due(&self) -> Option<Due> {
        let state = self.state();
        let now = (state.clock)();
        let session = state.tickets.get(&SERVICE_AUTH)?;
        if session.is_old(now) {
            return Some(Due::Session);
        }
        let wanted = state.wanted();
        let is_due =
            |service| wanted & service != 0 && state.tickets.get(&service).is_none_or(|t| t.is_old(now));
        [SERVICE_MON, SERVICE_OSD, SERVICE_MGR].into_iter().any(is_due).then_some(Due::Tickets)
    }

    /// The payload of a request for new tickets, if there is a session.
    pub fn ask(&self) -> Option<Vec<u8>> {
        let state = &mut *self.state();
        let nonce = state.entropy.next_u64();
        let session = &state.tickets.get(&SERVICE_AUTH)?.given;
        let authorize = Authorize { nonce, answer: None };
        let authorizer = authorizer(SERVICE_AUTH, state.global_id, session, authorize, &mut state.entropy);
        let services = state.wanted() & !SERVICE_AUTH;
        Some(to_vec(&TicketRequest { authorizer, services }))
    }

    /// The answer to that.
    pub fn answered(&self, payload: &[u8]) -> Result<(), DecodeError> {
        let state = &mut *self.state();
        let Some(session) = state.tickets.get(&SERVICE_AUTH) else { return Ok(()) };
        let given = take_ticket_reply(payload, &session.given.session_key)?;
        state.keep(given);
        Ok(())
    }
}

impl State {
    /// Daemons have keys instead.
    fn wanted(&self) -> Service {
        if self.name.kind == EntityType::Client as u32 { WANTED_BY_CLIENTS } else { SERVICE_AUTH }
    }

    fn keep(&mut self, given: Vec<Given>) {
        let since = (self.clock)();
        self.tickets.extend(given.into_iter().map(|given| (given.service, KeptTicket { given, since })));
    }

    /// For a daemon of `service`: a ticket, and the session key in it.
    fn ticket_for(&mut self, service: Service) -> Option<(u64, Given)> {
        let now = (self.clock)();
        let keys = self.key_store.get();
        let own = match (service, is_monitors_name(&self.name)) {
            (SERVICE_MON, true) => Some((0, self.key.clone())),
            _ => {
                let rotating = keys.as_ref().and_then(|keys| keys.rotating.get(&service)?.current());
                rotating.map(|(id, key)| (id, key.clone()))
            }
        };
        if let Some((id, key)) = own {
            let (ticket, session_key) = own_ticket((id, &key), &self.name, 0, now, &mut self.entropy);
            return Some((0, Given { service, session_key, validity: Default::default(), ticket }));
        }
        let ticket = self.tickets.get(&service)?;
        Some((self.global_id, ticket.given.clone()))
    }
}

fn authorizer(
    service: Service,
    global_id: u64,
    given: &Given,
    authorize: Authorize,
    entropy: &mut Entropy,
) -> Authorizer {
    let sealed = given.session_key.seal(Usage::Authorize, &authorize, entropy);
    Authorizer { global_id, service, ticket: given.ticket.clone(), sealed }
}

/// One connection's.
pub struct CephxProver {
    tickets: TicketManager,
    stage: Stage,
}

enum Stage {
    Fresh,
    /// A monitor asks for proof of the key.
    Introduced,
    /// This ticket was shown to a service.
    Shown {
        service: Service,
        global_id: u64,
        given: Given,
        nonce: u64,
    },
}

impl Prover for CephxProver {
    fn open(&mut self, to: EntityType) -> Offer {
        let state = &mut *self.tickets.state();
        let service = to as Service;
        let payload = if service == SERVICE_MON && !is_monitors_name(&state.name) {
            self.stage = Stage::Introduced;
            // Daemons go by their own names, and take another number each time.
            let is_client = state.name.kind == EntityType::Client as u32;
            let global_id =
                if is_client && state.tickets.contains_key(&SERVICE_AUTH) { state.global_id } else { 0 };
            to_vec(&Introduction { name: state.name.clone(), global_id })
        } else if let Some((global_id, given)) = state.ticket_for(service) {
            let nonce = state.entropy.next_u64();
            let authorize = Authorize { nonce, answer: None };
            let shown = authorizer(service, global_id, &given, authorize, &mut state.entropy);
            self.stage = Stage::Shown { service, global_id, given, nonce };
            to_vec(&shown)
        } else {
            // No monitor gave one yet: refused, and tried again.
            Vec::new()
        };
        // Monitors are told keys, and tell each other all of them; elsewhere there are only data. As Ceph's
        // own clients.
        let modes = match to {
            _ if state.encrypted => vec![CONNECTION_MODE_SECURE],
            EntityType::Mon => vec![CONNECTION_MODE_SECURE, CONNECTION_MODE_CRC],
            _ => vec![CONNECTION_MODE_CRC, CONNECTION_MODE_SECURE],
        };
        Offer { method: METHOD_CEPHX, modes, payload }
    }

    fn answer(&mut self, challenge: &[u8]) -> Option<Vec<u8>> {
        let state = &mut *self.tickets.state();
        match &self.stage {
            Stage::Fresh => None,
            Stage::Introduced => {
                let Challenge(server_challenge) = from_slice(challenge).ok()?;
                let client_challenge = state.entropy.next_u64();
                let session = state.tickets.get(&SERVICE_AUTH);
                Some(to_vec(&Proof {
                    client_challenge,
                    key: proof_of(&state.key, server_challenge, client_challenge),
                    old_ticket: session.map(|session| session.given.ticket.clone()).unwrap_or_default(),
                    services: state.wanted(),
                }))
            }
            Stage::Shown { service, global_id, given, nonce } => {
                let Challenge(challenge) =
                    given.session_key.open(Usage::AuthorizeChallenge, challenge).ok()?;
                let authorize = Authorize { nonce: *nonce, answer: Some(challenge.wrapping_add(1)) };
                Some(to_vec(&authorizer(*service, *global_id, given, authorize, &mut state.entropy)))
            }
        }
    }

    fn granted(&mut self, global_id: u64, payload: &[u8]) -> Result<Option<SessionSecret>, String> {
        let state = &mut *self.tickets.state();
        match &self.stage {
            Stage::Fresh => Err("it let us in without a proof".to_string()),
            Stage::Introduced => {
                let old = state.tickets.get(&SERVICE_AUTH).map(|session| session.given.session_key.clone());
                let given = SessionGiven::decode(payload, &state.key, old.as_ref());
                let given =
                    given.map_err(|e| format!("its answer is not that of a monitor with our key: {e}"))?;
                let secret = SessionSecret {
                    key: given.session.session_key.key().to_vec(),
                    connection: given.connection_secret,
                };
                state.global_id = global_id;
                state.keep([vec![given.session], given.others].concat());
                Ok(Some(secret))
            }
            Stage::Shown { given, nonce, .. } => {
                let open = || -> Result<AuthorizeReply, String> {
                    let sealed: Vec<u8> = from_slice(payload).map_err(|e| e.to_string())?;
                    given.session_key.open(Usage::AuthorizeReply, &sealed).map_err(|e| e.to_string())
                };
                let reply = open().map_err(|e| format!("it does not know what is in our ticket: {e}"))?;
                if reply.nonce_plus_one != nonce.wrapping_add(1) {
                    return Err("its answer is to something else".to_string());
                }
                let key = given.session_key.key().to_vec();
                Ok(Some(SessionSecret { key, connection: reply.connection_secret }))
            }
        }
    }

    /// A ticket that is not taken is no ticket: the next one will be.
    fn refused(&mut self) {
        let state = &mut *self.tickets.state();
        match &self.stage {
            Stage::Shown { service, .. } => drop(state.tickets.remove(service)),
            Stage::Introduced => state.tickets.clear(),
            Stage::Fresh => {}
        }
    }
}

/// Nothing of a ticket's key is shown.
impl std::fmt::Debug for TicketManager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TicketManager({})", self.state().name)
    }
}
