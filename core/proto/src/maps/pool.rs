//! A pool: how many copies or chunks of what, in how many placement groups, by which rule.

use super::{ancestor, pg_mask, pool_flags, stable_mod};
use bytes::Bytes;
use nacre_base::{Epoch, IntervalSet, Name, PgId, PoolId, SnapId, Utime, Version};
use nacre_wire::{Decode, DecodeError, Encode, Reader, versioned};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PoolKind {
    Replicated = 1,
    Erasure = 3,
}

/// Ceph: `pg_pool_t` v29, readable since v5.
///
/// Fields that only cache tiering uses are kept, so that a map read from a real cluster can be
/// written again; nothing in Nacre examines them.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    pub kind: PoolKind,
    /// Copies, or data and coding chunks together.
    pub size: u8,
    /// Fewer than this many in the acting set: no I/O.
    pub min_size: u8,
    pub crush_rule: u8,
    /// 2: rjenkins, the only one in use.
    pub object_hash: u8,
    pub pg_num: u32,
    pub pgp_num: u32,
    /// Where `pg_num` is going, as far as the user is concerned.
    pub pg_num_target: u32,
    pub pgp_num_target: u32,
    /// Below `pg_num` while groups get ready to merge.
    pub pg_num_pending: u32,
    pub last_change: Epoch,
    pub snap_seq: SnapId,
    pub snap_epoch: Epoch,
    pub snaps: BTreeMap<SnapId, PoolSnap>,
    /// Snapshots removed before octopus; since then `OsdMap::removed_snaps_queue`.
    pub removed_snaps: IntervalSet,
    /// `pool_flags`
    pub flags: u64,
    /// Zero: no quota.
    pub quota_max_bytes: u64,
    pub quota_max_objects: u64,
    pub tiers: BTreeSet<u64>,
    pub tier_of: i64,
    pub cache_mode: u8,
    pub read_tier: i64,
    pub write_tier: i64,
    pub properties: BTreeMap<String, String>,
    /// The content of `HitSet::Params`: one zero byte for "none".
    pub hit_set_params: Bytes,
    pub hit_set_period: u32,
    pub hit_set_count: u32,
    /// Data bytes in one stripe of an erasure-coded pool, else zero.
    pub stripe_width: u32,
    pub target_max_bytes: u64,
    pub target_max_objects: u64,
    pub cache_target_dirty_ratio_micro: u32,
    pub cache_target_dirty_high_ratio_micro: u32,
    pub cache_target_full_ratio_micro: u32,
    pub cache_min_flush_age: u32,
    pub cache_min_evict_age: u32,
    pub erasure_code_profile: String,
    /// Operations sent before this epoch must be sent again: for clients by their age.
    pub last_force_op_resend: Epoch,
    pub last_force_op_resend_prenautilus: Epoch,
    pub last_force_op_resend_preluminous: Epoch,
    pub min_read_recency_for_promote: i32,
    pub min_write_recency_for_promote: i32,
    pub expected_num_objects: u64,
    pub use_gmt_hitset: bool,
    pub fast_read: bool,
    pub hit_set_grade_decay_rate: u32,
    pub hit_set_search_last_n: u32,
    /// By Ceph's number for the option, see the constants in `PoolOption`.
    pub options: BTreeMap<u32, PoolOption>,
    /// Application name (`rbd`, `cephfs`, ...) to its own keys and values.
    pub applications: BTreeMap<String, BTreeMap<String, String>>,
    pub create_time: Utime,
    /// 0 off, 1 warn, 2 on.
    pub autoscale_mode: u8,
    pub last_merge: PoolMerge,
}

/// A snapshot of a whole pool. Ceph: `pool_snap_info_t` v2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSnap {
    pub id: SnapId,
    pub stamp: Utime,
    pub name: Name,
}

/// Ceph: a value in `pool_opts_t`.
#[derive(Clone, Debug, PartialEq)]
pub enum PoolOption {
    Text(String),
    Int(i64),
    Float(f64),
}

