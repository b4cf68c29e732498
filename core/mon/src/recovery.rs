//! A cluster that lost its monitors goes on with one: with the state that one of them still has, or with that
//! of a backup.
//!
//! All other monitors are removed from the state, so that one of them that comes back is told so and never
//! decides again. The OSD map continues with a later epoch than any daemon can have.

mod from_osds;

pub use from_osds::{CollectedHost, CollectedOsd, CollectedPg, Collection, Gaps};

use crate::mon::{check_entry, decode_checkpoint};
use crate::persist;
use crate::services::hosts::{HostMonitor, next_monitor};
use crate::state::{Batch, State};
use nacre_auth::{Entity, Secret};
use nacre_base::Utime;
use nacre_machine::{ReadError, StoreView};
use nacre_proto::maps::Uuid;
use nacre_proto::transaction::Transaction;
use nacre_proto::types::{AddrVec, AuthName, EntityType};
use nacre_raft::Raft;
use nacre_wire::{DecodeError, from_slice, to_vec, versioned_fields};
use std::collections::BTreeSet;

/// Decisions that were lost may have made so many epochs of the OSD map at most.
const EPOCHS_LOST: u32 = 10_000;

/// And given numbers to so many monitors.
const MONITORS_LOST: u64 = 1000;

/// And given so many global ids to clients a second at most, on average since 1970. Two clients with one id
/// would be taken for each other where requests are recognised that were done before.
const GLOBAL_IDS_PER_SEC: u64 = 1000;

/// What `nacre mon backup` writes: all that the monitors agree on, and the key that they share.
#[derive(Clone, Debug, PartialEq)]
pub struct Backup {
    /// When it was made.
    pub made: Utime,
    /// By which version of Nacre.
    pub version: String,
    /// The key of the monitors; none in a cluster without authentication.
    pub monitors_key: Option<Secret>,
    /// A checkpoint.
    pub(crate) state: bytes::Bytes,
}

versioned_fields!(Backup, "backup of the monitors", made, version, monitors_key, state);

/// What the first bytes of a backup are.
const MAGIC: &[u8] = b"nacre-mon-backup\n";

impl Backup {
    /// As it is in a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        [MAGIC, &to_vec(self)].concat()
    }
    /// From a file.
    pub fn from_bytes(bytes: &[u8]) -> Result<Backup, RecoveryError> {
        Ok(from_slice(bytes.strip_prefix(MAGIC).ok_or(RecoveryError::NoBackup)?)?)
    }
}

/// Why a state cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    #[error("it is no backup of monitors")]
    NoBackup,
    #[error("it is not what `nacre mon collect` wrote")]
    NoCollection,
    #[error("it is damaged: {0}")]
    Undecodable(#[from] DecodeError),
    #[error("it cannot be read: {0}")]
    Unreadable(#[from] ReadError),
    #[error("the Raft log is damaged")]
    Log,
    #[error("{0}")]
    Damaged(String),
    #[error("this monitor has not joined the cluster yet and has no data of it")]
    Empty,
}

/// A state from which a cluster is to go on.
pub struct Recovery {
    state: State,
    /// Index and term of the last entry of the log that it is from.
    reach: (u64, u64),
}

impl Recovery {
    /// From a backup.
    pub fn of_backup(backup: &Backup) -> Result<Recovery, RecoveryError> {
        Ok(Recovery { state: from_slice(&backup.state)?, reach: (0, 0) })
    }

    /// From the store of a monitor that is left, with everything that it was told.
    pub fn of_store(id: u64, store: &dyn StoreView) -> Result<Recovery, RecoveryError> {
        let saved = persist::load(store)?;
        let reach = nacre_raft::reach(&saved).ok_or(RecoveryError::Log)?;
        let raft = Raft::new(id, 0, &[], &saved).ok_or(RecoveryError::Log)?;
        let mut state = None;
        let mut from = 0;
        if let Some(checkpoint) = raft.checkpoint() {
            let decoded = decode_checkpoint(checkpoint.index, &checkpoint.state);
            state = Some(decoded.map_err(|damage| RecoveryError::Damaged(damage.to_string()))?);
            from = checkpoint.index;
        }
        for (_, bytes) in raft.proposals().filter(|(index, _)| *index > from) {
            check_entry(bytes)?;
            let batch: Batch = from_slice(bytes)?;
            // One that does not fit was made for another state, and changes nothing.
            match (&mut state, &batch.genesis) {
                (Some(state), _) => drop(state.apply(&batch)),
                (None, Some(genesis)) => state = State::begin(genesis).ok(),
                (None, None) => {}
            }
        }
        Ok(Recovery { state: state.ok_or(RecoveryError::Empty)?, reach })
    }

    /// The cluster's id.
    pub fn fsid(&self) -> Uuid {
        self.state.fsid()
    }
    /// A number for a monitor that none ever had, also not since a backup was made.
    pub fn next_id(&self) -> u64 {
        next_monitor(&self.state) + MONITORS_LOST
    }
    /// Names and addresses of the monitors.
    pub fn monitors(&self) -> Vec<(String, AddrVec)> {
        let all = self.state.monmap.map.by_rank();
        all.map(|mon| (mon.name.clone(), mon.public_addrs.clone())).collect()
    }
    /// How many OSDs and pools there are.
    pub fn counts(&self) -> (usize, usize) {
        let map = &self.state.osdmap.map;
        (map.osd_ids().count(), map.pools.len())
    }
    /// When the OSD map was last changed.
    pub fn last_change(&self) -> Utime {
        self.state.osdmap.map.modified
    }
    /// A user, with key and capabilities.
    pub fn entity(&self, name: &AuthName) -> Option<&Entity> {
        self.state.auth.keys.entities.get(name)
    }
    /// The administrator.
    pub fn admin(&self) -> Option<(AuthName, &Entity)> {
        let name = AuthName::new(EntityType::Client, "admin");
        self.entity(&name).map(|entity| (name.clone(), entity))
    }

    /// What makes the monitor with this number, name and address, of this host, the only one, in its store.
    pub fn lone(mut self, id: u64, name: &str, addrs: AddrVec, host: &str, now: Utime) -> Transaction {
        let state = &mut self.state;
        let unused = u64::from(now.sec) * GLOBAL_IDS_PER_SEC;
        state.auth.next_global_id = state.auth.next_global_id.max(unused);
        let membership = &mut state.monmap;
        let others: BTreeSet<u64> = membership.members.keys().copied().filter(|other| *other != id).collect();
        membership.removed.extend(others);
        membership.members = [(id, name.to_string())].into();
        for other in membership.map.ranks.clone() {
            membership.map.remove(&other);
        }
        membership.map.add(name.to_string(), addrs);
        membership.map.epoch = membership.map.epoch.next();
        for (of, info) in &mut state.hosts.hosts {
            let own = HostMonitor { id, name: name.to_string() };
            info.monitor = (of == host).then_some(own);
        }
        state.hosts.last_monitor = state.hosts.last_monitor.max(id);
        state.osdmap.skip_epochs(EPOCHS_LOST);
        persist::transaction(&nacre_raft::restored(id, self.reach, to_vec(state)))
    }
}
