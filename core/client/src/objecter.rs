//! Who serves which object, what was sent to whom, and what must be sent again.
//!
//! Ceph's OSDs and ours rely on the rules here: an OSD forgets a request exactly when the client is
//! bound to send it again. That is when
//!   - the placement group's primary changed, or there is one again,
//!   - the object's group changed, or split, or took in another one,
//!   - the pool demands it (`last_force_op_resend`),
//!   - the session with the OSD was reset, or the OSD came back under another address,
//!   - maps were jumped over, so that nobody can tell what happened in between,
//!   - it was paused and no longer is, or the OSD told us to back off and takes it back.
//!
//! A request keeps its tid in all attempts, which is how OSDs tell a repetition, and they leave in
//! the order of their tids. Read `Entry`, then `on_map` and `retarget`, then `try_send`.

use crate::request::{Failure, ObjectReply, ObjectRequest, OpOutput};
use crate::wire_out::Out;
use bytes::Bytes;
use nacre_base::{Epoch, Name, OsdId, PgId, Rng, ShardId, Utime, errno};
use nacre_machine::{Closed, ConnId, Level, TimerId};
use nacre_proto::maps::{
    Incremental, OsdMap, Uuid, is_merge_source, is_merge_target, is_split, map_flags, pool_flags,
};
use nacre_proto::messages::{
    BackoffOp, Command, CommandReply, Message, OsdBackoff, OsdMapMsg, OsdOp, OsdOpReply,
};
use nacre_proto::types::{
    EntityAddr, EntityType, ObjectId, ObjectLocator, ReqId, SpgId, op_flags::message as flag,
};
use nacre_wire::from_slice;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// One timer for each OSD, from here on: it may be dialled again.
const TIMERS: TimerId = 1 << 32;
/// Between attempts to reach an OSD that is up by the map, doubling.
const REDIAL_MIN: Duration = Duration::from_millis(20);
const REDIAL_MAX: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Objecter {
    map: Option<Arc<OsdMap>>,
    /// Primaries by the current map, with the shard that they hold; filled as they are asked for.
    primaries: BTreeMap<PgId, Option<(OsdId, ShardId)>>,
    entries: BTreeMap<u64, Entry>,
    /// Entries that no OSD has, oldest first: those that wait for something, or for `send_all`.
    unsent: BTreeSet<u64>,
    sessions: BTreeMap<OsdId, Session>,
    by_conn: BTreeMap<ConnId, OsdId>,
    done: Vec<(u64, Result<OpDone, Failure>)>,
    rng: Rng,
}

/// One tid's work.
#[derive(Debug)]
pub(crate) enum Work {
    Object {
        request: Box<ObjectRequest>,
        /// Its object; in a listing where the cursor is.
        id: ObjectId,
        is_listing: bool,
        mtime: Utime,
    },
    Command {
        osd: OsdId,
        command: Command,
    },
}

impl Work {
    pub(crate) fn object(request: ObjectRequest, now: Utime) -> Work {
        let (namespace, key) = (request.namespace.clone(), request.key.clone());
        let id = ObjectId::head(request.pool, namespace, key, request.name.clone());
        let mtime = request.mtime.unwrap_or(now);
        Work::Object { request: request.into(), id, is_listing: false, mtime }
    }
    /// `request` has a `List` as its only operation, whose cursor is at `hash`.
    pub(crate) fn listing(request: ObjectRequest, hash: u32, now: Utime) -> Work {
        let id = ObjectId {
            hash,
            ..ObjectId::head(request.pool, Name::default(), Name::default(), Name::default())
        };
        Work::Object { request: request.into(), id, is_listing: true, mtime: now }
    }
}

#[derive(Debug)]
pub(crate) enum OpDone {
    Object { reply: ObjectReply },
    Command { status: String, output: Bytes },
}

