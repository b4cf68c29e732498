//! Daemons of this process: from their configurations to threads that run, and back.

use crate::admin_sockets::AdminSockets;
use crate::admission;
use crate::config::{Arguments, DaemonConfig};
use crate::crashes;
use crate::files::make_dir;
use crate::kinds::Daemon;
use crate::log;
use crate::name::DaemonName;
use crate::processes::LockFile;
use crate::stop_signals::StopSignals;
use anyhow::{Context, Result};
use sd_notify::NotifyState;
use std::path::Path;
use std::time::Duration;

/// Daemons that run in this process, and the lock that says so.
pub struct Fleet {
    lock: LockFile,
    sockets: AdminSockets,
    daemons: Daemons,
}

/// Daemons of one process that have not been seen to end.
struct Daemons {
    running: Vec<(DaemonName, Box<dyn Daemon>)>,
    /// Why the first that failed did.
    failed: Result<()>,
}

impl Daemons {
    /// Takes out those that ended. True if one failed, or none is left: one that was stopped on purpose, as
    /// with
    /// `ceph osd stop`, ends alone.
    fn are_finished(&mut self) -> bool {
        let all = std::mem::take(&mut self.running);
        let (ended, running): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|(_, daemon)| daemon.is_finished());
        self.running = running;
        for (name, daemon) in ended {
            let result = daemon.join();
            if result.is_ok() {
                tracing::info!("{name} has stopped");
            }
            self.note(result);
        }
        self.failed.is_err() || self.running.is_empty()
    }

    fn note(&mut self, result: Result<()>) {
        if self.failed.is_ok() {
            self.failed = result;
        }
    }

    /// Monitors last, so that stopping OSDs can report to them.
    fn stop(mut self) -> Result<()> {
        let all = std::mem::take(&mut self.running);
        let (mons, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|(name, _)| name.is_mon());
        for daemons in [others, mons] {
            daemons.iter().for_each(|(_, daemon)| daemon.stop());
            for (_, daemon) in daemons {
                self.note(daemon.join());
            }
        }
        self.failed
    }
}

impl Fleet {
    /// `lock` is that of this process.
    pub fn start(configs: &[DaemonConfig], mut lock: LockFile) -> Result<Fleet> {
        let common = &configs.first().context("there is no daemon to start")?.common;
        nacre_node::abort_on_panic();
        crashes::note_panics(common.crash_dir());
        nacre_node::raise_open_files();
        nacre_node::tune_allocator(configs.len());
        lock.clear()?;
        // All that can fail comes before the first daemon starts.
        let prepare = |config: &DaemonConfig| {
            let kind = config.kind.as_kind();
            let prepared =
                kind.prepare(&config.common).with_context(|| format!("cannot start {}", kind.name()))?;
            anyhow::Ok((kind.name(), prepared))
        };
        let prepared: Vec<_> = configs.iter().map(prepare).collect::<Result<_>>()?;
        let access = common.admin_access()?;
        let daemons: Vec<(DaemonName, Box<dyn Daemon>)> =
            prepared.into_iter().map(|(name, start)| (name, start())).collect();
        let clients = daemons.iter().map(|(name, daemon)| (name.clone(), daemon.local_client()));
        let sockets = AdminSockets::open(&common.run_dir(), clients.collect());
        lock.write_pid()?;
        if let Some(access) = access {
            crashes::post(common.crash_dir(), access);
        }
        let daemons = Daemons { running: daemons, failed: Ok(()) };
        Ok(Fleet { lock, sockets, daemons })
    }

    /// True when a daemon failed, or none is left.
    pub fn is_finished(&mut self) -> bool {
        self.daemons.are_finished()
    }

