//! A simulated cluster for scripts and tests: named daemons, pools, clients, and faults.

use crate::identity::Identity;
use crate::memory;
use crate::network::NodeId;
use crate::node::{Node, Role};
use crate::script::{Auth, Shape};
use crate::versions::Versions;
use crate::world::{DISK_LATENCY, World};
use bytes::Bytes;
use nacre_auth::{Entity, Entropy, KeyType, Secret, keyring};
use nacre_base::{Name, OsdId, PgId, PoolId, ShardId, Utime};
use nacre_client::{
    ClientConfig, Completion, Failure, ObjectRequest, Output, Request, RequestId, Standalone,
};
use nacre_erasure::profile::{Profile, Settings};
use nacre_machine::{ReadError, StoreView, given_up};
use nacre_mon::{Member, Mon, MonAuth, MonConfig};
use nacre_osd::{MEMORY, Osd, OsdConfig};
use nacre_proto::maps::{OsdMap, Pool};
use nacre_proto::transaction::StoredId;
use nacre_proto::types::{AddrKind, AddrVec, AuthName, EntityAddr, EntityType, Network, ObjectId};
use nacre_store::testing::{DataBlock, SimDisk, data_blocks, metadata_blocks};
use nacre_store::{BLOCK, Options, Store};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// What a run is generated from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(pub u64);

pub struct Cluster {
    pub world: World,
    pub mons: Vec<NodeId>,
    pub osds: Vec<NodeId>,
    pub clients: Vec<NodeId>,
    /// The initial monitors; those after them joined later.
    founders: usize,
    /// OSDs on each host.
    pub per_host: usize,
    /// The initial hosts.
    hosts: usize,
    keyrings: Keyrings,
    /// Seconds that tickets are valid; 0: the default.
    ticket_ttl: u64,
    pub versions: Versions,
    /// Purged OSDs.
    purged: BTreeSet<usize>,
    /// The OSD whose metadata was corrupted, until its store is replaced: its store fails its checks, as it
    /// may.
    corrupted: Option<usize>,
    /// Bytes of an OSD's disk, and of the write-ahead log on it.
    osd_disk: (u64, Option<u64>),
    /// Bytes of memory that each OSD may use, if limited.
    osd_memory: Option<usize>,
    completions: BTreeMap<(NodeId, RequestId), Result<Output, Failure>>,
}

const MON_DISK: u64 = 64 << 20;
const OSD_DISK: u64 = 256 << 20;
/// Virtual time after which a wait counts as endless.
const PATIENCE: Duration = Duration::from_secs(180);

fn addr(kind: u16, n: usize, nonce: u32) -> EntityAddr {
    EntityAddr::msgr2(SocketAddr::from(([10, 0, 0, 1], kind + n as u16)), nonce)
}

impl Cluster {
    /// Daemons with empty disks, not started. Each OSD has a host of its own.
    pub fn new(seed: Seed, mons: usize, osds: usize, clients: usize, print: bool) -> Cluster {
        Cluster::with_shape(seed, &Shape { mons, osds, per_host: 1, ..Shape::default() }, clients, print)
    }

    pub fn with_shape(seed: Seed, shape: &Shape, clients: usize, print: bool) -> Cluster {
        let &Shape { mons, osds, per_host, wal_kib, disk_mib, memory_kib, .. } = shape;
        let mut world = World::new(seed.0, print);
        (world.frames, world.network.resets) = (shape.frames, shape.resets);
        let add = |world: &mut World, kind, name: String, num: usize, addr, disk| {
            world.add(Node::new(name, kind, num as i64, addr, disk))
        };
        let mut cluster = Cluster {
            mons: Vec::new(),
            osds: Vec::new(),
            clients: Vec::new(),
            founders: mons,
            per_host,
            hosts: shape.hosts(),
            keyrings: Keyrings::new(seed, shape.auth),
            ticket_ttl: shape.ticket_ttl,
            versions: Versions::default(),
            purged: BTreeSet::new(),
            corrupted: None,
            osd_disk: (
                if disk_mib > 0 { disk_mib << 20 } else { OSD_DISK },
                (wal_kib > 0).then_some(wal_kib << 10),
            ),
            osd_memory: (memory_kib > 0).then_some(memory_kib as usize * 1024),
            completions: BTreeMap::new(),
            world: World::new(0, false),
        };
        for n in 0..mons {
            let disk = disk(&mut world, MON_DISK, None, 100 + n as u8);
            let name = format!("mon.{}", mon_name(n));
            cluster.mons.push(add(&mut world, EntityType::Mon, name, n, addr(3300, n, 0), disk));
        }
        for n in 0..osds {
            let (len, log_len) = cluster.osd_disk;
            let disk = disk(&mut world, len, log_len, n as u8 + 1);
            let name = format!("osd.{n}");
            cluster.osds.push(add(&mut world, EntityType::Osd, name, n, addr(6800, n, 1), disk));
            cluster.keyrings.add(osd_name(n), OSD_CAPS);
        }
        for n in 0..clients {
            let addr = EntityAddr { kind: AddrKind::Any, nonce: n as u32 + 1, sock: None };
            let node = Node::new(format!("client.{n}"), EntityType::Client, -1, addr, None);
            cluster.keyrings.add(client_name(n), client_caps(n));
            cluster.clients.push(world.add(node));
        }
        cluster.keyrings.initial_entities = cluster.keyrings.entities.clone();
        if shape.old_release {
            cluster.versions = Versions::all_old(cluster.mons.iter().chain(&cluster.osds).copied());
        }
        cluster.world = world;
        cluster
    }

