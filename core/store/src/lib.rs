//! The object store of one daemon, on one linear device: durable before it acknowledges.
//!
//! `Store` decides and never does I/O. A transaction is planned and applied to the index in memory
//! by `Store::submit`; `Store::take_batch` hands out everything queued as plain data, a disk thread
//! runs `Batch::commit` against the `Disk`, and `Store::finished` learns what became durable. Small
//! writes are in the log then; `Store::take_placing`, `Placing::run` and `Store::placed` bring them to
//! their place meanwhile, on another thread.
//! Reads are plans too: `Store::plan_read`, then `ReadPlan::run` on any thread; what they bring from the
//! device may stay in memory (`Store::keep`).
//! The layout on the device is drawn in `docs/formats/store.md`; start reading at `store.rs`.
//!
//! Invariants, proven by `Store::check`:
//!   - every block of the data area is free, or has exactly the owners that its count says
//!   - what is acknowledged survives any crash; what survives is a prefix of what was submitted
//!   - a block is written again only when nothing durable, and no running read, refers to it

mod aligned;
mod attrs;
mod batch;
mod blocks;
mod by_block;
mod cache;
mod changes;
mod check;
mod checkpoint;
mod content;
mod deferred;
mod discard;
mod disk;
mod export;
mod extents;
mod few;
mod format;
mod fsck;
mod import;
mod index;
mod known;
mod layering;
mod layers;
mod log;
mod log_device;
mod lookup;
mod memory;
mod open;
mod placing;
mod read;
mod recent;
mod reserve;
mod runs;
mod space;
mod store;
mod table;
pub mod testing;
#[cfg(test)]
mod tests;
mod upgrade;
mod view;

pub use batch::{Append, Batch, Done};
pub use discard::{Discard, Discarded};
pub use disk::{Disk, DiskError, WithLog};
pub use export::{Damage, EXPORT_HEADER, RECORD_HEADER, export};
pub use fsck::Readable;
pub use import::{Import, ImportError};
pub use log_device::{LogDeviceError, MoveError, MoveTo};
pub use memory::Memory;
pub use open::{FormatError, OpenError, Options, Report};
pub use placing::{Placed, Placing};
pub use read::{Fetched, ReadPlan, is_small};
pub use store::{Store, SubmitError, Ticket};

/// The unit of allocation and of checksums, in bytes.
pub const BLOCK: usize = 4096;
