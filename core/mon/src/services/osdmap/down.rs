//! OSDs are marked down, since peers or the monitors receive nothing from them, and out, when they are down
//! for long.

use super::OsdMonitor;
use super::failure_reports::MarkDown;
use crate::crush_edit;
use crate::pending_txn::PendingTxn;
use crate::services::Context;
use nacre_base::OsdId;
use nacre_proto::maps::{OsdMap, osd_state};
use nacre_proto::messages::{FailureEvidence, LogLevel, OsdFailure};
use std::time::Duration;

/// An OSD that has no session here and says nothing for this long is down.
const SILENCE: Duration = Duration::from_secs(15);

impl OsdMonitor {
    /// An OSD reports that it receives nothing from another one, or that it does again.
    pub(super) fn failure(
        &mut self,
        cx: &Context<'_>,
        reporter: OsdId,
        failure: &OsdFailure,
        pending: &mut PendingTxn,
    ) {
        let target = failure.target;
        let map = pending.map().clone();
        let same_incarnation = map.addrs(target).is_some_and(|addrs| *addrs == failure.target_addrs)
            || map.osd(target).is_some_and(|o| o.cluster_addrs == failure.target_addrs);
        if target == reporter || !map.is_up(reporter) || !map.is_up(target) || !same_incarnation {
            return;
        }
        let failures = &mut self.failures;
        match failure.evidence {
            FailureEvidence::Recovered => failures.cancel(cx.now.mono, reporter, target),
            FailureEvidence::Silent { millis } => {
                failures.report_silence(
                    cx.now.mono,
                    reporter,
                    target,
                    None,
                    Duration::from_millis(millis.into()),
                );
            }
            FailureEvidence::SilentOn { network, millis } => {
                let silence = Duration::from_millis(millis.into());
                failures.report_silence(cx.now.mono, reporter, target, Some(network), silence);
            }
            FailureEvidence::Refused => failures.report_refused(cx.now.mono, reporter, target, &map),
        }
    }

    /// Marks down the OSDs that others report as failed.
    pub fn check_failures(&mut self, cx: &Context<'_>, pending: &mut PendingTxn) {
        if self.failures.is_open() {
            let map = pending.map().clone();
            let OsdMonitor { failures, sessions, .. } = self;
            for (decision, has_ended) in failures.refused(cx.now.mono, &map, sessions) {
                let target = decision.target;
                self.down(cx, decision, pending);
                if has_ended && pending.flips_up(target) {
                    pending.mark_dead(target);
                }
            }
            let enough = cx.option("mon_osd_min_down_reporters").as_u64() as usize;
            for decision in self.failures.check_reports(cx.now.mono, &map, enough) {
                self.down(cx, decision, pending);
            }
        }
    }

    fn down(&mut self, cx: &Context<'_>, decision: MarkDown, pending: &mut PendingTxn) {
        let target = decision.target;
        let map = pending.map().clone();
        let nodown = map.no_flags(target) & osd_state::NODOWN != 0;
        if nodown || !map.is_up(target) || pending.flips_up(target) {
            return;
        }
        pending.mark_down(target);
        let place = crate::crush_edit::location_text(&map.crush, target.0);
        let names: Vec<String> = decision.reporters.iter().map(|osd| format!("osd.{osd}")).collect();
        let text =
            format!("osd.{target} failed ({place}): {}, reported by {}", decision.why, names.join(", "));
        cx.log(pending, LogLevel::Info, text);
        self.failures.note_marked_down(cx.now.mono, decision);
    }

    /// Marks down the OSDs that fell silent towards the monitors.
    pub(super) fn mark_silent_down(&mut self, cx: &Context<'_>, map: &OsdMap, pending: &mut PendingTxn) {
        let mut silent = Vec::new();
        for osd in map.up_osds() {
            let heard = self.heard.get(&osd).copied().unwrap_or_default().max(self.since);
            let may = map.no_flags(osd) & osd_state::NODOWN == 0;
            if may
                && cx.now.mono.since(heard) > SILENCE
                && !cx.sessions.has_osd(osd)
                && !pending.flips_up(osd)
            {
                silent.push(osd);
            }
        }
        for osd in silent {
            pending.mark_down(osd);
            let text = format!("osd.{osd} marked down: no message from it for {} s", SILENCE.as_secs());
            cx.log(pending, LogLevel::Info, text);
        }
    }

    /// OSDs that are down for long go out, so that others take over their data.
    pub(super) fn mark_out(&mut self, cx: &Context<'_>, map: &OsdMap, pending: &mut PendingTxn) {
        let interval: u64 = cx.option("mon_osd_down_out_interval").as_u64();
        let min_in: f64 = cx.option("mon_osd_min_in_ratio").as_f64();
        let limit = map.crush.type_by_name(&cx.option("mon_osd_down_out_subtree_limit").to_string());
        let all = map.osd_ids().count();
        let mut inside = map.osd_ids().filter(|&osd| map.is_in(osd)).count();
        for osd in map.osd_ids().collect::<Vec<_>>() {
            let state = &map.osds[osd.index()];
            if state.has(osd_state::UP) || map.is_out(osd) || state.has(osd_state::NEW) {
                self.down_since.remove(&osd);
                continue;
            }
            let since = *self.down_since.entry(osd).or_insert(cx.now.mono);
            let noout = map.no_flags(osd) & osd_state::NOOUT != 0;
            if interval == 0 || noout || cx.now.mono.since(since) < Duration::from_secs(interval) {
                continue;
            }
            // Few are left: the data of the others would fill them.
            if (inside as f64) < min_in * all as f64 {
                continue;
            }
            // A whole rack lost its cable: that is repaired sooner than its data is copied.
            if limit.is_some_and(|kind| all_down_around(map, osd, kind)) {
                continue;
            }
            inside -= 1;
            pending.mark_out(osd);
            pending.flip(osd, osd_state::AUTOOUT);
            let text = format!("Marking osd.{osd} out (has been down for {interval} seconds)");
            cx.log(pending, LogLevel::Info, text);
        }
    }
}

/// Whether an OSD is in a bucket of that kind, or one above it, of which every OSD is down.
fn all_down_around(map: &OsdMap, osd: OsdId, kind: i32) -> bool {
    let buckets = map.crush.buckets.iter().flatten().filter(|bucket| i32::from(bucket.kind) >= kind);
    buckets.filter(|bucket| !map.crush.is_shadow(bucket.id)).any(|bucket| {
        let below = crush_edit::osds_below(&map.crush, bucket.id);
        below.contains(&osd) && below.iter().all(|&osd| map.is_down(osd))
    })
}
