//! Connections: arbitrary bytes of a peer, cut at arbitrary places.

use super::codecs::envelope;
use crate::samples::{Sender, mon_stream, osd_stream};
use bytes::Bytes;
use nacre_auth::{GlobalIds, NoneProver, NoneVerifier};
use nacre_base::{Rng, Time};
use nacre_msgr::{Config, Connection, Event, Limits};
use nacre_proto::types::{AddrKind, AddrVec, AuthName, EntityAddr, EntityType};
use nacre_wire::crc32c;

pub(super) const NOW: Time = Time { nanos: 1_000_000_000 };
/// Small limits, so that memory allocated for announced but unsent segments shows.
const LIMITS: Limits = Limits { control: 8 << 10, front: 64 << 10, middle: 64 << 10, data: 64 << 10 };
/// The length of a banner with the usual payload.
const BANNER_LEN: usize = 26;
const PREAMBLE_LEN: usize = 32;
const EPILOGUE_LEN: usize = 13;

fn inputs(sender: Sender) -> Vec<Vec<u8>> {
    let streams = [osd_stream(sender), mon_stream(sender)];
    // The first byte selects the server: 0 an OSD, 1 a monitor.
    (0..).zip(streams).map(|(to, stream)| [vec![to], stream].concat()).collect()
}

pub fn server_seeds() -> Vec<Vec<u8>> {
    inputs(Sender::Client)
}
pub fn client_seeds() -> Vec<Vec<u8>> {
    inputs(Sender::Server)
}

/// The servers of the recordings. A client checks the address that it dialled.
fn daemon(to: u8) -> (EntityType, EntityAddr) {
    let addr = |port, nonce| EntityAddr::msgr2(([127, 0, 0, 1], port).into(), nonce);
    if to & 1 == 0 { (EntityType::Osd, addr(47104, 9480)) } else { (EntityType::Mon, addr(47000, 0)) }
}

pub fn server(input: &[u8]) {
    let Some((&to, stream)) = input.split_first() else { return };
    feed(new_server(to), sealed(stream));
}

pub fn client(input: &[u8]) {
    let Some((&to, stream)) = input.split_first() else { return };
    feed(new_client(to), sealed(stream));
}

pub(super) fn new_server(to: u8) -> Connection {
    let (kind, addr) = daemon(to);
    let config = Config { limits: LIMITS, ..Config::new(kind, 0, AddrVec::one(addr)) };
    let mut next = 4000;
    let assign = move || {
        next += 1;
        Some(next)
    };
    let global_ids =
        if kind == EntityType::Mon { GlobalIds::Assign(Box::new(assign)) } else { GlobalIds::Brought };
    let verifier = Box::new(NoneVerifier { global_ids });
    Connection::server(NOW, config, ([127, 0, 0, 1], 50_000).into(), verifier)
}

pub(super) fn new_client(to: u8) -> Connection {
    let (kind, target) = daemon(to);
    let anywhere = EntityAddr { kind: AddrKind::Any, nonce: 9, sock: None };
    let config = Config { limits: LIMITS, ..Config::new(EntityType::Client, 4157, AddrVec::one(anywhere)) };
    let name = AuthName::new(EntityType::Client, "admin");
    let prover = Box::new(NoneProver { name, global_id: 4157 });
    Connection::client(NOW, config, target, kind, prover)
}

/// Passes the peer's bytes to the connection, in pieces that the content determines.
pub(super) fn feed(mut connection: Connection, bytes: Vec<u8>) {
    let mut rng = Rng::new(crc32c(0, &bytes).into());
    let mut left = Bytes::from(bytes);
    let most = [1, 7, 60, 500, 70_000][rng.below(5) as usize];
    let mut events = Vec::new();
    let mut received = 0;
    while !left.is_empty() {
        let chunk = left.split_to((1 + rng.below(most) as usize).min(left.len()));
        received += chunk.len();
        if let Some(wanted) = connection.wanted().filter(|_| rng.chance(500)) {
            let direct = chunk.len().min(wanted.len());
            wanted[..direct].copy_from_slice(&chunk[..direct]);
            let filled = connection.filled(NOW, direct, &mut events);
            if filled.and_then(|()| connection.receive(NOW, chunk.slice(direct..), &mut events)).is_err() {
                break;
            }
        } else if connection.receive(NOW, chunk, &mut events).is_err() {
            break;
        }
        // An unauthenticated peer gets at most about as many bytes as it sent.
        assert!(connection.queued_bytes() <= 4096 + 4 * received, "{received} bytes were answered at length");
    }
    for event in events {
        if let Event::Message(raw) = event {
            envelope(raw);
        }
    }
    let line = connection.peer_closed().to_string();
    assert!(!line.is_empty() && line.len() < 1000 && !line.contains('\n'), "not one clear line: {line:?}");
}

/// Corrects the checksums of all frames, as far as frame boundaries can be found.
fn sealed(stream: &[u8]) -> Vec<u8> {
    let mut bytes = stream.to_vec();
    let mut at = BANNER_LEN;
    while let Some(next) = seal_frame(bytes.get_mut(at..).unwrap_or_default()) {
        at += next;
    }
    bytes
}

/// The length of the frame; None if it is incomplete.
fn seal_frame(frame: &mut [u8]) -> Option<usize> {
    let preamble = frame.get_mut(..PREAMBLE_LEN)?;
    let crc = crc32c(0, &preamble[..PREAMBLE_LEN - 4]);
    preamble[PREAMBLE_LEN - 4..].copy_from_slice(&crc.to_le_bytes());
    let count = usize::from(preamble[1]).min(4);
    let len = |at: usize| u32::from_le_bytes(preamble[at..at + 4].try_into().expect("four bytes")) as usize;
    let lens = [len(2), len(8), len(14), len(20)];

    let mut at = PREAMBLE_LEN;
    let head = frame.get(at..at + lens[0])?;
    let crc = crc32c(u32::MAX, head);
    at += lens[0];
    if lens[0] > 0 {
        frame.get_mut(at..at + 4)?.copy_from_slice(&crc.to_le_bytes());
        at += 4;
    }
    if count > 1 {
        let mut crcs = [0_u32; 3];
        for (crc, len) in crcs.iter_mut().zip(&lens[1..count]) {
            *crc = crc32c(u32::MAX, frame.get(at..at + len)?);
            at += len;
        }
        let epilogue = frame.get_mut(at..at + EPILOGUE_LEN)?;
        for (place, crc) in epilogue[1..].chunks_exact_mut(4).zip(crcs) {
            place.copy_from_slice(&crc.to_le_bytes());
        }
        at += EPILOGUE_LEN;
    }
    Some(at)
}
