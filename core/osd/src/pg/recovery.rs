//! The primary makes every member whole: it pulls what it lacks itself from whoever has it, and
//! pushes what others lack. Objects that requests wait for go first.

use super::push::Purpose;
use super::{Ctx, Pg, PgEffect, Phase};
use nacre_base::{OsdId, Time, Version};
use nacre_machine::Level;
use nacre_proto::messages::peer::{PgMsg, Push, PushCursor};
use nacre_proto::types::ObjectId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Objects of one group on their way at a time.
const JOBS_MAX: usize = 4;
/// Jobs for objects that requests wait for may be more.
const URGENT_JOBS_MAX: usize = 16;
/// Without progress for so long a transfer is started anew.
const STALLED: Duration = Duration::from_secs(3);
/// How often those who did not have an object are asked again.
const UNFOUND_RETRY: Duration = Duration::from_secs(3);

enum Job {
    /// To ourselves, from one that may have it.
    Pull { need: Version, from: OsdId, tried: BTreeSet<OsdId>, cursor: PushCursor, since: Time },
    /// To all that miss it, in step.
    Push {
        version: Version,
        to: BTreeSet<OsdId>,
        part: Option<Box<Push>>,
        unacked: BTreeSet<OsdId>,
        since: Time,
    },
}

pub struct Recovery {
    urgent: VecDeque<ObjectId>,
    jobs: BTreeMap<ObjectId, Job>,
    /// Nobody that can be asked has them; ask again then.
    unfound: BTreeMap<ObjectId, Time>,
    /// Who may have objects without being a member.
    pub sources: BTreeSet<OsdId>,
}

impl Recovery {
    pub fn new(sources: BTreeSet<OsdId>) -> Recovery {
        Recovery { urgent: VecDeque::new(), jobs: BTreeMap::new(), unfound: BTreeMap::new(), sources }
    }
    /// A request waits for the object.
    pub fn hurry(&mut self, object: &ObjectId) {
        if !self.jobs.contains_key(object) && !self.urgent.contains(object) {
            self.urgent.push_back(object.clone());
        }
    }
    pub fn is_busy(&self) -> bool {
        !self.jobs.is_empty()
    }
    pub fn unfound(&self) -> impl Iterator<Item = &ObjectId> {
        self.unfound.keys()
    }
    pub fn unfound_len(&self) -> usize {
        self.unfound.len()
    }
}

impl Pg {
    /// Starts as many transfers as may run.
    pub fn recover(&mut self, ctx: &mut Ctx<'_>) {
        loop {
            let Phase::Active(active) = &mut self.phase else { return };
            let recovery = &mut active.recovery;
            let object = if let Some(object) = recovery.urgent.front().cloned() {
                if recovery.jobs.len() >= URGENT_JOBS_MAX {
                    return;
                }
                recovery.urgent.pop_front();
                object
            } else {
                if recovery.jobs.len() >= JOBS_MAX {
                    return;
                }
                // What changed in this turn cannot be read before the next.
                let free = |object: &ObjectId| {
                    !recovery.jobs.contains_key(object)
                        && !recovery.unfound.contains_key(object)
                        && !self.changed.1.contains(object)
                };
                let own = self.missing.iter().map(|(object, _)| object).find(|object| free(object));
                let others = || {
                    let missing = active.members.values().flat_map(|member| member.missing.iter());
                    missing.map(|(o, _)| o).find(|o| free(o) && !self.missing.contains(o))
                };
                match own.or_else(others) {
                    Some(object) => object.clone(),
                    None => return,
                }
            };
            if recovery.jobs.contains_key(&object) || recovery.unfound.contains_key(&object) {
                continue;
            }
            if self.changed.1.contains(&object) {
                // Whoever waits for it asks again in the next turn.
                active.note_runnable(object);
                ctx.out.push(PgEffect::Loop);
                continue;
            }
            match self.missing.need(&object) {
                Some(need) => self.pull_from_next(ctx, object, need, BTreeSet::new()),
                None => self.start_push(ctx, object),
            }
        }
    }

