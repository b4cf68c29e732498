//! What OSDs say: they boot, stop, miss each other, report, and ask how far groups had come.

pub mod crash_loops;
pub mod failure_reports;
pub mod maps;
pub mod osd_sessions;
pub mod pg_merge;
pub mod pg_temp;

use crate::commands::snaps;
use crate::crush_edit;
use crate::mon::{Done, Job, Mon};
use crate::pending_txn::PendingTxn;
use crate::services::health::{self, Checks};
use crate::services::leader_hints::LeaderHints;
use crate::services::osdmap::crash_loops::CrashLoops;
use crate::services::osdmap::failure_reports::{FailureReports, MarkDown};
use crate::services::osdmap::osd_sessions::OsdSessions;
use crate::services::osdmap::pg_merge::{is_merged, is_merging};
use crate::services::pg::stats::rule_weights;
use nacre_base::{IntervalSet, Now, OsdId, PgId, PoolId, Time, Utime};
use nacre_machine::Peer;
use nacre_proto::maps::{MAX_OSDS, Osd, OsdMap, OsdXinfo, osd_state, pool_flags};
use nacre_proto::messages::{
    DaemonMsg, FailureEvidence, LogEntry, LogLevel, OsdBoot, OsdFailure, OsdReport, PgRecord,
};
use nacre_proto::types::{AuthName, EntityAddr, EntityName, EntityType};
use std::collections::BTreeMap;
use std::time::Duration;

/// An OSD that has no session here and says nothing for this long is down.
const SILENCE: Duration = Duration::from_secs(15);
/// How often the ages in the hints are brought up to date.
const SAVE_HINTS_EVERY: Duration = Duration::from_secs(30);

/// What OSDs said lately; known to the leader only.
#[derive(Default)]
pub struct Reports {
    /// When each OSD was last heard of.
    heard: BTreeMap<OsdId, Time>,
    pub(crate) failures: FailureReports,
    pub(crate) sessions: OsdSessions,
    pub(crate) crash_loops: CrashLoops,
    /// When the hints was written last.
    hints_saved: Time,
    /// Since when each OSD is down, on this leader's clock.
    down_since: BTreeMap<OsdId, Time>,
    /// Where silence starts to count.
    since: Time,
    /// What was wrong when the cluster log last heard of it.
    health: Checks,
}

impl Reports {
    /// A new leader heard nobody yet, which is nobody's fault.
    pub fn restart(&mut self, now: Time) {
        *self = Reports { since: now, hints_saved: now, ..Reports::default() };
    }

    /// Goes on where the last leader was.
    pub fn restore(&mut self, now: Time, hints: &LeaderHints) {
        let ago = |age: &u32| now - Duration::from_secs((*age).into());
        self.down_since = hints.down.iter().map(|(osd, age)| (*osd, ago(age))).collect();
        let died = hints.died.iter().map(|(osd, ages)| (*osd, ages.iter().map(ago).collect()));
        self.crash_loops.died = died.collect();
        self.failures.restore(now, hints);
    }
    fn save(&self, now: Time) -> LeaderHints {
        let age = |at: &Time| now.since(*at).as_secs() as u32;
        let died = self.crash_loops.died.iter().map(|(osd, times)| (*osd, times.iter().map(age).collect()));
        let mut hints = LeaderHints {
            down: self.down_since.iter().map(|(osd, at)| (*osd, age(at))).collect(),
            died: died.collect(),
            ..LeaderHints::default()
        };
        self.failures.save(now, &mut hints);
        hints
    }

    /// What the cluster log should hear about health.
    pub fn health_news(&mut self, checks: &Checks) -> Vec<(LogLevel, String)> {
        let news = health::news(&self.health, checks);
        self.health = checks.clone();
        news
    }
}

impl Mon {
    pub(crate) fn on_report(&mut self, now: Now, from: &Peer, report: OsdReport) {
        let osd = report.osd.unwrap_or(OsdId(from.num as i32));
        if from.kind != EntityType::Osd || from.num != i64::from(osd.0) {
            return;
        }
        self.reports.heard.insert(osd, now.mono);
        let state = self.state.as_ref().expect("the caller leads");
        // A report from before it was marked down would bring old numbers back.
        if state.osdmap.map.is_up(osd) {
            self.stats.report(now.wall, osd, report, &state.osdmap.map);
        }
        self.periodic_due |= self.is_shrinking();
    }

