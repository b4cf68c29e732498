//! Recovery: the primary makes every member whole. It pulls what it lacks itself from a holder, and pushes
//! what other members lack. Only what is missing travels, in bounded pieces, and first what requests wait
//! for.
//!
//! A recovery source has the authoritative log, so data outside its missing set is current. Members have the
//! log from peering; strays receive it when they are needed.
//!
//! `Recovery` is the machine, on a `Scope` of the parts that it works on. `sources` picks what comes next and
//! from where, `push` makes and takes the messages.

pub mod push;
mod sources;
pub mod undecodable;

use super::active::Member;
use super::backend::Backend;
use super::backend::erasure::{Holder, index};
use super::client_ops::ClientOps;
use super::completeness::Completeness;
use super::history::clone_overlap::{self, CloneOverlap};
use super::history::missing::Missing;
use super::history::{History, Update};
use super::pending::Pending;
use super::remap::{Remap, is_too_full};
use super::stats::Stats;
use super::{Ctx, Interval, Pg, PgEffect, Phase, WhenStored};
use crate::throttle::write_credit::{fits, has_space, has_space_to_replace};
use crate::throttle::{WorkRequest, WorkSlot};
use nacre_base::{IntervalSet, OsdId, Time, Version};
use nacre_machine::{Level, SalvagedExtents};
use nacre_proto::maps::{OsdMap, map_flags};
use nacre_proto::messages::part::{Part, Stale};
use nacre_proto::messages::peer::{PgInfo, PgMsg, Push};
use nacre_proto::transaction::Transaction;
use nacre_proto::types::ObjectId;
use push::{Outcome, Purpose, PushReads, PushRequest, Taken, replaces};
use serde_json::{Value, json};
use sources::{Next, RecoverySource};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Transfers of one placement group that requests wait for, at a time. The others share the OSD's budget.
const URGENT_JOBS_MAX: usize = 16;
/// Without a reply for this long a transfer is started anew.
const STALLED: Duration = Duration::from_secs(3);
/// How often a push to a full member is tried again.
const NO_ROOM_RETRY: Duration = Duration::from_secs(30);
/// Objects that are completed from local clones in one turn.
const TAKEN_MAX: usize = 16;
/// How often holders are asked again for an unfound object.
const UNFOUND_RETRY: Duration = Duration::from_secs(3);
/// A holder that refused a part this many times in a row is no source for it.
const REFUSALS: u32 = 3;
/// While flags disable recovery: for how many objects a source is searched in one turn, and for how long
/// objects without one count as unfound.
const LOOKED_FOR_MAX: usize = if cfg!(test) { 2 } else { 1000 };
const LOOKED_FOR_RETRY: Duration = Duration::from_secs(60);

/// A pull: from a source to this OSD.
struct Pull {
    object: ObjectId,
    part: Part,
    from: RecoverySource,
    tried: BTreeSet<RecoverySource>,
    since: Time,
    /// None if a request waits for it.
    slot: Option<WorkSlot>,
}

/// A push to a member that lacks the part.
struct PushOp {
    id: u64,
    /// None while its data is being read.
    push: Option<Box<Push>>,
    since: Time,
    /// None if requests wait for it. It ends with this.
    slot: Option<WorkSlot>,
    /// It could not be read, or was sent and there was no space for it; tried again after a while.
    failed: bool,
}

impl PushOp {
    /// Whether it stays as it is. A push for which there is no space leaves its reservation to others
    /// meanwhile.
    fn stays(&mut self, now: Time, is_full: bool) -> bool {
        let has_no_room = self.push.is_some() && is_full;
        let age = now.since(self.since);
        if self.failed && self.push.is_some() {
            has_no_room && age <= NO_ROOM_RETRY
        } else if age > STALLED && has_no_room {
            (self.failed, self.slot, self.since) = (true, None, now);
            true
        } else {
            age <= STALLED
        }
    }
}

/// A stray: it holds the placement group without being a member.
#[derive(Debug, Default)]
pub struct StraySource {
    info: Option<PgInfo>,
    asked: Option<Time>,
    /// What it lacks of what the log says up to a version, once it has the log.
    missing: Option<(Version, Missing)>,
}

impl StraySource {
    /// `info`: the summary that it sent, if it did.
    pub fn new(info: Option<PgInfo>) -> StraySource {
        StraySource { info, ..StraySource::default() }
    }
    /// What it lacks, if it can tell that of an object of this version: it gets no writes.
    fn missing(&self, need: Version) -> Option<&Missing> {
        self.missing.as_ref().filter(|(at, _)| need <= *at).map(|(_, missing)| missing)
    }
}

