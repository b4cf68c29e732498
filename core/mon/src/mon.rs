//! The machine: events in, effects out, Raft in the middle.

mod consensus;
mod membership;
mod peers;
mod proposals;
mod requests;

pub(crate) use membership::is_majority;
pub(crate) use proposals::{Done, Job};
pub(crate) use requests::{CommandRequest, Origin, Via};

use crate::services::balancer::Balancer;
use crate::services::mgr::image_commands::ImageCommands;
use crate::services::mgr::image_load::ImageLoad;
use crate::services::mgr::service_map::ServiceMap;
use crate::services::osdmap::Reports;
use crate::services::pg::stats::Stats;
use crate::sessions::caps::SessionCaps;
use crate::sessions::{Session, Sessions};
use crate::state::State;
use crate::{commands, options, persist};
use bytes::Bytes;
use consensus::Leading;
use membership::PeerLink;
use nacre_auth::{Entity, Entropy, Keys};
use nacre_base::{Epoch, Now, PgId, PoolId, Rng, Time};
use nacre_machine::{Closed, ConnId, Effect, Event, Level, Machine, Peer, StoreView, Token};
use nacre_proto::maps::Uuid;
use nacre_proto::messages::{Message, QuorumMsg};
use nacre_proto::types::{AddrVec, AuthName, EntityAddr, EntityType};
use nacre_raft::{Outgoing, Raft};
use nacre_wire::from_slice;
use proposals::InFlight;
use requests::Read;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Raft's clock; a lone member needs it only to repeat a read that came too early.
const TICK: Duration = Duration::from_millis(100);
/// Everything that is a matter of seconds.
const HOUSEKEEPING: Duration = Duration::from_secs(1);
const REDIAL: Duration = Duration::from_millis(500);
/// Requests that may wait for their turn, and bytes of them. Daemons repeat what is dropped, clients when they are hung up on.
const QUEUE_MAX: usize = 10_000;
const QUEUED_MAX: usize = 64 << 20;

const TIMER_TICK: u64 = 1;
const TIMER_HOUSEKEEPING: u64 = 2;
const TIMER_REDIAL: u64 = 3;
const TIMER_FAILURES: u64 = 4;

/// What a monitor is told when it starts.
#[derive(Clone, Debug)]
pub struct MonConfig {
    /// The number of this one of `members`.
    pub id: u64,
    pub name: String,
    /// All monitors, the founders by rank, with exactly the addresses that they listen on. Once there is a
    /// cluster its map counts instead.
    pub members: Vec<Member>,
    /// Where this process listens in the manager's role.
    pub mgr_addrs: AddrVec,
    /// Of the cluster that it begins or joins.
    pub fsid: Uuid,
    /// From the configuration file, by Ceph's names.
    pub options: BTreeMap<String, String>,
    pub host: String,
    /// For everything that is drawn and no secret; a new one for each start.
    pub seed: u64,
    pub auth: MonAuth,
}

/// How a monitor knows its callers.
#[derive(Clone, Debug)]
pub struct MonAuth {
    /// Whether they have to prove who they are (cephx).
    pub required: bool,
    /// Whom a new cluster knows from the beginning.
    pub initial_entities: BTreeMap<AuthName, Entity>,
    /// Keys are made of it.
    pub entropy: Entropy,
}

impl MonAuth {
    /// Everybody is believed.
    pub fn none(entropy: Entropy) -> MonAuth {
        MonAuth { required: false, initial_entities: BTreeMap::new(), entropy }
    }
}

/// A monitor.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its number in Raft, which no other has or had. A initial's is its rank and one.
    pub id: u64,
    pub name: String,
    pub addrs: AddrVec,
    /// Whether it begins a new cluster; the others join.
    pub initial: bool,
}