    pub(crate) fn run_daemon(
        &mut self,
        now: Now,
        job: &Job,
        message: &DaemonMsg,
        pending: &mut PendingTxn,
    ) -> Done {
        let osd = match job.from.kind {
            EntityType::Osd => OsdId(job.from.num as i32),
            kind => return Done::Refuse(format!("{kind}.{} sent a message of an OSD", job.from.num)),
        };
        self.reports.heard.insert(osd, now.mono);
        match message {
            DaemonMsg::Boot(boot) => self.boot(now, osd, boot, pending),
            DaemonMsg::MarkMeDown { osd: target, is_over, .. } => {
                if *target == osd && pending.map().is_up(osd) && !pending.flips_up(osd) {
                    pending.mark_down(osd);
                    if *is_over {
                        pending.mark_dead(osd);
                    }
                    self.log(now, pending, LogLevel::Info, format!("osd.{osd} marked itself down"));
                }
                Done::Silent
            }
            DaemonMsg::Failure(failure) => {
                self.failure(now, osd, failure, pending);
                Done::Silent
            }
            DaemonMsg::Activate { records, .. } => {
                Done::Reply(Box::new(activate(self, records, pending).into()))
            }
            DaemonMsg::Rearrange(wishes) => self.request_pg_temp(osd, wishes, pending),
            DaemonMsg::ClusterLog { level, stamp, text } => {
                let level = match level {
                    0 => LogLevel::Debug,
                    1 => LogLevel::Info,
                    2 => LogLevel::Security,
                    3 => LogLevel::Warn,
                    _ => LogLevel::Error,
                };
                pending.batch.log.push(LogEntry {
                    name: AuthName::new(EntityType::Osd, osd.to_string()),
                    rank: EntityName::osd(osd),
                    addrs: job.from.addrs.clone(),
                    stamp: *stamp,
                    seq: 0,
                    level,
                    text: text.clone(),
                    channel: "cluster".to_string(),
                });
                Done::Silent
            }
            DaemonMsg::MergeReady(ready) => {
                self.merge(now, ready, pending);
                Done::Silent
            }
            DaemonMsg::Report(_)
            | DaemonMsg::RecordQuery { .. }
            | DaemonMsg::Records { .. }
            | DaemonMsg::Activated { .. }
            | DaemonMsg::Scrub { .. }
            | DaemonMsg::Force { .. }
            | DaemonMsg::CountImages { .. }
            | DaemonMsg::Keys { .. }
            | DaemonMsg::Images(_) => Done::Silent,
        }
    }

    /// A line of our own for the cluster log.
    pub(crate) fn log(&self, now: Now, pending: &mut PendingTxn, level: LogLevel, text: String) {
        let state = self.state.as_ref().expect("the caller leads");
        let mine = state.monmap.map.mons.get(&self.config.name);
        pending.batch.log.push(LogEntry {
            name: AuthName::new(EntityType::Mon, self.config.name.clone()),
            rank: EntityName::new(EntityType::Mon, self.rank().map_or(-1, |rank| rank as i64)),
            addrs: mine.map(|mon| mon.public_addrs.clone()).unwrap_or_default(),
            stamp: now.wall,
            seq: state.log.seq + pending.batch.log.len() as u64 + 1,
            level,
            text,
            channel: "cluster".to_string(),
        });
    }