#[derive(Default)]
pub struct Recovery {
    /// The parts that requests wait for.
    wanted: BTreeMap<ObjectId, Part>,
    pulls: BTreeMap<u64, Pull>,
    pushes: BTreeMap<(ObjectId, OsdId), PushOp>,
    /// No holder that can be asked has it; ask again then.
    unfound: BTreeMap<ObjectId, (Part, Time)>,
    /// The last object for which a source was searched.
    looked_for: Option<ObjectId>,
    /// The last one that members lack of which it was looked whether it can be computed.
    looked_for_on_members: Option<ObjectId>,
    /// Consecutive failed pulls from each holder.
    refusals: BTreeMap<(ObjectId, OsdId), u32>,
    sources: BTreeMap<OsdId, StraySource>,
    /// Members that do not have, under the names of its clones, what they should have of an object: it is
    /// sent.
    without_overlap: BTreeSet<(ObjectId, OsdId)>,
    last_id: u64,
}

impl Recovery {
    pub fn new(sources: BTreeMap<OsdId, StraySource>) -> Recovery {
        Recovery { sources, ..Recovery::default() }
    }
    /// A request waits for a part of an object.
    pub fn prioritize(&mut self, object: &ObjectId, part: &Part) {
        self.wanted.entry(object.clone()).or_default().add(part);
    }
    pub fn is_busy(&self) -> bool {
        !self.pulls.is_empty() || self.pushes.values().any(|send| !send.failed)
    }
    /// Objects with transfers in flight.
    pub fn under_way(&self) -> BTreeSet<&ObjectId> {
        self.pulls
            .values()
            .map(|pull| &pull.object)
            .chain(self.pushes.keys().map(|(object, _)| object))
            .collect()
    }
    /// All transfers, with their sources and targets.
    pub fn transfers_json(&self) -> Value {
        let pulls = self.pulls.values();
        let pulls = pulls
            .map(|pull| json!({"pull_from": pull.from.osd.to_string(), "soid": pull.object.to_string()}));
        let pushes = self.pushes.keys();
        let pushes =
            pushes.map(|(object, osd)| json!({"pushing_to": osd.to_string(), "object": object.to_string()}));
        json!({"pull_from_peer": pulls.collect::<Vec<_>>(), "pushing": pushes.collect::<Vec<_>>()})
    }
    /// Strays that sent their summaries.
    pub fn holders(&self) -> impl Iterator<Item = (OsdId, &PgInfo)> {
        self.sources.iter().filter_map(|(osd, source)| Some((*osd, source.info.as_ref()?)))
    }
    pub fn unfound(&self) -> impl Iterator<Item = &ObjectId> {
        self.unfound.keys()
    }
    pub fn take_unfound(&mut self) -> BTreeMap<ObjectId, Part> {
        std::mem::take(&mut self.unfound).into_iter().map(|(object, (part, _))| (object, part)).collect()
    }
    fn note_unfound(&mut self, object: ObjectId, part: &Part, retry: Time) {
        let unfound = self.unfound.entry(object).or_default();
        unfound.0.add(part);
        unfound.1 = retry;
    }
    pub fn unfound_len(&self) -> usize {
        self.unfound.len()
    }
    pub fn check(&self, me: OsdId) {
        assert!(!self.sources.contains_key(&me));
        debug_assert!(self.pulls.values().all(|pull| !pull.part.is_empty()));
    }
    /// A stray sent its summary. True if it is new.
    fn add_source(&mut self, osd: OsdId, info: PgInfo) -> bool {
        let is_new = self.sources.entry(osd).or_default().info.replace(info).is_none();
        if is_new {
            self.unfound.clear();
        }
        is_new
    }
    /// Whether a stray may have that part of an object of that version.
    pub fn may_be_elsewhere(&self, map: &OsdMap, object: &ObjectId, need: Version, part: &Part) -> bool {
        self.sources.iter().any(|(osd, source)| {
            map.is_up(*osd) && source.missing(need).is_none_or(|missing| !missing.lacks(object, part))
        })
    }
    /// Strays and their missing sets, as far as those tell of an object of that version.
    pub fn lacking_sources(&self, need: Version) -> impl Iterator<Item = (OsdId, &Missing)> {
        self.sources.iter().filter_map(move |(osd, source)| Some((*osd, source.missing(need)?)))
    }
    /// Whether that holder was asked for the object time and again and did not give it: it cannot be read
    /// there.
    pub fn keeps_refusing(&self, object: &ObjectId, osd: OsdId) -> bool {
        self.refusals.get(&(object.clone(), osd)).is_some_and(|times| *times >= REFUSALS)
    }
    /// An object becomes what another was, and members that lacked that lack this now: cancels transfers of
    /// the object as it had been. Whether there were any.
    pub fn cancel(&mut self, object: &ObjectId) -> bool {
        let before = self.pulls.len() + self.pushes.len();
        self.pulls.retain(|_, pull| pull.object != *object);
        self.pushes.retain(|(sent, _), _| sent != object);
        before != self.pulls.len() + self.pushes.len()
    }
    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }
    /// Whether a holder that can be asked may have some of what we lack.
    fn may_find(&self, object: &ObjectId, part: &Part) -> bool {
        self.unfound.get(object).is_none_or(|(unfound, _)| !part.clone().without(unfound).is_empty())
    }
    /// Parts that are being pulled, or are unfound.
    fn not_to_ask(&self, object: &ObjectId) -> impl Iterator<Item = &Part> {
        let pulls = self.pulls.values().filter(move |pull| pull.object == *object);
        self.unfound.get(object).map(|(part, _)| part).into_iter().chain(pulls.map(|pull| &pull.part))
    }
    /// The next missing part outside those. One at a time: all missing parts together may be a hundred
    /// thousand keys.
    fn left_to_ask(&self, object: &ObjectId, lacking: Part) -> Part {
        self.not_to_ask(object).fold(lacking, |left, part| left.without(part))
    }
}

