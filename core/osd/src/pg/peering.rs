//! How the primary of a new interval finds out what the group's content is, and makes all of
//! acting agree, before it serves.
//!
//!   Gathering       the activation record from the monitors, and from every OSD that may matter
//!                   what it has
//!   Queued          until there is room for what follows beside what other groups do (`PeeringMemory`)
//!   FetchingLog     from the survivor of the recorded acting set whose log is the authority
//!   Following       what changed, if our log does not overlap with that one
//!   Merging         every member makes its log the same, durably, and says what it misses
//!   Committing      the monitors commit {interval, acting}: the next primary needs a survivor of us
//!   WaitingOut      until no older primary can hold a lease from all of its replicas
//!
//! `Down` and `TooFew` wait for maps that change something; `Down` also for an operator who has the group begin
//! empty, after which the record names nobody.
//!
//! Why a survivor of the record suffices: a write was acknowledged only when all of the acting set
//! had it, and only in an interval whose record was committed before. The monitors refuse records
//! of intervals older than one they know, and the answer that counts is from a monitor that knows
//! ours: no later record can turn up.

use super::active::{Active, Member};
use super::inventory_scan::{InventoryScan, Page};
use super::log::{Log, part_for};
use super::mark_lost::{is_declared_lost, who};
use super::missing::Missing;
use super::recovery::StraySource;
use super::{Ctx, Pg, PgEffect, Phase, WhenStored};
use crate::throttle::{PeeringGrant, PeeringNeed};
use nacre_base::{Epoch, OsdId, Time, Version};
use nacre_machine::Level;
use nacre_proto::maps::OsdMap;
use nacre_proto::messages::PgRecord;
use nacre_proto::messages::part::Stale;
use nacre_proto::messages::peer::{PgInfo, PgLog, PgMsg};
use nacre_proto::types::ObjectId;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long a silent peer or monitor is waited for before it is asked again.
/// Ceph has it as `osd_peering_retry_interval`.
const RETRY: Duration = Duration::from_secs(1);
/// A group that is not done after so long goes on, but holds up no other.
const ROOM_MAX: Duration = Duration::from_secs(10);
/// What a group holds while its members agree: for each of them, and for each entry that it lacks.
const MEMBER_COST: u64 = 1 << 10;
const ENTRY_COST: u64 = 300;

struct PeerState {
    info: Option<PgInfo>,
    /// An older primary may rely on it until then.
    lease_until: Time,
}

enum Step {
    Gathering,
    Queued,
    FetchingLog { from: OsdId },
    Scanning(Box<InventoryScan>),
    Merging { waiting: BTreeSet<OsdId> },
    Committing,
    WaitingOut,
    Down(String),
    TooFew,
}

pub struct Peering {
    step: Step,
    /// The monitors' answer.
    record: Option<Option<PgRecord>>,
    peers: BTreeMap<OsdId, PeerState>,
    /// Who told us, unasked, that it has the group.
    strays: BTreeSet<OsdId>,
    /// What the members miss, once they have the log.
    missing: BTreeMap<OsdId, Missing>,
    leases: BTreeMap<OsdId, Time>,
    /// Older primaries cannot serve after this.
    leases_end: Time,
    asked: Time,
    /// What it may hold until it serves, and since when it does.
    room: Option<(PeeringGrant, Time)>,
    /// It had that, for too long.
    overdue: bool,
}

impl Peering {
    /// Whether that OSD can serve the group without us: it is one of those who have all writes, and lacks nothing.
    pub fn has_all(&self, osd: OsdId) -> bool {
        let record = self.record.as_ref().and_then(Option::as_ref);
        record.is_some_and(|record| record.acting.contains(&osd))
            && self.missing.get(&osd).is_some_and(Missing::is_empty)
    }
    pub fn new() -> Peering {
        Peering {
            step: Step::Gathering,
            record: None,
            peers: BTreeMap::new(),
            strays: BTreeSet::new(),
            missing: BTreeMap::new(),
            leases: BTreeMap::new(),
            leases_end: Time::ZERO,
            asked: Time::ZERO,
            room: None,
            overdue: false,
        }
    }

