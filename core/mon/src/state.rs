//! What the monitors agree on: the sum of all committed batches.
//!
//! Each service has its slice of the state and its part, the delta, of a batch. A batch is one entry of the
//! Raft log. The state is what all batches add up to, and what a checkpoint holds. A new slice is registered
//! here: in the list (`slices!`) and, if it is stored, at the end of both encodings.

use crate::services::auth::Auth;
use crate::services::config::Config;
use crate::services::fsmap::FileSystems;
use crate::services::health::Mutes;
use crate::services::hosts::Hosts;
use crate::services::kv::KeyValues;
use crate::services::leader_hints::LeaderHints;
use crate::services::log::ClusterLog;
use crate::services::mgr::ManagerMap;
use crate::services::monitors::MonMetadata;
use crate::services::monmap::Membership;
use crate::services::osdmap::maps::{OsdMapChange, OsdMaps};
use crate::services::pg::records::PgRecords;
use crate::services::upgrade::Upgrades;
use crate::sessions::Session;
use bytes::Bytes;
use nacre_auth::Entity;
use nacre_base::Utime;
use nacre_proto::maps::{MonMap, OsdMap, Uuid};
use nacre_proto::messages::Message;
use nacre_proto::types::AuthName;
use nacre_wire::{Decode, DecodeError, Encode, Reader, versioned, versioned_fields};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

/// A service's slice of the state.
///
/// Every monitor applies the same deltas in the same order. So a slice depends on nothing else: on no clock,
/// no configuration file, no session.
pub trait Slice: Sized {
    /// The service's part of a batch. The default changes nothing.
    type Delta: Clone + Debug + Default + PartialEq;

    /// The slice of a new cluster.
    fn begin(genesis: &Genesis) -> Result<Self, Rejected>;
    /// Cannot fail: what may be wrong with a batch is found before any service applies its part. The slices
    /// are applied in no particular order, so `at` holds what they need of each other.
    fn apply(&mut self, delta: &Self::Delta, at: &Applying);
    /// Bytes of a delta that grow with what clients send.
    fn delta_bytes(_delta: &Self::Delta) -> usize {
        0
    }
    /// Bytes that clients have the monitors keep.
    fn client_bytes(&self) -> usize {
        0
    }
    /// The newest and the oldest version of `what`, if it is a map of this service.
    fn version(&self, _what: &str) -> Option<(u64, u64)> {
        None
    }
    /// What a subscriber to `what` gets from `start` on; none if that is of another service or nothing is
    /// new.
    fn publish(_state: &State, _what: &str, _session: &mut Session, _start: u64) -> Option<Published> {
        None
    }
}

/// What subscribers are sent.
pub struct Published {
    pub messages: Vec<Message>,
    /// Where the subscription continues.
    pub next: u64,
}

/// What a service may look at while it applies its part of a batch.
pub struct Applying {
    pub stamp: Utime,
    /// The OSD map before the batch.
    pub osdmap: Arc<OsdMap>,
    /// How the batch changes it.
    pub change: Option<OsdMapChange>,
}

