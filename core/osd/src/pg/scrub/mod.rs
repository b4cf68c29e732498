//! Comparing the copies of a group's objects: the primary looks through its group in small steps and
//! asks all members the same questions, of metadata (light) and of content too (deep).
//!
//! Nothing is locked. A question travels to a member in the stream of writes, so the member answers it
//! at exactly the version at which the primary answered it to itself; whatever clients write meanwhile
//! comes before or behind it everywhere. Each piece of an object is compared at a version of its own.
//!
//! Read `Running`, then `Pg::scrub_on`. `look` is the members' side, `compare` decides what is wrong,
//! `mend` makes it right, `note` keeps what was found, `ls` shows it to clients.

mod compare;
pub mod findings;
mod list_inconsistent;
mod repair;
mod scrub_map;

pub use findings::{load_state, walk_findings};
pub use scrub_map::SumRead;

use super::{Ctx, Pg, PgEffect, Phase};
use crate::scrub_scheduler::{ScrubConfig, ScrubSlot};
use compare::{Content, Copies, RepairPlan, Sums, is_consistent, is_same, verdict};
use nacre_base::{Name, OsdId, Time, Utime, Version};
use nacre_machine::Level;
use nacre_proto::maps::{OsdMap, Pool, PoolOption, map_flags, pool_flags};
use nacre_proto::messages::peer::{EntryKind, LogEntry, PgMsg};
use nacre_proto::messages::pg_state;
use nacre_proto::messages::scrub::{
    BadSnaps, Finding, ScrubAnswer, ScrubMsg, ScrubNote, ScrubQuery, ScrubState, ScrubSum, scrub_error as is,
};
use nacre_proto::types::ObjectId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Bytes of data compared at a time. Tests need several pieces for small objects.
const SLICE: u64 = if cfg!(test) { 4096 } else { 512 << 10 };
/// Without an answer for so long the question is asked anew.
const STALLED: Duration = Duration::from_secs(3);
/// In the cluster's log.
pub const ERROR: u8 = 4;
/// Findings that are kept of one group; more are only counted.
const FINDINGS_MAX: u64 = 1000;

/// What somebody asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubRequest {
    pub deep: bool,
    pub repair: bool,
}

/// When a group will be looked at: not before, and by when although clients are busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubPlan {
    pub from: Utime,
    pub until: Utime,
    /// Somebody asked for it.
    pub wanted: bool,
}

/// In seconds.
struct Intervals {
    min: u64,
    max: u64,
    deep: u64,
}

/// Of the primary while it serves.
#[derive(Default)]
pub struct Scrub {
    running: Option<Box<Running>>,
    last_id: u64,
    /// Copies that are being replaced, and whether all of them is.
    repairing: BTreeMap<(OsdId, ObjectId), bool>,
    /// The other members know how many errors earlier looks found.
    told: bool,
    /// Findings that were kept since they were forgotten.
    kept: u64,
    /// The last repair left something, and no look since found that it is gone.
    repair_failed: bool,
}

struct Running {
    wanted: ScrubRequest,
    _slot: ScrubSlot,
    began: Utime,
    /// Where the next names come from; None: there are no more.
    next: Option<ObjectId>,
    /// The object of which some clones came before that.
    cut: Option<ObjectId>,
    /// Of the names at hand, those to look at one by one, and whether their metadata is suspect.
    todo: VecDeque<(ObjectId, u64, bool)>,
    exam: Option<Box<Exam>>,
    asking: Option<Asking>,
    state: ScrubState,
    found: u64,
    fixed: u64,
    /// What could be put right in the end.
    plans: Vec<(ObjectId, RepairPlan)>,
}

/// A question to all members.
struct Asking {
    id: u64,
    since: Time,
    waits_for: BTreeSet<OsdId>,
    answers: BTreeMap<OsdId, ScrubAnswer>,
    what: Asked,
}

