//! Failure domains: buckets of the CRUSH map that have at most one copy of an object each.
//!
//! The failure domain of the default rule grows from OSD to host by itself at the third host (`periodic`),
//! unless data would move. Otherwise, and from host to rack, a health warning names the command. `Change` is
//! what such a command would do. Racks are audited too: what each of them holds, and hosts that are in none.
//! All of that is for clusters that are made of hosts (`services::hosts`).

use crate::pending_txn::PendingTxn;
use crate::services::Context;
use crate::services::health::{Checks, warn};
use crate::services::hosts::{HostChange, osds_of};
use crate::services::pg::stats::PgStats;
use crate::services::pg::unplaceable::{shortfall, usable};
use nacre_base::{OsdId, PoolId, Time};
use nacre_crush::{CrushMap, Op};
use nacre_proto::maps::OsdMap;
use nacre_proto::messages::LogLevel;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The rule that a new cluster has.
pub const DEFAULT_RULE: u32 = 0;
/// So many hosts, or racks, are needed before copies go to different ones.
const DOMAINS_MIN: usize = 3;
/// Hosts may have joined while their first OSDs still boot.
const GROW_GRACE: Duration = Duration::from_secs(5);
/// With fewer racks each of them has to hold more than `RACK_SHARE_MAX`.
const RACKS_AUDITED: usize = 4;
/// How much of the weight one rack may hold.
const RACK_SHARE_MAX: f64 = 0.3;
/// Hosts named in one detail.
const NAMES_MAX: usize = 10;

/// From the third host on, the default rule puts copies on different hosts, once.
pub fn periodic(cx: &Context<'_>, stats: &PgStats, pending: &mut PendingTxn) {
    let hosts = &cx.state.hosts;
    let leads_for = cx.leads_since.map_or(Duration::ZERO, |since: Time| cx.now.mono.since(since));
    if hosts.domain_grown || hosts.hosts.len() < DOMAINS_MIN || leads_for < GROW_GRACE {
        return;
    }
    let map = pending.map().clone();
    let has_osd = |name: &&String| osds_of(&map, name).into_iter().any(|osd| map.is_up(osd));
    if hosts.hosts.keys().filter(has_osd).count() < DOMAINS_MIN {
        return;
    }
    let host = map.crush.type_by_name("host").filter(|_| domain(&map.crush) == Some(0));
    let Some(host) = host else {
        return pending.batch.hosts.push(HostChange::DomainGrown);
    };
    // Without a place for all copies it waits for another host; else until placement groups have reported.
    let Some(change) = Change::of(&map, stats, host).ok().filter(|change| change.unknown == 0) else {
        return;
    };
    pending.batch.hosts.push(HostChange::DomainGrown);
    if change.moved_bytes > 0 {
        let text = "there are three hosts now, and pools with data whose copies may be on one host: `nacre placement \
                    failure-domain host` says how much data moves if they are to be on different hosts";
        return cx.log(pending, LogLevel::Warn, text.to_string());
    }
    change.apply(pending);
    cx.log(pending, LogLevel::Info, "three hosts: copies go to different hosts from now on".to_string());
}

/// The pools of the default rule.
pub fn pools(map: &OsdMap) -> Vec<PoolId> {
    let of_rule = map.pools.iter().filter(|(_, pool)| u32::from(pool.crush_rule) == DEFAULT_RULE);
    of_rule.map(|(id, _)| *id).collect()
}

/// The kind of bucket of which the default rule chooses different ones, 0 for OSDs. None if the rule has
/// several choices, or none.
pub fn domain(crush: &CrushMap) -> Option<i32> {
    let chosen = crush.rule(DEFAULT_RULE)?.steps.iter().filter_map(|step| match Op::from_code(step.op)? {
        Op::ChooseLeafFirstN => Some(step.arg2),
        // A choice of buckets needs another of OSDs in them.
        Op::ChooseFirstN => Some(if step.arg2 == 0 { 0 } else { -1 }),
        Op::ChooseIndep | Op::ChooseLeafIndep => Some(-1),
        _ => None,
    });
    match chosen.collect::<Vec<_>>()[..] {
        [kind] if kind >= 0 => Some(kind),
        _ => None,
    }
}

/// The map with a default rule that chooses different buckets of a kind. None if its rule is of another form.
pub fn with_domain(crush: &CrushMap, kind: i32) -> Option<CrushMap> {
    domain(crush)?;
    let mut changed = crush.clone();
    let rule = changed.rules.get_mut(DEFAULT_RULE as usize)?.as_mut()?;
    let is_choice = |op: u32| matches!(Op::from_code(op), Some(Op::ChooseFirstN | Op::ChooseLeafFirstN));
    let step = rule.steps.iter_mut().find(|step| is_choice(step.op))?;
    let op = if kind == 0 { Op::ChooseFirstN } else { Op::ChooseLeafFirstN };
    *step = op.step(step.arg1, kind);
    Some(changed)
}

