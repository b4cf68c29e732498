//! Peering: how the primary of a new interval finds the authoritative history and makes all of the acting set
//! agree on it, before it serves.
//!
//!   Gathering       the activation record from the monitors, and the summary of every OSD that may matter
//!   Queued          until the peering throttle admits it (`PeeringMemory`)
//!   FetchingLog     the log of the survivor that the redundancy backend chose
//!   Scanning        an inventory scan, if our log does not overlap with that one
//!   DistributingLog every member makes its log the same, durably, and replies with its missing set
//!   Committing      the monitors commit {interval, acting}: the next primary needs a survivor of us
//!   WaitingOut      until no older primary can hold a lease from all of its replicas
//!
//! `Down` and `TooFew` wait for a map that changes their inputs; `Down` also for `ceph osd force-create-pg`,
//! after which the activation record names no OSD.
//!
//! Why a survivor of the record suffices: a write was acknowledged only when all of the acting set had it,
//! and only in an interval whose record was committed before. The monitors refuse records of intervals older
//! than one they know, and the reply that counts is from a monitor that knows ours: no later record can turn
//! up.
//!
//! `Peering` is the machine. The `impl Pg` at the end passes events to it, and carries out its transitions.

use super::active::{Active, Member};
use super::backend::erasure::moves;
use super::backend::{Backend, Candidates, HistoryChoice};
use super::history::History;
use super::history::log::Log;
use super::history::missing::Missing;
use super::inventory_scan::{InventoryScan, Page, Progress};
use super::mark_lost::{is_declared_lost, osds_are};
use super::recovery::StraySource;
use super::{Ctx, Interval, Pg, PgEffect, Phase, WhenStored};
use crate::throttle::{PeeringGrant, PeeringNeed};
use nacre_base::{Epoch, OsdId, PgId, ShardId, Time, Version};
use nacre_machine::Level;
use nacre_proto::maps::OsdMap;
use nacre_proto::messages::PgRecord;
use nacre_proto::messages::part::Stale;
use nacre_proto::messages::peer::{PgInfo, PgLog, PgMsg};
use nacre_proto::types::ObjectId;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Time after which a query to a silent peer or monitor is repeated.
/// Ceph has it as `osd_peering_retry_interval`.
const RETRY: Duration = Duration::from_secs(1);
/// A placement group that still peers after this time continues without its reservation.
const ROOM_MAX: Duration = Duration::from_secs(10);
/// Memory while the members agree: for each of them, and for each entry that it lacks.
const MEMBER_COST: u64 = 1 << 10;
const ENTRY_COST: u64 = 300;

struct PeerState {
    info: Option<PgInfo>,
    /// The holder of a shard lacks something of it.
    is_lacking: bool,
    /// An older primary may rely on it until then.
    lease_until: Time,
}

enum Step {
    Gathering,
    Queued,
    FetchingLog { from: OsdId },
    Scanning(Box<InventoryScan>),
    DistributingLog { waiting: BTreeSet<OsdId> },
    Committing,
    WaitingOut,
    Down(String),
    TooFew,
}

pub struct Peering {
    step: Step,
    /// The monitors' reply.
    record: Option<Option<PgRecord>>,
    peers: BTreeMap<OsdId, PeerState>,
    /// OSDs that announced, unasked, that they have the placement group.
    strays: BTreeSet<OsdId>,
    /// The missing sets of the members that have the log.
    missing: BTreeMap<OsdId, Missing>,
    leases: BTreeMap<OsdId, Time>,
    /// Older primaries cannot serve after this.
    leases_end: Time,
    asked: Time,
    /// The memory reservation until it serves, and since when it is held.
    room: Option<(PeeringGrant, Time)>,
    /// It held the reservation for too long.
    overdue: bool,
}

impl Peering {
    /// Whether that OSD can serve without us: it is one of those that have all writes, and lacks nothing.
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

