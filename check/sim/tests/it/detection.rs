//! Failure detection: OSDs that are dead, hung, or wrongly reported. In virtual time, so results do not
//! depend on the machine.

use nacre_base::PoolId;
use nacre_proto::types::Network;
use nacre_sim::{Cluster, Seed};
use serde_json::{Value, json};
use std::time::Duration;

fn cluster(seed: u64) -> (Cluster, PoolId) {
    let mut c = Cluster::new(Seed(seed), 1, 3, 1, false).up();
    let pool = c.pool("p", 8);
    c.write(pool, "a", "before");
    c.run_for(Duration::from_secs(5));
    (c, pool)
}

/// How long a write takes whose primary is gone.
fn stall(c: &mut Cluster, pool: PoolId) -> Duration {
    let start = c.world.now;
    c.write(pool, "a", "after");
    c.world.now.since(start)
}

fn json(c: &mut Cluster, prefix: &str) -> Value {
    let text = c.command(&json!({ "prefix": prefix, "format": "json", "detail": "detail" }));
    serde_json::from_str(&text).expect("it was asked for JSON")
}

/// For each OSD, the epoch since which it is up; 0 if it is down.
fn up_since(c: &mut Cluster) -> Vec<u64> {
    let dump = json(c, "osd dump");
    let osds = dump["osds"].as_array().expect("a list").iter();
    osds.map(|osd| if osd["up"] == 1 { osd["up_from"].as_u64().expect("a number") } else { 0 }).collect()
}

#[test]
fn a_killed_primary_stalls_a_write_for_less_than_half_a_second() {
    for seed in 0..10 {
        let (mut c, pool) = cluster(100 + seed);
        let primary = c.osds[c.primary(pool, "a")];
        c.world.kill(primary, false);
        let stall = stall(&mut c, pool);
        assert!(stall < Duration::from_millis(500), "seed {seed}: {stall:?}");
    }
}

#[test]
fn a_hung_primary_stalls_a_write_for_less_than_two_seconds_and_comes_back() {
    for seed in 0..10 {
        let (mut c, pool) = cluster(200 + seed);
        let primary = c.osds[c.primary(pool, "a")];
        c.world.pause(primary);
        let stall = stall(&mut c, pool);
        assert!(stall < Duration::from_secs(2), "seed {seed}: {stall:?}");
        c.world.resume(primary);
        c.wait_clean().unwrap();
    }
}

#[test]
fn at_twenty_percent_loss_no_osd_is_marked_down() {
    let (mut c, pool) = cluster(300);
    let before = up_since(&mut c);
    c.world.network.loss = 200;
    for n in 0..60 {
        c.write(pool, "a", &format!("{n}"));
        c.run_for(Duration::from_secs(2));
    }
    assert_eq!(up_since(&mut c), before);
}

#[test]
fn a_flapping_link_marks_no_osd_down_and_is_reported() {
    let (mut c, _) = cluster(400);
    let before = up_since(&mut c);
    for _ in 0..10 {
        c.world.partition(c.osds[0], c.osds[1]);
        c.run_for(Duration::from_secs(4));
        c.world.heal(c.osds[0], c.osds[1]);
        c.run_for(Duration::from_secs(4));
    }
    assert_eq!(up_since(&mut c), before);
    let health = json(&mut c, "health");
    let detail = &health["checks"]["OSD_UNRELIABLE_LINK"]["detail"][0]["message"];
    let text = detail.as_str().unwrap_or_else(|| panic!("no such warning in {health}"));
    assert!(text.contains("osd.0 (") && text.contains("osd.1 ("), "{text}");
    c.wait_clean().unwrap();
}

#[test]
fn an_osd_behind_a_broken_link_stays_down_until_it_heals() {
    let (mut c, pool) = cluster(500);
    c.world.partition(c.osds[0], c.osds[1]);
    c.run_for(Duration::from_secs(25));
    let up = up_since(&mut c);
    assert_eq!(up[1], 0, "{up:?}");
    c.write(pool, "a", "goes on");
    c.world.heal(c.osds[0], c.osds[1]);
    c.wait_clean().unwrap();
}

#[test]
fn an_osd_behind_a_link_with_heartbeats_but_no_sessions_stays_down_until_it_heals() {
    let (mut c, pool) = cluster(550);
    c.world.reject(c.osds[0], c.osds[1]);
    c.run_for(Duration::from_secs(25));
    for n in 0..8 {
        c.write(pool, &format!("{n}"), "goes on");
    }
    let up = up_since(&mut c);
    assert_eq!(up.iter().filter(|epoch| **epoch == 0).count(), 1, "{up:?}");
    c.run_for(Duration::from_secs(60));
    let after = up_since(&mut c);
    assert_eq!(up, after, "it flaps");
    c.world.heal_all();
    c.wait_clean().unwrap();
}

#[test]
fn an_osd_that_returns_over_a_healed_link_is_not_reported_for_the_time_before() {
    for seed in 0..10 {
        let (mut c, _) = cluster(560 + seed);
        c.world.partition(c.osds[0], c.osds[1]);
        c.run_for(Duration::from_secs(25));
        assert_eq!(up_since(&mut c)[1], 0);
        c.world.heal(c.osds[0], c.osds[1]);
        let mut up = up_since(&mut c);
        while up[1] == 0 {
            c.run_for(Duration::from_millis(20));
            up = up_since(&mut c);
        }
        c.run_for(Duration::from_secs(10));
        assert_eq!(up_since(&mut c), up, "seed {seed}: it flaps");
        c.wait_clean().unwrap();
    }
}

