//! What measured numbers mean: what a device is fit for, what to expect of an OSD on it, and why.
//! No I/O here: the same numbers always give the same words.

use serde::{Deserialize, Serialize};
use std::fmt;

/// How long something took, many times over. Nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    pub count: u64,
    pub mean: u64,
    pub p50: u64,
    pub p99: u64,
    pub max: u64,
    /// How many took less than 2^n microseconds and no less than half of that.
    pub log2_micros: Vec<u64>,
}

/// Buckets of `log2_micros`: the last one is half a minute and more.
const BUCKETS: usize = 26;

impl Spread {
    pub fn of(mut nanos: Vec<u64>) -> Spread {
        nanos.sort_unstable();
        let Some(&max) = nanos.last() else { return Spread::default() };
        let count = nanos.len();
        let at = |share: f64| nanos[((count as f64 * share) as usize).min(count - 1)];
        let mut log2_micros = vec![0; BUCKETS];
        for nanos in &nanos {
            let micros = nanos / 1000;
            let bucket = (u64::BITS - micros.leading_zeros()) as usize;
            log2_micros[bucket.min(BUCKETS - 1)] += 1;
        }
        Spread {
            count: count as u64,
            mean: nanos.iter().sum::<u64>() / count as u64,
            p50: at(0.5),
            p99: at(0.99),
            max,
            log2_micros,
        }
    }
}

/// What the operating system says of a device. It may be wrong, and often is for virtual ones.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Claims {
    /// As in `vda`.
    pub name: Option<String>,
    pub model: Option<String>,
    pub serial: Option<String>,
    pub rotational: Option<bool>,
    /// It has a cache that a power cut empties, unless it is flushed.
    pub volatile_cache: Option<bool>,
}

/// All that was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// A flush after one write.
    pub flush: Spread,
    /// 4 KiB that are durable when the write returns, one at a time, at random places.
    pub sync1: Spread,
    /// The same, 16 at a time.
    pub sync16: Spread,
    /// All of those together, a second.
    pub sync16_rate: u64,
    /// 4 KiB reads that no cache of ours answers, one at a time, at random places.
    pub read: Spread,
    /// Bytes a second of large writes, in each of some equal parts of the time.
    pub stream: Vec<u64>,
    /// Written by them in all.
    pub stream_bytes: u64,
    /// Past the page cache; otherwise the numbers are the kernel's, not the device's.
    pub direct: bool,
    pub claims: Claims,
}

impl Measured {
    fn sync1_rate(&self) -> u64 {
        1_000_000_000 / self.sync1.mean.max(1)
    }
    pub fn stream_first(&self) -> u64 {
        self.stream.first().copied().unwrap_or(0)
    }
    /// Of the last quarter, when what takes writes fast for a while is full.
    pub fn stream_last(&self) -> u64 {
        let last = &self.stream[self.stream.len() - self.stream.len().div_ceil(4)..];
        last.iter().sum::<u64>() / last.len().max(1) as u64
    }
}

/// What it is suitable for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fit {
    /// The log, and so an OSD on this device alone.
    JournalAndData,
    /// Objects, if the log is on a faster device.
    Data,
    /// The log of slower devices; too slow at large writes for objects.
    Journal,
    Neither,
}

impl fmt::Display for Fit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fit::JournalAndData => "fit for journal and data",
            Fit::Data => "fit for data, not for the journal",
            Fit::Journal => "fit for the journal, not for data",
            Fit::Neither => "fit for neither journal nor data",
        })
    }
}

/// What to make of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    pub fit: Fit,
    /// Small writes a second that an OSD can take here at most, from one client that waits for each.
    pub osd_iops_one: u64,
    /// The same, from many clients at a time.
    pub osd_iops_many: u64,
    /// What lies behind these numbers, in sentences.
    pub because: Vec<String>,
}

