//! Options that an OSD itself uses: what the monitors' configuration says, unless
//! `ceph tell osd.N config set` said otherwise for as long as this process lives.

use crate::maps;
use crate::op_tracker::Keep;
use crate::pg::log::{self, LogLimits};
use crate::scrub_scheduler::ScrubConfig;
use crate::throttle::PaceConfig;
use serde_json::{Map, Value, json};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;

/// A number, one for yes, or microseconds where it is a pause.
struct Known {
    name: &'static str,
    default: u64,
    range: (u64, u64),
}

impl Known {
    fn show(&self, number: u64) -> String {
        match (self.range, number) {
            (YES_OR_NO, 0) => "false".to_string(),
            (YES_OR_NO, _) => "true".to_string(),
            (PAUSE, micros) => format!("{:.6}", micros as f64 / SECOND as f64),
            (_, number) => number.to_string(),
        }
    }
    /// None if it is not in range.
    fn parse(&self, text: &str) -> Option<u64> {
        let number = match self.range {
            PAUSE => micros_in(text),
            _ => number_in(text),
        };
        number.filter(|number| (self.range.0..=self.range.1).contains(number))
    }
    /// In the unit that is asked for.
    fn limits(&self) -> (u64, u64) {
        let (from, to) = self.range;
        if self.range == PAUSE { (from / SECOND, to / SECOND) } else { (from, to) }
    }
}

/// What is kept for `dump_historic_ops` and its like, and how much is recovered at a time. Counts
/// or seconds; in the order in which they are used below.
const KNOWN: [Known; 10] = [
    Known { name: "osd_op_history_duration", default: 600, range: (0, 86_400) },
    Known { name: "osd_op_history_size", default: 20, range: (0, 1000) },
    Known { name: "osd_op_history_slow_op_size", default: 20, range: (0, 1000) },
    Known { name: "osd_op_history_slow_op_threshold", default: 10, range: (0, 86_400) },
    Known { name: "osd_max_backfills", default: 1, range: (1, 1000) },
    Known { name: "osd_max_trimming_pgs", default: 2, range: (1, 1000) },
    Known { name: "osd_pg_max_concurrent_snap_trims", default: 2, range: (1, 1000) },
    Known { name: "osd_snap_trim_priority", default: 1, range: (1, 63) },
    Known { name: "osd_recovery_max_active", default: 0, range: (0, 1000) },
    Known { name: "osd_recovery_op_priority", default: 3, range: (1, 63) },
];

/// How much is remembered of each PG, in writes; in the order of names.
const LOGS: [Known; 3] = [
    Known { name: "osd_max_pg_log_entries", default: log::ENTRIES.0, range: (1, 100_000) },
    Known { name: "osd_min_pg_log_entries", default: log::ENTRIES.1, range: (1, 100_000) },
    Known { name: "osd_pg_log_dups_tracked", default: 3000, range: (0, 100_000) },
];

const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;
const YEAR: u64 = 366 * DAY;

/// How many older maps are kept.
const MAPS: [Known; 1] =
    [Known { name: "mon_min_osdmap_epochs", default: maps::KEPT as u64, range: (1, 100_000) }];

/// Whether a peering PG sends backoffs at once, even if peering is short.
const BACKOFF: [Known; 1] = [Known { name: "osd_backoff_on_peering", default: 0, range: YES_OR_NO }];

/// When and how fast copies are compared. Counts, hours, seconds, or one for yes; in the order of names.
const SCRUB: [Known; 9] = [
    Known { name: "osd_deep_scrub_interval", default: 7 * DAY, range: (0, YEAR) },
    Known { name: "osd_max_scrubs", default: 1, range: (0, 100) },
    Known { name: "osd_scrub_auto_repair", default: 0, range: YES_OR_NO },
    Known { name: "osd_scrub_auto_repair_num_errors", default: 5, range: (0, 1000) },
    Known { name: "osd_scrub_begin_hour", default: 0, range: (0, 23) },
    Known { name: "osd_scrub_chunk_max", default: 25, range: (1, 100) },
    Known { name: "osd_scrub_end_hour", default: 0, range: (0, 23) },
    Known { name: "osd_scrub_max_interval", default: 7 * DAY, range: (0, YEAR) },
    Known { name: "osd_scrub_min_interval", default: DAY, range: (0, YEAR) },
];
const YES_OR_NO: (u64, u64) = (0, 1);

/// How long is waited between two steps of a work at least, in seconds with fractions; in the order of names.
const PAUSES: [Known; 3] = [
    Known { name: "osd_recovery_sleep", default: 0, range: PAUSE },
    Known { name: "osd_scrub_sleep", default: 0, range: PAUSE },
    Known { name: "osd_snap_trim_sleep", default: 0, range: PAUSE },
];
const SECOND: u64 = 1_000_000;
const PAUSE: (u64, u64) = (0, 60 * SECOND);

