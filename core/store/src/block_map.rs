//! Hash maps and sets keyed by block number.
//!
//! Only checks iterate over them, so their order does not matter. Block numbers come from the allocator:
//! clients cannot choose numbers that collide.

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};

pub(crate) type BlockMap<T> = HashMap<u32, T, FixedState>;
pub(crate) type BlockSet = HashSet<u32, FixedState>;
