//! The primary makes every member whole: it pulls what it lacks itself from whoever has it, and
//! pushes what others lack. Only what is missing travels, in bounded pieces, and first what requests
//! wait for.
//!
//! Who is asked for something has the group's log, so that what it does not call missing is right.
//! Members have it from peering; others who hold the group take it when they are needed.

mod sources;

use super::log::part_for;
use super::missing::Missing;
use super::push::{Purpose, replaces};
use super::remap::is_too_full;
use super::{Ctx, Pg, PgEffect, Phase, WhenStored};
use crate::throttle::write_credit::{fits, has_room, has_room_to_replace};
use crate::throttle::{WorkRequest, WorkSlot};
use nacre_base::{IntervalSet, OsdId, Time, Version};
use nacre_machine::Level;
use nacre_proto::maps::{OsdMap, map_flags};
use nacre_proto::messages::part::{Part, Stale};
use nacre_proto::messages::peer::{PgInfo, PgMsg, Push};
use nacre_proto::types::ObjectId;
use serde_json::{Value, json};
use sources::{Next, RecoverySource};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Transfers of one group that requests wait for, at a time. The others share the OSD's budget.
const URGENT_JOBS_MAX: usize = 16;
/// Without an answer for so long a transfer is started anew.
const STALLED: Duration = Duration::from_secs(3);
/// How often a member that is full is asked whether it takes something after all.
const NO_ROOM_RETRY: Duration = Duration::from_secs(30);
/// Objects that are made whole of what is here, in one turn.
const TAKEN_MAX: usize = 16;
/// How often those who did not have something are asked again.
const UNFOUND_RETRY: Duration = Duration::from_secs(3);
/// Who did not give what it has so many times in a row cannot.
const REFUSALS: u32 = 3;
/// While flags hold recovery back: of how many objects it is looked for somebody who has them, in one turn, and for how long
/// those count as unfound of which nobody says so.
const LOOKED_FOR_MAX: usize = if cfg!(test) { 2 } else { 1000 };
const LOOKED_FOR_RETRY: Duration = Duration::from_secs(60);

/// To ourselves, from one who has it.
struct Pull {
    object: ObjectId,
    part: Part,
    from: RecoverySource,
    tried: BTreeSet<RecoverySource>,
    since: Time,
    /// None if a request waits for it.
    slot: Option<WorkSlot>,
}

/// To a member who lacks it.
struct PushOp {
    id: u64,
    /// None while its data is being read.
    push: Option<Box<Push>>,
    since: Time,
    /// None if requests wait for it. It ends with this.
    slot: Option<WorkSlot>,
    /// It could not be read, or was sent and there was no room for it; tried again after a while.
    failed: bool,
}

