//! Watches that are alive, and notifies on their way: only the primary has them, in memory.
//!
//! The object's info names the watchers (`ops::watch`). A watch is alive while its client pings; one that is
//! silent for its timeout, or whose client is blocklisted, is removed by a write of the primary's own. So is
//! one whose session was ended by the client and that does not come back at once: a client that died sends no
//! more than that, and a client that waits for its images should not wait for the whole timeout. After a
//! change of the primary, watches get a timeout from when the new one first sees them.
//!
//! A notify goes to all watchers; to those without a connection when they come back. It completes when all
//! have answered or are gone, or at its deadline.

use super::{ClientOp, Ctx, PgEffect};
use crate::object_info::ObjectInfo;
use crate::op_tracker::Steps;
use crate::ops::{Done, FlaggedOp, timeout_of};
use bytes::Bytes;
use nacre_base::errno::ETIMEDOUT;
use nacre_base::{Epoch, OsdId, PgId, SnapId, Time};
use nacre_machine::ConnId;
use nacre_proto::messages::{OsdOp, OsdOpItem, WatchNotify, WatchNotifyKind};
use nacre_proto::types::{
    AddrVec, EntityAddr, EntityName, NotifyAcks, ObjectId, ObjectLocator, Op, ReqId, SpgId, WatchAction,
    op_flags,
};
use nacre_wire::to_vec;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Client and cookie.
type WatchId = (u64, u64);

/// Ceph: `osd_default_notify_timeout`.
const NOTIFY_TIMEOUT: u32 = 30;
/// A client that loses its session opens another within a fraction of a second, if it is alive.
const HUNG_UP_TIMEOUT: Duration = Duration::from_secs(5);
/// Stands for the session of the primary's own requests: replies to it go nowhere.
pub const NOBODY: ConnId = ConnId::Accepted(u64::MAX);

struct Live {
    conn: Option<ConnId>,
    addr: EntityAddr,
    timeout: Duration,
    deadline: Time,
    /// Its removal is under way.
    ending: bool,
}

/// As operators see it.
pub struct Watcher<'a> {
    pub object: &'a ObjectId,
    pub client: u64,
    pub cookie: u64,
    pub timeout: Duration,
    pub addr: EntityAddr,
}

struct Notify {
    object: ObjectId,
    conn: ConnId,
    /// The notifier, and its own request.
    notifier: u64,
    cookie: u64,
    version: u64,
    payload: Bytes,
    deadline: Time,
    waiting: BTreeSet<WatchId>,
    acks: Vec<(WatchId, Bytes)>,
}

/// The watches of one object.
#[derive(Default)]
struct Watched {
    live: BTreeMap<WatchId, Live>,
    /// The object's info was read in this interval. Later changes are here, too: watches come and go by
    /// requests to this primary.
    all: bool,
}

pub struct Watches {
    pg: PgId,
    me: OsdId,
    live: BTreeMap<ObjectId, Watched>,
    notifies: BTreeMap<u64, Notify>,
    /// The epoch of the map whose blocklist was checked.
    checked: Epoch,
    /// Counts removals, for their request ids.
    removals: u64,
}

impl Watches {
    pub fn new(pg: PgId, me: OsdId) -> Watches {
        let (live, notifies) = Default::default();
        Watches { pg, me, live, notifies, checked: Epoch(0), removals: 0 }
    }
    /// Clients come back to the new primary by themselves.
    pub fn clear(&mut self) {
        self.live.clear();
        self.notifies.clear();
    }
    /// Another primary may have written in the last interval.
    pub fn begin_interval(&mut self) {
        self.live.values_mut().for_each(|watched| watched.all = false);
    }
    pub fn check(&self) {
        debug_assert!(self.notifies.values().all(|notify| !notify.waiting.is_empty()));
        debug_assert!(self.live.values().all(|watched| watched.all || !watched.live.is_empty()));
    }

