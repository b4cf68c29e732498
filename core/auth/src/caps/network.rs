//! Grants that hold only for peers in a network.

use std::fmt;
use std::net::IpAddr;

/// What follows `network`. Any text is accepted; no address is in what is not `ADDRESS/BITS`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    text: String,
    parsed: Option<(IpAddr, u32)>,
}

impl Network {
    pub fn new(text: &str) -> Network {
        let parsed = text.split_once('/').and_then(|(address, bits)| {
            let digits = !bits.is_empty() && bits.bytes().all(|b| b.is_ascii_digit());
            // More bits than an address has are all of them.
            digits.then_some((address.parse().ok()?, bits.parse().unwrap_or(u32::MAX)))
        });
        Network { text: text.to_owned(), parsed }
    }

    pub fn contains(&self, from: IpAddr) -> bool {
        match (self.parsed, from) {
            (Some((IpAddr::V4(network), bits)), IpAddr::V4(from)) => {
                let differ = network.to_bits() ^ from.to_bits();
                differ.leading_zeros() >= bits.min(32)
            }
            (Some((IpAddr::V6(network), bits)), IpAddr::V6(from)) => {
                let differ = network.to_bits() ^ from.to_bits();
                differ.leading_zeros() >= bits.min(128)
            }
            _ => false,
        }
    }
}

/// Whether a grant that may be for a network only is for this address.
pub fn admits(network: &Option<Network>, from: IpAddr) -> bool {
    network.as_ref().is_none_or(|network| network.contains(from))
}

/// With a space in front, as the last of a grant.
pub fn write(f: &mut fmt::Formatter<'_>, network: &Option<Network>) -> fmt::Result {
    network.as_ref().map_or(Ok(()), |network| write!(f, " network {}", network.text))
}
