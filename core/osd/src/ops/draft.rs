//! An object in the middle of a vector of operations. Whether it exists, its size and its versions are what
//! the operations so far made of it. Its bytes, attributes and omap are those that were stored before the
//! first of them, as in Ceph: a client knows the bytes that it has just written.

use super::{Copied, Fetched, PoolRules, Stop};
use crate::object_info::ObjectInfo;
use crate::snap_set::SnapSet;
use bytes::Bytes;
use nacre_base::errno::ENOENT;
use nacre_base::{IntervalSet, Name, Utime};
use nacre_machine::{ReadError, StoreView};
use nacre_proto::transaction::{Change, StoredId};
use nacre_proto::types::{CopySource, ObjectId};
use std::collections::{BTreeMap, BTreeSet};

pub struct Draft<'a> {
    store: &'a dyn StoreView,
    pub head: ObjectId,
    /// Whose content is read: the object's own, or a clone's.
    source: ObjectId,
    id: StoredId,
    stored_exists: bool,
    stored_size: u64,
    fetched: &'a Fetched,
    pub exists: bool,
    pub info: ObjectInfo,
    pub snap_set: SnapSet,
    /// Where data is not what it was before the operations.
    pub changed_data: IntervalSet,
    /// Before any operation.
    pub stored_user_version: u64,
    pub size: u64,
    /// Something was changed, if only the version.
    pub modified: bool,
    /// Something that clients count as a change: its version for them, and its time, move on.
    pub user_modified: bool,
    /// It was removed: what is there by now is another one.
    pub gone: bool,
    /// The request contains `Undirty`: the object is clean afterwards, whatever else the request does.
    pub cleaned: bool,
    pub changes: Vec<Change>,
    /// The user version and time of the object that this one became a copy of.
    pub copied_from: Option<(u64, Utime)>,
    /// What the pool forbids.
    pub rules: PoolRules,
    omap: Omap,
}

/// What the operations did to an omap, as far as it shows: until something is put into one that was emptied
/// nothing is in it, and then again what was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Omap {
    AsStored,
    Emptied,
    PutInto,
}

