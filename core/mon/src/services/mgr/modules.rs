//! Modules of the manager. What Nacre has of them is built in and always on. Others can be named as
//! enabled, and do nothing.

use nacre_proto::maps::MgrModule;
use std::collections::{BTreeMap, BTreeSet};

/// What Ceph's manager does in modules and the leading monitor does here.
pub const ALWAYS_ON: [&str; 8] =
    ["balancer", "crash", "iostat", "pg_autoscaler", "progress", "prometheus", "rbd_support", "status"];

/// The number of the release that Nacre stands in for, as the manager map has it.
const PACIFIC: u32 = 16;

/// The modules that are on whatever is configured, by release.
pub fn always_on() -> BTreeMap<u32, BTreeSet<String>> {
    [(PACIFIC, ALWAYS_ON.map(String::from).into())].into()
}

/// The modules that there are.
pub fn available() -> Vec<MgrModule> {
    let module = |name: &str| MgrModule {
        name: name.to_string(),
        can_run: true,
        error: String::new(),
        options: BTreeMap::new(),
    };
    ALWAYS_ON.map(module).into()
}
