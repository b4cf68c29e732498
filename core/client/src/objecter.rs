//! Which OSD serves which object, what was sent to it, and what must be sent again.
//!
//! Ceph's OSDs and ours rely on the rules here: an OSD forgets a request exactly when the client is
//! bound to send it again. That is when
//!   - the placement group's primary changed, or there is one again,
//!   - the object's placement group changed, or split, or took in another one,
//!   - the pool demands it (`last_force_op_resend`),
//!   - the session with the OSD was reset, or the OSD came back under another address,
//!   - maps were skipped, so that it is unknown what happened in between,
//!   - it was paused and no longer is, or the OSD sent a backoff and ends it.
//!
//! A request keeps its tid in all attempts, which is how OSDs tell a repetition, and they leave in
//! the order of their tids. The exception are requests that linger (watches and notifies): an OSD must
//! carry those out again, so their owner gives them another tid (`take_displaced`).
//!
//! Requests are indexed by placement group, and a new map is compared with the last one
//! (`placements`), so that only those are examined which it may concern.
//! Read `Entry`, then `on_map` and `retarget`, then `try_send`.

use crate::object::ObjectRequest;
use crate::placements::{Affected, Placements};
use crate::request::{Failure, ObjectReply, OpOutput};
use crate::sessions::Session;
use bytes::Bytes;
use nacre_base::{Epoch, Name, OsdId, PgId, Rng, Time, Utime, errno};
use nacre_machine::{Closed, ConnId, Context, Level};
use nacre_proto::maps::{
    Incremental, OsdMap, Uuid, is_merge_source, is_merge_target, is_split, map_flags, pool_flags,
};
use nacre_proto::messages::{
    BackoffOp, Command, CommandReply, Message, OsdBackoff, OsdMapMsg, OsdOp, OsdOpReply, WatchNotify,
};
use nacre_proto::types::{
    EntityAddr, EntityType, ObjectId, ObjectLocator, ReqId, SpgId, op_flags::message as flag,
};
use nacre_wire::from_slice;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Between attempts to reach an OSD that is up by the map, doubling.
const REDIAL_MIN: Duration = Duration::from_millis(20);
const REDIAL_MAX: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Objecter {
    map: Option<Arc<OsdMap>>,
    pub(crate) placements: Placements,
    entries: BTreeMap<u64, Entry>,
    /// Entries by their placement group.
    in_pg: BTreeSet<(PgId, u64)>,
    /// Entries without one: commands for OSDs, and those whose pool the map does not have.
    outside: BTreeSet<u64>,
    /// Entries that no OSD has, by the OSD that is to get them, if there is one.
    unsent: BTreeSet<(Option<OsdId>, u64)>,
    /// Those of `unsent` for which something changed: they are tried before the event ends.
    ready: BTreeSet<u64>,
    /// Entries whose pool or OSD the map does not have, and about which no monitor was asked yet.
    doubts: Vec<u64>,
    sessions: BTreeMap<OsdId, Session>,
    by_conn: BTreeMap<ConnId, OsdId>,
    /// When sessions may be dialled again.
    redials: BTreeSet<(Time, OsdId)>,
    results: Results,
    rng: Rng,
}

/// What the owner of an objecter takes after each event.
#[derive(Debug, Default)]
struct Results {
    done: Vec<(u64, Result<OpDone, Failure>)>,
    displaced: Vec<u64>,
    notices: Vec<WatchNotify>,
}

