//! Fewer placement groups: what is lowered when, and what an OSD says of it.

use super::*;

fn set(t: &mut TestMon, pg_num: u32) -> (i32, String) {
    let val = pg_num.to_string();
    let (code, said, _) =
        t.command(json!({ "prefix": "osd pool set", "pool": "p", "var": "pg_num", "val": val }));
    (code, said)
}
/// All placement groups are active and clean, and report so.
pub fn serve(t: &mut TestMon, conns: &[ConnId], pool: PoolId) {
    t.activate(conns, pool);
    t.pass(Duration::from_secs(2));
    // Where data moved, it is there now.
    let map = t.map();
    let moved: Vec<PgId> = map.pgs(pool).filter(|pg| map.pg_temp.contains_key(pg)).collect();
    for pg in &moved {
        let placed = map.pg_to_up_acting(*pg);
        let record = t.mon.state.as_ref().unwrap().pgs.records[pg].clone();
        let wish = PgWish { pg: *pg, record, acting: placed.up };
        t.send(conns[placed.acting_primary.unwrap().index()], DaemonMsg::Rearrange(vec![wish]));
    }
    if !moved.is_empty() {
        t.pass(Duration::from_secs(1));
        t.activate(conns, pool);
    }
    let map = t.map();
    for (osd, &conn) in conns.iter().enumerate() {
        let osd = OsdId(osd as i32);
        let records = &t.mon.state.as_ref().unwrap().pgs.records;
        let mine = map.pgs(pool).filter(|pg| map.pg_to_up_acting(*pg).acting_primary == Some(osd));
        let report = |pg| PgReport { interval: records[&pg].interval, ..pg_report(&map, pg) };
        let pgs = mine.map(report).collect();
        let report = OsdReport { osd: Some(osd), epoch: map.epoch, pgs, ..OsdReport::default() };
        t.send(conn, DaemonMsg::Report(report));
    }
    t.pass(Duration::from_secs(2));
}
fn ready(t: &TestMon, source: PgId) -> MergeReady {
    let records = &t.mon.state.as_ref().unwrap().pgs.records;
    let (_, target) = t.map().pools[&source.pool].merging(source.pool).unwrap_or((source, source));
    let version = |n| nacre_base::Version::new(Epoch(3), n);
    MergeReady {
        epoch: t.map().epoch,
        source,
        source_interval: records[&source].interval,
        source_version: version(9),
        target_interval: records[&target].interval,
        target_version: version(7),
    }
}

#[test]
fn colocated_pgs_merge_when_their_primary_is_ready() {
    let (mut t, conns) = TestMon::with_osds(3);
    let pool = t.create_pool("p", 4);
    serve(&mut t, &conns, pool);
    assert_eq!(set(&mut t, 3), (0, format!("set pool {} pg_num to 3", pool.0)));
    t.pass(Duration::from_secs(2));
    let p = |t: &TestMon| t.map().pools[&pool].as_ref().clone();
    // First they are placed alike, and clean there.
    assert_eq!((p(&t).pg_num, p(&t).pg_num_target, p(&t).pg_num_pending, p(&t).pgp_num), (4, 3, 4, 3));
    t.pass(Duration::from_secs(5));
    assert_eq!(p(&t).pg_num_pending, 4);
    serve(&mut t, &conns, pool);
    assert_eq!((p(&t).pg_num, p(&t).pg_num_pending), (4, 3));
    assert_eq!(t.json(json!({ "prefix": "osd pool get", "pool": "p", "var": "pg_num" }))["pg_num"], 4);

    let source = PgId { pool, seed: 3 };
    let right = ready(&t, source);
    // Writes may have come since.
    let say = |t: &mut TestMon, ready: MergeReady| {
        t.send(conns[0], DaemonMsg::MergeReady(ready));
        p(t).pg_num
    };
    assert_eq!(say(&mut t, MergeReady { source_interval: Epoch(1), ..right.clone() }), 4);
    assert_eq!(say(&mut t, MergeReady { target_interval: Epoch(1), ..right.clone() }), 4);
    let before = Epoch(p(&t).last_change.0 - 1);
    assert_eq!(say(&mut t, MergeReady { epoch: before, ..right.clone() }), 4);
    assert_eq!(say(&mut t, MergeReady { source: PgId { pool, seed: 1 }, ..right.clone() }), 4);
    assert_eq!(say(&mut t, right.clone()), 3);
    let (after, map) = (p(&t), t.map());
    assert_eq!((after.pg_num_pending, after.pgp_num, after.last_force_op_resend), (3, 3, map.epoch));
    assert_eq!((after.last_merge.source, after.last_merge.source_version), (source, right.source_version));
    let target = PgId { pool, seed: 1 };
    let records = &t.mon.state.as_ref().unwrap().pgs.records;
    assert_eq!((records.get(&source), records[&target].interval), (None, map.epoch));
    // Said again, it is old.
    assert_eq!(say(&mut t, right), 3);

    // What came of it must serve before the next pair begins.
    assert_eq!(set(&mut t, 2).0, 0);
    t.pass(Duration::from_secs(9));
    assert_eq!((p(&t).pgp_num, p(&t).pg_num_pending), (3, 3));
    serve(&mut t, &conns, pool);
    assert_eq!(p(&t).pgp_num, 2);
    serve(&mut t, &conns, pool);
    assert_eq!(p(&t).pg_num_pending, 2);
    // It is when the two part again.
    let elsewhere = json!({ "prefix": "osd pool set", "pool": "p", "var": "pgp_num", "val": "3" });
    t.run(elsewhere);
    t.pass(Duration::from_secs(2));
    assert_eq!((p(&t).pg_num, p(&t).pg_num_pending), (3, 3));
    // And when an operator asks for it.
    assert_eq!(set(&mut t, 3).0, 0);
    assert_eq!((p(&t).pg_num, p(&t).pg_num_pending, p(&t).pg_num_target), (3, 3, 3));
}

