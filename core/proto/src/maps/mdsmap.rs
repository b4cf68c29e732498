//! One file system as its metadata servers and clients see it: which server has which rank, in which pools
//! the data is.

use crate::types::AddrVec;
use nacre_base::{Epoch, PoolId, Utime};
use nacre_wire::{Decode, DecodeError, Encode, Reader, versioned};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A metadata server's process: its session's global id. Ceph: `mds_gid_t`.
pub type MdsGid = u64;
/// A part of a file system's tree that one server is responsible for. Ceph: `mds_rank_t`.
pub type MdsRank = i32;

/// No rank. Ceph: `MDS_RANK_NONE`.
pub const NO_RANK: MdsRank = -1;
/// No file system. Ceph: `FS_CLUSTER_ID_NONE`.
pub const NO_FILE_SYSTEM: i32 = -1;

/// What a metadata server does. Ceph: `MDSMap::DaemonState`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MdsState(pub i32);

impl MdsState {
    /// Not known.
    pub const NULL: MdsState = MdsState(-10);
    /// Follows a rank's journal.
    pub const STANDBY_REPLAY: MdsState = MdsState(-8);
    /// Starts a rank that was stopped.
    pub const STARTING: MdsState = MdsState(-7);
    /// Creates a rank.
    pub const CREATING: MdsState = MdsState(-6);
    /// Waits for a rank.
    pub const STANDBY: MdsState = MdsState(-5);
    /// Has just begun.
    pub const BOOT: MdsState = MdsState(-4);
    /// Has handed its rank to others.
    pub const STOPPED: MdsState = MdsState(-1);
    /// Does not exist: the server ends itself.
    pub const DNE: MdsState = MdsState(0);
    /// Reads the rank's journal.
    pub const REPLAY: MdsState = MdsState(8);
    /// Settles with the other ranks what was under way.
    pub const RESOLVE: MdsState = MdsState(9);
    /// Waits for clients of the server before.
    pub const RECONNECT: MdsState = MdsState(10);
    /// Settles with the other ranks what is cached where.
    pub const REJOIN: MdsState = MdsState(11);
    /// Repeats clients' requests.
    pub const CLIENTREPLAY: MdsState = MdsState(12);
    /// Serves.
    pub const ACTIVE: MdsState = MdsState(13);
    /// Hands its rank to others.
    pub const STOPPING: MdsState = MdsState(14);
    /// Cannot read the rank's data.
    pub const DAMAGED: MdsState = MdsState(15);

    /// Whether a server that took over a rank is not yet done.
    pub fn is_recovering(self) -> bool {
        MdsState::REPLAY <= self && self <= MdsState::CLIENTREPLAY
    }

    /// Whether a server with a rank may go from this state to `next` by itself.
    pub fn may_become(self, next: MdsState) -> bool {
        match self {
            _ if next == self => true,
            MdsState::REPLAY => matches!(next, MdsState::RESOLVE | MdsState::RECONNECT),
            MdsState::REJOIN => {
                matches!(next, MdsState::ACTIVE | MdsState::CLIENTREPLAY | MdsState::STOPPED)
            }
            state if state.is_recovering() => next.0 == state.0 + 1,
            _ => true,
        }
    }
}

impl fmt::Display for MdsState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            MdsState::NULL => "null",
            MdsState::STANDBY_REPLAY => "up:standby-replay",
            MdsState::STARTING => "up:starting",
            MdsState::CREATING => "up:creating",
            MdsState::STANDBY => "up:standby",
            MdsState::BOOT => "up:boot",
            MdsState::STOPPED => "down:stopped",
            MdsState::DNE => "down:dne",
            MdsState::REPLAY => "up:replay",
            MdsState::RESOLVE => "up:resolve",
            MdsState::RECONNECT => "up:reconnect",
            MdsState::REJOIN => "up:rejoin",
            MdsState::CLIENTREPLAY => "up:clientreplay",
            MdsState::ACTIVE => "up:active",
            MdsState::STOPPING => "up:stopping",
            MdsState::DAMAGED => "down:damaged",
            _ => "???",
        })
    }
}

