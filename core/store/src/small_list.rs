//! Lists that are short nearly always, and ask for no memory while they are.
//!
//! A write of a block makes several, of one element each; a vector takes the place of four for the first.

use smallvec::SmallVec;

pub(crate) type SmallList<T> = SmallVec<[T; 1]>;
/// As many as fit where a list has its length and its place in memory.
pub(crate) type BlockList = SmallVec<[u32; 4]>;
