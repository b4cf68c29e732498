//! Frames in secure mode: up to three pieces, each encrypted and authenticated in one operation with a tag
//! behind it. What a piece carries is filled up with zeros to a multiple of 16 bytes.
//!
//! ```text
//! block   preamble | the first 48 bytes of segment 0   always 80 bytes and the tag
//! head    the rest of segment 0                        if there is one
//! tail    segments 1, 2, 3, each filled up | status    if the preamble announces several segments
//! ```

use super::{
    Frame, Front, MessageHeader, PREAMBLE_LEN, Preamble, READ_INTO_MIN, SEGMENTS_MAX, STATUS_COMPLETE,
    is_complete,
};
use crate::fault::FaultReason;
use crate::outbox::{COPIED_MAX, Outbox};
use crate::seal::{Opener, Sealer, TAG_LEN};
use crate::tag::Tag;
use bytes::{Buf, Bytes};
use nacre_base::Buffer;

/// What is encrypted begins and ends at a multiple of this.
const ALIGN: usize = 16;
/// So much of segment 0 is in the block.
const INLINE_LEN: usize = 48;
const BLOCK_LEN: usize = PREAMBLE_LEN + INLINE_LEN + TAG_LEN;
const _: () = assert!(MessageHeader::LEN <= INLINE_LEN, "a message has no head");
/// The status, and 15 zeros.
const STATUS_LEN: usize = ALIGN;
/// Where a device can take data without a copy.
const PAGE: usize = 4096;

/// Of the tail, with its tag.
fn tail_len([_, others @ ..]: [usize; SEGMENTS_MAX]) -> usize {
    others.iter().map(|len| len.next_multiple_of(ALIGN)).sum::<usize>() + STATUS_LEN + TAG_LEN
}

/// Which piece of a frame is being received.
#[derive(Debug)]
enum Part {
    /// This many bytes of the block are here.
    Block(usize),
    /// Behind what the block had of segment 0.
    Head(Preamble, Piece),
    /// Behind a whole segment 0.
    Tail(Preamble, Bytes, Piece),
}

/// Cuts a stream in secure mode into frames. Each piece is gathered whole and decrypted where it lies;
/// segments share its memory. `wanted` lets a socket fill a large one directly.
#[derive(Debug)]
pub(crate) struct SecureReader {
    opener: Opener,
    part: Part,
    block: [u8; BLOCK_LEN],
}

impl SecureReader {
    pub(super) fn new(opener: Opener) -> SecureReader {
        SecureReader { opener, part: Part::Block(0), block: [0; BLOCK_LEN] }
    }

    pub(super) fn is_idle(&self) -> bool {
        matches!(self.part, Part::Block(0))
    }

    pub(super) fn wanted(&mut self) -> Option<&mut [u8]> {
        match &mut self.part {
            Part::Head(_, piece) | Part::Tail(_, _, piece) => {
                Some(piece.rest()).filter(|rest| rest.len() >= READ_INTO_MIN)
            }
            Part::Block(_) => None,
        }
    }
    pub(super) fn filled(&mut self, len: usize) {
        match &mut self.part {
            Part::Head(_, piece) | Part::Tail(_, _, piece) => {
                assert!(len <= piece.rest().len(), "more was filled than the piece holds");
                piece.filled += len;
            }
            Part::Block(_) => panic!("nothing was wanted"),
        }
    }

    /// Kept out of its caller, where it would make crc mode's way longer.
    #[inline(never)]
    pub(super) fn next(
        &mut self,
        input: &mut Bytes,
        admit: impl Fn(&Preamble) -> Result<(), FaultReason>,
    ) -> Result<Option<Frame>, FaultReason> {
        loop {
            match &mut self.part {
                Part::Block(filled) => {
                    *filled += take(input, &mut self.block[*filled..]);
                    if *filled < BLOCK_LEN {
                        return Ok(None);
                    }
                    self.opener.open(&mut self.block).map_err(|_| FaultReason::PreambleSeal)?;
                    let (preamble, head) = self.block.split_at(PREAMBLE_LEN);
                    let preamble = Preamble::decode(preamble)?;
                    admit(&preamble)?;
                    let len = preamble.lens[0] as usize;
                    if len <= INLINE_LEN {
                        let head = Bytes::copy_from_slice(&head[..len]);
                        if let Some(frame) = self.after_head(preamble, head) {
                            return Ok(Some(frame));
                        }
                    } else {
                        let sealed = (len - INLINE_LEN).next_multiple_of(ALIGN) + TAG_LEN;
                        let mut piece = Piece::new(INLINE_LEN + sealed, 0);
                        piece.fill(&mut &head[..INLINE_LEN]);
                        self.part = Part::Head(preamble, piece);
                    }
                }
                Part::Head(preamble, piece) => {
                    if !piece.fill(input) {
                        return Ok(None);
                    }
                    let (preamble, mut piece) = (*preamble, std::mem::take(piece));
                    let opened = self.opener.open(&mut piece.bytes()[INLINE_LEN..]);
                    opened.map_err(|_| FaultReason::SegmentSeal { tag: preamble.tag })?;
                    let head = piece.freeze().slice(..preamble.lens[0] as usize);
                    if let Some(frame) = self.after_head(preamble, head) {
                        return Ok(Some(frame));
                    }
                }
                Part::Tail(preamble, head, piece) => {
                    if !piece.fill(input) {
                        return Ok(None);
                    }
                    let (preamble, head, mut piece) =
                        (*preamble, std::mem::take(head), std::mem::take(piece));
                    self.part = Part::Block(0);
                    let opened = self.opener.open(piece.bytes());
                    opened.map_err(|_| FaultReason::SegmentSeal { tag: preamble.tag })?;
                    return frame(&preamble, head, piece.freeze()).map(Some);
                }
            }
        }
    }