impl PushOp {
    /// Whether it stays as it is. What there is no room for leaves its place to others meanwhile.
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

/// Someone who holds the group without being a member.
#[derive(Debug, Default)]
pub struct StraySource {
    info: Option<PgInfo>,
    asked: Option<Time>,
    /// What it lacks of what the log says up to a version, once it has the log.
    missing: Option<(Version, Missing)>,
}

impl StraySource {
    /// `info`: what it said that it has, if it did.
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
    /// What requests wait for.
    wanted: BTreeMap<ObjectId, Part>,
    pulls: BTreeMap<u64, Pull>,
    pushes: BTreeMap<(ObjectId, OsdId), PushOp>,
    /// Nobody that can be asked has it; ask again then.
    unfound: BTreeMap<ObjectId, (Part, Time)>,
    /// The last that was looked for.
    looked_for: Option<ObjectId>,
    /// How often in a row somebody did not give what it has.
    refusals: BTreeMap<(ObjectId, OsdId), u32>,
    sources: BTreeMap<OsdId, StraySource>,
    /// Members that do not have, under the names of its clones, what they should have of an object: it is sent.
    without_overlap: BTreeSet<(ObjectId, OsdId)>,
    last_id: u64,
}

impl Recovery {
    pub fn new(sources: BTreeMap<OsdId, StraySource>) -> Recovery {
        Recovery { sources, ..Recovery::default() }
    }
    /// A request waits for some of an object.
    pub fn prioritize(&mut self, object: &ObjectId, part: &Part) {
        self.wanted.entry(object.clone()).or_default().add(part);
    }
    pub fn is_busy(&self) -> bool {
        !self.pulls.is_empty() || self.pushes.values().any(|send| !send.failed)
    }
    /// Objects of which something is on its way.
    pub fn under_way(&self) -> BTreeSet<&ObjectId> {
        self.pulls
            .values()
            .map(|pull| &pull.object)
            .chain(self.pushes.keys().map(|(object, _)| object))
            .collect()
    }
    /// From whom, and to whom.
    pub fn transfers_json(&self) -> Value {
        let pulls = self.pulls.values();
        let pulls = pulls
            .map(|pull| json!({"pull_from": pull.from.osd.to_string(), "soid": pull.object.to_string()}));
        let pushes = self.pushes.keys();
        let pushes =
            pushes.map(|(object, osd)| json!({"pushing_to": osd.to_string(), "object": object.to_string()}));
        json!({"pull_from_peer": pulls.collect::<Vec<_>>(), "pushing": pushes.collect::<Vec<_>>()})
    }
    /// Who holds the group without being a member, and said what of it.
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
    /// Whether somebody who holds the group without being a member may have that of an object of that version.
    pub fn may_be_elsewhere(&self, map: &OsdMap, object: &ObjectId, need: Version, part: &Part) -> bool {
        self.sources.iter().any(|(osd, source)| {
            map.is_up(*osd) && source.missing(need).is_none_or(|missing| !missing.lacks(object, part))
        })
    }
    /// Who holds the group without being a member, and what they lack of it, as far as they can tell of an object of that
    /// version.
    pub fn lacking_sources(&self, need: Version) -> impl Iterator<Item = (OsdId, &Missing)> {
        self.sources.iter().filter_map(move |(osd, source)| Some((*osd, source.missing(need)?)))
    }
    /// Whether somebody who has the object was asked for it time and again and did not give it: it cannot be read there.
    pub fn keeps_refusing(&self, object: &ObjectId, osd: OsdId) -> bool {
        self.refusals.get(&(object.clone(), osd)).is_some_and(|times| *times >= REFUSALS)
    }
    /// An object becomes what another was, and whoever lacked that lacks this now: what was on its way
    /// is of the object as it had been. Whether anything was.
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
    /// Whether somebody that can be asked may have some of what we lack.
    fn may_find(&self, object: &ObjectId, part: &Part) -> bool {
        self.unfound.get(object).is_none_or(|(unfound, _)| !part.clone().without(unfound).is_empty())
    }
    /// What is on its way to us, or nobody has.
    fn not_to_ask(&self, object: &ObjectId) -> impl Iterator<Item = &Part> {
        let pulls = self.pulls.values().filter(move |pull| pull.object == *object);
        self.unfound.get(object).map(|(part, _)| part).into_iter().chain(pulls.map(|pull| &pull.part))
    }
    /// Some of what we lack, without that. One after the other: all of it together may be a hundred thousand keys.
    fn left_to_ask(&self, object: &ObjectId, lacking: Part) -> Part {
        self.not_to_ask(object).fold(lacking, |left, part| left.without(part))
    }
}

impl Pg {
    /// Starts as many transfers as may run.
    pub fn recover(&mut self, ctx: &mut Ctx<'_>) {
        self.recover_wanted(ctx);
        if self.is_held_back(&ctx.map) {
            return;
        }
        let no_backfill = ctx.map.has(map_flags::NOBACKFILL);
        // A full disk takes nothing more that nobody waits for, or its store would refuse a write; but what it lacks
        // of objects that it has takes no more room.
        let room = self.missing.is_empty() || has_room(ctx.store, 0);
        let some = room || has_room_to_replace(ctx.store, 0);
        let mut taken = 0;
        while taken < TAKEN_MAX {
            let Phase::Active(active) = &self.phase else { return };
            let allowed = |stale: &Stale| !no_backfill || !is_whole(&stale.part);
            let here = |object: &ObjectId, stale: &Stale| {
                let grows = || is_whole(&stale.part) || !replaces(ctx.store, object, &stale.part.data);
                allowed(stale) && (room || some && !grows())
            };
            let own = self.next_own(ctx, active, here);
            let theirs = || {
                active.members.iter().find_map(|(&osd, member)| {
                    let too_full = is_too_full(&ctx.map, osd);
                    let may = |stale: &Stale| allowed(stale) && !(too_full && is_whole(&stale.part));
                    Some((self.next_of(active, osd, &member.missing, may)?, osd))
                })
            };
            let theirs = if own.is_none() { theirs() } else { None };
            if own.is_none() && theirs.is_none() {
                return;
            }
            let whole = active.members.values().filter(|member| member.missing.is_empty()).count();
            let scarce = whole + usize::from(self.missing.is_empty()) <= 1;
            let claim = WorkRequest { scarce, forced: self.forced.recovery || self.forced.backfill };
            let Some(slot) = ctx.budget.recovery.request(ctx.now.mono, self.id, claim, false) else { return };
            match (own, theirs) {
                (Some(Next::Pull(object, part)), _) => {
                    self.start_pull(ctx, object, part, BTreeSet::new(), Some(slot));
                }
                (Some(Next::Take(object, common)), _) => {
                    self.share_from_clones(ctx, &object, common);
                    taken += 1;
                }
                (None, Some((object, osd))) => {
                    self.start_push(ctx, object, osd, &Part::everything(), Some(slot));
                }
                (None, None) => return,
            }
        }
    }