    /// A read was carried out: what it means for watches.
    pub fn after_read(&mut self, ctx: &mut Ctx<'_>, op: &ClientOp, notify_id: u64, user_version: u64) {
        for FlaggedOp { op: one, .. } in &op.ops {
            match one {
                Op::Watch { cookie, action: WatchAction::Ping, .. } => {
                    self.note_watchers(ctx, &op.object);
                    self.revive(ctx, op, *cookie);
                }
                Op::ListWatchers => self.note_watchers(ctx, &op.object),
                Op::Notify { cookie, timeout_secs, payload } => {
                    self.note_watchers(ctx, &op.object);
                    let timeout = if *timeout_secs == 0 { NOTIFY_TIMEOUT } else { *timeout_secs };
                    let notify = Notify {
                        object: op.object.clone(),
                        conn: op.conn,
                        notifier: op.sender.0.num as u64,
                        cookie: *cookie,
                        version: user_version,
                        payload: payload.clone(),
                        deadline: ctx.now.mono + Duration::from_secs(timeout.into()),
                        waiting: BTreeSet::new(),
                        acks: Vec::new(),
                    };
                    self.start_notify(ctx, notify_id, notify);
                }
                Op::NotifyAck { notify_id, cookie, reply } => {
                    let watch = (op.sender.0.num as u64, *cookie);
                    self.on_notify_ack(ctx, *notify_id, watch, reply.clone());
                }
                _ => {}
            }
        }
    }

    /// The reply to a request that needs only the list of watchers, if all of them are known. A thousand
    /// watchers answer each notify, and each answer would read the list of a thousand.
    pub fn answer(&self, op: &ClientOp) -> Option<Done> {
        let watched = self.live.get(&op.object).filter(|watched| watched.all)?;
        if op.snap != SnapId::HEAD {
            return None;
        }
        let mut outputs = Vec::with_capacity(op.ops.len());
        for FlaggedOp { op: one, .. } in &op.ops {
            match one {
                Op::NotifyAck { .. } => outputs.push((0, Bytes::new())),
                Op::Watch { cookie, action: WatchAction::Ping, .. }
                    if watched.live.contains_key(&(op.sender.0.num as u64, *cookie)) =>
                {
                    outputs.push((0, Bytes::new()));
                }
                _ => return None,
            }
        }
        Some(Done::answer(0, outputs))
    }

    /// A write is durable: what it means for watches.
    pub fn after_write(&mut self, ctx: &mut Ctx<'_>, op: &ClientOp, user_version: u64) {
        for FlaggedOp { op: one, .. } in &op.ops {
            match one {
                Op::Watch { cookie, action: WatchAction::Unwatch, .. } => {
                    self.end_watch(ctx, &op.object, (op.sender.0.num as u64, *cookie), user_version);
                }
                Op::Watch { cookie, timeout_secs, .. } => {
                    let live = Live {
                        conn: Some(op.conn),
                        addr: op.sender.1,
                        timeout: Duration::from_secs(timeout_of(*timeout_secs).into()),
                        deadline: Time::ZERO,
                        ending: false,
                    };
                    let watch = (op.sender.0.num as u64, *cookie);
                    self.live.entry(op.object.clone()).or_default().live.insert(watch, live);
                    self.note_watchers(ctx, &op.object);
                    self.revive(ctx, op, *cookie);
                }
                _ => {}
            }
        }
    }

    /// The object is gone, and its watches with it.
    pub fn after_delete(&mut self, ctx: &mut Ctx<'_>, object: &ObjectId, user_version: u64) {
        let Some(watched) = self.live.remove(object) else { return };
        for (watch, live) in watched.live {
            disconnect(ctx, watch, &live, user_version);
            self.forget_in_notifies(ctx, object, watch);
        }
    }

    /// Watches that the object's info has and that are new to us get their time.
    fn note_watchers(&mut self, ctx: &Ctx<'_>, object: &ObjectId) {
        if self.live.get(object).is_some_and(|watched| watched.all) {
            return;
        }
        let Ok(Some(info)) = ObjectInfo::load(ctx.store, object) else { return };
        if info.watchers.is_empty() {
            return;
        }
        let watched = self.live.entry(object.clone()).or_default();
        watched.all = true;
        // A write of the last interval may have been rolled back.
        watched.live.retain(|watch, live| live.ending || info.watchers.contains_key(watch));
        for (&watch, watcher) in info.watchers.iter() {
            let timeout = Duration::from_secs(watcher.timeout_secs.into());
            let known = watched.live.entry(watch).or_insert_with(|| Live {
                conn: None,
                addr: watcher.addr,
                timeout,
                deadline: ctx.now.mono + timeout,
                ending: false,
            });
            known.timeout = timeout;
        }
        // They were not checked against the blocklist before.
        self.checked = Epoch(0);
    }