pub struct Mon {
    pub(crate) config: MonConfig,
    /// What `ceph tell mon.X config set` said, until the next start.
    injected: BTreeMap<String, String>,
    rng: Rng,
    pub(crate) entropy: Entropy,
    /// The keys that were agreed on when the driver was told last, and what it was told: by what it knows callers.
    pub(crate) published_keys: Option<(Arc<Keys>, Arc<Keys>)>,
    raft: Option<Raft>,
    /// None until the cluster's first batch is applied.
    pub(crate) state: Option<State>,
    pub(crate) sessions: Sessions,
    pub(crate) stats: Stats,
    pub(crate) reports: Reports,
    queue: VecDeque<Job>,
    /// Their weight.
    queued: usize,
    in_flight: Option<InFlight>,
    batches: u64,
    next_token: Token,
    /// What to do once a transaction is durable: tell Raft its number, then send.
    stores: BTreeMap<Token, (Option<u64>, Vec<Outgoing>)>,
    /// The last applied entry.
    applied: u64,
    next_read: u64,
    /// Reads that wait for Raft to say how far to apply, and then for that.
    reads: BTreeMap<u64, (Option<u64>, Origin, Read)>,
    /// Record queries that wait for a newer map.
    early_queries: Vec<(Origin, Epoch, Vec<PgId>)>,
    /// The own sessions to the other monitors, by their numbers: members, and who says to be a monitor.
    peers: BTreeMap<u64, PeerLink>,
    /// Monitors of other clusters, by where they are and whether we dialled: what the log has said already.
    foreign: BTreeSet<(EntityAddr, bool)>,
    /// It was removed. The monitors that are left, encoded.
    pub(crate) retired: Option<Bytes>,
    next_dial: u64,
    /// Requests sent to the leader: who asked here.
    forwarded: BTreeMap<u64, (ConnId, u64)>,
    next_forward: u64,
    known_leader: Option<u64>,
    leader_changed: Time,
    /// Requests that came while there was no leader.
    waiting_for_leader: VecDeque<(Origin, Peer, Message)>,
    pub(crate) leading: Option<Leading>,
    pub(crate) images: ImageCommands,
    pub(crate) image_load: ImageLoad,
    pub(crate) balancer: Balancer,
    pub(crate) services: ServiceMap,
    /// When the numbers of groups were last compared with what pools hold.
    pub(crate) autoscaled: Option<Time>,
    /// Pools that cannot be changed as they should be, and why: what the log has said already.
    pub(crate) autoscale_refused: BTreeMap<PoolId, String>,
    /// Whether the once-a-second duties are due with the next pending.
    pub(crate) periodic_due: bool,
    /// Whether what OSDs say of each other is to be looked at with the next pending.
    failures_due: bool,
    /// Whether the driver runs short of global ids.
    global_ids_wanted: bool,
    /// On the leader: the members (by Raft id) that do.
    ids_wanted_by: BTreeSet<u64>,
}

impl Mon {
    pub fn new(config: MonConfig) -> Mon {
        let rng = Rng::new(config.seed);
        let entropy = config.auth.entropy.clone().fork();
        Mon {
            config,
            injected: BTreeMap::new(),
            rng,
            entropy,
            published_keys: None,
            raft: None,
            state: None,
            sessions: Sessions::default(),
            stats: Stats::default(),
            reports: Reports::default(),
            queue: VecDeque::new(),
            queued: 0,
            in_flight: None,
            batches: 0,
            next_token: 1,
            stores: BTreeMap::new(),
            applied: 0,
            next_read: 1,
            reads: BTreeMap::new(),
            early_queries: Vec::new(),
            peers: BTreeMap::new(),
            foreign: BTreeSet::new(),
            retired: None,
            next_dial: 1,
            forwarded: BTreeMap::new(),
            next_forward: 1,
            known_leader: None,
            leader_changed: Time::ZERO,
            waiting_for_leader: VecDeque::new(),
            leading: None,
            images: ImageCommands::default(),
            image_load: ImageLoad::default(),
            balancer: Balancer::default(),
            services: ServiceMap::default(),
            autoscaled: None,
            autoscale_refused: BTreeMap::new(),
            periodic_due: true,
            failures_due: false,
            global_ids_wanted: true,
            ids_wanted_by: BTreeSet::new(),
        }
    }

