//! CRC-32C as Ceph uses it: any seed, and no final inversion.

use crc_fast::{CrcAlgorithm, Digest};

/// Continues `seed` over `bytes`. Ceph starts from 0 or from `u32::MAX`, and never inverts the end.
pub fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
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
}
