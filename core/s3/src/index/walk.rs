//! Requests that read leaves, one after another, and the sealing of a bucket.

use super::get::Get;
use super::notices::{NoticeSearch, Searched};
use super::page::{PageStep, PageWalk};
use super::{Answer, OpResult, Place, Refusal, Root, is_canceled, output};
use crate::leaf::{GENERATION, Garbage, LeafName, LeafRange, RANGE, due_of, pairs};
use crate::listing::PageRequest;
use crate::record::Counters;
use crate::version::VersionId;
use bytes::Bytes;
use nacre_base::{Name, errno};
use nacre_client::{Compare, Failure, ObjectReply, ObjectRequest};
use nacre_proto::types::Op;
use nacre_wire::from_slice;
use std::collections::BTreeMap;

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
    Garbage {
        now: u64,
        max: usize,
        found: Vec<GarbageItem>,
    },
    Notices(NoticeSearch),
    Seal(Seal),
    /// Opens leaves that are sealed. Some: one that is opened next, as it was read.
    Unseal(Option<LeafRange>),
    Leaves(Vec<LeafName>),
}

/// The sealing of leaves, one after another.
#[derive(Debug, Default)]
struct Seal {
    /// The leaf as it was read, with its version: it can be sealed if that is still the same.
    ready: Option<(LeafRange, u64)>,
    /// Leaves that this request has sealed.
    sealed: Vec<(LeafName, LeafRange)>,
    /// The bucket is not empty: they are opened again.
    undoes: bool,
}

impl Seal {
    /// The next leaf that is opened again.
    fn undo(&self, place: &Place) -> Option<ObjectRequest> {
        let (leaf, range) = self.sealed.last().filter(|_| self.undoes)?;
        let open = LeafRange { is_sealed: false, ..range.next_generation() };
        let same = ObjectRequest::new(place.pool, leaf.0.as_str()).compare_xattr(
            GENERATION,
            Compare::Equal,
            range.generation.to_string(),
        );
        Some(open.put(same))
    }
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
    /// Reads an object, or a version of it.
    pub fn get(key: Bytes, version: Option<VersionId>) -> Walk {
        Walk::new(Kind::Get(Get::new(&key, version)), key)
    }
    /// Reads a page of a listing.
    pub fn page(request: PageRequest) -> Walk {
        let page = PageWalk::new(request);
        let at = page.start();
        Walk::new(Kind::Page(page), at)
    }
    /// Adds up the counters of all leaves.
    pub fn totals() -> Walk {
        Walk::new(Kind::Totals(Counters::default()), Bytes::new())
    }
    /// Finds garbage that is due.
    pub fn garbage(now: u64, max: usize) -> Walk {
        Walk::new(Kind::Garbage { now, max, found: Vec::new() }, Bytes::new())
    }
    /// Finds notices that wait.
    pub fn notices(search: NoticeSearch) -> Walk {
        let at = search.start();
        Walk::new(Kind::Notices(search), at)
    }
    /// Lists the leaves.
    pub fn leaves() -> Walk {
        Walk::new(Kind::Leaves(Vec::new()), Bytes::new())
    }
    /// Makes the leaves of an empty bucket refuse writes.
    pub fn seal() -> Walk {
        Walk::new(Kind::Seal(Seal::default()), Bytes::new())
    }

    /// Makes the leaves of a bucket take writes again that refuse them.
    pub fn unseal() -> Walk {
        Walk::new(Kind::Unseal(None), Bytes::new())
    }

    /// Begins again, after a leaf was gone.
    pub fn restart(&mut self) {
        self.source = None;
        match &mut self.kind {
            Kind::Get(get) => return get.restart(),
            Kind::Page(page) => return page.restart(),
            Kind::Totals(sum) => *sum = Counters::default(),
            Kind::Garbage { found, .. } => found.clear(),
            Kind::Notices(search) => {
                search.restart();
                self.at = search.start();
                return;
            }
            Kind::Leaves(found) => found.clear(),
            Kind::Seal(seal) => seal.ready = None,
            Kind::Unseal(ready) => *ready = None,
        }
        self.at = Bytes::new();
    }

