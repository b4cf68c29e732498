//! The PG log: the newest writes of a placement group, in order. It shows other holders what they miss, and
//! identifies resent requests.

use super::dups::DupLog;
use hashbrown::HashTable;
use nacre_base::Version;
use nacre_proto::messages::answer::{Answer, Answers};
use nacre_proto::messages::peer::{LogEntry, PgInfo, PgLog};
use nacre_proto::types::{ObjectId, ReqId};
use nacre_wire::{from_slice, to_vec};
use std::collections::{BTreeSet, VecDeque};

/// Entries that one write trims: no more, as its transaction contains their removal; in long logs no
/// fewer, so that their dup entries share a page.
const TRIMMED_AT_ONCE: usize = 64;
/// Memory of an entry besides its encoding: its slots in the log and in the index, with unused capacity.
const ENTRY_OVERHEAD: usize = 140;

/// How long the log of a placement group is.
#[derive(Clone, Copy, Debug)]
pub struct LogLimits {
    /// Entries kept for members that were away. Ceph: `osd_max_pg_log_entries`.
    pub entries: usize,
    /// And how many at least, however little memory there is. Ceph: `osd_min_pg_log_entries`.
    pub entries_min: usize,
    /// How many writes back a request is recognised when it is sent again. Ceph: `osd_pg_log_dups_tracked`.
    pub answers: u64,
    /// Bytes of memory, dup entries included.
    pub memory: usize,
}
/// A decoded entry takes ten times as much memory as its encoding, and a busy OSD has a hundred thousand of
/// them: they are kept encoded, and decoded when they are needed.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// The entries, oldest first.
    entries: VecDeque<EncodedEntry>,
    /// Entries by `digest` of the request. It is never iterated over.
    by_request: HashTable<(u64, Version)>,
    /// Bytes of all encoded entries.
    bytes: usize,
}

/// An encoded entry, and the decoded fields that are needed when it is trimmed, which happens with each
/// write.
#[derive(Clone, Debug)]
pub struct EncodedEntry {
    pub version: Version,
    pub reqid: ReqId,
    user_version: u64,
    result: i32,
    has_outputs: bool,
    encoded: Box<[u8]>,
}

impl EncodedEntry {
    fn new(entry: &LogEntry, encoded: &[u8]) -> EncodedEntry {
        let LogEntry { version, reqid, user_version, result, .. } = *entry;
        let has_outputs = !entry.outputs.is_empty();
        EncodedEntry { version, reqid, user_version, result, has_outputs, encoded: encoded.into() }
    }
    pub fn read(&self) -> LogEntry {
        from_slice(&self.encoded).expect("an entry that was encoded here")
    }
    /// The reply that the client got, or will get.
    pub fn answer(&self) -> Answer {
        Answer {
            reqid: self.reqid,
            version: self.version,
            user_version: self.user_version,
            result: self.result,
            outputs: if self.has_outputs { self.read().outputs } else { Vec::new() },
        }
    }
    /// The key of its request in the index.
    fn request(&self) -> (u64, Version) {
        (digest(&self.reqid), self.version)
    }
}

