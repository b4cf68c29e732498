//! Drives one machine: gives it what happened, in order, and carries out what it wants, in order.
//!
//! Everything here lives on one thread. Events come from session tasks (`session`), from the disk
//! (`requests`, and the threads of `disk`), from timers and from the handle (`running`); each source of an
//! event ends with `Node::turn`, which runs the machine until nothing is left to tell it. Read `turn`, then
//! `carry_out`.

use crate::authentication::{Authentication, Renewal};
use crate::budget::Budget;
use crate::clock;
use crate::counters::{CountedDisk, MemoryCounters, MessengerCounters, StoreCounters};
use crate::disk::{self, DiskThreads};
use crate::ids::IdPool;
use crate::local_sessions::LocalSessions;
use crate::process;
use crate::requests::Requests;
use crate::session::{self, End, Session};
use crate::spec::{Limits, Listener, Spec};
use crate::storage::Storage;
use crate::timers::Timers;
use bytes::Bytes;
use nacre_base::Time;
use nacre_machine::{Closed, ConnId, Effect, Event, Level, Machine, NoStore, StoreView};
use nacre_msgr::{Config, Connection, FaultReason, PeerIdent, Sums};
use nacre_proto::messages::{Envelope, Message, RawMessage};
use nacre_proto::types::{AddrVec, EntityAddr, EntityType, Network};
use nacre_store::MemoryUsage;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::sync::oneshot;

/// Longer ones are cut, and the receiver refuses them.
const DATAGRAM_MAX: usize = 2048;

/// Refused connections to this many addresses are logged.
const REFUSALS_SAID: usize = 64;

/// This many bytes must have been freed before it is worth giving them back.
const FREED_MIN: usize = 64 << 20;
/// Memory for this many effects is kept for the next event.
const EFFECTS_KEPT: usize = 256;

pub(crate) struct Node<M> {
    kind: EntityType,
    authentication: Authentication,
    addrs: AddrVec,
    pub(crate) limits: Limits,
    pub(crate) counters: Arc<MessengerCounters>,
    memory: Arc<MemoryCounters>,
    /// The most bytes in use since freed memory was given back.
    most_used: Cell<usize>,
    budget: Arc<Budget>,
    /// Of what came in and was not dealt with yet, for when it is sent on.
    sums: Sums,
    ids: Arc<Mutex<IdPool>>,
    inner: RefCell<Inner<M>>,
    /// Addresses whose refusal is in the log.
    refusals: RefCell<BTreeSet<SocketAddr>>,
    /// A timer was armed that is due before all others.
    pub(crate) timers_changed: Notify,
    /// Something was submitted to the store.
    submitted: Notify,
}

struct Inner<M> {
    machine: M,
    events: VecDeque<Event>,
    /// `Effect::Loop`s that come back before any other event.
    loops: VecDeque<u64>,
    timers: Timers,
    /// Every session with a task, also those whose handshake is not over.
    sessions: BTreeMap<ConnId, Rc<Session>>,
    local: LocalSessions,
    accepted: u64,
    turned_away: u64,
    store: Option<Storage>,
    datagrams: BTreeMap<Network, Rc<UdpSocket>>,
    /// A client learns its number from the first monitor that it talks to, and shows it to all others.
    num: i64,
    global_id: u64,
    global_seq: u64,
    stopped: bool,
    /// Why the daemon ends with an error: the machine cannot continue, or it takes something for stored that
    /// is not. It must neither get events nor send messages any more.
    failure: Option<String>,
    /// What the machine wants: empty between events, and there for its memory.
    effects: Vec<Effect>,
    /// The first part of the message that is being sent: empty between them.
    front: Vec<u8>,
}

