//! What an object has in common with the clones next to it. Whoever lacks that of the one and has the other takes it from
//! there: no bytes travel, and the two share their space again.
//!
//! Only clones give. Their content never changes, so what is said of one holds however late it arrives.

use super::read_repair::BLOCK;
use super::{Ctx, Missing, Pg};
use crate::object_info::ObjectInfo;
use crate::ops::clone_of;
use nacre_base::{IntervalSet, SnapId};
use nacre_machine::{ReadError, StoreView};
use nacre_proto::messages::part::Part;
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_proto::types::ObjectId;

/// Ranges of whole blocks, by the clone that has the same there.
pub type CloneOverlap = Vec<(SnapId, IntervalSet)>;

impl Pg {
    /// What of `lacking` somebody has under the names of neighbouring clones, of which `missing` is missing there.
    pub fn overlap_with_clones(
        &self,
        store: &dyn StoreView,
        object: &ObjectId,
        lacking: &IntervalSet,
        missing: &Missing,
    ) -> Result<CloneOverlap, ReadError> {
        // What was wrong may be wrong under every name.
        if lacking.is_empty() || missing.was_wrong(object) {
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

    /// Where in these ranges an object is the same as the clones next to it, whoever has those.
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

    /// What of an object that we lack we have under the names of neighbouring clones.
    pub fn own_overlap(
        &self,
        store: &dyn StoreView,
        object: &ObjectId,
        lacking: &IntervalSet,
    ) -> CloneOverlap {
        // If the head cannot be read, others tell of it.
        let common = self.overlap_with_clones(store, object, lacking, &self.missing).unwrap_or_default();
        let size = || Some(store.stat(&StoredId::Object(object.clone())).ok()??.size);
        let size = if self.missing.lacks_meta(object) { u64::MAX } else { size().unwrap_or_default() };
        self.usable_overlap(store, object, common, lacking, size)
    }

    /// What we have of that, of an object of `size` bytes that lacks `lacking`.
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
            // (Nobody removes a clone while something is missing.)
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

    /// We lack that of an object whose metadata we have, and take it from our own clones.
    pub fn share_from_clones(&mut self, ctx: &mut Ctx<'_>, object: &ObjectId, common: CloneOverlap) {
        let mut txn = Transaction::new();
        share(&mut txn, object, &common);
        let part = Part { data: all(&common), ..Part::default() };
        self.store_part(ctx, object, &part, None, txn);
        if self.missing.get(object).is_none() {
            self.counts.work.recovered_objects += 1;
        }
        self.on_recovered(ctx, object);
    }
}

/// Gives the object what it has in common with others.
pub fn share(txn: &mut Transaction, object: &ObjectId, common: &CloneOverlap) {
    for (snap, ranges) in common {
        for range in ranges.iter() {
            let from = clone_of(object, *snap).into();
            let blocks = (range.start / BLOCK) as u32..(range.end / BLOCK) as u32;
            txn.push(object.clone(), Change::CloneBlocks { from, blocks });
        }
    }
}

/// By whichever clone.
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
