//! What the commands of Ceph's orchestrator do to daemons, devices and OSDs of hosts.
//!
//! Hosts are not reached: their agents ask. An order waits with its host until the agent has carried it out
//! (`HostOrder`). An OSD that is to be removed waits in `Hosts::removals`. Each report of its host's agent
//! takes it a step further: out, empty, stopped, removed from the maps, deleted on its host.

use super::{Answer, Call, Outcome, Refusal, Row, hosts, osd, osd_removal, osd_show, refuse};
use crate::services::hosts::{Host, HostChange, HostOrder, OsdRemoval, ToldToStop, osds_of};
use nacre_base::{OsdId, Utime, errno};
use nacre_proto::types::cluster_format;
use serde_json::{Value, json};

/// Their words, what they do, and the code.
pub const COMMANDS: &[Row] = &[
    ("orch daemon", "start, stop or restart a daemon", daemon_action),
    ("orch daemon add osd", "make an OSD of a blank device of a host", add_osd),
    ("orch daemon redeploy", "restart a daemon", |call| {
        let name = call.args.text("name")?;
        act(call, "restart", &name)
    }),
    ("orch daemon rm", "hosts make and remove their daemons by themselves", daemon_rm),
    ("orch", "restart daemons one by one instead", service_action),
    ("orch device zap", "erase a device", zap),
    ("orch host rescan", "have a host look at its devices", rescan),
    ("orch host set-addr", "a host has the address that it joined with", set_addr),
    ("orch osd rm", "move the data away from OSDs and remove them", osd_rm),
    ("orch osd rm status", "show the OSDs that are being removed", osd_rm_status),
    ("orch osd rm stop", "keep OSDs that are being removed", osd_rm_stop),
];

/// Bytes of the devices that one command names, which are kept with each order.
const WORDS_MAX: usize = 4096;
/// Orders that wait for one host.
const ORDERS_MAX: usize = 100;

fn invalid(text: impl Into<String>) -> Refusal {
    refuse(errno::EINVAL, text)
}

// ---- orders ----

/// Has the agent of a host do something. True if that is for the next batch.
fn order(
    call: &mut Call<'_>,
    name: &str,
    action: &str,
    target: &str,
    device: Option<&Value>,
) -> Result<bool, Refusal> {
    let known = call.state.hosts.hosts.get(name).cloned();
    let mut host = known.ok_or_else(|| refuse(errno::ENOENT, format!("there is no host {name}")))?;
    let now = call.now.wall;
    host.orders.retain(|order| !order.is_expired(now));
    let same = |order: &HostOrder| order.action == action && order.target == target;
    if host.orders.iter().any(same) {
        return Ok(false); // the command came twice
    }
    if host.orders.len() >= ORDERS_MAX {
        let text = format!("{ORDERS_MAX} orders wait for the agent of host {name}: is it down?");
        return Err(refuse(errno::EBUSY, text));
    }
    if hosts::is_for_later(call) {
        return Ok(true);
    }
    host.push_order(now, action, target, device);
    call.pending.batch.hosts.push(HostChange::Host(name.to_string(), Some(Box::new(host))));
    Ok(false)
}

/// What a host is to do that has carried out all orders up to `done`, and the host without these and those
/// that expired.
pub(super) fn open_orders(host: &Host, done: u64, now: Utime) -> (Host, Value) {
    let mut left = host.clone();
    left.orders.retain(|order| order.id > done && !order.is_expired(now));
    let show = |order: &HostOrder| {
        let mut shown = json!({ "id": order.id, "action": order.action, "target": order.target });
        if let Ok(seen) = serde_json::from_str::<Value>(&order.seen) {
            shown["seen"] = seen;
        }
        shown
    };
    let orders = left.orders.iter().map(show).collect();
    (left, orders)
}

// ---- daemons ----

/// The host that has a daemon.
fn host_of(call: &Call<'_>, daemon: &str) -> Result<String, Refusal> {
    if !daemon.contains('.') {
        return Err(invalid(format!("{daemon} is not a valid daemon name")));
    }
    let found = place_of(call, daemon);
    found.ok_or_else(|| refuse(errno::ENOENT, format!("no host has {daemon}: see `ceph orch ps`")))
}

