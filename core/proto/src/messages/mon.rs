//! Messages between clients (and OSDs) and monitors.

use super::RawMessage;
use super::body::{Body, fields};
use crate::types::{AddrVec, AuthName, EntityName, PoolStat};
use bytes::Bytes;
use nacre_base::{Epoch, IntervalSet, PoolId, SnapId, Utime};
use nacre_wire::{Decode, DecodeError, Encode, Reader, encode_map, versioned};
use std::collections::BTreeMap;

/// The header of messages that change or ask for what the monitors agree on: a client's newest
/// version of it (or zero), a reply's current one. Ceph: `PaxosServiceMessage`, whose other two
/// fields served forwarding between monitors and are constant towards clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PaxosVersion(pub u64);

impl Encode for PaxosVersion {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
        (-1_i16).encode(out);
        0_u64.encode(out);
    }
}
impl Decode for PaxosVersion {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let version = u64::decode(r)?;
        let _session_mon = i16::decode(r)?;
        let _session_tid = u64::decode(r)?;
        Ok(PaxosVersion(version))
    }
}

/// Ceph: `MMonGetMap`. The first word of a client: send me the monitor map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MonGetMap;

impl Body for MonGetMap {
    fn to_segments(&self, _front: &mut Vec<u8>) -> Bytes {
        Bytes::new()
    }
    fn from_segments(_raw: &RawMessage) -> Result<Self, DecodeError> {
        Ok(MonGetMap)
    }
}

/// Ceph: `MMonMap`. Answers `MonGetMap` and the subscription to "monmap".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MonMapMsg {
    /// An encoded monitor map.
    pub map: Bytes,
}

/// Ceph: `MMonSubscribe` v3. Each entry replaces the sender's earlier one of that name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MonSubscribe {
    /// By what is wanted: "osdmap", "monmap", "mgrmap", "config", "mdsmap", "log-info"...
    pub what: BTreeMap<String, MonSub>,
    /// Since v3; the kernel's client sends v2.
    pub hostname: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MonSub {
    /// The first version wanted; zero for whatever is newest.
    pub start: u64,
    /// `MonSub::ONETIME` or zero.
    pub flags: u8,
}

impl MonSub {
    /// One answer, then forget the subscription. Ceph: `CEPH_SUBSCRIBE_ONETIME`.
    pub const ONETIME: u8 = 1;

    pub fn is_onetime(self) -> bool {
        self.flags & MonSub::ONETIME != 0
    }
}

impl Encode for MonSub {
    fn encode(&self, out: &mut Vec<u8>) {
        self.start.encode(out);
        self.flags.encode(out);
    }
}
impl Decode for MonSub {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(MonSub { start: u64::decode(r)?, flags: u8::decode(r)? })
    }
}

impl Body for MonSubscribe {
    fn to_segments(&self, front: &mut Vec<u8>) -> Bytes {
        self.what.encode(front);
        self.hostname.encode(front);
        Bytes::new()
    }
    fn from_segments(raw: &RawMessage) -> Result<Self, DecodeError> {
        let r = &mut Reader::new(&raw.front);
        Ok(MonSubscribe {
            what: BTreeMap::decode(r)?,
            hostname: if raw.version >= 3 { String::decode(r)? } else { String::new() },
        })
    }
}

/// Ceph: `MMonSubscribeAck`. Only for clients that renew subscriptions, which none that speaks
/// msgr2 does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MonSubscribeAck {
    pub interval_secs: u32,
    pub fsid: [u8; 16],
}

/// Ceph: `MConfig`. Answers the subscription to "config" and `GetConfig`: the options that are set
/// for the receiver. Clients wait for it even when it is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    pub values: BTreeMap<String, String>,
}

/// Ceph: `MGetConfig`. Asks for the options of a daemon or client given by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GetConfig {
    pub name: AuthName,
    pub host: String,
    pub device_class: String,
}

/// Ceph: `MMonGetVersion`. What is the newest "osdmap", "mdsmap", "fsmap", "monmap", "mgrmap"?
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MonGetVersion {
    /// Comes back in the reply.
    pub handle: u64,
    pub what: String,
}

/// Ceph: `MMonGetVersionReply` v2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MonGetVersionReply {
    pub handle: u64,
    pub version: u64,
    pub oldest: u64,
}

