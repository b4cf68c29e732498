//! What administrators do with hosts: labels, places, maintenance, draining and removal. Ceph's orchestrator
//! has most of it by other names (`orch host ...`).

use super::{Answer, Call, Outcome, Refusal, Row, auth, monitors, osd_removal, refuse};
use crate::recovery::Backup;
use crate::services::hosts::{
    Host, HostChange, NO_SCHEDULE, ToldToStop, agent, end_maintenance, osds_of, place_host,
};
use crate::services::upgrade::{Reported, reported};
use nacre_base::{OsdId, errno};
use nacre_proto::maps::osd_state;
use nacre_wire::to_vec;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

pub const COMMANDS: &[Row] = &[
    ("host label add", "give a host a label", label_add),
    ("host label rm", "take a label from a host", label_rm),
    ("host set-location", "move a host to another place in the CRUSH map", set_location),
    ("host drain", "move all data and the monitor away from a host", drain),
    ("host undrain", "use a drained host again", undrain),
    ("host maintenance enter", "stop the daemons of a host for some time", enter_maintenance),
    ("host maintenance exit", "start the daemons of a host again", exit_maintenance),
    ("mon backup", "print all that the monitors agree on, with all keys", backup),
    ("host rm", "remove a host from the cluster", rm),
    ("host leave", "for a host itself: be drained, or be removed", leave),
    ("orch status", "show the orchestrator's status", orch_status),
    ("orch host ls", "list the hosts", orch_host_ls),
    ("orch host add", "hosts add themselves, with a token", orch_host_add),
    ("orch host rm", "remove a host from the cluster", rm),
    ("orch host drain", "move all data and the monitor away from a host", drain),
    ("orch host label add", "give a host a label", label_add),
    ("orch host label rm", "take a label from a host", label_rm),
    ("orch host maintenance enter", "stop the daemons of a host for some time", enter_maintenance),
    ("orch host maintenance exit", "start the daemons of a host again", exit_maintenance),
    ("orch host ok-to-stop", "check whether a host can stop without interrupting I/O", orch_host_ok_to_stop),
    ("orch ls", "list the services", orch_ls),
    ("orch ps", "list the daemons", orch_ps),
];

/// As in `hosts`; the commands of Ceph's orchestrator have their own.
pub(super) const SIGNATURES: &[(&str, &str, &str)] = &[
    ("host label add", "name=hostname,type=CephString name=label,type=CephString", "rw"),
    ("host label rm", "name=hostname,type=CephString name=label,type=CephString", "rw"),
    ("host set-location", "name=hostname,type=CephString name=location,type=CephString,n=N", "rw"),
    ("host drain", "name=hostname,type=CephString", "rw"),
    ("host undrain", "name=hostname,type=CephString", "rw"),
    (
        "host maintenance enter",
        "name=hostname,type=CephString name=seconds,type=CephInt,req=false name=force,type=CephBool,req=false",
        "rw",
    ),
    ("host maintenance exit", "name=hostname,type=CephString", "rw"),
    (
        "host rm",
        "name=hostname,type=CephString name=offline,type=CephBool,req=false \
         name=yes_i_really_mean_it,type=CephBool,req=false",
        "rw",
    ),
    ("mon backup", "", "rwx"),
    ("host leave", "name=hostname,type=CephString name=stage,type=CephChoices,strings=drain|finish", "rw"),
];

/// How long a maintenance lasts unless said otherwise.
const MAINTENANCE_DEFAULT: u64 = 2 * 3600;
const MAINTENANCE_MAX: u64 = 30 * 86_400;
const LABEL_MAX: usize = 64;
const LABELS_MAX: usize = 32;

fn host(call: &Call<'_>) -> Result<(String, Host), Refusal> {
    let name = call.args.text("hostname")?;
    let known = call.state.hosts.hosts.get(&name).cloned();
    let absent = || refuse(errno::ENOENT, format!("there is no host {name}: see `nacre host ls`"));
    Ok((name.clone(), known.ok_or_else(absent)?))
}

/// True if the change is for the next batch.
fn change(call: &mut Call<'_>, name: &str, from: &Host, to: Host) -> bool {
    if *from == to {
        return false;
    }
    if super::hosts::is_for_later(call) {
        return true;
    }
    call.pending.batch.hosts.push(HostChange::Host(name.to_string(), Some(Box::new(to))));
    false
}

