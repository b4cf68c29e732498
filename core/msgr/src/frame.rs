//! Frames of msgr2.1: what both ways of protecting them share, and the choice between the two.
//!
//! A frame is a preamble that announces one to four segments, and those. In crc mode (`crc`) checksums say
//! that they came as they left; in secure mode (`secure`) they are encrypted and authenticated. Start at
//! `FrameReader` and `FrameWriter`. Each connection begins in crc mode; if both ends agreed to it while they
//! authenticated, each goes over to secure mode behind AUTH_DONE.

mod crc;
mod secure;
#[cfg(test)]
mod tests;

use crate::fault::FaultReason;
use crate::outbox::Outbox;
use crate::seal::{Opener, Sealer};
use crate::sums::Sums;
use crate::tag::Tag;
use bytes::{Buf, Bytes};
use crc::CrcReader;
use nacre_wire::{Encode, Reader, crc32c};
use secure::SecureReader;

const PREAMBLE_LEN: usize = 32;
const CRC_LEN: usize = 4;
const SEGMENTS_MAX: usize = 4;
/// What Ceph writes for segments 0 to 3: receivers may align their buffers so.
const ALIGNMENTS: [u16; SEGMENTS_MAX] = [8, 8, 8, 4096];
const STATUS_MASK: u8 = 0x0f;
const STATUS_COMPLETE: u8 = 0x0e;
/// A sender that changed its mind in the middle of a frame filled the rest with zeros.
const STATUS_ABORTED: u8 = 0x01;
/// From here on it pays to read bytes into their own buffer rather than through a shared one.
const READ_INTO_MIN: usize = 32 << 10;

/// Cuts a stream into frames.
#[derive(Debug)]
pub(crate) enum FrameReader {
    Crc(CrcReader),
    Secure(SecureReader),
}

impl FrameReader {
    /// A stream begins in crc mode.
    pub(crate) fn new() -> FrameReader {
        FrameReader::Crc(CrcReader::new())
    }

    /// What comes behind the last frame is in secure mode. Fails if part of another one came already: its
    /// sender could not know in which mode it was to be.
    pub(crate) fn secure(&mut self, opener: Opener) -> Result<(), FaultReason> {
        if !self.is_idle() {
            return Err(FaultReason::Hasty);
        }
        *self = FrameReader::Secure(SecureReader::new(opener));
        Ok(())
    }

    /// True between two frames.
    pub(crate) fn is_idle(&self) -> bool {
        match self {
            FrameReader::Crc(reader) => reader.is_idle(),
            FrameReader::Secure(reader) => reader.is_idle(),
        }
    }

    /// The rest of something large that is being received, if it is.
    pub(crate) fn wanted(&mut self) -> Option<&mut [u8]> {
        match self {
            FrameReader::Crc(reader) => reader.wanted(),
            FrameReader::Secure(reader) => reader.wanted(),
        }
    }
    /// This many bytes were put into `wanted`.
    pub(crate) fn filled(&mut self, len: usize) {
        match self {
            FrameReader::Crc(reader) => reader.filled(len),
            FrameReader::Secure(reader) => reader.filled(len),
        }
    }

    /// The next frame, or None if more input is needed. `admit` sees each preamble before anything is
    /// allocated for what it announces.
    pub(crate) fn next(
        &mut self,
        input: &mut Bytes,
        admit: impl Fn(&Preamble) -> Result<(), FaultReason>,
    ) -> Result<Option<Frame>, FaultReason> {
        match self {
            FrameReader::Crc(reader) => reader.next(input, admit),
            FrameReader::Secure(reader) => reader.next(input, admit),
        }
    }
}

/// Queues frames, in the order in which they are to be read: in secure mode a frame can be opened only when
/// those before it were.
#[derive(Debug)]
pub(crate) enum FrameWriter {
    Crc,
    Secure(Sealer),
}

impl FrameWriter {
    /// Queues a frame of one segment, which is what everything but a message is.
    pub(crate) fn put_control(&mut self, out: &mut Outbox, tag: Tag, payload: &[u8]) {
        match self {
            FrameWriter::Crc => crc::put_control(out, tag, payload),
            FrameWriter::Secure(sealer) => secure::put_control(out, sealer, tag, payload),
        }
    }

    /// Queues a message. `sums` may know its checksums, where it has some.
    pub(crate) fn put_message(
        &mut self,
        out: &mut Outbox,
        header: &MessageHeader,
        front: Front<'_>,
        rest: [Bytes; 2],
        sums: &Sums,
    ) {
        match self {
            FrameWriter::Crc => crc::put_message(out, header, front, rest, sums),
            FrameWriter::Secure(sealer) => secure::put_message(out, sealer, header, &front, &rest),
        }
    }
}

/// What a frame announces about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Preamble {
    pub(crate) tag: Tag,
    pub(crate) count: u8,
    pub(crate) lens: [u32; SEGMENTS_MAX],
}

