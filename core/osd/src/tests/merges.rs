//! Two PGs become one.

use super::*;
use nacre_base::{PgId, SpgId};
use nacre_proto::maps::Pool;
use world::POOL;

fn pool(w: &World) -> &Pool {
    w.map.pool(POOL).unwrap()
}
fn merge_one(w: &mut World) {
    let before = pool(w).pg_num;
    w.announce_merge(true);
    w.run_until("one group less", |w| pool(w).pg_num < before);
}
fn put(w: &mut World, from: usize, to: usize) {
    for n in from..to {
        assert_eq!(w.run_ops(&format!("o{n}"), append(&n.to_string())).result, 0);
    }
}
fn check(w: &mut World, to: usize) {
    for n in 0..to {
        assert_eq!(w.run_ops(&format!("o{n}"), read()).ops[0].data, n.to_string(), "o{n}");
    }
}

#[test]
fn groups_become_one_without_a_copy() {
    let mut w = World::new(1, 3, 3, 2, 4);
    put(&mut w, 0, 40);
    w.run_until("clean", World::all_clean);
    for _ in 0..3 {
        merge_one(&mut w);
        w.run_until("clean", World::all_clean);
    }
    assert_eq!(pool(&w).pg_num, 1);
    check(&mut w, 40);
    put(&mut w, 40, 60);
    check(&mut w, 60);
    w.run_until("clean", World::all_clean);
    w.assert_replicas_equal();
    let report = &w.reports[&PgId { pool: POOL, seed: 0 }];
    assert_eq!((report.counts.objects, report.counts.work.recovered_objects), (60, 0));
    // And split again.
    w.split(4);
    w.run_until("clean", World::all_clean);
    check(&mut w, 60);
}

#[test]
fn merged_pg_is_found_without_its_record() {
    let mut w = World::new(2, 4, 3, 2, 6);
    let on = |last: i32| vec![OsdId(0), OsdId(1), OsdId(last)];
    w.place((0..6).map(|seed| (seed, on(2))).collect());
    put(&mut w, 0, 60);
    w.run_until("clean", World::all_clean);
    w.kill(2);
    w.run_until("down", |w| !w.map.is_up(OsdId(2)));
    // It is down during the merge, and still has the two halves.
    w.place([0, 1, 4, 5].map(|seed| (seed, on(3))).into());
    w.run_for(Duration::from_secs(5));
    merge_one(&mut w);
    merge_one(&mut w);
    let gone = nacre_proto::transaction::StoredId::Pg(SpgId::replicated(PgId { pool: POOL, seed: 5 }));
    w.corrupt(2, |store| {
        store.unreadable.insert(gone.clone());
    });
    w.allow_errors = true;
    w.start(2);
    w.run_until("clean", World::all_clean);
    check(&mut w, 60);
    w.assert_replicas_equal();
    assert!(w.nodes[2].view.unreadable.is_empty());
}

#[test]
fn writes_of_both_halves_wait_for_the_merge_and_go_on_after_it() {
    for seed in 0..8 {
        let mut w = World::new(seed, 3, 3, 2, 2);
        put(&mut w, 0, 10);
        w.run_until("clean", World::all_clean);
        w.announce_merge(true);
        let mut tids = Vec::new();
        for n in 0..200 {
            tids.push(w.submit(&format!("x{}", n % 20), append(&format!("{n} "))));
            w.run_for(Duration::from_micros(500));
        }
        for tid in tids {
            assert_eq!(w.reply(tid).result, 0);
        }
        w.run_until("one group", |w| pool(w).pg_num == 1 && w.all_clean());
        for n in 0..20 {
            let words: String = (0..200).filter(|m| m % 20 == n).map(|m| format!("{m} ")).collect();
            assert_eq!(w.run_ops(&format!("x{n}"), read()).ops[0].data, words);
        }
        w.assert_replicas_equal();
    }
}

#[test]
fn a_merge_that_is_called_off_lets_writes_go_on() {
    let mut w = World::new(3, 3, 3, 2, 2);
    w.run_until("clean", World::all_clean);
    for _ in 0..20 {
        w.announce_merge(true);
        w.announce_merge(false);
        put(&mut w, 0, 1);
        w.run_ops("o0", vec![Op::Delete]);
        if pool(&w).pg_num == 1 {
            return;
        }
    }
}

