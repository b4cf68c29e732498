//! A block of ours whose bytes are not what was written, or cannot be read: it is given up, noted as missing, and comes
//! back from another member. Whoever asked for its bytes waits for that, and notices nothing else. What was written
//! to it later than it went bad is known, and stays: perhaps nobody else has it yet.

use super::log_merge::LogMerger;
use super::record::RecordChanges;
use super::{Ctx, Pg, Phase};
use crate::object_info::ObjectInfo;
use nacre_base::{IntervalSet, Version};
use nacre_machine::{Level, ReadError, SalvagedExtents, StoreView};
use nacre_proto::messages::part::Part;
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_proto::types::ObjectId;

/// What a store has one checksum for.
pub const BLOCK: u64 = 4096;

impl Pg {
    /// Gives up what is not known of a block that cannot be read, if somebody else has those bytes, or may have them
    /// and is away: whoever asks for them waits then. Whether it did; not if the error is another.
    pub fn give_up(&mut self, ctx: &mut Ctx<'_>, error: &ReadError) -> bool {
        let Some((object, block, salvaged)) = bad_block(error) else { return false };
        let Phase::Active(active) = &self.phase else { return false };
        let Some(bad) = BadBlock::find(ctx.store, object, block, salvaged) else { return false };
        if self.unapplied.contains(object) {
            return false;
        }
        // What is missing here anyway is not lost with it.
        let mut lost = bad.part.clone().without(&self.missing.part(object));
        for (_, member) in active.members.iter().filter(|(osd, _)| ctx.map.is_up(**osd)) {
            lost = lost.intersection(&member.missing.part(object));
        }
        // While the group moves, only those whom it leaves may have it.
        let is_there = lost.is_empty() || active.recovery.may_be_elsewhere(&ctx.map, object, bad.need, &lost);
        let has_absent_members = self.interval.acting.len() < self.interval.size;
        let then = match (is_there, has_absent_members) {
            (true, _) => "repaired from another copy",
            (false, true) => "no OSD that is up has it, waiting for members that are down",
            (false, false) => return false,
        };
        ctx.log(Level::Warn, format!("pg {}: {object}: {error}; {then}", self.id));
        let mut txn = Transaction::new();
        self.note_bad(object, bad, &mut txn);
        self.unapplied.insert(object.clone());
        self.store(ctx, txn);
        true
    }

    /// Notes a block that the store lost, before the group does anything else. Whether others have its bytes
    /// shows when they peer; where there are no others, reading it gives an error.
    pub fn note_lost_block(
        &mut self,
        store: &dyn StoreView,
        object: &ObjectId,
        block: u64,
        txn: &mut Transaction,
    ) -> bool {
        let is_ours = self.range.contains(object);
        let mut members = self.interval.acting.iter().chain(&self.interval.up);
        if is_ours
            && members.any(|osd| osd.is_some() && *osd != self.me)
            && let Some(bad) = BadBlock::find(store, object, block, &SalvagedExtents::default())
        {
            self.note_bad(object, bad, txn);
        }
        is_ours
    }

    /// Of objects that lack only a part nothing may be known any more: then they lack everything. Others are found when they
    /// are compared with other copies.
    pub fn drop_unreadable(&mut self, store: &dyn StoreView, txn: &mut Transaction) {
        let mut changes = RecordChanges::new(self.id);
        let mut merger = LogMerger::new(self.me, store, &mut self.missing);
        merger.drop_unreadable_parts();
        let (removed, noted) = (merger.txn, merger.noted);
        noted.iter().for_each(|object| changes.missing(object, self.missing.get(object)));
        txn.append(removed);
        changes.into_txn(txn);
    }

    /// The store lost transactions, nobody knows which: what is here proves nothing until it was compared
    /// with somebody else's.
    pub fn mark_incomplete(&mut self, txn: &mut Transaction) {
        self.info.incomplete = true;
        // Nor is there a version up to which all is here: names are to be compared.
        self.info.committed_to = Version::ZERO;
        self.record_info(txn);
    }

    fn note_bad(&mut self, object: &ObjectId, bad: BadBlock, txn: &mut Transaction) {
        let BadBlock { need, size, unknown, part } = bad;
        let id = StoredId::Object(object.clone());
        // Nothing may depend on the bad block any more: what is known of it and these zeros are all of the new
        // one. What was written to it since it was read stays as well.
        for range in unknown.iter() {
            txn.push(id.clone(), Change::Zero { offset: range.start, len: range.end - range.start });
        }
        txn.push(id, Change::Truncate { size });
        if !part.is_empty() {
            self.missing.add(object, need, &part);
            self.missing.note_wrong(object);
        }
        let mut changes = RecordChanges::new(self.id);
        changes.missing(object, self.missing.get(object));
        changes.into_txn(txn);
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
