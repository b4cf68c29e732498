//! Addresses: where daemons listen and clients call from.

use nacre_wire::{Decode, DecodeError, Encode, Reader, versioned};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum AddrKind {
    #[default]
    None = 0,
    /// msgr v1, which Nacre never speaks.
    Legacy = 1,
    Msgr2 = 2,
    Any = 3,
    Cidr = 4,
}

impl AddrKind {
    /// Ceph's name, as JSON has it.
    pub fn name(self) -> &'static str {
        match self {
            AddrKind::None => "none",
            AddrKind::Legacy => "v1",
            AddrKind::Msgr2 => "v2",
            AddrKind::Any => "any",
            AddrKind::Cidr => "cidr",
        }
    }
}

/// One of the networks that a daemon is on. Clients and monitors are on the public one; OSDs that have a
/// second one among themselves are on both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Network {
    Public,
    Cluster,
}

impl Network {
    pub fn other(self) -> Network {
        match self {
            Network::Public => Network::Cluster,
            Network::Cluster => Network::Public,
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Network::Public => "public network",
            Network::Cluster => "cluster network",
        })
    }
}

/// An address with the nonce that tells one life of a daemon from the next. Ceph: `entity_addr_t`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntityAddr {
    pub kind: AddrKind,
    pub nonce: u32,
    /// None: no address known (yet).
    pub sock: Option<SocketAddr>,
}

impl EntityAddr {
    pub fn msgr2(sock: SocketAddr, nonce: u32) -> EntityAddr {
        EntityAddr { kind: AddrKind::Msgr2, nonce, sock: Some(sock) }
    }
}

/// Ceph prints `v2:127.0.0.1:6800/123`.
impl fmt::Display for EntityAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(sock) = self.sock else { return f.write_str("-") };
        let prefix = match self.kind {
            AddrKind::None => "none:",
            AddrKind::Legacy => "v1:",
            AddrKind::Msgr2 => "v2:",
            AddrKind::Any => "",
            AddrKind::Cidr => "cidr:",
        };
        write!(f, "{prefix}{sock}/{}", self.nonce)
    }
}

impl Encode for EntityAddr {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(1); // the form since nautilus
        versioned(out, 1, 1, |out| {
            (self.kind as u32).encode(out);
            self.nonce.encode(out);
            match self.sock {
                None => 0_u32.encode(out),
                Some(SocketAddr::V4(v4)) => {
                    16_u32.encode(out);
                    AF_INET.encode(out);
                    out.extend(v4.port().to_be_bytes());
                    out.extend(v4.ip().octets());
                    out.extend([0; 8]);
                }
                Some(SocketAddr::V6(v6)) => {
                    28_u32.encode(out);
                    AF_INET6.encode(out);
                    out.extend(v6.port().to_be_bytes());
                    out.extend(v6.flowinfo().to_be_bytes());
                    out.extend(v6.ip().octets());
                    v6.scope_id().encode(out);
                }
            }
        });
    }
}

/// A `sockaddr` whose family field has been read already.
fn socket_addr(family: u16, r: &mut Reader<'_>) -> Result<Option<SocketAddr>, DecodeError> {
    let port = |r: &mut Reader<'_>| Ok(u16::from_be_bytes(r.array()?));
    match family {
        0 => Ok(None),
        AF_INET => {
            let port = port(r)?;
            let ip = Ipv4Addr::from(r.array::<4>()?);
            Ok(Some(SocketAddr::new(IpAddr::V4(ip), port)))
        }
        AF_INET6 => {
            let port = port(r)?;
            let flow = u32::from_be_bytes(r.array()?);
            let ip = Ipv6Addr::from(r.array::<16>()?);
            let scope = u32::decode(r)?;
            Ok(Some(SocketAddr::V6(std::net::SocketAddrV6::new(ip, port, flow, scope))))
        }
        _ => Err(DecodeError::BadValue { what: "address family", value: family.into() }),
    }
}

