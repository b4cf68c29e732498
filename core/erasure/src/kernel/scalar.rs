//! Byte by byte, from a table of products.

use crate::gf::PRODUCTS;

/// See `AddProducts`.
pub fn add_products(terms: &[(u8, &[u8])], target: &mut [u8]) {
    for (factor, source) in terms {
        let row = &PRODUCTS[usize::from(*factor)];
        match factor {
            0 => {}
            1 => target.iter_mut().zip(*source).for_each(|(sum, byte)| *sum ^= byte),
            _ => target.iter_mut().zip(*source).for_each(|(sum, byte)| *sum ^= row[usize::from(*byte)]),
        }
    }
}
