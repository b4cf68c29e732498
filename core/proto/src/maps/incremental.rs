//! The difference between one epoch of the OSD map and the next.

use super::blocklist::blocklist_order;
use super::osdmap::{not_older, with_next};
use super::{FullRatios, MAX_OSDS, Osd, OsdMap, OsdXinfo, Pool, Uuid, map_flags, osd_state, release};
use crate::types::{AddrVec, EntityAddr};
use bytes::Bytes;
use nacre_base::{Epoch, IntervalSet, OsdId, PgId, PoolId, Utime};
use nacre_crush::CrushMap;
use nacre_wire::{Decode, DecodeError, Encode, Reader, crc32c, encode_map, from_slice, versioned};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Ceph: `OSDMap::Incremental`, v8, with client part v8 and OSD part v9, or v11 with networks.
///
/// What is `None` or empty does not change, unless the field says otherwise.
#[derive(Clone, Debug, PartialEq)]
pub struct Incremental {
    pub fsid: Uuid,
    /// The epoch that this leads to.
    pub epoch: Epoch,
    pub modified: Utime,
    pub new_pool_max: Option<i32>,
    pub new_flags: Option<u32>,
    /// A whole encoded map instead of all the rest.
    pub full_map: Bytes,
    pub crush: Option<Arc<CrushMap>>,
    pub new_max_osd: Option<u32>,
    pub new_pools: BTreeMap<PoolId, Arc<Pool>>,
    pub new_pool_names: BTreeMap<PoolId, String>,
    pub old_pools: BTreeSet<PoolId>,
    /// OSDs that come up, with their addresses; they also need `new_hb_*_up` and `new_up_cluster`.
    pub new_up_client: BTreeMap<OsdId, AddrVec>,
    /// Bits of `osd_state` to flip; zero stands for UP. Flipping EXISTS off wipes the OSD.
    pub new_state: BTreeMap<OsdId, u32>,
    pub new_weight: BTreeMap<OsdId, u32>,
    /// An empty list removes the entry.
    pub new_pg_temp: BTreeMap<PgId, Vec<OsdId>>,
    /// -1 removes the entry.
    pub new_primary_temp: BTreeMap<PgId, OsdId>,
    pub new_primary_affinity: BTreeMap<OsdId, u32>,
    pub new_erasure_code_profiles: BTreeMap<String, BTreeMap<String, String>>,
    pub old_erasure_code_profiles: Vec<String>,
    pub new_pg_upmap: BTreeMap<PgId, Vec<OsdId>>,
    pub old_pg_upmap: BTreeSet<PgId>,
    pub new_pg_upmap_items: BTreeMap<PgId, Vec<(OsdId, OsdId)>>,
    pub old_pg_upmap_items: BTreeSet<PgId>,
    pub new_removed_snaps: BTreeMap<PoolId, IntervalSet>,
    pub new_purged_snaps: BTreeMap<PoolId, IntervalSet>,
    /// Zero: unchanged.
    pub new_last_up_change: Utime,
    pub new_last_in_change: Utime,
    pub new_hb_back_up: BTreeMap<OsdId, AddrVec>,
    pub new_up_thru: BTreeMap<OsdId, Epoch>,
    pub new_last_clean_interval: BTreeMap<OsdId, (Epoch, Epoch)>,
    pub new_lost: BTreeMap<OsdId, Epoch>,
    pub new_blocklist: BTreeMap<EntityAddr, Utime>,
    pub old_blocklist: Vec<EntityAddr>,
    /// Networks.
    pub new_range_blocklist: BTreeMap<EntityAddr, Utime>,
    pub old_range_blocklist: Vec<EntityAddr>,
    pub new_up_cluster: BTreeMap<OsdId, AddrVec>,
    /// Empty clears the map's.
    pub cluster_snapshot: String,
    pub new_uuid: BTreeMap<OsdId, Uuid>,
    pub new_xinfo: BTreeMap<OsdId, OsdXinfo>,
    pub new_hb_front_up: BTreeMap<OsdId, AddrVec>,
    /// The features with which the full map was encoded that `full_crc` is of.
    pub encode_features: u64,
    pub new_nearfull_ratio: Option<f32>,
    pub new_full_ratio: Option<f32>,
    pub new_backfillfull_ratio: Option<f32>,
    pub new_require_min_compat_client: Option<u8>,
    pub new_require_osd_release: Option<u8>,
    /// Zero removes the entry.
    pub new_crush_node_flags: BTreeMap<i32, u32>,
    pub new_device_class_flags: BTreeMap<i32, u32>,
    /// `OsdMap::crc` of the map that this leads to; see `seal`.
    pub full_crc: u32,
}

