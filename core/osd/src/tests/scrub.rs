//! Scrub while clients write: inconsistencies are found, reported and repaired.

use super::store::{MemRecord, MemStore};
use super::world::{POOL, World};
use super::{append, read, write};
use bytes::Bytes;
use nacre_base::{IntervalSet, OsdId, PgId, Rng, SnapId};
use nacre_proto::messages::{Config, DaemonMsg, PgReport, pg_state};
use nacre_proto::transaction::StoredId;
use nacre_proto::types::{ObjectId, Op, ScrubLs};
use nacre_wire::{Decode, Reader};
use std::time::Duration;

const PG: PgId = PgId { pool: POOL, seed: 0 };
const OBJECTS: [&str; 5] = ["a", "b", "c", "d", "e"];

/// One PG on three OSDs, of which osd.0 is the primary; objects of several pieces.
fn world(seed: u64) -> World {
    let mut w = World::new(seed, 3, 3, 2, 1);
    for name in OBJECTS {
        w.run_ops(name, write(&name.repeat(10_000)));
        w.run_ops(name, append("k1"));
        w.run_ops(name, append("k2"));
        w.run_ops(name, append("k3"));
    }
    w.run_until("clean", World::all_clean);
    w
}
fn id(name: &str) -> StoredId {
    ObjectId::head(POOL, "".into(), "".into(), name.into()).into()
}
fn record<'a>(store: &'a mut MemStore, name: &str) -> &'a mut MemRecord {
    store.records.get_mut(&id(name)).unwrap()
}
fn ask(w: &mut World, deep: bool, repair: bool) {
    w.tell_osds(|| DaemonMsg::Scrub { pgs: vec![PG], deep, repair }.into());
}
fn report(w: &World) -> &PgReport {
    &w.reports[&PG]
}
/// Waits for the end of a scrub that begins now.
pub(super) fn scrub(w: &mut World, deep: bool, repair: bool) -> PgReport {
    w.run_for(Duration::from_secs(2)); // stamps are in seconds
    let began = w.now.nanos / 1_000_000_000;
    ask(w, deep, repair);
    w.run_until("a scrub", |w| {
        let stamp = if deep { report(w).scrub.last_deep_stamp } else { report(w).scrub.last_stamp };
        u64::from(stamp.sec) >= began && report(w).state & pg_state::SCRUBBING == 0
    });
    report(w).clone()
}
/// How many inconsistencies are listed for clients.
pub(super) fn listed(w: &mut World, snapsets: bool) -> u32 {
    let reply = w.run_ops("", vec![Op::ScrubLs(ScrubLs { snapsets, max: 100, ..ScrubLs::default() })]);
    assert_eq!(reply.result, 0);
    let mut r = Reader::new(&reply.ops[0].data);
    r.versioned("scrub_ls_result_t", 1, |r, _| {
        u32::decode(r)?;
        Ok(Vec::<Bytes>::decode(r)?.len() as u32)
    })
    .unwrap()
}
fn assert_repaired(w: &mut World) {
    let after = scrub(w, true, true);
    assert_eq!((after.scrub.errors(), after.state & pg_state::INCONSISTENT), (0, 0));
    w.run_until("clean", World::all_clean);
    w.assert_replicas_equal();
    assert_eq!(scrub(w, true, false).scrub.errors(), 0);
    assert_eq!(listed(w, false) + listed(w, true), 0);
    for name in OBJECTS {
        assert_eq!(w.run_ops(name, read()).ops[0].data.len(), 10_006, "{name}");
    }
}

#[test]
fn equal_copies_are_found_equal_and_the_stamps_say_when() {
    let mut w = world(1);
    let before = report(&w).scrub;
    let light = scrub(&mut w, false, false).scrub;
    assert!(light.last_stamp > before.last_stamp && light.last_deep_stamp == before.last_deep_stamp);
    let deep = scrub(&mut w, true, false).scrub;
    assert!(deep.last_deep_stamp > light.last_stamp && deep.last == report(&w).last_update);
    assert_eq!((deep.errors(), deep.omap_keys), (0, 15));
    assert_eq!(listed(&mut w, false), 0);
}

/// The examples in the documentation found it: a PG without objects ended the process.
#[test]
fn empty_pg_is_scrubbed() {
    let mut w = World::new(12, 3, 3, 2, 1);
    w.run_until("clean", World::all_clean);
    w.run_until("a report", |w| w.reports.contains_key(&PG));
    assert_eq!(scrub(&mut w, true, false).scrub.errors(), 0);
}

