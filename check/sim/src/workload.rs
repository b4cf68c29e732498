//! What clients request while faults happen, and the replies they get.

use crate::cluster::Cluster;
use crate::history::{Action, Answer, Contents, Entry, SnapContext, linearizable};
use bytes::Bytes;
use nacre_base::{Name, PoolId, Rng, SnapId, errno};
use nacre_client::{Failure, ObjectReply, ObjectRequest, Output, Request, RequestId, RequestKind};
use nacre_proto::types::{Op, op_flags};
use nacre_wire::from_slice;
use std::collections::{BTreeMap, BTreeSet};

/// Clients that may write. The one after them, if there is one, may only read.
pub const WRITERS: usize = 2;
const READER: usize = WRITERS;
/// Requests that each client keeps in flight.
const DEPTH: usize = 2;
/// Bytes of the objects that fill disks, and how many of them are written at a time.
const FILLER: usize = 64 << 10;
const FILLING_MAX: usize = 2;

struct InFlight {
    client: usize,
    request: RequestId,
    object: (PoolId, String),
    asked: u64,
    action: Action,
    context: SnapContext,
}

/// A snapshot to be created or removed, not answered yet.
struct SnapRequest {
    request: RequestId,
    pool: PoolId,
    removes: Option<u64>,
}

pub struct Workload {
    rng: Rng,
    clock: u64,
    in_flight: Vec<InFlight>,
    histories: BTreeMap<(PoolId, String), Vec<Entry>>,
    /// The snapshots of each pool that clients know.
    contexts: BTreeMap<PoolId, SnapContext>,
    /// Removed snapshots, and since when they may be trimmed.
    removed: BTreeMap<PoolId, BTreeMap<u64, u64>>,
    snap_requests: Vec<SnapRequest>,
    /// Pools whose objects have no omap.
    without_omap: BTreeSet<PoolId>,
    /// A write that the reader tries: it must be refused.
    forbidden: Option<RequestId>,
    /// Objects that fill disks: how many were written, and how many shall be.
    fillers: u64,
    fillers_wanted: u64,
    written: u64,
    pub answered: u64,
}

impl Workload {
    pub fn new(rng: Rng) -> Workload {
        Workload {
            rng,
            clock: 0,
            in_flight: Vec::new(),
            histories: BTreeMap::new(),
            contexts: BTreeMap::new(),
            removed: BTreeMap::new(),
            snap_requests: Vec::new(),
            without_omap: BTreeSet::new(),
            forbidden: None,
            fillers: 0,
            fillers_wanted: 0,
            written: 0,
            answered: 0,
        }
    }

