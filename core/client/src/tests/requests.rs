use super::world::*;
use crate::{ListCursor, ListEntry, ListPage, ObjectRequest, Output, Request, RequestKind};
use bytes::Bytes;
use nacre_base::{Epoch, Name, OsdId, SnapId, errno};
use nacre_machine::{Closed, ConnId};
use nacre_proto::maps::osd_state;
use nacre_proto::messages::{CommandReply, Message, OsdOp, OsdOpReply};
use nacre_proto::types::{ObjectId, Op, op_flags::message as flag};
use nacre_wire::{Encode, versioned};
use std::time::Duration;

fn page(handle: &ObjectId, names: &[&str]) -> Bytes {
    let mut out = Vec::new();
    versioned(&mut out, 1, 1, |out| {
        handle.encode(out);
        (names.len() as u32).encode(out);
        for name in names {
            for part in ["ns", name, "key"] {
                part.encode(out);
            }
        }
    });
    out.into()
}

fn at_hash(hash: u32) -> ObjectId {
    ObjectId { pool: POOL, hash, snap: SnapId::HEAD, ..ObjectId::min() }
}

/// The one listing request that was sent to the primary of `seed`.
fn listing(w: &mut World, seed: u32) -> (ConnId, u64, OsdOp) {
    let pg = nacre_base::PgId { pool: POOL, seed };
    let primary = w.map.pg_to_up_acting(pg).acting_primary.unwrap();
    let conn = w.conn(osd_addr(primary.0, 1));
    if w.sent.is_empty() {
        w.open(conn);
    }
    let (tid, op) = w.ops(conn).remove(0);
    assert_eq!(op.spg.pg, pg);
    (conn, tid, op)
}

fn answer_listing(w: &mut World, (conn, tid, op): (ConnId, u64, OsdOp), data: Bytes) {
    let mut reply = OsdOpReply { result: 1, ..OsdOpReply::to(&op, 1, Epoch(1)) };
    reply.ops[0].data = data;
    w.hear(conn, tid, Box::new(reply));
}

#[test]
fn listing_visits_pgs_in_reversed_hash_order() {
    let mut w = World::up();
    let (pool, from) = (POOL, ListCursor::default());
    w.submit(RequestKind::List { pool, namespace: None, from, max: 3 });
    let first = listing(&mut w, 0);
    assert_eq!(first.2.flags, flag::ONDISK | flag::READ | flag::KNOWN_REDIR | flag::IGNORE_OVERLAY);
    assert_eq!((first.2.locator.hash, first.2.locator.namespace.as_bytes()), (Some(0), &b"\x01"[..]));
    assert_eq!(
        first.2.ops[0].parse(),
        Ok(Op::List { max: 3, start_epoch: Epoch(0), cursor: ObjectId::min(), filter: None })
    );
    answer_listing(&mut w, first, page(&at_hash(4), &["a", "b"]));
    // An empty placement group is no reason to stop.
    let second = listing(&mut w, 4);
    answer_listing(&mut w, second, page(&at_hash(2), &[]));
    let third = listing(&mut w, 2);
    answer_listing(&mut w, third, page(&at_hash(0x10_0002), &["c"]));
    let Output::Page(ListPage { entries, next }) = w.result().1.unwrap() else { panic!("no page") };
    let names: Vec<&Name> = entries.iter().map(|entry| &entry.name).collect();
    assert_eq!(names, ["a", "b", "c"].map(Name::from).iter().collect::<Vec<_>>());
    assert_eq!(entries[0], ListEntry { namespace: "ns".into(), name: "a".into(), key: "key".into() });

    w.submit(Request::list(POOL, Some("ns".into()), next.unwrap()));
    let fourth = listing(&mut w, 2);
    assert_eq!((fourth.2.hash, fourth.2.locator.namespace.as_bytes()), (0x10_0002, &b"ns"[..]));
    answer_listing(&mut w, fourth, page(&ObjectId::max(), &["d"]));
    let Output::Page(ListPage { entries, next }) = w.result().1.unwrap() else { panic!("no page") };
    assert_eq!((entries.len(), next), (1, None));
}

#[test]
fn a_listing_that_cannot_be_read_fails() {
    let mut w = World::up();
    w.submit(Request::list(POOL, None, ListCursor::default()));
    let first = listing(&mut w, 0);
    answer_listing(&mut w, first, "nonsense".into());
    assert_eq!(w.errno(), errno::EIO);
}

