//! A queue in an object: a ring of entries behind a head. Ceph: `cls_queue`, which other classes build on.
//!
//! ```text
//! 0         head: u16 0xdead, u64 length, `Head`
//! max_head  ring: entries, each u16 0xbeef, u64 length, bytes; one may go on at the start
//! size
//! ```
//!
//! A position counts how often it has been around the ring ("generation").

use crate::record::record;
use crate::{Context, Stop, fail};
use bytes::Bytes;
use nacre_base::Name;
use nacre_base::errno::{EEXIST, EINVAL, ENOSPC};
use nacre_wire::{Decode, Reader, to_vec};

const HEAD_START: u16 = 0xdead;
const ENTRY_START: u16 = 0xbeef;
/// The start and the length of a head or an entry.
const FRAME: u64 = 10;
/// Of a head, besides the data of the class that uses the queue.
const HEAD_LEN: u64 = 1024;
/// One listing reads no more than this beyond its first entry.
const LISTED_BYTES_MAX: u64 = 4 << 20;
const READ_AHEAD: u64 = 64 << 10;

record!(#[derive(Copy, Default)] Position, "cls_queue_marker", 1, { generation: u64, offset: u64 });
record!(Head, "cls_queue_head", 1, {
    /// Where the ring starts.
    max_head: u64,
    front: Position,
    tail: Position,
    /// Where the ring ends.
    size: u64,
    max_urgent: u64,
    /// What the class that uses the queue keeps in its head.
    urgent: Bytes,
});

impl Position {
    pub(crate) fn text(&self) -> Name {
        Name::from(format!("{}/{}", self.generation, self.offset))
    }
    /// None for text that is no position.
    pub(crate) fn parsed(text: &Name) -> Option<Position> {
        let (generation, offset) = std::str::from_utf8(text.as_bytes()).ok()?.split_once('/')?;
        Some(Position { generation: generation.parse().ok()?, offset: offset.parse().ok()? })
    }
}

/// An entry and where it is.
pub(crate) struct Entry {
    pub at: Position,
    pub data: Bytes,
}

pub(crate) struct Listing {
    pub entries: Vec<Entry>,
    /// Behind the last entry.
    pub next: Position,
    pub truncated: bool,
}

impl Head {
    fn capacity(&self) -> u64 {
        self.size - self.max_head
    }

    fn is_sound(&self) -> bool {
        let inside = |at: &Position| (self.max_head..=self.size).contains(&at.offset);
        self.max_head <= self.size
            && self.size <= i64::MAX as u64
            && inside(&self.front)
            && inside(&self.tail)
            && self.distance(self.front, self.tail).is_some_and(|used| used <= self.capacity())
    }

    /// From one position to one that is not before it, and no more than once around the ring.
    fn distance(&self, from: Position, to: Position) -> Option<u64> {
        match to.generation.checked_sub(from.generation)? {
            0 => to.offset.checked_sub(from.offset),
            1 => self.capacity().checked_sub(from.offset.checked_sub(to.offset)?),
            _ => None,
        }
    }

    fn advanced(&self, from: Position, by: u64) -> Position {
        let offset = from.offset + by;
        if by == 0 || offset < self.size {
            Position { offset, ..from }
        } else {
            Position { offset: offset - self.capacity(), generation: from.generation.wrapping_add(1) }
        }
    }

    /// The pieces of a range of the ring: (offset, length).
    fn pieces(&self, from: Position, len: u64) -> [(u64, u64); 2] {
        let first = len.min(self.size - from.offset);
        [(from.offset, first), (self.max_head, len - first)]
    }
}

pub(crate) fn init(ctx: &mut Context<'_>, capacity: u64, max_urgent: u64, urgent: Bytes) -> Result<(), Stop> {
    match read_head(ctx) {
        Ok(_) => return fail(EEXIST),
        Err(Stop::Failed(EINVAL)) => {}
        Err(stop) => return Err(stop),
    }
    let Some(max_head) = HEAD_LEN.checked_add(max_urgent) else { return fail(EINVAL) };
    let Some(size) = capacity.checked_add(max_head) else { return fail(EINVAL) };
    let start = Position { generation: 0, offset: max_head };
    write_head(ctx, &Head { max_head, front: start, tail: start, size, max_urgent, urgent })
}

/// EINVAL if there is none.
pub(crate) fn read_head(ctx: &mut Context<'_>) -> Result<Head, Stop> {
    let bytes = ctx.read(0, HEAD_LEN)?;
    let mut r = Reader::new(&bytes);
    let invalid = |_| Stop::Failed(EINVAL);
    if u16::decode(&mut r).map_err(invalid)? != HEAD_START {
        return fail(EINVAL);
    }
    let len = u64::decode(&mut r).map_err(invalid)?;
    let whole = match len.saturating_add(FRAME) {
        all if all > HEAD_LEN => ctx.read(0, all)?,
        _ => bytes.clone(),
    };
    let mut r = Reader::new(whole.get(FRAME as usize..).unwrap_or_default());
    let head = Head::decode(&mut r).map_err(invalid)?;
    if head.is_sound() { Ok(head) } else { fail(EINVAL) }
}

pub(crate) fn write_head(ctx: &mut Context<'_>, head: &Head) -> Result<(), Stop> {
    let body = to_vec(head);
    let mut bytes = to_vec(&(HEAD_START, body.len() as u64));
    bytes.extend(body);
    if bytes.len() as u64 > head.max_head {
        return fail(EINVAL);
    }
    ctx.write(0, bytes)
}

/// Adds an entry; the caller then writes the head.
pub(crate) fn enqueue(ctx: &mut Context<'_>, head: &mut Head, data: &[u8]) -> Result<(), Stop> {
    let mut bytes = to_vec(&(ENTRY_START, data.len() as u64));
    bytes.extend_from_slice(data);
    let len = bytes.len() as u64;
    let used = head.distance(head.front, head.tail).unwrap_or(u64::MAX);
    if used.saturating_add(len) > head.capacity() {
        return fail(ENOSPC);
    }
    let bytes = Bytes::from(bytes);
    let [(first, first_len), (second, second_len)] = head.pieces(head.tail, len);
    ctx.write(first, bytes.slice(..first_len as usize))?;
    if second_len > 0 {
        ctx.write(second, bytes.slice(first_len as usize..))?;
    }
    head.tail = head.advanced(head.tail, len);
    Ok(())
}

/// Up to `max` entries from a position on; from the front if there is none.
pub(crate) fn list(
    ctx: &mut Context<'_>,
    head: &Head,
    from: Option<Position>,
    max: u64,
) -> Result<Listing, Stop> {
    let from = from.unwrap_or(head.front);
    if head.distance(head.front, from).is_none() {
        return fail(EINVAL);
    }
    let Some(left) = head.distance(from, head.tail) else { return fail(EINVAL) };
    let mut ring = Ring { head, next: from, left, ahead: Vec::new() };
    let mut entries = Vec::new();
    let mut at = from;
    while ring.unread() > 0 && (entries.len() as u64) < max && left - ring.unread() <= LISTED_BYTES_MAX {
        let frame = ring.take(ctx, FRAME)?;
        let (start, len): (u16, u64) =
            Decode::decode(&mut Reader::new(&frame)).map_err(|_| Stop::Failed(EINVAL))?;
        if start != ENTRY_START {
            return fail(EINVAL);
        }
        entries.push(Entry { at, data: ring.take(ctx, len)?.into() });
        at = head.advanced(from, left - ring.unread());
    }
    Ok(Listing { entries, next: at, truncated: ring.unread() > 0 })
}

/// Reads the ring from a position on.
struct Ring<'h> {
    head: &'h Head,
    /// Of what was not read yet.
    next: Position,
    left: u64,
    ahead: Vec<u8>,
}