    /// The request of the next step.
    pub fn request(&mut self, place: &Place, root: &Root) -> ObjectRequest {
        if let Kind::Seal(seal) = &self.kind
            && let Some(request) = seal.undo(place)
        {
            return request;
        }
        self.leaf = self.source.clone().unwrap_or_else(|| root.leaf_of(&self.at));
        let request = ObjectRequest::new(place.pool, self.leaf.0.as_str());
        let all_of = |request: ObjectRequest, kind: &[u8], max: u64| {
            request.op(Op::OmapGetVals { after: Name::default(), max, prefix: Name::from(kind) })
        };
        match &self.kind {
            Kind::Get(get) => get.request(request),
            Kind::Page(page) => page.request(request),
            Kind::Leaves(_) | Kind::Unseal(None) => request.get_xattr(RANGE),
            Kind::Unseal(Some(range)) => {
                let open = LeafRange { is_sealed: false, ..range.next_generation() };
                open.replace(range.generation, request)
            }
            Kind::Totals(_) => all_of(request.get_xattr(RANGE), b"s", PAIRS),
            Kind::Garbage { .. } => all_of(request.get_xattr(RANGE), b"g", PAIRS),
            Kind::Notices(search) => search.request(request.get_xattr(RANGE)),
            Kind::Seal(Seal { ready: Some((range, version)), .. }) => {
                range.put(request.assert_version(*version))
            }
            // A key with old versions has a history.
            Kind::Seal(_) => [b"e", b"m", b"u"]
                .iter()
                .fold(request.get_xattr(RANGE), |request, kind| all_of(request, *kind, 1)),
        }
    }

    /// Takes the result of a step.
    pub fn completed(&mut self, result: OpResult, place: &Place, root: &mut Root) -> WalkStep {
        self.next(result, place, root).unwrap_or_else(|refusal| done(Err(refusal)))
    }

    fn next(&mut self, result: OpResult, place: &Place, root: &mut Root) -> Result<WalkStep, Refusal> {
        if let Kind::Seal(seal) = &mut self.kind
            && seal.undoes
        {
            // A leaf that has changed was opened or removed by another gateway.
            seal.sealed.pop();
            return if seal.sealed.is_empty() { Err(Refusal::NotEmpty) } else { Ok(WalkStep::Continue) };
        }
        let reply = match result {
            Ok(reply) => reply,
            Err(failure) => return self.failed(failure),
        };
        if let Some(range) = self.changed() {
            return Ok(self.leaf_done(&range));
        }
        if self.source.is_some() {
            return self.on_source(&reply);
        }
        let range: LeafRange = from_slice(output(&reply, 0)?)?;
        if !range.contains(&self.at) {
            root.follow(&self.leaf, &range, &self.at)?;
            return Ok(WalkStep::Continue);
        }
        root.learn(&self.leaf, &range);
        if range.is_sealed && matches!(self.kind, Kind::Get(_) | Kind::Page(_) | Kind::Totals(_)) {
            return Err(Refusal::NoSuchBucket);
        }
        self.on_leaf(&reply, range, place)
    }

    /// Takes the failure of a step.
    fn failed(&mut self, failure: Failure) -> Result<WalkStep, Refusal> {
        if failure.is_not_found() {
            return match self.source.take() {
                None => Ok(WalkStep::Reload),
                // The leaf has taken over everything.
                Some(_) => self.source_is_gone(),
            };
        }
        match &mut self.kind {
            Kind::Seal(seal) if is_stale(&failure) => seal.ready = None,
            Kind::Unseal(ready) if is_stale(&failure) => *ready = None,
            _ => return Err(failure.into()),
        }
        Ok(WalkStep::Continue)
    }

    /// The leaf that this step has sealed or opened.
    fn changed(&mut self) -> Option<LeafRange> {
        match &mut self.kind {
            Kind::Seal(seal) => {
                let (range, _) = seal.ready.take()?;
                seal.sealed.push((self.leaf.clone(), range.clone()));
                Some(range)
            }
            Kind::Unseal(ready) => ready.take(),
            _ => None,
        }
    }

