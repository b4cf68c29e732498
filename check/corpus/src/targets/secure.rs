//! Connections in secure mode: frames of a peer that has the secret, and of one that does not.

use super::stream::{NOW, feed, new_client, new_server};
use crate::samples::{Sender, secure_streams};
use nacre_msgr::Connection;
use nacre_msgr::testing::{End, go_secure, keys};
use nacre_wire::crc32c;

const SECRET: [u8; 64] = [7; 64];
const TAG_LEN: usize = 16;
const PREAMBLE_LEN: usize = 32;
/// The preamble block, and the part of the first segment in it.
const BLOCK_LEN: usize = 80;
/// AUTH_SIGNATURE and an identity frame: inputs start behind them.
const FRAMES_BEFORE: usize = 2;
/// A frame that lacks no more than this is padded; otherwise every longer segment would be incomplete.
const LACKING_MAX: usize = 1 << 10;

/// The first byte of an input: which end reads (an OSD, or its client),
const TO_CLIENT: u8 = 1;
/// and whether the rest is ciphertext rather than plaintext to be encrypted.
const RAW: u8 = 2;

pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (sender, reader, to) in [(Sender::Client, End::Server, 0), (Sender::Server, End::Client, TO_CLIENT)] {
        for (stream, secret) in secure_streams(sender) {
            let frames = opened(&stream, &secret, reader);
            let plain = frames[FRAMES_BEFORE..].concat();
            seeds.push([vec![to | RAW], sealed(&plain, reader)].concat());
            seeds.push([vec![to], plain].concat());
        }
    }
    seeds
}

pub fn run(input: &[u8]) {
    let Some((&how, rest)) = input.split_first() else { return };
    let (mut client, mut server) = (new_client(0), new_server(0));
    while client.queued_bytes() + server.queued_bytes() > 0 {
        carry(&mut client, &mut server);
        carry(&mut server, &mut client);
    }
    let (mut connection, end) =
        if how & TO_CLIENT == 0 { (server, End::Server) } else { (client, End::Client) };
    go_secure(&mut connection, &SECRET).expect("the secret is long enough");
    feed(connection, if how & RAW == 0 { sealed(rest, end) } else { rest.to_vec() });
}

fn carry(from: &mut Connection, to: &mut Connection) {
    let bytes: Vec<u8> = from.transmit().flatten().collect();
    to.receive(NOW, bytes.into(), &mut Vec::new()).expect("they get on with each other");
}

/// Lengths of the pieces that follow a block, without their tags: as in `core/msgr/src/frame/secure.rs`.
fn rest_lens(block: &[u8]) -> [usize; 2] {
    let len = |at: usize| u32::from_le_bytes(block[at..at + 4].try_into().expect("four bytes")) as usize;
    let padded = |len: usize| len.next_multiple_of(16);
    let count = usize::from(block[1]).min(4);
    let head = padded(len(2).saturating_sub(BLOCK_LEN - PREAMBLE_LEN));
    let others: usize = [8, 14, 20].iter().take(count.saturating_sub(1)).map(|&at| padded(len(at))).sum();
    [head, if count > 1 { others + 16 } else { 0 }]
}

/// The decrypted frames of a whole stream, without their tags.
fn opened(stream: &[u8], secret: &[u8], end: End) -> Vec<Vec<u8>> {
    let (_, mut opener) = keys(secret, end).expect("the secret is long enough");
    let mut left = stream;
    let mut piece = |len: usize| {
        let mut bytes = left.split_off(..len + TAG_LEN).expect("a whole stream").to_vec();
        opener.open(&mut bytes).expect("a recording authenticates");
        bytes.truncate(len);
        (bytes, left.is_empty())
    };
    let mut frames = Vec::new();
    loop {
        let (mut frame, mut is_last) = piece(BLOCK_LEN);
        for len in rest_lens(&frame).into_iter().filter(|&len| len > 0) {
            let (bytes, ends) = piece(len);
            frame.extend(bytes);
            is_last = ends;
        }
        frames.push(frame);
        if is_last {
            return frames;
        }
    }
}

/// What decrypts to `plain` at that end, as far as it consists of frames.
fn sealed(plain: &[u8], end: End) -> Vec<u8> {
    let peer = match end {
        End::Client => End::Server,
        End::Server => End::Client,
    };
    let (mut sealer, _) = keys(&SECRET, peer).expect("the secret is long enough");
    let (mut out, mut left) = (Vec::new(), plain);
    let mut piece = |bytes: &[u8], len: usize| {
        let start = out.len();
        out.extend_from_slice(bytes);
        out.resize(start + len + TAG_LEN, 0);
        sealer.seal(&mut out[start..]);
    };
    'frames: while let Some(block) = left.split_off(..BLOCK_LEN) {
        let mut block = block.to_vec();
        let crc = crc32c(0, &block[..PREAMBLE_LEN - 4]);
        block[PREAMBLE_LEN - 4..PREAMBLE_LEN].copy_from_slice(&crc.to_le_bytes());
        piece(&block, BLOCK_LEN);
        for len in rest_lens(&block).into_iter().filter(|&len| len > 0) {
            if len > left.len() + LACKING_MAX {
                break 'frames;
            }
            let here = left.split_off(..len.min(left.len())).expect("so many are left");
            piece(here, len);
        }
    }
    out.extend_from_slice(left);
    out
}