/// The target had trimmed its clones of a removed snapshot, and the source had not.
#[test]
fn pg_reports_before_a_merge_do_not_count() {
    let (mut t, conns) = TestMon::with_osds(3);
    let pool = t.create_pool("p", 2);
    serve(&mut t, &conns, pool);
    t.run(json!({ "prefix": "osd pool mksnap", "pool": "p", "snap": "s" }));
    t.run(json!({ "prefix": "osd pool rmsnap", "pool": "p", "snap": "s" }));
    let queue = |t: &TestMon| t.map().removed_snaps_queue.get(&pool).is_some_and(|queue| queue.contains(1));
    set(&mut t, 1);
    t.pass(Duration::from_secs(2));
    serve(&mut t, &conns, pool);
    let (source, target) = (PgId { pool, seed: 1 }, PgId { pool, seed: 0 });
    let interval = t.mon.state.as_ref().unwrap().pgs.records[&target].interval;
    let all: IntervalSet = std::iter::once(1..2).collect();
    let say = |t: &mut TestMon| {
        let map = t.map();
        let osd = map.pg_to_up_acting(target).acting_primary.unwrap();
        let report = PgReport { interval, trimmed: all.clone(), ..pg_report(&map, target) };
        let report =
            OsdReport { osd: Some(osd), epoch: map.epoch, pgs: vec![report], ..OsdReport::default() };
        t.send(conns[osd.index()], DaemonMsg::Report(report));
        t.pass(Duration::from_secs(2));
    };
    say(&mut t);
    let now = ready(&t, source);
    t.send(conns[0], DaemonMsg::MergeReady(now));
    t.pass(Duration::from_secs(2));
    assert_eq!(t.map().pools[&pool].pg_num, 1);
    assert!(queue(&t));
    say(&mut t); // on its way since before
    assert!(queue(&t));
}

/// The primary of the target died, and the next one had begun to take writes of its own when the word of
/// the first one came.
#[test]
fn no_osd_serves_half_of_a_merged_pg() {
    let (mut t, conns) = TestMon::with_osds(3);
    let pool = t.create_pool("p", 2);
    serve(&mut t, &conns, pool);
    set(&mut t, 1);
    t.pass(Duration::from_secs(2));
    serve(&mut t, &conns, pool);
    let (source, target) = (PgId { pool, seed: 1 }, PgId { pool, seed: 0 });
    let late = ready(&t, source);
    let before = t.map();
    t.run(json!({ "prefix": "osd set", "key": "noout" }));
    let acting = before.pg_to_up_acting(target).acting;
    let record = PgRecord { interval: t.map().epoch, acting };
    let activate = DaemonMsg::Activate { epoch: t.map().epoch, records: vec![(target, record)] };
    let accepted = |t: &mut TestMon, message: DaemonMsg| match t.ask(conns[0], message) {
        Message::Daemon(DaemonMsg::Activated { results, .. }) => results[0].2,
        other => panic!("{other:?}"),
    };
    assert!(accepted(&mut t, activate.clone()));
    t.send(conns[0], DaemonMsg::MergeReady(late));
    assert_eq!(t.map().pools[&pool].pg_num, 2);
    let now = ready(&t, source);
    t.send(conns[0], DaemonMsg::MergeReady(now));
    assert_eq!(t.map().pools[&pool].pg_num, 1);
    // Nor is a late activation of the interval before the merge accepted.
    assert!(!accepted(&mut t, activate));
    // The acting set in the epoch of the merge serves in it.
    let acting = t.map().pg_to_up_acting(target).acting;
    let record = PgRecord { interval: t.map().epoch, acting };
    let activate = DaemonMsg::Activate { epoch: t.map().epoch, records: vec![(target, record)] };
    assert!(accepted(&mut t, activate));
}

#[test]
fn invalid_pg_num_is_refused() {
    let (mut t, conns) = TestMon::with_osds(3);
    let pool = t.create_pool("p", 8);
    serve(&mut t, &conns, pool);
    let range = "'pg_num' must be greater than 0 and less than or equal to 65536".to_string();
    assert_eq!(set(&mut t, 0), (-34, range));
    t.run(json!({ "prefix": "osd pool set", "pool": "p", "var": "pg_num_min", "val": "4" }));
    assert_eq!(set(&mut t, 3), (-22, "specified pg_num 3 < pg_num_min 4".to_string()));
    t.run(json!({ "prefix": "osd pool set", "pool": "p", "var": "nopgchange", "val": "1" }));
    assert_eq!(set(&mut t, 4).0, -1);
}
