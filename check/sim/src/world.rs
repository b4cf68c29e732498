//! The queue of what will happen, and the carrying out of what machines want: the simulator's
//! counterpart of `shell/node`.

use crate::memory;
use crate::network::{End, Network, NodeId, SessionId};
use crate::node::{Node, Role};
use crate::schedule::Scheduled;
use crate::trace::Trace;
use bytes::Bytes;
use nacre_base::{Now, Rng, Time, Utime};
use nacre_machine::{Closed, ConnId, Effect, Event, NoStore, Peer, StoreView};
use nacre_proto::messages::{Envelope, RawMessage};
use nacre_proto::types::{AddrVec, EntityAddr, EntityType, Network as Net};
use nacre_store::{Disk, Store};
use nacre_wire::crc32c;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

/// Wall-clock time at the start of each run; any would do.
const EPOCH: u32 = 1_800_000_000;
/// Of a disk that is well.
pub const DISK_LATENCY: (Duration, Duration) = (Duration::from_micros(80), Duration::from_micros(600));
/// So little that caches are full all the time, and in some lives nothing stays in memory that did not change.
const STORE_MEMORY: [usize; 4] = [256 << 10, 64 << 10, 256 << 10, 8 << 10];
const DIAL_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a session survives a partition.
const HELD_MAX: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(15));