/// The parts of the placement group that recovery works on.
pub struct Scope<'a> {
    pub backend: &'a Backend,
    pub interval: &'a Interval,
    pub history: &'a mut History,
    pub pending: &'a mut Pending,
    pub push_reads: &'a mut PushReads,
    pub stats: &'a mut Stats,
    pub remap: &'a mut Remap,
    pub members: &'a mut BTreeMap<OsdId, Member>,
    pub ops: &'a mut ClientOps,
}

impl Scope<'_> {
    /// The primary reads what it stores.
    fn apply(&mut self, ctx: &mut Ctx<'_>, mut update: Update) {
        self.pending.unapplied.extend(update.objects);
        if !update.txn.is_empty() {
            update.txn.is_read_here = true;
            self.pending.issue(update.txn, ctx.out);
        }
    }
    fn on_recovered(&mut self, ctx: &mut Ctx<'_>, object: &ObjectId) {
        self.ops.note_recovered(ctx, object, &self.history.missing, self.members);
    }
    fn completeness(&self) -> Completeness<'_> {
        let History { me, missing: own, .. } = &*self.history;
        Completeness { me: *me, interval: self.interval, own, members: Some(self.members) }
    }
    fn request_pg_temp(&mut self, ctx: &mut Ctx<'_>, recovery: &Recovery) {
        let History { pg, me, missing: own, info, .. } = &*self.history;
        let view = Completeness { me: *me, interval: self.interval, own, members: Some(self.members) };
        self.remap.update(ctx, *pg, view, recovery, info);
    }
    /// What of a part that a member lacks of an object this OSD has, or can compute.
    fn pushable(&self, osd: OsdId, object: &ObjectId, part: Part) -> Part {
        let holders = if self.backend.is_erasure() { self.shard_holders() } else { Vec::new() };
        let shard = self.interval.shard_of(osd);
        self.backend.pushable(&self.history.missing, &holders, (object, part, shard))
    }
    fn can_push(&self, osd: OsdId, lacking: &Missing, object: &ObjectId) -> bool {
        !self.pushable(osd, object, lacking.part(object)).is_empty()
    }
    /// All members, in an erasure-coded pool.
    fn shard_holders(&self) -> Vec<Holder<'_>> {
        let own = [(self.history.me, &self.history.missing)];
        let others = self.members.iter().map(|(osd, member)| (*osd, &member.missing));
        let holder = |(osd, missing)| Some(Holder { shard: index(self.interval.shard_of(osd))?, missing });
        own.into_iter().chain(others).filter_map(holder).collect()
    }
}

