//! Some of an OSD's placement groups. A shard knows nothing of the others; one thread can run it.

use crate::counters::Counted;
use crate::op_tracker::Request;
use crate::pg::{Ctx, Interval, Pg, PgEffect, PgEvent};
use crate::shard_view::{ShardView, named, of_shard};
use crate::throttle::Budget;
use bytes::Bytes;
use nacre_base::{Epoch, Now, OsdId, PgId, ShardId, SpgId, Time};
use nacre_machine::{ConnId, Effect, ReadError, StoreView, Token};
use nacre_proto::maps::OsdMap;
use nacre_proto::messages::peer::{PgMsg, PgRoute};
use nacre_proto::messages::{OsdOpReply, PeerMsg, PgRecord, PgWish};
use nacre_proto::transaction::{StoredId, Transaction};
use nacre_proto::types::CopySource;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Memory for this many effects is kept for the next event.
pub const EFFECTS_KEPT: usize = 256;

/// What a shard wants: mostly plain effects, and some that need the whole daemon.
#[derive(Debug)]
pub enum ShardEffect {
    Do(Box<Effect>),
    Store(Token, Transaction),
    /// The answer to a client's request.
    Reply {
        conn: ConnId,
        tid: u64,
        reply: Box<OsdOpReply>,
        request: Box<Request>,
    },
    Ask(OsdId, PeerMsg),
    Answer(OsdId, PeerMsg),
    /// For the request of a PG that goes by this number.
    Copy(PgId, u64, Box<CopySource>),
    QueryRecord(PgId),
    Activate(PgId, PgRecord),
    RequestPgTemp(PgWish),
    LeasesNow,
    LookAtGathers(PgId),
    Report,
    ClusterLog(u8, String),
}

/// What the shard's PGs handle an event with.
pub struct Scene<'a> {
    pub now: Now,
    pub turn: u64,
    pub store: &'a dyn StoreView,
    pub map: &'a Arc<OsdMap>,
    /// The cluster's, see `cluster_format`.
    pub format: u32,
    pub budget: &'a Budget,
    pub out: &'a mut Vec<ShardEffect>,
}

pub struct Shard {
    me: OsdId,
    /// Every how many numbers one is this shard's, and which.
    stride: u64,
    offset: u64,
    pub pgs: BTreeMap<PgId, Pg>,
    last_number: u64,
    /// In their order, in which they become durable.
    stores: VecDeque<(Token, Stored)>,
    reads: BTreeMap<Token, (PgId, u64)>,
    /// How many transactions each PG issued.
    issued: BTreeMap<PgId, u64>,
    loops: BTreeSet<PgId>,
    counted: Counted,
    /// The current event is a write that another OSD sent us.
    is_subop: bool,
    /// What a PG wants: empty between events, and there for its memory.
    effects: Vec<PgEffect>,
}

/// A transaction that is not durable yet.
struct Stored {
    pg: PgId,
    /// Of the PG; zero if the PG that wanted it is gone.
    number: u64,
    since: Time,
    is_subop: bool,
}

impl Shard {
    /// Its tokens and loops are the numbers that are `offset` modulo `stride`.
    pub fn new(me: OsdId, stride: u64, offset: u64, counted: Counted) -> Shard {
        Shard {
            me,
            stride,
            offset,
            pgs: BTreeMap::new(),
            last_number: 0,
            stores: VecDeque::new(),
            reads: BTreeMap::new(),
            issued: BTreeMap::new(),
            loops: BTreeSet::new(),
            counted,
            is_subop: false,
            effects: Vec::new(),
        }
    }

    fn token(&mut self) -> Token {
        self.last_number += 1;
        self.last_number * self.stride + self.offset
    }
    /// Whether something is not durable yet.
    pub fn is_storing(&self) -> bool {
        !self.stores.is_empty()
    }

    pub fn create(&mut self, scene: &mut Scene<'_>, id: PgId, interval: Interval, pg_num: u32) {
        let start = interval.start;
        let (pg, effects) =
            Self::run(&mut self.effects, scene, |ctx| Pg::create(id, self.me, interval, pg_num, ctx));
        self.pgs.insert(id, pg);
        self.carry(scene, id, start, effects);
    }

