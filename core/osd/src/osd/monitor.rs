//! What an OSD and its monitor say to each other: being up, maps, records of PGs, reports.

use super::{BOOT_RETRY, Life, Osd, REPORT_AFTER_OPS, REPORT_EVERY};
use crate::commands;
use crate::pg::{Pg, PgEvent};
use nacre_auth::{Keys, Usage};
use nacre_base::{IntervalSet, Now, PgId, PoolId, Time};
use nacre_machine::{Context, Effect, Level, StoreView};
use nacre_monc::{FromMon, MonClient};
use nacre_perf::Reading;
use nacre_proto::messages::{
    CounterReport, DaemonMsg, Message, OsdBoot, OsdReport, OsdSpace, PgRecord, PgWish, SlowOps,
};
use nacre_proto::types::cluster_format;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Reports to the monitors: when the next one is due, and what the last one said.
pub(super) struct Reporting {
    pub next: Time,
    /// How many were made.
    pub count: u32,
    /// How many requests were served at the last report, and when that was.
    pub ops: (u64, Time),
    /// What was free then.
    pub available: u64,
    /// How many commits there were until then, and how many nanoseconds they took together.
    pub commits: (u64, u64),
    /// When counters were last reported.
    pub counters: Option<Time>,
    /// The cluster's format, as a monitor said last.
    pub format: u32,
    /// It was logged that this OSD cannot use the cluster's format.
    pub complained: bool,
}

impl Default for Reporting {
    fn default() -> Reporting {
        Reporting {
            next: Time::ZERO,
            count: 0,
            ops: (0, Time::ZERO),
            available: 0,
            commits: (0, 0),
            counters: None,
            format: cluster_format::FIRST,
            complained: false,
        }
    }
}

/// What PGs want of the monitors, until the end of the event.
#[derive(Default)]
pub(super) struct PgRequests {
    pub records: BTreeSet<PgId>,
    pub activations: BTreeMap<PgId, PgRecord>,
    pub pg_temp: BTreeMap<PgId, PgWish>,
}

