//! File systems: which there are, and which metadata server has which rank.
//!
//! This module is the agreed slice: the map, and what servers say of themselves. `changes` has the steps that
//! change a map, `beacons` what the leader knows beside it and how it uses these steps, `health` what is
//! wrong.

mod beacons;
pub mod changes;
mod health;

pub use beacons::{MdsMonitor, fail};

use crate::sessions::Session;
use crate::state::{Applying, Genesis, Published, Rejected, Slice, State};
use bytes::Bytes;
use nacre_base::Epoch;
use nacre_proto::maps::{Filesystem, FsMap, MdsGid, MdsMap, NO_FILE_SYSTEM};
use nacre_proto::messages::{FsMapMsg, FsMapUser, MdsHealth, MdsMapMsg, Message};
use nacre_proto::types::EntityType;
use nacre_wire::{Decode, DecodeError, Encode, Reader, to_vec, versioned_fields};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a metadata server runs on, by Ceph's names.
pub type Metadata = BTreeMap<String, String>;

/// The map, and what metadata servers say of themselves.
#[derive(Clone, Debug)]
pub struct FileSystems {
    pub map: Arc<FsMap>,
    pub metadata: BTreeMap<MdsGid, Metadata>,
    pub health: BTreeMap<MdsGid, Vec<MdsHealth>>,
    /// `map` and each of its file systems, encoded once for all subscribers.
    encoded: Encoded,
}

#[derive(Clone, Debug, Default)]
struct Encoded {
    whole: Bytes,
    each: BTreeMap<i32, Bytes>,
}

impl Encoded {
    /// `before`: an older map with its encodings. File systems that did not change are not encoded again.
    fn of(map: &FsMap, before: Option<(&FsMap, &Encoded)>) -> Encoded {
        let each = map.filesystems.iter().map(|(fscid, fs)| {
            let known = before.filter(|(old, _)| old.filesystems.get(fscid) == Some(fs));
            let known = known.and_then(|(_, encoded)| encoded.each.get(fscid).cloned());
            (*fscid, known.unwrap_or_else(|| to_vec(&fs.map).into()))
        });
        Encoded { each: each.collect(), whole: to_vec(map).into() }
    }
}

/// How a batch changes it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FsDelta {
    pub map: Option<FsMap>,
    /// Of servers that boot.
    pub metadata: Vec<(MdsGid, Metadata)>,
    /// Of servers whose own warnings changed.
    pub health: Vec<(MdsGid, Vec<MdsHealth>)>,
}
versioned_fields!(FsDelta, "file systems' delta", map, metadata, health);

impl FileSystems {
    fn new(map: FsMap) -> FileSystems {
        let encoded = Encoded::of(&map, None);
        FileSystems { map: Arc::new(map), metadata: BTreeMap::new(), health: BTreeMap::new(), encoded }
    }
}

impl Default for FileSystems {
    fn default() -> FileSystems {
        FileSystems::new(FsMap::default())
    }
}

impl Encode for FileSystems {
    fn encode(&self, out: &mut Vec<u8>) {
        self.map.as_ref().encode(out);
        self.metadata.encode(out);
        self.health.encode(out);
    }
}
impl Decode for FileSystems {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let map = FsMap::decode(r)?;
        Ok(FileSystems { metadata: Decode::decode(r)?, health: Decode::decode(r)?, ..FileSystems::new(map) })
    }
}

impl Slice for FileSystems {
    type Delta = FsDelta;

    fn begin(_: &Genesis) -> Result<FileSystems, Rejected> {
        Ok(FileSystems::default())
    }

    fn apply(&mut self, delta: &FsDelta, _: &Applying) {
        self.metadata.extend(delta.metadata.iter().cloned());
        self.health.extend(delta.health.iter().cloned());
        if let Some(map) = &delta.map {
            self.encoded = Encoded::of(map, Some((&self.map, &self.encoded)));
            self.map = Arc::new(map.clone());
        }
        if *delta != FsDelta::default() {
            let map = self.map.clone();
            self.metadata.retain(|gid, _| map.roles.contains_key(gid));
            self.health.retain(|gid, health| map.roles.contains_key(gid) && !health.is_empty());
        }
    }

    fn version(&self, what: &str) -> Option<(u64, u64)> {
        let is_ours = matches!(what, "fsmap" | "fsmap.user") || what.starts_with("mdsmap");
        is_ours.then(|| (self.map.epoch.0.into(), self.map.epoch.0.into()))
    }

