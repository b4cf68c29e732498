//! The monitor that each OSD has a session with, as reported to the leader since its election.

use nacre_base::OsdId;
use std::collections::BTreeMap;

/// None where the session ended and there is no other one.
#[derive(Default)]
pub struct OsdSessions(BTreeMap<OsdId, Option<u64>>);

impl OsdSessions {
    /// The OSD said something to that monitor.
    pub fn heard(&mut self, osd: OsdId, mon: u64) {
        self.0.insert(osd, Some(mon));
    }
    /// Its session with that monitor ended; it may have another one by now.
    pub fn ended(&mut self, osd: OsdId, mon: u64) {
        let at = self.0.entry(osd).or_insert(Some(mon));
        if *at == Some(mon) {
            *at = None;
        }
    }
    /// That monitor is gone, and its sessions with it.
    pub fn lost(&mut self, mon: u64) {
        self.0.values_mut().filter(|at| **at == Some(mon)).for_each(|at| *at = None);
    }
    /// It had a session with one of the monitors, which ended.
    pub fn is_over(&self, osd: OsdId) -> bool {
        self.0.get(&osd) == Some(&None)
    }
}
