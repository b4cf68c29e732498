//! Monitors, the manager and the cluster log.

use super::cluster::election_epoch;
use super::{Answer, Call, Outcome, Refusal, Row, ciphers, refuse};
use crate::mon::is_majority;
use crate::output::{addrvec, bracketed, legacy_addr, uuid};
use crate::services::log::log_level;
use crate::services::mgr::modules::ALWAYS_ON;
use crate::services::monitors::Metadata;
use crate::services::monmap::{MonChange, map_text};
use nacre_base::errno;
use nacre_proto::maps::{MgrMap, MgrModule, MonInfo, MonMap, release};
use nacre_proto::messages::{LogEntry, LogLevel};
use nacre_proto::types::{AddrVec, AuthName, EntityAddr, EntityName};
use nacre_wire::to_vec;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

pub const COMMANDS: &[Row] = &[
    ("mon dump", "show the monitor map", dump),
    ("mon stat", "summarise the monitors in one line", stat),
    ("mon getmap", "get the encoded monitor map", getmap),
    ("mon versions", "count the monitors by version", versions),
    ("mon metadata", "show the metadata of monitors", metadata),
    ("mon feature ls", "show the features of the monitors", feature_ls),
    ("mon ok-to-stop", "check whether monitors can stop without losing quorum", ok_to_stop),
    ("mon add", "announce a monitor with a name and an address: it joins when it runs", add),
    ("mon rm", "remove a monitor from the cluster", rm),
    ("mon remove", "remove a monitor from the cluster", rm),
    ("mon enable-msgr2", "enable msgr v2 on all monitors: it is always enabled", enable_msgr2),
    ("mon ok-to-rm", "check whether a monitor can be removed without losing quorum", ok_to_rm),
    ("mon ok-to-add-offline", "check whether a monitor can be added before it runs", ok_to_add),
    ("mon count-metadata", "count the monitors by a field of their metadata", count_mons),
    ("osd count-metadata", "count the OSDs by a field of their metadata", count_osds),
    ("quorum_status", "show the monitors of the quorum", quorum_status),
    ("mgr dump", "show the manager map", mgr_dump),
    ("mgr stat", "summarise the manager", mgr_stat),
    ("mgr module enable", "enable a manager module: the existing ones are always on", mgr_module_enable),
    ("mgr module disable", "disable a manager module", mgr_module_disable),
    ("mgr module ls", "list the manager's modules", mgr_modules),
    ("mgr services", "show the services of the manager and their addresses", mgr_services),
    ("mgr versions", "show the version of the manager", mgr_versions),
    ("mgr count-metadata", "count the managers by a field of their metadata", count_mgrs),
    ("mgr metadata", "show the metadata of the manager", mgr_metadata),
    ("log", "write a line into the cluster log", log),
    ("log last", "show the last lines of the cluster log", log_last),
];

/// No cluster needs more, and each waits for a majority of them.
const MONS_MAX: usize = 31;

const FEATURES: [&str; 8] =
    ["kraken", "luminous", "mimic", "osdmap-prune", "nautilus", "octopus", "pacific", "elector-pinging"];

fn features(bits: u64) -> Vec<&'static str> {
    FEATURES.iter().enumerate().filter(|(bit, _)| bits & (1 << bit) != 0).map(|(_, name)| *name).collect()
}

/// Times in this one map end in Z.
fn zulu(at: nacre_base::Utime) -> String {
    at.to_string().replace("+0000", "Z")
}

/// `legacy_addr` names a port of msgr v1 in Ceph; ours is the only one there is.
fn map_json(map: &MonMap) -> Value {
    let mons: Vec<Value> = map
        .by_rank()
        .enumerate()
        .map(|(rank, mon)| {
            json!({
                "rank": rank,
                "name": mon.name,
                "public_addrs": addrvec(&mon.public_addrs),
                "addr": legacy_addr(&mon.public_addrs),
                "public_addr": legacy_addr(&mon.public_addrs),
                "priority": mon.priority,
                "weight": mon.weight,
                "crush_location": "{}",
            })
        })
        .collect();
    let mut shown = json!({
        "epoch": map.epoch.0,
        "fsid": uuid(&map.fsid),
        "modified": zulu(map.last_changed),
        "created": zulu(map.created),
        "min_mon_release": map.min_mon_release,
        "min_mon_release_name": release::name(map.min_mon_release),
        "election_strategy": map.election_strategy,
        "disallowed_leaders: ": "",
        "stretch_mode": map.stretch_mode,
        "tiebreaker_mon": map.tiebreaker,
        "removed_ranks: ": "",
        "features": {
            "persistent": features(map.persistent_features),
            "optional": features(map.optional_features),
        },
        "mons": mons,
    });
    ciphers::show(&map.ciphers, shown.as_object_mut().expect("made above"));
    shown
}

