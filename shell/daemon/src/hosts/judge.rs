//! Devices are judged before they become OSDs: measured, given a class, and told where their logs go.
//!
//! `measure` looks at the devices. The rest decides, without I/O, from what was measured.

use crate::device::{Claims, Fit, Report, time};
use crate::hosts::candidates::{Candidate, Rejected};
use crate::hosts::dir::{DeviceState, PlannedOsd};
use crate::size::Size;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// A device that needs longer to be measured does not work.
const MEASURE_TIMEOUT: Duration = Duration::from_secs(20);
/// Reads of a disk that turns take longer, and those of no SSD do. Nanoseconds.
const TURNING_READ: u64 = 2_000_000;
/// A log on another device pays if that one takes this many times shorter for a durable write.
const PAYS: u64 = 4;
/// Where it is not even so many times shorter, it stays on the device of the data.
const IS_FASTER: u64 = 2;
/// One SSD takes the logs of so many disks: the loss of it is the loss of all of them.
pub const LOGS_MAX: usize = 7;
/// Of a log, unless `--wal-size` says otherwise.
pub const LOG_SIZE: Size = Size(1 << 30);

/// A device class, as the CRUSH map has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    Hdd,
    Ssd,
    Nvme,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Class::Hdd => "hdd",
            Class::Ssd => "ssd",
            Class::Nvme => "nvme",
        })
    }
}

/// The class of a device, of which the kernel claims something and whose reads take so many nanoseconds, if
/// that was measured. A disk behind a bridge or a controller often says that it does not turn, and virtual
/// disks say that they do: one that says so, or that is slow, is an `hdd`.
pub fn class_of(claims: &Claims, read: Option<u64>) -> Class {
    let turns = claims.rotational == Some(true) || read.is_some_and(|nanos| nanos >= TURNING_READ);
    let is_nvme = claims.name.as_ref().is_some_and(|name| name.starts_with("nvme"));
    match (turns, is_nvme) {
        (true, _) => Class::Hdd,
        (false, true) => Class::Nvme,
        (false, false) => Class::Ssd,
    }
}

/// Measures a device or the disk of a folder, for a bounded time. Nothing is left behind.
pub fn measure(path: &Path) -> Result<Report, Rejected> {
    let (done, result) = mpsc::channel();
    let of = path.to_path_buf();
    let cure = "use another device, or --no-device-check if it is known to work";
    let rejected = |what: String| Rejected { what, cure: cure.to_string() };
    // A device that is broken keeps the thread waiting in the kernel.
    let spawned = thread::Builder::new().name("measure".into()).spawn(move || {
        // Not received after the timeout.
        let _ = done.send(Report::brief(&of));
    });
    spawned.map_err(|e| rejected(format!("cannot be measured: {e}")))?;
    match result.recv_timeout(MEASURE_TIMEOUT) {
        Ok(Ok(report)) => Ok(report),
        Ok(Err(e)) => Err(rejected(format!("cannot be measured: {e:#}"))),
        Err(_) => Err(rejected(format!("is not measured within {} s", MEASURE_TIMEOUT.as_secs()))),
    }
}

/// A place for the logs of OSDs, as `--wal-devices` names it.
#[derive(Clone, Debug)]
pub struct LogPlace {
    pub path: PathBuf,
    /// Logs are files in it.
    pub is_folder: bool,
    /// How many logs it takes.
    pub room: usize,
    pub report: Option<Report>,
    pub rejected: Option<Rejected>,
}

impl LogPlace {
    /// Where the log of an OSD is in it.
    fn log_of(&self, osd: &PlannedOsd) -> PathBuf {
        if self.is_folder { self.path.join(osd.log_name()) } else { self.path.clone() }
    }
}

/// What was decided of the logs.
#[derive(Debug, Default, PartialEq)]
pub struct Assigned {
    /// OSDs whose logs stay where their data is, and why.
    pub stay: Vec<String>,
    /// The number of OSDs for whose logs there was no room.
    pub left_over: usize,
}

