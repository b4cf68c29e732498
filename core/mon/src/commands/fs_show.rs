//! What file systems and metadata servers there are.

use super::{Call, Outcome, Row, refuse};
use crate::output::{addrvec, legacy_addr};
use nacre_base::errno;
use nacre_proto::maps::{CompatSet, FeatureSet, Filesystem, FsMap, MdsInfo, MdsMap, MdsState};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Words, help and code of each.
pub const COMMANDS: &[Row] = &[
    ("fs ls", "list the file systems", ls),
    ("fs get", "show a file system", get),
    ("fs dump", "show the file system map", dump),
    ("fs feature ls", "list the features that clients can be required to have", features),
    ("fs compat show", "show what a metadata server must understand to serve a file system", fs_compat),
    ("mds stat", "summarise the metadata servers", stat),
    ("mds compat show", "show what a metadata server must understand to serve a new file system", compat),
    ("mds versions", "count the metadata servers by version", versions),
    ("mds metadata", "show the metadata of the metadata servers", metadata),
    ("mds count-metadata", "count the metadata servers by a field of their metadata", count_metadata),
];

/// Features of clients by number, as far as Ceph 16.2 knows them.
pub const CLIENT_FEATURES: [&str; 19] = [
    "reserved",
    "reserved",
    "reserved",
    "reserved",
    "reserved",
    "jewel",
    "kraken",
    "luminous",
    "mimic",
    "reply_encoding",
    "reclaim_client",
    "lazy_caps_wanted",
    "multi_reconnect",
    "deleg_ino",
    "metric_collect",
    "alternate_name",
    "notify_session_state",
    "op_getvxattr",
    "32bits_retry_fwd",
];

/// What clients of a release have at least, as bytes from the lowest bit on.
pub fn features_of_release(name: &str) -> Option<Vec<u8>> {
    let releases =
        [("jewel", 5), ("kraken", 6), ("luminous", 7), ("mimic", 8), ("nautilus", 12), ("octopus", 13)];
    let (_, bit) = releases.iter().find(|(release, _)| *release == name)?;
    Some((1_u64 << bit).to_le_bytes().to_vec())
}

