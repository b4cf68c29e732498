//! Whether a host that is to join can exchange datagrams of every size with the hosts of a cluster, and be
//! dialled by them.
//!
//! Each agent answers at its host's address. A question begins with a fixed word and the cluster's fsid,
//! which only hosts of the cluster and those with a token know. An answer is as long as the question, so a
//! forged sender gains nothing. It begins with another word, so that it is never answered itself.

use crate::kinds::PORTS;
use anyhow::{Context, Result, bail};
use nacre_node::entropy;
use rustix::net::sockopt;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use uuid::Uuid;

const QUESTION: &[u8; 11] = b"nacre-ask-1";
const ANSWER: &[u8; 11] = b"nacre-say-1";
/// Behind the word: the fsid, a number that tells questions apart, and a port to dial, or 0.
const HEADER: usize = QUESTION.len() + 16 + 8 + 2;
/// Of the packets that are tried: more than jumbo frames of Ethernet. A larger MTU is tried with this.
const MTU_MAX: usize = 9216;
/// Of IPv4 and UDP, of IPv6 and UDP.
const HEADERS: (usize, usize) = (28, 48);
const TRIES: u32 = 3;
const ANSWER_TIMEOUT: Duration = Duration::from_millis(400);
const DIAL_TIMEOUT: Duration = Duration::from_secs(2);
/// How soon a stopped thread ends.
const POLL: Duration = Duration::from_millis(500);
/// Dialling back takes long where it fails, and answers wait meanwhile. So it is done this seldom.
const DIAL_EVERY: Duration = Duration::from_millis(100);

/// Answers at an address until it is stopped.
pub struct Echo {
    stop: Arc<AtomicBool>,
}

impl Echo {
    pub fn start(addr: SocketAddr, fsid: Uuid) -> Result<Echo> {
        let socket = UdpSocket::bind(addr).with_context(|| format!("cannot listen on {addr}/udp"))?;
        socket.set_read_timeout(Some(POLL))?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let run = move || {
            // One byte more shows that a datagram is longer.
            let mut buffer = vec![0; MTU_MAX + 1];
            let mut dialled = Instant::now() - DIAL_EVERY;
            while !stopped.load(Ordering::Relaxed) {
                let (len, from) = match socket.recv_from(&mut buffer) {
                    Ok((len, from)) if len <= MTU_MAX => (len, from),
                    Ok(_) => continue,
                    Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                        continue;
                    }
                    Err(e) => {
                        tracing::debug!("cannot receive questions of hosts that join: {e}");
                        std::thread::sleep(POLL);
                        continue;
                    }
                };
                let Some(port) = port_in(&buffer[..len], fsid) else { continue };
                if port == 0 {
                    buffer[..ANSWER.len()].copy_from_slice(ANSWER);
                    // It may get lost: the question is repeated.
                    let _ = socket.send_to(&buffer[..len], from);
                } else if PORTS.contains(&port) && dialled.elapsed() >= DIAL_EVERY {
                    dialled = Instant::now();
                    dial_back(SocketAddr::new(from.ip(), port), buffer[..HEADER].to_vec());
                }
            }
        };
        std::thread::Builder::new().name("echo".into()).spawn(run).context("cannot start a thread")?;
        Ok(Echo { stop })
    }

    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// On a thread of its own, which ends soon.
fn dial_back(to: SocketAddr, header: Vec<u8>) {
    let dial = move || {
        if let Ok(mut stream) = TcpStream::connect_timeout(&to, DIAL_TIMEOUT) {
            // The other end closes if this is not what it waits for.
            let _ = stream.write_all(&header);
        }
    };
    if let Err(e) = std::thread::Builder::new().name("dial".into()).spawn(dial) {
        tracing::warn!("cannot start a thread that dials {to}: {e}");
    }
}

fn question(fsid: Uuid, number: u64, port: u16, len: usize) -> Vec<u8> {
    let mut bytes =
        [QUESTION.as_slice(), fsid.as_bytes(), &number.to_le_bytes(), &port.to_le_bytes()].concat();
    bytes.resize(len.max(HEADER), 0);
    bytes
}

/// The port in a question of this cluster.
fn port_in(bytes: &[u8], fsid: Uuid) -> Option<u16> {
    let rest = bytes.strip_prefix(QUESTION.as_slice())?.strip_prefix(fsid.as_bytes().as_slice())?;
    Some(u16::from_le_bytes(rest.get(8..10)?.try_into().ok()?))
}

/// What came of asking one host.
#[derive(Debug, PartialEq, Eq)]
pub struct Answered {
    /// Bytes of a packet that the interface takes.
    pub mtu: usize,
    /// A packet of that size passed, unfragmented, and so did its answer.
    pub at_full_size: bool,
}