    fn is_held_back(&self, map: &OsdMap) -> bool {
        map.has(map_flags::NORECOVER) || map.has(map_flags::NOREBALANCE) && self.is_only_misplaced()
    }

    /// Nothing is fetched while flags forbid it, but that nobody has something is to be known.
    fn look_for_unfound(&mut self, ctx: &mut Ctx<'_>) {
        if !self.is_held_back(&ctx.map) && !ctx.map.has(map_flags::NOBACKFILL) {
            return;
        }
        let Phase::Active(active) = &self.phase else { return };
        let recovery = &active.recovery;
        let start = recovery.looked_for.as_ref().map_or(self.range.start(), ObjectId::following);
        let (mut looked_at, mut last, mut nowhere) = (0, None, Vec::new());
        for (object, stale) in self.missing.from(&start).take(LOOKED_FOR_MAX) {
            (looked_at, last) = (looked_at + 1, Some(object));
            let mut part = recovery.left_to_ask(object, stale.part.clone());
            if part.is_empty() {
                continue;
            }
            part.meta |= stale.part.meta;
            if self.find_source(ctx, object, &part, &BTreeSet::new()).is_none() {
                nowhere.push((object.clone(), part));
            }
        }
        // From the first on when all were looked for.
        let looked_for = last.filter(|_| looked_at == LOOKED_FOR_MAX).cloned();
        let is_some_unfound = !nowhere.is_empty();
        let needs = nowhere.iter().filter_map(|(object, _)| Some(self.missing.get(object)?.need));
        let need = needs.max().unwrap_or_default();
        let retry = ctx.now.mono + LOOKED_FOR_RETRY;
        let Phase::Active(active) = &mut self.phase else { return };
        active.recovery.looked_for = looked_for;
        for (object, part) in nowhere {
            active.recovery.note_unfound(object, &part, retry);
        }
        if is_some_unfound {
            self.ask_sources(ctx, need);
        }
    }

