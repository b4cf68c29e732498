//! The map of OSDs and pools: its content, its bytes, and questions that need one look.

use super::blocklist::blocklist_order;
use super::{Pool, Uuid, map_flags, osd_state, release};
use crate::types::{AddrVec, EntityAddr};
use nacre_base::{Epoch, IntervalSet, OsdId, PgId, PoolId, Utime};
use nacre_crush::CrushMap;
use nacre_wire::{
    Decode, DecodeError, Encode, Reader, crc32c, encode_list, encode_map, from_slice, versioned,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How many OSDs a map may have. An incremental can grow a map to this size with a few bytes.
pub const MAX_OSDS: u32 = 1 << 17;

/// Ceph: `OSDMap`, v8, with client part v9 and OSD part v9.
///
/// What is big is behind `Arc`: a clone, as each epoch makes one, costs some reference counts.
#[derive(Clone, Debug, PartialEq)]
pub struct OsdMap {
    pub fsid: Uuid,
    pub epoch: Epoch,
    pub created: Utime,
    pub modified: Utime,
    pub pools: BTreeMap<PoolId, Arc<Pool>>,
    pub pool_names: BTreeMap<PoolId, String>,
    /// The highest id given to a pool so far.
    pub pool_max: i32,
    /// `map_flags`
    pub flags: u32,
    /// By OSD id; its length is Ceph's `max_osd`. Ids not in use lack `osd_state::EXISTS`.
    pub osds: Vec<Arc<Osd>>,
    /// The "reweight" of each OSD, 16.16: 0 is out, 0x10000 is in. As long as `osds`.
    pub weights: Vec<u32>,
    /// How readily each OSD becomes primary, 16.16. None until one is set.
    pub primary_affinity: Option<Vec<u32>>,
    pub pg_temp: Arc<BTreeMap<PgId, Vec<OsdId>>>,
    pub primary_temp: Arc<BTreeMap<PgId, OsdId>>,
    pub crush: Arc<CrushMap>,
    pub crush_version: i32,
    pub erasure_code_profiles: BTreeMap<String, BTreeMap<String, String>>,
    /// Whole placements that replace CRUSH's.
    pub pg_upmap: Arc<BTreeMap<PgId, Vec<OsdId>>>,
    /// Single OSDs (from, to) replaced in CRUSH's placement.
    pub pg_upmap_items: Arc<BTreeMap<PgId, Vec<(OsdId, OsdId)>>>,
    /// Snapshots removed, and purged, in just this epoch.
    pub new_removed_snaps: BTreeMap<PoolId, IntervalSet>,
    pub new_purged_snaps: BTreeMap<PoolId, IntervalSet>,
    /// Snapshots removed and not yet purged.
    pub removed_snaps_queue: BTreeMap<PoolId, IntervalSet>,
    pub last_up_change: Utime,
    pub last_in_change: Utime,
    /// Blocklisted clients, and until when.
    pub blocklist: Arc<BTreeMap<EntityAddr, Utime>>,
    /// The same for networks.
    pub range_blocklist: Arc<BTreeMap<EntityAddr, Utime>>,
    pub cluster_snapshot_epoch: Epoch,
    pub cluster_snapshot: String,
    pub ratios: FullRatios,
    /// `release`
    pub require_min_compat_client: u8,
    pub require_osd_release: u8,
    /// NOUP and the like for everything below a CRUSH bucket, or for a device class.
    pub crush_node_flags: BTreeMap<i32, u32>,
    pub device_class_flags: BTreeMap<i32, u32>,
}

/// Fractions of a device at which something stops.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FullRatios {
    pub nearfull: f32,
    pub full: f32,
    pub backfillfull: f32,
}

impl FullRatios {
    /// Where an OSD itself takes nothing more that grows, whatever the map says: Ceph's
    /// `osd_failsafe_full_ratio`.
    pub const FAILSAFE_PARTS: u64 = 33;
    /// The same in Ceph's words.
    pub const FAILSAFE: f32 = 0.97;
    /// Where it does again.
    pub const FAILSAFE_END_PARTS: u64 = 28;

