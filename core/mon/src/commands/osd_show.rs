//! Looking at OSDs and at the map.

use super::cluster::{flags_text, osd_counts, osd_line, osd_versions};
use super::osd::asked;
use super::{Answer, Call, Outcome, Refusal, Row, osdmap_dump, refuse, weight_set};
use crate::crush_edit;
use crate::output::Align::{Left, Right};
use crate::output::{Table, addrvec, float, list, narrow_bytes, narrow_count, uuid};
use crate::services::pg::stopping::{Stopping, stopping};
use nacre_base::{Epoch, Name, OsdId, PgId, errno};
use nacre_command::Format;
use nacre_proto::maps::{Osd, OsdMap, release};
use nacre_proto::types::{ObjectLocator, object_hash};
use nacre_wire::{from_slice, to_vec};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

pub const COMMANDS: &[Row] = &[
    ("osd stat", "show how many OSDs are up and in", stat),
    ("osd dump", "show the OSD map", dump),
    ("osd tree", "show the OSDs by location with their status", tree),
    ("osd tree-from", "show a part of the OSD tree", tree),
    ("osd ls", "list the ids of all OSDs", ls),
    ("osd ls-tree", "list the ids of the OSDs below a bucket", ls_tree),
    ("osd getmap", "get the encoded OSD map", getmap),
    ("osd getcrushmap", "get the encoded CRUSH map", getcrushmap),
    ("osd getmaxosd", "show the maximum number of OSDs", getmaxosd),
    ("osd metadata", "show the metadata of OSDs", metadata),
    ("osd last-stat-seq", "show the sequence number of the last statistics of an OSD", last_stat_seq),
    ("osd versions", "count the OSDs by version", versions),
    ("osd find", "show the location of an OSD", find),
    ("osd map", "show the placement group and the OSDs of an object", map_object),
    ("osd lspools", "list the pools with their ids", lspools),
    ("osd get-require-min-compat-client", "show the oldest clients that may connect", min_compat),
    ("osd numa-status", "show the NUMA placement of OSDs", numa),
    ("osd ok-to-stop", "check whether OSDs can stop without interrupting I/O", ok_to_stop),
    ("osd status", "show the space and load of OSDs", status),
    ("osd info", "show the state of OSDs in the map", info),
];

/// The map of the epoch that was asked for, or the newest.
fn map_asked(call: &Call<'_>) -> Result<OsdMap, super::Refusal> {
    match call.args.int_opt("epoch")?.filter(|&epoch| epoch != 0) {
        None => Ok(call.state.osdmap.map.as_ref().clone()),
        Some(epoch) => {
            let bytes = u32::try_from(epoch).ok().and_then(|epoch| call.state.osdmap.at(Epoch(epoch)));
            let bytes =
                bytes.ok_or_else(|| refuse(errno::ENOENT, format!("there is no map for epoch {epoch}")))?;
            Ok(from_slice(&bytes).expect("a map of ours"))
        }
    }
}

fn stat(call: &mut Call<'_>) -> Outcome {
    call.show(osd_counts(call), || {
        let flags = flags_text(call.state.osdmap.map.flags);
        let flags = if flags.is_empty() { flags } else { format!("\nflags {flags}") };
        format!("{}; epoch: e{}{flags}", osd_line(call, " (since "), call.state.osdmap.map.epoch)
    })
}

fn dump(call: &mut Call<'_>) -> Outcome {
    let map = map_asked(call)?;
    call.show(osdmap_dump::dump(&map), || osdmap_dump::text(&map))
}