/// In place of zero, for `osd_recovery_max_active`. Ceph has that for solid state drives.
const RECOVERY_MAX_ACTIVE: u32 = 10;

/// Between two transfers of at most 512 KiB, for the sake of clients: no less than 4 MiB a second.
const RECOVERY_REST_MAX: Duration = Duration::from_millis(128);

/// Between one trimmed clone and the next, for the sake of clients. A million clones take half a day at
/// most.
const TRIM_REST_MAX: Duration = Duration::from_millis(40);

/// Why an option was not set, with the errno.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    #[error("option '{0}' has no effect in an OSD; 'ceph config set' keeps it for clients")]
    Unknown(String),
    #[error("{name} is a number from {from} to {to}, not '{value}'")]
    Value { name: &'static str, from: u64, to: u64, value: String },
}

#[derive(Debug, Default)]
pub struct Options {
    /// From the monitors: whatever was set for this OSD, known here or not.
    from_mon: BTreeMap<String, String>,
    /// Set here, until the process ends.
    here: BTreeMap<&'static str, u64>,
    /// Cache of a computed value that each request needs; none after an option changed.
    keep: Cell<Option<Keep>>,
}

impl Options {
    pub fn take(&mut self, values: BTreeMap<String, String>) {
        self.from_mon = values;
        self.keep.take();
    }

    pub fn set(&mut self, name: &str, value: &str) -> Result<(), OptionError> {
        let known = find(name)?;
        let (from, to) = known.limits();
        let wrong = OptionError::Value { name: known.name, from, to, value: value.to_string() };
        self.here.insert(known.name, known.parse(value).ok_or(wrong)?);
        self.keep.take();
        Ok(())
    }
    pub fn unset(&mut self, name: &str) -> Result<(), OptionError> {
        self.here.remove(find(name)?.name);
        self.keep.take();
        Ok(())
    }

    /// None if it neither means something here nor was set anywhere.
    pub fn get(&self, name: &str) -> Option<String> {
        match find(name) {
            Ok(known) => Some(self.text(known)),
            Err(_) => self.from_mon.get(name).cloned(),
        }
    }
    /// Everything that has a value.
    pub fn show(&self) -> BTreeMap<String, String> {
        let known = all().map(|known| (known.name.to_string(), self.text(known)));
        self.from_mon.clone().into_iter().chain(known).collect()
    }

    /// Options whose values are not their defaults, with the source of each.
    pub fn differing(&self) -> Value {
        let differs = all().filter(|known| self.number(known) != known.default);
        differs
            .map(|known| {
                let mut from = Map::new();
                from.insert("default".to_string(), json!(known.show(known.default)));
                if let Some(text) = self.from_mon.get(known.name) {
                    from.insert("mon".to_string(), json!(text));
                }
                if let Some(&number) = self.here.get(known.name) {
                    from.insert("override".to_string(), json!(known.show(number)));
                }
                from.insert("final".to_string(), json!(self.text(known)));
                (known.name.to_string(), Value::Object(from))
            })
            .collect()
    }

    /// What is out of range or no number counts as not set: the monitors take any text for it.
    fn number(&self, known: &Known) -> u64 {
        let from_mon = || known.parse(self.from_mon.get(known.name)?);
        self.here.get(known.name).copied().or_else(from_mon).unwrap_or(known.default)
    }

    fn text(&self, known: &Known) -> String {
        known.show(self.number(known))
    }

    pub fn scrub(&self) -> ScrubConfig {
        let [deep_interval, max, repair, repair_max, begin, chunk, end, max_interval, min_interval] =
            SCRUB.each_ref().map(|known| self.number(known));
        ScrubConfig {
            max: max as u32,
            min_interval,
            max_interval,
            deep_interval,
            hours: (begin, end),
            chunk,
            auto_repair: (repair > 0).then_some(repair_max),
            sleep: self.pause(&PAUSES[1]),
        }
    }

    pub fn maps_kept(&self) -> u32 {
        self.number(&MAPS[0]) as u32
    }

    pub fn backs_off_at_once(&self) -> bool {
        self.number(&BACKOFF[0]) > 0
    }

    /// As long as there is memory.
    pub fn logs(&self) -> LogLimits {
        let [entries, at_least, answers] = LOGS.each_ref().map(|known| self.number(known));
        LogLimits {
            entries: entries as usize,
            entries_min: at_least.min(entries) as usize,
            answers,
            memory: usize::MAX,
        }
    }

