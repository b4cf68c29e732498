//! The client as a whole: requests in, completions out.

use crate::mgr_session::MgrSession;
use crate::mon_requests::{AskCommand, AskPoolOp, AskPoolStats, AskStatfs, AskVersion};
use crate::object::ObjectRequest;
use crate::objecter::{CommandTarget, MapNews, Objecter, OpDone, Work};
use crate::request::{
    CommandOutput, Completion, Failure, ListCursor, ListEntry, ListPage, Output, Request, RequestId,
    RequestKind,
};
use crate::watches::{Notice, Outcome, WatchEvent, WatchId, Watches};
use bytes::Bytes;
use nacre_base::{Epoch, Name, PoolId, Rng, SnapId, Time, errno};
use nacre_machine::{Closed, ConnId, Context, Effect, Event, Level, TimerId};
use nacre_monc::{FromMon, MakeMessage, MonClient, MonClientConfig, Pace};
use nacre_proto::maps::{MonMap, OsdMap};
use nacre_proto::messages::{Command, Message, OsdMapMsg, PoolOpKind, PoolOpReply};
use nacre_proto::types::{EntityAddr, ObjectId, Op};
use nacre_wire::{Decode, DecodeError, Reader, from_slice};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The configuration of a client.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Configured addresses of monitors, at least one; the first that answers sends the others.
    pub mons: Vec<EntityAddr>,
    pub hostname: String,
    /// The one timer that the client uses, in the words of the machine that it is part of.
    pub timer: TimerId,
    /// Two clients with the same seed and the same events do the same.
    pub seed: u64,
}

/// A client of one cluster, Nacre or Ceph, as part of a larger machine.
///
/// Its owner calls `start` once, passes on the events of sessions that the client `owns` and of its timer
/// (`handle`), and lends a `Context` to each call: the client takes ids of sessions from it and puts
/// effects into it. After each call the owner takes what `take_completions` and `take_watch_events` have.
///
/// `submit` may be called at any time, also before the start. Requests complete in any order, each once.
/// Requests about the same object are carried out in the order of `submit`. How much is in flight is the
/// owner's business: nothing here limits it.
///
/// Sessions with OSDs that fall silent without closing are for the driver to notice (keepalives); those
/// with monitors are probed here.
#[derive(Debug)]
pub struct Client {
    mon: MonClient,
    mgr: MgrSession,
    objecter: Objecter,
    watches: Watches,
    timer: TimerId,
    /// When the timer fires that was armed last.
    armed: Option<Time>,
    /// Of requests, and of messages that expect an answer; never given twice.
    last_tid: u64,
    requests: BTreeMap<RequestId, Pending>,
    /// By tid in the monitor session.
    questions: BTreeMap<u64, Question>,
    /// The requests of tids in the objecter and the manager session, where the two numbers differ.
    owners: BTreeMap<u64, RequestId>,
    deadlines: BTreeSet<(Time, RequestId)>,
    waiting_for_map: BTreeSet<(Epoch, RequestId)>,
    /// The options that the monitors set for this client.
    options: BTreeMap<String, String>,
    blocklisted: bool,
    completions: Vec<Completion>,
    events: Vec<WatchEvent>,
}

/// A request that is not complete.
#[derive(Debug)]
struct Pending {
    /// Of the one message that is on its way for it, if any.
    tid: Option<u64>,
    deadline: Option<Time>,
    state: State,
}

#[derive(Debug)]
enum State {
    Object,
    List(Listing),
    Command,
    AtManager,
    /// A watch that is not established, or a notify that is not complete.
    Lingering,
    Unwatch,
    /// Waits for a monitor's answer to just this.
    AtMonitor,
    /// Waits for the map of this epoch, once the monitors have said which it is.
    WaitsForMap {
        epoch: Option<Epoch>,
        then: OnceMap,
    },
}

#[derive(Debug, Clone)]
enum OnceMap {
    Give,
    FindPool(String),
}

