//! How devices of a host become OSDs, and are made blank again. `candidates` says which may.

use crate::ask::{ask, command_with};
use crate::config::{DaemonConfig, KindConfig};
use crate::device::Target;
use crate::files::write_secret;
use crate::format::link_to;
use crate::hosts::candidates::{Rejected, inspect, inspect_log_place, log_file_name};
use crate::hosts::dir::{DeviceState, HostConfig, HostDir, Measurements, PlannedOsd};
use crate::hosts::judge::{self, LOG_SIZE, LogPlace};
use crate::keyrings;
use crate::kinds::OsdSettings;
use crate::name::DaemonName;
use crate::size::Size;
use anyhow::{Context, Result, anyhow, ensure};
use bytes::Bytes;
use nacre_auth::Secret;
use nacre_base::errno;
use nacre_client::Failure;
use nacre_node::{BlockingClient, FileDisk};
use nacre_store::{Held, Options as StoreOptions, Store};
use serde::Deserialize;
use serde_json::{Value, json};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// What a log needs besides its own bytes.
pub const LOG_LABELS: u64 = 128 << 10;
const PATIENCE: Duration = Duration::from_secs(20);
/// How long, and how often, the monitors are asked for the OSD on a disk that this host did not report yet.
const ADOPT_PATIENCE: Duration = Duration::from_secs(30);
const ADOPT_AGAIN: Duration = Duration::from_millis(500);

impl PlannedOsd {
    /// For a device that was accepted.
    pub fn new(path: PathBuf) -> PlannedOsd {
        PlannedOsd {
            path,
            wal: None,
            wal_len: None,
            class: None,
            measured: Measurements::default(),
            uuid: Uuid::new_v4(),
            id: None,
            key: None,
            state: DeviceState::Accepted,
        }
    }
    /// For a device that holds an OSD of the cluster.
    pub fn adopted(path: PathBuf, uuid: Uuid) -> PlannedOsd {
        PlannedOsd { uuid, state: DeviceState::Formatted, ..PlannedOsd::new(path) }
    }

    /// Whether what is on the device is this OSD's store, or what an interrupted formatting of it left. The
    /// path may lead to another device by now.
    pub fn is_on(&self, target: &Target) -> Result<bool> {
        Ok(match self.state {
            DeviceState::Accepted => false,
            DeviceState::Formatting => target.store_uuid() == Some(self.uuid) || target.has_only_zeros()?,
            DeviceState::Formatted => target.store_uuid() == Some(self.uuid),
        })
    }

    /// Makes its devices blank. Fails if they do not hold this OSD: a path may lead to another device by now.
    pub fn wipe(&self) -> Result<()> {
        let target = Target::open_any(&self.path, true)?;
        ensure!(self.is_on(&target)?, "{} does not hold this OSD: nothing was erased", self.path.display());
        // The log first: as long as the store is there, this can be repeated.
        self.wipe_log()?;
        target.wipe(target.len).with_context(|| format!("cannot erase {}", self.path.display()))
    }

    /// The name of its log's file, in a folder for logs.
    pub fn log_name(&self) -> String {
        log_file_name(self.uuid)
    }

    /// Whether its log is a file that is made with the OSD, and deleted with it. Nothing else is ever
    /// created: a missing name below `/dev` is a device that is not there.
    pub fn has_log_file(&self) -> bool {
        self.wal.as_ref().and_then(|wal| wal.file_name()).is_some_and(|name| name == self.log_name().as_str())
    }

    /// Whether what is on it is this OSD's log.
    fn is_log_on(&self, log: &Target) -> bool {
        matches!(Held::on(log), Some(Held::Log { uuid, .. }) if uuid == self.uuid.into_bytes())
    }

    /// Makes the device of its log blank, if that is another, or deletes its file. Fails if it holds
    /// something else. One that is blank, or a file that is gone, is from an attempt that was interrupted.
    pub fn wipe_log(&self) -> Result<()> {
        let Some(wal) = &self.wal else { return Ok(()) };
        if self.has_log_file() && !wal.exists() {
            return Ok(());
        }
        let log = Target::open_any(wal, true)?;
        ensure!(
            self.is_log_on(&log) || log.has_only_zeros()?,
            "{} does not hold its log: nothing was erased",
            wal.display()
        );
        let cannot = || format!("cannot erase {}", wal.display());
        match self.has_log_file() {
            true => fs::remove_file(wal).with_context(cannot),
            false => log.wipe(log.len).with_context(cannot),
        }
    }

