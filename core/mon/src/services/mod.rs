//! What the monitor does, one module for each service.
//!
//! A service may have a slice of the agreed state with its delta and its publication (`state::Slice`). It may
//! also have what only this process knows (a field of `Services`): reports of daemons, what was logged last.
//! Its `periodic` puts into the pending transaction what is due; its `health` says what is wrong. It reads
//! the rest of the monitor through a `Context` and never holds the monitor itself.

pub mod audit;
pub mod auth;
pub mod autoscale;
pub mod balancer;
pub mod config;
pub mod crash;
pub mod fsmap;
pub mod health;
pub mod hosts;
pub mod kv;
mod latency_window;
pub mod leader_hints;
pub mod log;
pub mod mgr;
pub mod monitors;
pub mod monmap;
pub mod osdmap;
pub mod pg;
pub mod placement;
pub mod time_checks;
pub mod upgrade;

use crate::mon::{Done, Job, MonConfig};
use crate::options;
use crate::pending_txn::PendingTxn;
use crate::sessions::Sessions;
use crate::state::State;
use audit::Audit;
use auth::PublishedKeys;
use autoscale::Autoscaler;
use balancer::Balancer;
use fsmap::MdsMonitor;
use health::{Checks, HealthLog};
use leader_hints::HintsWriter;
use log::PgSummaries;
use mgr::image_commands::ImageCommands;
use mgr::image_load::ImageLoad;
use mgr::mds_load::MdsLoad;
use mgr::service_map::ServiceMap;
use monitors::MonReports;
use nacre_auth::Entropy;
use nacre_base::{Now, Time};
use nacre_options::{Overrides, Value};
use nacre_proto::maps::OsdMap;
use nacre_proto::messages::{DaemonMsg, LogEntry, LogLevel};
use nacre_proto::types::{AuthName, EntityName, EntityType};
use osdmap::OsdMonitor;
use pg::stats::PgStats;
use std::collections::BTreeMap;
use std::time::Duration;
use time_checks::TimeChecks;
use upgrade::UpgradeMonitor;

/// What the services know beside the agreed state.
#[derive(Default)]
pub struct Services {
    pub osd: OsdMonitor,
    pub mds: MdsMonitor,
    pub pgs: PgStats,
    pub autoscaler: Autoscaler,
    pub balancer: Balancer,
    pub hints: HintsWriter,
    pub auth: PublishedKeys,
    pub health: HealthLog,
    pub service_map: ServiceMap,
    pub images: ImageCommands,
    pub image_load: ImageLoad,
    pub mds_load: MdsLoad,
    pub time_checks: TimeChecks,
    pub audit: Audit,
    pub pg_summaries: PgSummaries,
    pub monitors: MonReports,
    pub upgrade: UpgradeMonitor,
}

impl Services {
    /// The monitor starts, or begins to lead: what OSDs and placement groups report is heard anew.
    pub fn restart(&mut self, now: Time) {
        self.osd = OsdMonitor::new(now);
        self.mds = MdsMonitor::default();
        self.hints = HintsWriter::new(now);
        self.health = HealthLog::default();
    }

    /// It leads, and continues where the last leader was.
    pub fn restore(&mut self, now: Time, state: Option<&State>) {
        self.restart(now);
        if let Some(state) = state {
            self.osd.restore(now, &state.leader_hints);
            self.pgs.progress.restore(now, state.leader_hints.recovery.as_ref());
        }
    }

    /// It leads no more.
    pub fn step_down(&mut self) {
        self.pgs = PgStats::default();
        self.balancer = Balancer::default();
        self.time_checks = TimeChecks::default();
        self.audit = Audit::default();
        self.pg_summaries = PgSummaries::default();
        self.monitors.step_down();
        self.upgrade.step_down();
    }

    /// On the leader, every second and when something changed: what is due goes into the pending transaction.
    pub fn periodic(&mut self, cx: &Context<'_>, entropy: &mut Entropy, pending: &mut PendingTxn) {
        self.osd.periodic(cx, &self.pgs, pending);
        self.mds.periodic(cx, pending);
        self.pgs.periodic(cx, pending);
        self.autoscaler.periodic(cx, &self.pgs, pending);
        self.balancer.periodic(cx, &self.pgs, pending);
        self.hints.periodic(cx, &mut self.osd, &self.pgs, pending);
        self.auth.periodic(cx, entropy, pending);
        hosts::periodic(cx, &self.pgs, pending);
        let checks = self.health(cx, &cx.state.osdmap.map);
        self.upgrade.periodic(cx, &self.pgs, &checks, pending);
        self.health.periodic(cx, checks, pending);
        self.pg_summaries.periodic(cx, &self.pgs, pending);
        self.monitors.periodic(cx, pending);
    }

