//! A store in memory that loses what was not durable when its machine dies.

use bytes::Bytes;
use nacre_base::{IntervalSet, Name, PoolId, ShardId};
use nacre_machine::{Lost, ReadError, SalvagedExtents, Statfs, StoreStat, StoreView};
use nacre_proto::messages::PoolSpace;
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_proto::types::ObjectId;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemRecord {
    pub data: Vec<u8>,
    pub attrs: BTreeMap<Name, Bytes>,
    pub omap: BTreeMap<Name, Bytes>,
    pub header: Bytes,
}

#[derive(Clone, Default)]
pub struct MemStore {
    pub records: BTreeMap<StoredId, MemRecord>,
    /// Blocks of 4096 bytes that cannot be read until all of them was written anew; what of them was.
    pub bad: BTreeMap<(StoredId, u64), IntervalSet>,
    pub lost: Lost,
    /// Nothing can be told of these, until they are removed.
    pub unreadable: BTreeSet<StoredId>,
    pub has_corrupt_metadata: bool,
    /// Objects cannot be listed.
    pub walks_fail: bool,
    /// Data can be read at once.
    pub in_memory: bool,
    /// Bytes that are free of a GiB; none: there is no end.
    pub free: Option<u64>,
    /// How often one attribute was asked for.
    pub attrs_read: Cell<usize>,
    /// How many keys walks of omaps came by.
    pub keys_walked: Cell<usize>,
}

impl MemStore {
    pub fn apply(&mut self, txn: &Transaction) {
        for (id, change) in &txn.changes {
            if let Change::Remove = change {
                self.records.remove(id);
                self.bad.retain(|(of, _), _| of != id);
                self.unreadable.remove(id);
                continue;
            }
            if let Change::CloneFrom(from) = change {
                let copy = self.records.get(from).cloned().unwrap_or_default();
                self.records.insert(id.clone(), copy);
                let bad = self.bad.iter().filter(|((of, _), _)| of == from);
                let bad: Vec<_> =
                    bad.map(|((_, block), known)| ((id.clone(), *block), known.clone())).collect();
                self.bad.retain(|(of, _), _| of != id);
                self.bad.extend(bad);
                continue;
            }
            if let Change::CloneBlocks { from, blocks } = change {
                self.clone_blocks(id, from, blocks);
                continue;
            }
            let covered = match change {
                Change::Write { offset, data } => Some(*offset..offset + data.len() as u64),
                Change::Zero { offset, len } => Some(*offset..offset + len),
                _ => None,
            };
            if let Some(covered) = covered.map(IntervalSet::from) {
                self.bad.retain(|(of, block), known| {
                    if of == id {
                        let block = block * 4096..(block + 1) * 4096;
                        known.add(&covered.intersection(&block.into()));
                    }
                    known.size() < 4096
                });
            }
            let record = self.records.entry(id.clone()).or_default();
            match change {
                Change::Write { offset, data } => {
                    let (start, end) = (*offset as usize, *offset as usize + data.len());
                    record.data.resize(record.data.len().max(end), 0);
                    record.data[start..end].copy_from_slice(data);
                }
                // Bytes that are damaged stay so.
                Change::Xor { offset, data } => {
                    let (start, end) = (*offset as usize, *offset as usize + data.len());
                    record.data.resize(record.data.len().max(end), 0);
                    record.data[start..end].iter_mut().zip(data).for_each(|(to, byte)| *to ^= byte);
                }
                Change::Zero { offset, len } => {
                    let (start, end) = (*offset as usize, (*offset + *len) as usize);
                    record.data.resize(record.data.len().max(end), 0);
                    record.data[start..end].fill(0);
                }
                Change::Truncate { size } => record.data.resize(*size as usize, 0),
                Change::SetAttrs(attrs) => record.attrs.extend(attrs.clone()),
                Change::RemoveAttr(name) => drop(record.attrs.remove(name)),
                Change::OmapSet(pairs) => record.omap.extend(pairs.clone()),
                Change::OmapRemove(keys) => record.omap.retain(|key, _| !keys.contains(key)),
                Change::OmapRemoveRange { begin, end } => record.omap.retain(|k, _| k < begin || k >= end),
                Change::OmapClear => {
                    record.omap.clear();
                    record.header = Bytes::new();
                }
                Change::OmapSetHeader(header) => record.header = header.clone(),
                Change::Touch | Change::Remove | Change::CloneFrom(_) | Change::CloneBlocks { .. } => {}
            }
        }
    }

    fn clone_blocks(&mut self, id: &StoredId, from: &StoredId, blocks: &Range<u32>) {
        let part = blocks.start as usize * 4096..blocks.end as usize * 4096;
        let mut data = self.records.get(from).cloned().unwrap_or_default().data;
        data.resize(part.end, 0);
        let record = self.records.entry(id.clone()).or_default();
        record.data.resize(record.data.len().max(part.end), 0);
        record.data[part.clone()].copy_from_slice(&data[part]);
        let is_copied = |block: u64| (u64::from(blocks.start)..u64::from(blocks.end)).contains(&block);
        self.bad.retain(|(of, block), _| of != id || !is_copied(*block));
        let bad = self.bad.iter().filter(|((of, block), _)| of == from && is_copied(*block));
        let bad: Vec<_> = bad.map(|((_, block), known)| ((id.clone(), *block), known.clone())).collect();
        self.bad.extend(bad);
    }