#[derive(Debug)]
struct Listing {
    pool: PoolId,
    namespace: Option<Name>,
    max: u64,
    found: Vec<ListEntry>,
}

/// What an answer of the monitors is for.
#[derive(Debug)]
enum Question {
    Request(RequestId),
    /// The newest epoch, for operations (by tid) on what our map does not have.
    Confirms(Vec<u64>),
}

impl Client {
    pub fn new(config: ClientConfig) -> Client {
        let mut rng = Rng::new(config.seed);
        let session = MonClientConfig {
            mons: config.mons,
            hostname: config.hostname,
            pace: Pace::CLIENT,
            awaits_mon_map: true,
        };
        Client {
            mon: MonClient::new(session, rng.fork()),
            mgr: MgrSession::default(),
            objecter: Objecter::new(rng.fork()),
            watches: Watches::default(),
            timer: config.timer,
            armed: None,
            last_tid: 0,
            requests: BTreeMap::new(),
            questions: BTreeMap::new(),
            owners: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            waiting_for_map: BTreeSet::new(),
            options: BTreeMap::new(),
            blocklisted: false,
            completions: Vec::new(),
            events: Vec::new(),
        }
    }

    pub fn osd_map(&self) -> Option<&Arc<OsdMap>> {
        self.objecter.map()
    }
    pub fn mon_map(&self) -> Option<&MonMap> {
        self.mon.mon_map()
    }
    /// The options that the monitors set for this client.
    pub fn config(&self) -> &BTreeMap<String, String> {
        &self.options
    }
    /// An OSD said that this client is on the blocklist. That does not end while the client lives: a new
    /// one has another address.
    pub fn is_blocklisted(&self) -> bool {
        self.blocklisted
    }
    pub fn take_completions(&mut self) -> Vec<Completion> {
        std::mem::take(&mut self.completions)
    }
    pub fn take_watch_events(&mut self) -> Vec<WatchEvent> {
        std::mem::take(&mut self.events)
    }
    /// How many requests are not complete.
    pub fn num_pending(&self) -> usize {
        self.requests.len()
    }
    /// How often a placement was computed. A measure of what new maps cost.
    pub fn crush_runs(&self) -> u64 {
        self.objecter.placements.crush_runs
    }

    /// Whether the events of this session are for the client.
    pub fn owns(&self, conn: ConnId) -> bool {
        self.mon.owns(conn) || self.mgr.owns(conn) || self.objecter.owns(conn)
    }

    pub fn start(&mut self, cx: &mut Context<'_>) {
        self.mon.start(cx);
        self.settle(cx);
    }

    /// Ends all sessions, and requests with ECANCELED.
    pub fn stop(&mut self, cx: &mut Context<'_>) {
        self.mon.stop(cx);
        self.mgr.stop(cx);
        self.objecter.stop(cx);
        let ids: Vec<RequestId> = self.requests.keys().copied().collect();
        for id in ids {
            self.complete(id, Err(Failure::new(errno::ECANCELED, "the client stops")));
        }
        let failure = Failure::new(errno::ECANCELED, "the client stops");
        let lost = |watch| WatchEvent::Lost { watch, failure: failure.clone() };
        self.events.extend(self.watches.stop().into_iter().map(lost));
        self.armed = None;
        cx.out.push(Effect::Disarm { timer: self.timer });
    }

    /// Begins a request.
    pub fn submit(&mut self, request: Request, cx: &mut Context<'_>) -> RequestId {
        let id = RequestId(self.next_tid());
        let deadline = request.timeout.map(|timeout| cx.now.mono + timeout);
        self.requests.insert(id, Pending { tid: None, deadline, state: State::AtMonitor });
        self.deadlines.extend(deadline.map(|deadline| (deadline, id)));
        self.begin(id, request.kind, cx);
        self.settle(cx);
        id
    }

