//! How many placement groups each pool should have for what it holds, or will hold.
//!
//! All OSDs below what a pool's rule takes are to have `mon_target_pg_per_osd` copies of PGs together, and a
//! pool has its part of these by the part of the space that it fills: what it holds now or, if that is more,
//! what its `target_size_bytes` or `target_size_ratio` announce. Ceph's rule, and its numbers; only a number
//! that is three times off is worth a change. Pools that are to be large (`bulk`) share what the others
//! leave, before they hold anything. `pg_autoscale_mode` says whether the pool is changed (`on`), spoken of
//! (`warn`), or left alone.

use crate::pending_txn::PendingTxn;
use crate::services::Context;
use crate::services::health::{Checks, warn};
use crate::services::pg::stats::{PgStats, raw_rate, rule_weights};
use nacre_base::{OsdId, PoolId, Time};
use nacre_crush::Op;
use nacre_proto::maps::{OsdMap, Pool, PoolOption, pool_flags};
use nacre_proto::messages::LogLevel;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A pool without a minimum of its own has this many PGs at least.
const GROUPS_MIN: u64 = 32;
/// This many times too many or too few is worth a change.
const THRESHOLD: f64 = 3.0;

/// `pg_autoscale_mode` in the map.
pub const OFF: u8 = 0;
pub const WARN: u8 = 1;
pub const ON: u8 = 2;

/// What a pool holds and should have.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Advice {
    pub pool: PoolId,
    /// What its rule takes.
    pub root: i32,
    /// Bytes that clients stored, and that they announced.
    pub stored: u64,
    pub target_bytes: u64,
    /// Bytes on devices for each.
    pub rate: f64,
    /// Of all OSDs that the rule may choose.
    pub capacity: u64,
    pub target_ratio: f64,
    /// That, with what other pools announced.
    pub effective_target_ratio: f64,
    pub bias: f64,
    pub bulk: bool,
    /// PGs: before it is made a power of two, and after.
    pub ideal: u64,
    pub best: u64,
    /// It has far too many or too few.
    pub is_off: bool,
}

impl Advice {
    pub fn raw_stored(&self) -> f64 {
        self.stored as f64 * self.rate
    }
    pub fn raw_wanted(&self) -> f64 {
        self.stored.max(self.target_bytes) as f64 * self.rate
    }
    pub fn ratio(&self) -> f64 {
        (self.raw_wanted() / self.capacity as f64).max(self.effective_target_ratio)
    }
    /// This many copies of PGs are for this pool.
    fn want(&mut self, pool: &Pool, copies: f64) {
        self.ideal = (copies / f64::from(pool.size.max(1)) * self.bias) as u64;
        let least = match whole(pool, PoolOption::PG_NUM_MIN) {
            0 => GROUPS_MIN,
            least => least,
        };
        let most = match whole(pool, PoolOption::PG_NUM_MAX) {
            0 => u64::MAX,
            most => most,
        };
        self.best = nearest_power(self.ideal).max(least).min(most);
        let (has, best) = (f64::from(pool.pg_num_target), self.best as f64);
        self.is_off = self.ratio() <= 1.0 && (best > has * THRESHOLD || best < has / THRESHOLD);
    }
}

/// OSDs that some pools share.
struct Subtree {
    root: i32,
    osds: BTreeSet<OsdId>,
    capacity: u64,
    groups_left: u64,
    ratios: f64,
    bytes: f64,
    /// Pools that are to be large and have no PGs assigned yet.
    bulk_left: u64,
}

impl Subtree {
    /// Such a part of the copies that are left.
    fn take(&mut self, ratio: f64) -> f64 {
        let copies = ratio * self.groups_left as f64;
        self.groups_left = self.groups_left.saturating_sub(copies as u64);
        copies
    }
}

fn whole(pool: &Pool, option: u32) -> u64 {
    match pool.options.get(&option) {
        Some(PoolOption::Int(n)) => u64::try_from(*n).unwrap_or(0),
        _ => 0,
    }
}
fn fraction(pool: &Pool, option: u32) -> Option<f64> {
    match pool.options.get(&option) {
        Some(PoolOption::Float(x)) => Some(*x),
        _ => None,
    }
}
fn announced(pool: &Pool) -> (f64, u64) {
    let ratio = fraction(pool, PoolOption::TARGET_SIZE_RATIO).unwrap_or(0.0);
    (ratio, if ratio > 0.0 { 0 } else { whole(pool, PoolOption::TARGET_SIZE_BYTES) })
}