/// Why an incremental does not fit a map. The map must then be fetched whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    #[error("the incremental is of another cluster")]
    OtherCluster,
    #[error("the incremental leads to epoch {to}, the map is at {at}")]
    WrongEpoch { at: Epoch, to: Epoch },
    #[error("the incremental is about osd.{osd}, the map has room for {max_osd}")]
    NoSuchOsd { osd: OsdId, max_osd: u32 },
    #[error("the incremental wants room for {asked} OSDs, the limit is {MAX_OSDS}")]
    TooManyOsds { asked: u32 },
    #[error("the full map in the incremental: {0}")]
    FullMap(#[from] DecodeError),
}

impl Incremental {
    /// What Pacific's monitors write there, for peers with all of Pacific's features.
    pub const ENCODE_FEATURES: u64 = 0x0f00_0880_1021_2a04;

    /// The change from `map` to its next epoch, with nothing in it yet.
    pub fn after(map: &OsdMap, now: Utime) -> Incremental {
        Incremental::new(map.fsid, map.epoch.next(), now)
    }

    pub fn new(fsid: Uuid, epoch: Epoch, modified: Utime) -> Incremental {
        Incremental {
            fsid,
            epoch,
            modified,
            new_pool_max: None,
            new_flags: None,
            full_map: Bytes::new(),
            crush: None,
            new_max_osd: None,
            new_pools: BTreeMap::new(),
            new_pool_names: BTreeMap::new(),
            old_pools: BTreeSet::new(),
            new_up_client: BTreeMap::new(),
            new_state: BTreeMap::new(),
            new_weight: BTreeMap::new(),
            new_pg_temp: BTreeMap::new(),
            new_primary_temp: BTreeMap::new(),
            new_primary_affinity: BTreeMap::new(),
            new_erasure_code_profiles: BTreeMap::new(),
            old_erasure_code_profiles: Vec::new(),
            new_pg_upmap: BTreeMap::new(),
            old_pg_upmap: BTreeSet::new(),
            new_pg_upmap_items: BTreeMap::new(),
            old_pg_upmap_items: BTreeSet::new(),
            new_removed_snaps: BTreeMap::new(),
            new_purged_snaps: BTreeMap::new(),
            new_last_up_change: Utime::ZERO,
            new_last_in_change: Utime::ZERO,
            new_hb_back_up: BTreeMap::new(),
            new_up_thru: BTreeMap::new(),
            new_last_clean_interval: BTreeMap::new(),
            new_lost: BTreeMap::new(),
            new_blocklist: BTreeMap::new(),
            old_blocklist: Vec::new(),
            new_range_blocklist: BTreeMap::new(),
            old_range_blocklist: Vec::new(),
            new_up_cluster: BTreeMap::new(),
            cluster_snapshot: String::new(),
            new_uuid: BTreeMap::new(),
            new_xinfo: BTreeMap::new(),
            new_hb_front_up: BTreeMap::new(),
            encode_features: Incremental::ENCODE_FEATURES,
            new_nearfull_ratio: None,
            new_full_ratio: None,
            new_backfillfull_ratio: None,
            new_require_min_compat_client: None,
            new_require_osd_release: None,
            new_crush_node_flags: BTreeMap::new(),
            new_device_class_flags: BTreeMap::new(),
            full_crc: 0,
        }
    }

