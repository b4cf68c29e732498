//! Users and keys (cephx): the agreed slice, what the driver and OSDs are sent of it, and key rotation.

use crate::pending_txn::PendingTxn;
use crate::services::{Context, Options};
use crate::sessions::Session;
use crate::state::{Applying, Genesis, Rejected, Slice, State};
use nacre_auth::cephx::{SERVICE_OSD, Service, renew};
use nacre_auth::{Entity, Entropy, KeyType, Keys, Lifetimes, METHOD_CEPHX, Secret, Usage};
use nacre_base::{Now, errno};
use nacre_machine::{ConnId, Effect};
use nacre_proto::messages::{Auth as AuthMsg, AuthReply, DaemonMsg};
use nacre_proto::types::AuthName;
use std::sync::Arc;
use std::time::Duration;

/// The first global id that is given to a client, as in Ceph.
const FIRST_GLOBAL_ID: u64 = 4100;

/// Users and keys.
#[derive(Clone, Debug, Default)]
pub struct Auth {
    /// Users and daemons with their keys and capabilities, and the keys that seal tickets.
    pub keys: Arc<Keys>,
    /// No client was given this global id or a higher one yet.
    pub next_global_id: u64,
}

/// How a batch changes them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AuthDelta {
    /// This many global ids are given away.
    pub global_ids: u64,
    /// None removes.
    pub entities: Vec<(AuthName, Option<Entity>)>,
    /// The next keys of services.
    pub rotated: Vec<(Service, Secret)>,
}

impl Slice for Auth {
    type Delta = AuthDelta;

    fn begin(genesis: &Genesis) -> Result<Auth, Rejected> {
        let keys = Keys { entities: genesis.entities.clone(), ..Keys::default() };
        Ok(Auth { keys: Arc::new(keys), next_global_id: FIRST_GLOBAL_ID })
    }
    fn apply(&mut self, delta: &AuthDelta, _: &Applying) {
        self.next_global_id += delta.global_ids;
        if delta.entities.is_empty() && delta.rotated.is_empty() {
            return;
        }
        let keys = Arc::make_mut(&mut self.keys);
        for (name, entity) in &delta.entities {
            match entity {
                Some(entity) => drop(keys.entities.insert(name.clone(), entity.clone())),
                None => drop(keys.entities.remove(name)),
            }
        }
        for (service, key) in &delta.rotated {
            keys.rotating.entry(*service).or_default().add(key.clone());
        }
    }
    fn delta_bytes(delta: &AuthDelta) -> usize {
        delta.entities.iter().flat_map(|(name, entity)| Some(entity_bytes(name, entity.as_ref()?))).sum()
    }
    fn client_bytes(&self) -> usize {
        self.keys.entities.iter().map(|(name, entity)| entity_bytes(name, entity)).sum()
    }
}

/// Bytes of a user with its key and capabilities.
pub fn entity_bytes(name: &AuthName, entity: &Entity) -> usize {
    let caps = entity.caps.iter().map(|(service, caps)| service.len() + caps.len());
    name.id.len() + size_of::<Entity>() + caps.sum::<usize>()
}

/// The keys that verify connections, as they were last passed to the driver.
#[derive(Default)]
pub struct PublishedKeys {
    /// The agreed keys they were made of, and the keys with their lifetimes.
    last: Option<(Arc<Keys>, Arc<Keys>)>,
}

impl PublishedKeys {
    /// Passes the keys that verify connections to the driver, if they changed. Returns whether they must be
    /// sent to OSDs, too.
    pub fn publish(&mut self, state: &State, options: Options<'_>, out: &mut Vec<Effect>) -> bool {
        let (source, lifetimes) = (state.auth.keys.clone(), lifetimes(options));
        // Nearly every batch changes something else.
        let is_published =
            |(of, last): &(Arc<Keys>, Arc<Keys>)| Arc::ptr_eq(of, &source) && last.lifetimes == lifetimes;
        if self.last.as_ref().is_some_and(is_published) {
            return false;
        }
        let keys = Arc::new(Keys { lifetimes, ..source.as_ref().clone() });
        let before = self.last.replace((source, keys.clone())).map(|(_, last)| last);
        out.push(Effect::Keys(keys.clone()));
        before.is_none_or(|before| before.rotating.get(&SERVICE_OSD) != keys.rotating.get(&SERVICE_OSD))
    }

    /// Sends an OSD the keys by which its callers are known, sealed with its own key.
    pub fn send_to_osd(&self, conn: ConnId, session: &Session, entropy: &mut Entropy, out: &mut Vec<Effect>) {
        let Some((_, keys)) = self.last.as_ref().filter(|_| session.osd().is_some()) else { return };
        let name = session.peer.proved.as_ref().map(|proved| &proved.name);
        let Some(entity) = name.and_then(|name| keys.entities.get(name)) else { return };
        let sealed = entity.key.seal(Usage::RotatingSecrets, &keys.of_service(SERVICE_OSD), entropy).into();
        out.push(Effect::Send { conn, tid: 0, message: DaemonMsg::Keys { sealed }.into() });
    }

    /// Services get another key before the tickets expire that the last one sealed.
    pub fn periodic(&mut self, cx: &Context<'_>, entropy: &mut Entropy, pending: &mut PendingTxn) {
        let Some((_, keys)) = &self.last else { return };
        for service in keys.due(cx.now.wall) {
            let kind = KeyType::from_number(cx.state.monmap.map.ciphers.service).unwrap_or_default();
            pending.batch.auth.rotated.push((service, Secret::generate(kind, cx.now.wall, entropy)));
        }
    }

    /// A client asks for new tickets.
    pub fn renew(&self, now: Now, session: &Session, auth: &AuthMsg, entropy: &mut Entropy) -> AuthReply {
        let reply = match (&session.peer.proved, &self.last) {
            (Some(proved), Some((_, keys))) if auth.protocol == METHOD_CEPHX => {
                renew(keys, &proved.name, now.wall, entropy, &auth.payload)
            }
            _ => Err(errno::EOPNOTSUPP),
        };
        let (result, payload) = match reply {
            Ok(payload) => (0, payload),
            Err(errno) => (-errno, Vec::new()),
        };
        // Daemons of Ceph's go by other numbers.
        let global_id = session.peer.proved.as_ref().map_or(0, |proved| proved.global_id);
        let (protocol, payload, text) = (METHOD_CEPHX, payload.into(), String::new());
        AuthReply { protocol, result, global_id, payload, text }
    }
}

/// For how long tickets are good.
fn lifetimes(options: Options<'_>) -> Lifetimes {
    let secs = |name: &str| Duration::from_secs_f64(options.get(name).as_f64());
    Lifetimes { session: secs("auth_mon_ticket_ttl"), service: secs("auth_service_ticket_ttl") }
}
