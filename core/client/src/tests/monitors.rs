use super::world::*;
use crate::{Output, Request};
use nacre_base::errno;
use nacre_machine::{Closed, ConnId, Event};
use nacre_proto::messages::{Message, MonCommandAck, PaxosVersion};
use std::collections::BTreeSet;
use std::time::Duration;

fn commands(w: &mut World) -> Vec<(u64, ConnId)> {
    let sent = w.sent.iter().filter(|(.., message)| matches!(message, Message::MonCommand(_)));
    let commands = sent.map(|(conn, tid, _)| (*tid, *conn)).collect();
    w.sent.clear();
    commands
}

fn ack(retval: i32) -> MonCommandAck {
    let (status, output) = ("status".to_owned(), "output".into());
    MonCommandAck { version: PaxosVersion(1), retval, status, cmd: Vec::new(), output }
}

#[test]
fn a_session_begins_with_the_map_of_monitors_and_subscriptions() {
    let mut w = World::new(1);
    w.handle(Event::Start);
    let conn = w.mon();
    w.open(conn);
    let names: Vec<&str> = w.sent.iter().map(|(.., message)| message.name()).collect();
    assert_eq!(names, ["mon_getmap", "mon_subscribe"]);
    let Message::MonSubscribe(subscribe) = &w.sent[1].2 else { unreachable!() };
    let what: Vec<(&str, u64, u8)> =
        subscribe.what.iter().map(|(name, sub)| (name.as_str(), sub.start, sub.flags)).collect();
    assert_eq!(what, [("config", 0, 0), ("monmap", 0, 0), ("osdmap", 0, 0)]);
}

#[test]
fn all_monitors_are_tried_and_then_there_is_a_pause() {
    let mut w = World::new(3);
    w.handle(Event::Start);
    let mut tried = BTreeSet::new();
    for _ in 0..3 {
        let conn = w.mon();
        tried.insert(w.conns[&conn]);
        w.close(conn, Closed::Refused);
    }
    assert_eq!(tried.len(), 3);
    assert!(w.conns.is_empty());
    w.wait(Duration::from_millis(200));
    assert_eq!(w.conns.len(), 1);
    // The pause grows to seconds, not more.
    let mut rounds = 0;
    for _ in 0..600 {
        if let Some((&conn, _)) = w.conns.first_key_value() {
            rounds += 1;
            w.close(conn, Closed::Refused);
        }
        w.wait(Duration::from_millis(100));
    }
    assert!((40..150).contains(&rounds), "{rounds} in a minute");
}

#[test]
fn a_monitor_that_says_nothing_is_left() {
    let mut w = World::new(2);
    w.handle(Event::Start);
    let silent = w.mon();
    w.open(silent);
    w.wait(Duration::from_secs(3));
    assert!(!w.conns.contains_key(&silent));
    let other = w.greet();
    assert!(w.client().osd_map().is_some());
    // And one that falls silent later.
    w.wait(Duration::from_secs(11));
    assert!(!w.conns.contains_key(&other));
    assert_eq!(w.conns.len(), 1);
}

#[test]
fn a_monitor_that_answers_probes_is_kept() {
    let mut w = World::up();
    let mon = w.mon();
    for _ in 0..100 {
        w.wait(Duration::from_secs(1));
        for handle in w.version_asked() {
            w.tell_version(handle);
        }
    }
    assert_eq!(w.mon(), mon);
    assert!(w.maps_wanted().is_empty());
    // It has a newer map and did not send it: the subscription is gone.
    w.step(|_| {});
    w.wait(Duration::from_secs(5));
    let probe = w.version_asked()[0];
    w.tell_version(probe);
    assert_eq!(w.maps_wanted(), [2]);
}

#[test]
fn new_session_continues_subscriptions_of_the_last_one() {
    let mut w = World::up();
    w.change(|_| {});
    let id = w.submit(Request::mon_command("{}", "input"));
    let (tid, first) = commands(&mut w)[0];
    w.close(first, Closed::Reset);
    let second = w.mon();
    w.open(second);
    assert_eq!(w.maps_wanted(), [3]);
    assert!(commands(&mut w).is_empty()); // not before its cluster is known
    w.hear(second, 0, World::mon_map_message());
    assert_eq!(commands(&mut w), [(tid, second)]);
    w.hear(second, tid, ack(0));
    let (done, result) = w.result();
    let Output::Command(command) = result.unwrap() else { panic!("a command gives its output") };
    assert_eq!((done, command.status.as_str(), &command.output[..]), (id, "status", &b"output"[..]));
    // What is answered is not asked again.
    w.close(second, Closed::Reset);
    w.greet();
    assert!(commands(&mut w).is_empty());
}

#[test]
fn a_refused_command_says_why() {
    let mut w = World::up();
    w.submit(Request::mon_command("{}", ""));
    let (tid, conn) = commands(&mut w)[0];
    w.hear(conn, tid, ack(-errno::EBUSY));
    let failure = w.result().1.unwrap_err();
    assert_eq!((failure.errno, failure.text.as_str()), (errno::EBUSY, "status"));
}

#[test]
fn commands_out_of_time_are_forgotten() {
    let mut w = World::up();
    w.submit(Request::mon_command("{}", "").timeout(Duration::from_secs(1)));
    let (_, conn) = commands(&mut w)[0];
    w.wait(Duration::from_secs(1));
    assert_eq!(w.errno(), errno::ETIMEDOUT);
    w.close(conn, Closed::Reset);
    w.greet();
    assert!(commands(&mut w).is_empty());
}

#[test]
fn a_monitor_of_another_cluster_is_left() {
    let mut w = World::up();
    let mon = w.mon();
    w.close(mon, Closed::Reset);
    let stranger = w.mon();
    w.open(stranger);
    let map = nacre_proto::maps::MonMap::new(*b"another  cluster", Default::default(), []);
    w.hear(stranger, 0, nacre_proto::messages::MonMapMsg { map: nacre_wire::to_vec(&map).into() });
    assert!(!w.conns.contains_key(&stranger));
    w.wait(Duration::from_secs(1));
    w.greet();
}

#[test]
fn stopping_ends_sessions_and_requests() {
    let mut w = World::up();
    w.write_sent("a");
    w.submit(Request::mon_command("{}", ""));
    w.handle(Event::Stop);
    assert!(w.stopped && w.conns.is_empty() && w.timers.is_empty());
    let errnos: Vec<i32> = w.completions.drain(..).map(|c| c.result.unwrap_err().errno).collect();
    assert_eq!(errnos, [errno::ECANCELED; 2]);
}