    /// Applies itself to `map` and notes the checksum of what came out: the last step of the caller that
    /// makes an incremental.
    pub fn seal(&mut self, map: &OsdMap) -> Result<OsdMap, ApplyError> {
        let next = map.apply(self)?;
        self.full_crc = next.crc();
        Ok(next)
    }

    /// Every OSD that this names, for which the map must have room.
    fn osds(&self) -> impl Iterator<Item = OsdId> + '_ {
        let addrs = [&self.new_up_client, &self.new_hb_back_up, &self.new_up_cluster, &self.new_hb_front_up];
        let numbers = [&self.new_state, &self.new_weight, &self.new_primary_affinity];
        let epochs = [&self.new_up_thru, &self.new_lost];
        addrs
            .into_iter()
            .flat_map(BTreeMap::keys)
            .chain(numbers.into_iter().flat_map(BTreeMap::keys))
            .chain(epochs.into_iter().flat_map(BTreeMap::keys))
            .chain(self.new_last_clean_interval.keys())
            .chain(self.new_uuid.keys())
            .chain(self.new_xinfo.keys())
            .copied()
    }
}

impl OsdMap {
    /// The next epoch. What did not change is shared with `self`.
    pub fn apply(&self, inc: &Incremental) -> Result<OsdMap, ApplyError> {
        // The first incremental of all, from nothing, says which cluster it is.
        if inc.fsid != self.fsid && inc.epoch != Epoch(1) {
            return Err(ApplyError::OtherCluster);
        }
        if self.epoch.0.checked_add(1) != Some(inc.epoch.0) {
            return Err(ApplyError::WrongEpoch { at: self.epoch, to: inc.epoch });
        }
        if !inc.full_map.is_empty() {
            return Ok(from_slice(&inc.full_map)?);
        }
        let max_osd = inc.new_max_osd.unwrap_or(self.max_osd());
        if max_osd > MAX_OSDS {
            return Err(ApplyError::TooManyOsds { asked: max_osd });
        }
        if let Some(osd) =
            inc.osds().find(|osd| u32::try_from(osd.0).is_ok_and(|n| n >= max_osd) || osd.0 < 0)
        {
            return Err(ApplyError::NoSuchOsd { osd, max_osd });
        }

        let mut map = self.clone();
        (map.fsid, map.epoch, map.modified) = (inc.fsid, inc.epoch, inc.modified);
        map.flags = inc.new_flags.unwrap_or(map.flags);
        map.pool_max = inc.new_pool_max.unwrap_or(map.pool_max);
        map.set_max_osd(max_osd);
        map.apply_pools(inc);
        map.apply_osds(inc);
        map.apply_placement(inc);
        map.apply_settings(inc);
        Ok(map)
    }

    fn apply_pools(&mut self, inc: &Incremental) {
        for (&id, pool) in &inc.new_pools {
            let mut pool = pool.clone();
            if pool.last_change != inc.epoch {
                Arc::make_mut(&mut pool).last_change = inc.epoch;
            }
            self.pools.insert(id, pool);
        }
        self.pool_names.extend(inc.new_pool_names.iter().map(|(&id, name)| (id, name.clone())));
        for id in &inc.old_pools {
            self.pools.remove(id);
            self.pool_names.remove(id);
        }
        self.new_removed_snaps = inc.new_removed_snaps.clone();
        self.new_purged_snaps = inc.new_purged_snaps.clone();
        for (&pool, snaps) in &inc.new_removed_snaps {
            let queue = self.removed_snaps_queue.entry(pool).or_default();
            snaps.iter().for_each(|range| queue.insert(range));
        }
        for (pool, snaps) in &inc.new_purged_snaps {
            if let Some(queue) = self.removed_snaps_queue.get_mut(pool) {
                queue.subtract(snaps);
                if queue.is_empty() {
                    self.removed_snaps_queue.remove(pool);
                }
            }
        }
        for name in &inc.old_erasure_code_profiles {
            self.erasure_code_profiles.remove(name);
        }
        let profiles = inc.new_erasure_code_profiles.iter();
        self.erasure_code_profiles.extend(profiles.map(|(name, profile)| (name.clone(), profile.clone())));
    }

