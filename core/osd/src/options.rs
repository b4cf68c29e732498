//! Options as an OSD reads them: what `ceph tell osd.N` set while this process lives, else what the monitors'
//! configuration says, else the default.

use crate::bench::BenchLimits;
use crate::op_tracker::Keep;
use crate::pg::log::LogLimits;
use crate::scrub_scheduler::ScrubConfig;
use crate::throttle::PaceConfig;
use nacre_options::{Daemon, Opt, Overrides, Refused, Value, known};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::time::Duration;

/// In place of zero, for `osd_recovery_max_active`. Ceph has that for solid state drives.
const RECOVERY_MAX_ACTIVE: u32 = 10;

/// Between two transfers of at most 512 KiB, for the sake of clients: no less than 4 MiB a second.
const RECOVERY_REST_MAX: Duration = Duration::from_millis(128);

/// Between one trimmed clone and the next, for the sake of clients. A million clones take half a day at
/// most.
const TRIM_REST_MAX: Duration = Duration::from_millis(40);

#[derive(Debug)]
pub struct Options {
    /// What the monitors' configuration sets for this OSD, for options that it uses and others.
    from_mon: BTreeMap<String, String>,
    overrides: Overrides,
    /// What they come to.
    settings: Settings,
}

/// The values that an OSD works with.
#[derive(Clone, Debug)]
struct Settings {
    keep: Keep,
    scrub: ScrubConfig,
    logs: LogLimits,
    recovery: PaceConfig,
    trimming: PaceConfig,
    backfills: u32,
    maps_kept: u32,
    backs_off_at_once: bool,
    bench: BenchLimits,
}

impl Default for Options {
    fn default() -> Options {
        let (from_mon, overrides) = (BTreeMap::new(), Overrides::default());
        let settings = Settings::read(default);
        Options { from_mon, overrides, settings }
    }
}

impl Options {
    pub fn take(&mut self, values: BTreeMap<String, String>) {
        self.from_mon = values;
        self.read();
    }

    /// The text says what changed.
    pub fn set(&mut self, name: &str, value: &str) -> Result<String, Refused> {
        let said = self.overrides.set(Daemon::Osd, name, value);
        self.read();
        said
    }
    pub fn unset(&mut self, name: &str) -> Result<String, Refused> {
        let said = self.overrides.unset(Daemon::Osd, name, |option| configured(&self.from_mon, option));
        self.read();
        said
    }
    /// `--name value ...`: all of them, or none.
    pub fn inject(&mut self, text: &str) -> Result<String, Refused> {
        let said = self.overrides.inject(Daemon::Osd, text);
        self.read();
        said
    }

    fn read(&mut self) {
        self.settings = Settings::read(|option| self.value(option));
    }

    pub fn get(&self, name: &str) -> Option<String> {
        match nacre_options::find(name) {
            Some(option) => Some(self.value(option).to_string()),
            None => self.from_mon.get(name).cloned(),
        }
    }
    /// Every option with its value.
    pub fn show(&self) -> BTreeMap<String, String> {
        let known = nacre_options::all().iter();
        let known = known.map(|option| (option.name.to_string(), self.value(option).to_string()));
        self.from_mon.clone().into_iter().chain(known).collect()
    }

    /// The wanted options whose values are not their defaults, with what sets them.
    pub fn differing(&self, wanted: impl Fn(&Opt) -> bool) -> Json {
        let differs = nacre_options::all().iter().filter(|option| self.value(option) != default(option));
        let differs = differs.filter(|option| wanted(option));
        differs
            .map(|option| {
                let overridden = self.overrides.get(option.name).map(ToString::to_string);
                let sources = [("mon", self.from_mon.get(option.name).cloned()), ("override", overridden)];
                let (default, value) = (default(option).to_string(), self.value(option).to_string());
                (option.name.to_string(), nacre_command::option_diff(default, sources, value))
            })
            .collect()
    }

    fn value(&self, option: &Opt) -> Value {
        self.overrides.get(option.name).cloned().unwrap_or_else(|| configured(&self.from_mon, option))
    }

    pub fn scrub(&self) -> ScrubConfig {
        self.settings.scrub
    }
    pub fn maps_kept(&self) -> u32 {
        self.settings.maps_kept
    }
    /// Whether clients get a backoff as soon as a placement group peers.
    pub fn backs_off_at_once(&self) -> bool {
        self.settings.backs_off_at_once
    }
    /// How much `ceph tell osd.N bench` may write.
    pub fn bench(&self) -> BenchLimits {
        self.settings.bench
    }
    /// How much each placement group remembers, as long as there is memory.
    pub fn logs(&self) -> LogLimits {
        self.settings.logs
    }
    /// What `dump_historic_ops` and its like keep.
    pub fn keep(&self) -> Keep {
        self.settings.keep
    }
    pub fn recovery(&self) -> PaceConfig {
        self.settings.recovery
    }
    /// Placement groups that are backfilled, or moved, at a time.
    pub fn moves(&self) -> u32 {
        self.settings.backfills
    }
    pub fn trimming(&self) -> PaceConfig {
        self.settings.trimming
    }
}

