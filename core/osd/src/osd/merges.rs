//! Placement groups that become one: see `pg/merge.rs`.

use super::Osd;
use crate::pg::{Interval, Pg, PgEvent};
use nacre_base::{Now, PgId};
use nacre_machine::{Effect, StoreView};
use nacre_proto::maps::{OsdMap, ancestor};
use nacre_proto::messages::{DaemonMsg, MergeReady};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Osd {
    /// Pairs that the map wants to be one, as far as we are the primary of both halves.
    pub(super) fn prepare_merges(&mut self, now: Now, store: &dyn StoreView, out: &mut Vec<Effect>) {
        let Some(map) = self.maps.current.clone().filter(|_| self.presence.serving) else { return };
        for (source, target) in map.pools.iter().filter_map(|(&id, pool)| pool.merging(id)) {
            self.prepare_merge(now, store, &map, source, target, out);
        }
    }

    fn prepare_merge(
        &mut self,
        now: Now,
        store: &dyn StoreView,
        map: &OsdMap,
        source: PgId,
        target: PgId,
        out: &mut Vec<Effect>,
    ) {
        let (Some(one), Some(other)) = (self.pg(source), self.pg(target)) else { return };
        match (one.holds_writes(), other.holds_writes()) {
            (true, true) => {
                if let (Some((source_interval, source_version)), Some((target_interval, target_version))) =
                    (one.ready_to_merge(), other.ready_to_merge())
                {
                    let ready = MergeReady {
                        epoch: map.epoch,
                        source,
                        source_interval,
                        source_version,
                        target_interval,
                        target_version,
                    };
                    self.to_mon(DaemonMsg::MergeReady(ready), out);
                }
            }
            (held, also) if one.is_active() && other.is_active() => {
                let alike = one.interval().acting == other.interval().acting;
                let both = alike && one.may_hold_writes() && other.may_hold_writes();
                // If one held writes and the other serves anew, the versions reported to the monitors are
                // outdated, as the other's new interval is committed: neither need wait then.
                for (pg, holds) in [(source, held), (target, also)] {
                    if holds != both {
                        self.tell_pg(now, store, pg, PgEvent::HoldWrites(both), out);
                    }
                }
            }
            _ => {}
        }
    }

    /// Placement groups whose pool has fewer PGs than when they were last examined.
    pub(super) fn merge_groups(
        &mut self,
        now: Now,
        store: &dyn StoreView,
        map: &Arc<OsdMap>,
        out: &mut Vec<Effect>,
    ) {
        let mut parts: BTreeMap<(PgId, u32), Vec<PgId>> = BTreeMap::new();
        for pg in self.pgs() {
            let Some(pool) = map.pool(pg.id.pool).filter(|pool| pool.pg_num < pg.pg_num()) else { continue };
            let target = ancestor(pg.id, pool.pg_num);
            let sources = parts.entry((target, pool.pg_num)).or_default();
            sources.extend(Some(pg.id).filter(|id| *id != target));
        }
        for ((target, pg_num), sources) in parts {
            let mut gone: Vec<Pg> = Vec::new();
            for id in sources {
                let at = self.shard_of(id);
                gone.extend(self.shards[at].take(id));
                self.pg_requests.records.remove(&id);
                self.pg_requests.activations.remove(&id);
            }
            self.pg_requests.records.remove(&target);
            self.pg_requests.activations.remove(&target);
            let at = self.shard_of(target);
            let is_new = self.pg(target).is_none();
            let placed = map.pg_to_up_acting(target);
            let interval = Interval::new(map.epoch, placed, map, target);
            self.in_shard(now, store, at, out, |shard, scene| {
                if is_new {
                    shard.create(scene, target, interval, pg_num);
                }
                shard.merge(scene, target, gone, pg_num);
            });
        }
    }
}
