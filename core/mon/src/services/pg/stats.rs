//! Statistics of placement groups and OSDs, from the OSDs' reports. They are not replicated: a new leader
//! gets all reports again within seconds.

use crate::services::mgr::progress::Progress;
use crate::services::osdmap::pg_merge::is_merged;
use crate::state::State;
use nacre_base::{IntervalSet, Now, OsdId, PgId, PoolId, Time, Utime};
use nacre_crush::Op;
use nacre_proto::maps::{Osd, OsdMap, Pool, UpActing};
use nacre_proto::messages::{OsdReport, PgCounts, PgReport, PoolSpace, Work, pg_state};
use nacre_proto::shown::Lasts;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Rates are averages over this long.
const RATE_WINDOW: Duration = Duration::from_secs(15);

/// Counters of one OSD.
const COUNTERS_MAX: usize = 1000;

#[derive(Default)]
pub struct PgStats {
    pub pgs: BTreeMap<PgId, PgStat>,
    pub osds: BTreeMap<OsdId, OsdStat>,
    /// Counts reports.
    pub version: u64,
    pub stamp: Utime,
    samples: VecDeque<Sample>,
    /// Since when a PG is in a state that passes by itself, mostly.
    since: BTreeMap<(PgId, Passing), Time>,
    pub progress: Progress,
}

/// Work counters as they were.
struct Sample {
    at: Time,
    pools: BTreeMap<PoolId, Work>,
    /// Of each OSD as a primary.
    osds: BTreeMap<OsdId, Work>,
}

/// States that are a warning only when they last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Passing {
    Inactive,
    Undersized,
}

pub struct PgStat {
    /// Its counters of work add up those of all its primaries.
    pub report: PgReport,
    /// The counters of each in its last report.
    counted: BTreeMap<OsdId, Work>,
    pub from: OsdId,
    pub stamp: Utime,
    /// Reports of this PG so far.
    pub seq: u64,
    pub map_epoch: u32,
    pub lasts: Lasts,
}

pub struct OsdStat {
    /// Without its PGs.
    pub report: OsdReport,
}

impl OsdStat {
    /// What it has of a pool.
    pub fn in_pool(&self, id: PoolId) -> Option<PoolSpace> {
        let known = self.report.pools.as_ref()?.iter().find(|(pool, _)| *pool == id);
        Some(known.map(|(_, space)| *space).unwrap_or_default())
    }
}

/// Space in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    pub total: u64,
    pub available: u64,
    pub osds: u64,
}

impl Space {
    pub fn used(&self) -> u64 {
        self.total.saturating_sub(self.available)
    }
    pub fn used_ratio(&self) -> f64 {
        if self.total == 0 { 0.0 } else { self.used() as f64 / self.total as f64 }
    }
}

/// The share of one pool.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PoolUsage {
    pub counts: PgCounts,
    /// What clients wrote, of data and omaps, and of omaps alone; all copies together.
    pub stored: u64,
    pub stored_omap: u64,
    pub stored_raw: u64,
    /// All copies together, of data and omaps, and of omaps alone.
    pub used: u64,
    pub used_omap: u64,
    /// What could still be stored until the first OSD is full.
    pub max_available: u64,
    /// The same before dividing by the number of copies.
    pub max_available_raw: u64,
    /// Of what the pool could ever hold.
    pub used_ratio: f64,
    pub log_entries: u64,
    pub up: u64,
    pub acting: u64,
    pub pgs: u64,
}

/// Whether a report is from before its PG took another one in: it is true of neither any more.
fn is_about_a_half(map: &OsdMap, report: &PgReport) -> bool {
    is_merged(map, report.pg)
        && map.pool(report.pg.pool).is_some_and(|pool| report.interval <= pool.last_merge.ready_epoch)
}

/// Whether these members are those that CRUSH wants. Where each place is a shard, OSDs keep the shards that
/// they have: the order does not matter.
fn serves(acting: &[OsdId], placed: &UpActing) -> bool {
    if !placed.has_shards {
        return acting == placed.up;
    }
    let sorted = |osds: &[OsdId]| {
        let mut osds = osds.to_vec();
        osds.sort_unstable();
        osds
    };
    sorted(acting) == sorted(&placed.up)
}

impl PgStats {
    /// As its primary reports, in the interval that served last, on the OSDs that CRUSH wants.
    pub fn is_clean(&self, state: &State, map: &OsdMap, pg: PgId) -> bool {
        let (Some(stat), Some(record)) = (self.pgs.get(&pg), state.pgs.records.get(&pg)) else {
            return false;
        };
        let (report, placed) = (&stat.report, map.pg_to_up_acting(pg));
        report.state & pg_state::CLEAN != 0
            && report.interval == record.interval
            && report.up == placed.up
            && serves(&report.acting, &placed)
            && serves(&placed.acting, &placed)
    }