/// The host that has a daemon, as the monitors know it: where an OSD said that it runs, or is in the CRUSH
/// map, and where a monitor was placed. What agents say of their hosts counts only where nothing is known.
pub(super) fn place_of(call: &Call<'_>, daemon: &str) -> Option<String> {
    let all = &call.state.hosts.hosts;
    let first = |is: &dyn Fn(&str, &Host) -> bool| {
        all.iter().find(|(name, host)| is(name, host)).map(|(name, _)| name.clone())
    };
    let osd = daemon.strip_prefix("osd.").and_then(|id| id.parse().ok()).map(OsdId);
    let said = osd.and_then(|osd| call.state.osdmap.metadata.get(&osd)?.get("hostname"));
    said.filter(|name| all.contains_key(*name))
        .cloned()
        .or_else(|| osd.and_then(|osd| first(&|name, _| osds_of(call.pending.map(), name).contains(&osd))))
        .or_else(|| {
            let mon = daemon.strip_prefix("mon.")?;
            first(&|_, host| host.monitor.as_ref().is_some_and(|monitor| monitor.name == mon))
        })
        .or_else(|| {
            let has = |_: &str, host: &Host| {
                super::host_admin::daemons_of(host).iter().any(|(name, _)| name == daemon)
            };
            first(&has)
        })
}

fn daemon_action(call: &mut Call<'_>) -> Outcome {
    let (action, name) = (call.args.text("action")?, call.args.text("name")?);
    match action.as_str() {
        "reconfig" => {
            host_of(call, &name)?;
            Answer::text(format!("{name} follows changes of its configuration by itself\n"))
        }
        "start" | "stop" | "restart" => act(call, &action, &name),
        other => Err(invalid(format!("`{other}` is no action: start, stop or restart"))),
    }
}

fn act(call: &mut Call<'_>, action: &str, daemon: &str) -> Outcome {
    let host = host_of(call, daemon)?;
    if action != "start" {
        let hint = |refusal: Refusal| {
            let text =
                format!("{}. On host {host}, `nacre stop {daemon}` stops it all the same", refusal.text);
            Refusal { text, ..refusal }
        };
        may_stop(call, daemon).map_err(hint)?;
    }
    if order(call, &host, action, daemon, None)? {
        return Answer::said("");
    }
    Answer::text(format!("Scheduled to {action} {daemon} on host '{host}'\n"))
}

/// Fails if data could not be reached without the daemon, or the monitors had no majority.
fn may_stop(call: &Call<'_>, daemon: &str) -> Result<(), Refusal> {
    match daemon.split_once('.') {
        Some(("osd", id)) => match id.parse() {
            Ok(id) if call.state.osdmap.map.is_up(OsdId(id)) => osd_show::may_stop(call, &[OsdId(id)]),
            _ => Ok(()),
        },
        Some(("mon", id)) => {
            let told = ToldToStop::anywhere(call.state, call.now.wall).mons;
            match call.state.monmap.member(id).is_none_or(|member| call.mon.may_stop(member, &told)) {
                true => Ok(()),
                false => {
                    let text = format!("without {daemon} the other monitors would have no majority");
                    Err(refuse(errno::EBUSY, text))
                }
            }
        }
        _ => Ok(()),
    }
}

fn daemon_rm(call: &mut Call<'_>) -> Outcome {
    let names = call.args.list("names");
    for name in &names {
        host_of(call, name)?;
    }
    let text = "daemons are not removed one by one: `ceph orch osd rm ID` removes an OSD with its data moved away, and \
                monitors leave a host with `ceph orch host drain HOST`";
    Err(refuse(errno::EOPNOTSUPP, text))
}

fn service_action(_: &mut Call<'_>) -> Outcome {
    let text = "daemons are not stopped or restarted all at once: restart one after the other with `ceph orch daemon \
                restart NAME`, and stop a host with `ceph orch host maintenance enter HOST`";
    Err(refuse(errno::EOPNOTSUPP, text))
}

// ---- hosts and devices ----

fn rescan(call: &mut Call<'_>) -> Outcome {
    let host = call.args.text("hostname")?;
    if order(call, &host, "rescan", "", None)? {
        return Answer::said("");
    }
    Answer::text(format!("Host {host} looks at its devices. See `ceph orch device ls {host}`\n"))
}