/// One tid's work.
#[derive(Debug)]
pub(crate) enum Work {
    Object {
        request: Box<ObjectRequest>,
        /// Its object; in a listing where the cursor is.
        id: ObjectId,
        is_listing: bool,
        /// It stays after the OSD's answer until `forget`.
        lingers: bool,
        mtime: Utime,
    },
    Command {
        to: CommandTarget,
        command: Command,
    },
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum CommandTarget {
    Osd(OsdId),
    /// The primary of a placement group.
    Pg(PgId),
}

impl Work {
    pub(crate) fn object(request: ObjectRequest, now: Utime) -> Work {
        let (namespace, key) = (request.namespace.clone(), request.key.clone());
        let id = ObjectId::head(request.pool, namespace, key, request.name.clone());
        let mtime = request.mtime.unwrap_or(now);
        Work::Object { request: request.into(), id, is_listing: false, lingers: false, mtime }
    }
    /// A watch or a notify: when its OSD may have forgotten it, it is reported as displaced.
    pub(crate) fn lingering(request: ObjectRequest, now: Utime) -> Work {
        match Work::object(request, now) {
            Work::Object { request, id, is_listing, mtime, .. } => {
                Work::Object { request, id, is_listing, lingers: true, mtime }
            }
            command => command,
        }
    }
    /// `request` has a `List` as its only operation, whose cursor is at `hash`.
    pub(crate) fn listing(request: ObjectRequest, hash: u32, now: Utime) -> Work {
        let id = ObjectId {
            hash,
            ..ObjectId::head(request.pool, Name::default(), Name::default(), Name::default())
        };
        Work::Object { request: request.into(), id, is_listing: true, lingers: false, mtime: now }
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
    /// Where it is indexed. None: in `outside`.
    pg: Option<PgId>,
    /// The OSD that serves it by our map, if any.
    target: Option<Target>,
    /// The map (or the pool, or the OSD) says that it must not be sent now.
    paused: bool,
    /// Where it is on its way. None: in `unsent`.
    sent: Option<Sent>,
    /// How often it was sent.
    attempts: u32,
    missing: Missing,
}

impl Entry {
    fn osd(&self) -> Option<OsdId> {
        self.target.map(|target| target.osd)
    }
    fn lingers(&self) -> bool {
        matches!(self.work, Work::Object { lingers: true, .. })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sent {
    conn: ConnId,
    /// The map by which it was sent.
    epoch: Epoch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Target {
    osd: OsdId,
    /// The placement group and its pool's `pg_num`; none for a command, which is for the OSD itself.
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
            placements: Placements::default(),
            entries: BTreeMap::new(),
            in_pg: BTreeSet::new(),
            outside: BTreeSet::new(),
            unsent: BTreeSet::new(),
            ready: BTreeSet::new(),
            doubts: Vec::new(),
            sessions: BTreeMap::new(),
            by_conn: BTreeMap::new(),
            redials: BTreeSet::new(),
            results: Results::default(),
            rng,
        }
    }

    pub(crate) fn map(&self) -> Option<&Arc<OsdMap>> {
        self.map.as_ref()
    }
    fn epoch(&self) -> Epoch {
        self.map.as_ref().map_or(Epoch(0), |map| map.epoch)
    }
    pub(crate) fn owns(&self, conn: ConnId) -> bool {
        self.by_conn.contains_key(&conn)
    }

    pub(crate) fn submit(&mut self, tid: u64, work: Work, cx: &mut Context<'_>) {
        let missing = Missing::Unknown;
        let entry = Entry { work, pg: None, target: None, paused: false, sent: None, attempts: 0, missing };
        self.entries.insert(tid, entry);
        self.outside.insert(tid);
        self.unsent.insert((None, tid));
        self.ready.insert(tid);
        self.retarget(tid, false);
        self.send_ready(cx);
    }

    /// Drops what was submitted: it is not sent again, and an answer is ignored.
    pub(crate) fn forget(&mut self, tid: u64) {
        let Some(entry) = self.entries.remove(&tid) else { return };
        match entry.pg {
            Some(pg) => self.in_pg.remove(&(pg, tid)),
            None => self.outside.remove(&tid),
        };
        if entry.sent.is_none() {
            self.unsent.remove(&(entry.osd(), tid));
            self.ready.remove(&tid);
        }
    }

    pub(crate) fn take_done(&mut self) -> Vec<(u64, Result<OpDone, Failure>)> {
        std::mem::take(&mut self.results.done)
    }
    /// Requests that linger and that their OSD may have forgotten: gone from here, to be submitted again
    /// under another tid.
    pub(crate) fn take_displaced(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.results.displaced)
    }
    /// What OSDs said about watches and notifies.
    pub(crate) fn take_notices(&mut self) -> Vec<WatchNotify> {
        std::mem::take(&mut self.results.notices)
    }

    fn finish(&mut self, tid: u64, result: Result<OpDone, Failure>) {
        self.forget(tid);
        self.results.done.push((tid, result));
    }

    pub(crate) fn stop(&mut self, cx: &mut Context<'_>) {
        for (_, session) in std::mem::take(&mut self.sessions) {
            session.conn.into_iter().for_each(|conn| cx.hang_up(conn));
        }
        self.by_conn.clear();
        self.redials.clear();
        let tids: Vec<u64> = self.entries.keys().copied().collect();
        tids.into_iter().for_each(|tid| self.forget(tid));
    }

