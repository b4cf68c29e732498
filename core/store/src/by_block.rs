//! What is known of some blocks, found by their numbers.
//!
//! Nothing walks through these but checks: their order means nothing. The numbers are the allocator's own, so that
//! nobody outside chooses which of them meet in one place.

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};

pub(crate) type ByBlock<T> = HashMap<u32, T, FixedState>;
pub(crate) type BlockSet = HashSet<u32, FixedState>;