/// Ceph: `MStatfs` v2. `df` for the cluster, or for the space behind one pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statfs {
    pub version: PaxosVersion,
    pub fsid: [u8; 16],
    pub data_pool: Option<PoolId>,
}

/// Ceph: `MStatfsReply`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatfsReply {
    pub fsid: [u8; 16],
    pub version: u64,
    pub kb: u64,
    pub kb_used: u64,
    pub kb_avail: u64,
    pub num_objects: u64,
}

/// Ceph: `MGetPoolStats`. `rados df`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GetPoolStats {
    pub version: PaxosVersion,
    pub fsid: [u8; 16],
    pub pools: Vec<String>,
}

/// Ceph: `MGetPoolStatsReply` v2. Pools that do not exist are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GetPoolStatsReply {
    pub version: PaxosVersion,
    pub fsid: [u8; 16],
    pub stats: BTreeMap<String, PoolStat>,
    /// Whether all OSDs count what they use by pool.
    pub per_pool: bool,
}

/// Ceph: `MPoolOp` v4. Create or delete a pool or one of its snapshots; other changes of pools are
/// commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolOp {
    pub version: PaxosVersion,
    pub fsid: [u8; 16],
    /// Zero for a create.
    pub pool: u32,
    pub op: PoolOpKind,
    /// An owner's number, zero since long ago.
    pub auid: u64,
    pub snap: SnapId,
    /// Of the new pool or of the snapshot.
    pub name: String,
    /// -1 for the default one.
    pub crush_rule: i16,
}

/// Ceph: `POOL_OP_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolOpKind {
    Create,
    Delete,
    CreateSnap,
    DeleteSnap,
    CreateUnmanagedSnap,
    DeleteUnmanagedSnap,
    Other(u32),
}

const POOL_OPS: [(PoolOpKind, u32); 6] = [
    (PoolOpKind::Create, 0x01),
    (PoolOpKind::Delete, 0x02),
    (PoolOpKind::CreateSnap, 0x11),
    (PoolOpKind::DeleteSnap, 0x12),
    (PoolOpKind::CreateUnmanagedSnap, 0x21),
    (PoolOpKind::DeleteUnmanagedSnap, 0x22),
];

impl Encode for PoolOpKind {
    fn encode(&self, out: &mut Vec<u8>) {
        let number = match *self {
            PoolOpKind::Other(number) => number,
            kind => POOL_OPS.iter().find(|(k, _)| *k == kind).expect("the table has all").1,
        };
        number.encode(out);
    }
}
impl Decode for PoolOpKind {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let number = u32::decode(r)?;
        let known = POOL_OPS.iter().find(|(_, n)| *n == number);
        Ok(known.map_or(PoolOpKind::Other(number), |(kind, _)| *kind))
    }
}

impl Body for PoolOp {
    fn to_segments(&self, front: &mut Vec<u8>) -> Bytes {
        self.version.encode(front);
        self.fsid.encode(front);
        self.pool.encode(front);
        self.op.encode(front);
        self.auid.encode(front);
        self.snap.encode(front);
        self.name.encode(front);
        0_u8.encode(front); // was the rule, when a byte held it
        self.crush_rule.encode(front);
        Bytes::new()
    }
    fn from_segments(raw: &RawMessage) -> Result<Self, DecodeError> {
        let r = &mut Reader::new(&raw.front);
        Ok(PoolOp {
            version: Decode::decode(r)?,
            fsid: Decode::decode(r)?,
            pool: Decode::decode(r)?,
            op: Decode::decode(r)?,
            auid: Decode::decode(r)?,
            snap: Decode::decode(r)?,
            name: Decode::decode(r)?,
            crush_rule: {
                let _old_rule = u8::decode(r)?;
                Decode::decode(r)?
            },
        })
    }
}

/// Ceph: `MPoolOpReply`. The client then waits for the OSD map of `epoch`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolOpReply {
    pub version: PaxosVersion,
    pub fsid: [u8; 16],
    /// Zero or a negative errno.
    pub code: i32,
    pub epoch: Epoch,
    /// For a new unmanaged snapshot its id, as a `u64`.
    pub data: Option<Bytes>,
}

/// Ceph: `MMonCommand`. The words of a command line as one JSON object in `cmd` (`crate::words`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MonCommand {
    pub version: PaxosVersion,
    pub fsid: [u8; 16],
    pub cmd: Vec<String>,
    /// What `-i` gave.
    pub input: Bytes,
}

