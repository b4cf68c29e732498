//! Subscriptions, versions, ids, restarts.

use super::*;
use crate::commands::snaps;
use crate::pending_txn::PendingTxn;
use nacre_base::SnapId;

#[test]
fn banner_without_features_is_answered() {
    let mut t = TestMon::fresh();
    let conn = t.client();
    t.send(conn, MonGetMap);
    let what = [("config".to_string(), MonSub::default()), ("monmap".to_string(), MonSub::default())].into();
    t.send(conn, MonSubscribe { what, hostname: "h".into() });
    let got = t.received(conn);
    let maps = got.iter().filter(|m| matches!(m, Message::MonMap(_))).count();
    assert_eq!(maps, 2);
    assert!(got.iter().any(|m| matches!(m, Message::Config(c) if c.values.is_empty())));
    let Some(Message::MonMap(map)) = got.first() else { panic!("{got:?}") };
    let map: nacre_proto::maps::MonMap = from_slice(&map.map).unwrap();
    assert_eq!(map.mons["a"].public_addrs, addr(3300, 0));
}

#[test]
fn the_manager_is_where_this_process_listens_for_it() {
    let mut t = TestMon::fresh();
    let conn = t.client();
    t.send(conn, subscribe("mgrmap", 0, 0));
    let got = t.received(conn);
    let [Message::MgrMap(map)] = &got[..] else { panic!("{got:?}") };
    let map: nacre_proto::maps::MgrMap = from_slice(&map.map).unwrap();
    assert!(map.available && map.active_addrs == addr(6800, 1));
    let answer = t.ask(
        conn,
        MgrCommand {
            fsid: [0; 16],
            cmd: vec![r#"{"prefix":"pg stat","target":["mon-mgr",""]}"#.into()],
            input: Bytes::new(),
        },
    );
    assert!(matches!(answer, Message::MgrCommandReply(reply) if reply.retval == 0));
}

#[test]
fn a_subscriber_gets_a_whole_map_first_and_then_changes() {
    let (mut t, _) = TestMon::with_osds(1);
    let conn = t.client();
    t.send(conn, subscribe("osdmap", 0, 0));
    let got = t.received(conn);
    let [Message::OsdMap(whole)] = &got[..] else { panic!("{got:?}") };
    let newest = t.map().epoch;
    let map: OsdMap = from_slice(&whole.full[&newest]).unwrap();
    assert_eq!(map, t.map());
    t.run(json!({ "prefix": "osd set", "key": "noout" }));
    let got = t.received(conn);
    let [Message::OsdMap(change)] = &got[..] else { panic!("{got:?}") };
    let inc = from_slice(&change.incrementals[&newest.next()]).unwrap();
    assert_eq!(map.apply(&inc).unwrap(), t.map());
}

#[test]
fn a_onetime_subscription_waits_for_its_epoch() {
    let (mut t, _) = TestMon::with_osds(1);
    let conn = t.client();
    let next = u64::from(t.map().epoch.0) + 1;
    t.send(conn, subscribe("osdmap", next, MonSub::ONETIME));
    assert_eq!(t.received(conn), []);
    t.run(json!({ "prefix": "osd set", "key": "noout" }));
    assert_eq!(t.received(conn).len(), 1);
}

#[test]
fn subscriber_of_a_map_receives_the_next_one() {
    let (mut t, _) = TestMon::with_osds(2);
    let conn = t.client();
    t.send(conn, subscribe("osdmap", 0, MonSub::ONETIME));
    assert_eq!(t.received(conn).len(), 1);
    t.run(json!({ "prefix": "osd down", "ids": ["1"] }));
    assert_eq!(t.received(conn).len(), 1);
}

#[test]
fn a_subscriber_far_behind_gets_a_whole_map() {
    let (mut t, _) = TestMon::with_osds(1);
    for _ in 0..320 {
        t.run(json!({ "prefix": "osd set", "key": "noout" }));
        t.run(json!({ "prefix": "osd unset", "key": "noout" }));
    }
    let conn = t.client();
    t.send(conn, subscribe("osdmap", 2, 0));
    let got = t.received(conn);
    let [Message::OsdMap(map)] = &got[..] else { panic!("{} messages", got.len()) };
    assert_eq!(map.full.len(), 1);
    // There librados jumps to from what it has: of a map of another epoch it takes nothing, and waits for
    // ever.
    assert!(map.full.contains_key(&map.oldest), "from {:?} to {:?}", map.oldest, map.newest);
    let recent = u64::from(t.map().epoch.0) - 90;
    t.send(conn, subscribe("osdmap", recent, 0));
    let parts: Vec<usize> = t
        .received(conn)
        .iter()
        .map(|m| if let Message::OsdMap(m) = m { m.incrementals.len() } else { 0 })
        .collect();
    assert_eq!(parts, [40, 40, 11]);
    // Any kept epoch can be had whole.
    let (code, ..) = t.command(json!({ "prefix": "osd dump", "epoch": recent }));
    assert_eq!(code, 0);
    let (code, ..) = t.command(json!({ "prefix": "osd dump", "epoch": 2 }));
    assert_eq!(code, -2);
    // The log was compacted on the way, and all is there after a restart.
    let before = t.map();
    assert_eq!(t.restart().map(), before);
}

#[test]
fn options_reach_those_they_are_for() {
    let (mut t, conns) = TestMon::with_osds(2);
    let client = t.client();
    t.send(client, subscribe("config", 0, 0));
    t.send(conns[1], subscribe("config", 0, 0));
    t.received(client);
    t.received(conns[1]);
    for (who, name) in
        [("osd", "osd_max_backfills"), ("osd.1", "osd_max_scrubs"), ("osd/class:hdd", "osd_op_num_shards")]
    {
        t.run(json!({ "prefix": "config set", "who": who, "name": name, "value": "3" }));
    }
    let told = t.received(conns[1]);
    let Some(Message::Config(last)) = told.last() else { panic!("{told:?}") };
    assert_eq!(last.values.keys().collect::<Vec<_>>(), ["osd_max_backfills", "osd_max_scrubs"]);
    assert_eq!(t.received(client), [], "nothing changed for clients");
}

#[test]
fn versions_and_pings_are_answered() {
    let (mut t, _) = TestMon::with_osds(1);
    let conn = t.client();
    let newest = u64::from(t.map().epoch.0);
    let answer = t.ask(conn, MonGetVersion { handle: 5, what: "osdmap".into() });
    assert!(
        matches!(answer, Message::MonGetVersionReply(r) if r.handle == 5 && r.version == newest && r.oldest == 1)
    );
    let Message::Ping(Ping { text: Some(text) }) = t.ask(conn, Ping::default()) else { panic!("no ping") };
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["mon_status"]["state"], "leader");
}

