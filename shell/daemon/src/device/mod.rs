//! `nacre device check`: measures a device and prints a verdict. `nacre device ls` is in `hosts`.
//!
//! `target` opens what may be overwritten, `probe` measures, `verdict` judges.

mod probe;
mod target;
mod verdict;

pub use probe::claims;
pub use target::{Target, content};
pub use verdict::{Claims, Fit, time};

use crate::{Format, hosts};
use anyhow::{Context, Result};
use probe::Effort;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use verdict::{Measured, Spread, Verdict, bytes};

#[derive(clap::Subcommand)]
pub enum Command {
    /// Measure a device (flushes, durable small writes, sustained large writes, reads) and print a verdict.
    ///
    /// PATH is a block device, a file, or a folder, in which a temporary file is used. Takes about a minute.
    /// The content of a device or file is overwritten, so one with data is refused. What the measurement
    /// wrote is deleted afterwards.
    Check(Check),
    /// List the devices of all hosts of the cluster, or of some.
    Ls(hosts::DeviceLs),
}

#[derive(clap::Args)]
pub struct Check {
    /// Block device, file, or folder
    path: PathBuf,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Measure for a few seconds only: large writes may not fill the device's cache
    #[arg(long)]
    short: bool,
    /// Overwrite existing data
    #[arg(long)]
    force: bool,
}

/// What a check found, as it is printed and kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    version: u32,
    path: PathBuf,
    /// It took only a few seconds.
    short: bool,
    measured: Measured,
    verdict: Verdict,
}

const VERSION: u32 = 1;

pub fn run(command: Command) -> Result<()> {
    let check = match command {
        Command::Check(check) => check,
        Command::Ls(options) => return hosts::device_ls(&options),
    };
    let target = Target::open(&check.path, check.force)?;
    let report = Report::measure(&check.path, &target, check.short)?;
    match check.format {
        Format::Json => println!("{}", serde_json::to_string_pretty(&report)?),
        Format::Table => print!("{}", report.render()),
    }
    Ok(())
}

impl Report {
    pub fn measure(path: &Path, target: &Target, short: bool) -> Result<Report> {
        let effort = if short { Effort::SHORT } else { Effort::FULL };
        Report::with_effort(path, target, effort, short)
    }

    /// In about a second, of a device that answers. A blank device is blank also if this is
    /// interrupted; in place of a file, one without a name beside it is measured.
    pub fn brief(path: &Path) -> Result<Report> {
        let path = fs::canonicalize(path).with_context(|| format!("cannot find {}", path.display()))?;
        let kind = fs::metadata(&path)?.file_type();
        let target = match path.parent() {
            _ if kind.is_dir() => Target::scratch(&path, Effort::BRIEF.stream_bytes)?,
            Some(folder) if kind.is_file() => Target::scratch(folder, Effort::BRIEF.stream_bytes)?,
            _ => Target::open(&path, false)?,
        };
        Report::with_effort(&path, &target, Effort::BRIEF, true)
    }

    fn with_effort(path: &Path, target: &Target, effort: Effort, short: bool) -> Result<Report> {
        let shows = io::stderr().is_terminal() && !effort.zeros;
        let say = |what: &str| {
            if shows {
                eprintln!("measuring {what} ...");
            }
        };
        let measured = probe::measure(&target.file, target.len, effort, say);
        // Also if that failed half way: the owner will want to try again, or use it.
        let wiped = target.wipe(effort.stream_bytes);
        let measured = measured.with_context(|| format!("cannot measure {}", path.display()))?;
        wiped.with_context(|| format!("cannot wipe {} after it was measured", path.display()))?;
        let verdict = verdict::judge(&measured);
        Ok(Report { version: VERSION, path: path.to_path_buf(), short, measured, verdict })
    }

    /// What the operating system says of the device.
    pub fn claims(&self) -> &Claims {
        &self.measured.claims
    }
    /// What it is suitable for.
    pub fn fit(&self) -> Fit {
        self.verdict.fit
    }
    /// How long a durable small write takes, nanoseconds.
    pub fn sync_write(&self) -> u64 {
        self.measured.sync1.p50
    }
    /// How long a small read takes, nanoseconds.
    pub fn read(&self) -> u64 {
        self.measured.read.p50
    }
    /// In one line.
    pub fn summary(&self) -> String {
        format!(
            "a durable write takes {}, a read {}, large writes {}/s: {}",
            time(self.sync_write()),
            time(self.read()),
            bytes(self.measured.stream_last()),
            self.verdict.fit
        )
    }

    pub fn save(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }
    /// None if there is none that this program understands.
    pub fn load(path: &Path) -> Option<Report> {
        let report: Report = serde_json::from_str(&fs::read_to_string(path).ok()?).ok()?;
        (report.version == VERSION).then_some(report)
    }

    /// For `ceph osd metadata`, with names that begin so.
    pub fn metadata(&self, of: &str) -> BTreeMap<String, String> {
        let measured = &self.measured;
        let micros = |nanos: u64| (nanos / 1000).to_string();
        [
            ("verdict", self.verdict.fit.to_string()),
            ("osd_iops", self.verdict.osd_iops_one.to_string()),
            ("osd_iops_many", self.verdict.osd_iops_many.to_string()),
            ("flush_us", micros(measured.flush.p50)),
            ("sync_write_us", micros(measured.sync1.p50)),
            ("sync_write_p99_us", micros(measured.sync1.p99)),
            ("read_us", micros(measured.read.p50)),
            ("write_bytes_per_sec", measured.stream_last().to_string()),
        ]
        .map(|(key, value)| (format!("{of}_{key}"), value))
        .into()
    }

