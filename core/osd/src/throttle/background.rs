//! Limits of background work: a closed loop (`Pace`), or a number of slots.
//!
//! A closed loop. Beside clients it begins with one transfer at a time and a long rest after each.
//! While clients wait no longer than they do without it, the rest gets shorter until there is none, and
//! then more transfers may be in flight; when they wait longer, half of all that goes at once, and
//! when they wait twice as long, all but the minimum. It never stops, so that recovery ends. Without
//! clients the limit is the configured maximum.

use super::Limit;
use nacre_base::Time;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The part of their latency without recovery by which clients may wait longer, for each point of
/// priority, and a constant on top: smaller differences are noise on any machine.
const TOLERANCE: f64 = 1.0 / 48.0;
const TOLERANCE_MIN: f64 = 0.000_2;
/// The shortest rest; below it there is none.
const REST: Duration = Duration::from_millis(1);
/// A mean of fewer requests than this is noise: more are waited for,
const REQUESTS_MIN: u64 = 16;
/// for up to this many samples. Fewer than one request per sample then count as no clients,
const SAMPLES_MAX: u32 = 4;
/// and so do this many samples without any request.
const IDLE_SAMPLES_MAX: u32 = 2;
/// The usual latency is learned from this many samples where it is not known.
const SAMPLES_TO_LEARN: u32 = 3;
/// The usual latency moves by this part of the difference to a new mean,
const WEIGHT: f64 = 1.0 / 8.0;
/// and by this part when the mean has grown during recovery at the minimum rate: the cause may be more
/// client work, or recovery itself.
const WEIGHT_UNCERTAIN: f64 = 1.0 / 64.0;

/// One transfer in flight, or one PG that moves. The slot is freed when this is dropped.
#[derive(Debug)]
pub struct WorkSlot(Arc<AtomicU32>);

impl WorkSlot {
    pub fn new(under_way: &Arc<AtomicU32>) -> WorkSlot {
        under_way.fetch_add(1, Ordering::Relaxed);
        WorkSlot(under_way.clone())
    }
}
impl Drop for WorkSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a PG says of the transfer that it wants to start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkRequest {
    /// There is no second copy of what it is about, so it may have all that there is.
    pub scarce: bool,
    /// An operator wants the PG to go before others.
    pub forced: bool,
}

/// The configuration of a pace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaceConfig {
    /// Transfers at a time at most. Ceph: `osd_recovery_max_active`.
    pub max: u32,
    /// From the start of one transfer to that of the next at least. Ceph: `osd_recovery_sleep`.
    pub sleep: Duration,
    /// How much clients bear for its sake. Ceph: `osd_recovery_op_priority`.
    pub priority: u32,
    /// How long it rests between the start of one and that of the next at first, and when clients wait
    /// even for one at a time.
    pub rest_max: Duration,
}

/// The closed loop of one class of background work. A removed clone is a transfer, too.
pub struct Pace {
    config: PaceConfig,
    /// How many transfers may be in flight.
    window: u32,
    /// How long there is none after each; zero unless there is one at a time.
    rest: Duration,
    /// Whether a transfer was started since the last sample.
    started: Cell<bool>,
    under_way: Arc<AtomicU32>,
    last_start: Cell<Option<Time>>,
    /// What clients wait when nothing is recovered, in seconds, smoothed; none before that was seen.
    usual: Option<f64>,
    /// Requests answered, and what they waited, when they were last judged.
    seen: (u64, Duration),
    /// Since then.
    samples: u32,
    busy: bool,
    /// Samples that are left to learn the usual latency.
    learning: u32,
}

impl Pace {
    pub fn new(config: PaceConfig) -> Pace {
        Pace {
            config,
            window: config.max,
            rest: Duration::ZERO,
            started: Cell::new(false),
            under_way: Arc::default(),
            last_start: Cell::new(None),
            usual: None,
            seen: (0, Duration::ZERO),
            samples: 0,
            busy: false,
            learning: 0,
        }
    }

    fn is_free(&self, now: Time, window: u32, rest: Duration) -> bool {
        let pause = self.config.sleep.max(rest);
        self.under_way.load(Ordering::Relaxed) < window
            && self.last_start.get().is_none_or(|last| last + pause <= now)
    }