    /// All placement groups of all pools.
    pub fn all_clean(&self, state: &State, map: &OsdMap) -> bool {
        all_pgs(map).all(|pg| self.is_clean(state, map, pg))
    }

    /// Takes an OSD's report. It counts for the placement groups whose primary that OSD is.
    pub fn report(&mut self, wall: Utime, osd: OsdId, mut report: OsdReport, map: &OsdMap) {
        self.version += 1;
        self.stamp = wall;
        for mut pg in std::mem::take(&mut report.pgs) {
            let from_primary = map.pg_to_up_acting(pg.pg).acting_primary == Some(osd);
            if !map.pg_exists(pg.pg) || !from_primary || is_about_a_half(map, &pg) {
                continue;
            }
            let old = self.pgs.remove(&pg.pg);
            let (seq, done, mut counted, lasts) = old.map_or_else(Default::default, |old| {
                (old.seq, old.report.counts.work, old.counted, old.lasts)
            });
            let now = pg.counts.work;
            let before = counted.insert(osd, now).unwrap_or_default();
            pg.counts.work = done.plus(now.since(before));
            let stat = PgStat {
                from: osd,
                counted,
                stamp: wall,
                seq: seq + 1,
                map_epoch: report.epoch.0,
                lasts: lasts.seen(wall, &pg),
                report: pg,
            };
            self.pgs.insert(stat.report.pg, stat);
        }
        if report.counters.is_empty()
            && let Some(before) = self.osds.get_mut(&osd)
        {
            report.counters = std::mem::take(&mut before.report.counters);
        }
        report.counters.truncate(COUNTERS_MAX);
        self.osds.insert(osd, OsdStat { report });
    }

    /// Forgets what the map no longer has.
    pub fn prune(&mut self, map: &OsdMap) {
        self.pgs.retain(|pg, stat| map.pg_exists(*pg) && !is_about_a_half(map, &stat.report));
        self.osds.retain(|osd, _| map.exists(*osd));
    }

    /// Notes the counters, for rates, and which PGs are in a passing state. Call it once a second.
    pub fn sample(&mut self, now: Now, map: &OsdMap, shows_progress: bool) {
        if shows_progress {
            self.progress.observe(now, self.pgs.values().map(|stat| &stat.report));
        }
        let now = now.mono;
        let mut since = BTreeMap::new();
        for pg in all_pgs(map) {
            let state = self.pg_state(map, pg);
            for (passing, is_so) in [
                (Passing::Inactive, state & pg_state::ACTIVE == 0),
                (Passing::Undersized, state & pg_state::UNDERSIZED != 0),
            ] {
                if is_so {
                    let before = self.since.get(&(pg, passing)).copied();
                    since.insert((pg, passing), before.unwrap_or(now));
                }
            }
        }
        self.since = since;
        let mut sample = Sample { at: now, pools: BTreeMap::new(), osds: BTreeMap::new() };
        for stat in self.pgs.values() {
            let work = sample.pools.entry(stat.report.pg.pool).or_default();
            *work = work.plus(stat.report.counts.work);
            for (osd, counted) in &stat.counted {
                let work = sample.osds.entry(*osd).or_default();
                *work = work.plus(*counted);
            }
        }
        self.samples.push_back(sample);
        while self.samples.len() > 2 && now.since(self.samples[0].at) > RATE_WINDOW {
            self.samples.pop_front();
        }
    }

    /// For how long a PG is in that state, as far as this leader knows.
    pub fn lasts(&self, now: Time, pg: PgId, passing: Passing) -> Duration {
        self.since.get(&(pg, passing)).map_or(Duration::ZERO, |since| now.since(*since))
    }

    /// The PGs that are in that state for so long.
    pub fn lasting(&self, now: Time, passing: Passing, min: Duration) -> impl Iterator<Item = PgId> {
        let since = self.since.iter();
        let long = since.filter(move |((_, state), since)| *state == passing && now.since(**since) >= min);
        long.map(|((pg, _), _)| *pg)
    }

    /// Recent rates per second.
    pub fn rates(&self, pool: PoolId) -> Work {
        self.rate(|sample| sample.pools.get(&pool))
    }
    /// Of what an OSD did as a primary.
    pub fn osd_rates(&self, osd: OsdId) -> Work {
        self.rate(|sample| sample.osds.get(&osd))
    }
    fn rate(&self, of: impl Fn(&Sample) -> Option<&Work>) -> Work {
        let (Some(from), Some(to)) = (self.samples.front(), self.samples.back()) else {
            return Work::default();
        };
        let seconds = to.at.since(from.at).as_secs_f64();
        let (Some(first), Some(last)) = (of(from), of(to)) else { return Work::default() };
        if seconds < 0.5 {
            return Work::default();
        }
        last.each(*first, |last, first| (last.saturating_sub(first) as f64 / seconds) as u64)
    }
    pub fn all_rates(&self, map: &OsdMap) -> Work {
        map.pools.keys().map(|&pool| self.rates(pool)).fold(Work::default(), Work::plus)
    }

