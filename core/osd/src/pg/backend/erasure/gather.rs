//! Gathering bytes of objects from several members, on the primary of an erasure-coded pool.
//!
//! A request is for bytes of a whole object, or of one shard. What a member has is read there; the rest is
//! decoded from as many other shards as it takes. An object does not change while some of it is gathered for
//! a client, and what is missing does not change in an interval, so all members give bytes of one version:
//! each has, in its session's order, all writes that were sent to it before.
//!
//! A member that does not reply as soon as others mostly do is not waited for: other shards are read as well,
//! and what comes first counts (`hedge`). With `fast_read` all shards are read at once.
//!
//! A member that cannot give its bytes is left out, and others are read. Where too few are left the request
//! waits: until an object is recovered, or for the next interval.

use super::job::{GatherRequest, Job, Pace, Source, SubRead};
use super::{Geometry, Holder};
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
use std::sync::Arc;
use std::time::Duration;

/// Bytes that one placement group gathers at a time; a single request may be for more.
const BYTES_MAX: u64 = if cfg!(test) { 64 << 10 } else { 32 << 20 };
/// An unanswered question is asked again after this time.
const RETRY: Duration = Duration::from_secs(1);
/// Members that failed are asked again after this time, where others do not suffice.
const FAILED_RETRY: Duration = Duration::from_secs(3);

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
    pace: Pace,
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

impl Gathers {
    /// Another interval began.
    pub fn clear(&mut self) {
        *self = Gathers { pace: self.pace, ..Gathers::default() };
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
    fn take_data(
        &mut self,
        geometry: &Geometry,
        now: Time,
        (id, from): (u64, OsdId),
        data: Vec<Bytes>,
    ) -> Option<Job> {
        let (n, job) = self.jobs.iter_mut().find(|(_, job)| job.reads.contains_key(&id))?;
        let n = *n;
        let read = job.reads.get_mut(&id).filter(|read| read.osd == from && read.data.is_none())?;
        read.data = Some(data);
        self.pace.note(now.since(read.asked));
        if !job.has_enough(geometry) {
            return None;
        }
        self.local.retain(|_, of| *of != n);
        self.jobs.remove(&n)
    }
}

/// How an object is divided; None if it is not here.
fn layout_of(geometry: &Geometry, store: &dyn StoreView, object: &ObjectId) -> Option<Layout> {
    let sharded = ObjectInfo::load(store, object).ok()??.erasure?;
    Layout::new(geometry.k(), sharded.unit)
}

/// Whether a shard is as long as all of its object's are. A disk that lost the end of one does not say so,
/// and no zeros are to be read in place of what was there.
fn has_its_length(geometry: &Geometry, store: &dyn StoreView, object: &ObjectId) -> bool {
    let stat = store.stat(&StoredId::Object(object.clone()));
    let info = ObjectInfo::load(store, object).ok().flatten();
    let (Ok(Some(stat)), Some(sharded)) = (stat, info.and_then(|info| info.erasure)) else { return false };
    let layout = Layout::new(geometry.k(), sharded.unit);
    layout.is_some_and(|layout| layout.parity_len(sharded.size) == stat.size)
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
                Some(mut job) if job.reads.is_empty() => {
                    job.has_enough(&geometry);
                    done.push(job);
                }
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
        let is_short = !has_its_length(geometry, ctx.store, &request.object);
        let source = |(osd, missing)| {
            let shard = index(self.interval.shard_of(osd)).filter(|_| osd != self.me || !is_short)?;
            Some(Source { osd, holder: Holder { shard, missing } })
        };
        let sources: Vec<Source<'_>> = own.into_iter().chain(others).filter_map(source).collect();
        let is_fast = ctx.map.pool(self.id.pool).is_some_and(|pool| pool.fast_read);
        let all = || Job::plan_all(geometry, &sources, layout, &request, &failed);
        if let Some(mut job) = is_fast.then(all).flatten() {
            job.is_hedged = true;
            return Some(job);
        }
        Job::plan(geometry, &sources, self.me, layout, request, failed)
    }

