//! The writes of one leaf: one operation at a time, which carries everything that has arrived meanwhile.

use super::cells::{Cells, Source, with_tombstones};
use super::change::{Change, Decision, Edit};
use super::{Answer, Effect, OpResult, Place, Refusal, Ticket, is_canceled, output};
use crate::leaf::{GENERATION, LeafName, LeafRange, RANGE, compare_all, counters_key};
use crate::notice::Notices;
use crate::record::Counters;
use bytes::Bytes;
use nacre_base::Name;
use nacre_client::{Compare, ObjectReply, ObjectRequest};
use nacre_wire::{from_slice, to_vec};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The most writes in one operation.
const BATCH_MAX: usize = 64;
/// About the most bytes in one operation, unless one write alone has more.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// A write on its way into the index.
#[derive(Debug)]
pub struct Write {
    pub ticket: Ticket,
    pub change: Change,
    /// What is noted about the change in the same operation.
    notices: Notices,
    /// What is to be read of the key.
    names: BTreeSet<Name>,
    /// What is known of the key; none before it was read.
    state: Option<Cells>,
    /// What the leaf's source has of the key.
    source: Source,
    /// The generation of the leaf when it was read. A state counts only as long as that is the same.
    generation: u64,
    /// The assumption that the key does not exist was wrong.
    must_read: bool,
    /// The leaf was read once more because its source lacked something: what is missing now does not exist.
    is_rechecked: bool,
    /// How often the leaf that should have the key was gone.
    pub reloads: u32,
}

impl Write {
    /// A write of which nothing was read yet.
    pub fn new(ticket: Ticket, change: Change, notices: Notices) -> Write {
        Write {
            ticket,
            names: change.reads(),
            change,
            notices,
            state: None,
            source: Source::default(),
            generation: 0,
            must_read: false,
            is_rechecked: false,
            reloads: 0,
        }
    }

    fn needs_read(&self, range: &LeafRange) -> bool {
        self.state.is_none() && (self.must_read || !self.change.is_blind() || range.source.is_some())
    }

    /// What was decided on does not hold any more.
    fn forget(&mut self) {
        self.state = None;
        self.must_read = true;
        self.is_rechecked = false;
        self.source = Source::default();
        self.names = self.change.reads();
    }

    /// What was read of a leaf says nothing about another one.
    fn forget_leaf(&mut self) {
        let must_read = self.must_read;
        self.forget();
        self.must_read = must_read;
    }

    /// More names must be read, at one time with the others.
    fn read_more(&mut self, names: BTreeSet<Name>) {
        self.names.extend(names);
        self.state = None;
        self.must_read = true;
        self.is_rechecked = false;
    }

    /// What the source of its leaf must be asked for.
    fn for_source(&self, range: &LeafRange) -> BTreeSet<Name> {
        self.state.as_ref().map(|state| state.for_source(range)).unwrap_or_default()
    }

    /// Whether a write that would end without an operation must read its leaf again: what its source lacked
    /// may have moved between the two reads, and no guard would find that out.
    fn must_recheck(&mut self) -> bool {
        let lacks = self.state.as_ref().is_some_and(Cells::lacks_value);
        let rechecks = lacks && !self.is_rechecked;
        if rechecks {
            self.state = None;
            self.must_read = true;
            self.is_rechecked = true;
        }
        rechecks
    }

    fn done(self, result: Result<Answer, Refusal>, out: &mut Vec<Effect>) {
        out.push(Effect::Done { ticket: self.ticket, result });
    }
}

/// An operation in flight.
#[derive(Debug)]
pub enum WriterOp {
    Read(Vec<Write>),
    /// Reads what the leaf's source has of keys that the leaf does not have.
    ReadSource(LeafName, Vec<Write>),
    Write {
        batch: Vec<(Write, Answer)>,
        /// What the counters are if it succeeds.
        counters: Counters,
        /// How many of them add names to the leaf.
        inserts: usize,
    },
}

