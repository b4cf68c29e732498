//! Placement groups are spread evenly over OSDs.

use super::pg_merge::serve;
use super::*;
use std::collections::BTreeSet;

/// Everything serves, again and again, until nothing moves for long.
fn settle(t: &mut TestMon, conns: &[ConnId], pools: &[PoolId]) {
    for _ in 0..60 {
        let before = t.map().pg_upmap_items.clone();
        pools.iter().for_each(|&pool| serve(t, conns, pool));
        t.pass(Duration::from_secs(15));
        if t.map().pg_upmap_items == before {
            return;
        }
    }
    panic!("groups move for ever");
}
/// How many placement groups of a pool each OSD has.
fn counts(t: &TestMon, pool: PoolId, osds: usize) -> Vec<usize> {
    let map = t.map();
    let mut counts = vec![0; osds];
    for pg in map.pgs(pool) {
        map.pg_to_up_acting(pg).up.iter().for_each(|osd| counts[osd.index()] += 1);
    }
    counts
}
fn spread(counts: &[usize]) -> usize {
    counts.iter().max().unwrap() - counts.iter().min().unwrap()
}

#[test]
fn balancer_reaches_each_osds_share_per_pool_and_in_total() {
    let (mut t, conns) = TestMon::with_osds(8);
    let pools = [t.create_pool("p", 64), t.create_pool("q", 32)];
    let before: Vec<_> = pools.iter().map(|&pool| counts(&t, pool, 8)).collect();
    assert!(before.iter().any(|counts| spread(counts) > 4), "even by itself: {before:?}");
    pools.iter().for_each(|&pool| serve(&mut t, &conns, pool));
    let score = |t: &mut TestMon| t.run(json!({ "prefix": "balancer eval" }));
    let uneven = score(&mut t);
    settle(&mut t, &conns, &pools);
    let after: Vec<_> = pools.iter().map(|&pool| counts(&t, pool, 8)).collect();
    assert!(after.iter().all(|counts| spread(counts) <= 2), "{after:?}");
    let all: Vec<usize> = after[0].iter().zip(&after[1]).map(|(a, b)| a + b).collect();
    assert!(spread(&all) <= 2, "{all:?}");
    assert!(score(&mut t) < uneven, "{uneven}");
    let status = t.json(json!({ "prefix": "balancer status" }));
    assert!(
        status["optimize_result"].as_str().unwrap().starts_with("placement groups moved by the balancer"),
        "{status}"
    );

    // An OSD that is out is no upmap target.
    t.run(json!({ "prefix": "osd out", "ids": ["5"] }));
    t.pass(Duration::from_secs(2));
    let stands_in = t.map().pg_upmap_items.values().flatten().any(|(_, to)| *to == OsdId(5));
    assert!(!stands_in);
    t.run(json!({ "prefix": "osd pool delete", "pool": "p", "pool2": "p", "yes_i_really_really_mean_it": true }));
    assert!(t.map().pg_upmap_items.keys().all(|pg| pg.pool == pools[1]));
}

#[test]
fn copies_stay_on_different_hosts_and_weights_count() {
    let (mut t, conns) = TestMon::with_osds(10);
    for osd in 0..10 {
        // The last host's OSDs are twice as large.
        let (host, weight) = (format!("host=h{}", osd / 2), if osd < 8 { 1.0 } else { 2.0 });
        let args = ["root=default".to_string(), host];
        t.run(json!({ "prefix": "osd crush set", "id": osd, "weight": weight, "args": args }));
    }
    t.run(json!({ "prefix": "osd crush rule create-replicated", "name": "hosts", "root": "default", "type": "host" }));
    let pool = t.create_pool("p", 64);
    t.run(json!({ "prefix": "osd pool set", "pool": "p", "var": "crush_rule", "val": "hosts" }));
    settle(&mut t, &conns, &[pool]);
    let map = t.map();
    for pg in map.pgs(pool) {
        let up = map.pg_to_up_acting(pg).up;
        let hosts: BTreeSet<i32> = up.iter().map(|osd| osd.0 / 2).collect();
        assert_eq!((up.len(), hosts.len()), (3, 3), "{pg}: {up:?}");
    }
    let counts = counts(&t, pool, 10);
    assert!(spread(&counts[..8]) <= 2 && spread(&counts[8..]) <= 2, "{counts:?}");
    assert!(counts[8] > counts[0] * 3 / 2, "{counts:?}");
    // An operator's exception that puts two copies on one host does not stay.
    let pg = map.pgs(pool).next().unwrap();
    let up = map.pg_to_up_acting(pg).up;
    let beside = OsdId(up[1].0 ^ 1);
    let id = [up[0].to_string(), beside.to_string()];
    t.run(json!({ "prefix": "osd pg-upmap-items", "pgid": pg.to_string(), "id": id }));
    t.pass(Duration::from_secs(2));
    assert!(!t.map().pg_to_up_acting(pg).up.contains(&beside));
}

#[test]
fn balancer_moves_nothing_unless_healthy_and_enabled() {
    let (mut t, conns) = TestMon::with_osds(8);
    let pool = t.create_pool("p", 64);
    // Not clean.
    t.pass(Duration::from_secs(30));
    let none = |t: &TestMon| t.map().pg_upmap_items.is_empty();
    assert!(none(&t));
    t.run(json!({ "prefix": "balancer off" }));
    assert_eq!(t.json(json!({ "prefix": "balancer status" }))["active"], false);
    serve(&mut t, &conns, pool);
    t.pass(Duration::from_secs(30));
    assert!(none(&t));
    t.run(json!({ "prefix": "balancer on" }));
    t.run(json!({ "prefix": "osd set", "key": "norebalance" }));
    t.pass(Duration::from_secs(30));
    assert!(none(&t));
    t.run(json!({ "prefix": "osd unset", "key": "norebalance" }));
    let other = t.create_pool("other", 1);
    serve(&mut t, &conns, other);
    t.run(json!({ "prefix": "balancer pool add", "pools": ["other"] }));
    assert_eq!(t.json(json!({ "prefix": "balancer pool ls" })), json!(["other"]));
    t.pass(Duration::from_secs(30));
    assert!(none(&t));
    t.run(json!({ "prefix": "balancer pool rm", "pools": ["other"] }));
    // Of 65 placement groups three move at a time, a twentieth.
    t.pass(Duration::from_secs(30));
    assert_eq!(t.map().pg_upmap_items.len(), 3);
    assert_eq!(t.command(json!({ "prefix": "balancer mode", "mode": "crush-compat" })).0, -95);
    assert_eq!(t.command(json!({ "prefix": "balancer mode", "mode": "other" })).0, -22);
}