    /// The state of a PG as commands show it: as its primary reported, and stale once that is down.
    pub fn pg_state(&self, map: &OsdMap, pg: PgId) -> u64 {
        let Some(stat) = self.pgs.get(&pg) else { return 0 };
        if map.is_up(stat.from) { stat.report.state } else { stat.report.state | pg_state::STALE }
    }
    /// Of the snapshots of a pool that are being removed, those for which no PG keeps anything.
    /// Clients take it that there is nothing in it that the map's queue does not have.
    pub fn purged(&self, map: &OsdMap, id: PoolId) -> IntervalSet {
        let queue = map.removed_snaps_queue.get(&id).cloned().unwrap_or_default();
        let Some(pool) = map.pool(id) else { return queue };
        (0..pool.pg_num).fold(queue, |left, seed| match self.pgs.get(&PgId { pool: id, seed }) {
            Some(stat) => left.intersection(&stat.report.trimmed),
            None => IntervalSet::new(),
        })
    }
    /// For which snapshots clones were made since this was asked last.
    pub fn take_kept(&mut self) -> BTreeMap<PoolId, IntervalSet> {
        let mut all: BTreeMap<PoolId, IntervalSet> = BTreeMap::new();
        for (pool, snaps) in self.osds.values_mut().flat_map(|osd| std::mem::take(&mut osd.report.kept)) {
            all.entry(pool).or_default().add(&snaps);
        }
        all
    }
    /// How many PGs are in which state.
    pub fn states(&self, map: &OsdMap) -> BTreeMap<u64, u64> {
        let mut states = BTreeMap::new();
        for pg in all_pgs(map) {
            *states.entry(self.pg_state(map, pg)).or_default() += 1;
        }
        states
    }

    /// The space of the OSDs that `counts`.
    pub fn space(&self, mut counts: impl FnMut(OsdId) -> bool) -> Space {
        let mut space = Space::default();
        for (_, stat) in self.osds.iter().filter(|(osd, _)| counts(**osd)) {
            space.total += stat.report.space.total;
            space.available += stat.report.space.available;
            space.osds += 1;
        }
        space
    }

    pub fn pool(&self, map: &OsdMap, id: PoolId) -> PoolUsage {
        let Some(pool) = map.pool(id) else { return PoolUsage::default() };
        let mut usage = PoolUsage::default();
        let first = PgId { pool: id, seed: 0 };
        for (_, stat) in self.pgs.range(first..).take_while(|(pg, _)| pg.pool == id) {
            add(&mut usage.counts, &stat.report.counts);
            usage.log_entries += stat.report.log_entries;
            usage.up += stat.report.up.iter().filter(|osd| osd.is_some()).count() as u64;
            usage.acting += stat.report.acting.iter().filter(|osd| osd.is_some()).count() as u64;
            usage.pgs += 1;
        }
        let rate = raw_rate(map, pool);
        let PgCounts { bytes, omap_bytes, copies, degraded, .. } = usage.counts;
        match self.pool_space(map, id) {
            Some(space) => {
                // As many copies as there are.
                let rate = rate
                    * if copies > 0 { copies.saturating_sub(degraded) as f64 / copies as f64 } else { 1.0 };
                let once = |bytes: u64| if rate > 0.0 { (bytes as f64 / rate).round() as u64 } else { 0 };
                usage.stored_raw = space.stored.saturating_add(space.omap);
                (usage.stored, usage.stored_omap) = (once(usage.stored_raw), once(space.omap));
                (usage.used, usage.used_omap) = (space.allocated.saturating_add(space.omap), space.omap);
            }
            // With the holes of objects.
            None => {
                let all = |bytes: u64| (bytes as f64 * rate) as u64;
                (usage.stored, usage.stored_omap) = (bytes.saturating_add(omap_bytes), omap_bytes);
                (usage.used, usage.used_omap) = (all(usage.stored), all(omap_bytes));
                usage.stored_raw = usage.used;
            }
        }
        usage.max_available_raw = self.rule_available(map, pool);
        usage.max_available = (usage.max_available_raw as f64 / rate) as u64;
        let whole = usage.used.saturating_add(usage.max_available_raw);
        usage.used_ratio = if whole == 0 { 0.0 } else { usage.used as f64 / whole as f64 };
        usage
    }
    /// What all OSDs that are up have of a pool; None if one of them cannot tell.
    fn pool_space(&self, map: &OsdMap, id: PoolId) -> Option<PoolSpace> {
        let mut up = self.osds.iter().filter(|(osd, _)| map.is_up(**osd)).peekable();
        up.peek()?;
        up.try_fold(PoolSpace::default(), |sum, (_, stat)| Some(sum.plus(stat.in_pool(id)?)))
    }
    pub fn sum(&self) -> PgCounts {
        let mut sum = PgCounts::default();
        self.pgs.values().for_each(|stat| add(&mut sum, &stat.report.counts));
        sum
    }

