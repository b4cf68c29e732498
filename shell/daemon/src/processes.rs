//! Which daemons run, and as which process.
//!
//! A process holds a lock on its pid file until it ends, however it ends. A pid counts only while its file is
//! locked, so another process that got the same number is never signalled.

use crate::cluster::Cluster;
use crate::folder::Layout;
use crate::name::DaemonName;
use crate::s3::GATEWAY;
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

/// The name of the process that runs all daemons of a folder.
pub const ALL: &str = "nacre";
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// A daemon stops waiting for its own end well before.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(40);
const DYING_TIMEOUT: Duration = Duration::from_secs(10);
const LOCK_ATTEMPTS: u32 = 5;
const POLL: Duration = Duration::from_millis(20);
const WAITS: &str = "waits ";
/// A daemon that has waited for memory for this long may wait much longer.
const WAITS_PATIENCE: Duration = Duration::from_secs(3);
/// glibc's per-thread cache has seven entries of each size, and an OSD frees and allocates dozens at a time.
/// Only the environment of a process can change that.
pub const ALLOCATOR: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.tcache_count=128");
/// How much of a log is shown when its daemon did not start.
const LOG_TAIL_LINES: usize = 10;

/// A lock that ends with this value or with the process.
#[derive(Debug)]
pub struct LockFile {
    path: PathBuf,
    file: File,
}

impl LockFile {
    /// None if another process holds it.
    pub fn take(mut path: PathBuf) -> Result<Option<LockFile>> {
        // A process that reads the state holds the lock for a moment.
        for _ in 0..LOCK_ATTEMPTS {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).mode(0o600);
            let file = options.open(&path).with_context(|| format!("cannot open {}", path.display()))?;
            match file.try_lock() {
                Ok(()) => {
                    let lock = LockFile { path, file };
                    if lock.is_in_place() {
                        return Ok(Some(lock));
                    }
                    // Its last holder removed the file between our two steps: others would not find this
                    // lock.
                    path = lock.path;
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(POLL / 2),
                Err(TryLockError::Error(e)) => {
                    return Err(e).with_context(|| format!("cannot lock {}", path.display()));
                }
            }
        }
        Ok(None)
    }

    /// Empties what an earlier incarnation left.
    pub fn clear(&self) -> Result<()> {
        let cleared = self.file.set_len(0).and_then(|()| (&self.file).rewind());
        cleared.with_context(|| format!("cannot write {}", self.path.display()))
    }

    /// Publishes that this process runs, and its pid.
    pub fn write_pid(&mut self) -> Result<()> {
        let written = writeln!(self.file, "{}", std::process::id());
        written.with_context(|| format!("cannot write {}", self.path.display()))
    }

    /// Publishes that this process waits for memory, and its pid.
    pub fn write_waits(&mut self) -> Result<()> {
        let written = writeln!(self.file, "{WAITS}{}", std::process::id());
        written.with_context(|| format!("cannot write {}", self.path.display()))
    }

    /// Whether the path still leads to the file that we hold, so that others find it locked.
    fn is_in_place(&self) -> bool {
        let file = |found: fs::Metadata| (found.dev(), found.ino());
        let (ours, there) = (self.file.metadata().map(file), fs::metadata(&self.path).map(file));
        matches!((ours, there), (Ok(ours), Ok(there)) if ours == there)
    }

    pub fn remove(self) {
        // Nothing depends on it: a file without a lock means that no process runs. Another process may have
        // replaced the file, which is not ours to remove then.
        if self.is_in_place() {
            let _ = fs::remove_file(&self.path);
        }
    }

    /// How long ago the file was last touched, or made.
    pub fn age(&self) -> Duration {
        let changed = self.file.metadata().and_then(|found| found.modified());
        changed.ok().and_then(|changed| changed.elapsed().ok()).unwrap_or_default()
    }
    pub fn touch(&self) {
        // At worst the next one waits longer, or less.
        let _ = self.file.set_modified(SystemTime::now());
    }
}

/// What a pid file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Gone,
    /// The file is locked, and the process is not ready yet.
    Starting,
    /// Waits for memory, see `admission`.
    Waits(i32),
    Runs(i32),
}

