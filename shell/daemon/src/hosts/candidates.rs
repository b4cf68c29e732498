//! Devices that may become OSDs of a host, or hold their logs, as they are before that.

use crate::device::{Report, Target, claims};
use crate::hosts::devices::LOG_LABELS;
use crate::hosts::dir::{Measurements, PlannedOsd};
use crate::hosts::inventory::{self, Device};
use crate::hosts::judge::{self, Class, LOG_SIZE, LogPlace, class_of};
use crate::size::Size;
use anyhow::{Result, ensure};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use uuid::Uuid;

/// A smaller store has no space for its own log.
const SIZE_MIN: Size = Size(1 << 30);
/// A smaller log is full before a checkpoint is made.
const LOG_MIN: Size = Size(64 << 20);
/// Found by itself, a smaller one is more likely something else.
const AUTO_SIZE_MIN: u64 = 5 << 30;

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
    /// The log of that store is on another device.
    pub log_is_apart: bool,
    /// What was measured, if it was.
    pub report: Option<Report>,
    /// Its device class.
    pub class: Option<Class>,
}

impl Candidate {
    /// A device that may become an OSD, and was not measured.
    pub fn blank(path: PathBuf, size: u64) -> Candidate {
        Candidate { path, size, rejected: None, holds: None, log_is_apart: false, report: None, class: None }
    }

    /// What is to be done with a device that may become an OSD, or is one.
    pub fn plan(&self) -> PlannedOsd {
        let planned = match self.holds {
            Some(uuid) => PlannedOsd::adopted(self.path.clone(), uuid),
            None => PlannedOsd::new(self.path.clone()),
        };
        let measured = Measurements { device: self.report.clone(), wal: None };
        PlannedOsd { class: self.class, measured, ..planned }
    }

    /// Measures it, if it may become an OSD, and gives it a class. One that cannot be measured is rejected.
    pub fn judge(&mut self) {
        if self.rejected.is_some() {
            return;
        }
        if self.holds.is_none() {
            match judge::measure(&self.path) {
                Ok(report) => self.report = Some(report),
                Err(rejected) => self.rejected = Some(rejected),
            }
        }
        self.set_class();
    }

    /// It cannot become an OSD.
    pub fn reject(&mut self, what: &str, cure: &str) {
        self.rejected = Some(Rejected { what: what.to_string(), cure: cure.to_string() });
    }