    /// What requests wait for, and what has to be everywhere before anybody sees it.
    fn recover_wanted(&mut self, ctx: &mut Ctx<'_>) {
        let Phase::Active(active) = &self.phase else { return };
        let uncommitted = active.uncommitted().map(|(object, part)| (object.clone(), part.clone()));
        let wanted = active.recovery.wanted.iter().map(|(object, part)| (object.clone(), part.clone()));
        for (object, part) in wanted.chain(uncommitted).collect::<Vec<_>>() {
            let Phase::Active(active) = &mut self.phase else { return };
            let recovery = &mut active.recovery;
            if !self.missing.lacks(&object, &part) {
                if recovery.wanted.remove(&object).is_some() {
                    self.on_recovered(ctx, &object);
                }
            } else if self.unapplied.contains(&object) {
                active.note_runnable(&object);
                ctx.out.push(PgEffect::Loop);
            } else if recovery.pulls.len() < URGENT_JOBS_MAX {
                let lacking = self.missing.part(&object).intersection(&part);
                let ask = recovery.left_to_ask(&object, lacking);
                if !ask.is_empty() {
                    self.start_pull(ctx, object.clone(), ask, BTreeSet::new(), None);
                }
            }
        }
        let Phase::Active(active) = &self.phase else { return };
        let mut pushes = Vec::new();
        for (object, part) in active.uncommitted() {
            for (osd, member) in &active.members {
                let key = (object.clone(), *osd);
                if member.missing.lacks(object, part)
                    && !active.recovery.pushes.contains_key(&key)
                    && self.can_send(&member.missing, object)
                {
                    pushes.push((key, part.clone()));
                }
            }
        }
        for ((object, osd), part) in pushes {
            if self.unapplied.contains(&object) {
                if let Phase::Active(active) = &mut self.phase {
                    active.note_runnable(&object);
                }
                ctx.out.push(PgEffect::Loop);
            } else {
                self.start_push(ctx, object, osd, &part, None);
            }
        }
    }

    // ---- to ourselves ----

    /// Asks the best of those who have some of the part and were not tried.
    fn start_pull(
        &mut self,
        ctx: &mut Ctx<'_>,
        object: ObjectId,
        mut part: Part,
        mut tried: BTreeSet<RecoverySource>,
        slot: Option<WorkSlot>,
    ) {
        let now = ctx.now.mono;
        // Nothing of an object has a place here before its metadata.
        part.meta |= self.missing.lacks_meta(&object);
        let need = self.missing.get(&object).map(|stale| stale.need).unwrap_or_default();
        let source = self.find_source(ctx, &object, &part, &tried);
        let Phase::Active(active) = &mut self.phase else { return };
        let recovery = &mut active.recovery;
        let Some((from, part)) = source else {
            recovery.note_unfound(object, &part, now + UNFOUND_RETRY);
            self.ask_sources(ctx, need);
            return;
        };
        tried.insert(from);
        let id = recovery.next_id();
        let asked = from.name_of(&object);
        recovery.pulls.insert(id, Pull { object, part: part.clone(), from, tried, since: now, slot });
        if from.osd == self.me {
            self.make_push(ctx, id, asked, part, Purpose::Renamed);
        } else {
            ctx.out.push(PgEffect::ask(from.osd, PgMsg::Pull { id, object: asked, part }));
        }
    }

    /// Those who hold the group and have not taken its log as far as to that version shall do so.
    fn ask_sources(&mut self, ctx: &mut Ctx<'_>, need: Version) {
        let now = ctx.now.mono;
        let Phase::Active(active) = &mut self.phase else { return };
        for (&osd, source) in &mut active.recovery.sources {
            let asked = source.asked.is_some_and(|asked| now.since(asked) < UNFOUND_RETRY);
            if source.missing(need).is_none() && !asked && ctx.map.is_up(osd) {
                source.asked = Some(now);
                let log = part_for(&self.info, &self.log, &self.dups, source.info.as_ref());
                ctx.out.push(PgEffect::ask(osd, PgMsg::Merge(log)));
            }
        }
    }

    /// One who is no member has the group's log up to that version.
    pub fn on_source_merged(&mut self, ctx: &mut Ctx<'_>, from: OsdId, at: Version, missing: Missing) {
        let Phase::Active(active) = &mut self.phase else { return };
        let Some(source) = active.recovery.sources.get_mut(&from) else { return };
        source.missing = Some((at, missing));
        active.recovery.unfound.clear();
        self.recover(ctx);
    }

