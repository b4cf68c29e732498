//! Writing a checkpoint: what changed since the last one, in slices, while transactions continue.
//!
//! A checkpoint holds the index as it was after one transaction. No copy is made at the beginning: the walk
//! goes over the live index, and an object that changes before the walk has reached it is first kept in
//! `before` as it was (copy on write).
//!
//! The result is a new sorted run above the others. Where there is no space for that and a compaction of all
//! sorted runs, it is gathered in memory instead, and compacted with them.

use crate::BLOCK;
use crate::blocks::Blocks;
use crate::format::{CHUNK_HEADER, Geometry};
use crate::index::omap_leaves::SHARE_COST;
use crate::index::sorted_ids::SortedIds;
use crate::index::{Index, OWNERS_COST, Object, Slot, Totals};
use crate::runs::directory::Owners;
use crate::runs::page::{Kind, id_bytes};
use crate::runs::writer::{Chunks, RunWriter};
use crate::space::Space;
use bytes::Bytes;
use nacre_proto::transaction::StoredId;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// The longest chunk, in blocks.
pub(crate) const CHUNK_BLOCKS_MAX: u32 = 256;
/// Without the header of a chunk, and an extent for each block.
const PAYLOAD_PER_BLOCK: u64 = (BLOCK - CHUNK_HEADER - 8) as u64;

#[derive(Debug)]
pub(crate) struct Checkpoint {
    /// It holds every transaction up to this one.
    pub seq: u64,
    /// Where the log continues after `seq`; known once all up to `seq` were handed to the disk.
    pub log_pos: Option<u64>,
    /// Some transactions up to `seq` did not fit into the log: they become durable with the
    /// checkpoint, and nothing may be logged before that.
    pub covers: bool,
    /// No less than the blocks it will take.
    pub estimate: u64,
    pub writer: RunWriter,
    /// What is written so far, if it becomes a part of a compaction.
    pub gathered: Option<Vec<Gathered>>,
    /// What is in it has no higher mark than this.
    pub mark: u64,
    /// All that is in it, and which of these was written last.
    pub ids: SortedIds,
    walked: Option<Arc<StoredId>>,
    /// All were.
    has_walked_all: bool,
    before: BTreeMap<StoredId, Kept>,
    /// As they were at `seq`, until they are written.
    end: Option<(Totals, Owners)>,
}

/// An entry that is in no sorted run yet.
pub(crate) type Gathered = (StoredId, Kind, Bytes);
/// All that a checkpoint gathered, what all objects were then, and the owners that changed.
pub(crate) type GatheredAll = (Vec<Gathered>, Totals, Owners);

/// What an object was.
#[derive(Debug)]
enum Kept {
    /// With the checksums that were known.
    Object(Arc<Object>, Vec<u32>),
    Damaged,
    Gone,
}

/// No less than the blocks that sorted runs of this weight take, however scattered: each page ends with less
/// than a block of nothing, and has four at least.
pub(crate) fn blocks_for(encoded: u64) -> u64 {
    (encoded + encoded / 4) / PAYLOAD_PER_BLOCK + 4
}

/// The same, of a checkpoint that begins now.
pub(crate) fn blocks_for_changes(index: &Index, blocks: &Blocks) -> u64 {
    let owners = blocks.changed.extents() as u64 * OWNERS_COST + index.shares.changed() as u64 * SHARE_COST;
    blocks_for(index.changed().encoded + owners)
}

