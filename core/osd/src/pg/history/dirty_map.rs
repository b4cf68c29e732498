//! The dirty map: what a member that is away misses beyond the reach of the log.
//!
//! While members are absent, entries that leave the log are folded into one record per object, on disk only
//! (`Dirty`; keys `d` of the record). The map covers all of history from `info.dirty_from` to the log's tail.
//! A member that comes back, and has all before that, gets the ranges that changed since, and then the log.
//!
//! While no member is absent the map is empty and begins at the log's tail; so it does again when it has
//! become so large that comparing all names costs less.

use super::History;
use super::log::EncodedEntry;
use super::log_merge::changes_of;
use super::record::{DIRTY, RecordChanges, dirty_key};
use crate::pg::Ctx;
use bytes::Bytes;
use nacre_base::{Name, SnapId, SpgId, Version, key_after};
use nacre_machine::{Level, ReadError, StoreView};
use nacre_proto::messages::part::{Act, Dirty, Origin, Part};
use nacre_proto::messages::peer::{EntryKind, LogEntry};
use nacre_proto::transaction::StoredId;
use nacre_proto::types::{EntityType, ObjectId};
use nacre_wire::from_slice;
use std::collections::{BTreeMap, BTreeSet};

/// Objects in the map at most.
const OBJECTS_MAX: u32 = if cfg!(test) { 20 } else { 32_768 };
/// Ranges of bytes, and of keys, for each object; beyond, what lies between counts as changed too.
const RANGES_MAX: usize = if cfg!(test) { 4 } else { 128 };
/// Objects, and bytes, in one message.
const PAGE_OBJECTS: usize = if cfg!(test) { 2 } else { 2000 };
const PAGE_BYTES: usize = 1 << 20;

/// What this turn changed in the map; the store's view does not show it yet.
#[derive(Debug, Default)]
pub struct UnappliedDirty {
    /// All that the view shows is gone.
    cleared: bool,
    objects: BTreeMap<ObjectId, Dirty>,
}

impl UnappliedDirty {
    pub fn is_empty(&self) -> bool {
        !self.cleared && self.objects.is_empty()
    }
}

impl History {
    /// Entries up to `to` leave the log.
    ///
    /// `fold`: members are absent, and get what these entries did from the dirty map.
    pub fn trim_log(&mut self, ctx: &mut Ctx<'_>, to: Version, fold: bool, changes: &mut RecordChanges) {
        let old = self.log.trim(to);
        old.iter().for_each(|entry| changes.no_entry(entry.version));
        self.info.log_tail = to;
        self.remember(ctx, &old, changes);
        if !fold {
            self.forget_dirty(changes);
            return;
        }
        let mut touched = BTreeSet::new();
        if let Err(error) = old.iter().try_for_each(|entry| self.fold(ctx.store, &entry.read(), &mut touched))
        {
            ctx.log(Level::Error, format!("pg {}: what changed before its log: {error}", self.pg));
            self.forget_dirty(changes);
        } else if self.info.dirty_objects > OBJECTS_MAX {
            self.forget_dirty(changes);
        } else {
            // Once, however many entries an object has among them.
            touched.iter().for_each(|object| changes.dirty(object, &self.dirty.objects[object]));
        }
    }

    /// Clients' requests among the entries that left the log go to the duplicate-op log.
    fn remember(&mut self, ctx: &Ctx<'_>, old: &[EncodedEntry], changes: &mut RecordChanges) {
        let (last, limits) = (self.info.last_update, ctx.budget.log_limits());
        let by_client = old.iter().filter(|entry| entry.reqid.client.kind != EntityType::Osd as u8);
        let in_reach = by_client.filter(|entry| entry.version.version + limits.answers > last.version);
        if let Some(page) = self.dups.add(in_reach.map(EncodedEntry::answer).collect()) {
            changes.dup_page(page);
        }
        let gone = self.dups.trim(last, limits, self.log.memory());
        gone.into_iter().for_each(|page| changes.no_dup_page(page));
    }

    /// The map begins anew, empty, at the log's tail.
    pub fn forget_dirty(&mut self, changes: &mut RecordChanges) {
        if self.info.dirty_objects > 0 {
            changes.no_dirty();
            self.dirty = UnappliedDirty { cleared: true, objects: BTreeMap::new() };
        }
        self.info.dirty_from = self.info.log_tail;
        self.info.dirty_objects = 0;
    }

