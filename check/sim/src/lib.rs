//! A whole cluster in one thread with virtual time: simulated network, disks, clocks and faults, and
//! the production code of monitors, OSDs and clients in between.
//!
//! A seed decides everything, so that a run can be had again. `world` carries out what machines want,
//! `due`, `network` and `node` are what it is made of; `cluster` is how scripts speak to it; `script` is
//! what happens in a run, drawn from a seed, `scenario` runs it, with `workload` and `history` telling
//! whether what clients saw can be; `shrink` makes a failing script short. `away` is a run of another kind: how much
//! memory it takes that an OSD was away for long.

mod away;
mod cluster;
mod due;
mod history;
mod limits;
mod memory;
mod network;
mod node;
mod scenario;
mod script;
mod shrink;
mod trace;
mod workload;
mod world;

pub use away::{Away, AwayReport};
pub use cluster::{Cluster, Seed};
pub use network::NodeId;
pub use scenario::{Outcome, run_script, run_seed};
pub use script::{BadLine, Fault, Script, Shape, Who};
pub use shrink::shrink;
