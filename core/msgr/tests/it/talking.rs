//! A client and a server of ours, whatever way the bytes between them are cut.

use super::*;
use bytes::Buf;
use nacre_auth::{Grant, METHOD_NONE, Offer, Proved, Prover, SessionSecret, Verdict, Verifier};
use nacre_base::{Now, Rng, Utime};
use nacre_msgr::Limits;
use std::time::Duration;

fn random_bytes(rng: &mut Rng) -> Bytes {
    let len = match rng.below(4) {
        0 => 0,
        1 => rng.below(100),
        2 => rng.below(5000),
        _ => rng.below(200_000),
    };
    let seed = rng.next_u64();
    (0..len).map(|i| (seed.wrapping_mul(i + 1) >> 32) as u8).collect()
}

fn random_message(rng: &mut Rng) -> RawMessage {
    RawMessage {
        kind: rng.next_u64() as u16,
        version: rng.next_u64() as u16,
        compat: rng.next_u64() as u16,
        tid: rng.next_u64(),
        priority: rng.next_u64() as u16,
        front: random_bytes(rng),
        middle: if rng.chance(200) { random_bytes(rng) } else { Bytes::new() },
        data: random_bytes(rng),
    }
}

/// Moves some of what is written to the other end: a slice of it, or straight into a wanted buffer.
fn carry(rng: &mut Rng, from: &mut Connection, to: &mut Connection, events: &mut Vec<Event>) {
    let most = *rng.pick(&[1, 40, 3000, 300_000]).unwrap();
    let mut budget = 1 + rng.below(most) as usize;
    while budget > 0 && from.queued_bytes() > 0 {
        let wanted = if rng.chance(700) { to.wanted() } else { None };
        let n = budget.min(from.outbox().remaining());
        if let Some(into) = wanted {
            let n = n.min(into.len());
            from.outbox().copy_to_slice(&mut into[..n]);
            to.filled(NOW, n, events).unwrap();
            budget -= n;
        } else {
            let chunk = from.outbox().copy_to_bytes(n);
            to.receive(NOW, chunk, events).unwrap();
            budget -= n;
        }
    }
}

#[test]
fn messages_arrive_once_in_order_and_unchanged_however_the_stream_is_cut() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let (mut client, mut server) = (new_client(client_config()), new_server(osd_config()));
        let (mut of_client, mut of_server) = (Vec::new(), Vec::new());
        let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
        for _ in 0..400 {
            match rng.below(20) {
                0 => {
                    to_server.push(Event::Message(random_message(&mut rng)));
                    let Some(Event::Message(m)) = to_server.last() else { unreachable!() };
                    client.send(m.clone());
                }
                1 => {
                    to_client.push(Event::Message(random_message(&mut rng)));
                    let Some(Event::Message(m)) = to_client.last() else { unreachable!() };
                    server.send(m.clone());
                }
                2..11 => carry(&mut rng, &mut client, &mut server, &mut of_server),
                _ => carry(&mut rng, &mut server, &mut client, &mut of_client),
            }
        }
        while client.queued_bytes() + server.queued_bytes() > 0 {
            carry(&mut rng, &mut client, &mut server, &mut of_server);
            carry(&mut rng, &mut server, &mut client, &mut of_client);
        }
        ready(&of_server[..1]);
        ready(&of_client[..1]);
        assert!(of_server[1..] == to_server, "seed {seed}: the server got something else");
        assert!(of_client[1..] == to_client, "seed {seed}: the client got something else");
    }
}

#[test]
fn both_ends_learn_the_name_of_the_other() {
    let (mut client, mut server) = (new_client(client_config()), new_server(osd_config()));
    let (of_client, of_server) = exchange(&mut client, &mut server);
    let (osd, admin) = (ready(&of_client), ready(&of_server));
    assert_eq!(osd.name.to_string(), "osd.3");
    assert_eq!(osd.addrs, AddrVec::one(osd_addr()));
    assert_eq!(osd.sees_us_at.to_string(), "v2:127.0.0.1:50000/0");
    assert_eq!(admin.name.to_string(), "client.4157");
    // The client listens nowhere; its IP is what the server told it.
    assert_eq!(admin.addrs.to_string(), "127.0.0.1:0/9");
    assert_eq!((admin.global_id, osd.global_id), (CLIENT_ID, CLIENT_ID));
    assert!(osd.lossy && admin.lossy);
}

#[test]
fn a_daemon_goes_by_its_own_number_not_by_a_global_id() {
    let from = EntityAddr::msgr2("127.0.0.1:6804".parse().unwrap(), 5);
    let config = Config::new(EntityType::Osd, 7, AddrVec::one(from));
    let prover = Box::new(NoneProver { name: AuthName::new(EntityType::Osd, "7"), global_id: 0 });
    let mut client = Connection::client(NOW, config, osd_addr(), EntityType::Osd, prover);
    let mut server = new_server(osd_config());
    let (_, of_server) = exchange(&mut client, &mut server);
    let osd = ready(&of_server);
    assert_eq!(osd.name.to_string(), "osd.7");
    assert_eq!(osd.addrs, AddrVec::one(from));
}

