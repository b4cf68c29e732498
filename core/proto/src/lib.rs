//! Ceph's words, with their encodings: what is in maps, messages and transactions.
//!
//! `types` are the small values, `maps` what the monitors publish, `messages` what travels,
//! `transaction` what a store does. Each type names its Ceph counterpart and versions.

pub mod maps;
pub mod messages;
pub mod transaction;
pub mod types;
