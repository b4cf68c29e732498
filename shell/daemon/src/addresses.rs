//! Addresses that daemons listen on.
//!
//! An OSD's addresses come from its command line, else from the monitors' configuration (`public_network`,
//! `cluster_network`), else from its own configuration.

use crate::config::OsdArguments;
use crate::configured::Configured;
use crate::loopback::LoopbackNetwork;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::str::FromStr;

/// An address, with a port or without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenAddr {
    ip: IpAddr,
    port: Option<u16>,
}

impl FromStr for ListenAddr {
    type Err = anyhow::Error;
    fn from_str(text: &str) -> Result<ListenAddr> {
        if let Ok(addr) = text.parse::<SocketAddr>() {
            return Ok(ListenAddr { ip: addr.ip(), port: Some(addr.port()) });
        }
        let ip = text.trim_start_matches('[').trim_end_matches(']').parse().with_context(|| {
            format!("`{text}` is not an address such as 10.0.0.2, 10.0.0.2:6800 or [fd00::2]:6800")
        })?;
        Ok(ListenAddr { ip, port: None })
    }
}

impl ListenAddr {
    fn or_port(self, port: u16) -> SocketAddr {
        SocketAddr::new(self.ip, self.port.unwrap_or(port))
    }
}

/// Addresses with a common prefix, such as `10.0.0.0/24` or `fd00::/64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpNetwork {
    first: IpAddr,
    prefix: u32,
}

impl FromStr for IpNetwork {
    type Err = anyhow::Error;
    fn from_str(text: &str) -> Result<IpNetwork> {
        let bad = || format!("`{text}` is not a network such as 10.0.0.0/24 or fd00::/64");
        let (first, prefix) = text.trim().split_once('/').with_context(bad)?;
        let (first, prefix) =
            (first.parse::<IpAddr>().with_context(bad)?, prefix.parse::<u32>().with_context(bad)?);
        ensure!(prefix <= if first.is_ipv4() { 32 } else { 128 }, bad());
        Ok(IpNetwork { first, prefix })
    }
}