#[test]
fn pools_come_and_go_by_message_too() {
    let (mut t, _) = TestMon::with_osds(3);
    let conn = t.client();
    let op = |op, pool, name: &str| PoolOp {
        version: PaxosVersion(0),
        fsid: [0; 16],
        pool,
        op,
        auid: 0,
        snap: nacre_base::SnapId(0),
        name: name.into(),
        crush_rule: -1,
    };
    let Message::PoolOpReply(made) = t.ask(conn, op(PoolOpKind::Create, 0, "p")) else { panic!("no reply") };
    assert_eq!((made.code, made.epoch), (0, t.map().epoch));
    let id = t.map().pool_by_name("p").unwrap().0 as u32;
    let Message::PoolOpReply(snap) = t.ask(conn, op(PoolOpKind::CreateSnap, id, "s")) else {
        panic!("no reply")
    };
    assert_eq!(snap.code, 0);
    let pool = t.map().pools.values().next().unwrap().clone();
    assert_eq!(pool.snaps.values().map(|snap| snap.name.to_text()).collect::<Vec<_>>(), ["s"]);
    // A pool has snapshots of its own, or clients manage theirs.
    let kinds = [PoolOpKind::CreateUnmanagedSnap, PoolOpKind::DeleteUnmanagedSnap, PoolOpKind::DeleteSnap];
    let codes = kinds.map(|kind| match t.ask(conn, op(kind, id, "s")) {
        Message::PoolOpReply(reply) => reply.code,
        _ => panic!("no reply"),
    });
    assert_eq!(codes, [-22, -22, 0]);
    assert!(t.map().pools.values().all(|pool| pool.snaps.is_empty() && pool.snap_seq.0 == 2));
    assert!(t.map().removed_snaps_queue.values().all(|queue| queue.contains(1)));
    let Message::PoolOpReply(gone) = t.ask(conn, op(PoolOpKind::Delete, id, "")) else { panic!("no reply") };
    assert_eq!(gone.code, 0);
    assert!(t.map().pools.is_empty());
}