/// What every listing of a tree says first of a node.
pub fn node_head(map: &OsdMap, id: i32, weight: u32, depth: usize) -> Map<String, Value> {
    let mut node = Map::new();
    node.insert("id".to_string(), json!(id));
    if id >= 0 {
        if let Some(class) = crush_edit::class_of(&map.crush, id) {
            node.insert("device_class".to_string(), json!(class));
        }
        node.insert("name".to_string(), json!(format!("osd.{id}")));
        node.insert("type".to_string(), json!("osd"));
        node.insert("type_id".to_string(), json!(0));
        node.insert("crush_weight".to_string(), float(f64::from(weight) / 65536.0));
        node.insert("depth".to_string(), json!(depth));
        if depth > 0 {
            node.insert("pool_weights".to_string(), weight_set::weights_of(map, id));
        }
        return node;
    }
    let kind = map.crush.bucket(id).map_or(0, |bucket| i32::from(bucket.kind));
    node.insert("name".to_string(), json!(map.crush.names.get(&id)));
    node.insert("type".to_string(), json!(map.crush.types.get(&kind)));
    node.insert("type_id".to_string(), json!(kind));
    if depth > 0 {
        node.insert("pool_weights".to_string(), weight_set::weights_of(map, id));
    }
    node
}

/// Trees are shown with buckets by their names, then OSDs by class and number, as Ceph sorts them.
fn sort_key(map: &OsdMap, id: i32) -> String {
    match id {
        osd if osd >= 0 => format!("{}_osd.{osd:08}", map.crush.class_name_of(osd).unwrap_or_default()),
        bucket => format!("_{}", map.crush.names.get(&bucket).cloned().unwrap_or_default()),
    }
}

/// In the reverse of the order in which they are shown, as Ceph lists them.
pub fn children(map: &OsdMap, id: i32) -> Value {
    let mut items = map.crush.bucket(id).map(|bucket| bucket.items.clone()).unwrap_or_default();
    items.sort_by_cached_key(|id| std::cmp::Reverse(sort_key(map, *id)));
    json!(items)
}

/// `    host vm`, or `osd.1` below it.
pub fn indented_name(map: &OsdMap, id: i32, depth: usize) -> String {
    let name = match map.crush.bucket(id) {
        None => format!("osd.{id}"),
        Some(bucket) => {
            let kind = map.crush.types.get(&i32::from(bucket.kind)).cloned().unwrap_or_default();
            format!("{kind} {}", map.crush.names.get(&id).cloned().unwrap_or_default())
        }
    };
    format!("{}{name}", "    ".repeat(depth))
}

/// All nodes, a bucket before what it holds and OSDs by number, with their depth and weight there.
pub fn walk(map: &OsdMap, roots: &[i32]) -> Vec<(i32, usize, u32)> {
    let mut out = Vec::new();
    for &root in roots {
        let weight = map.crush.bucket(root).map_or(0, |bucket| bucket.weight);
        let mut left = vec![(root, 0, weight)];
        while let Some((id, depth, weight)) = left.pop() {
            out.push((id, depth, weight));
            if let Some(bucket) = map.crush.bucket(id) {
                // What is pushed last comes first.
                let mut items = bucket.content();
                items.sort_by_cached_key(|(id, _)| std::cmp::Reverse(sort_key(map, *id)));
                left.extend(items.into_iter().map(|(id, weight)| (id, depth + 1, weight)));
            }
        }
    }
    out
}

