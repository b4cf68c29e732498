//! How often something took how long, and how long for how many bytes.

use serde_json::{Map, Value as Json, json};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// One dimension of a histogram: below zero, then `quant` wide, then twice as wide each, then the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    pub name: &'static str,
    /// Width of the first bucket.
    pub quant: u64,
    pub buckets: usize,
}

impl Axis {
    pub const MICROS: Axis = Axis { name: "Latency (usec)", quant: 1, buckets: 32 };
    pub const SIZE: Axis = Axis { name: "Request size (bytes)", quant: 512, buckets: 32 };

    /// Bucket 0 is for what is below zero, which nothing here is.
    pub fn bucket(&self, value: u64) -> usize {
        let quants = value / self.quant;
        let bucket = 1 + (u64::BITS - quants.leading_zeros()) as usize;
        bucket.min(self.buckets - 1)
    }

    /// The first value that is past this bucket; None for the last one.
    fn end(&self, bucket: usize) -> Option<u64> {
        match bucket {
            0 => Some(0),
            last if last + 1 == self.buckets => None,
            n => Some(self.quant << (n - 1)),
        }
    }

    fn json(&self) -> Json {
        let mut from = None;
        let ranges = (0..self.buckets).map(|bucket| {
            let end = self.end(bucket);
            let mut range = Map::new();
            range.extend(from.map(|min: u64| ("min".to_string(), json!(min))));
            range.extend(end.map(|end| ("max".to_string(), json!(end as i64 - 1))));
            from = end;
            Json::Object(range)
        });
        let ranges: Vec<Json> = ranges.collect();
        json!({
            "name": self.name,
            "min": 0,
            "quant_size": self.quant,
            "buckets": self.buckets,
            "scale_type": "log2",
            "ranges": ranges,
        })
    }
}

/// Counts of one quantity, in microseconds.
#[derive(Debug, Default)]
pub struct Histogram {
    counts: [AtomicU64; Axis::MICROS.buckets],
}

impl Histogram {
    pub fn add(&self, micros: u64) {
        self.counts[Axis::MICROS.bucket(micros)].fetch_add(1, Relaxed);
    }
    pub fn reset(&self) {
        self.counts.iter().for_each(|count| count.store(0, Relaxed));
    }
    /// No less than this many microseconds were taken by all but the slowest `1 - share`: the end of
    /// the bucket in which that one is. None when nothing was counted.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let counts: Vec<u64> = self.counts.iter().map(|count| count.load(Relaxed)).collect();
        let total: u64 = counts.iter().sum();
        let wanted = (total as f64 * share).ceil() as u64;
        let mut seen = 0;
        let at = counts.iter().position(|count| {
            seen += count;
            total > 0 && seen >= wanted
        })?;
        Some(Axis::MICROS.end(at).unwrap_or(u64::MAX))
    }
    pub fn json(&self) -> Json {
        let values: Vec<u64> = self.counts.iter().map(|count| count.load(Relaxed)).collect();
        json!({ "axes": [Axis::MICROS.json()], "values": values })
    }
}

/// Counts by microseconds and bytes.
#[derive(Debug)]
pub struct SizedHistogram {
    counts: Box<[[AtomicU64; Axis::SIZE.buckets]]>,
}

impl Default for SizedHistogram {
    fn default() -> SizedHistogram {
        let row = || std::array::from_fn(|_| AtomicU64::new(0));
        SizedHistogram { counts: (0..Axis::MICROS.buckets).map(|_| row()).collect() }
    }
}

impl SizedHistogram {
    pub fn add(&self, micros: u64, bytes: u64) {
        self.counts[Axis::MICROS.bucket(micros)][Axis::SIZE.bucket(bytes)].fetch_add(1, Relaxed);
    }
    pub fn reset(&self) {
        self.counts.iter().flatten().for_each(|count| count.store(0, Relaxed));
    }
    pub fn json(&self) -> Json {
        let row = |row: &[AtomicU64; Axis::SIZE.buckets]| -> Vec<u64> {
            row.iter().map(|count| count.load(Relaxed)).collect()
        };
        let values: Vec<Vec<u64>> = self.counts.iter().map(row).collect();
        json!({ "axes": [Axis::MICROS.json(), Axis::SIZE.json()], "values": values })
    }
}
