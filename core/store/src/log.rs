//! Reading the write-ahead log back: which records are whole, torn by a crash, or corrupt, and what is lost
//! with them.
//!
//! Only one batch is written at a time, so a crash tears the last record only. A damaged record before a
//! whole one was durable, and is corrupt. Then the record after it repeats its head, and of its contents
//! only those are lost whose checksums fail; the head lists their blocks.

use crate::BLOCK;
use crate::aligned::Aligned;
use crate::content::Content;
use crate::disk::{Disk, DiskError};
use crate::format::{ENTRY_LEN, Geometry, PLACED_LEN, RECORD_HEADER, RecordHeader};
use nacre_wire::{Reader, crc32c};
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

/// The log is read this many bytes at a time.
const WINDOW: usize = 1 << 20;

/// A record's header, transactions, placed blocks and list of contents, whole.
#[derive(Debug)]
pub(crate) struct Head {
    pub header: RecordHeader,
    bytes: Vec<u8>,
}

/// A block whose content is in a record.
struct Entry {
    block: u32,
    len: usize,
    crc: u32,
}

impl Head {
    /// None if the bytes do not begin with one that is whole.
    fn from_bytes(bytes: &[u8]) -> Option<Head> {
        let (header, crc) = RecordHeader::decode(bytes)?;
        let head = bytes.get(..usize::try_from(header.head_len()).ok()?)?;
        (RecordHeader::crc_of(head) == crc).then(|| Head { header, bytes: head.to_vec() })
    }
    pub fn transactions(&self) -> &[u8] {
        &self.bytes[RECORD_HEADER..][..self.header.body_len as usize]
    }
    /// Pairs of block and checksum.
    pub fn placed(&self) -> impl Iterator<Item = (u32, u32)> {
        let from = RECORD_HEADER + self.header.body_len as usize;
        let pairs = self.bytes[from..][..self.header.placed as usize * PLACED_LEN].chunks_exact(PLACED_LEN);
        pairs.map(|pair| (u32_of(&pair[..4]), u32_of(&pair[4..])))
    }
    fn entries(&self) -> impl Iterator<Item = Entry> {
        let from = self.bytes.len() - self.header.contents as usize * ENTRY_LEN;
        self.bytes[from..].chunks_exact(ENTRY_LEN).map(|entry| Entry {
            block: u32_of(&entry[..4]),
            len: usize::from(u16::from_le_bytes([entry[4], entry[5]])),
            crc: u32_of(&entry[6..]),
        })
    }
    pub fn blocks(&self) -> u64 {
        self.header.record_len().div_ceil(BLOCK as u64)
    }
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

fn u32_of(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes.try_into().expect("four bytes"))
}

/// One record, at least its head.
#[derive(Debug)]
pub(crate) struct Record {
    pub head: Head,
    /// What each block will hold; None where the bytes are damaged.
    pub contents: Vec<(u32, Option<Content>)>,
    /// Its own head was damaged, and read from the record behind it.
    pub repaired: bool,
}

/// What comes next in the log.
#[derive(Debug)]
pub(crate) enum Next {
    Record(Record),
    /// A damaged record without transactions, up to this position. It only said of blocks that they are in
    /// their place, and where that is not known they are brought there again.
    Notes {
        end: u64,
    },
    /// Nothing. `torn`: a record was being written when the store died.
    End {
        torn: bool,
    },
    /// Unreadable bytes are followed by whole records, which were durable and are lost with them.
    Gap {
        /// Where the log continues after the last of them.
        pos: u64,
        /// The number of the last of their transactions.
        last_seq: u64,
    },
}

pub(crate) struct LogReader<'a, D: Disk + ?Sized> {
    disk: &'a D,
    geometry: Geometry,
    /// No record begins here or later.
    end: u64,
    /// The last block that cannot be read, and why. It is treated as corrupt where something whole comes
    /// after it. Elsewhere it is unknown what it held.
    unreadable: RefCell<Option<(u64, DiskError)>>,
    /// What was read last, and its position.
    window: RefCell<(u64, Rc<Aligned>)>,
}

/// Whole blocks of the log.
struct Blocks {
    window: Rc<Aligned>,
    range: Range<usize>,
}

impl AsRef<[u8]> for Blocks {
    fn as_ref(&self) -> &[u8] {
        &(*self.window).as_ref()[self.range.clone()]
    }
}