    /// Forgets a request, which does not complete. It is not sent again, but a write that an OSD already
    /// has may still happen, once.
    pub fn cancel(&mut self, id: RequestId) {
        self.forget(id);
    }

    /// Takes an event of one of the client's sessions, or of its timer.
    pub fn handle(&mut self, event: Event, cx: &mut Context<'_>) {
        match event {
            Event::Opened { conn, .. } if self.mon.owns(conn) => self.mon.on_opened(conn, cx),
            Event::Opened { conn, .. } if self.mgr.owns(conn) => {
                self.mgr.on_opened(conn, self.mon.fsid(), cx);
            }
            Event::Opened { conn, peer } => self.objecter.on_opened(conn, peer.features, cx),
            Event::Closed { conn, why } => self.on_closed(conn, &why, cx),
            Event::Message { conn, tid, message } => self.on_message(conn, tid, message, cx),
            Event::Timer(timer) if timer == self.timer => {
                self.armed = None;
                self.on_time(cx);
            }
            // A client has nothing to do with a store or with datagrams.
            _ => {}
        }
        self.settle(cx);
    }

    // ---- beginning ----

    fn next_tid(&mut self) -> u64 {
        self.last_tid += 1;
        self.last_tid
    }

    fn begin(&mut self, id: RequestId, kind: RequestKind, cx: &mut Context<'_>) {
        match kind {
            RequestKind::Object(object) if object.ops.is_empty() => {
                self.complete(id, Err(Failure::new(errno::EINVAL, "a request without operations")));
            }
            RequestKind::Object(object) => {
                self.begin_work(id, id.0, State::Object, Work::object(object, cx.now.wall), cx);
            }
            RequestKind::List { pool, namespace, from, max } => {
                let listing = Listing { pool, namespace, max: max.max(1), found: Vec::new() };
                self.list_on(id, id.0, listing, from.0, cx);
            }
            RequestKind::OsdCommand { osd, command, input } => {
                let command = Command { fsid: [0; 16], cmd: vec![command], input };
                let work = Work::Command { to: CommandTarget::Osd(osd), command };
                self.begin_work(id, id.0, State::Command, work, cx);
            }
            RequestKind::PgCommand { pg, command, input } => {
                let command = Command { fsid: [0; 16], cmd: vec![command], input };
                let work = Work::Command { to: CommandTarget::Pg(pg), command };
                self.begin_work(id, id.0, State::Command, work, cx);
            }
            RequestKind::MgrCommand { command, input } => {
                self.set_state(id, Some(id.0), State::AtManager);
                if self.mgr.wants_map() {
                    self.mon.subscribe("mgrmap", 0, cx);
                }
                self.mgr.submit(id.0, command, input, self.mon.fsid(), cx);
            }
            RequestKind::Register(service) => {
                if self.mgr.wants_map() {
                    self.mon.subscribe("mgrmap", 0, cx);
                }
                self.mgr.register(service, cx);
                self.complete(id, Ok(Output::Done));
            }
            RequestKind::Watch { object, timeout } => {
                let object = ObjectRequest { ops: Vec::new(), ..object };
                let work = self.watches.watch(WatchId(id.0), object, timeout, id.0, cx.now);
                self.begin_work(id, id.0, State::Lingering, work, cx);
            }
            RequestKind::Notify { object, payload, timeout } => {
                let object = ObjectRequest { ops: Vec::new(), ..object };
                let work = self.watches.notify(id, object, (timeout, payload), id.0, cx.now);
                self.begin_work(id, id.0, State::Lingering, work, cx);
            }
            RequestKind::Unwatch(watch) => match self.watches.unwatch(watch) {
                None => self.complete(id, Err(Failure::new(errno::ENOENT, "there is no such watch"))),
                Some((tids, request)) => {
                    tids.into_iter().for_each(|tid| self.objecter.forget(tid));
                    self.begin_work(id, id.0, State::Unwatch, Work::object(request, cx.now.wall), cx);
                }
            },
            RequestKind::MonCommand { command, input } => {
                self.ask(id, State::AtMonitor, AskCommand { command, input }, cx);
            }
            RequestKind::PoolStats { pools } => self.ask(id, State::AtMonitor, AskPoolStats(pools), cx),
            RequestKind::Statfs { pool } => self.ask(id, State::AtMonitor, AskStatfs(pool), cx),
            RequestKind::CreateSnap { pool } => {
                let op = PoolOpKind::CreateUnmanagedSnap;
                self.ask(id, State::AtMonitor, AskPoolOp { pool, op, snap: SnapId(0) }, cx);
            }
            RequestKind::RemoveSnap { pool, snap } => {
                let op = PoolOpKind::DeleteUnmanagedSnap;
                self.ask(id, State::AtMonitor, AskPoolOp { pool, op, snap }, cx);
            }
            RequestKind::LatestMap => self.ask_newest(id, OnceMap::Give, cx),
            RequestKind::MapSince(epoch) => {
                self.set_state(id, None, State::WaitsForMap { epoch: Some(epoch), then: OnceMap::Give });
                self.waiting_for_map.insert((epoch, id));
                self.look_at_map();
            }
            RequestKind::LookupPool { name } => {
                match self.osd_map().and_then(|map| map.pool_by_name(&name)) {
                    Some(pool) => self.complete(id, Ok(Output::Pool(pool))),
                    None => self.ask_newest(id, OnceMap::FindPool(name), cx),
                }
            }
        }
    }

