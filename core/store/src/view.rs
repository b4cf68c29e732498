//! The `StoreView` that a machine gets with each event.

use crate::BLOCK;
use crate::index::Pools;
use crate::index::omap::Omap;
use crate::lookup::Pager;
use crate::read::is_small;
use crate::store::Store;
use bytes::Bytes;
use nacre_base::{Name, PoolId, ShardId};
use nacre_machine::{Lost, ReadError, Statfs, StoreStat, StoreView};
use nacre_proto::messages::PoolSpace;
use nacre_proto::transaction::StoredId;
use nacre_proto::types::ObjectId;
use std::collections::BTreeMap;
use std::ops::Bound;

impl StoreView for Store {
    fn stat(&self, id: &StoredId) -> Result<Option<StoreStat>, ReadError> {
        Ok(self.find(id)?.map(|found| StoreStat { size: found.object().size }))
    }
    fn attr(&self, id: &StoredId, name: &[u8]) -> Result<Option<Bytes>, ReadError> {
        Ok(self.find(id)?.and_then(|found| found.object().attrs.get(name)))
    }
    fn attrs(&self, id: &StoredId) -> Result<BTreeMap<Name, Bytes>, ReadError> {
        Ok(self.find(id)?.map(|found| found.object().attrs.to_map()).unwrap_or_default())
    }
    fn omap_header(&self, id: &StoredId) -> Result<Bytes, ReadError> {
        Ok(self.find(id)?.map(|found| found.object().omap().header.clone()).unwrap_or_default())
    }
    fn omap_get(&self, id: &StoredId, key: &[u8]) -> Result<Option<Bytes>, ReadError> {
        let Some(found) = self.find(id)? else { return Ok(None) };
        let omap = found.object().omap();
        if omap.leaves.is_empty() {
            return Ok(omap.pairs.get(key).cloned());
        }
        let part = self.find_leaf(id, &omap.leaves.list()[omap.leaves.at(key)])?;
        Ok(part.object().omap().pairs.get(key).cloned())
    }
    fn omap_walk(
        &self,
        id: &StoredId,
        from: &[u8],
        each: &mut dyn FnMut(&Name, &Bytes) -> bool,
    ) -> Result<(), ReadError> {
        let Some(found) = self.find(id)? else { return Ok(()) };
        let omap = found.object().omap();
        let mut walk = |omap: &Omap| {
            let mut pairs = omap.pairs.range::<[u8], _>((Bound::Included(from), Bound::Unbounded));
            pairs.all(|(key, value)| each(key, value))
        };
        if omap.leaves.is_empty() {
            walk(omap);
            return Ok(());
        }
        for part in &omap.leaves.list()[omap.leaves.at(from)..] {
            if !walk(self.find_leaf(id, part)?.object().omap()) {
                break;
            }
        }
        Ok(())
    }
    fn object_walk(
        &self,
        (shard, from): (ShardId, &ObjectId),
        each: &mut dyn FnMut(ShardId, &ObjectId) -> bool,
    ) -> Result<(), ReadError> {
        let broken = |error| ReadError::Device(format!("objects from {from} on: {error}"));
        for id in self.walk(Bound::Included(StoredId::object(shard, from.clone()))) {
            match id.map_err(broken)?.as_object() {
                Some((shard, object)) if each(shard, object) => {}
                _ => break,
            }
        }
        Ok(())
    }
    fn extents(&self, id: &StoredId, offset: u64, len: u64) -> Result<Vec<(u64, u64)>, ReadError> {
        let Some(found) = self.find(id)? else {
            return Ok(Vec::new());
        };
        let object = found.object();
        let block_len = BLOCK as u64;
        let end = offset.saturating_add(len).min(object.size);
        if offset >= end {
            return Ok(Vec::new());
        }
        let mut extents: Vec<(u64, u64)> = Vec::new();
        for extent in object.blocks.range((offset / block_len) as u32, end.div_ceil(block_len) as u32) {
            let start = u64::from(extent.at) * block_len;
            let extent_end = start + u64::from(extent.blocks.len) * block_len;
            let (from, to) = (start.max(offset), extent_end.min(end));
            match extents.last_mut() {
                Some((last, len)) if *last + *len == from => *len += to - from,
                _ => extents.push((from, to - from)),
            }
        }
        Ok(extents)
    }
    fn read_now(&self, id: &StoredId, extents: &[(u64, u64)]) -> Option<Vec<Bytes>> {
        if !is_small(extents) {
            return None;
        }
        let plan = self.plan_read(id, extents).ok().filter(|plan| !plan.needs_device())?;
        let (read, _) = plan.run_fetching(|_| unreachable!("none of it is on the device")).ok()?;
        Some(read)
    }
    fn has_corrupt_metadata(&self) -> bool {
        self.compaction.met_corruption() || self.pager.as_ref().is_some_and(Pager::met_corruption)
    }
    fn lost(&self) -> Lost {
        Lost { times: self.losses, blocks: self.lost_blocks.clone() }
    }
    fn statfs(&self) -> Statfs {
        let block_len = BLOCK as u64;
        let checkpoint = self.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.writer.blocks());
        let old: u64 = self.old_chunks.iter().map(|extent| u64::from(extent.len)).sum();
        let runs = self.runs.iter().map(|run| run.blocks()).sum::<u64>();
        let chunks = runs + old + checkpoint + self.compaction.blocks();
        let total = self.index.total.weight;
        let unusable = self.reserve(0) + self.slack();
        Statfs {
            total: u64::from(self.geometry.blocks) * block_len,
            available: (u64::from(self.space.free()) + self.discards.under_way_blocks())
                .saturating_sub(unusable)
                * block_len,
            allocated: self.blocks.allocated * block_len,
            stored: total.stored,
            omap: total.omap,
            internal: (u64::from(self.geometry.data_start) + chunks) * block_len,
        }
    }
    fn pools(&self) -> Vec<(PoolId, PoolSpace)> {
        self.index.total.pools.iter().flat_map(Pools::list).collect()
    }
}