enum Asked {
    /// With what is wrong with clones, as far as the primary sees.
    Names {
        to: Option<ObjectId>,
        clones: Vec<(ObjectId, BadSnaps)>,
    },
    Data {
        offset: u64,
        len: u64,
    },
    Omap {
        from: Name,
        to: Option<Name>,
    },
    Copies,
}

/// One object, read by all.
struct Exam {
    object: ObjectId,
    size: u64,
    suspect: bool,
    stage: Stage,
    content: Content,
    /// What a write did to it last since then.
    written: Option<(EntryKind, Version)>,
    /// Checksums of everything so far.
    chains: BTreeMap<OsdId, (Option<u32>, Option<u32>)>,
}

enum Stage {
    Data(u64),
    Omap(Name),
    Copies,
}

impl Scrub {
    /// A write begins. Of what it removes no copy is to be put right any more, and of what it changes there is a newer
    /// version.
    pub fn note_write(&mut self, entry: &LogEntry) {
        let Some(running) = self.running.as_mut().filter(|_| entry.kind != EntryKind::Note) else { return };
        for (object, kind, _) in entry.touched() {
            if let Some(exam) = running.exam.as_mut().filter(|exam| exam.object == *object) {
                exam.written = Some((kind, entry.version));
            }
            if kind == EntryKind::Delete {
                running.plans.retain(|(of, _)| of != object);
            }
            for (_, plan) in running.plans.iter_mut().filter(|(of, _)| of == object) {
                plan.is_of(entry.version);
            }
        }
    }
    /// `pg_state` bits.
    pub fn state(&self) -> u64 {
        let failed = if self.repair_failed { pg_state::FAILED_REPAIR } else { 0 };
        let Some(running) = &self.running else { return failed };
        let mut state = failed | pg_state::SCRUBBING;
        if running.wanted.deep {
            state |= pg_state::DEEP_SCRUB;
        }
        if running.wanted.repair {
            state &= !pg_state::FAILED_REPAIR;
            state |= pg_state::REPAIR;
        }
        state
    }
}

impl Pg {
    fn scrub(&mut self) -> Option<&mut Scrub> {
        match &mut self.phase {
            Phase::Active(active) => Some(&mut active.scrub),
            _ => None,
        }
    }
    fn running(&mut self) -> Option<&mut Running> {
        self.scrub()?.running.as_deref_mut()
    }

    // ---- when ----

    /// Somebody asks for it, on whichever OSD is the primary.
    pub fn on_scrub_request(&mut self, wanted: ScrubRequest) {
        if self.interval.primary == Some(self.me) {
            let before = self.scrub_wanted.unwrap_or_default();
            let deep = wanted.deep || wanted.repair || before.deep;
            self.scrub_wanted = Some(ScrubRequest { deep, repair: wanted.repair || before.repair });
        }
    }

    pub fn scrub_tick(&mut self, ctx: &mut Ctx<'_>) {
        let now = ctx.now.mono;
        let clean = self.is_clean();
        let Some(scrub) = self.scrub() else { return };
        if let Some(running) = &mut scrub.running {
            if running.asking.as_ref().is_some_and(|asking| now.since(asking.since) > STALLED) {
                running.asking = None;
            }
            if running.asking.is_none() {
                self.scrub_on(ctx);
            }
            return;
        }
        if !clean {
            return;
        }
        let told = std::mem::replace(&mut scrub.told, true);
        self.save_scrub_state(ctx);
        if !told && self.scrub_state.errors() > 0 {
            self.share_note(ctx, ScrubNote::default());
        }
        if let Some((_, urgency)) = self.due(ctx) {
            ctx.budget.scrub.propose(self.id, urgency);
        }
    }

    /// How many seconds pass between two looks.
    fn intervals(&self, pool: &Pool, rules: &ScrubConfig) -> Intervals {
        let of_pool = |option: u32, general: u64| match pool.options.get(&option) {
            Some(PoolOption::Float(secs)) if *secs > 0.0 => *secs as u64,
            _ => general,
        };
        let min = of_pool(pool_option::SCRUB_MIN_INTERVAL, rules.min_interval);
        Intervals {
            // Groups that were made together are not looked at together.
            min: min + min / 2 * (u64::from(self.id.seed.wrapping_mul(0x9e37_79b9)) >> 16) / 0x1_0000,
            max: of_pool(pool_option::SCRUB_MAX_INTERVAL, rules.max_interval),
            deep: of_pool(pool_option::DEEP_SCRUB_INTERVAL, rules.deep_interval),
        }
    }

