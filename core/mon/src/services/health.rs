//! What is wrong, in one sentence each. Nothing is stored: a warning is there as long as its cause is.

use crate::pending_txn::PendingTxn;
use crate::services::Context;
use crate::state::{Applying, Genesis, Rejected, Slice};
use nacre_base::Utime;
use nacre_proto::messages::LogLevel;
use nacre_wire::versioned_fields;
use std::collections::BTreeMap;

/// Health warnings that operators muted: the agreed slice.
#[derive(Clone, Debug, Default)]
pub struct Mutes {
    pub mutes: BTreeMap<String, Mute>,
}

/// A muted warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mute {
    /// Zero: forever.
    pub until: Utime,
    /// Stays when the warning clears, and when it grows.
    pub sticky: bool,
    pub summary: String,
    /// The size of the warning when it was muted; a bigger one is shown again.
    pub count: i64,
}

versioned_fields!(Mute, "mute", until, sticky, summary, count);

impl Slice for Mutes {
    /// None unmutes.
    type Delta = Vec<(String, Option<Mute>)>;

    fn begin(_: &Genesis) -> Result<Mutes, Rejected> {
        Ok(Mutes::default())
    }
    fn apply(&mut self, delta: &Self::Delta, _: &Applying) {
        for (code, mute) in delta {
            match mute {
                Some(mute) => drop(self.mutes.insert(code.clone(), mute.clone())),
                None => drop(self.mutes.remove(code)),
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    Ok,
    Warn,
    Error,
}

impl Severity {
    pub fn name(self) -> &'static str {
        match self {
            Severity::Ok => "HEALTH_OK",
            Severity::Warn => "HEALTH_WARN",
            Severity::Error => "HEALTH_ERR",
        }
    }
    pub fn tag(self) -> &'static str {
        match self {
            Severity::Ok => "OK",
            Severity::Warn => "WRN",
            Severity::Error => "ERR",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    pub severity: Severity,
    pub summary: String,
    /// How much of it there is; what it means depends on the check.
    pub count: i64,
    pub detail: Vec<String>,
}

pub type Checks = BTreeMap<&'static str, Check>;

pub fn overall(checks: &Checks, mutes: &BTreeMap<String, Mute>) -> Severity {
    let heard = checks.iter().filter(|(code, _)| !mutes.contains_key(**code));
    heard.map(|(_, check)| check.severity).max().unwrap_or(Severity::Ok)
}

pub fn warn(checks: &mut Checks, code: &'static str, count: usize, summary: String, detail: Vec<String>) {
    checks.insert(code, Check { severity: Severity::Warn, summary, count: count as i64, detail });
}

/// What the cluster log already says about health.
#[derive(Default)]
pub struct HealthLog {
    /// What was wrong then.
    last: Checks,
}

impl HealthLog {
    /// Ends mutes whose time is over or whose cause is gone, and those of causes that grew.
    pub fn periodic(&mut self, cx: &Context<'_>, checks: Checks, pending: &mut PendingTxn) {
        let state = cx.state;
        let mut ended = Vec::new();
        for (code, mute) in &state.health.mutes {
            let over = mute.until != Utime::ZERO && mute.until <= cx.now.wall;
            let check = checks.get(&**code);
            let gone = !mute.sticky && check.is_none();
            let grew = !mute.sticky && check.is_some_and(|check| check.count > mute.count);
            let why = match (over, gone) {
                (true, _) => format!("passed TTL {}", mute.until),
                (_, true) => "health alert cleared".to_string(),
                _ if grew => format!("count increased from {}", mute.count),
                _ => continue,
            };
            pending.batch.health.push((code.clone(), None));
            ended.push(format!("Health alert mute {code} cleared ({why})"));
        }
        for text in ended {
            cx.log(pending, LogLevel::Info, text);
        }
        for (level, text) in news(&self.last, &checks) {
            cx.log(pending, level, text);
        }
        self.last = checks;
    }
}

/// What to write into the cluster log when the warnings were `before` and are `now`.
fn news(before: &Checks, now: &Checks) -> Vec<(LogLevel, String)> {
    let mut lines = Vec::new();
    let level = |check: &Check| match check.severity {
        Severity::Ok => LogLevel::Info,
        Severity::Warn => LogLevel::Warn,
        Severity::Error => LogLevel::Error,
    };
    for (code, check) in now {
        match before.get(code) {
            None => lines.push((level(check), format!("Health check failed: {} ({code})", check.summary))),
            Some(old) if old.summary != check.summary => {
                lines.push((level(check), format!("Health check update: {} ({code})", check.summary)));
            }
            Some(_) => {}
        }
    }
    for (code, old) in before.iter().filter(|(code, _)| !now.contains_key(*code)) {
        lines.push((LogLevel::Info, format!("Health check cleared: {code} (was: {})", old.summary)));
    }
    if now.is_empty() && !before.is_empty() {
        lines.push((LogLevel::Info, "Cluster is now healthy".to_string()));
    }
    lines
}