    /// What an OSD of which so much is used is, in `osd_state`. One that is in the wrong order counts as if
    /// it were as high as the one before it, and none is beyond what the OSD takes.
    pub fn state(&self, used: f64, was_full: bool) -> u32 {
        let failsafe = if was_full { FullRatios::FAILSAFE_END_PARTS } else { FullRatios::FAILSAFE_PARTS };
        let backfillfull = self.backfillfull.max(self.nearfull);
        let full = f64::from(self.full.max(backfillfull)).min(1.0 - 1.0 / failsafe as f64);
        match used {
            used if used >= full => osd_state::FULL,
            used if used >= backfillfull.into() => osd_state::BACKFILLFULL,
            used if used >= self.nearfull.into() => osd_state::NEARFULL,
            _ => 0,
        }
    }
}

impl Default for FullRatios {
    fn default() -> FullRatios {
        FullRatios { nearfull: 0.85, full: 0.95, backfillfull: 0.90 }
    }
}

/// All that the map says of one OSD, weights aside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Osd {
    /// `osd_state`
    pub state: u32,
    pub uuid: Uuid,
    pub info: OsdInfo,
    pub xinfo: OsdXinfo,
    /// Where clients reach it.
    pub public_addrs: AddrVec,
    /// Where other OSDs reach it.
    pub cluster_addrs: AddrVec,
    pub hb_back_addrs: AddrVec,
    pub hb_front_addrs: AddrVec,
}

impl Osd {
    pub fn has(&self, state: u32) -> bool {
        self.state & state != 0
    }
}

/// The history of an OSD, in epochs. Ceph: `osd_info_t` v1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OsdInfo {
    /// The last interval that it went through and left in good order.
    pub last_clean_begin: Epoch,
    pub last_clean_end: Epoch,
    pub up_from: Epoch,
    pub up_thru: Epoch,
    pub down_at: Epoch,
    pub lost_at: Epoch,
}

/// Ceph: `osd_xinfo_t` v4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OsdXinfo {
    pub down_stamp: Utime,
    /// 32.32 fixed point without the integer part: `u32::MAX` is one.
    pub laggy_probability: u32,
    /// Seconds.
    pub laggy_interval: u32,
    /// Feature bits that the OSD's process has.
    pub features: u64,
    /// The weight to restore when it comes back after having been put out automatically.
    pub old_weight: u32,
    pub last_purged_snaps_scrub: Utime,
    pub dead_epoch: Epoch,
}

impl OsdMap {
    /// The first epoch of a cluster: no OSDs, no pools, Pacific's settings.
    pub fn new(fsid: Uuid, now: Utime, crush: CrushMap) -> OsdMap {
        OsdMap {
            fsid,
            epoch: Epoch(1),
            created: now,
            modified: now,
            pools: BTreeMap::new(),
            pool_names: BTreeMap::new(),
            pool_max: 0,
            flags: map_flags::SORTBITWISE
                | map_flags::RECOVERY_DELETES
                | map_flags::PURGED_SNAPDIRS
                | map_flags::PGLOG_HARDLIMIT,
            osds: Vec::new(),
            weights: Vec::new(),
            primary_affinity: None,
            pg_temp: Arc::default(),
            primary_temp: Arc::default(),
            crush: Arc::new(crush),
            crush_version: 1,
            erasure_code_profiles: BTreeMap::new(),
            pg_upmap: Arc::default(),
            pg_upmap_items: Arc::default(),
            new_removed_snaps: BTreeMap::new(),
            new_purged_snaps: BTreeMap::new(),
            removed_snaps_queue: BTreeMap::new(),
            last_up_change: Utime::ZERO,
            last_in_change: Utime::ZERO,
            blocklist: Arc::default(),
            range_blocklist: Arc::default(),
            cluster_snapshot_epoch: Epoch(0),
            cluster_snapshot: String::new(),
            ratios: FullRatios::default(),
            require_min_compat_client: release::LUMINOUS,
            require_osd_release: release::PACIFIC,
            crush_node_flags: BTreeMap::new(),
            device_class_flags: BTreeMap::new(),
        }
    }

    pub fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    // ---- OSDs ----