    /// The reason why there is no I/O, in words.
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
            Step::DistributingLog { waiting } => {
                format!("the log to be durable on {}", list(waiting.iter().copied().collect()))
            }
            Step::Committing => "the monitors to commit the activation record".into(),
            Step::WaitingOut => "the leases of the previous primary to expire".into(),
            Step::Down(why) => why.clone(),
            Step::TooFew => "more members: there are fewer than the pool's min_size".into(),
        }
    }

    /// The summaries of those that replied.
    pub fn infos(&self) -> impl Iterator<Item = (OsdId, &PgInfo)> {
        self.peers.iter().filter_map(|(osd, peer)| Some((*osd, peer.info.as_ref()?)))
    }

    /// Which of Ceph's states this is, below "Peering", and for which OSDs it waits.
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
            Step::DistributingLog { waiting } => {
                ("/GetMissing", json!({"peer_missing_requested": named(waiting.iter().copied().collect())}))
            }
            Step::Committing | Step::WaitingOut => ("/WaitUpThru", json!({})),
            Step::Down(_) => ("/Down", json!({})),
            Step::TooFew => ("/Incomplete", json!({})),
        }
    }

    /// The OSDs that it asks, and those that it would ask if they were up.
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

    /// The OSD whose history ours is to become.
    fn source(&self) -> Option<OsdId> {
        match &self.step {
            Step::FetchingLog { from } => Some(*from),
            Step::Scanning(scan) => Some(scan.source),
            _ => None,
        }
    }
    /// OSDs that were asked and did not reply.
    fn asked_peers(&self) -> impl Iterator<Item = OsdId> {
        self.peers.iter().filter(|(_, peer)| peer.lease_until == UNANSWERED).map(|(osd, _)| *osd)
    }
}

/// The number of log entries that a member lacks.
fn lacks(authority: &PgInfo, has: Option<PgInfo>) -> u64 {
    let overlapping = has.filter(|has| Log::overlaps(has, authority));
    let from = overlapping.map_or(authority.log_tail, |has| has.last_update.min(authority.last_update));
    authority.last_update.version.saturating_sub(from.version)
}

/// The memory to bring members with these summaries up to the log.
fn need(authority: &PgInfo, members: impl Iterator<Item = Option<PgInfo>>) -> PeeringNeed {
    let lack: Vec<u64> = members.map(|has| lacks(authority, has)).collect();
    let entries = lack.iter().sum();
    PeeringNeed { bytes: lack.len() as u64 * MEMBER_COST + entries * ENTRY_COST, entries }
}

/// Stands in for the reply of a peer that has not sent one.
const UNANSWERED: Time = Time { nanos: u64::MAX };

/// What the placement group does next.
enum Next {
    Wait,
    /// Begins empty: an operator ran `ceph osd force-create-pg`.
    BeginEmpty,
    /// Our own history, with this summary, is the authoritative one.
    AdoptOwn(PgInfo),
    /// What is here is of a shard that another OSD holds now: it is deleted first.
    DeleteOwn,
}

impl Peering {
    fn is_step(&self, is: impl Fn(&Step) -> bool) -> bool {
        is(&self.step)
    }

    /// Asks the OSDs that may matter, are up, and were not asked yet.
    fn ask_around(&mut self, ctx: &mut Ctx<'_>, history: &History, acting: &[OsdId]) {
        let me = history.me;
        let recorded = self.record.iter().flatten().flat_map(|record| &record.acting);
        let all: BTreeSet<OsdId> =
            acting.iter().chain(recorded).chain(&self.strays).copied().filter(|osd| osd.is_some()).collect();
        // A reply that will not come is not waited for, nor is the log of an OSD that replied and is gone.
        self.peers.retain(|osd, _| *osd == me || ctx.map.is_up(*osd));
        if self.source().is_some_and(|source| !ctx.map.is_up(source)) {
            self.step = Step::Gathering;
            // A scan that began left less that counts here.
            self.peers.entry(me).and_modify(|peer| peer.info = Some(history.info));
        }
        for osd in all {
            if ctx.map.is_up(osd) && !self.peers.contains_key(&osd) {
                self.peers.insert(osd, PeerState { info: None, is_lacking: false, lease_until: UNANSWERED });
                ctx.out.push(PgEffect::ask(osd, PgMsg::InfoQuery));
                if self.is_down() {
                    // No data is taken for lost before this OSD has replied.
                    self.step = Step::Gathering;
                }
            }
        }
    }

