//! Placement groups as their primaries report them.

use super::usage::{latency_json, recovery_json, recovery_rate_json};
use super::{Answer, Call, Outcome, Refusal, Row, refuse};
use crate::output::Align::{Left, Right};
use crate::output::{Table, bytes, list};
use crate::services::pg::stats::{PgStat, all_pgs};
use crate::services::pg::summary;
use nacre_base::{IntervalSet, OsdId, PgId, PoolId, Utime, errno};
use nacre_command::Format;
use nacre_command::parse_osd;
use nacre_proto::messages::scrub::ScrubState;
use nacre_proto::messages::{OsdSpace, PgCounts, PgReport, PoolSpace, pg_state};
use nacre_proto::shown::{Lasts, PgShown, ids, stamp};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

pub const COMMANDS: &[Row] = &[
    ("pg stat", "count the placement groups by state", stat),
    ("pg dump", "show the statistics of all placement groups, pools and OSDs", dump),
    ("pg dump_json", "show the statistics of all placement groups, pools and OSDs as JSON", dump_as_json),
    ("pg dump_pools_json", "show the statistics of pools as JSON", dump_pools),
    ("pg dump_stuck", "list stuck placement groups", dump_stuck),
    ("pg map", "show the OSDs of a placement group", map_pg),
    ("pg ls", "list groups", ls),
    ("pg ls-by-pool", "list the placement groups of a pool", ls_by_pool),
    ("pg ls-by-osd", "list the placement groups of an OSD", ls_by_osd),
    ("pg ls-by-primary", "list the placement groups with a given primary", ls_by_primary),
    ("pg debug", "answer a debugging question about all placement groups", debug),
];

const NOTE: &str = "\n* NOTE: Omap statistics are gathered during deep scrub and may be inaccurate soon afterwards depending on utilization. See http://docs.ceph.com/en/latest/dev/placement-group/#omap-statistics for further details.\n";

/// A placement group without a report yet, as far as the map tells.
fn unreported(call: &Call<'_>, pg: PgId) -> PgReport {
    let placed = call.state.osdmap.map.pg_to_up_acting(pg);
    let primary = |osd: Option<OsdId>| osd.unwrap_or(OsdId(-1));
    PgReport {
        pg,
        state: 0,
        waiting_for: String::new(),
        interval: nacre_base::Epoch(0),
        last_update: nacre_base::Version::ZERO,
        last_complete: nacre_base::Version::ZERO,
        log_tail: nacre_base::Version::ZERO,
        log_entries: 0,
        up_primary: primary(placed.up_primary),
        acting_primary: primary(placed.acting_primary),
        up: placed.up,
        acting: placed.acting,
        last_change: Utime::ZERO,
        last_active: Utime::ZERO,
        last_clean: Utime::ZERO,
        counts: PgCounts::default(),
        trimmed: IntervalSet::new(),
        to_trim: 0,
        scrub: ScrubState::default(),
    }
}

fn row(call: &Call<'_>, pg: PgId) -> PgShown {
    let state = call.mon.services.pgs.pg_state(&call.state.osdmap.map, pg);
    match call.mon.services.pgs.pgs.get(&pg) {
        Some(PgStat { report, lasts, stamp, seq, map_epoch, .. }) => PgShown {
            report: report.clone(),
            lasts: *lasts,
            state,
            stamp: *stamp,
            seq: *seq,
            epoch: *map_epoch,
        },
        None => {
            let (report, lasts) = (unreported(call, pg), Lasts::default());
            PgShown { report, lasts, state, stamp: Utime::ZERO, seq: 0, epoch: 0 }
        }
    }
}

fn rows(call: &Call<'_>, mut wanted: impl FnMut(&PgShown) -> bool) -> Vec<PgShown> {
    all_pgs(&call.state.osdmap.map).map(|pg| row(call, pg)).filter(|row| wanted(row)).collect()
}

fn store_json(space: &OsdSpace) -> Value {
    json!({
        "total": space.total,
        "available": space.available,
        "internally_reserved": 0,
        "allocated": space.allocated,
        "data_stored": space.stored,
        "data_compressed": 0,
        "data_compressed_allocated": 0,
        "data_compressed_original": 0,
        "omap_allocated": space.omap,
        "internal_metadata": space.internal,
    })
}