/// The features that clients must have, by number.
fn required_features(fs: &MdsMap) -> impl Iterator<Item = (usize, &'static str)> + '_ {
    let bytes = &fs.settings.required_client_features;
    let is_set = |bit: &usize| bytes.get(bit / 8).is_some_and(|byte| byte & (1 << (bit % 8)) != 0);
    (0..bytes.len() * 8)
        .filter(is_set)
        .map(|bit| (bit, CLIENT_FEATURES.get(bit).copied().unwrap_or("unknown")))
}

fn compat_json(compat: &CompatSet) -> Value {
    let set = |set: &FeatureSet| -> Value {
        let rows = set.names.iter().map(|(number, name)| (format!("feature_{number}"), json!(name)));
        Value::Object(rows.collect())
    };
    json!({
        "compat": set(&compat.compat),
        "ro_compat": set(&compat.ro_compat),
        "incompat": set(&compat.incompat),
    })
}

fn info_json(info: &MdsInfo) -> Value {
    json!({
        "gid": info.gid,
        "name": info.name,
        "rank": info.rank,
        "incarnation": info.incarnation,
        "state": info.state.to_string(),
        "state_seq": info.state_seq,
        "addr": legacy_addr(&info.addrs),
        "addrs": addrvec(&info.addrs),
        "join_fscid": info.join_fscid,
        "export_targets": info.export_targets,
        "features": info.features,
        "flags": info.flags,
        "compat": compat_json(&info.compat),
    })
}

fn mdsmap_json(fs: &MdsMap) -> Value {
    let (settings, ranks) = (&fs.settings, &fs.ranks);
    let required = required_features(fs).map(|(bit, name)| (format!("feature_{bit}"), json!(name)));
    let up = ranks.up.iter().map(|(rank, gid)| (format!("mds_{rank}"), json!(gid)));
    let infos = fs.infos.values().map(|info| (format!("gid_{}", info.gid), info_json(info)));
    json!({
        "epoch": fs.epoch.0,
        "flags": settings.flags,
        "ever_allowed_features": 0,
        "explicitly_allowed_features": 0,
        "created": fs.created.to_string(),
        "modified": fs.modified.to_string(),
        "tableserver": 0,
        "root": 0,
        "session_timeout": settings.session_timeout,
        "session_autoclose": settings.session_autoclose,
        "required_client_features": required.collect::<Map<String, Value>>(),
        "max_file_size": settings.max_file_size,
        "last_failure": 0,
        "last_failure_osd_epoch": fs.last_failure_osd_epoch.0,
        "compat": compat_json(&fs.compat),
        "max_mds": settings.max_mds,
        "in": ranks.in_,
        "up": up.collect::<Map<String, Value>>(),
        "failed": ranks.failed,
        "damaged": ranks.damaged,
        "stopped": ranks.stopped,
        "info": infos.collect::<Map<String, Value>>(),
        "data_pools": fs.data_pools.iter().map(|pool| pool.0).collect::<Vec<_>>(),
        "metadata_pool": fs.metadata_pool.map_or(-1, |pool| pool.0),
        "enabled": fs.enabled,
        "fs_name": fs.fs_name,
        "balancer": settings.balancer,
        "standby_count_wanted": settings.standby_count_wanted.max(0),
    })
}

fn filesystem_json(fs: &Filesystem) -> Value {
    json!({ "mdsmap": mdsmap_json(&fs.map), "id": fs.fscid })
}

fn fsmap_json(map: &FsMap) -> Value {
    let standbys = map.standbys.values().map(|info| {
        let mut row = info_json(info);
        row["epoch"] = json!(map.standby_epochs.get(&info.gid).map_or(0, |epoch| epoch.0));
        row
    });
    json!({
        "epoch": map.epoch.0,
        "default_fscid": map.default_fscid,
        "compat": compat_json(&map.default_compat),
        "feature_flags": {
            "enable_multiple": map.enable_multiple,
            "ever_enabled_multiple": map.ever_enabled_multiple,
        },
        "standbys": standbys.collect::<Vec<_>>(),
        "filesystems": map.filesystems.values().map(filesystem_json).collect::<Vec<_>>(),
    })
}

fn info_text(info: &MdsInfo) -> String {
    let mut out = format!(
        "[mds.{}{{{}:{}}} state {} seq {}",
        info.name, info.rank, info.gid, info.state, info.state_seq
    );
    if info.is_laggy() {
        out += &format!(" laggy since {}", info.laggy_since);
    }
    if !info.export_targets.is_empty() {
        let targets: Vec<String> = info.export_targets.iter().map(i32::to_string).collect();
        out += &format!(" export targets {}", targets.join(","));
    }
    if info.is_frozen() {
        out += " frozen";
    }
    if info.join_fscid >= 0 {
        out += &format!(" join_fscid={}", info.join_fscid);
    }
    let compat = &info.compat;
    let masks = [&compat.compat, &compat.ro_compat, &compat.incompat].map(FeatureSet::mask);
    let [c, r, i] = masks;
    out + &format!(
        " addr {} compat {{c=[{c:x}],r=[{r:x}],i=[{i:x}]}}]\n",
        crate::output::bracketed(&info.addrs)
    )
}

fn numbers<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(",")
}

fn filesystem_text(fs: &Filesystem) -> String {
    let map = &fs.map;
    let (settings, ranks) = (&map.settings, &map.ranks);
    let required = numbers(required_features(map).map(|(bit, name)| format!("{bit}={name}")));
    let up = numbers(ranks.up.iter().map(|(rank, gid)| format!("{rank}={gid}")));
    let inline = if settings.inline_data { "enabled" } else { "disabled" };
    let rows: [(&str, String); 25] = [
        ("fs_name", map.fs_name.clone()),
        ("epoch", map.epoch.to_string()),
        ("flags", format!("{:x}", settings.flags)),
        ("created", map.created.to_string()),
        ("modified", map.modified.to_string()),
        ("tableserver", "0".to_string()),
        ("root", "0".to_string()),
        ("session_timeout", settings.session_timeout.to_string()),
        ("session_autoclose", settings.session_autoclose.to_string()),
        ("max_file_size", settings.max_file_size.to_string()),
        ("required_client_features", format!("{{{required}}}")),
        ("last_failure", "0".to_string()),
        ("last_failure_osd_epoch", map.last_failure_osd_epoch.to_string()),
        ("compat", map.compat.to_string()),
        ("max_mds", settings.max_mds.to_string()),
        ("in", numbers(&ranks.in_)),
        ("up", format!("{{{up}}}")),
        ("failed", numbers(&ranks.failed)),
        ("damaged", numbers(&ranks.damaged)),
        ("stopped", numbers(&ranks.stopped)),
        ("data_pools", format!("[{}]", numbers(map.data_pools.iter().map(|pool| pool.0)))),
        ("metadata_pool", map.metadata_pool.map_or(-1, |pool| pool.0).to_string()),
        ("inline_data", inline.to_string()),
        ("balancer", settings.balancer.clone()),
        ("standby_count_wanted", settings.standby_count_wanted.max(0).to_string()),
    ];
    let mut out = format!("Filesystem '{}' ({})\n", map.fs_name, fs.fscid);
    rows.iter().for_each(|(key, value)| out += &format!("{key}\t{value}\n"));
    let mut infos: Vec<&MdsInfo> = map.infos.values().collect();
    infos.sort_by_key(|info| (info.rank, info.incarnation));
    infos.into_iter().for_each(|info| out += &info_text(info));
    out
}

