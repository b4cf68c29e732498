//! Races: one change while another one is in flight.

use super::world::{MON, POOL, World};
use super::{read, write};
use crate::pg::Pg;
use nacre_base::{IntervalSet, OsdId, PgId, SnapId};
use nacre_proto::maps::{map_flags, osd_state};
use nacre_proto::messages::{Config, DaemonMsg, pg_state};
use nacre_proto::transaction::StoredId;
use nacre_proto::types::{Extent, ObjectId, Op};
use std::time::Duration;

const PG: PgId = PgId { pool: POOL, seed: 0 };

fn osds(ids: &[i32]) -> Vec<OsdId> {
    ids.iter().copied().map(OsdId).collect()
}
fn id(name: &str) -> StoredId {
    ObjectId::head(POOL, "".into(), "".into(), name.into()).into()
}
fn set(w: &mut World, values: &[(&str, &str)]) {
    let values = || values.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    w.tell_osds(|| Config { values: values() }.into());
}
fn set_flag(w: &mut World, flag: u32, on: bool) {
    w.change(|map, inc| inc.new_flags = Some(if on { map.flags | flag } else { map.flags & !flag }));
}
fn scrub(w: &mut World, repair: bool) {
    w.tell_osds(|| DaemonMsg::Scrub { pgs: vec![PG], deep: true, repair }.into());
}
fn group(w: &World, node: usize) -> Option<&Pg> {
    w.nodes[node].osd.as_ref()?.pg(PG)
}
fn is_scrubbed(w: &World) -> bool {
    group(w, 0).is_some_and(|pg| pg.state(&w.map, false) & pg_state::SCRUBBING != 0)
}

/// The longest log was on a stray that died before it sent the log: the PG waited for it, although another
/// OSD had every acknowledged write.
#[test]
fn log_that_dies_with_its_owner_is_taken_from_another_member() {
    let mut w = World::new(1, 5, 3, 1, 1);
    w.place(vec![(0, osds(&[2, 0, 1]))]);
    w.run_until("clean", World::all_clean);
    w.run_ops("a", write("what everybody has"));
    w.cut.insert((2, 0));
    let newer = w.submit("a", write("what osd.1 has as well"));
    w.run_for(Duration::from_millis(50));
    w.kill(2);
    w.change(|_, inc| {
        inc.new_state.insert(OsdId(2), osd_state::UP);
        inc.new_pg_upmap.insert(PG, osds(&[0, 3, 4]));
    });
    w.run_until("osd.1 is asked", |w| group(w, 0).unwrap().summary().contains("log of osd.1"));
    w.kill(1);
    w.mark_down(OsdId(1));
    w.run_until("clean", World::all_clean);
    assert_eq!(w.reply(newer).result, 0);
    assert_eq!(w.run_ops("a", read()).ops[0].data, "what osd.1 has as well");
}

/// osd.0 serves with osd.2, which is empty. osd.1, a former member, has "a" except for later writes.
fn with_source(seed: u64) -> World {
    let mut w = World::new(seed, 3, 2, 1, 1);
    w.place(vec![(0, osds(&[0, 1]))]);
    for name in ["a", "b"] {
        w.run_ops(name, write(&"o".repeat(3 * 4096)));
    }
    w.run_until("clean", World::all_clean);
    set_flag(&mut w, map_flags::NORECOVER, true);
    w.place(vec![(0, osds(&[0, 2]))]);
    w.run_for(Duration::from_secs(4));
    w
}

/// A stray took the log when it became a recovery source. It did not know the writes after that, and sent
/// older data in place of acknowledged data.
#[test]
fn stray_is_no_source_for_writes_after_its_log() {
    for seed in 1..5 {
        let mut w = with_source(seed);
        w.allow_errors = true;
        w.corrupt(0, |store| _ = store.bad.insert((id("a"), 2), IntervalSet::new()));
        assert_eq!(w.run_ops("a", read()).ops[0].data, "o".repeat(3 * 4096));
        let new = Op::Write { extent: Extent::new(10, 3), data: "NEW".into() };
        assert_eq!(w.run_ops("a", vec![new]).result, 0);
        w.run_for(Duration::from_secs(1));
        w.corrupt(0, |store| _ = store.bad.insert((id("a"), 0), IntervalSet::new()));
        let data = w.run_ops("a", read()).ops[0].data.clone();
        assert_eq!(data, format!("{}NEW{}", "o".repeat(10), "o".repeat(3 * 4096 - 13)));
        set_flag(&mut w, map_flags::NORECOVER, false);
        w.run_until("clean", World::all_clean);
        w.assert_replicas_equal();
    }
}