fn with_sums(
    counts: &PgCounts,
    store: &OsdSpace,
    log: u64,
    up: u64,
    acting: u64,
    stores: usize,
) -> Map<String, Value> {
    let value = json!({
        "stat_sum": counts.stat_sum().to_json(),
        "store_stats": store_json(store),
        "log_size": log,
        "ondisk_log_size": log,
        "up": up,
        "acting": acting,
        "num_store_stats": stores,
    });
    value.as_object().expect("just made").clone()
}

fn osd_fields(
    space: &OsdSpace,
    up_from: u32,
    pgs: u64,
    peers: &[i32],
    latency_us: u32,
    sum_of: Option<usize>,
) -> Value {
    let used = space.total.saturating_sub(space.available);
    let mut out = Map::new();
    let mut put = |name: &str, value: Value| drop(out.insert(name.to_string(), value));
    put("up_from", json!(up_from));
    put("seq", json!(0));
    put("num_pgs", json!(pgs));
    let n = sum_of.unwrap_or(1);
    put("num_osds", json!(n));
    put("num_per_pool_osds", json!(n));
    put("num_per_pool_omap_osds", json!(n));
    for (name, value) in [
        ("kb", space.total),
        ("kb_used", used),
        ("kb_used_data", space.allocated),
        ("kb_used_omap", space.omap),
        ("kb_used_meta", space.internal),
        ("kb_avail", space.available),
    ] {
        put(name, json!(value >> 10));
    }
    put("statfs", store_json(space));
    put("hb_peers", json!(peers));
    put("snap_trim_queue_len", json!(0));
    put("num_snap_trimming", json!(0));
    put("num_shards_repaired", json!(0));
    put("op_queue_age_hist", json!({ "histogram": [], "upper_bound": 1 }));
    put("perf_stat", latency_json(latency_us));
    put("alerts", json!([]));
    put("network_ping_times", json!([]));
    Value::Object(out)
}

fn all_space(call: &Call<'_>) -> OsdSpace {
    let mut sum = OsdSpace::default();
    for stat in call.mon.services.pgs.osds.values() {
        let space = &stat.report.space;
        sum.total += space.total;
        sum.available += space.available;
        sum.allocated += space.allocated;
        sum.stored += space.stored;
        sum.omap += space.omap;
        sum.internal += space.internal;
    }
    sum
}

fn osd_stats(call: &Call<'_>) -> Vec<Value> {
    let map = &call.state.osdmap.map;
    let pgs = call.mon.services.pgs.pgs_by_osd(map);
    let row = |osd: OsdId| {
        let stat = call.mon.services.pgs.osds.get(&osd)?;
        let up_from = map.osds[osd.index()].info.up_from.0;
        let peers: Vec<i32> = map.up_osds().filter(|peer| *peer != osd).map(|peer| peer.0).collect();
        let latency = stat.report.commit_latency_us;
        let n = pgs.get(&osd).map_or(0, |(all, _)| *all);
        let mut out = Map::new();
        out.insert("osd".to_string(), json!(osd.0));
        let rest = osd_fields(&stat.report.space, up_from, n, &peers, latency, None);
        out.extend(rest.as_object().expect("just made").clone());
        Some(Value::Object(out))
    };
    map.osd_ids().collect::<Vec<_>>().into_iter().rev().filter_map(row).collect()
}

fn pool_stats(call: &Call<'_>) -> Vec<Value> {
    let map = &call.state.osdmap.map;
    let stores = call.mon.services.pgs.osds.len();
    map.pools
        .iter()
        .rev()
        .map(|(id, pool)| {
            let usage = call.mon.services.pgs.pool(map, *id);
            let store = OsdSpace { allocated: usage.used, stored: usage.used, ..OsdSpace::default() };
            let mut out = Map::new();
            out.insert("poolid".to_string(), json!(id.0));
            out.insert("num_pg".to_string(), json!(pool.pg_num));
            out.extend(with_sums(&usage.counts, &store, usage.log_entries, usage.up, usage.acting, stores));
            Value::Object(out)
        })
        .collect()
}