    /// Takes what was read from the leaf that has the key.
    fn on_leaf(&mut self, reply: &ObjectReply, range: LeafRange, place: &Place) -> Result<WalkStep, Refusal> {
        match &mut self.kind {
            Kind::Get(get) => {
                if let Some(result) = get.on_leaf(&self.at, reply, &range)? {
                    return Ok(done(result.map(|object| Answer::Object(Box::new(object)))));
                }
                self.source = get.source();
            }
            Kind::Page(page) => match page.on_leaf(&self.at, reply, &range)? {
                PageStep::Source(source) => self.source = Some(source),
                PageStep::Next(at) => self.at = at,
                PageStep::Done(page) => return Ok(done(Ok(Answer::Page(page)))),
            },
            Kind::Totals(sum) => {
                for value in pairs(output(reply, 1)?)?.0.values() {
                    sum.add(from_slice(value)?);
                }
                return Ok(self.leaf_done(&range));
            }
            Kind::Unseal(ready) => {
                if !range.is_sealed {
                    return Ok(self.leaf_done(&range));
                }
                *ready = Some(range);
            }
            Kind::Leaves(found) => {
                found.push(self.leaf.clone());
                return Ok(self.leaf_done(&range));
            }
            Kind::Garbage { now, max, found } => {
                for (key, value) in pairs(output(reply, 1)?)?.0 {
                    if found.len() < *max && due_of(&key).is_some_and(|due| due <= *now) {
                        let garbage = from_slice(&value)?;
                        found.push(GarbageItem { leaf: self.leaf.clone(), key, garbage });
                    }
                }
                let is_full = found.len() >= *max;
                return Ok(if is_full { self.all_done() } else { self.leaf_done(&range) });
            }
            Kind::Notices(search) => match search.on_leaf(&self.leaf, reply, place.instance)? {
                Searched::Page => {}
                Searched::Leaf => return Ok(self.leaf_done(&range)),
                Searched::All => return Ok(self.all_done()),
            },
            Kind::Seal(seal) => {
                let is_empty = |at| Ok::<_, Refusal>(pairs(output(reply, at)?)?.0.is_empty());
                let has_keys = !is_empty(1)? || !is_empty(2)? || !is_empty(3)?;
                if has_keys || range.source.is_some() {
                    seal.undoes = true;
                    if seal.sealed.is_empty() {
                        return Err(Refusal::NotEmpty);
                    }
                } else if range.is_sealed {
                    return Ok(self.leaf_done(&range));
                } else {
                    let sealed = LeafRange { is_sealed: true, ..range.next_generation() };
                    seal.ready = Some((sealed, reply.user_version));
                }
            }
        }
        Ok(WalkStep::Continue)
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
            Kind::Notices(search) => Answer::Notices(search.take()),
            Kind::Leaves(found) => Answer::Leaves(std::mem::take(found)),
            Kind::Seal(_) | Kind::Unseal(_) => Answer::Done,
            Kind::Get(_) | Kind::Page(_) => unreachable!("a request about one key or a range"),
        }))
    }

    /// The leaf that keys were taken over from does not exist any more: it has nothing.
    fn source_is_gone(&mut self) -> Result<WalkStep, Refusal> {
        match &mut self.kind {
            Kind::Get(get) => get.on_source(&self.leaf, &BTreeMap::new()),
            Kind::Page(page) => page.source_is_gone(&self.leaf),
            _ => {}
        }
        self.after_source()
    }

    fn on_source(&mut self, reply: &ObjectReply) -> Result<WalkStep, Refusal> {
        self.source = None;
        match &mut self.kind {
            Kind::Get(get) => get.on_source(&self.leaf, &from_slice(output(reply, 1)?)?),
            Kind::Page(page) => page.on_source(&self.leaf, reply)?,
            _ => {}
        }
        self.after_source()
    }

    fn after_source(&mut self) -> Result<WalkStep, Refusal> {
        let Kind::Get(get) = &mut self.kind else { return Ok(WalkStep::Continue) };
        Ok(match get.answer(&self.at) {
            Some(result) => done(result.map(|object| Answer::Object(Box::new(object)))),
            None => WalkStep::Continue,
        })
    }
}

fn is_stale(failure: &Failure) -> bool {
    is_canceled(failure) || failure.errno == errno::ERANGE || failure.errno == errno::EOVERFLOW
}
