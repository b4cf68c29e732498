//! The cluster log: what happened in the cluster, by channels. `cluster` has what daemons noticed, `audit`
//! (`audit.rs`) the commands.

use crate::pending_txn::PendingTxn;
use crate::services::Context;
use crate::services::pg::stats::PgStats;
use crate::services::pg::summary;
use crate::sessions::Session;
use crate::state::{Applying, Genesis, Published, Rejected, Slice, State};
use nacre_base::Time;
use nacre_proto::messages::{Log, LogEntry, LogLevel, PaxosVersion};
use std::collections::VecDeque;
use std::time::Duration;

/// Lines that are kept of each channel from `Info` on, and below it. Noise does not push out what matters.
const LINES_MAX: [usize; 2] = [1000, 500];

/// How often placement groups are summarised in the log.
const SUMMARY_EVERY: Duration = Duration::from_secs(2);

/// The last lines of the cluster log.
#[derive(Clone, Debug, Default)]
pub struct ClusterLog {
    /// Lines with their numbers, which rise.
    pub lines: VecDeque<(u64, LogEntry)>,
    /// Lines ever written: the number of the last one.
    pub seq: u64,
}

impl ClusterLog {
    /// Lines as they were stored once, when all after a line were kept.
    pub fn contiguous(lines: Vec<LogEntry>, seq: u64) -> ClusterLog {
        let first = (seq + 1).saturating_sub(lines.len() as u64);
        ClusterLog { lines: (first..).zip(lines).collect(), seq }
    }

    fn trim(&mut self) {
        // What may be kept by channel and level: the cluster's, and the audit's.
        let class = |line: &LogEntry| {
            (usize::from(line.channel == "audit"), usize::from(line.level < LogLevel::Info))
        };
        let mut surplus = [LINES_MAX.map(|max| -(max as isize)); 2];
        for (_, line) in &self.lines {
            let (channel, level) = class(line);
            surplus[channel][level] += 1;
        }
        if surplus.iter().flatten().any(|surplus| *surplus > 0) {
            self.lines.retain(|(_, line)| {
                let (channel, level) = class(line);
                surplus[channel][level] -= 1;
                surplus[channel][level] < 0
            });
        }
    }
}

impl Slice for ClusterLog {
    type Delta = Vec<LogEntry>;

    fn begin(_: &Genesis) -> Result<ClusterLog, Rejected> {
        Ok(ClusterLog::default())
    }
    fn apply(&mut self, delta: &Self::Delta, _: &Applying) {
        for line in delta {
            self.seq += 1;
            self.lines.push_back((self.seq, line.clone()));
        }
        if !delta.is_empty() {
            self.trim();
        }
    }
    fn delta_bytes(delta: &Self::Delta) -> usize {
        delta.iter().map(|line| line.text.len()).sum()
    }

    fn publish(state: &State, what: &str, _: &mut Session, start: u64) -> Option<Published> {
        let level = subscribed_level(what)?;
        let ClusterLog { lines, seq } = &state.log;
        // From now on, unless the subscriber asked for an earlier line.
        let from = if start == 0 { seq + 1 } else { start };
        let wanted = lines.iter().filter(|(number, line)| *number >= from && line.level >= level);
        let entries: Vec<_> = wanted.map(|(_, line)| line.clone()).collect();
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

/// The least level of a subscription to the log, `log-info` and the like. A session has one of them: clients
/// ask for another level and do not take back what they asked for before.
pub fn subscribed_level(what: &str) -> Option<LogLevel> {
    log_level(what.strip_prefix("log-")?)
}

/// What the leader writes of the state of placement groups.
#[derive(Default)]
pub struct PgSummaries {
    last: Option<(Time, String)>,
    written: u64,
}

impl PgSummaries {
    /// Writes a line if there is something new.
    pub fn periodic(&mut self, cx: &Context<'_>, stats: &PgStats, pending: &mut PendingTxn) {
        if self.last.as_ref().is_some_and(|(at, _)| cx.now.mono.since(*at) < SUMMARY_EVERY) {
            return;
        }
        let text = summary::text(stats, &cx.state.osdmap.map);
        if self.last.as_ref().is_none_or(|(_, last)| *last != text) {
            self.written += 1;
            cx.log(pending, LogLevel::Debug, format!("pgmap v{}: {text}", self.written));
            self.last = Some((cx.now.mono, text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_base::Utime;
    use nacre_proto::types::{AddrVec, AuthName, EntityName, EntityType};

    fn line(channel: &str, level: LogLevel) -> LogEntry {
        LogEntry {
            name: AuthName::new(EntityType::Mon, "a"),
            rank: EntityName::new(EntityType::Mon, 0),
            addrs: AddrVec::default(),
            stamp: Utime::ZERO,
            seq: 0,
            level,
            text: String::new(),
            channel: channel.to_string(),
        }
    }

    #[test]
    fn debug_and_audit_lines_do_not_push_out_what_daemons_noticed() {
        let mut log = ClusterLog::contiguous(vec![line("cluster", LogLevel::Warn)], 7);
        let noise = (0..3000).map(|n| {
            let level = if n % 2 == 0 { LogLevel::Debug } else { LogLevel::Info };
            (8 + n, line(if n % 3 == 0 { "cluster" } else { "audit" }, level))
        });
        log.lines.extend(noise);
        log.trim();
        assert_eq!(log.lines.len(), 501 + 500 + 1000 + 500);
        assert_eq!(log.lines.front().map(|(number, line)| (*number, line.level)), Some((7, LogLevel::Warn)));
        assert_eq!(log.lines.back().map(|(number, _)| *number), Some(3007), "the newest are kept");
        assert!(log.lines.iter().is_sorted_by_key(|(number, _)| *number));
    }
}
