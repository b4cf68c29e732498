//! Options as the monitors read them: from the cluster's configuration, else from the configuration file,
//! else the default.

use crate::services::config::ConfigEntity;
use crate::state::State;
use nacre_options::{Daemon, Opt, Value, known};
use std::collections::BTreeMap;

/// What an option is set to for the monitors.
pub fn value(state: Option<&State>, file: &BTreeMap<String, String>, name: &str) -> Value {
    let option = known(name);
    set_in_cluster(state, option)
        .or_else(|| option.parse(file.get(name)?).ok())
        .unwrap_or_else(|| option.default.clone())
}

fn set_in_cluster(state: Option<&State>, option: &Opt) -> Option<Value> {
    // The leader does what Ceph's manager does.
    let is_mgr = option.used().is_some_and(|used| used.daemons == [Daemon::Mgr]);
    let kind = if is_mgr { "mgr" } else { "mon" };
    let who = ConfigEntity { kind: kind.to_string(), ..ConfigEntity::default() };
    option.parse(state?.config.value_for(&who, option.name)?).ok()
}