impl Osd {
    /// Runs something in the session with a monitor, which knows the newest map here.
    pub(super) fn with_mon<R>(
        &mut self,
        now: Now,
        out: &mut Vec<Effect>,
        run: impl FnOnce(&mut MonClient, &mut Context<'_>) -> R,
    ) -> R {
        if let Some(map) = self.maps.current.as_ref() {
            self.mon.have("osdmap", map.epoch);
        }
        run(&mut self.mon, &mut Context { now, conns: &mut self.links.conns, out })
    }

    /// Returns a message that is not only a monitor's, such as a command.
    pub(super) fn on_mon_message(
        &mut self,
        now: Now,
        store: &dyn StoreView,
        tid: u64,
        message: Message,
        out: &mut Vec<Effect>,
    ) -> Option<Message> {
        match self.with_mon(now, out, |mon, cx| mon.on_message(tid, message, cx)) {
            FromMon::Answer { tid, message: Message::MonGetVersionReply(reply) } => {
                self.on_newest_map(now, tid, reply.version, out);
            }
            FromMon::Nothing | FromMon::Answer { .. } => {}
            FromMon::Config(values) => self.options.take(values),
            FromMon::Pass(Message::OsdMap(msg)) => {
                self.counted.osd.map_messages.inc();
                self.on_maps(now, store, &msg, out);
            }
            FromMon::Pass(Message::Daemon(msg)) => self.on_daemon(now, store, msg, out),
            FromMon::Pass(other) => return Some(other),
        }
        None
    }

    pub(super) fn to_mon(&self, message: impl Into<Message>, out: &mut Vec<Effect>) {
        if let Some(conn) = self.mon.ready() {
            out.push(Effect::Send { conn, tid: 0, message: message.into() });
        }
    }

    /// Asks for maps from the next one on.
    pub(super) fn ask_for_maps(&mut self, now: Now, out: &mut Vec<Effect>) {
        self.with_mon(now, out, |mon, cx| mon.ask_for_maps(false, cx));
    }

    pub(super) fn boot_if_needed(&mut self, now: Now, store: &dyn StoreView, out: &mut Vec<Effect>) {
        let running = matches!(self.life, Life::Running);
        if !running || self.presence.serving || self.map().is_none() || now.mono < self.presence.next_boot {
            return;
        }
        if !self.may_return(now, out) {
            return;
        }
        self.presence.next_boot = now.mono + BOOT_RETRY;
        let boot = OsdBoot {
            osd: self.me(),
            uuid: self.config.uuid,
            public: self.config.public.clone(),
            cluster: self.config.cluster.clone(),
            newest_map: self.maps.epoch(),
            capacity: store.statfs().total,
            device_class: self.config.device_class.clone(),
            host: self.config.host.clone(),
            metadata: commands::metadata(&self.config),
            formats: Some(self.config.release.formats),
        };
        self.to_mon(DaemonMsg::Boot(boot), out);
    }

    pub(super) fn on_daemon(
        &mut self,
        now: Now,
        store: &dyn StoreView,
        msg: DaemonMsg,
        out: &mut Vec<Effect>,
    ) {
        match msg {
            DaemonMsg::Records { epoch, records } => {
                for (pg, record) in records {
                    self.tell_pg(now, store, pg, PgEvent::Record { epoch, record }, out);
                }
            }
            DaemonMsg::Activated { results, .. } => {
                for (pg, interval, accepted) in results {
                    self.tell_pg(now, store, pg, PgEvent::Activated { interval, accepted }, out);
                }
            }
            DaemonMsg::Force { pgs, backfill, on } => {
                for pg in pgs {
                    self.tell_pg(now, store, pg, PgEvent::Force { backfill, on }, out);
                }
            }
            DaemonMsg::CountImages { seconds } => {
                self.images.count_for(now.mono, Duration::from_secs(seconds.into()));
            }
            DaemonMsg::Scrub { pgs, deep, repair } => {
                self.on_scrub_wanted(now, store, pgs, (deep, repair), out);
            }
            DaemonMsg::Keys { sealed } => self.on_keys(&sealed, out),
            DaemonMsg::Format { format } => self.on_format(format, out),
            _ => {}
        }
    }

    /// The cluster's format, as far as it is known here.
    pub(crate) fn format(&self) -> u32 {
        self.reporting.format
    }
    /// What the cluster has for its format. An OSD that cannot use it is not let in.
    fn on_format(&mut self, format: u32, out: &mut Vec<Effect>) {
        let formats = self.config.release.formats;
        if formats.contains(format) {
            self.reporting.format = format;
        } else if !std::mem::replace(&mut self.reporting.complained, true) {
            let text = format!(
                "osd.{} does not start to serve: this version can use the formats {} to {}, and the cluster has \
                 format {format}: install another version of Nacre here",
                self.me(),
                formats.min,
                formats.max
            );
            out.push(Effect::Log { level: Level::Error, text });
        }
    }

    fn on_keys(&self, sealed: &[u8], out: &mut Vec<Effect>) {
        let Some(key) = &self.config.key else { return };
        match key.open::<Keys>(Usage::RotatingSecrets, sealed) {
            Ok(keys) => out.push(Effect::Keys(Arc::new(keys))),
            Err(error) => {
                let text = format!("the service keys: {error}");
                out.push(Effect::Log { level: Level::Error, text });
            }
        }
    }

    pub(super) fn report_if_due(&mut self, now: Now, store: &dyn StoreView, out: &mut Vec<Effect>) {
        let (served, at) = self.reporting.ops;
        let news = served != self.ops_served && now.mono.since(at) >= REPORT_AFTER_OPS;
        if (now.mono < self.reporting.next && !news) || self.mon.ready().is_none() {
            return;
        }
        self.reporting.next = now.mono + REPORT_EVERY;
        self.reporting.ops = (self.ops_served, now.mono);
        let statfs = store.statfs();
        self.reporting.available = statfs.available;
        let commit_latency_us = self.commit_latency_us();
        let mut kept: BTreeMap<PoolId, IntervalSet> = BTreeMap::new();
        for pg in self.shards.iter_mut().flat_map(|shard| shard.pgs.values_mut()) {
            let snaps = pg.take_new_snaps();
            if !snaps.is_empty() {
                kept.entry(pg.id.pool).or_default().add(&snaps);
            }
        }
        let report = OsdReport {
            osd: Some(self.me()),
            epoch: self.maps.epoch(),
            space: OsdSpace {
                total: statfs.total,
                available: statfs.available,
                allocated: statfs.allocated,
                stored: statfs.stored,
                omap: statfs.omap,
                internal: statfs.internal,
            },
            commit_latency_us,
            pgs: self.pgs().filter_map(|pg| pg.report(now.wall)).collect(),
            num_objects: self.pgs().map(Pg::objects).sum(),
            seq: self.next_report(),
            pools: Some(store.pools()),
            slow: self.slow_ops(now.mono),
            kept,
            counters: self.counters_if_due(now.mono, store),
            format: self.reporting.format,
        };
        self.reporting.count = self.reporting.count.wrapping_add(1);
        self.to_mon(DaemonMsg::Report(report), out);
        let latencies = self.counted.latencies.take();
        if self.reporting.format >= cluster_format::LATENCIES && !latencies.is_empty() {
            self.to_mon(DaemonMsg::Latencies(latencies), out);
        }
        let images = self.images.take(now.mono);
        if !images.is_empty() {
            self.to_mon(DaemonMsg::Images(images), out);
        }
    }

    /// Counters go with a report every few seconds, however often there are reports.
    fn counters_if_due(&mut self, now: Time, store: &dyn StoreView) -> Vec<CounterReport> {
        if self.reporting.counters.is_some_and(|last| now.since(last) < REPORT_EVERY) {
            return Vec::new();
        }
        self.reporting.counters = Some(now);
        commands::set_gauges(self, store);
        let readings = self.counted.registry.readings().into_iter();
        let report = |(set, name, value): (&str, &str, Reading)| CounterReport {
            set: set.to_string(),
            name: name.to_string(),
            value,
        };
        readings.map(report).collect()
    }

    fn slow_ops(&self, now: Time) -> SlowOps {
        let slow = self.options.keep().slow;
        let ages = self.pgs().flat_map(move |pg| pg.ages(now)).filter(|age| *age >= slow);
        ages.fold(SlowOps::default(), |found, age| SlowOps {
            count: found.count + 1,
            oldest_secs: found.oldest_secs.max(age.as_secs() as u32),
        })
    }

    /// The number of the report that is made next.
    pub(crate) fn next_report(&self) -> u64 {
        let up_from = self.map().and_then(|map| map.osd(self.me())).map_or(0, |osd| osd.info.up_from.0);
        u64::from(up_from) << 32 | u64::from(self.reporting.count.wrapping_add(1))
    }

    /// Makes the next report as soon as a monitor can be told, and gives its number.
    pub(crate) fn report_at_once(&mut self, now: Now) -> u64 {
        self.reporting.next = now.mono;
        self.next_report()
    }

    /// The mean since the last report, in microseconds; zero if nothing was stored.
    fn commit_latency_us(&mut self) -> u32 {
        let commit = &self.counted.stages.commit;
        let (count, nanos) = (commit.count(), commit.sum());
        let (last_count, last_nanos) = std::mem::replace(&mut self.reporting.commits, (count, nanos));
        // A reset in between makes both smaller.
        let mean = nanos.saturating_sub(last_nanos).checked_div(count.saturating_sub(last_count));
        (mean.unwrap_or(0) / 1000).min(u32::MAX.into()) as u32
    }
}
