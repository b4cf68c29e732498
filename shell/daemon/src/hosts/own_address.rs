//! Under which address a host is known, where the command line does not say it.

use crate::addresses::{own_address_in, own_addresses};
use crate::hosts::preflight::networks;
use anyhow::{Context, Result, bail};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

/// The monitors' port.
const MON_PORT: u16 = 3300;

/// The address on the command line, else this host's only one in the network.
pub fn own_address(given: Option<&str>, network: Option<&str>) -> Result<SocketAddr> {
    let networks = network.map(networks).transpose()?;
    let Some(text) = given else {
        if let Some(networks) = networks {
            let found = own_address_in(&networks, None);
            let found = found.with_context(|| {
                let own: Vec<String> = own_addresses().iter().map(IpAddr::to_string).collect();
                format!(
                    "this host has no address in {}; it has {}",
                    network.unwrap_or_default(),
                    own.join(", ")
                )
            })?;
            return Ok(SocketAddr::new(found, MON_PORT));
        }
        let own: Vec<IpAddr> = own_addresses().into_iter().filter(|ip| is_reachable(*ip)).collect();
        return match own[..] {
            [ip] => Ok(SocketAddr::new(ip, MON_PORT)),
            _ => bail!("say with --network which network clients use, such as --network 10.0.0.0/24"),
        };
    };
    let plain = text.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    let found: Vec<SocketAddr> = match (text.parse::<SocketAddr>(), plain) {
        (Ok(addr), _) => vec![addr],
        (_, Ok(ip)) => vec![SocketAddr::new(ip, MON_PORT)],
        _ => {
            let resolved = match text.contains(':') {
                true => text.to_socket_addrs(),
                false => (text, MON_PORT).to_socket_addrs(),
            };
            resolved.with_context(|| format!("{text} is no address, and no name of one"))?.collect()
        }
    };
    let fits = |addr: &&SocketAddr| networks.iter().flatten().any(|network| network.contains(addr.ip()));
    found.iter().find(fits).or(found.first()).copied().with_context(|| format!("{text} has no address"))
}

/// Neither loopback nor of one link.
fn is_reachable(ip: IpAddr) -> bool {
    let is_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    !ip.is_loopback() && !is_local
}

/// The address from which this host would send to the monitors.
pub fn own_address_towards(mons: &[SocketAddr]) -> SocketAddr {
    let towards = |mon: &SocketAddr| {
        let any: SocketAddr = if mon.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0_u16; 8], 0).into() };
        let socket = std::net::UdpSocket::bind(any).ok()?;
        socket.connect(mon).ok()?;
        Some(socket.local_addr().ok()?.ip())
    };
    let ip = mons.iter().find_map(towards).unwrap_or(IpAddr::from([127, 0, 0, 1]));
    SocketAddr::new(ip, MON_PORT)
}
