//! The object storage daemon as a machine: `Osd` > `Shard` > `Pg` > `Peering`.
//!
//! `osd` speaks to monitors, clients and other OSDs, and routes; `shard` owns placement groups; `pg`
//! is one of them: ordering, replication, peering, recovery; `ops` is what operations do to one
//! object, a pure function.
//!
//! Not here yet, with a place to go: erasure coding (`pg::backend`).

mod backoffs;
mod bench;
mod client_caps;
mod commands;
mod copier;
mod counters;
mod heartbeat;
mod holdings;
mod image_stats;
mod maps;
mod object_info;
mod op_tracker;
mod ops;
mod options;
mod osd;
mod own_placements;
mod peers;
mod pg;
mod scrub_scheduler;
mod shard;
mod shard_view;
mod snap_index;
mod snap_set;
mod store_losses;
#[cfg(test)]
mod tests;
mod throttle;

pub use osd::{MEMORY, Osd, OsdConfig};

/// What OSDs keep on disk, for tools that inspect or repair a store without running an OSD.
pub mod stored {
    pub use crate::holdings::{Holding, holdings};
    pub use crate::maps::{MapError, Maps};
    pub use crate::object_info::{ObjectInfo, Watcher};
    pub use crate::pg::mark_complete::{MarkedComplete, NotMarked, incomplete_pgs, mark_complete};
    pub use crate::pg::record::Record;
    pub use crate::pg::scrub::findings::{load_state as scrub_state, walk_findings};
    pub use crate::snap_set::{CloneInfo, SnapSet};
}