impl Encode for MdsState {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }
}
impl Decode for MdsState {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(MdsState(i32::decode(r)?))
    }
}

/// Features by number, with their names. Ceph: `CompatSet::FeatureSet`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeatureSet {
    pub names: BTreeMap<u64, String>,
}

impl FeatureSet {
    /// Bits by number. Bit 0 is always set in Ceph's memory and never on the wire.
    pub fn mask(&self) -> u64 {
        self.names.keys().filter(|number| **number < 64).fold(0, |mask, number| mask | 1 << number) | 1
    }
    /// Whether all features of `other` are here.
    fn has_all(&self, other: &FeatureSet) -> bool {
        other.mask() & !self.mask() == 0
    }
}

impl Encode for FeatureSet {
    fn encode(&self, out: &mut Vec<u8>) {
        (self.mask() & !1).encode(out);
        self.names.encode(out);
    }
}
impl Decode for FeatureSet {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let _mask = u64::decode(r)?;
        let names = BTreeMap::<u64, String>::decode(r)?;
        match names.keys().find(|number| **number == 0 || **number > 63) {
            Some(&value) => Err(DecodeError::BadValue { what: "number of a feature", value }),
            None => Ok(FeatureSet { names }),
        }
    }
}

/// What a reader, or a writer, of the data at rest must understand. Ceph: `CompatSet`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompatSet {
    pub compat: FeatureSet,
    pub ro_compat: FeatureSet,
    pub incompat: FeatureSet,
}

impl CompatSet {
    /// Features that a new file system has. Ceph: `MDSMap::get_compat_set_default`.
    pub fn of_new_file_system() -> CompatSet {
        let names = [
            (1, "base v0.20"),
            (2, "client writeable ranges"),
            (3, "default file layouts on dirs"),
            (4, "dir inode in separate object"),
            (5, "mds uses versioned encoding"),
            (6, "dirfrag is stored in omap"),
            (8, "no anchor table"),
            (9, "file layout v2"),
            (10, "snaprealm v2"),
        ];
        let names = names.map(|(number, name)| (number, name.to_string())).into();
        CompatSet { incompat: FeatureSet { names }, ..CompatSet::default() }
    }

    /// Whether software with these features may write what `other` describes.
    pub fn may_write(&self, other: &CompatSet) -> bool {
        self.incompat.has_all(&other.incompat) && self.ro_compat.has_all(&other.ro_compat)
    }

    /// Adds the features of `other`. Returns whether that changed anything.
    pub fn merge(&mut self, other: &CompatSet) -> bool {
        let before = self.clone();
        for (mine, theirs) in [
            (&mut self.compat, &other.compat),
            (&mut self.ro_compat, &other.ro_compat),
            (&mut self.incompat, &other.incompat),
        ] {
            for (number, name) in &theirs.names {
                mine.names.entry(*number).or_insert_with(|| name.clone());
            }
        }
        *self != before
    }
}

impl fmt::Display for CompatSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |set: &FeatureSet| -> String {
            let names: Vec<String> =
                set.names.iter().map(|(number, name)| format!("{number}={name}")).collect();
            names.join(",")
        };
        let (compat, ro_compat, incompat) = (list(&self.compat), list(&self.ro_compat), list(&self.incompat));
        write!(f, "compat={{{compat}}},rocompat={{{ro_compat}}},incompat={{{incompat}}}")
    }
}

impl Encode for CompatSet {
    fn encode(&self, out: &mut Vec<u8>) {
        self.compat.encode(out);
        self.ro_compat.encode(out);
        self.incompat.encode(out);
    }
}
impl Decode for CompatSet {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(CompatSet {
            compat: Decode::decode(r)?,
            ro_compat: Decode::decode(r)?,
            incompat: Decode::decode(r)?,
        })
    }
}