#[test]
fn wrong_content_is_found_by_reading_it_and_replaced() {
    for (node, seed) in [(0, 2), (1, 3), (2, 4)] {
        let mut w = world(seed);
        w.corrupt(node, |store| {
            record(store, "a").data[5000] ^= 1;
            record(store, "b").omap.insert("k2".into(), Bytes::from_static(b"other"));
            record(store, "c").omap.insert("k9".into(), Bytes::from_static(b"more"));
            store.bad.insert((id("d"), 1), IntervalSet::new());
        });
        assert_eq!(scrub(&mut w, false, false).scrub.errors(), 0);
        let found = scrub(&mut w, true, false);
        assert_eq!((found.scrub.deep_errors, found.scrub.shallow_errors), (4, 0));
        assert!(found.state & pg_state::INCONSISTENT != 0);
        assert_eq!(listed(&mut w, false), 4);
        // A scrub that reads no data keeps the findings of a deep scrub.
        assert_eq!((scrub(&mut w, false, false).scrub.errors(), listed(&mut w, false)), (4, 4));
        assert_repaired(&mut w);
    }
}

#[test]
fn wrong_metadata_and_missing_objects_are_found_by_names_alone() {
    for (node, seed) in [(0, 5), (1, 6), (2, 7)] {
        let mut w = world(seed);
        w.corrupt(node, |store| {
            store.records.remove(&id("a"));
            record(store, "b").attrs.insert("_x".into(), Bytes::from_static(b"v"));
            record(store, "c").data.push(7);
            record(store, "d").attrs.remove(b"_".as_slice());
        });
        let found = scrub(&mut w, false, false);
        assert_eq!((found.scrub.deep_errors, found.scrub.shallow_errors), (0, 4));
        assert_eq!(listed(&mut w, false), 4);
        assert_repaired(&mut w);
    }
}

#[test]
fn scrub_findings_survive_the_primary() {
    let mut w = world(8);
    w.corrupt(2, |store| record(store, "a").data[5000] ^= 1);
    assert_eq!(scrub(&mut w, true, false).scrub.deep_errors, 1);
    w.kill(0);
    w.run_until("another primary", |w| {
        report(w).acting_primary == OsdId(1) && report(w).state & pg_state::ACTIVE != 0
    });
    assert!(report(&w).state & pg_state::INCONSISTENT != 0);
    assert_eq!(listed(&mut w, false), 1);
    w.start(0);
    w.run_until("clean", World::all_clean);
    assert_repaired(&mut w);
}

#[test]
fn scrub_reports_unexpected_and_missing_clones() {
    let mut w = world(9);
    w.write_under(1, &[1]);
    w.run_ops("a", write("new"));
    w.run_ops("b", write("new"));
    w.run_until("clean", World::all_clean);
    let clone = |name: &str| -> StoredId {
        ObjectId { snap: SnapId(1), ..ObjectId::head(POOL, "".into(), "".into(), name.into()) }.into()
    };
    assert_eq!(scrub(&mut w, true, false).scrub.errors(), 0);
    for node in 0..3 {
        w.corrupt(node, |store| {
            store.records.remove(&clone("a"));
            let copy = store.records[&clone("b")].clone();
            store.records.insert(clone("c"), copy);
        });
    }
    assert_eq!(scrub(&mut w, false, false).scrub.shallow_errors, 2);
    // Of one the head, of the other the clone and then its head, as Ceph has it.
    assert_eq!((listed(&mut w, false), listed(&mut w, true)), (0, 3));
    // A repair does nothing about it, and says so.
    let failed = |report: &PgReport| report.state & pg_state::FAILED_REPAIR != 0;
    assert!(failed(&scrub(&mut w, true, true)));
    assert!(failed(&scrub(&mut w, false, false)));
    for node in 0..3 {
        w.corrupt(node, |store| {
            let copy = store.records.remove(&clone("c")).unwrap();
            store.records.insert(clone("a"), copy);
        });
    }
    let after = scrub(&mut w, false, false);
    assert_eq!((after.scrub.errors(), failed(&after)), (0, false));
}

/// `rados list-inconsistent-obj` crashed on it.
#[test]
fn invalid_object_info_is_listed() {
    let mut w = world(13);
    w.corrupt(1, |store| drop(record(store, "a").attrs.insert("_".into(), Bytes::from_static(b"garbage"))));
    assert_eq!(scrub(&mut w, false, false).scrub.shallow_errors, 1);
    let reply = w.run_ops("", vec![Op::ScrubLs(ScrubLs { max: 100, ..ScrubLs::default() })]);
    assert!(reply.ops[0].data.windows(7).any(|bytes| bytes == b"garbage"));
    assert_repaired(&mut w);
}

