//! Networks on loopback, for clusters on one host.

use anyhow::{Context, Result, ensure};
use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

/// A network in 127.0.0.0/8, such as `127.2.0.0/24`. Each OSD has an address of its own in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct LoopbackNetwork {
    first: Ipv4Addr,
    prefix: u32,
}

impl LoopbackNetwork {
    /// The address of the OSD with this number. The first address is the network's own, the last is for
    /// broadcasts.
    pub fn addr(self, id: u32) -> Option<Ipv4Addr> {
        let hosts = (1_u32 << (32 - self.prefix)).saturating_sub(2);
        (id < hosts).then(|| Ipv4Addr::from(self.first.to_bits() + 1 + id))
    }
}
impl FromStr for LoopbackNetwork {
    type Err = anyhow::Error;
    fn from_str(text: &str) -> Result<LoopbackNetwork> {
        let bad = || format!("`{text}` is not a network like 127.2.0.0/24");
        let (first, prefix) = text.split_once('/').with_context(bad)?;
        let (first, prefix): (Ipv4Addr, u32) =
            (first.parse().with_context(bad)?, prefix.parse().with_context(bad)?);
        ensure!((8..=30).contains(&prefix), bad());
        ensure!(
            first.is_loopback(),
            "{text} is not a loopback network, and this cluster listens on loopback only"
        );
        ensure!(first.to_bits() & (u32::MAX >> prefix) == 0, bad());
        Ok(LoopbackNetwork { first, prefix })
    }
}
impl TryFrom<String> for LoopbackNetwork {
    type Error = anyhow::Error;
    fn try_from(text: String) -> Result<LoopbackNetwork> {
        text.parse()
    }
}
impl From<LoopbackNetwork> for String {
    fn from(network: LoopbackNetwork) -> String {
        network.to_string()
    }
}
impl fmt::Display for LoopbackNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.prefix)
    }
}