    /// What we pulled, or some of it.
    pub fn on_pulled(&mut self, ctx: &mut Ctx<'_>, from: OsdId, mut push: Push) {
        let Phase::Active(active) = &mut self.phase else { return };
        let Some(pull) = active.recovery.pulls.get(&push.id) else { return };
        if pull.from.osd != from || pull.from.name_of(&pull.object) != push.object {
            return;
        }
        // Some time later it is asked for again, perhaps elsewhere.
        if !fits(ctx.store, push.payload_len()) {
            return;
        }
        let pull = active.recovery.pulls.remove(&push.id).expect("just found");
        push.object = pull.object.clone();
        push.part = push.part.intersection(&pull.part);
        active.recovery.refusals.remove(&(pull.object.clone(), from));
        let bytes = push.payload_len();
        match self.take_push(ctx, push) {
            Ok(_) => {
                self.counts.work.recovered_bytes += bytes;
                if self.missing.get(&pull.object).is_none() {
                    self.counts.work.recovered_objects += 1;
                }
            }
            Err(error) => ctx.log(Level::Error, format!("pg {}: {}: {error}", self.id, pull.object)),
        }
        if let Some(slot) = pull.slot {
            self.once_durable(ctx, WhenStored::Pulled(slot));
        }
        self.on_recovered(ctx, &pull.object);
        self.request_pg_temp(ctx);
        self.recover(ctx);
    }

    pub fn on_pull_refused(&mut self, ctx: &mut Ctx<'_>, from: OsdId, id: u64) {
        let Phase::Active(active) = &mut self.phase else { return };
        if let Some(pull) = active.recovery.pulls.get(&id).filter(|pull| pull.from.osd == from) {
            *active.recovery.refusals.entry((pull.object.clone(), from)).or_default() += 1;
            self.pull_elsewhere(ctx, id);
            self.recover(ctx);
        }
    }

    pub fn pull_elsewhere(&mut self, ctx: &mut Ctx<'_>, id: u64) {
        let Phase::Active(active) = &mut self.phase else { return };
        let Some(pull) = active.recovery.pulls.remove(&id) else { return };
        let part = self.missing.part(&pull.object).intersection(&pull.part);
        if !part.is_empty() {
            self.start_pull(ctx, pull.object, part, pull.tried, pull.slot);
        }
    }

    // ---- to others ----

    fn start_push(
        &mut self,
        ctx: &mut Ctx<'_>,
        object: ObjectId,
        osd: OsdId,
        part: &Part,
        slot: Option<WorkSlot>,
    ) {
        let now = ctx.now.mono;
        let Phase::Active(active) = &mut self.phase else { return };
        let Some(member) = active.members.get(&osd) else { return };
        let lacking = member.missing.part(&object);
        let mut part = lacking.intersection(part);
        part.meta = lacking.meta;
        let id = active.recovery.next_id();
        active
            .recovery
            .pushes
            .insert((object.clone(), osd), PushOp { id, push: None, since: now, slot, failed: false });
        self.make_push(ctx, id, object, part, Purpose::Pushed(osd));
    }

    pub fn push_ready(&mut self, ctx: &mut Ctx<'_>, osd: OsdId, push: Push) {
        let now = ctx.now.mono;
        let Phase::Active(active) = &mut self.phase else { return };
        let Some(send) = active.recovery.pushes.get_mut(&(push.object.clone(), osd)) else { return };
        if send.id != push.id {
            return;
        }
        let push = Box::new(push);
        send.since = now;
        send.push = Some(push.clone());
        ctx.out.push(PgEffect::ask(osd, PgMsg::Push(push)));
    }

    /// What was to be sent cannot be read now. The transfer stays, and is tried again after a while.
    pub fn push_unreadable(&mut self, _: &mut Ctx<'_>, object: &ObjectId, osd: OsdId) {
        let Phase::Active(active) = &mut self.phase else { return };
        let missing = |osd| active.members.get(&osd).is_some_and(|m| m.missing.get(object).is_some());
        if !missing(osd) {
            active.recovery.pushes.remove(&(object.clone(), osd));
        } else if let Some(send) = active.recovery.pushes.get_mut(&(object.clone(), osd)) {
            send.failed = true;
        }
    }