pub fn monmap_json(call: &Call<'_>) -> Value {
    map_json(&call.state.monmap.map)
}

fn dump(call: &mut Call<'_>) -> Outcome {
    let map = &call.state.monmap.map;
    if let Some(epoch) =
        call.args.int_opt("epoch")?.filter(|epoch| *epoch != 0 && *epoch != i64::from(map.epoch.0))
    {
        return Err(refuse(
            errno::ENOENT,
            format!("only epoch {} of the monitor map is kept, not {epoch}", map.epoch),
        ));
    }
    let mut value = map_json(map);
    value["quorum"] = json!(call.mon.quorum());
    let mut answer = call.show(value, || {
        let mut out = format!(
            "epoch {}\nfsid {}\nlast_changed {}\ncreated {}\nmin_mon_release {} ({})\nelection_strategy: {}\n",
            map.epoch,
            uuid(&map.fsid),
            map.last_changed,
            map.created,
            map.min_mon_release,
            release::name(map.min_mon_release).unwrap_or("unknown"),
            map.election_strategy,
        );
        for (rank, mon) in map.by_rank().enumerate() {
            out += &format!("{rank}: {} mon.{}\n", mon.public_addrs, mon.name);
        }
        out
    })?;
    answer.status = format!("dumped monmap epoch {}", map.epoch);
    Ok(answer)
}

fn quorum(call: &Call<'_>) -> Vec<(u64, String)> {
    let ranks = &call.state.monmap.map.ranks;
    call.mon.quorum().into_iter().filter_map(|r| Some((r, ranks.get(r as usize)?.clone()))).collect()
}

fn leader(call: &Call<'_>) -> (u64, String) {
    let rank = call.mon.leader_rank().unwrap_or(0);
    (rank, call.state.monmap.map.ranks.get(rank as usize).cloned().unwrap_or_default())
}

fn stat(call: &mut Call<'_>) -> Outcome {
    let map = &call.state.monmap.map;
    let quorum = quorum(call);
    let (leader_rank, leader) = leader(call);
    let value = json!({
        "epoch": map.epoch.0,
        "min_mon_release_name": release::name(map.min_mon_release),
        "num_mons": map.ranks.len(),
        "leader": leader,
        "quorum": quorum.iter().map(|(rank, name)| json!({ "rank": rank, "name": name })).collect::<Vec<_>>(),
    });
    call.show(value, || {
        let ranks: Vec<String> = quorum.iter().map(|(rank, _)| rank.to_string()).collect();
        let names: Vec<&str> = quorum.iter().map(|(_, name)| &**name).collect();
        format!(
            "{}, election epoch {}, leader {leader_rank} {leader}, quorum {} {}",
            map_text(map).trim_start_matches("monmap "),
            election_epoch(call.mon),
            ranks.join(","),
            names.join(","),
        )
    })
}

fn getmap(call: &mut Call<'_>) -> Outcome {
    let map = &call.state.monmap.map;
    if let Some(epoch) = call.args.int_opt("epoch")?.filter(|epoch| *epoch != i64::from(map.epoch.0)) {
        return Err(refuse(errno::ENOENT, format!("there is no map for epoch {epoch}")));
    }
    Ok(Answer { status: format!("got monmap epoch {}", map.epoch), output: to_vec(map) })
}

fn versions(call: &mut Call<'_>) -> Outcome {
    call.show_json(json!(quorum_versions(call)))
}

/// What is known of what a monitor runs on.
fn metadata_of<'a>(call: &'a Call<'_>, name: &str) -> Option<&'a Metadata> {
    call.state.mon_metadata.of.get(&call.state.monmap.member(name)?)
}