    pub fn on_lease(&mut self, from: OsdId, until: Time) {
        self.leases.insert(from, until);
    }
    pub fn lease_grantors(&self) -> Vec<OsdId> {
        match self.step {
            Step::Committing | Step::WaitingOut => self.missing.keys().copied().collect(),
            _ => Vec::new(),
        }
    }
    pub fn add_stray(&mut self, osd: OsdId) {
        self.strays.insert(osd);
    }
    pub fn is_down(&self) -> bool {
        matches!(self.step, Step::Down(_))
    }
    pub fn is_too_few(&self) -> bool {
        matches!(self.step, Step::TooFew)
    }
    pub fn is_activating(&self) -> bool {
        matches!(self.step, Step::Committing | Step::WaitingOut)
    }

    /// In words, for those who ask why there is no I/O.
    pub fn waits_for(&self) -> String {
        let list = |osds: Vec<OsdId>| {
            let names: Vec<String> = osds.iter().map(|osd| format!("osd.{osd}")).collect();
            names.join(", ")
        };
        match &self.step {
            Step::Gathering => {
                let silent: Vec<OsdId> = self.asked_peers().collect();
                match (self.record.is_some(), silent.is_empty()) {
                    (false, _) => "the monitors' activation record".into(),
                    (true, false) => format!("answers of {}", list(silent)),
                    (true, true) => "the next map".into(),
                }
            }
            Step::Queued => "its turn: the number of placement groups that peer at a time is limited".into(),
            Step::FetchingLog { from } => format!("the log of osd.{from}"),
            Step::Scanning(scan) => scan.waits_for(),
            Step::Merging { waiting } => {
                format!("the log to be durable on {}", list(waiting.iter().copied().collect()))
            }
            Step::Committing => "the monitors to commit the activation record".into(),
            Step::WaitingOut => "the leases of the previous primary to expire".into(),
            Step::Down(why) => why.clone(),
            Step::TooFew => "more members: there are fewer than the pool's min_size".into(),
        }
    }

    /// What those have who answered.
    pub fn infos(&self) -> impl Iterator<Item = (OsdId, &PgInfo)> {
        self.peers.iter().filter_map(|(osd, peer)| Some((*osd, peer.info.as_ref()?)))
    }

    /// Which of Ceph's states this is, below "Peering", and on whom it waits.
    pub fn ceph_state(&self) -> (&'static str, Value) {
        let named = |osds: Vec<OsdId>| -> Vec<Value> {
            osds.iter().map(|osd| json!({"osd": osd.to_string()})).collect()
        };
        match &self.step {
            Step::Gathering => {
                ("/GetInfo", json!({"requested_info_from": named(self.asked_peers().collect())}))
            }
            Step::Queued => ("/GetLog", json!({})),
            Step::FetchingLog { from } => ("/GetLog", json!({"auth_log_shard": from.to_string()})),
            Step::Scanning(_) => ("/GetMissing", json!({})),
            Step::Merging { waiting } => {
                ("/GetMissing", json!({"peer_missing_requested": named(waiting.iter().copied().collect())}))
            }
            Step::Committing | Step::WaitingOut => ("/WaitUpThru", json!({})),
            Step::Down(_) => ("/Down", json!({})),
            Step::TooFew => ("/Incomplete", json!({})),
        }
    }

    /// Whom it asks, and who would be asked if they were up.
    pub fn blocked_json(&self, map: &OsdMap) -> Value {
        let recorded = self.record.iter().flatten().flat_map(|record| &record.acting);
        let down: BTreeSet<OsdId> =
            recorded.copied().filter(|osd| osd.is_some() && !map.is_up(*osd)).collect();
        let blockers: &BTreeSet<OsdId> = if self.is_down() { &down } else { &BTreeSet::new() };
        let blocker = |osd: &OsdId| {
            json!({
                "osd": osd.0,
                "current_lost_at": map.osd(*osd).map_or(0, |known| known.info.lost_at.0),
                "comment": "starting or marking this osd lost may let us proceed",
            })
        };
        let mut shown = json!({
            "past_intervals": [],
            "probing_osds": self.peers.keys().map(ToString::to_string).collect::<Vec<_>>(),
        });
        if !blockers.is_empty() {
            shown["blocked"] = json!("peering is blocked due to down osds");
        }
        shown["down_osds_we_would_probe"] = json!(down.iter().map(|osd| osd.0).collect::<Vec<_>>());
        shown["peering_blocked_by"] = blockers.iter().map(blocker).collect();
        shown
    }

