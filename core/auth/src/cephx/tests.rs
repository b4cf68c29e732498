//! cephx, with recorded bytes of a real Ceph and with ourselves.

use super::messages::{AuthorizeReply, SessionGiven, proof_of};
use super::*;
use crate::method::{
    CONNECTION_MODE_CRC, CONNECTION_MODE_SECURE, GlobalIds, Grant, METHOD_CEPHX, Offer, Prover,
    SessionSecret, Verdict, Verifier,
};
use crate::{Entity, Entropy, KeyType, Keys, Secret, Usage};
use nacre_base::{Utime, errno};
use nacre_proto::types::{AuthName, EntityType};
use nacre_wire::{Decode, DecodeError, Reader, from_slice, to_vec};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const RECORDED: &str = include_str!("../../../../check/corpus/data/msgr_secure.txt");

fn recorded(label: &str) -> Vec<u8> {
    let line = RECORDED.lines().find_map(|line| line.strip_prefix(label)?.strip_prefix('\t'));
    let digits = line.unwrap_or_else(|| panic!("{label} is recorded")).as_bytes().chunks(2);
    digits.map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()).collect()
}

/// What frames with this tag carry.
fn carried<T: Decode>(label: &str, tag: u8) -> Vec<T> {
    let stream = recorded(label);
    let mut rest = &stream[26..]; // the banner
    let mut found = Vec::new();
    while !rest.is_empty() {
        let len = u32::from_le_bytes(rest[2..6].try_into().unwrap()) as usize;
        if rest[0] == tag {
            found.push(from_slice(&rest[32..32 + len]).unwrap());
        }
        rest = &rest[32 + len + 4..];
    }
    found
}

const AUTH_REQUEST: u8 = 2;
const AUTH_REPLY_MORE: u8 = 4;
const AUTH_REQUEST_MORE: u8 = 5;
const AUTH_DONE: u8 = 6;

/// Of AUTH_DONE.
struct Done(Vec<u8>);
impl Decode for Done {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (_global_id, _mode) = (u64::decode(r)?, u32::decode(r)?);
        Ok(Done(Vec::decode(r)?))
    }
}
fn offered(label: &str) -> Vec<u8> {
    carried::<Offer>(label, AUTH_REQUEST).remove(0).payload
}
fn answered(label: &str, tag: u8) -> Vec<u8> {
    carried(label, tag).remove(0)
}
fn done(label: &str) -> Vec<u8> {
    let Done(payload) = carried(label, AUTH_DONE).remove(0);
    payload
}

fn session_of(label: &str) -> SessionGiven {
    let key: Secret = from_slice(&recorded("client key")).unwrap();
    SessionGiven::decode(&done(&format!("{label} S crc")), &key, None).unwrap()
}

#[test]
fn a_real_client_and_its_monitor_are_understood() {
    let key: Secret = from_slice(&recorded("client key")).unwrap();
    for (label, services) in [("mon-bootstrap", vec![]), ("mon", vec![SERVICE_MON, SERVICE_OSD, SERVICE_MGR])]
    {
        let client = format!("{label} C crc");
        let who: Introduction = from_slice(&offered(&client)).unwrap();
        assert_eq!((who.name.to_string(), who.global_id), ("client.admin".to_string(), 0));
        let challenge = answered(&format!("{label} S crc"), AUTH_REPLY_MORE);
        let Challenge(challenge) = from_slice(&challenge).unwrap();
        let bytes = answered(&client, AUTH_REQUEST_MORE);
        let proof: Proof = from_slice(&bytes).unwrap();
        assert_eq!(proof_of(&key, challenge, proof.client_challenge), proof.key);
        assert_eq!(to_vec(&proof), bytes);

        let given = session_of(label);
        assert_eq!(given.connection_secret, recorded(&format!("{label} secret")));
        assert_eq!((given.session.service, given.session.validity.as_secs()), (SERVICE_AUTH, 72 * 3600));
        let mut others: Vec<Service> = given.others.iter().map(|given| given.service).collect();
        others.sort_unstable();
        assert_eq!(others, services);
    }
}

