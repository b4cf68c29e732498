//! The settings of a profile, and checking them one by one.

use super::{ProfileError, invalid};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::str::FromStr;

/// Names and values. Prints as Ceph prints a map: `{k=2,m=1}`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings(pub BTreeMap<String, String>);

impl Deref for Settings {
    type Target = BTreeMap<String, String>;
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}
impl DerefMut for Settings {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

/// Pairs of a name and a value with commas between them.
impl FromStr for Settings {
    type Err = std::convert::Infallible;
    fn from_str(text: &str) -> Result<Settings, Self::Err> {
        let pair = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (name.to_string(), value.to_string())
        };
        Ok(Settings(text.split(',').filter(|part| !part.is_empty()).map(pair).collect()))
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs: Vec<String> = self.iter().map(|(name, value)| format!("{name}={value}")).collect();
        write!(f, "{{{}}}", pairs.join(","))
    }
}

impl Settings {
    /// Sets what is not set, or is empty.
    pub fn add(&mut self, name: &str, value: &str) {
        let slot = self.entry(name.to_string()).or_default();
        if slot.is_empty() {
            *slot = value.to_string();
        }
    }
    /// The defaults of the settings for the CRUSH rule.
    pub fn add_placement(&mut self) {
        self.add("crush-root", "default");
        self.add("crush-failure-domain", "host");
        self.add("crush-device-class", "");
    }
}

/// Settings as they are checked. All faults are collected, so that one answer names them all.
pub struct Checks<'a> {
    settings: &'a mut Settings,
    faults: Vec<String>,
}

impl Checks<'_> {
    /// Nothing is checked yet.
    pub fn new(settings: &mut Settings) -> Checks<'_> {
        Checks { settings, faults: Vec::new() }
    }
    /// Notes a fault.
    pub fn fault(&mut self, text: String) {
        self.faults.push(text);
    }
    /// What is checked.
    pub fn settings(&mut self) -> &mut Settings {
        self.settings
    }

    /// A number. The default counts where it is not set, or not a number: that is a fault.
    pub fn int(&mut self, name: &str, default: i64) -> i64 {
        self.settings.add(name, &default.to_string());
        let value = self.settings[name].clone();
        match value.parse::<i32>() {
            Ok(n) => n.into(),
            Err(_) => {
                self.fault(format!(
                    "could not convert {name}={value} to int because Expected option value to be integer, got \
                     '{value}', set to default {default}"
                ));
                default
            }
        }
    }
    /// Whether it is `yes` or `true`.
    pub fn flag(&mut self, name: &str) -> bool {
        self.settings.add(name, "false");
        matches!(&*self.settings[name], "yes" | "true")
    }
    /// At least two data chunks and one parity.
    pub fn k_and_m(&mut self, k: i64, m: i64) {
        if k < 2 {
            self.fault(format!("k={k} must be >= 2"));
        } else if m < 1 {
            self.fault(format!("m={m} must be >= 1"));
        }
    }
    /// An error if there was any fault.
    pub fn finish(self) -> Result<(), ProfileError> {
        match self.faults.is_empty() {
            true => Ok(()),
            false => Err(invalid(self.faults.join("\n"))),
        }
    }
}
