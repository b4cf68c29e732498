//! What OSDs and monitors tell each other. Ours alone: no Ceph client ever sees these.
//!
//! An OSD also uses the clients' messages towards monitors: it subscribes to the OSD map and the
//! configuration as a client does.
//!
//! Each message is an envelope of its own, so that a rolling upgrade can add fields.

use super::images::ImageWork;
use super::latencies::Latencies;
use super::scrub::ScrubState;
use crate::types::{AddrVec, Formats, Network};
use bytes::Bytes;
use nacre_base::{Epoch, IntervalSet, OsdId, PgId, PoolId, Utime, Version};
use nacre_perf::Reading;
use nacre_wire::{Decode, DecodeError, Encode, Reader, versioned, versioned_fields};
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq)]
pub enum DaemonMsg {
    /// OSD to monitor: take me into the map as up. Answered by a map that says so.
    Boot(OsdBoot),
    /// OSD to monitor: mark me down so that no client waits for me. `is_over`: I am about to stop, and answer
    /// nothing any more that I need a lease for.
    MarkMeDown { osd: OsdId, epoch: Epoch, is_over: bool },
    /// OSD to monitor: another OSD does not answer (or does again).
    Failure(OsdFailure),
    /// OSD to monitor, every few seconds and whenever a placement group changes state.
    Report(OsdReport),
    /// OSD to monitor: the activation records of these, as of `epoch` or later. Also a promise that
    /// this OSD knows the map of `epoch`.
    RecordQuery { epoch: Epoch, pgs: Vec<PgId> },
    /// The answer: the monitor's map epoch when it looked, and what it found.
    Records { epoch: Epoch, records: Vec<(PgId, Option<PgRecord>)> },
    /// Primary to monitor: the log of this interval is durable on the whole acting set; once you
    /// have committed that, I serve.
    Activate { epoch: Epoch, records: Vec<(PgId, PgRecord)> },
    /// The answer, per group: whether the record was committed. It is refused when the monitor
    /// knows a newer interval.
    Activated { epoch: Epoch, results: Vec<(PgId, Epoch, bool)> },
    /// Monitor to OSD: look through those of these groups that you are the primary of. `repair`: and
    /// make wrong copies right.
    Scrub { pgs: Vec<PgId>, deep: bool, repair: bool },
    /// Monitor to OSD: of those of these groups that you are the primary of, what recovery does goes before
    /// that of others; or, with `on` unset, no longer. `backfill`: what moving them does, too.
    Force { pgs: Vec<PgId>, backfill: bool, on: bool },
    /// Monitor to OSD: for this many seconds, count what clients do to each image, and say so with each
    /// report.
    CountImages { seconds: u32 },
    /// OSD to monitor: what was done to images since the last of these.
    Images(Vec<ImageWork>),
    /// Primary to monitor: which OSDs should serve these while their data moves (`pg_temp`). Answered by a
    /// map, if at all.
    Rearrange(Vec<PgWish>),
    /// OSD to monitor: a line for the cluster log.
    ClusterLog { level: u8, stamp: Utime, text: String },
    /// OSD to monitor: two groups are ready to become one. Ceph: `MOSDPGReadyToMerge`.
    MergeReady(MergeReady),
    /// Monitor to OSD: by which keys callers are known (`nacre_auth::Keys`), sealed with the OSD's own.
    Keys { sealed: Bytes },
    /// Monitor to OSD: the format of the cluster. Only to OSDs that say which formats they can use.
    Format { format: u32 },
    /// OSD to monitor: how long requests took since the last of these. From `cluster_format::LATENCIES` on.
    Latencies(Latencies),
}

/// What the primary of both halves of a merge says once neither takes writes any more. It holds as long
/// as the map of `epoch` and the activation records of these intervals do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergeReady {
    /// The map that the primary has.
    pub epoch: Epoch,
    /// The group that will cease to be. Its other half follows from the map.
    pub source: PgId,
    pub source_interval: Epoch,
    /// The newest entry of its log, which all members have.
    pub source_version: Version,
    pub target_interval: Epoch,
    pub target_version: Version,
}

