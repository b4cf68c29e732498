//! The devices of a host: what they are, what is on them, and why they cannot become OSDs, in the words of
//! `ceph-volume inventory`.
//!
//! Disks and logical volumes are found by themselves, and partitions that hold a store or its log. Other
//! devices (partitions, files) are those to which there is a link in the host's folder `devices`, and those
//! that OSDs of this host are on. Nothing is written.

use crate::device::content;
use crate::hosts::dir::{DeviceState, HostConfig, HostDir};
use nacre_store::{Disk, DiskError, Held};
use rustix::fs::OFlags;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// As `ceph-volume` has it.
const SIZE_MIN: u64 = 5 << 30;
/// Why a device is rejected that has fewer bytes, ...
pub const TOO_SMALL: &str = "Insufficient space (<5GB)";
/// ... and one that holds a store or its log.
pub const OWN_LABEL: &str = "Has Nacre device label";
/// What is known of file systems and the like is in the first so many bytes.
const FRONT: usize = 68 << 10;

/// A device, as the monitors are told.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Device {
    pub path: PathBuf,
    /// `disk`, `lvm`, `part`, `loop` or `file`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Bytes.
    pub size: u64,
    #[serde(flatten)]
    pub about: About,
    /// The store of an OSD that is on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<Uuid>,
    /// The log of that store is on another device.
    #[serde(skip)]
    pub log_is_apart: bool,
    /// Another device is made of it, such as a multipath device, whose content it shares.
    #[serde(skip)]
    pub has_holder: bool,
    /// The store whose log is on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_of: Option<Uuid>,
    /// The OSD of this host that is on it, or was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub osd: Option<u32>,
    /// That OSD is not there: the device was pulled or replaced, or does not answer.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub missing: bool,
    /// Another device has the same label: one is a copy or a snapshot of the other.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub duplicate: bool,
    pub available: bool,
    pub rejected_reasons: Vec<String>,
}

/// What the kernel says of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct About {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotational: Option<bool>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub model: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub vendor: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub serial: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub removable: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
}

/// Looks at all devices of the host. `before` is what it found last: of a device that is gone it is all that
/// is known.
pub fn scan(dir: &HostDir, config: &HostConfig, before: &[Device]) -> Vec<Device> {
    let sys = Path::new("/sys");
    let own: BTreeMap<Uuid, u32> = config
        .devices
        .iter()
        .filter(|osd| osd.state == DeviceState::Formatted)
        .filter_map(|osd| Some((osd.uuid, osd.id?)))
        .collect();
    let mut found: Vec<Device> = Vec::new();
    let mut seen = BTreeSet::new();
    for path in paths(dir, config, sys) {
        let target = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
        if target.exists() && seen.insert(target.clone()) {
            found.push(look(path, &target, sys, &own));
        }
    }
    for path in partitions(sys) {
        if seen.insert(path.clone()) {
            let device = look(path.clone(), &path, sys, &own);
            found.extend(Some(device).filter(|device| device.store.or(device.log_of).is_some()));
        }
    }
    mark_duplicates(&mut found);
    let present: BTreeSet<u32> = found.iter().filter_map(|device| device.osd).collect();
    for osd in &config.devices {
        let Some(id) = osd.id.filter(|id| own.contains_key(&osd.uuid) && !present.contains(id)) else {
            continue;
        };
        let last = before.iter().find(|device| device.osd == Some(id)).cloned();
        let last = last.unwrap_or_else(|| Device { path: osd.path.clone(), ..Device::default() });
        let reasons = vec!["missing".to_string()];
        found.push(Device {
            osd: Some(id),
            missing: true,
            available: false,
            rejected_reasons: reasons,
            ..last
        });
    }
    found
}

/// Looks at one device, which may be none of this host's yet.
pub fn look_at(path: &Path) -> Device {
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    look(path.to_path_buf(), &target, Path::new("/sys"), &BTreeMap::new())
}