/// How many of the monitors with these names run which version.
pub fn versions_of<'n>(call: &Call<'_>, names: impl IntoIterator<Item = &'n str>) -> BTreeMap<String, usize> {
    let mut versions = BTreeMap::new();
    for name in names {
        let said = metadata_of(call, name).and_then(|metadata| metadata.get("ceph_version"));
        *versions.entry(said.map_or("unknown", |version| version).to_string()).or_default() += 1;
    }
    versions
}

/// The monitors of the quorum.
pub fn quorum_versions(call: &Call<'_>) -> BTreeMap<String, usize> {
    versions_of(call, here(call).iter().map(String::as_str))
}

/// The managers: the active one and those that take over from it.
pub fn manager_versions(call: &Call<'_>) -> BTreeMap<String, usize> {
    versions_of(call, managers(call))
}

fn managers<'a>(call: &'a Call<'_>) -> impl Iterator<Item = &'a str> {
    let map = &call.state.mgrmap.map;
    let standbys = map.standbys.values().map(|standby| &*standby.name);
    [&*map.active_name].into_iter().filter(|name| !name.is_empty()).chain(standbys)
}

/// The names of monitors or managers by the hosts that they run on.
pub fn by_host<'n>(
    call: &Call<'_>,
    names: impl IntoIterator<Item = &'n str>,
) -> BTreeMap<String, Vec<&'n str>> {
    let mut hosts: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for name in names {
        let host = metadata_of(call, name).and_then(|metadata| metadata.get("hostname"));
        hosts.entry(host.cloned().unwrap_or_default()).or_default().push(name);
    }
    hosts
}

/// The monitors and managers of `ceph node ls`.
pub fn nodes(call: &Call<'_>) -> (Value, Value) {
    let mons = call.state.monmap.map.ranks.iter().map(String::as_str);
    (json!(by_host(call, mons)), json!(by_host(call, managers(call))))
}

fn metadata_rows(call: &Call<'_>) -> Vec<Map<String, Value>> {
    let row = |mon: &MonInfo| {
        let mut row = Map::new();
        row.insert("name".to_string(), json!(mon.name));
        row.insert("addrs".to_string(), json!(bracketed(&mon.public_addrs)));
        let said = metadata_of(call, &mon.name).into_iter().flatten();
        row.extend(said.map(|(key, value)| (key.clone(), json!(value))));
        row
    };
    call.state.monmap.map.by_rank().map(row).collect()
}

fn metadata(call: &mut Call<'_>) -> Outcome {
    let rows = metadata_rows(call);
    match call.args.text_opt("id") {
        None => call.show_json(json!(rows)),
        Some(id) => match rows.into_iter().find(|row| row["name"] == json!(id)) {
            Some(mut row) => {
                row.shift_remove("name");
                call.show_json(row.into())
            }
            None => Err(refuse(errno::ENOENT, "requested mon not found")),
        },
    }
}

fn here(call: &Call<'_>) -> Vec<String> {
    let ranks = &call.state.monmap.map.ranks;
    call.mon.quorum().iter().filter_map(|rank| ranks.get(*rank as usize).cloned()).collect()
}

fn ok_to_stop(call: &mut Call<'_>) -> Outcome {
    let ids = call.args.list("ids");
    if ids.is_empty() {
        return Err(refuse(errno::EINVAL, "must specify one or more mon ids"));
    }
    let left: Vec<String> = here(call).into_iter().filter(|name| !ids.contains(name)).collect();
    let what = format!("({}) after stopping", left.join(","));
    match is_majority(left.len(), call.mon.voters().len()) {
        true => Answer::said(format!("quorum should be preserved {what} [{}]", ids.join(","))),
        false => {
            let text = format!("not enough monitors would be available {what} mons [{}]", ids.join(","));
            Err(refuse(errno::EBUSY, text))
        }
    }
}

/// The default port of monitors, and that of msgr v1.
const MON_PORTS: (u16, u16) = (3300, 6789);

fn mon_addr(text: &str) -> Result<AddrVec, Refusal> {
    let bad =
        |why: &str| refuse(errno::EINVAL, format!("{text} is {why}: give an address such as 10.0.0.4:3300"));
    let plain = text.strip_prefix("[v2:").and_then(|text| text.strip_suffix(']'));
    let plain = plain.or(text.strip_prefix("v2:")).unwrap_or(text);
    let plain = plain.strip_suffix("/0").unwrap_or(plain);
    let sock: SocketAddr = match (plain.parse(), plain.parse::<IpAddr>()) {
        (Ok(sock), _) => sock,
        (_, Ok(ip)) => SocketAddr::from((ip, 0)),
        _ => return Err(bad("not an address of msgr v2")),
    };
    let port = match sock.port() {
        0 => MON_PORTS.0,
        port if port == MON_PORTS.1 => {
            return Err(bad("on the port of msgr v1, which Nacre does not support"));
        }
        port => port,
    };
    Ok(AddrVec::one(EntityAddr::msgr2(SocketAddr::from((sock.ip(), port)), 0)))
}

