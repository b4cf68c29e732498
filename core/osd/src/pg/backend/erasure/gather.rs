//! Gathering bytes of objects from several members, on the primary of an erasure-coded pool.
//!
//! A request is for bytes of a whole object, or of one shard. What a member has is read there; the rest is
//! decoded from as many other shards as it takes. An object does not change while some of it is gathered for
//! a client, and what is missing does not change in an interval, so all members give bytes of one version:
//! each has, in its session's order, all writes that were sent to it before.
//!
//! A member that cannot give its bytes is left out, and others are read. Where too few are left the request
//! waits: until an object is recovered, or for the next interval.

use super::{Geometry, Holder, Segment, segments};
use crate::object_info::ObjectInfo;
use crate::pg::backend::Backend;
use crate::pg::backend::erasure::index;
use crate::pg::{Ctx, Pg, PgEffect, Phase};
use bytes::Bytes;
use nacre_base::{IntervalSet, OsdId, Time, Version};
use nacre_erasure::layout::Layout;
use nacre_machine::{Level, ReadError, StoreView};
use nacre_proto::messages::part::Part;
use nacre_proto::messages::peer::PgMsg;
use nacre_proto::transaction::StoredId;
use nacre_proto::types::ObjectId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::time::Duration;

/// Bytes that one placement group gathers at a time; a single request may be for more.
const BYTES_MAX: u64 = if cfg!(test) { 64 << 10 } else { 32 << 20 };
/// An unanswered question is asked again after this time.
const RETRY: Duration = Duration::from_secs(1);
/// Members that failed are asked again after this time, where others do not suffice.
const FAILED_RETRY: Duration = Duration::from_secs(3);
/// Extents in one question of a member, at most.
const EXTENTS_MAX: usize = 4096;

/// What is to be gathered: (offset, length) extents.
#[derive(Clone, Debug)]
pub enum Want {
    /// Of an object, as clients see it.
    Object(Vec<(u64, u64)>),
    /// Of one shard.
    Shard(usize, Vec<(u64, u64)>),
}

#[derive(Clone, Debug)]
/// A read whose bytes are on several members.
pub struct GatherRequest {
    /// The number of the read, which has its result.
    pub read: u64,
    pub object: ObjectId,
    pub want: Want,
}

/// Bytes that one member is asked for.
struct SubRead {
    osd: OsdId,
    shard: usize,
    extents: Vec<(u64, u64)>,
    data: Option<Vec<Bytes>>,
    asked: Time,
}

struct Job {
    request: GatherRequest,
    /// The members have all writes up to here.
    at: Version,
    layout: Layout,
    segments: Vec<Segment>,
    /// Which shards each segment is for, in the order of its plan.
    wanted: Vec<usize>,
    reads: BTreeMap<u64, SubRead>,
    failed: BTreeSet<OsdId>,
    bytes: u64,
}

/// All that is being gathered.
#[derive(Default)]
pub struct Gathers {
    jobs: BTreeMap<u64, Job>,
    /// For memory, or for more members; with the members that have failed.
    waiting: VecDeque<(GatherRequest, BTreeSet<OsdId>)>,
    /// Our own reads: of which job.
    local: BTreeMap<u64, u64>,
    /// When members that failed are tried again.
    retry: Time,
}

/// Reads for the primary, on another member: for whom, and the primary's number.
#[derive(Default)]
pub struct Served(BTreeMap<u64, (OsdId, u64)>);

impl Served {
    /// Another interval began.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// A holder of a shard.
struct Source<'a> {
    osd: OsdId,
    holder: Holder<'a>,
}