fn label_add(call: &mut Call<'_>) -> Outcome {
    let (name, host) = host(call)?;
    let label = call.args.text("label")?;
    let fine = |c: char| c.is_ascii_alphanumeric() || "-_.:/".contains(c);
    if label.is_empty() || label.len() > LABEL_MAX || !label.chars().all(fine) {
        return Err(refuse(errno::EINVAL, format!("`{label}` is no label: letters, digits, `-_.:/`")));
    }
    if host.labels.len() >= LABELS_MAX {
        return Err(refuse(errno::ENOSPC, format!("{name} has {LABELS_MAX} labels already")));
    }
    let mut new = host.clone();
    new.labels.insert(label.clone());
    change(call, &name, &host, new);
    Answer::text(format!("Added label {label} to host {name}\n"))
}

fn label_rm(call: &mut Call<'_>) -> Outcome {
    let (name, host) = host(call)?;
    let label = call.args.text("label")?;
    let mut new = host.clone();
    if !new.labels.remove(&label) {
        return Err(refuse(errno::ENOENT, format!("host {name} has no label {label}")));
    }
    change(call, &name, &host, new);
    Answer::text(format!("Removed label {label} from host {name}\n"))
}

fn set_location(call: &mut Call<'_>) -> Outcome {
    let (name, _) = host(call)?;
    let location = super::hosts::location_of(call)?;
    let crush = call.pending.map().crush.clone();
    match place_host(&crush, &name, &location).map_err(|text| refuse(errno::EINVAL, text))? {
        Some(crush) => call.pending.edit_crush(crush),
        None => return Answer::said(format!("host {name} is there already")),
    }
    Answer::said(format!("host {name} was moved, and data follows"))
}

// ---- draining ----

fn numbers(osds: &[OsdId]) -> String {
    osds.iter().map(OsdId::to_string).collect::<Vec<_>>().join(" ")
}

/// Marks its OSDs out, and has no monitor placed there. True if it is for the next batch.
fn drain_host(call: &mut Call<'_>, name: &str, host: &Host) -> bool {
    let mut new = host.clone();
    new.labels.insert(NO_SCHEDULE.to_string());
    if change(call, name, host, new) {
        return true;
    }
    for osd in osds_of(&call.pending.map().clone(), name) {
        if call.pending.map().is_in(osd) {
            call.pending.mark_out(osd);
        }
    }
    false
}

fn drain(call: &mut Call<'_>) -> Outcome {
    let (name, host) = host(call)?;
    if drain_host(call, &name, &host) {
        return Answer::said("");
    }
    let osds = osds_of(call.pending.map(), &name);
    let text = match osds.is_empty() {
        true => format!("Host {name} has no OSDs. Remove it with `nacre leave` on it.\n"),
        false => format!(
            "The data of host {name} moves to others. When `ceph osd safe-to-destroy {}` succeeds, remove the host with \
             `nacre leave` on it.\n",
            numbers(&osds)
        ),
    };
    Answer::text(text)
}

fn undrain(call: &mut Call<'_>) -> Outcome {
    let (name, host) = host(call)?;
    let mut new = host.clone();
    new.labels.remove(NO_SCHEDULE);
    if change(call, &name, &host, new) {
        return Answer::said("");
    }
    for osd in osds_of(&call.pending.map().clone(), &name) {
        if call.pending.map().is_out(osd) {
            call.pending.mark_in(osd);
        }
    }
    Answer::said(format!("host {name} is used again"))
}

// ---- maintenance ----

fn enter_maintenance(call: &mut Call<'_>) -> Outcome {
    let (name, host) = host(call)?;
    let seconds = match call.args.int_opt("seconds")? {
        None => MAINTENANCE_DEFAULT,
        Some(n) if (1..=MAINTENANCE_MAX as i64).contains(&n) => n as u64,
        Some(n) => {
            return Err(refuse(
                errno::EINVAL,
                format!("{n} seconds: a maintenance takes 1 to {MAINTENANCE_MAX}"),
            ));
        }
    };
    let osds = osds_of(call.pending.map(), &name);
    if !call.args.flag("force") {
        may_stop(call, &name, &host)?;
    }
    let until = call.now.wall + Duration::from_secs(seconds);
    let has_noout = |osd: &OsdId| call.pending.map().osds[osd.index()].state & osd_state::NOOUT != 0;
    let noout_before = match host.maintenance {
        // It is extended: what it had before is known.
        Some(_) => host.noout_before.clone(),
        None => osds.iter().copied().filter(has_noout).collect(),
    };
    if change(call, &name, &host, Host { maintenance: Some(until), noout_before, ..host.clone() }) {
        return Answer::said("");
    }
    for osd in osds {
        if call.pending.map().osds[osd.index()].state & osd_state::NOOUT == 0 {
            call.pending.flip(osd, osd_state::NOOUT);
        }
    }
    Answer::text(format!(
        "The daemons of host {name} stop now, until {until} or `nacre host maintenance {name} --end`.\n"
    ))
}

