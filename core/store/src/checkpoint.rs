//! Writing the index down, in slices, while transactions go on: all of it, or what changed since the last time.
//!
//! A checkpoint is of the index as it was at one transaction. Nothing is copied for it at once:
//! the walk goes over the live index, and whoever changes an object that the walk has not reached
//! yet first keeps the old one in `before`. What changed is a layer over the layers before; when they
//! are as large as the index itself, all of it is written again and they are given up.

use crate::BLOCK;
use crate::format::{CHUNK_HEADER, ChunkHeader, Geometry, Layer};
use crate::index::{Index, Object};
use crate::space::{Run, Space};
use nacre_proto::transaction::StoredId;
use nacre_wire::Encode;
use std::collections::{BTreeMap, BTreeSet};
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
    /// It is only what changed since the checkpoint before.
    pub is_layer: bool,
    walk: Walk,
    before: BTreeMap<StoredId, Option<Arc<Object>>>,
    buffer: Vec<u8>,
}

/// What is still to be written.
#[derive(Debug)]
enum Walk {
    /// Everything behind this one.
    All(Bound<StoredId>),
    Changed(BTreeSet<StoredId>),
    Done,
}

/// In front of an object in a checkpoint, and of the id of one that was removed.
pub(crate) const OBJECT: u8 = 1;
pub(crate) const REMOVED: u8 = 0;

/// No less than the blocks that a checkpoint of an index of this weight takes, however scattered.
pub(crate) fn blocks_for(encoded: u64) -> u64 {
    encoded / PAYLOAD_PER_BLOCK + 2
}

impl Checkpoint {
    /// `changes_only`: a layer over the checkpoint before.
    pub fn new(generation: u64, seq: u64, index: &mut Index, changes_only: bool) -> Checkpoint {
        let changed = index.take_changed();
        let (walk, encoded) = match changes_only {
            true => (Walk::Changed(changed.ids), changed.encoded),
            false => (Walk::All(Bound::Unbounded), index.total().encoded),
        };
        Checkpoint {
            generation,
            seq,
            log_pos: None,
            covers: false,
            chunks: Vec::new(),
            payload_len: 0,
            estimate: blocks_for(encoded),
            is_layer: changes_only,
            walk,
            before: BTreeMap::new(),
            buffer: Vec::new(),
        }
    }
    /// What is in the superblock about it; None if it is empty.
    pub fn layer(&self) -> Option<Layer> {
        let last_chunk = *self.chunks.last()?;
        let chunks = self.chunks.len() as u32;
        Some(Layer { generation: self.generation, last_chunk, chunks, payload_len: self.payload_len })
    }
    pub fn blocks(&self) -> u64 {
        self.chunks.iter().map(|run| u64::from(run.len)).sum()
    }
    /// To be called before `id` changes, with what it is now.
    pub fn preserve(&mut self, id: &StoredId, now: Option<&Arc<Object>>) {
        let ahead = match &self.walk {
            Walk::All(Bound::Excluded(walked)) => id > walked,
            Walk::All(_) => true,
            Walk::Changed(ids) => ids.contains(id),
            Walk::Done => false,
        };
        if ahead && !self.before.contains_key(id) {
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
        while self.buffer.len() < budget && !matches!(self.walk, Walk::Done) {
            self.walk_one(index, &crc_of);
        }
        let mut chunks = Vec::new();
        while let Some(chunk) = self.cut(geometry, space) {
            chunks.push(chunk);
        }
        chunks
    }
    pub fn is_written(&self) -> bool {
        matches!(self.walk, Walk::Done) && self.buffer.is_empty()
    }

    fn walk_one(&mut self, index: &Index, crc_of: &impl Fn(u32) -> u32) {
        let (id, object) = match &mut self.walk {
            Walk::Done => return,
            Walk::Changed(ids) => {
                let Some(id) = ids.pop_first() else {
                    self.walk = Walk::Done;
                    return;
                };
                let object = self.before.remove(&id).unwrap_or_else(|| index.get(&id).cloned());
                if object.is_none() {
                    REMOVED.encode(&mut self.buffer);
                    id.encode(&mut self.buffer);
                }
                (id, object)
            }
            Walk::All(walked_to) => {
                let live = index.range((walked_to.as_ref(), Bound::Unbounded)).next();
                // All of `before` is ahead of the walk, which takes them out as it meets them.
                let kept = self.before.first_key_value().map(|(id, _)| id);
                let (id, object) = match (live, kept) {
                    (None, None) => {
                        self.walk = Walk::Done;
                        return;
                    }
                    (Some((id, object)), kept) if kept.is_none_or(|kept| id < kept) => {
                        (id.clone(), Some(object.clone()))
                    }
                    _ => self.before.pop_first().expect("one of both has something"),
                };
                *walked_to = Bound::Excluded(id.clone());
                (id, object)
            }
        };
        if let Some(object) = object {
            OBJECT.encode(&mut self.buffer);
            object.encode(&id, crc_of, &mut self.buffer);
        }
    }

    /// Only the last chunk of all is cut in the middle of a block.
    fn cut(&mut self, geometry: &Geometry, space: &mut Space) -> Option<(Run, Vec<u8>)> {
        let bytes = self.buffer.len() + CHUNK_HEADER;
        let is_last = matches!(self.walk, Walk::Done);
        let wanted = if is_last { bytes.div_ceil(BLOCK) } else { bytes / BLOCK };
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
