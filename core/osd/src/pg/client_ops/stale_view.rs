//! The store as operations see it on a primary that lacks parts of objects: what is missing cannot be read.
//! An operation that needs it learns which parts to fetch, and runs again when they are there.

use crate::pg::history::missing::Missing;
use bytes::Bytes;
use nacre_base::{IntervalSet, KeyRanges, Name, PoolId, ShardId};
use nacre_machine::{ReadError, Statfs, StoreStat, StoreView};
use nacre_proto::messages::PoolSpace;
use nacre_proto::messages::part::Part;
use nacre_proto::transaction::StoredId;
use nacre_proto::types::ObjectId;
use std::cell::RefCell;
use std::collections::BTreeMap;

pub struct StaleView<'a> {
    store: &'a dyn StoreView,
    missing: &'a Missing,
    /// Nothing was stored in this turn, so that data in the view is what it will be, and there is memory to
    /// copy it.
    reads_now: bool,
    /// The store shows whole objects of an erasure-coded pool: what is missing here of their bytes is not
    /// what is missing of them.
    is_whole: bool,
    looked_at: RefCell<BTreeMap<ObjectId, Part>>,
}

impl<'a> StaleView<'a> {
    /// Of a primary that lacks `missing`.
    pub fn new(
        store: &'a dyn StoreView,
        missing: &'a Missing,
        reads_now: bool,
        is_whole: bool,
    ) -> StaleView<'a> {
        StaleView { store, missing, reads_now, is_whole, looked_at: RefCell::default() }
    }
    /// Missing parts that an operation needed. If there are any, its outcome means nothing.
    pub fn into_examined(self) -> BTreeMap<ObjectId, Part> {
        self.looked_at.into_inner()
    }

    fn refuse(&self, object: &ObjectId, part: &Part) -> ReadError {
        self.looked_at.borrow_mut().entry(object.clone()).or_default().add(part);
        ReadError::Device(format!("some of {object} is not here yet"))
    }
    /// Passes if nothing of that part is missing.
    fn need(&self, id: &StoredId, part: &Part) -> Result<(), ReadError> {
        let StoredId::Object(object) = id else { return Ok(()) };
        let Some(stale) = self.missing.get(object) else { return Ok(()) };
        let mut lacking = stale.part.intersection(part);
        if self.is_whole {
            lacking.data = IntervalSet::new();
        }
        if lacking.is_empty() { Ok(()) } else { Err(self.refuse(object, &lacking)) }
    }
    /// The data that a read of these extents needs.
    pub fn need_data(&self, id: &StoredId, extents: &[(u64, u64)]) -> bool {
        let StoredId::Object(object) = id else { return true };
        if self.missing.get(object).is_none() {
            return true; // as nearly always
        }
        let data = extents.iter().map(|(offset, len)| *offset..offset.saturating_add(*len)).collect();
        self.need(id, &Part { data, ..Part::default() }).is_ok()
    }
}

impl StoreView for StaleView<'_> {
    fn stat(&self, id: &StoredId) -> Result<Option<StoreStat>, ReadError> {
        self.need(id, &Part::meta())?;
        self.store.stat(id)
    }
    fn attr(&self, id: &StoredId, name: &[u8]) -> Result<Option<Bytes>, ReadError> {
        self.need(id, &Part::meta())?;
        self.store.attr(id, name)
    }
    fn attrs(&self, id: &StoredId) -> Result<BTreeMap<Name, Bytes>, ReadError> {
        self.need(id, &Part::meta())?;
        self.store.attrs(id)
    }
    fn omap_header(&self, id: &StoredId) -> Result<Bytes, ReadError> {
        self.need(id, &Part::meta())?;
        self.store.omap_header(id)
    }
    fn omap_get(&self, id: &StoredId, key: &[u8]) -> Result<Option<Bytes>, ReadError> {
        let mut omap = KeyRanges::default();
        omap.insert_key(&Name::copy_from(key));
        self.need(id, &Part { omap, ..Part::default() })?;
        self.store.omap_get(id, key)
    }
    fn omap_walk(
        &self,
        id: &StoredId,
        from: &[u8],
        each: &mut dyn FnMut(&Name, &Bytes) -> bool,
    ) -> Result<(), ReadError> {
        let stale = match id {
            StoredId::Object(object) => self.missing.get(object).map(|stale| (object, &stale.part.omap)),
            _ => None,
        };
        let Some((object, stale)) = stale else { return self.store.omap_walk(id, from, each) };
        let mut ahead = stale.clone();
        ahead.remove(&Name::default(), Some(&Name::copy_from(from)));
        // As far as all is here.
        let first = ahead.iter().next().map(|(start, _)| start.clone());
        let mut more = true;
        self.store.omap_walk(id, from, &mut |key, value| {
            if first.as_ref().is_some_and(|first| key >= first) {
                return false;
            }
            more = each(key, value);
            more
        })?;
        match first {
            Some(_) if more => Err(self.refuse(object, &Part { omap: ahead, ..Part::default() })),
            _ => Ok(()),
        }
    }
    fn object_walk(
        &self,
        from: (ShardId, &ObjectId),
        each: &mut dyn FnMut(ShardId, &ObjectId) -> bool,
    ) -> Result<(), ReadError> {
        self.store.object_walk(from, each)
    }
    fn extents(&self, id: &StoredId, offset: u64, len: u64) -> Result<Vec<(u64, u64)>, ReadError> {
        self.need(id, &Part { data: (offset..offset.saturating_add(len)).into(), ..Part::default() })?;
        self.store.extents(id, offset, len)
    }
    fn read_now(&self, id: &StoredId, extents: &[(u64, u64)]) -> Option<Vec<Bytes>> {
        if self.reads_now && self.need_data(id, extents) { self.store.read_now(id, extents) } else { None }
    }
    fn statfs(&self) -> Statfs {
        self.store.statfs()
    }
    fn pools(&self) -> Vec<(PoolId, PoolSpace)> {
        self.store.pools()
    }
}