pub(super) fn one_at_a_time(call: &Call<'_>) -> Result<(), Refusal> {
    match call.pending.batch.monmap {
        None => Ok(()),
        Some(_) => Err(refuse(errno::EAGAIN, "the monitor map is being changed: try again")),
    }
}

fn add(call: &mut Call<'_>) -> Outcome {
    let (name, addrs) = (call.args.text("name")?, mon_addr(&call.args.text("addr")?)?);
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) {
        return Err(refuse(errno::EINVAL, format!("'{name}' is not a valid monitor name")));
    }
    if !call.args.list("location").is_empty() {
        return Err(refuse(errno::EOPNOTSUPP, "monitors have no CRUSH location in Nacre: omit the location"));
    }
    let at = bracketed(&addrs);
    let other = call.state.monmap.map.by_rank().find(|mon| mon.name == name || mon.public_addrs == addrs);
    match other {
        Some(mon) if mon.name == name && mon.public_addrs == addrs => {
            return Answer::said(format!("mon.{name} at {at} already exists"));
        }
        Some(mon) => {
            let there = bracketed(&mon.public_addrs);
            return Err(refuse(errno::EEXIST, format!("mon.{} at {there} already exists", mon.name)));
        }
        None => {}
    }
    if call.state.monmap.map.ranks.len() >= MONS_MAX {
        return Err(refuse(errno::E2BIG, format!("the maximum is {MONS_MAX} monitors")));
    }
    one_at_a_time(call)?;
    call.pending.batch.monmap = Some(MonChange::Expect { name: name.clone(), addrs });
    Answer::said(format!("adding mon.{name} at {at}: it joins when it runs"))
}

fn rm(call: &mut Call<'_>) -> Outcome {
    remove(call, &call.args.text("name")?)
}

/// Removes a monitor, or lets another one lead first.
pub(super) fn remove(call: &mut Call<'_>, name: &str) -> Outcome {
    let name = name.to_string();
    let Some(mon) = call.state.monmap.map.mons.get(&name) else {
        // It may be added by an earlier command of this batch.
        one_at_a_time(call)?;
        return Answer::said(format!("mon.{name} does not exist or has already been removed"));
    };
    let left = call.state.monmap.map.ranks.len() - 1;
    let said =
        format!("removing mon.{name} at {}, there will be {left} monitors", bracketed(&mon.public_addrs));
    let member = call.state.monmap.member(&name);
    if let Some(member) = member {
        if call.mon.voters() == [member] {
            let text = format!("refusing removal of mon.{name}: it is the last monitor");
            return Err(refuse(errno::EINVAL, text));
        }
        if !call.mon.may_remove(member) {
            let text = format!(
                "without mon.{name} the other monitors have no majority that is up: start them, or remove \
                 those that are lost"
            );
            return Err(refuse(errno::EBUSY, text));
        }
        // Who leads is asked to let another one lead, which removes it.
        if let Some(successor) = call.mon.successor(member) {
            call.pending.hand_over = Some(successor);
            return Answer::said(said);
        }
    }
    one_at_a_time(call)?;
    call.pending.batch.monmap = Some(MonChange::Remove { name, member });
    Answer::said(said)
}

/// Installers say this to every cluster.
fn enable_msgr2(_: &mut Call<'_>) -> Outcome {
    Answer::said("")
}

fn ok_to_rm(call: &mut Call<'_>) -> Outcome {
    let id = call.args.text("id")?;
    if !call.state.monmap.map.ranks.contains(&id) {
        return Answer::said(format!("mon.{id} does not exist"));
    }
    let left: Vec<String> = here(call).into_iter().filter(|name| *name != id).collect();
    if !is_majority(left.len(), call.mon.voters().len().saturating_sub(1)) {
        return Err(refuse(errno::EBUSY, format!("removing mon.{id} would break quorum")));
    }
    Answer::said(format!("safe to remove mon.{id} (quorum would be {})", left.join(",")))
}