    fn set_state(&mut self, id: RequestId, tid: Option<u64>, state: State) {
        if let Some(pending) = self.requests.get_mut(&id) {
            (pending.tid, pending.state) = (tid, state);
        }
    }

    fn begin_work(&mut self, id: RequestId, tid: u64, state: State, work: Work, cx: &mut Context<'_>) {
        self.set_state(id, Some(tid), state);
        if tid != id.0 {
            self.owners.insert(tid, id);
        }
        self.objecter.submit(tid, work, cx);
    }

    fn ask(
        &mut self,
        id: RequestId,
        state: State,
        request: impl MakeMessage + 'static,
        cx: &mut Context<'_>,
    ) {
        self.set_state(id, Some(id.0), state);
        self.questions.insert(id.0, Question::Request(id));
        self.mon.request(id.0, request, cx);
    }

    fn ask_newest(&mut self, id: RequestId, then: OnceMap, cx: &mut Context<'_>) {
        self.ask(id, State::WaitsForMap { epoch: None, then }, AskVersion, cx);
    }

    /// Asks for the names that come next in the placement group that `cursor` is in.
    fn list_on(&mut self, id: RequestId, tid: u64, listing: Listing, cursor: ObjectId, cx: &mut Context<'_>) {
        let max = listing.max - (listing.found.len() as u64).min(listing.max - 1);
        let mut object = ObjectRequest::new(listing.pool, "");
        // One byte 1 stands for all namespaces. Ceph: `LIBRADOS_ALL_NSPACES`.
        object.namespace = listing.namespace.clone().unwrap_or_else(|| Name::from("\u{1}"));
        let hash = cursor.hash;
        object.ops.push(Op::List { max, start_epoch: Epoch(0), cursor, filter: None }.into());
        self.begin_work(id, tid, State::List(listing), Work::listing(object, hash, cx.now.wall), cx);
    }

    // ---- ending ----

    /// Takes a request out, with all that is on its way for it.
    fn forget(&mut self, id: RequestId) -> bool {
        let Some(pending) = self.requests.remove(&id) else { return false };
        if let Some(deadline) = pending.deadline {
            self.deadlines.remove(&(deadline, id));
        }
        if let State::WaitsForMap { epoch: Some(epoch), .. } = pending.state {
            self.waiting_for_map.remove(&(epoch, id));
        }
        // Whatever comes for it from here on is dropped.
        if let State::Lingering = pending.state {
            self.watches.cancel(id).into_iter().for_each(|tid| self.objecter.forget(tid));
        }
        if let Some(tid) = pending.tid {
            self.owners.remove(&tid);
            self.objecter.forget(tid);
            self.mgr.forget(tid);
            if self.questions.remove(&tid).is_some() {
                self.mon.forget(tid);
            }
        }
        true
    }

