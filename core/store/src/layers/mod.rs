//! The checkpoint on the device: layers of things in order, the newest over the older ones.
//!
//! A layer is written once and never changed. Its entries lie in pages (`page.rs`), each with a checksum; which page
//! has a thing, and which things are surely absent, is in memory (`directory.rs`, `filter.rs`). What a newer layer
//! says of a thing counts. `writer.rs` makes layers, of what changed or (`merge.rs`) of several older ones.

pub(crate) mod directory;
pub(crate) mod filter;
pub(crate) mod merge;
pub(crate) mod page;
pub(crate) mod writer;

use crate::BLOCK;
use crate::aligned::Aligned;
use crate::checkpoint::CHUNK_BLOCKS_MAX;
use crate::disk::{Disk, DiskError};
use crate::format::{self, ChunkHeader, Geometry};
use crate::index::Totals;
use crate::open::OpenError;
use crate::space::Run;
use bytes::Bytes;
use directory::{Directory, Fences, Owners};
use filter::Filter;
use nacre_proto::transaction::StoredId;
use nacre_wire::{crc32c, from_slice};

/// A layer of the durable checkpoint, as much of it as is in memory.
#[derive(Debug)]
pub(crate) struct Layer {
    /// What the superblock says of it.
    pub named: format::Layer,
    /// Of its directory.
    pub chunks: Vec<Run>,
    /// Of its pages.
    pub runs: Vec<Run>,
    /// How many of the layer's blocks are before each run.
    before: Vec<u32>,
    pub fences: Fences,
    filter: Filter,
    pub entries: u64,
    pub totals: Totals,
    /// No other layer of this store has it, for as long as it is open.
    pub serial: u64,
}

/// Why a page cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PageError {
    #[error("{0}")]
    Disk(#[from] DiskError),
    #[error("checksum of {run:?} is {found:08x}, not {expected:08x}")]
    Checksum { run: Run, expected: u32, found: u32 },
    #[error("{0}")]
    Decode(#[from] nacre_wire::DecodeError),
    #[error("its things are not in order")]
    Order,
    #[error("its blocks cannot be its own")]
    Blocks,
}

impl Layer {
    pub fn new(named: format::Layer, chunks: Vec<Run>, directory: Directory) -> Layer {
        let Directory { totals, entries, runs, fences, filter, owners: _ } = directory;
        let mut sum = 0;
        let start_of = |run: &Run| {
            sum += run.len;
            sum - run.len
        };
        let before = runs.iter().map(start_of).collect();
        Layer { named, chunks, runs, before, fences, filter, entries, totals, serial: 0 }
    }
    pub fn with_serial(self, serial: u64) -> Layer {
        Layer { serial, ..self }
    }
    pub fn blocks(&self) -> u64 {
        self.all_runs().map(|run| u64::from(run.len)).sum()
    }
    pub fn all_runs(&self) -> impl Iterator<Item = Run> + '_ {
        self.chunks.iter().chain(&self.runs).copied()
    }
    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.fences.bytes() + self.filter.0.len() + self.runs.capacity() * 12 + size_of::<Layer>()
    }
    pub fn may_have(&self, hash: u64) -> bool {
        self.filter.may_have(hash)
    }

    /// Reads a page, and verifies it.
    pub fn read_page(&self, page: usize, disk: &(impl Disk + ?Sized)) -> Result<Bytes, PageError> {
        let (run, crc) = self.fences.page(page);
        let bytes = self.read_page_as_it_is(page, disk)?;
        let found = crc32c(u32::MAX, bytes.as_ref());
        if found != crc {
            return Err(PageError::Checksum { run, expected: crc, found });
        }
        Ok(Bytes::from_owner(bytes))
    }
    pub fn read_page_as_it_is(&self, page: usize, disk: &(impl Disk + ?Sized)) -> Result<Aligned, DiskError> {
        let (run, _) = self.fences.page(page);
        let mut bytes = Aligned::zeroed(run.len as usize * BLOCK);
        let mut at = run.start;
        let mut rest = bytes.as_mut();
        while !rest.is_empty() {
            let piece = self.before.partition_point(|before| *before <= at) - 1;
            let skipped = at - self.before[piece];
            let here = self.runs[piece];
            let len = (here.len - skipped).min((rest.len() / BLOCK) as u32);
            let (part, others) = rest.split_at_mut(len as usize * BLOCK);
            disk.read_at(u64::from(here.start + skipped) * BLOCK as u64, part)?;
            at += len;
            rest = others;
        }
        Ok(bytes)
    }
}

