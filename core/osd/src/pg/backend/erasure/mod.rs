//! Erasure-coded pools: each member holds one shard of every object, and any `k` shards give all of it.
//!
//! All members have the whole log and all metadata. What is stored under an object's name is a shard (see
//! `crate::shard_view`): its attributes are those of the object, its size is that of the parity. Offsets in
//! log entries and missing sets are offsets in shards: they name *columns*, the bytes at the same place of
//! all shards, which are encoded together.
//!
//!   `view`      the store as operations see it: whole objects, by their sizes
//!   `encode`    a write of a whole object becomes one write for each shard
//!   `gather`    bytes are read from several members, and decoded (`job`)
//!   `undo`      a member takes back a write that not all members have
//!   `choice`    whose log wins after a change of members
//!   `member`    what a member is and does
//!   `moves`     which OSD comes to which shard
//!   `parity_check`  whether the shards of an object fit together

pub mod choice;
pub mod encode;
pub mod gather;
pub mod job;
mod member;
pub mod moves;
pub mod parity_check;
pub mod undo;
pub mod view;

use crate::pg::history::missing::Missing;
use nacre_base::{IntervalSet, ShardId};
use nacre_erasure::code::{Code, DecodePlan};
use nacre_erasure::profile::{Profile, Settings};
use nacre_proto::maps::{OsdMap, Pool};
use nacre_proto::types::ObjectId;
use std::ops::Range;

/// The code of a pool. It stays what it was when the placement group was loaded: monitors refuse to change
/// the profile of a pool.
#[derive(Debug)]
pub struct Geometry {
    pub code: Code,
}

impl Geometry {
    /// Why there is none: a sentence.
    pub fn of(map: &OsdMap, pool: &Pool) -> Result<Geometry, String> {
        let name = &pool.erasure_code_profile;
        let Some(settings) = map.erasure_code_profiles.get(name) else {
            return Err(format!("there is no erasure code profile {name}"));
        };
        let profile = Profile::new(&mut Settings(settings.clone())).map_err(|error| error.text)?;
        if profile.chunk_count() != usize::from(pool.size) {
            let chunks = profile.chunk_count();
            return Err(format!("the profile {name} makes {chunks} chunks, and the pool has {}", pool.size));
        }
        Ok(Geometry { code: profile.code().clone() })
    }
    /// Into how many parts data is divided.
    pub fn k(&self) -> usize {
        self.code.data_shards()
    }
    /// How many shards there are.
    pub fn n(&self) -> usize {
        self.code.shards()
    }
    /// Whether these shards suffice for everything.
    pub fn suffice(&self, shards: &[usize]) -> bool {
        let all: Vec<usize> = (0..self.n()).collect();
        self.code.plan(&all, shards).is_some()
    }
}

/// As an index.
pub fn index(shard: ShardId) -> Option<usize> {
    usize::try_from(shard.0).ok()
}

/// A member: the shard that it holds, and what it lacks.
pub struct Holder<'a> {
    pub shard: usize,
    pub missing: &'a Missing,
}

/// A range of columns that can be decoded in one way.
pub struct Segment {
    pub columns: Range<u64>,
    pub plan: DecodePlan,
}

/// Divides columns of an object where what is missing begins and ends, and plans how to get these shards of
/// each part. `prefer`: shards to read first. Columns of which too few shards are there are not in the
/// result.
pub fn segments(
    code: &Code,
    holders: &[Holder<'_>],
    object: &ObjectId,
    columns: &IntervalSet,
    wanted: &[usize],
    prefer: &[usize],
) -> Vec<Segment> {
    let order = |shard: &usize| prefer.iter().position(|preferred| preferred == shard).unwrap_or(usize::MAX);
    let plan = |range: &Range<u64>| {
        let has = |holder: &&Holder<'_>| match holder.missing.get(object) {
            None => true,
            Some(stale) => !stale.part.meta && !stale.part.data.overlaps(range.clone()),
        };
        let mut available: Vec<usize> = holders.iter().filter(has).map(|holder| holder.shard).collect();
        available.sort_by_key(|shard| (order(shard), *shard));
        available.dedup();
        code.plan(wanted, &available)
    };
    let mut segments = Vec::new();
    for range in columns.iter() {
        let mut cuts = vec![range.start, range.end];
        for stale in holders.iter().filter_map(|holder| holder.missing.get(object)) {
            let ends = stale.part.data.iter().flat_map(|lacking| [lacking.start, lacking.end]);
            cuts.extend(ends.filter(|end| range.contains(end)));
        }
        cuts.sort_unstable();
        cuts.dedup();
        for pair in cuts.windows(2) {
            let columns = pair[0]..pair[1];
            if let Some(plan) = plan(&columns) {
                segments.push(Segment { columns, plan });
            }
        }
    }
    segments
}

/// What of these columns of a shard the holders can give.
pub fn decodable(
    code: &Code,
    holders: &[Holder<'_>],
    object: &ObjectId,
    columns: &IntervalSet,
    shard: usize,
) -> IntervalSet {
    segments(code, holders, object, columns, &[shard], &[]).into_iter().map(|part| part.columns).collect()
}