/// Asks the host at `to`. Fails if no datagram comes back.
pub fn ask(from: IpAddr, to: SocketAddr, fsid: Uuid) -> Result<Answered> {
    let socket = UdpSocket::bind(SocketAddr::new(from, 0))?;
    socket.connect(to)?;
    socket.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    if !comes_back(&socket, fsid, HEADER)? {
        bail!("no datagram came back");
    }
    let (mtu, headers) = match to {
        SocketAddr::V4(_) => {
            sockopt::set_ip_mtu_discover(&socket, sockopt::Ipv4PathMtuDiscovery::DO)?;
            (sockopt::ip_mtu(&socket)?, HEADERS.0)
        }
        SocketAddr::V6(_) => {
            sockopt::set_ipv6_mtu_discover(&socket, sockopt::Ipv6PathMtuDiscovery::DO)?;
            (sockopt::ipv6_mtu(&socket)?, HEADERS.1)
        }
    };
    let mtu = (mtu as usize).min(MTU_MAX);
    Ok(Answered { mtu, at_full_size: comes_back(&socket, fsid, mtu - headers)? })
}

fn comes_back(socket: &UdpSocket, fsid: Uuid, len: usize) -> Result<bool> {
    let mut buffer = vec![0; MTU_MAX];
    for _ in 0..TRIES {
        let sent = question(fsid, entropy().next_u64(), 0, len);
        let expected = [ANSWER.as_slice(), &sent[QUESTION.len()..]].concat();
        match socket.send(&sent) {
            Ok(_) => {}
            // The path is narrower than the interface, and says so; or a host on it refused the last one.
            Err(e) if matches!(e.raw_os_error(), Some(EMSGSIZE | ECONNREFUSED)) => continue,
            Err(e) => return Err(e.into()),
        }
        match socket.recv(&mut buffer) {
            Ok(len) if buffer[..len] == expected => return Ok(true),
            _ => {}
        }
    }
    Ok(false)
}
const EMSGSIZE: i32 = 90;
const ECONNREFUSED: i32 = 111;

/// Has the host at `to` dial this one. Fails if it does not arrive.
pub fn be_dialled(from: IpAddr, to: SocketAddr, fsid: Uuid) -> Result<()> {
    let listener = PORTS.rev().find_map(|port| TcpListener::bind(SocketAddr::new(from, port)).ok());
    let listener = listener.context("no port is free")?;
    listener.set_nonblocking(true)?;
    let port = listener.local_addr()?.port();
    let socket = UdpSocket::bind(SocketAddr::new(from, 0))?;
    let ask = question(fsid, entropy().next_u64(), port, HEADER);
    for _ in 0..TRIES {
        socket.send_to(&ask, to)?;
        let deadline = Instant::now() + DIAL_TIMEOUT / TRIES;
        while Instant::now() < deadline {
            match listener.accept() {
                Ok((mut stream, _)) => {
                    let mut said = vec![0; HEADER];
                    stream.set_nonblocking(false)?;
                    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
                    if stream.read_exact(&mut said).is_ok() && said == ask {
                        return Ok(());
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(POLL / 50),
                Err(e) => return Err(e.into()),
            }
        }
    }
    bail!("it did not reach {from}:{port}/tcp")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_of_the_same_cluster_are_answered_in_every_size() {
        let fsid = Uuid::from_u128(7);
        let loopback = IpAddr::from([127, 0, 0, 1]);
        let addr = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let echo = Echo::start(addr, fsid).unwrap();
        let answered = ask(loopback, addr, fsid).unwrap();
        assert!(answered.at_full_size && answered.mtu > 1000, "{answered:?}");
        be_dialled(loopback, addr, fsid).unwrap();
        assert!(ask(loopback, addr, Uuid::from_u128(8)).is_err(), "another cluster");
        echo.stop();
    }

    #[test]
    fn answers_and_long_questions_are_not_answered() {
        let fsid = Uuid::from_u128(7);
        let bind = || UdpSocket::bind("127.0.0.1:0").unwrap();
        let addr = bind().local_addr().unwrap();
        let echo = Echo::start(addr, fsid).unwrap();
        let socket = bind();
        socket.set_read_timeout(Some(ANSWER_TIMEOUT)).unwrap();
        let mut buffer = vec![0; 2 * MTU_MAX];
        socket.send_to(&question(fsid, 1, 0, MTU_MAX), addr).unwrap();
        let (len, _) = socket.recv_from(&mut buffer).unwrap();
        assert!(len == MTU_MAX && buffer.starts_with(ANSWER));
        // As if this answer came from another agent.
        for unanswered in [buffer[..len].to_vec(), question(fsid, 1, 0, MTU_MAX + 1)] {
            socket.send_to(&unanswered, addr).unwrap();
            assert!(socket.recv_from(&mut buffer).is_err());
        }
        echo.stop();
    }

    #[test]
    fn port_is_read_from_a_question_and_nothing_else() {
        let fsid = Uuid::from_u128(7);
        let asked = question(fsid, 1, 6800, 100);
        assert_eq!((asked.len(), port_in(&asked, fsid)), (100, Some(6800)));
        assert_eq!(port_in(&asked[..HEADER - 1], fsid), None);
        assert_eq!(port_in(&asked[1..], fsid), None);
    }
}
