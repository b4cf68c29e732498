//! The scrub verdict of a replicated pool: whether the copies of one object agree, which of them is right,
//! and what to replace.
//!
//! Right is a copy that can be read, of the newest version there is, and among those what most have.

use nacre_base::{Name, OsdId, Version};
use nacre_proto::messages::part::{Part, Stale};
use nacre_proto::messages::scrub::{BadObject, ScrubEntry, ScrubSum, Shard, scrub_error as is};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// What there is of an object, by member. None: nothing.
pub type Copies = BTreeMap<OsdId, Option<ScrubEntry>>;
/// Checksums of the same piece of an object, by member.
pub type Sums = BTreeMap<OsdId, ScrubSum>;

/// Whether the metadata shows nothing wrong.
pub fn is_consistent(copies: &Copies) -> bool {
    let mut all = copies.values();
    let Some(Some(first)) = all.next() else { return copies.is_empty() };
    first.errors == 0 && all.all(|copy| copy.as_ref() == Some(first))
}

/// What came of reading all copies.
#[derive(Debug, Default)]
pub struct Content {
    /// Pieces that are not the same everywhere, or cannot be read somewhere.
    pub data: Vec<(Range<u64>, Sums)>,
    pub omap: Vec<((Name, Option<Name>), Sums)>,
    /// In some piece a shard of an erasure-coded object is wrong, and it is not known which.
    pub unlocated: bool,
    /// Checksums of all data and all pairs of each member, where they could be read.
    pub digests: BTreeMap<OsdId, (Option<u32>, Option<u32>)>,
}

impl Content {
    pub fn is_consistent(&self) -> bool {
        self.data.is_empty() && self.omap.is_empty() && !self.unlocated
    }
}

/// Whether all members have the same there.
pub fn is_same(sums: &Sums) -> bool {
    let content = |sum: &ScrubSum| match sum {
        ScrubSum::Of { sum, .. } => Some(*sum),
        _ => None,
    };
    let mut all = sums.values().map(content);
    let first = all.next().flatten();
    first.is_some() && all.all(|sum| sum == first)
}

/// What to repair, and whether that is everything that is wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairPlan {
    pub stale: BTreeMap<OsdId, Stale>,
    /// How many copies are wrong as metadata shows, and how many as only their content shows.
    pub shallow: u64,
    pub deep: u64,
    /// There is no right copy of some of it.
    pub unrepairable: bool,
}

impl RepairPlan {
    /// The object has that version by now, and what is wrong in a copy of it is still wrong.
    pub fn is_of(&mut self, version: Version) {
        self.stale.values_mut().for_each(|stale| stale.need = stale.need.max(version));
    }
}