#[test]
fn ids_of_snapshots_go_up_and_removed_ones_are_announced() {
    let (mut t, _) = TestMon::with_osds(3);
    let pool = t.create_pool("p", 4);
    let conn = t.client();
    let mut ask = |op, snap| {
        let request = PoolOp {
            version: PaxosVersion(0),
            fsid: [0; 16],
            pool: pool.0 as u32,
            op,
            auid: 0,
            snap: nacre_base::SnapId(snap),
            name: String::new(),
            crush_rule: -1,
        };
        let Message::PoolOpReply(reply) = t.ask(conn, request) else { panic!("no reply") };
        (reply.code, reply.data.map(|data| data[..].to_vec()), t.map())
    };
    let id = |id: u64| Some(id.to_le_bytes().to_vec());
    let (code, data, _) = ask(PoolOpKind::CreateUnmanagedSnap, 0);
    assert_eq!((code, data), (0, id(2)));
    let (code, data, _) = ask(PoolOpKind::CreateUnmanagedSnap, 0);
    assert_eq!((code, data), (0, id(3)));
    assert_eq!(ask(PoolOpKind::DeleteUnmanagedSnap, 9).0, -2);
    let (code, _, map) = ask(PoolOpKind::DeleteUnmanagedSnap, 2);
    assert_eq!(code, 0);
    assert!(map.new_removed_snaps[&pool].contains(2));
    assert!(map.removed_snaps_queue[&pool].contains(2), "until every group has trimmed it");
    let (_, data, _) = ask(PoolOpKind::CreateUnmanagedSnap, 0);
    assert_eq!(data, id(5)); // an id is never given twice
}

#[test]
fn removed_snapshot_is_purged_once_every_pg_trimmed_it() {
    let (mut t, conns) = TestMon::with_osds(3);
    let pool = t.create_pool("p", 4);
    t.activate(&conns, pool);
    for snap in ["one", "two"] {
        t.run(json!({"prefix": "osd pool mksnap", "pool": "p", "snap": snap}));
        t.run(json!({"prefix": "osd pool rmsnap", "pool": "p", "snap": snap}));
    }
    let queue = |t: &TestMon| t.map().removed_snaps_queue.get(&pool).cloned().unwrap_or_default();
    let all = [1..2, 3..4].into_iter().collect();
    assert_eq!(queue(&t), all);
    let most = |pg: PgId| if pg.seed == 2 { std::iter::once(3..4).collect() } else { all.clone() };
    t.report_trimmed(&conns, pool, most);
    t.pass(Duration::from_secs(3));
    assert_eq!(queue(&t), std::iter::once(1..2).collect());
    t.report_trimmed(&conns, pool, |_| all.clone());
    t.pass(Duration::from_secs(3));
    assert!(queue(&t).is_empty());
    // The monitors still know the purged snapshots, in case they are asked again.
    let state = t.mon.state.as_ref().unwrap();
    assert_eq!(state.osdmap.purged_snaps[&pool], std::iter::once(1..5).collect());

    // A client with an old snap context has clones made for the removed snapshot and for an existing one.
    t.run(json!({"prefix": "osd pool mksnap", "pool": "p", "snap": "three"}));
    let kept = BTreeMap::from([(pool, [1..2, 5..6].into_iter().collect())]);
    let space = OsdSpace { total: 1 << 30, available: 1 << 30, ..OsdSpace::default() };
    let report = OsdReport { osd: Some(OsdId(0)), epoch: t.map().epoch, space, kept, ..OsdReport::default() };
    t.report(&conns, pool);
    t.send(conns[0], DaemonMsg::Report(report));
    t.pass(Duration::from_secs(3));
    assert_eq!(queue(&t), std::iter::once(1..2).collect());
    t.report_trimmed(&conns, pool, |_| all.clone());
    t.pass(Duration::from_secs(3));
    assert!(queue(&t).is_empty());
    assert_eq!(t.map().pools[&pool].snap_seq.0, 6, "a removal has a number of its own");
}

