//! Which process has a port, for the message that a daemon cannot listen there.

use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::ops::RangeInclusive;

/// What uses a port, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortHolder(String);

impl fmt::Display for PortHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The state of a listening socket in `/proc/net/tcp`.
const LISTENING: &str = "0A";

/// The socket that has this address's port, a listening one first.
pub(crate) fn holder_of(addr: SocketAddr) -> Option<PortHolder> {
    let tables = ["tcp", "tcp6", "udp", "udp6"]
        .map(|table| (table, fs::read_to_string(format!("/proc/net/{table}")).unwrap_or_default()));
    let sockets = tables.iter().flat_map(|(table, text)| {
        // A bound datagram socket listens, in a sense.
        let is_udp = table.starts_with("udp");
        sockets_with_port(text, addr.port())
            .into_iter()
            .map(move |(inode, state)| (inode, is_udp || state == LISTENING))
    });
    let (inode, listens) = sockets.max_by_key(|(inode, listens)| (*listens, *inode > 0))?;
    // A connection that was closed keeps its port for a while, and belongs to no process any more.
    if inode == 0 {
        return Some(PortHolder("a connection that was just closed still has the port".to_string()));
    }
    let process = process_with_socket(inode).unwrap_or_else(|| "a process of another user".to_string());
    Some(PortHolder(match listens {
        true => format!("{process} listens there"),
        false => format!("a connection of {process} has the port"),
    }))
}

/// Inode and state of the sockets of a table whose own port is this one.
fn sockets_with_port(table: &str, port: u16) -> Vec<(u64, &str)> {
    let socket = |line| {
        let fields: Vec<&str> = str::split_whitespace(line).collect();
        let [_, local, _, state, _, _, _, _, _, inode, ..] = fields[..] else { return None };
        let (_, own) = local.rsplit_once(':')?;
        let inode = inode.parse().ok()?;
        (u16::from_str_radix(own, 16) == Ok(port)).then_some((inode, state))
    };
    table.lines().skip(1).filter_map(socket).collect()
}

fn process_with_socket(inode: u64) -> Option<String> {
    let link = format!("socket:[{inode}]");
    for process in fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let files = fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten();
        let mut links = files.filter_map(|file| fs::read_link(file.path()).ok());
        if links.any(|found| found.as_os_str() == link.as_str()) {
            let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            return Some(format!("{} (pid {pid})", name.trim()));
        }
    }
    None
}

/// The ports that the kernel gives to outgoing connections.
pub fn outgoing_ports() -> RangeInclusive<u16> {
    let text = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut numbers = text.split_whitespace().map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(first)), Some(Ok(last))) => first..=last,
        _ => 32_768..=60_999,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn holder_of_a_listening_port_is_named() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let holder = holder_of(listener.local_addr().unwrap()).unwrap();
        let text = holder.to_string();
        assert!(text.contains(&format!("(pid {}) listens there", std::process::id())), "{text}");
    }

    #[test]
    fn holder_of_an_outgoing_connection_s_port_is_named() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connection = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let text = holder_of(connection.local_addr().unwrap()).unwrap().to_string();
        assert!(text.starts_with("a connection of ") && text.contains("(pid "), "{text}");
    }

    #[test]
    fn free_port_has_no_holder() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert_eq!(holder_of(free), None);
        assert!(outgoing_ports().start() < outgoing_ports().end());
    }
}