    /// The order of these steps is part of the format: a later one sees what an earlier one did.
    fn apply_osds(&mut self, inc: &Incremental) {
        const ROOM: &str = "apply checked that the map has room for every OSD named";
        for (&id, &weight) in &inc.new_weight {
            self.weights[id.index()] = weight;
            if weight != 0 {
                let osd = self.osd_mut(id).expect(ROOM);
                osd.state &= !(osd_state::AUTOOUT | osd_state::NEW);
                osd.state |= osd_state::EXISTS;
                osd.xinfo.old_weight = 0;
            }
        }
        for (&id, &affinity) in &inc.new_primary_affinity {
            self.set_primary_affinity(id, affinity);
        }
        for (&id, &flip) in &inc.new_state {
            let flip = if flip == 0 { osd_state::UP } else { flip };
            let osd = self.osd_mut(id).expect(ROOM);
            if osd.has(osd_state::UP) && flip & osd_state::UP != 0 {
                osd.info.down_at = inc.epoch;
                osd.xinfo.down_stamp = inc.modified;
            }
            if osd.has(osd_state::EXISTS) && flip & osd_state::EXISTS != 0 {
                *osd = Osd::default();
                self.set_primary_affinity(id, Osd::DEFAULT_AFFINITY);
            } else {
                osd.state ^= flip;
            }
        }
        for (&id, addrs) in &inc.new_up_client {
            let osd = self.osd_mut(id).expect(ROOM);
            osd.state |= osd_state::EXISTS | osd_state::UP;
            osd.state &= !osd_state::STOP;
            osd.public_addrs = addrs.clone();
            osd.hb_back_addrs = inc.new_hb_back_up.get(&id).cloned().unwrap_or_default();
            osd.hb_front_addrs = inc.new_hb_front_up.get(&id).cloned().unwrap_or_default();
            osd.info.up_from = inc.epoch;
        }
        for (&id, addrs) in &inc.new_up_cluster {
            self.osd_mut(id).expect(ROOM).cluster_addrs = addrs.clone();
        }
        for (&id, &epoch) in &inc.new_up_thru {
            self.osd_mut(id).expect(ROOM).info.up_thru = epoch;
        }
        for (&id, &(begin, end)) in &inc.new_last_clean_interval {
            let info = &mut self.osd_mut(id).expect(ROOM).info;
            (info.last_clean_begin, info.last_clean_end) = (begin, end);
        }
        for (&id, &epoch) in &inc.new_lost {
            self.osd_mut(id).expect(ROOM).info.lost_at = epoch;
        }
        for (&id, &xinfo) in &inc.new_xinfo {
            self.osd_mut(id).expect(ROOM).xinfo = xinfo;
        }
        for (&id, &uuid) in &inc.new_uuid {
            self.osd_mut(id).expect(ROOM).uuid = uuid;
        }
        if inc.new_last_up_change != Utime::ZERO {
            self.last_up_change = inc.new_last_up_change;
        }
        if inc.new_last_in_change != Utime::ZERO {
            self.last_in_change = inc.new_last_in_change;
        }
    }

    fn set_primary_affinity(&mut self, osd: OsdId, affinity: u32) {
        let all = self.primary_affinity.get_or_insert_with(|| vec![Osd::DEFAULT_AFFINITY; self.osds.len()]);
        all[osd.index()] = affinity;
    }