#[test]
fn a_monitor_assigns_an_id_once_and_lets_a_client_keep_it() {
    let addr = EntityAddr::msgr2("127.0.0.1:3300".parse().unwrap(), 0);
    for (brings, gets) in [(0, 5000), (4157, 4157)] {
        let mut next = 5000..;
        let ids = GlobalIds::Assign(Box::new(move || next.next()));
        let config = Config::new(EntityType::Mon, 0, AddrVec::one(addr));
        let verifier = Box::new(NoneVerifier { global_ids: ids });
        let mut server = Connection::server(NOW, config, "127.0.0.1:50000".parse().unwrap(), verifier);
        let config = Config { num: -1, ..client_config() };
        let mut client = Connection::client(NOW, config, addr, EntityType::Mon, admin(brings));
        let (of_client, of_server) = exchange(&mut client, &mut server);
        assert_eq!(ready(&of_client).global_id, gets);
        assert_eq!(ready(&of_server).name.num, gets as i64);
    }
}

#[test]
fn keepalives_are_answered_at_once_and_measure_the_round_trip() {
    let (mut client, mut server) = pair();
    let stamp = |sec| Utime { sec, nsec: 7 };
    for ms in [0, 1] {
        client.keepalive(Now { mono: NOW + Duration::from_millis(ms), wall: stamp(ms as u32) });
    }
    assert_eq!(receive(&mut server, written(&mut client)), Ok(vec![]));
    let mut events = Vec::new();
    client.receive(NOW + Duration::from_millis(5), written(&mut server), &mut events).unwrap();
    let rtt = |ms| Event::KeepaliveAck { rtt: Duration::from_millis(ms) };
    assert_eq!(events, [rtt(5), rtt(4)]);
}

#[test]
fn the_handshake_has_a_deadline_and_an_open_connection_none() {
    let (mut client, mut server) = (new_client(client_config()), new_server(osd_config()));
    let deadline = server.deadline().unwrap();
    assert_eq!(deadline, NOW + osd_config().handshake_timeout);
    assert_eq!(server.check_deadline(NOW), Ok(()));
    exchange(&mut client, &mut server);
    assert_eq!((client.deadline(), server.deadline()), (None, None));
    assert_eq!(server.check_deadline(deadline), Ok(()));

    let mut late = new_server(osd_config());
    let fault = late.check_deadline(deadline).unwrap_err();
    assert_eq!(fault.to_string(), "the handshake was not over in time, it stopped in the banner phase");
    assert_eq!(receive(&mut late, b"ceph".to_vec()), Err(fault));
}

#[test]
fn the_data_of_a_message_is_neither_copied_when_sent_nor_when_it_arrives_in_one_piece() {
    let (mut client, mut server) = pair();
    let data = Bytes::from(vec![7; 100_000]);
    client.send(RawMessage { data: data.clone(), ..message(1, b"front", b"") });
    let pieces: Vec<Bytes> = client.transmit().collect();
    assert!(pieces.iter().any(|piece| piece.as_ptr() == data.as_ptr() && piece.len() == data.len()));
    assert_eq!(pieces.len(), 3); // head and front, data, epilogue

    let chunk: Bytes = pieces.into_iter().flatten().collect();
    let inside = chunk.as_ptr_range();
    let events = receive(&mut server, chunk).unwrap();
    let [Event::Message(got)] = &events[..] else { panic!("{events:?}") };
    assert!(inside.contains(&got.data.as_ptr()) && got.data == data);
}

#[test]
fn large_segment_is_received_into_one_buffer() {
    let (mut client, mut server) = pair();
    let data = Bytes::from(vec![7; 1 << 20]);
    client.send(RawMessage { data: data.clone(), ..message(1, b"front", b"") });
    assert!(server.wanted().is_none());
    let start = client.outbox().copy_to_bytes(60_000);
    assert_eq!(receive(&mut server, start), Ok(vec![]));

    let mut events = Vec::new();
    let end = server.wanted().expect("a megabyte is worth a buffer").as_ptr_range().end;
    while let Some(into) = server.wanted() {
        let n = into.len().min(50_000);
        client.outbox().copy_to_slice(&mut into[..n]);
        server.filled(NOW, n, &mut events).unwrap();
    }
    server.receive(NOW, written(&mut client), &mut events).unwrap();
    let [Event::Message(got)] = &events[..] else { panic!("{events:?}") };
    assert!(got.data == data && got.data.as_ptr_range().end == end);
    assert_eq!(got.data.as_ptr().align_offset(4096), 0, "a device takes it from there");
}

