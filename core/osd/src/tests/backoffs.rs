//! Backoffs: clients hold requests while a PG does not serve.

use super::*;
use nacre_base::{Epoch, PgId, PoolId};
use nacre_proto::maps::Pool;
use nacre_proto::messages::Message;
use world::POOL;

const OTHER: PoolId = PoolId(2);

/// One PG of three copies, of which two must be there, led by osd.0.
fn one_group(seed: u64) -> World {
    let mut w = World::new(seed, 4, 3, 2, 1);
    w.place(vec![(0, vec![OsdId(0), OsdId(1), OsdId(2)])]);
    w.run_until("clean", World::all_clean);
    w
}
/// OSDs send backoffs as soon as a PG peers.
fn at_once(w: &mut World) {
    w.config.insert("osd_backoff_on_peering".into(), "true".into());
    let values = w.config.clone();
    w.tell_osds(|| Message::Config(nacre_proto::messages::Config { values: values.clone() }));
    w.run_for(Duration::from_millis(20));
}
fn lose_two(w: &mut World) {
    [1, 2].into_iter().for_each(|n| w.kill(n));
    w.run_until("two are down", |w| !w.map.is_up(OsdId(1)) && !w.map.is_up(OsdId(2)));
    w.run_for(Duration::from_millis(100));
}
fn held(w: &World, node: usize) -> u64 {
    w.nodes[node].osd.as_ref().unwrap().budget.waiting.held()
}
fn append_all(w: &mut World, words: std::ops::Range<usize>) -> Vec<u64> {
    words.map(|n| w.submit("a", append(&format!("{n} ")))).collect()
}
fn check(w: &mut World, tids: &[u64]) {
    for tid in tids {
        assert_eq!(w.reply(*tid).result, 0);
    }
    let words: String = (0..tids.len()).map(|n| format!("{n} ")).collect();
    assert_eq!(w.run_ops("a", read()).ops[0].data, words, "all, once, in order");
    w.run_for(Duration::from_millis(500));
    assert!(w.backoffs.is_empty());
}

#[test]
fn held_requests_get_a_backoff_after_a_while_and_run_when_active() {
    let mut w = one_group(1);
    lose_two(&mut w);
    let mut tids = append_all(&mut w, 0..10);
    w.run_for(Duration::from_millis(500));
    assert!(held(&w, 0) > 0 && w.blocks == 0, "it may be a short one");
    w.run_for(Duration::from_secs(3));
    assert_eq!((held(&w, 0), w.blocks), (0, 1));
    tids.extend(append_all(&mut w, 10..20));
    w.run_for(Duration::from_secs(1));
    assert_eq!((held(&w, 0), w.blocks), (0, 1), "they did not leave their client");
    w.start(1);
    check(&mut w, &tids);
}

/// Ceph's client resends the requests of a backoff that were sent to the shard that it names.
#[test]
fn backoff_of_an_erasure_coded_group_names_the_shard_that_requests_were_sent_to() {
    let mut w = erasure::erasure(1, 4, 2, 1, 1);
    for primary in [0, 1] {
        w.place(vec![(0, vec![OsdId(primary), OsdId(1 - primary), OsdId(2)])]);
        w.run_until("clean", World::all_clean);
        let name = format!("of {primary}");
        let others = [1 - primary as usize, 2];
        others.into_iter().for_each(|n| w.kill(n));
        w.run_until("two are down", |w| others.iter().all(|n| !w.map.is_up(OsdId(*n as i32))));
        let append = |n: u64| vec![Op::Append { data: format!("{n} ").into() }];
        let tids: Vec<u64> = (0..5).map(|n| w.submit(&name, append(n))).collect();
        w.run_for(Duration::from_secs(4));
        assert_eq!(held(&w, primary as usize), 0);
        others.into_iter().for_each(|n| w.start(n));
        tids.into_iter().for_each(|tid| assert_eq!(w.reply(tid).result, 0));
        assert_eq!(w.run_ops(&name, read()).ops[0].data, "0 1 2 3 4 ", "all, once, in order");
        w.run_until("clean", World::all_clean);
    }
    assert!(w.blocks >= 2 && w.backoffs.is_empty());
}

#[test]
fn short_peering_holds_requests_without_backoff() {
    let mut w = one_group(2);
    let mut tids = Vec::new();
    for n in 0..20 {
        tids.extend(append_all(&mut w, n..n + 1));
        if n % 5 == 0 {
            w.place(vec![(0, vec![OsdId(0), OsdId(1), OsdId(2 + n as i32 / 5 % 2)])]);
        }
        w.run_for(Duration::from_millis(3));
    }
    check(&mut w, &tids);
    assert_eq!(w.blocks, 0);
}

#[test]
fn client_that_fills_the_waiting_memory_is_blocked_and_others_are_served() {
    let mut w = World::new(3, 3, 3, 2, 1);
    w.run_until("clean", World::all_clean);
    let leader = w.map.pg_to_up_acting(PgId { pool: POOL, seed: 0 }).acting_primary.unwrap();
    w.add_pool(OTHER, vec![leader]);
    let (most, others) = {
        let osd = w.nodes[leader.index()].osd.as_ref().unwrap();
        (osd.budget.waiting.most(), (0..3).filter(|n| *n != leader.index()).collect::<Vec<_>>())
    };
    others.iter().for_each(|n| w.kill(*n));
    w.run_until("alone", |w| w.map.up_osds().count() == 1);
    let large = Bytes::from(vec![7; 8 << 20]);
    let tids: Vec<u64> = (0..32)
        .map(|n| w.submit(&format!("large{n}"), vec![Op::WriteFull { data: large.clone() }]))
        .collect();
    w.run_for(Duration::from_millis(200));
    assert_eq!((held(&w, leader.index()), w.blocks), (0, 1), "of {most}");
    let locator = ObjectLocator::new(OTHER);
    let hash = nacre_proto::types::object_hash(&Name::default(), &"b".into());
    let tid = w.submit_with(locator, "b".into(), hash, 0, write("served"));
    assert_eq!(w.reply(tid).result, 0);
    others.iter().for_each(|n| w.start(*n));
    tids.iter().for_each(|tid| assert_eq!(w.reply(*tid).result, 0));
}