/// Fails if data could not be reached without the host, or the monitors had no majority.
fn may_stop(call: &Call<'_>, name: &str, host: &Host) -> Result<(), Refusal> {
    super::osd_show::may_stop(call, &osds_of(call.pending.map(), name))?;
    let member = host.monitor.as_ref().and_then(|monitor| call.state.monmap.member(&monitor.name));
    let told = ToldToStop::anywhere(call.state, call.now.wall).mons;
    match member.is_none_or(|member| call.mon.may_stop(member, &told)) {
        true => Ok(()),
        false => {
            let text = format!("without the monitor of host {name} the others would have no majority");
            Err(refuse(errno::EBUSY, text))
        }
    }
}

fn exit_maintenance(call: &mut Call<'_>) -> Outcome {
    let (name, host) = host(call)?;
    if host.maintenance.is_none() {
        return Answer::text(format!("Host {name} is not in maintenance.\n"));
    }
    if super::hosts::is_for_later(call) {
        return Answer::said("");
    }
    end_maintenance(call.pending, &name, &host);
    Answer::text(format!("The daemons of host {name} start again.\n"))
}

// ---- removal ----

/// Takes a host out of all maps. Its daemons are down, and what they stored is elsewhere, or lost.
fn remove(call: &mut Call<'_>, name: &str, host: &Host, lost: bool) -> Outcome {
    if super::hosts::is_for_later(call) {
        return Answer::said("");
    }
    // Whatever may refuse comes before the first change.
    let osds = osds_of(call.pending.map(), name);
    osd_removal::may_forget(call, &osds, lost)?;
    if let Some(monitor) = &host.monitor
        && call.state.monmap.map.mons.contains_key(&monitor.name)
    {
        let successor = call.pending.hand_over;
        monitors::remove(call, &monitor.name)?;
        if call.pending.hand_over != successor {
            return Answer::said(""); // the next leader is asked again
        }
    }
    for osd in &osds {
        osd_removal::forget(call, *osd)?;
    }
    let mut what = if osds.is_empty() { String::new() } else { format!(" with osd {}", numbers(&osds)) };
    let mut crush = call.pending.map().crush.as_ref().clone();
    if crush.item_by_name(name).is_some() {
        match crush.remove_item(name) {
            Ok(()) => call.pending.edit_crush(crush),
            Err(error) => what += &format!("; its CRUSH bucket stays: {error}"),
        }
    }
    auth::forget(call, agent(name));
    let removals = call.state.hosts.removals.iter().filter(|(_, removal)| removal.host == name);
    let ended = removals.map(|(osd, _)| HostChange::Removal(*osd, None)).collect::<Vec<_>>();
    call.pending.batch.hosts.extend(ended);
    call.pending.batch.hosts.push(HostChange::Host(name.to_string(), None));
    Answer::text(format!("Removed host {name}{what}\n"))
}

/// `offline`: the machine is lost for good.
fn rm(call: &mut Call<'_>) -> Outcome {
    let (name, host) = host(call)?;
    let lost = call.args.flag("offline");
    let osds = osds_of(call.pending.map(), &name);
    if lost && !osds.is_empty() && !(call.args.flag("yes_i_really_mean_it") || call.args.flag("force")) {
        let text = format!(
            "osd {} of host {name} are given up: data that only they have is lost for ever. Confirm with --yes",
            numbers(&osds)
        );
        return Err(refuse(errno::EPERM, text));
    }
    if !lost && !osds.is_empty() {
        let text = format!(
            "host {name} has osd {}: `nacre leave` on that host moves their data away and removes it. If the machine is \
             lost for good: `nacre host rm {name} --lost`",
            numbers(&osds)
        );
        return Err(refuse(errno::EBUSY, text));
    }
    remove(call, &name, &host, lost)
}

