//! Admission by space: how much a transaction may need, and what must stay free for checkpoints.

use crate::BLOCK;
use crate::checkpoint::{Checkpoint, blocks_for, blocks_for_changes};
use crate::index::omap::{LEAF_AIM, Leaf, Omap, PAIR_COST, whole_max};
use crate::index::{BLOCK_COST, Object, Slot, bare_cost};
use crate::store::{SIZE_MAX, Store, SubmitError};
use bytes::Bytes;
use nacre_base::Name;
use nacre_proto::transaction::{Change, StoredId, Transaction};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// No less than what a transaction will need.
#[derive(Default)]
pub(crate) struct Needs {
    pub blocks: u64,
    /// Of growth of the index.
    pub encoded: u64,
    /// Makes objects bigger, so it has to leave space for removals.
    pub grows: bool,
}

impl Store {
    /// Blocks that only removals and the daemon's own records may take.
    pub(crate) fn slack(&self) -> u64 {
        (u64::from(self.geometry.data_blocks()) / 64).max(8)
    }
    /// Blocks that checkpoints will need if what is stored grows by `growth` bytes: there must be room for
    /// all of it in one sorted run, beside the sorted runs that are durable, and for that again afterwards.
    pub(crate) fn reserve(&self, growth: u64) -> u64 {
        let next = blocks_for(self.index.total.weight.encoded + growth);
        let runs: u64 = self.runs.iter().map(|run| run.blocks()).sum();
        let compaction = self.compaction.rest();
        match &self.checkpoint {
            None => compaction + next + next.saturating_sub(runs - self.compaction.frees()),
            Some(checkpoint) if checkpoint.gathered.is_none() => {
                let rest = checkpoint.estimate.saturating_sub(checkpoint.writer.blocks());
                let current = runs - self.compaction.frees() + checkpoint.estimate;
                compaction + rest + next + next.saturating_sub(current)
            }
            Some(checkpoint) => {
                let rest = checkpoint.estimate.saturating_sub(self.compaction.blocks());
                rest + (next + next.saturating_sub(checkpoint.estimate)).saturating_sub(runs)
            }
        }
    }
    /// What must be there for the checkpoint under way and the next one, besides a compaction.
    pub(crate) fn checkpoints_need(&self) -> u64 {
        let rest = |checkpoint: &Checkpoint| checkpoint.estimate.saturating_sub(checkpoint.writer.blocks());
        let changes = blocks_for_changes(&self.index, &self.blocks);
        self.checkpoint.as_ref().map_or(0, rest) + changes
    }

