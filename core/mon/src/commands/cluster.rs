//! The cluster as a whole: `ceph -s`, health, versions.

use super::{Answer, Call, Outcome, PACIFIC_FEATURES, Row, fs_show, monitors, refuse, usage};
use crate::mon::Mon;
use crate::output::{self, age, bytes, count, uuid};
use crate::services::health::{self, Check, Mute};
use crate::services::pg::stats;
use crate::services::pg::summary::by_count;
use nacre_base::{Now, Utime, errno};
use nacre_command::{CEPH_VERSION_SHORT, build_id, ceph_version};
use nacre_proto::maps::{map_flags, release};
use nacre_proto::messages::pg_state;
use nacre_proto::types::EntityType;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

pub const COMMANDS: &[Row] = &[
    ("status", "show the status of the cluster", status),
    ("health", "show the health checks that failed", health),
    ("health mute", "mute a health check", mute),
    ("health unmute", "unmute one or all health checks", unmute),
    ("versions", "show the versions of running daemons", versions),
    ("version", "show the version of this monitor", version),
    ("features", "show the features of connected daemons and clients", features),
    ("fsid", "show the cluster's id", fsid),
    ("report", "show the whole state of the monitors", report),
    ("service dump", "show the registered services", service_dump),
    ("service status", "show the state of the registered services", service_status),
    ("node ls", "list the daemons by host", node_ls),
    ("time-sync-status", "show the clock skew of the monitors", time_sync),
];

fn seconds_since(now: Utime, then: Utime) -> u64 {
    u64::from(now.sec.saturating_sub(then.sec))
}

fn checks_json(
    checks: &BTreeMap<&'static str, Check>,
    mutes: &BTreeMap<String, Mute>,
    detail: bool,
) -> Value {
    let rows = checks.iter().map(|(code, check)| {
        let mut row = json!({
            "severity": check.severity.name(),
            "summary": { "message": check.summary, "count": check.count },
        });
        if detail {
            row["detail"] = check.detail.iter().map(|line| json!({ "message": line })).collect();
        }
        row["muted"] = json!(mutes.contains_key(*code));
        (code.to_string(), row)
    });
    Value::Object(rows.collect())
}

pub fn health_json(call: &Call<'_>, detail: bool) -> Value {
    let state = call.state;
    let checks = call.mon.health(call.now, &state.osdmap.map);
    let mutes: Vec<Value> = state
        .health
        .mutes
        .iter()
        .map(|(code, mute)| {
            let mut row =
                json!({ "code": code, "sticky": mute.sticky, "summary": mute.summary, "count": mute.count });
            if mute.until != Utime::ZERO {
                row["ttl"] = json!(mute.until.to_string());
            }
            row
        })
        .collect();
    json!({
        "status": health::overall(&checks, &state.health.mutes).name(),
        "checks": checks_json(&checks, &state.health.mutes, detail),
        "mutes": mutes,
    })
}

fn health(call: &mut Call<'_>) -> Outcome {
    let detail = call.args.text_opt("detail").is_some();
    let value = health_json(call, detail);
    call.show(value, || health_text(call, detail))
}

fn health_text(call: &Call<'_>, detail: bool) -> String {
    let checks = call.mon.health(call.now, &call.state.osdmap.map);
    let mutes = &call.state.health.mutes;
    let heard: Vec<&Check> =
        checks.iter().filter(|(code, _)| !mutes.contains_key(**code)).map(|(_, c)| c).collect();
    let mut out = health::overall(&checks, mutes).name().to_string();
    let summaries: Vec<&str> = heard.iter().map(|check| &*check.summary).collect();
    if !summaries.is_empty() {
        out += &format!(" {}", summaries.join("; "));
    }
    if let Some(muted) = muted_text(call) {
        out += &format!(" {muted}");
    }
    if detail {
        for (code, check) in &checks {
            let muted = mutes.get(*code).map(|mute| {
                let ttl = time_left(call, mute).map(|left| format!(" ttl {left}")).unwrap_or_default();
                format!("(MUTED{ttl}{}) ", if mute.sticky { ", STICKY" } else { "" })
            });
            let muted = muted.unwrap_or_default();
            out += &format!("\n{muted}[{}] {code}: {}", check.severity.tag(), check.summary);
            check.detail.iter().for_each(|line| out += &format!("\n    {line}"));
        }
    }
    out
}