/// The stores and logs of which there is more than one on the host.
fn mark_duplicates(found: &mut [Device]) {
    let label = |device: &Device| {
        Some((device.store, device.log_of)).filter(|label| !device.has_holder && *label != (None, None))
    };
    let mut counts: BTreeMap<(Option<Uuid>, Option<Uuid>), u32> = BTreeMap::new();
    found.iter().filter_map(label).for_each(|label| *counts.entry(label).or_default() += 1);
    for device in found.iter_mut() {
        if label(device).is_some_and(|label| counts[&label] > 1) {
            device.duplicate = true;
            device.rejected_reasons.push("Has the label of another device".to_string());
        }
    }
}

/// Changes when a device comes or goes, or an OSD is made. What is on a device may change without that.
pub fn signature(dir: &HostDir, config: &HostConfig) -> String {
    let mut text = String::new();
    for path in paths(dir, config, Path::new("/sys")) {
        let known = fs::metadata(&path).map(|m| (m.dev(), m.ino(), m.rdev(), m.len())).ok();
        text += &format!("{} {known:?}\n", path.display());
    }
    config.devices.iter().for_each(|osd| text += &format!("{} {:?} {:?}\n", osd.uuid, osd.id, osd.state));
    text
}

/// Of all devices there are, by name.
fn paths(dir: &HostDir, config: &HostConfig, sys: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = Vec::new();
    // The names that people gave come before those of the kernel.
    all.extend(config.devices.iter().flat_map(|osd| [Some(osd.path.clone()), osd.wal.clone()]).flatten());
    all.extend(entries(&dir.devices()));
    for (block, name) in blocks(sys) {
        if !name.starts_with("dm-") {
            all.push(Path::new("/dev").join(name));
        } else if is_logical_volume(&text(&block, "dm/uuid")) {
            all.push(Path::new("/dev/mapper").join(text(&block, "dm/name")));
        }
    }
    all
}

/// Disks and volumes that the kernel has, with their names.
fn blocks(sys: &Path) -> Vec<(PathBuf, String)> {
    let others = ["loop", "ram", "zram", "sr", "fd", "md", "nbd", "rbd"];
    let named = entries(&sys.join("block")).into_iter().map(|block| {
        let name = block.file_name().unwrap_or_default().to_string_lossy().into_owned();
        (block, name)
    });
    let is_other = |name: &str| others.iter().any(|other| name.starts_with(other));
    named.filter(|(block, name)| !is_other(name) && text(block, "size") != "0").collect()
}

/// The partitions of disks. Those that hold a store or its log are listed, whatever their disks are called by
/// now.
fn partitions(sys: &Path) -> Vec<PathBuf> {
    let parts = blocks(sys).into_iter().flat_map(|(block, _)| entries(&block));
    let parts = parts.filter(|part| part.join("partition").exists());
    parts.filter_map(|part| Some(Path::new("/dev").join(part.file_name()?))).collect()
}

/// Disks and the partitions of disks.
pub fn disks_and_partitions() -> impl Iterator<Item = PathBuf> {
    let sys = Path::new("/sys");
    let disks = blocks(sys).into_iter().map(|(_, name)| Path::new("/dev").join(name));
    disks.chain(partitions(sys))
}

/// Not the devices that LVM makes a volume of, whose uuids end in `-real`, `-cow` and the like.
fn is_logical_volume(dm_uuid: &str) -> bool {
    dm_uuid.strip_prefix("LVM-").is_some_and(|uuid| !uuid.contains('-'))
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    found.sort();
    found
}

fn text(folder: &Path, file: &str) -> String {
    fs::read_to_string(folder.join(file)).unwrap_or_default().trim().to_string()
}

/// A device's folder in sysfs, and that of the disk that it is a part of.
fn sysfs(sys: &Path, rdev: u64) -> Option<(PathBuf, PathBuf)> {
    let (major, minor) = (rustix::fs::major(rdev), rustix::fs::minor(rdev));
    let own = fs::canonicalize(sys.join(format!("dev/block/{major}:{minor}"))).ok()?;
    let whole = if own.join("partition").exists() { own.parent()?.to_path_buf() } else { own.clone() };
    Some((own, whole))
}

