//! Space and load, by pool and by OSD.

use super::osd_show::status_word;
use super::{Call, Outcome, Refusal, Row, refuse};
use crate::crush_edit;
use crate::mon::Mon;
use crate::output::Align::{Left, Right};
use crate::output::{self, Table, bytes, count, float};
use crate::services::pg::stats::{Space, rule_weights};
use nacre_base::{OsdId, PoolId, errno};
use nacre_proto::maps::{Osd, OsdMap};
use nacre_proto::messages::{
    GetPoolStats, GetPoolStatsReply, Message, OsdSpace, PaxosVersion, PgCounts, PoolSpace, Statfs,
    StatfsReply, Work,
};
use nacre_proto::types::{PoolStat, StoreStatfs};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

pub const COMMANDS: &[Row] = &[
    ("df", "show the space of the cluster and of its pools", df),
    ("osd df", "show the space of each OSD", osd_df),
    ("osd perf", "show the latencies of the OSDs' stores", osd_perf),
    ("osd pool stats", "show the I/O rates of pools", pool_rates),
    ("osd utilization", "show how evenly placement groups are distributed over OSDs", utilization),
    ("osd blocked-by", "show the OSDs that block others", blocked_by),
];

// ---- what `rados df` asks for ----

pub fn statfs(mon: &Mon, ask: &Statfs) -> Message {
    let state = mon.state.as_ref().expect("the caller leads");
    let map = &state.osdmap.map;
    let (kb, kb_used, kb_avail, num_objects) = match ask.data_pool.filter(|&pool| map.pool(pool).is_some()) {
        Some(pool) => {
            let usage = mon.services.pgs.pool(map, pool);
            let (used, free) = (usage.stored, usage.max_available);
            ((used + free) >> 10, used >> 10, free >> 10, usage.counts.objects)
        }
        None => {
            let space = mon.services.pgs.space(|osd| map.is_in(osd));
            (space.total >> 10, space.used() >> 10, space.available >> 10, mon.services.pgs.sum().objects)
        }
    };
    StatfsReply { fsid: state.fsid(), version: mon.services.pgs.version, kb, kb_used, kb_avail, num_objects }
        .into()
}

pub fn pool_stats(mon: &Mon, ask: &GetPoolStats) -> Message {
    let state = mon.state.as_ref().expect("the caller leads");
    let map = &state.osdmap.map;
    let wanted = ask.pools.iter().take(10_000).filter_map(|name| Some((name, map.pool_by_name(name)?)));
    let stats = wanted.map(|(name, id)| (name.clone(), pool_stat(mon, map, id))).collect();
    GetPoolStatsReply {
        version: PaxosVersion(mon.services.pgs.version),
        fsid: state.fsid(),
        stats,
        per_pool: true,
    }
    .into()
}

fn pool_stat(mon: &Mon, map: &OsdMap, id: PoolId) -> PoolStat {
    let usage = mon.services.pgs.pool(map, id);
    let spaces = mon.services.pgs.osds.values().filter_map(|stat| stat.in_pool(id));
    let space = spaces.fold(PoolSpace::default(), PoolSpace::plus);
    PoolStat {
        sum: usage.counts.stat_sum(),
        log_size: usage.log_entries as i64,
        ondisk_log_size: usage.log_entries as i64,
        up: usage.up as i32,
        acting: usage.acting as i32,
        store: StoreStatfs {
            allocated: space.allocated as i64,
            data_stored: space.stored as i64,
            omap_allocated: space.omap as i64,
            ..StoreStatfs::default()
        },
        num_store_stats: mon.services.pgs.osds.len() as i32,
    }
}

// ---- df ----

