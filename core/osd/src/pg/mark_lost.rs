//! Marking unfound objects lost: an operator's decision, never the placement group's own. Ceph:
//! `mark_unfound_lost`.

use super::backend::erasure::view::WholeObjects;
use super::history::History;
use super::history::missing::Missing;
use super::recovery::undecodable::undecodable;
use super::{Ctx, Pg, Phase};
use crate::object_info::ObjectInfo;
use crate::ops::{Env, Fetched, FlaggedOp, ObjectChange, Outcome, PoolRules, Snaps, execute};
use crate::snap_index;
use crate::snap_set::SnapContext;
use nacre_base::{IntervalSet, OsdId, SnapId, Version};
use nacre_cls::Caller;
use nacre_machine::{Level, ReadError, StoreView};
use nacre_proto::maps::OsdMap;
use nacre_proto::messages::part::{Act, Acts, Part, Stale};
use nacre_proto::messages::peer::{EntryKind, LogEntry};
use nacre_proto::transaction::{Change, Transaction};
use nacre_proto::types::{EntityAddr, EntityName, ObjectId, Op};
use std::collections::BTreeSet;

/// Why nothing can be declared lost.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotLost {
    #[error("osd.{0} is not the primary of this pg")]
    NotPrimary(OsdId),
    /// An OSD that cannot be asked may have it.
    #[error(
        "pg has {count} unfound objects but we haven't probed all sources, not marking lost: {} down and \
         not declared lost",
        osds_are(down)
    )]
    Unasked { count: usize, down: Vec<OsdId> },
}

