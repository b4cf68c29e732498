//! `nacre osd format`: an OSD of a cluster on a device or file of its own.

use crate::cluster::{Cluster, DaemonName, Layout, make_dir};
use crate::device::{Report, Target, say};
use crate::processes::LockFile;
use crate::size::Size;
use anyhow::{Context, Result, bail, ensure};
use nacre_node::FileDisk;
use nacre_store::{Options as StoreOptions, Store};
use rustix::fs::{FallocateFlags, fallocate};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub struct Options {
    /// The folder that holds the cluster.
    #[arg(long, value_name = "DIR", default_value = crate::DATA_DEFAULT)]
    data: PathBuf,
    /// A block device, or a file (which is made if it is not there)
    #[arg(long, value_name = "PATH")]
    dev: PathBuf,
    /// Size of a file that is made
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,
    /// Do not measure the device first
    #[arg(long)]
    no_check: bool,
    /// Overwrite what the device holds
    #[arg(long)]
    force: bool,
}

pub fn format(options: &Options) -> Result<()> {
    let (layout, mut cluster) = Layout::open(&options.data)?;
    let _lock = LockFile::take(layout.lock())?
        .with_context(|| format!("`nacre up` works on {}", options.data.display()))?;
    let dev = std::path::absolute(&options.dev)?;
    let is_new = make_file(&dev, options)?;
    let made = add(&layout, &mut cluster, &dev, options);
    if made.is_err() && is_new {
        fs::remove_file(&dev).with_context(|| format!("cannot remove {}", dev.display()))?;
    }
    let (daemon, report) = made?;
    if let Some(report) = report {
        say(format_args!("{}", report.render()));
    }
    say(format_args!(
        "{daemon} is made on {}. It joins with the next `nacre up`, or now with `nacre start {daemon}`.",
        dev.display()
    ));
    Ok(())
}

/// True if there was none.
fn make_file(dev: &Path, options: &Options) -> Result<bool> {
    match (fs::metadata(dev), options.size) {
        (Ok(_), None) => Ok(false),
        (Ok(_), Some(_)) => bail!("{} exists: it has the size that it has", dev.display()),
        (Err(_), None) => bail!("there is no {}: --size makes a file of that size", dev.display()),
        (Err(_), Some(size)) => {
            FileDisk::create(dev, size.0).with_context(|| format!("cannot make {}", dev.display()))?;
            Ok(true)
        }
    }
}

/// Nothing of it counts before the last step, which writes the OSD into the cluster's list.
fn add(
    layout: &Layout,
    cluster: &mut Cluster,
    dev: &Path,
    options: &Options,
) -> Result<(DaemonName, Option<Report>)> {
    let daemon = DaemonName::Osd(cluster.next_osd());
    ensure!(!dev.is_dir(), "{} is a folder: `nacre up --osds` makes OSDs in folders", dev.display());
    let target = Target::open(dev, options.force)?;
    let uuid = cluster.add_osd(Size(target.len))?.uuid;
    let report = match options.no_check {
        true => None,
        false => {
            let report = Report::measure(dev, &target, true)?;
            // What was written for that means nothing; where it cannot be given back it is written over.
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let _ = fallocate(&target.file, punch, 0, target.len);
            Some(report)
        }
    };
    drop(target);
    let disk = FileDisk::open(dev).with_context(|| format!("cannot open {}", dev.display()))?;
    Store::format(&disk, StoreOptions { uuid: uuid.into_bytes(), force: true, ..StoreOptions::default() })
        .with_context(|| format!("cannot make a store on {}", dev.display()))?;
    drop(disk);

    let link = layout.store(&daemon);
    make_dir(link.parent().expect("a store is in a folder"))?;
    match fs::symlink_metadata(&link) {
        // Of an attempt that did not come to its end.
        Ok(old) if old.is_symlink() => {
            fs::remove_file(&link).with_context(|| format!("cannot remove {}", link.display()))?;
        }
        Ok(_) => bail!("{} is in the way: no OSD of this cluster owns it", link.display()),
        Err(_) => {}
    }
    symlink(dev, &link).with_context(|| format!("cannot make {}", link.display()))?;
    if let Some(report) = &report {
        report.save(&layout.device_report(&daemon))?;
    }
    layout.save(cluster)?;
    Ok((daemon, report))
}
