//! The client as a whole: requests in, completions out.

use crate::mon_session::{self, FromMon, MakeMessage, MonSession};
use crate::objecter::{MapNews, Objecter, OpDone, Work};
use crate::request::{
    CommandOutput, Completion, Failure, ListCursor, ListEntry, ListPage, ObjectRequest, Output, Request,
    RequestId, RequestKind,
};
use crate::wire_out::{Numbers, Out};
use bytes::Bytes;
use nacre_base::{Epoch, Name, Now, PoolId, Rng, SnapId, Time, errno};
use nacre_machine::{Effect, Event, Level, Machine, StoreView, TimerId};
use nacre_proto::maps::{MonMap, OsdMap, Uuid};
use nacre_proto::messages::{
    Command, GetPoolStats, Message, MonCommand, MonGetVersion, OsdMapMsg, PaxosVersion, PoolOp, PoolOpKind,
    PoolOpReply, Statfs,
};
use nacre_proto::types::{EntityAddr, ObjectId, Op};
use nacre_wire::{Decode, DecodeError, Reader, from_slice};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const DEADLINE_TIMER: TimerId = 2;

/// A client of one cluster, Nacre or Ceph.
///
/// It starts with `Event::Start` like every machine, and dials monitors and OSDs through its driver.
/// `submit` may be called at any time, also before the start; it pushes effects just as `handle`
/// does, and whoever called carries them out. After each `handle` and `submit`, the driver takes what
/// `take_completions` has. Requests complete in any order, each once. Requests about the same object
/// are carried out in the order of `submit`.
///
/// How much is in flight is the caller's business: nothing here limits it.
///
/// Sessions with OSDs that fall silent without closing are for the driver to notice (keepalives);
/// those with monitors are probed here.
#[derive(Debug)]
pub struct Client {
    mon: MonSession,
    objecter: Objecter,
    numbers: Numbers,
    requests: BTreeMap<RequestId, Pending>,
    /// By tid in the monitor session.
    questions: BTreeMap<u64, Question>,
    /// By tid in the objecter.
    owners: BTreeMap<u64, RequestId>,
    deadlines: BTreeSet<(Time, RequestId)>,
    completions: Vec<Completion>,
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
    OsdCommand,
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
    /// `mons` are where monitors were told to be; more are learnt from the first that answers. Two
    /// clients with the same seed and the same events do the same.
    pub fn new(mons: Vec<EntityAddr>, seed: u64) -> Client {
        let mut rng = Rng::new(seed);
        Client {
            mon: MonSession::new(mons, rng.fork()),
            objecter: Objecter::new(rng.fork()),
            numbers: Numbers::default(),
            requests: BTreeMap::new(),
            questions: BTreeMap::new(),
            owners: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            completions: Vec::new(),
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
        self.mon.config()
    }
    pub fn take_completions(&mut self) -> Vec<Completion> {
        std::mem::take(&mut self.completions)
    }
    /// How many requests are not complete.
    pub fn num_pending(&self) -> usize {
        self.requests.len()
    }

    /// Begins a request.
    pub fn submit(&mut self, now: Now, request: Request, out: &mut Vec<Effect>) -> RequestId {
        let id = RequestId(self.numbers.next_tid());
        let deadline = request.timeout.map(|timeout| now.mono + timeout);
        self.requests.insert(id, Pending { tid: None, deadline, state: State::AtMonitor });
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, id));
            self.arm_deadline(now, out);
        }
        match request.kind {
            RequestKind::Object(object) if object.ops.is_empty() => {
                self.complete(id, Err(Failure::new(errno::EINVAL, "a request without operations")));
            }
            RequestKind::Object(object) => {
                self.begin_work(id, State::Object, Work::object(object, now.wall), out)
            }
            RequestKind::List { pool, namespace, from, max } => {
                let listing = Listing { pool, namespace, max: max.max(1), found: Vec::new() };
                self.list_on(id, listing, from.0, now, out);
            }
            RequestKind::OsdCommand { osd, command, input } => {
                let command = Command { fsid: [0; 16], cmd: vec![command], input };
                self.begin_work(id, State::OsdCommand, Work::Command { osd, command }, out);
            }
            RequestKind::MonCommand { command, input } => {
                self.ask(id, State::AtMonitor, AskCommand { command, input }, out);
            }
            RequestKind::PoolStats { pools } => self.ask(id, State::AtMonitor, AskPoolStats(pools), out),
            RequestKind::Statfs { pool } => self.ask(id, State::AtMonitor, AskStatfs(pool), out),
            RequestKind::CreateSnap { pool } => {
                let op = PoolOpKind::CreateUnmanagedSnap;
                self.ask(id, State::AtMonitor, AskPoolOp { pool, op, snap: SnapId(0) }, out);
            }
            RequestKind::RemoveSnap { pool, snap } => {
                let op = PoolOpKind::DeleteUnmanagedSnap;
                self.ask(id, State::AtMonitor, AskPoolOp { pool, op, snap }, out);
            }
            RequestKind::LatestMap => self.await_map(id, OnceMap::Give, out),
            RequestKind::LookupPool { name } => {
                match self.osd_map().and_then(|map| map.pool_by_name(&name)) {
                    Some(pool) => self.complete(id, Ok(Output::Pool(pool))),
                    None => self.await_map(id, OnceMap::FindPool(name), out),
                }
            }
        }
        self.finish_work(now, out);
        self.settle(out);
        id
    }

    // ---- beginning ----

    fn out<'a>(numbers: &'a mut Numbers, effects: &'a mut Vec<Effect>) -> Out<'a> {
        Out { effects, numbers }
    }

    fn pending(&mut self, id: RequestId) -> &mut Pending {
        self.requests.get_mut(&id).expect("what is being worked on is pending")
    }

    fn begin_work(&mut self, id: RequestId, state: State, work: Work, out: &mut Vec<Effect>) {
        let tid = self.numbers.next_tid();
        let pending = self.pending(id);
        (pending.tid, pending.state) = (Some(tid), state);
        self.owners.insert(tid, id);
        self.objecter.submit(tid, work, &mut Self::out(&mut self.numbers, out));
    }

    fn ask(&mut self, id: RequestId, state: State, ask: impl MakeMessage + 'static, out: &mut Vec<Effect>) {
        let tid = self.numbers.next_tid();
        let pending = self.pending(id);
        (pending.tid, pending.state) = (Some(tid), state);
        self.questions.insert(tid, Question::Request(id));
        self.mon.request(tid, ask, &mut Self::out(&mut self.numbers, out));
    }

    fn await_map(&mut self, id: RequestId, then: OnceMap, out: &mut Vec<Effect>) {
        self.ask(id, State::WaitsForMap { epoch: None, then }, AskVersion, out);
    }

    /// Asks for the names that come next in the placement group that `cursor` is in.
    fn list_on(
        &mut self,
        id: RequestId,
        listing: Listing,
        cursor: ObjectId,
        now: Now,
        out: &mut Vec<Effect>,
    ) {
        let max = listing.max - (listing.found.len() as u64).min(listing.max - 1);
        let mut object = ObjectRequest::new(listing.pool, "");
        // One byte 1 stands for all namespaces. Ceph: `LIBRADOS_ALL_NSPACES`.
        object.namespace = listing.namespace.clone().unwrap_or_else(|| Name::from("\u{1}"));
        let hash = cursor.hash;
        object.ops.push(Op::List { max, start_epoch: Epoch(0), cursor, filter: None }.into());
        self.begin_work(id, State::List(listing), Work::listing(object, hash, now.wall), out);
    }

    // ---- ending ----

    fn complete(&mut self, id: RequestId, result: Result<Output, Failure>) {
        let Some(pending) = self.requests.remove(&id) else { return };
        if let Some(deadline) = pending.deadline {
            self.deadlines.remove(&(deadline, id));
        }
        if let Some(tid) = pending.tid {
            // Whatever comes for it from here on is dropped.
            self.owners.remove(&tid);
            self.objecter.forget(tid);
            self.questions.remove(&tid);
            self.mon.forget(tid);
        }
        self.completions.push(Completion { id, result });
    }

    /// The objecter is through with one of its tids.
    fn work_done(&mut self, tid: u64, result: Result<OpDone, Failure>, now: Now, out: &mut Vec<Effect>) {
        let Some(id) = self.owners.remove(&tid) else { return };
        let pending = self.pending(id);
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
                            return self.list_on(id, listing, handle, now, out);
                        }
                        let next = (!handle.max).then_some(ListCursor(handle));
                        Ok(Output::Page(ListPage { entries: listing.found, next }))
                    }
                }
            }
            (_, Ok(OpDone::Object { reply })) => Ok(Output::Object(reply)),
        };
        self.complete(id, result);
    }

    /// The monitors answered a question.
    fn answered(&mut self, tid: u64, message: Message, out: &mut Vec<Effect>) {
        let id = match self.questions.remove(&tid) {
            None => return,
            Some(Question::Confirms(tids)) => {
                if let Message::MonGetVersionReply(reply) = message {
                    let newest = Epoch(reply.version.min(u32::MAX.into()) as u32);
                    self.objecter.confirm(&tids, newest, &mut Self::out(&mut self.numbers, out));
                }
                return;
            }
            Some(Question::Request(id)) => id,
        };
        let pending = self.pending(id);
        pending.tid = None;
        let result = match message {
            Message::MonGetVersionReply(reply) => {
                if let State::WaitsForMap { epoch, .. } = &mut pending.state {
                    *epoch = Some(Epoch(reply.version.min(u32::MAX.into()) as u32));
                }
                return self.look_at_map();
            }
            Message::MonCommandAck(ack) if ack.retval < 0 => Err(Failure::new(-ack.retval, ack.status)),
            Message::MonCommandAck(ack) => {
                Ok(Output::Command(CommandOutput { status: ack.status, output: ack.output }))
            }
            Message::GetPoolStatsReply(reply) => Ok(Output::PoolStats(reply.stats)),
            Message::StatfsReply(reply) => Ok(Output::Statfs(reply)),
            Message::PoolOpReply(reply) if reply.code < 0 => {
                Err(Failure::new(-reply.code, "the monitor refused"))
            }
            Message::PoolOpReply(PoolOpReply { data: None, .. }) => Ok(Output::Removed),
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
        let ready: Vec<(RequestId, OnceMap)> = self
            .requests
            .iter()
            .filter_map(|(&id, pending)| match &pending.state {
                State::WaitsForMap { epoch: Some(epoch), then } if *epoch <= map.epoch => {
                    Some((id, then.clone()))
                }
                _ => None,
            })
            .collect();
        for (id, then) in ready {
            let result = match then {
                OnceMap::Give => Ok(Output::Map(map.clone())),
                OnceMap::FindPool(name) => match map.pool_by_name(&name) {
                    Some(pool) => Ok(Output::Pool(pool)),
                    None => Err(Failure::new(errno::ENOENT, format!("no pool \"{name}\""))),
                },
            };
            self.complete(id, result);
        }
    }

    // ---- events ----

    fn on_osd_map(&mut self, message: &OsdMapMsg, out: &mut Vec<Effect>) {
        let mut o = Self::out(&mut self.numbers, out);
        match self.objecter.on_map(message, self.mon.fsid(), &mut o) {
            MapNews::Nothing => {}
            MapNews::Newer(epoch) => self.mon.have_map(epoch),
            MapNews::Gap { have, whole } => {
                self.mon.have_map(have);
                self.mon.ask_for_maps(whole, &mut o);
            }
        }
        self.look_at_map();
    }

    /// Asks the monitors about what the objecter doubts. Ends every event.
    fn settle(&mut self, out: &mut Vec<Effect>) {
        let doubts = self.objecter.take_doubts();
        if !doubts.is_empty() {
            let tid = self.numbers.next_tid();
            self.questions.insert(tid, Question::Confirms(doubts));
            self.mon.request(tid, AskVersion, &mut Self::out(&mut self.numbers, out));
        }
    }

    fn finish_work(&mut self, now: Now, out: &mut Vec<Effect>) {
        // A page that goes on is new work, which may fail at once.
        loop {
            let done = self.objecter.take_done();
            if done.is_empty() {
                break;
            }
            for (tid, result) in done {
                self.work_done(tid, result, now, out);
            }
        }
    }

    fn arm_deadline(&self, now: Now, out: &mut Vec<Effect>) {
        if let Some((first, _)) = self.deadlines.first() {
            out.push(Effect::Arm { timer: DEADLINE_TIMER, after: first.since(now.mono) });
        }
    }

    fn on_deadline(&mut self, now: Now, out: &mut Vec<Effect>) {
        while let Some(&(deadline, id)) = self.deadlines.first()
            && deadline <= now.mono
        {
            self.complete(id, Err(Failure::new(errno::ETIMEDOUT, "no reply in time")));
        }
        self.arm_deadline(now, out);
    }

    fn on_stop(&mut self, out: &mut Vec<Effect>) {
        let mut o = Self::out(&mut self.numbers, out);
        self.mon.stop(&mut o);
        self.objecter.stop(&mut o);
        o.disarm(DEADLINE_TIMER);
        let ids: Vec<RequestId> = self.requests.keys().copied().collect();
        for id in ids {
            self.complete(id, Err(Failure::new(errno::ECANCELED, "the client stops")));
        }
        out.push(Effect::Stopped);
    }
}