fn set_addr(call: &mut Call<'_>) -> Outcome {
    let (host, addr) = (call.args.text("hostname")?, call.args.text("addr")?);
    let known = call.state.hosts.hosts.get(&host);
    let known = known.ok_or_else(|| refuse(errno::ENOENT, format!("there is no host {host}")))?;
    let own = known.addr.sock.map_or(String::new(), |sock| sock.ip().to_string());
    if own == addr {
        return Answer::text(format!("Host '{host}' has the address {addr} already\n"));
    }
    let text = format!(
        "host {host} joined with {own}, where its daemons listen. For another address it leaves the cluster (`nacre \
         leave`) and joins again with `nacre join TOKEN --addr {addr}`"
    );
    Err(refuse(errno::EOPNOTSUPP, text))
}

/// `HOST:PATH[,PATH]`
fn add_osd(call: &mut Call<'_>) -> Outcome {
    let usage =
        || invalid("Usage: `ceph orch daemon add osd HOST:PATH[,PATH...][,wal_devices=PATH[,PATH...]]`");
    let text = call.args.text("svc_arg").map_err(|_| usage())?;
    let (name, words) = text.split_once(':').ok_or_else(usage)?;
    let NewOsds { data: paths, action } = new_osds(words)?;
    let host = call.state.hosts.hosts.get(name);
    let host = host.ok_or_else(|| refuse(errno::ENOENT, format!("there is no host {name}")))?;
    if !host.roles.contains("osd") {
        let text = format!("host {name} may not run OSDs: its token did not allow that");
        return Err(refuse(errno::EACCES, text));
    }
    let devices = host.devices();
    let (mut new, now) = (host.clone(), call.now.wall);
    new.orders.retain(|order| !order.is_expired(now));
    for path in &paths {
        let Some(device) = devices.iter().find(|device| device["path"] == *path) else {
            let text = format!("host {name} has no {path}: see `ceph orch device ls {name}`");
            return Err(refuse(errno::ENOENT, text));
        };
        if device["available"] != true {
            let why = hosts::words(&device["rejected_reasons"], ", ");
            return Err(refuse(errno::EBUSY, format!("{path} of host {name} is not available: {why}")));
        }
        let is_add = |order: &HostOrder| order.action.starts_with("add-osd");
        if !new.orders.iter().any(|order| is_add(order) && order.target == *path) {
            new.push_order(now, &action, path, Some(device));
        }
    }
    if new != *host {
        if hosts::is_for_later(call) {
            return Answer::said("");
        }
        let name = name.to_string();
        call.pending.batch.hosts.push(HostChange::Host(name, Some(Box::new(new))));
    }
    Answer::text(format!("Host {name} makes an OSD of each of these: {}\n", paths.join(", ")))
}

/// What `ceph orch daemon add osd` says behind the host.
struct NewOsds<'a> {
    data: Vec<&'a str>,
    /// The order: `add-osd`, and options as JSON behind it, if there are any.
    action: String,
}

/// `PATH,...`, or as Ceph has it `data_devices=PATH,...,wal_devices=PATH,...`.
fn new_osds(words: &str) -> Result<NewOsds<'_>, Refusal> {
    if words.len() > WORDS_MAX {
        return Err(invalid(format!("{} bytes of devices are too many: name fewer at a time", words.len())));
    }
    let (mut data, mut wal, mut wal_size, mut is_measured) = (Vec::new(), Vec::new(), None, true);
    let mut kind = "data_devices";
    for word in words.split(',') {
        let (given, value) = word.split_once('=').unwrap_or((kind, word));
        kind = given;
        match given {
            _ if value.is_empty() => return Err(invalid(format!("`{words}` has an empty path"))),
            "data_devices" => data.push(value),
            // The store's index is with the data: it has a log, and no database beside it.
            "wal_devices" | "db_devices" => wal.push(value),
            "wal_size" => {
                let bytes = value.parse::<u64>();
                wal_size = Some(bytes.map_err(|_| invalid(format!("`{value}` is no number of bytes")))?);
            }
            "no_device_check" => is_measured = value != "true",
            other => {
                return Err(invalid(format!(
                    "`{other}` is not known: data_devices, wal_devices, wal_size, no_device_check"
                )));
            }
        }
    }
    if data.is_empty() {
        return Err(invalid("no data_devices are named"));
    }
    let action = match (wal.is_empty(), is_measured) {
        (true, true) => "add-osd".to_string(),
        _ => format!("add-osd {}", json!({ "wal": wal, "wal_size": wal_size, "no_check": !is_measured })),
    };
    Ok(NewOsds { data, action })
}

