//! Corrupt metadata: the content of some records is unknown, and other members have it.

use super::world::{POOL, World};
use super::{read, write};
use crate::stored::{MarkedComplete, NotMarked, incomplete_pgs, mark_complete};
use nacre_base::{Name, OsdId, PgId, SpgId};
use nacre_machine::given_up;
use nacre_proto::maps::map_flags;
use nacre_proto::messages::DaemonMsg;
use nacre_proto::messages::part::Stale;
use nacre_proto::transaction::{StoredId, Transaction};
use nacre_proto::types::{Extent, ObjectId, Op};
use nacre_wire::{from_slice, to_vec};
use std::time::Duration;

const PG: PgId = PgId { pool: POOL, seed: 0 };

fn object(name: &str) -> StoredId {
    StoredId::Object(ObjectId::head(POOL, Name::default(), Name::default(), name.into()))
}
fn forget(w: &mut World, node: usize, id: &StoredId) {
    w.corrupt(node, |store| {
        store.unreadable.insert(id.clone());
    });
    w.allow_errors = true;
}
fn put(w: &mut World, name: &str, at: u64, text: &'static str) {
    w.run_ops(name, vec![Op::Write { extent: Extent::new(at, text.len() as u64), data: text.into() }]);
}

/// osd.2 lacks a piece of "changed", whose newest version it has all the same.
fn lacking(seed: u64, osds: usize) -> World {
    let mut w = World::new(seed, osds, 3, 2, 1);
    w.place(vec![(0, vec![OsdId(0), OsdId(1), OsdId(2)])]);
    for name in ["changed", "same", "removed"] {
        w.run_ops(name, write("the old content of it"));
    }
    w.run_until("clean", World::all_clean);
    w.kill(2);
    w.run_until("down", |w| !w.map.is_up(OsdId(2)));
    put(&mut w, "changed", 4, "new");
    w.run_ops("added", write("it was not there before"));
    w.change(|map, inc| inc.new_flags = Some(map.flags | map_flags::NORECOVER));
    w.start(2);
    w.run_until("all serve", |w| w.records.get(&PG).is_some_and(|record| record.acting.len() == 3));
    w.run_for(Duration::from_secs(1));
    put(&mut w, "changed", 12, "NEWER");
    w.run_for(Duration::from_secs(1));
    w
}

/// It is dead, and its store has forgotten something.
fn stale(seed: u64, forgotten: StoredId) -> World {
    let mut w = lacking(seed, 3);
    w.kill(2);
    forget(&mut w, 2, &forgotten);
    w.run_until("down", |w| !w.map.is_up(OsdId(2)));
    w.change(|map, inc| inc.new_flags = Some(map.flags & !map_flags::NORECOVER));
    w
}

fn comes_back_right(mut w: World) {
    w.run_ops("removed", vec![Op::Delete]);
    w.start(2);
    w.run_until("clean", World::all_clean);
    let alike = w.nodes[0].view.objects().all(|(object, record)| {
        let id = StoredId::Object(object.clone());
        w.nodes[2].view.records.get(&id) == Some(record) || w.nodes[2].view.unreadable.contains(&id)
    });
    assert!(alike, "what can be read is right");
    // A scrub finds objects with corrupt metadata that were not written since.
    w.tell_osds(|| DaemonMsg::Scrub { pgs: vec![PG], deep: true, repair: true }.into());
    w.run_for(Duration::from_secs(5));
    w.run_until("clean", World::all_clean);
    w.assert_replicas_equal();
    assert!(w.nodes[2].view.unreadable.is_empty());
    assert_eq!(w.run_ops("changed", read()).ops[0].data, "the new contNEWERf it");
}

#[test]
fn an_unreadable_object_comes_back_from_others() {
    for name in ["changed", "same", "removed", "added"] {
        comes_back_right(stale(1, object(name)));
    }
}

/// What is sent takes its place. Those that lack everything are too many to be examined when an OSD starts.
#[test]
fn unreadable_object_is_recovered_from_others() {
    let mut w = stale(8, object("added"));
    w.corrupt(2, |store| {
        let record = &mut store.records.get_mut(&StoredId::Pg(SpgId::replicated(PG))).unwrap().omap;
        for (_, missing) in record.iter_mut().filter(|(key, _)| key.as_bytes().starts_with(b"m")) {
            let need = from_slice::<Stale>(missing).unwrap().need;
            *missing = to_vec(&Stale::everything(need)).into();
        }
    });
    comes_back_right(w);
}

/// It names the newest version of an object that lacks a piece: which one, only the record knew.
#[test]
fn pg_without_its_record_is_untrusted() {
    comes_back_right(stale(2, StoredId::Pg(SpgId::replicated(PG))));
}

#[test]
fn pg_is_found_without_the_list_of_pgs() {
    comes_back_right(stale(3, crate::pg::pg_list()));
}