/// Each device class with its space; OSDs without a class count in none.
fn by_class(call: &Call<'_>) -> BTreeMap<String, Space> {
    let map = &call.state.osdmap.map;
    let classes: BTreeSet<String> =
        map.osd_ids().filter_map(|osd| crush_edit::class_of(&map.crush, osd.0)).collect();
    let space = |class: &String| {
        call.mon
            .services
            .pgs
            .space(|osd| map.is_in(osd) && crush_edit::class_of(&map.crush, osd.0).as_ref() == Some(class))
    };
    classes.into_iter().map(|class| (class.clone(), space(&class))).collect()
}

fn space_json(space: &Space) -> Map<String, Value> {
    let value = json!({
        "total_bytes": space.total,
        "total_avail_bytes": space.available,
        "total_used_bytes": space.used(),
        "total_used_raw_bytes": space.used(),
        "total_used_raw_ratio": float(space.used_ratio()),
    });
    value.as_object().expect("just made").clone()
}

fn df(call: &mut Call<'_>) -> Outcome {
    let detail = call.args.text_opt("detail").is_some();
    let map = &call.state.osdmap.map;
    let all = call.mon.services.pgs.space(|osd| map.is_in(osd));
    let mut stats = space_json(&all);
    stats.insert("num_osds".to_string(), json!(all.osds));
    stats.insert("num_per_pool_osds".to_string(), json!(all.osds));
    stats.insert("num_per_pool_omap_osds".to_string(), json!(all.osds));
    let classes: Map<String, Value> =
        by_class(call).iter().map(|(class, space)| (class.clone(), space_json(space).into())).collect();
    let pools: Vec<Value> = map.pools.keys().map(|&id| pool_json(call, id, detail)).collect();
    let value = json!({ "stats": stats, "stats_by_class": classes, "pools": pools });
    call.show(value, || df_text(call, &all, detail))
}

fn pool_json(call: &Call<'_>, id: PoolId, detail: bool) -> Value {
    let map = &call.state.osdmap.map;
    let pool = &map.pools[&id];
    let usage = call.mon.services.pgs.pool(map, id);
    let counts = &usage.counts;
    let mut stats = Map::new();
    let mut put = |name: &str, value: Value| drop(stats.insert(name.to_string(), value));
    put("stored", json!(usage.stored));
    if detail {
        put("stored_data", json!(usage.stored - usage.stored_omap));
        put("stored_omap", json!(usage.stored_omap));
    }
    put("objects", json!(counts.objects));
    put("kb_used", json!(usage.used.div_ceil(1024)));
    put("bytes_used", json!(usage.used));
    if detail {
        put("data_bytes_used", json!(usage.used - usage.used_omap));
        put("omap_bytes_used", json!(usage.used_omap));
    }
    put("percent_used", float(usage.used_ratio));
    put("max_avail", json!(usage.max_available));
    if detail {
        put("quota_objects", json!(pool.quota_max_objects));
        put("quota_bytes", json!(pool.quota_max_bytes));
        put("dirty", json!(0));
        put("rd", json!(counts.work.reads));
        put("rd_bytes", json!(counts.work.read_bytes));
        put("wr", json!(counts.work.writes));
        put("wr_bytes", json!(counts.work.write_bytes));
        put("compress_bytes_used", json!(0));
        put("compress_under_bytes", json!(0));
        put("stored_raw", json!(usage.stored_raw));
        put("avail_raw", json!(usage.max_available_raw));
    }
    json!({ "name": map.pool_name(id), "id": id.0, "stats": stats })
}