/// Ceph: `MMonCommandAck`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MonCommandAck {
    pub version: PaxosVersion,
    /// Zero or a negative errno.
    pub retval: i32,
    /// The line that the command line tool prints to standard error.
    pub status: String,
    /// The request's.
    pub cmd: Vec<String>,
    pub output: Bytes,
}

/// Ceph: `MCommand`. A command for the one daemon that it is sent to (`ceph tell`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    pub fsid: [u8; 16],
    pub cmd: Vec<String>,
    pub input: Bytes,
}

/// Ceph: `MCommandReply`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandReply {
    pub retval: i32,
    pub status: String,
    pub output: Bytes,
}

/// Ceph: `MPing`. Empty from clients; a monitor answers with JSON about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ping {
    pub text: Option<String>,
}

impl Body for Ping {
    fn to_segments(&self, front: &mut Vec<u8>) -> Bytes {
        self.text.iter().for_each(|text| text.encode(front));
        Bytes::new()
    }
    fn from_segments(raw: &RawMessage) -> Result<Self, DecodeError> {
        let r = &mut Reader::new(&raw.front);
        Ok(Ping { text: if r.is_empty() { None } else { Some(String::decode(r)?) } })
    }
}

/// Ceph: `MOSDMap` v4, readable since v3. From monitors to subscribers, and from OSDs to clients
/// and OSDs whose map is older. The maps stay encoded: most receivers only pass on or store them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OsdMapMsg {
    pub fsid: [u8; 16],
    pub incrementals: BTreeMap<Epoch, Bytes>,
    pub full: BTreeMap<Epoch, Bytes>,
    /// What the sender has. A client of Ceph's that lacks epochs before `oldest` jumps there, and takes
    /// nothing if the message has no map of it: beside a whole map this is that map's epoch.
    pub oldest: Epoch,
    pub newest: Epoch,
    /// Snapshots removed in epochs that this message jumps over.
    pub gap_removed_snaps: BTreeMap<PoolId, IntervalSet>,
}

impl Body for OsdMapMsg {
    fn to_segments(&self, front: &mut Vec<u8>) -> Bytes {
        self.fsid.encode(front);
        encode_map(front, self.incrementals.iter());
        encode_map(front, self.full.iter());
        self.oldest.encode(front);
        self.newest.encode(front);
        self.gap_removed_snaps.encode(front);
        Bytes::new()
    }
    fn from_segments(raw: &RawMessage) -> Result<Self, DecodeError> {
        let r = &mut Reader::new(&raw.front);
        let maps = |r: &mut Reader<'_>| -> Result<BTreeMap<Epoch, Bytes>, DecodeError> {
            let count = r.count(8)?;
            (0..count).map(|_| Ok((Epoch::decode(r)?, raw.front.slice_ref(r.bytes()?)))).collect()
        };
        Ok(OsdMapMsg {
            fsid: Decode::decode(r)?,
            incrementals: maps(r)?,
            full: maps(r)?,
            oldest: Decode::decode(r)?,
            newest: Decode::decode(r)?,
            gap_removed_snaps: if raw.version >= 4 { Decode::decode(r)? } else { BTreeMap::new() },
        })
    }
}

/// Ceph: `MMDSMap` v2. To subscribers of "mdsmap"; the map stays encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MdsMapMsg {
    pub fsid: [u8; 16],
    pub epoch: Epoch,
    pub map: Bytes,
    pub fs_name: String,
}

/// Ceph: `MFSMapUser`. Which file systems there are, for clients that were given a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsMapUser {
    pub epoch: Epoch,
    /// The one to mount when none is named; -1 for none.
    pub legacy_client_fscid: i32,
    pub filesystems: Vec<(i32, String)>,
}

impl Body for FsMapUser {
    fn to_segments(&self, front: &mut Vec<u8>) -> Bytes {
        self.epoch.encode(front);
        versioned(front, 1, 1, |out| {
            self.epoch.encode(out);
            self.legacy_client_fscid.encode(out);
            (self.filesystems.len() as u32).encode(out);
            for filesystem in &self.filesystems {
                versioned(out, 1, 1, |out| filesystem.encode(out));
            }
        });
        Bytes::new()
    }
    fn from_segments(raw: &RawMessage) -> Result<Self, DecodeError> {
        let r = &mut Reader::new(&raw.front);
        let _epoch = Epoch::decode(r)?;
        r.versioned("FSMapUser", 1, |r, _| {
            Ok(FsMapUser {
                epoch: Decode::decode(r)?,
                legacy_client_fscid: Decode::decode(r)?,
                filesystems: r.list(|r| r.versioned("FSMapUser::fs_info_t", 1, |r, _| Decode::decode(r)))?,
            })
        })
    }
}