/// A log that answers slower than this makes every client wait.
const JOURNAL_SYNC_MAX: u64 = 2_000_000;
const JOURNAL_P99_MAX: u64 = 50_000_000;
/// Below, recovery of a single lost device takes weeks.
const DATA_STREAM_MIN: u64 = 20_000_000;
const DATA_READ_MAX: u64 = 40_000_000;
/// Nothing that keeps its promise through a power cut answers sooner, memory does.
const IMPLAUSIBLE: u64 = 4_000;
const FREE_FLUSH: u64 = 30_000;
const SLOW_FLUSH: u64 = 1_000_000;
const TAIL: u64 = 20;

pub fn judge(measured: &Measured) -> Verdict {
    let (sync1, sync16) = (&measured.sync1, &measured.sync16);
    let journal = sync1.p50 <= JOURNAL_SYNC_MAX && sync1.p99 <= JOURNAL_P99_MAX;
    let data = measured.stream_last() >= DATA_STREAM_MIN && measured.read.p50 <= DATA_READ_MAX;
    let fit = match (journal, data) {
        (true, true) => Fit::JournalAndData,
        (false, true) => Fit::Data,
        (true, false) => Fit::Journal,
        (false, false) => Fit::Neither,
    };
    // A small write is durable after the log has it: one such write at best.
    let osd_iops_one = measured.sync1_rate();
    // The log joins what comes at the same time, so that many clients share one write of it.
    let osd_iops_many = measured.sync16_rate.max(osd_iops_one * 8);

    let mut because = Vec::new();
    if !measured.direct {
        because.push(
            "the file system has no direct I/O, so these are figures of the page cache, not of the device"
                .into(),
        );
    }
    let spins = measured.claims.rotational == Some(true);
    if sync1.p50 < IMPLAUSIBLE {
        because.push(format!(
            "a durable write takes {}, which is the speed of memory: this device, or its emulation, does \
             not wait for storage that survives a power loss",
            time(sync1.p50)
        ));
    } else if sync1.p50 > JOURNAL_SYNC_MAX && sync1.p50 < 40_000_000 && measured.read.p50 > 2_000_000 {
        because.push(format!(
            "each durable write takes {} and each read {}: this is a rotating disk{}",
            time(sync1.p50),
            time(measured.read.p50),
            if spins { "" } else { ", although it reports otherwise" }
        ));
    } else if measured.flush.p50 > SLOW_FLUSH {
        because.push(format!(
            "each flush takes {}: an SSD without power-loss protection writes its cache to flash every \
             time. Data sheets give figures without flushes",
            time(measured.flush.p50)
        ));
    } else if measured.flush.p50 < FREE_FLUSH {
        because.push(match measured.claims.volatile_cache {
            Some(true) => format!(
                "a flush takes nearly no time ({}) although the device reports a volatile cache: it has \
                 power-loss protection, or a layer below ignores flushes",
                time(measured.flush.p50)
            ),
            _ => format!(
                "a flush takes nearly no time ({}): the device reports that its cache survives a power loss",
                time(measured.flush.p50)
            ),
        });
    }
    if sync1.p99 > TAIL * sync1.p50 {
        because.push(format!(
            "one durable write in a hundred takes {} or more, {} times the median of {}: clients will \
             notice these outliers",
            time(sync1.p99),
            sync1.p99 / sync1.p50.max(1),
            time(sync1.p50)
        ));
    }
    let (first, last) = (measured.stream_first(), measured.stream_last());
    if last * 2 < first {
        because.push(format!(
            "large writes slow down from {}/s to {}/s after {}: a cache became full, and recovery runs at \
             the lower rate",
            bytes(first),
            bytes(last),
            bytes(measured.stream_bytes)
        ));
    }
    if last < DATA_STREAM_MIN {
        because.push(format!("large writes run at {}/s: recovery would take very long", bytes(last)));
    }
    let one_at_a_time = measured.sync16_rate < 2 * osd_iops_one;
    if one_at_a_time && journal {
        because.push(format!(
            "16 durable writes at a time are no faster than one ({} ms each): the device serialises them, \
             so only group commit in the log helps",
            sync16.mean / 1_000_000
        ));
    }
    if because.is_empty() {
        because.push("nothing unusual: the device performs consistently".into());
    }
    Verdict { fit, osd_iops_one, osd_iops_many, because }
}