    /// What fits below the rule's root until its fullest OSD (by weight) is full.
    fn rule_available(&self, map: &OsdMap, pool: &Pool) -> u64 {
        let weights = rule_weights(map, pool);
        let sum: f64 = weights.values().sum();
        let mut least: Option<f64> = None;
        for (osd, weight) in weights {
            let Some(stat) = self.osds.get(&osd).filter(|_| weight > 0.0) else { continue };
            let space = &stat.report.space;
            let reserved = space.total as f64 * (1.0 - f64::from(map.ratios.full));
            let usable = (space.available as f64 - reserved).max(0.0);
            let fits = usable * sum / weight;
            least = Some(least.map_or(fits, |least| least.min(fits)));
        }
        least.unwrap_or(0.0) as u64
    }

    /// How many PGs each OSD is in the acting set of, and of how many it is the primary.
    pub fn pgs_by_osd(&self, map: &OsdMap) -> BTreeMap<OsdId, (u64, u64)> {
        let mut by_osd: BTreeMap<OsdId, (u64, u64)> = BTreeMap::new();
        for pg in all_pgs(map) {
            let placed = map.pg_to_up_acting(pg);
            for osd in placed.acting.into_iter().filter(|osd| osd.is_some()) {
                by_osd.entry(osd).or_default().0 += 1;
            }
            if let Some(primary) = placed.acting_primary {
                by_osd.entry(primary).or_default().1 += 1;
            }
        }
        by_osd
    }
}

pub fn all_pgs(map: &OsdMap) -> impl Iterator<Item = PgId> + '_ {
    map.pools.keys().flat_map(|&pool| map.pgs(pool))
}

/// PGs whose acting set is not what CRUSH wants.
pub fn remapped(map: &OsdMap) -> u64 {
    if map.pg_temp.is_empty() && map.primary_temp.is_empty() {
        return 0;
    }
    all_pgs(map).map(|pg| map.pg_to_up_acting(pg)).filter(|placed| !serves(&placed.acting, placed)).count()
        as u64
}

/// Bytes on devices per byte stored.
pub fn raw_rate(map: &OsdMap, pool: &Pool) -> f64 {
    if !pool.is_erasure() {
        return f64::from(pool.size);
    }
    let profile = map.erasure_code_profiles.get(&pool.erasure_code_profile);
    let k = profile.and_then(|p| p.get("k")?.parse::<f64>().ok()).filter(|&k| k > 0.0);
    f64::from(pool.size) / k.unwrap_or(f64::from(pool.size))
}

/// The OSDs below the buckets that the pool's rule takes, with their weights.
pub fn rule_weights(map: &OsdMap, pool: &Pool) -> BTreeMap<OsdId, f64> {
    let crush = &map.crush;
    let mut weights = BTreeMap::new();
    let steps = crush.rule(pool.crush_rule.into()).map_or(&[][..], |rule| &rule.steps[..]);
    for step in steps.iter().filter(|step| step.op == Op::Take as u32) {
        let mut walk = vec![(step.arg1, 0)];
        let mut seen = BTreeSet::new();
        while let Some((id, weight)) = walk.pop() {
            if !seen.insert(id) {
                continue;
            }
            if let Some(bucket) = crush.bucket(id) {
                let items = bucket.items.iter().enumerate();
                walk.extend(items.map(|(at, &item)| (item, bucket.item_weight(at))));
            } else if id >= 0 {
                let reweight = f64::from(map.weight(OsdId(id))) / f64::from(Osd::IN);
                weights.insert(OsdId(id), f64::from(weight) / 65536.0 * reweight);
            }
        }
    }
    weights
}

fn add(sum: &mut PgCounts, one: &PgCounts) {
    sum.objects += one.objects;
    sum.clones += one.clones;
    sum.bytes += one.bytes;
    sum.omap_keys += one.omap_keys;
    sum.shallow_errors += one.shallow_errors;
    sum.deep_errors += one.deep_errors;
    sum.repaired += one.repaired;
    sum.omap_bytes += one.omap_bytes;
    sum.copies += one.copies;
    sum.degraded += one.degraded;
    sum.misplaced += one.misplaced;
    sum.missing_on_primary += one.missing_on_primary;
    sum.unfound += one.unfound;
    sum.work = sum.work.plus(one.work);
}