/// Decides where the logs of new OSDs go: the slowest device's first, each where there is most room. One
/// whose own device is about as fast keeps its log.
pub fn assign(osds: &mut [PlannedOsd], places: &[LogPlace], len: Option<Size>) -> Assigned {
    let mut assigned = Assigned::default();
    if places.is_empty() {
        return assigned;
    }
    let mut room: Vec<(usize, &LogPlace)> =
        places.iter().filter(|place| place.rejected.is_none()).map(|place| (place.room, place)).collect();
    let mut new: Vec<&mut PlannedOsd> =
        osds.iter_mut().filter(|osd| osd.state == DeviceState::Accepted).collect();
    new.sort_by_key(|osd| std::cmp::Reverse(osd.measured.device.as_ref().map_or(0, Report::sync_write)));
    for osd in new {
        let most = room.iter_mut().filter(|(left, _)| *left > 0).max_by_key(|(left, _)| *left);
        let Some((left, place)) = most else {
            assigned.left_over += 1;
            continue;
        };
        if let (Some(own), Some(log)) = (&osd.measured.device, &place.report)
            && own.sync_write() < log.sync_write().saturating_mul(IS_FASTER)
        {
            let (path, own, other) = (osd.path.display(), own.sync_write(), log.sync_write());
            assigned.stay.push(format!(
                "{path}: a durable write takes {}, and {} on {}",
                time(own),
                time(other),
                place.path.display()
            ));
            continue;
        }
        *left -= 1;
        osd.wal = Some(place.log_of(osd));
        osd.wal_len = Some(len.unwrap_or(LOG_SIZE));
        osd.measured.wal.clone_from(&place.report);
    }
    assigned
}

/// A division of the devices that makes durable writes faster: which would hold data, which logs, and why.
#[derive(Debug, PartialEq)]
pub struct Proposal {
    pub data: Vec<PathBuf>,
    pub logs: Vec<PathBuf>,
    pub why: String,
}