    /// A few times a second: how many requests of clients were answered so far, and how long all of
    /// them together waited.
    pub fn look(&mut self, config: PaceConfig, answered: u64, waited: Duration) {
        self.config = config;
        self.busy |= self.started.replace(false) || self.under_way.load(Ordering::Relaxed) > 0;
        self.samples += 1;
        let requests = answered.saturating_sub(self.seen.0);
        let samples_max = if requests == 0 { IDLE_SAMPLES_MAX } else { SAMPLES_MAX };
        if requests < REQUESTS_MIN && self.samples < samples_max {
            return;
        }
        let time = waited.saturating_sub(self.seen.1);
        if requests < u64::from(self.samples) {
            self.rest = Duration::ZERO;
            self.window = self.window.saturating_mul(2);
        } else {
            self.adjust(time.as_secs_f64() / requests as f64);
        }
        self.window = self.window.clamp(1, config.max.max(1));
        self.seen = (answered, waited);
        self.samples = 0;
        self.busy = false;
    }

    /// Adjusts the limit by the mean latency of clients' requests since the last adjustment, in seconds.
    fn adjust(&mut self, mean: f64) {
        let Some(usual) = self.usual.filter(|_| self.learning == 0) else {
            // Latency without recovery is unknown: it is measured at the minimum recovery rate.
            match self.learning {
                0 if self.busy => self.learning = SAMPLES_TO_LEARN,
                0 => self.usual = Some(mean),
                _ => {
                    self.learning -= 1;
                    self.usual = Some(self.usual.map_or(mean, |usual| usual.min(mean)));
                }
            }
            self.slowest();
            return;
        };
        let may = usual * (1.0 + TOLERANCE * f64::from(self.config.priority)) + TOLERANCE_MIN;
        let weight = match (self.busy, self.is_slowest()) {
            (false, _) => WEIGHT,
            _ if mean < usual => WEIGHT,
            (true, true) => WEIGHT_UNCERTAIN,
            (true, false) => 0.0,
        };
        self.usual = Some(usual + (mean - usual) * weight);
        if !self.busy || mean > 2.0 * may {
            self.slowest();
        } else if mean > may {
            self.slower();
        } else {
            self.faster();
        }
    }

    fn is_slowest(&self) -> bool {
        self.window <= 1 && self.rest >= self.config.rest_max
    }
    fn slowest(&mut self) {
        self.window = 1;
        self.rest = self.config.rest_max;
    }
    fn slower(&mut self) {
        if self.window <= 1 {
            self.rest = (self.rest * 2).max(REST).min(self.config.rest_max);
        }
        self.window /= 2;
    }
    fn faster(&mut self) {
        match self.rest {
            Duration::ZERO => self.window += 1,
            rest if rest < 2 * REST => self.rest = Duration::ZERO,
            rest => self.rest = rest * 3 / 4,
        }
    }
}

impl Limit for Pace {
    type Need = WorkRequest;
    type Grant = WorkSlot;

    fn is_urgent(need: &WorkRequest) -> bool {
        need.forced
    }
    /// The last copy of something does not wait for PGs with operator priority.
    fn is_exempt(need: &WorkRequest) -> bool {
        need.scarce
    }
    fn fits(&self, now: Time, need: &WorkRequest) -> bool {
        match need.scarce {
            true => self.is_free(now, self.config.max, Duration::ZERO),
            false => self.is_free(now, self.window, self.rest),
        }
    }
    fn wakes(&self, now: Time, _: &WorkRequest) -> bool {
        self.is_free(now, self.window, self.rest)
    }
    fn grant(&self, now: Time, _: WorkRequest) -> WorkSlot {
        self.last_start.set(Some(now));
        self.started.set(true);
        WorkSlot::new(&self.under_way)
    }
}

/// A fixed number of slots.
pub struct Slots {
    max: u32,
    under_way: Arc<AtomicU32>,
}

impl Slots {
    pub fn new(max: u32) -> Slots {
        Slots { max, under_way: Arc::default() }
    }
    pub fn set_max(&mut self, max: u32) {
        self.max = max;
    }
}

impl Limit for Slots {
    type Need = WorkRequest;
    type Grant = WorkSlot;

    fn is_urgent(need: &WorkRequest) -> bool {
        need.forced
    }
    fn fits(&self, _: Time, _: &WorkRequest) -> bool {
        self.under_way.load(Ordering::Relaxed) < self.max
    }
    fn grant(&self, _: Time, _: WorkRequest) -> WorkSlot {
        WorkSlot::new(&self.under_way)
    }
}

#[cfg(test)]
mod tests;
