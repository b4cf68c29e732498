//! Devices of a host: which may become OSDs, and how they do.

use crate::ask::{ask, command_with};
use crate::config::{DaemonConfig, KindConfig};
use crate::device::Target;
use crate::files::write_secret;
use crate::format::link_to;
use crate::hosts::dir::{DeviceState, HostConfig, HostDir, PlannedOsd};
use crate::keyrings;
use crate::kinds::OsdSettings;
use crate::name::DaemonName;
use crate::size::Size;
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use nacre_auth::Secret;
use nacre_base::errno;
use nacre_client::Failure;
use nacre_node::{BlockingClient, FileDisk};
use nacre_store::{Held, Options as StoreOptions, Store};
use serde_json::{Value, json};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// A smaller store has no space for its own log.
const SIZE_MIN: Size = Size(1 << 30);
/// Found by itself, a smaller one is more likely something else.
const AUTO_SIZE_MIN: u64 = 5 << 30;
const PATIENCE: Duration = Duration::from_secs(20);
/// How long, and how often, the monitors are asked for the OSD on a disk that this host did not report yet.
const ADOPT_PATIENCE: Duration = Duration::from_secs(30);
const ADOPT_AGAIN: Duration = Duration::from_millis(500);

/// What `--devices` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Devices {
    /// All blank disks.
    Auto,
    None,
    List(Vec<PathBuf>),
}

impl FromStr for Devices {
    type Err = anyhow::Error;
    fn from_str(text: &str) -> Result<Devices> {
        Ok(match text {
            "auto" => Devices::Auto,
            "none" => Devices::None,
            text => {
                let paths = text.split(',').map(str::trim);
                ensure!(paths.clone().all(|path| !path.is_empty()), "`{text}` has an empty path");
                Devices::List(paths.map(PathBuf::from).collect())
            }
        })
    }
}

/// A device that may become an OSD.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub path: PathBuf,
    /// Bytes.
    pub size: u64,
    /// None: it may.
    pub rejected: Option<Rejected>,
    /// It holds a store, whose uuid this is. Whether that is one of the cluster's OSDs, the monitors know.
    pub holds: Option<Uuid>,
}

impl Candidate {
    /// What is to be done with a device that may become an OSD, or is one.
    pub fn plan(&self) -> PlannedOsd {
        match self.holds {
            Some(uuid) => PlannedOsd::adopted(self.path.clone(), uuid),
            None => PlannedOsd::new(self.path.clone()),
        }
    }
}

/// Why not.
#[derive(Clone, Debug)]
pub struct Rejected {
    pub what: String,
    pub cure: String,
}

impl Devices {
    /// Each is opened and looked at, and none is changed.
    pub fn candidates(&self) -> Result<Vec<Candidate>> {
        Ok(match self {
            Devices::None => Vec::new(),
            Devices::Auto => disks().iter().map(|path| inspect(path)).collect(),
            Devices::List(paths) => {
                let mut found: Vec<Candidate> = Vec::new();
                for path in paths {
                    let path = std::path::absolute(path)?;
                    let target = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
                    let same =
                        |other: &Candidate| fs::canonicalize(&other.path).ok().as_ref() == Some(&target);
                    ensure!(!found.iter().any(same), "{} is named twice", path.display());
                    found.push(inspect(&path));
                }
                found
            }
        })
    }
}

/// Whole disks that have no partitions and are large enough.
fn disks() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_other =
            ["loop", "ram", "zram", "sr", "fd", "dm-", "md", "nbd"].iter().any(|kind| name.starts_with(kind));
        let sectors = fs::read_to_string(entry.path().join("size"))
            .ok()
            .and_then(|text| text.trim().parse::<u64>().ok());
        let has_parts = fs::read_dir(entry.path())
            .into_iter()
            .flatten()
            .flatten()
            .any(|part| part.path().join("partition").exists());
        if !is_other && !has_parts && sectors.unwrap_or(0) * 512 >= AUTO_SIZE_MIN {
            found.push(Path::new("/dev").join(name));
        }
    }
    found.sort();
    found
}

