//! Splits a leaf that has many keys: cut first, move behind.
//!
//! ```text
//! Count      how many keys the leaf has, and which is in the middle
//! Create     the new leaf, whose source is the old one
//! Cut        the old leaf ends at the middle, and names the new one. Writes go there from now on, and reads
//!            look there first
//! Publish    the new leaf is in the map
//! Copy       keys that the new leaf neither has nor had, some at a time
//! Finish     the new leaf has no source any more
//! Sweep      tombstones in the new leaf, and the keys in the old one that others have now
//! ```
//!
//! Each step can be done again, also by another gateway, and at the same time: a copy compares that the key
//! is still absent, and the new leaf's generation, which rises when it has no source any more. Writers never
//! wait.

use super::{OpResult, Place, Refusal, is_canceled, output};
use crate::leaf::{
    BEHIND, GENERATION, LeafName, LeafRange, RANGE, cell_of, compare_all, create_leaf, head_of, key_of,
    map_key, named, pairs, tombstone_key,
};
use crate::tag::Tag;
use bytes::Bytes;
use nacre_base::{Name, errno};
use nacre_client::{Compare, ObjectRequest};
use nacre_proto::types::Op;
use nacre_wire::{from_slice, to_vec};
use std::collections::BTreeMap;

/// When leaves are split.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// A leaf with more keys is split.
    pub leaf_max: usize,
    /// After so many new keys the gateway counts.
    pub count_after: usize,
    /// How many keys are copied at once: as many heads are in memory.
    pub copy: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { leaf_max: 10_000, count_after: 2_000, copy: 100 }
    }
}

/// What is copied, in this order: entries, old versions, histories and uploads.
const KINDS: &[u8] = b"evmu";
/// What is counted. Versions and delete markers take as much room as objects.
const COUNTED: &[u8] = b"emv";

/// What comes behind a kind of names.
fn next_kind(kinds: &[u8], kind: u8) -> Option<u8> {
    let at = kinds.iter().position(|other| *other == kind)?;
    kinds.get(at + 1).copied()
}

/// How many keys are read or removed at once.
const PAGE: u64 = 1000;
/// About as many keys are remembered while they are counted.
const SAMPLE: usize = 1000;

/// A split at work.
#[derive(Debug)]
pub struct Split {
    old: LeafName,
    limits: Limits,
    tag: Tag,
    step: Step,
}

#[derive(Debug)]
enum Step {
    Count(Counting),
    Create {
        cut: Bytes,
        range: LeafRange,
    },
    Cut {
        cut: Bytes,
        range: LeafRange,
    },
    /// The old leaf has changed meanwhile, and the new one is of no use.
    Discard,
    Publish(NewLeaf),
    /// Which names come next.
    List(Copying),
    /// Their heads.
    Heads(Copying, BTreeMap<Name, Bytes>),
    /// Which of them the new leaf lacks.
    Compare(Copying, BTreeMap<Name, Bytes>),
    Write(Copying, BTreeMap<Name, Bytes>),
    Finish(NewLeaf),
    ListTombstones(NewLeaf),
    RemoveTombstones(NewLeaf, Vec<Name>),
    ListOld(NewLeaf, u8),
    RemoveOld(NewLeaf, u8, Vec<Name>),
    /// Reads a leaf that another gateway has left half done.
    Resume(LeafName),
}

/// How far the count of a leaf is.
#[derive(Debug)]
struct Counting {
    kind: u8,
    /// The range of the leaf when its first page was read. All pages must be of the same generation.
    range: Option<LeafRange>,
    after: Name,
    count: usize,
    sample: Vec<Bytes>,
}

impl Default for Counting {
    fn default() -> Counting {
        Counting { kind: COUNTED[0], range: None, after: Name::default(), count: 0, sample: Vec::new() }
    }
}

/// The leaf that takes keys over.
#[derive(Clone, Debug)]
struct NewLeaf {
    name: LeafName,
    range: LeafRange,
}

/// How far the copy is.
#[derive(Clone, Debug)]
struct Copying {
    leaf: NewLeaf,
    kind: u8,
    after: Name,
    more: bool,
}

/// What follows a step.
#[derive(Debug)]
pub enum SplitStep {
    Continue,
    Done,
}

fn before(kind: u8, key: &[u8]) -> Name {
    // The last of what comes before the key: keys with its prefix and less.
    match key.split_last() {
        None => Name::from(&[kind][..]),
        Some((0, rest)) => named(kind, rest),
        Some((last, rest)) => named(kind, &[rest, &[last - 1, BEHIND, BEHIND]].concat()),
    }
}

