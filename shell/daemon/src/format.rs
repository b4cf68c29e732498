//! `nacre osd format` adds an OSD on a device or file, `nacre osd move-wal` moves its log, and `nacre osd
//! forget` deletes the files of an OSD that was purged.

use crate::ask::{ask, connect};
use crate::cluster::Cluster;
use crate::device::{Report, Target, say};
use crate::files::{make_parent, remove_if_there};
use crate::folder::Layout;
use crate::name::DaemonName;
use crate::processes::{ensure_stopped, open_to_change};
use crate::size::Size;
use crate::store::{open_alone, open_disk};
use crate::{Auth, keyrings};
use anyhow::{Context, Result, bail, ensure};
use nacre_node::FileDisk;
use nacre_store::{Disk, MoveTo, Options as StoreOptions, Store};
use serde_json::json;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use uuid::Uuid;

#[derive(clap::Args)]
pub struct Options {
    /// Folder of the cluster.
    #[arg(long, value_name = "DIR", default_value = crate::DATA_DEFAULT)]
    data: PathBuf,
    /// Block device or file; with --size, a missing file is created
    #[arg(long, value_name = "PATH")]
    dev: PathBuf,
    /// Id of a destroyed or purged OSD to replace, such as `2` for `osd.2` [default: the next free id]
    #[arg(long, value_name = "N")]
    id: Option<u32>,
    /// Size of the file to create
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,
    /// Allocate the file completely, so that no write waits for the file system
    #[arg(long)]
    preallocate: bool,
    /// Device or file for the write-ahead log, which small writes wait for. With --wal-size, a missing file
    /// is created
    #[arg(long, value_name = "PATH")]
    wal: Option<PathBuf>,
    /// Size of the log [default: the whole device, up to 1 GiB]
    #[arg(long, value_name = "SIZE", requires = "wal")]
    wal_size: Option<Size>,
    /// Skip the measurement of the devices
    #[arg(long)]
    no_check: bool,
    /// Overwrite data on the device
    #[arg(long)]
    force: bool,
}

#[derive(clap::Args)]
pub struct Forget {
    /// Folder of the cluster.
    #[arg(long, value_name = "DIR", default_value = crate::DATA_DEFAULT)]
    data: PathBuf,
    /// Id of the OSD: `2` for `osd.2`
    #[arg(long, value_name = "N")]
    id: u32,
}

#[derive(clap::Args)]
pub struct MoveWal {
    /// The OSD, such as `osd.3`. It must be stopped
    daemon: DaemonName,
    /// Folder of the cluster.
    #[arg(long, value_name = "DIR", default_value = crate::DATA_DEFAULT)]
    data: PathBuf,
    /// New device or file of the log. With --wal-size, a missing file is created
    #[arg(long, value_name = "PATH", required_unless_present = "back", conflicts_with = "back")]
    wal: Option<PathBuf>,
    /// Size of the log [default: the whole device, up to 1 GiB]
    #[arg(long, value_name = "SIZE", requires = "wal")]
    wal_size: Option<Size>,
    /// Move the log back to the device of the data, if the OSD was formatted with its log there
    #[arg(long)]
    back: bool,
    /// Overwrite data on the device
    #[arg(long)]
    force: bool,
}

pub fn format(options: &Options) -> Result<()> {
    let (layout, mut cluster, _lock) = open_to_change(&options.data)?;
    let dev = std::path::absolute(&options.dev)?;
    let wal = options.wal.as_deref().map(std::path::absolute).transpose()?;
    ensure!(wal.as_ref() != Some(&dev), "the log is on the device by default: --wal names another device");
    let replaces = options.id.map(|id| ensure_given_up(&layout, &cluster, id, true)).transpose()?;
    let mut new = NewFiles::default();
    new.make(&dev, options.size)?;
    if let Some(wal) = &wal {
        // What is there may be larger than what the log shall take of it.
        new.make(wal, options.wal_size.filter(|_| !wal.exists()).map(with_labels))?;
    }
    let made = add(&layout, &mut cluster, &dev, wal.as_deref(), options);
    if made.is_ok() {
        new.keep();
    }
    let (daemon, reports) = made?;
    for report in reports.device.iter().chain(&reports.wal) {
        say(format_args!("{}", report.render()));
    }
    say(format_args!(
        "{daemon} was created on {}. It joins at the next `nacre up`, or now with `nacre start {daemon}`{}.",
        dev.display(),
        if replaces == Some(true) { ", in place of the destroyed OSD" } else { "" }
    ));
    Ok(())
}