#[test]
fn failed_request_returns_errno_and_result_of_each_operation() {
    let mut w = World::up();
    w.submit(write("a").create(true));
    let conn = w.open_osd(w.primary_of("a"));
    let (tid, op) = w.ops(conn).remove(0);
    let mut reply = OsdOpReply::to(&op, -errno::EEXIST, Epoch(1));
    reply.ops[1].rval = -errno::EEXIST;
    w.hear(conn, tid, Box::new(reply));
    let failure = w.result().1.unwrap_err();
    assert_eq!((failure.errno, failure.ops[1].rval), (errno::EEXIST, -errno::EEXIST));
}

#[test]
fn an_answer_with_too_few_outcomes_is_no_answer() {
    let mut w = World::up();
    let (_, conn, tid, op) = w.write_sent("a");
    let reply = OsdOpReply { ops: Vec::new(), ..OsdOpReply::to(&op, 0, Epoch(1)) };
    w.hear(conn, tid, Box::new(reply));
    assert_eq!(w.errno(), errno::EIO);
}

#[test]
fn requests_before_the_first_map_wait_for_it() {
    let mut w = World::new(1);
    w.submit(write("a"));
    w.submit(Request::lookup_pool("p"));
    w.handle(nacre_machine::Event::Start);
    w.greet();
    let conn = w.open_osd(w.primary_of("a"));
    assert_eq!(w.ops(conn).len(), 1);
    let asked = w.version_asked();
    w.tell_version(asked[0]);
    assert!(matches!(w.result().1, Ok(Output::Pool(POOL))));
}

#[test]
fn a_request_without_operations_is_refused_here() {
    let mut w = World::up();
    w.submit(ObjectRequest::new(POOL, "a"));
    assert_eq!(w.errno(), errno::EINVAL);
}

#[test]
fn the_latest_map_is_as_new_as_the_monitors_say() {
    let mut w = World::up();
    w.submit(RequestKind::LatestMap);
    let asked = w.version_asked();
    let inc = w.step(|_| {});
    w.tell_version(asked[0]);
    assert!(w.completions.is_empty());
    let (mon, maps) = (w.mon(), w.maps([inc]));
    w.hear(mon, 0, maps);
    assert!(matches!(w.result().1, Ok(Output::Map(map)) if map.epoch == Epoch(2)));
}

#[test]
fn a_pool_is_looked_for_in_the_newest_map_before_it_is_unknown() {
    let mut w = World::up();
    w.submit(Request::lookup_pool("p"));
    assert!(matches!(w.result().1, Ok(Output::Pool(POOL))));
    w.submit(Request::lookup_pool("q"));
    let asked = w.version_asked();
    w.tell_version(asked[0]);
    assert_eq!(w.errno(), errno::ENOENT);
}

fn command_to(osd: i32) -> RequestKind {
    RequestKind::OsdCommand { osd: OsdId(osd), command: "{}".to_owned(), input: Bytes::new() }
}

#[test]
fn a_command_for_an_osd_is_sent_again_after_a_reset() {
    let mut w = World::up();
    w.submit(command_to(2));
    let commands = |w: &mut World| w.take_sent(|_, message| matches!(message, Message::Command(_)));
    let conn = w.open_osd(OsdId(2));
    let first = commands(&mut w);
    assert!(matches!(&first[0].1, Message::Command(command) if command.fsid == FSID));
    w.close(conn, Closed::Reset);
    let conn = w.open_osd(OsdId(2));
    assert_eq!(commands(&mut w), first);
    let reply = CommandReply { retval: 0, status: "fine".to_owned(), output: "x".into() };
    w.hear(conn, first[0].0, reply);
    assert!(matches!(w.result().1, Ok(Output::Command(command)) if command.status == "fine"));
}

#[test]
fn a_command_for_an_osd_that_is_down_or_unknown_fails() {
    let mut w = World::up();
    w.submit(command_to(7));
    let asked = w.version_asked();
    w.tell_version(asked[0]);
    assert_eq!(w.errno(), errno::ENOENT);
    w.submit(command_to(3));
    w.open_osd(OsdId(3));
    w.change(|inc| inc.new_state.insert(OsdId(3), osd_state::UP));
    assert_eq!(w.errno(), errno::ENXIO);
}

#[test]
fn each_request_keeps_its_own_deadline() {
    let mut w = World::up();
    let long = w.submit(Request::from(write("a")).timeout(Duration::from_secs(9)));
    let short = w.submit(Request::from(write("a")).timeout(Duration::from_secs(1)));
    w.wait(Duration::from_secs(3));
    assert_eq!(w.result().0, short);
    w.wait(Duration::from_secs(6));
    assert_eq!(w.result().0, long);
}