fn tree(call: &mut Call<'_>) -> Outcome {
    let map = map_asked(call)?;
    let states: Vec<String> = call.args.list("states");
    for both in [["up", "down"], ["up", "destroyed"], ["down", "destroyed"], ["in", "out"]] {
        if both.iter().all(|state| states.iter().any(|asked| asked == state)) {
            let text = match both[0] {
                "in" => "can specify only one of 'in' and 'out'",
                _ => "can specify only one of 'up', 'down' and 'destroyed'",
            };
            return Err(refuse(errno::EINVAL, text));
        }
    }
    let wanted = |osd: OsdId| {
        states.iter().all(|state| match &**state {
            "up" => map.is_up(osd),
            "down" => map.is_down(osd),
            "in" => map.is_in(osd),
            "out" => map.is_out(osd),
            "destroyed" => map.osds[osd.index()].has(nacre_proto::maps::osd_state::DESTROYED),
            _ => false,
        })
    };
    let roots = match call.args.text_opt("bucket") {
        None => map.crush.roots(false),
        Some(name) => match map.crush.item_by_name(&name) {
            Some(id) if id < 0 => vec![id],
            Some(_) => return Err(refuse(errno::EINVAL, format!("'{name}' is not a bucket"))),
            None => return Err(refuse(errno::ENOENT, format!("bucket '{name}' does not exist"))),
        },
    };
    let nodes = walk(&map, &roots);
    let shown: Vec<&(i32, usize, u32)> = nodes
        .iter()
        .filter(|(id, ..)| match *id {
            osd if osd >= 0 => map.exists(OsdId(osd)) && wanted(OsdId(osd)),
            bucket => {
                states.is_empty()
                    || crush_edit::osds_below(&map.crush, bucket)
                        .iter()
                        .any(|&osd| map.exists(osd) && wanted(osd))
            }
        })
        .collect();
    let placed: BTreeSet<i32> = nodes.iter().map(|(id, ..)| *id).collect();
    let stray: Vec<OsdId> = map.osd_ids().filter(|osd| !placed.contains(&osd.0) && wanted(*osd)).collect();
    let node_json = |id: i32, depth: usize, weight: u32| -> Value {
        let mut node = node_head(&map, id, weight, depth);
        if id < 0 {
            node.insert("children".to_string(), children(&map, id));
        } else {
            let osd = OsdId(id);
            node.insert("exists".to_string(), json!(u8::from(map.exists(osd))));
            node.insert("status".to_string(), json!(status_word(&map, osd)));
            node.insert("reweight".to_string(), float(f64::from(map.weight(osd)) / f64::from(Osd::IN)));
            node.insert("primary_affinity".to_string(), osdmap_dump::affinity(&map, osd));
        }
        Value::Object(node)
    };
    let mut value = json!({
        "nodes": shown.iter().map(|(id, depth, weight)| node_json(*id, *depth, *weight)).collect::<Vec<_>>(),
    });
    if call.args.text_opt("bucket").is_none() {
        let stray = stray.iter().map(|osd| node_json(osd.0, 0, 0));
        value["stray"] = stray.collect();
    }
    call.show(value, || {
        let mut table = Table::new(&[
            ("ID", Left, Right),
            ("CLASS", Left, Right),
            ("WEIGHT", Left, Right),
            ("TYPE NAME", Left, Left),
            ("STATUS", Left, Right),
            ("REWEIGHT", Left, Right),
            ("PRI-AFF", Left, Right),
        ]);
        let stray = stray.iter().map(|osd| (osd.0, 0, 0));
        for (id, depth, weight) in shown.iter().map(|node| **node).chain(stray) {
            let mut row = vec![
                id.to_string(),
                crush_edit::class_of(&map.crush, id).filter(|_| id >= 0).unwrap_or_default(),
                if weight == 0 { "0".to_string() } else { format!("{:.5}", f64::from(weight) / 65536.0) },
                indented_name(&map, id, depth),
            ];
            if id >= 0 {
                let osd = OsdId(id);
                let number = |n: u32| {
                    if n == 0 { "0".to_string() } else { format!("{:.5}", f64::from(n) / f64::from(Osd::IN)) }
                };
                row.extend([
                    status_word(&map, osd).to_string(),
                    number(map.weight(osd)),
                    number(map.primary_affinity(osd)),
                ]);
            } else {
                row.extend([String::new(), String::new(), String::new()]);
            }
            table.row(row);
        }
        let mut text = table.render();
        text.pop();
        text
    })
}

pub fn status_word(map: &OsdMap, osd: OsdId) -> &'static str {
    let destroyed = map.osd(osd).is_some_and(|o| o.has(nacre_proto::maps::osd_state::DESTROYED));
    match (map.is_up(osd), destroyed) {
        (true, _) => "up",
        (_, true) => "destroyed",
        _ => "down",
    }
}