    fn publish(state: &State, what: &str, session: &mut Session, start: u64) -> Option<Published> {
        let all = &state.fsmap;
        let newest = all.map.epoch;
        let is_mds_map = what.starts_with("mdsmap");
        if start > newest.0.into() || !(is_mds_map || matches!(what, "fsmap" | "fsmap.user")) {
            return None;
        }
        let one = |message: Message, epoch: Epoch| {
            Some(Published { messages: vec![message], next: u64::from(epoch.0) + 1 })
        };
        let seen = |fs: &Filesystem| session.caps.sees_file_system(&fs.map.fs_name);
        match what {
            "fsmap" => {
                let map = match all.map.filesystems.values().all(seen) {
                    true => all.encoded.whole.clone(),
                    false => {
                        let mut map = all.map.as_ref().clone();
                        map.filesystems.retain(|_, fs| seen(fs));
                        map.roles.retain(|_, fscid| {
                            *fscid == NO_FILE_SYSTEM || map.filesystems.contains_key(fscid)
                        });
                        to_vec(&map).into()
                    }
                };
                one(FsMapMsg { epoch: newest, map }.into(), newest)
            }
            "fsmap.user" => one(user_map(&all.map, seen).into(), newest),
            _ if session.peer.kind == EntityType::Mds => {
                let message = all.map_for_server(state, session, start)?;
                let epoch = message.epoch;
                one(message.into(), epoch)
            }
            _ => {
                let fscid = match what.strip_prefix("mdsmap.") {
                    Some(number) => number.parse().ok()?,
                    None => all.map.default_fscid,
                };
                all.map.filesystems.get(&fscid).filter(|fs| seen(fs))?;
                let message = all.map_of(state, fscid, start)?;
                let epoch = message.epoch;
                one(message.into(), epoch)
            }
        }
    }
}

fn user_map(map: &FsMap, seen: impl Fn(&Filesystem) -> bool) -> FsMapUser {
    let shown = map.filesystems.values().filter(|fs| seen(fs));
    let filesystems: Vec<(i32, String)> = shown.map(|fs| (fs.fscid, fs.map.fs_name.clone())).collect();
    let default = Some(map.default_fscid).filter(|id| filesystems.iter().any(|(shown, _)| shown == id));
    FsMapUser { epoch: map.epoch, legacy_client_fscid: default.unwrap_or(NO_FILE_SYSTEM), filesystems }
}

/// A map that no file system is in: for servers that are in no file system, or in no map at all.
pub fn null_map(state: &State, epoch: Epoch, known: Option<MdsGid>) -> MdsMapMsg {
    let info = known.and_then(|gid| Some((gid, state.fsmap.map.standbys.get(&gid)?.clone())));
    let map = MdsMap { epoch, infos: info.into_iter().collect(), ..MdsMap::default() };
    MdsMapMsg { fsid: state.fsid(), epoch, map: to_vec(&map).into(), fs_name: String::new() }
}

impl FileSystems {
    /// A file system's map, if it is of epoch `start` or newer.
    fn map_of(&self, state: &State, fscid: i32, start: u64) -> Option<MdsMapMsg> {
        let fs = &self.map.filesystems.get(&fscid)?.map;
        if start > fs.epoch.0.into() {
            return None;
        }
        let map = self.encoded.each.get(&fscid)?.clone();
        Some(MdsMapMsg { fsid: state.fsid(), epoch: fs.epoch, map, fs_name: fs.fs_name.clone() })
    }

    /// What a metadata server gets: the file system that it is in, or a map with itself alone.
    fn map_for_server(&self, state: &State, session: &Session, start: u64) -> Option<MdsMapMsg> {
        let addrs = &session.peer.addrs;
        let gid = self.map.infos().find(|info| info.addrs == *addrs).map(|info| info.gid);
        let fscid = gid.and_then(|gid| self.map.roles.get(&gid)).filter(|fscid| **fscid != NO_FILE_SYSTEM);
        if let Some(fscid) = fscid {
            return self.map_of(state, *fscid, start);
        }
        let epoch = gid.and_then(|gid| self.map.standby_epochs.get(&gid)).copied().unwrap_or(self.map.epoch);
        if start > epoch.0.into() { None } else { Some(null_map(state, epoch, gid)) }
    }
}
