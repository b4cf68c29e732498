//! The monitor: keeps the maps, answers commands, detects failed OSDs.
//!
//! A `Mon` decides and never does. What the monitors agree on is `state::State`, changed only by
//! `state::Batch`es that come out of the Raft log; both consist of the slices of `services`. Start with
//! `mon::Mon`: requests that change something wait in a queue, become one batch (`pending_txn::PendingTxn`)
//! as soon as the last one is committed, and are answered when theirs is. `sessions` publishes to
//! subscribers, `services::osdmap` takes what OSDs report, `commands` has everything that the `ceph` tool can
//! ask for. The active manager's part, towards clients, is played here too: its commands are in the same
//! table.

// The JSON shapes of Ceph have many fields.
#![recursion_limit = "256"]

mod bootstrap;
mod commands;
mod counters;
mod crush_edit;
mod metrics;
mod mon;
mod options;
mod output;
mod pending_txn;
mod persist;
mod recovery;
mod services;
mod sessions;
mod state;

pub use metrics::{MetricsAddrs, MetricsPage, Standby};
pub use mon::{Member, Mon, MonAuth, MonConfig};
pub use persist::alone;
pub use recovery::{
    Backup, CollectedHost, CollectedOsd, CollectedPg, Collection, Gaps, Recovery, RecoveryError,
};
pub use services::auth::AuthDelta;
pub use services::config::ConfigEntity;
pub use services::leader_hints::LeaderHints;
pub use services::mgr::image_commands::{ImageAnswer, ImageCommand};
pub use services::mgr::image_load::ImageFigures;
pub use services::monmap::MonChange;
pub use services::osdmap::maps::OsdMapDelta;
pub use state::{Batch, Genesis, Rejected, State};

#[cfg(test)]
mod tests;