    /// True if the record changed.
    fn take_record(&mut self, interval: Epoch, epoch: Epoch, record: Option<PgRecord>) -> bool {
        // A monitor that does not know this interval may still commit a record of an older one.
        if epoch < interval || self.record.as_ref() == Some(&record) {
            return false;
        }
        // `ceph osd force-create-pg` reaches a placement group that is down by this record.
        if self.record.is_some() && !self.is_down() {
            return false;
        }
        self.record = Some(record);
        true
    }

    /// True if it was asked for.
    fn take_info(&mut self, from: OsdId, answer: PeerState) -> bool {
        match self.peers.get_mut(&from) {
            Some(peer) if peer.lease_until == UNANSWERED => *peer = answer,
            _ => return false,
        }
        true
    }

    /// Continues when all replies have arrived.
    fn advance(
        &mut self,
        ctx: &mut Ctx<'_>,
        (pg, me): (PgId, OsdId),
        interval: &Interval,
        backend: &Backend,
    ) -> Next {
        if !matches!(self.step, Step::Gathering | Step::Queued | Step::Down(_) | Step::TooFew) {
            return Next::Wait;
        }
        let Some(record) = &self.record else { return Next::Wait };
        if self.asked_peers().next().is_some() {
            return Next::Wait;
        }
        let acting = &interval.acting;
        if interval.shards > 0 && !backend.is_erasure() {
            self.step = Step::Down("a pool with an erasure code profile that is right".into());
            return Next::Wait;
        }
        if interval.members_len() < interval.min_size.max(1) {
            self.step = Step::TooFew;
            return Next::Wait;
        }
        if record.as_ref().is_some_and(PgRecord::is_void) {
            return Next::BeginEmpty;
        }
        let complete = |peer: &PeerState| peer.info.filter(|info| !info.incomplete);
        // An operator declared the last members lost: then others may continue without their data.
        let given_up = record.as_ref().is_some_and(|record| {
            record.acting.iter().filter(|osd| osd.is_some()).all(|osd| is_declared_lost(&ctx.map, *osd))
        });
        let infos = self.peers.iter().filter_map(|(osd, peer)| Some((*osd, complete(peer)?))).collect();
        let candidates = Candidates { infos, record: record.as_ref(), given_up, me, acting };
        let Some(choice) = backend.choose_history(&candidates) else {
            let why = self.why_down(record.as_ref());
            self.step = Step::Down(why);
            return Next::Wait;
        };
        let is_recorded = record.is_some();
        if backend.is_erasure() {
            let misplaced = self.misplaced(interval);
            let stays = |(osd, shard): &(OsdId, ShardId)| {
                choice.survivors.contains(osd) || !self.is_elsewhere(interval, &choice, *shard)
            };
            let stay: Vec<(OsdId, ShardId)> = misplaced.iter().copied().filter(stays).collect();
            if let (Some((osd, _)), Some(record)) = (stay.first(), record) {
                let acting = moves::at_their_shards(interval, &stay);
                ctx.out.push(PgEffect::RequestPgTemp(record.clone(), acting));
                self.step = Step::Down(format!("a map in which osd.{osd} is at the place of its shard"));
                return Next::Wait;
            }
            if misplaced.iter().any(|(osd, _)| *osd == me) {
                return Next::DeleteOwn;
            }
        }
        if self.room.is_none() && !self.overdue {
            let known = acting.iter().filter(|osd| osd.is_some()).map(|osd| self.peers.get(osd)?.info);
            let Some(room) = ctx.budget.peering.request(ctx.now.mono, pg, need(&choice.info, known), false)
            else {
                self.step = Step::Queued;
                return Next::Wait;
            };
            self.room = Some((room, ctx.now.mono));
        }
        let leases =
            choice.survivors.iter().filter_map(|osd| self.peers.get(osd)).map(|peer| peer.lease_until);
        self.leases_end = if is_recorded { leases.min() } else { None }.unwrap_or(Time::ZERO);
        if choice.source == me {
            return Next::AdoptOwn(choice.info);
        }
        self.step = Step::FetchingLog { from: choice.source };
        ctx.out.push(PgEffect::ask(choice.source, PgMsg::LogQuery));
        Next::Wait
    }