/// A metadata server. Ceph: `MDSMap::mds_info_t` v10, readable since v4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MdsInfo {
    pub gid: MdsGid,
    pub name: String,
    pub rank: MdsRank,
    /// The epoch in which it got its rank.
    pub incarnation: i32,
    pub state: MdsState,
    /// The number of the beacon that reported the state.
    pub state_seq: u64,
    pub addrs: AddrVec,
    /// Zero: beacons arrive.
    pub laggy_since: Utime,
    /// Ranks that it may export directories to.
    pub export_targets: Vec<MdsRank>,
    pub features: u64,
    /// The file system that it prefers.
    pub join_fscid: i32,
    /// `MdsInfo::FROZEN` or zero.
    pub flags: u64,
    pub compat: CompatSet,
}

impl MdsInfo {
    /// The monitor changes nothing about it.
    pub const FROZEN: u64 = 1;

    /// Whether its beacons are missing.
    pub fn is_laggy(&self) -> bool {
        self.laggy_since != Utime::ZERO
    }
    /// Whether the monitor leaves it as it is.
    pub fn is_frozen(&self) -> bool {
        self.flags & MdsInfo::FROZEN != 0
    }
    /// As lines of the log name it.
    pub fn human_name(&self) -> String {
        format!("daemon mds.{}", self.name)
    }
}

impl Encode for MdsInfo {
    fn encode(&self, out: &mut Vec<u8>) {
        versioned(out, 10, 4, |out| {
            self.gid.encode(out);
            self.name.encode(out);
            self.rank.encode(out);
            self.incarnation.encode(out);
            self.state.encode(out);
            self.state_seq.encode(out);
            self.addrs.encode(out);
            self.laggy_since.encode(out);
            // Which rank or server it was to stand by for: unused since Nautilus.
            NO_RANK.encode(out);
            String::new().encode(out);
            self.export_targets.encode(out);
            self.features.encode(out);
            self.join_fscid.encode(out);
            false.encode(out);
            self.flags.encode(out);
            self.compat.encode(out);
        });
    }
}
impl Decode for MdsInfo {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("mds_info_t", 10, |r, v| {
            if v < 10 {
                return Err(DecodeError::BadValue { what: "mds_info_t version", value: v.into() });
            }
            Ok(MdsInfo {
                gid: Decode::decode(r)?,
                name: Decode::decode(r)?,
                rank: Decode::decode(r)?,
                incarnation: Decode::decode(r)?,
                state: Decode::decode(r)?,
                state_seq: Decode::decode(r)?,
                addrs: Decode::decode(r)?,
                laggy_since: Decode::decode(r)?,
                export_targets: {
                    let _standby_for: (MdsRank, String) = Decode::decode(r)?;
                    Decode::decode(r)?
                },
                features: Decode::decode(r)?,
                join_fscid: Decode::decode(r)?,
                flags: {
                    let _standby_replay = bool::decode(r)?;
                    Decode::decode(r)?
                },
                compat: Decode::decode(r)?,
            })
        })
    }
}

/// Flags of a file system. Ceph: `CEPH_MDSMAP_*`.
pub mod mdsmap_flags {
    /// No server gets a rank.
    pub const NOT_JOINABLE: u32 = 1;
    /// Clients may make snapshots.
    pub const ALLOW_SNAPS: u32 = 1 << 1;
    /// Also with several ranks.
    pub const ALLOW_MULTIMDS_SNAPS: u32 = 1 << 4;
    /// Standbys follow journals.
    pub const ALLOW_STANDBY_REPLAY: u32 = 1 << 5;
    /// Of a new file system.
    pub const DEFAULTS: u32 = ALLOW_SNAPS | ALLOW_MULTIMDS_SNAPS;
}

/// What an administrator sets of a file system (`fs set`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsSettings {
    /// `mdsmap_flags`.
    pub flags: u32,
    /// Seconds without a message after which a client's capabilities are stale.
    pub session_timeout: u32,
    /// Seconds after which such a client is evicted.
    pub session_autoclose: u32,
    pub max_file_size: u64,
    pub max_mds: i32,
    /// What `max_mds` was before `fs set down true`.
    pub old_max_mds: i32,
    /// Small files in their inodes.
    pub inline_data: bool,
    /// The object with a Lua program that balances ranks; none if empty.
    pub balancer: String,
    /// Fewer standbys are a warning; -1: not set.
    pub standby_count_wanted: i32,
    /// Feature bits that clients must have, as bytes from the lowest on.
    pub required_client_features: Vec<u8>,
}