fn pool_statfs(call: &Call<'_>) -> Vec<Value> {
    let map = &call.state.osdmap.map;
    let mut out = Vec::new();
    for &id in map.pools.keys() {
        for (&osd, stat) in &call.mon.services.pgs.osds {
            let mut row = json!({ "poolid": id.0, "osd": osd.0 });
            let PoolSpace { allocated, stored, omap } = stat.in_pool(id).unwrap_or_default();
            let share = OsdSpace { allocated, stored, omap, ..OsdSpace::default() };
            row.as_object_mut()
                .expect("just made")
                .extend(store_json(&share).as_object().expect("an object").clone());
            out.push(row);
        }
    }
    out
}

/// Which parts of the dump are wanted.
fn wanted(call: &Call<'_>) -> BTreeSet<String> {
    let what: BTreeSet<String> = call.args.list("dumpcontents").into_iter().collect();
    if what.is_empty() { BTreeSet::from(["all".to_string()]) } else { what }
}

fn pg_map(call: &Call<'_>, what: &BTreeSet<String>) -> Value {
    let stats = &call.mon.services.pgs;
    let map = &call.state.osdmap.map;
    let has = |part: &str| what.contains("all") || what.contains(part);
    let usage = map.pools.keys().map(|&id| stats.pool(map, id));
    let (log, up, acting) = usage.fold((0, 0, 0), |a, u| (a.0 + u.log_entries, a.1 + u.up, a.2 + u.acting));
    let space = all_space(call);
    let none = OsdSpace::default();
    let mut delta = with_sums(&PgCounts::default(), &none, 0, 0, 0, 0);
    delta.insert("stamp_delta".to_string(), json!("0.000000"));
    let mut out = Map::new();
    let mut put = |name: &str, value: Value| drop(out.insert(name.to_string(), value));
    put("version", json!(stats.version));
    put("stamp", json!(stamp(stats.stamp)));
    put("last_osdmap_epoch", json!(map.epoch.0));
    put("last_pg_scan", json!(0));
    put("pg_stats_sum", with_sums(&stats.sum(), &none, log, up, acting, 0).into());
    put("osd_stats_sum", osd_fields(&space, 0, acting, &[], 0, Some(stats.osds.len())));
    put("pg_stats_delta", delta.into());
    if has("pgs") {
        put("pg_stats", rows(call, |_| true).iter().rev().map(PgShown::to_json).collect());
    }
    if has("pools") {
        put("pool_stats", pool_stats(call).into());
    }
    if has("osds") {
        put("osd_stats", osd_stats(call).into());
    }
    if what.contains("all") {
        put("pool_statfs", pool_statfs(call).into());
    }
    out.into()
}

fn brief_json(row: &PgShown) -> Value {
    let r = &row.report;
    json!({
        "pgid": r.pg.to_string(),
        "state": pg_state::name(row.state),
        "up": ids(&r.up),
        "acting": ids(&r.acting),
        "up_primary": r.up_primary.0,
        "acting_primary": r.acting_primary.0,
    })
}

fn dump(call: &mut Call<'_>) -> Outcome {
    let what = wanted(call);
    if call.format == Format::Plain {
        let text = dump_text(call, &what);
        return Ok(Answer { status: format!("dumped {}", join(&what)), output: text.into_bytes() });
    }
    let mut value = json!({ "pg_ready": true });
    if ["all", "sum", "summary"].iter().any(|word| what.contains(*word)) {
        value["pg_map"] = pg_map(call, &what);
    } else {
        if what.contains("pools") {
            value["pool_stats"] = pool_stats(call).into();
        }
        if what.contains("osds") {
            value["osd_stats"] = osd_stats(call).into();
            value["pool_statfs"] = pool_statfs(call).into();
        }
        if what.contains("pgs") {
            value["pg_stats"] = rows(call, |_| true).iter().rev().map(PgShown::to_json).collect();
        } else if what.contains("pgs_brief") {
            value["pg_stats"] = rows(call, |_| true).iter().map(brief_json).collect();
        }
        if what.contains("delta") {
            let mut delta = with_sums(&PgCounts::default(), &OsdSpace::default(), 0, 0, 0, 0);
            delta.insert("stamp_delta".to_string(), json!("0.000000"));
            value["delta"] = json!({ "pg_stats_delta": delta });
        }
    }
    Ok(Answer { status: format!("dumped {}", join(&what)), output: call.render(&value).into_bytes() })
}

fn join(what: &BTreeSet<String>) -> String {
    what.iter().map(String::as_str).collect::<Vec<_>>().join(",")
}

