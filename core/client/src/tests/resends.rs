use super::world::*;
use crate::{ObjectRequest, Output, Request};
use nacre_base::{Epoch, Name, OsdId, PoolId, Utime, errno};
use nacre_machine::Closed;
use nacre_proto::maps::{Pool, map_flags, osd_state, pool_flags};
use nacre_proto::messages::{BackoffOp, Message, OsdBackoff};
use nacre_proto::types::{AddrVec, ObjectId, SpgId, op_flags::message as flag};
use std::sync::Arc;
use std::time::Duration;

fn second_attempt(ops: &[(u64, nacre_proto::messages::OsdOp)], tid: u64) {
    assert_eq!(ops.len(), 1);
    let (again, op) = &ops[0];
    assert_eq!((*again, op.retry_attempt), (tid, 1));
    assert!(op.has_flag(flag::RETRY));
}

#[test]
fn a_write_goes_to_the_primary_and_its_answer_completes_it() {
    let mut w = World::up();
    let (id, conn, tid, op) = w.write_sent("a");
    assert_eq!((op.spg, op.epoch, op.retry_attempt), (SpgId::replicated(w.pg_of("a")), Epoch(1), 0));
    assert_eq!(op.flags, flag::ONDISK | flag::WRITE | flag::KNOWN_REDIR);
    assert_eq!(op.features, FEATURES);
    w.answer(conn, tid, &op);
    let (done, result) = w.result();
    let Output::Object(reply) = result.unwrap() else { panic!("a write gives an object's reply") };
    assert_eq!((done, reply.user_version, reply.ops.len()), (id, 5, 1));
    assert_eq!(w.client().num_pending(), 0);
}

#[test]
fn a_new_primary_gets_the_same_request_again() {
    let mut w = World::up();
    let (_, old, tid, op) = w.write_sent("a");
    let (pg, replica) = (w.pg_of("a"), w.replica_of("a"));
    w.change(|inc| inc.new_primary_temp.insert(pg, replica));
    let new = w.open_osd(replica);
    let ops = w.ops(new);
    second_attempt(&ops, tid);
    // The old one does not know yet, and answers.
    w.answer(old, tid, &op);
    assert!(w.completions.is_empty());
    w.answer(new, tid, &ops[0].1);
    assert!(w.result().1.is_ok());
}

#[test]
fn a_primary_that_changes_and_changes_back_gets_it_again() {
    let mut w = World::up();
    let (_, conn, tid, first) = w.write_sent("a");
    let (pg, replica, primary) = (w.pg_of("a"), w.replica_of("a"), w.primary_of("a"));
    let there = w.step(|inc| inc.new_primary_temp.insert(pg, replica));
    let back = w.step(|inc| inc.new_primary_temp.insert(pg, primary));
    let (mon, maps) = (w.mon(), w.maps([there, back]));
    w.hear(mon, 0, maps);
    let ops = w.ops(conn);
    second_attempt(&ops, tid);
    // The answer to the first attempt comes after the second was sent.
    w.answer(conn, tid, &first);
    assert!(w.completions.is_empty());
    w.answer(conn, tid, &ops[0].1);
    assert!(w.result().1.is_ok());
}

#[test]
fn a_replica_that_goes_changes_nothing_for_clients() {
    let mut w = World::up();
    let (_, conn, ..) = w.write_sent("a");
    let replica = w.replica_of("a");
    w.change(|inc| inc.new_state.insert(replica, osd_state::UP));
    assert_ne!(w.replica_of("a"), replica);
    assert!(w.ops(conn).is_empty());
}

#[test]
fn a_reset_session_is_opened_again_and_gets_all_in_order() {
    let mut w = World::up();
    let (_, conn, tid, _) = w.write_sent("a");
    w.submit(write("a"));
    w.submit(read("a"));
    assert_eq!(w.ops(conn).len(), 2);
    w.close(conn, Closed::Reset);
    w.submit(read("a"));
    let again = w.open_osd(w.primary_of("a"));
    let ops = w.ops(again);
    let attempts: Vec<i32> = ops.iter().map(|(_, op)| op.retry_attempt).collect();
    assert_eq!((ops[0].0, attempts), (tid, vec![1, 1, 1, 0]));
    assert!(ops.is_sorted_by_key(|(tid, _)| *tid));
}

