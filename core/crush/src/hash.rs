//! Robert Jenkins' 32-bit mix, as CRUSH uses it on one to five numbers.
//!
//! The order of the mixes differs per arity and is part of the protocol.

const SEED: u32 = 1_315_423_911;
const X: u32 = 231_232;
const Y: u32 = 1232;

fn mix(a: &mut u32, b: &mut u32, c: &mut u32) {
    *a = a.wrapping_sub(*b).wrapping_sub(*c) ^ (*c >> 13);
    *b = b.wrapping_sub(*c).wrapping_sub(*a) ^ (*a << 8);
    *c = c.wrapping_sub(*a).wrapping_sub(*b) ^ (*b >> 13);
    *a = a.wrapping_sub(*b).wrapping_sub(*c) ^ (*c >> 12);
    *b = b.wrapping_sub(*c).wrapping_sub(*a) ^ (*a << 16);
    *c = c.wrapping_sub(*a).wrapping_sub(*b) ^ (*b >> 5);
    *a = a.wrapping_sub(*b).wrapping_sub(*c) ^ (*c >> 3);
    *b = b.wrapping_sub(*c).wrapping_sub(*a) ^ (*a << 10);
    *c = c.wrapping_sub(*a).wrapping_sub(*b) ^ (*b >> 15);
}

/// Ceph: `crush_hash32`.
pub fn hash32_1(mut a: u32) -> u32 {
    let (mut b, mut x, mut y, mut h) = (a, X, Y, SEED ^ a);
    mix(&mut b, &mut x, &mut h);
    mix(&mut y, &mut a, &mut h);
    h
}

/// Ceph: `crush_hash32_2`.
pub fn hash32_2(mut a: u32, mut b: u32) -> u32 {
    let (mut x, mut y, mut h) = (X, Y, SEED ^ a ^ b);
    mix(&mut a, &mut b, &mut h);
    mix(&mut x, &mut a, &mut h);
    mix(&mut b, &mut y, &mut h);
    h
}

/// Ceph: `crush_hash32_3`.
pub fn hash32_3(mut a: u32, mut b: u32, mut c: u32) -> u32 {
    let (mut x, mut y, mut h) = (X, Y, SEED ^ a ^ b ^ c);
    mix(&mut a, &mut b, &mut h);
    mix(&mut c, &mut x, &mut h);
    mix(&mut y, &mut a, &mut h);
    mix(&mut b, &mut x, &mut h);
    mix(&mut y, &mut c, &mut h);
    h
}

/// Ceph: `crush_hash32_4`.
pub fn hash32_4(mut a: u32, mut b: u32, mut c: u32, mut d: u32) -> u32 {
    let (mut x, mut y, mut h) = (X, Y, SEED ^ a ^ b ^ c ^ d);
    mix(&mut a, &mut b, &mut h);
    mix(&mut c, &mut d, &mut h);
    mix(&mut a, &mut x, &mut h);
    mix(&mut y, &mut b, &mut h);
    mix(&mut c, &mut x, &mut h);
    mix(&mut y, &mut d, &mut h);
    h
}

/// Ceph: `crush_hash32_5`.
pub fn hash32_5(mut a: u32, mut b: u32, mut c: u32, mut d: u32, mut e: u32) -> u32 {
    let (mut x, mut y, mut h) = (X, Y, SEED ^ a ^ b ^ c ^ d ^ e);
    mix(&mut a, &mut b, &mut h);
    mix(&mut c, &mut d, &mut h);
    mix(&mut e, &mut x, &mut h);
    mix(&mut y, &mut a, &mut h);
    mix(&mut b, &mut x, &mut h);
    mix(&mut y, &mut c, &mut h);
    mix(&mut d, &mut x, &mut h);
    mix(&mut y, &mut e, &mut h);
    h
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_numbers_hash_as_in_ceph() {
        assert_eq!(hash32_2(7, 4), 0x6086_777f);
    }
}
