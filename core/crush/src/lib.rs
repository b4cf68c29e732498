//! CRUSH: a map of the hardware, a rule and a number give an ordered list of OSDs.
//!
//! Clients compute this themselves from the map they were sent, so every result and every encoded
//! byte equals Ceph's. Start with `CrushMap` in `map`, then `CrushMap::do_rule` in `choose`.
//! `build` edits maps as a monitor does; `tree` walks them for people.

mod choose;
mod codec;
pub mod hash;
mod ln;
mod ln_table;
mod map;
mod validate;

pub use map::{Bucket, ChooseArg, ChooseArgs, CrushMap, ITEM_NONE, Items, Op, Rule, RuleStep, Tunables};
pub use validate::Invalid;

#[cfg(test)]
mod tests;