/// The queue of one leaf, and what is known of the leaf.
#[derive(Debug)]
pub struct LeafWriter {
    range: Option<LeafRange>,
    /// This gateway's counters in the leaf. Unknown at first, and after an operation with an unknown outcome.
    counters: Option<Counters>,
    queue: VecDeque<Write>,
    /// Writes for which the leaf's source must be read next.
    for_source: Option<(LeafName, Vec<Write>)>,
    is_busy: bool,
    /// New keys since they were last counted.
    inserts: usize,
    /// Smaller where other gateways write the same keys, so that one of them gets through.
    batch_max: usize,
}

impl Default for LeafWriter {
    fn default() -> LeafWriter {
        LeafWriter {
            range: None,
            counters: None,
            queue: VecDeque::new(),
            for_source: None,
            is_busy: false,
            inserts: 0,
            batch_max: BATCH_MAX,
        }
    }
}

impl LeafWriter {
    /// Takes a write into the queue.
    pub fn push(&mut self, write: Write) {
        self.queue.push_back(write);
    }
    /// The leaf as it was last read.
    pub fn range(&self) -> Option<&LeafRange> {
        self.range.as_ref()
    }
    /// Whether so many keys are new that the leaf is to be counted.
    pub fn take_inserts(&mut self, count_after: usize) -> bool {
        let is_large = self.inserts >= count_after;
        if is_large {
            self.inserts = 0;
        }
        is_large
    }
    /// What has not begun.
    pub fn into_queue(self) -> impl Iterator<Item = Write> {
        self.for_source.into_iter().flat_map(|(_, batch)| batch).chain(self.queue)
    }

    /// The next operation, unless one is in flight.
    pub fn next(
        &mut self,
        place: &Place,
        leaf: &LeafName,
        out: &mut Vec<Effect>,
    ) -> Option<(WriterOp, ObjectRequest)> {
        while !self.is_busy {
            let next = if let Some((source, batch)) = self.for_source.take() {
                Some(read_source(place, source, batch))
            } else if self.queue.is_empty() {
                return None;
            } else {
                self.take_next(place, leaf, out)
            };
            self.is_busy = next.is_some();
            if next.is_some() {
                return next;
            }
        }
        None
    }

    fn take_next(
        &mut self,
        place: &Place,
        leaf: &LeafName,
        out: &mut Vec<Effect>,
    ) -> Option<(WriterOp, ObjectRequest)> {
        let mut batch = self.take_batch();
        let (Some(range), Some(counters)) = (&self.range, self.counters) else {
            return Some(read(place, leaf, batch));
        };
        let is_stale = |write: &&mut Write| write.state.is_some() && write.generation != range.generation;
        batch.iter_mut().filter(is_stale).for_each(Write::forget);
        let (unread, ready): (Vec<_>, Vec<_>) = batch.into_iter().partition(|write| write.needs_read(range));
        // What was read goes first: otherwise a stream of writes that must read could hold it up.
        if ready.iter().any(|write| write.state.is_some()) || unread.is_empty() {
            let (next, again) = write(place, leaf, range, counters, ready, out);
            self.put_back(again.into_iter().chain(unread).collect::<Vec<_>>().into_iter());
            return next;
        }
        self.put_back(ready.into_iter());
        Some(read(place, leaf, unread))
    }

    /// What is first in the queue, with each key once: a later write of the same key depends on the earlier.
    fn take_batch(&mut self) -> Vec<Write> {
        let (mut batch, mut later) = (Vec::new(), VecDeque::new());
        let (mut keys, mut bytes) = (BTreeSet::new(), 0);
        while let Some(write) = self.queue.pop_front() {
            let is_full = batch.len() >= self.batch_max || bytes >= BATCH_BYTES_MAX;
            if is_full {
                later.push_back(write);
                break;
            }
            if keys.insert(write.change.key().clone()) {
                bytes += write.change.bytes() + write.notices.bytes();
                batch.push(write);
            } else {
                later.push_back(write);
            }
        }
        later.append(&mut self.queue);
        self.queue = later;
        batch
    }