#[derive(Clone, Debug, PartialEq)]
pub struct OsdBoot {
    pub osd: OsdId,
    /// Of its store: tells a replaced disk from a restarted daemon.
    pub uuid: [u8; 16],
    /// Where clients reach it.
    pub public: AddrVec,
    /// Where other OSDs reach it.
    pub cluster: AddrVec,
    /// The newest map that it has.
    pub newest_map: Epoch,
    /// Bytes of its device: decides its CRUSH weight when it is new.
    pub capacity: u64,
    /// "ssd", "hdd" or "nvme".
    pub device_class: String,
    pub host: String,
    /// What `ceph osd metadata` shows.
    pub metadata: BTreeMap<String, String>,
    /// The cluster formats that it can use. None of an OSD that does not know of formats.
    pub formats: Option<Formats>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct OsdFailure {
    pub target: OsdId,
    /// Of the life that failed, so that a late report does not hit the next one.
    pub target_addrs: AddrVec,
    pub epoch: Epoch,
    pub evidence: FailureEvidence,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureEvidence {
    /// Its port refuses connections: the process is gone.
    Refused,
    /// No heartbeat for this many milliseconds.
    Silent { millis: u32 },
    /// No heartbeat for this many milliseconds on one of the networks that both are on, while there are
    /// some on the other.
    SilentOn { network: Network, millis: u32 },
    /// It answers again: forget what I said.
    Recovered,
}

/// How far a placement group had come when it last served: the survivors of `acting` hold every
/// acknowledged write. Committed by the monitors before the interval's first write is accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PgRecord {
    /// The epoch in which the interval began.
    pub interval: Epoch,
    /// Empty, once an operator gave up what they had: then the placement group begins empty.
    pub acting: Vec<OsdId>,
}

impl PgRecord {
    pub fn is_void(&self) -> bool {
        !self.acting.iter().any(|osd| osd.is_some())
    }
}

/// Which OSDs should serve a placement group. Ceph: an entry of `MOSDPGTemp`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PgWish {
    pub pg: PgId,
    /// What its primary activated: it counts for nothing after that.
    pub record: PgRecord,
    /// The primary first. Empty: the OSDs that CRUSH chooses.
    pub acting: Vec<OsdId>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct OsdReport {
    pub osd: Option<OsdId>,
    /// The map that the OSD has.
    pub epoch: Epoch,
    pub space: OsdSpace,
    /// From a transaction to its being durable, the mean since the last report.
    pub commit_latency_us: u32,
    /// Of the groups that it is primary of.
    pub pgs: Vec<PgReport>,
    /// Objects in the store, including replicas.
    pub num_objects: u64,
    /// Which report of this OSD it is: the epoch in which it came up, and a count within that life in the
    /// lower half. Ceph's number, so that scripts can wait until what they have seen reported is known.
    pub seq: u64,
    /// What the objects of each pool take; None if the OSD cannot tell.
    pub pools: Option<Vec<(PoolId, PoolSpace)>>,
    pub slow: SlowOps,
    /// Snapshots for which writes made clones since the last report. A client that waited for long may not
    /// have known that one of them is gone, and if everything that was kept for it was gone, too, these would
    /// never be removed.
    pub kept: BTreeMap<PoolId, IntervalSet>,
    /// For programs that collect metrics. Empty: they are those of an earlier report.
    pub counters: Vec<CounterReport>,
    /// The cluster format that the OSD uses. 0 of one that does not know of formats.
    pub format: u32,
}

/// A counter of a daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterReport {
    /// Which of the daemon's sets of counters it is in.
    pub set: String,
    /// Its name in the set.
    pub name: String,
    /// What it is now.
    pub value: Reading,
}

/// What the objects of one pool take on one OSD, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolSpace {
    /// Of the device. What clones share counts once.
    pub allocated: u64,
    /// What clients wrote, holes not counted; of each clone, too.
    pub stored: u64,
    pub omap: u64,
}

impl PoolSpace {
    /// As far as numbers go: they come from outside.
    pub fn plus(self, other: PoolSpace) -> PoolSpace {
        PoolSpace {
            allocated: self.allocated.saturating_add(other.allocated),
            stored: self.stored.saturating_add(other.stored),
            omap: self.omap.saturating_add(other.omap),
        }
    }
}

/// Requests of clients that are not answered for longer than `osd_op_complaint_time`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlowOps {
    pub count: u32,
    /// How long the first of them has been waiting.
    pub oldest_secs: u32,
}

/// In bytes. See `Statfs` in `machine`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OsdSpace {
    pub total: u64,
    pub available: u64,
    pub allocated: u64,
    pub stored: u64,
    pub omap: u64,
    pub internal: u64,
}