fn time_left(call: &Call<'_>, mute: &Mute) -> Option<String> {
    (mute.until != Utime::ZERO).then(|| age(seconds_since(mute.until, call.now.wall)))
}

/// What is muted, whether or not it is wrong now, and for how much longer.
fn muted_text(call: &Call<'_>) -> Option<String> {
    let left = |mute| time_left(call, mute).map(|left| format!("({left})")).unwrap_or_default();
    let muted = call.state.health.mutes.iter().map(|(code, mute)| format!("{code}{}", left(mute)));
    let muted: Vec<String> = muted.collect();
    (!muted.is_empty()).then(|| format!("(muted: {})", muted.join(" ")))
}

fn mute(call: &mut Call<'_>) -> Outcome {
    let code = call.args.text("code")?;
    let sticky = call.args.flag("sticky");
    let seconds = call
        .args
        .text_opt("ttl")
        .map(|ttl| parse_ttl(&ttl).ok_or_else(|| refuse(errno::EINVAL, format!("invalid duration: {ttl}"))));
    let seconds = seconds.transpose()?;
    let checks = call.mon.health(call.now, &call.state.osdmap.map);
    let check = checks.get(&*code);
    if check.is_none() && !sticky {
        return Err(refuse(errno::ENOENT, format!("health alert {code} is not currently raised")));
    }
    let until = seconds.map_or(Utime::ZERO, |seconds| Utime {
        sec: call.now.wall.sec.saturating_add(seconds),
        ..call.now.wall
    });
    let mute = Mute {
        until,
        sticky,
        summary: check.map(|c| c.summary.clone()).unwrap_or_default(),
        count: check.map_or(0, |c| c.count),
    };
    call.pending.batch.health.push((code, Some(mute)));
    Answer::said("")
}

fn parse_ttl(text: &str) -> Option<u32> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = match &text[digits.len()..] {
        "" | "s" | "sec" => 1,
        "m" | "min" => 60,
        "h" | "hr" => 3600,
        "d" => 86_400,
        "w" => 604_800,
        _ => return None,
    };
    digits.parse::<u32>().ok()?.checked_mul(unit)
}

fn unmute(call: &mut Call<'_>) -> Outcome {
    match call.args.text_opt("code") {
        Some(code) => call.pending.batch.health.push((code, None)),
        None => {
            call.pending.batch.health.extend(call.state.health.mutes.keys().map(|code| (code.clone(), None)))
        }
    }
    Answer::said("")
}

/// The rows that `status`, `osd stat` and others share.
pub fn osd_counts(call: &Call<'_>) -> Value {
    let map = &call.state.osdmap.map;
    json!({
        "epoch": map.epoch.0,
        "num_osds": map.osd_ids().count(),
        "num_up_osds": map.up_osds().count(),
        "osd_up_since": map.last_up_change.sec,
        "num_in_osds": map.osd_ids().filter(|&osd| map.is_in(osd)).count(),
        "osd_in_since": map.last_in_change.sec,
        "num_remapped_pgs": stats::remapped(map),
    })
}

fn quorum_age(call: &Call<'_>) -> u64 {
    call.mon.leading.as_ref().map_or(0, |leading| call.now.mono.since(leading.since).as_secs())
}

fn quorum_names(call: &Call<'_>) -> Vec<String> {
    let ranks = &call.state.monmap.map.ranks;
    call.mon.quorum().iter().filter_map(|&rank| ranks.get(rank as usize).cloned()).collect()
}