impl Ring<'_> {
    fn unread(&self) -> u64 {
        self.left + self.ahead.len() as u64
    }
    fn take(&mut self, ctx: &mut Context<'_>, len: u64) -> Result<Vec<u8>, Stop> {
        if len > self.unread() {
            return fail(EINVAL);
        }
        if let Some(more) = len.checked_sub(self.ahead.len() as u64).filter(|&more| more > 0) {
            let more = more.max(READ_AHEAD).min(self.left);
            for (offset, piece) in self.head.pieces(self.next, more) {
                let bytes = if piece > 0 { ctx.read(offset, piece)? } else { Bytes::new() };
                if bytes.len() as u64 != piece {
                    return fail(EINVAL);
                }
                self.ahead.extend_from_slice(&bytes);
            }
            self.next = self.head.advanced(self.next, more);
            self.left -= more;
        }
        let rest = self.ahead.split_off(len as usize);
        Ok(std::mem::replace(&mut self.ahead, rest))
    }
}

/// Forgets what is before a position; the caller then writes the head.
pub(crate) fn remove(ctx: &mut Context<'_>, head: &mut Head, end: Position) -> Result<(), Stop> {
    let (gone, used) = (head.distance(head.front, end), head.distance(head.front, head.tail));
    let Some(gone) = gone.filter(|gone| used.is_some_and(|used| *gone <= used)) else { return fail(EINVAL) };
    for (offset, len) in head.pieces(head.front, gone) {
        if len > 0 {
            ctx.zero(offset, len)?;
        }
    }
    head.front = head.advanced(head.front, gone);
    Ok(())
}