#[test]
fn an_osd_that_cannot_be_reached_is_tried_at_growing_intervals() {
    let mut w = World::up();
    w.submit(write("a"));
    let addr = osd_addr(w.primary_of("a").0, 1);
    let mut dials = 0;
    for _ in 0..300 {
        if let Some(conn) = w.find_conn(addr) {
            dials += 1;
            w.close(conn, Closed::Refused);
        }
        w.wait(Duration::from_millis(100));
    }
    assert!((30..70).contains(&dials), "{dials} in 30 s");
    // And not at all when there is nothing to send.
    w.completions.clear();
    w.wait(Duration::from_secs(2));
    let conn = w.open_osd(w.primary_of("a"));
    let (tid, op) = w.ops(conn).remove(0);
    w.answer(conn, tid, &op);
    w.close(conn, Closed::Reset);
    w.wait(Duration::from_secs(4));
    assert_eq!(w.find_conn(addr), None);
}

#[test]
fn an_osd_that_comes_back_under_another_address_is_dialled_there() {
    let mut w = World::up();
    let (_, old, tid, _) = w.write_sent("a");
    let primary = w.primary_of("a");
    w.change(|inc| inc.new_up_client.insert(primary, AddrVec::one(osd_addr(primary.0, 2))));
    assert!(!w.conns.contains_key(&old));
    let new = w.open_osd(primary);
    second_attempt(&w.ops(new), tid);
}

#[test]
fn requests_wait_while_no_osd_serves_their_pg() {
    let mut w = World::up();
    w.submit(write("a"));
    let primary = w.primary_of("a");
    w.change(|inc| inc.new_state.extend((0..5).map(|osd| (OsdId(osd), osd_state::UP))));
    assert_eq!(w.find_conn(osd_addr(primary.0, 1)), None);
    w.submit(read("a"));
    w.change(|inc| inc.new_up_client.insert(primary, AddrVec::one(osd_addr(primary.0, 2))));
    let conn = w.open_osd(primary);
    assert_eq!(w.ops(conn).len(), 2);
}

#[test]
fn a_split_sends_again_what_is_in_the_pg_that_splits() {
    let mut w = World::up();
    // Nine placement groups: 0 gives objects to 8, the others stay.
    let name_in = |seed: u32| (0..).map(|n| format!("o{n}")).find(|n| cluster_map_pg(n) == seed).unwrap();
    let (split, other) = (name_in(0), name_in(3));
    let (_, conn, tid, _) = w.write_sent(&split);
    w.submit(write(&other));
    let other_osd = w.primary_of(&other);
    let other_conn = if other_osd == w.primary_of(&split) { conn } else { w.open_osd(other_osd) };
    assert_eq!(w.names(other_conn), [other]);
    w.change(|inc| {
        let pool = Pool::replicated(3, 2, 9, 0, Utime::ZERO);
        inc.new_pools.insert(POOL, Arc::new(Pool { pgp_num: 8, ..pool }));
    });
    let conn = match w.primary_of(&split) {
        osd if w.find_conn(osd_addr(osd.0, 1)) == Some(conn) => conn,
        osd => w.open_osd(osd),
    };
    second_attempt(&w.ops(conn), tid);
    assert!(w.names(other_conn).is_empty());
}

fn cluster_map_pg(name: &str) -> u32 {
    let locator = nacre_proto::types::ObjectLocator::new(POOL);
    cluster_map().object_to_pg(&locator, &name.into()).unwrap().seed
}

#[test]
fn pool_can_demand_that_all_requests_are_resent() {
    let mut w = World::up();
    let (_, conn, tid, _) = w.write_sent("a");
    w.change(|inc| {
        let pool = Pool::replicated(3, 2, 8, 0, Utime::ZERO);
        inc.new_pools.insert(POOL, Arc::new(Pool { last_force_op_resend: inc.epoch, ..pool }));
    });
    second_attempt(&w.ops(conn), tid);
    // Once.
    w.change(|_| {});
    assert!(w.ops(conn).is_empty());
}

