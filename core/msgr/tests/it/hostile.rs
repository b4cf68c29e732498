//! Scanners, liars, broken networks: each ends in one clear line.

use super::*;
use nacre_base::Rng;
use nacre_wire::{Encode, crc32c, to_vec};

/// The preamble of a frame with segments of these lengths.
pub fn announcing(tag: u8, lens: &[u32]) -> Vec<u8> {
    let mut out = vec![tag, lens.len() as u8];
    for slot in 0..4 {
        lens.get(slot).copied().unwrap_or(0).encode(&mut out);
        8_u16.encode(&mut out);
    }
    out.extend([0, 0]);
    sealed(out)
}

/// `preamble` without its last four bytes, and the right crc behind it.
fn sealed(mut preamble: Vec<u8>) -> Vec<u8> {
    preamble.truncate(28);
    crc32c(0, &preamble).encode(&mut preamble);
    preamble
}

fn control(tag: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = announcing(tag, &[payload.len() as u32]);
    out.extend_from_slice(payload);
    crc32c(u32::MAX, payload).encode(&mut out);
    out
}

fn line(result: Result<Vec<Event>, FaultReason>) -> String {
    result.expect_err("the peer should have been refused").to_string()
}

/// A server to which `client` spoke `turns` times: 1 ends its banner and HELLO, 2 its AUTH_REQUEST.
fn server_after(client: &mut Connection, turns: usize) -> Connection {
    let mut server = new_server(osd_config());
    for _ in 0..turns {
        receive(&mut server, written(client)).unwrap();
        receive(client, written(&mut server)).unwrap();
    }
    server
}

/// A server that waits for CLIENT_IDENT, and the frame it waits for.
fn server_before_ident() -> (Connection, Bytes) {
    let mut client = new_client(client_config());
    let mut server = server_after(&mut client, 2);
    let mut signature = written(&mut client);
    let ident = signature.split_off(32 + 32 + 4);
    receive(&mut server, signature).unwrap();
    (server, ident)
}

/// A client that waits for SERVER_IDENT, and the frame it waits for.
fn client_before_ident(target: EntityAddr) -> (Connection, Bytes) {
    let mut client = Connection::client(NOW, client_config(), target, EntityType::Osd, admin(CLIENT_ID));
    let mut server = new_server(Config { addrs: AddrVec::one(target), ..osd_config() });
    for _ in 0..2 {
        receive(&mut server, written(&mut client)).unwrap();
        receive(&mut client, written(&mut server)).unwrap();
    }
    receive(&mut server, written(&mut client)).unwrap();
    (client, written(&mut server))
}