impl PoolOption {
    pub const RECOVERY_PRIORITY: u32 = 3;
    pub const PG_NUM_MIN: u32 = 15;
    pub const TARGET_SIZE_BYTES: u32 = 16;
    pub const TARGET_SIZE_RATIO: u32 = 17;
    pub const PG_AUTOSCALE_BIAS: u32 = 18;
    pub const PG_NUM_MAX: u32 = 23;
}

/// How the last merge of placement groups began. Ceph: `pg_merge_meta_t` v1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolMerge {
    pub source: PgId,
    pub ready_epoch: Epoch,
    pub last_epoch_started: Epoch,
    pub last_epoch_clean: Epoch,
    pub source_version: Version,
    pub target_version: Version,
}

impl PoolMerge {
    /// Where the log of the group begins that came out of it: after all that either half ever wrote.
    pub fn version(&self) -> Version {
        let newest = self.source_version.version.max(self.target_version.version);
        Version::new(self.ready_epoch, newest + 1)
    }
}

impl Pool {
    /// A pool of full copies, as a fresh cluster makes it.
    pub fn replicated(size: u8, min_size: u8, pg_num: u32, crush_rule: u8, now: Utime) -> Pool {
        assert!(pg_num > 0, "a pool has placement groups");
        Pool {
            kind: PoolKind::Replicated,
            size,
            min_size,
            crush_rule,
            object_hash: 2,
            pg_num,
            pgp_num: pg_num,
            pg_num_target: pg_num,
            pgp_num_target: pg_num,
            pg_num_pending: pg_num,
            last_change: Epoch(0),
            snap_seq: SnapId(0),
            snap_epoch: Epoch(0),
            snaps: BTreeMap::new(),
            removed_snaps: IntervalSet::new(),
            flags: pool_flags::HASHPSPOOL,
            quota_max_bytes: 0,
            quota_max_objects: 0,
            tiers: BTreeSet::new(),
            tier_of: -1,
            cache_mode: 0,
            read_tier: -1,
            write_tier: -1,
            properties: BTreeMap::new(),
            hit_set_params: Bytes::from_static(&[0]),
            hit_set_period: 0,
            hit_set_count: 0,
            stripe_width: 0,
            target_max_bytes: 0,
            target_max_objects: 0,
            cache_target_dirty_ratio_micro: 400_000,
            cache_target_dirty_high_ratio_micro: 600_000,
            cache_target_full_ratio_micro: 800_000,
            cache_min_flush_age: 0,
            cache_min_evict_age: 0,
            erasure_code_profile: String::new(),
            last_force_op_resend: Epoch(0),
            last_force_op_resend_prenautilus: Epoch(0),
            last_force_op_resend_preluminous: Epoch(0),
            min_read_recency_for_promote: 0,
            min_write_recency_for_promote: 0,
            expected_num_objects: 0,
            use_gmt_hitset: true,
            fast_read: false,
            hit_set_grade_decay_rate: 0,
            hit_set_search_last_n: 0,
            options: BTreeMap::new(),
            applications: BTreeMap::new(),
            create_time: now,
            autoscale_mode: 0,
            last_merge: PoolMerge {
                source: PgId { pool: PoolId(0), seed: 0 },
                ready_epoch: Epoch(0),
                last_epoch_started: Epoch(0),
                last_epoch_clean: Epoch(0),
                source_version: Version::ZERO,
                target_version: Version::ZERO,
            },
        }
    }
    /// A pool of `size` chunks, `stripe_width` data bytes to a stripe.
    pub fn erasure(
        size: u8,
        min_size: u8,
        pg_num: u32,
        crush_rule: u8,
        profile: &str,
        stripe_width: u32,
        now: Utime,
    ) -> Pool {
        Pool {
            kind: PoolKind::Erasure,
            erasure_code_profile: profile.to_string(),
            stripe_width,
            ..Pool::replicated(size, min_size, pg_num, crush_rule, now)
        }
    }