    pub(crate) fn needs(&self, txn: &Transaction) -> Result<Needs, SubmitError> {
        let block_len = BLOCK as u64;
        let too_big = |id: &StoredId, end: u64| {
            if end > SIZE_MAX {
                return Err(SubmitError::TooBig { id: id.clone(), end, limit: SIZE_MAX });
            }
            Ok(())
        };
        let pairs = |map: &BTreeMap<Name, Bytes>| {
            map.iter().map(|(k, v)| k.len() as u64 + v.len() as u64 + PAIR_COST).sum::<u64>()
        };
        let mut needs = Needs::default();
        // What each object gets in this transaction; of interest only where some of it is cloned.
        let clones = txn.changes.iter().any(|(_, change)| change.source().is_some());
        let mut gained: BTreeMap<&StoredId, u64> = BTreeMap::new();
        let mut copied: BTreeMap<&StoredId, &StoredId> = BTreeMap::new();
        let of_clone = |(id, change): &'_ (StoredId, Change)| match change {
            Change::CloneFrom(from) => [Some(id.clone()), Some(from.clone())],
            _ => [None, None],
        };
        let cloned: BTreeSet<StoredId> = match clones {
            true => txn.changes.iter().flat_map(of_clone).flatten().collect(),
            false => BTreeSet::new(),
        };
        let mut pairs_set = (0, 0);
        // What was looked up last: mostly one object changes in several ways.
        let mut looked: Option<(&StoredId, Option<&Slot>)> = None;
        for (id, change) in &txn.changes {
            let (mut blocks, mut encoded) = (0, 0);
            let slot = match looked {
                Some((looked, slot)) if looked == id => slot,
                _ => self.index.slot(id),
            };
            looked = Some((id, slot));
            match change {
                Change::Write { offset, data } | Change::Xor { offset, data } => {
                    let end = offset.saturating_add(data.len() as u64);
                    too_big(id, end)?;
                    blocks = end.div_ceil(block_len) - offset / block_len;
                }
                Change::Zero { offset, len } => {
                    too_big(id, offset.saturating_add(*len))?;
                    blocks = 2;
                }
                Change::Truncate { size } => {
                    too_big(id, *size)?;
                    blocks = u64::from(size % block_len != 0);
                }
                Change::SetAttrs(map) | Change::OmapSet(map) => encoded = pairs(map),
                Change::OmapSetHeader(header) => encoded = header.len() as u64,
                Change::CloneFrom(from) => {
                    // What it has now, and what it got before in this transaction.
                    encoded = self.index.get(from).map_or(0, |o| o.weight().encoded)
                        + gained.get(from).copied().unwrap_or(0);
                    let from = copied.get(from).copied().unwrap_or(from);
                    copied.insert(id, from);
                }
                Change::CloneBlocks { blocks, .. } => encoded = blocks.len() as u64 * BLOCK_COST,
                _ => {}
            }
            let keys = match change {
                Change::OmapSet(map) => map.len(),
                Change::OmapRemove(keys) => keys.len(),
                Change::OmapRemoveRange { .. } => 2,
                _ => 0,
            };
            if keys > 0 {
                pairs_set = (pairs_set.0 + keys as u64, pairs_set.1 + encoded);
                let object = match copied.get(id) {
                    Some(from) => self.index.get(from),
                    None => slot.and_then(Slot::object),
                };
                encoded += self.leaves_growth(id, object, keys, pairs_set, cloned.contains(id));
            }
            let shrinks = matches!(
                change,
                Change::Zero { .. }
                    | Change::Truncate { .. }
                    | Change::OmapRemove(_)
                    | Change::OmapRemoveRange { .. }
            );
            if !shrinks {
                encoded += blocks * BLOCK_COST;
            }
            needs.grows |= !shrinks && (blocks > 0 || encoded > 0) && id.as_object().is_some();
            if !matches!(change, Change::Remove) && !slot.is_some_and(Slot::exists) {
                encoded += bare_cost(id);
            }
            if clones {
                *gained.entry(id).or_default() += encoded;
            }
            needs.blocks += blocks;
            needs.encoded += encoded;
        }
        Ok(needs)
    }

    /// What an operation on this many keys may add to parts of an omap besides the pairs that it sets: parts
    /// that become several, and copies of those that other objects have, too. `pairs_set`: how many pairs are
    /// set in all of the transaction, and what they cost.
    fn leaves_growth(
        &self,
        id: &StoredId,
        object: Option<&Arc<Object>>,
        keys: usize,
        pairs_set: (u64, u64),
        is_cloned: bool,
    ) -> u64 {
        let omap = object.map(|object| object.omap());
        let parts = omap.map_or(&[][..], |omap| omap.leaves.list());
        if parts.is_empty() {
            let whole = omap.map_or(0, Omap::cost) + pairs_set.1;
            let pairs = omap.map_or(0, |omap| omap.pairs.len() as u64) + pairs_set.0;
            let copies = if is_cloned { whole } else { 0 };
            let made = pairs.min((whole / LEAF_AIM + 2) * 2);
            return if whole > whole_max(id) { copies + made * Leaf::COST_MAX } else { 0 };
        }
        let touched = keys.min(parts.len()) as u64;
        let shares = &self.index.shares;
        let is_shared = || parts.iter().any(|part| shares.owners(part.number) > 1);
        let may_share = is_cloned || (!shares.shared().is_empty() && is_shared());
        let longest = || parts.iter().map(|part| part.cost).max().unwrap_or(0);
        let copies = if may_share { touched * (longest() + Leaf::COST_MAX) + pairs_set.1 } else { 0 };
        copies + (2 * touched + pairs_set.1 / LEAF_AIM + 2) * Leaf::COST_MAX
    }
}