/// What a monitor can be restored from (`recovery`).
fn backup(call: &mut Call<'_>) -> Outcome {
    let backup = Backup {
        made: call.now.wall,
        version: call.mon.config.release.version.clone(),
        monitors_key: call.mon.config.auth.monitors_key.clone(),
        state: to_vec(call.state).into(),
    };
    Ok(Answer { status: String::new(), output: backup.to_bytes() })
}

/// For the host's own agent, or an administrator: `drain` first; `finish` when its daemons are stopped and
/// nothing needs them.
fn leave(call: &mut Call<'_>) -> Outcome {
    let (name, host) = host(call)?;
    super::hosts::ensure_speaks_for(call, &name)?;
    if call.args.str("stage") != "finish" {
        drain_host(call, &name, &host);
        let osds: Vec<i32> = osds_of(call.pending.map(), &name).iter().map(|osd| osd.0).collect();
        return call.show_json(json!({ "osds": osds }));
    }
    remove(call, &name, &host, false)
}

// ---- as Ceph's orchestrator has it ----

fn orch_status(call: &mut Call<'_>) -> Outcome {
    let value = json!({ "available": true, "backend": "nacre", "paused": false, "workers": 1 });
    call.show(value, || "Backend: nacre\nAvailable: Yes\nPaused: No\n".to_string())
}

fn status_of(call: &Call<'_>, host: &Host) -> &'static str {
    match () {
        () if host.maintenance.is_some() => "Maintenance",
        () if super::hosts::is_offline(call, host) => "Offline",
        () => "",
    }
}

/// Arguments by which rows are chosen: any if the argument is absent or empty.
fn is_wanted(call: &Call<'_>, argument: &str, have: &str) -> bool {
    let want = call.args.str(argument);
    want.is_empty() || want == have
}

/// A pattern in which `*` stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == text };
    let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
    let inner = text.strip_prefix(first).and_then(|text| text.strip_suffix(last));
    // The leftmost place of each part leaves the most text for those behind it.
    let after = |text: &str, part: &str| text.find(part).map(|at| at + part.len());
    inner.is_some_and(|inner| {
        middle.split('*').try_fold(inner, |text, part| Some(&text[after(text, part)?..])).is_some()
    })
}

fn orch_host_ls(call: &mut Call<'_>) -> Outcome {
    let pattern = call.args.text_opt("host_pattern").filter(|pattern| !pattern.is_empty());
    let label = call.args.str("label");
    let hosts = call.state.hosts.hosts.iter().filter(|(name, host)| {
        (label.is_empty() || host.labels.contains(label))
            && pattern.as_ref().is_none_or(|pattern| matches(pattern, name))
            && is_wanted(call, "host_status", &status_of(call, host).to_lowercase())
    });
    let rows: Vec<Value> = hosts
        .map(|(name, host)| {
            let addr = host.addr.sock.map_or(String::new(), |sock| sock.ip().to_string());
            json!({ "hostname": name, "addr": addr, "labels": host.labels, "status": status_of(call, host) })
        })
        .collect();
    call.show(json!(rows), || {
        let table = super::hosts::table(&["HOST", "ADDR", "LABELS", "STATUS"], &rows, |row| {
            let text = |key: &str| row[key].as_str().unwrap_or_default().to_string();
            let labels = super::hosts::words(&row["labels"], " ");
            vec![text("hostname"), text("addr"), labels, text("status")]
        });
        format!("{table}{} hosts in cluster\n", rows.len())
    })
}

fn orch_host_add(_: &mut Call<'_>) -> Outcome {
    let text = "hosts add themselves: print a token with `nacre token new`, and run `nacre join TOKEN` on the new host";
    Err(refuse(errno::EOPNOTSUPP, text))
}

fn orch_host_ok_to_stop(call: &mut Call<'_>) -> Outcome {
    let (name, host) = host(call)?;
    may_stop(call, &name, &host)?;
    Answer::text(format!("It is presumed safe to stop host {name}.\n"))
}

