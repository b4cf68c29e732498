//! Activation records: how far each placement group had come when it last served. The agreed slice.

use crate::services::osdmap::maps::OsdMapChange;
use crate::state::{Applying, Genesis, Rejected, Slice, State};
use nacre_base::{PgId, PoolId};
use nacre_proto::maps::{OsdMap, ancestor, split_children};
use nacre_proto::messages::PgRecord;
use std::collections::BTreeMap;

/// The activation record of each placement group.
#[derive(Clone, Debug)]
pub struct PgRecords {
    pub records: BTreeMap<PgId, PgRecord>,
}

impl Slice for PgRecords {
    type Delta = Vec<(PgId, PgRecord)>;

    fn begin(_: &Genesis) -> Result<PgRecords, Rejected> {
        Ok(PgRecords { records: BTreeMap::new() })
    }

    fn apply(&mut self, delta: &Self::Delta, at: &Applying) {
        // A placement group that begins to serve in the epoch before it is split, or removed, has served when
        // that happens: its successors start from there.
        self.records.extend(delta.iter().cloned());
        if let Some(change) = &at.change {
            for pool in &change.inc.old_pools {
                self.records.retain(|pg, _| pg.pool != *pool);
            }
            for (&id, pool) in &change.inc.new_pools {
                let Some(before) = at.osdmap.pool(id) else { continue };
                if before.pg_num < pool.pg_num {
                    self.split(id, &at.osdmap, pool.pg_num);
                }
                for seed in pool.pg_num..before.pg_num {
                    let target = ancestor(PgId { pool: id, seed }, pool.pg_num);
                    self.merge(PgId { pool: id, seed }, target, change);
                }
            }
        }
    }
}

impl PgRecords {
    /// A new placement group starts where its parent stands.
    fn split(&mut self, pool: PoolId, before: &OsdMap, pg_num: u32) {
        let old_pg_num = before.pool(pool).map_or(0, |pool| pool.pg_num);
        for pg in before.pgs(pool) {
            let Some(record) = self.records.get(&pg).cloned() else { continue };
            for child in split_children(pg, old_pg_num, pg_num) {
                self.records.insert(child, record.clone());
            }
        }
    }

    /// A placement group that took another one in begins there, with the OSDs that had both.
    fn merge(&mut self, source: PgId, target: PgId, change: &OsdMapChange) {
        let record = self.records.remove(&source);
        if let (Some(_), Some(target)) = (record, self.records.get_mut(&target)) {
            target.interval = change.inc.epoch;
        }
    }
}

impl State {
    /// Whether every placement group of the pool has served once.
    pub fn pool_is_created(&self, pool: PoolId) -> bool {
        self.osdmap.map.pgs(pool).all(|pg| self.pgs.records.contains_key(&pg))
    }
}