impl EntityAddr {
    /// The rest of an address whose first byte was `marker`.
    fn decode_after_marker(marker: u8, r: &mut Reader<'_>) -> Result<EntityAddr, DecodeError> {
        match marker {
            // The old form: padding, nonce and a whole `sockaddr_storage`, family in network order.
            0 => {
                r.take(3)?;
                let nonce = u32::decode(r)?;
                let mut storage = Reader::new(r.take(128)?);
                let family = u16::from_be_bytes(storage.array()?);
                let sock = socket_addr(family, &mut storage)?;
                Ok(EntityAddr { kind: AddrKind::Legacy, nonce, sock })
            }
            1 => r.versioned("entity_addr_t", 1, |r, _| {
                let kind = match u32::decode(r)? {
                    0 => AddrKind::None,
                    1 => AddrKind::Legacy,
                    2 => AddrKind::Msgr2,
                    3 => AddrKind::Any,
                    4 => AddrKind::Cidr,
                    value => return Err(DecodeError::BadValue { what: "address kind", value: value.into() }),
                };
                let nonce = u32::decode(r)?;
                let mut sockaddr = Reader::new(r.bytes()?);
                let sock = match sockaddr.remaining() {
                    0 => None,
                    _ => socket_addr(u16::decode(&mut sockaddr)?, &mut sockaddr)?,
                };
                Ok(EntityAddr { kind, nonce, sock })
            }),
            _ => Err(DecodeError::BadValue { what: "address marker", value: marker.into() }),
        }
    }
}

impl Decode for EntityAddr {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let marker = u8::decode(r)?;
        EntityAddr::decode_after_marker(marker, r)
    }
}

/// All addresses of one entity. Ceph: `entity_addrvec_t`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddrVec(pub Vec<EntityAddr>);

impl AddrVec {
    pub fn one(addr: EntityAddr) -> AddrVec {
        AddrVec(vec![addr])
    }
    /// The address that we would dial: the first that speaks msgr2.
    pub fn msgr2(&self) -> Option<EntityAddr> {
        self.0.iter().copied().find(|a| a.kind == AddrKind::Msgr2 && a.sock.is_some())
    }
}

/// Ceph prints a single address bare and several as `[a,b]`.
impl fmt::Display for AddrVec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [one] = &self.0[..] {
            return one.fmt(f);
        }
        let all: Vec<String> = self.0.iter().map(EntityAddr::to_string).collect();
        write!(f, "[{}]", all.join(","))
    }
}

impl Encode for AddrVec {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(2);
        self.0.encode(out);
    }
}
impl Decode for AddrVec {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match u8::decode(r)? {
            2 => Ok(AddrVec(r.list(EntityAddr::decode)?)),
            // Senders older than the vector put one address here.
            marker => Ok(AddrVec::one(EntityAddr::decode_after_marker(marker, r)?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_wire::{from_slice, to_vec};

    #[test]
    fn both_families_and_the_empty_address_read_back() {
        for (text, len) in [("127.0.0.1:3300", 35), ("[::1]:6800", 47)] {
            let addr = EntityAddr::msgr2(text.parse().unwrap(), 7);
            let bytes = to_vec(&addr);
            assert_eq!(bytes.len(), len);
            assert_eq!(from_slice::<EntityAddr>(&bytes), Ok(addr));
            assert_eq!(addr.to_string(), format!("v2:{text}/7"));
        }
        let none = EntityAddr::default();
        assert_eq!(from_slice::<EntityAddr>(&to_vec(&none)), Ok(none));
    }

    #[test]
    fn the_old_form_is_read() {
        let mut bytes = vec![0, 0, 0, 0, 5, 0, 0, 0];
        bytes.extend([0, 2, 0x1a, 0x85, 10, 0, 0, 1]);
        bytes.resize(8 + 128, 0);
        let addr: EntityAddr = from_slice(&bytes).unwrap();
        assert_eq!(addr.to_string(), "v1:10.0.0.1:6789/5");
        assert_eq!(from_slice::<AddrVec>(&bytes).unwrap(), AddrVec::one(addr));
    }
}
