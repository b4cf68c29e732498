//! OSDs of one host start only as far as its memory goes; the others wait.
//!
//! After a power cut all OSDs of a host start at once, each peers, and each may need its whole memory limit
//! for that. An OSD that the kernel kills for lack of memory starts again, and takes memory from the next. So
//! an OSD starts only if the available memory covers its limit, beside what running OSDs may still take of
//! theirs.
//!
//! A host may be too small for all of its OSDs, and then memory never becomes available. In that case they
//! start one by one, with time for each to peer. The host is short of memory then, and the log says so.

use crate::processes::{self, LockFile, State};
use anyhow::Result;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often the available memory is checked.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// After so long without a start of an OSD on this host, one starts although memory is short.
const ANYWAY_AFTER: Duration = Duration::from_secs(15);

/// Waits until the host has memory for this many OSDs in this process, each with the limit `budget`. The
/// caller holds the lock that is returned until this process counts as running; `run` is the directory of pid
/// files.
pub async fn wait(run: PathBuf, osds: usize, budget: u64) -> Result<Option<LockFile>> {
    wait_at_most(run, osds, budget, ANYWAY_AFTER).await
}

async fn wait_at_most(
    run: PathBuf,
    osds: usize,
    budget: u64,
    anyway_after: Duration,
) -> Result<Option<LockFile>> {
    if osds == 0 {
        return Ok(None);
    }
    let run = &run;
    let began = Instant::now();
    let mut said = false;
    loop {
        let lock = LockFile::take(run.join("admission"))?;
        let available = available();
        let reserved = reserved(run, budget);
        if let Some(lock) = lock {
            let needed = osds as u64 * budget;
            // The only OSD starts in any case: waiting would free nothing.
            let has_memory = admits(available, reserved.bytes, needed) || reserved.osds == 0;
            let anyway = began.elapsed().min(lock.age()) >= anyway_after;
            if anyway && !has_memory {
                tracing::warn!(
                    "starts although less memory is free than its limit: no other OSD of this host freed \
                     memory"
                );
            }
            if has_memory || anyway {
                lock.touch();
                return Ok(Some(lock));
            }
            if !std::mem::replace(&mut said, true) {
                tracing::warn!(
                    "startup is delayed until memory is free: {} MiB are available, running OSDs may still \
                     use {} MiB, and this OSD needs {} MiB (--memory); it starts anyway when no OSD has \
                     started for {} s",
                    available.unwrap_or(0) >> 20,
                    reserved.bytes >> 20,
                    needed >> 20,
                    anyway_after.as_secs()
                );
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Where the available memory is unknown all are admitted.
fn admits(available: Option<u64>, reserved: u64, needed: u64) -> bool {
    available.is_none_or(|available| available.saturating_sub(reserved) >= needed)
}

/// OSDs that run, each as a process of its own, and how much memory they may still take.
struct Reserved {
    osds: usize,
    bytes: u64,
}

fn reserved(run: &Path, budget: u64) -> Reserved {
    let mut reserved = Reserved { osds: 0, bytes: 0 };
    for entry in fs::read_dir(run).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !(name.starts_with("osd.") && name.ends_with(".pid")) {
            continue;
        }
        if let Ok(State::Runs(pid)) = processes::state(&entry.path())
            && let Some(resident) = resident(pid)
        {
            reserved.osds += 1;
            reserved.bytes += budget.saturating_sub(resident);
        }
    }
    reserved
}

/// In bytes, of the host or of the control group that we are in, whichever is less.
fn available() -> Option<u64> {
    let read = |path: &str| fs::read_to_string(path).ok();
    let host = read("/proc/meminfo").and_then(|text| kib(&text, "MemAvailable:"));
    let group = read("/proc/self/cgroup").and_then(|text| {
        let path = text.lines().find_map(|line| line.strip_prefix("0::"))?.to_string();
        let number = |file: &str| read(&format!("/sys/fs/cgroup{path}/{file}"))?.trim().parse::<u64>().ok();
        Some(number("memory.max")?.saturating_sub(number("memory.current")?))
    });
    host.into_iter().chain(group).min()
}

/// Bytes of memory that a process has. None if there is no such process.
pub fn resident(pid: i32) -> Option<u64> {
    kib(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?, "VmRSS:")
}

/// The number of a line such as `VmRSS:   1234 kB`, in bytes.
fn kib(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: u64 = 64 << 20;

    #[test]
    fn running_osds_may_take_the_rest_of_their_limit() {
        assert!(admits(Some(512), 0, 512));
        assert!(!admits(Some(512), 1, 512));
        assert!(admits(Some(1024), 512, 512));
        assert!(!admits(Some(0), 512, 512));
        assert!(admits(None, u64::MAX, u64::MAX));
    }

    #[test]
    fn available_memory_is_read_from_the_system() {
        assert_eq!(kib("MemTotal: 9 kB\nMemAvailable:   12 kB\n", "MemAvailable:"), Some(12 << 10));
        assert_eq!(kib("MemTotal: 9 kB\n", "MemAvailable:"), None);
        assert!(available().is_some_and(|bytes| bytes > 0));
        assert!(resident(std::process::id() as i32).is_some_and(|bytes| bytes > 1 << 20));
    }

    #[tokio::test]
    async fn running_osds_are_counted_and_the_first_never_waits() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("osd.0.pid"), "1\n").unwrap(); // left by one that was killed
        assert_eq!(reserved(dir.path(), BUDGET).osds, 0);
        let run = dir.path().to_path_buf();
        assert!(wait(run.clone(), 1_000_000, BUDGET).await.unwrap().is_some());
        let mut lock = LockFile::take(dir.path().join("osd.1.pid")).unwrap().unwrap();
        lock.clear().unwrap();
        lock.write_pid().unwrap();
        let found = reserved(dir.path(), BUDGET);
        assert_eq!(found.osds, 1);
        assert!(found.bytes > 0 && found.bytes <= BUDGET);
        // The second one waits, if there is no memory for it.
        let waits = tokio::time::timeout(Duration::from_millis(50), wait(run.clone(), 1_000_000, BUDGET));
        assert!(waits.await.is_err());
        assert!(wait(run.clone(), 1, BUDGET).await.unwrap().is_some());
        // There may never be any: it starts anyway.
        let anyway = Duration::from_millis(1);
        assert!(wait_at_most(run, 1_000_000, BUDGET, anyway).await.unwrap().is_some());
    }
}
