//! Pools: what they hold, what clients do with them, and the states of their placement groups.

use super::{Mon, Page};
use crate::services::Context;
use crate::services::pg::stats::PoolUsage;
use nacre_base::PoolId;
use nacre_perf::MetricKind;
use nacre_proto::maps::{OsdMap, Pool};
use nacre_proto::messages::pg_state;
use std::collections::BTreeMap;

/// Every state that a placement group of Ceph may be in, alone or with others.
const STATES: [&str; 34] = [
    "active",
    "clean",
    "down",
    "recovery_unfound",
    "backfill_unfound",
    "scrubbing",
    "degraded",
    "inconsistent",
    "peering",
    "repair",
    "recovering",
    "forced_recovery",
    "backfill_wait",
    "incomplete",
    "stale",
    "remapped",
    "deep",
    "backfilling",
    "forced_backfill",
    "backfill_toofull",
    "recovery_wait",
    "recovery_toofull",
    "undersized",
    "activating",
    "peered",
    "snaptrim",
    "snaptrim_wait",
    "snaptrim_error",
    "creating",
    "unknown",
    "premerge",
    "failed_repair",
    "laggy",
    "wait",
];

pub(super) fn all(mon: &Mon, cx: &Context<'_>, page: &mut Page) {
    let map = &cx.state.osdmap.map;
    for (&id, pool) in &map.pools {
        let label = id.to_string();
        identity(map, id, pool, &label, page);
        let counted = mon.services.pgs.pool(map, id);
        usage(&counted, pool, &label, page);
        recovery(mon, &counted, id, &label, page);
        placement_groups(mon, map, id, &label, page);
    }
}

fn identity(map: &OsdMap, id: PoolId, pool: &Pool, label: &str, page: &mut Page) {
    let (kind, description) = match pool.is_erasure() {
        false => ("replicated", format!("replica:{}", pool.size)),
        true => {
            let profile = map.erasure_code_profiles.get(&pool.erasure_code_profile);
            let part = |name: &str| profile.and_then(|profile| profile.get(name));
            let description = match (part("k"), part("m")) {
                (Some(k), Some(m)) => format!("ec:{k}+{m}"),
                _ => "ec:unknown".to_string(),
            };
            ("erasure", description)
        }
    };
    let labels = [
        ("pool_id", label),
        ("name", map.pool_name(id).unwrap_or_default()),
        ("type", kind),
        ("description", &description),
        ("compression_mode", "none"),
    ];
    page.untyped("pool_metadata", "POOL Metadata", &labels, 1.0);
}

fn usage(usage: &PoolUsage, pool: &Pool, label: &str, page: &mut Page) {
    let work = &usage.counts.work;
    let gauges = [
        ("max_avail", usage.max_available as f64),
        ("avail_raw", usage.max_available_raw as f64),
        ("stored", usage.stored as f64),
        ("stored_raw", usage.stored_raw as f64),
        ("objects", usage.counts.objects as f64),
        // Nothing is cached in another pool, or compressed.
        ("dirty", 0.0),
        ("quota_bytes", pool.quota_max_bytes as f64),
        ("quota_objects", pool.quota_max_objects as f64),
        ("compress_bytes_used", 0.0),
        ("compress_under_bytes", 0.0),
        ("bytes_used", usage.used as f64),
        ("percent_used", usage.used_ratio),
    ];
    for (name, value) in gauges {
        page.gauge(&format!("pool_{name}"), &format!("DF pool {name}"), &[("pool_id", label)], value);
    }
    let counters = [
        ("rd", work.reads),
        ("rd_bytes", work.read_bytes),
        ("wr", work.writes),
        ("wr_bytes", work.write_bytes),
    ];
    for (name, value) in counters {
        let (metric, help) = (format!("pool_{name}"), format!("DF pool {name}"));
        page.add(&metric, MetricKind::Counter, &help, &[("pool_id", label)], value as f64);
    }
    // Ceph names this one label otherwise.
    let help = "Number of objects repaired in a pool Count";
    let repaired = usage.counts.repaired as f64;
    page.add("pool_objects_repaired", MetricKind::Counter, help, &[("poolid", label)], repaired);
}

fn recovery(mon: &Mon, usage: &PoolUsage, id: PoolId, label: &str, page: &mut Page) {
    let rates = mon.services.pgs.rates(id);
    let done = &usage.counts.work;
    for (name, value) in [
        ("recovering_objects_per_sec", rates.recovered_objects),
        ("recovering_bytes_per_sec", rates.recovered_bytes),
        // Keys are recovered with their objects, and not counted.
        ("recovering_keys_per_sec", 0),
        ("num_objects_recovered", done.recovered_objects),
        ("num_bytes_recovered", done.recovered_bytes),
    ] {
        let (metric, help) = (format!("pool_{name}"), format!("OSD pool stats: {name}"));
        page.gauge(&metric, &help, &[("pool_id", label)], value as f64);
    }
}

fn placement_groups(mon: &Mon, map: &OsdMap, id: PoolId, label: &str, page: &mut Page) {
    let mut by_state: BTreeMap<u64, u64> = BTreeMap::new();
    for pg in map.pgs(id) {
        *by_state.entry(mon.services.pgs.pg_state(map, pg)).or_default() += 1;
    }
    let mut counts: BTreeMap<&str, u64> = STATES.iter().map(|state| (*state, 0)).collect();
    for (state, pgs) in &by_state {
        for name in pg_state::name(*state).split('+') {
            if let Some(count) = counts.get_mut(name) {
                *count += pgs;
            }
        }
    }
    let labels = [("pool_id", label)];
    let total: u64 = by_state.values().sum();
    page.gauge("pg_total", "PG Total Count per Pool", &labels, total as f64);
    for state in STATES {
        page.gauge(&format!("pg_{state}"), &format!("PG {state} per pool"), &labels, counts[state] as f64);
    }
}
