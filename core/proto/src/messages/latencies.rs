//! How long requests took: counts by latency, in buckets of which four double it.

use nacre_wire::versioned_fields;
use std::collections::BTreeMap;
use std::time::Duration;

/// Buckets that double the latency.
const PER_DOUBLING: u32 = 2; // as a power of two
/// Below this many microseconds each has a bucket of its own.
const EXACT: u64 = 1 << PER_DOUBLING;

/// Counts of requests by latency.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    /// By bucket.
    counts: BTreeMap<u8, u32>,
}

versioned_fields!(Latencies, "latencies", counts);

impl Latencies {
    /// How many buckets there are.
    pub const BUCKETS: usize = 256;

    /// The bucket of a latency.
    pub fn bucket(latency: Duration) -> u8 {
        bucket(u64::try_from(latency.as_micros()).unwrap_or(u64::MAX))
    }

    /// Adds the counts of others.
    pub fn merge(&mut self, other: &Latencies) {
        for (bucket, more) in &other.counts {
            let count = self.counts.entry(*bucket).or_default();
            *count = count.saturating_add(*more);
        }
    }

    /// Whether no request was counted.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }
    /// How many requests were counted.
    pub fn count(&self) -> u64 {
        self.counts.values().map(|count| u64::from(*count)).sum()
    }

    /// Microseconds within which 99 % were answered, rounded up to the end of a bucket. None if nothing was
    /// counted.
    pub fn p99(&self) -> Option<u64> {
        let wanted = self.count() - self.count() / 100;
        let mut seen = 0;
        let (found, _) = self.counts.iter().find(|(_, count)| {
            seen += u64::from(**count);
            seen >= wanted
        })?;
        Some(end(*found))
    }
}

/// From the count of each bucket.
impl FromIterator<(u8, u32)> for Latencies {
    fn from_iter<I: IntoIterator<Item = (u8, u32)>>(counts: I) -> Latencies {
        Latencies { counts: counts.into_iter().collect() }
    }
}

fn bucket(micros: u64) -> u8 {
    if micros < EXACT {
        return micros as u8;
    }
    let doublings = micros.ilog2();
    let part = (micros >> (doublings - PER_DOUBLING)) & (EXACT - 1);
    (u64::from(doublings) << PER_DOUBLING | part) as u8
}

/// The longest latency of a bucket.
fn end(bucket: u8) -> u64 {
    let bucket = u64::from(bucket);
    let (doublings, part) = (bucket >> PER_DOUBLING, bucket & (EXACT - 1));
    match doublings.checked_sub(PER_DOUBLING.into()) {
        Some(shift) => ((u128::from(EXACT + part + 1) << shift) - 1) as u64,
        None => bucket,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_ends_where_the_next_one_begins() {
        for micros in (0..5000).chain([1 << 20, (1 << 40) + 7, u64::MAX]) {
            let found = bucket(micros);
            assert!(end(found) >= micros, "{micros}");
            assert!(end(found) == u64::MAX || bucket(end(found) + 1) > found, "{micros}");
            assert_eq!(bucket(end(found)), found, "{micros}");
        }
    }

    #[test]
    fn one_request_in_a_hundred_may_be_slower_than_p99() {
        assert_eq!(Latencies::default().p99(), None);
        let of = |latency, count| Latencies::from_iter([(Latencies::bucket(latency), count)]);
        let (mut all, slow) = (of(Duration::from_micros(100), 99), of(Duration::from_secs(1), 1));
        all.merge(&slow);
        assert_eq!((all.count(), all.p99()), (100, Some(111)));
        all.merge(&slow);
        assert!(all.p99() >= Some(1_000_000));
    }
}
