//! What the monitors publish: the members of the cluster, and where data is.
//!
//! `OsdMap` is the one that matters: pools, OSDs and CRUSH, from which all clients and daemons compute the
//! same placement (`placement`). It changes one epoch at a time, by an `Incremental`. `MonMap` and `MgrMap`
//! name the daemons to connect to, `FsMap` the file systems and their metadata servers.

mod blocklist;
mod flags;
mod fsmap;
mod incremental;
mod mdsmap;
mod mgrmap;
mod monmap;
mod osdmap;
mod placement;
mod pool;
mod shards;
mod split;

pub use flags::{map_flags, osd_state, pool_flags, release};
pub use fsmap::{Filesystem, FsMap};
pub use incremental::{ApplyError, Incremental};
pub use mdsmap::{
    CompatSet, FeatureSet, FsSettings, MdsGid, MdsInfo, MdsMap, MdsRank, MdsState, NO_FILE_SYSTEM, NO_RANK,
    Ranks, mdsmap_flags,
};
pub use mgrmap::{MgrMap, MgrModule, MgrModuleOption, MgrStandby};
pub use monmap::{AuthCiphers, MonInfo, MonMap};
pub use osdmap::{FullRatios, MAX_OSDS, Osd, OsdInfo, OsdMap, OsdXinfo};
pub use placement::{UpActing, is_new_interval};
pub use pool::{Pool, PoolKind, PoolMerge, PoolOption, PoolSnap};
pub use shards::shard_members;
pub use split::{ancestor, is_merge_source, is_merge_target, is_split, pg_mask, split_children, stable_mod};

/// A cluster's or a daemon's UUID. Ceph: `uuid_d`.
pub type Uuid = [u8; 16];