/// What is wrong with an object; None if nothing is.
pub fn verdict(copies: &Copies, content: &Content, primary: OsdId) -> Option<(BadObject, RepairPlan)> {
    if (is_consistent(copies) && content.is_consistent()) || copies.values().all(Option::is_none) {
        return None;
    }
    let sound = |copy: &Option<ScrubEntry>| copy.clone().filter(|entry| entry.errors == 0);
    let readable = |osd: &OsdId| {
        let pieces =
            content.data.iter().map(|(_, sums)| sums).chain(content.omap.iter().map(|(_, sums)| sums));
        pieces.into_iter().all(|sums| matches!(sums.get(osd), Some(ScrubSum::Of { .. }) | None))
    };
    let agreeing = |entry: &ScrubEntry| {
        copies.values().filter(|copy| copy.as_ref().is_some_and(|c| same(c, entry))).count()
    };
    let selected = copies
        .iter()
        .filter_map(|(osd, copy)| Some((*osd, sound(copy)?)))
        .max_by_key(|(osd, entry)| (entry.version, agreeing(entry), readable(osd), *osd == primary, -osd.0));
    let right = selected.as_ref().map(|(_, entry)| entry);
    let is_wrong =
        |copy: &Option<ScrubEntry>| !right.is_some_and(|right| sound(copy).is_some_and(|c| same(&c, right)));
    let whole: BTreeSet<OsdId> =
        copies.iter().filter(|(_, copy)| is_wrong(copy)).map(|(osd, _)| *osd).collect();

    let mut bad =
        BadObject { user_version: right.map_or(0, |entry| entry.user_version), ..BadObject::default() };
    for copy in copies.values().flatten().filter(|copy| copy.errors == 0) {
        bad.errors |= right.map_or(0, |right| differences(copy, right));
    }
    // A shard of another version, or of another length, does not fit either.
    let unlocated = content.unlocated && whole.is_empty();
    if unlocated || content.data.iter().any(|(_, sums)| differ(sums)) {
        bad.errors |= is::object::DATA_DIGEST;
    }
    if content.omap.iter().any(|(_, sums)| differ(sums)) {
        bad.errors |= is::object::OMAP_DIGEST;
    }
    for (osd, copy) in copies {
        let mut shard = shard_of(copy.as_ref());
        if copy.is_some() {
            (shard.data_digest, shard.omap_digest) = content.digests.get(osd).copied().unwrap_or_default();
        }
        if copy.is_some() && !readable(osd) {
            shard.errors |= is::shard::READ;
        }
        shard.primary = *osd == primary;
        shard.selected = selected.as_ref().is_some_and(|(selected, _)| selected == osd);
        bad.shards.insert(*osd, shard);
    }
    let mut plan = plan(&whole, content, copies, right.map(|entry| entry.version), primary);
    if unlocated {
        // What is computed from wrong shards is wrong.
        let RepairPlan { shallow, deep, .. } = plan;
        plan = RepairPlan { unrepairable: true, shallow, deep: deep + 1, ..RepairPlan::default() };
    }
    Some((bad, plan))
}

/// The same metadata, values of attributes aside: their checksums tell.
fn same(one: &ScrubEntry, other: &ScrubEntry) -> bool {
    differences(one, other) == 0 && one.omap_header == other.omap_header
}

fn differences(copy: &ScrubEntry, right: &ScrubEntry) -> u64 {
    let mut errors = 0;
    if copy.version != right.version || copy.user_version != right.user_version {
        errors |= is::object::INFO;
    }
    if copy.size != right.size {
        errors |= is::object::SIZE;
    }
    if !copy.attrs.keys().eq(right.attrs.keys()) {
        errors |= is::object::ATTR_NAME;
    }
    let differs =
        |(name, (sum, _)): (&Name, &(u32, _))| copy.attrs.get(name).is_some_and(|(own, _)| own != sum);
    if right.attrs.iter().any(differs) {
        errors |= is::object::ATTR_VALUE;
    }
    errors
}

/// Whether two that can be read differ.
fn differ(sums: &Sums) -> bool {
    let readable: BTreeSet<u32> = sums
        .values()
        .filter_map(|sum| match sum {
            ScrubSum::Of { sum, .. } => Some(*sum),
            _ => None,
        })
        .collect();
    readable.len() > 1
}

fn shard_of(copy: Option<&ScrubEntry>) -> Shard {
    let Some(entry) = copy else { return Shard { errors: is::shard::MISSING, ..Shard::default() } };
    let values = entry.attrs.iter().filter_map(|(name, (_, value))| Some((name.clone(), value.clone()?)));
    Shard {
        errors: entry.errors,
        size: entry.size,
        version: entry.version,
        user_version: entry.user_version,
        mtime: entry.mtime,
        attrs: values.collect(),
        ..Shard::default()
    }
}

