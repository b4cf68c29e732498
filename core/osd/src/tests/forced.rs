//! `ceph pg force-recovery`: placement groups that are recovered first.

use super::world::{POOL, World};
use super::write;
use nacre_base::{OsdId, PgId};
use nacre_proto::maps::map_flags;
use nacre_proto::messages::{Config, DaemonMsg, pg_state};

/// osd.0 leads these.
const LED: [u32; 3] = [0, 3, 6];

fn state(w: &World, seed: u32) -> u64 {
    w.reports[&PgId { pool: POOL, seed }].state
}
fn is_clean(w: &World, seed: u32) -> bool {
    state(w, seed) & pg_state::CLEAN != 0
}
fn force(w: &mut World, seed: u32, on: bool) {
    w.tell_osds(|| DaemonMsg::Force { pgs: vec![PgId { pool: POOL, seed }], backfill: false, on }.into());
}
fn is_forced(w: &World, seed: u32) -> bool {
    state(w, seed) & pg_state::FORCED_RECOVERY != 0
}
fn may_recover(w: &mut World, may: bool) {
    let flag = map_flags::NORECOVER;
    w.change(|map, inc| inc.new_flags = Some(if may { map.flags & !flag } else { map.flags | flag }));
}
/// One of three OSDs was away during writes, and comes back. Recovery, ten transfers a second, may not begin
/// yet.
fn begin(seed: u64) -> World {
    let mut w = World::new(seed, 3, 3, 2, 9);
    w.run_until("clean", World::all_clean);
    let values = [("osd_recovery_max_active", "1"), ("osd_recovery_sleep", "0.1")];
    let values = || values.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    w.tell_osds(|| Config { values: values() }.into());
    w.kill(2);
    w.mark_down(OsdId(2));
    (0..150).for_each(|n| assert_eq!(w.run_ops(&format!("o{n}"), write("missed")).result, 0));
    may_recover(&mut w, false);
    w.start(2);
    let waits =
        pg_state::BACKFILL_WAIT | pg_state::BACKFILLING | pg_state::RECOVERY_WAIT | pg_state::RECOVERING;
    w.run_until("all wait", |w| LED.iter().all(|seed| state(w, *seed) & waits != 0));
    w
}
/// The order in which the PGs of osd.0 become clean.
fn order(w: &mut World) -> Vec<u32> {
    let mut order = Vec::new();
    while order.len() < LED.len() {
        let next = |w: &World| LED.into_iter().find(|seed| !order.contains(seed) && is_clean(w, *seed));
        w.run_until("another is clean", |w| next(w).is_some());
        let next = next(w).unwrap();
        order.push(next);
    }
    order
}

#[test]
fn forced_pg_recovers_first_and_shows_forced_recovery() {
    for seed in 1..4 {
        for wanted in LED {
            let mut w = begin(seed);
            force(&mut w, wanted, true);
            w.run_until("it knows", |w| is_forced(w, wanted));
            may_recover(&mut w, true);
            assert_eq!(order(&mut w)[0], wanted);
            assert!(!is_forced(&w, wanted));
            w.run_until("clean", World::all_clean);
            w.assert_replicas_equal();
        }
    }
}

#[test]
fn an_operator_may_think_better_of_it() {
    let mut w = begin(1);
    force(&mut w, 6, true);
    w.run_until("it knows", |w| is_forced(w, 6));
    force(&mut w, 6, false);
    w.run_until("it knows that, too", |w| !is_forced(w, 6));
    may_recover(&mut w, true);
    w.run_until("clean", World::all_clean);
}
