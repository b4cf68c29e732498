//! CRUSH: a map of the hardware, a rule and a number give an ordered list of OSDs.
//!
//! Clients compute this themselves from the map they were sent, so every result and every encoded
//! byte equals Ceph's. Start with `CrushMap` in `map`, then `CrushMap::do_rule` in `choose`.
//! `build` and `classes` edit maps as a monitor does; `tree` walks them for people.

mod bucket;
mod build;
mod choose;
mod classes;
mod codec;
pub mod hash;
mod ln;
mod ln_table;
mod map;
mod tree;
mod validate;
mod weight_sets;

pub use build::{EditError, ErasureStep, Location};
pub use map::{Bucket, ChooseArg, ChooseArgs, CrushMap, ITEM_NONE, Items, Op, Rule, RuleStep, Tunables};
pub use tree::Node;
pub use validate::Invalid;

#[cfg(test)]
mod build_tests;
#[cfg(test)]
mod tests;