    /// The client is there, on this connection. What it has not answered, it is told again if it
    /// is a new one.
    fn revive(&mut self, ctx: &mut Ctx<'_>, op: &ClientOp, cookie: u64) {
        let watch = (op.sender.0.num as u64, cookie);
        let watched = self.live.get_mut(&op.object);
        let Some(live) = watched.and_then(|watched| watched.live.get_mut(&watch)) else { return };
        let is_ping = op.ops.iter().any(|op| matches!(op.op, Op::Watch { action: WatchAction::Ping, .. }));
        let moved = live.conn != Some(op.conn) || !is_ping;
        live.conn = Some(op.conn);
        live.addr = op.sender.1;
        live.deadline = ctx.now.mono + live.timeout;
        if moved {
            let open = self.notifies.iter();
            let mine =
                open.filter(|(_, notify)| notify.object == op.object && notify.waiting.contains(&watch));
            ctx.out.extend(mine.map(|(&id, notify)| notify.to_watcher(id, cookie, op.conn)));
        }
    }

    pub fn client_hung_up(&mut self, now: Time, conn: ConnId) {
        let theirs = self.live.values_mut().flat_map(|watched| watched.live.values_mut());
        for live in theirs.filter(|live| live.conn == Some(conn)) {
            live.conn = None;
            live.deadline = live.deadline.min(now + HUNG_UP_TIMEOUT);
        }
    }

    /// Watches that are alive, as far as this primary knows.
    pub fn live(&self) -> impl Iterator<Item = Watcher<'_>> {
        self.live.iter().flat_map(|(object, watched)| {
            let live = watched.live.iter().filter(|(_, live)| !live.ending);
            live.map(move |(&(client, cookie), live)| Watcher {
                object,
                client,
                cookie,
                timeout: live.timeout,
                addr: live.addr,
            })
        })
    }

    // ---- notifies ----

    fn start_notify(&mut self, ctx: &mut Ctx<'_>, id: u64, mut notify: Notify) {
        let watchers = self.live.get(&notify.object).map(|watched| &watched.live);
        notify.waiting = watchers.iter().flat_map(|live| live.keys().copied()).collect();
        for (&(_, cookie), live) in watchers.into_iter().flatten() {
            if let Some(conn) = live.conn {
                ctx.out.push(notify.to_watcher(id, cookie, conn));
            }
        }
        self.notifies.insert(id, notify);
        self.finish_notify(ctx, id);
    }

    fn on_notify_ack(&mut self, ctx: &mut Ctx<'_>, id: u64, watch: WatchId, reply: Bytes) {
        let Some(notify) = self.notifies.get_mut(&id) else { return };
        if notify.waiting.remove(&watch) {
            notify.acks.push((watch, reply));
            self.finish_notify(ctx, id);
        }
    }

    /// If it waits for no watcher any more, or its deadline passed.
    fn finish_notify(&mut self, ctx: &mut Ctx<'_>, id: u64) {
        let Some(notify) = self.notifies.get(&id) else { return };
        if notify.waiting.is_empty() || notify.deadline <= ctx.now.mono {
            let mut notify = self.notifies.remove(&id).expect("just seen");
            ctx.out.push(notify.complete(id));
        }
    }

    fn forget_in_notifies(&mut self, ctx: &mut Ctx<'_>, object: &ObjectId, watch: WatchId) {
        let waiting = |notify: &mut Notify| notify.object == *object && notify.waiting.remove(&watch);
        let ids: Vec<u64> =
            self.notifies.iter_mut().filter_map(|(&id, notify)| waiting(notify).then_some(id)).collect();
        ids.into_iter().for_each(|id| self.finish_notify(ctx, id));
    }

    // ---- the end of a watch ----

    fn end_watch(&mut self, ctx: &mut Ctx<'_>, object: &ObjectId, watch: WatchId, user_version: u64) {
        if let Some(watched) = self.live.get_mut(object) {
            if let Some(ended) = watched.live.remove(&watch)
                && ended.ending
            {
                disconnect(ctx, watch, &ended, user_version);
            }
            if self.live.get(object).is_some_and(|watched| watched.live.is_empty()) {
                self.live.remove(object);
            }
        }
        self.forget_in_notifies(ctx, object, watch);
    }

    /// Ends notifies at their deadline. Gives the writes that remove watches which were silent for too long
    /// or whose client is blocklisted.
    pub fn tick(&mut self, ctx: &mut Ctx<'_>) -> Vec<ClientOp> {
        let now = ctx.now.mono;
        let late: Vec<u64> =
            self.notifies.iter().filter(|(_, n)| n.deadline <= now).map(|(&id, _)| id).collect();
        late.into_iter().for_each(|id| self.finish_notify(ctx, id));
        let new_map = self.checked != ctx.map.epoch;
        self.checked = ctx.map.epoch;
        // One write for all that a client has of an object: each writes the list of watchers anew.
        let mut over: BTreeMap<(ObjectId, u64), (EntityAddr, Vec<u64>)> = BTreeMap::new();
        for (object, watched) in &mut self.live {
            for (&(client, cookie), live) in watched.live.iter_mut().filter(|(_, live)| !live.ending) {
                let blocked = new_map && ctx.map.is_blocklisted(&AddrVec::one(live.addr));
                if live.deadline <= now || blocked {
                    live.ending = true;
                    let ended = over.entry((object.clone(), client));
                    ended.or_insert_with(|| (live.addr, Vec::new())).1.push(cookie);
                }
            }
        }
        let removals = over.into_iter().map(|((object, client), (addr, cookies))| {
            self.removal(ctx, object, (EntityName::client(client), addr), &cookies)
        });
        removals.collect()
    }

    /// The write that takes watches off an object, as if their client itself had asked for it.
    fn removal(
        &mut self,
        ctx: &Ctx<'_>,
        object: ObjectId,
        sender: (EntityName, EntityAddr),
        cookies: &[u64],
    ) -> ClientOp {
        let unwatch = |&cookie: &u64| Op::Watch {
            cookie,
            action: WatchAction::Unwatch,
            generation: 0,
            timeout_secs: 0,
        };
        self.removals += 1;
        // No other incarnation of this OSD made the same number: the clock has advanced since.
        let tid = (u64::from(ctx.now.wall.sec) << 32) + self.removals;
        let reqid = ReqId { client: EntityName::osd(self.me), tid, inc: self.pg.seed as i32 };
        let request = OsdOp {
            spg: SpgId::replicated(self.pg),
            hash: object.hash,
            epoch: ctx.map.epoch,
            flags: op_flags::message::WRITE,
            reqid,
            client_inc: 0,
            mtime: ctx.now.wall,
            locator: ObjectLocator {
                pool: object.pool,
                key: object.key.clone(),
                namespace: object.namespace.clone(),
                hash: None,
            },
            name: object.name.clone(),
            ops: cookies.iter().map(unwatch).map(OsdOpItem::from).collect(),
            snap: SnapId::HEAD,
            snap_seq: SnapId(0),
            snaps: Vec::new(),
            retry_attempt: 0,
            features: 0,
        };
        ClientOp {
            seq: 0,
            conn: NOBODY,
            tid,
            sender,
            reqid,
            object,
            snap: SnapId::HEAD,
            ops: cookies.iter().map(unwatch).map(|op| FlaggedOp::new(op, 0, true)).collect(),
            request: Arc::new(request),
            steps: Steps::new(ctx.now.mono),
            for_copy: false,
        }
    }
}