    fn boot(&mut self, now: Now, osd: OsdId, boot: &OsdBoot, pending: &mut PendingTxn) -> Done {
        if boot.osd != osd || osd.0 < 0 || osd.0 as u32 >= MAX_OSDS {
            return Done::Refuse(format!("osd.{osd} wants to boot as osd.{}", boot.osd));
        }
        let map = pending.map().clone();
        if map.no_flags(osd) & osd_state::NOUP != 0 {
            return Done::Silent;
        }
        if let Some(have) = map.osd(osd) {
            if have.uuid != [0; 16] && have.uuid != boot.uuid {
                return Done::Refuse(format!(
                    "osd.{osd} at {} has a different disk than the osd.{osd} of the cluster; remove that \
                     one first (ceph osd destroy or purge), or use another id",
                    boot.public
                ));
            }
            if have.has(osd_state::UP) {
                if have.public_addrs == boot.public {
                    return Done::Silent;
                }
                // Its new life must be seen to follow the end of the old one.
                if !pending.flips_up(osd) {
                    pending.mark_down(osd);
                    pending.mark_dead(osd);
                    self.note_early_death(now, now.mono, osd, pending);
                }
                return Done::Defer;
            }
        }
        if pending.flips_up(osd) {
            return Done::Defer;
        }
        let same_incarnation = map.osd(osd).is_some_and(|have| have.public_addrs == boot.public);
        if !same_incarnation {
            if let Some(missed) = self.reports.failures.take_marked_down(osd) {
                self.note_early_death(now, missed, osd, pending);
            }
            if self.reports.crash_loops.must_wait(now.mono, osd, &map) {
                return Done::Silent;
            }
        }
        if !self.reports.failures.may_return(now.mono, osd, same_incarnation) {
            return Done::Silent;
        }
        if !same_incarnation {
            self.reports.crash_loops.booted(now.mono, osd);
        }
        let is_new = !map.exists(osd);
        let auto_out = map.osd(osd).is_some_and(|o| o.has(osd_state::AUTOOUT));
        let old_weight = map.osd(osd).map_or(0, |o| o.xinfo.old_weight);
        let xinfo = OsdXinfo {
            features: self.osd_features(osd),
            ..map.osd(osd).map(|o| o.xinfo).unwrap_or_default()
        };
        if map.osd(osd).is_some_and(|o| o.has(osd_state::DESTROYED)) {
            // Its number was kept for another disk, which this is.
            pending.flip(osd, osd_state::DESTROYED);
        }
        pending.edit(|inc| {
            if osd.0 as u32 >= map.max_osd() {
                inc.new_max_osd = Some(osd.0 as u32 + 1);
            }
            inc.new_up_client.insert(osd, boot.public.clone());
            inc.new_up_cluster.insert(osd, boot.cluster.clone());
            inc.new_hb_back_up.insert(osd, boot.cluster.clone());
            inc.new_hb_front_up.insert(osd, boot.public.clone());
            inc.new_xinfo.insert(osd, xinfo);
            inc.new_last_up_change = now.wall;
            inc.new_uuid.insert(osd, boot.uuid);
        });
        // A new disk under an old number is new.
        let new_flag = map.osd(osd).is_some_and(|o| o.state & (osd_state::NEW | osd_state::DESTROYED) != 0);
        let is = |name: &str| self.option(name) == "true";
        let wanted = is("mon_osd_auto_mark_in")
            || ((is_new || new_flag) && is("mon_osd_auto_mark_new_in"))
            || (auto_out && is("mon_osd_auto_mark_auto_out_in"));
        if wanted && map.is_out(osd) {
            if map.no_flags(osd) & osd_state::NOIN == 0 {
                pending.set_weight(osd, if old_weight == 0 { Osd::IN } else { old_weight });
            } else if is_new {
                pending.flip(osd, osd_state::NEW); // to be taken in when it may
            }
        }
        if self.option("osd_crush_update_on_start") == "true" {
            let crush = &pending.map().crush;
            let weight = crush_edit::weight_of_capacity(boot.capacity);
            if let Some(crush) = crush_edit::place_new_osd(crush, osd, weight, &boot.host, &boot.device_class)
            {
                pending.edit_crush(crush);
            }
        }
        let mut metadata = boot.metadata.clone();
        metadata.insert("hostname".to_string(), boot.host.clone());
        metadata.insert("front_addr".to_string(), boot.public.to_string());
        metadata.insert("back_addr".to_string(), boot.cluster.to_string());
        metadata.insert("default_device_class".to_string(), boot.device_class.clone());
        pending.batch.osdmap.metadata.push((osd, metadata));
        self.log(now, pending, LogLevel::Info, format!("osd.{osd} {} boot", boot.public));
        Done::Silent
    }

    /// An OSD's process ended then, without a goodbye.
    fn note_early_death(&mut self, now: Now, then: Time, osd: OsdId, pending: &mut PendingTxn) {
        if let Some(delay) = self.reports.crash_loops.died(then, osd) {
            let secs = delay.as_secs();
            let text = format!("osd.{osd} crashes soon after each start: it is held down for {secs} s");
            self.log(now, pending, LogLevel::Warn, text);
        }
    }

    /// Notes for the next leader what only this one knows.
    pub(crate) fn save_hints(&mut self, now: Now, pending: &mut PendingTxn) {
        let state = self.state.as_ref().expect("the caller leads");
        self.reports.failures.forget(now.mono, &state.osdmap.map);
        self.reports.crash_loops.forget(now.mono, &state.osdmap.map);
        let mut hints = self.reports.save(now.mono);
        hints.recovery = self.stats.progress.save(now.mono);
        let due = now.mono.since(self.reports.hints_saved) >= SAVE_HINTS_EVERY && !hints.is_empty();
        if due || hints.differs(&state.leader_hints) {
            self.reports.hints_saved = now.mono;
            pending.batch.leader_hints = Some(hints);
        }
    }
    pub(crate) fn restore_hints(&mut self, now: Now) {
        self.reports.restart(now.mono);
        if let Some(state) = &self.state {
            self.reports.restore(now.mono, &state.leader_hints);
            self.stats.progress.restore(now.mono, state.leader_hints.recovery.as_ref());
        }
    }

