//! Pools whose CRUSH rules place fewer copies than the pools are to have.
//!
//! The placement groups of such a pool are degraded for good, or never serve. Ceph reports only that, and not
//! why.

use super::stats::{Passing, PgStats};
use crate::services::Context;
use crate::services::health::{Checks, warn};
use nacre_base::{OsdId, PgId, PoolId};
use nacre_crush::{CrushMap, Op, Rule};
use nacre_proto::maps::{OsdMap, Pool};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Placement groups for which CRUSH is asked in one look.
const LOOKUPS_MAX: usize = 50;

impl PgStats {
    /// Adds the check `POOL_NOT_PLACEABLE`.
    pub(super) fn check_placeable(&self, cx: &Context<'_>, map: &OsdMap, checks: &mut Checks) {
        // Pools of one rule and size have one answer.
        let mut known: BTreeMap<(u8, u8, u8), Option<String>> = BTreeMap::new();
        let mut lines: BTreeMap<PoolId, String> = BTreeMap::new();
        for (id, pool) in &map.pools {
            let key = (pool.crush_rule, pool.size, pool.kind as u8);
            if let Some(why) = known.entry(key).or_insert_with(|| shortfall(map, pool)) {
                lines.insert(*id, format!("{} {why}", head(map, *id, pool)));
            }
        }
        let stuck = Duration::from_secs(cx.option("mon_pg_stuck_threshold").as_u64());
        for pg in self.lasting(cx.now.mono, Passing::Undersized, stuck).take(LOOKUPS_MAX) {
            let Some(pool) = map.pool(pg.pool).filter(|_| !lines.contains_key(&pg.pool)) else { continue };
            if let Some(why) = gave_up(map, pool, pg) {
                lines.insert(pg.pool, format!("{} {why}", head(map, pg.pool, pool)));
            }
        }
        if !lines.is_empty() {
            let count = lines.len();
            let summary =
                format!("Redundancy of {count} pool(s) cannot be restored: CRUSH places too few copies");
            warn(checks, "POOL_NOT_PLACEABLE", count, summary, lines.into_values().collect());
        }
    }
}

fn head(map: &OsdMap, id: PoolId, pool: &Pool) -> String {
    format!("pool '{}' has size {}, and its", map.pool_name(id).unwrap_or_default(), pool.size)
}

/// Why a pool's rule cannot place all copies on the OSDs that are in; none if it can.
pub fn shortfall(map: &OsdMap, pool: &Pool) -> Option<String> {
    let crush = &map.crush;
    let Some(rule) = crush.rule(pool.crush_rule.into()) else {
        return Some(format!("CRUSH rule {} does not exist", pool.crush_rule));
    };
    let name = rule_name(crush, pool.crush_rule);
    if map.rule_of(pool).is_none() {
        let (min, max) = (rule.min_size, rule.max_size);
        return Some(format!("CRUSH rule '{name}' is for pools of size {min} to {max}"));
    }
    let size = usize::from(pool.size);
    let reach = Reach::of(map, rule, size);
    if reach.osds >= size {
        return None;
    }
    let osds = match reach.osds {
        0 => "no OSD".to_string(),
        n => format!("only {n} OSD{}", if n == 1 { "" } else { "s" }),
    };
    Some(format!("CRUSH rule '{name}' can choose {osds}: {}", reach.explain(crush)))
}

fn rule_name(crush: &CrushMap, rule: u8) -> String {
    crush.rule_names.get(&rule.into()).cloned().unwrap_or_else(|| rule.to_string())
}

/// Why CRUSH found too few OSDs for one placement group although there are enough; none if it found enough.
fn gave_up(map: &OsdMap, pool: &Pool, pg: PgId) -> Option<String> {
    let found = map.crush_placement(pg).into_iter().filter(|osd| osd.is_some()).count();
    (found < usize::from(pool.size)).then(|| {
        let name = rule_name(&map.crush, pool.crush_rule);
        let tries = map.crush.tunables.choose_total_tries;
        format!("CRUSH rule '{name}' found only {found} for pg {pg} in {tries} tries (choose_total_tries)")
    })
}

/// How many OSDs a rule can choose, all of which are up.
#[derive(Default)]
struct Reach {
    osds: usize,
    /// What a rule takes, and how many buckets (or OSDs) of each kind it chooses from have OSDs that are in.
    choices: Vec<(i32, Vec<(i32, usize)>)>,
}

