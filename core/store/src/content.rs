//! The content of a block that is not on the device yet: in memory and in the log, whole or as a patch of
//! another block.

use crate::BLOCK;
use crate::format::ENTRY_LEN;
use crate::salvaged;
use bytes::Bytes;
use nacre_wire::{Decode, DecodeError, Reader};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// All of it: `BLOCK` bytes.
    Whole(Bytes),
    /// What block `base` of the device holds, with these ranges of bytes over it, or XORed into it. The
    /// store's own thread does not read the device, so the thread that writes the block to its place merges.
    Patch { base: Base, ranges: Vec<PatchRange> },
}

/// A block of the device and the checksum of what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Base {
    pub block: u32,
    pub crc: u32,
}

/// What a range of a patch does to the bytes below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    Replace,
    Xor,
}

/// `bytes` from `at` on. Those of one patch are in order, and two of one kind do not touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PatchRange {
    pub at: u16,
    pub bytes: Bytes,
    pub over: Over,
}

impl PatchRange {
    pub fn end(&self) -> usize {
        usize::from(self.at) + self.bytes.len()
    }
    pub fn apply(&self, block: &mut [u8]) {
        apply(self.over, &self.bytes, &mut block[self.at.into()..self.end()]);
    }
    /// This with the bytes of another one XORed into it, where it has any.
    pub fn xored(&self, other: &PatchRange) -> PatchRange {
        let Some(part) = other.part(self.at.into(), self.end()) else { return self.clone() };
        let mut bytes = self.bytes.to_vec();
        let start = usize::from(part.at - self.at);
        apply(Over::Xor, &part.bytes, &mut bytes[start..start + part.bytes.len()]);
        PatchRange { bytes: bytes.into(), ..self.clone() }
    }
    /// The part of it in `from..to`, if there is any.
    fn part(&self, from: usize, to: usize) -> Option<PatchRange> {
        let at = usize::from(self.at);
        let (start, end) = (at.max(from), self.end().min(to));
        let part = || PatchRange {
            at: start as u16,
            bytes: self.bytes.slice(start - at..end - at),
            over: self.over,
        };
        (start < end).then(part)
    }
}

fn apply(over: Over, bytes: &[u8], to: &mut [u8]) {
    match over {
        Over::Replace => to.copy_from_slice(bytes),
        Over::Xor => to.iter_mut().zip(bytes).for_each(|(to, byte)| *to ^= byte),
    }
}

/// In the length of a range in the log: its bytes are XORed into what is below it.
const XOR: u16 = 0x8000;
const _: () = assert!(BLOCK < XOR as usize);

/// What a block takes in the log besides its bytes.
const WHOLE_COST: usize = ENTRY_LEN + 4;
const PATCH_COST: usize = WHOLE_COST + 4;
const RANGE_COST: usize = 2 + 2;

impl Content {
    /// What is here with `bytes` over it from `from` on.
    pub fn patched(&self, from: usize, bytes: &[u8], over: Over) -> Content {
        match self {
            Content::Whole(old) => {
                let mut whole = old.to_vec();
                apply(over, bytes, &mut whole[from..from + bytes.len()]);
                Content::Whole(whole.into())
            }
            Content::Patch { base, ranges } => {
                let is_plain = over == Over::Replace && ranges.iter().all(|range| range.over == over);
                let ranges = match is_plain {
                    true => put_over(ranges, from, bytes),
                    false => combined(ranges, from, bytes, over),
                };
                match salvaged::whole(&ranges) {
                    Some(all) => Content::Whole(all.clone()),
                    None => Content::Patch { base: *base, ranges },
                }
            }
        }
    }
    pub fn base(&self) -> Option<Base> {
        match self {
            Content::Whole(_) => None,
            Content::Patch { base, .. } => Some(*base),
        }
    }