    /// Its class by what is known of it.
    pub fn set_class(&mut self) {
        self.class = match &self.report {
            Some(report) => Some(class_of(report.claims(), Some(report.read()))),
            None => File::open(&self.path).ok().map(|file| class_of(&claims(&file), None)),
        };
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

/// Looks at a device, and changes nothing.
pub fn inspect(path: &Path) -> Candidate {
    let candidate =
        |size, rejected, holds| Candidate { rejected, holds, ..Candidate::blank(path.to_path_buf(), size) };
    let rejected = |what: String, cure: &str| Some(Rejected { what, cure: cure.to_string() });
    match fs::metadata(path) {
        Err(e) => {
            let cure = "name an existing device, or make a file with `truncate -s 100G FILE`";
            return candidate(0, rejected(e.to_string(), cure), None);
        }
        Ok(kind) if kind.is_dir() => {
            let cure = "name a device, or a file in that folder";
            return candidate(0, rejected("is a folder".to_string(), cure), None);
        }
        Ok(_) => {}
    }
    let device = inventory::look_at(path);
    let target = match ensure_usable(path, &device, SIZE_MIN) {
        Ok(target) => target,
        Err(refused) => return candidate(device.size, Some(refused), None),
    };
    match target.store_uuid() {
        Some(uuid) => {
            let cure = "join the cluster that it belongs to, or, if its data is not needed, make it blank";
            let what = "holds the store of an OSD".to_string();
            let held = candidate(target.len, rejected(what, cure), Some(uuid));
            Candidate { log_is_apart: device.log_is_apart, ..held }
        }
        None => candidate(target.len, None, None),
    }
}

/// Opens a device that is blank or holds a store. Refuses others, for ceph-volume's reasons where it has
/// some. A small device that is named is no mistake, so `size_min` counts.
fn ensure_usable(path: &Path, device: &Device, size_min: Size) -> Result<Target, Rejected> {
    let unusable =
        "name another device, or, if its data is not needed, make it blank: `wipefs -a` or `blkdiscard`";
    let rejected = |what: String, cure: &str| Rejected { what, cure: cure.to_string() };
    let reasons: Vec<&str> = device
        .rejected_reasons
        .iter()
        .map(String::as_str)
        .filter(|reason| {
            *reason != inventory::TOO_SMALL && (device.store.is_none() || *reason != inventory::OWN_LABEL)
        })
        .collect();
    let named = format!("rejected: {}", reasons.join(", "));
    match Target::open_any(path, true) {
        Err(e) => {
            let text = format!("{e:#}");
            // The path is the name of the check.
            let text = text.strip_prefix(&format!("{} ", path.display())).unwrap_or(&text);
            let what = if reasons.is_empty() { text.to_string() } else { format!("{text} ({named})") };
            Err(rejected(what, unusable))
        }
        Ok(_) if !reasons.is_empty() => Err(rejected(named, unusable)),
        Ok(target) if target.len < size_min.0 && device.store.is_none() => {
            let what = format!("has {} bytes, the minimum is {size_min}", target.len);
            Err(rejected(what, "name a larger device"))
        }
        Ok(target) => Ok(target),
    }
}

/// The device or file that has the log of a store: one of those that are named, in a folder that is named, or
/// a disk or partition that is found.
pub fn find_log(uuid: Uuid, named: &[PathBuf]) -> Option<PathBuf> {
    let in_folder =
        |path: &PathBuf| if path.is_dir() { path.join(log_file_name(uuid)) } else { path.clone() };
    let mut all = named.iter().map(in_folder).chain(inventory::disks_and_partitions());
    all.find(|path| inventory::look_at(path).log_of == Some(uuid))
}

/// The name of a log that is a file.
pub fn log_file_name(uuid: Uuid) -> String {
    format!("nacre-{uuid}.wal")
}

/// Looks at a place for logs: a blank device or partition takes one log, a folder as many as there is space
/// for. One with the log of an OSD that is taken over is full.
pub fn inspect_log_place(path: &Path, len: Option<Size>, taken_over: &[Uuid]) -> LogPlace {
    let place = |is_folder, room, rejected| LogPlace {
        path: path.to_path_buf(),
        is_folder,
        room,
        report: None,
        rejected,
    };
    let rejected = |what: String, cure: &str| Some(Rejected { what, cure: cure.to_string() });
    let each = len.unwrap_or(LOG_SIZE).0 + LOG_LABELS;
    let cure = "name a blank device or partition, or a folder on a faster device";
    match fs::metadata(path) {
        Err(e) => place(false, 0, rejected(e.to_string(), cure)),
        Ok(kind) if kind.is_dir() => {
            let space = rustix::fs::statvfs(path).map_or(0, |space| space.f_bavail * space.f_frsize);
            match usize::try_from(space / each).unwrap_or(usize::MAX) {
                0 => place(
                    true,
                    0,
                    rejected(format!("has no space for {each} bytes"), "give a smaller --wal-size"),
                ),
                room => place(true, room, None),
            }
        }
        Ok(_) => {
            let device = inventory::look_at(path);
            if device.log_of.is_some_and(|uuid| taken_over.contains(&uuid)) {
                return place(false, 0, None);
            }
            match ensure_usable(path, &device, LOG_MIN) {
                Ok(target) if target.store_uuid().is_some() => {
                    place(false, 0, rejected("holds the store of an OSD".to_string(), cure))
                }
                Ok(_) => place(false, 1, None),
                Err(refused) => place(false, 0, Some(refused)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::devices::tests::store_in;
    use nacre_node::FileDisk;
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
        for (at, part) in [(1, "the minimum is 1G"), (2, "Has data"), (3, "No such file"), (4, "is a folder")]
        {
            assert!(reason(at).unwrap().contains(part), "{at}: {:?}", reason(at));
        }
        assert!(Devices::List(vec![path("good"), path("good")]).candidates().is_err());
    }

    #[test]
    fn place_for_logs_is_a_blank_device_or_a_folder_with_space() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        File::create(path("blank")).unwrap().set_len(256 << 20).unwrap();
        File::create(path("small")).unwrap().set_len(1 << 20).unwrap();
        fs::write(path("data"), vec![1; 1 << 20]).unwrap();
        let look = |path: &Path, len: u64| inspect_log_place(path, Some(Size(len)), &[]);
        let blank = look(&path("blank"), 64 << 20);
        assert!(blank.rejected.is_none() && blank.room == 1 && !blank.is_folder);
        let inside = look(folder.path(), 1 << 20);
        assert!(inside.rejected.is_none() && inside.room > 0 && inside.is_folder);
        for (place, why) in [
            (look(&path("small"), 1 << 20), "the minimum is 64M"),
            (look(&path("data"), 1 << 20), "rejected: Has data"),
            (look(&path("nvme9n1p1"), 1 << 20), "No such file"),
            (look(&store_in(folder.path(), "store", 7), 1 << 20), "the store of an OSD"),
            (look(folder.path(), 1 << 60), "has no space"),
        ] {
            let rejected = place.rejected.unwrap();
            assert!(rejected.what.contains(why) && place.room == 0, "{}", rejected.what);
        }
        assert!(!path("nvme9n1p1").exists());
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
}