    /// One more than the highest OSD id that the map has room for.
    pub fn max_osd(&self) -> u32 {
        self.osds.len() as u32
    }
    /// Changes the highest possible OSD id (`max_osd`). New ids do not exist yet, and are out.
    pub fn set_max_osd(&mut self, max: u32) {
        assert!(max <= MAX_OSDS, "{max} OSDs are over the limit of {MAX_OSDS}");
        let max = max as usize;
        let blank = Arc::new(Osd::default());
        self.osds.resize(max, blank);
        self.weights.resize(max, 0);
        if let Some(affinity) = &mut self.primary_affinity {
            affinity.resize(max, Osd::DEFAULT_AFFINITY);
        }
    }
    /// What the map says of `osd`; none if it does not exist.
    pub fn osd(&self, osd: OsdId) -> Option<&Osd> {
        self.slot(osd).filter(|o| o.has(osd_state::EXISTS))
    }
    /// The same, also for ids without an OSD.
    fn slot(&self, osd: OsdId) -> Option<&Osd> {
        usize::try_from(osd.0).ok().and_then(|at| self.osds.get(at)).map(Arc::as_ref)
    }
    /// For changes; none if the map has no room for the id.
    pub fn osd_mut(&mut self, osd: OsdId) -> Option<&mut Osd> {
        usize::try_from(osd.0).ok().and_then(|at| self.osds.get_mut(at)).map(Arc::make_mut)
    }
    pub fn exists(&self, osd: OsdId) -> bool {
        self.osd(osd).is_some()
    }
    pub fn is_up(&self, osd: OsdId) -> bool {
        self.osd(osd).is_some_and(|o| o.has(osd_state::UP))
    }
    pub fn is_down(&self, osd: OsdId) -> bool {
        !self.is_up(osd)
    }
    pub fn is_out(&self, osd: OsdId) -> bool {
        !self.exists(osd) || self.weight(osd) == 0
    }
    pub fn is_in(&self, osd: OsdId) -> bool {
        !self.is_out(osd)
    }
    /// The OSDs that exist.
    pub fn osd_ids(&self) -> impl Iterator<Item = OsdId> + '_ {
        (0..self.max_osd() as i32).map(OsdId).filter(|&osd| self.exists(osd))
    }
    pub fn up_osds(&self) -> impl Iterator<Item = OsdId> + '_ {
        self.osd_ids().filter(|&osd| self.is_up(osd))
    }
    /// The bits NOUP, NODOWN, NOIN and NOOUT (of `osd_state`) that hold for an OSD: its own, those of the
    /// CRUSH buckets that it is in and of its device class, and those of the whole cluster.
    pub fn no_flags(&self, osd: OsdId) -> u32 {
        let all = osd_state::NOUP | osd_state::NODOWN | osd_state::NOIN | osd_state::NOOUT;
        let own = self.osd(osd).map_or(0, |osd| osd.state);
        let nodes = self.crush_node_flags.iter().filter(|(node, _)| self.crush.contains(**node, osd.0));
        let class = self.crush.class_of.get(&osd.0).and_then(|class| self.device_class_flags.get(class));
        let cluster = [
            (map_flags::NOUP, osd_state::NOUP),
            (map_flags::NODOWN, osd_state::NODOWN),
            (map_flags::NOIN, osd_state::NOIN),
            (map_flags::NOOUT, osd_state::NOOUT),
        ];
        let cluster = cluster.into_iter().filter(|(flag, _)| self.has(*flag)).map(|(_, bit)| bit);
        let others = nodes.map(|(_, bits)| *bits).chain(class.copied()).chain(cluster);
        all & others.fold(own, |sum, bits| sum | bits)
    }
    /// Where clients reach `osd`; empty if it was never up.
    pub fn addrs(&self, osd: OsdId) -> Option<&AddrVec> {
        self.osd(osd).map(|o| &o.public_addrs)
    }
    /// 16.16; zero for ids that the map has no room for.
    pub fn weight(&self, osd: OsdId) -> u32 {
        usize::try_from(osd.0).ok().and_then(|at| self.weights.get(at)).copied().unwrap_or(0)
    }
    /// 16.16
    pub fn primary_affinity(&self, osd: OsdId) -> u32 {
        let affinity = self.primary_affinity.as_deref().unwrap_or_default();
        usize::try_from(osd.0).ok().and_then(|at| affinity.get(at)).copied().unwrap_or(Osd::DEFAULT_AFFINITY)
    }

    // ---- pools ----

    pub fn pool(&self, pool: PoolId) -> Option<&Pool> {
        self.pools.get(&pool).map(Arc::as_ref)
    }
    pub fn pool_ids(&self) -> impl Iterator<Item = PoolId> + '_ {
        self.pools.keys().copied()
    }
    pub fn pool_name(&self, pool: PoolId) -> Option<&str> {
        self.pool_names.get(&pool).map(String::as_str)
    }
    pub fn pool_by_name(&self, name: &str) -> Option<PoolId> {
        self.pool_names.iter().find(|(_, have)| *have == name).map(|(&id, _)| id)
    }
    /// The placement groups of `pool`; none if there is no such pool.
    pub fn pgs(&self, pool: PoolId) -> impl Iterator<Item = PgId> + use<> {
        (0..self.pool(pool).map_or(0, |p| p.pg_num)).map(move |seed| PgId { pool, seed })
    }
    /// Whether `pg` is one of its pool's placement groups now.
    pub fn pg_exists(&self, pg: PgId) -> bool {
        self.pool(pg.pool).is_some_and(|p| pg.seed < p.pg_num)
    }

    /// The checksum that the encoding carries. Costs an encoding.
    pub fn crc(&self) -> u32 {
        let bytes = nacre_wire::to_vec(self);
        let tail = bytes[bytes.len() - 4..].try_into().expect("four bytes");
        u32::from_le_bytes(tail)
    }
}