impl OsdSpace {
    /// Which part of the device is used; none if its size is not known.
    pub fn used_ratio(&self) -> f64 {
        if self.total == 0 { 0.0 } else { 1.0 - self.available as f64 / self.total as f64 }
    }
}

/// One placement group as its primary sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct PgReport {
    pub pg: PgId,
    /// Bits, see `pg_state`.
    pub state: u64,
    /// What it waits for, in words; empty when it does not.
    pub waiting_for: String,
    pub interval: Epoch,
    pub last_update: Version,
    pub last_complete: Version,
    pub log_tail: Version,
    pub log_entries: u64,
    pub up: Vec<OsdId>,
    pub up_primary: OsdId,
    pub acting: Vec<OsdId>,
    pub acting_primary: OsdId,
    pub last_change: Utime,
    pub last_active: Utime,
    pub last_clean: Utime,
    pub counts: PgCounts,
    /// Removed snapshots for which it keeps nothing any more, of those that the map has.
    pub trimmed: IntervalSet,
    /// How many it has yet to trim.
    pub to_trim: u64,
    /// When its copies were last compared, and what came of it.
    pub scrub: ScrubState,
}

/// What was done: counters, which only grow as long as the process lives that counts, or as much of it in a
/// second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub write_bytes: u64,
    pub recovered_objects: u64,
    pub recovered_bytes: u64,
}

impl Work {
    /// Each of the counters and its twin made one.
    pub fn each(self, other: Work, f: impl Fn(u64, u64) -> u64) -> Work {
        Work {
            reads: f(self.reads, other.reads),
            read_bytes: f(self.read_bytes, other.read_bytes),
            writes: f(self.writes, other.writes),
            write_bytes: f(self.write_bytes, other.write_bytes),
            recovered_objects: f(self.recovered_objects, other.recovered_objects),
            recovered_bytes: f(self.recovered_bytes, other.recovered_bytes),
        }
    }
    pub fn plus(self, other: Work) -> Work {
        self.each(other, u64::saturating_add)
    }
    /// What was done since the same OSD had counted so much. It counts from zero if it was started again.
    pub fn since(self, before: Work) -> Work {
        let is_same_life = self.each(before, u64::min) == before;
        if is_same_life { self.each(before, |now, then| now - then) } else { self }
    }
}

/// What is in a placement group and what was done with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PgCounts {
    pub objects: u64,
    pub clones: u64,
    pub bytes: u64,
    pub omap_keys: u64,
    pub omap_bytes: u64,
    /// Copies that should exist: objects times the pool's size.
    pub copies: u64,
    /// Copies that are missing on members of the acting set, or for want of members.
    pub degraded: u64,
    pub misplaced: u64,
    pub missing_on_primary: u64,
    pub unfound: u64,
    pub work: Work,
    /// Wrong copies that the last look found, by metadata and by content, and those made right again.
    pub shallow_errors: u64,
    pub deep_errors: u64,
    pub repaired: u64,
}

/// State bits of a placement group, Ceph's `PG_STATE_*`.
pub mod pg_state {
    pub const CREATING: u64 = 1 << 0;
    pub const ACTIVE: u64 = 1 << 1;
    pub const CLEAN: u64 = 1 << 2;
    pub const DOWN: u64 = 1 << 4;
    pub const RECOVERY_UNFOUND: u64 = 1 << 5;
    pub const BACKFILL_UNFOUND: u64 = 1 << 6;
    pub const PREMERGE: u64 = 1 << 7;
    pub const SCRUBBING: u64 = 1 << 8;
    pub const DEGRADED: u64 = 1 << 10;
    pub const INCONSISTENT: u64 = 1 << 11;
    pub const PEERING: u64 = 1 << 12;
    pub const REPAIR: u64 = 1 << 13;
    pub const RECOVERING: u64 = 1 << 14;
    pub const BACKFILL_WAIT: u64 = 1 << 15;
    pub const INCOMPLETE: u64 = 1 << 16;
    pub const STALE: u64 = 1 << 17;
    pub const REMAPPED: u64 = 1 << 18;
    pub const DEEP_SCRUB: u64 = 1 << 19;
    pub const BACKFILLING: u64 = 1 << 20;
    pub const BACKFILL_TOOFULL: u64 = 1 << 21;
    pub const RECOVERY_WAIT: u64 = 1 << 22;
    pub const UNDERSIZED: u64 = 1 << 23;
    pub const ACTIVATING: u64 = 1 << 24;
    pub const PEERED: u64 = 1 << 25;
    pub const SNAPTRIM: u64 = 1 << 26;
    pub const SNAPTRIM_WAIT: u64 = 1 << 27;
    /// These two are Ceph's alone: no group is in them, but scripts ask for those that are.
    pub const RECOVERY_TOOFULL: u64 = 1 << 28;
    pub const SNAPTRIM_ERROR: u64 = 1 << 29;
    pub const FORCED_RECOVERY: u64 = 1 << 30;
    pub const FORCED_BACKFILL: u64 = 1 << 31;
    pub const FAILED_REPAIR: u64 = 1 << 32;

