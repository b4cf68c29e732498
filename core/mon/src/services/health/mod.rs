//! What is wrong, in one sentence each. Nothing is stored: a warning is there as long as its cause is.

use crate::commands::{crash, flags_text};
use crate::crush_edit;
use crate::mon::Mon;
use crate::output;
use crate::pending_txn::PendingTxn;
use crate::services::autoscale;
use crate::services::pg::stats::{OsdStat, Passing, all_pgs};
use crate::state::{Applying, Genesis, Rejected, Slice};
use nacre_base::{Now, OsdId, PgId, Utime};
use nacre_proto::maps::{FullRatios, OsdMap, PoolOption, osd_state, pool_flags};
use nacre_proto::messages::{LogLevel, pg_state};
use nacre_wire::versioned_fields;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Groups named in the detail of one warning.
const DETAILS_MAX: usize = 50;
/// Daemons named in one summary.
const NAMES_MAX: usize = 10;
/// A group takes a moment to get going; only a longer one is worth a warning.
const INACTIVE_FOR: Duration = Duration::from_secs(5);

/// Health warnings that operators muted: the agreed slice.
#[derive(Clone, Debug, Default)]
pub struct Mutes {
    pub mutes: BTreeMap<String, Mute>,
}

/// A muted warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mute {
    /// Zero: for ever.
    pub until: Utime,
    /// Stays when the warning clears, and when it grows.
    pub sticky: bool,
    pub summary: String,
    /// The size of the warning when it was muted; a bigger one is shown again.
    pub count: i64,
}

versioned_fields!(Mute, "mute", until, sticky, summary, count);

impl Slice for Mutes {
    /// None unmutes.
    type Delta = Vec<(String, Option<Mute>)>;