    /// When its primary will look at it again.
    pub fn scrub_plan(&self, map: &OsdMap, rules: &ScrubConfig, now: Utime) -> Option<ScrubPlan> {
        if self.interval.primary != Some(self.me) {
            return None;
        }
        let Intervals { min, max, .. } = self.intervals(map.pool(self.id.pool)?, rules);
        let last = self.scrub_state.last_stamp;
        let after = |secs: u64| Utime {
            sec: last.sec.saturating_add(u32::try_from(secs).unwrap_or(u32::MAX)),
            ..last
        };
        let wanted = self.scrub_wanted.is_some();
        Some(ScrubPlan { from: if wanted { now } else { after(min) }, until: after(max), wanted })
    }
    pub fn last_scrub(&self, deep: bool) -> Utime {
        if deep { self.scrub_state.last_deep_stamp } else { self.scrub_state.last_stamp }
    }

    /// What kind of look it is time for, and how urgent that is.
    fn due(&self, ctx: &Ctx<'_>) -> Option<(ScrubRequest, u64)> {
        if let Some(wanted) = self.scrub_wanted {
            return Some((wanted, u64::MAX));
        }
        let pace = &ctx.budget.scrub;
        let pool = ctx.map.pool(self.id.pool)?;
        let Intervals { min, max, deep } = self.intervals(pool, &pace.rules);
        let wall = ctx.now.wall;
        let age = |stamp: Utime| u64::from(wall.sec.saturating_sub(stamp.sec));
        let (age, deep_age) = (age(self.scrub_state.last_stamp), age(self.scrub_state.last_deep_stamp));
        let may = |flag, of_pool| !ctx.map.has(flag) && !pool.has(of_pool);
        let may_light = may(map_flags::NOSCRUB, pool_flags::NOSCRUB);
        let may_deep = may(map_flags::NODEEP_SCRUB, pool_flags::NODEEP_SCRUB);
        let calm = !pace.busy && pace.rules.may_begin(u64::from(wall.sec) / 3600 % 24);
        let light = may_light && (age > max || (age > min && calm));
        let deep = may_deep && (deep_age > deep + deep / 2 || (deep_age > deep && (calm || light)));
        (light || deep).then_some((ScrubRequest { deep, repair: false }, age.max(deep_age)))
    }

    /// Our turn has come.
    pub fn start_scrub(&mut self, ctx: &mut Ctx<'_>) {
        let Some((wanted, _)) = self.due(ctx) else { return };
        let (start, old) = (self.range.start(), self.scrub_state);
        if !self.is_clean() {
            return;
        }
        let Some(scrub) = self.scrub() else { return };
        if scrub.running.is_some() {
            return;
        }
        let Some(slot) = ctx.budget.scrub.begin() else { return };
        let mut state = ScrubState { shallow_errors: 0, ..old };
        if wanted.deep {
            state = ScrubState { deep_errors: 0, omap_keys: 0, omap_bytes: 0, ..state };
        }
        scrub.running = Some(Box::new(Running {
            wanted,
            _slot: slot,
            began: ctx.now.wall,
            next: Some(start),
            cut: None,
            todo: VecDeque::new(),
            exam: None,
            asking: None,
            state,
            found: 0,
            fixed: 0,
            plans: Vec::new(),
        }));
        ctx.log(Level::Debug, format!("{} {} starts", self.id, wanted.name()));
        self.share_note(ctx, ScrubNote { forget: true, forget_deep: wanted.deep, ..ScrubNote::default() });
        self.scrub_on(ctx);
    }

    // ---- steps ----