    /// Gives OSDs a cluster network beside the public one.
    pub fn with_cluster_network(mut self) -> Cluster {
        for (n, id) in self.osds.clone().into_iter().enumerate() {
            let cluster = EntityAddr::msgr2(SocketAddr::from(([10, 0, 1, 1], 6800 + n as u16)), 1);
            self.world.node_mut(id).cluster_addr = Some(cluster);
        }
        self
    }

    /// Limits the memory of OSDs, and of their stores. Without this, stores get so little that their caches
    /// are always full.
    pub fn with_memory(mut self, bytes: usize, of_store: usize) -> Cluster {
        self.osd_memory = Some(bytes);
        for id in self.osds.clone() {
            self.world.node_mut(id).store_memory = Some(of_store);
        }
        self
    }

    /// Starts all nodes and waits until all OSDs are up.
    pub fn up(mut self) -> Cluster {
        let all: Vec<NodeId> = self.mons.iter().chain(&self.osds).chain(&self.clients).copied().collect();
        all.into_iter().for_each(|id| self.start(id));
        if let Err(why) = self.wait_clean() {
            panic!("{why}");
        }
        self
    }

    pub fn pool(&mut self, name: &str, pg_num: u32) -> PoolId {
        self.command(&json!({ "prefix": "osd pool create", "pool": name, "pg_num": pg_num }));
        let id = self.submit(0, Request::lookup_pool(name));
        match self.wait(0, id) {
            Ok(Output::Pool(pool)) => pool,
            other => panic!("no pool {name}: {other:?}"),
        }
    }

    /// An erasure-coded pool that allows overwrites. Each OSD may hold one chunk, wherever it is.
    pub fn erasure_pool(&mut self, name: &str, shards: usize, pg_num: u32) -> PoolId {
        let m = if shards > 3 { 2 } else { 1 };
        let k = shards - m;
        let profile = [format!("k={k}"), format!("m={m}"), "crush-failure-domain=osd".to_string()];
        self.command(&json!({ "prefix": "osd erasure-code-profile set", "name": name, "profile": profile }));
        self.command(&json!({
            "prefix": "osd pool create", "pool": name, "pg_num": pg_num, "pool_type": "erasure",
            "erasure_code_profile": name,
        }));
        let (var, val) = ("allow_ec_overwrites", "true");
        self.command(&json!({ "prefix": "osd pool set", "pool": name, "var": var, "val": val }));
        let id = self.submit(0, Request::lookup_pool(name));
        match self.wait(0, id) {
            Ok(Output::Pool(pool)) => pool,
            other => panic!("no pool {name}: {other:?}"),
        }
    }

    /// The host of a monitor. The initial OSDs have as many hosts as they need.
    pub fn host_of_mon(&self, mon: usize) -> usize {
        mon % self.hosts
    }

    /// The Raft term of a running monitor: each election begins a new one.
    pub fn term(&self, id: NodeId) -> Option<u64> {
        match &self.world.node(id).role {
            Some(Role::Mon(mon)) => Some(mon.term()),
            _ => None,
        }
    }

    pub fn is_running(&self, id: NodeId) -> bool {
        self.world.node(id).is_running()
    }

    /// The cluster's format, as its monitors have it.
    pub fn format(&mut self) -> u64 {
        let status = self.command(&json!({ "prefix": "upgrade status", "format": "json" }));
        let status: Value = serde_json::from_str(&status).expect("it is JSON");
        status["format"].as_u64().expect("it has a number")
    }

