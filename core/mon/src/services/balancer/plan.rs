//! Which PGs to move where.

use super::Exceptions;
use super::domains::Domains;
use nacre_base::{OsdId, PgId, PoolId};
use nacre_proto::maps::{OsdMap, Pool, pool_flags};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A plan that meets this many moves that do not work out ends.
const REFUSED_MAX: usize = 1000;

/// Exceptions that the rule does not allow any more, since the tree or an OSD changed, or that do nothing.
pub fn void(map: &OsdMap) -> Exceptions {
    let mut domains: BTreeMap<PoolId, Option<Domains>> = BTreeMap::new();
    let mut changes = Vec::new();
    for (&pg, items) in map.pg_upmap_items.iter() {
        let Some(pool) = map.pool(pg.pool).filter(|_| map.pg_exists(pg)) else {
            changes.push((pg, Vec::new()));
            continue;
        };
        let domains = domains.entry(pg.pool).or_insert_with(|| Domains::of(map, pool));
        let mut members = map.crush_placement(pg);
        let mut kept = Vec::new();
        for &(from, to) in items {
            let Some(at) = members.iter().position(|&osd| osd == from) else { continue };
            // One that is down may be back in a minute; one that is out is not wanted.
            let wanted = map.exists(to) && map.is_in(to) && !members.contains(&to);
            let known = domains.as_ref().filter(|domains| domains.has(from) && domains.has(to));
            if wanted && known.is_none_or(|domains| domains.may_replace(&members, from, to)) {
                members[at] = to;
                kept.push((from, to));
            }
        }
        if kept != *items {
            changes.push((pg, kept));
        }
    }
    changes
}

/// One pool that is balanced.
struct Share {
    domains: Domains,
    /// Each OSD's PGs beyond its share.
    beyond: BTreeMap<OsdId, f64>,
    /// Where its PGs are, but for those that an operator placed.
    up: BTreeMap<PgId, Vec<OsdId>>,
    /// The same by OSD.
    groups: BTreeMap<OsdId, BTreeSet<PgId>>,
}

/// How far OSDs are from their share.
struct Load {
    pools: BTreeMap<PoolId, Share>,
    /// Over all these pools.
    total: BTreeMap<OsdId, f64>,
}

/// A PG leaves one OSD for another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Move {
    pg: PgId,
    from: OsdId,
    to: OsdId,
}

/// Pools whose PGs stay as they are otherwise.
fn is_stable(pool: &Pool) -> bool {
    let Pool { pg_num, pg_num_target, pg_num_pending, pgp_num, pgp_num_target, .. } = pool;
    let resting = [pg_num_target, pg_num_pending, pgp_num, pgp_num_target].into_iter().all(|n| n == pg_num);
    resting && !pool.has(pool_flags::CREATING) && !pool.is_erasure()
}

impl Share {
    fn of(map: &OsdMap, id: PoolId, pool: &Pool) -> Option<Share> {
        let domains = Domains::of(map, pool)?;
        let all: Vec<(PgId, Vec<OsdId>)> = map.pgs(id).map(|pg| (pg, map.pg_to_up_acting(pg).up)).collect();
        let places = all.iter().map(|(_, up)| up.len()).sum::<usize>() as f64;
        let weights: f64 = domains.osds().map(|(_, weight)| weight).sum();
        let mut beyond: BTreeMap<_, _> =
            domains.osds().map(|(osd, weight)| (osd, -places * weight / weights)).collect();
        for osd in all.iter().flat_map(|(_, up)| up) {
            beyond.entry(*osd).and_modify(|n| *n += 1.0);
        }
        let mut groups: BTreeMap<OsdId, BTreeSet<PgId>> = BTreeMap::new();
        let movable = |(pg, _): &(PgId, Vec<OsdId>)| !map.pg_upmap.contains_key(pg);
        let up: BTreeMap<PgId, Vec<OsdId>> = all.into_iter().filter(movable).collect();
        for (pg, up) in &up {
            for osd in up {
                groups.entry(*osd).or_default().insert(*pg);
            }
        }
        Some(Share { domains, beyond, up, groups })
    }
}

impl Load {
    fn of(map: &OsdMap, pools: &BTreeSet<PoolId>) -> Load {
        let mut load = Load { pools: BTreeMap::new(), total: BTreeMap::new() };
        let wanted = |id: &PoolId| pools.is_empty() || pools.contains(id);
        for (&id, pool) in map.pools.iter().filter(|(id, pool)| wanted(id) && is_stable(pool)) {
            if let Some(share) = Share::of(map, id, pool) {
                share.beyond.iter().for_each(|(osd, n)| *load.total.entry(*osd).or_insert(0.0) += n);
                load.pools.insert(id, share);
            }
        }
        load
    }