    /// The cluster's id: what it has in its store counts.
    pub fn fsid(&self) -> Uuid {
        self.state.as_ref().map_or(self.config.fsid, |state| state.fsid())
    }

    /// How many changes of the map can be had.
    pub fn maps_kept(&self) -> u64 {
        self.state.as_ref().map_or(0, |state| state.osdmap.incrementals.len() as u64)
    }

    /// This member's number in Raft.
    fn id(&self) -> u64 {
        self.config.id
    }
    /// None for a monitor that has not joined.
    pub(crate) fn rank(&self) -> Option<u64> {
        self.rank_of(self.id())
    }
    fn rank_of(&self, member: u64) -> Option<u64> {
        match &self.state {
            Some(state) => state.monmap.rank_of(member),
            None => self.initial_members().position(|id| id == member).map(|rank| rank as u64),
        }
    }
    fn initial_members(&self) -> impl Iterator<Item = u64> {
        self.config.members.iter().filter(|member| member.initial).map(|member| member.id)
    }
    /// Each election begins another one.
    pub fn term(&self) -> u64 {
        self.raft.as_ref().map_or(0, Raft::term)
    }
    pub(crate) fn leader_rank(&self) -> Option<u64> {
        self.rank_of(self.raft.as_ref()?.leader()?)
    }
    /// The ranks that are known to be there.
    pub(crate) fn quorum(&self) -> Vec<u64> {
        let others = self.peers.iter().filter(|(_, link)| link.open).map(|(id, _)| *id);
        let mut ranks: Vec<u64> = others.chain([self.id()]).filter_map(|id| self.rank_of(id)).collect();
        ranks.sort_unstable();
        ranks
    }
    /// An option's value: what this very monitor was told, else from the cluster's configuration, else from the file, else the default.
    pub(crate) fn option(&self, name: &str) -> String {
        if let Some(value) = self.injected.get(name) {
            return value.clone();
        }
        options::value(self.state.as_ref(), &self.config.options, name)
    }

    fn on_start(&mut self, now: Now, store: &dyn StoreView, out: &mut Vec<Effect>) {
        let initial: Vec<u64> = self.initial_members().collect();
        let group = if initial.contains(&self.id()) { &initial[..] } else { &[] };
        let saved = persist::load(store).expect("a monitor cannot run without its store");
        let raft = Raft::new(self.id(), self.rng.next_u64(), group, &saved)
            .expect("the monitor's log is damaged: remove this monitor and add it anew");
        if let Some(checkpoint) = raft.checkpoint() {
            self.restore(checkpoint.index, &checkpoint.state);
        }
        if let Some(persist) = raft.beginning().filter(|_| saved.checkpoint.is_none()) {
            self.store(&persist, None, Vec::new(), out);
        }
        self.raft = Some(raft);
        out.push(Effect::Arm { timer: TIMER_TICK, after: TICK });
        out.push(Effect::Arm { timer: TIMER_HOUSEKEEPING, after: HOUSEKEEPING });
        self.update_peers(out);
        self.reports.restart(now.mono);
        self.publish_keys(out);
    }

    fn restore(&mut self, index: u64, bytes: &[u8]) {
        let state = from_slice(bytes).expect("a checkpoint of ours is whole: it was read with its checksum");
        self.state = Some(state);
        self.applied = index;
    }