    /// Whose history ours is to become.
    fn source(&self) -> Option<OsdId> {
        match &self.step {
            Step::FetchingLog { from } => Some(*from),
            Step::Scanning(scan) => Some(scan.source),
            _ => None,
        }
    }
    /// Those who were asked and did not answer.
    fn asked_peers(&self) -> impl Iterator<Item = OsdId> {
        self.peers.iter().filter(|(_, peer)| peer.lease_until == UNANSWERED).map(|(osd, _)| *osd)
    }
}

/// Entries that a member lacks of the log that this is about.
fn lacks(authority: &PgInfo, has: Option<PgInfo>) -> u64 {
    let overlapping = has.filter(|has| Log::overlaps(has, authority));
    let from = overlapping.map_or(authority.log_tail, |has| has.last_update.min(authority.last_update));
    authority.last_update.version.saturating_sub(from.version)
}

/// What it takes until members have the log that this is about, who have this now.
fn need(authority: &PgInfo, members: impl Iterator<Item = Option<PgInfo>>) -> PeeringNeed {
    let lack: Vec<u64> = members.map(|has| lacks(authority, has)).collect();
    let entries = lack.iter().sum();
    PeeringNeed { bytes: lack.len() as u64 * MEMBER_COST + entries * ENTRY_COST, entries }
}

/// Stands in for the answer of a peer that has not given one.
const UNANSWERED: Time = Time { nanos: u64::MAX };

impl Pg {
    fn peering(&mut self) -> Option<&mut Peering> {
        match &mut self.phase {
            Phase::Peering(peering) => Some(peering),
            _ => None,
        }
    }

    pub fn start_peering(&mut self, ctx: &mut Ctx<'_>) {
        let (me, own) = (self.me, PeerState { info: Some(self.info), lease_until: self.lease_end(&ctx.map) });
        let now = ctx.now.mono;
        self.waits_since.get_or_insert(now);
        let Some(peering) = self.peering() else { return };
        peering.asked = now;
        peering.peers.insert(me, own);
        ctx.out.push(PgEffect::QueryRecord);
        self.ask_around(ctx);
        self.advance_peering(ctx);
    }

    /// Asks those who may matter, are up, and were not asked yet.
    pub fn ask_around(&mut self, ctx: &mut Ctx<'_>) {
        let (me, own, members) = (self.me, self.info, self.interval.acting.clone());
        let Some(peering) = self.peering() else { return };
        let recorded = peering.record.iter().flatten().flat_map(|record| &record.acting);
        let all: BTreeSet<OsdId> = members
            .iter()
            .chain(recorded)
            .chain(&peering.strays)
            .copied()
            .filter(|osd| osd.is_some())
            .collect();
        // An answer that will not come is not waited for, nor is the log of one that answered and is gone.
        peering.peers.retain(|osd, _| *osd == me || ctx.map.is_up(*osd));
        if peering.source().is_some_and(|source| !ctx.map.is_up(source)) {
            peering.step = Step::Gathering;
            // Whoever began to follow can tell less of what it has.
            peering.peers.entry(me).and_modify(|peer| peer.info = Some(own));
        }
        for osd in all {
            if ctx.map.is_up(osd) && !peering.peers.contains_key(&osd) {
                peering.peers.insert(osd, PeerState { info: None, lease_until: UNANSWERED });
                ctx.out.push(PgEffect::ask(osd, PgMsg::InfoQuery));
                if peering.is_down() {
                    // Nobody is to take it for lost before this one has answered.
                    peering.step = Step::Gathering;
                }
            }
        }
    }

    pub fn on_record(&mut self, ctx: &mut Ctx<'_>, epoch: Epoch, record: Option<PgRecord>) {
        let start = self.interval.start;
        let Some(peering) = self.peering() else { return };
        // A monitor that does not know this interval may still commit a record of an older one.
        if epoch < start || peering.record.as_ref() == Some(&record) {
            return;
        }
        // A group that is down hears from an operator this way that its past does not count.
        if peering.record.is_some() && !peering.is_down() {
            return;
        }
        peering.record = Some(record);
        self.ask_around(ctx);
        self.advance_peering(ctx);
    }

