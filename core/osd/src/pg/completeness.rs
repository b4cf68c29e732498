//! How complete the members' copies are. The states clean, degraded, misplaced and backfilling follow from
//! this.

use super::Interval;
use super::active::Member;
use super::history::missing::Missing;
use super::recovery::is_whole;
use super::remap::is_too_full;
use nacre_base::OsdId;
use nacre_proto::maps::OsdMap;
use std::collections::BTreeMap;

/// A view of the placement group, as the primary sees it.
#[derive(Clone, Copy)]
pub struct Completeness<'a> {
    pub me: OsdId,
    pub interval: &'a Interval,
    /// What the primary itself lacks.
    pub own: &'a Missing,
    /// The other members. None while the placement group is not active: then nothing is known of them.
    pub members: Option<&'a BTreeMap<OsdId, Member>>,
}

impl<'a> Completeness<'a> {
    /// The missing sets of the other members.
    fn others(&self) -> impl Iterator<Item = &'a Missing> + Clone + use<'a> {
        self.members.into_iter().flatten().map(|(_, member)| &member.missing)
    }
    /// No member lacks anything.
    pub fn is_whole(&self) -> bool {
        self.members.is_some() && self.own.is_empty() && self.others().all(Missing::is_empty)
    }
    /// Every member has everything, and there are as many members as there should be, where they should be.
    pub fn is_clean(&self) -> bool {
        self.is_whole() && self.interval.members_len() >= self.interval.size && self.interval.is_settled()
    }
    pub fn is_complete(&self, osd: OsdId) -> bool {
        let Some(members) = self.members else { return false };
        match osd == self.me {
            true => self.own.is_empty(),
            false => members.get(&osd).is_some_and(|member| member.missing.is_empty()),
        }
    }
    /// Members that lack nothing.
    fn complete_members(&self) -> usize {
        self.interval.acting.iter().filter(|osd| self.is_complete(**osd)).count()
    }
    /// There are as many whole copies as there should be, and they are not where CRUSH places them.
    pub fn is_only_misplaced(&self) -> bool {
        !self.interval.is_settled() && self.complete_members() >= self.interval.size
    }
    /// Some member has yet to get objects of which it has nothing.
    pub fn is_backfilling(&self) -> bool {
        let all = self.others().chain([self.own]);
        let mut last = all.filter_map(|missing| missing.iter().next_back());
        self.members.is_some() && last.any(|(_, stale)| is_whole(&stale.part))
    }
    /// A member lacks something, and its disk is too full for it.
    pub fn has_full_member(&self, map: &OsdMap) -> bool {
        let full = |(osd, member): (&OsdId, &Member)| !member.missing.is_empty() && is_too_full(map, *osd);
        self.members.into_iter().flatten().any(full)
    }

    /// Copies of objects that are missing, and copies that are only not where they should be.
    pub fn degraded_and_misplaced(&self, objects: u64) -> (u64, u64) {
        let Interval { size, .. } = self.interval;
        let members = self.interval.members_len();
        if self.complete_members() >= members.max(*size) && self.interval.serves_as_placed() {
            return (0, 0);
        }
        let missing = self.others().map(|missing| missing.len() as u64).chain([self.own.len() as u64]);
        let all: u64 = missing.clone().sum();
        // Members beyond those that there should be, which lack most, are on top of a whole set.
        let beyond: u64 = match missing.clone().count().saturating_sub(*size) {
            0 => 0,
            beyond => {
                let mut missing: Vec<u64> = missing.collect();
                missing.sort_unstable();
                missing.iter().rev().take(beyond).sum()
            }
        };
        let absent = objects * size.saturating_sub(members) as u64;
        let targets = objects * self.interval.backfill_targets().count() as u64;
        (all - beyond + absent, beyond + targets.saturating_sub(absent))
    }
}
