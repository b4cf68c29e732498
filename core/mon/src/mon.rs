//! The machine: events in, effects out, Raft in the middle.
//!
//! `Mon` holds smaller machines, each with its own state: `consensus` (Raft and what it persists), `peers`
//! (links to the other monitors), `forwarding` (requests for the leader), `reads`, `proposals` (what waits to
//! be committed, and what is being committed), the sessions and the services. `Mon::drive` runs after each
//! event until there is nothing to do but wait, and `Mon::check` asserts what must hold then. A disk that
//! holds something else than this monitor wrote ends it (`damage`).

mod check;
mod consensus;
mod damage;
mod forwarding;
mod membership;
mod peers;
mod proposals;
mod reads;
mod requests;
mod time_checks;

pub(crate) use consensus::Leading;
pub(crate) use damage::{check_entry, decode_checkpoint};
pub(crate) use membership::is_majority;
pub(crate) use proposals::{Done, Job};
pub(crate) use requests::{CommandRequest, Origin, Via};

use crate::counters::MonCounters;
use crate::services::health::Checks;
use crate::services::{Context, Options, Services};
use crate::sessions::caps::SessionCaps;
use crate::sessions::{Session, Sessions};
use crate::state::State;
use crate::{commands, persist};
use bytes::Bytes;
use check::Committed;
use consensus::Consensus;
use damage::Damage;
use forwarding::Forwarding;
use nacre_auth::{Entity, Entropy, Secret};
use nacre_base::{Now, Rng};
use nacre_machine::{Closed, ConnId, Effect, Event, Level, Machine, Peer, StoreView};
use nacre_options::{Overrides, Value};
use nacre_perf::Registry;
use nacre_proto::maps::{OsdMap, Uuid};
use nacre_proto::messages::{QuorumMsg, quorum_features};
use nacre_proto::types::{AddrVec, AuthName, EntityType, Release};
use nacre_raft::Raft;
use peers::Peers;
use proposals::Proposals;
use reads::Reads;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Raft's clock; a lone member needs it only to repeat a read that came too early.
const TICK: Duration = Duration::from_millis(100);
/// Everything that is a matter of seconds.
const HOUSEKEEPING: Duration = Duration::from_secs(1);
const REDIAL: Duration = Duration::from_millis(500);
/// Requests that may wait for their turn, and bytes of them. Daemons repeat what is dropped; clients repeat
/// it after a hangup.
const QUEUE_MAX: usize = 10_000;
const QUEUED_MAX: usize = 64 << 20;

const TIMER_TICK: u64 = 1;
const TIMER_HOUSEKEEPING: u64 = 2;
const TIMER_REDIAL: u64 = 3;
const TIMER_FAILURES: u64 = 4;

/// The configuration of a monitor.
#[derive(Clone, Debug)]
pub struct MonConfig {
    /// The number of this one of `members`.
    pub id: u64,
    pub name: String,
    /// All monitors, the initial members by rank, with exactly the addresses that they listen on. Once there
    /// is a cluster its map counts instead.
    pub members: Vec<Member>,
    /// Where this process listens in the manager's role.
    pub mgr_addrs: AddrVec,
    /// Of the cluster that it begins or joins.
    pub fsid: Uuid,
    /// From the configuration file, by Ceph's names.
    pub options: BTreeMap<String, String>,
    pub host: String,
    /// The counters of this process, which `perf dump` shows.
    pub perf: Registry,
    /// What it runs on, by Ceph's names.
    pub metadata: BTreeMap<String, String>,
    /// What it says of its program.
    pub release: Release,
    /// For everything that is drawn and no secret; a new one for each start.
    pub seed: u64,
    pub auth: MonAuth,
}

/// How callers are authenticated.
#[derive(Clone, Debug)]
pub struct MonAuth {
    /// Whether callers must prove their identity (cephx).
    pub required: bool,
    /// Users and daemons that a new cluster knows.
    pub initial_entities: BTreeMap<AuthName, Entity>,
    /// The key that all monitors share, for hosts that are to run one.
    pub monitors_key: Option<Secret>,
    /// Keys are made of it.
    pub entropy: Entropy,
}

impl MonAuth {
    /// Without authentication.
    pub fn none(entropy: Entropy) -> MonAuth {
        MonAuth { required: false, initial_entities: BTreeMap::new(), monitors_key: None, entropy }
    }
}

/// A monitor.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its number in Raft, which no other has or had. An initial member's is its rank plus one.
    pub id: u64,
    pub name: String,
    pub addrs: AddrVec,
    /// Whether it begins a new cluster; the others join.
    pub initial: bool,
}

