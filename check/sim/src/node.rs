//! One daemon or client: its disk, and while it runs its machine, its store and what it waits for.

use crate::identity::{GlobalIdPool, Identity};
use crate::schedule::Scheduled;
use nacre_base::{Now, Time};
use nacre_client::Standalone;
use nacre_machine::{ConnId, Effect, Event, Machine, StoreView, TimerId, Token};
use nacre_mon::Mon;
use nacre_msgr::Sums;
use nacre_osd::Osd;
use nacre_proto::types::{EntityAddr, EntityType, Network};
use nacre_store::testing::SimDisk;
use nacre_store::{Batch, DeferredWrites, Store, Ticket};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// Where clients are.
const CLIENTS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
/// Ports of outgoing connections; no daemon examines them.
const SOURCE_PORT: u16 = 50_000;

pub enum Role {
    Mon(Box<Mon>),
    Osd(Box<Osd>),
    Client(Box<Standalone>),
}

impl Role {
    pub fn handle(&mut self, now: Now, event: Event, store: &dyn StoreView, out: &mut Vec<Effect>) {
        match self {
            Role::Mon(mon) => mon.handle(now, event, store, out),
            Role::Osd(osd) => osd.handle(now, event, store, out),
            Role::Client(client) => client.handle(now, event, store, out),
        }
    }
}

pub struct Node {
    pub name: String,
    pub kind: EntityType,
    /// An OSD's id, a monitor's rank, a client's global id once it has one.
    pub num: i64,
    /// Where it listens; a client's has a nonce only. The nonce is that of this incarnation.
    pub addr: EntityAddr,
    /// Where an OSD listens for other OSDs, if that is another network; with the same nonce.
    pub cluster_addr: Option<EntityAddr>,
    /// Counts starts. What was scheduled for an earlier incarnation is dropped.
    pub incarnation: u64,
    /// None while it does not run.
    pub role: Option<Role>,
    pub identity: Option<Identity>,
    /// Checksums of data that its messengers received or sent during a turn.
    pub sums: Sums,
    pub disk: Option<Arc<SimDisk>>,
    pub store: Option<Store>,
    pub waiting: VecDeque<(Ticket, Token)>,
    /// The batch that is being written to the log.
    pub committing: Option<Batch>,
    /// What is being written from the log to its place.
    pub placing: Option<DeferredWrites>,
    pub timers: BTreeMap<TimerId, Time>,
    pub events: VecDeque<Event>,
    pub loops: VecDeque<u64>,
    pub accepted: u64,
    /// Connections that it dialled and hung up before they opened.
    pub abandoned: BTreeSet<ConnId>,
    /// A monitor's: global ids that it may assign to clients.
    pub ids: GlobalIdPool,
    /// Stopped as by SIGSTOP: what is due meanwhile is deferred.
    pub paused: bool,
    pub deferred: Vec<Scheduled>,
    /// Its host has no power: connection attempts time out instead of being refused.
    pub powered_off: bool,
    /// The machine has stopped cleanly.
    pub stopped: bool,
    /// Why a machine could not continue (`Effect::Fail`), which ended the process. Stays when it starts
    /// again.
    pub failure: Option<String>,
    /// How far its wall clock is ahead.
    pub wall_ahead: Duration,
    /// Bytes of memory that it may use, and the most that it ever used.
    pub memory_max: Option<usize>,
    pub memory_peak: usize,
    /// Bytes of memory of its store, if not next to nothing.
    pub store_memory: Option<usize>,
}

impl Node {
    pub fn new(
        name: String,
        kind: EntityType,
        num: i64,
        addr: EntityAddr,
        disk: Option<Arc<SimDisk>>,
    ) -> Node {
        Node {
            name,
            kind,
            num,
            addr,
            cluster_addr: None,
            incarnation: 0,
            role: None,
            disk,
            store: None,
            waiting: VecDeque::new(),
            committing: None,
            placing: None,
            timers: BTreeMap::new(),
            events: VecDeque::new(),
            loops: VecDeque::new(),
            accepted: 0,
            abandoned: BTreeSet::new(),
            ids: GlobalIdPool::default(),
            identity: None,
            sums: Sums::default(),
            paused: false,
            deferred: Vec::new(),
            powered_off: false,
            stopped: false,
            failure: None,
            wall_ahead: Duration::ZERO,
            memory_max: None,
            memory_peak: 0,
            store_memory: None,
        }
    }

    /// The network on which it listens there.
    pub fn listens_on(&self, sock: Option<SocketAddr>) -> Option<Network> {
        let is_it = |addr: &EntityAddr| addr.sock == sock && sock.is_some();
        match self.cluster_addr.filter(is_it) {
            Some(_) => Some(Network::Cluster),
            None => is_it(&self.addr).then_some(Network::Public),
        }
    }
    /// Its address on that network.
    pub fn addr_on(&self, network: Network) -> EntityAddr {
        self.cluster_addr.filter(|_| network == Network::Cluster).unwrap_or(self.addr)
    }

    /// The address from which its connections come.
    pub fn source(&self) -> SocketAddr {
        let ip = self.addr.sock.map_or(CLIENTS, |sock| sock.ip());
        SocketAddr::new(ip, SOURCE_PORT)
    }

    pub fn is_running(&self) -> bool {
        self.role.is_some()
    }

    /// The process ends: everything in memory is lost.
    pub fn forget(&mut self) {
        self.role = None;
        self.store = None;
        self.committing = None;
        self.placing = None;
        self.waiting.clear();
        self.timers.clear();
        self.events.clear();
        self.loops.clear();
        self.ids = GlobalIdPool::default();
        self.identity = None;
        self.sums = Sums::default();
        self.abandoned.clear();
        self.paused = false;
        self.deferred.clear();
        self.stopped = false;
    }
}
