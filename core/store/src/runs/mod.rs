//! The checkpoint on the device: the sorted runs of a log-structured merge tree, newer ones over older ones.
//!
//! A sorted run is written once and never changed. Its entries are in pages (`page.rs`) with a checksum
//! each. Its directory and its Bloom filter are in memory (`directory.rs`, `bloom.rs`). A newer run's entry
//! overrides an older run's. `writer.rs` writes runs: of changed objects for a checkpoint, or of older runs
//! for a compaction (`compaction.rs`).

pub(crate) mod bloom;
pub(crate) mod compaction;
pub(crate) mod directory;
pub(crate) mod page;
pub(crate) mod writer;

use crate::BLOCK;
use crate::aligned::Aligned;
use crate::checkpoint::CHUNK_BLOCKS_MAX;
use crate::disk::{Disk, DiskError};
use crate::format::{self, ChunkHeader, Geometry};
use crate::index::Totals;
use crate::open::OpenError;
use crate::space::Extent;
use bloom::BloomFilter;
use bytes::Bytes;
use directory::{Directory, Fences, Owners};
use nacre_proto::transaction::StoredId;
use nacre_wire::{crc32c, from_slice};

/// A sorted run of the durable checkpoint, as much of it as is in memory.
#[derive(Debug)]
pub(crate) struct SortedRun {
    /// What the superblock says of it.
    pub named: format::RunRef,
    /// Of its directory.
    pub chunks: Vec<Extent>,
    /// Of its pages.
    pub extents: Vec<Extent>,
    /// How many of the sorted run's blocks are before each extent.
    before: Vec<u32>,
    pub fences: Fences,
    filter: BloomFilter,
    pub entries: u64,
    pub totals: Totals,
    /// No other sorted run of this store has it, for as long as it is open.
    pub serial: u64,
}

/// Why a page cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PageError {
    #[error("{0}")]
    Disk(#[from] DiskError),
    #[error("checksum of {extent:?} is {found:08x}, not {expected:08x}")]
    Checksum { extent: Extent, expected: u32, found: u32 },
    #[error("{0}")]
    Decode(#[from] nacre_wire::DecodeError),
    #[error("its objects are not in order")]
    Order,
    #[error("its blocks cannot be its own")]
    Blocks,
}

impl SortedRun {
    pub fn new(named: format::RunRef, chunks: Vec<Extent>, directory: Directory) -> SortedRun {
        let Directory { totals, entries, extents, fences, filter, owners: _ } = directory;
        let mut sum = 0;
        let start_of = |extent: &Extent| {
            sum += extent.len;
            sum - extent.len
        };
        let before = extents.iter().map(start_of).collect();
        SortedRun { named, chunks, extents, before, fences, filter, entries, totals, serial: 0 }
    }
    pub fn with_serial(self, serial: u64) -> SortedRun {
        SortedRun { serial, ..self }
    }
    pub fn blocks(&self) -> u64 {
        self.all_extents().map(|extent| u64::from(extent.len)).sum()
    }
    pub fn all_extents(&self) -> impl Iterator<Item = Extent> + '_ {
        self.chunks.iter().chain(&self.extents).copied()
    }
    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.fences.bytes() + self.filter.0.len() + self.extents.capacity() * 12 + size_of::<SortedRun>()
    }
    pub fn may_have(&self, hash: u64) -> bool {
        self.filter.may_have(hash)
    }

    /// Reads a page, and verifies it.
    pub fn read_page(&self, page: usize, disk: &(impl Disk + ?Sized)) -> Result<Bytes, PageError> {
        let (extent, crc) = self.fences.page(page);
        let bytes = self.read_page_as_it_is(page, disk)?;
        let found = crc32c(u32::MAX, bytes.as_ref());
        if found != crc {
            return Err(PageError::Checksum { extent, expected: crc, found });
        }
        Ok(Bytes::from_owner(bytes))
    }
    pub fn read_page_as_it_is(&self, page: usize, disk: &(impl Disk + ?Sized)) -> Result<Aligned, DiskError> {
        let (extent, _) = self.fences.page(page);
        let mut bytes = Aligned::zeroed(extent.len as usize * BLOCK);
        let mut at = extent.start;
        let mut rest = bytes.as_mut();
        while !rest.is_empty() {
            let piece = self.before.partition_point(|before| *before <= at) - 1;
            let skipped = at - self.before[piece];
            let here = self.extents[piece];
            let len = (here.len - skipped).min((rest.len() / BLOCK) as u32);
            let (part, others) = rest.split_at_mut(len as usize * BLOCK);
            disk.read_at(u64::from(here.start + skipped) * BLOCK as u64, part)?;
            at += len;
            rest = others;
        }
        Ok(bytes)
    }
}

/// A sorted run, and the reference counts that changed since the one before.
pub(crate) type Opened = (SortedRun, Owners);

