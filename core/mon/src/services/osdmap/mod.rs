//! The OSD map: boots, failures, OSDs that go out, space, blocklist, pg_temp, merges.
//!
//! `maps` is the agreed slice. `OsdMonitor` is what only the leader knows: what OSDs said lately.

mod boot;
pub mod crash_loops;
mod down;
pub mod failure_reports;
mod health;
pub mod maps;
pub mod osd_sessions;
pub mod pg_merge;
pub mod pg_temp;
mod space;

use crate::mon::{Done, Job};
use crate::pending_txn::PendingTxn;
use crate::services::Context;
use crate::services::leader_hints::LeaderHints;
use crate::services::pg::activation::activate;
use crate::services::pg::stats::PgStats;
use crash_loops::CrashLoops;
use failure_reports::FailureReports;
use nacre_base::{Now, OsdId, PoolId, Time, Utime};
use nacre_machine::Peer;
use nacre_proto::maps::{OsdMap, pool_flags};
use nacre_proto::messages::{DaemonMsg, LogEntry, LogLevel, OsdReport};
use nacre_proto::types::{AuthName, EntityAddr, EntityName, EntityType};
use osd_sessions::OsdSessions;
use std::collections::BTreeMap;
use std::time::Duration;

/// What OSDs said lately. Only the leader uses it.
#[derive(Default)]
pub struct OsdMonitor {
    /// When the last message of each OSD arrived.
    heard: BTreeMap<OsdId, Time>,
    pub(crate) failures: FailureReports,
    pub(crate) sessions: OsdSessions,
    pub(crate) crash_loops: CrashLoops,
    /// Since when each OSD is down, on this leader's clock.
    down_since: BTreeMap<OsdId, Time>,
    /// Where silence starts to count.
    since: Time,
}

impl OsdMonitor {
    /// No OSD had time to report yet.
    pub fn new(now: Time) -> OsdMonitor {
        OsdMonitor { since: now, ..OsdMonitor::default() }
    }

    /// Goes on where the last leader was.
    pub fn restore(&mut self, now: Time, hints: &LeaderHints) {
        let ago = |age: &u32| now - Duration::from_secs((*age).into());
        self.down_since = hints.down.iter().map(|(osd, age)| (*osd, ago(age))).collect();
        let died = hints.died.iter().map(|(osd, ages)| (*osd, ages.iter().map(ago).collect()));
        self.crash_loops.died = died.collect();
        self.failures.restore(now, hints);
    }
    pub fn save(&self, now: Time) -> LeaderHints {
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

    /// Drops what is too old, or about OSDs that are gone.
    pub fn forget(&mut self, now: Time, map: &OsdMap) {
        self.failures.forget(now, map);
        self.crash_loops.forget(now, map);
    }

    /// A report of an OSD arrived at the leader. Gives whether periodic tasks should not wait for the next
    /// second.
    pub fn on_report(
        &mut self,
        now: Now,
        from: &Peer,
        report: OsdReport,
        map: &OsdMap,
        pgs: &mut PgStats,
    ) -> bool {
        let osd = report.osd.unwrap_or(OsdId(from.num as i32));
        if from.kind != EntityType::Osd || from.num != i64::from(osd.0) {
            return false;
        }
        self.heard.insert(osd, now.mono);
        // A report from before it was marked down would bring old numbers back.
        if map.is_up(osd) {
            pgs.report(now.wall, osd, report, map);
        }
        pg_merge::is_shrinking(map)
    }

    pub fn periodic(&mut self, cx: &Context<'_>, pgs: &PgStats, pending: &mut PendingTxn) {
        let map = pending.map().clone();
        self.mark_silent_down(cx, &map, pending);
        self.mark_out(cx, &map, pending);
        finish_creating(cx, pending);
        space::update_full_flags(pgs, pending);
        expire_blocklist(cx, pending);
        pg_merge::shrink_pools(cx, pgs, pending);
    }

    /// A message of an OSD that may change something.
    pub fn run(
        &mut self,
        cx: &Context<'_>,
        job: &Job,
        message: &DaemonMsg,
        pending: &mut PendingTxn,
    ) -> Done {
        let osd = match job.from.kind {
            EntityType::Osd => OsdId(job.from.num as i32),
            kind => return Done::Refuse(format!("{kind}.{} sent a message of an OSD", job.from.num)),
        };
        self.heard.insert(osd, cx.now.mono);
        match message {
            DaemonMsg::Boot(boot) => self.boot(cx, osd, boot, pending),
            DaemonMsg::MarkMeDown { osd: target, is_over, .. } => {
                if *target == osd && pending.map().is_up(osd) && !pending.flips_up(osd) {
                    pending.mark_down(osd);
                    if *is_over {
                        pending.mark_dead(osd);
                    }
                    cx.log(pending, LogLevel::Info, format!("osd.{osd} marked itself down"));
                }
                Done::Silent
            }
            DaemonMsg::Failure(failure) => {
                self.failure(cx, osd, failure, pending);
                Done::Silent
            }
            DaemonMsg::Activate { records, .. } => {
                Done::Reply(Box::new(activate(cx, records, pending).into()))
            }
            DaemonMsg::Rearrange(wishes) => pg_temp::request_pg_temp(cx, osd, wishes, pending),
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
                pg_merge::merge(cx, ready, pending);
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
            | DaemonMsg::Format { .. }
            | DaemonMsg::Latencies(_)
            | DaemonMsg::Images(_) => Done::Silent,
        }
    }
}

/// A pool whose PGs have all served once is no longer being created.
fn finish_creating(cx: &Context<'_>, pending: &mut PendingTxn) {
    let state = cx.state;
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

/// Removes blocklist entries whose time is over.
fn expire_blocklist(cx: &Context<'_>, pending: &mut PendingTxn) {
    let map = pending.map().clone();
    let over = |entries: &BTreeMap<EntityAddr, Utime>| -> Vec<EntityAddr> {
        entries.iter().filter(|(_, until)| **until <= cx.now.wall).map(|(addr, _)| *addr).collect()
    };
    let (clients, networks) = (over(&map.blocklist), over(&map.range_blocklist));
    if !clients.is_empty() || !networks.is_empty() {
        pending.edit(|inc| {
            inc.old_blocklist.extend(clients);
            inc.old_range_blocklist.extend(networks);
        });
    }
}
