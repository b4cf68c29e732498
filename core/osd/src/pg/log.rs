//! The newest writes of a placement group, in order. From it, peers see what they miss, and
//! resent requests get the answer that they already got.

use nacre_base::Version;
use nacre_proto::messages::peer::{LogEntry, PgInfo, PgLog};
use nacre_proto::types::{ObjectId, ReqId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// How many entries are kept for those who were away. Ceph: `osd_min_pg_log_entries` and friends.
/// Tests reach the end of the log sooner.
pub const ENTRIES_KEPT: usize = if cfg!(test) { 10 } else { 3000 };

#[derive(Clone, Debug, Default)]
pub struct Log {
    entries: BTreeMap<Version, LogEntry>,
    by_request: BTreeMap<ReqId, Version>,
}

impl Log {
    pub fn from_entries(entries: impl IntoIterator<Item = LogEntry>) -> Log {
        let mut log = Log::default();
        entries.into_iter().for_each(|entry| log.append(entry));
        log
    }
    pub fn len(&self) -> usize {
        self.entries.len()
    }
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &LogEntry> {
        self.entries.values()
    }
    pub fn after(&self, version: Version) -> impl DoubleEndedIterator<Item = &LogEntry> {
        self.entries.range((Bound::Excluded(version), Bound::Unbounded)).map(|(_, entry)| entry)
    }
    pub fn newest(&self) -> Option<Version> {
        self.entries.last_key_value().map(|(&version, _)| version)
    }
    /// The entry of a request that was carried out before.
    pub fn find(&self, reqid: &ReqId) -> Option<&LogEntry> {
        self.by_request.get(reqid).and_then(|version| self.entries.get(version))
    }
    /// The version of the oldest entry that must be kept, once there are enough.
    pub fn trim_point(&self) -> Option<Version> {
        let surplus = self.entries.len().checked_sub(ENTRIES_KEPT + 1)?;
        self.entries.keys().nth(surplus).copied()
    }

    pub fn append(&mut self, entry: LogEntry) {
        assert!(self.newest().is_none_or(|newest| newest < entry.version), "log entries come in order");
        self.by_request.insert(entry.reqid, entry.version);
        self.entries.insert(entry.version, entry);
    }
    fn take_out(&mut self, version: Version) -> Option<LogEntry> {
        let entry = self.entries.remove(&version)?;
        if self.by_request.get(&entry.reqid) == Some(&version) {
            self.by_request.remove(&entry.reqid);
        }
        Some(entry)
    }
    /// Takes out the entries up to and including `version`.
    pub fn trim(&mut self, to: Version) -> Vec<Version> {
        let old: Vec<Version> = self.entries.range(..=to).map(|(&version, _)| version).collect();
        old.iter().for_each(|&version| {
            self.take_out(version);
        });
        old
    }
    /// Takes out the entries after `version`, oldest first.
    fn rewind(&mut self, to: Version) -> Vec<LogEntry> {
        let newer: Vec<Version> = self.after(to).map(|entry| entry.version).collect();
        newer.into_iter().filter_map(|version| self.take_out(version)).collect()
    }
    /// What goes to the child of a split.
    pub fn split_off(&mut self, moves: impl Fn(&ObjectId) -> bool) -> Log {
        let versions: Vec<Version> =
            self.iter().filter(|entry| moves(&entry.object)).map(|entry| entry.version).collect();
        Log::from_entries(versions.into_iter().filter_map(|version| self.take_out(version)))
    }

    /// Whether someone with `mine` can tell from the log with `theirs` what it misses.
    pub fn overlaps(mine: &PgInfo, theirs: &PgInfo) -> bool {
        !mine.incomplete && mine.last_update >= theirs.log_tail && mine.log_tail <= theirs.last_update
    }

    /// The newest entry that both logs have; or else the start of this one.
    fn common(&self, info: &PgInfo, other: &PgLog) -> Version {
        let theirs: BTreeSet<Version> = other.entries.iter().map(|entry| entry.version).collect();
        let shared = self.entries.keys().rev().copied().find(|version| {
            // What is not in a part of a log may lie before the part.
            *version <= other.after || theirs.contains(version)
        });
        shared.unwrap_or(info.log_tail).max(info.log_tail.min(other.info.last_update))
    }

    /// Makes this log, of which `info` is the summary, the same as `other`. The logs must overlap.
    /// Tells which entries went and which came.
    pub fn merge(&mut self, info: &PgInfo, other: &PgLog) -> LogMerge {
        let common = self.common(info, other);
        let gone = self.rewind(common);
        let new: Vec<LogEntry> = other.entries.iter().filter(|e| e.version > common).cloned().collect();
        new.iter().cloned().for_each(|entry| self.append(entry));
        LogMerge { gone, new }
    }
}

/// The difference that a merge made, oldest entries first.
#[derive(Debug, Default)]
pub struct LogMerge {
    pub gone: Vec<LogEntry>,
    pub new: Vec<LogEntry>,
}

/// The part of a log that someone with `theirs` needs in order to have the same.
pub fn part_for(info: &PgInfo, log: &Log, theirs: Option<&PgInfo>) -> PgLog {
    let known =
        theirs.filter(|theirs| Log::overlaps(theirs, info) && log.entries.contains_key(&theirs.last_update));
    let after = known.map_or(info.log_tail, |theirs| theirs.last_update);
    PgLog { info: *info, after, entries: log.after(after).cloned().collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_base::{Epoch, Name, PoolId, Utime};
    use nacre_proto::messages::peer::EntryKind;

    fn object(name: &str) -> ObjectId {
        ObjectId::head(PoolId(1), Name::default(), Name::default(), name.into())
    }
    fn v(epoch: u32, version: u64) -> Version {
        Version::new(Epoch(epoch), version)
    }
    fn entry(version: Version, kind: EntryKind, name: &str, prior: Version) -> LogEntry {
        LogEntry {
            version,
            prior,
            kind,
            object: object(name),
            others: Vec::new(),
            reqid: ReqId { tid: version.version, ..ReqId::default() },
            user_version: version.version,
            mtime: Utime::ZERO,
            acts: Vec::new(),
            result: 0,
            outputs: Vec::new(),
        }
    }
    fn log(entries: &[LogEntry]) -> (PgInfo, Log) {
        let log = Log::from_entries(entries.iter().cloned());
        (PgInfo { last_update: log.newest().unwrap_or_default(), ..PgInfo::default() }, log)
    }
    use EntryKind::{Delete, Modify, Note};

    #[test]
    fn a_merge_replaces_what_diverged_and_says_what_it_was() {
        let shared = entry(v(1, 1), Modify, "a", Version::ZERO);
        let (info, mut mine) = log(&[
            shared.clone(),
            entry(v(1, 2), Modify, "a", v(1, 1)),
            entry(v(1, 3), Modify, "b", Version::ZERO),
            entry(v(1, 4), Note, "n", Version::ZERO),
        ]);
        let (their_info, theirs) = log(&[
            shared,
            entry(v(2, 2), Modify, "c", Version::ZERO),
            entry(v(2, 3), Delete, "c", v(2, 2)),
            entry(v(2, 4), Modify, "d", Version::ZERO),
        ]);
        let merge = mine.merge(&info, &part_for(&their_info, &theirs, Some(&info)));
        let versions = |entries: &[LogEntry]| entries.iter().map(|entry| entry.version).collect::<Vec<_>>();
        assert_eq!(versions(&merge.gone), [v(1, 2), v(1, 3), v(1, 4)]);
        assert_eq!(versions(&merge.new), [v(2, 2), v(2, 3), v(2, 4)]);
        assert!(mine.iter().eq(theirs.iter()));
        assert_eq!(mine.find(&ReqId { tid: 3, ..ReqId::default() }).map(|e| e.version), Some(v(2, 3)));
    }

    #[test]
    fn who_is_merely_behind_gets_only_the_rest() {
        let all: Vec<_> = (1..=5).map(|n| entry(v(1, n), Modify, "a", v(1, n - 1))).collect();
        let (info, full) = log(&all);
        let (behind, mut short) = log(&all[..3]);
        let part = part_for(&info, &full, Some(&behind));
        assert_eq!(part.entries.len(), 2);
        let merge = short.merge(&behind, &part);
        assert_eq!((merge.gone.len(), merge.new.len()), (0, 2));
        assert!(short.iter().eq(full.iter()));
    }

    #[test]
    fn a_log_that_was_trimmed_beyond_mine_does_not_overlap() {
        let mine = PgInfo { last_update: v(1, 3), ..PgInfo::default() };
        let theirs = PgInfo { last_update: v(1, 9), log_tail: v(1, 4), ..PgInfo::default() };
        assert!(!Log::overlaps(&mine, &theirs));
        assert!(Log::overlaps(&theirs, &mine) || theirs.log_tail > mine.last_update);
        assert!(Log::overlaps(&mine, &PgInfo { log_tail: v(1, 3), ..theirs }));
    }

    #[test]
    fn trimming_forgets_requests_with_their_entries() {
        let (_, mut log) = log(&[entry(v(1, 1), Modify, "a", v(0, 0)), entry(v(1, 2), Modify, "a", v(1, 1))]);
        assert_eq!(log.trim(v(1, 1)), [v(1, 1)]);
        assert!(log.find(&ReqId { tid: 1, ..ReqId::default() }).is_none());
        assert!(log.find(&ReqId { tid: 2, ..ReqId::default() }).is_some());
    }
}
