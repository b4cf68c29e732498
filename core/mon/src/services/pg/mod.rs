//! Placement groups: their activation records, and what their primaries report.

pub mod activation;
mod health;
pub mod records;
mod snap_trim;
pub mod stats;
pub mod stopping;
pub mod summary;
pub mod unplaceable;