    pub fn read(&self, id: &StoredId, extents: &[(u64, u64)]) -> Result<Vec<Bytes>, ReadError> {
        let record = self.records.get(id).ok_or_else(|| ReadError::NotFound(id.clone()))?;
        for &(offset, len) in extents {
            let blocks = offset / 4096..=(offset + len - 1) / 4096;
            let bad = |block| Some((block, self.bad.get(&(id.clone(), block))?));
            if let Some((block, known)) = blocks.into_iter().find_map(bad) {
                let bytes = |range: Range<u64>| {
                    let end = record.data.len().min(range.end as usize);
                    Some((range.start, Bytes::copy_from_slice(record.data.get(range.start as usize..end)?)))
                };
                let salvaged = SalvagedExtents(known.iter().filter_map(bytes).collect());
                return Err(ReadError::Checksum { id: id.clone(), block, expected: 1, found: 2, salvaged });
            }
        }
        let part = |&(offset, len): &(u64, u64)| {
            let size = record.data.len() as u64;
            let (start, end) = (offset.min(size) as usize, offset.saturating_add(len).min(size) as usize);
            Bytes::copy_from_slice(&record.data[start..end])
        };
        Ok(extents.iter().map(part).collect())
    }
    fn find(&self, id: &StoredId) -> Result<Option<&MemRecord>, ReadError> {
        if self.unreadable.contains(id) {
            let (id, why) = (id.clone(), "a page of metadata rotted".to_string());
            return Err(ReadError::Unreadable { id, block: 0, why, salvaged: SalvagedExtents::default() });
        }
        Ok(self.records.get(id))
    }
    pub fn objects(&self) -> impl Iterator<Item = (&ObjectId, &MemRecord)> {
        self.records.iter().filter_map(|(id, record)| match id {
            StoredId::Object(object) => Some((object, record)),
            _ => None,
        })
    }
}

impl StoreView for MemStore {
    fn stat(&self, id: &StoredId) -> Result<Option<StoreStat>, ReadError> {
        Ok(self.find(id)?.map(|record| StoreStat { size: record.data.len() as u64 }))
    }
    fn attr(&self, id: &StoredId, name: &[u8]) -> Result<Option<Bytes>, ReadError> {
        self.attrs_read.set(self.attrs_read.get() + 1);
        Ok(self.find(id)?.and_then(|record| record.attrs.get(name).cloned()))
    }
    fn attrs(&self, id: &StoredId) -> Result<BTreeMap<Name, Bytes>, ReadError> {
        Ok(self.find(id)?.map(|record| record.attrs.clone()).unwrap_or_default())
    }
    fn omap_header(&self, id: &StoredId) -> Result<Bytes, ReadError> {
        Ok(self.find(id)?.map(|record| record.header.clone()).unwrap_or_default())
    }
    fn omap_get(&self, id: &StoredId, key: &[u8]) -> Result<Option<Bytes>, ReadError> {
        Ok(self.find(id)?.and_then(|record| record.omap.get(key).cloned()))
    }
    fn omap_walk(
        &self,
        id: &StoredId,
        from: &[u8],
        each: &mut dyn FnMut(&Name, &Bytes) -> bool,
    ) -> Result<(), ReadError> {
        let Some(record) = self.find(id)? else { return Ok(()) };
        let mut pairs = record.omap.range(Name::copy_from(from)..);
        while pairs.next().is_some_and(|(key, value)| {
            self.keys_walked.update(|walked| walked + 1);
            each(key, value)
        }) {}
        Ok(())
    }
    fn object_walk(
        &self,
        from: (ShardId, &ObjectId),
        each: &mut dyn FnMut(ShardId, &ObjectId) -> bool,
    ) -> Result<(), ReadError> {
        if self.walks_fail {
            let (id, why) = (StoredId::object(from.0, from.1.clone()), "a page is corrupt".to_string());
            return Err(ReadError::Unreadable { id, block: 0, why, salvaged: SalvagedExtents::default() });
        }
        let mut records = self.records.range(StoredId::object(from.0, from.1.clone())..);
        while let Some((shard, object)) = records.next().and_then(|(id, _)| id.as_object()) {
            if !each(shard, object) {
                break;
            }
        }
        Ok(())
    }
    fn extents(&self, id: &StoredId, offset: u64, len: u64) -> Result<Vec<(u64, u64)>, ReadError> {
        // Blocks of nothing but zeros count as holes.
        const BLOCK: usize = 8;
        let data = self.find(id)?.map_or(&[][..], |record| &record.data[..]);
        let end = offset.saturating_add(len).min(data.len() as u64) as usize;
        let mut extents: Vec<(u64, u64)> = Vec::new();
        let mut at = offset as usize;
        while at < end {
            let next = ((at / BLOCK + 1) * BLOCK).min(end);
            if data[at..next].iter().any(|byte| *byte != 0) {
                match extents.last_mut() {
                    Some((last, len)) if *last + *len == at as u64 => *len += (next - at) as u64,
                    _ => extents.push((at as u64, (next - at) as u64)),
                }
            }
            at = next;
        }
        Ok(extents)
    }
    fn read_now(&self, id: &StoredId, extents: &[(u64, u64)]) -> Option<Vec<Bytes>> {
        let len: u64 = extents.iter().map(|(_, len)| len).sum();
        if self.in_memory && len <= 64 << 10 { self.read(id, extents).ok() } else { None }
    }
    fn lost(&self) -> Lost {
        self.lost.clone()
    }
    fn has_corrupt_metadata(&self) -> bool {
        self.has_corrupt_metadata
    }
    fn statfs(&self) -> Statfs {
        let (total, available) = self.free.map_or((1 << 40, 1 << 40), |free| (1 << 30, free));
        Statfs { total, available, ..Statfs::default() }
    }
    fn pools(&self) -> Vec<(PoolId, PoolSpace)> {
        Vec::new()
    }
}