/// Tells a client that its watch ended.
fn disconnect(ctx: &mut Ctx<'_>, (_, cookie): WatchId, live: &Live, user_version: u64) {
    let Some(conn) = live.conn else { return };
    let message = WatchNotify {
        kind: WatchNotifyKind::Disconnect,
        cookie,
        version: user_version,
        notify_id: 0,
        payload: Bytes::new(),
        result: 0,
        notifier: 0,
        acks: Bytes::new(),
    };
    ctx.out.push(PgEffect::Notify { conn, message: Box::new(message) });
}

impl Notify {
    fn to_watcher(&self, id: u64, cookie: u64, conn: ConnId) -> PgEffect {
        let message = WatchNotify {
            kind: WatchNotifyKind::Notify,
            cookie,
            version: self.version,
            notify_id: id,
            payload: self.payload.clone(),
            result: 0,
            notifier: self.notifier,
            acks: Bytes::new(),
        };
        PgEffect::Notify { conn, message: Box::new(message) }
    }

    fn complete(&mut self, id: u64) -> PgEffect {
        let missed: Vec<WatchId> = std::mem::take(&mut self.waiting).into_iter().collect();
        let result = if missed.is_empty() { 0 } else { -ETIMEDOUT };
        let mut acks = std::mem::take(&mut self.acks);
        acks.sort_by_key(|(watch, _)| *watch); // a map, to its reader
        let message = WatchNotify {
            kind: WatchNotifyKind::Complete,
            cookie: self.cookie,
            version: self.version,
            notify_id: id,
            payload: Bytes::new(),
            result,
            notifier: self.notifier,
            acks: to_vec(&NotifyAcks { acks, missed }).into(),
        };
        PgEffect::Notify { conn: self.conn, message: Box::new(message) }
    }
}
