//! Frames of msgr2.1 in crc mode: cutting them out of a stream, and writing them.
//!
//! A frame is a preamble of 32 bytes with its own crc, one segment with its crc behind it, and, if
//! there are more segments, those back to back and an epilogue of 13 bytes with their crcs.

use crate::fault::FaultReason;
use crate::outbox::Outbox;
use crate::sums::Sums;
use bytes::{Buf, Bytes, BytesMut};
use nacre_base::Buffer;
use nacre_wire::{Encode, Reader, crc32c};
use std::fmt;

const PREAMBLE_LEN: usize = 32;
const CRC_LEN: usize = 4;
const EPILOGUE_LEN: usize = 13;
const SEGMENTS_MAX: usize = 4;
/// What Ceph writes for segments 0 to 3: receivers may align their buffers so.
const ALIGNMENTS: [u16; SEGMENTS_MAX] = [8, 8, 8, 4096];
const STATUS_MASK: u8 = 0x0f;
const STATUS_COMPLETE: u8 = 0x0e;
/// A sender that changed its mind in the middle of a frame filled the rest with zeros.
const STATUS_ABORTED: u8 = 0x01;
/// From here on it pays to read a segment into its own buffer rather than through a shared one.
const READ_INTO_MIN: usize = 32 << 10;

/// What a frame is. Ceph: `Tag`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Tag {
    Hello = 1,
    AuthRequest = 2,
    AuthBadMethod = 3,
    AuthReplyMore = 4,
    AuthRequestMore = 5,
    AuthDone = 6,
    AuthSignature = 7,
    ClientIdent = 8,
    ServerIdent = 9,
    IdentMissingFeatures = 10,
    SessionReconnect = 11,
    SessionReset = 12,
    SessionRetry = 13,
    SessionRetryGlobal = 14,
    SessionReconnectOk = 15,
    Wait = 16,
    Message = 17,
    Keepalive2 = 18,
    Keepalive2Ack = 19,
    Ack = 20,
}

impl Tag {
    const ALL: [(Tag, &'static str); 20] = [
        (Tag::Hello, "HELLO"),
        (Tag::AuthRequest, "AUTH_REQUEST"),
        (Tag::AuthBadMethod, "AUTH_BAD_METHOD"),
        (Tag::AuthReplyMore, "AUTH_REPLY_MORE"),
        (Tag::AuthRequestMore, "AUTH_REQUEST_MORE"),
        (Tag::AuthDone, "AUTH_DONE"),
        (Tag::AuthSignature, "AUTH_SIGNATURE"),
        (Tag::ClientIdent, "CLIENT_IDENT"),
        (Tag::ServerIdent, "SERVER_IDENT"),
        (Tag::IdentMissingFeatures, "IDENT_MISSING_FEATURES"),
        (Tag::SessionReconnect, "SESSION_RECONNECT"),
        (Tag::SessionReset, "SESSION_RESET"),
        (Tag::SessionRetry, "SESSION_RETRY"),
        (Tag::SessionRetryGlobal, "SESSION_RETRY_GLOBAL"),
        (Tag::SessionReconnectOk, "SESSION_RECONNECT_OK"),
        (Tag::Wait, "WAIT"),
        (Tag::Message, "MESSAGE"),
        (Tag::Keepalive2, "KEEPALIVE2"),
        (Tag::Keepalive2Ack, "KEEPALIVE2_ACK"),
        (Tag::Ack, "ACK"),
    ];

    fn from_byte(byte: u8) -> Result<Tag, FaultReason> {
        let known = Tag::ALL.get(usize::from(byte).wrapping_sub(1));
        known.map(|&(tag, _)| tag).ok_or(FaultReason::UnknownTag(byte))
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Tag::ALL[*self as usize - 1].1)
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
        let start = out.len();
        out.extend([self.tag as u8, self.count]);
        for (index, alignment) in ALIGNMENTS.into_iter().enumerate() {
            let present = index < usize::from(self.count);
            self.lens[index].encode(out);
            if present { alignment } else { 0 }.encode(out);
        }
        out.extend([0, 0]); // flags, reserved
        crc32c(0, &out[start..]).encode(out);
    }