impl Recovery {
    /// Starts as many transfers as may run.
    pub fn recover(&mut self, pg: &mut Scope<'_>, ctx: &mut Ctx<'_>) {
        self.recover_wanted(pg, ctx);
        if self.is_held_back(pg, &ctx.map) {
            return;
        }
        let no_backfill = ctx.map.has(map_flags::NOBACKFILL);
        // A full disk takes only what requests wait for, or its store would refuse a write; but what it lacks
        // of objects that it has takes no more space.
        let can_grow = pg.history.missing.is_empty() || has_space(ctx.store, 0);
        let can_replace = can_grow || has_space_to_replace(ctx.store, 0);
        let mut taken = 0;
        while taken < TAKEN_MAX {
            let allowed = |stale: &Stale| !no_backfill || !is_whole(&stale.part);
            let here = |object: &ObjectId, stale: &Stale| {
                let grows = || is_whole(&stale.part) || !replaces(ctx.store, object, &stale.part.data);
                allowed(stale) && (can_grow || can_replace && !grows())
            };
            let own = self.next_own(pg, ctx.store, here);
            let theirs = || {
                pg.members.iter().find_map(|(&osd, member)| {
                    let too_full = is_too_full(&ctx.map, osd);
                    let may = |stale: &Stale| allowed(stale) && !(too_full && is_whole(&stale.part));
                    Some((self.next_of(pg, osd, &member.missing, may)?, osd))
                })
            };
            let theirs = if own.is_none() { theirs() } else { None };
            if own.is_none() && theirs.is_none() {
                return;
            }
            let whole = pg.members.values().filter(|member| member.missing.is_empty()).count();
            let scarce = whole + usize::from(pg.history.missing.is_empty()) <= 1;
            let claim = WorkRequest { scarce, forced: pg.remap.is_forced() };
            let Some(slot) = ctx.budget.recovery.request(ctx.now.mono, pg.history.pg, claim, false) else {
                return;
            };
            match (own, theirs) {
                (Some(Next::Pull(object, part)), _) => {
                    self.start_pull(pg, ctx, object, part, BTreeSet::new(), Some(slot));
                }
                (Some(Next::Take(object, common)), _) => {
                    self.share_from_clones(pg, ctx, &object, common);
                    taken += 1;
                }
                (None, Some((object, osd))) => {
                    self.start_push(pg, ctx, object, osd, &Part::everything(), Some(slot));
                }
                (None, None) => return,
            }
        }
    }

    fn is_held_back(&self, pg: &Scope<'_>, map: &OsdMap) -> bool {
        map.has(map_flags::NORECOVER)
            || map.has(map_flags::NOREBALANCE) && pg.completeness().is_only_misplaced()
    }

    /// Finds unfound objects while flags disable recovery.
    fn look_for_unfound(&mut self, pg: &mut Scope<'_>, ctx: &mut Ctx<'_>) {
        if !self.is_held_back(pg, &ctx.map) && !ctx.map.has(map_flags::NOBACKFILL) {
            return;
        }
        let start = self.looked_for.as_ref().map_or(pg.history.range.start(), ObjectId::following);
        let (mut looked_at, mut last, mut nowhere) = (0, None, Vec::new());
        for (object, stale) in pg.history.missing.from(&start).take(LOOKED_FOR_MAX) {
            (looked_at, last) = (looked_at + 1, Some(object));
            let mut part = self.left_to_ask(object, stale.part.clone());
            if part.is_empty() {
                continue;
            }
            part.meta |= stale.part.meta;
            if self.find_source(pg, (ctx.store, &ctx.map), object, &part, &BTreeSet::new()).is_none() {
                nowhere.push((object.clone(), part));
            }
        }
        // Begins again at the first object after the last.
        let looked_for = last.filter(|_| looked_at == LOOKED_FOR_MAX).cloned();
        let is_some_unfound = !nowhere.is_empty();
        let needs = nowhere.iter().filter_map(|(object, _)| Some(pg.history.missing.get(object)?.need));
        let need = needs.max().unwrap_or_default();
        let retry = ctx.now.mono + LOOKED_FOR_RETRY;
        self.looked_for = looked_for;
        for (object, part) in nowhere {
            self.note_unfound(object, &part, retry);
        }
        if is_some_unfound {
            self.ask_sources(pg, ctx, need);
        }
    }