    /// The next question, if the last one is answered and there is nothing to recover.
    pub fn scrub_on(&mut self, ctx: &mut Ctx<'_>) {
        let whole = self.lacks_nothing();
        let now = ctx.now.mono;
        let (id, settled) = (self.id, self.unapplied.is_empty());
        let Some(running) = self.running() else { return };
        if running.asking.as_ref().is_some_and(|asking| asking.waits_for.is_empty()) {
            self.take_answers(ctx);
            return;
        }
        if running.asking.is_some() || !whole {
            return; // the answer, or the next tick, goes on
        }
        if !settled {
            // The view does not show yet what this turn's writes do.
            ctx.budget.scrub.pause(id, now, Duration::ZERO);
            return;
        }
        if running.exam.is_none()
            && let Some((object, size, suspect)) = running.todo.pop_front()
        {
            let stage = if running.wanted.deep { Stage::Data(0) } else { Stage::Copies };
            let (content, written, chains) = Default::default();
            running.exam = Some(Box::new(Exam { object, size, suspect, stage, content, written, chains }));
        }
        match (&running.exam, running.next.clone()) {
            (Some(_), _) => self.examine(ctx),
            (None, Some(next)) => self.ask_for_names(ctx, next),
            (None, None) => self.finish_scrub(ctx),
        }
    }

    fn ask_for_names(&mut self, ctx: &mut Ctx<'_>, from: ObjectId) {
        let chunk = ctx.budget.scrub.rules.chunk as usize;
        let objects = match self.objects_from(ctx, &from, scrub_map::NAMES_MAX) {
            Ok(objects) => objects,
            Err(error) => {
                ctx.log(Level::Error, format!("pg {}: {error}", self.id));
                return; // again with the next tick
            }
        };
        // An object and its clones are looked at together, unless there are very many of them.
        let is_first = |at: &usize| objects[*at].to_head() != objects[*at - 1].to_head();
        let cut = (chunk..objects.len()).find(is_first);
        let cut = cut.or_else(|| (objects.len() == scrub_map::NAMES_MAX).then(|| objects.len() - 1));
        let to = cut.map(|at| objects[at].clone());
        let ours = &objects[..cut.unwrap_or(objects.len())];
        let clones = self.check_clones(ctx, ours);
        let query = ScrubQuery::Names { from, to: to.clone(), values: false };
        self.ask_all(ctx, Asked::Names { to, clones }, |_| query.clone());
    }

    fn examine(&mut self, ctx: &mut Ctx<'_>) {
        let Some(exam) = self.running().and_then(|running| running.exam.as_ref()) else { return };
        let object = exam.object.clone();
        let chains = exam.chains.clone();
        match &exam.stage {
            Stage::Data(offset) => {
                let (offset, len) = (*offset, SLICE);
                let chain = |osd| chains.get(&osd).map_or(u32::MAX, |(data, _)| data.unwrap_or_default());
                self.ask_all(ctx, Asked::Data { offset, len }, |osd| ScrubQuery::Data {
                    object: object.clone(),
                    offset,
                    len,
                    chain: chain(osd),
                });
            }
            Stage::Omap(from) => {
                let from = from.clone();
                let (to, keys, bytes) = self.omap_piece(ctx, &object, &from);
                if let Some(running) = self.running() {
                    running.state.omap_keys += keys;
                    running.state.omap_bytes += bytes;
                }
                let chain = |osd| chains.get(&osd).map_or(u32::MAX, |(_, omap)| omap.unwrap_or_default());
                self.ask_all(ctx, Asked::Omap { from: from.clone(), to: to.clone() }, |osd| {
                    ScrubQuery::Omap {
                        object: object.clone(),
                        from: from.clone(),
                        to: to.clone(),
                        chain: chain(osd),
                    }
                });
            }
            Stage::Copies => {
                let to = object.following();
                let query = ScrubQuery::Names { from: object, to: Some(to), values: true };
                self.ask_all(ctx, Asked::Copies, |_| query.clone());
            }
        }
    }

