//! What each part of a long run took.

use anyhow::Result;
use std::fmt;
use std::time::{Duration, Instant};

/// Parts that take less are left out of the table.
const SHOWN_MIN: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub struct Timings {
    parts: Vec<(String, Duration)>,
    beside: Vec<(String, Duration)>,
}

impl Timings {
    /// Runs one part and notes its time. A part that fails ends the run.
    pub fn part(&mut self, name: &str, run: impl FnOnce() -> Result<()>) -> Result<()> {
        let started = Instant::now();
        run()?;
        self.add(name, started.elapsed());
        Ok(())
    }
    pub fn add(&mut self, name: &str, took: Duration) {
        self.parts.push((name.to_string(), took));
    }
    /// A part that ran at the same time as others: it is shown, and does not count in the total.
    pub fn add_beside(&mut self, name: &str, took: Duration) {
        self.beside.push((name.to_string(), took));
    }
    pub fn total(&self) -> Duration {
        self.parts.iter().map(|(_, took)| *took).sum()
    }
}

impl fmt::Display for Timings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |name: &str, took: Duration| {
            format!("    {name:<44} {:>3} min {:>2} s\n", took.as_secs() / 60, took.as_secs() % 60)
        };
        f.write_str("==> what each part took\n")?;
        let (shown, short): (Vec<_>, Vec<_>) = self.parts.iter().partition(|(_, took)| *took >= SHOWN_MIN);
        shown.iter().try_for_each(|(name, took)| f.write_str(&line(name, *took)))?;
        if !short.is_empty() {
            let name = format!("{} parts under {} s each", short.len(), SHOWN_MIN.as_secs());
            f.write_str(&line(&name, short.iter().map(|(_, took)| *took).sum()))?;
        }
        f.write_str(&line("total", self.total()))?;
        self.beside.iter().try_for_each(|(name, took)| f.write_str(&line(name, *took)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_lists_long_parts_and_sums_up_short_ones() {
        let mut timings = Timings::default();
        for (name, seconds) in [("lints", 130), ("licences", 1), ("fuzz", 3), ("tests: nacre_mon", 61)] {
            timings.add(name, Duration::from_secs(seconds));
        }
        let lines: Vec<String> =
            timings.to_string().lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        let expected = [
            "==> what each part took",
            "lints 2 min 10 s",
            "tests: nacre_mon 1 min 1 s",
            "2 parts under 5 s each 0 min 4 s",
            "total 3 min 15 s",
        ];
        assert_eq!(lines, expected);
    }
}