/// Proposes to put the logs of slow devices on fast ones. None where that does not pay: where no device is
/// slow, or none is fast, or where more fast devices than slow ones would be needed.
pub fn propose(candidates: &[Candidate]) -> Option<Proposal> {
    let blank = |found: &&Candidate| found.rejected.is_none() && found.holds.is_none();
    let measured: Vec<(&Candidate, &Report)> =
        candidates.iter().filter(blank).filter_map(|found| Some((found, found.report.as_ref()?))).collect();
    let slow: Vec<_> = measured.iter().filter(|(_, report)| report.fit() == Fit::Data).collect();
    let slowest = slow.iter().map(|(_, report)| report.sync_write()).min()?;
    let is_log = |report: &Report| {
        matches!(report.fit(), Fit::JournalAndData | Fit::Journal)
            && report.sync_write().saturating_mul(PAYS) <= slowest
    };
    let mut fast: Vec<_> = measured.iter().filter(|(_, report)| is_log(report)).collect();
    // The fastest, and of those the smallest: the rest of it is not used for data.
    fast.sort_by_key(|(found, report)| (found.size, report.sync_write()));
    let needed = slow.len().div_ceil(LOGS_MAX);
    if fast.len() < needed || needed > slow.len() {
        return None;
    }
    let logs: Vec<_> = fast.drain(..needed).collect();
    let log = logs.iter().map(|(_, report)| report.sync_write()).max()?;
    let paths =
        |found: &[&(&Candidate, &Report)]| found.iter().map(|(found, _)| found.path.clone()).collect();
    let rest = fast.iter().map(|(found, _)| found.path.clone());
    let why = format!(
        "durable writes of {} devices would take {} in place of {}",
        slow.len(),
        time(log),
        time(slowest)
    );
    let mut data: Vec<PathBuf> = paths(&slow);
    data.extend(rest);
    Some(Proposal { data, logs: paths(&logs), why })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::tests::report;

    fn claims(name: &str, rotational: Option<bool>) -> Claims {
        Claims { name: Some(name.to_string()), rotational, ..Claims::default() }
    }

    #[test]
    fn class_follows_the_flag_and_what_was_measured() {
        let (fast, slow) = (Some(80_000), Some(8_000_000));
        for (name, rotational, read, class) in [
            ("sda", Some(true), None, Class::Hdd),
            ("sda", Some(false), None, Class::Ssd),
            ("sda", None, None, Class::Ssd),
            ("nvme0n1", Some(false), fast, Class::Nvme),
            ("sda", Some(false), fast, Class::Ssd),
            // A controller hides that it turns, or a cache answers for it.
            ("sda", Some(false), slow, Class::Hdd),
            ("sda", None, slow, Class::Hdd),
            ("nvme0n1", Some(false), slow, Class::Hdd),
            ("sda", Some(true), fast, Class::Hdd),
        ] {
            assert_eq!(class_of(&claims(name, rotational), read), class, "{name} {rotational:?} {read:?}");
        }
        assert_eq!(
            (Class::Nvme.to_string(), serde_json::to_string(&Class::Hdd).unwrap()),
            ("nvme".into(), "\"hdd\"".into())
        );
    }

    fn measured(path: &str, size: u64, sync: u64, read: u64) -> Candidate {
        Candidate { report: Some(report(path, sync, read)), ..Candidate::blank(path.into(), size) }
    }
    fn hdd(n: usize) -> Candidate {
        measured(&format!("/dev/sd{n}"), 8 << 40, 8300, 8000)
    }
    fn nvme(n: usize, size: u64) -> Candidate {
        measured(&format!("/dev/nvme{n}n1"), size, 25, 80)
    }
    fn paths(found: &[Candidate]) -> Vec<PathBuf> {
        found.iter().map(|found| found.path.clone()).collect()
    }

    #[test]
    fn logs_of_slow_disks_are_proposed_for_fast_ones_where_that_pays() {
        let disks: Vec<Candidate> = (0..7).map(hdd).collect();
        assert_eq!(propose(&disks), None);
        assert_eq!(propose(&[nvme(0, 1 << 40), nvme(1, 1 << 40)]), None);
        let all = [disks.clone(), vec![nvme(0, 2 << 40), nvme(1, 1 << 40)]].concat();
        let proposal = propose(&all).unwrap();
        assert_eq!(proposal.logs, paths(&[nvme(1, 1 << 40)]));
        assert_eq!(proposal.data, paths(&[disks.clone(), vec![nvme(0, 2 << 40)]].concat()));
        assert!(proposal.why.contains("7 devices would take 25 us in place of 8.30 ms"), "{}", proposal.why);
        // One more disk needs another one.
        let more = propose(&[vec![hdd(7)], all.clone()].concat()).unwrap();
        assert_eq!((more.data.len(), more.logs.len()), (8, 2));
        assert_eq!(propose(&[vec![hdd(7)], disks.clone(), vec![nvme(0, 1)]].concat()), None);
        // One that is not much faster does not pay, nor does one that holds something.
        assert_eq!(propose(&[disks.clone(), vec![measured("/dev/x", 1, 2500, 90)]].concat()), None);
        let rejected = Rejected { what: "rejected: locked".into(), cure: String::new() };
        let used = Candidate { rejected: Some(rejected), ..nvme(0, 1) };
        assert_eq!(propose(&[disks, vec![used]].concat()), None);
    }

    fn place(path: &str, is_folder: bool, room: usize, sync: u64) -> LogPlace {
        LogPlace { path: path.into(), is_folder, room, report: Some(report(path, sync, 80)), rejected: None }
    }

    #[test]
    fn log_goes_where_there_is_room_and_stays_where_that_is_no_faster() {
        let plan = |candidates: &[Candidate]| candidates.iter().map(Candidate::plan).collect::<Vec<_>>();
        let mut osds = plan(&[hdd(0), hdd(1), nvme(0, 1)]);
        let held = PlannedOsd::adopted("/dev/held".into(), uuid::Uuid::from_u128(7));
        osds.push(held.clone());
        let places = [place("/dev/nvme1n1p1", false, 1, 25), place("/fast", true, 9, 25)];
        let assigned = assign(&mut osds, &places, Some(Size(1 << 28)));
        assert_eq!((assigned.left_over, assigned.stay.len()), (0, 1));
        assert!(assigned.stay[0].contains("/dev/nvme0n1: a durable write takes 25 us, and 25 us on /fast"));
        let names = [0, 1].map(|n: usize| Path::new("/fast").join(osds[n].log_name()));
        assert_eq!(osds.iter().map(|osd| osd.wal.clone()).collect::<Vec<_>>()[..2], names.map(Some));
        assert_eq!((osds[0].wal_len, osds[2].wal.clone(), &osds[3]), (Some(Size(1 << 28)), None, &held));
        let none = assign(&mut plan(&[hdd(0)]), &[], None);
        assert_eq!(none, Assigned::default(), "the log stays with the data");
        // Without a measurement all logs go there, and one too many is said.
        let mut blank: Vec<PlannedOsd> =
            (0..3).map(|n| PlannedOsd::new(format!("/dev/{n}").into())).collect();
        let assigned =
            assign(&mut blank, &[place("/dev/a", false, 1, 25), place("/dev/b", false, 1, 25)], None);
        assert_eq!((assigned.left_over, blank.iter().filter(|osd| osd.wal.is_some()).count()), (1, 2));
    }
}