/// After a restart the stray does not know that it took the log, and refused to send data.
#[test]
fn restarted_stray_is_sent_the_log_again() {
    let mut w = with_source(1);
    w.kill(0);
    w.change(|_, inc| {
        inc.new_state.insert(OsdId(0), osd_state::UP);
        inc.new_pg_upmap.insert(PG, osds(&[2]));
    });
    let read = || vec![Op::Read(Extent::new(0, 20))];
    assert_eq!(w.run_ops("a", read()).ops[0].data.len(), 20);
    w.kill(1);
    w.mark_down(OsdId(1));
    set_flag(&mut w, map_flags::NORECOVER, false);
    w.run_for(Duration::from_secs(1));
    w.start(1);
    assert_eq!(w.run_ops("b", read()).ops[0].data.len(), 20);
    w.run_until("all is there", |w| group(w, 2).unwrap().summary().contains("misses 0"));
}

/// A copy was repaired after a client had deleted the object: the object stayed in the missing set forever.
#[test]
fn no_copy_is_put_right_of_what_is_deleted_meanwhile() {
    for auto in [false, true] {
        for node in [0, 1] {
            for wait in 0..40 {
                let mut w = World::new(wait, 3, 3, 2, 1);
                w.place(vec![(0, osds(&[0, 1, 2]))]);
                for name in ["a", "b", "c"] {
                    w.run_ops(name, write(&name.repeat(5000)));
                }
                w.run_until("clean", World::all_clean);
                if auto {
                    set(&mut w, &[("osd_scrub_auto_repair", "true")]);
                }
                w.corrupt(node, |store| store.records.get_mut(&id("b")).unwrap().data[4500] ^= 1);
                w.allow_errors = true;
                scrub(&mut w, !auto);
                w.run_until("a scrub", is_scrubbed);
                w.run_for(Duration::from_millis(25 * wait));
                assert_eq!(w.run_ops("b", vec![Op::Delete]).result, 0);
                w.run_until("the scrub ends", |w| !is_scrubbed(w));
                w.run_until("clean", World::all_clean);
                w.assert_replicas_equal();
                assert_eq!(w.run_ops("b", read()).result, -2);
            }
        }
    }
}

/// A push without metadata reached a member that had meanwhile discarded its copy: it reported the object as
/// recovered.
#[test]
fn push_without_required_metadata_is_not_stored() {
    for seed in 1..12 {
        let mut w = World::new(seed, 3, 3, 2, 1);
        w.place(vec![(0, osds(&[0, 1, 2]))]);
        w.run_ops("a", write(&"content".repeat(100)));
        w.run_until("clean", World::all_clean);
        w.corrupt(1, |store| drop(store.records.remove(&id("a"))));
        scrub(&mut w, true);
        w.run_until("osd.1 lacks it", |w| !w.all_clean());
        w.run_until("some of it comes", |w| w.nodes[1].view.records.contains_key(&id("a")));
        for _ in 0..5 {
            w.run_for(Duration::from_millis(5 + seed));
            w.reset_between(0, 1);
        }
        w.run_until("clean", |w| w.all_clean() && !is_scrubbed(w));
        w.assert_replicas_equal();
    }
}

/// The source deleted an object before the last pulled part was durable at the target.
#[test]
fn an_old_copy_goes_when_what_was_pulled_from_it_is_durable() {
    let mut w = World::new(3, 2, 1, 1, 1);
    w.place(vec![(0, osds(&[0]))]);
    w.run_ops("a", write("all there is"));
    w.run_until("clean", World::all_clean);
    set_flag(&mut w, map_flags::NORECOVER, true);
    w.place(vec![(0, osds(&[1]))]);
    w.run_until("osd.1 serves", |w| w.records[&PG].acting == osds(&[1]));
    w.run_for(Duration::from_secs(1));
    w.slow_disk(1, Duration::from_secs(4));
    set_flag(&mut w, map_flags::NORECOVER, false);
    w.run_until("clean", World::all_clean);
    w.run_for(Duration::from_secs(3));
    w.kill(1);
    w.run_for(Duration::from_secs(2));
    w.start(1);
    assert_eq!(w.run_ops("a", read()).ops[0].data, "all there is");
    w.run_until("the old copy is gone", |w| w.nodes[0].view.objects().count() == 0);
}