    /// Members that hold another shard than that of their places, and which.
    fn misplaced(&self, interval: &Interval) -> Vec<(OsdId, ShardId)> {
        let held = |osd: &OsdId| {
            let info = self.peers.get(osd)?.info.filter(|info| info.interval_started > Epoch(0))?;
            let is_other = info.shard.is_some() && info.shard != interval.shard_of(*osd);
            is_other.then_some((*osd, info.shard))
        };
        interval.acting.iter().filter_map(held).collect()
    }
    /// Whether a member at a place of that shard has all of it. An OSD that has only begun to get it has not,
    /// and then the one that held it before must not delete it.
    fn is_elsewhere(&self, interval: &Interval, choice: &HistoryChoice, shard: ShardId) -> bool {
        let has_all = |osd: &OsdId| {
            let Some(PeerState { info: Some(info), is_lacking: false, .. }) = self.peers.get(osd) else {
                return false;
            };
            info.shard == shard
                && interval.shard_of(*osd) == shard
                && info.last_update == choice.info.last_update
        };
        choice.survivors.iter().any(has_all)
    }

    /// Too few of the last members are up.
    fn why_down(&self, record: Option<&PgRecord>) -> String {
        let (interval, last) = record.map_or((Epoch(0), &[][..]), |r| (r.interval, &r.acting[..]));
        let names: Vec<String> = last.iter().map(|osd| format!("osd.{osd}")).collect();
        let mut why = format!(
            "one of {}: only they have all writes of the interval that began at epoch {interval}",
            names.join(", ")
        );
        let is_incomplete =
            |osd: &OsdId| self.peers.get(osd).and_then(|p| p.info).is_some_and(|i| i.incomplete);
        let incomplete: Vec<OsdId> = last.iter().copied().filter(is_incomplete).collect();
        if !incomplete.is_empty() {
            why += "; ";
            why += &osds_are(&incomplete);
            why += " up, and cannot tell what it has (nacre store mark-complete, if no other copy will \
                     return)";
        }
        why
    }

    /// Whether this OSD was asked for its log.
    fn expects_log(&self, from: OsdId) -> bool {
        self.is_step(|step| matches!(step, Step::FetchingLog { from: asked } if *asked == from))
    }

    /// Takes out the scan of that OSD's inventory; the caller puts it back, or goes on to merging.
    fn take_scan(&mut self, source: OsdId) -> Option<Box<InventoryScan>> {
        if !self.is_step(|step| matches!(step, Step::Scanning(scan) if scan.source == source)) {
            return None;
        }
        match std::mem::replace(&mut self.step, Step::Gathering) {
            Step::Scanning(scan) => Some(scan),
            _ => None,
        }
    }

    /// Our log is the authoritative one: all of acting make theirs the same.
    fn begin_distributing(&mut self, ctx: &mut Ctx<'_>, history: &History, acting: &[OsdId]) {
        let members: BTreeSet<OsdId> = acting.iter().copied().filter(|osd| osd.is_some()).collect();
        self.step = Step::DistributingLog { waiting: members.clone() };
        for osd in members.into_iter().filter(|osd| *osd != history.me) {
            self.send_log(ctx, history, osd);
        }
    }
    fn send_log(&self, ctx: &mut Ctx<'_>, history: &History, osd: OsdId) {
        let theirs = self.peers.get(&osd).and_then(|peer| peer.info.as_ref());
        ctx.out.push(PgEffect::ask(osd, PgMsg::AdoptLog(history.log_for(theirs))));
    }
    /// A member has the log durably. True if all have.
    fn take_log_adopted(&mut self, me: OsdId, from: OsdId, missing: Missing) -> bool {
        let Step::DistributingLog { waiting } = &mut self.step else { return false };
        if !waiting.remove(&from) {
            return false;
        }
        let all = waiting.is_empty();
        if from != me {
            self.missing.insert(from, missing);
        }
        if all {
            self.step = Step::Committing;
            if let Some((room, _)) = &mut self.room {
                room.agreed();
            }
        }
        all
    }