fn status(call: &mut Call<'_>) -> Outcome {
    let (state, mon) = (call.state, call.mon);
    let map = &state.osdmap.map;
    let stats = &mon.services.pgs;
    let states = stats.states(map);
    let sum = stats.sum();
    let space = stats.space(|osd| map.is_in(osd));
    let mut pgmap = json!({
        "pgs_by_state": by_count(&states).iter()
            .map(|(state, n)| json!({ "state_name": pg_state::name(*state), "count": n })).collect::<Vec<_>>(),
        "num_pgs": states.values().sum::<u64>(),
        "num_pools": map.pools.len(),
        "num_objects": sum.objects,
        "data_bytes": sum.bytes,
        "bytes_used": space.used(),
        "bytes_avail": space.available,
        "bytes_total": space.total,
    });
    let fields = pgmap.as_object_mut().expect("just made");
    pg_ratios(&states, fields);
    fields.extend(usage::recovery_json(&sum));
    let rates = stats.all_rates(map);
    fields.extend(usage::recovery_rate_json(&rates));
    fields.extend(usage::client_rate_json(&rates));
    let value = json!({
        "fsid": uuid(&state.fsid()),
        "health": health_json(call, false),
        "election_epoch": election_epoch(mon),
        "quorum": mon.quorum(),
        "quorum_names": quorum_names(call),
        "quorum_age": quorum_age(call),
        "monmap": {
            "epoch": state.monmap.map.epoch.0,
            "min_mon_release_name": release::name(state.monmap.map.min_mon_release),
            "num_mons": state.monmap.map.ranks.len(),
        },
        "osdmap": osd_counts(call),
        "pgmap": pgmap,
        "fsmap": fs_show::summary_json(&state.fsmap.map),
        "mgrmap": {
            "available": state.mgrmap.map.available,
            "num_standbys": state.mgrmap.map.standbys.len(),
            "modules": state.mgrmap.map.modules,
            "services": state.mgrmap.map.services,
        },
        "servicemap": mon.services.service_map.dump(state.monmap.map.created),
        "progress_events": stats.progress.status_json(),
    });
    call.show(value, || status_text(call))
}

/// Raft's term in the manner of Ceph, whose number is odd while there is a leader.
pub fn election_epoch(mon: &Mon) -> u64 {
    2 * mon.term() + 1
}

fn pg_ratios(states: &BTreeMap<u64, u64>, fields: &mut Map<String, Value>) {
    let all: u64 = states.values().sum();
    let unknown = states.get(&0).copied().unwrap_or(0);
    let active: u64 = states.iter().filter(|(state, _)| *state & pg_state::ACTIVE != 0).map(|(_, n)| n).sum();
    let ratio = |part: u64, whole: u64| output::float(part as f64 / whole.max(1) as f64);
    if unknown > 0 {
        fields.insert("unknown_pgs_ratio".to_string(), ratio(unknown, all));
    }
    if active + unknown < all {
        fields.insert("inactive_pgs_ratio".to_string(), ratio(all - active - unknown, all));
    }
}

pub fn flags_text(flags: u32) -> String {
    // What Pacific always has is not worth a line.
    let usual = map_flags::SORTBITWISE
        | map_flags::RECOVERY_DELETES
        | map_flags::PURGED_SNAPDIRS
        | map_flags::PGLOG_HARDLIMIT;
    map_flags::names(flags & !usual).collect::<Vec<_>>().join(",")
}

fn status_text(call: &Call<'_>) -> String {
    let (state, mon) = (call.state, call.mon);
    let map = &state.osdmap.map;
    let checks = mon.health(call.now, map);
    let mut out = format!(
        "  cluster:\n    id:     {}\n    health: {}\n",
        uuid(&state.fsid()),
        health::overall(&checks, &state.health.mutes).name()
    );
    for (_, check) in checks.iter().filter(|(code, _)| !state.health.mutes.contains_key(**code)) {
        out += &format!("            {}\n", check.summary);
    }
    if let Some(muted) = muted_text(call) {
        out += &format!("            {muted}\n");
    }
    out += &services_text(call);
    out += &data_text(call);
    if let Some(text) = mon.services.pgs.progress.text(6) {
        out += &format!("  progress:\n    {text}\n \n");
    }
    out
}