impl Checkpoint {
    /// `gathers`: for a compaction of all sorted runs.
    pub fn new(
        gathers: bool,
        geometry: &Geometry,
        generation: u64,
        seq: u64,
        index: &mut Index,
        blocks: &mut Blocks,
    ) -> Checkpoint {
        let estimate =
            if gathers { blocks_for(index.total.weight.encoded) } else { blocks_for_changes(index, blocks) };
        let changed = index.take_changed();
        let owners = Owners { blocks: blocks.take_changed(), leaves: index.shares.take_changed() };
        Checkpoint {
            seq,
            log_pos: None,
            covers: false,
            estimate,
            writer: RunWriter::new(geometry.uuid, generation, changed.ids.len() as u64),
            gathered: gathers.then(Vec::new),
            mark: changed.mark,
            ids: changed.ids,
            walked: None,
            has_walked_all: false,
            before: BTreeMap::new(),
            end: Some((index.total.clone(), owners)),
        }
    }
    /// To be called before `id` changes.
    pub fn preserve(&mut self, id: &StoredId, index: &Index, blocks: &Blocks) {
        // Mostly it is not in this checkpoint, or changed since. What changed stays in memory until its
        // checkpoint ended.
        let Some(slot) = index.slot(id).filter(|slot| slot.mark() == self.mark) else { return };
        let is_written = self.walked.as_ref().is_some_and(|last| *id <= **last);
        if is_written || self.before.contains_key(id) {
            return;
        }
        let kept = match slot {
            Slot::Object(object) => {
                // Now, since its blocks may be others' by the time it is written.
                let crcs = object.blocks.blocks().map(|block| blocks.table[block].crc).collect();
                Kept::Object(object.clone(), crcs)
            }
            Slot::Damaged(_) => Kept::Damaged,
            Slot::Gone(_) => Kept::Gone,
        };
        self.before.insert(id.clone(), kept);
    }
    /// Walks on until there are `budget` bytes or the end, and gives what is to be written.
    pub fn slice(&mut self, index: &Index, blocks: &Blocks, space: &mut Space, budget: usize) -> Chunks {
        let mut gathered = 0;
        let from = self.walked.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = self.ids.from(from);
        while !self.has_walked_all && self.writer.waiting() + gathered < budget {
            let Some(id) = rest.next() else {
                self.has_walked_all = true;
                if self.gathered.is_none()
                    && let Some((totals, owners)) = self.end.take()
                {
                    self.writer.finish(totals, owners);
                }
                break;
            };
            let (kind, body) = entry(self.before.remove(&**id), index.slot(id), blocks);
            match &mut self.gathered {
                Some(all) => {
                    gathered += body.len() + 100;
                    all.push((StoredId::clone(id), kind, body.into()));
                }
                None => self.writer.push(kind, &id_bytes(id), &body),
            }
            self.walked = Some(id.clone());
        }
        // It is reserved, unless a sorted run said less of all objects than they are: then this waits for
        // space.
        self.writer.cut(|most| space.take_extent(most))
    }
    /// All that was gathered, once that is all.
    pub fn take_gathered(&mut self) -> Option<GatheredAll> {
        if self.gathered.is_none() || !self.has_walked_all {
            return None;
        }
        let (totals, owners) = self.end.take()?;
        Some((std::mem::take(self.gathered.as_mut()?), totals, owners))
    }
    /// The compaction failed: this becomes a sorted run after all.
    pub fn write_gathered(&mut self, (gathered, totals, owners): GatheredAll) {
        self.gathered = None;
        for (id, kind, body) in gathered {
            self.writer.push(kind, &id_bytes(&id), &body);
        }
        self.writer.finish(totals, owners);
    }
    pub fn is_written(&self) -> bool {
        self.writer.is_written()
    }
}

/// What is to be written of an object.
fn entry(before: Option<Kept>, now: Option<&Slot>, blocks: &Blocks) -> (Kind, Vec<u8>) {
    // A block that was freed meanwhile is not in the table; the log, which is replayed over the
    // checkpoint, frees it as well.
    let crc_of = |block: u32| blocks.table.get(block).map_or(0, |info| info.crc);
    let mut out = Vec::with_capacity(512);
    let kind = match (before, now) {
        (Some(Kept::Object(object, crcs)), _) => {
            // Those that were on their way then may be known now.
            let pairs = object.blocks.blocks().zip(crcs);
            let crcs = pairs.map(|(block, crc)| if crc == 0 { crc_of(block) } else { crc });
            object.encode(crcs, &mut out);
            Kind::of(&object)
        }
        (None, Some(Slot::Object(object))) => {
            object.encode(object.blocks.blocks().map(crc_of), &mut out);
            Kind::of(object)
        }
        (Some(Kept::Damaged), _) | (None, Some(Slot::Damaged(_))) => Kind::Damaged,
        (Some(Kept::Gone), _) | (None, Some(Slot::Gone(_)) | None) => Kind::Removed,
    };
    (kind, out)
}