fn about(disk: &Path) -> About {
    let serial = ["serial", "device/serial"].map(|file| text(disk, file));
    About {
        rotational: Some(text(disk, "queue/rotational"))
            .filter(|text| !text.is_empty())
            .map(|text| text == "1"),
        model: text(disk, "device/model"),
        vendor: text(disk, "device/vendor"),
        serial: serial.into_iter().find(|text| !text.is_empty()).unwrap_or_default(),
        removable: text(disk, "removable") == "1",
        read_only: text(disk, "ro") == "1",
    }
}

fn look(path: PathBuf, target: &Path, sys: &Path, own: &BTreeMap<Uuid, u32>) -> Device {
    let mut device = Device { path, kind: "file", ..Device::default() };
    let mut reasons = Vec::new();
    let Ok(metadata) = fs::metadata(target) else { return device };
    let is_block = metadata.file_type().is_block_device();
    let folder = is_block.then(|| sysfs(sys, metadata.rdev())).flatten();
    if let Some((own, whole)) = &folder {
        device.about = about(whole);
        let name = own.file_name().unwrap_or_default().to_string_lossy().into_owned();
        device.kind = match () {
            () if own != whole => "part",
            () if name.starts_with("dm-") => "lvm",
            () if name.starts_with("loop") => "loop",
            () => "disk",
        };
        if entries(own).iter().any(|part| part.join("partition").exists()) {
            reasons.push("Has partitions");
        }
        let holders = entries(&own.join("holders"));
        device.has_holder = !holders.is_empty();
        if holders.iter().any(|holder| text(holder, "dm/uuid").starts_with("LVM-")) {
            reasons.push("LVM detected");
        }
    }
    let opened = File::open(target).and_then(|mut file| Ok((file.seek(SeekFrom::End(0))?, file)));
    match opened {
        Ok((size, file)) => {
            device.size = size;
            let disk = ReadOnly { file, len: size };
            match Held::on(&disk) {
                Some(Held::Store { uuid, log }) => {
                    let uuid = Uuid::from_bytes(uuid);
                    device.log_is_apart = log.is_some();
                    (device.store, device.osd) = (Some(uuid), own.get(&uuid).copied());
                    reasons.push(OWN_LABEL);
                }
                Some(Held::Log { uuid, .. }) => {
                    device.log_of = Some(Uuid::from_bytes(uuid));
                    reasons.push(OWN_LABEL);
                }
                None => reasons.extend(other_content(&disk)),
            }
        }
        Err(_) => reasons.push("Failed to read the device"),
    }
    for (rejects, reason) in [
        (device.about.removable, "removable"),
        (device.about.read_only, "read-only"),
        // A daemon of this host would be kept from its device.
        (is_block && device.osd.is_none() && is_locked(target), "locked"),
        (device.size < SIZE_MIN, TOO_SMALL),
    ] {
        if rejects {
            reasons.push(reason);
        }
    }
    reasons.sort_unstable();
    reasons.dedup();
    device.available = reasons.is_empty();
    device.rejected_reasons = reasons.into_iter().map(String::from).collect();
    device
}

/// The kernel lets only one open a device so.
fn is_locked(device: &Path) -> bool {
    let opened = OpenOptions::new().read(true).custom_flags(OFlags::EXCL.bits() as i32).open(device);
    opened.is_err_and(|e| e.kind() == std::io::ErrorKind::ResourceBusy)
}