/// The cluster's own daemons, and below them registered service daemons, in two aligned columns.
fn services_text(call: &Call<'_>) -> String {
    let (state, mon) = (call.state, call.mon);
    let registered: Vec<(&str, String)> = mon.services.service_map.summaries().collect();
    let width = registered.iter().map(|(name, _)| name.len()).max().unwrap_or(0).max("mon".len()) + 1;
    let names = quorum_names(call).join(",");
    let mons =
        format!("{} daemons, quorum {names} (age {})", state.monmap.map.ranks.len(), age(quorum_age(call)));
    let mgr = match state.mgrmap.map.available {
        true => {
            let since = age(seconds_since(call.now.wall, state.mgrmap.map.active_change));
            let standbys: Vec<&str> =
                state.mgrmap.map.standbys.values().map(|standby| &*standby.name).collect();
            let standbys = match standbys.is_empty() {
                true => String::new(),
                false => format!(", standbys: {}", standbys.join(", ")),
            };
            format!("{}(active, since {since}){standbys}", state.mgrmap.map.active_name)
        }
        false => "no daemons active".to_string(),
    };
    let mut osds = osd_line(call, " (since ");
    let flags = flags_text(state.osdmap.map.flags);
    if !flags.is_empty() {
        osds += &format!("\n{:>1$}flags {flags}", "", 5 + width);
    }
    let mut own = vec![("mon", mons), ("mgr", mgr), ("osd", osds)];
    if let Some(servers) = fs_show::daemons_text(&state.fsmap.map) {
        own.insert(2, ("mds", servers));
    }
    let lines = own.into_iter().chain(registered);
    let lines = lines.map(|(name, text)| format!("    {:<width$} {text}\n", format!("{name}:")));
    format!(" \n  services:\n{}", lines.collect::<String>())
}

/// `3 osds: 3 up (since 10s), 3 in (since 12s)`
pub fn osd_line(call: &Call<'_>, since: &str) -> String {
    let map = &call.state.osdmap.map;
    let ago = |stamp: Utime| {
        if stamp == Utime::ZERO {
            String::new()
        } else {
            format!("{since}{})", age(seconds_since(call.now.wall, stamp)))
        }
    };
    let remapped = match stats::remapped(map) {
        0 => String::new(),
        n => format!("; {n} remapped pgs"),
    };
    format!(
        "{} osds: {} up{}, {} in{}{remapped}",
        map.osd_ids().count(),
        map.up_osds().count(),
        ago(map.last_up_change),
        map.osd_ids().filter(|&osd| map.is_in(osd)).count(),
        ago(map.last_in_change),
    )
}