    /// Bytes that it takes in a record of the log, with its entry in the list.
    pub fn logged_len(&self) -> usize {
        match self {
            Content::Whole(bytes) => WHOLE_COST + without_zeros(bytes).len(),
            Content::Patch { ranges, .. } => {
                PATCH_COST + ranges.iter().map(|range| RANGE_COST + range.bytes.len()).sum::<usize>()
            }
        }
    }
    /// As it stands in a record, piece by piece.
    pub fn log(&self, mut put: impl FnMut(&[u8])) {
        match self {
            Content::Whole(bytes) => {
                put(&0_u32.to_le_bytes());
                put(without_zeros(bytes));
            }
            Content::Patch { base, ranges } => {
                put(&base.block.to_le_bytes());
                put(&base.crc.to_le_bytes());
                put_ranges(ranges, put);
            }
        }
    }
    /// The reverse, of exactly these bytes.
    pub fn from_log(bytes: &[u8]) -> Result<Content, DecodeError> {
        let mut r = Reader::new(bytes);
        let base = u32::decode(&mut r)?;
        if base == 0 {
            let bytes = r.take(r.remaining())?;
            if bytes.len() > BLOCK {
                return Err(DecodeError::BadValue { what: "bytes of a block", value: bytes.len() as u64 });
            }
            let mut whole = bytes.to_vec();
            whole.resize(BLOCK, 0);
            return Ok(Content::Whole(whole.into()));
        }
        let base = Base { block: base, crc: Decode::decode(&mut r)? };
        Ok(Content::Patch { base, ranges: decode_ranges(&mut r)? })
    }
}

/// The same of ranges and bytes that may be XORed.
fn combined(ranges: &[PatchRange], from: usize, bytes: &[u8], over: Over) -> Vec<PatchRange> {
    let end = from + bytes.len();
    let mut pieces: Vec<PatchRange> = Vec::with_capacity(ranges.len() + 2);
    let new = |start: usize, end: usize| PatchRange {
        at: start as u16,
        bytes: Bytes::copy_from_slice(&bytes[start - from..end - from]),
        over,
    };
    let mut at = from;
    for range in ranges {
        pieces.extend(range.part(0, from));
        if let (Over::Xor, Some(below)) = (over, range.part(from, end)) {
            let start = usize::from(below.at);
            if at < start {
                pieces.push(new(at, start));
            }
            let mut both = below.bytes.to_vec();
            apply(over, &bytes[start - from..below.end() - from], &mut both);
            at = below.end();
            pieces.push(PatchRange { bytes: both.into(), ..below });
        }
        pieces.extend(range.part(end, BLOCK));
    }
    if at < end {
        pieces.push(new(at, end));
    }
    pieces.sort_by_key(|piece| piece.at);
    joined_neighbours(pieces)
}

fn joined_neighbours(pieces: Vec<PatchRange>) -> Vec<PatchRange> {
    let mut joined: Vec<PatchRange> = Vec::with_capacity(pieces.len());
    for piece in pieces {
        match joined.last_mut() {
            Some(last) if last.over == piece.over && last.end() == usize::from(piece.at) => {
                last.bytes = [&last.bytes[..], &piece.bytes].concat().into();
            }
            _ => joined.push(piece),
        }
    }
    joined
}

/// Ranges that replace, with these bytes over them from `from` on.
pub(crate) fn put_over(ranges: &[PatchRange], from: usize, bytes: &[u8]) -> Vec<PatchRange> {
    // Neighbours join, so that appending piece by piece stays one range.
    let (mut start, mut joined) = (from, bytes.to_vec());
    let mut kept = Vec::with_capacity(ranges.len() + 1);
    for range in ranges {
        let at = usize::from(range.at);
        if range.end() < from || at > from + bytes.len() {
            kept.push(range.clone());
            continue;
        }
        if at < from {
            joined.splice(..0, range.bytes[..from - at].iter().copied());
            start = at;
        }
        let end = from + bytes.len();
        if range.end() > end {
            joined.extend_from_slice(&range.bytes[end - at..]);
        }
    }
    kept.push(PatchRange { at: start as u16, bytes: joined.into(), over: Over::Replace });
    kept.sort_by_key(|range| range.at);
    kept
}