#[test]
fn paused_requests_leave_when_the_pause_ends() {
    let mut w = World::up();
    let (_, conn, sent_before, _) = w.write_sent("a");
    let flags = w.map.flags;
    w.change(|inc| inc.new_flags = Some(flags | map_flags::PAUSEWR));
    w.submit(write("a"));
    w.submit(read("a"));
    let ops = w.ops(conn);
    assert_eq!(ops.len(), 1);
    assert!(ops[0].1.has_flag(flag::READ));
    w.change(|inc| inc.new_flags = Some(flags));
    // The OSD may have dropped what it got before, so that comes again.
    let ops = w.ops(conn);
    assert_eq!(ops.iter().map(|(_, op)| op.retry_attempt).collect::<Vec<_>>(), [1, 0]);
    assert_eq!(ops[0].0, sent_before);

    w.change(|inc| inc.new_flags = Some(flags | map_flags::PAUSERD));
    w.submit(read("a"));
    assert!(w.ops(conn).is_empty());
}

#[test]
fn writes_wait_while_the_pool_is_full_unless_fail_if_full() {
    let mut w = World::up();
    w.change(|inc| {
        let pool = Pool::replicated(3, 2, 8, 0, Utime::ZERO);
        let flags = pool.flags | pool_flags::FULL;
        inc.new_pools.insert(POOL, Arc::new(Pool { flags, ..pool }));
    });
    w.submit(write("a"));
    w.submit(write("a").flags(flag::FULL_TRY));
    let conn = w.open_osd(w.primary_of("a"));
    let ops = w.ops(conn);
    assert_eq!(ops.len(), 1);
    assert!(ops[0].1.has_flag(flag::FULL_TRY));
}

#[test]
fn a_deleted_pool_fails_what_is_under_way() {
    let mut w = World::up();
    w.write_sent("a");
    w.change(|inc| inc.old_pools.insert(POOL));
    assert_eq!(w.errno(), errno::ENOENT);
}

#[test]
fn a_pool_that_our_map_does_not_have_is_unknown_only_if_the_newest_has_none() {
    let mut w = World::up();
    let object = || ObjectRequest::new(PoolId(9), "a").stat();
    w.submit(object());
    let asked = w.version_asked();
    assert_eq!(asked.len(), 1);
    // A map that came after is awaited, and has the pool.
    let inc = w.step(|inc| {
        inc.new_pools.insert(PoolId(9), Arc::new(Pool::replicated(3, 2, 4, 0, Utime::ZERO)));
    });
    w.tell_version(asked[0]);
    assert!(w.completions.is_empty());
    let (mon, maps) = (w.mon(), w.maps([inc]));
    w.hear(mon, 0, maps);
    assert!(w.completions.is_empty());
    assert!(w.conns.values().any(|addr| addr.sock.unwrap().port() >= 6800));

    w.submit(ObjectRequest::new(PoolId(10), "a").stat());
    let asked = w.version_asked();
    w.tell_version(asked[0]);
    assert_eq!(w.errno(), errno::ENOENT);
}

fn backoff(w: &World, op: BackoffOp, id: u64, begin: ObjectId, end: ObjectId) -> OsdBackoff {
    OsdBackoff { spg: SpgId::replicated(w.pg_of("a")), epoch: w.map.epoch, op, id, begin, end }
}

#[test]
fn a_backoff_holds_its_objects_and_no_others() {
    let mut w = World::up();
    let (_, conn, first, _) = w.write_sent("a");
    // Another object of the same placement group.
    let pg = w.pg_of("a");
    let other = (0..).map(|n| format!("o{n}")).find(|name| w.pg_of(name) == pg).unwrap();
    let object = ObjectId::head(POOL, Name::default(), Name::default(), "a".into());
    let block = backoff(&w, BackoffOp::Block, 4, object.clone(), object.clone());
    w.hear(conn, 0, block.clone());
    let acks = w.take_sent(|c, message| c == conn && matches!(message, Message::OsdBackoff(_)));
    assert_eq!(acks[0].1, Message::OsdBackoff(OsdBackoff { op: BackoffOp::AckBlock, ..block }));
    w.submit(read("a"));
    w.submit(read(&other));
    assert_eq!(w.names(conn), [other]);
    let unblock = backoff(&w, BackoffOp::Unblock, 4, object.clone(), object);
    w.hear(conn, 0, unblock);
    let ops = w.ops(conn);
    assert_eq!(ops.iter().map(|(_, op)| op.retry_attempt).collect::<Vec<_>>(), [1, 0]);
    assert_eq!(ops[0].0, first);
}

