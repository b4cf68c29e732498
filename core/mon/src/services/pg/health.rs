//! What is wrong with placement groups and pools.

use super::stats::{Passing, PgStats, all_pgs};
use crate::output;
use crate::services::Context;
use crate::services::autoscale;
use crate::services::health::{Check, Checks, Severity, warn};
use nacre_base::{PgId, PoolId, Utime};
use nacre_proto::maps::{OsdMap, PoolOption, pool_flags};
use nacre_proto::messages::pg_state;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Placement groups named in the detail of one warning.
const DETAILS_MAX: usize = 50;
/// A placement group takes a moment to become active; only a longer one is worth a warning.
const INACTIVE_FOR: Duration = Duration::from_secs(5);

impl PgStats {
    pub fn health(&self, cx: &Context<'_>, map: &OsdMap, checks: &mut Checks) {
        groups(cx, self, map, checks);
        self.check_placeable(cx, map, checks);
        scrubs(cx, self, map, checks);
        pools(cx, self, map, checks);
    }
}

/// Lines about PGs, of which there may be very many.
fn shortened(mut lines: Vec<String>) -> Vec<String> {
    let more = lines.len().saturating_sub(DETAILS_MAX);
    if more > 0 {
        lines.truncate(DETAILS_MAX);
        lines.push(format!("{more} more pgs... "));
    }
    lines
}

