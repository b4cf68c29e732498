//! Messages between clients and the manager, and the manager map.

use super::RawMessage;
use super::body::{Body, fields};
use bytes::Bytes;
use nacre_wire::{Decode, DecodeError, Encode, Reader, versioned};
use std::collections::BTreeMap;

/// Ceph: `MMgrMap`. To subscribers of "mgrmap".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MgrMapMsg {
    /// An encoded manager map.
    pub map: Bytes,
}

impl Body for MgrMapMsg {
    fn to_segments(&self, front: &mut Vec<u8>) -> Bytes {
        front.extend_from_slice(&self.map);
        Bytes::new()
    }
    fn from_segments(raw: &RawMessage) -> Result<Self, DecodeError> {
        Ok(MgrMapMsg { map: raw.front.clone() })
    }
}

/// Ceph: `MMgrOpen` v3. A daemon, or a client that offers a service (radosgw, rbd-mirror),
/// introduces itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MgrOpen {
    pub daemon_name: String,
    pub service_name: String,
    /// For clients that register as a service.
    pub service: Option<MgrService>,
    /// Encoded, not examined.
    pub config: Bytes,
    pub config_defaults: Bytes,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MgrService {
    pub metadata: BTreeMap<String, String>,
    pub status: BTreeMap<String, String>,
}

impl Encode for MgrService {
    fn encode(&self, out: &mut Vec<u8>) {
        self.metadata.encode(out);
        self.status.encode(out);
    }
}
impl Decode for MgrService {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(MgrService { metadata: BTreeMap::decode(r)?, status: BTreeMap::decode(r)? })
    }
}

/// Ceph: `MMgrConfigure` v4, without the queries for performance counters that it may carry.
/// Answers `MgrOpen`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MgrConfigure {
    pub stats_period_secs: u32,
    /// Counters of lower priority are not wanted.
    pub stats_threshold: u32,
}

impl Body for MgrConfigure {
    fn to_segments(&self, front: &mut Vec<u8>) -> Bytes {
        self.stats_period_secs.encode(front);
        self.stats_threshold.encode(front);
        0_u32.encode(front); // no OSD queries
        false.encode(front); // no other queries
        Bytes::new()
    }
    fn from_segments(raw: &RawMessage) -> Result<Self, DecodeError> {
        let r = &mut Reader::new(&raw.front);
        Ok(MgrConfigure { stats_period_secs: u32::decode(r)?, stats_threshold: u32::decode(r)? })
    }
}

/// Ceph: `MMgrReport` v9. Every few seconds from each daemon and client that has a session with the manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MgrReport {
    pub daemon_name: String,
    /// Counters seen for the first time in this session.
    pub declared: Vec<PerfCounter>,
    /// The values of all declared counters, in the order of their paths.
    pub values: Bytes,
    pub undeclared: Vec<String>,
    pub service_name: String,
    /// A service's news of itself, when they changed.
    pub status: Option<BTreeMap<String, String>>,
    /// Health, configuration and tasks, not examined.
    pub rest: Bytes,
}

/// Ceph: `PerfCounterType` v3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerfCounter {
    pub path: String,
    pub description: String,
    pub nick: String,
    pub kind: u8,
    pub priority: u8,
    pub unit: u8,
}

impl Encode for PerfCounter {
    fn encode(&self, out: &mut Vec<u8>) {
        versioned(out, 3, 1, |out| {
            self.path.encode(out);
            self.description.encode(out);
            self.nick.encode(out);
            out.extend([self.kind, self.priority, self.unit]);
        });
    }
}
impl Decode for PerfCounter {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("PerfCounterType", 3, |r, v| {
            Ok(PerfCounter {
                path: Decode::decode(r)?,
                description: Decode::decode(r)?,
                nick: Decode::decode(r)?,
                kind: Decode::decode(r)?,
                // "Useful", Ceph's reading of senders that do not say.
                priority: if v >= 2 { Decode::decode(r)? } else { 5 },
                unit: if v >= 3 { Decode::decode(r)? } else { 0 },
            })
        })
    }
}

impl Body for MgrReport {
    fn to_segments(&self, front: &mut Vec<u8>) -> Bytes {
        self.daemon_name.encode(front);
        self.declared.encode(front);
        self.values.encode(front);
        self.undeclared.encode(front);
        self.service_name.encode(front);
        self.status.encode(front);
        front.extend_from_slice(&self.rest);
        Bytes::new()
    }
    fn from_segments(raw: &RawMessage) -> Result<Self, DecodeError> {
        let r = &mut Reader::new(&raw.front);
        Ok(MgrReport {
            daemon_name: Decode::decode(r)?,
            declared: Decode::decode(r)?,
            values: Decode::decode(r)?,
            undeclared: Decode::decode(r)?,
            service_name: Decode::decode(r)?,
            status: Decode::decode(r)?,
            rest: raw.front.slice_ref(r.rest()),
        })
    }
}

/// Ceph: `MMgrClose`. The end of a session; the manager sends it back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MgrClose {
    pub daemon_name: String,
    pub service_name: String,
}

/// Ceph: `MMgrCommand`. As `Command`, for commands that the manager carries out for the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MgrCommand {
    pub fsid: [u8; 16],
    pub cmd: Vec<String>,
    pub input: Bytes,
}

/// Ceph: `MMgrCommandReply`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MgrCommandReply {
    pub retval: i32,
    pub status: String,
    pub output: Bytes,
}

fields! {
    MgrOpen { daemon_name, service_name, service, config, config_defaults };
    MgrClose { daemon_name, service_name };
    MgrCommand { fsid, cmd } data input;
    MgrCommandReply { retval, status } data output;
}
