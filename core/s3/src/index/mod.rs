//! The index of one bucket, as one gateway sees it.
//!
//! `BucketIndex` takes requests about keys (`Ask`), emits RADOS operations (`Effect::Send`), takes their
//! results (`completed`) and gives answers (`Effect::Done`). It has no state that must survive: everything is
//! in the leaves, and other gateways change them at the same time.
//!
//! `writer` collects the writes of a leaf into compound operations, `change` decides what one write does to
//! its key, `versions` what that means for the other versions of the key, `cells` holds what was read, `walk`
//! has the requests that read, of which `notices` is one, `split` splits leaves, and `root` is the cached map
//! of leaves.
//!
//! Consistency rests on three rules:
//!   - a write compares the leaf's generation and the entries that it was decided on, in the operation that
//!     carries it out, so that a decision on a stale view changes nothing;
//!   - a write compares the gateway's own counters too, so that an operation whose result was lost is counted
//!     once, whether it was carried out or not;
//!   - leaves only hand over the keys at their right end, and say where they went.

mod cells;
mod change;
mod get;
mod notices;
mod page;
mod root;
mod split;
mod versions;
mod walk;
mod writer;

pub use change::{Change, Deletion, Revision};
pub use notices::{NoticeItem, NoticesOf, Paused};
pub use split::Limits;
pub use walk::GarbageItem;

use crate::leaf::LeafName;
use crate::listing::{Page, PageRequest};
use crate::notice::Notices;
use crate::record::{Counters, Object};
use crate::tag::Tag;
use crate::version::VersionId;
use bytes::Bytes;
use nacre_base::{Name, PoolId, errno};
use nacre_client::{Failure, ObjectReply, ObjectRequest};
use nacre_wire::from_slice;
use notices::NoticeSearch;
use root::Root;
use split::{Split, SplitStep};
use std::collections::{BTreeMap, BTreeSet};
use walk::{Walk, WalkStep};
use writer::{LeafWriter, Write, WriterOp};

/// Names an operation that was sent; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(pub u64);

/// Names a request of the machine's user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// What is asked about a bucket.
#[derive(Clone, Debug)]
pub enum Ask {
    /// Writes a key.
    Change(Change),
    /// The same, and notes it in the same operation.
    Noted { change: Change, notices: Notices },
    /// Reads an object.
    Get { key: Bytes },
    /// Reads a version of an object.
    GetVersion { key: Bytes, version: VersionId },
    /// Lists objects, versions or open uploads.
    Page(PageRequest),
    /// The number of objects, and their size.
    Totals,
    /// Garbage that is due at this time, at most so many.
    Garbage { now: u64, max: usize },
    /// Notices that wait, at most so many, and without those of topics that are paused.
    Notices { of: NoticesOf, max: usize, without: Paused },
    /// Forgets garbage that was removed, or notices that were sent.
    ForgetGarbage { leaf: LeafName, keys: Vec<Name> },
    /// Makes every leaf refuse writes, if the bucket is empty.
    Seal,
    /// Makes every leaf take writes again: a deletion was not finished.
    Unseal,
    /// The leaves, from the lowest keys to the highest.
    Leaves,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Done,
    /// Whether there was an object before, and the version that was made.
    Put {
        replaced: bool,
        version: VersionId,
    },
    /// Whether there was what was to be deleted; the version that was removed, or the delete marker that was
    /// made.
    Deleted {
        existed: bool,
        version: Option<VersionId>,
        is_marker: bool,
    },
    Revised {
        version: VersionId,
    },
    Object(Box<Object>),
    Page(Page),
    Totals(Counters),
    Garbage(Vec<GarbageItem>),
    Notices(Vec<NoticeItem>),
    Leaves(Vec<LeafName>),
}