#[test]
fn a_real_client_and_an_osd_are_understood() {
    let given = session_of("mon");
    let osd = given.others.iter().find(|given| given.service == SERVICE_OSD).unwrap();
    let first: Authorizer = from_slice(&offered("osd C crc")).unwrap();
    let answer: Authorizer = from_slice(&answered("osd C crc", AUTH_REQUEST_MORE)).unwrap();
    assert_eq!((&first.ticket, first.service), (&osd.ticket, SERVICE_OSD));
    let open =
        |shown: &Authorizer| osd.session_key.open::<Authorize>(Usage::Authorize, &shown.sealed).unwrap();
    assert_eq!(open(&first).answer, None);
    let challenge = osd.session_key.open(Usage::AuthorizeChallenge, &answered("osd S crc", AUTH_REPLY_MORE));
    let Challenge(challenge) = challenge.unwrap();
    assert_eq!(open(&answer).answer, Some(challenge + 1));
    let sealed: Vec<u8> = from_slice(&done("osd S crc")).unwrap();
    let reply: AuthorizeReply = osd.session_key.open(Usage::AuthorizeReply, &sealed).unwrap();
    assert_eq!(reply.nonce_plus_one, open(&answer).nonce + 1);
    assert_eq!(reply.connection_secret, recorded("osd secret"));
}

/// Seconds that have passed. Each test has its own thread, and so its own.
fn clock() -> Utime {
    PASSED.with(|passed| Utime { sec: 1_000_000 + passed.load(Ordering::Relaxed), nsec: 0 })
}
thread_local! {
    static PASSED: AtomicU32 = const { AtomicU32::new(0) };
}
fn pass(time: Duration) {
    PASSED.with(|passed| passed.fetch_add(time.as_secs() as u32, Ordering::Relaxed));
}

fn name(text: &str) -> AuthName {
    AuthName::parse(text).unwrap()
}

/// A monitor that knows some, and an OSD.
struct World {
    entropy: Entropy,
    keys: Keys,
    monitors_key: Secret,
    at_mon: KeyStore,
    at_osd: KeyStore,
    last_id: u64,
    /// Of services' keys.
    service_kind: KeyType,
}

impl World {
    fn new() -> World {
        let mut entropy = Entropy::repeatable(7);
        let mut entity = |caps: &[(&str, &str)]| Entity {
            key: Secret::generate(KeyType::Aes, clock(), &mut entropy),
            caps: caps.iter().map(|(service, caps)| (service.to_string(), caps.to_string())).collect(),
        };
        let entities = BTreeMap::from([
            (name("client.a"), entity(&[("mon", "allow r"), ("osd", "allow rw pool=p")])),
            (name("client.b"), entity(&[])),
            (name("osd.3"), entity(&[("osd", "allow *")])),
        ]);
        let monitors_key = Secret::generate(KeyType::Aes, clock(), &mut entropy);
        let keys = Keys { entities, ..Keys::default() };
        let (at_mon, at_osd) = (KeyStore::default(), KeyStore::default());
        let service_kind = KeyType::Aes;
        let mut world = World { entropy, keys, monitors_key, at_mon, at_osd, last_id: 4099, service_kind };
        world.rotate();
        world.rotate();
        world
    }

    fn rotate(&mut self) {
        for service in self.keys.due(clock()) {
            let key = Secret::generate(self.service_kind, clock(), &mut self.entropy);
            self.keys.rotating.entry(service).or_default().add(key);
        }
        self.at_mon.put(Arc::new(self.keys.clone()));
        self.at_osd.put(Arc::new(self.keys.of_service(SERVICE_OSD)));
    }