    /// Asks all members, and ourselves, in this one moment.
    fn ask_all(&mut self, ctx: &mut Ctx<'_>, what: Asked, query: impl Fn(OsdId) -> ScrubQuery) {
        let (me, at, since) = (self.me, self.info.last_update, ctx.now.mono);
        let Phase::Active(active) = &mut self.phase else { return };
        active.scrub.last_id += 1;
        let id = active.scrub.last_id;
        let Some(running) = &mut active.scrub.running else { return };
        let others: Vec<OsdId> = active.members.keys().copied().collect();
        let waits_for = others.iter().copied().chain([me]).collect();
        running.asking = Some(Asking { id, since, waits_for, answers: BTreeMap::new(), what });
        for osd in others {
            let msg = Box::new(ScrubMsg::Query { id, at, query: query(osd) });
            ctx.out.push(PgEffect::ask(osd, PgMsg::Scrub(msg)));
        }
        self.answer_query(ctx, None, id, query(me));
    }

    pub fn on_scrub_answer(&mut self, ctx: &mut Ctx<'_>, from: OsdId, id: u64, answer: Option<ScrubAnswer>) {
        let Some(running) = self.running() else { return };
        let Some(asking) = running.asking.as_mut().filter(|asking| asking.id == id) else { return };
        let Some(answer) = answer else {
            running.asking = None; // a session ended on the way; the next tick asks again
            return;
        };
        if asking.waits_for.remove(&from) {
            asking.answers.insert(from, answer);
        }
        if asking.waits_for.is_empty() {
            self.take_answers(ctx);
        }
    }

    /// Everybody answered.
    fn take_answers(&mut self, ctx: &mut Ctx<'_>) {
        let (pg, now) = (self.id, ctx.now.mono);
        if !self.unapplied.is_empty() {
            // What is to be put right may be among what this turn's writes change.
            ctx.out.push(PgEffect::Loop);
            return;
        }
        let Some(running) = self.running() else { return };
        let Some(Asking { answers, what, since, .. }) = running.asking.take() else { return };
        match what {
            Asked::Names { to, clones } => self.take_names(ctx, answers, to, clones),
            Asked::Copies => self.take_copies(ctx, answers),
            Asked::Data { offset, len } => self.take_data(answers, offset, len),
            Asked::Omap { from, to } => self.take_omap(answers, from, to),
        }
        ctx.budget.scrub.pause(pg, now, now.since(since));
    }

    fn take_names(
        &mut self,
        ctx: &mut Ctx<'_>,
        answers: BTreeMap<OsdId, ScrubAnswer>,
        mut to: Option<ObjectId>,
        clones: Vec<(ObjectId, BadSnaps)>,
    ) {
        let mut objects: BTreeMap<ObjectId, Copies> = BTreeMap::new();
        let mut silent = BTreeSet::new();
        let members: Vec<OsdId> = answers.keys().copied().collect();
        for (osd, answer) in answers {
            let ScrubAnswer::Names { entries, end } = answer else {
                silent.insert(osd);
                continue;
            };
            to = match (to, end) {
                (Some(to), Some(end)) => Some(to.min(end)),
                (to, end) => to.or(end),
            };
            for entry in entries {
                objects.entry(entry.object.clone()).or_default().insert(osd, Some(entry));
            }
        }
        objects.retain(|object, _| self.range.contains(object) && to.as_ref().is_none_or(|to| object < to));
        for osd in &silent {
            ctx.log(Level::Error, format!("pg {}: osd.{osd} cannot tell which objects it has", self.id));
        }
        let mut suspects = BTreeSet::new();
        let last = objects.last_key_value().map(|(last, _)| last.to_head());
        let Some(running) = self.running() else { return };
        for (object, mut copies) in objects {
            for osd in members.iter().filter(|osd| !silent.contains(osd)) {
                copies.entry(*osd).or_insert(None);
            }
            let suspect = !is_consistent(&copies);
            if suspect {
                suspects.insert(object.to_head());
            }
            if suspect || running.wanted.deep {
                let size = copies.values().flatten().map(|copy| copy.size).max().unwrap_or_default();
                running.todo.push_back((object, size, suspect));
            }
        }
        let seen_before = running.cut.take();
        running.cut = to.as_ref().map(ObjectId::to_head).filter(|head| last.as_ref() == Some(head));
        running.next = to.clone();
        for (object, bad) in clones {
            let head = object.to_head();
            let complete = to.as_ref().is_none_or(|to| head < *to) && seen_before.as_ref() != Some(&head);
            // Where copies differ, that is why.
            if complete && !suspects.contains(&head) {
                // Of clones that are too many the clones themselves tell.
                let errors = if object == head { bad.missing.len() as u64 } else { 1 };
                if let Some(running) = self.running() {
                    running.state.shallow_errors += errors;
                    running.found += errors;
                }
                if errors > 0 {
                    self.cluster_error(ctx, format!("{} {object}: {}", self.id, what_is_wrong(&bad)));
                }
                self.keep_finding(ctx, &object, Finding::Snaps(bad));
            }
        }
    }

