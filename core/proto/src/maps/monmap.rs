//! Which monitors there are.

use super::{Uuid, release};
use crate::types::AddrVec;
use nacre_base::{Epoch, Utime};
use nacre_wire::{Decode, DecodeError, Encode, Reader, versioned};
use std::collections::{BTreeMap, BTreeSet};

/// Ceph: `MonMap` v10, readable since v6.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MonMap {
    pub fsid: Uuid,
    pub epoch: Epoch,
    pub last_changed: Utime,
    pub created: Utime,
    /// `MonMap::PACIFIC_FEATURES`, and bits that an operator set by hand.
    pub persistent_features: u64,
    pub optional_features: u64,
    pub mons: BTreeMap<String, MonInfo>,
    /// The names in the order of their ranks.
    pub ranks: Vec<String>,
    /// `release`
    pub min_mon_release: u8,
    pub removed_ranks: BTreeSet<u32>,
    /// 1: classic.
    pub election_strategy: u8,
    pub disallowed_leaders: BTreeSet<String>,
    pub stretch_mode: bool,
    pub tiebreaker: String,
    pub stretch_marked_down: BTreeSet<String>,
    /// Since v10, which is written only if it says something else than readers assume of older maps.
    pub ciphers: AuthCiphers,
}

/// Which kinds of keys (`CEPH_CRYPTO_*`) users and daemons have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthCiphers {
    /// Of the state of authentication when services' keys were last replaced out of turn; 0 if never.
    pub epoch: Epoch,
    /// Of services' keys, which seal tickets. Ceph: `auth_service_cipher`.
    pub service: i32,
    /// Of keys that users and daemons may have, in order. Ceph: `auth_allowed_ciphers`.
    pub allowed: Vec<i32>,
    /// Of new keys, unless a command says otherwise. Ceph: `auth_preferred_cipher`.
    pub preferred: i32,
}

/// What readers assume of a map that does not say.
impl Default for AuthCiphers {
    fn default() -> AuthCiphers {
        AuthCiphers { epoch: Epoch(0), service: 1, allowed: vec![1, 2], preferred: 1 }
    }
}

impl Encode for AuthCiphers {
    fn encode(&self, out: &mut Vec<u8>) {
        self.epoch.encode(out);
        self.service.encode(out);
        self.allowed.encode(out);
        self.preferred.encode(out);
    }
}
impl Decode for AuthCiphers {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(AuthCiphers {
            epoch: Decode::decode(r)?,
            service: Decode::decode(r)?,
            allowed: Decode::decode(r)?,
            preferred: Decode::decode(r)?,
        })
    }
}

/// Ceph: `mon_info_t` v5.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MonInfo {
    pub name: String,
    pub public_addrs: AddrVec,
    pub priority: u16,
    pub weight: u16,
    pub crush_location: BTreeMap<String, String>,
}

impl MonMap {
    /// Everything up to Pacific: kraken, luminous, mimic, osdmap-prune, nautilus, octopus, pacific,
    /// elector-pinging.
    pub const PACIFIC_FEATURES: u64 = 0xff;

    /// The first map of a cluster; ranks go by the order of `mons`.
    pub fn new(fsid: Uuid, now: Utime, mons: impl IntoIterator<Item = (String, AddrVec)>) -> MonMap {
        let mons: Vec<(String, AddrVec)> = mons.into_iter().collect();
        MonMap {
            fsid,
            epoch: Epoch(1),
            last_changed: now,
            created: now,
            persistent_features: MonMap::PACIFIC_FEATURES,
            optional_features: 0,
            ranks: mons.iter().map(|(name, _)| name.clone()).collect(),
            mons: mons.into_iter().map(|(name, addrs)| (name.clone(), MonInfo::new(name, addrs))).collect(),
            min_mon_release: release::PACIFIC,
            removed_ranks: BTreeSet::new(),
            election_strategy: 1,
            disallowed_leaders: BTreeSet::new(),
            stretch_mode: false,
            tiebreaker: String::new(),
            stretch_marked_down: BTreeSet::new(),
            ciphers: AuthCiphers::default(),
        }
    }
    /// One more, with the last rank.
    pub fn add(&mut self, name: String, addrs: AddrVec) {
        self.ranks.push(name.clone());
        self.mons.insert(name.clone(), MonInfo::new(name, addrs));
    }
    /// Those behind it get the rank before theirs.
    pub fn remove(&mut self, name: &str) {
        self.ranks.retain(|other| other != name);
        self.mons.remove(name);
    }
    /// The monitors by rank.
    pub fn by_rank(&self) -> impl Iterator<Item = &MonInfo> {
        self.ranks.iter().filter_map(|name| self.mons.get(name))
    }
    pub fn rank_of(&self, name: &str) -> Option<usize> {
        self.ranks.iter().position(|n| n == name)
    }