    // ---- maps ----

    /// Takes in maps from a monitor or an OSD. `fsid` is the cluster's.
    pub(crate) fn on_map(&mut self, message: &OsdMapMsg, fsid: Uuid, cx: &mut Context<'_>) -> MapNews {
        if message.fsid != fsid {
            cx.log(Level::Warn, "dropped maps of another cluster");
            return MapNews::Nothing;
        }
        let before = self.epoch();
        let mut gap = None;
        while let Some(result) = self.next_map(message) {
            match result {
                Ok(map) => self.adopt(map, cx),
                Err(why) => {
                    cx.log(Level::Warn, format!("map after epoch {}: {why}", self.epoch()));
                    gap = Some(MapNews::Gap { have: self.epoch(), whole: true });
                    break;
                }
            }
        }
        self.send_ready(cx);
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

    /// Looks at the requests that one new map may concern.
    fn adopt(&mut self, map: OsdMap, cx: &mut Context<'_>) {
        let map = Arc::new(map);
        let old = self.map.replace(map.clone());
        let skipped = old.as_ref().is_some_and(|old| old.epoch.next() != map.epoch);
        let affected = match &old {
            Some(old) if !skipped => {
                let in_pg = &self.in_pg;
                let in_use = |pg: PgId| in_pg.range((pg, 0)..=(pg, u64::MAX)).next().is_some();
                self.placements.update(old, &map, in_use)
            }
            _ => {
                self.placements.clear();
                Affected::All
            }
        };
        self.close_moved_sessions(&map, cx);
        let tids: BTreeSet<u64> = match affected {
            Affected::All => self.entries.keys().copied().collect(),
            Affected::Some { pools, pgs } => {
                let of_pools = pools.into_iter().map(|pool| {
                    let pg = |seed| PgId { pool, seed };
                    (pg(0), 0)..=(pg(u32::MAX), u64::MAX)
                });
                let of_pgs = pgs.into_iter().map(|pg| (pg, 0)..=(pg, u64::MAX));
                let indexed = of_pools.chain(of_pgs).flat_map(|range| self.in_pg.range(range));
                indexed.map(|&(_, tid)| tid).chain(self.outside.iter().copied()).collect()
            }
        };
        for tid in tids {
            self.retarget(tid, skipped);
        }
    }

    /// Ends the sessions with OSDs that are down by the map, or elsewhere.
    fn close_moved_sessions(&mut self, map: &OsdMap, cx: &mut Context<'_>) {
        let has_moved =
            |osd: OsdId, session: &Session| !map.is_up(osd) || address(map, osd) != Some(session.addr);
        let moved = self.sessions.extract_if(.., |&osd, session| has_moved(osd, session));
        let moved: Vec<(OsdId, Session)> = moved.collect();
        for (osd, session) in moved {
            if let Some(at) = session.redial_at {
                self.redials.remove(&(at, osd));
            }
            if let Some(conn) = session.conn {
                cx.hang_up(conn);
                self.by_conn.remove(&conn);
                self.unsend_all(conn);
            }
        }
    }

    /// Puts what was sent on a connection back among what is to be sent.
    fn unsend_all(&mut self, conn: ConnId) {
        let sent_there = |entry: &Entry| entry.sent.is_some_and(|sent| sent.conn == conn);
        let tids: Vec<u64> =
            self.entries.iter().filter(|(_, entry)| sent_there(entry)).map(|(&tid, _)| tid).collect();
        tids.into_iter().for_each(|tid| self.unsend(tid));
    }

    /// The OSD that has a request may forget it, or has: it is to be sent again.
    fn unsend(&mut self, tid: u64) {
        let Some(entry) = self.entries.get_mut(&tid) else { return };
        if entry.lingers() && entry.attempts > 0 {
            self.forget(tid);
            self.results.displaced.push(tid);
        } else if entry.sent.take().is_some() {
            let osd = entry.osd();
            self.unsent.insert((osd, tid));
            self.ready.insert(tid);
        }
    }

    /// Takes in where a request belongs now.
    fn index(&mut self, tid: u64, pg: Option<PgId>, target: Option<Target>) {
        let Some(entry) = self.entries.get_mut(&tid) else { return };
        if entry.pg != pg {
            match std::mem::replace(&mut entry.pg, pg) {
                Some(old) => self.in_pg.remove(&(old, tid)),
                None => self.outside.remove(&tid),
            };
            match pg {
                Some(new) => self.in_pg.insert((new, tid)),
                None => self.outside.insert(tid),
            };
        }
        let old = entry.osd();
        entry.target = target;
        if entry.sent.is_none() {
            if entry.osd() != old {
                self.unsent.remove(&(old, tid));
                self.unsent.insert((entry.osd(), tid));
            }
            self.ready.insert(tid);
        }
    }

    /// Finds out which OSD serves a request now, and whether that means to send it (again).
    fn retarget(&mut self, tid: u64, force: bool) {
        let Some(map) = self.map.clone() else { return };
        let Some(entry) = self.entries.get(&tid) else { return };
        let found = locate(&mut self.placements, &map, &entry.work);
        let Some(entry) = self.entries.get_mut(&tid) else { return };
        let (pg, target, paused) = match found {
            Ok(found) => found,
            Err(failure) => {
                match entry.missing {
                    Missing::Unknown => {
                        entry.missing = Missing::Doubted;
                        self.doubts.push(tid);
                    }
                    Missing::Doubted | Missing::Asked => {}
                    Missing::By(epoch) if map.epoch < epoch => {}
                    Missing::Seen | Missing::By(_) => return self.finish(tid, Err(failure)),
                }
                return self.index(tid, None, None);
            }
        };
        entry.missing = Missing::Seen;
        let resumed = entry.paused && !paused;
        let forced = match (&entry.work, entry.sent) {
            (Work::Object { request, .. }, Some(sent)) => {
                map.pool(request.pool).is_some_and(|pool| sent.epoch < pool.last_force_op_resend)
            }
            _ => false,
        };
        let again = force || resumed || forced || has_moved(entry.target, target);
        entry.paused = paused;
        if again {
            self.unsend(tid);
        }
        self.index(tid, pg, target);
    }

    /// Requests whose pool or OSD our map does not have: their owner asks the monitors for the newest
    /// epoch and then calls `confirm`.
    pub(crate) fn take_doubts(&mut self) -> Vec<u64> {
        let mut doubts = std::mem::take(&mut self.doubts);
        doubts.retain(|tid| match self.entries.get_mut(tid) {
            Some(entry) if entry.missing == Missing::Doubted => {
                entry.missing = Missing::Asked;
                true
            }
            _ => false,
        });
        doubts
    }

    /// `newest` was the newest epoch after `take_doubts` gave these.
    pub(crate) fn confirm(&mut self, tids: &[u64], newest: Epoch, cx: &mut Context<'_>) {
        for &tid in tids {
            if let Some(entry) = self.entries.get_mut(&tid)
                && entry.missing == Missing::Asked
            {
                entry.missing = Missing::By(newest);
                self.retarget(tid, false);
            }
        }
        self.send_ready(cx);
    }

    // ---- sending ----

    /// Sends what can be sent of what something changed for, oldest first.
    fn send_ready(&mut self, cx: &mut Context<'_>) {
        while let Some(tid) = self.ready.pop_first() {
            self.try_send(tid, cx);
        }
    }

    fn try_send(&mut self, tid: u64, cx: &mut Context<'_>) {
        let (Some(map), Some(entry)) = (&self.map, self.entries.get_mut(&tid)) else { return };
        let (None, false, Some(target)) = (entry.sent, entry.paused, entry.target) else { return };
        let Some(session) = self.sessions.get(&target.osd) else { return self.dial(target.osd, cx) };
        let (Some(conn), Some(features)) = (session.conn, session.features) else { return };
        let message = match (&entry.work, target.spg) {
            (Work::Command { command, .. }, _) => Command { fsid: map.fsid, ..command.clone() }.into(),
            (Work::Object { request, id, is_listing, mtime, .. }, Some((spg, _))) => {
                if session.is_blocked(spg, id) {
                    return;
                }
                let op = message(request, id, *is_listing, *mtime, spg, map.epoch, entry.attempts, features);
                Message::OsdOp(Box::new(op))
            }
            (Work::Object { .. }, None) => return,
        };
        cx.send(conn, tid, message);
        entry.sent = Some(Sent { conn, epoch: map.epoch });
        entry.attempts += 1;
        self.unsent.remove(&(Some(target.osd), tid));
    }

    fn dial(&mut self, osd: OsdId, cx: &mut Context<'_>) {
        let Some(addr) = self.map.as_ref().and_then(|map| address(map, osd)) else { return };
        let conn = cx.dial(addr, EntityType::Osd);
        let session = self.sessions.entry(osd).or_insert_with(|| Session::dialling(addr, conn));
        session.conn = Some(conn);
        self.by_conn.insert(conn, osd);
    }

    fn unsent_for(&self, osd: OsdId) -> impl Iterator<Item = u64> + '_ {
        let to = Some(osd);
        self.unsent.range((to, 0)..=(to, u64::MAX)).map(|&(_, tid)| tid)
    }