    /// Recovers parts that requests wait for, and uncommitted parts.
    fn recover_wanted(&mut self, pg: &mut Scope<'_>, ctx: &mut Ctx<'_>) {
        let uncommitted = pg.ops.uncommitted().map(|(object, part)| (object.clone(), part.clone()));
        let wanted = self.wanted.iter().map(|(object, part)| (object.clone(), part.clone()));
        for (object, part) in wanted.chain(uncommitted).collect::<Vec<_>>() {
            if !pg.history.missing.lacks(&object, &part) {
                if self.wanted.remove(&object).is_some() {
                    pg.on_recovered(ctx, &object);
                }
            } else if pg.pending.unapplied.contains(&object) {
                pg.ops.note_runnable(&object);
                ctx.out.push(PgEffect::Loop);
            } else if self.pulls.len() < URGENT_JOBS_MAX {
                let lacking = pg.history.missing.part(&object).intersection(&part);
                let ask = self.left_to_ask(&object, lacking);
                if !ask.is_empty() {
                    self.start_pull(pg, ctx, object.clone(), ask, BTreeSet::new(), None);
                }
            }
        }
        let mut pushes = Vec::new();
        for (object, part) in pg.ops.uncommitted() {
            for (osd, member) in &*pg.members {
                let key = (object.clone(), *osd);
                if member.missing.lacks(object, part)
                    && !self.pushes.contains_key(&key)
                    && pg.can_push(*osd, &member.missing, object)
                {
                    pushes.push((key, part.clone()));
                }
            }
        }
        for ((object, osd), part) in pushes {
            if pg.pending.unapplied.contains(&object) {
                pg.ops.note_runnable(&object);
                ctx.out.push(PgEffect::Loop);
            } else {
                self.start_push(pg, ctx, object, osd, &part, None);
            }
        }
    }

    // ---- to ourselves ----

    /// Copies missing parts of an object with current metadata from its local clones.
    fn share_from_clones(
        &mut self,
        pg: &mut Scope<'_>,
        ctx: &mut Ctx<'_>,
        object: &ObjectId,
        overlap: CloneOverlap,
    ) {
        let mut txn = Transaction::new();
        clone_overlap::share(&mut txn, object, &overlap);
        let part = Part { data: clone_overlap::all(&overlap), ..Part::default() };
        let update = pg.history.got_part(object, &part, None, txn);
        pg.apply(ctx, update);
        if pg.history.missing.get(object).is_none() {
            pg.stats.note_recovered_object();
        }
        pg.on_recovered(ctx, object);
    }

    /// Asks the best holder of some of the part that was not tried.
    fn start_pull(
        &mut self,
        pg: &mut Scope<'_>,
        ctx: &mut Ctx<'_>,
        object: ObjectId,
        mut part: Part,
        mut tried: BTreeSet<RecoverySource>,
        slot: Option<WorkSlot>,
    ) {
        let now = ctx.now.mono;
        // An object's metadata is pulled before any other part.
        part.meta |= pg.history.missing.lacks_meta(&object);
        let need = pg.history.missing.get(&object).map(|stale| stale.need).unwrap_or_default();
        let source = self.find_source(pg, (ctx.store, &ctx.map), &object, &part, &tried);
        let Some((from, part)) = source else {
            self.note_unfound(object, &part, now + UNFOUND_RETRY);
            self.ask_sources(pg, ctx, need);
            return;
        };
        tried.insert(from);
        let id = self.next_id();
        let asked = from.name_of(&object);
        self.pulls.insert(id, Pull { object, part: part.clone(), from, tried, since: now, slot });
        if from.osd == pg.history.me {
            let (salvaged, common) = (SalvagedExtents::default(), Ok(CloneOverlap::new()));
            let (purpose, shard) = (Purpose::Renamed, pg.history.info.shard);
            let request = PushRequest { id, object: asked, part, purpose, shard, salvaged, common };
            self.make_push(pg, ctx, request);
        } else {
            ctx.out.push(PgEffect::ask(from.osd, PgMsg::Pull { id, object: asked, part }));
        }
    }

    /// Sends the log to strays that have not taken it as far as to that version.
    fn ask_sources(&mut self, pg: &mut Scope<'_>, ctx: &mut Ctx<'_>, need: Version) {
        let now = ctx.now.mono;
        for (&osd, source) in &mut self.sources {
            let asked = source.asked.is_some_and(|asked| now.since(asked) < UNFOUND_RETRY);
            if source.missing(need).is_none() && !asked && ctx.map.is_up(osd) {
                source.asked = Some(now);
                let log = pg.history.log_for(source.info.as_ref());
                ctx.out.push(PgEffect::ask(osd, PgMsg::AdoptLog(log)));
            }
        }
    }

    /// A stray has the log up to that version.
    pub fn on_stray_adopted(
        &mut self,
        pg: &mut Scope<'_>,
        ctx: &mut Ctx<'_>,
        from: OsdId,
        at: Version,
        missing: Missing,
    ) {
        let Some(source) = self.sources.get_mut(&from) else { return };
        source.missing = Some((at, missing));
        self.unfound.clear();
        self.recover(pg, ctx);
    }