    pub fn has(&self, flag: u64) -> bool {
        self.flags & flag != 0
    }
    /// Whether each place in the acting set holds a chunk of its own, so that a hole must stay a hole.
    pub fn is_erasure(&self) -> bool {
        self.kind == PoolKind::Erasure
    }
    pub fn pg_num_mask(&self) -> u32 {
        pg_mask(self.pg_num)
    }
    pub fn pgp_num_mask(&self) -> u32 {
        pg_mask(self.pgp_num)
    }
    /// The placement group's seed for an object's hash. Ceph: `raw_pg_to_pg`.
    pub fn raw_pg_to_pg(&self, hash: u32) -> u32 {
        stable_mod(hash, self.pg_num)
    }
    /// The two groups that are to become one: that which ceases to be, and that which takes it in.
    pub fn merging(&self, id: PoolId) -> Option<(PgId, PgId)> {
        if self.pg_num_pending >= self.pg_num || self.pg_num < 2 {
            return None;
        }
        let source = PgId { pool: id, seed: self.pg_num - 1 };
        Some((source, ancestor(source, self.pg_num - 1)))
    }
    /// Makes these two one, in the map of `epoch`.
    pub fn merge(&mut self, how: PoolMerge, epoch: Epoch) {
        self.pg_num = how.source.seed;
        self.pgp_num = self.pgp_num.min(self.pg_num);
        self.pg_num_pending = self.pg_num;
        self.last_merge = how;
        self.resend_all(epoch);
    }
    /// Operations on their way may now belong to another group: clients of any age send them again.
    pub fn resend_all(&mut self, epoch: Epoch) {
        self.last_force_op_resend = epoch;
        self.last_force_op_resend_prenautilus = epoch;
        self.last_force_op_resend_preluminous = epoch;
    }
    /// The snapshot context that writes without one of their own get: newest first.
    pub fn snap_context(&self) -> (SnapId, Vec<SnapId>) {
        (self.snap_seq, self.snaps.keys().rev().copied().collect())
    }
}

impl Encode for Pool {
    fn encode(&self, out: &mut Vec<u8>) {
        versioned(out, 29, 5, |out| {
            (self.kind as u8).encode(out);
            self.size.encode(out);
            self.crush_rule.encode(out);
            self.object_hash.encode(out);
            self.pg_num.encode(out);
            self.pgp_num.encode(out);
            0_u64.encode(out); // localized pg_num and pgp_num
            self.last_change.encode(out);
            self.snap_seq.encode(out);
            self.snap_epoch.encode(out);
            self.snaps.encode(out);
            self.removed_snaps.encode(out);
            0_u64.encode(out); // owner
            self.flags.encode(out);
            0_u32.encode(out); // crash replay interval
            self.min_size.encode(out);
            self.quota_max_bytes.encode(out);
            self.quota_max_objects.encode(out);
            self.tiers.encode(out);
            self.tier_of.encode(out);
            self.cache_mode.encode(out);
            self.read_tier.encode(out);
            self.write_tier.encode(out);
            self.properties.encode(out);
            versioned(out, 1, 1, |out| out.extend_from_slice(&self.hit_set_params));
            self.hit_set_period.encode(out);
            self.hit_set_count.encode(out);
            self.stripe_width.encode(out);
            self.target_max_bytes.encode(out);
            self.target_max_objects.encode(out);
            self.cache_target_dirty_ratio_micro.encode(out);
            self.cache_target_full_ratio_micro.encode(out);
            self.cache_min_flush_age.encode(out);
            self.cache_min_evict_age.encode(out);
            self.erasure_code_profile.encode(out);
            self.last_force_op_resend_preluminous.encode(out);
            self.min_read_recency_for_promote.encode(out);
            self.expected_num_objects.encode(out);
            self.cache_target_dirty_high_ratio_micro.encode(out);
            self.min_write_recency_for_promote.encode(out);
            self.use_gmt_hitset.encode(out);
            self.fast_read.encode(out);
            self.hit_set_grade_decay_rate.encode(out);
            self.hit_set_search_last_n.encode(out);
            versioned(out, 2, 1, |out| self.options.encode(out));
            self.last_force_op_resend_prenautilus.encode(out);
            self.applications.encode(out);
            self.create_time.encode(out);
            self.pg_num_target.encode(out);
            self.pgp_num_target.encode(out);
            self.pg_num_pending.encode(out);
            0_u64.encode(out); // two epochs of the merge, before `last_merge` held them
            self.last_force_op_resend.encode(out);
            self.autoscale_mode.encode(out);
            self.last_merge.encode(out);
        });
    }
}

