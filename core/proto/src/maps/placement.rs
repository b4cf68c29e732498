//! From an object to the OSDs that hold it. Clients do the same from the same map, so the order of
//! the steps is protocol:
//!
//!   1. name -> hash -> placement group                      `object_to_pg`
//!   2. CRUSH, with the pool's rule and a number made of the group and the pool
//!   3. OSDs that do not exist go
//!   4. `pg_upmap`, then `pg_upmap_items`, replace some
//!   5. OSDs that are down go: what is left is "up"
//!   6. primary affinity chooses up's primary
//!   7. `pg_temp` and `primary_temp`, while data moves: that is "acting"
//!
//! Where OSDs "go", copies close the gap; an erasure-coded pool keeps it as `OsdId::NONE`, since
//! there each place holds another chunk.

use super::{
    Osd, OsdMap, Pool, is_merge_source, is_merge_target, is_split, map_flags, osd_state, stable_mod,
};
use crate::types::{ObjectLocator, object_hash};
use nacre_base::{Name, OsdId, PgId, PoolId, ShardId};
use nacre_crush::hash::hash32_2;
use std::sync::Arc;

/// The OSDs that should serve a placement group (up), and those that do (acting).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpActing {
    pub up: Vec<OsdId>,
    pub up_primary: Option<OsdId>,
    pub acting: Vec<OsdId>,
    /// Where clients send operations.
    pub acting_primary: Option<OsdId>,
    /// The pool is erasure-coded: the place of an OSD in `acting` is the shard that it holds.
    pub has_shards: bool,
}

impl UpActing {
    /// The acting set without holes, each OSD with the shard that it holds. An OSD that holds several is
    /// there several times.
    pub fn members(&self) -> impl Iterator<Item = (OsdId, ShardId)> {
        let shard = |at: usize| if self.has_shards { ShardId(at as i8) } else { ShardId::NONE };
        let places = self.acting.iter().enumerate().filter(|(_, osd)| **osd != OsdId::NONE);
        places.map(move |(at, osd)| (*osd, shard(at)))
    }
    /// The shard of the acting primary: its first place in the acting set.
    pub fn primary_shard(&self) -> ShardId {
        let of_primary = |(osd, _): &(OsdId, ShardId)| Some(*osd) == self.acting_primary;
        self.members().find(of_primary).map_or(ShardId::NONE, |(_, shard)| shard)
    }
}

impl Pool {
    /// The number that CRUSH gets for a placement group. Ceph: `raw_pg_to_pps`.
    pub fn placement_seed(&self, pg: PgId) -> u32 {
        let seed = stable_mod(pg.seed, self.pgp_num);
        let pool = pg.pool.0 as u32;
        if self.has(super::pool_flags::HASHPSPOOL) {
            hash32_2(seed, pool)
        } else {
            // As long ago: the groups of all pools overlap.
            seed.wrapping_add(pool)
        }
    }

    /// Takes out what fails `keep`, in the way of this pool's kind.
    fn retain(&self, osds: &mut Vec<OsdId>, keep: impl Fn(OsdId) -> bool) {
        if self.is_erasure() {
            osds.iter_mut().filter(|osd| !keep(**osd)).for_each(|osd| *osd = OsdId::NONE);
        } else {
            osds.retain(|&osd| keep(osd));
        }
    }
}

fn first(osds: &[OsdId]) -> Option<OsdId> {
    osds.iter().copied().find(|&osd| osd != OsdId::NONE)
}

impl OsdMap {
    /// The group that an object belongs to; none if there is no such pool.
    pub fn object_to_pg(&self, locator: &ObjectLocator, name: &Name) -> Option<PgId> {
        let hash = match locator.hash {
            Some(hash) if hash >= 0 => hash as u32,
            _ => object_hash(&locator.namespace, if locator.key.is_empty() { name } else { &locator.key }),
        };
        self.hash_to_pg(locator.pool, hash)
    }
    pub fn hash_to_pg(&self, pool: PoolId, hash: u32) -> Option<PgId> {
        Some(PgId { pool, seed: self.pool(pool)?.raw_pg_to_pg(hash) })
    }