    fn decode(bytes: &[u8]) -> Result<Preamble, FaultReason> {
        let (body, crc) = bytes.split_at(PREAMBLE_LEN - CRC_LEN);
        let expected = u32::from_le_bytes(crc.try_into().expect("four bytes are left"));
        let found = crc32c(0, body);
        if expected != found {
            return Err(FaultReason::PreambleCrc { expected, found });
        }
        let tag = Tag::from_byte(body[0])?;
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

/// A frame that passed all its checksums.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) tag: Tag,
    pub(crate) segments: [Bytes; SEGMENTS_MAX],
    /// False if the sender gave up half-way: only segment 0 means something then.
    pub(crate) complete: bool,
    /// Of the last segment that there may be, if it is there.
    pub(crate) data_crc: u32,
}

/// Which part of a frame comes next.
#[derive(Debug)]
enum Part {
    Preamble,
    Head(Preamble),
    Body(Preamble, usize, [Bytes; SEGMENTS_MAX]),
    Epilogue(Preamble, [Bytes; SEGMENTS_MAX]),
}

/// Cuts a stream into frames. What lies whole in one chunk of input is shared with it, not copied; the
/// rest is gathered in one buffer of the announced size, and `wanted` lets a socket fill that directly.
#[derive(Debug)]
pub(crate) struct FrameReader {
    part: Part,
    /// What has come of a part that is not whole yet, unless that is large.
    gather: BytesMut,
    /// A large part, and how much of it has come: where a device can take it without a copy.
    large: Option<(Buffer, usize)>,
}

impl FrameReader {
    pub(crate) fn new() -> FrameReader {
        FrameReader { part: Part::Preamble, gather: BytesMut::new(), large: None }
    }

    /// True between two frames.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.part, Part::Preamble) && self.gather.is_empty() && self.large.is_none()
    }

    fn needed(&self) -> usize {
        match &self.part {
            Part::Preamble => PREAMBLE_LEN,
            // An empty first segment has no crc either.
            Part::Head(p) if p.lens[0] == 0 => 0,
            Part::Head(p) => p.lens[0] as usize + CRC_LEN,
            Part::Body(p, index, _) => p.lens[*index] as usize,
            Part::Epilogue(..) => EPILOGUE_LEN,
        }
    }

    /// The rest of a large segment that is being received, if one is.
    pub(crate) fn wanted(&mut self) -> Option<&mut [u8]> {
        let needed = self.needed();
        let here = self.large.as_ref().map_or(self.gather.len(), |(_, filled)| *filled);
        if needed - here < READ_INTO_MIN {
            return None;
        }
        let (buffer, filled) = self.large.get_or_insert_with(|| {
            let gathered = std::mem::take(&mut self.gather);
            let mut buffer = Buffer::new(needed);
            buffer.as_mut()[..here].copy_from_slice(&gathered);
            (buffer, here)
        });
        Some(&mut buffer.as_mut()[*filled..])
    }
    /// So many bytes were put into `wanted`.
    pub(crate) fn filled(&mut self, len: usize) {
        let (buffer, filled) = self.large.as_mut().expect("nothing was wanted");
        *filled += len;
        assert!(*filled <= buffer.as_ref().len(), "more was put there than there is room");
    }

    /// The next `len` bytes, once they are here.
    fn take(&mut self, len: usize, input: &mut Bytes) -> Option<Bytes> {
        if let Some((buffer, filled)) = &mut self.large {
            let n = (len - *filled).min(input.len());
            buffer.as_mut()[*filled..*filled + n].copy_from_slice(&input.split_to(n));
            *filled += n;
            let whole = self.large.take_if(|(_, filled)| *filled == len);
            return whole.map(|(buffer, _)| Bytes::from_owner(buffer));
        }
        if self.gather.is_empty() && input.len() >= len {
            return Some(input.split_to(len));
        }
        if !input.is_empty() {
            let missing = len - self.gather.len();
            let n = missing.min(input.len());
            self.gather.reserve(missing);
            self.gather.extend_from_slice(&input[..n]);
            input.advance(n);
        }
        (self.gather.len() == len).then(|| std::mem::take(&mut self.gather).freeze())
    }

    /// The next frame, or None if more input is needed. `admit` sees each preamble before anything is
    /// allocated for what it announces.
    pub(crate) fn next(
        &mut self,
        input: &mut Bytes,
        admit: impl Fn(&Preamble) -> Result<(), FaultReason>,
    ) -> Result<Option<Frame>, FaultReason> {
        loop {
            let Some(bytes) = self.take(self.needed(), input) else { return Ok(None) };
            let (part, frame) = match std::mem::replace(&mut self.part, Part::Preamble) {
                Part::Preamble => {
                    let preamble = Preamble::decode(&bytes)?;
                    admit(&preamble)?;
                    (Part::Head(preamble), None)
                }
                Part::Head(p) => {
                    let head = checked_head(&p, bytes)?;
                    after_segment(p, 0, [head, Bytes::new(), Bytes::new(), Bytes::new()])
                }
                Part::Body(p, index, mut segments) => {
                    segments[index] = bytes;
                    after_segment(p, index, segments)
                }
                Part::Epilogue(p, segments) => {
                    let (complete, data_crc) = check_epilogue(&p, &segments, &bytes)?;
                    (Part::Preamble, Some(Frame { tag: p.tag, segments, complete, data_crc }))
                }
            };
            self.part = part;
            if frame.is_some() {
                return Ok(frame);
            }
        }
    }
}

