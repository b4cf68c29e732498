//! The devices in the plan of `nacre init` and `nacre join`: judged, and shown before anything is changed.

use crate::device::Report;
use crate::hosts::candidates::{Candidate, find_log, inspect_log_place};
use crate::hosts::dir::{DeviceState, HostConfig, PlannedOsd};
use crate::hosts::judge::{self, LogPlace};
use crate::hosts::preflight::Preflight;
use crate::size::Size;
use anyhow::Result;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use uuid::Uuid;

/// What the command line says of devices.
pub struct Request<'a> {
    /// The devices for data are named, and not found.
    pub named: bool,
    pub wal_devices: &'a [PathBuf],
    pub wal_size: Option<Size>,
    pub measures: bool,
}

/// Measures the devices, plans an OSD for each that is usable, and decides where their logs go.
pub fn judge_devices(
    preflight: &mut Preflight,
    config: &mut HostConfig,
    request: &Request<'_>,
    candidates: &mut [Candidate],
    say: impl Fn(std::fmt::Arguments<'_>),
) -> Result<()> {
    let Request { named, wal_devices, wal_size, measures } = *request;
    for found in candidates.iter_mut().filter(|found| found.rejected.is_none()) {
        match measures {
            true => {
                say(format_args!("Measuring {} ...", found.path.display()));
                found.judge();
            }
            false => found.set_class(),
        }
    }
    config.wal_devices = wal_devices.iter().map(std::path::absolute).collect::<io::Result<_>>()?;
    let mut logs: BTreeMap<Uuid, PathBuf> = BTreeMap::new();
    for found in candidates.iter_mut().filter(|found| found.rejected.is_none() && found.log_is_apart) {
        let Some(uuid) = found.holds else { continue };
        match find_log(uuid, &config.wal_devices) {
            Some(path) => drop(logs.insert(uuid, path)),
            None => found.reject(
                "holds an OSD whose log is on another device, which is not found",
                "connect that device, and name it with --wal-devices",
            ),
        }
    }
    let taken_over: Vec<Uuid> = logs.keys().copied().collect();
    let inspect = |path: &PathBuf| inspect_log_place(path, wal_size, &taken_over);
    let mut places: Vec<LogPlace> = config.wal_devices.iter().map(inspect).collect();
    for place in places.iter_mut().filter(|place| measures && place.rejected.is_none() && place.room > 0) {
        say(format_args!("Measuring {} ...", place.path.display()));
        match judge::measure(&place.path) {
            Ok(report) => place.report = Some(report),
            Err(rejected) => place.rejected = Some(rejected),
        }
    }
    let is_place = |found: &Candidate| {
        let same =
            |place: &LogPlace| fs::canonicalize(&place.path).ok() == fs::canonicalize(&found.path).ok();
        !named && places.iter().any(same)
    };
    // Of all blank disks, those for logs hold no data.
    let data: Vec<Candidate> = candidates.iter().filter(|found| !is_place(found)).cloned().collect();
    config.devices = data.iter().filter(|found| found.rejected.is_none()).map(Candidate::plan).collect();
    for osd in &mut config.devices {
        osd.wal = logs.remove(&osd.uuid);
    }
    let assigned = judge::assign(&mut config.devices, &places, wal_size);
    preflight.devices(&data, named);
    preflight.log_places(&places, &assigned);
    if places.is_empty()
        && let Some(proposal) = judge::propose(&data)
    {
        preflight.propose(&proposal);
    }
    let twice =
        |place: &&LogPlace| data.iter().any(|found| found.rejected.is_none() && found.path == place.path);
    if let Some(place) = places.iter().find(twice) {
        let what = "is named for data and for logs".to_string();
        preflight.fail(&place.path.display().to_string(), what, "name another device with --wal-devices");
    }
    Ok(())
}

/// A device of the plan, for `--format json`.
pub fn planned_json(osd: &PlannedOsd) -> Value {
    json!({
        "path": osd.path.display().to_string(),
        "class": osd.class,
        "wal": osd.wal.as_ref().map(|wal| wal.display().to_string()),
        "take_over": osd.state == DeviceState::Formatted,
        "measured": osd.measured.device.as_ref().map(Report::summary),
    })
}

/// The devices to format: class, and where the log goes.
pub fn planned_table(osds: &[PlannedOsd]) -> String {
    let rows = osds.iter().filter(|osd| osd.state != DeviceState::Formatted).map(|osd| {
        let class = osd.class.map_or("-".to_string(), |class| class.to_string());
        let log = osd.wal.as_ref().map_or("with the data".to_string(), |wal| wal.display().to_string());
        (osd.path.display().to_string(), class, log)
    });
    let rows: Vec<(String, String, String)> = rows.collect();
    let width = rows.iter().map(|(path, ..)| path.chars().count()).max().unwrap_or(0);
    let line =
        |(path, class, log): &(String, String, String)| format!("  {path:<width$}  {class:<5}  log: {log}");
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}
