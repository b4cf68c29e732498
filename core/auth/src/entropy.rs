//! Randomness for secrets.

use crate::secret::hmac_sha256;
use std::fmt;

/// Bytes that cannot be guessed without the seed: HMAC-SHA256 of a counter. The driver seeds it from the
/// system's randomness, the simulator from its own.
#[derive(Clone)]
pub struct Entropy {
    seed: [u8; 32],
    drawn: u64,
}

impl Entropy {
    pub fn new(seed: [u8; 32]) -> Entropy {
        Entropy { seed, drawn: 0 }
    }
    /// For runs that are to be repeated, never where secrets matter.
    pub fn repeatable(seed: u64) -> Entropy {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        Entropy::new(bytes)
    }
    fn block(&mut self) -> [u8; 32] {
        self.drawn += 1;
        hmac_sha256(&self.seed, &self.drawn.to_le_bytes())
    }
    pub fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        for part in out.chunks_mut(32) {
            part.copy_from_slice(&self.block()[..part.len()]);
        }
        out
    }
    pub fn next_u64(&mut self) -> u64 {
        u64::from_le_bytes(self.bytes())
    }
    /// An independent source.
    pub fn fork(&mut self) -> Entropy {
        Entropy::new(self.block())
    }
}

impl fmt::Debug for Entropy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Entropy")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_draws_are_alike_and_a_fork_goes_its_own_way() {
        let mut one = Entropy::repeatable(1);
        let (a, b): ([u8; 64], [u8; 64]) = (one.bytes(), one.bytes());
        assert!(a != b && a[..32] != a[32..]);
        assert_ne!(one.fork().next_u64(), one.next_u64());
        assert_eq!(Entropy::repeatable(1).bytes::<64>(), a);
        assert_ne!(Entropy::repeatable(2).bytes::<64>(), a);
    }
}
