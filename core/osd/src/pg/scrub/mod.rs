//! Scrub: the primary compares the copies of its objects in small steps. It asks all members the same
//! questions, of metadata (light scrub) and of content too (deep scrub).
//!
//! Nothing is locked. A question travels to a member in the stream of writes, so the member answers it at
//! exactly the version at which the primary answered it to itself; what clients write meanwhile comes before
//! or behind it everywhere. Each piece of an object is compared at a version of its own.
//!
//! `Scrub` is the primary's machine: read `Running`, then `Scrub::step`. `ScrubRecord` is what every member
//! keeps. `scrub_map` replies to questions, `findings` keeps what was found, `repair` discards wrong copies,
//! `list_inconsistent` shows findings to clients. Which copy is right is decided by the redundancy backend.

pub mod findings;
mod list_inconsistent;
mod repair;
mod scrub_map;

use super::active::Member;
use super::backend::Backend;
use super::backend::erasure::index;
use super::backend::erasure::parity_check::{Equation, Fit, judge};
use super::backend::scrub_verdict::{Content, Copies, RepairPlan, Sums, is_same};
use super::completeness::Completeness;
use super::history::{History, Update};
use super::pending::Pending;
use super::recovery::Recovery;
use super::{Ctx, Interval, Pg, PgEffect, Phase};
use crate::scrub_scheduler::{ScrubConfig, ScrubSlot};

use bytes::Bytes;
use nacre_base::{Name, OsdId, PgId, ShardId, Time, Utime, Version};
use nacre_machine::{Level, ReadError};
use nacre_proto::maps::{OsdMap, Pool, PoolOption, map_flags, pool_flags};
use nacre_proto::messages::peer::{EntryKind, LogEntry, PgMsg};
use nacre_proto::messages::pg_state;
use nacre_proto::messages::scrub::{
    BadSnaps, Finding, ScrubAnswer, ScrubMsg, ScrubNote, ScrubQuery, ScrubState, ScrubSum, scrub_error as is,
};
use nacre_proto::transaction::Transaction;
use nacre_proto::types::ObjectId;
use scrub_map::{SumRead, check_clones, omap_piece};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Bytes of data compared at a time. Tests need several pieces for small objects.
const SLICE: u64 = if cfg!(test) { 4096 } else { 512 << 10 };
/// Without an answer for this long the question is asked anew.
const STALLED: Duration = Duration::from_secs(3);
/// In the cluster's log.
pub const ERROR: u8 = 4;
/// Findings that are kept of one placement group; more are only counted.
const FINDINGS_MAX: u64 = 1000;

/// A scrub that was requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubRequest {
    pub deep: bool,
    pub repair: bool,
}

/// When a placement group will be scrubbed: the earliest time, and the latest although clients are busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubPlan {
    pub from: Utime,
    pub until: Utime,
    /// It was requested.
    pub wanted: bool,
}

/// In seconds.
struct Intervals {
    min: u64,
    max: u64,
    deep: u64,
}

/// What every member keeps of scrubs, and the pieces that it reads for one.
pub struct ScrubRecord {
    pg: PgId,
    pub state: ScrubState,
    /// `state` was made anew and is not stored.
    unsaved: bool,
    requested: Option<ScrubRequest>,
    reads: BTreeMap<u64, SumRead>,
}

/// The parts of the placement group that a scrub works on.
pub struct Scope<'a> {
    pub backend: &'a Backend,
    pub interval: &'a Interval,
    pub history: &'a mut History,
    pub pending: &'a mut Pending,
    pub record: &'a mut ScrubRecord,
    pub members: &'a mut BTreeMap<OsdId, Member>,
    pub recovery: &'a mut Recovery,
}