fn df_text(call: &Call<'_>, all: &Space, detail: bool) -> String {
    let mut table = Table::new(&[
        ("CLASS", Left, Left),
        ("SIZE", Right, Right),
        ("AVAIL", Right, Right),
        ("USED", Right, Right),
        ("RAW USED", Right, Right),
        ("%RAW USED", Right, Right),
    ]);
    for (name, space) in by_class(call).iter().map(|(name, space)| (&**name, space)).chain([("TOTAL", all)]) {
        table.row([
            name.to_string(),
            bytes(space.total),
            bytes(space.available),
            bytes(space.used()),
            bytes(space.used()),
            percent(space.used_ratio()),
        ]);
    }
    let mut out = format!("--- RAW STORAGE ---\n{} \n--- POOLS ---\n", table.render());
    let mut columns =
        vec![("POOL", Left, Left), ("ID", Right, Right), ("PGS", Right, Right), ("STORED", Right, Right)];
    let parts = [("(DATA)", Right, Right), ("(OMAP)", Right, Right)];
    columns.extend(detail.then_some(parts).into_iter().flatten());
    columns.extend([("OBJECTS", Right, Right), ("USED", Right, Right)]);
    columns.extend(detail.then_some(parts).into_iter().flatten());
    columns.extend([("%USED", Right, Right), ("MAX AVAIL", Right, Right)]);
    if detail {
        columns.extend(
            ["QUOTA OBJECTS", "QUOTA BYTES", "DIRTY", "USED COMPR", "UNDER COMPR"]
                .map(|name| (name, Right, Right)),
        );
    }
    let mut table = Table::new(&columns);
    let map = &call.state.osdmap.map;
    for (&id, pool) in &map.pools {
        let usage = call.mon.services.pgs.pool(map, id);
        let counts = &usage.counts;
        let mut row = vec![
            map.pool_name(id).unwrap_or_default().to_string(),
            id.to_string(),
            pool.pg_num.to_string(),
            bytes(usage.stored),
        ];
        let detailed = |row: &mut Vec<String>, cells: &[String]| {
            if detail {
                row.extend_from_slice(cells);
            }
        };
        detailed(&mut row, &[bytes(usage.stored - usage.stored_omap), bytes(usage.stored_omap)]);
        row.extend([count(counts.objects), bytes(usage.used)]);
        detailed(&mut row, &[bytes(usage.used - usage.used_omap), bytes(usage.used_omap)]);
        row.extend([percent(usage.used_ratio), bytes(usage.max_available)]);
        let quota = |n: u64, text: String| if n == 0 { "N/A".to_string() } else { text };
        detailed(
            &mut row,
            &[
                quota(pool.quota_max_objects, count(pool.quota_max_objects)),
                quota(pool.quota_max_bytes, bytes(pool.quota_max_bytes)),
                "N/A".to_string(),
                bytes(0),
                bytes(0),
            ],
        );
        table.row(row);
    }
    out += &table.render();
    out.pop();
    out
}

/// Two digits, but a bare zero for next to nothing, as Ceph has it.
fn percent(ratio: f64) -> String {
    if ratio * 100.0 < 0.01 { "0".to_string() } else { format!("{:.2}", ratio * 100.0) }
}

// ---- osd df ----

/// One line of `osd df`: an OSD, or a bucket with the sum of what is below.
struct Line {
    id: i32,
    depth: usize,
    weight: u32,
    space: OsdSpace,
    pgs: u64,
}

impl Line {
    fn used(&self) -> u64 {
        self.space.total.saturating_sub(self.space.available)
    }
    fn utilization(&self) -> f64 {
        if self.space.total == 0 { 0.0 } else { 100.0 * self.used() as f64 / self.space.total as f64 }
    }
}

fn add(sum: &mut OsdSpace, one: &OsdSpace) {
    sum.total += one.total;
    sum.available += one.available;
    sum.allocated += one.allocated;
    sum.stored += one.stored;
    sum.omap += one.omap;
    sum.internal += one.internal;
}

/// Which OSDs `osd df` is asked about: of a class, below a bucket, or those that a pool may use.
fn osds_asked(call: &Call<'_>) -> Result<BTreeSet<OsdId>, Refusal> {
    let map = &call.state.osdmap.map;
    let crush = &map.crush;
    let Some(by) = call.args.text_opt("filter_by") else { return Ok(map.osd_ids().collect()) };
    let name = call.args.text("filter")?;
    let text = format!("'{name}' not a pool, crush node or device class name");
    let unknown = || refuse(errno::EINVAL, &*text);
    match &*by {
        "class" => {
            crush.class_by_name(&name).ok_or_else(unknown)?;
            Ok(map.osd_ids().filter(|osd| crush.class_name_of(osd.0) == Some(&*name)).collect())
        }
        "name" => match (crush.item_by_name(&name), map.pool_by_name(&name)) {
            (Some(item), _) => Ok(crush_edit::osds_below(crush, item).into_iter().collect()),
            (None, Some(pool)) => {
                let pool = map.pool(pool).expect("it was just found");
                Ok(rule_weights(map, pool).into_keys().collect())
            }
            (None, None) => Err(unknown()),
        },
        _ => Err(refuse(errno::EINVAL, format!("not 'class' or 'name': '{by}'"))),
    }
}

