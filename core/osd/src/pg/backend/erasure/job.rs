//! One gather: which bytes of which shards are read, whether they suffice, and what they give.

use super::{Geometry, Holder, Segment, segments};
use bytes::Bytes;
use nacre_base::{IntervalSet, OsdId, Time, Version};
use nacre_erasure::layout::Layout;
use nacre_proto::messages::part::Part;
use nacre_proto::types::ObjectId;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

/// Extents in one question of a member, at most.
const EXTENTS_MAX: usize = 4096;
/// What is taken for the time of a read at first.
const PACE_FIRST: Duration = Duration::from_millis(20);
/// No read is called slow before this time, and each is after that one.
const HEDGE_MIN: Duration = Duration::from_millis(10);
const HEDGE_MAX: Duration = Duration::from_millis(500);

/// What is to be gathered: (offset, length) extents.
#[derive(Clone, Debug)]
pub enum Want {
    /// Of an object, as clients see it.
    Object(Vec<(u64, u64)>),
    /// Of one shard.
    Shard(usize, Vec<(u64, u64)>),
}

/// A read whose bytes are on several members.
#[derive(Clone, Debug)]
pub struct GatherRequest {
    /// The number of the read, which has its result.
    pub read: u64,
    pub object: ObjectId,
    pub want: Want,
}

/// Bytes that one member is asked for.
pub struct SubRead {
    pub osd: OsdId,
    pub shard: usize,
    /// (offset, length), in the shard.
    pub extents: Vec<(u64, u64)>,
    /// Of each extent; less if the shard ends before.
    pub data: Option<Vec<Bytes>>,
    /// When it was asked last.
    pub asked: Time,
}

impl SubRead {
    fn has(&self, shard: usize, columns: &Range<u64>) -> bool {
        let holds = |(offset, len): &(u64, u64)| *offset <= columns.start && columns.end <= offset + len;
        self.shard == shard && self.data.is_some() && self.extents.iter().any(holds)
    }
}

/// What is read for one request.
pub struct Job {
    pub request: GatherRequest,
    /// The members have all writes up to here.
    pub at: Version,
    /// How the object is divided.
    pub layout: Layout,
    /// How what was not read is computed, once there is enough for it.
    segments: Vec<Segment>,
    /// Which shards each segment is for, in the order of its plan.
    wanted: Vec<usize>,
    /// When its first reads began.
    pub begun: Time,
    /// More is read than it takes, or cannot be.
    pub is_hedged: bool,
    /// By their numbers.
    pub reads: BTreeMap<u64, SubRead>,
    /// Members that could not give their bytes.
    pub failed: BTreeSet<OsdId>,
    /// All that is read.
    pub bytes: u64,
}

/// A holder of a shard.
pub struct Source<'a> {
    pub osd: OsdId,
    pub holder: Holder<'a>,
}

/// How long reads of one shard take.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// No more than this in 95 of 100 cases, about.
    p95: Duration,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { p95: PACE_FIRST }
    }
}

impl Pace {
    /// A step up for a slow one is 19 times one down: they are even where one of 20 is slow.
    pub fn note(&mut self, took: Duration) {
        let step = (self.p95 / 100).max(Duration::from_micros(10));
        self.p95 = match took > self.p95 {
            true => (self.p95 + 19 * step).min(HEDGE_MAX),
            false => self.p95.saturating_sub(step),
        };
    }
    /// After this time another shard is read as well.
    pub fn patience(self) -> Duration {
        (2 * self.p95).clamp(HEDGE_MIN, HEDGE_MAX)
    }
}

/// What is needed of each shard.
fn needs(geometry: &Geometry, layout: Layout, want: &Want) -> BTreeMap<usize, IntervalSet> {
    let mut needs: BTreeMap<usize, IntervalSet> = BTreeMap::new();
    match want {
        Want::Object(extents) => {
            for piece in extents.iter().flat_map(|(offset, len)| layout.pieces(*offset..offset + len)) {
                let columns = piece.shard_offset..piece.shard_offset + piece.len;
                needs.entry(geometry.code.data_shard(piece.part)).or_default().insert(columns);
            }
        }
        Want::Shard(shard, extents) => {
            let columns = extents.iter().map(|(offset, len)| *offset..offset + len).collect();
            needs.insert(*shard, columns);
        }
    }
    needs
}

