//! Frames in crc mode: a preamble, one segment with its crc behind it, and, if there are more segments, those
//! back to back and an epilogue of 13 bytes with their crcs.

use super::{
    CRC_LEN, Frame, Front, MessageHeader, PREAMBLE_LEN, Preamble, READ_INTO_MIN, SEGMENTS_MAX,
    STATUS_COMPLETE, is_complete,
};
use crate::fault::FaultReason;
use crate::outbox::Outbox;
use crate::sums::Sums;
use crate::tag::Tag;
use bytes::{Buf, Bytes, BytesMut};
use nacre_base::Buffer;
use nacre_wire::{Encode, crc32c};

const EPILOGUE_LEN: usize = 13;

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

/// Cuts a stream in crc mode into frames. What lies whole in one chunk of input is shared with it, not
/// copied; the rest is gathered in one buffer of the announced size, and `wanted` lets a socket fill that
/// directly.
#[derive(Debug)]
pub(crate) struct CrcReader {
    part: Part,
    /// Of the frame that has begun, as are these.
    preamble: Preamble,
    segments: [Bytes; SEGMENTS_MAX],
    /// What has come of a part that is not whole yet, unless that is large.
    gather: BytesMut,
    /// A large part, and how much of it has come: where a device can take it without a copy.
    large: Option<(Buffer, usize)>,
}

impl CrcReader {
    pub(super) fn new() -> CrcReader {
        CrcReader {
            part: Part::Preamble,
            preamble: Preamble { tag: Tag::Message, count: 0, lens: [0; SEGMENTS_MAX] },
            segments: Default::default(),
            gather: BytesMut::new(),
            large: None,
        }
    }

    /// True between two frames.
    pub(super) fn is_idle(&self) -> bool {
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
    pub(super) fn wanted(&mut self) -> Option<&mut [u8]> {
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
    /// This many bytes were put into `wanted`.
    pub(super) fn filled(&mut self, len: usize) {
        let (buffer, filled) = self.large.as_mut().expect("nothing was wanted");
        *filled += len;
        assert!(*filled <= buffer.as_ref().len(), "more was filled than the buffer holds");
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
    pub(super) fn next(
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
        Frame {
            tag: self.preamble.tag,
            segments: std::mem::take(&mut self.segments),
            complete,
            data_crc: Some(data_crc),
        }
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
    Ok((is_complete(p.tag, status)?, last))
}

/// Queues a frame of one segment, which is what everything but a message is.
pub(super) fn put_control(out: &mut Outbox, tag: Tag, payload: &[u8]) {
    out.put(|out| {
        Preamble::of(tag, [payload.len(), 0, 0, 0]).encode(out);
        out.extend_from_slice(payload);
        crc32c(u32::MAX, payload).encode(out);
    });
}

/// Queues a message. Of its parts large ones are shared, not copied.
pub(super) fn put_message(
    out: &mut Outbox,
    header: &MessageHeader,
    front: Front<'_>,
    [middle, data]: [Bytes; 2],
    sums: &Sums,
) {
    let lens = [MessageHeader::LEN, front.bytes().len(), middle.len(), data.len()];
    let preamble = Preamble::of(Tag::Message, lens);
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