    /// Waits for that.
    pub async fn ended(&mut self) {
        while !self.is_finished() {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Monitors last, so that stopping OSDs can report to them. An error says which daemon had ended by
    /// itself, and why; the others are stopped all the same.
    pub fn stop(self) -> Result<()> {
        self.sockets.close();
        let ended = self.daemons.stop();
        self.lock.remove();
        ended
    }
}

/// Takes the lock that says that this process is the one of that name.
pub fn lock(run: &Path, process: &str) -> Result<LockFile> {
    LockFile::take(run.join(format!("{process}.pid")))?
        .with_context(|| format!("{process} is already running"))
}

/// Tells systemd, if it started this process, that it is ready.
pub fn ready() {
    notify(&[NotifyState::Ready, NotifyState::Status("")]);
}

/// At worst systemd waits until it gives up, and starts this process again.
fn notify(state: &[NotifyState]) {
    if let Err(e) = sd_notify::notify(state) {
        tracing::warn!("systemd is not told how this process is: {e}");
    }
}

/// Runs daemons until a signal comes. `arguments` are those of a daemon that is alone in its process.
pub fn foreground(
    mut configs: Vec<DaemonConfig>,
    process: &str,
    arguments: Option<&Arguments>,
) -> Result<()> {
    log::to_stderr();
    let run = configs.first().context("there is no daemon to start")?.common.run_dir();
    make_dir(&run)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut stop = StopSignals::new()?;
        let mut lock = lock(&run, process)?;
        lock.clear()?;
        if let (Some(arguments), [config]) = (arguments, &mut configs[..]) {
            config.settle(arguments)?;
        }
        lock.write_waits()?;
        notify(&[NotifyState::Status("waits for memory")]);
        let reserved: Vec<u64> =
            configs.iter().filter_map(|config| config.kind.as_kind().memory_reserved()).collect();
        let budget = reserved.iter().copied().max().unwrap_or(0);
        let admitted = tokio::select! {
            () = stop.wait() => {
                lock.remove();
                return Ok(());
            }
            admitted = admission::wait(run, reserved.len(), budget) => admitted?,
        };
        let mut fleet = Fleet::start(&configs, lock)?;
        drop(admitted);
        ready();
        tokio::select! {
            () = stop.wait() => tracing::info!("stopping"),
            () = fleet.ended() => {}
        }
        notify(&[NotifyState::Stopping]);
        fleet.stop()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;
    use nacre_node::LocalClient;
    use std::cell::Cell;
    use std::rc::Rc;

    /// A daemon that ends when it is told to, or by itself.
    struct Fake {
        is_over: Rc<Cell<bool>>,
        fails: bool,
    }

    impl Daemon for Fake {
        fn stop(&self) {
            self.is_over.set(true);
        }
        fn is_finished(&self) -> bool {
            self.is_over.get()
        }
        fn local_client(&self) -> LocalClient {
            LocalClient::new(|_| tokio::sync::oneshot::channel().1)
        }
        fn join(self: Box<Self>) -> Result<()> {
            assert!(self.is_over.get());
            if self.fails { bail!("it failed") } else { Ok(()) }
        }
    }

    /// A monitor and two OSDs, of which the second fails when it ends, and what ends each.
    fn daemons() -> (Daemons, Vec<Rc<Cell<bool>>>) {
        let over: Vec<Rc<Cell<bool>>> = (0..3).map(|_| Rc::default()).collect();
        let names = [DaemonName::mon("a").unwrap(), DaemonName::Osd(0), DaemonName::Osd(1)];
        let fake = |(name, is_over): (DaemonName, &Rc<Cell<bool>>)| {
            let fails = name == DaemonName::Osd(1);
            let daemon: Box<dyn Daemon> = Box::new(Fake { is_over: is_over.clone(), fails });
            (name, daemon)
        };
        let running = names.into_iter().zip(&over).map(fake).collect();
        (Daemons { running, failed: Ok(()) }, over)
    }

    #[test]
    fn daemon_that_is_stopped_ends_alone_and_one_that_fails_ends_the_process() {
        let (mut all, over) = daemons();
        assert!(!all.are_finished());
        over[1].set(true); // `ceph osd stop 0`
        assert!(!all.are_finished() && all.running.len() == 2);
        over[2].set(true);
        assert!(all.are_finished());
        assert_eq!(all.stop().unwrap_err().to_string(), "it failed");
        assert!(over[0].get());
        let (mut all, over) = daemons();
        all.running.truncate(2);
        over[0].set(true);
        over[1].set(true);
        assert!(all.are_finished());
        all.stop().unwrap();
    }
}