#[test]
fn what_is_not_a_msgr2_peer_is_named_in_one_line() {
    let banner = |len: u16, supported: u64, required: u64| {
        let mut out = b"ceph v2\n".to_vec();
        len.encode(&mut out);
        supported.encode(&mut out);
        required.encode(&mut out);
        out
    };
    let cases: [(Vec<u8>, &str); 9] = [
        (b"GET / HTTP/1.1\r\nHost: x".to_vec(), r#"not a Ceph peer: it began with "GET / HTTP/1.1\r\n""#),
        (b"\x16\x03\x01".to_vec(), r#"not a Ceph peer: it began with "\x16\x03\x01""#),
        (b"\n".to_vec(), r#"not a Ceph peer: it began with "\n""#),
        (b"ceph v027\0\0\0".to_vec(), "the peer speaks messenger v1, here is only v2"),
        (b"ceph v027".to_vec(), "the peer speaks messenger v1, here is only v2"),
        (banner(8, 1, 0), "the banner announces 8 bytes, 16 to 256 are sensible"),
        (banner(60_000, 1, 0), "the banner announces 60000 bytes, 16 to 256 are sensible"),
        (banner(16, 0, 0), "the peer knows messenger features 0x0 and requires 0x0, here is 0x1"),
        (banner(16, 3, 2), "the peer knows messenger features 0x3 and requires 0x2, here is 0x1"),
    ];
    for (bytes, expected) in cases {
        assert_eq!(line(receive(&mut new_server(osd_config()), bytes.clone())), expected);
        // Just the same if the bytes drip in: what matters is seen at the first that is wrong.
        let mut server = new_server(osd_config());
        let dripped = bytes.iter().find_map(|&byte| receive(&mut server, vec![byte]).err());
        let (name, _) = expected.split_once(" it began").unwrap_or((expected, ""));
        assert!(dripped.unwrap().to_string().starts_with(name), "{expected}");
    }
}

#[test]
fn a_newer_banner_with_more_in_it_is_welcome() {
    let mut server = new_server(osd_config());
    let mut bytes = b"ceph v2\n\x18\0".to_vec();
    bytes.extend([3, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9, 9, 9, 9, 9, 9, 9, 9]);
    assert_eq!(receive(&mut server, bytes), Ok(vec![]));
    assert_eq!(
        receive(&mut server, control(1, &[8, 1, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])),
        Ok(vec![])
    );
}

#[test]
fn frames_that_contradict_themselves_are_refused_with_the_numbers() {
    let mut flagged = announcing(18, &[8]);
    flagged[26] = 1;
    let mut counted = announcing(18, &[8]);
    counted[1] = 5;
    let mut uncounted = announcing(18, &[8]);
    uncounted[1] = 0;
    let mut broken = announcing(18, &[8]);
    broken[9] ^= 1;
    let cases = [
        (sealed(flagged), "KEEPALIVE2 with flags 0x01, which were not negotiated"),
        (sealed(counted), "KEEPALIVE2 with 5 segments"),
        (sealed(uncounted), "KEEPALIVE2 with 0 segments"),
        (announcing(18, &[8, 8]), "KEEPALIVE2 with 2 segments"),
        (announcing(99, &[8]), "unknown frame tag 99"),
        (announcing(0, &[8]), "unknown frame tag 0"),
        (announcing(21, &[8]), "unknown frame tag 21"),
        (announcing(17, &[41, 0]), "MESSAGE ends in an empty segment"),
        (announcing(17, &[40, 8]), "MESSAGE: 41 bytes needed, 40 left"),
        (announcing(17, &[42, 8]), "MESSAGE: segment 0 is 42 bytes, limit 41"),
        (control(18, &[0; 7]), "KEEPALIVE2: 4 bytes needed, 3 left"),
        (announcing(18, &[0]), "KEEPALIVE2: 4 bytes needed, 0 left"),
        (announcing(1, &[36]), "HELLO does not belong into the message phase"),
        (announcing(16, &[0]), "WAIT does not belong into the message phase"),
        (broken, "a frame's preamble has crc 0x19b53ef0, it announces 0xa08e7217"),
    ];
    for (bytes, expected) in cases {
        let (_, mut server) = pair();
        assert_eq!(line(receive(&mut server, bytes)), expected);
    }
}

#[test]
fn frames_out_of_turn_are_refused_by_both_sides() {
    let tags = 1..=20;
    // What each side of each phase waits for.
    let server_phases: [&[u8]; 3] = [&[1], &[2, 5], &[7]];
    for (steps, expected) in server_phases.into_iter().enumerate() {
        for tag in tags.clone().filter(|tag| !expected.contains(tag)) {
            let mut client = new_client(client_config());
            let mut server = server_after(&mut client, steps);
            if steps == 0 {
                receive(&mut server, written(&mut client).slice(..26)).unwrap();
            }
            let refused = receive(&mut server, announcing(tag, &[8]));
            assert!(matches!(refused, Err(FaultReason::UnexpectedTag { .. })), "{steps} {tag}: {refused:?}");
        }
    }
    for tag in tags.clone().filter(|tag| ![8, 11].contains(tag)) {
        let (mut server, _) = server_before_ident();
        let refused = receive(&mut server, announcing(tag, &[8]));
        assert!(matches!(refused, Err(FaultReason::UnexpectedTag { .. })), "{tag}: {refused:?}");
    }
    for tag in tags.clone().filter(|tag| ![9, 10].contains(tag)) {
        let (mut client, _) = client_before_ident(osd_addr());
        let refused = receive(&mut client, announcing(tag, &[8]));
        assert!(matches!(refused, Err(FaultReason::UnexpectedTag { .. })), "{tag}: {refused:?}");
    }
    for tag in tags.filter(|&tag| tag != 1) {
        let mut client = new_client(client_config());
        receive(&mut client, written(&mut new_server(osd_config())).slice(..26)).unwrap();
        let refused = receive(&mut client, announcing(tag, &[8]));
        assert!(matches!(refused, Err(FaultReason::UnexpectedTag { .. })), "{tag}: {refused:?}");
    }
    // An answer to a request that was never sent.
    let mut server = server_after(&mut new_client(client_config()), 1);
    let unasked = receive(&mut server, control(5, &to_vec(&vec![1_u8])));
    assert_eq!(line(unasked), "AUTH_REQUEST_MORE does not belong into the authentication phase");
}

/// Everything that a client sends: the handshake and two messages, with data and without.
fn client_stream() -> (Bytes, Vec<Event>) {
    let (mut client, mut server) = (new_client(client_config()), new_server(osd_config()));
    client.send(message(1, b"a message", b"with data"));
    client.send(message(2, b"and one without", b""));
    let (mut stream, mut events) = (Vec::new(), Vec::new());
    while client.queued_bytes() > 0 {
        let bytes = written(&mut client);
        stream.extend_from_slice(&bytes);
        events.extend(receive(&mut server, bytes).unwrap());
        receive(&mut client, written(&mut server)).unwrap();
    }
    assert_eq!(events.len(), 3);
    (stream.into(), events)
}

#[test]
fn a_truncated_stream_waits_for_the_rest_and_says_where_it_broke_off() {
    let (stream, events) = client_stream();
    for cut in 0..stream.len() {
        let mut server = new_server(osd_config());
        let got = receive(&mut server, stream.slice(..cut)).unwrap();
        assert_eq!(got, events[..got.len()]);
        assert!(got.len() < events.len());
        assert!(server.peer_closed().to_string().starts_with("the peer closed the connection in the "));
    }
    let mut server = new_server(osd_config());
    receive(&mut server, stream.slice(..stream.len() - 1)).unwrap();
    let inside = "the peer closed the connection in the message phase, inside a frame";
    assert_eq!(server.peer_closed().to_string(), inside);
    receive(&mut server, stream.slice(stream.len() - 1..)).unwrap();
    assert_eq!(server.peer_closed().to_string(), "the peer closed the connection in the message phase");
}

#[test]
fn a_corrupted_byte_never_turns_into_a_message() {
    let (stream, events) = client_stream();
    let mut refused = 0;
    for at in 0..stream.len() {
        for flip in [0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0x0f, 0xff] {
            let mut bytes = stream.to_vec();
            bytes[at] ^= flip;
            let mut server = new_server(osd_config());
            let mut got = Vec::new();
            let result = server.receive(NOW, bytes.into(), &mut got);
            refused += usize::from(result.is_err());
            assert!(got.iter().all(|event| events.contains(event)), "byte {at} ^ {flip:#x}: {got:?}");
        }
    }
    // What may pass: masks of the banner, lengths that make us wait, half a byte of an epilogue's status.
    assert!(refused > stream.len() * 10 * 9 / 10, "{refused} of {}", stream.len() * 10);
}

#[test]
fn random_bytes_after_any_part_of_a_stream_do_no_harm() {
    let (stream, events) = client_stream();
    for seed in 0..2000 {
        let mut rng = Rng::new(seed);
        let mut bytes = stream.slice(..rng.below(stream.len() as u64) as usize).to_vec();
        bytes.extend((0..rng.below(300)).map(|_| rng.next_u64() as u8));
        let mut server = new_server(osd_config());
        let mut got = Vec::new();
        for chunk in bytes.chunks(1 + rng.below(200) as usize) {
            if server.receive(NOW, chunk.to_vec().into(), &mut got).is_err() {
                break;
            }
        }
        assert!(got.len() <= events.len() && got == events[..got.len()], "seed {seed}: {got:?}");
    }
}

fn with_header_seq(bytes: &Bytes, seq: u64) -> Bytes {
    let mut bytes = bytes.to_vec();
    bytes[32..40].copy_from_slice(&seq.to_le_bytes());
    let crc = crc32c(u32::MAX, &bytes[32..73]);
    bytes[73..77].copy_from_slice(&crc.to_le_bytes());
    bytes.into()
}

#[test]
fn a_message_that_is_missing_or_comes_twice_ends_the_connection() {
    let (mut client, mut server) = pair();
    client.send(message(1, b"front", b"data"));
    let bytes = written(&mut client);
    receive(&mut server, bytes.clone()).unwrap();
    assert_eq!(line(receive(&mut server, bytes.clone())), "message 1 arrived where 2 was due");

    let (_, mut server) = pair();
    let skipped = with_header_seq(&bytes, 2);
    assert_eq!(line(receive(&mut server, skipped)), "message 2 arrived where 1 was due");
}

#[test]
fn aborted_message_is_dropped_and_its_number_used() {
    let (mut client, mut server) = pair();
    client.send(message(1, b"front", b"data"));
    let mut aborted = written(&mut client).to_vec();
    let status = aborted.len() - 13;
    aborted[status] = 1;
    assert_eq!(receive(&mut server, aborted.clone()), Ok(vec![]));
    client.send(message(2, b"front", b"data"));
    let next = receive(&mut server, written(&mut client)).unwrap();
    assert_eq!(next, [Event::Message(message(2, b"front", b"data"))]);

    aborted[status] = 7;
    let (_, mut server) = pair();
    let neither = "MESSAGE ends with status 0x07, neither complete nor aborted";
    assert_eq!(line(receive(&mut server, aborted)), neither);
}

#[test]
fn unknown_session_is_reset_and_restarts() {
    let (mut server, ident) = server_before_ident();
    // Addresses, both cookies, three sequence numbers: which session it was does not matter.
    assert_eq!(receive(&mut server, control(11, &[0; 45])), Ok(vec![]));
    let reset = written(&mut server);
    assert_eq!((reset[0], reset[32]), (12, 1));
    ready(&receive(&mut server, ident).unwrap());
}

#[test]
fn a_wrong_signature_or_mode_ends_the_handshake() {
    let mut client = new_client(client_config());
    let mut server = server_after(&mut client, 2);
    assert_eq!(line(receive(&mut server, control(7, &[1; 32]))), "the peer's signature is wrong");

    let mut client = new_client(client_config());
    server_after(&mut client, 1);
    let done = control(6, &to_vec(&(9_u64, (2_u32, Vec::<u8>::new()))));
    assert_eq!(line(receive(&mut client, done)), "the peer chose connection mode 2, which was not offered");

    let mut client = new_client(client_config());
    server_after(&mut client, 1);
    let question = control(4, &to_vec(&vec![1_u8]));
    let asked = "authentication needs no answer here, the peer asked for one";
    assert_eq!(line(receive(&mut client, question)), asked);
}

#[test]
fn peer_that_is_not_the_dialled_one_is_detected() {
    let elsewhere = |nonce| EntityAddr::msgr2("127.0.0.1:6800".parse().unwrap(), nonce);
    // The daemon was restarted, and the client has an old map.
    let mut client = new_client(client_config());
    let mut server = new_server(Config { addrs: AddrVec::one(elsewhere(78)), ..osd_config() });
    let fault = meet(&mut client, &mut server).unwrap_err();
    assert_eq!(fault.to_string(), "the peer wants v2:127.0.0.1:6800/77, here is v2:127.0.0.1:6800/78");

    // The same seen by the client, if the daemon does not mind.
    let (mut client, _) = client_before_ident(elsewhere(77));
    let (_, ident) = client_before_ident(elsewhere(78));
    let expected = "dialled v2:127.0.0.1:6800/77, but there is v2:127.0.0.1:6800/78";
    assert_eq!(line(receive(&mut client, ident)), expected);

    // A client that does not say where it is.
    let mut client = new_client(Config { addrs: AddrVec::default(), ..client_config() });
    let fault = meet(&mut client, &mut new_server(osd_config())).unwrap_err();
    assert_eq!(fault, FaultReason::NoAddress);

    // A monitor listens where an OSD was expected.
    let mut server = new_server(Config { kind: EntityType::Mon, ..osd_config() });
    let fault = meet(&mut new_client(client_config()), &mut server).unwrap_err();
    assert_eq!(fault.to_string(), "the peer is of kind mon, osd was expected");
}

/// Lets two ends talk until one has had enough.
fn meet(client: &mut Connection, server: &mut Connection) -> Result<(), FaultReason> {
    while client.queued_bytes() + server.queued_bytes() > 0 {
        let refused = receive(server, written(client)).err();
        receive(client, written(server))?;
        refused.map_or(Ok(()), Err)?;
    }
    Ok(())
}

#[test]
fn missing_features_are_named_to_both_ends() {
    let old = 0x0800_0000_0000_1000;
    let mut client = new_client(Config { features_supported: old, ..client_config() });
    let mut server = new_server(osd_config());
    let fault = meet(&mut client, &mut server).unwrap_err();
    assert_eq!(fault, FaultReason::WeLackFeatures(0x0401_0200_4204_0000)); // the client's view
    assert_eq!(server.peer_closed(), FaultReason::PeerLacksFeatures(0x0401_0200_4204_0000));

    let mut client = new_client(Config { features_required: 1 << 62, ..client_config() });
    let fault = meet(&mut client, &mut new_server(osd_config())).unwrap_err();
    assert_eq!(fault, FaultReason::PeerLacksFeatures(1 << 62));
}

#[test]
fn a_dead_connection_stays_dead_and_swallows_messages() {
    let (_, mut server) = pair();
    let fault = receive(&mut server, announcing(99, &[1])).unwrap_err();
    server.send(message(1, b"front", b"data"));
    assert_eq!((server.queued_bytes(), server.is_established()), (0, false));
    assert_eq!(receive(&mut server, vec![1]), Err(fault.clone()));
    assert_eq!(server.peer_closed(), fault);
}

#[test]
fn a_client_that_never_stops_trying_is_sent_away() {
    let mut server = server_after(&mut new_client(client_config()), 1);
    let unknown = control(2, &to_vec(&(7_u32, (vec![1_u32], Vec::<u8>::new()))));
    let sent = (1..100).find(|_| receive(&mut server, unknown.clone()).is_err());
    assert_eq!(sent, Some(16));
    assert_eq!(server.peer_closed().to_string(), "still not authenticated after 16 attempts");
}