    /// Which OSDs serve `pg`; none if there is no such placement group.
    pub fn pg_to_up_acting(&self, pg: PgId) -> UpActing {
        let Some(pool) = self.pool(pg.pool).filter(|pool| pg.seed < pool.pg_num) else {
            return UpActing::default();
        };
        self.up_acting_from(pool, pg, self.crush_placement(pg))
    }

    /// The rest of `pg_to_up_acting`, for callers that keep the result of `crush_placement`: that part is
    /// dear, and depends only on the CRUSH map, the weights, the pool, and which OSDs exist.
    pub fn up_acting_from(&self, pool: &Pool, pg: PgId, crush: Vec<OsdId>) -> UpActing {
        let pps = pool.placement_seed(pg);
        let mut up = crush;
        self.apply_upmap(pg, &mut up);
        pool.retain(&mut up, |osd| self.is_up(osd));
        let up_primary = self.apply_affinity(pool, pps, &mut up).or_else(|| first(&up));

        let mut acting = self.pg_temp.get(&pg).cloned().unwrap_or_default();
        pool.retain(&mut acting, |osd| self.is_up(osd));
        let temp_primary = self.primary_temp.get(&pg).copied().or_else(|| first(&acting));
        let (acting, acting_primary) = if acting.is_empty() {
            (up.clone(), temp_primary.or(up_primary))
        } else {
            (acting, temp_primary)
        };
        UpActing { up, up_primary, acting, acting_primary, has_shards: pool.is_erasure() }
    }

    /// Where the pool's rule places a group, before any exception; nowhere if there is no such group.
    pub fn crush_placement(&self, pg: PgId) -> Vec<OsdId> {
        let Some(pool) = self.pool(pg.pool).filter(|pool| pg.seed < pool.pg_num) else { return Vec::new() };
        let mut osds = self.crush_osds(pool, pg, pool.placement_seed(pg));
        pool.retain(&mut osds, |osd| self.exists(osd));
        osds
    }

    /// Whether `crush_placement` may differ from what it was by an older map, for any placement group of a
    /// pool. Snapshots and quotas, for example, change only the pool, and an OSD that goes down changes
    /// nothing here.
    /// `moves_all` is asked separately.
    pub fn moves_pool(&self, old: &OsdMap, pool: PoolId) -> bool {
        let inputs = |map: &OsdMap| {
            let pool = map.pool(pool)?;
            let hashed = pool.has(super::pool_flags::HASHPSPOOL);
            Some((pool.kind as u8, pool.size, pool.crush_rule, pool.pg_num, pool.pgp_num, hashed))
        };
        inputs(old) != inputs(self)
    }
    /// Whether that may be so for all pools.
    pub fn moves_all(&self, old: &OsdMap) -> bool {
        let existence = |(before, after): (&Arc<Osd>, &Arc<Osd>)| {
            !Arc::ptr_eq(before, after) && (before.state ^ after.state) & osd_state::EXISTS != 0
        };
        !Arc::ptr_eq(&old.crush, &self.crush)
            || old.weights != self.weights
            || old.osds.len() != self.osds.len()
            || old.osds.iter().zip(&self.osds).any(existence)
    }

    /// The number of the rule that places a pool's groups; none if none fits, and then they are nowhere.
    pub fn rule_of(&self, pool: &Pool) -> Option<u32> {
        // Clients up to Pacific and the kernel look for a rule whose mask fits the pool, and find no
        // OSDs if none does. Later ones do not look at the mask: a monitor must not let it matter.
        let fits = |rule: &nacre_crush::Rule| {
            rule.ruleset == pool.crush_rule
                && rule.kind == pool.kind as u8
                && (rule.min_size..=rule.max_size).contains(&pool.size)
        };
        let rules = &self.crush.rules;
        rules.iter().position(|rule| rule.as_ref().is_some_and(fits)).map(|rule| rule as u32)
    }

    /// What CRUSH alone says.
    fn crush_osds(&self, pool: &Pool, pg: PgId, pps: u32) -> Vec<OsdId> {
        let Some(rule) = self.rule_of(pool) else { return Vec::new() };
        let size = usize::from(pool.size);
        let osds = self.crush.do_rule(rule, pps, size, &self.weights, Some(pg.pool.0));
        osds.into_iter().map(OsdId).collect()
    }