impl Preamble {
    /// Segments that are empty at the end are not sent.
    fn of(tag: Tag, lens: [usize; SEGMENTS_MAX]) -> Preamble {
        let count = lens.iter().rposition(|&len| len > 0).unwrap_or(0) + 1;
        let lens = lens.map(|len| u32::try_from(len).expect("a segment fits its 32-bit length"));
        Preamble { tag, count: count as u8, lens }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let mut bytes = [0; PREAMBLE_LEN]; // flags and a reserved byte stay so
        (bytes[0], bytes[1]) = (self.tag as u8, self.count);
        for (index, slot) in bytes[2..26].chunks_exact_mut(6).enumerate() {
            let present = index < usize::from(self.count);
            slot[..4].copy_from_slice(&self.lens[index].to_le_bytes());
            slot[4..].copy_from_slice(&if present { ALIGNMENTS[index] } else { 0 }.to_le_bytes());
        }
        let (body, crc) = bytes.split_at_mut(PREAMBLE_LEN - CRC_LEN);
        crc.copy_from_slice(&crc32c(0, body).to_le_bytes());
        out.extend_from_slice(&bytes);
    }

    fn decode(bytes: &[u8]) -> Result<Preamble, FaultReason> {
        let (body, crc) = bytes.split_at(PREAMBLE_LEN - CRC_LEN);
        let expected = u32::from_le_bytes(crc.try_into().expect("four bytes are left"));
        let found = crc32c(0, body);
        if expected != found {
            return Err(FaultReason::PreambleCrc { expected, found });
        }
        let tag = Tag::from_byte(body[0]).ok_or(FaultReason::UnknownTag(body[0]))?;
        let count = body[1];
        if count < 1 || usize::from(count) > SEGMENTS_MAX {
            return Err(FaultReason::SegmentCount { tag, count });
        }
        let mut lens = [0; SEGMENTS_MAX];
        for (len, slot) in lens.iter_mut().zip(body[2..].chunks(6)).take(count.into()) {
            *len = u32::from_le_bytes([slot[0], slot[1], slot[2], slot[3]]);
        }
        if count > 1 && lens[usize::from(count) - 1] == 0 {
            return Err(FaultReason::EmptySegment { tag });
        }
        // A set flag means a compressed frame: reading it as a plain one would give nonsense.
        let flags = body[26];
        if flags != 0 {
            return Err(FaultReason::FrameFlags { tag, flags });
        }
        Ok(Preamble { tag, count, lens })
    }
}

/// A frame that came as it left.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) tag: Tag,
    pub(crate) segments: [Bytes; SEGMENTS_MAX],
    /// False if the sender gave up half-way: only segment 0 means something then.
    pub(crate) complete: bool,
    /// Of the last segment that there may be, if it is there; none in secure mode.
    pub(crate) data_crc: Option<u32>,
}

/// What a frame of several segments says at its end: true if the sender meant it, false if it gave it up.
fn is_complete(tag: Tag, status: u8) -> Result<bool, FaultReason> {
    match status & STATUS_MASK {
        STATUS_COMPLETE => Ok(true),
        STATUS_ABORTED => Ok(false),
        _ => Err(FaultReason::LateStatus { tag, status }),
    }
}

/// A message's first part: in a buffer that is used again, or one that may be kept.
pub(crate) enum Front<'a> {
    Lent(&'a [u8]),
    Own(Bytes),
}

impl Front<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Front::Lent(bytes) => bytes,
            Front::Own(bytes) => bytes,
        }
    }
}

/// Segment 0 of a message. Ceph: `ceph_msg_header2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MessageHeader {
    pub(crate) seq: u64,
    pub(crate) tid: u64,
    pub(crate) kind: u16,
    pub(crate) priority: u16,
    pub(crate) version: u16,
    /// The last message that the sender received.
    pub(crate) ack_seq: u64,
    pub(crate) compat: u16,
}

impl MessageHeader {
    pub(crate) const LEN: usize = 41;
    /// "Front and middle, data carry checksums": what Ceph's own daemons set, and no peer reads in v2.
    const FLAGS: u8 = 3;

    /// `bytes` is `LEN` long.
    pub(crate) fn decode(bytes: &[u8]) -> MessageHeader {
        let mut b = bytes;
        let seq = b.get_u64_le();
        let tid = b.get_u64_le();
        let kind = b.get_u16_le();
        let priority = b.get_u16_le();
        let version = b.get_u16_le();
        b.advance(4 + 2); // padding before the data, data offset: hints for alignment
        let ack_seq = b.get_u64_le();
        b.advance(1); // flags
        let compat = b.get_u16_le();
        MessageHeader { seq, tid, kind, priority, version, ack_seq, compat }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        self.seq.encode(out);
        self.tid.encode(out);
        self.kind.encode(out);
        self.priority.encode(out);
        self.version.encode(out);
        out.extend([0; 4 + 2]);
        self.ack_seq.encode(out);
        out.push(MessageHeader::FLAGS);
        self.compat.encode(out);
        out.extend([0; 2]); // reserved
    }
}

/// Decodes the payload of a control frame. What a newer peer appends is skipped.
pub(crate) fn payload<T: nacre_wire::Decode>(frame: &Frame) -> Result<T, FaultReason> {
    T::decode(&mut Reader::new(&frame.segments[0]))
        .map_err(|error| FaultReason::Malformed { tag: frame.tag, error })
}
