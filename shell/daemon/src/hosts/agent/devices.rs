//! The devices of the host as its agent follows them: the monitors are told what there is, and OSDs are found
//! by what is on their disks, also on disks that were moved here from another host.

use crate::hosts::devices::{is_made, link_devices, make_osd};
use crate::hosts::dir::{DeviceState, HostConfig, HostDir, PlannedOsd};
use crate::hosts::inventory::{Device, scan, signature};
use crate::name::DaemonName;
use anyhow::{Context, Result, bail, ensure};
use nacre_node::BlockingClient;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// All devices are looked at so often, though none came or went.
const SCAN_EVERY: Duration = Duration::from_secs(60);
/// The monitors are asked so often for the OSD on a disk.
const ADOPT_EVERY: Duration = Duration::from_secs(10);
/// For so long a report waits for the devices. One that hangs must not have the whole host count as offline.
const REPORT_WAITS: Duration = Duration::from_secs(1);
/// For so long an order waits for them.
const ORDER_WAITS: Duration = Duration::from_secs(30);

/// How devices are looked at: `inventory::scan`, except in tests.
type Scan = fn(&HostDir, &HostConfig, &[Device]) -> Vec<Device>;

/// What is known of the host's devices.
pub struct Devices {
    dir: HostDir,
    found: Vec<Device>,
    /// What the last look was at, and when.
    signature: String,
    scanned: Option<Instant>,
    scan: Scan,
    /// The look that is not over.
    looking: Option<Receiver<Vec<Device>>>,
    /// Stores that are not this host's: when the monitors were asked, and why they refused.
    refused: BTreeMap<Uuid, (Instant, String)>,
}

impl Devices {
    /// Of a host; nothing is looked at yet.
    pub fn new(dir: HostDir) -> Devices {
        Devices {
            dir,
            found: Vec::new(),
            signature: String::new(),
            scanned: None,
            scan,
            looking: None,
            refused: BTreeMap::new(),
        }
    }

    /// All devices, as the monitors are told. None while the first look at them lasts.
    pub fn fact(&mut self, config: &HostConfig) -> Result<Option<String>> {
        let signature = signature(&self.dir, config);
        let is_due = self.scanned.is_none_or(|at| at.elapsed() >= SCAN_EVERY);
        if self.looking.is_some() || is_due || signature != self.signature {
            if self.looking.is_none() {
                self.signature = signature;
            }
            self.look(config, REPORT_WAITS)?;
        }
        if self.scanned.is_none() && self.looking.is_some() && self.found.is_empty() {
            return Ok(None);
        }
        serde_json::to_string(&self.found).map(Some).context("cannot write devices as JSON")
    }

    /// Begins a look, unless one lasts, and waits for its end. False if it is not over by then.
    fn look(&mut self, config: &HostConfig, patience: Duration) -> Result<bool> {
        let looking = match self.looking.take() {
            Some(looking) => looking,
            None => {
                let (done, looking) = mpsc::channel();
                let (scan, dir, config, before) =
                    (self.scan, self.dir.clone(), config.clone(), self.found.clone());
                // A read of a disk that hangs cannot be interrupted, so there is never a second thread.
                let run = move || drop(done.send(scan(&dir, &config, &before)));
                thread::Builder::new().name("devices".into()).spawn(run).context("cannot start a thread")?;
                looking
            }
        };
        match looking.recv_timeout(patience) {
            Ok(found) => {
                self.found = found;
                self.scanned = Some(Instant::now());
                Ok(true)
            }
            Err(RecvTimeoutError::Timeout) => {
                self.looking = Some(looking);
                Ok(false)
            }
            Err(RecvTimeoutError::Disconnected) => bail!("looking at the devices failed"),
        }
    }

    /// As they are now.
    fn look_again(&mut self, config: &HostConfig) -> Result<()> {
        let deadline = Instant::now() + ORDER_WAITS;
        // What lasts may have begun before the last change.
        let mut is_over = self.looking.is_none() || self.look(config, ORDER_WAITS)?;
        is_over = is_over && self.look(config, deadline.saturating_duration_since(Instant::now()))?;
        ensure!(is_over, "the devices of this host do not answer within {} s", ORDER_WAITS.as_secs());
        Ok(())
    }