    /// A pushed part arrived that this OSD had pulled.
    pub fn on_pulled(&mut self, pg: &mut Scope<'_>, ctx: &mut Ctx<'_>, from: OsdId, mut push: Push) {
        let Some(pull) = self.pulls.get(&push.id) else { return };
        if pull.from.osd != from || pull.from.name_of(&pull.object) != push.object {
            return;
        }
        // Some time later it is asked for again, perhaps elsewhere.
        if !fits(ctx.store, push.payload_len()) {
            return;
        }
        let pull = self.pulls.remove(&push.id).expect("just found");
        push.object = pull.object.clone();
        push.part = push.part.intersection(&pull.part);
        self.refusals.remove(&(pull.object.clone(), from));
        let bytes = push.payload_len();
        match pg.history.take_push(ctx.store, push) {
            Ok(taken) => {
                if let Some(Taken { update, .. }) = taken {
                    pg.apply(ctx, update);
                }
                pg.stats.note_recovered_bytes(bytes);
                if pg.history.missing.get(&pull.object).is_none() {
                    pg.stats.note_recovered_object();
                }
            }
            Err(error) => ctx.log(Level::Error, format!("pg {}: {}: {error}", pg.history.pg, pull.object)),
        }
        if let Some(slot) = pull.slot {
            pg.pending.hold_until_durable(slot);
        }
        pg.on_recovered(ctx, &pull.object);
        pg.request_pg_temp(ctx, self);
        self.recover(pg, ctx);
    }

    pub fn on_pull_refused(&mut self, pg: &mut Scope<'_>, ctx: &mut Ctx<'_>, from: OsdId, id: u64) {
        if let Some(pull) = self.pulls.get(&id).filter(|pull| pull.from.osd == from) {
            *self.refusals.entry((pull.object.clone(), from)).or_default() += 1;
            self.pull_elsewhere(pg, ctx, id);
            self.recover(pg, ctx);
        }
    }

    pub fn pull_elsewhere(&mut self, pg: &mut Scope<'_>, ctx: &mut Ctx<'_>, id: u64) {
        let Some(pull) = self.pulls.remove(&id) else { return };
        let part = pg.history.missing.part(&pull.object).intersection(&pull.part);
        if !part.is_empty() {
            self.start_pull(pg, ctx, pull.object, part, pull.tried, pull.slot);
        }
    }

    fn make_push(&mut self, pg: &mut Scope<'_>, ctx: &mut Ctx<'_>, request: PushRequest) {
        let outcome = pg.push_reads.make(ctx, (&*pg.history, &mut *pg.pending), request);
        self.on_push_made(pg, ctx, outcome);
    }
    /// A push that recovery requested is ready, or failed.
    pub fn on_push_made(&mut self, pg: &mut Scope<'_>, ctx: &mut Ctx<'_>, outcome: Outcome) {
        let me = pg.history.me;
        match outcome {
            Outcome::Ready(Purpose::Pushed(osd), push) => self.push_ready(ctx, osd, push),
            Outcome::Ready(Purpose::Renamed, push) => self.on_pulled(pg, ctx, me, *push),
            Outcome::Failed { object, purpose: Purpose::Pushed(osd), .. } => {
                self.push_unreadable(pg, &object, osd);
            }
            Outcome::Failed { id, purpose: Purpose::Renamed, .. } => self.pull_elsewhere(pg, ctx, id),
            // What the primary pulls is sent by `Pg::on_push_made`.
            Outcome::Reading | Outcome::Ready(..) | Outcome::Failed { .. } => {}
        }
    }

    // ---- to others ----

    fn start_push(
        &mut self,
        pg: &mut Scope<'_>,
        ctx: &mut Ctx<'_>,
        object: ObjectId,
        osd: OsdId,
        part: &Part,
        slot: Option<WorkSlot>,
    ) {
        let now = ctx.now.mono;
        let Some(member) = pg.members.get(&osd) else { return };
        let lacking = member.missing.part(&object);
        let mut part = lacking.intersection(part);
        part.meta = lacking.meta;
        let shard = pg.interval.shard_of(osd);
        if pg.backend.is_erasure() {
            part = pg.pushable(osd, &object, part);
        }
        let id = self.next_id();
        self.pushes.insert((object.clone(), osd), PushOp { id, push: None, since: now, slot, failed: false });
        let common = self.member_overlap(ctx.store, pg.history, pg.members, osd, &object, &part.data);
        let (salvaged, purpose) = (SalvagedExtents::default(), Purpose::Pushed(osd));
        self.make_push(pg, ctx, PushRequest { id, object, part, purpose, shard, salvaged, common });
    }

