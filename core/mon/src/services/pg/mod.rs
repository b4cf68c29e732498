//! Placement groups: their activation records, and what their primaries report.

pub mod records;
pub mod stats;
