//! cephx: what unauthenticated clients send, what servers reply, and what both decrypt with a shared key.
//!
//! The first byte of an input selects the message and the kind of keys; encryption happens here, after the
//! mutation.

use nacre_auth::cephx::{
    Authorize, Authorizer, CephxVerifier, Challenge, Given, Introduction, KeyStore, Proof, SERVICE_AUTH,
    SERVICE_OSD, SERVICES, Service, Ticket, TicketManager, TicketRequest, renew,
};
use nacre_auth::{
    Entity, Entropy, GlobalIds, Holder, KeyType, Keys, METHOD_CEPHX, Prover, Secret, Usage, Verdict,
    Verifier, keyring,
};
use nacre_base::Utime;
use nacre_proto::types::{AuthName, EntityType};
use nacre_wire::{Encode, to_vec};
use std::collections::BTreeMap;
use std::sync::Arc;

const NOW: Utime = Utime { sec: 1_000_000, nsec: 0 };
const GLOBAL_ID: u64 = 4100;

fn now() -> Utime {
    NOW
}

fn client() -> AuthName {
    AuthName::new(EntityType::Client, "a")
}

/// All of them of one kind.
fn keys(kind: KeyType) -> (Arc<Keys>, Secret) {
    let entropy = &mut Entropy::repeatable(1);
    let key = Secret::generate(kind, NOW, entropy);
    let caps = BTreeMap::from([("osd".to_string(), "allow *".to_string())]);
    let mut keys =
        Keys { entities: BTreeMap::from([(client(), Entity { key: key.clone(), caps })]), ..Keys::default() };
    for service in SERVICES {
        keys.rotating.entry(service).or_default().add(Secret::generate(kind, NOW, entropy));
    }
    (Arc::new(keys), key)
}

fn verifier(service: Service, keys: &Arc<Keys>) -> CephxVerifier {
    let key_store = KeyStore::default();
    key_store.put(keys.clone());
    let mut ids = GLOBAL_ID..;
    let ids = GlobalIds::Assign(Box::new(move || ids.next()));
    CephxVerifier::new(service, key_store, None, ids, now, Entropy::repeatable(2))
}

/// Raw bytes in place of an encoded value.
struct Raw<'a>(&'a [u8]);
impl Encode for Raw<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.0);
    }
}

const TO_MONITOR: u8 = 0;
const PROOF: u8 = 1;
const TO_OSD: u8 = 2;
const AUTHORIZE: u8 = 3;
const TICKET: u8 = 4;
const RENEW: u8 = 5;
const FROM_MONITOR: u8 = 6;
const FROM_OSD: u8 = 7;
const KEYRING: u8 = 8;
/// Added to it: all keys are of the newer kind.
const NEWER: u8 = 0x80;

/// A ticket for the client.
fn give(keys: &Keys, key: &Secret, service: Service, entropy: &mut Entropy) -> Given {
    let holder = Holder { name: &client(), global_id: GLOBAL_ID, key_type: key.kind() };
    keys.give(NOW, service, &holder, entropy).expect("there is a key")
}

pub fn seeds() -> Vec<Vec<u8>> {
    let newer = seeds_of(KeyType::Aes256k).into_iter().map(|mut seed| {
        seed[0] |= NEWER;
        seed
    });
    seeds_of(KeyType::Aes).into_iter().chain(newer).collect()
}

