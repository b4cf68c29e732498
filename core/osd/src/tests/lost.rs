//! Unfound objects: requests on them wait until an operator declares the objects lost.

use super::world::{POOL, World};
use super::{read, write};
use nacre_base::{OsdId, PgId};
use nacre_proto::maps::map_flags;
use nacre_proto::messages::{Command, Config, PgReport, SlowOps, pg_state};
use nacre_proto::transaction::StoredId;
use nacre_proto::types::{Extent, ObjectId, Op};
use std::time::Duration;

const PG: PgId = PgId { pool: POOL, seed: 0 };
const MINUTE: Duration = Duration::from_secs(60);

/// osd.1 alone, which lacks all of "new" and a piece of "changed"; osd.0, which had them, is dead.
pub fn world(seed: u64) -> World {
    let mut w = World::new(seed, 2, 2, 1, 1);
    w.run_ops("changed", write("old content"));
    w.run_until("clean", World::all_clean);
    w.kill(1);
    w.run_until("alone", |w| !w.map.is_up(OsdId(1)));
    w.run_ops("new", write("new"));
    w.run_ops("changed", vec![Op::Write { extent: Extent::new(4, 3), data: "CON".into() }]);
    w.change(|map, inc| inc.new_flags = Some(map.flags | map_flags::NORECOVER));
    w.start(1);
    w.run_until("both serve", |w| w.records.get(&PG).is_some_and(|record| record.acting.len() == 2));
    w.run_for(Duration::from_secs(1));
    w.kill(0);
    w.change(|map, inc| inc.new_flags = Some(map.flags & !map_flags::NORECOVER));
    w.run_until("unfound objects", |w| report(w).acting_primary == OsdId(1) && report(w).counts.unfound == 2);
    w
}
fn report(w: &World) -> &PgReport {
    &w.reports[&PG]
}
fn mark(w: &mut World, what: &str) {
    let text = format!(r#"{{"prefix": "mark_unfound_lost", "pgid": "1.0", "mulcmd": "{what}"}}"#);
    w.tell_osds(|| Command { fsid: [1; 16], cmd: vec![text.clone()], input: Default::default() }.into());
    w.run_for(Duration::from_secs(1));
}
fn declare_lost(w: &mut World) {
    w.change(|map, inc| {
        inc.new_lost.insert(OsdId(0), map.osd(OsdId(0)).unwrap().info.down_at);
    });
    w.run_for(Duration::from_secs(1));
}

#[test]
fn nothing_is_marked_lost_while_a_dead_osd_may_have_it() {
    let mut w = world(1);
    let waits = w.submit("new", read());
    mark(&mut w, "delete");
    let pg = w.nodes[1].osd.as_ref().unwrap().pg(PG).unwrap();
    let refused = pg.lost_objects(&w.map).unwrap_err().to_string();
    assert!(refused.ends_with("not marking lost: osd.0 is down and not declared lost"), "{refused}");
    w.start(0);
    assert_eq!(w.reply(waits).ops[0].data, "new");
    w.run_until("clean", World::all_clean);
    w.assert_replicas_equal();
}

#[test]
fn pg_state_shows_unfound_objects() {
    let mut w = world(6);
    w.run_for(Duration::from_secs(1));
    let state = pg_state::name(report(&w).state);
    assert_eq!(state, "active+recovery_unfound+undersized+degraded");
    w.start(0);
    w.run_until("clean", World::all_clean);
}

#[test]
fn slow_request_is_reported_until_answered() {
    let mut w = world(7);
    let values = || [("osd_op_complaint_time".to_string(), "4".to_string())].into();
    w.tell_osds(|| Config { values: values() }.into());
    let waits = w.submit("new", read());
    w.run_for(Duration::from_secs(2));
    assert_eq!(w.slow[&OsdId(1)], SlowOps::default());
    w.run_until("a slow request", |w| w.slow[&OsdId(1)].count == 1);
    w.run_for(Duration::from_secs(10));
    assert!(w.slow[&OsdId(1)].oldest_secs > 8, "{:?}", w.slow);
    w.start(0);
    assert_eq!(w.reply(waits).ops[0].data, "new");
    w.run_until("it is answered", |w| w.slow[&OsdId(1)].count == 0);
}

#[test]
fn lost_object_is_deleted_and_waiting_requests_continue() {
    let mut w = world(2);
    let waits = w.submit("new", read());
    declare_lost(&mut w);
    mark(&mut w, "delete");
    assert_eq!(w.reply(waits).result, -2);
    assert_eq!(w.run_ops("changed", read()).result, -2);
    assert_eq!(report(&w).counts.unfound, 0);
    w.start(0); // with what was lost, too late
    w.run_until("clean", World::all_clean);
    w.assert_replicas_equal();
    assert_eq!(w.run_ops("new", read()).result, -2);
}

#[test]
fn reverted_object_keeps_its_older_content() {
    let mut w = world(3);
    let waits = w.submit("changed", read());
    declare_lost(&mut w);
    mark(&mut w, "revert");
    assert_eq!(w.reply(waits).ops[0].data, "old content");
    // The other object has no older version.
    assert_eq!(w.run_ops("new", read()).result, -2);
    assert_eq!(report(&w).counts.unfound, 0);
    w.start(0); // with the newer content, too late
    w.run_until("clean", World::all_clean);
    w.assert_replicas_equal();
    assert_eq!(w.run_ops("changed", read()).ops[0].data, "old content");
}

/// A member has the object but cannot read it: while the error may be temporary, nothing is declared lost.
#[test]
fn one_failed_pull_does_not_make_an_object_lost() {
    for (waits_before, then) in [(Duration::from_secs(1), "the new content"), (MINUTE, "the old content")] {
        let mut w = World::new(10, 2, 2, 1, 1);
        w.allow_errors = true;
        w.place(vec![(0, vec![OsdId(0), OsdId(1)])]);
        w.run_ops("a", write("the old content"));
        w.run_until("clean", World::all_clean);
        w.kill(1);
        w.run_until("alone", |w| !w.map.is_up(OsdId(1)));
        w.run_ops("a", vec![Op::Write { extent: Extent::new(4, 3), data: "new".into() }]);
        w.change(|map, inc| inc.new_flags = Some(map.flags | map_flags::NORECOVER));
        w.start(1);
        w.run_until("both serve", |w| w.records.get(&PG).is_some_and(|record| record.acting.len() == 2));
        let a = StoredId::Object(ObjectId::head(POOL, "".into(), "".into(), "a".into()));
        w.corrupt(0, |store| _ = store.unreadable.insert(a.clone()));
        w.place(vec![(0, vec![OsdId(1), OsdId(0)])]);
        let waits = w.submit("a", read());
        let unfound = |report: &PgReport| report.acting_primary == OsdId(1) && report.counts.unfound == 1;
        w.run_until("unfound", |w| w.reports.get(&PG).is_some_and(unfound));
        w.run_for(waits_before);
        mark(&mut w, "revert");
        w.corrupt(0, |store| _ = store.unreadable.remove(&a));
        assert_eq!(w.reply(waits).ops[0].data, then);
        w.change(|map, inc| inc.new_flags = Some(map.flags & !map_flags::NORECOVER));
        w.run_until("clean", World::all_clean);
        w.assert_replicas_equal();
    }
}

/// The flags disable recovery, but objects are still known to be missing.
#[test]
fn unfound_objects_are_noticed_and_declared_lost_while_recovery_is_off() {
    for flag in [map_flags::NORECOVER, map_flags::NOBACKFILL] {
        let mut w = World::new(9, 2, 2, 1, 1);
        for name in ["a", "b", "c"] {
            w.run_ops(name, write("old"));
        }
        w.run_until("clean", World::all_clean);
        w.kill(1);
        w.run_until("alone", |w| !w.map.is_up(OsdId(1)));
        for name in ["a", "b", "c"] {
            w.run_ops(name, write("newer"));
        }
        replace_by(&mut w, 0, &[1]);
        w.change(|map, inc| inc.new_flags = Some(map.flags | flag));
        w.run_until("unfound", |w| report(w).counts.unfound == 3);
        w.run_for(Duration::from_secs(100));
        assert_eq!(report(&w).counts.unfound, 3);
        declare_lost(&mut w);
        mark(&mut w, "revert");
        assert_eq!(report(&w).counts.unfound, 0);
        assert_eq!(w.run_ops("b", read()).ops[0].data, "old");
    }
}

/// A revert restores content, attribute and omap of a replaced object together.
#[test]
fn replaced_object_is_reverted_completely() {
    let attr = |value: &'static str| Op::SetXattr { name: "x".into(), value: value.into() };
    let pair = |value: &str| Op::OmapSetVals([("k".into(), value.to_string().into())].into());
    let mut w = World::new(8, 2, 2, 1, 1);
    w.run_ops("a", [write("a longer, older content"), vec![attr("old"), pair("old")]].concat());
    w.run_until("clean", World::all_clean);
    w.kill(1);
    w.run_until("alone", |w| !w.map.is_up(OsdId(1)));
    w.run_ops("a", [write("new"), vec![attr("new"), pair("new")]].concat());
    replace_by(&mut w, 0, &[1]);
    w.run_until("unfound", |w| report(w).counts.unfound == 1);
    declare_lost(&mut w);
    mark(&mut w, "revert");
    let keys = Op::OmapGetValsByKeys(["k".into()].into());
    let look = vec![Op::Read(Extent::new(0, 0)), Op::GetXattr { name: "x".into() }, keys];
    let check = |w: &mut World| {
        let answer = w.run_ops("a", look.clone());
        assert_eq!(answer.ops[0].data, "a longer, older content");
        assert_eq!(answer.ops[1].data, "old");
        assert!(answer.ops[2].data.ends_with(b"old"), "{answer:?}");
    };
    check(&mut w);
    w.start(0);
    w.run_until("clean", World::all_clean);
    w.assert_replicas_equal();
    check(&mut w);
    assert_eq!(report(&w).counts.bytes, 23);
}

/// Those start and take the log over, but nothing else, before that OSD dies.
fn replace_by(w: &mut World, dies: usize, start: &[usize]) {
    w.change(|map, inc| inc.new_flags = Some(map.flags | map_flags::NORECOVER));
    start.iter().for_each(|osd| w.start(*osd));
    let members = start.len() + 1;
    w.run_until("all serve", |w| w.records.get(&PG).is_some_and(|record| record.acting.len() == members));
    w.run_for(Duration::from_secs(1));
    w.kill(dies);
    w.change(|map, inc| inc.new_flags = Some(map.flags & !map_flags::NORECOVER));
}

/// "a" in three versions, of which osd.0 had the last alone; osd.1 and osd.2 have those in `have`.
fn three_versions(seed: u64, have: [usize; 2]) -> World {
    let mut w = World::new(seed, 3, 3, 1, 1);
    w.run_ops("a", write("first"));
    w.run_until("clean", World::all_clean);
    for (version, text) in [(1, "second one"), (2, "third")] {
        for osd in (0..2).filter(|n| have[*n] == version - 1).map(|n| n + 1) {
            w.kill(osd);
            w.run_until("away", |w| !w.map.is_up(OsdId(osd as i32)));
        }
        w.run_ops("a", write(text));
    }
    replace_by(&mut w, 0, &[1, 2]);
    w.run_until("unfound", |w| report(w).acting.len() == 2 && report(w).counts.unfound == 1);
    declare_lost(&mut w);
    w
}

#[test]
fn revert_chooses_newest_copy_of_any_member() {
    for (seed, have, then) in [(1, [0, 1], "second one"), (2, [1, 0], "second one"), (3, [0, 0], "first")] {
        let mut w = three_versions(seed, have);
        mark(&mut w, "revert");
        assert_eq!(w.run_ops("a", read()).ops[0].data, then);
        w.start(0);
        w.run_until("clean", World::all_clean);
        w.assert_replicas_equal();
        assert_eq!(w.run_ops("a", read()).ops[0].data, then);
    }
}

/// Whichever OSD dies during the revert, content that was read once stays, and all members agree in the end.
#[test]
fn crash_during_a_revert_leaves_one_content() {
    for seed in 0..60 {
        let mut w = three_versions(seed, if seed % 2 == 0 { [0, 1] } else { [1, 0] });
        let text = r#"{"prefix": "mark_unfound_lost", "pgid": "1.0", "mulcmd": "revert"}"#.to_string();
        w.tell_osds(|| Command { fsid: [1; 16], cmd: vec![text.clone()], input: Default::default() }.into());
        w.run_for(Duration::from_micros(seed * seed * 7));
        let dies = 1 + (seed as usize / 2) % 2;
        w.kill(dies);
        let waits = w.submit("a", read());
        w.run_for(Duration::from_secs(2 + seed % 3));
        if seed % 3 == 0 {
            w.start(0);
            w.run_for(Duration::from_secs(1));
        }
        w.start(dies);
        w.run_for(Duration::from_secs(5));
        mark(&mut w, "revert"); // if it was not heard, or what was chosen did not last
        if !w.is_running(0) {
            w.start(0);
        }
        let told = w.reply(waits).ops[0].data.clone();
        assert!(["third", "second one", "first"].contains(&&*String::from_utf8_lossy(&told)), "{told:?}");
        w.run_until("clean", World::all_clean);
        w.assert_replicas_equal();
        assert_eq!(w.run_ops("a", read()).ops[0].data, told, "seed {seed}");
    }
}

/// The PG of "a", of which the dead osd.0 had the only copy, waits for it on osd.1.
pub fn down_pg_world() -> World {
    let mut w = World::new(4, 3, 1, 1, 1);
    w.run_ops("a", write("on osd.0 alone"));
    w.run_until("clean", World::all_clean);
    w.kill(0);
    w.run_until("down", |w| !w.map.is_up(OsdId(0)));
    w.place(vec![(0, vec![OsdId(1)])]);
    w.run_for(Duration::from_secs(3));
    w
}

#[test]
fn pg_with_lost_last_members_serves_from_other_copies() {
    let mut w = down_pg_world();
    assert!(report(&w).waiting_for.contains("osd.0"), "{:?}", report(&w));
    declare_lost(&mut w);
    assert_eq!(w.run_ops("a", read()).result, -2);
    assert_eq!(w.run_ops("a", write("new")).result, 0);
}

/// Its log begins after the histories parted: by its entries alone what it wrote before that would have
/// stayed.
#[test]
fn returning_lost_osd_drops_also_objects_older_than_its_log() {
    let mut w = World::new(7, 2, 2, 1, 1);
    w.run_ops("a", write("of both"));
    w.run_until("clean", World::all_clean);
    w.kill(1);
    w.run_until("alone", |w| !w.map.is_up(OsdId(1)));
    for name in ["a", "b", "c", "d", "e"] {
        // More than the log holds.
        for _ in 0..6 {
            w.run_ops(name, write("of osd.0 alone"));
        }
    }
    w.kill(0);
    w.start(1);
    w.run_until("down", |w| !w.map.is_up(OsdId(0)) && w.map.is_up(OsdId(1)));
    declare_lost(&mut w);
    assert_eq!(w.run_ops("a", read()).ops[0].data, "of both");
    w.run_ops("f", write("new"));
    w.start(0);
    w.run_until("clean", World::all_clean);
    w.assert_replicas_equal();
    assert_eq!(w.run_ops("a", read()).ops[0].data, "of both");
    for name in ["b", "c", "d", "e"] {
        assert_eq!(w.run_ops(name, read()).result, -2, "{name}");
    }
}

/// An operator recreates a PG that is down as an empty one: `ceph osd force-create-pg`.
fn void(w: &mut World) {
    let record = w.records.get_mut(&PG).unwrap();
    assert!(!record.is_void());
    record.acting.clear();
}

#[test]
fn recreated_pg_is_empty_and_old_copies_are_replaced() {
    let mut w = World::new(5, 4, 2, 1, 1);
    w.place(vec![(0, vec![OsdId(0), OsdId(1)])]);
    for name in ["a", "b", "c", "d", "e"] {
        // More than the log holds: older objects are found only by an inventory scan.
        for _ in 0..6 {
            w.run_ops(name, write("old"));
        }
    }
    w.run_until("clean", World::all_clean);
    w.kill(0);
    w.kill(1);
    w.run_until("both down", |w| !w.map.is_up(OsdId(0)) && !w.map.is_up(OsdId(1)));
    w.place(vec![(0, vec![OsdId(2), OsdId(3)])]);
    let waits = w.submit("a", read());
    w.run_for(Duration::from_secs(3));
    assert!(report(&w).waiting_for.contains("osd.0"), "{:?}", report(&w));
    void(&mut w);
    assert_eq!(w.reply(waits).result, -2);
    assert_eq!(w.run_ops("b", write("new")).result, 0);
    w.run_until("clean", World::all_clean);

    w.start(0);
    w.place(vec![(0, vec![OsdId(0), OsdId(2)])]);
    w.run_until("clean with an old copy", |w| w.all_clean() && report(w).up == [OsdId(0), OsdId(2)]);
    w.assert_replicas_equal();
    assert_eq!(w.run_ops("b", read()).ops[0].data, "new");
    for name in ["a", "c", "d", "e"] {
        assert_eq!(w.run_ops(name, read()).result, -2, "{name}");
    }
}

#[test]
fn old_copies_do_not_count_in_a_recreated_pg() {
    let mut w = World::new(6, 2, 2, 1, 1);
    w.run_ops("a", write("old"));
    w.run_until("clean", World::all_clean);
    w.kill(1);
    w.run_until("alone", |w| !w.map.is_up(OsdId(1)));
    w.run_ops("a", write("newer"));
    w.kill(0);
    w.start(1);
    let state = |w: &World| w.reports.get(&PG).map_or(0, |report| report.state);
    w.run_until("down", |w| w.map.is_up(OsdId(1)) && state(w) & pg_state::DOWN != 0);
    void(&mut w);
    assert_eq!(w.run_ops("a", read()).result, -2);
    w.run_ops("b", write("new"));
    w.start(0);
    w.run_until("clean", World::all_clean);
    w.assert_replicas_equal();
    assert_eq!(w.run_ops("a", read()).result, -2);
}
