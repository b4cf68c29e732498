//! What to recover next, and where it is: an object waits for its older clones as long as those come, as the
//! ranges that it shares with them need not travel again.

use super::{Recovery, Scope};
use crate::ops::clone_of;
use crate::pg::active::Member;
use crate::pg::backend::erasure::{decodable, index};
use crate::pg::history::History;
use crate::pg::history::clone_overlap::{self, CloneOverlap};
use crate::pg::history::missing::Missing;
use nacre_base::{IntervalSet, OsdId, SnapId};
use nacre_machine::{ReadError, StoreView};
use nacre_proto::maps::OsdMap;
use nacre_proto::messages::part::{Part, Stale};
use nacre_proto::types::ObjectId;
use std::collections::{BTreeMap, BTreeSet};

/// How the primary gets what it lacks.
pub(super) enum Next {
    Pull(ObjectId, Part),
    /// It is here, under the names of its clones.
    Take(ObjectId, CloneOverlap),
}

/// The holder of what we lack, and under which snapshot's name it has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RecoverySource {
    pub osd: OsdId,
    snap: SnapId,
}

impl RecoverySource {
    /// The name under which it has what it gives of that object.
    pub fn name_of(&self, object: &ObjectId) -> ObjectId {
        clone_of(object, self.snap)
    }
}

impl Recovery {
    /// The holder that can give most of a part that we lack, and what of it. If none has it under the
    /// object's own name, it is looked for under the names of its clones, here too.
    pub(super) fn find_source(
        &self,
        pg: &Scope<'_>,
        (store, map): (&dyn StoreView, &OsdMap),
        object: &ObjectId,
        part: &Part,
        tried: &BTreeSet<RecoverySource>,
    ) -> Option<(RecoverySource, Part)> {
        let need = pg.history.missing.get(object).map(|stale| stale.need).unwrap_or_default();
        let members = pg.members.iter().map(|(osd, member)| (*osd, &member.missing));
        let holders = members.chain(self.lacking_sources(need));
        let others: Vec<(OsdId, &Missing)> = holders.filter(|(osd, _)| map.is_up(*osd)).collect();
        let under = |osd| RecoverySource { osd, snap: object.snap };
        let is_tried = |osd| tried.contains(&under(osd));
        if let Some(geometry) = pg.backend.geometry()
            && !part.meta
        {
            // Our own shard is computed from the others.
            let (me, shard) = (pg.history.me, index(pg.history.info.shard)?);
            let data = decodable(&geometry.code, &pg.shard_holders(), object, &part.data, shard);
            let has = Part { data, omap: part.omap.clone(), ..Part::default() };
            return (!is_tried(me) && !has.is_empty()).then_some((under(me), has));
        }
        let best = pg.backend.recovery_source(others.iter().copied(), object, part, is_tried);
        let best = best.map(|(osd, has)| (under(osd), has));
        if best.is_some() || part.meta {
            return best;
        }
        let everyone = others.iter().copied().chain([(pg.history.me, &pg.history.missing)]);
        let sources = under_other_names(pg, store, object, &part.data, everyone);
        sources.into_iter().find(|(source, _)| !tried.contains(source))
    }

    /// The first that we lack, that neither is on its way nor unfound, and that need not wait.
    pub(super) fn next_own(
        &self,
        pg: &Scope<'_>,
        store: &dyn StoreView,
        allowed: impl Fn(&ObjectId, &Stale) -> bool,
    ) -> Option<Next> {
        // What changed in this turn cannot be read before the next.
        let changed = &pg.pending.unapplied;
        let mut older: Option<&ObjectId> = None;
        for (object, stale) in pg.history.missing.iter().filter(|(object, stale)| allowed(object, stale)) {
            let waits = older.is_some_and(|older| older.is_of_same_head(object));
            older = Some(object).filter(|_| self.may_find(object, &stale.part));
            if waits || changed.contains(object) {
                continue;
            }
            let mut part = self.left_to_ask(object, stale.part.clone());
            if part.is_empty() {
                continue;
            }
            let head = object.to_head();
            if object.snap != SnapId::HEAD && pg.history.missing.lacks_meta(&head) && !changed.contains(&head)
            {
                // It records the ranges that its clones share.
                if !self.not_to_ask(&head).any(|part| part.meta) {
                    return Some(Next::Pull(head, Part::meta()));
                } else if self.may_find(&head, &Part::meta()) {
                    continue;
                }
            }
            let common = pg.history.own_overlap(store, object, &part.data);
            if !common.is_empty() && !pg.history.missing.lacks_meta(object) {
                return Some(Next::Take(object.clone(), common));
            }
            part.data.subtract(&clone_overlap::all(&common));
            if !part.is_empty() {
                return Some(Next::Pull(object.clone(), part));
            }
        }
        None
    }

    /// The same for another member.
    pub(super) fn next_of(
        &self,
        pg: &Scope<'_>,
        osd: OsdId,
        missing: &Missing,
        allowed: impl Fn(&Stale) -> bool,
    ) -> Option<ObjectId> {
        let mut older: Option<&ObjectId> = None;
        for (object, _) in missing.iter().filter(|(_, stale)| allowed(stale)) {
            let waits = older.is_some_and(|older| older.is_of_same_head(object));
            let send = self.pushes.get(&(object.clone(), osd));
            let comes = match send {
                Some(send) => !send.failed,
                None => pg.can_push(osd, missing, object),
            };
            older = Some(object).filter(|_| comes);
            if comes && send.is_none() && !waits && !pg.pending.unapplied.contains(object) {
                return Some(object.clone());
            }
        }
        None
    }

    /// What of that a member has under the names of the object's clones.
    pub fn member_overlap(
        &self,
        store: &dyn StoreView,
        history: &History,
        members: &BTreeMap<OsdId, Member>,
        osd: OsdId,
        object: &ObjectId,
        lacking: &IntervalSet,
    ) -> Result<CloneOverlap, ReadError> {
        match members.get(&osd) {
            Some(member) if !self.without_overlap.contains(&(object.clone(), osd)) => {
                history.overlap_with_clones(store, object, lacking, &member.missing)
            }
            _ => Ok(CloneOverlap::new()),
        }
    }
}

/// The holders of some of these bytes of an object as those of a clone next to it.
fn under_other_names<'a>(
    pg: &Scope<'_>,
    store: &dyn StoreView,
    object: &ObjectId,
    data: &IntervalSet,
    everyone: impl Iterator<Item = (OsdId, &'a Missing)> + Clone,
) -> Vec<(RecoverySource, Part)> {
    if pg.pending.unapplied.contains(&object.to_head()) {
        return Vec::new();
    }
    // That the head cannot be read is reported elsewhere.
    let neighbours = pg.history.overlap_with_neighbours(store, object, data).unwrap_or_default();
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