fn dump_as_json(call: &mut Call<'_>) -> Outcome {
    let value = json!({ "pg_ready": true, "pg_map": pg_map(call, &wanted(call)) });
    Ok(Answer { status: "dumped all".to_string(), output: call.render(&value).into_bytes() })
}

fn dump_pools(call: &mut Call<'_>) -> Outcome {
    let value = json!({ "pg_ready": true, "pool_stats": pool_stats(call) });
    Ok(Answer { status: "dumped pools".to_string(), output: call.render(&value).into_bytes() })
}

fn dump_text(call: &Call<'_>, what: &BTreeSet<String>) -> String {
    let all = what.contains("all");
    let summary = what.contains("sum") || what.contains("summary");
    // The sums stand alone, or with everything.
    let has = |part: &str| all || !summary && what.contains(part);
    let stats = &call.mon.services.pgs;
    let map = &call.state.osdmap.map;
    let mut out = String::new();
    if what.contains("pgs_brief") {
        return brief_text(&rows(call, |_| true));
    }
    let whole = all || summary;
    if whole {
        out += &format!(
            "version {}\nstamp {}\nlast_osdmap_epoch {}\nlast_pg_scan 0\n",
            stats.version,
            stamp(stats.stamp),
            map.epoch
        );
    }
    if has("pgs") {
        let mut table = Table::new(&[
            ("PG_STAT", Left, Left),
            ("OBJECTS", Left, Right),
            ("MISSING_ON_PRIMARY", Left, Right),
            ("DEGRADED", Left, Right),
            ("MISPLACED", Left, Right),
            ("UNFOUND", Left, Right),
            ("BYTES", Left, Right),
            ("OMAP_BYTES*", Left, Right),
            ("OMAP_KEYS*", Left, Right),
            ("LOG", Left, Right),
            ("DISK_LOG", Left, Right),
            ("STATE", Left, Right),
            ("STATE_STAMP", Left, Right),
            ("VERSION", Left, Right),
            ("REPORTED", Left, Right),
            ("UP", Left, Right),
            ("UP_PRIMARY", Left, Right),
            ("ACTING", Left, Right),
            ("ACTING_PRIMARY", Left, Right),
            ("LAST_SCRUB", Left, Right),
            ("SCRUB_STAMP", Left, Right),
            ("LAST_DEEP_SCRUB", Left, Right),
            ("DEEP_SCRUB_STAMP", Left, Right),
            ("SNAPTRIMQ_LEN", Left, Right),
        ]);
        for row in rows(call, |_| true).iter().rev() {
            let (r, c) = (&row.report, &row.report.counts);
            table.row([
                r.pg.to_string(),
                c.objects.to_string(),
                c.missing_on_primary.to_string(),
                c.degraded.to_string(),
                c.misplaced.to_string(),
                c.unfound.to_string(),
                c.bytes.to_string(),
                c.omap_bytes.to_string(),
                c.omap_keys.to_string(),
                r.log_entries.to_string(),
                r.log_entries.to_string(),
                pg_state::name(row.state),
                stamp(r.last_change),
                r.last_update.to_string(),
                format!("{}:{}", row.epoch, row.seq),
                list(&r.up),
                r.up_primary.to_string(),
                list(&r.acting),
                r.acting_primary.to_string(),
                r.scrub.last.to_string(),
                stamp(r.scrub.last_stamp),
                r.scrub.last_deep.to_string(),
                stamp(r.scrub.last_deep_stamp),
                r.to_trim.to_string(),
            ]);
        }
        out += &table.render();
    }
    // With everything, only groups and OSDs have headings: scripts look for columns by the heading that
    // begins with PG_STAT.
    let columns = |first: &'static str| {
        let mut columns = vec![(first, Left, Left)];
        columns.extend(
            [
                "OBJECTS",
                "MISSING_ON_PRIMARY",
                "DEGRADED",
                "MISPLACED",
                "UNFOUND",
                "BYTES",
                "OMAP_BYTES*",
                "OMAP_KEYS*",
                "LOG",
                "DISK_LOG",
            ]
            .map(|name| (name, Left, Right)),
        );
        if all {
            columns.iter_mut().for_each(|column| column.0 = "");
        }
        columns
    };
    let cells = |name: String, c: &PgCounts, log: u64| {
        let numbers = [
            c.objects,
            c.missing_on_primary,
            c.degraded,
            c.misplaced,
            c.unfound,
            c.bytes,
            c.omap_bytes,
            c.omap_keys,
            log,
            log,
        ];
        [name].into_iter().chain(numbers.map(|n| n.to_string())).collect::<Vec<_>>()
    };
    if has("pools") {
        let mut table = Table::new(&columns("POOLID"));
        for &id in map.pools.keys().rev() {
            let usage = stats.pool(map, id);
            table.row(cells(id.to_string(), &usage.counts, usage.log_entries));
        }
        out += &table.render();
    }
    if whole {
        let mut table = Table::new(&columns("PG_STAT"));
        let log = map.pools.keys().map(|&id| stats.pool(map, id).log_entries).sum();
        table.row(cells("sum".to_string(), &stats.sum(), log));
        out += &table.render();
    }
    if has("osds") || whole {
        let detailed = has("osds");
        let mut columns = vec![("OSD_STAT", Left, Left)];
        columns.extend(["USED", "AVAIL", "USED_RAW", "TOTAL"].map(|name| (name, Left, Right)));
        if detailed {
            columns.extend(["HB_PEERS", "PG_SUM", "PRIMARY_PG_SUM"].map(|name| (name, Left, Right)));
        }
        let mut table = Table::new(&columns);
        let pgs = stats.pgs_by_osd(map);
        let sizes = |space: &OsdSpace| {
            let used = bytes(space.total.saturating_sub(space.available));
            vec![used.clone(), bytes(space.available), used, bytes(space.total)]
        };
        if detailed {
            for (osd, stat) in stats.osds.iter().rev() {
                let mut row = vec![osd.to_string()];
                row.extend(sizes(&stat.report.space));
                let (all, primary) = pgs.get(osd).copied().unwrap_or_default();
                row.push(list(map.up_osds().filter(|peer| peer != osd)));
                row.extend([all.to_string(), primary.to_string()]);
                table.row(row);
            }
        }
        let mut row = vec!["sum".to_string()];
        row.extend(sizes(&all_space(call)));
        row.extend(detailed.then(|| [String::new(), String::new(), String::new()]).into_iter().flatten());
        table.row(row);
        out += &table.render();
    }
    // Nothing else was gathered by scrubs.
    let note = if whole || has("pgs") || has("pools") { NOTE } else { "" };
    out + note
}