    /// The children that a larger `pg_num` makes; they may belong to other shards.
    pub fn split(&mut self, scene: &mut Scene<'_>, id: PgId, pg_num: u32) -> Vec<Pg> {
        let Some(pg) = self.pgs.get_mut(&id) else { return Vec::new() };
        let (children, effects) = Self::run(&mut self.effects, scene, |ctx| pg.split(ctx, pg_num));
        let interval = pg.interval().start;
        self.carry(scene, id, interval, effects);
        children
    }
    pub fn adopt(&mut self, scene: &mut Scene<'_>, mut pg: Pg) {
        let id = pg.id;
        let ((), effects) = Self::run(&mut self.effects, scene, |ctx| pg.after_split(ctx));
        let interval = pg.interval().start;
        self.pgs.insert(id, pg);
        self.carry(scene, id, interval, effects);
    }

    /// A PG that is about to be part of another.
    pub fn take(&mut self, id: PgId) -> Option<Pg> {
        let pg = self.pgs.remove(&id)?;
        self.forget(id);
        Some(pg)
    }
    /// What these PGs had is this one's.
    pub fn merge(&mut self, scene: &mut Scene<'_>, id: PgId, sources: Vec<Pg>, pg_num: u32) {
        let Some(pg) = self.pgs.get_mut(&id) else { return };
        let ((), effects) = Self::run(&mut self.effects, scene, |ctx| pg.merge(ctx, sources, pg_num));
        let interval = pg.interval().start;
        self.carry(scene, id, interval, effects);
    }

    pub fn handle(&mut self, scene: &mut Scene<'_>, id: PgId, event: PgEvent) {
        let Some(pg) = self.pgs.get_mut(&id) else { return };
        if let PgEvent::Peer { msg, .. } = &event
            && let PgMsg::RepOp(op) = &**msg
        {
            self.is_subop = true;
            self.counted.osd.subop_w.inc();
            self.counted.osd.subop_w_in_bytes.add(op.txn.data_len() as u64);
        }
        let view = ShardView::new(scene.store, pg.shard());
        let store: &dyn StoreView = if pg.shard().is_some() { &view } else { scene.store };
        let mut own = Scene { store, out: &mut *scene.out, ..*scene };
        let ((), effects) = Self::run(&mut self.effects, &own, |ctx| pg.handle(ctx, event));
        let interval = pg.interval().start;
        let gone = effects.iter().any(|effect| matches!(effect, PgEffect::Gone));
        self.carry(&mut own, id, interval, effects);
        self.is_subop = false;
        if gone {
            self.pgs.remove(&id);
            self.forget(id);
        }
    }
    /// What the PG waits for ends with it.
    fn forget(&mut self, id: PgId) {
        self.issued.remove(&id);
        self.loops.remove(&id);
        self.reads.retain(|_, (pg, _)| *pg != id);
        // A PG of this name that is made anew counts from one.
        let stores = self.stores.iter_mut().map(|(_, stored)| stored);
        stores.filter(|stored| stored.pg == id).for_each(|stored| stored.number = 0);
    }

    /// Every PG, in order.
    pub fn handle_all(&mut self, scene: &mut Scene<'_>, event: impl Fn() -> PgEvent) {
        let ids: Vec<PgId> = self.pgs.keys().copied().collect();
        ids.into_iter().for_each(|id| self.handle(scene, id, event()));
    }

    pub fn on_stored(&mut self, scene: &mut Scene<'_>, token: Token) {
        let Ok(at) = self.stores.binary_search_by_key(&token, |(token, _)| *token) else { return };
        let (_, stored) = self.stores.remove(at).expect("just found");
        let took = scene.now.mono.since(stored.since);
        self.counted.stages.commit.add(took);
        if stored.is_subop {
            self.counted.osd.subop_w_latency.add(took);
        }
        if stored.number > 0 {
            self.handle(scene, stored.pg, PgEvent::Stored(stored.number));
        }
    }
    pub fn on_read(&mut self, scene: &mut Scene<'_>, token: Token, result: Result<Vec<Bytes>, ReadError>) {
        if let Some((pg, read)) = self.reads.remove(&token) {
            let result = result.map_err(named);
            self.handle(scene, pg, PgEvent::Read { read, result });
        }
    }
    pub fn on_loop(&mut self, scene: &mut Scene<'_>) {
        for pg in std::mem::take(&mut self.loops) {
            self.handle(scene, pg, PgEvent::Loop);
        }
    }