fn osd_df(call: &mut Call<'_>) -> Outcome {
    let tree = call.args.text_opt("output_method").as_deref() == Some("tree");
    let asked = osds_asked(call)?;
    let map = &call.state.osdmap.map;
    let stats = &call.mon.services.pgs;
    let pgs = stats.pgs_by_osd(map);
    let space_of = |osd: OsdId| stats.osds.get(&osd).map(|stat| stat.report.space).unwrap_or_default();
    let mut lines = Vec::new();
    for (id, depth, weight) in super::osd_show::walk(map, &map.crush.roots(false)) {
        let mut space = OsdSpace::default();
        let mut below = crush_edit::osds_below(&map.crush, id);
        below.retain(|osd| asked.contains(osd));
        if below.is_empty() && asked.len() < map.osd_ids().count() {
            continue;
        }
        below.iter().for_each(|osd| add(&mut space, &space_of(*osd)));
        let pgs = pgs.get(&OsdId(id)).map_or(0, |(all, _)| *all);
        if tree || (id >= 0 && map.exists(OsdId(id))) {
            lines.push(Line { id, depth, weight, space, pgs });
        }
    }
    let placed: BTreeSet<i32> = lines.iter().map(|line| line.id).collect();
    let stray: Vec<Line> = map
        .osd_ids()
        .filter(|osd| !placed.contains(&osd.0) && asked.contains(osd))
        .map(|osd| Line { id: osd.0, depth: 0, weight: 0, space: space_of(osd), pgs: 0 })
        .collect();
    if !tree {
        lines.sort_by_key(|line| line.id);
        // One OSD may hang below several roots.
        lines.dedup_by_key(|line| line.id);
    }
    // Who is out is shown, and is not part of the whole.
    let counts = |line: &&Line| line.id >= 0 && map.is_in(OsdId(line.id));
    let mut sum = OsdSpace::default();
    asked.iter().filter(|osd| map.is_in(**osd)).for_each(|osd| add(&mut sum, &space_of(*osd)));
    let total = Line { id: 0, depth: 0, weight: 0, space: sum, pgs: 0 };
    let average = total.utilization();
    let var = |line: &Line| if average > 0.0 { line.utilization() / average } else { 0.0 };
    let vars: Vec<f64> = lines.iter().filter(counts).filter(|l| l.space.total > 0).map(var).collect();
    let least = vars.iter().copied().fold(f64::INFINITY, f64::min);
    let (least, most) =
        (if least.is_finite() { least } else { 0.0 }, vars.iter().copied().fold(0.0, f64::max));
    let deviation = {
        let osds: Vec<f64> = lines.iter().filter(counts).map(Line::utilization).collect();
        let squares: f64 = osds.iter().map(|u| (u - average).powi(2)).sum();
        (squares / osds.len().max(1) as f64).sqrt()
    };
    let node_json = |line: &Line| -> Value {
        let mut node = super::osd_show::node_head(map, line.id, line.weight, line.depth);
        node.insert("reweight".to_string(), reweight(map, line.id));
        for (name, value) in [
            ("kb", line.space.total),
            ("kb_used", line.used()),
            ("kb_used_data", line.space.allocated),
            ("kb_used_omap", line.space.omap),
            ("kb_used_meta", line.space.internal),
            ("kb_avail", line.space.available),
        ] {
            node.insert(name.to_string(), json!(value >> 10));
        }
        node.insert("utilization".to_string(), float(line.utilization()));
        node.insert("var".to_string(), float(var(line)));
        node.insert("pgs".to_string(), json!(line.pgs));
        if line.id >= 0 {
            node.insert("status".to_string(), json!(status_word(map, OsdId(line.id))));
        } else {
            node.insert("children".to_string(), super::osd_show::children(map, line.id));
        }
        Value::Object(node)
    };
    let value = json!({
        "nodes": lines.iter().map(node_json).collect::<Vec<_>>(),
        "stray": stray.iter().map(node_json).collect::<Vec<_>>(),
        "summary": {
            "total_kb": sum.total >> 10,
            "total_kb_used": total.used() >> 10,
            "total_kb_used_data": sum.allocated >> 10,
            "total_kb_used_omap": sum.omap >> 10,
            "total_kb_used_meta": sum.internal >> 10,
            "total_kb_avail": sum.available >> 10,
            "average_utilization": float(average),
            "min_var": float(least),
            "max_var": float(most),
            "dev": float(deviation),
        },
    });
    call.show(value, || {
        let mut columns: Vec<_> = [
            "ID", "CLASS", "WEIGHT", "REWEIGHT", "SIZE", "RAW USE", "DATA", "OMAP", "META", "AVAIL", "%USE",
            "VAR", "PGS", "STATUS",
        ]
        .into_iter()
        .map(|name| (name, Left, Right))
        .collect();
        if tree {
            columns.push(("TYPE NAME", Left, Left));
        }
        let mut table = Table::new(&columns);
        let row = |line: &Line| {
            let osd = (line.id >= 0).then_some(OsdId(line.id));
            let number =
                |x: f64, digits: usize| if x == 0.0 { "0".to_string() } else { format!("{x:.digits$}") };
            let mut row = vec![
                line.id.to_string(),
                osd.and_then(|osd| crush_edit::class_of(&map.crush, osd.0)).unwrap_or_default(),
                number(f64::from(line.weight) / 65536.0, 5),
                osd.map_or("-".to_string(), |osd| number(f64::from(map.weight(osd)) / 65536.0, 5)),
            ];
            row.extend(sizes(line).map(bytes));
            row.extend([number(line.utilization(), 2), number(var(line), 2)]);
            row.push(osd.map_or("-".to_string(), |_| line.pgs.to_string()));
            row.push(osd.map_or("", |osd| status_word(map, osd)).to_string());
            if tree {
                row.push(super::osd_show::indented_name(map, line.id, line.depth));
            }
            row
        };
        lines.iter().chain(&stray).for_each(|line| table.row(row(line)));
        let mut last = vec![String::new(), String::new(), String::new(), "TOTAL".to_string()];
        last.extend(sizes(&total).map(bytes));
        last.extend([format!("{:.2}", average), String::new(), String::new(), String::new()]);
        last.extend(tree.then(String::new));
        table.row(last);
        let deviation = if deviation == 0.0 { "0".to_string() } else { format!("{deviation:.2}") };
        format!("{}MIN/MAX VAR: {least:.2}/{most:.2}  STDDEV: {deviation}", table.render())
    })
}