    /// The monitors committed the record. True if it waited for that.
    fn take_activated(&mut self) -> bool {
        let waited = matches!(self.step, Step::Committing);
        if waited {
            self.step = Step::WaitingOut;
        }
        waited
    }
    fn may_serve(&self, now: Time) -> bool {
        matches!(self.step, Step::WaitingOut) && now >= self.leases_end
    }
    /// The other members, and other holders.
    fn take_holders(&mut self, me: OsdId) -> (BTreeMap<OsdId, Member>, BTreeMap<OsdId, StraySource>) {
        let leases = &self.leases;
        let members = std::mem::take(&mut self.missing)
            .into_iter()
            .map(|(osd, missing)| {
                let lease_until = leases.get(&osd).copied().unwrap_or(Time::ZERO);
                (osd, Member { missing, lease_until })
            })
            .collect::<BTreeMap<_, _>>();
        let have_some = self.peers.iter().filter_map(|(osd, peer)| Some((*osd, Some(peer.info?))));
        let sources = (self.strays.iter().map(|osd| (*osd, None)))
            .chain(have_some)
            .filter(|(osd, _)| *osd != me && !members.contains_key(osd))
            .map(|(osd, info)| (osd, StraySource::new(info)))
            .collect();
        (members, sources)
    }

    /// True if it is time to repeat questions.
    fn tick(&mut self, now: Time) -> bool {
        if self.room.take_if(|(_, since)| now.since(*since) >= ROOM_MAX).is_some() {
            self.overdue = true;
        }
        let due = now.since(self.asked) >= RETRY;
        if due {
            self.asked = now;
        }
        due
    }

    /// Repeats the questions that are open, or those to one peer.
    fn ask_silent(&mut self, ctx: &mut Ctx<'_>, history: &History, only: Option<OsdId>) {
        let concerns = |osd: OsdId| only.is_none_or(|only| only == osd);
        match &mut self.step {
            Step::Gathering | Step::Queued | Step::Down(_) | Step::TooFew => {
                let silent = self.asked_peers().filter(|osd| concerns(*osd));
                ctx.out.extend(silent.map(|osd| PgEffect::ask(osd, PgMsg::InfoQuery)));
            }
            Step::FetchingLog { from } if concerns(*from) => {
                ctx.out.push(PgEffect::ask(*from, PgMsg::LogQuery));
            }
            Step::Scanning(scan) if concerns(scan.source) => scan.ask_again(ctx, Duration::ZERO),
            Step::DistributingLog { waiting } => {
                let silent = waiting.iter().copied().filter(|osd| *osd != history.me && concerns(*osd));
                let silent: Vec<OsdId> = silent.collect();
                silent.into_iter().for_each(|osd| self.send_log(ctx, history, osd));
            }
            _ => {}
        }
    }

    pub fn check(&self, me: OsdId) {
        assert!(!self.missing.contains_key(&me), "our own missing set is in the history");
        if let Step::DistributingLog { waiting } = &self.step {
            assert!(!waiting.is_empty());
        }
    }
}

/// Events for the machine, and its transitions.
impl Pg {
    fn peering(&mut self) -> Option<&mut Peering> {
        match &mut self.phase {
            Phase::Peering(peering) => Some(peering),
            _ => None,
        }
    }

    pub fn start_peering(&mut self, ctx: &mut Ctx<'_>) {
        let (me, now) = (self.me, ctx.now.mono);
        let is_lacking = !self.history.missing.is_empty();
        let lease_until = self.leases.end(&ctx.map);
        let own = PeerState { info: Some(self.history.info), is_lacking, lease_until };
        self.waiting_for_active.begin(now);
        let Some(peering) = self.peering() else { return };
        peering.asked = now;
        peering.peers.insert(me, own);
        ctx.out.push(PgEffect::QueryRecord);
        self.ask_around(ctx);
        self.advance_peering(ctx);
    }

