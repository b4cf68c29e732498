//! The keys of all entities, as the monitors have them, and the part of them that other daemons have.

use crate::cephx::{
    CephTicketContent, Given, SERVICE_AUTH, SERVICE_MDS, SERVICES, Service, Ticket, TicketContent,
};
use crate::{Entropy, KeyType, Secret, Usage};
use nacre_base::Utime;
use nacre_proto::types::AuthName;
use nacre_wire::{Decode, DecodeError, Encode, Reader, versioned, versioned_fields};
use std::collections::BTreeMap;
use std::time::Duration;

/// Keys of one service that are kept: the one before, the one that tickets are sealed with, and the next one,
/// which the service's daemons have before the first ticket comes that it sealed.
const KEYS_KEPT: usize = 3;

/// An entity with a key. Ceph: `EntityAuth`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entity {
    pub key: Secret,
    /// What it may do, by kind of daemon ("osd") in the words of that kind.
    pub caps: BTreeMap<String, String>,
}
versioned_fields!(Entity, "EntityAuth", key, caps);

/// The keys of one service, by number. Ceph: `RotatingSecrets`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rotating {
    keys: BTreeMap<u64, Secret>,
}
versioned_fields!(Rotating, "RotatingSecrets", keys);

/// Ceph: `KeyServer` of a monitor, `RotatingKeyRing` of others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keys {
    /// None, if this is not a monitor's.
    pub entities: BTreeMap<AuthName, Entity>,
    pub rotating: BTreeMap<Service, Rotating>,
    /// Not part of what is stored or sent: monitors have it from their configuration.
    pub lifetimes: Lifetimes,
}

/// The client or daemon that a ticket is for.
#[derive(Clone, Copy, Debug)]
pub struct Holder<'a> {
    /// By which its capabilities are found.
    pub name: &'a AuthName,
    pub global_id: u64,
    /// Of its own key: the newest kind that it is known to understand.
    pub key_type: KeyType,
}

/// For how long tickets are good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// With the monitors. Ceph: `auth_mon_ticket_ttl`.
    pub session: Duration,
    /// With all others. Ceph: `auth_service_ticket_ttl`.
    pub service: Duration,
}

impl Default for Lifetimes {
    fn default() -> Lifetimes {
        Lifetimes { session: Duration::from_secs(72 * 3600), service: Duration::from_secs(3600) }
    }
}

impl Lifetimes {
    fn of(&self, service: Service) -> Duration {
        if service == SERVICE_AUTH { self.session } else { self.service }
    }
}

impl Rotating {
    /// Adds a key, and forgets the oldest if there are enough.
    pub fn add(&mut self, key: Secret) {
        let next = self.keys.last_key_value().map_or(1, |(id, _)| id + 1);
        self.keys.insert(next, key);
        while self.keys.len() > KEYS_KEPT {
            self.keys.pop_first();
        }
    }
    /// Whether another key is due: one is sealed with for as long as tickets are good, so that no ticket is
    /// good that was sealed with a key that is forgotten.
    pub fn is_due(&self, now: Utime, ttl: Duration) -> bool {
        let newest = self.keys.values().next_back();
        self.keys.len() < 2 || newest.is_some_and(|key| key.created + ttl <= now)
    }
    pub fn get(&self, id: u64) -> Option<&Secret> {
        self.keys.get(&id)
    }
    /// The one to seal with: daemons have it for long, and keep it for long.
    pub fn current(&self) -> Option<(u64, &Secret)> {
        self.keys.iter().rev().nth(1).or(self.keys.iter().next_back()).map(|(id, key)| (*id, key))
    }
}

impl Keys {
    /// Services that need another key.
    pub fn due(&self, now: Utime) -> Vec<Service> {
        let is_due = |service: &Service| match self.rotating.get(service) {
            // Ceph's metadata servers wait until they have all three.
            Some(rotating) if *service == SERVICE_MDS && rotating.keys.len() < KEYS_KEPT => true,
            Some(rotating) => rotating.is_due(now, self.lifetimes.of(*service)),
            None => true,
        };
        SERVICES.into_iter().filter(is_due).collect()
    }

    /// The keys of a service by number, with the time at which the last ticket ends that each seals.
    pub(crate) fn expiring(&self, service: Service) -> Vec<(u64, &Secret, Utime)> {
        let ttl = self.lifetimes.of(service);
        let keys: Vec<_> = self.rotating.get(&service).into_iter().flat_map(|all| &all.keys).collect();
        let newest = keys.last().map_or(Utime::ZERO, |(_, key)| key.created);
        // The newest is the next one; the one before seals until another comes.
        let mut expiring: Vec<_> = keys
            .into_iter()
            .rev()
            .zip([newest + 2 * ttl, newest + ttl, newest])
            .map(|((id, key), expires)| (*id, key, expires))
            .collect();
        expiring.reverse();
        expiring
    }

    /// The keys for the daemons of `service`.
    pub fn of_service(&self, service: Service) -> Keys {
        let rotating = self.rotating.get(&service).cloned();
        Keys { rotating: rotating.into_iter().map(|keys| (service, keys)).collect(), ..Keys::default() }
    }

    /// A ticket for one of the services; None if there is no such service.
    pub fn give(
        &self,
        now: Utime,
        service: Service,
        holder: &Holder<'_>,
        entropy: &mut Entropy,
    ) -> Option<Given> {
        let (secret_id, key) = self.rotating.get(&service)?.current()?;
        // Both ends must know the kind: the holder, and the service's daemons, of which some may be older.
        // The monitors themselves know all kinds.
        let kind = if service == SERVICE_AUTH { holder.key_type } else { holder.key_type.min(key.kind()) };
        let validity = self.lifetimes.of(service);
        let of_service = crate::cephx::service_name(service);
        let caps = self.entities.get(holder.name).and_then(|entity| entity.caps.get(of_service));
        let content = TicketContent {
            name: holder.name.clone(),
            global_id: holder.global_id,
            caps: caps.cloned().unwrap_or_default(),
            session_key: Secret::generate(kind, now, entropy),
            expires: now + validity,
        };
        let sealed = match service {
            SERVICE_MDS => {
                let content = CephTicketContent { content: &content, created: now };
                key.seal(Usage::TicketContent, &content, entropy)
            }
            _ => key.seal(Usage::TicketContent, &content, entropy),
        };
        let ticket = Ticket { secret_id, sealed };
        Some(Given { service, session_key: content.session_key, validity, ticket })
    }

    /// What a ticket for `service` says, if we sealed it with a key that is kept.
    pub fn open(&self, service: Service, ticket: &Ticket) -> Option<TicketContent> {
        self.rotating.get(&service)?.get(ticket.secret_id)?.open(Usage::TicketContent, &ticket.sealed).ok()
    }
}

impl Encode for Keys {
    fn encode(&self, out: &mut Vec<u8>) {
        versioned(out, 1, 1, |out| {
            self.entities.encode(out);
            self.rotating.encode(out);
        });
    }
}
impl Decode for Keys {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("Keys", 1, |r, _| {
            Ok(Keys {
                entities: Decode::decode(r)?,
                rotating: Decode::decode(r)?,
                lifetimes: Lifetimes::default(),
            })
        })
    }
}