#[derive(Debug)]
struct Entry {
    work: Work,
    /// Who serves it by our map; none while nobody does.
    place: Option<Place>,
    /// The map (or the pool, or the OSD) says that it must not be sent now.
    paused: bool,
    /// Where it is on its way. None: in `unsent`.
    sent: Option<Sent>,
    /// How often it was sent.
    attempts: u32,
    missing: Missing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sent {
    conn: ConnId,
    /// The map by which it was sent.
    epoch: Epoch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    osd: OsdId,
    /// None for a command, which is for the OSD itself.
    spg: Option<(SpgId, u32)>,
}

/// What is known about a pool or OSD that our map does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Missing {
    /// Not looked yet.
    Unknown,
    /// It was there: if it is not, it was taken away.
    Seen,
    /// The monitors are to be asked for the newest epoch, ...
    Doubted,
    /// ... were asked, ...
    Asked,
    /// ... and said that this one decides.
    By(Epoch),
}

#[derive(Debug)]
struct Session {
    addr: EntityAddr,
    /// None while waiting to dial again.
    conn: Option<ConnId>,
    /// The peer's, once the session is open.
    features: Option<u64>,
    /// Closed sessions since the OSD last said something.
    failures: u32,
    backoffs: BTreeMap<(SpgId, u64), Backoff>,
}

/// Objects that an OSD does not want requests about.
#[derive(Debug)]
struct Backoff {
    begin: ObjectId,
    end: ObjectId,
}

