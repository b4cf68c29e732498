//! What OSDs say: they boot, stop, miss each other, report, and ask how far groups had come.

use crate::commands::snaps;
use crate::crush_edit;
use crate::draft::Draft;
use crate::failures::{Failures, Verdict};
use crate::health::{self, Checks};
use crate::memory::Memory;
use crate::merges::{is_merged, is_merging};
use crate::mon::{Done, Job, Mon};
use crate::osd_sessions::OsdSessions;
use crate::restarts::Restarts;
use crate::stats::rule_weights;
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
/// How often the ages in the memory are brought up to date.
const REMEMBER_EVERY: Duration = Duration::from_secs(30);

/// What OSDs said lately; known to the leader only.
#[derive(Default)]
pub struct Reports {
    /// When each OSD was last heard of.
    heard: BTreeMap<OsdId, Time>,
    pub(crate) failures: Failures,
    pub(crate) sessions: OsdSessions,
    pub(crate) restarts: Restarts,
    /// When the memory was written last.
    remembered: Time,
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
        *self = Reports { since: now, remembered: now, ..Reports::default() };
    }

    /// Goes on where the last leader was.
    pub fn recall(&mut self, now: Time, memory: &Memory) {
        let ago = |age: &u32| now - Duration::from_secs((*age).into());
        self.down_since = memory.down.iter().map(|(osd, age)| (*osd, ago(age))).collect();
        let died = memory.died.iter().map(|(osd, ages)| (*osd, ages.iter().map(ago).collect()));
        self.restarts.died = died.collect();
        self.failures.recall(now, memory);
    }
    fn remember(&self, now: Time) -> Memory {
        let age = |at: &Time| now.since(*at).as_secs() as u32;
        let died = self.restarts.died.iter().map(|(osd, times)| (*osd, times.iter().map(age).collect()));
        let mut memory = Memory {
            down: self.down_since.iter().map(|(osd, at)| (*osd, age(at))).collect(),
            died: died.collect(),
            ..Memory::default()
        };
        self.failures.remember(now, &mut memory);
        memory
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
        if state.osdmap.is_up(osd) {
            self.stats.report(now.wall, osd, report, &state.osdmap);
        }
        self.duties_due |= self.is_shrinking();
    }

    pub(crate) fn run_daemon(&mut self, now: Now, job: &Job, message: &DaemonMsg, draft: &mut Draft) -> Done {
        let osd = match job.from.kind {
            EntityType::Osd => OsdId(job.from.num as i32),
            kind => return Done::Refuse(format!("{kind}.{} sent a message of an OSD", job.from.num)),
        };
        self.reports.heard.insert(osd, now.mono);
        match message {
            DaemonMsg::Boot(boot) => self.boot(now, osd, boot, draft),
            DaemonMsg::MarkMeDown { osd: target, is_over, .. } => {
                if *target == osd && draft.map().is_up(osd) && !draft.flips_up(osd) {
                    draft.mark_down(osd);
                    if *is_over {
                        draft.mark_dead(osd);
                    }
                    self.log(now, draft, LogLevel::Info, format!("osd.{osd} marked itself down"));
                }
                Done::Silent
            }
            DaemonMsg::Failure(failure) => {
                self.failure(now, osd, failure, draft);
                Done::Silent
            }
            DaemonMsg::Activate { records, .. } => {
                Done::Reply(Box::new(activate(self, records, draft).into()))
            }
            DaemonMsg::Rearrange(wishes) => self.rearrange(osd, wishes, draft),
            DaemonMsg::ClusterLog { level, stamp, text } => {
                let level = match level {
                    0 => LogLevel::Debug,
                    1 => LogLevel::Info,
                    2 => LogLevel::Security,
                    3 => LogLevel::Warn,
                    _ => LogLevel::Error,
                };
                draft.batch.log.push(LogEntry {
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
                self.merge(now, ready, draft);
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
    pub(crate) fn log(&self, now: Now, draft: &mut Draft, level: LogLevel, text: String) {
        let state = self.state.as_ref().expect("the caller leads");
        let mine = state.monmap.mons.get(&self.config.name);
        draft.batch.log.push(LogEntry {
            name: AuthName::new(EntityType::Mon, self.config.name.clone()),
            rank: EntityName::new(EntityType::Mon, self.rank().map_or(-1, |rank| rank as i64)),
            addrs: mine.map(|mon| mon.public_addrs.clone()).unwrap_or_default(),
            stamp: now.wall,
            seq: state.log_seq + draft.batch.log.len() as u64 + 1,
            level,
            text,
            channel: "cluster".to_string(),
        });
    }

    fn boot(&mut self, now: Now, osd: OsdId, boot: &OsdBoot, draft: &mut Draft) -> Done {
        if boot.osd != osd || osd.0 < 0 || osd.0 as u32 >= MAX_OSDS {
            return Done::Refuse(format!("osd.{osd} wants to boot as osd.{}", boot.osd));
        }
        let map = draft.map().clone();
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
                if !draft.flips_up(osd) {
                    draft.mark_down(osd);
                    draft.mark_dead(osd);
                    self.short_life(now, now.mono, osd, draft);
                }
                return Done::NextTime;
            }
        }
        if draft.flips_up(osd) {
            return Done::NextTime;
        }
        let same_life = map.osd(osd).is_some_and(|have| have.public_addrs == boot.public);
        if !same_life {
            if let Some(missed) = self.reports.failures.bury(osd) {
                self.short_life(now, missed, osd, draft);
            }
            if self.reports.restarts.is_held(now.mono, osd, &map) {
                return Done::Silent;
            }
        }
        if !self.reports.failures.may_return(now.mono, osd, same_life) {
            return Done::Silent;
        }
        if !same_life {
            self.reports.restarts.booted(now.mono, osd);
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
            draft.flip(osd, osd_state::DESTROYED);
        }
        draft.edit(|inc| {
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
                draft.set_weight(osd, if old_weight == 0 { Osd::IN } else { old_weight });
            } else if is_new {
                draft.flip(osd, osd_state::NEW); // to be taken in when it may
            }
        }
        if self.option("osd_crush_update_on_start") == "true" {
            let crush = &draft.map().crush;
            let weight = crush_edit::weight_of_capacity(boot.capacity);
            if let Some(crush) = crush_edit::place_new_osd(crush, osd, weight, &boot.host, &boot.device_class)
            {
                draft.edit_crush(crush);
            }
        }
        let mut metadata = boot.metadata.clone();
        metadata.insert("hostname".to_string(), boot.host.clone());
        metadata.insert("front_addr".to_string(), boot.public.to_string());
        metadata.insert("back_addr".to_string(), boot.cluster.to_string());
        metadata.insert("default_device_class".to_string(), boot.device_class.clone());
        draft.batch.metadata.push((osd, metadata));
        self.log(now, draft, LogLevel::Info, format!("osd.{osd} {} boot", boot.public));
        Done::Silent
    }

    /// An OSD's process ended then, without a goodbye.
    fn short_life(&mut self, now: Now, then: Time, osd: OsdId, draft: &mut Draft) {
        if let Some(delay) = self.reports.restarts.died(then, osd) {
            let secs = delay.as_secs();
            let text = format!("osd.{osd} crashes soon after each start: it is held down for {secs} s");
            self.log(now, draft, LogLevel::Warn, text);
        }
    }

    /// Notes for the next leader what only this one knows.
    pub(crate) fn remember(&mut self, now: Now, draft: &mut Draft) {
        let state = self.state.as_ref().expect("the caller leads");
        self.reports.failures.forget(now.mono, &state.osdmap);
        self.reports.restarts.forget(now.mono, &state.osdmap);
        let mut memory = self.reports.remember(now.mono);
        memory.recovery = self.stats.progress.remember(now.mono);
        let due = now.mono.since(self.reports.remembered) >= REMEMBER_EVERY && !memory.is_empty();
        if due || memory.differs(&state.memory) {
            self.reports.remembered = now.mono;
            draft.batch.memory = Some(memory);
        }
    }
    pub(crate) fn recall(&mut self, now: Now) {
        self.reports.restart(now.mono);
        if let Some(state) = &self.state {
            self.reports.recall(now.mono, &state.memory);
            self.stats.progress.recall(now.mono, state.memory.recovery.as_ref());
        }
    }

    fn osd_features(&self, osd: OsdId) -> u64 {
        let session = self.sessions.iter().find(|(_, session)| session.osd() == Some(osd));
        session.map_or(0, |(_, s)| s.peer.features)
    }

    fn failure(&mut self, now: Now, reporter: OsdId, failure: &OsdFailure, draft: &mut Draft) {
        let target = failure.target;
        let map = draft.map().clone();
        let same_life = map.addrs(target).is_some_and(|addrs| *addrs == failure.target_addrs)
            || map.osd(target).is_some_and(|o| o.cluster_addrs == failure.target_addrs);
        if target == reporter || !map.is_up(reporter) || !map.is_up(target) || !same_life {
            return;
        }
        let failures = &mut self.reports.failures;
        match failure.evidence {
            FailureEvidence::Recovered => failures.withdraw(now.mono, reporter, target),
            FailureEvidence::Silent { millis } => {
                failures.accuse(now.mono, reporter, target, None, Duration::from_millis(millis.into()));
            }
            FailureEvidence::SilentOn { network, millis } => {
                let silence = Duration::from_millis(millis.into());
                failures.accuse(now.mono, reporter, target, Some(network), silence);
            }
            FailureEvidence::Refused => failures.refuse(now.mono, reporter, target, &map),
        }
    }

    /// Marks down whom others miss.
    pub(crate) fn judge(&mut self, now: Now, draft: &mut Draft) {
        if self.reports.failures.is_open() {
            let map = draft.map().clone();
            let Reports { failures, sessions, .. } = &mut self.reports;
            for (verdict, has_ended) in failures.gone(now.mono, &map, sessions) {
                let target = verdict.target;
                self.down(now, verdict, draft);
                if has_ended && draft.flips_up(target) {
                    draft.mark_dead(target);
                }
            }
            let enough = self.option("mon_osd_min_down_reporters").parse().unwrap_or(2);
            for verdict in self.reports.failures.judge(now.mono, &map, enough) {
                self.down(now, verdict, draft);
            }
        }
    }

    fn down(&mut self, now: Now, verdict: Verdict, draft: &mut Draft) {
        let target = verdict.target;
        let map = draft.map().clone();
        let nodown = map.no_flags(target) & osd_state::NODOWN != 0;
        if nodown || !map.is_up(target) || draft.flips_up(target) {
            return;
        }
        draft.mark_down(target);
        let place = crate::crush_edit::location_text(&map.crush, target.0);
        let names: Vec<String> = verdict.witnesses.iter().map(|osd| format!("osd.{osd}")).collect();
        let text =
            format!("osd.{target} failed ({place}): {}, reported by {}", verdict.why, names.join(", "));
        self.log(now, draft, LogLevel::Info, text);
        self.reports.failures.convict(now.mono, verdict);
    }

    pub(crate) fn has_session(&self, osd: OsdId) -> bool {
        self.sessions.iter().any(|(_, session)| session.osd() == Some(osd))
    }

    /// Marks down who fell silent towards us, and out who is down for long.
    pub(crate) fn watch_osds(&mut self, now: Now, draft: &mut Draft) {
        let map = draft.map().clone();
        let mut silent = Vec::new();
        for osd in map.up_osds() {
            let heard = self.reports.heard.get(&osd).copied().unwrap_or_default().max(self.reports.since);
            let may = map.no_flags(osd) & osd_state::NODOWN == 0;
            if may && now.mono.since(heard) > SILENCE && !self.has_session(osd) && !draft.flips_up(osd) {
                silent.push(osd);
            }
        }
        for osd in silent {
            draft.mark_down(osd);
            let text = format!("osd.{osd} marked down: no message from it for {} s", SILENCE.as_secs());
            self.log(now, draft, LogLevel::Info, text);
        }

        self.mark_out(now, &map, draft);
    }

    /// Whoever is down for long is out, so that others take his data.
    fn mark_out(&mut self, now: Now, map: &OsdMap, draft: &mut Draft) {
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
            draft.set_weight(osd, 0);
            draft.flip(osd, osd_state::AUTOOUT);
            let xinfo = OsdXinfo { old_weight: map.weight(osd), ..state.xinfo };
            draft.edit(|inc| inc.new_xinfo.insert(osd, xinfo));
            let text = format!("Marking osd.{osd} out (has been down for {interval} seconds)");
            self.log(now, draft, LogLevel::Info, text);
        }
    }

    /// A pool whose groups have all served once is no longer being created.
    pub(crate) fn finish_creating(&mut self, draft: &mut Draft) {
        let state = self.state.as_ref().expect("the caller leads");
        let done: Vec<PoolId> = state
            .osdmap
            .pools
            .iter()
            .filter(|(id, pool)| pool.has(pool_flags::CREATING) && state.pool_is_created(**id))
            .map(|(id, _)| *id)
            .collect();
        for id in done {
            draft.edit_pool(id, |pool| pool.flags &= !pool_flags::CREATING);
        }
    }

    /// Notes which OSDs and pools are full, so that clients hold back what would fail.
    pub(crate) fn watch_space(&mut self, draft: &mut Draft) {
        let map = draft.map().clone();
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
        flips.into_iter().for_each(|(osd, bits)| draft.flip(osd, bits));
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
                draft.edit_pool(*id, |pool| pool.flags = flags);
            }
        }
    }

    /// Forgets removed snapshots that every group of their pool has trimmed.
    pub(crate) fn purge_snaps(&mut self, draft: &mut Draft) {
        let map = draft.map().clone();
        for id in map.removed_snaps_queue.keys() {
            let purged = self.stats.purged(&map, *id);
            if !purged.is_empty() {
                draft.edit(|inc| {
                    let all = inc.new_purged_snaps.entry(*id).or_default();
                    purged.iter().for_each(|range| all.insert(range));
                });
            }
        }
    }

    /// Removes snapshots again for which a client that did not know that they are gone had clones made.
    pub(crate) fn remove_snaps_again(&mut self, draft: &mut Draft) {
        let state = self.state.as_ref().expect("leading in earnest");
        for (id, kept) in self.stats.take_kept() {
            let gone =
                state.purged_snaps.get(&id).map_or_else(IntervalSet::new, |all| all.intersection(&kept));
            if draft.map().pool(id).is_some() && !gone.is_empty() {
                snaps::remove(draft, id, &gone);
            }
        }
    }

    /// Lifts fences and mutes whose time is over.
    pub(crate) fn expire(&mut self, now: Now, draft: &mut Draft) {
        let map = draft.map().clone();
        let over = |fences: &BTreeMap<EntityAddr, Utime>| -> Vec<EntityAddr> {
            fences.iter().filter(|(_, until)| **until <= now.wall).map(|(addr, _)| *addr).collect()
        };
        let (clients, networks) = (over(&map.blocklist), over(&map.range_blocklist));
        if !clients.is_empty() || !networks.is_empty() {
            draft.edit(|inc| {
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
fn activate(mon: &Mon, records: &[(PgId, PgRecord)], draft: &mut Draft) -> DaemonMsg {
    let state = mon.state.as_ref().expect("the caller leads");
    let mut results = Vec::with_capacity(records.len());
    for (pg, record) in records {
        let pending = draft.batch.records.iter().rev().find(|(have, _)| have == pg).map(|(_, record)| record);
        let known = pending.or_else(|| state.records.get(pg));
        // The map that is committed, not the draft's: a change in this very batch starts a new
        // interval, in which this one's primary will ask again.
        let placed = state.osdmap.pg_to_up_acting(*pg);
        let acting: Vec<OsdId> = placed.acting.into_iter().filter(|osd| osd.is_some()).collect();
        let claimed: Vec<OsdId> = record.acting.iter().copied().filter(|osd| osd.is_some()).collect();
        // What a merge left is of its own epoch, in which the group is still to serve, by whomever it is.
        let merged = is_merged(&state.osdmap, *pg);
        let newer = known.is_none_or(|known| {
            record.interval > known.interval || record == known || merged && record.interval == known.interval
        });
        // A member that came up since then began a new interval with the same members.
        let current = acting.iter().all(|osd| state.osdmap.osds[osd.index()].info.up_from <= record.interval);
        let exists = state.osdmap.pg_exists(*pg) && !is_merging(draft, *pg);
        let accepted = newer && current && acting == claimed && exists;
        if accepted && known != Some(record) {
            draft.batch.records.push((*pg, record.clone()));
        }
        results.push((*pg, record.interval, accepted));
    }
    DaemonMsg::Activated { epoch: state.osdmap.epoch, results }
}