pub struct World {
    pub now: Time,
    /// (when, in which order) -> (at whom, in which of its lives, what)
    queue: BTreeMap<(Time, u64), (NodeId, u64, Scheduled)>,
    sequence: u64,
    pub nodes: Vec<Node>,
    pub network: Network,
    pub rng: Rng,
    pub trace: Trace,
    /// Disk latency of each node, so that some are slow.
    pub disk_latency: Vec<(Duration, Duration)>,
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
        }
    }

    /// What a node's clocks show.
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

    /// When something is due next.
    pub fn next(&self) -> Option<Time> {
        self.queue.first_key_value().map(|((when, _), _)| *when)
    }

    /// Lets the next thing happen. False if nothing is left that could.
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

    /// Lets time pass until `until`, however much happens.
    pub fn run_to(&mut self, until: Time) {
        while self.next().is_some_and(|next| next <= until) {
            self.step();
        }
        self.now = self.now.max(until);
    }

    // ---- life and death ----

    /// Starts a node's machine on what its disk holds.
    pub fn start(&mut self, id: NodeId, role: Role) {
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
        self.note(id, "starts", 0);
        self.dispatch(id, Scheduled::Event(Event::Start));
    }

    /// Ends a process at once. What it handed to the disk stays there; with `power`, what was not
    /// flushed may be lost as well, also parts of it, and peers hear nothing.
    pub fn kill(&mut self, id: NodeId, power: bool) {
        if !self.node(id).is_running() {
            return;
        }
        self.note(id, if power { "loses power" } else { "is killed" }, 0);
        let cut_at = self.rng.below(8);
        let in_part = self.rng.chance(500);
        let node = self.node_mut(id);
        if let Some(disk) = node.disk.as_ref().filter(|_| power) {
            disk.lose_power_after(cut_at);
        }
        if let Some(disk) = node.disk.as_ref().filter(|_| power || in_part) {
            // With the power goes whatever they had not done.
            let placed = node.placing.take().map(|placing| placing.run(disk).is_ok());
            let committed = node.committing.take().map(|batch| batch.commit(disk).is_ok());
            assert!(power || ![placed, committed].contains(&Some(false)), "a disk with power works");
        }
        if let Some(disk) = node.disk.as_ref().filter(|_| power) {
            disk.crash();
        }
        let deferred = std::mem::take(&mut node.deferred);
        node.forget();
        node.powered_off = power;
        // Target dialled it while it stood still hears of that.
        deferred.into_iter().for_each(|what| self.undeliverable(id, what));
        for session in self.network.of_node(id) {
            self.lose(session, id, power);
        }
    }

    /// A node that is gone takes its side of a session with it.
    fn lose(&mut self, session: SessionId, gone: NodeId, silently: bool) {
        let Some(found) = self.network.sessions.get_mut(&session) else { return };
        let mut others = Vec::new();
        for (side, end) in found.ends.iter_mut().enumerate() {
            if end.node == gone {
                end.open = false;
            } else if end.open {
                others.push((side, *end));
            }
        }
        found.flying = Default::default();
        for (side, end) in others {
            // A host without power sends no reset: the peer's probes find out.
            let delay =
                if silently { self.rng.duration(HELD_MAX.0, HELD_MAX.1) } else { self.network.latency() };
            let when = self.now + delay;
            self.at_incarnation(
                when,
                end.node,
                end.incarnation,
                Scheduled::Closed(session, side, Closed::Reset),
            );
        }
        self.network.forget_closed(session);
    }

    /// One side of the sessions that `a` dialled is lost, and `a` hears nothing of it: as when a
    /// firewall between them forgets its state.
    pub fn half_open(&mut self, a: NodeId, b: NodeId) {
        for session in self.network.of_node(a) {
            let ends = &mut self.network.sessions.get_mut(&session).expect("it is one of them").ends;
            if ends[0].node == a && ends[1].node == b && std::mem::replace(&mut ends[1].open, false) {
                let conn = ends[1].conn;
                self.at(self.now, b, Scheduled::Event(Event::Closed { conn, why: Closed::Reset }));
            }
        }
    }

    /// Asks a daemon to stop cleanly.
    pub fn stop(&mut self, id: NodeId) {
        if self.node(id).is_running() {
            self.at(self.now, id, Scheduled::Event(Event::Stop));
        }
    }

    pub fn pause(&mut self, id: NodeId) {
        self.note(id, "is paused", 0);
        self.node_mut(id).paused = true;
    }
    pub fn resume(&mut self, id: NodeId) {
        self.note(id, "goes on", 0);
        self.node_mut(id).paused = false;
        for what in std::mem::take(&mut self.node_mut(id).deferred) {
            self.at(self.now, id, what);
        }
    }

    pub fn partition(&mut self, a: NodeId, b: NodeId) {
        self.partition_one_way(a, b);
        self.partition_one_way(b, a);
    }
    /// What `a` sends does not reach `b` any more.
    pub fn partition_one_way(&mut self, a: NodeId, b: NodeId) {
        self.partition_on(a, b, Net::Public);
        self.partition_on(a, b, Net::Cluster);
    }
    /// Nothing passes between `a` and others on one network any more.
    pub fn isolate(&mut self, a: NodeId, others: &[NodeId], on: Net) {
        for &b in others.iter().filter(|b| **b != a) {
            self.partition_on(a, b, on);
            self.partition_on(b, a, on);
        }
    }
    fn partition_on(&mut self, a: NodeId, b: NodeId, on: Net) {
        self.note(a, &format!("is not heard any more on the {on} by"), b.0 as u64);
        for session in self.network.partition(a, b, on) {
            let ends = self.network.sessions[&session].ends;
            for (side, end) in ends.into_iter().enumerate() {
                let when = self.now + self.rng.duration(HELD_MAX.0, HELD_MAX.1);
                // Told only if the partition still stands then (see `happen`).
                let what = Scheduled::Closed(session, side, Closed::TimedOut);
                self.at_incarnation(when, end.node, end.incarnation, what);
            }
        }
    }
    /// A firewall between them, say, that resets sessions and refuses new ones.
    pub fn reject(&mut self, a: NodeId, b: NodeId) {
        self.note(a, "is refused in the name of", b.0 as u64);
        for session in self.network.reject(a, b) {
            let ends = self.network.sessions[&session].ends;
            for (side, end) in ends.into_iter().enumerate() {
                let when = self.now + self.network.latency();
                self.at_incarnation(
                    when,
                    end.node,
                    end.incarnation,
                    Scheduled::Closed(session, side, Closed::Reset),
                );
            }
        }
    }
    pub fn heal_all(&mut self) {
        self.network.reject_nothing();
        for (a, b, on) in self.network.partitions() {
            self.heal_one_way(a, b, on);
        }
    }
    pub fn heal(&mut self, a: NodeId, b: NodeId) {
        for on in [Net::Public, Net::Cluster] {
            self.heal_one_way(a, b, on);
            self.heal_one_way(b, a, on);
        }
    }
    fn heal_one_way(&mut self, a: NodeId, b: NodeId, on: Net) {
        self.note(a, &format!("is heard again on the {on} by"), b.0 as u64);
        for session in self.network.heal(a, b, on) {
            let ends = self.network.sessions[&session].ends;
            for (side, end) in ends.into_iter().enumerate().filter(|(_, end)| end.open) {
                if !ends[1 - side].open {
                    // The next probe of one side finds that the other has forgotten the session.
                    let when = self.now + self.rng.duration(HELD_MAX.0, HELD_MAX.1);
                    self.at_incarnation(
                        when,
                        end.node,
                        end.incarnation,
                        Scheduled::Closed(session, side, Closed::Reset),
                    );
                }
            }
            for side in 0..2 {
                let found = self.network.sessions.get_mut(&session).expect("it is one of them");
                let held = std::mem::take(&mut found.held[side]);
                let to = found.ends[1 - side];
                for _ in 0..held {
                    let when = self.network.arrival(session, side, self.now);
                    self.at_incarnation(when, to.node, to.incarnation, Scheduled::Arrive(session, side));
                }
            }
        }
    }

    // ---- what happens ----

    /// For the reader of a trace.
    pub fn comment(&self, text: &str) {
        self.trace.comment(self.now, "script", text);
    }

    fn note(&mut self, id: NodeId, what: &str, detail: u64) {
        let name = &self.nodes[id.0].name;
        self.trace.note(self.now, name, what, detail);
    }

    /// Something is due at a node that does not run, or at an earlier life of it.
    fn undeliverable(&mut self, node: NodeId, what: Scheduled) {
        if let Scheduled::Dialled { from, incarnation, conn, .. } = what {
            let (delay, why) = match self.node(node).powered_off {
                true => (DIAL_TIMEOUT, Closed::TimedOut),
                false => (self.network.latency(), Closed::Refused),
            };
            self.at_incarnation(
                self.now + delay,
                from,
                incarnation,
                Scheduled::Event(Event::Closed { conn, why }),
            );
        }
    }

    fn dispatch(&mut self, id: NodeId, what: Scheduled) {
        match what {
            Scheduled::Event(Event::Opened { conn, .. }) if self.is_hung_up(id, conn) => {}
            Scheduled::Event(event) => self.node_mut(id).events.push_back(event),
            Scheduled::Timer(timer) => {
                // Armed again meanwhile, or disarmed: not this one.
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
            Scheduled::Dialled { from, incarnation, conn, to, kind } => {
                self.dialled(id, from, incarnation, conn, to, kind)
            }
            Scheduled::Arrive(session, side) => {
                let Some(found) = self.network.sessions.get(&session) else { return };
                let (from, to) = (found.ends[side], found.ends[1 - side]);
                let partitioned = self.network.is_partitioned(from.node, to.node, found.on);
                let found = self.network.sessions.get_mut(&session).expect("it was just there");
                if partitioned {
                    found.held[side] += 1;
                    return;
                }
                let Some(raw) = found.flying[side].pop_front() else { return };
                if !to.open {
                    return;
                }
                let Envelope { tid, body } = received(id, raw);
                self.node_mut(id).events.push_back(Event::Message { conn: to.conn, tid, message: body });
            }
            Scheduled::Closed(session, side, why) => {
                let Some(found) = self.network.sessions.get(&session) else { return };
                let [a, b] = found.ends;
                let stuck = self.network.is_stuck(a.node, b.node, found.on);
                let on = found.on;
                let other = found.ends[1 - side].node;
                if why == Closed::TimedOut && !stuck {
                    return; // the partition was over in time
                }
                if why == Closed::Reset && self.network.is_partitioned(other, id, on) {
                    // The news does not get through yet.
                    let when = self.now + Duration::from_millis(500);
                    return self.at(when, id, Scheduled::Closed(session, side, why));
                }
                let found = self.network.sessions.get_mut(&session).expect("it was just there");
                let end = &mut found.ends[side];
                if !end.open {
                    return;
                }
                end.open = false;
                let conn = end.conn;
                self.node_mut(id).events.push_back(Event::Closed { conn, why: Closed::Reset });
                if !stuck {
                    // The other side does not go on with a session that is over.
                    self.hung_up(session, side);
                }
                self.network.forget_closed(session);
            }
        }
        self.turn(id);
    }

    /// The side is closed; the other one hears of it when it can.
    fn hung_up(&mut self, session: SessionId, side: usize) {
        let other = self.network.sessions[&session].ends[1 - side];
        if other.open {
            let when = self.network.arrival(session, side, self.now);
            self.at_incarnation(
                when,
                other.node,
                other.incarnation,
                Scheduled::Closed(session, 1 - side, Closed::Reset),
            );
        }
    }

    fn dialled(
        &mut self,
        id: NodeId,
        from: NodeId,
        incarnation: u64,
        conn: ConnId,
        to: EntityAddr,
        kind: EntityType,
    ) {
        let back = self.now + self.network.latency();
        let node = self.node(id);
        if node.addr.nonce != to.nonce || node.kind != kind {
            let why = Closed::Fault(format!("{to} is not {} any more", node.name));
            return self.at_incarnation(
                back,
                from,
                incarnation,
                Scheduled::Event(Event::Closed { conn, why }),
            );
        }
        if self.node(from).incarnation != incarnation || !self.node(from).is_running() {
            return;
        }
        if self.node_mut(from).abandoned.remove(&conn) {
            return;
        }
        // A monitor gives every client a number for life.
        if self.node(from).kind == EntityType::Client && self.node(from).num < 0 {
            if kind != EntityType::Mon {
                let why = Closed::Fault("no number yet".into());
                return self.at_incarnation(
                    back,
                    from,
                    incarnation,
                    Scheduled::Event(Event::Closed { conn, why }),
                );
            }
            match self.node_mut(id).take_id() {
                Some(number) => self.node_mut(from).num = number as i64,
                None => {
                    let what = Scheduled::Dialled { from, incarnation, conn, to, kind };
                    return self.at(self.now + Duration::from_millis(20), id, what);
                }
            }
            if self.node(id).ids_left() < 20 {
                self.node_mut(id).events.push_back(Event::IdsLow);
            }
        }
        let node = self.node_mut(id);
        node.accepted += 1;
        let accepted = End {
            node: id,
            incarnation: node.incarnation,
            conn: ConnId::Accepted(node.accepted),
            open: true,
        };
        let dialling = End { node: from, incarnation, conn, open: true };
        let on = self.node(id).listens_on(to.sock).unwrap_or(Net::Public);
        self.network.open([dialling, accepted], on);
        let (caller, callee) = (self.peer(from), self.peer(id));
        self.node_mut(id).events.push_back(Event::Opened { conn: accepted.conn, peer: caller });
        let opened = Event::Opened { conn, peer: callee };
        let session = self.network.find(from, incarnation, conn).expect("it was just opened");
        // Before anything that the other side says.
        let when = self.network.arrival(session, 1, self.now);
        self.at_incarnation(when, from, incarnation, Scheduled::Event(opened));
    }

    fn peer(&self, id: NodeId) -> Peer {
        let node = self.node(id);
        Peer {
            kind: node.kind,
            num: node.num,
            addrs: AddrVec::one(node.addr),
            observed: node.addr,
            features: 0x3f01_cfbd_fffd_ffff,
            proved: None,
        }
    }

    /// Whether a session that is about to open was hung up by who dialled.
    fn is_hung_up(&self, id: NodeId, conn: ConnId) -> bool {
        let session = self.network.find(id, self.node(id).incarnation, conn);
        let Some(session) = session.and_then(|session| self.network.sessions.get(&session)) else {
            return true;
        };
        session.side(id, conn).is_none_or(|side| !session.ends[side].open)
    }

    /// Runs a node's machine until it knows all that happened.
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
            }
        }
        self.node_mut(id).role = Some(role);
        self.commit(id);
        self.look_at_memory(id);
    }

    fn look_at_memory(&mut self, id: NodeId) {
        let node = self.node_mut(id);
        let used = memory::of(id.0);
        node.memory_peak = node.memory_peak.max(used);
        let Some(max) = node.memory_max.filter(|max| used > *max) else { return };
        let of_store = node.store.as_ref().map(Store::memory);
        panic!("{} holds {used} bytes of memory, of {max}: {of_store:?}", node.name);
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
        // What is printed beyond the name must not change the hash between a quiet and a loud run.
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
        let incarnation = self.node(id).incarnation;
        match effect {
            Effect::Dial { conn, to, kind } => {
                let Some((target, on)) = self.listener(to.sock) else {
                    let why = Closed::Refused;
                    return self.at(self.now, id, Scheduled::Event(Event::Closed { conn, why }));
                };
                if self.network.is_rejected(id, target) {
                    let event = Event::Closed { conn, why: Closed::Refused };
                    let when = self.now + self.network.latency();
                    return self.at(when, id, Scheduled::Event(event));
                }
                let silent = self.network.is_stuck(id, target, on);
                if silent {
                    let event = Event::Closed { conn, why: Closed::TimedOut };
                    return self.at(self.now + DIAL_TIMEOUT, id, Scheduled::Event(event));
                }
                let when = self.now + self.network.latency();
                self.at(when, target, Scheduled::Dialled { from: id, incarnation, conn, to, kind });
            }
            Effect::Send { conn, tid, message } => {
                let Some(session) = self.network.find(id, incarnation, conn) else { return };
                let found = &self.network.sessions[&session];
                let side = found.side(id, conn).expect("the session was found by it");
                if !found.ends[side].open {
                    return;
                }
                let to = found.ends[1 - side];
                if self.trace.print {
                    let mut line = format!("  to {conn} {} {tid} {message:?}", message.name());
                    line.truncate(line.floor_char_boundary(400));
                    self.trace.comment(self.now, &self.nodes[id.0].name, &line);
                }
                let raw = Envelope { tid, body: message }.to_raw();
                self.note_sent(id, &raw);
                let when = self.network.arrival(session, side, self.now);
                let found = self.network.sessions.get_mut(&session).expect("it was found");
                found.flying[side].push_back(raw);
                self.at_incarnation(when, to.node, to.incarnation, Scheduled::Arrive(session, side));
            }
            Effect::Hangup { conn } => {
                let Some(session) = self.network.find(id, incarnation, conn) else {
                    self.node_mut(id).abandoned.insert(conn);
                    return;
                };
                let found = self.network.sessions.get_mut(&session).expect("it was found");
                let side = found.side(id, conn).expect("the session was found by it");
                if std::mem::replace(&mut found.ends[side].open, false) {
                    self.hung_up(session, side);
                }
                self.network.forget_closed(session);
            }
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
            Effect::GrantIds(range) => self.node_mut(id).ids.push_back(range),
            // Nobody is asked for proof here.
            Effect::Keys(_) => {}
            Effect::Log { text, .. } => self.trace.comment(self.now, &self.nodes[id.0].name, &text),
            Effect::Stopped => self.node_mut(id).stopped = true,
        }
    }

    /// Target listens there, and on which network.
    fn listener(&self, sock: Option<SocketAddr>) -> Option<(NodeId, Net)> {
        let mut nodes = self.nodes.iter().enumerate();
        nodes.find_map(|(n, node)| Some((NodeId(n), node.listens_on(sock)?)))
    }

    /// The bytes are part of the run: a difference in them is a difference between two runs.
    fn note_sent(&mut self, id: NodeId, raw: &RawMessage) {
        let crc = crc32c(crc32c(u32::MAX, &raw.front), &raw.data);
        let print = std::mem::replace(&mut self.trace.print, false);
        self.note(id, "sends", u64::from(crc) << 16 | u64::from(raw.kind));
        self.trace.print = print;
    }

    /// Hands what was submitted to the disk, unless it is busy.
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

    /// Calls a client from outside.
    pub fn call_client<R>(
        &mut self,
        id: NodeId,
        call: impl FnOnce(&mut nacre_client::Client, Now, &mut Vec<Effect>) -> R,
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

/// What comes in has memory of its own, as what a socket gives: the sender's copy is the sender's.
fn received(id: NodeId, raw: RawMessage) -> Envelope {
    let _charge = memory::charge_to(id.0);
    let (front, data) = (Bytes::copy_from_slice(&raw.front), Bytes::copy_from_slice(&raw.data));
    Envelope::from_raw(RawMessage { front, data, ..raw }).expect("what was encoded decodes")
}