fn data_text(call: &Call<'_>) -> String {
    let map = &call.state.osdmap.map;
    let stats = &call.mon.services.pgs;
    let (states, sum) = (stats.states(map), stats.sum());
    let space = stats.space(|osd| map.is_in(osd));
    let all: u64 = states.values().sum();
    let volumes = fs_show::volumes_text(&call.state.fsmap.map);
    let volumes = volumes.map_or(String::new(), |text| format!("    volumes: {text}\n"));
    let mut out = format!(
        " \n  data:\n{volumes}    pools:   {} pools, {all} pgs\n    objects: {} objects, {}\n    usage:   {} used, {} / {} avail\n    pgs:     ",
        map.pools.len(),
        count(sum.objects),
        bytes(sum.bytes),
        bytes(space.used()),
        bytes(space.available),
        bytes(space.total),
    );
    let mut lines = Vec::new();
    let unknown = states.get(&0).copied().unwrap_or(0);
    let active: u64 = states.iter().filter(|(state, _)| *state & pg_state::ACTIVE != 0).map(|(_, n)| n).sum();
    let percent = |part: u64, whole: u64| format!("{:.3}%", 100.0 * part as f64 / whole.max(1) as f64);
    if unknown > 0 {
        lines.push(format!("{} pgs unknown", percent(unknown, all)));
    }
    if active + unknown < all {
        lines.push(format!("{} pgs not active", percent(all - active - unknown, all)));
    }
    for (objects, what) in [(sum.degraded, "degraded"), (sum.misplaced, "misplaced")] {
        if objects > 0 {
            lines.push(format!("{objects}/{} objects {what} ({})", sum.copies, percent(objects, sum.copies)));
        }
    }
    if sum.unfound > 0 {
        lines.push(format!(
            "{}/{} objects unfound ({})",
            sum.unfound,
            sum.objects,
            percent(sum.unfound, sum.objects)
        ));
    }
    let rows = by_count(&states);
    let width = rows.first().map_or(1, |(_, n)| n.to_string().len());
    lines.extend(rows.iter().map(|(state, n)| format!("{n:<width$} {}", pg_state::name(*state))));
    out += &lines.join("\n             ");
    out += "\n";
    let rates = stats.all_rates(map);
    let mut io = Vec::new();
    if rates.reads + rates.writes > 0 {
        let mut parts = Vec::new();
        for (n, what) in [(rates.read_bytes, "rd"), (rates.write_bytes, "wr")] {
            if n > 0 {
                parts.push(format!("{}/s {what}", bytes(n)));
            }
        }
        for (n, what) in [(rates.reads, "rd"), (rates.writes, "wr")] {
            parts.push(format!("{} op/s {what}", count(n)));
        }
        io.push(format!("    client:   {}\n", parts.join(", ")));
    }
    if rates.recovered_bytes + rates.recovered_objects > 0 {
        let objects = count(rates.recovered_objects);
        io.push(format!("    recovery: {}/s, {objects} objects/s\n", bytes(rates.recovered_bytes)));
    }
    if !io.is_empty() {
        out += &format!(" \n  io:\n{}", io.concat());
    }
    out + " \n"
}

fn versions(call: &mut Call<'_>) -> Outcome {
    let (mons, mgrs, osds) =
        (monitors::quorum_versions(call), monitors::manager_versions(call), osd_versions(call));
    let mdss = fs_show::server_versions(call);
    let mut overall: BTreeMap<String, usize> = BTreeMap::new();
    for (version, n) in mons.iter().chain(&mgrs).chain(&osds).chain(&mdss) {
        *overall.entry(version.clone()).or_default() += n;
    }
    let mut all = json!({ "mon": mons, "mgr": mgrs, "osd": osds, "mds": mdss });
    for (service, versions) in call.mon.services.service_map.versions() {
        all[service] = json!(versions);
        versions.into_iter().for_each(|(version, n)| *overall.entry(version).or_default() += n);
    }
    all["overall"] = json!(overall);
    call.show_json(all)
}

/// How many of the OSDs that are up run which version.
pub fn osd_versions(call: &Call<'_>) -> BTreeMap<String, usize> {
    let mut versions = BTreeMap::new();
    for osd in call.state.osdmap.map.up_osds() {
        let said = call.state.osdmap.metadata.get(&osd).and_then(|metadata| metadata.get("ceph_version"));
        *versions.entry(said.map_or("unknown", |v| v).to_string()).or_default() += 1;
    }
    versions
}

fn version(call: &mut Call<'_>) -> Outcome {
    let version = ceph_version(&call.mon.config.release.version);
    call.show(json!({ "version": version }), || version.clone())
}