/// A monitor of a cluster. Each group of fields that belongs together is a machine of its own, in `mon/`.
pub struct Mon {
    pub(crate) config: MonConfig,
    /// Set by `ceph tell mon.X config set`, until the next start.
    pub(crate) overrides: Overrides,
    rng: Rng,
    pub(crate) entropy: Entropy,
    /// None until the cluster's first batch is applied.
    pub(crate) state: Option<State>,
    consensus: Consensus,
    peers: Peers,
    forwarding: Forwarding,
    reads: Reads,
    proposals: Proposals,
    pub(crate) leading: Option<Leading>,
    pub(crate) sessions: Sessions,
    pub(crate) services: Services,
    counted: Arc<MonCounters>,
    /// Whether the driver runs short of global ids.
    global_ids_wanted: bool,
    /// Set when this monitor was removed: the monitor map without it, encoded.
    pub(crate) retired: Option<Bytes>,
    /// As of the last `check`.
    committed: Committed,
}

impl Mon {
    pub fn new(config: MonConfig) -> Mon {
        let (rng, entropy) = (Rng::new(config.seed), config.auth.entropy.clone().fork());
        let counted: Arc<MonCounters> = config.perf.add();
        Mon {
            config,
            overrides: Overrides::default(),
            rng,
            entropy,
            state: None,
            consensus: Consensus::default(),
            peers: Peers::default(),
            forwarding: Forwarding::default(),
            reads: Reads::default(),
            proposals: Proposals::default(),
            leading: None,
            sessions: Sessions::new(counted.clone()),
            counted,
            services: Services::default(),
            global_ids_wanted: true,
            retired: None,
            committed: Committed::default(),
        }
    }

    /// The cluster's id: what it has in its store counts.
    pub fn fsid(&self) -> Uuid {
        self.state.as_ref().map_or(self.config.fsid, |state| state.fsid())
    }

