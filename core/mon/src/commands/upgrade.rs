//! `nacre upgrade`, and what Ceph's orchestrator has of it.

use super::{Answer, Call, Outcome, Refusal, Row, hosts, refuse};
use crate::services::health::Checks;
use crate::services::hosts::{Host, ToldToStop};
use crate::services::pg::stopping::ActingSets;
use crate::services::upgrade::{
    INSTALLED, Known, PastUpgrade, Upgrade, Upgrades, bad_pgs, known, refusal, reported,
};
use nacre_base::{OsdId, errno};
use nacre_proto::messages::LogLevel;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Their words, what they do, and the code.
pub const COMMANDS: &[Row] = &[
    ("upgrade check", "show versions, and what an upgrade would wait for", check),
    ("upgrade start", "restart all daemons with the version that is installed", start),
    ("upgrade status", "show the upgrade in progress", status),
    ("upgrade pause", "begin no further step of the upgrade", pause),
    ("upgrade resume", "go on with a paused or halted upgrade", resume),
    ("upgrade stop", "end the upgrade where it is", stop),
    ("upgrade finish", "enable what is new in the version of all daemons", finish),
    ("orch upgrade check", "show versions, and what an upgrade would wait for", check),
    ("orch upgrade start", "restart all daemons with the version that is installed", start),
    ("orch upgrade status", "show the upgrade in progress", orch_status),
    ("orch upgrade pause", "begin no further step of the upgrade", pause),
    ("orch upgrade resume", "go on with a paused or halted upgrade", resume),
    ("orch upgrade stop", "end the upgrade where it is", stop),
];

/// As in `hosts`.
pub(super) const SIGNATURES: &[(&str, &str, &str)] = &[
    ("upgrade check", "", "r"),
    ("upgrade start", "name=ceph_version,type=CephString,req=false", "rw"),
    ("upgrade status", "", "r"),
    ("upgrade pause", "", "rw"),
    ("upgrade resume", "", "rw"),
    ("upgrade stop", "", "rw"),
    ("upgrade finish", "name=yes_i_really_mean_it,type=CephBool,req=false", "rw"),
];

fn daemons(call: &Call<'_>) -> Vec<Known> {
    known(call.state, &call.mon.quorum())
}

fn current<'a>(call: &Call<'a>) -> Result<&'a Upgrade, Refusal> {
    let none = || refuse(errno::ENOENT, "no upgrade is in progress");
    call.state.upgrades.current.as_ref().ok_or_else(none)
}

/// Changes of upgrades are made one by one. True if this one is for the next batch.
fn is_for_later(call: &mut Call<'_>) -> bool {
    let waits = call.pending.batch.upgrades.is_some();
    call.pending.defer_if(waits);
    waits
}

fn put(call: &mut Call<'_>, current: Option<Upgrade>) {
    call.pending.batch.upgrades = Some(Upgrades { current, ..call.state.upgrades.clone() });
}

/// Health codes, and the latency, that the upgrade is compared with.
fn baseline(call: &Call<'_>, upgrade: Upgrade) -> Upgrade {
    let map = &call.state.osdmap.map;
    let checks: Checks = call.mon.health(call.now, map);
    let services = &call.mon.services;
    // The daemons of a step are no part of it.
    let (inactive_pgs, unclean_pgs) = match upgrade.step {
        Some(_) => (upgrade.inactive_pgs, upgrade.unclean_pgs),
        None => bad_pgs(&services.pgs, call.state),
    };
    let latency = services.upgrade.latency(call.state.upgrades.format, None);
    Upgrade {
        codes: checks.keys().map(|code| (*code).to_string()).collect(),
        // A higher one halts it no more.
        latency_us: upgrade.latency_us.max(latency.unwrap_or(0)),
        inactive_pgs,
        unclean_pgs,
        ..upgrade
    }
}

/// What is installed on a host; empty if its agent does not say.
fn installed(host: &Host) -> &str {
    host.facts.get(INSTALLED).map_or("", String::as_str)
}