/// Never a device with an OSD that the cluster knows.
fn zap(call: &mut Call<'_>) -> Outcome {
    let (name, path) = (call.args.text("hostname")?, call.args.text("path")?);
    let host = call.state.hosts.hosts.get(&name);
    let host = host.ok_or_else(|| refuse(errno::ENOENT, format!("there is no host {name}")))?;
    if !call.args.flag("force") {
        let text = "must pass --force to PERMANENTLY ERASE DEVICE DATA";
        return Err(invalid(text));
    }
    let devices = host.devices();
    let device = devices.iter().find(|device| device["path"] == path.as_str());
    let device = device.ok_or_else(|| {
        refuse(errno::ENOENT, format!("host {name} has no {path}: see `ceph orch device ls {name}`"))
    })?;
    let map = &call.state.osdmap.map;
    for key in ["store", "log_of"] {
        let uuid = device[key].as_str().and_then(crate::output::parse_uuid);
        let owner = map.osd_ids().find(|osd| uuid == Some(map.osds[osd.index()].uuid));
        if let Some(osd) = owner {
            let text =
                format!("{path} is in use by osd.{osd}: `ceph orch osd rm {osd} --zap` removes it first");
            return Err(refuse(errno::EBUSY, text));
        }
    }
    let reasons = device["rejected_reasons"].as_array().cloned().unwrap_or_default();
    if let Some(reason) =
        reasons.iter().find(|reason| ["locked", "read-only"].iter().any(|bad| *reason == bad))
    {
        let text = format!(
            "{path} on host {name} is {}: what uses it comes first",
            reason.as_str().unwrap_or_default()
        );
        return Err(refuse(errno::EBUSY, text));
    }
    if order(call, &name, "zap", &path, Some(device))? {
        return Answer::said("");
    }
    Answer::text(format!("{path} on host {name} is being erased\n"))
}

// ---- removal of OSDs ----

fn osd_rm(call: &mut Call<'_>) -> Outcome {
    if call.state.upgrades.format < cluster_format::OSD_REMOVALS {
        let text = "older monitors would not know of it: `nacre upgrade finish` comes first";
        return Err(refuse(errno::EOPNOTSUPP, text));
    }
    let osds = osd::asked(call, "osd_id")?;
    let [replace, force, zap] = ["replace", "force", "zap"].map(|flag| call.args.flag(flag));
    let mut added = Vec::new();
    for osd in &osds {
        let map = call.pending.map();
        if !map.exists(*osd) {
            return Err(refuse(errno::ENOENT, format!("Unable to find OSD: {osd}")));
        }
        let Some(host) = place_of(call, &format!("osd.{osd}")) else {
            let text = format!(
                "no host has osd.{osd}: `ceph osd out {osd}`, then `ceph osd purge {osd}` once it is down"
            );
            return Err(refuse(errno::ENOENT, text));
        };
        if call.state.hosts.removals.contains_key(&osd.0) {
            continue;
        }
        let started = call.now.wall;
        let weight = map.weight(*osd);
        added.push((*osd, OsdRemoval { host, replace, force, zap, started, weight, removed: false }));
    }
    if !added.is_empty() && hosts::is_for_later(call) {
        return Answer::said("");
    }
    for (osd, removal) in added {
        if !force && call.pending.map().is_in(osd) {
            call.pending.mark_out(osd);
        }
        call.pending.batch.hosts.push(HostChange::Removal(osd.0, Some(removal)));
    }
    Answer::text(
        "Scheduled OSD(s) for removal. `ceph orch osd rm status` shows how far that is.\n".to_string(),
    )
}

/// A removal as Ceph's `OSD` class writes itself.
fn removal_json(call: &Call<'_>, id: i32, removal: &OsdRemoval) -> Value {
    let started = removal.started.to_string().replace("+0000", "Z");
    let is_draining = !removal.force && !removal.removed;
    json!({
        "osd_id": id, "started": true, "draining": is_draining, "stopped": false, "replace": removal.replace,
        "force": removal.force, "zap": removal.zap, "hostname": removal.host, "original_weight": null,
        "drain_started_at": (!removal.force).then(|| started.clone()), "drain_stopped_at": null,
        "drain_done_at": null, "process_started_at": started, "pgs": pgs_on(call, id),
    })
}