fn numbers(call: &Call<'_>, osds: &[OsdId]) -> Outcome {
    let ids: Vec<i32> = osds.iter().map(|osd| osd.0).collect();
    call.show(json!(ids), || ids.iter().map(|id| format!("{id}\n")).collect())
}

fn ls(call: &mut Call<'_>) -> Outcome {
    let map = map_asked(call)?;
    numbers(call, &map.osd_ids().collect::<Vec<_>>())
}

fn ls_tree(call: &mut Call<'_>) -> Outcome {
    let map = map_asked(call)?;
    let name = call.args.text("name")?;
    let id = map.crush.item_by_name(&name);
    let id = id.ok_or_else(|| refuse(errno::ENOENT, format!("\"{name}\" does not exist")))?;
    let mut osds = crush_edit::osds_below(&map.crush, id);
    osds.sort_unstable();
    numbers(call, &osds)
}

fn getmap(call: &mut Call<'_>) -> Outcome {
    let map = map_asked(call)?;
    Ok(Answer { status: format!("got osdmap epoch {}", map.epoch), output: to_vec(&map) })
}

fn getcrushmap(call: &mut Call<'_>) -> Outcome {
    let map = map_asked(call)?;
    Ok(Answer { status: map.crush_version.to_string(), output: to_vec(map.crush.as_ref()) })
}

fn getmaxosd(call: &mut Call<'_>) -> Outcome {
    let map = &call.state.osdmap.map;
    let (epoch, max) = (map.epoch, map.max_osd());
    call.show(json!({ "epoch": epoch.0, "max_osd": max }), || format!("max_osd = {max} in epoch {epoch}"))
}

fn metadata_of(call: &Call<'_>, osd: OsdId) -> Value {
    let mut row = Map::new();
    row.insert("id".to_string(), json!(osd.0));
    for (name, value) in call.state.osdmap.metadata.get(&osd).into_iter().flatten() {
        row.insert(name.clone(), json!(value));
    }
    Value::Object(row)
}

pub fn all_metadata(call: &Call<'_>) -> Value {
    call.state.osdmap.map.osd_ids().map(|osd| metadata_of(call, osd)).collect()
}

fn existing(call: &Call<'_>, name: &str) -> Result<OsdId, super::Refusal> {
    let osd = call.args.osd(name)?;
    if !call.state.osdmap.map.exists(osd) {
        return Err(refuse(errno::ENOENT, format!("osd.{osd} does not exist")));
    }
    Ok(osd)
}

fn metadata(call: &mut Call<'_>) -> Outcome {
    if call.args.text_opt("id").is_none() {
        return call.show_json(all_metadata(call));
    }
    let osd = existing(call, "id")?;
    if !call.state.osdmap.metadata.contains_key(&osd) {
        return Err(refuse(errno::ENOENT, ""));
    }
    call.show_json(metadata_of(call, osd))
}

/// Scripts compare it with what `flush_pg_stats` said: of an OSD that is not known, no report is.
fn last_stat_seq(call: &mut Call<'_>) -> Outcome {
    let seq = call.mon.services.pgs.osds.get(&call.args.osd("id")?).map_or(0, |stat| stat.report.seq);
    // In Ceph other formats have no text.
    Answer::text(if call.format == Format::Plain { format!("{seq}\n") } else { String::new() })
}

fn versions(call: &mut Call<'_>) -> Outcome {
    call.show_json(json!(osd_versions(call)))
}

fn find(call: &mut Call<'_>) -> Outcome {
    let osd = existing(call, "id")?;
    let map = &call.state.osdmap.map;
    let entry = map.osd(osd).expect("just checked");
    let host =
        call.state.osdmap.metadata.get(&osd).and_then(|m| m.get("hostname").cloned()).unwrap_or_default();
    let location: Map<String, Value> =
        map.crush.location(osd.0).into_iter().map(|(kind, name)| (kind, json!(name))).collect();
    call.show_json(json!({
        "osd": osd.0,
        "addrs": addrvec(&entry.public_addrs),
        "osd_fsid": uuid(&entry.uuid),
        "host": host,
        "crush_location": location,
    }))
}

