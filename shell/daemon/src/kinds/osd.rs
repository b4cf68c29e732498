//! OSDs.

use crate::addresses::OsdAddrs;
use crate::config::{Arguments, Common};
use crate::configured::Configured;
use crate::device;
use crate::host;
use crate::hosts::judge::Class;
use crate::keyrings;
use crate::kinds::{Daemon, Kind, Prepared, listen, open_store, random};
use crate::name::DaemonName;
use crate::release::release;
use crate::size::Size;
use crate::store::wal_of;
use anyhow::{Context, Result};
use nacre_base::OsdId;
use nacre_node::{Limits, Listener, MEMORY_DEFAULT, Running, Spec};
use nacre_osd::{Osd, OsdConfig};
use nacre_perf::Registry;
use nacre_proto::types::{AddrVec, AuthName, EntityType, Network};
use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use uuid::Uuid;

#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct OsdSettings {
    /// `0` of `osd.0`.
    pub id: u32,
    /// That of its store: another store under the same number is another OSD.
    pub uuid: Uuid,
    /// For clients and monitors. Port 0: the first free of `PORTS`.
    pub public_addr: SocketAddr,
    /// For other OSDs, if that is another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_addr: Option<SocketAddr>,
    /// Bytes that it may use [default: 512 MiB].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Size>,
    /// Its device class in the CRUSH map when it is new there [default: ssd].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_class: Option<Class>,
    /// Its file has all its space, and keeps it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub preallocated: bool,
}

impl OsdSettings {
    fn memory(&self) -> u64 {
        self.memory.map_or(MEMORY_DEFAULT as u64, |memory| memory.0)
    }
    fn auth_name(&self) -> AuthName {
        AuthName::new(EntityType::Osd, self.id.to_string())
    }
}

impl Kind for OsdSettings {
    fn name(&self) -> DaemonName {
        DaemonName::Osd(self.id)
    }

    fn memory_reserved(&self) -> Option<u64> {
        Some(self.memory())
    }

    fn settle(&mut self, common: &Common, arguments: &Arguments) -> Result<()> {
        let said = &arguments.osd;
        let nothing_left = said.memory.is_some() && said.public_addr.is_some() && said.cluster_addr.is_some();
        let configured = match common.admin_access()?.filter(|_| !nothing_left) {
            Some(access) => Configured::ask(&access, self.id),
            None => Configured::default(),
        };
        let memory = said.memory.map(|memory| memory.0);
        self.memory = memory.or(configured.memory.map(Size)).or(self.memory);
        let own = OsdAddrs { public: self.public_addr, cluster: self.cluster_addr };
        let OsdAddrs { public, cluster } = own.choose(said, &configured, self.id)?;
        (self.public_addr, self.cluster_addr) = (public, cluster);
        Ok(())
    }

    fn prepare(&self, common: &Common) -> Result<Prepared> {
        let num = i64::from(self.id);
        // Another nonce for each incarnation, so that peers tell them apart.
        let nonce = (random() >> 32) as u32 | 1;
        let bind = |addr| {
            common.ensure_may_listen(addr)?;
            listen(addr, |addr| {
                let listener = Listener::bind(addr, nonce, EntityType::Osd, num)?;
                let datagrams = listener.bind_datagrams()?;
                Ok((listener, datagrams))
            })
        };
        let (public, of_public) = bind(self.public_addr)?;
        let mut datagrams = vec![(Network::Public, of_public)];
        let mut cluster = None;
        if let Some(addr) = self.cluster_addr {
            let (listener, of_cluster) = bind(addr)?;
            datagrams.push((Network::Cluster, of_cluster));
            cluster = Some(listener);
        }
        let addrs = AddrVec::one(public.addr);
        let cluster_addrs =
            cluster.as_ref().map_or_else(|| addrs.clone(), |cluster| AddrVec::one(cluster.addr));
        let memory =
            usize::try_from(self.memory()).context("the memory limit is too large for this system")?;
        let keyring = keyrings::in_use(&common.path(&common.keyring));
        let key = common.key(&keyring, &self.auth_name())?;
        let (store, disk, _) = open_store(&common.store(), self.preallocated)?;
        let perf = Registry::default();
        let spec = Spec {
            name: self.name().to_string(),
            kind: EntityType::Osd,
            num,
            auth_name: self.auth_name(),
            key: key.clone(),
            addrs: addrs.clone(),
            listeners: [Some(public), cluster].into_iter().flatten().collect(),
            datagrams,
            store: Some((store, disk)),
            perf: perf.clone(),
            limits: Limits::of_memory(memory),
        };
        let config = OsdConfig {
            id: OsdId(self.id as i32),
            uuid: self.uuid.into_bytes(),
            public: addrs,
            cluster: cluster_addrs,
            mons: common.mon_addrs(),
            host: common.host(),
            device_class: self.device_class.unwrap_or(Class::Ssd).to_string(),
            memory,
            metadata: self.metadata(common),
            release: release().clone(),
            perf,
            seed: random(),
            key,
        };
        let introduce = keyrings::introduction(common)?;
        Ok(Box::new(move || -> Box<dyn Daemon> {
            let osd = Running::start(spec, move || Osd::new(config));
            if let Some(introduce) = introduce {
                introduce.start();
            }
            Box::new(osd)
        }))
    }
}

impl OsdSettings {
    /// What is known of its host, its networks and the devices that it stores on.
    fn metadata(&self, common: &Common) -> BTreeMap<String, String> {
        let path = common.store();
        let mut known = host::facts();
        known.extend(host::store_facts(&path));
        known.extend(host::bdev_facts(&path));
        for (of, report) in [("device", "device.json"), ("wal_device", "wal.json")] {
            let report = device::Report::load(&common.data.join(report));
            known.extend(report.into_iter().flat_map(|report| report.metadata(of)));
        }
        let back = self.cluster_addr.unwrap_or(self.public_addr);
        for (key, addr) in [("front_iface", self.public_addr), ("back_iface", back)] {
            known.insert(key.to_string(), host::interface_of(addr.ip()).unwrap_or_default());
        }
        known.insert("osd_data".to_string(), common.data.display().to_string());
        let target = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
        known.insert("osd_store_path".to_string(), target.display().to_string());
        if let Ok(wal) = fs::read_link(wal_of(&path)) {
            known.insert("osd_wal_path".to_string(), wal.display().to_string());
        }
        known
    }
}
