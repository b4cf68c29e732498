//! The devices of the host as its agent follows them: the monitors are told what there is, and OSDs are found
//! by what is on their disks, also on disks that were moved here from another host.

use crate::hosts::devices::{link_devices, make_osds};
use crate::hosts::dir::{DeviceState, HostConfig, HostDir, PlannedOsd};
use crate::hosts::inventory::{Device, scan, signature};
use crate::name::DaemonName;
use anyhow::{Context, Result};
use nacre_node::BlockingClient;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// All devices are looked at so often, though none came or went.
const SCAN_EVERY: Duration = Duration::from_secs(60);
/// The monitors are asked so often for the OSD on a disk.
const ADOPT_EVERY: Duration = Duration::from_secs(10);

/// What is known of the host's devices.
pub struct Devices {
    dir: HostDir,
    found: Vec<Device>,
    /// What the last look was at, and when.
    signature: String,
    scanned: Option<Instant>,
    /// Stores that are not this host's: when the monitors were asked, and why they refused.
    refused: BTreeMap<Uuid, (Instant, String)>,
}

impl Devices {
    /// Of a host; nothing is looked at yet.
    pub fn new(dir: HostDir) -> Devices {
        Devices { dir, found: Vec::new(), signature: String::new(), scanned: None, refused: BTreeMap::new() }
    }

    /// All devices, as the monitors are told.
    pub fn fact(&mut self, config: &HostConfig) -> Result<String> {
        let signature = signature(&self.dir, config);
        if signature != self.signature || self.scanned.is_none_or(|at| at.elapsed() >= SCAN_EVERY) {
            self.found = scan(&self.dir, config, &self.found);
            (self.signature, self.scanned) = (signature, Some(Instant::now()));
        }
        serde_json::to_string(&self.found).context("cannot write devices as JSON")
    }

    /// The next report looks at all devices again.
    pub fn rescan(&mut self) {
        self.scanned = None;
        self.refused.clear();
    }

    /// OSDs of this host whose disks have other names by now get new links, and those that other hosts had
    /// are taken over.
    pub fn follow(&mut self, config: &mut HostConfig, client: &BlockingClient) {
        for device in self.found.clone() {
            let Some(uuid) = device.store else { continue };
            if self.refused.get(&uuid).is_some_and(|(asked, _)| asked.elapsed() < ADOPT_EVERY) {
                continue;
            }
            let done = match config.devices.iter().position(|osd| osd.uuid == uuid) {
                Some(at) => self.relink(config, at, &device),
                None => self.adopt(config, &device, uuid, client),
            };
            let error = done.err().map(|e| format!("{e:#}")).unwrap_or_default();
            let last = self.refused.get(&uuid).map(|(_, last)| last.as_str()).unwrap_or_default();
            if !error.is_empty() && error != last {
                tracing::warn!(
                    "{} holds the store of an OSD that is not started: {error}",
                    device.path.display()
                );
            }
            match error.is_empty() {
                true => drop(self.refused.remove(&uuid)),
                false => drop(self.refused.insert(uuid, (Instant::now(), error))),
            }
        }
    }

    /// Deletes the files of OSDs that run elsewhere, whose disks are gone.
    pub fn forget(&mut self, config: &mut HostConfig, moved: &[u32]) -> Result<()> {
        for id in moved {
            let is_missing = |device: &Device| device.osd == Some(*id) && device.missing;
            if !self.found.iter().any(is_missing) {
                continue;
            }
            let _lock = self.dir.lock()?;
            config.devices.retain(|osd| osd.id != Some(*id));
            self.dir.save(config)?;
            self.dir.layout().remove(&DaemonName::Osd(*id))?;
            tracing::info!("osd.{id} runs on another host now, with its disk");
        }
        Ok(())
    }

    fn wal_of(&self, device: &Device) -> Result<Option<PathBuf>> {
        if !device.log_is_apart {
            return Ok(None);
        }
        let log = self.found.iter().find(|log| log.log_of == device.store && log.log_of.is_some());
        let log = log.context("the device of its log is not on this host")?;
        Ok(Some(log.path.clone()))
    }

    fn relink(&self, config: &mut HostConfig, at: usize, device: &Device) -> Result<()> {
        let PlannedOsd { path, wal, id, state, .. } = config.devices[at].clone();
        let Some(id) = id.filter(|_| state == DeviceState::Formatted) else { return Ok(()) };
        let now = self.wal_of(device)?;
        let is_same = |old: &Path, new: &Path| fs::canonicalize(old).ok() == fs::canonicalize(new).ok();
        let has_wal = match (&wal, &now) {
            (Some(old), Some(new)) => is_same(old, new),
            (old, new) => old.is_none() && new.is_none(),
        };
        if is_same(&path, &device.path) && has_wal {
            return Ok(());
        }
        let _lock = self.dir.lock()?;
        link_devices(&self.dir, id, &device.path, now.as_deref())?;
        config.devices[at].path.clone_from(&device.path);
        config.devices[at].wal = now;
        tracing::info!("osd.{id} is on {} now", device.path.display());
        self.dir.save(config)
    }

    fn adopt(
        &self,
        config: &mut HostConfig,
        device: &Device,
        uuid: Uuid,
        client: &BlockingClient,
    ) -> Result<()> {
        let wal = self.wal_of(device)?;
        let _lock = self.dir.lock()?;
        let before = config.clone();
        config.devices.push(PlannedOsd { wal, ..PlannedOsd::adopted(device.path.clone(), uuid) });
        let made = make_osds(&self.dir, config, client, |id, path| {
            tracing::info!("osd.{id} is taken over with {}", path.display());
        });
        if made.is_err() && config.devices.last().is_some_and(|osd| osd.id.is_none()) {
            *config = before;
        }
        made
    }
}
