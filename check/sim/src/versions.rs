//! Which daemons have the newest version, and which the one before.

use crate::network::NodeId;
use nacre_proto::types::{Formats, Release};
use std::collections::BTreeSet;

/// The daemons that start with the version before.
#[derive(Default)]
pub struct Versions {
    old: BTreeSet<NodeId>,
}

impl Versions {
    /// All of these have the version before.
    pub fn all_old(daemons: impl Iterator<Item = NodeId>) -> Versions {
        Versions { old: daemons.collect() }
    }

    /// From its next start on, a daemon has the newest version. False if it had it before.
    pub fn upgrade(&mut self, id: NodeId) -> bool {
        self.old.remove(&id)
    }

    /// What a daemon says of its program. The version before can use the formats before the newest only.
    pub fn of(&self, id: NodeId) -> Release {
        let Formats { min, max } = Formats::ALL;
        match self.old.contains(&id) {
            true => Release { version: "0.0.9".to_string(), formats: Formats { min, max: min.max(max - 1) } },
            false => Release::default(),
        }
    }
}
