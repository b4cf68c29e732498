//! Group commit: everything that is queued becomes durable with one write of the log. Data too large for the
//! log is written and flushed before that.

use crate::BLOCK;
use crate::aligned::Aligned;
use crate::content::Content;
use crate::disk::{Disk, DiskError};
use crate::format::{ENTRY_LEN, Geometry, PLACED_LEN, RECORD_HEADER, RecordHeader, SUPERBLOCKS, Superblock};
use crate::runs::writer::Chunks;
use bytes::Bytes;
use nacre_wire::crc32c;

/// Writes are joined up to this many bytes where blocks are neighbours.
const WRITE_MAX: usize = 1 << 20;
/// What is this long is written from where it is: to copy it would cost more than a write of its own.
const JOINED_MAX: usize = 64 << 10;

#[derive(Debug)]
pub(crate) struct Record {
    pub pos: u64,
    pub first_seq: u64,
    pub count: u64,
    pub body: Vec<u8>,
    /// Block and checksum of what was in the log and is in its place now.
    pub placed: Vec<(u32, u32)>,
    /// Blocks that will be placed later, and what they are to hold.
    pub listed: Vec<(u32, Content)>,
    /// Bytes that all of these take, entries and contents.
    pub listed_len: usize,
    /// The head of the record before, or nothing.
    pub repeat: Vec<u8>,
}

/// A longer head is not repeated in the next record.
pub(crate) const REPEAT_MAX: usize = 64 << 10;

/// Work for the disk, in the order in which it must become durable. Plain data; one at a time.
#[derive(Debug)]
pub struct Batch {
    pub(crate) id: u64,
    pub(crate) geometry: Geometry,
    /// What is too much for the log: first block, and bytes of one block or several.
    pub(crate) fresh: Vec<(u32, Bytes)>,
    pub(crate) chunks: Chunks,
    pub(crate) record: Option<Record>,
    /// Ends a checkpoint.
    pub(crate) superblock: Option<Superblock>,
}

/// What `Store::finished` needs to know about a batch that is durable.
#[derive(Debug)]
pub struct Done {
    pub(crate) id: u64,
    /// Block and checksum of the fresh blocks.
    pub(crate) crcs: Vec<(u32, u32)>,
    /// What the next record should repeat: the head of this one, if there is one.
    pub(crate) head: Option<Vec<u8>>,
}

impl Batch {
    /// Bytes that this will write, roughly: what a simulated disk charges time for.
    pub fn cost(&self) -> usize {
        let chunks: usize = self.chunks.iter().map(|(_, bytes)| bytes.len()).sum();
        let record = self.record.as_ref().map_or(0, |r| r.body.len() + r.listed_len + BLOCK);
        blocks_in(&self.fresh) * BLOCK + chunks + record
    }

    /// Carries it out. After an error nothing more may be committed: the store has to be opened anew.
    pub fn commit(self, disk: &(impl Disk + ?Sized)) -> Result<Done, DiskError> {
        let crcs = |(first, bytes): &(u32, Bytes)| {
            let first = *first;
            let crcs = bytes.chunks_exact(BLOCK).map(|block| crc32c(u32::MAX, block));
            (first..).zip(crcs.collect::<Vec<_>>())
        };
        let crcs: Vec<(u32, u32)> = self.fresh.iter().flat_map(crcs).collect();
        let mut writes: Vec<(u32, &[u8])> = self.fresh.iter().map(|(b, bytes)| (*b, &bytes[..])).collect();
        writes.extend(self.chunks.iter().map(|(extent, bytes)| (extent.start, &bytes[..])));
        write_joined(&mut writes, |writes| disk.write_many(writes))?;
        if !writes.is_empty() {
            // The log must never name a block that a power cut could still take away.
            disk.flush()?;
        }
        let head = self.record.map(|record| append(disk, &self.geometry, record, &crcs)).transpose()?;
        if let Some(superblock) = self.superblock {
            let bytes = superblock.encode();
            // What opening relies on: after this one is written, the one before is gone.
            assert_eq!(Superblock::decode(&bytes), Ok(superblock), "a superblock reads back");
            // One after the other: a torn first copy must leave the second one whole. Only after
            // both may the log before this checkpoint be overwritten.
            for copy in SUPERBLOCKS {
                disk.write_at(copy * BLOCK as u64, &bytes)?;
                disk.flush()?;
            }
        }
        Ok(Done { id: self.id, crcs, head })
    }
}

