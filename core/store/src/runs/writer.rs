//! Writing a sorted run: entries in order are cut into pages; the directory follows.

use super::SortedRun;
use super::bloom::{BloomFilter, hash};
use super::directory::{Directory, Fences, Owners};
use super::page::{self, Kind, PAGE};
use crate::BLOCK;
use crate::checkpoint::CHUNK_BLOCKS_MAX;
use crate::format::{self, CHUNK_HEADER, ChunkHeader};
use crate::index::Totals;
use crate::space::Extent;
use bytes::{Bytes, BytesMut};
use nacre_wire::{crc32c, to_vec};

/// Runs of the device and what is to be written there.
pub(crate) type Chunks = Vec<(Extent, Bytes)>;

#[derive(Debug)]
pub(crate) struct RunWriter {
    uuid: [u8; 16],
    generation: u64,
    /// The page that is being filled, and its first id.
    page: Vec<u8>,
    first: Vec<u8>,
    /// What was not given a place yet: whole blocks of pages, then bytes of the directory.
    rest: BytesMut,
    /// What the directory will be.
    directory: Directory,
    chunks: Vec<Extent>,
    payload_len: u64,
    is_over: bool,
    /// All pages have their place, and the directory is in `rest`.
    at_directory: bool,
}

impl RunWriter {
    /// `entries`: no less than there will be.
    pub fn new(uuid: [u8; 16], generation: u64, entries: u64) -> RunWriter {
        RunWriter {
            uuid,
            generation,
            page: Vec::new(),
            first: Vec::new(),
            rest: BytesMut::new(),
            directory: Directory {
                totals: Totals::default(),
                entries: 0,
                extents: Vec::new(),
                fences: Fences::default(),
                filter: BloomFilter::for_entries(entries),
                owners: Owners::default(),
            },
            chunks: Vec::new(),
            payload_len: 0,
            is_over: false,
            at_directory: false,
        }
    }
    /// Blocks that it has so far.
    pub fn blocks(&self) -> u64 {
        self.all_extents().map(|extent| u64::from(extent.len)).sum()
    }
    pub fn all_extents(&self) -> impl Iterator<Item = Extent> + '_ {
        self.chunks.iter().chain(&self.directory.extents).copied()
    }
    /// Bytes that wait for a place.
    pub fn waiting(&self) -> usize {
        self.rest.len()
    }

    /// The next entry; `id` is encoded.
    pub fn push(&mut self, kind: Kind, id: &[u8], body: &[u8]) {
        if self.page.is_empty() {
            self.first.clear();
            self.first.extend_from_slice(id);
        }
        page::push(&mut self.page, kind, id, body);
        self.directory.filter.add(hash(id));
        self.directory.entries += 1;
        if self.page.len() >= PAGE {
            self.end_page();
        }
    }
    fn end_page(&mut self) {
        if self.page.is_empty() {
            return;
        }
        let blocks = self.page.len().div_ceil(BLOCK);
        self.page.resize(blocks * BLOCK, 0);
        self.directory.fences.push(&self.first, blocks as u32, crc32c(u32::MAX, &self.page));
        self.rest.extend_from_slice(&self.page);
        self.page.clear();
    }
    /// There are no more entries.
    pub fn finish(&mut self, totals: Totals, owners: Owners) {
        self.end_page();
        self.directory.totals = totals;
        self.directory.owners = owners;
        self.is_over = true;
    }

    /// Gives what waits a place and hands it out, as long as `take` has any: it is asked for a number of
    /// neighbouring blocks and may give fewer.
    pub fn cut(&mut self, mut take: impl FnMut(u32) -> Option<Extent>) -> Chunks {
        let mut out = Vec::new();
        loop {
            if self.is_over && !self.at_directory && self.rest.is_empty() {
                self.at_directory = true;
                if self.directory.entries > 0 || !self.directory.owners.is_empty() {
                    self.rest = to_vec(&self.directory).as_slice().into();
                }
            }
            if self.rest.is_empty() {
                return out;
            }
            let header = if self.at_directory { CHUNK_HEADER } else { 0 };
            let wanted = (self.rest.len() + header).div_ceil(BLOCK).min(CHUNK_BLOCKS_MAX as usize);
            let Some(extent) = take(wanted as u32) else { return out };
            let room = extent.len as usize * BLOCK - header;
            // Without a copy of what is behind: where free blocks are scattered, there are very many pieces.
            let bytes = self.rest.split_to(room.min(self.rest.len())).freeze();
            out.push((
                extent,
                if self.at_directory { self.chunk(extent, &bytes) } else { self.pages(extent, bytes) },
            ));
        }
    }
    fn pages(&mut self, extent: Extent, bytes: Bytes) -> Bytes {
        match self.directory.extents.last_mut() {
            Some(last) if last.start + last.len == extent.start => last.len += extent.len,
            _ => self.directory.extents.push(extent),
        }
        bytes
    }
    fn chunk(&mut self, extent: Extent, payload: &[u8]) -> Bytes {
        let header = ChunkHeader {
            uuid: self.uuid,
            generation: self.generation,
            number: self.chunks.len() as u32,
            prev: self.chunks.last().copied().unwrap_or(Extent { start: 0, len: 0 }),
            payload_len: payload.len() as u32,
        };
        self.chunks.push(extent);
        self.payload_len += payload.len() as u64;
        header.encode(payload, extent).into()
    }
    pub fn is_written(&self) -> bool {
        self.at_directory && self.rest.is_empty()
    }
    /// What the superblock says about it; None if there is nothing in it.
    pub fn named(&self) -> Option<format::RunRef> {
        let last_chunk = *self.chunks.last()?;
        let chunks = self.chunks.len() as u32;
        Some(format::RunRef {
            generation: self.generation,
            last_chunk,
            chunks,
            payload_len: self.payload_len,
        })
    }
    pub fn into_run(self) -> Option<SortedRun> {
        Some(SortedRun::new(self.named()?, self.chunks, self.directory))
    }
}