/// Why it was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("there is no such object")]
    NoSuchKey,
    #[error("there is no such version")]
    NoSuchVersion,
    /// The version is a delete marker, made at `mtime`: milliseconds since 1970.
    #[error("the version is a delete marker")]
    DeleteMarker { version: VersionId, mtime: u64 },
    #[error("the version is locked")]
    Locked,
    #[error("a precondition does not hold")]
    PreconditionFailed,
    #[error("there is no such upload")]
    NoSuchUpload,
    #[error("the bucket is deleted")]
    NoSuchBucket,
    #[error("the bucket is not empty")]
    NotEmpty,
    /// The outcome of a write is unknown.
    #[error(transparent)]
    Failed(#[from] Failure),
    #[error("the index cannot be read: {0}")]
    Corrupt(String),
}

impl From<nacre_wire::DecodeError> for Refusal {
    fn from(error: nacre_wire::DecodeError) -> Refusal {
        Refusal::Corrupt(error.to_string())
    }
}

/// What the machine wants done.
#[derive(Debug)]
pub enum Effect {
    /// Carry out this request, then call `completed`.
    Send {
        op: OpId,
        request: Box<ObjectRequest>,
    },
    Done {
        ticket: Ticket,
        result: Result<Answer, Refusal>,
    },
}

/// The result of a RADOS operation.
pub type OpResult = Result<ObjectReply, Failure>;

/// Where the leaves are.
#[derive(Clone, Debug)]
struct Place {
    pool: PoolId,
    bucket: String,
    /// The incarnation of this gateway.
    instance: u64,
}

/// How often a request begins again with a new map of the leaves before it is given up.
const RELOADS_MAX: u32 = 4;

/// One of so many operations on a leaf that takes keys over looks whether that goes on.
const RESUME_EVERY: u64 = 8;

/// The index of one bucket.
#[derive(Debug)]
pub struct BucketIndex {
    place: Place,
    root: Root,
    writers: BTreeMap<LeafName, LeafWriter>,
    in_flight: BTreeMap<OpId, Job>,
    /// Requests that wait for the map of leaves.
    waiting: Vec<Pending>,
    limits: Limits,
    /// Leaves that are being split, or that take keys over.
    splitting: BTreeSet<LeafName>,
    last_op: u64,
}

/// What an operation in flight is for.
#[derive(Debug)]
enum Job {
    Root,
    Writer(LeafName, WriterOp),
    Walk(Ticket, u32, Box<Walk>),
    Forget(Ticket),
    Split(LeafName, Box<Split>),
}

/// A request that is to begin, or to begin again.
#[derive(Debug)]
enum Pending {
    Write(Box<Write>),
    Walk(Ticket, u32, Box<Walk>),
}

impl BucketIndex {
    /// `instance` is the number of this gateway's incarnation.
    pub fn new(pool: PoolId, bucket: impl Into<String>, instance: u64) -> BucketIndex {
        BucketIndex {
            place: Place { pool, bucket: bucket.into(), instance },
            root: Root::default(),
            writers: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            waiting: Vec::new(),
            limits: Limits::default(),
            splitting: BTreeSet::new(),
            last_op: 0,
        }
    }

    /// Splits leaves at other sizes.
    #[cfg(test)]
    pub fn with_limits(self, limits: Limits) -> BucketIndex {
        BucketIndex { limits, ..self }
    }

    /// Takes a request.
    pub fn ask(&mut self, ticket: Ticket, ask: Ask, out: &mut Vec<Effect>) {
        let walk = |walk| Pending::Walk(ticket, 0, Box::new(walk));
        let pending = match ask {
            Ask::Change(change) => Pending::Write(Box::new(Write::new(ticket, change, Notices::default()))),
            Ask::Noted { change, notices } => Pending::Write(Box::new(Write::new(ticket, change, notices))),
            Ask::Get { key } => walk(Walk::get(key, None)),
            Ask::GetVersion { key, version } => walk(Walk::get(key, Some(version))),
            Ask::Page(request) => walk(Walk::page(request)),
            Ask::Totals => walk(Walk::totals()),
            Ask::Garbage { now, max } => walk(Walk::garbage(now, max)),
            Ask::Notices { of, max, without } => walk(Walk::notices(NoticeSearch::new(of, max, without))),
            Ask::Seal => walk(Walk::seal()),
            Ask::Unseal => walk(Walk::unseal()),
            Ask::Leaves => walk(Walk::leaves()),
            Ask::ForgetGarbage { leaf, keys } => {
                let request = ObjectRequest::new(self.place.pool, leaf.0).omap_remove(keys);
                return self.send(Job::Forget(ticket), request, out);
            }
        };
        self.begin(pending, out);
    }

