//! What is known of some blocks, found by their numbers.
//!
//! Nothing walks through these but checks: their order means nothing. The numbers are the allocator's own, so that
//! clients cannot choose block numbers that collide.

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};

pub(crate) type BlockMap<T> = HashMap<u32, T, FixedState>;
pub(crate) type BlockSet = HashSet<u32, FixedState>;
