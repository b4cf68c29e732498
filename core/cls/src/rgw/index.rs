//! An index as one method sees it: what is stored, and over that what the method has changed so far.
//!
//! Methods read what they wrote a moment ago, which the object itself does not show them.

use super::keys;
use super::types::{Entry, Header, LogEntry, ObjectKey};
use crate::context::stored;
use crate::{Context, Reply, Stop, fail, ok};
use bytes::Bytes;
use nacre_base::Name;
use nacre_base::errno::EINVAL;
use nacre_wire::{Decode, Encode, to_vec};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

pub(crate) struct Index<'c, 'o> {
    pub ctx: &'c mut Context<'o>,
    changed: BTreeMap<Name, Option<Bytes>>,
    header: Option<Header>,
}

/// An entry that is there, and where.
pub(crate) struct Found {
    pub at: Name,
    pub entry: Entry,
}

impl<'c, 'o> Index<'c, 'o> {
    pub(crate) fn new(ctx: &'c mut Context<'o>) -> Index<'c, 'o> {
        Index { ctx, changed: BTreeMap::new(), header: None }
    }

    pub(crate) fn get<T: Decode>(&mut self, key: &Name) -> Result<Option<T>, Stop> {
        match self.changed.get(key) {
            Some(changed) => changed.as_deref().map(stored).transpose(),
            None => self.ctx.get(key),
        }
    }
    pub(crate) fn set<T: Encode>(&mut self, key: Name, value: &T) {
        self.changed.insert(key, Some(to_vec(value).into()));
    }
    pub(crate) fn remove(&mut self, key: Name) {
        self.changed.insert(key, None);
    }

    pub(crate) fn header(&mut self) -> Result<Header, Stop> {
        match &self.header {
            Some(header) => Ok(header.clone()),
            None => Ok(self.ctx.header()?.unwrap_or_default()),
        }
    }
    /// Every stored header has a version of its own.
    pub(crate) fn set_header(&mut self, mut header: Header) {
        header.version = header.version.wrapping_add(1);
        self.header = Some(header);
    }

    /// Where an entry for the key is or would be, and the entry. An object without versions and the version
    /// without an instance ("null") have the same key. A delete marker without an instance has a place of its
    /// own, because the object is still needed when the marker is made.
    pub(crate) fn find(&mut self, key: &ObjectKey, marker: bool) -> Result<(Name, Option<Entry>), Stop> {
        let at = keys::object(key);
        let entry: Option<Entry> = self.get(&at)?;
        let elsewhere = |entry: &Entry| entry.has(super::types::flag::VERSIONS_ELSEWHERE);
        if !key.instance.is_empty() || !entry.as_ref().is_some_and(elsewhere) {
            return Ok((at, entry));
        }
        if marker {
            let at = keys::null_delete_marker(&key.name);
            if let Some(entry) = self.get(&at)? {
                return Ok((at, Some(entry)));
            }
        }
        let at = keys::version(key);
        let entry = self.get(&at)?;
        Ok((at, entry))
    }
    pub(crate) fn find_there(&mut self, key: &ObjectKey, marker: bool) -> Result<Option<Found>, Stop> {
        let (at, entry) = self.find(key, marker)?;
        Ok(entry.map(|entry| Found { at, entry }))
    }

    /// The first value beyond `after` whose key starts with `prefix`.
    pub(crate) fn first_after(&mut self, after: &Name, prefix: &[u8]) -> Result<Option<Bytes>, Stop> {
        let mut from = after.clone();
        let kept = loop {
            let Some((key, value)) = self.ctx.page(from.as_bytes(), prefix, 1)?.pairs.pop() else {
                break None;
            };
            if !self.changed.contains_key(&key) {
                break Some((key, value));
            }
            from = key;
        };
        let range = self.changed.range::<Name, _>((Bound::Excluded(after), Bound::Unbounded));
        let put = range
            .filter_map(|(key, value)| Some((key.clone(), value.clone()?)))
            .find(|(key, _)| key.as_bytes().starts_with(prefix));
        let first = [kept, put].into_iter().flatten().min_by(|a, b| a.0.cmp(&b.0));
        Ok(first.map(|(_, value)| value))
    }

    /// Adds to the index's log. Entries of one request are told apart by the header's version.
    pub(crate) fn log(&mut self, header: &mut Header, mut entry: LogEntry) {
        let (version, call) = self.ctx.version();
        let id = format!("{:011}.{version}.{call}", header.version);
        entry.id = Name::from(id);
        entry.index_version = header.version;
        entry.state = super::types::STATE_COMPLETE;
        header.max_marker = header.max_marker.clone().max(entry.id.clone());
        self.set(keys::log(entry.id.as_bytes()), &entry);
    }

    /// Makes the changes.
    pub(crate) fn finish(self) -> Reply {
        let mut put = BTreeMap::new();
        let mut removed = BTreeSet::new();
        for (key, value) in self.changed {
            if key.is_empty() {
                return fail(EINVAL);
            }
            match value {
                Some(value) => drop(put.insert(key, value)),
                None => drop(removed.insert(key)),
            }
        }
        if !put.is_empty() {
            self.ctx.omap_set_all(&put)?;
        }
        if !removed.is_empty() {
            self.ctx.omap_remove_all(&removed)?;
        }
        if let Some(header) = self.header {
            self.ctx.set_header(&header)?;
        }
        ok()
    }
}