    fn osd_features(&self, osd: OsdId) -> u64 {
        let session = self.sessions.iter().find(|(_, session)| session.osd() == Some(osd));
        session.map_or(0, |(_, s)| s.peer.features)
    }

    fn failure(&mut self, now: Now, reporter: OsdId, failure: &OsdFailure, pending: &mut PendingTxn) {
        let target = failure.target;
        let map = pending.map().clone();
        let same_incarnation = map.addrs(target).is_some_and(|addrs| *addrs == failure.target_addrs)
            || map.osd(target).is_some_and(|o| o.cluster_addrs == failure.target_addrs);
        if target == reporter || !map.is_up(reporter) || !map.is_up(target) || !same_incarnation {
            return;
        }
        let failures = &mut self.reports.failures;
        match failure.evidence {
            FailureEvidence::Recovered => failures.cancel(now.mono, reporter, target),
            FailureEvidence::Silent { millis } => {
                failures.report_silence(
                    now.mono,
                    reporter,
                    target,
                    None,
                    Duration::from_millis(millis.into()),
                );
            }
            FailureEvidence::SilentOn { network, millis } => {
                let silence = Duration::from_millis(millis.into());
                failures.report_silence(now.mono, reporter, target, Some(network), silence);
            }
            FailureEvidence::Refused => failures.report_refused(now.mono, reporter, target, &map),
        }
    }

    /// Marks down whom others miss.
    pub(crate) fn check_failures(&mut self, now: Now, pending: &mut PendingTxn) {
        if self.reports.failures.is_open() {
            let map = pending.map().clone();
            let Reports { failures, sessions, .. } = &mut self.reports;
            for (decision, has_ended) in failures.refused(now.mono, &map, sessions) {
                let target = decision.target;
                self.down(now, decision, pending);
                if has_ended && pending.flips_up(target) {
                    pending.mark_dead(target);
                }
            }
            let enough = self.option("mon_osd_min_down_reporters").parse().unwrap_or(2);
            for decision in self.reports.failures.check_reports(now.mono, &map, enough) {
                self.down(now, decision, pending);
            }
        }
    }

    fn down(&mut self, now: Now, decision: MarkDown, pending: &mut PendingTxn) {
        let target = decision.target;
        let map = pending.map().clone();
        let nodown = map.no_flags(target) & osd_state::NODOWN != 0;
        if nodown || !map.is_up(target) || pending.flips_up(target) {
            return;
        }
        pending.mark_down(target);
        let place = crate::crush_edit::location_text(&map.crush, target.0);
        let names: Vec<String> = decision.reporters.iter().map(|osd| format!("osd.{osd}")).collect();
        let text =
            format!("osd.{target} failed ({place}): {}, reported by {}", decision.why, names.join(", "));
        self.log(now, pending, LogLevel::Info, text);
        self.reports.failures.note_marked_down(now.mono, decision);
    }

    pub(crate) fn has_session(&self, osd: OsdId) -> bool {
        self.sessions.iter().any(|(_, session)| session.osd() == Some(osd))
    }

    /// Marks down who fell silent towards us, and out who is down for long.
    pub(crate) fn watch_osds(&mut self, now: Now, pending: &mut PendingTxn) {
        let map = pending.map().clone();
        let mut silent = Vec::new();
        for osd in map.up_osds() {
            let heard = self.reports.heard.get(&osd).copied().unwrap_or_default().max(self.reports.since);
            let may = map.no_flags(osd) & osd_state::NODOWN == 0;
            if may && now.mono.since(heard) > SILENCE && !self.has_session(osd) && !pending.flips_up(osd) {
                silent.push(osd);
            }
        }
        for osd in silent {
            pending.mark_down(osd);
            let text = format!("osd.{osd} marked down: no message from it for {} s", SILENCE.as_secs());
            self.log(now, pending, LogLevel::Info, text);
        }

        self.mark_out(now, &map, pending);
    }

