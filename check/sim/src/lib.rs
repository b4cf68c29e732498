//! A whole cluster in one thread with virtual time: simulated network, disks, clocks and faults, and
//! the production code of monitors, OSDs and clients in between.
//!
//! A seed decides everything, so that a run can be had again. `world` carries out what machines want,
//! `network` and `node` are what it is made of; `cluster` is how scripts speak to it; `scenario` is
//! the random run of one seed, with `workload` and `history` telling whether what clients saw can be.

mod cluster;
mod history;
mod network;
mod node;
mod scenario;
mod trace;
mod workload;
mod world;

pub use cluster::{Cluster, Seed};
pub use scenario::{Outcome, run_seed};
pub use world::NodeId;
