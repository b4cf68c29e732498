//! Placement groups that are being moved to other OSDs.

use super::world::{POOL, World};
use super::write;
use nacre_base::{OsdId, PgId};
use nacre_proto::maps::{map_flags, osd_state};
use nacre_proto::messages::pg_state;
use nacre_proto::types::{Extent, Op};
use std::time::Duration;

const GROUP: PgId = PgId { pool: POOL, seed: 0 };
const OBJECTS: usize = 7;

fn osds(ids: [i32; 3]) -> Vec<OsdId> {
    ids.map(OsdId).into()
}
/// A PG of three copies with some objects, and a fourth OSD.
fn begin(seed: u64) -> World {
    let mut w = World::new(seed, 4, 3, 2, 1);
    w.run_until("clean", World::all_clean);
    (0..OBJECTS).for_each(|n| assert_eq!(w.run_ops(&format!("o{n}"), write("what moves")).result, 0));
    w
}
/// As the monitors do it: CRUSH chooses osd.3 as the primary, and complete members serve through `pg_temp`.
fn shift(w: &mut World) {
    w.change(|_, inc| {
        inc.new_pg_upmap.insert(GROUP, osds([3, 1, 2]));
        inc.new_pg_temp.insert(GROUP, osds([0, 1, 2]));
    });
}
fn holds(w: &World, node: usize) -> usize {
    w.nodes[node].view.objects().count()
}
fn state(w: &World) -> u64 {
    w.reports[&GROUP].state
}
fn acting(w: &World) -> Vec<OsdId> {
    w.map.pg_to_up_acting(GROUP).acting
}
fn set_flag(w: &mut World, flag: u32, on: bool) {
    w.change(|map, inc| inc.new_flags = Some(if on { map.flags | flag } else { map.flags & !flag }));
}

#[test]
fn remapped_pg_is_served_by_a_complete_primary() {
    for seed in 1..6 {
        let mut w = begin(seed);
        shift(&mut w);
        let mut written = OBJECTS;
        while !w.all_clean() || acting(&w) != osds([3, 1, 2]) {
            assert!(written < 200, "{}", w.describe());
            let tid = w.submit(&format!("n{written}"), write("meanwhile"));
            let met = |w: &World| {
                let primary = w.map.pg_to_up_acting(GROUP).acting_primary.unwrap();
                assert!(holds(w, primary.index()) >= OBJECTS, "osd.{primary}: {}", w.describe());
                w.replies.contains_key(&tid)
            };
            w.run_until("a reply", met);
            assert_eq!(w.reply(tid).result, 0);
            written += 1;
            w.run_for(Duration::from_millis(100));
        }
        w.run_for(Duration::from_secs(1));
        w.assert_replicas_equal();
        w.run_until("the old copy is gone", |w| holds(w, 0) == 0);
    }
}

#[test]
fn changed_up_set_alone_starts_no_interval() {
    let mut w = begin(9);
    set_flag(&mut w, map_flags::NOREBALANCE, true);
    w.run_for(Duration::from_secs(1));
    let interval = |w: &World| w.nodes[0].osd.as_ref().unwrap().pg(GROUP).unwrap().interval().clone();
    let before = interval(&w);
    shift(&mut w);
    w.run_for(Duration::from_secs(1));
    assert_eq!((interval(&w).start, interval(&w).up), (before.start, osds([3, 1, 2])));
}