fn brief_text(rows: &[PgShown]) -> String {
    let mut table = Table::new(&[
        ("PG_STAT", Left, Left),
        ("STATE", Left, Right),
        ("UP", Left, Right),
        ("UP_PRIMARY", Left, Right),
        ("ACTING", Left, Right),
        ("ACTING_PRIMARY", Left, Right),
    ]);
    for row in rows {
        let r = &row.report;
        table.row([
            r.pg.to_string(),
            pg_state::name(row.state),
            list(&r.up),
            r.up_primary.to_string(),
            list(&r.acting),
            r.acting_primary.to_string(),
        ]);
    }
    table.render()
}

fn stat(call: &mut Call<'_>) -> Outcome {
    let map = &call.state.osdmap.map;
    let stats = &call.mon.services.pgs;
    let states = summary::by_count(&stats.states(map));
    let sum = stats.sum();
    let space = stats.space(|osd| map.is_in(osd));
    let all: u64 = states.iter().map(|(_, n)| n).sum();
    let rates = stats.all_rates(map);
    let mut summary = json!({
        "num_pg_by_state": states.iter()
            .map(|(state, n)| json!({ "name": pg_state::name(*state), "num": n })).collect::<Vec<_>>(),
        "num_pgs": all,
        "num_bytes": sum.bytes,
        "total_bytes": space.total,
        "total_avail_bytes": space.available,
        "total_used_bytes": space.used(),
        "total_used_raw_bytes": space.used(),
    });
    let fields = summary.as_object_mut().expect("just made");
    for (name, n) in [
        ("read_bytes_sec", rates.read_bytes),
        ("write_bytes_sec", rates.write_bytes),
        ("io_sec", rates.reads + rates.writes),
    ] {
        if n > 0 {
            fields.insert(name.to_string(), json!(n));
        }
    }
    fields.extend(recovery_json(&sum));
    fields.extend(recovery_rate_json(&rates));
    let value = json!({ "pg_ready": true, "pg_summary": summary });
    call.show(value, || summary::text(stats, map) + "\n")
}