fn inspect(path: &Path) -> Candidate {
    let rejected = |what: String, cure: &str| Candidate {
        path: path.to_path_buf(),
        size: 0,
        rejected: Some(Rejected { what, cure: cure.to_string() }),
        holds: None,
    };
    match fs::metadata(path) {
        Err(e) => {
            return rejected(
                e.to_string(),
                "name an existing device, or make a file with `truncate -s 100G FILE`",
            );
        }
        Ok(kind) if kind.is_dir() => {
            return rejected("is a folder".to_string(), "name a device, or a file in that folder");
        }
        Ok(_) => {}
    }
    let opened = Target::open_any(path, true).and_then(|target| Ok((target.content()?, target)));
    let unusable =
        "name another device, or, if its data is not needed, make it blank: `wipefs -a` or `blkdiscard`";
    match opened {
        Err(e) => {
            let text = format!("{e:#}");
            // The path is the name of the check.
            rejected(
                text.strip_prefix(&format!("{} ", path.display())).unwrap_or(&text).to_string(),
                unusable,
            )
        }
        Ok((Some(what), target)) => match target.store_uuid() {
            Some(uuid) => {
                let cure =
                    "join the cluster that it belongs to, or, if its data is not needed, make it blank";
                let what = "holds the store of an OSD".to_string();
                Candidate { size: target.len, holds: Some(uuid), ..rejected(what, cure) }
            }
            None => rejected(format!("contains {what}"), unusable),
        },
        Ok((None, target)) if target.len < SIZE_MIN.0 => {
            rejected(format!("has {} bytes, the minimum is {SIZE_MIN}", target.len), "name a larger device")
        }
        Ok((None, target)) => {
            Candidate { path: path.to_path_buf(), size: target.len, rejected: None, holds: None }
        }
    }
}

