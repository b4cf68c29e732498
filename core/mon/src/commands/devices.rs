//! Which disks daemons store on, by their makers' numbers, to find one in a rack. What daemons report of
//! themselves (`device_ids` in `ceph osd metadata`) is all that is known; disk failures are not predicted.

use super::{Call, Outcome, Row, refuse};
use crate::output::Align::Left;
use crate::output::Table;
use nacre_base::errno;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

pub const COMMANDS: &[Row] = &[
    ("device ls", "list the disks of daemons", |call| list(call, |_| true)),
    ("device info", "show the daemons and the location of a disk", info),
    ("device ls-by-daemon", "list the disks of a daemon", |call| {
        let who = call.args.text("who")?;
        list(call, |device| device.daemons.contains(&who))
    }),
    ("device ls-by-host", "list the disks of the daemons of a host", |call| {
        let host = call.args.text("host")?;
        list(call, |device| device.places.iter().any(|(on, ..)| *on == host))
    }),
];

#[derive(Default)]
struct Device {
    /// On which host, under which name, and where it is connected.
    places: BTreeSet<(String, String, String)>,
    daemons: BTreeSet<String>,
}

impl Device {
    fn json(&self, id: &str) -> Value {
        let places =
            self.places.iter().map(|(host, dev, path)| json!({ "host": host, "dev": dev, "path": path }));
        json!({ "devid": id, "location": places.collect::<Vec<_>>(), "daemons": self.daemons })
    }
}

fn devices(call: &Call<'_>) -> BTreeMap<String, Device> {
    let mut all: BTreeMap<String, Device> = BTreeMap::new();
    let osds = call.state.osdmap.metadata.iter().map(|(osd, said)| (format!("osd.{osd}"), said));
    let members = &call.state.monmap.members;
    let mons = call.state.mon_metadata.of.iter();
    let mons = mons.filter_map(|(member, said)| Some((format!("mon.{}", members.get(member)?), said)));
    for (daemon, said) in osds.chain(mons) {
        let host = said.get("hostname").cloned().unwrap_or_default();
        let ids = said.get("device_ids").map_or("", String::as_str);
        for (dev, id) in ids.split(',').filter_map(|pair| pair.split_once('=')) {
            let device = all.entry(id.to_string()).or_default();
            let paths = said.get("device_paths").map_or("", String::as_str).split(',');
            let mut paths = paths.filter_map(|pair| pair.split_once('='));
            let path = paths.find(|(name, _)| *name == dev).map_or("", |(_, path)| path);
            device.places.insert((host.clone(), dev.to_string(), path.to_string()));
            device.daemons.insert(daemon.clone());
        }
    }
    all
}

fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(" ")
}

fn list(call: &mut Call<'_>, wanted: impl Fn(&Device) -> bool) -> Outcome {
    let mut all = devices(call);
    all.retain(|_, device| wanted(device));
    let rows: Vec<Value> = all.iter().map(|(id, device)| device.json(id)).collect();
    call.show(rows.into(), || {
        let columns = ["DEVICE", "HOST:DEV", "DAEMONS", "WEAR", "LIFE EXPECTANCY"];
        let mut table = Table::new(&columns.map(|heading| (heading, Left, Left)));
        for (id, device) in &all {
            let places = joined(device.places.iter().map(|(host, dev, _)| format!("{host}:{dev}")));
            let daemons = joined(device.daemons.iter().cloned());
            table.row([id.clone(), places, daemons, String::new(), String::new()]);
        }
        table.render()
    })
}

fn info(call: &mut Call<'_>) -> Outcome {
    let id = call.args.text("devid")?;
    let all = devices(call);
    let Some(device) = all.get(&id) else {
        return Err(refuse(errno::ENOENT, format!("device {id} not found")));
    };
    call.show(device.json(&id), || {
        let places = device.places.iter().map(|(host, dev, _)| format!("attachment {host}:{dev}\n"));
        let daemons = device.daemons.iter().map(|daemon| format!("daemons {daemon}\n"));
        format!("device {id}\n{}{}", places.collect::<String>(), daemons.collect::<String>())
    })
}
