//! Ranges in which an object is the same as the clones next to it. A member that lacks such a range of one
//! object and has the other takes it from there: no bytes travel, and the two share their blocks again.
//!
//! Ranges are taken from clones only. The content of a clone never changes, so what a message says of one
//! holds however late the message arrives.

use super::History;
use super::missing::Missing;
use crate::object_info::ObjectInfo;
use crate::ops::clone_of;
use crate::pg::read_repair::BLOCK;
use nacre_base::{IntervalSet, SnapId};
use nacre_machine::{ReadError, StoreView};
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_proto::types::ObjectId;

/// Ranges of whole blocks, by the clone that has the same there.
pub type CloneOverlap = Vec<(SnapId, IntervalSet)>;

impl History {
    /// What of `lacking` a holder with this missing set has under the names of neighbouring clones.
    pub fn overlap_with_clones(
        &self,
        store: &dyn StoreView,
        object: &ObjectId,
        lacking: &IntervalSet,
        missing: &Missing,
    ) -> Result<CloneOverlap, ReadError> {
        // Content that was wrong may be wrong under every name.
        // What is the same in two whole objects is not so in the shards of both, byte for byte.
        if lacking.is_empty() || missing.was_wrong(object) || self.info.shard.is_some() {
            return Ok(CloneOverlap::new());
        }
        let mut left = lacking.clone();
        let mut common = CloneOverlap::new();
        for (snap, same) in self.overlap_with_neighbours(store, object, lacking)? {
            let ranges = here(missing, &clone_of(object, snap), same.intersection(&left));
            if !ranges.is_empty() {
                left.subtract(&ranges);
                common.push((snap, ranges));
            }
        }
        Ok(common)
    }

    /// Where in these ranges an object is the same as the clones next to it.
    pub fn overlap_with_neighbours(
        &self,
        store: &dyn StoreView,
        object: &ObjectId,
        ranges: &IntervalSet,
    ) -> Result<Vec<(SnapId, IntervalSet)>, ReadError> {
        let head = object.to_head();
        if self.missing.lacks_meta(&head) {
            return Ok(Vec::new());
        }
        let Some(info) = ObjectInfo::load(store, &head)? else { return Ok(Vec::new()) };
        let neighbours = info.snap_set.neighbours(object.snap);
        Ok(neighbours.map(|(snap, same)| (snap, same.intersection(ranges))).collect())
    }

    /// What of `lacking` is here under the names of neighbouring clones.
    pub fn own_overlap(
        &self,
        store: &dyn StoreView,
        object: &ObjectId,
        lacking: &IntervalSet,
    ) -> CloneOverlap {
        // That the head cannot be read is reported elsewhere.
        let common = self.overlap_with_clones(store, object, lacking, &self.missing).unwrap_or_default();
        let size = || Some(store.stat(&StoredId::Object(object.clone())).ok()??.size);
        let size = if self.missing.lacks_meta(object) { u64::MAX } else { size().unwrap_or_default() };
        self.usable_overlap(store, object, common, lacking, size)
    }

    /// What of `common` is here, for an object of `size` bytes that lacks `lacking`.
    pub fn usable_overlap(
        &self,
        store: &dyn StoreView,
        object: &ObjectId,
        common: CloneOverlap,
        lacking: &IntervalSet,
        size: u64,
    ) -> CloneOverlap {
        let mut lacking = lacking.intersection(&(0..size).into());
        let mut usable_overlap = CloneOverlap::new();
        if self.missing.was_wrong(object) {
            return usable_overlap;
        }
        for (snap, ranges) in common {
            let clone = clone_of(object, snap);
            let is_there = || matches!(store.stat(&StoredId::Object(clone.clone())), Ok(Some(_)));
            // (No clone is removed while something is missing.)
            if snap != SnapId::HEAD && snap != object.snap && is_there() {
                let ranges = here(&self.missing, &clone, ranges.intersection(&lacking));
                if !ranges.is_empty() {
                    lacking.subtract(&ranges);
                    usable_overlap.push((snap, ranges));
                }
            }
        }
        usable_overlap
    }
}

/// Makes the object share these blocks of its clones.
pub fn share(txn: &mut Transaction, object: &ObjectId, common: &CloneOverlap) {
    for (snap, ranges) in common {
        for range in ranges.iter() {
            let from = clone_of(object, *snap).into();
            let blocks = (range.start / BLOCK) as u32..(range.end / BLOCK) as u32;
            txn.push(object.clone(), Change::CloneBlocks { from, blocks });
        }
    }
}

/// All ranges, of whichever clone.
pub fn all(common: &CloneOverlap) -> IntervalSet {
    let mut all = IntervalSet::new();
    common.iter().for_each(|(_, ranges)| all.add(ranges));
    all
}

/// Those bytes of a clone's ranges that are not missing.
pub fn present(missing: &Missing, clone: &ObjectId, mut ranges: IntervalSet) -> IntervalSet {
    if missing.lacks_meta(clone) {
        return IntervalSet::new();
    }
    ranges.subtract(&missing.part(clone).data);
    ranges
}

/// Those blocks of a clone's ranges that are not missing.
fn here(missing: &Missing, clone: &ObjectId, ranges: IntervalSet) -> IntervalSet {
    let ranges = present(missing, clone, ranges);
    let whole = |range: std::ops::Range<u64>| range.start.next_multiple_of(BLOCK)..range.end / BLOCK * BLOCK;
    ranges.iter().map(whole).filter(|range| range.start < range.end).collect()
}