/// A batch that is one durable write of the log, for a driver that does the write itself.
#[derive(Debug)]
pub struct Append {
    id: u64,
    offset: u64,
    bytes: Aligned,
    head_len: usize,
}

impl Batch {
    /// Whether it is one durable write of the log and nothing else, as most are.
    pub fn is_append(&self) -> bool {
        let is_alone = self.fresh.is_empty() && self.chunks.is_empty() && self.superblock.is_none();
        // The log's end is written before its beginning.
        let goes_round = |record: &Record| before_end(&self.geometry, record.pos) < record.blocks(0);
        is_alone && self.record.as_ref().is_some_and(|record| !goes_round(record))
    }
    /// If `is_append`.
    pub fn into_append(self) -> Append {
        assert!(self.is_append(), "more than one write");
        let record = self.record.expect("it has one");
        let offset = self.geometry.log_offset(record.pos);
        let (bytes, head_len) = encode(&self.geometry, record, &[]);
        Append { id: self.id, offset, bytes, head_len }
    }
}

impl Append {
    /// Where on the log's device.
    pub fn offset(&self) -> u64 {
        self.offset
    }
    /// They stay where they are in memory.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.as_ref()
    }
    /// Does the write.
    pub fn commit(self, disk: &(impl Disk + ?Sized)) -> Result<Done, DiskError> {
        write_log(disk, self.offset, self.bytes())?;
        Ok(self.done())
    }
    /// The write is durable.
    pub fn done(self) -> Done {
        Done { id: self.id, crcs: Vec::new(), head: Some(head(&self.bytes, self.head_len)) }
    }
}

/// How many blocks these are.
pub(crate) fn blocks_in(fresh: &[(u32, Bytes)]) -> usize {
    fresh.iter().map(|(_, bytes)| bytes.len() / BLOCK).sum()
}

/// Joins what are neighbours, and writes all in few calls. Not durable when it returns.
pub(crate) fn write_joined(
    writes: &mut [(u32, &[u8])],
    write: impl Fn(&[(u64, &[u8])]) -> Result<(), DiskError>,
) -> Result<(), DiskError> {
    writes.sort_by_key(|(block, _)| *block);
    let mut rest = &*writes;
    while !rest.is_empty() {
        // As many as there is space for the copied data.
        let mut copied = 0;
        let fits = |(_, bytes): &&(u32, &[u8])| {
            copied += if bytes.len() < JOINED_MAX { bytes.len() } else { 0 };
            copied <= WRITE_MAX
        };
        let (these, others) = rest.split_at(rest.iter().take_while(fits).count());
        write_these(these, &write)?;
        rest = others;
    }
    Ok(())
}

fn write_these(
    writes: &[(u32, &[u8])],
    write: impl Fn(&[(u64, &[u8])]) -> Result<(), DiskError>,
) -> Result<(), DiskError> {
    let is_long = |bytes: &[u8]| bytes.len() >= JOINED_MAX;
    let short = writes.iter().map(|(_, bytes)| *bytes).filter(|bytes| !is_long(bytes));
    let mut joined = Aligned::with_capacity(short.clone().map(<[u8]>::len).sum());
    short.for_each(|bytes| joined.extend_from_slice(bytes));
    let mut joined = joined.as_ref();
    let mut out: Vec<(u64, &[u8])> = Vec::with_capacity(writes.len());
    let mut pieces =
        writes.iter().map(|(block, bytes)| (u64::from(*block) * BLOCK as u64, *bytes)).peekable();
    while let Some((offset, bytes)) = pieces.next() {
        if is_long(bytes) {
            out.push((offset, bytes));
            continue;
        }
        let mut len = bytes.len();
        while let Some((_, next)) = pieces.next_if(|(at, next)| *at == offset + len as u64 && !is_long(next))
        {
            len += next.len();
        }
        out.push((offset, joined.split_off(..len).expect("all short ones are in it")));
    }
    write(&out)
}

/// Blocks of log that a record takes. `listed_len` is of contents together with their entries.
pub(crate) fn record_blocks(body_len: usize, placed: usize, listed_len: usize, repeat_len: usize) -> u64 {
    (RECORD_HEADER + body_len + placed * PLACED_LEN + listed_len + repeat_len).div_ceil(BLOCK) as u64
}