/// "osd.1, osd.2 are"
pub fn osds_are(osds: &[OsdId]) -> String {
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

    /// Objects of which no holder has some part are deleted, or reverted to what the newest copy has there:
    /// older content. Where no member has any of it they are deleted in any case.
    pub fn mark_lost(&mut self, ctx: &mut Ctx<'_>, delete: bool) {
        let Phase::Active(active) = &mut self.phase else { return };
        if active.ops.holds_writes {
            return;
        }
        for (object, unfound) in active.recovery.take_unfound() {
            let Phase::Active(active) = &self.phase else { return };
            // What is gathered of an erasure-coded object begins anew when that is gone.
            let is_read = !self.backend.is_erasure() && active.ops.is_being_read(&object.to_head());
            if self.pending.unapplied.contains(&object) || is_read {
                continue; // it is unfound again in a moment, and may be marked then
            }
            let lost = self.lost_part(&ctx.map, &object, &unfound);
            if lost.is_empty() {
                continue; // a holder has it after all
            }
            let older = self.newest_older(&object, &lost).filter(|_| !delete);
            let (done, what) = match older {
                Some(osd) => {
                    (self.revert(ctx, &object, lost, osd), format!("reverts to the version of osd.{osd}"))
                }
                None => (self.delete_lost(ctx, &object), "is deleted".into()),
            };
            match done {
                Ok(()) => {
                    ctx.log(Level::Warn, format!("pg {}: {object} was declared lost and {what}", self.id))
                }
                Err(error) => ctx.log(Level::Error, format!("pg {}: {object}: {error}", self.id)),
            }
            self.on_recovered(ctx, &object);
        }
        self.recover(ctx);
    }

    /// What of it no holder that is up gives.
    fn lost_part(&self, map: &OsdMap, object: &ObjectId, unfound: &Part) -> Part {
        let Phase::Active(active) = &self.phase else { return Part::default() };
        let Some(Stale { part, need, .. }) = self.history.missing.get(object) else {
            return undecodable((&self.backend, &self.interval), &self.history, &active.members, object);
        };
        let gives = |osd| map.is_up(osd) && !active.recovery.keeps_refusing(object, osd);
        let holders = active.holders(*need).filter(|(osd, _)| gives(*osd));
        let holders = holders.map(|(osd, missing)| (self.interval.shard_of(osd), missing));
        let lost = self.backend.unavailable(part.clone(), object, holders, self.shard());
        // Without metadata no holder gives anything else, and may have it all the same. With it, clones were
        // searched, too.
        if lost.meta { lost } else { lost.intersection(unfound) }
    }

    /// The member to whose copy an object reverts: if its metadata is here, this one. None if no member has
    /// an older copy.
    fn newest_older(&self, object: &ObjectId, lost: &Part) -> Option<OsdId> {
        if !lost.meta {
            return Some(self.me);
        }
        let Phase::Active(active) = &self.phase else { return None };
        let have = |missing: &Missing| missing.get(object).map(|stale| stale.have).unwrap_or_default();
        let others = active.members.iter().map(|(osd, member)| (have(&member.missing), *osd));
        let newest = others.chain([(have(&self.history.missing), self.me)]).max_by_key(|(have, osd)| {
            (*have, *osd == self.me) // which saves copying it
        });
        newest.filter(|(have, _)| *have > Version::ZERO).map(|(_, osd)| osd)
    }

    /// A write without bytes: from then on the other members lack that part, even those that have the newer
    /// content and come back later, and it is recovered from that OSD.
    fn revert(
        &mut self,
        ctx: &mut Ctx<'_>,
        object: &ObjectId,
        lost: Part,
        to: OsdId,
    ) -> Result<(), ReadError> {
        let version = self.history.next_version(self.interval.start);
        let user_version = self.history.info.last_user_version + 1;
        let mut prior = self.history.missing.get(object).map(|stale| stale.need).unwrap_or_default();
        let mut txn = Transaction::new();
        if !lost.meta
            && let Some(info) = ObjectInfo::load(ctx.store, object)?
        {
            prior = info.version;
            let info = ObjectInfo { version, user_version, ..info };
            txn.push(object.clone(), Change::SetAttrs([info.to_attr()].into()));
        }
        let (kind, others) = (EntryKind::Modify, Vec::new());
        let change =
            ObjectChange { kind, prior, others, txn, vanishes: false, objects: 0, clones: 0, bytes: 0 };
        let mut entry = self.history.own_entry(ctx.now.wall, version, object, user_version, &change);
        entry.acts = vec![Acts { object: None, acts: vec![Act::Revert { part: lost, to }] }];
        // How large it was is not known before it is read.
        self.history.info.estimated = true;
        self.submit(ctx, entry, change)
    }

    /// A write like any other: members that come back later learn of it from the log.
    fn delete_lost(&mut self, ctx: &mut Ctx<'_>, object: &ObjectId) -> Result<(), ReadError> {
        let version = self.history.next_version(self.interval.start);
        let change = self.deletion(ctx, object, version)?;
        let entry = self.history.own_entry(
            ctx.now.wall,
            version,
            object,
            self.history.info.last_user_version + 1,
            &change,
        );
        self.submit(ctx, entry, change)
    }

    fn deletion(
        &self,
        ctx: &Ctx<'_>,
        object: &ObjectId,
        version: Version,
    ) -> Result<ObjectChange, ReadError> {
        if object.snap == SnapId::HEAD && !self.history.missing.lacks_meta(object) {
            // It knows its clones, which stay.
            let env = Env {
                version,
                user_version: self.history.info.last_user_version + 1,
                mtime: ctx.now.wall,
                return_vector: false,
                caller: Caller {
                    name: EntityName::osd(self.me),
                    addr: EntityAddr::default(),
                    now: ctx.now.wall,
                },
                notify_id: 0,
                rules: PoolRules::default(),
            };
            let (context, removed) = (SnapContext::default(), IntervalSet::new());
            let snaps = Snaps { at: SnapId::HEAD, context: &context, ordered: false, removed: &removed };
            let ops = [FlaggedOp::new(Op::Delete, 0, true)];
            let whole = WholeObjects(ctx.store);
            let store: &dyn StoreView = if self.backend.is_erasure() { &whole } else { ctx.store };
            if let Outcome::Done(done) = execute(store, object, &ops, &env, &snaps, &Fetched::default())?
                && done.result >= 0
            {
                return Ok(done.change);
            }
        }
        let mut txn = Transaction::new();
        let info =
            if self.history.missing.lacks_meta(object) { None } else { ObjectInfo::load(ctx.store, object)? };
        if let Some(info) = info.filter(|_| object.snap != SnapId::HEAD) {
            snap_index::remove(object, &info.snaps, &mut txn);
        }
        txn.push(object.clone(), Change::Remove);
        let need = self.history.missing.get(object).map(|stale| stale.need).unwrap_or_default();
        let clones = if object.snap == SnapId::HEAD { 0 } else { -1 };
        let (kind, others) = (EntryKind::Delete, Vec::new());
        Ok(ObjectChange { kind, prior: need, others, txn, vanishes: true, objects: -1, clones, bytes: 0 })
    }
}

impl History {
    /// The object goes back to what is here of that part.
    pub fn take_reverted(
        &mut self,
        store: &dyn StoreView,
        entry: &LogEntry,
        part: &Part,
        txn: &mut Transaction,
    ) -> BTreeSet<ObjectId> {
        let object = &entry.object;
        match revert_here(store, object, entry, part, txn) {
            Some(size) => self.missing.got(object, part, Some(size)),
            // It is unfound again: the primary learns this when it pulls the object.
            None => self.missing.add(object, entry.version, part),
        }
        [object.clone()].into()
    }
}

/// What is here of that part of an object, older than it should be, counts as right from that entry on:
/// metadata says so. Gives the object's size; none if it is not here.
pub fn revert_here(
    store: &dyn StoreView,
    object: &ObjectId,
    entry: &LogEntry,
    part: &Part,
    txn: &mut Transaction,
) -> Option<u64> {
    let info = ObjectInfo::load(store, object).ok()??;
    let size = store.stat(&object.clone().into()).ok()??.size;
    if part.meta {
        let info = ObjectInfo { version: entry.version, user_version: entry.user_version, ..info };
        txn.push(object.clone(), Change::SetAttrs([info.to_attr()].into()));
    }
    Some(size)
}
