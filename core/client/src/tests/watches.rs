use super::world::*;
use crate::{ObjectRequest, Output, Request, RequestKind, WatchEvent, WatchId};
use nacre_base::errno;
use nacre_machine::{Closed, ConnId};
use nacre_proto::messages::{OsdOp, OsdOpReply, WatchNotify, WatchNotifyKind};
use nacre_proto::types::{NotifyAcks, Op, WatchAction, op_flags::message as flag};
use nacre_wire::to_vec;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(30);

fn watch(name: &str) -> RequestKind {
    RequestKind::Watch { object: ObjectRequest::new(POOL, name), timeout: TIMEOUT }
}

fn action(op: &OsdOp) -> (WatchAction, u64, u32) {
    match op.ops[0].parse().unwrap() {
        Op::Watch { action, cookie, generation, .. } => (action, cookie, generation),
        other => panic!("not about a watch: {other:?}"),
    }
}

/// Establishes a watch of "a".
fn watching(w: &mut World) -> (WatchId, ConnId, u64) {
    w.submit(watch("a"));
    let conn = w.open_osd(w.primary_of("a"));
    let (tid, op) = w.ops(conn).remove(0);
    w.answer(conn, tid, &op);
    match w.result().1 {
        Ok(Output::Watching(watch)) => (watch, conn, tid),
        other => panic!("no watch: {other:?}"),
    }
}

fn notice(kind: WatchNotifyKind, cookie: u64) -> WatchNotify {
    WatchNotify {
        kind,
        cookie,
        version: 3,
        notify_id: 99,
        payload: "news".into(),
        result: 0,
        notifier: 4100,
        acks: Default::default(),
    }
}

#[test]
fn watch_receives_and_acknowledges_notifies() {
    let mut w = World::up();
    let (watch, conn, _) = watching(&mut w);
    w.hear(conn, 0, notice(WatchNotifyKind::Notify, watch.0));
    let payload = "news".into();
    assert_eq!(w.events, [WatchEvent::Notified { watch, notify_id: 99, notifier: 4100, payload }]);
    w.submit(ObjectRequest::new(POOL, "a").notify_ack(watch, 99, "heard"));
    let (_, ack) = w.ops(conn).remove(0);
    let expected = Op::NotifyAck { notify_id: 99, cookie: watch.0, reply: "heard".into() };
    assert_eq!(ack.ops[0].parse(), Ok(expected));
}

#[test]
fn a_watch_is_made_again_under_another_tid_when_its_session_ends() {
    let mut w = World::up();
    let (watch, conn, first) = watching(&mut w);
    w.close(conn, Closed::Reset);
    let again = w.open_osd(w.primary_of("a"));
    let (tid, op) = w.ops(again).remove(0);
    assert_ne!(tid, first);
    assert_eq!(action(&op), (WatchAction::Reconnect, watch.0, 1));
    w.answer(again, tid, &op);
    assert!(w.events.is_empty() && w.completions.is_empty());
    w.hear(again, 0, notice(WatchNotifyKind::Notify, watch.0));
    assert_eq!(w.events.len(), 1);
}

#[test]
fn a_watch_moves_to_a_new_primary() {
    let mut w = World::up();
    let (watch, ..) = watching(&mut w);
    let (pg, replica) = (w.pg_of("a"), w.replica_of("a"));
    w.change(|inc| inc.new_primary_temp.insert(pg, replica));
    let new = w.open_osd(replica);
    assert_eq!(action(&w.ops(new)[0].1), (WatchAction::Reconnect, watch.0, 1));
}

#[test]
fn forgotten_watch_is_reported_lost_once() {
    let mut w = World::up();
    let (watch, conn, _) = watching(&mut w);
    w.close(conn, Closed::Reset);
    let again = w.open_osd(w.primary_of("a"));
    let (tid, op) = w.ops(again).remove(0);
    w.hear(again, tid, Box::new(OsdOpReply::to(&op, -errno::ENOTCONN, w.map.epoch)));
    assert!(matches!(&w.events[..], [WatchEvent::Lost { watch: id, failure }]
        if *id == watch && failure.errno == errno::ENOTCONN));
    w.wait(Duration::from_secs(60));
    assert_eq!(w.events.len(), 1);
    assert!(w.ops(again).is_empty());
}

