//! Messages between metadata servers and monitors.

use super::RawMessage;
use super::body::{Body, fields};
use super::mon::PaxosVersion;
use crate::maps::{CompatSet, MdsGid, MdsRank, MdsState, NO_FILE_SYSTEM, NO_RANK};
use bytes::Bytes;
use nacre_base::{Epoch, SnapId};
use nacre_wire::{Decode, DecodeError, Encode, Reader, encode_map, versioned};
use std::collections::{BTreeMap, BTreeSet};

/// Ceph: `MMDSBeacon` v8, readable since v6. A metadata server says every few seconds that it lives and what
/// it does or wants to do. The monitor answers with the same message, in which only the numbers count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MdsBeacon {
    /// The epoch of the file system map that the sender has.
    pub version: PaxosVersion,
    pub fsid: [u8; 16],
    pub gid: MdsGid,
    pub state: MdsState,
    /// Counts the sender's beacons.
    pub seq: u64,
    pub name: String,
    pub compat: CompatSet,
    pub health: Vec<MdsHealth>,
    /// What it runs on, by Ceph's names; only while it boots.
    pub metadata: BTreeMap<String, String>,
    pub features: u64,
    /// The file system that it prefers, by name; any, if empty.
    pub fs: String,
}

/// A warning of a metadata server about itself. Ceph: `MDSHealthMetric`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MdsHealth {
    /// Ceph: `mds_metric_t`.
    pub kind: u16,
    /// Ceph: `health_status_t`: 0 error, 1 warning, 2 fine.
    pub severity: u8,
    pub text: String,
    pub metadata: BTreeMap<String, String>,
}

impl Encode for MdsHealth {
    fn encode(&self, out: &mut Vec<u8>) {
        versioned(out, 1, 1, |out| {
            self.kind.encode(out);
            self.severity.encode(out);
            self.text.encode(out);
            self.metadata.encode(out);
        });
    }
}
impl Decode for MdsHealth {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("MDSHealthMetric", 1, |r, _| {
            Ok(MdsHealth {
                kind: Decode::decode(r)?,
                severity: Decode::decode(r)?,
                text: Decode::decode(r)?,
                metadata: Decode::decode(r)?,
            })
        })
    }
}

impl Body for MdsBeacon {
    fn to_segments(&self, front: &mut Vec<u8>) -> Bytes {
        self.version.encode(front);
        self.fsid.encode(front);
        self.gid.encode(front);
        self.state.encode(front);
        self.seq.encode(front);
        self.name.encode(front);
        // What it is to stand by for: unused since Nautilus.
        NO_RANK.encode(front);
        String::new().encode(front);
        self.compat.encode(front);
        versioned(front, 1, 1, |out| self.health.encode(out));
        if self.state == MdsState::BOOT {
            self.metadata.encode(front);
        }
        self.features.encode(front);
        NO_FILE_SYSTEM.encode(front);
        false.encode(front);
        self.fs.encode(front);
        Bytes::new()
    }
    fn from_segments(raw: &RawMessage) -> Result<Self, DecodeError> {
        let r = &mut Reader::new(&raw.front);
        let version = Decode::decode(r)?;
        let (fsid, gid) = (Decode::decode(r)?, Decode::decode(r)?);
        let state = MdsState::decode(r)?;
        let (seq, name) = (Decode::decode(r)?, Decode::decode(r)?);
        let _standby_for: (MdsRank, String) = Decode::decode(r)?;
        let compat = Decode::decode(r)?;
        let health = r.versioned("MDSHealth", 1, |r, _| Decode::decode(r))?;
        let metadata = if state == MdsState::BOOT { Decode::decode(r)? } else { BTreeMap::new() };
        let features = Decode::decode(r)?;
        let _standby_for: (i32, bool) = Decode::decode(r)?;
        let fs = if raw.version >= 8 { Decode::decode(r)? } else { String::new() };
        Ok(MdsBeacon { version, fsid, gid, state, seq, name, compat, health, metadata, features, fs })
    }
}

/// Ceph: `MFSMap`. To subscribers of "fsmap"; the map stays encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsMapMsg {
    pub epoch: Epoch,
    /// An encoded `FsMap`.
    pub map: Bytes,
}

impl Body for FsMapMsg {
    fn to_segments(&self, front: &mut Vec<u8>) -> Bytes {
        self.epoch.encode(front);
        front.extend_from_slice(&self.map);
        Bytes::new()
    }
    fn from_segments(raw: &RawMessage) -> Result<Self, DecodeError> {
        let r = &mut Reader::new(&raw.front);
        Ok(FsMapMsg { epoch: Decode::decode(r)?, map: raw.front.slice_ref(r.rest()) })
    }
}

/// Ceph: `MMDSLoadTargets`. The ranks that a metadata server may move directories to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MdsLoadTargets {
    pub version: PaxosVersion,
    pub gid: MdsGid,
    pub targets: BTreeSet<MdsRank>,
}

/// Ceph: `MRemoveSnaps`. Snapshots of pools of which no file system knows any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoveSnaps {
    pub version: PaxosVersion,
    pub snaps: BTreeMap<i32, Vec<SnapId>>,
}

impl Body for RemoveSnaps {
    fn to_segments(&self, front: &mut Vec<u8>) -> Bytes {
        self.version.encode(front);
        encode_map(front, self.snaps.iter());
        Bytes::new()
    }
    fn from_segments(raw: &RawMessage) -> Result<Self, DecodeError> {
        let r = &mut Reader::new(&raw.front);
        Ok(RemoveSnaps { version: Decode::decode(r)?, snaps: Decode::decode(r)? })
    }
}

fields! {
    MdsLoadTargets { version, gid, targets };
}
