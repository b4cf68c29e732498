//! The stock `rbd` command at work: it knows how an image is flattened, removed and moved while others
//! use it.

use super::schedules::{Kind, Level};
use super::task::{Action, Refs};
use anyhow::{Context, Result, ensure};
use std::env;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

const PROGRAM: &str = "rbd";
/// Seconds after which the helper gives up on a cluster that does not serve, as one whose monitor was
/// killed and left it behind.
const OP_TIMEOUT: &str = "300";
/// Bytes of its words that are kept: the last ones say what went wrong.
const WORDS_MAX: usize = 4096;

/// Whether there is one on this host.
pub fn is_installed() -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(PROGRAM).is_file())
}

/// What a helper that works says.
pub enum News {
    /// How far it is, from 0 to 1.
    Progress(f64),
    /// It has nothing more to say and ends; its last line.
    Over(String),
}

/// A helper that works on one task. Dropping it kills it.
pub struct Helper(Child);

impl Helper {
    /// `tell` is called on a thread of its own, and last with `News::Over`.
    pub fn start(conf: &Path, refs: &Refs, tell: impl Fn(News) + Send + 'static) -> Result<Helper> {
        let mut command = rbd_on(conf, words(refs.action), refs);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().context("cannot start rbd")?;
        let stderr = child.stderr.take().expect("it was piped");
        let listen = thread::Builder::new().name("rbd task".to_string());
        listen.spawn(move || listen_to(stderr, tell)).context("cannot listen to rbd")?;
        Ok(Helper(child))
    }

    /// Its exit status, once it is `News::Over`; -1 if a signal ended it.
    pub fn status(mut self) -> i32 {
        self.0.wait().ok().and_then(|status| status.code()).unwrap_or(-1)
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // One that is gone is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What `rbd status` says of an image in JSON, or None if there is no such image.
pub fn status(conf: &Path, refs: &Refs) -> Result<Option<serde_json::Value>> {
    let mut command = rbd_on(conf, &["status", "--format", "json"], refs);
    let output = command.output().context("cannot start rbd")?;
    if !output.status.success() {
        return Ok(None);
    }
    serde_json::from_slice(&output.stdout).map(Some).context("rbd status did not return JSON")
}

/// Does once what a schedule asks for, and waits until it is done.
pub fn repeat(conf: &Path, kind: Kind, level: &Level) -> Result<()> {
    let words: &[&str] = match kind {
        Kind::TrashPurge => &["trash", "purge", "--no-progress"],
        Kind::MirrorSnapshot => &["mirror", "image", "snapshot"],
    };
    let pool = level.pool.as_ref().map_or("", |(_, name)| name);
    let mut command = rbd(conf, words, pool, level.namespace.as_deref().unwrap_or_default());
    if let Some((_, name)) = &level.image {
        command.arg(format!("--image={name}"));
    }
    let output = command.stdin(Stdio::null()).output().context("cannot start rbd")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}

fn words(action: Action) -> &'static [&'static str] {
    match action {
        Action::Flatten => &["flatten"],
        Action::Remove => &["rm"],
        Action::TrashRemove => &["trash", "rm"],
        Action::MigrateExecute => &["migration", "execute"],
        Action::MigrateCommit => &["migration", "commit"],
        Action::MigrateAbort => &["migration", "abort"],
    }
}

fn rbd(conf: &Path, words: &[&str], pool: &str, namespace: &str) -> Command {
    let mut command = Command::new(PROGRAM);
    command.env_remove("CEPH_ARGS").env_remove("CEPH_CONF").arg("--conf").arg(conf).args(words);
    command.args(["--rados-osd-op-timeout", OP_TIMEOUT, "--rados-mon-op-timeout", OP_TIMEOUT]);
    command.args(["--log-to-stderr=false", "--err-to-stderr=false", "--pool", pool]);
    if !namespace.is_empty() {
        command.args(["--namespace", namespace]);
    }
    command
}

fn rbd_on(conf: &Path, words: &[&str], refs: &Refs) -> Command {
    let mut command = rbd(conf, words, &refs.pool_name, &refs.pool_namespace);
    // Whatever it is called, it is no option.
    match (&refs.image_name, &refs.image_id) {
        (Some(name), _) => command.arg(format!("--image={name}")),
        (None, Some(id)) => command.arg(format!("--image-id={id}")),
        (None, None) => &mut command,
    };
    command
}

fn listen_to(mut stderr: impl Read, tell: impl Fn(News)) {
    let (mut words, mut buffer) = (Vec::new(), [0; 512]);
    let mut last = None;
    while let Ok(len @ 1..) = stderr.read(&mut buffer) {
        words.extend_from_slice(&buffer[..len]);
        words.drain(..words.len().saturating_sub(WORDS_MAX));
        let percent = percent(&String::from_utf8_lossy(&words));
        if percent.is_some() && percent != last {
            last = percent;
            tell(News::Progress(f64::from(percent.unwrap_or_default()) / 100.0));
        }
    }
    let words = String::from_utf8_lossy(&words);
    let line = words.split(['\n', '\r']).rev().map(str::trim).find(|line| !line.is_empty());
    tell(News::Over(line.unwrap_or_default().to_string()));
}

/// The newest of `Image flatten: 45% complete...`.
fn percent(words: &str) -> Option<u8> {
    let before = words.rsplit_once('%')?.0;
    let digits = before.rsplit(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok().filter(|&percent| percent <= 100)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn progress_and_last_output_are_received() {
        let (tell, heard) = channel();
        let said = "\rImage flatten: 1% complete...\rImage flatten: 45% complete...failed.\nrbd: flatten error: busy\n";
        listen_to(said.as_bytes(), move |news| tell.send(news).unwrap());
        let news: Vec<_> = heard.iter().collect();
        assert!(matches!(&news[0], News::Progress(at) if *at == 0.45));
        assert!(matches!(&news[1], News::Over(line) if line == "rbd: flatten error: busy"));
        assert_eq!((percent("none"), percent("900%"), percent("%")), (None, None, None));
    }
}