/// Reads what a sorted run says about itself.
pub(crate) fn open(
    disk: &(impl Disk + ?Sized),
    geometry: &Geometry,
    named: format::RunRef,
) -> Result<Opened, OpenError> {
    let generation = named.generation;
    let (payload, chunks) = read_chunks(disk, geometry, named)?;
    let directory: Directory =
        from_slice(&payload).map_err(|error| OpenError::CheckpointContent { generation, error })?;
    let wrong = |what, extent: Extent| OpenError::Checkpoint { generation, what, block: extent.start };
    for extent in &directory.extents {
        if extent.len == 0 || !geometry.holds_data(*extent) {
            return Err(wrong("impossible pages", *extent));
        }
    }
    for (extent, _) in &directory.owners.blocks {
        if !geometry.holds_data(*extent) {
            return Err(wrong("owners outside of the data area", *extent));
        }
    }
    let blocks: u64 = directory.extents.iter().map(|extent| u64::from(extent.len)).sum();
    // The same extent twice would make a page longer than the device.
    if blocks != u64::from(directory.fences.blocks()) || blocks > geometry.data_blocks().into() {
        return Err(wrong("pages without a place", named.last_chunk));
    }
    // Compaction makes a filter for as many.
    if directory.entries > blocks * BLOCK as u64 / page::ENTRY_MIN {
        return Err(wrong("more entries than its pages can hold", named.last_chunk));
    }
    let mut directory = directory;
    let owners = std::mem::take(&mut directory.owners);
    Ok((SortedRun::new(named, chunks, directory), owners))
}

/// Follows the chain from the last chunk to the first. Gives all payload, and the places first to last.
pub(crate) fn read_chunks(
    disk: &(impl Disk + ?Sized),
    geometry: &Geometry,
    named: format::RunRef,
) -> Result<(Vec<u8>, Vec<Extent>), OpenError> {
    let generation = named.generation;
    let (mut extents, mut payloads) = (Vec::new(), Vec::new());
    let mut extent = named.last_chunk;
    let mut len = 0;
    for number in (0..named.chunks).rev() {
        let wrong = |what| OpenError::Checkpoint { generation, what, block: extent.start };
        if extent.len == 0 || extent.len > CHUNK_BLOCKS_MAX || !geometry.holds_data(extent) {
            return Err(wrong("impossible chunk"));
        }
        let mut chunk = Aligned::zeroed(extent.len as usize * BLOCK);
        disk.read_at(u64::from(extent.start) * BLOCK as u64, chunk.as_mut())?;
        let Some((header, payload)) = ChunkHeader::decode(chunk.as_ref()) else {
            return Err(wrong("damaged chunk"));
        };
        if (header.uuid, header.generation, header.number) != (geometry.uuid, generation, number) {
            return Err(wrong("another checkpoint's chunk"));
        }
        len += payload.len() as u64;
        if len > named.payload_len {
            return Err(wrong("too long a chunk"));
        }
        payloads.push(payload.to_vec());
        extents.push(extent);
        extent = header.prev;
    }
    payloads.reverse();
    extents.reverse();
    Ok((payloads.concat(), extents))
}

/// A way along the entries of a sorted run.
#[derive(Debug)]
pub(crate) struct Cursor {
    page: usize,
    /// Of the page: what is still to come, from the last one on.
    entries: Vec<(StoredId, page::Kind, Bytes)>,
    /// The last object of the page.
    last: Option<StoredId>,
}

impl Cursor {
    /// Of everything.
    pub fn new() -> Cursor {
        Cursor { page: 0, entries: Vec::new(), last: None }
    }
    /// From a page on.
    pub fn at(page: usize) -> Cursor {
        Cursor { page, ..Cursor::new() }
    }
    /// The one that could not be read.
    pub fn skip_page(&mut self) {
        self.entries.clear();
        self.page += 1;
    }
    /// Has to be called before `peek` and `next`: brings the next page if the last one is over.
    pub fn ready(
        &mut self,
        run: &SortedRun,
        mut read: impl FnMut(usize) -> Result<Bytes, PageError>,
    ) -> Result<(), PageError> {
        while self.entries.is_empty() && self.page < run.fences.len() {
            self.fill(&mut read)?;
        }
        Ok(())
    }
    pub fn peek(&self) -> Option<&StoredId> {
        self.entries.last().map(|(id, ..)| id)
    }
    pub fn next(&mut self) -> Option<(StoredId, page::Kind, Bytes)> {
        self.entries.pop()
    }
    fn fill(&mut self, read: &mut impl FnMut(usize) -> Result<Bytes, PageError>) -> Result<(), PageError> {
        let bytes = read(self.page)?;
        for entry in page::entries(&bytes) {
            let page::Entry { kind, id, body } = entry?;
            let last = self.entries.last().map(|(last, ..)| last).or(self.last.as_ref());
            if last.is_some_and(|last| *last >= id) {
                return Err(PageError::Order);
            }
            self.entries.push((id, kind, bytes.slice_ref(body)));
        }
        self.last = self.entries.last().map(|(last, ..)| last.clone()).or(self.last.take());
        self.entries.reverse();
        self.page += 1;
        Ok(())
    }
}

/// The entry of an object in a page.
pub(crate) fn find_in<'a>(page: &'a [u8], id: &StoredId) -> Result<Option<page::Entry<'a>>, PageError> {
    for entry in page::entries(page) {
        let entry = entry?;
        if entry.id >= *id {
            return Ok((entry.id == *id).then_some(entry));
        }
    }
    Ok(None)
}