/// The nearest power of two. There are never more PGs than ids for them, whatever the bias.
fn nearest_power(n: u64) -> u64 {
    let n = n.clamp(1, 1 << 31);
    let above = n.next_power_of_two();
    let below = above / 2;
    if above - n > n - below { below } else { above }
}

/// Changes pools once in a while.
#[derive(Debug, Default)]
pub struct Autoscaler {
    /// When the numbers of placement groups were last compared with what pools hold.
    last: Option<Time>,
    /// Pools that cannot be changed as they should be, and why: what was logged already.
    refused: BTreeMap<PoolId, String>,
}

impl Autoscaler {
    /// Changes pools in mode `on`, once in a while, as soon as all their PGs were reported.
    pub fn periodic(&mut self, cx: &Context<'_>, pgs: &PgStats, pending: &mut PendingTxn) {
        let map = pending.map().clone();
        if !map.pools.values().any(|pool| pool.autoscale_mode == ON) {
            return;
        }
        let pause = cx.option("mgr/pg_autoscaler/sleep_interval").as_u64();
        let leads_since = cx.leads_since.unwrap_or(cx.now.mono);
        let last = self.last.map_or(leads_since, |last: Time| last.max(leads_since));
        if cx.now.mono.since(last) < Duration::from_secs(pause) {
            return;
        }
        self.last = Some(cx.now.mono);
        self.refused.retain(|id, _| map.pools.contains_key(id));
        for advice in misshapen_pools(cx, pgs, &map, ON) {
            let id = advice.pool;
            let Some(pool) = map.pool(id) else { continue };
            // A pool that is being changed can wait.
            let changing = pool.pg_num != pool.pg_num_target || pool.pg_num_pending != pool.pg_num;
            let settled = !changing
                && !pool.has(pool_flags::CREATING)
                && !pool.has(pool_flags::NOPGCHANGE)
                && map.pgs(id).all(|pg| pgs.is_clean(cx.state, &map, pg));
            if !settled {
                continue;
            }
            let name = map.pool_name(id).unwrap_or_default();
            let (from, to) = (pool.pg_num, advice.best as u32);
            match crate::commands::set_groups(cx.options, pending, id, advice.best) {
                Ok(()) => {
                    self.refused.remove(&id);
                    let part = advice.ratio() * 100.0;
                    let text = format!(
                        "pool '{name}' is changed from {from} to {to} placement groups: it has {part:.1} % \
                         of the space"
                    );
                    cx.log(pending, LogLevel::Info, text);
                }
                Err(refusal) => {
                    let text = format!("pool '{name}' should have {to} placement groups: {}", refusal.text);
                    // Said once, not at each look.
                    if self.refused.insert(id, text.clone()).as_ref() != Some(&text) {
                        cx.log(pending, LogLevel::Warn, text);
                    }
                }
            }
        }
    }
}

