//! Erasure codes.
//!
//! - `gf`: arithmetic with bytes
//! - `matrix`: the matrix of Reed-Solomon codes, and solving for what is missing
//! - `kernel`: the inner loop, by the best instructions of the processor
//! - `code`: encoding, decoding, and changing parity as data changes
//! - `layout`: where the bytes of an object are on its shards
//! - `profile`: what administrators set, with Ceph's names, checks and chunk sizes

mod gf;
mod matrix;

pub mod code;
pub mod kernel;
pub mod layout;
pub mod profile;
