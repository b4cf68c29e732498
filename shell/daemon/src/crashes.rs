//! Reports of daemons that ended in a panic. The next incarnation posts them to the monitors (`ceph crash
//! ls`).
//!
//! ```text
//! DIR/crash/ID/meta      as Ceph's daemons write it
//! DIR/crash/posted/ID    known to the monitors
//! ```

use crate::ask::Access;
use crate::files::make_dir;
use bytes::Bytes;
use nacre_client::Request;
use rustix::system::uname;
use serde_json::{Value, json};
use std::backtrace::Backtrace;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::panic::{self, PanicHookInfo};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use uuid::Uuid;

const POST_TIMEOUT: Duration = Duration::from_secs(60);
/// Lines of the stack that are kept.
const FRAMES_MAX: usize = 64;

/// From now on a panic is reported to a file before the process ends.
pub fn note_panics(folder: PathBuf) {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        // A failure here must not hide the panic.
        let _ = write(&folder, &describe(info));
        before(info);
    }));
}

fn describe(info: &PanicHookInfo<'_>) -> Value {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let stamp = nacre_base::Utime { sec: now.as_secs() as u32, nsec: now.subsec_nanos() };
    let stamp = stamp.to_string().replace("+0000", "Z");
    // Threads are named after their daemons.
    let thread = std::thread::current().name().unwrap_or("?").to_string();
    let stack = Backtrace::force_capture().to_string();
    let host = uname();
    let text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
    json!({
        "crash_id": format!("{stamp}_{}", Uuid::new_v4()),
        "timestamp": stamp,
        "process_name": "nacre",
        "entity_name": thread,
        "ceph_version": nacre_command::CEPH_VERSION_SHORT,
        "nacre_version": nacre_command::NACRE_VERSION,
        "utsname_hostname": text(host.nodename()),
        "utsname_sysname": text(host.sysname()),
        "utsname_release": text(host.release()),
        "utsname_version": text(host.version()),
        "utsname_machine": text(host.machine()),
        "assert_msg": info.to_string(),
        "assert_file": info.location().map(|at| at.file()),
        "assert_line": info.location().map(|at| at.line()),
        "assert_thread_name": thread,
        "backtrace": stack.lines().map(str::trim).take(FRAMES_MAX).collect::<Vec<_>>(),
    })
}

fn write(folder: &Path, crash: &Value) -> io::Result<()> {
    let id = crash["crash_id"].as_str().ok_or(io::ErrorKind::InvalidData)?;
    let place = folder.join(id);
    // A panic's message may have data of clients in it.
    DirBuilder::new().recursive(true).mode(0o700).create(&place)?;
    // Under its name only when it is complete.
    let new = place.join("meta.new");
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(crash.to_string().as_bytes())?;
    fs::rename(new, place.join("meta"))
}

/// Those that the monitors do not know yet.
fn unposted(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut all: Vec<PathBuf> =
        entries.map(|entry| entry.path()).filter(|p| p.join("meta").exists()).collect();
    all.sort();
    all
}

/// Posts crashes that the monitors do not know, in the background. The next incarnation posts what does not
/// arrive.
pub fn post(folder: PathBuf, access: Access) {
    let waiting = unposted(&folder);
    if waiting.is_empty() {
        return;
    }
    let post = move || {
        let client = access.connect();
        for place in waiting {
            let Ok(meta) = fs::read(place.join("meta")) else { continue };
            let command = json!({ "prefix": "crash post" }).to_string();
            let request = Request::mon_command(command, Bytes::from(meta)).timeout(POST_TIMEOUT);
            if let Err(error) = client.request(request) {
                tracing::warn!("crash report {} cannot be sent: {error}", place.display());
            } else if let Err(error) = note_posted(&folder, &place) {
                tracing::warn!("crash report {} will be sent later: {error}", place.display());
            }
        }
    };
    let started = std::thread::Builder::new().name("crashes".into()).spawn(post);
    if let Err(error) = started {
        tracing::warn!("crash reports cannot be sent: {error}");
    }
}

fn note_posted(folder: &Path, place: &Path) -> io::Result<()> {
    let posted = folder.join("posted");
    make_dir(&posted).map_err(io::Error::other)?;
    fs::rename(place, posted.join(place.file_name().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crash_is_posted_once() {
        let dir = tempfile::tempdir().unwrap();
        let crash = json!({ "crash_id": "2026-01-01T00:00:00.0Z_x", "entity_name": "osd.0" });
        write(dir.path(), &crash).unwrap();
        fs::create_dir(dir.path().join("half")).unwrap();
        fs::write(dir.path().join("half/meta.new"), "{").unwrap();
        let waiting = unposted(dir.path());
        assert_eq!(waiting, [dir.path().join("2026-01-01T00:00:00.0Z_x")]);
        let meta: Value = serde_json::from_slice(&fs::read(waiting[0].join("meta")).unwrap()).unwrap();
        assert_eq!(meta, crash);
        note_posted(dir.path(), &waiting[0]).unwrap();
        assert!(unposted(dir.path()).is_empty());
    }
}