/// The primary's machine while it serves.
#[derive(Default)]
pub struct Scrub {
    running: Option<Box<Running>>,
    last_id: u64,
    /// Copies that are being replaced, and whether all of them is.
    repairing: BTreeMap<(OsdId, ObjectId), bool>,
    /// The other members know how many errors earlier scrubs found.
    told: bool,
    /// Findings that were kept since they were forgotten.
    kept: u64,
    /// The last repair left errors, and no scrub since found that they are gone.
    repair_failed: bool,
}

struct Running {
    request: ScrubRequest,
    _slot: ScrubSlot,
    began: Utime,
    /// Where the next names come from; None: there are no more.
    next: Option<ObjectId>,
    /// The object of which some clones came before that.
    cut: Option<ObjectId>,
    /// Of the current names, the objects to compare one by one, and whether their metadata is suspect.
    todo: VecDeque<(ObjectId, u64, bool)>,
    exam: Option<Box<Exam>>,
    asking: Option<Asking>,
    state: ScrubState,
    found: u64,
    fixed: u64,
    /// What could be repaired in the end.
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
        /// Of the shards of an erasure-coded object.
        equations: Vec<Equation>,
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
    /// Its shards do not fit together in the piece that is being read: now it is to be seen which is wrong.
    is_locating: bool,
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
    /// A write begins. Of what it removes no copy is to be repaired any more, and of what it changes there is
    /// a newer version.
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
        if running.request.deep {
            state |= pg_state::DEEP_SCRUB;
        }
        if running.request.repair {
            state &= !pg_state::FAILED_REPAIR;
            state |= pg_state::REPAIR;
        }
        state
    }
}

impl Scope<'_> {
    fn id(&self) -> PgId {
        self.history.pg
    }
    fn me(&self) -> OsdId {
        self.history.me
    }
    /// The primary reads what it stores.
    fn store(&mut self, ctx: &mut Ctx<'_>, mut txn: Transaction) {
        txn.is_read_here = true;
        self.pending.issue(txn, ctx.out);
    }
    fn apply(&mut self, ctx: &mut Ctx<'_>, update: Update) {
        self.pending.unapplied.extend(update.objects);
        self.store(ctx, update.txn);
    }
    /// Of an erasure-coded pool the shard of each member.
    fn shards(&self) -> Vec<(OsdId, usize)> {
        let all = self.members.keys().copied().chain([self.me()]);
        all.filter_map(|osd| Some((osd, index(self.interval.shard_of(osd))?))).collect()
    }
    fn equations(&self, locate: bool) -> Vec<Equation> {
        let held: Vec<ShardId> = self.shards().iter().map(|(_, shard)| ShardId(*shard as i8)).collect();
        self.backend.equations(&held, locate)
    }
    /// Whether shards fit together. What cannot be read is another matter.
    fn fit(&self, answers: &BTreeMap<OsdId, ScrubAnswer>, equations: &[Equation]) -> Fit {
        let of_shards: BTreeMap<usize, OsdId> =
            self.shards().into_iter().map(|(osd, shard)| (shard, osd)).collect();
        let products = |osd: &OsdId| match answers.get(osd) {
            Some(ScrubAnswer::Products { products, .. }) if products.len() == equations.len() => {
                Some(products.clone())
            }
            _ => None,
        };
        match of_shards.values().map(products).collect::<Option<Vec<_>>>() {
            Some(products) if !equations.is_empty() => judge(equations, &products),
            _ => Fit::Whole,
        }
    }
    fn completeness(&self) -> Completeness<'_> {
        let own = &self.history.missing;
        Completeness { me: self.me(), interval: self.interval, own, members: Some(self.members) }
    }
}