fn at_least_one(what: &'static str, n: u32) -> Result<u32, DecodeError> {
    if n == 0 { Err(DecodeError::BadValue { what, value: 0 }) } else { Ok(n) }
}

impl Decode for Pool {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("pg_pool_t", 29, |r, v| {
            if v < 29 {
                return Err(DecodeError::BadValue { what: "pg_pool_t version", value: v.into() });
            }
            let kind = match u8::decode(r)? {
                1 => PoolKind::Replicated,
                3 => PoolKind::Erasure,
                value => return Err(DecodeError::BadValue { what: "pool type", value: value.into() }),
            };
            let size = u8::decode(r)?;
            let crush_rule = u8::decode(r)?;
            let object_hash = u8::decode(r)?;
            let pg_num = at_least_one("pg_num", u32::decode(r)?)?;
            let pgp_num = at_least_one("pgp_num", u32::decode(r)?)?;
            let _localized = u64::decode(r)?;
            let last_change = Epoch::decode(r)?;
            let snap_seq = SnapId::decode(r)?;
            let snap_epoch = Epoch::decode(r)?;
            let snaps = BTreeMap::decode(r)?;
            let removed_snaps = IntervalSet::decode(r)?;
            let _owner = u64::decode(r)?;
            let flags = u64::decode(r)?;
            let _crash_replay_interval = u32::decode(r)?;
            let min_size = u8::decode(r)?;
            let quota_max_bytes = u64::decode(r)?;
            let quota_max_objects = u64::decode(r)?;
            let tiers = BTreeSet::decode(r)?;
            let tier_of = i64::decode(r)?;
            let cache_mode = u8::decode(r)?;
            let read_tier = i64::decode(r)?;
            let write_tier = i64::decode(r)?;
            let properties = BTreeMap::decode(r)?;
            let hit_set_params =
                r.versioned("HitSet::Params", 1, |r, _| Ok(Bytes::copy_from_slice(r.rest())))?;
            let hit_set_period = u32::decode(r)?;
            let hit_set_count = u32::decode(r)?;
            let stripe_width = u32::decode(r)?;
            let target_max_bytes = u64::decode(r)?;
            let target_max_objects = u64::decode(r)?;
            let cache_target_dirty_ratio_micro = u32::decode(r)?;
            let cache_target_full_ratio_micro = u32::decode(r)?;
            let cache_min_flush_age = u32::decode(r)?;
            let cache_min_evict_age = u32::decode(r)?;
            let erasure_code_profile = String::decode(r)?;
            let last_force_op_resend_preluminous = Epoch::decode(r)?;
            let min_read_recency_for_promote = i32::decode(r)?;
            let expected_num_objects = u64::decode(r)?;
            let cache_target_dirty_high_ratio_micro = u32::decode(r)?;
            let min_write_recency_for_promote = i32::decode(r)?;
            let use_gmt_hitset = bool::decode(r)?;
            let fast_read = bool::decode(r)?;
            let hit_set_grade_decay_rate = u32::decode(r)?;
            let hit_set_search_last_n = u32::decode(r)?;
            let options = r.versioned("pool_opts_t", 2, |r, _| BTreeMap::decode(r))?;
            let last_force_op_resend_prenautilus = Epoch::decode(r)?;
            let applications = BTreeMap::decode(r)?;
            let create_time = Utime::decode(r)?;
            let pg_num_target = u32::decode(r)?;
            let pgp_num_target = u32::decode(r)?;
            let pg_num_pending = u32::decode(r)?;
            let _old_merge_epochs = u64::decode(r)?;
            let last_force_op_resend = Epoch::decode(r)?;
            let autoscale_mode = u8::decode(r)?;
            let last_merge = PoolMerge::decode(r)?;
            Ok(Pool {
                kind,
                size,
                min_size,
                crush_rule,
                object_hash,
                pg_num,
                pgp_num,
                pg_num_target,
                pgp_num_target,
                pg_num_pending,
                last_change,
                snap_seq,
                snap_epoch,
                snaps,
                removed_snaps,
                flags,
                quota_max_bytes,
                quota_max_objects,
                tiers,
                tier_of,
                cache_mode,
                read_tier,
                write_tier,
                properties,
                hit_set_params,
                hit_set_period,
                hit_set_count,
                stripe_width,
                target_max_bytes,
                target_max_objects,
                cache_target_dirty_ratio_micro,
                cache_target_dirty_high_ratio_micro,
                cache_target_full_ratio_micro,
                cache_min_flush_age,
                cache_min_evict_age,
                erasure_code_profile,
                last_force_op_resend,
                last_force_op_resend_prenautilus,
                last_force_op_resend_preluminous,
                min_read_recency_for_promote,
                min_write_recency_for_promote,
                expected_num_objects,
                use_gmt_hitset,
                fast_read,
                hit_set_grade_decay_rate,
                hit_set_search_last_n,
                options,
                applications,
                create_time,
                autoscale_mode,
                last_merge,
            })
        })
    }
}