    /// Opens the device of its log for formatting. It must be blank, or hold what an interrupted attempt
    /// left.
    fn open_log(&self, wal: &Path) -> Result<FileDisk> {
        if self.has_log_file() && !wal.exists() {
            let len = self.wal_len.unwrap_or(LOG_SIZE).0 + LOG_LABELS;
            FileDisk::create(wal, len).with_context(|| format!("cannot make {}", wal.display()))?;
        }
        let log = Target::open_any(wal, true)?;
        ensure!(
            self.is_log_on(&log) || log.has_only_zeros()?,
            "{} holds something else than the log of this OSD: it may be another device by now",
            wal.display()
        );
        if log.is_device()? {
            log.wipe(log.len)?;
        }
        drop(log);
        let mut disk = FileDisk::open(wal).with_context(|| format!("cannot open {}", wal.display()))?;
        if self.has_log_file() {
            disk.preallocate().with_context(|| format!("cannot preallocate {}", wal.display()))?;
        }
        Ok(disk)
    }

    /// Opens the device for formatting. It must be blank, unless this is a repetition.
    fn open_to_format(&self) -> Result<Target> {
        let target = Target::open_any(&self.path, self.state == DeviceState::Formatting)?;
        ensure!(
            self.state != DeviceState::Formatting || self.is_on(&target)?,
            "{} holds something else than what was being written there: it may be another device by now. If its data \
             is not needed, make it blank: `wipefs -a` or `blkdiscard`",
            self.path.display()
        );
        Ok(target)
    }
}

/// Makes OSDs of the planned devices, from where an earlier attempt was interrupted. `done` hears of each.
pub fn make_osds(
    dir: &HostDir,
    config: &mut HostConfig,
    client: &BlockingClient,
    mut done: impl FnMut(u32, &Path),
) -> Result<()> {
    for at in 0..config.devices.len() {
        if !is_made(dir, &config.devices[at]) {
            let id = make_osd(dir, config, at, client, ADOPT_PATIENCE)?;
            done(id, &config.devices[at].path);
        }
    }
    Ok(())
}

/// Whether an OSD is complete, so that its daemon can run.
pub fn is_made(dir: &HostDir, planned: &PlannedOsd) -> bool {
    let config = |id| dir.layout().data_dir(&DaemonName::Osd(id)).join("daemon.json");
    planned.state == DeviceState::Formatted && planned.id.is_some_and(|id| config(id).exists())
}

/// Makes an OSD of one planned device, from where an earlier attempt was interrupted. The agent starts it
/// then.
///
/// Asks the monitors for the OSD on a disk for as long as `patience`, where the agent has not reported the
/// disk yet. The agent itself does not wait for its own report.
pub fn make_osd(
    dir: &HostDir,
    config: &mut HostConfig,
    at: usize,
    client: &BlockingClient,
    patience: Duration,
) -> Result<u32> {
    let id = register(dir, config, at, client, patience)?;
    if config.devices[at].state != DeviceState::Formatted {
        format(dir, config, at, id)?;
    }
    let daemon = DaemonName::Osd(id);
    let any_port = |ip| SocketAddr::new(ip, 0);
    let settings = OsdSettings {
        id,
        uuid: config.devices[at].uuid,
        public_addr: any_port(config.addr.ip()),
        cluster_addr: config.cluster_addr.map(any_port),
        memory: config.memory,
        device_class: config.devices[at].class,
        preallocated: false,
    };
    let Measurements { device, wal } = &config.devices[at].measured;
    for (report, path) in
        [(device, dir.layout().device_report(&daemon)), (wal, dir.layout().wal_report(&daemon))]
    {
        report.as_ref().map_or(Ok(()), |report| report.save(&path))?;
    }
    let common = config.common(dir.layout().data_dir(&daemon), &daemon);
    DaemonConfig::new(common, KindConfig::Osd(settings)).save()?;
    if config.devices[at].measured != Measurements::default() {
        config.devices[at].measured = Measurements::default();
        dir.save(config)?;
    }
    Ok(id)
}

/// How an OSD is to be added to a host.
#[derive(Debug, Default, Deserialize)]
pub struct AddOsd {
    /// Places for its log, of which it takes one.
    #[serde(default)]
    wal: Vec<PathBuf>,
    /// Bytes of that log, if not the default.
    #[serde(default)]
    wal_size: Option<u64>,
    /// Its device is not measured.
    #[serde(default)]
    no_check: bool,
}