    fn begin_gather(&mut self, ctx: &mut Ctx<'_>, mut job: Job) {
        job.at = self.history.info.last_update;
        job.begun = ctx.now.mono;
        let number = self.pending.next_read();
        for (_, read) in std::mem::take(&mut job.reads) {
            self.begin_sub_read(ctx, number, &mut job, read);
        }
        if !job.is_hedged {
            ctx.out.push(PgEffect::LookAtGathers);
        }
        self.gathers.jobs.insert(number, job);
    }
    fn begin_sub_read(&mut self, ctx: &mut Ctx<'_>, number: u64, job: &mut Job, mut read: SubRead) {
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

    /// Reads other shards too for jobs that wait for longer than reads mostly take.
    pub fn hedge(&mut self, ctx: &mut Ctx<'_>) {
        let Backend::Erasure(geometry) = self.backend.clone() else { return };
        let (now, patience) = (ctx.now.mono, self.gathers.pace.patience());
        let mut open = false;
        let waiting = self.gathers.jobs.iter().filter(|(_, job)| !job.is_hedged);
        for number in waiting.map(|(number, _)| *number).collect::<Vec<_>>() {
            let mut job = self.gathers.jobs.remove(&number).expect("just seen");
            if now.since(job.begun) >= patience {
                job.is_hedged = true;
                let silent = job.reads.values().filter(|read| read.data.is_none()).map(|read| read.osd);
                let avoided = job.failed.iter().copied().chain(silent).collect();
                let more = self.plan_gather(ctx, &geometry, job.request.clone(), avoided);
                let room = BYTES_MAX.saturating_sub(self.gathers.bytes() + job.bytes);
                for (_, read) in
                    more.filter(|more| more.bytes <= room).into_iter().flat_map(|more| more.reads)
                {
                    let is_same = |old: &SubRead| (old.osd, &old.extents) == (read.osd, &read.extents);
                    if !job.reads.values().any(is_same) {
                        job.bytes += read.extents.iter().map(|(_, len)| len).sum::<u64>();
                        self.begin_sub_read(ctx, number, &mut job, read);
                    }
                }
            }
            open |= !job.is_hedged;
            self.gathers.jobs.insert(number, job);
        }
        if open {
            ctx.out.push(PgEffect::LookAtGathers);
        }
    }

    /// A read of the own store is done.
    pub fn on_local_gathered(&mut self, ctx: &mut Ctx<'_>, read: u64, result: Result<Vec<Bytes>, ReadError>) {
        let Some(job) = self.gathers.local.remove(&read) else { return };
        match result {
            Ok(data) => self.on_gathered(ctx, self.me, read, data),
            Err(error) => {
                // One that is gone was deleted meanwhile, as it was declared lost.
                let is_gone = matches!(error, ReadError::NotFound(_));
                if !is_gone && !self.repair_read(ctx, &error) {
                    ctx.log(Level::Error, format!("pg {}: {error}", self.id));
                }
                self.gathers.take_failed(job, self.me);
            }
        }
    }
    fn on_gathered(&mut self, ctx: &mut Ctx<'_>, from: OsdId, id: u64, data: Vec<Bytes>) {
        let Backend::Erasure(geometry) = self.backend.clone() else { return };
        if let Some(job) = self.gathers.take_data(&geometry, ctx.now.mono, (id, from), data) {
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
        let has_length = |geometry: &Arc<Geometry>| has_its_length(geometry, ctx.store, &object);
        let is_here = |data: IntervalSet| {
            let part = Part { meta: true, data, ..Part::default() };
            !self.history.missing.lacks(&object, &part) && self.backend.geometry().is_some_and(has_length)
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
        if let Err(error) = result
            && !matches!(error, ReadError::NotFound(_))
        {
            ctx.log(Level::Error, format!("pg {}: {error}; other members are asked", self.id));
        }
        let data = result.as_ref().ok().cloned();
        ctx.out.push(PgEffect::answer(from, PgMsg::SubReadDone { id, data }));
        true
    }
}