impl Gathers {
    /// Another interval began.
    pub fn clear(&mut self) {
        *self = Gathers::default();
    }
    /// Whether a read of the own store is for a gather.
    pub fn is_local(&self, read: u64) -> bool {
        self.local.contains_key(&read)
    }
    fn bytes(&self) -> u64 {
        self.jobs.values().map(|job| job.bytes).sum()
    }
    /// Its invariant.
    pub fn check(&self) {
        assert!(self.jobs.len() <= 1 || self.bytes() <= BYTES_MAX, "too much is gathered at a time");
    }
    /// Gives back what reads were for, so that the rest can be planned anew.
    fn take_failed(&mut self, job: u64, osd: OsdId) {
        let Some(Job { request, mut failed, .. }) = self.jobs.remove(&job) else { return };
        failed.insert(osd);
        self.local.retain(|_, of| *of != job);
        self.waiting.push_front((request, failed));
    }
    /// A reply. The job, if it has everything.
    fn take_data(&mut self, id: u64, from: OsdId, data: Vec<Bytes>) -> Option<Job> {
        let (job, read) = self.jobs.iter_mut().find_map(|(n, job)| Some((*n, job.reads.get_mut(&id)?)))?;
        if read.osd != from || read.data.is_some() {
            return None;
        }
        read.data = Some(data);
        if self.jobs[&job].reads.values().all(|read| read.data.is_some()) {
            self.jobs.remove(&job)
        } else {
            None
        }
    }
}

/// What is needed of each shard.
fn needs(geometry: &Geometry, layout: Layout, want: &Want) -> BTreeMap<usize, IntervalSet> {
    let mut needs: BTreeMap<usize, IntervalSet> = BTreeMap::new();
    match want {
        Want::Object(extents) => {
            for piece in extents.iter().flat_map(|(offset, len)| layout.pieces(*offset..offset + len)) {
                let columns = piece.shard_offset..piece.shard_offset + piece.len;
                needs.entry(geometry.code.data_shard(piece.part)).or_default().insert(columns);
            }
        }
        Want::Shard(shard, extents) => {
            let columns = extents.iter().map(|(offset, len)| *offset..offset + len).collect();
            needs.insert(*shard, columns);
        }
    }
    needs
}

impl Job {
    /// None if too few shards are there.
    fn plan(
        geometry: &Geometry,
        sources: &[Source<'_>],
        me: OsdId,
        layout: Layout,
        request: GatherRequest,
        failed: BTreeSet<OsdId>,
    ) -> Option<Job> {
        let object = &request.object;
        let sources: Vec<&Source<'_>> =
            sources.iter().filter(|source| !failed.contains(&source.osd)).collect();
        let has = |source: &Source<'_>, columns: &IntervalSet| {
            let lacking = source.holder.missing.get(object).map(|stale| &stale.part);
            lacking.is_none_or(|part| !part.meta && part.data.intersection(columns).is_empty())
        };
        let holder_of = |shard: usize, columns: &IntervalSet| {
            let mut of_shard = sources.iter().filter(|source| source.holder.shard == shard);
            of_shard.find(|source| has(source, columns)).map(|source| source.osd)
        };
        let mut of_shards: BTreeMap<usize, IntervalSet> = BTreeMap::new();
        let (mut wanted, mut rest) = (Vec::new(), IntervalSet::new());
        for (shard, columns) in needs(geometry, layout, &request.want) {
            if holder_of(shard, &columns).is_some() {
                of_shards.insert(shard, columns);
            } else {
                wanted.push(shard);
                rest.add(&columns);
            }
        }
        let mut planned = Vec::new();
        if !rest.is_empty() {
            let ours = sources.iter().filter(|source| source.osd == me).map(|source| source.holder.shard);
            let prefer: Vec<usize> = ours.chain(of_shards.keys().copied()).collect();
            let holders: Vec<Holder<'_>> = sources
                .iter()
                .map(|source| Holder { shard: source.holder.shard, missing: source.holder.missing })
                .collect();
            planned = segments(&geometry.code, &holders, object, &rest, &wanted, &prefer);
            let covered: IntervalSet = planned.iter().map(|segment| segment.columns.clone()).collect();
            if covered != rest {
                return None;
            }
            for segment in &planned {
                for shard in &segment.plan.sources {
                    of_shards.entry(*shard).or_default().insert(segment.columns.clone());
                }
            }
        }
        let mut reads = BTreeMap::new();
        for (n, (shard, columns)) in of_shards.into_iter().enumerate() {
            // Which member has a shard may differ from range to range: then it is read range by range.
            let whole = holder_of(shard, &columns).map(|osd| vec![(osd, columns.clone())]);
            let one_by_one = || {
                let of = |range: Range<u64>| {
                    let range: IntervalSet = range.into();
                    Some((holder_of(shard, &range)?, range))
                };
                columns.iter().map(of).collect::<Option<Vec<_>>>()
            };
            for (at, (osd, columns)) in whole.or_else(one_by_one)?.into_iter().enumerate() {
                let extents: Vec<(u64, u64)> =
                    columns.iter().map(|range| (range.start, range.end - range.start)).collect();
                if extents.len() > EXTENTS_MAX {
                    return None;
                }
                // Numbered by the caller.
                let id = (n as u64) << 32 | at as u64;
                reads.insert(id, SubRead { osd, shard, extents, data: None, asked: Time::ZERO });
            }
        }
        let bytes = reads.values().flat_map(|read| &read.extents).map(|(_, len)| len).sum();
        let at = Version::ZERO;
        Some(Job { request, at, layout, segments: planned, wanted, reads, failed, bytes })
    }