fn ok_to_add(call: &mut Call<'_>) -> Outcome {
    if !is_majority(here(call).len(), call.mon.voters().len() + 1) {
        let text = "adding a monitor may break quorum (until that monitor starts)";
        return Err(refuse(errno::EBUSY, text));
    }
    Answer::said("adding another mon that is not yet online will not break quorum")
}

/// How often each value occurs.
fn count(values: impl Iterator<Item = String>) -> Value {
    let mut counts: std::collections::BTreeMap<String, u64> = std::collections::BTreeMap::new();
    values.for_each(|value| *counts.entry(value).or_default() += 1);
    json!(counts)
}

fn count_osds(call: &mut Call<'_>) -> Outcome {
    let property = call.args.text("property")?;
    call.layout = call.layout.clone().with_root(property.clone());
    let of = |metadata: &std::collections::BTreeMap<String, String>| {
        metadata.get(&property).cloned().unwrap_or_else(|| "unknown".to_string())
    };
    let map = &call.state.osdmap.map;
    let known = call.state.osdmap.metadata.iter().filter(|(osd, _)| map.exists(**osd));
    call.show_json(count(known.map(|(_, metadata)| of(metadata))))
}

fn count_mons(call: &mut Call<'_>) -> Outcome {
    let property = call.args.text("property")?;
    call.layout = call.layout.clone().with_root(property.clone());
    let rows = metadata_rows(call);
    let text = |row: &Map<String, Value>| {
        row.get(&property).and_then(Value::as_str).unwrap_or("unknown").to_string()
    };
    call.show_json(count(rows.iter().map(text)))
}

fn feature_ls(call: &mut Call<'_>) -> Outcome {
    let map = &call.state.monmap.map;
    let with_value = call.args.text_opt("with_value").is_some();
    let shown = |bits: u64| -> Vec<String> {
        let bit = |name: &str| FEATURES.iter().position(|feature| *feature == name).map_or(0, |at| 1 << at);
        let number = |name: &str| if with_value { format!("({})", bit(name)) } else { String::new() };
        features(bits).into_iter().map(|name| format!("{name}{}", number(name))).collect()
    };
    let (all, persistent) = (shown(u64::MAX), shown(map.persistent_features));
    let value = json!({
        "all": { "supported": all, "persistent": all },
        "monmap": { "persistent": persistent, "optional": [], "required": persistent },
    });
    call.show(value, || {
        let (all, have) = (all.join(","), persistent.join(","));
        format!(
            "all features\n\tsupported: [{all}]\n\tpersistent: [{all}]\non current monmap (epoch {})\n\tpersistent: [{have}]\n\trequired: [{have}]",
            map.epoch
        )
    })
}

/// All of Pacific's feature bits, as the messenger announces them.
pub const PACIFIC_FEATURES: u64 = 0x3f01_cfbd_fffd_ffff;

fn quorum_status(call: &mut Call<'_>) -> Outcome {
    let value = quorum_json(call);
    let text = value.to_string();
    call.show(value, || text + "\n")
}

pub(super) fn quorum_json(call: &Call<'_>) -> Value {
    let quorum = quorum(call);
    let age = call.mon.leading.as_ref().map_or(0, |leading| call.now.mono.since(leading.since).as_secs());
    json!({
        "election_epoch": election_epoch(call.mon),
        "quorum": quorum.iter().map(|(rank, _)| rank).collect::<Vec<_>>(),
        "quorum_names": quorum.iter().map(|(_, name)| name).collect::<Vec<_>>(),
        "quorum_leader_name": leader(call).1,
        "quorum_age": age,
        "features": {
            "quorum_con": PACIFIC_FEATURES.to_string(),
            "quorum_mon": features(call.state.monmap.map.persistent_features),
        },
        "monmap": map_json(&call.state.monmap.map),
    })
}

// ---- the manager's role of this process ----

fn modules_json(modules: &[MgrModule]) -> Value {
    let module = |module: &MgrModule| {
        json!({
            "name": module.name,
            "can_run": module.can_run,
            "error_string": module.error,
            "module_options": {},
        })
    };
    modules.iter().map(module).collect()
}

