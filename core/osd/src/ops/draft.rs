//! An object as it is in the middle of a vector of operations: what is stored, and over it what
//! the operations so far did.

use super::{Copied, Fetched, Stop};
use crate::object_info::ObjectInfo;
use crate::snap_set::SnapSet;
use bytes::Bytes;
use nacre_base::{IntervalSet, Name, Utime};
use nacre_machine::{ReadError, StoreView};
use nacre_proto::transaction::{Change, StoredId};
use nacre_proto::types::{CopySource, ObjectId};
use std::collections::{BTreeMap, BTreeSet};

pub struct Draft<'a> {
    store: &'a dyn StoreView,
    pub head: ObjectId,
    /// Whose stored content shows through: the object's own, or a clone's.
    source: ObjectId,
    id: StoredId,
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
    pub changes: Vec<Change>,
    /// The user version and time of the object that this one became a copy of.
    pub copied_from: Option<(u64, Utime)>,
    /// Below this the stored bytes show through where nothing lies over them.
    stored_below: u64,
    /// Disjoint pieces over the stored bytes: start to (length, bytes or zeros).
    pieces: BTreeMap<u64, (u64, Option<Bytes>)>,
    /// Removed with the object that had them.
    stored_attrs_gone: bool,
    attrs: BTreeMap<Name, Option<Bytes>>,
    stored_omap_gone: bool,
    /// Stored keys that were removed by ranges: from, to. They are apart.
    omap_gone: BTreeMap<Name, Name>,
    omap: BTreeMap<Name, Option<Bytes>>,
    omap_header: Option<Bytes>,
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
        let exists = info.as_ref().is_some_and(|info| !info.whiteout);
        let info = ObjectInfo { whiteout: false, ..info.unwrap_or_default() };
        Draft {
            store,
            head,
            id: source.clone().into(),
            source,
            fetched,
            exists,
            snap_set,
            changed_data: IntervalSet::new(),
            stored_user_version: info.user_version,
            info,
            size,
            modified: false,
            user_modified: false,
            changes: Vec::new(),
            copied_from: None,
            stored_below: size,
            pieces: BTreeMap::new(),
            stored_attrs_gone: !exists,
            attrs: BTreeMap::new(),
            stored_omap_gone: !exists,
            omap_gone: BTreeMap::new(),
            omap: BTreeMap::new(),
            omap_header: None,
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

    /// Bytes of `offset..offset + len`, which must lie within the object.
    pub fn read(&self, offset: u64, len: u64) -> Result<Bytes, Stop> {
        let end = offset + len;
        assert!(end <= self.size, "read {offset}~{len} of {} bytes", self.size);
        let mut parts: Vec<Bytes> = Vec::new();
        let mut need = Vec::new();
        let mut at = offset;
        let before = self.pieces.range(..=offset).next_back();
        let pieces = before.into_iter().chain(self.pieces.range(offset + 1..end.max(offset + 1)));
        for (&start, (piece_len, bytes)) in pieces {
            let (from, to) = (start.max(offset), (start + piece_len).min(end));
            if from >= to {
                continue;
            }
            self.read_stored(at, from, &mut parts, &mut need);
            parts.push(match bytes {
                Some(bytes) => bytes.slice((from - start) as usize..(to - start) as usize),
                None => zeros(to - from),
            });
            at = to;
        }
        self.read_stored(at, end, &mut parts, &mut need);
        if !need.is_empty() {
            return Err(Stop::Need(self.source.clone(), need));
        }
        Ok(match &mut parts[..] {
            [] => Bytes::new(),
            [one] => std::mem::take(one),
            _ => parts.concat().into(),
        })
    }

    fn read_stored(&self, from: u64, to: u64, parts: &mut Vec<Bytes>, need: &mut Vec<(u64, u64)>) {
        let shown = to.min(self.stored_below);
        if from < shown {
            let holds = |(snap, start, len, _): &&(_, u64, u64, Bytes)| {
                *snap == self.source.snap && *start <= from && shown <= start + len
            };
            let fetched = self.fetched.extents.iter().find(holds);
            let found = fetched.map(|(_, start, _, bytes)| {
                let have = bytes.len() as u64;
                bytes.slice((from - start).min(have) as usize..(shown - start).min(have) as usize)
            });
            let in_memory = || self.store.read_now(&self.id, &[(from, shown - from)])?.pop();
            match found.or_else(in_memory) {
                None => need.push((from, shown - from)),
                Some(bytes) => {
                    let left = shown - from - bytes.len() as u64;
                    parts.push(bytes);
                    if left > 0 {
                        parts.push(zeros(left));
                    }
                }
            }
        }
        let hole = from.max(shown);
        if hole < to {
            parts.push(zeros(to - hole));
        }
    }

    /// The parts of a range within the object that may hold something else than zeros.
    pub fn extents(&self, offset: u64, len: u64) -> Result<Vec<(u64, u64)>, Stop> {
        if !self.pieces.is_empty() || self.stored_below < offset + len {
            return Ok(vec![(offset, len)]);
        }
        Ok(self.store.extents(&self.id, offset, len)?)
    }

    pub fn write(&mut self, offset: u64, data: Bytes) {
        self.touch();
        if data.is_empty() {
            return;
        }
        let end = offset + data.len() as u64;
        self.cover(offset, end, Some(data.clone()));
        self.size = self.size.max(end);
        self.changes.push(Change::Write { offset, data });
    }

    /// Of a range within the object.
    pub fn zero(&mut self, offset: u64, len: u64) {
        self.touch();
        self.cover(offset, offset + len, None);
        self.changes.push(Change::Zero { offset, len });
    }

    pub fn truncate(&mut self, size: u64) {
        self.touch();
        if size < self.size {
            self.changed_data.insert(size..self.size);
            self.cut(size, u64::MAX);
            self.stored_below = self.stored_below.min(size);
        }
        self.size = size;
        self.changes.push(Change::Truncate { size });
    }

    pub fn remove(&mut self) {
        self.modified = true;
        self.user_modified = true;
        self.exists = false;
        self.info = ObjectInfo::default();
        self.copied_from = None;
        self.changed_data.insert(0..self.size);
        self.size = 0;
        self.stored_below = 0;
        self.pieces.clear();
        self.stored_attrs_gone = true;
        self.attrs.clear();
        self.forget_omap();
        self.changes.push(Change::Remove);
    }

    /// Everything becomes what is stored of a clone, but for who watches the object.
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
        self.stored_below = size;
        self.pieces.clear();
        (self.stored_attrs_gone, self.stored_omap_gone) = (false, false);
        self.attrs.clear();
        self.omap_gone.clear();
        self.omap.clear();
        self.omap_header = None;
        self.source = clone.clone();
        self.id = id.clone();
        self.changes.push(Change::CloneFrom(id));
        Ok(())
    }

    fn cover(&mut self, start: u64, end: u64, bytes: Option<Bytes>) {
        self.changed_data.insert(start..end);
        self.cut(start, end);
        self.pieces.insert(start, (end - start, bytes));
    }

    /// Takes the pieces out of a range.
    fn cut(&mut self, start: u64, end: u64) {
        while let Some((&at, (len, _))) = self.pieces.range(..end).next_back() {
            let piece_end = at + len;
            if piece_end <= start {
                break;
            }
            let (_, bytes) = self.pieces.remove(&at).expect("just found");
            let part = |from: u64, to: u64| bytes.as_ref().map(|b| b.slice(from as usize..to as usize));
            if piece_end > end {
                self.pieces.insert(end, (piece_end - end, part(end - at, piece_end - at)));
            }
            if at < start {
                self.pieces.insert(at, (start - at, part(0, start - at)));
                break;
            }
        }
    }

    // ---- attributes, by their stored names ----

    pub fn attr(&self, name: &Name) -> Result<Option<Bytes>, Stop> {
        match self.attrs.get(name) {
            Some(value) => Ok(value.clone()),
            None if self.stored_attrs_gone => Ok(None),
            None => Ok(self.store.attr(&self.id, name.as_bytes())?),
        }
    }
    pub fn attrs(&self) -> Result<BTreeMap<Name, Bytes>, Stop> {
        let mut all = if self.stored_attrs_gone { BTreeMap::new() } else { self.store.attrs(&self.id)? };
        for (name, value) in &self.attrs {
            match value {
                Some(value) => all.insert(name.clone(), value.clone()),
                None => all.remove(name),
            };
        }
        Ok(all)
    }
    pub fn set_attr(&mut self, name: Name, value: Bytes) {
        self.touch();
        self.attrs.insert(name.clone(), Some(value.clone()));
        self.changes.push(Change::SetAttrs([(name, value)].into()));
    }
    pub fn remove_attr(&mut self, name: Name) {
        self.touch();
        self.attrs.insert(name.clone(), None);
        self.changes.push(Change::RemoveAttr(name));
    }

    // ---- omap ----

    pub fn omap_get(&self, key: &Name) -> Result<Option<Bytes>, Stop> {
        match self.omap.get(key) {
            Some(value) => Ok(value.clone()),
            None if self.stored_omap_gone || self.gone_up_to(key).is_some() => Ok(None),
            None => Ok(self.store.omap_get(&self.id, key.as_bytes())?),
        }
    }

    /// Keys from the first `>= from` on, in order, until `each` says false.
    pub fn omap_walk(&self, from: &[u8], each: &mut dyn FnMut(&Name, &Bytes) -> bool) -> Result<(), Stop> {
        let mut over = self.omap.range(Name::copy_from(from)..).peekable();
        let mut more = true;
        let mut next = (!self.stored_omap_gone).then(|| Name::copy_from(from));
        while let Some(from) = next.take() {
            self.store.omap_walk(&self.id, from.as_bytes(), &mut |key, value| {
                next = self.gone_up_to(key).cloned();
                if next.is_some() {
                    return false;
                }
                while let Some((name, drafted)) = over.next_if(|(name, _)| *name < key) {
                    if let Some(drafted) = drafted {
                        more = each(name, drafted);
                        if !more {
                            return false;
                        }
                    }
                }
                let shown = match over.next_if(|(name, _)| *name == key) {
                    Some((_, drafted)) => drafted.as_ref(),
                    None => Some(value),
                };
                more = shown.is_none_or(|value| each(key, value));
                more
            })?;
        }
        while more {
            match over.next() {
                None => break,
                Some((_, None)) => {}
                Some((name, Some(value))) => more = each(name, value),
            }
        }
        Ok(())
    }
    pub fn omap_header(&self) -> Result<Bytes, Stop> {
        match &self.omap_header {
            Some(header) => Ok(header.clone()),
            None if self.stored_omap_gone => Ok(Bytes::new()),
            None => Ok(self.store.omap_header(&self.id)?),
        }
    }
    pub fn omap_set(&mut self, pairs: &BTreeMap<Name, Bytes>) {
        self.touch();
        // The store keeps them in memory: not with the whole request that they came in.
        let pairs: BTreeMap<_, _> =
            pairs.iter().map(|(key, value)| (key.clone(), Bytes::copy_from_slice(value))).collect();
        self.omap.extend(pairs.iter().map(|(k, v)| (k.clone(), Some(v.clone()))));
        self.changes.push(Change::OmapSet(pairs));
    }
    pub fn omap_remove(&mut self, keys: &BTreeSet<Name>) {
        self.touch();
        self.omap.extend(keys.iter().map(|k| (k.clone(), None)));
        self.changes.push(Change::OmapRemove(keys.clone()));
    }
    /// Without a look at what is stored there: that may be a million keys.
    pub fn omap_remove_range(&mut self, begin: &Name, end: &Name) {
        self.touch();
        if begin < end {
            let drafted: Vec<Name> =
                self.omap.range::<Name, _>(begin..end).map(|(key, _)| key.clone()).collect();
            drafted.iter().for_each(|key| drop(self.omap.remove(key)));
            let (mut from, mut to) = (begin.clone(), end.clone());
            while let Some((first, last)) = self.omap_gone.range::<Name, _>(..=&to).next_back()
                && *last >= from
            {
                (from, to) = (from.min(first.clone()), to.max(last.clone()));
                let first = first.clone();
                self.omap_gone.remove(&first);
            }
            self.omap_gone.insert(from, to);
        }
        self.changes.push(Change::OmapRemoveRange { begin: begin.clone(), end: end.clone() });
    }
    /// Where the removed range ends that a stored key is in.
    fn gone_up_to(&self, key: &Name) -> Option<&Name> {
        let (_, end) = self.omap_gone.range::<Name, _>(..=key).next_back()?;
        (key < end).then_some(end)
    }
    pub fn omap_clear(&mut self) {
        self.touch();
        self.forget_omap();
        self.changes.push(Change::OmapClear);
    }
    pub fn set_omap_header(&mut self, header: Bytes) {
        self.touch();
        self.omap_header = Some(header.clone());
        self.changes.push(Change::OmapSetHeader(header));
    }
    fn forget_omap(&mut self) {
        self.stored_omap_gone = true;
        self.omap_gone.clear();
        self.omap.clear();
        self.omap_header = Some(Bytes::new());
    }
}

fn zeros(len: u64) -> Bytes {
    vec![0; len as usize].into()
}