pub fn state(path: &Path) -> Result<State> {
    let mut file = match File::open(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(State::Gone),
        file => file.with_context(|| format!("cannot open {}", path.display()))?,
    };
    match file.try_lock_shared() {
        Ok(()) => return Ok(State::Gone),
        Err(TryLockError::WouldBlock) => {}
        Err(TryLockError::Error(e)) => {
            return Err(e).with_context(|| format!("cannot lock {}", path.display()));
        }
    }
    let mut text = String::new();
    file.read_to_string(&mut text).with_context(|| format!("cannot read {}", path.display()))?;
    let text = text.trim();
    Ok(match text.strip_prefix(WAITS) {
        Some(pid) => pid.parse().map_or(State::Starting, State::Waits),
        None => text.parse().map_or(State::Starting, State::Runs),
    })
}

/// The same, but waits for a process that has been killed: it holds its lock until its last write
/// to the disk is done.
pub fn settled(path: &Path) -> Result<State> {
    let deadline = Instant::now() + DYING_TIMEOUT;
    loop {
        match state(path)? {
            State::Runs(pid) if is_dying(pid) && Instant::now() < deadline => std::thread::sleep(POLL),
            state => return Ok(state),
        }
    }
}

/// A process on its way out has no program any more.
fn is_dying(pid: i32) -> bool {
    fs::read_link(format!("/proc/{pid}/exe")).is_err()
}

/// Fails if a daemon runs as a process of its own.
pub fn ensure_stopped(layout: &Layout, daemon: &DaemonName) -> Result<()> {
    if let State::Runs(pid) | State::Waits(pid) = settled(&layout.pid(&daemon.to_string()))? {
        bail!("{daemon} is running as pid {pid}: stop it with `nacre stop {daemon}`");
    }
    Ok(())
}

/// The folder of a cluster, locked against other commands that change it.
pub fn open_to_change(data: &Path) -> Result<(Layout, Cluster, LockFile)> {
    let (layout, cluster) = Layout::open(data)?;
    let lock = lock_folder(&layout)?;
    Ok((layout, cluster, lock))
}

/// Locks a folder against other commands that change it.
pub fn lock_folder(layout: &Layout) -> Result<LockFile> {
    let lock = LockFile::take(layout.lock())?;
    lock.with_context(|| format!("another `nacre` command is working on {}", layout.root().display()))
}

/// Name and number of every process of the folder that runs.
pub fn running(layout: &Layout, daemons: &[DaemonName]) -> Result<Vec<(String, State)>> {
    let names = [GATEWAY, ALL].map(String::from).into_iter();
    let names = names.chain(daemons.iter().map(DaemonName::to_string));
    let states = names.map(|name| state(&layout.pid(&name)).map(|state| (name, state)));
    states.filter(|s| !matches!(s, Ok((_, State::Gone)))).collect()
}

/// Where this program is installed. It may have been replaced since this process began.
pub fn program() -> Result<PathBuf> {
    let path = std::env::current_exe().context("cannot find this program")?;
    // So the kernel marks a file that was replaced.
    let replaced = path.to_str().and_then(|path| path.strip_suffix(" (deleted)")).map(PathBuf::from);
    Ok(replaced.filter(|_| !path.exists()).unwrap_or(path))
}

/// Starts the program that is installed as a process that outlives us. `data` is a daemon's data directory,
/// or the folder for a process with all daemons.
pub fn launch(layout: &Layout, name: &str, args: &[&str], data: &Path) -> Result<Child> {
    let program = program()?;
    let path = layout.log(name);
    let log = OpenOptions::new().append(true).create(true).mode(0o600).open(&path);
    let log = log.with_context(|| format!("cannot open {}", path.display()))?;
    let allocator = std::env::var_os(ALLOCATOR.0).is_none().then_some(ALLOCATOR);
    Command::new(&program)
        .envs(allocator)
        .args(args)
        .arg("--data")
        .arg(data)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .process_group(0) // a Ctrl-C on the terminal is ours alone
        .spawn()
        .with_context(|| format!("cannot start {}", program.display()))
}

/// The same, and waits until its daemons listen.
pub fn spawn(layout: &Layout, name: &str, args: &[&str], data: &Path) -> Result<Child> {
    let mut child = launch(layout, name, args, data)?;
    let path = layout.log(name);
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            bail!("{name} did not start ({status}); the end of {}:\n{}", path.display(), tail(&path));
        }
        match state(&layout.pid(name))? {
            State::Runs(pid) if pid == child.id() as i32 => return Ok(child),
            State::Waits(pid) if pid == child.id() as i32 && began.elapsed() > WAITS_PATIENCE => {
                eprintln!("startup of {name} is delayed until memory is free (see {})", path.display());
                return Ok(child);
            }
            _ => {}
        }
        if began.elapsed() > START_TIMEOUT {
            bail!("{name} (pid {}) is not ready after {} s", child.id(), START_TIMEOUT.as_secs());
        }
        std::thread::sleep(POLL);
    }
}