    /// Copies columns of a shard that were read there, or decodes them.
    fn fill(&self, shard: usize, columns: Range<u64>, to: &mut [u8]) {
        if self.copy(shard, &columns, to) {
            return;
        }
        for segment in &self.segments {
            let (start, end) =
                (segment.columns.start.max(columns.start), segment.columns.end.min(columns.end));
            let Some(n) = self.wanted.iter().position(|wanted| *wanted == shard) else { continue };
            if start >= end {
                continue;
            }
            let len = (end - start) as usize;
            let sources: Vec<Vec<u8>> = (segment.plan.sources.iter())
                .map(|source| {
                    let mut bytes = vec![0; len];
                    let is_read = self.copy(*source, &(start..end), &mut bytes);
                    assert!(is_read, "all sources were read");
                    bytes
                })
                .collect();
            let sources: Vec<&[u8]> = sources.iter().map(Vec::as_slice).collect();
            let at = (start - columns.start) as usize;
            segment.plan.decode(n, &sources, &mut to[at..at + len]);
        }
    }
    /// False if that was not read. What is beyond a shard's end is zeros.
    fn copy(&self, shard: usize, columns: &Range<u64>, to: &mut [u8]) -> bool {
        for read in self.reads.values().filter(|read| read.shard == shard) {
            for ((offset, len), bytes) in read.extents.iter().zip(read.data.iter().flatten()) {
                if *offset <= columns.start && columns.end <= offset + len {
                    let have = bytes.len() as u64;
                    let start = (columns.start - offset).min(have) as usize;
                    let end = (columns.end - offset).min(have) as usize;
                    to[..end - start].copy_from_slice(&bytes[start..end]);
                    return true;
                }
            }
        }
        false
    }

    fn result(&self, geometry: &Geometry) -> Vec<Bytes> {
        let of_shard = |shard: usize, columns: Range<u64>, to: &mut [u8]| self.fill(shard, columns, to);
        match &self.request.want {
            Want::Shard(shard, extents) => extents
                .iter()
                .map(|(offset, len)| {
                    let mut bytes = vec![0; *len as usize];
                    of_shard(*shard, *offset..offset + len, &mut bytes);
                    bytes.into()
                })
                .collect(),
            Want::Object(extents) => extents
                .iter()
                .map(|(offset, len)| {
                    let mut bytes = vec![0; *len as usize];
                    for piece in self.layout.pieces(*offset..offset + len) {
                        let at = (piece.offset - offset) as usize;
                        let columns = piece.shard_offset..piece.shard_offset + piece.len;
                        let shard = geometry.code.data_shard(piece.part);
                        of_shard(shard, columns, &mut bytes[at..at + piece.len as usize]);
                    }
                    bytes.into()
                })
                .collect(),
        }
    }
}

/// How an object is divided; None if it is not here.
fn layout_of(geometry: &Geometry, store: &dyn StoreView, object: &ObjectId) -> Option<Layout> {
    let sharded = ObjectInfo::load(store, object).ok()??.erasure?;
    Layout::new(geometry.k(), sharded.unit)
}