    /// Whoever is down for long is out, so that others take his data.
    fn mark_out(&mut self, now: Now, map: &OsdMap, pending: &mut PendingTxn) {
        let interval: u64 = self.option("mon_osd_down_out_interval").parse().unwrap_or(600);
        let min_in: f64 = self.option("mon_osd_min_in_ratio").parse().unwrap_or(0.75);
        let limit = map.crush.type_by_name(&self.option("mon_osd_down_out_subtree_limit"));
        let all = map.osd_ids().count();
        let mut inside = map.osd_ids().filter(|&osd| map.is_in(osd)).count();
        for osd in map.osd_ids().collect::<Vec<_>>() {
            let state = &map.osds[osd.index()];
            if state.has(osd_state::UP) || map.is_out(osd) || state.has(osd_state::NEW) {
                self.reports.down_since.remove(&osd);
                continue;
            }
            let since = *self.reports.down_since.entry(osd).or_insert(now.mono);
            let noout = map.no_flags(osd) & osd_state::NOOUT != 0;
            if interval == 0 || noout || now.mono.since(since) < Duration::from_secs(interval) {
                continue;
            }
            // Few are left: those would be filled up by what the others held.
            if (inside as f64) < min_in * all as f64 {
                continue;
            }
            // Someone tripped over the cable of a rack: that is repaired sooner than copied elsewhere.
            if limit.is_some_and(|kind| all_down_around(map, osd, kind)) {
                continue;
            }
            inside -= 1;
            pending.set_weight(osd, 0);
            pending.flip(osd, osd_state::AUTOOUT);
            let xinfo = OsdXinfo { old_weight: map.weight(osd), ..state.xinfo };
            pending.edit(|inc| inc.new_xinfo.insert(osd, xinfo));
            let text = format!("Marking osd.{osd} out (has been down for {interval} seconds)");
            self.log(now, pending, LogLevel::Info, text);
        }
    }

    /// A pool whose groups have all served once is no longer being created.
    pub(crate) fn finish_creating(&mut self, pending: &mut PendingTxn) {
        let state = self.state.as_ref().expect("the caller leads");
        let done: Vec<PoolId> = state
            .osdmap
            .map
            .pools
            .iter()
            .filter(|(id, pool)| pool.has(pool_flags::CREATING) && state.pool_is_created(**id))
            .map(|(id, _)| *id)
            .collect();
        for id in done {
            pending.edit_pool(id, |pool| pool.flags &= !pool_flags::CREATING);
        }
    }

    /// Notes which OSDs and pools are full, so that clients hold back what would fail.
    pub(crate) fn watch_space(&mut self, pending: &mut PendingTxn) {
        let map = pending.map().clone();
        // Those that clients may have to do with.
        let mut filled: BTreeMap<OsdId, u32> = BTreeMap::new();
        let mut flips = Vec::new();
        for (osd, stat) in self.stats.osds.iter().filter(|(osd, _)| map.exists(**osd)) {
            let used = stat.report.space.used_ratio();
            let before = map.osds[osd.index()].state;
            let state = map.ratios.state(used, before & osd_state::FULL != 0);
            if state != 0 && map.is_up(*osd) && map.is_in(*osd) {
                filled.insert(*osd, state);
            }
            let all = osd_state::FULL | osd_state::BACKFILLFULL | osd_state::NEARFULL;
            let flip = (before & all) ^ state;
            if flip != 0 {
                flips.push((*osd, flip));
            }
        }
        flips.into_iter().for_each(|(osd, bits)| pending.flip(osd, bits));
        for (id, pool) in &map.pools {
            let by_quota = pool.quota_max_bytes > 0 || pool.quota_max_objects > 0;
            let space =
                pool_flags::FULL | pool_flags::FULL_QUOTA | pool_flags::BACKFILLFULL | pool_flags::NEARFULL;
            if !by_quota && filled.is_empty() && pool.flags & space == 0 {
                continue;
            }
            let counts = self.stats.pool(&map, *id).counts;
            let over = |limit: u64, have: u64| limit > 0 && have >= limit;
            let quota =
                over(pool.quota_max_bytes, counts.bytes) || over(pool.quota_max_objects, counts.objects);
            let on = rule_weights(&map, pool);
            let any = |state: u32| filled.iter().any(|(osd, have)| *have == state && on.contains_key(osd));
            let mut flags = pool.flags & !space;
            if quota {
                flags |= pool_flags::FULL | pool_flags::FULL_QUOTA;
            }
            if any(osd_state::FULL) {
                flags |= pool_flags::FULL;
            } else if any(osd_state::BACKFILLFULL) {
                flags |= pool_flags::BACKFILLFULL;
            } else if any(osd_state::NEARFULL) {
                flags |= pool_flags::NEARFULL;
            }
            if flags != pool.flags {
                pending.edit_pool(*id, |pool| pool.flags = flags);
            }
        }
    }

