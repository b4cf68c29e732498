//! What `df` and `pool stats` are made of.

use nacre_wire::{Decode, DecodeError, Encode, Reader, versioned};

/// Defines a struct of counters that goes over the wire field by field, in the order written.
macro_rules! counters {
    ($(#[$doc:meta])* $name:ident, $ceph:literal, v $version:literal, compat $compat:literal,
     { $($(#[$field_doc:meta])* $field:ident: $t:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $t,)*
        }
        impl Encode for $name {
            fn encode(&self, out: &mut Vec<u8>) {
                versioned(out, $version, $compat, |out| {
                    $(self.$field.encode(out);)*
                });
            }
        }
        impl Decode for $name {
            fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
                r.versioned($ceph, $version, |r, v| {
                    if v < $version {
                        return Err(DecodeError::BadValue { what: concat!($ceph, " version"), value: v.into() });
                    }
                    Ok($name { $($field: Decode::decode(r)?),* })
                })
            }
        }
    };
}

counters! {
    /// What is in a pool or placement group, and what was done to it since it exists.
    /// Ceph: `object_stat_sum_t` v20, readable since v14.
    ObjectStatSum, "object_stat_sum_t", v 20, compat 14, {
        num_bytes: i64,
        num_objects: i64,
        num_object_clones: i64,
        /// Copies that should exist: objects times the pool's size.
        num_object_copies: i64,
        num_objects_missing_on_primary: i64,
        num_objects_degraded: i64,
        num_objects_unfound: i64,
        num_rd: i64,
        num_rd_kb: i64,
        num_wr: i64,
        num_wr_kb: i64,
        num_scrub_errors: i64,
        num_objects_recovered: i64,
        num_bytes_recovered: i64,
        num_keys_recovered: i64,
        num_shallow_scrub_errors: i64,
        num_deep_scrub_errors: i64,
        num_objects_dirty: i64,
        num_whiteouts: i64,
        num_objects_omap: i64,
        num_objects_hit_set_archive: i64,
        num_objects_misplaced: i64,
        num_bytes_hit_set_archive: i64,
        num_flush: i64,
        num_flush_kb: i64,
        num_evict: i64,
        num_evict_kb: i64,
        num_promote: i64,
        num_flush_mode_high: i32,
        num_flush_mode_low: i32,
        num_evict_mode_some: i32,
        num_evict_mode_full: i32,
        num_objects_pinned: i64,
        num_objects_missing: i64,
        num_legacy_snapsets: i64,
        num_large_omap_objects: i64,
        num_objects_manifest: i64,
        num_omap_bytes: i64,
        num_omap_keys: i64,
        num_objects_repaired: i64,
    }
}

counters! {
    /// Space, in bytes, of a store or of a pool's share of the stores. Ceph: `store_statfs_t` v1.
    StoreStatfs, "store_statfs_t", v 1, compat 1, {
        total: i64,
        available: i64,
        internally_reserved: i64,
        allocated: i64,
        data_stored: i64,
        data_compressed: i64,
        data_compressed_allocated: i64,
        data_compressed_original: i64,
        omap_allocated: i64,
        internal_metadata: i64,
    }
}

/// One pool. Ceph: `pool_stat_t` v7, readable since v5.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStat {
    pub sum: ObjectStatSum,
    pub log_size: i64,
    pub ondisk_log_size: i64,
    /// Sums over the pool's placement groups of how many OSDs are up and acting.
    pub up: i32,
    pub acting: i32,
    /// Over all OSDs. Clients use it only where `num_store_stats` and the message's `per_pool`
    /// say that it was counted by pool.
    pub store: StoreStatfs,
    pub num_store_stats: i32,
}

impl Encode for PoolStat {
    fn encode(&self, out: &mut Vec<u8>) {
        versioned(out, 7, 5, |out| {
            // `object_stat_collection_t`: the sum and a map by category, empty since long ago.
            versioned(out, 2, 2, |out| {
                self.sum.encode(out);
                0_u32.encode(out);
            });
            self.log_size.encode(out);
            self.ondisk_log_size.encode(out);
            self.up.encode(out);
            self.acting.encode(out);
            self.store.encode(out);
            self.num_store_stats.encode(out);
        });
    }
}
impl Decode for PoolStat {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("pool_stat_t", 7, |r, v| {
            if v < 7 {
                return Err(DecodeError::BadValue { what: "pool_stat_t version", value: v.into() });
            }
            Ok(PoolStat {
                sum: r.versioned("object_stat_collection_t", 2, |r, _| ObjectStatSum::decode(r))?,
                log_size: Decode::decode(r)?,
                ondisk_log_size: Decode::decode(r)?,
                up: Decode::decode(r)?,
                acting: Decode::decode(r)?,
                store: Decode::decode(r)?,
                num_store_stats: Decode::decode(r)?,
            })
        })
    }
}
