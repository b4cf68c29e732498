//! Read-error repair: a block here that is corrupt, or cannot be read, becomes missing and is recovered from
//! another member. Requests for its bytes wait for that. What was written to it after it went bad is known,
//! and stays: perhaps no other member has it yet.

use super::active::Member;
use super::backend::Backend;
use super::history::{History, Update};
use super::record::RecordChanges;
use super::recovery::Recovery;
use super::unapplied::Unapplied;
use super::{Ctx, Interval, Pg, Phase};
use crate::object_info::ObjectInfo;
use nacre_base::{IntervalSet, OsdId, Version};
use nacre_machine::{Level, ReadError, SalvagedExtents, StoreView};
use nacre_proto::messages::part::Part;
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_proto::types::ObjectId;
use std::collections::BTreeMap;

/// What a store has one checksum for.
pub const BLOCK: u64 = 4096;

/// The holders that may have what cannot be read here.
pub struct Holders<'a> {
    pub backend: &'a Backend,
    pub interval: &'a Interval,
    pub members: &'a BTreeMap<OsdId, Member>,
    pub recovery: &'a Recovery,
}

impl History {
    /// Marks what is not known of a block that cannot be read as missing, if another holder has those bytes,
    /// or may have them and is away: requests for them wait then. None if not, and if the error is another
    /// one.
    pub fn repair_read(
        &mut self,
        ctx: &mut Ctx<'_>,
        unapplied: &Unapplied,
        holders: Holders<'_>,
        error: &ReadError,
    ) -> Option<Update> {
        let Holders { backend, interval, members, recovery } = holders;
        let (object, block, salvaged) = bad_block(error)?;
        let bad = BadBlock::find(ctx.store, object, block, salvaged)?;
        if unapplied.contains(object) {
            return None;
        }
        // What is missing here anyway is not lost with it.
        let lost = bad.part.clone().without(&self.missing.part(object));
        let up = members.iter().filter(|(osd, _)| ctx.map.is_up(**osd));
        let up = up.map(|(osd, member)| (interval.shard_of(*osd), &member.missing));
        let lost = backend.unavailable(lost, object, up, self.info.shard);
        // During a remapping, perhaps only a former member has it.
        let is_there = lost.is_empty() || recovery.may_be_elsewhere(&ctx.map, object, bad.need, &lost);
        let then = match (is_there, interval.members_len() < interval.size) {
            (true, _) => "repaired from another copy",
            (false, true) => "no OSD that is up has it, waiting for members that are down",
            (false, false) => return None,
        };
        ctx.log(Level::Warn, format!("pg {}: {object}: {error}; {then}", self.pg));
        let mut txn = Transaction::new();
        self.note_bad(object, bad, &mut txn);
        Some(Update { txn, objects: [object.clone()].into() })
    }

    fn note_bad(&mut self, object: &ObjectId, bad: BadBlock, txn: &mut Transaction) {
        let BadBlock { need, size, unknown, part } = bad;
        let id = StoredId::Object(object.clone());
        // Nothing may depend on the bad block any more: what is known of it and these zeros are all of the
        // new one. What was written to it since it was read stays as well.
        for range in unknown.iter() {
            txn.push(id.clone(), Change::Zero { offset: range.start, len: range.end - range.start });
        }
        txn.push(id, Change::Truncate { size });
        if !part.is_empty() {
            self.missing.add(object, need, &part);
            self.missing.note_wrong(object);
        }
        let mut changes = RecordChanges::new(self.pg);
        changes.missing(object, self.missing.get(object));
        changes.into_txn(txn);
    }
}

impl Pg {
    /// See `History::repair_read`. True if the block is missing now.
    pub fn repair_read(&mut self, ctx: &mut Ctx<'_>, error: &ReadError) -> bool {
        let Phase::Active(active) = &self.phase else { return false };
        let holders = Holders {
            backend: &self.backend,
            interval: &self.interval,
            members: &active.members,
            recovery: &active.recovery,
        };
        let update = self.history.repair_read(ctx, &self.pending.unapplied, holders, error);
        let Some(update) = update else { return false };
        self.apply(ctx, update);
        true
    }

    /// Marks a block that the store lost as missing, before the placement group does anything else. Whether
    /// others have its bytes shows at peering; where there are no others, reading it gives an error.
    pub fn note_lost_block(
        &mut self,
        store: &dyn StoreView,
        object: &ObjectId,
        block: u64,
        txn: &mut Transaction,
    ) -> bool {
        let is_ours = self.history.range.contains(object);
        let mut members = self.interval.acting.iter().chain(&self.interval.up);
        if is_ours
            && members.any(|osd| osd.is_some() && *osd != self.me)
            && let Some(bad) = BadBlock::find(store, object, block, &SalvagedExtents::default())
        {
            self.history.note_bad(object, bad, txn);
        }
        is_ours
    }

    /// See `History::drop_unreadable`.
    pub fn drop_unreadable(&mut self, store: &dyn StoreView, txn: &mut Transaction) {
        self.history.drop_unreadable(store, txn);
    }
    /// See `History::mark_incomplete`.
    pub fn mark_incomplete(&mut self, txn: &mut Transaction) {
        self.history.mark_incomplete(txn);
    }
}

/// A block of an object that cannot be given as it should be, and what is known of it.
pub fn bad_block(error: &ReadError) -> Option<(&ObjectId, u64, &SalvagedExtents)> {
    match error {
        ReadError::Checksum { id: StoredId::Object(object), block, salvaged, .. }
        | ReadError::Unreadable { id: StoredId::Object(object), block, salvaged, .. } => {
            Some((object, *block, salvaged))
        }
        _ => None,
    }
}

/// Of a bad block, what is not known.
pub fn unknown(block: u64, salvaged: &SalvagedExtents) -> IntervalSet {
    let mut unknown = IntervalSet::from(block * BLOCK..(block + 1) * BLOCK);
    salvaged.ranges().for_each(|range| _ = unknown.remove(range));
    unknown
}

/// What a bad block holds.
struct BadBlock {
    /// The object's version, and its size.
    need: Version,
    size: u64,
    /// What of the block is not known, also past the object's end.
    unknown: IntervalSet,
    /// What of the object that is.
    part: Part,
}

impl BadBlock {
    fn find(
        store: &dyn StoreView,
        object: &ObjectId,
        block: u64,
        salvaged: &SalvagedExtents,
    ) -> Option<BadBlock> {
        let size = store.stat(&StoredId::Object(object.clone())).ok()??.size;
        let need = ObjectInfo::load(store, object).ok()??.version;
        (block * BLOCK < size).then(|| {
            let unknown = unknown(block, salvaged);
            let mut data = unknown.clone();
            data.remove(size..u64::MAX);
            BadBlock { need, size, unknown, part: Part { data, ..Part::default() } }
        })
    }
}