    pub fn render(&self) -> String {
        let Measured { flush, sync1, sync16, sync16_rate, read, claims, .. } = &self.measured;
        let mut out = format!("{}", self.path.display());
        if let Some(name) = &claims.name {
            out += &format!(" on {name}");
        }
        if let Some(model) = &claims.model {
            out += &format!(" ({model})");
        }
        out += "\n\n";
        out += &format!(
            "{:<32}{:>10}{:>10}{:>10}{:>10}{:>10}\n",
            "", "per s", "mean", "median", "99 %", "slowest"
        );
        let mut row = |name: &str, spread: &Spread, rate: u64| {
            out += &format!(
                "{name:<32}{rate:>10}{:>10}{:>10}{:>10}{:>10}\n",
                time(spread.mean),
                time(spread.p50),
                time(spread.p99),
                time(spread.max)
            );
        };
        let alone = |spread: &Spread| 1_000_000_000 / spread.mean.max(1);
        row("flush after a write", flush, alone(flush));
        row("durable 4 KiB write", sync1, alone(sync1));
        row("durable 4 KiB write, 16 at a time", sync16, *sync16_rate);
        row("4 KiB read", read, alone(read));
        out += &format!(
            "{:<32}{:>10}/s at first, {}/s after {}\n",
            "large writes",
            bytes(self.measured.stream_first()),
            bytes(self.measured.stream_last()),
            bytes(self.measured.stream_bytes)
        );
        out += "\ndurable 4 KiB writes, one at a time:\n";
        out += &bars(sync1);
        let Verdict { fit, osd_iops_one, osd_iops_many, because } = &self.verdict;
        out += &format!("\nVerdict: {fit}.\n");
        out += &format!(
            "An OSD on this device can do about {osd_iops_one} small writes per second for one client that \
             waits for each, and {osd_iops_many} for many clients.\n"
        );
        because.iter().for_each(|sentence| out += &format!("- {sentence}.\n"));
        if self.short {
            out += "- this was a short check: `nacre device check` without --short measures longer.\n";
        }
        out
    }
}

const BAR: u64 = 40;

/// One line for each power of two between the fastest and the slowest.
fn bars(spread: &Spread) -> String {
    let counts = &spread.log2_micros;
    let (Some(first), Some(last)) = (counts.iter().position(|n| *n > 0), counts.iter().rposition(|n| *n > 0))
    else {
        return String::new();
    };
    let most = counts.iter().copied().max().unwrap_or(1);
    let line = |bucket: usize| {
        let width = (counts[bucket] * BAR).div_ceil(most) as usize;
        format!("  < {:>9} {:<40} {}\n", time(1000 << bucket), "#".repeat(width), counts[bucket])
    };
    (first..=last).map(line).collect()
}

/// Prints a line. A closed pipe is no error.
pub fn say(line: std::fmt::Arguments) {
    let _ = writeln!(io::stdout(), "{line}");
}

#[cfg(test)]
pub mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_there_are_many() {
        let spread = Spread::of([vec![100_000; 80], vec![150_000; 40], vec![900_000; 1]].concat());
        let shown = bars(&spread);
        let lens: Vec<usize> = shown.lines().map(|line| line.matches('#').count()).collect();
        assert_eq!(lens, [40, 20, 0, 1], "{shown}");
        assert!(shown.starts_with("  <    128 us ####"), "{shown}");
    }

    /// What was measured of a device whose operations take so many microseconds, for tests of what is
    /// decided.
    pub fn report(path: &str, sync: u64, read: u64) -> Report {
        let spread = |micros: u64| Spread::of(vec![micros * 1000; 100]);
        let measured = Measured {
            flush: spread(sync),
            sync1: spread(sync),
            sync16: spread(sync),
            sync16_rate: 1_000_000 / sync,
            read: spread(read),
            stream: vec![100_000_000; 4],
            direct: true,
            ..Measured::default()
        };
        let verdict = verdict::judge(&measured);
        Report { version: VERSION, path: path.into(), short: true, measured, verdict }
    }

    #[test]
    fn brief_measurement_leaves_a_blank_file_blank_and_nothing_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        fs::File::create(&path).unwrap().set_len(1 << 30).unwrap();
        let report = Report::brief(&path).unwrap();
        assert!(
            report.sync_write() > 0
                && report.read() > 0
                && report.summary().contains("a durable write takes")
        );
        assert_eq!(Target::open(&path, false).unwrap().content().unwrap(), None);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        assert!(Report::brief(&dir.path().join("none")).is_err());
    }

    #[test]
    fn a_report_is_kept_and_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let target = Target::open(dir.path(), false).unwrap();
        let report = Report::measure(dir.path(), &target, true).unwrap();
        let path = dir.path().join("device.json");
        report.save(&path).unwrap();
        assert_eq!(Report::load(&path), Some(report.clone()));
        assert!(report.measured.sync1.count > 0 && report.measured.stream_bytes > 0);
        let text = report.render();
        assert!(text.contains("Verdict: ") && text.contains("16 at a time"), "{text}");
        assert_eq!(report.metadata("device")["device_verdict"], report.verdict.fit.to_string());
        fs::write(&path, "{}").unwrap();
        assert_eq!(Report::load(&path), None);
    }
}
