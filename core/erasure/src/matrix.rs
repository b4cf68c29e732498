//! Matrices over GF(2^8), and expressing one of their rows by others.

use crate::gf::{inverse, mul};

/// The parity rows of a code with any `k` data and `m` parity shards. All squares cut out of it are
/// invertible, so any k of its shards give all others. The first row is all ones: with one parity it is a
/// plain XOR.
///
/// It is a Cauchy matrix, 1 / (x_i + y_j) with distinct x and y, whose columns are divided by their first
/// entry. Scaling a column keeps that property.
pub fn cauchy(k: usize, m: usize) -> Vec<Vec<u8>> {
    assert!(k + m <= 256, "k + m is checked before");
    let entry = |i: usize, j: usize| inverse((k + i) as u8 ^ j as u8);
    let scale: Vec<u8> = (0..k).map(|j| inverse(entry(0, j))).collect();
    (0..m).map(|i| (0..k).map(|j| mul(entry(i, j), scale[j])).collect()).collect()
}

/// `row += factor * other`
pub fn add_scaled(row: &mut [u8], factor: u8, other: &[u8]) {
    row.iter_mut().zip(other).for_each(|(sum, entry)| *sum ^= mul(factor, *entry));
}

/// Rows that were given one after the other, reduced: what they can express together.
pub struct Span {
    /// Each with its first column that is not 0, where it has a 1, and how it is made of the given rows.
    reduced: Vec<(usize, Vec<u8>, Vec<u8>)>,
    given: usize,
    most: usize,
}

impl Span {
    /// For at most so many rows.
    pub fn new(most: usize) -> Span {
        Span { reduced: Vec::new(), given: 0, most }
    }

    /// Takes a further row. False if the earlier ones express it, so that it adds nothing.
    pub fn give(&mut self, row: &[u8]) -> bool {
        let (mut row, mut made_of) = (row.to_vec(), vec![0; self.most]);
        made_of[self.given] = 1;
        self.given += 1;
        self.reduce(&mut row, &mut made_of);
        let Some(first) = row.iter().position(|entry| *entry != 0) else { return false };
        let scale = inverse(row[first]);
        row.iter_mut().chain(&mut made_of).for_each(|entry| *entry = mul(scale, *entry));
        self.reduced.push((first, row, made_of));
        true
    }

    /// The factors of the given rows whose sum is this row. None if they cannot express it.
    pub fn express(&self, row: &[u8]) -> Option<Vec<u8>> {
        let (mut row, mut made_of) = (row.to_vec(), vec![0; self.most]);
        self.reduce(&mut row, &mut made_of);
        row.iter().all(|entry| *entry == 0).then_some(made_of)
    }

    fn reduce(&self, row: &mut [u8], made_of: &mut [u8]) {
        // A later row has zeros in the first columns of all earlier ones.
        for (first, reduced, of) in &self.reduced {
            let factor = row[*first];
            if factor != 0 {
                add_scaled(row, factor, reduced);
                add_scaled(made_of, factor, of);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_parity_is_a_plain_xor() {
        assert!(cauchy(200, 56)[0].iter().all(|entry| *entry == 1));
    }

    #[test]
    fn a_row_is_expressed_by_rows_that_span_it_only() {
        let mut span = Span::new(3);
        assert!(span.give(&[1, 2, 3]) && span.give(&[0, 1, 7]));
        assert!(!span.give(&[1, 3, 4]), "the sum of both");
        assert_eq!(span.express(&[1, 3, 4]), Some(vec![1, 1, 0]));
        assert_eq!(span.express(&[0, 0, 1]), None);
    }
}