    /// As Ceph joins them: `active+undersized+degraded`; `unknown` when no bit is set.
    pub fn name(state: u64) -> String {
        // The order is the one in which Ceph prints them.
        const NAMES: [(u64, &str); 31] = [
            (STALE, "stale"),
            (CREATING, "creating"),
            (ACTIVE, "active"),
            (ACTIVATING, "activating"),
            (CLEAN, "clean"),
            (RECOVERY_WAIT, "recovery_wait"),
            (RECOVERY_TOOFULL, "recovery_toofull"),
            (RECOVERING, "recovering"),
            (FORCED_RECOVERY, "forced_recovery"),
            (DOWN, "down"),
            (RECOVERY_UNFOUND, "recovery_unfound"),
            (BACKFILL_UNFOUND, "backfill_unfound"),
            (UNDERSIZED, "undersized"),
            (DEGRADED, "degraded"),
            (REMAPPED, "remapped"),
            (PREMERGE, "premerge"),
            (SCRUBBING, "scrubbing"),
            (DEEP_SCRUB, "deep"),
            (INCONSISTENT, "inconsistent"),
            (PEERING, "peering"),
            (REPAIR, "repair"),
            (BACKFILL_WAIT, "backfill_wait"),
            (BACKFILLING, "backfilling"),
            (FORCED_BACKFILL, "forced_backfill"),
            (BACKFILL_TOOFULL, "backfill_toofull"),
            (INCOMPLETE, "incomplete"),
            (PEERED, "peered"),
            (SNAPTRIM, "snaptrim"),
            (SNAPTRIM_WAIT, "snaptrim_wait"),
            (SNAPTRIM_ERROR, "snaptrim_error"),
            (FAILED_REPAIR, "failed_repair"),
        ];
        let set: Vec<&str> =
            NAMES.iter().filter(|(bit, _)| state & bit != 0).map(|(_, name)| *name).collect();
        if set.is_empty() { "unknown".to_string() } else { set.join("+") }
    }
}

versioned_fields!(
    OsdBoot,
    "osd boot",
    osd,
    uuid,
    public,
    cluster,
    newest_map,
    capacity,
    device_class,
    host,
    metadata; later formats
);
versioned_fields!(OsdFailure, "osd failure", target, target_addrs, epoch, evidence);
versioned_fields!(PgRecord, "pg record", interval, acting);
versioned_fields!(PgWish, "pg wish", pg, record, acting);
versioned_fields!(
    MergeReady,
    "merge ready",
    epoch,
    source,
    source_interval,
    source_version,
    target_interval,
    target_version
);
versioned_fields!(
    OsdReport,
    "osd report",
    osd,
    epoch,
    space,
    commit_latency_us,
    pgs,
    num_objects,
    seq;
    later pools,
    slow,
    kept,
    counters,
    format
);
versioned_fields!(PoolSpace, "pool space", allocated, stored, omap);
versioned_fields!(SlowOps, "slow ops", count, oldest_secs);
versioned_fields!(OsdSpace, "osd space", total, available, allocated, stored, omap, internal);
versioned_fields!(
    PgReport,
    "pg report",
    pg,
    state,
    waiting_for,
    interval,
    last_update,
    last_complete,
    log_tail,
    log_entries,
    up,
    up_primary,
    acting,
    acting_primary,
    last_change,
    last_active,
    last_clean,
    counts,
    trimmed,
    to_trim,
    scrub,
);
versioned_fields!(
    PgCounts,
    "pg counts",
    objects,
    clones,
    bytes,
    omap_keys,
    omap_bytes,
    copies,
    degraded,
    misplaced,
    missing_on_primary,
    unfound,
    work,
    shallow_errors,
    deep_errors,
    repaired,
);