    pub fn start(&mut self, id: NodeId) {
        let release = self.versions.of(id);
        let seed = self.world.rng.next_u64();
        let mon_addrs: Vec<EntityAddr> = self.mons.iter().map(|id| self.world.node(*id).addr).collect();
        let kind = self.world.node(id).kind;
        let num = self.world.node(id).num;
        let osd_memory = self.osd_memory;
        let charge = memory::charge_to(id.0);
        let role = match kind {
            EntityType::Mon => {
                let founders = self.founders;
                let member = |(n, addr): (usize, &EntityAddr)| Member {
                    id: n as u64 + 1,
                    name: mon_name(n),
                    addrs: AddrVec::one(*addr),
                    initial: n < founders,
                };
                Role::Mon(Box::new(Mon::new(MonConfig {
                    id: num as u64 + 1,
                    name: mon_name(num as usize),
                    members: mon_addrs.iter().enumerate().map(member).collect(),
                    mgr_addrs: AddrVec::one(addr(3400, num as usize, 0)),
                    fsid: [42; 16],
                    options: options(self.osds.len(), self.per_host, self.ticket_ttl),
                    host: format!("host{}", self.host_of_mon(num as usize)),
                    perf: Default::default(),
                    release,
                    metadata: BTreeMap::new(),
                    seed,
                    auth: MonAuth {
                        required: self.keyrings.auth == Auth::Cephx,
                        initial_entities: self.keyrings.initial_entities.clone(),
                        monitors_key: None,
                        entropy: Entropy::repeatable(seed),
                    },
                })))
            }
            EntityType::Osd => {
                // Each incarnation has another nonce.
                let nonce = self.world.node(id).incarnation as u32 + 1;
                let node = self.world.node_mut(id);
                node.memory_max = osd_memory;
                node.addr.nonce = nonce;
                if let Some(addr) = &mut node.cluster_addr {
                    addr.nonce = nonce;
                }
                Role::Osd(Box::new(Osd::new(OsdConfig {
                    id: OsdId(num as i32),
                    uuid: [num as u8 + 1; 16],
                    public: AddrVec::one(node.addr_on(Network::Public)),
                    cluster: AddrVec::one(node.addr_on(Network::Cluster)),
                    mons: mon_addrs,
                    host: format!("host{}", num as usize / self.per_host),
                    device_class: "ssd".into(),
                    memory: osd_memory.unwrap_or(MEMORY),
                    release,
                    metadata: BTreeMap::new(),
                    perf: Default::default(),
                    seed,
                    key: self.keyrings.key(&osd_name(num as usize)),
                })))
            }
            _ => {
                let config = ClientConfig { mons: mon_addrs, hostname: String::new(), timer: 0, seed };
                Role::Client(Box::new(Standalone::new(config)))
            }
        };
        drop(charge);
        let identity = self.identity(id, seed);
        self.world.start(id, role, identity);
    }

    fn identity(&self, id: NodeId, seed: u64) -> Identity {
        let node = self.world.node(id);
        let client = self.clients.iter().position(|client| *client == id);
        let (name, key) = match (node.kind, client) {
            (EntityType::Mon, _) => (AuthName::new(EntityType::Mon, ""), Some(self.keyrings.mon.clone())),
            (_, Some(n)) => (client_name(n), self.keyrings.key(&client_name(n))),
            _ => (osd_name(node.num as usize), self.keyrings.key(&osd_name(node.num as usize))),
        };
        match key.filter(|_| self.keyrings.auth == Auth::Cephx) {
            Some(key) => Identity::cephx(name, key, seed),
            None => Identity::none(name),
        }
    }

    /// Starts one more monitor with an empty disk, and returns the command that lets it join.
    pub fn add_mon(&mut self) -> Value {
        let n = self.mons.len();
        let disk = disk(&mut self.world, MON_DISK, None, 100 + n as u8);
        let (name, addr) = (mon_name(n), addr(3300, n, 0));
        let id = self.world.add(Node::new(format!("mon.{name}"), EntityType::Mon, n as i64, addr, disk));
        self.mons.push(id);
        self.start(id);
        json!({ "prefix": "mon add", "name": name, "addr": addr.sock.expect("it has one").to_string() })
    }

    /// Waits until the quorum consists of all monitors of the monmap.
    pub fn wait_monitors(&mut self) -> Result<(), String> {
        let mut seen = String::new();
        for _ in 0..30 {
            seen = self.command(&json!({ "prefix": "quorum_status", "format": "json" }));
            let status: Value = serde_json::from_str(&seen).unwrap_or_default();
            let names = status["monmap"]["mons"].as_array().into_iter().flatten();
            let names: BTreeSet<&str> = names.filter_map(|mon| mon["name"].as_str()).collect();
            let quorum = status["quorum_names"].as_array().into_iter().flatten();
            if !names.is_empty() && names == quorum.filter_map(Value::as_str).collect() {
                return Ok(());
            }
            self.run_for(Duration::from_secs(1));
        }
        Err(format!("not all monitors are in the quorum: {seen}"))
    }

    /// Starts one more OSD with an empty disk. With cephx, monitors learn its key by the command and keyring
    /// that this returns.
    pub fn add_osd(&mut self) -> Option<(Value, Bytes)> {
        let n = self.osds.len();
        let (len, log_len) = self.osd_disk;
        let disk = disk(&mut self.world, len, log_len, n as u8 + 1);
        let node = Node::new(format!("osd.{n}"), EntityType::Osd, n as i64, addr(6800, n, 1), disk);
        let id = self.world.add(node);
        self.osds.push(id);
        let import = self.new_key(n);
        self.start(id);
        import
    }

    /// Makes a key for an OSD on a new disk, as `nacre osd format` does.
    fn new_key(&mut self, osd: usize) -> Option<(Value, Bytes)> {
        let name = osd_name(osd);
        self.keyrings.add(name.clone(), OSD_CAPS);
        let text = keyring::print([(&name, &self.keyrings.entities[&name])]);
        let import = (json!({ "prefix": "auth import" }), Bytes::from(text));
        (self.keyrings.auth == Auth::Cephx).then_some(import)
    }