fn fsmap_text(map: &FsMap) -> String {
    let mut out = format!(
        "e{}\nenable_multiple, ever_enabled_multiple: {},{}\ndefault compat: {}\nlegacy client fscid: {}\n \n",
        map.epoch,
        u8::from(map.enable_multiple),
        u8::from(map.ever_enabled_multiple),
        map.default_compat,
        map.default_fscid
    );
    if map.filesystems.is_empty() {
        out += "No filesystems configured\n";
    }
    for fs in map.filesystems.values() {
        out += &format!("{} \n \n", filesystem_text(fs));
    }
    if !map.standbys.is_empty() {
        out += "Standby daemons:\n \n";
        map.standbys.values().for_each(|info| out += &info_text(info));
    }
    out
}

fn ls(call: &mut Call<'_>) -> Outcome {
    let osdmap = &call.state.osdmap.map;
    let name = |pool: &nacre_base::PoolId| osdmap.pool_name(*pool).unwrap_or_default().to_string();
    let all: Vec<&MdsMap> = call.state.fsmap.map.filesystems.values().map(|fs| &fs.map).collect();
    let rows = all.iter().map(|fs| {
        json!({
            "name": fs.fs_name,
            "metadata_pool": fs.metadata_pool.as_ref().map(name),
            "metadata_pool_id": fs.metadata_pool.map_or(-1, |pool| pool.0),
            "data_pool_ids": fs.data_pools.iter().map(|pool| pool.0).collect::<Vec<_>>(),
            "data_pools": fs.data_pools.iter().map(name).collect::<Vec<_>>(),
        })
    });
    call.show(rows.collect(), || {
        let line = |fs: &&MdsMap| {
            let data: String = fs.data_pools.iter().map(|pool| name(pool) + " ").collect();
            let metadata = fs.metadata_pool.as_ref().map(name).unwrap_or_default();
            format!("name: {}, metadata pool: {metadata}, data pools: [{data}]\n", fs.fs_name)
        };
        match all.is_empty() {
            true => "No filesystems enabled\n".to_string(),
            false => all.iter().map(line).collect(),
        }
    })
}

fn get(call: &mut Call<'_>) -> Outcome {
    let name = call.args.text("fs_name")?;
    let map = call.state.fsmap.map.clone();
    let fs =
        map.by_name(&name).ok_or_else(|| refuse(errno::ENOENT, format!("filesystem '{name}' not found")))?;
    call.show(filesystem_json(fs), || filesystem_text(fs))
}

fn dump(call: &mut Call<'_>) -> Outcome {
    let map = call.state.fsmap.map.clone();
    let wanted = call.args.int_opt("epoch")?;
    if wanted.is_some_and(|epoch| epoch != i64::from(map.epoch.0)) {
        let text = format!("only the newest file system map is kept, of epoch {}", map.epoch);
        return Err(refuse(errno::ENOENT, text));
    }
    let mut answer = call.show(fsmap_json(&map), || fsmap_text(&map))?;
    answer.status = format!("dumped fsmap epoch {}", map.epoch);
    Ok(answer)
}

fn features(call: &mut Call<'_>) -> Outcome {
    let rows = CLIENT_FEATURES.iter().enumerate();
    let value: Value = rows.clone().map(|(index, name)| json!({ "index": index, "name": name })).collect();
    call.show(value, || rows.map(|(index, name)| format!("{index} {name}\n")).collect())
}

fn fs_compat(call: &mut Call<'_>) -> Outcome {
    let name = call.args.text("fs_name")?;
    let map = call.state.fsmap.map.clone();
    let fs =
        map.by_name(&name).ok_or_else(|| refuse(errno::ENOENT, format!("filesystem '{name}' not found")))?;
    call.show(compat_json(&fs.map.compat), || fs.map.compat.to_string())
}