/// What is to be done with a blank device that is measured first.
fn plan_osd(path: &Path, with: &AddOsd, taken: &[PlannedOsd]) -> Result<PlannedOsd> {
    let refuse = |path: &Path, rejected: &Rejected| anyhow!("{} {}", path.display(), rejected.what);
    let mut found = inspect(path);
    match with.no_check {
        true => found.set_class(),
        false => found.judge(),
    }
    if let Some(rejected) = &found.rejected {
        return Err(refuse(path, rejected));
    }
    let mut places: Vec<LogPlace> =
        with.wal.iter().map(|path| inspect_log_place(path, with.wal_size.map(Size), &[])).collect();
    // One that holds the log of another OSD of this host is full.
    let is_full =
        |place: &LogPlace| !place.is_folder && taken.iter().any(|osd| osd.wal.as_ref() == Some(&place.path));
    places.retain(|place| !is_full(place));
    if let Some((place, rejected)) = places.iter().find_map(|place| Some((place, place.rejected.as_ref()?))) {
        return Err(refuse(&place.path, rejected));
    }
    for place in places.iter_mut().filter(|_| !with.no_check) {
        place.report = Some(judge::measure(&place.path).map_err(|rejected| refuse(&place.path, &rejected))?);
    }
    let mut osds = [found.plan()];
    if !with.wal.is_empty() {
        let assigned = judge::assign(&mut osds, &places, with.wal_size.map(Size));
        ensure!(assigned.left_over == 0, "the devices for logs have no room");
        assigned.stay.iter().for_each(|why| tracing::info!("the log stays with the data of {why}"));
    }
    let [planned] = osds;
    Ok(planned)
}

/// Makes an OSD of a blank device, from where an earlier attempt was interrupted. One that fails before the
/// device was written to leaves no plan, so that the device is never formatted later by itself.
pub fn add_osd(
    dir: &HostDir,
    config: &mut HostConfig,
    path: &Path,
    with: &AddOsd,
    client: &BlockingClient,
) -> Result<u32> {
    let target = fs::canonicalize(path).with_context(|| format!("cannot find {}", path.display()))?;
    let is_here = |osd: &PlannedOsd| {
        osd.state != DeviceState::Formatted && fs::canonicalize(&osd.path).is_ok_and(|path| path == target)
    };
    let at = match config.devices.iter().position(is_here) {
        Some(at) => at,
        None => {
            let planned = plan_osd(path, with, &config.devices)?;
            config.devices.push(planned);
            config.devices.len() - 1
        }
    };
    let made = make_osd(dir, config, at, client, Duration::ZERO);
    if made.is_err() && config.devices[at].state == DeviceState::Accepted {
        let PlannedOsd { id, .. } = config.devices.remove(at);
        dir.save(config)?;
        return match id {
            Some(id) => {
                made.with_context(|| format!("osd.{id} is not used: `ceph osd purge {id}` forgets it"))
            }
            None => made,
        };
    }
    made
}

/// Has the monitors give the OSD its number, and writes its keyring.
fn register(
    dir: &HostDir,
    config: &mut HostConfig,
    at: usize,
    client: &BlockingClient,
    patience: Duration,
) -> Result<u32> {
    let planned = &mut config.devices[at];
    if let (Some(id), None) = (planned.id, &planned.key) {
        return Ok(id);
    }
    if planned.state == DeviceState::Formatted {
        return adopt(dir, config, at, client, patience);
    }
    let text = planned.key.clone().unwrap_or_else(|| keyrings::new_key().to_base64());
    let key = Secret::from_base64(&text)?;
    let (uuid, path) = (planned.uuid, planned.path.clone());
    // Before the monitors are told: they are told the same when this is repeated.
    planned.key = Some(text.clone());
    dir.save(config)?;
    let words = json!({ "prefix": "osd new", "uuid": uuid.to_string(), "format": "json" });
    let input = Bytes::from(json!({ "cephx_secret": text }).to_string());
    let answer = command_with(client, &words, input, PATIENCE)
        .with_context(|| format!("the monitors refused an OSD on {}", path.display()))?;
    let answer: Value = serde_json::from_slice(&answer).context("the reply is not JSON")?;
    let id = answer["osdid"].as_u64().and_then(|id| u32::try_from(id).ok());
    let id = id.context("the monitors gave the OSD no number")?;
    let keyring = dir.layout().keyring(id);
    write_secret(&keyring, keyrings::text_of_osd(id, &key))?;
    config.devices[at].id = Some(id);
    config.devices[at].key = None;
    dir.save(config)?;
    Ok(id)
}