    fn apply_placement(&mut self, inc: &Incremental) {
        if !inc.new_pg_temp.is_empty() {
            let pg_temp = Arc::make_mut(&mut self.pg_temp);
            for (&pg, osds) in &inc.new_pg_temp {
                if osds.is_empty() {
                    pg_temp.remove(&pg)
                } else {
                    pg_temp.insert(pg, osds.clone())
                };
            }
        }
        if !inc.new_primary_temp.is_empty() {
            let primary_temp = Arc::make_mut(&mut self.primary_temp);
            for (&pg, &osd) in &inc.new_primary_temp {
                if osd.0 == -1 {
                    primary_temp.remove(&pg)
                } else {
                    primary_temp.insert(pg, osd)
                };
            }
        }
        if !inc.new_pg_upmap.is_empty() || !inc.old_pg_upmap.is_empty() {
            let upmap = Arc::make_mut(&mut self.pg_upmap);
            upmap.extend(inc.new_pg_upmap.iter().map(|(&pg, osds)| (pg, osds.clone())));
            upmap.retain(|pg, _| !inc.old_pg_upmap.contains(pg));
        }
        if !inc.new_pg_upmap_items.is_empty() || !inc.old_pg_upmap_items.is_empty() {
            let items = Arc::make_mut(&mut self.pg_upmap_items);
            items.extend(inc.new_pg_upmap_items.iter().map(|(&pg, pairs)| (pg, pairs.clone())));
            items.retain(|pg, _| !inc.old_pg_upmap_items.contains(pg));
        }
    }

    fn apply_settings(&mut self, inc: &Incremental) {
        self.apply_blocklist(inc);
        self.cluster_snapshot = inc.cluster_snapshot.clone();
        self.cluster_snapshot_epoch = if inc.cluster_snapshot.is_empty() { Epoch(0) } else { inc.epoch };
        self.ratios = FullRatios {
            nearfull: inc.new_nearfull_ratio.unwrap_or(self.ratios.nearfull),
            full: inc.new_full_ratio.unwrap_or(self.ratios.full),
            backfillfull: inc.new_backfillfull_ratio.unwrap_or(self.ratios.backfillfull),
        };
        if let Some(client) = inc.new_require_min_compat_client {
            self.require_min_compat_client = client;
        }
        if let Some(osd) = inc.new_require_osd_release {
            self.require_osd_release = osd;
            if osd >= release::LUMINOUS {
                self.flags &=
                    !(map_flags::REQUIRE_JEWEL | map_flags::REQUIRE_KRAKEN | map_flags::REQUIRE_LUMINOUS);
                self.flags |= map_flags::RECOVERY_DELETES;
            }
            if osd >= release::NAUTILUS {
                self.flags |= map_flags::PGLOG_HARDLIMIT;
            }
        }
        for (have, new) in [
            (&mut self.crush_node_flags, &inc.new_crush_node_flags),
            (&mut self.device_class_flags, &inc.new_device_class_flags),
        ] {
            for (&key, &flags) in new {
                if flags == 0 {
                    have.remove(&key)
                } else {
                    have.insert(key, flags)
                };
            }
        }
        if let Some(crush) = &inc.crush {
            self.crush = crush.clone();
            self.crush_version = self.crush_version.wrapping_add(1);
        }
    }
}

impl Encode for Incremental {
    fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        versioned(out, 8, 7, |out| {
            versioned(out, 8, 1, |out| self.encode_client_part(out));
            versioned(out, self.osd_part_version(), 1, |out| self.encode_osd_part(out));
            0_u32.encode(out); // the checksum, below
            self.full_crc.encode(out);
        });
        let at = out.len() - 8;
        let crc = crc32c(crc32c(u32::MAX, &out[start..at]), &out[at + 4..]);
        out[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    }
}