/// Ceph: `MLog`. Lines for the cluster log from daemons and clients, and to the subscribers
/// to "log-info" and the like (`ceph -w`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    pub version: PaxosVersion,
    pub fsid: [u8; 16],
    pub entries: Vec<LogEntry>,
}

/// One line of the cluster log. Ceph: `LogEntry` v5.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    pub name: AuthName,
    /// The sender's kind and number.
    pub rank: EntityName,
    pub addrs: AddrVec,
    pub stamp: Utime,
    /// Counts the sender's lines.
    pub seq: u64,
    pub level: LogLevel,
    pub text: String,
    /// "cluster" or "audit".
    pub channel: String,
}

/// How bad it is. Ceph: `clog_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u16)]
pub enum LogLevel {
    Debug = 0,
    Info = 1,
    Security = 2,
    Warn = 3,
    Error = 4,
}

impl Encode for LogEntry {
    fn encode(&self, out: &mut Vec<u8>) {
        versioned(out, 5, 5, |out| {
            self.name.encode(out);
            self.rank.encode(out);
            self.addrs.encode(out);
            self.stamp.encode(out);
            self.seq.encode(out);
            (self.level as u16).encode(out);
            self.text.encode(out);
            self.channel.encode(out);
        });
    }
}
impl Decode for LogEntry {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("LogEntry", 5, |r, v| {
            if v < 5 {
                return Err(DecodeError::BadValue { what: "LogEntry version", value: v.into() });
            }
            Ok(LogEntry {
                name: Decode::decode(r)?,
                rank: Decode::decode(r)?,
                addrs: Decode::decode(r)?,
                stamp: Decode::decode(r)?,
                seq: Decode::decode(r)?,
                level: match u16::decode(r)? {
                    0 => LogLevel::Debug,
                    1 => LogLevel::Info,
                    2 => LogLevel::Security,
                    3 => LogLevel::Warn,
                    4 => LogLevel::Error,
                    value => return Err(DecodeError::BadValue { what: "log level", value: value.into() }),
                },
                text: Decode::decode(r)?,
                channel: Decode::decode(r)?,
            })
        })
    }
}

/// Ceph: `MLogAck`. The monitor has this sender's lines up to `last`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogAck {
    pub fsid: [u8; 16],
    pub last: u64,
    pub channel: String,
}

/// Ceph: `MAuth`. On msgr2 only after the handshake, to renew tickets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auth {
    pub version: PaxosVersion,
    /// 1 none, 2 cephx; zero in the first message of an exchange.
    pub protocol: u32,
    pub payload: Bytes,
    pub monmap_epoch: Epoch,
}

/// Ceph: `MAuthReply`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthReply {
    pub protocol: u32,
    /// Zero or a negative errno.
    pub result: i32,
    pub global_id: u64,
    pub payload: Bytes,
    pub text: String,
}

fields! {
    MonMapMsg { map };
    MonSubscribeAck { interval_secs, fsid };
    Config { values };
    GetConfig { name, host, device_class };
    MonGetVersion { handle, what };
    MonGetVersionReply { handle, version, oldest };
    Statfs { version, fsid, data_pool };
    StatfsReply { fsid, version, kb, kb_used, kb_avail, num_objects };
    GetPoolStats { version, fsid, pools };
    GetPoolStatsReply { version, fsid, stats, per_pool };
    PoolOpReply { version, fsid, code, epoch, data };
    MonCommand { version, fsid, cmd } data input;
    MonCommandAck { version, retval, status, cmd } data output;
    Command { fsid, cmd } data input;
    CommandReply { retval, status } data output;
    MdsMapMsg { fsid, epoch, map, fs_name };
    Log { version, fsid, entries };
    LogAck { fsid, last, channel };
    Auth { version, protocol, payload, monmap_epoch };
    AuthReply { protocol, result, global_id, payload, text };
}
