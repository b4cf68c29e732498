//! The devices of all hosts, as their agents report them: for `nacre device ls`, and as Ceph's orchestrator
//! shows them.

use super::{Call, Outcome, Row, hosts};
use crate::output;
use crate::services::hosts::Host;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Their words, what they do, and the code.
pub const COMMANDS: &[Row] = &[
    ("host device ls", "list the devices of hosts", ls),
    ("orch device ls", "list the devices of hosts", orch_ls),
];

/// As in `hosts`; the commands of Ceph's orchestrator have their own.
pub(super) const SIGNATURES: &[(&str, &str, &str)] =
    &[("host device ls", "name=hostname,type=CephString,n=N,req=false", "r")];

/// The hosts that a command names, or all.
fn wanted<'a>(call: &Call<'a>) -> Vec<(&'a String, &'a Host)> {
    let names: BTreeSet<String> =
        call.args.list("hostname").into_iter().filter(|name| !name.is_empty()).collect();
    let all = call.state.hosts.hosts.iter();
    all.filter(|(name, _)| names.is_empty() || names.contains(*name)).collect()
}

fn text<'a>(device: &'a Value, key: &str) -> &'a str {
    device[key].as_str().unwrap_or_default()
}

/// `hdd` or `ssd`, as the kernel says.
fn medium(device: &Value) -> &'static str {
    match device["rotational"].as_bool() {
        Some(true) => "hdd",
        Some(false) => "ssd",
        None => "unknown",
    }
}

/// By its maker's model and number, as `ceph device ls` has it.
pub(super) fn device_id(device: &Value) -> String {
    let parts = ["model", "serial"].map(|key| text(device, key)).into_iter().filter(|part| !part.is_empty());
    let joined = parts.collect::<Vec<_>>().join("_").replace(' ', "_");
    if text(device, "serial").is_empty() { String::new() } else { joined }
}

/// What is on a device, in words.
fn holds(device: &Value) -> String {
    match (device["osd"].as_i64(), text(device, "store"), text(device, "log_of")) {
        (Some(osd), _, _) if device["missing"] == true => format!("osd.{osd}: missing"),
        (Some(osd), _, _) => format!("osd.{osd}"),
        (None, "", "") => String::new(),
        (None, "", store) => format!("log of store {store}"),
        (None, store, _) => format!("store {store}"),
    }
}

fn ls(call: &mut Call<'_>) -> Outcome {
    let mut rows = Vec::new();
    for (name, host) in wanted(call) {
        for mut device in host.devices().iter().cloned() {
            device["host"] = json!(name);
            device["holds"] = json!(holds(&device));
            rows.push(device);
        }
    }
    call.show(json!(rows), || {
        let columns =
            ["HOST", "PATH", "TYPE", "MEDIUM", "SIZE", "MODEL", "SERIAL", "HOLDS", "AVAILABLE", "WHY NOT"];
        hosts::table(&columns, &rows, |device| {
            let is_available = device["available"] == true;
            let own = |key: &str| text(device, key).to_string();
            vec![
                own("host"),
                own("path"),
                own("type"),
                medium(device).to_string(),
                output::bytes(device["size"].as_u64().unwrap_or_default()),
                own("model"),
                own("serial"),
                own("holds"),
                if is_available { "yes" } else { "no" }.to_string(),
                hosts::words(&device["rejected_reasons"], ", "),
            ]
        })
    })
}

/// As `ceph.deployment.inventory.Device` is written.
fn orch_device(device: &Value, created: &str) -> Value {
    let flag = |key: &str| if device[key] == true { "1" } else { "0" };
    let size = device["size"].as_u64().unwrap_or_default();
    let mut sys_api: Map<String, Value> = Map::new();
    for (key, value) in [
        ("path", json!(text(device, "path"))),
        ("size", json!(size as f64)),
        ("human_readable_size", json!(output::bytes(size).replace("iB", "B"))),
        ("model", json!(text(device, "model"))),
        ("vendor", json!(text(device, "vendor"))),
        ("removable", json!(flag("removable"))),
        ("ro", json!(flag("read_only"))),
        ("partitions", json!({})),
    ] {
        sys_api.insert(key.to_string(), value);
    }
    if device["rotational"].is_boolean() {
        sys_api.insert("rotational".to_string(), json!(flag("rotational")));
    }
    json!({
        "ceph_device": !holds(device).is_empty(),
        "rejected_reasons": device["rejected_reasons"],
        "available": device["available"] == true,
        "path": text(device, "path"),
        "sys_api": sys_api,
        "created": created,
        "lvs": [],
        "human_readable_type": medium(device),
        "device_id": device_id(device),
        "lsm_data": {},
    })
}

fn orch_ls(call: &mut Call<'_>) -> Outcome {
    let rows: Vec<Value> = wanted(call)
        .into_iter()
        .map(|(name, host)| {
            let created = host.seen.to_string();
            // Ceph's classes read UTC with a `Z`.
            let created = created.split_once('+').map_or(created.clone(), |(time, _)| format!("{time}Z"));
            let devices: Vec<Value> =
                host.devices().iter().map(|device| orch_device(device, &created)).collect();
            let addr = host.addr.sock.map_or(String::new(), |sock| sock.ip().to_string());
            json!({ "name": name, "addr": addr, "devices": devices, "labels": host.labels })
        })
        .collect();
    call.show(json!(rows), || {
        let mut lines = Vec::new();
        for host in &rows {
            for device in host["devices"].as_array().into_iter().flatten() {
                let mut line = device.clone();
                line["host"] = host["name"].clone();
                lines.push(line);
            }
        }
        hosts::table(
            &["HOST", "PATH", "TYPE", "DEVICE ID", "SIZE", "AVAILABLE", "REJECT REASONS"],
            &lines,
            |device| {
                let own = |key: &str| text(device, key).to_string();
                vec![
                    own("host"),
                    own("path"),
                    own("human_readable_type"),
                    own("device_id"),
                    text(&device["sys_api"], "human_readable_size").to_string(),
                    if device["available"] == true { "Yes" } else { "No" }.to_string(),
                    hosts::words(&device["rejected_reasons"], ", "),
                ]
            },
        )
    })
}