impl Reach {
    fn of(map: &OsdMap, rule: &Rule, size: usize) -> Reach {
        let mut reach = Reach::default();
        let (mut top, mut steps) = (None, Vec::new());
        for step in &rule.steps {
            match Op::from_code(step.op) {
                Some(Op::Take) => (top, steps) = (Some(step.arg1), Vec::new()),
                Some(Op::ChooseFirstN | Op::ChooseIndep) => {
                    steps.push(Step::new(step.arg1, step.arg2, false))
                }
                Some(Op::ChooseLeafFirstN | Op::ChooseLeafIndep) => {
                    steps.push(Step::new(step.arg1, step.arg2, true));
                }
                Some(Op::Emit) => {
                    if let Some(top) = top.take() {
                        reach.osds += chosen(map, top, &steps, size);
                        let kinds = steps.iter().map(|step| (step.kind, usable(map, top, step.kind).len()));
                        reach.choices.push((top, kinds.collect()));
                    }
                }
                _ => {}
            }
        }
        reach.osds = reach.osds.min(size);
        reach
    }

    fn explain(&self, crush: &CrushMap) -> String {
        let parts = self.choices.iter().map(|(top, kinds)| {
            let counts: Vec<String> = kinds.iter().map(|(kind, n)| counted(crush, *kind, *n)).collect();
            let top = crush.names.get(top).cloned().unwrap_or_else(|| top.to_string());
            match &counts[..] {
                [] => format!("it chooses nothing below '{top}'"),
                counts => format!("below '{top}' {}", counts.join(" and ")),
            }
        });
        match parts.collect::<Vec<_>>() {
            parts if parts.is_empty() => "it takes no bucket".to_string(),
            parts => parts.join("; "),
        }
    }
}

/// `2 racks have OSDs that are in`
fn counted(crush: &CrushMap, kind: i32, n: usize) -> String {
    let name = match kind {
        0 => "OSD",
        kind => crush.types.get(&kind).map_or("bucket", String::as_str),
    };
    let which = if kind == 0 { "" } else { " OSDs that are" };
    match (n, kind) {
        (0, _) => format!("no {name} {}{which} in", if kind == 0 { "is" } else { "has" }),
        (1, _) => format!("1 {name} {}{which} in", if kind == 0 { "is" } else { "has" }),
        (n, _) => format!("{n} {name}s {}{which} in", if kind == 0 { "are" } else { "have" }),
    }
}

/// A choice of a rule: that many of that kind, and one OSD below each if it chooses leaves.
struct Step {
    /// As in the rule: zero and less are relative to the pool's size.
    number: i32,
    kind: i32,
    leaf: bool,
}

impl Step {
    fn new(number: i32, kind: i32, leaf: bool) -> Step {
        Step { number, kind, leaf }
    }
    fn number(&self, size: usize) -> usize {
        let size = size as i32;
        let number = if self.number > 0 { self.number } else { size + self.number };
        usize::try_from(number).unwrap_or(0)
    }
}

/// The most OSDs that these steps choose below `top`.
fn chosen(map: &OsdMap, top: i32, steps: &[Step], size: usize) -> usize {
    let Some((step, rest)) = steps.split_first() else { return usize::from(top >= 0) };
    let found = usable(map, top, step.kind);
    let number = step.number(size);
    if step.leaf || step.kind == 0 {
        return found.len().min(number);
    }
    let mut each: Vec<usize> = found.into_iter().map(|id| chosen(map, id, rest, size)).collect();
    each.sort_unstable_by(|one, other| other.cmp(one));
    each.into_iter().take(number).sum()
}

/// The items of a kind below `top` that are OSDs, or have OSDs below them, to which CRUSH may give data.
pub fn usable(map: &OsdMap, top: i32, kind: i32) -> BTreeSet<i32> {
    let mut found = BTreeSet::new();
    // The buckets above the current node, by depth.
    let mut path: Vec<i32> = Vec::new();
    for node in map.crush.walk(top) {
        path.truncate(node.depth);
        path.push(node.id);
        let osd = OsdId(node.id);
        if node.id >= 0 && node.weight > 0 && map.exists(osd) && map.is_in(osd) {
            let is_of_kind = |id: &&i32| kind_of(&map.crush, **id) == Some(kind);
            found.extend(path[1.min(path.len() - 1)..].iter().find(is_of_kind));
        }
    }
    found
}

fn kind_of(crush: &CrushMap, id: i32) -> Option<i32> {
    if id >= 0 { Some(0) } else { crush.bucket(id).map(|bucket| bucket.kind.into()) }
}