    pub fn on_info(&mut self, ctx: &mut Ctx<'_>, from: OsdId, info: Option<PgInfo>, lease_left_ms: u32) {
        let lease_until = ctx.now.mono + Duration::from_millis(lease_left_ms.into());
        let Some(peering) = self.peering() else { return };
        match peering.peers.get_mut(&from) {
            Some(peer) if peer.lease_until == UNANSWERED => *peer = PeerState { info, lease_until },
            _ => return,
        }
        self.advance_peering(ctx);
    }

    /// Goes on as soon as everybody answered.
    pub fn advance_peering(&mut self, ctx: &mut Ctx<'_>) {
        let (me, id, acting) = (self.me, self.id, self.interval.acting.clone());
        let min_size = self.interval.min_size;
        let Some(peering) = self.peering() else { return };
        if !matches!(peering.step, Step::Gathering | Step::Queued | Step::Down(_) | Step::TooFew) {
            return;
        }
        let Some(record) = &peering.record else { return };
        if peering.asked_peers().next().is_some() {
            return;
        }
        let members = acting.iter().filter(|osd| osd.is_some()).count();
        if members < min_size.max(1) {
            peering.step = Step::TooFew;
            return;
        }
        if record.as_ref().is_some_and(PgRecord::is_void) {
            self.begin_empty(ctx);
            return;
        }
        let complete = |peer: &PeerState| peer.info.filter(|info| !info.incomplete);
        // An operator gave up what the last members had: then others may go on without it.
        let given_up = record.as_ref().is_some_and(|record| {
            record.acting.iter().filter(|osd| osd.is_some()).all(|osd| is_declared_lost(&ctx.map, *osd))
        });
        let survivors: BTreeMap<OsdId, PgInfo> = peering
            .peers
            .iter()
            .filter_map(|(&osd, peer)| Some((osd, complete(peer)?)))
            .filter(|(osd, info)| {
                // Without a record the group never served, and whatever there is can be taken.
                given_up
                    || record
                        .as_ref()
                        .is_none_or(|r| r.acting.contains(osd) && info.interval_started >= r.interval)
            })
            .collect();
        // The longest history wins; among equals ours, which saves a round trip.
        let best = survivors.iter().max_by_key(|(osd, info)| {
            let ours = **osd == me;
            (info.interval_started, info.last_update, Reverse(info.log_tail), ours, acting.contains(osd))
        });
        let Some((&best, &best_info)) = best else {
            let (interval, last) =
                record.as_ref().map_or((Epoch(0), &[][..]), |r| (r.interval, &r.acting[..]));
            let names: Vec<String> = last.iter().map(|osd| format!("osd.{osd}")).collect();
            let mut why = format!(
                "one of {}: only they have all writes of the interval that began at epoch {interval}",
                names.join(", ")
            );
            let incomplete =
                |osd: &OsdId| peering.peers.get(osd).and_then(|p| p.info).is_some_and(|i| i.incomplete);
            let incomplete: Vec<OsdId> = last.iter().copied().filter(incomplete).collect();
            if !incomplete.is_empty() {
                why += "; ";
                why += &who(&incomplete);
                why += " up, and cannot tell what it has (nacre store mark-complete, if no other copy will \
                     return)";
            }
            peering.step = Step::Down(why);
            return;
        };
        if peering.room.is_none() && !peering.overdue {
            let known = acting.iter().filter(|osd| osd.is_some()).map(|osd| peering.peers.get(osd)?.info);
            let Some(room) = ctx.budget.peering.request(ctx.now.mono, id, need(&best_info, known), false)
            else {
                peering.step = Step::Queued;
                return;
            };
            peering.room = Some((room, ctx.now.mono));
        }
        peering.leases_end = if record.is_some() {
            survivors.keys().filter_map(|osd| peering.peers.get(osd)).map(|peer| peer.lease_until).min()
        } else {
            None
        }
        .unwrap_or(Time::ZERO);
        if best == me {
            let log = PgLog { info: best_info, after: best_info.last_update, ..PgLog::default() };
            self.adopt_log(ctx, &log);
            self.merge_everywhere(ctx);
        } else {
            peering.step = Step::FetchingLog { from: best };
            ctx.out.push(PgEffect::ask(best, PgMsg::LogQuery));
        }
    }

