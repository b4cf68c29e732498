//! Salvaged extents of damaged blocks: bytes that were written over a block that turned out to be damaged.
//! These bytes are good, and perhaps no other member has them.
//!
//! Such a block is stored as a list of these extents. Its checksum is that of the list with `MARK`, which
//! tells it from a whole block, from a corrupt one, and from one that was condemned (`Store::open`).

use crate::BLOCK;
use crate::content::{Over, PatchRange, decode_ranges, put_over, put_ranges};
use bytes::Bytes;
use nacre_wire::{Reader, crc32c};

const MAGIC: [u8; 4] = *b"KnPt";
/// No corruption of one byte turns a list into data with its checksum, nor a whole block into a list.
const MARK: u32 = 0x6e61_6372;
/// What a part takes beside its bytes.
const RANGE_COST: usize = 2 + 2;

/// What a block of the device holds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BlockState {
    /// What it should, all of it.
    Whole,
    /// It is damaged, but for these parts. They are in order and do not touch.
    Salvaged(Vec<PatchRange>),
}

/// Looks at what was read of a block that should have this checksum.
pub(crate) fn look(bytes: &[u8], expected: u32) -> BlockState {
    let found = crc32c(u32::MAX, bytes);
    if found == expected {
        return BlockState::Whole;
    }
    let parts = if found == expected ^ MARK { from_list(bytes) } else { None };
    BlockState::Salvaged(parts.unwrap_or_default())
}

/// Whether a block is as it was written, be it whole or a list.
pub(crate) fn is_intact(bytes: &[u8], expected: u32) -> bool {
    match look(bytes, expected) {
        BlockState::Whole => true,
        BlockState::Salvaged(parts) => !parts.is_empty(),
    }
}

/// The block that keeps these parts, and its checksum. What does not fit is lost: a few bytes, where nearly
/// all of the block is known.
pub(crate) fn list(parts: &[PatchRange]) -> (Vec<u8>, u32) {
    let mut fitting = Vec::with_capacity(parts.len());
    let mut left = BLOCK - MAGIC.len();
    for part in parts {
        let len = part.bytes.len().min(left.saturating_sub(RANGE_COST));
        if len > 0 {
            fitting.push(PatchRange { bytes: part.bytes.slice(..len), ..part.clone() });
            left -= RANGE_COST + len;
        }
    }
    let mut bytes = Vec::with_capacity(BLOCK);
    bytes.extend(MAGIC);
    put_ranges(&fitting, |range| bytes.extend_from_slice(range));
    bytes.resize(BLOCK, 0);
    let crc = crc32c(u32::MAX, &bytes) ^ MARK;
    (bytes, crc)
}

/// None if it is no list.
fn from_list(bytes: &[u8]) -> Option<Vec<PatchRange>> {
    let listed = bytes.strip_prefix(&MAGIC)?;
    // A part has at least one byte: a length of 0 is where the zeros begin.
    let mut end = 0;
    while let Some([_, _, low, high]) = listed.get(end..end + RANGE_COST) {
        match u16::from_le_bytes([*low, *high]) {
            0 => break,
            len => end += RANGE_COST + usize::from(len),
        }
    }
    let (ranges, rest) = listed.split_at_checked(end)?;
    if rest.iter().any(|byte| *byte != 0) {
        return None;
    }
    let parts = decode_ranges(&mut Reader::new(ranges)).ok()?;
    parts.iter().all(|part| part.over == Over::Replace).then_some(parts)
}

/// These parts with others over them. What is XORed into unknown bytes stays unknown.
pub(crate) fn joined(parts: Vec<PatchRange>, over: &[PatchRange]) -> Vec<PatchRange> {
    over.iter().fold(parts, |parts, range| match range.over {
        Over::Replace => put_over(&parts, range.at.into(), &range.bytes),
        Over::Xor => parts.iter().map(|part| part.xored(range)).collect(),
    })
}