    fn carry_out(&mut self, Move { pg, from, to }: Move) {
        let share = self.pools.get_mut(&pg.pool).expect("the move is from this");
        for beyond in [&mut share.beyond, &mut self.total] {
            *beyond.entry(from).or_insert(0.0) -= 1.0;
            *beyond.entry(to).or_insert(0.0) += 1.0;
        }
        // It moves once per plan.
        for osd in share.up.remove(&pg).into_iter().flatten() {
            if let Some(groups) = share.groups.get_mut(&osd) {
                groups.remove(&pg);
            }
        }
    }

    /// Whether one of both has more or less than it may.
    fn is_off(&self, share: &Share, from: OsdId, to: OsdId, deviation: f64) -> bool {
        let off = |at: &BTreeMap<OsdId, f64>| at[&from] > deviation || at[&to] < -deviation;
        off(&share.beyond) || off(&self.total)
    }

    /// The move that gains most: that brings down most the sum of the squares of all deviations, those
    /// within its pool and those of all pools together.
    fn best(&self, deviation: f64, refused: &BTreeSet<Move>) -> Option<Move> {
        let mut best: Option<(f64, Move)> = None;
        for share in self.pools.values() {
            let load = |osd: OsdId| share.beyond[&osd] + self.total[&osd];
            let mut osds: Vec<OsdId> = share.beyond.keys().copied().collect();
            osds.sort_by(|a, b| load(*a).total_cmp(&load(*b)));
            for &from in osds.iter().rev() {
                // Half of what the squares lose.
                let gain = |to: OsdId| load(from) - load(to) - 2.0;
                let enough = best.map_or(1e-9, |(gain, _)| gain + 1e-9);
                if osds.first().is_none_or(|&least| gain(least) <= enough) {
                    break;
                }
                let promising = osds.iter().copied().take_while(|&to| gain(to) > enough);
                let mut off = promising.filter(|&to| self.is_off(share, from, to, deviation));
                let found = off.find_map(|to| {
                    let mut moves = share.groups.get(&from)?.iter().map(|&pg| Move { pg, from, to });
                    let allowed = |found: &Move| {
                        share.domains.may_replace(&share.up[&found.pg], from, to) && !refused.contains(found)
                    };
                    moves.find(allowed)
                });
                if let Some(found) = found {
                    best = Some((gain(found.to), found));
                }
            }
        }
        best.map(|(_, found)| found)
    }
}

/// At most `most` PGs, those first that gain most. Every move brings the squares of the deviations down,
/// so that there comes an end.
pub fn plan(map: &OsdMap, pools: &BTreeSet<PoolId>, deviation: f64, most: usize) -> Exceptions {
    let mut load = Load::of(map, pools);
    let mut trial = map.clone();
    let (mut moved, mut refused) = (Vec::new(), BTreeSet::new());
    while moved.len() < most && refused.len() < REFUSED_MAX {
        let Some(next) = load.best(deviation, &refused) else { break };
        let Move { pg, from, to } = next;
        let items = with(map.pg_upmap_items.get(&pg), from, to);
        let set = |trial: &mut OsdMap, items: Option<&Vec<(OsdId, OsdId)>>| {
            let all = Arc::make_mut(&mut trial.pg_upmap_items);
            match items.filter(|items| !items.is_empty()) {
                Some(items) => all.insert(pg, items.clone()),
                None => all.remove(&pg),
            };
        };
        set(&mut trial, Some(&items));
        let mut expected = load.pools[&pg.pool].up[&pg].clone();
        expected.iter_mut().filter(|osd| **osd == from).for_each(|osd| *osd = to);
        // Replacements happen one after the other: one may be in another's way.
        let up: BTreeSet<OsdId> = trial.pg_to_up_acting(pg).up.into_iter().collect();
        if up == expected.into_iter().collect() {
            load.carry_out(next);
            moved.push((pg, items));
        } else {
            set(&mut trial, map.pg_upmap_items.get(&pg));
            refused.insert(next);
        }
    }
    moved
}

/// One more replacement. An OSD that replaced another one is itself replaced by the new one.
fn with(items: Option<&Vec<(OsdId, OsdId)>>, from: OsdId, to: OsdId) -> Vec<(OsdId, OsdId)> {
    let mut items = items.cloned().unwrap_or_default();
    match items.iter().position(|item| item.1 == from) {
        Some(at) if items[at].0 == to => drop(items.remove(at)),
        Some(at) => items[at].1 = to,
        None => items.push((from, to)),
    }
    items
}

/// How uneven pools are: the mean, over their OSDs, of how far the PGs there are from their share, as a
/// part of the mean share. Zero is even.
pub fn score(map: &OsdMap, pools: &BTreeSet<PoolId>) -> f64 {
    let load = Load::of(map, pools);
    let uneven = |share: &Share| {
        let off: f64 = share.beyond.values().map(|n| n.abs()).sum();
        let places: usize = share.up.values().map(Vec::len).sum();
        off / places.max(1) as f64
    };
    load.pools.values().map(uneven).fold(0.0, |all, one| all + one) / load.pools.len().max(1) as f64
}
