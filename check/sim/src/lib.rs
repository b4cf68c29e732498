//! Simulates a whole cluster in one thread with virtual time: the production code of monitors, OSDs and
//! clients on a simulated network, disks and clocks, with faults.
//!
//! A seed determines a run completely. `world` executes the effects of machines on a `schedule`, a `network`
//! and `node`s; `cluster` is the interface for tests; `script` generates the faults of a run from its seed,
//! `scenario` runs them, `workload` and `history` generate requests and check their replies; `shrink` makes
//! failing scripts short; `versions` says which daemons have which version of the program. `outage` is a run
//! of another kind: it measures how much memory a long outage of one OSD costs.

mod cluster;
mod history;
mod host_faults;
mod identity;
mod limits;
mod memory;
mod network;
mod node;
mod options;
mod outage;
mod scenario;
mod schedule;
mod script;
mod shrink;
mod trace;
mod versions;
mod workload;
mod world;

pub use cluster::{Cluster, Seed};
pub use network::NodeId;
pub use outage::{Outage, OutageReport};
pub use scenario::{Outcome, run_script, run_seed};
pub use script::{Auth, BadLine, Fault, Script, Shape, Target};
pub use shrink::shrink;
pub use versions::Versions;
