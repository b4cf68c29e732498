//! What a daemon is started with.

use crate::disk::FileDisk;
use crate::port_holder::{PortHolder, holder_of};
use nacre_auth::Secret;
use nacre_perf::Registry;
use nacre_proto::types::{AddrVec, AuthName, EntityAddr, EntityType, Network};
use nacre_store::Store;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::time::Duration;

/// A daemon (or client) to run: its identity, its addresses, its store.
pub struct Spec {
    /// As in `osd.0`; names the threads, and with them the log lines.
    pub name: String,
    pub kind: EntityType,
    /// An OSD's number, a monitor's rank; -1 for a client, which gets a number from a monitor.
    pub num: i64,
    pub auth_name: AuthName,
    /// Its own key. None in a cluster without authentication.
    pub key: Option<Secret>,
    /// The addresses that it tells its peers.
    pub addrs: AddrVec,
    pub listeners: Vec<Listener>,
    /// For datagrams (heartbeats), on each network.
    pub datagrams: Vec<(Network, UdpSocket)>,
    pub store: Option<(Store, FileDisk)>,
    /// Where the node registers its counters.
    pub perf: Registry,
    pub limits: Limits,
}

/// A bound socket, and the identity that it answers with: one process may be a monitor at one address and a
/// manager at another.
pub struct Listener {
    pub socket: TcpListener,
    pub addr: EntityAddr,
    pub kind: EntityType,
    pub num: i64,
}

/// Why a daemon cannot listen where it should.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {addr}{}", holder.as_ref().map(|holder| format!(": {holder}")).unwrap_or_default())]
pub struct BindError {
    pub addr: SocketAddr,
    /// Of a port in use.
    pub holder: Option<PortHolder>,
    pub source: io::Error,
}

impl BindError {
    fn new(addr: SocketAddr, source: io::Error) -> BindError {
        let holder = (source.kind() == io::ErrorKind::AddrInUse).then(|| holder_of(addr)).flatten();
        BindError { addr, holder, source }
    }
}

impl Listener {
    /// Port 0 takes any free one.
    pub fn bind(addr: SocketAddr, nonce: u32, kind: EntityType, num: i64) -> Result<Listener, BindError> {
        let bound = TcpListener::bind(addr).and_then(|socket| {
            socket.set_nonblocking(true)?;
            let addr = EntityAddr::msgr2(socket.local_addr()?, nonce);
            Ok(Listener { socket, addr, kind, num })
        });
        bound.map_err(|source| BindError::new(addr, source))
    }

    /// A socket for datagrams at the same address.
    pub fn bind_datagrams(&self) -> Result<UdpSocket, BindError> {
        let unknown = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let addr = self.socket.local_addr().map_err(|source| BindError::new(unknown, source))?;
        let bound = UdpSocket::bind(addr).and_then(|socket| {
            socket.set_nonblocking(true)?;
            Ok(socket)
        });
        bound.map_err(|source| BindError::new(addr, source))
    }
}

/// Limits on what peers can make a daemon hold. Bytes and counts, per daemon unless noted.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Sessions at a time; further connections are refused.
    pub sessions_max: usize,
    /// For the store: its index, data in the log that is not in its place yet, and the cache, which takes the
    /// rest.
    pub store_memory: usize,
    /// Data of clients' requests, until it is on the disk: above it, clients are not read from.
    pub received_max: usize,
    /// Per session, unsent: above it, no more requests are read from this client.
    pub unsent_pause: usize,
    /// Per session, unsent: above it, the session is cut.
    pub unsent_max: usize,
    /// From the first byte of a connection to its first message.
    pub handshake_timeout: Duration,
    /// A daemon that reads nothing of what is unsent is disconnected after this long, ...
    pub stalled_timeout: Duration,
    /// ... and a client after this long, as other clients wait for the memory of its replies. It reconnects.
    pub stalled_client_timeout: Duration,
    /// A daemon that was silent this long gets a keepalive, ...
    pub idle_probe: Duration,
    /// ... and is disconnected when it was silent this long.
    pub idle_timeout: Duration,
    /// How long a machine may take to stop after `Event::Stop`.
    pub stop_timeout: Duration,
}

/// Memory of a daemon for which none is configured.
pub const MEMORY_DEFAULT: usize = 512 << 20;

impl Limits {
    /// For a daemon with this many bytes of memory: half for its store, a quarter for requests; the rest is
    /// for replies, for the daemon's own records and for the allocator's overhead.
    pub fn of_memory(bytes: usize) -> Limits {
        Limits {
            store_memory: bytes / 2,
            received_max: bytes / 4,
            unsent_pause: bytes / 16,
            ..Limits::default()
        }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            sessions_max: 20_000,
            store_memory: MEMORY_DEFAULT / 2,
            received_max: MEMORY_DEFAULT / 4,
            unsent_pause: MEMORY_DEFAULT / 16,
            unsent_max: 1 << 30,
            handshake_timeout: Duration::from_secs(10),
            stalled_timeout: Duration::from_secs(60),
            stalled_client_timeout: Duration::from_secs(2),
            idle_probe: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(120),
            stop_timeout: Duration::from_secs(10),
        }
    }
}