impl Default for FsSettings {
    fn default() -> FsSettings {
        FsSettings {
            flags: mdsmap_flags::DEFAULTS,
            session_timeout: 60,
            session_autoclose: 300,
            max_file_size: 1 << 40,
            max_mds: 1,
            old_max_mds: 0,
            inline_data: false,
            balancer: String::new(),
            standby_count_wanted: -1,
            required_client_features: Vec::new(),
        }
    }
}

impl FsSettings {
    /// Whether the flag is set.
    pub fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }
    /// Sets or clears a flag.
    pub fn set(&mut self, flag: u32, on: bool) {
        if on { self.flags |= flag } else { self.flags &= !flag }
    }
}

/// Ranks by what they are. A rank that is `in` has data; it is up, failed or damaged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranks {
    pub in_: BTreeSet<MdsRank>,
    pub up: BTreeMap<MdsRank, MdsGid>,
    pub failed: BTreeSet<MdsRank>,
    pub stopped: BTreeSet<MdsRank>,
    pub damaged: BTreeSet<MdsRank>,
}

/// One file system. Ceph: `MDSMap` v5 with its extension 16.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MdsMap {
    /// Of the `FsMap` that changed this last.
    pub epoch: Epoch,
    pub fs_name: String,
    pub enabled: bool,
    pub settings: FsSettings,
    pub ranks: Ranks,
    /// Servers with a rank, and those that follow one.
    pub infos: BTreeMap<MdsGid, MdsInfo>,
    /// The first is where files go unless a layout says otherwise.
    pub data_pools: Vec<PoolId>,
    /// None: a map that no file system is in.
    pub metadata_pool: Option<PoolId>,
    pub compat: CompatSet,
    pub created: Utime,
    pub modified: Utime,
    /// The OSD map that fences the server that failed last. Its successor waits for it.
    pub last_failure_osd_epoch: Epoch,
}

impl MdsMap {
    /// The server that has the rank.
    pub fn holder(&self, rank: MdsRank) -> Option<&MdsInfo> {
        self.infos.get(self.ranks.up.get(&rank)?)
    }
    /// How many servers are in that state.
    pub fn count(&self, state: MdsState) -> usize {
        self.infos.values().filter(|info| info.state == state).count()
    }
    /// Whether a rank has no server, or one that is still recovering.
    pub fn is_degraded(&self) -> bool {
        let recovering = self.infos.values().any(|info| info.state.is_recovering());
        !self.ranks.failed.is_empty() || !self.ranks.damaged.is_empty() || recovering
    }
    /// Whether the number of ranks may change now.
    pub fn is_resizeable(&self) -> bool {
        let changing = [MdsState::CREATING, MdsState::STARTING, MdsState::STOPPING];
        !self.is_degraded() && changing.iter().all(|state| self.count(*state) == 0)
    }
    /// Whether the compat set may grow: no server would be left behind.
    pub fn is_upgradeable(&self) -> bool {
        match self.settings.has(mdsmap_flags::ALLOW_STANDBY_REPLAY) {
            true => self.ranks.in_.is_empty(),
            false => self.ranks.in_.len() <= 1,
        }
    }
    /// Whether servers may get ranks of it.
    pub fn is_joinable(&self) -> bool {
        !self.settings.has(mdsmap_flags::NOT_JOINABLE)
    }
    /// The server that follows a rank's journal.
    pub fn follower(&self, rank: MdsRank) -> Option<&MdsInfo> {
        self.infos.values().find(|info| info.rank == rank && info.state == MdsState::STANDBY_REPLAY)
    }
}

/// What follows the part that the kernel's client reads.
const EXTENSION: u16 = 16;
const NO_POOL: i64 = -1;

