//! Finding objects in memory or in the sorted runs, and evicting unchanged objects from memory.

use crate::clock_cache::ClockCache;
use crate::disk::Disk;
use crate::index::omap::{Leaf, leaf_id};
use crate::index::sorted_ids::SortedIdsFrom;
use crate::index::{Index, Object, Op, Slot};
use crate::memory::PAIR;
use crate::runs::bloom::hash;
use crate::runs::page::{Kind, Loaded};
use crate::runs::{Cursor, PageError, SortedRun, find_in};
use crate::space::Extent;
use crate::store::Store;
use bytes::Bytes;
use nacre_machine::{ReadError, SalvagedExtents};
use nacre_proto::transaction::StoredId;
use nacre_wire::Encode;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::iter::Peekable;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

/// With each batch this many objects are examined for whether they can leave memory, or such a part of those
/// that may: few, so that a commit does not wait long.
const PUT_AWAY: usize = 64;

/// Reads pages of sorted runs, for a store that does not keep everything in memory. The only object of a
/// store that touches a device on the daemon's own thread: metadata is needed at once.
pub(crate) struct Pager {
    disk: Arc<dyn Disk + Send + Sync>,
    /// Pages by the sorted run's serial and the page's number. In cells, since lookups update the cache.
    pages: RefCell<ClockCache<(u64, usize), Bytes>>,
    /// Objects as the checkpoint has them.
    objects: RefCell<ClockCache<StoredId, Arc<Loaded>>>,
    /// The encoding of the last id searched: a lookup of a new object queries all sorted runs.
    sought: RefCell<Vec<u8>>,
    met_corruption: Cell<bool>,
}

impl fmt::Debug for Pager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pager").field("pages", &self.pages.borrow().bytes()).finish_non_exhaustive()
    }
}

impl Pager {
    pub fn new(disk: Arc<dyn Disk + Send + Sync>, seed: u64) -> Pager {
        let (pages, objects) = (RefCell::new(ClockCache::new(seed)), RefCell::new(ClockCache::new(seed)));
        Pager { disk, pages, objects, sought: RefCell::default(), met_corruption: Cell::default() }
    }
    /// Whether a page could not be read, since the store was opened.
    pub fn met_corruption(&self) -> bool {
        self.met_corruption.get()
    }
    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.pages.borrow().bytes() + self.objects.borrow().bytes()
    }
    pub fn limit_pages(&self, bytes: usize) {
        self.pages.borrow_mut().limit(bytes);
    }
    pub fn limit_objects(&self, bytes: usize) {
        self.objects.borrow_mut().limit(bytes);
    }
    /// The hash for Bloom filters.
    fn hash(&self, id: &StoredId) -> u64 {
        let mut sought = self.sought.borrow_mut();
        sought.clear();
        id.encode(&mut sought);
        hash(&sought)
    }
    fn page(&self, run: &SortedRun, page: usize) -> Result<Bytes, PageError> {
        let key = (run.serial, page);
        if let Some(bytes) = self.pages.borrow_mut().get(&key) {
            return Ok(bytes);
        }
        let bytes = run
            .read_page(page, &*self.disk)
            // A single read error may be transient.
            .or_else(|_| run.read_page(page, &*self.disk))
            .inspect_err(|_| self.met_corruption.set(true))?;
        self.pages.borrow_mut().insert(key, bytes.clone(), bytes.len() + 200);
        Ok(bytes)
    }
    fn keep(&self, id: &StoredId, loaded: &Arc<Loaded>) {
        let object = &loaded.object;
        let bytes = object.weight().encoded as usize + object.omap().pairs.len() * PAIR + 300;
        self.objects.borrow_mut().insert(id.clone(), loaded.clone(), bytes);
    }
}

/// An object, wherever it was.
#[derive(Debug)]
pub(crate) enum Found {
    /// In memory; its blocks are in the table.
    Here(Arc<Object>),
    /// As the checkpoint has it.
    Stored(Arc<Loaded>),
}

impl Found {
    pub fn object(&self) -> &Object {
        match self {
            Found::Here(object) => object,
            Found::Stored(loaded) => &loaded.object,
        }
    }
}

/// The result of a lookup in the sorted runs.
enum Said {
    Object(Arc<Loaded>),
    Damaged,
    Nothing,
}

fn unreadable(id: &StoredId, why: impl fmt::Display) -> ReadError {
    let why = format!("what is known of it is damaged: {why}");
    ReadError::Unreadable { id: id.clone(), block: 0, why, salvaged: SalvagedExtents::default() }
}