    /// Takes the result of an operation.
    pub fn completed(&mut self, op: OpId, result: OpResult, out: &mut Vec<Effect>) {
        let Some(job) = self.in_flight.remove(&op) else { return };
        match job {
            Job::Root => self.on_root(result, out),
            Job::Writer(leaf, op) => self.on_writer(leaf, op, result, out),
            Job::Walk(ticket, reloads, walk) => self.on_walk(ticket, reloads, walk, result, out),
            Job::Split(leaf, mut split) => match split.completed(&self.place, result) {
                SplitStep::Continue => {
                    let request = split.request(&self.place);
                    self.send(Job::Split(leaf, split), request, out);
                }
                SplitStep::Done => {
                    self.splitting.remove(&leaf);
                    self.splitting.remove(&split.new_name(&self.place));
                }
            },
            Job::Forget(ticket) => {
                let result = match result {
                    Err(failure) if !failure.is_not_found() => Err(failure.into()),
                    _ => Ok(Answer::Done),
                };
                out.push(Effect::Done { ticket, result });
            }
        }
    }

    fn send(&mut self, job: Job, request: ObjectRequest, out: &mut Vec<Effect>) {
        self.last_op += 1;
        let op = OpId(self.last_op);
        self.in_flight.insert(op, job);
        out.push(Effect::Send { op, request: Box::new(request) });
    }

    fn begin(&mut self, pending: Pending, out: &mut Vec<Effect>) {
        if !self.root.is_known() {
            self.waiting.push(pending);
            if self.root.begin_loading() {
                let request = self.root.request(&self.place);
                self.send(Job::Root, request, out);
            }
            return;
        }
        match pending {
            Pending::Write(write) => match self.leaf_to_write(write.change.key()) {
                Ok(leaf) => {
                    self.writers.entry(leaf.clone()).or_default().push(*write);
                    self.pump(&leaf, out);
                }
                Err(refusal) => out.push(Effect::Done { ticket: write.ticket, result: Err(refusal) }),
            },
            Pending::Walk(ticket, reloads, mut walk) => {
                let request = walk.request(&self.place, &self.root);
                self.send(Job::Walk(ticket, reloads, walk), request, out);
            }
        }
    }

    /// The leaf that has a key, as far as this gateway knows.
    fn leaf_to_write(&mut self, key: &[u8]) -> Result<LeafName, Refusal> {
        loop {
            let leaf = self.root.leaf_of(key);
            match self.writers.get(&leaf).and_then(LeafWriter::range) {
                // A map that was read again may be older than what the leaf itself said.
                Some(range) if !range.contains(key) => self.root.follow(&leaf, range, key)?,
                _ => return Ok(leaf),
            }
        }
    }

    fn on_root(&mut self, result: OpResult, out: &mut Vec<Effect>) {
        match self.root.loaded(result) {
            Ok(true) => {
                for pending in std::mem::take(&mut self.waiting) {
                    self.begin(pending, out);
                }
            }
            Ok(false) => {
                let request = self.root.request(&self.place);
                self.send(Job::Root, request, out);
            }
            Err(refusal) => {
                for pending in std::mem::take(&mut self.waiting) {
                    let ticket = match pending {
                        Pending::Write(write) => write.ticket,
                        Pending::Walk(ticket, ..) => ticket,
                    };
                    out.push(Effect::Done { ticket, result: Err(refusal.clone()) });
                }
            }
        }
    }