    // ---- sessions ----

    pub(crate) fn on_opened(&mut self, conn: ConnId, features: u64, cx: &mut Context<'_>) {
        let Some(&osd) = self.by_conn.get(&conn) else { return };
        let Some(session) = self.sessions.get_mut(&osd) else { return };
        session.features = Some(features);
        let waiting: Vec<u64> = self.unsent_for(osd).collect();
        self.ready.extend(waiting);
        self.send_ready(cx);
    }

    pub(crate) fn on_closed(&mut self, conn: ConnId, why: &Closed, cx: &mut Context<'_>) {
        let Some(osd) = self.by_conn.remove(&conn) else { return };
        self.unsend_all(conn);
        // They wait for the session that is dialled below.
        self.ready.clear();
        let Some(session) = self.sessions.get_mut(&osd) else { return };
        session.closed();
        let failures = session.failures;
        cx.log(Level::Debug, format!("osd.{osd}: {why}"));
        // What worked until now is tried again at once.
        if failures == 1 && *why == Closed::Reset {
            return self.redial(osd, cx);
        }
        let wait = (REDIAL_MIN * 2_u32.pow(failures.min(10))).min(REDIAL_MAX);
        let at = cx.now.mono + self.rng.duration(wait / 2, wait);
        session.redial_at = Some(at);
        self.redials.insert((at, osd));
    }

