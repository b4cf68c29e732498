//! The OSD map with its recent changes, and what is kept beside it: the agreed slice.

use crate::services::config::Config;
use crate::sessions::Session;
use crate::state::{Applying, Genesis, Published, Rejected, Slice, State};
use bytes::Bytes;
use nacre_base::{Epoch, IntervalSet, OsdId, PoolId, SnapId};
use nacre_proto::maps::{Incremental, OsdMap};
use nacre_proto::messages::{Message, OsdMapMsg};
use nacre_wire::{Decode, DecodeError, Encode, Reader, from_slice, to_vec};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How many epochs back a map is available, unless `mon_min_osdmap_epochs` says otherwise. A subscriber that
/// is further behind gets a whole map.
pub(crate) const INCREMENTALS: u32 = 500;
/// The base map moves on by this part of them at a time, since moving it costs an encoding.
pub(crate) const TRIM_PART: u32 = 5;
/// Incrementals in one message, as Ceph's `osd_map_message_max`.
const MAPS_PER_MESSAGE: usize = 40;

/// The OSD map and its history.
#[derive(Clone, Debug)]
pub struct OsdMaps {
    pub map: Arc<OsdMap>,
    /// `map`, encoded: what subscribers get.
    pub full: Bytes,
    /// The map before the first of `incrementals`, encoded.
    base: (Epoch, Bytes),
    pub incrementals: BTreeMap<Epoch, Bytes>,
    /// What each OSD reported of itself when it booted.
    pub metadata: BTreeMap<OsdId, BTreeMap<String, String>>,
    /// Snapshots of pools that were removed, and of which nothing is left.
    pub purged_snaps: BTreeMap<PoolId, IntervalSet>,
}

/// How a batch changes it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OsdMapDelta {
    /// An encoded incremental with its checksums.
    pub incremental: Option<Bytes>,
    pub metadata: Vec<(OsdId, BTreeMap<String, String>)>,
    /// Snapshot ids that removals took for themselves. The map does not tell them from those of snapshots
    /// that were made in the same epoch.
    pub removal_numbers: Vec<(PoolId, SnapId)>,
}

/// A change of the map that applies.
pub struct OsdMapChange {
    pub inc: Incremental,
    pub next: Arc<OsdMap>,
    bytes: Bytes,
    /// How many changes are kept.
    kept: u32,
}

impl OsdMaps {
    /// The change that a batch makes, if it fits the map.
    pub fn change(&self, delta: &OsdMapDelta, config: &Config) -> Result<Option<OsdMapChange>, Rejected> {
        let Some(bytes) = &delta.incremental else { return Ok(None) };
        let inc: Incremental = from_slice(bytes)?;
        let next = Arc::new(self.map.apply(&inc)?);
        Ok(Some(OsdMapChange { inc, next, bytes: bytes.clone(), kept: config.osdmaps_kept() }))
    }

    fn advance(&mut self, change: &OsdMapChange) {
        self.map = change.next.clone();
        self.full = to_vec(self.map.as_ref()).into();
        self.incrementals.insert(change.inc.epoch, change.bytes.clone());
        for (pool, snaps) in &change.inc.new_purged_snaps {
            self.purged_snaps.entry(*pool).or_default().add(snaps);
        }
        for pool in &change.inc.old_pools {
            self.purged_snaps.remove(pool);
        }
        let map = &self.map;
        self.metadata.retain(|osd, _| map.exists(*osd));
        let kept = change.kept;
        if self.incrementals.len() >= (kept + (kept / TRIM_PART).max(1)) as usize {
            self.trim(kept);
        }
    }

    /// Continues that many epochs later, with nothing in between: maps may have been lost that daemons have.
    pub fn skip_epochs(&mut self, epochs: u32) {
        let mut map = self.map.as_ref().clone();
        map.epoch = Epoch(map.epoch.0.saturating_add(epochs));
        self.full = to_vec(&map).into();
        self.base = (map.epoch, self.full.clone());
        self.incrementals.clear();
        self.map = Arc::new(map);
    }

    fn trim(&mut self, kept: u32) {
        let keep_from = Epoch(self.map.epoch.0.saturating_sub(kept));
        match self.replay(keep_from) {
            Ok(map) => {
                self.base = (map.epoch, to_vec(&map).into());
                self.incrementals = self.incrementals.split_off(&keep_from.next());
            }
            // The checkpoint was damaged when it came: subscribers that are behind get the whole map.
            Err(_) => {
                self.base = (self.map.epoch, self.full.clone());
                self.incrementals.clear();
            }
        }
    }