    /// Begins a split that may be due, or goes on with one that another gateway may have left.
    fn maintain(&mut self, leaf: &LeafName, source: Option<LeafName>, is_large: bool, out: &mut Vec<Effect>) {
        // Every gateway that sees a half-done split would do the same work: now and then is enough.
        let resumes = source.is_some() && self.last_op.is_multiple_of(RESUME_EVERY);
        if !(is_large || resumes) || !self.splitting.insert(leaf.clone()) {
            return;
        }
        let tag = Tag { instance: self.place.instance, sequence: self.last_op };
        let split = match source {
            Some(source) => Split::resume(leaf.clone(), source, self.limits, tag),
            None => Split::new(leaf.clone(), self.limits, tag),
        };
        self.splitting.insert(split.new_name(&self.place));
        let request = split.request(&self.place);
        self.send(Job::Split(leaf.clone(), Box::new(split)), request, out);
    }

    /// Sends the next operation of a leaf's writer, if it may.
    fn pump(&mut self, leaf: &LeafName, out: &mut Vec<Effect>) {
        let Some(writer) = self.writers.get_mut(leaf) else { return };
        if let Some((op, request)) = writer.next(&self.place, leaf, out) {
            self.send(Job::Writer(leaf.clone(), op), request, out);
        }
    }

    fn on_writer(&mut self, leaf: LeafName, op: WriterOp, result: OpResult, out: &mut Vec<Effect>) {
        let Some(writer) = self.writers.get_mut(&leaf) else { return };
        let missing = matches!(&result, Err(failure) if failure.is_not_found());
        let mut elsewhere = writer.completed(&self.place, op, result, out);
        let is_large = writer.take_inserts(self.limits.count_after);
        let source = writer.range().and_then(|range| {
            self.root.learn(&leaf, range);
            range.source.clone()
        });
        self.maintain(&leaf, source, is_large, out);
        if missing {
            // The leaf was removed, with its bucket or without.
            elsewhere.extend(self.writers.remove(&leaf).into_iter().flat_map(LeafWriter::into_queue));
            self.root.forget();
        }
        for mut write in elsewhere {
            write.reloads += u32::from(missing);
            if write.reloads > RELOADS_MAX {
                let result = Err(Refusal::NoSuchBucket);
                out.push(Effect::Done { ticket: write.ticket, result });
            } else {
                self.begin(Pending::Write(Box::new(write)), out);
            }
        }
        self.pump(&leaf, out);
    }

    fn on_walk(
        &mut self,
        ticket: Ticket,
        reloads: u32,
        mut walk: Box<Walk>,
        result: OpResult,
        out: &mut Vec<Effect>,
    ) {
        match walk.completed(result, &self.place, &mut self.root) {
            WalkStep::Continue => self.begin(Pending::Walk(ticket, reloads, walk), out),
            WalkStep::Reload if reloads < RELOADS_MAX => {
                self.root.forget();
                walk.restart();
                self.begin(Pending::Walk(ticket, reloads + 1, walk), out);
            }
            WalkStep::Reload => {
                out.push(Effect::Done { ticket, result: Err(Refusal::NoSuchBucket) });
            }
            WalkStep::Done(result) => out.push(Effect::Done { ticket, result: *result }),
        }
    }
}

/// The failure of an operation whose comparison did not hold.
fn is_canceled(failure: &Failure) -> bool {
    failure.errno == errno::ECANCELED
}

/// An object from its encoded entry and head. Both are written and removed together.
fn object_of(entry: &[u8], head: Option<&Bytes>) -> Result<Object, Refusal> {
    let head = head.ok_or_else(|| Refusal::Corrupt("an entry without a head".into()))?;
    let object = Object { entry: from_slice(entry)?, head: from_slice(head)? };
    if !object.is_whole() {
        return Err(Refusal::Corrupt("a body of another size than its entry says".into()));
    }
    Ok(object)
}

/// One operation's output, or a failure if the reply is too short.
fn output(reply: &ObjectReply, at: usize) -> Result<&Bytes, Refusal> {
    match reply.ops.get(at) {
        Some(op) => Ok(&op.data),
        None => Err(Refusal::Corrupt("a reply without the outputs of its operations".into())),
    }
}