    fn tickets(&mut self, who: &str) -> TicketManager {
        let key = self.keys.entities[&name(who)].key.clone();
        self.tickets_with(who, key)
    }
    fn tickets_with(&mut self, who: &str, key: Secret) -> TicketManager {
        let key_store = if who.starts_with("osd.") { self.at_osd.clone() } else { KeyStore::default() };
        TicketManager::new(name(who), key, key_store, clock, self.entropy.fork())
    }

    fn verifier(&mut self, kind: EntityType) -> CephxVerifier {
        self.last_id += 1;
        let mut ids = self.last_id..;
        let (ids, key_store, own) = match kind {
            EntityType::Mon => {
                let ids = GlobalIds::Assign(Box::new(move || ids.next()));
                (ids, self.at_mon.clone(), Some(self.monitors_key.clone()))
            }
            _ => (GlobalIds::Brought, self.at_osd.clone(), None),
        };
        CephxVerifier::new(kind as Service, key_store, own, ids, clock, self.entropy.fork())
    }

    /// A client connects to a daemon of that kind: how both see it, or with which error it is refused.
    fn connect(
        &mut self,
        tickets: &TicketManager,
        kind: EntityType,
        mode: u32,
    ) -> Result<(Box<Grant>, Option<SessionSecret>), i32> {
        let (mut prover, mut verifier) = (tickets.prover(), self.verifier(kind));
        let mut payload = prover.open(kind).payload;
        loop {
            match verifier.judge(METHOD_CEPHX, mode, &payload) {
                Verdict::Granted(grant) => {
                    let secret = prover.granted(grant.global_id, &grant.reply).unwrap();
                    return Ok((grant, secret));
                }
                Verdict::Challenge(challenge) => payload = prover.answer(&challenge).unwrap(),
                Verdict::Refused { errno } => {
                    prover.refused();
                    return Err(errno);
                }
                Verdict::Later => panic!("everything is there"),
            }
        }
    }
}

#[test]
fn a_client_proves_itself_to_a_monitor_and_with_its_ticket_to_an_osd() {
    let mut world = World::new();
    let tickets = world.tickets("client.a");
    for (mode, len) in [(CONNECTION_MODE_CRC, 0), (CONNECTION_MODE_SECURE, 64)] {
        let (grant, secret) = world.connect(&tickets, EntityType::Mon, mode).unwrap();
        let proved = grant.proved.as_ref().unwrap();
        assert_eq!((proved.name.to_string(), &*proved.caps), ("client.a".to_string(), "allow r"));
        assert_eq!(grant.global_id, 4100, "the same in its second session");
        assert_eq!((&grant.session, secret.as_ref().unwrap().connection.len()), (&secret, len));

        let (grant, secret) = world.connect(&tickets, EntityType::Osd, mode).unwrap();
        let proved = grant.proved.as_ref().unwrap();
        assert_eq!((&*proved.caps, proved.service, grant.global_id), ("allow rw pool=p", SERVICE_OSD, 4100));
        assert_eq!((&grant.session, secret.as_ref().unwrap().connection.len()), (&secret, len));
    }
    // Without a ticket for it, and without any capability.
    assert_eq!(world.connect(&tickets, EntityType::Mds, CONNECTION_MODE_CRC), Err(errno::EINVAL));
    let tickets = world.tickets("client.b");
    assert_eq!(world.connect(&tickets, EntityType::Osd, CONNECTION_MODE_CRC), Err(errno::EINVAL));
    world.connect(&tickets, EntityType::Mon, CONNECTION_MODE_CRC).unwrap();
    let (grant, _) = world.connect(&tickets, EntityType::Osd, CONNECTION_MODE_CRC).unwrap();
    assert_eq!(grant.proved.unwrap().caps, "");
}