    /// Objects of this pool have no omap.
    pub fn note_without_omap(&mut self, pool: PoolId) {
        self.without_omap.insert(pool);
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Collects replies and submits new requests.
    pub fn step(&mut self, c: &mut Cluster, pools: &[PoolId]) -> Result<(), String> {
        self.collect_replies(c)?;
        self.continue_fill(c, pools[0]);
        for client in 0..WRITERS {
            let working = |op: &&InFlight| op.client == client && op.object.1.starts_with("object");
            while self.in_flight.iter().filter(working).count() < DEPTH {
                let pool = *self.rng.pick(pools).expect("there is a pool");
                let name = format!("object.{}", self.rng.below(6));
                let action = self.draw(pool);
                self.submit(c, client, pool, name, action);
            }
        }
        if c.clients.len() > READER {
            self.step_reader(c, pools);
        }
        Ok(())
    }

    /// The reader reads one object after the other, and tries to write.
    fn step_reader(&mut self, c: &mut Cluster, pools: &[PoolId]) {
        let pool = *self.rng.pick(pools).expect("there is a pool");
        let name = format!("object.{}", self.rng.below(6));
        if self.forbidden.is_none() {
            let append = ObjectRequest::new(pool, name.as_str()).append(Bytes::from_static(b"<forbidden>"));
            self.forbidden = Some(c.submit(READER, Request::from(append)));
        }
        if !self.in_flight.iter().any(|op| op.client == READER) {
            self.submit(c, READER, pool, name, Action::Read);
        }
    }

    fn check_forbidden(&mut self, c: &mut Cluster) -> Result<(), String> {
        let Some(result) = self.forbidden.and_then(|request| c.take(READER, request)) else { return Ok(()) };
        self.forbidden = None;
        match result {
            Err(failure) if failure.errno == errno::EPERM => Ok(()),
            other => Err(format!("a client that may only read tried to write, and the answer was {other:?}")),
        }
    }

    /// Writes this many more objects that fill the disks, a few at a time.
    pub fn fill(&mut self, objects: u64) {
        self.fillers_wanted = self.fillers + objects;
    }
    /// Reads the objects that fill the disks once more and deletes them.
    pub fn delete_fill(&mut self, c: &mut Cluster, pool: PoolId) {
        self.fillers_wanted = self.fillers;
        for filler in 0..self.fillers {
            let name = format!("filler.{filler}");
            if self.histories.get(&(pool, name.clone())).is_none_or(|entries| is_there(entries)) {
                self.submit(c, 0, pool, name.clone(), Action::Read);
                self.submit(c, 0, pool, name, Action::Delete);
            }
        }
    }
    fn continue_fill(&mut self, c: &mut Cluster, pool: PoolId) {
        let filling = self.in_flight.iter().filter(|op| is_filler(&op.object.1)).count();
        if self.fillers < self.fillers_wanted && filling < FILLING_MAX {
            let name = format!("filler.{}", self.fillers);
            let data = Bytes::from(name.repeat(FILLER / name.len()));
            self.fillers += 1;
            self.submit(c, 0, pool, name, Action::WriteFull(data));
        }
    }

    pub fn is_idle(&self) -> bool {
        self.in_flight.is_empty() && self.snap_requests.is_empty() && self.forbidden.is_none()
    }

    /// Creates one more snapshot of a pool.
    pub fn take_snap(&mut self, c: &mut Cluster, pool: PoolId) {
        let request = c.submit(0, RequestKind::CreateSnap { pool });
        self.snap_requests.push(SnapRequest { request, pool, removes: None });
    }

    /// Removes one of a pool's snapshots unless a request in flight uses it.
    pub fn remove_snap(&mut self, c: &mut Cluster, pool: PoolId) {
        let Some(snaps) = self.contexts.get(&pool).map(|context| context.snaps.clone()) else { return };
        let Some(snap) = self.rng.pick(&snaps).copied() else { return };
        let is_about = |op: &InFlight| [Action::ReadAt(snap), Action::Rollback(snap)].contains(&op.action);
        if self.in_flight.iter().any(|op| op.object.0 == pool && is_about(op)) {
            return;
        }
        self.contexts.get_mut(&pool).expect("it was just there").snaps.retain(|other| *other != snap);
        let since = self.tick();
        self.removed.entry(pool).or_default().insert(snap, since);
        let request = c.submit(0, RequestKind::RemoveSnap { pool, snap: SnapId(snap) });
        self.snap_requests.push(SnapRequest { request, pool, removes: Some(snap) });
    }

    fn note_snaps(&mut self, c: &mut Cluster) -> Result<(), String> {
        for asked in std::mem::take(&mut self.snap_requests) {
            match (c.take(0, asked.request), asked.removes) {
                (None, _) => self.snap_requests.push(asked),
                (Some(Ok(Output::Snap(snap))), None) => {
                    let context = self.contexts.entry(asked.pool).or_default();
                    if snap.0 > context.seq {
                        context.seq = snap.0;
                        context.snaps.insert(0, snap.0);
                    }
                }
                (Some(Ok(Output::Done)), Some(_)) => {}
                (Some(other), _) => return Err(format!("a snapshot request was answered with {other:?}")),
            }
        }
        Ok(())
    }

    /// Requests in flight as text, for the report of a run that does not end.
    pub fn waits_for(&self) -> String {
        let ops: Vec<String> = self
            .in_flight
            .iter()
            .map(|op| {
                format!("client.{}: {:?} of {} in pool {}", op.client, op.action, op.object.1, op.object.0)
            })
            .collect();
        ops.join(", ")
    }

    fn draw(&mut self, pool: PoolId) -> Action {
        self.written += 1;
        let word = Bytes::from(format!("<{}>", self.written));
        let snaps = self.contexts.get(&pool).map_or(&[][..], |context| &context.snaps);
        let no_omap = self.without_omap.contains(&pool);
        match self.rng.below(20) {
            6 | 12 if no_omap => Action::Append(word),
            0 => Action::WriteFull(word),
            1..=3 => Action::Append(word),
            4 => Action::Write(self.rng.below(20), word),
            // Larger than a block, or than what fits into the write-ahead log.
            5 => {
                let times = *self.rng.pick(&[2000, 2000, 20_000]).expect("some");
                Action::Write(self.rng.below(8) * 1000, Bytes::from(word.repeat(times)))
            }
            6 => Action::AppendAndKey(format!("key{}", self.rng.below(5)), word),
            7 => Action::Create(word),
            8 => Action::Delete,
            9 => Action::AppendAndAttr(format!("attr{}", self.rng.below(3)), word),
            10 => Action::Truncate(self.rng.below(3) * self.rng.below(5000)),
            11 => Action::Zero(self.rng.below(3) * self.rng.below(4000), 1 + self.rng.below(5000)),
            12 if self.rng.chance(200) => Action::ClearOmap,
            12 => {
                let (key, name) = (self.rng.below(5), self.rng.below(3));
                Action::RemoveKeyAndAttr(format!("key{key}"), format!("attr{name}"))
            }
            13 if let Some(snap) = self.rng.pick(snaps) => Action::Rollback(*snap),
            14 | 15 if let Some(snap) = self.rng.pick(snaps) => Action::ReadAt(*snap),
            _ => Action::Read,
        }
    }

    fn submit(&mut self, c: &mut Cluster, client: usize, pool: PoolId, name: String, action: Action) {
        // Snapshots would keep the space of these objects when they are deleted.
        let context = self.contexts.get(&pool).filter(|_| !is_filler(&name)).cloned().unwrap_or_default();
        let mut request = ObjectRequest::new(pool, name.as_str());
        request.snap_seq = SnapId(context.seq);
        request.snaps = context.snaps.iter().copied().map(SnapId).collect();
        // Without the flag, a write waits for space.
        if is_filler(&name) || self.rng.chance(200) {
            request.flags |= op_flags::message::FULL_TRY;
        }
        let key = |key: &String| Name::from(key.as_str());
        let request = match &action {
            Action::WriteFull(data) => request.write_full(data.clone()),
            Action::Append(data) => request.append(data.clone()),
            Action::Write(offset, data) => request.write(*offset, data.clone()),
            Action::AppendAndKey(name, data) => {
                request.append(data.clone()).omap_set([(key(name), data.clone())])
            }
            Action::AppendAndAttr(name, data) => {
                request.append(data.clone()).set_xattr(name.as_str(), data.clone())
            }
            Action::RemoveKeyAndAttr(name, attr) => {
                request.create(false).omap_remove([key(name)]).remove_xattr(attr.as_str())
            }
            Action::ClearOmap => request.create(false).omap_clear(),
            Action::Truncate(size) => request.truncate(*size),
            Action::Zero(offset, len) => request.zero(*offset, *len),
            Action::Create(data) => request.create(true).write_full(data.clone()),
            Action::Delete => request.remove(),
            Action::Rollback(snap) => request.op(Op::Rollback { snap: SnapId(*snap) }),
            Action::Read => request.read(0, 0).omap_get("", 100).get_xattrs(),
            Action::ReadAt(snap) => {
                let request = ObjectRequest { snap: SnapId(*snap), ..request };
                request.read(0, 0).omap_get("", 100).get_xattrs()
            }
        };
        let asked = self.tick();
        let request = c.submit(client, Request::from(request));
        self.in_flight.push(InFlight { client, request, object: (pool, name), asked, action, context });
    }

    pub fn collect_replies(&mut self, c: &mut Cluster) -> Result<(), String> {
        self.note_snaps(c)?;
        self.check_forbidden(c)?;
        let mut waiting = Vec::new();
        for op in std::mem::take(&mut self.in_flight) {
            let Some(result) = c.take(op.client, op.request) else {
                waiting.push(op);
                continue;
            };
            let answer = interpret(&op.action, result)
                .map_err(|why| format!("{:?} of {}: {why}", op.action, op.object.1))?;
            self.answered += 1;
            let answered = self.tick();
            let InFlight { asked, action, context, .. } = op;
            let entry = Entry { asked, answered, action, context, answer };
            self.histories.entry(op.object).or_default().push(entry);
        }
        self.in_flight = waiting;
        Ok(())
    }

    /// Reads every object that was ever written once more: its head and all snapshots.
    pub fn read_all(&mut self, c: &mut Cluster) {
        let objects: Vec<_> = self.histories.keys().cloned().collect();
        for (pool, name) in objects {
            let context = self.contexts.get(&pool).filter(|_| !is_filler(&name));
            let snaps = context.map_or(Vec::new(), |context| context.snaps.clone());
            let looks = snaps.into_iter().map(Action::ReadAt).chain([Action::Read]);
            looks.for_each(|look| self.submit(c, 0, pool, name.clone(), look));
        }
    }

    pub fn check(&self) -> Result<(), String> {
        let nothing = BTreeMap::new();
        for ((pool, name), entries) in &self.histories {
            let removed = self.removed.get(pool).unwrap_or(&nothing);
            linearizable(entries, removed).map_err(|why| format!("{name} in pool {pool}: {why}"))?;
        }
        Ok(())
    }
}

/// Whether an object exists only to fill disks.
fn is_filler(name: &str) -> bool {
    name.starts_with("filler")
}

/// Whether the last reply about an object says that it exists.
fn is_there(entries: &[Entry]) -> bool {
    entries.last().is_none_or(|entry| entry.action != Action::Delete && entry.answer != Answer::Refused)
}

fn interpret(action: &Action, result: Result<Output, Failure>) -> Result<Answer, String> {
    match (action, result) {
        (Action::Read | Action::ReadAt(_), Ok(Output::Object(reply))) => Ok(Answer::Value(contents(&reply)?)),
        (Action::Read | Action::ReadAt(_), Err(e)) if e.errno == errno::ENOENT => Ok(Answer::NotFound),
        (Action::Delete, Err(e)) if e.errno == errno::ENOENT => Ok(Answer::NotFound),
        (Action::Create(_), Err(e)) if e.errno == errno::EEXIST => Ok(Answer::Exists),
        (Action::Read | Action::ReadAt(_), other) => Err(format!("answered with {other:?}")),
        (_, Ok(Output::Object(_))) => Ok(Answer::Done),
        (_, Err(e)) if e.errno == errno::ENOSPC => Ok(Answer::Refused),
        (_, other) => Err(format!("answered with {other:?}")),
    }
}

fn contents(reply: &ObjectReply) -> Result<Contents, String> {
    let [data, omap, attrs] = &reply.ops[..] else { return Err(format!("{} outputs", reply.ops.len())) };
    let (pairs, more): (BTreeMap<String, Bytes>, bool) =
        from_slice(&omap.data).map_err(|e| format!("an omap that cannot be read: {e}"))?;
    if more {
        return Err("more keys than were ever set".into());
    }
    let attrs = from_slice(&attrs.data).map_err(|e| format!("attributes that cannot be read: {e}"))?;
    Ok(Contents { data: data.data.to_vec(), attrs, omap: pairs })
}