    /// The device at a path, if what the monitors saw of it is so still, and no OSD of this host is on it.
    pub fn unchanged(&mut self, config: &HostConfig, path: &Path, seen: &Value) -> Result<&Device> {
        self.look_again(config)?;
        let device = self.found.iter().find(|device| !device.missing && is_same(&device.path, path));
        let device = device.with_context(|| format!("{} is not there", path.display()))?;
        let seen = seen.as_object().context("the monitors do not say which device it was")?;
        let now = serde_json::to_value(device)?;
        for (key, seen) in seen {
            let now = &now[key];
            ensure!(
                now == seen,
                "{} is another device by now: its {key} was {seen}, and is {now}",
                path.display()
            );
        }
        let is_own = |osd: &PlannedOsd| {
            let paths = [Some(&osd.path), osd.wal.as_ref()];
            let on = [device.store, device.log_of].contains(&Some(osd.uuid));
            let formats = osd.state != DeviceState::Accepted;
            on || formats && paths.into_iter().flatten().any(|own| is_same(own, path))
        };
        ensure!(!config.devices.iter().any(is_own), "{} has an OSD of this host", path.display());
        Ok(device)
    }

    /// Erases the devices of an OSD, which are found by what is on them. Fails if they are not all there.
    pub fn erase(&mut self, config: &HostConfig, planned: &PlannedOsd) -> Result<()> {
        self.look_again(config)?;
        let copies = self.usable().filter(|device| device.store == Some(planned.uuid));
        let device = only_or_at(copies, Some(&planned.path))?;
        let device = device.context("its device is not on this host: nothing was erased")?;
        let wal = self.wal_of(device, planned.wal.as_deref())?;
        PlannedOsd { path: device.path.clone(), wal, ..planned.clone() }.wipe()
    }

    /// The next report looks at all devices again.
    pub fn rescan(&mut self) {
        self.scanned = None;
        self.refused.clear();
    }

    /// OSDs of this host whose disks have other names by now get new links, and those that other hosts had
    /// are taken over.
    pub fn follow(&mut self, config: &mut HostConfig, client: &BlockingClient) {
        let stores: BTreeSet<Uuid> = self.usable().filter_map(|device| device.store).collect();
        // Disks come and go for as long as the agent runs.
        self.refused.retain(|uuid, _| stores.contains(uuid));
        for uuid in stores {
            if self.refused.get(&uuid).is_some_and(|(asked, _)| asked.elapsed() < ADOPT_EVERY) {
                continue;
            }
            let error = match self.follow_store(config, uuid, client) {
                Ok(()) => String::new(),
                Err(e) => format!("{e:#}"),
            };
            let last = self.refused.get(&uuid).map(|(_, last)| last.as_str()).unwrap_or_default();
            if !error.is_empty() && error != last {
                tracing::warn!("the store {uuid} is there, and its OSD is not started: {error}");
            }
            match error.is_empty() {
                true => drop(self.refused.remove(&uuid)),
                false => drop(self.refused.insert(uuid, (Instant::now(), error))),
            }
        }
    }

    /// Those whose content is their own.
    fn usable(&self) -> impl Iterator<Item = &Device> {
        self.found.iter().filter(|device| !device.missing && !device.has_holder)
    }

    fn follow_store(&self, config: &mut HostConfig, uuid: Uuid, client: &BlockingClient) -> Result<()> {
        let planned = config.devices.iter().position(|osd| osd.uuid == uuid);
        let copies = self.usable().filter(|device| device.store == Some(uuid));
        let device = only_or_at(copies, planned.map(|at| config.devices[at].path.as_path()))?;
        let device = device.context("its device is gone")?;
        match planned {
            // Its making was interrupted, and the label says that the device is its own.
            Some(at) if !is_made(&self.dir, &config.devices[at]) => {
                let _lock = self.dir.lock()?;
                make_osd(&self.dir, config, at, client, Duration::ZERO).map(drop)
            }
            Some(at) => self.relink(config, at, device),
            None => self.adopt(config, device, uuid, client),
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

    /// The device of a store's log, if that is another. `last` is where it was.
    fn wal_of(&self, device: &Device, last: Option<&Path>) -> Result<Option<PathBuf>> {
        if !device.log_is_apart {
            return Ok(None);
        }
        let logs = self.usable().filter(|log| log.log_of == device.store && log.log_of.is_some());
        let log = only_or_at(logs, last)?.context("the device of its log is not on this host")?;
        Ok(Some(log.path.clone()))
    }

    fn relink(&self, config: &mut HostConfig, at: usize, device: &Device) -> Result<()> {
        let PlannedOsd { path, wal, id, .. } = config.devices[at].clone();
        let Some(id) = id else { return Ok(()) };
        let now = self.wal_of(device, wal.as_deref())?;
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
        let wal = self.wal_of(device, None)?;
        let _lock = self.dir.lock()?;
        config.devices.push(PlannedOsd { wal, ..PlannedOsd::adopted(device.path.clone(), uuid) });
        let at = config.devices.len() - 1;
        let made = make_osd(&self.dir, config, at, client, Duration::ZERO);
        if made.is_err() && config.devices[at].id.is_none() {
            config.devices.remove(at);
        }
        tracing::info!("osd.{} is taken over with {}", made?, device.path.display());
        Ok(())
    }
}

/// Of devices with the same label the one at `path`, else the only one. A link never goes from one copy of a
/// store to another: each would miss what was written to the other.
fn only_or_at<'a>(
    copies: impl Iterator<Item = &'a Device>,
    path: Option<&Path>,
) -> Result<Option<&'a Device>> {
    let all: Vec<&Device> = copies.collect();
    if let Some(device) = all.iter().find(|device| path.is_some_and(|path| is_same(path, &device.path))) {
        return Ok(Some(device));
    }
    let names: Vec<String> = all.iter().map(|device| device.path.display().to_string()).collect();
    ensure!(all.len() < 2, "{} have the same label: remove those that are copies", names.join(" and "));
    Ok(all.first().copied())
}