    fn complete(&mut self, id: RequestId, result: Result<Output, Failure>) {
        if self.forget(id) {
            self.blocklisted |= result.as_ref().is_err_and(Failure::is_blocklisted);
            self.completions.push(Completion { id, result });
        }
    }

    /// The objecter is through with one of its tids, or an OSD has what lingers.
    fn work_done(&mut self, tid: u64, result: Result<OpDone, Failure>, cx: &mut Context<'_>) {
        let brief = result.as_ref().map(|_| ()).map_err(Failure::clone);
        match self.watches.on_done(tid, brief, cx.now) {
            Outcome::NotOurs => self.request_done(tid, result, cx),
            Outcome::Nothing => {}
            Outcome::Established(watch) => {
                // Its tid stays with the objecter.
                self.set_state(RequestId(watch.0), None, State::Object);
                self.complete(RequestId(watch.0), Ok(Output::Watching(watch)));
            }
            Outcome::Refused(watch, failure) => self.complete(RequestId(watch.0), Err(failure)),
            Outcome::NotifyFailed(id, failure) => self.complete(id, Err(failure)),
            Outcome::Lost(watch, failure) => {
                self.blocklisted |= failure.is_blocklisted();
                self.events.push(WatchEvent::Lost { watch, failure });
            }
        }
    }

    fn request_done(&mut self, tid: u64, result: Result<OpDone, Failure>, cx: &mut Context<'_>) {
        let id = self.owners.remove(&tid).unwrap_or(RequestId(tid));
        let Some(pending) = self.requests.get_mut(&id) else { return };
        pending.tid = None;
        let state = std::mem::replace(&mut pending.state, State::AtMonitor);
        let result = match (state, result) {
            (_, Err(failure)) => Err(failure),
            (_, Ok(OpDone::Command { status, output })) => {
                Ok(Output::Command(CommandOutput { status, output }))
            }
            (State::List(mut listing), Ok(OpDone::Object { reply })) => {
                let data = reply.ops.first().map(|op| op.data.clone()).unwrap_or_default();
                match read_page(&data) {
                    Err(e) => Err(Failure::new(errno::EIO, format!("a listing that cannot be read: {e}"))),
                    Ok((handle, entries)) => {
                        listing.found.extend(entries);
                        if !handle.max && (listing.found.len() as u64) < listing.max {
                            let tid = self.next_tid();
                            return self.list_on(id, tid, listing, handle, cx);
                        }
                        let next = (!handle.max).then_some(ListCursor(handle));
                        Ok(Output::Page(ListPage { entries: listing.found, next }))
                    }
                }
            }
            (State::Unwatch, Ok(OpDone::Object { .. })) => Ok(Output::Done),
            (_, Ok(OpDone::Object { reply })) => Ok(Output::Object(reply)),
        };
        self.complete(id, result);
    }