fn pgs_on(call: &Call<'_>, id: i32) -> u64 {
    let groups = call.mon.services.pgs.pgs_by_osd(&call.state.osdmap.map);
    groups.get(&OsdId(id)).map_or(0, |(all, _)| *all)
}

fn osd_rm_status(call: &mut Call<'_>) -> Outcome {
    let removals = &call.state.hosts.removals;
    if removals.is_empty() {
        return call.show(json!([]), || "No OSD remove/replace operations reported\n".to_string());
    }
    let rows: Vec<Value> = removals.iter().map(|(id, removal)| removal_json(call, *id, removal)).collect();
    call.show(json!(rows), || {
        let columns = ["OSD", "HOST", "STATE", "PGS", "REPLACE", "FORCE", "ZAP", "DRAIN STARTED AT"];
        hosts::table(&columns, &rows, |row| {
            let flag = |key: &str| if row[key] == true { "True" } else { "False" }.to_string();
            let state = if row["draining"] == true { "draining" } else { "done, waiting for purge" };
            vec![
                row["osd_id"].to_string(),
                row["hostname"].as_str().unwrap_or_default().to_string(),
                state.to_string(),
                row["pgs"].to_string(),
                flag("replace"),
                flag("force"),
                flag("zap"),
                row["drain_started_at"].as_str().unwrap_or_default().to_string(),
            ]
        })
    })
}

fn osd_rm_stop(call: &mut Call<'_>) -> Outcome {
    let osds = osd::asked(call, "osd_id")?;
    let known: Vec<OsdId> = osds
        .into_iter()
        .filter(|osd| call.state.hosts.removals.get(&osd.0).is_some_and(|removal| !removal.removed))
        .collect();
    if known.is_empty() {
        return Err(refuse(errno::ENOENT, "none of these OSDs is being removed"));
    }
    if hosts::is_for_later(call) {
        return Answer::said("");
    }
    for osd in known {
        let removal = &call.state.hosts.removals[&osd.0];
        let (host, was_in) = (removal.host.clone(), removal.weight > 0);
        if was_in && call.pending.map().exists(osd) && call.pending.map().is_out(osd) {
            call.pending.mark_in(osd);
        }
        call.pending.batch.hosts.push(HostChange::Removal(osd.0, None));
        // It may have been stopped for its removal.
        if let Some(known) = call.state.hosts.hosts.get(&host) {
            let mut known = known.clone();
            known.push_order(call.now.wall, "start", &format!("osd.{osd}"), None);
            call.pending.batch.hosts.push(HostChange::Host(host, Some(Box::new(known))));
        }
    }
    Answer::text("Stopped OSD(s) removal\n".to_string())
}

/// Takes the removals on a host a step further, and says what its agent is to do: `stop` an OSD, or `delete`
/// it, with the content of its device if `zap` is set. The agent reports; `has` says whether it still has a
/// daemon.
pub(super) fn advance_removals(call: &mut Call<'_>, name: &str, has: &dyn Fn(&str) -> bool) -> Value {
    let mut steps = Vec::new();
    for (id, removal) in
        call.state.hosts.removals.clone().into_iter().filter(|(_, removal)| removal.host == name)
    {
        let osd = OsdId(id);
        let step = |stage: &str| json!({ "osd": id, "stage": stage, "zap": removal.zap });
        let map = call.pending.map();
        if !removal.removed && map.exists(osd) {
            if !removal.force && osd_removal::may_forget_data(call, osd).is_err() {
                continue;
            }
            if map.is_up(osd) {
                steps.push(step("stop"));
                continue;
            }
            // What may be refused is tried again with the next report.
            let is_gone = match removal.replace {
                true => osd_removal::give_up(call, osd).is_ok(),
                false => osd_removal::forget(call, osd).is_ok(),
            };
            if is_gone {
                let removed = OsdRemoval { removed: true, ..removal.clone() };
                call.pending.batch.hosts.push(HostChange::Removal(id, Some(removed)));
            }
            continue;
        }
        match has(&format!("osd.{id}")) {
            true => steps.push(step("delete")),
            false => call.pending.batch.hosts.push(HostChange::Removal(id, None)),
        }
    }
    json!(steps)
}