// No envelope of its own: it is a part of the counts.
impl Encode for Work {
    fn encode(&self, out: &mut Vec<u8>) {
        let Work { reads, read_bytes, writes, write_bytes, recovered_objects, recovered_bytes } = self;
        let all = [reads, read_bytes, writes, write_bytes, recovered_objects, recovered_bytes];
        all.into_iter().for_each(|count| count.encode(out));
    }
}
impl Decode for Work {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Work {
            reads: Decode::decode(r)?,
            read_bytes: Decode::decode(r)?,
            writes: Decode::decode(r)?,
            write_bytes: Decode::decode(r)?,
            recovered_objects: Decode::decode(r)?,
            recovered_bytes: Decode::decode(r)?,
        })
    }
}

// No envelope of its own: it is a part of the report.
impl Encode for CounterReport {
    fn encode(&self, out: &mut Vec<u8>) {
        let (kind, value, count) = match self.value {
            Reading::Counter(n) => (0_u8, n, 0),
            Reading::Gauge(n) => (1, n, 0),
            Reading::Mean { count, nanos } => (2, nanos, count),
        };
        versioned(out, 1, 1, |out| {
            self.set.encode(out);
            self.name.encode(out);
            kind.encode(out);
            value.encode(out);
            count.encode(out);
        });
    }
}
impl Decode for CounterReport {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("counter report", 1, |r, _| {
            let (set, name) = (Decode::decode(r)?, Decode::decode(r)?);
            let (kind, value, count) = (u8::decode(r)?, u64::decode(r)?, u64::decode(r)?);
            let value = match kind {
                0 => Reading::Counter(value),
                1 => Reading::Gauge(value),
                2 => Reading::Mean { count, nanos: value },
                _ => return Err(DecodeError::BadValue { what: "counter", value: kind.into() }),
            };
            Ok(CounterReport { set, name, value })
        })
    }
}

impl Encode for FailureEvidence {
    fn encode(&self, out: &mut Vec<u8>) {
        let (kind, millis) = match *self {
            FailureEvidence::Refused => (0_u8, 0),
            FailureEvidence::Silent { millis } => (1, millis),
            FailureEvidence::Recovered => (2, 0),
            FailureEvidence::SilentOn { network: Network::Public, millis } => (3, millis),
            FailureEvidence::SilentOn { network: Network::Cluster, millis } => (4, millis),
        };
        kind.encode(out);
        millis.encode(out);
    }
}
impl Decode for FailureEvidence {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (kind, millis) = (u8::decode(r)?, u32::decode(r)?);
        match kind {
            0 => Ok(FailureEvidence::Refused),
            1 => Ok(FailureEvidence::Silent { millis }),
            2 => Ok(FailureEvidence::Recovered),
            3 => Ok(FailureEvidence::SilentOn { network: Network::Public, millis }),
            4 => Ok(FailureEvidence::SilentOn { network: Network::Cluster, millis }),
            _ => Err(DecodeError::BadValue { what: "failure evidence", value: kind.into() }),
        }
    }
}