pub fn forget(options: &Forget) -> Result<()> {
    let (layout, mut cluster, _lock) = open_to_change(&options.data)?;
    let daemon = DaemonName::Osd(options.id);
    cluster.ensure_has(&daemon)?;
    ensure_given_up(&layout, &cluster, options.id, false)?;
    cluster.remove_osd(options.id);
    ensure!(!cluster.osds.is_empty(), "{daemon} is the last OSD of this folder");
    layout.save(&cluster)?;
    layout.remove(&daemon)?;
    say(format_args!(
        "{daemon} was removed from the folder. A separate device or file of it was left as it is."
    ));
    Ok(())
}

/// Fails if the cluster still needs what an OSD stores, or if the OSD runs. True if the OSD was destroyed, so
/// that its number waits for another disk.
fn ensure_given_up(layout: &Layout, cluster: &Cluster, id: u32, may_wait: bool) -> Result<bool> {
    let daemon = DaemonName::Osd(id);
    ensure_stopped(layout, &daemon)?;
    let map = ask(&connect(layout, cluster)?, &json!({ "prefix": "osd dump", "format": "json" }))
        .context("no monitor replied whether the OSD is still part of the cluster")?;
    let Some(osd) = map["osds"].as_array().into_iter().flatten().find(|osd| osd["osd"] == json!(id)) else {
        return Ok(false);
    };
    let waits = osd["state"].as_array().is_some_and(|state| state.contains(&json!("destroyed")));
    let how = if may_wait { "destroy" } else { "purge" };
    ensure!(
        waits && may_wait,
        "{daemon} is part of the cluster: run `ceph osd out {id}`, wait until `ceph osd safe-to-destroy \
         {id}` succeeds, stop it, and run `ceph osd {how} {id}`"
    );
    Ok(true)
}

/// Files that this command made, which are removed if it fails.
#[derive(Default)]
struct NewFiles(Vec<PathBuf>);

