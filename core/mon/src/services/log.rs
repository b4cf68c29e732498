//! The cluster log.

use crate::sessions::Session;
use crate::state::{Applying, Genesis, Published, Rejected, Slice, State};
use nacre_proto::messages::{Log, LogEntry, LogLevel, PaxosVersion};
use std::collections::VecDeque;

/// Lines that are kept.
const LINES_MAX: usize = 1000;

/// The last lines of the cluster log.
#[derive(Clone, Debug, Default)]
pub struct ClusterLog {
    pub lines: VecDeque<LogEntry>,
    /// Lines ever written.
    pub seq: u64,
}

impl Slice for ClusterLog {
    type Delta = Vec<LogEntry>;

    fn begin(_: &Genesis) -> Result<ClusterLog, Rejected> {
        Ok(ClusterLog::default())
    }
    fn apply(&mut self, delta: &Self::Delta, _: &Applying) {
        for line in delta {
            self.seq += 1;
            self.lines.push_back(line.clone());
        }
        while self.lines.len() > LINES_MAX {
            self.lines.pop_front();
        }
    }
    fn delta_bytes(delta: &Self::Delta) -> usize {
        delta.iter().map(|line| line.text.len()).sum()
    }

    fn publish(state: &State, what: &str, _: &mut Session, start: u64) -> Option<Published> {
        let level = log_level(what.strip_prefix("log-")?)?;
        let ClusterLog { lines, seq } = &state.log;
        // From now on, unless the subscriber asked for an earlier line.
        let from = if start == 0 { seq + 1 } else { start };
        let skip = (lines.len() as u64).saturating_sub((seq + 1).saturating_sub(from));
        let entries: Vec<_> =
            lines.iter().skip(skip as usize).filter(|line| line.level >= level).cloned().collect();
        let mut messages = Vec::new();
        if !entries.is_empty() {
            messages.push(Log { version: PaxosVersion(*seq), fsid: state.fsid(), entries }.into());
        }
        Some(Published { messages, next: seq + 1 })
    }
}

/// By Ceph's names for the options of `ceph log` and of subscriptions.
pub fn log_level(name: &str) -> Option<LogLevel> {
    Some(match name {
        "debug" => LogLevel::Debug,
        "info" => LogLevel::Info,
        "sec" => LogLevel::Security,
        "warn" | "warning" => LogLevel::Warn,
        "error" => LogLevel::Error,
        _ => return None,
    })
}