impl PlannedOsd {
    /// For a device that was accepted.
    pub fn new(path: PathBuf) -> PlannedOsd {
        PlannedOsd {
            path,
            wal: None,
            uuid: Uuid::new_v4(),
            id: None,
            key: None,
            state: DeviceState::Accepted,
        }
    }
    /// For a device that holds an OSD of the cluster.
    pub fn adopted(path: PathBuf, uuid: Uuid) -> PlannedOsd {
        PlannedOsd { path, wal: None, uuid, id: None, key: None, state: DeviceState::Formatted }
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
        let own = |held| matches!(held, Held::Log { uuid, .. } if uuid == self.uuid.into_bytes());
        let target = Target::open_any(&self.path, true)?;
        ensure!(self.is_on(&target)?, "{} does not hold this OSD: nothing was erased", self.path.display());
        // The log first: as long as the store is there, this can be repeated.
        if let Some(wal) = &self.wal {
            let log = Target::open_any(wal, true)?;
            ensure!(
                Held::on(&log).is_some_and(own),
                "{} does not hold its log: nothing was erased",
                wal.display()
            );
            log.wipe(log.len).with_context(|| format!("cannot erase {}", wal.display()))?;
        }
        target.wipe(target.len).with_context(|| format!("cannot erase {}", self.path.display()))
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
            let id = make_osd(dir, config, at, client)?;
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
pub fn make_osd(dir: &HostDir, config: &mut HostConfig, at: usize, client: &BlockingClient) -> Result<u32> {
    let id = register(dir, config, at, client)?;
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
        preallocated: false,
    };
    let common = config.common(dir.layout().data_dir(&daemon), &daemon);
    DaemonConfig::new(common, KindConfig::Osd(settings)).save()?;
    Ok(id)
}

/// Makes an OSD of a blank device, from where an earlier attempt was interrupted. One that fails before the
/// device was written to leaves no plan, so that the device is never formatted later by itself.
pub fn add_osd(dir: &HostDir, config: &mut HostConfig, path: &Path, client: &BlockingClient) -> Result<u32> {
    let target = fs::canonicalize(path).with_context(|| format!("cannot find {}", path.display()))?;
    let is_here = |osd: &PlannedOsd| {
        osd.state != DeviceState::Formatted && fs::canonicalize(&osd.path).is_ok_and(|path| path == target)
    };
    let at = match config.devices.iter().position(is_here) {
        Some(at) => at,
        None => {
            // Opened to see that it is blank, as it is again when it is formatted.
            drop(Target::open_any(path, false)?);
            config.devices.push(PlannedOsd::new(path.to_path_buf()));
            config.devices.len() - 1
        }
    };
    let made = make_osd(dir, config, at, client);
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
fn register(dir: &HostDir, config: &mut HostConfig, at: usize, client: &BlockingClient) -> Result<u32> {
    let planned = &mut config.devices[at];
    if let (Some(id), None) = (planned.id, &planned.key) {
        return Ok(id);
    }
    if planned.state == DeviceState::Formatted {
        return adopt(dir, config, at, client);
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
fn adopt(dir: &HostDir, config: &mut HostConfig, at: usize, client: &BlockingClient) -> Result<u32> {
    let PlannedOsd { path, wal, uuid, .. } = config.devices[at].clone();
    let words =
        json!({ "prefix": "host osd", "name": config.name, "uuid": uuid.to_string(), "format": "json" });
    let deadline = Instant::now() + ADOPT_PATIENCE;
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
    let PlannedOsd { path, uuid, .. } = config.devices[at].clone();
    config.devices[at].state = DeviceState::Formatting;
    dir.save(config)?;
    if target.is_device()? {
        target.wipe(target.len)?;
    }
    drop(target);
    let disk = FileDisk::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
    let options = StoreOptions {
        uuid: uuid.into_bytes(),
        log_id: Uuid::new_v4().into_bytes(),
        force: true,
        ..StoreOptions::default()
    };
    Store::format(&disk, options).with_context(|| format!("cannot make a store on {}", path.display()))?;
    drop(disk);
    link_to(&path, &dir.layout().store(&DaemonName::Osd(id)))?;
    config.devices[at].state = DeviceState::Formatted;
    dir.save(config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::dir::Setup;
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    #[test]
    fn devices_are_a_list_or_found() {
        assert_eq!("auto".parse::<Devices>().unwrap(), Devices::Auto);
        assert_eq!("none".parse::<Devices>().unwrap(), Devices::None);
        let list = Devices::List(vec!["/dev/vdb".into(), "a".into()]);
        assert_eq!("/dev/vdb,a".parse::<Devices>().unwrap(), list);
        assert!("/dev/vdb,".parse::<Devices>().is_err());
    }

    #[test]
    fn device_that_holds_data_or_is_too_small_is_rejected_with_a_reason() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        File::create(path("good")).unwrap().set_len(2 << 30).unwrap();
        File::create(path("small")).unwrap().set_len(1 << 20).unwrap();
        fs::write(path("data"), vec![1; 4096]).unwrap();
        let list = ["good", "small", "data", "none", "."].map(path).to_vec();
        let found = Devices::List(list).candidates().unwrap();
        let reason = |at: usize| found[at].rejected.as_ref().map(|rejected| rejected.what.clone());
        assert_eq!((reason(0), found[0].size), (None, 2 << 30));
        for (at, part) in
            [(1, "the minimum is 1G"), (2, "contains data"), (3, "No such file"), (4, "is a folder")]
        {
            assert!(reason(at).unwrap().contains(part), "{at}: {:?}", reason(at));
        }
        assert!(Devices::List(vec![path("good"), path("good")]).candidates().is_err());
    }

    /// A file with a store that has this uuid.
    fn store_in(folder: &Path, name: &str, uuid: u128) -> PathBuf {
        let path = folder.join(name);
        let disk = FileDisk::create(&path, 1 << 30).unwrap();
        Store::format(&disk, StoreOptions { uuid: uuid.to_be_bytes(), ..StoreOptions::default() }).unwrap();
        path
    }

    #[test]
    fn store_on_a_device_is_recognised_and_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = store_in(folder.path(), "store", 7);
        // A daemon that opened it would renew the copy of the superblock that is damaged.
        let file = File::options().read(true).write(true).open(&path).unwrap();
        file.write_all_at(&[9; 64], 0).unwrap();
        let front = || {
            let mut front = vec![0; 128 << 10];
            file.read_exact_at(&mut front, 0).unwrap();
            front
        };
        let before = front();
        let found = Devices::List(vec![path.clone()]).candidates().unwrap();
        assert_eq!((found[0].holds, found[0].size), (Some(Uuid::from_u128(7)), 1 << 30));
        assert!(front() == before, "it was written to");
        // A daemon runs on it: it is not read.
        let _daemon = FileDisk::open(&path).unwrap();
        let found = Devices::List(vec![path]).candidates().unwrap();
        let reason = found[0].rejected.as_ref().unwrap().what.clone();
        assert!(found[0].holds.is_none() && reason.contains("in use"), "{reason}");
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
        let refused = add_osd(&dir, &mut config, &path, &client).unwrap_err();
        assert!(format!("{refused:#}").contains("`ceph osd purge 3`"), "{refused:#}");
        assert_eq!((config.devices.len(), config.devices[0].id), (1, None));
        assert_eq!(dir.load().unwrap(), Some(config.clone()));
        config.devices = vec![planned(DeviceState::Formatting)];
        add_osd(&dir, &mut config, &path, &client).unwrap_err();
        assert_eq!(
            config.devices,
            [PlannedOsd { uuid: config.devices[0].uuid, ..planned(DeviceState::Formatting) }]
        );
    }
}