impl<'a, D: Disk + ?Sized> LogReader<'a, D> {
    /// Of the log that begins at position `start`.
    pub fn new(disk: &'a D, geometry: Geometry, start: u64) -> LogReader<'a, D> {
        LogReader {
            disk,
            geometry,
            end: start + u64::from(geometry.log_blocks),
            unreadable: RefCell::default(),
            window: RefCell::new((start, Rc::new(Aligned::zeroed(0)))),
        }
    }

    /// The record at `pos`, whose first transaction should be number `seq`.
    pub fn next(&self, pos: u64, seq: u64) -> Result<Next, DiskError> {
        let here = self.head_at(pos);
        if let Some(head) = here.filter(|head| head.header.first_seq == seq) {
            let behind = pos + head.blocks();
            let record = self.contents(head, false);
            let is_whole = record.contents.iter().all(|(_, content)| content.is_some());
            if is_whole || self.later(behind).is_some() {
                return Ok(Next::Record(record));
            }
            return self.at_end(pos, true);
        }
        let Some(later) = self.later(pos + 1) else {
            return self.at_end(pos, self.header_at(pos).is_some());
        };
        let repeated = self.repeated(&later).filter(|head| {
            let header = &head.header;
            (header.pos, header.first_seq, pos + head.blocks()) == (pos, seq, later.header.pos)
        });
        if let Some(head) = repeated {
            return Ok(Next::Record(self.contents(head, true)));
        }
        if later.header.first_seq == seq {
            return Ok(Next::Notes { end: later.header.pos });
        }
        let mut last = later;
        loop {
            let pos = last.header.pos + last.blocks();
            let Some(later) = self.head_at(pos).or_else(|| self.later(pos + 1)) else {
                let last_seq = last.header.first_seq + last.header.count - 1;
                return Ok(Next::Gap { pos, last_seq });
            };
            last = later;
        }
    }

    fn at_end(&self, pos: u64, torn: bool) -> Result<Next, DiskError> {
        match self.unreadable.borrow().as_ref().filter(|(at, _)| *at >= pos) {
            Some((_, error)) => Err(error.clone()),
            None => Ok(Next::End { torn }),
        }
    }

    /// Whole blocks; zeros where they cannot be read. With what comes behind them, which is asked for next.
    fn blocks(&self, pos: u64, count: u64) -> Blocks {
        let len = count as usize * BLOCK;
        let mut window = self.window.borrow_mut();
        let (first, bytes) = (window.0, &window.1);
        let is_there = first <= pos && pos + count <= first + (bytes.len() / BLOCK) as u64;
        if !is_there {
            let wanted = ((WINDOW / BLOCK) as u64).min(self.end.saturating_sub(pos)).max(count);
            *window = (pos, Rc::new(self.read_blocks(pos, wanted)));
        }
        let from = (pos - window.0) as usize * BLOCK;
        Blocks { window: window.1.clone(), range: from..from + len }
    }
    fn read_blocks(&self, pos: u64, count: u64) -> Aligned {
        let mut bytes = Aligned::zeroed(count as usize * BLOCK);
        let ring = u64::from(self.geometry.log_blocks);
        let before_end = (ring - pos % ring).min(count);
        let (front, back) = bytes.as_mut().split_at_mut(before_end as usize * BLOCK);
        self.read(pos, front);
        self.read(pos + before_end, back);
        bytes
    }
    fn read(&self, pos: u64, into: &mut [u8]) {
        let read = |pos, into: &mut [u8]| match self.disk.log() {
            Some(log) => log.read_at(self.geometry.log_offset(pos), into),
            None => self.disk.read_at(self.geometry.log_offset(pos), into),
        };
        if into.is_empty() || read(pos, into).is_ok() {
            return;
        }
        for (at, block) in (pos..).zip(into.chunks_exact_mut(BLOCK)) {
            if let Err(error) = read(at, block) {
                block.fill(0);
                let mut unreadable = self.unreadable.borrow_mut();
                if unreadable.as_ref().is_none_or(|(known, _)| *known < at) {
                    *unreadable = Some((at, error));
                }
            }
        }
    }

    fn header_at(&self, pos: u64) -> Option<RecordHeader> {
        (pos < self.end).then(|| self.blocks(pos, 1)).and_then(|block| self.header_in(block.as_ref(), pos))
    }
    /// The header that a block at `pos` begins with, if it is of a record that can be there.
    fn header_in(&self, block: &[u8], pos: u64) -> Option<RecordHeader> {
        let (header, _) = RecordHeader::decode(block)?;
        let fits = header.record_len().div_ceil(BLOCK as u64) <= self.end - pos;
        // Numbers that no store comes to would overflow.
        let is_sane = header.first_seq >= 1
            && header.first_seq <= u64::MAX / 2
            && header.count <= u64::from(header.body_len);
        ((header.log_id, header.pos) == (self.geometry.log_id, pos) && fits && is_sane).then_some(header)
    }
    fn head_at(&self, pos: u64) -> Option<Head> {
        let header = self.header_at(pos)?;
        let head = self.blocks(pos, header.head_len().div_ceil(BLOCK as u64));
        Head::from_bytes(head.as_ref())
    }
    /// The first whole head from `pos` on.
    fn later(&self, mut pos: u64) -> Option<Head> {
        while pos < self.end {
            let count = (self.end - pos).min((WINDOW / BLOCK) as u64);
            let bytes = self.blocks(pos, count);
            for (at, block) in (pos..).zip(bytes.as_ref().chunks_exact(BLOCK)) {
                if self.header_in(block, at).is_some()
                    && let Some(head) = self.head_at(at)
                {
                    return Some(head);
                }
            }
            pos += count;
        }
        None
    }

    /// The head of the record before, as this record has it.
    fn repeated(&self, of: &Head) -> Option<Head> {
        let RecordHeader { pos, contents_len, repeat_len, .. } = of.header;
        let from = of.header.head_len() as usize + contents_len as usize;
        let bytes = self.blocks(pos, of.blocks());
        let head = Head::from_bytes(&bytes.as_ref()[from..][..repeat_len as usize])?;
        let header = self.header_in(&head.bytes, head.header.pos.min(self.end));
        header.is_some().then_some(head)
    }

    fn contents(&self, head: Head, repaired: bool) -> Record {
        let bytes = self.blocks(head.header.pos, head.blocks());
        let all = &bytes.as_ref()[head.header.head_len() as usize..][..head.header.contents_len as usize];
        let mut rest = Reader::new(all);
        let contents = head.entries().map(|entry| {
            let bytes = rest.take(entry.len).unwrap_or_default();
            let whole = crc32c(u32::MAX, bytes) == entry.crc;
            (entry.block, whole.then(|| Content::from_log(bytes).ok()).flatten())
        });
        let contents = contents.collect();
        Record { head, contents, repaired }
    }
}