impl Backoff {
    fn covers(&self, id: &ObjectId) -> bool {
        *id == self.begin || (self.begin < *id && *id < self.end)
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum MapNews {
    Nothing,
    Newer(Epoch),
    /// What came does not fit on what we have.
    Gap {
        have: Epoch,
        /// A whole map is needed.
        whole: bool,
    },
}

impl Objecter {
    pub(crate) fn new(rng: Rng) -> Objecter {
        Objecter {
            map: None,
            primaries: BTreeMap::new(),
            entries: BTreeMap::new(),
            unsent: BTreeSet::new(),
            sessions: BTreeMap::new(),
            by_conn: BTreeMap::new(),
            done: Vec::new(),
            rng,
        }
    }

    pub(crate) fn map(&self) -> Option<&Arc<OsdMap>> {
        self.map.as_ref()
    }
    fn epoch(&self) -> Epoch {
        self.map.as_ref().map_or(Epoch(0), |map| map.epoch)
    }

    pub(crate) fn submit(&mut self, tid: u64, work: Work, out: &mut Out<'_>) {
        let missing = Missing::Unknown;
        let entry = Entry { work, place: None, paused: false, sent: None, attempts: 0, missing };
        self.entries.insert(tid, entry);
        self.unsent.insert(tid);
        self.retarget(tid, false);
        self.try_send(tid, out);
    }

    /// Drops what was submitted: it is not sent again, and an answer is ignored.
    pub(crate) fn forget(&mut self, tid: u64) {
        self.entries.remove(&tid);
        self.unsent.remove(&tid);
    }

    pub(crate) fn take_done(&mut self) -> Vec<(u64, Result<OpDone, Failure>)> {
        std::mem::take(&mut self.done)
    }

    fn finish(&mut self, tid: u64, result: Result<OpDone, Failure>) {
        self.forget(tid);
        self.done.push((tid, result));
    }

    pub(crate) fn stop(&mut self, out: &mut Out<'_>) {
        for (osd, session) in std::mem::take(&mut self.sessions) {
            session.conn.into_iter().for_each(|conn| out.hang_up(conn));
            out.disarm(timer(osd));
        }
        self.by_conn.clear();
        self.entries.clear();
        self.unsent.clear();
    }

    // ---- maps ----

    /// Takes in maps from a monitor or an OSD. `fsid` is the cluster's.
    pub(crate) fn on_map(&mut self, message: &OsdMapMsg, fsid: Uuid, out: &mut Out<'_>) -> MapNews {
        if message.fsid != fsid {
            out.log(Level::Warn, "dropped maps of another cluster");
            return MapNews::Nothing;
        }
        let before = self.epoch();
        let mut gap = None;
        while let Some(result) = self.next_map(message) {
            match result {
                Ok(map) => {
                    let jumped = before != Epoch(0) && map.epoch != self.epoch().next();
                    self.adopt(map, jumped, out);
                }
                Err(why) => {
                    out.log(Level::Warn, format!("map after epoch {}: {why}", self.epoch()));
                    gap = Some(MapNews::Gap { have: self.epoch(), whole: true });
                    break;
                }
            }
        }
        self.send_all(out);
        if let Some(gap) = gap {
            return gap;
        }
        let have = self.epoch();
        let last = message.incrementals.keys().chain(message.full.keys()).max();
        if last.is_some_and(|&last| last > have) {
            MapNews::Gap { have, whole: have == Epoch(0) }
        } else if have > before {
            MapNews::Newer(have)
        } else {
            MapNews::Nothing
        }
    }

    /// The map in `message` that comes next: by an incremental if it has the right one, else the
    /// next whole one.
    fn next_map(&self, message: &OsdMapMsg) -> Option<Result<OsdMap, String>> {
        let Some(map) = &self.map else {
            let (_, newest) = message.full.last_key_value()?;
            return Some(from_slice(newest).map_err(|e| e.to_string()));
        };
        if let Some(bytes) = message.incrementals.get(&map.epoch.next()) {
            let inc = from_slice::<Incremental>(bytes).map_err(|e| e.to_string());
            return Some(inc.and_then(|inc| map.apply(&inc).map_err(|e| e.to_string())));
        }
        let (&epoch, whole) = message.full.range(map.epoch.next()..).next()?;
        Some(match from_slice::<OsdMap>(whole) {
            Ok(whole) if whole.epoch == epoch => Ok(whole),
            Ok(whole) => Err(format!("epoch {} came as {epoch}", whole.epoch)),
            Err(e) => Err(e.to_string()),
        })
    }

    /// Looks at every request by the light of one new map. `jumped`: there were others in between.
    fn adopt(&mut self, map: OsdMap, jumped: bool, out: &mut Out<'_>) {
        self.map = Some(Arc::new(map));
        self.primaries.clear();
        let map = self.map.clone().expect("just set");
        let moved: Vec<OsdId> = self
            .sessions
            .iter()
            .filter(|(osd, session)| !map.is_up(**osd) || address(&map, **osd) != Some(session.addr))
            .map(|(&osd, _)| osd)
            .collect();
        for osd in moved {
            let session = self.sessions.remove(&osd).expect("it was just found");
            out.disarm(timer(osd));
            if let Some(conn) = session.conn {
                out.hang_up(conn);
                self.by_conn.remove(&conn);
                self.unsend(|_, sent| sent.conn == conn);
            }
        }
        let tids: Vec<u64> = self.entries.keys().copied().collect();
        for tid in tids {
            self.retarget(tid, jumped);
        }
    }

    /// Puts what was sent and matches back among what is to be sent.
    fn unsend(&mut self, which: impl Fn(&Entry, &Sent) -> bool) {
        for (&tid, entry) in &mut self.entries {
            if entry.sent.is_some_and(|sent| which(entry, &sent)) {
                entry.sent = None;
                self.unsent.insert(tid);
            }
        }
    }

    fn primary(&mut self, map: &OsdMap, pg: PgId) -> Option<(OsdId, ShardId)> {
        *self.primaries.entry(pg).or_insert_with(|| {
            let now = map.pg_to_up_acting(pg);
            Some((now.acting_primary?, now.primary_shard()))
        })
    }

    /// Finds out who serves a request now, and whether that means to send it (again).
    fn retarget(&mut self, tid: u64, force: bool) {
        let Some(map) = self.map.clone() else { return };
        let Some(entry) = self.entries.get(&tid) else { return };
        let found = match &entry.work {
            Work::Command { osd, .. } if !map.exists(*osd) => {
                Err(Failure::new(errno::ENOENT, format!("no osd.{osd}")))
            }
            Work::Command { osd, .. } if !map.is_up(*osd) => {
                Err(Failure::new(errno::ENXIO, format!("osd.{osd} is down")))
            }
            Work::Command { osd, .. } => Ok((Some(Place { osd: *osd, spg: None }), false)),
            Work::Object { request, id, .. } => match map.pool(request.pool) {
                None => Err(Failure::new(errno::ENOENT, format!("no pool {}", request.pool))),
                Some(pool) => {
                    let pg = PgId { pool: request.pool, seed: pool.raw_pg_to_pg(id.hash) };
                    let (paused, pg_num) = (is_paused(&map, request), pool.pg_num);
                    let place = self
                        .primary(&map, pg)
                        .map(|(osd, shard)| Place { osd, spg: Some((SpgId { pg, shard }, pg_num)) });
                    Ok((place, paused))
                }
            },
        };
        let entry = self.entries.get_mut(&tid).expect("it was there");
        let (place, paused) = match found {
            Err(failure) => {
                entry.place = None;
                entry.sent = None;
                self.unsent.insert(tid);
                match entry.missing {
                    Missing::Unknown => entry.missing = Missing::Doubted,
                    Missing::Doubted | Missing::Asked => {}
                    Missing::By(epoch) if map.epoch < epoch => {}
                    Missing::Seen | Missing::By(_) => self.finish(tid, Err(failure)),
                }
                return;
            }
            Ok(found) => found,
        };
        entry.missing = Missing::Seen;
        let resumed = entry.paused && !paused;
        let forced = match (&entry.work, entry.sent) {
            (Work::Object { request, .. }, Some(sent)) => {
                map.pool(request.pool).is_some_and(|pool| sent.epoch < pool.last_force_op_resend)
            }
            _ => false,
        };
        if force || resumed || forced || has_moved(entry.place, place) {
            entry.sent = None;
            self.unsent.insert(tid);
        }
        (entry.place, entry.paused) = (place, paused);
    }

    /// Requests whose pool or OSD our map does not have, and about which nobody was asked: whoever
    /// takes them asks the monitors and then calls `confirm`.
    pub(crate) fn take_doubts(&mut self) -> Vec<u64> {
        let mut doubts = Vec::new();
        for &tid in &self.unsent {
            let entry = self.entries.get_mut(&tid).expect("what is unsent has an entry");
            if entry.missing == Missing::Doubted {
                entry.missing = Missing::Asked;
                doubts.push(tid);
            }
        }
        doubts
    }

    /// `newest` was the newest epoch after `take_doubts` gave these.
    pub(crate) fn confirm(&mut self, tids: &[u64], newest: Epoch, out: &mut Out<'_>) {
        for &tid in tids {
            if let Some(entry) = self.entries.get_mut(&tid)
                && entry.missing == Missing::Asked
            {
                entry.missing = Missing::By(newest);
                self.retarget(tid, false);
                self.try_send(tid, out);
            }
        }
    }

    // ---- sending ----

    /// Sends what can be sent, oldest first.
    fn send_all(&mut self, out: &mut Out<'_>) {
        let tids: Vec<u64> = self.unsent.iter().copied().collect();
        for tid in tids {
            self.try_send(tid, out);
        }
    }

    fn try_send(&mut self, tid: u64, out: &mut Out<'_>) {
        let (Some(map), Some(entry)) = (self.map.clone(), self.entries.get(&tid)) else { return };
        let (None, false, Some(place)) = (entry.sent, entry.paused, entry.place) else { return };
        let Some(session) = self.sessions.get(&place.osd) else { return self.dial(place.osd, out) };
        let (Some(conn), Some(features)) = (session.conn, session.features) else { return };
        let message = match &entry.work {
            Work::Command { command, .. } => Command { fsid: map.fsid, ..command.clone() }.into(),
            Work::Object { request, id, is_listing, mtime } => {
                let (spg, _) = place.spg.expect("an object has a placement group");
                let in_group = (spg, 0)..=(spg, u64::MAX);
                if session.backoffs.range(in_group).any(|(_, backoff)| backoff.covers(id)) {
                    return;
                }
                let op = message(request, id, *is_listing, *mtime, spg, map.epoch, entry.attempts, features);
                Message::OsdOp(Box::new(op))
            }
        };
        out.send(conn, tid, message);
        let entry = self.entries.get_mut(&tid).expect("it was there");
        entry.sent = Some(Sent { conn, epoch: map.epoch });
        entry.attempts += 1;
        self.unsent.remove(&tid);
    }

    fn dial(&mut self, osd: OsdId, out: &mut Out<'_>) {
        let Some(addr) = self.map.as_ref().and_then(|map| address(map, osd)) else { return };
        let conn = out.dial(addr, EntityType::Osd);
        let session = self.sessions.entry(osd).or_insert_with(|| Session {
            addr,
            conn: None,
            features: None,
            failures: 0,
            backoffs: BTreeMap::new(),
        });
        session.conn = Some(conn);
        self.by_conn.insert(conn, osd);
    }

    // ---- sessions ----

    pub(crate) fn on_opened(&mut self, conn: ConnId, features: u64, out: &mut Out<'_>) {
        let Some(session) = self.by_conn.get(&conn).and_then(|osd| self.sessions.get_mut(osd)) else {
            return;
        };
        session.features = Some(features);
        self.send_all(out);
    }

    pub(crate) fn on_closed(&mut self, conn: ConnId, why: &Closed, out: &mut Out<'_>) {
        let Some(osd) = self.by_conn.remove(&conn) else { return };
        self.unsend(|_, sent| sent.conn == conn);
        let session = self.sessions.get_mut(&osd).expect("a connection belongs to a session");
        (session.conn, session.features) = (None, None);
        session.backoffs.clear();
        session.failures += 1;
        let failures = session.failures;
        out.log(Level::Debug, format!("osd.{osd}: {why}"));
        // What worked until now is tried again at once.
        if failures == 1 && *why == Closed::Reset {
            return self.redial(osd, out);
        }
        let wait = (REDIAL_MIN * 2_u32.pow(failures.min(10))).min(REDIAL_MAX);
        out.arm(timer(osd), self.rng.duration(wait / 2, wait));
    }

    /// Dials again if there is something to send.
    fn redial(&mut self, osd: OsdId, out: &mut Out<'_>) {
        let wanted = |tid: &u64| self.entries[tid].place.is_some_and(|place| place.osd == osd);
        if self.unsent.iter().any(wanted) {
            self.dial(osd, out);
        } else {
            self.sessions.remove(&osd);
        }
    }

    pub(crate) fn on_timer(&mut self, timer: TimerId, out: &mut Out<'_>) {
        let Some(osd) = timer.checked_sub(TIMERS).and_then(|n| i32::try_from(n).ok()).map(OsdId) else {
            return;
        };
        if self.sessions.get(&osd).is_some_and(|session| session.conn.is_none()) {
            self.redial(osd, out);
        }
    }

    pub(crate) fn on_message(&mut self, conn: ConnId, tid: u64, message: Message, out: &mut Out<'_>) {
        let Some(&osd) = self.by_conn.get(&conn) else { return };
        let session = self.sessions.get_mut(&osd).expect("a connection belongs to a session");
        session.failures = 0;
        match message {
            Message::OsdOpReply(reply) => self.on_reply(conn, tid, *reply, out),
            Message::CommandReply(reply) => self.on_command_reply(conn, tid, reply),
            Message::OsdBackoff(backoff) => self.on_backoff(conn, osd, backoff, out),
            other => out.log(Level::Debug, format!("no use for {} from osd.{osd}", other.name())),
        }
    }

    fn on_reply(&mut self, conn: ConnId, tid: u64, reply: OsdOpReply, out: &mut Out<'_>) {
        let Some(entry) = self.entries.get(&tid) else { return };
        let Work::Object { request, .. } = &entry.work else { return };
        // An OSD that we no longer count on may answer late, and so may the right one to an attempt
        // before the last: that answer is for a request which was since sent anew.
        let sent_there = entry.sent.is_some_and(|sent| sent.conn == conn);
        let last_attempt = reply.retry_attempt < 0 || reply.retry_attempt as u32 + 1 == entry.attempts;
        if !sent_there || !last_attempt {
            return out.log(Level::Debug, format!("dropped a late answer to {tid}"));
        }
        let ops: Vec<OpOutput> =
            reply.ops.into_iter().map(|op| OpOutput { rval: op.rval, data: op.data }).collect();
        let result = if ops.len() != request.ops.len() {
            Err(Failure::new(
                errno::EIO,
                format!("{} answers to {} operations", ops.len(), request.ops.len()),
            ))
        } else if reply.result < 0 {
            Err(Failure { errno: reply.result.saturating_neg(), text: String::new(), ops })
        } else {
            let version = reply.replay_version;
            Ok(OpDone::Object { reply: ObjectReply { user_version: reply.user_version, version, ops } })
        };
        self.finish(tid, result);
    }

    fn on_command_reply(&mut self, conn: ConnId, tid: u64, reply: CommandReply) {
        let Some(entry) = self.entries.get(&tid) else { return };
        if !matches!(entry.work, Work::Command { .. }) || entry.sent.is_none_or(|sent| sent.conn != conn) {
            return;
        }
        let CommandReply { retval, status, output } = reply;
        self.finish(
            tid,
            match retval {
                0.. => Ok(OpDone::Command { status, output }),
                _ => Err(Failure::new(retval.saturating_neg(), status)),
            },
        );
    }

    fn on_backoff(&mut self, conn: ConnId, osd: OsdId, message: OsdBackoff, out: &mut Out<'_>) {
        let session = self.sessions.get_mut(&osd).expect("a connection belongs to a session");
        let OsdBackoff { spg, id, .. } = message;
        match message.op {
            BackoffOp::Block => {
                let backoff = Backoff { begin: message.begin.clone(), end: message.end.clone() };
                session.backoffs.insert((spg, id), backoff);
                out.send(conn, 0, OsdBackoff { op: BackoffOp::AckBlock, ..message });
            }
            BackoffOp::Unblock => {
                let Some(backoff) = session.backoffs.remove(&(spg, id)) else { return };
                // The OSD dropped those that it had, too.
                self.unsend(|entry, sent| {
                    let in_group = entry.place.and_then(|place| place.spg).is_some_and(|(s, _)| s == spg);
                    let covered = matches!(&entry.work, Work::Object { id, .. } if backoff.covers(id));
                    sent.conn == conn && in_group && covered
                });
                self.send_all(out);
            }
            BackoffOp::AckBlock => {}
        }
    }
}

fn timer(osd: OsdId) -> TimerId {
    TIMERS + osd.0.max(0) as u64
}

fn address(map: &OsdMap, osd: OsdId) -> Option<EntityAddr> {
    map.addrs(osd).and_then(|addrs| addrs.msgr2())
}

/// Whether a request that was sent to `old` must be sent again to `new`.
fn has_moved(old: Option<Place>, new: Option<Place>) -> bool {
    match (old, new) {
        (Some(Place { osd: from, spg: Some((spg, was)) }), Some(Place { osd: to, spg: Some((now, is)) })) => {
            let pg = spg.pg;
            let resized = was != is
                && (is_split(pg, was, is) || is_merge_source(pg, was, is) || is_merge_target(pg, was, is));
            from != to || spg != now || resized
        }
        (old, new) => old != new,
    }
}

/// Whether the map holds such requests back.
fn is_paused(map: &OsdMap, request: &ObjectRequest) -> bool {
    let (reads, writes) = request.modes();
    let tries = request.flags & (flag::FULL_TRY | flag::FULL_FORCE) != 0;
    let pool_full = map.pool(request.pool).is_some_and(|pool| pool.has(pool_flags::FULL));
    let full = !tries && (map.has(map_flags::FULL) || pool_full);
    (reads && map.has(map_flags::PAUSERD)) || (writes && (map.has(map_flags::PAUSEWR) || full))
}

fn message(
    request: &ObjectRequest,
    id: &ObjectId,
    is_listing: bool,
    mtime: Utime,
    spg: SpgId,
    epoch: Epoch,
    attempts: u32,
    features: u64,
) -> OsdOp {
    let (reads, writes) = request.modes();
    let mut flags = request.flags | flag::ONDISK;
    // A listing is about the pool as it is, cache tier or not.
    flags |= if is_listing { flag::IGNORE_OVERLAY } else { 0 } | flag::KNOWN_REDIR;
    flags |= if reads { flag::READ } else { 0 };
    flags |= if writes { flag::WRITE } else { 0 };
    flags |= if attempts > 0 { flag::RETRY } else { 0 };
    OsdOp {
        spg,
        hash: id.hash,
        epoch,
        flags,
        reqid: ReqId::default(),
        client_inc: 0,
        mtime,
        locator: ObjectLocator {
            pool: request.pool,
            key: request.key.clone(),
            namespace: request.namespace.clone(),
            hash: is_listing.then_some(i64::from(id.hash)),
        },
        name: request.name.clone(),
        ops: request.ops.clone(),
        snap: request.snap,
        snap_seq: request.snap_seq,
        snaps: request.snaps.clone(),
        retry_attempt: attempts as i32,
        features,
    }
}
