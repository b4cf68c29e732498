//! Authentication of this daemon to its peers, and of its peers to it.

use crate::clock;
use crate::ids::IdPool;
use nacre_auth::cephx::{CephxVerifier, Due, KeyStore, Service, TicketManager};
use nacre_auth::{
    Entropy, GlobalIds, Keys, METHOD_CEPHX, NoneProver, NoneVerifier, Prover, Secret, Verifier,
};
use nacre_base::{Epoch, Utime};
use nacre_proto::messages::{Auth, AuthReply, Message, PaxosVersion};
use nacre_proto::types::{AuthName, EntityType};
use ring::rand::{SecureRandom, SystemRandom};
use std::cell::RefCell;
use std::sync::{Arc, Mutex};

pub(crate) enum Authentication {
    None(AuthName),
    Cephx(Box<Cephx>),
}

pub(crate) struct Cephx {
    tickets: TicketManager,
    /// The keys that the machine knows.
    key_store: KeyStore,
    /// The key that all monitors share.
    monitors_key: Option<Secret>,
    entropy: RefCell<Entropy>,
}

/// From the system, for secrets.
pub fn entropy() -> Entropy {
    let mut seed = [0; 32];
    SystemRandom::new().fill(&mut seed).expect("the system has randomness");
    Entropy::new(seed)
}

fn wall() -> Utime {
    clock::now().wall
}

impl Authentication {
    /// `secure`: every connection that we open is to be encrypted.
    pub(crate) fn new(name: AuthName, key: Option<Secret>, secure: bool) -> Authentication {
        let Some(key) = key else { return Authentication::None(name) };
        let mut entropy = entropy();
        let key_store = KeyStore::default();
        let is_monitor = name.kind == EntityType::Mon as u32;
        // Monitors share one name and one key.
        let name = if is_monitor { AuthName::new(EntityType::Mon, "") } else { name };
        let monitors_key = is_monitor.then(|| key.clone());
        let tickets = TicketManager::new(name, key, key_store.clone(), wall, entropy.fork());
        if secure {
            tickets.require_encryption();
        }
        Authentication::Cephx(Box::new(Cephx { tickets, key_store, monitors_key, entropy: entropy.into() }))
    }

    /// For a connection that we open.
    pub(crate) fn prover(&self, global_id: u64) -> Box<dyn Prover> {
        match self {
            Authentication::None(name) => Box::new(NoneProver { name: name.clone(), global_id }),
            Authentication::Cephx(cephx) => Box::new(cephx.tickets.prover()),
        }
    }

    /// For a connection that we accept as a `kind`.
    pub(crate) fn verifier(&self, kind: EntityType, ids: &Arc<Mutex<IdPool>>) -> Box<dyn Verifier> {
        let global_ids = match kind {
            EntityType::Mon => {
                let ids = ids.clone();
                GlobalIds::Assign(Box::new(move || {
                    ids.lock().expect("no thread panics with the pool").take()
                }))
            }
            _ => GlobalIds::Brought,
        };
        match self {
            Authentication::None(_) => Box::new(NoneVerifier { global_ids }),
            Authentication::Cephx(cephx) => Box::new(CephxVerifier::new(
                kind as Service,
                cephx.key_store.clone(),
                cephx.monitors_key.clone(),
                global_ids,
                wall,
                cephx.entropy.borrow_mut().fork(),
            )),
        }
    }

    pub(crate) fn put(&self, keys: Arc<Keys>) {
        if let Authentication::Cephx(cephx) = self {
            cephx.key_store.put(keys);
        }
    }

    /// What a client has to do about its tickets, if anything.
    pub(crate) fn due(&self) -> Option<Renewal> {
        let Authentication::Cephx(cephx) = self else { return None };
        match cephx.tickets.due()? {
            Due::Session => Some(Renewal::Anew),
            Due::Tickets => {
                let payload = cephx.tickets.ask()?.into();
                let (protocol, version) = (METHOD_CEPHX, PaxosVersion(0));
                let ask = Auth { version, protocol, payload, monmap_epoch: Epoch(0) };
                Some(Renewal::Ask(Box::new(ask.into())))
            }
        }
    }

    /// The monitor's answer to that.
    pub(crate) fn answered(&self, reply: &AuthReply) -> Result<(), String> {
        let Authentication::Cephx(cephx) = self else { return Ok(()) };
        if reply.result != 0 {
            return Err(format!("refused with error {}", -reply.result));
        }
        cephx.tickets.answered(&reply.payload).map_err(|e| e.to_string())
    }
}

pub(crate) enum Renewal {
    /// This is for a monitor.
    Ask(Box<Message>),
    /// Another session is needed.
    Anew,
}