fn sizes(line: &Line) -> [u64; 6] {
    let space = &line.space;
    [space.total, line.used(), space.allocated, space.omap, space.internal, space.available]
}

fn reweight(map: &OsdMap, id: i32) -> Value {
    if id < 0 { json!(-1) } else { float(f64::from(map.weight(OsdId(id))) / f64::from(Osd::IN)) }
}

// ---- load ----

fn osd_perf(call: &mut Call<'_>) -> Outcome {
    let osds = &call.mon.services.pgs.osds;
    let rows: Vec<Value> = osds
        .iter()
        .rev()
        .map(|(osd, stat)| json!({ "id": osd.0, "perf_stats": latency_json(stat.report.commit_latency_us) }))
        .collect();
    call.show(json!({ "pg_ready": true, "osdstats": { "osd_perf_infos": rows } }), || {
        let mut table = Table::new(&[
            ("osd", Left, Right),
            ("commit_latency(ms)", Left, Right),
            ("apply_latency(ms)", Left, Right),
        ]);
        for (osd, stat) in osds.iter().rev() {
            let millis = latency_ms(stat.report.commit_latency_us).to_string();
            table.row([osd.to_string(), millis.clone(), millis]);
        }
        table.render()
    })
}

/// Rounded up: something that takes time does not take none.
fn latency_ms(micros: u32) -> u32 {
    micros.div_ceil(1000)
}

