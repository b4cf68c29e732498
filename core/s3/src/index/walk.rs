//! Requests that read leaves, one after another, and the sealing of a bucket.

use super::{Answer, OpResult, Place, Refusal, Root, is_canceled, object_of, output};
use crate::leaf::{
    Garbage, LeafName, LeafRange, RANGE, entry_key, garbage_due, head_key, key_of, named, pairs,
    tombstone_key,
};
use crate::listing::{PageBuilder, PageRequest};
use crate::record::{Counters, Object};
use bytes::Bytes;
use nacre_base::{Name, errno};
use nacre_client::{ObjectReply, ObjectRequest};
use nacre_proto::types::Op;
use nacre_wire::from_slice;
use std::collections::{BTreeMap, BTreeSet};

/// How many pairs are read at once where no page says how many.
const PAIRS: u64 = 1000;

/// Data that can be removed, and where that is noted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GarbageItem {
    pub leaf: LeafName,
    pub key: Name,
    pub garbage: Garbage,
}

/// A request on its way along the leaves.
#[derive(Debug)]
pub struct Walk {
    kind: Kind,
    /// The key whose leaf is read, or the lowest key of the leaf.
    at: Bytes,
    /// The leaf that was asked last.
    leaf: LeafName,
    /// The leaf takes over keys: where from. Then this step reads that leaf.
    source: Option<LeafName>,
}

#[derive(Debug)]
enum Kind {
    Get(Get),
    Page(PageWalk),
    Totals(Counters),
    Garbage { now: u64, max: usize, found: Vec<GarbageItem> },
    Seal(Seal),
    Leaves(Vec<LeafName>),
}

#[derive(Debug, Default)]
struct Get {
    /// The key is in no leaf that was read: the next read of its leaf decides.
    missed: bool,
}

#[derive(Debug)]
struct PageWalk {
    request: PageRequest,
    builder: PageBuilder,
    /// What the leaf's source has, when that was read, and where it ends if it has more.
    from_source: Option<(BTreeMap<Name, Bytes>, bool)>,
}

#[derive(Debug, Default)]
struct Seal {
    /// The leaf as it was read, with its version: it can be sealed if that is still the same.
    ready: Option<(LeafRange, u64)>,
}

/// What follows a step.
#[derive(Debug)]
pub enum WalkStep {
    Continue,
    /// A leaf is gone: begin again, with a new map.
    Reload,
    Done(Box<Result<Answer, Refusal>>),
}

fn done(result: Result<Answer, Refusal>) -> WalkStep {
    WalkStep::Done(Box::new(result))
}

impl Walk {
    fn new(kind: Kind, at: Bytes) -> Walk {
        Walk { kind, at, leaf: LeafName(String::new()), source: None }
    }
    /// Reads an object.
    pub fn get(key: Bytes) -> Walk {
        Walk::new(Kind::Get(Get::default()), key)
    }
    /// Reads a page of a listing.
    pub fn page(request: PageRequest) -> Walk {
        let builder = PageBuilder::new(request.clone());
        let at = builder.after().clone().max(request.prefix.clone());
        Walk::new(Kind::Page(PageWalk { request, builder, from_source: None }), at)
    }
    /// Adds up the counters of all leaves.
    pub fn totals() -> Walk {
        Walk::new(Kind::Totals(Counters::default()), Bytes::new())
    }
    /// Finds garbage that is due.
    pub fn garbage(now: u64, max: usize) -> Walk {
        Walk::new(Kind::Garbage { now, max, found: Vec::new() }, Bytes::new())
    }
    /// Lists the leaves.
    pub fn leaves() -> Walk {
        Walk::new(Kind::Leaves(Vec::new()), Bytes::new())
    }
    /// Makes the leaves of an empty bucket refuse writes.
    pub fn seal() -> Walk {
        Walk::new(Kind::Seal(Seal::default()), Bytes::new())
    }

    /// Begins again, after a leaf was gone.
    pub fn restart(&mut self) {
        self.source = None;
        match &mut self.kind {
            Kind::Get(get) => return *get = Get::default(),
            // What is in the page stays good.
            Kind::Page(page) => return page.from_source = None,
            Kind::Totals(sum) => *sum = Counters::default(),
            Kind::Garbage { found, .. } => found.clear(),
            Kind::Leaves(found) => found.clear(),
            Kind::Seal(seal) => *seal = Seal::default(),
        }
        self.at = Bytes::new();
    }