#[test]
fn keys_of_both_kinds_are_used_side_by_side() {
    for (client, service) in [
        (KeyType::Aes, KeyType::Aes),
        (KeyType::Aes, KeyType::Aes256k),
        (KeyType::Aes256k, KeyType::Aes),
        (KeyType::Aes256k, KeyType::Aes256k),
    ] {
        let mut world = World::new();
        world.service_kind = service;
        for _ in 0..3 {
            pass(Duration::from_secs(73 * 3600));
            world.rotate();
        }
        for who in ["client.a", "osd.3"] {
            let key = Secret::generate(client, clock(), &mut world.entropy);
            world.keys.entities.get_mut(&name(who)).unwrap().key = key;
        }
        world.rotate();
        let tickets = world.tickets("client.a");
        let len = |kind| if kind == KeyType::Aes { 16 } else { 32 };
        for mode in [CONNECTION_MODE_CRC, CONNECTION_MODE_SECURE] {
            // Twice: the second session continues the first one.
            let (grant, secret) = world.connect(&tickets, EntityType::Mon, mode).unwrap();
            assert_eq!((&grant.session, grant.global_id), (&secret, 4100));
            assert_eq!(secret.unwrap().key.len(), len(client), "{client:?} {service:?}");
            let (grant, secret) = world.connect(&tickets, EntityType::Osd, mode).unwrap();
            assert_eq!(grant.session, secret);
            assert_eq!(secret.unwrap().key.len(), len(client.min(service)), "{client:?} {service:?}");
        }
        let (keys, mut entropy) = (world.keys.clone(), world.entropy.fork());
        let answer = renew(&keys, &name("client.a"), clock(), &mut entropy, &tickets.ask().unwrap()).unwrap();
        tickets.answered(&answer).unwrap();
        let (_, secret) = world.connect(&tickets, EntityType::Osd, CONNECTION_MODE_SECURE).unwrap();
        assert_eq!(secret.unwrap().key.len(), len(client.min(service)));
        // OSDs among themselves.
        let osd = world.tickets("osd.3");
        world.connect(&osd, EntityType::Mon, CONNECTION_MODE_SECURE).unwrap();
        let (_, secret) = world.connect(&osd, EntityType::Osd, CONNECTION_MODE_SECURE).unwrap();
        assert_eq!(secret.unwrap().key.len(), len(service));
        // Another key of the same kind proves nothing.
        let wrong = Secret::generate(client, clock(), &mut world.entropy);
        let tickets = world.tickets_with("client.a", wrong);
        assert_eq!(world.connect(&tickets, EntityType::Mon, CONNECTION_MODE_CRC), Err(errno::EACCES));
    }
}

#[test]
fn client_without_the_key_is_refused_and_cannot_probe_entities() {
    let mut world = World::new();
    let wrong = Secret::generate(KeyType::Aes, clock(), &mut world.entropy);
    for who in ["client.a", "client.nobody", "mon."] {
        let tickets = world.tickets_with(who, wrong.clone());
        assert_eq!(
            world.connect(&tickets, EntityType::Mon, CONNECTION_MODE_CRC),
            Err(errno::EACCES),
            "{who}"
        );
    }
}

#[test]
fn a_global_id_stays_with_who_had_it() {
    let mut world = World::new();
    let (a, b) = (world.tickets("client.a"), world.tickets("client.b"));
    for tickets in [&a, &b] {
        world.connect(tickets, EntityType::Mon, CONNECTION_MODE_CRC).unwrap();
    }
    // b says that it is a's successor, with its own key and its own ticket.
    let mut verifier = world.verifier(EntityType::Mon);
    let who = Introduction { name: name("client.b"), global_id: 4100 };
    let Verdict::Challenge(challenge) = verifier.judge(METHOD_CEPHX, CONNECTION_MODE_CRC, &to_vec(&who))
    else {
        panic!("it asks for proof")
    };
    let mut prover = b.prover();
    prover.open(EntityType::Mon);
    let proof = prover.answer(&challenge).unwrap();
    let verdict = verifier.judge(METHOD_CEPHX, CONNECTION_MODE_CRC, &proof);
    assert_eq!(verdict, Verdict::Refused { errno: errno::EACCES });
}

