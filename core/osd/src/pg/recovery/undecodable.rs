//! Objects of an erasure-coded placement group that the primary has its own shard of, while members lack
//! theirs, and too few shards are up to compute those: they are unfound as well.

use super::{LOOKED_FOR_MAX, LOOKED_FOR_RETRY, Recovery, Scope};
use crate::pg::Ctx;
use crate::pg::active::Member;
use crate::pg::backend::Backend;
use crate::pg::history::History;
use crate::pg::interval::Interval;
use nacre_base::OsdId;
use nacre_proto::messages::part::Part;
use nacre_proto::types::ObjectId;
use std::collections::{BTreeMap, BTreeSet};

impl Recovery {
    /// Notes some of them, and others the next time. While something is recovered there is time for it later.
    pub(super) fn look_for_undecodable(&mut self, pg: &Scope<'_>, ctx: &Ctx<'_>) {
        if pg.backend.geometry().is_none() {
            return;
        }
        let is_missing = |object: &ObjectId| {
            let of_members = || pg.members.values().any(|member| member.missing.get(object).is_some());
            pg.history.missing.get(object).is_some() || of_members()
        };
        self.unfound.retain(|object, _| is_missing(object));
        if !self.pushes.is_empty() || !self.pulls.is_empty() {
            return;
        }
        let start = self.looked_for_on_members.as_ref().map_or(pg.history.range.start(), ObjectId::following);
        let mut objects: BTreeSet<&ObjectId> = BTreeSet::new();
        for member in pg.members.values() {
            objects.extend(member.missing.from(&start).map(|(object, _)| object).take(LOOKED_FOR_MAX));
        }
        let objects: Vec<&ObjectId> = objects.into_iter().take(LOOKED_FOR_MAX).collect();
        self.looked_for_on_members =
            objects.last().filter(|_| objects.len() == LOOKED_FOR_MAX).copied().cloned();
        let retry = ctx.now.mono + LOOKED_FOR_RETRY;
        for object in objects.into_iter().filter(|object| pg.history.missing.get(object).is_none()) {
            let lost = undecodable((pg.backend, pg.interval), pg.history, pg.members, object);
            match lost.data.is_empty() {
                true => drop(self.unfound.remove(object)),
                false => self.note_unfound(object.clone(), &lost, retry),
            }
        }
    }
}

/// What members lack of an object that is here, and cannot be computed from the shards that are up.
pub fn undecodable(
    (backend, interval): (&Backend, &Interval),
    history: &History,
    members: &BTreeMap<OsdId, Member>,
    object: &ObjectId,
) -> Part {
    let mut lost = Part::default();
    for (osd, member) in members.iter().filter(|(_, member)| member.missing.get(object).is_some()) {
        let others = members.iter().map(|(osd, member)| (*osd, &member.missing));
        let all = others.chain([(history.me, &history.missing)]);
        let holders = all.map(|(osd, missing)| (interval.shard_of(osd), missing));
        let lacking = Part { data: member.missing.part(object).data, ..Part::default() };
        lost.data.add(&backend.unavailable(lacking, object, holders, interval.shard_of(*osd)).data);
    }
    lost
}
