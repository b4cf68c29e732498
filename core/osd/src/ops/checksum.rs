//! Checksums of an object's bytes: crc32c, and xxHash in 32 and 64 bits.

use super::draft::Draft;
use super::{OpResult, fail, output};
use bytes::Bytes;
use nacre_base::errno::EINVAL;
use nacre_wire::{Decode, Encode, Reader, crc32c};

const XXHASH32: u8 = 0;
const XXHASH64: u8 = 1;
const CRC32C: u8 = 2;

/// One checksum per `chunk_size` bytes, or a single one if that is zero.
pub fn checksum(draft: &mut Draft<'_>, off: u64, len: u64, chunk: u32, kind: u8, init: &Bytes) -> OpResult {
    // What is asked for has to be whole chunks, and what is there of it.
    if chunk != 0 && (len == 0 || !len.is_multiple_of(chunk.into())) {
        return fail(EINVAL);
    }
    let start = off.min(draft.size);
    let left = draft.size - start;
    let len = if off == 0 && len == 0 { left } else { len.min(left) };
    let chunk = if chunk == 0 { len } else { chunk.into() };
    if chunk != 0 && !len.is_multiple_of(chunk) {
        return fail(EINVAL);
    }
    let mut init = Reader::new(init);
    let seed = match kind {
        XXHASH32 | CRC32C => u32::decode(&mut init).map(u64::from),
        XXHASH64 => u64::decode(&mut init),
        _ => return fail(EINVAL),
    };
    let Ok(seed) = seed else { return fail(EINVAL) };
    let bytes = draft.read(start, len)?;
    let mut out = Vec::new();
    let chunks = bytes.chunks(chunk.max(1) as usize);
    (chunks.len() as u32).encode(&mut out);
    for chunk in chunks {
        match kind {
            XXHASH32 => xxhash32(seed as u32, chunk).encode(&mut out),
            XXHASH64 => xxhash64(seed, chunk).encode(&mut out),
            _ => crc32c(seed as u32, chunk).encode(&mut out),
        }
    }
    output(out)
}

fn word32(b: &[u8]) -> u32 {
    u32::from_le_bytes(b[..4].try_into().expect("four bytes"))
}
fn word64(b: &[u8]) -> u64 {
    u64::from_le_bytes(b[..8].try_into().expect("eight bytes"))
}

fn xxhash32(seed: u32, bytes: &[u8]) -> u32 {
    const P: [u32; 5] = [0x9e37_79b1, 0x85eb_ca77, 0xc2b2_ae3d, 0x27d4_eb2f, 0x1656_67b1];
    let mut blocks = bytes.chunks_exact(16);
    let mut h = if bytes.len() >= 16 {
        let start = seed.wrapping_add(P[0]);
        let mut lanes = [start.wrapping_add(P[1]), seed.wrapping_add(P[1]), seed, seed.wrapping_sub(P[0])];
        for block in &mut blocks {
            for (lane, b) in lanes.iter_mut().zip(block.chunks_exact(4)) {
                let mixed = lane.wrapping_add(word32(b).wrapping_mul(P[1]));
                *lane = mixed.rotate_left(13).wrapping_mul(P[0]);
            }
        }
        let [a, b, c, d] = lanes;
        let sum = a.rotate_left(1).wrapping_add(b.rotate_left(7));
        sum.wrapping_add(c.rotate_left(12)).wrapping_add(d.rotate_left(18))
    } else {
        seed.wrapping_add(P[4])
    };
    h = h.wrapping_add(bytes.len() as u32);
    let mut words = blocks.remainder().chunks_exact(4);
    for b in &mut words {
        h = h.wrapping_add(word32(b).wrapping_mul(P[2])).rotate_left(17).wrapping_mul(P[3]);
    }
    for &b in words.remainder() {
        h = h.wrapping_add(u32::from(b).wrapping_mul(P[4])).rotate_left(11).wrapping_mul(P[0]);
    }
    h = (h ^ (h >> 15)).wrapping_mul(P[1]);
    h = (h ^ (h >> 13)).wrapping_mul(P[2]);
    h ^ (h >> 16)
}

fn xxhash64(seed: u64, bytes: &[u8]) -> u64 {
    const P: [u64; 5] = [
        0x9e37_79b1_85eb_ca87,
        0xc2b2_ae3d_27d4_eb4f,
        0x1656_67b1_9e37_79f9,
        0x85eb_ca77_c2b2_ae63,
        0x27d4_eb2f_1656_67c5,
    ];
    let round =
        |lane: u64, word: u64| lane.wrapping_add(word.wrapping_mul(P[1])).rotate_left(31).wrapping_mul(P[0]);
    let mut blocks = bytes.chunks_exact(32);
    let mut h = if bytes.len() >= 32 {
        let start = seed.wrapping_add(P[0]);
        let mut lanes = [start.wrapping_add(P[1]), seed.wrapping_add(P[1]), seed, seed.wrapping_sub(P[0])];
        for block in &mut blocks {
            for (lane, b) in lanes.iter_mut().zip(block.chunks_exact(8)) {
                *lane = round(*lane, word64(b));
            }
        }
        let [a, b, c, d] = lanes;
        let sum = a.rotate_left(1).wrapping_add(b.rotate_left(7));
        let sum = sum.wrapping_add(c.rotate_left(12)).wrapping_add(d.rotate_left(18));
        lanes.iter().fold(sum, |h, &lane| (h ^ round(0, lane)).wrapping_mul(P[0]).wrapping_add(P[3]))
    } else {
        seed.wrapping_add(P[4])
    };
    h = h.wrapping_add(bytes.len() as u64);
    let mut words = blocks.remainder().chunks_exact(8);
    for b in &mut words {
        h = (h ^ round(0, word64(b))).rotate_left(27).wrapping_mul(P[0]).wrapping_add(P[3]);
    }
    let mut rest = words.remainder();
    if rest.len() >= 4 {
        h = (h ^ u64::from(word32(rest)).wrapping_mul(P[0])).rotate_left(23);
        h = h.wrapping_mul(P[1]).wrapping_add(P[2]);
        rest = &rest[4..];
    }
    for &b in rest {
        h = (h ^ u64::from(b).wrapping_mul(P[4])).rotate_left(11).wrapping_mul(P[0]);
    }
    h = (h ^ (h >> 33)).wrapping_mul(P[1]);
    h = (h ^ (h >> 29)).wrapping_mul(P[2]);
    h ^ (h >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xxhash_gives_its_published_values() {
        assert_eq!(xxhash32(0, b""), 0x02cc_5d05);
        assert_eq!(xxhash64(0, b""), 0xef46_db37_51d8_e999);
        assert_eq!(xxhash32(0, b"abc"), 0x32d1_53ff);
        assert_eq!(xxhash64(0, b"abc"), 0x44bc_2cf5_ad77_0999);
    }
}
