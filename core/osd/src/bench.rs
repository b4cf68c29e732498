//! `ceph tell osd.N bench`: how fast the store alone takes writes, asked of the OSD that has it.

use bytes::Bytes;
use nacre_base::{Rng, Time};
use nacre_machine::{ConnId, Token};
use nacre_proto::transaction::{Change, StoredId, Transaction};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Without arguments Ceph writes 1 GiB; the store here shares its log with clients.
const TOTAL_DEFAULT: u64 = 256 << 20;
const SIZE_DEFAULT: u64 = 4 << 20;
/// A larger write consists of several pieces with the same data.
const PIECE: u64 = 4 << 20;
/// Writes below this are limited by their number, others by their bytes.
const SMALL: u64 = 1 << 20;
/// Under way at a time, in bytes and in writes.
const WINDOW_BYTES: u64 = 64 << 20;
const WINDOW: usize = 64;
/// The object that is written over again from its start once it has this many bytes.
const SPAN: u64 = 64 << 20;

/// How much a benchmark may write, so that it ends soon and clients hardly notice. Options with Ceph's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BenchLimits {
    /// `osd_bench_max_block_size`
    pub size_max: u64,
    /// `osd_bench_duration`, in seconds.
    pub duration: u64,
    /// `osd_bench_small_size_max_iops`
    pub small_iops: u64,
    /// `osd_bench_large_size_max_throughput`, in bytes per second.
    pub large_throughput: u64,
}

/// Why none was begun.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BenchError {
    #[error(
        "block 'size' values are capped at {}. If you wish to use a higher value, please adjust \
         'osd_bench_max_block_size'",
        binary(*.0)
    )]
    Size(u64),
    #[error(
        "'count' values greater than {max} for a block size of {}, assuming {assumed} seconds, can cause ill effects \
         on osd.  Please adjust '{option}' with a higher value if you wish to use a higher 'count'.",
        binary(*.size)
    )]
    Count { max: u64, size: u64, assumed: String, option: &'static str },
    #[error("a benchmark is running")]
    Busy,
    #[error("there is not enough space")]
    NoSpace,
}

/// One that is under way. What it wrote is removed at its end.
#[derive(Debug)]
pub struct Bench {
    pub conn: ConnId,
    pub tid: u64,
    size: u64,
    total: u64,
    issued: u64,
    written: u64,
    started: Time,
    under_way: BTreeSet<Token>,
    data: Bytes,
}

/// Zero stands for what was not said.
pub fn bounds(count: u64, size: u64, available: u64, limits: BenchLimits) -> Result<(u64, u64), BenchError> {
    let total = if count == 0 { TOTAL_DEFAULT } else { count };
    let size = if size == 0 { SIZE_DEFAULT } else { size };
    let BenchLimits { size_max, duration, small_iops, large_throughput } = limits;
    if size > size_max {
        return Err(BenchError::Size(size_max));
    }
    let (max, assumed, option) = if size < SMALL {
        let max = size.saturating_mul(duration).saturating_mul(small_iops);
        (max, format!("{small_iops} IOPS"), "osd_bench_small_size_max_iops")
    } else {
        let max = large_throughput.saturating_mul(duration);
        (max, format!("{}/s", binary(large_throughput)), "osd_bench_large_size_max_throughput")
    };
    // Without a count, Nacre chose it.
    if count > max {
        let assumed = format!("{assumed}, for {duration}");
        return Err(BenchError::Count { max, size, assumed, option });
    }
    let total = total.min(max);
    let size = size.min(total);
    // What is written over is given back only when the transaction that did so is durable.
    if available < 4 * (SPAN + WINDOW_BYTES) {
        return Err(BenchError::NoSpace);
    }
    Ok((total, size))
}

impl Bench {
    /// `total` and `size` as `bounds` gave them.
    pub fn new(now: Time, (total, size): (u64, u64), conn: ConnId, tid: u64) -> Bench {
        let mut rng = Rng::new(now.nanos);
        // Not zeros: devices may treat those as a special case.
        let data: Vec<u8> =
            (0..size.min(PIECE).div_ceil(8)).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
        let data = Bytes::from(data).slice(..size.min(PIECE) as usize);
        let under_way = BTreeSet::new();
        Bench { conn, tid, size, total, issued: 0, written: 0, started: now, under_way, data }
    }

    /// The next write, if it may begin now; its token goes to `began`.
    pub fn next(&self) -> Option<Transaction> {
        let bytes = self.issued - self.written;
        let full = self.under_way.len() >= WINDOW || (bytes > 0 && bytes + self.size > WINDOW_BYTES);
        if full || self.issued >= self.total {
            return None;
        }
        let len = self.size.min(self.total - self.issued);
        let slots = (SPAN / self.size).max(1);
        let offset = (self.issued / self.size % slots) * self.size;
        let mut txn = Transaction::new();
        for at in (0..len).step_by(PIECE as usize) {
            let piece = PIECE.min(len - at) as usize;
            txn.push(object(), Change::Write { offset: offset + at, data: self.data.slice(..piece) });
        }
        Some(txn)
    }
    pub fn began(&mut self, token: Token) {
        self.issued = (self.issued + self.size).min(self.total);
        self.under_way.insert(token);
    }

