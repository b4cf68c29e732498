//! Options that an OSD itself uses: what the monitors' configuration says, unless
//! `ceph tell osd.N config set` said otherwise for as long as this process lives.

use crate::budget::Limits;
use crate::requests::Keep;
use std::collections::BTreeMap;
use std::time::Duration;

struct Known {
    name: &'static str,
    default: u64,
    range: (u64, u64),
}

/// What is kept for `dump_historic_ops` and its like, and how much is recovered at a time. Counts
/// or seconds; in the order of names.
const KNOWN: [Known; 6] = [
    Known { name: "osd_op_history_duration", default: 600, range: (0, 86_400) },
    Known { name: "osd_op_history_size", default: 20, range: (0, 1000) },
    Known { name: "osd_op_history_slow_op_size", default: 20, range: (0, 1000) },
    Known { name: "osd_op_history_slow_op_threshold", default: 10, range: (0, 86_400) },
    Known { name: "osd_recovery_max_active", default: 0, range: (0, 1000) },
    Known { name: "osd_recovery_op_priority", default: 3, range: (1, 63) },
];

/// In place of zero, for `osd_recovery_max_active`. Ceph has that for solid state drives.
const RECOVERY_MAX_ACTIVE: u32 = 10;

/// Why an option was not set, with the errno.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    #[error("option '{0}' does nothing in an OSD; 'ceph config set' keeps it for others")]
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
}

impl Options {
    pub fn take(&mut self, values: BTreeMap<String, String>) {
        self.from_mon = values;
    }

    pub fn set(&mut self, name: &str, value: &str) -> Result<(), OptionError> {
        let known = find(name)?;
        let (from, to) = known.range;
        let number = value.parse().ok().filter(|number| (from..=to).contains(number));
        let wrong = OptionError::Value { name: known.name, from, to, value: value.to_string() };
        self.here.insert(known.name, number.ok_or(wrong)?);
        Ok(())
    }
    pub fn unset(&mut self, name: &str) -> Result<(), OptionError> {
        self.here.remove(find(name)?.name);
        Ok(())
    }

    /// None if it neither means something here nor was set anywhere.
    pub fn get(&self, name: &str) -> Option<String> {
        match find(name) {
            Ok(known) => Some(self.number(known).to_string()),
            Err(_) => self.from_mon.get(name).cloned(),
        }
    }
    /// Everything that has a value.
    pub fn show(&self) -> BTreeMap<String, String> {
        let known = KNOWN.iter().map(|known| (known.name.to_string(), self.number(known).to_string()));
        self.from_mon.clone().into_iter().chain(known).collect()
    }

    /// What is out of range or no number counts as not set: the monitors take any text for it.
    fn number(&self, known: &Known) -> u64 {
        let (from, to) = known.range;
        let from_mon = || self.from_mon.get(known.name)?.parse().ok().filter(|n| (from..=to).contains(n));
        self.here.get(known.name).copied().or_else(from_mon).unwrap_or(known.default)
    }

    pub fn keep(&self) -> Keep {
        let [duration, size, slow_size, slow, ..] = KNOWN.each_ref().map(|known| self.number(known));
        Keep {
            size: size as usize,
            duration: Duration::from_secs(duration),
            slow: Duration::from_secs(slow),
            slow_size: slow_size as usize,
        }
    }

    pub fn recovery(&self) -> Limits {
        let [.., max, priority] = KNOWN.each_ref().map(|known| self.number(known));
        let max = if max == 0 { RECOVERY_MAX_ACTIVE } else { max as u32 };
        // The one option with fractions of seconds, and only ever the monitors' to set.
        let sleep = self.from_mon.get("osd_recovery_sleep").and_then(|text| text.parse::<f64>().ok());
        let sleep = sleep.filter(|secs| (0.0..=60.0).contains(secs)).unwrap_or_default();
        Limits { max, sleep: Duration::from_secs_f64(sleep), priority: priority as u32 }
    }
}

fn find(name: &str) -> Result<&'static Known, OptionError> {
    KNOWN.iter().find(|known| known.name == name).ok_or_else(|| OptionError::Unknown(name.to_string()))
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
        assert_eq!(options.show().len(), KNOWN.len());
        let sleep = |text: &str| {
            let mut options = Options::default();
            options.take([("osd_recovery_sleep".to_string(), text.to_string())].into());
            options.recovery().sleep
        };
        assert_eq!(
            (sleep("0.1"), sleep("-1"), sleep("NaN")),
            (Duration::from_millis(100), Duration::ZERO, Duration::ZERO)
        );
    }
}