    /// Dials again if there is something to send, also something that lingers.
    fn redial(&mut self, osd: OsdId, cx: &mut Context<'_>) {
        if self.unsent_for(osd).next().is_some() {
            self.dial(osd, cx);
        } else {
            self.sessions.remove(&osd);
        }
    }

    /// When `on_time` is to be called.
    pub(crate) fn due(&self) -> Option<Time> {
        self.redials.first().map(|&(at, _)| at)
    }

    pub(crate) fn on_time(&mut self, cx: &mut Context<'_>) {
        while let Some(&(at, osd)) = self.redials.first()
            && at <= cx.now.mono
        {
            self.redials.remove(&(at, osd));
            if let Some(session) = self.sessions.get_mut(&osd) {
                session.redial_at = None;
                self.redial(osd, cx);
            }
        }
    }

    pub(crate) fn on_message(&mut self, conn: ConnId, tid: u64, message: Message, cx: &mut Context<'_>) {
        let Some(&osd) = self.by_conn.get(&conn) else { return };
        let Some(session) = self.sessions.get_mut(&osd) else { return };
        session.failures = 0;
        match message {
            Message::OsdOpReply(reply) => self.on_reply(conn, tid, *reply, cx),
            Message::CommandReply(reply) => self.on_command_reply(conn, tid, reply),
            Message::OsdBackoff(backoff) => self.on_backoff(conn, osd, backoff, cx),
            Message::WatchNotify(notice) => self.results.notices.push(notice),
            other => cx.log(Level::Debug, format!("no use for {} from osd.{osd}", other.name())),
        }
    }

