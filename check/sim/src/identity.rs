//! How a node authenticates itself and its callers: the simulator's counterpart of `shell/node`'s
//! `authentication`.
//!
//! The provers and verifiers of `core/auth` take a plain function for the clock. Here it reads the wall clock
//! of the node for which the simulator runs them at the moment (`set_wall_clock`).

use nacre_auth::cephx::{CephxVerifier, Due, KeyStore, Service, TicketManager};
use nacre_auth::{
    Entropy, GlobalIds, Keys, METHOD_CEPHX, NoneProver, NoneVerifier, Prover, Secret, Verifier,
};
use nacre_base::{Epoch, Utime};
use nacre_proto::messages::{Auth, AuthReply, PaxosVersion};
use nacre_proto::types::{AuthName, EntityType};
use std::cell::Cell;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

thread_local! {
    static WALL_CLOCK: Cell<Utime> = const { Cell::new(Utime::ZERO) };
}

fn wall_clock() -> Utime {
    WALL_CLOCK.get()
}

/// What provers and verifiers take for the time from here on.
pub fn set_wall_clock(now: Utime) {
    WALL_CLOCK.set(now);
}

/// Global ids that a monitor may assign to clients.
#[derive(Clone, Default)]
pub struct GlobalIdPool(Arc<Mutex<VecDeque<Range<u64>>>>);

impl GlobalIdPool {
    fn ranges(&self) -> MutexGuard<'_, VecDeque<Range<u64>>> {
        self.0.lock().expect("no thread panics while it holds the lock")
    }
    pub fn grant(&self, range: Range<u64>) {
        self.ranges().push_back(range);
    }
    pub fn left(&self) -> u64 {
        self.ranges().iter().map(|range| range.end - range.start).sum()
    }
    fn take(&self) -> Option<u64> {
        let mut ranges = self.ranges();
        let range = ranges.front_mut()?;
        let id = range.start;
        range.start += 1;
        if range.is_empty() {
            ranges.pop_front();
        }
        Some(id)
    }
}

/// One incarnation of a node, as others know it.
pub struct Identity {
    name: AuthName,
    cephx: Option<Cephx>,
}

struct Cephx {
    tickets: TicketManager,
    /// The rotating keys that the machine knows.
    keys: KeyStore,
    /// The key that all monitors share; None for other nodes.
    mon_key: Option<Secret>,
    entropy: Entropy,
}

impl Identity {
    /// In a cluster without authentication.
    pub fn none(name: AuthName) -> Identity {
        Identity { name, cephx: None }
    }

    pub fn cephx(name: AuthName, key: Secret, seed: u64) -> Identity {
        let mut entropy = Entropy::repeatable(seed);
        let keys = KeyStore::default();
        let mon_key = (name.kind == EntityType::Mon as u32).then(|| key.clone());
        let tickets = TicketManager::new(name.clone(), key, keys.clone(), wall_clock, entropy.fork());
        Identity { name, cephx: Some(Cephx { tickets, keys, mon_key, entropy }) }
    }

    pub fn uses_cephx(&self) -> bool {
        self.cephx.is_some()
    }

    /// For a connection that the node opens.
    pub fn prover(&self, global_id: u64) -> Box<dyn Prover> {
        match &self.cephx {
            None => Box::new(NoneProver { name: self.name.clone(), global_id }),
            Some(cephx) => Box::new(cephx.tickets.prover()),
        }
    }

    /// For a connection that the node accepts as a daemon of that kind.
    pub fn verifier(&mut self, kind: EntityType, ids: &GlobalIdPool) -> Box<dyn Verifier> {
        let ids = ids.clone();
        let global_ids = match kind {
            EntityType::Mon => GlobalIds::Assign(Box::new(move || ids.take())),
            _ => GlobalIds::Brought,
        };
        match &mut self.cephx {
            None => Box::new(NoneVerifier { global_ids }),
            Some(Cephx { keys, mon_key, entropy, .. }) => Box::new(CephxVerifier::new(
                kind as Service,
                keys.clone(),
                mon_key.clone(),
                global_ids,
                wall_clock,
                entropy.fork(),
            )),
        }
    }

    pub fn put_keys(&self, keys: Arc<Keys>) {
        if let Some(cephx) = &self.cephx {
            cephx.keys.put(keys);
        }
    }

    /// What the node has to do for tickets that expire, if anything.
    pub fn renewal(&self) -> Option<Renewal> {
        let tickets = &self.cephx.as_ref()?.tickets;
        match tickets.due()? {
            Due::Session => Some(Renewal::NewSession),
            Due::Tickets => {
                let payload = tickets.ask()?.into();
                let (protocol, version) = (METHOD_CEPHX, PaxosVersion(0));
                Some(Renewal::Ask(Box::new(Auth { version, protocol, payload, monmap_epoch: Epoch(0) })))
            }
        }
    }

    /// Takes the tickets in a monitor's reply.
    pub fn renewed(&self, reply: &AuthReply) -> Result<(), String> {
        let Some(cephx) = &self.cephx else { return Ok(()) };
        if reply.result != 0 {
            return Err(format!("no tickets: error {}", -reply.result));
        }
        cephx.tickets.answered(&reply.payload).map_err(|e| format!("no tickets: {e}"))
    }
}

pub enum Renewal {
    /// Send this to a monitor.
    Ask(Box<Auth>),
    /// Hang up on the monitor: the next session brings another session ticket.
    NewSession,
}