/// What keeps an upgrade to this version from starting.
fn obstacles(call: &Call<'_>, target: &str) -> Vec<String> {
    let hosts = &call.state.hosts.hosts;
    let lacking =
        hosts.iter().filter(|(_, host)| !hosts::is_offline(call, host) && installed(host) != target);
    let mut found: Vec<String> = lacking
        .map(|(name, host)| match installed(host) {
            "" => {
                format!("host {name}: its agent does not say which version is installed; restart the agent")
            }
            version => format!("host {name} has {version} installed, and not {target}"),
        })
        .collect();
    let without_agent = daemons(call).into_iter().filter(|daemon| daemon.is_up && daemon.host.is_none());
    found.extend(
        without_agent
            .filter(|daemon| daemon.version != target)
            .map(|daemon| format!("{} runs on no host that has an agent: restart it by hand", daemon.name)),
    );
    found
}

/// The version that is installed on most hosts.
fn most_installed(call: &Call<'_>) -> Option<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for host in call.state.hosts.hosts.values().filter(|host| !installed(host).is_empty()) {
        *counts.entry(installed(host)).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(version, _)| version.to_string())
}

fn target(call: &Call<'_>) -> Result<String, Refusal> {
    let said = call.args.text_opt("ceph_version").or_else(|| call.args.text_opt("image"));
    said.or_else(|| most_installed(call))
        .ok_or_else(|| refuse(errno::EINVAL, "no host says which version is installed"))
}

fn start(call: &mut Call<'_>) -> Outcome {
    if is_for_later(call) {
        return Answer::said("");
    }
    let target = target(call)?;
    if let Some(current) = &call.state.upgrades.current {
        return match current.target == target {
            true => Answer::said(format!("the upgrade to {target} is in progress")),
            false => {
                let text =
                    format!("an upgrade to {} is in progress: `nacre upgrade stop` ends it", current.target);
                Err(refuse(errno::EBUSY, text))
            }
        };
    }
    let obstacles = obstacles(call, &target);
    if !obstacles.is_empty() {
        return Err(refuse(errno::EBUSY, obstacles.join("; ")));
    }
    let new = Upgrade { target: target.clone(), started: call.now.wall, ..Upgrade::default() };
    let new = baseline(call, new);
    put(call, Some(new));
    let context = call.mon.context(call.now);
    context.log(call.pending, LogLevel::Info, format!("upgrade to {target} started"));
    Answer::text(format!("Initiating upgrade to {target}\n"))
}

fn pause(call: &mut Call<'_>) -> Outcome {
    if is_for_later(call) {
        return Answer::said("");
    }
    let new = Upgrade { paused: true, ..current(call)?.clone() };
    let text = format!("Paused upgrade to {}\n", new.target);
    put(call, Some(new));
    Answer::text(text)
}

/// What is wrong now does not halt it again. The step is given up: its daemons that still run another version
/// are chosen again, if they are up and may stop.
fn resume(call: &mut Call<'_>) -> Outcome {
    if is_for_later(call) {
        return Answer::said("");
    }
    let current = current(call)?.clone();
    let mut new = baseline(call, Upgrade { paused: false, halted: None, ..current });
    new.give_up_step();
    let text = format!("Resumed upgrade to {}\n", new.target);
    put(call, Some(new));
    Answer::text(text)
}

fn stop(call: &mut Call<'_>) -> Outcome {
    if is_for_later(call) {
        return Answer::said("");
    }
    let text = match &call.state.upgrades.current {
        None => "No upgrade in progress\n".to_string(),
        Some(current) => format!("Stopped upgrade to {}\n", current.target),
    };
    if call.state.upgrades.current.is_some() {
        put(call, None);
    }
    Answer::text(text)
}