    pub fn ask_around(&mut self, ctx: &mut Ctx<'_>) {
        if let Phase::Peering(peering) = &mut self.phase {
            peering.ask_around(ctx, &self.history, &self.interval.acting);
        }
    }

    pub fn on_record(&mut self, ctx: &mut Ctx<'_>, epoch: Epoch, record: Option<PgRecord>) {
        let start = self.interval.start;
        if self.peering().is_some_and(|peering| peering.take_record(start, epoch, record)) {
            self.ask_around(ctx);
            self.advance_peering(ctx);
        }
    }

    /// Another holder's summary, and whether it lacks something of its shard.
    pub fn on_info(
        &mut self,
        ctx: &mut Ctx<'_>,
        from: OsdId,
        (info, is_lacking): (Option<PgInfo>, bool),
        lease_left_ms: u32,
    ) {
        let lease_until = ctx.now.mono + Duration::from_millis(lease_left_ms.into());
        let answer = PeerState { info, is_lacking, lease_until };
        if self.peering().is_some_and(|peering| peering.take_info(from, answer)) {
            self.advance_peering(ctx);
        }
    }

    pub fn advance_peering(&mut self, ctx: &mut Ctx<'_>) {
        let Phase::Peering(peering) = &mut self.phase else { return };
        match peering.advance(ctx, (self.id, self.me), &self.interval, &self.backend) {
            Next::Wait => {}
            Next::BeginEmpty => self.begin_empty(ctx),
            Next::DeleteOwn => self.delete_other_shard(ctx),
            Next::AdoptOwn(info) => {
                let log = PgLog { info, after: info.last_update, ..PgLog::default() };
                let update = self.history.adopt_log(ctx.store, &log, self.interval.start);
                self.apply(ctx, update);
                self.distribute_log(ctx);
            }
        }
    }

    /// `ceph osd force-create-pg`: the placement group begins empty. The new history begins after all
    /// versions that any OSD may still have of the old one: it overlaps with no copy that returns later.
    fn begin_empty(&mut self, ctx: &mut Ctx<'_>) {
        let (start, interval) = (self.history.range.start(), self.interval.start);
        let Some(all) = self.history.objects_beside(ctx, &start, &[], None) else { return };
        let at = Version::new(interval, 0);
        let info = PgInfo { last_update: at, log_tail: at, committed_to: at, ..PgInfo::default() };
        let log = PgLog { info, after: at, ..PgLog::default() };
        let update = self.history.follow_names(ctx, interval, &all, &[], Some(log));
        self.apply(ctx, update);
        self.distribute_log(ctx);
    }

    pub fn on_log(&mut self, ctx: &mut Ctx<'_>, from: OsdId, log: PgLog) {
        if !self.peering().is_some_and(|peering| peering.expects_log(from)) {
            return;
        }
        if Log::can_join(&self.history.info, &log) {
            let update = self.history.adopt_log(ctx.store, &log, self.interval.start);
            self.apply(ctx, update);
            self.distribute_log(ctx);
        } else {
            let scan = self.start_scan(ctx, from, log);
            if let Some(peering) = self.peering() {
                peering.step = Step::Scanning(Box::new(scan));
            }
        }
    }

    /// Begins to follow the history of `source`.
    pub fn start_scan(&mut self, ctx: &mut Ctx<'_>, source: OsdId, log: PgLog) -> InventoryScan {
        let (mut scan, update) = InventoryScan::start(&mut self.history, ctx, source, log);
        self.apply(ctx, update);
        scan.ask(ctx);
        scan
    }