    /// The request of the next step.
    pub fn request(&mut self, place: &Place, root: &Root) -> ObjectRequest {
        self.leaf = self.source.clone().unwrap_or_else(|| root.leaf_of(&self.at));
        let request = ObjectRequest::new(place.pool, self.leaf.0.as_str());
        let all_of = |request: ObjectRequest, kind: &[u8], max: u64| {
            request.op(Op::OmapGetVals { after: Name::default(), max, prefix: Name::from(kind) })
        };
        match &self.kind {
            Kind::Get(_) => {
                let entry = entry_key(&self.at);
                let keys = BTreeSet::from([tombstone_key(&entry), entry, head_key(&self.at)]);
                request.get_xattr(RANGE).omap_get_keys(keys)
            }
            Kind::Page(page) => {
                let kind = if page.request.of_uploads { b'u' } else { b'e' };
                let after = named(kind, page.builder.after());
                let tombstones = Op::OmapGetVals {
                    after: tombstone_key(&after),
                    max: PAIRS,
                    prefix: Name::from(&[b't', kind][..]),
                };
                let prefix = named(kind, &page.request.prefix);
                let max = page.builder.batch();
                let request = request.get_xattr(RANGE).op(Op::OmapGetVals { after, max, prefix });
                if page.from_source.is_some() { request.op(tombstones) } else { request }
            }
            Kind::Leaves(_) => request.get_xattr(RANGE),
            Kind::Totals(_) => all_of(request.get_xattr(RANGE), b"s", PAIRS),
            Kind::Garbage { .. } => all_of(request.get_xattr(RANGE), b"g", PAIRS),
            Kind::Seal(Seal { ready: None }) => all_of(all_of(request.get_xattr(RANGE), b"e", 1), b"u", 1),
            Kind::Seal(Seal { ready: Some((range, version)) }) => range.put(request.assert_version(*version)),
        }
    }

    /// Takes the result of a step.
    pub fn completed(&mut self, result: OpResult, root: &mut Root) -> WalkStep {
        self.next(result, root).unwrap_or_else(|refusal| done(Err(refusal)))
    }

    fn next(&mut self, result: OpResult, root: &mut Root) -> Result<WalkStep, Refusal> {
        let reply = match result {
            Ok(reply) => reply,
            Err(failure) if failure.is_not_found() => {
                if self.source.take().is_none() {
                    return Ok(WalkStep::Reload);
                }
                // The leaf has taken over everything.
                return Ok(self.source_is_gone());
            }
            Err(failure) if matches!(self.kind, Kind::Seal(_)) && is_stale(&failure) => {
                self.kind = Kind::Seal(Seal::default());
                return Ok(WalkStep::Continue);
            }
            Err(failure) => return Err(failure.into()),
        };
        if let Kind::Seal(seal) = &mut self.kind
            && let Some((range, _)) = seal.ready.take()
        {
            return Ok(self.leaf_done(&range));
        }
        if self.source.is_some() {
            return self.on_source(&reply);
        }
        let range: LeafRange = from_slice(output(&reply, 0)?)?;
        let leaf = self.leaf.clone();
        if !range.contains(&self.at) {
            root.follow(&leaf, &range, &self.at)?;
            return Ok(WalkStep::Continue);
        }
        root.learn(&leaf, &range);
        match &mut self.kind {
            Kind::Get(_) => self.on_object(&reply, range),
            Kind::Page(_) => self.on_page(&reply, range),
            Kind::Totals(sum) => {
                for value in pairs(output(&reply, 1)?)?.0.values() {
                    sum.add(from_slice(value)?);
                }
                Ok(self.leaf_done(&range))
            }
            Kind::Leaves(found) => {
                found.push(leaf);
                Ok(self.leaf_done(&range))
            }
            Kind::Garbage { now, max, found } => {
                for (key, value) in pairs(output(&reply, 1)?)?.0 {
                    if found.len() < *max && garbage_due(&key).is_some_and(|due| due <= *now) {
                        let garbage = from_slice(&value)?;
                        found.push(GarbageItem { leaf: leaf.clone(), key, garbage });
                    }
                }
                let is_full = found.len() >= *max;
                Ok(if is_full { self.all_done() } else { self.leaf_done(&range) })
            }
            Kind::Seal(seal) => {
                let is_empty = |at| Ok::<_, Refusal>(pairs(output(&reply, at)?)?.0.is_empty());
                if !is_empty(1)? || !is_empty(2)? || range.source.is_some() {
                    return Err(Refusal::NotEmpty);
                }
                let sealed = LeafRange { is_sealed: true, ..range.next_generation() };
                seal.ready = Some((sealed, reply.user_version));
                Ok(WalkStep::Continue)
            }
        }
    }

    /// Goes on with the leaf behind this one, if there is one.
    fn leaf_done(&mut self, range: &LeafRange) -> WalkStep {
        match &range.high {
            None => self.all_done(),
            Some(high) => {
                self.at = high.clone();
                WalkStep::Continue
            }
        }
    }

    /// The answer to a request that goes along all leaves.
    fn all_done(&mut self) -> WalkStep {
        done(Ok(match &mut self.kind {
            Kind::Totals(sum) => Answer::Totals(*sum),
            Kind::Garbage { found, .. } => Answer::Garbage(std::mem::take(found)),
            Kind::Leaves(found) => Answer::Leaves(std::mem::take(found)),
            Kind::Seal(_) => Answer::Done,
            Kind::Get(_) | Kind::Page(_) => unreachable!("a request about one key or a range"),
        }))
    }