fn tail(path: &Path) -> String {
    let text = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
}

/// Asks a process to stop and waits until it is gone.
pub fn stop(layout: &Layout, name: &str, pid: i32) -> Result<()> {
    stop_within(layout, name, pid, STOP_TIMEOUT)
}

/// The same for a process that may take longer than a daemon.
pub fn stop_within(layout: &Layout, name: &str, pid: i32, timeout: Duration) -> Result<()> {
    signal(layout, name, pid)?;
    wait_gone_within(layout, name, pid, timeout)
}

/// Asks a child to stop that has not published its pid yet, and waits until it has ended.
pub fn stop_child(name: &str, child: &mut Child) -> Result<()> {
    if child.try_wait()?.is_some() {
        return Ok(());
    }
    let number = Pid::from_child(child);
    kill_process(number, Signal::TERM).with_context(|| format!("cannot stop {name} (pid {})", child.id()))?;
    let deadline = Instant::now() + STOP_TIMEOUT;
    while child.try_wait()?.is_none() {
        if Instant::now() > deadline {
            bail!("{name} (pid {}) is still running after {} s", child.id(), STOP_TIMEOUT.as_secs());
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}

pub fn signal(layout: &Layout, name: &str, pid: i32) -> Result<()> {
    let path = layout.pid(name);
    let number = Pid::from_raw(pid).with_context(|| format!("{} holds no pid", path.display()))?;
    // Looked at again right before: only a process that holds the lock is signalled.
    if is_process(state(&path)?, pid) {
        kill_process(number, Signal::TERM).with_context(|| format!("cannot stop {name} (pid {pid})"))?;
    }
    Ok(())
}

fn is_process(state: State, pid: i32) -> bool {
    matches!(state, State::Runs(has) | State::Waits(has) if has == pid)
}

pub fn wait_gone(layout: &Layout, name: &str, pid: i32) -> Result<()> {
    wait_gone_within(layout, name, pid, STOP_TIMEOUT)
}

fn wait_gone_within(layout: &Layout, name: &str, pid: i32, timeout: Duration) -> Result<()> {
    let deadline = Instant::now() + timeout;
    while is_process(state(&layout.pid(name))?, pid) {
        if Instant::now() > deadline {
            bail!("{name} (pid {pid}) is still running after {} s", timeout.as_secs());
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn process_that_ends_late_leaves_its_successor_s_pid_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("osd.0.pid");
        let late = LockFile::take(path.clone()).unwrap().unwrap();
        fs::remove_file(&path).unwrap(); // by a process that took it for stale
        let mut next = LockFile::take(path.clone()).unwrap().unwrap();
        next.write_pid().unwrap();
        late.remove();
        assert_eq!(state(&path).unwrap(), State::Runs(std::process::id() as i32));
    }

    /// Without a second look at the path two processes may hold locks: one on a file that was removed, one on
    /// a new file.
    #[test]
    fn lock_has_one_holder() {
        let dir = tempfile::tempdir().unwrap();
        let (path, holders) = (dir.path().join("lock"), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let Some(lock) = LockFile::take(path.clone()).unwrap() else { continue };
                        assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0);
                        std::thread::yield_now();
                        assert_eq!(holders.fetch_sub(1, Ordering::SeqCst), 1);
                        lock.remove();
                    }
                });
            }
        });
    }

    #[test]
    fn pid_counts_only_while_its_file_is_locked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("osd.0.pid");
        assert_eq!(state(&path).unwrap(), State::Gone);
        fs::write(&path, "1\n").unwrap(); // left by a process that was killed
        assert_eq!(state(&path).unwrap(), State::Gone);
        let mut lock = LockFile::take(path.clone()).unwrap().unwrap();
        lock.clear().unwrap();
        assert_eq!(state(&path).unwrap(), State::Starting);
        lock.write_waits().unwrap();
        assert_eq!(state(&path).unwrap(), State::Waits(std::process::id() as i32));
        lock.clear().unwrap();
        lock.write_pid().unwrap();
        assert_eq!(state(&path).unwrap(), State::Runs(std::process::id() as i32));
        assert!(LockFile::take(path.clone()).unwrap().is_none());
        lock.remove();
        assert_eq!(state(&path).unwrap(), State::Gone);
    }
}
