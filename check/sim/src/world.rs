//! The queue of future events, and the execution of what machines want: the simulator's counterpart of
//! `shell/node`. `sessions` has what concerns sessions, `faults` what breaks.

mod faults;
mod sessions;

use crate::identity::Identity;
use crate::memory;
use crate::network::{Network, NodeId, SessionId};
use crate::node::{Node, Role};
use crate::schedule::Scheduled;
use crate::trace::Trace;
use nacre_base::{Now, Rng, Time, Utime};
use nacre_machine::{Closed, Effect, Event, NoStore, StoreView};
use nacre_proto::types::Network as Net;
use nacre_store::{Disk, Store};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

/// Wall-clock time at the start of each run; any would do.
const EPOCH: u32 = 1_800_000_000;
/// Latency of a healthy disk.
pub const DISK_LATENCY: (Duration, Duration) = (Duration::from_micros(80), Duration::from_micros(600));
/// So little that caches are always full, and in some incarnations hold nothing but changes.
const STORE_MEMORY: [usize; 4] = [256 << 10, 64 << 10, 256 << 10, 8 << 10];
const DIAL_TIMEOUT: Duration = Duration::from_secs(3);
/// Interval between checks of tickets.
const SWEEP: Duration = Duration::from_secs(1);

pub struct World {
    pub now: Time,
    /// (when, in which order) -> (node, its incarnation, what)
    queue: BTreeMap<(Time, u64), (NodeId, u64, Scheduled)>,
    sequence: u64,
    pub nodes: Vec<Node>,
    pub network: Network,
    pub rng: Rng,
    pub trace: Trace,
    /// Latency of each node's disk.
    pub disk_latency: Vec<(Duration, Duration)>,
    /// Whether bytes travel, through the messengers of both ends, instead of messages.
    pub frames: bool,
    /// Sides of sessions whose messenger may have something to send.
    unsent: BTreeSet<(SessionId, usize)>,
}

impl World {
    pub fn new(seed: u64, print: bool) -> World {
        memory::reset();
        let mut rng = Rng::new(seed);
        World {
            now: Time::from_nanos(1_000_000_000),
            queue: BTreeMap::new(),
            sequence: 0,
            nodes: Vec::new(),
            network: Network::new(rng.fork()),
            rng,
            trace: Trace::new(print),
            disk_latency: Vec::new(),
            frames: false,
            unsent: BTreeSet::new(),
        }
    }

    /// A node's clocks.
    fn clock(&self, id: NodeId) -> Now {
        let wall = self.now + self.node(id).wall_ahead;
        let (sec, nsec) = (wall.nanos / 1_000_000_000, wall.nanos % 1_000_000_000);
        Now { mono: self.now, wall: Utime { sec: EPOCH + sec as u32, nsec: nsec as u32 } }
    }