fn info(call: &mut Call<'_>) -> Outcome {
    let map = &call.state.osdmap.map;
    let wanted: Vec<OsdId> = match call.args.text_opt("id") {
        None => map.osd_ids().collect(),
        Some(_) => {
            let osd = call.args.osd("id")?;
            let known = map.exists(osd).then_some(osd);
            vec![known.ok_or_else(|| refuse(errno::EINVAL, format!("osd.{osd} does not exist")))?]
        }
    };
    let dump = osdmap_dump::dump(map);
    let rows: Vec<&Value> = dump["osds"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|row| wanted.iter().any(|osd| row["osd"] == json!(osd.0)))
        .collect();
    let value = match call.args.text_opt("id") {
        Some(_) => {
            call.lay_out_as("osd info ID");
            json!(rows[0])
        }
        None => json!(rows),
    };
    call.show(value, || wanted.iter().map(|osd| osdmap_dump::osd_line(map, *osd) + "\n").collect())
}

fn map_object(call: &mut Call<'_>) -> Outcome {
    let map = &call.state.osdmap.map;
    let (pool_name, object) = (call.args.text("pool")?, call.args.text("object")?);
    let pool = map.pool_by_name(&pool_name);
    let pool = pool.ok_or_else(|| refuse(errno::ENOENT, format!("pool {pool_name} does not exist")))?;
    let namespace = call.args.text_opt("nspace").unwrap_or_default();
    let locator = ObjectLocator { namespace: namespace.as_str().into(), ..ObjectLocator::new(pool) };
    let name = Name::from(object.as_str());
    let hash = object_hash(&locator.namespace, &name);
    let pg = map.object_to_pg(&locator, &name).expect("the pool exists");
    let placed = map.pg_to_up_acting(pg);
    let ids = |osds: &[OsdId]| osds.iter().map(|osd| osd.0).collect::<Vec<_>>();
    let primary = |osd: Option<OsdId>| osd.map_or(-1, |osd| osd.0);
    let shown = if namespace.is_empty() { object.clone() } else { format!("{namespace}/{object}") };
    let raw = format!("{pool}.{hash:x}");
    let value = json!({
        "epoch": map.epoch.0,
        "pool": pool_name,
        "pool_id": pool.0,
        "objname": shown,
        "raw_pgid": raw,
        "pgid": pg.to_string(),
        "up": ids(&placed.up),
        "up_primary": primary(placed.up_primary),
        "acting": ids(&placed.acting),
        "acting_primary": primary(placed.acting_primary),
    });
    call.show(value, || {
        format!(
            "osdmap e{} pool '{pool_name}' ({pool}) object '{shown}' -> pg {raw} ({pg}) -> up ({}, p{}) acting ({}, p{})",
            map.epoch,
            list(&placed.up),
            primary(placed.up_primary),
            list(&placed.acting),
            primary(placed.acting_primary),
        )
    })
}

fn lspools(call: &mut Call<'_>) -> Outcome {
    let names = &call.state.osdmap.map.pool_names;
    let rows: Vec<Value> =
        names.iter().map(|(id, name)| json!({ "poolnum": id.0, "poolname": name })).collect();
    call.show(rows.into(), || names.iter().map(|(id, name)| format!("{id} {name}\n")).collect())
}

fn min_compat(call: &mut Call<'_>) -> Outcome {
    let name = release::name(call.state.osdmap.map.require_min_compat_client).unwrap_or("unknown");
    Answer::text(format!("{name}\n"))
}

fn host_of(call: &Call<'_>, osd: OsdId) -> String {
    call.state.osdmap.metadata.get(&osd).and_then(|m| m.get("hostname").cloned()).unwrap_or_default()
}

