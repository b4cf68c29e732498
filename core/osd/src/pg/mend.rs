//! A block of ours whose bytes are not what was written: it is given up, noted as missing, and comes
//! back from another member. Whoever asked for its bytes waits for that, and notices nothing else.

use super::record::RecordChanges;
use super::{Ctx, Pg, Phase};
use crate::object_info::ObjectInfo;
use nacre_machine::{Level, ReadError};
use nacre_proto::messages::part::Part;
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_proto::types::ObjectId;

/// What a store has one checksum for.
const BLOCK: u64 = 4096;

impl Pg {
    /// Gives up the block that cannot be read, if somebody else has its bytes. What of which object
    /// has to be fetched then; none if nobody has it, or the error is another.
    pub fn give_up(&mut self, ctx: &mut Ctx<'_>, error: &ReadError) -> Option<(ObjectId, Part)> {
        let ReadError::Checksum { id: StoredId::Object(object), block, .. } = error else { return None };
        let Phase::Active(active) = &self.phase else { return None };
        let id = StoredId::Object(object.clone());
        let size = ctx.store.stat(&id).ok()??.size;
        let need = ObjectInfo::load(ctx.store, object).ok()??.version;
        let start = block * BLOCK;
        let range = start..(start + BLOCK).min(size);
        if range.is_empty() || self.changed.1.contains(object) {
            return None;
        }
        let part = Part { data: range.into(), ..Part::default() };
        let up = active.members.iter().filter(|(osd, _)| ctx.map.is_up(**osd));
        if !up.into_iter().any(|(_, member)| !member.missing.lacks(object, &part)) {
            return None;
        }
        ctx.log(Level::Warn, format!("pg {}: {object}: {error}; mended from another copy", self.id));
        self.missing.add(object, need, &part);
        let mut txn = Transaction::new();
        // Nothing may be put over the bad block, or together with it.
        txn.push(id.clone(), Change::Zero { offset: start, len: BLOCK });
        txn.push(id, Change::Truncate { size });
        let mut changes = RecordChanges::new(self.id);
        changes.missing(object, self.missing.get(object));
        changes.into_txn(&mut txn);
        self.changed.1.insert(object.clone());
        self.store(ctx, txn);
        Some((object.clone(), part))
    }
}