impl ScrubRecord {
    pub fn new(pg: PgId) -> ScrubRecord {
        let (state, requested, reads) = Default::default();
        ScrubRecord { pg, state, unsaved: false, requested, reads }
    }
    /// Takes note of a request; the scrub begins when it is this placement group's turn.
    pub fn request(&mut self, request: ScrubRequest) {
        let before = self.requested.unwrap_or_default();
        let deep = request.deep || request.repair || before.deep;
        self.requested = Some(ScrubRequest { deep, repair: request.repair || before.repair });
    }
    pub fn is_reading(&self, read: u64) -> bool {
        self.reads.contains_key(&read)
    }
    pub fn forget_reads(&mut self) {
        self.reads.clear();
    }
    pub fn last(&self, deep: bool) -> Utime {
        if deep { self.state.last_deep_stamp } else { self.state.last_stamp }
    }
    pub fn check(&self) {
        assert!(self.requested.is_none_or(|request| request.deep || !request.repair));
    }

    /// How many seconds pass between two scrubs.
    fn intervals(&self, pool: &Pool, rules: &ScrubConfig) -> Intervals {
        let of_pool = |option: u32, general: u64| match pool.options.get(&option) {
            Some(PoolOption::Float(secs)) if *secs > 0.0 => *secs as u64,
            _ => general,
        };
        let min = of_pool(pool_option::SCRUB_MIN_INTERVAL, rules.min_interval);
        Intervals {
            // Placement groups of the same age are not all scrubbed at once.
            min: min + min / 2 * (u64::from(self.pg.seed.wrapping_mul(0x9e37_79b9)) >> 16) / 0x1_0000,
            max: of_pool(pool_option::SCRUB_MAX_INTERVAL, rules.max_interval),
            deep: of_pool(pool_option::DEEP_SCRUB_INTERVAL, rules.deep_interval),
        }
    }

    /// When the primary will scrub again.
    fn plan(&self, map: &OsdMap, rules: &ScrubConfig, now: Utime) -> Option<ScrubPlan> {
        let Intervals { min, max, .. } = self.intervals(map.pool(self.pg.pool)?, rules);
        let last = self.state.last_stamp;
        let after = |secs: u64| Utime {
            sec: last.sec.saturating_add(u32::try_from(secs).unwrap_or(u32::MAX)),
            ..last
        };
        let wanted = self.requested.is_some();
        Some(ScrubPlan { from: if wanted { now } else { after(min) }, until: after(max), wanted })
    }

    /// Which kind of scrub is due, and how urgent it is.
    fn due(&self, ctx: &Ctx<'_>) -> Option<(ScrubRequest, u64)> {
        if let Some(wanted) = self.requested {
            return Some((wanted, u64::MAX));
        }
        let pace = &ctx.budget.scrub;
        let pool = ctx.map.pool(self.pg.pool)?;
        let Intervals { min, max, deep } = self.intervals(pool, &pace.rules);
        let wall = ctx.now.wall;
        let age = |stamp: Utime| u64::from(wall.sec.saturating_sub(stamp.sec));
        let (age, deep_age) = (age(self.state.last_stamp), age(self.state.last_deep_stamp));
        let may = |flag, of_pool| !ctx.map.has(flag) && !pool.has(of_pool);
        let may_light = may(map_flags::NOSCRUB, pool_flags::NOSCRUB);
        let may_deep = may(map_flags::NODEEP_SCRUB, pool_flags::NODEEP_SCRUB);
        let calm = !pace.busy && pace.rules.may_begin(u64::from(wall.sec) / 3600 % 24);
        let light = may_light && (age > max || (age > min && calm));
        let deep = may_deep && (deep_age > deep + deep / 2 || (deep_age > deep && (calm || light)));
        (light || deep).then_some((ScrubRequest { deep, repair: false }, age.max(deep_age)))
    }
}

/// Events, on whichever member they arrive.
impl Pg {
    /// The parts that a scrub works on, if this OSD is the primary and serves.
    fn scrub_parts(&mut self) -> Option<(&mut Scrub, Scope<'_>)> {
        let Phase::Active(active) = &mut self.phase else { return None };
        let scope = Scope {
            backend: &self.backend,
            interval: &self.interval,
            history: &mut self.history,
            pending: &mut self.pending,
            record: &mut self.scrub,
            members: &mut active.members,
            recovery: &mut active.recovery,
        };
        Some((&mut active.scrub, scope))
    }