impl Osd {
    /// One: as readily primary as any. Ceph: `CEPH_OSD_DEFAULT_PRIMARY_AFFINITY`.
    pub const DEFAULT_AFFINITY: u32 = 0x10000;
    /// The weight of an OSD that is fully in. Ceph: `CEPH_OSD_IN`.
    pub const IN: u32 = 0x10000;
}

impl Encode for OsdMap {
    fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        versioned(out, 8, 7, |out| {
            versioned(out, 9, 1, |out| self.encode_client_part(out));
            versioned(out, self.osd_part_version(), 1, |out| self.encode_osd_part(out));
            0_u32.encode(out); // the checksum, below
        });
        let at = out.len() - 4;
        let crc = crc32c(u32::MAX, &out[start..at]);
        out[at..].copy_from_slice(&crc.to_le_bytes());
    }
}

impl OsdMap {
    fn encode_client_part(&self, out: &mut Vec<u8>) {
        self.fsid.encode(out);
        self.epoch.encode(out);
        self.created.encode(out);
        self.modified.encode(out);
        encode_map(out, self.pools.iter().map(|(id, pool)| (id, pool.as_ref())));
        self.pool_names.encode(out);
        self.pool_max.encode(out);
        self.flags.encode(out);
        self.max_osd().encode(out);
        encode_list(out, self.osds.iter().map(|o| o.state));
        self.weights.encode(out);
        encode_list(out, self.osds.iter().map(|o| &o.public_addrs));
        self.pg_temp.as_ref().encode(out);
        self.primary_temp.as_ref().encode(out);
        encode_list(out, self.primary_affinity.as_deref().unwrap_or_default());
        nacre_wire::to_vec(self.crush.as_ref()).as_slice().encode(out);
        self.erasure_code_profiles.encode(out);
        self.pg_upmap.as_ref().encode(out);
        self.pg_upmap_items.as_ref().encode(out);
        self.crush_version.encode(out);
        self.new_removed_snaps.encode(out);
        self.new_purged_snaps.encode(out);
        self.last_up_change.encode(out);
        self.last_in_change.encode(out);
    }

    fn encode_osd_part(&self, out: &mut Vec<u8>) {
        encode_list(out, self.osds.iter().map(|o| &o.hb_back_addrs));
        encode_list(out, self.osds.iter().map(|o| o.info));
        encode_map(out, blocklist_order(&self.blocklist).into_iter());
        encode_list(out, self.osds.iter().map(|o| &o.cluster_addrs));
        self.cluster_snapshot_epoch.encode(out);
        self.cluster_snapshot.encode(out);
        encode_list(out, self.osds.iter().map(|o| o.uuid));
        encode_list(out, self.osds.iter().map(|o| o.xinfo));
        encode_list(out, self.osds.iter().map(|o| &o.hb_front_addrs));
        self.ratios.nearfull.encode(out);
        self.ratios.full.encode(out);
        self.ratios.backfillfull.encode(out);
        self.require_min_compat_client.encode(out);
        self.require_osd_release.encode(out);
        self.removed_snaps_queue.encode(out);
        self.crush_node_flags.encode(out);
        self.device_class_flags.encode(out);
        self.encode_ranges(out);
    }
}