/// Of copies whose metadata is wrong everything is replaced, of others the pieces that are wrong.
fn plan(
    wrong: &BTreeSet<OsdId>,
    content: &Content,
    copies: &Copies,
    version: Option<Version>,
    primary: OsdId,
) -> RepairPlan {
    let unreadable = |osd: &&OsdId| {
        let pieces =
            content.data.iter().map(|(_, sums)| sums).chain(content.omap.iter().map(|(_, sums)| sums));
        pieces.into_iter().any(|sums| sums.get(osd) == Some(&ScrubSum::Unreadable))
    };
    let unrepairable = || {
        let (shallow, deep) = (wrong.len() as u64, copies.keys().filter(unreadable).count() as u64);
        // Some copy is wrong, though it is not known which.
        RepairPlan {
            unrepairable: true,
            shallow,
            deep: if shallow == 0 { deep.max(1) } else { 0 },
            ..RepairPlan::default()
        }
    };
    let Some(need) = version else { return unrepairable() };
    let mut whole = wrong.clone();
    loop {
        let Some(parts) = parts(wrong, &whole, content, primary) else { return unrepairable() };
        if whole.len() == copies.len() {
            return unrepairable();
        }
        // A range of keys without an end cannot be replaced alone.
        let endless: Vec<OsdId> = parts
            .iter()
            .filter(|(_, part)| part.omap.iter().any(|(_, end)| end.is_none()))
            .map(|(osd, _)| *osd)
            .collect();
        if endless.is_empty() {
            let mut stale: BTreeMap<OsdId, Stale> = parts
                .into_iter()
                .map(|(osd, part)| (osd, Stale { need, part, was_wrong: true, ..Stale::default() }))
                .collect();
            stale.extend(whole.iter().map(|osd| (*osd, Stale::everything(need))));
            let shallow = wrong.len() as u64;
            return RepairPlan { deep: stale.len() as u64 - shallow, stale, shallow, unrepairable: false };
        }
        whole.extend(endless);
    }
}

/// What to replace of copies that are not replaced as a whole; None if no right copy has some of it.
fn parts(
    wrong: &BTreeSet<OsdId>,
    whole: &BTreeSet<OsdId>,
    content: &Content,
    primary: OsdId,
) -> Option<BTreeMap<OsdId, Part>> {
    let mut parts: BTreeMap<OsdId, Part> = BTreeMap::new();
    for (range, sums) in &content.data {
        for osd in wrong_in(sums, wrong, whole, primary)? {
            parts.entry(osd).or_default().data.insert(range.clone());
        }
    }
    for ((from, to), sums) in &content.omap {
        for osd in wrong_in(sums, wrong, whole, primary)? {
            parts.entry(osd).or_default().omap.insert(from.clone(), to.clone());
        }
    }
    Some(parts)
}