impl NewLeaf {
    fn has(&self, name: &Name) -> bool {
        // The names of uploads and old versions have their key in front of a zero.
        let key = key_of(name).split(|byte| *byte == 0).next().unwrap_or_default();
        self.range.contains(key)
    }
    fn copying(self, kind: u8) -> Copying {
        let after = before(kind, &self.range.low);
        Copying { leaf: self, kind, after, more: true }
    }
}

impl Split {
    /// Counts the keys of a leaf, and splits it if there are too many.
    pub fn new(leaf: LeafName, limits: Limits, tag: Tag) -> Split {
        Split { old: leaf, limits, tag, step: Step::Count(Counting::default()) }
    }

    /// Goes on with a leaf that takes keys over from `old`.
    pub fn resume(leaf: LeafName, old: LeafName, limits: Limits, tag: Tag) -> Split {
        Split { old, limits, tag, step: Step::Resume(leaf) }
    }

    /// The leaf that it makes, if it makes one.
    pub fn new_name(&self, place: &Place) -> LeafName {
        LeafName::new(&place.bucket, self.tag)
    }

    /// The request of the next step.
    pub fn request(&self, place: &Place) -> ObjectRequest {
        let object = |leaf: &LeafName| ObjectRequest::new(place.pool, leaf.0.as_str());
        let page = |leaf: &LeafName, after: &Name, max: u64, kind: u8| {
            let prefix = Name::from(&[kind][..]);
            object(leaf).op(Op::OmapGetVals { after: after.clone(), max, prefix })
        };
        match &self.step {
            Step::Count(counting) => {
                let prefix = Name::from(&[counting.kind][..]);
                let pairs = Op::OmapGetVals { after: counting.after.clone(), max: PAGE, prefix };
                object(&self.old).get_xattr(RANGE).op(pairs)
            }
            Step::Create { cut, range } => {
                let NewLeaf { name, range } = self.new_leaf(place, cut, range);
                create_leaf(place.pool, &name, &range)
            }
            Step::Cut { cut, range } => {
                let right = Some(self.new_leaf(place, cut, range).name);
                let ends = LeafRange { high: Some(cut.clone()), right, ..range.next_generation() };
                ends.replace(range.generation, object(&self.old))
            }
            Step::Discard => object(&self.new_name(place)).remove(),
            Step::Publish(leaf) => {
                let pair = (map_key(&leaf.range.low), Bytes::from(to_vec(&leaf.name)));
                ObjectRequest::new(place.pool, LeafName::root(&place.bucket)).omap_set([pair])
            }
            Step::Resume(name) => object(name).get_xattr(RANGE),
            Step::List(copying) => page(&self.old, &copying.after, self.limits.copy, copying.kind),
            Step::Heads(_, pairs) => {
                let heads = pairs.keys().filter_map(head_of);
                object(&self.old).omap_get_keys(heads.collect())
            }
            Step::Compare(copying, pairs) => {
                let cells = pairs.keys().filter(|name| !is_head(name));
                let keys = cells.flat_map(|name| [tombstone_key(name), name.clone()]).collect();
                object(&copying.leaf.name).get_xattr(RANGE).omap_get_keys(keys)
            }
            Step::Write(copying, pairs) => {
                let cells = pairs.keys().filter(|name| !is_head(name));
                let absent = cells.flat_map(|name| [tombstone_key(name), name.clone()]);
                object(&copying.leaf.name)
                    .compare_xattr(GENERATION, Compare::Equal, copying.leaf.range.generation.to_string())
                    .op(compare_all(absent.map(|name| (name, Bytes::new()))))
                    .omap_set(pairs.clone())
            }
            Step::Finish(leaf) => {
                let alone = LeafRange { source: None, ..leaf.range.next_generation() };
                alone.replace(leaf.range.generation, object(&leaf.name))
            }
            Step::ListTombstones(leaf) => page(&leaf.name, &Name::default(), PAGE, b't'),
            Step::RemoveTombstones(leaf, names) => object(&leaf.name).omap_remove(names.clone()),
            Step::ListOld(leaf, kind) => page(&self.old, &before(*kind, &leaf.range.low), PAGE, *kind),
            Step::RemoveOld(_, _, names) => object(&self.old).omap_remove(names.clone()),
        }
    }

    fn new_leaf(&self, place: &Place, cut: &Bytes, old: &LeafRange) -> NewLeaf {
        let range = LeafRange {
            low: cut.clone(),
            high: old.high.clone(),
            generation: 1,
            right: old.right.clone(),
            source: Some(self.old.clone()),
            is_sealed: false,
        };
        NewLeaf { name: self.new_name(place), range }
    }