/// Has the monitors tell the identity of an OSD that a device holds already.
fn adopt(
    dir: &HostDir,
    config: &mut HostConfig,
    at: usize,
    client: &BlockingClient,
    patience: Duration,
) -> Result<u32> {
    let PlannedOsd { path, wal, uuid, .. } = config.devices[at].clone();
    let words =
        json!({ "prefix": "host osd", "name": config.name, "uuid": uuid.to_string(), "format": "json" });
    let deadline = Instant::now() + patience;
    let answer = loop {
        match ask(client, &words) {
            // The agent of this host has not reported the disk yet.
            Err(e) if is_too_early(&e) && Instant::now() < deadline => thread::sleep(ADOPT_AGAIN),
            answer => {
                break answer.with_context(|| format!("cannot take over the OSD on {}", path.display()))?;
            }
        }
    };
    let id = answer["osdid"].as_u64().and_then(|id| u32::try_from(id).ok());
    let (id, key) = id.zip(answer["key"].as_str()).context("the monitors did not say which OSD that is")?;
    write_secret(&dir.layout().keyring(id), keyrings::text_of_osd(id, &Secret::from_base64(key)?))?;
    link_devices(dir, id, &path, wal.as_deref())?;
    config.devices[at].id = Some(id);
    dir.save(config)?;
    Ok(id)
}

/// The agent of this host has not reported the disk yet.
fn is_too_early(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Failure>().is_some_and(|failure| failure.errno == errno::EAGAIN)
}

/// Puts links to the devices of an OSD where its daemon looks.
pub fn link_devices(dir: &HostDir, id: u32, path: &Path, wal: Option<&Path>) -> Result<()> {
    let daemon = DaemonName::Osd(id);
    if let Some(wal) = wal {
        link_to(wal, &dir.layout().wal(&daemon))?;
    }
    link_to(path, &dir.layout().store(&daemon))
}

