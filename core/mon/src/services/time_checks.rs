//! Whether the monitors' clocks agree, for `ceph time-sync-status` and the warning MON_CLOCK_SKEW.
//!
//! In each round the leader asks the other monitors of the quorum for the time. An answer was written between
//! the question and its arrival; by how far it lies outside of that span, the clocks differ at least. Tickets
//! and stamps are made with these clocks. Ceph: `Monitor::timecheck`.

use crate::services::Context;
use crate::services::health::{Checks, warn};
use nacre_base::{Now, Time, Utime};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// A round ends without those that have not answered for this long.
const PATIENCE: Duration = Duration::from_secs(5);
const NANOS: i64 = 1_000_000_000;

/// What the leader knows of the other monitors' clocks.
#[derive(Default)]
pub struct TimeChecks {
    /// Odd while a round goes on, as in Ceph.
    round: u64,
    /// When the round began, or the last one did, on both clocks.
    began: Option<Now>,
    /// Members that were asked in this round and have not answered.
    waiting: Vec<u64>,
    /// By member.
    clocks: BTreeMap<u64, Clock>,
}

/// One monitor's clock beside the leader's.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Clock {
    /// How many nanoseconds it is ahead, at least; negative if it is behind.
    skew: i64,
    /// From the question to the answer.
    latency: Duration,
}

/// The options of the checks.
#[derive(Clone, Copy, Debug)]
pub struct TimeCheckConfig {
    /// Between rounds, and between rounds while clocks differ.
    pub interval: Duration,
    pub skew_interval: Duration,
}

impl TimeChecks {
    /// Begins a round if one is due. Gives its number, to ask `others` with.
    pub fn begin(
        &mut self,
        now: Now,
        config: TimeCheckConfig,
        allowed: i64,
        others: Vec<u64>,
    ) -> Option<u64> {
        self.clocks.retain(|member, _| others.contains(member));
        let age = self.began.map(|began| now.mono.since(began.mono));
        if self.is_under_way() && age.is_some_and(|age| age >= PATIENCE) {
            self.finish();
        }
        // A monitor that has just come is asked at once.
        let is_known = |member| self.clocks.contains_key(member);
        let is_skewed = self.clocks.values().any(|clock| clock.skew.abs() > allowed);
        let interval = match (is_skewed, others.iter().all(is_known)) {
            (_, false) => PATIENCE,
            (true, true) => config.skew_interval.min(config.interval),
            (false, true) => config.interval,
        };
        if others.is_empty() || self.is_under_way() || age.is_some_and(|age| age < interval) {
            return None;
        }
        (self.round, self.began, self.waiting) = (self.round + 1, Some(now), others);
        Some(self.round)
    }

    fn is_under_way(&self) -> bool {
        self.round % 2 == 1
    }
    fn finish(&mut self) {
        self.round += 1;
        self.waiting.clear();
    }

    /// A monitor says what its clock shows.
    pub fn answered(&mut self, now: Time, member: u64, round: u64, theirs: Utime) {
        let Some(began) = self.began.filter(|_| self.is_under_way() && round == self.round) else { return };
        let Some(at) = self.waiting.iter().position(|waiting| *waiting == member) else { return };
        self.waiting.remove(at);
        let latency = now.since(began.mono);
        self.clocks.insert(member, Clock { skew: skew(began.wall, latency, theirs), latency });
        if self.waiting.is_empty() {
            self.finish();
        }
    }

    /// Of `ceph time-sync-status`: the clocks of the leader and of those that answered, and the rounds.
    pub fn show(&self, cx: &Context<'_>, epoch: u64) -> Value {
        let mut shown = Map::new();
        if !self.clocks.is_empty() {
            let allowed = allowed(cx);
            let own = (cx.config.id, Clock { skew: 0, latency: Duration::ZERO });
            let rows = [own].into_iter().chain(self.clocks.iter().map(|(member, clock)| (*member, *clock)));
            let mut rows: Vec<_> =
                rows.filter_map(|(member, clock)| Some((name(cx, member)?, clock))).collect();
            rows.sort_by_key(|(name, _)| cx.state.monmap.map.ranks.iter().position(|other| other == name));
            let row = |clock: Clock| {
                let mut row = json!({
                    "skew": clock.skew as f64 / NANOS as f64,
                    "latency": clock.latency.as_secs_f64(),
                    "health": if clock.skew.abs() > allowed { "HEALTH_WARN" } else { "HEALTH_OK" },
                });
                if clock.skew.abs() > allowed {
                    row["details"] = json!(excess(clock, allowed));
                }
                row
            };
            let clocks: Map<String, Value> =
                rows.into_iter().map(|(name, clock)| (name.to_string(), row(clock))).collect();
            shown.insert("time_skew_status".to_string(), clocks.into());
        }
        let status = if self.is_under_way() { "on-going" } else { "finished" };
        let rounds = json!({ "epoch": epoch, "round": self.round, "round_status": status });
        shown.insert("timechecks".to_string(), rounds);
        Value::Object(shown)
    }