/// Placement groups with one kind of problem: code, what it is about, and how bad.
struct Trouble {
    code: &'static str,
    text: &'static str,
    severity: Severity,
    /// By the word for the state.
    words: BTreeMap<&'static str, BTreeSet<PgId>>,
    /// Those in a state that is a problem only because it lasts: its word, and for how long.
    stuck: BTreeMap<PgId, (&'static str, Duration)>,
}

impl Trouble {
    fn new(code: &'static str, text: &'static str, severity: Severity) -> Trouble {
        Trouble { code, text, severity, words: BTreeMap::new(), stuck: BTreeMap::new() }
    }
    fn add(&mut self, word: &'static str, pg: PgId) {
        self.words.entry(word).or_default().insert(pg);
    }
    /// Adds it if the state has lasted long enough.
    fn add_stuck(&mut self, word: &'static str, pg: PgId, lasts: Duration, min: Duration) {
        if lasts >= min {
            self.add(word, pg);
            self.stuck.entry(pg).or_insert((word, lasts));
        }
    }
    fn check(self, stats: &PgStats, map: &OsdMap, objects: Option<String>) -> Option<(&'static str, Check)> {
        let all: BTreeSet<PgId> = self.words.values().flatten().copied().collect();
        if all.is_empty() && objects.is_none() {
            return None;
        }
        let counts = self.words.iter().map(|(word, pgs)| {
            let plural = if pgs.len() == 1 { "" } else { "s" };
            format!("{} pg{plural} {word}", pgs.len())
        });
        let parts: Vec<String> = objects.into_iter().chain(counts).collect();
        let mut detail: Vec<String> = all
            .iter()
            .take(DETAILS_MAX)
            .map(|&pg| {
                let state = pg_state::name(stats.pg_state(map, pg));
                let waiting = stats.pgs.get(&pg).map(|stat| &*stat.report.waiting_for).unwrap_or_default();
                let waiting =
                    if waiting.is_empty() { String::new() } else { format!(": waits for {waiting}") };
                let acting = crate::output::list(map.pg_to_up_acting(pg).acting.iter());
                match self.stuck.get(&pg) {
                    Some((word, lasts)) => format!(
                        "pg {pg} is stuck {word} for {}, current state {state}, last acting {acting}{waiting}",
                        output::age(lasts.as_secs())
                    ),
                    None => format!("pg {pg} is {state}, acting {acting}{waiting}"),
                }
            })
            .collect();
        if all.len() > DETAILS_MAX {
            detail.push(format!("{} more pgs are not listed", all.len() - DETAILS_MAX));
        }
        let summary = format!("{}: {}", self.text, parts.join(", "));
        Some((self.code, Check { severity: self.severity, summary, count: all.len() as i64, detail }))
    }
}

fn groups(cx: &Context<'_>, stats: &PgStats, map: &OsdMap, checks: &mut Checks) {
    use pg_state as s;
    let mut availability = Trouble::new("PG_AVAILABILITY", "Reduced data availability", Severity::Warn);
    let mut degraded = Trouble::new("PG_DEGRADED", "Degraded data redundancy", Severity::Warn);
    let mut damaged = Trouble::new("PG_DAMAGED", "Possible data damage", Severity::Error);
    let mut full = Trouble::new(
        "PG_BACKFILL_FULL",
        "Low space hindering backfill (add storage if this doesn't resolve itself)",
        Severity::Warn,
    );
    let stuck = Duration::from_secs(cx.option("mon_pg_stuck_threshold").as_u64());
    for pg in all_pgs(map) {
        let state = stats.pg_state(map, pg);
        if state & s::ACTIVE == 0 {
            // PGs of a new pool need time until their first report. If they have no OSDs, it never arrives.
            let creating = map.pool(pg.pool).is_some_and(|pool| pool.has(pool_flags::CREATING));
            let patience = if creating && state == 0 { stuck } else { INACTIVE_FOR };
            let word = [(s::PEERING, "peering"), (s::DOWN, "down"), (s::INCOMPLETE, "incomplete")]
                .into_iter()
                .find(|(bit, _)| state & bit != 0);
            let lasts = stats.lasts(cx.now.mono, pg, Passing::Inactive);
            availability.add_stuck("inactive", pg, lasts, patience);
            if let Some((_, word)) = word {
                availability.add(word, pg);
            }
        }
        if state & s::STALE != 0 {
            availability.add("stale", pg);
        }
        if state & s::CREATING == 0 {
            if state & s::DEGRADED != 0 {
                degraded.add("degraded", pg);
            }
            if state & s::UNDERSIZED != 0 {
                let lasts = stats.lasts(cx.now.mono, pg, Passing::Undersized);
                degraded.add_stuck("undersized", pg, lasts, stuck);
            }
        }
        for (bit, word) in [
            (s::INCONSISTENT, "inconsistent"),
            (s::RECOVERY_UNFOUND, "recovery_unfound"),
            (s::BACKFILL_UNFOUND, "backfill_unfound"),
        ] {
            if state & bit != 0 {
                damaged.add(word, pg);
            }
        }
        if state & s::BACKFILL_TOOFULL != 0 {
            full.add("backfill_toofull", pg);
        }
    }
    let sum = stats.sum();
    let percent = |n: u64| 100.0 * n as f64 / sum.copies.max(1) as f64;
    let mut objects = None;
    if sum.degraded > 0 {
        objects =
            Some(format!("{}/{} objects degraded ({:.3}%)", sum.degraded, sum.copies, percent(sum.degraded)));
    }
    for (trouble, objects) in [(availability, None), (degraded, objects), (damaged, None), (full, None)] {
        if let Some(check) = trouble.check(stats, map, objects) {
            checks.insert(check.0, check.1);
        }
    }
    // That data moves is not wrong.
    if sum.misplaced > 0 && cx.option("mon_warn_on_misplaced").as_bool() {
        let summary =
            format!("{}/{} objects misplaced ({:.3}%)", sum.misplaced, sum.copies, percent(sum.misplaced));
        warn(checks, "OBJECT_MISPLACED", 1, summary, Vec::new());
    }
    if sum.unfound > 0 {
        let percent = 100.0 * sum.unfound as f64 / sum.objects.max(1) as f64;
        let summary = format!("{}/{} objects unfound ({percent:.3}%)", sum.unfound, sum.objects);
        let counts = stats.pgs.iter().map(|(pg, stat)| (pg, stat.report.counts.unfound));
        let lines = counts.filter(|(_, n)| *n > 0).map(|(pg, n)| format!("pg {pg} has {n} unfound objects"));
        warn(checks, "OBJECT_UNFOUND", sum.unfound as usize, summary, shortened(lines.collect()));
    }
}

/// Scrub errors, and placement groups that were not scrubbed for too long.
fn scrubs(cx: &Context<'_>, stats: &PgStats, map: &OsdMap, checks: &mut Checks) {
    let sum = stats.sum();
    let errors = sum.shallow_errors + sum.deep_errors;
    if errors > 0 {
        let (severity, summary) = (Severity::Error, format!("{errors} scrub errors"));
        checks.insert(
            "OSD_SCRUB_ERRORS",
            Check { severity, summary, count: errors as i64, detail: Vec::new() },
        );
    }
    let number = |name: &str| cx.option(name).as_f64();
    let light = (1, "osd_scrub_max_interval", "mon_warn_pg_not_scrubbed_ratio");
    let deep = (2, "osd_deep_scrub_interval", "mon_warn_pg_not_deep_scrubbed_ratio");
    for (code, what, (of_pool, interval, ratio)) in
        [("PG_NOT_SCRUBBED", "scrubbed", light), ("PG_NOT_DEEP_SCRUBBED", "deep-scrubbed", deep)]
    {
        let ratio = number(ratio);
        let interval = number(interval);
        if ratio <= 0.0 {
            continue;
        }
        let mut lines = Vec::new();
        for pg in all_pgs(map) {
            let Some(stat) = stats.pgs.get(&pg) else { continue };
            let scrub = &stat.report.scrub;
            let last = if code == "PG_NOT_SCRUBBED" { scrub.last_stamp } else { scrub.last_deep_stamp };
            let own = map.pool(pg.pool).and_then(|pool| pool.options.get(&of_pool));
            let interval = match own {
                Some(PoolOption::Float(secs)) if *secs > 0.0 => *secs,
                _ => interval,
            };
            let age = f64::from(cx.now.wall.sec.saturating_sub(last.sec));
            if last != Utime::ZERO && age > interval * (1.0 + ratio) {
                lines.push(format!("pg {pg} not {what} since {last}"));
            }
        }
        if !lines.is_empty() {
            let count = lines.len();
            warn(checks, code, count, format!("{count} pgs not {what} in time"), shortened(lines));
        }
    }
}

fn pools(cx: &Context<'_>, stats: &PgStats, map: &OsdMap, checks: &mut Checks) {
    let name = |id| map.pool_name(id).unwrap_or_default();
    let flags = [("noscrub", pool_flags::NOSCRUB), ("nodeep-scrub", pool_flags::NODEEP_SCRUB)];
    let set = flags.map(|(flag, bit)| map.pools.values().any(|pool| pool.has(bit)).then_some(flag));
    let set: Vec<&str> = set.into_iter().flatten().collect();
    if !set.is_empty() {
        let lines = map.pools.iter().flat_map(|(id, pool)| {
            let set = flags.iter().filter(|(_, bit)| pool.has(*bit));
            set.map(|(flag, _)| format!("Pool {} has {flag} flag", name(*id)))
        });
        let detail: Vec<String> = lines.collect();
        let summary = format!("Some pool(s) have the {} flag(s) set", set.join(", "));
        // Set by an operator on purpose.
        let (severity, count) = (Severity::Ok, detail.len() as i64);
        checks.insert("POOL_SCRUB_FLAGS", Check { severity, summary, count, detail });
    }
    if cx.option("mon_warn_on_pool_no_app").as_bool() {
        let lines: Vec<String> = map
            .pools
            .iter()
            .filter(|(id, pool)| {
                let used = stats.pool(map, **id).counts.objects > 0;
                pool.applications.is_empty() && used
            })
            .map(|(id, _)| format!("application not enabled on pool '{}'", name(*id)))
            .collect();
        if !lines.is_empty() {
            let summary = format!("{} pool(s) do not have an application enabled", lines.len());
            let mut lines = lines;
            let n = lines.len();
            lines.push(
                "use 'ceph osd pool application enable <pool-name> <app-name>', where <app-name> is 'cephfs', \
                 'rbd', 'rgw', or freeform for custom applications."
                    .to_string(),
            );
            warn(checks, "POOL_APP_NOT_ENABLED", n, summary, lines);
        }
    }
    pg_counts(cx, stats, map, checks);
    if cx.option("mon_warn_on_pool_no_redundancy").as_bool() {
        let single = map.pools.iter().filter(|(_, pool)| !pool.is_erasure() && pool.size == 1);
        let lines: Vec<String> =
            single.map(|(id, _)| format!("pool '{}' has no replicas configured", name(*id))).collect();
        if !lines.is_empty() {
            let summary = format!("{} pool(s) have no replicas configured", lines.len());
            warn(checks, "POOL_NO_REDUNDANCY", lines.len(), summary, lines);
        }
    }
    for (code, bit, what) in [
        ("POOL_FULL", pool_flags::FULL, "full"),
        ("POOL_BACKFILLFULL", pool_flags::BACKFILLFULL, "backfillfull"),
        ("POOL_NEARFULL", pool_flags::NEARFULL, "nearfull"),
    ] {
        let lines: Vec<String> = map
            .pools
            .iter()
            .filter(|(_, pool)| pool.has(bit))
            .map(|(id, pool)| {
                let why = match (bit == pool_flags::FULL, pool.has(pool_flags::FULL_QUOTA)) {
                    (true, true) => " (running out of quota)",
                    (true, false) => " (no space)",
                    (false, _) => "",
                };
                format!("pool '{}' is {what}{why}", name(*id))
            })
            .collect();
        if !lines.is_empty() {
            warn(checks, code, lines.len(), format!("{} pool(s) {what}", lines.len()), lines);
        }
    }
    near_quotas(cx, stats, map, checks);
}

/// Pools that reach the thresholds of their quotas, in percent; 0 is none. A pool that has reached the quota
/// itself has a flag, which has a check of its own.
fn near_quotas(cx: &Context<'_>, stats: &PgStats, map: &OsdMap, checks: &mut Checks) {
    let threshold = |name: &str| cx.option(name).as_f64() / 100.0;
    let crit = threshold("mon_pool_quota_crit_threshold");
    let low = threshold("mon_pool_quota_warn_threshold");
    if crit <= 0.0 && low <= 0.0 {
        return;
    }
    let (mut full, mut near) = (BTreeMap::new(), BTreeMap::new());
    for (id, pool) in
        map.pools.iter().filter(|(_, pool)| pool.quota_max_objects > 0 || pool.quota_max_bytes > 0)
    {
        let (counts, name) = (stats.pool(map, *id).counts, map.pool_name(*id).unwrap_or_default());
        let (objects, objects_max) = (counts.objects, pool.quota_max_objects);
        let (bytes, bytes_max) = (output::bytes(counts.bytes), output::bytes(pool.quota_max_bytes));
        for (have, most, line) in [
            (objects, objects_max, format!("pool '{name}' has {objects} objects (max {objects_max})")),
            (counts.bytes, pool.quota_max_bytes, format!("pool '{name}' has {bytes} (max {bytes_max})")),
        ] {
            let reaches = |share: f64| share > 0.0 && have < most && have as f64 >= most as f64 * share;
            let of = match reaches(crit) {
                true => &mut full,
                false if reaches(low) => &mut near,
                false => continue,
            };
            of.entry(*id).or_insert_with(Vec::new).push(line);
        }
    }
    let lines = |pools: &BTreeMap<PoolId, Vec<String>>| pools.values().flatten().cloned().collect::<Vec<_>>();
    if !near.is_empty() {
        warn(checks, "POOL_NEAR_FULL", near.len(), format!("{} pools nearfull", near.len()), lines(&near));
    }
    if !full.is_empty() {
        let summary = format!("{} pools full", full.len());
        let check = Check { severity: Severity::Error, summary, count: 0, detail: Vec::new() };
        let check = checks.entry("POOL_FULL").or_insert(check);
        check.count += full.len() as i64;
        check.detail.extend(lines(&full));
    }
}

/// Too many PGs or too few, for the OSDs or for what is in them.
fn pg_counts(cx: &Context<'_>, stats: &PgStats, map: &OsdMap, checks: &mut Checks) {
    let number = |name: &str| cx.option(name).as_f64();
    let usages: Vec<_> = map.pools.iter().map(|(id, pool)| (*id, pool, stats.pool(map, *id))).collect();
    let osds = map.osd_ids().filter(|&osd| map.is_in(osd)).count() as u64;
    let copies: u64 = usages.iter().map(|(.., usage)| usage.up).sum();
    if let Some(each) = copies.checked_div(osds) {
        let (least, most) = (number("mon_pg_warn_min_per_osd"), number("mon_max_pg_per_osd"));
        if each > 0 && (each as f64) < least {
            let summary = format!("too few PGs per OSD ({each} < min {least})");
            warn(checks, "TOO_FEW_PGS", (least as u64 - each) as usize, summary, Vec::new());
        }
        if most > 0.0 && each as f64 > most {
            let summary = format!("too many PGs per OSD ({each} > max {most})");
            warn(checks, "TOO_MANY_PGS", (each - most as u64) as usize, summary, Vec::new());
        }
    }
    let name = |id| map.pool_name(id).unwrap_or_default();
    let smaller = usages.iter().filter(|(_, pool, _)| pool.pg_num_target > pool.pgp_num_target);
    let smaller: Vec<String> = smaller
        .map(|(id, pool, _)| {
            let (pgs, placed) = (pool.pg_num_target, pool.pgp_num_target);
            format!("pool '{}' pg_num {pgs} > pgp_num {placed}", name(*id))
        })
        .collect();
    if !smaller.is_empty() {
        let summary = format!("{} pools have pg_num > pgp_num", smaller.len());
        warn(checks, "SMALLER_PGP_NUM", smaller.len(), summary, smaller);
    }
    let sum = stats.sum();
    let average = sum.objects.checked_div(usages.iter().map(|(.., usage)| usage.pgs).sum()).unwrap_or(0);
    let skew = number("mon_pg_warn_max_object_skew");
    let skewed: Vec<String> = usages
        .iter()
        // Pools whose number of PGs follows what they hold need no warning.
        .filter(|(_, pool, _)| average > 0 && skew > 0.0 && pool.autoscale_mode != autoscale::ON)
        .filter(|(.., usage)| usage.counts.objects as f64 >= number("mon_pg_warn_min_pool_objects"))
        .filter_map(|(id, _, usage)| {
            let each = usage.counts.objects.checked_div(usage.pgs)?;
            let ratio = each as f64 / average as f64;
            (ratio > skew).then(|| {
                format!(
                    "pool {} objects per pg ({each}) is more than {} times cluster average ({average})",
                    name(*id),
                    output::short(ratio)
                )
            })
        })
        .collect();
    if !skewed.is_empty() && sum.objects as f64 >= number("mon_pg_warn_min_objects") {
        let summary = format!("{} pools have many more objects per pg than average", skewed.len());
        warn(checks, "MANY_OBJECTS_PER_PG", skewed.len(), summary, skewed);
    }
}
