//! What a new map costs, and commands that depend on maps.

use super::world::*;
use crate::{Output, RequestKind, ServiceDaemon};
use bytes::Bytes;
use nacre_base::{Epoch, OsdId, PgId, PoolId, SnapId, Utime, errno};
use nacre_machine::Closed;
use nacre_proto::maps::{MgrMap, Pool, osd_state};
use nacre_proto::messages::{CommandReply, Message, MgrCommandReply, MgrConfigure, MgrMapMsg};
use nacre_proto::types::AddrVec;
use nacre_wire::to_vec;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Writes to objects in all placement groups of two pools.
fn busy() -> World {
    let mut w = World::up();
    w.change(|inc| {
        inc.new_pools.insert(PoolId(2), Arc::new(Pool::replicated(3, 2, 8, 0, Utime::ZERO)));
    });
    for n in 0..200 {
        w.submit(write(&format!("o{n}")));
        w.submit(crate::ObjectRequest::new(PoolId(2), format!("o{n}")).write_full("content"));
    }
    for osd in 0..5 {
        w.open_osd(OsdId(osd));
    }
    assert_eq!(w.client().crush_runs(), 16);
    w.sent.clear();
    w
}

fn crush_runs<R>(w: &mut World, change: impl FnOnce(&mut nacre_proto::maps::Incremental) -> R) -> u64 {
    let before = w.client().crush_runs();
    w.change(change);
    w.client().crush_runs() - before
}

#[test]
fn a_map_that_moves_nothing_costs_no_crush() {
    let mut w = busy();
    assert_eq!(crush_runs(&mut w, |_| {}), 0);
    let osd = w.replica_of("o1");
    assert_eq!(crush_runs(&mut w, |inc| inc.new_up_thru.insert(osd, Epoch(2))), 0);
    // Snapshots change a pool, and place nothing elsewhere.
    let pool = (*w.map.pools[&POOL]).clone();
    let snap = Pool { snap_seq: SnapId(9), ..pool };
    assert_eq!(crush_runs(&mut w, |inc| inc.new_pools.insert(POOL, Arc::new(snap))), 0);
    assert!(w.sent.is_empty());
}

#[test]
fn osd_marked_down_moves_only_its_pgs_without_crush() {
    let mut w = busy();
    let osd = w.primary_of("o1");
    let served = (0..200).map(|n| format!("o{n}")).filter(|name| w.primary_of(name) == osd).count();
    assert_eq!(crush_runs(&mut w, |inc| inc.new_state.insert(osd, osd_state::UP)), 0);
    let resent = w.take_sent(|_, message| matches!(message, Message::OsdOp(op) if op.spg.pg.pool == POOL));
    assert_eq!(resent.len(), served);
}

#[test]
fn changed_weight_recomputes_crush_once_per_used_pg() {
    let mut w = busy();
    assert_eq!(crush_runs(&mut w, |inc| inc.new_weight.insert(OsdId(0), 0)), 16);
    for n in 0..200 {
        let name = format!("o{n}");
        let primary = w.primary_of(&name);
        assert!(w.map.is_up(primary));
    }
}

#[test]
fn pool_split_affects_only_its_own_pgs() {
    let mut w = busy();
    let pool = Pool { pgp_num: 8, ..Pool::replicated(3, 2, 16, 0, Utime::ZERO) };
    let runs = crush_runs(&mut w, |inc| inc.new_pools.insert(POOL, Arc::new(pool)));
    assert_eq!(runs, 16);
    assert!(
        w.sent.iter().all(|(.., message)| matches!(message, Message::OsdOp(op) if op.spg.pg.pool == POOL))
    );
    assert!(!w.sent.is_empty());
}

#[test]
fn what_is_answered_leaves_no_trace_in_the_index() {
    let mut w = World::up();
    let (_, conn, tid, op) = w.write_sent("a");
    w.answer(conn, tid, &op);
    w.result().1.unwrap();
    let osd = w.primary_of("a");
    assert_eq!(crush_runs(&mut w, |inc| inc.new_weight.insert(osd, 0)), 0);
    w.change(|inc| inc.new_state.insert(osd, osd_state::UP));
    assert!(w.sent.is_empty());
}

#[test]
fn a_request_for_a_map_is_complete_when_it_is_there() {
    let mut w = World::up();
    w.submit(RequestKind::MapSince(Epoch(1)));
    assert!(matches!(w.result().1, Ok(Output::Map(_))));
    w.submit(RequestKind::MapSince(Epoch(3)));
    w.change(|_| {});
    assert!(w.completions.is_empty());
    w.change(|_| {});
    assert!(matches!(w.result().1, Ok(Output::Map(map)) if map.epoch == Epoch(3)));
}