fn compat(call: &mut Call<'_>) -> Outcome {
    let compat = call.state.fsmap.map.default_compat.clone();
    call.show(compat_json(&compat), || compat.to_string())
}

// ---- summaries ----

fn state_text(info: &MdsInfo) -> String {
    format!("{}{}", info.state, if info.is_laggy() { "(laggy or crashed)" } else { "" })
}

/// Servers with a rank, by file system and rank.
fn holders(map: &FsMap) -> impl Iterator<Item = (&Filesystem, &MdsInfo)> {
    map.filesystems.values().flat_map(|fs| {
        let holders = fs.map.ranks.up.values().filter_map(|gid| fs.map.infos.get(gid));
        holders.map(move |info| (fs, info))
    })
}

/// How many of the other servers are in which state.
fn others(map: &FsMap) -> BTreeMap<String, usize> {
    let mut states = BTreeMap::new();
    let followers = map.filesystems.values().flat_map(|fs| fs.map.infos.values());
    let followers = followers.filter(|info| info.state == MdsState::STANDBY_REPLAY);
    for info in followers.chain(map.standbys.values()) {
        *states.entry(state_text(info)).or_default() += 1;
    }
    states
}

/// As `status` has it.
pub fn summary_json(map: &FsMap) -> Value {
    let mut value = json!({ "epoch": map.epoch.0 });
    for fs in map.filesystems.values() {
        value["id"] = json!(fs.fscid);
        value["up"] = json!(fs.map.ranks.up.len());
        value["in"] = json!(fs.map.ranks.in_.len());
        value["max"] = json!(fs.map.settings.max_mds);
    }
    let by_rank = holders(map).map(|(fs, info)| {
        json!({
            "filesystem_id": fs.fscid,
            "rank": info.rank,
            "name": info.name,
            "status": state_text(info),
            "gid": info.gid,
        })
    });
    value["by_rank"] = by_rank.collect();
    let others = others(map);
    others.iter().for_each(|(state, n)| value[state] = json!(n));
    value["up:standby"] = json!(others.get("up:standby").copied().unwrap_or(0));
    let all = |of: fn(&MdsMap) -> usize| map.filesystems.values().map(|fs| of(&fs.map)).sum::<usize>();
    for (key, n) in
        [("failed", all(|fs| fs.ranks.failed.len())), ("damaged", all(|fs| fs.ranks.damaged.len()))]
    {
        if n > 0 {
            value[key] = json!(n);
        }
    }
    value
}

/// Beside `mds:` in `ceph -s`; none if there is no server and no file system.
pub fn daemons_text(map: &FsMap) -> Option<String> {
    if map.filesystems.is_empty() && map.roles.is_empty() {
        return None;
    }
    let all = map.filesystems.values().map(|fs| &fs.map.ranks);
    let (up, in_) = all.fold((0, 0), |(up, in_), ranks| (up + ranks.up.len(), in_ + ranks.in_.len()));
    let mut text = format!("{up}/{in_} daemons up");
    let failed: usize = map.filesystems.values().map(|fs| fs.map.ranks.failed.len()).sum();
    if failed > 0 {
        text += &format!(" ({failed} failed)");
    }
    let hot: usize = map.filesystems.values().map(|fs| fs.map.count(MdsState::STANDBY_REPLAY)).sum();
    for (n, what) in [(map.standbys.len(), "standby"), (hot, "hot standby")] {
        if n > 0 {
            text += &format!(", {n} {what}");
        }
    }
    Some(text)
}

/// Beside `volumes:` in `ceph -s`.
pub fn volumes_text(map: &FsMap) -> Option<String> {
    if map.filesystems.is_empty() {
        return None;
    }
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for fs in map.filesystems.values().map(|fs| &fs.map) {
        let kind = if !fs.ranks.damaged.is_empty() {
            "damaged"
        } else if !fs.ranks.failed.is_empty() {
            "failed"
        } else if fs.is_degraded() {
            "recovering"
        } else {
            "healthy"
        };
        *counts.entry(kind).or_default() += 1;
    }
    let count = |kind: &str| counts.get(kind).copied().unwrap_or(0);
    let mut text = format!("{}/{} healthy", count("healthy"), map.filesystems.len());
    for kind in ["recovering", "failed"] {
        if count(kind) > 0 {
            text += &format!(", {} {kind}", count(kind));
        }
    }
    if count("damaged") > 0 {
        text += &format!("; {} damaged", count("damaged"));
    }
    Some(text)
}