    fn pull_from_next(
        &mut self,
        ctx: &mut Ctx<'_>,
        object: ObjectId,
        need: Version,
        mut tried: BTreeSet<OsdId>,
    ) {
        let now = ctx.now.mono;
        let Phase::Active(active) = &mut self.phase else { return };
        let members = active.members.iter().filter(|(_, member)| !member.missing.contains(&object));
        let candidates = members.map(|(osd, _)| osd).chain(&active.recovery.sources).copied();
        let next = candidates.into_iter().find(|osd| !tried.contains(osd) && ctx.map.is_up(*osd));
        match next {
            None => {
                active.recovery.jobs.remove(&object);
                active.recovery.unfound.insert(object, now + UNFOUND_RETRY);
            }
            Some(from) => {
                tried.insert(from);
                let cursor = PushCursor::default();
                let ask = PgMsg::Pull { object: object.clone(), need, cursor: cursor.clone() };
                active.recovery.jobs.insert(object, Job::Pull { need, from, tried, cursor, since: now });
                ctx.out.push(PgEffect::Ask(from, ask));
            }
        }
    }

    /// A part of what we pull.
    pub fn on_pulled(&mut self, ctx: &mut Ctx<'_>, from: OsdId, push: Push) {
        let now = ctx.now.mono;
        let Phase::Active(active) = &mut self.phase else { return };
        let object = push.object.clone();
        match active.recovery.jobs.get_mut(&object) {
            Some(Job::Pull { need, from: source, cursor, since, .. })
                if *source == from && *need == push.version && *cursor == push.cursor =>
            {
                *since = now;
                if let Some(next) = &push.next {
                    *cursor = next.clone();
                    let ask = PgMsg::Pull { object: object.clone(), need: *need, cursor: next.clone() };
                    ctx.out.push(PgEffect::Ask(from, ask));
                }
            }
            _ => return,
        }
        if self.take_part(ctx, from, push) == Some(true) {
            if let Phase::Active(active) = &mut self.phase {
                active.recovery.jobs.remove(&object);
            }
            // In the next turn, when the view shows it: pushes to others, waiting requests.
            self.on_recovered(ctx, &object);
        }
    }

    pub fn on_pull_refused(&mut self, ctx: &mut Ctx<'_>, from: OsdId, object: &ObjectId, need: Version) {
        let Phase::Active(active) = &mut self.phase else { return };
        match active.recovery.jobs.get_mut(object) {
            Some(Job::Pull { need: ours, from: source, tried, .. }) if *source == from && *ours == need => {
                let tried = std::mem::take(tried);
                self.pull_from_next(ctx, object.clone(), need, tried);
                self.recover(ctx);
            }
            _ => {}
        }
    }

    fn start_push(&mut self, ctx: &mut Ctx<'_>, object: ObjectId) {
        let now = ctx.now.mono;
        let Phase::Active(active) = &mut self.phase else { return };
        let missing: Vec<(OsdId, Version)> = active
            .members
            .iter()
            .filter_map(|(&osd, member)| Some((osd, member.missing.need(&object)?)))
            .collect();
        let Some(version) = missing.iter().map(|(_, need)| *need).max() else { return };
        let to = missing.into_iter().map(|(osd, _)| osd).collect();
        let job = Job::Push { version, to, part: None, unacked: BTreeSet::new(), since: now };
        active.recovery.jobs.insert(object.clone(), job);
        self.make_part(ctx, object, version, PushCursor::default(), Purpose::Pushed);
    }

    pub fn part_ready(&mut self, ctx: &mut Ctx<'_>, part: Push) {
        let now = ctx.now.mono;
        let Phase::Active(active) = &mut self.phase else { return };
        let Some(Job::Push { to, part: current, unacked, since, .. }) =
            active.recovery.jobs.get_mut(&part.object)
        else {
            return;
        };
        *since = now;
        *unacked = to.clone();
        let part = Box::new(part);
        ctx.out.extend(to.iter().map(|&osd| PgEffect::Ask(osd, PgMsg::Push(part.clone()))));
        *current = Some(part);
    }