    /// Takes the result of a step. A failure ends the split: another one goes on with it.
    pub fn completed(&mut self, place: &Place, result: OpResult) -> SplitStep {
        match self.next(place, result) {
            Ok(Some(step)) => {
                self.step = step;
                SplitStep::Continue
            }
            Ok(None) | Err(_) => SplitStep::Done,
        }
    }

    fn next(&mut self, place: &Place, result: OpResult) -> Result<Option<Step>, Refusal> {
        let step = std::mem::replace(&mut self.step, Step::Discard);
        let reply = match (result, &step) {
            (Ok(reply), _) => reply,
            (Err(failure), Step::Cut { .. }) if is_canceled(&failure) => return Ok(Some(Step::Discard)),
            (Err(failure), Step::Write(..)) if is_canceled(&failure) => {
                let Step::Write(copying, pairs) = step else { return Ok(None) };
                return Ok(Some(Step::Compare(copying, pairs)));
            }
            (Err(failure), Step::Create { .. }) if failure.errno == errno::EEXIST => return Ok(None),
            (Err(failure), _) => return Err(failure.into()),
        };
        Ok(match step {
            Step::Count(counting) => {
                let range: LeafRange = from_slice(output(&reply, 0)?)?;
                if range.source.is_some() || range.is_sealed {
                    return Ok(None);
                }
                if counting.range.as_ref().is_some_and(|first| first.generation != range.generation) {
                    // Another gateway has cut the leaf: what was counted may not be in it any more.
                    return Ok(Some(Step::Count(Counting::default())));
                }
                let (found, more) = pairs(output(&reply, 1)?)?;
                self.count(range, found, more, counting)
            }
            Step::Create { cut, range } => Some(Step::Cut { cut, range }),
            Step::Cut { cut, range } => Some(Step::Publish(self.new_leaf(place, &cut, &range))),
            Step::Discard => None,
            Step::Publish(leaf) => Some(Step::List(leaf.copying(KINDS[0]))),
            Step::Resume(name) => {
                let range: LeafRange = from_slice(output(&reply, 0)?)?;
                let is_ours = range.source.as_ref() == Some(&self.old);
                // The map may lack it too.
                is_ours.then_some(Step::Publish(NewLeaf { name, range }))
            }
            Step::List(copying) => {
                let (found, more) = pairs(output(&reply, 0)?)?;
                listed(copying, found, more)
            }
            Step::Heads(copying, mut found) => {
                let heads: BTreeMap<Name, Bytes> = from_slice(output(&reply, 0)?)?;
                found.extend(heads);
                Some(Step::Compare(copying, found))
            }
            Step::Compare(mut copying, found) => {
                let range: LeafRange = from_slice(output(&reply, 0)?)?;
                if range.source.as_ref() != Some(&self.old) {
                    return Ok(None);
                }
                copying.leaf.range = range;
                let there: BTreeMap<Name, Bytes> = from_slice(output(&reply, 1)?)?;
                Some(lacking(copying, found, &there))
            }
            Step::Write(copying, _) => Some(next_page(copying)),
            Step::Finish(leaf) => Some(Step::ListTombstones(leaf)),
            Step::ListTombstones(leaf) => {
                match pairs(output(&reply, 0)?)?.0.into_keys().collect::<Vec<_>>() {
                    names if names.is_empty() => Some(Step::ListOld(leaf, KINDS[0])),
                    names => Some(Step::RemoveTombstones(leaf, names)),
                }
            }
            Step::RemoveTombstones(leaf, _) => Some(Step::ListTombstones(leaf)),
            Step::ListOld(leaf, kind) => {
                let names = pairs(output(&reply, 0)?)?.0.into_keys().filter(|name| leaf.has(name));
                let with_heads = names.flat_map(|name| {
                    let head = head_of(&name);
                    [Some(name), head].into_iter().flatten()
                });
                match with_heads.collect::<Vec<_>>() {
                    names if names.is_empty() => next_kind(KINDS, kind).map(|kind| Step::ListOld(leaf, kind)),
                    names => Some(Step::RemoveOld(leaf, kind, names)),
                }
            }
            Step::RemoveOld(leaf, kind, _) => Some(Step::ListOld(leaf, kind)),
        })
    }