    fn on_reply(&mut self, conn: ConnId, tid: u64, reply: OsdOpReply, cx: &mut Context<'_>) {
        let Some(entry) = self.entries.get(&tid) else { return };
        let Work::Object { request, .. } = &entry.work else { return };
        // An OSD that we no longer count on may answer late, and so may the right one to an attempt
        // before the last: that answer is for a request which was since sent anew.
        let sent_there = entry.sent.is_some_and(|sent| sent.conn == conn);
        let last_attempt =
            reply.retry_attempt < 0 || reply.retry_attempt.unsigned_abs() + 1 == entry.attempts;
        if !sent_there || !last_attempt {
            return cx.log(Level::Debug, format!("dropped a late answer to {tid}"));
        }
        let ops: Vec<OpOutput> =
            reply.ops.into_iter().map(|op| OpOutput { rval: op.rval, data: op.data }).collect();
        if ops.len() != request.ops.len() {
            let text = format!("{} answers to {} operations", ops.len(), request.ops.len());
            return self.finish(tid, Err(Failure::new(errno::EIO, text)));
        }
        if reply.result < 0 {
            let failure = Failure { errno: reply.result.saturating_neg(), text: String::new(), ops };
            return self.finish(tid, Err(failure));
        }
        let version = reply.replay_version;
        let reply = ObjectReply { user_version: reply.user_version, version, ops };
        let done = Ok(OpDone::Object { reply });
        match entry.lingers() {
            true => self.results.done.push((tid, done)),
            false => self.finish(tid, done),
        }
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

    fn on_backoff(&mut self, conn: ConnId, osd: OsdId, message: OsdBackoff, cx: &mut Context<'_>) {
        let Some(session) = self.sessions.get_mut(&osd) else { return };
        let OsdBackoff { spg, id, .. } = message;
        match message.op {
            BackoffOp::Block => {
                session.block(spg, id, message.begin.clone(), message.end.clone());
                cx.send(conn, 0, OsdBackoff { op: BackoffOp::AckBlock, ..message });
            }
            BackoffOp::Unblock => {
                let Some(backoff) = session.unblock(spg, id) else { return };
                let indexed = self.in_pg.range((spg.pg, 0)..=(spg.pg, u64::MAX));
                let tids: Vec<u64> = indexed.map(|&(_, tid)| tid).collect();
                for tid in tids {
                    let Some(entry) = self.entries.get(&tid) else { continue };
                    if !matches!(&entry.work, Work::Object { id, .. } if backoff.covers(id)) {
                        continue;
                    }
                    // The OSD dropped those that it had, too.
                    match entry.sent {
                        Some(sent) if sent.conn == conn => self.unsend(tid),
                        Some(_) => {}
                        None => drop(self.ready.insert(tid)),
                    }
                }
                self.send_ready(cx);
            }
            BackoffOp::AckBlock => {}
        }
    }
}

/// The placement group of a request, the OSD that serves it, and whether the map holds it back.
type Located = (Option<PgId>, Option<Target>, bool);

fn locate(placements: &mut Placements, map: &OsdMap, work: &Work) -> Result<Located, Failure> {
    let in_pg = |placements: &mut Placements, pg: PgId, pg_num: u32| {
        let primary = placements.primary(map, pg);
        primary.map(|(osd, shard)| Target { osd, spg: Some((SpgId { pg, shard }, pg_num)) })
    };
    match work {
        Work::Command { to: CommandTarget::Osd(osd), .. } => {
            if !map.exists(*osd) {
                Err(Failure::new(errno::ENOENT, format!("no osd.{osd}")))
            } else if !map.is_up(*osd) {
                Err(Failure::new(errno::ENXIO, format!("osd.{osd} is down")))
            } else {
                Ok((None, Some(Target { osd: *osd, spg: None }), false))
            }
        }
        Work::Command { to: CommandTarget::Pg(pg), .. } => {
            match map.pool(pg.pool).filter(|pool| pg.seed < pool.pg_num) {
                None => Err(Failure::new(errno::ENOENT, format!("no placement group {pg}"))),
                Some(pool) => Ok((Some(*pg), in_pg(placements, *pg, pool.pg_num), false)),
            }
        }
        Work::Object { request, id, .. } => match map.pool(request.pool) {
            None => Err(Failure::new(errno::ENOENT, format!("no pool {}", request.pool))),
            Some(pool) => {
                let pg = PgId { pool: request.pool, seed: pool.raw_pg_to_pg(id.hash) };
                Ok((Some(pg), in_pg(placements, pg, pool.pg_num), is_paused(map, request)))
            }
        },
    }
}

fn address(map: &OsdMap, osd: OsdId) -> Option<EntityAddr> {
    map.addrs(osd).and_then(|addrs| addrs.msgr2())
}

/// Whether a request that was sent to `old` must be sent again to `new`.
fn has_moved(old: Option<Target>, new: Option<Target>) -> bool {
    match (old, new) {
        (
            Some(Target { osd: from, spg: Some((spg, was)) }),
            Some(Target { osd: to, spg: Some((now, is)) }),
        ) => {
            let pg = spg.pg;
            let resized = was != is
                && (is_split(pg, was, is) || is_merge_source(pg, was, is) || is_merge_target(pg, was, is));
            from != to || spg != now || resized
        }
        (old, new) => old != new,
    }
}

/// Whether the map's flags pause such a request.
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