    /// The monitors answered a question.
    fn answered(&mut self, tid: u64, message: Message, cx: &mut Context<'_>) {
        let newest = |version: u64| Epoch(u32::try_from(version).unwrap_or(u32::MAX));
        let id = match self.questions.remove(&tid) {
            None => return,
            Some(Question::Confirms(tids)) => {
                if let Message::MonGetVersionReply(reply) = message {
                    self.objecter.confirm(&tids, newest(reply.version), cx);
                }
                return;
            }
            Some(Question::Request(id)) => id,
        };
        let Some(pending) = self.requests.get_mut(&id) else { return };
        pending.tid = None;
        let result = match message {
            Message::MonGetVersionReply(reply) => {
                if let State::WaitsForMap { epoch, .. } = &mut pending.state {
                    let asked = newest(reply.version);
                    *epoch = Some(asked);
                    self.waiting_for_map.insert((asked, id));
                }
                return self.look_at_map();
            }
            Message::MonCommandAck(ack) if ack.retval < 0 => {
                Err(Failure::new(ack.retval.saturating_neg(), ack.status))
            }
            Message::MonCommandAck(ack) => {
                Ok(Output::Command(CommandOutput { status: ack.status, output: ack.output }))
            }
            Message::GetPoolStatsReply(reply) => Ok(Output::PoolStats(reply.stats)),
            Message::StatfsReply(reply) => Ok(Output::Statfs(reply)),
            Message::PoolOpReply(reply) if reply.code < 0 => {
                Err(Failure::new(reply.code.saturating_neg(), "the monitor refused"))
            }
            Message::PoolOpReply(PoolOpReply { data: None, .. }) => Ok(Output::Done),
            Message::PoolOpReply(PoolOpReply { data: Some(snap), .. }) => from_slice(&snap)
                .map(Output::Snap)
                .map_err(|e| Failure::new(errno::EIO, format!("the id of a snapshot: {e}"))),
            other => Err(Failure::new(errno::EIO, format!("the monitor answered with {}", other.name()))),
        };
        self.complete(id, result);
    }

    /// Completes what waited for a map that is here now.
    fn look_at_map(&mut self) {
        let Some(map) = self.osd_map().cloned() else { return };
        while let Some(&(epoch, id)) = self.waiting_for_map.first()
            && epoch <= map.epoch
        {
            self.waiting_for_map.remove(&(epoch, id));
            let state = self.requests.get(&id).map(|pending| &pending.state);
            let result = match state {
                Some(State::WaitsForMap { then: OnceMap::FindPool(name), .. }) => {
                    match map.pool_by_name(name) {
                        Some(pool) => Ok(Output::Pool(pool)),
                        None => Err(Failure::new(errno::ENOENT, format!("no pool \"{name}\""))),
                    }
                }
                _ => Ok(Output::Map(map.clone())),
            };
            self.complete(id, result);
        }
    }

    // ---- events ----

    fn on_closed(&mut self, conn: ConnId, why: &Closed, cx: &mut Context<'_>) {
        if self.mon.owns(conn) {
            self.mon.on_closed(why, cx);
        } else if self.mgr.owns(conn) {
            self.mgr.on_closed(why, cx);
        } else {
            self.objecter.on_closed(conn, why, cx);
        }
    }

    fn on_message(&mut self, conn: ConnId, tid: u64, message: Message, cx: &mut Context<'_>) {
        if self.mon.owns(conn) {
            match self.mon.on_message(tid, message, cx) {
                FromMon::Nothing => {}
                FromMon::Config(options) => self.options = options,
                FromMon::Answer { tid, message } => self.answered(tid, message, cx),
                FromMon::Pass(Message::OsdMap(maps)) => self.on_osd_map(&maps, cx),
                FromMon::Pass(Message::MgrMap(map)) => {
                    if let Some(epoch) = self.mgr.on_map(&map.map, cx) {
                        self.mon.have("mgrmap", epoch);
                    }
                }
                FromMon::Pass(other) => {
                    cx.log(Level::Debug, format!("no use for {} from a monitor", other.name()));
                }
            }
        } else if self.mgr.owns(conn) {
            if let Some((tid, result)) = self.mgr.on_message(tid, message, cx.now.mono) {
                self.complete(RequestId(tid), result.map(Output::Command));
            }
        } else if let Message::OsdMap(maps) = message {
            self.on_osd_map(&maps, cx);
        } else {
            self.objecter.on_message(conn, tid, message, cx);
        }
    }