/// Refuses parts that a sender older than Pacific wrote: their fields are others.
pub(super) fn not_older(what: &'static str, version: u8, than: u8) -> Result<(), DecodeError> {
    if version < than { Err(DecodeError::BadValue { what, value: version.into() }) } else { Ok(()) }
}

/// No cluster gets to the last epoch, and all others have one after them.
pub(super) fn with_next(epoch: Epoch) -> Result<Epoch, DecodeError> {
    match epoch.0 {
        u32::MAX => Err(DecodeError::BadValue { what: "epoch", value: epoch.0.into() }),
        _ => Ok(epoch),
    }
}

impl Decode for OsdMap {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let bytes = r.rest();
        r.versioned("OSDMap", 8, |r, v| {
            not_older("OSDMap version", v, 8)?;
            let len = r.remaining();
            let client = r.versioned("OSDMap client part", 9, |r, v| {
                not_older("OSDMap client part version", v, 9)?;
                ClientPart::decode(r)
            })?;
            let map = r.versioned("OSDMap OSD part", 9, |r, v| {
                not_older("OSDMap OSD part version", v, 9)?;
                client.with_osd_part(r, v)
            })?;
            // 6 bytes of envelope are before what `r` had.
            let calculated = crc32c(u32::MAX, &bytes[..6 + len - r.remaining()]);
            let crc = u32::decode(r)?;
            if crc != calculated {
                return Err(DecodeError::BadValue { what: "OSDMap checksum", value: crc.into() });
            }
            Ok(map)
        })
    }
}

/// A map whose `osds` lack what the other part has.
struct ClientPart(OsdMap);

/// Lists with one item per OSD must have just that many.
fn per_osd<T>(what: &'static str, max_osd: usize, list: Vec<T>) -> Result<Vec<T>, DecodeError> {
    if list.len() == max_osd {
        Ok(list)
    } else {
        Err(DecodeError::BadValue { what, value: list.len() as u64 })
    }
}

impl ClientPart {
    fn decode(r: &mut Reader<'_>) -> Result<ClientPart, DecodeError> {
        let fsid = Uuid::decode(r)?;
        let epoch = with_next(Epoch::decode(r)?)?;
        let created = Utime::decode(r)?;
        let modified = Utime::decode(r)?;
        let pools = BTreeMap::<PoolId, Pool>::decode(r)?;
        let pool_names = BTreeMap::decode(r)?;
        let pool_max = i32::decode(r)?;
        let flags = u32::decode(r)?;
        let max_osd = u32::decode(r)?;
        if max_osd > MAX_OSDS {
            return Err(DecodeError::BadValue { what: "max_osd", value: max_osd.into() });
        }
        let max_osd = max_osd as usize;
        let states = per_osd("osd_state", max_osd, Vec::<u32>::decode(r)?)?;
        let weights = per_osd("osd_weight", max_osd, Vec::decode(r)?)?;
        let addrs = per_osd("client addresses", max_osd, Vec::<AddrVec>::decode(r)?)?;
        let pg_temp = BTreeMap::decode(r)?;
        let primary_temp = BTreeMap::decode(r)?;
        let primary_affinity = match Vec::<u32>::decode(r)? {
            list if list.is_empty() => None,
            list => Some(per_osd("primary_affinity", max_osd, list)?),
        };
        let crush = from_slice(r.bytes()?)?;
        let osds = states
            .into_iter()
            .zip(addrs)
            .map(|(state, public_addrs)| Arc::new(Osd { state, public_addrs, ..Osd::default() }))
            .collect();
        Ok(ClientPart(OsdMap {
            fsid,
            epoch,
            created,
            modified,
            pools: pools.into_iter().map(|(id, pool)| (id, Arc::new(pool))).collect(),
            pool_names,
            pool_max,
            flags,
            osds,
            weights,
            primary_affinity,
            pg_temp: Arc::new(pg_temp),
            primary_temp: Arc::new(primary_temp),
            crush: Arc::new(crush),
            erasure_code_profiles: BTreeMap::decode(r)?,
            pg_upmap: Arc::new(BTreeMap::decode(r)?),
            pg_upmap_items: Arc::new(BTreeMap::decode(r)?),
            crush_version: i32::decode(r)?,
            new_removed_snaps: BTreeMap::decode(r)?,
            new_purged_snaps: BTreeMap::decode(r)?,
            last_up_change: Utime::decode(r)?,
            last_in_change: Utime::decode(r)?,
            // The other part's.
            removed_snaps_queue: BTreeMap::new(),
            blocklist: Arc::default(),
            range_blocklist: Arc::default(),
            cluster_snapshot_epoch: Epoch(0),
            cluster_snapshot: String::new(),
            ratios: FullRatios::default(),
            require_min_compat_client: 0,
            require_osd_release: 0,
            crush_node_flags: BTreeMap::new(),
            device_class_flags: BTreeMap::new(),
        }))
    }

