//! Kinds of daemon. A file per kind says how its configuration becomes a machine with sockets and a store.
//!
//! `Kind` is what a process needs of each (`fleet`). A new kind is a file here and a variant of `KindConfig`.

mod mon;
mod osd;

pub use mon::{MonMember, MonSettings};
pub use osd::OsdSettings;

use crate::config::{Arguments, Common};
use crate::name::DaemonName;
use crate::store;
use anyhow::{Context, Result, anyhow, bail, ensure};
use nacre_machine::{Machine, StoreView, given_up};
use nacre_node::{BindError, FileDisk, LocalClient, Running};
use nacre_store::{Report, Store};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use uuid::Uuid;

/// What a process needs of a daemon, whatever its kind.
pub trait Kind {
    fn name(&self) -> DaemonName;

    /// Bytes of memory that must be available before the daemon starts. None: it starts at once.
    fn memory_reserved(&self) -> Option<u64> {
        None
    }

    /// Takes over what the command line says, and else what the monitors' configuration says.
    fn settle(&mut self, _common: &Common, _arguments: &Arguments) -> Result<()> {
        Ok(())
    }

    /// Checks the configuration, binds the sockets and opens the store. All that can fail happens here,
    /// before the first daemon of the process starts.
    fn prepare(&self, common: &Common) -> Result<Prepared>;
}

/// Starts a daemon that is prepared.
pub type Prepared = Box<dyn FnOnce() -> Box<dyn Daemon>>;

/// A daemon that runs in this process.
pub trait Daemon {
    /// Asks it to stop; `join` waits for that.
    fn stop(&self);
    fn is_finished(&self) -> bool;
    /// Sends it commands.
    fn local_client(&self) -> LocalClient;
    fn join(self: Box<Self>) -> Result<()>;
}

impl<M: Machine + 'static> Daemon for Running<M> {
    fn stop(&self) {
        Running::stop(self);
    }
    fn is_finished(&self) -> bool {
        Running::is_finished(self)
    }
    fn local_client(&self) -> LocalClient {
        Running::local_client(self)
    }
    fn join(self: Box<Self>) -> Result<()> {
        let name = self.name().to_string();
        Running::join(*self).map_err(|e| anyhow!("{name} ended: {e}"))
    }
}

/// Opens a daemon's store, logs what is damaged, and refuses one that must not be used.
fn open_store(path: &Path, preallocated: bool) -> Result<(Store, FileDisk, Report)> {
    let mut disk = store::open_disk(path, None)?;
    if preallocated {
        disk.set_preallocated();
    }
    let opened = Store::open_paged(Arc::new(disk.clone()));
    let (store, report) = opened.with_context(|| format!("cannot use {}", path.display()))?;
    if report.torn_tail {
        tracing::info!("{}: discarded an incomplete write from the last run", path.display());
    }
    if report.repaired > 0 {
        let (records, blocks) = (report.repaired, report.lost_blocks.len());
        tracing::error!("{}: {records} damaged records in the log, {blocks} blocks lost", path.display());
    }
    if let Some((first, last)) = report.lost {
        tracing::error!("{}: the log has lost transactions {} to {}", path.display(), first.0, last.0);
    }
    // Where that cannot be read the daemon itself decides what to do.
    let is_half_imported = store.is_half_imported().unwrap_or_default();
    ensure!(!is_half_imported, "cannot use {}: {}", path.display(), store::HALF_IMPORTED);
    ensure!(
        store.stat(&given_up()).unwrap_or_default().is_none(),
        "{} was given up because its metadata is corrupt: recreate it with `nacre osd format --id`. Other \
         OSDs have its data; if they do not have all of it, save it first with `nacre store export`",
        path.display()
    );
    Ok((store, disk, report))
}

fn random() -> u64 {
    Uuid::new_v4().as_u64_pair().0 ^ Uuid::new_v4().as_u64_pair().1
}

/// Ports of daemons whose configuration names none. Ceph: `ms_bind_port_min` and `ms_bind_port_max`.
pub const PORTS: RangeInclusive<u16> = 6800..=7568;

/// Listens at `addr`, or on the first free of `PORTS` if its port is 0.
fn listen<T>(addr: SocketAddr, bind: impl Fn(SocketAddr) -> Result<T, BindError>) -> Result<T> {
    if addr.port() != 0 {
        return Ok(bind(addr)?);
    }
    for port in PORTS {
        let addr = SocketAddr::new(addr.ip(), port);
        // A quick look first: `bind` finds out what has the port, which takes long.
        let is_taken = |e: io::Error| e.kind() == io::ErrorKind::AddrInUse;
        if TcpListener::bind(addr).is_err_and(is_taken) {
            continue;
        }
        match bind(addr) {
            Err(e) if e.source.kind() == io::ErrorKind::AddrInUse => {}
            bound => return Ok(bound?),
        }
    }
    bail!("there is no free port from {} to {} on {}", PORTS.start(), PORTS.end(), addr.ip())
}
