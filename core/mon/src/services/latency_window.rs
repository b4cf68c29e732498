//! The latency of requests in the last seconds, from what OSDs report.

use nacre_base::{OsdId, Time};
use nacre_perf::Reading;
use nacre_proto::messages::{CounterReport, Latencies};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// How far back it looks.
const WINDOW: Duration = Duration::from_secs(60);
/// Reports of so long are added up.
const SLOT: Duration = Duration::from_secs(1);
/// Fewer requests say nothing.
const OPS_MIN: u64 = 100;

/// Latencies of all OSDs.
#[derive(Default)]
pub struct LatencyWindow {
    /// One for each second in which there were reports, with when it began.
    sums: VecDeque<(Time, Sum)>,
    /// The counter of each OSD in its last report: requests, and nanoseconds that they took.
    counted: BTreeMap<OsdId, (u64, u64)>,
}

#[derive(Default)]
struct Sum {
    latencies: Latencies,
    /// Requests, and nanoseconds that they took.
    ops: u64,
    nanos: u64,
}

impl LatencyWindow {
    /// An OSD reports its counters.
    pub fn counters(&mut self, now: Time, osd: OsdId, counters: &[CounterReport]) {
        let found = counters.iter().find(|counter| counter.set == "osd" && counter.name == "op_latency");
        let Some(CounterReport { value: Reading::Mean { count, nanos }, .. }) = found else { return };
        // It counts from zero in a new process. What a new one counted before is not known to be recent.
        if let Some((before, before_nanos)) = self.counted.insert(osd, (*count, *nanos))
            && *count > before
            && *nanos >= before_nanos
        {
            let sum = self.sum(now);
            sum.ops = sum.ops.saturating_add(count - before);
            sum.nanos = sum.nanos.saturating_add(nanos - before_nanos);
        }
    }

    /// An OSD reports latencies.
    pub fn latencies(&mut self, now: Time, latencies: &Latencies) {
        self.sum(now).latencies.merge(latencies);
    }

    /// That of this second.
    fn sum(&mut self, now: Time) -> &mut Sum {
        while self.sums.front().is_some_and(|(at, _)| now.since(*at) > WINDOW) {
            self.sums.pop_front();
        }
        if self.sums.back().is_none_or(|(at, _)| now.since(*at) >= SLOT) {
            self.sums.push_back((now, Sum::default()));
        }
        let last = self.sums.len() - 1;
        &mut self.sums[last].1
    }

    /// Microseconds since then: p99, or the mean. None while there were few requests.
    pub fn figure(&self, p99: bool, since: Time) -> Option<u64> {
        let (mut all, mut ops, mut nanos) = (Latencies::default(), 0_u64, 0_u64);
        for (_, sum) in self.sums.iter().filter(|(at, _)| *at >= since) {
            all.merge(&sum.latencies);
            ops = ops.saturating_add(sum.ops);
            nanos = nanos.saturating_add(sum.nanos);
        }
        match p99 {
            true => all.p99().filter(|_| all.count() >= OPS_MIN),
            false => (ops >= OPS_MIN).then(|| nanos / ops / 1000),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter(count: u64, nanos: u64) -> [CounterReport; 1] {
        let value = Reading::Mean { count, nanos };
        [CounterReport { set: "osd".into(), name: "op_latency".into(), value }]
    }

    #[test]
    fn mean_is_of_requests_since_the_report_before_also_after_a_restart() {
        let mut window = LatencyWindow::default();
        let at = |secs| Time::ZERO + Duration::from_secs(secs);
        window.counters(at(1), OsdId(0), &counter(1_000_000, 7));
        assert_eq!(window.figure(false, Time::ZERO), None);
        window.counters(at(2), OsdId(0), &counter(1_000_100, 7 + 300_000_000));
        assert_eq!(window.figure(false, Time::ZERO), Some(3000));
        window.counters(at(3), OsdId(0), &counter(5, 5));
        window.counters(at(4), OsdId(0), &counter(205, 5 + 200_000_000));
        assert_eq!(window.figure(false, at(3)), Some(1000));
        assert_eq!(window.figure(true, Time::ZERO), None);
        window.counters(at(100), OsdId(0), &counter(305, 5 + 900_000_000));
        assert_eq!(window.figure(false, Time::ZERO), Some(7000), "older reports count no more");
    }
    #[test]
    fn reports_of_a_second_take_the_memory_of_one() {
        let mut window = LatencyWindow::default();
        let one = Latencies::from_iter([(Latencies::bucket(Duration::from_millis(3)), 1)]);
        for n in 0..200_u64 {
            let at = Time::ZERO + Duration::from_millis(10 * n);
            window.latencies(at, &one);
            window.counters(at, OsdId(0), &counter(n, n * 1_000_000));
        }
        assert_eq!(window.sums.len(), 2);
        let p99 = window.figure(true, Time::ZERO).unwrap();
        assert!((3000..3500).contains(&p99), "{p99}");
        assert_eq!(window.figure(false, Time::ZERO), Some(1000));
    }
}
