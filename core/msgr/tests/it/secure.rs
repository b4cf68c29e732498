//! Connections whose frames are encrypted.

use super::*;
use nacre_base::Now;
use nacre_msgr::testing::{End, go_secure, keys};

const SECRET: [u8; 64] = *b"sixty-four bytes that both ends were given while they met, once.";

/// The first piece of the first frame that a client in secure mode sends, with that preamble.
pub fn block(preamble: &[u8]) -> Vec<u8> {
    let mut block = preamble.to_vec();
    block.resize(32 + 48 + 16, 0);
    keys(&SECRET, End::Client).unwrap().0.seal(&mut block);
    block
}

/// A client and an OSD that finished their handshake and went over to secure mode.
pub fn pair() -> (Connection, Connection) {
    let (mut client, mut server) = super::pair();
    go_secure(&mut client, &SECRET).unwrap();
    go_secure(&mut server, &SECRET).unwrap();
    (client, server)
}

#[test]
fn secure_connection_carries_messages_both_ways_encrypted() {
    let (mut client, mut server) = pair();
    let text: &[u8] = b"no one is to know";
    let large = text.repeat(10_000);
    for tid in 0..5 {
        let data = Bytes::copy_from_slice(&large[..large.len() >> (4 * tid)]);
        let request = RawMessage { data, ..message(tid, text, b"") };
        client.send(request.clone());
        client.keepalive(Now { mono: NOW, ..Now::default() });
        let to_server = written(&mut client);
        assert!(!to_server.windows(text.len()).any(|part| part == text));
        assert_eq!(receive(&mut server, to_server), Ok(vec![Event::Message(request.clone())]));
        server.send(request.clone());
        let events = receive(&mut client, written(&mut server)).unwrap();
        assert!(matches!(&events[..], [Event::KeepaliveAck { .. }, Event::Message(got)] if *got == request));
    }
}

#[test]
fn tampered_frame_ends_the_connection_with_one_log_line() {
    let (mut client, mut server) = pair();
    client.send(message(1, b"front", b"data"));
    let mut sent = written(&mut client).to_vec();
    sent[100] ^= 1;
    assert_eq!(receive(&mut server, sent).unwrap_err().to_string(), "MESSAGE does not authenticate");
    let (_, mut server) = pair();
    let refused = receive(&mut server, vec![0; 96]).unwrap_err();
    assert_eq!(refused.to_string(), "a frame's preamble does not authenticate");
}

#[test]
fn an_end_without_the_secret_is_not_understood() {
    let (mut client, mut server) = super::pair();
    go_secure(&mut client, &SECRET).unwrap();
    go_secure(&mut server, &[7; 64]).unwrap();
    client.send(message(1, b"front", b"data"));
    assert_eq!(receive(&mut server, written(&mut client)), Err(FaultReason::PreambleSeal));
    let refused = go_secure(&mut super::pair().0, &SECRET[..39]);
    assert_eq!(refused, Err(FaultReason::ConnectionSecret { len: 39, needed: 40 }));
}
