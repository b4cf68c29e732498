//! Writing the whole index down, in slices, while transactions go on.
//!
//! A checkpoint is of the index as it was at one transaction. Nothing is copied for it at once:
//! the walk goes over the live index, and whoever changes an object that the walk has not reached
//! yet first keeps the old one in `before`.

use crate::BLOCK;
use crate::format::{CHUNK_HEADER, ChunkHeader, Geometry};
use crate::index::{Index, Object};
use crate::space::{Run, Space};
use nacre_proto::transaction::StoredId;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// The longest chunk, in blocks.
pub(crate) const CHUNK_BLOCKS_MAX: u32 = 256;
const PAYLOAD_PER_BLOCK: u64 = (BLOCK - CHUNK_HEADER) as u64;

#[derive(Debug)]
pub(crate) struct Checkpoint {
    pub generation: u64,
    /// It holds every transaction up to this one.
    pub seq: u64,
    /// Where the log goes on after `seq`; known once all up to `seq` were handed to the disk.
    pub log_pos: Option<u64>,
    /// Some transactions up to `seq` did not fit into the log: they become durable with the
    /// checkpoint, and nothing may be logged before that.
    pub covers: bool,
    pub chunks: Vec<Run>,
    pub payload_len: u64,
    /// No less than the blocks it will take.
    pub estimate: u64,
    walked_to: Bound<StoredId>,
    walked_all: bool,
    before: BTreeMap<StoredId, Option<Arc<Object>>>,
    buffer: Vec<u8>,
}

/// No less than the blocks that a checkpoint of an index of this weight takes, however scattered.
pub(crate) fn blocks_for(encoded: u64) -> u64 {
    encoded / PAYLOAD_PER_BLOCK + 2
}

impl Checkpoint {
    pub fn new(generation: u64, seq: u64, index: &Index) -> Checkpoint {
        Checkpoint {
            generation,
            seq,
            log_pos: None,
            covers: false,
            chunks: Vec::new(),
            payload_len: 0,
            estimate: blocks_for(index.total().encoded),
            walked_to: Bound::Unbounded,
            walked_all: false,
            before: BTreeMap::new(),
            buffer: Vec::new(),
        }
    }
    pub fn blocks(&self) -> u64 {
        self.chunks.iter().map(|run| u64::from(run.len)).sum()
    }
    /// To be called before `id` changes, with what it is now.
    pub fn preserve(&mut self, id: &StoredId, now: Option<&Arc<Object>>) {
        let ahead = match &self.walked_to {
            Bound::Excluded(walked) => id > walked,
            _ => true,
        };
        if ahead && !self.walked_all && !self.before.contains_key(id) {
            self.before.insert(id.clone(), now.cloned());
        }
    }
    /// Walks on until there are `budget` bytes or the end, and gives the finished chunks.
    pub fn slice(
        &mut self,
        geometry: &Geometry,
        index: &Index,
        crc_of: impl Fn(u32) -> u32,
        space: &mut Space,
        budget: usize,
    ) -> Vec<(Run, Vec<u8>)> {
        while self.buffer.len() < budget && !self.walked_all {
            self.walk_one(index, &crc_of);
        }
        let mut chunks = Vec::new();
        while let Some(chunk) = self.cut(geometry, space) {
            chunks.push(chunk);
        }
        chunks
    }
    pub fn is_written(&self) -> bool {
        self.walked_all && self.buffer.is_empty()
    }

    fn walk_one(&mut self, index: &Index, crc_of: &impl Fn(u32) -> u32) {
        let live = index.range((self.walked_to.as_ref(), Bound::Unbounded)).next();
        // All of `before` is ahead of the walk, which takes them out as it meets them.
        let kept = self.before.first_key_value().map(|(id, _)| id);
        let (id, object) = match (live, kept) {
            (None, None) => {
                self.walked_all = true;
                return;
            }
            (Some((id, object)), kept) if kept.is_none_or(|kept| id < kept) => {
                (id.clone(), Some(object.clone()))
            }
            _ => self.before.pop_first().expect("one of both has something"),
        };
        if let Some(object) = object {
            object.encode(&id, crc_of, &mut self.buffer);
        }
        self.walked_to = Bound::Excluded(id);
    }

    /// Only the last chunk of all is cut in the middle of a block.
    fn cut(&mut self, geometry: &Geometry, space: &mut Space) -> Option<(Run, Vec<u8>)> {
        let bytes = self.buffer.len() + CHUNK_HEADER;
        let wanted = if self.walked_all { bytes.div_ceil(BLOCK) } else { bytes / BLOCK };
        if self.buffer.is_empty() || wanted == 0 {
            return None;
        }
        let wanted = wanted.min(CHUNK_BLOCKS_MAX as usize) as u32;
        let run = space.take_run(wanted).expect("space for checkpoints is reserved");
        let room = run.len as usize * BLOCK - CHUNK_HEADER;
        let rest = self.buffer.split_off(room.min(self.buffer.len()));
        let payload = std::mem::replace(&mut self.buffer, rest);
        let header = ChunkHeader {
            uuid: geometry.uuid,
            generation: self.generation,
            number: self.chunks.len() as u32,
            prev: self.chunks.last().copied().unwrap_or(Run { start: 0, len: 0 }),
            payload_len: payload.len() as u32,
        };
        self.chunks.push(run);
        self.payload_len += payload.len() as u64;
        Some((run, header.encode(&payload, run)))
    }
}