impl NewFiles {
    /// `size` is for a file that does not exist.
    fn make(&mut self, path: &Path, size: Option<Size>) -> Result<()> {
        match (fs::metadata(path), size) {
            (Ok(_), None) => Ok(()),
            (Ok(_), Some(_)) => {
                bail!("{} exists, and its size cannot be changed: omit the size", path.display())
            }
            (Err(_), None) => bail!("{} does not exist: give a size to create a file", path.display()),
            (Err(_), Some(size)) => {
                FileDisk::create(path, size.0).with_context(|| format!("cannot make {}", path.display()))?;
                self.0.push(path.to_path_buf());
                Ok(())
            }
        }
    }
    fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for NewFiles {
    fn drop(&mut self) {
        for path in &self.0 {
            if let Err(e) = fs::remove_file(path) {
                say(format_args!("cannot remove {}: {e}", path.display()));
            }
        }
    }
}

/// The size of a device for a log of this size, with the labels before it.
fn with_labels(log: Size) -> Size {
    Size(log.0 + LABELS)
}
const LABELS: u64 = 128 << 10;

/// Puts a link where the daemon looks for its store, or its log.
pub fn link_to(target: &Path, link: &Path) -> Result<()> {
    make_parent(link)?;
    match fs::symlink_metadata(link) {
        // From an attempt that was interrupted.
        Ok(old) if old.is_symlink() => {
            fs::remove_file(link).with_context(|| format!("cannot remove {}", link.display()))?;
        }
        Ok(_) => bail!("{} exists and belongs to no OSD of this cluster: remove it first", link.display()),
        Err(_) => {}
    }
    symlink(target, link).with_context(|| format!("cannot make {}", link.display()))
}

/// May take a while.
pub fn preallocate(disk: &mut FileDisk, path: &Path) -> Result<()> {
    say(format_args!("Preallocating {} for {} ...", Size(disk.len()), path.display()));
    disk.preallocate().with_context(|| format!("cannot preallocate {}", path.display()))
}

fn open_wal(wal: &Path) -> Result<FileDisk> {
    ensure!(!wal.is_dir(), "{} is a folder", wal.display());
    open_alone(wal).context("the log's device")
}

pub fn move_wal(options: &MoveWal) -> Result<()> {
    let (layout, cluster) = Layout::open(&options.data)?;
    let daemon = &options.daemon;
    cluster.ensure_has(daemon)?;
    let path = layout.store(daemon);
    let data = open_alone(&path)?;
    let mut new = NewFiles::default();
    let wal = options.wal.as_deref().map(std::path::absolute).transpose()?;
    let device = match &wal {
        Some(wal) => {
            new.make(wal, options.wal_size.filter(|_| !wal.exists()).map(with_labels))?;
            Some(open_wal(wal)?)
        }
        None => None,
    };
    let there = match &device {
        Some(device) => data.clone().with_log(device.clone()),
        None => data.clone(),
    };
    // Otherwise an earlier attempt moved the log, and was interrupted before it changed the link.
    if Store::open(&there).is_err() {
        drop((data, there));
        let disk = open_disk(&path, None)?;
        let (store, _) = Store::open(&disk).with_context(|| format!("cannot use {}", path.display()))?;
        let to = MoveTo {
            device: device.as_ref().map(|device| device as &dyn Disk),
            log_len: options.wal_size.map(|size| size.0),
            log_id: Uuid::new_v4().into_bytes(),
            force: options.force,
        };
        store.move_log(&disk, to).with_context(|| format!("cannot move the log of {daemon}"))?;
    }
    new.keep();
    // It was about the old device.
    remove_if_there(&layout.wal_report(daemon))?;
    let link = layout.wal(daemon);
    match &wal {
        Some(wal) => {
            link_to(wal, &link)?;
            say(format_args!("the log of {daemon} is now on {}.", wal.display()));
        }
        None => {
            if fs::symlink_metadata(&link).is_ok() {
                fs::remove_file(&link).with_context(|| format!("cannot remove {}", link.display()))?;
            }
            say(format_args!("the log of {daemon} is now on the device of its data."));
        }
    }
    Ok(())
}

/// The measurements of an OSD's devices.
#[derive(Default)]
struct Reports {
    device: Option<Report>,
    wal: Option<Report>,
}

/// The last step adds the OSD to the cluster's list. Until then nothing has happened to the cluster.
fn add(
    layout: &Layout,
    cluster: &mut Cluster,
    dev: &Path,
    wal: Option<&Path>,
    options: &Options,
) -> Result<(DaemonName, Reports)> {
    let id = options.id.unwrap_or(cluster.next_osd());
    let daemon = DaemonName::Osd(id);
    ensure!(!dev.is_dir(), "{} is a folder: create OSDs in folders with `nacre up --osds`", dev.display());
    let places = [layout.store(&daemon), layout.wal(&daemon)];
    ensure!(
        places.iter().all(|place| place != dev && Some(&**place) != wal),
        "{} and {} are links to the devices: choose another file",
        places[0].display(),
        places[1].display()
    );
    // Both are checked before either is written to.
    let target = Target::open(dev, options.force)?;
    let wal_target = wal.map(|wal| Target::open_any(wal, options.force)).transpose()?;
    let uuid = cluster.add_osd(id, Size(target.len), options.preallocate)?.uuid;
    let mut reports = Reports::default();
    if !options.no_check {
        reports.device = Some(Report::measure(dev, &target, true)?);
        // A small log cannot be measured.
        if let (Some(wal), Some(target)) = (wal, wal_target.as_ref().filter(|wal| wal.can_be_measured())) {
            reports.wal = Some(Report::measure(wal, target, true)?);
        }
    }
    if target.is_device()? {
        // Also what the measurement did not overwrite: the store discards only what becomes free later.
        target.wipe(target.len)?;
    }
    drop((target, wal_target));
    let mut disk = FileDisk::open(dev).with_context(|| format!("cannot open {}", dev.display()))?;
    if let Some(wal) = wal {
        let mut log = open_wal(wal)?;
        if options.preallocate {
            preallocate(&mut log, wal)?;
        }
        disk = disk.with_log(log);
    }
    if options.preallocate {
        preallocate(&mut disk, dev)?;
    }
    let store_options = StoreOptions {
        uuid: uuid.into_bytes(),
        log_len: options.wal_size.map(|size| size.0),
        log_id: Uuid::new_v4().into_bytes(),
        force: true,
    };
    Store::format(&disk, store_options)
        .with_context(|| format!("cannot make a store on {}", dev.display()))?;
    drop(disk);

    if options.id.is_some() {
        places.iter().try_for_each(|place| remove_if_there(place))?;
    }
    if let Some(wal) = wal {
        link_to(wal, &layout.wal(&daemon))?;
    }
    link_to(dev, &layout.store(&daemon))?;
    let kept = [(&reports.device, layout.device_report(&daemon)), (&reports.wal, layout.wal_report(&daemon))];
    for (report, path) in kept {
        match report {
            Some(report) => report.save(&path)?,
            None => remove_if_there(&path)?,
        }
    }
    if cluster.auth == Auth::Cephx {
        keyrings::make_osd(layout, id, false)?;
    }
    layout.save(cluster)?;
    Ok((daemon, reports))
}
