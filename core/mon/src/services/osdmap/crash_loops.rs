//! OSDs that crash soon after each start are kept down for a while, since each start may crash others.
//!
//! In a cluster whose OSDs run out of memory while they peer, each restart starts peering again, and the next
//! OSD crashes. The delay ends when half of the OSDs are down: then there is little left to protect.

use crate::services::health::{Check, Checks, Severity};
use nacre_base::{OsdId, Time};
use nacre_proto::maps::OsdMap;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// An OSD that ends sooner after its boot, without saying so, crashed early.
const EARLY_DEATH: Duration = Duration::from_secs(60);
/// How long such crashes count.
const HISTORY: Duration = Duration::from_secs(600);
/// This many of them within `HISTORY` may be chance.
const TOLERATED: usize = 3;
/// After the next one the OSD waits for this long, and twice as long after each further one.
const DELAY: Duration = Duration::from_secs(10);
const DELAY_MAX: Duration = Duration::from_secs(60);

#[derive(Default)]
pub struct CrashLoops {
    booted: BTreeMap<OsdId, Time>,
    /// Early crashes.
    pub died: BTreeMap<OsdId, VecDeque<Time>>,
}

impl CrashLoops {
    pub fn booted(&mut self, now: Time, osd: OsdId) {
        self.booted.insert(osd, now);
    }

    /// It ended at `then` without saying so. Gives for how long it is kept down, if it is.
    pub fn died(&mut self, then: Time, osd: OsdId) -> Option<Duration> {
        let booted = self.booted.remove(&osd)?;
        if then.since(booted) > EARLY_DEATH {
            return None;
        }
        self.died.entry(osd).or_default().push_back(then);
        self.delay(osd)
    }

    fn delay(&self, osd: OsdId) -> Option<Duration> {
        let more = self.died.get(&osd)?.len().checked_sub(TOLERATED + 1)?;
        Some((DELAY * 2_u32.pow(more.min(8) as u32)).min(DELAY_MAX))
    }

    /// For how long it has to wait yet.
    fn wait(&self, now: Time, osd: OsdId) -> Option<Duration> {
        let until = *self.died.get(&osd)?.back()? + self.delay(osd)?;
        (until > now).then(|| until.since(now))
    }

    /// Whether it has to wait with its return.
    pub fn must_wait(&self, now: Time, osd: OsdId, map: &OsdMap) -> bool {
        let inside = map.osd_ids().filter(|osd| map.is_in(*osd)).count();
        let up = map.up_osds().count();
        2 * up > inside && self.wait(now, osd).is_some()
    }

    pub fn forget(&mut self, now: Time, map: &OsdMap) {
        self.booted.retain(|osd, _| map.exists(*osd));
        self.died.retain(|osd, times| {
            times.retain(|at| now.since(*at) <= HISTORY);
            map.exists(*osd) && !times.is_empty()
        });
    }

    pub fn checks(&self, now: Time, map: &OsdMap, checks: &mut Checks) {
        let mut detail = Vec::new();
        for (&osd, times) in self.died.iter().filter(|(_, times)| times.len() > TOLERATED) {
            let place = crate::crush_edit::location_text(&map.crush, osd.0);
            let (times, minutes) = (times.len(), HISTORY.as_secs() / 60);
            let held = match self.wait(now, osd).filter(|_| self.must_wait(now, osd, map) && map.is_down(osd))
            {
                Some(wait) => format!("; it is held down for {} s", wait.as_millis().div_ceil(1000)),
                None => String::new(),
            };
            detail.push(format!(
                "osd.{osd} ({place}) crashed {times} times in {minutes} minutes, each time within {} s of \
                 its start{held}",
                EARLY_DEATH.as_secs()
            ));
        }
        if !detail.is_empty() {
            let (summary, count) = (format!("{} OSD(s) crash repeatedly", detail.len()), detail.len() as i64);
            let check = Check { severity: Severity::Warn, summary, count, detail };
            checks.insert("OSD_CRASH_LOOP", check);
        }
    }
}