    /// The member has that, but for `refused`.
    pub fn on_pushed(
        &mut self,
        ctx: &mut Ctx<'_>,
        from: OsdId,
        object: &ObjectId,
        id: u64,
        refused: &IntervalSet,
    ) {
        let Phase::Active(active) = &mut self.phase else { return };
        let key = (object.clone(), from);
        if active.recovery.pushes.get(&key).is_none_or(|send| send.id != id || send.push.is_none()) {
            return;
        }
        let Some(PushOp { push: Some(mut push), .. }) = active.recovery.pushes.remove(&key) else { return };
        if !refused.is_empty() {
            push.part.data.subtract(refused);
            active.recovery.without_overlap.insert(key);
        }
        if let Some(member) = active.members.get_mut(&from) {
            // If a write brought it newer metadata, it may not have taken these.
            let meta = push.meta.as_ref().filter(|_| member.missing.lacks_meta(object));
            member.missing.got(object, &push.part, meta.map(|meta| meta.size));
            self.counts.work.recovered_bytes += push.payload_len();
            if member.missing.get(object).is_none() {
                self.counts.work.recovered_objects += 1;
            }
        }
        self.on_recovered(ctx, object);
        self.request_pg_temp(ctx);
        self.recover(ctx);
    }

    /// In words, how far recovery is and what holds it back; nothing when there is nothing to do.
    pub fn recovery_words(&self, map: &OsdMap) -> String {
        let Phase::Active(active) = &self.phase else { return String::new() };
        let members = active.members.iter().map(|(osd, member)| (*osd, &member.missing));
        let lacking = members.chain([(self.me, &self.missing)]).filter(|(_, missing)| !missing.is_empty());
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

    // ---- time, and sessions ----

    /// Restarts what makes no progress, and asks again for what nobody had.
    pub fn recovery_tick(&mut self, ctx: &mut Ctx<'_>) {
        let now = ctx.now.mono;
        let Phase::Active(active) = &mut self.phase else { return };
        let recovery = &mut active.recovery;
        recovery.unfound.retain(|_, (_, retry)| now < *retry);
        recovery.pushes.retain(|(_, osd), send| send.stays(now, ctx.budget.credits.is_full(*osd)));
        let slow = recovery.pulls.iter().filter(|(_, pull)| now.since(pull.since) > STALLED);
        let slow: Vec<(u64, OsdId)> = slow.map(|(id, pull)| (*id, pull.from.osd)).collect();
        for (id, from) in slow {
            ctx.log(Level::Info, format!("pg {}: osd.{from} is slow to send missing data", self.id));
            self.pull_elsewhere(ctx, id);
        }
        self.look_for_unfound(ctx);
        self.recover(ctx);
    }

    /// Messages to that OSD may have been lost.
    pub fn recovery_opened(&mut self, ctx: &mut Ctx<'_>, osd: OsdId) {
        let Phase::Active(active) = &mut self.phase else { return };
        for (&id, pull) in active.recovery.pulls.iter().filter(|(_, pull)| pull.from.osd == osd) {
            let (object, part) = (pull.from.name_of(&pull.object), pull.part.clone());
            ctx.out.push(PgEffect::ask(osd, PgMsg::Pull { id, object, part }));
        }
        let pushes = active.recovery.pushes.iter().filter(|((_, to), _)| *to == osd);
        for push in pushes.filter_map(|(_, send)| send.push.as_ref()) {
            ctx.out.push(PgEffect::ask(osd, PgMsg::Push(push.clone())));
        }
        if let Some(source) = active.recovery.sources.get_mut(&osd) {
            // It may be another life, that does not know of having taken the log.
            (source.asked, source.missing) = (None, None);
        }
    }

    /// Somebody who is no member has the group: a source, or in the way.
    pub fn on_stray_notify(&mut self, ctx: &mut Ctx<'_>, from: OsdId, info: PgInfo) {
        let clean = self.is_clean();
        match &mut self.phase {
            Phase::Peering(peering) => peering.add_stray(from),
            // What was pulled from it last may not be durable here yet.
            Phase::Active(_) if clean => {
                self.once_durable(ctx, WhenStored::Answer(from, Box::new(PgMsg::StrayRemove)));
            }
            Phase::Active(active) if !active.members.contains_key(&from) => {
                let source = active.recovery.sources.entry(from).or_default();
                if source.info.replace(info).is_none() {
                    active.recovery.unfound.clear();
                    self.recover(ctx);
                }
            }
            _ => {}
        }
    }
}

/// All bytes: an object that could not be brought up to date from the log.
pub fn is_whole(part: &Part) -> bool {
    part.data.iter().next().is_some_and(|range| range == (0..u64::MAX))
}