fn mgr_dump(call: &mut Call<'_>) -> Outcome {
    let map = &call.state.mgrmap.map;
    let standbys = map.standbys.values().map(|standby| {
        json!({
            "gid": standby.gid,
            "name": standby.name,
            "mgr_features": standby.features,
            "available_modules": modules_json(&standby.available_modules),
        })
    });
    let always_on = map.always_on_modules.iter().map(|(number, modules)| {
        let name = release::name(*number as u8).map_or_else(|| number.to_string(), String::from);
        (name, json!(modules))
    });
    call.show_json(json!({
        "epoch": map.epoch.0,
        "active_gid": map.active_gid,
        "active_name": map.active_name,
        "active_addrs": addrvec(&map.active_addrs),
        "active_addr": legacy_addr(&map.active_addrs),
        "active_change": map.active_change.to_string(),
        "active_mgr_features": map.active_mgr_features,
        "available": map.available,
        "standbys": standbys.collect::<Vec<_>>(),
        "modules": map.modules,
        "available_modules": modules_json(&map.available_modules),
        "services": map.services,
        "always_on_modules": Value::Object(always_on.collect()),
        "last_failure_osd_epoch": map.last_failure_osd_epoch.0,
        "active_clients": [],
    }))
}

fn mgr_stat(call: &mut Call<'_>) -> Outcome {
    let map = &call.state.mgrmap.map;
    call.show_json(json!({
        "epoch": map.epoch.0,
        "available": map.available,
        "active_name": map.active_name,
        "num_standby": map.standbys.len(),
    }))
}

fn mgr_modules(call: &mut Call<'_>) -> Outcome {
    let enabled = &call.state.mgrmap.map.modules;
    call.show_json(
        json!({ "always_on_modules": ALWAYS_ON, "enabled_modules": enabled, "disabled_modules": [] }),
    )
}
fn mgr_services(call: &mut Call<'_>) -> Outcome {
    call.show_json(json!(call.state.mgrmap.map.services))
}
/// Modules that may be enabled by name though no manager has them.
const MODULES_MAX: usize = 64;
const MODULE_NAME_MAX: usize = 64;

fn mgr_module_enable(call: &mut Call<'_>) -> Outcome {
    let module = call.args.text("module")?;
    if ALWAYS_ON.contains(&&*module) {
        return Answer::said(format!("module '{module}' is already enabled (always-on)"));
    }
    if wanted_modules(call).contains(&module) {
        return Answer::said(format!("module '{module}' is already enabled"));
    }
    if !call.args.flag("force") && call.args.text_opt("force").as_deref() != Some("--force") {
        let text =
            format!("all mgr daemons do not support module '{module}', pass --force to force enablement");
        return Err(refuse(errno::ENOENT, text));
    }
    // They do nothing here, and every client gets their names with the map.
    if module.len() > MODULE_NAME_MAX || wanted_modules(call).len() >= MODULES_MAX {
        return Err(refuse(
            errno::EINVAL,
            format!("at most {MODULES_MAX} names of {MODULE_NAME_MAX} letters"),
        ));
    }
    edit_modules(call, |modules| modules.insert(module));
    Answer::said("")
}

/// The modules that were enabled by name, as earlier commands of this batch leave them.
fn wanted_modules<'a>(call: &'a Call<'_>) -> &'a BTreeSet<String> {
    &call.pending.batch.mgrmap.as_ref().unwrap_or(&call.state.mgrmap.map).modules
}

fn edit_modules(call: &mut Call<'_>, edit: impl FnOnce(&mut BTreeSet<String>) -> bool) {
    let map = &call.state.mgrmap.map;
    let pending =
        call.pending.batch.mgrmap.get_or_insert_with(|| MgrMap { epoch: map.epoch.next(), ..map.clone() });
    edit(&mut pending.modules);
}

fn mgr_module_disable(call: &mut Call<'_>) -> Outcome {
    let module = call.args.text("module")?;
    if ALWAYS_ON.contains(&&*module) {
        let mut text = format!("module '{module}' cannot be disabled (always-on)");
        if module == "prometheus" {
            text += "; `ceph config set mgr mgr/prometheus/server_port 0` stops serving metrics";
        }
        return Err(refuse(errno::EINVAL, text));
    }
    if !wanted_modules(call).contains(&module) {
        return Answer::said(format!("module '{module}' is already disabled"));
    }
    edit_modules(call, |modules| modules.remove(&module));
    Answer::said("")
}

