//! Reference counts of the blocks of the device.
//!
//! Most blocks have one owner, and nothing is stored for them. `table` has every block of objects in memory
//! with its checksum. The sorted runs have the checksums of all other blocks beside their objects.

use crate::block_table::{BlockInfo, BlockTable};
use crate::index::{Moves, Object};
use crate::owner_changes::OwnerChanges;
use crate::range_map::{RangeMap, joined};
use crate::small_list::BlockList;
use crate::space::Extent;

#[derive(Debug, Default)]
pub(crate) struct Blocks {
    pub table: BlockTable,
    /// How many objects have a block, where it is more than one.
    pub shared: RangeMap,
    /// How many objects have each block of which that changed since the last checkpoint was begun.
    pub changed: OwnerChanges,
    /// Blocks that have an owner, or wait to become free.
    pub allocated: u64,
    /// Those that checkpoints have: sorted runs, and what is being written of one. No object owns them,
    /// whatever it says.
    pub inner: RangeMap,
}

impl Blocks {
    /// Of a block that has an owner.
    pub fn owners(&self, block: u32) -> u32 {
        self.shared.get(block).unwrap_or(1)
    }
    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.table.bytes() + (self.shared.len() + self.inner.len()) * 24 + self.changed.bytes()
    }
    /// The content of a checkpoint that begins now.
    pub fn take_changed(&mut self) -> Vec<(Extent, u32)> {
        std::mem::take(&mut self.changed).iter().collect()
    }
    /// A block that was free.
    pub fn fresh(&mut self, block: u32) {
        self.table.insert(block, BlockInfo::default());
        self.allocated += 1;
    }
    /// It becomes free.
    pub fn free(&mut self, block: u32) {
        self.table.remove(block).expect("a freed block is in the table");
        self.allocated -= 1;
    }

    /// Notes what an operation did to objects in memory. Adds the blocks that nothing owns any more.
    pub fn apply(&mut self, moves: Moves, ownerless: &mut BlockList) {
        for block in &moves.placed {
            self.table.get_mut(*block).expect("a fresh block is in the table").refs += 1;
        }
        joined(&moves.placed).for_each(|extent| self.changed.set(extent, 1));
        for extent in moves.copied {
            for block in extent.blocks() {
                self.table.get_mut(block).expect("a block of an object in memory is in the table").refs += 1;
            }
            for (part, owners) in self.shared.parts(extent) {
                self.set_owners(part, owners.unwrap_or(1) + 1);
            }
        }
        for extent in joined(&moves.dropped) {
            if self.shared.len() == 0 {
                self.changed.set(extent, 0);
                ownerless.extend(extent.blocks());
                extent.blocks().for_each(|block| self.drop_ref(block, true));
                continue;
            }
            for (part, owners) in self.shared.parts(extent) {
                let is_last = owners.is_none();
                match owners {
                    Some(owners) => self.set_owners(part, owners - 1),
                    None => {
                        self.changed.set(part, 0);
                        ownerless.extend(part.blocks());
                    }
                }
                part.blocks().for_each(|block| self.drop_ref(block, is_last));
            }
        }
    }

    /// An object comes into memory, with its blocks' checksums. False if that cannot be: then nothing is
    /// changed.
    pub fn bring(&mut self, object: &Object, crcs: &[u32], is_taken: impl Fn(u32) -> bool) -> bool {
        let fits = |block: u32| {
            let refs = self.table.get(block).map(|info| info.refs);
            is_taken(block) && refs.is_none_or(|refs| refs > 0 && refs < self.owners(block))
        };
        let mut extents = object.blocks.extents().iter().map(|extent| extent.blocks);
        let is_others = extents.any(|extent| {
            let is_inner = self.inner.parts(extent).iter().any(|(_, number)| number.is_some());
            is_inner || self.changed.has_ownerless(extent)
        });
        if is_others || !object.blocks.blocks().all(fits) {
            return false;
        }
        for (block, crc) in object.blocks.blocks().zip(crcs) {
            match self.table.get_mut(block) {
                Some(info) => info.refs += 1,
                None => self.table.insert(block, BlockInfo { refs: 1, crc: *crc }),
            }
        }
        true
    }
    /// It leaves again.
    pub fn put_away(&mut self, object: &Object) {
        object.blocks.blocks().for_each(|block| self.drop_ref(block, false));
    }
    fn drop_ref(&mut self, block: u32, stays: bool) {
        let info = self.table.get_mut(block).expect("a block of an object in memory is in the table");
        info.refs -= 1;
        if info.refs == 0 && !stays {
            self.table.remove(block);
        }
    }
    /// Of blocks that are taken. The next checkpoint says so.
    pub fn set_owners(&mut self, extent: Extent, owners: u32) {
        self.shared.set(extent, (owners > 1).then_some(owners));
        self.changed.set(extent, owners);
    }
}