fn map_pg(call: &mut Call<'_>) -> Outcome {
    let map = &call.state.osdmap.map;
    let raw = call.args.pg("pgid")?;
    let Some(pool) = map.pool(raw.pool) else {
        return Err(refuse(errno::ENOENT, format!("pg '{raw}' does not exist")));
    };
    let pg = PgId { seed: pool.raw_pg_to_pg(raw.seed), ..raw };
    let placed = map.pg_to_up_acting(pg);
    let value = json!({
        "epoch": map.epoch.0,
        "raw_pgid": raw.to_string(),
        "pgid": pg.to_string(),
        "up": ids(&placed.up),
        "acting": ids(&placed.acting),
    });
    call.show(value, || {
        format!(
            "osdmap e{} pg {raw} ({pg}) -> up {} acting {}",
            map.epoch,
            list(&placed.up),
            list(&placed.acting)
        )
    })
}

/// A word for a state, as `pg ls` and `pg dump_stuck` take it.
fn state_bit(word: &str) -> Option<u64> {
    (0..64).map(|bit| 1_u64 << bit).find(|&bit| pg_state::name(bit) == word)
}

fn matches_states(row: &PgShown, states: &[String]) -> Result<bool, Refusal> {
    let mut any = states.is_empty();
    for word in states {
        any |= match &**word {
            "all" => true,
            "unknown" => row.state == 0,
            word => {
                let bit = state_bit(word);
                let bit = bit.ok_or_else(|| {
                    let all = pg_state::name(u64::MAX);
                    let text = format!("'{word}' is not a valid pg state, available choices: {all}");
                    refuse(errno::EINVAL, text)
                })?;
                row.state & bit != 0
            }
        };
    }
    Ok(any)
}

fn list_where(call: &Call<'_>, pool: Option<PoolId>, mut wanted: impl FnMut(&PgShown) -> bool) -> Outcome {
    let states = call.args.list("states");
    let mut bad = None;
    let rows = rows(call, |row| {
        let fits = matches_states(row, &states).unwrap_or_else(|refusal| {
            bad = Some(refusal);
            false
        });
        fits && pool.is_none_or(|pool| row.report.pg.pool == pool) && wanted(row)
    });
    if let Some(refusal) = bad {
        return Err(refusal);
    }
    let value =
        json!({ "pg_ready": true, "pg_stats": rows.iter().map(PgShown::to_json).collect::<Vec<_>>() });
    call.show(value, || {
        let mut table = Table::new(&[
            ("PG", Left, Left),
            ("OBJECTS", Left, Right),
            ("DEGRADED", Left, Right),
            ("MISPLACED", Left, Right),
            ("UNFOUND", Left, Right),
            ("BYTES", Left, Right),
            ("OMAP_BYTES*", Left, Right),
            ("OMAP_KEYS*", Left, Right),
            ("LOG", Left, Right),
            ("STATE", Left, Right),
            ("SINCE", Left, Right),
            ("VERSION", Left, Right),
            ("REPORTED", Left, Right),
            ("UP", Left, Right),
            ("ACTING", Left, Right),
            ("SCRUB_STAMP", Left, Right),
            ("DEEP_SCRUB_STAMP", Left, Right),
        ]);
        for row in &rows {
            let (r, c) = (&row.report, &row.report.counts);
            let since = call.now.wall.sec.saturating_sub(r.last_change.sec);
            table.row([
                r.pg.to_string(),
                c.objects.to_string(),
                c.degraded.to_string(),
                c.misplaced.to_string(),
                c.unfound.to_string(),
                c.bytes.to_string(),
                c.omap_bytes.to_string(),
                c.omap_keys.to_string(),
                r.log_entries.to_string(),
                pg_state::name(row.state),
                crate::output::age(since.into()),
                r.last_update.to_string(),
                format!("{}:{}", row.epoch, row.seq),
                format!("{}p{}", list(&r.up), r.up_primary),
                format!("{}p{}", list(&r.acting), r.acting_primary),
                stamp(r.scrub.last_stamp),
                stamp(r.scrub.last_deep_stamp),
            ]);
        }
        if rows.is_empty() { String::new() } else { table.render() + NOTE }
    })
}