#[test]
fn few_wrong_copies_are_replaced_unasked_if_that_is_wanted() {
    let mut w = world(10);
    let set = |values: &[(&str, &str)]| Config {
        values: values.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect(),
    };
    w.tell_osds(|| set(&[("osd_scrub_auto_repair", "true")]).into());
    w.corrupt(1, |store| record(store, "a").data[5000] ^= 1);
    w.corrupt(0, |store| {
        store.bad.insert((id("d"), 1), IntervalSet::new());
    });
    assert_eq!(scrub(&mut w, true, false).scrub.errors(), 0);
    assert_eq!(report(&w).scrub.repaired, 2);
    w.run_until("clean", World::all_clean);
    w.assert_replicas_equal();
}

#[test]
fn groups_are_looked_through_by_age_unless_a_flag_forbids_it() {
    let mut w = world(11);
    let values = [("osd_scrub_min_interval", "1"), ("osd_deep_scrub_interval", "20")];
    let values = || values.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    w.change(|map, inc| inc.new_flags = Some(map.flags | nacre_proto::maps::map_flags::NOSCRUB));
    w.tell_osds(|| Config { values: values() }.into());
    let first = report(&w).scrub;
    w.run_for(Duration::from_secs(10));
    assert_eq!(report(&w).scrub.last_stamp, first.last_stamp);
    w.change(|map, inc| inc.new_flags = Some(map.flags & !nacre_proto::maps::map_flags::NOSCRUB));
    w.run_until("a scrub", |w| report(w).scrub.last_stamp > first.last_stamp);
    assert_eq!(report(&w).scrub.last_deep_stamp, first.last_deep_stamp);
    w.run_until("a deep scrub", |w| report(w).scrub.last_deep_stamp > first.last_deep_stamp);
}

/// Clients write all the time, sessions break, and copies are compared: nothing is ever found, for
/// every question is answered at one version.
#[test]
fn writes_in_the_middle_of_it_are_no_difference() {
    for seed in 20..30 {
        let mut w = world(seed);
        w.max_delay = Duration::from_millis(2);
        let mut rng = Rng::new(seed);
        for round in 0..60 {
            if round % 12 == 0 {
                ask(&mut w, true, false);
            }
            let name = OBJECTS[rng.below(OBJECTS.len() as u64) as usize];
            match rng.below(8) {
                0 => drop(w.submit(name, vec![Op::Delete])),
                1 => drop(w.submit(name, write(&name.repeat(1 + rng.below(9000) as usize)))),
                2 => w.reset_between(0, 1 + rng.below(2) as usize),
                _ => drop(w.submit(name, append(&format!("k{}", rng.below(9))))),
            }
            w.run_for(Duration::from_millis(rng.below(30)));
        }
        let found = scrub(&mut w, true, false);
        assert_eq!(found.scrub.errors(), 0, "seed {seed}");
        w.run_until("clean", World::all_clean);
        w.assert_replicas_equal();
    }
}

/// Corruption of any copy, repairs, writes, broken sessions and dead OSDs: in the end all copies are equal.
#[test]
fn repairs_that_anything_interrupts_are_finished_by_the_next() {
    for seed in 40..52 {
        let mut w = world(seed);
        let mut rng = Rng::new(seed);
        for name in OBJECTS {
            let node = rng.below(3) as usize;
            let kind = rng.below(4);
            w.corrupt(node, |store| match kind {
                0 => drop(store.records.remove(&id(name))),
                1 => {
                    store.bad.insert((id(name), 1), IntervalSet::new());
                }
                2 => drop(record(store, name).omap.insert("k2".into(), Bytes::from_static(b"other"))),
                _ => record(store, name).data[9000] ^= 1,
            });
        }
        ask(&mut w, true, true);
        for _ in 0..20 {
            let node = rng.below(3) as usize;
            match rng.below(6) {
                0 => w.reset_between(0, 1 + rng.below(2) as usize),
                1 if w.is_running(node) && (0..3).all(|n| w.is_running(n)) => w.kill(node),
                2 | 3 => (0..3)
                    .filter(|n| !w.is_running(*n))
                    .collect::<Vec<_>>()
                    .into_iter()
                    .for_each(|n| w.start(n)),
                _ => drop(w.submit(OBJECTS[rng.below(5) as usize], append("more"))),
            }
            w.run_for(Duration::from_millis(rng.below(200)));
        }
        (0..3).filter(|n| !w.is_running(*n)).collect::<Vec<_>>().into_iter().for_each(|n| w.start(n));
        w.run_until("clean", World::all_clean);
        scrub(&mut w, true, true);
        assert_eq!(scrub(&mut w, true, false).scrub.errors(), 0, "seed {seed}");
        w.run_until("clean", World::all_clean);
        w.assert_replicas_equal();
    }
}