/// Our store shows what was applied at once, so what a client sees as applied is what is durable.
pub(super) fn latency_json(micros: u32) -> Value {
    let (millis, nanos) = (latency_ms(micros), u64::from(micros) * 1000);
    json!({
        "commit_latency_ms": millis,
        "apply_latency_ms": millis,
        "commit_latency_ns": nanos,
        "apply_latency_ns": nanos,
    })
}

/// What is not as it should be, as `status`, `pg stat` and `osd pool stats` have it.
pub fn recovery_json(counts: &PgCounts) -> Map<String, Value> {
    let mut out = Map::new();
    for (what, n, total) in [
        ("degraded", counts.degraded, counts.copies),
        ("misplaced", counts.misplaced, counts.copies),
        ("unfound", counts.unfound, counts.objects),
    ] {
        if n > 0 {
            out.insert(format!("{what}_objects"), json!(n));
            out.insert(format!("{what}_total"), json!(total));
            out.insert(format!("{what}_ratio"), float(n as f64 / total.max(1) as f64));
        }
    }
    out
}

/// All of the rates, or none when nothing is recovered. Keys of omaps are not counted by themselves.
pub fn recovery_rate_json(rates: &Work) -> Map<String, Value> {
    let (objects, bytes) = (rates.recovered_objects, rates.recovered_bytes);
    if objects + bytes == 0 {
        return Map::new();
    }
    let rows = [
        ("recovering_objects_per_sec", objects),
        ("recovering_bytes_per_sec", bytes),
        ("recovering_keys_per_sec", 0),
        ("num_objects_recovered", objects),
        ("num_bytes_recovered", bytes),
        ("num_keys_recovered", 0),
    ];
    rows.map(|(name, n)| (name.to_string(), json!(n))).into_iter().collect()
}

pub fn client_rate_json(rates: &Work) -> Map<String, Value> {
    let some = rates.reads + rates.writes > 0;
    let rows = [
        ("read_bytes_sec", rates.read_bytes, rates.read_bytes > 0),
        ("write_bytes_sec", rates.write_bytes, rates.write_bytes > 0),
        ("read_op_per_sec", rates.reads, some),
        ("write_op_per_sec", rates.writes, some),
    ];
    rows.into_iter().filter(|row| row.2).map(|(name, n, _)| (name.to_string(), json!(n))).collect()
}