#[test]
fn groups_are_found_when_all_maps_are_lost() {
    comes_back_right(stale(4, crate::maps::id()));
}

/// What a PG that was being deleted left was believed when its OSD became a member again.
#[test]
fn half_deleted_pg_is_untrusted() {
    let mut w = lacking(7, 4);
    w.place(vec![(0, vec![OsdId(0), OsdId(1), OsdId(3)])]);
    w.change(|map, inc| inc.new_flags = Some(map.flags & !map_flags::NORECOVER));
    let is_half_deleted = |w: &World| {
        let records = &w.nodes[2].disk.records;
        let record = records.get(&StoredId::Pg(SpgId::replicated(PG)));
        record.is_some_and(|record| record.omap.keys().any(|key| key.as_bytes() == b"untrusted"))
    };
    while !is_half_deleted(&w) {
        w.step();
    }
    w.kill(2);
    assert!(w.nodes[2].disk.records.contains_key(&object("changed")));
    w.place(vec![(0, vec![OsdId(0), OsdId(1), OsdId(2)])]);
    w.start(2);
    w.run_until("clean", World::all_clean);
    w.assert_replicas_equal();
}

/// The only OSD with acknowledged writes is waited for, also if it lost its record: no other OSD serves
/// without it.
#[test]
fn last_member_without_its_record_is_waited_for() {
    let mut w = World::new(5, 2, 2, 1, 1);
    w.run_ops("a", write("old"));
    w.run_until("clean", World::all_clean);
    w.kill(1);
    w.run_until("alone", |w| !w.map.is_up(OsdId(1)));
    w.run_ops("a", write("new"));
    w.kill(0);
    forget(&mut w, 0, &StoredId::Pg(SpgId::replicated(PG)));
    w.start(0);
    w.start(1);
    let waits = w.submit("a", read());
    w.run_for(Duration::from_secs(30));
    assert!(!w.replies.contains_key(&waits), "that is not what was acknowledged last");
    // Unless an operator says that it is all there is.
    w.kill(0);
    assert_eq!(incomplete_pgs(&w.nodes[0].disk), Ok(vec![PG]));
    let mut txn = Transaction::new();
    let accepted = mark_complete(&w.nodes[0].disk, PG, &mut txn).unwrap();
    assert_eq!(accepted, MarkedComplete { objects: 1, ..MarkedComplete::default() });
    w.nodes[0].disk.apply(&txn);
    assert_eq!(mark_complete(&w.nodes[0].disk, PG, &mut txn), Err(NotMarked::Counts(PG)));
    w.start(0);
    w.run_until("answered", |w| w.replies.contains_key(&waits));
    assert_eq!(w.run_ops("a", read()).ops[0].data, "new");
    w.run_ops("a", write("newest"));
    w.run_until("clean", World::all_clean);
    w.assert_replicas_equal();
}

#[test]
fn loss_that_the_osd_has_not_seen_cannot_be_accepted() {
    let mut w = World::new(9, 1, 1, 1, 1);
    w.run_ops("a", write("a"));
    w.kill(0);
    w.allow_errors = true;
    w.corrupt(0, |store| store.lost.times = 1);
    let mark = |w: &mut World| {
        let mut txn = Transaction::new();
        let accepted = mark_complete(&w.nodes[0].disk, PG, &mut txn);
        w.nodes[0].disk.apply(&txn);
        accepted.map(|accepted| accepted.objects)
    };
    assert_eq!(mark(&mut w), Err(NotMarked::Unseen(PG)));
    w.start(0);
    let waits = w.submit("a", read());
    w.run_for(Duration::from_secs(10));
    assert!(!w.replies.contains_key(&waits), "it may be older than what was acknowledged");
    w.kill(0);
    assert_eq!(mark(&mut w), Ok(1));
    w.start(0);
    w.run_until("answered", |w| w.replies.contains_key(&waits));
    assert_eq!(w.run_ops("a", read()).ops[0].data, "a");
}

#[test]
fn osd_with_a_corrupt_index_stops_once_others_suffice() {
    let mut w = World::new(6, 3, 3, 2, 4);
    w.run_ops("a", write("a"));
    w.run_until("clean", World::all_clean);
    w.kill(0);
    w.run_until("down", |w| !w.map.is_up(OsdId(0)));
    w.corrupt(1, |store| store.has_corrupt_metadata = true);
    w.run_for(Duration::from_secs(10));
    assert!(w.is_running(1), "two have to serve");
    w.start(0);
    w.run_until("it left", |w| !w.is_running(1));
    w.run_until("down", |w| !w.map.is_up(OsdId(1)));
    assert!(w.map.is_up(OsdId(0)) && w.nodes[1].disk.records.contains_key(&given_up()));
    assert_eq!(w.run_ops("a", read()).ops[0].data, "a");
}