/// Why a device without a store is not blank; none if it is.
fn other_content(disk: &ReadOnly) -> Option<&'static str> {
    let mut front = vec![0; FRONT.min(usize::try_from(disk.len).unwrap_or(FRONT))];
    if disk.file.read_exact_at(&mut front, 0).is_err() {
        return Some("Failed to read the device");
    }
    let has = |at: usize, magic: &[u8]| front.get(at..at + magic.len()) == Some(magic);
    let signatures: [(usize, &[u8], &str); 10] = [
        (512, b"EFI PART", "Has GPT headers"),
        (4096, b"EFI PART", "Has GPT headers"),
        (0, b"bluestore block device", "Has BlueStore device label"),
        (512, b"LABELONE", "LVM detected"),
        (0, b"LUKS\xba\xbe", "Has a FileSystem"),
        (0, b"XFSB", "Has a FileSystem"),
        (1080, &[0x53, 0xef], "Has a FileSystem"),
        (65_600, b"_BHRfS_M", "Has a FileSystem"),
        (4086, b"SWAPSPACE2", "Has a FileSystem"),
        (510, &[0x55, 0xaa], "Has partitions"),
    ];
    match signatures.iter().find(|(at, magic, _)| has(*at, magic)) {
        Some((_, _, reason)) => Some(reason),
        None => match content(&disk.file) {
            Ok(None) => None,
            Ok(Some(_)) => Some("Has data"),
            Err(_) => Some("Failed to read the device"),
        },
    }
}

/// A device that is only read.
struct ReadOnly {
    file: File,
    len: u64,
}