    /// The map of `epoch`, made from the base.
    fn replay(&self, epoch: Epoch) -> Result<OsdMap, Rejected> {
        let mut map: OsdMap = from_slice(&self.base.1)?;
        for bytes in self.incrementals.range(..=epoch).map(|(_, bytes)| bytes) {
            map = map.apply(&from_slice(bytes)?)?;
        }
        Ok(map)
    }

    /// The oldest epoch whose map is available.
    pub fn oldest(&self) -> Epoch {
        self.base.0
    }
    /// The map of `epoch`, encoded, if it is kept.
    pub fn at(&self, epoch: Epoch) -> Option<Bytes> {
        if epoch == self.map.epoch {
            return Some(self.full.clone());
        }
        if epoch < self.base.0 || epoch > self.map.epoch {
            return None;
        }
        Some(to_vec(&self.replay(epoch).ok()?).into())
    }

    pub(crate) fn encode_maps(&self, out: &mut Vec<u8>) {
        self.full.encode(out);
        self.base.encode(out);
        self.incrementals.encode(out);
    }
    pub(crate) fn decode_maps(r: &mut Reader<'_>) -> Result<OsdMaps, DecodeError> {
        let full = Bytes::decode(r)?;
        Ok(OsdMaps {
            map: Arc::new(from_slice(&full)?),
            full,
            base: Decode::decode(r)?,
            incrementals: Decode::decode(r)?,
            metadata: BTreeMap::new(),
            purged_snaps: BTreeMap::new(),
        })
    }
}

impl Slice for OsdMaps {
    type Delta = OsdMapDelta;

    fn begin(genesis: &Genesis) -> Result<OsdMaps, Rejected> {
        let map: OsdMap = from_slice(&genesis.osdmap)?;
        Ok(OsdMaps {
            base: (map.epoch, genesis.osdmap.clone()),
            full: genesis.osdmap.clone(),
            map: Arc::new(map),
            incrementals: BTreeMap::new(),
            metadata: BTreeMap::new(),
            purged_snaps: BTreeMap::new(),
        })
    }

    fn apply(&mut self, delta: &OsdMapDelta, at: &Applying) {
        if let Some(change) = &at.change {
            self.advance(change);
        }
        self.metadata.extend(delta.metadata.iter().cloned());
        for (pool, number) in &delta.removal_numbers {
            // It was never a snapshot's, and leaves no gap among those that are gone.
            if self.map.pool(*pool).is_some() {
                self.purged_snaps.entry(*pool).or_default().insert(number.0..number.0.saturating_add(1));
            }
        }
    }

    fn version(&self, what: &str) -> Option<(u64, u64)> {
        (what == "osdmap").then(|| (self.map.epoch.0.into(), self.oldest().0.into()))
    }

    fn publish(state: &State, what: &str, session: &mut Session, start: u64) -> Option<Published> {
        let newest = u64::from(state.osdmap.map.epoch.0);
        if what != "osdmap" || start > newest {
            return None;
        }
        let messages = updates(state, session, Epoch(start as u32));
        Some(Published { messages, next: newest + 1 })
    }
}

/// The changes from epoch `start` on, or a whole map if they do not reach back that far.
pub(crate) fn updates(state: &State, session: &mut Session, start: Epoch) -> Vec<Message> {
    let maps = &state.osdmap;
    let (oldest, newest) = (maps.oldest(), maps.map.epoch);
    if start > newest {
        return Vec::new();
    }
    session.sent_osdmap = newest;
    let message = |incrementals, full, oldest| -> Message {
        let fsid = state.fsid();
        let gap_removed_snaps = BTreeMap::new();
        OsdMapMsg { fsid, incrementals, full, oldest, newest, gap_removed_snaps }.into()
    };
    if start == Epoch(0) || start <= oldest {
        let full = BTreeMap::from([(newest, maps.full.clone())]);
        return vec![message(BTreeMap::new(), full, newest)];
    }
    let all: Vec<_> = maps.incrementals.range(start..).map(|(e, bytes)| (*e, bytes.clone())).collect();
    let parts = all.chunks(MAPS_PER_MESSAGE);
    parts.map(|part| message(part.iter().cloned().collect(), BTreeMap::new(), oldest)).collect()
}