    pub fn scrub_tick(&mut self, ctx: &mut Ctx<'_>) {
        if let Some((scrub, mut scope)) = self.scrub_parts() {
            scrub.tick(&mut scope, ctx);
        }
    }
    /// It is this placement group's turn.
    pub fn start_scrub(&mut self, ctx: &mut Ctx<'_>) {
        if let Some((scrub, mut scope)) = self.scrub_parts() {
            scrub.start(&mut scope, ctx);
        }
    }
    pub fn step_scrub(&mut self, ctx: &mut Ctx<'_>) {
        if let Some((scrub, mut scope)) = self.scrub_parts() {
            scrub.step(&mut scope, ctx);
        }
    }
    /// Messages to that OSD may have been lost.
    pub fn scrub_opened(&mut self, ctx: &mut Ctx<'_>, osd: OsdId) {
        if let Some((scrub, mut scope)) = self.scrub_parts() {
            scrub.opened(&mut scope, ctx, osd);
        }
    }
    pub fn scrub_plan(&self, map: &OsdMap, rules: &ScrubConfig, now: Utime) -> Option<ScrubPlan> {
        let is_primary = self.interval.primary == Some(self.me);
        if is_primary { self.scrub.plan(map, rules, now) } else { None }
    }
    pub fn last_scrub(&self, deep: bool) -> Utime {
        self.scrub.last(deep)
    }

    pub fn on_scrub(&mut self, ctx: &mut Ctx<'_>, from: OsdId, msg: ScrubMsg) {
        let is_from_primary = self.interval.primary == Some(from) && self.is_replica_with_log();
        match msg {
            ScrubMsg::Query { id, at, query } if is_from_primary => {
                self.on_scrub_query(ctx, from, id, at, query);
            }
            ScrubMsg::Answer { id, answer } => {
                if let Some((scrub, mut scope)) = self.scrub_parts() {
                    scrub.on_answer(&mut scope, ctx, from, id, answer);
                }
            }
            // The primary found that our copy is wrong.
            ScrubMsg::Mend { object, stale } if is_from_primary && self.history.range.contains(&object) => {
                let update = self.history.discard_copy(ctx.store, &object, &stale);
                self.apply(ctx, update);
            }
            ScrubMsg::Note(note) if is_from_primary => {
                if let Some(txn) = self.scrub.take_note(ctx, &self.history.range, &note) {
                    self.store(ctx, txn);
                }
            }
            _ => {}
        }
    }

    fn on_scrub_query(&mut self, ctx: &mut Ctx<'_>, from: OsdId, id: u64, at: Version, query: ScrubQuery) {
        let answer = if self.history.info.last_update != at || !self.pending.unapplied.is_empty() {
            None
        } else {
            let parts = (&self.history, &mut self.pending);
            match self.scrub.reply(ctx, parts, Some(from), id, query) {
                Some(answer) => Some(answer),
                None => return,
            }
        };
        ctx.out.push(PgEffect::answer(from, PgMsg::Scrub(Box::new(ScrubMsg::Answer { id, answer }))));
    }

    pub fn on_sum_read(&mut self, ctx: &mut Ctx<'_>, number: u64, result: Result<Vec<Bytes>, ReadError>) {
        let Some((asker, id, answer)) = self.scrub.on_sum_read(ctx, number, result) else { return };
        let (me, answer) = (self.me, Some(answer));
        match asker {
            Some(osd) => {
                let msg = Box::new(ScrubMsg::Answer { id, answer });
                ctx.out.push(PgEffect::answer(osd, PgMsg::Scrub(msg)));
            }
            None => {
                if let Some((scrub, mut scope)) = self.scrub_parts() {
                    scrub.on_answer(&mut scope, ctx, me, id, answer);
                }
            }
        }
    }
}

