//! Where an OSD listens.
//!
//! From the narrowest to the widest: what its command line says, what the monitors' configuration says
//! (`public_network`, `cluster_network`), what the folder says. As long as nobody proves who he is, all of
//! it must be on loopback.

use crate::cluster::{Cluster, LoopbackNetwork};
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use nacre_client::{Output, Request};
use nacre_node::BlockingClient;
use serde_json::json;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;
use uuid::Uuid;

/// Monitors that do not answer by then may be starting as well: the folder's word has to do.
const ASK_TIMEOUT: Duration = Duration::from_secs(2);

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
                let ip =
                    text.parse().with_context(|| format!("`{text}` is no address such as 127.0.0.2:6800"))?;
                ListenAddr { ip, port: None }
            }
        };
        ensure!(
            addr.ip.is_loopback(),
            "{text} is not on loopback: without authentication, which is not built yet, nobody else may reach it"
        );
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

    /// As the command line has it, or else the configuration.
    pub fn find(cluster: &Cluster, id: u32, listen: &Listen) -> Result<OsdAddrs> {
        let folder = OsdAddrs::of_folder(cluster, id);
        let asked = match (listen.public_addr, listen.cluster_addr) {
            (Some(_), Some(_)) => [None, None],
            _ => ask(cluster, id),
        };
        folder.choose(listen, &asked, id)
    }

    fn choose(self, listen: &Listen, networks: &[Option<String>; 2], id: u32) -> Result<OsdAddrs> {
        let port = self.public.port();
        let by_network = |network: &Option<String>| -> Result<Option<SocketAddr>> {
            let Some(text) = network.as_ref().filter(|text| !text.is_empty()) else { return Ok(None) };
            let network: LoopbackNetwork = text.parse()?;
            let ip = network.addr(id).with_context(|| format!("{network} has no address for osd.{id}"))?;
            Ok(Some(SocketAddr::new(ip.into(), port)))
        };
        let [public, cluster] = networks;
        Ok(OsdAddrs {
            public: match listen.public_addr {
                Some(addr) => addr.or_port(port),
                None => by_network(public).context("public_network")?.unwrap_or(self.public),
            },
            cluster: match listen.cluster_addr {
                Some(addr) => Some(addr.or_port(port)),
                None => by_network(cluster).context("cluster_network")?.or(self.cluster),
            },
        })
    }
}

/// `public_network` and `cluster_network`, as the monitors have them for this OSD.
fn ask(cluster: &Cluster, id: u32) -> [Option<String>; 2] {
    let (nonce, seed) = Uuid::new_v4().as_u64_pair();
    let client = BlockingClient::connect(cluster.mon_addrs(), nonce as u32, seed);
    let pending = ["public_network", "cluster_network"].map(|key| {
        let command = json!({ "prefix": "config get", "who": format!("osd.{id}"), "key": key });
        client.submit(Request::mon_command(command.to_string(), Bytes::new()).timeout(ASK_TIMEOUT))
    });
    pending.map(|pending| match pending.wait() {
        Ok(Output::Command(answer)) => Some(String::from_utf8_lossy(&answer.output).trim().to_string()),
        _ => None,
    })
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
        let none = [None, None];
        assert_eq!(folder.choose(&Listen::default(), &none, 1).unwrap(), folder);
        let both = [Some("127.5.0.0/24".to_string()), Some("127.6.0.0/24".to_string())];
        let by_network = OsdAddrs { public: sock("127.5.0.2:6821"), cluster: Some(sock("127.6.0.2:6821")) };
        assert_eq!(folder.choose(&Listen::default(), &both, 1).unwrap(), by_network);
        let listen = Listen {
            public_addr: Some("127.0.0.9".parse().unwrap()),
            cluster_addr: Some("127.0.0.8:7000".parse().unwrap()),
        };
        let said = OsdAddrs { public: sock("127.0.0.9:6821"), cluster: Some(sock("127.0.0.8:7000")) };
        assert_eq!(folder.choose(&listen, &both, 1).unwrap(), said);
        let empty = [Some(String::new()), None];
        assert_eq!(folder.choose(&Listen::default(), &empty, 1).unwrap(), folder);
    }

    #[test]
    fn what_others_could_reach_and_what_is_no_address_is_refused() {
        for bad in ["10.0.0.1", "0.0.0.0:1", "osd.1", "127.0.0.1:x"] {
            assert!(bad.parse::<ListenAddr>().is_err(), "{bad}");
        }
        let folder = OsdAddrs { public: sock("127.0.0.1:6821"), cluster: None };
        for bad in ["10.0.0.0/24", "127.0.0.0/31", "x"] {
            let networks = [None, Some(bad.to_string())];
            assert!(folder.choose(&Listen::default(), &networks, 1).is_err(), "{bad}");
        }
    }
}