    pub fn keep(&self) -> Keep {
        let keep = self.keep.get().unwrap_or_else(|| self.work_out_keep());
        self.keep.set(Some(keep));
        keep
    }
    fn work_out_keep(&self) -> Keep {
        let [duration, size, slow_size, slow, ..] = KNOWN.each_ref().map(|known| self.number(known));
        Keep {
            size: size as usize,
            duration: Duration::from_secs(duration),
            slow: Duration::from_secs(slow),
            slow_size: slow_size as usize,
        }
    }

    pub fn recovery(&self) -> PaceConfig {
        let [.., max, priority] = KNOWN.each_ref().map(|known| self.number(known));
        let max = if max == 0 { RECOVERY_MAX_ACTIVE } else { max as u32 };
        PaceConfig {
            max,
            sleep: self.pause(&PAUSES[0]),
            priority: priority as u32,
            rest_max: RECOVERY_REST_MAX,
        }
    }

    /// Placement groups at a time that have members more than they should, to be moved.
    pub fn moves(&self) -> u32 {
        let [_, _, _, _, moves, ..] = KNOWN.each_ref().map(|known| self.number(known));
        moves as u32
    }

    /// Ceph's limits are for one PG and for the PGs at a time; what counts is their product.
    pub fn trimming(&self) -> PaceConfig {
        let [_, _, _, _, _, groups, each, priority, ..] = KNOWN.each_ref().map(|known| self.number(known));
        let sleep = self.pause(&PAUSES[2]);
        PaceConfig { max: (groups * each) as u32, sleep, priority: priority as u32, rest_max: TRIM_REST_MAX }
    }

    fn pause(&self, known: &Known) -> Duration {
        Duration::from_micros(self.number(known))
    }
}

/// A whole number; also from what Ceph writes for times and switches.
fn number_in(text: &str) -> Option<u64> {
    match text {
        "true" => Some(1),
        "false" => Some(0),
        text => {
            let rounded = || text.parse::<f64>().ok().filter(|x| *x >= 0.0 && *x < 1e15).map(|x| x as u64);
            text.parse().ok().or_else(rounded)
        }
    }
}

fn micros_in(text: &str) -> Option<u64> {
    let secs = text.parse::<f64>().ok().filter(|secs| (0.0..1e6).contains(secs))?;
    Some((secs * SECOND as f64).round() as u64)
}

fn all() -> impl Iterator<Item = &'static Known> {
    KNOWN.iter().chain(&SCRUB).chain(&LOGS).chain(&MAPS).chain(&BACKOFF).chain(&PAUSES)
}
fn find(name: &str) -> Result<&'static Known, OptionError> {
    all().find(|known| known.name == name).ok_or_else(|| OptionError::Unknown(name.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_set_here_counts_before_what_the_monitors_say() {
        let mut options = Options::default();
        let name = "osd_op_history_size";
        options.take([(name.to_string(), "7".to_string()), ("other".into(), "x".into())].into());
        assert_eq!((options.keep().size, options.get(name)), (7, Some("7".into())));
        options.set(name, "9").unwrap();
        assert_eq!(options.keep().size, 9);
        options.unset(name).unwrap();
        assert_eq!(options.keep().size, 7);
        options.take([(name.to_string(), "many".to_string())].into());
        assert_eq!(options.keep().size, 20);
        assert!(options.set(name, "-1").is_err() && options.set("nonsense", "1").is_err());
        assert_eq!(options.show().len(), all().count());
        assert_eq!(options.get("osd_scrub_auto_repair"), Some("false".into()));
        options.take([("osd_scrub_auto_repair".to_string(), "true".to_string())].into());
        options.set("osd_scrub_min_interval", "60.5").unwrap();
        assert_eq!((options.scrub().auto_repair, options.scrub().min_interval), (Some(5), 60));
        let sleep = |text: &str| {
            let mut options = Options::default();
            options.take([("osd_recovery_sleep".to_string(), text.to_string())].into());
            options.recovery().sleep
        };
        assert_eq!(
            (sleep("0.1"), sleep("-1"), sleep("NaN")),
            (Duration::from_millis(100), Duration::ZERO, Duration::ZERO)
        );
        // Operators may set the option on the OSDs themselves.
        options.set("osd_recovery_sleep", "0.25").unwrap();
        assert_eq!(options.recovery().sleep, Duration::from_millis(250));
        assert_eq!(options.get("osd_recovery_sleep"), Some("0.250000".into()));
        let wrong = options.set("osd_snap_trim_sleep", "61").unwrap_err().to_string();
        assert_eq!(wrong, "osd_snap_trim_sleep is a number from 0 to 60, not '61'");
    }
}
