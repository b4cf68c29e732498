//! Frames of msgr2.1 in crc mode: cutting them out of a stream, and writing them.
//!
//! A frame is a preamble of 32 bytes with its own crc, one segment with its crc behind it, and, if
//! there are more segments, those back to back and an epilogue of 13 bytes with their crcs.

use crate::fault::FaultReason;
use crate::outbox::Outbox;
use crate::sums::Sums;
use crate::tag::Tag;
use bytes::{Buf, Bytes, BytesMut};
use nacre_base::Buffer;
use nacre_wire::{Encode, Reader, crc32c};

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Preamble,
    /// The first segment, and its checksum.
    Head,
    /// Another segment.
    Body(usize),
    Epilogue,
}

/// Cuts a stream into frames. What lies whole in one chunk of input is shared with it, not copied; the
/// rest is gathered in one buffer of the announced size, and `wanted` lets a socket fill that directly.
#[derive(Debug)]
pub(crate) struct FrameReader {
    part: Part,
    /// Of the frame that has begun, as are these.
    preamble: Preamble,
    segments: [Bytes; SEGMENTS_MAX],
    /// What has come of a part that is not whole yet, unless that is large.
    gather: BytesMut,
    /// A large part, and how much of it has come: where a device can take it without a copy.
    large: Option<(Buffer, usize)>,
}

impl FrameReader {
    pub(crate) fn new() -> FrameReader {
        FrameReader {
            part: Part::Preamble,
            preamble: Preamble { tag: Tag::Message, count: 0, lens: [0; SEGMENTS_MAX] },
            segments: Default::default(),
            gather: BytesMut::new(),
            large: None,
        }
    }

    /// True between two frames.
    pub(crate) fn is_idle(&self) -> bool {
        self.part == Part::Preamble && self.gather.is_empty() && self.large.is_none()
    }

    fn needed(&self) -> usize {
        match self.part {
            Part::Preamble => PREAMBLE_LEN,
            // An empty first segment has no crc either.
            Part::Head if self.preamble.lens[0] == 0 => 0,
            Part::Head => self.preamble.lens[0] as usize + CRC_LEN,
            Part::Body(index) => self.preamble.lens[index] as usize,
            Part::Epilogue => EPILOGUE_LEN,
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

    /// Lets `read` look at the next `len` bytes, once they are here.
    fn look<T>(&mut self, len: usize, input: &mut Bytes, read: impl FnOnce(&[u8]) -> T) -> Option<T> {
        if self.gather.is_empty() && self.large.is_none() && input.len() >= len {
            let seen = read(&input[..len]);
            input.advance(len);
            return Some(seen);
        }
        self.take(len, input).map(|bytes| read(&bytes))
    }

    /// The next frame, or None if more input is needed. `admit` sees each preamble before anything is
    /// allocated for what it announces.
    pub(crate) fn next(
        &mut self,
        input: &mut Bytes,
        admit: impl Fn(&Preamble) -> Result<(), FaultReason>,
    ) -> Result<Option<Frame>, FaultReason> {
        loop {
            let needed = self.needed();
            match self.part {
                Part::Preamble => {
                    let Some(preamble) = self.look(needed, input, Preamble::decode) else { return Ok(None) };
                    self.preamble = preamble?;
                    admit(&self.preamble)?;
                    self.part = Part::Head;
                }
                Part::Head => {
                    let Some(bytes) = self.take(needed, input) else { return Ok(None) };
                    self.segments[0] = checked_head(&self.preamble, bytes)?;
                    if self.preamble.count == 1 {
                        return Ok(Some(self.frame(true, u32::MAX)));
                    }
                    self.part = self.after_segment(0);
                }
                Part::Body(index) => {
                    let Some(bytes) = self.take(needed, input) else { return Ok(None) };
                    self.segments[index] = bytes;
                    self.part = self.after_segment(index);
                }
                Part::Epilogue => {
                    let Some(epilogue) =
                        self.look(needed, input, |bytes| <[u8; EPILOGUE_LEN]>::try_from(bytes))
                    else {
                        return Ok(None);
                    };
                    let epilogue = epilogue.expect("as many as were asked for");
                    let (complete, data_crc) = check_epilogue(&self.preamble, &self.segments, &epilogue)?;
                    return Ok(Some(self.frame(complete, data_crc)));
                }
            }
        }
    }

    /// Where to go when segment `index` is there: the next one that is not empty, or the end.
    fn after_segment(&self, index: usize) -> Part {
        let Preamble { count, lens, .. } = &self.preamble;
        let next = (index + 1..usize::from(*count)).find(|&next| lens[next] > 0);
        next.map_or(Part::Epilogue, Part::Body)
    }

    /// The one that is whole now.
    fn frame(&mut self, complete: bool, data_crc: u32) -> Frame {
        self.part = Part::Preamble;
        Frame { tag: self.preamble.tag, segments: std::mem::take(&mut self.segments), complete, data_crc }
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
    let (head, mut crc) = bytes.split_at(p.lens[0] as usize);
    if !head.is_empty() {
        check_crc(p.tag, 0, crc.get_u32_le(), head)?;
    }
    bytes.truncate(p.lens[0] as usize);
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
    out.put(|out| {
        Preamble::of(tag, [payload.len(), 0, 0, 0]).encode(out);
        out.extend_from_slice(payload);
        crc32c(u32::MAX, payload).encode(out);
    });
}

/// A message's first part: in a buffer that is used again, or one that may be kept.
pub(crate) enum Front<'a> {
    Lent(&'a [u8]),
    Own(Bytes),
}

/// Queues a message. Of its parts large ones are shared, not copied.
pub(crate) fn put_message(
    out: &mut Outbox,
    header: &MessageHeader,
    front: Front<'_>,
    [middle, data]: [Bytes; 2],
    sums: &Sums,
) {
    let front_len = match &front {
        Front::Lent(bytes) => bytes.len(),
        Front::Own(bytes) => bytes.len(),
    };
    let preamble = Preamble::of(Tag::Message, [MessageHeader::LEN, front_len, middle.len(), data.len()]);
    out.put(|out| {
        preamble.encode(out);
        let start = out.len();
        header.encode(out);
        crc32c(u32::MAX, &out[start..]).encode(out);
    });
    if preamble.count == 1 {
        return;
    }
    // Of segments that are not sent it stays zero.
    let mut epilogue = [0; EPILOGUE_LEN];
    epilogue[0] = STATUS_COMPLETE;
    let mut note = |segment: u8, crc: u32| {
        let at = 1 + CRC_LEN * usize::from(segment - 1);
        epilogue[at..at + CRC_LEN].copy_from_slice(&crc.to_le_bytes());
    };
    match front {
        Front::Lent(bytes) => {
            note(1, crc32c(u32::MAX, bytes));
            out.put(|out| out.extend_from_slice(bytes));
        }
        Front::Own(bytes) => {
            note(1, sums.of(&bytes));
            out.push(bytes);
        }
    }
    for (segment, part) in [(2, &middle), (3, &data)] {
        if segment < preamble.count {
            note(segment, sums.of(part));
        }
    }
    out.push(middle);
    out.push(data);
    out.put(|out| out.extend_from_slice(&epilogue));
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
