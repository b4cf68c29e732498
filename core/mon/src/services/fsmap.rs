//! File systems: there are none yet, and subscribers get an empty map.

use crate::sessions::Session;
use crate::state::{Applying, Genesis, Published, Rejected, Slice, State};
use nacre_base::Epoch;
use nacre_proto::messages::FsMapUser;

/// Nothing is stored.
#[derive(Clone, Debug)]
pub struct FileSystems;

impl Slice for FileSystems {
    type Delta = ();

    fn begin(_: &Genesis) -> Result<FileSystems, Rejected> {
        Ok(FileSystems)
    }
    fn apply(&mut self, (): &(), _: &Applying) {}

    fn version(&self, what: &str) -> Option<(u64, u64)> {
        matches!(what, "mdsmap" | "fsmap").then_some((1, 1))
    }

    fn publish(_: &State, what: &str, _: &mut Session, start: u64) -> Option<Published> {
        let none = FsMapUser { epoch: Epoch(1), legacy_client_fscid: -1, filesystems: Vec::new() };
        (what == "fsmap.user" && start <= 1).then(|| Published { messages: vec![none.into()], next: 2 })
    }
}
