//! Which PG is scrubbed next, and when to continue with it.

use super::{Osd, SCRUB};
use crate::pg::{PgEvent, ScrubRequest};
use nacre_base::{Now, PgId};
use nacre_machine::{Effect, StoreView};
use std::time::Duration;

/// Without a request for this long there are no active clients.
const IDLE_AFTER: Duration = Duration::from_secs(1);

impl Osd {
    /// A scrub that was requested through the monitors.
    pub(super) fn on_scrub_wanted(
        &mut self,
        now: Now,
        store: &dyn StoreView,
        pgs: Vec<PgId>,
        (deep, repair): (bool, bool),
        out: &mut Vec<Effect>,
    ) {
        for pg in pgs {
            self.tell_pg(now, store, pg, PgEvent::ScrubRequest(ScrubRequest { deep, repair }), out);
        }
    }

    /// Before PGs say whether it is time for theirs.
    pub(super) fn look_at_scrubs(&mut self, now: Now) {
        let (served, at) = self.last.served;
        let news = served != self.ops_served;
        if news {
            self.last.served = (self.ops_served, now.mono);
        }
        self.budget.scrub.busy = news || (at.nanos > 0 && now.mono.since(at) < IDLE_AFTER);
        self.budget.scrub.rules = self.options.scrub();
    }
    /// After they have.
    pub(super) fn start_scrub(&mut self, now: Now, store: &dyn StoreView, out: &mut Vec<Effect>) {
        if let Some(pg) = self.budget.scrub.choose() {
            self.tell_pg(now, store, pg, PgEvent::Scrub, out);
        }
    }

    pub(super) fn go_on_with_scrubs(&mut self, now: Now, store: &dyn StoreView, out: &mut Vec<Effect>) {
        self.last.scrub_wakes = None;
        for pg in self.budget.scrub.ready(now.mono) {
            self.tell_pg(now, store, pg, PgEvent::Loop, out);
        }
    }
    /// After every event. A step never follows upon another at once: others have their turns between.
    pub(super) fn wake_for_scrubs(&mut self, now: Now, out: &mut Vec<Effect>) {
        let Some(wakes) = self.budget.scrub.wakes_at() else { return };
        if self.last.scrub_wakes != Some(wakes) {
            self.last.scrub_wakes = Some(wakes);
            out.push(Effect::Arm { timer: SCRUB, after: wakes.since(now.mono) });
        }
    }
}