    fn begin(_: &Genesis) -> Result<Mutes, Rejected> {
        Ok(Mutes::default())
    }
    fn apply(&mut self, delta: &Self::Delta, _: &Applying) {
        for (code, mute) in delta {
            match mute {
                Some(mute) => drop(self.mutes.insert(code.clone(), mute.clone())),
                None => drop(self.mutes.remove(code)),
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    Ok,
    Warn,
    Error,
}

impl Severity {
    pub fn name(self) -> &'static str {
        match self {
            Severity::Ok => "HEALTH_OK",
            Severity::Warn => "HEALTH_WARN",
            Severity::Error => "HEALTH_ERR",
        }
    }
    pub fn tag(self) -> &'static str {
        match self {
            Severity::Ok => "OK",
            Severity::Warn => "WRN",
            Severity::Error => "ERR",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    pub severity: Severity,
    pub summary: String,
    /// How much of it there is; what it means depends on the check.
    pub count: i64,
    pub detail: Vec<String>,
}

pub type Checks = BTreeMap<&'static str, Check>;

pub fn overall(checks: &Checks, mutes: &BTreeMap<String, Mute>) -> Severity {
    let heard = checks.iter().filter(|(code, _)| !mutes.contains_key(**code));
    heard.map(|(_, check)| check.severity).max().unwrap_or(Severity::Ok)
}

/// Everything that is wrong now.
pub fn checks(mon: &Mon, now: Now, map: &OsdMap) -> Checks {
    let mut checks = Checks::new();
    monitors(mon, &mut checks);
    osds(map, &mut checks);
    mon.reports.failures.checks(now.mono, map, &mut checks);
    mon.reports.crash_loops.checks(now.mono, map, &mut checks);
    slow_ops(mon, map, &mut checks);
    space(mon, map, &mut checks);
    groups(mon, now, map, &mut checks);
    scrubs(mon, now, map, &mut checks);
    pools(mon, map, &mut checks);
    crashes(mon, now, &mut checks);
    checks
}

fn warn(checks: &mut Checks, code: &'static str, count: usize, summary: String, detail: Vec<String>) {
    checks.insert(code, Check { severity: Severity::Warn, summary, count: count as i64, detail });
}

/// Lines about groups, of which there may be very many.
fn shortened(mut lines: Vec<String>) -> Vec<String> {
    let more = lines.len().saturating_sub(DETAILS_MAX);
    if more > 0 {
        lines.truncate(DETAILS_MAX);
        lines.push(format!("{more} more pgs... "));
    }
    lines
}

fn crashes(mon: &Mon, now: Now, checks: &mut Checks) {
    let Some(state) = &mon.state else { return };
    let news = crash::recent(state, now.wall);
    if !news.is_empty() {
        let summary = format!("{} daemons have recently crashed", news.len());
        warn(checks, "RECENT_CRASH", news.len(), summary, news);
    }
}

fn monitors(mon: &Mon, checks: &mut Checks) {
    let Some(state) = &mon.state else { return };
    let here = mon.quorum();
    let ranks = state.monmap.map.ranks.iter().enumerate();
    let missing: Vec<&String> =
        ranks.filter(|(rank, _)| !here.contains(&(*rank as u64))).map(|(_, n)| n).collect();
    if !missing.is_empty() {
        let names: Vec<&str> =
            here.iter().filter_map(|&r| state.monmap.map.ranks.get(r as usize).map(|n| &**n)).collect();
        let summary = format!(
            "{}/{} mons down, quorum {}",
            missing.len(),
            state.monmap.map.ranks.len(),
            names.join(",")
        );
        let detail = missing.iter().map(|name| format!("mon.{name} is out of quorum")).collect();
        warn(checks, "MON_DOWN", missing.len(), summary, detail);
    }
}

fn osds(map: &OsdMap, checks: &mut Checks) {
    let down: Vec<OsdId> = map
        .osd_ids()
        .filter(|&osd| map.is_down(osd) && map.is_in(osd) && !map.osds[osd.index()].has(osd_state::NEW))
        .collect();
    let place = |osd: OsdId| crush_edit::location_text(&map.crush, osd.0);
    if !down.is_empty() {
        let detail = down.iter().map(|&osd| format!("osd.{osd} ({}) is down", place(osd))).collect();
        warn(checks, "OSD_DOWN", down.len(), format!("{} osds down", down.len()), detail);
    }
    let down_set: BTreeSet<OsdId> = down.into_iter().collect();
    for (code, kind, kind_name) in
        [("OSD_HOST_DOWN", 1, "host"), ("OSD_RACK_DOWN", 3, "rack"), ("OSD_ROOT_DOWN", 11, "root")]
    {
        let mut lines = Vec::new();
        let mut osds = 0;
        for bucket in map.crush.buckets.iter().flatten().filter(|b| i32::from(b.kind) == kind) {
            let below = crush_edit::osds_below(&map.crush, bucket.id);
            let name = map.crush.names.get(&bucket.id).cloned().unwrap_or_default();
            let counted: Vec<OsdId> =
                below.into_iter().filter(|&osd| map.exists(osd) && map.is_in(osd)).collect();
            // Shadow trees hold the same OSDs once more.
            if !name.contains('~') && !counted.is_empty() && counted.iter().all(|osd| down_set.contains(osd))
            {
                osds += counted.len();
                let place = match crush_edit::location_text(&map.crush, bucket.id) {
                    root if root.is_empty() => root,
                    place => format!(" ({place})"),
                };
                lines.push(format!("{kind_name} {name}{place} ({} osds) is down", counted.len()));
            }
        }
        if !lines.is_empty() {
            let n = lines.len();
            let plural = if n == 1 { "" } else { "s" };
            warn(checks, code, n, format!("{n} {kind_name}{plural} ({osds} osds) down"), lines);
        }
    }
    let flags = flags_text(map.flags);
    if !flags.is_empty() {
        warn(checks, "OSDMAP_FLAGS", 1, format!("{flags} flag(s) set"), Vec::new());
    }
    let names = |bits: u32| {
        let mut names: Vec<_> = osd_state::names(bits).collect();
        names.sort_unstable();
        names.join(",")
    };
    let bits = osd_state::NOUP | osd_state::NODOWN | osd_state::NOIN | osd_state::NOOUT;
    let own = map.osd_ids().map(|osd| (format!("osd.{osd}"), map.osds[osd.index()].state & bits));
    let name = |names: &BTreeMap<i32, String>, id: &i32| names.get(id).cloned().unwrap_or_default();
    let nodes = map.crush_node_flags.iter();
    let nodes = nodes.map(|(id, bits)| {
        let kind = map.crush.bucket(*id).map_or(0, |bucket| i32::from(bucket.kind));
        (format!("{} {}", name(&map.crush.types, &kind), name(&map.crush.names, id)), *bits)
    });
    let classes = map.device_class_flags.iter();
    let classes =
        classes.map(|(id, bits)| (format!("device class '{}'", name(&map.crush.class_names, id)), *bits));
    let flagged: Vec<String> = own
        .chain(nodes)
        .chain(classes)
        .filter(|(_, bits)| *bits != 0)
        .map(|(who, bits)| format!("{who} has flags {}", names(bits)))
        .collect();
    if !flagged.is_empty() {
        let summary = format!(
            "{} OSDs or CRUSH {{nodes, device-classes}} have {{NOUP,NODOWN,NOIN,NOOUT}} flags set",
            flagged.len()
        );
        warn(checks, "OSD_FLAGS", flagged.len(), summary, flagged);
    }
}

/// Requests that OSDs have had for too long, and who has them.
fn slow_ops(mon: &Mon, map: &OsdMap, checks: &mut Checks) {
    let osds = mon.stats.osds.iter().map(|(osd, stat)| (*osd, stat.report.slow));
    let slow: Vec<_> = osds.filter(|(osd, slow)| slow.count > 0 && map.is_up(*osd)).collect();
    let count = slow.iter().fold(0_u32, |sum, (_, slow)| sum.saturating_add(slow.count));
    let Some(oldest) = slow.iter().map(|(_, slow)| slow.oldest_secs).max() else { return };
    let names: Vec<String> = slow.iter().take(NAMES_MAX).map(|(osd, _)| format!("osd.{osd}")).collect();
    let who = match slow.len() {
        1 => format!("{} has", names[0]),
        n => format!("daemons [{}{}] have", names.join(","), if n > NAMES_MAX { "..." } else { "" }),
    };
    let detail = slow.iter().map(|(osd, slow)| {
        format!("osd.{osd} has {} slow ops, oldest one blocked for {} sec", slow.count, slow.oldest_secs)
    });
    let summary = format!("{count} slow ops, oldest one blocked for {oldest} sec, {who} slow ops.");
    warn(checks, "SLOW_OPS", count as usize, summary, detail.collect());
}

fn space(mon: &Mon, map: &OsdMap, checks: &mut Checks) {
    let ratios = map.ratios;
    for (code, severity, bit, what, words) in [
        ("OSD_FULL", Severity::Error, osd_state::FULL, "full", "full"),
        ("OSD_BACKFILLFULL", Severity::Warn, osd_state::BACKFILLFULL, "backfillfull", "backfill full"),
        ("OSD_NEARFULL", Severity::Warn, osd_state::NEARFULL, "nearfull", "near full"),
    ] {
        let told = mon.stats.osds.iter().filter(|(osd, _)| map.is_up(**osd) && map.is_in(**osd));
        let filled = told.filter(|(osd, _)| map.osds[osd.index()].has(bit));
        let line = |(osd, stat): (&OsdId, &OsdStat)| {
            format!("osd.{osd} is {words} ({:.1}% used)", stat.report.space.used_ratio() * 100.0)
        };
        let lines: Vec<String> = filled.map(line).collect();
        if !lines.is_empty() {
            let summary = format!("{} {what} osd(s)", lines.len());
            checks.insert(code, Check { severity, summary, count: lines.len() as i64, detail: lines });
        }
    }
    let order = [
        ("nearfull_ratio", ratios.nearfull, "backfillfull_ratio", ratios.backfillfull, "increased"),
        ("backfillfull_ratio", ratios.backfillfull, "full_ratio", ratios.full, "increased"),
        // Ceph has the failsafe give way; a store here would be full.
        ("full_ratio", ratios.full, "osd_failsafe_full_ratio", FullRatios::FAILSAFE, "which counts"),
    ];
    let disorder: Vec<String> = order
        .iter()
        .filter(|(_, low, _, high, _)| low > high)
        .map(|(a, low, b, high, so)| format!("{b} ({high}) < {a} ({low}), {so}"))
        .collect();
    if !disorder.is_empty() {
        let (severity, count) = (Severity::Error, disorder.len() as i64);
        let summary = "full ratio(s) out of order".to_string();
        checks.insert("OSD_OUT_OF_ORDER_FULL", Check { severity, summary, count, detail: disorder });
    }
    let enough: usize = mon.option("osd_pool_default_size").parse().unwrap_or(3);
    let have = map.osd_ids().count();
    if have < enough && mon.option("mon_warn_on_too_few_osds") == "true" {
        let summary = format!("OSD count {have} < osd_pool_default_size {enough}");
        warn(checks, "TOO_FEW_OSDS", 1, summary, Vec::new());
    }
}

/// Groups in one kind of trouble: code, what it is about, and how bad.
struct Trouble {
    code: &'static str,
    text: &'static str,
    severity: Severity,
    /// By the word for the state.
    words: BTreeMap<&'static str, BTreeSet<PgId>>,
}

fn groups(mon: &Mon, now: Now, map: &OsdMap, checks: &mut Checks) {
    use pg_state as s;
    let mut availability = Trouble::new("PG_AVAILABILITY", "Reduced data availability", Severity::Warn);
    let mut degraded = Trouble::new("PG_DEGRADED", "Degraded data redundancy", Severity::Warn);
    let mut damaged = Trouble::new("PG_DAMAGED", "Possible data damage", Severity::Error);
    let mut full = Trouble::new(
        "PG_BACKFILL_FULL",
        "Low space hindering backfill (add storage if this doesn't resolve itself)",
        Severity::Warn,
    );
    let stats = &mon.stats;
    let stuck = Duration::from_secs(mon.option("mon_pg_stuck_threshold").parse().unwrap_or(60));
    for pg in all_pgs(map) {
        let state = stats.pg_state(map, pg);
        // What a new pool's groups lack is time, at first.
        let creating = map.pool(pg.pool).is_some_and(|pool| pool.has(pool_flags::CREATING));
        if state & s::ACTIVE == 0 && !(creating && state == 0) {
            let word = [(s::PEERING, "peering"), (s::DOWN, "down"), (s::INCOMPLETE, "incomplete")]
                .into_iter()
                .find(|(bit, _)| state & bit != 0);
            if stats.lasts(now.mono, pg, Passing::Inactive) >= INACTIVE_FOR {
                availability.add("inactive", pg);
            }
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
            if state & s::UNDERSIZED != 0 && stats.lasts(now.mono, pg, Passing::Undersized) >= stuck {
                degraded.add("undersized", pg);
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
        if let Some(check) = trouble.check(mon, map, objects) {
            checks.insert(check.0, check.1);
        }
    }
    // That data moves is not wrong.
    if sum.misplaced > 0 && mon.option("mon_warn_on_misplaced") == "true" {
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

/// Wrong copies, and groups that nobody looked through for too long.
fn scrubs(mon: &Mon, now: Now, map: &OsdMap, checks: &mut Checks) {
    let sum = mon.stats.sum();
    let errors = sum.shallow_errors + sum.deep_errors;
    if errors > 0 {
        let (severity, summary) = (Severity::Error, format!("{errors} scrub errors"));
        checks.insert(
            "OSD_SCRUB_ERRORS",
            Check { severity, summary, count: errors as i64, detail: Vec::new() },
        );
    }
    let number = |name: &str, default: f64| mon.option(name).parse::<f64>().unwrap_or(default);
    let week = 7.0 * 86_400.0;
    let light = (1, "osd_scrub_max_interval", "mon_warn_pg_not_scrubbed_ratio", 0.5);
    let deep = (2, "osd_deep_scrub_interval", "mon_warn_pg_not_deep_scrubbed_ratio", 0.75);
    for (code, what, (of_pool, interval, ratio, usual_ratio)) in
        [("PG_NOT_SCRUBBED", "scrubbed", light), ("PG_NOT_DEEP_SCRUBBED", "deep-scrubbed", deep)]
    {
        let ratio = number(ratio, usual_ratio);
        let interval = number(interval, week);
        if ratio <= 0.0 {
            continue;
        }
        let mut lines = Vec::new();
        for pg in all_pgs(map) {
            let Some(stat) = mon.stats.pgs.get(&pg) else { continue };
            let scrub = &stat.report.scrub;
            let last = if code == "PG_NOT_SCRUBBED" { scrub.last_stamp } else { scrub.last_deep_stamp };
            let own = map.pool(pg.pool).and_then(|pool| pool.options.get(&of_pool));
            let interval = match own {
                Some(PoolOption::Float(secs)) if *secs > 0.0 => *secs,
                _ => interval,
            };
            let age = f64::from(now.wall.sec.saturating_sub(last.sec));
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

impl Trouble {
    fn new(code: &'static str, text: &'static str, severity: Severity) -> Trouble {
        Trouble { code, text, severity, words: BTreeMap::new() }
    }
    fn add(&mut self, word: &'static str, pg: PgId) {
        self.words.entry(word).or_default().insert(pg);
    }
    fn check(self, mon: &Mon, map: &OsdMap, objects: Option<String>) -> Option<(&'static str, Check)> {
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
                let state = pg_state::name(mon.stats.pg_state(map, pg));
                let waiting =
                    mon.stats.pgs.get(&pg).map(|stat| &*stat.report.waiting_for).unwrap_or_default();
                let waiting =
                    if waiting.is_empty() { String::new() } else { format!(": waits for {waiting}") };
                let acting = crate::output::list(map.pg_to_up_acting(pg).acting.iter());
                format!("pg {pg} is {state}, acting {acting}{waiting}")
            })
            .collect();
        if all.len() > DETAILS_MAX {
            detail.push(format!("{} more pgs are not listed", all.len() - DETAILS_MAX));
        }
        let summary = format!("{}: {}", self.text, parts.join(", "));
        Some((self.code, Check { severity: self.severity, summary, count: all.len() as i64, detail }))
    }
}

fn pools(mon: &Mon, map: &OsdMap, checks: &mut Checks) {
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
        // Somebody said so, and knows what for.
        let (severity, count) = (Severity::Ok, detail.len() as i64);
        checks.insert("POOL_SCRUB_FLAGS", Check { severity, summary, count, detail });
    }
    if mon.option("mon_warn_on_pool_no_app") == "true" {
        let lines: Vec<String> = map
            .pools
            .iter()
            .filter(|(id, pool)| {
                let used = mon.stats.pool(map, **id).counts.objects > 0;
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
    group_numbers(mon, map, checks);
    let (mut few, mut many) = (Vec::new(), Vec::new());
    for advice in mon.misshapen_pools(map, autoscale::WARN) {
        let has = map.pool(advice.pool).map_or(0, |pool| pool.pg_num_target);
        let best = advice.best;
        let line = format!("Pool {} has {has} placement groups, should have {best}", name(advice.pool));
        if best > u64::from(has) { few.push(line) } else { many.push(line) }
    }
    for (code, what, lines) in [("POOL_TOO_FEW_PGS", "few", few), ("POOL_TOO_MANY_PGS", "many", many)] {
        if !lines.is_empty() {
            let summary = format!("{} pools have too {what} placement groups", lines.len());
            warn(checks, code, lines.len(), summary, lines);
        }
    }
    if mon.option("mon_warn_on_pool_no_redundancy") == "true" {
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
}

/// Too many groups or too few, for the OSDs or for what is in them.
fn group_numbers(mon: &Mon, map: &OsdMap, checks: &mut Checks) {
    let number = |name: &str| mon.option(name).parse::<f64>().unwrap_or(0.0);
    let usages: Vec<_> = map.pools.iter().map(|(id, pool)| (*id, pool, mon.stats.pool(map, *id))).collect();
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
    let sum = mon.stats.sum();
    let average = sum.objects.checked_div(usages.iter().map(|(.., usage)| usage.pgs).sum()).unwrap_or(0);
    let skew = number("mon_pg_warn_max_object_skew");
    let skewed: Vec<String> = usages
        .iter()
        // Pools whose number of groups follows what they hold need no warning.
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

impl Mon {
    /// Ends mutes whose time is over or whose cause is gone, and those of causes that grew.
    pub(crate) fn watch_health(&mut self, now: Now, pending: &mut PendingTxn) {
        let state = self.state.as_ref().expect("the caller leads");
        let checks = checks(self, now, &state.osdmap.map);
        let mut ended = Vec::new();
        for (code, mute) in &state.health.mutes {
            let over = mute.until != Utime::ZERO && mute.until <= now.wall;
            let check = checks.get(&**code);
            let gone = !mute.sticky && check.is_none();
            let grew = !mute.sticky && check.is_some_and(|check| check.count > mute.count);
            let why = match (over, gone) {
                (true, _) => format!("passed TTL {}", mute.until),
                (_, true) => "health alert cleared".to_string(),
                _ if grew => format!("count increased from {}", mute.count),
                _ => continue,
            };
            pending.batch.health.push((code.clone(), None));
            ended.push(format!("Health alert mute {code} cleared ({why})"));
        }
        for text in ended {
            self.log(now, pending, LogLevel::Info, text);
        }
        for (level, text) in self.reports.health_news(&checks) {
            self.log(now, pending, level, text);
        }
    }
}

/// What to write into the cluster log when the warnings were `before` and are `now`.
pub fn news(before: &Checks, now: &Checks) -> Vec<(LogLevel, String)> {
    let mut lines = Vec::new();
    let level = |check: &Check| match check.severity {
        Severity::Ok => LogLevel::Info,
        Severity::Warn => LogLevel::Warn,
        Severity::Error => LogLevel::Error,
    };
    for (code, check) in now {
        match before.get(code) {
            None => lines.push((level(check), format!("Health check failed: {} ({code})", check.summary))),
            Some(old) if old.summary != check.summary => {
                lines.push((level(check), format!("Health check update: {} ({code})", check.summary)));
            }
            Some(_) => {}
        }
    }
    for (code, old) in before.iter().filter(|(code, _)| !now.contains_key(*code)) {
        lines.push((LogLevel::Info, format!("Health check cleared: {code} (was: {})", old.summary)));
    }
    if now.is_empty() && !before.is_empty() {
        lines.push((LogLevel::Info, "Cluster is now healthy".to_string()));
    }
    lines
}