    /// The result, once all is durable. Tokens of others are of no concern.
    pub fn stored(&mut self, now: Time, token: Token) -> Option<Value> {
        if !self.under_way.remove(&token) {
            return None;
        }
        self.written = (self.written + self.size).min(self.total);
        if self.written < self.total {
            return None;
        }
        let seconds = now.since(self.started).as_secs_f64().max(1e-9);
        Some(json!({
            "bytes_written": self.total,
            "blocksize": self.size,
            "elapsed_sec": seconds,
            "bytes_per_sec": self.total as f64 / seconds,
            "iops": self.total.div_ceil(self.size) as f64 / seconds,
        }))
    }

    /// What to do at the end, and at a start, since the last process may have died in one.
    pub fn removal() -> Transaction {
        let mut txn = Transaction::new();
        txn.push(object(), Change::Remove);
        txn
    }
}

/// A size in units of 1024: `64 MiB`.
fn binary(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let power = (bytes.max(1).ilog2() / 10) as usize;
    let unit = 1_u64 << (10 * power);
    match bytes % unit {
        0 => format!("{} {}", bytes / unit, units[power]),
        _ => format!("{:.1} {}", bytes as f64 / unit as f64, units[power]),
    }
}

fn object() -> StoredId {
    StoredId::meta("bench")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bench_writes_the_requested_bytes_and_reports_the_time() {
        let mut bench = Bench::new(Time::ZERO, (10_000, 4096), ConnId::Accepted(1), 1);
        let mut lens = Vec::new();
        while let Some(txn) = bench.next() {
            lens.push(txn.data_len());
            bench.began(lens.len() as Token);
        }
        assert_eq!(lens, [4096, 4096, 1808]);
        let later = Time::from_nanos(2_000_000_000);
        assert_eq!(
            (bench.stored(later, 9), bench.stored(later, 2), bench.stored(later, 1)),
            (None, None, None)
        );
        let result = bench.stored(later, 3).unwrap();
        assert_eq!((&result["bytes_written"], &result["bytes_per_sec"]), (&json!(10_000), &json!(5000.0)));
        assert_eq!(result["iops"], 1.5);
    }

    #[test]
    fn large_writes_are_made_of_pieces_that_share_their_data() {
        let bench = Bench::new(Time::ZERO, (20 << 20, 10 << 20), ConnId::Accepted(1), 1);
        let txn = bench.next().unwrap();
        assert_eq!((txn.data_len(), bench.data.len()), (10 << 20, 4 << 20));
        let end = |change: &Change| match change {
            Change::Write { offset, data } => offset + data.len() as u64,
            other => panic!("{other:?}"),
        };
        let ends: Vec<u64> = txn.changes.iter().map(|(_, change)| end(change) >> 20).collect();
        assert_eq!(ends, [4, 8, 10]);
    }

    const LIMITS: BenchLimits =
        BenchLimits { size_max: 64 << 20, duration: 30, small_iops: 100, large_throughput: 100 << 20 };

    #[test]
    fn a_bench_neither_fills_the_device_nor_the_memory() {
        let all = bounds(1 << 30, 32 << 20, u64::MAX, LIMITS).unwrap();
        assert_eq!(bounds(0, 0, 1 << 20, LIMITS), Err(BenchError::NoSpace));
        assert_eq!(bounds(100, 0, u64::MAX, LIMITS), Ok((100, 100)));
        let mut bench = Bench::new(Time::ZERO, all, ConnId::Accepted(1), 1);
        for token in 0..2 {
            assert!(bench.next().is_some());
            bench.began(token);
        }
        assert_eq!(bench.next(), None);
    }

    #[test]
    fn bench_has_the_limits_of_ceph() {
        let refused = |count, size| bounds(count, size, u64::MAX, LIMITS).unwrap_err().to_string();
        assert_eq!(bounds(12_288_000, 4096, u64::MAX, LIMITS), Ok((12_288_000, 4096)));
        assert_eq!(
            refused(12_288_001, 4096),
            "'count' values greater than 12288000 for a block size of 4 KiB, assuming 100 IOPS, for 30 seconds, can \
             cause ill effects on osd.  Please adjust 'osd_bench_small_size_max_iops' with a higher value if you wish \
             to use a higher 'count'."
        );
        assert_eq!(
            refused(104_857_600_000, 0),
            "'count' values greater than 3145728000 for a block size of 4 MiB, assuming 100 MiB/s, for 30 seconds, can \
             cause ill effects on osd.  Please adjust 'osd_bench_large_size_max_throughput' with a higher value if you \
             wish to use a higher 'count'."
        );
        assert_eq!(
            refused(1 << 30, 100 << 20),
            "block 'size' values are capped at 64 MiB. If you wish to use a higher value, please adjust \
             'osd_bench_max_block_size'"
        );
        let more = BenchLimits { small_iops: 1000, ..LIMITS };
        assert!(bounds(12_288_001, 4096, u64::MAX, more).is_ok());
        // A count that was not given is not refused.
        assert_eq!(bounds(0, 4096, u64::MAX, LIMITS), Ok((12_288_000, 4096)));
    }
}