/// For people.
pub fn time(nanos: u64) -> String {
    match nanos {
        0..1_000_000 => format!("{:.0} us", nanos as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", nanos as f64 / 1e6),
        _ => format!("{:.2} s", nanos as f64 / 1e9),
    }
}

pub fn bytes(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(micros: u64) -> Spread {
        Spread::of(vec![micros * 1000; 200])
    }
    /// Everything at one latency each, in microseconds; large writes in MB/s.
    fn device(flush: u64, sync: u64, sync16_rate: u64, read: u64, stream: &[u64]) -> Measured {
        Measured {
            flush: spread(flush),
            sync1: spread(sync),
            sync16: spread(16_000_000 / sync16_rate.max(1)),
            sync16_rate,
            read: spread(read),
            stream: stream.iter().map(|mb| mb * 1_000_000).collect(),
            stream_bytes: 1 << 30,
            direct: true,
            claims: Claims::default(),
        }
    }
    fn judged(measured: &Measured, words: &str) -> Verdict {
        let verdict = judge(measured);
        let because = verdict.because.join("\n");
        assert!(because.contains(words), "'{words}' is not in:\n{because}");
        verdict
    }

    #[test]
    fn a_data_centre_ssd_takes_all() {
        let verdict = judged(&device(12, 25, 180_000, 90, &[2000, 2000, 1900, 1900]), "takes nearly no time");
        assert_eq!((verdict.fit, verdict.osd_iops_one), (Fit::JournalAndData, 40_000));
        assert_eq!(verdict.osd_iops_many, 320_000);
    }

    #[test]
    fn a_consumer_ssd_is_told_from_its_data_sheet() {
        let verdict = judged(&device(2500, 2600, 700, 80, &[500, 480, 90, 90]), "writes its cache");
        assert_eq!(verdict.fit, Fit::Data);
        judged(&device(2500, 2600, 700, 80, &[500, 480, 90, 90]), "a cache became full");
    }

    #[test]
    fn a_disk_that_turns_is_for_data_only() {
        let verdict = judged(&device(8000, 8300, 190, 8000, &[180, 175, 170, 165]), "a rotating disk");
        assert_eq!(verdict.fit, Fit::Data);
        assert_eq!(verdict.osd_iops_one, 120);
    }

    #[test]
    fn what_is_slow_at_everything_is_for_nothing() {
        assert_eq!(judge(&device(100_000, 120_000, 10, 50_000, &[5, 5, 5, 5])).fit, Fit::Neither);
        assert_eq!(judge(&device(100, 100, 30_000, 100, &[15, 15])).fit, Fit::Journal);
    }

    #[test]
    fn what_is_too_good_and_what_has_a_tail_is_said() {
        judged(&device(1, 2, 900_000, 1, &[9000, 9000]), "the speed of memory");
        let mut measured = device(60, 100, 100_000, 80, &[900, 900]);
        judged(&measured, "nothing unusual");
        measured.sync1.p99 = 30_000_000;
        judged(&measured, "300 times the median of 100 us");
        measured.direct = false;
        judged(&measured, "figures of the page cache");
        measured.sync16_rate = 11_000;
        judged(&measured, "serialises them");
        let swallowed = Claims { volatile_cache: Some(true), ..Claims::default() };
        judged(&Measured { claims: swallowed, ..device(5, 30, 90_000, 80, &[900]) }, "ignores flushes");
    }

    #[test]
    fn a_spread_keeps_its_order_and_its_shape() {
        let spread = Spread::of((1..=1000).map(|n| n * 1000).collect());
        assert_eq!((spread.count, spread.p50, spread.p99, spread.max), (1000, 501_000, 991_000, 1_000_000));
        assert_eq!(spread.log2_micros.iter().sum::<u64>(), 1000);
        assert_eq!((spread.log2_micros[1], spread.log2_micros[10]), (1, 489));
        assert_eq!(Spread::of(Vec::new()), Spread::default());
    }
}