    fn put_back(&mut self, writes: impl DoubleEndedIterator<Item = Write>) {
        writes.rev().for_each(|write| self.queue.push_front(write));
    }

    /// Takes a result. Returns writes whose keys other leaves have.
    pub fn completed(
        &mut self,
        place: &Place,
        op: WriterOp,
        result: OpResult,
        out: &mut Vec<Effect>,
    ) -> Vec<Write> {
        self.is_busy = false;
        match op {
            WriterOp::Read(batch) => self.on_read(place, batch, result, out),
            WriterOp::ReadSource(source, batch) => {
                self.on_source(source, batch, result, out);
                Vec::new()
            }
            WriterOp::Write { batch, counters, inserts } => {
                self.on_written(batch, counters, inserts, result, out);
                Vec::new()
            }
        }
    }

    fn on_read(
        &mut self,
        place: &Place,
        mut batch: Vec<Write>,
        result: OpResult,
        out: &mut Vec<Effect>,
    ) -> Vec<Write> {
        let read = match result {
            Ok(reply) => LeafRead::parse(place, &reply),
            Err(failure) if failure.is_not_found() => return batch,
            Err(failure) => Err(failure.into()),
        };
        let LeafRead { range, counters, values } = match read {
            Ok(read) => read,
            Err(refusal) => {
                batch.into_iter().for_each(|write| write.done(Err(refusal.clone()), out));
                return Vec::new();
            }
        };
        if range.is_sealed {
            batch.into_iter().for_each(|write| write.done(Err(Refusal::NoSuchBucket), out));
            return Vec::new();
        }
        self.counters = Some(counters);
        let is_elsewhere = |write: &mut Write| !range.contains(write.change.key());
        let mut elsewhere: Vec<Write> = batch.extract_if(.., is_elsewhere).collect();
        // What waits would otherwise be written into a leaf that does not have its key any more.
        for write in std::mem::take(&mut self.queue) {
            let stays = range.contains(write.change.key());
            if stays { self.queue.push_back(write) } else { elsewhere.push(write) }
        }
        // What was read here says nothing about another leaf.
        elsewhere.iter_mut().for_each(Write::forget_leaf);
        for write in &mut batch {
            write.state = Some(Cells::read(&write.names, &values, &range, &write.source));
            write.generation = range.generation;
        }
        if let Some(source) = &range.source
            && batch.iter().any(|write| !write.for_source(&range).is_empty())
        {
            self.for_source = Some((source.clone(), batch));
        } else {
            self.put_back(batch.into_iter());
        }
        self.range = Some(range);
        elsewhere
    }

    fn on_source(
        &mut self,
        source: LeafName,
        mut batch: Vec<Write>,
        result: OpResult,
        out: &mut Vec<Effect>,
    ) {
        let values: Result<BTreeMap<Name, Bytes>, Refusal> = match result {
            Ok(reply) => output(&reply, 0).and_then(|data| Ok(from_slice(data)?)),
            // The leaf has taken over everything.
            Err(failure) if failure.is_not_found() => Ok(BTreeMap::new()),
            Err(failure) => Err(failure.into()),
        };
        let values = match values {
            Ok(values) => values,
            Err(refusal) => return batch.into_iter().for_each(|write| write.done(Err(refusal.clone()), out)),
        };
        if let Some(range) = &self.range {
            for write in &mut batch {
                let asked = write.for_source(range);
                if let Some(state) = &mut write.state {
                    write.source.add(source.clone(), asked, &values);
                    state.add_source(&write.source);
                }
            }
        }
        self.put_back(batch.into_iter());
    }

    fn on_written(
        &mut self,
        batch: Vec<(Write, Answer)>,
        counters: Counters,
        inserts: usize,
        result: OpResult,
        out: &mut Vec<Effect>,
    ) {
        match result {
            Ok(_) => {
                self.counters = Some(counters);
                self.batch_max = (self.batch_max * 2).min(BATCH_MAX);
                self.inserts += inserts;
                for (write, answer) in batch {
                    write.done(Ok(answer), out);
                }
            }
            Err(failure) if is_canceled(&failure) || failure.is_not_found() => {
                self.counters = None;
                self.batch_max = (self.batch_max / 2).max(1);
                let again = batch.into_iter().map(|(mut write, _)| {
                    write.forget();
                    write
                });
                self.put_back(again.collect::<Vec<_>>().into_iter());
            }
            Err(failure) => {
                self.counters = None;
                for (write, _) in batch {
                    write.done(Err(failure.clone().into()), out);
                }
            }
        }
    }
}