/// The steps of a scrub.
impl Scrub {
    fn tick(&mut self, pg: &mut Scope<'_>, ctx: &mut Ctx<'_>) {
        let now = ctx.now.mono;
        let clean = pg.completeness().is_clean();
        if let Some(running) = &mut self.running {
            if running.asking.as_ref().is_some_and(|asking| now.since(asking.since) > STALLED) {
                running.asking = None;
            }
            if running.asking.is_none() {
                self.step(pg, ctx);
            }
            return;
        }
        if !clean {
            return;
        }
        let told = std::mem::replace(&mut self.told, true);
        if pg.record.take_unsaved() {
            let note = ScrubNote { state: pg.record.state, ..ScrubNote::default() };
            let txn = pg.record.note_txn(ctx, &note);
            pg.store(ctx, txn);
        }
        if !told && pg.record.state.errors() > 0 {
            self.share_note(pg, ctx, ScrubNote::default());
        }
        if let Some((_, urgency)) = pg.record.due(ctx) {
            ctx.budget.scrub.propose(pg.id(), urgency);
        }
    }

    /// It is this placement group's turn.
    fn start(&mut self, pg: &mut Scope<'_>, ctx: &mut Ctx<'_>) {
        let Some((request, _)) = pg.record.due(ctx) else { return };
        let (start, old) = (pg.history.range.start(), pg.record.state);
        if !pg.completeness().is_clean() {
            return;
        }
        if self.running.is_some() {
            return;
        }
        let Some(slot) = ctx.budget.scrub.begin() else { return };
        let mut state = ScrubState { shallow_errors: 0, ..old };
        if request.deep {
            state = ScrubState { deep_errors: 0, omap_keys: 0, omap_bytes: 0, ..state };
        }
        self.running = Some(Box::new(Running {
            request,
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
        ctx.log(Level::Debug, format!("{} {} starts", pg.id(), request.name()));
        self.share_note(
            pg,
            ctx,
            ScrubNote { forget: true, forget_deep: request.deep, ..ScrubNote::default() },
        );
        self.step(pg, ctx);
    }

    // ---- steps ----

    /// The next question, if the last one is answered and there is nothing to recover.
    fn step(&mut self, pg: &mut Scope<'_>, ctx: &mut Ctx<'_>) {
        let whole = pg.completeness().is_whole();
        let now = ctx.now.mono;
        let (id, settled) = (pg.id(), pg.pending.unapplied.is_empty());
        let Some(running) = self.running.as_deref_mut() else { return };
        if running.asking.as_ref().is_some_and(|asking| asking.waits_for.is_empty()) {
            self.take_answers(pg, ctx);
            return;
        }
        if running.asking.is_some() || !whole {
            return; // the answer, or the next tick, continues
        }
        if !settled {
            // The view does not show yet what this turn's writes do.
            ctx.budget.scrub.pause(id, now, Duration::ZERO);
            return;
        }
        if running.exam.is_none()
            && let Some((object, size, suspect)) = running.todo.pop_front()
        {
            let stage = if running.request.deep { Stage::Data(0) } else { Stage::Copies };
            let (content, written, chains) = Default::default();
            let is_locating = false;
            let exam = Exam { object, size, suspect, stage, content, is_locating, written, chains };
            running.exam = Some(Box::new(exam));
        }
        match (&running.exam, running.next.clone()) {
            (Some(_), _) => self.examine(pg, ctx),
            (None, Some(next)) => self.ask_for_names(pg, ctx, next),
            (None, None) => self.finish(pg, ctx),
        }
    }

    fn ask_for_names(&mut self, pg: &mut Scope<'_>, ctx: &mut Ctx<'_>, from: ObjectId) {
        let chunk = ctx.budget.scrub.rules.chunk as usize;
        let objects = match pg.history.range.objects_from(ctx.store, &from, scrub_map::NAMES_MAX) {
            Ok(objects) => objects,
            Err(error) => {
                ctx.log(Level::Error, format!("pg {}: {error}", pg.id()));
                return; // again with the next tick
            }
        };
        // An object and its clones are compared together, unless there are very many of them.
        let is_first = |at: &usize| objects[*at].to_head() != objects[*at - 1].to_head();
        let cut = (chunk..objects.len()).find(is_first);
        let cut = cut.or_else(|| (objects.len() == scrub_map::NAMES_MAX).then(|| objects.len() - 1));
        let to = cut.map(|at| objects[at].clone());
        let ours = &objects[..cut.unwrap_or(objects.len())];
        let clones = check_clones(ctx, ours);
        let query = ScrubQuery::Names { from, to: to.clone(), values: false };
        self.ask_all(pg, ctx, Asked::Names { to, clones }, |_| query.clone());
    }

    fn examine(&mut self, pg: &mut Scope<'_>, ctx: &mut Ctx<'_>) {
        let Some(exam) = self.running.as_deref_mut().and_then(|running| running.exam.as_ref()) else {
            return;
        };
        let object = exam.object.clone();
        let chains = exam.chains.clone();
        match &exam.stage {
            Stage::Data(offset) => {
                let (offset, len) = (*offset, SLICE);
                let chain = |osd| chains.get(&osd).map_or(u32::MAX, |(data, _)| data.unwrap_or_default());
                let equations = pg.equations(exam.is_locating);
                let shards: BTreeMap<OsdId, usize> = pg.shards().into_iter().collect();
                let factors = |osd: OsdId| {
                    let of_shard = |shard: &usize| equations.iter().map(|one| one.factors[*shard]).collect();
                    shards.get(&osd).map(of_shard).unwrap_or_default()
                };
                self.ask_all(pg, ctx, Asked::Data { offset, len, equations: equations.clone() }, |osd| {
                    let (object, factors) = (object.clone(), factors(osd));
                    ScrubQuery::Data { object, offset, len, chain: chain(osd), factors }
                });
            }
            Stage::Omap(from) => {
                let from = from.clone();
                let (to, keys, bytes) = omap_piece(ctx, &object, &from);
                if let Some(running) = self.running.as_deref_mut() {
                    running.state.omap_keys += keys;
                    running.state.omap_bytes += bytes;
                }
                let chain = |osd| chains.get(&osd).map_or(u32::MAX, |(_, omap)| omap.unwrap_or_default());
                self.ask_all(pg, ctx, Asked::Omap { from: from.clone(), to: to.clone() }, |osd| {
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
                self.ask_all(pg, ctx, Asked::Copies, |_| query.clone());
            }
        }
    }

    /// Asks all members, and this one, at the same version.
    fn ask_all(
        &mut self,
        pg: &mut Scope<'_>,
        ctx: &mut Ctx<'_>,
        what: Asked,
        query: impl Fn(OsdId) -> ScrubQuery,
    ) {
        let (me, at, since) = (pg.me(), pg.history.info.last_update, ctx.now.mono);
        self.last_id += 1;
        let id = self.last_id;
        let Some(running) = &mut self.running else { return };
        let others: Vec<OsdId> = pg.members.keys().copied().collect();
        let waits_for = others.iter().copied().chain([me]).collect();
        running.asking = Some(Asking { id, since, waits_for, answers: BTreeMap::new(), what });
        for osd in others {
            let msg = Box::new(ScrubMsg::Query { id, at, query: query(osd) });
            ctx.out.push(PgEffect::ask(osd, PgMsg::Scrub(msg)));
        }
        let parts = (&*pg.history, &mut *pg.pending);
        if let Some(answer) = pg.record.reply(ctx, parts, None, id, query(me)) {
            self.on_answer(pg, ctx, me, id, Some(answer));
        }
    }

    fn on_answer(
        &mut self,
        pg: &mut Scope<'_>,
        ctx: &mut Ctx<'_>,
        from: OsdId,
        id: u64,
        answer: Option<ScrubAnswer>,
    ) {
        let Some(running) = self.running.as_deref_mut() else { return };
        let Some(asking) = running.asking.as_mut().filter(|asking| asking.id == id) else { return };
        let Some(answer) = answer else {
            running.asking = None; // a session ended on the way; the next tick asks again
            return;
        };
        if asking.waits_for.remove(&from) {
            asking.answers.insert(from, answer);
        }
        if asking.waits_for.is_empty() {
            self.take_answers(pg, ctx);
        }
    }

    /// All members replied.
    fn take_answers(&mut self, pg: &mut Scope<'_>, ctx: &mut Ctx<'_>) {
        let (id, now) = (pg.id(), ctx.now.mono);
        if !pg.pending.unapplied.is_empty() {
            // What is to be repaired may be among what this turn's writes change.
            ctx.out.push(PgEffect::Loop);
            return;
        }
        let Some(running) = self.running.as_deref_mut() else { return };
        let Some(Asking { answers, what, since, .. }) = running.asking.take() else { return };
        match what {
            Asked::Names { to, clones } => self.take_names(pg, ctx, answers, to, clones),
            Asked::Copies => self.take_copies(pg, ctx, answers),
            Asked::Data { offset, len, equations } => self.take_data(pg, answers, (offset, len), &equations),
            Asked::Omap { from, to } => self.take_omap(answers, from, to),
        }
        ctx.budget.scrub.pause(id, now, now.since(since));
    }

    fn take_names(
        &mut self,
        pg: &mut Scope<'_>,
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
        objects.retain(|object, _| {
            pg.history.range.contains(object) && to.as_ref().is_none_or(|to| object < to)
        });
        for osd in &silent {
            ctx.log(Level::Error, format!("pg {}: osd.{osd} cannot tell which objects it has", pg.id()));
        }
        let mut suspects = BTreeSet::new();
        let last = objects.last_key_value().map(|(last, _)| last.to_head());
        let Some(running) = self.running.as_deref_mut() else { return };
        for (object, mut copies) in objects {
            for osd in members.iter().filter(|osd| !silent.contains(osd)) {
                copies.entry(*osd).or_insert(None);
            }
            let suspect = !pg.backend.is_consistent(&copies);
            if suspect {
                suspects.insert(object.to_head());
            }
            if suspect || running.request.deep {
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
                if let Some(running) = self.running.as_deref_mut() {
                    running.state.shallow_errors += errors;
                    running.found += errors;
                }
                if errors > 0 {
                    cluster_error(ctx, format!("{} {object}: {}", pg.id(), what_is_wrong(&bad)));
                }
                self.keep_finding(pg, ctx, &object, Finding::Snaps(bad));
            }
        }
    }

    fn take_data(
        &mut self,
        pg: &Scope<'_>,
        answers: BTreeMap<OsdId, ScrubAnswer>,
        (offset, len): (u64, u64),
        equations: &[Equation],
    ) {
        let Some(exam) = self.running.as_deref_mut().and_then(|running| running.exam.as_mut()) else {
            return;
        };
        let fit = pg.fit(&answers, equations);
        if fit != Fit::Whole && !exam.is_locating {
            exam.is_locating = true;
            return; // once more, with more equations
        }
        exam.is_locating = false;
        let sums = sums_of(answers);
        for (osd, sum) in &sums {
            let digests = exam.chains.entry(*osd).or_insert((Some(u32::MAX), Some(u32::MAX)));
            digests.0 = digests.0.and(chain_of(sum));
        }
        let mut sums = pg.backend.comparable(sums);
        match fit {
            Fit::Whole => {}
            Fit::Unknown => exam.content.unlocated = true,
            Fit::Wrong(wrong) => {
                let osd = pg.shards().into_iter().find(|(_, shard)| *shard == wrong).map(|(osd, _)| osd);
                if let Some(ScrubSum::Of { sum, .. }) = osd.and_then(|osd| sums.get_mut(&osd)) {
                    *sum = !*sum; // it differs from all others
                }
            }
        }
        if !is_gone(&sums) && !is_same(&sums) {
            exam.content.data.push((offset..offset + len, sums));
        }
        let next = offset + len;
        exam.stage = if next < exam.size { Stage::Data(next) } else { Stage::Omap(Name::default()) };
    }

    fn take_omap(&mut self, answers: BTreeMap<OsdId, ScrubAnswer>, from: Name, to: Option<Name>) {
        let Some(running) = self.running.as_deref_mut() else { return };
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
    fn take_copies(&mut self, pg: &mut Scope<'_>, ctx: &mut Ctx<'_>, answers: BTreeMap<OsdId, ScrubAnswer>) {
        let me = pg.me();
        let Some(exam) = self.running.as_deref_mut().and_then(|running| running.exam.take()) else { return };
        let copies = answers.into_iter().filter_map(|(osd, answer)| match answer {
            ScrubAnswer::Names { entries, .. } => {
                Some((osd, entries.into_iter().find(|entry| entry.object == exam.object)))
            }
            ScrubAnswer::Sum(_) | ScrubAnswer::Products { .. } => None,
        });
        let copies = copies.collect();
        let shard_of = |osd| pg.interval.shard_of(osd);
        let Some((bad, mut plan)) = pg.backend.scrub_verdict(&copies, &exam.content, me, &shard_of) else {
            return;
        };
        match exam.written {
            Some((EntryKind::Delete, _)) => return,
            Some((_, version)) => plan.is_of(version),
            None => {}
        }
        self.on_bad_object(pg, ctx, &exam.object, bad, plan);
    }

    fn finish(&mut self, pg: &mut Scope<'_>, ctx: &mut Ctx<'_>) {
        if self.auto_repair(pg, ctx) {
            return; // and on when that is done
        }
        let (wall, at) = (ctx.now.wall, pg.history.info.last_update);
        let Some(running) = self.running.take() else { return };
        let Running { request, mut state, began, found, fixed, .. } = *running;
        self.repair_failed = state.errors() > 0 && (request.repair || self.repair_failed);
        (state.last, state.last_stamp) = (at, wall);
        if request.deep {
            (state.last_deep, state.last_deep_stamp) = (at, wall);
        }
        if state.errors() == 0 {
            state.last_clean_stamp = wall;
        }
        pg.record.state = state;
        pg.record.requested = pg
            .record
            .requested
            .filter(|more| (more.deep && !request.deep) || (more.repair && !request.repair));
        if !request.deep && found > 0 && ctx.budget.scrub.rules.auto_repair.is_some() {
            pg.record.request(ScrubRequest { deep: true, repair: false });
        }
        self.share_note(pg, ctx, ScrubNote::default());
        let seconds = wall.sec.saturating_sub(began.sec);
        let name = format!("{} {}", pg.id(), request.name());
        ctx.log(Level::Debug, format!("{name} took {seconds} s"));
        match (found, fixed) {
            (0, _) => ctx.log(Level::Debug, format!("{name} ok")),
            (found, 0) => cluster_error(ctx, format!("{name} {found} errors")),
            (found, fixed) => cluster_error(ctx, format!("{name} {found} errors, {fixed} fixed")),
        }
        ctx.out.push(PgEffect::Report);
    }

    /// Messages to that OSD may have been lost.
    fn opened(&mut self, pg: &mut Scope<'_>, ctx: &mut Ctx<'_>, osd: OsdId) {
        self.resend_repairs(pg, ctx, osd);
        self.told = false;
        if let Some(running) = &mut self.running {
            running.asking = None; // the next tick asks again
        }
    }
}

/// For the cluster's log.
fn cluster_error(ctx: &mut Ctx<'_>, text: String) {
    ctx.out.push(PgEffect::ClusterLog(ERROR, text));
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
        ScrubAnswer::Products { sum, chain, .. } => ScrubSum::Of { sum, chain },
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