/// Its halves are not the versions that were merged: it scans the inventory, and then recounts its
/// statistics.
#[test]
fn member_absent_during_a_merge_scans_the_inventory() {
    for seed in 0..8 {
        let mut w = World::new(seed, 3, 3, 2, 2);
        put(&mut w, 0, 20);
        w.run_until("clean", World::all_clean);
        w.kill(2);
        w.run_until("down", |w| !w.map.is_up(OsdId(2)));
        put(&mut w, 20, 40);
        // Two are enough for now.
        w.place(vec![(0, vec![OsdId(0), OsdId(1)]), (1, vec![OsdId(0), OsdId(1)])]);
        w.change(|map, inc| {
            let mut pool = map.pool(POOL).unwrap().clone();
            pool.size = 2;
            inc.new_pools.insert(POOL, pool.into());
        });
        w.run_until("clean", World::all_clean);
        merge_one(&mut w);
        put(&mut w, 40, 50);
        w.start(2);
        w.change(|map, inc| {
            let mut pool = map.pool(POOL).unwrap().clone();
            pool.size = 3;
            inc.new_pools.insert(POOL, pool.into());
        });
        w.place(vec![(0, (0..3).map(OsdId).collect())]);
        w.run_until("clean", World::all_clean);
        check(&mut w, 50);
        w.assert_replicas_equal();
        // It has all of it.
        w.kill(0);
        w.kill(1);
        w.change(|map, inc| {
            let mut pool = map.pool(POOL).unwrap().clone();
            pool.min_size = 1;
            inc.new_pools.insert(POOL, pool.into());
        });
        check(&mut w, 50);
    }
}

/// Whether or not the map of the merge, and its changes, were durable on any OSD.
#[test]
fn a_power_cut_of_everything_at_any_moment_of_a_merge_loses_nothing() {
    for seed in 0..60 {
        let mut w = World::new(seed, 3, 3, 2, 2);
        put(&mut w, 0, 12);
        w.run_until("clean", World::all_clean);
        w.announce_merge(true);
        for _ in 0..seed * 3 {
            w.step();
        }
        (0..3).for_each(|n| w.kill(n));
        w.run_for(Duration::from_secs(1));
        (0..3).for_each(|n| w.start(n));
        w.run_until("one group, clean", |w| pool(w).pg_num == 1 && w.all_clean());
        check(&mut w, 12);
        w.assert_replicas_equal();
    }
}

#[test]
fn clones_and_their_snapshots_stay_what_they_were() {
    let mut w = World::new(9, 3, 3, 2, 4);
    for n in 0..20 {
        w.write_under(0, &[]);
        w.run_ops(&format!("o{n}"), write("before"));
    }
    w.write_under(1, &[1]);
    for n in 0..20 {
        w.run_ops(&format!("o{n}"), write("after"));
    }
    w.run_until("clean", World::all_clean);
    merge_one(&mut w);
    w.run_until("clean", World::all_clean);
    merge_one(&mut w);
    w.run_until("clean", World::all_clean);
    for n in 0..20 {
        assert_eq!(w.run_at(SnapId(1), &format!("o{n}"), read()).ops[0].data, "before");
        assert_eq!(w.run_ops(&format!("o{n}"), read()).ops[0].data, "after");
    }
    assert_eq!(w.clones(), 20 * 3);
    w.remove_snap(1);
    w.run_until("trimmed", |w| w.is_trimmed(1));
    assert_eq!((w.clones(), w.indexed()), (0, 0));
    w.assert_replicas_equal();
}

/// The answer to a write before the merge was lost.
#[test]
fn a_request_that_is_sent_again_after_a_merge_gets_its_first_answer() {
    let mut w = World::new(4, 3, 3, 2, 2);
    put(&mut w, 0, 4);
    let tids: Vec<u64> = (0..8).map(|n| w.submit(&format!("x{n}"), append("once "))).collect();
    let first: Vec<u64> = tids.iter().map(|tid| w.reply(*tid).user_version).collect();
    w.run_until("clean", World::all_clean);
    merge_one(&mut w);
    for (n, (tid, version)) in tids.into_iter().zip(first).enumerate() {
        let again = w.send_again(tid, &format!("x{n}"), append("once "));
        assert_eq!((again.result, again.user_version), (0, version));
        assert_eq!(w.run_ops(&format!("x{n}"), read()).ops[0].data, "once ");
    }
}