impl Incremental {
    fn encode_client_part(&self, out: &mut Vec<u8>) {
        self.fsid.encode(out);
        self.epoch.encode(out);
        self.modified.encode(out);
        self.new_pool_max.map_or(-1, i64::from).encode(out);
        self.new_flags.map_or(-1, |flags| flags as i32).encode(out);
        self.full_map.encode(out);
        self.crush.as_ref().map_or_else(Vec::new, |crush| nacre_wire::to_vec(crush.as_ref()))[..].encode(out);
        self.new_max_osd.map_or(-1, |max| max as i32).encode(out);
        encode_map(out, self.new_pools.iter().map(|(id, pool)| (id, pool.as_ref())));
        self.new_pool_names.encode(out);
        self.old_pools.encode(out);
        self.new_up_client.encode(out);
        self.new_state.encode(out);
        self.new_weight.encode(out);
        self.new_pg_temp.encode(out);
        self.new_primary_temp.encode(out);
        self.new_primary_affinity.encode(out);
        self.new_erasure_code_profiles.encode(out);
        self.old_erasure_code_profiles.encode(out);
        self.new_pg_upmap.encode(out);
        self.old_pg_upmap.encode(out);
        self.new_pg_upmap_items.encode(out);
        self.old_pg_upmap_items.encode(out);
        self.new_removed_snaps.encode(out);
        self.new_purged_snaps.encode(out);
        self.new_last_up_change.encode(out);
        self.new_last_in_change.encode(out);
    }

    fn encode_osd_part(&self, out: &mut Vec<u8>) {
        self.new_hb_back_up.encode(out);
        self.new_up_thru.encode(out);
        self.new_last_clean_interval.encode(out);
        self.new_lost.encode(out);
        encode_map(out, blocklist_order(&self.new_blocklist).into_iter());
        self.old_blocklist.encode(out);
        self.new_up_cluster.encode(out);
        self.cluster_snapshot.encode(out);
        self.new_uuid.encode(out);
        self.new_xinfo.encode(out);
        self.new_hb_front_up.encode(out);
        self.encode_features.encode(out);
        self.new_nearfull_ratio.unwrap_or(-1.0).encode(out);
        self.new_full_ratio.unwrap_or(-1.0).encode(out);
        self.new_backfillfull_ratio.unwrap_or(-1.0).encode(out);
        self.new_require_min_compat_client.unwrap_or(0xff).encode(out);
        self.new_require_osd_release.unwrap_or(0xff).encode(out);
        self.new_crush_node_flags.encode(out);
        self.new_device_class_flags.encode(out);
        self.encode_ranges(out);
    }
}

impl Decode for Incremental {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let bytes = r.rest();
        r.versioned("OSDMap::Incremental", 8, |r, v| {
            not_older("OSDMap::Incremental version", v, 8)?;
            let len = r.remaining();
            let mut inc = r.versioned("OSDMap::Incremental client part", 8, |r, v| {
                not_older("OSDMap::Incremental client part version", v, 8)?;
                Incremental::decode_client_part(r)
            })?;
            r.versioned("OSDMap::Incremental OSD part", 9, |r, v| {
                not_older("OSDMap::Incremental OSD part version", v, 9)?;
                inc.decode_osd_part(r, v)
            })?;
            // 6 bytes of envelope are before what `r` had.
            let before = &bytes[..6 + len - r.remaining()];
            let crc = u32::decode(r)?;
            let full_crc: [u8; 4] = r.array()?;
            if crc != crc32c(crc32c(u32::MAX, before), &full_crc) {
                return Err(DecodeError::BadValue {
                    what: "OSDMap::Incremental checksum",
                    value: crc.into(),
                });
            }
            inc.full_crc = u32::from_le_bytes(full_crc);
            Ok(inc)
        })
    }
}

/// Numbers of which every negative one means "unchanged".
fn unless_negative(r: &mut Reader<'_>) -> Result<Option<u32>, DecodeError> {
    Ok(u32::try_from(i32::decode(r)?).ok())
}
fn ratio(r: &mut Reader<'_>) -> Result<Option<f32>, DecodeError> {
    Ok(Some(f32::decode(r)?).filter(|&ratio| ratio >= 0.0))
}
/// A release; neither 0 nor 255 is one.
fn release_number(r: &mut Reader<'_>) -> Result<Option<u8>, DecodeError> {
    Ok(Some(u8::decode(r)?).filter(|number| !matches!(number, 0 | 0xff)))
}