    fn with_osd_part(self, r: &mut Reader<'_>, version: u8) -> Result<OsdMap, DecodeError> {
        let ClientPart(mut map) = self;
        let n = map.osds.len();
        let hb_back = per_osd("heartbeat addresses", n, Vec::<AddrVec>::decode(r)?)?;
        let infos = per_osd("osd_info", n, Vec::<OsdInfo>::decode(r)?)?;
        map.blocklist = Arc::new(BTreeMap::decode(r)?);
        let cluster = per_osd("cluster addresses", n, Vec::<AddrVec>::decode(r)?)?;
        map.cluster_snapshot_epoch = Epoch::decode(r)?;
        map.cluster_snapshot = String::decode(r)?;
        let uuids = per_osd("osd uuids", n, Vec::<Uuid>::decode(r)?)?;
        let xinfos = per_osd("osd_xinfo", n, Vec::<OsdXinfo>::decode(r)?)?;
        let hb_front = per_osd("heartbeat addresses", n, Vec::<AddrVec>::decode(r)?)?;
        map.ratios =
            FullRatios { nearfull: f32::decode(r)?, full: f32::decode(r)?, backfillfull: f32::decode(r)? };
        map.require_min_compat_client = u8::decode(r)?;
        map.require_osd_release = u8::decode(r)?;
        map.removed_snaps_queue = BTreeMap::decode(r)?;
        map.crush_node_flags = BTreeMap::decode(r)?;
        map.device_class_flags = BTreeMap::decode(r)?;
        map.decode_ranges(r, version)?;

        let addrs = hb_back.into_iter().zip(cluster).zip(hb_front);
        let rest = addrs.zip(infos).zip(uuids).zip(xinfos);
        for (osd, (((((back, cluster), front), info), uuid), xinfo)) in map.osds.iter_mut().zip(rest) {
            let osd = Arc::make_mut(osd);
            (osd.hb_back_addrs, osd.cluster_addrs, osd.hb_front_addrs) = (back, cluster, front);
            (osd.info, osd.uuid, osd.xinfo) = (info, uuid, xinfo);
        }
        Ok(map)
    }
}

impl Encode for OsdInfo {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(1); // a version, without the envelope of later times
        self.last_clean_begin.encode(out);
        self.last_clean_end.encode(out);
        self.up_from.encode(out);
        self.up_thru.encode(out);
        self.down_at.encode(out);
        self.lost_at.encode(out);
    }
}
impl Decode for OsdInfo {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let _version = u8::decode(r)?;
        Ok(OsdInfo {
            last_clean_begin: Epoch::decode(r)?,
            last_clean_end: Epoch::decode(r)?,
            up_from: Epoch::decode(r)?,
            up_thru: Epoch::decode(r)?,
            down_at: Epoch::decode(r)?,
            lost_at: Epoch::decode(r)?,
        })
    }
}

impl Encode for OsdXinfo {
    fn encode(&self, out: &mut Vec<u8>) {
        versioned(out, 4, 1, |out| {
            self.down_stamp.encode(out);
            self.laggy_probability.encode(out);
            self.laggy_interval.encode(out);
            self.features.encode(out);
            self.old_weight.encode(out);
            self.last_purged_snaps_scrub.encode(out);
            self.dead_epoch.encode(out);
        });
    }
}
impl Decode for OsdXinfo {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("osd_xinfo_t", 4, |r, v| {
            not_older("osd_xinfo_t version", v, 4)?;
            Ok(OsdXinfo {
                down_stamp: Utime::decode(r)?,
                laggy_probability: u32::decode(r)?,
                laggy_interval: u32::decode(r)?,
                features: u64::decode(r)?,
                old_weight: u32::decode(r)?,
                last_purged_snaps_scrub: Utime::decode(r)?,
                dead_epoch: Epoch::decode(r)?,
            })
        })
    }
}