/// A layer and who owns what since the one before.
pub(crate) type Opened = (Layer, Owners);

/// Reads what a layer says about itself.
pub(crate) fn open(
    disk: &(impl Disk + ?Sized),
    geometry: &Geometry,
    named: format::Layer,
) -> Result<Opened, OpenError> {
    let generation = named.generation;
    let (payload, chunks) = read_chunks(disk, geometry, named)?;
    let directory: Directory =
        from_slice(&payload).map_err(|error| OpenError::CheckpointContent { generation, error })?;
    let wrong = |what, run: Run| OpenError::Checkpoint { generation, what, block: run.start };
    for run in &directory.runs {
        if run.len == 0 || !geometry.holds_data(*run) {
            return Err(wrong("impossible pages", *run));
        }
    }
    for (run, _) in &directory.owners.blocks {
        if !geometry.holds_data(*run) {
            return Err(wrong("owners outside of the data area", *run));
        }
    }
    let blocks: u64 = directory.runs.iter().map(|run| u64::from(run.len)).sum();
    // The same run twice would make a page longer than the device.
    if blocks != u64::from(directory.fences.blocks()) || blocks > geometry.data_blocks().into() {
        return Err(wrong("pages without a place", named.last_chunk));
    }
    // Merging makes a filter for as many.
    if directory.entries > blocks * BLOCK as u64 / page::ENTRY_MIN {
        return Err(wrong("more entries than its pages can hold", named.last_chunk));
    }
    let mut directory = directory;
    let owners = std::mem::take(&mut directory.owners);
    Ok((Layer::new(named, chunks, directory), owners))
}

/// Follows the chain from the last chunk to the first. Gives all payload, and the places first to last.
pub(crate) fn read_chunks(
    disk: &(impl Disk + ?Sized),
    geometry: &Geometry,
    named: format::Layer,
) -> Result<(Vec<u8>, Vec<Run>), OpenError> {
    let generation = named.generation;
    let (mut runs, mut payloads) = (Vec::new(), Vec::new());
    let mut run = named.last_chunk;
    let mut len = 0;
    for number in (0..named.chunks).rev() {
        let wrong = |what| OpenError::Checkpoint { generation, what, block: run.start };
        if run.len == 0 || run.len > CHUNK_BLOCKS_MAX || !geometry.holds_data(run) {
            return Err(wrong("impossible chunk"));
        }
        let mut chunk = Aligned::zeroed(run.len as usize * BLOCK);
        disk.read_at(u64::from(run.start) * BLOCK as u64, chunk.as_mut())?;
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
        runs.push(run);
        run = header.prev;
    }
    payloads.reverse();
    runs.reverse();
    Ok((payloads.concat(), runs))
}

/// A way along the entries of a layer.
#[derive(Debug)]
pub(crate) struct Cursor {
    page: usize,
    /// Of the page: what is still to come, from the last one on.
    entries: Vec<(StoredId, page::Kind, Bytes)>,
    /// The last thing of the page.
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
        layer: &Layer,
        mut read: impl FnMut(usize) -> Result<Bytes, PageError>,
    ) -> Result<(), PageError> {
        while self.entries.is_empty() && self.page < layer.fences.len() {
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

/// The entry of a thing in a page.
pub(crate) fn find_in<'a>(page: &'a [u8], id: &StoredId) -> Result<Option<page::Entry<'a>>, PageError> {
    for entry in page::entries(page) {
        let entry = entry?;
        if entry.id >= *id {
            return Ok((entry.id == *id).then_some(entry));
        }
    }
    Ok(None)
}
