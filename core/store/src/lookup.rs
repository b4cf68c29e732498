//! Finding things: in memory, or in the layers of the checkpoint; and letting go of what did not change.

use crate::disk::Disk;
use crate::index::omap::{Part, part_id};
use crate::index::order::IdsFrom;
use crate::index::{Index, Object, Op, Slot};
use crate::layers::filter::hash;
use crate::layers::page::{Kind, Loaded};
use crate::layers::{Cursor, Layer, PageError, find_in};
use crate::memory::PAIR;
use crate::recent::Recent;
use crate::space::Run;
use crate::store::Store;
use bytes::Bytes;
use nacre_machine::{Known, ReadError};
use nacre_proto::transaction::StoredId;
use nacre_wire::Encode;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::iter::Peekable;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

/// With each batch so many things are looked at for whether they can leave memory, or such a part of those that
/// may: few, so that a commit does not wait long.
const PUT_AWAY: usize = 64;

/// Reads pages of layers, for a store that does not keep everything in memory. The only thing of a store that
/// touches a device on the daemon's own thread: who asks for metadata needs them at once.
pub(crate) struct Pager {
    disk: Arc<dyn Disk + Send + Sync>,
    /// By the layer's serial and the page's number. Behind cells, since looking changes what stays.
    pages: RefCell<Recent<(u64, usize), Bytes>>,
    /// Things as the checkpoint has them.
    things: RefCell<Recent<StoredId, Arc<Loaded>>>,
    /// The encoding of the id that was sought last: each new object asks all layers.
    sought: RefCell<Vec<u8>>,
    met_rot: Cell<bool>,
}

impl fmt::Debug for Pager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pager").field("pages", &self.pages.borrow().bytes()).finish_non_exhaustive()
    }
}

impl Pager {
    pub fn new(disk: Arc<dyn Disk + Send + Sync>, seed: u64) -> Pager {
        let (pages, things) = (RefCell::new(Recent::new(seed)), RefCell::new(Recent::new(seed)));
        Pager { disk, pages, things, sought: RefCell::default(), met_rot: Cell::default() }
    }
    /// Whether a page could not be read, since the store was opened.
    pub fn met_rot(&self) -> bool {
        self.met_rot.get()
    }
    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.pages.borrow().bytes() + self.things.borrow().bytes()
    }
    pub fn limit_pages(&self, bytes: usize) {
        self.pages.borrow_mut().limit(bytes);
    }
    pub fn limit_things(&self, bytes: usize) {
        self.things.borrow_mut().limit(bytes);
    }
    /// As filters have it.
    fn hash(&self, id: &StoredId) -> u64 {
        let mut sought = self.sought.borrow_mut();
        sought.clear();
        id.encode(&mut sought);
        hash(&sought)
    }
    fn page(&self, layer: &Layer, page: usize) -> Result<Bytes, PageError> {
        let key = (layer.serial, page);
        if let Some(bytes) = self.pages.borrow_mut().get(&key) {
            return Ok(bytes);
        }
        let bytes = layer
            .read_page(page, &*self.disk)
            // A disk may say once that it cannot.
            .or_else(|_| layer.read_page(page, &*self.disk))
            .inspect_err(|_| self.met_rot.set(true))?;
        self.pages.borrow_mut().insert(key, bytes.clone(), bytes.len() + 200);
        Ok(bytes)
    }
    fn keep(&self, id: &StoredId, thing: &Arc<Loaded>) {
        let object = &thing.object;
        let bytes = object.weight().encoded as usize + object.omap().pairs.len() * PAIR + 300;
        self.things.borrow_mut().insert(id.clone(), thing.clone(), bytes);
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
            Found::Stored(thing) => &thing.object,
        }
    }
}

/// What the layers say of a thing.
enum Said {
    Object(Arc<Loaded>),
    Damaged,
    Nothing,
}

