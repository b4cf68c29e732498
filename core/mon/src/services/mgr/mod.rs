//! The active manager's part, which the leader plays: the manager map, registered service daemons, recovery
//! progress, commands about images.

pub mod image_commands;
pub mod image_load;
pub mod mds_load;
pub mod modules;
pub mod progress;
pub mod service_map;

use crate::sessions::Session;
use crate::state::{Applying, Genesis, Published, Rejected, Slice, State};
use nacre_proto::maps::MgrMap;
use nacre_proto::messages::MgrMapMsg;
use nacre_wire::to_vec;

/// As the log shows it.
pub fn map_text(map: &MgrMap) -> String {
    let standbys: Vec<&str> = map.standbys.values().map(|standby| &*standby.name).collect();
    let standbys =
        if standbys.is_empty() { String::new() } else { format!(", standbys: {}", standbys.join(", ")) };
    format!("mgrmap e{}: {}(active){standbys}", map.epoch, map.active_name)
}

/// The manager map.
#[derive(Clone, Debug)]
pub struct ManagerMap {
    pub map: MgrMap,
}

impl Slice for ManagerMap {
    type Delta = Option<MgrMap>;

    fn begin(_: &Genesis) -> Result<ManagerMap, Rejected> {
        Ok(ManagerMap { map: MgrMap::default() })
    }
    fn apply(&mut self, delta: &Self::Delta, _: &Applying) {
        if let Some(map) = delta {
            self.map = map.clone();
        }
    }

    fn version(&self, what: &str) -> Option<(u64, u64)> {
        (what == "mgrmap").then(|| (self.map.epoch.0.into(), 1))
    }

    fn publish(state: &State, what: &str, _: &mut Session, start: u64) -> Option<Published> {
        let map = &state.mgrmap.map;
        let epoch = u64::from(map.epoch.0);
        // Before the first leader said where the manager is there is nothing to publish.
        let is_new = what == "mgrmap" && epoch > 0 && start <= epoch;
        is_new.then(|| Published {
            messages: vec![MgrMapMsg { map: to_vec(map).into() }.into()],
            next: epoch + 1,
        })
    }
}