fn is_same(one: &Path, other: &Path) -> bool {
    fs::canonicalize(one).ok() == fs::canonicalize(other).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Target;
    use crate::hosts::dir::Setup;
    use nacre_node::FileDisk;
    use nacre_store::{Options, Store};
    use std::sync::atomic::{AtomicBool, Ordering};

    /// A host with the devices `a` and `b`, and no monitor that answers.
    fn host() -> (tempfile::TempDir, HostDir, HostConfig, BlockingClient) {
        let folder = tempfile::tempdir().unwrap();
        let dir = HostDir::at(folder.path()).unwrap();
        dir.make().unwrap();
        fs::create_dir_all(dir.devices()).unwrap();
        let addr = "10.0.0.1:3300".parse().unwrap();
        let config = HostConfig::new(Uuid::from_u128(1), "h1".to_string(), addr, Setup::Done);
        (folder, dir, config, BlockingClient::connect(Vec::new(), None, 1, 1))
    }

    fn store(dir: &HostDir, name: &str) -> PathBuf {
        let path = dir.devices().join(name);
        let disk = FileDisk::create(&path, 1 << 30).unwrap();
        Store::format(&disk, Options { uuid: 7_u128.to_be_bytes(), ..Options::default() }).unwrap();
        path
    }

    #[test]
    fn link_of_an_osd_never_goes_to_a_copy_of_its_device() {
        let (_folder, dir, mut config, client) = host();
        let (copy, own) = (store(&dir, "a"), store(&dir, "b"));
        let planned = PlannedOsd { id: Some(3), ..PlannedOsd::adopted(own.clone(), Uuid::from_u128(7)) };
        config.devices.push(planned);
        let data = dir.layout().data_dir(&DaemonName::Osd(3));
        fs::create_dir(&data).unwrap();
        fs::write(data.join("daemon.json"), "{}").unwrap();
        let link = dir.layout().store(&DaemonName::Osd(3));
        let mut devices = Devices::new(dir.clone());
        let mut turn = |config: &mut HostConfig| {
            devices.rescan();
            let fact = devices.fact(config).unwrap().unwrap();
            devices.follow(config, &client);
            (config.devices[0].path.clone(), fact.matches("\"duplicate\":true").count())
        };
        assert_eq!(turn(&mut config), (own.clone(), 2));
        // Where its device is, is not known any more, and neither is which of the others is right.
        let (third, moved) = (store(&dir, "c"), dir.devices().join("d"));
        fs::remove_file(&own).unwrap();
        assert_eq!(turn(&mut config), (own.clone(), 2));
        assert!(!link.exists());
        fs::remove_file(&copy).unwrap();
        fs::rename(third, &moved).unwrap();
        assert_eq!(turn(&mut config), (moved.clone(), 0));
        assert_eq!(fs::canonicalize(link).unwrap(), fs::canonicalize(moved).unwrap());
    }

    #[test]
    fn report_does_not_wait_for_a_disk_that_hangs() {
        static ANSWERS: AtomicBool = AtomicBool::new(true);
        let (_folder, dir, config, _) = host();
        let mut devices = Devices::new(dir.clone());
        devices.scan = |dir, config, before| {
            while !ANSWERS.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(5));
            }
            scan(dir, config, before)
        };
        ANSWERS.store(false, Ordering::Relaxed);
        assert_eq!(devices.fact(&config).unwrap(), None, "it is not said that there are none");
        fs::write(dir.devices().join("a"), vec![1; 1 << 20]).unwrap();
        ANSWERS.store(true, Ordering::Relaxed);
        let deadline = Instant::now() + Duration::from_secs(60);
        let fact = |devices: &mut Devices| devices.fact(&config).unwrap().unwrap_or_default();
        while !fact(&mut devices).contains("devices/a") {
            assert!(Instant::now() < deadline, "{}", fact(&mut devices));
        }
        // It hangs later: what was found before is reported.
        ANSWERS.store(false, Ordering::Relaxed);
        devices.rescan();
        assert!(fact(&mut devices).contains("devices/a"));
        ANSWERS.store(true, Ordering::Relaxed);
        devices.look_again(&config).unwrap();
    }

    #[test]
    fn interrupted_osd_is_completed_and_no_other_device_is_touched() {
        let (_folder, dir, mut config, client) = host();
        let (own, other) = (store(&dir, "a"), dir.devices().join("b"));
        fs::write(&other, vec![1; 1 << 20]).unwrap();
        let accepted = PlannedOsd { id: Some(4), ..PlannedOsd::new(other) };
        let begun = PlannedOsd { id: Some(3), ..PlannedOsd::adopted(own, Uuid::from_u128(7)) };
        config.devices = vec![accepted.clone(), PlannedOsd { state: DeviceState::Formatting, ..begun }];
        for id in [3, 4] {
            fs::create_dir(dir.layout().data_dir(&DaemonName::Osd(id))).unwrap();
        }
        let mut devices = Devices::new(dir.clone());
        devices.fact(&config).unwrap();
        devices.follow(&mut config, &client);
        assert_eq!(dir.daemons().unwrap(), [DaemonName::Osd(3)]);
        assert_eq!((&config.devices[0], config.devices[1].state), (&accepted, DeviceState::Formatted));
    }

    #[test]
    fn device_that_is_not_what_the_monitors_saw_is_not_erased() {
        let (_folder, dir, config, _) = host();
        let path = dir.devices().join("a");
        fs::write(&path, vec![1; 1 << 20]).unwrap();
        let mut devices = Devices::new(dir.clone());
        let seen = |devices: &mut Devices| {
            devices.rescan();
            let fact = devices.fact(&config).unwrap().unwrap();
            let all: Vec<Value> = serde_json::from_str(&fact).unwrap();
            let keys = ["size", "serial", "store", "rejected_reasons"];
            Value::Object(keys.map(|key| (key.to_string(), all[0][key].clone())).into_iter().collect())
        };
        let data = seen(&mut devices);
        devices.unchanged(&config, &path, &data).unwrap();
        let why = |refused: Result<&Device>| format!("{:#}", refused.unwrap_err());
        assert!(why(devices.unchanged(&config, &path, &Value::Null)).contains("do not say"));
        // The disk of an OSD has this name now.
        fs::remove_file(&path).unwrap();
        store(&dir, "a");
        assert!(why(devices.unchanged(&config, &path, &data)).contains("another device by now"));
        let own = seen(&mut devices);
        devices.unchanged(&config, &path, &own).unwrap();
        let mut config = config.clone();
        config.devices.push(PlannedOsd::adopted(dir.devices().join("old-name"), Uuid::from_u128(7)));
        assert!(why(devices.unchanged(&config, &path, &own)).contains("has an OSD of this host"));
    }

    #[test]
    fn device_is_erased_where_it_is_now_or_that_fails() {
        let (_folder, dir, mut config, _) = host();
        let old = dir.devices().join("old-name");
        let planned = PlannedOsd { id: Some(3), ..PlannedOsd::adopted(old.clone(), Uuid::from_u128(7)) };
        config.devices = vec![planned.clone()];
        let mut devices = Devices::new(dir.clone());
        // Another disk has the name that its disk had.
        fs::write(&old, vec![1; 1 << 20]).unwrap();
        let refused = devices.erase(&config, &planned).unwrap_err();
        assert!(refused.to_string().contains("is not on this host"), "{refused}");
        assert!(planned.wipe().is_err());
        let own = store(&dir, "new-name");
        devices.erase(&config, &planned).unwrap();
        assert!(Target::open_any(&own, false).is_ok(), "it is not blank");
        assert_eq!(fs::read(&old).unwrap(), vec![1; 1 << 20]);
    }

    #[test]
    fn osd_whose_device_was_copied_is_not_taken_over() {
        let (_folder, dir, mut config, client) = host();
        store(&dir, "a");
        store(&dir, "b");
        let mut devices = Devices::new(dir);
        devices.fact(&config).unwrap();
        devices.follow(&mut config, &client);
        let (_, why) = &devices.refused[&Uuid::from_u128(7)];
        assert!(why.contains("have the same label") && config.devices.is_empty(), "{why}");
    }
}