#[test]
fn a_watch_is_kept_alive_by_pings_of_which_one_is_under_way() {
    let mut w = World::up();
    let (watch, conn, _) = watching(&mut w);
    w.wait(Duration::from_secs(11));
    let pings = w.ops(conn);
    assert_eq!(pings.len(), 1);
    assert_eq!(action(&pings[0].1), (WatchAction::Ping, watch.0, 0));
    assert!(pings[0].1.has_flag(flag::READ));
    w.answer(conn, pings[0].0, &pings[0].1);
    w.wait(Duration::from_secs(6));
    let ping = w.ops(conn).remove(0);
    w.hear(conn, ping.0, Box::new(OsdOpReply::to(&ping.1, -errno::ENOTCONN, w.map.epoch)));
    assert!(matches!(w.events[..], [WatchEvent::Lost { .. }]));
}

#[test]
fn a_watch_that_is_refused_or_cancelled_leaves_nothing_behind() {
    let mut w = World::up();
    w.submit(watch("a"));
    let conn = w.open_osd(w.primary_of("a"));
    let (tid, op) = w.ops(conn).remove(0);
    w.hear(conn, tid, Box::new(OsdOpReply::to(&op, -errno::ENOENT, w.map.epoch)));
    assert_eq!(w.errno(), errno::ENOENT);
    let id = w.submit(watch("a"));
    w.ops(conn);
    w.machine.cancel(id);
    w.close(conn, Closed::Reset);
    w.wait(Duration::from_secs(10));
    assert!(w.events.is_empty() && w.completions.is_empty());
    assert_eq!(w.find_conn(osd_addr(w.primary_of("a").0, 1)), None);
}

#[test]
fn unwatch_informs_the_osd_and_ends_the_events() {
    let mut w = World::up();
    let (watch, conn, _) = watching(&mut w);
    w.submit(RequestKind::Unwatch(watch));
    let (tid, op) = w.ops(conn).remove(0);
    assert_eq!(action(&op).0, WatchAction::Unwatch);
    w.answer(conn, tid, &op);
    assert!(matches!(w.result().1, Ok(Output::Done)));
    w.hear(conn, 0, notice(WatchNotifyKind::Notify, watch.0));
    w.wait(Duration::from_secs(20));
    assert!(w.events.is_empty() && w.ops(conn).is_empty());
    w.submit(RequestKind::Unwatch(watch));
    assert_eq!(w.errno(), errno::ENOENT);
}

#[test]
fn a_notify_ends_with_its_completion_and_is_sent_again_until_then() {
    let mut w = World::up();
    let (object, payload) = (ObjectRequest::new(POOL, "a"), "news".into());
    let id = w.submit(RequestKind::Notify { object, payload, timeout: Duration::from_secs(5) });
    let conn = w.open_osd(w.primary_of("a"));
    let (tid, op) = w.ops(conn).remove(0);
    w.answer(conn, tid, &op);
    assert!(w.completions.is_empty());
    w.close(conn, Closed::Reset);
    let again = w.open_osd(w.primary_of("a"));
    let (second, op) = w.ops(again).remove(0);
    assert_ne!(second, tid);
    let cookie = match op.ops[0].parse().unwrap() {
        Op::Notify { cookie, timeout_secs: 5, .. } => cookie,
        other => panic!("not a notify: {other:?}"),
    };
    // The completion may even come before the answer.
    let acks = NotifyAcks { acks: vec![((4100, 1), "heard".into())], missed: vec![(4200, 2)] };
    let complete = WatchNotify {
        acks: to_vec(&acks).into(),
        result: -errno::ETIMEDOUT,
        ..notice(WatchNotifyKind::Complete, cookie)
    };
    w.hear(again, 0, complete);
    let (done, result) = w.result();
    let Ok(Output::Notified(outcome)) = result else { panic!("a notify gives its outcome") };
    assert_eq!((done, outcome.acks, outcome.timed_out), (id, acks, true));
    w.answer(again, second, &op);
    assert!(w.completions.is_empty());
}

#[test]
fn a_client_on_the_blocklist_knows() {
    let mut w = World::up();
    let (_, conn, tid, op) = w.write_sent("b");
    w.hear(conn, tid, Box::new(OsdOpReply::to(&op, -errno::ESHUTDOWN, w.map.epoch)));
    assert!(w.result().1.unwrap_err().is_blocklisted());
    assert!(w.client().is_blocklisted());
}

#[test]
fn a_deadline_holds_for_watches_and_notifies_too() {
    let mut w = World::up();
    w.submit(Request::from(watch("a")).timeout(Duration::from_secs(1)));
    w.wait(Duration::from_secs(2));
    assert_eq!(w.errno(), errno::ETIMEDOUT);
    let object = ObjectRequest::new(POOL, "a");
    let notify = RequestKind::Notify { object, payload: Default::default(), timeout: TIMEOUT };
    w.submit(Request::from(notify).timeout(Duration::from_secs(1)));
    w.wait(Duration::from_secs(2));
    assert_eq!(w.errno(), errno::ETIMEDOUT);
}
