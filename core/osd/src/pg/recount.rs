//! Counting the objects anew where their number is only estimated: after a split, or a merge.

use super::PgRange;
use crate::object_info::ObjectInfo;
use nacre_base::SnapId;
use nacre_machine::{ReadError, StoreView};
use nacre_proto::types::ObjectId;

/// Objects counted at a time.
const RECOUNT_PART: usize = if cfg!(test) { 2 } else { 2000 };

/// What was counted of the objects up to `next`.
#[derive(Clone)]
pub struct Recount {
    next: ObjectId,
    pub objects: u64,
    pub clones: u64,
    pub bytes: u64,
}

impl Recount {
    pub fn new(range: &PgRange) -> Recount {
        Recount { next: range.start(), objects: 0, clones: 0, bytes: 0 }
    }

    /// Goes on counting. True if all objects are counted.
    pub fn step(&mut self, store: &dyn StoreView, range: &PgRange) -> Result<bool, ReadError> {
        let here = range.objects_from(store, &self.next, RECOUNT_PART + 1)?;
        for object in here.iter().take(RECOUNT_PART) {
            let stat = store.stat(&object.clone().into())?;
            self.objects += 1;
            if object.snap != SnapId::HEAD {
                self.clones += 1;
                continue;
            }
            // The head knows what its clones have for themselves.
            let info = ObjectInfo::load(store, object)?;
            let of_clones = info.as_ref().map_or(0, |info| info.snap_set.bytes());
            let sharded = info.and_then(|info| info.erasure);
            self.bytes += sharded.map_or(stat.unwrap_or_default().size, |sharded| sharded.size) + of_clones;
        }
        match here.get(RECOUNT_PART) {
            Some(next) => self.next = next.clone(),
            None => return Ok(true),
        }
        Ok(false)
    }

    /// A write changes an object, perhaps one that was counted.
    pub fn note_write(&mut self, head: &ObjectId, objects: i64, clones: i64, bytes: i64) {
        if *head < self.next {
            self.objects = self.objects.saturating_add_signed(objects);
            self.clones = self.clones.saturating_add_signed(clones);
            self.bytes = self.bytes.saturating_add_signed(bytes);
        }
    }
}