/// Recovery was paused, and resumed in the turn in which the clone arrived, before the read that waited for
/// it: the read did not find the clone.
#[test]
fn recovered_clone_is_readable_in_the_next_turn() {
    let object = |name: &str| ObjectId::head(POOL, "".into(), "".into(), name.into());
    let names = ["b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m"];
    let first = names.into_iter().find(|name| object(name) < object("a")).unwrap();
    for offset in 0..30_u64 {
        let mut w = World::new(3, 2, 2, 1, 1);
        w.place(vec![(0, osds(&[0, 1]))]);
        w.run_until("clean", World::all_clean);
        w.kill(0);
        w.run_until("alone", |w| !w.map.is_up(OsdId(0)));
        w.run_ops(first, write("another"));
        w.run_ops("a", write("it was so"));
        w.write_under(1, &[1]);
        w.run_ops("a", write("it is new"));
        w.config.insert("osd_recovery_sleep".into(), "0.62".into());
        set_flag(&mut w, map_flags::NORECOVER, true);
        w.start(0);
        w.run_until("osd.0 serves", |w| group(w, 0).is_some_and(Pg::is_active));
        let keys = Op::OmapGetKeys { after: "".into(), max: 10 };
        assert_eq!(w.run_ops("a", [read(), vec![keys]].concat()).result, 0);
        w.run_for(Duration::from_secs(1));
        (w.min_delay, w.max_delay) = (Duration::from_millis(3), Duration::from_millis(3));
        set_flag(&mut w, map_flags::NORECOVER, false);
        w.run_until("the clone is left", |w| group(w, 0).unwrap().summary().contains("misses 1,"));
        w.run_for(Duration::from_millis(595 + offset));
        let reply = w.run_at(SnapId(1), "a", read());
        let data = reply.ops[0].data.clone();
        assert_eq!((reply.result, &data[..]), (0, &b"it was so"[..]), "after {offset} ms");
    }
}

/// The session ended while a copy was repaired, and a client wrote: the member discarded the object again,
/// and was sent data that had been read before the write.
#[test]
fn discarded_copy_gets_no_data_that_was_read_before() {
    for delay in 0..40 {
        let mut w = World::new(5, 2, 2, 1, 1);
        w.place(vec![(0, osds(&[0, 1]))]);
        w.run_ops("a", write(&"content".repeat(10)));
        w.run_until("clean", World::all_clean);
        (w.min_delay, w.max_delay) = (Duration::from_millis(2), Duration::from_millis(2));
        w.corrupt(1, |store| drop(store.records.remove(&id("a"))));
        scrub(&mut w, true);
        w.run_until("osd.1 lacks it", |w| !w.all_clean());
        w.run_for(Duration::from_micros(100 * delay));
        let grows = w.submit("a", vec![Op::Write { extent: Extent::new(200, 3), data: "end".into() }]);
        w.run_for(Duration::from_micros(2600));
        w.reset_between(0, 1);
        assert_eq!(w.reply(grows).result, 0);
        w.run_until("clean", World::all_clean);
        w.run_for(Duration::from_secs(1));
        w.assert_replicas_equal();
    }
}

/// A write extended an object while its first part was being resent: the member lacked data forever that the
/// primary took for recovered.
#[test]
fn growing_object_lacks_no_more_than_the_primary_knows() {
    for delay in 0..40 {
        let mut w = World::new(5, 2, 2, 1, 1);
        w.place(vec![(0, osds(&[0, 1]))]);
        w.run_until("clean", World::all_clean);
        set(&mut w, &[("osd_max_pg_log_entries", "2"), ("osd_min_pg_log_entries", "1")]);
        w.run_for(Duration::from_secs(1));
        w.kill(1);
        w.run_until("alone", |w| !w.map.is_up(OsdId(1)));
        w.run_ops("a", write(&"content".repeat(10)));
        (0..9).for_each(|_| drop(w.run_ops("b", write("b"))));
        (w.min_delay, w.max_delay) = (Duration::from_millis(2), Duration::from_millis(2));
        w.start(1);
        w.run_until("both serve", |w| w.records[&PG].acting.len() == 2);
        w.run_for(Duration::from_micros(100 * delay));
        let grows = w.submit("a", vec![Op::Write { extent: Extent::new(200, 3), data: "end".into() }]);
        w.run_for(Duration::from_micros(2600));
        w.reset_between(0, 1);
        assert_eq!(w.reply(grows).result, 0);
        w.run_until("clean", World::all_clean);
        w.run_for(Duration::from_secs(1));
        w.assert_replicas_equal();
        let summary = group(&w, 1).unwrap().summary();
        assert!(summary.contains("misses 0,"), "{delay}: {summary}");
    }
}

/// Requests beyond the limit of those that wait for a map were dropped, and never sent again.
#[test]
fn requests_that_come_before_their_map_are_all_answered() {
    let mut w = World::new(6, 2, 2, 1, 1);
    w.run_until("clean", World::all_clean);
    w.run_ops("a", write("a"));
    w.cut.insert((MON, 0));
    set_flag(&mut w, map_flags::NOSCRUB, true);
    let all: Vec<u64> = (0..50).map(|n| w.submit("a", write(&n.to_string()))).collect();
    w.run_for(Duration::from_secs(1));
    w.cut.clear();
    for tid in all {
        assert_eq!(w.reply(tid).result, 0);
    }
    assert_eq!(w.run_ops("a", read()).ops[0].data, "49");
}