fn pool_rates(call: &mut Call<'_>) -> Outcome {
    let map = &call.state.osdmap.map;
    let wanted: Vec<PoolId> = match call.args.text_opt("pool_name") {
        Some(_) => vec![call.args.pool("pool_name", map)?],
        None => map.pools.keys().copied().collect(),
    };
    let rows: Vec<Value> = wanted
        .iter()
        .map(|&id| {
            let rates = call.mon.services.pgs.rates(id);
            json!({
                "pool_name": map.pool_name(id), "pool_id": id.0,
                "recovery": recovery_json(&call.mon.services.pgs.pool(map, id).counts),
                "recovery_rate": recovery_rate_json(&rates),
                "client_io_rate": client_rate_json(&rates),
            })
        })
        .collect();
    call.show(rows.into(), || {
        let mut out = String::new();
        for &id in &wanted {
            let rates = call.mon.services.pgs.rates(id);
            let counts = call.mon.services.pgs.pool(map, id).counts;
            let mut lines = Vec::new();
            for (what, n, total) in [
                ("degraded", counts.degraded, counts.copies),
                ("misplaced", counts.misplaced, counts.copies),
                ("unfound", counts.unfound, counts.objects),
            ] {
                if n > 0 {
                    let part = 100.0 * n as f64 / total.max(1) as f64;
                    lines.push(format!("  {n}/{total} objects {what} ({part:.3}%)"));
                }
            }
            if rates.recovered_objects + rates.recovered_bytes > 0 {
                let objects = rates.recovered_objects;
                lines.push(format!("  recovery io {}/s, {objects} objects/s", bytes(rates.recovered_bytes)));
            }
            if rates.reads + rates.writes > 0 {
                lines.push(format!(
                    "  client io {}/s rd, {}/s wr, {} op/s rd, {} op/s wr",
                    bytes(rates.read_bytes),
                    bytes(rates.write_bytes),
                    count(rates.reads),
                    count(rates.writes)
                ));
            }
            if lines.is_empty() {
                lines.push("  nothing is going on".to_string());
            }
            out +=
                &format!("pool {} id {id}\n{}\n\n", map.pool_name(id).unwrap_or_default(), lines.join("\n"));
        }
        out
    })
}

fn utilization(call: &mut Call<'_>) -> Outcome {
    let map = &call.state.osdmap.map;
    let by_osd = call.mon.services.pgs.pgs_by_osd(map);
    let osds: Vec<OsdId> = map.osd_ids().filter(|&osd| map.is_in(osd)).collect();
    let pgs = |osd: &OsdId| by_osd.get(osd).map_or(0, |(all, _)| *all);
    let n = osds.len().max(1) as f64;
    let average = osds.iter().map(|osd| pgs(osd) as f64).sum::<f64>() / n;
    let deviation = (osds.iter().map(|osd| (pgs(osd) as f64 - average).powi(2)).sum::<f64>() / n).sqrt();
    // What chance alone would give.
    let expected = (average * (1.0 - 1.0 / n)).sqrt();
    let least = osds.iter().min_by_key(|osd| pgs(osd)).copied().unwrap_or(OsdId(0));
    let most = osds.iter().rev().max_by_key(|osd| pgs(osd)).copied().unwrap_or(OsdId(0));
    let value = json!({
        "avg_pgs": float(average), "std_dev": float(deviation), "expected_baseline_std_dev": float(expected),
        "min_osd": least.0, "min_osd_pgs": pgs(&least), "max_osd": most.0, "max_osd_pgs": pgs(&most),
    });
    call.show(value, || {
        let mean = |osd: &OsdId| output::short(pgs(osd) as f64 / average.max(1e-9));
        format!(
            "avg {}\nstddev {} (expected baseline {})\nmin osd.{least} with {} pgs ({} * mean)\nmax osd.{most} with {} pgs ({} * mean)\n",
            output::short(average),
            output::short(deviation),
            output::short(expected),
            pgs(&least),
            mean(&least),
            pgs(&most),
            mean(&most),
        )
    })
}

fn blocked_by(call: &mut Call<'_>) -> Outcome {
    let mut counts: BTreeMap<OsdId, u64> = BTreeMap::new();
    for stat in call.mon.services.pgs.pgs.values() {
        let osds = stat.report.waited_for();
        osds.into_iter().for_each(|osd| *counts.entry(osd).or_default() += 1);
    }
    let rows: Vec<Value> = counts.iter().map(|(osd, n)| json!({ "id": osd.0, "num_blocked": n })).collect();
    call.show(json!({ "pg_ready": true, "osd_blocked_by": { "osd_blocked_by_infos": rows } }), || {
        let mut table = Table::new(&[("osd", Left, Right), ("num_blocked", Left, Right)]);
        counts.iter().for_each(|(osd, n)| table.row([osd.to_string(), n.to_string()]));
        table.render()
    })
}
