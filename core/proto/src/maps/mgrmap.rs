//! Where the active manager is, which answers for statistics and for many commands.

use crate::types::AddrVec;
use nacre_base::{Epoch, Utime};
use nacre_wire::{Decode, DecodeError, Encode, Reader, versioned};
use std::collections::{BTreeMap, BTreeSet};

/// Ceph: `MgrMap` v12, readable since v6. `default()` is a cluster without a manager.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MgrMap {
    pub epoch: Epoch,
    pub active_addrs: AddrVec,
    pub active_gid: u64,
    /// Whether the active manager is ready for commands. While false, clients hold theirs back.
    pub available: bool,
    pub active_name: String,
    pub standbys: BTreeMap<u64, MgrStandby>,
    /// The modules that are switched on.
    pub modules: BTreeSet<String>,
    /// Name to address of what modules offer (dashboard and the like).
    pub services: BTreeMap<String, String>,
    pub available_modules: Vec<MgrModule>,
    pub active_change: Utime,
    /// By release.
    pub always_on_modules: BTreeMap<u32, BTreeSet<String>>,
    pub active_mgr_features: u64,
    /// The OSD map that blocklists the previous active manager.
    pub last_failure_osd_epoch: Epoch,
    /// The active manager's own client connections, to be blocklisted with it; the names go with them.
    pub clients: Vec<AddrVec>,
    pub client_names: Vec<String>,
}

/// Ceph: `MgrMap::StandbyInfo` v4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MgrStandby {
    pub gid: u64,
    pub name: String,
    /// Names only, for readers from before `available_modules`.
    pub module_names: BTreeSet<String>,
    pub available_modules: Vec<MgrModule>,
    pub features: u64,
}

/// Ceph: `MgrMap::ModuleInfo` v2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MgrModule {
    pub name: String,
    pub can_run: bool,
    /// Why it cannot run.
    pub error: String,
    pub options: BTreeMap<String, MgrModuleOption>,
}

/// Ceph: `MgrMap::ModuleOption` v1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MgrModuleOption {
    pub name: String,
    /// Ceph's numbers for option types and levels.
    pub kind: u8,
    pub level: u8,
    pub flags: u32,
    pub default: String,
    pub min: String,
    pub max: String,
    pub allowed: BTreeSet<String>,
    pub desc: String,
    pub long_desc: String,
    pub tags: BTreeSet<String>,
    pub see_also: BTreeSet<String>,
}

impl MgrMap {
    /// What an active manager of Pacific says it can do. Clients look here to tell whether to send
    /// commands to it as such: without, they send what looks like a `tell`.
    pub const PACIFIC_MGR_FEATURES: u64 = 0x3f01_cfbd_fffd_ffff;

    /// A manager that is up and ready, without modules.
    pub fn with_active(epoch: Epoch, name: &str, gid: u64, addrs: AddrVec, since: Utime) -> MgrMap {
        MgrMap {
            epoch,
            active_addrs: addrs,
            active_gid: gid,
            available: true,
            active_name: name.to_string(),
            active_change: since,
            active_mgr_features: MgrMap::PACIFIC_MGR_FEATURES,
            ..MgrMap::default()
        }
    }
}

impl Encode for MgrMap {
    fn encode(&self, out: &mut Vec<u8>) {
        versioned(out, 12, 6, |out| {
            self.epoch.encode(out);
            self.active_addrs.encode(out);
            self.active_gid.encode(out);
            self.available.encode(out);
            self.active_name.encode(out);
            self.standbys.encode(out);
            self.modules.encode(out);
            self.services.encode(out);
            self.available_modules.encode(out);
            self.active_change.encode(out);
            self.always_on_modules.encode(out);
            self.active_mgr_features.encode(out);
            self.last_failure_osd_epoch.encode(out);
            self.clients.encode(out);
            self.client_names.encode(out);
        });
    }
}
impl Decode for MgrMap {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("MgrMap", 12, |r, v| {
            if v < 12 {
                return Err(DecodeError::BadValue { what: "MgrMap version", value: v.into() });
            }
            Ok(MgrMap {
                epoch: Epoch::decode(r)?,
                active_addrs: AddrVec::decode(r)?,
                active_gid: u64::decode(r)?,
                available: bool::decode(r)?,
                active_name: String::decode(r)?,
                standbys: BTreeMap::decode(r)?,
                modules: BTreeSet::decode(r)?,
                services: BTreeMap::decode(r)?,
                available_modules: Vec::decode(r)?,
                active_change: Utime::decode(r)?,
                always_on_modules: BTreeMap::decode(r)?,
                active_mgr_features: u64::decode(r)?,
                last_failure_osd_epoch: Epoch::decode(r)?,
                clients: Vec::decode(r)?,
                client_names: Vec::decode(r)?,
            })
        })
    }
}

impl Encode for MgrStandby {
    fn encode(&self, out: &mut Vec<u8>) {
        versioned(out, 4, 1, |out| {
            self.gid.encode(out);
            self.name.encode(out);
            self.module_names.encode(out);
            self.available_modules.encode(out);
            self.features.encode(out);
        });
    }
}
impl Decode for MgrStandby {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("MgrMap::StandbyInfo", 4, |r, v| {
            Ok(MgrStandby {
                gid: u64::decode(r)?,
                name: String::decode(r)?,
                module_names: if v >= 2 { BTreeSet::decode(r)? } else { BTreeSet::new() },
                available_modules: if v >= 3 { Vec::decode(r)? } else { Vec::new() },
                features: if v >= 4 { u64::decode(r)? } else { 0 },
            })
        })
    }
}

impl Encode for MgrModule {
    fn encode(&self, out: &mut Vec<u8>) {
        versioned(out, 2, 1, |out| {
            self.name.encode(out);
            self.can_run.encode(out);
            self.error.encode(out);
            self.options.encode(out);
        });
    }
}
impl Decode for MgrModule {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("MgrMap::ModuleInfo", 2, |r, v| {
            Ok(MgrModule {
                name: String::decode(r)?,
                can_run: bool::decode(r)?,
                error: String::decode(r)?,
                options: if v >= 2 { BTreeMap::decode(r)? } else { BTreeMap::new() },
            })
        })
    }
}

impl Encode for MgrModuleOption {
    fn encode(&self, out: &mut Vec<u8>) {
        versioned(out, 1, 1, |out| {
            self.name.encode(out);
            self.kind.encode(out);
            self.level.encode(out);
            self.flags.encode(out);
            self.default.encode(out);
            self.min.encode(out);
            self.max.encode(out);
            self.allowed.encode(out);
            self.desc.encode(out);
            self.long_desc.encode(out);
            self.tags.encode(out);
            self.see_also.encode(out);
        });
    }
}
impl Decode for MgrModuleOption {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("MgrMap::ModuleOption", 1, |r, _| {
            Ok(MgrModuleOption {
                name: String::decode(r)?,
                kind: u8::decode(r)?,
                level: u8::decode(r)?,
                flags: u32::decode(r)?,
                default: String::decode(r)?,
                min: String::decode(r)?,
                max: String::decode(r)?,
                allowed: BTreeSet::decode(r)?,
                desc: String::decode(r)?,
                long_desc: String::decode(r)?,
                tags: BTreeSet::decode(r)?,
                see_also: BTreeSet::decode(r)?,
            })
        })
    }
}