impl Disk for ReadOnly {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        let len = into.len() as u64;
        let read = self.file.read_exact_at(into, offset);
        read.map_err(|e| DiskError { op: "read", offset, len, why: e.to_string() })
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        let why = "it is only read".to_string();
        Err(DiskError { op: "write", offset, len: bytes.len() as u64, why })
    }
    fn flush(&self) -> Result<(), DiskError> {
        Ok(())
    }
    fn len(&self) -> u64 {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::dir::{PlannedOsd, Setup};
    use nacre_node::FileDisk;
    use nacre_store::{Options, Store};

    fn store(path: &Path, uuid: u128, log: Option<&Path>) {
        let make = |path: &Path, len: u64| FileDisk::create(path, len).unwrap();
        let options = Options { uuid: uuid.to_be_bytes(), log_id: [7; 16], ..Options::default() };
        let disk = make(path, 6 << 30);
        let disk = match log {
            Some(log) => disk.with_log(make(log, 1 << 30)),
            None => disk,
        };
        Store::format(&disk, options).unwrap();
    }

    #[test]
    fn devices_are_shown_with_what_is_on_them_and_why_they_cannot_be_used() {
        let folder = tempfile::tempdir().unwrap();
        let dir = HostDir::at(folder.path()).unwrap();
        dir.make().unwrap();
        let devices = dir.devices();
        fs::create_dir_all(&devices).unwrap();
        let sparse = |name: &str, len: u64, at: u64, bytes: &[u8]| {
            let file = File::create(devices.join(name)).unwrap();
            file.set_len(len).unwrap();
            file.write_all_at(bytes, at).unwrap();
        };
        sparse("a-blank", 6 << 30, 0, b"");
        sparse("b-small", 1 << 30, 0, b"");
        sparse("c-ext4", 6 << 30, 1080, &[0x53, 0xef]);
        sparse("d-gpt", 6 << 30, 512, b"EFI PART");
        sparse("e-lvm", 6 << 30, 512, b"LABELONE");
        sparse("f-data", 6 << 30, 3 << 30, b"x");
        store(&devices.join("g-own"), 7, None);
        store(&devices.join("h-other"), 8, Some(&devices.join("i-log")));
        let addr = "10.0.0.1:3300".parse().unwrap();
        let mut config = HostConfig::new(Uuid::from_u128(1), "h1".to_string(), addr, Setup::Done);
        let planned = |name: &str, uuid: u128, id: u32| PlannedOsd {
            id: Some(id),
            ..PlannedOsd::adopted(devices.join(name), Uuid::from_u128(uuid))
        };
        // The kernel gave the disk of osd.3 another name; that of osd.4 was pulled.
        config.devices = vec![planned("a-blank", 7, 3), planned("gone", 9, 4)];
        let found = scan(&dir, &config, &[]);
        let of = |name: &str| found.iter().find(|device| device.path == devices.join(name)).unwrap();
        let reasons = |name: &str| of(name).rejected_reasons.join(", ");
        assert!(of("a-blank").available && of("a-blank").osd.is_none());
        assert_eq!(reasons("b-small"), "Insufficient space (<5GB)");
        assert_eq!([reasons("c-ext4"), reasons("d-gpt")], ["Has a FileSystem", "Has GPT headers"]);
        assert_eq!([reasons("e-lvm"), reasons("f-data")], ["LVM detected", "Has data"]);
        assert_eq!((of("g-own").osd, of("g-own").store), (Some(3), Some(Uuid::from_u128(7))));
        assert_eq!((of("h-other").osd, of("h-other").store), (None, Some(Uuid::from_u128(8))));
        assert_eq!(of("i-log").log_of, Some(Uuid::from_u128(8)));
        assert_eq!(reasons("i-log"), "Has Nacre device label, Insufficient space (<5GB)");
        let gone = of("gone");
        assert!(gone.missing && !gone.available && gone.osd == Some(4));
        store(&folder.path().join("elsewhere"), 8, Some(&devices.join("j-copy")));
        let again = scan(&dir, &config, &found);
        let copies = again.iter().filter(|device| device.duplicate).map(|device| device.path.clone());
        assert_eq!(copies.collect::<Vec<_>>(), ["i-log", "j-copy"].map(|name| devices.join(name)));
        fs::remove_file(devices.join("j-copy")).unwrap();
        let before = signature(&dir, &config);
        assert_eq!(before, signature(&dir, &config));
        fs::remove_file(devices.join("h-other")).unwrap();
        assert_ne!(before, signature(&dir, &config));
    }

    /// As the kernel has them: an LV, what it is made of, a disk with a partition, and no disk.
    #[test]
    fn disks_volumes_and_partitions_are_told_apart_by_what_sysfs_says() {
        let folder = tempfile::tempdir().unwrap();
        let sys = folder.path();
        let write = |path: &str, text: &str| {
            let path = sys.join("block").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for (name, size) in
            [("sda", "15628053168"), ("dm-0", "209715200"), ("dm-1", "8192"), ("loop0", "1"), ("sr0", "0")]
        {
            write(&format!("{name}/size"), &format!("{size}\n"));
        }
        write("sda/sda1/partition", "1\n");
        write("sda/queue/rotational", "1\n");
        write("dm-0/dm/uuid", "LVM-Yb1zX0kq0VhS3WlfrW3ZzKXDxJ0Qy9Bm7cVQmN4\n");
        write("dm-0/dm/name", "vg0-osd--1\n");
        write("dm-1/dm/uuid", "LVM-Yb1zX0kq0VhS3WlfrW3ZzKXDxJ0Qy9Bm7cVQmN4-real\n");
        let dir = HostDir::at(&sys.join("host")).unwrap();
        let addr = "10.0.0.1:3300".parse().unwrap();
        let config = HostConfig::new(Uuid::from_u128(1), "h1".to_string(), addr, Setup::Done);
        let found = paths(&dir, &config, sys);
        assert_eq!(found, ["/dev/mapper/vg0-osd--1", "/dev/sda"].map(PathBuf::from));
        assert_eq!(partitions(sys), [PathBuf::from("/dev/sda1")]);
        assert_eq!(about(&sys.join("block/sda")).rotational, Some(true));
    }

    #[test]
    fn what_a_volume_is_made_of_is_no_device() {
        assert!(is_logical_volume("LVM-Yb1zX0"));
        for other in ["LVM-Yb1zX0-real", "LVM-Yb1zX0-cow", "mpath-3600", "CRYPT-LUKS2-9f"] {
            assert!(!is_logical_volume(other), "{other}");
        }
    }
}