    /// Stops an OSD that is out and purges it.
    pub fn purge(&mut self, osd: usize) -> Result<(), String> {
        self.stop(self.osds[osd]);
        self.purged.insert(osd);
        let purge = json!({ "prefix": "osd purge", "id": osd, "yes_i_really_mean_it": true }).to_string();
        // A new leader has to learn first that all placement groups are clean.
        for _ in 0..30 {
            let id = self.submit(0, Request::mon_command(purge.clone(), Bytes::new()));
            if self.wait(0, id).is_ok() {
                return self.wait_clean();
            }
            self.run_for(Duration::from_secs(1));
        }
        Err(format!("osd.{osd} is never safe to purge"))
    }

    /// Asks a daemon to stop, and waits until it has.
    pub fn stop(&mut self, id: NodeId) {
        self.world.stop(id);
        self.run_until("a clean stop", |c| c.world.node(id).stopped || !c.is_running(id));
        self.world.kill(id, false);
    }

    /// Harms random places on the disk of a running OSD that hold blocks of its objects. Only blocks that two
    /// other OSDs durably have as well: others could be lost with it.
    pub fn damage(&mut self, osd: usize, count: u64, harm: impl Fn(&SimDisk, u64)) {
        let World { nodes, rng, .. } = &mut self.world;
        let Node { store: Some(store), disk: Some(disk), .. } = &nodes[self.osds[osd].0] else { return };
        let read = |store: &Store, disk: &SimDisk, block: &DataBlock| {
            let extent = (block.at * BLOCK as u64, BLOCK as u64);
            store.plan_read(&block.id, &[extent]).ok()?.run(disk).ok()
        };
        let blocks = data_blocks(store);
        for _ in 0..count {
            let Some(block) = rng.pick(&blocks) else { return };
            let Some(ours) = read(store, disk, block) else { continue };
            let others = self.osds.iter().filter(|id| **id != self.osds[osd]).map(|id| &nodes[id.0]);
            let safe = others.filter(|node| match (&node.store, &node.disk) {
                (Some(store), Some(disk)) if store.durable() == store.submitted() => {
                    read(store, disk, block).as_ref() == Some(&ours)
                }
                _ => false,
            });
            if safe.count() >= 2 {
                harm(disk, block.offset + rng.below(BLOCK as u64));
            }
        }
    }

    /// Corrupts this many metadata blocks of an OSD's store while all placement groups are clean.
    pub fn corrupt_metadata(&mut self, osd: usize, count: u64) {
        let World { nodes, rng, .. } = &mut self.world;
        let Node { store: Some(store), disk: Some(disk), .. } = &nodes[self.osds[osd].0] else { return };
        self.corrupted = Some(osd);
        let blocks = metadata_blocks(store);
        for _ in 0..count {
            if let Some(block) = rng.pick(&blocks) {
                disk.corrupt(block + rng.below(BLOCK as u64));
            }
        }
    }

    /// Replaces the disk of an OSD that gave up its store, and reuses its id. False if the OSD runs on.
    pub fn replace_osd(&mut self, osd: usize) -> bool {
        let id = self.osds[osd];
        let gave_up = |c: &Cluster| {
            let store = c.world.node(id).store.as_ref();
            store.is_none_or(|store| !matches!(store.stat(&given_up()), Ok(None)))
        };
        if !self.world.node(id).stopped && self.is_running(id) {
            return false;
        }
        assert!(gave_up(self), "osd.{osd} ended without being asked to");
        self.world.kill(id, false);
        self.run_until("the monitors to notice", |c| c.osd_map().is_down(OsdId(osd as i32)));
        let destroy =
            json!({ "prefix": "osd destroy", "id": osd, "force": true, "yes_i_really_mean_it": true });
        self.command(&destroy);
        self.replace_disk(osd);
        true
    }

    /// A destroyed OSD that does not run gets an empty disk and a new key, and starts.
    pub fn replace_disk(&mut self, osd: usize) {
        let (len, log_len) = self.osd_disk;
        let disk = disk(&mut self.world, len, log_len, osd as u8 + 101);
        let id = self.osds[osd];
        self.world.node_mut(id).disk = disk;
        self.corrupted = None;
        if let Some((import, keyring)) = self.new_key(osd) {
            self.command_with(&import, keyring);
        }
        self.start(id);
    }

    /// The peak memory of an OSD since the last call.
    pub fn take_memory_peak(&mut self, osd: usize) -> usize {
        std::mem::take(&mut self.world.node_mut(self.osds[osd]).memory_peak)
    }

    /// Sets the latency of an OSD's disk to about this many milliseconds; 0: the usual one.
    pub fn slow_down(&mut self, osd: usize, millis: u64) {
        let millis = Duration::from_millis(millis);
        let latency = if millis.is_zero() { DISK_LATENCY } else { (millis / 4, millis * 2) };
        self.world.disk_latency[self.osds[osd].0] = latency;
    }

    // ---- time ----

    pub fn run_for(&mut self, time: Duration) {
        let until = self.world.now + time;
        self.world.run_to(until);
        self.collect();
    }

    pub fn run_until(&mut self, what: &str, done: impl FnMut(&Cluster) -> bool) {
        if let Err(why) = self.try_until(what, PATIENCE, done) {
            panic!("{why}");
        }
    }