/// How many buckets of a kind have OSDs that are in, below what the default rule takes.
pub fn domains(map: &OsdMap, kind: i32) -> usize {
    let steps = map.crush.rule(DEFAULT_RULE).map(|rule| rule.steps.clone()).unwrap_or_default();
    let top = steps.iter().find(|step| Op::from_code(step.op) == Some(Op::Take));
    top.map_or(0, |step| usable(map, step.arg1, kind).len())
}

/// A wider failure domain that the cluster has enough buckets for: its name and how many there are. None if
/// no two copies share one as it is.
pub fn proposal(map: &OsdMap) -> Option<(&'static str, usize)> {
    let domain = domain(&map.crush)?;
    let pools = pools(map);
    let copies = pools.iter().map(|id| usize::from(map.pools[id].size)).max()?;
    let now = domains(map, domain);
    let is_better = |(name, kind): &(&str, i32)| {
        let have = domains(map, *kind);
        let is_complete = *name != "rack" || outside_racks(map).is_empty();
        *kind > domain && have >= copies.max(DOMAINS_MIN) && have < now && is_complete
    };
    let kinds = ["rack", "host"].into_iter().filter_map(|name| Some((name, map.crush.type_by_name(name)?)));
    kinds.into_iter().find(is_better).map(|(name, kind)| (name, domains(map, kind)))
}

/// What another failure domain of the default rule would do.
pub struct Change {
    /// The map with it.
    pub map: OsdMap,
    /// The pools of the rule.
    pub pools: Vec<PoolId>,
    /// Placement groups, and how many of them get another member.
    pub pgs: u64,
    pub moved_pgs: u64,
    /// Bytes on all OSDs, and how many of them are copied to other OSDs.
    pub bytes: u64,
    pub moved_bytes: u64,
    /// Placement groups that have not reported how much they have.
    pub unknown: u64,
}

impl Change {
    /// `kind` is that of the new failure domain. Says why not if a copy would have no place.
    pub fn of(map: &OsdMap, stats: &PgStats, kind: i32) -> Result<Change, String> {
        let crush = with_domain(&map.crush, kind).ok_or_else(|| {
            "the default CRUSH rule is not of the form that Nacre made: change it with `ceph osd crush rule` and `ceph osd \
             pool set POOL crush_rule`"
                .to_string()
        })?;
        let pools = pools(map);
        let mut new = OsdMap { crush: Arc::new(crush), ..map.clone() };
        // Exceptions were made for the old rule.
        let is_other = |pg: &nacre_base::PgId| !pools.contains(&pg.pool);
        Arc::make_mut(&mut new.pg_upmap).retain(|pg, _| is_other(pg));
        Arc::make_mut(&mut new.pg_upmap_items).retain(|pg, _| is_other(pg));
        let mut change =
            Change { map: new, pools, pgs: 0, moved_pgs: 0, bytes: 0, moved_bytes: 0, unknown: 0 };
        for id in change.pools.clone() {
            change.add_pool(map, stats, id)?;
        }
        Ok(change)
    }

    fn add_pool(&mut self, map: &OsdMap, stats: &PgStats, id: PoolId) -> Result<(), String> {
        let pool = &map.pools[&id];
        let name = map.pool_name(id).unwrap_or_default();
        let refuse = |why: String| format!("pool '{name}' has size {}, and its {why}", pool.size);
        if let Some(why) = shortfall(&self.map, pool) {
            return Err(refuse(why));
        }
        for pg in map.pgs(id) {
            let placed = |map: &OsdMap| -> BTreeSet<OsdId> {
                map.up_acting_from(pool, pg, map.crush_placement(pg)).up.into_iter().collect()
            };
            let found = self.map.crush_placement(pg).into_iter().filter(|osd| osd.is_some()).count();
            if found < usize::from(pool.size) {
                return Err(refuse(format!(
                    "placement group {pg} would have only {found} OSDs: give the buckets similar weights"
                )));
            }
            let (old, new) = (placed(map), placed(&self.map));
            let added = new.difference(&old).count() as u64;
            self.pgs += 1;
            self.moved_pgs += u64::from(added > 0);
            match stats.pgs.get(&pg) {
                Some(stat) => {
                    let counts = &stat.report.counts;
                    let bytes = counts.bytes.saturating_add(counts.omap_bytes);
                    self.bytes = self.bytes.saturating_add(bytes.saturating_mul(new.len() as u64));
                    self.moved_bytes = self.moved_bytes.saturating_add(bytes.saturating_mul(added));
                }
                None => self.unknown += 1,
            }
        }
        Ok(())
    }

