//! The program that is installed on this host, which may be newer than what runs.

use crate::processes;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// A file, apart from one that took its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileId {
    dev: u64,
    inode: u64,
    changed: i64,
}

impl FileId {
    fn of(path: &Path) -> Result<FileId> {
        let found = fs::metadata(path).with_context(|| format!("cannot look at {}", path.display()))?;
        Ok(FileId { dev: found.dev(), inode: found.ino(), changed: found.mtime() })
    }
}

/// What is installed, as it was looked up last.
#[derive(Default)]
pub struct Installed {
    known: Option<(FileId, String)>,
}

impl Installed {
    /// Its version. It is asked itself when it has been replaced.
    pub fn version(&mut self) -> Result<String> {
        self.version_of(&processes::program()?)
    }

    fn version_of(&mut self, path: &Path) -> Result<String> {
        let file = FileId::of(path)?;
        if let Some((known, version)) = &self.known
            && *known == file
        {
            return Ok(version.clone());
        }
        let output = Command::new(path).arg("--version").output();
        let output = output.with_context(|| format!("cannot run {}", path.display()))?;
        let said = String::from_utf8_lossy(&output.stdout);
        let version = said.trim().strip_prefix("nacre ").map(str::to_string);
        let version = version.with_context(|| format!("{} does not say its version", path.display()))?;
        ensure!(output.status.success(), "{} --version failed", path.display());
        self.known = Some((file, version.clone()));
        Ok(version)
    }
}

/// Whether a process runs another program than the one that is installed.
pub fn is_outdated(pid: i32) -> bool {
    let installed = processes::program().and_then(|path| FileId::of(&path));
    let runs = FileId::of(Path::new(&format!("/proc/{pid}/exe")));
    matches!((installed, runs), (Ok(installed), Ok(runs)) if installed != runs)
}

/// How long a program must have been in its place before the agent uses it: it may be written still.
const STABLE: Duration = Duration::from_secs(2);

/// Notices that the program of this process was replaced.
#[derive(Default)]
pub struct Successor {
    seen: Option<(FileId, Instant)>,
    installed: Installed,
}

impl Successor {
    /// The version of the program that took the place of this one, if there is one that runs.
    pub fn look(&mut self, now: Instant) -> Option<String> {
        let (path, own) = (processes::program().ok()?, FileId::of(Path::new("/proc/self/exe")).ok()?);
        self.look_at(&path, own, now)
    }

    fn look_at(&mut self, path: &Path, own: FileId, now: Instant) -> Option<String> {
        let file = FileId::of(path).ok().filter(|file| *file != own)?;
        let (seen, since) = *self.seen.get_or_insert((file, now));
        if seen != file {
            self.seen = Some((file, now));
            return None;
        }
        if now - since < STABLE {
            return None;
        }
        let version = self.installed.version_of(path);
        // Looked at again later.
        self.seen = None;
        version.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn program_takes_over_when_it_is_whole_and_runs() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("nacre");
        let write = |text: &str| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        };
        write("#!/bin/sh\nexit 1\n");
        let own = FileId::of(&path).unwrap();
        let (mut successor, now) = (Successor::default(), Instant::now());
        assert_eq!(successor.look_at(&path, own, now), None);
        assert_eq!(successor.look_at(&path, own, now + STABLE), None, "it is the same");
        fs::remove_file(&path).unwrap();
        let replaced = FileId { inode: 0, ..own };
        assert_eq!(successor.look_at(&path, replaced, now), None, "none is there");
        write("#!/bin/sh\nexit 1\n");
        for _ in 0..2 {
            assert_eq!(successor.look_at(&path, replaced, now), None);
            assert_eq!(successor.look_at(&path, replaced, now + STABLE), None, "it does not run");
        }
        fs::remove_file(&path).unwrap();
        write("#!/bin/sh\necho nacre 9.9\n");
        let new = FileId { inode: 1, ..own };
        successor.installed = Installed::default();
        assert_eq!(successor.look_at(&path, new, now), None);
        assert_eq!(successor.look_at(&path, new, now + STABLE), Some("9.9".to_string()));
    }

    #[test]
    fn process_of_a_replaced_program_is_outdated() {
        let mut other = Command::new("sleep").arg("600").spawn().unwrap();
        let own = std::process::id() as i32;
        // A child is this program until it runs its own.
        while fs::read_link(format!("/proc/{}/exe", other.id())).unwrap() == std::env::current_exe().unwrap()
        {
        }
        assert!(!is_outdated(own) && is_outdated(other.id() as i32));
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(!is_outdated(i32::MAX), "one that is gone is not restarted");
    }
}