impl Machine for Client {
    fn handle(&mut self, now: Now, event: Event, _: &dyn StoreView, effects: &mut Vec<Effect>) {
        let mut out = Self::out(&mut self.numbers, effects);
        match event {
            Event::Start => self.mon.start(&mut out),
            Event::Opened { conn, .. } if self.mon.owns(conn) => self.mon.on_opened(conn, &mut out),
            Event::Opened { conn, peer } => self.objecter.on_opened(conn, peer.features, &mut out),
            Event::Closed { conn, why } if self.mon.owns(conn) => self.mon.on_closed(&why, &mut out),
            Event::Closed { conn, why } => self.objecter.on_closed(conn, &why, &mut out),
            Event::Message { conn, tid, message } if self.mon.owns(conn) => {
                match self.mon.on_message(tid, message, &mut out) {
                    FromMon::Nothing => {}
                    FromMon::Answer { tid, message } => self.answered(tid, message, effects),
                    FromMon::Pass(Message::OsdMap(maps)) => self.on_osd_map(&maps, effects),
                    FromMon::Pass(other) => {
                        out.log(Level::Debug, format!("no use for {} from a monitor", other.name()));
                    }
                }
            }
            Event::Message { message: Message::OsdMap(maps), .. } => self.on_osd_map(&maps, effects),
            Event::Message { conn, tid, message } => self.objecter.on_message(conn, tid, message, &mut out),
            Event::Timer(mon_session::TIMER) => self.mon.on_timer(&mut out),
            Event::Timer(DEADLINE_TIMER) => self.on_deadline(now, effects),
            Event::Timer(timer) => self.objecter.on_timer(timer, &mut out),
            Event::Stop => self.on_stop(effects),
            // Whatever it is, it is not for us: a client has no datagram socket.
            Event::Datagram { .. } => {}
            Event::Stored(_) | Event::ReadDone { .. } | Event::Loop(_) | Event::IdsLow => {
                unreachable!("a client asks for none of these")
            }
        }
        self.finish_work(now, effects);
        self.settle(effects);
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

// ---- questions to monitors ----

#[derive(Debug)]
struct AskVersion;
impl MakeMessage for AskVersion {
    fn make(&self, tid: u64, _: Uuid) -> Message {
        MonGetVersion { handle: tid, what: "osdmap".to_owned() }.into()
    }
}

#[derive(Debug)]
struct AskCommand {
    command: String,
    input: Bytes,
}
impl MakeMessage for AskCommand {
    fn make(&self, _: u64, fsid: Uuid) -> Message {
        let (cmd, input) = (vec![self.command.clone()], self.input.clone());
        MonCommand { version: PaxosVersion(0), fsid, cmd, input }.into()
    }
}

#[derive(Debug)]
struct AskPoolStats(Vec<String>);
impl MakeMessage for AskPoolStats {
    fn make(&self, _: u64, fsid: Uuid) -> Message {
        GetPoolStats { version: PaxosVersion(0), fsid, pools: self.0.clone() }.into()
    }
}

#[derive(Debug)]
struct AskStatfs(Option<PoolId>);
impl MakeMessage for AskStatfs {
    fn make(&self, _: u64, fsid: Uuid) -> Message {
        Statfs { version: PaxosVersion(0), fsid, data_pool: self.0 }.into()
    }
}

#[derive(Debug)]
struct AskPoolOp {
    pool: PoolId,
    op: PoolOpKind,
    snap: SnapId,
}
impl MakeMessage for AskPoolOp {
    fn make(&self, _: u64, fsid: Uuid) -> Message {
        let AskPoolOp { pool, op, snap } = *self;
        PoolOp {
            version: PaxosVersion(0),
            fsid,
            pool: pool.0 as u32,
            op,
            auid: 0,
            snap,
            name: String::new(),
            crush_rule: 0,
        }
        .into()
    }
}
