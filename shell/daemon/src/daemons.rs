//! From a folder to running daemons.

use crate::admission;
use crate::ask::Access;
use crate::cluster::{Cluster, DaemonName, Layout, MON_SIZE, Monitor, make_dir};
use crate::configured::Configured;
use crate::crashes;
use crate::device;
use crate::format::preallocate;
use crate::host;
use crate::image_tasks::{Manager, Order, Worker};
use crate::keyrings;
use crate::log;
use crate::networks::{Listen, OsdAddrs};
use crate::processes::{ALL, LockFile};
use crate::size::Size;
use crate::store;
use crate::up::StopSignals;
use anyhow::{Context, Result, anyhow, ensure};
use nacre_base::OsdId;
use nacre_machine::{Machine, StoreView, given_up};
use nacre_mon::{Member, Mon, MonAuth, MonConfig};
use nacre_node::{FileDisk, Limits, Listener, MEMORY_DEFAULT, Running, Spec};
use nacre_osd::{Osd, OsdConfig};
use nacre_perf::Registry;
use nacre_proto::types::{AddrVec, AuthName, EntityAddr, EntityType, Network};
use nacre_store::{Options, Store};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::Duration;
use uuid::Uuid;

/// What the command line says otherwise than the folder.
#[derive(Default)]
pub struct Said {
    /// For each OSD.
    pub memory: Option<Size>,
    pub listen: Listen,
}

impl Said {
    fn is_all(&self) -> bool {
        self.memory.is_some() && self.listen.public_addr.is_some() && self.listen.cluster_addr.is_some()
    }
}

/// Daemons that run in this process, and the lock that says so.
pub struct Fleet {
    lock: LockFile,
    osds: Vec<Running<Osd>>,
    mons: Vec<Running<Manager>>,
    /// With the way to tell each.
    workers: Vec<(Sender<Order>, JoinHandle<()>)>,
}

impl Fleet {
    /// `lock` is that of this process. `own`: it is an OSD's own, which is told where to listen.
    pub fn start(
        layout: &Layout,
        cluster: &Cluster,
        daemons: &[DaemonName],
        mut lock: LockFile,
        own: Option<(&Listen, &Configured)>,
    ) -> Result<Fleet> {
        nacre_node::abort_on_panic();
        crashes::note_panics(layout);
        nacre_node::raise_open_files();
        nacre_node::tune_allocator(daemons.len());
        lock.clear()?;
        // Everything that can fail comes before the first daemon starts.
        let prepared: Vec<_> =
            daemons.iter().map(|daemon| prepare(layout, cluster, daemon, own)).collect::<Result<_>>()?;
        let access = Access::of(layout, cluster)?;
        let (mut osds, mut mons, mut workers) = (Vec::new(), Vec::new(), Vec::new());
        for daemon in prepared {
            match daemon {
                Prepared::Mon(spec, config) => {
                    let (to_worker, orders) = Worker::orders();
                    let (own, tell) = (to_worker.clone(), to_worker.clone());
                    let mon = Running::start(spec, move || Manager::new(Mon::new(config), to_worker));
                    let conf = layout.ceph_conf();
                    workers.push((tell, Worker::start(mon.caller(), (own, orders), conf, access.clone())));
                    mons.push(mon);
                }
                Prepared::Osd(spec, config) => osds.push(Running::start(spec, move || Osd::new(config))),
            }
        }
        lock.write_pid()?;
        crashes::post(layout, access);
        keyrings::introduce(layout, cluster, daemons)?;
        Ok(Fleet { lock, osds, mons, workers })
    }

    /// True when a daemon ended that nobody stopped.
    pub fn is_finished(&self) -> bool {
        self.osds.iter().any(Running::is_finished) || self.mons.iter().any(Running::is_finished)
    }

