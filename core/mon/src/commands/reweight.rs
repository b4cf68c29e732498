//! Moving data off the fullest OSDs by their weights.

use super::{Answer, Call, Outcome, Refusal, Row, refuse};
use crate::output::{float, short};
use nacre_base::{OsdId, PoolId, errno};
use nacre_proto::maps::{Osd, OsdMap};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

pub const COMMANDS: &[Row] = &[
    ("osd reweight-by-utilization", "lower the weights of the fullest OSDs", |call| run(call, By::Use, true)),
    ("osd test-reweight-by-utilization", "show what reweight-by-utilization would do", |call| {
        run(call, By::Use, false)
    }),
    ("osd reweight-by-pg", "lower the weights of the OSDs with the most placement groups", |call| {
        run(call, By::Groups, true)
    }),
    ("osd test-reweight-by-pg", "show what reweight-by-pg would do", |call| run(call, By::Groups, false)),
];

enum By {
    Use,
    Groups,
}

/// Below this there is nothing to balance.
const USED_MIN: u64 = 100 << 20;
const GROUPS_MIN: f64 = 10.0;
const OVERLOAD: i64 = 120;
const CHANGE_MAX: f64 = 0.05;
const OSDS_MAX: i64 = 4;

struct Limits {
    overload: i64,
    change: f64,
    osds: i64,
    increase: bool,
}

fn limits(call: &Call<'_>) -> Result<Limits, Refusal> {
    let limits = Limits {
        overload: call.args.int_opt("oload")?.unwrap_or(OVERLOAD),
        change: call.args.float_opt("max_change")?.unwrap_or(CHANGE_MAX),
        osds: call.args.int_opt("max_osds")?.unwrap_or(OSDS_MAX),
        increase: !(call.args.flag("no_increasing")
            || call.args.text_opt("no_increasing").as_deref() == Some("--no-increasing")),
    };
    if limits.overload <= 100 {
        let text = "oload is a percentage of the average above which an OSD is overloaded: more than 100";
        return Err(refuse(errno::EINVAL, text));
    }
    if limits.change <= 0.0 {
        return Err(refuse(errno::EINVAL, format!("max_change {} must be positive", limits.change)));
    }
    if limits.osds <= 0 {
        return Err(refuse(errno::EINVAL, format!("max_osds {} must be positive", limits.osds)));
    }
    Ok(limits)
}

/// How loaded each OSD is, and how loaded they are together.
fn loads(call: &Call<'_>, by: &By) -> Result<(BTreeMap<OsdId, f64>, f64), Refusal> {
    let map = &call.state.osdmap.map;
    let inside = || map.osd_ids().filter(|&osd| map.is_in(osd));
    match by {
        By::Use => {
            let space = |osd: &OsdId| call.mon.services.pgs.osds.get(osd).map(|stat| stat.report.space);
            let spaces: BTreeMap<OsdId, (u64, u64)> = inside()
                .filter_map(|osd| Some((osd, space(&osd)?)))
                .map(|(osd, space)| (osd, (space.total - space.available.min(space.total), space.total)))
                .filter(|(_, (_, total))| *total > 0)
                .collect();
            let used: u64 = spaces.values().map(|(used, _)| used).sum();
            let total: u64 = spaces.values().map(|(_, total)| total).sum();
            if used < USED_MIN * spaces.len().max(1) as u64 {
                let text = format!("nothing to balance: {} kB are used on {} OSDs", used >> 10, spaces.len());
                return Err(refuse(errno::EDOM, text));
            }
            let loads = spaces.into_iter().map(|(osd, (used, total))| (osd, used as f64 / total as f64));
            Ok((loads.collect(), used as f64 / total as f64))
        }
        By::Groups => {
            let mut pools = BTreeSet::new();
            for name in call.args.list("pools") {
                let pool = map.pool_by_name(&name);
                pools.insert(
                    pool.ok_or_else(|| refuse(errno::ENOENT, format!("pool '{name}' does not exist")))?,
                );
            }
            let groups = groups(map, &pools);
            // As many groups as the OSD's share of the CRUSH weights.
            let weight = |osd: &OsdId| f64::from(map.crush.item_weight(osd.0).unwrap_or(0)) / 65536.0;
            let osds: Vec<OsdId> = inside().filter(|osd| weight(osd) > 0.0).collect();
            let of = |osd: &OsdId| groups.get(osd).copied().unwrap_or(0) as f64;
            let all: f64 = osds.iter().map(of).sum();
            let weights: f64 = osds.iter().map(weight).sum();
            if all < GROUPS_MIN * osds.len().max(1) as f64 {
                let text = format!("nothing to balance: {all} placement group copies on {} OSDs", osds.len());
                return Err(refuse(errno::EDOM, text));
            }
            Ok((osds.iter().map(|osd| (*osd, of(osd) / weight(osd))).collect(), all / weights))
        }
    }
}

/// Placements by OSD, in some pools or all.
fn groups(map: &OsdMap, pools: &BTreeSet<PoolId>) -> BTreeMap<OsdId, usize> {
    let mut by_osd = BTreeMap::new();
    for pg in
        crate::services::pg::stats::all_pgs(map).filter(|pg| pools.is_empty() || pools.contains(&pg.pool))
    {
        for osd in map.pg_to_up_acting(pg).up.into_iter().filter(|osd| osd.is_some()) {
            *by_osd.entry(osd).or_insert(0) += 1;
        }
    }
    by_osd
}

