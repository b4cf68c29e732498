//! Arithmetic on bytes as elements of GF(2^8), the field with 256 elements, modulo x^8 + x^4 + x^3 + x^2 + 1.
//! Addition is XOR.

/// The polynomial without its highest term.
const POLYNOMIAL: u8 = 0x1d;

/// `PRODUCTS[a][b]` is a times b.
pub static PRODUCTS: [[u8; 256]; 256] = products();

/// For each factor its products with the low and with the high half of a byte. Their sum is the product with
/// the byte: vector instructions look 16 bytes or more up at a time.
pub static HALVES: [[[u8; 16]; 2]; 256] = halves();

/// For each factor the matrix of bits that multiplies by it, as the instruction `gf2p8affineqb` takes it.
pub static AFFINE: [u64; 256] = affine();

const fn multiply(a: u8, b: u8) -> u8 {
    let (mut a, mut b, mut sum) = (a, b, 0);
    while b != 0 {
        if b & 1 != 0 {
            sum ^= a;
        }
        let carry = a & 0x80 != 0;
        a <<= 1;
        if carry {
            a ^= POLYNOMIAL;
        }
        b >>= 1;
    }
    sum
}

const fn products() -> [[u8; 256]; 256] {
    let mut table = [[0; 256]; 256];
    let mut a = 0;
    while a < 256 {
        let mut b = 0;
        while b < 256 {
            table[a][b] = multiply(a as u8, b as u8);
            b += 1;
        }
        a += 1;
    }
    table
}

const fn halves() -> [[[u8; 16]; 2]; 256] {
    let mut table = [[[0; 16]; 2]; 256];
    let mut a = 0;
    while a < 256 {
        let mut half = 0;
        while half < 16 {
            table[a][0][half] = multiply(a as u8, half as u8);
            table[a][1][half] = multiply(a as u8, (half << 4) as u8);
            half += 1;
        }
        a += 1;
    }
    table
}

/// Bit i of the product is the parity of the byte masked with byte 7 - i of the matrix.
const fn affine() -> [u64; 256] {
    let mut table = [0; 256];
    let mut a = 0;
    while a < 256 {
        let mut input = 0;
        while input < 8 {
            let product = multiply(a as u8, 1 << input);
            let mut output = 0;
            while output < 8 {
                if product & (1 << output) != 0 {
                    table[a] |= 1 << ((7 - output) * 8 + input);
                }
                output += 1;
            }
            input += 1;
        }
        a += 1;
    }
    table
}

/// The product.
pub fn mul(a: u8, b: u8) -> u8 {
    PRODUCTS[usize::from(a)][usize::from(b)]
}

/// The element whose product with `a` is 1. `a` must not be 0.
pub fn inverse(a: u8) -> u8 {
    let position = PRODUCTS[usize::from(a)].iter().position(|product| *product == 1);
    position.expect("0 has no inverse") as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_but_zero_has_an_inverse_and_multiplication_distributes() {
        for a in 1..=255 {
            assert_eq!(mul(a, inverse(a)), 1);
            for b in 0..=255 {
                assert_eq!(mul(a, b), mul(b, a));
                assert_eq!(mul(a, b ^ 0x53), mul(a, b) ^ mul(a, 0x53));
            }
        }
    }

    /// The definition of the instruction, byte by byte.
    #[test]
    fn matrix_of_bits_multiplies_as_the_instruction_does() {
        for a in 0..=255u8 {
            let matrix = AFFINE[usize::from(a)].to_le_bytes();
            for x in 0..=255u8 {
                let bit = |i: usize| u8::from((matrix[7 - i] & x).count_ones() % 2 == 1) << i;
                assert_eq!((0..8).map(bit).sum::<u8>(), mul(a, x));
            }
        }
    }
}