impl IpNetwork {
    pub fn contains(self, ip: IpAddr) -> bool {
        match (self.first, ip) {
            (IpAddr::V4(first), IpAddr::V4(ip)) => {
                (first.to_bits() ^ ip.to_bits()).checked_shr(32 - self.prefix).unwrap_or(0) == 0
            }
            (IpAddr::V6(first), IpAddr::V6(ip)) => {
                (first.to_bits() ^ ip.to_bits()).checked_shr(128 - self.prefix).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

/// This host's address in one of these networks, which commas separate. On loopback, where all OSDs of a
/// development cluster share one host, it is the address with the OSD's number.
fn address_in(networks: &str, id: u32, own: impl Fn() -> Vec<IpAddr>) -> Result<IpAddr> {
    if let Ok(network) = networks.parse::<LoopbackNetwork>() {
        let ip = network.addr(id).with_context(|| format!("{network} has no address for osd.{id}"))?;
        return Ok(ip.into());
    }
    let all: Vec<IpNetwork> = networks.split(',').map(str::parse).collect::<Result<_>>()?;
    let own = own();
    // Loopback only where it was asked for.
    let fits = |network: &IpNetwork, ip: IpAddr| {
        network.contains(ip) && (network.first.is_loopback() || !ip.is_loopback())
    };
    let found = all.iter().find_map(|network| own.iter().find(|ip| fits(network, **ip)));
    found.copied().with_context(|| {
        let own: Vec<String> = own.iter().map(IpAddr::to_string).collect();
        format!("this host has no address in {networks}; it has {}", own.join(", "))
    })
}

/// Whether this host has the address. All of 127.0.0.0/8 is its own.
pub fn is_own_address(ip: IpAddr) -> bool {
    !ip.is_unspecified() && UdpSocket::bind(SocketAddr::new(ip, 0)).is_ok()
}

/// This host's address in one of these networks. On loopback, where a host has all addresses, it is the one
/// with the same number as `beside` has in its network.
pub fn own_address_in(networks: &[IpNetwork], beside: Option<IpAddr>) -> Option<IpAddr> {
    let own = own_addresses();
    networks.iter().find_map(|network| match (network.first, beside) {
        (IpAddr::V4(first), Some(IpAddr::V4(beside))) if first.is_loopback() => {
            let number = beside.to_bits() & u32::MAX.checked_shr(network.prefix).unwrap_or(0);
            Some(Ipv4Addr::from(first.to_bits() | number).into())
        }
        _ => own.iter().copied().find(|ip| network.contains(*ip)),
    })
}

/// The addresses of this host's interfaces.
pub fn own_addresses() -> Vec<IpAddr> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let v4 = local_v4(&read("/proc/net/fib_trie")).into_iter().map(IpAddr::from);
    v4.chain(local_v6(&read("/proc/net/if_inet6")).into_iter().map(IpAddr::from)).collect()
}

/// The kernel's routing tables: a local address is a leaf, and the next line says so.
fn local_v4(fib_trie: &str) -> Vec<Ipv4Addr> {
    let (mut found, mut leaf) = (Vec::new(), None);
    for line in fib_trie.lines().map(str::trim) {
        if let Some(addr) = line.strip_prefix("|-- ") {
            leaf = addr.parse::<Ipv4Addr>().ok();
        } else if line == "/32 host LOCAL"
            && let Some(addr) = leaf
            && !found.contains(&addr)
        {
            found.push(addr);
        }
    }
    found
}

/// A line for each address, which it begins with in 32 hexadecimal digits.
fn local_v6(if_inet6: &str) -> Vec<Ipv6Addr> {
    let address = |line: &str| u128::from_str_radix(line.split_whitespace().next()?, 16).ok();
    if_inet6.lines().filter_map(address).map(Ipv6Addr::from_bits).collect()
}

/// Where one OSD listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OsdAddrs {
    pub public: SocketAddr,
    pub cluster: Option<SocketAddr>,
}

impl OsdAddrs {
    /// As the command line has it, else the monitors' configuration, else these.
    pub fn choose(self, arguments: &OsdArguments, configured: &Configured, id: u32) -> Result<OsdAddrs> {
        let port = self.public.port();
        let by_network = |network: &Option<String>| -> Result<Option<SocketAddr>> {
            let Some(networks) = network else { return Ok(None) };
            Ok(Some(SocketAddr::new(address_in(networks, id, own_addresses)?, port)))
        };
        Ok(OsdAddrs {
            public: match arguments.public_addr {
                Some(addr) => addr.or_port(port),
                None => {
                    by_network(&configured.public_network).context("public_network")?.unwrap_or(self.public)
                }
            },
            cluster: match arguments.cluster_addr {
                Some(addr) => Some(addr.or_port(port)),
                None => by_network(&configured.cluster_network).context("cluster_network")?.or(self.cluster),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sock(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }
    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn command_line_overrides_monitors_configuration_overrides_own_configuration() {
        let own = OsdAddrs { public: sock("127.0.0.1:6821"), cluster: Some(sock("127.2.0.2:6821")) };
        let configured = |public: Option<&str>, cluster: Option<&str>| Configured {
            public_network: public.map(String::from),
            cluster_network: cluster.map(String::from),
            ..Configured::default()
        };
        assert_eq!(own.choose(&OsdArguments::default(), &configured(None, None), 1).unwrap(), own);
        let both = configured(Some("127.5.0.0/24"), Some("127.6.0.0/24"));
        let by_network = OsdAddrs { public: sock("127.5.0.2:6821"), cluster: Some(sock("127.6.0.2:6821")) };
        assert_eq!(own.choose(&OsdArguments::default(), &both, 1).unwrap(), by_network);
        let arguments = OsdArguments {
            public_addr: Some("127.0.0.9".parse().unwrap()),
            cluster_addr: Some("[fd00::8]:7000".parse().unwrap()),
            memory: None,
        };
        let said = OsdAddrs { public: sock("127.0.0.9:6821"), cluster: Some(sock("[fd00::8]:7000")) };
        assert_eq!(own.choose(&arguments, &both, 1).unwrap(), said);
        let bad = configured(None, Some("127.0.0.0/33"));
        assert!(own.choose(&OsdArguments::default(), &bad, 1).is_err());
    }

    #[test]
    fn addresses_of_any_network_are_accepted() {
        let listen = |ip: IpAddr, port| ListenAddr { ip, port };
        for (text, expected) in [
            ("10.0.0.1", listen(ip("10.0.0.1"), None)),
            ("10.0.0.1:6800", listen(ip("10.0.0.1"), Some(6800))),
            ("fd00::1", listen(ip("fd00::1"), None)),
            ("[fd00::1]", listen(ip("fd00::1"), None)),
            ("[fd00::1]:6800", listen(ip("fd00::1"), Some(6800))),
        ] {
            assert_eq!(text.parse::<ListenAddr>().unwrap(), expected);
        }
        for bad in ["osd.1", "127.0.0.1:x", ""] {
            assert!(bad.parse::<ListenAddr>().is_err(), "{bad}");
        }
    }

    #[test]
    fn second_address_of_a_host_on_loopback_has_the_same_number() {
        let networks = ["127.9.0.0/16".parse().unwrap()];
        assert_eq!(own_address_in(&networks, Some(ip("127.0.0.3"))), Some(ip("127.9.0.3")));
        assert!(is_own_address(ip("127.9.0.3")) && !is_own_address(ip("203.0.113.1")));
        assert!(!is_own_address(ip("0.0.0.0")));
        assert_eq!(own_address_in(&["203.0.113.0/24".parse().unwrap()], None), None);
    }

    #[test]
    fn host_address_in_a_network_is_chosen() {
        let own = || vec![ip("127.0.0.1"), ip("192.168.3.7"), ip("10.1.2.3"), ip("fd00::5"), ip("fe80::1")];
        for (networks, expected) in [
            ("10.0.0.0/8", "10.1.2.3"),
            ("10.2.0.0/16, 192.168.3.0/24", "192.168.3.7"),
            ("fd00::/64", "fd00::5"),
            ("0.0.0.0/0", "192.168.3.7"),
            ("127.3.0.0/24", "127.3.0.5"),
        ] {
            assert_eq!(address_in(networks, 4, own).unwrap(), ip(expected), "{networks}");
        }
        for bad in ["10.2.0.0/16", "fd01::/64", "10.0.0.0/33", "10.0.0.0", "x/8"] {
            assert!(address_in(bad, 4, own).is_err(), "{bad}");
        }
    }

    #[test]
    fn kernel_tables_list_the_addresses_of_a_host() {
        let fib_trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     +-- 10.0.0.0/24 2 0 2\n        \
                        |-- 10.0.0.0\n           /24 link UNICAST\n        |-- 10.0.0.5\n           /32 host LOCAL\n        \
                        |-- 10.0.0.255\n           /32 link BROADCAST\nLocal:\n        |-- 10.0.0.5\n           /32 host LOCAL\n";
        assert_eq!(local_v4(fib_trie), ["10.0.0.5".parse::<Ipv4Addr>().unwrap()]);
        let if_inet6 = "00000000000000000000000000000001 01 80 10 80       lo\n\
                        fd000000000000000000000000000005 02 40 00 80     eth0\n";
        let expected = ["::1", "fd00::5"].map(|text| text.parse::<Ipv6Addr>().unwrap());
        assert_eq!(local_v6(if_inet6), expected);
        assert!(own_addresses().contains(&ip("127.0.0.1")));
    }
}