    /// Forgets removed snapshots that every group of their pool has trimmed.
    pub(crate) fn purge_snaps(&mut self, pending: &mut PendingTxn) {
        let map = pending.map().clone();
        for id in map.removed_snaps_queue.keys() {
            let purged = self.stats.purged(&map, *id);
            if !purged.is_empty() {
                pending.edit(|inc| {
                    let all = inc.new_purged_snaps.entry(*id).or_default();
                    purged.iter().for_each(|range| all.insert(range));
                });
            }
        }
    }

    /// Removes snapshots again for which a client that did not know that they are gone had clones made.
    pub(crate) fn remove_snaps_again(&mut self, pending: &mut PendingTxn) {
        let state = self.state.as_ref().expect("leading in earnest");
        for (id, kept) in self.stats.take_kept() {
            let gone = state
                .osdmap
                .purged_snaps
                .get(&id)
                .map_or_else(IntervalSet::new, |all| all.intersection(&kept));
            if pending.map().pool(id).is_some() && !gone.is_empty() {
                snaps::remove(pending, id, &gone);
            }
        }
    }

    /// Lifts fences and mutes whose time is over.
    pub(crate) fn expire(&mut self, now: Now, pending: &mut PendingTxn) {
        let map = pending.map().clone();
        let over = |fences: &BTreeMap<EntityAddr, Utime>| -> Vec<EntityAddr> {
            fences.iter().filter(|(_, until)| **until <= now.wall).map(|(addr, _)| *addr).collect()
        };
        let (clients, networks) = (over(&map.blocklist), over(&map.range_blocklist));
        if !clients.is_empty() || !networks.is_empty() {
            pending.edit(|inc| {
                inc.old_blocklist.extend(clients);
                inc.old_range_blocklist.extend(networks);
            });
        }
    }
}

/// Whether an OSD is in a bucket of that kind, or one above it, of which every OSD is down.
fn all_down_around(map: &OsdMap, osd: OsdId, kind: i32) -> bool {
    let buckets = map.crush.buckets.iter().flatten().filter(|bucket| i32::from(bucket.kind) >= kind);
    buckets.filter(|bucket| !map.crush.is_shadow(bucket.id)).any(|bucket| {
        let below = crush_edit::osds_below(&map.crush, bucket.id);
        below.contains(&osd) && below.iter().all(|&osd| map.is_down(osd))
    })
}

/// Commits what primaries say they reached, where it is newer than what is known.
fn activate(mon: &Mon, records: &[(PgId, PgRecord)], pending: &mut PendingTxn) -> DaemonMsg {
    let state = mon.state.as_ref().expect("the caller leads");
    let mut results = Vec::with_capacity(records.len());
    for (pg, record) in records {
        let proposed = pending.batch.pgs.iter().rev().find(|(have, _)| have == pg).map(|(_, record)| record);
        let known = proposed.or_else(|| state.pgs.records.get(pg));
        // The map that is committed, not the pending's: a change in this very batch starts a new
        // interval, in which this one's primary will ask again.
        let placed = state.osdmap.map.pg_to_up_acting(*pg);
        let acting: Vec<OsdId> = placed.acting.into_iter().filter(|osd| osd.is_some()).collect();
        let claimed: Vec<OsdId> = record.acting.iter().copied().filter(|osd| osd.is_some()).collect();
        // What a merge left is of its own epoch, in which the group is still to serve, by whomever it is.
        let merged = is_merged(&state.osdmap.map, *pg);
        let newer = known.is_none_or(|known| {
            record.interval > known.interval || record == known || merged && record.interval == known.interval
        });
        // A member that came up since then began a new interval with the same members.
        let current =
            acting.iter().all(|osd| state.osdmap.map.osds[osd.index()].info.up_from <= record.interval);
        let exists = state.osdmap.map.pg_exists(*pg) && !is_merging(pending, *pg);
        let accepted = newer && current && acting == claimed && exists;
        if accepted && known != Some(record) {
            pending.batch.pgs.push((*pg, record.clone()));
        }
        results.push((*pg, record.interval, accepted));
    }
    DaemonMsg::Activated { epoch: state.osdmap.map.epoch, results }
}