fn pool_arg(call: &Call<'_>, name: &str) -> Result<Option<PoolId>, Refusal> {
    let Some(number) = call.args.int_opt(name)? else { return Ok(None) };
    let pool = PoolId(number);
    match call.state.osdmap.map.pool(pool) {
        Some(_) => Ok(Some(pool)),
        None => Err(refuse(errno::ENOENT, format!("pool {number} does not exist"))),
    }
}

fn osd_arg(call: &Call<'_>) -> Result<OsdId, Refusal> {
    let text = call.args.text("osd")?;
    let osd = parse_osd(&text).ok_or_else(|| refuse(errno::EINVAL, format!("invalid osd id '{text}'")))?;
    match call.state.osdmap.map.is_up(osd) {
        true => Ok(osd),
        false => Err(refuse(errno::EAGAIN, format!("osd {osd} is not up"))),
    }
}

fn ls(call: &mut Call<'_>) -> Outcome {
    let pool = pool_arg(call, "pool")?;
    list_where(call, pool, |_| true)
}
fn ls_by_pool(call: &mut Call<'_>) -> Outcome {
    let pool = call.args.pool("poolstr", &call.state.osdmap.map)?;
    list_where(call, Some(pool), |_| true)
}
fn ls_by_osd(call: &mut Call<'_>) -> Outcome {
    let (osd, pool) = (osd_arg(call)?, pool_arg(call, "pool")?);
    list_where(call, pool, |row| row.report.acting.contains(&osd) || row.report.up.contains(&osd))
}
fn ls_by_primary(call: &mut Call<'_>) -> Outcome {
    let (osd, pool) = (osd_arg(call)?, pool_arg(call, "pool")?);
    list_where(call, pool, |row| row.report.acting_primary == osd)
}

fn dump_stuck(call: &mut Call<'_>) -> Outcome {
    let kinds = call.args.list("stuckops");
    let threshold =
        call.args.int_opt("threshold")?.unwrap_or_else(|| call.option_u64("mon_pg_stuck_threshold") as i64);
    let threshold = u32::try_from(threshold.max(0)).unwrap_or(u32::MAX);
    let now = call.now.wall.sec;
    let long = |since: Utime| now.saturating_sub(since.sec) >= threshold;
    let kinds =
        if kinds.is_empty() { vec!["inactive".to_string(), "unclean".into(), "stale".into()] } else { kinds };
    for kind in &kinds {
        if !["inactive", "unclean", "stale", "undersized", "degraded"].contains(&&**kind) {
            return Err(refuse(errno::EINVAL, format!("Unknown type: {kind}")));
        }
    }
    let rows = rows(call, |row| {
        let lacks = |bit: u64| row.state & bit == 0;
        kinds.iter().any(|kind| match &**kind {
            "inactive" => lacks(pg_state::ACTIVE) && long(row.lasts.active),
            "unclean" => lacks(pg_state::CLEAN) && long(row.lasts.clean),
            "stale" => !lacks(pg_state::STALE) && long(row.stamp),
            "undersized" => !lacks(pg_state::UNDERSIZED) && long(row.lasts.full_sized),
            _ => !lacks(pg_state::DEGRADED) && long(row.lasts.undegraded),
        })
    });
    let value =
        json!({ "pg_ready": true, "stuck_pg_stats": rows.iter().map(PgShown::to_json).collect::<Vec<_>>() });
    let mut answer = call.show(value, || if rows.is_empty() { String::new() } else { brief_text(&rows) })?;
    // The table is what tools read; the words are for people.
    let words = rows.iter().filter(|row| !row.report.waiting_for.is_empty());
    let words: String =
        words.map(|row| format!("pg {} waits for {}\n", row.report.pg, row.report.waiting_for)).collect();
    answer.status = words + "ok";
    Ok(answer)
}

fn debug(call: &mut Call<'_>) -> Outcome {
    let op = call.args.text("debugop")?;
    let found = match &*op {
        "unfound_objects_exist" => call.mon.services.pgs.sum().unfound > 0,
        "degraded_pgs_exist" => !rows(call, |row| row.state & pg_state::DEGRADED != 0).is_empty(),
        _ => return Err(refuse(errno::EINVAL, format!("bad debug pg command arguments: '{op}'"))),
    };
    Answer::text(if found { "TRUE\n" } else { "FALSE\n" })
}