    fn take_data(&mut self, answers: BTreeMap<OsdId, ScrubAnswer>, offset: u64, len: u64) {
        let Some(exam) = self.running().and_then(|running| running.exam.as_mut()) else { return };
        let sums = sums_of(answers);
        for (osd, sum) in &sums {
            let digests = exam.chains.entry(*osd).or_insert((Some(u32::MAX), Some(u32::MAX)));
            digests.0 = digests.0.and(chain_of(sum));
        }
        if !is_gone(&sums) && !is_same(&sums) {
            exam.content.data.push((offset..offset + len, sums));
        }
        let next = offset + len;
        exam.stage = if next < exam.size { Stage::Data(next) } else { Stage::Omap(Name::default()) };
    }

    fn take_omap(&mut self, answers: BTreeMap<OsdId, ScrubAnswer>, from: Name, to: Option<Name>) {
        let Some(running) = self.running() else { return };
        let Some(exam) = running.exam.as_mut() else { return };
        let sums = sums_of(answers);
        for (osd, sum) in &sums {
            let digests = exam.chains.entry(*osd).or_insert((Some(u32::MAX), Some(u32::MAX)));
            digests.1 = digests.1.and(chain_of(sum));
        }
        if !is_gone(&sums) && !is_same(&sums) {
            exam.content.omap.push(((from, to.clone()), sums));
        }
        match to {
            Some(to) => exam.stage = Stage::Omap(to),
            None if exam.suspect || !exam.content.is_consistent() => {
                exam.content.digests = std::mem::take(&mut exam.chains);
                exam.stage = Stage::Copies;
            }
            None => running.exam = None,
        }
    }

    /// Everything is known of an object that is suspect.
    fn take_copies(&mut self, ctx: &mut Ctx<'_>, answers: BTreeMap<OsdId, ScrubAnswer>) {
        let me = self.me;
        let Some(exam) = self.running().and_then(|running| running.exam.take()) else { return };
        let copies = answers.into_iter().filter_map(|(osd, answer)| match answer {
            ScrubAnswer::Names { entries, .. } => {
                Some((osd, entries.into_iter().find(|entry| entry.object == exam.object)))
            }
            ScrubAnswer::Sum(_) => None,
        });
        let Some((bad, mut plan)) = verdict(&copies.collect(), &exam.content, me) else { return };
        match exam.written {
            Some((EntryKind::Delete, _)) => return,
            Some((_, version)) => plan.is_of(version),
            None => {}
        }
        self.on_bad_object(ctx, &exam.object, bad, plan);
    }