    /// Whether `osd` has weight zero. Ids that the map has no room for do not count as out here.
    fn is_marked_out(&self, osd: OsdId) -> bool {
        usize::try_from(osd.0).ok().and_then(|at| self.weights.get(at)) == Some(&0)
    }

    fn apply_upmap(&self, pg: PgId, osds: &mut Vec<OsdId>) {
        if let Some(all) = self.pg_upmap.get(&pg) {
            if all.iter().any(|&osd| self.is_marked_out(osd)) {
                return; // and `pg_upmap_items` has no say either
            }
            osds.clone_from(all);
        }
        for &(from, to) in self.pg_upmap_items.get(&pg).into_iter().flatten() {
            if osds.contains(&to) || self.is_marked_out(to) {
                continue;
            }
            if let Some(osd) = osds.iter_mut().find(|osd| **osd == from) {
                *osd = to;
            }
        }
    }

    /// The primary by affinity, moved to the front where places do not matter; none where affinity
    /// does not matter.
    fn apply_affinity(&self, pool: &Pool, pps: u32, osds: &mut [OsdId]) -> Option<OsdId> {
        self.primary_affinity.as_ref()?;
        let affinities =
            osds.iter().filter(|&&osd| osd != OsdId::NONE).map(|&osd| self.primary_affinity(osd));
        if affinities.clone().all(|a| a == Osd::DEFAULT_AFFINITY) {
            return None;
        }
        // The hash is of the group and the OSD, so that each OSD is refused for its share of groups.
        let accepts = |osd: OsdId| {
            let affinity = self.primary_affinity(osd);
            affinity >= Osd::DEFAULT_AFFINITY || hash32_2(pps, osd.0 as u32) >> 16 < affinity
        };
        let somebody = |osd: &OsdId| *osd != OsdId::NONE;
        let chosen = osds.iter().position(|osd| somebody(osd) && accepts(*osd));
        let at = chosen.or_else(|| osds.iter().position(somebody))?;
        let primary = osds[at];
        if !pool.is_erasure() {
            osds[..=at].rotate_right(1);
        }
        Some(primary)
    }
}

/// Whether `pg` must peer anew between two maps. Ceph: `PastIntervals::is_new_interval`.
///
/// Only what concerns every OSD alike counts: an OSD that itself was down in between peers anyway.
pub fn is_new_interval(old: &OsdMap, new: &OsdMap, pg: PgId) -> bool {
    let Some(before) = old.pool(pg.pool) else { return false };
    let Some(after) = new.pool(pg.pool) else { return true };
    let pending = (before.pg_num_pending, after.pg_num_pending);
    let flags = map_flags::SORTBITWISE | map_flags::RECOVERY_DELETES;
    before.size != after.size
        || before.min_size != after.min_size
        || is_split(pg, before.pg_num, after.pg_num)
        || is_merge_source(pg, before.pg_num, after.pg_num)
        || is_merge_target(pg, before.pg_num, after.pg_num)
        // A merge is announced, or called off.
        || is_merge_source(pg, pending.0, pending.1)
        || is_merge_source(pg, pending.1, pending.0)
        || is_merge_target(pg, pending.0, pending.1)
        || is_merge_target(pg, pending.1, pending.0)
        || old.flags & flags != new.flags & flags
        || old.pg_to_up_acting(pg) != new.pg_to_up_acting(pg)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_in_the_acting_set_of_an_erasure_coded_pool_is_the_shard() {
        let acting = || vec![OsdId::NONE, OsdId(3), OsdId(0), OsdId(3)];
        let of = |osd, has_shards| UpActing {
            acting: acting(),
            acting_primary: osd,
            has_shards,
            ..UpActing::default()
        };
        let erasure = of(Some(OsdId(3)), true);
        let members = [(OsdId(3), ShardId(1)), (OsdId(0), ShardId(2)), (OsdId(3), ShardId(3))];
        assert_eq!(erasure.members().collect::<Vec<_>>(), members);
        assert_eq!(erasure.primary_shard(), ShardId(1));
        let none = |osd| (OsdId(osd), ShardId::NONE);
        assert_eq!(of(Some(OsdId(3)), false).members().collect::<Vec<_>>(), [none(3), none(0), none(3)]);
        for without in [of(None, true), of(Some(OsdId(0)), false)] {
            assert_eq!(without.primary_shard(), ShardId::NONE);
        }
    }
}