/// Events for the machine.
impl Pg {
    /// Starts what was requested in this event, and what waited.
    pub fn start_gathers(&mut self, ctx: &mut Ctx<'_>) {
        let new = std::mem::take(&mut self.pending.gathers);
        if new.is_empty() && self.gathers.waiting.is_empty() {
            return;
        }
        self.gathers.waiting.extend(new.into_iter().map(|request| (request, BTreeSet::new())));
        let Backend::Erasure(geometry) = self.backend.clone() else { return };
        if !matches!(self.phase, Phase::Active(_)) {
            return;
        }
        let (mut done, mut gone) = (Vec::new(), Vec::new());
        for (request, failed) in std::mem::take(&mut self.gathers.waiting) {
            let busy = !self.gathers.jobs.is_empty();
            if matches!(ctx.store.stat(&StoredId::Object(request.object.clone())), Ok(None)) {
                gone.push(request);
                continue;
            }
            match self.plan_gather(ctx, &geometry, request.clone(), failed.clone()) {
                Some(job) if busy && self.gathers.bytes() + job.bytes > BYTES_MAX => {
                    self.gathers.waiting.push_back((request, failed));
                }
                Some(job) if job.reads.is_empty() => done.push(job),
                Some(job) => self.begin_gather(ctx, job),
                None => self.gathers.waiting.push_back((request, failed)),
            }
        }
        for job in done {
            let result = job.result(&geometry);
            self.on_read(ctx, job.request.read, Ok(result));
        }
        for GatherRequest { read, object, .. } in gone {
            self.on_read(ctx, read, Err(ReadError::NotFound(object.into())));
        }
    }

    fn plan_gather(
        &self,
        ctx: &Ctx<'_>,
        geometry: &Geometry,
        request: GatherRequest,
        failed: BTreeSet<OsdId>,
    ) -> Option<Job> {
        let Phase::Active(active) = &self.phase else { return None };
        let layout = layout_of(geometry, ctx.store, &request.object)?;
        let own = [(self.me, &self.history.missing)];
        let others = active.members.iter().map(|(osd, member)| (*osd, &member.missing));
        let source = |(osd, missing)| {
            let shard = index(self.interval.shard_of(osd))?;
            Some(Source { osd, holder: Holder { shard, missing } })
        };
        let sources: Vec<Source<'_>> = own.into_iter().chain(others).filter_map(source).collect();
        Job::plan(geometry, &sources, self.me, layout, request, failed)
    }

    fn begin_gather(&mut self, ctx: &mut Ctx<'_>, mut job: Job) {
        job.at = self.history.info.last_update;
        let number = self.pending.next_read();
        for (_, mut read) in std::mem::take(&mut job.reads) {
            let id = self.pending.next_read();
            let (object, extents) = (job.request.object.clone(), read.extents.clone());
            read.asked = ctx.now.mono;
            if read.osd == self.me {
                self.gathers.local.insert(id, number);
                ctx.out.push(PgEffect::Read { read: id, object: Box::new(object), extents, device: false });
            } else {
                ctx.out.push(PgEffect::ask(read.osd, PgMsg::SubRead { id, object, at: job.at, extents }));
            }
            job.reads.insert(id, read);
        }
        self.gathers.jobs.insert(number, job);
    }

