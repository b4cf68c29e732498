//! Vectors that are nearly always short, stored inline.
//!
//! A write of one block makes several lists of one element each, which would need an allocation each.

use smallvec::SmallVec;

pub(crate) type SmallList<T> = SmallVec<[T; 1]>;
/// As many as fit where a list has its length and its place in memory.
pub(crate) type BlockList = SmallVec<[u32; 4]>;
