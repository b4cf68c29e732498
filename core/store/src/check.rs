//! Checks the store's invariants.

use crate::index::omap::{is_reserved, leaf_number};
use crate::index::{Pools, Totals, Weight};
use crate::lookup::Found;
use crate::range_map::RangeMap;
use crate::space::Extent;
use crate::store::Store;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

impl Store {
    /// Proves the invariants; gives what is wrong, one line each. Walks everything.
    pub fn check(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut owners = RangeMap::default();
        let mut here: BTreeMap<u32, u32> = BTreeMap::new();
        let (mut objects, mut weight) = (0, Weight::default());
        for id in self.walk(Bound::Unbounded) {
            objects += u64::from(!id.as_ref().is_ok_and(is_reserved));
            let found = id.map_err(|error| error.to_string()).and_then(|id| {
                let found = self.find(&id).map_err(|error| error.to_string())?;
                found.map(|found| (id, found)).ok_or_else(|| "an object was listed and is not there".into())
            });
            let (id, found) = match found {
                Ok(found) => found,
                Err(error) => {
                    wrong.push(error);
                    continue;
                }
            };
            let object = found.object();
            weight.add(object.weight());
            if !self.is_sound(object) {
                wrong.push(format!(
                    "{id}: its blocks are past its end, outside of the data area, or there twice"
                ));
            }
            for extent in object.blocks.extents() {
                for (part, count) in owners.parts(extent.blocks) {
                    owners.set(part, Some(count.unwrap_or(0) + 1));
                }
            }
            if let Found::Here(object) = &found {
                object.blocks.blocks().for_each(|block| *here.entry(block).or_default() += 1);
            }
        }
        let kept = &self.index.total;
        let counted =
            Totals { objects, weight, leaves_made: kept.leaves_made, pools: Some(self.recount_pools()) };
        if !counted.are(kept) {
            wrong.push(format!("all objects are {counted:?}, not {kept:?}"));
        }
        if self.index.recount() != self.index.here() {
            let (counted, kept) = (self.index.recount(), self.index.here());
            wrong.push(format!("what is in memory weighs {counted:?}, not {kept:?}"));
        }
        let pairs: usize = self.index.slots().map(|(_, slot)| slot.pairs()).sum();
        if pairs != self.index.pairs() {
            wrong.push(format!("in memory are {pairs} pairs of omaps, not {}", self.index.pairs()));
        }
        if self.index.recount_changed() != self.index.changed().encoded {
            let (counted, kept) = (self.index.recount_changed(), self.index.changed().encoded);
            wrong.push(format!("what changed weighs {counted}, not {kept}"));
        }
        for (extent, count) in owners.iter() {
            for (part, kept) in self.blocks.shared.parts(extent) {
                if kept.unwrap_or(1) != count {
                    wrong.push(format!("blocks {part:?} have {count} owners, not {kept:?}"));
                }
            }
        }
        for (extent, kept) in self.blocks.shared.iter() {
            if extent.blocks().any(|block| owners.get(block) != Some(kept)) {
                wrong.push(format!("blocks {extent:?} do not have {kept} owners"));
            }
        }
        let released = self.generations.iter().flat_map(|generation| &generation.freed);
        let mut ownerless: BTreeSet<u32> = BTreeSet::new();
        for &block in self.dying.iter().flat_map(|(_, blocks)| blocks).chain(released) {
            if !ownerless.insert(block) {
                wrong.push(format!("block {block} was given back twice"));
            }
        }
        for (block, info) in self.blocks.table.iter() {
            let counted = here.remove(&block).unwrap_or(0);
            if counted != info.refs {
                wrong.push(format!("block {block} is in {counted} objects in memory, not {}", info.refs));
            }
            let is_owned = owners.get(block).is_some();
            let is_held = self.dead.contains(&block) && self.deferred.holds.contains_key(&block);
            if is_owned == (ownerless.remove(&block) || is_held) || (is_owned && counted == 0) {
                wrong.push(format!(
                    "block {block} is in {counted} objects in memory, and its end is not known"
                ));
            }
        }
        wrong.extend(here.keys().map(|block| format!("block {block} has owners but is not in the table")));
        wrong.extend(ownerless.iter().map(|block| format!("block {block} is to be freed but is free")));
        wrong.extend(self.check_leaves());
        wrong.extend(self.check_deferred());
        wrong.extend(self.cache.borrow().check(|block| !self.space.is_taken(block)));
        let unknown = self.pending.keys().filter(|block| !self.blocks.table.contains(**block));
        wrong.extend(unknown.map(|block| format!("block {block} is pending but not in the table")));

        let mut taken: BTreeSet<u32> = owners.iter().flat_map(|(extent, _)| extent.blocks()).collect();
        taken.extend(self.blocks.table.iter().map(|(block, _)| block));
        if taken.len() as u64 != self.blocks.allocated {
            wrong.push(format!("{} blocks are in use, not {}", taken.len(), self.blocks.allocated));
        }
        let checkpoint = self.checkpoint.iter().flat_map(|checkpoint| checkpoint.writer.all_extents());
        let runs = self.runs.iter().flat_map(|run| run.all_extents()).chain(self.compaction.all_extents());
        let others: Vec<Extent> = runs.chain(checkpoint).chain(self.old_chunks.iter().copied()).collect();
        let mut inner = RangeMap::default();
        others.iter().for_each(|extent| inner.set(*extent, Some(1)));
        if inner != self.blocks.inner {
            wrong.push("blocks of checkpoints are not those of which it is known".into());
        }
        for block in
            others.into_iter().chain(self.discards.under_way.iter().copied()).flat_map(Extent::blocks)
        {
            if !taken.insert(block) {
                wrong.push(format!("block {block} is in a checkpoint, or given back, and elsewhere"));
            }
        }
        for block in self.geometry.data_start..self.geometry.blocks {
            if self.space.is_taken(block) != taken.contains(&block) {
                wrong.push(format!("block {block}: the bitmap and its owners disagree"));
            }
        }
        if self.log_tail - self.log_head > self.log_blocks() {
            wrong.push(format!("the log goes from {} to {}", self.log_head, self.log_tail));
        }
        wrong
    }

