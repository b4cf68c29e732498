//! The blocklist: single clients, machines, and whole networks.
//!
//! Networks came late to Ceph's map: its part for OSDs has them from version 11 on, and is written as version
//! 9 while there are none, so that a cluster without them says what it always said. Version 10 is for
//! stretched clusters, which Nacre has none of.

use super::incremental::Incremental;
use super::osdmap::OsdMap;
use crate::types::{AddrKind, AddrVec, EntityAddr};
use nacre_base::Utime;
use nacre_wire::{Decode, DecodeError, Encode, Reader, encode_map};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Of the part for OSDs of a map, and of an incremental.
const WITHOUT_RANGES: u8 = 9;
const WITH_STRETCH: u8 = 10;
const WITH_RANGES: u8 = 11;
/// What a stretched cluster has before the ranges, in a map and in an incremental.
const STRETCH: [u8; 17] = [0; 17];
const NEW_STRETCH: [u8; 18] = [0; 18];

impl OsdMap {
    /// Until when the client at `addr` is blocklisted: it alone, its whole machine, or its network. An entry
    /// with nonce and port zero stands for all of an IP address.
    pub fn blocklisted_until(&self, addr: &EntityAddr) -> Option<Utime> {
        if self.blocklist.is_empty() && self.range_blocklist.is_empty() {
            return None;
        }
        // Entries are of kind "any": one instance of a client has a single nonce on all its kinds.
        let instance = EntityAddr { kind: AddrKind::Any, ..*addr };
        let host =
            addr.sock.map(|s| EntityAddr { nonce: 0, sock: Some(SocketAddr::new(s.ip(), 0)), ..instance });
        let single = [Some(*addr), Some(instance), host]
            .into_iter()
            .flatten()
            .find_map(|a| self.blocklist.get(&a).copied());
        single.or_else(|| {
            let around = self.range_blocklist.iter().find(|(range, _)| range.covers(addr));
            around.map(|(_, until)| *until)
        })
    }
    pub fn is_blocklisted(&self, addrs: &AddrVec) -> bool {
        addrs.0.iter().any(|addr| self.blocklisted_until(addr).is_some())
    }

    pub(super) fn apply_blocklist(&mut self, inc: &Incremental) {
        update(&mut self.blocklist, &inc.new_blocklist, &inc.old_blocklist);
        update(&mut self.range_blocklist, &inc.new_range_blocklist, &inc.old_range_blocklist);
    }

    pub(super) fn osd_part_version(&self) -> u8 {
        if self.range_blocklist.is_empty() { WITHOUT_RANGES } else { WITH_RANGES }
    }
    pub(super) fn encode_ranges(&self, out: &mut Vec<u8>) {
        if !self.range_blocklist.is_empty() {
            out.extend(STRETCH);
            encode_map(out, blocklist_order(&self.range_blocklist).into_iter());
        }
    }
    pub(super) fn decode_ranges(&mut self, r: &mut Reader<'_>, version: u8) -> Result<(), DecodeError> {
        if version >= WITH_STRETCH {
            r.take(STRETCH.len())?;
        }
        if version >= WITH_RANGES {
            self.range_blocklist = Arc::new(BTreeMap::decode(r)?);
        }
        Ok(())
    }
}

impl Incremental {
    fn has_ranges(&self) -> bool {
        !self.new_range_blocklist.is_empty() || !self.old_range_blocklist.is_empty()
    }
    pub(super) fn osd_part_version(&self) -> u8 {
        if self.has_ranges() { WITH_RANGES } else { WITHOUT_RANGES }
    }
    pub(super) fn encode_ranges(&self, out: &mut Vec<u8>) {
        if self.has_ranges() {
            out.extend(NEW_STRETCH);
            encode_map(out, blocklist_order(&self.new_range_blocklist).into_iter());
            self.old_range_blocklist.encode(out);
        }
    }
    pub(super) fn decode_ranges(&mut self, r: &mut Reader<'_>, version: u8) -> Result<(), DecodeError> {
        if version >= WITH_STRETCH {
            r.take(NEW_STRETCH.len())?;
        }
        if version >= WITH_RANGES {
            self.new_range_blocklist = BTreeMap::decode(r)?;
            self.old_range_blocklist = Vec::decode(r)?;
        }
        Ok(())
    }
}

fn update(
    list: &mut Arc<BTreeMap<EntityAddr, Utime>>,
    new: &BTreeMap<EntityAddr, Utime>,
    old: &[EntityAddr],
) {
    if new.is_empty() && old.is_empty() {
        return;
    }
    let list = Arc::make_mut(list);
    for (&addr, &until) in new {
        // An entry that exists is not changed: it has to be removed first.
        list.entry(addr).or_insert(until);
    }
    for addr in old {
        list.remove(addr);
    }
}

impl EntityAddr {
    /// A network: the bits that count are where others have their nonce. None if there are more than an
    /// address has.
    pub fn network(ip: IpAddr, bits: u32) -> Option<EntityAddr> {
        let most = if ip.is_ipv4() { 32 } else { 128 };
        let sock = Some(SocketAddr::new(ip, 0));
        (bits <= most).then_some(EntityAddr { kind: AddrKind::Cidr, nonce: bits, sock })
    }

    /// Whether `addr` is in this network.
    pub fn covers(&self, addr: &EntityAddr) -> bool {
        let (Some(network), Some(addr)) = (self.sock, addr.sock) else { return false };
        let same = match (network.ip(), addr.ip()) {
            (IpAddr::V4(a), IpAddr::V4(b)) => 32 - (a.to_bits() ^ b.to_bits()).leading_zeros(),
            (IpAddr::V6(a), IpAddr::V6(b)) => 128 - (a.to_bits() ^ b.to_bits()).leading_zeros(),
            _ => return false,
        };
        let len = if network.is_ipv4() { 32 } else { 128 };
        // What a map from elsewhere has beyond that counts as all bits.
        same <= len - self.nonce.min(len)
    }
}

/// Blocklisted addresses in Ceph's order, which is that of the address's bytes in memory.
pub(super) fn blocklist_order(list: &BTreeMap<EntityAddr, Utime>) -> Vec<(&EntityAddr, &Utime)> {
    fn bytes(addr: &EntityAddr) -> Vec<u8> {
        let mut key = Vec::with_capacity(36);
        key.extend((addr.kind as u32).to_le_bytes());
        key.extend(addr.nonce.to_le_bytes());
        match addr.sock {
            None => {}
            Some(SocketAddr::V4(v4)) => {
                key.extend(2_u16.to_le_bytes());
                key.extend(v4.port().to_be_bytes());
                key.extend(v4.ip().octets());
            }
            Some(SocketAddr::V6(v6)) => {
                key.extend(10_u16.to_le_bytes());
                key.extend(v6.port().to_be_bytes());
                key.extend(v6.flowinfo().to_be_bytes());
                key.extend(v6.ip().octets());
                key.extend(v6.scope_id().to_le_bytes());
            }
        }
        key
    }
    let mut entries: Vec<_> = list.iter().collect();
    entries.sort_by_cached_key(|(addr, _)| bytes(addr));
    entries
}
