//! The beginning of a cluster.

use crate::commands::{PACIFIC_FEATURES, erasure};
use crate::mon::MonConfig;
use crate::options;
use crate::services::mgr::modules;
use crate::state::Genesis;
use nacre_base::{Epoch, Utime};
use nacre_crush::CrushMap;
use nacre_proto::maps::{MgrMap, MgrStandby, MonMap, OsdMap};
use nacre_wire::to_vec;

pub fn genesis(config: &MonConfig, now: Utime) -> Genesis {
    let fsid = config.fsid;
    let founders = config.members.iter().filter(|member| member.initial);
    let monmap = MonMap::new(fsid, now, founders.map(|member| (member.name.clone(), member.addrs.clone())));
    // 0 is the type of OSDs themselves: a cluster on one host.
    let failure_domain = options::value(None, &config.options, "osd_crush_chooseleaf_type").as_u64() as i32;
    let mut osdmap = OsdMap::new(fsid, now, CrushMap::fresh(failure_domain));
    let profile = options::value(None, &config.options, "osd_pool_default_erasure_code_profile").to_string();
    osdmap.erasure_code_profiles.insert(erasure::DEFAULT.to_string(), erasure::parse_default(&profile).0);
    Genesis {
        monmap,
        osdmap: to_vec(&osdmap).into(),
        entities: config.auth.initial_entities.clone(),
        format: config.release.formats.max,
    }
}

/// Another monitor's process, which is the manager when that monitor leads.
pub fn standby(gid: u64, name: String) -> MgrStandby {
    let module_names = modules::ALWAYS_ON.map(String::from).into();
    MgrStandby {
        gid,
        name,
        module_names,
        available_modules: modules::available(),
        features: PACIFIC_FEATURES,
    }
}

/// This process in the manager's role.
pub fn manager_map(config: &MonConfig, epoch: Epoch, gid: u64, now: Utime) -> MgrMap {
    // With the features of Octopus, clients tell apart what they ask the cluster and what this daemon.
    let map = MgrMap::with_active(epoch, &config.name, gid, config.mgr_addrs.clone(), now);
    MgrMap {
        active_mgr_features: PACIFIC_FEATURES,
        available_modules: modules::available(),
        always_on_modules: modules::always_on(),
        ..map
    }
}