    fn finish_scrub(&mut self, ctx: &mut Ctx<'_>) {
        if self.auto_repair(ctx) {
            return; // and on when that is done
        }
        let (wall, at) = (ctx.now.wall, self.info.last_update);
        let Some(scrub) = self.scrub() else { return };
        let Some(running) = scrub.running.take() else { return };
        let Running { wanted, mut state, began, found, fixed, .. } = *running;
        scrub.repair_failed = state.errors() > 0 && (wanted.repair || scrub.repair_failed);
        (state.last, state.last_stamp) = (at, wall);
        if wanted.deep {
            (state.last_deep, state.last_deep_stamp) = (at, wall);
        }
        if state.errors() == 0 {
            state.last_clean_stamp = wall;
        }
        self.scrub_state = state;
        self.scrub_wanted =
            self.scrub_wanted.filter(|more| (more.deep && !wanted.deep) || (more.repair && !wanted.repair));
        if !wanted.deep && found > 0 && ctx.budget.scrub.rules.auto_repair.is_some() {
            self.on_scrub_request(ScrubRequest { deep: true, repair: false });
        }
        self.share_note(ctx, ScrubNote::default());
        let seconds = wall.sec.saturating_sub(began.sec);
        let name = format!("{} {}", self.id, wanted.name());
        ctx.log(Level::Debug, format!("{name} took {seconds} s"));
        match (found, fixed) {
            (0, _) => ctx.log(Level::Debug, format!("{name} ok")),
            (found, 0) => self.cluster_error(ctx, format!("{name} {found} errors")),
            (found, fixed) => self.cluster_error(ctx, format!("{name} {found} errors, {fixed} fixed")),
        }
        ctx.out.push(PgEffect::Report);
    }

    /// Messages to that OSD may have been lost.
    pub fn scrub_opened(&mut self, ctx: &mut Ctx<'_>, osd: OsdId) {
        self.resend_repairs(ctx, osd);
        let Some(scrub) = self.scrub() else { return };
        scrub.told = false;
        if let Some(running) = &mut scrub.running {
            running.asking = None; // the next tick asks again
        }
    }

    pub fn on_scrub(&mut self, ctx: &mut Ctx<'_>, from: OsdId, msg: ScrubMsg) {
        match msg {
            ScrubMsg::Query { id, at, query } => self.on_scrub_query(ctx, from, id, at, query),
            ScrubMsg::Answer { id, answer } => self.on_scrub_answer(ctx, from, id, answer),
            ScrubMsg::Mend { object, stale } => self.on_repair(ctx, from, object, stale),
            ScrubMsg::Note(note) => self.on_scrub_note(ctx, from, &note),
        }
    }

    /// What is wrong goes to the cluster's log.
    fn cluster_error(&self, ctx: &mut Ctx<'_>, text: String) {
        ctx.out.push(PgEffect::ClusterLog(ERROR, text));
    }
}

impl ScrubRequest {
    fn name(self) -> &'static str {
        match self {
            ScrubRequest { repair: true, .. } => "repair",
            ScrubRequest { deep: true, .. } => "deep-scrub",
            _ => "scrub",
        }
    }
}

fn what_is_wrong(bad: &BadSnaps) -> String {
    match bad.errors {
        errors if errors & is::snaps::HEADLESS_CLONE != 0 => "no head refers to this clone".to_string(),
        errors if errors & is::snaps::SIZE != 0 => {
            "the size of this clone differs from the one in its head".to_string()
        }
        _ => format!("clones are missing: {:?}", bad.missing.iter().map(|snap| snap.0).collect::<Vec<_>>()),
    }
}

/// Numbers of `pool_opts_t`.
mod pool_option {
    pub const SCRUB_MIN_INTERVAL: u32 = 0;
    pub const SCRUB_MAX_INTERVAL: u32 = 1;
    pub const DEEP_SCRUB_INTERVAL: u32 = 2;
}

fn sums_of(answers: BTreeMap<OsdId, ScrubAnswer>) -> Sums {
    let sum = |answer| match answer {
        ScrubAnswer::Sum(sum) => sum,
        ScrubAnswer::Names { .. } => ScrubSum::Unreadable,
    };
    answers.into_iter().map(|(osd, answer)| (osd, sum(answer))).collect()
}
fn chain_of(sum: &ScrubSum) -> Option<u32> {
    match sum {
        ScrubSum::Of { chain, .. } => Some(*chain),
        _ => None,
    }
}
/// A client deleted it meanwhile.
fn is_gone(sums: &Sums) -> bool {
    sums.values().all(|sum| *sum == ScrubSum::Absent)
}
