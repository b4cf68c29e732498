//! Intervals: which OSDs are the members of a placement group, since when.

use nacre_base::{Epoch, OsdId, PgId, ShardId};
use nacre_proto::maps::{OsdMap, UpActing};
use std::collections::BTreeSet;

/// An interval: the members of the placement group, and its first epoch. Every daemon computes the same from
/// the maps. Only `up` and `up_primary` may change within an interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interval {
    pub start: Epoch,
    pub up: Vec<OsdId>,
    pub up_primary: Option<OsdId>,
    pub acting: Vec<OsdId>,
    pub primary: Option<OsdId>,
    /// The pool's `size` and `min_size`: how many copies there should be, and must be for I/O.
    pub size: usize,
    pub min_size: usize,
    /// It may have begun as early as this, as maps before `start` were not seen. All members take the
    /// primary's `start`: see `Pg::align_interval_start`.
    pub earliest: Epoch,
    /// How many shards an object has; zero in a replicated pool.
    pub shards: usize,
}

impl Interval {
    /// The one that is as the map says, and began with it or, if maps were not seen, after `earliest`.
    pub fn new(earliest: Epoch, placed: UpActing, map: &OsdMap, pg: PgId) -> Interval {
        let UpActing { up, up_primary, acting, acting_primary, .. } = placed;
        let pool = map.pool(pg.pool);
        let (size, min_size) = pool.map_or((0, 0), |pool| (pool.size, pool.min_size));
        let shards = pool.filter(|pool| pool.is_erasure()).map_or(0, |pool| pool.size.into());
        Interval {
            start: map.epoch,
            up,
            up_primary,
            acting,
            primary: acting_primary,
            size: size.into(),
            min_size: min_size.into(),
            earliest,
            shards,
        }
    }
    /// Which shard an OSD holds as a member: its place in the acting set. Places behind the last shard are
    /// for further holders of the same shards, which come while data moves.
    pub fn shard_of(&self, osd: OsdId) -> ShardId {
        match self.acting.iter().position(|member| *member == osd) {
            Some(place) if self.shards > 0 => ShardId((place % self.shards) as i8),
            _ => ShardId::NONE,
        }
    }
    /// How many members there are.
    pub fn members_len(&self) -> usize {
        self.acting.iter().filter(|osd| osd.is_some()).count()
    }
    /// The OSDs that CRUSH chose, and those that serve. Where each place is a shard, an OSD keeps the one
    /// that it has, so only which OSDs there are counts.
    pub fn serves_as_placed(&self) -> bool {
        let distinct = |osds: &[OsdId]| -> BTreeSet<OsdId> {
            osds.iter().copied().filter(|osd| osd.is_some()).collect()
        };
        match self.shards {
            0 => self.acting == self.up,
            shards => self.acting.len() <= shards && distinct(&self.acting) == distinct(&self.up),
        }
    }
    /// Whether no member is to come or go: CRUSH's members serve and, where it finds too few, others with
    /// them.
    pub fn is_settled(&self) -> bool {
        if self.shards > 0 {
            let placed = || self.up.iter().filter(|osd| osd.is_some());
            let short = placed().count() < self.size && self.acting.len() <= self.shards;
            return self.serves_as_placed() || short && placed().all(|osd| self.acting.contains(osd));
        }
        let short = self.up.len() < self.size && self.acting.len() <= self.size;
        self.acting == self.up || (short && self.acting.starts_with(&self.up))
    }
    /// OSDs in the up set that are no members yet.
    pub fn backfill_targets(&self) -> impl Iterator<Item = OsdId> {
        self.up.iter().copied().filter(|osd| osd.is_some() && !self.acting.contains(osd))
    }
    /// Whether history is kept for a member that is absent: there is one too few, or one is to come.
    pub fn has_absent_members(&self) -> bool {
        self.members_len() < self.size || !self.is_settled()
    }
    /// Whether an OSD is in the acting set.
    pub fn is_member(&self, osd: OsdId) -> bool {
        self.acting.contains(&osd)
    }
}
