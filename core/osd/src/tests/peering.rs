//! Many PGs that peer at once, and what is lost on the way.

use super::World;
use super::world::MON;
use super::{read, write};
use crate::pg::LEASE;
use nacre_base::OsdId;
use nacre_proto::maps::osd_state;
use std::time::Duration;

const GROUPS: u32 = 1000;

/// Without batches there are a message or two, and a transaction, for each PG.
#[test]
fn thousand_pgs_peer_in_few_messages_per_osd_pair() {
    let mut w = World::new(7, 3, 3, 2, GROUPS);
    let few = |w: &mut World, what: &str| {
        assert!(w.sent.values().all(|sent| *sent <= 7), "{what}: {:?}", w.sent);
        assert!(w.stored.values().all(|stored| *stored <= 12), "{what}: {:?}", w.stored);
        w.sent.clear();
        w.stored.clear();
    };
    w.run_until("clean", World::all_clean);
    few(&mut w, "at first");
    w.kill(1);
    w.run_for(Duration::from_secs(3));
    few(&mut w, "without one");
    w.start(1);
    w.run_until("clean again", World::all_clean);
    few(&mut w, "with it again");
}

/// Memory for about twenty unchanged PGs; one with ten entries for each of two members takes more.
const LITTLE: usize = 256 << 10;

#[test]
fn thousand_pgs_peer_in_turns_with_little_memory() {
    let mut w = World::new(8, 3, 3, 2, GROUPS);
    w.run_until("clean", World::all_clean);
    w.memory = LITTLE / 3 * 16;
    for osd in 0..3 {
        w.kill(osd);
        w.run_for(Duration::from_secs(2));
        w.start(osd);
        w.run_until("clean again", World::all_clean);
    }
    w.sent.clear();
    w.kill(1);
    w.run_until("without one", |w| !w.map.is_up(OsdId(1)));
    (0..200).for_each(|n| drop(w.run_ops(&format!("object{n}"), write("new"))));
    w.start(1);
    let (mut most, mut queued) = (0, 0);
    w.run_until("clean once more", |w| {
        for osd in w.nodes.iter().filter_map(|node| node.osd.as_ref()) {
            most = most.max(osd.budget.peering.limit().held());
            queued = queued.max(osd.budget.peering.queued());
        }
        w.all_clean()
    });
    assert!(most <= LITTLE / 4 && most > LITTLE / 8, "{most} bytes held at a time");
    assert!(queued > 100, "{queued} groups waited for their turn");
    assert!(w.sent.values().all(|sent| *sent < GROUPS as usize), "still in batches: {:?}", w.sent);
    assert!(
        w.nodes.iter().filter_map(|node| node.osd.as_ref()).all(|osd| osd.budget.peering.limit().held() == 0)
    );
}

/// A message between OSDs, or between an OSD and the monitor, is lost although the session stays: the peer
/// dropped it for lack of memory or took it for stale. Every wait has a timeout.
#[test]
fn no_pg_is_stuck_after_one_lost_message() {
    let mut lost = 0;
    for nth in 0..60 {
        let mut w = World::new(9, 3, 3, 2, 8);
        w.run_until("clean", World::all_clean);
        w.kill(1);
        w.run_until("without one", |w| !w.map.is_up(OsdId(1)));
        (0..8).for_each(|n| drop(w.run_ops(&format!("object{n}"), write("new"))));
        w.run_for(Duration::from_secs(1));
        w.start(1);
        w.lose = Some(nth);
        let since = w.now;
        w.run_until(&format!("clean without message {nth}"), World::all_clean);
        w.run_until("every message", |w| w.lose.is_none() || w.now.since(since) > Duration::from_secs(5));
        lost += usize::from(w.lose.is_none());
        let took = w.now.since(since);
        assert!(took < Duration::from_secs(12), "without message {nth}: {took:?}");
        w.assert_replicas_equal();
    }
    assert!(lost >= 40, "only {lost} messages were there to be lost");
}

