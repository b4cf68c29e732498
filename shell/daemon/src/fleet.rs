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
    daemons: Vec<(DaemonName, Box<dyn Daemon>)>,
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
        Ok(Fleet { lock, sockets, daemons })
    }

    /// True when a daemon ended without being asked to.
    pub fn is_finished(&self) -> bool {
        self.daemons.iter().any(|(_, daemon)| daemon.is_finished())
    }

    /// Waits until a daemon ends without being asked to.
    pub async fn ended(&self) {
        while !self.is_finished() {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Monitors last, so that stopping OSDs can report to them. An error says which daemon had ended by
    /// itself, and why; the others are stopped all the same.
    pub fn stop(self) -> Result<()> {
        self.sockets.close();
        let (mons, others): (Vec<_>, Vec<_>) = self.daemons.into_iter().partition(|(name, _)| name.is_mon());
        let mut ended = Ok(());
        for daemons in [others, mons] {
            daemons.iter().for_each(|(_, daemon)| daemon.stop());
            for (_, daemon) in daemons {
                ended = ended.and(daemon.join());
            }
        }
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
        let fleet = Fleet::start(&configs, lock)?;
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