    fn push_ready(&mut self, ctx: &mut Ctx<'_>, osd: OsdId, push: Box<Push>) {
        let now = ctx.now.mono;
        let Some(send) = self.pushes.get_mut(&(push.object.clone(), osd)) else { return };
        if send.id != push.id {
            return;
        }
        send.since = now;
        send.push = Some(push.clone());
        ctx.out.push(PgEffect::ask(osd, PgMsg::Push(push)));
    }

    /// What was to be sent cannot be read now. The transfer stays, and is tried again after a while.
    fn push_unreadable(&mut self, pg: &mut Scope<'_>, object: &ObjectId, osd: OsdId) {
        let missing = |osd| pg.members.get(&osd).is_some_and(|m| m.missing.get(object).is_some());
        if !missing(osd) {
            self.pushes.remove(&(object.clone(), osd));
        } else if let Some(send) = self.pushes.get_mut(&(object.clone(), osd)) {
            send.failed = true;
        }
    }

    /// The member stored the push, except for `refused`.
    pub fn on_pushed(
        &mut self,
        pg: &mut Scope<'_>,
        ctx: &mut Ctx<'_>,
        from: OsdId,
        object: &ObjectId,
        id: u64,
        refused: &IntervalSet,
    ) {
        let key = (object.clone(), from);
        if self.pushes.get(&key).is_none_or(|send| send.id != id || send.push.is_none()) {
            return;
        }
        let Some(PushOp { push: Some(mut push), .. }) = self.pushes.remove(&key) else { return };
        if !refused.is_empty() {
            push.part.data.subtract(refused);
            self.without_overlap.insert(key);
        }
        if let Some(member) = pg.members.get_mut(&from) {
            // If a write brought it newer metadata, it may not have taken these.
            let meta = push.meta.as_ref().filter(|_| member.missing.lacks_meta(object));
            member.missing.got(object, &push.part, meta.map(|meta| meta.size));
            pg.stats.note_recovered_bytes(push.payload_len());
            if member.missing.get(object).is_none() {
                pg.stats.note_recovered_object();
            }
        }
        pg.on_recovered(ctx, object);
        pg.request_pg_temp(ctx, self);
        self.recover(pg, ctx);
    }

    // ---- time, and sessions ----

    /// Restarts transfers without progress, and searches again for unfound objects.
    fn tick(&mut self, pg: &mut Scope<'_>, ctx: &mut Ctx<'_>) {
        let now = ctx.now.mono;
        self.unfound.retain(|_, (_, retry)| now < *retry);
        self.pushes.retain(|(_, osd), send| send.stays(now, ctx.budget.credits.is_full(*osd)));
        let slow = self.pulls.iter().filter(|(_, pull)| now.since(pull.since) > STALLED);
        let slow: Vec<(u64, OsdId)> = slow.map(|(id, pull)| (*id, pull.from.osd)).collect();
        for (id, from) in slow {
            ctx.log(Level::Info, format!("pg {}: osd.{from} is slow to send missing data", pg.history.pg));
            self.pull_elsewhere(pg, ctx, id);
        }
        self.look_for_unfound(pg, ctx);
        self.look_for_undecodable(pg, ctx);
        self.recover(pg, ctx);
    }

    /// Messages to that OSD may have been lost.
    fn opened(&mut self, ctx: &mut Ctx<'_>, osd: OsdId) {
        for (&id, pull) in self.pulls.iter().filter(|(_, pull)| pull.from.osd == osd) {
            let (object, part) = (pull.from.name_of(&pull.object), pull.part.clone());
            ctx.out.push(PgEffect::ask(osd, PgMsg::Pull { id, object, part }));
        }
        let pushes = self.pushes.iter().filter(|((_, to), _)| *to == osd);
        for push in pushes.filter_map(|(_, send)| send.push.as_ref()) {
            ctx.out.push(PgEffect::ask(osd, PgMsg::Push(push.clone())));
        }
        if let Some(source) = self.sources.get_mut(&osd) {
            // It may be another incarnation, which does not know of having taken the log.
            (source.asked, source.missing) = (None, None);
        }
    }
}