    /// Makes it so.
    pub fn apply(self, pending: &mut PendingTxn) {
        let base = pending.map().clone();
        let ends = |pg: &nacre_base::PgId| self.pools.contains(&pg.pool);
        pending.edit(|inc| {
            inc.crush = Some(self.map.crush.clone());
            inc.new_pg_upmap.retain(|pg, _| !ends(pg));
            inc.new_pg_upmap_items.retain(|pg, _| !ends(pg));
            inc.old_pg_upmap.extend(base.pg_upmap.keys().filter(|pg| ends(pg)));
            inc.old_pg_upmap_items.extend(base.pg_upmap_items.keys().filter(|pg| ends(pg)));
        });
    }
}

// ---- what is wrong ----

/// Adds the checks `POOL_FAILURE_DOMAIN`, `RACK_TOO_LARGE` and `HOST_NOT_IN_RACK`.
pub fn health(cx: &Context<'_>, map: &OsdMap, checks: &mut Checks) {
    let hosts = &cx.state.hosts;
    if hosts.hosts.is_empty() {
        return;
    }
    // Until then the rule may grow by itself.
    if let Some((kind, have)) = proposal(map).filter(|_| hosts.domain_grown) {
        let pools = pools(map);
        let plural = if pools.len() == 1 { "" } else { "s" };
        let names = pools.iter().filter_map(|id| map.pool_name(*id)).take(NAMES_MAX).collect::<Vec<_>>();
        let dots = if pools.len() > NAMES_MAX { ", ..." } else { "" };
        let summary = format!("Copies of {} pool{plural} may be on one {kind}", pools.len());
        let detail = format!(
            "pool{plural} {}{dots}: there are {have} {kind}s, and copies may share one. `nacre placement failure-domain \
             {kind}` says how much data moves if each copy is to be on another {kind}",
            names.join(", ")
        );
        warn(checks, "POOL_FAILURE_DOMAIN", pools.len(), summary, vec![detail]);
    }
    let racks = rack_shares(map);
    let large: Vec<String> =
        racks.iter().filter(|rack| rack.share > RACK_SHARE_MAX).map(Rack::line).collect();
    if !large.is_empty() {
        let n = large.len();
        let summary = match n {
            1 => "1 rack holds more than 30% of the weight".to_string(),
            n => format!("{n} racks hold more than 30% of the weight each"),
        };
        warn(checks, "RACK_TOO_LARGE", n, summary, large);
    }
    let outside = outside_racks(map);
    if !outside.is_empty() && map.crush.type_by_name("rack").is_some_and(|rack| domains(map, rack) > 0) {
        let n = outside.len();
        let summary = format!("{n} host{} in no rack, and others are", if n == 1 { " is" } else { "s are" });
        let line = |host: &String| {
            format!("host {host} is in no rack: `nacre host set-location {host} rack=RACK` puts it into one")
        };
        warn(checks, "HOST_NOT_IN_RACK", n, summary, outside.iter().map(line).collect());
    }
}

/// A rack, and how much of the weight below a root it holds.
struct Rack {
    name: String,
    root: String,
    share: f64,
    /// Racks below that root.
    of: usize,
}

impl Rack {
    fn line(&self) -> String {
        format!(
            "rack {} holds {:.1}% of the weight below '{}', which has {} racks: `nacre host set-location HOST rack=RACK` \
             moves a host to another one",
            self.name,
            self.share * 100.0,
            self.root,
            self.of
        )
    }
}

/// Of roots with so many racks that none needs to hold too much.
fn rack_shares(map: &OsdMap) -> Vec<Rack> {
    let crush = &map.crush;
    let Some(kind) = crush.type_by_name("rack") else { return Vec::new() };
    let mut found = Vec::new();
    for root in crush.roots(false) {
        let racks = usable(map, root, kind);
        let total = weight_below(map, root);
        if racks.len() < RACKS_AUDITED || total == 0 {
            continue;
        }
        let name = |id: i32| crush.names.get(&id).cloned().unwrap_or_default();
        found.extend(racks.iter().map(|&id| Rack {
            name: name(id),
            root: name(root),
            share: weight_below(map, id) as f64 / total as f64,
            of: racks.len(),
        }));
    }
    found
}

/// CRUSH weights times reweights of the OSDs below a bucket that exist.
fn weight_below(map: &OsdMap, top: i32) -> u128 {
    let of_osd = |node: nacre_crush::Node| {
        let osd = OsdId(node.id);
        let counts = node.id >= 0 && map.exists(osd);
        if counts { u128::from(node.weight) * u128::from(map.weight(osd)) } else { 0 }
    };
    map.crush.walk(top).map(of_osd).sum()
}

/// Hosts below the default rule's root that have OSDs which are in, and are in no rack.
fn outside_racks(map: &OsdMap) -> Vec<String> {
    let crush = &map.crush;
    let Some(host) = crush.type_by_name("host") else { return Vec::new() };
    let roots = crush.roots(false);
    let hosts = roots.iter().flat_map(|root| usable(map, *root, host));
    let is_outside = |id: &i32| !crush.location(*id).iter().any(|(kind, _)| kind == "rack");
    hosts.filter(is_outside).filter_map(|id| crush.names.get(&id).cloned()).collect()
}