    /// Our own copy cannot be read. The job stays, and is tried again after a while.
    pub fn push_failed(&mut self, object: &ObjectId) {
        let Phase::Active(active) = &mut self.phase else { return };
        if let Some(Job::Push { part, unacked, .. }) = active.recovery.jobs.get_mut(object) {
            *part = None;
            unacked.clear();
        }
    }

    pub fn on_pushed(
        &mut self,
        ctx: &mut Ctx<'_>,
        from: OsdId,
        object: &ObjectId,
        version: Version,
        cursor: &PushCursor,
    ) {
        let now = ctx.now.mono;
        let Phase::Active(active) = &mut self.phase else { return };
        let Some(Job::Push { version: ours, to, part: Some(part), unacked, since }) =
            active.recovery.jobs.get_mut(object)
        else {
            return;
        };
        if *ours != version || part.cursor != *cursor || !unacked.remove(&from) {
            return;
        }
        *since = now;
        if !unacked.is_empty() {
            return;
        }
        if let Some(next) = part.next.clone() {
            self.make_part(ctx, object.clone(), version, next, Purpose::Pushed);
            return;
        }
        for osd in to.iter() {
            if let Some(member) = active.members.get_mut(osd) {
                member.missing.got(object, version);
            }
            self.counts.recovered_objects += 1;
        }
        active.recovery.jobs.remove(object);
        self.on_recovered(ctx, object);
        self.recover(ctx);
    }

    /// Restarts what makes no progress, and asks again for what nobody had.
    pub fn recovery_tick(&mut self, ctx: &mut Ctx<'_>) {
        let now = ctx.now.mono;
        let Phase::Active(active) = &mut self.phase else { return };
        active.recovery.unfound.retain(|_, retry| now < *retry);
        let stalled: Vec<ObjectId> = active
            .recovery
            .jobs
            .iter()
            .filter(|(_, job)| match job {
                Job::Pull { since, .. } | Job::Push { since, .. } => now.since(*since) > STALLED,
            })
            .map(|(object, _)| object.clone())
            .collect();
        for object in stalled {
            self.restart_job(ctx, object);
        }
        self.recover(ctx);
    }

    fn restart_job(&mut self, ctx: &mut Ctx<'_>, object: ObjectId) {
        let Phase::Active(active) = &mut self.phase else { return };
        match active.recovery.jobs.remove(&object) {
            Some(Job::Pull { need, tried, from, .. }) => {
                ctx.log(Level::Info, format!("pg {}: osd.{from} is slow to give {object}", self.id));
                self.pull_from_next(ctx, object, need, tried);
            }
            Some(Job::Push { .. }) => self.start_push(ctx, object),
            None => {}
        }
    }

    /// Messages to that OSD may have been lost.
    pub fn recovery_opened(&mut self, ctx: &mut Ctx<'_>, osd: OsdId) {
        let Phase::Active(active) = &mut self.phase else { return };
        for (object, job) in &active.recovery.jobs {
            match job {
                Job::Pull { need, from, cursor, .. } if *from == osd => {
                    let ask = PgMsg::Pull { object: object.clone(), need: *need, cursor: cursor.clone() };
                    ctx.out.push(PgEffect::Ask(osd, ask));
                }
                Job::Push { part: Some(part), unacked, .. } if unacked.contains(&osd) => {
                    ctx.out.push(PgEffect::Ask(osd, PgMsg::Push(part.clone())));
                }
                _ => {}
            }
        }
    }

    /// Somebody who is no member has the group: a source, or in the way.
    pub fn on_stray_notify(&mut self, ctx: &mut Ctx<'_>, from: OsdId) {
        let clean = self.is_clean();
        match &mut self.phase {
            Phase::Peering(peering) => peering.add_stray(from),
            Phase::Active(_) if clean => ctx.out.push(PgEffect::Answer(from, PgMsg::StrayRemove)),
            Phase::Active(active) if !active.recovery.sources.contains(&from) => {
                active.recovery.sources.insert(from);
                active.recovery.unfound.clear();
                self.recover(ctx);
            }
            _ => {}
        }
    }
}
