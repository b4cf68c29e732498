//! The monitor of a host.

use crate::cluster::MON_SIZE;
use crate::config::{DaemonConfig, KindConfig};
use crate::hosts::dir::{HostConfig, HostDir};
use crate::kinds::{MonMember, MonSettings};
use crate::name::DaemonName;
use crate::new_stores;
use anyhow::Result;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use uuid::Uuid;

/// Makes a monitor of this host: its store, then its configuration.
pub fn new_monitor(
    dir: &HostDir,
    config: &HostConfig,
    members: Vec<MonMember>,
    name: &str,
    options: BTreeMap<String, String>,
) -> Result<()> {
    new_monitor_with(dir, config, members, name, options, |_| Ok(()))
}

/// The same, where something is to be in its store before it starts.
pub fn new_monitor_with(
    dir: &HostDir,
    config: &HostConfig,
    members: Vec<MonMember>,
    name: &str,
    options: BTreeMap<String, String>,
    fill: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    let daemon = DaemonName::mon(name)?;
    new_stores::make_one(&dir.layout().store(&daemon), Uuid::new_v4(), MON_SIZE, false)?;
    fill(&dir.layout().store(&daemon))?;
    let settings = MonSettings {
        name: name.to_string(),
        mgr_addr: SocketAddr::new(config.addr.ip(), 0),
        members,
        initial_keyrings: vec!["../ceph.client.admin.keyring".into(), "../bootstrap.keyring".into()],
        options,
        ceph_conf: "../ceph.conf".into(),
    };
    let common = config.common(dir.layout().data_dir(&daemon), &daemon);
    DaemonConfig::new(common, KindConfig::Mon(settings)).save()
}

/// The number of the monitor that a configuration is of.
pub fn monitor_id(config: &DaemonConfig) -> Option<u64> {
    let KindConfig::Mon(settings) = &config.kind else { return None };
    settings.members.iter().find(|member| member.name == settings.name).map(|member| member.id)
}