impl Encode for MdsMap {
    fn encode(&self, out: &mut Vec<u8>) {
        let (settings, ranks) = (&self.settings, &self.ranks);
        versioned(out, 5, 4, |out| {
            self.epoch.encode(out);
            settings.flags.encode(out);
            0_u32.encode(out); // the epoch of the last failure, which Ceph does not set
            0_i32.encode(out); // the rank with the root
            settings.session_timeout.encode(out);
            settings.session_autoclose.encode(out);
            settings.max_file_size.encode(out);
            settings.max_mds.encode(out);
            self.infos.encode(out);
            self.data_pools.encode(out);
            NO_POOL.encode(out); // for deduplicated objects, which never came
            EXTENSION.encode(out);
            self.compat.encode(out);
            self.metadata_pool.map_or(NO_POOL, |pool| pool.0).encode(out);
            self.created.encode(out);
            self.modified.encode(out);
            0_i32.encode(out); // the rank with the tables
            ranks.in_.encode(out);
            // Incarnations by rank, before each server's entry had them.
            let incarnations: BTreeMap<MdsRank, Epoch> =
                ranks.in_.iter().map(|rank| (*rank, self.epoch)).collect();
            incarnations.encode(out);
            ranks.up.encode(out);
            ranks.failed.encode(out);
            ranks.stopped.encode(out);
            self.last_failure_osd_epoch.encode(out);
            (0_u8, 0_u8).encode(out); // features that were ever or explicitly allowed
            settings.inline_data.encode(out);
            self.enabled.encode(out);
            self.fs_name.encode(out);
            ranks.damaged.encode(out);
            settings.balancer.encode(out);
            settings.standby_count_wanted.encode(out);
            settings.old_max_mds.encode(out);
            0_u8.encode(out); // the oldest release of clients: features say it since
            settings.required_client_features.encode(out);
        });
    }
}
impl Decode for MdsMap {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("MDSMap", 5, |r, v| {
            if v < 5 {
                return Err(DecodeError::BadValue { what: "MDSMap version", value: v.into() });
            }
            let mut map = MdsMap { epoch: Decode::decode(r)?, ..MdsMap::default() };
            let settings = &mut map.settings;
            settings.flags = Decode::decode(r)?;
            let _last_failure = u32::decode(r)?;
            let _root = MdsRank::decode(r)?;
            settings.session_timeout = Decode::decode(r)?;
            settings.session_autoclose = Decode::decode(r)?;
            settings.max_file_size = Decode::decode(r)?;
            settings.max_mds = Decode::decode(r)?;
            map.infos = Decode::decode(r)?;
            map.data_pools = Decode::decode(r)?;
            let _cas_pool = i64::decode(r)?;
            let extension = u16::decode(r)?;
            if extension < EXTENSION {
                return Err(DecodeError::BadValue { what: "MDSMap extension", value: extension.into() });
            }
            map.compat = Decode::decode(r)?;
            map.metadata_pool = Some(PoolId::decode(r)?).filter(|pool| pool.0 != NO_POOL);
            map.created = Decode::decode(r)?;
            map.modified = Decode::decode(r)?;
            let _tableserver = MdsRank::decode(r)?;
            map.ranks.in_ = Decode::decode(r)?;
            let _incarnations = BTreeMap::<MdsRank, Epoch>::decode(r)?;
            map.ranks.up = Decode::decode(r)?;
            map.ranks.failed = Decode::decode(r)?;
            map.ranks.stopped = Decode::decode(r)?;
            map.last_failure_osd_epoch = Decode::decode(r)?;
            let _allowed = <(u8, u8)>::decode(r)?;
            settings.inline_data = Decode::decode(r)?;
            map.enabled = Decode::decode(r)?;
            map.fs_name = Decode::decode(r)?;
            map.ranks.damaged = Decode::decode(r)?;
            settings.balancer = Decode::decode(r)?;
            settings.standby_count_wanted = Decode::decode(r)?;
            settings.old_max_mds = Decode::decode(r)?;
            let _min_compat_client = u8::decode(r)?;
            settings.required_client_features = Decode::decode(r)?;
            Ok(map)
        })
    }
}