fn numa(call: &mut Call<'_>) -> Outcome {
    let osds: Vec<OsdId> = call.state.osdmap.map.osd_ids().collect();
    let rows: Vec<Value> =
        osds.iter().map(|&osd| json!({ "osd": osd.0, "host": host_of(call, osd) })).collect();
    call.show(rows.into(), || {
        let mut table = Table::new(&[
            ("OSD", Left, Right),
            ("HOST", Left, Left),
            ("NETWORK", Left, Right),
            ("STORAGE", Left, Right),
            ("AFFINITY", Left, Right),
            ("CPUS", Left, Left),
        ]);
        for &osd in &osds {
            table.row([osd.to_string(), host_of(call, osd), "-".into(), "-".into(), "-".into(), "-".into()]);
        }
        table.render()
    })
}

/// Fails if placement groups would not serve without these OSDs.
pub(super) fn may_stop(call: &Call<'_>, osds: &[OsdId]) -> Result<(), Refusal> {
    let Stopping { stopped, inactive, .. } =
        stopping(call.state, &call.mon.services.pgs, &osds.iter().copied().collect(), call.now.wall);
    match stopped.len() + inactive.len() {
        0 => Ok(()),
        bad => {
            let text = format!(
                "unsafe to stop: {bad} PGs are already too degraded, would become too degraded or might become unavailable"
            );
            Err(refuse(errno::EBUSY, text))
        }
    }
}

fn ok_to_stop(call: &mut Call<'_>) -> Outcome {
    let osds: BTreeSet<OsdId> = asked(call, "ids")?.into_iter().collect();
    let Stopping { degraded, stopped, inactive } =
        stopping(call.state, &call.mon.services.pgs, &osds, call.now.wall);
    let bad = stopped.len() + inactive.len();
    let ok = bad == 0;
    let mut value = json!({
        "ok_to_stop": ok,
        "osds": osds.iter().map(|osd| osd.0).collect::<Vec<_>>(),
        "num_ok_pgs": degraded.len(),
        "num_not_ok_pgs": bad,
    });
    for (name, pgs) in [
        ("bad_already_inactive", inactive),
        ("bad_become_inactive", stopped),
        ("ok_become_degraded", degraded),
    ] {
        if !pgs.is_empty() {
            value[name] = json!(pgs.iter().map(PgId::to_string).collect::<Vec<_>>());
        }
    }
    let line = value.to_string();
    let answer = call.show(value, || line)?;
    if ok {
        return Ok(answer);
    }
    let text = format!("unsafe to stop osd(s) at this time ({bad} PGs are or would become offline)");
    Err(super::Refusal { output: answer.output, ..refuse(errno::EBUSY, text) })
}

fn status(call: &mut Call<'_>) -> Outcome {
    let map = &call.state.osdmap.map;
    let mut columns = vec![("ID", Left, Right), ("HOST", Left, Left)];
    let numbers = ["USED", "AVAIL", "WR OPS", "WR DATA", "RD OPS", "RD DATA"];
    columns.extend(numbers.map(|name| (name, Right, Right)));
    columns.push(("STATE", Left, Left));
    let mut table = Table::new(&columns);
    for osd in map.osd_ids() {
        let space = call.mon.services.pgs.osds.get(&osd).map(|stat| stat.report.space).unwrap_or_default();
        let rates = call.mon.services.pgs.osd_rates(osd);
        let mut row = vec![osd.to_string(), host_of(call, osd)];
        row.extend([space.total.saturating_sub(space.available), space.available].map(narrow_bytes));
        row.extend([narrow_count(rates.writes), narrow_bytes(rates.write_bytes)]);
        row.extend([narrow_count(rates.reads), narrow_bytes(rates.read_bytes)]);
        row.push(osdmap_dump::state_words(map.osds[osd.index()].state).join(","));
        table.row(row);
    }
    Answer::text(table.render())
}