    /// What all objects take that can be read.
    pub(crate) fn recount_pools(&self) -> Pools {
        let (mut pools, mut seen) = (Pools::default(), RangeMap::default());
        for id in self.walk(Bound::Unbounded).flatten() {
            let Ok(Some(found)) = self.find(&id) else { continue };
            let object = found.object();
            pools.add(&id, object, object.weight());
            for (part, owners) in
                object.blocks.extents().iter().flat_map(|extent| self.blocks.shared.parts(extent.blocks))
            {
                let is_new = |block: &u32| owners.is_none() || seen.get(*block).is_none();
                pools.count_blocks(&id, part.blocks().filter(is_new).count(), 0);
                if owners.is_some() {
                    seen.set(part, Some(1));
                }
            }
        }
        pools
    }

    /// Proves that each part of an omap has the owners that it should have.
    pub(crate) fn check_leaves(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let (mut owners, mut there): (BTreeMap<u64, u32>, BTreeSet<u64>) = Default::default();
        let mut has_damaged = false;
        for id in self.walk(Bound::Unbounded) {
            let Ok(id) = id else { return Vec::new() };
            there.extend(leaf_number(&id));
            let Ok(Some(found)) = self.find(&id) else {
                has_damaged = true;
                continue;
            };
            for part in found.object().omap().leaves.list() {
                *owners.entry(part.number).or_default() += 1;
                if let Err(error) = self.find_leaf(&id, part) {
                    wrong.push(error.to_string());
                }
                if part.number > self.index.total.leaves_made {
                    wrong.push(format!("{id}: part {} was not made yet", part.number));
                }
            }
        }
        // What cannot be read may have any.
        if has_damaged {
            return wrong;
        }
        for (number, count) in &owners {
            let kept = self.index.shares.owners(*number);
            if kept != *count {
                wrong.push(format!("part {number} has {count} owners, not {kept}"));
            }
        }
        let shared = self.index.shares.shared().keys().filter(|number| !owners.contains_key(number));
        wrong.extend(shared.map(|number| format!("omap leaf {number} is shared and has no owner")));
        let nobodys = there.iter().filter(|number| !owners.contains_key(number));
        wrong.extend(nobodys.map(|number| format!("omap leaf {number} has no owner")));
        wrong
    }
}