fn seeds_of(kind: KeyType) -> Vec<Vec<u8>> {
    let (keys, key) = keys(kind);
    let entropy = &mut Entropy::repeatable(3);
    let given = give(&keys, &key, SERVICE_OSD, entropy);
    let authorize = Authorize { nonce: 1, answer: Some(2) };
    let shown = Authorizer {
        global_id: GLOBAL_ID,
        service: SERVICE_OSD,
        ticket: given.ticket.clone(),
        sealed: given.session_key.seal(Usage::Authorize, &authorize, entropy),
    };
    let proof = Proof { client_challenge: 1, key: 2, old_ticket: Ticket::default(), services: 0x35 };
    let content = keys.open(SERVICE_OSD, &given.ticket).expect("we sealed it");
    let request =
        TicketRequest { authorizer: Authorizer { service: SERVICE_AUTH, ..shown.clone() }, services: 0x15 };
    let ring = keyring::print(&keys.entities);
    // A monitor's grant, and an OSD's.
    let tickets = TicketManager::new(client(), key, KeyStore::default(), now, Entropy::repeatable(4));
    let mut seeds = vec![
        (TO_MONITOR, to_vec(&Introduction { name: client(), global_id: 0 })),
        (PROOF, to_vec(&proof)),
        (TO_OSD, to_vec(&shown)),
        (AUTHORIZE, to_vec(&authorize)),
        (TICKET, to_vec(&content)),
        (RENEW, to_vec(&request)),
        (KEYRING, ring.into_bytes()),
    ];
    for (what, kind) in [(FROM_MONITOR, EntityType::Mon), (FROM_OSD, EntityType::Osd)] {
        let (mut prover, mut verifier) = (tickets.prover(), verifier(kind as Service, &keys));
        let mut payload = prover.open(kind).payload;
        while let Verdict::Challenge(challenge) = verifier.judge(METHOD_CEPHX, 2, &payload) {
            seeds.push((what, challenge.clone()));
            payload = prover.answer(&challenge).expect("it is asked rightly");
        }
        if let Verdict::Granted(grant) = verifier.judge(METHOD_CEPHX, 2, &payload) {
            seeds.push((what, grant.reply));
        }
    }
    seeds.into_iter().map(|(what, bytes)| [&[what][..], &bytes].concat()).collect()
}

pub fn run(input: &[u8]) {
    let Some((what, bytes)) = input.split_first() else { return };
    let (keys, key) = keys(if what & NEWER == 0 { KeyType::Aes } else { KeyType::Aes256k });
    let entropy = &mut Entropy::repeatable(3);
    let tickets = TicketManager::new(client(), key.clone(), KeyStore::default(), now, Entropy::repeatable(4));
    let what = what & !NEWER;
    match what {
        TO_MONITOR => drop(verifier(1, &keys).judge(METHOD_CEPHX, 2, bytes)),
        PROOF => {
            let mut verifier = verifier(1, &keys);
            let introduction = Introduction { name: client(), global_id: 0 };
            verifier.judge(METHOD_CEPHX, 2, &to_vec(&introduction));
            let verdict = verifier.judge(METHOD_CEPHX, 2, bytes);
            assert!(!matches!(verdict, Verdict::Granted(_)), "nobody guesses a key");
        }
        TO_OSD => drop(verifier(SERVICE_OSD, &keys).judge(METHOD_CEPHX, 2, bytes)),
        AUTHORIZE | TICKET => {
            let mut given = give(&keys, &key, SERVICE_OSD, entropy);
            let authorize = Authorize { nonce: 1, answer: None };
            let mut sealed = given.session_key.seal(Usage::Authorize, &authorize, entropy);
            match what {
                AUTHORIZE => sealed = given.session_key.seal(Usage::Authorize, &Raw(bytes), entropy),
                // Only monitors and OSDs could forge it.
                _ => {
                    let (id, key) = keys.rotating[&SERVICE_OSD].current().expect("there is one");
                    let sealed = key.seal(Usage::TicketContent, &Raw(bytes), entropy);
                    given.ticket = Ticket { secret_id: id, sealed };
                }
            }
            let shown =
                Authorizer { global_id: GLOBAL_ID, service: SERVICE_OSD, ticket: given.ticket, sealed };
            let mut verifier = verifier(SERVICE_OSD, &keys);
            verifier.judge(METHOD_CEPHX, 2, &to_vec(&shown));
            verifier.judge(METHOD_CEPHX, 2, &to_vec(&shown));
        }
        RENEW => drop(renew(&keys, &client(), NOW, entropy, bytes)),
        FROM_MONITOR | FROM_OSD => {
            let kind = if what == FROM_MONITOR { EntityType::Mon } else { EntityType::Osd };
            let mut prover = tickets.prover();
            prover.open(kind);
            prover.answer(bytes);
            prover.answer(&to_vec(&Challenge(7)));
            let _ = prover.granted(GLOBAL_ID, bytes);
            let _ = tickets.answered(bytes);
        }
        KEYRING => {
            let Ok(text) = std::str::from_utf8(bytes) else { return };
            if let Ok(entities) = keyring::parse(text) {
                // Printing replaces control characters by blanks; after that the text is stable.
                let printed = keyring::print(&entities);
                assert_eq!(keyring::parse(&printed).map(|entities| keyring::print(&entities)), Ok(printed));
            }
        }
        _ => {}
    }
}