/// For each pool, in the order of names. Pools whose OSDs are in part those of others, and in part not, are
/// left out, as are those without any space: their shares are undefined.
pub fn advice(cx: &Context<'_>, pgs: &PgStats, map: &OsdMap) -> Vec<Advice> {
    let mut names: Vec<(&String, PoolId)> = map.pool_names.iter().map(|(id, name)| (name, *id)).collect();
    names.sort_unstable();
    let target: u64 = cx.option("mon_target_pg_per_osd").as_u64();
    let mut trees: Vec<Subtree> = Vec::new();
    let mut tree_of: BTreeMap<PoolId, usize> = BTreeMap::new();
    let mut overlapping = BTreeSet::new();
    for (_, id) in &names {
        let Some(pool) = map.pool(*id) else { continue };
        let osds: BTreeSet<OsdId> = rule_weights(map, pool).into_keys().collect();
        let rule = map.crush.rule(pool.crush_rule.into());
        let take = rule.and_then(|rule| rule.steps.iter().find(|step| step.op == Op::Take as u32));
        let root = take.map_or(0, |step| step.arg1);
        let at = match trees.iter().position(|tree| !tree.osds.is_disjoint(&osds)) {
            Some(at) => {
                if trees[at].osds != osds {
                    overlapping.insert(at);
                }
                at
            }
            None => {
                let capacity = pgs.space(|osd| osds.contains(&osd)).total;
                let groups_left = osds.len() as u64 * target;
                trees.push(Subtree {
                    root,
                    osds,
                    capacity,
                    groups_left,
                    ratios: 0.0,
                    bytes: 0.0,
                    bulk_left: 0,
                });
                trees.len() - 1
            }
        };
        let (ratio, bytes) = announced(pool);
        trees[at].ratios += ratio;
        trees[at].bulk_left += u64::from(pool.has(pool_flags::BULK));
        trees[at].bytes += bytes as f64 * raw_rate(map, pool);
        tree_of.insert(*id, at);
    }
    let mut all = Vec::new();
    for (_, id) in names {
        let (Some(pool), Some(&at)) = (map.pool(id), tree_of.get(&id)) else { continue };
        let tree = &mut trees[at];
        if overlapping.contains(&at) || tree.capacity == 0 {
            continue;
        }
        let (target_ratio, target_bytes) = announced(pool);
        let free = 1.0 - (tree.bytes / tree.capacity as f64).min(1.0);
        let share = if tree.ratios > 0.0 { target_ratio / tree.ratios } else { target_ratio };
        let mut advice = Advice {
            pool: id,
            root: tree.root,
            stored: pgs.pool(map, id).stored,
            target_bytes,
            rate: raw_rate(map, pool),
            capacity: tree.capacity,
            target_ratio,
            effective_target_ratio: share * free,
            bias: fraction(pool, PoolOption::PG_AUTOSCALE_BIAS).unwrap_or(1.0),
            bulk: pool.has(pool_flags::BULK),
            ideal: 0,
            best: 0,
            is_off: false,
        };
        if !advice.bulk {
            advice.want(pool, tree.take(advice.ratio()));
        }
        all.push(advice);
    }
    // Those that fill more than an even share of what is left have theirs first, and the others share the
    // rest.
    for evenly in [false, true] {
        for advice in all.iter_mut().filter(|advice| advice.bulk && advice.best == 0) {
            let (Some(pool), Some(&at)) = (map.pool(advice.pool), tree_of.get(&advice.pool)) else {
                continue;
            };
            let tree = &mut trees[at];
            let share = 1.0 / tree.bulk_left.max(1) as f64;
            if evenly {
                advice.want(pool, share * tree.groups_left as f64);
            } else if advice.ratio() > share {
                tree.bulk_left -= 1;
                advice.want(pool, tree.take(advice.ratio()));
            }
        }
    }
    all
}

/// Pools that have far too many or too few PGs, and whose contents are known.
fn misshapen_pools(cx: &Context<'_>, pgs: &PgStats, map: &OsdMap, mode: u8) -> Vec<Advice> {
    if !map.pools.values().any(|pool| pool.autoscale_mode == mode) {
        return Vec::new();
    }
    let known = |id: PoolId| map.pgs(id).all(|pg| pgs.pgs.contains_key(&pg));
    let concerns = |id: PoolId| map.pool(id).is_some_and(|pool| pool.autoscale_mode == mode) && known(id);
    advice(cx, pgs, map).into_iter().filter(|advice| advice.is_off && concerns(advice.pool)).collect()
}

/// Pools that have far too many placement groups or too few, and are only to be warned of.
pub fn health(cx: &Context<'_>, pgs: &PgStats, map: &OsdMap, checks: &mut Checks) {
    let name = |id| map.pool_name(id).unwrap_or_default();
    let (mut few, mut many) = (Vec::new(), Vec::new());
    for advice in misshapen_pools(cx, pgs, map, WARN) {
        let has = map.pool(advice.pool).map_or(0, |pool| pool.pg_num_target);
        let best = advice.best;
        let line = format!("Pool {} has {has} placement groups, should have {best}", name(advice.pool));
        if best > u64::from(has) { few.push(line) } else { many.push(line) }
    }
    for (code, what, lines) in [("POOL_TOO_FEW_PGS", "few", few), ("POOL_TOO_MANY_PGS", "many", many)] {
        if !lines.is_empty() {
            let summary = format!("{} pools have too {what} placement groups", lines.len());
            warn(checks, code, lines.len(), summary, lines);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::nearest_power;

    #[test]
    fn recommended_pg_num_is_a_power_of_two() {
        let of = [0, 1, 2, 3, 5, 6, 7, 100, 150, 191, 192, 1025];
        assert_eq!(of.map(nearest_power), [1, 1, 2, 4, 4, 8, 8, 128, 128, 128, 256, 1024]);
    }

    #[test]
    fn a_bias_without_measure_asks_for_no_number_that_there_is_not() {
        assert_eq!([1 << 40, u64::MAX].map(nearest_power), [1 << 31; 2]);
    }
}