/// Formats a device that was accepted. What is on it is from an interrupted attempt, or it is refused.
fn format(dir: &HostDir, config: &mut HostConfig, at: usize, id: u32) -> Result<()> {
    let target = config.devices[at].open_to_format().with_context(|| format!("cannot make osd.{id}"))?;
    let planned = config.devices[at].clone();
    let PlannedOsd { path, wal, wal_len, uuid, .. } = planned.clone();
    config.devices[at].state = DeviceState::Formatting;
    dir.save(config)?;
    if target.is_device()? {
        target.wipe(target.len)?;
    }
    drop(target);
    let mut disk = FileDisk::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
    if let Some(wal) = &wal {
        let log = planned.open_log(wal).with_context(|| format!("cannot make the log of osd.{id}"))?;
        disk = disk.with_log(log);
    }
    let options = StoreOptions {
        uuid: uuid.into_bytes(),
        log_id: Uuid::new_v4().into_bytes(),
        log_len: wal_len.map(|len| len.0),
        force: true,
    };
    Store::format(&disk, options).with_context(|| format!("cannot make a store on {}", path.display()))?;
    drop(disk);
    link_devices(dir, id, &path, wal.as_deref())?;
    config.devices[at].state = DeviceState::Formatted;
    dir.save(config)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::hosts::dir::Setup;
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    /// A file with a store that has this uuid.
    pub fn store_in(folder: &Path, name: &str, uuid: u128) -> PathBuf {
        let path = folder.join(name);
        let disk = FileDisk::create(&path, 1 << 30).unwrap();
        Store::format(&disk, StoreOptions { uuid: uuid.to_be_bytes(), ..StoreOptions::default() }).unwrap();
        path
    }

    #[test]
    fn interrupted_formatting_goes_on_with_its_own_store_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let planned = |path: PathBuf| PlannedOsd {
            uuid: Uuid::from_u128(7),
            state: DeviceState::Formatting,
            ..PlannedOsd::new(path)
        };
        planned(store_in(folder.path(), "own", 7)).open_to_format().unwrap();
        // The front was made blank, and the store was not written yet.
        let zeros = folder.path().join("zeros");
        let file = File::create(&zeros).unwrap();
        file.set_len(1 << 30).unwrap();
        file.write_all_at(&[0; 68 << 10], 0).unwrap();
        planned(zeros).open_to_format().unwrap();
        let data = folder.path().join("data");
        fs::write(&data, vec![1; 1 << 20]).unwrap();
        for other in [store_in(folder.path(), "other", 8), data] {
            let refused = planned(other).open_to_format().unwrap_err().to_string();
            assert!(refused.contains("holds something else"), "{refused}");
        }
    }

    #[test]
    fn log_is_made_on_its_device_or_as_a_file_of_its_name_and_never_in_place_of_a_missing_device() {
        let folder = tempfile::tempdir().unwrap();
        let dir = HostDir::at(&folder.path().join("host")).unwrap();
        dir.make().unwrap();
        let addr = "10.0.0.1:3300".parse().unwrap();
        let mut config = HostConfig::new(Uuid::from_u128(1), "h1".to_string(), addr, Setup::Done);
        let blank = |name: &str, len: u64| {
            let path = folder.path().join(name);
            File::create(&path).unwrap().set_len(len).unwrap();
            path
        };
        let planned = |name: &str, id: u32| {
            let path = blank(name, 1 << 30);
            PlannedOsd { id: Some(id), wal_len: Some(Size(64 << 20)), ..PlannedOsd::new(path) }
        };
        let mut on_device = PlannedOsd { wal: Some(blank("log", 256 << 20)), ..planned("a", 1) };
        let mut on_file = planned("b", 2);
        on_file.wal = Some(folder.path().join(on_file.log_name()));
        let missing = PlannedOsd { wal: Some(folder.path().join("nvme0n1p1")), ..planned("c", 3) };
        config.devices = vec![on_device.clone(), on_file.clone(), missing.clone()];
        let client = BlockingClient::connect(Vec::new(), None, 1, 1);
        for (at, osd) in [(0, &mut on_device), (1, &mut on_file)] {
            let id = make_osd(&dir, &mut config, at, &client, Duration::ZERO).unwrap();
            // Its link leads there, and the daemon opens both.
            assert_eq!(fs::read_link(dir.layout().wal(&DaemonName::Osd(id))).ok(), osd.wal);
            Store::open(&crate::store::open_disk(&dir.layout().store(&DaemonName::Osd(id)), None).unwrap())
                .unwrap();
            *osd = config.devices[at].clone();
        }
        let refused = make_osd(&dir, &mut config, 2, &client, Duration::ZERO).unwrap_err();
        assert!(format!("{refused:#}").contains("the log of osd.3"), "{refused:#}");
        assert!(!missing.wal.as_ref().unwrap().exists());
        // Formatting that was interrupted goes on with its own log, and with no other.
        let begun = PlannedOsd { state: DeviceState::Formatting, ..on_device.clone() };
        begun.open_log(begun.wal.as_ref().unwrap()).unwrap();
        let other = PlannedOsd { wal: on_device.wal.clone(), ..planned("d", 4) };
        assert!(other.open_log(other.wal.as_ref().unwrap()).is_err() && other.wipe_log().is_err());
        // What is wiped is blank, and the file is gone.
        [&on_device, &on_file].into_iter().for_each(|osd| osd.wipe().unwrap());
        let log = Target::open_any(on_device.wal.as_ref().unwrap(), true).unwrap();
        assert_eq!(log.content().unwrap(), None);
        assert!(!on_file.wal.as_ref().unwrap().exists());
    }

    #[test]
    fn osd_that_cannot_be_made_leaves_no_plan_unless_its_device_was_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let dir = HostDir::at(folder.path()).unwrap();
        dir.make().unwrap();
        let addr = "10.0.0.1:3300".parse().unwrap();
        let mut config = HostConfig::new(Uuid::from_u128(1), "h1".to_string(), addr, Setup::Done);
        // The monitors gave the OSDs numbers already, so none is asked.
        let client = BlockingClient::connect(Vec::new(), None, 1, 1);
        let path = folder.path().join("data");
        fs::write(&path, vec![1; 1 << 20]).unwrap();
        let planned = |state| PlannedOsd { id: Some(3), state, ..PlannedOsd::new(path.clone()) };
        config.devices = vec![PlannedOsd::new(folder.path().join("other")), planned(DeviceState::Accepted)];
        let refused = add_osd(&dir, &mut config, &path, &AddOsd::default(), &client).unwrap_err();
        assert!(format!("{refused:#}").contains("`ceph osd purge 3`"), "{refused:#}");
        assert_eq!((config.devices.len(), config.devices[0].id), (1, None));
        assert_eq!(dir.load().unwrap(), Some(config.clone()));
        config.devices = vec![planned(DeviceState::Formatting)];
        add_osd(&dir, &mut config, &path, &AddOsd::default(), &client).unwrap_err();
        assert_eq!(
            config.devices,
            [PlannedOsd { uuid: config.devices[0].uuid, ..planned(DeviceState::Formatting) }]
        );
    }
}