impl<M: Machine + 'static> Node<M> {
    /// `secure`: every connection that is dialled is to be encrypted.
    pub(crate) fn new(
        spec: Spec,
        secure: bool,
        machine: M,
        disk_done: disk::Sender,
    ) -> (Rc<Node<M>>, Vec<Listener>) {
        let memory: Arc<MemoryCounters> = spec.perf.add();
        let store = spec.store.map(|(mut store, disk)| {
            store.limit_memory(spec.limits.store_memory);
            // Opening took large ones, which are not needed again.
            nacre_base::buffer::give_back();
            let counters: Arc<StoreCounters> = spec.perf.add();
            let requests = disk.requests();
            let disk = CountedDisk::new(disk, counters.clone());
            Storage::new(store, DiskThreads::start(&spec.name, disk, disk_done), requests, counters)
        });
        let inner = Inner {
            machine,
            events: VecDeque::from([Event::Start]),
            loops: VecDeque::new(),
            timers: Timers::default(),
            sessions: BTreeMap::new(),
            local: LocalSessions::default(),
            accepted: 0,
            turned_away: 0,
            store,
            datagrams: spec
                .datagrams
                .into_iter()
                .filter_map(|(network, socket)| {
                    let socket = UdpSocket::from_std(socket);
                    let socket =
                        socket.inspect_err(|e| tracing::error!("cannot receive datagrams: {e}")).ok()?;
                    Some((network, Rc::new(socket)))
                })
                .collect(),
            num: spec.num,
            // Daemons go by their own number, and need none from a monitor.
            global_id: u64::from(spec.kind != EntityType::Client),
            global_seq: 0,
            stopped: false,
            failure: None,
            effects: Vec::new(),
            front: Vec::new(),
        };
        let node = Node {
            kind: spec.kind,
            authentication: Authentication::new(spec.auth_name, spec.key, secure),
            addrs: spec.addrs,
            budget: Budget::new(spec.limits.received_max),
            sums: Sums::default(),
            limits: spec.limits,
            counters: spec.perf.add(),
            memory,
            most_used: Cell::new(0),
            ids: Arc::default(),
            inner: RefCell::new(inner),
            refusals: RefCell::default(),
            timers_changed: Notify::new(),
            submitted: Notify::new(),
        };
        (Rc::new(node), spec.listeners)
    }

    /// Queues an event; the caller ends with `turn`.
    pub(crate) fn push(&self, event: Event) {
        self.inner.borrow_mut().events.push_back(event);
    }

    /// Runs the machine until it knows all that happened.
    pub(crate) fn turn(self: &Rc<Self>) {
        let inner = &mut *self.inner.borrow_mut();
        let first_timer = inner.timers.next();
        let mut effects = std::mem::take(&mut inner.effects);
        while let Some(event) = inner.loops.pop_front().map(Event::Loop).or_else(|| inner.events.pop_front())
        {
            self.submit(inner);
            if inner.failure.is_some() {
                break;
            }
            let view: &dyn StoreView = match &inner.store {
                Some(storage) => storage,
                None => &NoStore,
            };
            inner.machine.handle(clock::now(), event, view, &mut effects);
            for effect in effects.drain(..) {
                self.carry_out(inner, effect);
            }
        }
        effects.shrink_to(EFFECTS_KEPT);
        inner.effects = effects;
        self.sums.forget();
        if let Some(storage) = inner.store.as_mut().filter(|_| inner.failure.is_none()) {
            storage.requests.iter_mut().for_each(Requests::submit);
            if !(storage.committing && storage.placing) {
                self.submitted.notify_one();
            }
        }
        if inner.timers.next().is_some_and(|next| first_timer.is_none_or(|first| next < first)) {
            self.timers_changed.notify_one();
        }
    }

    /// Passes a request of this process to the machine, in a session of its own; the caller ends with `turn`.
    pub(crate) fn ask(&self, request: Message, answer: oneshot::Sender<Message>) {
        let inner = &mut *self.inner.borrow_mut();
        inner.accepted += 1;
        let conn = ConnId::Accepted(inner.accepted);
        inner.events.extend(inner.local.open(conn, request, answer));
    }

    /// Calls the machine from outside, where it has more to offer than `handle`.
    pub(crate) fn call(self: &Rc<Self>, f: impl FnOnce(&mut M, nacre_base::Now, &mut Vec<Effect>)) {
        let mut effects = Vec::new();
        let inner = &mut *self.inner.borrow_mut();
        f(&mut inner.machine, clock::now(), &mut effects);
        for effect in effects {
            self.carry_out(inner, effect);
        }
    }

    fn carry_out(self: &Rc<Self>, inner: &mut Inner<M>, effect: Effect) {
        if inner.failure.is_some() {
            return;
        }
        match effect {
            Effect::Dial { conn, to, kind } => self.dial(inner, conn, to, kind),
            Effect::Send { conn, message, .. } if inner.local.has(conn) => {
                inner.events.extend(inner.local.answer(conn, message));
            }
            Effect::Send { conn, tid, message } => {
                let Some(session) = inner.sessions.get(&conn) else { return };
                self.counters.msgr_send_messages.inc();
                let raw = Envelope { tid, body: message }.to_raw_behind(&mut inner.front);
                session.conn.borrow_mut().send_behind(raw, &mut inner.front);
                let (unsent, limit) = (session.unsent(), self.limits.unsent_max);
                if unsent > limit {
                    session.finish(End::SlowReader { unsent, limit });
                } else {
                    session.wake.notify_one();
                }
            }
            Effect::Hangup { conn } => {
                // Out of the maps at once, so that nothing is delivered any more.
                inner.local.hang_up(conn);
                if let Some(session) = inner.sessions.remove(&conn) {
                    session.finish(End::HungUp);
                }
            }
            Effect::Datagram { network, to, bytes } => {
                // A datagram that does not fit the socket's buffer is lost, as on the network.
                if let Some(socket) = inner.datagrams.get(&network) {
                    let _ = socket.try_send_to(&bytes, to);
                }
            }
            Effect::Store { token, txn } => inner.storage().hold(token, txn),
            Effect::Read { token, id, extents, device: true } => {
                self.submit(inner);
                let storage = inner.storage();
                match storage.store.plan_device_read(&id, &extents) {
                    Ok(plan) => storage.begin_read(token, plan),
                    Err(e) => inner.events.push_back(Event::ReadDone { token, result: Err(e) }),
                }
            }
            Effect::Read { token, id, extents, device: false } => {
                self.submit(inner);
                let storage = inner.storage();
                match storage.store.plan_read(&id, &extents) {
                    // A machine has looked into the page cache itself, mostly (`read_now`).
                    Ok(plan) if plan.needs_device() => storage.begin_read(token, plan),
                    Ok(plan) => {
                        storage.counters.read_memory.inc();
                        let result = plan.run(&storage.threads.disk);
                        inner.events.push_back(Event::ReadDone { token, result });
                    }
                    Err(e) => inner.events.push_back(Event::ReadDone { token, result: Err(e) }),
                }
            }
            Effect::Arm { timer, after } => inner.timers.arm(timer, clock::mono() + after),
            Effect::Disarm { timer } => inner.timers.disarm(timer),
            Effect::Loop(n) => inner.loops.push_back(n),
            Effect::GrantIds(range) => {
                self.ids.lock().expect("no thread panics with the pool").grant(range);
                self.budget.room.notify_waiters();
            }
            Effect::Keys(keys) => {
                self.authentication.put(keys);
                self.budget.room.notify_waiters();
            }
            Effect::Log { level, text } => match level {
                Level::Error => tracing::error!("{text}"),
                Level::Warn => tracing::warn!("{text}"),
                Level::Info => tracing::info!("{text}"),
                Level::Debug => tracing::debug!("{text}"),
            },
            Effect::Stopped => inner.stopped = true,
            Effect::Fail { reason } => self.give_up(inner, &reason),
        }
    }

    /// Gives the store what it has not seen.
    fn submit(&self, inner: &mut Inner<M>) {
        if let Some(Err(e)) = inner.store.as_mut().map(Storage::submit) {
            self.give_up(inner, &format!("the store refused a write that it must accept: {e}"));
        }
    }

    /// Ends the daemon, with its reason. What was acknowledged is durable, and nothing is acknowledged any
    /// more.
    fn give_up(&self, inner: &mut Inner<M>, why: &str) {
        if inner.failure.is_none() {
            tracing::error!("stopping: {why}");
            inner.failure = Some(why.to_string());
        }
        inner.stopped = true;
        // Unsent messages go as well: sessions end with what they have.
        std::mem::take(&mut inner.sessions).values().for_each(|session| session.finish(End::HungUp));
        if let Some(storage) = &mut inner.store {
            storage.give_up();
        }
    }

    fn dial(self: &Rc<Self>, inner: &mut Inner<M>, id: ConnId, to: EntityAddr, kind: EntityType) {
        let Some(sock) = to.sock else {
            let why = Closed::Fault(format!("{to} is not an address to connect to"));
            return inner.events.push_back(Event::Closed { conn: id, why });
        };
        inner.global_seq += 1;
        let mut config = Config::new(self.kind, inner.num, self.addrs.clone());
        config.global_seq = inner.global_seq;
        config.sums = self.sums.clone();
        config.handshake_timeout = self.limits.handshake_timeout;
        let prover = self.authentication.prover(inner.global_id);
        let conn = Connection::client(clock::mono(), config, to, kind, prover);
        let session = Session::new(id, sock, conn, false);
        inner.sessions.insert(id, session.clone());
        self.counters.msgr_created_connections.inc();
        self.counters.msgr_active_connections.set(inner.sessions.len() as u64);
        tokio::task::spawn_local(session::dial(self.clone(), session));
    }

    /// Accepts connections for as long as the daemon runs.
    pub(crate) async fn accept(self: Rc<Self>, listener: Listener) {
        let Listener { socket, addr, kind, num } = listener;
        let socket = match TcpListener::from_std(socket) {
            Ok(socket) => socket,
            Err(e) => return tracing::error!("cannot accept connections on {addr}: {e}"),
        };
        loop {
            match socket.accept().await {
                Ok((stream, from)) => self.accepted(stream, from, addr, kind, num),
                // Out of file descriptors, mostly: existing sessions continue, and may end.
                Err(e) => {
                    tracing::warn!("cannot accept connections: {e}");
                    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
                }
            }
        }
    }

    /// On which networks datagrams come.
    pub(crate) fn datagram_networks(&self) -> Vec<Network> {
        self.inner.borrow().datagrams.keys().copied().collect()
    }

    /// Takes datagrams for as long as the daemon runs.
    pub(crate) async fn take_datagrams(self: Rc<Self>, network: Network) {
        let Some(socket) = self.inner.borrow().datagrams.get(&network).cloned() else { return };
        let mut buffer = [0; DATAGRAM_MAX];
        loop {
            match socket.recv_from(&mut buffer).await {
                Ok((len, from)) => {
                    let bytes = Bytes::copy_from_slice(&buffer[..len]);
                    self.push(Event::Datagram { network, from, bytes });
                    self.turn();
                }
                Err(e) => {
                    tracing::warn!("cannot take datagrams: {e}");
                    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
                }
            }
        }
    }

    fn accepted(
        self: &Rc<Self>,
        stream: TcpStream,
        from: SocketAddr,
        here: EntityAddr,
        kind: EntityType,
        num: i64,
    ) {
        let inner = &mut *self.inner.borrow_mut();
        if inner.sessions.len() >= self.limits.sessions_max {
            inner.turned_away += 1;
            return;
        }
        inner.accepted += 1;
        let id = ConnId::Accepted(inner.accepted);
        let mut config = Config::new(kind, num, AddrVec::one(here));
        config.sums = self.sums.clone();
        config.handshake_timeout = self.limits.handshake_timeout;
        let verifier = self.authentication.verifier(kind, &self.ids);
        let conn = Connection::server(clock::mono(), config, from, verifier);
        let session = Session::new(id, from, conn, kind == EntityType::Mon);
        inner.sessions.insert(id, session.clone());
        self.counters.msgr_created_connections.inc();
        self.counters.msgr_active_connections.set(inner.sessions.len() as u64);
        tokio::task::spawn_local(session::run(self.clone(), session, stream));
    }

    /// When there are bytes or ids to give again.
    pub(crate) fn room(&self) -> Notified<'_> {
        self.budget.room.notified()
    }

    /// Daemons are always read from: what they say may be what frees the memory.
    pub(crate) fn may_read(&self, session: &Session) -> bool {
        match session.peer_kind.get() {
            Some(EntityType::Client) => !self.budget.is_full() && session.unsent() < self.limits.unsent_pause,
            _ => true,
        }
    }

    pub(crate) fn opened(&self, session: &Session, ident: &PeerIdent) {
        self.refusals.borrow_mut().remove(&session.sock);
        let inner = &mut *self.inner.borrow_mut();
        let Some(peer) = session::peer(ident) else { return };
        session.peer_kind.set(Some(peer.kind));
        if session.assigns_ids && self.ids.lock().expect("no thread panics with the pool").must_ask() {
            inner.events.push_back(Event::IdsLow);
        }
        if !inner.sessions.contains_key(&session.id) {
            return; // hung up meanwhile: the number that this monitor granted is not used
        }
        let dialled = matches!(session.id, ConnId::Dialled(_));
        if dialled && peer.kind == EntityType::Mon && self.kind == EntityType::Client {
            inner.global_id = ident.global_id;
            inner.num = ident.global_id as i64;
        }
        inner.events.push_back(Event::Opened { conn: session.id, peer });
    }

    pub(crate) fn received(&self, session: &Session, mut raw: RawMessage) -> Result<(), End> {
        let inner = &mut *self.inner.borrow_mut();
        if !inner.sessions.contains_key(&session.id) {
            return Ok(()); // hung up meanwhile
        }
        self.counters.msgr_recv_messages.inc();
        if session.peer_kind.get() == Some(EntityType::Client) {
            raw.data = self.budget.charge(raw.data);
        }
        let Envelope { tid, body: message } = Envelope::from_raw(raw).map_err(End::Message)?;
        if let Message::AuthReply(reply) = message {
            return self.authentication.answered(&reply).map_err(End::Tickets);
        }
        if let Some(storage) = &mut inner.store {
            storage.pace.arrived();
        }
        inner.events.push_back(Event::Message { conn: session.id, tid, message });
        Ok(())
    }

    /// The end of a session's task: writes it to the log where it may be of interest, and reports it to the
    /// machine if it knows the session.
    pub(crate) fn session_over(self: &Rc<Self>, session: &Session, end: End) {
        let opened = session.peer_kind.get().is_some();
        let dialled = matches!(session.id, ConnId::Dialled(_));
        let peer = match session.peer_kind.get() {
            Some(kind) => format!("{kind} at {}", session.sock),
            None => session.sock.to_string(),
        };
        match &end {
            // A peer that refuses us is dialled again and again.
            End::Fault(FaultReason::AuthRefused { .. }) if dialled => {
                let mut refusals = self.refusals.borrow_mut();
                match refusals.len() < REFUSALS_SAID && refusals.insert(session.sock) {
                    true => tracing::warn!("{peer}: {end}"),
                    false => tracing::debug!("{peer}: {end}"),
                }
            }
            End::HungUp | End::Refused | End::NoAnswer | End::Socket(_) => tracing::debug!("{peer}: {end}"),
            // Connections that we opened are the machine's to judge; and a client that found another monitor
            // sooner did nothing wrong.
            End::Fault(FaultReason::PeerClosed { phase, inside })
                if opened || dialled || (*phase != "banner" && inside.is_empty()) =>
            {
                tracing::debug!("{peer}: {end}");
            }
            _ => tracing::warn!("{peer}: {end}"),
        }
        let known = self.inner.borrow_mut().sessions.remove(&session.id).is_some();
        if known && (opened || dialled) {
            let why = match end {
                End::Refused => Closed::Refused,
                End::NoAnswer | End::Fault(FaultReason::HandshakeTimeout { .. }) => Closed::TimedOut,
                End::HungUp | End::Socket(_) | End::Fault(FaultReason::PeerClosed { .. }) => Closed::Reset,
                end => Closed::Fault(end.to_string()),
            };
            self.push(Event::Closed { conn: session.id, why });
            self.turn();
        }
    }

    pub(crate) fn next_timer(&self) -> Option<Time> {
        self.inner.borrow().timers.next()
    }

    pub(crate) fn fire_timers(self: &Rc<Self>) {
        let now = clock::mono();
        // One by one: handling a timer may disarm the next.
        loop {
            let Some(timer) = self.inner.borrow_mut().timers.pop(now) else { return };
            self.push(Event::Timer(timer));
            self.turn();
        }
    }

    /// Takes what the disk did for this thread, for as long as the daemon runs.
    pub(crate) async fn take_requests(self: Rc<Self>) {
        let ready = |inner: &Inner<M>| Some(inner.store.as_ref()?.requests.as_ref()?.ready.clone());
        let Some(ready) = ready(&self.inner.borrow()) else { return };
        while let Ok(mut readable) = ready.readable().await {
            // Before it is examined: what comes meanwhile is told again.
            readable.clear_ready();
            let finished = self.inner.borrow_mut().storage().finished_requests();
            self.disk_done(finished);
        }
    }

    /// Tells the machine what the disk did.
    pub(crate) fn disk_done(self: &Rc<Self>, done: impl IntoIterator<Item = disk::Done>) {
        for done in done {
            let inner = &mut *self.inner.borrow_mut();
            match done {
                disk::Done::Read { token, result } => {
                    let storage = inner.store.as_mut().expect("only a store reads");
                    if let Some(since) = storage.reading.remove(&token) {
                        storage.counters.read.inc();
                        storage.counters.read_lat.add(clock::mono().since(since));
                    }
                    let result = result.map(|(extents, fetched)| {
                        for (bytes, crc) in extents.iter().zip(&fetched.sums) {
                            crc.iter().for_each(|crc| self.sums.note(bytes, *crc));
                        }
                        storage.store.keep(fetched);
                        extents
                    });
                    inner.events.push_back(Event::ReadDone { token, result });
                }
                disk::Done::Committed(Ok(done)) => {
                    let storage = inner.store.as_mut().expect("only a store commits");
                    let last = storage.committed(done);
                    // One event for all: what they let the machine say then goes out together.
                    inner.events.extend(last.map(Event::Stored));
                }
                // What is on the device is unknown from here on; a restart reads it.
                disk::Done::Committed(Err(e)) | disk::Done::Deferred(Err(e)) => {
                    self.give_up(inner, &format!("the disk failed: {e}"));
                }
                disk::Done::Discarded(done) => {
                    if done.refused {
                        tracing::debug!("the device did not accept all discard requests");
                    }
                    inner.store.as_mut().expect("only a store gives space back").store.discarded(done);
                }
                disk::Done::Deferred(Ok(placed)) => {
                    if placed.damaged > 0 {
                        let damaged = placed.damaged;
                        tracing::error!(
                            "{damaged} corrupt blocks were partly overwritten: they stay corrupt"
                        );
                    }
                    let storage = inner.store.as_mut().expect("only a store places");
                    storage.placing = false;
                    storage.store.deferred_done(placed);
                }
            }
        }
        self.turn();
    }

    /// Hands to the disk what was submitted, for as long as the daemon runs. It does so behind the
    /// sessions that are to send or to read something: what goes out must not wait for our own disk, and
    /// what comes in is still part of the batch.
    pub(crate) async fn commit(self: Rc<Self>) {
        loop {
            self.submitted.notified().await;
            let done = {
                let inner = &mut *self.inner.borrow_mut();
                self.submit(inner);
                let storage = inner.store.as_mut().filter(|_| inner.failure.is_none());
                storage.and_then(|storage| {
                    storage.place();
                    storage.commit()
                })
            };
            if done.is_some() {
                self.disk_done(done);
            }
        }
    }

    /// Looks after the sessions; called about once a second.
    pub(crate) fn sweep(&self) {
        let inner = &mut *self.inner.borrow_mut();
        self.counters.msgr_active_connections.set(inner.sessions.len() as u64);
        self.memory.received.set(self.budget.used() as u64);
        let unsent: usize = inner.sessions.values().map(|session| session.unsent()).sum();
        self.memory.unsent.set(unsent as u64);
        self.memory.buffers.set(nacre_base::buffer::kept() as u64);
        let mut used = self.budget.used() + unsent;
        if let Some(storage) = &inner.store {
            let MemoryUsage { index, cache, pending } = storage.store.memory();
            self.memory.index.set(index as u64);
            self.memory.cache.set(cache as u64);
            self.memory.pending.set(pending as u64);
            used += index + cache + pending;
        }
        if used + FREED_MIN <= self.most_used.get() {
            self.most_used.set(used);
            process::give_back_memory();
        }
        self.most_used.set(self.most_used.get().max(used));
        for session in inner.sessions.values() {
            session.sweep(&self.limits);
        }
        inner.events.extend(inner.local.abandoned());
        self.renew_tickets(inner);
        if let Some(storage) = &mut inner.store
            && std::mem::replace(&mut storage.idle, true)
        {
            storage.store.confirm();
            self.submitted.notify_one();
            if storage.reading.is_empty() {
                nacre_base::buffer::give_back();
            }
        }
        if let Some(storage) = &mut inner.store
            && let Some(discard) = storage.store.take_discard()
        {
            storage.threads.discard(discard);
        }
        let turned_away = std::mem::take(&mut inner.turned_away);
        if turned_away > 0 {
            tracing::warn!("refused {turned_away} connections: {} sessions are open", inner.sessions.len());
        }
    }

    /// A client's tickets are good for an hour, its session with the monitors for days.
    fn renew_tickets(&self, inner: &Inner<M>) {
        let Some(due) = self.authentication.due() else { return };
        let is_open = |session: &&Rc<Session>| {
            matches!(session.id, ConnId::Dialled(_)) && session.peer_kind.get() == Some(EntityType::Mon)
        };
        let Some(session) = inner.sessions.values().find(is_open) else { return };
        match due {
            Renewal::Ask(message) => {
                session.conn.borrow_mut().send(Envelope { tid: 0, body: *message }.to_raw());
                session.wake.notify_one();
            }
            // The machine dials a monitor again, which gives another session.
            Renewal::Anew => session.finish(End::HungUp),
        }
    }

    /// The last step of a clean end: the store's log shows that it was complete.
    pub(crate) fn confirm(&self) {
        let inner = &mut *self.inner.borrow_mut();
        let failed = inner.failure.is_some();
        let idle = |storage: &&mut Storage| !storage.committing && !failed;
        let Some(storage) = inner.store.as_mut().filter(idle) else { return };
        storage.store.confirm();
        if let Some(batch) = storage.store.take_batch()
            && let disk::Done::Committed(Err(e)) = storage.threads.commit_here(batch)
        {
            tracing::warn!("the end of the log could not be confirmed: {e}");
        }
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.inner.borrow().stopped
    }

    /// Why it ended, if it was not a clean stop.
    pub(crate) fn failure(&self) -> Option<String> {
        self.inner.borrow().failure.clone()
    }

    /// Whether everything that the machine pushed is durable and sent.
    pub(crate) fn is_quiet(&self) -> bool {
        let inner = self.inner.borrow();
        inner.store.as_ref().is_none_or(Storage::is_quiet)
            && inner.sessions.values().all(|s| s.peer_kind.get().is_none() || s.unsent() == 0)
    }
}

impl<M> Inner<M> {
    fn storage(&mut self) -> &mut Storage {
        self.store.as_mut().expect("a machine that stores is given a store")
    }
}
