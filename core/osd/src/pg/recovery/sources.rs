//! What to recover next, and who has it: an object waits for its older clones as long as those come, as what it has in common
//! with them need not travel again.

use super::super::active::Active;
use super::super::clone_overlap::{self, CloneOverlap};
use super::super::missing::Missing;
use super::super::{Ctx, Pg, Phase};
use crate::ops::clone_of;
use nacre_base::{IntervalSet, OsdId, SnapId};
use nacre_machine::ReadError;
use nacre_proto::messages::part::{Part, Stale};
use nacre_proto::types::ObjectId;
use std::collections::BTreeSet;

/// How we come by what we lack.
pub(super) enum Next {
    Pull(ObjectId, Part),
    /// It is here, under the names of its clones.
    Take(ObjectId, CloneOverlap),
}

/// Who has what we lack, and under which snapshot's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RecoverySource {
    pub osd: OsdId,
    snap: SnapId,
}

impl RecoverySource {
    /// What it calls what it gives of that object.
    pub fn name_of(&self, object: &ObjectId) -> ObjectId {
        clone_of(object, self.snap)
    }
}

impl Pg {
    /// Who can be asked for most of a part that we lack, and for what of it. Under the names of the object's clones it
    /// is looked for, here too, when nobody has it under its own.
    pub(super) fn find_source(
        &self,
        ctx: &Ctx<'_>,
        object: &ObjectId,
        part: &Part,
        tried: &BTreeSet<RecoverySource>,
    ) -> Option<(RecoverySource, Part)> {
        let Phase::Active(active) = &self.phase else { return None };
        let need = self.missing.get(object).map(|stale| stale.need).unwrap_or_default();
        let others: Vec<(OsdId, &Missing)> =
            active.holders(need).filter(|(osd, _)| ctx.map.is_up(*osd)).collect();
        let mut best: Option<(RecoverySource, Part)> = None;
        for (osd, missing) in &others {
            let source = RecoverySource { osd: *osd, snap: object.snap };
            let has = part.clone().without(&missing.part(object));
            if tried.contains(&source) || has.is_empty() || part.meta && !has.meta {
                continue;
            }
            if has == *part {
                return Some((source, has));
            }
            best.get_or_insert((source, has));
        }
        if best.is_some() || part.meta {
            return best;
        }
        let everyone = others.iter().copied().chain([(self.me, &self.missing)]);
        let sources = self.under_other_names(ctx, object, &part.data, everyone);
        sources.into_iter().find(|(source, _)| !tried.contains(source))
    }

    /// Who has some of these bytes of an object as those of a clone next to it.
    fn under_other_names<'a>(
        &self,
        ctx: &Ctx<'_>,
        object: &ObjectId,
        data: &IntervalSet,
        everyone: impl Iterator<Item = (OsdId, &'a Missing)> + Clone,
    ) -> Vec<(RecoverySource, Part)> {
        if self.unapplied.contains(&object.to_head()) {
            return Vec::new();
        }
        // If the head cannot be read, others tell of it.
        let neighbours = self.overlap_with_neighbours(ctx.store, object, data).unwrap_or_default();
        let mut sources = Vec::new();
        for (snap, same) in neighbours {
            for (osd, missing) in everyone.clone() {
                let source = RecoverySource { osd, snap };
                let data = clone_overlap::present(missing, &source.name_of(object), same.clone());
                if !data.is_empty() {
                    sources.push((source, Part { data, ..Part::default() }));
                }
            }
        }
        sources
    }

    /// The first that we lack, that neither is on its way nor unfound, and that need not wait.
    pub(super) fn next_own(
        &self,
        ctx: &Ctx<'_>,
        active: &Active,
        allowed: impl Fn(&ObjectId, &Stale) -> bool,
    ) -> Option<Next> {
        // What changed in this turn cannot be read before the next.
        let (changed, recovery) = (&self.unapplied, &active.recovery);
        let mut older: Option<&ObjectId> = None;
        for (object, stale) in self.missing.iter().filter(|(object, stale)| allowed(object, stale)) {
            let waits = older.is_some_and(|older| older.is_of_same_head(object));
            older = Some(object).filter(|_| recovery.may_find(object, &stale.part));
            if waits || changed.contains(object) {
                continue;
            }
            let mut part = recovery.left_to_ask(object, stale.part.clone());
            if part.is_empty() {
                continue;
            }
            let head = object.to_head();
            if object.snap != SnapId::HEAD && self.missing.lacks_meta(&head) && !changed.contains(&head) {
                // It says what its clones have in common.
                if !recovery.not_to_ask(&head).any(|part| part.meta) {
                    return Some(Next::Pull(head, Part::meta()));
                } else if recovery.may_find(&head, &Part::meta()) {
                    continue;
                }
            }
            let common = self.own_overlap(ctx.store, object, &part.data);
            if !common.is_empty() && !self.missing.lacks_meta(object) {
                return Some(Next::Take(object.clone(), common));
            }
            part.data.subtract(&clone_overlap::all(&common));
            if !part.is_empty() {
                return Some(Next::Pull(object.clone(), part));
            }
        }
        None
    }

    /// The same for a member.
    pub(super) fn next_of(
        &self,
        active: &Active,
        osd: OsdId,
        missing: &Missing,
        allowed: impl Fn(&Stale) -> bool,
    ) -> Option<ObjectId> {
        let mut older: Option<&ObjectId> = None;
        for (object, _) in missing.iter().filter(|(_, stale)| allowed(stale)) {
            let waits = older.is_some_and(|older| older.is_of_same_head(object));
            let send = active.recovery.pushes.get(&(object.clone(), osd));
            let comes = match send {
                Some(send) => !send.failed,
                None => self.can_send(missing, object),
            };
            older = Some(object).filter(|_| comes);
            if comes && send.is_none() && !waits && !self.unapplied.contains(object) {
                return Some(object.clone());
            }
        }
        None
    }

    /// What of that a member has under the names of the object's clones.
    pub fn member_overlap(
        &self,
        ctx: &Ctx<'_>,
        osd: OsdId,
        object: &ObjectId,
        lacking: &IntervalSet,
    ) -> Result<CloneOverlap, ReadError> {
        let Phase::Active(active) = &self.phase else { return Ok(CloneOverlap::new()) };
        match active.members.get(&osd) {
            Some(member) if !active.recovery.without_overlap.contains(&(object.clone(), osd)) => {
                self.overlap_with_clones(ctx.store, object, lacking, &member.missing)
            }
            _ => Ok(CloneOverlap::new()),
        }
    }

    /// Whether we have some of what a member lacks of an object.
    pub(super) fn can_send(&self, lacking: &Missing, object: &ObjectId) -> bool {
        !self.missing.lacks_meta(object)
            && !lacking.part(object).without(&self.missing.part(object)).is_empty()
    }
}