/// Hash of a request id. Different requests may have the same one.
pub fn digest(reqid: &ReqId) -> u64 {
    let client = (reqid.client.num as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (client ^ reqid.inc as u64).rotate_left(32) ^ reqid.tid
}

/// Requests of one client differ in few bits, and a table wants all of them to differ.
fn spread(digest: u64) -> u64 {
    digest.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Log {
    pub fn from_entries<'a>(entries: impl IntoIterator<Item = &'a LogEntry>) -> Log {
        let mut log = Log::default();
        entries.into_iter().for_each(|entry| log.append(entry));
        log
    }
    pub fn len(&self) -> usize {
        self.entries.len()
    }
    /// Bytes of memory, roughly.
    pub fn memory(&self) -> usize {
        self.bytes + self.entries.len() * ENTRY_OVERHEAD
    }
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = LogEntry> {
        self.entries.iter().map(EncodedEntry::read)
    }
    pub fn versions(&self) -> impl DoubleEndedIterator<Item = Version> {
        self.entries.iter().map(|kept| kept.version)
    }
    /// The position of the first entry after that version.
    fn place_after(&self, version: Version) -> usize {
        self.entries.partition_point(|kept| kept.version <= version)
    }
    pub fn after(&self, version: Version) -> impl DoubleEndedIterator<Item = LogEntry> {
        self.entries.range(self.place_after(version)..).map(EncodedEntry::read)
    }
    pub fn newest(&self) -> Option<Version> {
        self.entries.back().map(|kept| kept.version)
    }
    pub fn oldest(&self) -> Option<Version> {
        self.entries.front().map(|kept| kept.version)
    }
    fn has(&self, version: Version) -> bool {
        self.entries.binary_search_by_key(&version, |kept| kept.version).is_ok()
    }
    /// The entry of a request that was carried out before; the newest, if there are several.
    pub fn find(&self, reqid: &ReqId) -> Option<LogEntry> {
        let digest = digest(reqid);
        let same = self.by_request.iter_hash(spread(digest)).filter(|(of, _)| *of == digest);
        let mut versions: Vec<Version> = same.map(|(_, version)| *version).collect();
        versions.sort_unstable();
        let mut newest_first = versions.iter().rev().map(|v| self.entries[self.place_after(*v) - 1].read());
        newest_first.find(|entry| entry.reqid == *reqid)
    }
    /// The version of the newest entry that should go: there are enough after it, or they take more memory
    /// than there is for this log beside what else is remembered. `folds`: what they did is written down by
    /// object, which takes as long for several entries as for one.
    pub fn trim_point(&self, limits: &LogLimits, memory_of_answers: usize, folds: bool) -> Option<Version> {
        let part = if folds { 4 } else { 16 };
        let at_once = (limits.entries / part).clamp(1, TRIMMED_AT_ONCE);
        let most = self.entries.len().saturating_sub(limits.entries_min).min(at_once);
        let surplus = self.entries.len().saturating_sub(limits.entries);
        let mut memory = self.memory() + memory_of_answers;
        let mut going = 0;
        for kept in self.entries.iter().take(most) {
            if going >= surplus && memory <= limits.memory {
                break;
            }
            memory -= kept.encoded.len() + ENTRY_OVERHEAD;
            going += 1;
        }
        (going >= at_once).then(|| self.entries[going - 1].version)
    }

    pub fn append(&mut self, entry: &LogEntry) {
        self.append_encoded(entry, &to_vec(entry));
    }
    /// If the encoding is there already.
    pub fn append_encoded(&mut self, entry: &LogEntry, encoded: &[u8]) {
        assert!(self.newest().is_none_or(|newest| newest < entry.version), "log entries come in order");
        self.push(EncodedEntry::new(entry, encoded));
    }
    fn push(&mut self, kept: EncodedEntry) {
        let request = kept.request();
        self.by_request.insert_unique(spread(request.0), request, |(digest, _)| spread(*digest));
        self.bytes += kept.encoded.len();
        self.entries.push_back(kept);
    }
    /// Those that were taken out of `entries`.
    fn forget(&mut self, gone: &[EncodedEntry]) {
        for kept in gone {
            let request = kept.request();
            let found = self.by_request.find_entry(spread(request.0), |of| *of == request);
            found.expect("every entry is found by its request").remove();
            self.bytes -= kept.encoded.len();
        }
    }
    /// Takes out the entries up to and including `version`.
    pub fn trim(&mut self, to: Version) -> Vec<EncodedEntry> {
        let gone: Vec<EncodedEntry> = self.entries.drain(..self.place_after(to)).collect();
        self.forget(&gone);
        gone
    }
    /// Takes out the entries after `version`, oldest first.
    pub fn rewind(&mut self, to: Version) -> Vec<LogEntry> {
        let gone: Vec<EncodedEntry> = self.entries.drain(self.place_after(to)..).collect();
        self.forget(&gone);
        gone.iter().map(EncodedEntry::read).collect()
    }
    /// Takes out the entries of a split's child.
    pub fn split_off(&mut self, moves: impl Fn(&ObjectId) -> bool) -> Log {
        let (go, stay): (Vec<EncodedEntry>, Vec<EncodedEntry>) =
            std::mem::take(self).entries.into_iter().partition(|kept| moves(&kept.read().object));
        stay.into_iter().for_each(|kept| self.push(kept));
        let mut child = Log::default();
        go.into_iter().for_each(|kept| child.push(kept));
        child
    }

    /// Whether the log with `theirs` covers everything that a holder with `mine` misses.
    pub fn overlaps(mine: &PgInfo, theirs: &PgInfo) -> bool {
        !mine.incomplete && mine.last_update >= theirs.log_tail && mine.log_tail <= theirs.last_update
    }

    /// Whether a copy with `mine` can adopt `log` by undoing its divergent entries. Not if the logs diverged
    /// before mine begins, as after `mark_unfound_lost`: then the entries to undo are unknown.
    pub fn can_join(mine: &PgInfo, log: &PgLog) -> bool {
        // Writes are numbered without gaps, and a primary that continues from an older one uses a number
        // again, in a later epoch.
        let tail = mine.log_tail;
        let is_other = |version: Version| version > tail && version.version <= tail.version;
        let parted =
            is_other(log.info.last_update) || log.entries.iter().any(|entry| is_other(entry.version));
        Log::overlaps(mine, &log.info) && !parted
    }

    /// The newest entry that both logs have; or else the start of this one.
    fn common(&self, info: &PgInfo, other: &PgLog) -> Version {
        let theirs: BTreeSet<Version> = other.entries.iter().map(|entry| entry.version).collect();
        let shared = self.versions().rev().find(|version| {
            // Entries missing in a partial log may be older than the part.
            *version <= other.after || theirs.contains(version)
        });
        shared.unwrap_or(info.log_tail).max(info.log_tail.min(other.info.last_update))
    }

    /// Makes this log, of which `info` is the summary, the same as `other`. The logs must overlap.
    /// Returns the removed and the added entries.
    pub fn merge(&mut self, info: &PgInfo, other: &PgLog) -> LogDiff {
        let common = self.common(info, other);
        let divergent = self.rewind(common);
        let new: Vec<LogEntry> = other.entries.iter().filter(|e| e.version > common).cloned().collect();
        new.iter().for_each(|entry| self.append(entry));
        LogDiff { divergent, new }
    }
}

/// The difference that a merge made, oldest entries first in both lists.
#[derive(Debug, Default)]
pub struct LogDiff {
    /// Divergent entries, which only our log had.
    pub divergent: Vec<LogEntry>,
    pub new: Vec<LogEntry>,
}

/// The part of a log that a holder with `theirs` needs in order to have the same. A holder that has all
/// before it also has the dup entries from before it.
pub fn part_for(info: &PgInfo, log: &Log, dups: &DupLog, theirs: Option<&PgInfo>) -> PgLog {
    let known = theirs.filter(|theirs| Log::overlaps(theirs, info) && log.has(theirs.last_update));
    let after = known.map_or(info.log_tail, |theirs| theirs.last_update);
    let answers = if known.is_some() { Answers::default() } else { dups.all() };
    PgLog { info: *info, after, entries: log.after(after).collect(), answers }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::options::Options;
    use nacre_base::{Epoch, Name, PoolId, Utime};
    use nacre_proto::messages::part::{Act, Acts};
    use nacre_proto::messages::peer::EntryKind;

    fn object(name: &str) -> ObjectId {
        ObjectId::head(PoolId(1), Name::default(), Name::default(), name.into())
    }
    fn v(epoch: u32, version: u64) -> Version {
        Version::new(Epoch(epoch), version)
    }
    pub fn entry(version: Version, kind: EntryKind, name: &str, prior: Version) -> LogEntry {
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
        let log = Log::from_entries(entries);
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
        let merge = mine.merge(&info, &part_for(&their_info, &theirs, &DupLog::default(), Some(&info)));
        let versions = |entries: &[LogEntry]| entries.iter().map(|entry| entry.version).collect::<Vec<_>>();
        assert_eq!(versions(&merge.divergent), [v(1, 2), v(1, 3), v(1, 4)]);
        assert_eq!(versions(&merge.new), [v(2, 2), v(2, 3), v(2, 4)]);
        assert!(mine.iter().eq(theirs.iter()));
        assert_eq!(mine.find(&ReqId { tid: 3, ..ReqId::default() }).map(|e| e.version), Some(v(2, 3)));
    }

    #[test]
    fn member_that_is_only_behind_gets_only_the_newer_entries() {
        let all: Vec<_> = (1..=5).map(|n| entry(v(1, n), Modify, "a", v(1, n - 1))).collect();
        let (info, full) = log(&all);
        let (behind, mut short) = log(&all[..3]);
        let part = part_for(&info, &full, &DupLog::default(), Some(&behind));
        assert_eq!(part.entries.len(), 2);
        let merge = short.merge(&behind, &part);
        assert_eq!((merge.divergent.len(), merge.new.len()), (0, 2));
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
    fn a_log_that_begins_after_the_two_parted_cannot_be_joined() {
        let entries = [entry(v(1, 4), Modify, "a", v(1, 2)), entry(v(3, 5), Modify, "b", Version::ZERO)];
        let (info, theirs) = log(&entries);
        let theirs = PgLog { info, after: v(1, 3), entries: theirs.iter().collect(), ..PgLog::default() };
        let mine = |tail| PgInfo { last_update: v(1, 9), log_tail: tail, ..PgInfo::default() };
        assert!(Log::can_join(&mine(v(1, 3)), &theirs) && Log::can_join(&mine(v(1, 4)), &theirs));
        assert!(!Log::can_join(&mine(v(1, 5)), &theirs) && !Log::can_join(&mine(v(1, 7)), &theirs));
        // Of the same history, and far ahead.
        let (ahead, others) =
            log(&[entry(v(1, 9), Modify, "a", v(1, 4)), entry(v(3, 10), Modify, "a", v(1, 9))]);
        let others =
            PgLog { info: ahead, after: v(1, 8), entries: others.iter().collect(), ..PgLog::default() };
        assert!(Log::can_join(&mine(v(1, 7)), &others));
    }

    #[test]
    fn a_log_without_memory_trims_more_but_keeps_some() {
        let all: Vec<_> = (1..=9).map(|n| entry(v(1, n), Modify, "a", v(1, n - 1))).collect();
        let (_, log) = log(&all);
        let trim_point =
            |memory| log.trim_point(&LogLimits { memory, ..Options::default().logs() }, 5, false);
        assert_eq!(trim_point(usize::MAX), None);
        assert_eq!(trim_point(log.memory() + 5), None);
        assert_eq!(trim_point(log.memory() + 4), Some(v(1, 1)));
    }

    #[test]
    fn an_entry_of_a_small_write_takes_a_few_hundred_bytes() {
        let acts = vec![Act::Data { offset: 1 << 20, len: 4096 }];
        let name = "rbd_data.1234567890ab.0000000000000001";
        let write = |n| LogEntry {
            acts: vec![Acts { object: None, acts: acts.clone() }],
            ..entry(v(1, n), Modify, name, v(1, n - 1))
        };
        let all: Vec<_> = (1..=10).map(write).collect();
        let (_, log) = log(&all);
        assert!(log.memory() / log.len() <= 400, "{}", log.memory() / log.len());
    }

    #[test]
    fn trimming_forgets_requests_with_their_entries() {
        let (_, mut log) = log(&[entry(v(1, 1), Modify, "a", v(0, 0)), entry(v(1, 2), Modify, "a", v(1, 1))]);
        assert_eq!(log.trim(v(1, 1)).len(), 1);
        assert!(log.find(&ReqId { tid: 1, ..ReqId::default() }).is_none());
        assert!(log.find(&ReqId { tid: 2, ..ReqId::default() }).is_some());
    }
}