impl Store {
    /// The object, if it exists.
    pub(crate) fn find(&self, id: &StoredId) -> Result<Option<Found>, ReadError> {
        match self.index.slot(id) {
            Some(Slot::Object(object)) => return Ok(Some(Found::Here(object.clone()))),
            Some(Slot::Gone(_)) => return Ok(None),
            Some(Slot::Damaged(_)) => return Err(unreadable(id, "it was when it was changed")),
            None => {}
        }
        match self.search_runs(id).map_err(|error| unreadable(id, error))? {
            Said::Object(loaded) => Ok(Some(Found::Stored(loaded))),
            Said::Damaged => Err(unreadable(id, "it was when it was changed")),
            Said::Nothing => Ok(None),
        }
    }

    fn search_runs(&self, id: &StoredId) -> Result<Said, PageError> {
        let Some(pager) = &self.pager else { return Ok(Said::Nothing) };
        if let Some(loaded) = pager.objects.borrow_mut().get(id) {
            return Ok(Said::Object(loaded));
        }
        let hash = pager.hash(id);
        for run in self.runs.iter().rev().filter(|run| run.may_have(hash)) {
            if run.fences.len() == 0 {
                continue;
            }
            let page = pager.page(run, run.fences.find(id))?;
            let Some(entry) = find_in(&page, id)? else { continue };
            return Ok(match entry.kind {
                Kind::Removed => Said::Nothing,
                Kind::Damaged => Said::Damaged,
                Kind::Object | Kind::WithLeaves => {
                    let loaded = Arc::new(entry.load()?);
                    if !self.is_sound(&loaded.object) {
                        return Err(PageError::Blocks);
                    }
                    pager.keep(id, &loaded);
                    Said::Object(loaded)
                }
            });
        }
        Ok(Said::Nothing)
    }

    /// Brings an object that is about to change into memory, if it exists. What cannot be read is damaged
    /// from now on: reading it gives an error, until it is removed or becomes a copy of another. Says whether
    /// it is.
    pub(crate) fn bring(&mut self, id: &StoredId) -> bool {
        if let Some(slot) = self.index.slot(id) {
            return matches!(slot, Slot::Damaged(_));
        }
        if self.pager.is_none() {
            return false;
        }
        let slot = match self.search_runs(id) {
            Ok(Said::Nothing) => return false,
            Ok(Said::Damaged) | Err(_) => Slot::Damaged(0),
            Ok(Said::Object(loaded)) if self.bring_blocks(&loaded) => {
                Slot::Object(Arc::new(loaded.object.clone()))
            }
            Ok(Said::Object(_)) => Slot::Damaged(0),
        };
        if let Some(pager) = &self.pager {
            pager.objects.borrow_mut().remove(id);
        }
        let is_damaged = matches!(slot, Slot::Damaged(_));
        let kept = self.index.bring(id, slot);
        // It may turn out to be unchanged.
        self.leaving.push_back((kept, self.stored_mark));
        is_damaged
    }
    /// False if they cannot be its own: then nothing is changed.
    pub(crate) fn bring_blocks(&mut self, loaded: &Loaded) -> bool {
        let is_given_back =
            |extent: Extent| self.discards.under_way.iter().any(|other| extent.overlaps(*other));
        let mut extents = loaded.object.blocks.extents().iter();
        !extents.any(|extent| is_given_back(extent.blocks))
            && self.blocks.bring(&loaded.object, &loaded.crcs, |block| self.space.is_taken(block))
    }
    /// Whether its block references are plausible.
    pub(crate) fn is_sound(&self, object: &Object) -> bool {
        let end = object.size.div_ceil(crate::BLOCK as u64);
        let mut extents: Vec<_> = object.blocks.extents().iter().map(|extent| extent.blocks).collect();
        extents.sort_by_key(|extent| extent.start);
        extents.iter().all(|extent| self.geometry.holds_data(*extent))
            && extents.windows(2).all(|two| two[0].start + two[0].len <= two[1].start)
            && object
                .blocks
                .extents()
                .last()
                .is_none_or(|extent| u64::from(extent.at + extent.blocks.len) <= end)
    }

    /// Brings the parts of an object's omap into memory that `op` is about to change. Gives all that it may
    /// change, if that is asked for.
    pub(crate) fn bring_leaves(&mut self, id: &StoredId, op: &Op, wants_all: bool) -> Vec<u64> {
        let touched = self.index.touched(id, op, wants_all);
        if self.pager.is_none() {
            return touched.all;
        }
        for part in &touched.absent {
            let id = leaf_id(part.number);
            let slot = match self.search_runs(&id) {
                Ok(Said::Object(loaded)) if part.is_in(&loaded.object) => {
                    Slot::Object(Arc::new(loaded.object.clone()))
                }
                _ => Slot::Damaged(0),
            };
            if let Some(pager) = &self.pager {
                pager.objects.borrow_mut().remove(&id);
            }
            let kept = self.index.bring(&id, slot);
            self.leaving.push_back((kept, self.stored_mark));
        }
        touched.all
    }
    /// A leaf of an object's omap, in memory or in a sorted run.
    pub(crate) fn find_leaf(&self, id: &StoredId, part: &Leaf) -> Result<Found, ReadError> {
        let found = self.find(&leaf_id(part.number)).map_err(|error| match error {
            ReadError::Unreadable { why, .. } => unreadable(id, format!("a part of its omap: {why}")),
            error => error,
        })?;
        let missing = || unreadable(id, "a part of its omap is something else");
        found.filter(|found| part.is_in(found.object())).ok_or_else(missing)
    }

