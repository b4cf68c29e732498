//! All file systems, and the metadata servers that stand by for them.

use super::mdsmap::{CompatSet, MdsGid, MdsInfo, MdsMap, NO_FILE_SYSTEM};
use nacre_base::Epoch;
use nacre_wire::{Decode, DecodeError, Encode, Reader, from_slice, to_vec, versioned};
use std::collections::BTreeMap;

/// Ceph: `FSMap` v7, readable since v6.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsMap {
    pub epoch: Epoch,
    pub next_fscid: u64,
    /// The file system of clients that name none; -1: there is none.
    pub default_fscid: i32,
    pub default_compat: CompatSet,
    /// Whether there may be more than one file system.
    pub enable_multiple: bool,
    pub ever_enabled_multiple: bool,
    pub filesystems: BTreeMap<i32, Filesystem>,
    /// The file system of each server; `NO_FILE_SYSTEM` for those that stand by for any.
    pub roles: BTreeMap<MdsGid, i32>,
    pub standbys: BTreeMap<MdsGid, MdsInfo>,
    /// The epoch that changed each standby last.
    pub standby_epochs: BTreeMap<MdsGid, Epoch>,
}

/// Ceph: `Filesystem` v2.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filesystem {
    pub fscid: i32,
    pub map: MdsMap,
}

impl Default for FsMap {
    fn default() -> FsMap {
        FsMap {
            epoch: Epoch(1),
            next_fscid: 1,
            default_fscid: NO_FILE_SYSTEM,
            default_compat: CompatSet::of_new_file_system(),
            enable_multiple: true,
            ever_enabled_multiple: true,
            filesystems: BTreeMap::new(),
            roles: BTreeMap::new(),
            standbys: BTreeMap::new(),
            standby_epochs: BTreeMap::new(),
        }
    }
}

impl FsMap {
    /// The file system of that name.
    pub fn by_name(&self, name: &str) -> Option<&Filesystem> {
        self.filesystems.values().find(|fs| fs.map.fs_name == name)
    }
    /// A server, whether it has a rank or stands by.
    pub fn info(&self, gid: MdsGid) -> Option<&MdsInfo> {
        let fs = self.filesystems.get(self.roles.get(&gid)?);
        fs.map_or_else(|| self.standbys.get(&gid), |fs| fs.map.infos.get(&gid))
    }
    /// All servers.
    pub fn infos(&self) -> impl Iterator<Item = &MdsInfo> {
        self.filesystems.values().flat_map(|fs| fs.map.infos.values()).chain(self.standbys.values())
    }
}

impl Encode for Filesystem {
    fn encode(&self, out: &mut Vec<u8>) {
        versioned(out, 2, 1, |out| {
            self.fscid.encode(out);
            to_vec(&self.map).encode(out);
            // Mirroring to another cluster: off, to no peers.
            versioned(out, 1, 1, |out| {
                false.encode(out);
                0_u32.encode(out);
            });
        });
    }
}
impl Decode for Filesystem {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("Filesystem", 2, |r, _| {
            Ok(Filesystem { fscid: Decode::decode(r)?, map: from_slice(r.bytes()?)? })
        })
    }
}

impl Encode for FsMap {
    fn encode(&self, out: &mut Vec<u8>) {
        versioned(out, 7, 6, |out| {
            self.epoch.encode(out);
            self.next_fscid.encode(out);
            self.default_fscid.encode(out);
            self.default_compat.encode(out);
            self.enable_multiple.encode(out);
            self.filesystems.values().collect::<Vec<_>>().encode(out);
            self.roles.encode(out);
            self.standbys.encode(out);
            self.standby_epochs.encode(out);
            self.ever_enabled_multiple.encode(out);
        });
    }
}
impl Decode for FsMap {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("FSMap", 7, |r, v| {
            if v < 7 {
                return Err(DecodeError::BadValue { what: "FSMap version", value: v.into() });
            }
            Ok(FsMap {
                epoch: Decode::decode(r)?,
                next_fscid: Decode::decode(r)?,
                default_fscid: Decode::decode(r)?,
                default_compat: Decode::decode(r)?,
                enable_multiple: Decode::decode(r)?,
                filesystems: {
                    let all: Vec<Filesystem> = Decode::decode(r)?;
                    all.into_iter().map(|fs| (fs.fscid, fs)).collect()
                },
                roles: Decode::decode(r)?,
                standbys: Decode::decode(r)?,
                standby_epochs: Decode::decode(r)?,
                ever_enabled_multiple: Decode::decode(r)?,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_of_ceph_are_read_and_written_as_they_were() {
        let text = include_str!("../../../../check/corpus/data/fsmap.txt");
        let hex = text.lines().find_map(|line| line.strip_prefix("fsmap\t")).unwrap();
        let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        let bytes: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
        let map: FsMap = from_slice(&bytes).unwrap();
        let fs = map.by_name("cephfs").unwrap();
        assert_eq!((map.epoch, fs.fscid, fs.map.data_pools[0].0), (Epoch(4), 1, 4));
        assert_eq!(fs.map.holder(0).unwrap().state.to_string(), "up:active");
        assert_eq!(to_vec(&map), bytes);
    }
}