    pub fn add(&mut self, node: Node) -> NodeId {
        self.nodes.push(node);
        self.disk_latency.push(DISK_LATENCY);
        NodeId(self.nodes.len() - 1)
    }
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0]
    }
    pub fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id.0]
    }

    fn at(&mut self, when: Time, node: NodeId, what: Scheduled) {
        let incarnation = self.node(node).incarnation;
        self.at_incarnation(when, node, incarnation, what);
    }
    fn at_incarnation(&mut self, when: Time, node: NodeId, incarnation: u64, what: Scheduled) {
        self.sequence += 1;
        self.queue.insert((when, self.sequence), (node, incarnation, what));
    }

    /// When the next event is due.
    pub fn next(&self) -> Option<Time> {
        self.queue.first_key_value().map(|((when, _), _)| *when)
    }

    /// Processes what is due next. False if nothing is.
    pub fn step(&mut self) -> bool {
        let Some(((when, _), (node, incarnation, what))) = self.queue.pop_first() else { return false };
        self.now = self.now.max(when);
        if self.node(node).incarnation != incarnation || !self.node(node).is_running() {
            self.undeliverable(node, what);
        } else if self.node(node).paused {
            self.node_mut(node).deferred.push(what);
        } else {
            self.dispatch(node, what);
        }
        true
    }

    /// Processes everything that is due until then.
    pub fn run_to(&mut self, until: Time) {
        while self.next().is_some_and(|next| next <= until) {
            self.step();
        }
        self.now = self.now.max(until);
    }

    /// Starts a node's machine on what its disk holds.
    pub fn start(&mut self, id: NodeId, role: Role, identity: Identity) {
        let node = self.node_mut(id);
        assert!(!node.is_running(), "{} runs already", node.name);
        if let Some(disk) = &node.disk {
            let _charge = memory::charge_to(id.0);
            let opened = Store::open_paged(disk.clone());
            let (mut store, _) = opened.unwrap_or_else(|e| panic!("{}: {e}", node.name));
            let little = STORE_MEMORY[(id.0 + node.incarnation as usize) % STORE_MEMORY.len()];
            store.limit_memory(node.store_memory.unwrap_or(little));
            node.store = Some(store);
        }
        node.incarnation += 1;
        node.powered_off = false;
        node.role = Some(role);
        let sweeps = identity.uses_cephx();
        node.identity = Some(identity);
        if sweeps {
            self.at(self.now + SWEEP, id, Scheduled::Sweep);
        }
        self.note(id, "starts", 0);
        self.dispatch(id, Scheduled::Event(Event::Start));
    }

    // ---- events ----

    /// A line of the printed trace.
    pub fn comment(&self, text: &str) {
        self.trace.comment(self.now, "script", text);
    }

    fn note(&mut self, id: NodeId, what: &str, detail: u64) {
        let name = &self.nodes[id.0].name;
        self.trace.note(self.now, name, what, detail);
    }

    /// Something is due at a node that does not run, or at an earlier incarnation.
    fn undeliverable(&mut self, node: NodeId, what: Scheduled) {
        if let Scheduled::Dialled(dial) = what {
            let (delay, why) = match self.node(node).powered_off {
                true => (DIAL_TIMEOUT, Closed::TimedOut),
                false => (self.network.latency(), Closed::Refused),
            };
            self.refuse(&dial, self.now + delay, why);
        }
    }

    fn dispatch(&mut self, id: NodeId, what: Scheduled) {
        match what {
            Scheduled::Event(Event::Opened { conn, .. }) if self.is_hung_up(id, conn) => {}
            Scheduled::Event(event) => self.node_mut(id).events.push_back(event),
            Scheduled::Timer(timer) => {
                // It was disarmed or armed again meanwhile.
                if self.node(id).timers.get(&timer).is_none_or(|when| *when > self.now) {
                    return;
                }
                self.node_mut(id).timers.remove(&timer);
                self.node_mut(id).events.push_back(Event::Timer(timer));
            }
            Scheduled::DiskDone => {
                let node = self.node_mut(id);
                let (Some(disk), Some(batch)) = (&node.disk, node.committing.take()) else { return };
                let done = batch.commit(disk).expect("a simulated disk with power works");
                let _charge = memory::charge_to(id.0);
                let durable = node.store.as_mut().expect("it has a disk").finished(done);
                let mut last = None;
                while let Some((_, token)) = node.waiting.pop_front_if(|(ticket, _)| *ticket <= durable) {
                    last = Some(token);
                }
                node.events.extend(last.map(Event::Stored));
            }
            Scheduled::DeferredDone => {
                let node = self.node_mut(id);
                let (Some(disk), Some(placing)) = (&node.disk, node.placing.take()) else { return };
                let placed = placing.run(disk).expect("a simulated disk with power works");
                let _charge = memory::charge_to(id.0);
                node.store.as_mut().expect("it has a disk").deferred_done(placed);
            }
            Scheduled::ReadDone(token, plan) => {
                let node = self.node_mut(id);
                let disk = node.disk.as_ref().expect("it has a disk");
                let _charge = memory::charge_to(id.0);
                let read = plan.run_fetching(|reads| disk.read_many(reads));
                let store = node.store.as_mut().expect("it has a disk");
                let result = read.map(|(extents, fetched)| {
                    store.keep(fetched);
                    extents
                });
                node.events.push_back(Event::ReadDone { token, result });
            }
            Scheduled::Dialled(dial) => self.on_dialled(id, dial),
            Scheduled::Connected(session) => self.flush(session, 0),
            Scheduled::Arrive(session, side) => self.on_arrival(id, session, side),
            Scheduled::Closed(session, side, why) => self.on_closed(id, session, side, why),
            Scheduled::HandshakeDeadline(session, side) => self.on_deadline(session, side),
            Scheduled::Sweep => self.sweep(id),
        }
        self.turn(id);
    }

    /// Runs a node's machine until it has handled all events.
    pub fn turn(&mut self, id: NodeId) {
        let Some(mut role) = self.node_mut(id).role.take() else { return };
        let mut effects = Vec::new();
        loop {
            let node = self.node_mut(id);
            let Some(event) = node.loops.pop_front().map(Event::Loop).or_else(|| node.events.pop_front())
            else {
                break;
            };
            self.note_event(id, &event);
            let now = self.clock(id);
            let view: &dyn StoreView = match &self.nodes[id.0].store {
                Some(store) => store,
                None => &NoStore,
            };
            let charge = memory::charge_to(id.0);
            role.handle(now, event, view, &mut effects);
            drop(charge);
            for effect in effects.drain(..) {
                self.carry_out(id, effect);
                if self.node(id).failure.is_some() {
                    break;
                }
            }
            if self.node(id).failure.is_some() {
                break;
            }
        }
        self.node_mut(id).role = Some(role);
        if self.node(id).failure.is_some() {
            self.unsent.clear();
            return self.kill(id, false);
        }
        for (session, side) in std::mem::take(&mut self.unsent) {
            self.flush(session, side);
        }
        self.node(id).sums.forget();
        self.commit(id);
        self.check_memory(id);
    }

    fn check_memory(&mut self, id: NodeId) {
        let node = self.node_mut(id);
        let used = memory::of(id.0);
        node.memory_peak = node.memory_peak.max(used);
        let Some(max) = node.memory_max.filter(|max| used > *max) else { return };
        let of_store = node.store.as_ref().map(Store::memory);
        panic!("{} uses {used} bytes of memory, limit {max}: {of_store:?}", node.name);
    }

    fn note_event(&mut self, id: NodeId, event: &Event) {
        let (what, detail) = match event {
            Event::Start => ("start".into(), 0),
            Event::Opened { conn, peer } => (format!("{conn} opened with {}.{}", peer.kind, peer.num), 0),
            Event::Closed { conn, why } => (format!("{conn} closed: {why}"), 0),
            Event::Message { conn, tid, message } => {
                let detail = if self.trace.print { format!(" {message:?}") } else { String::new() };
                let mut line = format!("{conn} {} {tid}{detail}", message.name());
                line.truncate(line.floor_char_boundary(400));
                (line, *tid)
            }
            Event::Stored(token) => ("stored".into(), *token),
            Event::ReadDone { token, .. } => ("read done".into(), *token),
            Event::Datagram { from, .. } => ("datagram".into(), u64::from(from.port())),
            Event::Timer(timer) => (format!("timer {timer}"), *timer),
            Event::Loop(n) => ("loop".into(), *n),
            Event::IdsLow => ("ids low".into(), 0),
            Event::Stop => ("stop".into(), 0),
        };
        // The hash is the same whether or not details are printed.
        let hashed = match event {
            Event::Message { conn, message, .. } => format!("{conn} {}", message.name()),
            _ => what.clone(),
        };
        let print = std::mem::replace(&mut self.trace.print, false);
        self.note(id, &hashed, detail);
        self.trace.print = print;
        self.trace.comment(self.now, &self.nodes[id.0].name, &what);
    }

    fn carry_out(&mut self, id: NodeId, effect: Effect) {
        match effect {
            Effect::Dial { conn, to, kind } => self.dial(id, conn, to, kind),
            Effect::Send { conn, tid, message } => self.send(id, conn, tid, message),
            Effect::Hangup { conn } => self.hang_up(id, conn),
            Effect::Datagram { network, to, bytes } => {
                let from = self.node(id).addr_on(network).sock;
                let (Some((target, on)), Some(from)) = (self.listener(Some(to)), from) else { return };
                if self.network.is_partitioned(id, target, on) || self.network.is_lost() {
                    return;
                }
                let when = self.now + self.network.latency();
                self.at(when, target, Scheduled::Event(Event::Datagram { network: on, from, bytes }));
            }
            Effect::Store { token, txn } => {
                let node = self.node_mut(id);
                let charge = memory::charge_to(id.0);
                let store = node.store.as_mut().expect("a machine that stores is given a store");
                let ticket = store.submit(txn).unwrap_or_else(|e| panic!("{}: {e}", node.name));
                drop(charge);
                node.waiting.push_back((ticket, token));
            }
            Effect::Read { token, id: object, extents, device } => {
                let store = self.node(id).store.as_ref().expect("a machine that reads is given a store");
                let plan = if device { Store::plan_device_read } else { Store::plan_read };
                match plan(store, &object, &extents) {
                    Ok(plan) => {
                        let (low, high) = self.disk_latency[id.0];
                        let when = self.now + self.rng.duration(low, high);
                        self.at(when, id, Scheduled::ReadDone(token, plan));
                    }
                    Err(error) => {
                        let event = Event::ReadDone { token, result: Err(error) };
                        self.node_mut(id).events.push_back(event);
                    }
                }
            }
            Effect::Arm { timer, after } => {
                let when = self.now + after;
                self.node_mut(id).timers.insert(timer, when);
                self.at(when, id, Scheduled::Timer(timer));
            }
            Effect::Disarm { timer } => drop(self.node_mut(id).timers.remove(&timer)),
            Effect::Loop(n) => self.node_mut(id).loops.push_back(n),
            Effect::GrantIds(range) => {
                self.node(id).ids.grant(range);
                self.decide(id);
            }
            Effect::Keys(keys) => {
                self.node(id).identity.as_ref().expect("a running node has one").put_keys(keys);
                self.decide(id);
            }
            Effect::Log { text, .. } => self.trace.comment(self.now, &self.nodes[id.0].name, &text),
            Effect::Stopped => self.node_mut(id).stopped = true,
            Effect::Fail { reason } => {
                self.trace.comment(self.now, &self.nodes[id.0].name, &reason);
                self.node_mut(id).failure = Some(reason);
            }
        }
    }

    /// The node that listens there, and on which network.
    fn listener(&self, sock: Option<SocketAddr>) -> Option<(NodeId, Net)> {
        let mut nodes = self.nodes.iter().enumerate();
        nodes.find_map(|(n, node)| Some((NodeId(n), node.listens_on(sock)?)))
    }

    /// Hands submitted transactions to the disk, unless it is busy.
    fn commit(&mut self, id: NodeId) {
        let (low, high) = self.disk_latency[id.0];
        let _charge = memory::charge_to(id.0);
        let node = self.node_mut(id);
        let Some(store) = &mut node.store else { return };
        if node.placing.is_none()
            && let Some(placing) = store.take_deferred()
        {
            node.placing = Some(placing);
            let when = self.now + self.rng.duration(low, high);
            self.at(when, id, Scheduled::DeferredDone);
        }
        let node = self.node_mut(id);
        let Some(store) = node.store.as_mut().filter(|_| node.committing.is_none()) else { return };
        if let Some(batch) = store.take_batch() {
            node.committing = Some(batch);
            let when = self.now + self.rng.duration(low, high);
            self.at(when, id, Scheduled::DiskDone);
        }
    }

    /// Calls a client machine directly.
    pub fn call_client<R>(
        &mut self,
        id: NodeId,
        call: impl FnOnce(&mut nacre_client::Standalone, Now, &mut Vec<Effect>) -> R,
    ) -> R {
        let Some(Role::Client(mut client)) = self.node_mut(id).role.take() else {
            panic!("{} is no running client", self.node(id).name);
        };
        let mut effects = Vec::new();
        let result = call(&mut client, self.clock(id), &mut effects);
        self.node_mut(id).role = Some(Role::Client(client));
        for effect in effects {
            self.carry_out(id, effect);
        }
        self.turn(id);
        result
    }
}