impl Job {
    /// None if too few shards are there.
    pub fn plan(
        geometry: &Geometry,
        sources: &[Source<'_>],
        me: OsdId,
        layout: Layout,
        request: GatherRequest,
        failed: BTreeSet<OsdId>,
    ) -> Option<Job> {
        let object = &request.object;
        let sources: Vec<&Source<'_>> =
            sources.iter().filter(|source| !failed.contains(&source.osd)).collect();
        let has = |source: &Source<'_>, columns: &IntervalSet| {
            let lacking = source.holder.missing.get(object).map(|stale| &stale.part);
            lacking.is_none_or(|part| !part.meta && part.data.intersection(columns).is_empty())
        };
        let holder_of = |shard: usize, columns: &IntervalSet| {
            let mut of_shard = sources.iter().filter(|source| source.holder.shard == shard);
            of_shard.find(|source| has(source, columns)).map(|source| source.osd)
        };
        let mut of_shards: BTreeMap<usize, IntervalSet> = BTreeMap::new();
        let (mut wanted, mut rest) = (Vec::new(), IntervalSet::new());
        for (shard, columns) in needs(geometry, layout, &request.want) {
            if holder_of(shard, &columns).is_some() {
                of_shards.insert(shard, columns);
            } else {
                wanted.push(shard);
                rest.add(&columns);
            }
        }
        if !rest.is_empty() {
            let ours = sources.iter().filter(|source| source.osd == me).map(|source| source.holder.shard);
            let prefer: Vec<usize> = ours.chain(of_shards.keys().copied()).collect();
            let holders: Vec<Holder<'_>> = sources
                .iter()
                .map(|source| Holder { shard: source.holder.shard, missing: source.holder.missing })
                .collect();
            let planned = segments(&geometry.code, &holders, object, &rest, &wanted, &prefer);
            let covered: IntervalSet = planned.iter().map(|segment| segment.columns.clone()).collect();
            if covered != rest {
                return None;
            }
            for segment in &planned {
                for shard in &segment.plan.sources {
                    of_shards.entry(*shard).or_default().insert(segment.columns.clone());
                }
            }
        }
        let mut reads = BTreeMap::new();
        for (n, (shard, columns)) in of_shards.into_iter().enumerate() {
            // Which member has a shard may differ from range to range: then it is read range by range.
            let whole = holder_of(shard, &columns).map(|osd| vec![(osd, columns.clone())]);
            let one_by_one = || {
                let of = |range: Range<u64>| {
                    let range: IntervalSet = range.into();
                    Some((holder_of(shard, &range)?, range))
                };
                columns.iter().map(of).collect::<Option<Vec<_>>>()
            };
            for (at, (osd, columns)) in whole.or_else(one_by_one)?.into_iter().enumerate() {
                let extents: Vec<(u64, u64)> =
                    columns.iter().map(|range| (range.start, range.end - range.start)).collect();
                if extents.len() > EXTENTS_MAX {
                    return None;
                }
                // Numbered by the caller.
                let id = (n as u64) << 32 | at as u64;
                reads.insert(id, SubRead { osd, shard, extents, data: None, asked: Time::ZERO });
            }
        }
        Some(Job::of(request, layout, reads, failed))
    }
    fn of(
        request: GatherRequest,
        layout: Layout,
        reads: BTreeMap<u64, SubRead>,
        failed: BTreeSet<OsdId>,
    ) -> Job {
        let bytes = reads.values().flat_map(|read| &read.extents).map(|(_, len)| len).sum();
        let (at, begun, is_hedged) = (Version::ZERO, Time::ZERO, false);
        let (segments, wanted) = (Vec::new(), Vec::new());
        Job { request, at, layout, segments, wanted, begun, is_hedged, reads, failed, bytes }
    }
    /// Reads of all shards, any of which may then be missing. None if a member lacks some of the columns.
    pub fn plan_all(
        geometry: &Geometry,
        sources: &[Source<'_>],
        layout: Layout,
        request: &GatherRequest,
        failed: &BTreeSet<OsdId>,
    ) -> Option<Job> {
        let mut columns = IntervalSet::new();
        needs(geometry, layout, &request.want).values().for_each(|of_shard| columns.add(of_shard));
        let extents: Vec<(u64, u64)> =
            columns.iter().map(|range| (range.start, range.end - range.start)).collect();
        let part = Part { data: columns, ..Part::default() };
        let mut reads: BTreeMap<u64, SubRead> = BTreeMap::new();
        for (n, source) in (0..).zip(sources.iter().filter(|source| !failed.contains(&source.osd))) {
            let (osd, shard) = (source.osd, source.holder.shard);
            if source.holder.missing.lacks(&request.object, &part) || extents.len() > EXTENTS_MAX {
                return None;
            }
            if !reads.values().any(|read| read.shard == shard) {
                reads.insert(
                    n,
                    SubRead { osd, shard, extents: extents.clone(), data: None, asked: Time::ZERO },
                );
            }
        }
        let shards: Vec<usize> = reads.values().map(|read| read.shard).collect();
        geometry.suffice(&shards).then(|| Job::of(request.clone(), layout, reads, failed.clone()))
    }

    /// Whether what was read suffices. Then it is known how to compute the rest.
    pub fn has_enough(&mut self, geometry: &Geometry) -> bool {
        let has =
            |shard: usize, columns: &Range<u64>| self.reads.values().any(|read| read.has(shard, columns));
        let (mut wanted, mut rest) = (Vec::new(), IntervalSet::new());
        for (shard, columns) in needs(geometry, self.layout, &self.request.want) {
            if !columns.iter().all(|range| has(shard, &range)) {
                wanted.push(shard);
                rest.add(&columns);
            }
        }
        let shards: BTreeSet<usize> = self.reads.values().map(|read| read.shard).collect();
        let mut segments = Vec::new();
        for range in rest.iter() {
            let mut cuts = vec![range.start, range.end];
            let extents = self.reads.values().flat_map(|read| &read.extents);
            let ends = extents.flat_map(|(offset, len)| [*offset, offset + len]);
            cuts.extend(ends.filter(|end| range.contains(end)));
            cuts.sort_unstable();
            cuts.dedup();
            for pair in cuts.windows(2) {
                let columns = pair[0]..pair[1];
                let available: Vec<usize> =
                    shards.iter().copied().filter(|shard| has(*shard, &columns)).collect();
                let Some(plan) = geometry.code.plan(&wanted, &available) else { return false };
                segments.push(Segment { columns, plan });
            }
        }
        (self.segments, self.wanted) = (segments, wanted);
        true
    }

    /// Copies columns of a shard that were read there, or decodes them.
    fn fill(&self, shard: usize, columns: Range<u64>, to: &mut [u8]) {
        if self.copy(shard, &columns, to) {
            return;
        }
        for segment in &self.segments {
            let (start, end) =
                (segment.columns.start.max(columns.start), segment.columns.end.min(columns.end));
            let Some(n) = self.wanted.iter().position(|wanted| *wanted == shard) else { continue };
            if start >= end {
                continue;
            }
            let len = (end - start) as usize;
            let sources: Vec<Vec<u8>> = (segment.plan.sources.iter())
                .map(|source| {
                    let mut bytes = vec![0; len];
                    let is_read = self.copy(*source, &(start..end), &mut bytes);
                    assert!(is_read, "all sources were read");
                    bytes
                })
                .collect();
            let sources: Vec<&[u8]> = sources.iter().map(Vec::as_slice).collect();
            let at = (start - columns.start) as usize;
            segment.plan.decode(n, &sources, &mut to[at..at + len]);
        }
    }
    /// False if that was not read. What is beyond a shard's end is zeros.
    fn copy(&self, shard: usize, columns: &Range<u64>, to: &mut [u8]) -> bool {
        for read in self.reads.values().filter(|read| read.shard == shard) {
            for ((offset, len), bytes) in read.extents.iter().zip(read.data.iter().flatten()) {
                if *offset <= columns.start && columns.end <= offset + len {
                    let have = bytes.len() as u64;
                    let start = (columns.start - offset).min(have) as usize;
                    let end = (columns.end - offset).min(have) as usize;
                    to[..end - start].copy_from_slice(&bytes[start..end]);
                    return true;
                }
            }
        }
        false
    }

    /// The bytes of each extent, once there is enough (`has_enough`).
    pub fn result(&self, geometry: &Geometry) -> Vec<Bytes> {
        let of_shard = |shard: usize, columns: Range<u64>, to: &mut [u8]| self.fill(shard, columns, to);
        match &self.request.want {
            Want::Shard(shard, extents) => extents
                .iter()
                .map(|(offset, len)| {
                    let mut bytes = vec![0; *len as usize];
                    of_shard(*shard, *offset..offset + len, &mut bytes);
                    bytes.into()
                })
                .collect(),
            Want::Object(extents) => extents
                .iter()
                .map(|(offset, len)| {
                    let mut bytes = vec![0; *len as usize];
                    for piece in self.layout.pieces(*offset..offset + len) {
                        let at = (piece.offset - offset) as usize;
                        let columns = piece.shard_offset..piece.shard_offset + piece.len;
                        let shard = geometry.code.data_shard(piece.part);
                        of_shard(shard, columns, &mut bytes[at..at + piece.len as usize]);
                    }
                    bytes.into()
                })
                .collect(),
        }
    }
}