impl Incremental {
    fn decode_client_part(r: &mut Reader<'_>) -> Result<Incremental, DecodeError> {
        let fsid = Uuid::decode(r)?;
        let epoch = with_next(Epoch::decode(r)?)?;
        let modified = Utime::decode(r)?;
        let mut inc = Incremental::new(fsid, epoch, modified);
        inc.new_pool_max = match i64::decode(r)? {
            -1 => None,
            max => Some(
                i32::try_from(max)
                    .map_err(|_| DecodeError::BadValue { what: "new_pool_max", value: max as u64 })?,
            ),
        };
        inc.new_flags = unless_negative(r)?;
        inc.full_map = Bytes::decode(r)?;
        inc.crush = match r.bytes()? {
            [] => None,
            bytes => Some(Arc::new(from_slice(bytes)?)),
        };
        inc.new_max_osd = unless_negative(r)?;
        let pools = BTreeMap::<PoolId, Pool>::decode(r)?;
        inc.new_pools = pools.into_iter().map(|(id, pool)| (id, Arc::new(pool))).collect();
        inc.new_pool_names = BTreeMap::decode(r)?;
        inc.old_pools = BTreeSet::decode(r)?;
        inc.new_up_client = BTreeMap::decode(r)?;
        inc.new_state = BTreeMap::decode(r)?;
        inc.new_weight = BTreeMap::decode(r)?;
        inc.new_pg_temp = BTreeMap::decode(r)?;
        inc.new_primary_temp = BTreeMap::decode(r)?;
        inc.new_primary_affinity = BTreeMap::decode(r)?;
        inc.new_erasure_code_profiles = BTreeMap::decode(r)?;
        inc.old_erasure_code_profiles = Vec::decode(r)?;
        inc.new_pg_upmap = BTreeMap::decode(r)?;
        inc.old_pg_upmap = BTreeSet::decode(r)?;
        inc.new_pg_upmap_items = BTreeMap::decode(r)?;
        inc.old_pg_upmap_items = BTreeSet::decode(r)?;
        inc.new_removed_snaps = BTreeMap::decode(r)?;
        inc.new_purged_snaps = BTreeMap::decode(r)?;
        inc.new_last_up_change = Utime::decode(r)?;
        inc.new_last_in_change = Utime::decode(r)?;
        Ok(inc)
    }

    fn decode_osd_part(&mut self, r: &mut Reader<'_>, version: u8) -> Result<(), DecodeError> {
        self.new_hb_back_up = BTreeMap::decode(r)?;
        self.new_up_thru = BTreeMap::decode(r)?;
        self.new_last_clean_interval = BTreeMap::decode(r)?;
        self.new_lost = BTreeMap::decode(r)?;
        self.new_blocklist = BTreeMap::decode(r)?;
        self.old_blocklist = Vec::decode(r)?;
        self.new_up_cluster = BTreeMap::decode(r)?;
        self.cluster_snapshot = String::decode(r)?;
        self.new_uuid = BTreeMap::decode(r)?;
        self.new_xinfo = BTreeMap::decode(r)?;
        self.new_hb_front_up = BTreeMap::decode(r)?;
        self.encode_features = u64::decode(r)?;
        self.new_nearfull_ratio = ratio(r)?;
        self.new_full_ratio = ratio(r)?;
        self.new_backfillfull_ratio = ratio(r)?;
        self.new_require_min_compat_client = release_number(r)?;
        self.new_require_osd_release = release_number(r)?;
        self.new_crush_node_flags = BTreeMap::decode(r)?;
        self.new_device_class_flags = BTreeMap::decode(r)?;
        self.decode_ranges(r, version)
    }
}
