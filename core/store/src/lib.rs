//! The object store of one daemon, on one linear device: durable before it acknowledges.
//!
//! `Store` decides and never does I/O. A transaction is planned and applied to the index in memory by
//! `Store::submit`; `Store::take_batch` hands out everything queued as plain data, a disk thread runs
//! `Batch::commit` against the `Disk`, and `Store::finished` learns what became durable. Small writes are in
//! the log then; `Store::take_deferred`, `DeferredWrites::run` and `Store::deferred_done` bring them to their
//! place meanwhile, on another thread. Reads are plans too: `Store::plan_read`, then `ReadPlan::run` on any
//! thread; what they bring from the device may stay in memory (`Store::keep`). The layout on the device is
//! drawn in `docs/formats/store.md`; start reading at `store.rs`.
//!
//! Invariants, proven by `Store::check`:
//!   - every block of the data area is free, or has exactly the owners that its count says
//!   - what is acknowledged survives any crash; what survives is a prefix of what was submitted
//!   - a block is written again only when nothing durable, and no running read, refers to it

mod aligned;
mod attrs;
mod batch;
mod block_map;
mod block_table;
mod blocks;
mod cache;
mod check;
mod checkpoint;
mod clock_cache;
mod compaction;
mod content;
mod deferred;
mod deferred_writes;
mod discard;
mod disk;
mod export;
mod extent_map;
mod format;
mod fsck;
mod import;
mod index;
mod log;
mod log_device;
mod lookup;
mod memory;
mod open;
mod owner_changes;
mod range_map;
mod read;
mod reserve;
mod runs;
mod salvaged;
mod small_list;
mod space;
mod store;
pub mod testing;
#[cfg(test)]
mod tests;
mod upgrade;
mod view;

pub use batch::{Append, Batch, Done};
pub use deferred_writes::{DeferredDone, DeferredWrites};
pub use discard::{Discard, Discarded};
pub use disk::{Disk, DiskError, WithLog};
pub use export::{Damage, EXPORT_HEADER, RECORD_HEADER, export};
pub use fsck::Readable;
pub use import::{Import, ImportError};
pub use log_device::{Held, LogDeviceError, MoveError, MoveTo};
pub use memory::MemoryUsage;
pub use open::{FormatError, OpenError, Options, Report};
pub use read::{Fetched, ReadPlan, is_small};
pub use store::{Store, SubmitError, Ticket};

/// The unit of allocation and of checksums, in bytes.
pub const BLOCK: usize = 4096;
