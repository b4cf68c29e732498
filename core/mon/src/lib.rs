//! The monitor: keeps the maps, answers commands, notices who is gone.
//!
//! A `Mon` decides and never does. What the monitors agree on is `state::State`, changed only by
//! `state::Batch`es that come out of the Raft log. Start with `mon::Mon::handle`: requests that
//! change something wait in a queue, become one batch (`draft::Draft`) as soon as the last one is
//! committed, and are answered when theirs is. `sessions` tells subscribers, `osds` takes what OSDs
//! say, `commands` is everything the `ceph` tool can ask for. The active manager's part, towards
//! clients, is played here too: its commands are in the same table.

// The JSON shapes of Ceph have many fields.
#![recursion_limit = "256"]

mod access;
mod auth;
mod autoscale;
mod balance;
mod bootstrap;
mod commands;
mod crush_edit;
mod draft;
mod failures;
mod health;
mod image_tasks;
mod image_work;
mod membership;
mod memory;
mod merges;
mod mon;
mod options;
mod osd_sessions;
mod osds;
mod persist;
mod present;
mod progress;
mod restarts;
mod services;
mod sessions;
mod state;
mod stats;
mod temp;

pub use image_tasks::{ImageAnswer, ImageCommand};
pub use image_work::ImageFigures;
pub use membership::MonChange;
pub use memory::Memory;
pub use mon::{Member, Mon, MonAuth, MonConfig};
pub use persist::alone;
pub use state::{Batch, ConfigWho, Genesis, Rejected, State};

#[cfg(test)]
mod tests;