    fn fold(
        &mut self,
        store: &dyn StoreView,
        entry: &LogEntry,
        touched: &mut BTreeSet<ObjectId>,
    ) -> Result<(), ReadError> {
        for (object, kind, prior, acts) in changes_of(entry) {
            let known = self.dirty_of(store, &object)?;
            self.info.dirty_objects += u32::from(known.is_none());
            let mut dirty = known.unwrap_or_default();
            dirty.last = entry.version;
            dirty.gone = kind == EntryKind::Delete;
            let anew = |act: &Act| matches!(act, Act::Remove | Act::CloneFrom(_));
            let changed = match &acts[..] {
                // Not a head that is rolled back: its clones rely on it being here as it was, or not at all.
                [Act::CloneFrom(of), changed @ ..]
                    if object.snap != SnapId::HEAD && !changed.iter().any(anew) =>
                {
                    let Dirty { born, part, .. } = self.dirty_of(store, of)?.unwrap_or_default();
                    dirty.origin = Some(Origin { born, part });
                    (dirty.born, dirty.part) = (entry.version, Part::default());
                    Some(changed)
                }
                acts if dirty.gone || prior == Version::ZERO || acts.iter().any(anew) => None,
                acts => Some(acts),
            };
            match changed {
                Some(changed) => {
                    let changed: Vec<Act> = changed.iter().map(coarse).collect();
                    dirty.part.add(&super::missing::part_of(&changed));
                    dirty.part.data.coarsen(RANGES_MAX);
                    dirty.part.omap.coarsen(RANGES_MAX);
                }
                None => (dirty.born, dirty.part, dirty.origin) = (entry.version, Part::default(), None),
            }
            touched.insert(object.clone());
            self.dirty.objects.insert(object, dirty);
        }
        Ok(())
    }

    fn dirty_of(&self, store: &dyn StoreView, object: &ObjectId) -> Result<Option<Dirty>, ReadError> {
        if let Some(dirty) = self.dirty.objects.get(object) {
            return Ok(Some(dirty.clone()));
        }
        if self.dirty.cleared || self.info.dirty_objects == 0 {
            return Ok(None);
        }
        let id = StoredId::Pg(SpgId::replicated(self.pg));
        let value = store.omap_get(&id, dirty_key(object).as_bytes())?;
        value.map(|value| self.read_dirty(&value)).transpose()
    }
    fn read_dirty(&self, value: &Bytes) -> Result<Dirty, ReadError> {
        from_slice(value)
            .map_err(|e| ReadError::Device(format!("{}: what is dirty does not decode: {e}", self.pg)))
    }

    /// Whether the view shows all of the map.
    pub fn is_dirty_map_in_view(&self) -> bool {
        self.dirty.is_empty()
    }
    /// Whether the map covers everything that changed after `since`, as far as the log does not.
    pub fn dirty_map_reaches(&self, since: Version) -> bool {
        self.info.dirty_from <= since && !self.info.incomplete
    }

    /// What changed after `since`, from that key on.
    pub fn dirty_page(
        &self,
        store: &dyn StoreView,
        since: Version,
        from: &Name,
    ) -> Result<DirtyPage, ReadError> {
        let (mut objects, mut next, mut bytes, mut looked_at) = (Vec::new(), None, 0, 0);
        let mut bad = None;
        let start = from.as_bytes().max(DIRTY.0);
        store.omap_walk(&StoredId::Pg(SpgId::replicated(self.pg)), start, &mut |key, value| {
            let Some(object) = key.as_bytes().strip_prefix(DIRTY.0) else { return false };
            if objects.len() >= PAGE_OBJECTS || bytes >= PAGE_BYTES || looked_at >= 4 * PAGE_OBJECTS {
                next = Some(key.clone());
                return false;
            }
            looked_at += 1;
            let object = from_slice::<ObjectId>(object).map_err(|e| ReadError::Device(e.to_string()));
            match object.and_then(|object| Ok((object, self.read_dirty(value)?))) {
                Ok((object, dirty)) if dirty.last > since => {
                    bytes += key.len() + value.len();
                    objects.push((object, dirty));
                }
                Ok(_) => {}
                Err(error) => bad = Some(error),
            }
            bad.is_none()
        })?;
        bad.map_or(Ok((objects, next)), Err)
    }
}

/// More keys than are distinguished anyway, at once as the range that they become.
fn coarse(act: &Act) -> Act {
    match act {
        Act::Keys(keys) if keys.len() > RANGES_MAX => {
            let (first, last) =
                (keys.iter().min().expect("there are many"), keys.iter().max().expect("there are many"));
            Act::KeyRange { begin: first.clone(), end: key_after(last) }
        }
        act => act.clone(),
    }
}

/// Objects with what was done to them, and the key that the next page starts with.
pub type DirtyPage = (Vec<(ObjectId, Dirty)>, Option<Name>);