impl<'a> Draft<'a> {
    pub fn new(
        store: &'a dyn StoreView,
        head: ObjectId,
        source: ObjectId,
        info: Option<ObjectInfo>,
        size: u64,
        snap_set: SnapSet,
        fetched: &'a Fetched,
    ) -> Draft<'a> {
        let stored_exists = info.is_some();
        let exists = info.as_ref().is_some_and(|info| !info.whiteout);
        let info = ObjectInfo { whiteout: false, ..info.unwrap_or_default() };
        Draft {
            store,
            head,
            id: source.clone().into(),
            source,
            stored_exists,
            stored_size: size,
            fetched,
            exists,
            snap_set,
            changed_data: IntervalSet::new(),
            stored_user_version: info.user_version,
            info,
            size,
            modified: false,
            user_modified: false,
            gone: false,
            cleaned: false,
            changes: Vec::new(),
            copied_from: None,
            rules: PoolRules::default(),
            omap: Omap::AsStored,
        }
    }

    /// Makes the object exist, and this a change.
    pub fn touch(&mut self) {
        self.modified = true;
        self.user_modified = true;
        if !self.exists {
            self.exists = true;
            self.changes.push(Change::Touch);
        }
    }

    /// What `copy-from` copies.
    pub fn copied(&self, source: &CopySource) -> Result<&'a Copied, Stop> {
        match self.fetched.copies.iter().find(|(of, _)| of == source) {
            None => Err(Stop::NeedCopy(source.clone())),
            Some((_, Ok(copied))) => Ok(copied),
            Some((_, Err(errno))) => Err(Stop::Failed(*errno)),
        }
    }

    // ---- data ----

    /// Of the range, which lies within the object as it is by now, what is stored: less at the end if more
    /// was not.
    pub fn read(&self, offset: u64, len: u64) -> Result<Bytes, Stop> {
        assert!(offset + len <= self.size, "read {offset}~{len} of {} bytes", self.size);
        if len == 0 {
            return Ok(Bytes::new());
        }
        self.need_stored()?;
        let len = (offset + len).min(self.stored_size).saturating_sub(offset);
        if len == 0 {
            return Ok(Bytes::new());
        }
        let holds = |(snap, start, have, _): &&(_, u64, u64, Bytes)| {
            *snap == self.source.snap && *start <= offset && offset + len <= start + have
        };
        let fetched = self.fetched.extents.iter().find(holds).map(|(_, start, _, bytes)| {
            let have = bytes.len() as u64;
            bytes.slice((offset - start).min(have) as usize..(offset + len - start).min(have) as usize)
        });
        let bytes = match fetched.or_else(|| self.store.read_now(&self.id, &[(offset, len)])?.pop()) {
            None => return Err(Stop::Need(self.source.clone(), vec![(offset, len)])),
            Some(bytes) => bytes,
        };
        if bytes.len() as u64 == len {
            return Ok(bytes);
        }
        let mut whole = bytes.to_vec();
        whole.resize(len as usize, 0);
        Ok(whole.into())
    }

    /// Whether it was there before the operations.
    pub fn is_stored(&self) -> bool {
        self.stored_exists
    }

    /// What is not stored has no content.
    fn need_stored(&self) -> Result<(), Stop> {
        if self.stored_exists { Ok(()) } else { Err(Stop::Failed(-ENOENT)) }
    }

    /// The parts of a range within the object that may hold something else than zeros.
    pub fn extents(&self, offset: u64, len: u64) -> Result<Vec<(u64, u64)>, Stop> {
        self.need_stored()?;
        Ok(self.store.extents(&self.id, offset, len)?)
    }

    pub fn write(&mut self, offset: u64, data: Bytes) {
        self.touch();
        if data.is_empty() {
            return;
        }
        let end = offset + data.len() as u64;
        self.changed_data.insert(offset..end);
        self.size = self.size.max(end);
        self.changes.push(Change::Write { offset, data });
    }

    /// Of a range within the object.
    pub fn zero(&mut self, offset: u64, len: u64) {
        self.touch();
        self.changed_data.insert(offset..offset + len);
        self.changes.push(Change::Zero { offset, len });
    }

    pub fn truncate(&mut self, size: u64) {
        self.touch();
        if size < self.size {
            self.changed_data.insert(size..self.size);
        }
        self.size = size;
        self.changes.push(Change::Truncate { size });
    }

    pub fn remove(&mut self) {
        self.modified = true;
        self.user_modified = true;
        self.exists = false;
        self.gone = true;
        self.info = ObjectInfo::default();
        self.copied_from = None;
        self.changed_data.insert(0..self.size);
        self.size = 0;
        self.changes.push(Change::Remove);
    }

    /// Replaces all of the object by a clone's state, except for its watches.
    pub fn become_clone(&mut self, clone: &ObjectId) -> Result<(), Stop> {
        let id = StoredId::from(clone.clone());
        let not_found = || Stop::Store(ReadError::NotFound(id.clone()));
        let info = ObjectInfo::load(self.store, clone)?.ok_or_else(not_found)?;
        let size = self.store.stat(&id)?.ok_or_else(not_found)?.size;
        let differs = self.snap_set.differs_from(clone.snap, self.size);
        differs.iter().for_each(|range| self.changed_data.insert(range));
        let watchers = std::mem::take(&mut self.info.watchers);
        self.info = ObjectInfo { watchers, snaps: Vec::new(), ..info };
        self.modified = true;
        self.user_modified = true;
        self.exists = true;
        self.copied_from = None;
        self.size = size;
        self.changes.push(Change::CloneFrom(id));
        Ok(())
    }

    // ---- attributes, by their stored names ----

    pub fn attr(&self, name: &Name) -> Result<Option<Bytes>, Stop> {
        self.need_stored()?;
        Ok(self.store.attr(&self.id, name.as_bytes())?)
    }
    pub fn attrs(&self) -> Result<BTreeMap<Name, Bytes>, Stop> {
        self.need_stored()?;
        Ok(self.store.attrs(&self.id)?)
    }
    pub fn set_attr(&mut self, name: Name, value: Bytes) {
        self.touch();
        self.changes.push(Change::SetAttrs([(name, value)].into()));
    }
    pub fn remove_attr(&mut self, name: Name) {
        self.touch();
        self.changes.push(Change::RemoveAttr(name));
    }

    // ---- omap ----

    pub fn omap_get(&self, key: &Name) -> Result<Option<Bytes>, Stop> {
        Ok(if self.omap_shows() { self.store.omap_get(&self.id, key.as_bytes())? } else { None })
    }
    /// Keys from the first `>= from` on, in order, until `each` says false.
    pub fn omap_walk(&self, from: &[u8], each: &mut dyn FnMut(&Name, &Bytes) -> bool) -> Result<(), Stop> {
        if self.omap_shows() {
            self.store.omap_walk(&self.id, from, each)?;
        }
        Ok(())
    }
    pub fn omap_header(&self) -> Result<Bytes, Stop> {
        Ok(if self.stored_exists { self.store.omap_header(&self.id)? } else { Bytes::new() })
    }
    /// Whether there is an omap, and no object stored that it could be of.
    pub fn omap_is_new(&self) -> bool {
        self.omap == Omap::PutInto && !self.stored_exists
    }
    fn omap_shows(&self) -> bool {
        self.stored_exists && self.omap != Omap::Emptied
    }
    /// Whether nothing is or may be in the omap.
    pub fn omap_is_empty(&self) -> Result<bool, Stop> {
        let mut empty =
            self.omap == Omap::Emptied || self.omap == Omap::AsStored && self.omap_header()?.is_empty();
        if empty {
            self.omap_walk(&[], &mut |_, _| {
                empty = false;
                false
            })?;
        }
        Ok(empty)
    }
    pub fn omap_set(&mut self, pairs: &BTreeMap<Name, Bytes>) {
        self.touch();
        // The store keeps them in memory: not with the whole request that they came in.
        let pairs: BTreeMap<_, _> =
            pairs.iter().map(|(key, value)| (key.clone(), Bytes::copy_from_slice(value))).collect();
        self.omap = Omap::PutInto;
        self.changes.push(Change::OmapSet(pairs));
    }
    pub fn omap_remove(&mut self, keys: &BTreeSet<Name>) {
        self.touch();
        self.changes.push(Change::OmapRemove(keys.clone()));
    }
    /// Without a look at what is stored there: that may be a million keys.
    pub fn omap_remove_range(&mut self, begin: &Name, end: &Name) {
        self.touch();
        self.changes.push(Change::OmapRemoveRange { begin: begin.clone(), end: end.clone() });
    }
    pub fn omap_clear(&mut self) {
        self.touch();
        self.omap = Omap::Emptied;
        self.changes.push(Change::OmapClear);
    }
    pub fn set_omap_header(&mut self, header: Bytes) {
        self.touch();
        self.omap = Omap::PutInto;
        self.changes.push(Change::OmapSetHeader(header));
    }
}