fn mgr_versions(call: &mut Call<'_>) -> Outcome {
    call.show_json(json!(manager_versions(call)))
}
fn mgr_metadata(call: &mut Call<'_>) -> Outcome {
    let rows = manager_rows(call);
    match call.args.text_opt("who") {
        None => call.show_json(json!(rows)),
        Some(who) => match rows.into_iter().find(|row| row["name"] == json!(who)) {
            Some(row) => call.show_json(row.into()),
            None => Err(refuse(errno::ENOENT, format!("mgr.{who} does not exist"))),
        },
    }
}

fn count_mgrs(call: &mut Call<'_>) -> Outcome {
    let property = call.args.text("property")?;
    call.layout = call.layout.clone().with_root(property.clone());
    let rows = manager_rows(call);
    let text = |row: &Map<String, Value>| row.get(&property)?.as_str().map(str::to_string);
    call.show_json(count(rows.iter().filter_map(text)))
}

/// What managers run on: the processes of monitors. A standby has an address when it is active.
fn manager_rows(call: &Call<'_>) -> Vec<Map<String, Value>> {
    let map = &call.state.mgrmap.map;
    let row = |name: &str| {
        let none = AddrVec::default();
        let addrs = if name == map.active_name { &map.active_addrs } else { &none };
        let mut row = Map::new();
        row.insert("name".to_string(), json!(name));
        row.insert("addr".to_string(), json!(legacy_addr(addrs)));
        row.insert("addrs".to_string(), json!(addrs.to_string()));
        let said = metadata_of(call, name).into_iter().flatten();
        let said = said.filter(|(key, _)| !key.starts_with("device") && *key != "compression_algorithms");
        row.extend(said.map(|(key, value)| (key.clone(), json!(value))));
        row
    };
    managers(call).map(row).collect()
}

// ---- the cluster log ----

fn log(call: &mut Call<'_>) -> Outcome {
    let words = call.args.list("logtext");
    let entry = LogEntry {
        name: call.from.auth_name.clone().unwrap_or_else(|| AuthName::new(call.from.kind, "")),
        rank: EntityName::new(call.from.kind, call.from.num),
        addrs: call.from.addrs.clone(),
        stamp: call.now.wall,
        seq: 0,
        level: call.args.text_opt("level").and_then(|name| log_level(&name)).unwrap_or(LogLevel::Info),
        text: words.join(" "),
        channel: "cluster".to_string(),
    };
    call.pending.batch.log.push(entry);
    Answer::said("")
}

/// As in a line of the log.
fn tag(level: LogLevel) -> &'static str {
    match level {
        LogLevel::Debug => "[DBG]",
        LogLevel::Info => "[INF]",
        LogLevel::Security => "[SEC]",
        LogLevel::Warn => "[WRN]",
        LogLevel::Error => "[ERR]",
    }
}

fn log_last(call: &mut Call<'_>) -> Outcome {
    let num = call.args.int_opt("num")?.unwrap_or(20).clamp(0, 10_000) as usize;
    let level = match call.args.text_opt("level") {
        None => LogLevel::Info,
        Some(name) => {
            log_level(&name).ok_or_else(|| refuse(errno::EINVAL, format!("unknown log level '{name}'")))?
        }
    };
    let channel = call.args.text_opt("channel").unwrap_or_else(|| "cluster".to_string());
    let fits = |line: &&LogEntry| line.level >= level && (channel == "*" || line.channel == channel);
    let all = call.state.log.lines.iter().map(|(_, line)| line);
    let mut lines: Vec<&LogEntry> = all.rev().filter(fits).take(num).collect();
    lines.reverse();
    let rows: Vec<Value> = lines
        .iter()
        .map(|line| {
            json!({
                "name": line.name.to_string(),
                "rank": line.rank.to_string(),
                "addrs": addrvec(&line.addrs),
                "stamp": line.stamp.to_string(),
                "seq": line.seq,
                "channel": line.channel,
                "priority": tag(line.level),
                "message": line.text,
            })
        })
        .collect();
    call.show(rows.into(), || {
        lines
            .iter()
            .map(|l| {
                format!(
                    "{} {} ({}) {} : {} {} {}\n",
                    l.stamp,
                    l.name,
                    l.rank,
                    l.seq,
                    l.channel,
                    tag(l.level),
                    l.text
                )
            })
            .collect()
    })
}