    fn count(
        &self,
        range: LeafRange,
        found: BTreeMap<Name, Bytes>,
        more: bool,
        counting: Counting,
    ) -> Option<Step> {
        let Counting { kind, mut count, mut sample, .. } = counting;
        let last = found.keys().next_back().cloned();
        let stride = (self.limits.leaf_max / SAMPLE).max(1);
        for name in found.keys() {
            let key = key_of(name).split(|byte| *byte == 0).next().unwrap_or_default();
            if range.contains(key) {
                if count.is_multiple_of(stride) {
                    sample.push(Bytes::copy_from_slice(key));
                }
                count += 1;
            }
        }
        if let (true, Some(after)) = (more, last) {
            return Some(Step::Count(Counting { kind, range: Some(range), after, count, sample }));
        }
        if let Some(kind) = next_kind(COUNTED, kind) {
            let after = Name::default();
            return Some(Step::Count(Counting { kind, range: Some(range), after, count, sample }));
        }
        sample.sort_unstable();
        // One key may have more than half of the names. The cut is between keys.
        let (middle, lowest) = (sample.get(sample.len() / 2)?, sample.first()?);
        let cut = sample.iter().find(|key| *key >= middle && *key > lowest && **key > range.low)?.clone();
        if !range.contains(&cut) {
            return None;
        }
        (count > self.limits.leaf_max).then_some(Step::Create { cut, range })
    }
}

fn is_head(name: &Name) -> bool {
    cell_of(name) != *name
}

/// What follows when a page of the old leaf was read.
fn listed(mut copying: Copying, found: BTreeMap<Name, Bytes>, more: bool) -> Option<Step> {
    copying.more = more && found.keys().next_back().is_some_and(|name| copying.leaf.has(name));
    if let Some(last) = found.keys().next_back() {
        copying.after = last.clone();
    }
    let wanted: BTreeMap<Name, Bytes> =
        found.into_iter().filter(|(name, _)| copying.leaf.has(name)).collect();
    Some(match (wanted.is_empty(), copying.kind) {
        (true, _) => next_page(copying),
        (false, b'e' | b'v') => Step::Heads(copying, wanted),
        (false, _) => Step::Compare(copying, wanted),
    })
}

/// The pairs of keys that the new leaf neither has nor had.
fn lacking(copying: Copying, found: BTreeMap<Name, Bytes>, there: &BTreeMap<Name, Bytes>) -> Step {
    let is_known = |name: &Name| {
        let cell = cell_of(name);
        there.contains_key(&tombstone_key(&cell)) || there.contains_key(&cell)
    };
    let wanted: BTreeMap<Name, Bytes> = found.into_iter().filter(|(name, _)| !is_known(name)).collect();
    if wanted.is_empty() { next_page(copying) } else { Step::Write(copying, wanted) }
}

fn next_page(copying: Copying) -> Step {
    match (copying.more, next_kind(KINDS, copying.kind)) {
        (true, _) => Step::List(copying),
        (false, Some(kind)) => Step::List(copying.leaf.copying(kind)),
        (false, None) => Step::Finish(copying.leaf),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leaf::entry_key;
    use nacre_client::{ObjectReply, OpOutput};
    use nacre_wire::Encode;

    fn page(range: &LeafRange, keys: std::ops::Range<u32>, more: bool) -> ObjectReply {
        let pairs: BTreeMap<Name, Bytes> =
            keys.map(|n| (entry_key(format!("{n:05}").as_bytes()), Bytes::new())).collect();
        let mut found = to_vec(&pairs);
        more.encode(&mut found);
        let ops = [to_vec(range), found].map(|data| OpOutput { rval: 0, data: data.into() });
        ObjectReply { user_version: 1, version: Default::default(), ops: ops.into() }
    }

    /// Otherwise the cut could be at a key that another leaf has.
    #[test]
    fn count_begins_again_when_the_leaf_was_cut_meanwhile() {
        let place = Place { pool: nacre_base::PoolId(1), bucket: "b".into(), instance: 1 };
        let limits = Limits { leaf_max: 10, ..Limits::default() };
        let begin = || Split::new(LeafName::first("b"), limits, Tag { instance: 1, sequence: 1 });
        let whole = LeafRange::first();
        let cut = LeafRange { high: Some("00400".into()), generation: 2, ..LeafRange::first() };
        let mut split = begin();
        split.completed(&place, Ok(page(&whole, 0..1000, true)));
        split.completed(&place, Ok(page(&cut, 1000..1500, false)));
        assert_eq!(format!("{:?}", split.request(&place)), format!("{:?}", begin().request(&place)));
        // Counted again, it is cut in its own middle.
        split.completed(&place, Ok(page(&cut, 0..400, false)));
        // No histories and no old versions.
        split.completed(&place, Ok(page(&cut, 0..0, false)));
        split.completed(&place, Ok(page(&cut, 0..0, false)));
        assert!(matches!(&split.step, Step::Create { cut, .. } if cut == "00200"), "{:?}", split.step);
    }
}