/// A service for each kind of daemon.
fn orch_ls(call: &mut Call<'_>) -> Outcome {
    let mut services: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for host in call.state.hosts.hosts.values() {
        for (daemon, state) in daemons_of(host) {
            let kind = daemon.split('.').next().unwrap_or_default().to_string();
            if !is_wanted(call, "service_type", &kind) || !is_wanted(call, "service_name", &kind) {
                continue;
            }
            let (running, size) = services.entry(kind).or_default();
            *running += u64::from(state == "running");
            *size += 1;
        }
    }
    let rows: Vec<Value> = services
        .iter()
        .map(|(kind, (running, size))| {
            json!({
                "service_type": kind, "service_name": kind, "placement": { "count": size },
                "status": { "running": running, "size": size },
            })
        })
        .collect();
    if call.args.flag("export") {
        return export(call, &services);
    }
    call.show(json!(rows), || {
        super::hosts::table(&["NAME", "RUNNING"], &rows, |row| {
            let status = &row["status"];
            vec![
                row["service_name"].as_str().unwrap_or_default().to_string(),
                format!("{}/{}", status["running"], status["size"]),
            ]
        })
    })
}

/// The services as documents of YAML, unless another format was asked for.
fn export(call: &Call<'_>, services: &BTreeMap<String, (u64, u64)>) -> Outcome {
    let specs: Vec<Value> = services
        .iter()
        .map(|(kind, (_, size))| {
            json!({ "service_type": kind, "service_name": kind, "placement": { "count": size } })
        })
        .collect();
    call.show(json!(specs), || {
        let spec = |(kind, (_, size)): (&String, &(u64, u64))| {
            format!("service_type: {kind}\nservice_name: {kind}\nplacement:\n  count: {size}\n")
        };
        services.iter().map(spec).collect::<Vec<_>>().join("---\n")
    })
}

/// The ports at which a daemon listens.
fn ports_of(call: &Call<'_>, daemon_type: &str, id: &str) -> Vec<u16> {
    let addrs = match daemon_type {
        "mon" => call.state.monmap.map.mons.get(id).map(|mon| mon.public_addrs.clone()),
        _ => {
            let map = &call.state.osdmap.map;
            id.parse().ok().and_then(|id| map.osd(OsdId(id))).map(|osd| osd.public_addrs.clone())
        }
    };
    addrs
        .and_then(|addrs| addrs.msgr2()?.sock)
        .map(|sock| sock.port())
        .filter(|port| *port > 0)
        .into_iter()
        .collect()
}

/// Names and states of the daemons of a host, as its agent said last.
pub(super) fn daemons_of(host: &Host) -> Vec<(String, String)> {
    reported(host).into_iter().map(|daemon| (daemon.name, daemon.state)).collect()
}

fn orch_ps(call: &mut Call<'_>) -> Outcome {
    let mut rows = Vec::new();
    for (name, host) in &call.state.hosts.hosts {
        for Reported { name: full, state, memory, .. } in reported(host) {
            let (daemon_type, daemon_id) = full.split_once('.').unwrap_or((&full, ""));
            let (status, status_desc) = match state.as_str() {
                "running" => (1, "running"),
                "stopped" => (0, "stopped"),
                "error" => (-1, "error"),
                other => (0, other),
            };
            let have = [
                ("hostname", name.as_str()),
                ("service_name", daemon_type),
                ("daemon_type", daemon_type),
                ("daemon_id", daemon_id),
            ];
            if have.iter().all(|(argument, have)| is_wanted(call, argument, have)) {
                let mut row = json!({
                    "daemon_type": daemon_type, "daemon_id": daemon_id, "daemon_name": full,
                    "service_name": daemon_type, "hostname": name, "status": status, "status_desc": status_desc,
                    "version": host.facts.get("version").cloned().unwrap_or_default(), "ports": ports_of(call, daemon_type, daemon_id),
                    "is_active": false,
                });
                if memory > 0 {
                    row["memory_usage"] = json!(memory);
                }
                rows.push(row);
            }
        }
    }
    call.show(json!(rows), || {
        super::hosts::table(&["NAME", "HOST", "STATUS", "MEM USE", "VERSION"], &rows, |row| {
            let text = |key: &str| row[key].as_str().unwrap_or_default().to_string();
            let memory = row["memory_usage"].as_u64().map_or("-".to_string(), crate::output::bytes);
            vec![text("daemon_name"), text("hostname"), text("status_desc"), memory, text("version")]
        })
    })
}