    fn on_timer(&mut self, now: Now, timer: u64, out: &mut Vec<Effect>) {
        match timer {
            TIMER_TICK => {
                out.push(Effect::Arm { timer: TIMER_TICK, after: TICK });
                self.raft.as_mut().expect("started").tick();
                self.sessions.refill(now.mono);
            }
            TIMER_HOUSEKEEPING => {
                out.push(Effect::Arm { timer: TIMER_HOUSEKEEPING, after: HOUSEKEEPING });
                let shows_progress = self.option(commands::SHOWS_PROGRESS) != "false";
                if let Some(state) = self.state.as_ref().filter(|_| self.leading.is_some()) {
                    self.stats.sample(now, &state.osdmap.map, shows_progress);
                }
                self.image_load.sample(now.mono);
                let grace = self.option("mgr_service_beacon_grace").parse().unwrap_or(60);
                self.services.prune(now, Duration::from_secs(grace));
                self.periodic_due = true;
                self.request_global_ids(out);
                self.expire_waiting(now, out);
                self.request_join(out);
            }
            TIMER_REDIAL => self.update_peers(out),
            TIMER_FAILURES => self.failures_due = true,
            _ => {}
        }
    }

    fn on_closed(&mut self, conn: ConnId, why: &Closed, out: &mut Vec<Effect>) {
        let closed = self.sessions.remove(conn);
        if let Some(osd) = closed.as_ref().and_then(Session::osd) {
            self.on_osd_ended(osd, self.id(), out);
        }
        if let Some((id, link)) = self.peers.iter_mut().find(|(_, link)| link.conn == Some(conn)) {
            if link.open {
                let name = self.state.as_ref().and_then(|state| state.monmap.members.get(id));
                let name = name.cloned().unwrap_or_else(|| format!("(member {id})"));
                out.push(Effect::Log { level: Level::Warn, text: format!("lost mon.{name}: {why}") });
            }
            (link.conn, link.open) = (None, false);
            self.raft.as_mut().expect("started").unreachable(*id);
            self.reports.sessions.lost(*id);
            self.failures_due = true;
            out.push(Effect::Arm { timer: TIMER_REDIAL, after: REDIAL });
        }
        // We ask in the session that we dialled, and it answers in its own.
        let monitor = closed.and_then(|session| session.monitor());
        if monitor.is_some() && monitor == self.known_leader {
            self.make_clients_resend(out);
        }
    }
}

impl Machine for Mon {
    fn handle(&mut self, now: Now, event: Event, store: &dyn StoreView, out: &mut Vec<Effect>) {
        match event {
            // Everything that was said is durable already.
            Event::Stop => return out.push(Effect::Stopped),
            event if let Some(map) = self.retired.clone() => {
                return self.redirect_to_others(map, &event, out);
            }
            Event::Start => self.on_start(now, store, out),
            Event::Opened { conn, peer } => {
                if let Some((id, _)) = self.peers.iter().find(|(_, link)| link.conn == Some(conn))
                    && peer.num.wrapping_add(1) as u64 != *id
                {
                    // Another monitor has its place.
                    return self.disconnect_monitor(conn, out);
                }
                if peer.kind == EntityType::Mon {
                    let message = QuorumMsg::Hello { fsid: self.fsid() }.into();
                    out.push(Effect::Send { conn, tid: 0, message });
                }
                let caps = SessionCaps::of(&peer, self.state.as_ref().map(|state| state.auth.keys.as_ref()));
                let session = Session::new(peer, caps, now.mono);
                if let Some(osd) = session.osd() {
                    self.reports.sessions.heard(osd, self.id());
                }
                self.sessions.insert(conn, session);
                self.send_osd_keys(conn, out);
            }
            Event::Closed { conn, why } => self.on_closed(conn, &why, out),
            Event::Message { conn, tid, message } => self.on_message(now, conn, tid, message, out),
            Event::Stored(token) => self.on_stored(token, out),
            Event::Timer(timer) => self.on_timer(now, timer, out),
            Event::IdsLow => {
                self.global_ids_wanted = true;
                self.request_global_ids(out);
            }
            Event::ReadDone { .. } | Event::Loop(_) | Event::Datagram { .. } => return,
        }
        self.drive(now, out);
    }
}