    pub fn try_until(
        &mut self,
        what: &str,
        patience: Duration,
        mut done: impl FnMut(&Cluster) -> bool,
    ) -> Result<(), String> {
        let deadline = self.world.now + patience;
        while !done(self) {
            if self.world.now > deadline || !self.world.step() {
                return Err(format!("waited {} s of virtual time for {what}", patience.as_secs()));
            }
            self.collect();
        }
        Ok(())
    }

    // ---- clients ----

    pub fn submit(&mut self, client: usize, request: impl Into<Request>) -> RequestId {
        let id = self.clients[client];
        let request = request.into();
        let number = self.world.call_client(id, |client, now, out| client.submit(now, request, out));
        self.collect();
        number
    }

    fn collect(&mut self) {
        for id in self.clients.clone() {
            if let Some(Role::Client(client)) = &mut self.world.node_mut(id).role {
                for Completion { id: request, result } in client.take_completions() {
                    self.completions.insert((id, request), result);
                }
            }
        }
    }

    /// The result of a request; returned once.
    pub fn take(&mut self, client: usize, request: RequestId) -> Option<Result<Output, Failure>> {
        self.completions.remove(&(self.clients[client], request))
    }

    pub fn wait(&mut self, client: usize, request: RequestId) -> Result<Output, Failure> {
        let key = (self.clients[client], request);
        self.run_until("an answer", |c| c.completions.contains_key(&key));
        self.completions.remove(&key).expect("it was found")
    }

    pub fn command(&mut self, command: &Value) -> String {
        self.command_with(command, Bytes::new())
    }

    /// With input, as `ceph -i`.
    pub fn command_with(&mut self, command: &Value, input: Bytes) -> String {
        let id = self.submit(0, Request::mon_command(command.to_string(), input));
        match self.wait(0, id) {
            Ok(Output::Command(answer)) => String::from_utf8_lossy(&answer.output).into_owned(),
            other => panic!("{command}: {other:?}"),
        }
    }

    pub fn write(&mut self, pool: PoolId, name: &str, data: &str) {
        let data = Bytes::copy_from_slice(data.as_bytes());
        let id = self.submit(0, ObjectRequest::new(pool, name).write_full(data));
        self.wait(0, id).unwrap_or_else(|e| panic!("write of {name}: {e}"));
    }

    /// None if the object does not exist.
    pub fn read(&mut self, pool: PoolId, name: &str) -> Option<String> {
        let id = self.submit(0, ObjectRequest::new(pool, name).read(0, 0));
        match self.wait(0, id) {
            Ok(Output::Object(reply)) => Some(String::from_utf8_lossy(&reply.ops[0].data).into_owned()),
            Err(e) if e.is_not_found() => None,
            other => panic!("read of {name}: {other:?}"),
        }
    }

    /// The primary OSD of the object, by client.0's map.
    pub fn primary(&self, pool: PoolId, name: &str) -> usize {
        let map = self.osd_map();
        let object = ObjectId::head(pool, Name::default(), Name::default(), name.into());
        let pg = map.hash_to_pg(pool, object.hash).expect("the pool exists");
        map.pg_to_up_acting(pg).acting_primary.expect("an OSD serves it").index()
    }

    /// Whether the monitor says that every placement group is active+clean.
    pub fn all_clean(&mut self) -> bool {
        let status: Value =
            serde_json::from_str(&self.command(&json!({ "prefix": "status", "format": "json" })))
                .expect("the status is JSON");
        let pgmap = &status["pgmap"];
        let states = pgmap["pgs_by_state"].as_array().cloned().unwrap_or_default();
        // A scrub may have found corruption on the unreliable disk, which waits for a repair.
        let is_clean =
            |s: &&Value| s["state_name"] == "active+clean" || s["state_name"] == "active+clean+inconsistent";
        let clean = states.iter().filter(is_clean);
        let clean: u64 = clean.filter_map(|s| s["count"].as_u64()).sum();
        pgmap["num_pgs"].as_u64() == Some(clean)
            && status["osdmap"]["num_up_osds"].as_u64() == Some((self.osds.len() - self.purged.len()) as u64)
    }

    pub fn wait_clean(&mut self) -> Result<(), String> {
        let deadline = self.world.now + PATIENCE;
        while !self.all_clean() {
            if self.world.now > deadline {
                let pgs = self.command(&json!({ "prefix": "pg ls" }));
                return Err(format!("not all active+clean after {} s:\n{pgs}", PATIENCE.as_secs()));
            }
            self.run_for(Duration::from_millis(500));
        }
        Ok(())
    }

    /// Waits until every pool has its target number of placement groups, all of them clean.
    pub fn wait_merged(&mut self) -> Result<(), String> {
        let deadline = self.world.now + PATIENCE;
        loop {
            let pools = json!({ "prefix": "osd pool ls", "detail": "detail", "format": "json" });
            let pools: Value = serde_json::from_str(&self.command(&pools)).expect("pools are JSON");
            let shrinking = |pool: &&Value| pool["pg_num"].as_u64() > pool["pg_num_target"].as_u64();
            let Some(pool) = pools.as_array().into_iter().flatten().find(shrinking) else {
                return self.wait_clean();
            };
            if self.world.now > deadline {
                let pgs = self.command(&json!({ "prefix": "pg ls" }));
                return Err(format!("a pool has more placement groups than its target: {pool}\n{pgs}"));
            }
            self.run_for(Duration::from_millis(500));
        }
    }