    /// A message of an OSD that may change something.
    pub fn run_daemon(
        &mut self,
        cx: &Context<'_>,
        job: &Job,
        message: &DaemonMsg,
        pending: &mut PendingTxn,
    ) -> Done {
        match message {
            // The format that it is judged by may be about to change.
            DaemonMsg::Boot(_) if pending.batch.upgrades.is_some() => Done::Defer,
            DaemonMsg::Boot(boot) if !self.upgrade.admits(cx, boot, pending) => Done::Silent,
            message => self.osd.run(cx, job, message, pending),
        }
    }

    /// On any monitor, once a second.
    pub fn sample(&mut self, now: Now, leads: Option<&State>, shows_progress: bool, beacon_grace: Duration) {
        if let Some(state) = leads {
            self.pgs.sample(now, &state.osdmap.map, shows_progress);
        }
        self.image_load.sample(now.mono);
        self.mds_load.prune(now.mono);
        self.service_map.prune(now, beacon_grace);
    }

    /// Everything that is wrong now.
    pub fn health(&self, cx: &Context<'_>, map: &OsdMap) -> Checks {
        let mut checks = Checks::new();
        monmap::health(cx, &mut checks);
        self.time_checks.health(cx, &mut checks);
        self.osd.health(cx, &self.pgs, map, &mut checks);
        self.pgs.health(cx, map, &mut checks);
        autoscale::health(cx, &self.pgs, map, &mut checks);
        self.mds.health(cx, &mut checks);
        crash::health(cx, &mut checks);
        hosts::health(cx, map, &mut checks);
        placement::health(cx, map, &mut checks);
        self.upgrade.health(cx, &mut checks);
        checks
    }
}

/// The options of this monitor.
#[derive(Clone, Copy)]
pub struct Options<'a> {
    pub state: Option<&'a State>,
    /// From the configuration file.
    pub file: &'a BTreeMap<String, String>,
    /// Set in this process, until its next start.
    pub overrides: &'a Overrides,
}

impl Options<'_> {
    /// What `ceph tell` set in this process, else the cluster's configuration, else the file, else the
    /// default.
    pub fn get(&self, name: &str) -> Value {
        self.overrides.get(name).cloned().unwrap_or_else(|| self.configured(name))
    }
    /// The same without what `ceph tell` set.
    pub fn configured(&self, name: &str) -> Value {
        options::value(self.state, self.file, name)
    }
}

/// What a service may look at, beside what is its own.
pub struct Context<'a> {
    pub now: Now,
    pub state: &'a State,
    pub config: &'a MonConfig,
    pub options: Options<'a>,
    pub sessions: &'a Sessions,
    /// The ranks of the monitors that are reachable.
    pub quorum: Vec<u64>,
    /// Since when this monitor leads, if it does.
    pub leads_since: Option<Time>,
}

impl Context<'_> {
    pub fn option(&self, name: &str) -> Value {
        self.options.get(name)
    }

    /// Writes a line of this monitor's own into the cluster log.
    pub fn log(&self, pending: &mut PendingTxn, level: LogLevel, text: String) {
        pending.batch.log.push(self.line(level, text, "cluster"));
    }

    /// A line of this monitor's own. It is numbered with its batch.
    pub fn line(&self, level: LogLevel, text: String, channel: &str) -> LogEntry {
        let membership = &self.state.monmap;
        let mine = membership.map.mons.get(&self.config.name);
        let rank = membership.rank_of(self.config.id).map_or(-1, |rank| rank as i64);
        LogEntry {
            name: AuthName::new(EntityType::Mon, self.config.name.clone()),
            rank: EntityName::new(EntityType::Mon, rank),
            addrs: mine.map(|mon| mon.public_addrs.clone()).unwrap_or_default(),
            stamp: self.now.wall,
            seq: 0,
            level,
            text,
            channel: channel.to_string(),
        }
    }
}