    /// Waits until a daemon ended that nobody stopped.
    pub async fn ended(&self) {
        while !self.is_finished() {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// OSDs first, so that the monitors hear their goodbyes.
    pub fn stop(self) -> Result<()> {
        self.osds.iter().for_each(Running::stop);
        self.osds.into_iter().try_for_each(join)?;
        self.mons.iter().for_each(Running::stop);
        self.mons.into_iter().try_for_each(join)?;
        for (tell, worker) in self.workers {
            // Its monitor did not if it ended by itself, as when its disk is full.
            let _ = tell.send(Order::Stop);
            worker.join().map_err(|_| anyhow!("the worker for image tasks panicked"))?;
        }
        self.lock.remove();
        Ok(())
    }
}

/// Says that this process is the one of that name.
pub fn lock(layout: &Layout, process: &str) -> Result<LockFile> {
    LockFile::take(layout.pid(process))?.with_context(|| format!("{process} is already running"))
}

fn join<M: Machine + 'static>(daemon: Running<M>) -> Result<()> {
    let name = daemon.name().to_string();
    daemon.join().map_err(|_| anyhow!("{name} broke"))
}

enum Prepared {
    Mon(Spec, MonConfig),
    Osd(Spec, OsdConfig),
}

fn prepare(
    layout: &Layout,
    cluster: &Cluster,
    daemon: &DaemonName,
    own: Option<(&Listen, &Configured)>,
) -> Result<Prepared> {
    cluster.ensure_has(daemon)?;
    let host = hostname();
    let seed = random();
    let (kind, num, id, listeners) = match daemon {
        DaemonName::Mon(id) => {
            let mon = cluster.mon(id).expect("it was looked for above");
            // Other monitors know it by this number.
            let num = mon.id as i64 - 1;
            let bind = |addr, kind| Listener::bind(addr, 0, kind, num);
            let listeners = vec![
                bind(cluster.mon_addr(mon), EntityType::Mon)?,
                bind(cluster.mgr_addr(mon), EntityType::Mgr)?,
            ];
            (EntityType::Mon, num, id.clone(), listeners)
        }
        DaemonName::Osd(id) => {
            // Another nonce for each life, so that nobody takes this one for the last.
            let nonce = (random() >> 32) as u32 | 1;
            let folder = OsdAddrs::of_folder(cluster, *id);
            let addrs = match own {
                Some((listen, configured)) => folder.choose(listen, configured, *id)?,
                None => folder,
            };
            let addrs = [Some(addrs.public), addrs.cluster];
            let bind = |addr| Listener::bind(addr, nonce, EntityType::Osd, i64::from(*id));
            let listeners = addrs.into_iter().flatten().map(bind).collect::<Result<_, _>>()?;
            (EntityType::Osd, i64::from(*id), id.to_string(), listeners)
        }
    };
    let mut datagrams = Vec::new();
    if kind == EntityType::Osd {
        for (network, listener) in [Network::Public, Network::Cluster].into_iter().zip(&listeners) {
            datagrams.push((network, listener.bind_datagrams()?));
        }
    }
    let addrs = AddrVec::one(listeners[0].addr);
    // A monitor's as the manager, an OSD's among OSDs.
    let other_addrs = listeners.get(1).map(|listener| AddrVec::one(listener.addr));
    let perf = Registry::default();
    let memory = match cluster.memory.filter(|_| kind == EntityType::Osd) {
        Some(memory) => usize::try_from(memory.0).context("the memory limit is too large for this system")?,
        None => MEMORY_DEFAULT,
    };
    let key = keyrings::of_daemon(layout, cluster, daemon)?;
    let spec = Spec {
        name: daemon.to_string(),
        kind,
        num,
        auth_name: AuthName::new(kind, id.clone()),
        key: key.clone(),
        addrs: addrs.clone(),
        listeners,
        datagrams,
        store: Some(open_store(&layout.store(daemon), kind, cluster.is_preallocated(daemon))?),
        perf: perf.clone(),
        limits: Limits::of_memory(memory),
    };
    Ok(match daemon {
        DaemonName::Mon(_) => {
            let member = |mon: &Monitor| Member {
                id: mon.id,
                name: mon.name.clone(),
                addrs: AddrVec::one(EntityAddr::msgr2(cluster.mon_addr(mon), 0)),
                founder: mon.founder,
            };
            let config = MonConfig {
                id: num as u64 + 1,
                name: id,
                members: cluster.mons.iter().map(member).collect(),
                mgr_addrs: other_addrs.unwrap_or_default(),
                fsid: cluster.fsid.into_bytes(),
                options: cluster.options(),
                host,
                seed,
                auth: MonAuth {
                    is_wanted: key.is_some(),
                    founders: keyrings::founders(layout, cluster)?,
                    entropy: nacre_node::entropy(),
                },
            };
            Prepared::Mon(spec, config)
        }
        DaemonName::Osd(id) => {
            let osd = cluster.osds.iter().find(|osd| osd.id == *id).expect("it was looked for above");
            let config = OsdConfig {
                id: OsdId(*id as i32),
                uuid: osd.uuid.into_bytes(),
                public: addrs.clone(),
                cluster: other_addrs.unwrap_or(addrs),
                mons: cluster.mon_addrs(),
                host,
                device_class: "ssd".to_string(),
                memory,
                metadata: metadata(layout, daemon),
                perf,
                seed,
                key,
            };
            Prepared::Osd(spec, config)
        }
    })
}

/// What is known of the devices that a daemon stores on.
fn metadata(layout: &Layout, daemon: &DaemonName) -> BTreeMap<String, String> {
    let mut known = host::facts();
    for (of, report) in [("device", layout.device_report(daemon)), ("wal_device", layout.wal_report(daemon))]
    {
        known.extend(device::Report::load(&report).into_iter().flat_map(|report| report.metadata(of)));
    }
    let path = layout.store(daemon);
    let target = fs::canonicalize(&path).unwrap_or(path);
    if let Ok(file) = File::open(&target) {
        let claims = device::claims(&file);
        if let (Some(name), Some(serial)) = (&claims.name, &claims.serial) {
            let id = claims.model.iter().chain([serial]).map(|part| part.replace(' ', "_"));
            let id = id.collect::<Vec<_>>().join("_");
            known.insert("device_ids".to_string(), format!("{name}={id}"));
        }
        known.extend(claims.name.map(|name| ("devices".to_string(), name)));
        let turns = claims.rotational.map(|turns| u8::from(turns).to_string());
        known.extend(turns.map(|turns| ("rotational".to_string(), turns)));
    }
    known.insert("osd_store_path".to_string(), target.display().to_string());
    if let Ok(wal) = fs::read_link(layout.wal(daemon)) {
        known.insert("osd_wal_path".to_string(), wal.display().to_string());
    }
    known
}

fn open_store(path: &Path, kind: EntityType, preallocated: bool) -> Result<(Store, FileDisk)> {
    let mut disk = store::open_disk(path, None)?;
    if preallocated {
        disk.keep_room();
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
    // Where that cannot be read the daemon sees what to do.
    let is_half_imported = store.is_half_imported().unwrap_or_default();
    ensure!(!is_half_imported, "cannot use {}: {}", path.display(), store::HALF_IMPORTED);
    ensure!(
        store.stat(&given_up()).unwrap_or_default().is_none(),
        "{} was given up because its metadata is corrupt: recreate it with `nacre osd format --id`. Other \
         OSDs have its data; if they do not have all of it, save it first with `nacre store export`",
        path.display()
    );
    // Others rely on what a monitor voted for, and nobody can tell it what that was.
    ensure!(
        kind != EntityType::Mon || report.losses == 0,
        "{} has lost this monitor's votes: remove the monitor and add it again",
        path.display()
    );
    Ok((store, disk))
}

/// A monitor whose store is gone has forgotten what it promised: a new store is another monitor, which the cluster
/// has to be told of. Which ones those are.
pub fn renew_lost_monitors(layout: &Layout, cluster: &mut Cluster) -> Result<Vec<Monitor>> {
    let exists = |daemon: DaemonName| fs::symlink_metadata(layout.store(&daemon)).is_ok();
    let began = cluster.osds.iter().any(|osd| exists(DaemonName::Osd(osd.id)));
    let is_lost = |mon: &&Monitor| began && !exists(DaemonName::Mon(mon.name.clone()));
    let lost: Vec<String> = cluster.mons.iter().filter(is_lost).map(|mon| mon.name.clone()).collect();
    ensure!(
        lost.is_empty() || lost.len() < cluster.mons.len(),
        "no monitor of this cluster has its store any more, and without one the data cannot be located"
    );
    lost.iter().map(|name| cluster.add_mon(Some(name)).cloned()).collect()
}

/// Makes the stores that do not exist yet.
pub fn format_stores(layout: &Layout, cluster: &Cluster) -> Result<()> {
    let mons = cluster.mons.iter().map(|mon| (DaemonName::Mon(mon.name.clone()), Uuid::new_v4(), MON_SIZE));
    let osds = cluster.osds.iter().map(|osd| (DaemonName::Osd(osd.id), osd.uuid, osd.size));
    for (daemon, uuid, size) in mons.chain(osds) {
        let path = layout.store(&daemon);
        // A link to a device that is absent is no reason to make another store.
        if fs::symlink_metadata(&path).is_err() {
            format_store(&path, uuid, size, cluster.is_preallocated(&daemon))?;
        }
    }
    Ok(())
}

pub fn format_store(path: &Path, uuid: Uuid, size: Size, preallocated: bool) -> Result<()> {
    make_dir(path.parent().expect("a store is in a folder"))?;
    // Under another name until it is whole, so that dying here leaves nothing half-made.
    let new = path.with_extension("new");
    let format = || -> Result<()> {
        if new.exists() {
            fs::remove_file(&new)?;
        }
        let mut disk = FileDisk::create(&new, size.0)?;
        if preallocated {
            preallocate(&mut disk, path)?;
        }
        Store::format(
            &disk,
            Options { uuid: uuid.into_bytes(), log_id: Uuid::new_v4().into_bytes(), ..Options::default() },
        )?;
        Ok(fs::rename(&new, path)?)
    };
    format()
        .inspect_err(|_| drop(fs::remove_file(&new)))
        .with_context(|| format!("cannot make {}", path.display()))
}

/// Runs daemons until a signal comes.
pub fn foreground(data: &Path, daemons: &[DaemonName], process: &str, said: &Said) -> Result<()> {
    log::to_stderr();
    let (layout, mut cluster) = Layout::open(data)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut stop = StopSignals::new()?;
        let mut lock = lock(&layout, process)?;
        lock.clear()?;
        let configured = match daemons {
            // Nothing is left to ask for.
            [DaemonName::Osd(_)] if said.is_all() => Some(Configured::default()),
            [DaemonName::Osd(id)] => Some(Configured::ask(&Access::of(&layout, &cluster)?, *id)),
            _ => None,
        };
        let target = configured.as_ref().and_then(|configured| configured.memory).map(Size);
        cluster.memory = said.memory.or(target).or(cluster.memory);
        lock.write_waits()?;
        let osds = daemons.iter().filter(|daemon| matches!(daemon, DaemonName::Osd(_))).count();
        let budget = cluster.memory.map_or(MEMORY_DEFAULT as u64, |memory| memory.0);
        let admitted = tokio::select! {
            () = stop.wait() => {
                lock.remove();
                return Ok(());
            }
            admitted = admission::wait(layout.run(), osds, budget) => admitted?,
        };
        let own = configured.as_ref().map(|configured| (&said.listen, configured));
        let fleet = Fleet::start(&layout, &cluster, daemons, lock, own)?;
        drop(admitted);
        tokio::select! {
            () = stop.wait() => tracing::info!("stopping"),
            () = fleet.ended() => {}
        }
        fleet.stop()
    })
}

pub fn all(data: &Path) -> Result<()> {
    let (_, cluster) = Layout::open(data)?;
    foreground(data, &cluster.daemons(), ALL, &Said::default())
}

fn random() -> u64 {
    Uuid::new_v4().as_u64_pair().0 ^ Uuid::new_v4().as_u64_pair().1
}

fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
