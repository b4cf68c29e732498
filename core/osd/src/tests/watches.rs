//! How long a watch lasts without an unwatch.

use super::world::World;
use super::write;
use nacre_proto::maps::OsdMap;
use nacre_proto::types::{Op, WatchAction};
use std::time::Duration;

const CLIENT: usize = 101;
const TIMEOUT: u32 = 30;

fn watch(action: WatchAction) -> Vec<Op> {
    vec![Op::Watch { cookie: 7, action, generation: 1, timeout_secs: TIMEOUT }]
}

/// An object with one watch, and the node that is its primary.
fn watched() -> (World, usize) {
    let mut w = World::new(5, 3, 3, 2, 4);
    w.run_ops("o", write("x"));
    assert_eq!(w.run_ops("o", watch(WatchAction::Watch)).result, 0);
    let primary = primary(&w.map);
    (w, primary)
}

fn primary(map: &OsdMap) -> usize {
    let hash = nacre_proto::types::object_hash(&"".into(), &"o".into());
    let pg = map.hash_to_pg(super::world::POOL, hash).unwrap();
    map.pg_to_up_acting(pg).acting_primary.unwrap().0 as usize
}

fn watchers(w: &mut World) -> u8 {
    // The count follows the envelope's six bytes.
    w.run_ops("o", vec![Op::ListWatchers]).ops[0].data[6]
}

#[test]
fn a_watch_ends_when_its_client_is_silent_for_its_timeout() {
    let (mut w, _) = watched();
    for _ in 0..4 {
        w.run_for(Duration::from_secs(20));
        assert_eq!(w.run_ops("o", watch(WatchAction::Ping)).result, 0);
    }
    w.run_for(Duration::from_secs(u64::from(TIMEOUT) + 5));
    assert_eq!(watchers(&mut w), 0);
    assert_eq!(w.run_ops("o", watch(WatchAction::Ping)).result, -107);
    assert_eq!(w.run_ops("o", watch(WatchAction::Reconnect)).result, -107);
}

#[test]
fn watch_of_a_disconnected_client_ends_within_seconds() {
    let (mut w, primary) = watched();
    w.reset_between(primary, CLIENT);
    w.run_for(Duration::from_secs(3));
    assert_eq!(watchers(&mut w), 1, "it may come back");
    w.run_for(Duration::from_secs(4));
    assert_eq!(watchers(&mut w), 0);
}

/// The watcher was not notified, and its pings were still answered.
#[test]
fn watch_ends_when_its_object_is_deleted_and_recreated_at_once() {
    let (mut w, _) = watched();
    assert_eq!(w.run_ops("o", vec![Op::Delete, Op::Create { exclusive: true }]).result, 0);
    assert_eq!(watchers(&mut w), 0);
    assert_eq!(w.run_ops("o", watch(WatchAction::Ping)).result, -107);
    let again = [vec![Op::Delete, Op::Create { exclusive: true }], watch(WatchAction::Watch)].concat();
    assert_eq!(w.run_ops("o", again).result, 0);
    assert_eq!(watchers(&mut w), 1);
    assert_eq!(w.run_ops("o", watch(WatchAction::Ping)).result, 0);
}

#[test]
fn all_watches_of_a_client_end_together() {
    let (mut w, primary) = watched();
    for cookie in 100..150 {
        let action = WatchAction::Watch;
        let another = Op::Watch { cookie, action, generation: 1, timeout_secs: TIMEOUT };
        assert_eq!(w.run_ops("o", vec![another]).result, 0);
    }
    assert_eq!(watchers(&mut w), 51);
    w.reset_between(primary, CLIENT);
    w.run_for(Duration::from_secs(7));
    assert_eq!(watchers(&mut w), 0);
}

#[test]
fn a_client_that_hangs_up_and_comes_back_watches_on() {
    let (mut w, primary) = watched();
    w.reset_between(primary, CLIENT);
    w.run_for(Duration::from_secs(1));
    assert_eq!(w.run_ops("o", watch(WatchAction::Reconnect)).result, 0);
    w.run_for(Duration::from_secs(20));
    assert_eq!(watchers(&mut w), 1);
}

#[test]
fn a_watch_outlives_its_primary() {
    let (mut w, old) = watched();
    let before = w.map.epoch;
    w.kill(old);
    w.run_until("another primary", |w| w.map.epoch > before && primary(&w.map) != old);
    assert_eq!(w.run_ops("o", watch(WatchAction::Reconnect)).result, 0);
    assert_eq!(watchers(&mut w), 1);
    w.run_for(Duration::from_secs(u64::from(TIMEOUT) + 5));
    assert_eq!(watchers(&mut w), 0, "the new one gives up who is silent as well");
}

/// Each of them read, and copied, the list of all watchers: a thousand clients that answer one notify
/// made an OSD miss heartbeats.
#[test]
fn notify_ack_does_not_scan_all_watchers() {
    const WATCHERS: u64 = 50;
    let (mut w, primary) = watched();
    for cookie in 100..100 + WATCHERS {
        let action = WatchAction::Watch;
        let another = Op::Watch { cookie, action, generation: 1, timeout_secs: TIMEOUT };
        assert_eq!(w.run_ops("o", vec![another]).result, 0);
    }
    let notify = Op::Notify { cookie: 1, timeout_secs: 5, payload: "news".into() };
    let id = w.run_ops("o", vec![notify]).ops[0].data.clone();
    let notify_id = u64::from_le_bytes(id[..8].try_into().unwrap());
    w.nodes[primary].view.attrs_read.set(0);
    for cookie in 100..100 + WATCHERS {
        let ack = Op::NotifyAck { notify_id, cookie, reply: "heard".into() };
        assert_eq!(w.run_ops("o", vec![ack]).result, 0);
        let action = WatchAction::Ping;
        let ping = Op::Watch { cookie, action, generation: 1, timeout_secs: TIMEOUT };
        assert_eq!(w.run_ops("o", vec![ping]).result, 0);
    }
    let read = w.nodes[primary].view.attrs_read.get();
    assert!(read <= 4, "read {read} times");
}

/// The first watch was read from the object; the later ones were not, and expired at once.
#[test]
fn every_watch_that_asks_for_no_timeout_gets_the_default_one() {
    let (mut w, _) = watched();
    for cookie in [8, 9] {
        let open = Op::Watch { cookie, action: WatchAction::Watch, generation: 1, timeout_secs: 0 };
        assert_eq!(w.run_ops("o", vec![open]).result, 0);
    }
    w.run_for(Duration::from_secs(u64::from(TIMEOUT) - 5));
    assert_eq!(watchers(&mut w), 3);
    w.run_for(Duration::from_secs(10));
    assert_eq!(watchers(&mut w), 0);
}

/// Also by the cached watches, not only by those stored in the object.
#[test]
fn client_whose_watch_ended_is_notified_while_others_watch() {
    let (mut w, _) = watched();
    let of = |action| Op::Watch { cookie: 8, action, generation: 1, timeout_secs: TIMEOUT };
    assert_eq!(w.run_ops("o", vec![of(WatchAction::Watch)]).result, 0);
    assert_eq!(w.run_ops("o", vec![of(WatchAction::Ping)]).result, 0);
    assert_eq!(w.run_ops("o", vec![of(WatchAction::Unwatch)]).result, 0);
    assert_eq!(w.run_ops("o", vec![of(WatchAction::Ping)]).result, -107);
    assert_eq!(w.run_ops("o", watch(WatchAction::Ping)).result, 0);
    assert_eq!(watchers(&mut w), 1);
}
