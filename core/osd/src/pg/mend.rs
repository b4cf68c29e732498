//! A block of ours whose bytes are not what was written, or cannot be read: it is given up, noted as missing, and comes
//! back from another member. Whoever asked for its bytes waits for that, and notices nothing else.

use super::record::RecordChanges;
use super::{Ctx, Pg, Phase};
use crate::object_info::ObjectInfo;
use nacre_base::Version;
use nacre_machine::{Level, ReadError, StoreView};
use nacre_proto::messages::part::Part;
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_proto::types::ObjectId;

/// What a store has one checksum for.
pub const BLOCK: u64 = 4096;

impl Pg {
    /// Gives up the block that cannot be read, if somebody else has its bytes. What of which object
    /// has to be fetched then; none if nobody has it, or the error is another.
    pub fn give_up(&mut self, ctx: &mut Ctx<'_>, error: &ReadError) -> Option<(ObjectId, Part)> {
        let (ReadError::Checksum { id: StoredId::Object(object), block, .. }
        | ReadError::Unreadable { id: StoredId::Object(object), block, .. }) = error
        else {
            return None;
        };
        let Phase::Active(active) = &self.phase else { return None };
        let Bad { part, .. } = Bad::find(ctx.store, object, *block)?;
        if self.changed.1.contains(object) {
            return None;
        }
        let up = active.members.iter().filter(|(osd, _)| ctx.map.is_up(**osd));
        // While the group moves, only those whom it leaves may have it.
        let left = active.recovery.may_be_elsewhere(&ctx.map, object, &part);
        if !left && !up.into_iter().any(|(_, member)| !member.missing.lacks(object, &part)) {
            return None;
        }
        ctx.log(Level::Warn, format!("pg {}: {object}: {error}; mended from another copy", self.id));
        let mut txn = Transaction::new();
        self.note_bad(ctx.store, object, *block, &mut txn);
        self.changed.1.insert(object.clone());
        self.store(ctx, txn);
        Some((object.clone(), part))
    }

    /// Notes a block that the store lost, before the group does anything else. Whether others have its bytes
    /// shows when they peer; where there are no others, reading it gives an error.
    pub fn note_lost(
        &mut self,
        store: &dyn StoreView,
        object: &ObjectId,
        block: u64,
        txn: &mut Transaction,
    ) -> bool {
        let is_ours = self.range.contains(object);
        if is_ours
            && self
                .interval
                .acting
                .iter()
                .chain(&self.interval.up)
                .any(|osd| osd.is_some() && *osd != self.me)
        {
            self.note_bad(store, object, block, txn);
        }
        is_ours
    }

    /// The store lost transactions, nobody knows which: what is here proves nothing until it was compared
    /// with somebody else's.
    pub fn doubt(&mut self, txn: &mut Transaction) {
        self.info.incomplete = true;
        // Nor is there a version up to which all is here: names are to be compared.
        self.info.committed_to = Version::ZERO;
        self.record_info(txn);
    }

    fn note_bad(&mut self, store: &dyn StoreView, object: &ObjectId, block: u64, txn: &mut Transaction) {
        let Some(Bad { need, size, part }) = Bad::find(store, object, block) else { return };
        let id = StoredId::Object(object.clone());
        self.missing.add(object, need, &part);
        // Nothing may be put over the bad block, or together with it.
        txn.push(id.clone(), Change::Zero { offset: block * BLOCK, len: BLOCK });
        txn.push(id, Change::Truncate { size });
        let mut changes = RecordChanges::new(self.id);
        changes.missing(object, self.missing.get(object));
        changes.into_txn(txn);
    }
}

/// What a bad block holds.
struct Bad {
    /// The object's version, and its size.
    need: Version,
    size: u64,
    part: Part,
}

impl Bad {
    fn find(store: &dyn StoreView, object: &ObjectId, block: u64) -> Option<Bad> {
        let size = store.stat(&StoredId::Object(object.clone())).ok()??.size;
        let need = ObjectInfo::load(store, object).ok()??.version;
        let start = block * BLOCK;
        (start < size).then(|| {
            let range = start..(start + BLOCK).min(size);
            Bad { need, size, part: Part { data: range.into(), ..Part::default() } }
        })
    }
}