    /// Scrubs every placement group with the command `how`, and returns those that are inconsistent.
    pub fn scrub(&mut self, how: &str) -> Result<BTreeSet<String>, String> {
        let before = self.scrubbed();
        let deadline = self.world.now + PATIENCE;
        for turn in 0_u32.. {
            if turn % 60 == 0 {
                // An OSD without a session with a monitor misses the request.
                self.command(&json!({ "prefix": how, "who": "all" }));
            }
            self.run_for(Duration::from_millis(500));
            let now = self.scrubbed();
            let done = |(pg, (stamp, state)): (&String, &(String, String))| {
                before.get(pg).is_none_or(|(old, _)| old != stamp) && !state.contains("scrubbing")
            };
            if now.iter().all(done) {
                let differ = now.into_iter().filter(|(_, (_, state))| state.contains("inconsistent"));
                return Ok(differ.map(|(pg, _)| pg).collect());
            }
            if self.world.now > deadline {
                return Err(format!(
                    "not all placement groups were scrubbed after {} s: {now:?}",
                    PATIENCE.as_secs()
                ));
            }
        }
        unreachable!("the loop has no end")
    }
    /// Of each placement group, its last deep-scrub stamp and its state.
    fn scrubbed(&mut self) -> BTreeMap<String, (String, String)> {
        let list = self.command(&json!({ "prefix": "pg ls", "format": "json" }));
        let list: Value = serde_json::from_str(&list).expect("the list is JSON");
        let text = |row: &Value, name: &str| row[name].as_str().unwrap_or_default().to_string();
        let rows = list["pg_stats"].as_array().cloned().unwrap_or_default();
        let row = |row: &Value| (text(row, "pgid"), (text(row, "last_deep_scrub_stamp"), text(row, "state")));
        rows.iter().map(row).collect()
    }

    /// All of clients' objects that an OSD stores.
    pub fn content(&self, osd: usize) -> BTreeMap<ObjectId, Content> {
        if self.purged.contains(&osd) {
            return BTreeMap::new();
        }
        let objects = self.objects(osd).into_iter();
        objects
            .map(|(shard, object)| {
                let content = self.content_of(osd, shard, &object).expect("it was listed");
                // Several shards of one object would take each other's place.
                let name = if shard.0 >= UNDO_SHARDS { undo_name(shard, &object) } else { object };
                (name, content)
            })
            .collect()
    }

    /// Names of clients' objects on a running OSD. An OSD with corrupt metadata that cannot list them serves
    /// no placement group, or the missing objects would show.
    pub fn objects(&self, osd: usize) -> Vec<(ShardId, ObjectId)> {
        let store = self.world.node(self.osds[osd]).store.as_ref().expect("a running OSD has a store");
        let mut objects = Vec::new();
        let walk = store.object_walk((ShardId::NONE, &ObjectId::min()), &mut |shard, object| {
            objects.push((shard, object.clone()));
            true
        });
        match walk {
            Err(_) if self.corrupted == Some(osd) => Vec::new(),
            walk => {
                walk.expect("a simulated store can be read");
                objects
            }
        }
    }

    /// None if the OSD does not have the object.
    pub fn content_of(&self, osd: usize, shard: ShardId, object: &ObjectId) -> Option<Content> {
        let node = self.world.node(self.osds[osd]);
        let store = node.store.as_ref().expect("a running OSD has a store");
        let disk = node.disk.as_ref().expect("an OSD has a disk");
        let id = StoredId::object(shard, object.clone());
        let size = store.stat(&id).expect("readable")?.size;
        let plan = store.plan_read(&id, &[(0, size)]).expect("readable");
        let data = plan.run(disk).map(|parts| parts.concat());
        let attrs = store.attrs(&id).expect("readable");
        let mut omap = BTreeMap::new();
        let walk = store.omap_walk(&id, b"", &mut |key, value| {
            omap.insert(key.clone(), value.clone());
            true
        });
        walk.expect("readable");
        Some(Content { shard, data, attrs, omap, header: store.omap_header(&id).expect("readable") })
    }

    fn osd_map(&self) -> Arc<OsdMap> {
        let Some(Role::Client(client)) = &self.world.node(self.clients[0]).role else { panic!("no client") };
        client.client().osd_map().expect("a client that wrote has a map").clone()
    }

