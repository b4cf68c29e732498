//! Where the bytes of an object are on its shards.
//!
//! An object is divided into units, which go to the parts of the data in turn: a *row* is one unit of each
//! part. Byte `o` is in row `o / (k * unit)`, in part `o / unit mod k`, and there at `row * unit + o mod
//! unit`. A *column* is the bytes with the same offset in all shards: they are encoded together. Parity is as
//! long as the longest part.

use nacre_base::IntervalSet;
use std::ops::Range;

/// The smallest unit: a block of the store.
pub const UNIT_MIN: u64 = 4096;
/// The largest unit. Larger ones would not make reading faster, and small writes would touch more columns.
pub const UNIT_MAX: u64 = 64 << 10;

/// How an object is divided. It is chosen when the object is created, and then stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    parts: u64,
    unit: u64,
}

/// Consecutive bytes of an object that are on one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Which part of the data
    pub part: usize,
    /// Where in the object
    pub offset: u64,
    /// Where in the shard
    pub shard_offset: u64,
    /// How many bytes
    pub len: u64,
}

impl Layout {
    /// For an object that will have about that many bytes: it is spread over all parts if it is large enough.
    pub fn for_size(parts: usize, expected: u64) -> Layout {
        let share = (expected / parts as u64).max(1);
        // The largest power of two that is not more than the share.
        let unit = 1 << share.ilog2();
        Layout::new(parts, u64::clamp(unit, UNIT_MIN, UNIT_MAX)).expect("a power of two within the limits")
    }

    /// None if that is no unit: a power of two within the limits.
    pub fn new(parts: usize, unit: u64) -> Option<Layout> {
        let fits = parts > 0 && unit.is_power_of_two() && (UNIT_MIN..=UNIT_MAX).contains(&unit);
        fits.then_some(Layout { parts: parts as u64, unit })
    }

    /// The bytes of a part that are together in the object.
    pub fn unit(&self) -> u64 {
        self.unit
    }

    /// A range of the object, divided at the ends of units, in order.
    pub fn pieces(self, range: Range<u64>) -> impl Iterator<Item = Piece> {
        let mut at = range.start;
        std::iter::from_fn(move || {
            if at >= range.end {
                return None;
            }
            let end = (at - at % self.unit).saturating_add(self.unit).min(range.end);
            let piece = Piece {
                part: (at / self.unit % self.parts) as usize,
                offset: at,
                shard_offset: self.row_of(at) * self.unit + at % self.unit,
                len: end - at,
            };
            at = end;
            Some(piece)
        })
    }

    /// The columns of a range of the object, as ranges of shards.
    pub fn columns(self, range: Range<u64>) -> IntervalSet {
        let mut columns = IntervalSet::new();
        if range.is_empty() {
            return columns;
        }
        let (first, last) = (self.row_of(range.start), self.row_of(range.end - 1));
        // Rows that are covered whole need not be looked at one by one.
        if last > first + 1 {
            columns.insert((first + 1) * self.unit..last * self.unit);
        }
        let row_len = self.parts * self.unit;
        let ends =
            [range.start..range.end.min((first + 1) * row_len), range.start.max(last * row_len)..range.end];
        for piece in ends.into_iter().flat_map(|end| self.pieces(end)) {
            columns.insert(piece.shard_offset..piece.shard_offset + piece.len);
        }
        columns
    }

    /// Where a byte of a part is in the object.
    pub fn offset_of(&self, part: usize, shard_offset: u64) -> u64 {
        let (row, within) = (shard_offset / self.unit, shard_offset % self.unit);
        (row * self.parts + part as u64) * self.unit + within
    }

    /// How many bytes of an object of that size are in a part.
    pub fn part_len(&self, part: usize, size: u64) -> u64 {
        let row_len = self.parts * self.unit;
        let (rows, rest) = (size / row_len, size % row_len);
        rows * self.unit + rest.saturating_sub(part as u64 * self.unit).min(self.unit)
    }
    /// How long the parity is: as long as the longest part, which is the first one.
    pub fn parity_len(&self, size: u64) -> u64 {
        self.part_len(0, size)
    }

    fn row_of(&self, offset: u64) -> u64 {
        offset / (self.parts * self.unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn unit_follows_from_the_expected_size() {
        for (parts, expected, unit) in [
            (4, 0, 4096),
            (4, 4096, 4096),
            (4, 64 << 10, 16 << 10),
            (3, 100_000, 32 << 10),
            (4, 4 << 20, 64 << 10),
            (2, u64::MAX, 64 << 10),
        ] {
            assert_eq!(Layout::for_size(parts, expected).unit(), unit, "{expected} bytes in {parts} parts");
        }
        assert_eq!(Layout::new(4, 4095), None);
        assert_eq!(Layout::new(4, 128 << 10), None);
        assert_eq!(Layout::new(0, 4096), None);
    }

    #[test]
    fn a_small_object_is_in_the_first_part_only() {
        let layout = Layout::for_size(4, 4096);
        assert_eq!((0..4).map(|part| layout.part_len(part, 4096)).collect::<Vec<_>>(), [4096, 0, 0, 0]);
        assert_eq!(layout.parity_len(4096), 4096);
    }

    proptest! {
        #[test]
        fn pieces_are_the_range_and_found_again(
            parts in 1usize..9, unit in 12u32..17, start in 0u64..2_000_000, len in 0u64..1_000_000,
        ) {
            let layout = Layout::new(parts, 1 << unit).unwrap();
            let mut at = start;
            for piece in layout.pieces(start..start + len) {
                prop_assert_eq!(piece.offset, at);
                prop_assert!(piece.len > 0 && piece.part < parts);
                prop_assert_eq!(layout.offset_of(piece.part, piece.shard_offset), at);
                prop_assert_eq!(
                    layout.offset_of(piece.part, piece.shard_offset + piece.len - 1),
                    at + piece.len - 1
                );
                at += piece.len;
            }
            prop_assert_eq!(at, start + len);
        }

        #[test]
        fn parts_are_as_long_as_their_last_piece(
            parts in 1usize..9, unit in 12u32..17, size in 0u64..2_000_000,
        ) {
            let layout = Layout::new(parts, 1 << unit).unwrap();
            let mut ends = vec![0; parts];
            for piece in layout.pieces(0..size) {
                ends[piece.part] = piece.shard_offset + piece.len;
            }
            let lens: Vec<u64> = (0..parts).map(|part| layout.part_len(part, size)).collect();
            prop_assert_eq!(&lens, &ends);
            prop_assert_eq!(layout.parity_len(size), *ends.iter().max().unwrap());
        }

        #[test]
        fn columns_are_those_of_all_pieces(
            parts in 1usize..6, unit in 12u32..15, start in 0u64..500_000, len in 0u64..500_000,
        ) {
            let layout = Layout::new(parts, 1 << unit).unwrap();
            let mut expected = IntervalSet::new();
            for piece in layout.pieces(start..start + len) {
                expected.insert(piece.shard_offset..piece.shard_offset + piece.len);
            }
            prop_assert_eq!(layout.columns(start..start + len), expected);
        }
    }
}