#[test]
fn a_backoff_of_a_whole_pg_ends_with_its_session() {
    let mut w = World::up();
    let (_, conn, ..) = w.write_sent("a");
    let block = backoff(&w, BackoffOp::Block, 1, ObjectId::min(), ObjectId::max());
    w.hear(conn, 0, block);
    w.submit(write("a"));
    assert!(w.ops(conn).is_empty());
    w.close(conn, Closed::Reset);
    let again = w.open_osd(w.primary_of("a"));
    assert_eq!(w.ops(again).len(), 2);
}

#[test]
fn maps_come_from_osds_too() {
    let mut w = World::up();
    let (_, conn, tid, _) = w.write_sent("a");
    let (pg, replica) = (w.pg_of("a"), w.replica_of("a"));
    let inc = w.step(|inc| inc.new_primary_temp.insert(pg, replica));
    let maps = w.maps([inc]);
    w.hear(conn, 0, maps);
    let new = w.open_osd(replica);
    second_attempt(&w.ops(new), tid);
}

#[test]
fn a_hole_in_the_maps_is_asked_for_and_old_maps_are_ignored() {
    let mut w = World::up();
    let first = w.step(|_| {});
    let second = w.step(|_| {});
    let (mon, late, all) = (w.mon(), w.maps([second.clone()]), w.maps([first, second]));
    w.hear(mon, 0, late);
    assert_eq!(w.maps_wanted(), [2]);
    w.hear(mon, 0, all.clone());
    assert_eq!(w.client().osd_map().unwrap().epoch, Epoch(3));
    w.hear(mon, 0, all);
    assert_eq!((w.client().osd_map().unwrap().epoch, w.maps_wanted()), (Epoch(3), vec![]));
}

#[test]
fn invalid_incremental_is_replaced_by_a_full_map() {
    let mut w = World::up();
    let (_, conn, tid, _) = w.write_sent("a");
    let inc = w.step(|_| {});
    let mut maps = w.maps([inc]);
    maps.incrementals.insert(Epoch(2), "nonsense".into());
    let mon = w.mon();
    w.hear(mon, 0, maps);
    assert_eq!(w.maps_wanted(), [0]);
    w.step(|_| {});
    let whole = w.whole_map();
    w.hear(mon, 0, whole);
    assert_eq!(w.client().osd_map().unwrap().epoch, Epoch(3));
    // It is unknown what happened in epoch 2.
    second_attempt(&w.ops(conn), tid);
}

#[test]
fn maps_of_another_cluster_are_dropped() {
    let mut w = World::up();
    let inc = w.step(|inc| inc.old_pools.insert(POOL));
    let maps = nacre_proto::messages::OsdMapMsg { fsid: *b"another  cluster", ..w.maps([inc]) };
    let mon = w.mon();
    w.hear(mon, 0, maps);
    assert_eq!(w.client().osd_map().unwrap().epoch, Epoch(1));
}

#[test]
fn a_request_out_of_time_is_never_sent_again() {
    let mut w = World::up();
    w.submit(Request::from(write("a")).timeout(Duration::from_secs(2)));
    let conn = w.open_osd(w.primary_of("a"));
    let (tid, op) = w.ops(conn).remove(0);
    w.wait(Duration::from_millis(1999));
    assert!(w.completions.is_empty());
    w.wait(Duration::from_millis(1));
    assert_eq!(w.errno(), errno::ETIMEDOUT);
    w.answer(conn, tid, &op);
    assert!(w.completions.is_empty());
    w.close(conn, Closed::Reset);
    w.wait(Duration::from_secs(2));
    assert_eq!(w.find_conn(osd_addr(w.primary_of("a").0, 1)), None);
}
