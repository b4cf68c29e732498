//! What makes a daemon this daemon.

use crate::disk::FileDisk;
use nacre_auth::Secret;
use nacre_perf::Registry;
use nacre_proto::types::{AddrVec, AuthName, EntityAddr, EntityType, Network};
use nacre_store::Store;
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::time::Duration;

/// A daemon (or client) to run: who it is, where it listens, what it stores on.
pub struct Spec {
    /// As in `osd.0`; names the threads, and with them the log lines.
    pub name: String,
    pub kind: EntityType,
    /// An OSD's number, a monitor's rank; -1 for a client, which gets a number from a monitor.
    pub num: i64,
    pub auth_name: AuthName,
    /// Its own, in a cluster where everybody proves who they are (cephx). None: nobody does.
    pub key: Option<Secret>,
    /// What we say of ourselves when we dial.
    pub addrs: AddrVec,
    pub listeners: Vec<Listener>,
    /// For datagrams, on each network where the daemon has a use for them.
    pub datagrams: Vec<(Network, UdpSocket)>,
    pub store: Option<(Store, FileDisk)>,
    /// Where the node shows what it counts.
    pub perf: Registry,
    pub limits: Limits,
}

/// A bound socket, and as what it answers: one process may be a monitor on one address and a manager
/// on another.
pub struct Listener {
    pub socket: TcpListener,
    pub addr: EntityAddr,
    pub kind: EntityType,
    pub num: i64,
}

/// Why a daemon cannot listen where it should.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {addr}")]
pub struct BindError {
    pub addr: SocketAddr,
    pub source: io::Error,
}

impl Listener {
    /// Port 0 takes any free one.
    pub fn bind(addr: SocketAddr, nonce: u32, kind: EntityType, num: i64) -> Result<Listener, BindError> {
        let bound = TcpListener::bind(addr).and_then(|socket| {
            socket.set_nonblocking(true)?;
            let addr = EntityAddr::msgr2(socket.local_addr()?, nonce);
            Ok(Listener { socket, addr, kind, num })
        });
        bound.map_err(|source| BindError { addr, source })
    }

    /// A socket for datagrams at the same address.
    pub fn bind_datagrams(&self) -> Result<UdpSocket, BindError> {
        let bound = self.socket.local_addr().and_then(|addr| {
            let socket = UdpSocket::bind(addr)?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        });
        let addr = self.addr.sock.expect("it listens there");
        bound.map_err(|source| BindError { addr, source })
    }
}

/// Bounds on what peers can make us hold. Bytes and counts, per daemon unless said otherwise.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Sessions at a time; further callers are turned away.
    pub sessions_max: usize,
    /// The store's: its index, what waits to be placed, and its cache, which takes what these leave.
    pub store_memory: usize,
    /// Data of clients' requests, until it is on the disk: above it, clients are not read from.
    pub received_max: usize,
    /// Per session, unsent: above it, no more requests are read from this client.
    pub unsent_pause: usize,
    /// Per session, unsent: above it, the session is cut.
    pub unsent_max: usize,
    /// From the first byte to the first message.
    pub handshake_timeout: Duration,
    /// A daemon that takes nothing of what waits for it is cut after this long, ...
    pub stalled_timeout: Duration,
    /// ... and a client after this long: others wait for the memory of its answers. One that wakes up asks again.
    pub stalled_client_timeout: Duration,
    /// A peer that was silent this long is asked whether it is there, ...
    pub idle_probe: Duration,
    /// ... and cut when it was silent this long.
    pub idle_timeout: Duration,
    /// For a machine to say goodbye after `Event::Stop`.
    pub stop_timeout: Duration,
}

/// What a daemon gets that nobody says more about.
pub const MEMORY_DEFAULT: usize = 512 << 20;

impl Limits {
    /// For a daemon that may take so many bytes of memory: half of them for its store, a quarter for what
    /// clients send; the rest is for answers, for the daemon's own records, and for what an allocator wastes.
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
