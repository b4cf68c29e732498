//! The monitors' addresses as `mon host` in a `ceph.conf` gives them.

use nacre_proto::types::EntityAddr;
use std::net::{IpAddr, SocketAddr};

/// Where a monitor listens unless told otherwise.
const DEFAULT_PORT: u16 = 3300;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MonHostError {
    #[error("\"{0}\" is no address of a monitor")]
    BadAddress(String),
    #[error("no monitor speaks msgr2 in \"{0}\"")]
    Empty(String),
}

/// Reads addresses such as `[v2:10.0.0.1:3300/0,v1:10.0.0.1:6789/0] 10.0.0.2`. Addresses of the old
/// messenger are left out.
pub fn parse_mon_host(text: &str) -> Result<Vec<EntityAddr>, MonHostError> {
    let mut addrs = Vec::new();
    for word in text.split([',', ' ', ';', '\t']) {
        let addr = strip_vector(word);
        if addr.is_empty() || addr.starts_with("v1:") {
            continue;
        }
        addrs.push(address(addr).ok_or_else(|| MonHostError::BadAddress(word.to_owned()))?);
    }
    if addrs.is_empty() {
        return Err(MonHostError::Empty(text.to_owned()));
    }
    Ok(addrs)
}

/// Takes off the brackets of a list of addresses; those of an IPv6 address stay.
fn strip_vector(word: &str) -> &str {
    let word = word.strip_prefix('[').filter(|rest| rest.starts_with('v')).unwrap_or(word);
    match word.strip_suffix(']') {
        Some(rest) if !rest.contains('[') || rest.ends_with(']') || rest.contains("]:") => rest,
        _ => word,
    }
}

fn address(text: &str) -> Option<EntityAddr> {
    let text = text.strip_prefix("v2:").unwrap_or(text);
    let (text, nonce) = match text.split_once('/') {
        Some((addr, nonce)) => (addr, nonce.parse().ok()?),
        None => (text, 0),
    };
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    let alone = bare.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, DEFAULT_PORT));
    Some(EntityAddr::msgr2(alone.or_else(|| text.parse().ok())?, nonce))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Vec<String> {
        parse_mon_host(text).unwrap().iter().map(EntityAddr::to_string).collect()
    }

    #[test]
    fn all_usual_forms_are_understood() {
        assert_eq!(parsed("10.0.0.1"), ["v2:10.0.0.1:3300/0"]);
        assert_eq!(parsed("[v2:127.0.0.1:40000/0]"), ["v2:127.0.0.1:40000/0"]);
        assert_eq!(
            parsed("[v2:10.0.0.1:3300/0,v1:10.0.0.1:6789/0] [v2:10.0.0.2:3300,v1:10.0.0.2:6789]"),
            ["v2:10.0.0.1:3300/0", "v2:10.0.0.2:3300/0"]
        );
        assert_eq!(parsed("v2:10.0.0.1:1, 10.0.0.2:2"), ["v2:10.0.0.1:1/0", "v2:10.0.0.2:2/0"]);
        assert_eq!(parsed("[v2:[::1]:3300/0,v1:[::1]:6789/0]"), ["v2:[::1]:3300/0"]);
        assert_eq!(parsed("[::1]:77 fe80::1"), ["v2:[::1]:77/0", "v2:[fe80::1]:3300/0"]);
    }

    #[test]
    fn what_is_no_address_is_named() {
        assert_eq!(parse_mon_host("here"), Err(MonHostError::BadAddress("here".into())));
        assert_eq!(parse_mon_host("v1:10.0.0.1:6789"), Err(MonHostError::Empty("v1:10.0.0.1:6789".into())));
    }
}