/// Makes `State` and `Batch` of the services' slices.
macro_rules! slices {
    ($($(#[doc = $doc:literal])* $field:ident: $slice:ty,)*) => {
        /// What the monitors agree on.
        #[derive(Clone, Debug)]
        pub struct State {
            $($(#[doc = $doc])* pub $field: $slice,)*
        }

        /// What is committed at once: one entry of the log.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Batch {
            /// The member that proposed this, and its number there: the proposer recognizes its own batch.
            pub origin: (u64, u64),
            pub stamp: Utime,
            /// The beginning of a cluster: only in the first batch.
            pub genesis: Option<Genesis>,
            $(pub $field: <$slice as Slice>::Delta,)*
        }

        impl State {
            /// A new cluster.
            pub fn begin(genesis: &Genesis) -> Result<State, Rejected> {
                Ok(State { $($field: <$slice>::begin(genesis)?,)* })
            }
            fn apply_slices(&mut self, batch: &Batch, at: &Applying) {
                $(self.$field.apply(&batch.$field, at);)*
            }
            /// Bytes that clients have it keep: options, values under keys, users.
            pub fn client_bytes(&self) -> usize {
                [$(self.$field.client_bytes(),)*].into_iter().sum()
            }
            /// The newest and the oldest version of a map.
            pub fn version(&self, what: &str) -> Option<(u64, u64)> {
                [$(self.$field.version(what),)*].into_iter().flatten().next()
            }
            /// What a subscriber to `what` gets from `start` on; none if nothing is new.
            pub fn publish(&self, what: &str, session: &mut Session, start: u64) -> Option<Published> {
                $(if let Some(published) = <$slice>::publish(self, what, session, start) {
                    return Some(published);
                })*
                None
            }
        }

        impl Batch {
            /// Bytes of texts and values in it, which grow with what clients send.
            pub fn client_bytes(&self) -> usize {
                [$(<$slice>::delta_bytes(&self.$field),)*].into_iter().sum()
            }
        }
    };
}

slices! {
    /// The monitors, and which of them decide.
    monmap: Membership,
    mgrmap: ManagerMap,
    osdmap: OsdMaps,
    pgs: PgRecords,
    config: Config,
    kv: KeyValues,
    log: ClusterLog,
    health: Mutes,
    auth: Auth,
    leader_hints: LeaderHints,
    /// File systems and their metadata servers.
    fsmap: FileSystems,
    hosts: Hosts,
    mon_metadata: MonMetadata,
    /// The cluster's format, and its upgrades.
    upgrades: Upgrades,
}

/// How a cluster begins.
#[derive(Clone, Debug, PartialEq)]
pub struct Genesis {
    pub monmap: MonMap,
    /// The first OSD map, encoded.
    pub osdmap: Bytes,
    /// Users and daemons that a new cluster knows.
    pub entities: BTreeMap<AuthName, Entity>,
    /// The format of the cluster; 0 of monitors that do not know of formats.
    pub format: u32,
}

/// Why a batch changes nothing: it was made for another state than the one it met.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    #[error("the cluster exists already")]
    Exists,
    #[error("no cluster yet")]
    NoCluster,
    #[error("osdmap: {0}")]
    OsdMap(#[from] nacre_proto::maps::ApplyError),
    #[error("osdmap: {0}")]
    Undecodable(#[from] DecodeError),
}

impl Batch {
    /// Whether this would change nothing.
    pub fn is_empty(&self) -> bool {
        let nothing = Batch { origin: self.origin, stamp: self.stamp, ..Batch::default() };
        *self == nothing
    }
}

impl State {
    /// The cluster's id.
    pub fn fsid(&self) -> Uuid {
        self.monmap.map.fsid
    }

    /// Applies a committed batch.
    pub fn apply(&mut self, batch: &Batch) -> Result<(), Rejected> {
        if batch.genesis.is_some() {
            return Err(Rejected::Exists);
        }
        let change = self.osdmap.change(&batch.osdmap, &self.config);
        let mut at = Applying { stamp: batch.stamp, osdmap: self.osdmap.map.clone(), change: None };
        match change {
            Ok(change) => at.change = change,
            Err(rejected) => {
                // Raft's group changes with the entry, whatever becomes of the rest.
                self.monmap.apply(&batch.monmap, &at);
                return Err(rejected);
            }
        }
        self.apply_slices(batch, &at);
        Ok(())
    }
}

versioned_fields!(Genesis, "genesis", monmap, osdmap; later entities, format);

impl Encode for Batch {
    fn encode(&self, out: &mut Vec<u8>) {
        versioned(out, 9, 1, |out| {
            self.origin.encode(out);
            self.stamp.encode(out);
            self.genesis.encode(out);
            // Once a monitor map.
            None::<MonMap>.encode(out);
            self.mgrmap.encode(out);
            self.osdmap.incremental.encode(out);
            self.pgs.encode(out);
            self.config.encode(out);
            self.kv.encode(out);
            self.log.encode(out);
            self.osdmap.metadata.encode(out);
            self.health.encode(out);
            self.auth.global_ids.encode(out);
            self.leader_hints.encode(out);
            self.monmap.encode(out);
            self.osdmap.removal_numbers.encode(out);
            self.auth.entities.encode(out);
            self.auth.rotated.encode(out);
            self.hosts.encode(out);
            self.mon_metadata.encode(out);
            self.upgrades.encode(out);
            self.fsmap.encode(out);
        });
    }
}
impl Decode for Batch {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("batch", 9, |r, v| {
            let mut batch = Batch {
                origin: Decode::decode(r)?,
                stamp: Decode::decode(r)?,
                genesis: Decode::decode(r)?,
                ..Batch::default()
            };
            Option::<MonMap>::decode(r)?;
            batch.mgrmap = Decode::decode(r)?;
            batch.osdmap.incremental = Decode::decode(r)?;
            batch.pgs = Decode::decode(r)?;
            batch.config = Decode::decode(r)?;
            batch.kv = Decode::decode(r)?;
            batch.log = Decode::decode(r)?;
            batch.osdmap.metadata = Decode::decode(r)?;
            batch.health = Decode::decode(r)?;
            batch.auth.global_ids = Decode::decode(r)?;
            if v >= 2 {
                batch.leader_hints = Decode::decode(r)?;
            }
            if v >= 3 {
                batch.monmap = Decode::decode(r)?;
            }
            if v >= 4 {
                batch.osdmap.removal_numbers = Decode::decode(r)?;
            }
            if v >= 5 {
                batch.auth.entities = Decode::decode(r)?;
                batch.auth.rotated = Decode::decode(r)?;
            }
            if v >= 6 {
                batch.hosts = Decode::decode(r)?;
            }
            if v >= 7 {
                batch.mon_metadata = Decode::decode(r)?;
            }
            if v >= 8 {
                batch.upgrades = Decode::decode(r)?;
            }
            if v >= 9 {
                batch.fsmap = Decode::decode(r)?;
            }
            Ok(batch)
        })
    }
}

/// A checkpoint.
impl Encode for State {
    fn encode(&self, out: &mut Vec<u8>) {
        versioned(out, 11, 1, |out| {
            self.monmap.map.encode(out);
            self.mgrmap.map.encode(out);
            self.osdmap.encode_maps(out);
            self.pgs.records.encode(out);
            self.config.options.encode(out);
            self.config.changes.iter().cloned().collect::<Vec<_>>().encode(out);
            self.kv.pairs.encode(out);
            self.log.lines.iter().map(|(_, line)| line.clone()).collect::<Vec<_>>().encode(out);
            self.log.seq.encode(out);
            self.osdmap.metadata.encode(out);
            self.health.mutes.encode(out);
            self.auth.next_global_id.encode(out);
            self.osdmap.purged_snaps.encode(out);
            self.leader_hints.encode(out);
            self.monmap.members.encode(out);
            self.monmap.removed.encode(out);
            self.auth.keys.as_ref().encode(out);
            self.hosts.encode(out);
            self.log.lines.iter().map(|(number, _)| *number).collect::<Vec<_>>().encode(out);
            self.mon_metadata.of.encode(out);
            self.upgrades.encode(out);
            self.fsmap.encode(out);
        });
    }
}
impl Decode for State {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.versioned("monitor state", 11, |r, v| {
            let mut state = State {
                monmap: Membership::initial(MonMap::decode(r)?),
                mgrmap: ManagerMap { map: Decode::decode(r)? },
                osdmap: OsdMaps::decode_maps(r)?,
                pgs: PgRecords { records: Decode::decode(r)? },
                config: Config { options: Decode::decode(r)?, changes: Vec::decode(r)?.into() },
                kv: KeyValues { pairs: Decode::decode(r)? },
                log: ClusterLog::contiguous(Decode::decode(r)?, Decode::decode(r)?),
                health: Mutes::default(),
                auth: Auth::default(),
                leader_hints: LeaderHints::default(),
                fsmap: FileSystems::default(),
                hosts: Hosts::default(),
                mon_metadata: MonMetadata::default(),
                upgrades: Upgrades::default(),
            };
            state.osdmap.metadata = Decode::decode(r)?;
            state.health.mutes = Decode::decode(r)?;
            state.auth.next_global_id = Decode::decode(r)?;
            if v >= 2 {
                state.osdmap.purged_snaps = Decode::decode(r)?;
            }
            if v >= 3 {
                state.leader_hints = Decode::decode(r)?;
            }
            if v >= 4 {
                (state.monmap.members, state.monmap.removed) = (Decode::decode(r)?, Decode::decode(r)?);
            }
            if v < 5 {
                // Some of them may never have been removed. The others are removed again on request.
                state.osdmap.purged_snaps.clear();
            }
            if v >= 6 {
                state.auth.keys = Arc::new(Decode::decode(r)?);
            }
            if v >= 7 {
                state.hosts = Decode::decode(r)?;
            }
            if v >= 8 {
                let numbers: Vec<u64> = Decode::decode(r)?;
                state.log.lines.iter_mut().zip(numbers).for_each(|((number, _), saved)| *number = saved);
            }
            if v >= 9 {
                state.mon_metadata.of = Decode::decode(r)?;
            }
            if v >= 10 {
                state.upgrades = Decode::decode(r)?;
            }
            if v >= 11 {
                state.fsmap = Decode::decode(r)?;
            }
            Ok(state)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pending_txn::PendingTxn;
    use crate::services::osdmap::maps::{INCREMENTALS, OsdMapDelta, TRIM_PART};
    use nacre_base::{Epoch, OsdId, PgId, PoolId};
    use nacre_crush::CrushMap;
    use nacre_proto::maps::{Incremental, Pool};
    use nacre_proto::messages::PgRecord;
    use nacre_wire::to_vec;

    fn begun(now: Utime) -> State {
        let first = OsdMap::new([1; 16], now, CrushMap::fresh(0));
        let monmap = MonMap::new([1; 16], now, Vec::new());
        State::begin(&Genesis { monmap, osdmap: to_vec(&first).into(), entities: BTreeMap::new(), format: 2 })
            .unwrap()
    }

    /// Without this, an OSD that served the parent before, and not in the interval that begins, would do for
    /// the child.
    #[test]
    fn a_child_starts_from_a_record_that_is_committed_with_the_split() {
        let (now, pool) = (Utime::ZERO, PoolId(1));
        let mut state = begun(now);
        let pg = |seed| PgId { pool, seed };
        let record = |interval, osd| PgRecord { interval: Epoch(interval), acting: vec![OsdId(osd)] };
        let mut pending = PendingTxn::new(&state, now);
        pending.edit(|inc| inc.new_pools.insert(pool, Arc::new(Pool::replicated(1, 1, 1, 0, now))));
        pending.batch.pgs.push((pg(0), record(2, 5)));
        state.apply(&pending.finish()).unwrap();

        let mut pending = PendingTxn::new(&state, now);
        pending.batch.pgs.push((pg(0), record(3, 7)));
        pending.edit_pool(pool, |pool| pool.pg_num = 2);
        state.apply(&pending.finish()).unwrap();
        assert_eq!((&state.pgs.records[&pg(0)], &state.pgs.records[&pg(1)]), (&record(3, 7), &record(3, 7)));

        let mut pending = PendingTxn::new(&state, now);
        pending.batch.pgs.push((pg(1), record(4, 8)));
        pending.edit(|inc| inc.old_pools.insert(pool));
        state.apply(&pending.finish()).unwrap();
        assert!(state.pgs.records.is_empty(), "nothing stays of a pool that is gone");
    }

    /// Found by fuzzing checkpoints: the monitor died when a client asked for an older map.
    #[test]
    fn a_change_that_does_not_fit_costs_old_maps_and_no_more() {
        let now = Utime::ZERO;
        let mut state = begun(now);
        let step = |state: &mut State| {
            let mut inc = Incremental::after(&state.osdmap.map, now);
            inc.seal(&state.osdmap.map).unwrap();
            state
                .apply(&Batch {
                    osdmap: OsdMapDelta { incremental: Some(to_vec(&inc).into()), ..OsdMapDelta::default() },
                    ..Batch::default()
                })
                .unwrap();
        };
        step(&mut state);
        step(&mut state);
        assert!(state.osdmap.at(Epoch(2)).is_some());
        state.osdmap.incrementals.insert(Epoch(2), Bytes::from_static(b"damaged"));
        assert_eq!(state.osdmap.at(Epoch(2)), None);
        assert!(state.osdmap.at(Epoch(3)).is_some());
        (0..INCREMENTALS + INCREMENTALS / TRIM_PART).for_each(|_| step(&mut state));
        assert!(state.osdmap.oldest() > Epoch(3));
        assert!(state.osdmap.at(state.osdmap.oldest()).is_some());
    }
}