/// What a read of a leaf brings.
struct LeafRead {
    range: LeafRange,
    counters: Counters,
    values: BTreeMap<Name, Bytes>,
}

impl LeafRead {
    fn parse(place: &Place, reply: &ObjectReply) -> Result<LeafRead, Refusal> {
        let range = from_slice(output(reply, 0)?)?;
        let values: BTreeMap<Name, Bytes> = from_slice(output(reply, 1)?)?;
        let counters = values.get(&counters_key(place.instance));
        let counters = counters.map(|value| from_slice(value)).transpose()?.unwrap_or_default();
        Ok(LeafRead { range, counters, values })
    }
}

fn read(place: &Place, leaf: &LeafName, batch: Vec<Write>) -> (WriterOp, ObjectRequest) {
    let keys = batch.iter().flat_map(|write| with_tombstones(&write.names));
    let keys = keys.chain([counters_key(place.instance)]).collect();
    let request = ObjectRequest::new(place.pool, leaf.0.as_str()).get_xattr(RANGE).omap_get_keys(keys);
    (WriterOp::Read(batch), request)
}

fn read_source(place: &Place, source: LeafName, batch: Vec<Write>) -> (WriterOp, ObjectRequest) {
    let keys = batch.iter().flat_map(|write| write.names.iter().cloned()).collect();
    let request = ObjectRequest::new(place.pool, source.0.as_str()).omap_get_keys(keys);
    (WriterOp::ReadSource(source, batch), request)
}

/// One compound operation for the writes of a batch that change anything, and the writes that must read
/// first.
fn write(
    place: &Place,
    leaf: &LeafName,
    range: &LeafRange,
    before: Counters,
    writes: Vec<Write>,
    out: &mut Vec<Effect>,
) -> (Option<(WriterOp, ObjectRequest)>, Vec<Write>) {
    let own = counters_key(place.instance);
    let (mut all, mut batch, mut counters) = (Edit::default(), Vec::new(), before);
    let (mut inserts, mut again) = (0, Vec::new());
    for mut write in writes {
        assert!(range.contains(write.change.key()), "a write to a leaf that does not have its key");
        // A blind write is decided on the assumption that there is nothing yet.
        let state = write.state.clone().unwrap_or_default();
        match write.change.decide(&state, range) {
            Decision::Done(_) if write.must_recheck() => again.push(write),
            Decision::Done(result) => write.done(result, out),
            Decision::Read(names) => {
                write.read_more(names);
                again.push(write);
            }
            Decision::Write(edit, answer) => {
                inserts += usize::from(edit.grows);
                all.guards.extend(edit.guards);
                all.set.extend(edit.set);
                all.set.extend(write.notices.written(&answer));
                all.remove.extend(edit.remove);
                counters.add(edit.counters);
                batch.push((write, answer));
            }
        }
    }
    if batch.is_empty() {
        return (None, again);
    }
    if counters != before {
        let is_new = before == Counters::default();
        all.guards.insert(own.clone(), if is_new { Bytes::new() } else { to_vec(&before).into() });
        if counters == Counters::default() {
            all.remove.insert(own);
        } else {
            all.set.insert(own, to_vec(&counters).into());
        }
    }
    let mut request = ObjectRequest::new(place.pool, leaf.0.as_str())
        .compare_xattr(GENERATION, Compare::Equal, range.generation.to_string())
        .op(compare_all(all.guards))
        .omap_set(all.set);
    if !all.remove.is_empty() {
        request = request.omap_remove(all.remove);
    }
    (Some((WriterOp::Write { batch, counters, inserts }, request)), again)
}