/// All bytes of the block, if the parts are all of them.
pub(crate) fn whole(parts: &[PatchRange]) -> Option<&Bytes> {
    match parts {
        [all] if all.bytes.len() == BLOCK && all.over == Over::Replace => Some(&all.bytes),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_base::Rng;

    fn part(at: u16, bytes: &[u8]) -> PatchRange {
        PatchRange { at, bytes: Bytes::copy_from_slice(bytes), over: Over::Replace }
    }

    #[test]
    fn parts_read_back_as_they_were_listed() {
        let mut rng = Rng::new(1);
        for _ in 0..300 {
            let mut parts = Vec::new();
            for _ in 0..1 + rng.below(9) {
                let from = rng.below(BLOCK as u64 - 300) as usize;
                let bytes = vec![rng.below(256) as u8; 1 + rng.below(300) as usize];
                parts = put_over(&parts, from, &bytes);
            }
            let (bytes, crc) = list(&parts);
            assert_eq!((bytes.len(), look(&bytes, crc)), (BLOCK, BlockState::Salvaged(parts)));
        }
    }

    #[test]
    fn what_is_xored_into_unknown_bytes_stays_unknown() {
        let xor = |at: u16, bytes: &[u8]| PatchRange { over: Over::Xor, ..part(at, bytes) };
        let known = vec![part(10, &[1; 10]), part(30, &[2; 10])];
        let both = joined(known, &[xor(15, &[3; 20]), part(38, &[9; 4]), xor(40, &[1; 1])]);
        let first = part(10, &[1, 1, 1, 1, 1, 2, 2, 2, 2, 2]);
        assert_eq!(both, [first, part(30, &[1, 1, 1, 1, 1, 2, 2, 2, 9, 9, 8, 9])]);
    }

    #[test]
    fn what_does_not_fit_is_cut_off() {
        let (bytes, crc) = list(&[part(1, &[7; BLOCK - 1])]);
        assert_eq!(look(&bytes, crc), BlockState::Salvaged(vec![part(1, &[7; BLOCK - 8])]));
        let (bytes, crc) = list(&[part(0, &[7; BLOCK - 16]), part(4090, &[8; 6])]);
        assert_eq!(
            look(&bytes, crc),
            BlockState::Salvaged(vec![part(0, &[7; BLOCK - 16]), part(4090, &[8; 4])])
        );
        let many: Vec<PatchRange> = (0..BLOCK as u16 / 2).map(|i| part(2 * i, &[9])).collect();
        let (bytes, crc) = list(&many);
        assert_eq!(look(&bytes, crc), BlockState::Salvaged(many[..(BLOCK - 4) / 5].to_vec()));
    }

    #[test]
    fn corrupt_data_is_no_list_and_a_corrupt_list_is_refused() {
        let (list, crc) = list(&[part(100, b"known"), part(4000, &[3; 96])]);
        let plain: Vec<u8> = (0..BLOCK).map(|i| i as u8).collect();
        let sum = crc32c(u32::MAX, &plain);
        for (bytes, crc) in [(&list, crc), (&plain, sum), (&list, crc ^ MARK)] {
            for at in 0..BLOCK {
                let mut corrupt = bytes.clone();
                corrupt[at] ^= 1 << (at % 8);
                assert_eq!(look(&corrupt, crc), BlockState::Salvaged(Vec::new()), "at {at}");
            }
        }
        // Neither is what was condemned, nor other bytes under such a checksum.
        assert_eq!(look(&list, !crc32c(u32::MAX, &list)), BlockState::Salvaged(Vec::new()));
        assert_eq!(look(&plain, sum ^ MARK), BlockState::Salvaged(Vec::new()));
        assert_eq!(look(&list, crc ^ MARK), BlockState::Whole, "a client's bytes may look like a list");
    }

    #[test]
    fn no_one_byte_corruption_makes_the_mark() {
        for error in 1..=255 {
            let mut change = crc32c(0, &[error]);
            for _ in 0..BLOCK {
                assert_ne!(change, MARK);
                change = crc32c(change, &[0]);
            }
        }
    }

    #[test]
    fn any_bytes_with_a_valid_list_checksum_are_handled() {
        let mut rng = Rng::new(2);
        for _ in 0..20_000 {
            let mut bytes = list(&[part(9, b"known"), part(50, &[3; 20])]).0;
            for _ in 0..1 + rng.below(3) {
                let at = 4 + rng.below(60) as usize;
                bytes[at] = [0, 1, 0xff, rng.below(256) as u8][rng.below(4) as usize];
            }
            let BlockState::Salvaged(parts) = look(&bytes, crc32c(u32::MAX, &bytes) ^ MARK) else {
                panic!("not whole")
            };
            assert!(parts.iter().all(|part| part.end() <= BLOCK && !part.bytes.is_empty()));
            assert!(parts.is_sorted_by(|a, b| a.end() < b.at.into()));
        }
    }
}