    /// A read of the own store is done.
    pub fn on_local_gathered(&mut self, ctx: &mut Ctx<'_>, read: u64, result: Result<Vec<Bytes>, ReadError>) {
        let Some(job) = self.gathers.local.remove(&read) else { return };
        match result {
            Ok(data) => self.on_gathered(ctx, self.me, read, data),
            Err(error) => {
                if !self.repair_read(ctx, &error) {
                    ctx.log(Level::Error, format!("pg {}: {error}", self.id));
                }
                self.gathers.take_failed(job, self.me);
            }
        }
    }
    fn on_gathered(&mut self, ctx: &mut Ctx<'_>, from: OsdId, id: u64, data: Vec<Bytes>) {
        let Backend::Erasure(geometry) = self.backend.clone() else { return };
        if let Some(job) = self.gathers.take_data(id, from, data) {
            let result = job.result(&geometry);
            self.on_read(ctx, job.request.read, Ok(result));
        }
    }
    /// A member replied.
    pub fn on_sub_read_done(&mut self, ctx: &mut Ctx<'_>, from: OsdId, id: u64, data: Option<Vec<Bytes>>) {
        let of =
            |job: &Job| job.reads.get(&id).filter(|read| read.osd == from).map(|read| read.extents.clone());
        let asked = self.gathers.jobs.iter().find_map(|(n, job)| Some((*n, of(job)?)));
        let Some((job, extents)) = asked else { return };
        let fits = |data: &Vec<Bytes>| {
            data.len() == extents.len()
                && data.iter().zip(&extents).all(|(bytes, (_, len))| bytes.len() as u64 <= *len)
        };
        match data.filter(fits) {
            Some(data) => self.on_gathered(ctx, from, id, data),
            None => self.gathers.take_failed(job, from),
        }
    }

    /// Asks again what is open: of one member whose session is new, or of all that are silent.
    pub fn ask_gathers_again(&mut self, ctx: &mut Ctx<'_>, only: Option<OsdId>) {
        let now = ctx.now.mono;
        if now >= self.gathers.retry {
            self.gathers.retry = now + FAILED_RETRY;
            self.gathers.waiting.iter_mut().for_each(|(_, failed)| failed.clear());
        }
        for job in self.gathers.jobs.values_mut() {
            for (&id, read) in job.reads.iter_mut().filter(|(_, read)| read.data.is_none()) {
                let due = match only {
                    Some(osd) => read.osd == osd,
                    None => now.since(read.asked) >= RETRY,
                };
                if due && read.osd != self.me {
                    read.asked = now;
                    let (object, extents) = (job.request.object.clone(), read.extents.clone());
                    ctx.out.push(PgEffect::ask(read.osd, PgMsg::SubRead { id, object, at: job.at, extents }));
                }
            }
        }
    }

    // ---- on another member ----

    /// The primary asks for bytes of our shard. A question that comes before the writes that it is about is
    /// asked again.
    pub fn on_sub_read(
        &mut self,
        ctx: &mut Ctx<'_>,
        from: OsdId,
        id: u64,
        object: ObjectId,
        at: Version,
        extents: Vec<(u64, u64)>,
    ) {
        let has_log = self.interval.primary == Some(from) && self.is_replica_with_log();
        if !has_log || self.history.info.last_update < at || self.pending.unapplied.contains(&object) {
            return;
        }
        let data: Option<IntervalSet> =
            extents.iter().map(|(offset, len)| Some(*offset..offset.checked_add(*len)?)).collect();
        let bytes = extents.iter().fold(0_u64, |sum, (_, len)| sum.saturating_add(*len));
        let is_here = |data: IntervalSet| {
            let part = Part { meta: true, data, ..Part::default() };
            let stat = ctx.store.stat(&StoredId::Object(object.clone()));
            !self.history.missing.lacks(&object, &part) && matches!(stat, Ok(Some(_)))
        };
        if bytes > crate::ops::OBJECT_SIZE_MAX || !data.is_some_and(is_here) {
            ctx.out.push(PgEffect::answer(from, PgMsg::SubReadDone { id, data: None }));
            return;
        }
        let read = self.pending.next_read();
        self.served.0.insert(read, (from, id));
        ctx.out.push(PgEffect::Read { read, object: Box::new(object), extents, device: false });
    }
    /// False if the read was for something else.
    pub fn on_served_read(
        &mut self,
        ctx: &mut Ctx<'_>,
        read: u64,
        result: &Result<Vec<Bytes>, ReadError>,
    ) -> bool {
        let Some((from, id)) = self.served.0.remove(&read) else { return false };
        if let Err(error) = result {
            ctx.log(Level::Error, format!("pg {}: {error}; other members are asked", self.id));
        }
        let data = result.as_ref().ok().cloned();
        ctx.out.push(PgEffect::answer(from, PgMsg::SubReadDone { id, data }));
        true
    }
}