    fn source_is_gone(&mut self) -> WalkStep {
        match &mut self.kind {
            Kind::Get(get) => get.missed = true,
            Kind::Page(page) => page.from_source = Some((BTreeMap::new(), false)),
            _ => {}
        }
        WalkStep::Continue
    }

    fn on_source(&mut self, reply: &ObjectReply) -> Result<WalkStep, Refusal> {
        self.source = None;
        match &mut self.kind {
            Kind::Get(get) => {
                if let Some(object) = object(reply, &self.at)? {
                    return Ok(done(Ok(Answer::Object(Box::new(object)))));
                }
                // It may have moved between the two reads.
                get.missed = true;
                Ok(WalkStep::Continue)
            }
            Kind::Page(page) => {
                page.from_source = Some(pairs(output(reply, 1)?)?);
                Ok(WalkStep::Continue)
            }
            _ => Ok(WalkStep::Continue),
        }
    }

    fn on_object(&mut self, reply: &ObjectReply, range: LeafRange) -> Result<WalkStep, Refusal> {
        if let Some(object) = object(reply, &self.at)? {
            return Ok(done(Ok(Answer::Object(Box::new(object)))));
        }
        let values: BTreeMap<Name, Bytes> = from_slice(output(reply, 1)?)?;
        let is_deleted = values.contains_key(&tombstone_key(&entry_key(&self.at)));
        let missed = matches!(&self.kind, Kind::Get(get) if get.missed);
        match range.source {
            Some(source) if !is_deleted && !missed => {
                self.source = Some(source);
                Ok(WalkStep::Continue)
            }
            _ => Ok(done(Err(Refusal::NoSuchKey))),
        }
    }

    fn on_page(&mut self, reply: &ObjectReply, range: LeafRange) -> Result<WalkStep, Refusal> {
        let Kind::Page(page) = &mut self.kind else { return Ok(WalkStep::Continue) };
        // The source was read before, so that what moved in between is in one of the two.
        let from_source = page.from_source.take();
        if let (Some(source), None) = (&range.source, &from_source) {
            self.source = Some(source.clone());
            return Ok(WalkStep::Continue);
        }
        let (mut merged, mut more) = pairs(output(reply, 1)?)?;
        let mut complete_up_to = if more { merged.keys().next_back().cloned() } else { None };
        if let (Some((in_source, source_has_more)), true) = (from_source, range.source.is_some()) {
            let (tombstones, more_tombstones) = pairs(output(reply, 2)?)?;
            if let (true, Some(last)) = (more_tombstones, tombstones.keys().next_back()) {
                let last = Name::from(key_of(last));
                complete_up_to = complete_up_to.into_iter().chain([last]).min();
                more = true;
            }
            if source_has_more {
                let last = in_source.keys().next_back().cloned();
                complete_up_to = complete_up_to.into_iter().chain(last).min();
                more = true;
            }
            for (name, value) in in_source {
                if !tombstones.contains_key(&tombstone_key(&name)) {
                    merged.entry(name).or_insert(value);
                }
            }
        }
        for (name, value) in &merged {
            let key = Bytes::copy_from_slice(key_of(name));
            let is_read = complete_up_to.as_ref().is_none_or(|last| name <= last);
            if is_read && range.contains(&key) {
                page.builder.add(&key, value);
            }
        }
        if let Some(last) = &complete_up_to {
            page.builder.skip_to(key_of(last));
        }
        let builder = &page.builder;
        let ends = range.high.as_ref().is_none_or(|high| builder.is_past(high));
        let high = range.high.clone().unwrap_or_default();
        // What a split has left behind the end of the leaf is of no interest.
        let is_behind = |name: &Name| !high.is_empty() && *key_of(name) >= *high;
        let leaf_is_done = !more || complete_up_to.as_ref().is_some_and(is_behind);
        if builder.is_full() || (leaf_is_done && ends) {
            let request = PageRequest::default();
            let builder = std::mem::replace(&mut page.builder, PageBuilder::new(request));
            return Ok(done(Ok(Answer::Page(builder.finish()))));
        }
        let next = if leaf_is_done { high } else { self.at.clone() };
        self.at = next.max(builder.after().clone());
        Ok(WalkStep::Continue)
    }
}

fn is_stale(failure: &nacre_client::Failure) -> bool {
    is_canceled(failure) || failure.errno == errno::ERANGE || failure.errno == errno::EOVERFLOW
}

fn object(reply: &ObjectReply, key: &[u8]) -> Result<Option<Object>, Refusal> {
    let values: BTreeMap<Name, Bytes> = from_slice(output(reply, 1)?)?;
    let Some(entry) = values.get(&entry_key(key)) else { return Ok(None) };
    object_of(entry, values.get(&head_key(key))).map(Some)
}