/// Events for the machine, on the primary.
impl Pg {
    pub(super) fn recovery_parts(&mut self) -> Option<(&mut Recovery, Scope<'_>)> {
        let Phase::Active(active) = &mut self.phase else { return None };
        let scope = Scope {
            backend: &self.backend,
            interval: &self.interval,
            history: &mut self.history,
            pending: &mut self.pending,
            push_reads: &mut self.push_reads,
            stats: &mut self.stats,
            remap: &mut self.remap,
            members: &mut active.members,
            ops: &mut active.ops,
        };
        Some((&mut active.recovery, scope))
    }

    pub fn recover(&mut self, ctx: &mut Ctx<'_>) {
        if let Some((recovery, mut scope)) = self.recovery_parts() {
            recovery.recover(&mut scope, ctx);
        }
    }
    pub fn recovery_tick(&mut self, ctx: &mut Ctx<'_>) {
        if let Some((recovery, mut scope)) = self.recovery_parts() {
            recovery.tick(&mut scope, ctx);
        }
    }
    /// Messages to that OSD may have been lost.
    pub fn recovery_opened(&mut self, ctx: &mut Ctx<'_>, osd: OsdId) {
        if let Phase::Active(active) = &mut self.phase {
            active.recovery.opened(ctx, osd);
        }
    }
    pub fn on_stray_adopted(&mut self, ctx: &mut Ctx<'_>, from: OsdId, at: Version, missing: Missing) {
        if let Some((recovery, mut scope)) = self.recovery_parts() {
            recovery.on_stray_adopted(&mut scope, ctx, from, at, missing);
        }
    }
    pub fn on_pull_refused(&mut self, ctx: &mut Ctx<'_>, from: OsdId, id: u64) {
        if let Some((recovery, mut scope)) = self.recovery_parts() {
            recovery.on_pull_refused(&mut scope, ctx, from, id);
        }
    }
    pub fn on_pushed(
        &mut self,
        ctx: &mut Ctx<'_>,
        from: OsdId,
        object: &ObjectId,
        id: u64,
        refused: &IntervalSet,
    ) {
        if let Some((recovery, mut scope)) = self.recovery_parts() {
            recovery.on_pushed(&mut scope, ctx, from, object, id, refused);
        }
    }

    /// A stray announced that it has the placement group: it may be a recovery source, or its copy is
    /// deleted.
    pub fn on_stray_notify(&mut self, ctx: &mut Ctx<'_>, from: OsdId, info: PgInfo) {
        let clean = self.is_clean();
        match &mut self.phase {
            Phase::Peering(peering) => peering.add_stray(from),
            // What was pulled from it last may not be durable here yet.
            Phase::Active(_) if clean => {
                self.once_durable(ctx, WhenStored::Answer(from, Box::new(PgMsg::StrayRemove)));
            }
            Phase::Active(active) if active.members.contains_key(&from) => {}
            Phase::Active(active) => {
                let is_new = active.recovery.add_source(from, info);
                if is_new {
                    self.recover(ctx);
                }
                self.recruit(ctx, from, &info);
            }
            _ => {}
        }
    }

    /// In words, how far recovery is and what holds it back; nothing when there is nothing to do.
    pub fn recovery_words(&self, map: &OsdMap) -> String {
        let Phase::Active(active) = &self.phase else { return String::new() };
        let members = active.members.iter().map(|(osd, member)| (*osd, &member.missing));
        let lacking =
            members.chain([(self.me, &self.history.missing)]).filter(|(_, missing)| !missing.is_empty());
        let lacks: Vec<String> = lacking
            .map(|(osd, missing)| {
                let whole = missing.iter().filter(|(_, stale)| is_whole(&stale.part)).count();
                format!("osd.{osd} lacks all of {whole} objects and parts of {}", missing.len() - whole)
            })
            .collect();
        if lacks.is_empty() {
            return String::new();
        }
        let recovery = &active.recovery;
        let jobs = recovery.pulls.len() + recovery.pushes.len();
        let mut text = format!("{}; {jobs} transfers are in progress", lacks.join(", "));
        if recovery.unfound_len() > 0 {
            text += &format!("; parts of {} objects are on no OSD that is up", recovery.unfound_len());
        }
        let flags = [(map_flags::NORECOVER, "norecover"), (map_flags::NOBACKFILL, "nobackfill")];
        for (_, name) in flags.iter().filter(|(flag, _)| map.has(*flag)) {
            text += &format!("; the flag {name} holds it back");
        }
        text
    }
}

/// All bytes: an object that could not be brought up to date from the log.
pub fn is_whole(part: &Part) -> bool {
    part.data.iter().next().is_some_and(|range| range == (0..u64::MAX))
}