    /// For each OSD, the PGs that need a lease from it.
    pub fn leases(&self, now: Time, of: &mut BTreeMap<OsdId, Vec<(SpgId, Epoch)>>) {
        for (id, pg) in &self.pgs {
            for osd in pg.lease_grantors(now) {
                of.entry(osd).or_default().push((SpgId::replicated(*id), pg.interval().start));
            }
        }
    }

    /// Runs something of one PG. What it wants is `carry`'d over afterwards.
    fn run<T>(
        effects: &mut Vec<PgEffect>,
        scene: &Scene<'_>,
        run: impl FnOnce(&mut Ctx<'_>) -> T,
    ) -> (T, Vec<PgEffect>) {
        let mut effects = std::mem::take(effects);
        let mut ctx = Ctx {
            now: scene.now,
            turn: scene.turn,
            store: scene.store,
            map: scene.map.clone(),
            format: scene.format,
            budget: scene.budget,
            out: &mut effects,
        };
        let result = run(&mut ctx);
        (result, effects)
    }

    /// Which shard of each object the PG holds.
    fn held_shard(&self, pg: PgId) -> ShardId {
        self.pgs.get(&pg).map_or(ShardId::NONE, Pg::shard)
    }

    /// `interval` is the one that the PG is in now. Nothing of an older one is ever sent: what
    /// waited for the disk then was dropped with it.
    fn carry(&mut self, scene: &mut Scene<'_>, pg: PgId, interval: Epoch, mut effects: Vec<PgEffect>) {
        for effect in effects.drain(..) {
            self.carry_one(scene, pg, interval, effect);
        }
        effects.shrink_to(EFFECTS_KEPT);
        self.effects = effects;
    }
    fn carry_one(&mut self, scene: &mut Scene<'_>, pg: PgId, interval: Epoch, effect: PgEffect) {
        let out = match effect {
            PgEffect::Ask(to, msg) => {
                ShardEffect::Ask(to, PeerMsg::Pg { route: PgRoute::replicated(pg), interval, msg })
            }
            PgEffect::Answer(to, msg) => {
                ShardEffect::Answer(to, PeerMsg::Pg { route: PgRoute::replicated(pg), interval, msg })
            }
            PgEffect::Reply { conn, tid, reply, request } => ShardEffect::Reply { conn, tid, reply, request },
            PgEffect::Notify { conn, message } => {
                plain(Effect::Send { conn, tid: 0, message: (*message).into() })
            }
            PgEffect::Store(txn) => {
                let token = self.token();
                let number = self.issued.entry(pg).or_insert(0);
                *number += 1;
                let (number, since, is_subop) = (*number, scene.now.mono, self.is_subop);
                self.stores.push_back((token, Stored { pg, number, since, is_subop }));
                ShardEffect::Store(token, of_shard(self.held_shard(pg), txn))
            }
            PgEffect::Read { read, object, extents, device } => {
                let token = self.token();
                self.reads.insert(token, (pg, read));
                let id = StoredId::object(self.held_shard(pg), *object);
                plain(Effect::Read { token, id, extents, device })
            }
            PgEffect::Copy { read, source } => ShardEffect::Copy(pg, read, source),
            PgEffect::QueryRecord => ShardEffect::QueryRecord(pg),
            PgEffect::Activate(record) => ShardEffect::Activate(pg, record),
            PgEffect::RequestPgTemp(record, acting) => {
                ShardEffect::RequestPgTemp(PgWish { pg, record, acting })
            }
            PgEffect::LeasesNow => ShardEffect::LeasesNow,
            PgEffect::LookAtGathers => ShardEffect::LookAtGathers(pg),
            PgEffect::Report => ShardEffect::Report,
            PgEffect::Loop => {
                let first = self.loops.is_empty();
                self.loops.insert(pg);
                if !first {
                    return;
                }
                plain(Effect::Loop(self.offset))
            }
            PgEffect::ClusterLog(level, text) => ShardEffect::ClusterLog(level, text),
            PgEffect::Log(level, text) => plain(Effect::Log { level, text }),
            PgEffect::Gone => return,
        };
        scene.out.push(out);
    }
}

fn plain(effect: Effect) -> ShardEffect {
    ShardEffect::Do(Box::new(effect))
}