#[test]
fn daemons_of_a_kind_know_each_other_without_a_monitor() {
    let mut world = World::new();
    let osd = world.tickets("osd.3");
    let (grant, secret) = world.connect(&osd, EntityType::Osd, CONNECTION_MODE_SECURE).unwrap();
    let proved = grant.proved.as_ref().unwrap();
    assert_eq!((proved.name.to_string(), &*proved.caps), ("osd.3".to_string(), "allow *"));
    assert_eq!(grant.session, secret);
    let key = world.monitors_key.clone();
    let mon = world.tickets_with("mon.", key);
    assert!(world.connect(&mon, EntityType::Mon, CONNECTION_MODE_CRC).is_ok());
    // An OSD has not the monitors' key, and asks like any client.
    let (grant, _) = world.connect(&osd, EntityType::Mon, CONNECTION_MODE_CRC).unwrap();
    assert_eq!(grant.proved.unwrap().name, name("osd.3"));
}

#[test]
fn tickets_end_and_are_fetched_anew_before() {
    let mut world = World::new();
    let tickets = world.tickets("client.a");
    world.connect(&tickets, EntityType::Mon, CONNECTION_MODE_CRC).unwrap();
    let stale = world.tickets("client.a");
    world.connect(&stale, EntityType::Mon, CONNECTION_MODE_CRC).unwrap();
    assert_eq!(tickets.due(), None);
    for _ in 0..6 {
        pass(Duration::from_secs(45 * 60));
        world.rotate();
        assert_eq!(tickets.due(), Some(Due::Tickets));
        let (keys, mut entropy) = (world.keys.clone(), world.entropy.fork());
        let answer = renew(&keys, &name("client.a"), clock(), &mut entropy, &tickets.ask().unwrap()).unwrap();
        tickets.answered(&answer).unwrap();
        assert_eq!(tickets.due(), None);
        world.connect(&tickets, EntityType::Osd, CONNECTION_MODE_CRC).unwrap();
    }
    // A client that did not is refused, drops that ticket, and has to ask for another one.
    assert_eq!(world.connect(&stale, EntityType::Osd, CONNECTION_MODE_CRC), Err(errno::EACCES));
    assert_eq!(stale.due(), Some(Due::Tickets));
    let (keys, mut entropy) = (world.keys.clone(), world.entropy.fork());
    let asked = stale.ask().unwrap();
    assert_eq!(renew(&keys, &name("client.b"), clock(), &mut entropy, &asked), Err(errno::EACCES));
    assert!(renew(&keys, &name("client.a"), clock(), &mut entropy, &asked).is_ok());
    pass(Duration::from_secs(72 * 3600));
    assert_eq!(tickets.due(), Some(Due::Session));
}

/// The newest key waits for its turn, so that all daemons have it before the first ticket comes that it
/// sealed.
#[test]
fn a_ticket_is_good_until_it_ends_whenever_keys_change() {
    let mut world = World::new();
    for minutes in [0, 1, 30, 59, 61, 90] {
        pass(Duration::from_secs(minutes * 60));
        world.rotate();
        let tickets = world.tickets("client.a");
        world.connect(&tickets, EntityType::Mon, CONNECTION_MODE_CRC).unwrap();
        for _ in 0..59 {
            pass(Duration::from_secs(60));
            world.rotate();
            world.connect(&tickets, EntityType::Osd, CONNECTION_MODE_CRC).unwrap();
        }
        pass(Duration::from_secs(3 * 3600));
        world.rotate();
        world.rotate();
    }
}

#[test]
fn malformed_input_is_refused() {
    let mut world = World::new();
    for kind in [EntityType::Mon, EntityType::Osd] {
        for payload in [&b""[..], b"\x01", b"\x0a", &[1; 100], &[10; 100]] {
            let verdict = world.verifier(kind).judge(METHOD_CEPHX, CONNECTION_MODE_CRC, payload);
            assert!(matches!(verdict, Verdict::Refused { .. }), "{verdict:?}");
        }
    }
}