/// A method with one round of questions, to try the seam that "none" does not need. A client that answers
/// proves this name, if any.
#[derive(Default)]
struct Asker {
    proves: Option<AuthName>,
}
impl Verifier for Asker {
    fn methods(&self) -> Vec<u32> {
        vec![2]
    }
    fn modes(&self) -> Vec<u32> {
        vec![1]
    }
    fn judge(&mut self, _method: u32, mode: u32, payload: &[u8]) -> Verdict {
        assert_eq!(mode, 1, "the only one that both know");
        match payload {
            b"answer" => Verdict::Granted(Box::new(Grant {
                name: AuthName::new(EntityType::Client, "sworn"),
                global_id: 6,
                proved: self.proves.clone().map(|name| Proved {
                    name,
                    service: 4,
                    caps: String::new(),
                    global_id: 1,
                }),
                reply: vec![],
                session: None,
            })),
            b"lie" => Verdict::Refused { errno: 13 },
            _ => Verdict::Challenge(b"question".to_vec()),
        }
    }
}
struct Answerer(u32, &'static str);
impl Prover for Answerer {
    fn open(&mut self, _to: EntityType) -> Offer {
        Offer { method: self.0, modes: vec![2, 1], payload: b"hello".to_vec() }
    }
    fn answer(&mut self, challenge: &[u8]) -> Option<Vec<u8>> {
        assert_eq!(challenge, b"question");
        Some(self.1.into())
    }
    fn granted(&mut self, _global_id: u64, _payload: &[u8]) -> Result<Option<SessionSecret>, String> {
        Ok(None)
    }
}

fn asked(prover: Answerer) -> (Connection, Connection) {
    let sock = "127.0.0.1:50000".parse().unwrap();
    let server = Connection::server(NOW, osd_config(), sock, Box::new(Asker::default()));
    let client = Connection::client(NOW, client_config(), osd_addr(), EntityType::Osd, Box::new(prover));
    (client, server)
}

#[test]
fn a_method_may_ask_back_before_it_grants() {
    let (mut client, mut server) = asked(Answerer(2, "answer"));
    let (_, of_server) = exchange(&mut client, &mut server);
    let ident = ready(&of_server);
    assert_eq!((ident.auth_name.as_ref().unwrap().to_string(), ident.global_id), ("client.sworn".into(), 6));
}

/// A key proves a name, and the rest of the identity must agree with it.
#[test]
fn peer_cannot_claim_another_entity_than_its_keys() {
    let from = EntityAddr::msgr2("127.0.0.1:6804".parse().unwrap(), 5);
    let osd = |num| Config::new(EntityType::Osd, num, AddrVec::one(from));
    let fault = |config: Config, proves: AuthName| {
        let verifier = Box::new(Asker { proves: Some(proves) });
        let mut server = Connection::server(NOW, osd_config(), "127.0.0.1:50000".parse().unwrap(), verifier);
        let prover = Box::new(Answerer(2, "answer"));
        let mut client = Connection::client(NOW, config, osd_addr(), EntityType::Osd, prover);
        loop {
            let to_server = written(&mut client);
            if to_server.is_empty() {
                return None;
            }
            if let Err(fault) = receive(&mut server, to_server) {
                return Some(fault.to_string());
            }
            receive(&mut client, written(&mut server)).unwrap();
        }
    };
    let name = |kind, id: &str| AuthName::new(kind, id);
    assert_eq!(fault(osd(7), name(EntityType::Osd, "7")), None);
    let said = fault(osd(7), name(EntityType::Osd, "8")).unwrap();
    assert_eq!(said, "the peer says it is number 7, with the key of osd.8");
    let said = fault(osd(7), name(EntityType::Client, "7")).unwrap();
    assert_eq!(said, "the peer says it is of kind osd, with the key of client.7");
    // A client may have a daemon's key, and is a client still.
    assert_eq!(fault(client_config(), name(EntityType::Osd, "8")), None);
}

#[test]
fn refused_client_gets_the_allowed_methods() {
    for (prover, errno) in [(Answerer(METHOD_NONE, ""), 95), (Answerer(2, "lie"), 13)] {
        let method = prover.0;
        let (mut client, mut server) = asked(prover);
        let fault = loop {
            receive(&mut server, written(&mut client)).unwrap();
            if let Err(fault) = receive(&mut client, written(&mut server)) {
                break fault;
            }
        };
        assert_eq!(fault, FaultReason::AuthRefused { method, errno, allowed: vec![2] });
    }
}

#[test]
fn segments_up_to_the_limit_pass() {
    let limits = Limits { front: 5, middle: 0, data: 10, ..Limits::default() };
    let (mut client, mut server) =
        (new_client(client_config()), new_server(Config { limits, ..osd_config() }));
    exchange(&mut client, &mut server);
    client.send(message(1, b"12345", b"0123456789"));
    assert_eq!(receive(&mut server, written(&mut client)).unwrap().len(), 1);
    client.send(message(1, b"123456", b""));
    assert_eq!(
        receive(&mut server, written(&mut client)).unwrap_err().to_string(),
        "MESSAGE: segment 1 is 6 bytes, limit 5"
    );
}