fn unreadable(id: &StoredId, why: impl fmt::Display) -> ReadError {
    let why = format!("what is known of it is damaged: {why}");
    ReadError::Unreadable { id: id.clone(), block: 0, why, known: Known::default() }
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
        match self.ask_layers(id).map_err(|error| unreadable(id, error))? {
            Said::Object(thing) => Ok(Some(Found::Stored(thing))),
            Said::Damaged => Err(unreadable(id, "it was when it was changed")),
            Said::Nothing => Ok(None),
        }
    }

    fn ask_layers(&self, id: &StoredId) -> Result<Said, PageError> {
        let Some(pager) = &self.pager else { return Ok(Said::Nothing) };
        if let Some(thing) = pager.things.borrow_mut().get(id) {
            return Ok(Said::Object(thing));
        }
        let hash = pager.hash(id);
        for layer in self.layers.iter().rev().filter(|layer| layer.may_have(hash)) {
            if layer.fences.len() == 0 {
                continue;
            }
            let page = pager.page(layer, layer.fences.find(id))?;
            let Some(entry) = find_in(&page, id)? else { continue };
            return Ok(match entry.kind {
                Kind::Removed => Said::Nothing,
                Kind::Damaged => Said::Damaged,
                Kind::Object | Kind::Parted => {
                    let thing = Arc::new(entry.load()?);
                    if !self.is_sound(&thing.object) {
                        return Err(PageError::Blocks);
                    }
                    pager.keep(id, &thing);
                    Said::Object(thing)
                }
            });
        }
        Ok(Said::Nothing)
    }

    /// Brings a thing that is about to change into memory, if it exists. What cannot be read is damaged from
    /// now on: who asks for it gets an error, until it is removed or becomes a copy of another. Says whether it is.
    pub(crate) fn bring(&mut self, id: &StoredId) -> bool {
        if let Some(slot) = self.index.slot(id) {
            return matches!(slot, Slot::Damaged(_));
        }
        if self.pager.is_none() {
            return false;
        }
        let slot = match self.ask_layers(id) {
            Ok(Said::Nothing) => return false,
            Ok(Said::Damaged) | Err(_) => Slot::Damaged(0),
            Ok(Said::Object(thing)) if self.bring_blocks(&thing) => {
                Slot::Object(Arc::new(thing.object.clone()))
            }
            Ok(Said::Object(_)) => Slot::Damaged(0),
        };
        if let Some(pager) = &self.pager {
            pager.things.borrow_mut().remove(id);
        }
        let is_damaged = matches!(slot, Slot::Damaged(_));
        let kept = self.index.bring(id, slot);
        // It may be that it does not change.
        self.leaving.push_back((kept, self.stored_mark));
        is_damaged
    }
    /// False if they cannot be its own: then nothing is changed.
    pub(crate) fn bring_blocks(&mut self, thing: &Loaded) -> bool {
        let is_given_back = |run: Run| self.discards.under_way.iter().any(|other| run.overlaps(*other));
        let mut runs = thing.object.blocks.runs().iter();
        !runs.any(|run| is_given_back(run.blocks))
            && self.blocks.bring(&thing.object, &thing.crcs, |block| self.space.is_taken(block))
    }
    /// Whether its blocks can be what it says.
    pub(crate) fn is_sound(&self, object: &Object) -> bool {
        let end = object.size.div_ceil(crate::BLOCK as u64);
        let mut runs: Vec<_> = object.blocks.runs().iter().map(|run| run.blocks).collect();
        runs.sort_by_key(|run| run.start);
        runs.iter().all(|run| self.geometry.holds_data(*run))
            && runs.windows(2).all(|two| two[0].start + two[0].len <= two[1].start)
            && object.blocks.runs().last().is_none_or(|run| u64::from(run.at + run.blocks.len) <= end)
    }

    /// Brings the parts of an object's omap into memory that `op` is about to change. Gives all that it may change, if
    /// that is asked for.
    pub(crate) fn bring_parts(&mut self, id: &StoredId, op: &Op, wants_all: bool) -> Vec<u64> {
        let touched = self.index.touched(id, op, wants_all);
        if self.pager.is_none() {
            return touched.all;
        }
        for part in &touched.absent {
            let id = part_id(part.number);
            let slot = match self.ask_layers(&id) {
                Ok(Said::Object(thing)) if part.is_in(&thing.object) => {
                    Slot::Object(Arc::new(thing.object.clone()))
                }
                _ => Slot::Damaged(0),
            };
            if let Some(pager) = &self.pager {
                pager.things.borrow_mut().remove(&id);
            }
            let kept = self.index.bring(&id, slot);
            self.leaving.push_back((kept, self.stored_mark));
        }
        touched.all
    }
    /// A part of an object's omap, wherever it is.
    pub(crate) fn find_part(&self, id: &StoredId, part: &Part) -> Result<Found, ReadError> {
        let found = self.find(&part_id(part.number)).map_err(|error| match error {
            ReadError::Unreadable { why, .. } => unreadable(id, format!("a part of its omap: {why}")),
            error => error,
        })?;
        let missing = || unreadable(id, "a part of its omap is something else");
        found.filter(|found| part.is_in(found.object())).ok_or_else(missing)
    }

    /// Lets go of some of what the durable checkpoint has as it is, where things take much memory.
    pub(crate) fn put_away(&mut self) {
        for _ in 0..PUT_AWAY.max(self.leaving.len() / PUT_AWAY) {
            let is_crowded = self.is_crowded();
            // Things that change again and again are noted each time.
            if !is_crowded && self.leaving.len() <= PUT_AWAY + 2 * self.index.len() {
                return;
            }
            let Some((id, mark)) = self.leaving.pop_front() else { return };
            match self.index.slot(&id) {
                // It changed since: the next checkpoint has it, and brings it here again.
                Some(slot) if slot.mark() > mark => {}
                None => {}
                Some(_) if !is_crowded => self.leaving.push_back((id, mark)),
                // Without a pager nobody looks into the layers.
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
        let mut layers = Vec::new();
        if self.pager.is_some() {
            for layer in self.layers.iter().rev() {
                let page = match &from {
                    Bound::Unbounded => 0,
                    Bound::Included(from) | Bound::Excluded(from) => layer.fences.find(from),
                };
                layers.push((layer, Cursor::at(page)));
            }
        }
        let here: Box<dyn Iterator<Item = &StoredId>> = if self.pager.is_some() {
            let changed = [Some(&self.index.changed().ids), self.checkpoint.as_ref().map(|c| &c.ids)];
            Box::new(IdsFrom::new(changed.into_iter().flatten(), from.as_ref()).map(|id| &**id))
        } else {
            let all = self.index.things().map(|(id, _)| id);
            let mut all: Vec<_> = all.filter(|id| is_from(from.as_ref(), id)).collect();
            all.sort_unstable();
            Box::new(all.into_iter())
        };
        let (pager, index) = (self.pager.as_ref(), &self.index);
        Walk { pager, index, from, here: here.peekable(), layers }
    }
}

fn is_from(from: Bound<&StoredId>, id: &StoredId) -> bool {
    (from, Bound::Unbounded).contains(id)
}

/// All things in order. Where a page cannot be read there is an error, and whoever goes on has what other layers know
/// of the things in it, some of which may be gone.
pub(crate) struct Walk<'a> {
    pager: Option<&'a Pager>,
    index: &'a Index,
    /// Until the first thing was given.
    from: Bound<StoredId>,
    /// What no layer may have yet, or without a pager everything.
    here: Peekable<Box<dyn Iterator<Item = &'a StoredId> + 'a>>,
    /// The newest first.
    layers: Vec<(&'a Arc<Layer>, Cursor)>,
}

impl Walk<'_> {
    fn step(&mut self) -> Result<Option<StoredId>, PageError> {
        loop {
            for (layer, cursor) in &mut self.layers {
                let pager = self.pager.expect("it has layers");
                loop {
                    if let Err(error) = cursor.ready(layer, |page| pager.page(layer, page)) {
                        cursor.skip_page();
                        return Err(error);
                    }
                    match cursor.peek() {
                        Some(id) if !is_from(self.from.as_ref(), id) => drop(cursor.next()),
                        _ => break,
                    }
                }
            }
            let stored = self.layers.iter().filter_map(|(_, cursor)| cursor.peek()).min();
            let here = self.here.peek().copied();
            let Some(least) = stored.into_iter().chain(here).min().cloned() else { return Ok(None) };
            let mut exists = None;
            if self.here.next_if(|id| **id == least).is_some() {
                exists = self.index.slot(&least).map(Slot::exists);
            }
            for (_, cursor) in &mut self.layers {
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