#[test]
fn norebalance_holds_back_what_is_only_misplaced() {
    let mut w = begin(2);
    set_flag(&mut w, map_flags::NOREBALANCE, true);
    shift(&mut w);
    w.run_for(Duration::from_secs(10));
    assert_eq!((acting(&w), holds(&w, 3)), (osds([0, 1, 2]), 0));
    let waits = pg_state::ACTIVE | pg_state::REMAPPED | pg_state::BACKFILL_WAIT;
    assert_eq!(pg_state::name(state(&w)), pg_state::name(waits));
    assert_eq!((w.reports[&GROUP].counts.misplaced, w.reports[&GROUP].counts.degraded), (OBJECTS as u64, 0));
    // With a copy too few it is another matter.
    w.kill(2);
    w.mark_down(OsdId(2));
    w.run_until("osd.3 has the group", |w| holds(w, 3) == OBJECTS);
    w.start(2);
    set_flag(&mut w, map_flags::NOREBALANCE, false);
    w.run_until("moved", |w| w.all_clean() && acting(w) == osds([3, 1, 2]));
    w.run_for(Duration::from_secs(1));
    w.assert_replicas_equal();
}

#[test]
fn nobackfill_lets_no_new_member_in() {
    let mut w = begin(3);
    set_flag(&mut w, map_flags::NOBACKFILL, true);
    shift(&mut w);
    w.run_for(Duration::from_secs(10));
    assert_eq!((acting(&w), holds(&w, 3)), (osds([0, 1, 2]), 0));
    set_flag(&mut w, map_flags::NOBACKFILL, false);
    w.run_until("moved", |w| w.all_clean() && acting(w) == osds([3, 1, 2]));
}

#[test]
fn an_osd_that_is_too_full_gets_nothing_until_it_is_not() {
    let mut w = begin(4);
    w.change(|_, inc| inc.new_state.extend([(OsdId(3), osd_state::BACKFILLFULL)]));
    shift(&mut w);
    w.run_for(Duration::from_secs(10));
    assert_eq!((acting(&w), holds(&w, 3)), (osds([0, 1, 2]), 0));
    let full = pg_state::ACTIVE | pg_state::REMAPPED | pg_state::BACKFILL_TOOFULL;
    assert_eq!(pg_state::name(state(&w)), pg_state::name(full));
    w.change(|_, inc| inc.new_state.extend([(OsdId(3), osd_state::BACKFILLFULL)]));
    w.run_until("moved", |w| w.all_clean() && acting(w) == osds([3, 1, 2]));
}

/// Each OSD moves one PG at a time: while backfills waited for space, no PG moved that would have freed
/// space.
#[test]
fn backfill_that_waits_for_space_blocks_no_other() {
    let mut w = World::new(8, 5, 3, 2, 2);
    w.place((0..2).map(|seed| (seed, osds([0, 1, 2]))).collect());
    w.run_until("clean", World::all_clean);
    (0..20).for_each(|n| assert_eq!(w.run_ops(&format!("o{n}"), write("what moves")).result, 0));
    let shift = |w: &mut World, seed: u32, to: [i32; 3]| {
        let pg = PgId { pool: POOL, seed };
        w.change(|_, inc| {
            inc.new_pg_upmap.insert(pg, osds(to));
            inc.new_pg_temp.insert(pg, osds([0, 1, 2]));
        });
    };
    set_flag(&mut w, map_flags::NORECOVER, true);
    shift(&mut w, 0, [0, 1, 3]);
    w.run_until("osd.3 is a member", |w| acting(w).contains(&OsdId(3)));
    w.change(|_, inc| inc.new_state.extend([(OsdId(3), osd_state::BACKFILLFULL)]));
    set_flag(&mut w, map_flags::NORECOVER, false);
    shift(&mut w, 1, [0, 1, 4]);
    let other = PgId { pool: POOL, seed: 1 };
    w.run_until("the other has moved", |w| w.map.pg_to_up_acting(other).acting == osds([0, 1, 4]));
    assert_eq!(holds(&w, 3), 0);
    w.change(|_, inc| inc.new_state.extend([(OsdId(3), osd_state::BACKFILLFULL)]));
    w.run_until("all is moved", |w| w.all_clean() && acting(w) == osds([0, 1, 3]));
    w.run_for(Duration::from_secs(1));
    w.assert_replicas_equal();
}