#[test]
fn an_osd_whose_disk_hangs_is_down_until_it_answers() {
    let (mut c, pool) = cluster(600);
    let primary = c.primary(pool, "a");
    let usual = c.world.disk_latency[c.osds[primary].0];
    c.world.disk_latency[c.osds[primary].0] = (Duration::from_secs(40), Duration::from_secs(40));
    let stall = stall(&mut c, pool);
    assert!(stall < Duration::from_secs(7), "{stall:?}");
    assert_eq!(up_since(&mut c)[primary], 0);
    c.world.disk_latency[c.osds[primary].0] = usual;
    c.wait_clean().unwrap();
}

fn cluster_on_two_networks(seed: u64) -> (Cluster, PoolId) {
    let mut c = Cluster::new(Seed(seed), 1, 4, 1, false).with_cluster_network().up();
    let pool = c.pool("p", 8);
    c.write(pool, "a", "before");
    c.run_for(Duration::from_secs(5));
    (c, pool)
}

/// The detail of the warning about a lost network.
fn lost_networks(c: &mut Cluster) -> Vec<String> {
    let health = json(c, "health");
    let detail = health["checks"]["OSD_NETWORK_LOST"]["detail"].as_array().cloned().unwrap_or_default();
    detail.iter().map(|line| line["message"].as_str().expect("text").to_string()).collect()
}

/// Writes for a while, and returns the longest stall.
fn write_for(c: &mut Cluster, pool: PoolId, seconds: u64) -> Duration {
    let until = c.world.now + Duration::from_secs(seconds);
    let mut longest = Duration::ZERO;
    while c.world.now < until {
        let start = c.world.now;
        for n in 0..8 {
            c.write(pool, &format!("o{n}"), "x");
        }
        longest = longest.max(c.world.now.since(start));
        c.run_for(Duration::from_millis(20));
    }
    longest
}

#[test]
fn an_osd_that_loses_the_cluster_network_stays_up_and_is_reported() {
    for seed in 0..2 {
        let (mut c, pool) = cluster_on_two_networks(700 + seed);
        let before = up_since(&mut c);
        let others = c.osds.clone();
        c.world.isolate(c.osds[2], &others, Network::Cluster);
        let stall = write_for(&mut c, pool, 20);
        assert!(stall < Duration::from_secs(2), "seed {seed}: {stall:?}");
        assert_eq!(up_since(&mut c), before);
        let lost = lost_networks(&mut c);
        assert_eq!(lost.len(), 1, "{lost:?}");
        assert!(lost[0].starts_with("osd.2 (") && lost[0].contains("10.0.1.1:6802"), "{lost:?}");
        assert!(lost[0].contains("has not been reachable on the cluster network"), "{lost:?}");
        c.world.heal_all();
        let stall = write_for(&mut c, pool, 15);
        assert!(stall < Duration::from_millis(500), "seed {seed}: {stall:?}");
        assert_eq!((up_since(&mut c), lost_networks(&mut c)), (before, vec![]));
        c.wait_clean().unwrap();
    }
}

#[test]
fn without_any_cluster_network_everything_goes_over_the_public_one() {
    let (mut c, pool) = cluster_on_two_networks(710);
    let before = up_since(&mut c);
    let others = c.osds.clone();
    others.iter().for_each(|osd| c.world.isolate(*osd, &others, Network::Cluster));
    let longest = write_for(&mut c, pool, 20);
    assert!(longest < Duration::from_secs(2), "{longest:?}");
    assert_eq!(up_since(&mut c), before);
    assert_eq!(lost_networks(&mut c).len(), 3, "the lowest one is heard as little, but it takes two");
    // An OSD that dies now is detected as fast as ever.
    c.world.kill(c.osds[c.primary(pool, "a")], false);
    let stall = stall(&mut c, pool);
    assert!(stall < Duration::from_secs(2), "{stall:?}");
    c.world.heal_all();
}

#[test]
fn an_osd_that_loses_the_public_network_is_down_until_it_is_back_and_is_reported() {
    for seed in 0..2 {
        let (mut c, pool) = cluster_on_two_networks(720 + seed);
        let nodes: Vec<_> = c.mons.iter().chain(&c.osds).chain(&c.clients).copied().collect();
        c.world.isolate(c.osds[2], &nodes, Network::Public);
        let stall = write_for(&mut c, pool, 10);
        assert!(stall < Duration::from_secs(4), "seed {seed}: {stall:?}");
        let up = up_since(&mut c);
        assert_eq!(up.iter().position(|epoch| *epoch == 0), Some(2), "{up:?}");
        let lost = lost_networks(&mut c);
        assert!(
            lost.len() == 1 && lost[0].contains("because it was not reachable on the public network"),
            "{lost:?}"
        );
        c.world.heal_all();
        c.wait_clean().unwrap();
        assert_eq!(lost_networks(&mut c), [""; 0]);
    }
}

#[test]
fn a_public_network_that_all_osds_lost_among_themselves_marks_no_osd_down() {
    let (mut c, pool) = cluster_on_two_networks(730);
    let before = up_since(&mut c);
    let others = c.osds.clone();
    others.iter().for_each(|osd| c.world.isolate(*osd, &others, Network::Public));
    let stall = write_for(&mut c, pool, 20);
    assert!(stall < Duration::from_millis(500), "{stall:?}");
    assert_eq!(up_since(&mut c), before);
    assert!(lost_networks(&mut c).iter().all(|line| line.contains("the network is at fault")));
    c.world.heal_all();
    c.run_for(Duration::from_secs(5));
    assert_eq!(lost_networks(&mut c), [""; 0]);
}