/// Raises the format to the newest that this version has.
fn finish(call: &mut Call<'_>) -> Outcome {
    // What OSDs that come up can use is known with the next batch.
    let boots = call.pending.has_boots();
    call.pending.defer_if(boots);
    if is_for_later(call) || boots {
        return Answer::said("");
    }
    let upgrades = call.state.upgrades.clone();
    let newest = call.mon.config.release.formats.max;
    if upgrades.format >= newest {
        return Answer::text(format!(
            "The cluster has format {}, and there is no newer one.\n",
            upgrades.format
        ));
    }
    if let Some(current) = &upgrades.current {
        let text = format!("the upgrade to {} is in progress", current.target);
        return Err(refuse(errno::EBUSY, text));
    }
    let old = daemons(call).into_iter().filter(|daemon| !daemon.formats.contains(newest));
    let gives_up_down = call.args.flag("yes_i_really_mean_it");
    let (up, down): (Vec<Known>, Vec<Known>) = old.partition(|daemon| daemon.is_up);
    let names = |daemons: &[Known]| {
        let names: Vec<&str> = daemons.iter().map(|daemon| daemon.name.as_str()).collect();
        names.join(", ")
    };
    if !up.is_empty() {
        let text = format!("these cannot use format {newest}, and run an older version: {}", names(&up));
        return Err(refuse(errno::EBUSY, text));
    }
    if !down.is_empty() && !gives_up_down {
        let text = format!(
            "these are down, and ran a version that cannot use format {newest}: {}. Start them first, or confirm with \
             --yes-i-really-mean-it that they need the newer version from now on",
            names(&down)
        );
        return Err(refuse(errno::EBUSY, text));
    }
    let mut new = Upgrades { format: newest, ..upgrades };
    new.note_past(PastUpgrade { ended: call.now.wall, version: String::new(), format: newest });
    call.pending.batch.upgrades = Some(new);
    let text = format!("the cluster has format {newest} now");
    call.mon.context(call.now).log(call.pending, LogLevel::Info, text);
    Answer::text(format!(
        "The cluster has format {newest} now. Versions that cannot use it are refused from now on.\n"
    ))
}

/// The daemons of a host that its agent is to restart.
pub(super) fn to_restart(call: &Call<'_>, host: &str) -> Vec<String> {
    let Some(Upgrade { step: Some(step), target, paused: false, halted: None, .. }) =
        &call.state.upgrades.current
    else {
        return Vec::new();
    };
    // What keeps them from stopping by now is looked at only then.
    if !call.mon.context(call.now).leads_long_enough() {
        return Vec::new();
    }
    let here = call.state.hosts.hosts.get(host).map(reported).unwrap_or_default();
    let known = daemons(call);
    let is_old = |name: &&String| {
        known.iter().find(|daemon| daemon.name == **name).is_none_or(|daemon| daemon.version != *target)
    };
    let names = step.daemons.iter().filter(|name| here.iter().any(|daemon| daemon.name == **name));
    names.filter(is_old).cloned().collect()
}

// ---- what administrators see ----

/// Versions, with the daemons that run them.
fn by_version(call: &Call<'_>) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for daemon in daemons(call) {
        let version = if daemon.version.is_empty() { "unknown".to_string() } else { daemon.version };
        found.entry(version).or_default().push(daemon.name);
    }
    found
}

/// OSDs that no restart is possible of without an interruption.
fn needed_osds(call: &Call<'_>) -> Vec<OsdId> {
    let map = &call.state.osdmap.map;
    let acting = ActingSets::of(map);
    let (pgs, told) = (&call.mon.services.pgs, ToldToStop::on_hosts(call.state, call.now.wall).osds);
    let stops = |osd: &OsdId| !acting.stopping(call.state, pgs, &[*osd].into(), &told).stopped.is_empty();
    map.up_osds().filter(stops).collect()
}

fn check(call: &mut Call<'_>) -> Outcome {
    let format = call.state.upgrades.format;
    let formats = call.mon.config.release.formats;
    let target = target(call).ok();
    let obstacles = target.as_ref().map(|target| obstacles(call, target)).unwrap_or_default();
    let mut warnings: Vec<String> = Vec::new();
    if call.state.monmap.members.len() < 3 {
        warnings.push(
            "with fewer than three monitors, no command is answered while a monitor restarts".to_string(),
        );
    }
    let needed = needed_osds(call);
    if !needed.is_empty() {
        let names: Vec<String> = needed.iter().map(|osd| format!("osd.{osd}")).collect();
        warnings.push(format!(
            "placement groups do not serve without {}: the upgrade waits for other copies before it restarts these",
            names.join(", ")
        ));
    }
    let incompatible = daemons(call).into_iter().filter(|daemon| !daemon.formats.contains(format));
    warnings.extend(incompatible.map(|daemon| refusal(&daemon.name, daemon.formats, format)));
    let hosts: Vec<Value> = call
        .state
        .hosts
        .hosts
        .iter()
        .map(|(name, host)| {
            json!({
                "hostname": name, "installed": installed(host),
                "agent": host.facts.get("version").map_or("", String::as_str),
                "offline": hosts::is_offline(call, host),
            })
        })
        .collect();
    let versions = by_version(call);
    let value = json!({
        "target": target, "format": format, "formats": { "min": formats.min, "max": formats.max },
        "hosts": hosts, "versions": versions, "obstacles": obstacles, "warnings": warnings,
    });
    call.show(value, || {
        let mut text = hosts::table(&["HOST", "INSTALLED", "AGENT"], &hosts, |row| {
            ["hostname", "installed", "agent"]
                .map(|key| row[key].as_str().unwrap_or_default().to_string())
                .to_vec()
        });
        for (version, names) in &versions {
            let _ = writeln!(text, "{version}: {}", names.join(" "));
        }
        let _ = writeln!(text, "format {format}; this version can use {} to {}", formats.min, formats.max);
        for obstacle in &obstacles {
            let _ = writeln!(text, "obstacle: {obstacle}");
        }
        for warning in &warnings {
            let _ = writeln!(text, "warning: {warning}");
        }
        text
    })
}