fn stat(call: &mut Call<'_>) -> Outcome {
    let map = call.state.fsmap.map.clone();
    let value = json!({
        "fsmap": fsmap_json(&map),
        "mdsmap_first_committed": map.epoch.0,
        "mdsmap_last_committed": map.epoch.0,
    });
    call.show(value, || stat_text(&map))
}

fn stat_text(map: &FsMap) -> String {
    let each = map.filesystems.values().map(|fs| {
        let (up, in_) = (fs.map.ranks.up.len(), fs.map.ranks.in_.len());
        let of = if up == in_ { String::new() } else { format!("/{in_}") };
        format!("{}:{up}{of}", fs.map.fs_name)
    });
    let mut text = each.collect::<Vec<_>>().join(" ");
    let several = map.filesystems.len() > 1;
    let by_rank: Vec<String> = holders(map)
        .map(|(fs, info)| {
            let of = if several { format!("{}:", fs.map.fs_name) } else { String::new() };
            format!("{of}{}={}={}", info.rank, info.name, state_text(info))
        })
        .collect();
    if !by_rank.is_empty() {
        text += &format!(" {{{}}}", by_rank.join(","));
    }
    others(map).iter().for_each(|(state, n)| text += &format!(" {n} {state}"));
    let all = |of: fn(&MdsMap) -> usize| map.filesystems.values().map(|fs| of(&fs.map)).sum::<usize>();
    for (n, what) in
        [(all(|fs| fs.ranks.failed.len()), "failed"), (all(|fs| fs.ranks.damaged.len()), "damaged")]
    {
        if n > 0 {
            text += &format!(", {n} {what}");
        }
    }
    text
}

// ---- what servers say of themselves ----

/// The metadata servers of `ceph node ls`.
pub fn servers_by_host(call: &Call<'_>) -> BTreeMap<String, Vec<String>> {
    let mut hosts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for info in call.state.fsmap.map.infos() {
        let host = call.state.fsmap.metadata.get(&info.gid).and_then(|said| said.get("hostname"));
        hosts.entry(host.cloned().unwrap_or_default()).or_default().push(info.name.clone());
    }
    hosts
}

fn metadata_of(call: &Call<'_>, info: &MdsInfo) -> Map<String, Value> {
    let said = call.state.fsmap.metadata.get(&info.gid).into_iter().flatten();
    let name = [("name".to_string(), json!(info.name))];
    name.into_iter().chain(said.map(|(key, value)| (key.clone(), json!(value)))).collect()
}

fn metadata(call: &mut Call<'_>) -> Outcome {
    let map = call.state.fsmap.map.clone();
    let Some(who) = call.args.text_opt("who") else {
        let rows: Vec<Value> = map.infos().map(|info| metadata_of(call, info).into()).collect();
        return call.show_json(rows.into());
    };
    let by_gid = |info: &&MdsInfo| who.parse() == Ok(info.gid);
    let found = map.infos().find(by_gid).or_else(|| map.infos().find(|info| info.name == who));
    let absent = || refuse(errno::EINVAL, format!("MDS named '{who}' does not exist, or is not up"));
    let info = found.ok_or_else(absent)?;
    let mut said = metadata_of(call, info);
    said.shift_remove("name");
    call.show_json(said.into())
}

fn count_values(values: impl Iterator<Item = Option<String>>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for value in values {
        *counts.entry(value.unwrap_or_else(|| "unknown".to_string())).or_default() += 1;
    }
    counts
}

/// How many servers run which version.
pub fn server_versions(call: &Call<'_>) -> BTreeMap<String, usize> {
    count_values(call.state.fsmap.map.infos().map(|info| {
        let said = call.state.fsmap.metadata.get(&info.gid);
        said.and_then(|said| said.get("ceph_version")).cloned()
    }))
}

fn versions(call: &mut Call<'_>) -> Outcome {
    let versions = server_versions(call);
    call.show_json(json!(versions))
}

fn count_metadata(call: &mut Call<'_>) -> Outcome {
    let property = call.args.text("property")?;
    let counts = count_values(call.state.fsmap.map.infos().map(|info| {
        let said = call.state.fsmap.metadata.get(&info.gid);
        said.and_then(|said| said.get(&property)).cloned()
    }));
    call.show_json(json!(counts))
}

/// The file system of that name, or a refusal in Ceph's words.
pub fn named<'a>(call: &'a Call<'_>, name: &str) -> Result<&'a Filesystem, super::Refusal> {
    let found = call.pending.fsmap(call.state).by_name(name);
    found.ok_or_else(|| refuse(errno::ENOENT, format!("Filesystem not found: '{name}'")))
}