    /// An operator gave up all that the group held. The new history begins after all that any OSD may still
    /// have of the old one: with no copy that turns up later does it overlap.
    fn begin_empty(&mut self, ctx: &mut Ctx<'_>) {
        let at = Version::new(self.interval.start, 0);
        let info = PgInfo { last_update: at, log_tail: at, committed_to: at, ..PgInfo::default() };
        let log = PgLog { info, after: at, ..PgLog::default() };
        self.follow_names(ctx, &self.range.start(), &[], None, Some(log));
        self.merge_everywhere(ctx);
    }

    pub fn on_log(&mut self, ctx: &mut Ctx<'_>, from: OsdId, log: PgLog) {
        let Some(peering) = self.peering() else { return };
        if !matches!(peering.step, Step::FetchingLog { from: asked } if asked == from) {
            return;
        }
        if Log::can_join(&self.info, &log) {
            self.adopt_log(ctx, &log);
            self.merge_everywhere(ctx);
        } else {
            let scan = self.start_scan(ctx, from, log);
            if let Some(peering) = self.peering() {
                peering.step = Step::Scanning(Box::new(scan));
            }
        }
    }

    /// A part of what we asked for, in order to follow somebody's history.
    pub fn on_page(&mut self, ctx: &mut Ctx<'_>, from: OsdId, page: Page) {
        let taken = match &mut self.phase {
            Phase::Peering(peering) => match &mut peering.step {
                Step::Scanning(scan) if scan.source == from => {
                    // Until it is put back, nobody looks at the step.
                    match std::mem::replace(&mut peering.step, Step::Gathering) {
                        Step::Scanning(scan) => Some(scan),
                        _ => None,
                    }
                }
                _ => None,
            },
            Phase::Replica(replica) if self.interval.primary == Some(from) => replica.scan.take(),
            _ => None,
        };
        let Some(mut scan) = taken else { return };
        if self.take_page(ctx, &mut scan, page) {
            match self.phase {
                Phase::Replica(_) => self.replica_merged(ctx),
                _ => self.merge_everywhere(ctx),
            }
            return;
        }
        match &mut self.phase {
            Phase::Peering(peering) => peering.step = Step::Scanning(scan),
            Phase::Replica(replica) => replica.scan = Some(scan),
            _ => {}
        }
    }

    /// Our log is the authority's: all of acting make theirs the same.
    fn merge_everywhere(&mut self, ctx: &mut Ctx<'_>) {
        let members: BTreeSet<OsdId> = self.interval.acting.iter().copied().filter(|o| o.is_some()).collect();
        let (me, others) = (self.me, members.clone());
        let Some(peering) = self.peering() else { return };
        peering.step = Step::Merging { waiting: members };
        for osd in others.into_iter().filter(|osd| *osd != me) {
            self.send_merge(ctx, osd);
        }
        self.once_durable(ctx, WhenStored::OwnMerge);
    }

    fn send_merge(&mut self, ctx: &mut Ctx<'_>, osd: OsdId) {
        let Phase::Peering(peering) = &self.phase else { return };
        let theirs = peering.peers.get(&osd).and_then(|peer| peer.info.as_ref());
        let log = part_for(&self.info, &self.log, &self.dups, theirs);
        ctx.out.push(PgEffect::ask(osd, PgMsg::Merge(log)));
    }

    /// A member has the group's log durably.
    pub fn on_merged(
        &mut self,
        ctx: &mut Ctx<'_>,
        from: OsdId,
        at: Version,
        missing: Vec<(ObjectId, Stale)>,
    ) {
        let me = self.me;
        let Some(peering) = self.peering() else {
            self.on_source_merged(ctx, from, at, missing.into_iter().collect());
            return;
        };
        let Step::Merging { waiting } = &mut peering.step else { return };
        if !waiting.remove(&from) {
            return;
        }
        if from != me {
            peering.missing.insert(from, missing.into_iter().collect());
        }
        if waiting.is_empty() {
            peering.step = Step::Committing;
            if let Some((room, _)) = &mut peering.room {
                room.agreed();
            }
            self.commit_record(ctx);
            ctx.out.push(PgEffect::LeasesNow);
        }
    }

    fn commit_record(&mut self, ctx: &mut Ctx<'_>) {
        let (interval, acting) = (self.interval.start, self.interval.acting.clone());
        ctx.out.push(PgEffect::Activate(PgRecord { interval, acting }));
    }