/// Daemons have other defaults of some options than clients. In this crate's tests logs are short.
fn default(option: &Opt) -> Value {
    match option.name {
        "osd_max_pg_log_entries" if cfg!(test) => Value::Uint(10),
        "osd_min_pg_log_entries" if cfg!(test) => Value::Uint(5),
        _ => option.daemon_default.as_ref().unwrap_or(&option.default).clone(),
    }
}

/// What the monitors' configuration says, else the default. Monitors of an older version may hand out what is
/// no value.
fn configured(from_mon: &BTreeMap<String, String>, option: &Opt) -> Value {
    let set = from_mon.get(option.name).and_then(|text| option.parse(text).ok());
    set.unwrap_or_else(|| default(option))
}

impl Settings {
    fn read(value: impl Fn(&Opt) -> Value) -> Settings {
        let number = |name: &str| value(known(name)).as_u64();
        let flag = |name: &str| value(known(name)).as_bool();
        let pause = |name: &str| Duration::from_micros((value(known(name)).as_f64() * 1e6).round() as u64);
        let entries = number("osd_max_pg_log_entries");
        let recovery_max = match number("osd_recovery_max_active") {
            0 => RECOVERY_MAX_ACTIVE,
            max => max as u32,
        };
        let repair_max = number("osd_scrub_auto_repair_num_errors");
        // Ceph limits placement groups at a time and clones of each; what counts is the product.
        let trimmed = number("osd_max_trimming_pgs") * number("osd_pg_max_concurrent_snap_trims");
        Settings {
            keep: Keep {
                size: number("osd_op_history_size") as usize,
                duration: Duration::from_secs(number("osd_op_history_duration")),
                slow: pause("osd_op_history_slow_op_threshold"),
                slow_size: number("osd_op_history_slow_op_size") as usize,
            },
            scrub: ScrubConfig {
                max: number("osd_max_scrubs") as u32,
                min_interval: number("osd_scrub_min_interval"),
                max_interval: number("osd_scrub_max_interval"),
                deep_interval: number("osd_deep_scrub_interval"),
                hours: (number("osd_scrub_begin_hour"), number("osd_scrub_end_hour")),
                chunk: number("osd_scrub_chunk_max"),
                auto_repair: flag("osd_scrub_auto_repair").then_some(repair_max),
                sleep: pause("osd_scrub_sleep"),
            },
            logs: LogLimits {
                entries: entries as usize,
                entries_min: number("osd_min_pg_log_entries").min(entries) as usize,
                answers: number("osd_pg_log_dups_tracked"),
                memory: usize::MAX,
            },
            recovery: PaceConfig {
                max: recovery_max,
                sleep: pause("osd_recovery_sleep"),
                priority: number("osd_recovery_op_priority") as u32,
                rest_max: RECOVERY_REST_MAX,
            },
            trimming: PaceConfig {
                max: trimmed as u32,
                sleep: pause("osd_snap_trim_sleep"),
                priority: number("osd_snap_trim_priority") as u32,
                rest_max: TRIM_REST_MAX,
            },
            backfills: number("osd_max_backfills") as u32,
            maps_kept: number("mon_min_osdmap_epochs") as u32,
            backs_off_at_once: flag("osd_backoff_on_peering"),
            bench: BenchLimits {
                size_max: number("osd_bench_max_block_size"),
                duration: number("osd_bench_duration"),
                small_iops: number("osd_bench_small_size_max_iops"),
                large_throughput: number("osd_bench_large_size_max_throughput"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_override_goes_before_the_monitors_configuration() {
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
        assert_eq!(options.show().len(), nacre_options::all().len());
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
        // An operator in a hurry tells the OSDs themselves.
        options.set("osd_recovery_sleep", "0.25").unwrap();
        assert_eq!(options.recovery().sleep, Duration::from_millis(250));
        assert_eq!(options.get("osd_recovery_sleep"), Some("0.250000".into()));
        let wrong = options.set("osd_snap_trim_sleep", "61").unwrap_err().text;
        assert_eq!(wrong, "error setting 'osd_snap_trim_sleep' to '61': (22) Invalid argument");
    }
}
