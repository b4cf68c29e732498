//! The kinds of values that are counted.

use crate::histogram::{Histogram, SizedHistogram};
use serde_json::{Value as Json, json};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Ceph's bits for the kind of a value. Ceph: `perfcounter_type_d`.
mod bits {
    pub const TIME: u32 = 1;
    pub const INTEGER: u32 = 2;
    pub const AVERAGE: u32 = 4;
    pub const COUNTER: u32 = 8;
    pub const HISTOGRAM: u32 = 16;
}

/// Something that `perf dump`, or `perf histogram dump`, shows.
pub trait Value {
    /// Ceph's type number and words for it, and the unit.
    fn kind(&self) -> Kind;
    /// In `perf dump`; None for what is only a histogram.
    fn json(&self) -> Option<Json>;
    fn histogram(&self) -> Option<Json> {
        None
    }
    /// For programs that collect metrics; None for what is only a histogram.
    fn reading(&self) -> Option<Reading>;
    fn reset(&self);
}

/// What a value is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Only grows, until the daemon is restarted or the counter is reset.
    Counter(u64),
    Gauge(u64),
    /// How many were counted, and how long all of them took.
    Mean {
        count: u64,
        nanos: u64,
    },
}

/// As `perf schema` says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    pub number: u32,
    pub metric: &'static str,
    pub value: &'static str,
    pub unit: &'static str,
}

impl Kind {
    pub(crate) const HISTOGRAM: Kind = Kind {
        number: bits::INTEGER | bits::COUNTER | bits::HISTOGRAM,
        metric: "counter",
        value: "integer-histogram",
        unit: "none",
    };
}

macro_rules! integer {
    ($(#[$meta:meta])* $name:ident, $number:expr, $metric:literal, $unit:literal, $reading:ident, $reset:expr) => {
        $(#[$meta])*
        #[derive(Debug, Default)]
        pub struct $name(AtomicU64);

        impl $name {
            pub fn get(&self) -> u64 {
                self.0.load(Relaxed)
            }
        }
        impl Value for $name {
            fn kind(&self) -> Kind {
                Kind { number: $number, metric: $metric, value: "integer", unit: $unit }
            }
            fn json(&self) -> Option<Json> {
                Some(json!(self.get()))
            }
            fn reading(&self) -> Option<Reading> {
                Some(Reading::$reading(self.get()))
            }
            fn reset(&self) {
                if $reset {
                    self.0.store(0, Relaxed);
                }
            }
        }
    };
}
integer!(/** Only grows. */ Count, bits::INTEGER | bits::COUNTER, "counter", "none", Counter, true);
integer!(/** Only grows. */ Bytes, bits::INTEGER | bits::COUNTER, "counter", "bytes", Counter, true);
integer!(/** How much there is now; a reset leaves it. */ Gauge, bits::INTEGER, "gauge", "none", Gauge, false);
integer!(/** How much there is now; a reset leaves it. */ GaugeBytes, bits::INTEGER, "gauge", "bytes", Gauge, false);

macro_rules! grows {
    ($($name:ident),*) => {$(
        impl $name {
            pub fn inc(&self) {
                self.add(1);
            }
            pub fn add(&self, n: u64) {
                self.0.fetch_add(n, Relaxed);
            }
        }
    )*};
}
grows!(Count, Bytes);

macro_rules! is_set {
    ($($name:ident),*) => {$(
        impl $name {
            pub fn set(&self, n: u64) {
                self.0.store(n, Relaxed);
            }
        }
    )*};
}
is_set!(Gauge, GaugeBytes);

/// How long something took: the mean in `perf dump`, the distribution in `perf histogram dump`.
#[derive(Debug, Default)]
pub struct Latency {
    count: AtomicU64,
    nanos: AtomicU64,
    histogram: Histogram,
}

impl Latency {
    pub fn add(&self, took: Duration) {
        let nanos = took.as_nanos() as u64;
        self.count.fetch_add(1, Relaxed);
        self.nanos.fetch_add(nanos, Relaxed);
        self.histogram.add(nanos / 1000);
    }
    pub fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }
    /// Of all that were counted, in nanoseconds.
    pub fn sum(&self) -> u64 {
        self.nanos.load(Relaxed)
    }
    /// In microseconds, rounded up to a power of two; None when nothing was counted.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        self.histogram.quantile(share)
    }
}

impl Value for Latency {
    fn kind(&self) -> Kind {
        Kind { number: bits::TIME | bits::AVERAGE, metric: "gauge", value: "real-integer-pair", unit: "none" }
    }
    fn json(&self) -> Option<Json> {
        let (count, sum) = (self.count(), self.sum() as f64 / 1e9);
        let mean = if count == 0 { 0.0 } else { sum / count as f64 };
        Some(json!({ "avgcount": count, "sum": round(sum), "avgtime": round(mean) }))
    }
    fn histogram(&self) -> Option<Json> {
        Some(self.histogram.json())
    }
    fn reading(&self) -> Option<Reading> {
        Some(Reading::Mean { count: self.count(), nanos: self.sum() })
    }
    fn reset(&self) {
        self.count.store(0, Relaxed);
        self.nanos.store(0, Relaxed);
        self.histogram.reset();
    }
}

/// To a nanosecond.
fn round(seconds: f64) -> f64 {
    (seconds * 1e9).round() / 1e9
}

/// How long requests took, by their size. Only in `perf histogram dump`.
#[derive(Debug, Default)]
pub struct SizedLatency(SizedHistogram);

impl SizedLatency {
    pub fn add(&self, took: Duration, bytes: u64) {
        self.0.add(took.as_micros() as u64, bytes);
    }
}

impl Value for SizedLatency {
    fn kind(&self) -> Kind {
        Kind { value: "integer-2d-histogram", ..Kind::HISTOGRAM }
    }
    fn json(&self) -> Option<Json> {
        None
    }
    fn histogram(&self) -> Option<Json> {
        Some(self.0.json())
    }
    fn reading(&self) -> Option<Reading> {
        None
    }
    fn reset(&self) {
        self.0.reset();
    }
}