/// The members that differ from what most have, among those that keep their copies. Copies whose metadata is
/// wrong have no vote.
fn wrong_in(
    sums: &Sums,
    wrong: &BTreeSet<OsdId>,
    whole: &BTreeSet<OsdId>,
    primary: OsdId,
) -> Option<Vec<OsdId>> {
    let keeps = |osd: &OsdId| !whole.contains(osd);
    let mut groups: BTreeMap<u32, BTreeSet<OsdId>> = BTreeMap::new();
    for (osd, sum) in sums.iter().filter(|(osd, _)| !wrong.contains(osd)) {
        if let ScrubSum::Of { sum, .. } = sum {
            groups.entry(*sum).or_default().insert(*osd);
        }
    }
    let kept = groups.into_values().filter(|osds| osds.iter().any(keeps));
    let right = kept.max_by_key(|osds| (osds.len(), osds.contains(&primary)))?;
    Some(sums.keys().copied().filter(|osd| keeps(osd) && !right.contains(osd)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_base::{Epoch, PoolId};
    use nacre_proto::types::ObjectId;

    fn entry(version: u64) -> ScrubEntry {
        let object = ObjectId::head(PoolId(1), "".into(), "".into(), "o".into());
        let attrs = [("_".into(), (version as u32, None))].into();
        let version = Version::new(Epoch(1), version);
        ScrubEntry { size: 10, version, attrs, ..ScrubEntry::new(object) }
    }
    fn copies<const N: usize>(all: [Option<ScrubEntry>; N]) -> Copies {
        all.into_iter().enumerate().map(|(n, copy)| (OsdId(n as i32), copy)).collect()
    }
    fn sums<const N: usize>(all: [u32; N]) -> Sums {
        let of = |sum| if sum == 0 { ScrubSum::Unreadable } else { ScrubSum::Of { sum, chain: sum } };
        all.into_iter().enumerate().map(|(n, sum)| (OsdId(n as i32), of(sum))).collect()
    }
    fn wrong(plan: &RepairPlan) -> Vec<(i32, bool)> {
        plan.stale.iter().map(|(osd, stale)| (osd.0, stale.part.meta)).collect()
    }

    #[test]
    fn copies_that_are_the_same_are_no_finding() {
        let all = copies([Some(entry(3)), Some(entry(3))]);
        assert!(verdict(&all, &Content::default(), OsdId(0)).is_none());
        assert!(verdict(&copies([None, None]), &Content::default(), OsdId(0)).is_none());
    }

    #[test]
    fn the_newest_version_is_right_even_if_most_have_an_older_one() {
        let all = copies([Some(entry(3)), Some(entry(4)), Some(entry(3))]);
        let (bad, plan) = verdict(&all, &Content::default(), OsdId(0)).unwrap();
        assert_eq!(bad.errors, is::object::INFO | is::object::ATTR_VALUE);
        assert_eq!(wrong(&plan), [(0, true), (2, true)]);
        assert!(bad.shards[&OsdId(1)].selected && !bad.shards[&OsdId(0)].selected);
        assert_eq!((plan.shallow, plan.deep), (2, 0));
    }

    #[test]
    fn of_one_version_most_are_right_and_a_missing_copy_is_named() {
        let odd = ScrubEntry { size: 11, ..entry(3) };
        let all = copies([Some(odd), Some(entry(3)), Some(entry(3)), None]);
        let (bad, plan) = verdict(&all, &Content::default(), OsdId(0)).unwrap();
        assert_eq!(bad.errors, is::object::SIZE);
        assert_eq!(wrong(&plan), [(0, true), (3, true)]);
        assert_eq!(bad.shards[&OsdId(3)].errors, is::shard::MISSING);
    }

    #[test]
    fn of_content_only_the_pieces_that_differ_are_replaced() {
        let all = copies([Some(entry(3)), Some(entry(3)), Some(entry(3))]);
        let data = vec![(0..8, sums([7, 7, 9])), (8..10, sums([0, 5, 5]))];
        let (bad, plan) = verdict(&all, &Content { data, ..Content::default() }, OsdId(0)).unwrap();
        assert_eq!(bad.errors, is::object::DATA_DIGEST);
        assert_eq!(wrong(&plan), [(0, false), (2, false)]);
        assert_eq!(plan.stale[&OsdId(0)].part.data, (8..10).into());
        assert_eq!(bad.shards[&OsdId(0)].errors, is::shard::READ);
        assert_eq!((plan.shallow, plan.deep), (0, 2));
    }

    #[test]
    fn keys_behind_the_last_are_replaced_with_all_of_the_copy() {
        let all = copies([Some(entry(3)), Some(entry(3)), Some(entry(3))]);
        let omap =
            vec![(("k".into(), None), sums([7, 7, 9])), (("a".into(), Some("k".into())), sums([6, 5, 5]))];
        let (bad, plan) = verdict(&all, &Content { omap, ..Content::default() }, OsdId(0)).unwrap();
        assert_eq!(bad.errors, is::object::OMAP_DIGEST);
        assert_eq!((wrong(&plan), plan.deep), (vec![(0, false), (2, true)], 2));
    }

    #[test]
    fn scrub_leaves_objects_without_a_good_copy_alone() {
        let all = copies([Some(entry(3)), Some(entry(3))]);
        let data = vec![(0..8, sums([0, 0]))];
        let (bad, plan) = verdict(&all, &Content { data, ..Content::default() }, OsdId(0)).unwrap();
        assert!(plan.unrepairable && plan.stale.is_empty());
        assert_eq!((bad.errors, plan.shallow, plan.deep), (0, 0, 2));
        // The only copy whose metadata is right has a piece that cannot be read.
        let all = copies([Some(entry(4)), Some(entry(3))]);
        let data = vec![(0..8, sums([0, 5]))];
        assert!(verdict(&all, &Content { data, ..Content::default() }, OsdId(0)).unwrap().1.unrepairable);
        // Two copies, two contents: the primary's is kept.
        let all = copies([Some(entry(3)), Some(entry(3))]);
        let data = vec![(0..8, sums([4, 5]))];
        let content = Content { data, ..Content::default() };
        assert_eq!(wrong(&verdict(&all, &content, OsdId(1)).unwrap().1), [(0, false)]);
    }
}