impl Encode for PoolSnap {
    fn encode(&self, out: &mut Vec<u8>) {
        versioned(out, 2, 2, |out| {
            self.id.encode(out);
            self.stamp.encode(out);
            self.name.encode(out);
        });
    }
}
impl Decode for PoolSnap {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("pool_snap_info_t", 2, |r, _| {
            let (id, stamp) = <(SnapId, Utime)>::decode(r)?;
            Ok(PoolSnap { id, stamp, name: Name::decode(r)? })
        })
    }
}

impl Encode for PoolOption {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            PoolOption::Text(text) => (0_u32, text).encode(out),
            PoolOption::Int(n) => (1_u32, n).encode(out),
            PoolOption::Float(x) => (2_u32, x).encode(out),
        }
    }
}
impl Decode for PoolOption {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match u32::decode(r)? {
            0 => PoolOption::Text(String::decode(r)?),
            1 => PoolOption::Int(i64::decode(r)?),
            2 => PoolOption::Float(f64::decode(r)?),
            value => return Err(DecodeError::BadValue { what: "pool option type", value: value.into() }),
        })
    }
}

impl Encode for PoolMerge {
    fn encode(&self, out: &mut Vec<u8>) {
        versioned(out, 1, 1, |out| {
            self.source.encode(out);
            self.ready_epoch.encode(out);
            self.last_epoch_started.encode(out);
            self.last_epoch_clean.encode(out);
            self.source_version.encode(out);
            self.target_version.encode(out);
        });
    }
}
impl Decode for PoolMerge {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("pg_merge_meta_t", 1, |r, _| {
            let source = PgId::decode(r)?;
            let ready_epoch = Epoch::decode(r)?;
            let last_epoch_started = Epoch::decode(r)?;
            let last_epoch_clean = Epoch::decode(r)?;
            let source_version = Version::decode(r)?;
            let target_version = Version::decode(r)?;
            Ok(PoolMerge {
                source,
                ready_epoch,
                last_epoch_started,
                last_epoch_clean,
                source_version,
                target_version,
            })
        })
    }
}