    /// The cluster's format; 0 before there is a cluster.
    pub fn format(&self) -> u32 {
        self.state.as_ref().map_or(0, |state| state.upgrades.format)
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
        self.consensus.term()
    }
    pub(crate) fn leader_rank(&self) -> Option<u64> {
        self.rank_of(self.consensus.current_leader()?)
    }
    /// The members that are reachable, with this one.
    pub(crate) fn quorum_members(&self) -> impl Iterator<Item = u64> {
        self.peers.open().chain([self.id()]).filter(|id| self.rank_of(*id).is_some())
    }
    /// Their ranks.
    pub(crate) fn quorum(&self) -> Vec<u64> {
        let mut ranks: Vec<u64> = self.quorum_members().filter_map(|id| self.rank_of(id)).collect();
        ranks.sort_unstable();
        ranks
    }
    /// The value of an option for this monitor.
    pub(crate) fn option(&self, name: &str) -> Value {
        self.options().get(name)
    }
    pub(crate) fn options(&self) -> Options<'_> {
        Options { state: self.state.as_ref(), file: &self.config.options, overrides: &self.overrides }
    }

    /// What services and commands look at.
    pub(crate) fn context(&self, now: Now) -> Context<'_> {
        Context {
            now,
            state: self.state.as_ref().expect("the caller has the state"),
            config: &self.config,
            options: self.options(),
            sessions: &self.sessions,
            quorum: self.quorum(),
            leads_since: self.leading.as_ref().map(|leading| leading.since),
        }
    }
    /// The same, beside what services may change; none before there is a state.
    fn services(&mut self, now: Now) -> Option<(Context<'_>, &mut Services, &mut Entropy)> {
        let quorum = self.quorum();
        let state = self.state.as_ref()?;
        let options = Options { state: Some(state), file: &self.config.options, overrides: &self.overrides };
        let cx = Context {
            now,
            state,
            config: &self.config,
            options,
            sessions: &self.sessions,
            quorum,
            leads_since: self.leading.as_ref().map(|leading| leading.since),
        };
        Some((cx, &mut self.services, &mut self.entropy))
    }
    /// Everything that is wrong now.
    pub(crate) fn health(&self, now: Now, map: &OsdMap) -> Checks {
        self.services.health(&self.context(now), map)
    }

    fn on_start(&mut self, now: Now, store: &dyn StoreView, out: &mut Vec<Effect>) -> Result<(), Damage> {
        let initial: Vec<u64> = self.initial_members().collect();
        let group = if initial.contains(&self.id()) { &initial[..] } else { &[] };
        let saved = persist::load(store)?;
        let raft = Raft::new(self.id(), self.rng.next_u64(), group, &saved).ok_or(Damage::Log)?;
        // Also those that are not committed yet: this monitor may send them to others.
        let check =
            |(index, bytes): (u64, &[u8])| check_entry(bytes).map_err(|error| Damage::Entry { index, error });
        raft.proposals().try_for_each(check)?;
        if let Some(checkpoint) = raft.checkpoint() {
            self.restore(checkpoint.index, decode_checkpoint(checkpoint.index, &checkpoint.state)?);
        }
        if let Some(persist) = raft.beginning().filter(|_| saved.checkpoint.is_none()) {
            self.consensus.store(&persist, None, Vec::new(), out);
        }
        self.consensus.start(raft);
        out.push(Effect::Arm { timer: TIMER_TICK, after: TICK });
        out.push(Effect::Arm { timer: TIMER_HOUSEKEEPING, after: HOUSEKEEPING });
        self.update_peers(out);
        self.services.restart(now.mono);
        self.publish_keys(out);
        Ok(())
    }

    fn restore(&mut self, index: u64, state: State) {
        self.state = Some(state);
        self.consensus.applied = index;
    }

    fn on_timer(&mut self, now: Now, timer: u64, out: &mut Vec<Effect>) {
        match timer {
            TIMER_TICK => {
                out.push(Effect::Arm { timer: TIMER_TICK, after: TICK });
                self.consensus.raft().tick();
                self.sessions.refill(now.mono);
            }
            TIMER_HOUSEKEEPING => {
                out.push(Effect::Arm { timer: TIMER_HOUSEKEEPING, after: HOUSEKEEPING });
                let shows_progress = self.option(commands::SHOWS_PROGRESS).as_bool();
                let grace = self.option("mgr_service_beacon_grace").as_u64();
                let leads = self.state.as_ref().filter(|_| self.leading.is_some());
                self.services.sample(now, leads, shows_progress, Duration::from_secs(grace));
                self.proposals.periodic_due = true;
                self.check_times(now, out);
                self.request_global_ids(out);
                self.expire_waiting(now, out);
                self.request_join(out);
                self.report_to_leader(now, out);
                self.note_silent_members(now, out);
            }
            TIMER_REDIAL => self.update_peers(out),
            TIMER_FAILURES => self.proposals.failures_due = true,
            _ => {}
        }
    }

    fn on_closed(&mut self, conn: ConnId, why: &Closed, out: &mut Vec<Effect>) {
        let closed = self.sessions.remove(conn);
        if let Some(osd) = closed.as_ref().and_then(Session::osd) {
            self.on_osd_ended(osd, self.id(), out);
        }
        if let Some((id, was_open)) = self.peers.closed(conn) {
            if was_open {
                self.log_lost(id, &why.to_string(), out);
            }
            self.on_unreachable(id);
            out.push(Effect::Arm { timer: TIMER_REDIAL, after: REDIAL });
        }
        // We ask in the session that we dialled, and it answers in its own.
        let monitor = closed.and_then(|session| session.monitor());
        if monitor.is_some() && monitor == self.consensus.leader {
            self.make_clients_resend(out);
        }
    }

    fn log_lost(&mut self, id: u64, why: &str, out: &mut Vec<Effect>) {
        let name = self.state.as_ref().and_then(|state| state.monmap.members.get(&id));
        let name = name.cloned().unwrap_or_else(|| format!("(member {id})"));
        out.push(Effect::Log { level: Level::Warn, text: format!("lost mon.{name}: {why}") });
    }

    /// Another monitor cannot be reached any more, or still not.
    fn on_unreachable(&mut self, id: u64) {
        self.consensus.raft().unreachable(id);
        self.services.osd.sessions.lost(id);
        self.proposals.failures_due = true;
    }

    fn on_opened(&mut self, now: Now, conn: ConnId, peer: Peer, out: &mut Vec<Effect>) {
        if self.peers.by_conn(conn).is_some_and(|id| peer.num.wrapping_add(1) as u64 != id) {
            // Another monitor has its address.
            return self.peers.disconnect(conn, out);
        }
        if peer.kind == EntityType::Mon {
            let message = QuorumMsg::Hello {
                fsid: self.fsid(),
                features: quorum_features::ALL,
                formats: self.config.release.formats,
                format: self.format(),
            };
            out.push(Effect::Send { conn, tid: 0, message: message.into() });
        }
        let caps = SessionCaps::of(&peer, self.state.as_ref().map(|state| state.auth.keys.as_ref()));
        let session = Session::new(peer, caps, now.mono);
        if let Some(osd) = session.osd() {
            self.services.osd.sessions.heard(osd, self.id());
        }
        self.services.auth.send_to_osd(conn, &session, &mut self.entropy, out);
        self.sessions.insert(conn, session);
    }
}

impl Machine for Mon {
    fn handle(&mut self, now: Now, event: Event, store: &dyn StoreView, out: &mut Vec<Effect>) {
        match event {
            // Everything that was sent is durable already.
            Event::Stop => return out.push(Effect::Stopped),
            event if let Some(map) = self.retired.clone() => {
                return self.redirect_to_others(map, &event, out);
            }
            Event::Start => {
                if let Err(damage) = self.on_start(now, store, out) {
                    return out.push(damage.fail(&self.config.name));
                }
            }
            Event::Opened { conn, peer } => self.on_opened(now, conn, peer, out),
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
        match self.drive(now, out) {
            Ok(()) => {
                self.stop_if_too_old(out);
                self.check();
            }
            Err(damage) => out.push(damage.fail(&self.config.name)),
        }
    }
}