    fn on_osd_map(&mut self, message: &OsdMapMsg, cx: &mut Context<'_>) {
        match self.objecter.on_map(message, self.mon.fsid(), cx) {
            MapNews::Nothing => {}
            MapNews::Newer(epoch) => self.mon.have("osdmap", epoch),
            MapNews::Gap { have, whole } => {
                if have > Epoch(0) {
                    self.mon.have("osdmap", have);
                }
                self.mon.ask_for_maps(whole, cx);
            }
        }
        self.look_at_map();
    }

    fn on_time(&mut self, cx: &mut Context<'_>) {
        self.mon.on_time(cx);
        self.mgr.on_time(cx);
        self.objecter.on_time(cx);
        while let Some(&(deadline, id)) = self.deadlines.first()
            && deadline <= cx.now.mono
        {
            self.deadlines.remove(&(deadline, id));
            self.complete(id, Err(Failure::new(errno::ETIMEDOUT, "no reply in time")));
        }
        loop {
            let tid = self.next_tid();
            let Some(ping) = self.watches.next_ping(tid, cx.now) else { break };
            self.objecter.submit(tid, Work::object(ping, cx.now.wall), cx);
        }
    }

    /// Takes in what the parts came to. Ends every call from outside.
    fn settle(&mut self, cx: &mut Context<'_>) {
        // A page that continues is new work, which may fail at once.
        loop {
            let done = self.objecter.take_done();
            let displaced = self.objecter.take_displaced();
            let notices = self.objecter.take_notices();
            if done.is_empty() && displaced.is_empty() && notices.is_empty() {
                break;
            }
            for (tid, result) in done {
                self.work_done(tid, result, cx);
            }
            for tid in displaced {
                self.lingers_again(tid, cx);
            }
            for notice in notices {
                let (notice, tids) = self.watches.on_notice(notice);
                tids.into_iter().for_each(|tid| self.objecter.forget(tid));
                match notice {
                    Notice::Nothing => {}
                    Notice::Event(event) => self.events.push(event),
                    Notice::Complete(id, outcome) => self.complete(id, Ok(Output::Notified(outcome))),
                }
            }
        }
        let doubts = self.objecter.take_doubts();
        if !doubts.is_empty() {
            let tid = self.next_tid();
            self.questions.insert(tid, Question::Confirms(doubts));
            self.mon.request(tid, AskVersion, cx);
        }
        self.arm(cx);
    }

    /// A watch or a notify whose OSD may have forgotten it is done again.
    fn lingers_again(&mut self, tid: u64, cx: &mut Context<'_>) {
        let next = self.next_tid();
        let (work, ping) = self.watches.displaced(tid, next, cx.now);
        ping.into_iter().for_each(|ping| self.objecter.forget(ping));
        let Some(work) = work else { return };
        self.objecter.submit(next, work, cx);
    }

    /// Arms the timer for what is due first. A timer that fires too early does no harm.
    fn arm(&mut self, cx: &mut Context<'_>) {
        let deadline = self.deadlines.first().map(|&(at, _)| at);
        let parts = [self.mon.due(), self.mgr.due(), self.objecter.due(), self.watches.due(), deadline];
        let Some(first) = parts.into_iter().flatten().min() else { return };
        if self.armed.is_none_or(|armed| first < armed) {
            self.armed = Some(first);
            cx.out.push(Effect::Arm { timer: self.timer, after: first.since(cx.now.mono) });
        }
    }
}

/// Where the next page begins, and this one's names. Ceph: `pg_nls_response_t` v1.
fn read_page(data: &Bytes) -> Result<(ObjectId, Vec<ListEntry>), DecodeError> {
    Reader::new(data).versioned("pg_nls_response_t", 1, |r, _| {
        let handle = ObjectId::decode(r)?;
        let entries = r.list(|r| {
            Ok(ListEntry { namespace: Name::decode(r)?, name: Name::decode(r)?, key: Name::decode(r)? })
        })?;
        Ok((handle, entries))
    })
}
