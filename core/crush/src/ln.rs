//! A fixed-point logarithm: straw2 needs one that is the same on every machine.

use crate::ln_table::{LOW_LOG, RECIPROCAL_AND_LOG};

/// 2^44 * log2(x + 1), for the low 16 bits of a hash. Ceph: `crush_ln`.
///
/// `x + 1` is `2^exponent * (1 + k/128) * (1 + rest)`: the first factor's logarithm is its exponent,
/// the other two come from tables.
pub fn ln(x: u16) -> u64 {
    let x = u32::from(x) + 1;
    let shift = x.leading_zeros().saturating_sub(16); // up to bit 15; 2^16 itself is already above
    let (x, exponent) = (x << shift, u64::from(15 - shift));
    let k = ((x >> 8) - 128) as usize; // 0..=128
    let (reciprocal, log) = (RECIPROCAL_AND_LOG[2 * k], RECIPROCAL_AND_LOG[2 * k + 1]);
    let rest = (u64::from(x) * reciprocal) >> 48;
    (exponent << 44) + ((log + LOW_LOG[(rest & 0xff) as usize]) >> 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_a_logarithm_within_what_the_tables_allow() {
        for x in 0..=u16::MAX {
            let exact = (f64::from(x) + 1.0).log2();
            let got = ln(x) as f64 / (1_u64 << 44) as f64;
            assert!((exact - got).abs() < 0.001, "{x}: {got} instead of {exact}");
        }
        assert_eq!(ln(0), 0);
    }
}