impl Encode for DaemonMsg {
    fn encode(&self, out: &mut Vec<u8>) {
        versioned(out, 1, 1, |out| match self {
            DaemonMsg::Boot(boot) => {
                out.push(0);
                boot.encode(out);
            }
            DaemonMsg::MarkMeDown { osd, epoch, is_over } => {
                out.push(1);
                osd.encode(out);
                epoch.encode(out);
                is_over.encode(out);
            }
            DaemonMsg::Failure(failure) => {
                out.push(2);
                failure.encode(out);
            }
            DaemonMsg::Report(report) => {
                out.push(3);
                report.encode(out);
            }
            DaemonMsg::RecordQuery { epoch, pgs } => {
                out.push(4);
                epoch.encode(out);
                pgs.encode(out);
            }
            DaemonMsg::Records { epoch, records } => {
                out.push(5);
                epoch.encode(out);
                records.encode(out);
            }
            DaemonMsg::Activate { epoch, records } => {
                out.push(6);
                epoch.encode(out);
                records.encode(out);
            }
            DaemonMsg::Activated { epoch, results } => {
                out.push(7);
                epoch.encode(out);
                (results.len() as u32).encode(out);
                for (pg, interval, accepted) in results {
                    pg.encode(out);
                    interval.encode(out);
                    accepted.encode(out);
                }
            }
            DaemonMsg::Scrub { pgs, deep, repair } => {
                out.push(9);
                pgs.encode(out);
                deep.encode(out);
                repair.encode(out);
            }
            DaemonMsg::Rearrange(wishes) => {
                out.push(10);
                wishes.encode(out);
            }
            DaemonMsg::ClusterLog { level, stamp, text } => {
                out.push(8);
                level.encode(out);
                stamp.encode(out);
                text.encode(out);
            }
            DaemonMsg::MergeReady(ready) => {
                out.push(11);
                ready.encode(out);
            }
            DaemonMsg::Force { pgs, backfill, on } => {
                out.push(12);
                pgs.encode(out);
                backfill.encode(out);
                on.encode(out);
            }
            DaemonMsg::CountImages { seconds } => {
                out.push(13);
                seconds.encode(out);
            }
            DaemonMsg::Images(work) => {
                out.push(14);
                work.encode(out);
            }
            DaemonMsg::Keys { sealed } => {
                out.push(15);
                sealed.encode(out);
            }
            DaemonMsg::Format { format } => {
                out.push(16);
                format.encode(out);
            }
            DaemonMsg::Latencies(latencies) => {
                out.push(17);
                latencies.encode(out);
            }
        });
    }
}
impl Decode for DaemonMsg {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("daemon message", 1, |r, _| {
            Ok(match u8::decode(r)? {
                0 => DaemonMsg::Boot(Decode::decode(r)?),
                1 => DaemonMsg::MarkMeDown {
                    osd: Decode::decode(r)?,
                    epoch: Decode::decode(r)?,
                    // Older programs do not say.
                    is_over: !r.is_empty() && bool::decode(r)?,
                },
                2 => DaemonMsg::Failure(Decode::decode(r)?),
                3 => DaemonMsg::Report(Decode::decode(r)?),
                4 => DaemonMsg::RecordQuery { epoch: Decode::decode(r)?, pgs: Decode::decode(r)? },
                5 => DaemonMsg::Records { epoch: Decode::decode(r)?, records: Decode::decode(r)? },
                6 => DaemonMsg::Activate { epoch: Decode::decode(r)?, records: Decode::decode(r)? },
                7 => DaemonMsg::Activated {
                    epoch: Decode::decode(r)?,
                    results: r.list(|r| Ok((PgId::decode(r)?, Epoch::decode(r)?, bool::decode(r)?)))?,
                },
                8 => DaemonMsg::ClusterLog {
                    level: Decode::decode(r)?,
                    stamp: Decode::decode(r)?,
                    text: Decode::decode(r)?,
                },
                9 => DaemonMsg::Scrub {
                    pgs: Decode::decode(r)?,
                    deep: Decode::decode(r)?,
                    repair: Decode::decode(r)?,
                },
                10 => DaemonMsg::Rearrange(Decode::decode(r)?),
                11 => DaemonMsg::MergeReady(Decode::decode(r)?),
                12 => DaemonMsg::Force {
                    pgs: Decode::decode(r)?,
                    backfill: Decode::decode(r)?,
                    on: Decode::decode(r)?,
                },
                13 => DaemonMsg::CountImages { seconds: Decode::decode(r)? },
                14 => DaemonMsg::Images(Decode::decode(r)?),
                15 => DaemonMsg::Keys { sealed: Decode::decode(r)? },
                16 => DaemonMsg::Format { format: Decode::decode(r)? },
                17 => DaemonMsg::Latencies(Decode::decode(r)?),
                value => return Err(DecodeError::BadValue { what: "daemon message", value: value.into() }),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{ImageCounts, ImageKey};
    use nacre_base::PoolId;
    use nacre_wire::{from_slice, to_vec};

    #[test]
    fn every_message_reads_back() {
        let pg = PgId { pool: PoolId(1), seed: 2 };
        let record = PgRecord { interval: Epoch(7), acting: vec![OsdId(0), OsdId(2)] };
        let report = PgReport {
            pg,
            state: pg_state::ACTIVE | pg_state::CLEAN,
            waiting_for: String::new(),
            interval: Epoch(7),
            last_update: Version::new(Epoch(7), 9),
            last_complete: Version::new(Epoch(7), 8),
            log_tail: Version::ZERO,
            log_entries: 9,
            up: vec![OsdId(0)],
            up_primary: OsdId(0),
            acting: vec![OsdId(0)],
            acting_primary: OsdId(0),
            last_change: Utime { sec: 1, nsec: 2 },
            last_active: Utime::ZERO,
            last_clean: Utime::ZERO,
            counts: PgCounts { objects: 3, ..PgCounts::default() },
            trimmed: std::iter::once(2..4).collect(),
            to_trim: 1,
            scrub: ScrubState { shallow_errors: 2, ..ScrubState::default() },
        };
        let messages = [
            DaemonMsg::Boot(OsdBoot {
                osd: OsdId(1),
                uuid: [7; 16],
                public: AddrVec::default(),
                cluster: AddrVec::default(),
                newest_map: Epoch(3),
                capacity: 1 << 40,
                device_class: "ssd".into(),
                host: "h".into(),
                metadata: BTreeMap::from([("a".into(), "b".into())]),
                formats: Some(Formats::ALL),
            }),
            DaemonMsg::Format { format: 2 },
            DaemonMsg::Latencies(Latencies::default()),
            DaemonMsg::MarkMeDown { osd: OsdId(1), epoch: Epoch(2), is_over: true },
            DaemonMsg::MergeReady(MergeReady {
                epoch: Epoch(9),
                source: pg,
                source_interval: Epoch(7),
                source_version: Version::new(Epoch(7), 9),
                target_interval: Epoch(8),
                target_version: Version::ZERO,
            }),
            DaemonMsg::Failure(OsdFailure {
                target: OsdId(2),
                target_addrs: AddrVec::default(),
                epoch: Epoch(4),
                evidence: FailureEvidence::Silent { millis: 1200 },
            }),
            DaemonMsg::Report(OsdReport {
                osd: Some(OsdId(1)),
                pgs: vec![report],
                pools: Some(vec![(PoolId(2), PoolSpace { allocated: 4096, stored: 10, omap: 7 })]),
                slow: SlowOps { count: 2, oldest_secs: 31 },
                counters: [Reading::Counter(7), Reading::Gauge(8), Reading::Mean { count: 2, nanos: 9 }]
                    .map(|value| CounterReport { set: "osd".into(), name: "op".into(), value })
                    .into(),
                ..OsdReport::default()
            }),
            DaemonMsg::Failure(OsdFailure {
                target: OsdId(2),
                target_addrs: AddrVec::default(),
                epoch: Epoch(4),
                evidence: FailureEvidence::SilentOn { network: Network::Cluster, millis: 1200 },
            }),
            DaemonMsg::RecordQuery { epoch: Epoch(5), pgs: vec![pg] },
            DaemonMsg::Records { epoch: Epoch(5), records: vec![(pg, None), (pg, Some(record.clone()))] },
            DaemonMsg::Activate { epoch: Epoch(5), records: vec![(pg, record)] },
            DaemonMsg::Activated { epoch: Epoch(5), results: vec![(pg, Epoch(5), true)] },
            DaemonMsg::Scrub { pgs: vec![pg], deep: true, repair: false },
            DaemonMsg::Force { pgs: vec![pg], backfill: true, on: false },
            DaemonMsg::CountImages { seconds: 60 },
            DaemonMsg::Keys { sealed: Bytes::from_static(b"secret") },
            DaemonMsg::Images(vec![ImageWork {
                image: ImageKey { pool: PoolId(3), namespace: "n".into(), id: "1f".into() },
                counts: ImageCounts { writes: 1, write_bytes: 4096, ..ImageCounts::default() },
            }]),
            DaemonMsg::ClusterLog { level: 1, stamp: Utime::ZERO, text: "x".into() },
        ];
        for message in messages {
            assert_eq!(from_slice::<DaemonMsg>(&to_vec(&message)), Ok(message));
        }
    }

    #[test]
    fn states_are_named_as_ceph_names_them() {
        assert_eq!(pg_state::name(pg_state::CLEAN | pg_state::ACTIVE), "active+clean");
        let degraded = pg_state::ACTIVE | pg_state::UNDERSIZED | pg_state::DEGRADED;
        assert_eq!(pg_state::name(degraded), "active+undersized+degraded");
        assert_eq!(pg_state::name(0), "unknown");
    }
}
