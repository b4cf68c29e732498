//! All placement groups in one line.

use super::stats::PgStats;
use crate::output::bytes;
use nacre_proto::maps::OsdMap;
use nacre_proto::messages::pg_state;
use std::collections::BTreeMap;

/// As `ceph pg stat` shows it.
pub fn text(stats: &PgStats, map: &OsdMap) -> String {
    let states = by_count(&stats.states(map));
    let (sum, rates) = (stats.sum(), stats.all_rates(map));
    let space = stats.space(|osd| map.is_in(osd));
    let all: u64 = states.iter().map(|(_, n)| n).sum();
    let parts: Vec<String> =
        states.iter().map(|(state, n)| format!("{n} {}", pg_state::name(*state))).collect();
    let mut text = format!(
        "{all} pgs: {}; {} data, {} used, {} / {} avail",
        parts.join(", "),
        bytes(sum.bytes),
        bytes(space.used()),
        bytes(space.available),
        bytes(space.total)
    );
    let percent = |n: u64, of: u64| 100.0 * n as f64 / of.max(1) as f64;
    if rates.reads + rates.writes > 0 {
        let amounts = [(rates.read_bytes, "rd"), (rates.write_bytes, "wr")];
        let amounts = amounts.iter().filter(|(n, _)| *n > 0);
        let amounts: String = amounts.map(|(n, what)| format!("{}/s {what}, ", bytes(*n))).collect();
        text += &format!("; {amounts}{} op/s", rates.reads + rates.writes);
    }
    for (n, what) in [(sum.degraded, "degraded"), (sum.misplaced, "misplaced")] {
        if n > 0 {
            text += &format!("; {n}/{} objects {what} ({:.3}%)", sum.copies, percent(n, sum.copies));
        }
    }
    if sum.unfound > 0 {
        let part = percent(sum.unfound, sum.objects);
        text += &format!("; {}/{} objects unfound ({part:.3}%)", sum.unfound, sum.objects);
    }
    if rates.recovered_bytes + rates.recovered_objects > 0 {
        let (amount, objects) = (bytes(rates.recovered_bytes), rates.recovered_objects);
        text += &format!("; {amount}/s, {objects} objects/s recovering");
    }
    text
}

/// States of placement groups, the most frequent first.
pub fn by_count(states: &BTreeMap<u64, u64>) -> Vec<(u64, u64)> {
    let mut rows: Vec<(u64, u64)> = states.iter().map(|(state, n)| (*state, *n)).collect();
    rows.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    rows
}