#[test]
fn pg_command_goes_to_the_primary() {
    let mut w = World::up();
    let pg = w.pg_of("a");
    w.submit(RequestKind::PgCommand { pg, command: "{}".to_owned(), input: Bytes::new() });
    let conn = w.open_osd(w.primary_of("a"));
    let commands = w.take_sent(|c, message| c == conn && matches!(message, Message::Command(_)));
    let reply = CommandReply { retval: 0, status: String::new(), output: "x".into() };
    w.hear(conn, commands[0].0, reply);
    assert!(matches!(w.result().1, Ok(Output::Command(command)) if command.output == "x"));
    let pg = PgId { pool: POOL, seed: 8 };
    w.submit(RequestKind::PgCommand { pg, command: "{}".to_owned(), input: Bytes::new() });
    let asked = w.version_asked();
    w.tell_version(asked[0]);
    assert_eq!(w.errno(), errno::ENOENT);
}

fn mgr_addr(n: u16) -> nacre_proto::types::EntityAddr {
    nacre_proto::types::EntityAddr::msgr2(([127, 0, 0, 1], 7000 + n).into(), 1)
}

/// A map whose active manager is at that address.
fn mgr_map(epoch: u32, n: u16) -> MgrMapMsg {
    let active = AddrVec::one(mgr_addr(n));
    MgrMapMsg { map: to_vec(&MgrMap::with_active(Epoch(epoch), "x", 1, active, Utime::ZERO)).into() }
}

#[test]
fn a_command_for_the_manager_waits_for_one_and_is_sent_again_to_the_next() {
    let mut w = World::up();
    let id = w.submit(RequestKind::MgrCommand { command: "{}".to_owned(), input: "in".into() });
    let subscribed = w.take_sent(|_, message| matches!(message, Message::MonSubscribe(_)));
    assert!(matches!(&subscribed[0].1, Message::MonSubscribe(sub) if sub.what.contains_key("mgrmap")));
    let mon = w.mon();
    w.hear(mon, 0, mgr_map(1, 1));
    let first = w.conn(mgr_addr(1));
    w.open(first);
    let sent = |w: &mut World, conn| w.take_sent(|c, m| c == conn && matches!(m, Message::MgrCommand(_)));
    assert_eq!(sent(&mut w, first).len(), 1);
    w.hear(mon, 0, mgr_map(2, 2));
    assert!(!w.conns.contains_key(&first));
    let second = w.conn(mgr_addr(2));
    w.close(second, Closed::Refused);
    w.wait(std::time::Duration::from_secs(1));
    let third = w.conn(mgr_addr(2));
    w.open(third);
    let (tid, _) = sent(&mut w, third).remove(0);
    w.hear(third, tid, MgrCommandReply { retval: 0, status: "fine".to_owned(), output: Bytes::new() });
    let (done, result) = w.result();
    assert!(matches!(result, Ok(Output::Command(command)) if command.status == "fine" && done == id));
}

#[test]
fn a_daemon_of_a_service_introduces_itself_to_every_manager_and_reports() {
    let mut w = World::up();
    let service = ServiceDaemon { service: "rgw".into(), name: "a".into(), metadata: BTreeMap::new() };
    w.submit(RequestKind::Register(service));
    assert!(matches!(w.result().1, Ok(Output::Done)));
    let mon = w.mon();
    w.hear(mon, 0, mgr_map(1, 1));
    let first = w.conn(mgr_addr(1));
    w.open(first);
    let opened = |w: &mut World, conn| {
        let sent = w.take_sent(|c, message| c == conn && matches!(message, Message::MgrOpen(_)));
        sent.into_iter().map(|(_, message)| message).collect::<Vec<_>>()
    };
    assert!(matches!(&opened(&mut w, first)[..], [Message::MgrOpen(open)] if open.service_name == "rgw"));
    w.hear(mon, 0, mgr_map(2, 2));
    let second = w.conn(mgr_addr(2));
    w.open(second);
    assert_eq!(opened(&mut w, second).len(), 1);
    w.hear(second, 0, MgrConfigure { stats_period_secs: 5, stats_threshold: 5 });
    for _ in 0..3 {
        w.wait(std::time::Duration::from_secs(5));
        let reports = w.take_sent(|c, message| c == second && matches!(message, Message::MgrReport(_)));
        assert!(matches!(&reports[..], [(_, Message::MgrReport(report))] if report.daemon_name == "a"));
    }
    // The manager forgot it.
    w.close(second, Closed::Refused);
    w.wait(std::time::Duration::from_secs(1));
    let again = w.conn(mgr_addr(2));
    w.open(again);
    assert_eq!(opened(&mut w, again).len(), 1);
}
