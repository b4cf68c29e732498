//! Declaring lost what nobody has: an operator's decision, never the group's own.

use super::{Ctx, Pg, Phase};
use crate::object_info::ObjectInfo;
use crate::ops::{Env, Fetched, FlaggedOp, ObjectChange, Outcome, Snaps, execute};
use crate::snap_index;
use crate::snap_set::SnapContext;
use nacre_base::{IntervalSet, OsdId, SnapId, Version};
use nacre_cls::Caller;
use nacre_machine::{Level, ReadError};
use nacre_proto::maps::OsdMap;
use nacre_proto::messages::part::Part;
use nacre_proto::messages::peer::EntryKind;
use nacre_proto::transaction::{Change, Transaction};
use nacre_proto::types::{EntityAddr, EntityName, ObjectId, Op};

/// Why nothing can be declared lost.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotLost {
    #[error("osd.{0} is not the primary of this pg")]
    NotPrimary(OsdId),
    /// Somebody may have it who cannot be asked.
    #[error(
        "pg has {count} unfound objects but we haven't probed all sources, not marking lost: {} down and \
         not declared lost",
        who(down)
    )]
    Unasked { count: usize, down: Vec<OsdId> },
}

/// "osd.1, osd.2 are"
pub fn who(osds: &[OsdId]) -> String {
    let names: Vec<String> = osds.iter().map(|osd| format!("osd.{osd}")).collect();
    format!("{} {}", names.join(", "), if names.len() == 1 { "is" } else { "are" })
}

/// Whether an operator gave up what only that OSD has.
pub fn is_declared_lost(map: &OsdMap, osd: OsdId) -> bool {
    match map.osd(osd) {
        Some(known) => {
            map.is_down(osd) && known.info.lost_at.0 > 0 && known.info.lost_at >= known.info.down_at
        }
        None => true,
    }
}

impl Pg {
    /// How many objects `mark_lost` would be about.
    pub fn lost_objects(&self, map: &OsdMap) -> Result<usize, NotLost> {
        let Phase::Active(active) = &self.phase else { return Err(NotLost::NotPrimary(self.me)) };
        let count = active.recovery.unfound_len();
        let unasked = |osd: &OsdId| map.is_down(*osd) && !is_declared_lost(map, *osd);
        let down: Vec<OsdId> = map.osd_ids().filter(unasked).collect();
        if count > 0 && !down.is_empty() { Err(NotLost::Unasked { count, down }) } else { Ok(count) }
    }

    /// Objects of which nobody has some part are deleted, or stay with what is here where that is lost:
    /// an older content. Objects whose metadata is lost are deleted in any case.
    pub fn mark_lost(&mut self, ctx: &mut Ctx<'_>, delete: bool) {
        let Phase::Active(active) = &mut self.phase else { return };
        if active.holds_writes {
            return;
        }
        for (object, part) in active.recovery.take_unfound() {
            let Phase::Active(active) = &self.phase else { return };
            if self.changed.contains(&object) || active.is_being_read(&object.to_head()) {
                continue; // it is unfound again in a moment, and may be marked then
            }
            let revert = !delete && !self.missing.lacks_meta(&object);
            let done = if revert {
                self.keep_what_is_here(ctx, &object, &part)
            } else {
                self.delete_lost(ctx, &object)
            };
            match done {
                Ok(()) => {
                    let what = if revert { "keeps what is left of it" } else { "is deleted" };
                    ctx.log(Level::Warn, format!("pg {}: {object} was declared lost and {what}", self.id));
                }
                Err(error) => ctx.log(Level::Error, format!("pg {}: {object}: {error}", self.id)),
            }
            self.on_recovered(ctx, &object);
        }
        self.recover(ctx);
    }

    /// What is here of the part, older than it should be, counts as right from now on.
    fn keep_what_is_here(
        &mut self,
        ctx: &mut Ctx<'_>,
        object: &ObjectId,
        part: &Part,
    ) -> Result<(), ReadError> {
        let size = ctx.store.stat(&object.clone().into())?.unwrap_or_default().size;
        self.missing.got(object, part, Some(size));
        let mut txn = Transaction::new();
        let mut changes = super::record::RecordChanges::new(self.id);
        changes.missing(object, self.missing.get(object));
        changes.into_txn(&mut txn);
        self.changed.insert(object.clone());
        self.store(ctx, txn);
        Ok(())
    }

    /// A write like any other: members that come back later learn of it from the log.
    fn delete_lost(&mut self, ctx: &mut Ctx<'_>, object: &ObjectId) -> Result<(), ReadError> {
        let version = self.next_version();
        let change = self.deletion(ctx, object, version)?;
        let entry = self.own_entry(ctx, version, object, self.info.last_user_version + 1, &change);
        self.submit(ctx, entry, change, None).map_err(|unwritten| unwritten.1)
    }

    fn deletion(
        &self,
        ctx: &Ctx<'_>,
        object: &ObjectId,
        version: Version,
    ) -> Result<ObjectChange, ReadError> {
        if object.snap == SnapId::HEAD && !self.missing.lacks_meta(object) {
            // It knows its clones, which stay.
            let env = Env {
                version,
                user_version: self.info.last_user_version + 1,
                mtime: ctx.now.wall,
                return_vector: false,
                caller: Caller {
                    name: EntityName::osd(self.me),
                    addr: EntityAddr::default(),
                    now: ctx.now.wall,
                },
                notify_id: 0,
            };
            let (context, removed) = (SnapContext::default(), IntervalSet::new());
            let snaps = Snaps { at: SnapId::HEAD, context: &context, ordered: false, removed: &removed };
            let ops = [FlaggedOp::new(Op::Delete, 0, true)];
            if let Outcome::Done(done) = execute(ctx.store, object, &ops, &env, &snaps, &Fetched::default())?
                && done.result >= 0
            {
                return Ok(done.change);
            }
        }
        let mut txn = Transaction::new();
        let info = if self.missing.lacks_meta(object) { None } else { ObjectInfo::load(ctx.store, object)? };
        if let Some(info) = info.filter(|_| object.snap != SnapId::HEAD) {
            snap_index::remove(object, &info.snaps, &mut txn);
        }
        txn.push(object.clone(), Change::Remove);
        let need = self.missing.get(object).map(|stale| stale.need).unwrap_or_default();
        let clones = if object.snap == SnapId::HEAD { 0 } else { -1 };
        let (kind, others) = (EntryKind::Delete, Vec::new());
        Ok(ObjectChange { kind, prior: need, others, txn, vanishes: true, objects: -1, clones, bytes: 0 })
    }
}