    /// A reply in an inventory scan.
    pub fn on_page(&mut self, ctx: &mut Ctx<'_>, from: OsdId, page: Page) {
        let taken = match &mut self.phase {
            Phase::Peering(peering) => peering.take_scan(from),
            Phase::Replica(replica) if self.interval.primary == Some(from) => replica.scan.take(),
            _ => None,
        };
        let Some(mut scan) = taken else { return };
        let is_done = match scan.take_page(&mut self.history, ctx, self.interval.start, page) {
            Progress::Ignored => false,
            Progress::More(update) => {
                self.apply(ctx, update);
                scan.ask(ctx);
                false
            }
            Progress::Done(update) => {
                self.apply(ctx, update);
                true
            }
        };
        match (&mut self.phase, is_done) {
            (Phase::Replica(_), true) => self.on_authoritative_log(ctx),
            (_, true) => self.distribute_log(ctx),
            (Phase::Peering(peering), false) => peering.step = Step::Scanning(scan),
            (Phase::Replica(replica), false) => replica.scan = Some(scan),
            _ => {}
        }
    }

    /// Our log is the authoritative one.
    fn distribute_log(&mut self, ctx: &mut Ctx<'_>) {
        let Phase::Peering(peering) = &mut self.phase else { return };
        peering.begin_distributing(ctx, &self.history, &self.interval.acting);
        self.once_durable(ctx, WhenStored::OwnLogDurable);
    }

    /// A holder has the log durably.
    pub fn on_log_adopted(
        &mut self,
        ctx: &mut Ctx<'_>,
        from: OsdId,
        at: Version,
        missing: Vec<(ObjectId, Stale)>,
    ) {
        let (me, missing) = (self.me, missing.into_iter().collect());
        let Some(peering) = self.peering() else {
            self.on_stray_adopted(ctx, from, at, missing);
            return;
        };
        if peering.take_log_adopted(me, from, missing) {
            self.commit_record(ctx);
            ctx.out.push(PgEffect::LeasesNow);
        }
    }

    fn commit_record(&mut self, ctx: &mut Ctx<'_>) {
        let (interval, acting) = (self.interval.start, self.interval.acting.clone());
        ctx.out.push(PgEffect::Activate(PgRecord { interval, acting }));
    }

    pub fn on_activated(&mut self, ctx: &mut Ctx<'_>, accepted: bool) {
        // If it was refused, the map of a newer interval will arrive.
        if accepted && self.peering().is_some_and(Peering::take_activated) {
            self.serve_when_alone(ctx);
        }
    }

    fn serve_when_alone(&mut self, ctx: &mut Ctx<'_>) {
        let Phase::Peering(peering) = &mut self.phase else { return };
        if !peering.may_serve(ctx.now.mono) {
            return;
        }
        let (members, sources) = peering.take_holders(self.me);
        let active = Active::new(members, sources, &self.history);
        self.phase = Phase::Active(Box::new(active));
        self.stats.note_active(ctx.now.wall);
        ctx.log(Level::Debug, format!("pg {}: active since {}", self.id, self.interval.start));
        self.start_serving(ctx);
    }

    /// The peering throttle may admit it now.
    pub fn peering_loop(&mut self, ctx: &mut Ctx<'_>) {
        if self.peering().is_some_and(|peering| matches!(peering.step, Step::Queued)) {
            self.advance_peering(ctx);
        }
    }

    /// Repeats open queries.
    pub fn peering_tick(&mut self, ctx: &mut Ctx<'_>) {
        self.serve_when_alone(ctx);
        let Phase::Peering(peering) = &mut self.phase else { return };
        if !peering.tick(ctx.now.mono) {
            return;
        }
        if peering.record.is_none() || peering.is_down() {
            ctx.out.push(PgEffect::QueryRecord);
        }
        peering.ask_around(ctx, &self.history, &self.interval.acting);
        peering.ask_silent(ctx, &self.history, None);
        if matches!(peering.step, Step::Committing) {
            self.commit_record(ctx);
        }
        self.advance_peering(ctx);
    }

    pub fn peering_opened(&mut self, ctx: &mut Ctx<'_>, osd: OsdId) {
        if let Phase::Peering(peering) = &mut self.phase {
            peering.ask_silent(ctx, &self.history, Some(osd));
        }
    }
}
