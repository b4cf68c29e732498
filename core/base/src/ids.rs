//! One newtype for each kind of number, so that none is taken for another.

use std::fmt;

/// A version of the cluster map. Ceph: `epoch_t`. Zero means "none yet".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u32);

impl Epoch {
    pub fn next(self) -> Epoch {
        Epoch(self.0 + 1)
    }
    pub fn prev(self) -> Epoch {
        Epoch(self.0.saturating_sub(1))
    }
}

/// The number of an OSD, as in `osd.3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OsdId(pub i32);

impl OsdId {
    /// A hole in a placement: Ceph's `CRUSH_ITEM_NONE`.
    pub const NONE: OsdId = OsdId(0x7fff_ffff);

    pub fn is_some(self) -> bool {
        self != OsdId::NONE && self.0 >= 0
    }
    /// As an index into the per-OSD vectors of a map.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId(pub i64);

/// A placement group. Ceph: `pg_t`, printed as `pool.seed` with the seed in hex.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PgId {
    pub pool: PoolId,
    pub seed: u32,
}

/// Which chunk of each object an OSD holds in a placement group of an erasure-coded pool: its place in the
/// acting set. Ceph: `shard_id_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub i8);

impl ShardId {
    /// In a replicated pool, where each OSD holds whole objects. Ceph: `NO_SHARD`.
    pub const NONE: ShardId = ShardId(-1);

    pub fn is_some(self) -> bool {
        self.0 >= 0
    }
}

impl Default for ShardId {
    fn default() -> ShardId {
        ShardId::NONE
    }
}

/// An instance of a placement group: what one OSD holds of it. One OSD may hold several shards of a placement
/// group. Ceph: `spg_t`, printed as `1.7s2`, or `1.7` without a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpgId {
    pub pg: PgId,
    pub shard: ShardId,
}

impl SpgId {
    pub fn replicated(pg: PgId) -> SpgId {
        SpgId { pg, shard: ShardId::NONE }
    }
    /// The placement group, of an instance that holds whole objects.
    pub fn without_shard(self) -> Option<PgId> {
        (!self.shard.is_some()).then_some(self.pg)
    }
}

/// The place of a write in the history of its placement group. Ceph: `eversion_t`.
/// Ordered by epoch first: a later interval beats an earlier one whatever its counter says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    pub epoch: Epoch,
    pub version: u64,
}

impl Version {
    pub const ZERO: Version = Version { epoch: Epoch(0), version: 0 };

    pub fn new(epoch: Epoch, version: u64) -> Version {
        Version { epoch, version }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapId(pub u64);

impl SnapId {
    /// The live object, no snapshot of it. Ceph: `CEPH_NOSNAP`.
    pub const HEAD: SnapId = SnapId(0xffff_ffff_ffff_fffe);
    /// The object's set of snapshots. Ceph: `CEPH_SNAPDIR`.
    pub const DIR: SnapId = SnapId(0xffff_ffff_ffff_ffff);
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
impl fmt::Display for OsdId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
impl fmt::Display for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
impl fmt::Display for PgId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:x}", self.pool.0, self.seed)
    }
}
impl fmt::Display for SpgId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.shard {
            ShardId::NONE => self.pg.fmt(f),
            ShardId(shard) => write!(f, "{}s{shard}", self.pg),
        }
    }
}
/// Ceph prints `epoch'version`.
impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}'{}", self.epoch.0, self.version)
    }
}
impl fmt::Display for SnapId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            SnapId::HEAD => write!(f, "head"),
            SnapId::DIR => write!(f, "snapdir"),
            SnapId(n) => write!(f, "{n:x}"),
        }
    }
}

impl std::str::FromStr for SpgId {
    type Err = ();
    fn from_str(s: &str) -> Result<SpgId, ()> {
        let Some((pg, shard)) = s.split_once('s') else { return Ok(SpgId::replicated(s.parse()?)) };
        let shard = ShardId(shard.parse().map_err(|_| ())?);
        if shard.is_some() { Ok(SpgId { pg: pg.parse()?, shard }) } else { Err(()) }
    }
}
impl std::str::FromStr for PgId {
    type Err = ();
    fn from_str(s: &str) -> Result<PgId, ()> {
        let (pool, seed) = s.split_once('.').ok_or(())?;
        let seed = u32::from_str_radix(seed, 16).map_err(|_| ())?;
        Ok(PgId { pool: PoolId(pool.parse().map_err(|_| ())?), seed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_pg_id_parses_back() {
        let pg = PgId { pool: PoolId(7), seed: 0x1f };
        assert_eq!(pg.to_string(), "7.1f");
        assert_eq!("7.1f".parse(), Ok(pg));
        assert_eq!("7".parse::<PgId>(), Err(()));
    }

    #[test]
    fn an_instance_reads_back_as_it_prints() {
        let pg = PgId { pool: PoolId(7), seed: 0x1f };
        for (spg, text) in [(SpgId::replicated(pg), "7.1f"), (SpgId { pg, shard: ShardId(2) }, "7.1fs2")] {
            assert_eq!(spg.to_string(), text);
            assert_eq!(text.parse(), Ok(spg));
        }
        assert_eq!(["7.1fs", "7.1fs-1", "s1", "7.1fs200"].map(|text| text.parse::<SpgId>()), [Err(()); 4]);
    }

    #[test]
    fn versions_order_by_epoch_first() {
        assert!(Version::new(Epoch(2), 1) > Version::new(Epoch(1), 9));
    }
}