/// Requests sent before the backoff arrived are resent, and must not overtake requests that were dropped.
#[test]
fn requests_in_flight_around_a_backoff_keep_their_order() {
    for seed in 0..20 {
        let mut w = one_group(seed);
        at_once(&mut w);
        w.client_delay = Duration::from_millis(60);
        let mut tids = Vec::new();
        for n in 0..150 {
            tids.extend(append_all(&mut w, n..n + 1));
            if n % 25 == 10 {
                w.place(vec![(0, vec![OsdId(0), OsdId(1), OsdId(2 + n as i32 / 25 % 2)])]);
            }
            w.run_for(Duration::from_millis(4));
        }
        check(&mut w, &tids);
        assert!(w.blocks > 0);
    }
}

#[test]
fn client_without_the_backoff_is_not_unblocked() {
    let mut w = World::new(5, 4, 3, 2, 1);
    w.place(vec![(0, vec![OsdId(0), OsdId(1), OsdId(2)])]);
    w.client_features = !(1 << 57);
    w.run_until("clean", World::all_clean);
    at_once(&mut w);
    lose_two(&mut w);
    let tids = append_all(&mut w, 0..10);
    w.run_for(Duration::from_secs(4));
    assert_eq!(w.blocks, 0);
    w.start(1);
    check(&mut w, &tids);
}

/// A PG with a backoff.
fn blocked(seed: u64) -> (World, Vec<u64>) {
    let mut w = one_group(seed);
    at_once(&mut w);
    lose_two(&mut w);
    let tids = append_all(&mut w, 0..10);
    w.run_until("blocked", |w| !w.backoffs.is_empty());
    (w, tids)
}

#[test]
fn backoff_ends_when_the_primary_changes() {
    for seed in 0..4 {
        let (mut w, tids) = blocked(seed);
        w.start(1);
        w.place(vec![(0, vec![OsdId(1), OsdId(3), OsdId(0)])]);
        check(&mut w, &tids);
        // And when the PG returns to its former primary.
        w.place(vec![(0, vec![OsdId(0), OsdId(1), OsdId(3)])]);
        assert_eq!(w.run_ops("a", read()).result, 0);
    }
}

#[test]
fn backoff_ends_when_the_pg_is_split() {
    for seed in 0..4 {
        let (mut w, tids) = blocked(seed);
        let more: Vec<u64> = (0..20).map(|n| w.submit(&format!("o{n}"), write("x"))).collect();
        w.split(4);
        w.run_for(Duration::from_secs(1));
        let groups: Vec<u32> = w.backoffs.keys().map(|(_, spg, _)| spg.pg.seed).collect();
        assert!(groups.len() <= 4, "{groups:?}");
        w.start(1);
        more.into_iter().for_each(|tid| assert_eq!(w.reply(tid).result, 0));
        check(&mut w, &tids);
    }
}

#[test]
fn backoff_ends_with_its_session_or_osd() {
    for seed in 0..4 {
        let (mut w, tids) = blocked(seed);
        w.reset_between(0, 101);
        w.run_until("blocked again, over the next session", |w| w.backoffs.is_empty());
        w.run_until("blocked again, over the next session", |w| !w.backoffs.is_empty());
        w.kill(0);
        w.start(0);
        w.start(1);
        check(&mut w, &tids);
    }
}

#[test]
fn deleted_pg_blocks_no_client() {
    let (mut w, tids) = blocked(9);
    tids.into_iter().for_each(|tid| w.forget(tid));
    w.change(|_, inc| {
        inc.old_pools.insert(POOL);
    });
    w.run_until("over", |w| w.backoffs.is_empty());
}

/// Another number of members suffices, and the interval is a new one with the same leader.
#[test]
fn lowered_min_size_ends_the_backoff() {
    let (mut w, tids) = blocked(10);
    w.change(|map, inc| {
        let pool = Pool { min_size: 1, ..map.pool(POOL).unwrap().clone() };
        inc.new_pools.insert(POOL, pool.into());
    });
    check(&mut w, &tids);
    assert!(w.map.epoch > Epoch(0));
}

/// The client reconnects, and all its unanswered requests are carried out once.
#[test]
fn held_requests_of_an_ended_session_are_dropped() {
    let mut w = one_group(11);
    lose_two(&mut w);
    let tids = append_all(&mut w, 0..10);
    w.run_for(Duration::from_millis(100));
    let before = held(&w, 0);
    for _ in 0..3 {
        w.reset_between(0, 101);
        w.run_for(Duration::from_millis(100));
        assert_eq!(held(&w, 0), before);
    }
    w.start(1);
    check(&mut w, &tids);
}

#[test]
fn no_write_is_lost_or_repeated_with_backoff_on_peering() {
    for seed in seeds(20) {
        torture_with(seed, 60, at_once);
    }
}