    /// Lets go of some of what the durable checkpoint has as it is, where objects take much memory.
    pub(crate) fn put_away(&mut self) {
        for _ in 0..PUT_AWAY.max(self.leaving.len() / PUT_AWAY) {
            let is_crowded = self.is_crowded();
            // Objects that change again and again are noted each time.
            if !is_crowded && self.leaving.len() <= PUT_AWAY + 2 * self.index.len() {
                return;
            }
            let Some((id, mark)) = self.leaving.pop_front() else { return };
            match self.index.slot(&id) {
                // It changed since: the next checkpoint has it, and brings it here again.
                Some(slot) if slot.mark() > mark => {}
                None => {}
                Some(_) if !is_crowded => self.leaving.push_back((id, mark)),
                // Without a pager the sorted runs are never read.
                Some(Slot::Object(_) | Slot::Damaged(_)) if self.pager.is_none() => {}
                Some(slot) => {
                    if let Slot::Object(object) = slot {
                        self.blocks.put_away(object);
                    }
                    self.index.put_away(&id);
                }
            }
        }
    }

    /// Everything that exists, in order, from one id on.
    pub(crate) fn walk(&self, from: Bound<StoredId>) -> Walk<'_> {
        let mut runs = Vec::new();
        if self.pager.is_some() {
            for run in self.runs.iter().rev() {
                let page = match &from {
                    Bound::Unbounded => 0,
                    Bound::Included(from) | Bound::Excluded(from) => run.fences.find(from),
                };
                runs.push((run, Cursor::at(page)));
            }
        }
        let here: Box<dyn Iterator<Item = &StoredId>> = if self.pager.is_some() {
            let changed = [Some(&self.index.changed().ids), self.checkpoint.as_ref().map(|c| &c.ids)];
            Box::new(SortedIdsFrom::new(changed.into_iter().flatten(), from.as_ref()).map(|id| &**id))
        } else {
            let all = self.index.slots().map(|(id, _)| id);
            let mut all: Vec<_> = all.filter(|id| is_from(from.as_ref(), id)).collect();
            all.sort_unstable();
            Box::new(all.into_iter())
        };
        let (pager, index) = (self.pager.as_ref(), &self.index);
        Walk { pager, index, from, here: here.peekable(), runs }
    }
}

fn is_from(from: Bound<&StoredId>, id: &StoredId) -> bool {
    (from, Bound::Unbounded).contains(id)
}

/// All objects in order. Where a page cannot be read there is an error, and a walk that continues has what
/// other sorted runs know of the objects in it, some of which may be gone.
pub(crate) struct Walk<'a> {
    pager: Option<&'a Pager>,
    index: &'a Index,
    /// The start, until the first object was returned.
    from: Bound<StoredId>,
    /// What no sorted run may have yet, or without a pager everything.
    here: Peekable<Box<dyn Iterator<Item = &'a StoredId> + 'a>>,
    /// The newest first.
    runs: Vec<(&'a Arc<SortedRun>, Cursor)>,
}

impl Walk<'_> {
    fn step(&mut self) -> Result<Option<StoredId>, PageError> {
        loop {
            for (run, cursor) in &mut self.runs {
                let pager = self.pager.expect("it has sorted runs");
                loop {
                    if let Err(error) = cursor.ready(run, |page| pager.page(run, page)) {
                        cursor.skip_page();
                        return Err(error);
                    }
                    match cursor.peek() {
                        Some(id) if !is_from(self.from.as_ref(), id) => drop(cursor.next()),
                        _ => break,
                    }
                }
            }
            let stored = self.runs.iter().filter_map(|(_, cursor)| cursor.peek()).min();
            let here = self.here.peek().copied();
            let Some(least) = stored.into_iter().chain(here).min().cloned() else { return Ok(None) };
            let mut exists = None;
            if self.here.next_if(|id| **id == least).is_some() {
                exists = self.index.slot(&least).map(Slot::exists);
            }
            for (_, cursor) in &mut self.runs {
                if cursor.peek() == Some(&least)
                    && let Some((_, kind, _)) = cursor.next()
                {
                    exists.get_or_insert(kind != Kind::Removed);
                }
            }
            if exists == Some(true) {
                self.from = Bound::Unbounded;
                return Ok(Some(least));
            }
        }
    }
}

impl Iterator for Walk<'_> {
    type Item = Result<StoredId, PageError>;
    fn next(&mut self) -> Option<Self::Item> {
        self.step().transpose()
    }
}