    /// Warns of clocks that differ from the leader's.
    pub fn health(&self, cx: &Context<'_>, checks: &mut Checks) {
        let allowed = allowed(cx);
        let skewed = self.clocks.iter().filter(|(_, clock)| clock.skew.abs() > allowed);
        let skewed: Vec<(&str, Clock)> =
            skewed.filter_map(|(member, clock)| Some((name(cx, *member)?, *clock))).collect();
        if skewed.is_empty() {
            return;
        }
        let names: Vec<String> = skewed.iter().map(|(name, _)| format!("mon.{name}")).collect();
        let detail = |(name, clock): &(&str, Clock)| {
            let latency = clock.latency.as_secs_f64();
            format!("mon.{name} {} (latency {latency:.6}s)", excess(*clock, allowed))
        };
        let summary = format!("clock skew detected on {}", names.join(", "));
        warn(checks, "MON_CLOCK_SKEW", skewed.len(), summary, skewed.iter().map(detail).collect());
    }
}

/// By how much `theirs` lies outside of the span from the question to the answer.
fn skew(asked: Utime, latency: Duration, theirs: Utime) -> i64 {
    let nanos = |stamp: Utime| i64::from(stamp.sec) * NANOS + i64::from(stamp.nsec);
    let (earliest, latest, theirs) = (nanos(asked), nanos(asked + latency), nanos(theirs));
    if theirs > latest { theirs - latest } else { (theirs - earliest).min(0) }
}

/// The skew, beside what is allowed.
fn excess(clock: Clock, allowed: i64) -> String {
    let seconds = |nanos: i64| nanos as f64 / NANOS as f64;
    format!("clock skew {:.6}s > max {}s", seconds(clock.skew.abs()), seconds(allowed))
}

fn name<'a>(cx: &'a Context<'_>, member: u64) -> Option<&'a str> {
    cx.state.monmap.members.get(&member).map(String::as_str)
}

/// How many nanoseconds clocks may differ.
pub fn allowed(cx: &Context<'_>) -> i64 {
    (cx.option("mon_clock_drift_allowed").as_f64() * NANOS as f64) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now(millis: u64) -> Now {
        let time = Duration::from_millis(millis);
        let start = Utime { sec: 1_800_000_000, nsec: 0 };
        Now { mono: Time::from_nanos(1 << 40) + time, wall: start + time }
    }
    const CONFIG: TimeCheckConfig =
        TimeCheckConfig { interval: Duration::from_secs(300), skew_interval: Duration::from_secs(30) };
    const ALLOWED: i64 = 50_000_000;

    #[test]
    fn time_within_the_span_of_the_question_is_no_skew() {
        let (asked, latency) = (Utime { sec: 100, nsec: 0 }, Duration::from_millis(20));
        let at = |millis: i64| {
            let nanos = 100 * NANOS + millis * 1_000_000;
            Utime { sec: (nanos / NANOS) as u32, nsec: (nanos % NANOS) as u32 }
        };
        let skews = [0, 7, 20, 25, -3, -2000].map(|millis| skew(asked, latency, at(millis)) / 1_000_000);
        assert_eq!(skews, [0, 0, 0, 5, -3, -2000]);
    }

    #[test]
    fn rounds_come_sooner_while_clocks_differ() {
        let mut checks = TimeChecks::default();
        assert_eq!(checks.begin(now(0), CONFIG, ALLOWED, vec![]), None);
        assert_eq!(checks.begin(now(0), CONFIG, ALLOWED, vec![2, 3]), Some(1));
        assert_eq!(checks.begin(now(1000), CONFIG, ALLOWED, vec![2, 3]), None);
        checks.answered(now(10).mono, 2, 1, now(5).wall);
        // An answer that comes twice, of another round, or of a monitor that was not asked.
        checks.answered(now(10).mono, 2, 1, now(9000).wall);
        checks.answered(now(10).mono, 3, 7, now(9000).wall);
        checks.answered(now(10).mono, 4, 1, now(9000).wall);
        checks.answered(now(10).mono, 3, 1, now(9010).wall);
        assert_eq!((checks.clocks[&2].skew, checks.clocks[&3].skew), (0, 9 * NANOS));
        assert_eq!((checks.round, checks.clocks.len()), (2, 2));
        assert_eq!(checks.begin(now(29_000), CONFIG, ALLOWED, vec![2, 3]), None);
        assert_eq!(checks.begin(now(30_000), CONFIG, ALLOWED, vec![2, 3]), Some(3));
        for member in [2, 3] {
            checks.answered(now(30_001).mono, member, 3, now(30_000).wall);
        }
        assert_eq!(checks.begin(now(300_000), CONFIG, ALLOWED, vec![2, 3]), None);
        // A monitor that is new is asked at once, one that left is forgotten, and one that is silent is left
        // out.
        assert_eq!(checks.begin(now(301_000), CONFIG, ALLOWED, vec![3, 5]), Some(5));
        assert_eq!(checks.clocks.keys().copied().collect::<Vec<_>>(), [3]);
        checks.answered(now(301_001).mono, 3, 5, now(301_000).wall);
        assert_eq!(checks.begin(now(305_000), CONFIG, ALLOWED, vec![3, 5]), None);
        assert_eq!(checks.begin(now(306_000), CONFIG, ALLOWED, vec![3, 5]), Some(7));
    }
}