    /// No OSD stores objects of a placement group that it is not a member of.
    pub fn check_strays(&self) -> Result<(), String> {
        let map = self.osd_map();
        for osd in 0..self.osds.len() {
            for object in self.content(osd).keys() {
                let pg = map.hash_to_pg(object.pool, object.hash);
                let acting = pg.map(|pg| map.pg_to_up_acting(pg).acting).unwrap_or_default();
                if !acting.contains(&OsdId(osd as i32)) {
                    return Err(format!(
                        "osd.{osd} still holds {object} of pg {pg:?}, which is on {acting:?}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Removed snapshots are trimmed.
    pub fn check_trimmed(&self) -> Result<(), String> {
        let queue = &self.osd_map().removed_snaps_queue;
        match queue.iter().find(|(_, snaps)| !snaps.is_empty()) {
            Some((pool, snaps)) => Err(format!("pool {pool} still has snapshots to remove: {snaps:?}")),
            None => Ok(()),
        }
    }

    /// All members of each placement group store the same. Only on the unreliable OSD may data be unreadable.
    pub fn check_replicas(&self, unreliable: Option<usize>) -> Result<(), String> {
        let map = self.osd_map();
        let mut all: Vec<_> = (0..self.osds.len()).map(|osd| self.content(osd)).collect();
        for (osd, objects) in all.iter().enumerate().filter(|(osd, _)| Some(*osd) != unreliable) {
            for (object, content) in objects {
                if let Err(error) = &content.data {
                    return Err(format!("osd.{osd} lost some of {object}: {error}"));
                }
            }
        }
        if let Some(unreliable) = unreliable {
            // A replica with unreadable blocks that no scrub has read yet counts as having the others' data.
            let (before, rest) = all.split_at_mut(unreliable);
            let (here, after) = rest.split_first_mut().expect("the unreliable OSD exists");
            for (object, content) in here.iter_mut().filter(|(_, content)| content.data.is_err()) {
                let mut others = before.iter().chain(&*after).filter_map(|osd| osd.get(object));
                if let Some(other) = others.next() {
                    content.data.clone_from(&other.data);
                }
            }
        }
        for pool in map.pool_ids().filter(|pool| map.pool(*pool).is_some_and(Pool::is_erasure)) {
            self.check_shards(&map, pool, &all)?;
        }
        for pool in map.pool_ids().filter(|pool| map.pool(*pool).is_some_and(|pool| !pool.is_erasure())) {
            let mut expected: BTreeMap<PgId, (usize, BTreeMap<&ObjectId, &Content>)> = BTreeMap::new();
            for pg in map.pgs(pool) {
                for osd in map.pg_to_up_acting(pg).acting.iter().map(|osd| osd.index()) {
                    let in_pg = |o: &&ObjectId| o.pool == pool && map.hash_to_pg(pool, o.hash) == Some(pg);
                    let here: BTreeMap<_, _> = all[osd].iter().filter(|(object, _)| in_pg(object)).collect();
                    let (first, reference) = expected.entry(pg).or_insert_with(|| (osd, here.clone()));
                    if *reference != here {
                        let differing =
                            reference.keys().chain(here.keys()).find(|o| reference.get(**o) != here.get(**o));
                        let object = differing.expect("they differ in one object at least");
                        return Err(format!(
                            "pg {pg}: {object} differs: osd.{first} has {:?}, osd.{osd} {:?}",
                            reference.get(*object),
                            here.get(*object)
                        ));
                    }
                }
            }
        }
        self.check_stores()
    }

    /// Members of an erasure-coded pool have the shards of their places and the same metadata, parity is that
    /// of the data, and nothing is kept for undoing writes.
    fn check_shards(
        &self,
        map: &OsdMap,
        pool: PoolId,
        all: &[BTreeMap<ObjectId, Content>],
    ) -> Result<(), String> {
        let name = &map.pool(pool).expect("it is one of them").erasure_code_profile;
        let mut settings = Settings(map.erasure_code_profiles[name].clone());
        let profile = Profile::new(&mut settings).map_err(|error| error.text)?;
        let code = profile.code();
        for pg in map.pgs(pool) {
            let acting = map.pg_to_up_acting(pg).acting;
            let in_pg = |o: &&ObjectId| o.pool == pool && map.hash_to_pg(pool, o.hash) == Some(pg);
            let osds = || acting.iter().filter(|osd| osd.is_some()).map(|osd| osd.index());
            let names: BTreeSet<&ObjectId> = osds().flat_map(|osd| all[osd].keys().filter(in_pg)).collect();
            for object in names {
                let wrong = |why: &str| Err(format!("pg {pg} on {acting:?}: {object}: {why}"));
                let of = |osd: usize| all[osd].get(object);
                let Some(contents) = osds().map(of).collect::<Option<Vec<&Content>>>() else {
                    return wrong("a member does not have it");
                };
                let (first, size) = (contents[0], contents[0].data.as_ref().map_or(0, Vec::len));
                let is_at_place = |(at, content): (usize, &&Content)| content.shard.0 as usize == at;
                if contents.len() != code.shards() || !contents.iter().enumerate().all(is_at_place) {
                    return wrong("a shard is missing, or at another's place");
                }
                if contents.iter().any(|c| (&c.attrs, &c.omap) != (&first.attrs, &first.omap)) {
                    return wrong("its metadata differs");
                }
                let data: Option<Vec<&[u8]>> = (0..code.data_shards())
                    .map(|part| contents[code.data_shard(part)].data.as_deref().ok())
                    .collect();
                let Some(data) = data.filter(|data| data.iter().all(|shard| shard.len() == size)) else {
                    return wrong("its shards differ in size, or cannot be read");
                };
                for shard in code.parities() {
                    let mut parity = vec![0; size];
                    code.encode(&data, shard, &mut parity);
                    if contents[shard].data.as_deref() != Ok(&parity[..]) {
                        return wrong(&format!("shard {shard} is not the parity of its data"));
                    }
                }
            }
        }
        Ok(())
    }

    /// Each store passes its own consistency check.
    pub fn check_stores(&self) -> Result<(), String> {
        let is_sound = |osd: &usize| !self.purged.contains(osd) && self.corrupted != Some(*osd);
        for (osd, id) in self.osds.iter().enumerate().filter(|(osd, _)| is_sound(osd)) {
            let faults = self.world.node(*id).store.as_ref().expect("it runs").check();
            if !faults.is_empty() {
                return Err(format!("the store of osd.{osd}: {}", faults.join("; ")));
            }
        }
        Ok(())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    pub shard: ShardId,
    pub data: Result<Vec<u8>, ReadError>,
    pub attrs: BTreeMap<Name, Bytes>,
    pub omap: BTreeMap<Name, Bytes>,
    pub header: Bytes,
}

/// Copies for undoing writes have shard numbers from here on.
const UNDO_SHARDS: i8 = 64;

/// A name that no object has: such a copy is no shard of the placement group.
fn undo_name(shard: ShardId, object: &ObjectId) -> ObjectId {
    ObjectId { name: format!("undo {} {object}", shard.0).as_str().into(), ..object.clone() }
}

fn disk(world: &mut World, len: u64, log_len: Option<u64>, n: u8) -> Option<Arc<SimDisk>> {
    let disk = SimDisk::new(len, world.rng.next_u64());
    let options = Options { uuid: [n; 16], log_len, ..Options::default() };
    Store::format(&disk, options).expect("an empty disk is formatted");
    Some(Arc::new(disk))
}

pub fn mon_name(n: usize) -> String {
    char::from(b'a' + n as u8).to_string()
}

fn options(osds: usize, per_host: usize, ticket_ttl: u64) -> BTreeMap<String, String> {
    let size = osds.min(3);
    // One copy per host if there are enough hosts.
    let failure_domain = u32::from(osds.div_ceil(per_host) >= size);
    [
        ("osd_crush_chooseleaf_type", failure_domain.to_string()),
        ("mgr/balancer/sleep_interval", "1".to_string()),
        ("osd_pool_default_size", size.to_string()),
        ("osd_pool_default_min_size", (size - size / 2).to_string()),
    ]
    .into_iter()
    .chain((ticket_ttl > 0).then(|| ("auth_service_ticket_ttl", ticket_ttl.to_string())))
    .chain((ticket_ttl > 0).then(|| ("auth_mon_ticket_ttl", SESSION_TTL.to_string())))
    .map(|(name, value)| (name.to_string(), value))
    .collect()
}

/// The keys that administrators keep in files.
struct Keyrings {
    auth: Auth,
    /// Shared by all monitors.
    mon: Secret,
    entities: BTreeMap<AuthName, Entity>,
    /// The entities that a new cluster begins with.
    initial_entities: BTreeMap<AuthName, Entity>,
    entropy: Entropy,
}

impl Keyrings {
    fn new(seed: Seed, auth: Auth) -> Keyrings {
        let mut entropy = Entropy::repeatable(seed.0);
        let mon = Secret::generate(KeyType::Aes, Utime::ZERO, &mut entropy);
        Keyrings { auth, mon, entities: BTreeMap::new(), initial_entities: BTreeMap::new(), entropy }
    }
    fn add(&mut self, name: AuthName, caps: &[(&str, &str)]) {
        let key = Secret::generate(KeyType::Aes, Utime::ZERO, &mut self.entropy);
        let caps = caps.iter().map(|(service, caps)| (service.to_string(), caps.to_string())).collect();
        self.entities.insert(name, Entity { key, caps });
    }
    fn key(&self, name: &AuthName) -> Option<Secret> {
        self.entities.get(name).filter(|_| self.auth == Auth::Cephx).map(|entity| entity.key.clone())
    }
}

/// Seconds for which the session ticket with the monitors is valid. A client whose session ticket expires
/// while it reaches no monitor gets another global id, and its writes in flight may be executed twice: longer
/// than any partition.
const SESSION_TTL: u64 = 120;
const OSD_CAPS: &[(&str, &str)] =
    &[("mgr", "allow profile osd"), ("mon", "allow profile osd"), ("osd", "allow *")];

fn osd_name(osd: usize) -> AuthName {
    AuthName::new(EntityType::Osd, osd.to_string())
}

/// The first client is the administrator, the second may read and write objects, the others may only read
/// them.
fn client_name(n: usize) -> AuthName {
    AuthName::new(EntityType::Client, ["admin", "user", "reader"][n.min(2)])
}
fn client_caps(n: usize) -> &'static [(&'static str, &'static str)] {
    match n {
        0 => &[("mon", "allow *"), ("mgr", "allow *"), ("osd", "allow *")],
        1 => &[("mon", "allow r"), ("osd", "allow rwx")],
        _ => &[("mon", "allow r"), ("osd", "allow r")],
    }
}
