//! What an OSD shows of itself besides requests and counters: watchers, fences, pools, plans to compare
//! copies.

use super::no_map;
use crate::osd::Osd;
use crate::pg::Pg;
use nacre_base::{Now, Utime};
use nacre_command::Refusal;
use nacre_proto::types::EntityAddr;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Watchers that are shown at most: a client decides how many there are.
const WATCHERS_MAX: usize = 10_000;

/// As Ceph shows an address on its own.
fn addr(addr: &EntityAddr) -> Value {
    let sock =
        addr.sock.map_or_else(|| "(unrecognized address family 0)".to_string(), |sock| sock.to_string());
    json!({ "type": addr.kind.name(), "addr": sock, "nonce": addr.nonce })
}

pub fn watchers(osd: &Osd) -> Value {
    let live = osd.pgs().flat_map(Pg::watchers).take(WATCHERS_MAX);
    live.map(|watcher| {
        json!({
            "namespace": watcher.object.namespace.to_string(),
            "object": watcher.object.name.to_string(),
            "entity_name": { "type": "client", "num": watcher.client },
            "cookie": watcher.cookie,
            "timeout": watcher.timeout.as_secs(),
            "entity_addr_t": addr(&watcher.addr),
        })
    })
    .collect()
}

/// Clients, and networks.
pub fn fences(osd: &Osd) -> [Value; 2] {
    let show = |list: &BTreeMap<EntityAddr, Utime>| -> Value {
        list.iter()
            .map(|(one, until)| json!({ "entity_addr_t": addr(one), "expire_time": until.to_string() }))
            .collect()
    };
    osd.map().map_or([json!([]), json!([])], |map| [show(&map.blocklist), show(&map.range_blocklist)])
}

/// Those that have a PG here.
pub fn pools(osd: &Osd) -> Value {
    let pools: BTreeSet<i64> = osd.pgs().map(|pg| pg.id.pool.0).collect();
    json!(pools)
}

pub fn scrub_slots(osd: &Osd) -> Value {
    let pace = &osd.budget.scrub;
    json!({ "scrubs_local": pace.running(), "scrubs_remote": 0, "osd_max_scrubs": osd.options.scrub().max })
}

/// When the PGs that are led from here are due.
pub fn scrub_plans(osd: &Osd, now: Now) -> Result<Value, Refusal> {
    let map = osd.map().ok_or_else(no_map)?;
    let rules = osd.options.scrub();
    let mut plans: Vec<_> =
        osd.pgs().filter_map(|pg| pg.scrub_plan(map, &rules, now.wall).map(|plan| (plan, pg.id))).collect();
    plans.sort_by_key(|(plan, pg)| (plan.from, *pg));
    let show = |(plan, pg): &(crate::pg::ScrubPlan, nacre_base::PgId)| {
        json!({
            "pgid": pg.to_string(),
            "sched_time": plan.from.to_string(),
            "deadline": plan.until.to_string(),
            "forced": plan.wanted,
        })
    };
    Ok(plans.iter().map(show).collect())
}
