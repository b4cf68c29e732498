//! Opening stores of older format versions.
//!
//! Version 9 had no shards in ids: it is read as it is. Version 8 and older did not store what pools take:
//! all objects are read once to count it. In version 5 the sorted runs of a checkpoint were streams of
//! entries without pages: all of them are loaded as if they had just changed, so that the next checkpoint
//! writes them in today's form.

use crate::block_table::BlockInfo;
use crate::disk::Disk;
use crate::format::RunRef;
use crate::index::Object;
use crate::open::OpenError;
use crate::runs::read_chunks;
use crate::space::Extent;
use crate::store::Store;
use nacre_proto::transaction::StoredId;
use nacre_wire::{Decode, DecodeError, Reader};
use std::collections::BTreeMap;

const REMOVED: u8 = 0;
const OBJECT: u8 = 1;

impl Store {
    pub(crate) fn adopt_old(
        &mut self,
        disk: &(impl Disk + ?Sized),
        runs: &[RunRef],
    ) -> Result<(), OpenError> {
        let mut crcs = BTreeMap::new();
        for run in runs {
            let generation = run.generation;
            let (payload, chunks) = read_chunks(disk, &self.geometry, *run)?;
            self.old_chunks.extend(chunks);
            let mut r = Reader::new(&payload);
            while !r.is_empty() {
                let entry = self.adopt_entry(&mut r, &mut crcs);
                entry.map_err(|error| OpenError::CheckpointContent { generation, error })?;
            }
        }
        self.own_all(&crcs)?;
        self.checkpoint_wanted = true;
        Ok(())
    }

    /// Finds out what each pool takes, where no checkpoint says so.
    pub(crate) fn count_pools(&mut self) {
        self.index.total.pools = Some(self.recount_pools());
        self.checkpoint_wanted = true;
    }

    fn adopt_entry(&mut self, r: &mut Reader<'_>, crcs: &mut BTreeMap<u32, u32>) -> Result<(), DecodeError> {
        match u8::decode(r)? {
            OBJECT => {
                let id = StoredId::decode(r)?;
                let (object, found) = Object::decode(&id, false, r)?;
                crcs.extend(object.blocks.blocks().zip(found));
                self.index.adopt(id, object);
            }
            REMOVED => self.index.forget(&StoredId::decode(r)?),
            value => return Err(DecodeError::BadValue { what: "checkpoint entry", value: value.into() }),
        }
        Ok(())
    }

    /// Counts the owners of each block.
    fn own_all(&mut self, crcs: &BTreeMap<u32, u32>) -> Result<(), OpenError> {
        let objects = self.index.slots();
        let objects: Vec<_> =
            objects.filter_map(|(id, _)| Some((id.clone(), self.index.get(id)?.clone()))).collect();
        for (id, object) in objects {
            if !self.is_sound(&object) {
                let block = object.blocks.blocks().next().unwrap_or(0);
                return Err(OpenError::Object { id, what: "data that cannot be its own", block });
            }
            for block in object.blocks.blocks() {
                let refs = self.blocks.table.get(block).map_or(0, |info| info.refs) + 1;
                let crc = crcs.get(&block).copied().unwrap_or(0);
                self.blocks.table.insert(block, BlockInfo { refs, crc });
            }
        }
        let owned: Vec<(u32, u32)> =
            self.blocks.table.iter().map(|(block, info)| (block, info.refs)).collect();
        self.blocks.allocated = owned.len() as u64;
        for (block, owners) in owned {
            let extent = Extent { start: block, len: 1 };
            self.blocks.shared.set(extent, (owners > 1).then_some(owners));
            self.blocks.changed.set(extent, owners);
        }
        Ok(())
    }
}
