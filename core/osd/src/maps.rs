//! The OSD map and its recent history: on disk for the next start, in memory for those whose map
//! is older. Kept in the omap of `meta osdmap`:
//!
//!   `full`           epoch:u32 and an encoded map
//!   `i` epoch:u32    the encoded incremental that leads to that epoch, big-endian in the key

use crate::own_placements::OwnPlacements;
use bytes::Bytes;
use nacre_base::{Epoch, Name};
use nacre_machine::{ReadError, StoreView};
use nacre_proto::maps::{ApplyError, Incremental, OsdMap};
use nacre_proto::messages::OsdMapMsg;
use nacre_proto::transaction::{Change, StoredId, Transaction};
use nacre_wire::{Decode, DecodeError, Encode, Reader, from_slice, to_vec};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How many epochs behind a peer may be to be updated by incrementals.
/// Ceph has it as `mon_min_osdmap_epochs`, and OSDs keep what monitors keep.
pub const KEPT: u32 = 500;
/// How often the full map is written again, so that a start has few incrementals to apply.
const FULL_EVERY: u32 = 50;
/// Incrementals in one message.
const SENT_MAX: usize = 40;

#[derive(Debug, thiserror::Error)]
pub enum MapError {
    #[error("it does not decode: {0}")]
    Decode(#[from] DecodeError),
    #[error("it does not fit: {0}")]
    Apply(#[from] ApplyError),
}

pub struct Maps {
    pub current: Option<Arc<OsdMap>>,
    /// Which PGs the map places on this OSD.
    pub own: OwnPlacements,
    /// How many incrementals are kept.
    pub kept: u32,
    incrementals: BTreeMap<Epoch, Bytes>,
    stored_full: Epoch,
}

impl Default for Maps {
    fn default() -> Maps {
        let own = OwnPlacements::default();
        Maps { current: None, own, kept: KEPT, incrementals: BTreeMap::new(), stored_full: Epoch(0) }
    }
}

pub fn id() -> StoredId {
    StoredId::meta("osdmap")
}
fn key(epoch: Epoch) -> Name {
    let mut key = vec![b'i'];
    key.extend(epoch.0.to_be_bytes());
    Name::new(key)
}

impl Maps {
    pub fn load(store: &dyn StoreView) -> Result<Maps, ReadError> {
        let mut maps = Maps::default();
        let broken = |error: MapError| ReadError::Device(format!("a stored OSD map: {error}"));
        let Some(full) = store.omap_get(&id(), b"full")? else { return Ok(maps) };
        let mut r = Reader::new(&full);
        let epoch = Epoch::decode(&mut r).map_err(|e| broken(e.into()))?;
        let mut map: OsdMap = from_slice(r.rest()).map_err(|e| broken(e.into()))?;
        if map.epoch != epoch {
            let value = map.epoch.0.into();
            return Err(broken(DecodeError::BadValue { what: "epoch of the whole map", value }.into()));
        }
        maps.stored_full = epoch;
        store.omap_walk(&id(), b"i", &mut |key, bytes| {
            if let [b'i', epoch @ ..] = key.as_bytes()
                && let Ok(epoch) = epoch.try_into()
            {
                maps.incrementals.insert(Epoch(u32::from_be_bytes(epoch)), bytes.clone());
            }
            true
        })?;
        while let Some(bytes) = maps.incrementals.get(&map.epoch.next()) {
            map = apply(&map, bytes).map_err(broken)?;
        }
        maps.current = Some(Arc::new(map));
        Ok(maps)
    }

    /// The first that leads from the map before it, or the newest.
    pub fn oldest(&self) -> Epoch {
        self.incrementals.keys().next().copied().unwrap_or(self.epoch())
    }
    pub fn epoch(&self) -> Epoch {
        self.current.as_ref().map_or(Epoch(0), |map| map.epoch)
    }

    /// The maps of a message that are newer than ours, each with whether it directly follows the one
    /// before. Stops at the first invalid map: the maps before it are adopted already.
    pub fn take(
        &mut self,
        msg: &OsdMapMsg,
        txn: &mut Transaction,
    ) -> Result<Vec<(Arc<OsdMap>, bool)>, MapError> {
        let mut taken = Vec::new();
        loop {
            match self.take_next(msg, txn) {
                Ok(Some(next)) => taken.push(next),
                Err(error) if taken.is_empty() => return Err(error),
                Ok(None) | Err(_) => return Ok(taken),
            }
        }
    }

    fn take_next(
        &mut self,
        msg: &OsdMapMsg,
        txn: &mut Transaction,
    ) -> Result<Option<(Arc<OsdMap>, bool)>, MapError> {
        let next = self.epoch().next();
        if let (Some(map), Some(bytes)) = (&self.current, msg.incrementals.get(&next)) {
            let map = apply(map, bytes)?;
            // They are kept for hundreds of epochs: not with all that was received together with them.
            self.keep(map, Bytes::copy_from_slice(bytes), txn);
            return Ok(Some((self.current.clone().expect("just kept"), true)));
        }
        // A whole map is of use only where the incrementals end.
        let Some((&epoch, bytes)) = msg.full.range(next..).next() else { return Ok(None) };
        let map: OsdMap = from_slice(bytes)?;
        if map.epoch != epoch {
            return Ok(None);
        }
        let follows = epoch == next && self.current.is_some();
        let old: BTreeSet<Name> = self.incrementals.keys().map(|epoch| key(*epoch)).collect();
        self.incrementals.clear();
        txn.push(id(), Change::OmapRemove(old));
        self.current = Some(Arc::new(map));
        self.store_full(txn);
        Ok(Some((self.current.clone().expect("just set"), follows)))
    }

    fn keep(&mut self, map: OsdMap, bytes: Bytes, txn: &mut Transaction) {
        let epoch = map.epoch;
        txn.push(id(), Change::OmapSet([(key(epoch), bytes.clone())].into()));
        self.incrementals.insert(epoch, bytes);
        self.current = Some(Arc::new(map));
        if epoch.0 >= self.stored_full.0 + FULL_EVERY.min(self.kept) {
            self.store_full(txn);
        }
        // Those before the stored full map serve others only.
        let old: Vec<Epoch> = self
            .incrementals
            .keys()
            .copied()
            .take_while(|e| e.0 + self.kept < epoch.0 && *e <= self.stored_full)
            .collect();
        if !old.is_empty() {
            old.iter().for_each(|epoch| {
                self.incrementals.remove(epoch);
            });
            txn.push(id(), Change::OmapRemove(old.into_iter().map(key).collect()));
        }
    }

    fn store_full(&mut self, txn: &mut Transaction) {
        let Some(map) = &self.current else { return };
        self.stored_full = map.epoch;
        let mut value = to_vec(&map.epoch);
        map.encode(&mut value);
        txn.push(id(), Change::OmapSet([(Name::from("full"), value.into())].into()));
    }

    /// What brings a peer from `epoch` to the current map, in one or more messages.
    pub fn since(&self, epoch: Epoch) -> Vec<OsdMapMsg> {
        let Some(map) = &self.current else { return Vec::new() };
        let message = |incrementals, full, oldest| OsdMapMsg {
            fsid: map.fsid,
            incrementals,
            full,
            oldest,
            newest: map.epoch,
            gap_removed_snaps: BTreeMap::new(),
        };
        if epoch >= map.epoch {
            return Vec::new();
        }
        let newer: Vec<(Epoch, Bytes)> =
            self.incrementals.range(epoch.next()..).map(|(epoch, bytes)| (*epoch, bytes.clone())).collect();
        let follows = epoch != Epoch(0) && newer.first().is_some_and(|(first, _)| *first == epoch.next());
        if !follows {
            let full = BTreeMap::from([(map.epoch, to_vec(&**map).into())]);
            return vec![message(BTreeMap::new(), full, map.epoch)];
        }
        newer
            .chunks(SENT_MAX)
            .map(|part| message(part.iter().cloned().collect(), BTreeMap::new(), self.oldest()))
            .collect()
    }
}

fn apply(map: &OsdMap, bytes: &[u8]) -> Result<OsdMap, MapError> {
    let incremental: Incremental = from_slice(bytes)?;
    Ok(map.apply(&incremental)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::received;
    use nacre_base::Utime;
    use nacre_crush::CrushMap;

    /// Found by looking for values of omaps that are parts of something larger: 500 small maps held on to 64
    /// KiB each.
    #[test]
    fn kept_maps_do_not_pin_the_message_buffer() {
        let map = OsdMap::new([1; 16], Utime::ZERO, CrushMap::default());
        let next = Incremental::after(&map, Utime::ZERO);
        let (mut maps, mut txn) =
            (Maps { current: Some(Arc::new(map)), ..Maps::default() }, Transaction::new());
        let (bytes, held) = received(&to_vec(&next));
        let newest = next.epoch;
        let msg = OsdMapMsg {
            fsid: next.fsid,
            incrementals: BTreeMap::from([(newest, bytes)]),
            full: BTreeMap::new(),
            oldest: newest,
            newest,
            gap_removed_snaps: BTreeMap::new(),
        };
        assert_eq!(maps.take(&msg, &mut txn).unwrap().len(), 1);
        drop(msg);
        assert_eq!((maps.epoch(), maps.oldest()), (newest, newest));
        assert!(held.upgrade().is_none());
    }

    /// The OSD had adopted them, but neither stored them nor passed them to the PGs, which missed their
    /// changes.
    #[test]
    fn maps_before_one_that_is_wrong_are_taken() {
        let map = OsdMap::new([1; 16], Utime::ZERO, CrushMap::default());
        let next = Incremental::after(&map, Utime::ZERO);
        let (newest, good) = (next.epoch.next(), to_vec(&next).into());
        let msg = OsdMapMsg {
            fsid: next.fsid,
            incrementals: BTreeMap::from([(next.epoch, good), (newest, Bytes::from_static(b"garbage"))]),
            full: BTreeMap::new(),
            oldest: next.epoch,
            newest,
            gap_removed_snaps: BTreeMap::new(),
        };
        let mut maps = Maps { current: Some(Arc::new(map)), ..Maps::default() };
        let mut txn = Transaction::new();
        let taken = maps.take(&msg, &mut txn).map(|taken| taken.len()).unwrap_or_default();
        assert_eq!((taken, maps.epoch(), txn.is_empty()), (1, next.epoch, false));
        assert!(maps.take(&msg, &mut txn).is_err());
    }

    /// Librados jumps to the oldest map, and of one of another epoch it takes nothing.
    #[test]
    fn peer_far_behind_gets_a_full_map() {
        let first = OsdMap::new([1; 16], Utime::ZERO, CrushMap::default());
        let second = Incremental::after(&first, Utime::ZERO);
        let current = first.apply(&second).unwrap();
        let third = Incremental::after(&current, Utime::ZERO);
        let maps = Maps {
            current: Some(Arc::new(current.apply(&third).unwrap())),
            incrementals: [&second, &third].map(|inc| (inc.epoch, to_vec(inc).into())).into(),
            ..Maps::default()
        };
        let [far] = &maps.since(Epoch(0))[..] else { panic!("one message") };
        assert!(far.full.contains_key(&far.oldest), "{:?}", far.oldest);
        let [near] = &maps.since(first.epoch)[..] else { panic!("one message") };
        assert!(near.incrementals.contains_key(&near.oldest), "{:?}", near.oldest);
    }
}
