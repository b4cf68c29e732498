//! What `ceph pg ID query` says, where operators and their programs look for it.

use super::counters::ask;
use super::lost::{self, down_pg_world};
use super::world::{POOL, World};
use super::{read, write};
use nacre_base::PgId;
use serde_json::{Value, json};
use std::time::Duration;

const PG: PgId = PgId { pool: POOL, seed: 0 };

fn query(w: &mut World, osd: usize) -> Value {
    ask(w, osd, json!({"prefix": "query", "pgid": PG.to_string()})).unwrap()
}
fn names(shown: &Value) -> Vec<&str> {
    shown["recovery_state"].as_array().unwrap().iter().map(|state| state["name"].as_str().unwrap()).collect()
}

#[test]
fn query_of_a_clean_pg_shows_all_members() {
    let mut w = World::new(1, 3, 3, 2, 1);
    w.run_ops("a", write("seven by"));
    w.run_until("clean", World::all_clean);
    w.run_for(Duration::from_secs(1));
    let primary = w.reports[&PG].acting_primary.0;
    let shown = query(&mut w, primary as usize);
    assert_eq!(shown["state"], "active+clean");
    assert_eq!(names(&shown), ["Started/Primary/Active", "Started"]);
    assert_eq!(shown["snap_trimq"], "[]");
    assert_eq!(shown["info"]["pgid"], PG.to_string());
    assert_eq!(shown["info"]["last_update"], shown["info"]["last_complete"]);
    assert_eq!(shown["info"]["stats"]["state"], "active+clean");
    assert_eq!(shown["info"]["stats"]["stat_sum"]["num_objects"], 1);
    assert_eq!(shown["info"]["stats"]["stat_sum"]["num_bytes"], 8);
    assert_eq!(shown["acting_recovery_backfill"].as_array().unwrap().len(), 3);
    assert!(shown.get("backfill_targets").is_none());
    let peers: Vec<&Value> = shown["peer_info"].as_array().unwrap().iter().collect();
    assert_eq!(peers.len(), 2);
    for peer in peers {
        let osd: usize = peer["peer"].as_str().unwrap().parse().unwrap();
        assert_eq!(peer["last_update"], shown["info"]["last_update"]);
        assert_eq!(peer["stats"]["stat_sum"]["num_objects"], 1);
        let own = query(&mut w, osd);
        assert_eq!(names(&own), ["Started/ReplicaActive", "Started"]);
        assert_eq!(own["info"]["last_update"], shown["info"]["last_update"]);
        assert!(own.get("acting_recovery_backfill").is_none());
    }
}

#[test]
fn query_of_a_down_pg_names_the_blocking_osds() {
    let mut w = down_pg_world();
    let shown = query(&mut w, 1);
    assert_eq!(names(&shown), ["Started/Primary/Peering/Down", "Started/Primary/Peering", "Started"]);
    let peering = &shown["recovery_state"][1];
    assert_eq!(peering["blocked"], "peering is blocked due to down osds");
    assert_eq!(peering["down_osds_we_would_probe"], json!([0]));
    assert_eq!(peering["peering_blocked_by"][0]["osd"], 0);
    assert_eq!(peering["probing_osds"], json!(["1"]));
    w.start(0);
    assert_eq!(w.run_ops("a", read()).result, 0);
    assert_eq!(names(&query(&mut w, 1)), ["Started/Primary/Active", "Started"]);
}

#[test]
fn query_of_a_pg_with_unfound_objects_names_possible_holders() {
    let mut w = lost::world(1);
    let shown = query(&mut w, 1);
    assert_eq!(names(&shown), ["Started/Primary/Active", "Started"]);
    let might_have = &shown["recovery_state"][0]["might_have_unfound"];
    assert_eq!(*might_have, json!([{"osd": "0", "status": "osd is down"}]));
    assert_eq!(shown["info"]["missing"], 2);
    assert_eq!(shown["info"]["last_complete"], "0'0");
    assert_eq!(shown["info"]["stats"]["stat_sum"]["num_objects_unfound"], 2);
}
