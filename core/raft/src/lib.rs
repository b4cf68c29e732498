//! One replicated log of opaque entries: what the monitors agree on, in order.
//!
//! The `raft` crate decides; this wraps it so that it neither draws randomness of its own nor touches
//! a disk. Start with `Raft`: feed it `tick`, `step` and `propose`, then take a `Ready` and carry it
//! out in this order: send `now`, store `persist`, and once that is durable call `stored` and send
//! `after`. Entries come out of `committed` only when a majority has them on disk.
//! The membership changes by an entry of the log, too (`Change`).

mod change;
mod log;
mod node;
mod peer;

pub use change::Change;
pub use log::{Persist, Saved, alone, reach, restored};
pub use node::{Committed, NotLeader, Outgoing, Raft, ReadId, Ready, Restored, StepError};
pub use peer::PeerMessage;
