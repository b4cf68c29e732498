//! Ceph's words, with their encodings: what is in maps, messages and transactions.
//!
//! `types` are the small values, `maps` what the monitors publish, `messages` what travels, `transaction`
//! what a store does, `shown` what tools print of it. Each type names its Ceph counterpart and versions.

// Long literals of JSON.
#![recursion_limit = "256"]

pub mod maps;
pub mod messages;
pub mod shown;
pub mod transaction;
pub mod types;