/// Of the sessions of all monitors in the quorum, and of these monitors themselves.
fn features(call: &mut Call<'_>) -> Outcome {
    let quorum: Vec<u64> = call.mon.quorum_members().collect();
    let others = quorum.iter().copied().filter(|member| *member != call.mon.config.id);
    let mut by_kind = call.mon.services.monitors.sessions(&call.mon.sessions, others);
    by_kind.insert((EntityType::Mon as u8, PACIFIC_FEATURES), quorum.len() as u32);
    let mut value = Map::new();
    for kind in [EntityType::Mon, EntityType::Mds, EntityType::Osd, EntityType::Client, EntityType::Mgr] {
        let rows = by_kind.iter().filter(|((number, _), _)| *number == kind as u8);
        let rows: Vec<Value> = rows
            .map(|((_, features), n)| {
                json!({ "features": format!("{features:#x}"), "release": release::of_features(*features), "num": n })
            })
            .collect();
        if !rows.is_empty() {
            value.insert(kind.to_string(), rows.into());
        }
    }
    call.show_json(Value::Object(value))
}

fn fsid(call: &mut Call<'_>) -> Outcome {
    let fsid = uuid(&call.state.fsid());
    call.show(json!({ "fsid": fsid }), || format!("{fsid}\n"))
}

fn report(call: &mut Call<'_>) -> Outcome {
    let value = json!({
        "cluster_fingerprint": uuid(&call.state.fsid()),
        "version": CEPH_VERSION_SHORT,
        "commit": build_id(),
        "timestamp": call.now.wall.to_string(),
        "tag": "",
        "health": health_json(call, true),
        "monmap": super::monitors::monmap_json(call),
        "osdmap": super::osdmap_dump::dump(&call.state.osdmap.map),
        "servicemap": call.mon.services.service_map.dump(call.state.monmap.map.created),
        "osd_metadata": super::osd_show::all_metadata(call),
        "crushmap": super::crush::dump_json(&call.state.osdmap.map.crush),
    });
    call.show_json(value)
}

fn service_dump(call: &mut Call<'_>) -> Outcome {
    call.show_json(call.mon.services.service_map.dump(call.state.monmap.map.created))
}
fn service_status(call: &mut Call<'_>) -> Outcome {
    call.show_json(call.mon.services.service_map.status())
}

fn node_ls(call: &mut Call<'_>) -> Outcome {
    let mut osds: BTreeMap<String, Vec<i32>> = BTreeMap::new();
    for (osd, metadata) in &call.state.osdmap.metadata {
        osds.entry(metadata.get("hostname").cloned().unwrap_or_default()).or_default().push(osd.0);
    }
    let (mons, mgrs) = monitors::nodes(call);
    let servers = fs_show::servers_by_host(call);
    let kind = call.args.text_opt("type").filter(|kind| kind != "all");
    if let Some(kind) = &kind {
        let names = call.layout.clone();
        call.layout = names.with_root(kind.clone());
    }
    let value = match kind.as_deref() {
        None => json!({ "mon": mons, "osd": osds, "mds": servers, "mgr": mgrs }),
        Some("mon") => mons,
        Some("osd") => json!(osds),
        Some("mds") => json!(servers),
        Some("mgr") => mgrs,
        Some(_) => json!({}),
    };
    call.show_json(value)
}

fn time_sync(call: &mut Call<'_>) -> Outcome {
    let epoch = election_epoch(call.mon);
    let context = call.mon.context(call.now);
    call.show_json(call.mon.services.time_checks.show(&context, epoch))
}

/// What `rados_ping_monitor` gets.
pub fn ping_text(mon: &Mon, now: Now) -> String {
    let status = super::tell::mon_status(mon);
    let health = match &mon.state {
        None => json!({ "status": "HEALTH_WARN", "checks": {}, "mutes": [] }),
        Some(state) => {
            let checks = mon.health(now, &state.osdmap.map);
            json!({
                "status": health::overall(&checks, &state.health.mutes).name(),
                "checks": checks_json(&checks, &state.health.mutes, false),
                "mutes": [],
            })
        }
    };
    json!({ "health": health, "mon_status": status }).to_string()
}
