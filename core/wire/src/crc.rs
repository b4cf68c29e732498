//! CRC-32C as Ceph uses it: any seed, and no final inversion.

use crc_fast::{CrcAlgorithm, Digest};
use std::sync::LazyLock;

/// Continues `seed` over `bytes`. Ceph starts from 0 or from `u32::MAX`, and never inverts the end.
pub fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    if seed == u32::MAX {
        // As nearly always: what the library begins with as well, and without the state that it keeps
        // otherwise.
        return !crc_fast::crc32_iscsi(bytes);
    }
    // The library's state is the inverted register, as in the common form of the checksum.
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(seed));
    digest.update(bytes);
    !(digest.finalize() as u32)
}

/// The same over `len` zero bytes, for holes.
pub fn crc32c_zeros(mut seed: u32, mut len: u64) -> u32 {
    const ZEROS: [u8; 4096] = [0; 4096];
    while len > 0 {
        let n = len.min(ZEROS.len() as u64);
        seed = crc32c(seed, &ZEROS[..n as usize]);
        len -= n;
    }
    seed
}

/// `crc32c_of_blocks` is about blocks of this many bytes.
pub const CRC_BLOCK: usize = 4096;

/// What follows a block's length of zeros upon a register that has one byte set.
static BEHIND_BLOCK: LazyLock<[[u32; 256]; 4]> = LazyLock::new(|| {
    let zeros = |byte: usize, value: usize| crc32c_zeros((value as u32) << (8 * byte), CRC_BLOCK as u64);
    std::array::from_fn(|byte| {
        // The checksum is linear: those of single bits make up all others.
        let bits: [u32; 8] = std::array::from_fn(|bit| zeros(byte, 1 << bit));
        std::array::from_fn(|value| {
            (0..8).filter(|bit| value >> bit & 1 == 1).fold(0, |sum, bit| sum ^ bits[bit])
        })
    })
});

fn behind_block(crc: u32) -> u32 {
    let bytes = crc.to_le_bytes();
    bytes.iter().zip(&*BEHIND_BLOCK).fold(0, |sum, (byte, table)| sum ^ table[usize::from(*byte)])
}

/// The checksum from `u32::MAX` of blocks one after another, without looking at them again: `crcs` are those
/// of the single blocks, each from `u32::MAX`.
pub fn crc32c_of_blocks(crcs: impl IntoIterator<Item = u32>) -> u32 {
    crcs.into_iter().fold(u32::MAX, |sum, crc| crc ^ behind_block(sum ^ u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bitwise(mut crc: u32, bytes: &[u8]) -> u32 {
        for &byte in bytes {
            crc ^= u32::from(byte);
            for _ in 0..8 {
                crc = (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
            }
        }
        crc
    }

    #[test]
    fn equals_the_bitwise_definition_for_every_seed_and_length() {
        let bytes: Vec<u8> = (0..3000_u32).map(|i| (i * 7 + i / 13) as u8).collect();
        for seed in [0, u32::MAX, 1, 0xdead_beef] {
            for len in [0, 1, 3, 8, 28, 63, 64, 257, 1024, 3000] {
                assert_eq!(crc32c(seed, &bytes[..len]), bitwise(seed, &bytes[..len]), "{seed:x} {len}");
            }
            let halves = crc32c(crc32c(seed, &bytes[..100]), &bytes[100..]);
            assert_eq!(halves, crc32c(seed, &bytes));
            assert_eq!(crc32c_zeros(seed, 5000), crc32c(seed, &[0; 5000]));
        }
    }
    #[test]
    fn that_of_many_blocks_follows_from_their_own() {
        let bytes: Vec<u8> = (0..5 * CRC_BLOCK).map(|i| (i * 31 + i / 97) as u8).collect();
        for blocks in 0..=5 {
            let bytes = &bytes[..blocks * CRC_BLOCK];
            let crcs = bytes.chunks(CRC_BLOCK).map(|block| crc32c(u32::MAX, block));
            assert_eq!(crc32c_of_blocks(crcs), crc32c(u32::MAX, bytes), "{blocks} blocks");
        }
    }
}