/// As `decode_ranges` reads them, piece by piece.
pub(crate) fn put_ranges(ranges: &[PatchRange], mut put: impl FnMut(&[u8])) {
    for range in ranges {
        put(&range.at.to_le_bytes());
        let kind = if range.over == Over::Xor { XOR } else { 0 };
        put(&(range.bytes.len() as u16 | kind).to_le_bytes());
        put(&range.bytes);
    }
}
/// Up to the end.
pub(crate) fn decode_ranges(r: &mut Reader<'_>) -> Result<Vec<PatchRange>, DecodeError> {
    let mut ranges: Vec<PatchRange> = Vec::new();
    while !r.is_empty() {
        let (at, len) = (u16::decode(r)?, u16::decode(r)?);
        let (over, len) = if len & XOR != 0 { (Over::Xor, len & !XOR) } else { (Over::Replace, len) };
        let range = PatchRange { at, bytes: Bytes::copy_from_slice(r.take(len.into())?), over };
        let follows = |last: &PatchRange| match last.over == over {
            true => last.end() < usize::from(at),
            false => last.end() <= usize::from(at),
        };
        let in_order = ranges.last().is_none_or(follows);
        if !in_order || len == 0 || range.end() > BLOCK {
            return Err(DecodeError::BadValue { what: "part of a block", value: at.into() });
        }
        ranges.push(range);
    }
    Ok(ranges)
}

/// Without the zeros at its end. Sixteen bytes at a time: each block of a small write comes by here twice,
/// and those of disks are often zeros to their beginning.
fn without_zeros(bytes: &[u8]) -> &[u8] {
    let is_zero = |word: &&[u8]| **word == [0; 16];
    let zeros = bytes.rchunks_exact(16).take_while(is_zero).count() * 16;
    let rest = &bytes[..bytes.len() - zeros];
    let len = rest.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    &rest[..len]
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_base::Rng;

    #[test]
    fn patches_agree_with_plain_bytes_and_read_back_from_the_log() {
        let mut rng = Rng::new(1);
        for round in 0..600 {
            let mut content = Content::Patch { base: Base { block: 9, crc: 8 }, ranges: Vec::new() };
            let mut plain: Vec<u8> = (0..BLOCK).map(|at| at as u8).collect();
            let original = plain.clone();
            for _ in 0..1 + rng.below(12) {
                let from = rng.below(BLOCK as u64) as usize;
                let len_max = if rng.chance(300) { BLOCK as u64 } else { 200 };
                let len = 1 + rng.below(len_max) as usize;
                let bytes = vec![rng.below(256) as u8; len.min(BLOCK - from)];
                let over = if round % 2 == 0 && rng.chance(500) { Over::Xor } else { Over::Replace };
                apply(over, &bytes, &mut plain[from..from + bytes.len()]);
                content = content.patched(from, &bytes, over);
                let mut logged = Vec::new();
                content.log(|bytes| logged.extend_from_slice(bytes));
                assert_eq!(logged.len() + ENTRY_LEN, content.logged_len());
                assert_eq!(Content::from_log(&logged), Ok(content.clone()));
            }
            let mut merged = original;
            match &content {
                Content::Whole(bytes) => merged.copy_from_slice(bytes),
                Content::Patch { ranges, .. } => ranges.iter().for_each(|range| range.apply(&mut merged)),
            }
            assert!(merged == plain);
        }
    }

    #[test]
    fn zeros_at_the_end_are_found_wherever_the_last_byte_is() {
        for len in 0..40 {
            assert!(without_zeros(&vec![0; len]).is_empty());
            for last in 0..len {
                let mut bytes = vec![0; len];
                bytes[last] = 1;
                assert_eq!(without_zeros(&bytes), &bytes[..=last]);
            }
        }
    }

    #[test]
    fn zeros_at_the_end_of_a_block_are_not_logged() {
        let mut bytes = vec![0; BLOCK];
        bytes[10] = 1;
        let content = Content::Whole(bytes.into());
        assert_eq!(content.logged_len(), WHOLE_COST + 11);
        let mut logged = Vec::new();
        content.log(|bytes| logged.extend_from_slice(bytes));
        assert_eq!(Content::from_log(&logged), Ok(content));
    }
}
