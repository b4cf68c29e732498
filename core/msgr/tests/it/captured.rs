//! Byte streams between real Ceph daemons and clients, with our machine in the place of either.

use super::*;
use nacre_wire::crc32c;

const MON: &str = include_str!("../../../../check/corpus/data/msgr_authnone_mon.txt");
const OSD: &str = include_str!("../../../../check/corpus/data/msgr_authnone_osd.txt");

/// The frames that one side ("C" or "S") sent; the first is the banner.
fn frames(capture: &str, side: &str) -> Vec<Bytes> {
    let lines = capture.lines().filter(|line| line.starts_with(side));
    lines.map(|line| unhex(line.split_once('\t').expect("label, tab, hex").1)).collect()
}

fn unhex(hex: &str) -> Bytes {
    let digits = hex.trim().as_bytes().chunks(2);
    digits.map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()).collect()
}

fn u64_at(frame: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(frame[at..at + 8].try_into().unwrap())
}

fn is_message(frame: &[u8]) -> bool {
    frame[0] == 17
}
fn seq(frame: &[u8]) -> u64 {
    u64_at(frame, 32)
}
fn acked(frame: &[u8]) -> u64 {
    u64_at(frame, 32 + 28)
}

fn with_seq(frame: &[u8], seq: u64) -> Bytes {
    let mut frame = frame.to_vec();
    frame[32..40].copy_from_slice(&seq.to_le_bytes());
    let crc = crc32c(u32::MAX, &frame[32..73]);
    frame[73..77].copy_from_slice(&crc.to_le_bytes());
    frame.into()
}

/// The message in a captured frame, read independently of the machine under test.
fn parsed(frame: &Bytes) -> RawMessage {
    let len = |i: usize| u32::from_le_bytes(frame[2 + 6 * i..][..4].try_into().unwrap()) as usize;
    let u16_at = |at: usize| u16::from_le_bytes([frame[at], frame[at + 1]]);
    let mut at = 77;
    let [front, middle, data] = [1, 2, 3].map(|i| {
        at += len(i);
        frame.slice(at - len(i)..at)
    });
    RawMessage {
        kind: u16_at(48),
        priority: u16_at(50),
        version: u16_at(52),
        tid: u64_at(frame, 40),
        compat: u16_at(32 + 37),
        front,
        middle,
        data,
    }
}

/// Plays `ours` with our machine against the captured bytes of `theirs`: it must write what was captured.
fn replay(mut machine: Connection, ours: &[Bytes], theirs: &[Bytes]) -> Vec<Event> {
    let mut events = Vec::new();
    let (our_messages, our_handshake): (Vec<&Bytes>, Vec<&Bytes>) =
        ours.iter().partition(|frame| is_message(frame));
    let (their_messages, their_handshake): (Vec<&Bytes>, Vec<&Bytes>) =
        theirs.iter().partition(|frame| is_message(frame));

    let mut wrote = Vec::new();
    for frame in their_handshake {
        events.extend(receive(&mut machine, frame.clone()).unwrap());
        wrote.extend(written(&mut machine));
    }
    assert!(machine.is_established());
    let handshake: Vec<u8> = our_handshake.into_iter().flatten().copied().collect();
    // We require frames of revision 2.1, Ceph only supports them: the second mask of the banner.
    assert_eq!((&wrote[..18], &wrote[26..]), (&handshake[..18], &handshake[26..]));

    // The captures leave some messages out: both directions get something in their place.
    let (mut received, mut sent) = (0, 0);
    let mut their_messages = their_messages.into_iter().peekable();
    let mut feed_until = |machine: &mut Connection, last: u64| {
        let mut events = Vec::new();
        while received < last {
            received += 1;
            let frame = match their_messages.next_if(|frame| seq(frame) == received) {
                Some(frame) => frame.clone(),
                None => with_seq(their_messages.peek().unwrap(), received),
            };
            assert_eq!(receive(machine, frame.clone()).unwrap(), [Event::Message(parsed(&frame))]);
            events.push(Event::Message(parsed(&frame)));
        }
        events
    };
    for frame in our_messages {
        events.extend(feed_until(&mut machine, acked(frame)));
        while sent + 1 < seq(frame) {
            machine.send(message(0, b"left out", b""));
            written(&mut machine);
            sent += 1;
        }
        machine.send(parsed(frame));
        assert_eq!(written(&mut machine), frame);
        sent += 1;
    }
    let last = theirs.iter().rfind(|frame| is_message(frame)).map_or(0, |frame| seq(frame));
    events.extend(feed_until(&mut machine, last));
    events
}