    /// Each monitor has one rank and goes by its own name: two that think they have the same rank
    /// would both speak for it.
    fn check_ranks(&self) -> Result<(), DecodeError> {
        let wrong = |what, at: usize| DecodeError::BadValue { what, value: at as u64 };
        let ranked: BTreeSet<&String> = self.ranks.iter().collect();
        if self.ranks.len() != ranked.len() || !ranked.into_iter().eq(self.mons.keys()) {
            return Err(wrong("MonMap ranks", self.ranks.len()));
        }
        match self.mons.iter().position(|(name, mon)| *name != mon.name) {
            Some(at) => Err(wrong("MonMap name of monitor", at)),
            None => Ok(()),
        }
    }
}

impl MonInfo {
    pub fn new(name: String, public_addrs: AddrVec) -> MonInfo {
        MonInfo { name, public_addrs, priority: 0, weight: 0, crush_location: BTreeMap::new() }
    }
}

/// Ceph: `mon_feature_t`.
fn encode_features(out: &mut Vec<u8>, bits: u64) {
    versioned(out, 1, 1, |out| bits.encode(out));
}
fn decode_features(r: &mut Reader<'_>) -> Result<u64, DecodeError> {
    r.versioned("mon_feature_t", 1, |r, _| u64::decode(r))
}

impl Encode for MonMap {
    fn encode(&self, out: &mut Vec<u8>) {
        let says_ciphers = self.ciphers != AuthCiphers::default();
        versioned(out, if says_ciphers { 10 } else { 9 }, 6, |out| {
            self.fsid.encode(out);
            self.epoch.encode(out);
            self.last_changed.encode(out);
            self.created.encode(out);
            encode_features(out, self.persistent_features);
            encode_features(out, self.optional_features);
            self.mons.encode(out);
            self.ranks.encode(out);
            self.min_mon_release.encode(out);
            self.removed_ranks.encode(out);
            self.election_strategy.encode(out);
            self.disallowed_leaders.encode(out);
            self.stretch_mode.encode(out);
            self.tiebreaker.encode(out);
            self.stretch_marked_down.encode(out);
            if says_ciphers {
                self.ciphers.encode(out);
            }
        });
    }
}
impl Decode for MonMap {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("MonMap", 10, |r, v| {
            if v < 9 {
                return Err(DecodeError::BadValue { what: "MonMap version", value: v.into() });
            }
            let map = MonMap {
                fsid: Uuid::decode(r)?,
                epoch: Epoch::decode(r)?,
                last_changed: Utime::decode(r)?,
                created: Utime::decode(r)?,
                persistent_features: decode_features(r)?,
                optional_features: decode_features(r)?,
                mons: BTreeMap::decode(r)?,
                ranks: Vec::decode(r)?,
                min_mon_release: u8::decode(r)?,
                removed_ranks: BTreeSet::decode(r)?,
                election_strategy: u8::decode(r)?,
                disallowed_leaders: BTreeSet::decode(r)?,
                stretch_mode: bool::decode(r)?,
                tiebreaker: String::decode(r)?,
                stretch_marked_down: BTreeSet::decode(r)?,
                ciphers: if v >= 10 { Decode::decode(r)? } else { AuthCiphers::default() },
            };
            map.check_ranks()?;
            Ok(map)
        })
    }
}

impl Encode for MonInfo {
    fn encode(&self, out: &mut Vec<u8>) {
        versioned(out, 5, 1, |out| {
            self.name.encode(out);
            self.public_addrs.encode(out);
            self.priority.encode(out);
            self.weight.encode(out);
            self.crush_location.encode(out);
        });
    }
}
impl Decode for MonInfo {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("mon_info_t", 5, |r, v| {
            Ok(MonInfo {
                name: String::decode(r)?,
                public_addrs: AddrVec::decode(r)?,
                priority: if v >= 2 { u16::decode(r)? } else { 0 },
                weight: if v >= 4 { u16::decode(r)? } else { 0 },
                crush_location: if v >= 5 { BTreeMap::decode(r)? } else { BTreeMap::new() },
            })
        })
    }
}