/// An OSD that was out briefly got no backfill because its disk was full, and other OSDs kept the replacing
/// copies.
#[test]
fn an_osd_that_is_too_full_comes_back_to_what_it_has() {
    let mut w = begin(7);
    w.place(vec![(GROUP.seed, osds([3, 1, 2]))]);
    w.run_until("osd.3 has it", |w| w.all_clean() && holds(w, 3) == OBJECTS);
    w.kill(3);
    w.mark_down(OsdId(3));
    w.place(vec![(GROUP.seed, osds([0, 1, 2]))]);
    w.run_until("others have it", World::all_clean);
    assert_eq!(w.run_ops("o1", write("written meanwhile")).result, 0);
    w.start(3);
    w.run_until("it is there", |w| w.map.is_up(OsdId(3)));
    w.change(|_, inc| inc.new_state.extend([(OsdId(3), osd_state::BACKFILLFULL)]));
    shift(&mut w);
    w.run_until("it leads again", |w| w.all_clean() && acting(w) == osds([3, 1, 2]));
    w.run_for(Duration::from_secs(1));
    w.assert_replicas_equal();
    w.run_until("and the others gave up theirs", |w| holds(w, 0) == 0);
}

/// A PG that moves has one more member for a while: the number of such PGs is limited.
#[test]
fn groups_move_one_after_the_other() {
    let mut w = World::new(5, 4, 3, 2, 6);
    let all: Vec<PgId> = w.map.pgs(POOL).collect();
    w.place(all.iter().map(|pg| (pg.seed, osds([0, 1, 2]))).collect());
    w.run_until("clean", World::all_clean);
    (0..30).for_each(|n| assert_eq!(w.run_ops(&format!("o{n}"), write("what moves")).result, 0));
    w.change(|_, inc| {
        for pg in &all {
            inc.new_pg_upmap.insert(*pg, osds([3, 1, 2]));
            inc.new_pg_temp.insert(*pg, osds([0, 1, 2]));
        }
    });
    let moved = |w: &World| {
        let larger = all.iter().filter(|pg| w.map.pg_to_up_acting(**pg).acting.len() > 3).count();
        assert!(larger <= 1, "{larger} at a time");
        w.all_clean()
    };
    w.run_until("all are moved", moved);
    w.run_for(Duration::from_secs(1));
    w.assert_replicas_equal();
}

/// Copying a sparse image costs no more than its data.
#[test]
fn holes_are_not_copied() {
    let mut w = begin(6);
    let end = Op::Write { extent: Extent::new(100_000, 7), data: "the end".into() };
    assert_eq!(w.run_ops("sparse", vec![end]).result, 0);
    w.sent.clear();
    shift(&mut w);
    w.run_until("moved", |w| w.all_clean() && acting(w) == osds([3, 1, 2]));
    let sent: usize = w.sent.values().sum();
    assert!(sent < 300, "{sent} messages");
    w.assert_replicas_equal();
}

#[test]
fn where_crush_finds_too_few_others_stay_with_them() {
    let mut w = begin(11);
    w.change(|_, inc| {
        inc.new_pg_upmap.insert(GROUP, vec![OsdId(1), OsdId(2)]);
        inc.new_pg_temp.insert(GROUP, osds([0, 1, 2]));
    });
    w.run_until("led by whom CRUSH wants", |w| w.all_clean() && acting(w) == osds([1, 2, 0]));
    let stays = pg_state::ACTIVE | pg_state::CLEAN | pg_state::REMAPPED;
    w.run_for(Duration::from_secs(5));
    assert_eq!((acting(&w), pg_state::name(state(&w))), (osds([1, 2, 0]), pg_state::name(stays)));
    w.change(|_, inc| drop(inc.new_pg_upmap.insert(GROUP, osds([3, 1, 2]))));
    w.run_until("moved", |w| w.all_clean() && acting(w) == osds([3, 1, 2]));
    w.run_until("osd.0 has nothing any more", |w| holds(w, 0) == 0);
    w.assert_replicas_equal();
}