impl Record {
    /// `fresh` blocks were placed for it.
    pub fn blocks(&self, fresh: usize) -> u64 {
        record_blocks(self.body.len(), self.placed.len() + fresh, self.listed_len, self.repeat.len())
    }
}

/// Durable when it returns. Gives the head, to be repeated.
fn append(
    disk: &(impl Disk + ?Sized),
    geometry: &Geometry,
    record: Record,
    crcs: &[(u32, u32)],
) -> Result<Vec<u8>, DiskError> {
    let (pos, before_end) = (record.pos, before_end(geometry, record.pos));
    let (bytes, head_len) = encode(geometry, record, crcs);
    let all = bytes.as_ref();
    let (first, second) = all.split_at(all.len().min(before_end as usize * BLOCK));
    write_log(disk, geometry.log_offset(pos), first)?;
    if !second.is_empty() {
        write_log(disk, geometry.log_offset(pos + before_end), second)?;
    }
    Ok(head(&bytes, head_len))
}

fn write_log(disk: &(impl Disk + ?Sized), offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
    match disk.log() {
        Some(log) => log.write_durable(offset, bytes),
        None => disk.write_durable(offset, bytes),
    }
}

/// Blocks of the log from there to its end.
fn before_end(geometry: &Geometry, pos: u64) -> u64 {
    u64::from(geometry.log_blocks) - pos % u64::from(geometry.log_blocks)
}

/// What the next record should repeat of this one.
fn head(bytes: &Aligned, head_len: usize) -> Vec<u8> {
    if head_len <= REPEAT_MAX { bytes.as_ref()[..head_len].to_vec() } else { Vec::new() }
}

/// As it is in the log, and how long its head is. `crcs` are those of fresh blocks.
fn encode(geometry: &Geometry, record: Record, crcs: &[(u32, u32)]) -> (Aligned, usize) {
    let placed = record.placed.len() + crcs.len();
    let len = |len: usize| u32::try_from(len).expect("a record is smaller than the log");
    let header = RecordHeader {
        log_id: geometry.log_id,
        pos: record.pos,
        first_seq: record.first_seq,
        count: record.count,
        body_len: len(record.body.len()),
        placed: len(placed),
        contents: len(record.listed.len()),
        contents_len: len(record.listed_len - record.listed.len() * ENTRY_LEN),
        repeat_len: len(record.repeat.len()),
    };
    let blocks = record.blocks(crcs.len());
    let mut bytes = Aligned::with_capacity(blocks as usize * BLOCK);
    bytes.pad_to(RECORD_HEADER);
    bytes.extend_from_slice(&record.body);
    for (block, crc) in record.placed.iter().chain(crcs) {
        bytes.extend_from_slice(&block.to_le_bytes());
        bytes.extend_from_slice(&crc.to_le_bytes());
    }
    // The list stands before the contents, and says how long they are, and their checksums.
    let list = bytes.len();
    let head_len = list + record.listed.len() * ENTRY_LEN;
    bytes.pad_to(head_len);
    for ((block, content), at) in record.listed.iter().zip((list..).step_by(ENTRY_LEN)) {
        let from = bytes.len();
        content.log(|piece| bytes.extend_from_slice(piece));
        let logged = &bytes.as_ref()[from..];
        let (len, crc) = (logged.len() as u16, crc32c(u32::MAX, logged));
        let entry = &mut bytes.as_mut()[at..at + ENTRY_LEN];
        entry[..4].copy_from_slice(&block.to_le_bytes());
        entry[4..6].copy_from_slice(&len.to_le_bytes());
        entry[6..].copy_from_slice(&crc.to_le_bytes());
    }
    assert_eq!(bytes.len() - list, record.listed_len, "contents are as long as they were counted");
    header.seal(&mut bytes.as_mut()[..head_len]);
    bytes.extend_from_slice(&record.repeat);
    // What `LogReader` relies on: the head reads back as it was written, and says where the next record
    // begins.
    let read_back = RecordHeader::decode(bytes.as_ref()).map(|(header, _)| header);
    assert_eq!(read_back, Some(header), "the head of a record reads back");
    assert_eq!(bytes.len() as u64, header.record_len(), "a record is as long as its head says");
    assert_eq!(
        header.record_len().div_ceil(BLOCK as u64),
        blocks,
        "a record takes the blocks that it was given"
    );
    bytes.pad_to(blocks as usize * BLOCK);
    (bytes, head_len)
}