/// The current upgrade: what it waits for, or why it does not go on.
fn message(call: &Call<'_>, upgrade: &Upgrade) -> String {
    match &upgrade.halted {
        Some(why) => format!("halted: {why}"),
        None if upgrade.paused => "paused".to_string(),
        None if call.mon.services.upgrade.waits_for.is_empty() => String::new(),
        None => format!("waits for {}", call.mon.services.upgrade.waits_for),
    }
}

fn status(call: &mut Call<'_>) -> Outcome {
    let Upgrades { format, current, past } = &call.state.upgrades;
    let newest = call.mon.config.release.formats.max;
    let past: Vec<Value> = past
        .iter()
        .map(
            |past| json!({ "ended": past.ended.to_string(), "version": past.version, "format": past.format }),
        )
        .collect();
    let mut value = json!({
        "in_progress": current.is_some(), "format": format, "newest_format": newest, "past": past,
    });
    let mut text = String::new();
    match current {
        None => text.push_str("No upgrade is in progress.\n"),
        Some(upgrade) => {
            let all = daemons(call);
            let done = all.iter().filter(|daemon| daemon.version == upgrade.target).count();
            let step = upgrade.step.as_ref().map(|step| step.daemons.clone()).unwrap_or_default();
            let message = message(call, upgrade);
            let _ = writeln!(
                text,
                "Upgrade to {}: {done} of {} monitors and OSDs run it.",
                upgrade.target,
                all.len()
            );
            if !step.is_empty() {
                let _ = writeln!(text, "Restarting: {}", step.join(", "));
            }
            if !message.is_empty() {
                let _ = writeln!(text, "It {message}");
            }
            value["target"] = json!(upgrade.target);
            value["started"] = json!(upgrade.started.to_string());
            value["paused"] = json!(upgrade.paused);
            value["halted"] = json!(upgrade.halted);
            value["step"] = json!(step);
            value["done"] = json!(done);
            value["daemons"] = json!(all.len());
            value["message"] = json!(message);
        }
    }
    if *format < newest {
        let _ = writeln!(
            text,
            "The cluster has format {format}, and this version has {newest}: `nacre upgrade finish` raises it when all \
             daemons run this version."
        );
    }
    call.show(value, || text)
}

/// Callers expect JSON in any case.
fn orch_status(call: &mut Call<'_>) -> Outcome {
    let Some(upgrade) = &call.state.upgrades.current else {
        return call.show_json(json!({
            "target_image": null, "in_progress": false, "which": "<unknown>", "services_complete": [],
            "progress": null, "message": "", "is_paused": false,
        }));
    };
    let all = daemons(call);
    let is_done = |daemon: &&Known| daemon.version == upgrade.target;
    let done = all.iter().filter(is_done).count();
    let kinds = ["mon", "osd"];
    let complete = kinds.into_iter().filter(|kind| {
        let of_kind = |daemon: &&Known| daemon.name.split('.').next() == Some(*kind);
        all.iter().filter(of_kind).all(|daemon| is_done(&daemon))
    });
    call.show_json(json!({
        "target_image": upgrade.target, "in_progress": true,
        "which": "Upgrading all daemon types on all hosts",
        "services_complete": complete.collect::<Vec<_>>(),
        "progress": format!("{done}/{} daemons upgraded", all.len()),
        "message": message(call, upgrade),
        "is_paused": upgrade.paused || upgrade.halted.is_some(),
    }))
}