    /// Goes to the tail, if there is one; gives the frame, if not.
    fn after_head(&mut self, preamble: Preamble, head: Bytes) -> Option<Frame> {
        if preamble.count == 1 {
            self.part = Part::Block(0);
            let segments = [head, Bytes::new(), Bytes::new(), Bytes::new()];
            return Some(Frame { tag: preamble.tag, segments, complete: true, data_crc: None });
        }
        let lens = preamble.lens.map(|len| len as usize);
        let before_data = tail_len([0, lens[1], lens[2], 0]) - STATUS_LEN - TAG_LEN;
        self.part = Part::Tail(preamble, head, Piece::new(tail_len(lens), before_data));
        None
    }
}

/// Moves as much as there is and fits. How much that was.
fn take(input: &mut impl Buf, into: &mut [u8]) -> usize {
    let n = into.len().min(input.remaining());
    input.copy_to_slice(&mut into[..n]);
    n
}

/// The frame with that segment 0 and that opened tail.
fn frame(preamble: &Preamble, head: Bytes, mut tail: Bytes) -> Result<Frame, FaultReason> {
    let mut segments = [head, Bytes::new(), Bytes::new(), Bytes::new()];
    for (segment, len) in segments.iter_mut().zip(preamble.lens).skip(1) {
        let len = len as usize;
        if len > 0 {
            *segment = tail.slice(..len);
            tail.advance(len.next_multiple_of(ALIGN));
        }
    }
    let complete = is_complete(preamble.tag, tail[0])?;
    Ok(Frame { tag: preamble.tag, segments, complete, data_crc: None })
}

/// Memory for one piece, which is filled from its front.
#[derive(Debug, Default)]
struct Piece {
    memory: Memory,
    filled: usize,
}

#[derive(Debug)]
enum Memory {
    Small(Vec<u8>),
    /// Without this many bytes at its start.
    Large(Buffer, usize),
}

impl Default for Memory {
    fn default() -> Memory {
        Memory::Small(Vec::new())
    }
}

impl Piece {
    /// If it is large, what is `at` its beginning plus so much lies where a device can take it.
    fn new(len: usize, at: usize) -> Piece {
        let memory = if len < READ_INTO_MIN {
            Memory::Small(vec![0; len])
        } else {
            let start = at.next_multiple_of(PAGE) - at;
            Memory::Large(Buffer::new(start + len), start)
        };
        Piece { memory, filled: 0 }
    }
    /// All of it.
    fn bytes(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Small(bytes) => bytes,
            Memory::Large(buffer, start) => &mut buffer.as_mut()[*start..],
        }
    }
    /// What is to be filled yet.
    fn rest(&mut self) -> &mut [u8] {
        let filled = self.filled;
        &mut self.bytes()[filled..]
    }
    /// True once it is full.
    fn fill(&mut self, input: &mut impl Buf) -> bool {
        let rest = self.rest();
        let missing = rest.len();
        let n = take(input, rest);
        self.filled += n;
        n == missing
    }
    fn freeze(self) -> Bytes {
        match self.memory {
            Memory::Small(bytes) => bytes.into(),
            Memory::Large(buffer, start) => Bytes::from_owner(buffer).slice(start..),
        }
    }
}

pub(super) fn put_control(out: &mut Outbox, sealer: &mut Sealer, tag: Tag, payload: &[u8]) {
    let preamble = Preamble::of(tag, [payload.len(), 0, 0, 0]);
    let (inline, rest) = payload.split_at(payload.len().min(INLINE_LEN));
    out.put(|out| {
        put_piece(out, sealer, BLOCK_LEN, |out| {
            preamble.encode(out);
            out.extend_from_slice(inline);
        });
        if !rest.is_empty() {
            let len = rest.len().next_multiple_of(ALIGN) + TAG_LEN;
            put_piece(out, sealer, len, |out| out.extend_from_slice(rest));
        }
    });
}

/// All parts are copied: they are encrypted where they lie, and others may share them. Not inlined, like
/// `next`.
#[inline(never)]
pub(super) fn put_message(
    out: &mut Outbox,
    sealer: &mut Sealer,
    header: &MessageHeader,
    front: &Front<'_>,
    [middle, data]: &[Bytes; 2],
) {
    let front = front.bytes();
    let lens = [MessageHeader::LEN, front.len(), middle.len(), data.len()];
    let preamble = Preamble::of(Tag::Message, lens);
    out.put(|out| {
        put_piece(out, sealer, BLOCK_LEN, |out| {
            preamble.encode(out);
            header.encode(out);
        });
    });
    if preamble.count == 1 {
        return;
    }
    let len = tail_len(lens);
    let parts = [front, middle, data, &[STATUS_COMPLETE]];
    if len <= COPIED_MAX {
        out.put(|out| {
            put_piece(out, sealer, len, |out| {
                for part in parts {
                    let end = out.len() + part.len().next_multiple_of(ALIGN);
                    out.extend_from_slice(part);
                    out.resize(end, 0);
                }
            });
        });
    } else {
        let mut buffer = Buffer::new(len);
        let mut left = buffer.as_mut();
        for part in parts {
            let padded = left.split_off_mut(..part.len().next_multiple_of(ALIGN)).expect("`len` counts all");
            padded[..part.len()].copy_from_slice(part);
            padded[part.len()..].fill(0);
        }
        sealer.seal(buffer.as_mut());
        out.push(Bytes::from_owner(buffer));
    }
}

/// Appends what `write` appends, filled up with zeros, encrypted and with its tag: `len` bytes.
fn put_piece(out: &mut Vec<u8>, sealer: &mut Sealer, len: usize, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    write(out);
    out.resize(start + len, 0);
    sealer.seal(&mut out[start..]);
}
