//! Monitors. The process of one also answers as the manager, at an address of its own.

use crate::config::Common;
use crate::host;
use crate::image_tasks::{Manager, Order, Worker};
use crate::keyrings;
use crate::kinds::{Daemon, Kind, Prepared, listen, open_store, random};
use crate::metrics::MetricsServer;
use crate::name::DaemonName;
use crate::release::release;
use anyhow::{Context, Result, anyhow, ensure};
use nacre_mon::{Member, Mon, MonAuth, MonConfig};
use nacre_node::{Limits, Listener, LocalClient, MEMORY_DEFAULT, Running, Spec};
use nacre_perf::Registry;
use nacre_proto::types::{AddrVec, AuthName, EntityAddr, EntityType};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;

#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct MonSettings {
    /// `a` of `mon.a`.
    pub name: String,
    /// Where clients and daemons reach it as the manager. Port 0: the first free of `PORTS`.
    pub mgr_addr: SocketAddr,
    /// All monitors, this one among them, as the cluster's first monitors know each other.
    pub members: Vec<MonMember>,
    /// Keyrings of the entities that a new cluster begins with. Those that are missing are skipped.
    #[serde(default)]
    pub initial_keyrings: Vec<PathBuf>,
    /// Defaults of this cluster, by Ceph's names.
    #[serde(default)]
    pub options: BTreeMap<String, String>,
    /// For the `rbd` command, which does image tasks.
    pub ceph_conf: PathBuf,
}

#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct MonMember {
    pub name: String,
    /// Its number among the monitors, which is never used again.
    pub id: u64,
    pub addr: SocketAddr,
    /// It belongs to the monitors that the cluster began with. Others join.
    pub founder: bool,
}

impl Kind for MonSettings {
    fn name(&self) -> DaemonName {
        DaemonName::Mon(self.name.clone())
    }

    fn prepare(&self, common: &Common) -> Result<Prepared> {
        let member = self.members.iter().find(|member| member.name == self.name);
        let member = member
            .with_context(|| format!("mon.{} is not among the monitors of its configuration", self.name))?;
        ensure!(member.id > 0, "mon.{} has the number 0: monitors count from 1", self.name);
        for (name, value) in &self.options {
            let option = nacre_options::find(name)
                .with_context(|| format!("options of mon.{}: there is no option {name}", self.name))?;
            option.parse(value).map_err(|e| anyhow!("options of mon.{}: {name}: {e}", self.name))?;
        }
        // Other monitors know it by this number.
        let num = member.id as i64 - 1;
        let bind = |addr, kind| {
            common.ensure_may_listen(addr)?;
            listen(addr, |addr| Listener::bind(addr, 0, kind, num))
        };
        let listeners = vec![bind(member.addr, EntityType::Mon)?, bind(self.mgr_addr, EntityType::Mgr)?];
        let addrs = AddrVec::one(EntityAddr::msgr2(member.addr, 0));
        let mgr_addrs = AddrVec::one(listeners[1].addr);
        let key = common.key(&common.path(&common.keyring), &keyrings::monitors())?;
        let path = common.store();
        let (store, disk, report) = open_store(&path, false)?;
        // The other monitors rely on its votes, which nothing can restore.
        ensure!(
            report.losses == 0,
            "{} has lost this monitor's votes: remove the monitor and add it again",
            path.display()
        );
        let perf = Registry::default();
        let spec = Spec {
            name: self.name().to_string(),
            kind: EntityType::Mon,
            num,
            auth_name: AuthName::new(EntityType::Mon, self.name.clone()),
            key: key.clone(),
            addrs,
            listeners,
            datagrams: Vec::new(),
            store: Some((store, disk)),
            perf: perf.clone(),
            limits: Limits::of_memory(MEMORY_DEFAULT),
        };
        let initial = self.initial_keyrings.iter().map(|path| common.path(path));
        let config = MonConfig {
            id: member.id,
            name: self.name.clone(),
            members: self.members.iter().map(Member::from).collect(),
            mgr_addrs,
            fsid: common.fsid.into_bytes(),
            options: self.options.clone(),
            host: common.host(),
            perf,
            metadata: host::facts().into_iter().chain(host::store_facts(&path)).collect(),
            release: release().clone(),
            seed: random(),
            auth: MonAuth {
                required: key.is_some(),
                monitors_key: key,
                initial_entities: keyrings::initial(common.auth, initial)?,
                entropy: nacre_node::entropy(),
            },
        };
        let access = common.admin_access()?;
        let access = access.context("a monitor needs admin_keyring in its configuration, for image tasks")?;
        let conf = common.path(&self.ceph_conf);
        Ok(Box::new(move || {
            let (to_worker, orders) = Worker::orders();
            let (own, tell, to_metrics) = (to_worker.clone(), to_worker.clone(), to_worker.clone());
            let mon = Running::start(spec, move || Manager::new(Mon::new(config), to_worker));
            let worker = Worker::start(mon.caller(), (own, orders), conf, access);
            let metrics = MetricsServer::start(mon.caller(), to_metrics);
            let metrics = metrics.inspect_err(|e| tracing::warn!("metrics are not served: {e}")).ok();
            Box::new(RunningMon { mon, tell, worker, metrics })
        }))
    }
}

impl From<&MonMember> for Member {
    fn from(member: &MonMember) -> Member {
        Member {
            id: member.id,
            name: member.name.clone(),
            addrs: AddrVec::one(EntityAddr::msgr2(member.addr, 0)),
            initial: member.founder,
        }
    }
}

/// A monitor, and the threads that do image tasks and serve metrics for it.
struct RunningMon {
    mon: Running<Manager>,
    tell: Sender<Order>,
    worker: JoinHandle<()>,
    metrics: Option<MetricsServer>,
}

impl Daemon for RunningMon {
    fn stop(&self) {
        self.mon.stop();
    }
    fn is_finished(&self) -> bool {
        self.mon.is_finished()
    }
    fn local_client(&self) -> LocalClient {
        self.mon.local_client()
    }
    fn join(self: Box<Self>) -> Result<()> {
        let ended = Box::new(self.mon).join();
        if let Some(metrics) = self.metrics {
            metrics.stop();
        }
        // The monitor did not tell it if it ended by itself, as when its disk is full.
        let _ = self.tell.send(Order::Stop);
        self.worker.join().map_err(|_| anyhow!("the worker for image tasks panicked"))?;
        ended
    }
}