/// Found by the simulator: a snapshot that was made in the epoch in which another was removed counted as
/// removed from then on, and whatever was kept for it was trimmed.
#[test]
fn snapshot_created_beside_a_removal_is_not_removed() {
    let (mut t, _) = TestMon::with_osds(3);
    let pool = t.create_pool("p", 4);
    let op = |snap| PoolOp {
        version: PaxosVersion(0),
        fsid: [0; 16],
        pool: pool.0 as u32,
        op: PoolOpKind::DeleteUnmanagedSnap,
        auid: 0,
        snap: SnapId(snap),
        name: String::new(),
        crush_rule: -1,
    };
    let mut state = t.mon.state.take().unwrap();
    let mut pending = PendingTxn::new(&state, Utime::ZERO);
    let old = snaps::create_unmanaged(&op(0), &mut pending).unwrap();
    state.apply(&pending.finish()).unwrap();
    let mut pending = PendingTxn::new(&state, Utime::ZERO);
    snaps::delete_unmanaged(&op(old.0), &state, &mut pending).unwrap();
    let new = snaps::create_unmanaged(&op(0), &mut pending).unwrap();
    state.apply(&pending.finish()).unwrap();
    assert_eq!((old, new), (SnapId(2), SnapId(4)));
    assert_eq!(state.osdmap.purged_snaps[&pool], std::iter::once(3..4).collect(), "what the removal took");
    assert_eq!(state.osdmap.map.removed_snaps_queue[&pool], std::iter::once(2..3).collect());
}

#[test]
fn rados_df_gets_its_numbers() {
    let (mut t, conns) = TestMon::with_osds(3);
    let pool = t.create_pool("p", 4);
    t.activate(&conns, pool);
    t.report(&conns, pool);
    let conn = t.client();
    let ask = nacre_proto::messages::Statfs { version: PaxosVersion(0), fsid: [0; 16], data_pool: None };
    let Message::StatfsReply(space) = t.ask(conn, ask) else { panic!("no reply") };
    assert_eq!((space.kb, space.kb_used, space.num_objects), (30 << 20, 3 << 20, 8));
    let ask = GetPoolStats { version: PaxosVersion(0), fsid: [0; 16], pools: vec!["p".into(), "q".into()] };
    let Message::GetPoolStatsReply(stats) = t.ask(conn, ask) else { panic!("no reply") };
    assert_eq!(stats.stats.len(), 1);
    assert_eq!(stats.stats["p"].sum.num_objects, 8);
}

#[test]
fn state_survives_restart_and_ids_are_unique() {
    let (mut t, conns) = TestMon::with_osds(3);
    let pool = t.create_pool("p", 4);
    t.activate(&conns, pool);
    t.run(json!({ "prefix": "config-key set", "key": "a", "val": "b" }));
    t.event(Event::IdsLow);
    let (map, fsid, granted) = (t.map(), t.mon.fsid(), t.granted.clone());
    assert_eq!(granted.len(), 2);
    let mut t = t.restart();
    assert_eq!((t.map(), t.mon.fsid()), (map, fsid));
    assert_eq!(t.run(json!({ "prefix": "config-key get", "key": "a" })), "b");
    assert!(t.granted[0].start >= granted[1].end, "{:?} after {granted:?}", t.granted);
    assert!(t.mon.state.as_ref().unwrap().pgs.records.len() == 4);
}

#[test]
fn cluster_log_reaches_its_subscribers() {
    let (mut t, _) = TestMon::with_osds(1);
    let conn = t.client();
    t.send(conn, subscribe("log-info", 0, 0));
    assert_eq!(t.received(conn), []);
    t.run(json!({ "prefix": "log", "logtext": ["hello", "world"] }));
    let got = t.received(conn);
    let [Message::Log(log)] = &got[..] else { panic!("{got:?}") };
    assert!(log.entries.iter().any(|entry| entry.text == "hello world"), "{log:?}");
    assert!(t.run(json!({ "prefix": "log last" })).contains("[INF] hello world"));
}

#[test]
fn a_client_that_floods_is_hung_up_on() {
    let mut t = TestMon::fresh();
    let conn = t.client();
    for _ in 0..6000 {
        t.send(conn, MonGetMap);
    }
    assert!(t.hung_up.contains(&conn));
}

#[test]
fn the_same_events_give_the_same_state() {
    let run = || {
        let (mut t, conns) = TestMon::with_osds(3);
        let pool = t.create_pool("p", 4);
        t.activate(&conns, pool);
        nacre_wire::to_vec(t.mon.state.as_ref().unwrap())
    };
    let bytes = run();
    assert_eq!(bytes, run());
    let state: crate::state::State = from_slice(&bytes).unwrap();
    assert_eq!(nacre_wire::to_vec(&state), bytes, "a checkpoint reads back");
}