    pub fn on_activated(&mut self, ctx: &mut Ctx<'_>, accepted: bool) {
        let Some(peering) = self.peering() else { return };
        if !matches!(peering.step, Step::Committing) || !accepted {
            return; // refused: the map of a newer interval is on its way
        }
        peering.step = Step::WaitingOut;
        self.serve_when_alone(ctx);
    }

    fn serve_when_alone(&mut self, ctx: &mut Ctx<'_>) {
        let (now, me) = (ctx.now.mono, self.me);
        let Some(peering) = self.peering() else { return };
        if !matches!(peering.step, Step::WaitingOut) || now < peering.leases_end {
            return;
        }
        let leases = &peering.leases;
        let members = std::mem::take(&mut peering.missing)
            .into_iter()
            .map(|(osd, missing)| {
                let lease_until = leases.get(&osd).copied().unwrap_or(Time::ZERO);
                (osd, Member { missing, lease_until })
            })
            .collect::<BTreeMap<_, _>>();
        let have_some = peering.peers.iter().filter_map(|(osd, peer)| Some((*osd, Some(peer.info?))));
        let sources = (peering.strays.iter().map(|osd| (*osd, None)))
            .chain(have_some)
            .filter(|(osd, _)| *osd != me && !members.contains_key(osd))
            .map(|(osd, info)| (osd, StraySource::new(info)))
            .collect();
        let active = Active::new(members, sources, &self.info, &self.log, &self.missing);
        self.phase = Phase::Active(Box::new(active));
        self.last_active = ctx.now.wall;
        ctx.log(Level::Debug, format!("pg {}: active since {}", self.id, self.interval.start));
        self.start_serving(ctx);
    }

    /// There may be room for it now.
    pub fn peering_loop(&mut self, ctx: &mut Ctx<'_>) {
        if matches!(&self.phase, Phase::Peering(peering) if matches!(peering.step, Step::Queued)) {
            self.advance_peering(ctx);
        }
    }

    /// Asks again what was not answered.
    pub fn peering_tick(&mut self, ctx: &mut Ctx<'_>) {
        self.serve_when_alone(ctx);
        let now = ctx.now.mono;
        let Some(peering) = self.peering() else { return };
        if peering.room.take_if(|(_, since)| now.since(*since) >= ROOM_MAX).is_some() {
            peering.overdue = true;
        }
        if now.since(peering.asked) < RETRY {
            return;
        }
        peering.asked = now;
        if peering.record.is_none() || peering.is_down() {
            ctx.out.push(PgEffect::QueryRecord);
        }
        self.ask_around(ctx);
        self.ask_silent(ctx, None);
        if matches!(&self.phase, Phase::Peering(peering) if matches!(peering.step, Step::Committing)) {
            self.commit_record(ctx);
        }
        self.advance_peering(ctx);
    }

    pub fn peering_opened(&mut self, ctx: &mut Ctx<'_>, osd: OsdId) {
        self.ask_silent(ctx, Some(osd));
    }

    /// Repeats the questions that are open, or those to one peer.
    fn ask_silent(&mut self, ctx: &mut Ctx<'_>, only: Option<OsdId>) {
        let concerns = |osd: OsdId| only.is_none_or(|only| only == osd);
        let me = self.me;
        let Some(peering) = self.peering() else { return };
        let mut merge = Vec::new();
        match &mut peering.step {
            Step::Gathering | Step::Queued | Step::Down(_) | Step::TooFew => {
                let silent = peering.asked_peers().filter(|osd| concerns(*osd));
                ctx.out.extend(silent.map(|osd| PgEffect::ask(osd, PgMsg::InfoQuery)));
            }
            Step::FetchingLog { from } if concerns(*from) => {
                ctx.out.push(PgEffect::ask(*from, PgMsg::LogQuery));
            }
            Step::Scanning(scan) if concerns(scan.source) => {
                scan.ask_again(ctx, Duration::ZERO);
            }
            Step::Merging { waiting } => {
                merge.extend(waiting.iter().copied().filter(|osd| *osd != me && concerns(*osd)));
            }
            _ => {}
        }
        merge.into_iter().for_each(|osd| self.send_merge(ctx, osd));
    }
}