/// Found by the simulator, once monitors kept fewer maps than OSDs missed: the map before and the map after
/// do not show when an interval began, nor that there was one in between.
#[test]
fn osd_that_missed_maps_agrees_on_the_interval_start() {
    let orders = [[0, 1, 2], [1, 0, 2], [2, 1, 0]].map(|order| order.map(OsdId).to_vec());
    for absent in 0..3 {
        for (first, last) in [(0, 0), (1, 0), (2, 0), (1, 1), (2, 2), (1, 2), (2, 1)] {
            let mut w = World::new(11, 3, 3, 2, 1);
            w.run_until("clean", World::all_clean);
            w.run_ops("object", write("old"));
            w.cut.insert((absent, MON));
            let before = w.map.epoch;
            // The members swap places, perhaps back, and then the map changes in other ways.
            for n in [first, last] {
                w.place(vec![(0, orders[n].clone())]);
                w.run_for(Duration::from_millis(300));
            }
            (0..3).for_each(|_| w.change(|_, _| ()));
            w.run_for(Duration::from_millis(300));
            let known = |w: &World| w.nodes[absent].osd.as_ref().unwrap().maps.epoch();
            assert_eq!((known(&w), w.map.epoch.0), (before, before.0 + 5));
            w.forget_maps();
            w.cut.clear();
            w.reset_between(absent, MON);
            let what = format!("clean: osd.{absent} missed {:?}, then {:?}", orders[first], orders[last]);
            w.run_until(&what, World::all_clean);
            assert_eq!(w.run_ops("object", write("new")).result, 0, "{what}");
            w.run_until(&what, World::all_clean);
            w.assert_replicas_equal();
        }
    }
}

#[test]
fn stopping_osd_ends_its_leases_and_answers_no_reads() {
    let mut w = World::new(31, 3, 3, 2, 1);
    w.run_ops("a", write("before"));
    w.run_until("clean", World::all_clean);
    w.stop(0);
    let began = w.now;
    assert_eq!(w.run_ops("a", write("after")).result, 0);
    assert!(w.now.since(began) < LEASE / 4, "{:?}", w.now.since(began));
    assert_eq!(w.run_ops("a", read()).ops[0].data, "after");
}

/// Each OSD requested leases from each other one five times a second.
#[test]
fn leases_are_renewed_only_while_clients_read() {
    let mut w = World::new(31, 3, 3, 2, 8);
    w.run_ops("a", write("text"));
    w.run_until("clean", World::all_clean);
    let requests_during = |w: &mut World, seconds| {
        let before = w.lease_requests;
        w.run_for(Duration::from_secs(seconds));
        w.lease_requests - before
    };
    assert!(requests_during(&mut w, 2) > 0, "clients may read from the first moment");
    w.run_for(Duration::from_secs(5));
    assert_eq!(requests_during(&mut w, 10), 0);
    assert_eq!(w.run_ops("a", read()).ops[0].data, "text");
    assert!(requests_during(&mut w, 2) > 0);
    w.run_for(Duration::from_secs(5));
    assert_eq!(requests_during(&mut w, 10), 0);
}

#[test]
fn osd_stopped_by_the_map_exits_and_boots_on_restart() {
    let mut w = World::new(9, 3, 3, 2, 8);
    w.run_until("clean", World::all_clean);
    w.change(|_, inc| {
        inc.new_state.insert(OsdId(1), osd_state::UP | osd_state::STOP);
    });
    w.run_until("the end of osd.1", |w| !w.is_running(1));
    assert_eq!(w.run_ops("o", write("without it")).result, 0);
    w.start(1);
    w.run_until("clean again", World::all_clean);
    assert!(w.is_running(1));
    // An OSD that is only marked down does not stop.
    w.mark_down(OsdId(2));
    w.run_until("clean once more", World::all_clean);
}