/// New weights, 16.16, for the OSDs that are furthest from the average.
fn changes(map: &OsdMap, loads: &BTreeMap<OsdId, f64>, average: f64, limits: &Limits) -> Vec<(OsdId, u32)> {
    let mut order: Vec<(OsdId, f64)> = loads.iter().map(|(osd, load)| (*osd, *load)).collect();
    order.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let step = (limits.change * f64::from(Osd::IN)) as u32;
    let mut changes = Vec::new();
    for (osd, load) in order {
        let have = map.weight(osd);
        let wanted = (average / load.max(1e-9) * f64::from(have)) as u32;
        let next = if load >= average * limits.overload as f64 / 100.0 {
            wanted.max(have.saturating_sub(step))
        } else if limits.increase && load <= average {
            wanted.min(have + step).clamp(have, Osd::IN)
        } else {
            have
        };
        if next != have && (changes.len() as i64) < limits.osds {
            changes.push((osd, next));
        }
    }
    changes
}

/// How evenly placements are spread: mean, deviation, the least and the most loaded OSD.
fn spread(map: &OsdMap, groups: &BTreeMap<OsdId, usize>) -> (f64, f64, OsdId, OsdId) {
    let osds: Vec<OsdId> = map.osd_ids().filter(|&osd| map.is_in(osd)).collect();
    let of = |osd: &OsdId| groups.get(osd).copied().unwrap_or(0);
    let n = osds.len().max(1) as f64;
    let mean = osds.iter().map(|osd| of(osd) as f64).sum::<f64>() / n;
    let deviation = (osds.iter().map(|osd| (of(osd) as f64 - mean).powi(2)).sum::<f64>() / n).sqrt();
    let least = osds.iter().min_by_key(|osd| of(osd)).copied().unwrap_or(OsdId(0));
    let most = osds.iter().rev().max_by_key(|osd| of(osd)).copied().unwrap_or(OsdId(0));
    (mean, deviation, least, most)
}

fn run(call: &mut Call<'_>, by: By, for_real: bool) -> Outcome {
    let limits = limits(call)?;
    let (loads, average) = loads(call, &by)?;
    let map = call.state.osdmap.map.clone();
    let changes = changes(&map, &loads, average, &limits);
    let mut after = map.as_ref().clone();
    for &(osd, weight) in &changes {
        after.weights[osd.index()] = weight;
    }
    let all = BTreeSet::new();
    let (old, new) = (groups(&map, &all), groups(&after, &all));
    let placements: usize = old.values().sum();
    let moved: usize = crate::services::pg::stats::all_pgs(&map)
        .map(|pg| {
            let before = map.pg_to_up_acting(pg).up;
            after.pg_to_up_acting(pg).up.iter().filter(|osd| !before.contains(osd)).count()
        })
        .sum();
    let (mean, deviation, least, most) = spread(&map, &old);
    let (_, new_deviation, ..) = spread(&after, &new);
    let n = map.osd_ids().filter(|&osd| map.is_in(osd)).count().max(1) as f64;
    let expected = (mean * (1.0 - 1.0 / n)).sqrt();
    let share = |groups: usize| groups as f64 / mean.max(1e-9);
    let of = |groups: &BTreeMap<OsdId, usize>, osd: OsdId| groups.get(&osd).copied().unwrap_or(0);
    let overload = average * limits.overload as f64 / 100.0;
    let percent = 100.0 * moved as f64 / placements.max(1) as f64;
    let weight = |weight: u32| f64::from(weight) / f64::from(Osd::IN);

    let rows: Vec<Value> = changes
        .iter()
        .map(|(osd, new)| {
            json!({ "osd": osd.0, "weight": float(weight(map.weight(*osd))), "new_weight": float(weight(*new)) })
        })
        .collect();
    let value = json!({
        "overload_min": limits.overload,
        "max_change": float(limits.change),
        "max_change_osds": limits.osds,
        "average_utilization": float(average),
        "overload_utilization": float(overload),
        "reweights": rows,
        "utilization": {
            "moved_pgs": moved,
            "total_pgs": placements,
            "avg_pgs": float(mean),
            "std_dev": float(deviation),
            "expected_baseline_std_dev": float(expected),
            "new_std_dev": float(new_deviation),
            "min_osd": least.0,
            "min_osd_pgs": of(&old, least),
            "new_min_osd_pgs": of(&new, least),
            "max_osd": most.0,
            "max_osd_pgs": of(&old, most),
            "new_max_osd_pgs": of(&new, most),
        },
    });
    let mut text = format!(
        "moved {moved} / {placements} ({}%)\navg {}\nstddev {} -> {} (expected baseline {})\n",
        short(percent),
        short(mean),
        short(deviation),
        short(new_deviation),
        short(expected),
    );
    for (what, osd) in [("min", least), ("max", most)] {
        let (old, new) = (of(&old, osd), of(&new, osd));
        text += &format!(
            "{what} osd.{osd} with {old} -> {new} pgs ({} -> {} * mean)\n",
            short(share(old)),
            short(share(new))
        );
    }
    text += &format!(
        "\noload {}\nmax_change {}\nmax_change_osds {}\naverage_utilization {average:.4}\noverload_utilization {overload:.4}\n",
        limits.overload,
        short(limits.change),
        limits.osds,
    );
    for (osd, new) in &changes {
        text += &format!("osd.{osd} weight {:.4} -> {:.4}\n", weight(map.weight(*osd)), weight(*new));
    }
    let answer = call.show(value, || text)?;
    if !for_real || changes.is_empty() {
        return Ok(Answer { status: "no change".to_string(), ..answer });
    }
    changes.into_iter().for_each(|(osd, weight)| call.pending.set_weight(osd, weight));
    Ok(answer)
}