/// Where to go when segment `index` is there: the next one that is not empty, or the end.
fn after_segment(p: Preamble, index: usize, segments: [Bytes; SEGMENTS_MAX]) -> (Part, Option<Frame>) {
    if p.count == 1 {
        return (Part::Preamble, Some(Frame { tag: p.tag, segments, complete: true, data_crc: u32::MAX }));
    }
    match (index + 1..p.count.into()).find(|&i| p.lens[i] > 0) {
        Some(next) => (Part::Body(p, next, segments), None),
        None => (Part::Epilogue(p, segments), None),
    }
}

fn check_crc(tag: Tag, index: usize, expected: u32, segment: &[u8]) -> Result<(), FaultReason> {
    let found = crc32c(u32::MAX, segment);
    if expected != found {
        return Err(FaultReason::SegmentCrc { tag, index, expected, found });
    }
    Ok(())
}

fn checked_head(p: &Preamble, mut bytes: Bytes) -> Result<Bytes, FaultReason> {
    let mut crc = bytes.split_off(p.lens[0] as usize);
    if !bytes.is_empty() {
        check_crc(p.tag, 0, crc.get_u32_le(), &bytes)?;
    }
    Ok(bytes)
}

/// True if the sender meant the frame, false if it gave it up; and the checksum of the last segment.
fn check_epilogue(p: &Preamble, segments: &[Bytes], mut epilogue: &[u8]) -> Result<(bool, u32), FaultReason> {
    let status = epilogue.get_u8();
    let mut last = u32::MAX;
    for (index, segment) in segments.iter().enumerate().skip(1) {
        last = if index < p.count.into() { epilogue.get_u32_le() } else { u32::MAX };
        check_crc(p.tag, index, last, segment)?;
    }
    match status & STATUS_MASK {
        STATUS_COMPLETE => Ok((true, last)),
        STATUS_ABORTED => Ok((false, last)),
        _ => Err(FaultReason::LateStatus { tag: p.tag, status }),
    }
}

/// Queues a frame of one segment, which is what everything but a message is.
pub(crate) fn put_control(out: &mut Outbox, tag: Tag, payload: &[u8]) {
    let preamble = Preamble::of(tag, [payload.len(), 0, 0, 0]);
    let mut bytes = Vec::with_capacity(PREAMBLE_LEN + payload.len() + CRC_LEN);
    preamble.encode(&mut bytes);
    bytes.extend_from_slice(payload);
    crc32c(u32::MAX, payload).encode(&mut bytes);
    out.push(bytes.into());
}

/// Queues a message. Its three parts are shared, not copied.
pub(crate) fn put_message(out: &mut Outbox, header: &MessageHeader, parts: [Bytes; 3], sums: &Sums) {
    let [front, middle, data] = &parts;
    let preamble = Preamble::of(Tag::Message, [MessageHeader::LEN, front.len(), middle.len(), data.len()]);
    let head_len = PREAMBLE_LEN + MessageHeader::LEN + CRC_LEN;
    // Head and epilogue share one allocation.
    let mut bytes = Vec::with_capacity(head_len + EPILOGUE_LEN);
    preamble.encode(&mut bytes);
    header.encode(&mut bytes);
    crc32c(u32::MAX, &bytes[PREAMBLE_LEN..]).encode(&mut bytes);
    if preamble.count > 1 {
        bytes.push(STATUS_COMPLETE);
        for (index, part) in parts.iter().enumerate() {
            let sent = index + 1 < preamble.count.into();
            if sent { sums.of(part) } else { 0 }.encode(&mut bytes);
        }
    }
    let mut head = Bytes::from(bytes);
    let epilogue = head.split_off(head_len);
    out.push(head);
    parts.into_iter().for_each(|part| out.push(part));
    out.push(epilogue);
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
    /// "Front and middle, data carry checksums": what Ceph's own daemons set, and nobody reads in v2.
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