fn v2(sock: &str, nonce: u32) -> EntityAddr {
    EntityAddr::msgr2(sock.parse().unwrap(), nonce)
}

fn captured_mon() -> Config {
    let addrs = AddrVec::one(v2("127.0.0.1:47000", 0));
    Config { global_seq: 0x3f, ..Config::new(EntityType::Mon, 0, addrs) }
}
fn captured_osd() -> Config {
    let addrs = AddrVec::one(v2("127.0.0.1:47104", 9480));
    Config { global_seq: 6, ..Config::new(EntityType::Osd, 1, addrs) }
}
fn captured_client(num: i64, global_seq: u64) -> Config {
    let addrs = AddrVec::one(EntityAddr { kind: AddrKind::Any, nonce: 0xf124_75c1, sock: None });
    Config { global_seq, ..Config::new(EntityType::Client, num, addrs) }
}

#[test]
fn our_osd_answers_a_real_client_with_the_bytes_of_a_real_osd() {
    let machine = Connection::server(NOW, captured_osd(), "127.0.0.1:33650".parse().unwrap(), brought());
    let events = replay(machine, &frames(OSD, "S"), &frames(OSD, "C"));

    let ident = ready(&events[..1]);
    assert_eq!(ident.name.to_string(), "client.4157");
    assert_eq!(ident.auth_name, Some(AuthName::new(EntityType::Client, "admin")));
    assert_eq!(ident.addrs.0[0].kind, AddrKind::Any);
    assert_eq!(ident.sees_us_at, v2("127.0.0.1:47104", 9480));
    assert!(matches!(&events[1], Event::Message(m) if m.kind == 42 && m.data == b"hello\n"[..]));
    assert_eq!(events.len(), 2);
}

#[test]
fn our_client_talks_to_a_real_osd_with_the_bytes_of_a_real_client() {
    let target = v2("127.0.0.1:47104", 9480);
    let config = captured_client(CLIENT_ID as i64, 3);
    let machine = Connection::client(NOW, config, target, EntityType::Osd, admin(CLIENT_ID));
    let events = replay(machine, &frames(OSD, "C"), &frames(OSD, "S"));

    let ident = ready(&events[..1]);
    assert_eq!(ident.name.to_string(), "osd.1");
    assert_eq!((ident.global_seq, ident.lossy, ident.features), (6, true, nacre_msgr::FEATURES_SUPPORTED));
    assert_eq!(events.len(), 2);
}

#[test]
fn our_monitor_answers_a_real_client_with_the_bytes_of_a_real_monitor() {
    let ids = GlobalIds::Assign(Box::new(|| Some(CLIENT_ID)));
    let verifier = Box::new(NoneVerifier { global_ids: ids });
    let machine = Connection::server(NOW, captured_mon(), "127.0.0.1:46600".parse().unwrap(), verifier);
    let events = replay(machine, &frames(MON, "S"), &frames(MON, "C"));
    assert_eq!(ready(&events[..1]).name, nacre_proto::types::EntityName::client(CLIENT_ID));
    assert_eq!(events.len(), 5);
}

#[test]
fn our_client_talks_to_a_real_monitor_with_the_bytes_of_a_real_client() {
    let target = v2("127.0.0.1:47000", 0);
    let machine = Connection::client(NOW, captured_client(-1, 1), target, EntityType::Mon, admin(0));
    let events = replay(machine, &frames(MON, "C"), &frames(MON, "S"));
    let ident = ready(&events[..1]);
    assert_eq!((ident.name.to_string().as_str(), ident.global_id), ("mon.0", CLIENT_ID));
}
