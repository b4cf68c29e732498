//! Where an OSD listens.
//!
//! From the narrowest to the widest: what its command line says, what the monitors' configuration says
//! (`public_network`, `cluster_network`), what the folder says. As long as nobody proves who he is, all of
//! it must be on loopback.

use crate::cluster::{Cluster, LoopbackNetwork};
use crate::configured::Configured;
use anyhow::{Context, Result, ensure};
use std::net::{IpAddr, SocketAddr};
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
        let addr = match text.parse::<SocketAddr>() {
            Ok(addr) => ListenAddr { ip: addr.ip(), port: Some(addr.port()) },
            Err(_) => {
                let ip = text
                    .parse()
                    .with_context(|| format!("`{text}` is not an address like 127.0.0.2:6800"))?;
                ListenAddr { ip, port: None }
            }
        };
        ensure!(addr.ip.is_loopback(), "{text} is not a loopback address: daemons listen on loopback only");
        Ok(addr)
    }
}

impl ListenAddr {
    fn or_port(self, port: u16) -> SocketAddr {
        SocketAddr::new(self.ip, self.port.unwrap_or(port))
    }
}

/// What the command line of `nacre osd` says of it.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct Listen {
    /// Where clients reach it, with a port or without [default: by `public_network`, or the folder's]
    #[arg(long, value_name = "ADDR", value_parser = ListenAddr::from_str)]
    pub public_addr: Option<ListenAddr>,
    /// Where other OSDs reach it [default: by `cluster_network`, the folder's, or where clients do]
    #[arg(long, value_name = "ADDR", value_parser = ListenAddr::from_str)]
    pub cluster_addr: Option<ListenAddr>,
}

/// Where one OSD listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OsdAddrs {
    pub public: SocketAddr,
    pub cluster: Option<SocketAddr>,
}

impl OsdAddrs {
    /// As the folder has it.
    pub fn of_folder(cluster: &Cluster, id: u32) -> OsdAddrs {
        OsdAddrs { public: cluster.osd_addr(id), cluster: cluster.osd_cluster_addr(id) }
    }

    /// As the command line has it, or else the configuration, or else these.
    pub fn choose(self, listen: &Listen, configured: &Configured, id: u32) -> Result<OsdAddrs> {
        let port = self.public.port();
        let by_network = |network: &Option<String>| -> Result<Option<SocketAddr>> {
            let Some(text) = network else { return Ok(None) };
            let network: LoopbackNetwork = text.parse()?;
            let ip = network.addr(id).with_context(|| format!("{network} has no address for osd.{id}"))?;
            Ok(Some(SocketAddr::new(ip.into(), port)))
        };
        Ok(OsdAddrs {
            public: match listen.public_addr {
                Some(addr) => addr.or_port(port),
                None => {
                    by_network(&configured.public_network).context("public_network")?.unwrap_or(self.public)
                }
            },
            cluster: match listen.cluster_addr {
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

    #[test]
    fn the_command_line_goes_before_the_configuration_and_that_before_the_folder() {
        let folder = OsdAddrs { public: sock("127.0.0.1:6821"), cluster: Some(sock("127.2.0.2:6821")) };
        let configured = |public: Option<&str>, cluster: Option<&str>| Configured {
            public_network: public.map(String::from),
            cluster_network: cluster.map(String::from),
            ..Configured::default()
        };
        assert_eq!(folder.choose(&Listen::default(), &configured(None, None), 1).unwrap(), folder);
        let both = configured(Some("127.5.0.0/24"), Some("127.6.0.0/24"));
        let by_network = OsdAddrs { public: sock("127.5.0.2:6821"), cluster: Some(sock("127.6.0.2:6821")) };
        assert_eq!(folder.choose(&Listen::default(), &both, 1).unwrap(), by_network);
        let listen = Listen {
            public_addr: Some("127.0.0.9".parse().unwrap()),
            cluster_addr: Some("127.0.0.8:7000".parse().unwrap()),
        };
        let said = OsdAddrs { public: sock("127.0.0.9:6821"), cluster: Some(sock("127.0.0.8:7000")) };
        assert_eq!(folder.choose(&listen, &both, 1).unwrap(), said);
    }

    #[test]
    fn what_others_could_reach_and_what_is_no_address_is_refused() {
        for bad in ["10.0.0.1", "0.0.0.0:1", "osd.1", "127.0.0.1:x"] {
            assert!(bad.parse::<ListenAddr>().is_err(), "{bad}");
        }
        let folder = OsdAddrs { public: sock("127.0.0.1:6821"), cluster: None };
        for bad in ["10.0.0.0/24", "127.0.0.0/31", "x"] {
            let configured = Configured { cluster_network: Some(bad.to_string()), ..Configured::default() };
            assert!(folder.choose(&Listen::default(), &configured, 1).is_err(), "{bad}");
        }
    }
}
